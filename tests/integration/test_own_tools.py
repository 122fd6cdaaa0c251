"""Shell, files and registered tools, through an agent that calls them."""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from asterism import AgentRecord, Asterism, ToolContext, ToolError
from asterism.config import Settings
from asterism.errors import Conflict, InvalidInput, NotFound
from asterism.tools.builtin.files import Files, file_tool
from asterism.tools.builtin.shell import BackgroundPrograms, Workspaces, shell_tool
from asterism.tools.tool import Decision, NeedsApproval, Tool
from asterism.types.agents import HttpCall
from asterism.types.permissions import EffectKind

AGENT = AgentRecord("agent_1", "aria", "demo:guide", "", 0)
Call = Callable[..., Any]


def context(decision: Decision | None = None, agent: AgentRecord = AGENT) -> ToolContext:
    return ToolContext(agent, "turn_1", "turn_1/0/call/0", 0, decision=decision)


async def call(tool: Tool, decision: Decision | None = None, **arguments: Any) -> str:
    return await tool.run(context(decision), tool.read(json.dumps(arguments)))


def settings(**given: Any) -> Callable[[], Settings]:
    made = Settings.model_validate(given)
    return lambda: made


# -- shell ----------------------------------------------------------------------------------------


@pytest.fixture
async def shell(tmp_path: Path) -> AsyncIterator[Tool]:
    spawned = BackgroundPrograms()
    yield shell_tool(Workspaces(tmp_path), spawned)
    await spawned.close()


@pytest.mark.promise("S1")
async def test_a_command_runs_in_the_agents_own_folder(shell: Tool, tmp_path: Path):
    told = await call(shell, operation="execute", command="echo hi > a; cat a; echo no >&2; exit 4")
    assert told.startswith("Exit code 4. (")
    assert told.endswith("hi\nno")
    assert (tmp_path / "workspaces" / "agent_1" / "a").read_text() == "hi\n"
    assert (await call(shell, op="EXECUTE", cmd="cat a")).endswith("hi")


@pytest.mark.promise("S1")
async def test_a_command_that_takes_too_long_is_ended_and_told(shell: Tool):
    told = await call(shell, command="echo begun; sleep 100", timeout=1)
    assert told.startswith("Ended after 1 s")
    assert "begun" in told
    with pytest.raises(ToolError, match="needs a command"):
        await call(shell, command=" ")
    with pytest.raises(ToolError, match="timeout"):
        await call(shell, command="true", timeout=0)


@pytest.mark.promise("S1")
async def test_what_is_spawned_outlasts_the_call_and_can_be_ended(shell: Tool):
    started = await call(shell, operation="spawn", command="echo going; sleep 1000")
    task = started.split()[2].rstrip(".")
    async with asyncio.timeout(120):
        while "going" not in await call(shell, operation="status"):  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    assert "running" in await call(shell, operation="status")
    other = AgentRecord("agent_2", "bo", "demo:guide", "", 0)
    nothing = await shell.run(context(agent=other), shell.read('{"operation": "status"}'))
    assert nothing.startswith("No programs")
    with pytest.raises(ToolError, match="no task"):
        await shell.run(context(agent=other), shell.read(f'{{"op": "kill", "task_id": "{task}"}}'))
    assert "Stopped" in await call(shell, operation="kill", task_id=task)
    assert "had ended before" in await call(shell, operation="kill", task_id=task)
    assert f"{task} (ended)" in await call(shell, operation="status")


@pytest.mark.promise("S1")
async def test_a_home_that_may_not_shut_programs_in_runs_none(tmp_path: Path):
    nowhere = Workspaces(tmp_path, settings(sandbox={"kind": "bubblewrap"}))
    if os.environ.get("PATH"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PATH", "/nonexistent")
            refused = shell_tool(nowhere, BackgroundPrograms())
            with pytest.raises(ToolError, match="No sandbox works here"):
                await call(refused, command="echo hi")
            said = "I know that programs will run with my rights"
            wanted = settings(sandbox={"kind": "bubblewrap", "allow_unsandboxed": said})
            allowed = shell_tool(Workspaces(tmp_path, wanted), BackgroundPrograms())
            assert (await call(allowed, command="echo hi")).endswith("hi")
    with pytest.raises(ValueError, match="write exactly"):
        settings(sandbox={"allow_unsandboxed": "yes"})


@pytest.mark.promise("S2")
def test_what_a_command_does_is_declared(tmp_path: Path):
    quiet = shell_tool(Workspaces(tmp_path), BackgroundPrograms())
    (effect,) = quiet.effects(quiet.read('{"command": "rm x"}'))
    assert (effect.kind, effect.things) == (EffectKind.RUN, ("rm x",))
    loud = shell_tool(
        Workspaces(tmp_path, settings(sandbox={"network": True})), BackgroundPrograms()
    )
    kinds = {one.kind for one in loud.effects(loud.read('{"command": "curl a"}'))}
    assert kinds == {EffectKind.RUN, EffectKind.FETCH}


# -- files ----------------------------------------------------------------------------------------


@pytest.fixture
def place(tmp_path: Path) -> Path:
    for name in ("notes", "asked", "shown", "data"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.md").write_text("one\ntwo\n")
    return tmp_path


@pytest.fixture
def files(place: Path) -> Tool:
    rules = [
        {"paths": [f"{place}/notes/secret*"], "permission": "none"},
        {"paths": [f"{place}/notes/**"], "permission": "read_write"},
        {"paths": [f"{place}/asked/**"], "permission": "human"},
        {"paths": [f"{place}/shown/*.md"], "permission": "read"},
        {"paths": [f"{place}/data/**"], "permission": "read_write"},
    ]
    return file_tool(
        Files(Workspaces(place / "data", settings(files={"rule": rules, "largest_kb": 8})))
    )


@pytest.mark.promise("S1")
async def test_every_operation_on_a_file(files: Tool, place: Path):
    assert "Wrote" in await call(files, operation="create", path="a/b.md", content="one\n")
    with pytest.raises(ToolError, match="already exists"):
        await call(files, operation="create", path="a/b.md", content="two")
    assert "Wrote" in await call(files, operation="append", path="/workspace/a/b.md", content="two")
    assert "Wrote" in await call(files, operation="replace", path="a/b.md", old="two", new="2\n")
    assert (await call(files, operation="load", path="a/b.md")).endswith("\none\n2\n")
    assert (await call(files, operation="status")) == "a/b.md: as loaded"
    (place / "data/workspaces/agent_1/a/b.md").write_text("one\nthree\n")
    assert "changed since" in await call(files, operation="status")
    for operation in ("save", "append", "replace", "delete"):
        with pytest.raises(ToolError, match="changed by somebody else"):
            await call(files, operation=operation, path="a/b.md", content="x", old="one", new="1")
    assert "-2\n+three" in await call(files, operation="diff", path="a/b.md")
    assert "three" in await call(files, operation="reload", path="a/b.md")
    assert "Wrote" in await call(files, operation="save", path="a/b.md", content="mine")
    assert "b.md (4 bytes)" in await call(files, operation="list", path="a")
    assert "Deleted" in await call(files, operation="delete", path="a/b.md")
    assert await call(files, operation="list", path="a") == "a is empty."
    with pytest.raises(ToolError, match="does not exist"):
        await call(files, operation="load", path="a/b.md")


@pytest.mark.promise("S1")
@pytest.mark.parametrize(
    ("path", "operation", "reason"),
    [
        ("{place}/notes/secret.md", "load", r"rule 1 of \[files\]"),
        ("{place}/shown/a.md", "append", r"rule 4 of \[files\]"),
        ("{place}/shown/a.txt", "load", "no rule"),
        ("{place}/data/asterism.db", "load", "the data of this home"),
        ("{place}/data/workspaces/agent_2/x", "create", "the data of this home"),
        ("/etc/passwd", "load", "no rule"),
        ("~/.ssh/id_ed25519", "load", "no rule"),
        ("../agent_2/x", "load", "the data of this home"),
        ("{place}/notes/../asterism.toml", "load", "no rule"),
        ("link-to-etc/passwd", "load", "no rule"),
        ("link-to-data", "save", "the data of this home"),
        ("/proc/self/environ", "load", "no rule"),
        ("\0", "load", "not a valid path"),
    ],
)
async def test_what_no_rule_allows_is_refused_with_the_rule(
    files: Tool, place: Path, path: str, operation: str, reason: str
):
    await call(files, operation="list")
    own = place / "data/workspaces/agent_1"
    (own / "link-to-etc").symlink_to("/etc")
    (own / "link-to-data").symlink_to(place / "data/a.md")
    with pytest.raises(ToolError, match=reason):
        await call(files, operation=operation, path=path.format(place=place), content="x")
    assert (place / "data/a.md").read_text() == "one\ntwo\n"


@pytest.mark.promise("S1")
async def test_rules_let_agents_out_of_their_folder(files: Tool, place: Path):
    assert "two" in await call(files, operation="load", path=f"{place}/notes/a.md")
    assert "Wrote" in await call(
        files, operation="save", path=f"{place}/notes/new/b.md", content="x"
    )
    assert (place / "notes/new/b.md").read_text() == "x"
    asked = f"{place}/asked/a.md"
    assert "two" in await call(files, operation="load", path=asked)
    with pytest.raises(NeedsApproval, match="May aria add to"):
        await call(files, operation="append", path=asked, content="three")
    with pytest.raises(ToolError, match="not allowed"):
        await call(files, Decision(approved=False), operation="append", path=asked, content="three")
    assert (place / "asked/a.md").read_text() == "one\ntwo\n"
    await call(files, Decision(approved=True), operation="append", path=asked, content="three")
    assert (place / "asked/a.md").read_text() == "one\ntwo\nthree"


@pytest.mark.promise("S1")
async def test_a_link_that_is_swapped_in_is_not_followed(
    files: Tool, place: Path, monkeypatch: pytest.MonkeyPatch
):
    """Between the look at a path and its opening, a program puts a link in its place."""
    from asterism.tools.builtin.files import ResolvedPath, resolve_path

    await call(files, operation="create", path="dir/a.md", content="mine")
    own = place / "data/workspaces/agent_1"

    def swap(given: str, **named: Any) -> ResolvedPath:
        found = resolve_path(given, **named)
        (own / "dir").rename(own / f"before-{len(list(own.iterdir()))}")
        (own / "dir").symlink_to(place / "shown")
        return found

    monkeypatch.setattr("asterism.tools.builtin.files.resolve_path", swap)
    for operation in ("load", "append", "delete"):
        with pytest.raises(ToolError, match=r"not a folder|a link"):
            await call(files, operation=operation, path="dir/a.md", content="x")
        (own / "dir").unlink()
        (own / "dir").mkdir()
        (own / "dir/a.md").write_text("mine")
    assert (place / "shown/a.md").read_text() == "one\ntwo\n"


@pytest.mark.promise("S1")
async def test_odd_files_are_told_in_words(files: Tool, place: Path):
    await call(files, operation="list")
    own = place / "data/workspaces/agent_1"
    (own / "image").write_bytes(b"\x89PNG\0\0")
    (own / "latin").write_bytes("größe".encode("latin-1"))
    (own / "big").write_bytes(b"x" * 20_000)
    os.mkfifo(own / "pipe")
    for name, reason in (
        ("image", "not text"),
        ("latin", "UTF-8"),
        ("big", "20,000 bytes"),
        ("pipe", "not a file"),
        (".", "a folder|not a file"),
        ("a/b", "does not exist"),
        ("x" * 300, "too long a name"),
    ):
        with pytest.raises(ToolError, match=reason):
            await call(files, operation="load", path=name)
    with pytest.raises(ToolError, match="the limit is 8,192"):
        await call(files, operation="create", path="huge", content="x" * 9_000)
    (own / "there").write_text("not seen")
    with pytest.raises(ToolError, match="have not loaded"):
        await call(files, operation="save", path="there", content="x")
    (own / "twice").write_text("ab ab")
    with pytest.raises(ToolError, match="2 times"):
        await call(files, operation="replace", path="twice", old="ab", new="c")
    with pytest.raises(ToolError, match="cannot be deleted"):
        await call(files, operation="delete", path=".")


async def test_long_files_come_in_pages(tmp_path: Path):
    files = file_tool(Files(Workspaces(tmp_path)))
    text = "".join(f"line {number}\n" for number in range(2_500))
    await call(files, operation="create", path="long", content=text)
    read, offset = "", 0
    for _ in range(3):
        head, _, page = (await call(files, operation="load", path="long", offset=offset)).partition(
            "\n"
        )
        assert ("continue with offset" in head) == (len(read) + len(page) < len(text))
        read += page
        offset = len(read)
    assert read == text


# -- registered tools -----------------------------------------------------------------------------

ADD = {
    "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
    "required": ["a", "b"],
    "additionalProperties": False,
}
SOURCE = "def run(a, b):\n    return {'sum': a + b}\n"


@pytest.fixture
async def home(tmp_path: Path) -> AsyncIterator[Asterism]:
    async with Asterism.open(tmp_path / "data", environ={}, work=False) as opened:
        yield opened


async def use(home: Asterism, name: str, **arguments: Any) -> str:
    tool = home.toolbox.get(name, None)
    assert tool is not None
    return await call(tool, **arguments)


@pytest.mark.promise("S5")
async def test_python_that_was_registered_runs_in_the_sandbox(home: Asterism):
    made = await home.tools.add("add", "Adds.", ADD, python=SOURCE, effects=[{"kind": "read"}])
    assert made.version == 1
    assert await use(home, "add", a=1, b=2) == '{"sum":3}'
    with pytest.raises(ToolError, match="'b' is a required property"):
        await use(home, "add", a=1)
    loud = "async def run(a, b):\n    print('hm')\n    return a\n"
    assert (await home.tools.add("add", "Adds.", ADD, python=loud)).version == 2
    assert await use(home, "add", a=1, b=2) == "1\n(It printed: hm)"
    for body, reason in (
        ("raise ValueError('no')", "ValueError in line 2: no"),
        ("return open('/etc/shadow').read()", "FileNotFoundError|PermissionError"),
        ("import os; os._exit(3)", "returned no result. Exit code 3"),
        ("return object()", "TypeError"),
        ("return float('nan')", "ValueError"),
        ("import socket; socket.create_connection(('127.0.0.1', 9), 1)", "Error"),
    ):
        await home.tools.add("add", "Adds.", ADD, python=f"def run(a, b):\n    {body}\n")
        with pytest.raises(ToolError, match=reason):
            await use(home, "add", a=1, b=2)


@pytest.mark.promise("S5")
async def test_registered_tools_are_there_after_a_restart_until_removed(tmp_path: Path):
    async with Asterism.open(tmp_path, environ={}, work=False) as home:
        await home.tools.add("add", "Adds.", ADD, python=SOURCE)
        await home.tools.add("add", "Adds two.", ADD, python=SOURCE)
    async with Asterism.open(tmp_path, environ={}, work=False) as home:
        assert await use(home, "add", a=2, b=2) == '{"sum":4}'
        assert [one.version for one in await home.tools.versions("add")] == [2, 1]
        await home.tools.remove("add")
        assert home.toolbox.get("add", None) is None
        with pytest.raises(NotFound, match="add"):
            await home.tools.remove("add")
        assert (await home.tools.versions("add"))[0].removed_at_ms is not None
    async with Asterism.open(tmp_path, environ={}, work=False) as home:
        assert home.toolbox.get("add", None) is None
        assert (await home.tools.add("add", "Adds.", ADD, python=SOURCE)).version == 3


@pytest.mark.promise("S5")
@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"name": "a b"}, "is not a valid tool name"),
        ({"python": "def run(:"}, "not valid Python"),
        ({"python": "x = 1"}, 'no function "run"'),
        ({"python": None}, "exactly one of Python source and an address"),
        ({"description": " "}, "no description"),
        ({"schema": {"type": "string"}}, "type 'string'"),
        ({"effects": [{"kind": "explode"}]}, "effects are not valid"),
        ({"effects": [{"kind": "send", "whom": "to"}]}, "effects are not valid"),
        ({"trust": "owner"}, "its trust is 'owner'"),
        ({"retry_safety": "transactional"}, "its retry safety"),
        ({"timeout": 0}, "its timeout"),
        ({"python": None, "http": HttpCall("file:///etc/passwd")}, "not an http or https address"),
        ({"python": None, "http": HttpCall("https://{a}/x")}, "has to be fixed"),
        ({"python": None, "http": HttpCall("https://e.org/{c}")}, "is not a parameter"),
        ({"python": None, "http": HttpCall("https://e.org", "TRACE")}, "its method"),
        (
            {"python": None, "http": HttpCall("https://e.org", headers={"X": "a\nB: c"})},
            "not a header name",
        ),
    ],
)
async def test_what_cannot_be_registered_is_refused(
    home: Asterism, given: dict[str, Any], reason: str
):
    usual: dict[str, Any] = {
        "name": "add", "description": "Adds.", "schema": ADD, "python": SOURCE
    }  # fmt: skip
    with pytest.raises(InvalidInput, match=reason):
        await home.tools.add(**{**usual, **given})
    assert await home.tools.list() == []


async def test_a_name_that_is_taken_is_refused(home: Asterism):
    with pytest.raises(Conflict, match="built in"):
        await home.tools.add("shell", "Mine.", ADD, python=SOURCE)


@pytest.mark.promise("S5")
async def test_a_request_carries_a_call_out(tmp_path: Path):
    seen: list[tuple[str, str, dict[str, str], str]] = []

    async def answer(request: web.Request) -> web.Response:
        body = await request.text()
        seen.append((request.method, request.path_qs, dict(request.headers), body))
        if "moved" in request.path:
            raise web.HTTPFound("http://169.254.169.254/")
        return web.Response(text="ordered", status=500 if "bad" in request.path else 200)

    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    address = f"http://127.0.0.1:{port}"
    try:
        allowed = {"web": {"allow": [f"127.0.0.1:{port}"]}}
        async with Asterism.open(
            tmp_path, environ={"ASTERISM_MASTER_KEY": ""}, settings=allowed, work=False
        ) as home:
            await home.keys.set("shop", "sk-very-secret")
            call_ = HttpCall(f"{address}/o/{{a}}", headers={"X-Key": "secret:shop"})
            await home.tools.add("order", "Orders.", ADD, http=call_)
            assert await use(home, "order", a=1, b=2) == "ordered"
            method, path, headers, body = seen[-1]
            assert (method, path, json.loads(body)) == ("POST", "/o/1", {"b": 2})
            assert headers["X-Key"] == "sk-very-secret"
            await home.tools.add("order", "Orders.", ADD, http=HttpCall(f"{address}/x", "GET"))
            await use(home, "order", a=1, b=2)
            assert seen[-1][1] == "/x?a=1&b=2"
            for path, reason in (("bad", "status 500"), ("moved", "status 302")):
                await home.tools.add("order", "Orders.", ADD, http=HttpCall(f"{address}/{path}"))
                with pytest.raises(ToolError, match=reason):
                    await use(home, "order", a=1, b=2)
            gone = HttpCall(f"{address}/x", headers={"X-Key": "secret:gone"})
            await home.tools.add("order", "Orders.", ADD, http=gone)
            with pytest.raises(ToolError, match="gone"):
                await use(home, "order", a=1, b=2)
        async with Asterism.open(tmp_path, environ={}, work=False) as home:
            count = len(seen)
            with pytest.raises(ToolError, match=r"private network|gone"):
                await use(home, "order", a=1, b=2)
            assert len(seen) == count
    finally:
        await runner.cleanup()


@pytest.fixture
async def server() -> AsyncIterator[tuple[str, list[str]]]:
    """A server of the owner's that keeps what it was asked for, as it came over the wire."""
    seen: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        seen.append(request.raw_path)
        return web.Response(text="fine")

    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield f"127.0.0.1:{runner.addresses[0][1]}", seen
    await runner.cleanup()


NAMED = {"properties": {"id": {"type": "string"}, "more": {"type": "string"}}}


@pytest.mark.promise("S5")
async def test_a_placeholder_is_one_segment_of_the_path(
    tmp_path: Path, server: tuple[str, list[str]]
):
    host, seen = server
    settings = {"web": {"allow": [host]}}
    async with Asterism.open(tmp_path, environ={}, settings=settings, work=False) as home:
        url = f"http://{host}/users/{{id}}/notes"
        await home.tools.add("look", "Looks.", NAMED, http=HttpCall(url, "GET"))
        for given, path in (
            ("7", "/users/7/notes"),
            ("a b?c#d&e=f", "/users/a%20b%3Fc%23d%26e%3Df/notes"),
            ("group/project", "/users/group%2Fproject/notes"),
            ("{id}", "/users/%7Bid%7D/notes"),
            ("...", "/users/.../notes"),
            ("a..b", "/users/a..b/notes"),
            ("größe", "/users/gr%C3%B6%C3%9Fe/notes"),
            ("100%", "/users/100%25/notes"),
            ("a;admin=1", "/users/a%3Badmin%3D1/notes"),
            ("%41", "/users/%2541/notes"),
        ):
            assert await use(home, "look", id=given) == "fine"
            assert seen[-1] == path
        seen.clear()
        for given in (
            *("..", ".", "", "%2e%2e", "%2E.", "%252e%252e", "../admin", "a/../../b", "..\\b"),
            *("..%2fadmin", "..%5Cadmin", "a%2f..%2fb", "./"),
        ):
            with pytest.raises(ToolError, match=r"Nothing was sent\."):
                await use(home, "look", id=given)
        # Made of two placeholders, it is the same.
        two = HttpCall(f"http://{host}/users/{{id}}{{more}}/notes", "GET")
        await home.tools.add("look", "Looks.", NAMED, http=two)
        with pytest.raises(ToolError, match=r"Nothing was sent\."):
            await use(home, "look", id=".", more=".")
        assert seen == []
        # Beyond the path, dots are dots.
        await home.tools.add(
            "look", "Looks.", NAMED, http=HttpCall(f"http://{host}/x?q={{id}}", "GET")
        )
        await use(home, "look", id="..")
        await use(home, "look", id="a&admin=1")
        assert seen == ["/x?q=..", "/x?q=a%26admin%3D1"]


@pytest.mark.promise("S5")
@pytest.mark.parametrize("method", ["GET", "DELETE"])
async def test_arguments_do_not_replace_what_the_address_fixes(
    tmp_path: Path, server: tuple[str, list[str]], method: str
):
    host, seen = server
    settings = {"web": {"allow": [host]}}
    async with Asterism.open(tmp_path, environ={}, settings=settings, work=False) as home:
        fixed = HttpCall(f"http://{host}/x?team=blue&as%5Fuser=me&only", method)
        await home.tools.add("look", "Looks.", NAMED, http=fixed)
        for name in ("team", "as_user", "only"):
            with pytest.raises(ToolError, match=f"{name!r} is fixed .* Nothing was sent"):
                await use(home, "look", id="7", **{name: "red"})
        assert seen == []
        assert await use(home, "look", id="7") == "fine"
        assert seen[-1].startswith("/x?team=blue&as_user=me&only")
        assert seen[-1].endswith("&id=7")
        clash = HttpCall(f"http://{host}/x?id=1", method)
        with pytest.raises(InvalidInput, match="fixes 'id', which is also a parameter"):
            await home.tools.add("look", "Looks.", NAMED, http=clash)


@pytest.mark.promise("S1")
async def test_a_command_that_makes_too_many_files_is_ended_and_told(tmp_path: Path):
    few = shell_tool(Workspaces(tmp_path, settings(sandbox={"files": 100})), BackgroundPrograms())
    made = await call(few, command="i=0; while :; do i=$((i+1)); : > f$i; sleep 0.001; done")
    assert made.startswith("Ended, since your folder holds too many files.")
