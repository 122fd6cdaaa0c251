"""`asterism block`: labelled documents that agents always see, or see when they need them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import orjson
import typer

from asterism.cli.given import be_sure, only_one, read_text
from asterism.cli.home import visit
from asterism.cli.options import Options, command, group
from asterism.cli.output import Column, Output
from asterism.cli.shapes import called, first_words, plain, share, visible_to
from asterism.cli.text import one_line, plural
from asterism.cli.whose import Everybodys, Reason, Whose, Yes, block_of, meant
from asterism.errors import InvalidInput
from asterism.times import local_short, local_text, read_moment
from asterism.types.memory import DEFAULT_LIMIT, BlockType, Permission

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from asterism.app import Asterism
    from asterism.memory.blocks import VisibleBlock
    from asterism.types.memory import Block, BlockWrite, Line

app = group("Look at blocks, edit and share them, and go back in their history.")

Label = Annotated[
    str, typer.Argument(metavar="LABEL", help="The block's label; OWNER/LABEL for one of another.")
]
Schema = Annotated[
    str | None,
    typer.Option(
        "--schema",
        metavar="SCHEMA",
        help="What it is made of: text, tasks, partner, observations, scratchpad, or JSON.",
    ),
]
Audience = Annotated[
    str | None,
    typer.Option("--audience", metavar="WHO", help="Who may hear it: public, owner, person:NAME …"),
]
Description = Annotated[
    str | None,
    typer.Option("--description", metavar="TEXT", help="What it is for; agents read it."),
]
Kind = Annotated[BlockType | None, typer.Option("--type", help="When agents see it.")]
Limit = Annotated[
    int | None, typer.Option("--limit", metavar="N", help="The most characters it may hold.")
]
Permitted = Annotated[
    Permission | None, typer.Option("--permission", help="What its owner may do to it.")
]


# -- looking ---------------------------------------------------------------------------------------


@command(app, "list")
def list_all(options: Options, agent: Whose = None, everybodys: Everybodys = False) -> None:
    """Show the blocks that an agent sees, or without one all blocks there are."""
    if agent is not None:
        block_of(agent, "", everybodys=everybodys)

    async def errand(home: Asterism) -> list[VisibleBlock]:
        found = await home.blocks.list(agent)
        return [one for one in found if not (everybodys and one.block.owner_id)]

    print_list(options, visit(options, errand, readonly=True))


def print_list(options: Options, found: Sequence[VisibleBlock]) -> None:
    """Print blocks as a table."""
    out = Output(json=options.json)
    if out.json:
        out.data([_data(one) for one in found])
        return
    columns: list[Column[VisibleBlock]] = [
        Column("block", lambda one: one.name, prose=True),
        Column("type", _type),
        Column("agent may", lambda one: one.permission.value, least=80),
        Column("used", lambda one: share(len(one.block.text), one.block.limit)),
        Column("version", lambda one: str(one.block.version), least=100),
        Column("changed", lambda one: local_short(one.block.updated_at)),
        Column("says", lambda one: first_words(one.block.text), least=80),
    ]
    out.table(columns, found, empty='There are no blocks here. "asterism block create" makes one.')


@command(app, "show")
def show(
    options: Options,
    label: Label,
    agent: Whose = None,
    everybodys: Everybodys = False,
    version: Annotated[
        int | None, typer.Option("--version", min=1, metavar="N", help="As of this version.")
    ] = None,
    moment: Annotated[
        str | None, typer.Option("--at", metavar="MOMENT", help='As of then: "1 hour ago" …')
    ] = None,
    lines: Annotated[
        bool, typer.Option("--lines", help="Tell of each line who may hear it and which edits.")
    ] = False,
) -> None:
    """Show a block: what it says, who may hear it, and what may be done to it."""
    only_one([("--version", version), ("--at", moment)], needed=False)
    then = read_moment(moment) if moment is not None else None
    whose, wanted = block_of(agent, label, everybodys=everybodys)

    async def errand(home: Asterism) -> _Shown:
        seen = await home.blocks.get(whose, wanted)
        said = await home.blocks.at(whose, wanted, version=version, moment=then)
        number = version or seen.block.version
        if then is not None:
            number = await home.blocks.version_at(whose, wanted, then)
        shared = {
            name: permitted.value
            for name, permitted in (await home.blocks.shares(whose, wanted)).items()
        }
        return seen, said, number, shared, await called(home)

    _print_block(options, *visit(options, errand, readonly=True), by_line=lines)


_Shown = tuple["VisibleBlock", "list[Line]", int, "dict[str, str]", "dict[str, str]"]


def _print_block(
    options: Options,
    seen: VisibleBlock,
    said: Sequence[Line],
    number: int,
    shared: Mapping[str, str],
    names: Mapping[str, str],
    *,
    by_line: bool,
) -> None:
    out = Output(json=options.json)
    if out.json:
        then = {"version": number, "text": "\n".join(line.text for line in said)}
        out.data({**_data(seen), **then, "shared_with": shared, "lines": plain(said)})
        return
    size = len("\n".join(line.text for line in said))
    out.grid(_facts(seen, number, size, shared, names))
    out.line()
    if number == 0:
        out.line(
            f"The block was not there yet; it was made at {local_text(seen.block.created_at)}."
        )
    elif not said:
        out.line("It says nothing.")
    elif by_line:
        columns: list[Column[tuple[int, Line]]] = [
            Column("line", lambda one: str(one[0])),
            Column("edits", lambda one: ", ".join(map(str, one[1].edits)), prose=True),
            Column("heard by", lambda one: visible_to(one[1].label.audience, names), prose=True),
            Column("trust", lambda one: one[1].label.trust.value),
            Column("text", lambda one: one[1].text, prose=True),
        ]
        out.table(columns, list(enumerate(said, 1)), empty="")
    else:
        out.line("\n".join(line.text for line in said))


def _facts(
    seen: VisibleBlock, number: int, size: int, shared: Mapping[str, str], names: Mapping[str, str]
) -> list[tuple[str, str]]:
    block = seen.block
    facts = [
        ("block", seen.name),
        ("id", block.id),
        ("type", _type(seen)),
        ("schema", str(plain(block.schema)["kind"])),
        ("agent may", seen.permission.value),
        ("heard by", visible_to(block.audience, names)),
        ("used", f"{share(size, block.limit)} characters"),
        (
            "version",
            str(block.version) if number == block.version else f"{number} of {block.version}",
        ),
        ("changed", local_text(block.updated_at)),
    ]
    if shared:
        told = ", ".join(f"{name} ({permission})" for name, permission in shared.items())
        facts.append(("shared with", told))
    return [*facts, ("about", block.description)] if block.description else facts


def _type(seen: VisibleBlock) -> str:
    return f"{seen.block.type.value}, pinned" if seen.block.pinned else seen.block.type.value


def _data(seen: VisibleBlock) -> dict[str, Any]:
    block = plain(seen.block)
    return {"name": seen.name, "owner": seen.owner_name, **block, "may": seen.permission.value}


# -- making and describing -------------------------------------------------------------------------


@command(app, "create")
def create(
    options: Options,
    label: Annotated[str, typer.Argument(metavar="LABEL", help="A label that is free.")],
    agent: Whose = None,
    everybodys: Everybodys = False,
    text: Annotated[
        str | None, typer.Option("--text", metavar="TEXT", help="What it says at first.")
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option("--file", metavar="FILE", help="The same, from a file; - reads stdin."),
    ] = None,
    kind: Kind = None,
    schema: Schema = None,
    description: Description = None,
    limit: Limit = None,
    permission: Permitted = None,
    audience: Audience = None,
    pin: Annotated[bool, typer.Option("--pin", help="Show a working block always.")] = False,
    shared: Annotated[
        list[str] | None,
        typer.Option("--share", metavar="NAME=PERMISSION", help="Another agent that sees it."),
    ] = None,
    existing: Annotated[
        bool, typer.Option("--existing", help="Take the one that is there, if there is one.")
    ] = False,
) -> None:
    """Create a block for an agent, or with --constellation one that all agents see."""
    block_of(agent, label, everybodys=everybodys)
    only_one([("--text", text), ("--file", file)], needed=False)
    content = read_text(file) if file is not None else text or ""
    others = dict(map(_sharing, shared or []))
    form = _read_schema(schema or "text")

    async def errand(home: Asterism) -> Block:
        return await home.blocks.create(
            None if everybodys else await meant(home, agent),
            label,
            content,
            kind=kind or BlockType.CORE,
            schema=form,
            description=description or "",
            limit=DEFAULT_LIMIT if limit is None else limit,
            permission=permission or Permission.READ_WRITE,
            audience=audience or "public",
            pinned=pin,
            shared_with=others,
            existing=existing,
            by="cli",
        )

    block = visit(options, errand)
    say(options, block, f"Block {block.label!r} is there, at version {block.version}.")


@command(app, "describe")
def describe(
    options: Options,
    label: Label,
    agent: Whose = None,
    everybodys: Everybodys = False,
    new_label: Annotated[
        str | None, typer.Option("--label", metavar="NEW", help="Another label.")
    ] = None,
    description: Description = None,
    kind: Kind = None,
    limit: Limit = None,
    permission: Permitted = None,
    audience: Audience = None,
    pin: Annotated[
        bool | None, typer.Option("--pin/--no-pin", help="Whether a working block is always shown.")
    ] = None,
    schema: Schema = None,
    reason: Reason = "",
) -> None:
    """Change what is said of a block, not what it says; what is not given stays."""
    from asterism.memory.schemas import read_schema
    from asterism.types.memory import Describe

    given = (new_label, description, kind, limit, permission, audience, pin, schema)
    if all(one is None for one in given):
        raise InvalidInput(
            f"Say what to change, such as --limit; {label!r} stays as it is. "
            '"asterism block describe --help" shows what there is.'
        )
    form = read_schema(_read_schema(schema)) if schema is not None else None

    async def errand(home: Asterism) -> Block:
        heard = await home.people.audience(audience) if audience is not None else None
        described = Describe(
            description=description,
            type=kind,
            limit=limit,
            permission=permission,
            audience=heard,
            pinned=pin,
            schema=form,
            label=new_label,
        )
        whose, wanted = block_of(agent, label, everybodys=everybodys)
        return await home.blocks.write(whose, wanted, described, reason=reason, by="cli")

    block = visit(options, errand)
    say(options, block, f"Changed what is said of block {block.label!r}.")


@command(app, "share")
def share_with(
    options: Options,
    label: Label,
    other: Annotated[str, typer.Argument(metavar="AGENT", help="The agent that is to see it.")],
    agent: Whose = None,
    everybodys: Everybodys = False,
    permission: Annotated[
        Permission, typer.Option("--permission", help="What that agent may do to it.")
    ] = Permission.APPEND,
    reason: Reason = "",
) -> None:
    """Let another agent see a block, and do with it what the permission says."""
    from asterism.types.memory import Share

    async def errand(home: Asterism) -> Block:
        whose, wanted = block_of(agent, label, everybodys=everybodys)
        shared = Share((await home.agents.get(other)).id, permission)
        return await home.blocks.write(whose, wanted, shared, reason=reason, by="cli")

    block = visit(options, errand)
    say(options, block, f"{other} sees block {block.label!r} now, and may: {permission.value}.")


@command(app, "unshare")
def unshare(
    options: Options,
    label: Label,
    other: Annotated[str, typer.Argument(metavar="AGENT", help="The agent that sees it.")],
    agent: Whose = None,
    everybodys: Everybodys = False,
    reason: Reason = "",
) -> None:
    """Take a shared block away from an agent; what that agent wrote into it stays."""
    from asterism.types.memory import Unshare

    async def errand(home: Asterism) -> Block:
        whose, wanted = block_of(agent, label, everybodys=everybodys)
        taken = Unshare((await home.agents.get(other)).id)
        return await home.blocks.write(whose, wanted, taken, reason=reason, by="cli")

    block = visit(options, errand)
    say(options, block, f"{other} does not see block {block.label!r} any more.")


@command(app, "retire")
def retire(
    options: Options,
    label: Label,
    agent: Whose = None,
    everybodys: Everybodys = False,
    reason: Reason = "",
    yes: Yes = False,
) -> None:
    """Put a block away: no agent sees it any more, and its history stays."""
    from asterism.types.memory import Retire

    be_sure(f"Put block {one_line(label)!r} away? No agent will see it any more.", yes=yes)
    block = write(options, lambda: block_of(agent, label, everybodys=everybodys), Retire(), reason)
    say(options, block, f"Block {block.label!r} is put away. Its history stays.")


# -- what the commands share -----------------------------------------------------------------------


def write(
    options: Options,
    which: Callable[[], tuple[str | None, str]],
    write: BlockWrite,
    reason: str = "",
) -> Block:
    """Do one thing to a block."""
    whose, wanted = which()

    async def errand(home: Asterism) -> Block:
        return await home.blocks.write(whose, wanted, write, reason=reason, by="cli")

    return visit(options, errand)


def say(options: Options, block: Block, said: str) -> None:
    """Print a block as JSON, or a sentence about it."""
    out = Output(json=options.json)
    if out.json:
        out.data(plain(block))
    else:
        out.line(said)


def used(block: Block) -> str:
    """Return how full a block is, as a sentence."""
    return f"Block {block.label!r} holds {len(block.text):,} of {block.limit:,} characters."


def lines_of(block: Block) -> str:
    """Return how long a block is."""
    return plural(len(block.text.split("\n")) if block.text else 0, "line")


def _sharing(text: str) -> tuple[str, Permission]:
    name, _, permission = text.partition("=")
    try:
        return name, Permission(permission or Permission.APPEND)
    except ValueError:
        raise InvalidInput(
            f"--share {text!r} names no permission. Write NAME=PERMISSION with one of "
            f"{', '.join(one.value for one in Permission)}. Nothing was created."
        ) from None


def _read_schema(text: str) -> str | dict[str, Any]:
    """Return a schema's name or its JSON form."""
    if not text.lstrip().startswith("{"):
        return text
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise InvalidInput(f"--schema is no JSON: {error}. Nothing was changed.") from None
