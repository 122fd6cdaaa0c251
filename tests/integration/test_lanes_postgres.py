"""Lanes over PostgreSQL: one at a time, taken over from the dead, through restarts of the server.

Run as a program, it is a worker: `python test_lanes_postgres.py URL SECONDS`, where each piece of
work is noted in the table `runs` and lasts so many seconds.
"""

import asyncio
import contextlib
import itertools
import os
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Sequence
from pathlib import Path

import psycopg
import pytest
from procrastinate.manager import get_channel_for_queues

from asterism.store import postgres
from asterism.store.database import Connection, Row, Work
from asterism.store.postgres import LANE_QUEUE, Postgres, open_postgres
from asterism.testing.postgres import PostgresServer, postgres_server
from asterism.turns import lanes_postgres
from asterism.turns.lanes import Lanes
from asterism.turns.lanes_postgres import ProcrastinateLanes
from asterism.types.turns import InboxItem

pytestmark = pytest.mark.postgres

PATIENCE = 120.0
TAKEN_OVER_WITHIN = 30.0
"""Six seconds are waited for the dead; the rest is for machines that are slow."""

(CHANNEL,) = get_channel_for_queues([LANE_QUEUE])
RUNS = (
    "CREATE TABLE runs (id BIGINT PRIMARY KEY GENERATED ALWAYS AS IDENTITY, agent TEXT NOT NULL,"
    " worker BIGINT NOT NULL, began DOUBLE PRECISION NOT NULL, ended DOUBLE PRECISION)"
)


async def be_a_worker(url: str, seconds: float) -> None:
    """Work until killed."""
    database = await open_postgres(url)

    async def work(agent_id: str) -> None:
        row = await database.write(
            lambda tx: tx.one(
                "INSERT INTO runs (agent, worker, began) VALUES (?, ?, ?) RETURNING id",
                (agent_id, os.getpid(), time.time()),
            )
        )
        assert row is not None
        await asyncio.sleep(seconds)
        await database.write(
            lambda tx: tx.run("UPDATE runs SET ended = ? WHERE id = ?", (time.time(), row[0]))
        )

    lanes = ProcrastinateLanes(database, work, concurrency=8, heartbeat=2, stalled_after=6)
    try:
        await lanes.start()
        await asyncio.Event().wait()
    finally:
        await database.close()  # its pool would hold up the end of a worker that fails


@pytest.fixture
def server() -> PostgresServer:
    return postgres_server(fsync=True)


def start(server: PostgresServer) -> None:
    """Start the server again, and wait until it has recovered."""
    try:
        server.start()
    except subprocess.TimeoutExpired:  # after 10 s; the server itself goes on with its recovery
        deadline = time.monotonic() + 60
        while True:
            try:
                psycopg.connect(server.url("postgres")).close()
                break
            except psycopg.OperationalError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)
        server.start()  # it finds the one that runs


@pytest.fixture
def url(server: PostgresServer) -> Iterator[str]:
    with server.database() as url:
        yield url


@pytest.fixture
async def database(url: str) -> AsyncIterator[Postgres]:
    database = await open_postgres(url)
    yield database
    await database.close()


@contextlib.asynccontextmanager
async def worker(url: str, seconds: float) -> AsyncGenerator[asyncio.subprocess.Process, None]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(Path(__file__)), url, str(seconds)
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


@contextlib.asynccontextmanager
async def lanes_of(
    database: Postgres,
    work: Callable[[str], Awaitable[None]],
    *,
    concurrency: int = 4,
    heartbeat: float = 0.2,
    stalled_after: float = 5.0,
) -> AsyncGenerator[ProcrastinateLanes, None]:
    lanes = ProcrastinateLanes(
        database, work, concurrency=concurrency, heartbeat=heartbeat, stalled_after=stalled_after
    )
    await lanes.start()
    try:
        yield lanes
    finally:
        await lanes.stop(0)


async def enqueue(database: Postgres, agents: Sequence[str]) -> None:
    async def work(tx: Connection) -> None:
        for agent_id in agents:
            await tx.enqueue(agent_id)

    await database.write(work)


async def look(database: Postgres, sql: str) -> list[Row]:
    return await database.read(lambda tx: tx.all(sql))


async def jobs(database: Postgres) -> list[Row]:
    return await look(
        database, "SELECT lock, status::text, attempts FROM procrastinate_jobs ORDER BY id"
    )


async def until(condition: Callable[[], Awaitable[bool]], seconds: float = PATIENCE) -> None:
    async with asyncio.timeout(seconds):
        while not await condition():  # noqa: ASYNC110 - the condition is the database's
            await asyncio.sleep(0.02)


async def until_idle(database: Postgres) -> None:
    async def idle() -> bool:
        return not await jobs(database)

    await until(idle)


# -- processes ---------------------------------------------------------------------------------


@pytest.mark.promise("T4", "D2")
async def test_two_processes_never_work_in_one_lane_at_a_time(url: str, database: Postgres) -> None:
    await database.write(lambda tx: tx.run(RUNS))
    agents = [f"agent_{number}" for number in range(16)]
    async with worker(url, 0.02), worker(url, 0.02):

        async def both_are_up() -> bool:
            rows = await look(database, "SELECT COUNT(*) FROM procrastinate_workers")
            return rows[0][0] == 2

        await until(both_are_up)
        await enqueue(database, agents * 8)
        await until_idle(database)
    lanes: dict[str, list[Row]] = defaultdict(list)
    for row in await look(database, "SELECT agent, began, ended, worker FROM runs ORDER BY began"):
        lanes[row[0]].append(row)
    assert {agent: len(runs) for agent, runs in lanes.items()} == dict.fromkeys(agents, 8)
    for runs in lanes.values():
        for former, latter in itertools.pairwise(runs):
            assert former[2] <= latter[1]
    assert len({row[3] for runs in lanes.values() for row in runs}) == 2


@pytest.mark.promise("T2", "D2")
async def test_the_work_of_a_killed_worker_is_taken_over(url: str, database: Postgres) -> None:
    await database.write(lambda tx: tx.run(RUNS))
    async with worker(url, 1.0) as first, worker(url, 1.0) as second:
        await enqueue(database, ["agent_1", "agent_1", "agent_2"])

        async def begun() -> list[Row]:
            return await look(database, "SELECT worker, began, agent FROM runs ORDER BY id")

        async def both_lanes_began() -> bool:
            return len(await begun()) >= 2

        await until(both_lanes_began)
        killed, *_ = (await begun())[0]
        left = {first.pid: second.pid, second.pid: first.pid}[killed]
        os.kill(killed, signal.SIGKILL)
        killed_at = time.time()
        await until_idle(database)
        runs = await begun()
        interrupted = {row[2] for row in runs if row[0] == killed}
        again = {row[2]: row[1] for row in reversed(runs) if row[0] == left and row[1] > killed_at}
        assert interrupted <= again.keys()
        assert max(again[agent] for agent in interrupted) - killed_at < TAKEN_OVER_WITHIN
        finished = await look(database, "SELECT agent FROM runs WHERE ended IS NOT NULL")
        assert sorted(row[0] for row in finished) == ["agent_1", "agent_1", "agent_2"]


@pytest.mark.promise("T2", "D2")
@pytest.mark.parametrize(
    "before", [pytest.param(0.0, id="with the server"), pytest.param(4.0, id="before it")]
)
async def test_the_work_of_a_worker_that_dies_beside_its_server_is_taken_over(
    server: PostgresServer, url: str, database: Postgres, before: float
) -> None:
    """The server crashes and comes back; that must not hold back what dead workers have left."""
    await database.write(lambda tx: tx.run(RUNS))

    async def runs() -> list[Row]:
        return await look(database, "SELECT agent, worker, began FROM runs ORDER BY id")

    async def begun() -> bool:
        return bool(await runs())

    async with worker(url, 60.0) as first:
        await enqueue(database, ["agent_1"])
        await until(begun)
        async with worker(url, 60.0) as second:

            async def both_are_up() -> bool:
                rows = await look(database, "SELECT COUNT(*) FROM procrastinate_workers")
                return rows[0][0] == 2

            await until(both_are_up)
            os.kill(first.pid, signal.SIGKILL)
            killed_at = time.time()
            await asyncio.sleep(before)
            gone_at = time.time()
            await asyncio.to_thread(server.crash)
            await asyncio.to_thread(start, server)
            away = time.time() - gone_at

            async def taken_over() -> bool:
                return (await runs())[-1][:2] == ("agent_1", second.pid)

            await until(taken_over)
            took = (await runs())[-1][2] - killed_at
            print(f"\ntaken over after {took:.1f} s; the server was away for {away:.1f} s of these")
            assert took - away < TAKEN_OVER_WITHIN


# -- one worker --------------------------------------------------------------------------------


@pytest.fixture
def unlooked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a worker find nothing but what it is told of: what starts at all starts at once."""
    monkeypatch.setattr(lanes_postgres, "_LOOK_AROUND", 3_600.0)


@pytest.mark.usefixtures("unlooked")
async def test_a_committed_job_starts_at_once(database: Postgres) -> None:
    begun = asyncio.Event()

    async def work(_: str) -> None:
        begun.set()

    async with lanes_of(database, work) as lanes:
        fulfils: Lanes = lanes
        fulfils.wake(InboxItem("agent_1", 1, "msg_1", "message", "terminal", b"", 0))
        for _ in range(20):
            begun.clear()
            await enqueue(database, ["agent_1"])
            await asyncio.wait_for(begun.wait(), PATIENCE)
        await until_idle(database)


@pytest.mark.usefixtures("unlooked")
async def test_the_jobs_of_one_lane_follow_each_other_without_a_pause(database: Postgres) -> None:
    done: list[str] = []

    async def work(agent_id: str) -> None:
        done.append(agent_id)

    await enqueue(database, ["agent_1"] * 20)
    async with lanes_of(database, work):
        await until_idle(database)
    assert done == ["agent_1"] * 20


async def test_no_more_is_under_way_than_was_allowed(database: Postgres) -> None:
    under_way = most = 0

    async def work(_: str) -> None:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await until(lambda: _is(most >= 3))
        await asyncio.sleep(0.02)
        under_way -= 1

    await enqueue(database, [f"agent_{number}" for number in range(12)])
    async with lanes_of(database, work, concurrency=3):
        await until_idle(database)
    assert most == 3


async def test_work_that_fails_is_tried_again_and_keeps_its_lane(database: Postgres) -> None:
    seen: list[tuple[str, float]] = []

    async def work(agent_id: str) -> None:
        seen.append((agent_id, time.perf_counter()))
        if agent_id == "unlucky" and len([each for each in seen if each[0] == "unlucky"]) < 3:
            raise LookupError("not now")

    await enqueue(database, ["unlucky", "lucky", "unlucky"])
    async with lanes_of(database, work):
        await until_idle(database)
    unlucky = [at for agent_id, at in seen if agent_id == "unlucky"]
    assert len(unlucky) == 4
    assert unlucky[1] - unlucky[0] >= 0.5
    assert unlucky[2] - unlucky[1] >= 1.0
    assert [agent_id for agent_id, _ in seen].count("lucky") == 1


async def test_lanes_without_a_job_are_found(database: Postgres) -> None:
    async def lay_open(tx: Connection) -> None:
        await tx.run(
            "INSERT INTO inbox (agent_id, arrival, id, kind, channel, body, at)"
            " VALUES ('waiting', 1, 'msg_1', 'message', 'terminal', ?, 0)",
            (b"",),
        )
        for state in ("open", "done"):
            await tx.run(
                "INSERT INTO turns (id, agent_id, state, channel, first_seq, last_seq, opened_at)"
                " VALUES (?, ?, ?, 'terminal', 1, 1, 0)",
                (f"turn_{state}", state, state),
            )

    found: list[str] = []

    async def work(agent_id: str) -> None:
        found.append(agent_id)

    await database.write(lay_open)
    async with lanes_of(database, work):
        await until_idle(database)
    assert sorted(found) == ["open", "waiting"]


# -- waiting for work --------------------------------------------------------------------------


@pytest.mark.usefixtures("unlooked")
async def test_what_failed_is_tried_again_elsewhere_when_its_worker_has_left(
    database: Postgres,
) -> None:
    failed, done = asyncio.Event(), asyncio.Event()

    async def fail(_: str) -> None:
        failed.set()
        raise LookupError("not here")

    async def work(_: str) -> None:
        done.set()

    async with lanes_of(database, fail) as first:
        await enqueue(database, ["agent_1"])
        await asyncio.wait_for(failed.wait(), PATIENCE)
        async with lanes_of(database, work):
            await first.stop(1)
            await asyncio.wait_for(done.wait(), PATIENCE)
            await until_idle(database)


@pytest.mark.usefixtures("unlooked")
async def test_the_next_message_of_a_lane_goes_elsewhere_when_its_worker_stops(
    database: Postgres,
) -> None:
    begun, go, taken = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def finish(_: str) -> None:
        begun.set()
        await go.wait()

    async def work(_: str) -> None:
        taken.set()

    async with lanes_of(database, finish) as first:
        await enqueue(database, ["agent_1", "agent_1"])
        await asyncio.wait_for(begun.wait(), PATIENCE)
        async with lanes_of(database, work):
            stopping = asyncio.create_task(first.stop(10))
            await asyncio.sleep(0)
            go.set()
            await asyncio.wait_for(taken.wait(), PATIENCE)
            await stopping
            await until_idle(database)


# -- several workers ---------------------------------------------------------------------------


async def test_stopping_lets_work_finish_within_its_grace(database: Postgres) -> None:
    begun = asyncio.Event()
    finished: list[str] = []

    async def work(agent_id: str) -> None:
        begun.set()
        await asyncio.sleep(0.3)
        finished.append(agent_id)

    await enqueue(database, ["agent_1", "agent_1"])
    async with lanes_of(database, work) as lanes:
        await asyncio.wait_for(begun.wait(), PATIENCE)
        await lanes.stop(5)
    assert finished == ["agent_1"]
    assert await jobs(database) == [("agent_1", "todo", 0)]
    assert await look(database, "SELECT * FROM procrastinate_workers") == []


@pytest.mark.usefixtures("unlooked")
async def test_what_is_stopped_goes_on_elsewhere_at_once(database: Postgres) -> None:
    begun = asyncio.Event()
    taken_over = asyncio.Event()

    async def hang(_: str) -> None:
        begun.set()
        await asyncio.Event().wait()

    async def work(_: str) -> None:
        taken_over.set()

    await enqueue(database, ["agent_1"])
    async with lanes_of(database, hang, stalled_after=600) as first:
        await asyncio.wait_for(begun.wait(), PATIENCE)
        async with lanes_of(database, work, stalled_after=600):
            await first.stop(0.1)
            await asyncio.wait_for(taken_over.wait(), PATIENCE)
            await until_idle(database)


@pytest.mark.promise("T4")
async def test_a_stalled_worker_is_relieved_once_and_does_not_interfere(database: Postgres) -> None:
    begun: list[str] = []
    wake_up = asyncio.Event()
    finish = asyncio.Event()

    async def sleep_long(agent_id: str) -> None:
        begun.append(f"sleeper {agent_id}")
        await wake_up.wait()
        if agent_id == "agent_1":
            raise LookupError("its lane is lost")

    async def work(agent_id: str) -> None:
        begun.append(agent_id)
        await finish.wait()

    async def relieved() -> bool:
        return len(begun) == 4

    async with contextlib.AsyncExitStack() as stack:
        await enqueue(database, ["agent_1", "agent_2"])
        # Its heart beats too seldom for the others.
        await stack.enter_async_context(
            lanes_of(database, sleep_long, concurrency=2, heartbeat=600)
        )
        await until(lambda: _is(len(begun) == 2))
        for _ in range(3):
            await stack.enter_async_context(lanes_of(database, work, stalled_after=4))
        await until(relieved)
        held = await jobs(database)
        assert held == [("agent_1", "doing", 1), ("agent_2", "doing", 1)]
        wake_up.set()  # one fails, one is done: neither is the sleeper's to settle any more
        await asyncio.sleep(0.5)
        assert await jobs(database) == held
        finish.set()
        await until_idle(database)
    assert sorted(begun[2:]) == ["agent_1", "agent_2"]


async def _is(value: bool) -> bool:
    return value


@pytest.mark.promise("T4")
@pytest.mark.parametrize("elsewhere", [False, True], ids=["its own", "had by another"])
async def test_a_worker_that_gets_back_a_lane_it_lost_does_not_work_in_it_twice(
    database: Postgres, elsewhere: bool
) -> None:
    """It was taken for dead in the middle of its work, which goes on."""
    log: list[str] = []
    go = asyncio.Event()

    async def work(_: str) -> None:
        number = len([line for line in log if "begun" in line])
        log.append(f"{number} begun")
        try:
            if number == 0:
                await go.wait()
        finally:
            log.append(f"{number} ended")

    async def take_for_dead(tx: Connection) -> None:
        await tx.run("DELETE FROM procrastinate_workers")
        await tx.run(
            "UPDATE procrastinate_jobs SET status = 'todo', attempts = attempts + ?",
            (2 if elsewhere else 1,),
        )
        await tx.notify(CHANNEL, "")

    async def taken_again() -> bool:
        return [row[1] for row in await jobs(database)] in ([], ["doing"])

    async with lanes_of(database, work):
        await enqueue(database, ["agent_1"])
        await until(lambda: _is(log == ["0 begun"]))
        await database.write(take_for_dead)
        await until(taken_again)
        if not elsewhere:
            go.set()
        await until_idle(database)
    assert log == ["0 begun", "0 ended", "1 begun", "1 ended"]


async def test_a_worker_that_was_forgotten_comes_back(database: Postgres) -> None:
    done: list[str] = []

    async def work(agent_id: str) -> None:
        done.append(agent_id)

    async with lanes_of(database, work):
        await database.write(lambda tx: tx.run("DELETE FROM procrastinate_workers"))
        await enqueue(database, ["agent_1"])
        await until_idle(database)
    assert done == ["agent_1"]


@pytest.mark.promise("D2")
async def test_a_worker_goes_on_when_its_server_crashes_while_it_starts(
    server: PostgresServer, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "_PATIENCE", 1.0)
    database = await open_postgres(url)
    done = asyncio.Event()

    async def work(_: str) -> None:
        done.set()

    write = database.write

    async def crash_at_the_first_write(work: Work[None]) -> None:
        monkeypatch.undo()
        rows = await look(database, "SELECT COUNT(*) FROM procrastinate_workers")
        assert rows[0][0] == 1
        await asyncio.to_thread(server.crash)
        await write(work)

    monkeypatch.setattr(database, "write", crash_at_the_first_write)
    try:
        async with lanes_of(database, work):
            await asyncio.to_thread(start, server)
            await enqueue(database, ["agent_1"])
            await asyncio.wait_for(done.wait(), PATIENCE)
            await until_idle(database)
    finally:
        start(server)
        await database.close()


@pytest.mark.promise("D2")
async def test_a_restart_of_the_server_interrupts_nobody(
    server: PostgresServer, database: Postgres
) -> None:
    begun: list[str] = []

    async def work(agent_id: str) -> None:
        begun.append(agent_id)
        await asyncio.sleep(3 if agent_id == "long" else 0)

    async with lanes_of(database, work, stalled_after=1), lanes_of(database, work, stalled_after=1):
        for way_down in (server.crash, server.stop):
            begun.clear()
            await enqueue(database, ["long", "long"])
            await until(lambda: _is(bool(begun)))
            await asyncio.to_thread(way_down)
            await asyncio.sleep(1.5)
            await asyncio.to_thread(start, server)
            await enqueue(database, ["short"])
            await until_idle(database)
            assert sorted(begun) == ["long", "long", "short"]


if __name__ == "__main__":
    asyncio.run(be_a_worker(sys.argv[1], float(sys.argv[2])))
