"""Replay: a recorded turn runs again, offline; model and tools answer from the journal.

It runs in the same loop on a scratch database, so that nothing of the real one is touched and what
the loop writes can be compared, byte for byte.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson

from asterism.agents.turn import Means
from asterism.errors import Conflict, ModelError
from asterism.ports import Emit, ModelRequest
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


class _EndOfRecording(ModelError):
    """The turn went no further than this."""


class _RecordedModel:
    """Says what was said."""

    def __init__(self, entries: list[Entry]) -> None:
        self._replies = {entry.key: entry for entry in entries if entry.kind is EntryKind.REPLY}

    async def complete(self, request: ModelRequest, emit: Emit | None = None) -> Reply:
        """Return the recorded reply of the step that asks."""
        del emit
        entry = self._replies.get(request.key.partition("/")[2])
        if entry is None:
            raise _EndOfRecording("The recording ends here.")
        return Reply.from_entry(entry.body, entry.meta)

    async def close(self) -> None:
        """Nothing to let go of."""


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

    def __init__(self, entries: list[Entry]) -> None:
        super().__init__()
        self._recorded = {entry.key: entry for entry in entries}

    def get(self, name: str, allowed: tuple[str, ...] | None) -> Tool:
        """Return the recorded tool of that name."""
        del allowed
        return _RecordedTool(name, self._recorded)


def _nothing() -> None:
    """Stand in for a tool's function, which is never called."""


def _publish_nothing(agent_id: str, turn_id: str, kind: str, data: dict[str, Any]) -> None:
    """Show nobody: a replay has no watchers."""


async def replay(database: Database, record: TurnRecord, entries: list[Entry]) -> Replay:
    """Run a turn again and compare what it writes with what it wrote then."""
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
            outcome, written = await _run(scratch, agent, record, entries)
        finally:
            await scratch.close()
    differences = tuple(_differences(entries, written))
    text = outcome.text if outcome.state is TurnState.DONE else record.error or outcome.text
    return Replay(record.id, not differences, differences, text)


async def _lay_out(tx: Connection, agent: Agent, record: TurnRecord, entries: list[Entry]) -> None:
    """Put the agent as it stood before the turn, and the message, in the scratch database."""
    limits = replace(agent.limits, seconds=86_400.0)
    await agents.create(tx, "replay", replace(agent, limits=limits))
    await tx.run("UPDATE agents SET length = ? WHERE id = ?", (record.first_seq - 1, agent.id))
    await inbox.put(
        tx,
        agent.id,
        "msg_" + record.id.partition("_")[2],
        kind="message",
        channel=record.channel,
        body=entries[0].body,
        at=entries[0].at,
    )


async def _run(
    scratch: Database, agent: Agent, record: TurnRecord, entries: list[Entry]
) -> tuple[Outcome, list[Entry]]:
    model = _RecordedModel(entries)
    means = Means(
        database=scratch,
        toolbox=_RecordedTools(entries),
        model_for=lambda name: (model, name),
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


def _differences(recorded: list[Entry], written: list[Entry]) -> Iterator[str]:
    then = {entry.key: entry for entry in recorded if entry.kind in WIRE_KINDS}
    now = {entry.key: entry for entry in written if entry.kind in WIRE_KINDS}
    for key in then | now:
        if key not in now:
            yield f"{key}: recorded, but the replay did not come to it."
        elif key not in then:
            yield f"{key}: new in the replay."
        elif then[key].body != now[key].body:
            yield f"{key}: other text than recorded."
