"""`asterism turn`: messages answered, step by step."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import orjson
import typer

from asterism.cli.home import visit
from asterism.cli.options import Options, command, group
from asterism.cli.outcome import report
from asterism.cli.output import Column, Output
from asterism.cli.text import one_line, plural, printable
from asterism.errors import Conflict
from asterism.times import duration_text, local_clock, local_short, local_text

if TYPE_CHECKING:
    from asterism.app import Asterism
    from asterism.types.agents import AgentRecord
    from asterism.types.turns import Entry, Outcome, Replay, TurnRecord

app = group("Look at turns; replay, fork and stop them.")

TurnId = Annotated[str, typer.Argument(metavar="TURN", help="The turn's id.")]
_STOP_WITHIN, _LOOK_AGAIN = 10.0, 0.1
_NOT_ENDED = frozenset({"waiting", "open"})


@command(app, "list")
def list_latest(
    options: Options,
    agent: Annotated[
        str | None, typer.Option("--agent", metavar="NAME", help="Only this agent's.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="How many at most.")] = 20,
) -> None:
    """Show the latest turns, newest first; those that wait come before."""

    async def errand(home: Asterism) -> tuple[list[TurnRecord], dict[str, str]]:
        waiting = await _waiting(home, agent)
        return [*waiting, *await home.turns.list(agent, limit=limit)][:limit], await names(home)

    turns, called = visit(options, errand, readonly=True)
    out = Output(json=options.json)
    if out.json:
        out.data([_record(turn, called) for turn in turns])
        return
    columns: list[Column[TurnRecord]] = [
        Column("turn", lambda one: one.id),
        Column("agent", lambda one: called.get(one.agent_id, one.agent_id), prose=True),
        Column("state", lambda one: one.state.value, state=True),
        Column("arrived", lambda one: local_short(one.arrived_at or one.opened_at)),
        Column("opened", _opened, least=90),
        Column("from", lambda one: one.channel, least=80),
        Column("tokens", lambda one: f"{one.usage.total:,}", least=100),
    ]
    out.table(columns, turns, empty='There are no turns yet. "asterism chat" begins one.')


@command(app, "show")
def show(options: Options, turn: TurnId) -> None:
    """Show what happened in a turn, entry by entry."""

    async def errand(home: Asterism) -> tuple[TurnRecord, list[Entry], dict[str, str]]:
        for record in await _waiting(home, None):
            if record.id == turn:
                return record, [], await names(home)
        return *(await home.turns.get(turn)), await names(home)

    record, entries, called = visit(options, errand, readonly=True)
    out = Output(json=options.json)
    if out.json:
        found = _record(record, called)
        out.data({**found, "entries": [_entry(entry) for entry in entries]})
        return
    who = called.get(record.agent_id, record.agent_id)
    out.grid(_facts(record, entries, who))
    if entries:
        out.line()
        out.grid(list(timeline(record, entries, who)))


@command(app, "replay")
def replay(
    options: Options,
    turn: TurnId,
    wire: Annotated[
        Path | None,
        typer.Option(
            "--wire", metavar="FILE", help="Hear models from this tape; compare requests too."
        ),
    ] = None,
) -> None:
    """Run a recorded turn again, offline, and compare it with what was recorded."""

    async def errand(home: Asterism) -> Replay:
        return await home.turns.replay(turn, cassette=wire)

    found = visit(options, errand, readonly=True)
    out = Output(json=options.json)
    if out.json:
        out.data(found)
    elif found.same:
        how = "entry by entry" if wire is None else "entry by entry and byte by byte on the wire"
        out.line(f"The same, {how}. It ends with: {found.text}")
    else:
        out.line(f"Not the same: {plural(len(found.differences), 'difference')}.")
        for difference in found.differences:
            out.line(f"  {difference}")
    if not found.same:
        raise typer.Exit(1)


@command(app, "fork")
def fork(
    options: Options,
    turn: TurnId,
    model: Annotated[
        str | None, typer.Option("--model", metavar="MODEL", help="Another model.")
    ] = None,
    system: Annotated[
        str | None, typer.Option("--system", metavar="TEXT", help="Another system prompt.")
    ] = None,
    name: Annotated[
        str | None, typer.Option("--name", metavar="NAME", help="The name of the copy.")
    ] = None,
) -> None:
    """Let a copy of the agent, as it stood before a turn, answer the same message anew."""

    async def errand(home: Asterism) -> tuple[AgentRecord, Outcome]:
        return await home.turns.fork(turn, name=name, model=model, system=system)

    copy, outcome = visit(options, errand, work=True)
    if not options.json:
        typer.echo(f"The copy is {printable(copy.name)}.", err=True)
    report(outcome, copy.name, json=options.json)


@command(app, "stop")
def stop(options: Options, turn: TurnId) -> None:
    """End a turn that is under way or waits for others to end."""

    async def errand(home: Asterism) -> Outcome:
        return await _stopped(home, turn)

    outcome = visit(options, errand, work=True)
    out = Output(json=options.json)
    if out.json:
        out.data(outcome)
    else:
        out.line(f"Turn {turn} is {outcome.state.value}.")


async def _stopped(home: Asterism, turn_id: str) -> Outcome:
    """Stop a turn as soon as it can be stopped, here or at another worker."""
    try:
        async with asyncio.timeout(_STOP_WITHIN):
            await home.turns.stop(turn_id)
            while (outcome := await home.turns.outcome(turn_id)).state.value in _NOT_ENDED:
                await asyncio.sleep(_LOOK_AGAIN)
                with contextlib.suppress(Conflict):  # ended just now
                    await home.turns.stop(turn_id)  # a notice to the worker that has it can be lost
            return outcome
    except TimeoutError:
        raise Conflict(
            f"Turn {turn_id} was told to stop and has not ended within {_STOP_WITHIN:g} s. "
            f'"asterism turn show {turn_id}" tells how far it is.'
        ) from None


async def _waiting(home: Asterism, agent: str | None) -> list[TurnRecord]:
    """Return the turns that have not begun, newest first."""
    from asterism.types.turns import TurnRecord, TurnState

    whose = (await home.agents.get(agent)).id if agent is not None else None
    found = [
        TurnRecord(
            id=item.turn_id,
            agent_id=item.agent_id,
            state=TurnState.WAITING if item.stopped is None else TurnState.STOPPED,
            channel=item.channel,
            reply_to=item.reply_to,
            first_seq=0,
            last_seq=0,
            opened_at=item.at,
            arrived_at=item.at,
        )
        for item in await home.turns.waiting()
        if item.kind == "message" and whose in (None, item.agent_id)
    ]
    return sorted(found, key=lambda record: record.id, reverse=True)


async def names(home: Asterism) -> dict[str, str]:
    """Return the agents' names by id."""
    return {agent.id: agent.name for agent in await home.agents.list()}


def _record(record: TurnRecord, called: dict[str, str]) -> dict[str, Any]:
    told = {**asdict(record), "agent": called.get(record.agent_id)}
    return told if _is_begun(record) else {**told, "opened_at": None}


def _is_begun(record: TurnRecord) -> bool:
    return record.first_seq > 0


def _opened(record: TurnRecord) -> str:
    return local_short(record.opened_at) if _is_begun(record) else ""


def _entry(entry: Entry) -> dict[str, Any]:
    return {
        "seq": entry.seq,
        "kind": entry.kind,
        "key": entry.key,
        "at": entry.at,
        "body": _loads(entry.body),
        "meta": _loads(entry.meta.encode()) if entry.meta else None,
    }


def _loads(body: bytes) -> Any:
    try:
        return orjson.loads(body) if body else None
    except orjson.JSONDecodeError:
        return body.decode("utf-8", "replace")


def _facts(record: TurnRecord, entries: list[Entry], who: str) -> list[tuple[str, str]]:
    usage, arrived = record.usage, record.arrived_at
    facts = [
        ("turn", record.id),
        ("agent", who),
        ("state", record.state.value),
        ("arrived", local_text(arrived) if arrived is not None else ""),
        ("opened", local_text(record.opened_at) if _is_begun(record) else ""),
        ("took", _times(record, entries)),
        ("from", record.channel),
        ("tokens", f"{usage.input:,} in ({usage.cached:,} cached), {usage.output:,} out"),
        ("error", record.error or ""),
    ]
    return [fact for fact in facts if fact[1]]


def _times(record: TurnRecord, entries: list[Entry]) -> str:
    """Return how long a turn waited for its beginning, worked, and waited for people."""
    if not _is_begun(record):
        return ""
    times: list[str] = []
    if record.arrived_at is not None:
        times.append(f"waited {duration_text(record.opened_at - record.arrived_at)}")
    if record.ended_at is not None:
        parked = _parked(entries)
        times.append(f"worked {duration_text(record.ended_at - record.opened_at - parked)}")
        if parked:
            times.append(f"{duration_text(parked)} until people answered")
    return " · ".join(times)


def _parked(entries: list[Entry]) -> int:
    """Return for how many milliseconds a turn stood still until people had decided."""
    pairs = itertools.pairwise(entries)
    return sum(max(0, one.at - former.at) for former, one in pairs if one.is_decision)


def timeline(record: TurnRecord, entries: list[Entry], who: str) -> Iterator[tuple[str, str, str]]:
    """Yield a turn's story: when, who, what."""
    called: dict[str, str] = {}
    for entry in entries:
        for speaker, text in _told(entry, record, who, called):
            yield local_clock(entry.at), one_line(speaker, 16), text


def _told(
    entry: Entry, record: TurnRecord, who: str, called: dict[str, str]
) -> Iterator[tuple[str, str]]:
    """Yield speaker and text of what an entry records; `called` gathers the names of calls."""
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
                called[f"{step}/call/{index}"] = call.name
                yield who, f"→ {call.name} {call.arguments}"
        case EntryKind.RESULT:
            yield called.get(key, key), f"← {text_of(entry.body)}"
        case EntryKind.BEGUN:
            yield called.get(key, key), "begun"
        case EntryKind.ONCE if entry.is_decision:
            yield _decision(_loads(entry.body))
        case _:
            yield "asterism", f"{entry.kind.value} {entry.key}"


def _decision(said: dict[str, Any]) -> tuple[str, str]:
    verdict = "approved" if said["approved"] else "denied"
    return said["by"], f"{verdict}: {said['note']}" if said["note"] else verdict
