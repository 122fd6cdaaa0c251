"""`asterism context`: what a model sees or saw, line by line, and making it shorter."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

from asterism.cli.commands import Options, command, flag, group, open_home, option
from asterism.cli.inputs import AgentArgument
from asterism.cli.output import Column, Grid, ItemTable, Result, first_words, plural
from asterism.errors import InvalidInput, NotFound
from asterism.views import context_view, without_secrets

if TYPE_CHECKING:
    from collections.abc import Sequence

    from asterism.app import Asterism
    from asterism.turns.shown import ShownContext, ShownLine

_TAG = re.compile(r"^<block [^>]*>|</block>$")

app = group("See what a model is shown, and why; make what is old shorter.")


@command(app, "show")
async def show(
    options: Options,
    agent: AgentArgument,
    turn: Annotated[str | None, option("--turn", "ID", "What it saw in this turn.")] = None,
    step: Annotated[
        int | None, option("--step", "N", "In this step of it; else the last.", min=0)
    ] = None,
    present: Annotated[
        list[str] | None, option("--present", "NAME", "As if this person were there, too.")
    ] = None,
    full: Annotated[bool, flag("--full", "Print the whole text.")] = False,
) -> Result:
    """Show what a model would be shown now, or was shown in a turn, line by line."""
    if turn is None and step is not None:
        raise InvalidInput("--step goes with --turn. Nothing was done.")
    if turn is not None and present:
        raise InvalidInput(
            "--turn and --present exclude each other: who was there is known. Nothing was done."
        )
    async with open_home(options, readonly=True) as home:
        return await context_result(
            home, agent, turn=turn, step=step, present=present or (), full=full
        )


async def context_result(
    home: Asterism,
    agent: str,
    *,
    turn: str | None = None,
    step: int | None = None,
    present: Sequence[str] = (),
    full: bool = False,
) -> Result:
    """Return a context as a table, or with `full` word by word."""
    found = await home.agents.get(agent)
    if turn is None:
        context = await home.contexts.now(found, present=present)
    else:
        record, _ = await home.turns.get(turn)
        if record.agent_id != found.id:
            raise NotFound(
                f"Turn {turn} is not one of {found.name}'s. "
                f'"asterism turn list --agent {found.name}" shows those.'
            )
        context = await home.contexts.of_turn(turn, step)
    context = without_secrets(context)
    lines = _full_lines(context) if full else [_table(context)]
    return Result(context_view(context), *lines, "", Grid(_totals(context)))


def _state(line: ShownLine) -> str:
    return "cached" if line.cached else "fresh"


def _full_lines(context: ShownContext) -> Iterator[str]:
    for number, line in enumerate(context.lines):
        if number:
            yield ""
        tokens = f"{line.tokens:,} tokens, {_state(line)}"
        yield f"── {line.part} · {line.origin} · {tokens} · {line.why}"
        yield line.text


def _table(context: ShownContext) -> ItemTable[ShownLine]:
    columns: list[Column[ShownLine]] = [
        Column("part", lambda line: line.part, prose=True),
        Column("tokens", lambda line: f"{line.tokens:,}"),
        Column("state", _state),
        Column("origin", lambda line: line.origin, least=120),
        Column("why", lambda line: line.why, prose=True),
        Column("first words", _first_words, least=80),
    ]
    return ItemTable(columns, context.lines, "A model would be shown nothing.")


def _first_words(line: ShownLine) -> str:
    return first_words(_TAG.sub("", line.text), wide=170)


def _totals(context: ShownContext) -> list[tuple[str, str]]:
    cached = sum(line.tokens for line in context.lines if line.cached)
    of = "" if context.turn_id is None else f"step {context.step} of {context.turn_id}, "
    rows = [
        ("model", context.model or "unknown"),
        ("prefix", f"{of}epoch {context.epoch}: {context.why}"),
        ("tokens", f"about {context.tokens:,}, {cached:,} of them sent before"),
    ]
    if context.tokens_in:
        counted = f"{context.tokens_in:,} in ({context.tokens_cached:,} cached), "
        rows.append(("vendor", f"counted {counted}{context.tokens_out:,} out"))
    return rows


@command(app, "compact")
async def compact(home: Asterism, agent: AgentArgument) -> Result:
    """Compact the older half of what an agent sees into a summary; the originals stay."""
    compacted = await home.contexts.compact(agent)
    summary, count = compacted.summary, compacted.facts
    facts = f", and saved {plural(count, 'fact')} into the archive" if count else ""
    line = (
        f"Compacted {plural(summary.messages, 'message')} of about {summary.tokens:,} tokens into "
        f"summary {summary.id} (by {summary.made_by}){facts}:"
    )
    return Result(compacted, line, summary.text)
