"""What the verbs about memory work with."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from asterism.memory.gate.writer import Writer
from asterism.ports import Clock
from asterism.store.database import Database
from asterism.types.agents import Agent
from asterism.types.memory import TOMBSTONES


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
