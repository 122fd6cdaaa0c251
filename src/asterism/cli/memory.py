"""`asterism memory`: time travel, provenance, health, forgetting, leaving and returning."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

from asterism.cli import block as block_commands
from asterism.cli.commands import Options, argument, command, flag, group, open_home, option
from asterism.cli.inputs import (
    AgentArgument,
    AgentOption,
    Reason,
    Yes,
    optional_moment,
    read_json,
    read_text,
    require_yes,
    write_bytes,
)
from asterism.cli.output import (
    Column,
    Grid,
    ItemTable,
    ProgressBar,
    Result,
    as_json,
    console,
    note,
    one_line,
    plural,
    printable,
    up_to,
)
from asterism.errors import InvalidInput, NotFound
from asterism.records import dataclass
from asterism.times import local_short, local_text, read_moment
from asterism.views import health_view

if TYPE_CHECKING:
    from rich.tree import Tree

    from asterism.app import Asterism
    from asterism.cli.output import Output, Part
    from asterism.memory.forgetting import ForgetReceipt, Forgetting
    from asterism.memory.health import HealthIssue
    from asterism.memory.history import TurnWrites
    from asterism.memory.why import Trace
    from asterism.types.memory import Passage

app = group(
    "Show where memories come from, see or undo the past, forget, check, export and import."
)

_CHECK_EVERY = 0.5
"""Seconds between two looks at how far the index is."""
_MAX_QUOTE = 60

ForgetReason = Annotated[str, option("--reason", "TEXT", "The reason; it is kept in the receipt.")]
Several = list[str] | None


# -- the index -------------------------------------------------------------------------------------


@command(app, "index", example="memory index")
async def index(home: Asterism, options: Options) -> Result:
    """Put all texts into the index of search and encode them now, not in the background."""
    with ProgressBar(silent=options.json) as bar:
        indexing = asyncio.create_task(home.search.catch_up())
        while not indexing.done():
            await asyncio.wait([indexing], timeout=_CHECK_EVERY)
            done, total = await home.search.progress()
            if total:
                bar.update(done, total, f"{done:,} of {total:,} texts", "encoding")
        await indexing
    done, total = await home.search.progress()
    return Result(
        {"indexed": total, "encoded": done},
        f"{plural(total, 'text')} in the index, {done:,} of them with vectors of the encoder.",
        "The latest texts of each agent are read as they are until there are more of them.",
    )


# -- time ------------------------------------------------------------------------------------------


@command(app, "as-of", example='memory as-of aria "yesterday"')
async def as_of(
    options: Options,
    agent: AgentArgument,
    moment: Annotated[str, argument("MOMENT", '2026-11-16T04:00, 04:00, "1 hour ago" …')],
    limit: Annotated[int, option("--limit", None, "Passages at most.", min=1)] = 20,
) -> Result:
    """Show what an agent remembered at a moment."""
    then = read_moment(moment)
    async with open_home(options, readonly=True) as home:
        memory = await home.memory.as_of(agent, then, most=limit + 1)
    passages, notes = up_to(memory.passages, limit)
    memory = replace(memory, passages=passages)
    parts: list[Part | str] = [f"What {agent} remembered at {local_text(memory.moment_ms)}:"]
    for seen in memory.blocks:
        text = "\n".join(f"  {line.text}" for line in seen.lines) or "  (nothing)"
        parts += ["", f"block {seen.name}, version {seen.block.version}", text]
    columns: list[Column[Passage]] = [
        Column("passage", lambda passage: passage.id, least=80),
        Column("known", lambda passage: local_short(passage.known_from_ms)),
        Column("text", lambda passage: one_line(passage.text, 160), prose=True),
    ]
    parts += ["", ItemTable(columns, memory.passages, "Its archive was empty.")]
    for source in memory.sources:
        size = f"{plural(source.documents, 'document')}, {plural(source.passages, 'passage')}"
        parts.append(f"source {source.name}: {size}")
    return Result(memory, *parts, notes=notes)


@command(app, "revert", example="memory revert turn_01a1e1816e200a50fe5dea5c")
async def revert(
    options: Options,
    turn: Annotated[str | None, argument("TURN", "Undo everything that this turn wrote.")] = None,
    block: Annotated[str | None, option("--block", "LABEL", "Undo one edit of this block.")] = None,
    edit: Annotated[int | None, option("--edit", "N", "The number of the edit.", min=1)] = None,
    agent: AgentOption = None,
    reason: Reason = "",
    yes: Yes = False,
) -> Result:
    """Undo what one turn wrote to memory, or one edit of a block; later edits stay."""
    if turn is not None and block is None and edit is None:
        return await _revert_turn(options, turn, reason, yes=yes)
    if turn is None and block is not None and edit is not None:
        return await _revert_edit(options, (agent, block), edit, reason, yes=yes)
    raise InvalidInput("Name a turn, or --block and --edit. Nothing was changed.")


async def _revert_edit(
    options: Options, which: tuple[str | None, str], number: int, reason: str, *, yes: bool
) -> Result:
    agent, label = which
    if not yes:
        async with open_home(options, readonly=True) as home:
            edits = await home.blocks.history(*which, limit=1, before=number + 1)
            if not edits or edits[0].number != number:
                latest = (await home.blocks.get(*which)).block.version
                raise NotFound(
                    f"Block {label!r} has no edit {number}; its edits go from 1 to {latest}. "
                    "Nothing was changed."
                )
        edit = edits[0]
        what = (
            f"edit {number} of {label!r} ({edit.kind} by {edit.author}, {local_text(edit.at_ms)})"
        )
        require_yes(f"Undo {one_line(what)}?", yes=False)
    async with open_home(options) as home:
        return await block_commands.revert(home, label, number, agent, reason=reason)


async def _revert_turn(options: Options, turn: str, reason: str, *, yes: bool) -> Result:
    if not yes:
        async with open_home(options, readonly=True) as home:
            writes = await home.memory.written_by(turn)
            if not writes:
                await home.turns.get(turn)  # raises if there is no such turn
            labels = await _block_names(home)
        if writes:
            note(f"Turn {turn} wrote:")
            for line in _write_lines(writes, labels):
                note(f"  {line}")
            require_yes("Undo all of this? Later edits stay.", yes=False)
    async with open_home(options) as home:
        writes = await home.memory.revert_turn(turn, reason=reason, by="cli")
        labels = await _block_names(home)
    lines = ["Took back:", *(f"  {line}" for line in _write_lines(writes, labels))]
    lines += [f"Left: {sentence}" for sentence in writes.left]
    if writes.taken_back_by:
        lines.append(f'"asterism memory revert {writes.taken_back_by}" would undo this.')
    return Result(writes, *lines)


async def _block_names(home: Asterism) -> dict[str, str]:
    return {seen.block.id: seen.name for seen in await home.blocks.list()}


def _write_lines(writes: TurnWrites, labels: dict[str, str]) -> Iterator[str]:
    for edit in writes.edits:
        why = f": {edit.reason}" if edit.reason else ""
        name = labels.get(edit.block_id, edit.block_id)
        yield f"block {name}, edit {edit.number}, {edit.kind}{one_line(why, 80)}"
    for passage in writes.inserted:
        yield f"passage {passage.id}, stored: {one_line(passage.text, 80)}"
    for change in writes.passage_edits:
        yield f"passage {change.passage_id}, {change.kind}"


@command(app, "fork", example="memory fork aria bea")
async def fork(
    options: Options,
    agent: AgentArgument,
    target: Annotated[str, argument("TARGET", "The agent that gets the copy.")],
    moment: Annotated[str | None, option("--at", "MOMENT", "As it was at this moment.")] = None,
) -> Result:
    """Copy the memory of an agent to another agent, as it is or as it was at a moment."""
    then = optional_moment(moment)
    async with open_home(options) as home:
        copied = await home.memory.fork(agent, target, moment=then, by="cli")
    counts = {
        "blocks": copied.blocks,
        "shared": copied.shared,
        "passages": copied.passages,
        "sources": copied.sources,
    }
    figures = ", ".join(f"{name} {count:,}" for name, count in counts.items())
    verb = "remembered then" if then else "remembers"
    return Result(
        {"agent": agent, "target": target, "moment": then, **counts},
        f"{target} remembers what {agent} {verb} ({figures}).",
    )


@command(app, "retain", example="memory retain")
async def retain(home: Asterism) -> Result:
    """Delete everything older than the rules in [retention] allow; this also runs daily."""
    deleted = await home.memory.retain()
    rules = deleted.rules
    shape = {"rules": rules, "deleted": deleted.counts, "unreached": deleted.unreached}
    if not rules:
        line = (
            "There are no rules: everything is kept. Add rules under [retention] in asterism.toml."
        )
        return Result(shape, line)
    figures = ", ".join(f"{kind} {count:,}" for kind, count in deleted.counts.items() if count)
    line = f"Deleted: {figures or 'nothing was old enough'}."
    return Result(shape, line, *deleted.unreached)


# -- trust -----------------------------------------------------------------------------------------


@command(app, "why", example="memory why human:1", readonly=True)
async def why(
    home: Asterism,
    ref: Annotated[str, argument("REF", "A passage's or summary's id, LABEL or LABEL:LINE.")],
    agent: AgentOption = None,
) -> Result:
    """Show where a memory comes from, down to the original messages and documents."""
    trace = await home.memory.why(ref, agent=agent)
    return Result(trace, TraceTree(trace))


@dataclass(frozen=True, slots=True)
class TraceTree:
    """Where a memory comes from, as a tree."""

    trace: Trace

    def show(self, out: Output) -> None:
        """Show it as a tree at a terminal, else as indented lines."""
        if sys.stdout.isatty():
            console().print(_tree(self.trace))
            return
        for line in _branch(self.trace, ""):
            out.line(line)


def _tree(trace: Trace, parent: Tree | None = None) -> Tree:
    from rich.text import Text
    from rich.tree import Tree

    label = Text(printable(trace.what), "bold" if parent is None else "")
    if trace.at_ms is not None:
        label.append(f"  {local_text(trace.at_ms)}", "dim")
    if trace.text:
        label.append(f"\n{printable(trace.text)}", "cyan")
    tree = Tree(label, guide_style="dim") if parent is None else parent.add(label)
    for child in trace.children:
        _tree(child, tree)
    return tree


def _branch(trace: Trace, indent: str) -> Iterator[str]:
    yield f"{indent}{trace.what}{f'  {local_text(trace.at_ms)}' if trace.at_ms is not None else ''}"
    for line in trace.text.split("\n") if trace.text else ():
        yield f"{indent}  | {line}"
    for child in trace.children:
        yield from _branch(child, f"{indent}  ")


@command(app, "health", example="memory health aria", readonly=True)
async def health(home: Asterism, agent: AgentArgument) -> Result:
    """Show problems in an agent's memory and how to fix them; changes nothing."""
    report = await home.memory.health(agent)
    parts: list[Part | str] = [
        Grid([(name, f"{count:,}") for name, count in report.counts.items()]),
        "",
    ]
    if not report.findings:
        return Result(health_view(report), *parts, f"The memory of {agent} has no problems.")
    columns: list[Column[HealthIssue]] = [
        Column("what", lambda issue: issue.kind),
        Column("where", lambda issue: "\n".join(issue.ids[:2]), least=100),
        Column("says", lambda issue: issue.text, prose=True),
        Column("next move", lambda issue: issue.move, prose=True),
    ]
    looked = f"the latest {report.checked_passages:,}" if report.checked_passages else "no"
    count = f"{plural(len(report.findings), 'finding')}; {looked} passages were checked."
    return Result(health_view(report), *parts, ItemTable(columns, report.findings), count)


# -- forgetting ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ForgetOptions:
    """What a person wants forgotten, as they named it."""

    texts: tuple[str, ...] = ()
    passages: tuple[str, ...] = ()
    turns: tuple[str, ...] = ()
    persons: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    blocks: tuple[str, ...] = ()
    agents: tuple[str, ...] = ()


@command(app, "forget", example='memory forget --text "4711"')
async def forget(
    options: Options,
    text: Annotated[Several, option("--text", "TEXT", "A text, wherever it occurs.")] = None,
    passage: Annotated[Several, option("--passage", "ID", "A passage.")] = None,
    turn: Annotated[Several, option("--turn", "ID", "A turn, and what was written in it.")] = None,
    person: Annotated[Several, option("--person", "NAME", "A person and what they said.")] = None,
    source: Annotated[Several, option("--source", "NAME", "All documents of a source.")] = None,
    block: Annotated[
        Several, option("--block", "OWNER/LABEL", "A block, with its history.")
    ] = None,
    agent: Annotated[Several, option("--agent -a", "NAME", "An agent, with everything.")] = None,
    reason: ForgetReason = "",
    yes: Yes = False,
) -> Result:
    """Forget something everywhere and for good, with a receipt; each option can be repeated."""
    wanted = ForgetOptions(
        texts=tuple(text or ()),
        passages=tuple(passage or ()),
        turns=tuple(turn or ()),
        persons=tuple(person or ()),
        sources=tuple(source or ()),
        blocks=tuple(block or ()),
        agents=tuple(agent or ()),
    )
    return await forget_result(options, wanted, reason=reason, yes=yes)


async def forget_result(
    options: Options, wanted: ForgetOptions, *, reason: str, yes: bool
) -> Result:
    """Say what will be looked for, ask, forget it, and return the receipt."""
    if not any(getattr(wanted, field.name) for field in fields(wanted)):
        raise InvalidInput(
            "Say what to forget: give --text, --passage, --turn, --person, --source, "
            "--block or --agent. Nothing was done."
        )
    async with open_home(options, readonly=True) as home:
        request, descriptions = await _find_wanted(home, wanted)
    if not options.json:
        note("This will be forgotten, everywhere and in every earlier version:")
        for kind, description in descriptions:
            note(f"  {kind}: {description}")
    require_yes("Forget this for good? It cannot be brought back.", yes=yes)
    async with open_home(options) as home:
        receipt = await home.memory.forget(request, reason=reason, by="cli")
    return Result(receipt, *_receipt(receipt))


async def _find_wanted(
    home: Asterism, wanted: ForgetOptions
) -> tuple[Forgetting, list[tuple[str, str]]]:
    """Find what is meant, each by its id, with words for a person."""
    from asterism.memory.forgetting import Forgetting

    words = [("text", _quote(text)) for text in wanted.texts]
    for passage_id in wanted.passages:
        passage = await home.archive.get(passage_id)
        words.append(("passage", f"{passage.id}, {_quote(passage.text)}"))
    for turn_id in wanted.turns:
        turn, _ = await home.turns.get(turn_id)
        when = local_text(turn.opened_at_ms)
        words.append(("turn", f"{turn.id} of {when}, and what was written in it"))
    persons = [await home.people.get(who) for who in wanted.persons]
    words += [
        ("person", f"{person.name}: what they said, what only they may see") for person in persons
    ]
    sources = [await home.sources.get(name) for name in wanted.sources]
    words += [("source", f"{source.name}, the documents that were read") for source in sources]
    blocks = [await home.blocks.get(None, label) for label in wanted.blocks]
    words += [("block", f"{seen.name} with its history") for seen in blocks]
    agents = [await home.agents.get(name) for name in wanted.agents]
    words += [("agent", f"{agent.name} with everything that it has") for agent in agents]
    request = Forgetting(
        texts=wanted.texts,
        passages=wanted.passages,
        turns=wanted.turns,
        persons=tuple(person.id for person in persons),
        sources=tuple(source.id for source in sources),
        blocks=tuple(seen.block.id for seen in blocks),
        agents=tuple(agent.id for agent in agents),
    )
    return request, words


def _quote(text: str) -> str:
    return f'"{one_line(text, _MAX_QUOTE)}"'


_PLACES = {
    "accepted": "messages",
    "accounts": "accounts of people",
    "agent_messages": "messages between agents",
    "agents": "agents",
    "alerts": "alerts",
    "approvals": "approvals",
    "blobs": "images",
    "block history": "history of blocks",
    "block_edits": "history of blocks",
    "block_eras": "history of blocks",
    "block_replicas": "replicas of blocks",
    "blocks": "blocks",
    "charges": "spending",
    "documents": "documents",
    "embeddings": "search index",
    "entries": "messages, replies and results",
    "epochs": "contexts",
    "events": "audit log",
    "grants": "grants",
    "group_members": "groups",
    "groups": "groups",
    "halts": "halts",
    "idempotency_keys": "answers of the API",
    "inbox": "messages",
    "notices": "notices",
    "outbox": "deliveries",
    "passage_edits": "history of passages",
    "passages": "passages",
    "persons": "people",
    "postings": "search index",
    "registered_tools": "registered tools",
    "room_members": "rooms",
    "schedules": "schedules",
    "secrets": "keys",
    "segments": "search index",
    "source_agents": "sources",
    "sources": "sources",
    "summaries": "summaries",
    "tokens": "tokens",
    "tombstones": "receipts",
    "totals": "spending",
    "turns": "turns",
    "users": "users",
}
"""What people call the tables that a receipt counts in; files have their names."""


def _by_name(places: Mapping[str, int]) -> Counter[str]:
    """Return how often something was found, by what people call the places."""
    named = Counter[str]()
    for place, count in places.items():
        *copy, table = place.removesuffix(f".{place.rpartition('.')[2]}").split(".")
        name = _PLACES.get(place) or _PLACES.get(table) or place
        # A copy of the tables in PostgreSQL, from before an upgrade, is a schema of its own.
        named[f"{name} in {copy[0]}" if copy and name != place else name] += count
    return named


def _receipt(receipt: ForgetReceipt) -> Iterator[Part | str]:
    """Yield what was found where, and what could not be reached."""
    if receipt.places:
        columns: list[Column[tuple[str, int]]] = [
            Column("found in", lambda row: row[0], prose=True),
            Column("times", lambda row: f"{row[1]:,}"),
        ]
        yield ItemTable(columns, sorted(_by_name(receipt.places).items()))
        yield ""
    times, places = plural(receipt.count, "time"), plural(len(_by_name(receipt.places)), "place")
    total = f"Found {times} in {places}, and forgotten" if receipt.count else "Found nowhere"
    yield f"{total}. Receipt {receipt.id}, {local_text(receipt.at_ms)}."
    if receipt.summaries:
        yield (
            f"Emptied: {len(receipt.summaries):,} of the summaries, since it is unknown which of "
            "their words came from it."
        )
    for place, count in _by_name(receipt.names).items():
        yield f"Left: a name or an address in {place} holds it ({count:,})."
    for sentence in receipt.unreached:
        yield f"Not reached: {sentence}"
    if not receipt.finished:
        yield "It is not finished: the next start continues it."


@command(app, "receipts", example="memory receipts", readonly=True)
async def receipts(
    home: Asterism,
    receipt: Annotated[str | None, argument("RECEIPT", "Show all of this one.")] = None,
) -> Result:
    """Show the receipts of forgotten memories, the newest first; never their content."""
    all_receipts = await home.memory.receipts()
    if receipt is not None:
        wanted = next((item for item in all_receipts if item.id == receipt), None)
        if wanted is None:
            raise NotFound(
                f'There is no receipt {receipt!r}. "asterism memory receipts" shows all.'
            )
        return Result(wanted, *_receipt(wanted))
    columns: list[Column[ForgetReceipt]] = [
        Column("receipt", lambda receipt: receipt.id),
        Column("when", lambda receipt: local_short(receipt.at_ms)),
        Column("times", lambda receipt: f"{receipt.count:,}"),
        Column("by", lambda receipt: receipt.by, least=80, prose=True),
        Column("not reached", lambda receipt: f"{len(receipt.unreached):,}", least=80),
        Column("why", lambda receipt: receipt.reason, prose=True),
    ]
    return Result(all_receipts, ItemTable(columns, all_receipts, "Nothing was forgotten yet."))


# -- leaving and returning -------------------------------------------------------------------------


@command(app, "export", example="memory export aria --file aria.json", readonly=True)
async def export(
    home: Asterism,
    agent: AgentArgument,
    file: Annotated[Path | None, option("--file", "FILE", "A new file; default: stdout.")] = None,
    present: Annotated[
        list[str] | None, option("--present", "NAME", "Only what this person may see.")
    ] = None,
) -> Result:
    """Write an agent's memory as a JSON document."""
    from asterism.types.agents import OWNER_ALONE

    participants = await home.people.participants(present) if present else OWNER_ALONE
    document = await home.memory.export(agent, participants=participants)
    if file is None:
        return Result(document, as_json(document))
    write_bytes(file, as_json(document).encode() + b"\n")
    blocks, passages = len(document["blocks"]), len(document["passages"])
    what = f"{plural(blocks, 'block')} and {plural(passages, 'passage')}"
    return Result(
        {"file": str(file), "blocks": blocks, "passages": passages},
        f"Wrote {what} of {agent} to {file}.",
    )


@command(app, "import", example="memory import aria aria.json --dry-run")
async def import_memory(
    options: Options,
    agent: AgentArgument,
    file: Annotated[Path, argument("FILE", "An exported file; - reads stdin.")],
    dry_run: Annotated[bool, flag("--dry-run", "Only show what would be done.")] = False,
) -> Result:
    """Import an exported memory, and show what was not imported."""
    document = read_json(read_text(file), str(file), "Nothing was imported.")
    if not isinstance(document, dict):
        raise InvalidInput(f"{file} is not an export of a memory. Nothing was imported.")
    async with open_home(options) as home:
        report = await home.memory.import_(
            agent, cast("dict[str, Any]", document), dry_run=dry_run, by="cli"
        )
    verb = "Would import" if dry_run else "Imported"
    what = f"{plural(len(report.blocks), 'block')} and {plural(report.passages, 'passage')}"
    merged = f"; {report.merged:,} existed already" if report.merged else ""
    lines = [f"{verb} {what}{merged}."]
    if report.people:
        lines.append(f"Strangers now, without an account: {', '.join(report.people)}.")
    lines += report.left
    return Result(report, *lines)
