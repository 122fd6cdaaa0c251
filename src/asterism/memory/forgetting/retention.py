"""Retention: what has grown too old is deleted, in small transactions that may be interrupted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from typing import Any

import orjson

from asterism.memory.forgetting.blocks import end_pasts
from asterism.memory.forgetting.columns import TABLES
from asterism.memory.forgetting.redaction import FORGOTTEN
from asterism.memory.forgetting.removal import EMPTIED_META, emptied_body
from asterism.store import forgetting as store
from asterism.store import search_index
from asterism.store.database import Connection, Database
from asterism.times import DAY
from asterism.types.turns import images_in

_BATCH = 200


class RetentionKind(StrEnum):
    """What a rule is about."""

    MESSAGES = "messages"
    """What was said in turns that have ended; the journal keeps its numbers."""
    PASSAGES = "passages"
    """Passages of archives; those of documents go with their files."""
    SUMMARIES = "summaries"
    BLOBS = "blobs"
    """Images that no message names any more."""
    HISTORY = "block history"
    """What blocks said before and do not say any more."""
    OUTBOX = "outbox"
    """What was sent or given up."""
    NOTICES = "notices"
    CHARGES = "charges"
    """Single charges; the totals stay."""


@dataclass(frozen=True, slots=True)
class RetentionRule:
    """Delete what is of a kind and older than so many days."""

    kind: RetentionKind
    days: float
    agent_id: str | None = None
    tag: str | None = None
    """Passages only."""
    trust: str | None = None
    """Messages, passages and summaries only."""


@dataclass(frozen=True, slots=True)
class RetentionResult:
    """What was deleted."""

    counts: dict[str, int] = field(default_factory=dict[str, int])
    """By kind."""
    agents: tuple[str, ...] = ()
    """Agents whose memory must be dropped where a process holds it."""
    unreached: tuple[str, ...] = ()
    """What could not be rewritten yet, in sentences."""


async def enforce_retention(
    database: Database, constellation: str, rules: Sequence[RetentionRule], now: int
) -> RetentionResult:
    """Delete what the rules want to be gone; nothing is done twice, so it may be interrupted."""
    counts: Counter[str] = Counter()
    agents: set[str] = set()
    for rule in sorted(rules, key=lambda rule: rule.kind is RetentionKind.BLOBS):
        before = now - int(rule.days * DAY)
        if rule.kind is RetentionKind.HISTORY:
            found = await end_pasts(database, constellation, rule.agent_id, before)
            counts[rule.kind] += sum(found.places.values())
            continue
        spared = (
            await _named_images(database) if rule.kind is RetentionKind.BLOBS else frozenset[str]()
        )
        after = ""
        while True:
            step = _Step(constellation, rule, before, after, spared)
            done = await database.write(partial(_STEPS[rule.kind], step=step))
            counts[rule.kind] += done.count
            agents |= done.agents
            if done.last is None:
                break
            after = done.last
    left: list[str] = []
    if +counts:
        touched = sorted(agents)
        await database.write(lambda tx: store.note_memory(tx, touched))
        left = await database.scrub()
    return RetentionResult(dict(+counts), tuple(sorted(agents)), tuple(left))


@dataclass(frozen=True, slots=True)
class _Step:
    """One small transaction."""

    constellation: str
    rule: RetentionRule
    before: int
    after: str
    spared: frozenset[str]

    def where(self, table: str, *conditions: str) -> tuple[str, tuple[Any, ...]]:
        """Return the condition on rows that are of the rule's agent and trust."""
        rule, whose = self.rule, TABLES[table].whose
        parts = [*conditions, whose.format(at="")] if whose else list(conditions)
        values: list[Any] = [self.before, *([self.constellation] if whose else ())]
        if rule.agent_id is not None:
            parts.append("archive_id = ?" if table == "passages" else "agent_id = ?")
            values.append(rule.agent_id)
        if rule.trust is not None:
            # A turn without a trust was the owner's.
            parts.append("COALESCE(trust, 'owner') = ?")
            values.append(rule.trust)
        return " AND ".join(parts), tuple(values)


@dataclass(frozen=True, slots=True)
class _Done:
    count: int
    last: str | None
    """Where the next step begins; None: there is none."""
    agents: set[str] = field(default_factory=set[str])


async def _page(
    tx: Connection, step: _Step, table: str, key: str, columns: Sequence[str], *conditions: str
) -> tuple[list[Any], str | None]:
    where, values = step.where(table, *conditions)
    rows = await store.page(
        tx, table, (key,), columns, where=where, values=values, after=(step.after,), limit=_BATCH
    )
    return rows, rows[-1][0] if len(rows) == _BATCH else None


# -- kinds -------------------------------------------------------------------------------------


async def _messages(tx: Connection, step: _Step) -> _Done:
    turns, last = await _page(
        tx, step, "turns", "id", ("agent_id", "first_seq", "last_seq"), "ended_at < ?"
    )
    count = 0
    agents: set[str] = set()
    for turn_id, agent_id, first, end in turns:
        rows = await tx.all(
            "SELECT seq, kind, body FROM entries WHERE agent_id = ? AND seq BETWEEN ? AND ?"
            " AND turn_id = ? AND (meta IS NULL OR meta <> ?)",
            (agent_id, first, end, turn_id, EMPTIED_META),
        )
        await search_index.drop(tx, search_index.JOURNAL, agent_id, [row[0] for row in rows])
        for seq, kind, body in rows:
            new = {"body": emptied_body(kind, body), "meta": EMPTIED_META}
            await store.change(tx, "entries", {"agent_id": agent_id, "seq": seq}, {}, new)
        if rows:
            await store.remove(tx, "approvals", "turn_id = ?", (turn_id,))
            await store.set_column(tx, "turns", "error", None, "id = ?", (turn_id,))
            agents.add(agent_id)
        count += len(rows)
    return _Done(count, last, agents)


async def _passages(tx: Connection, step: _Step) -> _Done:
    rows, last = await _page(
        tx,
        step,
        "passages",
        "id",
        ("archive_id", "tags", "number"),
        "known_from < ?",
        "document IS NULL",
    )
    if step.rule.tag is not None:
        rows = [row for row in rows if step.rule.tag in orjson.loads(row[2])]
    for row in rows:
        if row[3] is not None:
            await search_index.drop(tx, search_index.ARCHIVE, row[1], [row[3]])
        await store.remove(tx, "passage_edits", "passage_id = ?", row[:1])
        await store.remove(tx, "passages", "id = ?", row[:1])
    return _Done(len(rows), last, {row[1] for row in rows})


async def _summaries(tx: Connection, step: _Step) -> _Done:
    rows, last = await _page(tx, step, "summaries", "id", ("agent_id", "text"), "at < ?")
    rows = [row for row in rows if row[2] != FORGOTTEN]
    for row in rows:
        await store.set_column(tx, "summaries", "text", FORGOTTEN, "id = ?", row[:1])
        await store.remove(tx, "epochs", "summary = ?", row[:1])
    return _Done(len(rows), last, {row[1] for row in rows})


async def _blobs(tx: Connection, step: _Step) -> _Done:
    rows, last = await _page(tx, step, "blobs", "id", (), "created_at < ?")
    gone = [row for row in rows if row[0] not in step.spared]
    for row in gone:
        await store.remove(tx, "blobs", "id = ?", row)
    return _Done(len(gone), last)


async def _outbox(tx: Connection, step: _Step) -> _Done:
    settled = "state IN ('sent', 'dead')"
    return await _removed(tx, step, "outbox", "key", "created_at < ?", settled)


async def _notices(tx: Connection, step: _Step) -> _Done:
    return await _removed(tx, step, "notices", "id", "at < ?")


async def _charges(tx: Connection, step: _Step) -> _Done:
    return await _removed(tx, step, "charges", "id", "at < ?", "state <> 'reserved'")


async def _removed(tx: Connection, step: _Step, table: str, key: str, *conditions: str) -> _Done:
    rows, last = await _page(tx, step, table, key, (), *conditions)
    for row in rows:
        await store.remove(tx, table, f"{key} = ?", row)
    return _Done(len(rows), last)


_STEPS = {
    RetentionKind.MESSAGES: _messages,
    RetentionKind.PASSAGES: _passages,
    RetentionKind.SUMMARIES: _summaries,
    RetentionKind.BLOBS: _blobs,
    RetentionKind.OUTBOX: _outbox,
    RetentionKind.NOTICES: _notices,
    RetentionKind.CHARGES: _charges,
}


async def _named_images(database: Database) -> frozenset[str]:
    """Return the images that a message names, whosever it is."""
    found: set[str] = set()
    for table, key in (("entries", ("agent_id", "seq")), ("inbox", ("agent_id", "arrival"))):
        after: Sequence[Any] | None = None
        while True:
            look = partial(store.page, table=table, key=key, columns=("body",), limit=_BATCH)
            rows = await database.read(partial(look, after=after))
            for row in rows:
                found.update(images_in(row[-1]))
            if len(rows) < _BATCH:
                break
            after = rows[-1][:2]
    return frozenset(found)
