"""The file of a backup: a tar with a manifest first and a digest last, encrypted if wanted.

Its members are compressed one by one, so that `tar` and `gunzip` open a backup that is not
encrypted. What is read is trusted only as far as it is what this module would have written: each
header of the tar is made again from the manifest and compared.
"""

from __future__ import annotations

import base64
import errno
import hashlib
import hmac
import os
import re
import tarfile
import threading
import zlib
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, field, fields
from pathlib import Path
from typing import IO, Any, Protocol, cast

import orjson

from asterism.errors import BackupDamaged, BackupError, InvalidInput, PassphraseWrong, StoreFull
from asterism.private import open_regular, private
from asterism.records import dataclass
from asterism.times import Moment

FORMAT = 1
"""The version of the format that this release writes."""
MIN_PASSPHRASE = 8
"""Characters that a passphrase needs at least."""

_MANIFEST, _DIGEST = "manifest.json", "SHA256"
_BLOCK = 512
_PIECE = 1 << 18
_LEVEL = 4
"""How hard zlib tries; more takes twice as long and makes the file hardly smaller."""
_MAX_MANIFEST = 1 << 26
_MAX_RATIO = 1_100
"""How many times its size the densest stream of deflate grows when it is unpacked."""
_MAX_NAME = 1_000
_MAX_SIZE = 1 << 62
_SHA256 = re.compile(r"[0-9a-f]{64}")

FilePart = Callable[[int], None]
"""Hears how many bytes were gone through since the last time."""


class Stopped(Exception):
    """Nobody waits for the backup any more."""


# -- the manifest ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BackedUpFile:
    """A file in a backup."""

    name: str
    """Below `database/` or `files/`."""
    size: int
    sha256: str
    packed: int
    """How many bytes it takes in the backup."""
    executable: bool = False


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a backup says of itself."""

    format: int
    version: str
    """The release of asterism that made it."""
    schema: int
    engine: str
    """`sqlite` or `postgresql`."""
    constellations: tuple[str, ...]
    created_at_ms: int
    kind: str
    """`manual` or `scheduled`."""
    note: str
    master_key: str
    """Where the master key was; empty if no key was stored."""
    has_master_key: bool
    left_out: tuple[str, ...] = ()
    """Files of the data directory that are not in it, such as links."""
    files: tuple[BackedUpFile, ...] = field(default=(), repr=False)

    created_at = Moment()

    @property
    def size(self) -> int:
        """How many bytes its files have when they are unpacked."""
        return sum(file.size for file in self.files)

    def wire(self) -> bytes:
        """Return it as JSON."""
        return orjson.dumps(asdict(self), option=orjson.OPT_INDENT_2) + b"\n"

    @staticmethod
    def read(wire: bytes, name: str) -> Manifest:
        """Return the manifest of the backup `name`; raise if it is not one that can be trusted."""
        try:
            values: dict[str, Any] = orjson.loads(wire)
            number = values["format"]
            if isinstance(number, int) and number > FORMAT:
                raise BackupError(
                    f"{name} has format {number}, and this release reads formats up to {FORMAT}. "
                    "Use the release that made it, or a later one. Nothing was restored."
                )
            listed = values.pop("files")
            files = tuple(BackedUpFile(**row) for row in listed)
            for key in ("constellations", "left_out"):
                values[key] = tuple(map(str, values[key]))
            manifest = Manifest(**values, files=files)
        except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError):
            raise damaged(name, "its manifest cannot be read") from None
        _check_manifest(manifest, name)
        return manifest


def _check_manifest(manifest: Manifest, name: str) -> None:
    kinds = {"format": int, "schema": int, "created_at_ms": int, "has_master_key": bool}
    for item in fields(Manifest):
        kind = kinds.get(item.name, tuple if item.name in _LISTS else str)
        if type(getattr(manifest, item.name)) is not kind:
            raise damaged(name, f"{item.name} in its manifest is not valid")
    seen: set[str] = set()
    for file in manifest.files:
        _check_file(file, name)
        # A file cannot be a folder of another.
        parts = file.name.split("/")
        folders = {"/".join(parts[:end]) for end in range(1, len(parts))}
        if file.name in seen or folders & seen:
            raise damaged(name, f"its manifest names {file.name[:80]!r} twice")
        seen.add(file.name)


_LISTS = ("constellations", "left_out", "files")


def _check_file(file: BackedUpFile, name: str) -> None:
    types = (type(file.size), type(file.packed), type(file.sha256), type(file.executable))
    if types != (int, int, str, bool) or not is_safe_name(file.name):
        raise damaged(name, f"{str(file.name)[:80]!r} is not a valid name of a file in it")
    if not _SHA256.fullmatch(file.sha256):
        raise damaged(name, f"the digest of {file.name[:80]!r} is not valid")
    if not 0 <= file.size <= _MAX_SIZE or not 0 < file.packed <= _MAX_SIZE:
        raise damaged(name, f"the size of {file.name[:80]!r} is not valid")
    if file.size > file.packed * _MAX_RATIO:
        raise damaged(name, f"{file.name[:80]!r} cannot be unpacked to {file.size:,} bytes")


def is_safe_name(name: object) -> bool:
    """Tell whether a file may be made by this name below a directory, and nowhere else."""
    if not isinstance(name, str) or not 0 < len(name) <= _MAX_NAME:
        return False
    if any(ord(letter) < 32 or letter in "\\\x7f" for letter in name):
        return False
    if any("\ud800" <= letter <= "\udfff" for letter in name):
        return False  # not UTF-8
    first, *rest = name.split("/")
    parts_fit = all(part not in ("", ".", "..") for part in rest)
    return first in ("database", "files") and bool(rest) and parts_fit


def damaged(name: str, problem: str) -> BackupDamaged:
    """Return the error on a backup that is not as it was written."""
    return BackupDamaged(
        f"{name} cannot be used: {problem}. It is cut off, changed or damaged. Take another copy "
        'or another backup ("asterism backup list"). Nothing was restored.'
    )


# -- writing ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PackedFile:
    """A file that is ready to be put into a backup."""

    entry: BackedUpFile
    path: Path
    """Where it is, compressed."""


def pack(
    name: str,
    source: IO[bytes],
    target: Path,
    *,
    executable: bool = False,
    part: FilePart = lambda _: None,
) -> PackedFile:
    """Compress a file into another; it may change while it is read, the result does not."""
    digest, size, packed = hashlib.sha256(), 0, 0
    packer = zlib.compressobj(_LEVEL, wbits=31)
    with open(target, "xb", opener=private) as out:
        while piece := source.read(_PIECE):
            digest.update(piece)
            size += len(piece)
            packed += out.write(packer.compress(piece))
            part(len(piece))
        packed += out.write(packer.flush())
    return PackedFile(BackedUpFile(name, size, digest.hexdigest(), packed, executable), target)


def write_backup(
    target: Path,
    manifest: Manifest,
    packed: Sequence[PackedFile],
    passphrase: str | None,
    *,
    part: FilePart = lambda _: None,
) -> None:
    """Write a backup under its final name, whole or not at all.

    Raises `FileExistsError` if there is a file of that name.
    """
    draft = target.with_name(f".{target.name}.partial-{os.getpid()}-{threading.get_ident()}")
    try:
        with open(draft, "xb", opener=private) as raw:
            out: _Writes = raw if passphrase is None else EncryptingFile(raw, passphrase, manifest)
            _write_tar(out, manifest, packed, part)
            if isinstance(out, EncryptingFile):
                out.finish()
            raw.flush()
            os.fsync(raw.fileno())
        # Unlike a rename, a link never takes the place of a file that is there.
        try:
            os.link(draft, target)
        except OSError as error:
            if error.errno == errno.EEXIST or target.exists():
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST)) from None
            draft.rename(target)  # on file systems that have no links
        _sync_directory(target.parent)
    finally:
        draft.unlink(missing_ok=True)


def _write_tar(
    out: _Writes, manifest: Manifest, packed: Sequence[PackedFile], part: FilePart
) -> None:
    digest = hashlib.sha256()

    def write(data: bytes) -> None:
        digest.update(data)
        out.write(data)

    body = manifest.wire()
    if len(body) > _MAX_MANIFEST:
        raise BackupError(
            f"The data directory has {len(manifest.files):,} files, too many for one backup. Move "
            "some of them elsewhere, such as those in workspaces. Nothing was written."
        )
    write(_header(_MANIFEST, len(body)) + body + _padding(len(body)))
    for file in packed:
        write(_header(_member(file.entry), file.entry.packed))
        with file.path.open("rb") as source:
            while piece := source.read(_PIECE):
                write(piece)
                part(len(piece))
        write(_padding(file.entry.packed))
    out.write(_tail(digest.hexdigest()))


def _member(file: BackedUpFile) -> str:
    return f"{file.name}.gz"


def _header(name: str, size: int) -> bytes:
    info = tarfile.TarInfo(name)
    info.size, info.mode = size, 0o600
    return info.tobuf(tarfile.PAX_FORMAT, "utf-8", "strict")


def _padding(size: int) -> bytes:
    return bytes(-size % _BLOCK)


def _tail(digest: str) -> bytes:
    body = f"{digest}\n".encode()
    return _header(_DIGEST, len(body)) + body + _padding(len(body)) + bytes(2 * _BLOCK)


def _sync_directory(directory: Path) -> None:
    with suppress(OSError):
        handle = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


# -- reading ---------------------------------------------------------------------------------------


class _Writes(Protocol):
    def write(self, data: bytes, /) -> object: ...


class _Reads(Protocol):
    def read(self, size: int, /) -> bytes: ...


@contextmanager
def open_backup(path: Path, passphrase: str | None) -> Generator[BackupReader, None, None]:
    """Open a backup; raise if it is not one, or if the passphrase does not open it."""
    try:
        handle = open_regular(path)
    except OSError as error:
        reason = error.strerror or str(error)
        raise BackupError(f"{path} cannot be read ({reason}). Nothing was restored.") from None
    with os.fdopen(handle, "rb") as raw:
        stream: _Reads = raw
        if is_encrypted(raw):
            if passphrase is None:
                raise PassphraseWrong(
                    f"{path.name} is encrypted, and no passphrase was given. Give the one that it "
                    "was made with. Nothing was restored."
                )
            stream = DecryptingFile(raw, passphrase, path.name)
        yield BackupReader(stream, path.name)


class BackupReader:
    """Reads a backup from its beginning to its end, once."""

    def __init__(self, stream: _Reads, name: str) -> None:
        self._stream = stream
        self._name = name
        self._digest = hashlib.sha256()
        self.manifest = self._read_manifest()
        """What the backup says of itself; known to be true only after `read_files`."""

    def _read(self, size: int) -> bytes:
        data = self._take(size)
        self._digest.update(data)
        return data

    def _take(self, size: int) -> bytes:
        """Return exactly so many bytes."""
        parts: list[bytes] = []
        while size:
            piece = self._stream.read(size)
            if not piece:
                raise damaged(self._name, "it ends too early")
            parts.append(piece)
            size -= len(piece)
        return b"".join(parts)

    def _expect(self, data: bytes, problem: str) -> None:
        if self._read(len(data)) != data:
            raise damaged(self._name, problem)

    def _read_manifest(self) -> Manifest:
        block = self._read(_BLOCK)
        try:
            info = tarfile.TarInfo.frombuf(block, "utf-8", "strict")
        except (tarfile.HeaderError, UnicodeDecodeError, ValueError):
            info = tarfile.TarInfo()
        if info.name != _MANIFEST or not 0 < info.size <= _MAX_MANIFEST:
            raise damaged(self._name, "it does not begin like a backup of asterism")
        if block != _header(_MANIFEST, info.size):
            raise damaged(self._name, "its first header is not as it was written")
        wire = self._read(info.size)
        self._expect(_padding(info.size), "its manifest is followed by something else")
        return Manifest.read(wire, self._name)

    def read_files(
        self,
        place: Callable[[BackedUpFile], Path | None],
        *,
        part: FilePart = lambda _: None,
    ) -> None:
        """Read all files, and check everything up to the last byte.

        Args:
            place: Returns where a file is written; None if it is only checked.
            part: Hears how far it is.
        """
        for file in self.manifest.files:
            self._expect(
                _header(_member(file), file.packed), f"the header of {file.name} is another"
            )
            path = place(file)
            if path is None:
                self._unpack(file, None, part)
            else:
                with open(path, "xb", opener=private) as out:
                    self._unpack(file, out, part)
                    out.flush()
                    os.fsync(out.fileno())
                if file.executable:
                    path.chmod(0o700)
            self._expect(_padding(file.packed), f"something else follows {file.name}")
        tail = _tail(self._digest.hexdigest())
        if self._take(len(tail)) != tail:
            raise damaged(self._name, "its digest does not match")
        if self._stream.read(1):
            raise damaged(self._name, "something follows its end")

    def _unpack(self, file: BackedUpFile, out: _Writes | None, part: FilePart) -> None:
        unpacker = zlib.decompressobj(31)
        digest, size, left = hashlib.sha256(), 0, file.packed
        try:
            while left:
                piece = self._read(min(left, _PIECE))
                left -= len(piece)
                while piece and not unpacker.eof:
                    # One byte more than is left shows that there are more than the manifest says.
                    data = unpacker.decompress(piece, min(_PIECE, file.size - size + 1))
                    piece = unpacker.unconsumed_tail
                    size += len(data)
                    if size > file.size:
                        raise damaged(self._name, f"{file.name} is larger than its manifest says")
                    digest.update(data)
                    if out is not None:
                        out.write(data)
                    part(len(data))
        except zlib.error:
            raise damaged(self._name, f"{file.name} cannot be unpacked") from None
        is_whole = unpacker.eof and not unpacker.unused_data and not unpacker.unconsumed_tail
        if not is_whole or size != file.size or digest.hexdigest() != file.sha256:
            raise damaged(self._name, f"{file.name} is not what was saved")


# -- encryption ------------------------------------------------------------------------------------

_MAGIC = b"asterism encrypted backup\n"
_CHUNK = 1 << 16
_TAG = 16
_CHECK = 32
_MAX_HEADER = 4_096
_KDF_COST = 17
"""scrypt with 2 ** 17 rounds and 8 blocks takes 128 MB and a third of a second."""
_KDF_COSTS = range(10, 19)


@dataclass(frozen=True, slots=True)
class EncryptionHeader:
    """What must be known of an encrypted backup before it can be opened."""

    format: int
    version: str
    created_at_ms: int
    kind: str
    cost: int
    """scrypt's number of rounds, as a power of two."""
    salt: str
    nonce: str

    def wire(self) -> bytes:
        """Return the bytes that the file begins with."""
        return _MAGIC + orjson.dumps(asdict(self)) + b"\n"


def is_encrypted(raw: IO[bytes]) -> bool:
    """Tell whether a file is an encrypted backup; go back to its beginning."""
    start = raw.read(len(_MAGIC))
    raw.seek(0)
    return start == _MAGIC


def read_header(raw: IO[bytes], name: str) -> EncryptionHeader:
    """Return the header of an encrypted backup; nothing of it is known to be true."""
    raw.seek(len(_MAGIC))
    line = raw.readline(_MAX_HEADER)
    try:
        header = EncryptionHeader(**orjson.loads(line))
        types = (type(header.format), type(header.cost), type(header.created_at_ms))
        salt, nonce = base64.b64decode(header.salt), base64.b64decode(header.nonce)
    except (orjson.JSONDecodeError, TypeError, ValueError):
        raise damaged(name, "its header cannot be read") from None
    if types == (int, int, int) and header.format > FORMAT:
        raise BackupError(
            f"{name} has format {header.format}, and this release reads formats up to {FORMAT}. "
            "Use the release that made it, or a later one. Nothing was restored."
        )
    is_valid = types == (int, int, int) and header.cost in _KDF_COSTS and len(salt) == 16
    if not is_valid or len(nonce) != 7 or header.wire() != _MAGIC + line:
        raise damaged(name, "its header is not valid")
    return header


def check_passphrase(passphrase: str) -> None:
    """Raise `InvalidInput` if a passphrase is too short to protect anything."""
    if len(passphrase) < MIN_PASSPHRASE:
        raise InvalidInput(
            f"The passphrase has {len(passphrase)} characters; at least {MIN_PASSPHRASE} are "
            "needed. Several words are easy to remember. Nothing was done."
        )


def _keys(passphrase: str, header: EncryptionHeader) -> tuple[bytes, bytes]:
    """Return the key that encrypts, and what shows that the passphrase is right."""
    derived = hashlib.scrypt(
        passphrase.encode("utf-8", "surrogatepass"),
        salt=base64.b64decode(header.salt),
        n=1 << header.cost,
        r=8,
        p=1,
        maxmem=(1 << header.cost) * 1024 + (1 << 26),
        dklen=64,
    )
    return derived[:32], hmac.digest(derived[32:], header.wire(), "sha256")


class _Chunks:
    """The chunks of an encrypted backup: each bound to its place, and the last one to be last.

    This is the construction STREAM (https://eprint.iacr.org/2015/189): a nonce holds the number of
    the chunk and whether it is the last one, so that none can be left out, moved or cut off.
    """

    def __init__(self, key: bytes, header: EncryptionHeader) -> None:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        self._cipher = AESGCM(key)
        self._prefix = base64.b64decode(header.nonce)
        self._about = header.wire()
        self._number = 0

    def _nonce(self, *, last: bool) -> bytes:
        nonce = self._prefix + self._number.to_bytes(4, "big") + bytes([last])
        self._number += 1
        return nonce

    def encrypt(self, data: bytes, *, last: bool) -> bytes:
        """Return the next chunk."""
        return self._cipher.encrypt(self._nonce(last=last), data, self._about)

    def decrypt(self, data: bytes, *, last: bool) -> bytes:
        """Return what the next chunk holds; raise `InvalidTag` if it is not that chunk."""
        return self._cipher.decrypt(self._nonce(last=last), data, self._about)


class EncryptingFile:
    """A file that encrypts what is written to it."""

    def __init__(self, raw: IO[bytes], passphrase: str, manifest: Manifest) -> None:
        """Write the header."""
        header = EncryptionHeader(
            FORMAT,
            manifest.version,
            manifest.created_at_ms,
            manifest.kind,
            _KDF_COST,
            base64.b64encode(os.urandom(16)).decode(),
            base64.b64encode(os.urandom(7)).decode(),
        )
        key, check = _keys(passphrase, header)
        self._raw = raw
        self._chunks = _Chunks(key, header)
        self._waiting = bytearray()
        raw.write(header.wire() + check)

    def write(self, data: bytes, /) -> None:
        """Encrypt; the last chunk waits until it is known whether more follows."""
        self._waiting += data
        while len(self._waiting) > _CHUNK:
            chunk = bytes(self._waiting[:_CHUNK])
            del self._waiting[:_CHUNK]
            self._raw.write(self._chunks.encrypt(chunk, last=False))

    def finish(self) -> None:
        """Write the last chunk."""
        self._raw.write(self._chunks.encrypt(bytes(self._waiting), last=True))


class DecryptingFile:
    """A file that decrypts what is read from it, and returns nothing that was changed."""

    def __init__(self, raw: IO[bytes], passphrase: str, name: str) -> None:
        """Read the header; raise `PassphraseWrong` if the passphrase is not the right one."""
        self._raw = raw
        self._name = name
        header = read_header(raw, name)
        key, check = _keys(passphrase, header)
        if not hmac.compare_digest(raw.read(_CHECK), check):
            raise PassphraseWrong(
                f"The passphrase does not open {name} (or the first lines of the file were "
                "changed). Give the one that it was made with. Nothing was restored."
            )
        self._chunks = _Chunks(key, header)
        self._next = raw.read(_CHUNK + _TAG)
        self._data = b""
        self._ended = False

    def read(self, size: int, /) -> bytes:
        """Return at most so many bytes; none at the end."""
        while not self._data and not self._ended:
            self._data = self._decrypt()
        data, self._data = self._data[:size], self._data[size:]
        return data

    def _decrypt(self) -> bytes:
        from cryptography.exceptions import InvalidTag

        chunk, self._next = self._next, self._raw.read(_CHUNK + _TAG)
        self._ended = not self._next
        try:
            return self._chunks.decrypt(chunk, last=self._ended)
        except (InvalidTag, ValueError):
            problem = "it ends too early or" if self._ended else "a part of it"
            raise damaged(self._name, f"{problem} was changed") from None


# -- lists -----------------------------------------------------------------------------------------


def peek(path: Path) -> Manifest | EncryptionHeader:
    """Return what a backup says of itself, without reading it to its end."""
    with os.fdopen(open_regular(path), "rb") as raw:
        if is_encrypted(raw):
            return read_header(raw, path.name)
        return BackupReader(cast("_Reads", raw), path.name).manifest


def no_room(place: Path) -> StoreFull:
    """Return the error on a disk that is full."""
    return StoreFull(
        f"There is no room left on the disk of {place}. Free some space and try again. Nothing of "
        "this backup was left there."
    )


def total(files: Iterable[PackedFile]) -> int:
    """Return how many bytes packed files have."""
    return sum(file.entry.packed for file in files)
