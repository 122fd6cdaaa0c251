"""Groups over HTTP, as a model of OpenAI's API, through the socket, and from the command line."""

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path

import orjson
import pytest

from asterism import Asterism, Signal, TurnState
from asterism.client import running_or_opened
from asterism.testing.scripted import ScriptedModel
from tests.api_scene import api_client, events
from tests.integration.group_scene import Cast, ballot, soon
from tests.scenes import open_home


@pytest.mark.promise("A1")
async def test_a_group_over_the_rest_api(tmp_path: Path):
    cast = Cast({"ada": ballot("approve"), "ben": ballot("reject")})
    async with open_home(tmp_path, cast.model) as home, api_client(home) as client:
        for name in ("ada", "ben"):
            await home.agents.create(name)
        made = await client.post(
            "/api/groups", json={"name": "board", "pattern": "voting", "members": ["ada"]}
        )
        assert made.status_code == 201
        assert made.json()["members"][0]["name"] == "ada"
        added = await client.post("/api/groups/board/members", json={"agent": "ben", "weight": 2})
        assert [member["weight"] for member in added.json()["members"]] == [1, 2]
        tag = (await client.get("/api/groups/board")).headers["etag"]
        change = {"options": {"weighted": True}}
        changed = await client.patch("/api/groups/board", json=change, headers={"if-match": tag})
        assert changed.json()["options"] == {"weighted": True}
        late = await client.patch("/api/groups/board", json=change, headers={"if-match": tag})
        assert late.status_code == 412
        answer = await client.post(
            "/api/groups/board/ask", json={"text": "Shall we?"}, headers={"idempotency-key": "k"}
        )
        assert answer.json()["text"].startswith("Decision: reject.")
        again = await client.post(
            "/api/groups/board/ask", json={"text": "Shall we?"}, headers={"idempotency-key": "k"}
        )
        assert again.json()["turn_id"] == answer.json()["turn_id"]
        streamed = events(
            (await client.post("/api/groups/board/stream", json={"text": "And now?"})).text
        )
        assert [event["event"] for event in streamed][-1] == "ended"
        assert {"decision", "member"} <= {event["event"] for event in streamed}
        lines = (await client.get("/api/groups/board/transcript")).json()["items"]
        assert [line["kind"] for line in lines].count("answer") == 4
        wrong = await client.post("/api/groups", json={"name": "x", "pattern": "circle"})
        assert wrong.status_code == 422
        assert "not a pattern" in wrong.json()["detail"]
        for verb in ("replay", "fork"):
            path = f"/api/turns/{answer.json()['turn_id']}/{verb}"
            refused = await client.post(path, json={})
            assert refused.status_code == 409
            assert "group transcript board" in refused.json()["detail"]
        gone = await client.delete("/api/groups/board/members/ben")
        assert gone.status_code == 204
        assert (await client.delete("/api/groups/board")).status_code == 204
        assert (await client.get("/api/groups")).json()["items"] == []


@pytest.mark.promise("A3")
async def test_a_group_is_a_model(tmp_path: Path):
    cast = Cast()
    async with open_home(tmp_path, cast.model) as home, api_client(home) as client:
        await home.agents.create("ada")
        await home.groups.create("ring", members=["ada"])
        models = (await client.get("/openai/v1/models")).json()["data"]
        assert [model["id"] for model in models] == ["ada", "ring"]
        body = {"model": "ring", "messages": [{"role": "user", "content": "hello"}]}
        answer = (await client.post("/openai/v1/chat/completions", json=body)).json()
        assert answer["choices"][0]["message"]["content"] == "ada answers"
        assert answer["model"] == "ring"
        streamed = await client.post(
            "/openai/v1/chat/completions",
            json={
                **body,
                "messages": [{"role": "user", "content": "hello again"}],
                "stream": True,
            },
        )
        pieces = [
            orjson.loads(line.removeprefix("data: "))
            for line in streamed.text.split("\n\n")
            if line.startswith("data: {")
        ]
        text = "".join(
            piece["choices"][0]["delta"].get("content") or ""
            for piece in pieces
            if piece["choices"]
        )
        assert text == "ada answers"
        refused = await client.post(
            "/openai/v1/chat/completions",
            json={**body, "response_format": {"type": "json_object"}},
        )
        assert refused.status_code == 400


@pytest.mark.promise("X1")
async def test_a_token_for_some_agents_has_no_groups_of_others(tmp_path: Path):
    cast = Cast()
    async with open_home(tmp_path, cast.model) as home:
        for name in ("ada", "ben"):
            await home.agents.create(name)
        await home.groups.create("both", members=["ada", "ben"])
        secret = (await home.tokens.create("one", agents=["ada"])).secret
        limited = await home.authenticate(secret)
        assert await limited.groups.list() == []
        async with api_client(home, None) as client:
            headers = {"authorization": f"Bearer {secret}"}
            body = {"model": "both", "messages": [{"role": "user", "content": "hello"}]}
            refused = await client.post("/openai/v1/chat/completions", json=body, headers=headers)
            assert refused.status_code == 404
            asked = await client.post(
                "/api/groups/both/ask", json={"text": "hello"}, headers=headers
            )
            assert asked.status_code == 404
    assert cast.heard == []


@pytest.mark.promise("X1")
async def test_a_token_for_all_members_of_a_group_may_use_it(tmp_path: Path):
    cast = Cast()
    async with open_home(tmp_path, cast.model) as home:
        for name in ("ada", "ben", "cy"):
            await home.agents.create(name)
        await home.groups.create("pair", members=["ada", "ben"])
        await home.groups.create("all", members=["ada", "ben", "cy"])
        await home.groups.create("empty")
        secret = (await home.tokens.create("two", agents=["ada", "ben"])).secret
        async with api_client(home, None) as client:
            client.headers["authorization"] = f"Bearer {secret}"
            groups = (await client.get("/api/groups")).json()["items"]
            assert [group["name"] for group in groups] == ["pair"]
            asked = await client.post("/api/groups/pair/ask", json={"text": "hello"})
            assert asked.json()["text"] == "ada answers"
            lines = (await client.get("/api/groups/pair/transcript")).json()["items"]
            assert [line["kind"] for line in lines][-1] == "reply"
            models = (await client.get("/openai/v1/models")).json()["data"]
            assert [model["id"] for model in models] == ["ada", "ben", "pair"]
            body = {"model": "pair", "messages": [{"role": "user", "content": "hello"}]}
            answer = await client.post("/openai/v1/chat/completions", json=body)
            assert answer.json()["choices"][0]["message"]["content"] == "ben answers"
            turns = (await client.get(f"/api/turns/{asked.json()['turn_id']}")).json()
            assert turns["state"] == "done"
            change = await client.patch("/api/groups/pair", json={"description": "x"})
            assert change.status_code == 403
            # Another member, and it is gone for the token: that one exists for others only.
            await home.groups.add_member("pair", "cy")
            gone = await client.post("/api/groups/pair/ask", json={"text": "hello"})
            assert gone.status_code == 404
            assert (await client.get("/api/groups")).json()["items"] == []
            await home.groups.remove_member("pair", "cy")
            assert (await client.get("/api/groups/pair")).status_code == 200


@pytest.mark.promise("X1")
async def test_an_id_of_a_message_to_a_group_is_its_senders_own(tmp_path: Path):
    cast = Cast()
    async with open_home(tmp_path, cast.model) as home, api_client(home) as client:
        for name in ("ada", "ben"):
            await home.agents.create(name)
        for name, member in (("first", "ada"), ("second", "ben")):
            await home.groups.create(name, members=[member])
        own = {"text": "the plans of ben", "external_id": "id-1"}
        secret = await client.post("/api/agents/ben/ask", json=own)
        token = (await home.tokens.create("one", agents=["ada"])).secret
        limited = {"authorization": f"Bearer {token}"}
        for text in ("the plans of ben", "what else?"):
            body = {"text": text, "external_id": "id-1" if text == own["text"] else "id-2"}
            asked = await client.post("/api/groups/first/ask", json=body, headers=limited)
            assert (asked.status_code, asked.json()["agent"]) == (200, "first")
            assert asked.json()["turn_id"] != secret.json()["turn_id"]
        # For one sender, the id of a message to somebody else is refused, and tells nothing.
        for group, code in (("first", 409), ("second", 409)):
            refused = await client.post(f"/api/groups/{group}/ask", json=own)
            assert (refused.status_code, "text" in refused.json()) == (code, False)
            assert "another agent or group" in refused.json()["detail"]


@pytest.mark.promise("A1", "X1")
async def test_a_key_of_a_message_to_a_group_is_its_tokens_own(tmp_path: Path):
    cast = Cast()
    async with open_home(tmp_path, cast.model) as home, api_client(home) as client:
        await home.agents.create("ada")
        for name in ("first", "second"):
            await home.groups.create(name, members=["ada"])
        other = (await home.tokens.create("other")).secret
        turns: list[str] = []
        for group, secret in (("first", None), ("first", other), ("first", other)):
            headers = {"idempotency-key": "k1"}
            if secret is not None:
                headers["authorization"] = f"Bearer {secret}"
            path = f"/api/groups/{group}/messages"
            sent = await client.post(path, json={"text": "status?"}, headers=headers)
            assert sent.status_code == 202
            turns.append(sent.json()["turn_id"])
        assert turns[0] != turns[1] == turns[2]
        headers = {"idempotency-key": "k1"}
        path = "/api/groups/second/messages"
        refused = await client.post(path, json={"text": "status?"}, headers=headers)
        assert refused.status_code == 422


@pytest.mark.promise("X1", "T5")
async def test_signals_of_all_agents_are_told_with_those_of_groups(tmp_path: Path):
    cast = Cast()
    async with open_home(tmp_path, cast.model) as home:
        for name in ("ada", "ben"):
            await home.agents.create(name)
        await home.groups.create("ring", members=["ada", "ben"])
        limited = await home.authenticate((await home.tokens.create("a", agents=["ada"])).secret)
        both = await home.authenticate(
            (await home.tokens.create("b", agents=["ada", "ben"])).secret
        )
        watches = [as_seen.agents.watch() for as_seen in (home, limited, both)]
        firsts = [asyncio.ensure_future(anext(watch)) for watch in watches]
        await asyncio.sleep(0)
        ring = await home.groups.get("ring")
        await soon(ring.ask("hello"))
        await soon(home.agents.ask("ada", "bye"))
        ada = await home.agents.get("ada")
        told = [
            await soon(_signals(watch, first, ada.id))
            for watch, first in zip(watches, firsts, strict=True)
        ]
        all_kinds = {"decision", "member", "ended"}
        for signals, of_group in zip(told, (all_kinds, set(), all_kinds), strict=True):
            assert {kind for agent_id, kind in signals if agent_id == ring.id} == of_group


async def _signals(
    watch: AsyncGenerator[Signal], first: asyncio.Future[Signal], agent_id: str
) -> list[tuple[str, str]]:
    """Return the signals until the second turn of an agent has ended."""
    signal = await first
    told = [(signal.agent_id, signal.kind)]
    while told.count((agent_id, "ended")) < 2:
        signal = await anext(watch)
        told.append((signal.agent_id, signal.kind))
    await watch.aclose()
    return told


@pytest.mark.promise("A8")
async def test_a_group_through_the_socket(tmp_path: Path):
    cast = Cast()
    async with Asterism.open(
        tmp_path, models={"scripted": cast.model}, settings={"model": "scripted:one"}, environ={}
    ) as home:
        await home.agents.create("ada")

        def never() -> ScriptedModel:
            raise AssertionError("the home is open already")

        async with running_or_opened(tmp_path, never, work=True) as remote:  # pyright: ignore[reportArgumentType] - never called
            group = await remote.groups.create("ring", members=["ada"])
            assert group.members[0].name == "ada"
            outcome = await soon(remote.groups.ask("ring", "hello"))
            assert (outcome.state, outcome.text) == (TurnState.DONE, "ada answers")
            kinds = [signal.kind async for signal in remote.groups.stream("ring", "again")]
            assert kinds[-1] == "ended"
            assert len(await remote.groups.transcript("ring")) == 12
            await asyncio.sleep(0)
