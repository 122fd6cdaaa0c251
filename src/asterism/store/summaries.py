"""Summaries at rest: written once and kept, each with the range that its originals are in."""

from __future__ import annotations

from collections.abc import Callable

import orjson

from asterism.errors import Conflict
from asterism.records import dataclass
from asterism.store.database import OF_OWN_AGENT, Connection, Row
from asterism.store.journal import SELECT_VISIBLE, VisibleEntry
from asterism.types.agents import OWNER_ONLY, Audience, Trust
from asterism.types.turns import Strategy, Summary, plain

CanSee = Callable[[Audience], bool]

_COLUMNS = (
    "id, agent_id, participants, audience, trust, first_seq, last_seq, strategy, text, kept,"
    " messages, tokens, made_by, at"
)
_READ_AT_ONCE = 512


@dataclass(frozen=True, slots=True)
class OriginalPosition:
    """Where one of a summary's originals is, and how long its wire form is."""

    seq: int
    size: int


def _summary(row: Row) -> Summary:
    return Summary(
        id=row[0],
        agent_id=row[1],
        participants=row[2],
        audience=Audience.read(row[3]),
        trust=Trust(row[4]),
        first_seq=row[5],
        last_seq=row[6],
        strategy=Strategy(row[7]),
        text=row[8],
        kept=tuple(orjson.loads(row[9])),
        messages=row[10],
        tokens=row[11],
        made_by=row[12],
        at_ms=row[13],
    )


async def put(tx: Connection, summary: Summary) -> Summary:
    """Store a summary and return it; if a summary of its range exists, return that."""
    row = await tx.one(
        f"SELECT {_COLUMNS} FROM summaries"
        " WHERE id = ? OR (agent_id = ? AND participants = ? AND first_seq <= ? AND last_seq >= ?)"
        " ORDER BY last_seq DESC LIMIT 1",
        (
            summary.id,
            summary.agent_id,
            summary.participants,
            summary.last_seq,
            summary.first_seq,
        ),
    )
    if row is not None:
        former = _summary(row)
        same_range = (former.first_seq, former.last_seq) == (summary.first_seq, summary.last_seq)
        if former.id == summary.id or same_range:
            return former
        raise Conflict(
            f"Entries {summary.first_seq} to {summary.last_seq} of {summary.agent_id} cannot be "
            f"compacted: {former.id} stands for {former.first_seq} to {former.last_seq}. Begin "
            "after those. Nothing was stored."
        )
    await tx.run(
        f"INSERT INTO summaries ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            summary.id,
            summary.agent_id,
            summary.participants,
            str(summary.audience),
            summary.trust.value,
            summary.first_seq,
            summary.last_seq,
            summary.strategy.value,
            plain(summary.text),
            orjson.dumps(summary.kept).decode(),
            summary.messages,
            summary.tokens,
            summary.made_by,
            summary.at_ms,
        ),
    )
    return summary


async def get(tx: Connection, summary_id: str) -> Summary | None:
    """Return a summary."""
    row = await tx.one(
        f"SELECT {_COLUMNS} FROM summaries WHERE id = ? AND {OF_OWN_AGENT}",
        (summary_id, tx.constellation),
    )
    return _summary(row) if row else None


async def of_agent(
    tx: Connection, agent_id: str, participants: str | None = None, before_seq: int | None = None
) -> list[Summary]:
    """Return an agent's summaries, of the same participants or all, oldest range first.

    With `before_seq`, only those whose range ends before that entry.
    """
    where, values = "agent_id = ?", [agent_id]
    if participants is not None:
        where, values = f"{where} AND participants = ?", [*values, participants]
    limits = () if before_seq is None else (before_seq,)
    if limits:
        where += " AND last_seq < ?"
    rows = await tx.all(
        f"SELECT {_COLUMNS} FROM summaries WHERE {where} ORDER BY last_seq, at, id",
        (*values, *limits),
    )
    return [_summary(row) for row in rows]


async def latest(
    tx: Connection, agent_id: str, participants: str, before_seq: int | None = None
) -> Summary | None:
    """Return the summary that ends last, of those that end before an entry: all others led to it.

    For a summary's `first_seq`, that is the one that it took in.
    """
    where, values = "", (agent_id, participants)
    limits = () if before_seq is None else (before_seq,)
    if limits:
        where = " AND last_seq < ?"
    row = await tx.one(
        f"SELECT {_COLUMNS} FROM summaries WHERE agent_id = ? AND participants = ?{where}"
        " ORDER BY last_seq DESC LIMIT 1",
        (*values, *limits),
    )
    return _summary(row) if row else None


async def outline(tx: Connection, summary: Summary, can_see: CanSee) -> list[OriginalPosition]:
    """Return the places of a summary's originals that those present may see."""
    rows = await tx.all(
        "SELECT e.seq, LENGTH(e.body), t.audience"
        " FROM entries e LEFT JOIN turns t ON t.id = e.turn_id"
        " WHERE e.agent_id = ? AND e.seq BETWEEN ? AND ?"
        " AND e.kind IN ('message', 'reply', 'result') ORDER BY e.seq",
        (summary.agent_id, summary.first_seq, summary.last_seq),
    )
    stands_for = _membership(summary, can_see)
    return [OriginalPosition(row[0], row[1]) for row in rows if stands_for(row[0], row[2])]


async def originals(
    tx: Connection,
    summary: Summary,
    can_see: CanSee,
    *,
    after_seq: int = 0,
    upto_seq: int | None = None,
    most: int | None = None,
) -> list[VisibleEntry]:
    """Return the messages behind a summary that those present may see.

    What stayed in full is among them; what its participants could not see is not.
    """
    stands_for = _membership(summary, can_see)
    last = summary.last_seq if upto_seq is None else min(upto_seq, summary.last_seq)
    after = max(after_seq, summary.first_seq - 1)
    entries: list[VisibleEntry] = []
    while after < last and (most is None or len(entries) < most):
        rows = await tx.all(
            f"{SELECT_VISIBLE} WHERE e.agent_id = ? AND e.seq > ? AND e.seq <= ?"
            " AND e.kind IN ('message', 'reply', 'result') ORDER BY e.seq LIMIT ?",
            (summary.agent_id, after, last, _READ_AT_ONCE),
        )
        entries.extend(VisibleEntry.from_row(row) for row in rows if stands_for(row[0], row[5]))
        if len(rows) < _READ_AT_ONCE:
            break
        after = rows[-1][0]
    return entries if most is None else entries[:most]


def _membership(summary: Summary, can_see: CanSee) -> Callable[[int, str | None], bool]:
    """Return what tells by an entry's number and its turn's audience whether it is to be shown.

    A range may hold what was said to other participants. Those who may see a summary may see all
    that it was made of, so its own originals are the turns whose audience its audience implies.
    """
    in_full = set(summary.kept)
    known: dict[str | None, tuple[bool, bool]] = {}

    def judge(audience_text: str | None) -> tuple[bool, bool]:
        audience = OWNER_ONLY if audience_text is None else Audience.read(audience_text)
        return can_see(audience), summary.audience & audience == summary.audience

    def stands_for(seq: int, audience_text: str | None) -> bool:
        if audience_text not in known:
            known[audience_text] = judge(audience_text)
        visible, implied = known[audience_text]
        return visible and (implied or seq in in_full)

    return stands_for
