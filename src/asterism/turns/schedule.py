"""Schedules at work: what falls due is put in its agent's inbox, once."""

from __future__ import annotations

from collections.abc import Callable

from asterism.ports import Clock
from asterism.store import inbox, schedules
from asterism.store.database import Connection, Database
from asterism.times import utc_minute
from asterism.tools.builtin.control import next_time
from asterism.turns.lanes import Pump
from asterism.types.agents import Schedule, new_id
from asterism.types.turns import Origin, message_wire

_AT_ONCE = 100


class Schedules:
    """Looks for schedules that have fallen due, also those that did while no process ran."""

    def __init__(
        self,
        database: Database,
        constellation: str,
        clock: Clock,
        accepted: Callable[[str], None],
    ) -> None:
        self._database = database
        self._constellation = constellation
        self._clock = clock
        self._accepted = accepted
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
        for schedule in await self._database.read(lambda tx: schedules.due(tx, now, _AT_ONCE)):
            await self._fire(schedule, now)
        return await self._database.read(schedules.next_time)

    async def _fire(self, schedule: Schedule, now: int) -> None:
        # Occasions missed in the meantime are made up for by this one.
        following = next_time(schedule.cron, now) if schedule.cron else None
        text = f"[scheduled for {utc_minute(schedule.due_at)} UTC] {schedule.text}"

        async def work(tx: Connection) -> bool:
            if not await schedules.advance(tx, schedule, following):
                return False
            external_id, message_id = f"{schedule.id}@{schedule.due_at}", new_id("msg")
            former = await inbox.accept_once(
                tx, self._constellation, "schedule", external_id, message_id, schedule.agent_id
            )
            if former is not None:
                return False
            item = await inbox.put_message(
                tx,
                schedule.agent_id,
                message_id,
                message_wire("user", text),
                Origin(schedule.channel or "schedule", reply_to=schedule.reply_to),
                now,
                participants=schedule.participants,
            )
            if item is None:  # the agent has been deleted
                await schedules.cancel(tx, schedule.agent_id, schedule.id)
            return item is not None

        if await self._database.write(work):
            self._accepted(schedule.agent_id)
