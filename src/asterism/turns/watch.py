"""Watching: signals of turns under way, kept in a bounded log so that a watcher can come back.

Nothing is kept for an agent that nobody watches. Ids are opaque to callers; they carry the time, so
that a watcher whose place in the log is gone can be told from the journal what it missed.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable
from itertools import takewhile
from typing import Any

import orjson

from asterism.store.database import Connection, Database
from asterism.types.agents import new_id, now_ms
from asterism.types.turns import Signal

_KEPT = 4_096
_GRACE = 600.0
"""Seconds that a log is kept after its last watcher has left."""
_ANNOUNCE = 10.0
_SEND = 0.05
_LONGEST_PAYLOAD = 6_000


class _Log:
    __slots__ = ("changed", "first", "signals", "until", "watchers")

    def __init__(self, first: int) -> None:
        self.signals: deque[Signal] = deque(maxlen=_KEPT)
        self.first = first
        """The number of the first signal after which nothing is missing."""
        self.watchers = 0
        self.until = 0.0
        self.changed = asyncio.Event()

    def after(self, number: int) -> list[Signal]:
        """Return the signals after a number, reading no more than those."""
        newest_first = takewhile(lambda one: _number(one.id) > number, reversed(self.signals))
        return list(newest_first)[::-1]


class Hub:
    """Where turns publish signals and watchers read them."""

    def __init__(self) -> None:
        self._boot = new_id("hub")[-8:]
        self._count = 0
        self._logs: dict[str, _Log] = {}
        self.forward: Callable[[Signal], None] | None = None
        """Set where signals must reach other processes."""
        self.announce: Callable[[str], None] | None = None
        """Set where other processes must know whom somebody watches."""

    def watched(self, agent_id: str) -> bool:
        """Tell whether somebody watches an agent, or did a short while ago."""
        log = self._logs.get(agent_id)
        if log is None:
            return False
        if log.watchers or log.until > time.monotonic():
            return True
        del self._logs[agent_id]
        return False

    def keep(self, agent_id: str, seconds: float = _GRACE) -> None:
        """Keep a log for an agent for some time, since somebody may watch it."""
        log = self._log(agent_id)
        log.until = max(log.until, time.monotonic() + seconds)

    def publish(self, agent_id: str, turn_id: str, kind: str, data: dict[str, Any]) -> None:
        """Add a signal to an agent's log."""
        signal = self.receive(agent_id, turn_id, kind, data)
        if self.forward is not None:
            self.forward(signal)

    def receive(self, agent_id: str, turn_id: str, kind: str, data: dict[str, Any]) -> Signal:
        """Add a signal, from this process or another one."""
        log = self._log(agent_id)
        self._count += 1
        signal = Signal(self._id(self._count), agent_id, turn_id, kind, data)
        if len(log.signals) == _KEPT:
            log.first = _number(log.signals[0].id) + 1
        log.signals.append(signal)
        log.changed.set()
        return signal

    def _log(self, agent_id: str) -> _Log:
        log = self._logs.get(agent_id)
        if log is None:
            log = self._logs[agent_id] = _Log(self._count + 1)
        return log

    def place(self, agent_id: str) -> str:
        """Return an id after which a watcher sees all that comes from now on."""
        self.keep(agent_id)
        return self._id(self._count)

    def _id(self, number: int) -> str:
        return f"{self._boot}-{number}-{now_ms():x}"

    def knows(self, agent_id: str, after: str) -> bool:
        """Tell whether everything after a signal is still here."""
        log = self._logs.get(agent_id)
        boot = after.partition("-")[0]
        return log is not None and boot == self._boot and _number(after) >= log.first - 1

    async def watch(self, agent_id: str, after: str | None = None) -> AsyncGenerator[Signal, None]:
        """Yield signals as they come, from the one after `after` on, or from now on.

        A watcher that falls behind the log gets a signal `gap` and goes on with what there is.
        """
        log = self._log(agent_id)
        log.watchers += 1
        if self.announce is not None:
            self.announce(agent_id)
        place = self._count if after is None or not self.knows(agent_id, after) else _number(after)
        try:
            while True:
                if place + 1 < log.first:
                    place = log.first - 1
                    yield Signal(self._id(place), agent_id, "", "gap", {})
                fresh = log.after(place)
                for signal in fresh:
                    place = _number(signal.id)
                    yield signal
                if not fresh:
                    log.changed.clear()
                    await log.changed.wait()
        finally:
            log.watchers -= 1
            log.until = time.monotonic() + _GRACE

    def watched_now(self) -> list[str]:
        """Return the agents that have watchers in this process."""
        return [agent_id for agent_id, log in self._logs.items() if log.watchers]


def _number(signal_id: str) -> int:
    try:
        return int(signal_id.split("-")[1])
    except (IndexError, ValueError):
        return -1


def time_of(signal_id: str) -> int:
    """Return when a signal was given, in milliseconds since 1970; 0 if its id is malformed."""
    try:
        return int(signal_id.split("-")[2], 16)
    except (IndexError, ValueError):
        return 0


class Bridge:
    """Carries signals between the processes that share a database."""

    def __init__(self, hub: Hub, database: Database) -> None:
        self._hub = hub
        self._database = database
        self._me = new_id("proc")
        self._outgoing: list[tuple[str, str]] = []
        self._ready = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Begin to carry."""
        await self._database.listen("signal", self._on_signal)
        await self._database.listen("watching", self._on_watching)
        self._hub.forward = self._forward
        self._hub.announce = lambda agent_id: self._put("watching", f"{self._me} {agent_id}")
        self._tasks = [asyncio.create_task(self._send()), asyncio.create_task(self._remind())]

    async def stop(self) -> None:
        """Stop carrying."""
        self._hub.forward = self._hub.announce = None
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _put(self, topic: str, payload: str) -> None:
        self._outgoing.append((topic, payload))
        self._ready.set()

    def _forward(self, signal: Signal) -> None:
        data = signal.data
        text = data.get("text")
        if isinstance(text, str) and len(text) > _LONGEST_PAYLOAD // 4:
            # A watcher elsewhere reads the whole of it in the journal.
            data = {**data, "text": text[: _LONGEST_PAYLOAD // 4], "cut": True}
        payload = orjson.dumps([self._me, signal.agent_id, signal.turn_id, signal.kind, data])
        if len(payload) <= 7_900:
            self._put("signal", payload.decode())

    async def _send(self) -> None:
        while True:
            await self._ready.wait()
            await asyncio.sleep(_SEND)
            self._ready.clear()
            batch, self._outgoing = self._outgoing, []

            async def tell(tx: Connection, batch: list[tuple[str, str]] = batch) -> None:
                for topic, payload in batch:
                    await tx.notify(topic, payload)

            # Signals are a convenience: what they tell is in the journal.
            with contextlib.suppress(Exception):
                await self._database.write(tell)

    async def _remind(self) -> None:
        while True:
            for agent_id in self._hub.watched_now():
                self._put("watching", f"{self._me} {agent_id}")
            await asyncio.sleep(_ANNOUNCE)

    def _on_signal(self, payload: str) -> None:
        sender, agent_id, turn_id, kind, data = orjson.loads(payload)
        if sender != self._me and self._hub.watched(agent_id):
            self._hub.receive(agent_id, turn_id, kind, data)

    def _on_watching(self, payload: str) -> None:
        sender, _, agent_id = payload.partition(" ")
        if sender != self._me:
            self._hub.keep(agent_id, _ANNOUNCE * 3)
