"""What was forgotten stays forgotten: tombstones beside the database, met by older copies of it.

The file `tombstones.jsonl` says by ids and fingerprints what was forgotten; `tombstones.key` holds
the key without which a fingerprint tells nothing, and is put in no backup, export or database.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from asterism.memory.forgetting.needle import Prints, fingerprint, key_name, new_key
from asterism.memory.forgetting.redaction import Redactor
from asterism.private import make_directory
from asterism.store import forgetting as store
from asterism.store.database import Database, Row
from asterism.types.memory import TOMBSTONES

_KEY = "tombstones.key"


@dataclass(frozen=True, slots=True)
class Tombstone:
    """Something that was forgotten; nothing in it says what."""

    id: str
    constellation: str
    by: str
    reason: str
    ids: dict[str, tuple[str, ...]]
    prints: tuple[dict[str, Any], ...]
    at: int

    @property
    def marks(self) -> str:
        """Return by what it is known again, as JSON."""
        return orjson.dumps({"ids": self.ids, "texts": self.prints}).decode()

    def wire(self) -> str:
        """Return the line for the file."""
        told = {
            "id": self.id,
            "constellation": self.constellation,
            "by": self.by,
            "reason": self.reason,
            "marks": {"ids": self.ids, "texts": self.prints},
            "at": self.at,
        }
        return orjson.dumps(told).decode() + "\n"

    @staticmethod
    def read(told: dict[str, Any]) -> Tombstone:
        """Return a tombstone from a line of the file."""
        marks = told["marks"]
        ids = {kind: tuple(some) for kind, some in marks["ids"].items()}
        return Tombstone(
            told["id"],
            told["constellation"],
            told["by"],
            told["reason"],
            ids,
            tuple(marks["texts"]),
            told["at"],
        )

    @staticmethod
    def of_row(constellation: str, row: Row) -> Tombstone:
        """Return a tombstone from a row of the database."""
        told = {"id": row[0], "by": row[1], "reason": row[2], "at": row[5]}
        marks = orjson.loads(row[3])
        return Tombstone.read({**told, "constellation": constellation, "marks": marks})


class Graveyard:
    """The files of a data directory that tell what was forgotten."""

    def __init__(self, data: Path) -> None:
        self._file = data / TOMBSTONES
        self._key_file = data / _KEY

    def key(self, *, make: bool = False) -> bytes | None:
        """Return the key of the fingerprints, made if wanted; None if there is none."""
        try:
            return bytes.fromhex(self._key_file.read_text("ascii").strip())
        except FileNotFoundError:
            if not make:
                return None
        made = new_key()
        _write_new(self._key_file, made.hex() + "\n")
        return made

    def read(self) -> list[Tombstone]:
        """Return all tombstones of the file, oldest first; a torn last line is passed over."""
        try:
            lines = self._file.read_bytes().splitlines()
        except FileNotFoundError:
            return []
        found: dict[str, Tombstone] = {}
        for line in lines:
            try:
                one = Tombstone.read(orjson.loads(line))
            except (orjson.JSONDecodeError, KeyError, TypeError):
                continue
            found[one.id] = one
        return list(found.values())

    def add(self, stones: Iterable[Tombstone]) -> None:
        """Put tombstones at the end of the file; on return they are on the disk."""
        body = "".join(stone.wire() for stone in stones).encode()
        if not body:
            return
        if self._file.exists() and not self._file.read_bytes().endswith(b"\n"):
            body = b"\n" + body
        fd = os.open(self._file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        with os.fdopen(fd, "wb") as file:
            file.write(body)
            file.flush()
            os.fsync(file.fileno())


class ForgottenTexts:
    """Takes out of new texts what was forgotten before; tombstones are read when they change."""

    def __init__(self, data: Path, constellation: str) -> None:
        self._graveyard = Graveyard(data)
        self._constellation = constellation
        self._prints: Prints | None = None
        self._stale = True

    def changed(self) -> None:
        """Read the tombstones anew before they are used again."""
        self._stale = True

    @property
    def redact(self) -> Callable[[str], str] | None:
        """What takes out of a text what was forgotten, in some milliseconds; None: nothing was."""
        if self._stale:
            self._stale = False
            stones = [
                one for one in self._graveyard.read() if one.constellation == self._constellation
            ]
            key = self._graveyard.key() if stones else None
            marks = [mark for stone in stones for mark in stone.prints]
            self._prints = Prints(marks, key) if key is not None else None
        prints = self._prints
        return (lambda text: Redactor(prints).text(text)) if prints else None


def _write_new(path: Path, text: str) -> None:
    make_directory(path.parent)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(fd, "w", encoding="ascii") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def prints_of(texts: Iterable[str], key: bytes) -> tuple[dict[str, Any], ...]:
    """Return the fingerprints of texts."""
    return tuple(fingerprint(text, key) for text in texts)


def unreadable(stones: Iterable[Tombstone], key: bytes | None) -> int:
    """Return how many fingerprints were made with another key."""
    name = key_name(key) if key is not None else ""
    return sum(one["key"] != name for stone in stones for one in stone.prints)


async def outstanding(
    database: Database, constellation: str, graveyard: Graveyard
) -> list[Tombstone]:
    """Return what the database has not forgotten yet; make the file know what the database does."""
    known = graveyard.read()
    rows = await database.read(lambda tx: store.tombstones(tx, constellation))
    finished = {row[0] for row in rows if orjson.loads(row[4])["finished"]}
    in_file = {one.id for one in known}
    graveyard.add(Tombstone.of_row(constellation, row) for row in rows if row[0] not in in_file)
    mine = [one for one in known if one.constellation == constellation]
    mine += [Tombstone.of_row(constellation, row) for row in rows if row[0] not in in_file]
    return [one for one in mine if one.id not in finished]
