"""Halts: everything stands still until a person says that it may go on."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Halt:
    """A stop of a whole constellation."""

    id: str
    agent_id: str | None
    """The agent that called for it; None: the owner did."""
    turn_id: str | None
    severity: str
    reason: str
    at: int
