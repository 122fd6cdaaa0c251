"""Schedules: messages an agent gets at a time, once or by a cron rule."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Schedule:
    """A message to an agent that falls due at a time."""

    id: str
    agent_id: str
    text: str
    due_at: int
    cron: str | None
    """Five fields, UTC; None when it happens once."""
    channel: str | None
    reply_to: str | None
    """Where the answer goes: where the matter came from."""
    created_at: int
    participants: str | None = None
    """Who was present when it was made, as JSON: they hear what comes of it. None: the owner."""
