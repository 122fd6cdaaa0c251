"""What the verbs about memory work with."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from asterism.app.checks import no_such
from asterism.errors import NotAllowed, NotFound
from asterism.memory import people
from asterism.memory.gate.writer import Writer
from asterism.permissions import (
    ROLES,
    SYSTEM,
    Act,
    Actor,
    Allow,
    Authority,
    Resource,
    Situation,
    decide,
)
from asterism.ports import Clock
from asterism.store import agents, events, inbox, journal
from asterism.store.database import Connection, Database
from asterism.types.agents import Agent
from asterism.types.events import Event, home_chain
from asterism.types.memory import TOMBSTONES
from asterism.types.people import OWNER, OWNER_ALONE, Audience, Participants, audience_of

THE_OWNER = Actor(OWNER, OWNER, OWNER)
ADMIN = "admin"
"""The role that sees everything, as the owner does."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Reach:
    """The parts of an open constellation that verbs about memory need."""

    database: Database
    constellation: str
    clock: Clock
    drop: Callable[[str], None]
    """Drops what this process keeps in memory of an agent."""
    data: Path
    """The data directory."""
    authority: Callable[[], Authority] = Authority
    """What the owner has decided beforehand."""
    actor: Actor = THE_OWNER
    """Who acts."""
    clear: Callable[[], None] = lambda: None
    """Drops what this process keeps in memory of texts, such as what tools have loaded."""

    @property
    def is_owner(self) -> bool:
        """Whether the owner acts, who may do everything."""
        return self.actor.kind == OWNER

    @property
    def writes_as_owner(self) -> bool:
        """Whether what is written is the owner's: they act, or a rule that they have set."""
        return self.actor.kind in (OWNER, SYSTEM)

    # -- what whoever acts may see ---------------------------------------------------------------

    @property
    def sees_all(self) -> bool:
        """Whether whoever acts may see everything: the owner, and persons with the role `admin`.

        Whatever else a role lets a person do, they see what they may hear themselves.
        """
        if self.writes_as_owner:
            return True
        if ADMIN not in self.actor.roles:
            return False
        return Act.GOVERN in self.authority().roles.get(ADMIN, ROLES[ADMIN])

    async def participants(self, tx: Connection) -> Participants:
        """Return those for whose eyes a verb reads: whoever acts."""
        if self.sees_all:
            return OWNER_ALONE
        persons = [self.actor.id] if self.actor.kind == "person" else []
        return await people.participants(tx, self.constellation, persons, None)

    async def among(self, tx: Connection, given: Participants) -> Participants:
        """Return those whom whoever acts names as present, and themselves."""
        if self.sees_all:
            return given
        own = await self.participants(tx)
        if given.owner_alone:
            return own
        # Not the room: one that they are not in would open its talk to them.
        return Participants(tuple(dict.fromkeys((*own.people, *given.people))))

    async def visible_turns(self, tx: Connection, ids: Iterable[str | None]) -> frozenset[str]:
        """Return those of some turns that whoever acts may see."""
        wanted = {one for one in ids if one is not None}
        if self.sees_all:
            return frozenset(wanted)
        participants = await self.participants(tx)
        found: set[str] = set()
        unknown: set[str] = set()
        for turn_id in wanted:
            record = await journal.turn(tx, turn_id)
            if record is None:
                unknown.add(turn_id)
            elif participants.can_see(Audience.of_turn(record.audience)):
                found.add(turn_id)
        if unknown:
            for item in await inbox.waiting(tx, self.constellation):
                if item.turn_id in unknown and participants.can_see(audience_of(item.participants)):
                    found.add(item.turn_id)
        return frozenset(found)

    async def sees_turn(self, turn_id: str) -> bool:
        """Tell whether whoever acts may see a turn."""
        if self.sees_all:
            return True
        return bool(await self.database.read(lambda tx: self.visible_turns(tx, [turn_id])))

    # -- what whoever acts may do ----------------------------------------------------------------

    def check(self, act: Act, verb: str, noun: str, given: Sequence[Any] = ()) -> None:
        """Return if whoever acts may use a verb; else raise `NotAllowed`."""
        if self.is_owner:
            return
        label = _label(given[0]) if given else ""
        situation = Situation(self.authority(), now=self.clock())
        verdict = decide(self.actor, act, Resource(noun, label, verb=verb), situation)
        if not isinstance(verdict, Allow):
            raise NotAllowed(f"{verdict.reason} Nothing was changed.")

    async def allow(self, act: Act, verb: str, noun: str, given: Sequence[Any] = ()) -> None:
        """Do as `check` does, and leave a refusal in the audit log."""
        try:
            self.check(act, verb, noun, given)
        except NotAllowed as refused:
            body = {"what": verb, "verdict": "denied", "reason": refused.message}
            event = Event("verb.denied", str(self.actor), self.clock(), body)
            chain = home_chain(self.constellation)
            await self.database.write(lambda tx: events.append(tx, chain, [event]))
            raise

    async def writer(self, tx: Connection, by: str, reason: str = "") -> Writer:
        """Return whoever acts as whoever writes to memory, and by what means."""
        constellation, now = self.constellation, self.clock()
        if self.writes_as_owner:
            return Writer.owner(constellation, now, by=by, reason=reason)
        participants = await self.participants(tx)
        return Writer.person(self.actor, constellation, participants, now, by=by, reason=reason)

    async def agent(self, one: Agent | str) -> Agent:
        """Return an agent by its name or id; one that was looked up before, as it is now."""
        name = one.id if isinstance(one, Agent) else one
        found = await self.database.read(lambda tx: agents.by_name(tx, self.constellation, name))
        if found is None:
            everyone = await self.database.read(lambda tx: agents.everyone(tx, self.constellation))
            raise NotFound(no_such("agent", name, [each.name for each in everyone]))
        return found

    async def agent_id(self, agent: Agent | str | None) -> str:
        """Return the id of an agent, or that of the constellation as an owner of blocks."""
        return "" if agent is None else (await self.agent(agent)).id

    async def stay_forgotten(self) -> None:
        """Forget anew what was forgotten before, if something from outside may have brought it."""
        from asterism.memory.forgetting import replay

        if not (self.data / TOMBSTONES).exists():
            return

        async def drop(agents: Sequence[str]) -> None:
            self.clear()
            for agent_id in agents:
                self.drop(agent_id)

        await replay(
            self.database,
            self.data,
            self.constellation,
            everything=True,
            drop=drop,
            clock=self.clock,
        )


def _label(given: Any) -> str:
    if isinstance(given, Agent):
        return given.name
    return given if isinstance(given, str) else str(getattr(given, "name", ""))


async def enough(
    page: Callable[[int], Awaitable[Sequence[T]]],
    heard: Callable[[Sequence[T]], Awaitable[list[T]]],
    limit: int,
) -> list[T]:
    """Return the first things that may be seen, up to a limit.

    Args:
        page: Returns so many of the first things there are.
        heard: Returns those that may be seen.
        limit: How many are wanted.
    """
    most = limit
    while True:
        found = await page(most)
        kept = await heard(found)
        if len(kept) >= limit or len(found) < most:
            return kept[:limit]
        most *= 4
