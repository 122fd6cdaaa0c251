"""The history of blocks: edits, versions, what an agent remembered at a moment, what a turn wrote.

The latest edits lie one by one in `block_edits`; older ones are squashed into eras. A run of edits
is an era or the loose ones: the content that it starts from, and what was done since.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import field, replace
from typing import Any

import orjson

from asterism.errors import NotFound
from asterism.memory import archive
from asterism.memory import blocks as rows
from asterism.memory.blocks import (
    SHARED_BY_ALL,
    Blame,
    BlockRow,
    EditRow,
    EraRow,
    PastBlock,
    VisibleBlock,
    as_visible_to,
    block_of,
    is_visible,
    order,
    read_source,
    splice_blame,
    with_full_labels,
)
from asterism.memory.content import Change, Parts, apply_change, damaged_content
from asterism.memory.edits import BlockContent
from asterism.memory.schemas import schema_of
from asterism.memory.texts import unified_diff
from asterism.records import dataclass
from asterism.store import documents, passages
from asterism.store.database import Connection
from asterism.store.passages import PassageEdit
from asterism.times import Moment
from asterism.types.agents import OWNER_ALONE, Audience, Label, Participants
from asterism.types.memory import (
    CONSTELLATION,
    Block,
    EditRecord,
    Line,
    Origin,
    Passage,
    Permission,
)

_SET_SCHEMA = ("create", "describe")
_PAGE = 64
_SAME_TURN = "\x7f"
_LAST = 1 << 62
_EVERY = 1 << 31


def record_of(block_id: str, edit: EditRow) -> EditRecord:
    """Return the record of an edit."""
    return EditRecord(
        block_id=block_id,
        number=edit.number,
        kind=edit.kind,
        author=edit.author,
        turn_id=edit.turn_id,
        reason=edit.reason,
        source=read_source(edit.source),
        at_ms=edit.at,
        undone_by=edit.undone_by,
        undoes=edit.undoes,
    )


# -- runs of edits ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class EditRun:
    """Consecutive edits, and the content from which they start."""

    first: int
    start: Parts
    """The content before the first edit."""
    schema: str | None
    """The schema there; None: the first edit brings it."""
    blame: list[Blame]
    """Whose the lines were there."""
    edits: list[EditRow]

    def edit(self, number: int) -> EditRow:
        """Return an edit by its number."""
        return self.edits[number - self.first]

    def upto(self, number: int) -> list[EditRow]:
        """Return the edits up to a number."""
        return self.edits[: number - self.first + 1]

    def parts_at(self, number: int) -> Parts:
        """Return the content after an edit, or before the first one."""
        parts = self.start
        for edit in self.upto(number):
            parts = apply_change(parts, change_of(edit)) if edit.change else parts
        return parts

    def schema_at(self, number: int) -> str:
        """Return the schema, as JSON, that the block had after an edit."""
        schema = self.schema
        for edit in self.upto(number):
            if edit.kind in _SET_SCHEMA:
                wire = orjson.loads(edit.source).get("schema")
                schema = orjson.dumps(wire).decode() if wire is not None else schema
        assert schema is not None
        return schema

    def blame_at(self, number: int) -> list[Blame]:
        """Return the blame of the lines after an edit."""
        blame = self.blame
        for edit in self.upto(number):
            change = orjson.loads(edit.source).get("lines")
            if change is not None:
                blame = splice_blame(blame, change)
        return blame


def change_of(edit: EditRow) -> Change:
    """Return what an edit made of the content."""
    return orjson.loads(edit.change) if edit.change else {}


def write_era(run: EditRun, last: int) -> EraRow:
    """Return a run of edits as an era that is stored."""
    content = {"start": run.start, "changes": [edit.change for edit in run.edits]}
    edits_wire = {
        "schema": run.schema,
        "lines": rows.blame_runs(run.blame),
        # By column, since neighbours in a column are alike.
        "edits": list(zip(*[_packed(edit)[:-1] for edit in run.edits], strict=True)),
    }
    since = run.edits[0].at if run.edits else 0
    return EraRow(run.first, last, _compressed(content), _compressed(edits_wire), since)


def _compressed(value: Any) -> bytes:
    return zlib.compress(orjson.dumps(value), 9)


def _decompressed(blob: bytes) -> Any:
    try:
        return orjson.loads(zlib.decompress(blob))
    except (zlib.error, orjson.JSONDecodeError) as error:
        raise damaged_content(error) from error


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


def read_era(era: EraRow) -> EditRun:
    """Read an era; one that is open has no edits yet."""
    content, edits_wire = _decompressed(era.content), _decompressed(era.edits)
    columns = (
        zip(*edits_wire["edits"], content["changes"], strict=True) if edits_wire["edits"] else ()
    )
    return EditRun(
        first=era.first,
        start=content["start"],
        schema=edits_wire["schema"],
        blame=rows.read_blame(edits_wire["lines"]),
        edits=[_unpacked(EditRow(*values)) for values in columns],
    )


async def run_with(
    tx: Connection, block_id: str, number: int, *, changes: bool = True
) -> EditRun | None:
    """Return the run that an edit lies in, or None if there is no such edit."""
    era = await rows.era_with(tx, block_id, number)
    if era is not None and era.last != rows.OPEN:
        run = read_era(era)
    else:
        run = await _loose(tx, block_id, era, changes=changes)
    return run if run.first <= number < run.first + len(run.edits) else None


async def _loose(
    tx: Connection, block_id: str, era: EraRow | None, *, changes: bool = True
) -> EditRun:
    first = era.first if era else 1
    edits = await rows.edits(tx, block_id, first, _LAST, changes=changes)
    start = read_era(era) if era else EditRun(1, {}, None, [], [])
    return replace(start, edits=edits)


async def runs_since(tx: Connection, block_id: str, number: int) -> list[EditRun]:
    """Return the run that an edit lies in and all later ones, the earliest first."""
    era = await rows.era_with(tx, block_id, _LAST)
    runs = [await _loose(tx, block_id, era)]
    # One by one, so that the way back costs no more the longer the past before it is.
    while era and era.first > number and (era := await rows.era_with(tx, block_id, era.first - 1)):
        runs.append(read_era(era))
    return runs[::-1]


async def parts_and_since(
    tx: Connection, block_id: str, number: int
) -> tuple[Parts, Parts, list[Change]]:
    """Return a block's content before and after an edit, and what has changed it since."""
    run, *later = await runs_since(tx, block_id, number)
    before = run.parts_at(number - 1)
    edit, *rest = run.edits[number - run.first :]
    rest += [later_edit for later_run in later for later_edit in later_run.edits]
    return (
        before,
        apply_change(before, change_of(edit)),
        [change_of(later_edit) for later_edit in rest],
    )


# -- squashing -------------------------------------------------------------------------------------


async def squash_era(tx: Connection, block_id: str, size: int) -> tuple[EraRow, EraRow] | None:
    """Work out an era of the oldest loose edits, if as many stay loose, and where those start.

    The gate stores both.
    """
    loose = await _loose(tx, block_id, await rows.era_with(tx, block_id, _LAST))
    if len(loose.edits) < 2 * size:
        return None
    old, rest = loose.edits[:size], loose.edits[size:]
    last = old[-1].number
    start = EditRun(last + 1, loose.parts_at(last), loose.schema_at(last), loose.blame_at(last), [])
    begin = write_era(start, rows.OPEN)._replace(since=rest[0].at)
    return write_era(replace(loose, edits=old), last), begin


async def era_with_undone(tx: Connection, block_id: str, number: int, by: int) -> EraRow:
    """Return the era of a squashed edit, which now says which edit took it back."""
    era = await rows.era_with(tx, block_id, number)
    assert era is not None, "the edit is squashed"
    return era_with_edits(
        era, lambda edit: edit._replace(undone_by=by) if edit.number == number else edit
    )


def era_with_edits(era: EraRow, change: Callable[[EditRow], EditRow]) -> EraRow:
    """Return an era with other things said of its edits."""
    run = read_era(era)
    return write_era(replace(run, edits=[change(edit) for edit in run.edits]), era.last)


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
    edit_rows = await rows.newest_edits(tx, block_id, below, limit)
    lowest = edit_rows[-1].number if edit_rows else below
    while len(edit_rows) < limit and (era := await rows.era_with(tx, block_id, lowest - 1)):
        if era.last != rows.OPEN:
            squashed = [edit for edit in reversed(read_era(era).edits) if edit.number < lowest]
            edit_rows += squashed[: limit - len(edit_rows)]
        lowest = era.first
    return [record_of(block_id, edit) for edit in edit_rows]


async def latest(
    tx: Connection,
    block_id: str,
    kinds: Sequence[str],
    fits: Callable[[EditRow, bool], bool],
    above: int = 0,
) -> EditRow | None:
    """Return the latest edit of some kinds that fits, above a number.

    The second argument of `fits` tells whether the edit is in force: no edit that is in force has
    taken it back.
    """
    stands: dict[int, bool] = {}

    def matching(edits: Iterable[EditRow]) -> Iterator[EditRow | None]:
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
        for edit in matching(page):
            return edit
        before = page[-1].number
    while (era := await rows.era_with(tx, block_id, before - 1)) is not None:
        for edit in matching(reversed(read_era(era).edits)):
            return edit
        before = era.first
    return None


async def standing(tx: Connection, block_id: str, number: int) -> EditRow | None:
    """Return the edit that keeps the text of an edit in force, itself or a redo; else None.

    Raises `NotFound` if there is no edit of that number.
    """
    while True:
        run = await run_with(tx, block_id, number, changes=False)
        if run is None:
            raise NotFound(f"There is no edit {number}.")
        edit = run.edit(number)
        if edit.undone_by is None:
            return edit
        taker = await run_with(tx, block_id, edit.undone_by, changes=False)
        assert taker is not None
        again = taker.edit(edit.undone_by).undone_by
        if again is None:
            return None
        number = again


async def records(tx: Connection, block_id: str, numbers: Iterable[int]) -> dict[int, EditRecord]:
    """Return edits by their numbers; unknown numbers are left out."""
    result: dict[int, EditRecord] = {}
    missing = sorted(set(numbers), reverse=True)
    while missing:
        run = await run_with(tx, block_id, missing[0], changes=False)
        if run is None:
            missing.pop(0)
            continue
        for number in [candidate for candidate in missing if candidate >= run.first]:
            result[number] = record_of(block_id, run.edit(number))
        missing = [candidate for candidate in missing if candidate < run.first]
    return result


async def of_turn(tx: Connection, turn_id: str) -> list[EditRecord]:
    """Return every edit that a turn made, in all blocks, the oldest first in each."""
    result = [record_of(block, edit) for block, edit in await rows.edits_of_turn(tx, turn_id)]
    for block_id, era in await rows.squashed_eras(tx):
        result += [
            record_of(block_id, edit) for edit in read_era(era).edits if edit.turn_id == turn_id
        ]
    return sorted(result, key=lambda record: (record.block_id, record.number))


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

    Their labels include who may see the block. Before its first edit a block has no lines.
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
        return list(with_full_labels(rows.read_lines(row.text, row.lines), audience))
    return list(with_full_labels(await raw_lines_at(tx, block_id, version), audience))


async def raw_lines_at(tx: Connection, block_id: str, version: int) -> list[Line]:
    """Return the lines as of a version, with their own labels only."""
    if version == 0:
        return []
    run = await run_with(tx, block_id, version)
    assert run is not None, "edits are numbered without gaps"
    content = BlockContent(schema_of(run.schema_at(version)), run.parts_at(version))
    return [
        Line(text, numbers, label)
        for text, (numbers, label) in zip(content.lines(), run.blame_at(version), strict=True)
    ]


def diff_text(old: Sequence[str], new: Sequence[str], before: str, after: str) -> str:
    """Return what changed between two texts, given by their lines, as a unified diff."""
    return "\n".join(unified_diff(old, new, (before, after)))


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
    moment_ms: int
    blocks: tuple[VisibleBlock, ...]
    """The blocks that it saw then, as they were then, in the usual order."""
    passages: tuple[Passage, ...]
    """The passages of its archive then, the latest first."""
    sources: tuple[SourceAt, ...]
    """The sources that are still attached. Removed documents leave no trace."""

    moment = Moment()


async def as_of(
    tx: Connection,
    agent_id: str,
    moment: int,
    *,
    most: int | None = None,
    participants: Participants = OWNER_ALONE,
) -> MemoryAt:
    """Return what an agent remembered at a moment in ms; with `most`, only so many passages.

    Audiences are those of that moment. Whatever those present could not see then, or may not see
    now, is left out.
    """
    await archive.archives_of(tx, agent_id)
    seen: list[VisibleBlock] = []
    for once in await rows.blocks_at(tx, agent_id, moment):
        if not participants.can_see(Audience.read(once.row.audience)):
            continue
        then = await _block_at(tx, once, agent_id, moment)
        visible = as_visible_to(then, participants) if then is not None else None
        if visible is not None:
            seen.append(visible)
    held_passages = await archive.listing(
        tx,
        [agent_id],
        participants=participants,
        moment=moment,
        limit=_EVERY if most is None else most,
    )
    open_to = {
        source.id for source in await documents.sources(tx) if participants.can_see(source.audience)
    }
    sources = [
        source_row
        for source_row in await passages.sources_attached_at(tx, agent_id, moment)
        if source_row[0] in open_to
    ]
    return MemoryAt(
        agent_id=agent_id,
        moment_ms=moment,
        blocks=tuple(sorted(seen, key=order)),
        passages=tuple(held_passages),
        sources=tuple(SourceAt(*source_row) for source_row in sources),
    )


async def _block_at(
    tx: Connection, once: PastBlock, agent_id: str, moment: int
) -> VisibleBlock | None:
    """Return a block as an agent saw it at a moment; None: it did not."""
    now = once.row
    version = await version_at(tx, now.id, moment)
    if version == 0:
        return None
    later = await edits_after(tx, now.id, version)
    row, shared = rewound(now, once.shared, later, agent_id)
    run = await run_with(tx, now.id, version, changes=False)
    assert run is not None, "edits are numbered without gaps"
    latest = run.edit(version)
    own, everybodys = now.owner_id == agent_id, now.owner_id == CONSTELLATION
    if latest.kind == "retire" or not (own or everybodys or shared is not None):
        return None
    lines = (
        await raw_lines_at(tx, now.id, version) if later else rows.read_lines(now.text, now.lines)
    )
    text = "\n".join(line.text for line in lines)
    row = row._replace(version=version, text=text, updated_at=latest.at, retired_at=None)
    return VisibleBlock(
        block=(block := block_of(row)),
        permission=Permission(row.permission if own else shared or row.permission),
        owner_name=None if own else once.owner_name or SHARED_BY_ALL,
        lines=with_full_labels(lines, block.audience),
    )


async def visible_edits(
    tx: Connection, block_id: str, participants: Participants
) -> dict[int, tuple[EditRow, Audience]]:
    """Return the edits of a block that those present may see, each with the audience after it.

    A block may have had a smaller audience once. Edits of that time are only for that audience.
    """
    row = await rows.get(tx, block_id)
    assert row is not None, "it was found with this transaction"
    result: dict[int, tuple[EditRow, Audience]] = {}
    if not participants.can_see(after := Audience.read(row.audience)):
        return result
    for edit in reversed(await edits_after(tx, block_id, 0)):
        source_wire = orjson.loads(edit.source)
        if participants.can_see(after) and participants.can_see(
            Audience.read(source_wire["audience"])
        ):
            result[edit.number] = (edit, after)
        was = former_values(source_wire).get("audience")
        after = after if was is None else Audience.read(was)
    return result


async def visible_lines_at(
    tx: Connection, block: Block, version: int, participants: Participants
) -> list[Line] | None:
    """Return the lines of a block at a version that those present may see, then and now.

    None: there is no such version for them.
    """
    if participants.owner_alone:
        return await lines_at(tx, block.id, version=version)
    edits = await visible_edits(tx, block.id, participants)
    if version not in edits or not participants.can_see(edits[version][1]):
        return None
    return [
        line
        for line in await lines_at(tx, block.id, version=version)
        if is_visible(block.schema, line, block.audience, participants)
    ]


async def blame_for(
    tx: Connection, seen: VisibleBlock, participants: Participants
) -> list[tuple[Line, list[EditRecord]]]:
    """Return the visible lines of a block, each with those of its edits that are visible."""
    blamed_lines = await blame(tx, seen.block.id)
    if participants.owner_alone:
        return blamed_lines
    visible = await visible_edits(tx, seen.block.id, participants)
    return [
        (line, [record for record in records if record.number in visible])
        for line, records in blamed_lines
        if line in seen.lines
    ]


async def edits_after(tx: Connection, block_id: str, number: int) -> list[EditRow]:
    """Return the edits of a block above a number, the oldest first, across eras."""
    result: list[EditRow] = []
    for era in await rows.eras_after(tx, block_id, number):
        result += [edit for edit in read_era(era).edits if edit.number > number]
    return result + await rows.edits(tx, block_id, number + 1, 1 << 62, changes=False)


def rewound(
    row: BlockRow, shared: str | None, later: Sequence[EditRow], agent_id: str
) -> tuple[BlockRow, str | None]:
    """Return the description of a block, and its share with an agent, before some edits."""
    for edit in reversed(later):
        source_wire = orjson.loads(edit.source)
        row = row._replace(**former_values(source_wire))
        if "share" in source_wire and source_wire["share"][0] == agent_id:
            shared = source_wire["share"][1]
    return row, shared


def former_values(source_wire: dict[str, Any]) -> dict[str, Any]:
    """Return the columns of a block's description that an edit changed, with their old values."""
    was: dict[str, Any] = dict(source_wire.get("was") or {})
    if "schema" in was:
        was["schema"] = orjson.dumps(was["schema"]).decode()
    return was


# -- where lines come from ------------------------------------------------------------------------


async def blame(tx: Connection, block_id: str) -> list[tuple[Line, list[EditRecord]]]:
    """Return every line of a block with the edits that it comes from, the first one first."""
    row = await rows.get(tx, block_id)
    if row is None:
        raise NotFound(f"There is no block {block_id!r}.")
    lines = with_full_labels(rows.read_lines(row.text, row.lines), Audience.read(row.audience))
    by_number = await records(tx, block_id, {number for line in lines for number in line.edits})
    return [(line, [by_number[edit] for edit in line.edits if edit in by_number]) for line in lines]


@dataclass(frozen=True, slots=True)
class SourcedLine:
    """A line of a block with its label and its origins, without its history."""

    text: str
    label: Label
    origins: tuple[Origin, ...]


async def lines_with_origins(
    tx: Connection, block_id: str, lines: Sequence[Line], participants: Participants = OWNER_ALONE
) -> list[SourcedLine]:
    """Return lines of a block with their origins that those present may see, the first first."""
    numbers = {number for line in lines for number in line.edits}
    sources = {
        number: record.source
        for number, record in (await records(tx, block_id, numbers)).items()
        if participants.can_see(record.source.audience)
    }
    result: list[SourcedLine] = []
    for line in lines:
        own = (sources[number].origins for number in line.edits if number in sources)
        origins = dict.fromkeys(origin for origins in own for origin in origins)
        result.append(SourcedLine(line.text, line.label, tuple(origins)))
    return result


# -- what a turn wrote -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TurnWrites:
    """The writes of a turn to memory, or those that were taken back."""

    turn_id: str
    edits: tuple[EditRecord, ...] = ()
    """Of blocks, in order for each."""
    inserted: tuple[Passage, ...] = ()
    passage_edits: tuple[PassageEdit, ...] = ()
    """The edits of older passages, in order for each passage."""
    taken_back_by: str | None = None
    """The id under which it was taken back, with which that can be taken back as well."""
    left: tuple[str, ...] = field(default=())
    """Sentences on what could not be taken back, and why."""

    def __bool__(self) -> bool:
        return bool(self.edits or self.inserted or self.passage_edits)


async def writes_of_turn(
    tx: Connection, turn_id: str, *, participants: Participants = OWNER_ALONE
) -> TurnWrites:
    """Return the writes of a turn that those present may see, in force or not."""
    edits = await of_turn(tx, turn_id)
    visible_numbers: dict[str, Collection[int]] = {}
    for edit in edits:
        if edit.block_id not in visible_numbers:
            row = await rows.get(tx, edit.block_id)
            if row is None or row.constellation != tx.constellation:
                visible_numbers[edit.block_id] = ()
            elif participants.owner_alone:
                visible_numbers[edit.block_id] = [written.number for written in edits]
            else:
                visible_numbers[edit.block_id] = await visible_edits(
                    tx, edit.block_id, participants
                )
    changed = await passages.passage_edits_by(tx, turn_id)
    if not participants.owner_alone:
        touched = {written.passage_id for written in changed}
        visible_changes = [
            written
            for id in touched
            for written in await archive.visible_history(tx, id, participants)
        ]
        changed = [written for written in changed if written in visible_changes]
    return TurnWrites(
        turn_id,
        tuple(edit for edit in edits if edit.number in visible_numbers[edit.block_id]),
        tuple(
            written
            for written in await passages.inserted_by(tx, turn_id)
            if participants.can_see(written.source.audience)
        ),
        tuple(changed),
    )


def is_to_take_back(chain: Sequence[str | None], turn_id: str) -> bool:
    """Tell whether a turn changed if the first edit of a chain is in force.

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
            run = await run_with(self._tx, self._block_id, number, changes=False)
            assert run is not None, "an edit names only edits that there are"
            self._known.update({edit.number: edit for edit in run.edits})
        return self._known[number]

    async def chain(self, number: int) -> list[EditRow]:
        """Return the chain in which each edit takes back the one before, that an edit is in."""
        chain = [await self.edit(number)]
        while (undoes := chain[0].undoes) is not None:
            chain.insert(0, await self.edit(undoes))
        while (by := chain[-1].undone_by) is not None:
            chain.append(await self.edit(by))
        return chain


UNDOES = "undoes"
"""In `before` of a passage's edit: the number of the edit that it takes back; 0: the insert."""


def passage_chain(edits: Sequence[PassageEdit], number: int) -> list[int]:
    """Return the numbers of the chain that an edit of a passage is in; 0 is its insert."""
    undoes = {edit.number: int(edit.before[UNDOES]) for edit in edits if UNDOES in edit.before}
    undone_by = {what: by for by, what in undoes.items()}
    chain = [number]
    while chain[0] in undoes:
        chain.insert(0, undoes[chain[0]])
    while chain[-1] in undone_by:
        chain.append(undone_by[chain[-1]])
    return chain
