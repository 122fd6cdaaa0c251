"""Questions to people at rest."""

from __future__ import annotations

from typing import Any

import orjson

from asterism.records import dataclass
from asterism.store.database import OF_OWN_AGENT, Connection, Row
from asterism.times import DAY
from asterism.types.permissions import (
    OWNER,
    Answer,
    ApprovalRecord,
    Grant,
    read_effects,
    write_effects,
)
from asterism.types.turns import TurnRecord

_COLUMNS = (
    "id, agent_id, turn_id, key, question, asked_at, tool, arguments, effects, reason, reviewers,"
    " rounds, next_at, expires_at, approved, note, decided_by, decided_at, place, edited, grant_id,"
    " announced, announced_at, definition"
)
_OPEN = (
    "decided_at IS NULL AND agent_id IN (SELECT id FROM agents WHERE constellation = ?)"
    # A turn that a limit has ended takes no answer any more.
    " AND turn_id IN (SELECT id FROM turns WHERE ended_at IS NULL)"
)


def _approval(row: Row) -> ApprovalRecord:
    values: list[Any] = list(row)
    values[10] = tuple(orjson.loads(row[10]))
    values[14] = None if row[14] is None else bool(row[14])
    values[21] = orjson.loads(row[21])
    return ApprovalRecord(*values)


async def put(tx: Connection, approval: ApprovalRecord) -> None:
    """Store a question; it is looked at again when it is due, at once if no time is given."""
    due = approval.asked_at_ms if approval.next_at_ms is None else approval.next_at_ms
    await tx.run(
        "INSERT INTO approvals (id, agent_id, turn_id, key, question, asked_at, tool, arguments,"
        " effects, reason, reviewers, next_at, expires_at, definition)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
        (
            approval.id,
            approval.agent_id,
            approval.turn_id,
            approval.key,
            approval.question,
            approval.asked_at_ms,
            approval.tool,
            approval.arguments,
            approval.effects,
            approval.reason,
            _json(approval.reviewers),
            due,
            approval.expires_at_ms,
            approval.definition,
        ),
    )
    await tx.notify("approval", approval.id)


async def decide(
    tx: Connection, approval_id: str, answer: Answer, at: int, grant_id: str | None = None
) -> bool:
    """Store the answer; False if there was one before."""
    changed = await tx.run(
        "UPDATE approvals SET approved = ?, note = ?, decided_by = ?, decided_at = ?, place = ?,"
        " edited = ?, grant_id = ?, next_at = NULL WHERE id = ? AND decided_at IS NULL",
        (
            int(answer.approved),
            answer.note,
            answer.by,
            at,
            answer.place,
            answer.edited,
            grant_id,
            approval_id,
        ),
    )
    return changed > 0


async def get(tx: Connection, approval_id: str) -> ApprovalRecord | None:
    """Return a question with its answer, if there is one."""
    row = await tx.one(
        f"SELECT {_COLUMNS} FROM approvals WHERE id = ? AND {OF_OWN_AGENT}",
        (approval_id, tx.constellation),
    )
    return _approval(row) if row else None


async def of_turn(tx: Connection, turn_id: str) -> list[ApprovalRecord]:
    """Return all questions of a turn."""
    rows = await tx.all(
        f"SELECT {_COLUMNS} FROM approvals WHERE turn_id = ? ORDER BY asked_at, id", (turn_id,)
    )
    return [_approval(row) for row in rows]


async def waiting(tx: Connection, after: ApprovalRecord | None = None) -> list[ApprovalRecord]:
    """Return the questions nobody has answered yet, oldest first; `after` one of them, if given."""
    such = _OPEN
    values: list[object] = [tx.constellation]
    if after is not None:
        such += " AND (asked_at, id) > (?, ?)"
        values += [after.asked_at_ms, after.id]
    rows = await tx.all(
        f"SELECT {_COLUMNS} FROM approvals WHERE {such} ORDER BY asked_at, id", values
    )
    return [_approval(row) for row in rows]


async def list_decided(
    tx: Connection, most: int, before: ApprovalRecord | None = None
) -> list[ApprovalRecord]:
    """Return the questions that were answered last, the latest first.

    Args:
        tx: A transaction.
        most: How many at most.
        before: The last question of the page before.
    """
    such = "decided_at IS NOT NULL AND agent_id IN (SELECT id FROM agents WHERE constellation = ?)"
    values: list[object] = [tx.constellation]
    if before is not None:
        such += " AND (decided_at, id) < (?, ?)"
        values += [before.decided_at_ms, before.id]
    rows = await tx.all(
        f"SELECT {_COLUMNS} FROM approvals WHERE {such} ORDER BY decided_at DESC, id DESC LIMIT ?",
        (*values, most),
    )
    return [_approval(row) for row in rows]


# -- announcing ------------------------------------------------------------------------------------


async def due(tx: Connection, now: int, most: int) -> list[ApprovalRecord]:
    """Return the questions that are to be looked at, the longest overdue first."""
    rows = await tx.all(
        f"SELECT {_COLUMNS} FROM approvals WHERE next_at <= ? AND decided_at IS NULL"
        " AND agent_id IN (SELECT id FROM agents WHERE constellation = ?)"
        " ORDER BY next_at, id LIMIT ?",
        (now, tx.constellation, most),
    )
    return [_approval(row) for row in rows]


async def next_time(tx: Connection) -> int | None:
    """Return when the next question is to be looked at."""
    row = await tx.one(
        "SELECT MIN(next_at) FROM approvals WHERE decided_at IS NULL AND next_at IS NOT NULL"
        " AND agent_id IN (SELECT id FROM agents WHERE constellation = ?)",
        (tx.constellation,),
    )
    return int(row[0]) if row and row[0] is not None else None


async def note_round(tx: Connection, former: ApprovalRecord, after: ApprovalRecord) -> bool:
    """Store what was announced; False if another process or an answer came first."""
    changed = await tx.run(
        "UPDATE approvals SET rounds = ?, announced = ?, announced_at = ?, reviewers = ?,"
        " next_at = ?, expires_at = ? WHERE id = ? AND decided_at IS NULL AND next_at = ?",
        (
            after.rounds,
            _json(dict(after.announced)),
            after.announced_at_ms,
            _json(after.reviewers),
            after.next_at_ms,
            after.expires_at_ms,
            former.id,
            former.next_at_ms,
        ),
    )
    return changed > 0


async def look_at_all(tx: Connection, now: int) -> None:
    """Make every open question due: the rules by which people are told have changed."""
    await tx.run(
        "UPDATE approvals SET next_at = ? WHERE decided_at IS NULL"
        " AND (next_at IS NULL OR next_at > ?)"
        " AND agent_id IN (SELECT id FROM agents WHERE constellation = ?)",
        (now, now, tx.constellation),
    )


def _json(value: Any) -> str:
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()


async def opener_of(tx: Connection, record: TurnRecord) -> str:
    """Return the id of the person who opened a turn."""
    participants = await participants_of(tx, record)
    if participants is None:
        return OWNER
    stored: dict[str, Any] = orjson.loads(participants)
    persons: list[str] = stored.get("persons") or [""]
    return persons[0]


async def participants_of(tx: Connection, record: TurnRecord) -> str | None:
    """Return who was present when a turn was opened, as JSON; None: the owner alone."""
    row = await tx.one(
        "SELECT meta FROM entries WHERE agent_id = ? AND seq >= ? AND seq <= ?"
        " AND turn_id = ? AND key = 'in'",
        (record.agent_id, record.first_seq, record.last_seq, record.id),
    )
    stored: dict[str, Any] = orjson.loads(row[0]) if row and row[0] else {}
    return stored.get("participants")


_GRANT_COLUMNS = (
    "id, constellation, tool, agent_id, pattern, turn_id, until, uses, given_by, given_at,"
    " approval_id, revoked_at, effects, arguments, amount, per_day, definition"
)


def _grant(row: Row) -> Grant:
    values = list(row)
    values[4] = orjson.loads(row[4])
    values[12] = read_effects(row[12]) if row[12] is not None else None
    return Grant(*values)


async def put_grant(tx: Connection, grant: Grant) -> None:
    """Store a grant; it counts from the next call on."""
    await tx.run(
        f"INSERT INTO grants ({_GRANT_COLUMNS})"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            grant.id,
            grant.constellation,
            grant.tool,
            grant.agent_id,
            orjson.dumps(dict(grant.pattern), option=orjson.OPT_SORT_KEYS).decode(),
            grant.turn_id,
            grant.until_ms,
            grant.uses,
            grant.given_by,
            grant.given_at_ms,
            grant.approval_id,
            grant.revoked_at_ms,
            write_effects(grant.effects) if grant.effects is not None else None,
            grant.arguments,
            grant.amount,
            grant.per_day,
            grant.definition,
        ),
    )
    await tx.notify("grant", grant.constellation)


async def live_grants(
    tx: Connection, agent_id: str, now: int, turn_id: str | None = None
) -> list[Grant]:
    """Return the valid grants of an agent, the oldest first.

    With a turn, without those that were given for other turns.
    """
    rows = await tx.all(
        f"SELECT {_GRANT_COLUMNS} FROM grants WHERE constellation = ? AND revoked_at IS NULL"
        " AND (agent_id IS NULL OR agent_id = ?) AND (until IS NULL OR until > ?)"
        " AND (uses IS NULL OR uses > 0) AND (turn_id IS NULL OR turn_id = COALESCE(?, turn_id))"
        " ORDER BY given_at, id",
        (tx.constellation, agent_id, now, turn_id),
    )
    return [_grant(row) for row in rows]


async def list_grants(tx: Connection, now: int, *, everything: bool = False) -> list[Grant]:
    """Return the grants that still count, or all that were ever given, the oldest first."""
    still = "" if everything else _STILL
    values = (tx.constellation,) if everything else (tx.constellation, now)
    rows = await tx.all(
        f"SELECT {_GRANT_COLUMNS} FROM grants WHERE constellation = ?{still} ORDER BY given_at, id",
        values,
    )
    return [_grant(row) for row in rows]


# One for a turn that has ended covers nothing any more.
_STILL = (
    " AND revoked_at IS NULL AND (until IS NULL OR until > ?) AND (uses IS NULL OR uses > 0)"
    " AND (turn_id IS NULL OR turn_id IN (SELECT id FROM turns WHERE ended_at IS NULL))"
)


async def get_grant(tx: Connection, grant_id: str) -> Grant | None:
    """Return a grant."""
    row = await tx.one(
        f"SELECT {_GRANT_COLUMNS} FROM grants WHERE constellation = ? AND id = ?",
        (tx.constellation, grant_id),
    )
    return _grant(row) if row else None


async def use_grant(tx: Connection, grant_id: str) -> bool:
    """Count one call; False if the grant does not cover it any more."""
    changed = await tx.run(
        "UPDATE grants SET uses = uses - 1"
        " WHERE id = ? AND revoked_at IS NULL AND (uses IS NULL OR uses > 0)",
        (grant_id,),
    )
    return changed > 0


async def revoke_grant(tx: Connection, grant_id: str, at: int) -> bool:
    """Take a grant back; False if it was before."""
    changed = await tx.run(
        "UPDATE grants SET revoked_at = ? WHERE constellation = ? AND id = ?"
        " AND revoked_at IS NULL",
        (at, tx.constellation, grant_id),
    )
    if changed:
        await tx.notify("grant", tx.constellation)
    return changed > 0


_KEPT = 366 * DAY


@dataclass(frozen=True, slots=True)
class Use:
    """A call that a policy with a quota has let pass."""

    agent_id: str
    policy: str
    at: int
    amount: float


async def quota_used(tx: Connection, agent_id: str, policy: str, since: int, of: str) -> float:
    """Return how much of a quota has gone by since a moment: calls, or the sum of amounts."""
    what = "SUM(amount)" if of == "amount" else "COUNT(*)"
    row = await tx.one(
        f"SELECT {what} FROM quota_uses WHERE agent_id = ? AND policy = ? AND at > ?",
        (agent_id, policy, since),
    )
    return float(row[0] or 0) if row else 0.0


async def put_quota(tx: Connection, use: Use) -> None:
    """Count a call; what no quota can ask for any more is let go."""
    await tx.run(
        "INSERT INTO quota_uses (agent_id, policy, at, amount) VALUES (?, ?, ?, ?)",
        (use.agent_id, use.policy, use.at, use.amount),
    )
    await tx.run(
        "DELETE FROM quota_uses WHERE agent_id = ? AND policy = ? AND at < ?",
        (use.agent_id, use.policy, use.at - _KEPT),
    )
