"""Groups over HTTP, as a model of OpenAI's API, through the socket, and from the command line."""

import asyncio
from pathlib import Path

import orjson
import pytest

from asterism import Asterism, TurnState
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
            assert asked.status_code == 403
    assert cast.heard == []


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
