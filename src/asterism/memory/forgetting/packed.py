"""Looking into packed files: what the standard library unpacks, up to a bound; others are named.

Some files hold something packed behind a beginning of their own, such as PDF documents. That is
looked into, too; a file that only looks packed is named.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import math
import re
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import IO, Any

from asterism.memory.forgetting.redaction import Redactor

MAX_UNPACKED = 1 << 28
"""How many bytes are unpacked of one file."""
_PART, _OVERLAP = 1 << 24, 100_000
_HOLDS = "holds it and is packed. Remove it if it may go."
_LOOKS_PACKED = (
    "looks packed or encrypted and could not be looked into. Look yourself whether it holds it."
)
_PIECE = 1 << 16
_NOT_LOOKED_INTO = "is packed and was not looked into ({why}). Look yourself whether it holds it."


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


class _NotLookedInto(Exception):
    """Something in a file could not be looked into."""


def packing_of(start: bytes, ending: str) -> Packing | None:
    """Return how a file is packed, by its first bytes or its ending; None if it is not."""
    for known, packing in _STARTS.items():
        if start.startswith(known):
            return packing
    return Packing.OTHER if ending.lower() in _OTHER_ENDINGS else None


def look_into(path: Path, packing: Packing, redactor: Redactor) -> str:
    """Return what is to be said of a packed file; empty: it does not hold what is looked for."""
    try:
        if packing is Packing.OTHER:
            raise _NotLookedInto(packing.value)
        held = (
            _in_zip(path, redactor)
            if packing is Packing.ZIP
            else _in_packed(_OPEN[packing](path), redactor, MAX_UNPACKED)[0]
        )
    except _NotLookedInto as error:
        return _NOT_LOOKED_INTO.format(why=error)
    except _DAMAGED as error:
        return _NOT_LOOKED_INTO.format(why=f"it cannot be unpacked: {type(error).__name__}")
    return _HOLDS if held else ""


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
_NAMED_ANYHOW = (b"PK", b"\x28\xb5", b"7z")
_MEDIA = (b"\x89PNG", b"\xff\xd8\xff", b"GIF8", b"OggS", b"ID3", b"fLaC", b"wOF", b"\x1aE\xdf\xa3")
"""Pictures, sounds and fonts are dense by nature, and hold no text that anybody packed."""
_MEDIA_LATER = (b"ftyp", b"WEBP", b"WAVE", b"GGUF")
_DENSE = 0.94
_LEAST_DENSE, _SAMPLE = 96, 1 << 16
_LEAST_UNPACKED = 16
"""What unpacks to fewer bytes only looks packed: two bytes in 16,000 do."""


def look_around(body: bytes, redactor: Redactor) -> str:
    """Return what is to be said of bytes that may hold something packed, or be so; else nothing."""
    room, unsure, looked = MAX_UNPACKED, False, False
    end = 0
    for found in _STREAM.finditer(body):
        if found.start() < end:
            continue  # in the middle of what was looked into
        if found[0].startswith(_NAMED_ANYHOW):
            unsure = True
            continue
        unpacked, used, whole = _unpacked(body[found.start() :], found[0][:2], room)
        if len(unpacked) >= _LEAST_UNPACKED or (whole and unpacked):
            if redactor.in_bytes(unpacked):
                return _HOLDS
            unsure = unsure or packing_of(unpacked[:16], "") is not None
            room -= len(unpacked)
            looked, end = True, found.start() + used
            if room <= 0:
                unsure = True
                break
    if unsure:
        return _NOT_LOOKED_INTO.format(why="there is something packed in it")
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
    if len(sample) < _LEAST_DENSE or sample.startswith(_MEDIA):
        return False
    if any(one in sample[:16] for one in _MEDIA_LATER):
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
                held, size = _in_packed(archive.open(member), redactor, room)
            except _NotLookedInto as error:
                why = str(error)  # another member may hold it for certain
                continue
            if held:
                return True
            room -= size
    if why:
        raise _NotLookedInto(why)
    return False


def _in_packed(file: IO[bytes], redactor: Redactor, room: int) -> tuple[bool, int]:
    """Tell whether what was packed holds it, and how many bytes it has."""
    with file:
        counted = _Counted(file, room)
        held = in_stream(counted, redactor)
    if not held and packing_of(counted.start, "") is not None:
        raise _NotLookedInto("there is something packed in it")
    return held, room - counted.room


class _Counted:
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
            raise _NotLookedInto(f"it unpacks to more than {MAX_UNPACKED >> 20} MB")
        return part


def in_stream(file: IO[bytes] | _Counted, redactor: Redactor) -> bool:
    """Tell whether a stream of bytes holds it, however long it is."""
    behind = b""
    while part := file.read(_PART):
        if redactor.in_bytes(behind + part):
            return True
        behind = part[-_OVERLAP:]
    return False
