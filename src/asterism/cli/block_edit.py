"""`asterism block edit` and its likes: what changes what a block says."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from asterism.cli.block import Label, app, lines_of, say, used, write
from asterism.cli.editor import Sheet
from asterism.cli.given import number_of, only_one, read_bytes, read_text, write_bytes
from asterism.cli.home import visit
from asterism.cli.options import Options, command
from asterism.cli.output import Output
from asterism.cli.text import one_line
from asterism.cli.whose import Everybodys, Reason, Whose, block_of
from asterism.errors import AsterismError, InvalidInput, NotFound
from asterism.times import read_moment

if TYPE_CHECKING:
    from asterism.app import Asterism
    from asterism.types.memory import Block, BlockWrite, EditRecord

_VERSION = re.compile(r"v?(\d{1,11})")

Text = Annotated[str | None, typer.Option("--text", metavar="TEXT", help="Write the whole anew.")]
TextFile = Annotated[
    Path | None,
    typer.Option("--file", metavar="FILE", help="The same, from a file; - reads stdin."),
]
Added = Annotated[
    str | None, typer.Option("--append", metavar="TEXT", help="Add a line, item or entry.")
]
Replaced = Annotated[
    tuple[str, str] | None,
    typer.Option("--replace", metavar="OLD NEW", help="Put one text in another's place."),
]
Everywhere = Annotated[
    bool, typer.Option("--all", help="With --replace: in every place, not only the first.")
]
PatchFile = Annotated[
    Path | None,
    typer.Option("--patch", metavar="FILE", help="Apply a unified diff; - reads stdin."),
]
FieldPut = Annotated[
    str | None, typer.Option("--set", metavar="FIELD=VALUE", help="Give a field a value.")
]
FieldAdded = Annotated[
    str | None, typer.Option("--add", metavar="FIELD=N", help="Add to a counter.")
]
ItemPut = Annotated[
    str | None,
    typer.Option("--item", metavar="N=VALUE", help="Change an item of a list; JSON or text."),
]
ItemRemoved = Annotated[
    int | None, typer.Option("--remove", metavar="N", help="Take an item out of a list.")
]
Section = Annotated[
    str | None, typer.Option("--section", metavar="NAME", help="Which part of a composite.")
]


@command(app, "edit")
def edit(
    options: Options,
    label: Label,
    agent: Whose = None,
    everybodys: Everybodys = False,
    text: Text = None,
    file: TextFile = None,
    append: Added = None,
    replace: Replaced = None,
    everywhere: Everywhere = False,
    patch: PatchFile = None,
    put: FieldPut = None,
    add: FieldAdded = None,
    item: ItemPut = None,
    remove: ItemRemoved = None,
    section: Section = None,
    reason: Reason = "",
) -> None:
    """Edit a block in your editor, or by one of the options without it."""
    which = block_of(agent, label, everybodys=everybodys)
    chosen = only_one(
        [
            *(("--text", text), ("--file", file), ("--append", append), ("--replace", replace)),
            *(("--patch", patch), ("--set", put), ("--add", add), ("--item", item)),
            ("--remove", remove),
        ],
        needed=False,
    )
    if everywhere and chosen != "--replace":
        raise InvalidInput("--all goes with --replace. Nothing was changed.")
    if chosen is None:
        if section is not None:
            raise InvalidInput(
                "--section goes with an option such as --append; in the editor you see the whole. "
                "Nothing was changed."
            )
        _in_editor(options, which, reason)
        return
    made = _edit_of(
        text=read_text(file) if file is not None else text,
        append=append,
        replace=replace,
        everywhere=everywhere,
        patch=patch,
        put=put,
        add=add,
        item=item,
        remove=remove,
        section=section,
    )
    _changed(options, which, made, reason)


def _edit_of(
    *,
    text: str | None,
    append: str | None,
    replace: tuple[str, str] | None,
    everywhere: bool,
    patch: Path | None,
    put: str | None,
    add: str | None,
    item: str | None,
    remove: int | None,
    section: str | None,
) -> BlockWrite:
    from asterism.types import memory

    if append is not None:
        return memory.Append(append, section)
    if replace is not None:
        which = memory.Which.ALL if everywhere else memory.Which.FIRST
        return memory.Replace(*replace, which=which, section=section)
    if patch is not None:
        return memory.Patch(read_text(patch), section)
    if put is not None:
        return memory.SetField(*_pair(put, "--set", "FIELD=VALUE"), section=section)
    if add is not None:
        field, amount = _pair(add, "--add", "FIELD=N")
        return memory.Add(field, _number(amount), section)
    if item is not None:
        index, value = _pair(item, "--item", "N=VALUE")
        number = number_of(index)
        if number is None:
            raise InvalidInput(
                f"--item {one_line(item, 60)!r} has no number of an item. Write N=VALUE. Nothing "
                "was changed."
            )
        return memory.SetItem(number, _value(value), section)
    if remove is not None:
        return memory.RemoveItem(remove, section)
    assert text is not None
    return memory.SetText(text, section=section)


def _pair(text: str, option: str, form: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name.strip() and equals):
        raise InvalidInput(f"{option} {text!r} is not {form}. Nothing was changed.")
    return name.strip(), value


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InvalidInput(f"{text!r} is no number to add. Nothing was changed.") from None


def _value(text: str) -> object:
    import orjson

    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return text


def _changed(
    options: Options, which: tuple[str | None, str], made: BlockWrite, reason: str
) -> None:
    async def errand(home: Asterism) -> tuple[int, Block]:
        before = (await home.blocks.get(*which)).block.version
        return before, await home.blocks.write(*which, made, reason=reason, by="cli")

    before, block = visit(options, errand)
    same = block.version == before
    said = f"Nothing changed: block {block.label!r} says that already." if same else used(block)
    say(options, block, said)


# -- in an editor ----------------------------------------------------------------------------------


def _in_editor(options: Options, which: tuple[str | None, str], reason: str) -> None:
    from asterism.types.memory import SetText, TextSchema

    block, text = visit(options, lambda home: home.blocks.editable(*which), readonly=True)
    suffix = ".md" if isinstance(block.schema, TextSchema) else ".json"
    sheet = Sheet(block.label, suffix, text)
    written = sheet.edit()
    if written == text or not written.strip():
        sheet.discard()
        why = "the text is empty" if written != text else "the text is as it was"
        more = ' --text "" empties a block.' if written != text else ""
        say(options, block, f"Nothing was changed: {why}.{more}")
        return

    async def errand(home: Asterism) -> Block:
        # What others wrote while the editor was open is kept, since the base is what was opened.
        made = SetText(written, base=block.version)
        return await home.blocks.write(*which, made, reason=reason, by="cli")

    try:
        after = visit(options, errand)
    except AsterismError as error:
        error.add_note(f"What you wrote is kept in {sheet.file}.")
        raise
    sheet.discard()
    meanwhile = after.version - block.version - 1
    more = " What others wrote meanwhile is kept." if meanwhile > 0 else ""
    say(options, after, f"{used(after)}{more}")


# -- back and forth --------------------------------------------------------------------------------


@command(app, "undo")
def undo(
    options: Options,
    label: Label,
    agent: Whose = None,
    everybodys: Everybodys = False,
    reason: Reason = "",
) -> None:
    """Take back the latest edit that was not taken back."""
    from asterism.types.memory import Undo

    _step(
        options, block_of(agent, label, everybodys=everybodys), Undo(), reason, "Took back edit {}"
    )


@command(app, "redo")
def redo(
    options: Options,
    label: Label,
    agent: Whose = None,
    everybodys: Everybodys = False,
    reason: Reason = "",
) -> None:
    """Make the latest edit that was taken back again."""
    from asterism.types.memory import Redo

    _step(
        options,
        block_of(agent, label, everybodys=everybodys),
        Redo(),
        reason,
        "Took back undo {}",
    )


@command(app, "revert")
def revert(
    options: Options,
    label: Label,
    edit: Annotated[int, typer.Argument(metavar="EDIT", help="The number of the edit.")],
    agent: Whose = None,
    everybodys: Everybodys = False,
    reason: Reason = "",
) -> None:
    """Take back one edit by its number; what came after it stays."""
    step_back(options, block_of(agent, label, everybodys=everybodys), edit, reason)


def step_back(options: Options, which: tuple[str | None, str], number: int, reason: str) -> None:
    """Take back one edit of a block."""
    from asterism.types.memory import Revert

    _step(options, which, Revert(number), reason, f"Took back edit {number}")


def _step(
    options: Options, which: tuple[str | None, str], made: BlockWrite, reason: str, said: str
) -> None:
    async def errand(home: Asterism) -> tuple[Block, EditRecord]:
        block = await home.blocks.write(*which, made, reason=reason, by="cli")
        (latest,) = await home.blocks.history(None, block.id, limit=1)
        return block, latest

    block, latest = visit(options, errand)
    what = said.format(latest.undoes)
    say(options, block, f"{what}. Block {block.label!r} has {lines_of(block)} now.")


@command(app, "restore")
def restore(
    options: Options,
    label: Label,
    point: Annotated[
        str, typer.Argument(metavar="POINT", help='A version, or a moment such as "1 hour ago".')
    ],
    agent: Whose = None,
    everybodys: Everybodys = False,
    reason: Reason = "",
) -> None:
    """Make a block what it was at a version or a moment; that is an edit like any other."""
    from asterism.types.memory import Restore

    which = block_of(agent, label, everybodys=everybodys)

    async def errand(home: Asterism) -> tuple[int, Block]:
        version = await version_of(home, which, point)
        made = Restore(version)
        return version, await home.blocks.write(*which, made, reason=reason, by="cli")

    version, block = visit(options, errand)
    say(options, block, f"Block {block.label!r} says what it said at version {version}.")


async def version_of(
    home: Asterism, which: tuple[str | None, str], point: str, *, there: bool = True
) -> int:
    """Return the version that a block had at a point; with `there`, it must have been there."""
    if found := _VERSION.fullmatch(point.strip().lower()):
        return int(found[1])
    version = await home.blocks.version_at(*which, read_moment(point))
    if there and version == 0:
        raise NotFound(
            f"Block {which[1]!r} was not there yet at that moment ({point}). "
            f'"asterism block history {which[1]}" shows when it was made. Nothing was changed.'
        )
    return version


# -- replicas --------------------------------------------------------------------------------------


@command(app, "merge")
def merge(
    options: Options,
    label: Label,
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="Updates of another replica; - reads stdin.")
    ],
    agent: Whose = None,
    everybodys: Everybodys = False,
    reason: Reason = "",
) -> None:
    """Take in what another replica of this block has written."""
    from asterism.types.memory import Merge

    made = Merge(read_bytes(file))
    block = write(options, lambda: block_of(agent, label, everybodys=everybodys), made, reason)
    say(options, block, used(block))


@command(app, "export-updates")
def export_updates(
    options: Options,
    label: Label,
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="A file that is not there yet; - is stdout.")
    ],
    agent: Whose = None,
    everybodys: Everybodys = False,
) -> None:
    """Write all Loro updates of a block to a file, for another replica to merge."""
    which = block_of(agent, label, everybodys=everybodys)

    async def errand(home: Asterism) -> bytes:
        return await home.blocks.updates(*which)

    updates = visit(options, errand)
    out = Output(json=options.json)
    if str(file) == "-":
        if sys.stdout.isatty():
            raise InvalidInput("Updates are binary: name a file, or send them into a pipe.")
        sys.stdout.buffer.write(updates)
        return
    write_bytes(file, updates)
    if out.json:
        out.data({"file": str(file), "bytes": len(updates)})
    else:
        out.line(f"Wrote {len(updates):,} bytes to {file}.")
