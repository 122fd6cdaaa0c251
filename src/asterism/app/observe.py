"""What is told about a home at work: spans to a collector, metrics to whoever asks."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from importlib.metadata import version

from asterism.config import Settings
from asterism.errors import AsterismError, ConfigError
from asterism.store import figures
from asterism.store.database import Database
from asterism.telemetry import Telemetry

_PATIENCE = 5.0


def begin_spans(telemetry: Telemetry, settings: Settings) -> None:
    """Begin to send spans, if the configuration says where to."""
    if settings.telemetry.endpoint is None:
        return
    try:
        from asterism.telemetry.spans import Spans
    except ImportError as error:
        raise ConfigError(
            f"telemetry.endpoint is set, but {error.name} is not installed. Install it with: "
            "pip install 'asterism[telemetry]', or take telemetry.endpoint out of the "
            "configuration. Nothing was started."
        ) from error
    telemetry.spans = Spans(
        settings.telemetry,
        constellation=settings.constellation,
        version=version("asterism"),
        counts=telemetry.counts,
    )


async def metrics(
    database: Database,
    constellation: str,
    telemetry: Telemetry,
    breakers: Mapping[str, bool],
    *,
    now: int,
    accept: str,
) -> tuple[bytes, str]:
    """Return the metrics in a format that Prometheus reads, and the type of that format."""
    from asterism.telemetry.prometheus import render_metrics

    try:
        async with asyncio.timeout(_PATIENCE):
            at_rest = await database.read(lambda tx: figures.read(tx, constellation))
    except (AsterismError, TimeoutError):
        at_rest = None
    return render_metrics(
        telemetry.counts,
        at_rest,
        version=version("asterism"),
        now=now,
        breakers=breakers,
        accept=accept,
    )
