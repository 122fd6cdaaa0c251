"""The gate for undo: it takes back one edit of any kind, or all writes of a turn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import orjson

from asterism.errors import Conflict, NotAllowed, NotFound
from asterism.memory import blocks as rows
from asterism.memory import history
from asterism.memory.blocks import BlockRow, EditRow, block_of
from asterism.memory.edits import BlockContent, act_of
from asterism.memory.gate import blocks
from asterism.memory.gate.blocks import OpenBlock, PendingEdit, prepare
from asterism.memory.gate.rows import change_passages, lock_archive, lock_block, passages_changed
from asterism.memory.gate.writer import Writer, by_owner, can_see, judge, resource_for
from asterism.memory.history import (
    UNDOES,
    BlockPast,
    TurnWrites,
    edits_after,
    former_values,
    is_to_take_back,
    passage_chain,
    writes_of_turn,
)
from asterism.memory.schemas import schema_of, schema_wire
from asterism.memory.words import digest, embed
from asterism.permissions import Act, Resource
from asterism.store import journal, passages
from asterism.store.database import Connection
from asterism.store.passages import PassageEdit
from asterism.types.agents import Audience, Trust, least_trusted, new_id
from asterism.types.memory import (
    Block,
    BlockType,
    Describe,
    Line,
    Passage,
    Permission,
    Revert,
    Share,
    Unshare,
)

_OF_CONTENT = frozenset({"fork", "import"})
"""Kinds of edits that fill a block which the same turn has made."""


async def revert_edit(
    tx: Connection, writer: Writer, block_id: str, number: int, *, era: int = blocks.ERA
) -> Block:
    """Take back one edit of a block, of any kind; later edits stay."""
    row = await rows.get(tx, block_id)
    writer = _revert_writer(writer, None)
    if row is None or row.constellation != tx.constellation or not 0 < number <= row.version:
        # The gate says what is wrong.
        return await blocks.write(tx, writer, block_id, Revert(number), era=era)
    chain = await BlockPast(tx, block_id).chain(number)
    place = [edit.number for edit in chain].index(number)
    if not await _is_own(tx, writer, chain[place].turn_id, chain[place].author):
        raise NotAllowed(
            f"Edit {number} of block {row.label!r} is not yours to take back. Nothing was changed."
        )
    taken_back = Conflict(
        f"Edit {number} of block {row.label!r} was taken back by edit {chain[-1].number}. "
        "Nothing was changed."
    )
    if (len(chain) - place) % 2 == 0:
        raise taken_back
    left: list[str] = []
    async with tx.savepoint():
        if not await _revert_one_edit(tx, writer, block_id, chain[-1], era, left):
            reasons = "".join(f" {sentence}" for sentence in left)
            raise Conflict(
                f"Nothing that edit {number} of block {row.label!r} did is left to be taken "
                f"back.{reasons} Nothing was changed."
            )
    after = await rows.get(tx, block_id)
    assert after is not None
    return block_of(after)


async def revert_turn(
    tx: Connection, writer: Writer, turn_id: str, *, era: int = blocks.ERA
) -> TurnWrites:
    """Take back all writes of a turn, the newest first; later writes of others stay.

    Where nobody has written since, everything is as it was before. You can take this back too, with
    the id that the effects name.
    """
    effects = await writes_of_turn(tx, turn_id)
    turn = await journal.turn(tx, turn_id)
    if not effects and turn is None:
        raise NotFound(
            f'There is no turn {turn_id!r}. "asterism turn list" shows all. Nothing was changed.'
        )
    authors = [
        effect.author for effect in (*effects.edits, *effects.inserted, *effects.passage_edits)
    ]
    for author in set(authors):
        if not await _is_own(tx, writer, turn_id, author):
            raise NotAllowed(
                f"Turn {turn_id} is not yours to take back. Ask the owner. Nothing was changed."
            )
    writer = _revert_writer(writer, turn_id)
    async with tx.savepoint():
        taken = TurnWrites(turn_id, taken_back_by=writer.turn_id)
        taken = await _revert_blocks(tx, writer, effects, taken, era)
        taken = await _revert_passages(tx, writer, effects, taken)
        if not taken:
            left = "".join(f" {sentence}" for sentence in taken.left)
            raise Conflict(
                f"There is nothing to take back of turn {turn_id}: it wrote nothing to memory, or "
                f"that was taken back or changed since.{left} Nothing was changed."
            )
    return taken


def _revert_writer(writer: Writer, turn_id: str | None) -> Writer:
    """Return the same writer with a turn id of its own, so that the undo can be found."""
    reason = writer.reason or (f"taking back {turn_id}" if turn_id else "")
    if writer.turn_id is None or writer.turn_id == turn_id:
        return replace(writer, turn_id=new_id("revert"), reason=reason)
    return replace(writer, reason=reason)


async def _is_own(tx: Connection, writer: Writer, turn_id: str | None, author: str) -> bool:
    if by_owner(writer) or writer.by_verb:
        return True
    turn = await journal.turn(tx, turn_id) if turn_id is not None else None
    if turn is not None:
        return turn.agent_id == writer.agent_id
    return author == str(writer.actor)


# -- blocks of a turn ------------------------------------------------------------------------------


async def _revert_blocks(
    tx: Connection, writer: Writer, effects: TurnWrites, taken: TurnWrites, era: int
) -> TurnWrites:
    by_block: dict[str, list[int]] = {}
    for edit in effects.edits:
        by_block.setdefault(edit.block_id, []).append(edit.number)
    records = {(edit.block_id, edit.number): edit for edit in effects.edits}
    done: list[tuple[str, int]] = []
    left: list[str] = []
    for block_id, numbers in by_block.items():
        past = BlockPast(tx, block_id)
        tops: dict[int, list[int]] = {}
        for number in numbers:
            chain = await past.chain(number)
            if is_to_take_back([edit.turn_id for edit in chain], effects.turn_id):
                tops.setdefault(chain[-1].number, []).append(number)
        wanted = [await past.edit(number) for number in sorted(tops, reverse=True)]
        reverted, stays = await _revert_block(tx, writer, block_id, wanted, effects.turn_id, era)
        done += [(block_id, number) for top in reverted for number in tops[top]]
        left += stays
    edits = tuple(records[key] for key in sorted(done))
    return replace(taken, edits=edits, left=(*taken.left, *left))


async def _revert_block(
    tx: Connection, writer: Writer, block_id: str, tops: Sequence[EditRow], turn_id: str, era: int
) -> tuple[list[int], list[str]]:
    """Take back some edits of a block, the newest first; return which, and what was left."""
    made = [edit for edit in tops if edit.kind in ("create", "bring_back")]
    row = await _row_of(tx, block_id)
    if row.retired_at is not None and (made or all(edit.kind != "retire" for edit in tops)):
        return [], [f"Block {row.label!r} was deleted since."] if tops else []
    stays: list[str] = []
    if made:
        if not await _others_wrote(tx, block_id, made[-1].number, turn_id):
            await _retire(tx, writer, block_id, made[-1], era)
            return [edit.number for edit in tops], []
        stays = [f"Block {row.label!r} stays, since others have written to it."]
        tops = [edit for edit in tops if edit not in made]
    done = [
        edit.number
        for edit in tops
        if await _revert_one_edit(tx, writer, block_id, edit, era, stays)
    ]
    return done, stays


async def _others_wrote(tx: Connection, block_id: str, number: int, turn_id: str) -> bool:
    later = await edits_after(tx, block_id, number)
    return any(
        edit.turn_id != turn_id and edit.undone_by is None and edit.kind != "retire"
        for edit in later
    )


# -- one edit of a block ---------------------------------------------------------------------------


async def _revert_one_edit(
    tx: Connection, writer: Writer, block_id: str, edit: EditRow, era: int, left: list[str]
) -> bool:
    """Take back one edit of a block that nothing has taken back; False if nothing of it is left.

    Adds a sentence to `left` for each part that could not be taken back.
    """
    match edit.kind:
        case "describe":
            return await _revert_description(tx, writer, block_id, edit, era, left)
        case "share" | "unshare":
            return await _revert_share(tx, writer, block_id, edit, era)
        case "retire":
            await _unretire(tx, writer, block_id, edit, era)
        case "create" | "bring_back":
            await _retire(tx, writer, block_id, edit, era)
        case kind if kind in _OF_CONTENT:
            return False
        case _:
            await blocks.write(tx, writer, block_id, Revert(edit.number), era=era)
    return True


async def _row_of(tx: Connection, block_id: str) -> BlockRow:
    """Return a block that has edits, also one that was retired."""
    row = await rows.get(tx, block_id)
    assert row is not None, "a block with edits is there"
    return row


async def _open_block(
    tx: Connection, writer: Writer, row: BlockRow | None, act: Act, what: str
) -> OpenBlock:
    """Open a block for a writer who may do that to it."""
    if row is None:
        raise NotFound("The block was deleted meanwhile. Nothing was changed.")
    resource = await resource_for(tx, writer, row)
    block = block_of(row)
    if resource.permission is None or not can_see(writer, block.audience):
        raise NotFound(f"There is no block {row.label!r}. Nothing was changed.")
    judge(writer, act, resource, f"{what} block {row.label!r}")
    return OpenBlock.of(tx, writer, row, block)


async def _revert_description(
    tx: Connection, writer: Writer, block_id: str, edit: EditRow, era: int, left: list[str]
) -> bool:
    row = await _row_of(tx, block_id)
    later = [
        former_values(orjson.loads(later_edit.source))
        for later_edit in await edits_after(tx, block_id, edit.number)
    ]
    back: dict[str, Any] = {}
    for column, value in former_values(orjson.loads(edit.source)).items():
        made = next((was[column] for was in later if column in was), getattr(row, column))
        if getattr(row, column) == made:
            back[column] = value
    before = await history.raw_lines_at(tx, block_id, edit.number - 1)
    await _drop_unfit_columns(tx, row, back, before, left)
    if not back:
        return False
    write = _describe_write(back)
    act = act_of(write, block_of(row))
    target = await _open_block(tx, writer, await lock_block(tx, block_id), act, "describe anew")
    if "schema" in back and _lines_under(row, back["schema"]) == [line.text for line in before]:
        written = await _described_exactly(target, write, before)
    else:
        written = await prepare(target, write)
    await blocks.store_edit(target, "describe", replace(written, undoes=edit.number), era)
    return True


async def _drop_unfit_columns(
    tx: Connection, row: BlockRow, back: dict[str, Any], before: Sequence[Line], left: list[str]
) -> None:
    """Drop columns of a former description that do not fit the block any more."""
    label: str | None = back.get("label")
    if label is not None and await rows.by_label(tx, row.owner_id, label):
        del back["label"]
        left.append(f"Block {row.label!r} keeps its label, since there is another {label!r} now.")
    if back.get("max_chars", len(row.text)) < len(row.text):
        del back["max_chars"]
        left.append(f"Block {row.label!r} keeps its limit, since it holds more than the former.")
    if (
        "schema" in back
        and type(schema_of(back["schema"])) is not type(schema_of(row.schema))
        and _lines_under(row, back["schema"]) != [line.text for line in before]
    ):
        del back["schema"]
        left.append(f"Block {row.label!r} keeps its schema, since it is not empty.")


def _lines_under(row: BlockRow, schema: str) -> list[str]:
    return BlockContent(schema_of(schema), rows.read_parts(row)).lines()


async def _described_exactly(target: OpenBlock, write: Describe, lines: list[Line]) -> PendingEdit:
    """Return a description with a former schema, and the lines as they were under it."""
    rest = replace(write, schema=None)
    assert write.schema is not None
    wire = schema_wire(write.schema)
    was: dict[str, Any] = {"schema": orjson.loads(target.row.schema)}
    row = target.row
    if rest != Describe():
        written = await prepare(target, rest)
        row, was = written.row, {**written.more["was"], **was}
    text = "\n".join(line.text for line in lines)
    schema = orjson.dumps(wire).decode()
    return PendingEdit(
        row._replace(
            schema=schema,
            text=text,
            lines=rows.write_lines(lines),
            content=rows.write_parts(target.content.parts, text),
        ),
        lines,
        more={"was": was, "schema": wire},
    )


def _describe_write(back: Mapping[str, Any]) -> Describe:
    read: dict[str, Any] = {
        "max_chars": int,
        "type": BlockType,
        "permission": Permission,
        "audience": Audience.read,
        "pinned": bool,
        "schema": schema_of,
    }
    fields = {column: read.get(column, str)(value) for column, value in back.items()}
    if "max_chars" in fields:
        fields["limit"] = fields.pop("max_chars")
    return Describe(**fields)


async def _revert_share(
    tx: Connection, writer: Writer, block_id: str, edit: EditRow, era: int
) -> bool:
    agent_id, was, made = orjson.loads(edit.source)["share"]
    if await rows.share_of(tx, block_id, agent_id) != made:
        return False
    write = Unshare(agent_id) if was is None else Share(agent_id, Permission(was))
    row = await lock_block(tx, block_id)
    target = await _open_block(tx, writer, row, Act.GOVERN, "change who sees")
    try:
        written = await prepare(target, write)
    except NotFound:  # that agent is gone
        return False
    kind = "unshare" if was is None else "share"
    await blocks.store_edit(target, kind, replace(written, undoes=edit.number), era)
    return True


async def _retire(tx: Connection, writer: Writer, block_id: str, edit: EditRow, era: int) -> None:
    """Retire a block that would not be there without an edit."""
    row = await lock_block(tx, block_id)
    # Whoever may overwrite a block may take back that they have made it.
    target = await _open_block(tx, writer, row, Act.OVERWRITE, "retire")
    await _set_retired(target, writer.now, edit, "retire", era)


async def _unretire(tx: Connection, writer: Writer, block_id: str, edit: EditRow, era: int) -> None:
    row = await _row_of(tx, block_id)
    act = Act.OVERWRITE if edit.undoes is not None else Act.DELETE
    target = await _open_block(tx, writer, row, act, "bring back")
    if await rows.by_label(tx, row.owner_id, row.label) is not None:
        raise Conflict(
            f"Block {row.label!r} cannot come back, since there is another one with that label. "
            "Rename or retire that one first. Nothing was changed."
        )
    await _set_retired(target, None, edit, "bring_back", era)


async def _set_retired(
    target: OpenBlock, at: int | None, edit: EditRow, kind: str, era: int
) -> None:
    row = target.row._replace(retired_at=at)
    made = PendingEdit(row, target.lines, undoes=edit.number)
    await blocks.store_edit(target, kind, made, era)


# -- passages --------------------------------------------------------------------------------------


async def _revert_passages(
    tx: Connection, writer: Writer, effects: TurnWrites, taken: TurnWrites
) -> TurnWrites:
    """Take back what a turn did to archives; return `taken` with these writes added."""
    inserted: list[Passage] = []
    for passage in reversed(effects.inserted):
        if await _revert_passage(tx, writer, passage.id, [0], effects.turn_id):
            inserted.insert(0, passage)
    own = {passage.id for passage in effects.inserted}
    by_passage: dict[str, list[PassageEdit]] = {}
    for edit in effects.passage_edits:
        if edit.passage_id not in own:
            by_passage.setdefault(edit.passage_id, []).append(edit)
    edits: list[PassageEdit] = []
    for passage_id, its in by_passage.items():
        numbers = [edit.number for edit in its]
        done = await _revert_passage(tx, writer, passage_id, numbers, effects.turn_id)
        edits += [edit for edit in its if edit.number in done]
    return replace(taken, inserted=tuple(inserted), passage_edits=tuple(edits))


async def _revert_passage(
    tx: Connection, writer: Writer, passage_id: str, numbers: Sequence[int], turn_id: str
) -> set[int]:
    """Take back what a turn did to a passage; return the numbers of the edits that it did."""
    passage = await passages.get(tx, passage_id)
    assert passage is not None, "it was read with this transaction"
    edits = await passages.edits(tx, passage_id)
    turns = {0: passage.turn_id} | {edit.number: edit.turn_id for edit in edits}
    tops: dict[int, set[int]] = {}
    for number in numbers:
        chain = passage_chain(edits, number)
        if is_to_take_back([turns[chain_number] for chain_number in chain], turn_id):
            tops.setdefault(chain[-1], set()).add(number)
    if tops:
        await _judge_passage(tx, writer, passage)
    done: set[int] = set()
    for top in sorted(tops, reverse=True):
        if await _revert_passage_edit(tx, writer, passage_id, top):
            done |= tops[top]
    return done


async def _judge_passage(tx: Connection, writer: Writer, passage: Passage) -> None:
    archive = await passages.archive(tx, passage.archive_id)
    if archive is None or not can_see(writer, passage.source.audience):
        raise NotFound(
            f"There is no passage {passage.id!r} here. Do this when you talk with the owner alone. "
            "Nothing was changed."
        )
    permission = Permission.READ_WRITE if writer.agent_id == archive.id else None
    resource = Resource("passage", archive.name, permission)
    judge(writer, Act.OVERWRITE, resource, f"take back what was done to passage {passage.id}")
    await lock_archive(tx, archive.id)


async def _revert_passage_edit(
    tx: Connection, writer: Writer, passage_id: str, number: int
) -> bool:
    """Take back one edit of a passage, or with 0 its insert; False if nothing of it is left."""
    now = await passages.stored_columns(tx, passage_id)
    changes: dict[str, Any] = {}
    if number == 0:
        changes = {"retracted_at": writer.now} if now["retracted_at"] is None else {}
    else:
        edits = await passages.edits(tx, passage_id)
        was = next(edit.before for edit in edits if edit.number == number)
        later = [edit for edit in edits if edit.number > number]
        more = _has_later_append(edits, number)
        for column in was.keys() - {UNDOES}:
            made = next(
                (edit.before[column] for edit in later if column in edit.before), now[column]
            )
            if column in _MARKS and (more or now[column] != made):
                back = _MARKS[column](was[column], now[column])
            else:
                back = _without(column, was[column], made, now[column])
            if back != now[column]:
                changes[column] = back
    if not changes:
        return False
    before = {column: now[column] for column in changes} | {UNDOES: number}
    if "text" in changes:
        vectors = embed([changes["text"]])
        search_keys = {"digest": digest(changes["text"]), "vector": vectors[0] if vectors else None}
        await change_passages(tx, passage_id, search_keys)
    await change_passages(tx, passage_id, changes)
    author, turn, reason = str(writer.actor), writer.turn_id, writer.reason
    edit = PassageEdit(passage_id, 0, "revert", author, turn, reason, writer.now, before)
    await passages_changed(tx, edit)
    return True


def _has_later_append(edits: Sequence[PassageEdit], number: int) -> bool:
    """Tell whether anything was appended after an edit that was not taken back."""
    return any(
        edit.number > number
        and edit.kind == "append"
        and len(passage_chain(edits, edit.number)) % 2
        for edit in edits
    )


def _common_audience(first: str, second: str) -> str:
    return str(Audience.read(first) & Audience.read(second))


def _lower_trust(first: str, second: str) -> str:
    return least_trusted((Trust(first), Trust(second))).value


_MARKS = {"audience": _common_audience, "trust": _lower_trust}
"""How to join two values for a text made of both. Nobody may see more than before."""


def _without(column: str, was: Any, made: Any, now: Any) -> Any:
    """Return a column without one change, which made `made` of `was`; later changes stay."""
    if now == made:
        return was
    match column:
        case "text":
            return _text_without(was, made, now)
        case "tags" | "origins":
            return orjson.dumps(
                _list_without(orjson.loads(was), orjson.loads(made), orjson.loads(now))
            ).decode()
        case "metadata":
            return orjson.dumps(
                _object_without(orjson.loads(was), orjson.loads(made), orjson.loads(now))
            ).decode()
        case _:
            return now  # somebody has decided anew since


def _text_without(was: str, made: str, now: str) -> str:
    if now.startswith(made):
        return was + now[len(made) :]
    if not made.startswith(was):
        return now
    # Only appending makes a text longer: what was appended is whole, or it is gone.
    return now.replace(made[len(was) :], "", 1)


def _list_without(was: list[Any], made: list[Any], now: list[Any]) -> list[Any]:
    remaining = [item for item in now if item in was or item not in made]
    return remaining + [item for item in was if item not in made and item not in remaining]


def _object_without(
    was: dict[str, Any], made: dict[str, Any], now: dict[str, Any]
) -> dict[str, Any]:
    result = dict(now)
    for name in {**was, **made}:
        old, new, present = was.get(name), made.get(name), now.get(name)
        if old == new:
            continue
        back: Any = old if present == new else present
        if isinstance(new, list) and isinstance(present, list):
            before = cast("list[Any]", old if isinstance(old, list) else [])
            rest = _list_without(before, cast("list[Any]", new), cast("list[Any]", present))
            back = rest or cast("Any", old)
        if back is None:
            result.pop(name, None)
        else:
            result[name] = back
    return result
