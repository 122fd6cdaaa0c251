"""Approvals on both engines: asked here, answered elsewhere a month later, exactly once."""

import asyncio
import shutil
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from asterism import Asterism, ToolContext, TurnState, tool
from asterism.errors import Conflict
from asterism.store import approvals
from asterism.testing.channel import MemoryChannel
from asterism.testing.clock import ManualClock
from asterism.testing.postgres import postgres_server
from asterism.types.permissions import Grant
from asterism.types.turns import Delivery, Outcome
from tests.conformance.memory_scene import ENGINES, HOME, NOW, opened, put_agent
from tests.scenes import obedient, open_home, until

MONTH = 30 * 86_400
CONTACTS = '[contacts.anna]\nreach = ["room:anna"]\n'
AUTHORIZATIONS = """
[[policy]]
name = "acts"
verdict = "ask"
tools = ["act"]
reviewers = ["role:admin"]
"""
ASK = '[[call:act {"word": "go"}]]'


class World:
    """Where homes are opened: the same data at another place, or another worker."""

    def __init__(self, root: Path, url: str | None, clock: ManualClock) -> None:
        self.root = root
        self.url = url
        self.clock = clock
        self.done: list[str] = []
        self.delivered: list[Delivery] = []

    @asynccontextmanager
    async def open(self, name: str, **given: Any) -> AsyncGenerator[Asterism, None]:
        """Open a home in a directory of that name."""
        place = self.root / name
        place.mkdir(exist_ok=True)
        (place / "contacts.toml").write_text(CONTACTS)
        (place / "authorizations.toml").write_text(AUTHORIZATIONS)
        channel = MemoryChannel()
        channel.delivered = self.delivered

        @tool
        async def act(ctx: ToolContext, word: str) -> str:
            self.done.append(ctx.key)
            return f"done: {word}"

        settings = {"store.url": self.url} if self.url else {}
        async with open_home(
            place,
            obedient(),
            tools=[act],
            channels={"room": channel},
            clock=self.clock,
            settings=settings,
            **given,
        ) as home:
            yield home

    def move(self, old: str, new: str) -> None:
        """Take the data elsewhere, where it does not rest on a server."""
        if self.url is None:
            shutil.copytree(self.root / old, self.root / new)


@pytest.fixture(params=ENGINES)
def world(
    request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock
) -> Generator[World, None, None]:
    if request.param == "sqlite":
        yield World(tmp_path, None, clock)
        return
    with postgres_server().database() as url:
        yield World(tmp_path, url, clock)


async def outcome_of(home: Asterism, turn_id: str) -> Outcome:
    async def ended() -> bool:
        return (await home.turns.outcome(turn_id)).state in (TurnState.DONE, TurnState.FAILED)

    await until(ended)
    return await home.turns.outcome(turn_id)


@pytest.mark.promise("H1", "H2", "T2")
async def test_asked_here_answered_elsewhere_after_a_month_and_carried_out_once(world: World):
    async with world.open("here") as home:
        await home.agents.create("aria")
        await home.people.create("anna")
        parked = await home.agents.ask("aria", ASK, channel="room", sender="anna", reply_to="anna")
        assert parked.state is TurnState.PARKED
        (question,) = await home.approvals.list()
        assert (question.tool, question.arguments) == ("act", '{"word": "go"}')
    world.clock.forward(seconds=MONTH)
    world.move("here", "there")
    async with world.open("there") as home:
        (question,) = await home.approvals.list()
        assert world.done == []
        receipt = await home.approvals.decide(question.id, approved=True)
        outcome = await outcome_of(home, receipt.turn_id)
        assert outcome.state is TurnState.DONE
        assert "Result: done: go" in outcome.text
    async with world.open("there") as home:
        with pytest.raises(Conflict, match="was approved by owner before"):
            await home.approvals.decide(question.id, approved=False)
        assert (await home.turns.outcome(parked.turn_id)).state is TurnState.DONE
        assert await home.turns.waiting() == []
    assert world.done == [f"{parked.turn_id}/0/call/0"]


@pytest.mark.promise("H2")
async def test_of_many_who_answer_at_once_one_wins_and_each_other_hears_who(world: World):
    async with world.open("here") as one, one_more(world, one) as other:
        await one.agents.create("aria")
        names = ["anna", "bob", "cleo", "dora"]
        for name in names:
            await one.people.create(name, roles=["admin"])
        parked = await one.agents.ask("aria", ASK)
        (question,) = await one.approvals.list()
        tries = [
            home.approvals.decide(question.id, approved=name in ("anna", "bob"), by=name)
            for name in names
            for home in (one, other)
        ]
        answers = await asyncio.gather(*tries, return_exceptions=True)
        refused = [answer for answer in answers if isinstance(answer, Conflict)]
        assert len(refused) == len(tries) - 1
        stands = await one.approvals.show(question.id)
        words = f"was {stands.approval.verdict} by {stands.answered_by} before"
        assert all(words in answer.message for answer in refused)
        await outcome_of(one, parked.turn_id)
        assert len(world.done) == (stands.approval.verdict == "approved")
        assert await one.turns.waiting() == []


@asynccontextmanager
async def one_more(world: World, first: Asterism) -> AsyncGenerator[Asterism, None]:
    """Another worker, where several share the data; else the first one again."""
    if world.url is None:
        yield first
        return
    async with world.open("beside") as home:
        yield home


@pytest.mark.promise("H1")
async def test_workers_side_by_side_announce_a_question_once(world: World):
    async with world.open("here") as one, one_more(world, one) as other:
        await one.agents.create("aria")
        await one.people.create("anna", roles=["admin"])
        parked = await other.agents.ask("aria", ASK)
        (question,) = await one.approvals.list()
        await until(lambda: len(world.delivered) > 0)
        receipt = await other.approvals.decide(question.id, approved=True, by="anna")
        await outcome_of(one, receipt.turn_id)
        assert receipt.turn_id == parked.turn_id

        async def told() -> bool:
            return len(world.delivered) >= 2

        await until(told)
        asked, answered = world.delivered
        assert asked.key == f"{question.id}/1/room:anna"
        assert "was answered by anna: approved" in answered.text


@pytest.mark.promise("H3")
@pytest.mark.parametrize("engine", ENGINES)
async def test_grants_that_count_are_those_that_are_live(engine: str, tmp_path: Path):
    def grant(name: str, **given: Any) -> Grant:
        return Grant(f"grant_{name}", HOME, "pay", given_at_ms=NOW, **given)

    async with opened(engine, tmp_path) as database:
        agent_id = await database.write(lambda tx: put_agent(tx, "aria"))
        there = [
            grant("a", agent_id=agent_id, pattern={"to": "b*", "at.host": "é"}),
            grant("b", uses=1),
            grant("c", until_ms=NOW + 10),
            grant("d", until_ms=NOW),
            grant("e", agent_id="agent_other"),
            grant("f", uses=0),
        ]
        for one in there:
            await database.write(lambda tx, one=one: approvals.put_grant(tx, one))

        async def live(now: int = NOW) -> list[Grant]:
            return await database.read(lambda tx: approvals.live_grants(tx, agent_id, now))

        assert await live() == there[:3]
        assert await live(NOW + 10) == there[:2]
        other = database.for_constellation("else")
        assert await other.read(lambda tx: approvals.live_grants(tx, agent_id, NOW)) == []
        assert await database.write(lambda tx: approvals.use_grant(tx, "grant_b"))
        assert not await database.write(lambda tx: approvals.use_grant(tx, "grant_b"))
        assert await database.write(lambda tx: approvals.revoke_grant(tx, "grant_c", NOW))
        assert not await database.write(lambda tx: approvals.revoke_grant(tx, "grant_c", NOW))
        assert not await other.write(lambda tx: approvals.revoke_grant(tx, "grant_a", NOW))
        assert [one.id for one in await live()] == ["grant_a"]
