"""MCP servers as they are met: well behaved, hanging, dying, changing their minds."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from asterism.config.settings import EffectSettings, McpSettings, McpToolSettings
from asterism.errors import ToolError
from asterism.tools.mcp.clients import McpBackoff, McpClients
from asterism.types.agents import Trust
from asterism.types.permissions import EffectKind
from asterism.types.turns import RetrySafety
from tests.mcp_servers.scene import call, calls_of, open_servers, plain_server, tool
from tests.scenes import until

pytestmark = pytest.mark.promise("S4")


async def test_tools_are_listed_page_by_page_and_called(tmp_path: Path) -> None:
    server = plain_server(tmp_path, tools=["add", "read.file", "größe"], page=1, noise=True)
    async with open_servers(tmp_path / "kept", home=server) as (servers, toolbox):
        standing = await servers.ask("home")
        assert [one.name for one in standing.tools] == ["home_add", "home_read_file", "home_gr_e"]
        assert json.loads(await call(toolbox, "home_read_file", '{"path": "a"}')) == {"path": "a"}
        assert calls_of(tmp_path) == ["read.file"]


async def test_tools_are_known_before_the_server_is_up(tmp_path: Path) -> None:
    server = plain_server(tmp_path, tools=["add"])
    async with open_servers(tmp_path / "kept", home=server) as (servers, _):
        await servers.ask("home")
    async with open_servers(tmp_path / "kept", connect=True, home=server) as (servers, toolbox):
        assert toolbox.names() == ["home_add"]
        assert servers.client("home").starts == 0
        await call(toolbox, "home_add")
        assert servers.client("home").starts == 1
    moved = server.model_copy(update={"env": {"OTHER": "1"}})
    async with open_servers(tmp_path / "kept", home=moved) as (_, toolbox):
        assert toolbox.names() == []


async def test_a_server_that_dies_is_started_again(tmp_path: Path) -> None:
    server = plain_server(tmp_path, tools=["die", "add"], says="out of memory")
    async with open_servers(tmp_path / "kept", home=server) as (servers, toolbox):
        await servers.ask("home")
        with pytest.raises(ToolError, match="may or may not have happened"):
            await call(toolbox, "home_die")
        assert await call(toolbox, "home_add") == "{}"
        assert servers.client("home").starts == 2
        assert calls_of(tmp_path) == ["die", "add"]


async def test_a_repeatable_call_is_sent_again_after_a_loss(tmp_path: Path) -> None:
    said = {"die_once": McpToolSettings(retry_safety="repeatable")}
    server = plain_server(tmp_path, tools=["die_once"]).model_copy(update={"tools": said})
    async with open_servers(tmp_path / "kept", home=server) as (servers, toolbox):
        await servers.ask("home")
        assert await call(toolbox, "home_die_once") == "alive"
        assert calls_of(tmp_path) == ["die_once", "die_once"]


async def test_a_server_that_cannot_start_is_left_alone_after_a_while(tmp_path: Path) -> None:
    server = plain_server(tmp_path, ends=4, says="no config found", tools=["add"])
    slow = McpBackoff(first=3.0, longest=3.0)
    async with open_servers(tmp_path / "kept", backoff=slow, home=server) as (servers, _):
        for _ in range(5):
            with pytest.raises(ToolError, match=r"cannot be used.*Last output: no config found"):
                await servers.ask("home")
        assert servers.client("home").starts == 1


async def test_a_hanging_call_ends_and_the_stuck_program_is_killed(tmp_path: Path) -> None:
    server = plain_server(tmp_path, tools=["hang", "add"], timeout=1.0, connect_timeout=60.0)
    async with open_servers(tmp_path / "kept", home=server) as (servers, toolbox):
        await servers.ask("home")
        with pytest.raises(TimeoutError):
            await call(toolbox, "home_hang")
        pids = [int(one) for one in (tmp_path / "plain.log.pids").read_text().split()]
        server_now = servers.client("home")
        await until(lambda: server_now.starts == 2 and server_now.connected)
        assert await call(toolbox, "home_add") == "{}"
        await until(lambda: not any(alive(pid) for pid in pids))


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


async def test_a_call_that_is_cancelled_ends_at_once(tmp_path: Path) -> None:
    server = plain_server(tmp_path, tools=["hang"], timeout=3_600.0)
    async with open_servers(tmp_path / "kept", home=server) as (servers, toolbox):
        await servers.ask("home")
        task = asyncio.create_task(call(toolbox, "home_hang"))
        await until((tmp_path / "plain.log.pids").exists)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_a_server_that_says_nothing_does_not_hold_up_anybody(tmp_path: Path) -> None:
    silent = plain_server(tmp_path, "silent", silent=True, connect_timeout=1.0)
    server = plain_server(tmp_path, tools=["add"])
    async with open_servers(tmp_path / "kept", connect=True, silent=silent, home=server) as (
        servers,
        toolbox,
    ):
        assert (await servers.ask("home")).offered == 1
        assert await call(toolbox, "home_add") == "{}"
        with pytest.raises(ToolError, match=r"'silent' (cannot be used|is not ready)"):
            await servers.ask("silent")


async def test_tools_follow_what_the_server_says(tmp_path: Path) -> None:
    live = tmp_path / "live.json"
    live.write_text(json.dumps([{"name": "change", "inputSchema": {"type": "object"}}]))
    server = plain_server(tmp_path, tools_from=str(live))
    async with open_servers(tmp_path / "kept", home=server) as (servers, toolbox):
        await servers.ask("home")
        wire = toolbox.wire(None)
        new = {"tools": [{"name": "sing", "inputSchema": {"type": "object"}}]}
        await call(toolbox, "home_change", json.dumps(new))
        await until(lambda: toolbox.names() == ["home_sing"])
        assert toolbox.wire(None) != wire


async def test_what_the_owner_says_of_tools_decides(tmp_path: Path) -> None:
    listed = [
        {
            "name": name,
            "inputSchema": {"type": "object", "properties": {"to": {"type": "string"}}},
            "annotations": hints,
        }
        for name, hints in (
            ("look", {"readOnlyHint": True, "openWorldHint": False}),
            ("browse", {"readOnlyHint": True, "openWorldHint": True}),
            ("wipe", {"readOnlyHint": False, "destructiveHint": True}),
            ("set", {"readOnlyHint": False, "destructiveHint": False, "idempotentHint": True}),
            ("mail", {}),
            ("secret", {}),
        )
    ]
    server = plain_server(tmp_path, tools=listed).model_copy(
        update={
            "deny": ("sec*",),
            "tools": {
                "mail": McpToolSettings(
                    effects=EffectSettings(kind="send", recipients=("to",)), ask=True, trust="web"
                )
            },
        }
    )
    trusted = server.model_copy(update={"trust_annotations": True})
    async with open_servers(tmp_path / "kept", a=server, b=trusted) as (servers, toolbox):
        for name in "ab":
            await servers.ask(name)
        refused = {one.own_name: one.refused for one in servers.status("a").tools if one.refused}
        assert refused == {"secret": "allow and deny leave it out"}

        def kinds(prefix: str) -> dict[str, EffectKind]:
            names = ("look", "browse", "wipe", "set", "mail")
            return {
                name: tool(toolbox, f"{prefix}_{name}").effects({"to": "x"})[0].kind
                for name in names
            }

        nothing = EffectKind.UNDECLARED
        assert kinds("a") == {
            **dict.fromkeys(("look", "browse", "wipe", "set"), nothing),
            "mail": EffectKind.SEND,
        }
        assert kinds("b") == {
            "look": EffectKind.READ,
            "browse": EffectKind.FETCH,
            "wipe": EffectKind.DELETE,
            "set": EffectKind.WRITE,
            "mail": EffectKind.SEND,
        }
        assert tool(toolbox, "b_mail").effects({"to": "x"})[0].recipients == ("x",)
        assert tool(toolbox, "a_mail").ask
        assert tool(toolbox, "a_mail").trust is Trust.WEB
        assert tool(toolbox, "a_browse").trust is Trust.WEB
        assert tool(toolbox, "a_look").trust is Trust.WEB  # whose words it passes on is not known
        assert tool(toolbox, "a_set").retry_safety is RetrySafety.UNKNOWN
        assert tool(toolbox, "b_set").retry_safety is RetrySafety.REPEATABLE


@pytest.mark.parametrize(
    ("result", "shown"),
    [
        ({"content": [{"type": "text", "text": "hello"}]}, "hello"),
        ({"content": [], "structuredContent": {"a": 1}}, '{"a":1}'),
        (
            {"content": [{"type": "text", "text": '{"a": 1}'}], "structuredContent": {"a": 1}},
            '{"a": 1}',
        ),
        (
            {"content": [{"type": "image", "data": "aGVsbG8=", "mimeType": "image/png"}]},
            "[image image/png, 6 bytes, which cannot be shown here]",
        ),
        (
            {"content": [{"type": "resource_link", "uri": "file:///a", "name": "a"}]},
            "[resource file:///a]",
        ),
        (
            {"content": [{"type": "resource", "resource": {"uri": "file:///a", "text": "hi"}}]},
            "[resource file:///a]\nhi",
        ),
        ({"content": []}, "Done; there was nothing to report."),
        (
            {"content": [{"type": "text", "text": "x" * 60_000}]},
            "x" * 50_000 + "\n(Cut: the first 50,000 of 60,000 characters are shown.)",
        ),
    ],
)
async def test_results(tmp_path: Path, result: dict[str, Any], shown: str) -> None:
    server = plain_server(tmp_path, tools=["answer"])
    async with open_servers(tmp_path / "kept", home=server) as (servers, toolbox):
        await servers.ask("home")
        assert await call(toolbox, "home_answer", json.dumps({"result": result})) == shown


@pytest.mark.parametrize(
    ("result", "reason"),
    [
        ({"content": [{"type": "text", "text": "no such city"}], "isError": True}, "no such city"),
        ({"content": "what?"}, "answer failed"),
        ({"content": [{"type": "hologram"}]}, "answer failed"),
        ([], "answer failed|no answer"),
    ],
)
async def test_failures_are_told(tmp_path: Path, result: Any, reason: str) -> None:
    server = plain_server(tmp_path, tools=["answer"], timeout=2.0)
    async with open_servers(tmp_path / "kept", home=server) as (servers, toolbox):
        await servers.ask("home")
        with pytest.raises((ToolError, TimeoutError)) as caught:
            await call(toolbox, "home_answer", json.dumps({"result": result}))
        if isinstance(caught.value, ToolError):
            assert caught.match(reason)


async def test_names_that_are_taken_are_refused_with_a_reason(tmp_path: Path) -> None:
    first = plain_server(tmp_path, "one", tools=["a.b", "a b", "a_b", "***"])
    second = plain_server(tmp_path, "two", tools=["a_b"]).model_copy(update={"prefix": "one"})
    async with open_servers(tmp_path / "kept", one=first, two=second) as (servers, toolbox):
        found = {one.own_name: one for one in (await servers.ask("one")).tools}
        assert found["a_b"].name == "one_a_b"
        assert found["a.b"].refused == "it would be called one_a_b, as 'a_b' is"
        assert found["***"].refused.startswith("its name has none of the characters")
        (other,) = (await servers.ask("two")).tools
        assert "another tool is called one_a_b already" in other.refused
        assert toolbox.names() == ["one_a_b"]


async def test_a_change_of_settings_touches_only_what_changed(tmp_path: Path) -> None:
    one, two = (plain_server(tmp_path, name, tools=["add"]) for name in ("one", "two"))
    async with open_servers(tmp_path / "kept", one=one, two=two) as (servers, toolbox):
        await servers.ask("one")
        await servers.ask("two")
        kept = servers.client("one")
        changed = two.model_copy(update={"prefix": "three"})
        servers.configure({"one": one, "two": changed}, connect=False)
        assert servers.client("one") is kept
        assert toolbox.names() == ["one_add", "three_add"]
        servers.configure({"one": one}, connect=False)
        assert toolbox.names() == ["one_add"]
        off = one.model_copy(update={"enabled": False})
        servers.configure({"one": off}, connect=False)
        assert toolbox.names() == []


async def test_secrets_and_variables_are_filled_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from asterism.tools.mcp.connection import McpHost
    from asterism.tools.tool import Toolbox
    from tests.mcp_servers.scene import FileVault

    async def secret(name: str) -> str | None:
        return {"TOKEN": "tok-123456"}.get(name)

    monkeypatch.setenv("MY_DIR", "/srv")
    server = McpSettings(
        command="/bin/sh",
        args=("-c", 'echo "$A $B $C" >&2; exit 1'),
        env={"A": "secret:TOKEN", "B": "x-${secret:TOKEN}", "C": "${MY_DIR}/${NONE:-other}"},
    )
    gone = server.model_copy(update={"env": {"A": "secret:GONE"}})
    place = tmp_path / "kept"
    servers = McpClients(place, McpHost(secret, FileVault(place)), Toolbox())
    servers.configure({"a": server, "gone": gone}, connect=False)
    try:
        with pytest.raises(ToolError, match="tok-123456 x-tok-123456 /srv/other"):
            await servers.ask("a")
        with pytest.raises(ToolError, match=r'not stored.*"asterism key set GONE"'):
            await servers.ask("gone")
    finally:
        await servers.stop()
    assert "tok-123456" not in "".join(one.read_text() for one in place.rglob("*.json"))


async def test_what_cannot_be_started_is_told(tmp_path: Path) -> None:
    server = McpSettings(command="/no/such/program")
    async with open_servers(tmp_path, home=server) as (servers, _):
        with pytest.raises(ToolError, match=r"/no/such/program cannot be started: No such file"):
            await servers.ask("home")


async def test_only_the_owner_reads_what_is_kept(tmp_path: Path) -> None:
    server = plain_server(tmp_path, tools=["add"])
    async with open_servers(tmp_path / "kept", home=server) as (servers, _):
        await servers.ask("home")
    for file in (tmp_path / "kept").iterdir():
        assert file.stat().st_mode & 0o077 == 0
