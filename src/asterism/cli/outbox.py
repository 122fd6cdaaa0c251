"""`asterism outbox`: messages on their way out."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from asterism.cli.home import visit
from asterism.cli.options import Options, command, group
from asterism.cli.output import Column, Output

if TYPE_CHECKING:
    from asterism.app import Asterism
    from asterism.types.turns import Delivery

app = group("See deliveries that wait or were given up, and try them again.")


class State(StrEnum):
    """Where a delivery stands."""

    WAITING = "waiting"
    DEAD = "dead"
    SENT = "sent"


@command(app, "list")
def list_deliveries(
    options: Options,
    state: Annotated[
        State | None, typer.Option("--state", help="Only those; else all that are not sent.")
    ] = None,
) -> None:
    """Show deliveries, oldest first."""

    async def errand(home: Asterism) -> list[Delivery]:
        return await home.outbox.list(state.value if state else None)

    found = visit(options, errand, readonly=True)
    out = Output(json=options.json)
    if out.json:
        out.data(found)
        return
    columns: list[Column[Delivery]] = [
        Column("delivery", lambda one: one.key),
        Column("state", lambda one: one.state, state=True),
        Column("tries", lambda one: str(one.attempts), least=80),
        Column("to", lambda one: f"{one.channel}:{one.target}", least=100, prose=True),
        Column("error", lambda one: one.error or "", prose=True),
    ]
    out.table(columns, found, empty="Nothing is on its way, and nothing was given up.")


@command(app, "retry")
def retry(
    options: Options,
    key: Annotated[str, typer.Argument(metavar="KEY", help="The delivery's key.")],
) -> None:
    """Put a dead delivery back on its way; whatever is at work next tries it."""

    async def errand(home: Asterism) -> None:
        await home.outbox.retry(key)

    visit(options, errand)
    out = Output(json=options.json)
    if out.json:
        out.data({"key": key, "state": State.WAITING})
    else:
        out.line(f'{key} is on its way again; "asterism serve" or "asterism chat" tries it.')
