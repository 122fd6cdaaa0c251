"""What can be observed of a home at work: counts, spans, and which turn a log line belongs to.

Counts are always kept, in memory. Spans and whatever else leaves the machine need
`telemetry.endpoint` in the configuration; `spans`, `export` and `exposition` load their libraries
and are imported only when asked for.
"""

from __future__ import annotations

from asterism.telemetry.counts import Counts
from asterism.telemetry.watches import (
    DeliveryWatch,
    ModelWatch,
    Telemetry,
    ToolWatch,
    TurnWatch,
    failover,
    here,
    within,
)

__all__ = [
    "Counts",
    "DeliveryWatch",
    "ModelWatch",
    "Telemetry",
    "ToolWatch",
    "TurnWatch",
    "failover",
    "here",
    "within",
]
