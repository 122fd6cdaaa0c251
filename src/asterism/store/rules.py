"""Rules for tools at rest, and when tools that rules of time are for have last succeeded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from asterism.store.database import Connection
from asterism.types.rules import Rule, rules_text


async def put(tx: Connection, agent_id: str, version: int, rules: Sequence[Rule]) -> bool:
    """Give an agent these rules instead of those it had; False if it has changed meanwhile."""
    changed = await tx.run(
        "UPDATE agents SET rules = ?, version = version + 1"
        " WHERE id = ? AND version = ? AND deleted_at IS NULL",
        (rules_text(rules), agent_id, version),
    )
    return changed > 0


async def ran(tx: Connection, agent_id: str) -> dict[str, int]:
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
