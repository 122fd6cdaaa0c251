"""Folders of documents: what changed is read, what is gone is removed, what was begun goes on."""

from __future__ import annotations

import asyncio
import hashlib
import os
import stat
import threading
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterator
from dataclasses import field, replace
from fnmatch import fnmatchcase
from itertools import islice
from pathlib import Path

from asterism.errors import Conflict, InvalidInput, NotFound
from asterism.memory.gate import passages as gate
from asterism.memory.gate.passages import NewPassage
from asterism.memory.gate.writer import Writer
from asterism.permissions import Actor
from asterism.records import dataclass
from asterism.sources.pieces import DocumentPiece, DocumentRefused, open_regular
from asterism.sources.readers import is_known, read
from asterism.store import documents
from asterism.store.database import Connection, Database
from asterism.types.agents import Trust, now_ms
from asterism.types.documents import DocumentSource, DocumentState, SourceDocument
from asterism.types.memory import Origin, OriginKind, Source

BATCH = 200
"""Passages that are stored in one transaction."""
_PAGE = 200
"""Files that are looked up together."""
_CLOCK_TICK = 2_000
"""Milliseconds in which a file can change again without a newer time."""
_TRIES = 3
_MAX_PROBLEMS = 1_000
MAX_GLOBS = 100
MAX_GLOB = 200


# -- walking ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FolderFile:
    """A file in a folder."""

    path: str
    """Within the folder, with `/` between folders."""
    size: int
    modified: int


class Walk:
    """The files of a source.

    Links are not followed: what they point to inside the folder is found by its own name, and what
    they point to outside does not belong to it. A directory that is closed is not read, whichever
    way a source leads there.
    """

    def __init__(self, source: DocumentSource, closed: Path | None = None) -> None:
        check_globs((*source.include, *source.exclude))
        self._source = source
        self._closed = closed
        self.root = Path(os.path.realpath(Path(source.path).expanduser()))
        self._only = ""
        """The one file of a source that is no folder."""
        if self.root.is_file():
            self.root, self._only = self.root.parent, self.root.name
        self.unread: Counter[str] = Counter()
        """Files of kinds that are not read, by their suffixes."""
        self.undecodable: list[str] = []
        """Files whose names are not text, which no store keeps."""
        self.unreadable: list[str] = []
        """Folders that could not be looked into."""

    def check(self) -> None:
        """Raise `NotFound` if the folder is not there; its documents may only be out of reach."""
        if not self._only and not self.root.is_dir():
            raise NotFound(
                f"Source {self._source.name!r} reads {self._source.path!r}, which is not there. "
                "Mount or move it back, or remove the source. Nothing was changed."
            )
        if self._closed is not None and is_inside(self.root / self._only, self._closed):
            raise Conflict(
                f"Source {self._source.name!r} reads {self._source.path!r}, which is in the data "
                "directory, where keys and the database are. Remove the source, move the documents "
                "elsewhere and add them there. Nothing was read."
            )

    def files(self) -> Iterator[FolderFile]:
        """Yield the documents, folder by folder, in the order of their names."""
        self.undecodable, self.unreadable = [], []
        self.unread.clear()
        if self._only:
            file = self.look(self._only)
            yield from [file] if file is not None else []
            return
        waiting = [""]
        while waiting:
            folder = waiting.pop()
            try:
                with os.scandir(self.root / folder) as listing:
                    entries = sorted(listing, key=lambda entry: entry.name)
            except OSError:
                self.unreadable.append(folder or ".")
                continue
            inner: list[str] = []
            for entry in entries:
                path = f"{folder}/{entry.name}" if folder else entry.name
                if entry.name.startswith(".") or entry.is_symlink():
                    continue
                if entry.is_dir(follow_symlinks=False):
                    if self._closed is None or not is_same(self.root / path, self._closed):
                        inner.append(path)
                elif file := self._file(entry, path):
                    yield file
            waiting += reversed(inner)

    def _file(self, entry: os.DirEntry[str], path: str) -> FolderFile | None:
        wanted = self.wants(path)
        if not wanted and (self._source.include or self._is_excluded(path)):
            return None
        try:
            status = entry.stat(follow_symlinks=False)
        except OSError:
            return None
        if not stat.S_ISREG(status.st_mode):
            return None
        if not wanted:
            self.unread[kind_of(path)] += 1
            return None
        if not _is_text(path):
            self.undecodable.append(path.encode(errors="replace").decode())
            return None
        return FolderFile(path, status.st_size, status.st_mtime_ns // 1_000_000)

    def look(self, path: str) -> FolderFile | None:
        """Return a document as it is now, or None if it is gone; raise `OSError` if unknown."""
        place = self.root / path
        hidden = any(part.startswith(".") for part in path.split("/")) and not self._only
        if hidden or not self.wants(path) or os.path.realpath(place) != str(place):
            return None
        if self._closed is not None and is_inside(place, self._closed):
            return None
        try:
            status = place.lstat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        if not stat.S_ISREG(status.st_mode):
            return None
        return FolderFile(path, status.st_size, status.st_mtime_ns // 1_000_000)

    def wants(self, path: str) -> bool:
        """Tell whether a file belongs to the source, by its path."""
        if self._only:
            return path == self._only
        if self._is_excluded(path):
            return False
        if self._source.include:
            return any(glob_matches(glob, path) for glob in self._source.include)
        return is_known(Path(path))

    def _is_excluded(self, path: str) -> bool:
        return any(glob_matches(glob, path) for glob in self._source.exclude)


def is_same(place: Path, directory: Path) -> bool:
    """Tell whether a path leads to a directory, whatever it is called on the way."""
    try:
        return place.samefile(directory)
    except OSError:
        return False


def is_inside(place: Path, directory: Path) -> bool:
    """Tell whether a path leads to a directory or into it."""
    return any(is_same(one, directory) for one in (place, *place.parents))


def kind_of(path: str) -> str:
    """Return the kind of a file, by its name: its suffix, such as `.jpg`."""
    return Path(path).suffix.lower() or "without suffix"


def _is_text(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


def check_globs(globs: tuple[str, ...]) -> None:
    """Raise `InvalidInput` if what a source includes or leaves out cannot be meant."""
    if len(globs) > MAX_GLOBS:
        raise InvalidInput(
            f"{len(globs)} globs are too many for a source; {MAX_GLOBS} is the most. "
            "Nothing was changed."
        )
    for glob in globs:
        if not glob.strip() or len(glob) > MAX_GLOB or glob.startswith("/"):
            raise InvalidInput(
                f"{glob[:60]!r} is not a valid glob within a folder. Write one such as "
                f"notes/**/*.md, with at most {MAX_GLOB} characters. Nothing was changed."
            )


def glob_matches(glob: str, path: str) -> bool:
    """Tell whether a path fits a glob; `**` is any number of folders.

    A glob without a slash fits a name in any folder, one that ends with a slash all that is inside.
    """
    if glob.endswith("/"):
        glob += "**"
    if "/" not in glob:
        return fnmatchcase(path.rpartition("/")[2], glob)
    wanted, parts = glob.split("/"), path.split("/")
    # fits[i]: whether the globs so far can stand for the first i parts.
    fits = [True] + [False] * len(parts)
    for pattern in wanted:
        if pattern == "**":
            first = fits.index(True) if True in fits else len(fits)
            fits = [index >= first for index in range(len(fits))]
        else:
            fits = [False] + [
                fits[index] and fnmatchcase(part, pattern) for index, part in enumerate(parts)
            ]
    return fits[-1]


# -- reading ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a sync is."""

    documents: int
    documents_total: int
    bytes: int
    bytes_total: int
    passages: int
    """Stored in this sync."""
    path: str
    """What is being read."""


@dataclass(slots=True)
class SyncResult:
    """What a sync has done."""

    read: int = 0
    unchanged: int = 0
    removed: int = 0
    refused: int = 0
    passages: int = 0
    problems: list[str] = field(default_factory=list[str])
    """A sentence for each document that could not be read, the first ones."""
    unread: dict[str, int] = field(default_factory=dict[str, int])
    """How many files there are of kinds that are not read, by suffix, the most frequent first."""

    def problem(self, sentence: str) -> None:
        """Note what went wrong."""
        self.refused += 1
        if len(self.problems) < _MAX_PROBLEMS:
            self.problems.append(sentence)


class _Changed(Exception):
    """A file was written to while it was read."""


class _Reading:
    """The pieces of one document, taken in threads, one batch after the other."""

    def __init__(self, path: Path) -> None:
        self._pieces: Generator[DocumentPiece, None, None] = read(path)
        self._busy = threading.Lock()
        self._closed = False

    def take(self, most: int) -> list[DocumentPiece]:
        """Return the next pieces; fewer than asked for at the end."""
        with self._busy:
            return list(islice(self._until_closed(), most))

    def skip(self, count: int) -> DocumentPiece | None:
        """Pass over pieces; return the last one of them."""
        with self._busy:
            last = deque(islice(self._until_closed(), count), maxlen=1)
        return last[0] if last else None

    def _until_closed(self) -> Iterator[DocumentPiece]:
        for piece in self._pieces:
            yield piece
            if self._closed:
                return

    def close(self) -> None:
        """Let go of the file, as soon as no thread is at it any more."""
        self._closed = True
        with self._busy:
            self._pieces.close()


class Folder:
    """A source that reads the files below a folder."""

    def __init__(
        self,
        source: DocumentSource,
        *,
        now: Callable[[], int] = now_ms,
        batch: int = BATCH,
        closed: Path | None = None,
    ) -> None:
        """Make it; nothing in the directory `closed` is read."""
        self.source = source
        self._now = now
        self._batch = batch
        self._walk = Walk(source, closed)

    async def sync(
        self, database: Database, progress: Callable[[Progress], None] | None = None
    ) -> SyncResult:
        """Make the archive say what the files say; go on where a sync before this one ended.

        Raises `NotFound` if the folder is not there and `Conflict` if another sync is under way;
        a document that cannot be read is noted, and the others go on.
        """
        return await _Sync(self, database, progress or (lambda _: None)).run()

    async def remove(self, database: Database) -> None:
        """Remove the source with all its passages; if it was cut off, removing again goes on."""
        await database.write(lambda tx: documents.detach_all(tx, self.source.id))
        while page := await database.read(
            lambda tx: documents.documents(tx, self.source.id, most=_PAGE)
        ):
            for document in page:
                await database.write(lambda tx, path=document.path: self.drop(tx, path))
        await database.write(lambda tx: documents.remove(tx, self.source.id))

    async def drop(self, tx: Connection, path: str) -> None:
        """Remove a document and its passages."""
        await gate.delete_document(tx, self.writer(), self.source.id, path)
        await documents.drop(tx, self.source.id, path)

    @property
    def walk(self) -> Walk:
        """The files of the folder."""
        return self._walk

    @property
    def batch(self) -> int:
        """How many passages are stored in one transaction."""
        return self._batch

    def now(self) -> int:
        """Return the time."""
        return self._now()

    def writer(self) -> Writer:
        """Return who writes what documents say: a rule that the owner has set."""
        origin = Origin(OriginKind.DOCUMENT, self.source.name)
        return Writer(
            actor=Actor("system", self.source.id, f"source {self.source.name}", Trust.DOCUMENT),
            source=Source((origin,), self.source.audience, Trust.DOCUMENT),
            now=self._now(),
            reason=f"sync of source {self.source.name}",
        )

    def passage(self, path: str, place: int, piece: DocumentPiece) -> NewPassage:
        """Return a piece of a document as it is stored."""
        origin = Origin(OriginKind.DOCUMENT, f"{self.source.name}/{path}", piece.place)
        return NewPassage(
            piece.text,
            Source((origin,), self.source.audience, Trust.DOCUMENT),
            document=path,
            place=place,
            staged=True,
        )


class _Sync:
    """One sync under way."""

    def __init__(
        self, folder: Folder, database: Database, progress: Callable[[Progress], None]
    ) -> None:
        self._folder = folder
        self._walk = folder.walk
        self._source = folder.source
        self._database = database
        self._progress = progress
        self._done = SyncResult()
        self._count = 0
        self._bytes = 0
        self._totals = (0, 0)

    async def run(self) -> SyncResult:
        """Look at every file, then at every document whose file may be gone."""
        await asyncio.to_thread(self._walk.check)
        self._totals = await asyncio.to_thread(self._measure)
        files = self._walk.files()
        while some := await asyncio.to_thread(lambda: list(islice(files, _PAGE))):
            paths = [file.path for file in some]
            known = await self._database.read(
                lambda tx, paths=paths: documents.those(tx, self._source.id, paths)
            )
            for file in some:
                self._report(file.path)
                await self._sync_file(file, known.get(file.path))
                self._count += 1
                self._bytes += file.size
        self._report("")
        await self._remove_vanished()
        for name in self._walk.undecodable:
            self._done.problem(f"{name!r} has a name that is not text; rename it to have it read.")
        for name in self._walk.unreadable:
            self._done.problem(f"The folder {name!r} cannot be looked into; check its permissions.")
        now = self._folder.now()
        unread = dict(sorted(self._walk.unread.items(), key=lambda item: (-item[1], item[0])))
        await self._database.write(
            lambda tx: documents.mark_synced(tx, self._source.id, now, unread)
        )
        self._done.unread = unread
        return self._done

    def _measure(self) -> tuple[int, int]:
        count = size = 0
        for file in self._walk.files():
            count, size = count + 1, size + file.size
        return count, size

    def _report(self, path: str, within: int = 0) -> None:
        total, size = self._totals
        self._progress(
            Progress(
                self._count,
                max(total, self._count),
                self._bytes + within,
                max(size, self._bytes + within),
                self._done.passages,
                path,
            )
        )

    # -- one document ----------------------------------------------------------------------------

    async def _sync_file(self, file: FolderFile, known: SourceDocument | None) -> None:
        settled = known is not None and known.state is not DocumentState.READING and known.digest
        if settled and known and (known.size, known.modified) == (file.size, file.modified):
            self._done.unchanged += 1
            return
        for _ in range(_TRIES):
            try:
                await self._read_if_changed(file, known)
                return
            except _Changed:
                looked = await asyncio.to_thread(self._walk.look, file.path)
                if looked is None:
                    return  # It is gone, and removed with the others that are.
                file, known = looked, None
        self._done.problem(
            f"{file.path!r} keeps changing while it is read. The next sync will read it."
        )

    async def _read_if_changed(self, file: FolderFile, known: SourceDocument | None) -> None:
        path = self._walk.root / file.path
        fresh = self._folder.now() - file.modified < _CLOCK_TICK
        document = SourceDocument(
            self._source.id,
            file.path,
            "",
            file.size,
            0 if fresh else file.modified,
            DocumentState.READING,
        )
        try:
            document = replace(document, digest=await asyncio.to_thread(_digest, path))
            if known is not None and known.digest == document.digest:
                if known.state is not DocumentState.READING:
                    touched = replace(known, size=document.size, modified=document.modified)
                    await self._database.write(lambda tx: documents.put(tx, touched))
                    self._done.unchanged += 1
                    return
                document = replace(document, passages=known.passages)
            await self._read(path, file, document)
        except DocumentRefused as error:
            await self._refuse(document, error)

    async def _read(self, path: Path, file: FolderFile, document: SourceDocument) -> None:
        reading = _Reading(path)
        try:
            if document.passages and not await self._can_resume(reading, document):
                await asyncio.to_thread(reading.close)
                reading, document = _Reading(path), replace(document, passages=0)
            if not document.passages:
                await self._database.write(lambda tx: self._begin(tx, document))
            await self._store(reading, file, document)
        finally:
            await asyncio.to_thread(reading.close)

    async def _can_resume(self, reading: _Reading, document: SourceDocument) -> bool:
        """Pass over what is stored; False if it was not cut in the way it is cut now."""
        last = await asyncio.to_thread(reading.skip, document.passages)
        stored = await self._database.read(
            lambda tx: documents.staged_text(
                tx, self._source.id, document.path, document.passages - 1
            )
        )
        return last is not None and stored == last.text.strip()

    async def _begin(self, tx: Connection, document: SourceDocument) -> None:
        await gate.discard_document(tx, self._folder.writer(), self._source.id, document.path)
        await documents.put(tx, document)

    async def _store(self, reading: _Reading, file: FolderFile, document: SourceDocument) -> None:
        """Store a document batch by batch; those who search see it when it is complete."""
        within = 0
        while rows := await asyncio.to_thread(self._take, reading, document):
            await self._database.write(
                lambda tx, rows=rows, document=document: self._add(tx, document, rows)
            )
            document = replace(document, passages=document.passages + len(rows))
            self._done.passages += len(rows)
            within += sum(len(row.text) for row in rows)
            self._report(document.path, min(within, file.size))
        if await asyncio.to_thread(self._walk.look, file.path) != file:
            raise _Changed
        await self._database.write(lambda tx: self._publish(tx, document))
        self._done.read += 1

    def _take(self, reading: _Reading, document: SourceDocument) -> list[NewPassage]:
        """Return the next batch, ready to be stored."""
        pieces = reading.take(self._folder.batch)
        return gate.prepare_passages(
            [
                self._folder.passage(document.path, place, piece)
                for place, piece in enumerate(pieces, document.passages)
            ]
        )

    async def _add(self, tx: Connection, document: SourceDocument, rows: list[NewPassage]) -> None:
        if not await documents.advance(tx, document, len(rows)):
            raise self._conflict(document)
        await gate.insert_many(tx, self._folder.writer(), self._source.id, rows)

    async def _publish(self, tx: Connection, document: SourceDocument) -> None:
        if not await documents.advance(tx, document, 0):
            raise self._conflict(document)
        writer = self._folder.writer()
        await gate.publish_document(tx, writer, self._source.id, document.path)
        read_at = replace(document, state=DocumentState.READ, read_at_ms=writer.now)
        await documents.put(tx, read_at)

    def _conflict(self, document: SourceDocument) -> Conflict:
        return Conflict(
            f"Another sync of source {self._source.name!r} is reading {document.path!r}. Let it "
            "finish, then sync again if need be. What was stored stays."
        )

    async def _refuse(self, document: SourceDocument, error: DocumentRefused) -> None:
        """Store nothing of a document but why."""
        refused = replace(
            document,
            digest="" if error.temporary else document.digest,
            state=DocumentState.REFUSED,
            passages=0,
            error=error.message,
            read_at_ms=self._folder.now(),
        )

        async def work(tx: Connection) -> None:
            await gate.delete_document(tx, self._folder.writer(), self._source.id, document.path)
            await documents.put(tx, refused)

        await self._database.write(work)
        self._done.problem(error.message)

    # -- what is gone ----------------------------------------------------------------------------

    async def _remove_vanished(self) -> None:
        after = ""
        while known := await self._database.read(
            lambda tx, after=after: documents.documents(
                tx, self._source.id, after=after, most=_PAGE
            )
        ):
            paths = [document.path for document in known]
            for path in await asyncio.to_thread(self._gone, paths):
                await self._database.write(lambda tx, path=path: self._folder.drop(tx, path))
                self._done.removed += 1
            after = paths[-1]

    def _gone(self, paths: list[str]) -> list[str]:
        gone: list[str] = []
        for path in paths:
            try:
                file = self._walk.look(path)
            except OSError:
                continue  # Out of reach is not gone.
            if file is None:
                gone.append(path)
        return gone


def _digest(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with open_regular(path) as file:
        digest = hashlib.sha256()
        while chunk := file.read(1 << 20):
            digest.update(chunk)
        return digest.hexdigest()
