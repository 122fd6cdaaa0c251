"""A clock that stands still until a test moves it."""

from __future__ import annotations


class ManualClock:
    """Tells the time that a test has set, in milliseconds since 1970."""

    def __init__(self, now: int = 1_800_000_000_000) -> None:
        self.now = now

    def __call__(self) -> int:
        """Return the time."""
        return self.now

    def forward(self, *, seconds: float) -> None:
        """Let time pass."""
        self.now += int(seconds * 1000)
