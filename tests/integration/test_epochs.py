"""Epochs of one agent that two begin at once: each keeps its own number, and nothing is lost."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, suppress
from pathlib import Path
from typing import Any

import pytest

from asterism import Asterism, TurnState
from asterism.ports import Emit, ModelRequest
from asterism.store.database import Connection
from asterism.store.epochs import Epoch, begin, find
from asterism.testing.postgres import postgres_server
from asterism.testing.scripted import ScriptedModel
from asterism.types.turns import Outcome, Reply
from tests.scenes import PATIENCE, open_home

SUMMARY = "They talked about many things."
Home = Callable[[ScriptedModel], AbstractAsyncContextManager[Asterism]]


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
async def home(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Home, None]:
    """Opens the same home again and again, on either engine."""

    def opener(settings: dict[str, Any]) -> Home:
        return lambda model: open_home(tmp_path, model, settings=settings)

    if request.param == "sqlite":
        yield opener({})
        return
    with postgres_server().database() as url:
        yield opener({"store": {"url": url}})


class Pausing(ScriptedModel):
    """Answers by rule, and waits before it answers a message that says so."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = asyncio.Event()
        self.go_on = asyncio.Event()
        self.meet: asyncio.Barrier | None = None
        """Where compactions wait for each other."""

    async def complete(self, request: ModelRequest, emit: Emit | None = None) -> Reply:
        """Answer, after a wait if the last message asks for one."""
        del emit
        self.requests.append(request)
        if "/compact/" in request.key:
            with suppress(TimeoutError, asyncio.BrokenBarrierError):
                async with asyncio.timeout(1):
                    await (self.meet.wait() if self.meet is not None else asyncio.sleep(0))
            return Reply(SUMMARY)
        if b"take your time" in request.messages[-1]:
            self.asked.set()
            async with asyncio.timeout(PATIENCE):
                await self.go_on.wait()
        return Reply("ok")


async def while_it_thinks(home: Asterism, model: Pausing, text: str = "take your time") -> Outcome:
    """Ask something, compact while the model thinks, and return how the turn ended."""
    async with asyncio.timeout(PATIENCE):
        asking = asyncio.create_task(home.agents.ask("aria", text))
        await model.asked.wait()
        compacted = await home.contexts.compact("aria")
        assert compacted.summary.text == SUMMARY
        model.go_on.set()
        return await asking


async def numbers(home: Asterism) -> list[tuple[int, str | None]]:
    rows = await home.database.read(
        lambda tx: tx.all("SELECT number, summary FROM epochs ORDER BY number")
    )
    return [(row[0], row[1]) for row in rows]


@pytest.mark.promise("M11")
async def test_folding_beside_a_first_turn_replaces_neither(home: Home):
    model = Pausing()
    async with home(model) as one:
        await one.agents.create("aria")
        for number in range(30):
            await one.agents.ask("aria", f"message {number}")
        await one.agents.edit("aria", system="Be brief.")
        outcome = await while_it_thinks(one, model)
        assert outcome.state is TurnState.DONE
        stored = await numbers(one)
        assert [number for number, _ in stored] == list(range(1, len(stored) + 1))
        # The turn is shown with what its model was sent: the whole past, and no summary.
        sent = (
            model.requests[-1] if "/compact/" not in model.requests[-1].key else model.requests[-2]
        )
        shown = await one.contexts.of_turn(outcome.turn_id)
        assert shown.messages == tuple(sent.messages)
        assert SUMMARY not in "\n".join(line.text for line in shown.lines)
        # The compaction holds from the next turn on.
        assert (await one.agents.ask("aria", "go on")).state is TurnState.DONE
        assert SUMMARY in model.requests[-1].messages[0].decode()
    async with home(Pausing()) as again:
        now = await again.contexts.now("aria")
        assert SUMMARY in "\n".join(line.text for line in now.lines)


@pytest.mark.promise("M11")
async def test_two_foldings_at_once_make_one_summary(home: Home):
    model = Pausing()
    async with home(model) as one:
        agent = await one.agents.create("aria")
        for number in range(30):
            await one.agents.ask("aria", f"message {number}")
        model.meet = asyncio.Barrier(2)
        async with asyncio.timeout(PATIENCE):
            first, second = await asyncio.gather(
                one.contexts.compact("aria"), one.contexts.compact("aria")
            )
        assert first.summary.id == second.summary.id
        rows = await one.database.read(
            lambda tx: tx.all("SELECT id FROM summaries WHERE agent_id = ?", (agent.id,))
        )
        assert len(rows) == 1
        assert (await one.agents.ask("aria", "go on")).state is TurnState.DONE


@pytest.mark.postgres
@pytest.mark.promise("M11")
async def test_a_process_goes_on_in_what_another_has_folded(tmp_path: Path):
    model = Pausing()
    with postgres_server().database() as url:
        settings = {"store": {"url": url}, "context.tokens": 1_000}
        async with (
            open_home(tmp_path / "works", model, settings=settings) as one,
            open_home(tmp_path / "compactions", model, settings=settings, work=False) as other,
        ):
            await one.agents.create("aria")
            for number in range(30):
                await one.agents.ask("aria", f"message {number}")
            compacted = await other.contexts.compact("aria")
            # The first has its own context in memory still; now it has to make room in it.
            assert (await one.agents.ask("aria", "a long story " * 300)).state is TurnState.DONE
            assert compacted.summary.id in model.requests[-1].messages[0].decode()


async def test_epochs_that_are_begun_at_once_get_numbers_of_their_own(home: Home):
    async with home(Pausing()) as one:
        agent = await one.agents.create("aria")

        def epoch(participants: str) -> Epoch:
            return Epoch(agent.id, 1, participants, 1, None, "[]", "first turn", 1)

        async def work(tx: Connection, participants: str) -> Epoch:
            return await begin(tx, epoch(participants))

        async with asyncio.timeout(PATIENCE):
            begun = await asyncio.gather(
                *(
                    one.database.write(
                        lambda tx, participants=f"room:{number}": work(tx, participants)
                    )
                    for number in range(8)
                )
            )
        assert sorted(found.number for found in begun) == list(range(1, 9))
        assert {number for number, _ in await numbers(one)} == set(range(1, 9))
        # Whoever does not see that a commit succeeded finds the number that was given.
        for found in begun:
            again = await one.database.read(lambda tx, of=found: find(tx, epoch(of.participants)))
            assert again == found
        assert await one.database.read(lambda tx: find(tx, epoch("room:none"))) is None
