"""What a constellation has at rest, in numbers."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Figures:
    """How much there is and how much waits, as the store knows it."""

    agents: int = 0
    inbox: int = 0
    """Messages and decisions that wait for their turn."""
    oldest: int | None = None
    """When the one that has waited longest came in."""
    approvals: int = 0
    notices: int = 0
    deliveries: dict[str, int] = field(default_factory=dict[str, int])
    """What is not sent, by state."""
    schedules: int = 0
    money: dict[str, int] = field(default_factory=dict[str, int])
    """Nano-dollars of all months: `spent`, `presumed` (perhaps billed) and `reserved`."""
