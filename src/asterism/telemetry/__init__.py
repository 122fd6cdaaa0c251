"""What can be observed of a home at work: counts, spans, and which turn a log line belongs to.

Counts are always kept, in memory. Spans and whatever else leaves the machine need
`telemetry.endpoint` in the configuration; `spans` and `prometheus` load their libraries and are
imported only when asked for.
"""

from __future__ import annotations

from asterism.telemetry.metrics import (
    Counts,
    DeliveryWatch,
    ModelWatch,
    Telemetry,
    ToolWatch,
    TurnWatch,
    current_turn,
    record_failover,
    turn_context,
)

__all__ = [
    "Counts",
    "DeliveryWatch",
    "ModelWatch",
    "Telemetry",
    "ToolWatch",
    "TurnWatch",
    "current_turn",
    "record_failover",
    "turn_context",
]
