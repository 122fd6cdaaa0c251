"""The history of a block: its edits, what it said at any version or moment, and what changed.

The latest edits lie one by one in `block_edits`; older ones are folded into eras. A stretch is an
era or the loose edits: where it starts from, and what was done since.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import unified_diff
from functools import lru_cache
from typing import Any

import orjson

from asterism.errors import NotFound
from asterism.memory.documents import History, read_schema
from asterism.memory.documents.history import StartTooLate
from asterism.memory.lines import seen_with, spliced
from asterism.store import blocks as rows
from asterism.store.blocks import Blame, BlockRow, EditRow, EraRow
from asterism.store.database import Connection
from asterism.types.memory import EditRecord, Line, Origin, OriginKind, Schema, Source
from asterism.types.people import Audience, Trust

_SET_SCHEMA = ("create", "describe")
_PAGE = 64
_SAME_TURN = "\x7f"
_READER = 1
"""The peer of documents that are only looked at."""


@lru_cache(1_024)
def schema_of(text: str) -> Schema:
    """Return a schema that was stored; the same text is read once."""
    return read_schema(orjson.loads(text))


# -- one edit --------------------------------------------------------------------------------------


def source_json(source: Source, **more: Any) -> str:
    """Return what the history keeps of where an edit comes from, with what else it must know.

    `lines` is how it changed the blame of lines, `schema` a schema that begins with it, `was` what
    a block's description said before.
    """
    told = {
        "origins": [
            [one.kind.value, one.ref, one.detail] if one.detail else [one.kind.value, one.ref]
            for one in source.origins
        ],
        "audience": str(source.audience),
        "trust": source.trust.value,
        **more,
    }
    return orjson.dumps(told).decode()


def read_source(text: str) -> Source:
    """Return where an edit comes from."""
    told = orjson.loads(text)
    return Source(
        tuple(Origin(OriginKind(kind), *rest) for kind, *rest in told["origins"]),
        Audience.read(told["audience"]),
        Trust(told["trust"]),
    )


def record_of(block_id: str, edit: EditRow) -> EditRecord:
    """Return an edit as the history tells it."""
    return EditRecord(
        block_id=block_id,
        number=edit.number,
        kind=edit.kind,
        author=edit.author,
        turn_id=edit.turn_id,
        reason=edit.reason,
        source=read_source(edit.source),
        at=edit.at,
        undone_by=edit.undone_by,
        undoes=edit.undoes,
    )


# -- stretches -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Stretch:
    """A run of edits and where it starts from."""

    first: int
    start: bytes | None
    """The document before the first edit; None: nothing."""
    before: bytes
    """The Loro frontiers there."""
    schema: str | None
    """The schema there; None: the first edit brings it."""
    blame: list[Blame]
    """Whose the lines were there."""
    edits: list[EditRow]
    ops: list[bytes]

    def edit(self, number: int) -> EditRow:
        """Return an edit by its number."""
        return self.edits[number - self.first]

    def version_before(self, number: int) -> bytes:
        """Return the Loro frontiers before an edit of this stretch."""
        return self.before if number == self.first else self.edit(number - 1).version

    def schema_at(self, number: int) -> str:
        """Return the schema, as JSON, that the block had after an edit."""
        found = self.schema
        for edit in self.edits[: number - self.first + 1]:
            if edit.kind in _SET_SCHEMA:
                given = orjson.loads(edit.source).get("schema")
                found = orjson.dumps(given).decode() if given is not None else found
        assert found is not None
        return found

    def blame_at(self, number: int) -> list[Blame]:
        """Return whose the lines were after an edit."""
        found = self.blame
        for edit in self.edits[: number - self.first + 1]:
            change = orjson.loads(edit.source).get("lines")
            if change is not None:
                found = spliced(found, change)
        return found


def era_blob(stretch: Stretch) -> bytes:
    """Return what an era keeps of its edits, and of where it starts from, compressed."""
    told = {
        "before": stretch.before.hex(),
        "schema": stretch.schema,
        "lines": rows.blame_runs(stretch.blame),
        # By column, since neighbours in a column are alike.
        "edits": [
            [column.hex() for column in columns] if name == "version" else list(columns)
            for name, columns in _columns([_packed(edit) for edit in stretch.edits])
        ],
    }
    return zlib.compress(orjson.dumps(told), 9)


def _columns(edits: Sequence[EditRow]) -> Iterable[tuple[str, tuple[Any, ...]]]:
    names = EditRow._fields[:-1]  # the ops lie in the era's own column
    for place, name in enumerate(names):
        yield name, tuple(edit[place] for edit in edits)


def _packed(edit: EditRow) -> EditRow:
    """Write the turn of an edit, which its source mostly names as well, only once."""
    if not edit.turn_id:
        return edit
    # Within JSON the character that stands for the turn can be written in another way.
    source = edit.source.replace(_SAME_TURN, "\\u007f").replace(edit.turn_id, _SAME_TURN)
    return edit._replace(source=source)


def _unpacked(edit: EditRow) -> EditRow:
    if not edit.turn_id:
        return edit
    return edit._replace(source=edit.source.replace(_SAME_TURN, edit.turn_id))


def read_era(era: EraRow) -> Stretch:
    """Read an era; one that is open has no edits yet."""
    told = orjson.loads(zlib.decompress(era.edits))
    place = EditRow._fields.index("version")
    columns: list[list[Any]] = told["edits"]
    if columns:
        columns[place] = [bytes.fromhex(version) for version in columns[place]]
    return Stretch(
        first=era.first,
        start=era.start or None,
        before=bytes.fromhex(told["before"]),
        schema=told["schema"],
        blame=rows.read_blame(told["lines"]),
        edits=[_unpacked(EditRow(*values)) for values in zip(*columns, strict=True)],
        ops=[era.ops] if era.ops else [],
    )


async def stretch_with(
    tx: Connection, block_id: str, number: int, *, ops: bool = True
) -> Stretch | None:
    """Return the stretch that an edit lies in, or None if there is no such edit."""
    era = await rows.era_with(tx, block_id, number)
    if era is not None and era.last != rows.OPEN:
        stretch = read_era(era)
    else:
        stretch = await _loose(tx, block_id, era, ops=ops)
    return stretch if stretch.first <= number < stretch.first + len(stretch.edits) else None


async def _loose(tx: Connection, block_id: str, era: EraRow | None, *, ops: bool) -> Stretch:
    first = era.first if era else 1
    edits = await rows.edits(tx, block_id, first, 1 << 62, ops=ops)
    found = [edit.ops for edit in edits if edit.ops]
    if era is None:
        return Stretch(1, None, empty_version(), None, [], edits, found)
    start = read_era(era)
    return Stretch(first, start.start, start.before, start.schema, start.blame, edits, found)


async def stretches_since(tx: Connection, block_id: str, number: int) -> list[Stretch]:
    """Return the stretch that an edit lies in and all later ones, the earliest first."""
    era = await rows.era_with(tx, block_id, 1 << 62)
    if era is None or era.last != rows.OPEN:
        return [await _loose(tx, block_id, None, ops=True)]
    found = [await _loose(tx, block_id, era, ops=True)]
    # One by one, so that the way back costs no more the longer the past before it is.
    while era.first > number and (era := await rows.era_with(tx, block_id, era.first - 1)):
        found.append(read_era(era))
    return found[::-1]


@lru_cache(1)
def empty_version() -> bytes:
    """Return the Loro frontiers of a document in which nothing was done."""
    from loro import Frontiers

    return Frontiers().encode()


# -- loading ---------------------------------------------------------------------------------------


async def load(tx: Connection, block_id: str, schema: Schema, number: int, peer: int) -> History:
    """Load a block under a schema with its past, back to before an edit."""
    try:
        return _load(await stretches_since(tx, block_id, number), schema, number, peer)
    except StartTooLate:
        return _load(await stretches_since(tx, block_id, 1), schema, number, peer)


def _load(stretches: Sequence[Stretch], schema: Schema, number: int, peer: int) -> History:
    """Load from the latest start that does.

    What was merged from another replica may build on what lay before a start; then an earlier
    start is needed, and the empty document always does.
    """
    starts = [place for place, one in enumerate(stretches) if one.first <= number] or [0]
    for place in reversed(starts):
        ops = [blob for stretch in stretches[place:] for blob in stretch.ops]
        try:
            return History.load(schema, stretches[place].start, ops, peer)
        except StartTooLate:
            if place == 0:
                raise
    raise AssertionError("a block's history begins somewhere")


# -- what is asked of it ---------------------------------------------------------------------------


async def _row(tx: Connection, block_id: str) -> BlockRow:
    row = await rows.get(tx, block_id)
    if row is None:
        raise NotFound(f"There is no block {block_id!r}.")
    return row


async def edits(
    tx: Connection, block_id: str, *, limit: int, before: int | None = None
) -> list[EditRecord]:
    """Return the edits of a block, the newest first; `before` is a number to go on from."""
    below = before if before is not None else 1 << 62
    found = await rows.newest_edits(tx, block_id, below, limit)
    lowest = found[-1].number if found else below
    while len(found) < limit and (era := await rows.era_with(tx, block_id, lowest - 1)):
        if era.last != rows.OPEN:
            folded = [edit for edit in reversed(read_era(era).edits) if edit.number < lowest]
            found += folded[: limit - len(found)]
        lowest = era.first
    return [record_of(block_id, edit) for edit in found]


async def latest(
    tx: Connection,
    block_id: str,
    kinds: Sequence[str],
    fits: Callable[[EditRow, bool], bool],
    above: int = 0,
) -> EditRow | None:
    """Return the latest edit of some kinds that fits, above a number.

    `fits` is told whether the edit stands: it does unless one that stands has taken it back.
    """
    stands: dict[int, bool] = {}

    def found_in(edits: Iterable[EditRow]) -> Iterator[EditRow | None]:
        # From the newest on, so that of each edit it is known whether what took it back stands.
        for edit in edits:
            if edit.number <= above:
                yield None
                return
            stands[edit.number] = edit.undone_by is None or not stands[edit.undone_by]
            if edit.kind in kinds and fits(edit, stands[edit.number]):
                yield edit
                return

    before = 1 << 62
    while page := await rows.newest_edits(tx, block_id, before, _PAGE):
        for found in found_in(page):
            return found
        before = page[-1].number
    while (era := await rows.era_with(tx, block_id, before - 1)) is not None:
        for found in found_in(reversed(read_era(era).edits)):
            return found
        before = era.first
    return None


async def standing(tx: Connection, block_id: str, number: int) -> EditRow | None:
    """Return the edit by which what an edit wrote stands, itself or a redo; None if none does.

    Raises `NotFound` if there is no edit of that number.
    """
    while True:
        stretch = await stretch_with(tx, block_id, number, ops=False)
        if stretch is None:
            raise NotFound(f"There is no edit {number}.")
        edit = stretch.edit(number)
        if edit.undone_by is None:
            return edit
        taker = await stretch_with(tx, block_id, edit.undone_by, ops=False)
        assert taker is not None
        again = taker.edit(edit.undone_by).undone_by
        if again is None:
            return None
        number = again


async def records(tx: Connection, block_id: str, numbers: Iterable[int]) -> dict[int, EditRecord]:
    """Return edits by their numbers; what is not there is left out."""
    found: dict[int, EditRecord] = {}
    missing = sorted(set(numbers), reverse=True)
    while missing:
        stretch = await stretch_with(tx, block_id, missing[0], ops=False)
        if stretch is None:
            missing.pop(0)
            continue
        for number in [one for one in missing if one >= stretch.first]:
            found[number] = record_of(block_id, stretch.edit(number))
        missing = [one for one in missing if one < stretch.first]
    return found


async def of_turn(tx: Connection, constellation: str, turn_id: str) -> list[EditRecord]:
    """Return every edit that a turn made, in all blocks, the oldest first in each."""
    found = [record_of(block, edit) for block, edit in await rows.edits_of_turn(tx, turn_id)]
    for block_id, era in await rows.folded_eras(tx, constellation):
        found += [
            record_of(block_id, edit) for edit in read_era(era).edits if edit.turn_id == turn_id
        ]
    return sorted(found, key=lambda one: (one.block_id, one.number))


async def version_at(tx: Connection, block_id: str, moment: int) -> int:
    """Return the version that a block had at a moment; 0: it was not there yet."""
    loose = await rows.last_edit_until(tx, block_id, moment)
    if loose is not None:
        return loose
    era = await rows.era_at(tx, block_id, moment)
    if era is None:
        return 0
    return max(edit.number for edit in read_era(era).edits if edit.at <= moment)


async def lines_at(
    tx: Connection, block_id: str, *, version: int | None = None, moment: int | None = None
) -> list[Line]:
    """Return the lines of a block as of a version, or a moment in ms, or now.

    Their labels include who may hear the block. Before its first edit a block has no lines.
    """
    row = await _row(tx, block_id)
    if version is None:
        version = row.version if moment is None else await version_at(tx, block_id, moment)
    if not 0 <= version <= row.version:
        raise NotFound(
            f"Block {row.label!r} has no version {version}; its versions go from 1 to "
            f"{row.version}."
        )
    audience = Audience.read(row.audience)
    if version == row.version:
        return list(seen_with(rows.read_lines(row.text, row.lines), audience))
    return list(seen_with(await raw_lines_at(tx, block_id, version), audience))


async def raw_lines_at(
    tx: Connection, block_id: str, version: int, past: History | None = None
) -> list[Line]:
    """Return the lines as of a version, with their own labels only.

    With a `past` at hand that goes back so far, nothing has to be loaded again.
    """
    if version == 0:
        return []
    stretch = await stretch_with(tx, block_id, version, ops=past is None)
    assert stretch is not None, "edits are numbered without gaps"
    schema = schema_of(stretch.schema_at(version))
    wanted = stretch.edit(version).version
    if past is None or past.document.schema != schema:
        past = await _loaded_at(tx, block_id, schema, stretch, version)
    texts = past.at(wanted).lines()
    return [
        Line(text, numbers, label)
        for text, (numbers, label) in zip(texts, stretch.blame_at(version), strict=True)
    ]


async def _loaded_at(
    tx: Connection, block_id: str, schema: Schema, stretch: Stretch, version: int
) -> History:
    try:
        if stretch.ops:
            return History.load(schema, stretch.start, stretch.ops, _READER)
    except StartTooLate:
        pass
    return await load(tx, block_id, schema, version, _READER)


def unified(old: Sequence[str], new: Sequence[str], before: str, after: str) -> str:
    """Return what changed between two texts, given by their lines, as a unified diff."""
    return "\n".join(unified_diff(old, new, before, after, lineterm=""))


async def ops_of(tx: Connection, block_id: str, since_version: bytes | None) -> bytes:
    """Return what another replica of a block has to merge.

    Args:
        tx: The transaction.
        block_id: The block.
        since_version: The `loro_version` that this replica had when it was last asked; None, or
            one that it does not know, gives everything. What is known already does no harm.
    """
    row = await _row(tx, block_id)
    stretches = await stretches_since(tx, block_id, 1)
    since = empty_version()
    number = 1
    if since_version is not None:
        for stretch in stretches:
            for edit in stretch.edits:
                if edit.version == since_version:
                    since, number = since_version, edit.number
    return _load(stretches, schema_of(row.schema), number, _READER).document.ops_since(since)


async def loro_version(tx: Connection, block_id: str) -> bytes:
    """Return the Loro frontiers of a block as it is now."""
    row = await _row(tx, block_id)
    latest = await stretch_with(tx, block_id, row.version, ops=False)
    assert latest is not None
    return latest.edit(row.version).version
