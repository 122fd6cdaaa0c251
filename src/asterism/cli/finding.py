"""What a check of the doctor found."""

from __future__ import annotations

from dataclasses import dataclass

OK, LOOK, BAD = "ok", "look", "bad"


@dataclass(frozen=True, slots=True)
class CheckResult:
    """What one check found."""

    check: str
    state: str
    """`ok`, `look` (works, but look at it) or `bad` (does not work)."""
    text: str
    remedy: str = ""
