"""`asterism group`: agents that answer together."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import orjson

from asterism.cli.commands import FAILED, PARKED, Options, argument, command, open_home, option
from asterism.cli.commands import group as group_of_commands
from asterism.cli.inputs import Yes, read_bytes, require_yes
from asterism.cli.output import Column, Grid, ItemTable, Result, one_line, plural, printable
from asterism.errors import InvalidInput
from asterism.times import local_short, local_text
from asterism.types.groups import Role
from asterism.views import group_view, transcript_markdown, view

if TYPE_CHECKING:
    from asterism.app import Asterism
    from asterism.types.groups import GroupMember, GroupRecord

app = group_of_commands("Create, show, change and delete groups, and read what they said.")
_adding = group_of_commands("Add something to a group.")
_removing = group_of_commands("Remove something from a group.")
app.add_typer(_adding, name="add")
app.add_typer(_removing, name="remove")

CHANNEL = "terminal"
Name = Annotated[str, argument("GROUP", "The group's name or id.")]
Agent = Annotated[str, argument("AGENT", "The agent's name or id.")]
PatternName = Annotated[
    str | None,
    option(
        "--pattern",
        "PATTERN",
        "How members take turns: supervisor, round_robin, pipeline, dynamic, voting, sleeptime, or "
        "one of a plugin.",
    ),
]
OptionValues = Annotated[
    list[str] | None,
    option("--option", "NAME=VALUE", "An option of the pattern; repeat for each. JSON or text."),
]
OptionsFile = Annotated[
    Path | None, option("--options-file", "FILE", "The options from a TOML or JSON file.")
]
Description = Annotated[str | None, option("--description", "TEXT", "What the group is for.")]


@command(app, "create", example="group create board --pattern voting --member ada --member ben")
async def create(
    options: Options,
    name: Annotated[str | None, argument("NAME", "A new name, which no agent has.")] = None,
    pattern: PatternName = None,
    value: OptionValues = None,
    options_file: OptionsFile = None,
    description: Description = None,
    member: Annotated[
        list[str] | None, option("--member", "AGENT", "An agent that is in it; repeat for each.")
    ] = None,
) -> Result:
    """Create a group; without --pattern its members answer in turn. Alone it opens a form."""
    if name is None:
        from asterism.cli.builder import CANCELLED, may_build

        if pattern or value or options_file or description or member or not may_build(options):
            raise InvalidInput(
                'Name the new group, such as "asterism group create board". At a terminal, '
                '"asterism group create" alone opens a form. Nothing was created.'
            )
        filled = await _fill_in(options)
        if filled is None:
            return CANCELLED
        name, pattern, value, description, member = filled
    chosen = _options(value, options_file)
    async with open_home(options) as home:
        made = await home.groups.create(
            name,
            pattern=pattern or "round_robin",
            options=chosen or {},
            description=description or "",
            members=member or (),
        )
    following = (
        f'"asterism chat --group {made.name}" opens a chat.'
        if made.members
        else f'"asterism group add member {shlex.quote(made.name)} AGENT" adds an agent.'
    )
    count = plural(len(made.members), "member")
    return Result(
        group_view(made), f"Created {made.name} ({made.pattern}) with {count}. {following}"
    )


_PATTERN_NOTES = {
    "supervisor": "one leads, and gives tasks to the others",
    "round_robin": "one after the other, a message each",
    "pipeline": "each works on what the one before has made",
    "dynamic": "whoever fits the message best",
    "voting": "all vote, and the vote is recorded",
    "sleeptime": "watches in the background, and speaks when a rule fires",
}


async def _fill_in(
    options: Options,
) -> tuple[str, str, list[str], str | None, list[str]] | None:
    """Ask in a form for what makes a group; None if it was cancelled."""
    from asterism.cli.builder import (
        ChoiceField,
        Form,
        MarkField,
        TextField,
        fill_in,
        free_name,
        known_in,
    )

    known = await known_in(options)
    name = TextField("name", "such as board", free_name(known))
    pattern = ChoiceField(
        "pattern", lambda: known.patterns, lambda value: _PATTERN_NOTES.get(value, "of a plugin")
    )
    members = MarkField("members", known.agents, "none yet")
    leader = ChoiceField(
        "leader", lambda: members.marked, shown=lambda: pattern.value == "supervisor"
    )
    ballot = TextField(
        "ballot", "yes, no", shown=lambda: pattern.value == "voting", check=_check_ballot
    )
    about = TextField("description", "what it is for")

    def values() -> list[str]:
        if pattern.value == "supervisor" and leader.value:
            return [f"leader={leader.value}"]
        if pattern.value == "voting" and ballot.text.strip():
            return [f"options={orjson.dumps(_ballot_options(ballot.text)).decode()}"]
        if pattern.value == "pipeline" and members.marked:
            return [f"stages={orjson.dumps(members.marked).decode()}"]
        return []

    def preview() -> list[str]:
        arguments = ["asterism", "group", "create", name.text.strip() or "NAME"]
        arguments += ["--pattern", pattern.value]
        for value in values():
            arguments += ["--option", value]
        for member in members.marked:
            arguments += ["--member", member]
        return [*arguments, *(["--description", about.text.strip()] if about.text.strip() else [])]

    form = Form("New group", [name, pattern, members, leader, ballot, about], preview)
    if not await fill_in(form):
        return None
    return (
        name.text.strip(),
        pattern.value,
        values(),
        about.text.strip() or None,
        members.marked,
    )


def _ballot_options(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _check_ballot(text: str) -> None:
    if text and len(set(map(str.casefold, _ballot_options(text)))) < 2:
        raise InvalidInput("Write at least two different options with commas between them.")


@command(app, "list", example="group list", readonly=True)
async def list_groups(home: Asterism) -> Result:
    """Show all groups."""
    groups = await home.groups.list()
    columns: list[Column[GroupRecord]] = [
        Column("group", lambda each: each.name, prose=True),
        Column("pattern", lambda each: each.pattern),
        Column("members", lambda each: ", ".join(m.name for m in each.members), prose=True),
        Column("created", lambda each: local_short(each.created_at_ms), least=80),
    ]
    empty = 'There are no groups yet. "asterism group create" makes one.'
    return Result([group_view(each) for each in groups], ItemTable(columns, groups, empty))


@command(app, "show", example="group show board", readonly=True)
async def show(home: Asterism, name: Name) -> Result:
    """Show one group with its pattern, its options and its members."""
    found = await home.groups.get(name)
    rows = [
        ("name", found.name),
        ("id", found.id),
        ("pattern", found.pattern),
        ("options", orjson.dumps(view(found.options)).decode() if found.options else "none"),
        ("description", found.description or "none"),
        ("created", local_text(found.created_at_ms)),
        ("version", str(found.version)),
    ]
    columns: list[Column[GroupMember]] = [
        Column("member", lambda each: each.name, prose=True),
        Column("role", _role),
        Column("capabilities", lambda each: ", ".join(each.capabilities), prose=True),
        Column("weight", lambda each: f"{each.weight:g}", least=80),
        Column("active", lambda each: "yes" if each.active else "no"),
    ]
    empty = (
        f'It has no members. "asterism group add member {shlex.quote(found.name)} AGENT" adds one.'
    )
    return Result(group_view(found), Grid(rows), ItemTable(columns, found.members, empty))


@command(app, "edit", example="group edit board --option quorum=2")
async def edit(
    options: Options,
    name: Name,
    new_name: Annotated[str | None, option("--name", "NEW", "Another name.")] = None,
    pattern: PatternName = None,
    value: OptionValues = None,
    options_file: OptionsFile = None,
    description: Description = None,
) -> Result:
    """Change a group from its next turn on; --option keeps the other options."""
    chosen = _options(value, options_file)
    if not (new_name or pattern or chosen is not None or description is not None):
        raise InvalidInput(
            'Say what to change, such as --pattern; "asterism group edit --help" shows all '
            f"options. {name} was not changed."
        )
    async with open_home(options) as home:
        now = await home.groups.get(name)
        keeps = pattern in (None, now.pattern) and options_file is None
        merged = {**now.options, **chosen} if chosen is not None and keeps else chosen
        changed = await home.groups.edit(
            now.name,
            new_name=new_name,
            pattern=pattern,
            options=merged,
            description=description,
        )
    return Result(group_view(changed), f"Changed {changed.name} from its next turn on.")


@command(app, "delete", example="group delete board")
async def delete(options: Options, name: Name, yes: Yes = False) -> Result:
    """Delete a group; its members stay, and its turns can still be read."""
    require_yes(f"Delete the group {one_line(name)}? Its members stay.", yes=yes)
    async with open_home(options) as home:
        deleted = await home.groups.delete(name)
    return Result(group_view(deleted), f"Deleted {deleted.name}. Its members stay.")


@command(_adding, "member", example="group add member board cy --role specialist")
async def add_member(
    home: Asterism,
    name: Name,
    agent: Agent,
    role: Annotated[
        str | None, option("--role", "ROLE", "supervisor, specialist, regular or observer.")
    ] = None,
    domain: Annotated[
        str | None,
        option("--domain", "DOMAIN", "What a specialist knows, such as memory_management."),
    ] = None,
    capability: Annotated[
        list[str] | None, option("--capability", "WORDS", "What it is good at; repeat for each.")
    ] = None,
    weight: Annotated[float | None, option("--weight", "NUMBER", "What its vote counts.")] = None,
    inactive: Annotated[
        bool | None, option("--inactive/--active", None, "Do not ask it for now, or ask it again.")
    ] = None,
) -> Result:
    """Add an agent to a group, or change what it is there; what you leave out stays unchanged."""
    changed = await home.groups.add_member(
        name,
        agent,
        role=role,
        domain=domain,
        capabilities=capability or None,
        weight=weight,
        active=None if inactive is None else not inactive,
    )
    found = next(each for each in changed.members if agent in (each.name, each.agent_id))
    return Result(
        group_view(changed), f"{found.name} is {_article(_role(found))} in {changed.name}."
    )


@command(_removing, "member", example="group remove member board cy")
async def remove_member(home: Asterism, name: Name, agent: Agent) -> Result:
    """Take an agent out of a group."""
    changed = await home.groups.remove_member(name, agent)
    return Result(group_view(changed), f"{one_line(agent)} is not in {changed.name} any more.")


@command(app, "transcript", example="group transcript board --output board.md", readonly=True)
async def transcript(
    home: Asterism,
    name: Name,
    limit: Annotated[int, option("--limit", "TURNS", "How many turns.", min=1)] = 20,
    output: Annotated[
        Path | None,
        option("--output", "FILE", "Write it to a file: .md as Markdown, .json as JSON."),
    ] = None,
) -> Result:
    """Show what was said and decided in a group, with votes and delegations."""
    found = await home.groups.get(name)
    events = await home.groups.transcript(name, limit=limit + 1)
    turns = list(dict.fromkeys(event.turn_id for event in events))
    notes = list[str]()
    if len(turns) > limit:
        events = [event for event in events if event.turn_id != turns[0]]
        notes = [f"There are more turns than these {limit:,}; --limit {limit * 5} shows more."]
    data = [view(event) for event in events]
    text = transcript_markdown(found.name, events)
    if output is None:
        told = printable(text) if events else f"{found.name} has not said anything."
        return Result(data, told, notes=notes)
    if output.suffix not in (".md", ".json"):
        raise InvalidInput(
            f"{output.name!r} ends neither with .md nor with .json, so that it is not known what "
            "to write. Nothing was written."
        )
    body = orjson.dumps(data, option=orjson.OPT_INDENT_2) if output.suffix == ".json" else None
    try:
        await asyncio.to_thread(output.write_bytes, body or text.encode())
    except OSError as error:
        raise InvalidInput(
            f"{output} cannot be written ({error.strerror}). Nothing was written."
        ) from None
    return Result(data, f"Wrote {plural(len(events), 'event')} to {output}.", notes=notes)


# -- talking ---------------------------------------------------------------------------------------


async def ask_group(options: Options, name: str, text: str) -> Result:
    """Send one message to a group and return its answer."""
    async with open_home(options, work=True) as home:
        group = await home.groups.get(name)
        receipt = await home.groups.send(group.name, text, channel=CHANNEL)
        outcome = await home.turns.wait(receipt)
    code = {"done": 0, "parked": PARKED}.get(outcome.state.value, FAILED)
    return Result(view(outcome), printable(outcome.text), code=code)


# -- options ---------------------------------------------------------------------------------------


def _options(values: Sequence[str] | None, file: Path | None) -> dict[str, Any] | None:
    """Return the options that were given; None if none were."""
    if not values and file is None:
        return None
    chosen: dict[str, Any] = dict(_read_file(file)) if file is not None else {}
    for text in values or ():
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise InvalidInput(
                f"{text!r} is not an option of a pattern. Write it as NAME=VALUE, such as "
                "quorum=3. Nothing was changed."
            )
        try:
            chosen[key.strip()] = orjson.loads(value)
        except orjson.JSONDecodeError:
            chosen[key.strip()] = value
    return chosen


def _read_file(path: Path) -> Mapping[str, Any]:
    from asterism.config.parse import parse_toml

    raw = read_bytes(path.expanduser())
    try:
        read: Any = orjson.loads(raw) if path.suffix == ".json" else parse_toml(raw.decode())
    except ValueError as error:
        raise InvalidInput(f"{path} cannot be read: {error}. Nothing was changed.") from None
    if not isinstance(read, dict):
        raise InvalidInput(f"{path} does not hold a table of options. Nothing was changed.")
    return cast("dict[str, Any]", read)


def _role(member: GroupMember) -> str:
    if member.role is Role.SPECIALIST and member.domain:
        return f"specialist for {member.domain}"
    return f"{member.role.value} member" if member.role is Role.REGULAR else member.role.value


def _article(words: str) -> str:
    return f"an {words}" if words[0] in "aeio" else f"a {words}"
