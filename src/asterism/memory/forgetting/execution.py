"""The one call that forgets, and the one that forgets again what an older copy brings back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from asterism.errors import InvalidInput, NotFound
from asterism.memory.forgetting.blocks import sweep_blocks
from asterism.memory.forgetting.files import sweep_files
from asterism.memory.forgetting.needle import Prints, Seeker, Texts, checked
from asterism.memory.forgetting.receipts import Forgetting, Receipt, receipt_of
from asterism.memory.forgetting.redaction import Redactor
from asterism.memory.forgetting.removal import Place, Removed, choice_of
from asterism.memory.forgetting.rows import Columns, Found, sweep_database
from asterism.memory.forgetting.tombstones import (
    Graveyard,
    Tombstone,
    outstanding,
    prints_of,
    unreadable,
)
from asterism.memory.gate.writer import Writer, judge
from asterism.permissions import Act, Resource
from asterism.ports import Clock
from asterism.store import forgetting as store
from asterism.store import search_index
from asterism.store.database import Connection, Database
from asterism.store.forgetting import ForgetRequest
from asterism.types.agents import new_id, now_ms
from asterism.types.memory import Permission

Drop = Callable[[Sequence[str]], Awaitable[None]]
"""Drops what a process holds of agents' memory."""

_MOST_ROUNDS = 3
_TABLES = {
    "passages": ("passages", "constellation = ?"),
    "persons": ("persons", "constellation = ?"),
    "sources": ("sources", "constellation = ?"),
    "blocks": ("blocks", "constellation = ?"),
    "agents": ("agents", "constellation = ?"),
    "turns": ("turns", "agent_id IN (SELECT id FROM agents WHERE constellation = ?)"),
}
_ONE = {
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
) -> Receipt:
    """Forget something everywhere; return the receipt, which is kept with the tombstone.

    Args:
        database: The open database.
        data: The data directory, whose other files are gone through too.
        writer: Who wants it, and why.
        what: What is to be forgotten.
        drop: Drops what the process holds of agents' memory, before all is looked through once
            more: a turn under way may have written it again.
    """
    whole = Resource("memory", "everything", Permission.READ_WRITE)
    judge(writer, Act.DELETE, whole, "forget something for good")
    texts = checked(what.texts)
    if not texts and not what.ids:
        raise InvalidInput("It was not said what to forget. Give a text or an id.")
    await database.read(partial(_check, constellation=writer.constellation, what=what))
    graveyard = Graveyard(data)
    key = await asyncio.to_thread(graveyard.key, make=True)
    assert key is not None
    known = Redactor(Texts(texts))
    stone = Tombstone(
        new_id("tomb"),
        writer.constellation,
        str(writer.actor),
        known.text(writer.reason) if texts else writer.reason,
        what.ids,
        await asyncio.to_thread(prints_of, texts, key),
        writer.now,
    )
    stone = await _bury(database, graveyard, stone, key, what)
    seeker = Texts([*texts, *stone.texts])
    return await _carry_out(database, data, stone.stone, seeker, drop, writer.now)


@dataclass(frozen=True, slots=True)
class _Buried:
    stone: Tombstone
    texts: tuple[str, ...]
    """What was said in what is forgotten by its id."""


async def _bury(
    database: Database, graveyard: Graveyard, stone: Tombstone, key: bytes, what: Forgetting
) -> _Buried:
    """Write down what is to be forgotten before anything is: a crash does not leave it half done.

    What was said in a message or a passage is looked for elsewhere too, so its fingerprints have
    to be on the stone before the rows that say it are gone.
    """
    if not what.ids:
        said: tuple[str, ...] = ()
    else:
        said = await database.read(partial(_said, constellation=stone.constellation, what=what))
    prints = await asyncio.to_thread(prints_of, said, key)
    stone = replace(stone, prints=(*stone.prints, *prints))
    begun = replace(_receipt(stone, Found(), set()), finished=False)
    await asyncio.to_thread(graveyard.add, [stone])
    await database.write(lambda tx: _store(tx, stone, begun))
    return _Buried(stone, said)


async def replay(
    database: Database,
    data: Path,
    constellation: str,
    *,
    everything: bool = False,
    drop: Drop | None = None,
    clock: Clock = now_ms,
) -> Receipt | None:
    """Forget again what an older copy of the database has brought back; None: nothing had.

    Called when a database is opened. It finishes what a crash has interrupted, too. With
    `everything`, also what this database has forgotten before: after an import or new documents.
    """
    graveyard = Graveyard(data)
    stones = await outstanding(database, constellation, graveyard)
    if everything:
        stones = [one for one in graveyard.read() if one.constellation == constellation]
    if not stones:
        return None
    key = await asyncio.to_thread(graveyard.key)
    lost = unreadable(stones, key)
    receipts: list[Receipt] = []
    for stone in stones:
        seeker = Prints(stone.prints, key) if key is not None else Texts(())
        receipts.append(await _carry_out(database, data, stone, seeker, drop, clock(), scrub=False))
    left = await database.scrub()
    if lost:
        left.append(
            f"{lost} forgotten texts cannot be looked for, since tombstones.key of {data} is "
            "another one or missing. Put the right one back."
        )
    return _summed(receipts, left)


def _summed(receipts: Sequence[Receipt], left: list[str]) -> Receipt:
    found = Found(left=left)
    summaries: set[str] = set()
    for one in receipts:
        found.places.update(one.places)
        found.names.update(one.names)
        found.agents.update(one.agents)
        found.left += [said for said in one.unreached if said not in found.left]
        summaries.update(one.summaries)
    last = receipts[-1]
    many = tuple(sorted(summaries))
    return receipt_of(last.id, last.at, last.by, last.reason, found, summaries=many)


# -- carrying it out ---------------------------------------------------------------------------


async def _carry_out(
    database: Database,
    data: Path,
    stone: Tombstone,
    seeker: Seeker,
    drop: Drop | None,
    now: int,
    *,
    scrub: bool = True,
) -> Receipt:
    request = ForgetRequest(stone.constellation, stone.by, now, stone.id)
    found = Found()
    summaries: set[str] = set()
    present = await database.columns()
    for _ in range(_MOST_ROUNDS):
        fresh = await _round(database, present, stone, request, seeker, summaries)
        found.add(fresh)
        changed = sorted(fresh.agents)
        if not changed:
            break
        await database.write(lambda tx, changed=changed: store.note_memory(tx, changed))
        if drop is None:
            break
        await drop(changed)
    found.add(await asyncio.to_thread(sweep_files, data, request, Redactor(seeker), stone.ids))
    if scrub:
        found.left += await database.scrub()
    receipt = _receipt(stone, found, summaries)
    await database.write(lambda tx: _store(tx, stone, receipt))
    return receipt


async def _round(
    database: Database,
    present: Columns,
    stone: Tombstone,
    request: ForgetRequest,
    seeker: Seeker,
    summaries: set[str],
) -> Found:
    """Go through the whole database once."""
    found = Found()
    redactor = Redactor(seeker)
    for schema in _schemas(present, "segments"):
        await database.write(partial(search_index.drop_worn, place=schema))
    # Blocks first: whose an edit is can be told as long as the rows of people and turns are there.
    for schema in _schemas(present, "blocks"):
        turns = await database.read(partial(_turns, present=present, stone=stone, schema=schema))
        chosen = choice_of(turns, stone.ids.get("persons", ()))
        found.add(await sweep_blocks(database, stone.constellation, redactor, chosen, schema))
    for schema in _schemas(present, "entries") if stone.ids else ():
        work = partial(_remove, present=present, stone=stone, request=request, schema=schema)
        removed = await database.write(work)
        found.add(removed.found)
        summaries |= removed.summaries
    found.add(await sweep_database(database, present, request, redactor))
    return found


def _schemas(present: Columns, table: str) -> list[str]:
    """Return what stands before a table's name wherever there is one."""
    return [name.removesuffix(table) for name in present if name.rpartition(".")[2] == table]


async def _turns(tx: Connection, present: Columns, stone: Tombstone, schema: str) -> frozenset[str]:
    return await Place(tx, present, stone.constellation, schema).turns_of(stone.ids)


async def _remove(
    tx: Connection, present: Columns, stone: Tombstone, request: ForgetRequest, schema: str
) -> Removed:
    place = Place(tx, present, stone.constellation, schema)
    await place.forget(stone.ids, request)
    return place.removed


# -- asking the store --------------------------------------------------------------------------


async def _check(tx: Connection, constellation: str, what: Forgetting) -> None:
    for kind, ids in what.ids.items():
        table, whose = _TABLES[kind]
        for one in ids:
            if not await store.ids(tx, table, "id", f"id = ? AND {whose}", (one, constellation)):
                word, listing = _ONE[kind]
                raise NotFound(
                    f'There is no {word} {one!r}. "{listing}" shows them. Nothing was forgotten.'
                )


async def _said(tx: Connection, constellation: str, what: Forgetting) -> tuple[str, ...]:
    """Return what is said in what will be removed."""
    return await Place(tx, {}, constellation).said(what.passages, what.turns)


async def _store(tx: Connection, stone: Tombstone, receipt: Receipt) -> None:
    row = (stone.id, stone.by, stone.reason, stone.marks, receipt.wire(), stone.at)
    await store.put_tombstone(tx, stone.constellation, row)


def _receipt(stone: Tombstone, found: Found, summaries: set[str]) -> Receipt:
    many = tuple(sorted(summaries))
    return receipt_of(stone.id, stone.at, stone.by, stone.reason, found, summaries=many)
