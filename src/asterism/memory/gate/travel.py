"""The gate for time travel: one edit taken back, or everything that one turn wrote."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from asterism.errors import Conflict, NotAllowed, NotFound
from asterism.memory.blocks import block_of
from asterism.memory.gate import blocks
from asterism.memory.gate.block_past import put_away, row_of, take_back
from asterism.memory.gate.drafts.desk import by_owner
from asterism.memory.gate.passage_past import revert_passages
from asterism.memory.gate.writer import Writer
from asterism.memory.travel import (
    BlockPast,
    Effects,
    edits_after,
    is_to_take_back,
    written_by,
)
from asterism.store import blocks as rows
from asterism.store import journal
from asterism.store.blocks import EditRow
from asterism.store.database import Connection
from asterism.types.agents import new_id
from asterism.types.memory import (
    Block,
    Revert,
)


async def revert_edit(
    tx: Connection, writer: Writer, block_id: str, number: int, *, era: int = blocks.ERA
) -> Block:
    """Take back one edit of a block, whatever it did; what came after it stays."""
    row = await rows.get(tx, block_id)
    writer = _reverting(writer, None)
    if row is None or row.constellation != writer.constellation or not 0 < number <= row.version:
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
        if not await take_back(tx, writer, block_id, chain[-1], era, left):
            told = "".join(f" {sentence}" for sentence in left)
            raise Conflict(
                f"Nothing that edit {number} of block {row.label!r} did is left to be taken "
                f"back.{told} Nothing was changed."
            )
    after = await rows.get(tx, block_id)
    assert after is not None
    return block_of(after)


async def revert_turn(
    tx: Connection, writer: Writer, turn_id: str, *, era: int = blocks.ERA
) -> Effects:
    """Take back everything that a turn wrote, the newest first; what others wrote later stays.

    Where nobody has written since, everything is as it was before. What was taken back can itself
    be taken back, by the id that the effects name.
    """
    effects = await written_by(tx, writer.constellation, turn_id)
    turn = await journal.turn(tx, turn_id)
    if not effects and turn is None:
        raise NotFound(
            f'There is no turn {turn_id!r}. "asterism turn list" shows all. Nothing was changed.'
        )
    authors = [one.author for one in (*effects.edits, *effects.inserted, *effects.passage_edits)]
    for author in set(authors):
        if not await _is_own(tx, writer, turn_id, author):
            raise NotAllowed(
                f"Turn {turn_id} is not yours to take back. Ask the owner. Nothing was changed."
            )
    writer = _reverting(writer, turn_id)
    async with tx.savepoint():
        taken = Effects(turn_id, taken_back_by=writer.turn_id)
        taken = await _revert_blocks(tx, writer, effects, taken, era)
        taken = await revert_passages(tx, writer, effects, taken)
        if not taken:
            left = "".join(f" {sentence}" for sentence in taken.left)
            raise Conflict(
                f"There is nothing to take back of turn {turn_id}: it wrote nothing to memory, or "
                f"that was taken back or changed since.{left} Nothing was changed."
            )
    return taken


def _reverting(writer: Writer, turn_id: str | None) -> Writer:
    """Return the same writer, with an id under which what it takes back can be found."""
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


# -- blocks ----------------------------------------------------------------------------------------


async def _revert_blocks(
    tx: Connection, writer: Writer, effects: Effects, taken: Effects, era: int
) -> Effects:
    by_block: dict[str, list[int]] = {}
    for one in effects.edits:
        by_block.setdefault(one.block_id, []).append(one.number)
    records = {(one.block_id, one.number): one for one in effects.edits}
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
        found, stays = await _revert_block(tx, writer, block_id, wanted, effects.turn_id, era)
        done += [(block_id, number) for top in found for number in tops[top]]
        left += stays
    edits = tuple(records[key] for key in sorted(done))
    return replace(taken, edits=edits, left=(*taken.left, *left))


async def _revert_block(
    tx: Connection, writer: Writer, block_id: str, tops: Sequence[EditRow], turn_id: str, era: int
) -> tuple[list[int], list[str]]:
    """Take back some edits of a block, the newest first; return which, and what was left."""
    made = [edit for edit in tops if edit.kind in ("create", "bring_back")]
    row = await row_of(tx, block_id)
    if row.retired_at is not None and (made or all(edit.kind != "retire" for edit in tops)):
        return [], [f"Block {row.label!r} was put away since."] if tops else []
    stays: list[str] = []
    if made:
        if not await _others_wrote(tx, block_id, made[-1].number, turn_id):
            await put_away(tx, writer, block_id, made[-1], era)
            return [edit.number for edit in tops], []
        stays = [f"Block {row.label!r} stays, since others have written to it."]
        tops = [edit for edit in tops if edit not in made]
    done = [edit.number for edit in tops if await take_back(tx, writer, block_id, edit, era, stays)]
    return done, stays


async def _others_wrote(tx: Connection, block_id: str, number: int, turn_id: str) -> bool:
    later = await edits_after(tx, block_id, number)
    return any(
        edit.turn_id != turn_id and edit.undone_by is None and edit.kind != "retire"
        for edit in later
    )
