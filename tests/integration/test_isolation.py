"""Nothing of one constellation is seen from another: by ids, names, searches, events or errors."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from asterism.api.server import Server, bind
from asterism.testing.postgres import postgres_server
from tests.isolation_scene import OWN, WORDS, isolation_scene, twin


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def engine(request: pytest.FixtureRequest) -> Iterator[dict[str, str]]:
    """Settings that put what is stored into one engine or the other."""
    if request.param == "sqlite":
        yield {}
        return
    with postgres_server().database() as url:
        yield {"store.url": url}


@pytest.mark.promise("X1")
async def test_requests_of_one_constellation_tell_nothing_of_another(
    tmp_path: Path, engine: dict[str, str]
):
    requests = 1_000 if not engine else 300
    async with isolation_scene(tmp_path, 1, settings=engine) as scene:
        while scene.sent < requests:
            await scene.try_pair()
        assert scene.leaks == [], chr(10).join(scene.leaks)
        assert scene.differences == []


@pytest.mark.promise("X1")
async def test_searches_and_keys_and_forgetting_reach_ones_own_alone(tmp_path: Path):
    async with isolation_scene(tmp_path, 2) as scene:
        for body in ({"text": WORDS}, {"text": "canary"}, {"text": "", "limit": 200}):
            found = await scene.birch.post("/api/search", json=body)
            assert found.status_code == 200
            assert not [text for text in scene.silent if text in found.text]
        assert "of birch" in (await scene.birch.post("/api/search", json={"text": WORDS})).text
        for key in scene.probes["idempotency"]:
            headers = {"idempotency-key": key}
            made = await scene.birch.post("/api/people", json={"name": key}, headers=headers)
            assert made.status_code == 201  # the other's key is not known here
            assert "idempotency-replayed" not in made.headers
        before = await scene.alder.get(f"/api/agents/{scene.probes['agent'][0]}/passages")
        for field, kind in (("passages", "passage"), ("turns", "turn"), ("agents", "agent")):
            value = scene.probes[kind][0]
            answers = [
                await scene.birch.post("/api/memory/forget", json={field: [asked]})
                for asked in (value, twin(value, scene.chance))
            ]
            assert answers[0].status_code == answers[1].status_code, answers[0].text
        await scene.birch.post("/api/memory/forget", json={"texts": [WORDS]})
        after = await scene.alder.get(f"/api/agents/{scene.probes['agent'][0]}/passages")
        assert after.json() == before.json()


@pytest.mark.promise("X1", "T5")
async def test_events_of_one_constellation_reach_no_other(tmp_path: Path):
    async with isolation_scene(tmp_path, 3) as scene:
        secrets = [scene.alder.headers["authorization"], scene.birch.headers["authorization"]]
        agent = scene.probes["agent"][0]
        async with Server(scene.home, bind("127.0.0.1", 0), tuple) as server:
            alder, birch = (
                httpx.AsyncClient(base_url=server.url, headers={"authorization": secret})
                for secret in secrets
            )
            async with alder, birch, asyncio.timeout(120):
                last = await _first_event_id(alder, agent)
                refused = await birch.get(
                    f"/api/agents/{agent}/events", headers={"last-event-id": last}
                )
                assert refused.status_code == 404
                async with birch.stream(
                    "GET", "/api/events", headers={"last-event-id": last}
                ) as stream:
                    lines = stream.aiter_lines()
                    await alder.post(f"/api/agents/{agent}/ask", json={"text": f"secret {WORDS}"})
                    await birch.post(f"/api/agents/{OWN}/ask", json={"text": "own"})
                    seen: list[str] = []
                    async for line in lines:
                        seen.append(line)
                        if line == "event: ended":
                            break
                text = "\n".join(seen)
                assert agent not in text
                assert not [found for found in scene.silent if found in text]


async def _first_event_id(client: httpx.AsyncClient, agent: str) -> str:
    """Return the id of an event that a turn of an agent has caused."""
    async with client.stream(
        "POST", f"/api/agents/{agent}/stream", json={"text": "hello"}
    ) as stream:
        async for line in stream.aiter_lines():
            if line.startswith("id: ") and len(line) > 8:
                return line.removeprefix("id: ")
    raise AssertionError(json.dumps("no event"))
