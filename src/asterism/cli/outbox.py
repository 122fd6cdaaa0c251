"""`asterism outbox`: messages on their way out."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

from asterism.cli.commands import argument, command, group, option
from asterism.cli.inputs import Limit
from asterism.cli.output import Column, ItemTable, Result, up_to

if TYPE_CHECKING:
    from asterism.app import Asterism
    from asterism.types.turns import Delivery

app = group("Show deliveries that are waiting or have failed, and retry them.")


class DeliveryState(StrEnum):
    """Where a delivery stands."""

    WAITING = "waiting"
    DEAD = "dead"
    SENT = "sent"


@command(app, "list", example="outbox list --state dead", readonly=True)
async def list_deliveries(
    home: Asterism,
    state: Annotated[
        DeliveryState | None,
        option("--state", None, "Only deliveries in this state; default: all that are not sent."),
    ] = None,
    limit: Limit = 100,
) -> Result:
    """Show deliveries, oldest first."""
    found = await home.outbox.list(state.value if state else None, limit=limit + 1)
    deliveries, notes = up_to(found, limit)
    columns: list[Column[Delivery]] = [
        Column("delivery", lambda delivery: delivery.key),
        Column("state", lambda delivery: delivery.state, state=True),
        Column("tries", lambda delivery: str(delivery.attempts), least=80),
        Column(
            "to", lambda delivery: f"{delivery.channel}:{delivery.target}", least=100, prose=True
        ),
        Column("error", lambda delivery: delivery.error or "", prose=True),
    ]
    empty = "No deliveries are waiting, and none has failed."
    return Result(deliveries, ItemTable(columns, deliveries, empty), notes=notes)


@command(app, "retry", example="outbox retry out_01a1ed55")
async def retry(
    home: Asterism,
    key: Annotated[str, argument("KEY", "The delivery's key.")],
) -> Result:
    """Retry a dead delivery; the next running process sends it."""
    await home.outbox.retry(key)
    return Result(
        {"key": key, "state": DeliveryState.WAITING},
        f'{key} will be retried by "asterism serve" or "asterism chat".',
    )
