"""Permissions: may this actor do this to that? One pure decision; every deed asks it."""

from asterism.permissions.decision import (
    Act,
    Actor,
    Allow,
    Ask,
    Deny,
    Resource,
    Rules,
    Verdict,
    decide,
)

__all__ = ["Act", "Actor", "Allow", "Ask", "Deny", "Resource", "Rules", "Verdict", "decide"]
