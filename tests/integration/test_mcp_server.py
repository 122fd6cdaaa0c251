"""Our MCP server over HTTP, as clients of both revisions use it."""

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import mcp_types as types
import pytest
from mcp import Client
from mcp.shared.dispatcher import ProgressFnT
from mcp.shared.exceptions import MCPError
from mcp.shared.subscriptions import ResourcesListChanged, ResourceUpdated

from asterism import Asterism, tool
from asterism.api import mcp_server, mcp_tools, mcp_transport
from asterism.api.mcp_server import make_mcp_server
from asterism.api.mcp_transport import McpApplication, home_of_request
from asterism.permissions import Actor
from asterism.types.agents import Trust
from asterism.types.memory import Append
from asterism.types.permissions import ToolEffect
from tests.mcp_servers.served import MODES, connected, serving
from tests.scenes import obedient, open_home, until

pytestmark = [pytest.mark.promise("A4"), pytest.mark.parametrize("revision", MODES)]

HUMAN = "asterism://agents/aria/blocks/human"


@tool(effects=ToolEffect("pay", recipients="to", amount="euros"), ask=True)
def pay(to: str, euros: int) -> str:
    """Pay somebody."""
    return f"paid {euros} to {to}"


@asynccontextmanager
async def scene(
    place: Path, revision: str, **options: Any
) -> AsyncGenerator[tuple[Asterism, Client], None]:
    """A home with one agent, and a client of the owner."""
    async with open_home(place, tools=[pay], **options) as home:
        await home.agents.create("aria")
        async with serving({"": home}) as url, connected(url, revision) as client:
            yield home, client


async def call(client: Client, name: str, **arguments: Any) -> Any:
    """Call a tool that must succeed; return its structured result."""
    result = await client.call_tool(name, arguments)
    assert not result.is_error, result
    return result.structured_content


def telling(told: list[str]) -> ProgressFnT:
    """Keep what is said of the progress of a call."""

    async def take(progress: float, total: float | None, message: str | None) -> None:
        assert total is None
        told.append(f"{progress:g} {message}")

    return take


async def refused(client: Client, name: str, **arguments: Any) -> str:
    """Call a tool that must fail; return the sentence."""
    result = await client.call_tool(name, arguments)
    assert result.is_error, result
    (content,) = result.content
    assert isinstance(content, types.TextContent)
    assert "Traceback" not in content.text
    return content.text


# -- tools -----------------------------------------------------------------------------------------


async def test_tools_say_what_they_do(tmp_path: Path, revision: str) -> None:
    async with scene(tmp_path, revision) as (_, client):
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
    assert list(tools) == [
        "list_agents",
        "chat_with_agent",
        "send_to_group",
        "get_agent_memory",
        "update_agent_memory",
        "search_memory",
        "list_approvals",
        "decide_approval",
    ]
    for served in tools.values():
        assert served.description
        assert served.annotations is not None
        assert served.output_schema is not None
        assert '"null"' not in json.dumps(served.input_schema)
        assert served.input_schema["additionalProperties"] is False
    hints = {name: served.annotations for name, served in tools.items()}
    reading = {name for name, hint in hints.items() if hint and hint.read_only_hint}
    assert reading == {"list_agents", "get_agent_memory", "search_memory", "list_approvals"}
    destroying = {name for name, hint in hints.items() if hint and hint.destructive_hint}
    assert destroying == {
        "chat_with_agent",
        "send_to_group",
        "update_agent_memory",
        "decide_approval",
    }


@pytest.mark.promise("A4")
async def test_a_group_is_asked(tmp_path: Path, revision: str) -> None:
    async with scene(tmp_path, revision) as (home, client):
        await home.groups.create("ring", members=["aria"])
        said = {"group": "ring", "message": "hello", "external_id": "g-1"}
        answer = await call(client, "send_to_group", **said)
        assert answer["state"] == "done"
        assert "hello" in answer["text"]
        assert await call(client, "send_to_group", **said) == answer
        assert "no group named" in await refused(client, "send_to_group", group="x", message="y")


async def test_a_token_for_all_members_of_a_group_may_ask_it(tmp_path: Path, revision: str) -> None:
    async with open_home(tmp_path) as home:
        for name in ("aria", "ben"):
            await home.agents.create(name)
        await home.groups.create("ring", members=["aria"])
        await home.groups.create("both", members=["aria", "ben"])
        theirs = await home.authenticate((await home.tokens.create("t", agents=["aria"])).secret)
        async with serving({"": theirs}) as url, connected(url, revision) as client:
            answer = await call(client, "send_to_group", group="ring", message="hello")
            assert answer["state"] == "done"
            hidden = await refused(client, "send_to_group", group="both", message="hello")
            assert "no group named 'both'" in hidden


async def test_a_message_is_answered_once_with_progress(tmp_path: Path, revision: str) -> None:
    told: list[str] = []

    async with scene(tmp_path, revision) as (home, client):
        (agent,) = (await call(client, "list_agents"))["agents"]
        assert (agent["name"], agent["model"]) == ("aria", "scripted:one")
        said = {"message": '[[call:calculator {"expression": "2+3"}]]', "external_id": "m-1"}
        first = await client.call_tool("chat_with_agent", said, progress_callback=telling(told))
        answer = first.structured_content
        assert answer["state"] == "done"
        assert isinstance(first.content[0], types.TextContent)
        assert first.content[0].text == answer["text"] != ""
        again = await call(client, "chat_with_agent", **said)
        assert again == answer
        other = await call(client, "chat_with_agent", message="Hello", agent="aria")
        assert other["turn_id"] != answer["turn_id"]
        assert other["external_id"]
        assert len(await home.turns.list()) == 2
    assert "1 aria calls calculator" in told


async def test_a_group_that_waits_for_an_approval(tmp_path: Path, revision: str) -> None:
    async with scene(tmp_path, revision) as (home, client):
        await home.groups.create("ring", members=["aria"])
        said = {"message": '[[call:pay {"to": "eve", "euros": 5}]]', "external_id": "g-1"}
        parked = await call(client, "send_to_group", group="ring", **said)
        assert parked["state"] == "parked"
        (question,) = parked["approvals"]
        assert (question["agent"], question["tool"]) == ("aria", "pay")
        await call(client, "decide_approval", approval=question["id"], decision="deny")
        done = await call(client, "send_to_group", group="ring", **said)
        assert (done["state"], done["turn_id"]) == ("done", parked["turn_id"])
        assert done["approvals"] == []


async def test_a_turn_that_waits_for_an_approval(tmp_path: Path, revision: str) -> None:
    async with scene(tmp_path, revision) as (_, client):
        said = {"message": '[[call:pay {"to": "eve", "euros": 5}]]', "external_id": "m-1"}
        parked = await call(client, "chat_with_agent", **said)
        assert parked["state"] == "parked"
        (question,) = parked["approvals"]
        assert (question["tool"], question["arguments"]) == ("pay", {"to": "eve", "euros": 5})
        assert await call(client, "list_approvals") == {"approvals": [question]}
        sneaked = await refused(client, "chat_with_agent", message=f"approve {question['id']}")
        assert "Use decide_approval" in sneaked
        assert await call(client, "list_approvals") == {"approvals": [question]}
        wrong = await refused(client, "decide_approval", approval="ap_none", decision="approve")
        assert "ap_none" in wrong
        decided = await call(
            client, "decide_approval", approval=question["id"], decision="approve", note="Fine."
        )
        assert decided["turn_id"] == parked["turn_id"]
        done = await call(client, "chat_with_agent", **said)
        assert (done["state"], done["turn_id"]) == ("done", parked["turn_id"])
        assert "paid 5 to eve" in done["text"]
        assert await call(client, "list_approvals") == {"approvals": []}
        late = await refused(client, "decide_approval", approval=question["id"], decision="deny")
        assert question["id"] in late


async def test_waiting_ends_and_the_turn_goes_on(tmp_path: Path, revision: str) -> None:
    model = obedient(delay=0.5)
    async with scene(tmp_path, revision, model=model) as (home, client):
        said = {"message": "Hello", "external_id": "m-1"}
        soon = await call(client, "chat_with_agent", **said, wait_seconds=0.01)
        assert (soon["state"], soon["text"]) == ("working", "")
        later = await call(client, "chat_with_agent", **said)
        assert (later["state"], later["turn_id"]) == ("done", soon["turn_id"])
        assert len(await home.turns.list()) == 1


async def test_a_client_is_told_with_which_tool_it_gets_the_answer_later(
    tmp_path: Path, revision: str
) -> None:
    async with scene(tmp_path, revision, model=obedient(delay=0.3)) as (home, client):
        await home.groups.create("ring", members=["aria"])
        for tool, whom in (("chat_with_agent", "agent"), ("send_to_group", "group")):
            name = "aria" if whom == "agent" else "ring"
            said = {whom: name, "message": "Hello", "external_id": "m-1", "wait_seconds": 0.01}
            result = await client.call_tool(tool, said)
            (content,) = result.content
            assert isinstance(content, types.TextContent)
            assert f"{name} is still working. Call {tool} again" in content.text


async def test_a_cancelled_call_does_not_stop_the_turn(tmp_path: Path, revision: str) -> None:
    async with scene(tmp_path, revision, model=obedient(delay=0.5)) as (home, client):
        said = {"message": "Hello", "external_id": "m-1"}
        asking = asyncio.create_task(client.call_tool("chat_with_agent", said))

        async def is_accepted() -> bool:
            return bool(await home.turns.unfinished())

        await until(is_accepted)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        answer = await call(client, "chat_with_agent", **said)
        assert answer["state"] == "done"
        assert len(await home.turns.list()) == 1


async def test_a_turn_that_takes_long_is_reported(
    tmp_path: Path, revision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mcp_tools, "STILL_WORKING", 0.05)
    told: list[str] = []

    async with scene(tmp_path, revision, model=obedient(delay=0.5)) as (_, client):
        await client.call_tool(
            "chat_with_agent", {"message": "Hello"}, progress_callback=telling(told)
        )
    assert told[0].startswith("1 aria is working (")
    assert [int(message.split()[0]) for message in told] == list(range(1, len(told) + 1))


async def test_memory_is_read_and_written(tmp_path: Path, revision: str) -> None:
    async with scene(tmp_path, revision) as (home, client):
        before = await call(client, "get_agent_memory", block="human")
        (block,) = before["blocks"]
        assert block["uri"] == HUMAN
        added = await call(
            client,
            "update_agent_memory",
            block="human",
            operation="append",
            content="Has a cat.",
            version=block["version"],
            reason="was told",
        )
        assert added["block"]["text"].endswith("Has a cat.")
        stale = await refused(
            client,
            "update_agent_memory",
            block="human",
            operation="set",
            content="Nothing.",
            version=block["version"],
        )
        assert "based on version" in stale
        edit = {"block": "human", "operation": "replace", "content": "two cats"}
        assert "`old`" in await refused(client, "update_agent_memory", **edit)
        await call(client, "update_agent_memory", **edit, old="a cat")
        assert "Has two cats." in (await home.blocks.get("aria", "human")).block.text
        await call(client, "update_agent_memory", block="human", operation="set", content="New.")
        shown = {each["label"]: each for each in (await call(client, "get_agent_memory"))["blocks"]}
        assert shown["human"]["text"] == "New."
        (latest, *_) = await home.blocks.history("aria", "human")
        assert latest.number == shown["human"]["version"]


async def test_memory_is_searched(tmp_path: Path, revision: str) -> None:
    async with scene(tmp_path, revision) as (home, client):
        await home.agents.create("bo")
        aria, bo = await home.agents.get("aria"), await home.agents.get("bo")
        await aria.archive.add("The bicycle is at the station.")
        await bo.archive.add("The bicycle is at the harbour.")
        both = await call(client, "search_memory", query="bicycle")
        assert {hit["agent"] for hit in both["hits"]} == {"aria", "bo"}
        found = await call(client, "search_memory", query="bicycle", agent="bo", limit=1)
        assert "harbour" in found["hits"][0]["text"]
        none = await call(client, "search_memory", query="bicycle", until="2020-01-01")
        assert none["hits"] == []
        assert "domains" in await refused(client, "search_memory", query="x", domains=["air"])
        assert "nonsense" in await refused(client, "search_memory", query="x", since="nonsense")
        several = await refused(client, "get_agent_memory")
        assert "aria, bo" in several


async def test_what_goes_wrong_is_said(
    tmp_path: Path, revision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with scene(tmp_path, revision) as (_, client):
        assert "'arya'" in await refused(client, "chat_with_agent", agent="arya", message="Hello")
        assert "message" in await refused(client, "chat_with_agent", agent="aria")
        assert "colour" in await refused(client, "list_agents", colour="red")
        with pytest.raises(MCPError, match="Unknown tool"):
            await client.call_tool("no_such_tool", {})
        with pytest.raises(MCPError, match="cursor"):
            await client.list_resources(cursor="-1")

    async def fail(*_: Any) -> Any:
        raise ValueError("the secret is 4711")

    broken = replace(mcp_tools.TOOLS[0], run=fail)
    monkeypatch.setattr(mcp_server, "TOOLS", (broken,))
    monkeypatch.setattr(mcp_server, "block_uri", None)
    async with scene(tmp_path / "broken", revision) as (_, client):
        said = await refused(client, "list_agents")
        assert "A fault inside asterism" in said
        assert "4711" not in said
        with pytest.raises(MCPError, match="A fault inside asterism"):
            await client.list_resources()


# -- resources -------------------------------------------------------------------------------------


async def test_blocks_are_resources(tmp_path: Path, revision: str) -> None:
    async with scene(tmp_path, revision) as (home, client):
        await home.blocks.create("aria", "trips/2026", "Oslo", description="Where we go.")
        await home.blocks.create(None, "house", "Turn off the lights.")
        listed = {found.uri: found for found in (await client.list_resources()).resources}
        trips = "asterism://agents/aria/blocks/trips%2F2026"
        assert listed[trips].description == "Where we go."
        assert {HUMAN, trips, "asterism://blocks/house"} <= listed.keys()
        for uri, text in ((trips, "Oslo"), ("asterism://blocks/house", "Turn off the lights.")):
            (contents,) = (await client.read_resource(uri)).contents
            assert isinstance(contents, types.TextResourceContents)
            assert contents.text == text
            assert contents.meta is not None
            assert contents.meta["asterism/version"] == 1
        templates = (await client.list_resource_templates()).resource_templates
        assert [template.uri_template for template in templates] == [
            "asterism://agents/{agent}/blocks/{label}",
            "asterism://blocks/{label}",
        ]
        for missing in (f"{HUMAN}x", "asterism://agents/bo/blocks/human", "file:///etc/passwd"):
            with pytest.raises(MCPError) as caught:
                await client.read_resource(missing)
            assert caught.value.code == (-32602 if revision == "2026-07-28" else -32002)
            assert caught.value.data == {"uri": missing}


async def test_resources_come_in_pages(
    tmp_path: Path, revision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mcp_server, "_PAGE", 2)
    async with scene(tmp_path, revision) as (home, client):
        for number in range(3):
            await home.blocks.create("aria", f"note-{number}", "One.")
        uris: list[str] = []
        cursor: str | None = None
        while True:
            page = await client.list_resources(cursor=cursor)
            assert len(page.resources) <= 2
            uris += [found.uri for found in page.resources]
            cursor = page.next_cursor
            if cursor is None:
                break
    assert len(uris) == len(set(uris)) == 5


async def test_names_are_completed(tmp_path: Path, revision: str) -> None:
    async with scene(tmp_path, revision) as (home, client):
        await home.agents.create("arne")
        await home.agents.create("bo")
        await home.blocks.create("bo", "boats", "One.")
        blocks = types.ResourceTemplateReference(
            type="ref/resource", uri="asterism://agents/{agent}/blocks/{label}"
        )

        async def completed(name: str, value: str, **chosen: str) -> list[str]:
            argument = {"name": name, "value": value}
            done = await client.complete(blocks, argument, context_arguments=chosen or None)
            return done.completion.values

        assert await completed("agent", "AR") == ["aria", "arne"]
        assert await completed("label", "b", agent="bo") == ["boats"]
        assert await completed("label", "b", agent="aria") == []
        with pytest.raises(MCPError, match="no argument"):
            await completed("colour", "b")


@pytest.mark.filterwarnings("ignore:resources/:mcp.shared.exceptions.MCPDeprecationWarning")
async def test_subscribers_hear_of_changes(
    tmp_path: Path, revision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mcp_server, "LOOK_EVERY", 0.02)
    heard: list[str] = []

    async def take(message: Any) -> None:
        if isinstance(message, types.ResourceUpdatedNotification):
            heard.append(str(message.params.uri))

    async with open_home(tmp_path) as home:
        await home.agents.create("aria")
        async with (
            serving({"": home}) as url,
            connected(url, revision, message_handler=take) as client,
        ):
            if revision == "2026-07-28":
                async with client.listen(
                    resource_subscriptions=[HUMAN], resources_list_changed=True
                ) as events:
                    await home.blocks.write("aria", "human", Append("Has a cat."))
                    async with asyncio.timeout(120):
                        assert await anext(events) == ResourceUpdated(uri=HUMAN)
                        await home.blocks.create("aria", "trips", "Oslo")
                        assert await anext(events) == ResourcesListChanged()
                return
            session: Any = client  # the SDK warns of what this revision has and the next has not
            await session.subscribe_resource(HUMAN)
            monkeypatch.setattr(mcp_server, "MAX_SUBSCRIPTIONS", 1)
            with pytest.raises(MCPError, match="one more"):
                await session.subscribe_resource("asterism://agents/aria/blocks/persona")
            with pytest.raises(MCPError, match="nothing"):
                await session.subscribe_resource("asterism://agents/aria/blocks/nothing")
            await home.blocks.write("aria", "human", Append("Has a cat."))
            await until(lambda: heard == [HUMAN])
            await session.unsubscribe_resource(HUMAN)
            await home.blocks.write("aria", "human", Append("Has a dog."))
            await session.subscribe_resource("asterism://agents/aria/blocks/persona")
            await home.blocks.write("aria", "persona", Append("Is friendly."))
            await until(lambda: len(heard) == 2)
            assert heard[1].endswith("/persona")


@pytest.mark.promise("X5")
@pytest.mark.filterwarnings("ignore:resources/:mcp.shared.exceptions.MCPDeprecationWarning")
async def test_the_clients_of_a_token_share_its_subscriptions(
    tmp_path: Path, revision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mcp_server, "MAX_OF_CALLER", 1)

    async def subscribe(client: Any) -> None:
        if revision == "2026-07-28":
            async with client.listen(resource_subscriptions=[HUMAN]):
                return
        await client.subscribe_resource(HUMAN)

    async with open_home(tmp_path) as home:
        await home.agents.create("aria")
        async with (
            serving({"": home}) as url,
            connected(url, revision) as first,
            connected(url, revision) as second,
        ):
            session: Any = first
            if revision == "2026-07-28":
                async with first.listen(resource_subscriptions=[HUMAN]):
                    with pytest.raises(MCPError, match="one more"):
                        await subscribe(second)
            else:
                await session.subscribe_resource(HUMAN)
                with pytest.raises(MCPError, match="one more"):
                    await subscribe(second)
                await session.unsubscribe_resource(HUMAN)
            await until(lambda: _subscribed(second, subscribe))


async def _subscribed(client: Any, subscribe: Any) -> bool:
    with contextlib.suppress(MCPError):
        await subscribe(client)
        return True
    return False


# -- who may what ----------------------------------------------------------------------------------


def person(name: str, id: str, *roles: str) -> Actor:
    return Actor("person", id, name, Trust.KNOWN, frozenset(roles))


async def test_a_caller_does_what_they_may(tmp_path: Path, revision: str) -> None:
    async with open_home(tmp_path) as home:
        await home.agents.create("aria")
        await home.blocks.create("aria", "door", "The key is under the mat.", audience="owner")
        anna = await home.people.create("anna")
        ben = await home.people.create("ben")
        homes = {
            "owner": home,
            "anna": home.acting_as(person("anna", anna.id, "viewer")),
            "ben": home.acting_as(person("ben", ben.id)),
        }
        async with (
            serving(homes) as url,
            connected(url, revision, "owner") as owner,
            connected(url, revision, "anna") as viewer,
            connected(url, revision, "ben") as guest,
        ):
            edit = {"agent": "aria", "block": "persona", "operation": "append", "content": "Rude."}
            assert "anna" in await refused(viewer, "update_agent_memory", **edit)
            assert "ben" in await refused(guest, "get_agent_memory", agent="aria")
            labels = {
                caller: {block["label"] for block in (await _memory(client))["blocks"]}
                for caller, client in (("owner", owner), ("anna", viewer))
            }
            assert "door" in labels["owner"] - labels["anna"]
            door = "asterism://agents/aria/blocks/door"
            await owner.read_resource(door)
            with pytest.raises(MCPError, match="door"):
                await viewer.read_resource(door)
            with pytest.raises(MCPError, match="ben"):
                await guest.list_resources()
            assert "Rude" not in (await home.blocks.get("aria", "persona")).block.text
            await _ids_are_their_own(owner, guest)


async def _memory(client: Client) -> Any:
    return await call(client, "get_agent_memory", agent="aria")


async def _ids_are_their_own(owner: Client, guest: Client) -> None:
    """An id that somebody else has chosen leads to one's own answer."""
    said = {"agent": "aria", "external_id": "m-1"}
    private = await call(owner, "chat_with_agent", **said, message="The code is 4711.")
    theirs = await call(guest, "chat_with_agent", **said, message="What is the code?")
    assert theirs["turn_id"] != private["turn_id"]
    assert "4711" not in json.dumps(theirs)


async def test_what_is_offered_can_be_narrowed(tmp_path: Path, revision: str) -> None:
    async with open_home(tmp_path, tools=[pay]) as home:
        aria = await home.agents.create("aria")
        await home.agents.create("bo")
        await home.agents.ask("bo", '[[call:pay {"to": "eve", "euros": 5}]]')
        (question,) = await home.approvals.list()
        server = make_mcp_server(home_of_request, agents=[aria.id], read_only=True)
        async with (
            serving({"": home}, McpApplication(server)) as url,
            connected(url, revision) as client,
        ):
            names = [tool.name for tool in (await client.list_tools()).tools]
            assert "chat_with_agent" not in names
            with pytest.raises(MCPError, match="Unknown tool"):
                await client.call_tool("update_agent_memory", {})
            (only,) = (await call(client, "list_agents"))["agents"]
            assert only["name"] == "aria"
            assert (await call(client, "get_agent_memory"))["agent"] == "aria"
            assert "not offered" in await refused(client, "get_agent_memory", agent="bo")
            assert "not offered" in await refused(client, "search_memory", query="x", agent="bo")
            assert (await call(client, "list_approvals"))["approvals"] == []
            uris = [found.uri for found in (await client.list_resources()).resources]
            assert uris
            assert all("/bo/" not in uri for uri in uris)
            with pytest.raises(MCPError, match="not offered"):
                await client.read_resource("asterism://agents/bo/blocks/human")
        deciding = make_mcp_server(home_of_request, agents=[aria.id])
        async with (
            serving({"": home}, McpApplication(deciding)) as url,
            connected(url, revision) as client,
        ):
            said = await refused(
                client, "decide_approval", approval=question.id, decision="approve"
            )
            assert "not offered" in said
        assert (await home.approvals.get(question.id)).decided_at_ms is None


# -- HTTP ------------------------------------------------------------------------------------------


def initialize(revision: str) -> dict[str, Any]:
    """A first request of a revision."""
    about = {"name": "test", "version": "1"}
    if revision == "2025-11-25":
        params: dict[str, Any] = {
            "protocolVersion": revision,
            "capabilities": {},
            "clientInfo": about,
        }
        return {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
    meta = {
        "io.modelcontextprotocol/protocolVersion": revision,
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": about,
    }
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": meta}}


def headers(revision: str, token: str, **more: str) -> dict[str, str]:
    given = {
        "accept": "application/json, text/event-stream",
        "mcp-protocol-version": revision,
    }
    if token:
        given["authorization"] = f"Bearer {token}"
    if revision == "2026-07-28":
        given["mcp-method"] = "tools/list"
    return given | {name.replace("_", "-"): value for name, value in more.items()}


async def test_a_session_belongs_to_who_opened_it(tmp_path: Path, revision: str) -> None:
    async with open_home(tmp_path) as home:
        anna = await home.people.create("anna")
        homes = {
            "owner": home,
            "owner-2": home,
            "anna": home.acting_as(person("anna", anna.id, "viewer")),
        }
        listing = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
        async with serving(homes) as url, httpx2.AsyncClient() as http:
            opened = await http.post(
                url, json=initialize(revision), headers=headers(revision, "owner")
            )
            assert opened.status_code == 200, opened.text
            session = opened.headers.get("mcp-session-id", "")
            if revision == "2026-07-28":
                assert session == ""  # there are no sessions to take over
                return
            statuses = {
                token: (
                    await http.post(
                        url, json=listing, headers=headers(revision, token, mcp_session_id=session)
                    )
                ).status_code
                for token in homes
            }
            assert statuses == {"owner": 200, "owner-2": 404, "anna": 404}
            ended = await http.delete(
                url, headers=headers(revision, "anna", mcp_session_id=session)
            )
            assert ended.status_code == 404


async def test_requests_of_strange_pages_are_refused(tmp_path: Path, revision: str) -> None:
    async with open_home(tmp_path) as home:
        allowed = McpApplication(
            make_mcp_server(home_of_request),
            hosts=["home.example.org"],
            origins=["https://page.example.org"],
        )
        async with serving({"": home}, allowed) as url, httpx2.AsyncClient() as http:

            async def status(**more: str) -> int:
                given = headers(revision, "", **more)
                return (await http.post(url, json=initialize(revision), headers=given)).status_code

            assert await status() == 200
            assert await status(origin="http://localhost:6274") == 200
            assert await status(host="home.example.org") == 200
            assert await status(origin="https://page.example.org") == 200
            assert await status(origin="https://evil.example.org") == 403
            assert await status(origin="http://localhost.evil.example.org") == 403
            assert await status(host="evil.example.org") == 421
            assert await status(host="home.example.org.evil.example.org") == 421
            large = b" " * (mcp_transport.MAX_BODY + 1)
            refused = await http.post(url, content=large, headers=headers(revision, ""))
            assert refused.status_code == 413


async def test_an_application_that_was_closed_starts_anew(tmp_path: Path, revision: str) -> None:
    async with open_home(tmp_path) as home:
        application = mcp_transport.mcp_application(read_only=True)
        for _ in range(2):
            async with serving({"": home}, application) as url, connected(url, revision) as client:
                assert len((await client.list_tools()).tools) == 4
