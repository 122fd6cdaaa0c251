"""`asterism memory`: time travel, provenance, health, forgetting, leaving and returning."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import orjson
import typer

from asterism.cli.block_edit import step_back
from asterism.cli.forget import ForgetOptions, forget_wanted, print_receipt, print_receipts
from asterism.cli.gauge import Gauge
from asterism.cli.given import be_sure, read_text, write_bytes
from asterism.cli.home import visit
from asterism.cli.options import Options, command, group
from asterism.cli.output import Column, Output, console
from asterism.cli.shapes import plain
from asterism.cli.text import as_json, one_line, plural, printable
from asterism.cli.whose import Reason, Whose, Yes
from asterism.errors import InvalidInput, NotFound
from asterism.times import local_short, local_text, read_moment

if TYPE_CHECKING:
    from rich.tree import Tree

    from asterism.app import Asterism
    from asterism.memory.export import Report
    from asterism.memory.forgetting import ForgetReceipt
    from asterism.memory.forgetting.retention import RetentionResult
    from asterism.memory.gate.copies import Forked
    from asterism.memory.health import Health, HealthIssue
    from asterism.memory.history import MemoryAt, TurnWrites
    from asterism.memory.why import Trace
    from asterism.types.memory import EditRecord, Passage

app = group("Ask where memories come from, go back in time, forget, check, export and import.")

_LOOK_EVERY = 0.5
"""Seconds between two looks at how far the index is."""
AgentRecord = Annotated[str, typer.Argument(metavar="AGENT", help="The agent's name or id.")]


# -- the index -------------------------------------------------------------------------------------


@command(app, "index")
def index(options: Options) -> None:
    """Put all texts into the index of search and encode them now, not in the background."""

    async def errand(home: Asterism) -> tuple[int, int]:
        with Gauge(silent=options.json) as gauge:
            indexing = asyncio.create_task(home.indexing.catch_up())
            while True:
                ended, _ = await asyncio.wait([indexing], timeout=_LOOK_EVERY)
                done, total = await home.indexing.progress()
                if total:
                    gauge.show(done, total, f"{done:,} of {total:,} texts", "encoding")
                if ended:
                    await indexing
                    return done, total

    done, total = visit(options, errand)
    out = Output(json=options.json)
    if out.json:
        out.data({"indexed": total, "encoded": done})
        return
    out.line(f"{plural(total, 'text')} in the index, {done:,} of them with vectors of the encoder.")
    out.line("The latest texts of each agent are read as they are until there are more of them.")


# -- time ------------------------------------------------------------------------------------------


@command(app, "as-of")
def as_of(
    options: Options,
    agent: AgentRecord,
    moment: Annotated[
        str, typer.Argument(metavar="MOMENT", help='2026-11-16T04:00, 04:00, "1 hour ago" …')
    ],
    limit: Annotated[int, typer.Option("--limit", min=1, help="Passages at most.")] = 20,
) -> None:
    """Show what an agent remembered at a moment."""
    then = read_moment(moment)

    async def errand(home: Asterism) -> MemoryAt:
        return await home.memory.as_of(agent, then, most=limit)

    found = visit(options, errand, readonly=True)
    out = Output(json=options.json)
    if out.json:
        out.data(plain(found))
        return
    out.line(f"What {agent} remembered at {local_text(found.moment)}:")
    for seen in found.blocks:
        out.line()
        out.line(f"block {seen.name}, version {seen.block.version}")
        out.line("\n".join(f"  {line.text}" for line in seen.lines) or "  (nothing)")
    out.line()
    columns: list[Column[Passage]] = [
        Column("passage", lambda one: one.id, least=80),
        Column("known", lambda one: local_short(one.known_from)),
        Column("text", lambda one: one_line(one.text, 160), prose=True),
    ]
    out.table(columns, found.passages, empty="Its archive held nothing.")
    for source in found.sources:
        held = f"{plural(source.documents, 'document')}, {plural(source.passages, 'passage')}"
        out.line(f"source {source.name}: {held}")


@command(app, "revert")
def revert(
    options: Options,
    turn: Annotated[
        str | None, typer.Argument(metavar="TURN", help="Take back all that this turn wrote.")
    ] = None,
    block: Annotated[
        str | None, typer.Option("--block", metavar="LABEL", help="Take back one edit of a block.")
    ] = None,
    edit: Annotated[
        int | None, typer.Option("--edit", min=1, metavar="N", help="Which edit of the block.")
    ] = None,
    agent: Whose = None,
    reason: Reason = "",
    yes: Yes = False,
) -> None:
    """Take back what one turn wrote to memory, or one edit of a block; what came after stays."""
    if turn is not None and block is None and edit is None:
        _revert_turn(options, turn, reason, yes=yes)
    elif turn is None and block is not None and edit is not None:
        _revert_edit(options, (agent, block), edit, reason, yes=yes)
    else:
        raise InvalidInput("Name a turn, or --block and --edit. Nothing was changed.")


def _revert_edit(
    options: Options, which: tuple[str | None, str], number: int, reason: str, *, yes: bool
) -> None:
    async def look(home: Asterism) -> EditRecord:
        found = await home.blocks.history(*which, limit=1, before=number + 1)
        if not found or found[0].number != number:
            latest = (await home.blocks.get(*which)).block.version
            raise NotFound(
                f"Block {which[1]!r} has no edit {number}; its edits go from 1 to {latest}. "
                "Nothing was changed."
            )
        return found[0]

    if not yes:
        found = visit(options, look, readonly=True)
        origin = f"{found.kind} by {found.author}, {local_text(found.at)}"
        what = f"edit {number} of {which[1]!r} ({origin})"
        be_sure(f"Take back {one_line(what)}?", yes=False)
    step_back(options, which, number, reason)


def _revert_turn(options: Options, turn: str, reason: str, *, yes: bool) -> None:
    async def look(home: Asterism) -> tuple[TurnWrites, dict[str, str]]:
        effects = await home.memory.written_by(turn)
        if not effects:
            await home.turns.get(turn)  # raises what is to be said of one that there is not
        return effects, await _labels(home)

    if not yes:
        effects, labels = visit(options, look, readonly=True)
        if effects:
            typer.echo(f"Turn {turn} wrote:", err=True)
            for line in _told(effects, labels):
                typer.echo(printable(f"  {line}"), err=True)
            be_sure("Take all of this back? What came after it stays.", yes=False)

    async def errand(home: Asterism) -> tuple[TurnWrites, dict[str, str]]:
        return await home.memory.revert_turn(turn, reason=reason, by="cli"), await _labels(home)

    done, labels = visit(options, errand)
    out = Output(json=options.json)
    if out.json:
        out.data(plain(done))
        return
    out.line("Took back:")
    for line in _told(done, labels):
        out.line(f"  {line}")
    for sentence in done.left:
        out.line(f"Left: {sentence}")
    if done.taken_back_by:
        out.line(f'"asterism memory revert {done.taken_back_by}" would take this back in turn.')


async def _labels(home: Asterism) -> dict[str, str]:
    return {one.block.id: one.name for one in await home.blocks.list()}


def _told(effects: TurnWrites, labels: dict[str, str]) -> Iterator[str]:
    for edit in effects.edits:
        why = f": {edit.reason}" if edit.reason else ""
        name = labels.get(edit.block_id, edit.block_id)
        yield f"block {name}, edit {edit.number}, {edit.kind}{one_line(why, 80)}"
    for passage in effects.inserted:
        yield f"passage {passage.id}, stored: {one_line(passage.text, 80)}"
    for change in effects.passage_edits:
        yield f"passage {change.passage_id}, {change.kind}"


@command(app, "fork")
def fork(
    options: Options,
    agent: AgentRecord,
    target: Annotated[str, typer.Argument(metavar="TARGET", help="The agent that gets the copy.")],
    moment: Annotated[
        str | None, typer.Option("--at", metavar="MOMENT", help="As it was then, not as it is.")
    ] = None,
) -> None:
    """Give an agent a copy of another's memory, as it is or as it was at a moment."""
    then = read_moment(moment) if moment is not None else None

    async def errand(home: Asterism) -> Forked:
        return await home.memory.fork(agent, target, moment=then, by="cli")

    copied = visit(options, errand)
    out = Output(json=options.json)
    counts = {
        "blocks": copied.blocks,
        "shared": copied.shared,
        "passages": copied.passages,
        "sources": copied.sources,
    }
    if out.json:
        out.data({"agent": agent, "target": target, "moment": then, **counts})
        return
    said = ", ".join(f"{name} {count:,}" for name, count in counts.items())
    out.line(
        f"{target} remembers what {agent} {'remembered then' if then else 'remembers'} ({said})."
    )


@command(app, "retain")
def retain(options: Options) -> None:
    """Delete what is older than the rules in [retention] allow; it is done daily, too."""

    async def errand(home: Asterism) -> tuple[int, RetentionResult]:
        return len(home.settings.retention), await home.memory.retain()

    rules, deleted = visit(options, errand)
    out = Output(json=options.json)
    if out.json:
        out.data({"rules": rules, "deleted": deleted.counts, "unreached": deleted.unreached})
        return
    if not rules:
        out.line("There are no rules: everything is kept. [retention] in asterism.toml makes some.")
        return
    found = {kind: count for kind, count in deleted.counts.items() if count}
    said = ", ".join(f"{kind} {count:,}" for kind, count in found.items())
    out.line(f"Deleted: {said or 'nothing was old enough'}.")
    for sentence in deleted.unreached:
        out.line(sentence)


# -- trust -----------------------------------------------------------------------------------------


@command(app, "why")
def why(
    options: Options,
    ref: Annotated[
        str, typer.Argument(metavar="REF", help="A passage's or summary's id, LABEL or LABEL:LINE.")
    ],
    agent: Whose = None,
) -> None:
    """Show where a memory comes from, down to the very messages and documents."""

    async def errand(home: Asterism) -> Trace:
        return await home.memory.why(ref, agent=agent)

    trace = visit(options, errand, readonly=True)
    out = Output(json=options.json)
    if out.json:
        out.data(plain(trace))
    elif sys.stdout.isatty():
        console().print(_tree(trace))
    else:
        for line in _branch(trace, ""):
            out.line(line)


def _tree(trace: Trace, onto: Tree | None = None) -> Tree:
    from rich.text import Text
    from rich.tree import Tree

    label = Text(printable(trace.what), "bold" if onto is None else "")
    if trace.at is not None:
        label.append(f"  {local_text(trace.at)}", "dim")
    if trace.text:
        label.append(f"\n{printable(trace.text)}", "cyan")
    tree = Tree(label, guide_style="dim") if onto is None else onto.add(label)
    for child in trace.children:
        _tree(child, tree)
    return tree


def _branch(trace: Trace, indent: str) -> Iterator[str]:
    yield f"{indent}{trace.what}{f'  {local_text(trace.at)}' if trace.at is not None else ''}"
    for line in trace.text.split("\n") if trace.text else ():
        yield f"{indent}  | {line}"
    for child in trace.children:
        yield from _branch(child, f"{indent}  ")


@command(app, "health")
def health(options: Options, agent: AgentRecord) -> None:
    """Show what is wrong with an agent's memory, and the next move; nothing is changed."""

    async def errand(home: Asterism) -> Health:
        return await home.memory.health(agent)

    found = visit(options, errand, readonly=True)
    out = Output(json=options.json)
    if out.json:
        out.data(plain(found))
        return
    out.grid([(name, f"{count:,}") for name, count in found.counts.items()])
    out.line()
    if not found.findings:
        out.line(f"Nothing is wrong with what {agent} remembers.")
        return
    columns: list[Column[HealthIssue]] = [
        Column("what", lambda one: one.kind),
        Column("where", lambda one: "\n".join(one.ids[:2]), least=100),
        Column("says", lambda one: one.text, prose=True),
        Column("next move", lambda one: one.move, prose=True),
    ]
    out.table(columns, found.findings, empty="")
    looked = f"the latest {found.looked_at:,}" if found.looked_at else "no"
    out.line(f"{plural(len(found.findings), 'finding')}; {looked} passages were looked at.")


# -- forgetting ------------------------------------------------------------------------------------


Several = list[str] | None


@command(app, "forget")
def forget(
    options: Options,
    text: Annotated[
        Several, typer.Option("--text", metavar="TEXT", help="Wherever it occurs.")
    ] = None,
    passage: Annotated[Several, typer.Option("--passage", metavar="ID", help="A passage.")] = None,
    turn: Annotated[
        Several, typer.Option("--turn", metavar="ID", help="A turn, and what was written in it.")
    ] = None,
    person: Annotated[
        Several, typer.Option("--person", metavar="NAME", help="A person and what they said.")
    ] = None,
    source: Annotated[
        Several, typer.Option("--source", metavar="NAME", help="What was read from a source.")
    ] = None,
    block: Annotated[
        Several, typer.Option("--block", metavar="OWNER/LABEL", help="A block, with its history.")
    ] = None,
    agent: Annotated[
        Several, typer.Option("--agent", "-a", metavar="NAME", help="An agent, with everything.")
    ] = None,
    reason: Annotated[
        str, typer.Option("--reason", metavar="TEXT", help="Why; the receipt keeps it.")
    ] = "",
    yes: Yes = False,
) -> None:
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
    forget_wanted(options, wanted, reason=reason, yes=yes)


@command(app, "receipts")
def receipts(
    options: Options,
    receipt: Annotated[
        str | None, typer.Argument(metavar="RECEIPT", help="Show this one whole.")
    ] = None,
) -> None:
    """Show the receipts of all that was forgotten, the newest first; never what it was."""

    async def errand(home: Asterism) -> list[ForgetReceipt]:
        return await home.memory.receipts()

    found = visit(options, errand, readonly=True)
    out = Output(json=options.json)
    if receipt is not None:
        found = [one for one in found if one.id == receipt]
        if not found:
            raise NotFound(
                f'There is no receipt {receipt!r}. "asterism memory receipts" shows all.'
            )
    if out.json:
        out.data(plain(found if receipt is None else found[0]))
    elif receipt is not None:
        print_receipt(out, found[0])
    else:
        print_receipts(out, found)


# -- leaving and returning -------------------------------------------------------------------------


@command(app, "export")
def export(
    options: Options,
    agent: AgentRecord,
    file: Annotated[
        Path | None,
        typer.Option("--file", metavar="FILE", help="A file that is not there yet; else stdout."),
    ] = None,
    present: Annotated[
        list[str] | None,
        typer.Option("--present", metavar="NAME", help="Only what this person may hear."),
    ] = None,
) -> None:
    """Write an agent's memory as a JSON document."""

    async def errand(home: Asterism) -> dict[str, Any]:
        from asterism.types.agents import OWNER_ALONE

        participants = await home.people.participants(present) if present else OWNER_ALONE
        return await home.memory.export(agent, participants=participants)

    document = visit(options, errand, readonly=True)
    out = Output(json=options.json)
    if file is None:
        out.data(document)
        return
    write_bytes(file, as_json(document).encode() + b"\n")
    held = {"blocks": len(document["blocks"]), "passages": len(document["passages"])}
    if out.json:
        out.data({"file": str(file), **held})
    else:
        told = f"{plural(held['blocks'], 'block')} and {plural(held['passages'], 'passage')}"
        out.line(f"Wrote {told} of {agent} to {file}.")


@command(app, "import")
def import_memory(
    options: Options,
    agent: AgentRecord,
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="What export has written; - reads stdin.")
    ],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would be done.")
    ] = False,
) -> None:
    """Take a memory in that was exported, and say what was not carried over."""
    try:
        found: Any = orjson.loads(read_text(file))
    except orjson.JSONDecodeError as error:
        raise InvalidInput(f"{file} is no JSON: {error}. Nothing was imported.") from None
    if not isinstance(found, dict):
        raise InvalidInput(f"{file} is no export of a memory. Nothing was imported.")
    document = cast("dict[str, Any]", found)

    async def errand(home: Asterism) -> Report:
        return await home.memory.import_(agent, document, dry_run=dry_run, by="cli")

    done = visit(options, errand)
    out = Output(json=options.json)
    if out.json:
        out.data(plain(done))
        return
    verb = "Would import" if dry_run else "Imported"
    held = f"{plural(len(done.blocks), 'block')} and {plural(done.passages, 'passage')}"
    merged = f"; {done.merged:,} were there already" if done.merged else ""
    out.line(f"{verb} {held}{merged}.")
    if done.people:
        out.line(f"Strangers now, without an account: {', '.join(done.people)}.")
    for sentence in done.left:
        out.line(f"Not carried: {sentence}")
