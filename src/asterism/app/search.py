"""The verb `search`: what memory has on a question, of one agent or of all."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from asterism.app.session import AnyText, Session, verbs
from asterism.memory.search.encoders.asking import Asking, serving
from asterism.memory.search.encoders.names import names_for
from asterism.memory.search.question import MOST_CHARACTERS
from asterism.memory.search.search import Encoded, search
from asterism.permissions import Act
from asterism.store import agents
from asterism.store.database import Connection
from asterism.store.shelves import ARCHIVE, JOURNAL
from asterism.types.agents import Agent
from asterism.types.people import OWNER_ALONE, Participants
from asterism.types.search import DOMAINS, Found, Query


@verbs("search", __call__=Act.READ, find=Act.READ)
class Search:
    """Search over all that agents remember; call it."""

    def __init__(self, session: Session, asking: Asking, wanted: Callable[[], str]) -> None:
        """Make the verb.

        Args:
            session: What is searched, and who searches.
            asking: Asks encoders for the vectors of queries.
            wanted: Returns the name of the encoder that is configured.
        """
        self._session = session
        self._asking = asking
        self._wanted = wanted

    async def __call__(
        self,
        agent: Agent | str | None,
        text: AnyText,
        *,
        domains: Sequence[str] = DOMAINS,
        speaker: str | None = None,
        role: str | None = None,
        since: int | None = None,
        until: int | None = None,
        tags: Sequence[str] = (),
        source: str | None = None,
        participants: Participants = OWNER_ALONE,
        limit: int = 10,
        offset: int = 0,
        moment: int | None = None,
        neighbours: int = 0,
    ) -> Found:
        """Return what memory has on a query, the best first; any text is a query.

        Args:
            agent: Whose memory; None: that of all agents.
            text: What is looked for. Without a word in it, the newest are found.
            domains: Where to look.
            speaker: Only what this one said, by name, id or account.
            role: Only messages of `user` or `assistant`.
            since: Only what is of this moment or later, in milliseconds.
            until: Only what is of this moment or earlier.
            tags: Only passages that have all of these.
            source: Only documents of the source with this name or id.
            participants: Those present; what one of them may not hear is not there.
            limit: How many hits.
            offset: How many of the best are left out: the pages before.
            moment: As memory was then; None: now.
            neighbours: How many texts before and after each hit come with it.
        """
        query = Query(
            text,
            domains=tuple(domains),
            speaker=speaker,
            role=role,
            since=since,
            until=until,
            tags=tuple(tags),
            source=source,
            limit=limit,
            offset=offset,
            moment=moment,
            neighbours=neighbours,
        )
        agent_id = None if agent is None else await self._session.agent_id(agent)
        return await self.find(agent_id, query, participants)

    async def find(self, agent_id: str | None, query: Query, participants: Participants) -> Found:
        """Return what an agent's memory, or that of all, has on a query for those present."""
        # An encoder takes milliseconds, so it must not run while a transaction is open.
        asked = await self._asked(agent_id, query)
        now = self._session.clock()

        async def read(tx: Connection) -> Found:
            return await search(
                tx,
                self._session.constellation,
                agent_id,
                query,
                participants=await self._session.among(tx, participants),
                now=now,
                asked=asked,
            )

        return await self._session.database.read(read)

    async def _asked(self, agent_id: str | None, query: Query) -> Encoded | None:
        """Return the query's vector, or None where no encoder is wanted or it cannot answer."""
        wanted = self._wanted()
        if wanted == "none" or not query.text.strip():
            return None

        async def look(tx: Connection) -> tuple[str | None, list[str]]:
            constellation = self._session.constellation
            found = [agent_id]
            if agent_id is None:
                found = await agents.ids(tx, constellation)
            shelves = [(kind, one) for one in found if one for kind in (JOURNAL, ARCHIVE)]
            return (
                await serving(tx, shelves, wanted),
                await names_for(tx, constellation, agent_id or ""),
            )

        name, names = await self._session.database.read(look)
        vector = await self._asking.vector(name, query.text[:MOST_CHARACTERS], names)
        return None if name is None or vector is None else Encoded(name, vector)
