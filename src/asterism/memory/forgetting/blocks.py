"""Writing a block's history anew without a text.

Loro's operations are exported as JSON, the text is covered character by character in those that
wrote it, and the document is made again from them. So every operation keeps its id and its length:
numbers, versions, blame by line, undo and merging with other replicas work as before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import orjson

from asterism.errors import AsterismError
from asterism.memory.documents import Document
from asterism.memory.documents.storage import LoroRefused, loro_errors
from asterism.memory.forgetting.columns import TABLES
from asterism.memory.forgetting.operations import (
    between,
    cover,
    said_at,
    take_in,
    update_between,
    written_by,
    written_in,
)
from asterism.memory.forgetting.redaction import FORGOTTEN, Redactor, TextMatcher
from asterism.memory.forgetting.rows import SweepResult
from asterism.memory.history import era_blob, read_era, schema_of
from asterism.store import forgetting as store
from asterism.store.blocks import EditRow, EraRow
from asterism.store.database import Connection, Database

if TYPE_CHECKING:
    from loro import Frontiers, LoroDoc

_ATTEMPTS = 5
_READER = 1


Choice = Callable[[EditRow], bool]
"""Says of an edit whether all that it wrote is to be forgotten."""


@dataclass(slots=True)
class _Block:
    """All that is kept of a block's document, as it was read."""

    id: str
    version: int
    schema: str
    owner_id: str
    eras: list[EraRow]
    edits: list[EditRow]
    """The loose ones."""


@dataclass(slots=True)
class _Rewritten:
    text: str
    snapshot: bytes
    eras: list[EraRow]
    edits: list[EditRow]
    found: int


def no_edit(_: EditRow) -> bool:
    """Choose no edit."""
    return False


async def sweep_blocks(
    database: Database,
    constellation: str,
    redactor: Redactor,
    chosen: Choice = no_edit,
    place: str = "",
) -> SweepResult:
    """Take it out of every version of every block of an open database."""
    found = SweepResult()
    for block_id in await database.read(partial(_ids, place=place, constellation=constellation)):
        for _ in range(_ATTEMPTS):
            block = await database.read(partial(_read, place=place, block_id=block_id))
            made = await asyncio.to_thread(_tried, partial(rewritten, block, redactor, chosen))
            if isinstance(made, str):
                found.left.append(f"Block {block_id} could not be written anew ({made}).")
            if not isinstance(made, _Rewritten):
                break
            if await database.write(partial(_write, place=place, block=block, made=made)):
                found.places[f"{place}blocks.text"] += made.found
                seers = partial(_seers, place=place, block_id=block_id)
                found.agents |= set(await database.read(seers))
                break
        else:
            found.left.append(f"Block {block_id} was edited all the time. Forget the same again.")
    return found


async def end_pasts(
    database: Database, constellation: str, owner: str | None, moment: int
) -> SweepResult:
    """Forget what blocks, all or those of one agent, said before a moment and not since."""
    found = SweepResult()
    for block_id in await database.read(partial(_ids, place="", constellation=constellation)):
        block = await database.read(partial(_read, place="", block_id=block_id))
        if owner is not None and block.owner_id != owner:
            continue
        made = await asyncio.to_thread(_tried, partial(without_past, block, moment))
        if isinstance(made, _Rewritten) and await database.write(
            partial(_write, place="", block=block, made=made)
        ):
            found.places["block history"] += made.found
    return found


async def sweep_blocks_of(
    tx: Connection,
    constellation: str,
    redactor: Redactor,
    chosen: Choice = no_edit,
    place: str = "",
) -> SweepResult:
    """Take it out of every version of every block in one transaction."""
    found = SweepResult()
    for block_id in await _ids(tx, place, constellation):
        block = await _read(tx, place, block_id)
        made = _tried(partial(rewritten, block, redactor, chosen))
        if isinstance(made, _Rewritten):
            await _write(tx, place, block, made)
            found.places[f"{place}blocks.text"] += made.found
        elif made is not None:
            found.left.append(f"Block {block_id} could not be written anew ({made}).")
    return found


# -- rows --------------------------------------------------------------------------------------

_EDIT = "number, kind, author, turn_id, reason, source, undoes, undone_by, version, at, ops"


async def _ids(tx: Connection, place: str, constellation: str) -> list[str]:
    whose = TABLES["blocks"].whose
    return await store.ids(tx, f"{place}blocks", "id", whose, (constellation,))


async def _seers(tx: Connection, place: str, block_id: str) -> list[str]:
    """Return the agents that see a block."""
    rows = await tx.all(
        f"SELECT a.id FROM {place}agents a JOIN {place}blocks b"
        " ON b.constellation = a.constellation"
        " WHERE b.id = ? AND (b.owner_id = a.id OR b.owner_id = '' OR EXISTS (SELECT 1 FROM"
        f" {place}block_agents s WHERE s.block_id = b.id AND s.agent_id = a.id))",
        (block_id,),
    )
    return [row[0] for row in rows]


async def _read(tx: Connection, place: str, block_id: str) -> _Block:
    own = (block_id,)
    row = await tx.one(f"SELECT version, schema, owner_id FROM {place}blocks WHERE id = ?", own)
    eras = await tx.all(
        f"SELECT first, last, start, ops, edits, since FROM {place}block_eras"
        " WHERE block_id = ? ORDER BY first",
        own,
    )
    edits = await tx.all(
        f"SELECT {_EDIT} FROM {place}block_edits WHERE block_id = ? ORDER BY number", own
    )
    version, schema, owner = row or (0, "", "")
    past = [EraRow.read(one) for one in eras], [EditRow(*one) for one in edits]
    return _Block(block_id, version, schema, owner, *past)


async def _write(tx: Connection, place: str, block: _Block, made: _Rewritten) -> bool:
    """Store the block written anew; False if it was edited since it was read."""
    whole = {"text": made.text, "snapshot": made.snapshot}
    if not await store.change(
        tx, f"{place}blocks", {"id": block.id}, {"version": block.version}, whole
    ):
        return False
    for era in made.eras:
        key = {"block_id": block.id, "first": era.first}
        stored = era.stored
        new = {"start": stored.start, "ops": stored.ops, "edits": stored.edits}
        await store.change(tx, f"{place}block_eras", key, {}, new)
    for edit in made.edits:
        key = {"block_id": block.id, "number": edit.number}
        new = {"ops": edit.ops, "reason": edit.reason}
        await store.change(tx, f"{place}block_edits", key, {}, new)
    return True


# -- the document ------------------------------------------------------------------------------


def _tried(make: Callable[[], _Rewritten | None]) -> _Rewritten | str | None:
    """Return a block written anew, or why it cannot be: its bytes may be damaged."""
    try:
        with loro_errors():
            return make()
    except (LoroRefused, AsterismError) as error:
        return str(error)


def rewritten(block: _Block, redactor: Redactor, chosen: Choice = no_edit) -> _Rewritten | None:
    """Return a block's document and history without it, or None if it is nowhere in them."""
    whole, updates = _operations(block)
    past = _past(block)
    before = redactor.found
    gone = [edit for edit in past if chosen(edit)]
    covered = written_by(whole, updates, [edit.version for edit in past], redactor)
    covered |= written_in(whole, past, gone)
    if not cover(updates, covered, redactor):
        return None
    numbers = {edit.number for edit in gone}
    return _made(block, updates, numbers, redactor.found - before + len(gone))


def _operations(block: _Block) -> tuple[LoroDoc, dict[str, Any]]:
    """Return a block's document with all of its past, and its operations as JSON."""
    from loro import LoroDoc, VersionVector

    whole = LoroDoc()
    for era in block.eras:
        take_in(whole, era.start if era is block.eras[0] else b"", era.ops)
    take_in(whole, *(edit.ops for edit in block.edits))
    return whole, orjson.loads(whole.export_json_updates(VersionVector(), whole.oplog_vv))


def _made(block: _Block, updates: dict[str, Any], gone: set[int], found: int) -> _Rewritten:
    """Make a block again from its operations."""
    from loro import ExportMode, LoroDoc

    clean = LoroDoc()
    clean.import_json_updates(orjson.dumps(updates).decode())
    snapshot = clean.export(ExportMode.ShallowSnapshot(clean.oplog_frontiers))
    return _Rewritten(
        Document.load(schema_of(block.schema), snapshot, _READER).text,
        snapshot,
        list(_eras_anew(clean, block, gone)),
        list(_edits_anew(clean, block, gone)),
        found,
    )


def without_past(block: _Block, moment: int) -> _Rewritten | None:
    """Return a block of which nothing is left that it said before a moment and not since.

    Its edits stay in the history with their authors and times; what they wrote is covered.
    """
    from loro import Frontiers

    past = _past(block)
    old = [edit for edit in past if edit.at < moment and edit.reason != FORGOTTEN]
    if not old:
        return None
    whole, updates = _operations(block)
    last = max(edit.number for edit in past if edit.at < moment)
    state = Frontiers.decode(next(edit.version for edit in past if edit.number == last))
    kept, values = said_at(whole, updates, state)
    span = between(whole, Frontiers(), state)
    covered = {
        (one.peer, counter) for one in span for counter in range(one.counter.start, one.counter.end)
    } - kept
    changed = cover(updates, covered, Redactor(TextMatcher(())), values)
    numbers = {edit.number for edit in old}
    return _made(block, updates, numbers, len(numbers)) if changed else None


def _past(block: _Block) -> list[EditRow]:
    """Return all edits of a block, the oldest first."""
    folded = [edit for era in block.eras for edit in read_era(era).edits]
    return [*folded, *block.edits]


def _edits_anew(clean: LoroDoc, block: _Block, gone: set[int]) -> Iterable[EditRow]:
    from loro import Frontiers

    before = _start_of(block.eras[-1].start) if block.eras else Frontiers()
    for edit in block.edits:
        after = Frontiers.decode(edit.version)
        ops = update_between(clean, before, after) if edit.ops else edit.ops
        reason = FORGOTTEN if edit.number in gone and edit.reason else edit.reason
        yield edit._replace(ops=ops, reason=reason)
        before = after


def _eras_anew(clean: LoroDoc, block: _Block, gone: set[int]) -> Iterable[EraRow]:
    from loro import ExportMode, Frontiers, LoroDoc

    # Forwards, since Loro goes back in time slowly, and a snapshot holds all that comes after it.
    walk = LoroDoc()
    here = Frontiers()
    for place, era in enumerate(block.eras):
        start = era.start
        if start:
            take_in(walk, update_between(clean, here, _start_of(era.start)))
            here = walk.oplog_frontiers
            start = walk.export(ExportMode.ShallowSnapshot(here))
        ops = era.ops and update_between(clean, here, _start_of(block.eras[place + 1].start))
        stretch = read_era(era)
        told = [
            edit._replace(reason=FORGOTTEN) if edit.number in gone and edit.reason else edit
            for edit in stretch.edits
        ]
        edits = era.edits if told == stretch.edits else era_blob(replace(stretch, edits=told))
        yield era._replace(start=start, ops=ops, edits=edits)


def _start_of(start: bytes) -> Frontiers:
    from loro import LoroDoc

    document = LoroDoc()
    take_in(document, start)
    return document.oplog_frontiers
