"""Groups at rest: their members, what their patterns keep, and the messages between agents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from asterism.records import dataclass
from asterism.store.database import Connection, Row, marks
from asterism.types.groups import RESERVED_FOR_ROLES, GroupMember, GroupRecord, Role

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


def _member(row: Row) -> GroupMember:
    return GroupMember(
        agent_id=row[0],
        name=row[1],
        role=Role(row[2]),
        domain=row[3],
        capabilities=tuple(orjson.loads(row[4])),
        weight=float(row[5]),
        active=bool(row[6]),
        position=int(row[7]),
        waiting=int(row[8]),
        since_ms=int(row[9]),
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
    row = await tx.one(f"{_GROUP} AND a.name = ?", (tx.constellation, name))
    if row is None and name.startswith("group_"):
        row = await tx.one(f"{_GROUP} AND g.id = ?", (tx.constellation, name))
    return _group(row, await members_of(tx, row[0])) if row else None


async def by_id(tx: Connection, group_id: str) -> GroupRecord | None:
    """Return a group with its members, whatever its constellation: lanes work for all of them."""
    row = await tx.one(
        f"{_GROUP.replace('a.constellation = ? AND a.deleted_at IS NULL', 'g.id = ?')}", (group_id,)
    )
    return _group(row, await members_of(tx, group_id)) if row else None


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


async def members_of(tx: Connection, group_id: str) -> list[GroupMember]:
    """Return the members of a group that are in service, in the order in which they joined."""
    rows = await tx.all(
        f"{_MEMBER} WHERE m.group_id = ? AND a.deleted_at IS NULL ORDER BY m.position", (group_id,)
    )
    return [_member(row) for row in rows]


async def edit(tx: Connection, group: GroupRecord, wake_at: int | None) -> int | None:
    """Store the new name, pattern, options and description of a group; return its version."""
    row = await tx.one(
        "UPDATE agents SET name = ?, version = version + 1"
        " WHERE id = ? AND constellation = ? AND deleted_at IS NULL RETURNING version",
        (group.name, group.id, tx.constellation),
    )
    if row is None:
        return None
    await tx.run(
        "UPDATE groups SET pattern = ?, options = ?, memory = ?, description = ?, wake_at = ?"
        " WHERE id = ?",
        (
            group.pattern,
            _json(group.options),
            _json(group.memory),
            group.description,
            wake_at,
            group.id,
        ),
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


async def keep(
    tx: Connection, group_id: str, memory: Mapping[str, Any] | None, wake_at: int | None
) -> None:
    """Store what a pattern keeps, unless that stays as it is, and when to look at it again."""
    if memory is None:
        await tx.run("UPDATE groups SET wake_at = ? WHERE id = ?", (wake_at, group_id))
    else:
        await tx.run(
            "UPDATE groups SET memory = ?, wake_at = ? WHERE id = ?",
            (_json(memory), wake_at, group_id),
        )


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


async def activity(
    tx: Connection, agent_ids: Sequence[str], since: int, looked: int
) -> tuple[int, int | None, list[str], dict[str, float]]:
    """Return what members did: messages since a time, the latest of all, texts, and metrics.

    What groups and agents say to members does not count: a watch must not wake itself.
    """
    if not agent_ids:
        return 0, None, [], {}
    ids = marks(len(agent_ids))
    row = await tx.one(
        "SELECT COALESCE(SUM(CASE WHEN arrived_at > ? THEN 1 ELSE 0 END), 0), MAX(arrived_at),"
        " COALESCE(SUM(CASE WHEN arrived_at > ? AND state = 'failed' THEN 1 ELSE 0 END), 0),"
        " COALESCE(SUM(CASE WHEN arrived_at > ? THEN tokens_in + tokens_out ELSE 0 END), 0),"
        " COALESCE(SUM(CASE WHEN state = 'open' THEN 1 ELSE 0 END), 0)"
        f" FROM turns t WHERE t.agent_id IN ({ids}) AND {_NOT_BY_AGENTS}",
        (since, since, since, *agent_ids),
    )
    assert row is not None
    waiting = await tx.one(
        f"SELECT COUNT(*) FROM inbox WHERE agent_id IN ({ids})", tuple(agent_ids)
    )
    texts = await tx.all(
        "SELECT e.body FROM turns t JOIN entries e ON e.agent_id = t.agent_id"
        " AND e.seq BETWEEN t.first_seq AND t.last_seq AND e.turn_id = t.id AND e.key = 'in'"
        f" WHERE t.agent_id IN ({ids}) AND t.arrived_at > ? AND {_NOT_BY_AGENTS}"
        " ORDER BY t.arrived_at LIMIT 200",
        (*agent_ids, looked),
    )
    metrics = {
        "messages": float(row[0]),
        "failed_turns": float(row[2]),
        "tokens": float(row[3]),
        "open_turns": float(row[4]),
        "waiting": float(waiting[0] if waiting else 0),
    }
    return int(row[0]), row[1], [bytes(found[0]).decode() for found in texts], metrics


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
