"""A live agent: what a process keeps in memory of an agent whose turn it is."""

from __future__ import annotations

from asterism.agents.context import Tail, prefix_wire, sections_of
from asterism.errors import NotFound
from asterism.store import agents as agents_at_rest
from asterism.store import journal
from asterism.store.database import Connection, Database
from asterism.types.agents import Agent
from asterism.types.turns import EntryKind

_FIRST_LOAD = 512
"""Entries read at once while the tail is filled from its end."""


class LiveAgent:
    """An agent with its claim, the length of its journal and the tail of its conversation."""

    def __init__(self, agent: Agent, claim: journal.Claim, length: int, tail: Tail) -> None:
        self.agent = agent
        self.claim = claim
        self.length = length
        self.tail = tail
        self.counted = 0
        """The bytes of the tail that its keeper knows of."""
        self.prefix = prefix_wire(sections_of(agent))

    def messages(self) -> list[bytes]:
        """Return the context as wire forms: the frozen prefix, then the tail."""
        return [self.prefix, *self.tail.wires]


async def load(
    database: Database, agent_id: str, claim: journal.Claim | None, budget: int
) -> LiveAgent:
    """Read an agent and as much of its conversation as fits the budget."""

    async def read(tx: Connection) -> LiveAgent:
        agent = await agents_at_rest.by_id(tx, agent_id)
        standing = await journal.standing(tx, agent_id)
        if agent is None or standing is None:
            raise NotFound(f"There is no agent {agent_id}. It may have been removed.")
        held, length = standing
        newest_first: list[tuple[EntryKind, bytes]] = []
        tail = Tail(budget)
        size, before, most = 0, length + 1, _FIRST_LOAD
        while size <= tail.budget:
            rows = await journal.wire_before(tx, agent_id, before, most)
            for seq, _, kind, body in rows:
                newest_first.append((EntryKind(kind), body))
                size += len(body)
                before = seq
            if len(rows) < most:
                break
            most *= 4
        for kind, body in reversed(newest_first):
            tail.append(kind, body)
        tail.fit()
        return LiveAgent(agent, claim or held, length, tail)

    return await database.read(read)
