"""The verbs about contexts: what a model sees or saw, and making room in it."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from asterism.app.session import Session, no_such_turn, verbs
from asterism.errors import Conflict, NotFound
from asterism.memory import people
from asterism.permissions import Act
from asterism.ports import ModelQuestion, ModelRequest, Profile
from asterism.store import journal
from asterism.store.database import Connection
from asterism.turns.context import LiveAgent, enter, load
from asterism.turns.shown import ShownContext, context_now, context_of_step, tail_now
from asterism.turns.spending import TurnBudget
from asterism.turns.turn import TurnServices
from asterism.types.agents import OWNER_ALONE, AgentRecord, Participants, new_id
from asterism.types.spending import Payer
from asterism.types.turns import Entry, EntryKind, message_wire

if TYPE_CHECKING:
    from asterism.turns.compaction import CompactionResult


@verbs(
    "context",
    now=Act.READ,
    of_turn=Act.READ,
    compact=Act.OVERWRITE,
)
class Contexts:
    """What models are shown, exactly, and why."""

    def __init__(
        self, session: Session, services: TurnServices, at_work: Callable[[str], LiveAgent | None]
    ) -> None:
        """Make the verbs; `at_work` returns what a process keeps of an agent at work."""
        self._session = session
        self._services = services
        self._at_work = at_work

    async def now(self, agent: AgentRecord | str, *, present: Sequence[str] = ()) -> ShownContext:
        """Return what a model would be shown if a message came now, with these persons present."""
        session, services = self._session, self._services
        found = await session.agent(agent)
        participants = await self._company(present)
        if not session.sees_all:
            participants = await session.database.read(lambda tx: session.among(tx, participants))
        working = self._at_work(found.id)
        context = working.contexts.get(participants.key) if working is not None else None
        if context is None:
            live = await load(session.database, found.id, None)
            await enter(
                session.database,
                live,
                participants,
                services.settings.current.context.tokens,
                services.clock(),
            )
            context = live.context
        tail = await session.database.read(lambda tx: tail_now(tx, found.id, context))
        return context_now(context, tail, services.models.chain(found.model)[0])

    async def of_turn(self, turn_id: str, step: int | None = None) -> ShownContext:
        """Return what the model was shown in a step of a turn; without a step, in its last one."""

        async def read(tx: Connection) -> ShownContext | None:
            record = await journal.turn(tx, turn_id)
            if record is None or not await self._session.visible_turns(tx, [turn_id]):
                raise no_such_turn(turn_id)
            entries = await journal.entries_of(tx, record)
            wanted = _last_step(entries) if step is None else step
            return await context_of_step(tx, record, entries, wanted)

        found = await self._session.database.read(read)
        if found is None:
            what = "no model was asked" if step is None else f"there is no step {step}"
            raise NotFound(
                f"Of turn {turn_id} no context is kept: {what}, or it was recorded by an earlier "
                'release. "asterism turn show" shows what it has.'
            )
        return found

    async def compact(self, agent: AgentRecord | str) -> CompactionResult:
        """Compact the older half of what an agent sees now into a summary; originals stay."""
        # It takes 20 ms to import, and whoever only looks at a context needs none of it.
        from asterism.turns.compaction import compact

        session, services = self._session, self._services
        found = await session.agent(agent)
        live = await load(session.database, found.id, None)
        await enter(
            session.database,
            live,
            OWNER_ALONE,
            services.settings.current.context.tokens,
            services.clock(),
        )
        key = f"{new_id('turn')}/compact"
        async with reservations_for(services, found, key) as reservations:
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
                f"There is nothing to compact: {found.name} has too few turns that could leave its "
                "context. Nothing was changed."
            )
        session.drop(found.id)
        return compacted

    async def _company(self, present: Sequence[str]) -> Participants:
        if not present:
            return OWNER_ALONE

        async def read(tx: Connection) -> Participants:
            constellation = self._session.constellation
            persons = [(await people.find(tx, constellation, one)).id for one in present]
            return await people.participants(tx, constellation, persons, None)

        return await self._session.database.read(read)


def _last_step(entries: Sequence[Entry]) -> int:
    steps = [int(entry.key.partition("/")[0]) for entry in entries if entry.kind is EntryKind.REPLY]
    return max(steps, default=-1)


_log = logging.getLogger(__name__)
_SECONDS = 60.0
_SHORT = 64


def tell_log(kind: str, text: str) -> None:
    """Note what an owner would be told in a turn."""
    _log.warning("%s: %s", kind, text)


@asynccontextmanager
async def reservations_for(
    services: TurnServices, agent: AgentRecord, key: str
) -> AsyncGenerator[TurnBudget | None]:
    """Yield the money for what no turn pays for, and settle it; None where none is counted."""
    if services.spending is None:
        yield None
        return
    reservations = TurnBudget(
        services.spending,
        services.database,
        services.clock,
        turn_id=key,
        payer=Payer(agent.id, agent.name, None),
        seconds=agent.limits.seconds,
        write=services.database.write,
    )
    try:
        yield reservations
    finally:
        charges = reservations.take(ended=True)
        await services.database.write(lambda tx: reservations.record(tx, charges))
        await reservations.close()


async def ask_aside(services: TurnServices, agent: AgentRecord, text: str, key: str) -> str:
    """Return a short answer of an agent's model; raise `ModelError` or `BudgetReached`."""

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

    async with reservations_for(services, agent, key) as reservations:
        question = ModelQuestion(
            services.models.chain(agent.model), compose, reservations, tell_log
        )
        return (await services.models.ask(question)).text
