"""Asterism: opens everything; the verbs that the API and the command line both call."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import orjson

from asterism.agents.live import enter, load
from asterism.agents.purse import Spending
from asterism.agents.turn import Means
from asterism.app.checks import (
    checked_model,
    checked_name,
    checked_schema,
    checked_system,
    no_such,
)
from asterism.app.observe import begin_spans, metrics
from asterism.app.parts import Parts, folds_of, forgets_again, make_toolbox, open_database
from asterism.app.reach import Reach
from asterism.app.replay import replay_tape
from asterism.app.signals import last_signal, signals_of_turn
from asterism.app.spend import presume_orphans, read_spend, standings
from asterism.config import LiveSettings, Settings, data_directory
from asterism.errors import AsterismError, Conflict, NotFound
from asterism.models.chain import Chain
from asterism.models.prices import Prices
from asterism.permissions import Rules
from asterism.ports import Channel, Clock, Model, ModelRequest, Warm
from asterism.runtime.indexing import Indexing
from asterism.runtime.lanes import Lanes, LocalLanes
from asterism.runtime.outbox import Outbox
from asterism.runtime.past import append_past, read_past
from asterism.runtime.pump import Pump
from asterism.runtime.replay import replay as replay_turn
from asterism.runtime.runtime import Runtime
from asterism.runtime.schedule import Schedules
from asterism.runtime.watch import Hub, time_of
from asterism.store import agents, approvals, blobs, inbox, journal, notices, outbox, schedules
from asterism.store.database import Connection, Database
from asterism.telemetry import Telemetry
from asterism.tools.tool import Tool, Toolbox
from asterism.types.agents import DEFAULT_MODEL, Agent, Limits
from asterism.types.blobs import image
from asterism.types.ids import new_id, now_ms
from asterism.types.messages import (
    Delivery,
    Imported,
    InboxItem,
    Notice,
    PastMessage,
    Receipt,
)
from asterism.types.people import OWNER_ALONE, Company, Tier
from asterism.types.schedules import Schedule
from asterism.types.search import Found, Query
from asterism.types.spending import Spend, Standing
from asterism.types.turns import (
    Approval,
    Entry,
    Outcome,
    Replay,
    Signal,
    TurnRecord,
    TurnState,
)
from asterism.types.wire import images_in, text_of

if TYPE_CHECKING:
    from asterism.app.archive import Archive
    from asterism.app.blocks import Blocks
    from asterism.app.contexts import Contexts
    from asterism.app.memory import Memory
    from asterism.app.people import People
    from asterism.app.search import Search
    from asterism.app.sources import Sources

_log = logging.getLogger(__name__)

_DAY = 86_400_000
_RETAIN_EVERY = 3_600.0
DEFAULT_SYSTEM = (
    "You are {name}, a long-lived assistant in the home of your owner. When asked who you are, say "
    "that you are {name}. You remember what was said in this conversation. Answer briefly and "
    "plainly, and say so when you do not know something."
)


class Asterism:
    """A constellation of agents, open. Use `async with Asterism.open(…) as home:`."""

    def __init__(
        self,
        database: Database,
        settings: LiveSettings,
        toolbox: Toolbox,
        clock: Clock,
        data: Path,
    ) -> None:
        """Put the parts together; `Asterism.open` does this from a configuration."""
        self.database = database
        self.toolbox = toolbox
        self.hub = Hub()
        self.telemetry = Telemetry()
        self._live_settings = settings
        self._clock = clock
        self._parts = Parts(lambda: settings.current)
        self._listening: list[asyncio.Task[None]] = []
        settings.subscribe(self._parts.settings_changed)
        self._prices = Prices(lambda: settings.current)
        means = Means(
            database=database,
            toolbox=toolbox,
            chain=self._parts.chain,
            ask=Chain(self._parts.link).ask,
            watched=self.hub.watched,
            publish=self.hub.publish,
            clock=clock,
            telemetry=self.telemetry,
            spending=Spending(
                self.settings.constellation,
                self._prices.of,
                lambda: settings.current.budget.budget,
            ),
            rules=lambda: Rules(frozenset(map(Tier, settings.current.memory.trust))),
            folding=lambda: folds_of(settings.current.context),
            profile=self._parts.profile,
            context_tokens=lambda: settings.current.context.tokens,
            search=self._find,
        )
        self._outbox = Outbox(
            database, self._parts.channel, lambda: self.settings.outbox, clock, self.telemetry
        )
        self.indexing = Indexing(
            database,
            self.settings.constellation,
            clock,
            lambda: self._parts.encoder(settings.current.search.encoder),
        )
        settings.subscribe(self._encoder_changed)
        self._runtime = Runtime(
            means,
            self.hub,
            constellation=self.settings.constellation,
            delivered=self._outbox.kick,
            ended=self.indexing.kick,
        )
        self._means = means
        self._reach = Reach(
            database,
            self.settings.constellation,
            clock,
            lambda one: self.agent(one.id if isinstance(one, Agent) else one),
            self._runtime.forget,
            data,
        )
        self._schedules = Schedules(database, self.settings.constellation, clock, self._poke)
        self._retention = Pump("retention", self._retain, clock, longest_sleep=_RETAIN_EVERY)
        self._lanes: Lanes | None = None
        self._watching: asyncio.Task[None] | None = None
        self._retain_next = 0
        self.taken_up: list[str] = []
        """Turns that were accepted before the last stop or crash and go on in this process."""

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
        toolbox = make_toolbox(live.current, place, tools)
        if database is None:
            database = await open_database(live.current, place, readonly=readonly)
        home = cls(database, live, toolbox, clock, place)
        home._parts.put(models or {}, channels or {})
        home._prices.given.update(models or {})
        try:
            if not readonly:
                await home._start(work)
            yield home
        finally:
            await home._close(grace)

    async def _start(self, work: bool) -> None:
        await presume_orphans(self.database, self.settings.constellation, self._clock())
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
            self._retention.start()
            await self.indexing.start()
            for name in self._parts.channel_names():
                self._listening.append(asyncio.create_task(self._listen(name)))

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
        await self._retention.stop()
        await self.indexing.stop()
        await self._runtime.stop(grace)
        await self._outbox.stop()
        await self.telemetry.close()
        await self._parts.close()
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

        wait = 1.0
        while True:
            try:
                await self._parts.channel(name).listen(accept)
            except Exception:  # noqa: BLE001 - one channel must not take the others down
                _log.exception("channel %s failed; starting it again in %g s", name, wait)
                await asyncio.sleep(wait)
                wait = min(wait * 2, 60.0)
            else:
                return

    # -- configuration -------------------------------------------------------------------------

    @property
    def settings(self) -> Settings:
        """The settings in use."""
        return self._live_settings.current

    def follow_configuration(self, changed: Callable[[Settings], None] | None = None) -> None:
        """Put changes of the configuration file in use as they are saved, and tell `changed`."""
        if changed is not None:
            self._live_settings.subscribe(lambda _, new: changed(new))
        if self._watching is None:
            self._watching = asyncio.create_task(self._live_settings.watch())

    async def _retain(self) -> None:
        """Delete what has grown too old, once a day and at each start."""
        if self.settings.retention and self._clock() >= self._retain_next:
            self._retain_next = self._clock() + _DAY
            await self.memory.retain()

    def _encoder_changed(self, old: Settings, new: Settings) -> None:
        if (old.search, old.models) != (new.search, new.models):
            self.indexing.encoder_changed()

    def _poke(self, agent_id: str) -> None:
        if isinstance(self._lanes, LocalLanes):
            self._lanes.poke(agent_id)

    # -- memory --------------------------------------------------------------------------------
    # Each has a file of its own, imported when it is first used.

    @cached_property
    def blocks(self) -> Blocks:
        """The blocks of agents, and of the constellation."""
        from asterism.app.blocks import Blocks

        return Blocks(self._reach)

    @cached_property
    def archive(self) -> Archive:
        """The archives of agents."""
        from asterism.app.archive import Archive
        from asterism.app.aside import ask_aside

        async def ask(agent: Agent, text: str) -> str:
            return await ask_aside(self._means, agent, text, new_id("aside"))

        return Archive(
            self._reach,
            self.search,
            lambda: ask if self.settings.memory.judge == "model" else None,
        )

    async def _find(self, agent_id: str, query: Query, company: Company) -> Found:
        """Search for an agent in a turn; the verb is imported when it is first used."""
        return await self.search.find(agent_id, query, company)

    @cached_property
    def search(self) -> Search:
        """Search over all that agents remember: `await home.search(agent, text, …)`."""
        from asterism.app.search import Search

        return Search(self._reach, self._parts.encoder, lambda: self.settings.search.encoder)

    @cached_property
    def people(self) -> People:
        """The persons that agents talk to."""
        from asterism.app.people import People

        return People(self._reach)

    @cached_property
    def sources(self) -> Sources:
        """The folders of documents that agents can search."""
        from asterism.app.sources import Sources

        return Sources(self._reach)

    @cached_property
    def contexts(self) -> Contexts:
        """What models see, or saw."""
        from asterism.app.contexts import Contexts

        return Contexts(self._reach, self._means, self._runtime.live)

    @cached_property
    def memory(self) -> Memory:
        """Memory as a whole: time travel, provenance, health, forgetting, export."""
        from asterism.app.memory import Memory

        return Memory(self._reach, lambda: list(self.settings.retention.values()))

    # -- agents --------------------------------------------------------------------------------

    async def create_agent(
        self,
        name: str,
        *,
        model: str | None = None,
        system: str | None = None,
        tools: Sequence[str] | None = None,
        limits: Limits | None = None,
    ) -> Agent:
        """Create an agent; its name must be free."""
        agent = self._new_agent(name, model, system, tools, limits)
        if not await self.database.write(
            lambda tx: agents.create(tx, self.settings.constellation, agent)
        ):
            raise Conflict(
                f"There is an agent named {name!r} already. Choose another name, or change it with "
                f'"asterism agent edit {name}". Nothing was created.'
            )
        return agent

    async def ensure_agent(
        self,
        name: str,
        *,
        model: str | None = None,
        system: str | None = None,
        tools: Sequence[str] | None = None,
        limits: Limits | None = None,
    ) -> Agent:
        """Return the agent of that name, created as given if there is none."""
        constellation = self.settings.constellation
        new = self._new_agent(name, model, system, tools, limits)

        async def work(tx: Connection) -> Agent:
            found = await agents.by_name(tx, constellation, name)
            if found is None and await agents.create(tx, constellation, new):
                return new
            # On PostgreSQL somebody may have been quicker between the two.
            found = found or await agents.by_name(tx, constellation, name)
            assert found is not None
            return found

        return await self.database.write(work)

    def _new_agent(
        self,
        name: str,
        model: str | None,
        system: str | None,
        tools: Sequence[str] | None,
        limits: Limits | None,
    ) -> Agent:
        return Agent(
            id=new_id("agent"),
            name=checked_name(name),
            model=checked_model(model or DEFAULT_MODEL),
            system=checked_system(DEFAULT_SYSTEM.format(name=name) if system is None else system),
            created_at=self._clock(),
            tools=self._checked_tools(tools),
            limits=limits or Limits(**self.settings.limits.model_dump()),
        )

    def _checked_tools(self, names: Sequence[str] | None) -> tuple[str, ...] | None:
        if names is None:
            return None
        there = self.toolbox.names()
        for name in names:
            if name not in there:
                raise NotFound(no_such("tool", name, there))
        return tuple(names)

    async def agent(self, name: str) -> Agent:
        """Return an agent by name or id."""
        found = await self._find_agent(name)
        if found is None:
            everyone = await self.agents()
            raise NotFound(no_such("agent", name, [one.name for one in everyone]))
        return found

    async def _find_agent(self, name: str) -> Agent | None:
        return await self.database.read(
            lambda tx: agents.by_name(tx, self.settings.constellation, name)
        )

    def model_of(self, agent: Agent) -> str:
        """Return the model an agent thinks with now, as `vendor:name`."""
        return self.settings.default_model if agent.model == DEFAULT_MODEL else agent.model

    async def warm(self, agent: Agent) -> None:
        """Let the model of an agent get ready while nobody has asked anything yet, if it can."""
        try:
            link = self._parts.link(self._parts.chain(agent.model)[0])
            if not isinstance(link.port, Warm):
                return
            live = await load(self.database, agent.id, None)
            await enter(
                self.database, live, OWNER_ALONE, self.settings.context.tokens, self._clock()
            )
            await link.port.warm(
                ModelRequest(
                    model=link.name,
                    messages=live.messages(link.profile),
                    tools=self.toolbox.wire(agent.tools, compact=link.profile.compact),
                    key="warm",
                    timeout=agent.limits.seconds,
                    agent_id=agent.id,
                )
            )
        except AsterismError as problem:
            # Whoever asks will be told; this was only a head start.
            _log.info("%s could not get ready: %s", agent.model, problem.message)

    async def agents(self) -> list[Agent]:
        """Return all agents by name."""
        return await self.database.read(lambda tx: agents.everyone(tx, self.settings.constellation))

    async def edit_agent(
        self,
        name: str,
        *,
        new_name: str | None = None,
        model: str | None = None,
        system: str | None = None,
        tools: Sequence[str] | None = None,
        all_tools: bool = False,
        limits: Limits | None = None,
    ) -> Agent:
        """Change an agent; what is not given stays. It counts from its next turn on."""
        agent = await self.agent(name)
        chosen = agent.tools if tools is None else self._checked_tools(tools)
        if all_tools:
            chosen = None
        changed = replace(
            agent,
            name=checked_name(new_name) if new_name is not None else agent.name,
            model=checked_model(model) if model is not None else agent.model,
            system=checked_system(system) if system is not None else agent.system,
            tools=chosen,
            limits=limits or agent.limits,
        )
        if changed.name != agent.name and await self._find_agent(changed.name):
            raise Conflict(
                f"There is an agent named {changed.name!r} already. Nothing was changed."
            )
        version = await self.database.write(lambda tx: agents.edit(tx, changed))
        if version is None:
            raise NotFound(f"The agent {name!r} was deleted meanwhile. Nothing was changed.")
        self._runtime.forget(agent.id)
        return replace(changed, version=version)

    async def delete_agent(self, name: str) -> Agent:
        """Take an agent out of service. Its journal stays and can be read."""
        agent = await self.agent(name)
        waiting = await self.database.read(
            lambda tx: inbox.waiting(tx, self.settings.constellation, agent.id)
        )
        if waiting:
            raise Conflict(
                f"{agent.name} has {len(waiting)} messages to answer first. Wait until it has "
                "answered them. Nothing was deleted."
            )
        at = self._clock()
        await self.database.write(lambda tx: agents.delete(tx, agent.id, at))
        self._runtime.forget(agent.id)
        return agent

    # -- messages ------------------------------------------------------------------------------

    async def import_messages(
        self, agent: Agent | str, messages: Sequence[PastMessage | tuple[str, str]]
    ) -> Imported:
        """Put a conversation from elsewhere at the end of an agent's past; nobody is asked.

        All of it is stored, or nothing. Whoever else spoke in it, only the owner may hear it.

        Args:
            agent: The agent, or its name or id. It must have nothing to answer.
            messages: What was said, in order of time, a person's message first. A pair of "user" or
                "assistant" and a text is a message without a speaker and a time.

        Returns:
            The ids of the turns that it has become, and of the messages.
        """
        agent_id = agent.id if isinstance(agent, Agent) else (await self.agent(agent)).id
        at, constellation = self._clock(), self.settings.constellation
        past = read_past(messages, at)
        try:
            return await self.database.write(
                lambda tx: append_past(tx, constellation, agent_id, past, at)
            )
        finally:
            # The commit may come although nobody waits for it any more.
            self._runtime.forget(agent_id)
            self.indexing.kick(agent_id)

    async def send(
        self,
        agent: Agent | str,
        text: str,
        *,
        channel: str = "api",
        external_id: str | None = None,
        sender: str | None = None,
        reply_to: str | None = None,
        images: Sequence[bytes] = (),
        schema: Mapping[str, Any] | None = None,
        room: str | None = None,
        present: Sequence[str] = (),
    ) -> Receipt:
        """Hand in a message. On return it is stored and will be answered exactly once.

        Args:
            agent: The agent, or its name or id.
            text: What is said.
            channel: Where it comes from, and where the answer goes if there is `reply_to`.
            external_id: The message's id there; the same id again is the same message.
            sender: Who says it, by their name in the channel; None: the owner.
            reply_to: Where in the channel the answer is delivered.
            images: PNG, JPEG, GIF or WebP files that belong to the message.
            schema: A JSON schema; the answer's text will be JSON that fulfils it.
            room: The room of the channel where it is said; None: in private.
            present: Who else is there, by their names in the channel. The agent sees only what
                everyone present may hear.
        """
        agent_id = agent.id if isinstance(agent, Agent) else (await self.agent(agent)).id
        return await self._runtime.accept(
            agent_id,
            text,
            channel=channel,
            external_id=external_id,
            sender=sender,
            reply_to=reply_to,
            images=[image(one) for one in images],
            schema=checked_schema(schema),
            room=room,
            present=present,
        )

    async def ask(self, agent: Agent | str, text: str, **given: Any) -> Outcome:
        """Hand in a message and wait for how its turn ends."""
        return await self._runtime.wait(await self.send(agent, text, **given))

    async def wait(self, receipt: Receipt) -> Outcome:
        """Wait for how the turn of an accepted message ends."""
        return await self._runtime.wait(receipt)

    async def stream(
        self, agent: Agent | str, text: str, **given: Any
    ) -> AsyncGenerator[Signal, None]:
        """Hand in a message and yield the signals of its turn, `ended` or `parked` the last."""
        who = agent if isinstance(agent, Agent) else await self.agent(agent)
        async with contextlib.aclosing(
            self._signals(who.id, lambda: self.send(who, text, **given))
        ) as signals:
            async for signal in signals:
                yield signal

    def stream_decision(
        self, approval: Approval, *, approved: bool, note: str | None = None, by: str = "owner"
    ) -> AsyncGenerator[Signal, None]:
        """Answer a question and yield the signals of the turn as it goes on."""
        return self._signals(
            approval.agent_id,
            lambda: self.decide(approval.id, approved=approved, note=note, by=by),
        )

    async def follow(self, turn_id: str) -> AsyncGenerator[Signal, None]:
        """Yield the signals of a turn from now on, `ended` or `parked` the last."""
        agent_id = (await self.outcome(turn_id)).agent_id

        async def accepted_before() -> Receipt:
            return Receipt("msg_" + turn_id.partition("_")[2], turn_id, agent_id, duplicate=True)

        async with contextlib.aclosing(self._signals(agent_id, accepted_before)) as signals:
            async for signal in signals:
                yield signal

    def _signals(
        self, agent_id: str, hand_in: Callable[[], Awaitable[Receipt]]
    ) -> AsyncGenerator[Signal, None]:
        return signals_of_turn(self.hub, self._runtime.wait, agent_id, hand_in)

    async def watch(
        self, agent: Agent | str, *, after: str | None = None
    ) -> AsyncGenerator[Signal, None]:
        """Yield the signals of all turns of an agent, from the one after `after` on.

        If the log of signals does not reach back that far, the turns that ended since are told from
        the journal first, after a signal `gap`.
        """
        who = agent if isinstance(agent, Agent) else await self.agent(agent)
        told: set[str] = set()
        if after is not None and not self.hub.knows(who.id, after):
            yield Signal(after, who.id, "", "gap", {})
            # From here on signals are kept, so that nothing falls between journal and log.
            since, after = time_of(after), self.hub.place(who.id)
            missed = await self.database.read(lambda tx: journal.ended_since(tx, who.id, since))
            told = {record.id for record in missed}
            for record in missed:
                yield last_signal(await self._runtime.outcome(record.id))
        async with contextlib.aclosing(self.hub.watch(who.id, after)) as signals:
            async for signal in signals:
                if signal.turn_id not in told:
                    yield signal

    async def stop_turn(self, turn_id: str, reason: str = "Stopped.") -> None:
        """End a turn that is under way, wherever it runs."""
        if self._runtime.is_running(turn_id):
            self._runtime.stop_turn(turn_id, reason)
            return
        outcome = await self._runtime.outcome(turn_id)
        if outcome.state is not TurnState.OPEN and not self.database.distributed:
            raise Conflict(f"Turn {turn_id} is {outcome.state.value}; there is nothing to stop.")
        await self.database.write(lambda tx: tx.notify("stop", turn_id))

    # -- turns ---------------------------------------------------------------------------------

    async def outcome(self, turn_id: str) -> Outcome:
        """Return how a turn stands."""
        return await self._runtime.outcome(turn_id)

    async def turns(self, agent: Agent | str | None = None, *, limit: int = 20) -> list[TurnRecord]:
        """Return the latest turns, newest first."""
        agent_id: str | None = None
        if agent is not None:
            agent_id = agent.id if isinstance(agent, Agent) else (await self.agent(agent)).id
        return await self.database.read(
            lambda tx: journal.turns_of(tx, self.settings.constellation, agent_id, limit)
        )

    async def turn(self, turn_id: str) -> tuple[TurnRecord, list[Entry]]:
        """Return a turn with its entries."""

        async def read(tx: Connection) -> tuple[TurnRecord, list[Entry]] | None:
            record = await journal.turn(tx, turn_id)
            return (record, await journal.entries_of(tx, record)) if record else None

        found = await self.database.read(read)
        if found is None:
            raise NotFound(
                f'There is no turn {turn_id!r}. "asterism turn list" shows the latest ones.'
            )
        return found

    async def replay(self, turn_id: str, *, cassette: Path | str | None = None) -> Replay:
        """Run a recorded turn again, offline, and tell whether it comes out the same.

        Args:
            turn_id: The turn, which must have ended.
            cassette: A tape of what went over the wire: models are heard from it through their wire
                formats, and requests composed now are compared with those on it, byte for byte.
        """
        record, entries = await self.turn(turn_id)
        if cassette is None:
            return await replay_turn(self.database, record, entries)
        return await replay_tape(
            self.database, self.settings, self.toolbox, record, entries, Path(cassette)
        )

    async def fork(
        self,
        turn_id: str,
        *,
        name: str | None = None,
        model: str | None = None,
        system: str | None = None,
    ) -> tuple[Agent, Outcome]:
        """Let a copy of the agent, as it stood before a turn, answer the same message anew.

        What it remembered then goes along: blocks, passages and whom it shared them with.
        """
        from asterism.memory.gate.copies import fork_memory

        record, entries = await self.turn(turn_id)
        origin = await self.database.read(lambda tx: agents.by_id(tx, record.agent_id))
        assert origin is not None
        copy = replace(
            self._new_agent(
                name or f"{origin.name}-{turn_id[-6:]}",
                model or origin.model,
                origin.system if system is None else system,
                None,
                origin.limits,
            ),
            tools=origin.tools,
        )

        async def work(tx: Connection) -> bool:
            if not await agents.create(tx, self.settings.constellation, copy):
                return False
            await journal.copy_before(tx, origin.id, record.first_seq, copy.id)
            writer = self._reach.owner("fork", f"as it stood before {turn_id}")
            await fork_memory(tx, writer, origin.id, copy.id, moment=record.opened_at - 1)
            return True

        if not await self.database.write(work):
            raise Conflict(
                f"There is an agent named {copy.name!r} already. Name the fork with --name. "
                "Nothing was created."
            )
        said = next(entry for entry in entries if entry.key == "in")
        opening = orjson.loads(said.meta or "{}")
        named = images_in(said.body)
        shown = await self.database.read(lambda tx: blobs.get(tx, named)) if named else {}
        outcome = await self.ask(
            copy,
            text_of(said.body),
            channel="fork",
            images=[shown[id].body for id in named],
            schema=orjson.loads(opening["schema"]) if "schema" in opening else None,
        )
        return copy, outcome

    async def waiting(self) -> list[InboxItem]:
        """Return what was accepted and waits for its turn."""
        return await self.database.read(lambda tx: inbox.waiting(tx, self.settings.constellation))

    async def counts(self) -> tuple[int, int]:
        """Return how many agents there are, and how many messages wait."""
        constellation = self.settings.constellation

        async def read(tx: Connection) -> tuple[int, int]:
            return await agents.count(tx, constellation), await inbox.count(tx, constellation)

        return await self.database.read(read)

    async def metrics(self, accept: str = "") -> tuple[bytes, str]:
        """Return the metrics in a text format that Prometheus reads, and the format's type."""
        return await metrics(
            self.database,
            self.settings.constellation,
            self.telemetry,
            self._parts.breakers(),
            now=self._clock(),
            accept=accept,
        )

    async def unfinished(self) -> list[str]:
        """Return the ids of turns that were accepted and have not ended: waiting or interrupted."""

        async def read(tx: Connection) -> list[str]:
            constellation = self.settings.constellation
            waiting = await inbox.waiting(tx, constellation)
            ids = [item.turn_id for item in waiting if item.kind == "message"]
            ids += [record.id for record in await journal.all_interrupted(tx, constellation)]
            return sorted(ids)

        return await self.database.read(read)

    # -- people --------------------------------------------------------------------------------

    async def approvals(self) -> list[Approval]:
        """Return the questions that wait for an answer."""
        return await self.database.read(
            lambda tx: approvals.waiting(tx, self.settings.constellation)
        )

    async def decide(
        self, approval_id: str, *, approved: bool, note: str | None = None, by: str = "owner"
    ) -> Receipt:
        """Answer a question; the turn that asked goes on."""
        return await self._runtime.decide(approval_id, approved, note, by)

    async def notices(self, *, unseen: bool = True, limit: int = 100) -> list[Notice]:
        """Return what the owner must be told."""
        return await self.database.read(
            lambda tx: notices.listing(tx, self.settings.constellation, unseen=unseen, most=limit)
        )

    async def notices_seen(self, ids: Sequence[str]) -> None:
        """Note that the owner has seen these."""
        at = self._clock()
        await self.database.write(lambda tx: notices.mark_seen(tx, list(ids), at))

    # -- money ---------------------------------------------------------------------------------

    async def spend(self, days: int = 30, *, agent: Agent | str | None = None) -> Spend:
        """Return what was spent in the last days, today among them, and how the caps stand."""
        agent_id: str | None = None
        if agent is not None:
            agent_id = agent.id if isinstance(agent, Agent) else (await self.agent(agent)).id
        settings, now = self.settings, self._clock()
        return await self.database.read(
            lambda tx: read_spend(tx, settings, self._prices.of, now, days, agent_id)
        )

    async def caps(self) -> list[Standing]:
        """Return how much of each cap is used in the day or the month that it runs for."""
        settings, now = self.settings, self._clock()
        return await self.database.read(lambda tx: standings(tx, settings, now))

    # -- out and later -------------------------------------------------------------------------

    async def deliveries(self, state: str | None = None, *, limit: int = 100) -> list[Delivery]:
        """Return deliveries in a state (`waiting`, `dead`, `sent`), or all that are not sent."""
        return await self.database.read(
            lambda tx: outbox.listing(tx, self.settings.constellation, state, limit)
        )

    async def retry_delivery(self, key: str) -> None:
        """Try a dead delivery again."""
        at = self._clock()
        if not await self.database.write(lambda tx: outbox.revive(tx, key, at)):
            raise NotFound(f'There is no dead delivery {key!r}. "asterism outbox list" shows them.')
        self._outbox.kick()

    async def schedules(self, agent: Agent | str) -> list[Schedule]:
        """Return the schedules of an agent, the next one first."""
        agent_id = agent.id if isinstance(agent, Agent) else (await self.agent(agent)).id
        return await self.database.read(lambda tx: schedules.of_agent(tx, agent_id))
