"""`asterism block history`, `diff` and `blame`: what became of a block, and by whom."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from asterism.cli.block import Label, app
from asterism.cli.block_edit import version_of
from asterism.cli.home import visit
from asterism.cli.options import Options, command
from asterism.cli.output import Column, Output, console
from asterism.cli.shapes import plain
from asterism.cli.text import printable
from asterism.cli.whose import Everybodys, Whose, block_of
from asterism.times import local_short

if TYPE_CHECKING:
    from collections.abc import Sequence

    from asterism.app import Asterism
    from asterism.types.memory import EditRecord, Line

_STYLES = {"@": "cyan", "+": "green", "-": "red"}
_HEAD = 2
"""Lines that name the two versions."""


@command(app, "history")
def history(
    options: Options,
    label: Label,
    agent: Whose = None,
    everybodys: Everybodys = False,
    limit: Annotated[int, typer.Option("--limit", min=1, help="How many at most.")] = 20,
    before: Annotated[
        int | None, typer.Option("--before", min=1, metavar="EDIT", help="Only edits before this.")
    ] = None,
) -> None:
    """Show the edits of a block, the newest first."""
    which = block_of(agent, label, everybodys=everybodys)

    async def errand(home: Asterism) -> list[EditRecord]:
        return await home.blocks.history(*which, limit=limit, before=before)

    found = visit(options, errand, readonly=True)
    out = Output(json=options.json)
    if out.json:
        out.data(plain(found))
        return
    columns: list[Column[EditRecord]] = [
        Column("edit", lambda one: str(one.number)),
        Column("when", lambda one: local_short(one.at)),
        Column("what", lambda one: one.kind),
        Column("by", lambda one: one.author, prose=True),
        Column("stands", _standing),
        Column("turn", lambda one: one.turn_id or "", least=120),
        Column("why", lambda one: one.reason, prose=True),
    ]
    out.table(columns, found, empty="There are no edits before that one.")


def _standing(one: EditRecord) -> str:
    if one.undone_by is not None:
        return f"taken back by {one.undone_by}"
    return f"takes back {one.undoes}" if one.undoes is not None else ""


@command(app, "diff")
def diff(
    options: Options,
    label: Label,
    first: Annotated[
        str, typer.Argument(metavar="A", help='A version, or a moment such as "1 hour ago".')
    ],
    second: Annotated[
        str | None, typer.Argument(metavar="B", help="Another; if not given, now.")
    ] = None,
    agent: Whose = None,
    everybodys: Everybodys = False,
) -> None:
    """Show what changed in a block between two versions or moments."""
    which = block_of(agent, label, everybodys=everybodys)

    async def errand(home: Asterism) -> tuple[int, int, str]:
        a = await version_of(home, which, first, there=False)
        if second is None:
            b = (await home.blocks.get(*which)).block.version
        else:
            b = await version_of(home, which, second, there=False)
        return a, b, await home.blocks.diff(*which, a, b)

    a, b, text = visit(options, errand, readonly=True)
    out = Output(json=options.json)
    if out.json:
        out.data({"a": a, "b": b, "diff": text})
    elif not text:
        out.line(f"Versions {a} and {b} say the same.")
    elif sys.stdout.isatty():
        _print_diff(text)
    else:
        out.line(text)


def _print_diff(text: str) -> None:
    from rich.text import Text

    screen = console()
    for number, line in enumerate(printable(text).split("\n")):
        screen.print(Text(line, "dim" if number < _HEAD else _STYLES.get(line[:1], "")))


@command(app, "blame")
def blame(
    options: Options, label: Label, agent: Whose = None, everybodys: Everybodys = False
) -> None:
    """Show of each line of a block who wrote it, when and why."""
    which = block_of(agent, label, everybodys=everybodys)

    async def errand(home: Asterism) -> Sequence[tuple[Line, list[EditRecord]]]:
        return await home.blocks.blame(*which)

    found = visit(options, errand, readonly=True)
    out = Output(json=options.json)
    if out.json:
        out.data([{**plain(line), "made_by": plain(records)} for line, records in found])
        return
    columns: list[Column[tuple[int, Line, list[EditRecord]]]] = [
        Column("line", lambda one: str(one[0])),
        Column("edit", lambda one: ", ".join(str(edit.number) for edit in one[2])),
        Column("when", lambda one: local_short(one[2][-1].at) if one[2] else ""),
        Column("by", lambda one: _authors(one[2]), prose=True),
        Column("why", lambda one: one[2][-1].reason if one[2] else "", least=100, prose=True),
        Column("text", lambda one: one[1].text, prose=True),
    ]
    numbered = [(number, line, records) for number, (line, records) in enumerate(found, 1)]
    out.table(columns, numbered, empty="The block says nothing.")


def _authors(records: Sequence[EditRecord]) -> str:
    return ", ".join(dict.fromkeys(one.author for one in records))
