"""A live agent: what a process keeps in memory of an agent whose turn it is."""

from __future__ import annotations

from asterism.agents.context import Tail, prefix_wire, sections_of
from asterism.errors import NotFound
from asterism.ports import Profile
from asterism.store import agents as agents_at_rest
from asterism.store import blobs, journal
from asterism.store.database import Connection, Database
from asterism.types.agents import Agent
from asterism.types.blobs import Blob
from asterism.types.turns import EntryKind
from asterism.types.wire import images_in, with_images

_ANY = Profile()
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
        self._images: dict[str, Blob] = {}
        self.prefix = prefix_wire(sections_of(agent))
        self._compact_prefix = prefix_wire(sections_of(agent, compact=True))

    def messages(self, profile: Profile = _ANY) -> list[bytes]:
        """Return the context as wire forms: the frozen prefix, then the tail."""
        if profile.compact:
            messages = [self._compact_prefix, *self.tail.recent()]
        else:
            messages = [self.prefix, *self.tail.wires]
        if self.tail.pictured:
            seen = self._images if profile.images else None
            messages = [with_images(one, seen) if images_in(one) else one for one in messages]
        return messages

    async def fetch_images(self, database: Database) -> None:
        """Read the images that the tail names, so that `messages` can show them."""
        named = {id for wire in self.tail.wires for id in images_in(wire)}
        self._images = {id: blob for id, blob in self._images.items() if id in named}
        if lacking := sorted(named - self._images.keys()):
            self._images |= await database.read(lambda tx: blobs.get(tx, lacking))


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
