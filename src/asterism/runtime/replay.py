"""Replay: a recorded turn runs again, offline; model and tools answer from the journal.

It runs in the same loop on a scratch database, so that nothing of the real one is touched and what
the loop writes can be compared, byte for byte.
"""

from __future__ import annotations

import tempfile
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson

from asterism.agents.turn import Means
from asterism.errors import Conflict, ModelError
from asterism.ports import Profile, Question
from asterism.runtime.runtime import Runtime
from asterism.runtime.watch import Hub
from asterism.store import agents, approvals, inbox, journal
from asterism.store.database import Connection, Database
from asterism.store.sqlite import open_sqlite
from asterism.tools.tool import Decision, Tool, Toolbox, ToolContext
from asterism.types.agents import Agent
from asterism.types.turns import (
    WIRE_KINDS,
    Effect,
    Entry,
    EntryKind,
    Outcome,
    Replay,
    Reply,
    TurnRecord,
    TurnState,
)
from asterism.types.wire import text_of

_READ_AT_ONCE = 512


class _EndOfRecording(ModelError):
    """The turn went no further than this."""


Wire = Callable[[Question, list[bytes], Reply | None], Awaitable[Reply | None]]
"""Answers a question from a tape of what went over the wire, with the past that the models saw and
the reply that was recorded; None if the tape has no such exchange."""


class _RecordedModel:
    """Says what was said."""

    def __init__(
        self,
        entries: list[Entry],
        wire: Wire | None = None,
        past: Callable[[int | None], Awaitable[list[bytes]]] | None = None,
    ) -> None:
        self._replies = {entry.key: entry for entry in entries if entry.kind is EntryKind.REPLY}
        self._wire = wire
        self._past = past

    async def answer(self, question: Question) -> Reply:
        """Return the recorded reply of the step that asks."""
        request = question.compose(question.models[0], Profile(), 0)
        entry = self._replies.get(request.key.partition("/")[2])
        recorded = Reply.from_entry(entry.body, entry.meta) if entry is not None else None
        if self._wire is not None and self._past is not None:
            past = await self._past(entry.seq if entry is not None else None)
            played = await self._wire(question, past, recorded)
            if played is not None:
                return played
        if recorded is None:
            raise _EndOfRecording("The recording ends here.")
        return recorded


class _RecordedTool(Tool):
    """Gives the results that were given; has no effect of its own."""

    def __init__(self, name: str, results: dict[str, Entry]) -> None:
        super().__init__(
            _nothing, name=name, effect=Effect.REPEATABLE, check=None, ask=False, timeout=None
        )
        self._results = results

    def read(self, arguments: str) -> dict[str, Any]:
        """Take any arguments: they were judged when the turn was recorded."""
        del arguments
        return {}

    async def run(self, context: ToolContext, arguments: dict[str, Any]) -> str:
        """Return the recorded result of this call."""
        del arguments
        key = context.key.partition("/")[2]
        if context.decision is not None:
            told = text_of(self._results[f"{key}/outcome"].body)
            return told.partition(" Result: ")[2]
        entry = self._results[key]
        if entry.meta:
            context.ask(orjson.loads(entry.meta)["question"])
        return text_of(entry.body)


class _RecordedTools(Toolbox):
    """Every tool there ever was."""

    def __init__(self, entries: list[Entry], real: Toolbox | None) -> None:
        super().__init__()
        self._recorded = {entry.key: entry for entry in entries}
        self._real = real

    def wire(self, allowed: tuple[str, ...] | None) -> bytes | None:
        """Return the descriptions that a model would be given now."""
        return self._real.wire(allowed) if self._real is not None else None

    def get(self, name: str, allowed: tuple[str, ...] | None) -> Tool:
        """Return the recorded tool of that name."""
        del allowed
        return _RecordedTool(name, self._recorded)


def _nothing() -> None:
    """Stand in for a tool's function, which is never called."""


def _publish_nothing(agent_id: str, turn_id: str, kind: str, data: dict[str, Any]) -> None:
    """Show nobody: a replay has no watchers."""


async def replay(
    database: Database,
    record: TurnRecord,
    entries: list[Entry],
    *,
    toolbox: Toolbox | None = None,
    wire: Wire | None = None,
    budget: int = 0,
) -> Replay:
    """Run a turn again and compare what it writes with what it wrote then.

    With `wire`, models are heard through it instead of from the journal, each with the past of up
    to `budget` bytes before the turn, and with the tools of `toolbox` to choose from.
    """
    if record.state is TurnState.OPEN:
        raise Conflict(
            f"Turn {record.id} is still under way. Replay it when it has ended; nothing was done."
        )
    agent = await database.read(lambda tx: agents.by_id(tx, record.agent_id))
    assert agent is not None
    with tempfile.TemporaryDirectory(prefix="asterism-replay-") as place:
        scratch = await open_sqlite(Path(place))
        try:
            await scratch.write(lambda tx: _lay_out(tx, agent, record, entries))
            model = _RecordedModel(entries, wire, lambda seq: _past(database, record, seq, budget))
            tools = _RecordedTools(entries, toolbox)
            outcome, written = await _run(scratch, agent, record, entries, model, tools)
        finally:
            await scratch.close()
    differences = tuple(_differences(entries, written, whole=wire is not None))
    text = outcome.text if outcome.state is TurnState.DONE else record.error or outcome.text
    return Replay(record.id, not differences, differences, text)


async def _lay_out(tx: Connection, agent: Agent, record: TurnRecord, entries: list[Entry]) -> None:
    """Put the agent as it stood before the turn, and the message, in the scratch database."""
    limits = replace(agent.limits, seconds=86_400.0)
    await agents.create(tx, "replay", replace(agent, limits=limits))
    await tx.run("UPDATE agents SET length = ? WHERE id = ?", (record.first_seq - 1, agent.id))
    opening: dict[str, Any] = orjson.loads(entries[0].meta or "{}")
    await inbox.put(
        tx,
        agent.id,
        "msg_" + record.id.partition("_")[2],
        kind="message",
        channel=record.channel,
        body=entries[0].body,
        at=entries[0].at,
        sender=opening.get("sender"),
        schema=opening.get("schema"),
    )


async def _past(
    database: Database, record: TurnRecord, seq: int | None, budget: int
) -> list[bytes]:
    """Return what came before an entry of a turn: all since it began, and `budget` bytes more."""

    async def read(tx: Connection) -> list[bytes]:
        newest_first: list[bytes] = []
        before, older = record.last_seq + 1 if seq is None else seq, 0
        while older <= budget and (
            rows := await journal.wire_before(tx, record.agent_id, before, _READ_AT_ONCE)
        ):
            for at, _, _, body in rows:
                newest_first.append(body)
                before = at
                older += len(body) if at < record.first_seq else 0
        return newest_first[::-1]

    return await database.read(read)


async def _run(
    scratch: Database,
    agent: Agent,
    record: TurnRecord,
    entries: list[Entry],
    model: _RecordedModel,
    tools: _RecordedTools,
) -> tuple[Outcome, list[Entry]]:
    means = Means(
        database=scratch,
        toolbox=tools,
        chain=lambda name: (name,),
        ask=model.answer,
        watched=lambda _: False,
        publish=_publish_nothing,
        clock=lambda: record.opened_at,
    )
    runtime = Runtime(
        means, Hub(), constellation="replay", budget=lambda: 1_000, delivered=lambda: None
    )
    await runtime.serve(agent.id, None)
    for entry in entries:
        if entry.kind is EntryKind.ONCE and entry.key.endswith("/decision"):
            await _decide_again(scratch, runtime, record, entry)
            await runtime.serve(agent.id, None)
    outcome = await runtime.outcome(record.id)

    async def read(tx: Connection) -> tuple[list[Entry], dict[str, str]]:
        there = await journal.turn(tx, record.id)
        asked = {one.key: one.id for one in await approvals.of_turn(tx, record.id)}
        return (await journal.entries_of(tx, there) if there else []), asked

    written, asked = await scratch.read(read)
    return outcome, [_with_old_ids(entry, entries, asked) for entry in written]


async def _decide_again(
    scratch: Database, runtime: Runtime, record: TurnRecord, entry: Entry
) -> None:
    said: dict[str, Any] = orjson.loads(entry.body)
    decision = Decision(said["approved"], said["note"], said["by"])
    for approval in await scratch.read(lambda tx: approvals.of_turn(tx, record.id)):
        if approval.key == said["key"] and approval.decided_at is None:
            await runtime.decide(approval.id, decision.approved, decision.note, decision.by)


def _with_old_ids(entry: Entry, recorded: list[Entry], asked: dict[str, str]) -> Entry:
    """Return an entry with the approval ids of the recording instead of new ones."""
    body = entry.body
    for old in recorded:
        if old.kind is EntryKind.RESULT and old.meta and old.key in asked:
            former: str = orjson.loads(old.meta)["parked"]
            body = body.replace(asked[old.key].encode(), former.encode())
    return replace(entry, body=body)


def _differences(recorded: list[Entry], written: list[Entry], *, whole: bool) -> Iterator[str]:
    """Yield what differs in the wire forms, and with `whole` in what came along with replies."""
    then = {entry.key: entry for entry in recorded if entry.kind in WIRE_KINDS}
    now = {entry.key: entry for entry in written if entry.kind in WIRE_KINDS}
    for key in then | now:
        if key not in now:
            yield f"{key}: recorded, but the replay did not come to it."
        elif key not in then:
            yield f"{key}: new in the replay."
        elif then[key].body != now[key].body:
            yield f"{key}: other text than recorded."
        elif whole and then[key].kind is EntryKind.REPLY and then[key].meta != now[key].meta:
            yield f"{key}: other reasoning, tokens or ending than recorded."
