"""Forgetting by id and by age.

By id: a passage, a message, a person, a source, a block or an agent. `RowRemover` works on one
place (the database, or a snapshot inside it) in one transaction. It works on the tables that are
there, since a snapshot may be of an older release. By age: `enforce_retention` deletes what is too
old, in small transactions that may be interrupted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import field
from enum import StrEnum
from functools import partial
from typing import Any

import orjson

from asterism.memory.blocks import EditRow
from asterism.memory.forgetting.blocks import Choice, drop_former_texts
from asterism.memory.forgetting.redaction import FORGOTTEN, MAX_LENGTH
from asterism.memory.forgetting.rows import TABLES, Columns, SweepResult
from asterism.records import dataclass
from asterism.store import forgetting as store
from asterism.store import search_index
from asterism.store.database import Connection, Database
from asterism.store.events import ANCHORED, home_chain
from asterism.store.events import EMPTIED as EMPTIED_BODIES
from asterism.store.forgetting import ForgetRequest
from asterism.times import DAY
from asterism.types.agents import Audience, message_id_for
from asterism.types.turns import (
    EntryKind,
    MessageMeta,
    images_in,
    message_wire,
    result_wire,
    text_of,
)

MIN_REPEATED_LENGTH = 24
"""A message of this length or more is also removed where it was repeated."""
EMPTIED_META = '{"forgotten":true}'
"""The metadata of an emptied entry."""
_EMPTY = FORGOTTEN


class RowRemover:
    """One place of a database, and what may be removed from it."""

    def __init__(self, tx: Connection, present: Columns, schema: str = "") -> None:
        self._tx = tx
        self._schema = schema
        self._present = present
        self._emptied: set[tuple[str, int]] = set()
        self.result = SweepResult()
        self.summaries: set[str] = set()
        """Those that were emptied, by id."""

    def has(self, table: str) -> bool:
        """Tell whether a table is there."""
        return f"{self._schema}{table}" in self._present

    async def remove(self, table: str, where: str, values: Sequence[Any]) -> None:
        """Remove rows of a table that is there, and count them."""
        if self.has(table):
            count = await store.remove(self._tx, f"{self._schema}{table}", where, values)
            if count:
                self.result.places[f"{self._schema}{table}"] += count

    async def ids(self, table: str, column: str, where: str, values: Sequence[Any]) -> list[Any]:
        """Return a column of rows, or nothing where there is no such table."""
        if not self.has(table):
            return []
        return await store.ids(self._tx, f"{self._schema}{table}", column, where, values)

    async def forget(self, ids: dict[str, tuple[str, ...]], request: ForgetRequest) -> None:
        """Remove all that is named by id, by kind."""
        by_kind = {
            "turns": self.turn,
            "persons": self.person,
            "passages": self.passage,
            "sources": self.source,
            "blocks": self.block,
            "agents": self.agent,
        }
        for kind, remove in by_kind.items():
            for id in ids.get(kind, ()):
                await remove(id)
        if self._emptied:
            await store.empty_events(self._tx, request, self._emptied, place=self._schema)
            self.result.places[f"{self._schema}events.body"] += len(self._emptied)

    async def turns_of(self, ids: dict[str, tuple[str, ...]]) -> frozenset[str]:
        """Return all turns that are to be forgotten, those of persons too."""
        turns = set(ids.get("turns", ()))
        for person_id in ids.get("persons", ()):
            turns.update(await self._turns_of(person_id, await self._accounts(person_id)))
        return frozenset(turns)

    async def texts_of(self, passages: Sequence[str], turns: Sequence[str]) -> tuple[str, ...]:
        """Return what passages and the messages of turns say, if it is long enough to be telling.

        Others may have repeated it word by word, such as a call that stored it.
        """
        texts: list[str] = []
        for passage_id in passages:
            texts += await store.ids(
                self._tx, f"{self._schema}passages", "text", "id = ?", (passage_id,)
            )
        for turn_id in turns:
            bodies = await store.ids(
                self._tx,
                f"{self._schema}entries",
                "body",
                "turn_id = ? AND kind IN ('message', 'reply')",
                (turn_id,),
            )
            texts += [_text_of(body) for body in bodies]
        return tuple(
            dict.fromkeys(text for text in texts if MIN_REPEATED_LENGTH <= len(text) <= MAX_LENGTH)
        )

    # -- passages ------------------------------------------------------------------------------

    async def passage(self, passage_id: str) -> None:
        """Remove a passage with its history."""
        own = "id = ? AND constellation = ?"
        values = (passage_id, self._tx.constellation)
        await self._remove_passages_from_index(own, values)
        self.result.agents.update(await self.ids("passages", "archive_id", own, values))
        if await self.ids("passages", "id", own, values):
            await self.remove("passage_edits", "passage_id = ?", (passage_id,))
        await self.remove("passages", own, values)

    async def source(self, source_id: str) -> None:
        """Remove a source with all that was read from it."""
        await self._archive(source_id)
        own = (source_id,)
        self.result.agents.update(await self.ids("source_agents", "agent_id", "source_id = ?", own))
        for table in ("documents", "source_agents"):
            await self.remove(table, "source_id = ?", own)
        await self.remove(
            "sources", "id = ? AND constellation = ?", (source_id, self._tx.constellation)
        )

    async def _remove_passages_from_index(self, where: str, values: Sequence[Any]) -> None:
        """Take passages out of the index of search."""
        if not self._indexed:
            return
        for archive_id, number in await self._tx.all(
            f"SELECT archive_id, number FROM passages WHERE number IS NOT NULL AND {where}",
            tuple(values),
        ):
            await search_index.drop(self._tx, search_index.ARCHIVE, archive_id, [number])

    @property
    def _indexed(self) -> bool:
        """Whether there is an index of search beside it; those of snapshots are emptied as such."""
        return not self._schema and self.has("search_indexes")

    async def _archive(self, archive_id: str) -> None:
        if self._indexed:
            await search_index.remove(self._tx, archive_id)
        if self.has("passages"):
            such = f"passage_id IN (SELECT id FROM {self._schema}passages WHERE archive_id = ?)"
            await self.remove("passage_edits", such, (archive_id,))
            await self.remove("passages", "archive_id = ?", (archive_id,))

    # -- blocks --------------------------------------------------------------------------------

    async def block(self, block_id: str) -> None:
        """Remove a block with its history."""
        result = self.result
        own = "id = ? AND constellation = ?"
        owners = await self.ids("blocks", "owner_id", own, (block_id, self._tx.constellation))
        if not owners:
            return
        agents = await self.ids("block_agents", "agent_id", "block_id = ?", (block_id,))
        result.agents.update(agents)
        if owners == [""]:
            owners = await self.ids("agents", "id", "constellation = ?", (self._tx.constellation,))
        result.agents.update(owners)
        for table in ("block_edits", "block_eras", "block_replicas", "block_agents"):
            await self.remove(table, "block_id = ?", (block_id,))
        await self.remove("blocks", "id = ?", (block_id,))

    # -- turns ---------------------------------------------------------------------------------

    async def turn(self, turn_id: str) -> None:
        """Empty all that was said in a turn, and remove what was written because of it."""
        tx, at, result = self._tx, self._schema, self.result
        rows = await tx.all(
            f"SELECT agent_id, seq, kind, body FROM {at}entries WHERE turn_id = ?"
            f" AND agent_id IN (SELECT id FROM {at}agents WHERE constellation = ?)",
            (turn_id, self._tx.constellation),
        )
        if self._indexed:
            await self._remove_entries_from_index([(row[0], row[1]) for row in rows])
        for agent_id, seq, kind, body in rows:
            key = {"agent_id": agent_id, "seq": seq}
            new = {"body": emptied_body(kind, body), "meta": EMPTIED_META}
            await store.change(tx, f"{at}entries", key, {}, new)
            result.agents.add(agent_id)
        if rows:
            result.places[f"{at}entries"] += len(rows)
        await self._around_turn(turn_id, sorted({(row[0], row[1]) for row in rows}))

    async def _remove_entries_from_index(self, entries: Sequence[tuple[str, int]]) -> None:
        gone: dict[str, list[int]] = {}
        for agent_id, seq in entries:
            gone.setdefault(agent_id, []).append(seq)
        for agent_id, numbers in gone.items():
            await search_index.drop(self._tx, search_index.JOURNAL, agent_id, numbers)

    async def _around_turn(self, turn_id: str, entries: list[tuple[str, int]]) -> None:
        own = (turn_id,)
        agent_ids = sorted({agent_id for agent_id, _ in entries})
        condition = f" AND agent_id IN ({', '.join('?' * len(agent_ids))})"
        for table in ("approvals", "outbox", "notices") if agent_ids else ():
            await self.remove(table, f"turn_id = ?{condition}", (*own, *agent_ids))
        await self._empty_events("turn_id = ?", own)
        message_id = message_id_for(turn_id)
        await self.remove("inbox", "id = ? AND kind = 'message'", (message_id,))
        if self.has("turns"):
            await store.set_column(
                self._tx, f"{self._schema}turns", "error", None, "id = ? AND error IS NOT NULL", own
            )
        such = "turn_id = ? AND constellation = ?"
        for passage_id in await self.ids("passages", "id", such, (*own, self._tx.constellation)):
            await self.passage(passage_id)
        for agent_id, seq in entries:
            await self._summaries_of(agent_id, seq)

    async def _summaries_of(self, agent_id: str, seq: int) -> None:
        """Empty the summaries that stand for an entry, and the prefixes that show them."""
        such = "agent_id = ? AND first_seq <= ? AND last_seq >= ?"
        for summary_id in await self.ids("summaries", "id", such, (agent_id, seq, seq)):
            if summary_id in self.summaries:
                continue
            self.summaries.add(summary_id)
            await store.set_column(
                self._tx, f"{self._schema}summaries", "text", _EMPTY, "id = ?", (summary_id,)
            )
            self.result.places[f"{self._schema}summaries"] += 1
            await self.remove("epochs", "agent_id = ? AND summary = ?", (agent_id, summary_id))

    # -- agents --------------------------------------------------------------------------------

    async def agent(self, agent_id: str) -> None:
        """Remove an agent with everything that it has."""
        own = (agent_id,)
        if not await self.ids(
            "agents", "id", "id = ? AND constellation = ?", (agent_id, self._tx.constellation)
        ):
            return
        await self._archive(agent_id)
        for block_id in await self.ids("blocks", "id", "owner_id = ?", own):
            await self.block(block_id)
        for table in _OF_AGENT:
            await self.remove(table, "agent_id = ?", own)
        await self._empty_events("chain = ? OR agent_id = ?", (agent_id, agent_id))
        await self.remove("agents", "id = ?", own)
        self.result.agents.add(agent_id)

    async def _events_about(self, person_id: str) -> None:
        """Take what events say that was done to a person, such as which accounts are theirs."""
        if not self.has("events"):
            return
        rows = await self._tx.all(
            f"SELECT number, body FROM {self._schema}events WHERE chain = ? AND body IS NOT NULL"
            " AND kind LIKE 'person.%'",
            (home_chain(self._tx.constellation),),
        )
        for number, body in rows:
            if orjson.loads(body).get("person") == person_id:
                where = "chain = ? AND number = ?"
                await self._empty_events(where, (home_chain(self._tx.constellation), number))

    async def _empty_events(self, where: str, values: Sequence[Any]) -> None:
        """Take what events say; that there was one, and when, stays, and so does the chain."""
        if self.has("events"):
            rows = await self._tx.all(
                f"SELECT chain, number FROM {self._schema}events WHERE body IS NOT NULL"
                f" AND kind NOT IN ('{ANCHORED}', '{EMPTIED_BODIES}') AND ({where})",
                tuple(values),
            )
            self._emptied.update((row[0], row[1]) for row in rows)

    # -- persons -------------------------------------------------------------------------------

    async def person(self, person_id: str) -> None:
        """Remove the messages of a person, memories only for them, and the person."""
        who = (self._tx.constellation, person_id)
        accounts = await self._accounts(person_id)
        names = await self.ids("persons", "name", "constellation = ? AND id = ?", who)
        for turn_id in await self._turns_of(person_id, accounts):
            await self.turn(turn_id)
        authors = [f"person:{name}" for name in (*names, person_id)]
        for table, kind in (("passages", self.passage), ("blocks", self.block)):
            for row_id in await self._only_for(table, person_id):
                await kind(row_id)
        for author in authors:
            such = "author = ? AND constellation = ?"
            for passage_id in await self.ids(
                "passages", "id", such, (author, self._tx.constellation)
            ):
                await self.passage(passage_id)
        for summary_id in await self._only_for("summaries", person_id):
            await self.remove("epochs", "summary = ?", (summary_id,))
            await self.remove("summaries", "id = ?", (summary_id,))
        await self._who_they_are(person_id, accounts)

    async def _accounts(self, person_id: str) -> list[tuple[str, str]]:
        if not self.has("accounts"):
            return []
        rows = await self._tx.all(
            f"SELECT channel, sender FROM {self._schema}accounts"
            " WHERE constellation = ? AND person_id = ?",
            (self._tx.constellation, person_id),
        )
        return [(row[0], row[1]) for row in rows]

    async def _turns_of(self, person_id: str, accounts: Sequence[tuple[str, str]]) -> list[str]:
        """Return the turns that a person's messages opened, and those only they may see."""
        turns = set(await self._only_for("turns", person_id))
        known = {(channel, sender) for channel, sender in accounts}
        rows = await self._tx.all(
            f"SELECT e.turn_id, t.channel, e.meta FROM {self._schema}entries e"
            f" JOIN {self._schema}turns t ON t.id = e.turn_id"
            " WHERE e.kind = 'message' AND e.meta LIKE '%\"sender\"%' AND e.agent_id IN"
            f" (SELECT id FROM {self._schema}agents WHERE constellation = ?)",
            (self._tx.constellation,),
        )
        for turn_id, channel, meta in rows:
            if (channel, MessageMeta.from_json(meta).sender) in known:
                turns.add(turn_id)
        return sorted(turns)

    async def _only_for(self, table: str, person_id: str) -> list[str]:
        """Return the rows that nobody but the owner and this person may see."""
        if "audience" not in self._present.get(f"{self._schema}{table}", {}):
            return []
        condition = (
            f"agent_id IN (SELECT id FROM {self._schema}agents WHERE constellation = ?)"
            if table in ("turns", "summaries")
            else "constellation = ?"
        )
        rows = await self._tx.all(
            f"SELECT id, audience FROM {self._schema}{table} WHERE {condition} AND audience LIKE ?",
            (self._tx.constellation, f"%person:{person_id}%"),
        )
        alone = frozenset({f"person:{person_id}"})
        return sorted(row[0] for row in rows if alone in Audience.read(row[1]).clauses)

    async def _who_they_are(self, person_id: str, accounts: Sequence[tuple[str, str]]) -> None:
        who = (self._tx.constellation, person_id)
        for channel, sender in accounts:
            named = f"{channel}:{sender}"
            if self.has("charges"):
                await store.set_column(
                    self._tx,
                    f"{self._schema}charges",
                    "person",
                    None,
                    "constellation = ? AND person = ?",
                    (self._tx.constellation, named),
                )
            await self.remove(
                "totals",
                "constellation = ? AND scope = ?",
                (self._tx.constellation, f"person:{named}"),
            )
            condition = f"agent_id IN (SELECT id FROM {self._schema}agents WHERE constellation = ?)"
            await self.remove(
                "inbox",
                f"channel = ? AND sender = ? AND {condition}",
                (channel, sender, self._tx.constellation),
            )
        await self._events_about(person_id)
        for table in ("accounts", "room_members"):
            await self.remove(table, "constellation = ? AND person_id = ?", who)
        await self.remove("persons", "constellation = ? AND id = ?", who)


def edit_filter(turns: frozenset[str], persons: Sequence[str]) -> Choice:
    """Return which edits of blocks go: those made in turns, and what only persons may see."""
    alone = [frozenset({f"person:{person_id}"}) for person_id in persons]

    def chosen(edit: EditRow) -> bool:
        if edit.turn_id in turns:
            return True
        if not alone:
            return False
        clauses = Audience.read(orjson.loads(edit.source)["audience"]).clauses
        return any(clause in clauses for clause in alone)

    return chosen


_OF_AGENT = (
    *("accepted", "inbox", "turns", "entries", "approvals", "outbox", "schedules", "notices"),
    *("crashes", "summaries", "epochs", "block_agents", "source_agents"),
)


def emptied_body(kind: str, body: bytes) -> bytes:
    """Return a short wire form that replaces a forgotten entry.

    A call keeps its id, and a result keeps the id of its call, since models refuse a call without a
    result. The arguments of a call are gone.
    """
    try:
        message: Any = orjson.loads(body)
    except orjson.JSONDecodeError:
        return _EMPTY.encode()
    match kind:
        case EntryKind.MESSAGE:
            return message_wire("user", _EMPTY)
        case EntryKind.RESULT:
            return result_wire(message["tool_call_id"], _EMPTY)
        case EntryKind.REPLY:
            short: dict[str, Any] = {"role": "assistant", "content": _EMPTY}
            if calls := message.get("tool_calls"):
                short["tool_calls"] = [
                    {**call, "function": {"name": call["function"]["name"], "arguments": "{}"}}
                    for call in calls
                ]
            return orjson.dumps(short)
        case _:
            return _EMPTY.encode()


def _text_of(body: bytes) -> str:
    try:
        return text_of(body)
    except (orjson.JSONDecodeError, KeyError, AttributeError):
        return ""


# -- retention -------------------------------------------------------------------------------------

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
    """Former texts of blocks."""
    OUTBOX = "outbox"
    """Messages that were sent or given up."""
    NOTICES = "notices"
    CHARGES = "charges"
    """Single charges; the totals stay."""


@dataclass(frozen=True, slots=True)
class RetentionRule:
    """Delete rows of one kind that are older than some days."""

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
    """Agents whose memory a process must drop from its caches."""
    unreached: tuple[str, ...] = ()
    """Sentences on blocks that could not be rewritten yet."""
    rules: int = 0
    """How many rules there are."""


async def enforce_retention(
    database: Database, rules: Sequence[RetentionRule], now: int
) -> RetentionResult:
    """Delete what the rules want to be gone; nothing is done twice, so it may be interrupted."""
    counts: Counter[str] = Counter()
    agents: set[str] = set()
    for rule in sorted(rules, key=lambda rule: rule.kind is RetentionKind.BLOBS):
        before = now - int(rule.days * DAY)
        if rule.kind is RetentionKind.HISTORY:
            result = await drop_former_texts(database, rule.agent_id, before)
            counts[rule.kind] += sum(result.places.values())
            continue
        spared = (
            await _named_images(database) if rule.kind is RetentionKind.BLOBS else frozenset[str]()
        )
        after = ""
        while True:
            step = _Step(database.constellation, rule, before, after, spared)
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
    return RetentionResult(dict(+counts), tuple(sorted(agents)), tuple(left), len(rules))


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
        rule, condition = self.rule, TABLES[table].condition
        parts = [*conditions, condition.format(at="")] if condition else list(conditions)
        values: list[Any] = [self.before, *([self.constellation] if condition else ())]
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
    # The descriptions of tools are kept as long as the replies that refer to them.
    images = "type <> 'application/json'"
    rows, last = await _page(tx, step, "blobs", "id", (), "created_at < ?", images)
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
    """Return the images that the messages of any agent name."""
    images: set[str] = set()
    for table, key in (("entries", ("agent_id", "seq")), ("inbox", ("agent_id", "arrival"))):
        after: Sequence[Any] | None = None
        while True:
            look = partial(store.page, table=table, key=key, columns=("body",), limit=_BATCH)
            rows = await database.read(partial(look, after=after))
            for row in rows:
                images.update(images_in(row[-1]))
            if len(rows) < _BATCH:
                break
            after = rows[-1][:2]
    return frozenset(images)
