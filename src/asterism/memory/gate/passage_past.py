"""Taking back what a turn did to passages: what it stored, and what it changed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import orjson

from asterism.errors import NotFound
from asterism.memory.gate.drafts.desk import hears
from asterism.memory.gate.writer import Writer, judge
from asterism.memory.travel import (
    UNDOES,
    Effects,
    is_to_take_back,
    passage_chain,
)
from asterism.memory.words import digest, embed
from asterism.permissions import Act, Resource
from asterism.store import passage_writes, passages, travel
from asterism.store.database import Connection
from asterism.store.passages import PassageEdit
from asterism.types.memory import (
    Passage,
    Permission,
)
from asterism.types.people import Audience, Trust, least_trusted


async def revert_passages(
    tx: Connection, writer: Writer, effects: Effects, taken: Effects
) -> Effects:
    """Take back what a turn did to archives; return what was taken back, with that."""
    inserted: list[Passage] = []
    for passage in reversed(effects.inserted):
        if await _revert_passage(tx, writer, passage.id, [0], effects.turn_id):
            inserted.insert(0, passage)
    own = {one.id for one in effects.inserted}
    by_passage: dict[str, list[PassageEdit]] = {}
    for edit in effects.passage_edits:
        if edit.passage_id not in own:
            by_passage.setdefault(edit.passage_id, []).append(edit)
    edits: list[PassageEdit] = []
    for passage_id, its in by_passage.items():
        numbers = [one.number for one in its]
        done = await _revert_passage(tx, writer, passage_id, numbers, effects.turn_id)
        edits += [one for one in its if one.number in done]
    return replace(taken, inserted=tuple(inserted), passage_edits=tuple(edits))


async def _revert_passage(
    tx: Connection, writer: Writer, passage_id: str, numbers: Sequence[int], turn_id: str
) -> set[int]:
    """Take back what a turn did to a passage; return the numbers of the edits that it did."""
    passage = await passages.get(tx, writer.constellation, passage_id)
    assert passage is not None, "it was read with this transaction"
    edits = await passages.edits(tx, passage_id)
    turns = {0: passage.turn_id} | {one.number: one.turn_id for one in edits}
    tops: dict[int, set[int]] = {}
    for number in numbers:
        chain = passage_chain(edits, number)
        if is_to_take_back([turns[one] for one in chain], turn_id):
            tops.setdefault(chain[-1], set()).add(number)
    if tops:
        await _judge_passage(tx, writer, passage)
    done: set[int] = set()
    for top in sorted(tops, reverse=True):
        if await _take_passage_back(tx, writer, passage_id, top):
            done |= tops[top]
    return done


async def _judge_passage(tx: Connection, writer: Writer, passage: Passage) -> None:
    archive = await passages.archive(tx, writer.constellation, passage.archive_id)
    if archive is None or not hears(writer, passage.source.audience):
        raise NotFound(
            f"There is no passage {passage.id!r} here. Do this when you talk with the owner alone. "
            "Nothing was changed."
        )
    permission = Permission.READ_WRITE if writer.agent_id == archive.id else None
    resource = Resource("passage", archive.name, permission)
    judge(writer, Act.OVERWRITE, resource, f"take back what was done to passage {passage.id}")
    await passage_writes.hold_archive(tx, archive.id)


async def _take_passage_back(tx: Connection, writer: Writer, passage_id: str, number: int) -> bool:
    """Take back one edit of a passage, or with 0 its insert; False if nothing of it is left."""
    now = await travel.stored_columns(tx, passage_id)
    changes: dict[str, Any] = {}
    if number == 0:
        changes = {"retracted_at": writer.now} if now["retracted_at"] is None else {}
    else:
        edits = await passages.edits(tx, passage_id)
        was = next(one.before for one in edits if one.number == number)
        later = [one for one in edits if one.number > number]
        more = _said_more(edits, number)
        for column in was.keys() - {UNDOES}:
            made = next((one.before[column] for one in later if column in one.before), now[column])
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
        found_by = {"digest": digest(changes["text"]), "vector": vectors[0] if vectors else None}
        await passage_writes.change(tx, passage_id, found_by)
    await passage_writes.change(tx, passage_id, changes)
    author, turn, reason = str(writer.actor), writer.turn_id, writer.reason
    edit = PassageEdit(passage_id, 0, "revert", author, turn, reason, writer.now, before)
    await passage_writes.note(tx, edit)
    return True


def _said_more(edits: Sequence[PassageEdit], number: int) -> bool:
    """Tell whether anything was appended after an edit that was not taken back."""
    return any(
        one.number > number and one.kind == "append" and len(passage_chain(edits, one.number)) % 2
        for one in edits
    )


def _meeting(one: str, other: str) -> str:
    return str(Audience.read(one) & Audience.read(other))


def _least(one: str, other: str) -> str:
    return least_trusted((Trust(one), Trust(other))).value


_MARKS = {"audience": _meeting, "trust": _least}
"""What a text gets that is made of both: nobody may hear more of it than they could before."""


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
    kept = [one for one in now if one in was or one not in made]
    return kept + [one for one in was if one not in made and one not in kept]


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
