"""`asterism turn`: messages answered, step by step."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from asterism.cli.commands import FAILED, INTERRUPTED, PARKED, argument, command, group, option
from asterism.cli.halt import RESUME, halt_notes, halt_text
from asterism.cli.inputs import Limit
from asterism.cli.output import Column, Grid, ItemTable, Result, one_line, plural, up_to
from asterism.errors import Conflict
from asterism.times import duration_text, local_clock, local_short, local_text
from asterism.views import (
    entry_view,
    is_begun,
    names_with_deleted,
    outcome_view,
    read_body,
    turn_view,
)

if TYPE_CHECKING:
    from asterism.app import Asterism
    from asterism.types.turns import Entry, Outcome, TurnRecord

app = group("Show, replay, fork, stop and retry turns.")

TurnId = Annotated[str, argument("TURN", "The turn's id.")]
_STOP_WITHIN, _CHECK_EVERY = 10.0, 0.1
_NOT_ENDED = frozenset({"waiting", "open"})
_HOW_TO_DECIDE = '"asterism approval approve ID" or "asterism approval deny ID" answers.'
_CODES = {"done": 0, "parked": PARKED, "stopped": INTERRUPTED}


@command(app, "list", example="turn list --agent aria", readonly=True)
async def list_turns(
    home: Asterism,
    agent: Annotated[str | None, option("--agent", "NAME", "Only this agent's.")] = None,
    limit: Limit = 20,
) -> Result:
    """Show the latest turns, newest first; waiting turns come before them."""
    waiting = await _waiting(home, agent)
    found = [*waiting, *await home.turns.list(agent, limit=limit + 1)]
    turns, more = up_to(found, limit)
    agents = await names_with_deleted(home, {turn.agent_id for turn in turns})
    columns: list[Column[TurnRecord]] = [
        Column("turn", lambda turn: turn.id),
        Column("agent", lambda turn: agents.get(turn.agent_id, turn.agent_id), prose=True),
        Column("state", lambda turn: turn.state.value, state=True),
        Column("arrived", lambda turn: local_short(turn.arrived_at_ms or turn.opened_at_ms)),
        Column(
            "opened",
            lambda turn: local_short(turn.opened_at_ms) if is_begun(turn) else "",
            least=90,
        ),
        Column("from", lambda turn: turn.channel, least=80),
        Column("tokens", lambda turn: f"{turn.usage.total:,}", least=100),
    ]
    empty = 'There are no turns yet. "asterism chat" begins one.'
    return Result(
        [turn_view(turn, agents) for turn in turns],
        ItemTable(columns, turns, empty),
        notes=[*more, *await halt_notes(home)],
    )


@command(app, "show", example="turn show turn_01a1e1816e200a50fe5dea5c", readonly=True)
async def show(home: Asterism, turn: TurnId) -> Result:
    """Show what happened in a turn, entry by entry."""
    entries = list["Entry"]()
    waiting = (record for record in await _waiting(home, None) if record.id == turn)
    record = next(waiting, None)
    if record is None:
        record, entries = await home.turns.get(turn)
    agents = await names_with_deleted(home, {record.agent_id})
    who = agents.get(record.agent_id, record.agent_id)
    story = ["", Grid(list(_timeline(record, entries, who)))] if entries else []
    return Result(
        {**turn_view(record, agents), "entries": [entry_view(entry) for entry in entries]},
        Grid(_facts(record, entries, who)),
        *story,
        notes=await halt_notes(home) if record.ended_at_ms is None else (),
    )


@command(app, "replay", example="turn replay turn_01a1e1816e200a50fe5dea5c", readonly=True)
async def replay(
    home: Asterism,
    turn: TurnId,
    wire: Annotated[
        Path | None,
        option(
            "--wire", "FILE", "Take the answers of models from this tape; compare requests too."
        ),
    ] = None,
) -> Result:
    """Run a recorded turn again, offline, and compare it with what was recorded."""
    replayed = await home.turns.replay(turn, cassette=wire)
    if replayed.same:
        how = "entry by entry" if wire is None else "entry by entry and byte by byte on the wire"
        return Result(replayed, f"Identical, {how}. It ends with: {replayed.text}")
    count = f"Not identical: {plural(len(replayed.differences), 'difference')}."
    return Result(replayed, count, *(f"  {text}" for text in replayed.differences), code=FAILED)


@command(
    app,
    "fork",
    example="turn fork turn_01a1e1816e200a50fe5dea5c --model openai:gpt-4.1-mini",
    work=True,
)
async def fork(
    home: Asterism,
    turn: TurnId,
    model: Annotated[str | None, option("--model", "MODEL", "Another model.")] = None,
    system: Annotated[str | None, option("--system", "TEXT", "Another system prompt.")] = None,
    name: Annotated[str | None, option("--name", "NAME", "The name of the copy.")] = None,
) -> Result:
    """Copy the agent as it was before a turn, and let the copy answer the same message."""
    if (halted := await home.halts.current()) is not None:
        raise Conflict(f"{halt_text(halted)} {RESUME} Nothing was copied.")
    copy, outcome = await home.turns.fork(turn, name=name, model=model, system=system)
    result = outcome_result(outcome, copy.name)
    result.notes = [f"The copy is {copy.name}.", *result.notes]
    return result


@command(app, "stop", example="turn stop turn_01a1e1816e200a50fe5dea5c", work=True)
async def stop(home: Asterism, turn: TurnId) -> Result:
    """Stop a turn that is running or waiting."""
    outcome = await _stop(home, turn)
    return Result(outcome, f"Turn {turn} is {outcome.state.value}.")


@command(app, "retry", example="turn retry turn_01a1e1816e200a50fe5dea5c", work=True)
async def retry(home: Asterism, turn: TurnId) -> Result:
    """Hand in the message of a failed or stopped turn once more, and wait for the answer."""
    receipt = await home.turns.retry(turn)
    outcome = await home.turns.wait(receipt)
    names = await names_with_deleted(home, {outcome.agent_id})
    result = outcome_result(outcome, names.get(outcome.agent_id, outcome.agent_id))
    result.notes = [f"The new turn is {receipt.turn_id}.", *result.notes]
    return result


def outcome_result(outcome: Outcome, agent: str) -> Result:
    """Return the answer of a turn; anything else goes to standard error."""
    shape, state = outcome_view(outcome, agent), outcome.state.value
    if state == "done":
        return Result(shape, outcome.text)
    hint = f"\n{_HOW_TO_DECIDE}" if state == "parked" else ""
    return Result(shape, notes=[f"{outcome.text}{hint}"], code=_CODES.get(state, FAILED))


async def _stop(home: Asterism, turn_id: str) -> Outcome:
    """Stop a turn as soon as it can be stopped, here or at another worker."""
    try:
        async with asyncio.timeout(_STOP_WITHIN):
            await home.turns.stop(turn_id)
            while (outcome := await home.turns.outcome(turn_id)).state.value in _NOT_ENDED:
                await asyncio.sleep(_CHECK_EVERY)
                with contextlib.suppress(Conflict):  # ended just now
                    await home.turns.stop(turn_id)  # a notice to the worker that has it can be lost
            return outcome
    except TimeoutError:
        raise Conflict(
            f"Turn {turn_id} was asked to stop and has not ended within {_STOP_WITHIN:g} s. "
            f'"asterism turn show {turn_id}" shows its state.'
        ) from None


async def _waiting(home: Asterism, agent: str | None) -> list[TurnRecord]:
    """Return the turns that have not begun, newest first."""
    from asterism.types.turns import TurnRecord, TurnState

    agent_id = (await home.agents.get(agent)).id if agent is not None else None
    waiting = [
        TurnRecord(
            id=item.turn_id,
            agent_id=item.agent_id,
            state=TurnState.WAITING if item.stopped is None else TurnState.STOPPED,
            channel=item.channel,
            reply_to=item.reply_to,
            first_seq=0,
            last_seq=0,
            opened_at_ms=item.at_ms,
            arrived_at_ms=item.at_ms,
        )
        for item in await home.turns.waiting()
        if item.kind == "message" and agent_id in (None, item.agent_id)
    ]
    return sorted(waiting, key=lambda record: record.id, reverse=True)


def _facts(record: TurnRecord, entries: list[Entry], who: str) -> list[tuple[str, str]]:
    usage, arrived = record.usage, record.arrived_at_ms
    facts = [
        ("turn", record.id),
        ("agent", who),
        ("state", record.state.value),
        ("arrived", local_text(arrived) if arrived is not None else ""),
        ("opened", local_text(record.opened_at_ms) if is_begun(record) else ""),
        ("took", _times(record, entries)),
        ("from", record.channel),
        ("tokens", f"{usage.input:,} in ({usage.cached:,} cached), {usage.output:,} out"),
        ("error", record.error or ""),
    ]
    return [fact for fact in facts if fact[1]]


def _times(record: TurnRecord, entries: list[Entry]) -> str:
    """Return how long a turn waited for its beginning, worked, and waited for people."""
    if not is_begun(record):
        return ""
    times: list[str] = []
    if record.arrived_at_ms is not None:
        times.append(f"waited {duration_text(record.opened_at_ms - record.arrived_at_ms)}")
    if record.ended_at_ms is not None:
        parked = _parked(entries)
        times.append(f"worked {duration_text(record.ended_at_ms - record.opened_at_ms - parked)}")
        if parked:
            times.append(f"{duration_text(parked)} until people answered")
    return " · ".join(times)


def _parked(entries: list[Entry]) -> int:
    """Return for how many milliseconds a turn stood still until people had decided."""
    pairs = itertools.pairwise(entries)
    return sum(max(0, entry.at_ms - former.at_ms) for former, entry in pairs if entry.is_decision)


def _timeline(record: TurnRecord, entries: list[Entry], who: str) -> Iterator[tuple[str, str, str]]:
    """Yield a turn's story: when, who, what."""
    calls: dict[str, str] = {}
    for entry in entries:
        for speaker, text in _story(entry, record, who, calls):
            yield local_clock(entry.at_ms), one_line(speaker, 16), text


def _story(
    entry: Entry, record: TurnRecord, who: str, calls: dict[str, str]
) -> Iterator[tuple[str, str]]:
    """Yield speaker and text of what an entry records; `calls` gathers the names of calls."""
    from asterism.types.turns import EntryKind, Reply, text_of

    key = entry.key.removesuffix("/begun").removesuffix("/approved")
    match entry.kind:
        case EntryKind.MESSAGE:
            yield (record.channel if entry.key == "in" else "asterism"), text_of(entry.body)
        case EntryKind.REPLY:
            reply = Reply.from_entry(entry.body, entry.meta)
            if reply.reasoning:
                yield who, f"(thinks) {reply.reasoning}"
            if reply.text or not reply.calls:
                yield who, reply.text
            step = entry.key.partition("/")[0]
            for index, call in enumerate(reply.calls):
                calls[f"{step}/call/{index}"] = call.name
                yield who, f"→ {call.name} {call.arguments}"
        case EntryKind.RESULT:
            yield calls.get(key, key), f"← {text_of(entry.body)}"
        case EntryKind.BEGUN:
            yield calls.get(key, key), "begun"
        case EntryKind.ONCE:
            yield from _noted(entry, who)


def _noted(entry: Entry, who: str) -> Iterator[tuple[str, str]]:
    """Yield speaker and text of what was noted once: judgements, facts, decisions."""
    if "/evaluate/" in entry.key:
        judgement = read_body(entry.body)
        yield entry.key.rpartition("/")[2], f"{judgement['kind']}: {judgement['text']}"
    elif entry.key == "facts":
        yield "asterism", f"kept what lasts: {' '.join(read_body(entry.body))}"
    elif entry.key == "in/calls":
        for call in read_body(entry.body):
            yield "asterism", f"calls {call['name']} first: {call['why']}"
    elif entry.key.endswith("/void"):
        yield who, f"(begun and made anew) {' '.join(read_body(entry.body))}"
    elif entry.is_decision:
        yield _decision(read_body(entry.body))
    else:
        yield "asterism", f"{entry.kind.value} {entry.key}"


def _decision(decision: dict[str, Any]) -> tuple[str, str]:
    if decision.get("client"):
        return decision["by"], f"result: {decision['text']}"
    verdict = "approved" if decision["approved"] else "denied"
    note = decision["note"]
    return decision["by"], f"{verdict}: {note}" if note else verdict
