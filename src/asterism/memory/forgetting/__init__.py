"""Forgetting: a text is removed everywhere and stays removed. You get a receipt.

The file `tombstones.jsonl` beside the database says by ids and fingerprints what was forgotten, so
that an older copy of the database forgets it again. `tombstones.key` holds the key without which a
fingerprint tells nothing; it is in no export or database, and in no backup but encrypted ones.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import field, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import orjson

from asterism.errors import InvalidInput, NotFound
from asterism.memory.forgetting.blocks import sweep_blocks
from asterism.memory.forgetting.files import sweep_files
from asterism.memory.forgetting.redaction import (
    FingerprintMatcher,
    Matcher,
    Redactor,
    TextMatcher,
    check_texts,
    fingerprint,
    key_name,
    new_key,
)
from asterism.memory.forgetting.removal import RowRemover, edit_filter
from asterism.memory.forgetting.rows import Columns, SweepResult, sweep_database
from asterism.memory.gate.writer import Writer, judge
from asterism.permissions import Act, Resource
from asterism.ports import Clock
from asterism.private import make_directory
from asterism.records import dataclass
from asterism.store import forgetting as store
from asterism.store import search_index
from asterism.store.database import Connection, Database, Row
from asterism.store.forgetting import DATA_FILES, ForgetRequest
from asterism.times import Moment
from asterism.types.agents import new_id, now_ms
from asterism.types.memory import TOMBSTONES, Permission


@dataclass(frozen=True, slots=True)
class Forgetting:
    """What is to be forgotten; at least one of these."""

    texts: tuple[str, ...] = ()
    """Texts, found everywhere, in any case and with any spaces."""
    passages: tuple[str, ...] = ()
    """By id: each with its history, and its words wherever they were repeated."""
    turns: tuple[str, ...] = ()
    """By id: the message and all that was said and written because of it."""
    persons: tuple[str, ...] = ()
    """By id: what they said, what only they may see, their names and accounts."""
    sources: tuple[str, ...] = ()
    """By id: the documents that were read, not the files that they were read from."""
    blocks: tuple[str, ...] = ()
    """By id: each with its history."""
    agents: tuple[str, ...] = ()
    """By id: each with everything that it has."""

    @property
    def ids(self) -> dict[str, tuple[str, ...]]:
        """What is forgotten by its id, by kind."""
        named = {
            item.name: getattr(self, item.name) for item in fields(self) if item.name != "texts"
        }
        return {kind: ids for kind, ids in named.items() if ids}


@dataclass(frozen=True, slots=True)
class ForgetReceipt:
    """A receipt. It says where and how often the text was found, but not the text."""

    id: str
    at_ms: int
    by: str
    reason: str
    places: dict[str, int] = field(default_factory=dict[str, int])
    """How often it was found, by table and column, or by file."""
    names: dict[str, int] = field(default_factory=dict[str, int])
    """Names and addresses that hold it and were left, since things are found by them."""
    unreached: tuple[str, ...] = ()
    """Sentences on places that could not be reached, or not yet."""
    agents: tuple[str, ...] = ()
    """Agents whose memory a process must drop from its caches."""
    summaries: tuple[str, ...] = ()
    """Summaries that were emptied, since any of their words may come from the text."""
    finished: bool = True

    at = Moment()

    @property
    def count(self) -> int:
        """How often it was found in all."""
        return sum(self.places.values())

    def wire(self) -> str:
        """Return the receipt as JSON."""
        values = {item.name.removesuffix("_ms"): getattr(self, item.name) for item in fields(self)}
        return orjson.dumps(values).decode()

    @staticmethod
    def read(text: str) -> ForgetReceipt:
        """Return a receipt that was stored."""
        values: dict[str, Any] = orjson.loads(text)
        for name in ("unreached", "agents", "summaries"):
            values[name] = tuple(values[name])
        return ForgetReceipt(at_ms=values.pop("at"), **values)


def make_receipt(
    id: str, at: int, by: str, reason: str, result: SweepResult, summaries: Iterable[str]
) -> ForgetReceipt:
    """Return the receipt for the result of a sweep."""
    return ForgetReceipt(
        id=id,
        at_ms=at,
        by=by,
        reason=reason,
        places=dict(sorted(_nonzero(result.places).items())),
        names=dict(sorted(_nonzero(result.names).items())),
        unreached=tuple(result.left),
        agents=tuple(sorted(result.agents)),
        summaries=tuple(sorted(summaries)),
    )


def _nonzero(places: Counter[str]) -> dict[str, int]:
    return {place: count for place, count in places.items() if count}


TOMBSTONE_KEY = "tombstones.key"


@dataclass(frozen=True, slots=True)
class Tombstone:
    """Something that was forgotten; nothing in it says what."""

    id: str
    constellation: str
    by: str
    reason: str
    ids: dict[str, tuple[str, ...]]
    fingerprints: tuple[dict[str, Any], ...]
    at: int

    @property
    def identity_json(self) -> str:
        """The ids and fingerprints by which it is recognised, as JSON."""
        return orjson.dumps({"ids": self.ids, "texts": self.fingerprints}).decode()

    def wire(self) -> str:
        """Return the line for the file."""
        values = {
            "id": self.id,
            "constellation": self.constellation,
            "by": self.by,
            "reason": self.reason,
            "marks": {"ids": self.ids, "texts": self.fingerprints},
            "at": self.at,
        }
        return orjson.dumps(values).decode() + "\n"

    @staticmethod
    def read(values: dict[str, Any]) -> Tombstone:
        """Return a tombstone from a line of the file."""
        marks = values["marks"]
        ids = {kind: tuple(listed) for kind, listed in marks["ids"].items()}
        return Tombstone(
            values["id"],
            values["constellation"],
            values["by"],
            values["reason"],
            ids,
            tuple(marks["texts"]),
            values["at"],
        )

    @staticmethod
    def of_row(constellation: str, row: Row) -> Tombstone:
        """Return a tombstone from a row of the database."""
        values = {"id": row[0], "by": row[1], "reason": row[2], "at": row[5]}
        marks = orjson.loads(row[3])
        return Tombstone.read({**values, "constellation": constellation, "marks": marks})


class TombstoneFile:
    """The tombstones of a data directory, and the key of their fingerprints."""

    def __init__(self, data: Path) -> None:
        self._file = data / TOMBSTONES
        self._key_file = data / TOMBSTONE_KEY

    def key(self, *, make: bool = False) -> bytes | None:
        """Return the key of the fingerprints, made if wanted; None if there is none."""
        try:
            return bytes.fromhex(self._key_file.read_text("ascii").strip())
        except FileNotFoundError:
            if not make:
                return None
        key = new_key()
        _write_new(self._key_file, key.hex() + "\n")
        return key

    def read(self, constellation: str | None = None) -> list[Tombstone]:
        """Return the tombstones of the file, oldest first; a torn last line is passed over."""
        try:
            lines = self._file.read_bytes().splitlines()
        except FileNotFoundError:
            return []
        tombstones: dict[str, Tombstone] = {}
        for line in lines:
            try:
                tombstone = Tombstone.read(orjson.loads(line))
            except (orjson.JSONDecodeError, KeyError, TypeError):
                continue
            if constellation in (None, tombstone.constellation):
                tombstones[tombstone.id] = tombstone
        return list(tombstones.values())

    def add(self, tombstones: Iterable[Tombstone]) -> None:
        """Put tombstones at the end of the file; on return they are on the disk."""
        body = "".join(tombstone.wire() for tombstone in tombstones).encode()
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
    """Removes forgotten texts from new texts; reads the tombstones when they change."""

    def __init__(self, data: Path, constellation: str) -> None:
        self._tombstone_file = TombstoneFile(data)
        self._constellation = constellation
        self._matcher: FingerprintMatcher | None = None
        self._stale = True

    def changed(self) -> None:
        """Read the tombstones again before the next use."""
        self._stale = True

    def redact(self) -> Callable[[str], str] | None:
        """Return the redactor for forgotten texts; None: nothing was forgotten."""
        if self._stale:
            self._stale = False
            tombstones = self._tombstone_file.read(self._constellation)
            key = self._tombstone_file.key() if tombstones else None
            fingerprints = [item for tombstone in tombstones for item in tombstone.fingerprints]
            self._matcher = FingerprintMatcher(fingerprints, key) if key is not None else None
        matcher = self._matcher
        return (lambda text: Redactor(matcher).text(text)) if matcher else None


def _write_new(path: Path, text: str) -> None:
    make_directory(path.parent)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(fd, "w", encoding="ascii") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def fingerprints_of(texts: Iterable[str], key: bytes) -> tuple[dict[str, Any], ...]:
    """Return the fingerprints of texts."""
    return tuple(fingerprint(text, key) for text in texts)


def count_unreadable(tombstones: Iterable[Tombstone], key: bytes | None) -> int:
    """Return how many fingerprints were made with another key."""
    name = key_name(key) if key is not None else ""
    return sum(item["key"] != name for tombstone in tombstones for item in tombstone.fingerprints)


async def unfinished_tombstones(
    database: Database, tombstone_file: TombstoneFile
) -> list[Tombstone]:
    """Return what the database has not forgotten yet; make the file know what the database does."""
    known = tombstone_file.read()
    rows = await database.read(store.tombstones)
    finished = {row[0] for row in rows if orjson.loads(row[4])["finished"]}
    in_file = {tombstone.id for tombstone in known}
    new = [Tombstone.of_row(database.constellation, row) for row in rows if row[0] not in in_file]
    tombstone_file.add(new)
    return [
        tombstone
        for tombstone in (*known, *new)
        if tombstone.constellation == database.constellation and tombstone.id not in finished
    ]


Drop = Callable[[Sequence[str]], Awaitable[None]]
"""Drops what a process holds of agents' memory."""

_MAX_ROUNDS = 3
_TABLES = {
    "passages": ("passages", "constellation = ?"),
    "persons": ("persons", "constellation = ?"),
    "sources": ("sources", "constellation = ?"),
    "blocks": ("blocks", "constellation = ?"),
    "agents": ("agents", "constellation = ?"),
    "turns": ("turns", "agent_id IN (SELECT id FROM agents WHERE constellation = ?)"),
}
_NOUNS = {
    "passages": ("passage", "asterism archive list"),
    "persons": ("person", "asterism person list"),
    "sources": ("source", "asterism source list"),
    "blocks": ("block", "asterism block list"),
    "agents": ("agent", "asterism agent list"),
    "turns": ("turn", "asterism turn list"),
}


async def forget(
    database: Database,
    data: Path,
    writer: Writer,
    what: Forgetting,
    *,
    drop: Drop | None = None,
) -> ForgetReceipt:
    """Forget something everywhere; return the receipt, which is kept with the tombstone.

    Args:
        database: The open database.
        data: The data directory, whose other files are gone through too.
        writer: Who wants it, and why.
        what: The texts and ids to forget.
        drop: Drops the cached memory of agents. Then everything is searched once more, since a
            running turn may have written the text again.
    """
    whole = Resource("memory", "everything", Permission.READ_WRITE)
    judge(writer, Act.DELETE, whole, "forget something for good")
    texts = check_texts(what.texts)
    if not texts and not what.ids:
        raise InvalidInput(
            "You did not say what to forget. Give a text or an id. Nothing was forgotten."
        )
    await database.read(partial(_check, what=what))
    tombstone_file = TombstoneFile(data)
    key = await asyncio.to_thread(tombstone_file.key, make=True)
    assert key is not None
    known = Redactor(TextMatcher(texts))
    tombstone = Tombstone(
        new_id("tomb"),
        database.constellation,
        str(writer.actor),
        known.text(writer.reason) if texts else writer.reason,
        what.ids,
        await asyncio.to_thread(fingerprints_of, texts, key),
        writer.now,
    )
    tombstone, more = await _record_tombstone(database, tombstone_file, tombstone, key, what)
    matcher = TextMatcher([*texts, *more])
    return await _carry_out(database, data, tombstone, matcher, drop, writer.now)


async def _record_tombstone(
    database: Database,
    tombstone_file: TombstoneFile,
    tombstone: Tombstone,
    key: bytes,
    what: Forgetting,
) -> tuple[Tombstone, tuple[str, ...]]:
    """Write down what is to be forgotten before anything is: a crash does not leave it half done.

    Return the tombstone, and the texts of what is forgotten by its id. Those are looked for
    elsewhere too, so their fingerprints are recorded before the rows that hold them are gone.
    """
    texts: tuple[str, ...] = ()
    if what.ids:
        texts = await database.read(partial(_texts_of, what=what))
    fingerprints = await asyncio.to_thread(fingerprints_of, texts, key)
    tombstone = replace(tombstone, fingerprints=(*tombstone.fingerprints, *fingerprints))
    begun = replace(_receipt(tombstone, SweepResult(), set()), finished=False)
    await asyncio.to_thread(tombstone_file.add, [tombstone])
    await database.write(lambda tx: _store(tx, tombstone, begun))
    return tombstone, texts


async def replay(
    database: Database,
    data: Path,
    *,
    everything: bool = False,
    drop: Drop | None = None,
    clock: Clock = now_ms,
) -> ForgetReceipt | None:
    """Forget again what an older copy of the database has brought back; None: nothing had.

    Called when a database is opened. It finishes what a crash has interrupted, too. With
    `everything`, also what this database has forgotten before: after an import or new documents.
    """
    tombstone_file = TombstoneFile(data)
    tombstones = await unfinished_tombstones(database, tombstone_file)
    if everything:
        tombstones = tombstone_file.read(database.constellation)
    if not tombstones:
        return None
    key = await asyncio.to_thread(tombstone_file.key)
    lost = count_unreadable(tombstones, key)
    receipts: list[ForgetReceipt] = []
    for tombstone in tombstones:
        matcher = (
            FingerprintMatcher(tombstone.fingerprints, key) if key is not None else TextMatcher(())
        )
        receipts.append(
            await _carry_out(database, data, tombstone, matcher, drop, clock(), scrub=False)
        )
    left = await database.scrub()
    if lost:
        left.append(
            f"{lost} forgotten texts cannot be looked for, since tombstones.key of {data} is "
            "another one or missing. Put the right one back."
        )
    return _summed(receipts, left)


def _summed(receipts: Sequence[ForgetReceipt], left: list[str]) -> ForgetReceipt:
    result = SweepResult(left=left)
    summaries: set[str] = set()
    for receipt in receipts:
        result.places.update(receipt.places)
        result.names.update(receipt.names)
        result.agents.update(receipt.agents)
        result.left += [text for text in receipt.unreached if text not in result.left]
        summaries.update(receipt.summaries)
    last = receipts[-1]
    return make_receipt(last.id, last.at_ms, last.by, last.reason, result, summaries)


# -- carrying it out ---------------------------------------------------------------------------


async def _carry_out(
    database: Database,
    data: Path,
    tombstone: Tombstone,
    matcher: Matcher,
    drop: Drop | None,
    now: int,
    *,
    scrub: bool = True,
) -> ForgetReceipt:
    async with database.alone(DATA_FILES):
        return await _carry_out_alone(database, data, tombstone, matcher, drop, now, scrub=scrub)


async def _carry_out_alone(
    database: Database,
    data: Path,
    tombstone: Tombstone,
    matcher: Matcher,
    drop: Drop | None,
    now: int,
    *,
    scrub: bool,
) -> ForgetReceipt:
    request = ForgetRequest(tombstone.constellation, tombstone.by, now, tombstone.id)
    result = SweepResult()
    summaries: set[str] = set()
    present = await database.columns()
    for _ in range(_MAX_ROUNDS):
        fresh = await _round(database, present, tombstone, request, matcher, summaries)
        result.add(fresh)
        changed = sorted(fresh.agents)
        if not changed:
            break
        await database.write(lambda tx, changed=changed: store.note_memory(tx, changed))
        if drop is None:
            break
        await drop(changed)
    result.add(
        await asyncio.to_thread(sweep_files, data, request, Redactor(matcher), tombstone.ids)
    )
    if scrub:
        result.left += await database.scrub()
    receipt = _receipt(tombstone, result, summaries)
    await database.write(lambda tx: _store(tx, tombstone, receipt))
    return receipt


async def _round(
    database: Database,
    present: Columns,
    tombstone: Tombstone,
    request: ForgetRequest,
    matcher: Matcher,
    summaries: set[str],
) -> SweepResult:
    """Go through the whole database once."""
    result = SweepResult()
    redactor = Redactor(matcher)
    for schema in _schemas(present, "segments"):
        await database.write(partial(search_index.drop_worn, place=schema))
    # Blocks first: whose an edit is can be told as long as the rows of people and turns are there.
    for schema in _schemas(present, "blocks"):
        turns = await database.read(
            partial(_turns, present=present, tombstone=tombstone, schema=schema)
        )
        chosen = edit_filter(turns, tombstone.ids.get("persons", ()))
        result.add(await sweep_blocks(database, redactor, chosen, schema))
    for schema in _schemas(present, "entries") if tombstone.ids else ():
        work = partial(
            _remove, present=present, tombstone=tombstone, request=request, schema=schema
        )
        removed, emptied = await database.write(work)
        result.add(removed)
        summaries |= emptied
    result.add(await sweep_database(database, present, request, redactor))
    return result


def _schemas(present: Columns, table: str) -> list[str]:
    """Return what stands before a table's name wherever there is one."""
    return [name.removesuffix(table) for name in present if name.rpartition(".")[2] == table]


async def _turns(
    tx: Connection, present: Columns, tombstone: Tombstone, schema: str
) -> frozenset[str]:
    return await RowRemover(tx, present, schema).turns_of(tombstone.ids)


async def _remove(
    tx: Connection, present: Columns, tombstone: Tombstone, request: ForgetRequest, schema: str
) -> tuple[SweepResult, set[str]]:
    remover = RowRemover(tx, present, schema)
    await remover.forget(tombstone.ids, request)
    return remover.result, remover.summaries


# -- asking the store --------------------------------------------------------------------------


async def _check(tx: Connection, what: Forgetting) -> None:
    for kind, ids in what.ids.items():
        table, whose = _TABLES[kind]
        for id in ids:
            if not await store.ids(tx, table, "id", f"id = ? AND {whose}", (id, tx.constellation)):
                word, listing = _NOUNS[kind]
                raise NotFound(
                    f'There is no {word} {id!r}. "{listing}" shows them. Nothing was forgotten.'
                )


async def _texts_of(tx: Connection, what: Forgetting) -> tuple[str, ...]:
    """Return the texts of what will be removed."""
    return await RowRemover(tx, {}).texts_of(what.passages, what.turns)


async def _store(tx: Connection, tombstone: Tombstone, receipt: ForgetReceipt) -> None:
    row = (
        tombstone.id,
        tombstone.by,
        tombstone.reason,
        tombstone.identity_json,
        receipt.wire(),
        tombstone.at,
    )
    await store.put_tombstone(tx, row)


def _receipt(tombstone: Tombstone, result: SweepResult, summaries: set[str]) -> ForgetReceipt:
    return make_receipt(
        tombstone.id, tombstone.at, tombstone.by, tombstone.reason, result, summaries
    )
