"""The verbs about contexts: what a model sees or saw, and making room in it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from asterism.app.aside import purse_for, tell_log
from asterism.app.reach import Reach
from asterism.app.verbs import verbs
from asterism.errors import Conflict, NotFound
from asterism.memory import people
from asterism.permissions import Act
from asterism.store import journal
from asterism.store.database import Connection
from asterism.turns.context import LiveAgent, enter, load
from asterism.turns.shown import ShownContext, context_now, context_of_step, tail_now
from asterism.turns.turn import Means
from asterism.types.agents import Agent, new_id
from asterism.types.people import OWNER_ALONE, Participants
from asterism.types.turns import Entry, EntryKind

if TYPE_CHECKING:
    from asterism.turns.compaction import Folded


@verbs(
    "context",
    now=Act.READ,
    of_turn=Act.READ,
    fold=Act.OVERWRITE,
)
class Contexts:
    """What models are shown, exactly, and why."""

    def __init__(
        self, reach: Reach, means: Means, at_work: Callable[[str], LiveAgent | None]
    ) -> None:
        """Make the verbs; `at_work` returns what a process keeps of an agent at work."""
        self._reach = reach
        self._means = means
        self._at_work = at_work

    async def now(self, agent: Agent | str, *, present: Sequence[str] = ()) -> ShownContext:
        """Return what a model would be shown if a message came now, with these persons present."""
        reach, means = self._reach, self._means
        found = await reach.agent(agent)
        participants = await self._company(present)
        if not reach.sees_all:
            participants = await reach.database.read(lambda tx: reach.among(tx, participants))
        working = self._at_work(found.id)
        context = working.contexts.get(participants.key) if working is not None else None
        if context is None:
            live = await load(reach.database, found.id, None)
            await enter(reach.database, live, participants, means.context_tokens(), means.clock())
            context = live.context
        tail = await reach.database.read(lambda tx: tail_now(tx, found.id, context))
        return context_now(context, tail, means.chain(found.model)[0])

    async def of_turn(self, turn_id: str, step: int | None = None) -> ShownContext:
        """Return what the model was shown in a step of a turn; without a step, in its last one."""

        async def read(tx: Connection) -> ShownContext | None:
            record = await journal.turn(tx, turn_id)
            if record is None or not await self._reach.visible_turns(tx, [turn_id]):
                raise NotFound(
                    f'There is no turn {turn_id!r}. "asterism turn list" shows the latest ones.'
                )
            entries = await journal.entries_of(tx, record)
            wanted = _last_step(entries) if step is None else step
            return await context_of_step(tx, record, entries, wanted)

        found = await self._reach.database.read(read)
        if found is None:
            what = "no model was asked" if step is None else f"there is no step {step}"
            raise NotFound(
                f"Of turn {turn_id} no context is kept: {what}, or it was recorded by an earlier "
                'release. "asterism turn show" shows what it has.'
            )
        return found

    async def fold(self, agent: Agent | str) -> Folded:
        """Fold the older half of what an agent sees now into a summary; originals stay."""
        # It takes 20 ms to import, and whoever only looks at a context needs none of it.
        from asterism.turns.compaction import fold

        reach, means = self._reach, self._means
        found = await reach.agent(agent)
        live = await load(reach.database, found.id, None)
        await enter(reach.database, live, OWNER_ALONE, means.context_tokens(), means.clock())
        key = f"{new_id('turn')}/fold"
        async with purse_for(means, found, key) as purse:
            folded = await fold(
                means,
                live,
                live.context,
                before=live.length + 1,
                budget_tokens=live.context.tail.tokens,
                purse=purse,
                notify=tell_log,
                key=key,
            )
        if folded is None:
            raise Conflict(
                f"There is nothing to fold: {found.name} has too few turns that could leave its "
                "context. Nothing was changed."
            )
        reach.drop(found.id)
        return folded

    async def _company(self, present: Sequence[str]) -> Participants:
        if not present:
            return OWNER_ALONE

        async def read(tx: Connection) -> Participants:
            constellation = self._reach.constellation
            persons = [(await people.find(tx, constellation, one)).id for one in present]
            return await people.participants(tx, constellation, persons, None)

        return await self._reach.database.read(read)


def _last_step(entries: Sequence[Entry]) -> int:
    steps = [int(one.key.partition("/")[0]) for one in entries if one.kind is EntryKind.REPLY]
    return max(steps, default=-1)
