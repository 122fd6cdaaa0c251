"""Time travel, reading: what an agent remembered at a moment, and what a turn has written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from asterism.memory import archive, history
from asterism.memory.blocks import SHARED_BY_ALL, Seen, block_of
from asterism.memory.lines import heard_with
from asterism.store import blocks as rows
from asterism.store import travel
from asterism.store.blocks import BlockRow, EditRow
from asterism.store.database import Connection
from asterism.store.passages import PassageEdit
from asterism.store.travel import OnceSeen
from asterism.types.memory import (
    CONSTELLATION,
    BlockType,
    EditRecord,
    Line,
    Mark,
    Origin,
    Passage,
    Permission,
)
from asterism.types.people import OWNER_ALONE, Company

_ORDER = (BlockType.CORE, BlockType.WORKING, BlockType.LOG, BlockType.ARCHIVAL)
_EVERY = 1 << 31


# -- as of a moment --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SourceAt:
    """A source of documents that an agent could read, and how much had been read of it."""

    id: str
    name: str
    documents: int
    passages: int


@dataclass(frozen=True, slots=True)
class MemoryAt:
    """What an agent remembered at a moment."""

    agent_id: str
    moment: int
    blocks: tuple[Seen, ...]
    """What it saw then, as it was then, in the order in which it sees blocks."""
    passages: tuple[Passage, ...]
    """What its archive held then, the latest known first."""
    sources: tuple[SourceAt, ...]
    """Those that are still attached. What was removed from a source leaves no trace."""


async def as_of(
    tx: Connection, constellation: str, agent_id: str, moment: int, *, most: int | None = None
) -> MemoryAt:
    """Return what an agent remembered at a moment in ms; with `most`, only so many passages.

    Who may hear something is told as it was then, so this is for the owner's eyes.
    """
    await archive.archives_of(tx, constellation, agent_id)
    seen: list[Seen] = []
    for once in await travel.blocks_of_then(tx, constellation, agent_id, moment):
        then = await _seen_then(tx, once, agent_id, moment)
        if then is not None:
            seen.append(then)
    held = await archive.listing(
        tx, [agent_id], moment=moment, limit=_EVERY if most is None else most
    )
    sources = await travel.attached_then(tx, agent_id, moment)
    return MemoryAt(
        agent_id=agent_id,
        moment=moment,
        blocks=tuple(sorted(seen, key=_place)),
        passages=tuple(held),
        sources=tuple(SourceAt(*one) for one in sources),
    )


def _place(seen: Seen) -> tuple[int, bool, str, str, str]:
    block = seen.block
    owner = "" if block.owner_id == CONSTELLATION else seen.owner_name or ""
    own = seen.owner_name is None
    return _ORDER.index(block.type), not own, block.label, owner, block.id


async def _seen_then(tx: Connection, once: OnceSeen, agent_id: str, moment: int) -> Seen | None:
    """Return a block as an agent saw it at a moment; None: it did not."""
    now = once.row
    version = await history.version_at(tx, now.id, moment)
    if version == 0:
        return None
    later = await edits_after(tx, now.id, version)
    row, shared = rewound(now, once.shared, later, agent_id)
    stretch = await history.stretch_with(tx, now.id, version, ops=False)
    assert stretch is not None, "edits are numbered without gaps"
    latest = stretch.edit(version)
    own, everybodys = now.owner_id == agent_id, now.owner_id == CONSTELLATION
    if latest.kind == "retire" or not (own or everybodys or shared is not None):
        return None
    lines = (
        await history.raw_lines_at(tx, now.id, version)
        if later
        else rows.read_lines(now.text, now.lines)
    )
    text = "\n".join(line.text for line in lines)
    row = row._replace(version=version, text=text, updated_at=latest.at, retired_at=None)
    return Seen(
        block=(block := block_of(row)),
        permission=Permission(row.permission if own else shared or row.permission),
        owner_name=None if own else once.owner_name or SHARED_BY_ALL,
        lines=heard_with(lines, block.audience),
    )


async def edits_after(tx: Connection, block_id: str, number: int) -> list[EditRow]:
    """Return the edits of a block above a number, the oldest first, across eras."""
    found: list[EditRow] = []
    for era in await travel.eras_after(tx, block_id, number):
        found += [edit for edit in history.read_era(era).edits if edit.number > number]
    return found + await rows.edits(tx, block_id, number + 1, 1 << 62, ops=False)


def rewound(
    row: BlockRow, shared: str | None, later: Sequence[EditRow], agent_id: str
) -> tuple[BlockRow, str | None]:
    """Return what was said of a block, and how it was shared with an agent, before some edits."""
    for edit in reversed(later):
        told = orjson.loads(edit.source)
        row = row._replace(**was_of(told))
        if "share" in told and told["share"][0] == agent_id:
            shared = told["share"][1]
    return row, shared


def was_of(told: dict[str, Any]) -> dict[str, Any]:
    """Return the columns that an edit changed in what is said of a block, as they were."""
    was: dict[str, Any] = dict(told.get("was") or {})
    if "schema" in was:
        was["schema"] = orjson.dumps(was["schema"]).decode()
    return was


# -- where lines come from ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SourcedLine:
    """A line of a block with all that is known of it, whatever its history."""

    text: str
    mark: Mark
    origins: tuple[Origin, ...]


async def lines_with_origins(
    tx: Connection, block_id: str, lines: Sequence[Line], company: Company = OWNER_ALONE
) -> list[SourcedLine]:
    """Return lines of a block with their origins that those present may hear, the first first."""
    numbers = {number for line in lines for number in line.edits}
    sources = {
        number: record.source
        for number, record in (await history.records(tx, block_id, numbers)).items()
        if company.may_hear(record.source.audience)
    }
    found: list[SourcedLine] = []
    for line in lines:
        own = (sources[number].origins for number in line.edits if number in sources)
        origins = dict.fromkeys(origin for origins in own for origin in origins)
        found.append(SourcedLine(line.text, line.mark, tuple(origins)))
    return found


# -- what a turn wrote -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Deeds:
    """What a turn wrote to memory, or what was taken back of it."""

    turn_id: str
    edits: tuple[EditRecord, ...] = ()
    """Of blocks, in order for each."""
    inserted: tuple[Passage, ...] = ()
    passage_edits: tuple[PassageEdit, ...] = ()
    """What was done to passages that were there, in order for each."""
    taken_back_by: str | None = None
    """The id under which it was taken back, with which that can be taken back as well."""
    left: tuple[str, ...] = field(default=())
    """What could not be taken back, and why, in sentences."""

    def __bool__(self) -> bool:
        return bool(self.edits or self.inserted or self.passage_edits)


async def written_by(tx: Connection, constellation: str, turn_id: str) -> Deeds:
    """Return what a turn wrote, whether it still stands or not."""
    edits = await history.of_turn(tx, constellation, turn_id)
    ours: dict[str, bool] = {}
    for edit in edits:
        if edit.block_id not in ours:
            row = await rows.get(tx, edit.block_id)
            ours[edit.block_id] = row is not None and row.constellation == constellation
    return Deeds(
        turn_id,
        tuple(edit for edit in edits if ours[edit.block_id]),
        tuple(await travel.inserted_by(tx, constellation, turn_id)),
        tuple(await travel.passage_edits_by(tx, constellation, turn_id)),
    )


def is_to_take_back(chain: Sequence[str | None], turn_id: str) -> bool:
    """Tell whether a chain of edits stands otherwise than it did before a turn.

    Each edit of a chain takes back the one before it, so the first one is in force when the chain
    is of odd length. `chain` names the turn of each; the turn in question wrote one or more.
    """
    return len(chain) % 2 != list(chain).index(turn_id) % 2


class BlockPast:
    """The edits of one block, read as they are asked for."""

    def __init__(self, tx: Connection, block_id: str) -> None:
        self._tx = tx
        self._block_id = block_id
        self._known: dict[int, EditRow] = {}

    async def edit(self, number: int) -> EditRow:
        """Return an edit."""
        if number not in self._known:
            stretch = await history.stretch_with(self._tx, self._block_id, number, ops=False)
            assert stretch is not None, "an edit names only edits that there are"
            self._known.update({one.number: one for one in stretch.edits})
        return self._known[number]

    async def chain(self, number: int) -> list[EditRow]:
        """Return the chain in which each edit takes back the one before, that an edit is in."""
        found = [await self.edit(number)]
        while (undoes := found[0].undoes) is not None:
            found.insert(0, await self.edit(undoes))
        while (by := found[-1].undone_by) is not None:
            found.append(await self.edit(by))
        return found


UNDOES = "undoes"
"""In `before` of a passage's edit: the number of the edit that it takes back; 0: the insert."""


def passage_chain(edits: Sequence[PassageEdit], number: int) -> list[int]:
    """Return the numbers of the chain that an edit of a passage is in; 0 is its insert."""
    undoes = {one.number: int(one.before[UNDOES]) for one in edits if UNDOES in one.before}
    undone_by = {what: by for by, what in undoes.items()}
    found = [number]
    while found[0] in undoes:
        found.insert(0, undoes[found[0]])
    while found[-1] in undone_by:
        found.append(undone_by[found[-1]])
    return found
