"""`asterism constellation`: the constellations that a server serves beside its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from asterism.cli.commands import argument, command, group
from asterism.cli.output import Column, Grid, ItemTable, Result
from asterism.times import local_text

if TYPE_CHECKING:
    from asterism.app import Asterism
    from asterism.app.constellations import Constellation

app = group("Set up agents from a template; manage the constellations that a server serves.")

Name = Annotated[str, argument("NAME", "The constellation's name.")]


@command(app, "create", example="constellation create work")
async def create(home: Asterism, name: Name) -> Result:
    """Create a constellation, or return the one that there is."""
    made = await home.constellations.ensure(name, by="cli")
    token = f'asterism token create owner --constellation "{made.name}"'
    return Result(made, f"The constellation {made.name} is served. A token for it: {token}")


@command(app, "list", example="constellation list", readonly=True)
async def list_constellations(home: Asterism) -> Result:
    """Show all constellations of the database."""
    found = await home.constellations.list()
    columns: list[Column[Constellation]] = [
        Column("constellation", lambda there: there.name, prose=True),
        Column("agents", lambda there: f"{there.agents:,}"),
        Column("tokens", lambda there: f"{there.tokens:,}"),
        Column("", lambda there: "the server's own" if there.is_own else ""),
    ]
    return Result(found, ItemTable(columns, found, "There are no constellations."))


@command(app, "show", example="constellation show work", readonly=True)
async def show(home: Asterism, name: Name) -> Result:
    """Show one constellation."""
    there = await home.constellations.get(name)
    rows = [
        ("name", there.name),
        ("agents", f"{there.agents:,}"),
        ("tokens", f"{there.tokens:,}"),
        ("created", local_text(there.created_at_ms) if there.created_at_ms else "not known"),
        ("the server's own", "yes" if there.is_own else "no"),
    ]
    return Result(there, Grid(rows))
