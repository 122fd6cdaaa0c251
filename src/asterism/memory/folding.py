"""Folding a block's oldest loose edits into an era: worked out here, stored by the gate."""

from __future__ import annotations

from dataclasses import dataclass, replace

from asterism.memory import history
from asterism.memory.documents import fold
from asterism.memory.documents.history import StartTooLate
from asterism.memory.history import Stretch, era_blob, schema_of
from asterism.store import blocks as rows
from asterism.store.blocks import EraRow
from asterism.store.database import Connection


@dataclass(frozen=True, slots=True)
class Folding:
    """What takes the place of loose edits, and of eras that it swallows."""

    era: EraRow
    begin: EraRow
    """The open era: where the edits that stay loose start from."""


async def folding(tx: Connection, block_id: str, size: int) -> Folding | None:
    """Work out an era of so many edits, if as many stay loose."""
    *older, loose = await history.stretches_since(tx, block_id, 1 << 62)
    if len(loose.edits) < 2 * size:
        return None
    folded = loose.edits[:size]
    last = folded[-1]
    schema = loose.schema_at(last.number)
    era = replace(loose, edits=folded, ops=[edit.ops for edit in folded if edit.ops])
    while True:
        try:
            ops, end = fold(schema_of(schema), era.start, era.ops, last.version)
            break
        except StartTooLate:
            # Something merged builds on what lay before this era began: then it is one with it.
            older = older or (await history.stretches_since(tx, block_id, 1))[:-1]
            era = _joined(older.pop(), era)
    row = EraRow(era.first, last.number, era.start or b"", ops, era_blob(era), era.edits[0].at)
    begin = Stretch(last.number + 1, end, last.version, schema, loose.blame_at(last.number), [], [])
    since = loose.edits[size].at
    return Folding(row, EraRow(begin.first, rows.OPEN, end, b"", era_blob(begin), since))


def _joined(one: Stretch, other: Stretch) -> Stretch:
    return replace(one, edits=[*one.edits, *other.edits], ops=[*one.ops, *other.ops])


async def era_with_undone(tx: Connection, block_id: str, number: int, by: int) -> EraRow:
    """Return the era of a folded edit, which now says which edit took it back."""
    era = await rows.era_with(tx, block_id, number)
    assert era is not None, "the edit is folded"
    stretch = history.read_era(era)
    edits = [
        edit._replace(undone_by=by) if edit.number == number else edit for edit in stretch.edits
    ]
    return era._replace(edits=era_blob(replace(stretch, edits=edits)))
