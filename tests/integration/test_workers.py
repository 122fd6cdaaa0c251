"""Workers that share a PostgreSQL database: what they ask for, and what they take over."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from procrastinate.manager import get_channel_for_queues

from asterism import Asterism, Receipt, tool
from asterism.errors import DeliveryError
from asterism.store import messages
from asterism.store.database import Connection
from asterism.store.postgres import LANE_QUEUE, Postgres, open_postgres
from asterism.testing.channel import MemoryChannel
from asterism.testing.postgres import PostgresServer, postgres_server
from asterism.types.turns import MessageOrigin, message_wire
from tests.scenes import heard, obedient, open_home, until

pytestmark = pytest.mark.postgres

(CHANNEL,) = get_channel_for_queues([LANE_QUEUE])


@pytest.fixture
def server() -> PostgresServer:
    return postgres_server(fsync=True)


@pytest.fixture
def url(server: PostgresServer) -> Iterator[str]:
    with server.database() as url:
        yield url


@pytest.fixture
async def database(url: str) -> AsyncIterator[Postgres]:
    database = await open_postgres(url)
    yield database
    await database.close()


# -- waiting for work --------------------------------------------------------------------------


@pytest.mark.promise("D2")
async def test_an_idle_worker_asks_for_nothing_but_gives_its_sign_of_life(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    execute = psycopg.AsyncCursor[Any].execute

    async def counted(self: Any, query: Any, *given: Any, **more: Any) -> Any:
        asked.append(str(query))
        return await execute(self, query, *given, **more)

    settings = {"store": {"url": url}, "runtime": {"heartbeat": 1.0, "stalled_after": 600.0}}
    async with open_home(tmp_path, settings=settings) as home:
        await home.agents.create("aria")
        assert (await home.agents.ask("aria", "hello")).text == "answer to: hello"
        monkeypatch.setattr(psycopg.AsyncCursor, "execute", counted)
        async with asyncio.timeout(120):
            while True:  # what the turn left to do, such as its index, ends before long
                asked.clear()
                await asyncio.sleep(3)
                work = [query for query in asked if "BEGIN" not in query]
                if not [query for query in work if "procrastinate_workers" not in query]:
                    break
        monkeypatch.undo()
    assert 2 <= len(work) <= 8


async def test_what_is_announced_while_nobody_listens_is_found_at_once(
    url: str, database: Postgres, tmp_path: Path
) -> None:
    """The connection that listens is cut, and a message comes before it is made anew."""
    async with open_home(tmp_path, settings={"store": {"url": url}}) as home:
        aria = await home.agents.create("aria")
        assert (await home.agents.ask("aria", "hello")).text == "answer to: hello"

        async def work(tx: Connection) -> None:
            cut = await tx.all(
                "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
                " WHERE datname = current_database() AND query LIKE ?",
                ("LISTEN%",),
            )
            assert cut
            # As `inbox.put_message` does it; nobody is told.
            body = message_wire("user", "anybody there?")
            await messages.put_message(tx, aria.id, "msg_1", body, MessageOrigin("api"), 0)

        await database.write(work)
        async with asyncio.timeout(120):
            outcome = await home.turns.wait(Receipt("msg_1", "turn_1", aria.id, duplicate=True))
        assert outcome.text == "answer to: anybody there?"


@pytest.mark.promise("T1", "T2", "T4")
@pytest.mark.parametrize("elsewhere", [False, True], ids=["gets it back", "another takes over"])
async def test_a_worker_that_is_taken_for_dead_in_a_call_makes_it_once_and_answers_once(
    url: str, database: Postgres, tmp_path: Path, elsewhere: bool
) -> None:
    """As may happen on a busy machine: it lives, and is late with its signs of life."""
    begun, go = asyncio.Event(), asyncio.Event()
    rung: list[str] = []

    @tool
    async def ring() -> str:
        """Ring the bell."""
        rung.append("ring")
        begun.set()
        await go.wait()
        return "rung"

    async def take_for_dead(tx: Connection) -> None:
        await tx.run(
            "DELETE FROM procrastinate_workers WHERE id = (SELECT MIN(id)"
            " FROM procrastinate_workers)"
        )
        await tx.run("UPDATE procrastinate_jobs SET status = 'todo', attempts = attempts + 1")
        await tx.notify(CHANNEL, "")

    async def taken_again() -> bool:
        rows = await database.read(lambda tx: tx.all("SELECT status::text FROM procrastinate_jobs"))
        return "todo" not in [row[0] for row in rows]

    def worker(number: int, **runtime: float) -> AbstractAsyncContextManager[Asterism]:
        settings = {"store": {"url": url}, "runtime": {"stalled_after": 1200.0, **runtime}}
        channels = {"room": rooms[number]}
        place = tmp_path / str(number)
        return open_home(place, models[number], settings=settings, tools=[ring], channels=channels)

    rooms, models = [MemoryChannel(), MemoryChannel()], [obedient(), obedient()]
    async with contextlib.AsyncExitStack() as stack:
        first = last = await stack.enter_async_context(
            worker(0, heartbeat=600.0 if elsewhere else 0.5)
        )
        await first.agents.create("aria")
        receipt = await first.agents.send(
            "aria", "[[call:ring {}]]", channel="room", reply_to="ada"
        )
        await asyncio.wait_for(begun.wait(), 10)
        if elsewhere:
            last = await stack.enter_async_context(worker(1))
        await database.write(take_for_dead)
        await until(taken_again)
        if not elsewhere:
            go.set()
        outcome = await asyncio.wait_for(last.turns.wait(receipt), 20)
        go.set()
        assert outcome.text == "answer to: [[call:ring {}]]"
        await until(lambda: any(room.delivered for room in rooms))
        await asyncio.wait_for(last.agents.ask("aria", "next"), 10)
    assert rung == ["ring"]
    assert sum(len(room.delivered) for room in rooms) == 1
    # What it knows, and whether anything was said twice.
    after, before = (heard(request) for request in reversed(models[elsewhere].requests[-2:]))
    assert len(after) == len(before) + 2
    result = before[-1]["content"]
    assert result.startswith("Outcome unknown") if elsewhere else result == "rung"


@pytest.mark.promise("K2")
async def test_a_process_that_only_hands_in_puts_the_outboxes_of_others_to_work(
    url: str, tmp_path: Path
) -> None:
    channel = MemoryChannel()
    channel.trouble(DeliveryError("Nobody lives here.", final=True))
    settings = {"store": {"url": url}}
    async with (
        open_home(tmp_path, settings=settings, channels={"room": channel}) as worker,
        open_home(tmp_path, settings=settings, work=False) as other,
    ):
        await worker.agents.create("aria")
        await worker.agents.ask("aria", "hello", channel="room", reply_to="ada")
        await until(lambda: _has_dead(worker))
        (dead,) = await other.outbox.list("dead")
        await other.outbox.retry(dead.key)
        await until(lambda: len(channel.delivered) == 1)


async def _has_dead(home: Asterism) -> bool:
    return bool(await home.outbox.list("dead"))
