"""Lanes in one process: a task for each busy agent, fed in order of arrival."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from contextvars import Context
from typing import Protocol

from asterism.ports import Clock
from asterism.types.turns import InboxItem

_log = logging.getLogger(__name__)
_MOST_IN_MEMORY = 256
_FIRST_WAIT, _LONGEST_WAIT = 0.5, 30.0

Serve = Callable[[str, InboxItem | None], Awaitable[int | None]]
"""Answer one item of an agent (None: whatever the store has first); return its arrival number,
0 for an interrupted turn, None if there was nothing to do."""


class Lanes(Protocol):
    """One turn at a time per agent, in order of arrival."""

    @property
    def worker(self) -> int | None:
        """By what id other processes know this one; None if there are no others."""
        ...

    async def start(self) -> None:
        """Begin to work."""
        ...

    def wake(self, item: InboxItem) -> None:
        """Tell that an item has been committed by this process."""
        ...

    async def stop(self, grace: float) -> None:
        """Take nothing new, give turns under way some time, then leave them to a later start."""
        ...


class _Lane:
    """What one agent has to do."""

    __slots__ = ("last", "look", "pending")

    def __init__(self) -> None:
        self.pending: deque[InboxItem] = deque()
        self.look = False
        """The store may have items that are not in `pending`: take them from there."""
        self.last = 0


class LocalLanes:
    """The lanes of a process that has the store for itself."""

    def __init__(self, serve: Serve, busy: Callable[[], Awaitable[list[str]]], most: int) -> None:
        self._serve = serve
        self._busy = busy
        self._room = asyncio.Semaphore(most)
        self._lanes: dict[str, _Lane] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._open = False

    @property
    def worker(self) -> int | None:
        """None: there are no other processes."""
        return None

    async def start(self) -> None:
        """Begin with whatever was left in the store."""
        self._open = True
        for agent_id in await self._busy():
            self.poke(agent_id)

    def wake(self, item: InboxItem) -> None:
        """Put a committed item in its lane."""
        lane = self._lane(item.agent_id)
        if lane is None:
            return
        if lane.look or len(lane.pending) >= _MOST_IN_MEMORY:
            lane.look = True
        else:
            lane.pending.append(item)

    def poke(self, agent_id: str) -> None:
        """Make a lane look into the store."""
        lane = self._lane(agent_id)
        if lane is not None:
            lane.look = True

    def _lane(self, agent_id: str) -> _Lane | None:
        if not self._open:
            return None
        lane = self._lanes.get(agent_id)
        if lane is None:
            lane = self._lanes[agent_id] = _Lane()
            # In a context of its own: whoever puts a lane to work may be in the middle of a turn.
            task = asyncio.create_task(self._run(agent_id, lane), context=Context())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return lane

    async def _run(self, agent_id: str, lane: _Lane) -> None:
        wait = _FIRST_WAIT
        try:
            while self._open and (lane.pending or lane.look):
                try:
                    async with self._room:
                        await self._step(agent_id, lane)
                    wait = _FIRST_WAIT
                except Exception:  # noqa: BLE001 - logged, and tried again
                    # Nothing is lost: what was not finished is still in the store.
                    _log.exception("lane of %s failed; trying again in %.1f s", agent_id, wait)
                    lane.look = True
                    await asyncio.sleep(wait)
                    wait = min(wait * 2, _LONGEST_WAIT)
        finally:
            del self._lanes[agent_id]

    async def _step(self, agent_id: str, lane: _Lane) -> None:
        # Items in memory are older than those only the store has: they go first.
        if lane.pending and not lane.look:
            item = lane.pending.popleft()
            if lane.last in (0, item.arrival - 1):
                lane.last = await self._serve(agent_id, item) or lane.last
            else:  # something came in between, or this one was taken from the store: look there
                lane.look = True
            return
        lane.pending.clear()
        lane.look = False
        arrival = await self._serve(agent_id, None)
        if arrival is not None:
            lane.look = True
            lane.last = max(lane.last, arrival)

    async def stop(self, grace: float) -> None:
        """Let turns under way finish within `grace` seconds, then cancel them."""
        self._open = False
        tasks = list(self._tasks)
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=grace)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)


_LONGEST_SLEEP = 60.0


class Pump:
    """Runs `work` whenever something may be due."""

    def __init__(
        self,
        name: str,
        work: Callable[[], Awaitable[int | None]],
        clock: Clock,
        *,
        longest_sleep: float = _LONGEST_SLEEP,
    ) -> None:
        """Make a pump; `work` does what is due and returns when the next thing is, if any."""
        self._name = name
        self._work = work
        self._clock = clock
        self._longest = longest_sleep
        self._kicked = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin."""
        self._task = asyncio.create_task(self._run())

    @property
    def running(self) -> bool:
        """Whether it has been started and not stopped."""
        return self._task is not None

    def kick(self) -> None:
        """Look at once."""
        self._kicked.set()

    async def stop(self) -> None:
        """End; what was not done is still due at the next start."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def _run(self) -> None:
        while True:
            self._kicked.clear()
            pause = self._longest
            try:
                due = await self._work()
                if due is not None:
                    pause = min(self._longest, max(0.0, (due - self._clock()) / 1000))
            except Exception:  # noqa: BLE001 - logged, and tried again
                _log.exception("%s failed; trying again in 5 s", self._name)
                pause = 5.0
            if pause > 0:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(pause):
                        await self._kicked.wait()
