"""Taking a text out of every row: page by page, each page in a transaction of its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from asterism.memory.forgetting.columns import TABLES, How, Table
from asterism.memory.forgetting.redaction import Redactor
from asterism.memory.forgetting.shapes import little_is_left, redacted, without_thought
from asterism.memory.vectors import embed
from asterism.memory.words import digest
from asterism.store import forgetting as store
from asterism.store import shelves
from asterism.store.database import Connection, Database
from asterism.store.forgetting import ForgetRequest

_PAGE = 500
_ATTEMPTS = 5
_UNREAD = frozenset({How.ID, How.INDEX})

Columns = dict[str, dict[str, str]]
"""The tables that are there and their columns, as a database tells them."""


@dataclass(slots=True)
class Found:
    """What was found where, without saying what."""

    places: Counter[str] = field(default_factory=Counter[str])
    """How often, by table and column, or by file."""
    agents: set[str] = field(default_factory=set[str])
    """Whose memory was changed."""
    turns: set[str] = field(default_factory=set[str])
    """Turns of which an entry was changed."""
    names: Counter[str] = field(default_factory=Counter[str])
    """Names and addresses that hold it and were left, by table and column."""
    left: list[str] = field(default_factory=list[str])
    """What else holds it still, in sentences."""

    def add(self, other: Found) -> None:
        """Take in what was found elsewhere."""
        self.places += other.places
        self.agents |= other.agents
        self.turns |= other.turns
        self.names += other.names
        self.left += [one for one in other.left if one not in self.left]


@dataclass(slots=True)
class _Change:
    """What becomes of one row."""

    key: dict[str, Any]
    old: dict[str, Any]
    new: dict[str, Any] | None
    """None: the row goes."""


@dataclass(slots=True)
class _Page:
    changes: list[_Change]
    found: Found
    last: Sequence[Any] | None
    """Where the next page begins; None: there is none."""


@dataclass(frozen=True, slots=True)
class Sweep:
    """One table of one place, to be gone through."""

    name: str
    """As SQL wants it."""
    table: Table
    columns: tuple[str, ...]
    """Those that are there."""
    request: ForgetRequest
    indexed: bool
    """Whether what is stored in it is found through an index beside it."""

    @property
    def place(self) -> str:
        """What stands before the names of the tables beside it."""
        schema, dot, _ = self.name.rpartition(".")
        return schema + dot


def sweeps(present: Columns, request: ForgetRequest) -> list[Sweep]:
    """Return how to go through all tables that are there and known."""
    found: list[Sweep] = []
    indexed = {name for name in ("entries", "passages") if "shelves" in present}
    for name, columns in present.items():
        table = TABLES.get(name.rpartition(".")[2])
        if table is not None and set(table.columns.values()) - _UNREAD:
            there = tuple(
                column
                for column, how in table.columns.items()
                if column in columns and how is not How.BLOCK and how not in _UNREAD
            )
            found.append(Sweep(name, table, there, request, name in indexed))
    return found


async def sweep_database(
    database: Database, present: Columns, request: ForgetRequest, redactor: Redactor
) -> Found:
    """Take it out of every row of an open database, those of snapshots inside too."""
    found = Found()
    for sweep in sweeps(present, request):
        after: Sequence[Any] | None = None
        while True:
            page = await _settled(database, sweep, after, redactor)
            found.add(page.found)
            if page.last is None:
                break
            after = page.last
    for name in unknown(present):
        work = partial(_sweep_unknown, name=name, columns=present[name], redactor=redactor)
        found.add(await database.write(work))
    for turn_id in sorted(found.turns):
        await database.write(partial(drop_thoughts, place="", turn_id=turn_id))
    return found


async def _settled(
    database: Database, sweep: Sweep, after: Sequence[Any] | None, redactor: Redactor
) -> _Page:
    """Go through one page; rows that others change meanwhile are looked at again."""
    for _ in range(_ATTEMPTS):
        page = await database.read(lambda tx: _look(tx, sweep, after, redactor))
        apply = partial(_apply, sweep=sweep, changes=page.changes)
        if not page.changes or await database.write(apply):
            return page

    async def at_once(tx: Connection) -> _Page:
        page = await _look(tx, sweep, after, redactor)
        await _apply(tx, sweep, page.changes)
        return page

    return await database.write(at_once)


async def sweep_connection(
    tx: Connection, present: Columns, request: ForgetRequest, redactor: Redactor
) -> Found:
    """Take it out of every row in one transaction, for files that nobody else has open."""
    found = Found()
    for sweep in sweeps(present, request):
        after: Sequence[Any] | None = None
        while True:
            page = await _look(tx, sweep, after, redactor)
            await _apply(tx, sweep, page.changes)
            found.add(page.found)
            if page.last is None:
                break
            after = page.last
    for name in unknown(present):
        found.add(await _sweep_unknown(tx, name, present[name], redactor))
    for turn_id in sorted(found.turns):
        await drop_thoughts(tx, "", turn_id)
    return found


# -- one page ----------------------------------------------------------------------------------


async def _look(
    tx: Connection, sweep: Sweep, after: Sequence[Any] | None, redactor: Redactor
) -> _Page:
    table = sweep.table
    wanted = {table.agent or "", "turn_id"} & table.columns.keys()
    also = tuple(sorted(wanted - set(table.key)))
    values = (sweep.request.constellation,) if table.whose else ()
    rows = await store.page(
        tx,
        sweep.name,
        table.key,
        (*sweep.columns, *also),
        where=table.whose.format(at=sweep.place),
        values=values,
        after=after,
        limit=_PAGE,
    )
    page = _Page([], Found(), rows[-1][: len(table.key)] if len(rows) == _PAGE else None)
    for row in rows:
        key = dict(zip(table.key, row, strict=False))
        held = dict(zip(sweep.columns, row[len(table.key) :], strict=False))
        known = key | dict(zip(also, row[len(table.key) + len(held) :], strict=True))
        change = _changed(sweep, key, held, redactor, page.found)
        if change is not None:
            page.changes.append(change)
            if table.agent is not None:
                page.found.agents.add((known | held)[table.agent])
            if sweep.name == "entries":
                page.found.turns.add(known["turn_id"])
    return page


def _changed(
    sweep: Sweep, key: dict[str, Any], held: dict[str, Any], redactor: Redactor, found: Found
) -> _Change | None:
    """Return what becomes of a row, or None if it stays as it is."""
    new: dict[str, Any] = {}
    for column, value in held.items():
        how = sweep.table.columns[column]
        before = redactor.found
        if how is How.NAME:
            if isinstance(value, str) and redactor.spans(value):
                found.names[f"{sweep.name}.{column}"] += 1
            continue
        if how is How.BYTES:
            if value is not None and redactor.counted_in_bytes(value):
                found.places[f"{sweep.name}.{column}"] += 1
                return _Change(key, {}, None)
            continue
        changed = redacted(how, value, redactor)
        if changed is not value and changed != value:
            new[column] = changed
            found.places[f"{sweep.name}.{column}"] += redactor.found - before
    if not new:
        return None
    old = {column: held[column] for column in new}
    if "text" in new and sweep.table.columns["text"] is How.PASSAGE:
        if little_is_left(new["text"]):
            return _Change(key, old, None)
        vectors = embed([new["text"]])
        made = {"digest": digest(new["text"]), "vector": vectors[0] if vectors else None}
        new |= {name: value for name, value in made.items() if name in sweep.columns}
    return _Change(key, old, new)


async def _apply(tx: Connection, sweep: Sweep, changes: list[_Change]) -> bool:
    """Make the changes of a page; False if a row had been changed by others."""
    settled = True
    if sweep.indexed and changes:
        await _unshelve(tx, sweep, changes)
    if sweep.table is TABLES["events"]:
        gone = [(change.key["chain"], change.key["number"]) for change in changes]
        await store.empty_events(tx, sweep.request, gone, place=sweep.place)
        return True
    for change in changes:
        if change.new is not None:
            settled &= await store.change(tx, sweep.name, change.key, change.old, change.new)
            continue
        where = " AND ".join(f"{name} = ?" for name in change.key)
        await store.remove(tx, sweep.name, where, tuple(change.key.values()))
        if sweep.table is TABLES["passages"]:
            edits = f"{sweep.place}passage_edits"
            await store.remove(tx, edits, "passage_id = ?", tuple(change.key.values()))
    return settled


async def _unshelve(tx: Connection, sweep: Sweep, changes: list[_Change]) -> None:
    """Take texts that are about to change out of the index of search."""
    gone: dict[str, list[int]] = {}
    if sweep.name == "entries":
        for change in changes:
            gone.setdefault(change.key["agent_id"], []).append(change.key["seq"])
        kind = shelves.JOURNAL
    else:
        for change in changes:
            for archive_id, number in await tx.all(
                "SELECT archive_id, number FROM passages WHERE id = ? AND number IS NOT NULL",
                (change.key["id"],),
            ):
                gone.setdefault(archive_id, []).append(number)
        kind = shelves.ARCHIVE
    for owner_id, numbers in gone.items():
        await shelves.drop(tx, kind, owner_id, numbers)


async def drop_thoughts(tx: Connection, place: str, turn_id: str) -> None:
    """Remove what vendors keep of their reasoning from the replies of a turn."""
    rows = await tx.all(
        f"SELECT agent_id, seq, meta FROM {place}entries WHERE kind = 'reply' AND turn_id = ?"
        " AND meta LIKE '%\"thought\"%'",
        (turn_id,),
    )
    for agent_id, seq, meta in rows:
        key = {"agent_id": agent_id, "seq": seq}
        await store.change(tx, f"{place}entries", key, {}, {"meta": without_thought(meta)})


# -- tables that this release does not know ----------------------------------------------------


def unknown(present: Columns) -> list[str]:
    """Return the tables that an older or later release has made."""
    return [name for name in present if name.rpartition(".")[2] not in TABLES]


async def _sweep_unknown(
    tx: Connection, name: str, columns: Iterable[str], redactor: Redactor
) -> Found:
    """Take it out of a table of which nothing is known, value by value."""
    found = Found()
    for column in columns:
        before = redactor.found
        for (value,) in await tx.all(f"SELECT DISTINCT {column} FROM {name}"):
            how = How.JSON if isinstance(value, str) else How.ID
            how = How.WIRE if isinstance(value, bytes) else how
            changed = redacted(how, value, redactor)
            if changed is not value:
                await store.change_value(tx, name, column, value, changed)
        if redactor.found > before:
            found.places[f"{name}.{column}"] += redactor.found - before
    return found
