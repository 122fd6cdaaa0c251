"""Ids: prefixed, time-ordered, opaque, such as `msg_019a8b6f0c2e5d1f3a9b7c04`."""

from __future__ import annotations

import os
import time


def now_ms() -> int:
    """Return the time as milliseconds since 1970, UTC; the unit of every time in the store."""
    return time.time_ns() // 1_000_000


def new_id(prefix: str) -> str:
    """Return a new id: 48 bits of time, then 48 random bits."""
    return f"{prefix}_{now_ms():012x}{os.urandom(6).hex()}"


def turn_id_for(message_id: str) -> str:
    """Return the id of the turn that answers a message: known before the turn begins."""
    return "turn_" + message_id.partition("_")[2]
