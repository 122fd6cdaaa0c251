"""What the verbs about memory work with."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from asterism.errors import NotAllowed
from asterism.memory.gate.writer import Writer
from asterism.permissions import Act, Actor, Allow, Authority, Resource, Situation, decide
from asterism.ports import Clock
from asterism.store import events
from asterism.store.database import Database
from asterism.types.agents import Agent
from asterism.types.events import Event, home_chain
from asterism.types.memory import TOMBSTONES
from asterism.types.people import OWNER

THE_OWNER = Actor(OWNER, OWNER, OWNER)


@dataclass(frozen=True, slots=True)
class Reach:
    """The parts of an open constellation that verbs about memory need."""

    database: Database
    constellation: str
    clock: Clock
    agent: Callable[[Agent | str], Awaitable[Agent]]
    """Returns an agent by its name or id."""
    drop: Callable[[str], None]
    """Drops what this process keeps in memory of an agent."""
    data: Path
    """The data directory."""
    authority: Callable[[], Authority] = Authority
    """What the owner has decided beforehand."""
    actor: Actor = THE_OWNER
    """Who acts."""

    @property
    def is_owner(self) -> bool:
        """Whether the owner acts, who may do everything."""
        return self.actor.kind == OWNER

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

    def owner(self, by: str, reason: str = "") -> Writer:
        """Return the owner as whoever writes, and by what means."""
        return Writer.owner(self.constellation, self.clock(), by=by, reason=reason)

    async def agent_id(self, agent: Agent | str | None) -> str:
        """Return the id of an agent, or that of the constellation as an owner of blocks."""
        return "" if agent is None else (await self.agent(agent)).id

    async def stay_forgotten(self) -> None:
        """Forget anew what was forgotten before, if something from outside may have brought it."""
        from asterism.memory.forgetting import replay

        if not (self.data / TOMBSTONES).exists():
            return

        async def drop(agents: Sequence[str]) -> None:
            for agent_id in agents:
                self.drop(agent_id)

        await replay(self.database, self.data, self.constellation, everything=True, drop=drop)


def _label(given: Any) -> str:
    if isinstance(given, Agent):
        return given.name
    return given if isinstance(given, str) else str(getattr(given, "name", ""))
