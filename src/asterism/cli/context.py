"""`asterism context`: what a model sees or saw, line by line, and making it shorter."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING, Annotated

from asterism.cli.commands import Options, command, flag, group, open_home, option
from asterism.cli.inputs import AgentArgument
from asterism.cli.output import Column, Grid, ItemTable, Result, first_words, plural
from asterism.errors import InvalidInput, NotFound
from asterism.views import context_view

if TYPE_CHECKING:
    from collections.abc import Sequence

    from asterism.app import Asterism
    from asterism.turns.context_view import ContextLine, ContextView

_TOOL = "tool "
_TAG = re.compile(r"^<block [^>]*>|</block>$")

app = group("Show what a model sees, and why; compact old messages.")


@command(app, "show", example="context show aria")
async def show(
    options: Options,
    agent: AgentArgument,
    turn: Annotated[str | None, option("--turn", "ID", "The context of this turn.")] = None,
    step: Annotated[
        int | None, option("--step", "N", "The step of the turn; default: the last.", min=0)
    ] = None,
    present: Annotated[
        list[str] | None, option("--present", "NAME", "As if this person were also present.")
    ] = None,
    full: Annotated[bool, flag("--full", "Print the whole text.")] = False,
) -> Result:
    """Show what a model would see now, or saw in a turn, line by line."""
    if turn is None and step is not None:
        raise InvalidInput("--step needs --turn. Nothing was done.")
    if turn is not None and present:
        raise InvalidInput(
            "--turn and --present cannot be used together: the turn has recorded who was present. "
            "Nothing was done."
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
    agent_record = await home.agents.get(agent)
    if turn is None:
        context = await home.contexts.now(agent_record, present=present)
    else:
        record, _ = await home.turns.get(turn)
        if record.agent_id != agent_record.id:
            raise NotFound(
                f"Turn {turn} is not one of {agent_record.name}'s. "
                f'"asterism turn list --agent {shlex.quote(agent_record.name)}" shows those.'
            )
        context = await home.contexts.of_turn(turn, step)
    lines = _full_lines(context) if full else [_table(context)]
    return Result(context_view(context), *lines, "", Grid(_totals(context)))


def _state(line: ContextLine) -> str:
    return "cached" if line.cached else "fresh"


def _full_lines(context: ContextView) -> Iterator[str]:
    for number, line in enumerate(context.lines):
        if number:
            yield ""
        tokens = f"{line.tokens:,} tokens, {_state(line)}"
        yield f"── {line.part} · {line.origin} · {tokens} · {line.why}"
        yield line.text


def _table(context: ContextView) -> ItemTable[ContextLine]:
    columns: list[Column[ContextLine]] = [
        Column("part", lambda line: line.part, prose=True),
        Column("tokens", lambda line: f"{line.tokens:,}"),
        Column("state", _state),
        Column("origin", lambda line: line.origin, least=120),
        Column("why", lambda line: line.why, prose=True),
        Column("first words", _first_words, least=80),
    ]
    return ItemTable(columns, list(_rows(context)), "The context is empty.")


def _rows(context: ContextView) -> Iterator[ContextLine]:
    """Yield the lines of a context; its tools are one, which names them with their tokens."""
    for is_tool, found in groupby(context.lines, key=lambda line: line.part.startswith(_TOOL)):
        lines = list(found)
        if not is_tool:
            yield from lines
            continue
        named = ", ".join(f"{line.part.removeprefix(_TOOL)} {line.tokens:,}" for line in lines)
        tokens = sum(line.tokens for line in lines)
        what = f"tools ({len(lines)})"
        yield replace(lines[0], part=what, tokens=tokens, why="the agent may call them", text=named)


def _first_words(line: ContextLine) -> str:
    return first_words(_TAG.sub("", line.text), wide=170)


def _totals(context: ContextView) -> list[tuple[str, str]]:
    of = "" if context.turn_id is None else f"step {context.step} of {context.turn_id}, "
    small = ", with the short prompt for small models" if context.compact else ""
    rows = [
        ("model", (context.model or "unknown") + small),
        ("compiled", f"{of}version {context.epoch} of its fixed part: {context.why}"),
        ("tokens", _tokens(context)),
    ]
    if context.difference:
        rows.append(("differs", f"because {context.difference}"))
    if context.turn_id is not None:
        rows.append(("reply", f"{context.tokens_out:,} tokens"))
    rows += [
        ("left out", f"{part.what}, about {part.tokens:,} tokens: {part.why}")
        for part in context.left_out
    ]
    return rows


def _tokens(context: ContextView) -> str:
    """Say how many tokens a context has, and how that is known."""
    from asterism.turns.context_view import TokenBasis

    total = f"{context.tokens:,}"
    if context.basis is TokenBasis.COUNTED and context.turn_id is None:
        return f"{total}, as the model itself counts them now"
    if context.basis is TokenBasis.COUNTED:
        off = abs(context.estimate - context.tokens) / context.tokens
        counted = f"{total}, as the vendor counted ({context.tokens_cached:,} from its cache)"
        return f"{counted}; the estimate was {context.estimate:,}, {off:.1%} off"
    if context.basis is TokenBasis.CORRECTED:
        by = f"an estimate, corrected by what the vendor counted for {context.corrected_by}"
        return f"about {total}: {by}"
    return f"about {total}: an estimate by length; this model has not counted any context yet"


@command(app, "compact", example="context compact aria")
async def compact(home: Asterism, agent: AgentArgument) -> Result:
    """Compact the older half of an agent's context into a summary; the originals stay."""
    compacted = await home.contexts.compact(agent)
    summary, count = compacted.summary, compacted.facts
    facts = f", and saved {plural(count, 'fact')} into the archive" if count else ""
    line = (
        f"Compacted {plural(summary.messages, 'message')} of about {summary.tokens:,} tokens into "
        f"summary {summary.id} (by {summary.made_by}){facts}:"
    )
    return Result(compacted, line, summary.text)


@command(app, "new", example="context new aria")
async def new(home: Asterism, agent: AgentArgument) -> Result:
    """Begin a conversation anew: earlier messages leave the context, and memory stays."""
    summary = await home.contexts.restart(agent)
    name = (await home.agents.get(agent)).name
    line = (
        f"{name} begins anew: {plural(summary.messages, 'message')} left its context. They stay in "
        "the journal, and search finds them."
    )
    return Result(summary, line)
