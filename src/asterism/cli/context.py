"""`asterism context`: what a model sees or saw, line by line, and making room in it."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from asterism.cli.home import visit
from asterism.cli.options import Options, command, group
from asterism.cli.output import Column, Output
from asterism.cli.shapes import first_words, plain
from asterism.cli.text import plural
from asterism.errors import InvalidInput, NotFound

if TYPE_CHECKING:
    from collections.abc import Sequence

    from asterism.app import Asterism
    from asterism.turns.compaction import CompactionResult
    from asterism.turns.shown import ShownContext, ShownLine

_TAG = re.compile(r"^<block [^>]*>|</block>$")

app = group("See what a model is shown, and why; fold what is old.")

AgentRecord = Annotated[str, typer.Argument(metavar="AGENT", help="The agent's name or id.")]


@command(app, "show")
def show(
    options: Options,
    agent: AgentRecord,
    turn: Annotated[
        str | None, typer.Option("--turn", metavar="ID", help="What it saw in this turn.")
    ] = None,
    step: Annotated[
        int | None,
        typer.Option("--step", min=0, metavar="N", help="In this step of it; else the last."),
    ] = None,
    present: Annotated[
        list[str] | None,
        typer.Option("--present", metavar="NAME", help="As if this person were there, too."),
    ] = None,
    full: Annotated[bool, typer.Option("--full", help="Print the whole text.")] = False,
) -> None:
    """Show what a model would be shown now, or was shown in a turn, line by line."""
    if turn is None and step is not None:
        raise InvalidInput("--step goes with --turn. Nothing was done.")
    if turn is not None and present:
        raise InvalidInput(
            "--turn and --present exclude each other: who was there is known. Nothing was done."
        )
    print_context(options, agent, turn=turn, step=step, present=present or (), full=full)


def print_context(
    options: Options,
    agent: str,
    *,
    turn: str | None = None,
    step: int | None = None,
    present: Sequence[str] = (),
    full: bool = False,
) -> None:
    """Print a context as a table, or with `full` word by word."""

    async def errand(home: Asterism) -> ShownContext:
        found = await home.agents.get(agent)
        if turn is None:
            return await home.contexts.now(found, present=present)
        record, _ = await home.turns.get(turn)
        if record.agent_id != found.id:
            raise NotFound(
                f"Turn {turn} is not one of {found.name}'s. "
                f'"asterism turn list --agent {found.name}" shows those.'
            )
        return await home.contexts.of_turn(turn, step)

    shown = _as_sent(visit(options, errand, readonly=True))
    out = Output(json=options.json)
    if out.json:
        out.data(_data(shown))
    elif full:
        _print_full(out, shown)
    else:
        _print_table(out, shown)


def _as_sent(shown: ShownContext) -> ShownContext:
    """Return a context without known keys, which are taken out when it is sent."""
    from asterism.telemetry.redaction import RequestRedactor, redact

    cleaned = RequestRedactor()
    lines = tuple(replace(one, text=redact(one.text)) for one in shown.lines)
    return replace(shown, lines=lines, messages=tuple(cleaned[one] for one in shown.messages))


def _data(shown: ShownContext) -> dict[str, Any]:
    import orjson

    data = plain(shown)
    for line in data["lines"]:
        del line["wire"]
    messages: list[Any] = [orjson.loads(one) for one in shown.messages]
    return {**data, "messages": messages, "tokens": shown.tokens}


def _print_full(out: Output, shown: ShownContext) -> None:
    for number, line in enumerate(shown.lines):
        if number:
            out.line()
        state = "cached" if line.cached else "fresh"
        out.line(f"── {line.part} · {line.origin} · {line.tokens:,} tokens, {state} · {line.why}")
        out.line(line.text)
    out.line()
    out.grid(_totals(shown))


def _print_table(out: Output, shown: ShownContext) -> None:
    columns: list[Column[ShownLine]] = [
        Column("part", lambda one: one.part, prose=True),
        Column("tokens", lambda one: f"{one.tokens:,}"),
        Column("state", lambda one: "cached" if one.cached else "fresh"),
        Column("origin", lambda one: one.origin, least=120),
        Column("why", lambda one: one.why, prose=True),
        Column("first words", _first_words, least=80),
    ]
    out.table(columns, shown.lines, empty="A model would be shown nothing.")
    out.line()
    out.grid(_totals(shown))


def _first_words(line: ShownLine) -> str:
    return first_words(_TAG.sub("", line.text), wide=170)


def _totals(shown: ShownContext) -> list[tuple[str, str]]:
    cached = sum(line.tokens for line in shown.lines if line.cached)
    of = "" if shown.turn_id is None else f"step {shown.step} of {shown.turn_id}, "
    facts = [
        ("model", shown.model or "unknown"),
        ("prefix", f"{of}epoch {shown.epoch}: {shown.why}"),
        ("tokens", f"about {shown.tokens:,}, {cached:,} of them sent before"),
    ]
    if shown.tokens_in:
        counted = f"{shown.tokens_in:,} in ({shown.tokens_cached:,} cached), "
        facts.append(("vendor", f"counted {counted}{shown.tokens_out:,} out"))
    return facts


@command(app, "fold")
def fold(options: Options, agent: AgentRecord) -> None:
    """Fold the older half of what an agent sees into a summary; the originals stay."""

    async def errand(home: Asterism) -> CompactionResult:
        return await home.contexts.fold(agent)

    folded = visit(options, errand)
    out = Output(json=options.json)
    if out.json:
        out.data(plain(folded))
        return
    summary = folded.summary
    facts = f", and saved {plural(folded.facts, 'fact')} into the archive" if folded.facts else ""
    out.line(
        f"Folded {plural(summary.messages, 'message')} of about {summary.tokens:,} tokens into "
        f"summary {summary.id} (by {summary.made_by}){facts}:"
    )
    out.line(summary.text)
