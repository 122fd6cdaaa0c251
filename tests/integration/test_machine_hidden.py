"""Paths, process ids and stack traces are shown to the owner of the machine, and to nobody else."""

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import httpx
import orjson
import pytest

from asterism import Asterism, Home
from asterism.api.server import HttpApplication
from asterism.errors import MasterKeyMissing, StoreDamaged, StoreError, StoreFull, StoreReadOnly
from asterism.store import agents
from asterism.store.database import Connection
from asterism.types.agents import AgentRecord
from asterism.version import __version__
from tests.scenes import open_home

pytestmark = [pytest.mark.promise("X1"), pytest.mark.promise("X5")]


@asynccontextmanager
async def client_of(home: Asterism, secret: str) -> AsyncGenerator[httpx.AsyncClient, None]:
    transport = httpx.ASGITransport(cast("Any", HttpApplication(home)), raise_app_exceptions=False)
    headers = {"authorization": f"Bearer {secret}"}
    async with httpx.AsyncClient(
        transport=transport, base_url="http://home", headers=headers
    ) as client:
        yield client


async def secrets_of(home: Asterism) -> dict[str, str]:
    """Return a token of everybody: of the machine's owner, of other roles, of another's owner."""
    await home.constellations.ensure("garden")
    made = {
        "owner": await home.tokens.create("own"),
        "garden": await home.tokens.create("laptop", constellation="garden"),
        "one agent": await home.tokens.create("one", agents=["aria"]),
        **{
            role: await home.tokens.create(role, role=role)
            for role in ("admin", "editor", "operator", "viewer")
        },
    }
    return {name: token.secret for name, token in made.items()}


def call(name: str, *args: Any, version: str = __version__) -> dict[str, Any]:
    return {"call": name, "args": list(args), "kwargs": {}, "version": version}


@pytest.fixture
def faults(monkeypatch: pytest.MonkeyPatch) -> list[Exception]:
    """Has lists of agents raise what this list holds."""
    raised: list[Exception] = []
    original = agents.everyone

    async def everyone(tx: Connection) -> list[AgentRecord]:
        if raised:
            raise raised[0]
        return await original(tx)

    monkeypatch.setattr(agents, "everyone", everyone)
    return raised


async def test_only_the_owner_of_the_machine_is_told_of_it(tmp_path: Path):
    async with open_home(tmp_path, work=False) as home:
        await home.agents.create("aria")
        for name, secret in (await secrets_of(home)).items():
            async with client_of(home, secret) as client:
                answers = [
                    await client.get("/api/status"),
                    await client.post("/api/call", json={**call("hello"), "work": False}),
                    await client.post("/api/call", json=call("keys.place")),
                    await client.post("/api/call", json=call("keys.list")),
                    await client.post("/api/call", json=call("hello", version="0.0.0")),
                ]
            told = "\n".join(answer.text for answer in answers)
            for fact in (str(tmp_path), home.keys.place(), f'pid":{os.getpid()}'):
                assert (fact in told) == (name == "owner"), (name, fact, told)
            assert "Process " not in answers[-1].text
        assert (await home.status()).pid == os.getpid()
        assert home.keys.place().startswith("/")


@pytest.mark.parametrize("kind", [StoreFull, StoreReadOnly, StoreDamaged, MasterKeyMissing])
async def test_an_error_names_no_path_to_others(
    tmp_path: Path, faults: list[Exception], kind: type[StoreError]
):
    async with open_home(tmp_path, work=False) as home:
        await home.agents.create("aria")
        secrets = await secrets_of(home)
        faults.append(kind(f"The disk of {tmp_path} is not as it should be."))
        for name, secret in secrets.items():
            async with client_of(home, secret) as client:
                answers = [
                    await client.get("/api/agents"),
                    await client.get("/openai/v1/models"),
                    await client.post("/api/call", json=call("agents.list")),
                ]
            told = "\n".join(answer.text for answer in answers)
            assert kind.code in answers[0].text
            assert (str(tmp_path) in told) == (name == "owner"), (name, told)
            assert name == "owner" or "Whoever runs the server" in told
        with pytest.raises(kind, match="not as it should be"):
            await home.agents.list()


async def test_a_fault_is_traced_for_the_owner_of_the_machine_alone(
    tmp_path: Path, faults: list[Exception]
):
    async with open_home(tmp_path, work=False) as home:
        await home.agents.create("aria")
        secrets = await secrets_of(home)
        faults.append(RuntimeError(f"no such file: {tmp_path}"))
        for name in ("owner", "garden"):
            async with client_of(home, secrets[name]) as client:
                answer = await client.post("/api/call", json=call("agents.list"))
            fault = orjson.loads(answer.text)["fault"]
            assert ("Traceback" in answer.text) == (name == "owner")
            assert (str(tmp_path) in answer.text) == (name == "owner")
            assert fault["message"]


async def test_a_client_of_another_constellation_connects_all_the_same(tmp_path: Path):
    async with open_home(tmp_path, work=False) as home:
        await home.agents.create("aria")
        secret = (await secrets_of(home))["garden"]
        async with client_of(home, secret) as client:
            answer = await client.post("/api/call", json={**call("hello"), "work": False})
        assert orjson.loads(answer.text)["result"]["pid"] is None


async def test_what_hinders_a_key_is_told_without_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async with open_home(tmp_path, work=False) as home:
        await home.keys.set("openai", "sk-0123456789abcdef")

        def missing(_: object, name: str) -> MasterKeyMissing:
            return MasterKeyMissing(f"{name} cannot be decrypted: {tmp_path} has no master key.")

        monkeypatch.setattr("asterism.app.keys.KeyRing.problem", missing)
        viewer: Home = await home.authenticate(
            (await home.tokens.create("v", role="viewer")).secret
        )
        ((theirs,), (own,)) = await viewer.keys.list(), await home.keys.list()
        assert own.problem is not None
        assert theirs.problem is not None
        assert str(tmp_path) in own.problem
        assert str(tmp_path) not in theirs.problem
