"""Lanes over PostgreSQL: Procrastinate's jobs, taken by any worker, never by two at a time.

A job says that its agent (its `lock`) has something to do, and carries nothing else. Jobs, locks,
announcements and heartbeats are Procrastinate's. The loop around them is ours, since its own worker
leaves a lane's next job to a poll, takes nothing new from a restart of the server until its last
turn is through, and settles jobs without a look at who holds them by now.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import NamedTuple

from procrastinate.manager import get_channel_for_queues

from asterism.errors import AsterismError, StoreError
from asterism.store import crashes, messages
from asterism.store.database import Connection, end_tasks
from asterism.store.messages import busy_agents
from asterism.store.postgres import LANE_QUEUE, Postgres
from asterism.types.turns import InboxItem

log = logging.getLogger(__name__)

_TRY_AGAIN = 1.0
_LOOK_AROUND = 30.0
"""Seconds until a worker looks for work that nothing has told it of; that should find none."""
_RETRY_TOPIC = "lane_retry"
_FIRST_WAIT, _MAX_WAIT = 0.5, 10.0
_A_MOMENT = 0.05
_FIND_AGAIN = 0.25
"""Seconds between tries to find a server that is away."""
_BACK_WITHIN = 3.0
"""Seconds in which all workers find a server that was away, and say so."""
_SLACK = 1.0
"""Seconds beyond its heartbeat that a busy worker counts of the time between two looks."""
(_CHANNEL,) = get_channel_for_queues([LANE_QUEUE])

# Nothing, for a worker that others do not know of.
_TAKE = (
    "SELECT job.id, job.lock, job.attempts FROM procrastinate_workers w,"
    " LATERAL procrastinate_fetch_job_v2(ARRAY[?]::varchar[], w.id) job"
    " WHERE w.id = ? AND job.id IS NOT NULL"
)
# A worker that was taken for dead may live on: it must not settle what another holds by now.
_OWN_JOB = " WHERE id = ? AND worker_id = ? AND attempts = ? AND status = 'doing'"
_DONE = "DELETE FROM procrastinate_jobs" + _OWN_JOB
_PUT_BACK = (
    "UPDATE procrastinate_jobs SET status = 'todo', attempts = attempts + 1, worker_id = NULL,"
    " scheduled_at = now() + make_interval(secs => ?)"
)
_RETRY = _PUT_BACK + _OWN_JOB
_GIVE_BACK = _PUT_BACK + " WHERE worker_id = ? AND status = 'doing' AND id <> ALL(?::bigint[])"
# As they were seen: one that has come to life again meanwhile is left alone. Their jobs lose their
# worker by the foreign key.
_BURY = (
    "DELETE FROM procrastinate_workers w USING unnest(?::bigint[], ?::timestamptz[]) AS d(id, beat)"
    " WHERE w.id = d.id AND w.last_heartbeat = d.beat RETURNING w.id"
)
_RESCUE = (
    f"{_PUT_BACK} WHERE queue_name = ? AND status = 'doing' AND worker_id IS NULL RETURNING lock"
)
_OTHERS = (
    "SELECT id, last_heartbeat, EXTRACT(EPOCH FROM now() - last_heartbeat)::double precision,"
    " last_heartbeat > pg_postmaster_start_time() FROM procrastinate_workers WHERE id <> ?"
)


class _Job(NamedTuple):
    id: int
    agent_id: str
    attempts: int
    worker: int


class _Seen(NamedTuple):
    """Another worker, as the database has it."""

    id: int
    beat: datetime
    age: float
    """Seconds since its last heartbeat."""
    since_restart: bool
    """Whether it was heard of since the server was started."""


class _Watch:
    """Knows for how long others have been silent, not counting when the server was away.

    For while it is away, nobody can be heard of; and when it is back, those who live need a moment
    to find it.
    """

    def __init__(self, heartbeat: float, patience: float) -> None:
        self._most_at_once = heartbeat + _SLACK
        self._patience = patience
        self._silent: dict[int, tuple[datetime, float]] = {}
        self._noted_at: float | None = None
        self.cut_off = False

    def lose(self) -> None:
        """Note that the server cannot be asked."""
        self.cut_off, self._noted_at = True, None

    def note(self, others: Sequence[_Seen], now: float) -> list[_Seen]:
        """Note the registered workers; return the workers that were silent for too long."""
        passed = 0.0 if self._noted_at is None else min(now - self._noted_at, self._most_at_once)
        most = self._patience - _BACK_WITHIN if self.cut_off else math.inf
        self.cut_off, self._noted_at = False, now
        silent: dict[int, tuple[datetime, float]] = {}
        for worker in others:
            beat, before = self._silent.get(worker.id, (None, 0.0))
            if beat is None:
                since = worker.age if worker.since_restart else 0.0
            else:
                since = before + passed if beat == worker.beat else min(worker.age, passed)
            silent[worker.id] = (worker.beat, min(since, most))
        self._silent = silent
        return [worker for worker in others if silent[worker.id][1] >= self._patience]

    def next_in(self) -> float:
        """Return in how many seconds somebody may have been silent for too long."""
        return min((self._patience - since for _, since in self._silent.values()), default=math.inf)


class ProcrastinateLanes:
    """The lanes of one worker among any number that share a database.

    `work` answers the first thing an agent has to do and returns; at once if there is nothing.
    """

    def __init__(
        self,
        database: Postgres,
        work: Callable[[str], Awaitable[None]],
        *,
        concurrency: int,
        heartbeat: float,
        stalled_after: float,
    ) -> None:
        self._database = database
        self._work = work
        self._heartbeat = heartbeat
        self._stalled_after = stalled_after
        self._watch = _Watch(heartbeat, stalled_after)
        self._worker = 0
        self._slots = asyncio.Semaphore(concurrency)
        self._taking = asyncio.Lock()
        self._in_doubt = False
        self._woken = asyncio.Event()
        self._look = asyncio.Event()
        self._running: dict[asyncio.Task[None], _Job] = {}
        self._stopping = False
        self._loops: list[asyncio.Task[None]] = []

    @property
    def worker(self) -> int | None:
        """The id under which this worker's signs of life are known, if they are."""
        return self._worker or None

    async def start(self) -> None:
        """Begin to work, with whatever was left in the store.

        From its first sign of life on, others may rely on this worker, so that what comes after it
        does not fail when the server goes away: the loops wait for it.
        """
        await self._database.listen(_CHANNEL, lambda _: self._woken.set(), missed=self._missed)
        await self._database.listen(_RETRY_TOPIC, lambda wait: self._wake_in(float(wait)))
        pause = await self._watch_others()
        self._loops = [
            asyncio.create_task(self._take_jobs(), name="asterism-lanes"),
            asyncio.create_task(self._keep_watch(pause), name="asterism-lanes-watch"),
        ]
        looking = self._keep_looking(await self._look_around())
        self._loops.append(asyncio.create_task(looking, name="asterism-lanes-look"))

    def wake(self, item: InboxItem) -> None:
        """Do nothing: the job was committed with the item, and is announced by the database."""

    async def stop(self, grace: float) -> None:
        """Let turns under way finish within `grace` seconds, then leave them to other workers."""
        if not self._loops:
            return
        (taking, *watching), self._loops = self._loops, []
        self._stopping = True
        await end_tasks([taking])
        if self._running:
            await asyncio.wait(self._running, timeout=grace)
        # Once: a turn that is cancelled lets go of what it holds before it ends.
        running = list(self._running)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        await end_tasks(watching)
        try:
            await self._give_back()
            await self._database.write(self._unregister)
        except StoreError as error:
            log.warning("other workers take over after %s s: %s", self._stalled_after, error)

    # -- working -------------------------------------------------------------------------------

    async def _take_jobs(self) -> None:
        while True:
            await self._slots.acquire()
            self._woken.clear()
            taken, wait = False, _TRY_AGAIN
            try:
                async with self._taking:
                    taken = await self._take_job()
                wait = _LOOK_AROUND
            except StoreError as error:
                log.warning("no new work for now: %s", error)
            except Exception:
                log.exception("taking work failed; trying again")
            finally:
                if not taken:
                    self._slots.release()
            if not taken:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(wait):
                        await self._woken.wait()

    async def _take_job(self) -> bool:
        if self._in_doubt:
            await self._give_back()
        worker = self._worker
        # Until the answer is here, a job may be ours without our knowing.
        self._in_doubt = True
        row = await self._database.write(lambda tx: tx.one(_TAKE, (LANE_QUEUE, worker)))
        self._in_doubt = False
        if row is None:
            return False
        job = _Job(row[0], row[1], row[2], worker)
        task = asyncio.create_task(self._run(job), name=f"asterism-lane-{job.agent_id}")
        self._running[task] = job
        task.add_done_callback(self._ended)
        return True

    def _ended(self, task: asyncio.Task[None]) -> None:
        del self._running[task]
        self._slots.release()
        # The lane's next job could not be taken while this one was under way.
        self._woken.set()

    async def _run(self, job: _Job) -> None:
        claim = (job.id, job.worker, job.attempts)
        try:
            await self._end_earlier(job)
            await self._work(job.agent_id)
        except Exception as error:
            wait = min(_FIRST_WAIT * 2 ** min(job.attempts, 16), _MAX_WAIT)
            if isinstance(error, AsterismError):
                log.warning("lane of %s waits %.1f s: %s", job.agent_id, wait, error)
            else:
                log.exception("lane of %s failed; trying again in %.1f s", job.agent_id, wait)
            await self._settle(lambda tx: _retry(tx, wait, claim))
        else:
            await self._settle(lambda tx: self._done(tx, claim))

    async def _end_earlier(self, job: _Job) -> None:
        """Let no work go on beside this in a lane that was lost to others and has come back.

        For a worker that is taken for dead in the middle of its work goes on with it.
        """
        for task, earlier in list(self._running.items()):
            if task is asyncio.current_task():
                break
            if earlier.agent_id == job.agent_id:
                again = (earlier.id, earlier.attempts + 1) == (job.id, job.attempts)
                if earlier.worker != job.worker and not again:
                    task.cancel()  # another worker has had the lane: its writes are refused
                await asyncio.wait([task])

    async def _settle(self, settle: Callable[[Connection], Awaitable[None]]) -> None:
        while True:
            try:
                await self._database.write(settle)
            except StoreError as error:
                log.warning("a turn is through, and its job is not settled yet: %s", error)
                await asyncio.sleep(_TRY_AGAIN)
            else:
                return

    async def _done(self, tx: Connection, claim: tuple[int, int, int]) -> None:
        await tx.run(_DONE, claim)
        if self._stopping:  # else the lane's next job is taken here
            await tx.notify(_CHANNEL, "")

    async def _give_back(self) -> None:
        """Give back the claimed jobs that do not run here."""
        running = [job.id for job in self._running.values()]
        values = (0, self._worker, running)

        async def work(tx: Connection) -> None:
            if await tx.run(_GIVE_BACK, values):  # Procrastinate announces new jobs only
                await tx.notify(_CHANNEL, "")

        await self._database.write(work)

    # -- watching ------------------------------------------------------------------------------

    async def _keep_watch(self, pause: float) -> None:
        while True:
            await asyncio.sleep(pause)
            pause = await self._watch_others()

    async def _watch_others(self) -> float:
        """Renew this worker's sign of life, and take over from dead workers.

        Return in how many seconds to do so again.
        """
        try:
            worker, others = await self._database.write_apart(self._beat)
            if worker != self._worker:
                self._worker = worker
                self._woken.set()
            stalled = self._watch.note(others, asyncio.get_running_loop().time())
            if stalled:
                await self._database.write_apart(lambda tx: _rescue(tx, stalled))
                self._woken.set()  # the notice may be lost, when the server is just back
            return max(_A_MOMENT, min(self._heartbeat, self._watch.next_in()))
        except StoreError as error:
            if not self._watch.cut_off:
                log.warning("no heartbeat for now: %s", error)
            self._watch.lose()
        except Exception:
            log.exception("the watch over other workers failed; trying again")
        return _FIND_AGAIN

    def _missed(self) -> None:
        """Make up for notices that were lost with their connection."""
        self._woken.set()
        self._look.set()

    async def _keep_looking(self, pause: float) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._look.wait()
            pause = await self._look_around()

    async def _look_around(self) -> float:
        """Find lanes that have no job, and jobs that wait for their time, however that came.

        Return in how many seconds to do so again. It may wait for the pool; the watch must not.
        """
        self._look.clear()
        try:
            async with self._taking:
                await self._give_back()
            next_in = await self._database.write(_sweep)
            if next_in is not None:
                self._wake_in(next_in)
            return _LOOK_AROUND
        except StoreError as error:
            log.warning("no look around for now: %s", error)
        except Exception:
            log.exception("the look around failed; trying again")
        return _TRY_AGAIN

    def _wake_in(self, seconds: float) -> None:
        # A moment later, since the server's clock says when it is time.
        asyncio.get_running_loop().call_later(seconds + _A_MOMENT, self._woken.set)

    async def _beat(self, tx: Connection) -> tuple[int, list[_Seen]]:
        """Show that this worker lives; return its id and the others."""
        worker = self._worker
        known = await tx.run(
            "UPDATE procrastinate_workers SET last_heartbeat = now() WHERE id = ?", (worker,)
        )
        if not known:  # new, or asleep for so long that others have taken it for dead
            worker = await _register(tx)
        return worker, [_Seen(*row) for row in await tx.all(_OTHERS, (worker,))]

    async def _unregister(self, tx: Connection) -> None:
        await tx.run("DELETE FROM procrastinate_workers WHERE id = ?", (self._worker,))
        await tx.notify(_CHANNEL, "")  # whatever it has heard of and not taken


async def _register(tx: Connection) -> int:
    row = await tx.one("SELECT worker_id FROM procrastinate_register_worker_v1()")
    assert row is not None
    return int(row[0])


async def _rescue(tx: Connection, stalled: Sequence[_Seen]) -> None:
    """Take over from workers that have stalled, and whatever has lost its worker otherwise."""
    seen = ([worker.id for worker in stalled], [worker.beat for worker in stalled])
    if stalled and (buried := [row[0] for row in await tx.all(_BURY, seen)]):
        await messages.release_deliveries_of(tx, buried)
        # Beside what they had claimed, when theirs was due was known to them alone.
        await tx.notify("outbox", "")
    rescued = [row[0] for row in await tx.all(_RESCUE, (0, LANE_QUEUE))]
    if rescued:
        for agent_id in rescued:
            await crashes.count_lane(tx, agent_id)
        await tx.notify(_CHANNEL, "")  # Procrastinate announces new jobs only
        log.warning("took over %d lanes from workers that have stalled", len(rescued))


async def _retry(tx: Connection, wait: float, claim: tuple[int, int, int]) -> None:
    """Put a job back for some time; all workers are told how long, as this one may be gone then."""
    if await tx.run(_RETRY, (wait, *claim)):
        await tx.notify(_RETRY_TOPIC, str(wait))


async def _sweep(tx: Connection) -> float | None:
    """Defer a job for every lane that has something to do and no job, however that came about.

    Return in how many seconds the next job may be taken that waits for its time.
    """
    await _rescue(tx, ())
    busy = await busy_agents(tx)
    rows = await tx.all(
        "SELECT DISTINCT lock FROM procrastinate_jobs WHERE status IN ('todo', 'doing')"
    )
    for agent_id in set(busy) - {row[0] for row in rows}:
        await tx.enqueue(agent_id)
    row = await tx.one(
        "SELECT EXTRACT(EPOCH FROM MIN(scheduled_at) - now())::double precision"
        " FROM procrastinate_jobs"
        " WHERE queue_name = ? AND status = 'todo' AND scheduled_at > now()",
        (LANE_QUEUE,),
    )
    return row[0] if row else None
