"""Hostile tools, served by a server: each is offered or refused with a reason, and none hurts."""

import json
from pathlib import Path
from typing import Any, cast

import pytest
from mcp_types import jsonrpc_message_adapter

from asterism.errors import ToolError
from tests.mcp_servers.scene import call, open_servers, plain_server
from tests.unit.test_hostile_schemas import HOSTILE

pytestmark = pytest.mark.promise("S4")

NAMES: list[Any] = [
    "", " ", "a b", "größe", "名前", "😀", "a" * 64, "a" * 65, "a" * 300, "x" * 100_000,
    "../x", "a\x00b",
    "a\nb", "\u202eevil", "\U000e0041tag", "__proto__", "a.b.c", "a/b", "-", "_", "'; DROP TABLE",
    "<script>", None, 7, [], {}, True,
]  # fmt: skip
TOOLS: list[Any] = [
    None, 7, "tool", [], {}, {"name": "no_schema"}, {"inputSchema": {"type": "object"}},
    {"name": "desc", "description": 7, "inputSchema": {"type": "object"}},
    {"name": "hints", "annotations": "read", "inputSchema": {"type": "object"}},
    {"name": "hint", "annotations": {"readOnlyHint": "yes"}, "inputSchema": {"type": "object"}},
    {"name": "title", "title": {}, "icons": 7, "_meta": [], "inputSchema": {"type": "object"}},
    {"name": "out", "inputSchema": {"type": "object"}, "outputSchema": {"pattern": "(a+)+$"}},
    {"name": "nulls", "inputSchema": {"type": "object", "properties": None, "required": None}},
    {"name": "odd", "inputSchema": {"type": "object", "properties": {"a": 7}}},
    {"name": "needs", "inputSchema": {"type": "object", "required": [7]}},
    {"name": "long", "description": "x" * 500_000, "inputSchema": {"type": "object"}},
    {"name": "hidden", "description": "a\U000e0062\u200bb", "inputSchema": {"type": "object"}},
]  # fmt: skip


def sendable() -> list[Any]:
    """Everything hostile that a line of JSON can hold and a parser reads."""
    found: list[Any] = list(TOOLS)
    found += [{"name": name, "inputSchema": {"type": "object"}} for name in NAMES]
    for number, (_, schema) in enumerate(HOSTILE):
        one = {"name": f"schema_{number}", "inputSchema": schema}
        try:
            response = {"jsonrpc": "2.0", "id": 1, "result": {"tools": [one]}}
            jsonrpc_message_adapter.validate_json(json.dumps(response, allow_nan=False))
        except (TypeError, ValueError, RecursionError):
            continue  # a server cannot send it, or it is a matter of the test below
        found.append(one)
    return found


async def test_hostile_tools_are_offered_or_refused_with_a_reason(tmp_path: Path) -> None:
    tools = sendable()
    assert len(tools) >= 200
    server = plain_server(tmp_path, tools=[*tools, "add"], page=25, connect_timeout=60.0)
    async with open_servers(tmp_path / "kept", bad=server) as (servers, toolbox):
        standing = await servers.ask("bad")
        assert standing.listing is not None
        told = len(standing.listing.tools) + len(standing.listing.refused)
        assert len(standing.tools) == told
        assert told + duplicates(tools) >= len(tools)
        for one in standing.tools:
            assert (one.tool is None) == bool(one.refused)
            assert one.refused or toolbox.get(one.name, None) is one.tool
        assert toolbox.wire(None)
        hidden = toolbox.get("bad_hidden", None)
        assert hidden is not None
        assert hidden.wire()["function"]["description"] == "ab"
        assert await call(toolbox, "bad_add", '{"a": 1}') == '{"a": 1}'


def duplicates(tools: list[Any]) -> int:
    """Count what is told once for several: tools without a name, by their place in a page."""
    named = [cast("dict[str, Any]", one).get("name") for one in tools if isinstance(one, dict)]
    return len(tools) - sum(isinstance(name, str) for name in named)


@pytest.mark.parametrize("depth", [300, 20_000])
async def test_a_list_that_cannot_be_read_is_refused_in_time(tmp_path: Path, depth: int) -> None:
    deep = '{"a":' * depth + "1" + "}" * depth
    listed = f'{{"tools": [{{"name": "x", "inputSchema": {deep}}}]}}'
    server = plain_server(tmp_path, raw=listed, connect_timeout=20.0)
    async with open_servers(tmp_path / "kept", bad=server) as (servers, toolbox):
        with pytest.raises(ToolError, match=r"'bad' cannot be used: its answer cannot be read"):
            await servers.ask("bad")
        assert toolbox.names() == []
