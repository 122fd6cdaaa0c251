"""The outbox at work: hands deliveries to their channels until they arrive or are given up."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable
from dataclasses import replace

from asterism.config import OutboxSettings
from asterism.errors import DeliveryError, NotFound, StoreError
from asterism.ports import Channel, Clock
from asterism.store import agents, outbox
from asterism.store.database import Connection, Database
from asterism.telemetry import Telemetry
from asterism.turns.lanes import Pump
from asterism.types.agents import new_id
from asterism.types.turns import Delivery, Notice

_log = logging.getLogger(__name__)
_AT_ONCE = 16
_LEASE_MARGIN = 5.0


class Outbox:
    """Tries what is due, the oldest of each target first; a claim keeps other processes off."""

    def __init__(
        self,
        database: Database,
        channel_for: Callable[[str], Channel],
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
            await self._database.write(lambda tx: outbox.release_claims(tx, now))
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
        """Stop delivering; what is waiting stays, and what is under way is left to others."""
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
            left = [one for task, one in cut_short.items() if task.cancelled()]
            with contextlib.suppress(StoreError):
                await self._database.write(lambda tx: self._leave(tx, left))

    async def _leave(self, tx: Connection, cut_short: list[Delivery]) -> None:
        now = self._clock()
        for delivery in cut_short:
            await outbox.release(tx, delivery, now)
        await tx.notify("outbox", "")

    async def _work(self) -> int | None:
        # Each target has a task of its own, so that one that hangs holds up no other.
        while (room := _AT_ONCE - len(self._trying)) > 0:
            now = self._clock()
            due = await self._database.read(lambda tx, now=now: outbox.due(tx, now, room))
            if not due:
                self._full = False
                return await self._database.read(outbox.next_time)
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
        if not await self._database.write(lambda tx: outbox.claim(tx, delivery, until, worker)):
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
                channel = self._channel_for(delivery.channel)
                async with asyncio.timeout(settings.timeout):
                    await channel.deliver(delivery)
            except Exception as error:  # noqa: BLE001 - whatever it raises, the delivery stays
                watch.outcome = await self._failed(delivery, error, settings)
            else:
                now = self._clock()
                await self._database.write(lambda tx: outbox.sent(tx, delivery.key, now))

    async def _failed(self, delivery: Delivery, error: Exception, settings: OutboxSettings) -> str:
        """Record what went wrong; return what becomes of the delivery."""
        if isinstance(error, TimeoutError):
            said = f"no answer within {settings.timeout:g} s"
        else:
            said = str(error) or type(error).__name__
        final = (isinstance(error, DeliveryError) and error.final) or isinstance(error, NotFound)
        given_up = final or delivery.attempts >= settings.attempts
        delay = min(settings.first_delay * 2 ** (delivery.attempts - 1), settings.longest_delay)
        now = self._clock()
        next_at = None if given_up else now + int(delay * random.uniform(0.8, 1.2) * 1000)

        async def work(tx: Connection) -> None:
            recorded = await outbox.failed(tx, delivery, said, next_at)
            if recorded and given_up:
                text = (
                    f"A message to {delivery.channel}:{delivery.target} could not be delivered "
                    f"after {delivery.attempts} tries: {said} It is kept; "
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
