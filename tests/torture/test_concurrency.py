"""Many messages at once: all answered, in order, one turn at a time for each agent."""

import asyncio
import contextlib
import itertools
import time
from collections import defaultdict
from collections.abc import AsyncGenerator, Callable
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

from asterism import Asterism, Receipt, TurnState
from asterism.testing.postgres import postgres_server
from tests.scenes import open_home, until
from tests.torture.audit import audit
from tests.torture.crowd import Shift, serve, work_of
from tests.torture.worker import lines
from tests.torture.world import spawn

EACH = 8
Engine = Callable[[Path], contextlib.AbstractAsyncContextManager[Asterism]]


@contextlib.asynccontextmanager
async def on_sqlite(place: Path) -> AsyncGenerator[Asterism, None]:
    async with open_home(place, tools=[work_of(place)]) as home:
        yield home


@contextlib.asynccontextmanager
async def on_postgres(place: Path, workers: int = 2) -> AsyncGenerator[Asterism, None]:
    """A client that hands in and waits, with workers in processes of their own."""
    with postgres_server(fsync=True).database() as url:
        crowd = [start(Shift(place, url)) for _ in range(workers)]
        try:
            await until(lambda: len(lines(place / "ready.jsonl")) == workers, 20)
            settings = {"store": {"url": url}}
            async with open_home(place, work=False, settings=settings) as home:
                yield home
        finally:
            for worker in crowd:
                worker.kill()
                await asyncio.to_thread(worker.join, 10)


def start(shift: Shift) -> BaseProcess:
    worker = spawn.Process(target=serve, args=(shift,), daemon=True)
    worker.start()
    return worker


ENGINES = pytest.mark.parametrize(
    "engine",
    [on_sqlite, pytest.param(on_postgres, marks=[pytest.mark.postgres])],
    ids=["sqlite", "postgres"],
)


@ENGINES
@pytest.mark.promise("T4", "D2")
@pytest.mark.parametrize("agents", [1, 64])
async def test_all_are_answered_in_order_and_no_two_at_once(
    tmp_path: Path, engine: Engine, agents: int
):
    place = tmp_path
    async with engine(place) as home:
        crew = [await home.agents.create(f"a{number}") for number in range(agents)]
        sends = [
            home.agents.send(
                agent, f"{number} [[call:work {{}}]]", external_id=f"{agent.id}/{number}"
            )
            for number in range(EACH)
            for agent in crew
        ]
        began = time.monotonic()
        receipts: list[Receipt] = await asyncio.gather(*sends)
        async with asyncio.timeout(100):
            outcomes = await asyncio.gather(*(home.turns.wait(receipt) for receipt in receipts))
        took = time.monotonic() - began
        assert {outcome.state for outcome in outcomes} == {TurnState.DONE}
        found = await audit(home.database)
        arrivals = await home.database.read(lambda tx: tx.all("SELECT id, arrivals FROM agents"))
        assert dict(arrivals) == {agent.id: EACH for agent in crew}
        for agent in crew:
            said = [turn.asked.partition(" ")[0] for turn in found.turns[agent.id]]
            # Of messages handed in at the same time by several connections, any may come first.
            order = sorted(said) if engine is on_postgres else said
            assert order == [str(number) for number in range(EACH)]
    pids = check_no_overlap(place, agents)
    print(f"\n{agents} agents: {len(receipts) / took:.0f} turns/s by {len(pids)} process(es)")


def check_no_overlap(place: Path, agents: int) -> set[int]:
    """No two turns of one agent worked at the same time; return the processes that did."""
    spans: dict[str, list[tuple[int, int]]] = defaultdict(list)
    found = lines(place / "spans.jsonl")
    for line in found:
        spans[line["agent"]].append((line["began"], line["ended"]))
    assert len(spans) == agents
    for worked in spans.values():
        worked.sort()
        assert len(worked) == EACH
        for (_, ended), (began, _) in itertools.pairwise(worked):
            assert ended <= began, "two turns of one agent overlapped"
    return {line["pid"] for line in found}


@ENGINES
@pytest.mark.promise("T4")
async def test_messages_sent_one_after_the_other_are_answered_in_that_order(
    tmp_path: Path, engine: Engine
):
    async with engine(tmp_path) as home:
        crew = [await home.agents.create(f"a{number}") for number in range(4)]
        receipts = [
            await home.agents.send(agent, f"{number:02} [[call:work {{}}]]")
            for number in range(20)
            for agent in crew
        ]
        async with asyncio.timeout(100):
            await asyncio.gather(*(home.turns.wait(receipt) for receipt in receipts))
        found = await audit(home.database)
        for turns in found.turns.values():
            said = [turn.asked[:2] for turn in turns]
            assert said == [f"{number:02}" for number in range(20)]


@pytest.mark.postgres
@pytest.mark.promise("D2", "T2")
async def test_a_killed_workers_turn_goes_on_elsewhere_within_10_seconds(tmp_path: Path):
    place = tmp_path
    with postgres_server(fsync=True).database() as url:
        crowd = {worker.pid: worker for worker in (start(Shift(place, url)) for _ in range(2))}
        try:
            await until(lambda: len(lines(place / "ready.jsonl")) == 2, 20)
            async with open_home(place, work=False, settings={"store": {"url": url}}) as home:
                await home.agents.create("aria")
                receipt = await home.agents.send("aria", '[[call:work {"seconds": 1.5}]]')
                begun = place / "begun.jsonl"
                await until(lambda: len(lines(begun)) == 1)
                (first,) = lines(begun)
                crowd[first["pid"]].kill()
                killed = time.time_ns()
                await until(lambda: len(lines(begun)) == 2, 15)
                second = lines(begun)[1]
                took = (second["at"] - killed) / 1e9
                assert (second["key"], second["pid"] != first["pid"]) == (first["key"], True)
                async with asyncio.timeout(30):
                    assert (await home.turns.wait(receipt)).state is TurnState.DONE
                await audit(home.database)
        finally:
            for worker in crowd.values():
                worker.kill()
                await asyncio.to_thread(worker.join, 10)
    print(f"\ntaken over after {took:.1f} s")
    assert took < 10
