"""Permissions: may this actor do this to that? One pure decision; every effect asks it."""

from asterism.permissions.decision import (
    PRESENT,
    ROLES,
    SYSTEM,
    Act,
    Actor,
    Allow,
    Ask,
    Authority,
    Deny,
    Resource,
    Situation,
    Verdict,
    decide,
)
from asterism.permissions.grants import Grants
from asterism.permissions.policies import Policies, Policy, Quota, Ruling, Wanted

__all__ = [
    "PRESENT",
    "ROLES",
    "SYSTEM",
    "Act",
    "Actor",
    "Allow",
    "Ask",
    "Authority",
    "Deny",
    "Grants",
    "Policies",
    "Policy",
    "Quota",
    "Resource",
    "Ruling",
    "Situation",
    "Verdict",
    "Wanted",
    "decide",
]
