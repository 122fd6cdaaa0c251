"""`asterism notice`: what the owner should know."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from asterism.cli.commands import command, flag, group
from asterism.cli.inputs import Limit
from asterism.cli.output import Column, ItemTable, Result, up_to
from asterism.times import local_short

if TYPE_CHECKING:
    from asterism.app import Asterism
    from asterism.types.turns import Notice

app = group("Read problems that agents could not solve by themselves.")


@command(app, "list", example="notice list", readonly=True)
async def list_notices(
    home: Asterism,
    every: Annotated[bool, flag("--all", "Also show notices that were seen.")] = False,
    limit: Limit = 100,
) -> Result:
    """Show notices, oldest first; a chat shows them too and marks them as seen."""
    found = await home.notices.list(unseen=not every, limit=limit + 1)
    notices, notes = up_to(found, limit)
    columns: list[Column[Notice]] = [
        Column("when", lambda notice: local_short(notice.at_ms)),
        Column("kind", lambda notice: notice.kind, least=80),
        Column("notice", lambda notice: notice.text, prose=True),
    ]
    empty = "There are no notices." if every else "There are no new notices."
    return Result(notices, ItemTable(columns, notices, empty), notes=notes)
