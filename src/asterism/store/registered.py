"""Registered tools at rest, with all of their versions."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import orjson

from asterism.store.database import Connection, Row
from asterism.types.registered import HttpCall, RegisteredTool, ToolSpec

_COLUMNS = "name, version, spec, made_by, created_at, removed_at"
_NEWEST = (
    "version = (SELECT MAX(o.version) FROM registered_tools o"
    " WHERE o.constellation = registered_tools.constellation AND o.name = registered_tools.name)"
)


def _tool(row: Row) -> RegisteredTool:
    given: dict[str, Any] = orjson.loads(row[2])
    http = given.pop("http")
    effects = given.pop("effects")
    spec = ToolSpec(
        name=row[0],
        http=HttpCall(**http) if http else None,
        effects=None if effects is None else tuple(effects),
        **given,
    )
    return RegisteredTool(spec, int(row[1]), row[3], int(row[4]), row[5])


async def put(
    tx: Connection, constellation: str, spec: ToolSpec, made_by: str, now: int
) -> RegisteredTool:
    """Store a tool as the next version of its name."""
    row = await tx.one(
        "SELECT MAX(version) FROM registered_tools WHERE constellation = ? AND name = ?",
        (constellation, spec.name),
    )
    version = int(row[0] or 0) + 1 if row else 1
    kept = asdict(spec)
    del kept["name"]
    await tx.run(
        "INSERT INTO registered_tools"
        " (constellation, name, version, spec, made_by, created_at) VALUES (?, ?, ?, ?, ?, ?)",
        (constellation, spec.name, version, orjson.dumps(kept).decode(), made_by, now),
    )
    return RegisteredTool(spec, version, made_by, now)


async def listing(tx: Connection, constellation: str) -> list[RegisteredTool]:
    """Return the newest version of each tool that is offered."""
    rows = await tx.all(
        f"SELECT {_COLUMNS} FROM registered_tools"
        f" WHERE constellation = ? AND removed_at IS NULL AND {_NEWEST} ORDER BY name",
        (constellation,),
    )
    return [_tool(row) for row in rows]


async def versions(tx: Connection, constellation: str, name: str) -> list[RegisteredTool]:
    """Return all versions of a tool, the newest first."""
    rows = await tx.all(
        f"SELECT {_COLUMNS} FROM registered_tools"
        " WHERE constellation = ? AND name = ? ORDER BY version DESC",
        (constellation, name),
    )
    return [_tool(row) for row in rows]


async def remove(tx: Connection, constellation: str, name: str, now: int) -> bool:
    """Offer a tool no more; False if it was not offered."""
    changed = await tx.run(
        "UPDATE registered_tools SET removed_at = ?"
        f" WHERE constellation = ? AND name = ? AND removed_at IS NULL AND {_NEWEST}",
        (now, constellation, name),
    )
    return changed > 0
