"""The journal at rest: turns, and the entries that each agent's log is made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import orjson

from asterism.errors import LaneLost
from asterism.records import dataclass
from asterism.store.database import OF_OWN_AGENT, Connection, Row, marks
from asterism.types.agents import Blob, Trust
from asterism.types.turns import Entry, EntryKind, TurnRecord, TurnState, Usage, trust_of


@dataclass(frozen=True, slots=True)
class Claim:
    """The right to write an agent's journal. A later claim of the same lane voids it."""

    agent_id: str
    fence: int


@dataclass(frozen=True, slots=True)
class Draft:
    """An entry that is not written yet."""

    kind: EntryKind
    key: str
    body: bytes
    at_ms: int
    meta: str | None = None

    def in_epoch(self, number: int) -> Draft:
        """Return the entry with the epoch that its model was asked in, if it is a reply."""
        if self.kind is not EntryKind.REPLY or self.meta is None:
            return self
        stored: dict[str, Any] = orjson.loads(self.meta)
        return replace(self, meta=orjson.dumps(stored | {"epoch": number}).decode())

    def with_trust(self, trust: Trust) -> Draft:
        """Return the entry with its own trust, independent of what its turn reads."""
        stored: dict[str, Any] = orjson.loads(self.meta) if self.meta else {}
        return replace(self, meta=orjson.dumps(stored | {"trust": trust.value}).decode())


_ENTRY = "seq, turn_id, kind, key, body, meta, at"
_TURN = (
    "id, agent_id, state, channel, reply_to, first_seq, last_seq, opened_at, ended_at,"
    " tokens_in, tokens_out, tokens_cached, error, audience, trust, arrived_at, stopping"
)
_WRITE = (
    "INSERT INTO entries (agent_id, seq, turn_id, kind, key, body, meta, at)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
)
_OPEN = f"INSERT INTO turns ({_TURN}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"


def _entry(row: Row) -> Entry:
    return Entry(row[0], row[1], EntryKind(row[2]), row[3], row[4], row[5], row[6])


def _turn(row: Row) -> TurnRecord:
    return TurnRecord(
        id=row[0],
        agent_id=row[1],
        state=TurnState(row[2]),
        channel=row[3],
        reply_to=row[4],
        first_seq=row[5],
        last_seq=row[6],
        opened_at_ms=row[7],
        ended_at_ms=row[8],
        usage=Usage(row[9], row[10], row[11]),
        error=row[12],
        audience=row[13],
        trust=row[14],
        arrived_at_ms=row[15],
        stopping=row[16],
    )


async def claim(tx: Connection, agent_id: str) -> tuple[Claim, int, int, bool] | None:
    """Take over a lane and void every earlier claim.

    Return it with the agent's version, how often what it sees of memory has changed, and whether a
    process has ended abnormally with one of its turns under way.
    """
    row = await tx.one(
        "UPDATE agents SET fence = fence + 1 WHERE id = ? RETURNING fence, version, memory,"
        " EXISTS (SELECT 1 FROM crashes c WHERE c.agent_id = agents.id)",
        (agent_id,),
    )
    return (Claim(agent_id, row[0]), row[1], row[2], bool(row[3])) if row else None


async def standing(tx: Connection, agent_id: str) -> tuple[Claim, int] | None:
    """Return the claim in force and the journal's length, without voiding anything."""
    row = await tx.one("SELECT fence, length FROM agents WHERE id = ?", (agent_id,))
    return (Claim(agent_id, row[0]), row[1]) if row else None


async def append(
    tx: Connection, claim: Claim, length: int, turn_id: str, drafts: Sequence[Draft]
) -> bool:
    """Append entries to a journal that has `length` entries.

    False means that these very entries are there already: a commit whose confirmation was lost.
    """
    row = await tx.one(
        "UPDATE agents SET length = length + ? WHERE id = ? AND fence = ? AND length = ?"
        " RETURNING length",
        (len(drafts), claim.agent_id, claim.fence, length),
    )
    if row is None:
        if drafts and await _is_there(tx, claim, length + 1, turn_id, drafts[0].key):
            return False
        raise LaneLost(f"The lane of {claim.agent_id} was taken over; this turn goes on elsewhere.")
    agent_id = claim.agent_id
    await tx.run_many(
        _WRITE,
        [
            (
                agent_id,
                seq,
                turn_id,
                draft.kind.value,
                draft.key,
                draft.body,
                draft.meta,
                draft.at_ms,
            )
            for seq, draft in enumerate(drafts, length + 1)
        ],
    )
    return True


async def append_ended(
    tx: Connection, claim: Claim, length: int, turns: Sequence[tuple[TurnRecord, Sequence[Draft]]]
) -> None:
    """Append ended turns in order to a journal of `length` entries."""
    agent_id = claim.agent_id
    drafts = [(record.id, draft) for record, entries in turns for draft in entries]
    row = await tx.one(
        "UPDATE agents SET length = length + ? WHERE id = ? AND fence = ? AND length = ?"
        " RETURNING length",
        (len(drafts), agent_id, claim.fence, length),
    )
    if row is None:
        raise LaneLost(f"The lane of {agent_id} was taken over; nothing was appended.")
    await tx.run_many(
        _WRITE,
        [
            (
                agent_id,
                seq,
                turn_id,
                draft.kind.value,
                draft.key,
                draft.body,
                draft.meta,
                draft.at_ms,
            )
            for seq, (turn_id, draft) in enumerate(drafts, length + 1)
        ],
    )
    await tx.run_many(_OPEN, [_opened(record, record.last_seq) for record, _ in turns])


async def _is_there(tx: Connection, claim: Claim, seq: int, turn_id: str, key: str) -> bool:
    row = await tx.one(
        "SELECT e.turn_id, e.key, a.fence FROM entries e JOIN agents a ON a.id = e.agent_id"
        " WHERE e.agent_id = ? AND e.seq = ?",
        (claim.agent_id, seq),
    )
    return row is not None and tuple(row) == (turn_id, key, claim.fence)


async def open_turn(tx: Connection, turn: TurnRecord, last_seq: int) -> None:
    """Store a turn that begins and whose last entry so far is `last_seq`."""
    await tx.run(_OPEN, _opened(turn, last_seq))


def _opened(turn: TurnRecord, last_seq: int) -> Row:
    return (
        turn.id,
        turn.agent_id,
        turn.state.value,
        turn.channel,
        turn.reply_to,
        turn.first_seq,
        last_seq,
        turn.opened_at_ms,
        turn.ended_at_ms,
        turn.usage.input,
        turn.usage.output,
        turn.usage.cached,
        turn.error,
        turn.audience,
        turn.trust,
        turn.arrived_at_ms,
        turn.stopping,
    )


async def update_turn(tx: Connection, turn: TurnRecord, last_seq: int) -> None:
    """Store where a turn stands now, with its last entry; how it was opened stays as it is."""
    await tx.run(
        "UPDATE turns SET state = ?, last_seq = ?, tokens_in = ?, tokens_out = ?,"
        " tokens_cached = ?, ended_at = ?, error = ?, audience = ?, trust = ? WHERE id = ?",
        (
            turn.state.value,
            last_seq,
            turn.usage.input,
            turn.usage.output,
            turn.usage.cached,
            turn.ended_at_ms,
            turn.error,
            turn.audience,
            turn.trust,
            turn.id,
        ),
    )


async def stop_turn(tx: Connection, turn_id: str, reason: str) -> bool:
    """Keep an open turn from going on after an interruption; False if it is not open."""
    changed = await tx.run(
        "UPDATE turns SET stopping = COALESCE(stopping, ?) WHERE id = ? AND state = 'open'"
        f" AND {OF_OWN_AGENT}",
        (reason, turn_id, tx.constellation),
    )
    return changed > 0


async def stop_unfinished(tx: Connection, turn_id: str, reason: str) -> TurnRecord | None:
    """Keep a turn from going on, also one that waits for a person; None if it has ended."""
    # One statement, so that a turn that is taken up at the same moment does not slip through.
    row = await tx.one(
        "UPDATE turns SET stopping = COALESCE(stopping, ?) WHERE id = ? AND ended_at IS NULL"
        f" AND {OF_OWN_AGENT} RETURNING {_TURN}",
        (reason, turn_id, tx.constellation),
    )
    return _turn(row) if row else None


async def end_stopped(tx: Connection, record: TurnRecord, reason: str, at: int) -> None:
    """End a turn that waits for a person and whose lane never takes it up again."""
    await tx.run(
        "UPDATE turns SET state = 'stopped', ended_at = ?, error = ?"
        " WHERE id = ? AND state = 'parked'",
        (at, reason, record.id),
    )


async def turn(tx: Connection, turn_id: str) -> TurnRecord | None:
    """Return a turn."""
    row = await tx.one(
        f"SELECT {_TURN} FROM turns WHERE id = ? AND {OF_OWN_AGENT}", (turn_id, tx.constellation)
    )
    return _turn(row) if row else None


async def turn_of(tx: Connection, agent_id: str, turn_id: str) -> TurnRecord | None:
    """Return a turn of an agent of any constellation: a lane works for all of them."""
    row = await tx.one(
        f"SELECT {_TURN} FROM turns WHERE id = ? AND agent_id = ?", (turn_id, agent_id)
    )
    return _turn(row) if row else None


async def find_open_turn(tx: Connection, agent_id: str) -> TurnRecord | None:
    """Return the turn of an agent that is open; there is at most one."""
    # With an order, SQLite would read all turns of the agent, not the index of open ones.
    row = await tx.one(
        f"SELECT {_TURN} FROM turns WHERE agent_id = ? AND state = 'open'", (agent_id,)
    )
    return _turn(row) if row else None


async def unfinished_turns(tx: Connection, agent_id: str) -> list[TurnRecord]:
    """Return the turns of an agent that are open or wait for a person, the oldest first."""
    # With an order, SQLite would read all turns of the agent, not the index of unfinished ones.
    rows = await tx.all(
        f"SELECT {_TURN} FROM turns WHERE agent_id = ? AND ended_at IS NULL", (agent_id,)
    )
    return sorted(map(_turn, rows), key=lambda turn: turn.first_seq)


async def unfinished(tx: Connection, agent_id: str) -> list[str]:
    """Return the turns of an agent that go on later: interrupted, or waiting for a person."""
    rows = await tx.all("SELECT id FROM turns WHERE agent_id = ? AND ended_at IS NULL", (agent_id,))
    return [row[0] for row in rows]


async def end_of_past(tx: Connection, agent_id: str) -> int:
    """Return the first entry of a journal that belongs to a turn under way, or comes next."""
    row = await tx.one(
        "SELECT COALESCE((SELECT MIN(first_seq) FROM turns"
        " WHERE agent_id = ? AND ended_at IS NULL), length + 1) FROM agents WHERE id = ?",
        (agent_id, agent_id),
    )
    return row[0] if row else 1


async def all_interrupted(tx: Connection) -> list[TurnRecord]:
    """Return the open turns of all agents."""
    rows = await tx.all(
        f"SELECT {_TURN} FROM turns WHERE state = 'open'"
        " AND agent_id IN (SELECT id FROM agents WHERE constellation = ?)",
        (tx.constellation,),
    )
    return [_turn(row) for row in rows]


async def turns_of(
    tx: Connection, agent_id: str | None, limit: int, before: TurnRecord | None = None
) -> list[TurnRecord]:
    """Return the latest turns, of one agent or of all, newest first.

    Args:
        tx: A transaction.
        agent_id: Whose; None: of all agents.
        limit: How many at most.
        before: The last turn of the page before.
    """
    columns = ", ".join(f"t.{name.strip()}" for name in _TURN.split(","))
    such: list[str] = ["a.constellation = ?"]
    values: list[object] = [tx.constellation]
    if agent_id:
        such.append("t.agent_id = ?")
        values.append(agent_id)
    if before is not None and agent_id:
        such.append("t.first_seq < ?")
        values.append(before.first_seq)
    elif before is not None:
        such.append("(t.opened_at, t.id) < (?, ?)")
        values += [before.opened_at_ms, before.id]
    newest_first = "t.first_seq DESC" if agent_id else "t.opened_at DESC, t.id DESC"
    rows = await tx.all(
        f"SELECT {columns} FROM turns t JOIN agents a ON a.id = t.agent_id"
        f" WHERE {' AND '.join(such)} ORDER BY {newest_first} LIMIT ?",
        (*values, limit),
    )
    return [_turn(row) for row in rows]


async def count_turns(tx: Connection, agent_id: str) -> int:
    """Return how many turns an agent has had."""
    row = await tx.one("SELECT COUNT(*) FROM turns WHERE agent_id = ?", (agent_id,))
    return int(row[0]) if row else 0


async def ended_since(tx: Connection, agent_id: str | None, since: int) -> list[TurnRecord]:
    """Return the turns of an agent that have ended since a time, in the order of their ends.

    Args:
        tx: The transaction.
        agent_id: The agent; None for all.
        since: The time, in milliseconds since 1970.
    """
    whose, agent = ("agent_id = ?", (agent_id,))
    if agent_id is None:
        whose, agent = (
            "agent_id IN (SELECT id FROM agents WHERE constellation = ?)",
            (tx.constellation,),
        )
    rows = await tx.all(
        f"SELECT {_TURN} FROM turns WHERE {whose} AND ended_at >= ?"
        " ORDER BY ended_at, agent_id, first_seq",
        (*agent, since),
    )
    return [_turn(row) for row in rows]


_MAX_LOOKED_AT = 20_000
"""How many of an agent's latest entries are looked through for a message."""
_AT_ONCE = 200


async def turns_with_messages(
    tx: Connection, agent_id: str, bodies: Sequence[bytes]
) -> list[tuple[bytes, str]]:
    """Return which of these messages an agent's latest turns have, and in which; newest first."""
    found: list[tuple[int, bytes, str]] = []
    for start in range(0, len(bodies), _AT_ONCE):
        some = bodies[start : start + _AT_ONCE]
        rows = await tx.all(
            "SELECT seq, body, turn_id FROM entries WHERE agent_id = ? AND kind = 'message'"
            " AND seq > (SELECT length FROM agents WHERE id = ? AND constellation = ?) - ?"
            f" AND body IN ({marks(len(some))})",
            (agent_id, agent_id, tx.constellation, _MAX_LOOKED_AT, *some),
        )
        found += [(int(row[0]), bytes(row[1]), row[2]) for row in rows]
    return [(body, turn_id) for _, body, turn_id in sorted(found, reverse=True)]


async def entries_of(tx: Connection, record: TurnRecord) -> list[Entry]:
    """Return the entries of one turn, in order."""
    rows = await tx.all(
        f"SELECT {_ENTRY} FROM entries"
        " WHERE agent_id = ? AND seq BETWEEN ? AND ? AND turn_id = ? ORDER BY seq",
        (record.agent_id, record.first_seq, record.last_seq, record.id),
    )
    return [_entry(row) for row in rows]


@dataclass(frozen=True, slots=True)
class VisibleEntry:
    """An entry that a model may see, with who may see it."""

    seq: int
    turn_id: str
    kind: EntryKind
    body: bytes
    at_ms: int
    audience: str | None
    """That of its turn; None: the owner."""
    trust: Trust
    """How far it is trusted."""
    key: str = ""
    meta: str | None = None

    @staticmethod
    def from_row(row: Row) -> VisibleEntry:
        """Return the entry in a row of `SELECT_VISIBLE`."""
        return VisibleEntry(
            *(row[0], row[1], EntryKind(row[2]), row[3], row[4], row[5]),
            trust=trust_of(row[8], row[6]),
            key=row[7],
            meta=row[8],
        )


SELECT_VISIBLE = (
    "SELECT e.seq, e.turn_id, e.kind, e.body, e.at, t.audience, t.trust, e.key, e.meta"
    " FROM entries e LEFT JOIN turns t ON t.id = e.turn_id"
)
"""Entries with what their turns say of who may see them and how far they are trusted."""


async def visible_entries(
    tx: Connection, agent_id: str, first: int, last: int, *, newest: int | None = None
) -> list[VisibleEntry]:
    """Return what models see of a stretch of a journal, in order; or the newest so many of it."""
    limit = "" if newest is None else " ORDER BY e.seq DESC LIMIT ?"
    rows = await tx.all(
        f"{SELECT_VISIBLE} WHERE e.agent_id = ? AND e.seq BETWEEN ? AND ?"
        f" AND e.kind IN ('message', 'reply', 'result'){limit or ' ORDER BY e.seq'}",
        (agent_id, first, last) if newest is None else (agent_id, first, last, newest),
    )
    entries = [VisibleEntry.from_row(row) for row in rows]
    return entries if newest is None else entries[::-1]


async def opening_messages(
    tx: Connection, agent_id: str, first: int, last: int, newest: int
) -> list[VisibleEntry]:
    """Return the newest messages of a stretch that opened a turn which was answered, in order."""
    rows = await tx.all(
        f"{SELECT_VISIBLE} WHERE e.agent_id = ? AND e.seq BETWEEN ? AND ? AND e.kind = 'message'"
        " AND e.key = 'in' AND t.state = 'done' ORDER BY e.seq DESC LIMIT ?",
        (agent_id, first, last, newest),
    )
    return [VisibleEntry.from_row(row) for row in reversed(rows)]


async def newest(tx: Connection, agent_id: str, first: int, last: int, most: int) -> list[Entry]:
    """Return the newest entries of a stretch that models see, with what is kept beside them."""
    rows = await tx.all(
        f"SELECT {_ENTRY} FROM entries WHERE agent_id = ? AND seq BETWEEN ? AND ?"
        " AND kind IN ('message', 'reply', 'result') ORDER BY seq DESC LIMIT ?",
        (agent_id, first, last, most),
    )
    return [_entry(row) for row in reversed(rows)]


async def length_of(tx: Connection, agent_id: str) -> int:
    """Return how many entries an agent's journal has."""
    row = await tx.one("SELECT length FROM agents WHERE id = ?", (agent_id,))
    return int(row[0]) if row else 0


async def entry_at(tx: Connection, agent_id: str, seq: int) -> Entry | None:
    """Return one entry."""
    row = await tx.one(
        f"SELECT {_ENTRY} FROM entries WHERE agent_id = ? AND seq = ?", (agent_id, seq)
    )
    return _entry(row) if row else None


async def last_reply(tx: Connection, record: TurnRecord) -> Entry | None:
    """Return the last thing the model said in a turn."""
    row = await tx.one(
        f"SELECT {_ENTRY} FROM entries WHERE agent_id = ? AND seq BETWEEN ? AND ?"
        " AND turn_id = ? AND kind = 'reply' ORDER BY seq DESC LIMIT 1",
        (record.agent_id, record.first_seq, record.last_seq, record.id),
    )
    return _entry(row) if row else None


async def reply_before(tx: Connection, agent_id: str, before: int) -> Entry | None:
    """Return the latest reply before an entry of an agent's journal."""
    row = await tx.one(
        f"SELECT {_ENTRY} FROM entries WHERE agent_id = ? AND seq < ? AND kind = 'reply'"
        " ORDER BY seq DESC LIMIT 1",
        (agent_id, before),
    )
    return _entry(row) if row else None


async def copy_before(tx: Connection, source: str, before: int, target: str) -> int:
    """Copy a journal up to an entry to another agent, for a fork; return its length."""
    await tx.run(
        "INSERT INTO entries (agent_id, seq, turn_id, kind, key, body, meta, at)"
        " SELECT ?, seq, turn_id, kind, key, body, meta, at FROM entries"
        " WHERE agent_id = ? AND seq < ?",
        (target, source, before),
    )
    await tx.run("UPDATE agents SET length = ? WHERE id = ?", (before - 1, target))
    return before - 1


async def put_blob(tx: Connection, blob: Blob, at: int) -> None:
    """Keep a blob; it may be there already."""
    await tx.run(
        "INSERT INTO blobs (id, type, body, created_at) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING",
        (blob.id, blob.type, blob.body, at),
    )


async def get_blob(tx: Connection, ids: Sequence[str]) -> dict[str, Blob]:
    """Return the stored blobs among `ids`, by id."""
    marks = ", ".join("?" * len(ids))
    rows = await tx.all(f"SELECT id, type, body FROM blobs WHERE id IN ({marks})", tuple(ids))
    return {row[0]: Blob(row[0], row[1], bytes(row[2])) for row in rows}
