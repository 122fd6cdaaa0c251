"""Keeping one fact: in the block `human`, which an agent always sees, or else in its archive.

What is known already is not kept twice, and what it contradicts gives way; the history of the block
has both.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, tzinfo
from enum import StrEnum

from asterism.errors import InvalidInput, NotAllowed, NotFound
from asterism.memory import blocks
from asterism.memory.archive import Relation, compare
from asterism.memory.blocks import VisibleBlock
from asterism.memory.facts import day_meant
from asterism.memory.gate import blocks as gate
from asterism.memory.gate import passages
from asterism.memory.gate.blocks import HUMAN
from asterism.memory.gate.writer import Writer
from asterism.memory.words import words
from asterism.permissions import Actor, Authority
from asterism.records import dataclass
from asterism.store.database import Connection
from asterism.types.agents import OWNER_ONLY, AgentRecord, Trust
from asterism.types.memory import (
    Append,
    EditRange,
    Insert,
    Line,
    Origin,
    Permission,
    Source,
    TextSchema,
)

MAX_LINE = 300
"""How many characters a line of the block may have; longer facts are kept in the archive."""


class FactChange(StrEnum):
    """What became of a fact."""

    ADDED = "added"
    REPLACED = "replaced"
    """It took the place of a line that no longer holds, or that said less."""
    KNOWN = "known"
    """It was known already, so that nothing was written."""
    ARCHIVED = "archived"


@dataclass(frozen=True, slots=True)
class KeptFact:
    """A fact, and where it is kept."""

    kind: FactChange
    where: str
    """The label of a block, or the id of a passage."""
    text: str
    """What is stored."""
    before: str = ""
    """The line that it replaced."""


async def keep(
    tx: Connection,
    writer: Writer,
    agent_id: str,
    fact: str,
    *,
    replaces: str = "",
    zone: tzinfo = UTC,
) -> KeptFact:
    """Keep a fact for an agent; `replaces` is the line, or a part of it, that no longer holds."""
    text = _line_text(fact, writer.now, zone)
    block = await _human_block(tx, writer, agent_id)
    if block is None or len(text) > MAX_LINE:
        return await _archive(tx, writer, agent_id, text)
    lines = blocks.visible_lines(block, writer.participants)
    if len(lines) != len(block.lines):
        # Somebody is present who may not see all of it, so that lines cannot be compared.
        return await _archive(tx, writer, agent_id, text)
    place, relation = _place_of(text, block.lines, replaces, writer)
    if relation is Relation.SAME:
        return KeptFact(FactChange.KNOWN, HUMAN, lines[place])
    if relation is Relation.UNRELATED:
        write = Append(text)
        kept = KeptFact(FactChange.ADDED, HUMAN, text)
    else:
        write = EditRange(place + 1, place + 1, text)
        kept = KeptFact(FactChange.REPLACED, HUMAN, text, lines[place])
    try:
        async with tx.savepoint():
            await gate.write(tx, writer, block.block.id, write)
    except (InvalidInput, NotAllowed):  # it is full, or the agent may only read it
        return await _archive(tx, writer, agent_id, text)
    return kept


def writer_for(
    agent: AgentRecord,
    turn_id: str,
    origins: tuple[Origin, ...],
    now: int,
    authority: Authority,
) -> Writer:
    """Return the writer of what an owner has said to an agent, in a turn between the two."""
    return Writer(
        actor=Actor("system", agent.id, agent.name, Trust.OWNER),
        source=Source(origins, OWNER_ONLY, Trust.OWNER),
        now=now,
        agent_id=agent.id,
        turn_id=turn_id,
        reason="your owner said so",
        authority=authority,
    )


async def _human_block(tx: Connection, writer: Writer, agent_id: str) -> VisibleBlock | None:
    """Return an agent's own block about its owner, if lines can be added to it here."""
    try:
        seen = await blocks.find(tx, agent_id, HUMAN, writer.participants)
    except NotFound:
        return None
    may_append = seen.permission not in (Permission.READ_ONLY, Permission.PARTNER, Permission.HUMAN)
    is_text = isinstance(seen.block.schema, TextSchema)
    return seen if is_text and may_append and seen.block.owner_id == agent_id else None


def _place_of(
    text: str, lines: Sequence[Line], replaces: str, writer: Writer
) -> tuple[int, Relation]:
    """Return the line that a fact repeats, corrects or extends, and which of these it does."""
    wanted = words(replaces)
    for place, line in enumerate(lines):
        there = words(line.text)
        if wanted and any(
            wanted == there[at : at + len(wanted)] for at in range(len(there) - len(wanted) + 1)
        ):
            return place, Relation.CONTRADICTS
    found = (-1, Relation.UNRELATED)
    for place, line in enumerate(lines):
        relation = compare(text, line.text).kind
        if relation is Relation.SAME:
            return place, relation
        # What strangers wrote never takes the place of what the owner said.
        if relation is not Relation.UNRELATED and writer.source.trust.trusted:
            found = (place, relation)
    return found


async def _archive(tx: Connection, writer: Writer, agent_id: str, text: str) -> KeptFact:
    done = await passages.write(tx, writer, agent_id, Insert(text, tags=("fact",)))
    kind = FactChange.KNOWN if done.kind == "merged" else FactChange.ARCHIVED
    return KeptFact(kind, done.passage.id, done.passage.text)


def _line_text(fact: str, now: int, zone: tzinfo) -> str:
    """Return a fact as one line; "tomorrow" has the day that it means beside it."""
    text = " ".join(fact.split())
    if not text:
        raise InvalidInput("There is nothing to keep: the fact is empty. Nothing was changed.")
    text = text[0].upper() + text[1:]
    day = day_meant(text, now, zone)
    return f"{text} ({day})" if day and day not in text else text
