"""Every role at every door: the OpenAI-compatible API, the MCP server and calls of verbs by name.

A home has two agents, of which a narrowed token knows one; whatever is of the other, or of the
owner alone, has the word Orchid in it, so that a single look at an answer shows a leak.
"""

import asyncio
import json
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from asterism import Asterism, ToolEffect, TurnState, tool
from asterism.api import endpoints
from asterism.api import openai as openai_door
from asterism.api.mcp_tools import TOOLS
from asterism.api.server import HttpApplication, Server, bind
from asterism.testing.clock import ManualClock
from asterism.times import to_datetime
from asterism.wire import to_line
from tests.scenes import open_home

pytestmark = [pytest.mark.promise("X1"), pytest.mark.promise("A3"), pytest.mark.promise("A4")]

SECRET = "Orchid"
ROLES = ("owner", "admin", "editor", "operator", "partner", "viewer", "agent-service", "narrowed")
"""Every role, and `narrowed`: a token of the owner for one agent alone."""
OUTSIDE = ("expired", "revoked")
ALL = frozenset(ROLES)
TALKERS = ALL - {"viewer"}
OF_ALL_AGENTS = ALL - {"agent-service", "narrowed"}
SEES_EVERYTHING = frozenset({"owner", "admin"})


@tool(effects=ToolEffect("pay", recipients="to"), ask=True)
def pay(to: str) -> str:
    """Pay somebody."""
    return f"paid {to}"


@dataclass
class Scene:
    """A home with something of everything, who comes to it, and what it held at the beginning."""

    home: Asterism
    client: httpx.AsyncClient
    secrets: dict[str, str]
    approvals: dict[str, str] = field(default_factory=dict[str, str])
    """The question of each agent that waits, by the agent."""

    def headers(self, role: str) -> dict[str, str]:
        return {"authorization": f"Bearer {self.secrets[role]}"}

    async def openai(self, role: str, method: str, path: str, body: Any = None) -> httpx.Response:
        return await self.client.request(
            method, f"/openai/v1{path}", json=body, headers=self.headers(role)
        )

    def mcp_request(self, role: str, method: str, **params: Any) -> dict[str, Any]:
        """A request of the revision 2026-07-28, which has no sessions."""
        meta = {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
            "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
        }
        headers = {
            "accept": "application/json, text/event-stream",
            "mcp-protocol-version": "2026-07-28",
            "mcp-method": method,
        }
        named = params.get("name") or params.get("uri")
        if named is not None:
            headers["mcp-name"] = named
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {"_meta": meta, **params}}
        return {"json": body, "headers": headers | self.headers(role)}

    async def mcp(self, role: str, method: str, **params: Any) -> httpx.Response:
        """Send a request to the MCP server."""
        return await self.client.post("/mcp", **self.mcp_request(role, method, **params))

    async def tool(self, role: str, name: str, **arguments: Any) -> tuple[bool, str]:
        """Call a tool of the MCP server; return whether it was done, and all that was answered."""
        answer = await self.mcp(role, "tools/call", name=name, arguments=arguments)
        result = message_of(answer)
        assert "error" not in result, result
        return not result["result"].get("isError", False), json.dumps(result["result"])

    async def state(self) -> list[Any]:
        """All that a request could have changed: turns, blocks, decisions."""
        turns = await self.home.turns.list(limit=1_000)
        blocks = await self.home.blocks.list()
        asked = await self.home.approvals.list()
        return [
            sorted((turn.id, turn.state) for turn in turns),
            sorted((seen.block.id, seen.block.version) for seen in blocks),
            sorted(approval.id for approval in asked),
        ]


def message_of(answer: httpx.Response) -> Any:
    """The answer to a request of MCP, whether it came as JSON or as an event."""
    if answer.headers["content-type"].startswith("text/event-stream"):
        lines = [line for line in answer.text.splitlines() if line.startswith("data: ")]
        return json.loads(lines[-1].removeprefix("data: "))
    return answer.json()


@asynccontextmanager
async def scene(place: Path) -> AsyncGenerator[Scene, None]:
    """A home at its doors."""
    clock = ManualClock()
    async with open_home(place, tools=[pay], clock=clock) as home:
        for name in ("aria", "bea", "cleo"):
            await home.agents.create(name)
        await home.groups.create("pair", members=["aria", "bea"])
        await home.groups.create("solo", members=["aria"])
        await home.groups.create(f"{SECRET} nobody")
        await home.blocks.create("aria", "plans", "Paint the door.", audience="public")
        await home.blocks.create("aria", "diary", f"{SECRET} of aria", audience="owner")
        await home.blocks.create("bea", "garden", f"{SECRET} of bea", audience="public")
        await home.archive.add("bea", f"{SECRET} grows in the cellar", audience="public")
        secrets = await tokens(home, clock)
        application = HttpApplication(home)
        transport = httpx.ASGITransport(application)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            made = Scene(home, client, secrets)
            for agent in ("aria", "bea"):
                asked = await home.agents.ask(agent, f'[[call:pay {{"to": "{SECRET} {agent}"}}]]')
                assert asked.state is TurnState.PARKED
                (question,) = [
                    each for each in await home.approvals.list() if each.turn_id == asked.turn_id
                ]
                made.approvals[agent] = question.id
            await home.agents.archive("cleo")
            async with asyncio.timeout(120):
                yield made
        await application.close()


async def tokens(home: Asterism, clock: ManualClock) -> dict[str, str]:
    """A token of every role, and two that let nobody in any more."""
    secrets: dict[str, str] = {}
    for role in ROLES:
        only = ["aria"] if role in ("agent-service", "narrowed") else []
        granted = "owner" if role == "narrowed" else role
        secrets[role] = (await home.tokens.create(f"a-{role}", role=granted, agents=only)).secret
    soon = to_datetime(clock() + 1_000)
    secrets["expired"] = (await home.tokens.create("an-expired", expires_at=soon)).secret
    clock.forward(seconds=timedelta(minutes=1).total_seconds())
    secrets["revoked"] = (await home.tokens.create("a-revoked")).secret
    await home.tokens.revoke("a-revoked")
    return secrets


def hi(model: str, text: str = "hello", **more: Any) -> dict[str, Any]:
    return {"model": model, "messages": [{"role": "user", "content": text}], **more}


# -- the OpenAI-compatible API ---------------------------------------------------------------------


OPENAI: list[tuple[str, str, Any, frozenset[str], int]] = [
    ("GET", "/models", None, ALL, 200),
    ("GET", "/models/aria", None, ALL, 200),
    ("GET", "/models/bea", None, OF_ALL_AGENTS, 200),
    ("GET", "/models/pair", None, OF_ALL_AGENTS, 200),
    ("GET", "/models/nobody", None, frozenset(), 404),
    ("POST", "/chat/completions", hi("aria"), TALKERS, 200),
    ("POST", "/chat/completions", hi("aria", stream=True), TALKERS, 200),
    ("POST", "/chat/completions", hi("bea"), TALKERS & OF_ALL_AGENTS, 200),
    ("POST", "/chat/completions", hi("pair"), TALKERS & OF_ALL_AGENTS, 200),
    ("POST", "/chat/completions", hi("pair", stream=True), TALKERS & OF_ALL_AGENTS, 200),
    ("POST", "/chat/completions", hi("cleo"), frozenset(), 409),
    ("POST", "/responses", {"model": "aria", "input": "hello"}, TALKERS, 200),
    ("POST", "/responses", {"model": "aria", "input": "hello", "stream": True}, TALKERS, 200),
    ("POST", "/responses", {"model": "bea", "input": "hello"}, TALKERS & OF_ALL_AGENTS, 200),
    ("GET", "/responses/resp_0", None, frozenset(), 404),
    ("DELETE", "/responses/resp_0", None, frozenset(), 405),
    ("GET", "/embeddings", None, frozenset(), 404),
]
"""What is asked, who is answered, and with which status; where nobody is, why not."""


@pytest.mark.parametrize("role", ROLES)
async def test_each_role_at_the_openai_door(tmp_path: Path, role: str):
    async with scene(tmp_path) as made:
        for method, path, body, allowed, status in OPENAI:
            before = await made.state()
            answer = await made.openai(role, method, path, body)
            told = (role, method, path, body, answer.text)
            if role in allowed:
                assert answer.status_code == status, told
            else:
                refused = {status} if not allowed else {403, 404}
                # Whoever may not talk is refused before it is looked whether an agent works.
                refused |= {403} if role == "viewer" else set()
                refused |= {404} if role not in OF_ALL_AGENTS else set()
                assert answer.status_code in refused, told
                error = answer.json()["error"]
                assert {"message", "type", "param", "code"} == set(error), told
                assert await made.state() == before, told
            if role not in OF_ALL_AGENTS:
                assert SECRET not in answer.text, told
                asked = json.dumps([path, body])
                assert "bea" in asked or "bea" not in answer.text, told
            if role not in SEES_EVERYTHING | {"narrowed"}:
                assert SECRET not in answer.text.replace(f"{SECRET} nobody", ""), told


@pytest.mark.parametrize("role", OUTSIDE)
async def test_a_token_that_has_ended_opens_no_door(tmp_path: Path, role: str):
    async with scene(tmp_path) as made:
        before = await made.state()
        for method, path, body, _, _ in OPENAI:
            answer = await made.openai(role, method, path, body)
            assert answer.status_code == 401, (path, answer.text)
            assert answer.headers["www-authenticate"] == "Bearer"
            assert answer.headers["content-type"] == "application/json"
            error = answer.json()["error"]
            assert (error["type"], error["code"]) == ("invalid_request_error", "invalid_api_key")
        for method in ("tools/list", "resources/list", "server/discover"):
            assert (await made.mcp(role, method)).status_code == 401
        called = await made.client.post("/api/call", headers=made.headers(role))
        assert called.status_code == 401
        assert await made.state() == before


@pytest.mark.parametrize("role", ROLES)
async def test_models_are_those_that_can_be_asked(tmp_path: Path, role: str):
    """What is listed can be looked up, and nothing of other agents is listed."""
    async with scene(tmp_path) as made:
        listed = [each["id"] for each in (await made.openai(role, "GET", "/models")).json()["data"]]
        agents = ["aria", "bea"] if role in OF_ALL_AGENTS else ["aria"]
        groups = [f"{SECRET} nobody", "pair", "solo"] if role in OF_ALL_AGENTS else ["solo"]
        assert listed == agents + groups
        for name in listed:
            assert (await made.openai(role, "GET", f"/models/{name}")).status_code == 200
        given = await made.client.get("/api/groups", headers=made.headers(role))
        named = [each["name"] for each in given.json()["items"]]
        assert named == groups  # with no member of whom the token does not know


async def test_what_one_has_asked_another_does_not_get(tmp_path: Path):
    """The same words, the id of a response and the results of a call are those of one caller."""
    async with scene(tmp_path) as made:
        first = (await made.openai("owner", "POST", "/responses", hi_response("aria"))).json()
        for role in ("partner", "operator", "agent-service", "viewer"):
            for path in (f"/responses/{first['id']}",):
                answer = await made.openai(role, "GET", path)
                assert answer.status_code in (403, 404), (role, answer.text)
            later = {"model": "aria", "input": "and?", "previous_response_id": first["id"]}
            answer = await made.openai(role, "POST", "/responses", later)
            assert answer.status_code in (403, 404), (role, answer.text)
            answer = await made.openai(role, "POST", "/responses", hi_response("aria"))
            if role != "viewer":
                assert answer.json()["id"] != first["id"]
        of_bea = (await made.openai("owner", "POST", "/responses", hi_response("bea"))).json()
        answer = await made.openai("narrowed", "GET", f"/responses/{of_bea['id']}")
        assert answer.status_code == 404
        assert "bea" not in answer.text


def hi_response(model: str) -> dict[str, Any]:
    return {"model": model, "input": "hello"}


@pytest.mark.parametrize("words", ["approve {}", "deny {} never"])
@pytest.mark.parametrize("role", ["narrowed", "agent-service", "partner", "operator"])
async def test_words_decide_nothing_for_those_who_may_not(tmp_path: Path, role: str, words: str):
    """Nobody decides by a message what they may not decide by the verb, through any door."""
    async with scene(tmp_path) as made:
        text = words.format(made.approvals["bea"])
        await made.openai(role, "POST", "/chat/completions", hi("aria", text))
        await made.openai(role, "POST", "/responses", {"model": "aria", "input": text})
        headers = made.headers(role)
        for path in ("messages", "ask", "stream"):
            await made.client.post(f"/api/agents/aria/{path}", json={"text": text}, headers=headers)
        for name in ("chat_with_agent", "send_to_group"):
            to = {"agent": "aria"} if name == "chat_with_agent" else {"group": "solo"}
            done, _ = await made.tool(role, name, message=text, **to)
            assert not done
        waiting = [each.id for each in await made.home.approvals.list()]
        assert made.approvals["bea"] in waiting, role


async def test_a_token_for_some_agents_decides_for_these(tmp_path: Path):
    async with scene(tmp_path) as made:
        text = f"approve {made.approvals['aria']}"
        answer = await made.openai("narrowed", "POST", "/chat/completions", hi("aria", text))
        assert answer.status_code == 200, answer.text
        assert [each.id for each in await made.home.approvals.list()] == [made.approvals["bea"]]


WEATHER: Any = {"type": "function", "function": {"name": "weather", "parameters": {}}}


async def test_results_go_to_the_agent_that_asked_for_them(tmp_path: Path):
    async with scene(tmp_path) as made:
        body = hi("aria", '[[call:weather {"city": "Rome"}]]', tools=[WEATHER])
        answer = (await made.openai("owner", "POST", "/chat/completions", body)).json()
        (call,) = answer["choices"][0]["message"]["tool_calls"]
        result = {"role": "tool", "tool_call_id": call["id"], "content": "sunny"}
        other = {"model": "bea", "messages": [result], "tools": [WEATHER]}
        refused = await made.openai("owner", "POST", "/chat/completions", other)
        assert refused.status_code == 400, refused.text
        assert refused.json()["error"]["param"] == "model"
        right = await made.openai("owner", "POST", "/chat/completions", other | {"model": "aria"})
        assert right.status_code == 200, right.text


DEEP: Any = json.loads("[" * 300 + "]" * 300)


@pytest.mark.promise("X5")
@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", f"/responses/resp_0_{'9' * 5_000}", None),
        ("GET", f"/responses/resp_{'a' * 5_000}", None),
        ("POST", "/chat/completions", hi("aria", tools=[{"type": "function", "function": DEEP}])),
        ("POST", "/chat/completions", hi("aria", metadata=DEEP)),
        (
            "POST",
            "/chat/completions",
            hi("aria", tool_choice={"type": "allowed_tools", "tools": 5}),
        ),
        (
            "POST",
            "/chat/completions",
            hi("aria", tool_choice={"type": "allowed_tools", "allowed_tools": [1]}, n=2),
        ),
        ("POST", "/chat/completions", {"model": "aria", "messages": [{"role": "user"}], "n": "x"}),
        ("POST", "/chat/completions", {"model": "aria", "messages": [{"role": "tool"}]}),
        ("POST", "/responses", {"model": "aria", "input": [{"type": ["message"]}]}),
        ("POST", "/responses", {"model": "aria", "input": "x", "previous_response_id": "é" * 999}),
        ("POST", "/responses", {"model": ["aria"], "input": "x"}),
        ("POST", "/responses", {"model": "a\0b", "input": "x"}),
        ("POST", "/responses", []),
    ],
)
async def test_what_no_client_means_is_refused_in_openais_words(
    tmp_path: Path, method: str, path: str, body: Any
):
    async with scene(tmp_path) as made:
        before = await made.state()
        answer = await made.openai("owner", method, path, body)
        assert answer.status_code in (400, 404), answer.text
        assert set(answer.json()["error"]) == {"message", "type", "param", "code"}
        assert await made.state() == before


@pytest.mark.promise("X5")
@pytest.mark.parametrize("stream", [False, True])
async def test_a_fault_of_ours_is_told_as_openai_does_and_logged(
    tmp_path: Path,
    stream: bool,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
):
    def broken(*_: object) -> Any:
        raise RuntimeError("the shelf fell down")

    async with scene(tmp_path) as made:
        monkeypatch.setattr(openai_door, "answer_from", broken)
        body = hi("aria", stream=stream)
        with caplog.at_level(logging.ERROR, "asterism.api"):
            answer = await made.openai("owner", "POST", "/chat/completions", body)
    assert answer.status_code == (200 if stream else 500)
    text = answer.text.rpartition("data: ")[2] if stream else answer.text
    error = json.loads(text)["error"]
    assert (error["type"], set(error)) == ("server_error", {"message", "type", "param", "code"})
    assert answer.headers["x-request-id"] in error["message"]
    assert "shelf" not in answer.text
    assert "the shelf fell down" in caplog.text


# -- the MCP server --------------------------------------------------------------------------------


Case = tuple[str, dict[str, Any], frozenset[str]]
OWNER = frozenset({"owner"})
EDITORS = frozenset({"owner", "admin", "editor", "narrowed"})


def cases(made: Scene) -> list[Case]:
    """Calls of every tool, and who may make them."""
    edit = {"block": "plans", "operation": "append", "content": "Then the wall."}
    decide = {"decision": "deny"}
    return [
        ("list_agents", {}, ALL),
        ("chat_with_agent", {"agent": "aria", "message": "hello"}, TALKERS),
        ("chat_with_agent", {"agent": "bea", "message": "hello"}, TALKERS & OF_ALL_AGENTS),
        ("chat_with_agent", {"agent": "cleo", "message": "hello"}, frozenset()),
        ("send_to_group", {"group": "pair", "message": "hello"}, TALKERS & OF_ALL_AGENTS),
        ("send_to_group", {"group": "nobody", "message": "hello"}, frozenset()),
        ("get_agent_memory", {"agent": "aria"}, ALL),
        ("get_agent_memory", {"agent": "bea"}, OF_ALL_AGENTS),
        ("get_agent_memory", {"agent": "aria", "block": "diary"}, SEES_EVERYTHING | {"narrowed"}),
        ("update_agent_memory", {"agent": "aria", **edit}, EDITORS),
        (
            "update_agent_memory",
            {"agent": "bea", **edit, "block": "garden"},
            EDITORS & OF_ALL_AGENTS,
        ),
        ("search_memory", {"agent": "aria", "query": "door"}, ALL),
        ("search_memory", {"agent": "bea", "query": "cellar"}, OF_ALL_AGENTS),
        ("search_memory", {"query": "cellar"}, ALL),
        ("list_approvals", {}, ALL),
        # A question is answered by the person whom it is put to, whatever others may do.
        ("decide_approval", {"approval": made.approvals["bea"], **decide}, OWNER),
        ("decide_approval", {"approval": made.approvals["aria"], **decide}, OWNER | {"narrowed"}),
    ]


@pytest.mark.parametrize("role", ROLES)
async def test_each_role_with_each_tool(tmp_path: Path, role: str):
    async with scene(tmp_path) as made:
        table = cases(made)
        assert {name for name, _, _ in table} == {each.name for each in TOOLS}
        for name, arguments, allowed in table:
            before = await made.state()
            done, text = await made.tool(role, name, **arguments)
            told = (role, name, arguments, text)
            assert done == (role in allowed), told
            if not done:
                assert "Traceback" not in text
                assert await made.state() == before, told
            if role not in OF_ALL_AGENTS:
                assert f"{SECRET} of bea" not in text, told
                assert f"{SECRET} grows" not in text, told
                assert arguments.get("agent") == "bea" or '"bea"' not in text, told
            if role not in SEES_EVERYTHING | {"narrowed"}:
                assert f"{SECRET} of aria" not in text, told
                assert f"{SECRET} aria" not in text, told


@pytest.mark.parametrize("role", ROLES)
async def test_each_role_with_resources(tmp_path: Path, role: str):
    """What is listed can be read, and nothing else; completion names nothing else either."""
    async with scene(tmp_path) as made:
        await made.home.blocks.create(None, "house", "No shoes.", audience="public")
        listed = message_of(await made.mcp(role, "resources/list"))["result"]["resources"]
        uris = [each["uri"] for each in listed]
        assert len(uris) == len(set(uris))
        for uri in uris:
            read = message_of(await made.mcp(role, "resources/read", uri=uri))
            assert "result" in read, (role, uri, read)
            if role not in OF_ALL_AGENTS:
                assert f"{SECRET} of bea" not in json.dumps(read)
        assert any("house" in uri for uri in uris)
        assert any("/aria/blocks/plans" in uri for uri in uris)
        assert any("/aria/blocks/diary" in uri for uri in uris) == (
            role in SEES_EVERYTHING | {"narrowed"}
        )
        garden = "asterism://agents/bea/blocks/garden"
        assert (garden in uris) == (role in OF_ALL_AGENTS)
        read = message_of(await made.mcp(role, "resources/read", uri=garden))
        assert ("result" in read) == (role in OF_ALL_AGENTS)
        for template, argument in (
            ("asterism://agents/{agent}/blocks/{label}", "agent"),
            ("asterism://agents/{agent}/blocks/{label}", "label"),
            ("asterism://blocks/{label}", "label"),
        ):
            answer = message_of(
                await made.mcp(
                    role,
                    "completion/complete",
                    ref={"type": "ref/resource", "uri": template},
                    argument={"name": argument, "value": ""},
                )
            )
            values = answer["result"]["completion"]["values"]
            if role not in OF_ALL_AGENTS:
                assert not {"bea", "garden"} & set(values), (role, template, values)


async def test_a_group_with_an_archived_member_answers_all_the_same(tmp_path: Path):
    async with scene(tmp_path) as made:
        await made.home.agents.unarchive("cleo")
        await made.home.groups.create("trio", members=["cleo", "aria"])
        await made.home.agents.archive("cleo")
        answer = await made.openai("partner", "POST", "/chat/completions", hi("trio"))
        assert answer.status_code == 200, answer.text
        done, text = await made.tool("partner", "send_to_group", group="trio", message="hello")
        assert done, text
        (archived, _) = (await made.home.groups.get("trio")).members
        assert (archived.name, archived.active) == ("cleo", False)
        await made.home.agents.archive("aria")
        done, text = await made.tool("partner", "send_to_group", group="trio", message="anybody?")
        assert "no active member" in text, text
        await made.home.agents.unarchive("cleo")
        done, text = await made.tool("partner", "send_to_group", group="trio", message="and now?")
        assert done, text
        assert (await made.home.groups.get("trio")).members[0].active


async def test_a_stream_ends_with_its_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Whoever listens to changes hears of none after their token was revoked."""
    monkeypatch.setattr(endpoints, "CHECK_EVERY", 0.02)
    async with scene(tmp_path) as made:
        with bind("127.0.0.1", 0) as taken:
            async with (
                Server(made.home, taken, tuple) as server,
                httpx.AsyncClient(base_url=server.url, timeout=10) as client,
            ):
                made.client = client
                wanted = {"resourceSubscriptions": ["asterism://agents/aria/blocks/plans"]}
                request = made.mcp_request("operator", "subscriptions/listen", notifications=wanted)
                async with client.stream("POST", "/mcp", **request) as answer:
                    assert answer.status_code == 200
                    lines = answer.aiter_lines()
                    while "acknowledged" not in await anext(lines):
                        pass
                    await made.home.tokens.revoke("a-operator")
                    rest = [line async for line in lines]
                    assert not any(line.startswith("data: ") for line in rest), rest


async def test_a_session_belongs_to_the_token_that_opened_it_however_it_is_sent(tmp_path: Path):
    """The owner's two tokens are two callers, also as `x-api-key`."""
    async with scene(tmp_path) as made:
        headers = {"accept": "application/json, text/event-stream"}
        params: Any = {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "test", "version": "1"},
        }
        opening = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
        statuses: dict[str, int] = {}
        opened = await made.client.post(
            "/mcp", json=opening, headers=headers | {"x-api-key": made.secrets["owner"]}
        )
        assert opened.status_code == 200, opened.text
        headers |= {
            "mcp-session-id": opened.headers["mcp-session-id"],
            "mcp-protocol-version": "2025-11-25",
        }
        listing = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
        for role in ("owner", "narrowed", "admin"):
            given = headers | {"x-api-key": made.secrets[role]}
            statuses[role] = (
                await made.client.post("/mcp", json=listing, headers=given)
            ).status_code
        assert statuses == {"owner": 200, "narrowed": 404, "admin": 404}


# -- calls of verbs by name ------------------------------------------------------------------------


@pytest.mark.parametrize("role", sorted(ALL - OWNER))
async def test_only_an_unlimited_owner_calls_verbs_by_name(tmp_path: Path, role: str):
    async with scene(tmp_path) as made:
        before = await made.state()
        for verb in ("agents.list", "agents.delete", "tokens.list", "hello", "home.close"):
            body = to_line({"call": verb, "args": ["aria"] if verb == "agents.delete" else []})
            answer = await made.client.post("/api/call", content=body, headers=made.headers(role))
            assert answer.status_code == 403, (role, verb, answer.text)
            assert answer.json()["type"] == "not-allowed"
            assert SECRET not in answer.text
        assert await made.state() == before
