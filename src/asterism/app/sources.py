"""The verbs about sources: folders of documents that agents can search."""

from __future__ import annotations

import asyncio
import os
import shlex
import tempfile
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Sequence
from pathlib import Path
from typing import cast

from asterism.app.session import Session, checked_name, no_such, note, verbs
from asterism.errors import Conflict, InvalidInput, NotAllowed, NotFound
from asterism.memory import people
from asterism.permissions import Act
from asterism.private import make_directory
from asterism.records import dataclass
from asterism.sources.folder import Folder, Progress, SyncResult, is_inside, kind_of
from asterism.sources.readers import is_known
from asterism.store import documents, groups
from asterism.store.database import Connection
from asterism.types.agents import AgentRecord, new_id
from asterism.types.documents import DocumentSource, SourceDocument
from asterism.types.groups import Role

UPLOADS = "uploads"
"""The directory of files that were put into sources, in the data directory."""
MAX_UPLOAD = 100 << 20
"""Bytes of one file."""
_MAX_NAME = 200


@dataclass(frozen=True, slots=True)
class SourceState:
    """A source and how it stands."""

    source: DocumentSource
    agents: tuple[str, ...]
    """The ids of the agents that can search it."""
    documents: int
    passages: int
    refused: int


def _place(path: Path) -> Path:
    """Return where a source is: a folder, or a file of a kind that is read."""
    try:
        place = path.expanduser().resolve()
        is_folder, is_file = place.is_dir(), place.is_file()
    except (OSError, RuntimeError) as error:
        raise InvalidInput(
            f"{str(path)[:80]!r} cannot be a folder or a file ({type(error).__name__}). "
            "Nothing was added."
        ) from None
    if not is_folder and not is_file:
        raise NotFound(
            f"There is no folder or file {str(place)!r}. Name one that is there. Nothing was added."
        )
    if is_file and not is_known(place):
        raise InvalidInput(
            f"{str(place)!r} is a file of a kind that is not read ({kind_of(place.name)}). Convert "
            "it to text, PDF or an office document. Nothing was added."
        )
    return place


def _check_path_part(name: str, what: str) -> None:
    """Raise unless a name can be that of a file or a directory here, and leads nowhere else."""
    is_plain = name.isprintable() and not any(sign in name for sign in '/\\:*?"<>|')
    if not is_plain or not 0 < len(name.encode()) <= _MAX_NAME or name.startswith("."):
        raise InvalidInput(
            f"{name[:80]!r} is not a valid name of a {what}: it has 1 to {_MAX_NAME} bytes, no "
            "directory, no control characters, and does not begin with a dot. Nothing was stored."
        )


def checked_file_name(name: str) -> str:
    """Return the name of a file that is put into a source; it must not lead elsewhere."""
    _check_path_part(name, "file")
    if not is_known(Path(name)):
        raise InvalidInput(
            f"{name!r} is a file of a kind that is not read ({kind_of(name)}). Convert it to text, "
            "PDF or an office document. Nothing was stored."
        )
    return name


def _parts_of(content: object) -> AsyncIterable[bytes]:
    """Return the content of a file as it comes."""
    if isinstance(content, AsyncIterable):
        return cast("AsyncIterable[bytes]", content)
    if not isinstance(content, bytes):
        raise InvalidInput(
            f"The content of a file is bytes, and not {type(content).__name__}. Nothing was stored."
        )
    whole = content

    async def parts() -> AsyncGenerator[bytes, None]:
        yield whole

    return parts()


async def _store_file(path: Path, content: AsyncIterable[bytes], most: int) -> None:
    """Write a file as it comes; it has its name once it is whole."""
    handle, temporary = tempfile.mkstemp(prefix=".upload-", dir=path.parent)
    size = 0
    try:
        with os.fdopen(handle, "wb") as stream:
            async for part in content:
                size += len(part)
                if size > most:
                    raise InvalidInput(
                        f"The file {path.name!r} has more than {most:,} bytes. Split it, or add "
                        "the folder that it is in as a source. Nothing was stored."
                    )
                await asyncio.to_thread(stream.write, part)
        await asyncio.to_thread(os.replace, temporary, path)
    except BaseException:
        os.unlink(temporary)  # noqa: PTH108 - it takes no time, and must be done when cancelled, too
        raise


@verbs(
    "source",
    add=Act.GOVERN,
    list=Act.READ,
    get=Act.READ,
    documents=Act.READ,
    sync=Act.APPEND,
    upload=Act.GOVERN,
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
        """Make a source of a folder of the machine, or of one file; `sync` reads it.

        Only the owner may: whoever names a path has all of it read that the process may read.
        Nothing in the data directory is read, where keys and the database are.
        """
        if not self._session.is_owner:
            raise NotAllowed(
                "Only the owner may add a folder of the machine as a source. Upload the files into "
                "a source instead, or ask the owner. Nothing was added."
            )
        place = await asyncio.to_thread(_place, Path(path))
        if await asyncio.to_thread(is_inside, place, self._session.data):
            raise InvalidInput(
                f"{str(place)!r} is in the data directory, where keys and the database are, and of "
                "which no source is made. Move the documents elsewhere, or upload them into a "
                "source. Nothing was added."
            )
        return await self._add(name, place, agents, include, exclude, audience)

    async def _add(
        self,
        name: str,
        place: Path,
        agents: Sequence[AgentRecord | str],
        include: Sequence[str],
        exclude: Sequence[str],
        audience: str,
    ) -> DocumentSource:
        session = self._session
        ids = [(await self._reader(agent)).id for agent in agents]
        now = session.clock()

        async def work(tx: Connection) -> DocumentSource:
            source = DocumentSource(
                id=new_id("source"),
                name=checked_name(name, "a source"),
                path=str(place),
                include=tuple(include),
                exclude=tuple(exclude),
                audience=await people.read_audience(tx, audience),
                created_at_ms=now,
            )
            if not await documents.create(tx, source):
                raise Conflict(
                    f"There is a source named {name!r} already. Choose another name, or read it "
                    f'again with "asterism source sync {shlex.quote(name)}". Nothing was added.'
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
            return [
                SourceState(
                    source,
                    tuple(
                        filter(self._session.sees_agent, await documents.agents_of(tx, source.id))
                    ),
                    *await documents.counts(tx, source.id),
                )
                for source in await self._visible(tx)
            ]

        return await self._session.database.read(read)

    async def _visible(self, tx: Connection) -> list[DocumentSource]:
        """Return the sources that the actor may see, of agents that exist for them."""
        session = self._session
        participants = await session.participants(tx)
        return [
            source
            for source in await documents.sources(tx)
            if participants.can_see(source.audience)
            and (
                session.only_agents is None
                or any(map(session.sees_agent, await documents.agents_of(tx, source.id)))
            )
        ]

    async def get(self, name: str) -> DocumentSource:
        """Return a source by its name."""

        async def read(tx: Connection) -> DocumentSource:
            stored = await documents.by_name(tx, name)
            visible = await self._visible(tx)
            if stored is None or stored not in visible:
                raise NotFound(no_such("source", name, [source.name for source in visible]))
            return stored

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
        """Read the new and changed documents of a source; an interrupted run continues."""
        source = await self.get(name)
        if source.paused:
            raise Conflict(
                f"Source {name!r} is paused, so that it is not read. Let it go on with "
                f'"asterism source resume {shlex.quote(name)}". Nothing was read.'
            )
        folder = self._folder(source)
        synced = await folder.sync(self._session.database, progress)
        if synced.read:
            report = f"{synced.read} documents"
            await self._session.database.write(
                lambda tx: note(tx, self._session, "source.read", by="api", what=name, read=report)
            )
        if synced.read:
            await self._session.stay_forgotten()
        return synced

    async def upload(
        self,
        name: str,
        file: str,
        content: bytes | AsyncIterable[bytes],
        *,
        audience: str = "owner",
        most: int = MAX_UPLOAD,
    ) -> SyncResult:
        """Put a file into a source and read it; a source of that name is made if there is none.

        Args:
            name: The source. Files are put only into one that was made so, never into a folder of
                the machine.
            file: The name of the file; one of the same name is replaced.
            content: What is in it, whole or as it comes.
            audience: Who may see a source that is made.
            most: How many bytes it may have.
        """
        file, parts = checked_file_name(file), _parts_of(content)
        # It becomes the name of a directory.
        _check_path_part(checked_name(name, "a source"), "source that files are put into")
        place = self._session.data / UPLOADS / name
        try:
            source = await self.get(name)
        except NotFound:
            await asyncio.to_thread(make_directory, place.parent)
            await asyncio.to_thread(make_directory, place)
            place = await asyncio.to_thread(_place, place)
            source = await self._add(name, place, (), (), (), audience)
        if Path(source.path) != place.resolve():
            raise Conflict(
                f"Source {name!r} is the folder {source.path}, into which nothing is put from "
                "outside. Choose another name. Nothing was stored."
            )
        await _store_file(place / file, parts, most)
        return await self.sync(name)

    def _folder(self, source: DocumentSource) -> Folder:
        """Return what reads a source: in the data directory, its own uploads alone."""
        data, place = self._session.data, Path(source.path)
        is_upload = place.name == source.name and place.parent == (data / UPLOADS).resolve()
        return Folder(source, now=self._session.clock, closed=None if is_upload else data)

    async def pause(self, name: str, *, paused: bool = True) -> None:
        """Pause a source: its documents can still be searched, and no new ones are read."""
        source = await self.get(name)
        await self._session.database.write(
            lambda tx: documents.set_paused(tx, source, paused=paused)
        )

    async def resume(self, name: str) -> None:
        """Let a source that rested be read again."""
        await self.pause(name, paused=False)

    async def remove(self, name: str) -> None:
        """Take a source away with all that was read from it; the files stay."""
        folder = self._folder(await self.get(name))
        await folder.remove(self._session.database)
        await self._session.database.write(
            lambda tx: note(tx, self._session, "source.removed", by="api", what=name)
        )

    async def attach(self, name: str, agent: AgentRecord | str) -> str:
        """Let an agent search a source, or the supervisor of a group; return the agent's name."""
        source, reader = await self.get(name), await self._reader(agent)
        agent_id, now = reader.id, self._session.clock()

        async def work(tx: Connection) -> None:
            await documents.attach(tx, source.id, agent_id, now)
            kind = "source.attached"
            await note(tx, self._session, kind, by="api", agent_id=agent_id, what=name)

        await self._session.database.write(work)
        return reader.name

    async def detach(self, name: str, agent: AgentRecord | str) -> str:
        """Let an agent, or the supervisor of a group, search a source no longer."""
        source, reader = await self.get(name), await self._reader(agent)
        agent_id = reader.id

        async def work(tx: Connection) -> None:
            await documents.detach(tx, source.id, agent_id)
            kind = "source.detached"
            await note(tx, self._session, kind, by="api", agent_id=agent_id, what=name)

        await self._session.database.write(work)
        return reader.name

    async def _reader(self, agent: AgentRecord | str) -> AgentRecord:
        """Return the agent that a source is for: that of a group is its supervisor."""
        group = None
        if isinstance(agent, str):
            group = await self._session.database.read(lambda tx: groups.by_name(tx, agent))
        if group is None:
            return await self._session.agent(agent)
        leading = [member for member in group.members if member.role is Role.SUPERVISOR]
        if not leading:
            members = ", ".join(member.name for member in group.members) or "none"
            raise InvalidInput(
                f"The group {group.name!r} has no supervisor, who would get the source. Name one "
                f"of its members instead ({members}), or make one the supervisor with "
                f'"asterism group add member {shlex.quote(group.name)} AGENT --role supervisor". '
                "Nothing was changed."
            )
        return await self._session.agent(leading[0].agent_id)
