"""Agents at rest."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import asdict

import orjson

from asterism.store.database import Connection, Row
from asterism.types.agents import Agent, Limits
from asterism.types.rules import rules_text, stored_rules

_FIELDS = ("id", "name", "model", "system", "tools", "limits", "version", "created_at", "rules")
_COLUMNS = ", ".join(_FIELDS)
_FILL: list[Callable[[Agent, object], None]] = [getattr(Agent, one).__set__ for one in _FIELDS]


def _agents(rows: Sequence[Row]) -> list[Agent]:
    """Return agents as they are stored."""
    # Column by column: the constructor of a frozen class takes three times as long for each of
    # them, and there may be ten thousand.
    found = [Agent.__new__(Agent) for _ in rows]
    for field, fill, stored in zip(_FIELDS, _FILL, zip(*rows, strict=True), strict=False):
        values: Sequence[object] = stored
        read = _READ.get(field)
        if read is not None:
            known = {text: read(text) for text in set(stored)}  # most agents have the same
            values = [known[text] for text in stored]
        deque(map(fill, found, values), maxlen=0)
    return found


def _agent(row: Row) -> Agent:
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


def _tools(agent: Agent) -> str | None:
    return orjson.dumps(agent.tools).decode() if agent.tools is not None else None


async def create(tx: Connection, constellation: str, agent: Agent) -> bool:
    """Store a new agent; False if its name is taken."""
    row = await tx.one(
        "INSERT INTO agents"
        " (id, constellation, name, model, system, tools, limits, created_at, rules)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING RETURNING id",
        (
            agent.id,
            constellation,
            agent.name,
            agent.model,
            agent.system,
            _tools(agent),
            orjson.dumps(asdict(agent.limits)).decode(),
            agent.created_at,
            rules_text(agent.rules),
        ),
    )
    return row is not None


async def by_name(tx: Connection, constellation: str, name: str) -> Agent | None:
    """Return the agent of that name or id, or None."""
    row = await tx.one(
        f"SELECT {_COLUMNS} FROM agents"
        " WHERE constellation = ? AND name = ? AND deleted_at IS NULL",
        (constellation, name),
    )
    if row is None and name.startswith("agent_"):
        row = await tx.one(
            f"SELECT {_COLUMNS} FROM agents"
            " WHERE constellation = ? AND id = ? AND deleted_at IS NULL",
            (constellation, name),
        )
    return _agent(row) if row else None


async def by_id(tx: Connection, agent_id: str) -> Agent | None:
    """Return an agent, also one that has been deleted since (its journal stays readable)."""
    row = await tx.one(f"SELECT {_COLUMNS} FROM agents WHERE id = ?", (agent_id,))
    return _agent(row) if row else None


async def everyone(tx: Connection, constellation: str) -> list[Agent]:
    """Return all agents of a constellation by name."""
    rows = await tx.all(
        f"SELECT {_COLUMNS} FROM agents WHERE constellation = ? AND deleted_at IS NULL"
        " ORDER BY name",
        (constellation,),
    )
    return _agents(rows)


async def ids(tx: Connection, constellation: str) -> list[str]:
    """Return the ids of all agents in service, by name."""
    rows = await tx.all(
        "SELECT id FROM agents WHERE constellation = ? AND deleted_at IS NULL ORDER BY name",
        (constellation,),
    )
    return [row[0] for row in rows]


async def count(tx: Connection, constellation: str) -> int:
    """Return how many agents there are."""
    row = await tx.one(
        "SELECT COUNT(*) FROM agents WHERE constellation = ? AND deleted_at IS NULL",
        (constellation,),
    )
    return int(row[0]) if row else 0


async def edit(tx: Connection, agent: Agent) -> int | None:
    """Store what an agent is now; return its new version, or None if it is gone."""
    row = await tx.one(
        "UPDATE agents SET name = ?, model = ?, system = ?, tools = ?, limits = ?,"
        " version = version + 1 WHERE id = ? AND deleted_at IS NULL RETURNING version",
        (
            agent.name,
            agent.model,
            agent.system,
            _tools(agent),
            orjson.dumps(asdict(agent.limits)).decode(),
            agent.id,
        ),
    )
    return int(row[0]) if row else None


async def delete(tx: Connection, agent_id: str, at: int) -> bool:
    """Take an agent out of service; its journal stays."""
    changed = await tx.run(
        "UPDATE agents SET deleted_at = ?, version = version + 1"
        " WHERE id = ? AND deleted_at IS NULL",
        (at, agent_id),
    )
    return changed > 0


async def memory_of(tx: Connection, agent_id: str) -> tuple[str, int]:
    """Return an agent's constellation, and how often what it sees of memory has changed."""
    row = await tx.one("SELECT constellation, memory FROM agents WHERE id = ?", (agent_id,))
    return (row[0], row[1]) if row else ("", 0)


async def memory_changed(tx: Connection, agent_ids: Sequence[str]) -> None:
    """Count a change of what agents see of memory, and tell whoever has them in memory."""
    for agent_id in dict.fromkeys(agent_ids):
        await tx.run("UPDATE agents SET memory = memory + 1 WHERE id = ?", (agent_id,))
        await tx.notify("memory", agent_id)


async def all_memory_changed(tx: Connection, constellation: str) -> None:
    """Count a change of what all agents of a constellation see of memory."""
    await tx.run("UPDATE agents SET memory = memory + 1 WHERE constellation = ?", (constellation,))
    await tx.notify("memory", "")
