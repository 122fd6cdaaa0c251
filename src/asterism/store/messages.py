"""Messages at rest: the inbox (accepted once, in order of arrival), the outbox, schedules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import orjson

from asterism.errors import Conflict, InboxFull
from asterism.store.database import OF_OWN_AGENT, Connection, Row, marks
from asterism.types.agents import OWNER, Schedule
from asterism.types.groups import AGENT_CHANNEL, GROUP_CHANNEL
from asterism.types.turns import Delivery, InboxItem, InboxKind, MessageOrigin

_KEPT = (
    "agent_id, arrival, id, kind, channel, body, at, sender, reply_to, schema, participants,"
    " turn_id, client, round"
)
_NEW, _ITEM = f"{_KEPT}, person, token", f"{_KEPT}, stopped"
FREE = 8
"""So many messages of others than the owner wait in an inbox in order of arrival alone; what comes
after them waits in rounds, of so many messages of each person."""
_COME_AGAIN = 10.0
"""Seconds after which whoever has too much waiting may try again."""
_NOT_ARCHIVED = (
    "NOT EXISTS (SELECT 1 FROM agents x WHERE x.id = agent_id AND x.archived_at IS NOT NULL)"
)


def _item(row: Row) -> InboxItem:
    return InboxItem(*row)


async def accept_once(
    tx: Connection, channel: str, external_id: str, message_id: str, agent_id: str
) -> tuple[str, str] | None:
    """Note an external id. Return the (message, agent) that had it before, or None if it is new."""
    new = await tx.one(
        "INSERT INTO accepted VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING RETURNING message_id",
        (tx.constellation, channel, external_id, message_id, agent_id),
    )
    if new is not None:
        return None
    former = await tx.one(
        "SELECT message_id, agent_id FROM accepted"
        " WHERE constellation = ? AND channel = ? AND external_id = ?",
        (tx.constellation, channel, external_id),
    )
    assert former is not None
    return former[0], former[1]


async def accept_again(
    tx: Connection, channel: str, external_id: str, message_id: str, former_id: str
) -> None:
    """Let an external id name a new message from now on, in place of a former one."""
    await tx.run(
        "UPDATE accepted SET message_id = ?"
        " WHERE constellation = ? AND channel = ? AND external_id = ? AND message_id = ?",
        (message_id, tx.constellation, channel, external_id, former_id),
    )


async def put_message(
    tx: Connection,
    agent_id: str,
    message_id: str,
    body: bytes,
    origin: MessageOrigin,
    at: int,
    *,
    schema: str | None = None,
    participants: str | None = None,
    client: str | None = None,
    announce: bool = True,
    token: str | None = None,
    most: tuple[int, int] | None = None,
) -> InboxItem | None:
    """Put a message into an agent's inbox; None if there is no such agent.

    `participants` are those present, resolved to persons; `client` is what the program that sends
    it asks for beside the message. Without `announce` the caller wakes the
    lane in its own process after the commit. `token` is what it was handed in with, and `most` how
    many messages of a person and of a token may wait; `InboxFull` is raised beyond that.
    """
    columns = (origin.channel, body, at, origin.sender, origin.reply_to, schema, participants)
    person = _person(origin.channel, participants)
    sender = _Sender(person, token, most) if person is not None or token is not None else None
    return await _put(
        tx,
        *(agent_id, message_id, InboxKind.MESSAGE, (*columns, None, client)),
        announce=announce,
        sender=sender,
    )


class _Sender(NamedTuple):
    """For whom a message waits, if it counts for somebody."""

    person: str | None
    """None: the owner."""
    token: str | None
    most: tuple[int, int] | None
    """How many messages of a person and of a token may wait; None: any number."""


_ARRIVES = (
    "UPDATE agents SET arrivals = arrivals + 1 WHERE id = ? AND deleted_at IS NULL"
    " RETURNING arrivals, archived_at, name"
)
# What waits of others than the owner in an inbox (counted up to a limit), the last round of a
# person in it, and how many messages of the person and of the token wait in all inboxes.
_ARRIVES_FROM = (
    f"{_ARRIVES}, (SELECT COUNT(*) FROM (SELECT 1 FROM inbox WHERE agent_id = ?"
    f" AND person IS NOT NULL LIMIT {FREE}) o),"
    " (SELECT MAX(round) FROM inbox WHERE person = ? AND agent_id = ?),"
    " (SELECT COUNT(*) FROM inbox WHERE person = ?), (SELECT COUNT(*) FROM inbox WHERE token = ?)"
)


def _person(channel: str, participants: str | None) -> str | None:
    """Return whose message it is, if it is a person's other than the owner."""
    if participants is None or channel.startswith((AGENT_CHANNEL, GROUP_CHANNEL)):
        return None
    persons: list[str] = orjson.loads(participants).get("persons") or [OWNER]
    return None if persons[0] == OWNER else persons[0]


def _check_room(sender: _Sender, of_person: int, of_token: int) -> None:
    """Raise `InboxFull` if too many messages of a person or a token wait already."""
    person, token, most = sender
    if most is not None and person is not None and of_person >= most[0]:
        whose, there, setting = "of yours", of_person, "quotas.waiting_per_person"
    elif most is not None and token is not None and of_token >= most[1]:
        whose, there, setting = "from this token", of_token, "quotas.waiting_per_token"
    else:
        return
    raise InboxFull(
        f"{there:,} messages {whose} wait for an answer, and no more may ({setting}). Wait until "
        f"some are answered, and try again in {_COME_AGAIN:g} s. Nothing was stored.",
        retry_after=_COME_AGAIN,
    )


async def _round(tx: Connection, agent_id: str, person: str, others: int, last: int | None) -> int:
    """Return in which round a message of a person other than the owner is answered.

    Args:
        tx: A transaction.
        agent_id: Who answers it.
        person: Who has handed it in.
        others: How much of others than the owner waits, counted up to `FREE`.
        last: The round of the person's last message that waits; None: there is none.
    """
    if others < FREE:
        return last or 0
    row = await tx.one(
        "SELECT (SELECT MIN(round) FROM inbox WHERE agent_id = ? AND round > 0),"
        " (SELECT COUNT(*) FROM inbox WHERE person = ? AND agent_id = ? AND round = ?)",
        (agent_id, person, agent_id, last or 0),
    )
    assert row is not None
    current, of_last = row
    own = 0 if last is None else last + (of_last >= FREE)
    return max(own, current or 1)


async def put_decision(
    tx: Connection, agent_id: str, decision_id: str, turn_id: str, body: bytes, at: int
) -> InboxItem | None:
    """Put the answer to a question of a parked turn at the end of an agent's inbox."""
    columns = ("", body, at, None, None, None, None, turn_id, None)
    return await _put(tx, agent_id, decision_id, InboxKind.DECISION, columns, announce=True)


async def put_result(
    tx: Connection,
    group_id: str,
    item_id: str,
    turn_id: str,
    body: bytes,
    at: int,
    *,
    announce: bool = True,
) -> InboxItem | None:
    """Put what a member says at the end of the inbox of a group, for a turn of the group.

    Without `announce` the caller knows that nothing follows from it yet.
    """
    columns = ("", body, at, None, None, None, None, turn_id, None)
    return await _put(tx, group_id, item_id, InboxKind.RESULT, columns, announce=announce)


async def take_results(tx: Connection, group_id: str, turn_id: str) -> None:
    """Take out all that members have said for a turn of a group."""
    await tx.run(
        "DELETE FROM inbox WHERE agent_id = ? AND turn_id = ? AND kind = 'result'",
        (group_id, turn_id),
    )


async def results(tx: Connection, group_id: str, turn_id: str) -> list[InboxItem]:
    """Return what members have said for a turn of a group, in order of arrival."""
    rows = await tx.all(
        f"SELECT {_ITEM} FROM inbox WHERE agent_id = ? AND turn_id = ? AND kind = 'result'"
        " ORDER BY arrival",
        (group_id, turn_id),
    )
    return [_item(row) for row in rows]


async def _put(
    tx: Connection,
    agent_id: str,
    item_id: str,
    kind: InboxKind,
    rest: tuple[Any, ...],
    *,
    announce: bool,
    sender: _Sender | None = None,
) -> InboxItem | None:
    # The row lock that this takes on PostgreSQL makes arrival numbers follow the commits.
    if sender is None:
        row = await tx.one(_ARRIVES, (agent_id,))
    else:
        person, token, _ = sender
        row = await tx.one(_ARRIVES_FROM, (agent_id, agent_id, person, agent_id, person, token))
    if row is None:
        return None
    if row[1] is not None and kind is InboxKind.MESSAGE:
        raise archived_agent(row[2])
    item = InboxItem(agent_id, row[0], item_id, kind.value, *rest)
    person, token = None, None
    if sender is not None:
        person, token, others = sender.person, sender.token, int(row[3])
        _check_room(sender, int(row[5]), int(row[6]))
        if person is not None:
            item = replace(item, round=await _round(tx, agent_id, person, others, row[4]))
    values = (agent_id, item.arrival, item_id, kind.value, *rest, item.round, person, token)
    await tx.run(f"INSERT INTO inbox ({_NEW}) VALUES ({marks(len(values))})", values)
    await tx.enqueue(agent_id)
    if announce:
        await tx.notify("lane", agent_id)
    return item


def archived_agent(name: str) -> Conflict:
    """Return the error for a message to an agent that is archived."""
    return Conflict(
        f"{name} is archived and takes no messages. "
        f'"asterism agent unarchive {name}" puts it back to work. Nothing was stored.'
    )


async def first(tx: Connection, agent_id: str) -> InboxItem | None:
    """Return the item of this agent that is answered next: of the first round, the oldest."""
    row = await tx.one(_FIRST, (agent_id,)) or await tx.one(_FIRST_OF_LATER_ROUND, (agent_id,))
    return _item(row) if row else None


# Two statements, so that each needs no more than the primary key where little waits in rounds.
_FIRST = f"SELECT {_ITEM} FROM inbox WHERE agent_id = ? AND round = 0 ORDER BY arrival LIMIT 1"
_FIRST_OF_LATER_ROUND = (
    f"SELECT {_ITEM} FROM inbox WHERE agent_id = ? AND round > 0 ORDER BY round, arrival LIMIT 1"
)


async def waiting(tx: Connection, agent_id: str | None = None) -> list[InboxItem]:
    """Return everything that waits, in order of arrival for each agent."""
    condition = " AND agent_id = ?" if agent_id else ""
    rows = await tx.all(
        f"SELECT {_ITEM} FROM inbox"
        f" WHERE agent_id IN (SELECT id FROM agents WHERE constellation = ?){condition}"
        " ORDER BY agent_id, arrival",
        (tx.constellation, agent_id) if agent_id else (tx.constellation,),
    )
    return [_item(row) for row in rows]


async def count(tx: Connection) -> int:
    """Return how much waits."""
    row = await tx.one(
        "SELECT COUNT(*) FROM inbox"
        " WHERE agent_id IN (SELECT id FROM agents WHERE constellation = ?)",
        (tx.constellation,),
    )
    return int(row[0]) if row else 0


async def busy_agents(tx: Connection) -> list[str]:
    """Return the agents that have something to do: a waiting item or an open turn."""
    rows = await tx.all(
        f"SELECT agent_id FROM inbox WHERE {_NOT_ARCHIVED}"
        f" UNION SELECT agent_id FROM turns WHERE state = 'open' AND {_NOT_ARCHIVED}"
    )
    return [row[0] for row in rows]


async def take(tx: Connection, item: InboxItem, *, stopped: bool = False) -> bool:
    """Take an item out; False if it is not there any more, or was stopped and is not to be."""
    any_more = "" if stopped else " AND stopped IS NULL"
    changed = await tx.run(
        f"DELETE FROM inbox WHERE agent_id = ? AND arrival = ?{any_more}",
        (item.agent_id, item.arrival),
    )
    return changed > 0


async def stop(tx: Connection, message_id: str, reason: str) -> str | None:
    """Keep the turn of a waiting message from beginning; return whose it is.

    None if no such message waits, or if it was stopped before.
    """
    row = await tx.one(
        "UPDATE inbox SET stopped = ? WHERE id = ? AND kind = 'message' AND stopped IS NULL"
        f" AND {OF_OWN_AGENT} RETURNING agent_id",
        (reason, message_id, tx.constellation),
    )
    return row[0] if row else None


async def stop_decisions(tx: Connection, agent_id: str, turn_id: str, reason: str) -> None:
    """Keep answers to questions of a turn from being carried out."""
    await tx.run(
        "UPDATE inbox SET stopped = COALESCE(stopped, ?)"
        " WHERE agent_id = ? AND turn_id = ? AND kind = 'decision'",
        (reason, agent_id, turn_id),
    )


async def waits_from(tx: Connection, agent_id: str, channel: str) -> bool:
    """Tell whether a message of a channel waits in an agent's inbox."""
    row = await tx.one(
        "SELECT 1 FROM inbox WHERE agent_id = ? AND kind = 'message' AND channel = ? LIMIT 1",
        (agent_id, channel),
    )
    return row is not None


async def find_decision(tx: Connection, agent_id: str, turn_id: str) -> str | None:
    """Return the id of the latest decision about a parked turn that waits to be carried out."""
    row = await tx.one(
        "SELECT id FROM inbox WHERE agent_id = ? AND turn_id = ? AND kind = 'decision'"
        " ORDER BY arrival DESC LIMIT 1",
        (agent_id, turn_id),
    )
    return row[0] if row else None


async def find(tx: Connection, message_id: str) -> InboxItem | None:
    """Return a waiting item by its id."""
    row = await tx.one(
        f"SELECT {_ITEM} FROM inbox WHERE id = ? AND {OF_OWN_AGENT}",
        (message_id, tx.constellation),
    )
    return _item(row) if row else None


_DELIVERY = (
    "key, agent_id, turn_id, channel, target, body, attempts, state, next_at, created_at, error"
)

# Times may be equal or go back; numbers follow the order in which an agent's turns were written.
_LAST_NUMBER = (
    "SELECT COALESCE(MAX(number), 0) FROM outbox"
    " WHERE channel = ? AND target = ? AND state <> 'sent'"
)
_FIRST_OF_ITS_TARGET = (
    "NOT EXISTS (SELECT 1 FROM outbox b WHERE b.state = 'waiting'"
    " AND b.channel = o.channel AND b.target = o.target"
    " AND (b.number < o.number OR (b.number = o.number AND b.key < o.key)))"
)


def _delivery(row: Row) -> Delivery:
    return Delivery(*row)


async def put_delivery(tx: Connection, delivery: Delivery) -> None:
    """Put a message on its way, in the transaction that makes it true."""
    await tx.run(
        f"INSERT INTO outbox ({_DELIVERY}, number)"
        f" VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ({_LAST_NUMBER}) + 1) ON CONFLICT DO NOTHING",
        (
            delivery.key,
            delivery.agent_id,
            delivery.turn_id,
            delivery.channel,
            delivery.target,
            delivery.text,
            delivery.attempts,
            delivery.state,
            delivery.next_at_ms,
            delivery.created_at_ms,
            delivery.error,
            delivery.channel,
            delivery.target,
        ),
    )


async def due_deliveries(tx: Connection, now: int, most: int) -> list[Delivery]:
    """Return deliveries that may be tried now: the oldest waiting one of each target."""
    rows = await tx.all(
        f"SELECT {_DELIVERY} FROM outbox o WHERE state = 'waiting' AND next_at <= ?"
        f" AND {_FIRST_OF_ITS_TARGET} ORDER BY created_at, key LIMIT ?",
        (now, most),
    )
    return [_delivery(row) for row in rows]


async def next_delivery_time(tx: Connection) -> int | None:
    """Return when the next delivery may be tried."""
    row = await tx.one(
        f"SELECT MIN(next_at) FROM outbox o WHERE state = 'waiting' AND {_FIRST_OF_ITS_TARGET}"
    )
    return int(row[0]) if row and row[0] is not None else None


async def claim_delivery(
    tx: Connection, delivery: Delivery, until: int, worker: int | None
) -> bool:
    """Reserve a delivery until a time, for a worker; False if another process was quicker."""
    changed = await tx.run(
        "UPDATE outbox SET attempts = attempts + 1, next_at = ?, claimed_by = ?"
        " WHERE key = ? AND state = 'waiting' AND next_at = ? AND attempts = ?",
        (until, worker, delivery.key, delivery.next_at_ms, delivery.attempts),
    )
    return changed > 0


async def release_delivery(tx: Connection, delivery: Delivery, now: int) -> None:
    """Make a claimed delivery due, if nobody else has claimed it since."""
    await tx.run(
        "UPDATE outbox SET next_at = ?, claimed_by = NULL"
        " WHERE key = ? AND state = 'waiting' AND attempts = ?",
        (now, delivery.key, delivery.attempts),
    )


async def release_deliveries_of(tx: Connection, workers: Sequence[int]) -> None:
    """Make due what workers had claimed that have died."""
    await tx.run(
        "UPDATE outbox SET next_at = created_at, claimed_by = NULL"
        f" WHERE state = 'waiting' AND claimed_by IN ({marks(len(workers))})",
        workers,
    )


async def delivery_sent(tx: Connection, key: str, at: int) -> None:
    """Record that a delivery arrived."""
    await tx.run(
        "UPDATE outbox SET state = 'sent', sent_at = ?, error = NULL, claimed_by = NULL"
        " WHERE key = ?",
        (at, key),
    )


async def delivery_failed(
    tx: Connection, delivery: Delivery, error: str, next_at: int | None
) -> bool:
    """Record that a try failed; without a next time the delivery is dead.

    False if another process has claimed it since, which then records what becomes of it.
    """
    state = "dead" if next_at is None else "waiting"
    changed = await tx.run(
        "UPDATE outbox SET state = ?, error = ?, next_at = COALESCE(?, next_at), claimed_by = NULL"
        " WHERE key = ? AND state = 'waiting' AND attempts = ?",
        (state, error, next_at, delivery.key, delivery.attempts),
    )
    return changed > 0


async def revive_delivery(tx: Connection, key: str, now: int) -> bool:
    """Put a dead delivery back on its way."""
    changed = await tx.run(
        "UPDATE outbox SET state = 'waiting', attempts = 0, next_at = ?, error = NULL"
        f" WHERE key = ? AND state = 'dead' AND {OF_OWN_AGENT}",
        (now, key, tx.constellation),
    )
    return changed > 0


async def release_claims_of_deliveries(tx: Connection, now: int) -> None:
    """Make every waiting delivery due: no other process can be trying it."""
    await tx.run(
        "UPDATE outbox SET next_at = ?, claimed_by = NULL WHERE state = 'waiting' AND next_at > ?",
        (now, now),
    )


async def get_delivery(tx: Connection, key: str) -> Delivery | None:
    """Return a delivery of this constellation, whatever its state."""
    row = await tx.one(
        f"SELECT {_DELIVERY} FROM outbox WHERE key = ? AND {OF_OWN_AGENT}", (key, tx.constellation)
    )
    return _delivery(row) if row else None


async def list_deliveries(
    tx: Connection, state: str | None, most: int, after: str | None = None
) -> list[Delivery]:
    """Return deliveries in a state (or all that are not sent), oldest first.

    Args:
        tx: A transaction.
        state: Which state; None: all that are not sent.
        most: How many at most.
        after: The key of the last delivery of the page before.
    """
    such = ["agent_id IN (SELECT id FROM agents WHERE constellation = ?)"]
    values: list[object] = [tx.constellation]
    if state is None:
        such.append("state <> 'sent'")
    else:
        such.append("state = ?")
        values.append(state)
    if after is not None:
        such.append("(created_at, key) > ((SELECT created_at FROM outbox WHERE key = ?), ?)")
        values += [after, after]
    rows = await tx.all(
        f"SELECT {_DELIVERY} FROM outbox WHERE {' AND '.join(such)}"
        " ORDER BY created_at, key LIMIT ?",
        (*values, most),
    )
    return [_delivery(row) for row in rows]


_SCHEDULE = (
    "id, agent_id, text, due_at, cron, channel, reply_to, created_at, participants, zone, quiet"
)


def _schedule(row: Row) -> Schedule:
    return Schedule(*row)


async def put_schedule(tx: Connection, schedule: Schedule) -> None:
    """Store a schedule."""
    await tx.run(
        f"INSERT INTO schedules ({_SCHEDULE}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
        " ON CONFLICT DO NOTHING",
        (
            schedule.id,
            schedule.agent_id,
            schedule.text,
            schedule.due_at_ms,
            schedule.cron,
            schedule.channel,
            schedule.reply_to,
            schedule.created_at_ms,
            schedule.participants,
            schedule.zone,
            schedule.quiet,
        ),
    )


async def due_schedules(tx: Connection, now: int, most: int) -> list[Schedule]:
    """Return schedules that have fallen due, the longest overdue first."""
    rows = await tx.all(
        f"SELECT {_SCHEDULE} FROM schedules WHERE due_at <= ? AND {_NOT_ARCHIVED}"
        " ORDER BY due_at, id LIMIT ?",
        (now, most),
    )
    return [_schedule(row) for row in rows]


async def next_schedule_time(tx: Connection) -> int | None:
    """Return when the next schedule falls due."""
    row = await tx.one(f"SELECT MIN(due_at) FROM schedules WHERE {_NOT_ARCHIVED}")
    return int(row[0]) if row and row[0] is not None else None


async def advance_schedule(tx: Connection, schedule: Schedule, next_due: int | None) -> bool:
    """Move a schedule on to its next time, or remove it; False if another process did."""
    if next_due is None:
        changed = await tx.run(
            "DELETE FROM schedules WHERE id = ? AND due_at = ?", (schedule.id, schedule.due_at_ms)
        )
    else:
        changed = await tx.run(
            "UPDATE schedules SET due_at = ? WHERE id = ? AND due_at = ?",
            (next_due, schedule.id, schedule.due_at_ms),
        )
    return changed > 0


async def get_schedule(tx: Connection, schedule_id: str) -> Schedule | None:
    """Return a schedule of an agent of this constellation."""
    row = await tx.one(
        f"SELECT {_SCHEDULE} FROM schedules WHERE id = ?"
        " AND agent_id IN (SELECT id FROM agents WHERE constellation = ?)",
        (schedule_id, tx.constellation),
    )
    return _schedule(row) if row else None


async def schedules_of(tx: Connection, agent_id: str) -> list[Schedule]:
    """Return an agent's schedules, the next one first."""
    rows = await tx.all(
        f"SELECT {_SCHEDULE} FROM schedules WHERE agent_id = ? ORDER BY due_at, id", (agent_id,)
    )
    return [_schedule(row) for row in rows]


async def cancel_schedule(tx: Connection, agent_id: str, schedule_id: str) -> bool:
    """Remove a schedule of an agent; False if it does not exist."""
    changed = await tx.run(
        "DELETE FROM schedules WHERE id = ? AND agent_id = ?", (schedule_id, agent_id)
    )
    return changed > 0
