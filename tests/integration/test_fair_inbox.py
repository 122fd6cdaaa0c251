"""Whoever hands in more than an agent can answer holds up nobody else, and is told to wait."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from itertools import repeat
from pathlib import Path
from typing import Any

import httpx
import pytest

from asterism import Asterism
from asterism.client import running_or_opened
from asterism.errors import InboxFull
from asterism.permissions import Actor
from asterism.ports import ModelRequest
from asterism.store import messages
from asterism.store.messages import FREE
from asterism.testing.postgres import postgres_server
from asterism.testing.scripted import ScriptedModel
from asterism.types.turns import text_of, without_times
from tests.api_scene import api_client
from tests.mcp_servers.served import connected, serving
from tests.scenes import open_home, until

pytestmark = pytest.mark.promise("T4", "X1")
ENGINES = pytest.mark.parametrize(
    "engine", ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)]
)


class Door:
    """A model that lets the first message through, and the others when it is opened."""

    def __init__(self) -> None:
        self.answered: list[str] = []
        self.opened = asyncio.Event()
        self.model = ScriptedModel(repeat(self._say))
        self.model.complete = self._complete

    async def _complete(self, request: ModelRequest, emit: Any = None) -> Any:
        await self.opened.wait()
        return await ScriptedModel.complete(self.model, request, emit)

    def _say(self, request: ModelRequest) -> str:
        said = without_times(request.messages[-1])
        self.answered.append(text_of(said))
        return "ok"


@pytest.fixture
async def door() -> Door:
    return Door()


@asynccontextmanager
async def opened(
    place: Path, engine: str, door: Door, url: list[str], **settings: Any
) -> AsyncGenerator[Asterism]:
    given = {**settings}
    if engine == "postgres":
        given["store"] = {"url": url[0]}
    async with open_home(place, door.model, settings=given, grace=0.0) as home:
        yield home


@pytest.fixture
def url(engine: str) -> Any:
    if engine == "sqlite":
        yield []
        return
    with postgres_server().database() as address:
        yield [address]


def person_of(home: Asterism, person: Any) -> Any:
    return home.acting_as(Actor("person", person.id, person.name, person.trust, person.roles))


@ENGINES
async def test_the_owner_passes_a_flood_and_each_sender_keeps_an_order(
    engine: str, tmp_path: Path, door: Door, url: list[str]
):
    async with opened(tmp_path, engine, door, url) as home:
        aria = await home.agents.create("aria")
        anna, bert = [
            person_of(home, await home.people.create(name, roles=["partner"]))
            for name in ("Anna", "Bert")
        ]
        for number in range(30):
            await anna.agents.send(aria.id, f"anna {number}")
        for number in range(10):
            await bert.agents.send(aria.id, f"bert {number}")
        await aria.send("owner 0")
        await aria.send("owner 1")
        door.opened.set()
        await until(lambda: len(door.answered) == 42)
        order = door.answered
        for name, count in (("anna", 30), ("bert", 10), ("owner", 2)):
            assert [said for said in order if said.startswith(name)] == [
                f"{name} {number}" for number in range(count)
            ]
        # What waits in no round comes first, the owner's with it.
        assert order.index("owner 1") <= FREE + 2
        assert order.index("bert 0") < order.index(f"anna {2 * FREE + 1}")
        assert order.index("bert 9") < order.index("anna 29")


@ENGINES
async def test_little_is_answered_in_order_of_arrival(
    engine: str, tmp_path: Path, door: Door, url: list[str]
):
    async with opened(tmp_path, engine, door, url) as home:
        aria = await home.agents.create("aria")
        anna = person_of(home, await home.people.create("Anna", roles=["partner"]))
        said: list[str] = []
        for number in range(FREE):
            said += [f"anna {number}", f"owner {number}"]
            await anna.agents.send(aria.id, said[-2])
            await aria.send(said[-1])
        door.opened.set()
        await until(lambda: len(door.answered) == len(said))
        assert door.answered == said


@ENGINES
async def test_what_waits_of_a_person_is_bounded_over_all_agents_also_after_a_restart(
    engine: str, tmp_path: Path, door: Door, url: list[str]
):
    quotas = {"waiting_per_person": 5}
    async with opened(tmp_path, engine, door, url, quotas=quotas) as home:
        aria, bela = [await home.agents.create(name) for name in ("aria", "bela")]
        group = await home.groups.create("desk", pattern="round_robin", members=["bela"])
        record = await home.people.create("Anna", roles=["partner"])
        anna = person_of(home, record)
        for agent in (aria, bela, aria, aria, bela):
            await anna.agents.send(agent.id, "hello", external_id=None)
        with pytest.raises(InboxFull, match="waiting_per_person") as refused:
            await anna.agents.send(aria.id, "one more")
        assert refused.value.retry_after > 0
        with pytest.raises(InboxFull):
            await anna.groups.send(group.name, "one more")
        for number in range(10):  # the owner on the machine has no bound
            await aria.send(f"owner {number}")
        assert len(await home.turns.waiting()) == 15
    async with opened(tmp_path, engine, door, url, quotas=quotas) as home:
        anna = person_of(home, record)
        with pytest.raises(InboxFull):
            await anna.agents.send(aria.id, "one more")
        door.opened.set()
        await until(lambda: len(door.answered) == 15)
        await anna.agents.ask(aria.id, "later")


async def test_a_message_that_is_refused_may_be_handed_in_again(tmp_path: Path, door: Door):
    async with open_home(
        tmp_path, door.model, settings={"quotas": {"waiting_per_person": 1}}
    ) as home:
        aria = await home.agents.create("aria")
        anna = person_of(home, await home.people.create("Anna", roles=["partner"]))
        first = await anna.agents.send(aria.id, "one", external_id="1")
        again = await anna.agents.send(aria.id, "one", external_id="1")
        assert again.duplicate
        with pytest.raises(InboxFull):
            await anna.agents.send(aria.id, "two", external_id="2")
        door.opened.set()
        await home.turns.wait(first)
        second = await anna.agents.send(aria.id, "two", external_id="2")
        assert not second.duplicate
        await home.turns.wait(second)


async def test_senders_of_a_channel_are_bounded_each_for_themselves(tmp_path: Path, door: Door):
    async with open_home(
        tmp_path, door.model, settings={"quotas": {"waiting_per_person": 2}}
    ) as home:
        aria = await home.agents.create("aria")
        for sender in ("ann", "ann", "ben"):
            await aria.send("hello", channel="chat", sender=sender)
        with pytest.raises(InboxFull):
            await aria.send("hello", channel="chat", sender="ann")
        await aria.send("hello", channel="chat", sender="ben", room="lobby")
        with pytest.raises(InboxFull):
            await aria.send("hello", channel="chat", sender="ben", room="lobby", present=["ann"])
        door.opened.set()
        await until(lambda: len(door.answered) == 4)


async def test_many_senders_do_not_hold_up_the_owner(tmp_path: Path, door: Door):
    async with open_home(tmp_path, door.model) as home:
        aria = await home.agents.create("aria")
        for number in range(100):
            await aria.send(f"{number}", channel="chat", sender=f"sender {number}")
        await aria.send("owner")
        door.opened.set()
        await until(lambda: "owner" in door.answered)
        assert door.answered.index("owner") <= FREE
        await until(lambda: len(door.answered) == 101)
        await until(lambda: _nothing_waits(home))


async def _nothing_waits(home: Asterism) -> bool:
    return await home.database.read(messages.count) == 0


@pytest.mark.promise("X5")
async def test_the_bound_holds_over_all_doors_and_tells_when_to_come_again(
    tmp_path: Path, door: Door
):
    quotas = {"waiting_per_person": 2, "waiting_per_token": 3}
    async with open_home(tmp_path, door.model, settings={"quotas": quotas}) as home:
        aria = await home.agents.create("aria")
        await home.halts.halt("to keep them from beginning")
        await home.people.create("Anna", roles=["partner"])
        theirs = await home.tokens.create("hers", role="partner", person="Anna")
        for secret, most in ((theirs.secret, 2), ((await home.tokens.create("mine")).secret, 3)):
            headers = {"authorization": f"Bearer {secret}"}
            async with api_client(home, None) as client:
                client.headers.update(headers)
                for number in range(most):
                    await said(client, aria.id, f"hello {number}", 202)
                refused = await said(client, aria.id, "one more", 429)
                assert refused.json()["type"] == "inbox.full"
                assert int(refused.headers["retry-after"]) == 10
                body = {"model": "aria", "messages": [{"role": "user", "content": "one more"}]}
                for path, more in (("chat/completions", body), ("responses", RESPONSE)):
                    answer = await client.post(f"/openai/v1/{path}", json=more)
                    assert answer.status_code == 429, answer.text
                    assert answer.headers["retry-after"] == "10"
            caller = await home.authenticate(secret)
            async with (
                serving({"": caller}) as url,
                connected(url, "2026-07-28") as client,
            ):
                called = await client.call_tool("chat_with_agent", {"message": "one more"})
                assert called.is_error
                assert "try again in 10 s" in str(called.content)
        async with running_or_opened(tmp_path, no_home, work=False) as elsewhere:
            for number in range(20):  # the owner at the command line
                await elsewhere.agents.send("aria", f"owner {number}")
            for _ in range(2):
                await elsewhere.agents.send("aria", "hi", channel="chat", sender="ann")
            with pytest.raises(InboxFull) as error:
                await elsewhere.agents.send("aria", "hi", channel="chat", sender="ann")
            assert error.value.retry_after == 10.0


RESPONSE = {"model": "aria", "input": "one more"}


def no_home() -> Any:
    raise AssertionError("a home is running, so that none should be opened")


async def said(client: httpx.AsyncClient, agent: str, text: str, status: int) -> httpx.Response:
    answer = await client.post(f"/api/agents/{agent}/messages", json={"text": text})
    assert answer.status_code == status, answer.text
    return answer
