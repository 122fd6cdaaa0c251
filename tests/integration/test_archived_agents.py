"""Archived agents: in no list and at no work, with their memory and their past."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from asterism import TurnState
from asterism.errors import Conflict
from asterism.testing.clock import ManualClock
from asterism.testing.postgres import postgres_server
from tests.api_scene import api_client
from tests.scenes import open_home, until


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def engine(request: pytest.FixtureRequest) -> Iterator[dict[str, str]]:
    """Settings that put what is stored into one engine or the other."""
    if request.param == "sqlite":
        yield {}
        return
    with postgres_server().database() as url:
        yield {"store.url": url}


@pytest.mark.promise("A1")
async def test_an_archived_agent_rests_and_comes_back(tmp_path: Path, engine: dict[str, str]):
    clock = ManualClock()
    async with open_home(tmp_path, settings=engine, clock=clock) as home, api_client(home) as api:
        aria = await home.agents.create("aria")
        turn_id = (await aria.ask("hello")).turn_id
        await home.schedules.add("aria", "in 20 minutes", "water")
        archived = await api.post("/api/agents/aria/archive")
        assert archived.json()["archived_at"] == clock()
        assert (await api.get("/api/agents")).json()["items"] == []
        (there,) = (await api.get("/api/agents", params={"archived": True})).json()["items"]
        assert there["name"] == "aria"
        refused = await api.post("/api/agents/aria/messages", json={"text": "hello"})
        assert refused.status_code == 409
        assert 'agent unarchive aria"' in refused.json()["detail"]
        assert (await api.post("/api/agents/aria/archive")).status_code == 409
        # What it was stays, and nothing new begins.
        assert (await api.get(f"/api/turns/{turn_id}")).json()["agent"] == "aria"
        assert (await api.get("/api/agents/aria/blocks")).json()["items"]
        clock.forward(seconds=3_600)
        await home.database.write(lambda tx: tx.notify("schedule", ""))
        with pytest.raises(Conflict, match="is archived"):
            await home.agents.ask("aria", "hello")
        assert len(await home.turns.list("aria")) == 1
        assert (await api.post("/api/agents/aria/unarchive")).json()["archived_at"] is None

        async def over() -> bool:
            turns = await home.turns.list("aria")
            return len(turns) == 2 and all(turn.state is TurnState.DONE for turn in turns)

        await until(over)  # the schedule that fell due meanwhile
        assert (await home.agents.ask("aria", "hello")).state is TurnState.DONE
        with pytest.raises(Conflict, match="is not archived"):
            await home.agents.unarchive("aria")


async def test_what_waited_is_answered_after_a_restart_and_no_sooner(
    tmp_path: Path, engine: dict[str, str]
):
    async with open_home(tmp_path, settings=engine, work=False) as home:
        await home.agents.create("aria")
        receipt = await home.agents.send("aria", "hello")
        await home.agents.archive("aria")
    async with open_home(tmp_path, settings=engine) as home:
        await home.agents.create("bea")
        await home.agents.ask("bea", "hello")
        assert (await home.turns.outcome(receipt.turn_id)).state is TurnState.WAITING
        await home.agents.unarchive("aria")

        async def over() -> bool:
            return (await home.turns.outcome(receipt.turn_id)).state is TurnState.DONE

        await until(over)
