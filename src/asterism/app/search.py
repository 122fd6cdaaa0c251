"""The verb `search`: what memory has on a question, of one agent or of all."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from asterism.app.session import AnyText, Session, verbs
from asterism.permissions import Act
from asterism.search.encode import QueryEncoder, encoder_in_use, names_for
from asterism.search.query import MAX_CHARACTERS
from asterism.search.search import QueryVector, search
from asterism.store import agents
from asterism.store.database import Connection
from asterism.store.search_index import ARCHIVE, JOURNAL
from asterism.types.agents import Agent
from asterism.types.people import OWNER_ALONE, Participants
from asterism.types.search import DOMAINS, Query, SearchResult


@verbs("search", __call__=Act.READ, find=Act.READ)
class Search:
    """Search over all that agents remember; call it."""

    def __init__(
        self, session: Session, query_encoder: QueryEncoder, wanted: Callable[[], str]
    ) -> None:
        """Make the verb.

        Args:
            session: What is searched, and who searches.
            query_encoder: Asks encoders for the vectors of queries.
            wanted: Returns the name of the encoder that is configured.
        """
        self._session = session
        self._query_encoder = query_encoder
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
    ) -> SearchResult:
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
            participants: Those present; what one of them may not see is not there.
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

    async def find(
        self, agent_id: str | None, query: Query, participants: Participants
    ) -> SearchResult:
        """Return what an agent's memory, or that of all, has on a query for those present."""
        # An encoder takes milliseconds, so it must not run while a transaction is open.
        asked = await self._asked(agent_id, query)
        now = self._session.clock()

        async def read(tx: Connection) -> SearchResult:
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

    async def _asked(self, agent_id: str | None, query: Query) -> QueryVector | None:
        """Return the query's vector, or None where no encoder is wanted or it cannot answer."""
        wanted = self._wanted()
        if wanted == "none" or not query.text.strip():
            return None

        async def look(tx: Connection) -> tuple[str | None, list[str]]:
            constellation = self._session.constellation
            found = [agent_id]
            if agent_id is None:
                found = await agents.ids(tx, constellation)
            shelves = [(kind, key) for key in found if key for kind in (JOURNAL, ARCHIVE)]
            return (
                await encoder_in_use(tx, shelves, wanted),
                await names_for(tx, constellation, agent_id or ""),
            )

        name, names = await self._session.database.read(look)
        vector = await self._query_encoder.vector(name, query.text[:MAX_CHARACTERS], names)
        return None if name is None or vector is None else QueryVector(name, vector)
