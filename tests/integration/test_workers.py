"""Workers that share a PostgreSQL database: what they ask for, and what they take over."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from asterism import Asterism, Receipt
from asterism.errors import DeliveryError
from asterism.store import messages
from asterism.store.database import Connection
from asterism.store.postgres import Postgres, open_postgres
from asterism.testing.channel import MemoryChannel
from asterism.testing.postgres import PostgresServer, postgres_server
from asterism.types.turns import MessageOrigin, message_wire
from tests.scenes import open_home, until

pytestmark = pytest.mark.postgres


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
        async with asyncio.timeout(60):
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
        async with asyncio.timeout(5):
            outcome = await home.turns.wait(Receipt("msg_1", "turn_1", aria.id, duplicate=True))
        assert outcome.text == "answer to: anybody there?"


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
