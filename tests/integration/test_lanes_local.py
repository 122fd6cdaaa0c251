"""Lanes in one process: in order of arrival, one at a time, and nothing stays behind."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import cast

import pytest

from asterism.store import journal
from asterism.store.database import Connection, Values
from asterism.testing.scripted import ScriptedModel
from asterism.turns import lanes
from asterism.turns.lanes import LocalLanes
from asterism.types.turns import InboxItem
from tests.scenes import open_home, until


class Store:
    """An inbox in memory, and a record of what was served."""

    def __init__(self) -> None:
        self.inbox: list[InboxItem] = []
        self.served: list[tuple[str, int]] = []
        self.under_way: set[str] = set()
        self.most_under_way = 0
        self.looks = 0
        self.troubles: list[Exception] = []
        self.go = asyncio.Event()
        self.go.set()

    def put(self, agent_id: str) -> InboxItem:
        """Commit an item."""
        arrival = 1 + sum(one.agent_id == agent_id for one in self.inbox)
        arrival += sum(who == agent_id for who, _ in self.served)
        item = InboxItem(agent_id, arrival, f"msg_{arrival}", "message", "", b"", 0)
        self.inbox.append(item)
        return item

    async def busy(self) -> list[str]:
        return sorted({item.agent_id for item in self.inbox})

    async def serve(self, agent_id: str, item: InboxItem | None) -> int | None:
        assert agent_id not in self.under_way, "two turns of one agent at a time"
        self.under_way.add(agent_id)
        self.most_under_way = max(self.most_under_way, len(self.under_way))
        try:
            await self.go.wait()
            if item is None:
                self.looks += 1
                item = next((one for one in self.inbox if one.agent_id == agent_id), None)
                if item is None:
                    return None
            if self.troubles:
                raise self.troubles.pop()
            self.inbox.remove(item)
            self.served.append((agent_id, item.arrival))
            await asyncio.sleep(0)
            return item.arrival
        finally:
            self.under_way.discard(agent_id)

    @contextlib.asynccontextmanager
    async def lanes(self, most: int = 256) -> AsyncGenerator[LocalLanes, None]:
        work = LocalLanes(self.serve, self.busy, most)
        await work.start()
        yield work
        await work.stop(1.0)


def arrivals(count: int, agent_id: str = "a") -> list[tuple[str, int]]:
    return [(agent_id, number) for number in range(1, count + 1)]


@pytest.fixture
async def store() -> Store:
    return Store()


@pytest.mark.promise("T4")
async def test_items_are_served_in_order_of_arrival_without_a_look_into_the_store(store: Store):
    async with store.lanes() as work:
        for _ in range(20):
            work.wake(store.put("a"))
        await until(lambda: not store.inbox)
    assert store.served == arrivals(20)
    assert store.looks == 0


@pytest.mark.promise("T4")
async def test_what_was_left_in_the_store_goes_first(store: Store):
    for _ in range(3):
        store.put("a")
    async with store.lanes() as work:
        work.wake(store.put("a"))
        await until(lambda: not store.inbox)
    assert store.served == arrivals(4)


@pytest.mark.promise("T4")
async def test_more_than_fits_in_memory_is_taken_from_the_store(
    store: Store, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(lanes, "_MAX_IN_MEMORY", 4)
    store.go.clear()
    async with store.lanes() as work:
        for _ in range(50):
            work.wake(store.put("a"))
        await asyncio.sleep(0)
        store.go.set()
        await until(lambda: not store.inbox)
    assert store.served == arrivals(50)


@pytest.mark.promise("T4")
async def test_a_poke_between_items_changes_no_order(store: Store):
    async with store.lanes() as work:
        for number in range(30):
            item = store.put("a")
            if number % 3 == 0:
                work.poke("a")
            else:
                work.wake(item)
            if number % 5 == 0:
                await asyncio.sleep(0)
        await until(lambda: not store.inbox)
    assert store.served == arrivals(30)


async def test_a_turn_that_fails_is_tried_again_and_keeps_its_place(
    store: Store, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(lanes, "_FIRST_WAIT", 0.01)
    store.troubles = [OSError("once"), OSError("twice")]
    async with store.lanes() as work:
        for _ in range(3):
            work.wake(store.put("a"))
        await until(lambda: not store.inbox)
    assert store.served == arrivals(3)


async def test_no_more_turns_run_at_once_than_there_is_room_for(store: Store):
    async with store.lanes(most=2) as work:
        for name in "abcdef":
            work.wake(store.put(name))
            work.wake(store.put(name))
        await until(lambda: not store.inbox)
    assert store.most_under_way == 2
    assert sorted(store.served) == sorted(one for name in "abcdef" for one in arrivals(2, name))


async def test_stopping_waits_for_the_turn_under_way_and_leaves_the_rest(store: Store):
    store.go.clear()
    work = LocalLanes(store.serve, store.busy, 8)
    await work.start()
    for _ in range(3):
        work.wake(store.put("a"))
    await asyncio.sleep(0)
    stopping = asyncio.ensure_future(work.stop(5.0))
    await asyncio.sleep(0)
    store.go.set()
    await stopping
    assert store.served == arrivals(1)
    work.wake(store.put("a"))
    await asyncio.sleep(0)
    assert len(store.inbox) == 3


async def test_an_idle_lane_leaves_nothing_behind(store: Store):
    async with store.lanes() as work:
        before = asyncio.all_tasks()
        work.wake(store.put("a"))
        assert asyncio.all_tasks() != before
        await until(lambda: asyncio.all_tasks() == before)


async def test_an_open_turn_is_found_by_its_index_however_many_turns_there_are(tmp_path: Path):
    async with open_home(tmp_path, ScriptedModel("hello")) as home:

        async def plan(tx: Connection) -> str:
            asked: list[str] = []

            class Recorder:
                async def one(self, sql: str, values: Values = ()) -> None:
                    asked.append(sql)

            await journal.find_open_turn(cast("Connection", Recorder()), "agent_1")
            steps = await tx.all(f"EXPLAIN QUERY PLAN {asked[0]}", ("agent_1",))
            return " ".join(str(step[3]) for step in steps)

        assert "turns_open" in await home.database.read(plan)
