"""Time travel, reading: what an agent remembered at a moment, and what a turn has written."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from asterism.memory import archive, blocks, history
from asterism.memory.blocks import SHARED_BY_ALL, Seen, block_of, heard_by
from asterism.memory.editing import is_visible
from asterism.memory.lines import seen_with
from asterism.store import blocks as rows
from asterism.store import documents, travel
from asterism.store.blocks import BlockRow, EditRow
from asterism.store.database import Connection
from asterism.store.passages import PassageEdit
from asterism.store.travel import OnceSeen
from asterism.types.memory import (
    CONSTELLATION,
    Block,
    BlockType,
    EditRecord,
    Line,
    Origin,
    Passage,
    Permission,
)
from asterism.types.people import OWNER_ALONE, Audience, Label, Participants

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
    tx: Connection,
    constellation: str,
    agent_id: str,
    moment: int,
    *,
    most: int | None = None,
    participants: Participants = OWNER_ALONE,
) -> MemoryAt:
    """Return what an agent remembered at a moment in ms; with `most`, only so many passages.

    Who may hear something is told as it was then. What those present may not hear is left out,
    whether they could not then or cannot now.
    """
    await archive.archives_of(tx, constellation, agent_id)
    seen: list[Seen] = []
    for once in await travel.blocks_of_then(tx, constellation, agent_id, moment):
        if not participants.can_see(Audience.read(once.row.audience)):
            continue
        then = await _seen_then(tx, once, agent_id, moment)
        heard = heard_by(then, participants) if then is not None else None
        if heard is not None:
            seen.append(heard)
    held = await archive.listing(
        tx,
        [agent_id],
        participants=participants,
        moment=moment,
        limit=_EVERY if most is None else most,
    )
    open_to = {
        one.id
        for one in await documents.sources(tx, constellation)
        if participants.can_see(one.audience)
    }
    sources = [one for one in await travel.attached_then(tx, agent_id, moment) if one[0] in open_to]
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
        lines=seen_with(lines, block.audience),
    )


async def visible_edits(
    tx: Connection, block_id: str, participants: Participants
) -> dict[int, tuple[EditRow, Audience]]:
    """Return the edits of a block that those present may hear, with who might hear it after each.

    A block may have been for fewer people once: what was written then is not for all who hear it
    now.
    """
    row = await rows.get(tx, block_id)
    assert row is not None, "it was found with this transaction"
    found: dict[int, tuple[EditRow, Audience]] = {}
    if not participants.can_see(after := Audience.read(row.audience)):
        return found
    for edit in reversed(await edits_after(tx, block_id, 0)):
        told = orjson.loads(edit.source)
        if participants.can_see(after) and participants.can_see(Audience.read(told["audience"])):
            found[edit.number] = (edit, after)
        was = was_of(told).get("audience")
        after = after if was is None else Audience.read(was)
    return found


async def visible_lines_at(
    tx: Connection, block: Block, version: int, participants: Participants
) -> list[Line] | None:
    """Return the lines of a block at a version that those present may hear, then and now.

    None: there is no such version for them.
    """
    if participants.owner_alone:
        return await history.lines_at(tx, block.id, version=version)
    edits = await visible_edits(tx, block.id, participants)
    if version not in edits or not participants.can_see(edits[version][1]):
        return None
    return [
        line
        for line in await history.lines_at(tx, block.id, version=version)
        if is_visible(block.schema, line, block.audience, participants)
    ]


async def blame_for(
    tx: Connection, seen: Seen, participants: Participants
) -> list[tuple[Line, list[EditRecord]]]:
    """Return the lines of a block that those present see, each with the edits they may hear of."""
    found = await blocks.blame(tx, seen.block.id)
    if participants.owner_alone:
        return found
    heard = await visible_edits(tx, seen.block.id, participants)
    return [
        (line, [one for one in records if one.number in heard])
        for line, records in found
        if line in seen.lines
    ]


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
    label: Label
    origins: tuple[Origin, ...]


async def lines_with_origins(
    tx: Connection, block_id: str, lines: Sequence[Line], participants: Participants = OWNER_ALONE
) -> list[SourcedLine]:
    """Return lines of a block with their origins that those present may hear, the first first."""
    numbers = {number for line in lines for number in line.edits}
    sources = {
        number: record.source
        for number, record in (await history.records(tx, block_id, numbers)).items()
        if participants.can_see(record.source.audience)
    }
    found: list[SourcedLine] = []
    for line in lines:
        own = (sources[number].origins for number in line.edits if number in sources)
        origins = dict.fromkeys(origin for origins in own for origin in origins)
        found.append(SourcedLine(line.text, line.label, tuple(origins)))
    return found


# -- what a turn wrote -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Effects:
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


async def written_by(
    tx: Connection, constellation: str, turn_id: str, *, participants: Participants = OWNER_ALONE
) -> Effects:
    """Return what a turn wrote, whether it still stands or not, as far as those present hear it."""
    edits = await history.of_turn(tx, constellation, turn_id)
    heard: dict[str, Collection[int]] = {}
    for edit in edits:
        if edit.block_id not in heard:
            row = await rows.get(tx, edit.block_id)
            if row is None or row.constellation != constellation:
                heard[edit.block_id] = ()
            elif participants.owner_alone:
                heard[edit.block_id] = [one.number for one in edits]
            else:
                heard[edit.block_id] = await visible_edits(tx, edit.block_id, participants)
    changed = await travel.passage_edits_by(tx, constellation, turn_id)
    if not participants.owner_alone:
        touched = {one.passage_id for one in changed}
        kept = [
            one
            for id in touched
            for one in await archive.visible_history(tx, constellation, id, participants)
        ]
        changed = [one for one in changed if one in kept]
    return Effects(
        turn_id,
        tuple(edit for edit in edits if edit.number in heard[edit.block_id]),
        tuple(
            one
            for one in await travel.inserted_by(tx, constellation, turn_id)
            if participants.can_see(one.source.audience)
        ),
        tuple(changed),
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
