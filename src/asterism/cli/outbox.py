"""`asterism outbox`: messages on their way out."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

from asterism.cli.commands import argument, command, group, option
from asterism.cli.output import Column, ItemTable, Result

if TYPE_CHECKING:
    from asterism.app import Asterism
    from asterism.types.turns import Delivery

app = group("See deliveries that wait or were given up, and try them again.")


class DeliveryState(StrEnum):
    """Where a delivery stands."""

    WAITING = "waiting"
    DEAD = "dead"
    SENT = "sent"


@command(app, "list", readonly=True)
async def list_deliveries(
    home: Asterism,
    state: Annotated[
        DeliveryState | None, option("--state", None, "Only those; else all that are not sent.")
    ] = None,
) -> Result:
    """Show deliveries, oldest first."""
    deliveries = await home.outbox.list(state.value if state else None)
    columns: list[Column[Delivery]] = [
        Column("delivery", lambda delivery: delivery.key),
        Column("state", lambda delivery: delivery.state, state=True),
        Column("tries", lambda delivery: str(delivery.attempts), least=80),
        Column(
            "to", lambda delivery: f"{delivery.channel}:{delivery.target}", least=100, prose=True
        ),
        Column("error", lambda delivery: delivery.error or "", prose=True),
    ]
    empty = "Nothing is on its way, and nothing was given up."
    return Result(deliveries, ItemTable(columns, deliveries, empty))


@command(app, "retry")
async def retry(
    home: Asterism,
    key: Annotated[str, argument("KEY", "The delivery's key.")],
) -> Result:
    """Put a dead delivery back on its way; the next process at work tries it."""
    await home.outbox.retry(key)
    return Result(
        {"key": key, "state": DeliveryState.WAITING},
        f'{key} is on its way again; "asterism serve" or "asterism chat" tries it.',
    )
