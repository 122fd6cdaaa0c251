"""`asterism notice`: what the owner must be told."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from asterism.cli.home import visit
from asterism.cli.options import Options, command, group
from asterism.cli.output import Column, Output
from asterism.times import local_short

if TYPE_CHECKING:
    from asterism.app import Asterism
    from asterism.types.turns import Notice

app = group("Read what agents could not settle by themselves.")


@command(app, "list")
def list_notices(
    options: Options,
    every: Annotated[bool, typer.Option("--all", help="Also those that were seen.")] = False,
) -> None:
    """Show notices, oldest first; a chat shows them too and marks them as seen."""

    async def errand(home: Asterism) -> list[Notice]:
        return await home.notices.list(unseen=not every)

    found = visit(options, errand, readonly=True)
    out = Output(json=options.json)
    if out.json:
        out.data(found)
        return
    columns: list[Column[Notice]] = [
        Column("when", lambda one: local_short(one.at)),
        Column("kind", lambda one: one.kind, least=80),
        Column("notice", lambda one: one.text, prose=True),
    ]
    out.table(columns, found, empty="Nothing to tell." if every else "Nothing new to tell.")
