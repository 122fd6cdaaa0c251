"""The verbs about sources: folders of documents that agents can search."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from asterism.app.session import Session, checked_name, no_such, note, verbs
from asterism.errors import Conflict, InvalidInput, NotFound
from asterism.memory import people
from asterism.permissions import Act
from asterism.sources.folder import Folder, Progress, SyncResult
from asterism.store import documents
from asterism.store.database import Connection
from asterism.types.agents import AgentRecord, new_id
from asterism.types.documents import DocumentSource, SourceDocument


@dataclass(frozen=True, slots=True)
class SourceState:
    """A source and how it stands."""

    source: DocumentSource
    agents: tuple[str, ...]
    """The ids of the agents that can search it."""
    documents: int
    passages: int
    refused: int


def _folder(path: Path) -> Path:
    try:
        place = path.expanduser().resolve()
        there = place.is_dir()
    except (OSError, RuntimeError) as error:
        raise InvalidInput(
            f"{str(path)[:80]!r} cannot be a folder ({type(error).__name__}). Nothing was added."
        ) from None
    if not there:
        raise NotFound(
            f"There is no folder {str(place)!r}. Name one that is there. Nothing was added."
        )
    return place


@verbs(
    "source",
    add=Act.GOVERN,
    list=Act.READ,
    get=Act.READ,
    documents=Act.READ,
    sync=Act.APPEND,
    pause=Act.OVERWRITE,
    resume=Act.OVERWRITE,
    remove=Act.DELETE,
    attach=Act.GOVERN,
    detach=Act.GOVERN,
)
class Sources:
    """Folders of documents, read into passages, read again when a file changes."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def add(
        self,
        name: str,
        path: Path | str,
        *,
        agents: Sequence[AgentRecord | str] = (),
        include: Sequence[str] = (),
        exclude: Sequence[str] = (),
        audience: str = "owner",
    ) -> DocumentSource:
        """Make a source of a folder; `sync` reads it."""
        session = self._session
        place = await asyncio.to_thread(_folder, Path(path))
        ids = [await session.agent_id(agent) for agent in agents]
        now = session.clock()

        async def work(tx: Connection) -> DocumentSource:
            source = DocumentSource(
                id=new_id("source"),
                name=checked_name(name),
                path=str(place),
                include=tuple(include),
                exclude=tuple(exclude),
                audience=await people.read_audience(tx, session.constellation, audience),
                created_at=now,
            )
            if not await documents.create(tx, session.constellation, source):
                raise Conflict(
                    f"There is a source named {name!r} already. Choose another name, or read it "
                    f'again with "asterism source sync {name}". Nothing was added.'
                )
            for agent_id in ids:
                await documents.attach(tx, source.id, agent_id, now)
            await note(
                tx,
                session,
                "source.added",
                by="api",
                what=name,
                path=source.path,
                agents=ids,
                audience=audience,
            )
            return source

        return await session.database.write(work)

    async def list(self) -> list[SourceState]:
        """Return all sources and how they stand."""

        async def read(tx: Connection) -> list[SourceState]:
            participants = await self._session.participants(tx)
            return [
                SourceState(
                    source,
                    tuple(await documents.agents_of(tx, source.id)),
                    *await documents.counts(tx, source.id),
                )
                for source in await documents.sources(tx, self._session.constellation)
                if participants.can_see(source.audience)
            ]

        return await self._session.database.read(read)

    async def get(self, name: str) -> DocumentSource:
        """Return a source by its name."""

        async def read(tx: Connection) -> DocumentSource:
            participants = await self._session.participants(tx)
            found = await documents.named(tx, self._session.constellation, name)
            if found is None or not participants.can_see(found.audience):
                there = [
                    source.name
                    for source in await documents.sources(tx, self._session.constellation)
                    if participants.can_see(source.audience)
                ]
                raise NotFound(no_such("source", name, there))
            return found

        return await self._session.database.read(read)

    async def documents(
        self, name: str, *, after: str = "", limit: int = 200
    ) -> Sequence[SourceDocument]:
        """Return the documents of a source by path, a page of them."""
        source = await self.get(name)
        return await self._session.database.read(
            lambda tx: documents.documents(tx, source.id, after=after, most=limit)
        )

    async def sync(
        self, name: str, *, progress: Callable[[Progress], None] | None = None
    ) -> SyncResult:
        """Read what is new or has changed in a source; it goes on where it was cut off before."""
        source = await self.get(name)
        if source.paused:
            raise Conflict(
                f"Source {name!r} is paused, so that it is not read. Let it go on with "
                f'"asterism source resume {name}". Nothing was read.'
            )
        folder = Folder(source, self._session.constellation, now=self._session.clock)
        synced = await folder.sync(self._session.database, progress)
        if synced.read:
            told = f"{synced.read} documents"
            await self._session.database.write(
                lambda tx: note(tx, self._session, "source.read", by="api", what=name, read=told)
            )
        if synced.read:
            await self._session.stay_forgotten()
        return synced

    async def pause(self, name: str, *, paused: bool = True) -> None:
        """Let a source rest: what was read can be searched, and nothing is read anew."""
        source = await self.get(name)
        await self._session.database.write(
            lambda tx: documents.set_paused(tx, source, paused=paused)
        )

    async def resume(self, name: str) -> None:
        """Let a source that rested be read again."""
        await self.pause(name, paused=False)

    async def remove(self, name: str) -> None:
        """Take a source away with all that was read from it; the files stay."""
        folder = Folder(await self.get(name), self._session.constellation, now=self._session.clock)
        await folder.remove(self._session.database)
        await self._session.database.write(
            lambda tx: note(tx, self._session, "source.removed", by="api", what=name)
        )

    async def attach(self, name: str, agent: AgentRecord | str) -> None:
        """Let an agent search a source."""
        source, agent_id = await self.get(name), await self._session.agent_id(agent)
        now = self._session.clock()

        async def work(tx: Connection) -> None:
            await documents.attach(tx, source.id, agent_id, now)
            kind = "source.attached"
            await note(tx, self._session, kind, by="api", agent_id=agent_id, what=name)

        await self._session.database.write(work)

    async def detach(self, name: str, agent: AgentRecord | str) -> None:
        """Let an agent search a source no longer."""
        source, agent_id = await self.get(name), await self._session.agent_id(agent)

        async def work(tx: Connection) -> None:
            await documents.detach(tx, source.id, agent_id)
            kind = "source.detached"
            await note(tx, self._session, kind, by="api", agent_id=agent_id, what=name)

        await self._session.database.write(work)
