"""One process serves every constellation of its database, each for its own owner."""

from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import httpx
import pytest

from asterism import Asterism, TurnState
from asterism.api.server import HttpApplication, Server, bind
from asterism.app.constellations import constellation_directory
from asterism.client import RemoteAgent
from asterism.errors import InvalidInput, NotAllowed, NotFound
from asterism.testing.clock import ManualClock
from asterism.testing.postgres import postgres_server
from asterism.types.turns import Delivery
from tests.scenes import open_home, until


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def engine(request: pytest.FixtureRequest) -> Iterator[dict[str, str]]:
    """Settings that put what is stored into one engine or the other."""
    if request.param == "sqlite":
        yield {}
        return
    with postgres_server().database() as url:
        yield {"store.url": url}


@asynccontextmanager
async def client_of(home: Asterism, secret: str) -> AsyncGenerator[httpx.AsyncClient, None]:
    transport = httpx.ASGITransport(cast("Any", HttpApplication(home)))
    headers = {"authorization": f"Bearer {secret}"}
    async with httpx.AsyncClient(
        transport=transport, base_url="http://home", headers=headers, timeout=30
    ) as client:
        yield client


async def owner_token(home: Asterism, constellation: str) -> str:
    await home.constellations.ensure(constellation)
    return (await home.tokens.create("laptop", constellation=constellation)).secret


@pytest.mark.promise("X1")
async def test_a_token_leads_to_its_constellation(tmp_path: Path, engine: dict[str, str]):
    async with open_home(tmp_path, settings=engine) as home:
        await home.agents.create("aria", system="Be of the house.")
        secret = await owner_token(home, "garden")
        own = (await home.tokens.create("own")).secret
        async with client_of(home, secret) as garden, client_of(home, own) as house:
            assert (await garden.get("/api/agents")).json()["items"] == []
            made = await garden.post("/api/agents", json={"name": "aria", "system": "Of flowers."})
            assert made.status_code == 201
            answer = await garden.post("/api/agents/aria/ask", json={"text": "say [[say:tulips]]"})
            assert answer.status_code == 200, answer.text
            assert answer.json()["state"] == "done"
            turn_id = answer.json()["turn_id"]
            assert (await house.get(f"/api/turns/{turn_id}")).status_code == 404
            assert (await house.get("/api/agents/aria")).json()["system"] == "Be of the house."
            assert len((await house.get("/api/turns")).json()["items"]) == 0
            assert (await garden.get("/api/session")).json()["constellation"] == "garden"
            spent = (await garden.get("/api/status")).json()
            assert (spent["agents"], spent["working"]) == (1, True)
        names = {there.name: there.agents for there in await home.constellations.list()}
        assert names == {"garden": 1, "home": 1}


@pytest.mark.promise("X1")
async def test_only_the_owner_of_the_server_makes_constellations(tmp_path: Path):
    async with open_home(tmp_path) as home:
        garden = await home.constellations.ensure(" garden ")
        assert await home.constellations.ensure("garden") == garden
        assert (await home.constellations.get("garden")).name == "garden"
        with pytest.raises(NotFound, match="no constellation 'gardne'"):
            await home.constellations.get("gardne")
        with pytest.raises(NotFound, match="no constellation 'nowhere'"):
            await home.tokens.create("ci", constellation="nowhere")
        with pytest.raises(InvalidInput, match="cannot name a constellation"):
            await home.constellations.ensure("a\nb")
        admin = (await home.tokens.create("admin", role="admin")).secret
        guest = (await home.tokens.create("laptop", constellation="garden")).secret
        for secret in (admin, guest):
            there = await home.authenticate(secret)
            with pytest.raises(NotAllowed, match="owner of the server's own constellation"):
                await there.constellations.list()
            with pytest.raises(NotAllowed):
                await there.constellations.ensure("pond")
            with pytest.raises(NotAllowed):
                await there.tokens.create("ci", constellation="pond")
        kinds = [event.kind for event in await home.audit.list()]
        assert kinds.count("constellation.created") == 1


@pytest.mark.promise("X1")
async def test_quotas_of_the_server_hold_in_every_constellation(tmp_path: Path):
    settings: dict[str, Any] = {
        "quotas.agents": 2,
        "agent_messages.max_messages": 3,
        "alerts.budget": 50,
        "alerts.channel": "home",
    }
    async with open_home(tmp_path, settings=settings) as home:
        for name, own in (("garden", None), ("pond", 1), ("forest", 9)):
            if own is not None:
                place = constellation_directory(tmp_path, name)
                place.mkdir(parents=True)
                (place / "asterism.toml").write_text(f"[quotas]\nagents = {own}\n")
            secret = await owner_token(home, name)
            async with client_of(home, secret) as client:
                new = [{"name": f"agent{number}"} for number in range(4)]
                codes = [(await client.post("/api/agents", json=each)).status_code for each in new]
                assert codes.count(201) == min(own or 2, 2), name
                asked = await client.post("/api/agents/agent0/ask", json={"text": "hello"})
                fork = await client.post(f"/api/turns/{asked.json()['turn_id']}/fork", json={})
                assert fork.json()["type"] == "quota", name
            settings_there = (await home.home_of_secret(secret)).settings
            assert settings_there.agent_messages.max_messages == 3
            # Where alerts go to is the owner's of the server.
            assert settings_there.alerts.budget == 50
            assert settings_there.alerts.channel is None


@pytest.mark.promise("X1")
async def test_what_is_of_the_machine_is_refused_elsewhere(tmp_path: Path):
    async with open_home(tmp_path) as home:
        there = await home.authenticate(await owner_token(home, "garden"))
        with pytest.raises(NotAllowed, match="about the whole server"):
            await there.backups.list()
        with pytest.raises(NotAllowed, match="about the whole server"):
            await there.config.read()
        with pytest.raises(NotAllowed, match="about the whole server"):
            await there.sources.add("secrets", tmp_path)
        with pytest.raises(NotAllowed, match="about the whole server"):
            await there.check()
        # Files that they send themselves are theirs.
        await there.sources.upload("letters", "one.txt", b"The tulips are red.")
        assert [state.source.name for state in await there.sources.list()] == ["letters"]
        assert await home.sources.list() == []


@pytest.mark.promise("X1")
async def test_no_file_of_the_machine_is_a_tape_for_anybody_but_its_owner(tmp_path: Path):
    there, gone = tmp_path / "there.txt", tmp_path / "gone.txt"
    there.write_text("TOPSECRET")
    async with open_home(tmp_path / "data") as home:
        secret = await owner_token(home, "garden")
        async with (
            Server(home, bind("127.0.0.1", 0), tuple) as server,
            Asterism.connect(server.url, secret) as garden,
        ):
            rose = await garden.agents.create("rose")
            turn = (await rose.ask("hello")).turn_id
            told: set[str] = set()
            for place in (there, gone, tmp_path):
                with pytest.raises(NotAllowed) as refused:
                    await garden.turns.replay(turn, cassette=place)
                told.add(refused.value.message)
            assert len(told) == 1  # nothing of what is there
            assert (await garden.turns.replay(turn)).same
        # Nor is it for a person, nor for a token for some agents.
        done = await (await home.agents.create("aria")).ask("hello")
        for made in (
            await home.tokens.create("admin", role="admin"),
            await home.tokens.create("narrowed", agents=["aria"]),
        ):
            theirs = await home.authenticate(made.secret)
            with pytest.raises(NotAllowed, match="a file of the machine"):
                await theirs.turns.replay(done.turn_id, cassette=there)
            assert (await theirs.turns.replay(done.turn_id)).same


@pytest.mark.promise("X1", "A8")
async def test_records_with_ids_of_others_lead_nowhere(tmp_path: Path):
    async with open_home(tmp_path) as home:
        aria = await home.agents.create("aria")
        secret = await owner_token(home, "garden")
        async with (
            Server(home, bind("127.0.0.1", 0), tuple) as server,
            Asterism.connect(server.url, secret) as garden,
        ):
            fields = {name: getattr(aria, name) for name in ("id", "name", "model", "system")}
            forged = RemoteAgent(**fields, created_at_ms=0, _model_in_use="a:b")
            for attempt in (
                garden.agents.send(forged, "hello"),
                garden.turns.list(forged),
                garden.schedules.add(forged, "tomorrow at 9", "tea"),
                garden.agents.edit(forged, system="Obey."),
                garden.agents.delete(forged),
            ):
                with pytest.raises(NotFound, match="no agent named"):
                    await attempt
            with pytest.raises(NotAllowed, match="about the whole server"):
                await garden.backups.list()
        assert await home.turns.list() == []


@pytest.mark.promise("X1", "T2")
async def test_open_work_goes_on_after_a_restart(tmp_path: Path, engine: dict[str, str]):
    clock = ManualClock()
    async with open_home(tmp_path, settings=engine, work=False, clock=clock) as home:
        there = await home.authenticate(await owner_token(home, "garden"))
        await there.agents.create("rose")
        receipt = await there.agents.send("rose", "say [[say:tulips]]")
        await there.schedules.add("rose", "in 20 minutes", "water")
    async with open_home(tmp_path, settings=engine, clock=clock) as home:
        there = await home.authenticate(await owner_secret(home))

        async def over(count: int) -> bool:
            turns = await there.turns.list()
            return len(turns) == count and all(turn.state is TurnState.DONE for turn in turns)

        await until(lambda: over(1))
        assert (await there.turns.outcome(receipt.turn_id)).state is TurnState.DONE
        clock.forward(seconds=20 * 60 + 1)
        await home.database.write(lambda tx: tx.notify("schedule", ""))
        await until(lambda: over(2))
        assert await home.turns.list() == []


async def owner_secret(home: Asterism) -> str:
    return (await home.tokens.create("again", constellation="garden")).secret


@pytest.mark.promise("X1")
async def test_a_halt_stops_one_constellation_alone(tmp_path: Path):
    async with open_home(tmp_path) as home:
        there = await home.authenticate(await owner_token(home, "garden"))
        await home.agents.create("aria")
        await there.agents.create("rose")
        await home.halts.halt("A test.")
        assert await there.halts.current() is None
        assert (await there.agents.ask("rose", "hello")).state is TurnState.DONE
        receipt = await home.agents.send("aria", "hello")
        assert (await home.turns.outcome(receipt.turn_id)).state is TurnState.WAITING


@pytest.mark.promise("X1")
async def test_nothing_leaves_through_channels_of_others(tmp_path: Path):
    sent: list[Delivery] = []

    class Chat:
        async def listen(self, accept: object) -> None:
            del accept

        async def deliver(self, delivery: Delivery) -> None:
            sent.append(delivery)

        async def close(self) -> None:
            pass

    async with open_home(tmp_path, channels={"chat": Chat()}) as home:
        there = await home.authenticate(await owner_token(home, "garden"))
        await home.agents.create("aria")
        await there.agents.create("rose")
        await there.agents.ask("rose", "hello", channel="chat", reply_to="somebody")

        async def is_dead() -> bool:
            return len(await there.outbox.list("dead")) == 1

        await until(is_dead)
        assert sent == []
        await home.agents.ask("aria", "hello", channel="chat", reply_to="somebody")
        await until(lambda: len(sent) == 1)
        (dead,) = await there.outbox.list("dead")
        with pytest.raises(NotFound, match="no dead delivery"):
            await home.outbox.retry(dead.key)
