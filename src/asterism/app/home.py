"""Asterism: opens everything; the verbs that the API and the command line both call."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import logging
import os
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Self

from asterism.agents.purse import Spending
from asterism.agents.turn import Means
from asterism.app.authority import Authorities
from asterism.app.observe import begin_spans
from asterism.app.parts import Parts, folds_of, forgets_again, make_toolbox, open_database
from asterism.app.reach import Reach
from asterism.app.spend import presume_orphans
from asterism.app.turns import TurnVerbs
from asterism.config import LiveSettings, Settings, data_directory
from asterism.config.contacts import ContactBook
from asterism.errors import AsterismError
from asterism.memory.forgetting.tombstones import ForgottenTexts
from asterism.memory.search.caches import let_go
from asterism.models.chain import Chain
from asterism.models.prices import Prices
from asterism.permissions import Actor
from asterism.ports import Answering, Channel, Clock, Model
from asterism.runtime.approvals import Approvals as ApprovalsAtWork
from asterism.runtime.indexing import Indexing
from asterism.runtime.lanes import Lanes, LocalLanes
from asterism.runtime.outbox import Outbox
from asterism.runtime.pump import Pump
from asterism.runtime.runtime import Runtime
from asterism.runtime.schedule import Schedules
from asterism.runtime.watch import Hub
from asterism.store import inbox
from asterism.store.database import Database
from asterism.store.forgetting import FORGOTTEN
from asterism.telemetry import Telemetry
from asterism.tools.tool import Tool, Toolbox
from asterism.types.agents import DEFAULT_MODEL, Agent
from asterism.types.ids import now_ms
from asterism.types.messages import (
    Receipt,
)
from asterism.types.people import Account

_log = logging.getLogger(__name__)

_DAY = 86_400_000
_RETAIN_EVERY = 3_600.0


class Asterism(TurnVerbs):
    """A constellation of agents, open. Use `async with Asterism.open(…) as home:`."""

    def __init__(
        self,
        database: Database,
        settings: LiveSettings,
        toolbox: Toolbox,
        clock: Clock,
        data: Path,
        contacts: ContactBook,
    ) -> None:
        """Put the parts together; `Asterism.open` does this from a configuration."""
        self.database = database
        self.toolbox = toolbox
        self.hub = Hub()
        self.telemetry = Telemetry()
        self._live_settings = settings
        self._clock = clock
        self._environ: Mapping[str, str] = os.environ
        self._opened_keys = None
        self._parts = Parts(
            lambda: settings.current,
            lambda name: self.keys.get(name),  # noqa: PLW0108 - made when it is first used
        )
        self._listening: list[asyncio.Task[None]] = []
        settings.subscribe(self._parts.settings_changed)
        settings.subscribe(self._servers_changed)
        self._prices = Prices(lambda: settings.current)
        self.authorities = Authorities(lambda: settings.current)
        self._contacts = contacts
        self._forgotten = ForgottenTexts(data, self.settings.constellation)
        self._means = means = self._make_means()
        self._outbox = Outbox(
            database,
            self._parts.channel,
            lambda: self.settings.outbox,
            clock,
            self.telemetry,
            worker=lambda: self._lanes.worker if self._lanes is not None else None,
        )
        self.indexing = Indexing(
            database,
            self.settings.constellation,
            clock,
            lambda: self._parts.encoder(settings.current.search.encoder),
        )
        settings.subscribe(self._encoder_changed)
        self._approvals = ApprovalsAtWork(
            database,
            self.settings.constellation,
            clock,
            tool=lambda name: toolbox.get(name, None),
            contacts=lambda: self._contacts.current,
            delivered=self._outbox.kick,
            authority=self.authorities,
        )
        self._runtime = Runtime(
            means,
            self.hub,
            constellation=self.settings.constellation,
            delivered=self._outbox.kick,
            ended=self.indexing.kick,
            approvals=self._approvals,
        )
        self._reach = Reach(
            database,
            self.settings.constellation,
            clock,
            lambda one: self.agent(one.id if isinstance(one, Agent) else one),
            self._runtime.forget,
            data,
            self.authorities,
            clear=self._clear,
        )
        self._schedules = Schedules(database, self.settings.constellation, clock, self._poke)
        self._retention = Pump("retention", self._retain, clock, longest_sleep=_RETAIN_EVERY)
        self._lanes: Lanes | None = None
        self._watching: asyncio.Task[None] | None = None
        self._retain_next = 0
        self.taken_up: list[str] = []
        """Turns that were accepted before the last stop or crash and go on in this process."""

    def _make_means(self) -> Means:
        """Return what turns work with; settings are looked at when they are needed."""
        return Means(
            database=self.database,
            toolbox=self.toolbox,
            chain=self._parts.chain,
            ask=Chain(self._parts.link).ask,
            watched=self.hub.watched,
            publish=self.hub.publish,
            clock=self._clock,
            telemetry=self.telemetry,
            spending=Spending(
                self.settings.constellation,
                self._prices.of,
                lambda: self.settings.budget.budget,
            ),
            authority=self.authorities,
            folding=lambda: folds_of(self.settings.context),
            profile=self._parts.profile,
            context_tokens=lambda: self.settings.context.tokens,
            search=self._find,
            settings=lambda: self.settings,
            channels=self._parts.channel_names,
            contacts=lambda: self._contacts.current,
            resolve=lambda text: self.keys.resolve(text),  # noqa: PLW0108 - made when first used
            forgotten=lambda: self._forgotten.redact,
        )

    def acting_as(self, actor: Actor) -> Self:
        """Return the same home for somebody else, who may do only what they may."""
        other = copy.copy(self)
        reach = replace(self._reach, actor=actor)
        for name, made in list(vars(other).items()):
            if hasattr(made, "_reach"):  # a noun: the same one, with other rights
                vars(other)[name] = noun = copy.copy(made)
                vars(noun)["_reach"] = reach
        vars(other)["_reach"] = reach
        return other

    # -- life ----------------------------------------------------------------------------------

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        data: Path | str | None = None,
        *,
        config: Path | str | None = None,
        environ: Mapping[str, str] | None = None,
        settings: Mapping[str, object] | None = None,
        tools: Sequence[Tool] = (),
        models: Mapping[str, Model] | None = None,
        channels: Mapping[str, Channel] | None = None,
        database: Database | None = None,
        work: bool = True,
        readonly: bool = False,
        grace: float = 10.0,
        clock: Clock = now_ms,
        on_problem: Callable[[str], None] = _log.warning,
    ) -> AsyncGenerator[Self, None]:
        """Open a data directory (or the database it is configured for) and start to work.

        Args:
            data: The data directory; else ASTERISM_DATA, else the platform's usual place.
            config: The configuration file; else ASTERISM_CONFIG, else `asterism.toml` in `data`.
            environ: The environment to read settings from.
            settings: Settings that win over file and environment, such as `{"model": "a:b"}`.
            tools: Tools to offer beside the built-in and configured ones.
            models: Model ports by vendor, instead of configured ones.
            channels: Channels by name, instead of configured ones.
            database: An open database, instead of the configured one; it is closed with the rest.
            work: Run turns here; False only hands in, reads and waits.
            readonly: Read what is at rest while another process may be working.
            grace: Seconds that turns under way get when this closes.
            clock: Milliseconds since 1970.
            on_problem: Hears what a reload of the configuration could not put in use.
        """
        given = os.environ if environ is None else environ
        place = data_directory(Path(data) if data is not None else None, given)
        live = LiveSettings(
            place, Path(config) if config else None, given, settings, on_problem=on_problem
        )
        contacts = ContactBook(place, on_problem)
        toolbox = make_toolbox(live.current, place, tools)
        if database is None:
            database = await open_database(live.current, place, readonly=readonly)
        home = cls(database, live, toolbox, clock, place, contacts)
        home._environ = given
        home._parts.put(models or {}, channels or {})
        home._prices.given.update(models or {})
        try:
            await home.keys.open(readonly=readonly)
            for one in home.workshop.tools():
                toolbox.add(one)
            await home.tools.open(readonly=readonly)
            if home.settings.mcp:
                home.mcp.start(connect=work and not readonly)
            if not readonly:
                await home._start(work)
            yield home
        finally:
            await home._close(grace)

    async def _start(self, work: bool) -> None:
        await presume_orphans(self.database, self.settings.constellation, self._clock())
        await self.database.listen(FORGOTTEN, self._heard_forgetting)
        if forgets_again(self._reach.data):
            # An older copy of the database may have brought back what was forgotten.
            await self.memory.forget_again()
        if work:
            begin_spans(self.telemetry, self.settings)
            if self._parts.cassette is not None:
                self._parts.cassette.check()
            self._lanes = self._make_lanes()
            if not self.database.distributed:
                self.taken_up = await self.unfinished()
        await self._runtime.start(self._lanes)
        if work:
            # What is slow to import is imported now, not in the middle of the first turn.
            with contextlib.suppress(AsterismError):
                self._parts.link(self._parts.chain(DEFAULT_MODEL)[0])
            await self._outbox.start()
            await self._schedules.start()
            await self._approvals.start()
            self._retention.start()
            await self.indexing.start()
            for name in self._parts.channel_names():
                self._listening.append(asyncio.create_task(self._listen(name)))

    def _heard_forgetting(self, constellation: str) -> None:
        """Drop what this process remembers, whichever process forgets."""
        if constellation == self.settings.constellation:
            self._clear()
            self._runtime.forget_all()

    def _clear(self) -> None:
        self._forgotten.changed()
        let_go()
        self.workshop.clear()

    def _make_lanes(self) -> Lanes:
        settings = self.settings.runtime
        if not self.database.distributed:
            return LocalLanes(
                self._runtime.serve, lambda: self.database.read(inbox.busy_agents), settings.turns
            )
        from asterism.runtime.lanes_postgres import ProcrastinateLanes
        from asterism.store.postgres import Postgres

        assert isinstance(self.database, Postgres)

        async def work(agent_id: str) -> None:
            await self._runtime.serve(agent_id, None)

        return ProcrastinateLanes(
            self.database,
            work,
            concurrency=settings.turns,
            heartbeat=settings.heartbeat,
            stalled_after=settings.stalled_after,
        )

    async def _close(self, grace: float) -> None:
        for task in (*self._listening, *([self._watching] if self._watching else [])):
            task.cancel()
        await asyncio.gather(*self._listening, return_exceptions=True)
        await self._schedules.stop()
        await self._approvals.stop()
        await self._retention.stop()
        await self.indexing.stop()
        await self._runtime.stop(grace)
        if "mcp" in vars(self):
            await self.mcp.close()
        await self.tools.close()
        await self.workshop.close()
        await self._outbox.stop()
        await self.telemetry.close()
        await self._parts.close()
        await self.keys.close()
        await self.database.close()

    async def _listen(self, name: str) -> None:
        """Take messages in from a channel; one that fails is started again."""

        async def accept(
            target: str,
            text: str,
            *,
            external_id: str | None = None,
            sender: str | None = None,
            reply_to: str | None = None,
            room: str | None = None,
            present: Sequence[str] = (),
        ) -> Receipt:
            return await self.send(
                target,
                text,
                channel=name,
                external_id=external_id,
                # Whoever does not say who they are is not the owner.
                sender=sender or reply_to or "somebody",
                reply_to=reply_to,
                room=room,
                present=present,
            )

        async def answer(
            approval_id: str,
            *,
            approved: bool,
            sender: str,
            reply_to: str | None = None,
            note: str | None = None,
        ) -> str:
            return await self.approvals.answer(
                approval_id,
                approved=approved,
                by=Account(name, sender),
                place=f"{name}:{reply_to or sender}",
                note=note,
            )

        wait = 1.0
        while True:
            try:
                channel = self._parts.channel(name)
                if isinstance(channel, Answering):
                    channel.take_answers(answer)
                await channel.listen(accept)
            except Exception:  # noqa: BLE001 - one channel must not take the others down
                _log.exception("channel %s failed; starting it again in %g s", name, wait)
                await asyncio.sleep(wait)
                wait = min(wait * 2, 60.0)
            else:
                return

    # -- configuration -------------------------------------------------------------------------

    def follow_configuration(self, changed: Callable[[Settings], None] | None = None) -> None:
        """Put changes of the configuration file in use as they are saved, and tell `changed`."""
        if changed is not None:
            self._live_settings.subscribe(lambda _, new: changed(new))
        if self._watching is None:
            self._watching = asyncio.create_task(self._live_settings.watch())

    async def _retain(self) -> None:
        """Anchor the chains of events each hour; delete what has grown too old once a day."""
        await self.audit.anchor()
        if self.settings.retention and self._clock() >= self._retain_next:
            self._retain_next = self._clock() + _DAY
            await self.memory.retain()

    def _encoder_changed(self, old: Settings, new: Settings) -> None:
        if (old.search, old.models) != (new.search, new.models):
            self.indexing.encoder_changed()

    def _poke(self, agent_id: str) -> None:
        if isinstance(self._lanes, LocalLanes):
            self._lanes.poke(agent_id)
