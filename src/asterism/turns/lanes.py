"""Lanes in one process: a task for each busy agent, fed in order of arrival."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections import deque
from collections.abc import Awaitable, Callable
from contextvars import Context
from dataclasses import replace
from datetime import tzinfo
from importlib import import_module
from typing import TYPE_CHECKING, Protocol

from asterism.config import OutboxSettings
from asterism.errors import AsterismError, DeliveryError, NotFound, StoreError
from asterism.ports import Channel, Clock, Encoder
from asterism.store import agents, groups, messages
from asterism.store.database import Connection, Database, end_tasks
from asterism.store.search_index import ARCHIVE, JOURNAL
from asterism.telemetry import Telemetry
from asterism.times import next_time, quiet_until, to_datetime, zone_named
from asterism.types.agents import Schedule, new_id
from asterism.types.groups import AGENT_CHANNEL, delayed_message_id
from asterism.types.turns import SCHEDULED, Delivery, InboxItem, MessageOrigin, Notice, message_wire

if TYPE_CHECKING:
    from asterism.search.build import IndexBuilder
    from asterism.search.index import IndexKey

_log = logging.getLogger(__name__)
_MAX_IN_MEMORY = 256
_FIRST_WAIT, _MAX_WAIT = 0.5, 30.0

Serve = Callable[[str, InboxItem | None], Awaitable[int | None]]
"""Answer one item of an agent (None: whatever the store has first); return its arrival number,
0 for an interrupted turn, None if there was nothing to do."""


class Lanes(Protocol):
    """One turn at a time per agent, in order of arrival."""

    @property
    def worker(self) -> int | None:
        """The id of this process among others; None if it works alone."""
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
        """None: this process works alone."""
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
        if lane.look or item.round or len(lane.pending) >= _MAX_IN_MEMORY:
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
                    wait = min(wait * 2, _MAX_WAIT)
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


_MAX_SLEEP = 60.0


class Pump:
    """Runs `work` whenever something may be due."""

    def __init__(
        self,
        name: str,
        work: Callable[[], Awaitable[int | None]],
        clock: Clock,
        *,
        longest_sleep: float = _MAX_SLEEP,
    ) -> None:
        """Make a pump; `work` does the due work and returns the next due time, or None."""
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
        """Stop; open work is still due at the next start."""
        if self._task is not None:
            await end_tasks([self._task])
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


_MAX_DELIVERIES = 16
_LEASE_MARGIN = 5.0


class OutboxPump:
    """Sends due deliveries, the oldest of each target first; a claim excludes other processes."""

    def __init__(
        self,
        database: Database,
        channel_for: Callable[[Delivery], Awaitable[Channel]],
        settings: Callable[[], OutboxSettings],
        clock: Clock,
        telemetry: Telemetry | None = None,
        *,
        worker: Callable[[], int | None] = lambda: None,
    ) -> None:
        """Make it; `worker` returns the id by which other processes know this one, if any do."""
        self._database = database
        self._worker = worker
        self._telemetry = telemetry or Telemetry()
        self._channel_for = channel_for
        self._settings = settings
        self._clock = clock
        self._trying: dict[asyncio.Task[None], Delivery] = {}
        self._full = False
        self._telling: asyncio.Task[None] | None = None
        self._pump = Pump("outbox", self._work, clock)

    async def start(self) -> None:
        """Begin to deliver."""
        if not self._database.distributed:
            now = self._clock()
            await self._database.write(lambda tx: messages.release_claims_of_deliveries(tx, now))
        await self._database.listen("outbox", lambda _: self._pump.kick(), missed=self._pump.kick)
        self._pump.start()

    def kick(self) -> None:
        """Look at once: something was put in. Where nothing is delivered, others are told."""
        if self._pump.running or not self._database.distributed:
            self._pump.kick()
        elif self._telling is None or self._telling.done():
            self._telling = asyncio.create_task(self._tell_others())

    async def _tell_others(self) -> None:
        # They look by themselves after a while, should this not reach them.
        with contextlib.suppress(StoreError):
            await self._database.write(lambda tx: tx.notify("outbox", ""))

    async def stop(self) -> None:
        """Stop delivering; waiting deliveries stay, and other processes take over the rest."""
        if self._telling is not None:
            await self._telling
        was_running = self._pump.running
        await self._pump.stop()
        cut_short = dict(self._trying)
        for task in cut_short:
            task.cancel()
        await asyncio.gather(*cut_short, return_exceptions=True)
        if was_running and self._database.distributed:
            # Who claimed it, and when it is due, is known here alone.
            left = [delivery for task, delivery in cut_short.items() if task.cancelled()]
            with contextlib.suppress(StoreError):
                await self._database.write(lambda tx: self._leave(tx, left))

    async def _leave(self, tx: Connection, cut_short: list[Delivery]) -> None:
        now = self._clock()
        for delivery in cut_short:
            await messages.release_delivery(tx, delivery, now)
        await tx.notify("outbox", "")

    async def _work(self) -> int | None:
        # Each target has a task of its own, so that one that hangs holds up no other.
        while (room := _MAX_DELIVERIES - len(self._trying)) > 0:
            now = self._clock()
            due = await self._database.read(
                lambda tx, now=now: messages.due_deliveries(tx, now, room)
            )
            if not due:
                self._full = False
                return await self._database.read(messages.next_delivery_time)
            for delivery in due:
                await self._claim(delivery)
        if not self._full and self._database.distributed:
            self._full = True
            await self._tell_others()
        return None

    async def _claim(self, delivery: Delivery) -> None:
        settings = self._settings()
        until = self._clock() + int((settings.timeout + _LEASE_MARGIN) * 1000)
        worker = self._worker()
        if not await self._database.write(
            lambda tx: messages.claim_delivery(tx, delivery, until, worker)
        ):
            return
        claimed = replace(delivery, attempts=delivery.attempts + 1)
        task = asyncio.create_task(self._try(claimed, settings))
        self._trying[task] = claimed
        task.add_done_callback(self._tried)

    def _tried(self, task: asyncio.Task[None]) -> None:
        del self._trying[task]
        if not task.cancelled() and (error := task.exception()) is not None:
            # What became of the try could not be written; after its claim it is tried again.
            _log.warning("a delivery could not be recorded", exc_info=error)
        self._pump.kick()

    async def _try(self, delivery: Delivery, settings: OutboxSettings) -> None:
        with self._telemetry.delivery(delivery) as watch:
            try:
                channel = await self._channel_for(delivery)
                async with asyncio.timeout(settings.timeout):
                    await channel.deliver(delivery)
            except Exception as error:  # noqa: BLE001 - whatever it raises, the delivery stays
                watch.outcome = await self._failed(delivery, error, settings)
            else:
                now = self._clock()
                await self._database.write(lambda tx: messages.delivery_sent(tx, delivery.key, now))

    async def _failed(self, delivery: Delivery, error: Exception, settings: OutboxSettings) -> str:
        """Record what went wrong; return what becomes of the delivery."""
        if isinstance(error, TimeoutError):
            reason = f"no answer within {settings.timeout:g} s"
        else:
            reason = str(error) or type(error).__name__
        final = (isinstance(error, DeliveryError) and error.final) or isinstance(error, NotFound)
        given_up = final or delivery.attempts >= settings.attempts
        delay = min(settings.first_delay * 2 ** (delivery.attempts - 1), settings.longest_delay)
        now = self._clock()
        next_at = None if given_up else now + int(delay * random.uniform(0.8, 1.2) * 1000)

        async def work(tx: Connection) -> None:
            recorded = await messages.delivery_failed(tx, delivery, reason, next_at)
            if recorded and given_up:
                tries = "1 try" if delivery.attempts == 1 else f"{delivery.attempts} tries"
                text = (
                    f"A message to {delivery.channel}:{delivery.target} could not be delivered "
                    f"after {tries}: {reason} It is kept; "
                    f'"asterism outbox retry {delivery.key}" tries it again.'
                )
                await agents.put_notice(
                    tx,
                    Notice(
                        new_id("note"),
                        delivery.agent_id,
                        delivery.turn_id,
                        "delivery.dead",
                        text,
                        now,
                    ),
                )

        await self._database.write(work)
        return "dead" if given_up else "failed"


_MAX_SCHEDULES = 100


class SchedulePump:
    """Sends due schedules, also those that fell due while no process ran."""

    def __init__(
        self,
        database: Database,
        clock: Clock,
        accepted: Callable[[str], None],
        zone: Callable[[], tzinfo],
    ) -> None:
        """Make it; `zone` returns the time zone in which messages tell what they were for."""
        self._database = database
        self._clock = clock
        self._accepted = accepted
        self._zone = zone
        self._pump = Pump("schedules", self._work, clock)

    async def start(self) -> None:
        """Begin to look."""
        await self._database.listen("schedule", lambda _: self._pump.kick(), missed=self._pump.kick)
        self._pump.start()

    async def stop(self) -> None:
        """Stop looking."""
        await self._pump.stop()

    async def _work(self) -> int | None:
        now = self._clock()
        for schedule in await self._database.read(
            lambda tx: messages.due_schedules(tx, now, _MAX_SCHEDULES)
        ):
            await self._fire(schedule, now)
        return await self._database.read(messages.next_schedule_time)

    async def _fire(self, schedule: Schedule, now: int) -> None:
        zone = zone_named(schedule.zone)
        resumes = quiet_until(schedule.quiet, now, zone) if schedule.quiet else None
        if resumes is not None:  # it fires once when the quiet hours are over
            await self._database.write(lambda tx: messages.advance_schedule(tx, schedule, resumes))
            return
        # Occasions missed in the meantime are made up for by this one.
        rule = schedule.cron
        following = next_time(rule, now, zone) if rule else None
        due = to_datetime(schedule.due_at_ms, self._zone())
        text = f"{SCHEDULED}{due:%a} {due.day} {due:%b %H:%M}] {schedule.text}"

        async def work(tx: Connection) -> bool:
            if not await messages.advance_schedule(tx, schedule, following):
                return False
            external_id, message_id = f"{schedule.id}@{schedule.due_at_ms}", new_id("msg")
            if (schedule.channel or "").startswith(AGENT_CHANNEL):
                message_id = delayed_message_id(schedule.id)
            former = await messages.accept_once(
                tx, "schedule", external_id, message_id, schedule.agent_id
            )
            if former is not None:
                return False
            item = await messages.put_message(
                tx,
                schedule.agent_id,
                message_id,
                message_wire("user", text),
                MessageOrigin(schedule.channel or "schedule", reply_to=schedule.reply_to),
                now,
                participants=schedule.participants,
            )
            if item is None:  # the agent has been deleted
                await messages.cancel_schedule(tx, schedule.agent_id, schedule.id)
                return False
            planned = await groups.find_agent_message(tx, delayed_message_id(schedule.id))
            if planned is not None and planned.message_id != message_id:
                # It was planned in an exchange of agents, and belongs to it.
                message = replace(planned, message_id=message_id, at_ms=now)
                await groups.put_agent_message(tx, message)
            return True

        agent_id, database = schedule.agent_id, self._database
        # Schedules of all constellations of a database are sent by whichever process is first.
        home = await database.read(lambda tx: agents.constellation_of(tx, agent_id))
        if home is not None and home != database.constellation:
            database = database.for_constellation(home)
        if await database.write(work):
            self._accepted(agent_id)


_QUIET = 5.0
"""Seconds in which nothing more must come before an agent's texts are looked at."""
_MANY = 256
"""Turns after which they are looked at in any case."""
_LOOK_AGAIN = 600_000
"""Milliseconds until all indexes are looked at, for what nobody has told of."""
_FIRST_REST = 60_000
_MAX_REST = 3_600_000


class _Due:
    """When texts are looked at, and how often more have come until then."""

    __slots__ = ("at", "times")

    def __init__(self, at: int) -> None:
        self.at = at
        self.times = 0


class Indexing:
    """Indexes and encodes new texts, after their agent was quiet for some seconds."""

    def __init__(
        self,
        database: Database,
        clock: Clock,
        encoder: Callable[[], Encoder | None],
        *,
        quiet: float = _QUIET,
    ) -> None:
        """Make it; `encoder` returns the configured encoder, or None."""
        self._database = database
        self._clock = clock
        self._encoder = encoder
        self._quiet = int(quiet * 1000)
        self._builder: IndexBuilder | None = None
        self._at_work = asyncio.Lock()
        self._due: dict[str, _Due] = {}
        self._look_at = 0
        self._waiting: set[IndexKey] = set()
        """Indexes with texts that the encoder could not encode yet."""
        self._rest = 0
        self._rest_until = 0
        self._pump = Pump("indexing", self._work, clock)
        self.problem: str | None = None
        """Why texts are not encoded, if they are not."""

    # -- life ----------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start; texts from before this start are indexed after a moment."""
        self._look_at = self._clock() + self._quiet
        await self._database.listen("search_index", self.kick)
        self._pump.start()

    async def stop(self) -> None:
        """Stop; the next start finds the open work."""
        await self._pump.stop()

    def kick(self, owner_id: str) -> None:
        """Note that an agent or a source has more texts; costs next to nothing."""
        due = self._due.get(owner_id)
        if due is None:
            due = self._due[owner_id] = _Due(0)
            if len(self._due) == 1:
                self._pump.kick()
        due.times += 1
        if due.times < _MANY:
            due.at = self._clock() + self._quiet
        elif due.times == _MANY:
            due.at = 0
            self._pump.kick()

    @property
    def due(self) -> frozenset[str]:
        """The agents and sources whose texts wait to be looked at."""
        return frozenset(self._due)

    def encoder_changed(self) -> None:
        """Look at all indexes, since another encoder is configured."""
        self._look_at = self._rest = self._rest_until = 0
        self._pump.kick()

    async def catch_up(self) -> None:
        """Index and encode all that there is to index and encode, now."""
        self._look_at = 0
        for due in self._due.values():
            due.at = 0
        await self._work()

    async def progress(self) -> tuple[int, int]:
        """Return how many of the indexed texts are encoded, and how many there are."""
        try:
            encoder = self._encoder()
        except AsterismError:
            encoder = None
        builder = await self._open()
        return await builder.progress(encoder.name if encoder is not None else "")

    async def check(self) -> str | None:
        """Ask the encoder for a vector; return the problem, or None."""
        try:
            encoder = self._encoder()
            if encoder is not None:
                await encoder.encode(["Is it there?"])
        except AsterismError as error:
            return error.message
        return None

    # -- work ----------------------------------------------------------------------------------

    async def _work(self) -> int | None:
        async with self._at_work:
            keys = deque(await self._ready())
            while keys:
                index_key = keys.popleft()
                try:
                    more = await self._index(index_key)
                except BaseException:
                    self._due.setdefault(index_key[1], _Due(self._clock() + self._quiet))
                    raise
                # What has come meanwhile goes before what takes long.
                keys.extendleft(key for key in await self._ready() if key not in keys)
                if more and index_key not in keys:
                    keys.append(index_key)
        moments = [due.at for due in self._due.values()]
        if self._waiting:
            moments.append(self._rest_until)
        return min((*moments, self._look_at))

    async def _ready(self) -> list[IndexKey]:
        """Return the indexes to look at now."""
        now = self._clock()
        ready: dict[IndexKey, None] = {}
        if now >= self._look_at:
            self._look_at = now + _LOOK_AGAIN
            encoder = self._usable()
            behind = await (await self._open()).outdated(encoder.name if encoder else None)
            ready |= dict.fromkeys(behind)
        if self._waiting and now >= self._rest_until:
            ready |= dict.fromkeys(sorted(self._waiting))
            self._waiting.clear()
        for owner_id in [owner_id for owner_id, due in self._due.items() if due.at <= now]:
            del self._due[owner_id]
            ready |= {(JOURNAL, owner_id): None, (ARCHIVE, owner_id): None}
        return list(ready)

    async def _index(self, index_key: IndexKey) -> bool:
        """Index an index and encode a part of it; return whether there is more to encode."""
        builder = await self._open()
        built, settled = await builder.build(index_key)
        if not settled:
            self.kick(index_key[1])
        encoder = self._usable()
        if encoder is None:
            if self.problem is not None:
                self._waiting.add(index_key)
            return False
        try:
            if (
                built or await builder.lacks_vectors(index_key, encoder.name)
            ) and await builder.encode(index_key, encoder):
                self._works()
                return True
            await builder.drop_former_vectors(index_key, encoder.name)
        except AsterismError as error:
            if isinstance(error, StoreError):
                raise
            self._suspend_encoder(error)
            self._waiting.add(index_key)
        return False

    async def _open(self) -> IndexBuilder:
        if self._builder is None:
            # Takes a good part of a second, which neither a start nor a turn should wait for.
            module = await asyncio.to_thread(import_module, "asterism.search.build")
            self._builder = module.IndexBuilder(self._database)
        assert self._builder is not None
        return self._builder

    # -- the encoder ---------------------------------------------------------------------------

    def _usable(self) -> Encoder | None:
        """Return the encoder; None if it is off, or pauses after a failure."""
        if self._clock() < self._rest_until:
            return None
        try:
            encoder = self._encoder()
        except AsterismError as error:
            self._suspend_encoder(error)
            return None
        if encoder is None:
            self.problem = None
        return encoder

    def _suspend_encoder(self, error: AsterismError) -> None:
        """Leave the encoder alone for a while, and say so once."""
        self._rest = min(max(2 * self._rest, _FIRST_REST), _MAX_REST)
        self._rest_until = self._clock() + self._rest
        if self.problem is None:
            _log.warning(
                "Texts are not encoded for search: %s It is tried again from time to time.",
                error.message,
            )
        self.problem = error.message

    def _works(self) -> None:
        if self.problem is not None:
            _log.info("Texts are encoded for search again.")
        self.problem = None
        self._rest = 0
