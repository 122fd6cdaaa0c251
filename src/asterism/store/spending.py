"""Spending at rest: a charge for each paid call, and the running totals that caps are held to.

Every change takes charges first and then totals in the order of their keys, so that transactions
that meet in a total wait for each other and never in a circle. A total is changed before it is
compared with its cap: the row is then ours until the commit, and nobody else can be under way to
pass the same cap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import field
from typing import Any

from asterism.records import dataclass
from asterism.store import agents
from asterism.store.database import Connection, Row
from asterism.types.spending import Cap, Charge, ChargeState, Payer, Span, Total
from asterism.types.turns import OWN_REPLIES, MessageMeta, Notice, ReplyMeta, Usage

_CHARGE = (
    "id, agent_id, person, party, turn_id, key, model, day, month, state, amount,"
    " tokens_in, tokens_out, tokens_cached, tokens_written, at, until"
)
_MARKS = ", ".join("?" * len(_CHARGE.split(",")))
_ENDED = (
    "constellation = ? AND until < ? AND NOT EXISTS"
    " (SELECT 1 FROM turns t WHERE t.id = charges.turn_id AND t.state = 'open')"
)

Place = tuple[str, str]
"""A total's key: its period and its scope."""


class CapReached(Exception):
    """A reservation would pass a cap; the caller rolls back and reports it."""

    def __init__(self, cap: Cap, total: Total) -> None:
        super().__init__(cap.setting)
        self.cap = cap
        self.total = total
        """The cap's total with the reservation in it."""


@dataclass(frozen=True, slots=True)
class Watch:
    """The caps for new charges, and a function that warns the owner near a cap."""

    caps: Sequence[Cap] = ()
    warn_at: float = 0.8
    notice: Callable[[Cap, Total], Notice] | None = None

    def at(self, charge: Charge) -> dict[Place, Cap]:
        """Return the caps by the totals of a charge that they hold for."""
        periods = {Span.DAY: charge.day, Span.MONTH: charge.month}
        return {(periods[cap.span], cap.scope): cap for cap in self.caps}


@dataclass(slots=True)
class _Move:
    spent: int = 0
    presumed: int = 0
    reserved: int = 0
    cap: Cap | None = None
    binding: bool = False
    """Whether the cap must not be passed by it."""


@dataclass(slots=True)
class _Moves:
    """Changes of totals, gathered so that each total is changed once."""

    by_place: dict[Place, _Move] = field(default_factory=dict[Place, _Move])

    def add(
        self, charge: Charge, watch: Watch, spent: int = 0, presumed: int = 0, reserved: int = 0
    ) -> None:
        caps = watch.at(charge)
        for period in (charge.day, charge.month):
            for scope in charge.payer.scopes:
                move = self.by_place.setdefault((period, scope), _Move())
                move.spent += spent
                move.presumed += presumed
                move.reserved += reserved
                move.cap = caps.get((period, scope), move.cap)
                move.binding = move.binding or charge.state is ChargeState.RESERVED


# -- writing -------------------------------------------------------------------------------------


async def record(tx: Connection, charges: Iterable[Charge], watch: Watch) -> None:
    """Store charges of calls; the same charge twice counts once."""
    moves = _Moves()
    for charge in charges:
        await _change(tx, charge, watch, moves)
    await _apply(tx, moves, watch)


async def reserve(
    tx: Connection,
    charge: Charge,
    settled: Sequence[Charge],
    watch: Watch,
    *,
    sweep_before: int | None = None,
) -> None:
    """Hold the worst case of a call; raises `CapReached` if a cap could be passed.

    With it goes what is known of earlier calls. A reservation of the same turn that nobody speaks
    for was left by a process that died, or by a call that was given up: it counts as spent. With
    `sweep_before`, so do those of other turns that ended before.
    """
    moves = _Moves()
    for former in settled:
        await _change(tx, former, watch, moves)
    own = "turn_id = ? AND id <> ?"
    orphans = await _reserved(tx, own, (charge.turn_id, charge.id))
    if sweep_before is not None:
        orphans += await _reserved(tx, _ENDED, (tx.constellation, sweep_before))
    for orphan in orphans:
        await _presume(tx, orphan, watch if orphan.turn_id == charge.turn_id else Watch(), moves)
    # It is there already if an earlier commit went through and its confirmation was lost.
    if await _insert(tx, charge):
        moves.add(charge, watch, reserved=charge.amount)
    await _apply(tx, moves, watch)


async def presume_orphans(tx: Connection, before: int | None) -> int:
    """Count reservations of processes that died as spent, and return how many there were.

    With `before`, only those whose turn has had its time by then and is not open: other processes
    may be at work. Without, all of them.
    """
    if before is None:
        charges = await _reserved(tx, "constellation = ?", (tx.constellation,))
    else:
        charges = await _reserved(tx, _ENDED, (tx.constellation, before))
    moves = _Moves()
    for orphan in charges:
        await _presume(tx, orphan, Watch(), moves)
    await _apply(tx, moves, Watch())
    return len(charges)


async def _change(tx: Connection, charge: Charge, watch: Watch, moves: _Moves) -> None:
    if charge.state is ChargeState.PRESUMED and charge.worst:
        await _presume(tx, charge, watch, moves)
        return
    if not charge.worst:
        if await _insert(tx, charge):
            presumed = charge.state is ChargeState.PRESUMED
            moves.add(
                charge,
                watch,
                spent=0 if presumed else charge.amount,
                presumed=charge.amount if presumed else 0,
            )
        return
    # What was presumed meanwhile by another process gives way to what is known.
    if await _close(tx, charge, ChargeState.RESERVED):
        moves.add(charge, watch, spent=charge.amount, reserved=-charge.worst)
    elif await _close(tx, charge, ChargeState.PRESUMED):
        moves.add(charge, watch, spent=charge.amount, presumed=-charge.worst)


async def _insert(tx: Connection, charge: Charge) -> bool:
    usage, payer = charge.usage, charge.payer
    row = await tx.one(
        f"INSERT INTO charges ({_CHARGE}, constellation) VALUES ({_MARKS}, ?)"
        " ON CONFLICT DO NOTHING RETURNING id",
        (
            charge.id,
            payer.agent_id,
            payer.person,
            payer.group,
            charge.turn_id,
            charge.key,
            charge.model,
            charge.day,
            charge.month,
            charge.state.value,
            charge.amount,
            usage.input,
            usage.output,
            usage.cached,
            usage.written,
            charge.at,
            charge.until,
            tx.constellation,
        ),
    )
    return row is not None


async def _close(tx: Connection, charge: Charge, before: ChargeState) -> bool:
    if charge.state is ChargeState.RELEASED:
        changed = await tx.run(
            "DELETE FROM charges WHERE id = ? AND state = ?", (charge.id, before.value)
        )
    else:
        usage = charge.usage
        changed = await tx.run(
            "UPDATE charges SET state = ?, amount = ?, tokens_in = ?, tokens_out = ?,"
            " tokens_cached = ?, tokens_written = ? WHERE id = ? AND state = ?",
            (
                charge.state.value,
                charge.amount,
                usage.input,
                usage.output,
                usage.cached,
                usage.written,
                charge.id,
                before.value,
            ),
        )
    return changed > 0


async def _presume(tx: Connection, charge: Charge, watch: Watch, moves: _Moves) -> None:
    if await _close(tx, charge, ChargeState.RESERVED):
        moves.add(charge, watch, presumed=charge.amount, reserved=-charge.amount)


async def _reserved(tx: Connection, where: str, values: Sequence[Any]) -> list[Charge]:
    rows = await tx.all(
        f"SELECT {_CHARGE} FROM charges WHERE state = 'reserved' AND {where} ORDER BY id", values
    )
    # Read as presumed, since that is what becomes of them: a reservation would bind the caps.
    return [_charge(row) for row in rows]


def _charge(row: Row) -> Charge:
    return Charge(
        id=row[0],
        payer=Payer(row[1], "", row[2], row[3]),
        turn_id=row[4],
        key=row[5],
        model=row[6],
        day=row[7],
        month=row[8],
        state=ChargeState.PRESUMED,
        amount=row[10],
        at=row[15],
        until=row[16],
        worst=row[10],
    )


async def _apply(tx: Connection, moves: _Moves, watch: Watch) -> None:
    for (period, scope), move in sorted(moves.by_place.items()):
        row = await tx.one(
            "INSERT INTO totals (constellation, period, scope, spent, presumed, reserved)"
            " VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (constellation, period, scope) DO UPDATE SET"
            " spent = totals.spent + excluded.spent,"
            " presumed = totals.presumed + excluded.presumed,"
            " reserved = totals.reserved + excluded.reserved"
            " RETURNING spent, presumed, reserved, warned",
            (tx.constellation, period, scope, move.spent, move.presumed, move.reserved),
        )
        cap = move.cap
        if row is None or cap is None:
            continue
        total = Total(scope, period, row[0], row[1], row[2])
        if move.binding and total.counted > cap.amount:
            raise CapReached(cap, total)
        gone = total.spent + total.presumed
        if watch.notice is None or move.spent + move.presumed <= 0 or row[3] == cap.amount:
            continue
        if gone >= watch.warn_at * cap.amount:
            await tx.run(
                "UPDATE totals SET warned = ? WHERE constellation = ? AND period = ? AND scope = ?",
                (cap.amount, tx.constellation, period, scope),
            )
            await agents.put_notice(tx, watch.notice(cap, total))


# -- reading -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DailySum:
    """Paid calls of one day, agent, person, model and state, added up."""

    day: str
    agent: str
    person: str | None
    model: str
    state: ChargeState
    calls: int
    amount: int
    usage: Usage


async def sums(tx: Connection, first: str, last: str, agent_id: str | None) -> list[DailySum]:
    """Return the sums of charges between two days, by day, agent, person, model and state."""
    condition = " AND c.agent_id = ?" if agent_id else ""
    rows = await tx.all(
        "SELECT c.day, a.name, c.person, c.model, c.state, COUNT(*), SUM(c.amount),"
        " SUM(c.tokens_in), SUM(c.tokens_out), SUM(c.tokens_cached), SUM(c.tokens_written)"
        " FROM charges c JOIN agents a ON a.id = c.agent_id"
        f" WHERE c.constellation = ? AND c.day >= ? AND c.day <= ?{condition}"
        " GROUP BY c.day, a.name, c.person, c.model, c.state"
        " ORDER BY c.day, a.name, c.person, c.model, c.state",
        (tx.constellation, first, last, *([agent_id] if agent_id else [])),
    )
    return [
        DailySum(
            day=row[0],
            agent=row[1],
            person=row[2],
            model=row[3],
            state=ChargeState(row[4]),
            calls=row[5],
            amount=row[6],
            usage=Usage(row[7], row[8], row[9], row[10]),
        )
        for row in rows
    ]


async def totals(tx: Connection, periods: Iterable[str]) -> list[Total]:
    """Return the totals of some periods."""
    wanted = list(periods)
    marks = ", ".join("?" * len(wanted))
    rows = await tx.all(
        "SELECT scope, period, spent, presumed, reserved FROM totals"
        f" WHERE constellation = ? AND period IN ({marks}) ORDER BY period, scope",
        (tx.constellation, *wanted),
    )
    return [Total(*row) for row in rows]


@dataclass(frozen=True, slots=True)
class UnpaidReply:
    """A reply in the journal that no charge was written for."""

    agent: str
    person: str | None
    model: str
    at: int
    usage: Usage


async def unpaid_replies(tx: Connection, since: int, agent_id: str | None) -> list[UnpaidReply]:
    """Return the replies of models since a time that cost nothing, or nobody knew what."""
    condition = " AND t.agent_id = ?" if agent_id else ""
    rows = await tx.all(
        "SELECT a.name, t.channel, m.meta, e.meta, e.at FROM turns t"
        " JOIN agents a ON a.id = t.agent_id"
        " JOIN entries e ON e.agent_id = t.agent_id AND e.seq BETWEEN t.first_seq AND t.last_seq"
        " AND e.turn_id = t.id AND e.kind = 'reply'"
        " LEFT JOIN entries m ON m.agent_id = t.agent_id"
        " AND m.seq BETWEEN t.first_seq AND t.last_seq AND m.turn_id = t.id AND m.key = 'in'"
        " WHERE a.constellation = ? AND (t.ended_at IS NULL OR t.ended_at >= ?) AND e.at >= ?"
        f"{condition} AND e.meta IS NOT NULL AND NOT EXISTS"
        " (SELECT 1 FROM charges c WHERE c.turn_id = e.turn_id AND c.key = e.key)"
        " ORDER BY e.at",
        (tx.constellation, since, since, *([agent_id] if agent_id else [])),
    )
    replies: list[UnpaidReply] = []
    for agent, channel, message_meta, reply_meta, at in rows:
        reply, sender = ReplyMeta.from_json(reply_meta), MessageMeta.from_json(message_meta).sender
        if reply.model.startswith(OWN_REPLIES):
            continue  # no model was called
        person = f"{channel}:{sender}" if sender else None
        replies.append(UnpaidReply(agent, person, reply.model, at, reply.usage))
    return replies


async def any_reserved(tx: Connection) -> bool:
    """Tell whether money is held for calls that are or were under way."""
    row = await tx.one(
        "SELECT 1 FROM charges WHERE state = 'reserved' AND constellation = ? LIMIT 1",
        (tx.constellation,),
    )
    return row is not None


async def cost_of(tx: Connection, turn_id: str, key: str) -> int | None:
    """Return the cost of a step with its failed tries; None if it has no charge."""
    row = await tx.one(
        "SELECT SUM(amount) FROM charges WHERE turn_id = ? AND key = ? AND state <> 'reserved'",
        (turn_id, key),
    )
    return int(row[0]) if row and row[0] is not None else None


async def cost_of_turn(tx: Connection, turn_id: str) -> int:
    """Return what the model calls of a turn have cost, in nano-dollars."""
    row = await tx.one(
        "SELECT COALESCE(SUM(amount), 0) FROM charges WHERE turn_id = ? AND constellation = ?",
        (turn_id, tx.constellation),
    )
    return int(row[0]) if row else 0
