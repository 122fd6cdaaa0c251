"""Taking a text out of the files beside the database: snapshots, tapes, logs, anything.

Packed files are unpacked with the standard library and searched up to a bound. The receipt names
other packed files. Some files, such as PDF documents, have packed parts after a header: these are
searched too, and the receipt names files that only look packed.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import math
import os
import re
import tempfile
import zipfile
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import IO, Any, cast

import orjson

from asterism.errors import StoreError
from asterism.memory.forgetting.blocks import sweep_blocks_of
from asterism.memory.forgetting.redaction import Redactor, same_length
from asterism.memory.forgetting.removal import RowRemover, edit_filter
from asterism.memory.forgetting.rows import Columns, SweepResult, sweep_connection
from asterism.store import search_index
from asterism.store.database import Connection
from asterism.store.forgetting import ForgetRequest, rewrite_file
from asterism.store.sqlite import columns_of
from asterism.types.memory import BACKUP_SUFFIX, CONSTELLATION_DIRECTORIES

MAX_UNPACKED = 1 << 28
"""How many bytes are unpacked of one file."""
_READ_SIZE, _OVERLAP = 1 << 24, 100_000
_HOLDS = "holds it and is packed. Remove it if it may go."
_LOOKS_PACKED = (
    "looks packed or encrypted and could not be looked into. Look yourself whether it holds it."
)
_OLDER_BACKUP = (
    "is a backup from before, and may hold it. A restore into this directory forgets it again. "
    "Remove the backup if it may go, and make a new one."
)
_PIECE = 1 << 16
_NOT_SEARCHED = "is packed and was not looked into ({why}). Look yourself whether it holds it."


class Packing(StrEnum):
    """How a file is packed."""

    GZIP = "gzip"
    BZIP2 = "bzip2"
    XZ = "xz"
    ZIP = "zip"
    OTHER = "of a kind that is not known here"


_STARTS = {
    b"\x1f\x8b": Packing.GZIP,
    b"BZh": Packing.BZIP2,
    b"\xfd7zXZ\0": Packing.XZ,
    b"PK\x03\x04": Packing.ZIP,
    b"PK\x05\x06": Packing.ZIP,
    b"7z\xbc\xaf\x27\x1c": Packing.OTHER,
    b"\x28\xb5\x2f\xfd": Packing.OTHER,  # zstd
    b"\x04\x22\x4d\x18": Packing.OTHER,  # lz4
    b"Rar!\x1a\x07": Packing.OTHER,
}
_OTHER_ENDINGS = (".zst", ".tzst", ".7z", ".rar", ".lz4", ".lzma", ".br", ".lz", ".z")
_OPEN: dict[Packing, Any] = {
    Packing.GZIP: gzip.open,
    Packing.BZIP2: bz2.open,
    Packing.XZ: lzma.open,
}
_DAMAGED = (
    *(OSError, EOFError, zlib.error, lzma.LZMAError, zipfile.BadZipFile),
    # Encrypted, or packed in a way that zipfile does not know.
    *(RuntimeError, NotImplementedError),
)


class _NotSearched(Exception):
    """Something in a file could not be looked into."""


def packing_of(start: bytes, ending: str) -> Packing | None:
    """Return how a file is packed, by its first bytes or its ending; None if it is not."""
    for known, packing in _STARTS.items():
        if start.startswith(known):
            return packing
    return Packing.OTHER if ending.lower() in _OTHER_ENDINGS else None


def search_packed(path: Path, packing: Packing, redactor: Redactor) -> str:
    """Return a finding on a packed file; empty: the text is not in it."""
    try:
        if packing is Packing.OTHER:
            raise _NotSearched(packing.value)
        contains = (
            _in_zip(path, redactor)
            if packing is Packing.ZIP
            else _in_packed(_OPEN[packing](path), redactor, MAX_UNPACKED)[0]
        )
    except _NotSearched as error:
        return _NOT_SEARCHED.format(why=error)
    except _DAMAGED as error:
        return _NOT_SEARCHED.format(why=f"it cannot be unpacked: {type(error).__name__}")
    return _HOLDS if contains else ""


_STREAM = re.compile(
    rb"\x1f\x8b\x08|BZh[1-9]1AY&SY|\xfd7zXZ\x00|PK\x03\x04|\x28\xb5\x2f\xfd|7z\xbc\xaf\x27\x1c"
    rb"|[\x08\x18\x28\x38\x48\x58\x68\x78][\x01\x5e\x9c\xda]"
)
"""How something packed may begin in the middle of a file; the last of these is zlib's."""
_UNPACKERS: dict[bytes, Callable[[], Any]] = {
    b"\x1f\x8b": lambda: zlib.decompressobj(31),
    b"BZ": bz2.BZ2Decompressor,
    b"\xfd7": lzma.LZMADecompressor,
}
_NEVER_UNPACKED = (b"PK", b"\x28\xb5", b"7z")
_MEDIA = (b"\x89PNG", b"\xff\xd8\xff", b"GIF8", b"OggS", b"ID3", b"fLaC", b"wOF", b"\x1aE\xdf\xa3")
"""Pictures, sounds and fonts are dense by nature, and hold no text that anybody packed."""
_MEDIA_LATER = (b"ftyp", b"WEBP", b"WAVE", b"GGUF")
_DENSE = 0.94
_MIN_DENSE_SIZE, _SAMPLE = 96, 1 << 16
_MIN_UNPACKED = 16
"""Shorter results are not packed data: two bytes in 16,000 look like a header."""


def search_binary(body: bytes, redactor: Redactor) -> str:
    """Return a finding on bytes that may be packed or contain packed parts; else ""."""
    room, unsure, looked = MAX_UNPACKED, False, False
    end = 0
    for match in _STREAM.finditer(body):
        if match.start() < end:
            continue  # in the middle of what was looked into
        if match[0].startswith(_NEVER_UNPACKED):
            unsure = True
            continue
        unpacked, used, whole = _unpacked(body[match.start() :], match[0][:2], room)
        if len(unpacked) >= _MIN_UNPACKED or (whole and unpacked):
            if redactor.in_bytes(unpacked):
                return _HOLDS
            unsure = unsure or packing_of(unpacked[:16], "") is not None
            room -= len(unpacked)
            looked, end = True, match.start() + used
            if room <= 0:
                unsure = True
                break
    if unsure:
        return _NOT_SEARCHED.format(why="there is something packed in it")
    return "" if looked or not _is_dense(body) else _LOOKS_PACKED


def _unpacked(body: bytes, start: bytes, room: int) -> tuple[bytes, int, bool]:
    """Return what a stream unpacks to, how many bytes it takes, and whether it came to its end."""
    unpacker: Any = _UNPACKERS.get(start, zlib.decompressobj)()
    parts: list[bytes] = []
    at = 0
    try:
        for at in range(0, len(body), _PIECE):
            piece = body[at : at + _PIECE]
            while piece and room > 0 and not unpacker.eof:
                parts.append(unpacker.decompress(piece, room))
                room -= len(parts[-1])
                piece = getattr(unpacker, "unconsumed_tail", b"")
            if room <= 0 or unpacker.eof:
                break
    except (OSError, EOFError, ValueError, zlib.error, lzma.LZMAError):
        return b"".join(parts), at, False
    used = min(len(body), at + _PIECE) - len(unpacker.unused_data)
    return b"".join(parts), used, unpacker.eof


def _is_dense(body: bytes) -> bool:
    """Tell whether bytes are as disordered as what is packed or encrypted is."""
    sample = body[:_SAMPLE]
    if len(sample) < _MIN_DENSE_SIZE or sample.startswith(_MEDIA):
        return False
    if any(kind in sample[:16] for kind in _MEDIA_LATER):
        return False
    shares = (count / len(sample) for count in Counter(sample).values())
    entropy = -sum(share * math.log2(share) for share in shares)
    return entropy >= _DENSE * min(8.0, math.log2(len(sample)))


def _in_zip(path: Path, redactor: Redactor) -> bool:
    room, why = MAX_UNPACKED, ""
    with zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            if redactor.spans(member.filename):
                return True
            try:
                contains, size = _in_packed(archive.open(member), redactor, room)
            except _NotSearched as error:
                why = str(error)  # another member may hold it for certain
                continue
            if contains:
                return True
            room -= size
    if why:
        raise _NotSearched(why)
    return False


def _in_packed(file: IO[bytes], redactor: Redactor, room: int) -> tuple[bool, int]:
    """Tell whether the unpacked bytes contain the text, and how many bytes there are."""
    with file:
        counted = _BoundedStream(file, room)
        contains = search_stream(counted, redactor)
    if not contains and packing_of(counted.start, "") is not None:
        raise _NotSearched("there is something packed in it")
    return contains, room - counted.room


class _BoundedStream:
    """A stream that is read up to a bound."""

    def __init__(self, file: IO[bytes], room: int) -> None:
        self._file = file
        self.room = room
        self.start = b""

    def read(self, size: int) -> bytes:
        """Read on; raise if there is more than there is room for."""
        part = self._file.read(size)
        self.start = self.start or part[:16]
        self.room -= len(part)
        if self.room < 0:
            raise _NotSearched(f"it unpacks to more than {MAX_UNPACKED >> 20} MB")
        return part


def search_stream(file: IO[bytes] | _BoundedStream, redactor: Redactor) -> bool:
    """Tell whether a stream of bytes holds it, however long it is."""
    behind = b""
    while part := file.read(_READ_SIZE):
        if redactor.in_bytes(behind + part):
            return True
        behind = part[-_OVERLAP:]
    return False


# -- every file ------------------------------------------------------------------------------------

_SQLITE = b"SQLite format 3\0"
_OPEN_FILES = re.compile(r"asterism\.(db(-wal|-shm|-journal)?|lock)|tombstones\.key")
_LOG = re.compile(r".*\.log(\.\d+)?")
_OWNER_SUFFIXES = (".toml", ".env", ".py", ".yaml", ".yml", ".ini")
"""Files that the owner writes: matches are reported, not changed."""
_MAX_BYTES = 1 << 28
_EVENT = re.compile(r"data: ?(\{.*\})")


def sweep_files(
    data: Path,
    request: ForgetRequest,
    redactor: Redactor,
    ids: dict[str, tuple[str, ...]] | None = None,
) -> SweepResult:
    """Take it out of every file of a data directory but the open database."""
    result = SweepResult()
    for path in _files(data):
        name = path.relative_to(data).as_posix()
        if redactor.spans(name):
            result.left.append(f"The name of a file in {data} holds it. Rename or remove the file.")
        before = redactor.count
        try:
            result.add(_sweep_file(path, name, request, redactor, ids or {}))
        except (OSError, StoreError) as error:
            result.left.append(f"{_safe_name(name, redactor)} could not be looked into ({error}).")
            continue
        if redactor.count > before:
            result.places[_safe_name(name, redactor)] += redactor.count - before
    return result


def _safe_name(name: str, redactor: Redactor) -> str:
    before = redactor.count
    safe_name = redactor.text(name)
    redactor.count = before
    return safe_name


def _files(data: Path) -> Iterator[Path]:
    for directory, below, names in os.walk(data):
        if Path(directory) == data and CONSTELLATION_DIRECTORIES in below:
            below.remove(CONSTELLATION_DIRECTORIES)  # of others, who forget for themselves
        for name in sorted(names):
            path = Path(directory) / name
            if path.is_file() and not path.is_symlink():
                if path.parent == data and _OPEN_FILES.fullmatch(name):
                    continue
                yield path


def _sweep_file(
    path: Path,
    name: str,
    request: ForgetRequest,
    redactor: Redactor,
    ids: dict[str, tuple[str, ...]],
) -> SweepResult:
    result = SweepResult()
    with path.open("rb") as file:
        start = file.read(len(_SQLITE))
    if start == _SQLITE:
        work = partial(_sweep_database, request, redactor, ids)
        swept = rewrite_file(path, request.constellation, work)
        result.left += swept.left
        # Rows that went by their ids; what was taken out of others the redactor counts.
        result.places[_safe_name(name, redactor)] += sum(
            count for place, count in swept.places.items() if "." not in place
        )
        return result
    if finding := _search_container(path, start, redactor):
        result.left.append(f"{_safe_name(name, redactor)} {finding}")
        return result
    if packing_of(start, path.suffix):
        return result
    if path.stat().st_size > _MAX_BYTES:
        if _is_in_large_file(path, redactor):
            result.left.append(
                f"{_safe_name(name, redactor)} holds it and is too large to be changed."
            )
        return result
    body = path.read_bytes()
    try:
        text = body.decode()
    except UnicodeDecodeError:
        not_text = "holds it and is not text. Remove it if it may go."
        if finding := not_text if redactor.in_bytes(body) else search_binary(body, redactor):
            result.left.append(f"{_safe_name(name, redactor)} {finding}")
        return result
    if path.suffix in _OWNER_SUFFIXES:
        if redactor.spans(text):
            result.left.append(f"{_safe_name(name, redactor)} holds it. It is yours to edit.")
    elif _LOG.fullmatch(path.name):
        _cover(path, text, redactor)
    else:
        changed = redact_file_text(text, redactor)
        if changed is not text:
            _replace(path, changed)
    return result


def _search_container(path: Path, start: bytes, redactor: Redactor) -> str:
    """Return a finding on a backup that is not searched, or on a packed file; else ""."""
    if path.suffix == BACKUP_SUFFIX and not _can_search_backup(path, start):
        return _OLDER_BACKUP
    packing = packing_of(start, path.suffix)
    return search_packed(path, packing, redactor) if packing else ""


def _can_search_backup(path: Path, start: bytes) -> bool:
    """Tell whether all of a backup can be searched: it is neither encrypted nor too large."""
    return start.startswith(b"manifest.json") and path.stat().st_size <= MAX_UNPACKED >> 3


async def _sweep_database(
    request: ForgetRequest,
    redactor: Redactor,
    ids: dict[str, tuple[str, ...]],
    tx: Connection,
) -> SweepResult:
    """Forget the same in another database file."""
    present: Columns = await columns_of(tx)
    result = SweepResult()
    if "segments" in present:
        await search_index.drop_everything(tx)
    if "entries" in present:
        remover = RowRemover(tx, present)
        chosen = edit_filter(await remover.turns_of(ids), ids.get("persons", ()))
        if "blocks" in present:
            result.add(await sweep_blocks_of(tx, redactor, chosen))
        await remover.forget(ids, request)
        result.add(remover.result)
    result.add(await sweep_connection(tx, present, request, redactor))
    return result


def _is_in_large_file(path: Path, redactor: Redactor) -> bool:
    with path.open("rb") as file:
        return search_stream(file, redactor)


# -- text --------------------------------------------------------------------------------------


def redact_file_text(text: str, redactor: Redactor) -> str:
    """Return a file's text without it, line by line where its lines are JSON."""
    if not text.lstrip().startswith(("{", "[")):
        return redactor.text(text)
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError:
        pass
    else:
        return redactor.json(text)
    lines = [_redacted_line(line, redactor) for line in text.splitlines(keepends=True)]
    changed = redactor.text("".join(line for line in lines if line is not None))
    return text if changed == text else changed


def _redacted_line(line: str, redactor: Redactor) -> str | None:
    """Return a line of JSON without it; None: the line goes, since it is spread over it."""
    body = line.rstrip("\r\n")
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError:
        return redactor.text(line)
    if isinstance(value, dict) and "chunks" in value:
        tape = cast("dict[str, Any]", value)
        if any(redactor.spans(text) for text in _streamed(tape["chunks"])):
            redactor.count += 1
            return None
    changed = redactor.value(value)
    return line if changed is value else orjson.dumps(changed).decode() + line[len(body) :]


def _streamed(chunks: Any) -> list[str]:
    """Return what a recorded stream says when its pieces are put together, by where they are."""
    try:
        whole = "".join(chunk for _, chunk in chunks if isinstance(chunk, str))
    except (TypeError, ValueError):
        return []
    texts: defaultdict[str, list[str]] = defaultdict(list)
    for event in _EVENT.findall(whole):
        try:
            _collect(orjson.loads(event), "", texts)
        except orjson.JSONDecodeError:
            continue
    return ["".join(parts) for parts in texts.values()]


def _collect(value: Any, path: str, texts: defaultdict[str, list[str]]) -> None:
    if isinstance(value, str):
        texts[path].append(value)
    elif isinstance(value, list):
        for item in cast("list[Any]", value):
            _collect(item, path, texts)
    elif isinstance(value, dict):
        for name, item in cast("dict[str, Any]", value).items():
            _collect(item, f"{path}.{name}", texts)


def _cover(path: Path, text: str, redactor: Redactor) -> None:
    """Write over it in place: a log is open, and goes on growing."""
    with path.open("r+b") as file:
        for start, end in redactor.spans(text):
            redactor.count += 1
            file.seek(len(text[:start].encode()))
            size = len(text[start:end].encode())
            file.write(same_length(text[start:end]).encode().ljust(size, b"*")[:size])
        file.flush()
        os.fsync(file.fileno())


def _replace(path: Path, text: str) -> None:
    """Replace a file, completely or not at all."""
    fd, name = tempfile.mkstemp(dir=path.parent, prefix=".forgetting-")
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(text.encode())
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(path.stat().st_mode & 0o777)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
