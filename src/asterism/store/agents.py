"""Agents at rest."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import orjson

from asterism.records import dataclass
from asterism.store import messages
from asterism.store.database import Connection, Row
from asterism.store.events import home_chain
from asterism.types.agents import (
    AgentRecord,
    Halt,
    HttpCall,
    Limits,
    RegisteredTool,
    Rule,
    ToolSpec,
    rules_text,
    stored_rules,
)
from asterism.types.turns import Notice

_FIELDS = (
    *("id", "name", "model", "system", "tools", "limits", "version", "created_at_ms", "rules"),
    "archived_at_ms",
)
_COLUMNS = ", ".join(field.removesuffix("_ms") for field in _FIELDS)
_FILL: list[Callable[[AgentRecord, object], None]] = [
    getattr(AgentRecord, field).__set__ for field in _FIELDS
]


def _agents(rows: Sequence[Row]) -> list[AgentRecord]:
    """Return agents as they are stored."""
    # Column by column: the constructor of a frozen class takes three times as long for each of
    # them, and there may be ten thousand.
    records = [AgentRecord.__new__(AgentRecord) for _ in rows]
    for field, fill, stored in zip(_FIELDS, _FILL, zip(*rows, strict=True), strict=False):
        values: Sequence[object] = stored
        read = _READ.get(field)
        if read is not None:
            known = {text: read(text) for text in set(stored)}  # most agents have the same
            values = [known[text] for text in stored]
        deque(map(fill, records, values), maxlen=0)
    return records


def _agent(row: Row) -> AgentRecord:
    return _agents([row])[0]


def _read_tools(text: str | None) -> tuple[str, ...] | None:
    return tuple(orjson.loads(text)) if text is not None else None


def _read_limits(text: str) -> Limits:
    return Limits(**orjson.loads(text))


_READ: dict[str, Callable[[str], object]] = {
    "tools": _read_tools,
    "limits": _read_limits,
    "rules": stored_rules,
}


def _tools(agent: AgentRecord) -> str | None:
    return orjson.dumps(agent.tools).decode() if agent.tools is not None else None


async def create(tx: Connection, agent: AgentRecord) -> bool:
    """Store a new agent; False if its name is taken."""
    row = await tx.one(
        "INSERT INTO agents"
        " (id, constellation, name, model, system, tools, limits, created_at, rules)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING RETURNING id",
        (
            agent.id,
            tx.constellation,
            agent.name,
            agent.model,
            agent.system,
            _tools(agent),
            orjson.dumps(asdict(agent.limits)).decode(),
            agent.created_at_ms,
            rules_text(agent.rules),
        ),
    )
    return row is not None


async def by_name(tx: Connection, name: str) -> AgentRecord | None:
    """Return the agent of that name or id, or None."""
    row = None
    if name.startswith("agent_"):  # an id leads to its own agent, whatever others are called
        row = await tx.one(
            f"SELECT {_COLUMNS} FROM agents"
            " WHERE constellation = ? AND id = ? AND deleted_at IS NULL",
            (tx.constellation, name),
        )
    if row is None:
        row = await tx.one(
            f"SELECT {_COLUMNS} FROM agents"
            " WHERE constellation = ? AND name = ? AND kind = 'agent' AND deleted_at IS NULL",
            (tx.constellation, name),
        )
    return _agent(row) if row else None


async def by_id(tx: Connection, agent_id: str) -> AgentRecord | None:
    """Return an agent, also a deleted agent (its journal stays readable)."""
    row = await tx.one(
        f"SELECT {_COLUMNS} FROM agents WHERE id = ? AND constellation = ?",
        (agent_id, tx.constellation),
    )
    return _agent(row) if row else None


async def facts_upto(tx: Connection, agent_id: str) -> int:
    """Return the entry up to which an agent's journal was read for facts."""
    row = await tx.one("SELECT facts_upto FROM agents WHERE id = ?", (agent_id,))
    return int(row[0]) if row else 0


async def facts_read(tx: Connection, agent_id: str, upto: int) -> bool:
    """Note how far an agent's journal was read for facts; False if that was noted before."""
    changed = await tx.run(
        "UPDATE agents SET facts_upto = ? WHERE id = ? AND facts_upto < ?", (upto, agent_id, upto)
    )
    return changed > 0


async def everyone(tx: Connection) -> list[AgentRecord]:
    """Return all agents of a constellation by name."""
    rows = await tx.all(
        f"SELECT {_COLUMNS} FROM agents"
        " WHERE constellation = ? AND kind = 'agent' AND deleted_at IS NULL ORDER BY name",
        (tx.constellation,),
    )
    return _agents(rows)


async def ids(tx: Connection) -> list[str]:
    """Return the ids of all agents in service, by name."""
    rows = await tx.all(
        "SELECT id FROM agents"
        " WHERE constellation = ? AND kind = 'agent' AND deleted_at IS NULL ORDER BY name",
        (tx.constellation,),
    )
    return [row[0] for row in rows]


async def has_name(tx: Connection, name: str) -> bool:
    """Tell whether an agent, archived or not, or a group has a name: they share their names."""
    row = await tx.one(
        "SELECT 1 FROM agents WHERE constellation = ? AND name = ? AND deleted_at IS NULL",
        (tx.constellation, name),
    )
    return row is not None


async def count(tx: Connection) -> int:
    """Return how many agents there are."""
    row = await tx.one(
        "SELECT COUNT(*) FROM agents"
        " WHERE constellation = ? AND kind = 'agent' AND deleted_at IS NULL",
        (tx.constellation,),
    )
    return int(row[0]) if row else 0


async def edit(tx: Connection, agent: AgentRecord) -> int | None:
    """Store the new state of an agent; return its version, or None if it was deleted."""
    row = await tx.one(
        "UPDATE agents SET name = ?, model = ?, system = ?, tools = ?, limits = ?,"
        " version = version + 1 WHERE id = ? AND constellation = ? AND deleted_at IS NULL"
        " RETURNING version",
        (
            agent.name,
            agent.model,
            agent.system,
            _tools(agent),
            orjson.dumps(asdict(agent.limits)).decode(),
            agent.id,
            tx.constellation,
        ),
    )
    return int(row[0]) if row else None


async def delete(tx: Connection, agent_id: str, at: int) -> bool:
    """Take an agent out of service; its journal stays."""
    changed = await tx.run(
        "UPDATE agents SET deleted_at = ?, version = version + 1"
        " WHERE id = ? AND constellation = ? AND deleted_at IS NULL",
        (at, agent_id, tx.constellation),
    )
    return changed > 0


async def set_archived(tx: Connection, agent_id: str, at: int | None) -> int | None:
    """Archive an agent, or with None unarchive it; return its new version, None if it was so."""
    was = "IS NULL" if at is not None else "IS NOT NULL"
    row = await tx.one(
        "UPDATE agents SET archived_at = ?, version = version + 1"
        f" WHERE id = ? AND constellation = ? AND deleted_at IS NULL AND archived_at {was}"
        " RETURNING version",
        (at, agent_id, tx.constellation),
    )
    if row is None:
        return None
    if at is None:
        # What has come before it was archived, and what has fallen due meanwhile.
        await tx.enqueue(agent_id)
        await tx.notify("lane", agent_id)
        await tx.notify("schedule", agent_id)
    return int(row[0])


async def constellation_of(tx: Connection, agent_id: str) -> str | None:
    """Return the constellation of any agent; None if it does not exist."""
    row = await tx.one("SELECT constellation FROM agents WHERE id = ?", (agent_id,))
    return row[0] if row else None


async def memory_of(tx: Connection, agent_id: str) -> int:
    """Return how often the memory that an agent sees has changed."""
    row = await tx.one("SELECT memory FROM agents WHERE id = ?", (agent_id,))
    return row[0] if row else 0


async def memory_changed(tx: Connection, agent_ids: Sequence[str]) -> None:
    """Count a change of the memory that agents see, and notify processes that have them loaded."""
    for agent_id in dict.fromkeys(agent_ids):
        await tx.run("UPDATE agents SET memory = memory + 1 WHERE id = ?", (agent_id,))
        await tx.notify("memory", agent_id)


async def all_memory_changed(tx: Connection) -> None:
    """Count a change of the memory that all agents of a constellation see."""
    await tx.run(
        "UPDATE agents SET memory = memory + 1 WHERE constellation = ?", (tx.constellation,)
    )
    await tx.notify("memory", "")


_HALT_COLUMNS = "id, agent_id, turn_id, severity, reason, at"
TOPIC = "halt"
"""What is announced when a constellation is halted or goes on, with its name."""


async def put_halt(tx: Connection, halt: Halt) -> None:
    """Halt a constellation; other processes are notified at the commit."""
    await tx.run(
        f"INSERT INTO halts (constellation, {_HALT_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?)",
        (
            tx.constellation,
            halt.id,
            halt.agent_id,
            halt.turn_id,
            halt.severity,
            halt.reason,
            halt.at_ms,
        ),
    )
    await tx.notify(TOPIC, tx.constellation)


async def current_halt(tx: Connection) -> Halt | None:
    """Return the first halt that was not lifted, if there is one."""
    row = await tx.one(
        f"SELECT {_HALT_COLUMNS} FROM halts WHERE constellation = ? AND lifted_at IS NULL"
        " ORDER BY at, id LIMIT 1",
        (tx.constellation,),
    )
    return Halt(*row) if row else None


async def lift_halt(tx: Connection, by: str, at: int) -> int:
    """Let a constellation go on; return how many halts stood in its way."""
    changed = await tx.run(
        "UPDATE halts SET lifted_at = ?, lifted_by = ?"
        " WHERE constellation = ? AND lifted_at IS NULL",
        (at, by, tx.constellation),
    )
    if changed:
        await tx.notify(TOPIC, tx.constellation)
        # Lanes that had nothing to do while it stood must look again.
        for agent_id in await messages.busy_agents(tx):
            await tx.enqueue(agent_id)
            await tx.notify("lane", agent_id)
    return changed


async def put_rules(tx: Connection, agent_id: str, version: int, rules: Sequence[Rule]) -> bool:
    """Replace the rules of an agent; False if the agent has changed meanwhile."""
    changed = await tx.run(
        "UPDATE agents SET rules = ?, version = version + 1"
        " WHERE id = ? AND version = ? AND deleted_at IS NULL",
        (rules_text(rules), agent_id, version),
    )
    return changed > 0


async def runs_of(tx: Connection, agent_id: str) -> dict[str, int]:
    """Return when tools last succeeded in the turns of an agent that had rules of time for them."""
    rows = await tx.all(
        "SELECT tool, at FROM tool_runs WHERE agent_id = ? ORDER BY tool", (agent_id,)
    )
    return {row[0]: int(row[1]) for row in rows}


async def have_run(tx: Connection, agent_id: str, times: Mapping[str, int]) -> None:
    """Note when tools have succeeded."""
    for tool, at in sorted(times.items()):
        await tx.run(
            "INSERT INTO tool_runs (agent_id, tool, at) VALUES (?, ?, ?)"
            " ON CONFLICT (agent_id, tool) DO UPDATE SET at = excluded.at"
            " WHERE excluded.at > tool_runs.at",
            (agent_id, tool, at),
        )


_TOOL_COLUMNS = "name, version, spec, made_by, created_at, removed_at"
_NEWEST = (
    "version = (SELECT MAX(o.version) FROM registered_tools o"
    " WHERE o.constellation = registered_tools.constellation AND o.name = registered_tools.name)"
)


def _tool(row: Row) -> RegisteredTool:
    stored: dict[str, Any] = orjson.loads(row[2])
    http = stored.pop("http")
    effects = stored.pop("effects")
    spec = ToolSpec(
        name=row[0],
        http=HttpCall(**http) if http else None,
        effects=None if effects is None else tuple(effects),
        **stored,
    )
    return RegisteredTool(spec, int(row[1]), row[3], int(row[4]), row[5])


async def put_tool(tx: Connection, spec: ToolSpec, made_by: str, now: int) -> RegisteredTool:
    """Store a tool as the next version of its name."""
    row = await tx.one(
        "SELECT MAX(version) FROM registered_tools WHERE constellation = ? AND name = ?",
        (tx.constellation, spec.name),
    )
    version = int(row[0] or 0) + 1 if row else 1
    stored = asdict(spec)
    del stored["name"]
    await tx.run(
        "INSERT INTO registered_tools"
        " (constellation, name, version, spec, made_by, created_at) VALUES (?, ?, ?, ?, ?, ?)",
        (tx.constellation, spec.name, version, orjson.dumps(stored).decode(), made_by, now),
    )
    return RegisteredTool(spec, version, made_by, now)


async def registered_tools(tx: Connection) -> list[RegisteredTool]:
    """Return the newest version of each tool that is offered."""
    rows = await tx.all(
        f"SELECT {_TOOL_COLUMNS} FROM registered_tools"
        f" WHERE constellation = ? AND removed_at IS NULL AND {_NEWEST} ORDER BY name",
        (tx.constellation,),
    )
    return [_tool(row) for row in rows]


async def tool_versions(tx: Connection, name: str) -> list[RegisteredTool]:
    """Return all versions of a tool, the newest first."""
    rows = await tx.all(
        f"SELECT {_TOOL_COLUMNS} FROM registered_tools"
        " WHERE constellation = ? AND name = ? ORDER BY version DESC",
        (tx.constellation, name),
    )
    return [_tool(row) for row in rows]


async def remove_tool(tx: Connection, name: str, now: int) -> bool:
    """Offer a tool no more; False if it was not offered."""
    changed = await tx.run(
        "UPDATE registered_tools SET removed_at = ?"
        f" WHERE constellation = ? AND name = ? AND removed_at IS NULL AND {_NEWEST}",
        (now, tx.constellation, name),
    )
    return changed > 0


async def put_notice(tx: Connection, notice: Notice) -> None:
    """Store a notice in the transaction of its cause.

    One about the home has the name of its chain of events in the place of an agent's id.
    """
    await tx.run(
        "INSERT INTO notices (id, agent_id, turn_id, kind, text, at) VALUES (?, ?, ?, ?, ?, ?)",
        (notice.id, notice.agent_id, notice.turn_id, notice.kind, notice.text, notice.at_ms),
    )


async def has_notice(tx: Connection, notice_id: str) -> bool:
    """Tell whether the owner was told something before."""
    return await tx.one("SELECT 1 FROM notices WHERE id = ?", (notice_id,)) is not None


_NOTICE = "id, agent_id, turn_id, kind, text, at"
_OWN_NOTICE = "(agent_id = ? OR agent_id IN (SELECT id FROM agents WHERE constellation = ?))"


async def get_notice(tx: Connection, notice_id: str) -> Notice | None:
    """Return a notice of this constellation, seen or not."""
    row = await tx.one(
        f"SELECT {_NOTICE} FROM notices WHERE id = ? AND {_OWN_NOTICE}",
        (notice_id, home_chain(tx.constellation), tx.constellation),
    )
    return Notice(*row) if row else None


async def list_notices(
    tx: Connection, *, unseen: bool, most: int, after: Notice | None = None
) -> list[Notice]:
    """Return notices, oldest first.

    Args:
        tx: A transaction.
        unseen: Whether only those that were not seen.
        most: How many at most.
        after: The last notice of the page before.
    """
    such: list[str] = [_OWN_NOTICE]
    values: list[object] = [home_chain(tx.constellation), tx.constellation]
    if unseen:
        such.append("seen_at IS NULL")
    if after is not None:
        such.append("(at, id) > (?, ?)")
        values += [after.at_ms, after.id]
    rows = await tx.all(
        f"SELECT {_NOTICE} FROM notices WHERE {' AND '.join(such)} ORDER BY at, id LIMIT ?",
        (*values, most),
    )
    return [Notice(*row) for row in rows]


async def mark_notice_seen(tx: Connection, ids: list[str], at: int) -> None:
    """Note that the owner has seen these."""
    await tx.run_many(
        "UPDATE notices SET seen_at = ? WHERE id = ? AND seen_at IS NULL"
        " AND agent_id IN (SELECT id FROM agents WHERE constellation = ?)",
        [(at, notice_id, tx.constellation) for notice_id in ids],
    )


async def is_agent_of(tx: Connection, agent_id: str) -> bool:
    """Tell whether an agent is, or was, of a constellation."""
    row = await tx.one(
        "SELECT 1 FROM agents WHERE id = ? AND constellation = ?", (agent_id, tx.constellation)
    )
    return row is not None


@dataclass(frozen=True, slots=True)
class PassageOwner:
    """The owner of an archive: an agent, or a source of documents."""

    id: str
    name: str
    kind: str
    """`agent` or `source`."""


async def attached_sources(tx: Connection, agent_id: str) -> list[PassageOwner]:
    """Return the sources that an agent may read, by name."""
    rows = await tx.all(
        "SELECT s.id, s.name FROM source_agents a JOIN sources s ON s.id = a.source_id"
        " WHERE a.agent_id = ? ORDER BY s.name",
        (agent_id,),
    )
    return [PassageOwner(row[0], row[1], "source") for row in rows]


async def sources_attached_to_any(tx: Connection) -> list[tuple[PassageOwner, str]]:
    """Return the sources that some agent in service may read, by name, each with one who may."""
    rows = await tx.all(
        "SELECT s.id, s.name, MIN(g.id) FROM sources s JOIN source_agents a ON a.source_id = s.id"
        " JOIN agents g ON g.id = a.agent_id AND g.deleted_at IS NULL"
        " WHERE s.constellation = ? GROUP BY s.id, s.name ORDER BY s.name",
        (tx.constellation,),
    )
    return [(PassageOwner(row[0], row[1], "source"), row[2]) for row in rows]
