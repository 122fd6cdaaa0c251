"""Groups at rest: their members, what their patterns keep, and the messages between agents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import orjson

from asterism.records import dataclass
from asterism.store.database import Connection, Row, marks
from asterism.types.agents import message_id_for
from asterism.types.groups import LEADER_KEY, RESERVED_FOR_ROLES, GroupMember, GroupRecord, Role

GROUP = "group"
"""The kind of the row in `agents` that gives a group its inbox, its lane and its journal."""
_GROUP = (
    "SELECT g.id, a.name, g.pattern, g.options, g.description, g.memory, a.version, a.created_at"
    " FROM groups g JOIN agents a ON a.id = g.id"
    " WHERE a.constellation = ? AND a.deleted_at IS NULL"
)
_MEMBER = (
    "SELECT m.agent_id, a.name, m.role, m.domain, m.capabilities, m.weight,"
    # An archived agent takes no messages, and is asked again once it is back.
    " CASE WHEN a.archived_at IS NULL THEN m.active ELSE 0 END, m.position,"
    " (SELECT COUNT(*) FROM inbox i WHERE i.agent_id = m.agent_id)"
    " + (SELECT COUNT(*) FROM turns t WHERE t.agent_id = m.agent_id AND t.state = 'open'),"
    " m.since, m.group_id FROM group_members m JOIN agents a ON a.id = m.agent_id"
)


_ROLES = {role.value: role for role in Role}


def _member(row: Row, finishing: str | None = None) -> GroupMember:
    return GroupMember(
        agent_id=row[0],
        name=row[1],
        role=_ROLES[row[2]],
        domain=row[3],
        capabilities=tuple(orjson.loads(row[4])) if row[4] != "[]" else (),
        weight=float(row[5]),
        active=row[6] != 0,
        position=row[7],
        waiting=row[8] - (row[0] == finishing),
        since_ms=row[9],
    )


def _group(row: Row, members: Sequence[GroupMember]) -> GroupRecord:
    return GroupRecord(
        id=row[0],
        name=row[1],
        pattern=row[2],
        options=orjson.loads(row[3]),
        description=row[4],
        memory=orjson.loads(row[5]),
        version=int(row[6]),
        created_at_ms=int(row[7]),
        members=tuple(members),
    )


def _json(value: Any) -> str:
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()


async def create(tx: Connection, group: GroupRecord, wake_at: int | None) -> bool:
    """Store a new group without members; False if an agent or a group has its name."""
    row = await tx.one(
        "INSERT INTO agents (id, constellation, name, model, system, tools, limits, created_at,"
        " kind) VALUES (?, ?, ?, '', '', '[]', '{}', ?, ?) ON CONFLICT DO NOTHING RETURNING id",
        (group.id, tx.constellation, group.name, group.created_at_ms, GROUP),
    )
    if row is None:
        return False
    await tx.run(
        "INSERT INTO groups (id, pattern, options, memory, description, wake_at)"
        " VALUES (?, ?, ?, ?, ?, ?)",
        (
            group.id,
            group.pattern,
            _json(group.options),
            _json(group.memory),
            group.description,
            wake_at,
        ),
    )
    return True


async def by_name(tx: Connection, name: str) -> GroupRecord | None:
    """Return the group of that name or id with its members, or None."""
    row = None
    if name.startswith("group_"):
        row = await tx.one(f"{_GROUP} AND g.id = ?", (tx.constellation, name))
    if row is None:
        row = await tx.one(f"{_GROUP} AND a.name = ?", (tx.constellation, name))
    return _group(row, await members_of(tx, row[0])) if row else None


async def id_of(tx: Connection, name: str) -> str | None:
    """Return the id of the group of that name."""
    row = await tx.one(
        "SELECT id FROM agents WHERE constellation = ? AND name = ? AND kind = ?"
        " AND deleted_at IS NULL",
        (tx.constellation, name, GROUP),
    )
    return row[0] if row else None


_BY_ID = _GROUP.replace("a.constellation = ? AND a.deleted_at IS NULL", "g.id = ?")


async def by_id(tx: Connection, group_id: str, finishing: str | None = None) -> GroupRecord | None:
    """Return a group with its members, whatever its constellation: lanes work for all of them.

    Of the member that is `finishing` a turn, that turn is not counted as one that waits.
    """
    row = await tx.one(_BY_ID, (group_id,))
    return _group(row, await members_of(tx, group_id, finishing)) if row else None


async def everyone(tx: Connection) -> list[GroupRecord]:
    """Return all groups by name, with their members."""
    rows = await tx.all(f"{_GROUP} ORDER BY a.name", (tx.constellation,))
    members: dict[str, list[GroupMember]] = {row[0]: [] for row in rows}
    found = await tx.all(
        f"{_MEMBER} WHERE a.constellation = ? AND a.deleted_at IS NULL ORDER BY m.position",
        (tx.constellation,),
    )
    for row in found:
        if row[10] in members:
            members[row[10]].append(_member(row))
    return [_group(row, members[row[0]]) for row in rows]


async def members_of(
    tx: Connection, group_id: str, finishing: str | None = None
) -> list[GroupMember]:
    """Return the members of a group that are in service, in the order in which they joined.

    Of the one that is `finishing` a turn, that turn is not counted as one that waits.
    """
    rows = await tx.all(
        f"{_MEMBER} WHERE m.group_id = ? AND a.deleted_at IS NULL ORDER BY m.position", (group_id,)
    )
    return [_member(row, finishing) for row in rows]


async def stored_member(tx: Connection, group_id: str, agent_id: str) -> GroupMember | None:
    """Return a member as it was made: active or not, whether its agent is archived or not."""
    row = await tx.one(f"{_MEMBER} WHERE m.group_id = ? AND m.agent_id = ?", (group_id, agent_id))
    made = await tx.one(
        "SELECT active FROM group_members WHERE group_id = ? AND agent_id = ?",
        (group_id, agent_id),
    )
    return replace(_member(row), active=bool(made[0])) if row and made else None


async def edit(tx: Connection, group: GroupRecord) -> int | None:
    """Store the new name, pattern, options and description of a group; return its version.

    What the pattern keeps is dropped with another pattern.
    """
    row = await tx.one(
        "UPDATE agents SET name = ?, version = version + 1"
        " WHERE id = ? AND constellation = ? AND deleted_at IS NULL RETURNING version",
        (group.name, group.id, tx.constellation),
    )
    if row is None:
        return None
    await tx.run(
        "UPDATE groups SET memory = CASE WHEN pattern = ? THEN memory ELSE '{}' END,"
        " pattern = ?, options = ?, description = ? WHERE id = ?",
        (group.pattern, group.pattern, _json(group.options), group.description, group.id),
    )
    return int(row[0])


async def put_member(tx: Connection, group_id: str, member: GroupMember, at: int) -> None:
    """Add a member at the end, or change the one that is there."""
    changed = await tx.run(
        "UPDATE group_members SET role = ?, domain = ?, capabilities = ?, weight = ?, active = ?"
        " WHERE group_id = ? AND agent_id = ?",
        (
            member.role.value,
            member.domain,
            _json(member.capabilities),
            member.weight,
            int(member.active),
            group_id,
            member.agent_id,
        ),
    )
    if not changed:
        row = await tx.one(
            "UPDATE groups SET joined = joined + 1 WHERE id = ? RETURNING joined", (group_id,)
        )
        assert row is not None
        await tx.run(
            "INSERT INTO group_members VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                group_id,
                member.agent_id,
                row[0],
                member.role.value,
                member.domain,
                _json(member.capabilities),
                member.weight,
                int(member.active),
                at,
            ),
        )
    await _member_changed(tx, group_id, member.agent_id)


async def remove_member(tx: Connection, group_id: str, agent_id: str) -> bool:
    """Take a member out of a group; False if it is not one."""
    changed = await tx.run(
        "DELETE FROM group_members WHERE group_id = ? AND agent_id = ?", (group_id, agent_id)
    )
    if changed:
        await _member_changed(tx, group_id, agent_id)
    return changed > 0


async def _member_changed(tx: Connection, group_id: str, agent_id: str) -> None:
    """Note that a group has changed, and the tools that an agent has by its roles."""
    await tx.run("UPDATE agents SET version = version + 1 WHERE id IN (?, ?)", (group_id, agent_id))


async def groups_of(tx: Connection, agent_id: str) -> list[tuple[str, Role]]:
    """Return the names of the groups that an agent is in, and its role in each."""
    rows = await tx.all(
        "SELECT a.name, m.role FROM group_members m JOIN agents a ON a.id = m.group_id"
        " WHERE m.agent_id = ? AND a.deleted_at IS NULL ORDER BY a.name",
        (agent_id,),
    )
    return [(row[0], Role(row[1])) for row in rows]


async def with_member(tx: Connection, agent_id: str) -> list[GroupRecord]:
    """Return the groups that an agent is in, with their members."""
    rows = await tx.all(
        f"{_GROUP} AND g.id IN (SELECT group_id FROM group_members WHERE agent_id = ?)"
        " ORDER BY a.name",
        (tx.constellation, agent_id),
    )
    return [_group(row, await members_of(tx, row[0])) for row in rows]


async def set_options(tx: Connection, group_id: str, options: Mapping[str, Any]) -> None:
    """Store other options of a group's pattern."""
    await tx.run("UPDATE agents SET version = version + 1 WHERE id = ?", (group_id,))
    await tx.run("UPDATE groups SET options = ? WHERE id = ?", (_json(options), group_id))


async def groups_among(tx: Connection, agent_ids: Sequence[str]) -> frozenset[str]:
    """Return the ids of the groups that have members, and none but some agents."""
    rows = await tx.all(
        "SELECT m.group_id FROM group_members m JOIN agents g ON g.id = m.group_id"
        " JOIN agents a ON a.id = m.agent_id"
        " WHERE g.constellation = ? AND g.deleted_at IS NULL AND a.deleted_at IS NULL"
        " GROUP BY m.group_id"
        f" HAVING SUM(CASE WHEN m.agent_id IN ({marks(len(agent_ids))}) THEN 0 ELSE 1 END) = 0",
        (tx.constellation, *agent_ids),
    )
    return frozenset(row[0] for row in rows)


async def role_tools(tx: Connection, agent_id: str) -> tuple[str, ...]:
    """Return the tools that an agent has because of its roles in groups."""
    rows = await tx.all(
        "SELECT m.role, m.domain, g.pattern FROM group_members m"
        " JOIN groups g ON g.id = m.group_id JOIN agents a ON a.id = g.id"
        " WHERE m.agent_id = ? AND m.active = 1 AND a.deleted_at IS NULL",
        (agent_id,),
    )
    tools: set[str] = set()
    for role, domain, pattern in rows:
        if role == Role.SPECIALIST and domain in RESERVED_FOR_ROLES:
            tools.add(RESERVED_FOR_ROLES[domain])
        if role == Role.SUPERVISOR and pattern == "supervisor":
            tools.add("delegate")
    return tuple(sorted(tools))


async def keep(tx: Connection, group_id: str, pattern: str, memory: Mapping[str, Any]) -> None:
    """Store what a pattern keeps, unless the group has another pattern by now."""
    await tx.run(
        "UPDATE groups SET memory = ? WHERE id = ? AND pattern = ?",
        (_json(memory), group_id, pattern),
    )


async def is_idle(tx: Connection, group_id: str) -> bool:
    """Tell whether a group is in service, with nothing in its inbox and no turn that is open."""
    row = await tx.one(
        "SELECT 1 FROM agents a WHERE a.id = ? AND a.deleted_at IS NULL AND a.archived_at IS NULL"
        " AND NOT EXISTS (SELECT 1 FROM inbox i WHERE i.agent_id = a.id)"
        " AND NOT EXISTS (SELECT 1 FROM turns t WHERE t.agent_id = a.id AND t.state = 'open')",
        (group_id,),
    )
    return row is not None


async def is_waiting(tx: Connection, group_id: str, turn_id: str, results: Sequence[str]) -> bool:
    """Tell whether a turn of a group is open, nobody has stopped it, and these results wait."""
    row = await tx.one(
        "SELECT EXISTS (SELECT 1 FROM inbox i WHERE i.agent_id = t.agent_id) FROM turns t"
        " WHERE t.id = ? AND t.agent_id = ? AND t.state = 'open' AND t.stopping IS NULL",
        (turn_id, group_id),
    )
    if row is None or not row[0]:
        return row is not None and not results
    rows = await tx.all(
        "SELECT id FROM inbox WHERE agent_id = ? AND turn_id = ? AND kind = 'result'"
        " ORDER BY arrival",
        (group_id, turn_id),
    )
    return [row[0] for row in rows] == list(results)


async def pattern_of(tx: Connection, group_id: str) -> str | None:
    """Return the pattern of a group."""
    row = await tx.one("SELECT pattern FROM groups WHERE id = ?", (group_id,))
    return row[0] if row else None


async def set_wake(tx: Connection, group_id: str, wake_at: int | None) -> None:
    """Set when a group is looked at next, and tell those who wait for it."""
    # A row that is written without a change costs a page of the log.
    changed = await tx.one(
        "UPDATE groups SET wake_at = ? WHERE id = ? AND wake_at IS DISTINCT FROM ? RETURNING id",
        (wake_at, group_id, wake_at),
    )
    if changed is not None and wake_at is not None:
        await tx.notify("group", group_id)


async def due(tx: Connection, now: int, most: int) -> list[tuple[str, str, int]]:
    """Return groups that are to be looked at: id, constellation and since when."""
    rows = await tx.all(
        "SELECT g.id, a.constellation, g.wake_at FROM groups g JOIN agents a ON a.id = g.id"
        " WHERE g.wake_at <= ? AND a.deleted_at IS NULL ORDER BY g.wake_at LIMIT ?",
        (now, most),
    )
    return [(row[0], row[1], int(row[2])) for row in rows]


async def next_wake(tx: Connection) -> int | None:
    """Return when the next group is to be looked at."""
    row = await tx.one(
        "SELECT MIN(g.wake_at) FROM groups g JOIN agents a ON a.id = g.id"
        " WHERE a.deleted_at IS NULL"
    )
    return int(row[0]) if row and row[0] is not None else None


async def move_wake(tx: Connection, group_id: str, was: int, wake_at: int | None) -> bool:
    """Set when a group is looked at next; False if another process was quicker."""
    changed = await tx.run(
        "UPDATE groups SET wake_at = ? WHERE id = ? AND wake_at = ?", (wake_at, group_id, was)
    )
    return changed > 0


# -- what happens among members --------------------------------------------------------------------

_NOT_BY_AGENTS = "t.channel NOT LIKE 'group:%' AND t.channel NOT LIKE 'agent:%'"
_BY_PEOPLE = " AND ".join(
    f"{{turn}}.channel {condition}"
    for condition in (
        "NOT LIKE 'group:%'",
        "NOT LIKE 'agent:%'",
        "NOT IN ('sleeptime', 'schedule', 'heartbeat')",
    )
)
_OPENING = (
    " JOIN entries e ON e.agent_id = {turn}.agent_id AND e.turn_id = {turn}.id AND e.key = 'in'"
    " AND e.seq BETWEEN {turn}.first_seq AND {turn}.last_seq"
)
_SAID_TO_MEMBER = (
    f"SELECT t.arrived_at, e.body FROM turns t{_OPENING.format(turn='t')}"
    f" WHERE {_BY_PEOPLE.format(turn='t')}"
)
# Of the questions that a turn of a group has put to members, the first one stands for the message.
_SAID_TO_GROUP = (
    "SELECT o.arrived_at, e.body FROM turns t"
    " JOIN agent_messages m ON m.message_id = 'msg_' || SUBSTR(t.id, 6) AND m.key <> ''"
    " JOIN turns o ON o.id = m.turn_id AND o.agent_id = m.sender_id"
    f"{_OPENING.format(turn='o')} WHERE {_BY_PEOPLE.format(turn='o')}"
    " AND NOT EXISTS (SELECT 1 FROM agent_messages f WHERE f.sender_id = m.sender_id"
    " AND f.turn_id = m.turn_id AND f.key <> '' AND f.recipient_id IN ({members})"
    " AND (f.at < m.at OR (f.at = m.at AND f.message_id < m.message_id)))"
)


async def said_to(
    tx: Connection, agent_ids: Sequence[str], seen: Mapping[str, int], looked: int
) -> tuple[list[tuple[int, bytes]], dict[str, int]]:
    """Return what came for members since a look, with when, oldest first; and what is seen now.

    Turns count in the order in which they were written, not by their times: a message that waits
    in the inbox at a look counts at a later one. What comes by way of a group counts once. What
    groups and agents say by themselves does not count: a watch must not wake itself.

    Args:
        tx: A transaction.
        agent_ids: The members.
        seen: By member, the place in its journal up to which its turns were seen.
        looked: When the latest look was; it counts for members that are not in `seen`.
    """
    if not agent_ids:
        return [], {}
    ids = marks(len(agent_ids))
    # Read first: a turn that is written meanwhile counts at the next look.
    rows = await tx.all(
        f"SELECT agent_id, MAX(first_seq) FROM turns WHERE agent_id IN ({ids}) GROUP BY agent_id",
        tuple(agent_ids),
    )
    now_seen = dict.fromkeys(agent_ids, 0) | {row[0]: int(row[1]) for row in rows}
    some: list[str] = []
    values: list[Any] = []
    for agent_id, upto in now_seen.items():
        after = "t.first_seq > ?" if agent_id in seen else "t.arrived_at >= ?"
        some.append(f"(t.agent_id = ? AND {after} AND t.first_seq <= ?)")
        values += [agent_id, seen.get(agent_id, looked), upto]
    new = f" AND ({' OR '.join(some)})"
    found = await tx.all(f"{_SAID_TO_MEMBER}{new}", values)
    by_groups = _SAID_TO_GROUP.format(members=ids)
    found += await tx.all(f"{by_groups}{new}", (*agent_ids, *values))
    said = [(int(row[0]), bytes(row[1])) for row in found]
    return sorted(said, key=lambda pair: pair[0]), now_seen


async def waiting_messages(tx: Connection, agent_ids: Sequence[str]) -> list[tuple[int, bytes]]:
    """Return what people have said to agents and waits in their inboxes, with when."""
    rows = await tx.all(
        f"SELECT t.at, t.body FROM inbox t WHERE t.agent_id IN ({marks(len(agent_ids))})"
        f" AND t.kind = 'message' AND {_BY_PEOPLE.format(turn='t')}",
        tuple(agent_ids),
    )
    return [(int(row[0]), bytes(row[1])) for row in rows]


async def activity(tx: Connection, agent_ids: Sequence[str], since: int) -> dict[str, float]:
    """Return what members did: failed turns and tokens since a time, what is open and waits.

    What groups and agents say to members does not count: a watch must not wake itself.
    """
    if not agent_ids:
        return {}
    ids = marks(len(agent_ids))
    row = await tx.one(
        "SELECT"
        " COALESCE(SUM(CASE WHEN arrived_at > ? AND state = 'failed' THEN 1 ELSE 0 END), 0),"
        " COALESCE(SUM(CASE WHEN arrived_at > ? THEN tokens_in + tokens_out ELSE 0 END), 0),"
        " COALESCE(SUM(CASE WHEN state = 'open' THEN 1 ELSE 0 END), 0)"
        f" FROM turns t WHERE t.agent_id IN ({ids}) AND {_NOT_BY_AGENTS}",
        (since, since, *agent_ids),
    )
    assert row is not None
    waiting = await tx.one(
        f"SELECT COUNT(*) FROM inbox WHERE agent_id IN ({ids})", tuple(agent_ids)
    )
    return {
        "failed_turns": float(row[0]),
        "tokens": float(row[1]),
        "open_turns": float(row[2]),
        "waiting": float(waiting[0] if waiting else 0),
    }


# -- messages between agents -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AgentMessage:
    """A message from an agent or a group to another one, and the exchange that it belongs to."""

    message_id: str
    sender_id: str
    recipient_id: str
    thread: str
    """The turn that the exchange began with."""
    depth: int
    """How many messages led to it, itself counted."""
    turn_id: str
    """The turn that sent it."""
    key: str = ""
    """Of a question of a group, its key in the group's turn."""
    at_ms: int = 0

    @property
    def may_lead(self) -> bool:
        """Whether it is of the kind that whoever leads a group is asked."""
        return self.key.startswith(LEADER_KEY)


_MESSAGE = "message_id, sender_id, recipient_id, thread, depth, turn_id, key, at"


async def put_agent_message(tx: Connection, message: AgentMessage) -> None:
    """Note a message between agents, in the transaction that sends it."""
    await tx.run(
        f"INSERT INTO agent_messages (constellation, {_MESSAGE})"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            tx.constellation,
            message.message_id,
            message.sender_id,
            message.recipient_id,
            message.thread,
            message.depth,
            message.turn_id,
            message.key,
            message.at_ms,
        ),
    )


async def find_agent_message(tx: Connection, message_id: str) -> AgentMessage | None:
    """Return what is known of a message between agents; None if a person has sent it."""
    row = await tx.one(f"SELECT {_MESSAGE} FROM agent_messages WHERE message_id = ?", (message_id,))
    return AgentMessage(*row) if row else None


async def continue_exchange(
    tx: Connection, turn_id: str, message_id: str, agent_id: str, at: int
) -> None:
    """Let a message that an agent plans for itself belong to the exchange of its turn, if any.

    Else two agents that answer each other by schedules would begin a new exchange each time. What
    a person has asked a group for is no exchange: plans that a member makes then stand alone.
    """
    await tx.run("DELETE FROM agent_messages WHERE message_id = ?", (message_id,))
    opening = await find_agent_message(tx, message_id_for(turn_id))
    if opening is None or (opening.key and opening.depth == 1):
        return
    await put_agent_message(
        tx,
        AgentMessage(
            *(message_id, agent_id, agent_id, opening.thread, opening.depth, turn_id),
            at_ms=at,
        ),
    )


async def address_of(
    tx: Connection, turn_id: str, channel: str, reply_to: str | None
) -> tuple[str | None, str | None]:
    """Return the channel and the address for what follows later from a turn; None if none has it.

    The answer of a member goes to its group, but a reminder that it plans comes when the group's
    turn is over: it goes where the group's message came from.
    """
    if reply_to is not None:
        return channel, reply_to
    row = await tx.one(
        "SELECT t.channel, t.reply_to FROM agent_messages m"
        " JOIN turns t ON t.id = m.turn_id AND t.agent_id = m.sender_id"
        " WHERE m.message_id = ? AND m.key <> '' AND t.reply_to IS NOT NULL",
        (message_id_for(turn_id),),
    )
    return (row[0], row[1]) if row else (None, None)


async def leads(tx: Connection, question: AgentMessage) -> bool:
    """Tell whether whoever answers a question of a group may give tasks away in that turn."""
    if not question.may_lead:
        return False
    row = await tx.one("SELECT pattern FROM groups WHERE id = ?", (question.sender_id,))
    return row is not None and row[0] == "supervisor"


async def open_questions(tx: Connection, agent_id: str) -> list[AgentMessage]:
    """Return the questions of groups that an agent has yet to answer."""
    columns = ", ".join(f"m.{column}" for column in _MESSAGE.split(", "))
    rows = await tx.all(
        f"SELECT {columns} FROM groups g"
        " JOIN turns t ON t.agent_id = g.id AND t.ended_at IS NULL"
        " JOIN agent_messages m"
        " ON m.sender_id = g.id AND m.recipient_id = ? AND m.turn_id = t.id AND m.key <> ''"
        " WHERE m.constellation = ? AND NOT EXISTS"
        " (SELECT 1 FROM turns o WHERE o.agent_id = m.recipient_id"
        " AND o.id = 'turn_' || SUBSTR(m.message_id, 5) AND o.ended_at IS NOT NULL)"
        " ORDER BY m.at, m.message_id",
        (agent_id, tx.constellation),
    )
    return [AgentMessage(*row) for row in rows]


async def waits_for_person(tx: Connection, turn_id: str) -> bool:
    """Tell whether a member waits for a person in its turn for a turn of a group."""
    row = await tx.one(
        "SELECT 1 FROM agent_messages m"
        " JOIN turns t ON t.id = 'turn_' || SUBSTR(m.message_id, 5) AND t.state = 'parked'"
        " WHERE m.thread = COALESCE((SELECT o.thread FROM agent_messages o"
        " WHERE o.message_id = 'msg_' || SUBSTR(?, 6)), ?) AND m.turn_id = ? AND m.key <> ''"
        " AND t.stopping IS NULL AND NOT EXISTS (SELECT 1 FROM inbox i"
        " WHERE i.agent_id = t.agent_id AND i.turn_id = t.id AND i.kind = 'decision')"
        " AND NOT EXISTS (SELECT 1 FROM turns g WHERE g.id = ? AND g.stopping IS NOT NULL) LIMIT 1",
        (turn_id, turn_id, turn_id, turn_id),
    )
    return row is not None


async def latest_between(tx: Connection, sender_id: str, recipient_id: str) -> int | None:
    """Return when an agent last wrote to another one."""
    row = await tx.one(
        "SELECT MAX(at) FROM agent_messages WHERE sender_id = ? AND recipient_id = ? AND key = ''",
        (sender_id, recipient_id),
    )
    return int(row[0]) if row and row[0] is not None else None


async def count_between(tx: Connection, thread: str, one_id: str, other_id: str) -> int:
    """Return how many messages two agents have sent each other in an exchange."""
    row = await tx.one(
        "SELECT COUNT(*) FROM agent_messages WHERE thread = ? AND key = '' AND"
        " ((sender_id = ? AND recipient_id = ?) OR (sender_id = ? AND recipient_id = ?))",
        (thread, one_id, other_id, other_id, one_id),
    )
    return int(row[0]) if row else 0


async def thread_cost(tx: Connection, thread: str) -> int:
    """Return what the turns of an exchange have cost, in nano-dollars."""
    row = await tx.one(
        "SELECT COALESCE(SUM(amount), 0) FROM charges WHERE turn_id = ? OR turn_id IN"
        " (SELECT 'turn_' || SUBSTR(message_id, 5) FROM agent_messages WHERE thread = ?)",
        (thread, thread),
    )
    return int(row[0]) if row else 0
