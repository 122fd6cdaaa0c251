"""`asterism block`: labelled documents that agents always see, or see when they need them."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from asterism.cli.commands import Options, argument, command, flag, group, open_home, option
from asterism.cli.inputs import (
    AgentOption,
    Constellation,
    Limit,
    Reason,
    Yes,
    block_reference,
    choose_agent,
    number_of,
    only_one,
    optional_moment,
    read_bytes,
    read_json,
    read_pair,
    read_text,
    require_yes,
    write_bytes,
)
from asterism.cli.output import (
    Column,
    Grid,
    ItemTable,
    Result,
    console,
    first_words,
    one_line,
    plural,
    printable,
    up_to,
    visible_to,
)
from asterism.cli.terminal import EditorFile
from asterism.errors import AsterismError, InvalidInput, NotFound
from asterism.records import dataclass
from asterism.times import local_short, local_text, read_moment
from asterism.types.memory import DEFAULT_LIMIT, BlockType, Permission
from asterism.views import blame_view, block_at_view, block_view, person_names, view

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from asterism.app import Asterism
    from asterism.cli.output import Output, Part
    from asterism.memory.blocks import VisibleBlock
    from asterism.types.memory import Block, BlockWrite, EditRecord, Line

app = group("Show, edit and share blocks, and undo edits.")

_VERSION = re.compile(r"v?(\d{1,11})")
_DIFF_STYLES = {"@": "cyan", "+": "green", "-": "red"}
_DIFF_HEAD = 2
"""Lines that name the two versions."""

Label = Annotated[
    str, argument("LABEL", "The block's label; OWNER/LABEL for a block of another owner.")
]
Schema = Annotated[
    str | None,
    option(
        "--schema",
        "SCHEMA",
        "The schema: text, tasks, partner, observations, scratchpad, or JSON.",
    ),
]
Audience = Annotated[
    str | None, option("--audience", "WHO", "Who may see it: public, owner, person:NAME …")
]
Description = Annotated[
    str | None, option("--description", "TEXT", "The description; agents read it.")
]
Kind = Annotated[BlockType | None, option("--type", None, "When agents see it.")]
MaxLength = Annotated[int | None, option("--limit", "N", "The maximum number of characters.")]
Permitted = Annotated[
    Permission | None, option("--permission", None, "The permission of its agent.")
]
Text = Annotated[str | None, option("--text", "TEXT", "Replace the whole text.")]
TextFile = Annotated[Path | None, option("--file", "FILE", "The same, from a file; - reads stdin.")]
Append = Annotated[str | None, option("--append", "TEXT", "Add a line, item or entry.")]
Replace = Annotated[
    tuple[str, str] | None, option("--replace", "OLD NEW", "Replace one text with another.")
]
Everywhere = Annotated[
    bool, flag("--all", "With --replace: replace every match, not only the first.")
]
PatchFile = Annotated[
    Path | None, option("--patch", "FILE", "Apply a unified diff; - reads stdin.")
]
SetField = Annotated[str | None, option("--set", "FIELD=VALUE", "Set a field.")]
AddField = Annotated[str | None, option("--add", "FIELD=N", "Add to a counter.")]
SetItem = Annotated[
    str | None, option("--item", "N=VALUE", "Change an item of a list; JSON or text.")
]
RemoveItem = Annotated[int | None, option("--remove", "N", "Remove an item from a list.")]
Section = Annotated[str | None, option("--section", "NAME", "The section of a composite block.")]


# -- looking ---------------------------------------------------------------------------------------


@command(app, "list", example="block list --agent aria")
async def list_blocks(
    options: Options, agent: AgentOption = None, constellation: Constellation = False
) -> Result:
    """Show the blocks that an agent sees; without --agent, all blocks."""
    if agent is not None:
        block_reference(agent, "", constellation=constellation)
    async with open_home(options, readonly=True) as home:
        blocks = await home.blocks.list(agent)
    return blocks_result([seen for seen in blocks if not (constellation and seen.block.owner_id)])


def blocks_result(blocks: Sequence[VisibleBlock]) -> Result:
    """Return blocks as a table."""
    columns: list[Column[VisibleBlock]] = [
        Column("block", lambda seen: seen.name, prose=True),
        Column("type", _type),
        Column("agent may", lambda seen: seen.permission.value, least=80),
        Column("used", lambda seen: f"{len(seen.block.text):,}/{seen.block.limit:,}"),
        Column("version", lambda seen: str(seen.block.version), least=100),
        Column("changed", lambda seen: local_short(seen.block.updated_at_ms)),
        Column("says", lambda seen: first_words(seen.block.text), least=80),
    ]
    empty = 'There are no blocks. "asterism block create" makes one.'
    return Result([block_view(seen) for seen in blocks], ItemTable(columns, blocks, empty))


@command(app, "show", example="block show human --agent aria")
async def show(
    options: Options,
    label: Label,
    agent: AgentOption = None,
    constellation: Constellation = False,
    version: Annotated[int | None, option("--version", "N", "As of this version.", min=1)] = None,
    moment: Annotated[str | None, option("--at", "MOMENT", 'As of then: "1 hour ago" …')] = None,
    lines: Annotated[
        bool, flag("--lines", "For each line, show its audience and its edits.")
    ] = False,
) -> Result:
    """Show a block: its text, its audience and its permissions."""
    only_one([("--version", version), ("--at", moment)], needed=False)
    then = optional_moment(moment)
    which = block_reference(agent, label, constellation=constellation)
    async with open_home(options, readonly=True) as home:
        seen = await home.blocks.get(*which)
        text_lines = await home.blocks.at(*which, version=version, moment=then)
        number = version or seen.block.version
        if then is not None:
            number = await home.blocks.version_at(*which, then)
        shares = {
            name: permission.value
            for name, permission in (await home.blocks.shares(*which)).items()
        }
        names = await person_names(home)
    size = len("\n".join(line.text for line in text_lines))
    return Result(
        block_at_view(seen, text_lines, number, shares),
        Grid(_facts(seen, number, size, shares, names)),
        "",
        _content(seen, number, text_lines, names, by_line=lines),
    )


def _content(
    seen: VisibleBlock,
    version: int,
    lines: Sequence[Line],
    names: Mapping[str, str],
    *,
    by_line: bool,
) -> Part | str:
    if version == 0:
        made = local_text(seen.block.created_at_ms)
        return f"The block did not exist yet; it was created at {made}."
    if not lines:
        return "The block is empty."
    if not by_line:
        return "\n".join(line.text for line in lines)
    columns: list[Column[tuple[int, Line]]] = [
        Column("line", lambda row: str(row[0])),
        Column("edits", lambda row: ", ".join(map(str, row[1].edits)), prose=True),
        Column("visible to", lambda row: visible_to(row[1].label.audience, names), prose=True),
        Column("trust", lambda row: row[1].label.trust.value),
        Column("text", lambda row: row[1].text, prose=True),
    ]
    return ItemTable(columns, list(enumerate(lines, 1)))


def _facts(
    seen: VisibleBlock, version: int, size: int, shares: Mapping[str, str], names: Mapping[str, str]
) -> list[tuple[str, str]]:
    block = seen.block
    is_latest = version == block.version
    facts = [
        ("block", seen.name),
        ("id", block.id),
        ("type", _type(seen)),
        ("schema", str(view(block.schema)["kind"])),
        ("agent may", seen.permission.value),
        ("visible to", visible_to(block.audience, names)),
        ("used", f"{size:,}/{block.limit:,} characters"),
        ("version", str(version) if is_latest else f"{version} of {block.version}"),
        ("changed", local_text(block.updated_at_ms)),
    ]
    if shares:
        agents = ", ".join(f"{name} ({permission})" for name, permission in shares.items())
        facts.append(("shared with", agents))
    return [*facts, ("about", block.description)] if block.description else facts


def _type(seen: VisibleBlock) -> str:
    return f"{seen.block.type.value}, pinned" if seen.block.pinned else seen.block.type.value


# -- creating and describing -----------------------------------------------------------------------


@command(app, "create", example='block create garden --text "Two apple trees."')
async def create(
    options: Options,
    label: Annotated[str, argument("LABEL", "A new label.")],
    agent: AgentOption = None,
    constellation: Constellation = False,
    text: Annotated[str | None, option("--text", "TEXT", "The initial text.")] = None,
    file: TextFile = None,
    kind: Kind = None,
    schema: Schema = None,
    description: Description = None,
    limit: MaxLength = None,
    permission: Permitted = None,
    audience: Audience = None,
    pin: Annotated[bool, flag("--pin", "Always show a working block.")] = False,
    shared: Annotated[
        list[str] | None, option("--share", "NAME=PERMISSION", "Another agent to share it with.")
    ] = None,
    existing: Annotated[bool, flag("--existing", "If the block exists, do nothing.")] = False,
) -> Result:
    """Create a block for an agent, or with --constellation one that all agents see."""
    block_reference(agent, label, constellation=constellation)
    only_one([("--text", text), ("--file", file)], needed=False)
    content = read_text(file) if file is not None else text or ""
    shares = dict(map(_read_share, shared or []))
    form = _read_schema(schema or "text")
    async with open_home(options) as home:
        block = await home.blocks.create(
            None if constellation else await choose_agent(home, agent),
            label,
            content,
            kind=kind or BlockType.CORE,
            schema=form,
            description=description or "",
            limit=DEFAULT_LIMIT if limit is None else limit,
            permission=permission or Permission.READ_WRITE,
            audience=audience or "owner",
            pinned=pin,
            shared_with=shares,
            existing=existing,
            by="cli",
        )
    made = "There is a block" if existing else "Created block"
    seen = visible_to(block.audience, {})
    return Result(block, f"{made} {block.label!r} (version {block.version}), visible to {seen}.")


@command(app, "describe", example='block describe garden --description "What grows in the garden."')
async def describe(
    options: Options,
    label: Label,
    agent: AgentOption = None,
    constellation: Constellation = False,
    new_label: Annotated[str | None, option("--label", "NEW", "Another label.")] = None,
    description: Description = None,
    kind: Kind = None,
    limit: MaxLength = None,
    permission: Permitted = None,
    audience: Audience = None,
    pin: Annotated[
        bool | None, flag("--pin/--no-pin", "Whether a working block is always shown.")
    ] = None,
    schema: Schema = None,
    reason: Reason = "",
) -> Result:
    """Change the settings of a block, not its text; options that you leave out stay unchanged."""
    from asterism.memory.schemas import read_schema
    from asterism.types.memory import Describe

    values = (new_label, description, kind, limit, permission, audience, pin, schema)
    if all(value is None for value in values):
        raise InvalidInput(
            f"Say what to change, such as --limit; {label!r} was not changed. "
            '"asterism block describe --help" shows all options.'
        )
    form = read_schema(_read_schema(schema)) if schema is not None else None
    async with open_home(options) as home:
        change = Describe(
            description=description,
            type=kind,
            limit=limit,
            permission=permission,
            audience=await home.people.audience(audience) if audience is not None else None,
            pinned=pin,
            schema=form,
            label=new_label,
        )
        which = block_reference(agent, label, constellation=constellation)
        block = await home.blocks.write(*which, change, reason=reason, by="cli")
    return Result(block, f"Changed the settings of block {block.label!r}.")


@command(app, "share", example="block share garden aria --permission append")
async def share(
    home: Asterism,
    label: Label,
    other: Annotated[str, argument("AGENT", "The agent to share it with.")],
    agent: AgentOption = None,
    constellation: Constellation = False,
    permission: Annotated[
        Permission, option("--permission", None, "The permission of that agent.")
    ] = Permission.APPEND,
    reason: Reason = "",
) -> Result:
    """Share a block with another agent, with a permission."""
    from asterism.types.memory import Share

    which = block_reference(agent, label, constellation=constellation)
    change = Share((await home.agents.get(other)).id, permission)
    block = await home.blocks.write(*which, change, reason=reason, by="cli")
    return Result(
        block, f"Shared block {block.label!r} with {other}; permission: {permission.value}."
    )


@command(app, "unshare", example="block unshare garden aria")
async def unshare(
    home: Asterism,
    label: Label,
    other: Annotated[str, argument("AGENT", "The agent that sees it.")],
    agent: AgentOption = None,
    constellation: Constellation = False,
    reason: Reason = "",
) -> Result:
    """Stop sharing a block with an agent; text that the agent wrote stays in it."""
    from asterism.types.memory import Unshare

    which = block_reference(agent, label, constellation=constellation)
    change = Unshare((await home.agents.get(other)).id)
    block = await home.blocks.write(*which, change, reason=reason, by="cli")
    return Result(block, f"{other} no longer sees block {block.label!r}.")


@command(app, "retire", example="block retire garden")
async def retire(
    options: Options,
    label: Label,
    agent: AgentOption = None,
    constellation: Constellation = False,
    reason: Reason = "",
    yes: Yes = False,
) -> Result:
    """Retire a block: agents no longer see it; its history stays."""
    from asterism.types.memory import Retire

    require_yes(f"Retire block {one_line(label)!r}? Agents will no longer see it.", yes=yes)
    which = block_reference(agent, label, constellation=constellation)
    async with open_home(options) as home:
        block = await home.blocks.write(*which, Retire(), reason=reason, by="cli")
    return Result(block, f"Block {block.label!r} is retired. Its history stays.")


def _read_share(text: str) -> tuple[str, Permission]:
    name, _, permission = text.partition("=")
    try:
        return name, Permission(permission or Permission.APPEND)
    except ValueError:
        raise InvalidInput(
            f"--share {text!r} has no valid permission. Write NAME=PERMISSION with one of "
            f"{', '.join(level.value for level in Permission)}. Nothing was created."
        ) from None


def _read_schema(text: str) -> str | dict[str, Any]:
    """Return a schema's name or its JSON form."""
    return read_json(text, "--schema") if text.lstrip().startswith("{") else text


# -- editing ---------------------------------------------------------------------------------------


@command(app, "edit", example='block edit human --append "Likes tea."')
async def edit(
    options: Options,
    label: Label,
    agent: AgentOption = None,
    constellation: Constellation = False,
    text: Text = None,
    file: TextFile = None,
    append: Append = None,
    replace: Replace = None,
    everywhere: Everywhere = False,
    patch: PatchFile = None,
    put: SetField = None,
    add: AddField = None,
    item: SetItem = None,
    remove: RemoveItem = None,
    section: Section = None,
    reason: Reason = "",
) -> Result:
    """Edit a block in your editor, or with one of the options."""
    which = block_reference(agent, label, constellation=constellation)
    ways = {
        "--text": text,
        "--file": file,
        "--append": append,
        "--replace": replace,
        "--patch": patch,
        "--set": put,
        "--add": add,
        "--item": item,
        "--remove": remove,
    }
    way = only_one(list(ways.items()), needed=False)
    if everywhere and way != "--replace":
        raise InvalidInput("--all needs --replace. Nothing was changed.")
    if way is None:
        if section is not None:
            raise InvalidInput(
                "--section needs an option such as --append; in the editor you see the whole "
                "block. Nothing was changed."
            )
        return await _edit_in_editor(options, which, reason)
    change = _read_edit(way, ways[way], section, everywhere=everywhere)
    async with open_home(options) as home:
        before = (await home.blocks.get(*which)).block.version
        block = await home.blocks.write(*which, change, reason=reason, by="cli")
    same = block.version == before
    return Result(
        block,
        f"Nothing changed: block {block.label!r} already has this text." if same else _used(block),
    )


def _read_edit(way: str, value: Any, section: str | None, *, everywhere: bool) -> BlockWrite:
    """Return the edit that an option of `block edit` means."""
    from asterism.types import memory

    match way:
        case "--append":
            return memory.Append(value, section)
        case "--replace":
            which = memory.Which.ALL if everywhere else memory.Which.FIRST
            return memory.Replace(*value, which=which, section=section)
        case "--patch":
            return memory.Patch(read_text(value), section)
        case "--set":
            return memory.SetField(*read_pair(value, "FIELD=VALUE", way), section=section)
        case "--add":
            field, amount = read_pair(value, "FIELD=N", way)
            return memory.Add(field, _read_amount(amount), section)
        case "--item":
            index, content = read_pair(value, "N=VALUE", way)
            number = number_of(index)
            if number is None:
                raise InvalidInput(
                    f"--item {one_line(value, 60)!r} has no item number. Write N=VALUE. "
                    "Nothing was changed."
                )
            return memory.SetItem(number, _json_or_text(content), section)
        case "--remove":
            return memory.RemoveItem(value, section)
        case _:
            text = read_text(value) if way == "--file" else value
            return memory.SetText(text, section=section)


def _read_amount(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InvalidInput(f"{text!r} is not a number to add. Nothing was changed.") from None


def _json_or_text(text: str) -> object:
    import orjson

    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return text


async def _edit_in_editor(options: Options, which: tuple[str | None, str], reason: str) -> Result:
    """Edit a block in the person's editor; the home is closed while it is open."""
    from asterism.types.memory import SetText, TextSchema

    async with open_home(options, readonly=True) as home:
        block, text = await home.blocks.editable(*which)
    suffix = ".md" if isinstance(block.schema, TextSchema) else ".json"
    draft = EditorFile(block.label, suffix, text)
    written = draft.edit()
    if written == text or not written.strip():
        draft.discard()
        why = "the text is empty" if written != text else "the text is as it was"
        more = ' --text "" empties a block.' if written != text else ""
        return Result(block, f"Nothing was changed: {why}.{more}")
    # What others wrote while the editor was open is kept, since the base is what was opened.
    change = SetText(written, base=block.version)
    try:
        async with open_home(options) as home:
            after = await home.blocks.write(*which, change, reason=reason, by="cli")
    except AsterismError as error:
        error.add_note(f"Your text is saved in {draft.file}.")
        raise
    draft.discard()
    meanwhile = after.version - block.version - 1
    more = " Edits of others since then are kept." if meanwhile > 0 else ""
    return Result(after, f"{_used(after)}{more}")


def _used(block: Block) -> str:
    return f"Block {block.label!r} holds {len(block.text):,} of {block.limit:,} characters."


# -- back and forth --------------------------------------------------------------------------------


@command(app, "undo", example="block undo human")
async def undo(
    home: Asterism,
    label: Label,
    agent: AgentOption = None,
    constellation: Constellation = False,
    reason: Reason = "",
) -> Result:
    """Undo the latest edit that is not undone yet."""
    from asterism.types.memory import Undo

    which = block_reference(agent, label, constellation=constellation)
    return await _step(home, which, Undo(), reason, "Undid edit {}")


@command(app, "redo", example="block redo human")
async def redo(
    home: Asterism,
    label: Label,
    agent: AgentOption = None,
    constellation: Constellation = False,
    reason: Reason = "",
) -> Result:
    """Redo the edit that was undone last."""
    from asterism.types.memory import Redo

    which = block_reference(agent, label, constellation=constellation)
    return await _step(home, which, Redo(), reason, "Redid the edit that undo {} had undone")


@command(app, "revert", example="block revert human 3")
async def revert(
    home: Asterism,
    label: Label,
    edit: Annotated[int, argument("EDIT", "The number of the edit.")],
    agent: AgentOption = None,
    constellation: Constellation = False,
    reason: Reason = "",
) -> Result:
    """Undo one edit by its number; later edits stay."""
    from asterism.types.memory import Revert

    which = block_reference(agent, label, constellation=constellation)
    return await _step(home, which, Revert(edit), reason, f"Undid edit {edit}")


async def _step(
    home: Asterism, which: tuple[str | None, str], change: BlockWrite, reason: str, message: str
) -> Result:
    block = await home.blocks.write(*which, change, reason=reason, by="cli")
    (latest,) = await home.blocks.history(None, block.id, limit=1)
    length = plural(len(block.text.split("\n")) if block.text else 0, "line")
    return Result(
        block, f"{message.format(latest.undoes)}. Block {block.label!r} has {length} now."
    )


@command(app, "restore", example='block restore human "1 hour ago"')
async def restore(
    home: Asterism,
    label: Label,
    point: Annotated[str, argument("POINT", 'A version, or a moment such as "1 hour ago".')],
    agent: AgentOption = None,
    constellation: Constellation = False,
    reason: Reason = "",
) -> Result:
    """Restore a block to a version or a moment; this is a new edit."""
    from asterism.types.memory import Restore

    which = block_reference(agent, label, constellation=constellation)
    version = await _version_at(home, which, point)
    block = await home.blocks.write(*which, Restore(version), reason=reason, by="cli")
    return Result(block, f"Block {block.label!r} has the text of version {version} again.")


async def _version_at(
    home: Asterism, which: tuple[str | None, str], point: str, *, needed: bool = True
) -> int:
    """Return the version that a block had at a point; if `needed`, there must have been one."""
    if match := _VERSION.fullmatch(point.strip().lower()):
        return int(match[1])
    version = await home.blocks.version_at(*which, read_moment(point))
    if needed and version == 0:
        raise NotFound(
            f"Block {which[1]!r} did not exist at that moment ({point}). "
            f'"asterism block history {which[1]}" shows when it was created. Nothing was changed.'
        )
    return version


# -- history ---------------------------------------------------------------------------------------


@command(app, "history", example="block history human --limit 5", readonly=True)
async def history(
    home: Asterism,
    label: Label,
    agent: AgentOption = None,
    constellation: Constellation = False,
    limit: Limit = 20,
    before: Annotated[
        int | None, option("--before", "EDIT", "Only edits before this.", min=1)
    ] = None,
) -> Result:
    """Show the edits of a block, the newest first."""
    which = block_reference(agent, label, constellation=constellation)
    found = await home.blocks.history(*which, limit=limit + 1, before=before)
    edits, notes = up_to(found, limit)
    columns: list[Column[EditRecord]] = [
        Column("edit", lambda edit: str(edit.number)),
        Column("when", lambda edit: local_short(edit.at_ms)),
        Column("what", lambda edit: edit.kind),
        Column("by", lambda edit: edit.author, prose=True),
        Column("stands", _standing),
        Column("turn", lambda edit: edit.turn_id or "", least=120),
        Column("why", lambda edit: edit.reason, prose=True),
    ]
    empty = "There are no edits before that one."
    return Result(edits, ItemTable(columns, edits, empty), notes=notes)


def _standing(edit: EditRecord) -> str:
    if edit.undone_by is not None:
        return f"undone by {edit.undone_by}"
    return f"undoes {edit.undoes}" if edit.undoes is not None else ""


@command(app, "diff", example="block diff human 1 3", readonly=True)
async def diff(
    home: Asterism,
    label: Label,
    first: Annotated[str, argument("A", 'A version, or a moment such as "1 hour ago".')],
    second: Annotated[str | None, argument("B", "Another version or moment; default: now.")] = None,
    agent: AgentOption = None,
    constellation: Constellation = False,
) -> Result:
    """Show what changed in a block between two versions or moments."""
    which = block_reference(agent, label, constellation=constellation)
    a = await _version_at(home, which, first, needed=False)
    if second is None:
        b = (await home.blocks.get(*which)).block.version
    else:
        b = await _version_at(home, which, second, needed=False)
    text = await home.blocks.diff(*which, a, b)
    part = _Diff(text) if text else f"Versions {a} and {b} are equal."
    return Result({"a": a, "b": b, "diff": text}, part)


@dataclass(frozen=True, slots=True)
class _Diff:
    """A unified diff, coloured at a terminal."""

    text: str

    def show(self, out: Output) -> None:
        if not sys.stdout.isatty():
            out.line(self.text)
            return
        from rich.text import Text

        screen = console()
        for number, line in enumerate(printable(self.text).split("\n")):
            style = "dim" if number < _DIFF_HEAD else _DIFF_STYLES.get(line[:1], "")
            screen.print(Text(line, style))


@command(app, "blame", example="block blame human", readonly=True)
async def blame(
    home: Asterism, label: Label, agent: AgentOption = None, constellation: Constellation = False
) -> Result:
    """For each line of a block, show who wrote it, when and why."""
    which = block_reference(agent, label, constellation=constellation)
    lines = await home.blocks.blame(*which)
    columns: list[Column[tuple[int, Line, list[EditRecord]]]] = [
        Column("line", lambda row: str(row[0])),
        Column("edit", lambda row: ", ".join(str(edit.number) for edit in row[2])),
        Column("when", lambda row: local_short(row[2][-1].at_ms) if row[2] else ""),
        Column("by", lambda row: _authors(row[2]), prose=True),
        Column("why", lambda row: row[2][-1].reason if row[2] else "", least=100, prose=True),
        Column("text", lambda row: row[1].text, prose=True),
    ]
    rows = [(number, line, edits) for number, (line, edits) in enumerate(lines, 1)]
    return Result(blame_view(lines), ItemTable(columns, rows, "The block is empty."))


def _authors(edits: Sequence[EditRecord]) -> str:
    return ", ".join(dict.fromkeys(edit.author for edit in edits))


# -- replicas --------------------------------------------------------------------------------------


@command(app, "merge", example="block merge human updates.bin")
async def merge(
    options: Options,
    label: Label,
    file: Annotated[Path, argument("FILE", "Updates of another replica; - reads stdin.")],
    agent: AgentOption = None,
    constellation: Constellation = False,
    reason: Reason = "",
) -> Result:
    """Merge the updates of another replica of this block."""
    from asterism.types.memory import Merge

    change = Merge(read_bytes(file))
    which = block_reference(agent, label, constellation=constellation)
    async with open_home(options) as home:
        block = await home.blocks.write(*which, change, reason=reason, by="cli")
    return Result(block, _used(block))


@command(app, "export-updates", example="block export-updates human updates.bin")
async def export_updates(
    home: Asterism,
    label: Label,
    file: Annotated[Path, argument("FILE", "A new file; - is stdout.")],
    agent: AgentOption = None,
    constellation: Constellation = False,
) -> Result | None:
    """Write all Loro updates of a block to a file, for another replica to merge."""
    which = block_reference(agent, label, constellation=constellation)
    updates = await home.blocks.updates(*which)
    if str(file) == "-":
        if sys.stdout.isatty():
            raise InvalidInput("Updates are binary: name a file, or send them into a pipe.")
        sys.stdout.buffer.write(updates)
        return None
    write_bytes(file, updates)
    shape = {"file": str(file), "bytes": len(updates)}
    return Result(shape, f"Wrote {len(updates):,} bytes to {file}.")
