"""The verbs about contexts: what a model sees or saw, and making room in it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from asterism.app.session import Session, no_such_turn, note, verbs
from asterism.errors import AsterismError, Conflict, NotFound
from asterism.memory import people
from asterism.permissions import Act
from asterism.ports import Describes, ModelQuestion, ModelRequest, Profile, RequestPart
from asterism.store import journal
from asterism.store.database import Connection
from asterism.telemetry.redaction import RequestRedactor, redact
from asterism.turns.context import LiveAgent, enter, load
from asterism.turns.context_view import (
    ContextView,
    context_now,
    context_of_step,
    plain_parts,
    with_count,
)
from asterism.turns.rules import narrowed
from asterism.turns.turn import TurnServices, reservations_for
from asterism.types.agents import OWNER_ALONE, AgentRecord, Participants, new_id
from asterism.types.turns import Entry, EntryKind, SentContext, message_wire

if TYPE_CHECKING:
    from asterism.models.chain import ChainLink
    from asterism.turns.compaction import CompactionResult
    from asterism.types.turns import Summary


@verbs(
    "context",
    now=Act.READ,
    of_turn=Act.READ,
    compact=Act.OVERWRITE,
    restart=Act.OVERWRITE,
)
class Contexts:
    """What models are shown, exactly, and why."""

    def __init__(
        self,
        session: Session,
        services: TurnServices,
        at_work: Callable[[str], LiveAgent | None],
        link: Callable[[str], ChainLink],
    ) -> None:
        """Make the verbs.

        Args:
            session: Who acts, and what they may see and do.
            services: What turns work with.
            at_work: Returns an agent that this process has loaded.
            link: Returns the port of a model named `vendor:name`.
        """
        self._session = session
        self._services = services
        self._at_work = at_work
        self._link = link

    async def now(self, agent: AgentRecord | str, *, present: Sequence[str] = ()) -> ContextView:
        """Return what a model would see if a message came now, with these persons present."""
        session, services = self._session, self._services
        record = await session.agent(agent)
        participants = await self._participants(present)
        if not session.sees_all:
            participants = await session.database.read(lambda tx: session.among(tx, participants))
        working = self._at_work(record.id)
        context = working.contexts.get(participants.key) if working is not None else None
        if context is None:
            zone = services.settings.current.zone_name
            live = await load(session.database, record.id, None, zone)
            await enter(
                live, participants, services.settings.current.context.tokens, services.clock()
            )
            context = live.context
        model = services.models.chain(record.model)[0]
        profile = services.models.profile(model)
        tools = services.toolbox.wire(record.tools, compact=profile.compact)
        request = ModelRequest(
            model=model.partition(":")[2],
            messages=[],
            tools=narrowed(tools, record.rules),
            key="now",
            timeout=0.0,
            agent_id=record.id,
        )
        sent = SentContext(context.tail.sent(profile, upcoming=True), profile.compact)

        async def read(tx: Connection) -> tuple[ContextView, ModelRequest]:
            return await context_now(tx, context, model, request, sent, self._describe)

        shown, request = await session.database.read(read)
        shown = with_count(self._permitted(shown), await self._count(model, request))
        return _without_secrets(shown)

    async def of_turn(self, turn_id: str, step: int | None = None) -> ContextView:
        """Return what the model was shown in a step of a turn; without a step, in its last one."""

        async def read(tx: Connection) -> ContextView | None:
            record = await journal.turn(tx, turn_id)
            if record is None or not await self._session.visible_turns(tx, [turn_id]):
                raise no_such_turn(turn_id)
            entries = await journal.entries_of(tx, record)
            wanted = _last_step(entries) if step is None else step
            return await context_of_step(tx, record, entries, wanted, self._describe)

        context = await self._session.database.read(read)
        if context is None:
            what = "no model was asked" if step is None else f"there is no step {step}"
            raise NotFound(
                f"Of turn {turn_id} no context is kept: {what}, or it was recorded by an earlier "
                'release. "asterism turn show" shows what it has.'
            )
        return _without_secrets(self._permitted(context))

    def _permitted(self, context: ContextView) -> ContextView:
        """Return a context that does not name a turn which whoever acts may not see."""
        if self._session.sees_all or not context.corrected_by:
            return context
        return replace(context, corrected_by="an earlier turn")

    def _describe(self, model: str, request: ModelRequest) -> Sequence[RequestPart]:
        """Return all that is sent for a request; as it is, if its model is not configured here."""
        port = self._port(model)
        return port.describe(request) if port is not None else plain_parts(request)

    async def _count(self, model: str, request: ModelRequest) -> int:
        """Return how many tokens a request has, 0 if nobody can tell without being asked."""
        port = self._port(model)
        counted = await port.count(RequestRedactor().request(request)) if port is not None else None
        return counted or 0

    def _port(self, model: str) -> Describes | None:
        """Return the port of a model that can tell what it sends."""
        try:
            port = self._link(model).port
        except AsterismError:
            return None
        return port if isinstance(port, Describes) else None

    async def compact(self, agent: AgentRecord | str) -> CompactionResult:
        """Compact the older half of a conversation into a summary; the originals stay.

        It is the actor's own conversation with the agent: that of the owner for whoever sees all.
        Whoever may not read is answered without the text of the summary.
        """
        # It takes 20 ms to import, and whoever only looks at a context needs none of it.
        from asterism.turns.compaction import compact

        session, services = self._session, self._services
        record = await session.agent(agent)
        live = await self._enter_own(record)
        key = f"{new_id('turn')}/compact"
        async with reservations_for(services, record, key, session.payer) as reservations:
            compacted = await compact(
                services,
                live,
                live.context,
                before=live.length + 1,
                budget_tokens=live.context.tail.tokens,
                reservations=reservations,
                notify=tell_log,
                key=key,
            )
        if compacted is None:
            raise Conflict(
                f"There is nothing to compact: {record.name} has too few turns that could leave "
                "its context. Nothing was changed."
            )
        session.drop(record.id)
        if session.may(Act.READ, "context.compact"):
            return compacted
        return replace(compacted, summary=replace(compacted.summary, text=""))

    async def restart(self, agent: AgentRecord | str) -> Summary:
        """Begin the actor's own conversation with an agent anew; what the agent remembers stays.

        For whoever sees all it is that of the owner. Earlier messages leave the context. They stay
        in the journal, and search finds them. Turns that have not ended go on with what they need.

        Returns:
            What stands in their place: it counts them, and says nothing of what they said.
        """
        from asterism.turns.compaction import restart

        session, services = self._session, self._services
        record = await session.agent(agent)
        live = await self._enter_own(record)

        async def leave_event(tx: Connection, summary: Summary) -> None:
            kind, count = "context.restarted", summary.messages
            await note(
                tx, session, kind, by="api", agent_id=record.id, what=record.name, count=count
            )

        summary = await restart(services, live, live.context, leave_event)
        if summary is None:
            raise Conflict(
                f"{record.name} has no finished turn in its context, so that there is nothing to "
                "leave behind. Nothing was changed."
            )
        session.drop(record.id)
        return summary

    async def _enter_own(self, record: AgentRecord) -> LiveAgent:
        """Return an agent in the conversation that is the actor's to change."""
        session, settings = self._session, self._services.settings.current
        live = await load(session.database, record.id, None, settings.zone_name)
        participants = await session.database.read(session.participants)
        await enter(live, participants, settings.context.tokens, self._services.clock())
        return live

    async def _participants(self, present: Sequence[str]) -> Participants:
        if not present:
            return OWNER_ALONE

        async def read(tx: Connection) -> Participants:
            persons = [(await people.find(tx, name)).id for name in present]
            return await people.participants(tx, persons, None)

        return await self._session.database.read(read)


def _last_step(entries: Sequence[Entry]) -> int:
    steps = [int(entry.key.partition("/")[0]) for entry in entries if entry.kind is EntryKind.REPLY]
    return max(steps, default=-1)


_log = logging.getLogger(__name__)
_SECONDS = 60.0
_SHORT = 64


def tell_log(kind: str, text: str) -> None:
    """Write a warning to the log: there is no turn that could tell the owner."""
    _log.warning("%s: %s", kind, text)


async def ask_outside_turn(
    services: TurnServices, agent: AgentRecord, text: str, key: str, person: str | None
) -> str:
    """Return a short answer of an agent's model; raise `ModelError` or `BudgetReached`.

    It counts for the person who asks for it; None: the owner.
    """

    def compose(model: str, profile: Profile, too_long: int) -> ModelRequest:
        del profile, too_long
        return ModelRequest(
            model=model.partition(":")[2],
            messages=[message_wire("user", text)],
            tools=None,
            key=f"{key}/0",
            timeout=_SECONDS,
            agent_id=agent.id,
            frozen=0,
            max_output=_SHORT,
        )

    async with reservations_for(services, agent, key, person) as reservations:
        question = ModelQuestion(
            services.models.chain(agent.model), compose, reservations, tell_log
        )
        return (await services.models.ask(question)).text


def _without_secrets(context: ContextView) -> ContextView:
    """Return a context without known keys, which are taken out when it is sent."""
    cleaned = RequestRedactor()
    lines = tuple(replace(line, text=redact(line.text)) for line in context.lines)
    messages = tuple(cleaned[message] for message in context.messages)
    return replace(context, lines=lines, messages=messages)
