"""Why a memory is there: its origins, down to the original texts."""

from __future__ import annotations

import re
from collections.abc import Sequence

from asterism.errors import NotFound
from asterism.memory import blocks, people
from asterism.memory import people as stored_people
from asterism.memory.history import blame_for
from asterism.records import dataclass
from asterism.store import agents, journal, passages, summaries
from asterism.store.database import Connection
from asterism.times import OptionalMoment
from asterism.types.agents import OWNER_ALONE, Audience, Participants
from asterism.types.memory import EditRecord, Origin, OriginKind, Passage
from asterism.types.turns import Entry, MessageMeta, Reply, text_of

_MAX_DEPTH = 12
_MAX_ORIGINALS = 50
_MAX_DIGITS = 18
_NUMBERED = re.compile(r"^(.+):(\d+)$")


@dataclass(frozen=True, slots=True)
class Trace:
    """One thing that a memory is or comes from."""

    what: str
    """A description for a person."""
    text: str
    at_ms: int | None = None
    children: tuple[Trace, ...] = ()
    """What it comes from."""

    at = OptionalMoment()


async def why(
    tx: Connection,
    ref: str,
    *,
    agent_id: str | None = None,
    participants: Participants = OWNER_ALONE,
) -> Trace:
    """Return the origins of a memory; those that are hidden look as if they were gone.

    Args:
        ref: The id of a passage or of a summary, a block's label, or `label:line`.
        agent_id: Whose blocks a label means; None: anyone's, if only one fits.
        participants: Those present.
    """
    ref = ref.strip()
    if ref.startswith("pas_"):
        passage = await passages.get(tx, ref)
        if passage is None or not participants.can_see(passage.source.audience):
            raise NotFound(f'There is no passage {ref!r}. "asterism archive list" shows them.')
        return await _passage(tx, participants, passage, 0)
    if ref.startswith("sum_"):
        trace = await _summary(tx, participants, ref)
        if trace is None:
            raise NotFound(f"There is no summary {ref!r}.")
        return trace
    return await _block(tx, participants, ref, agent_id)


# -- passages --------------------------------------------------------------------------------------


async def _passage(
    tx: Connection, participants: Participants, passage: Passage, depth: int
) -> Trace:
    archive = await passages.archive(tx, passage.archive_id)
    whose = f" of {archive.name}" if archive is not None else ""
    ended = ""
    if passage.retracted_at_ms is not None:
        ended = ", retracted since"
    elif passage.superseded_by is not None:
        ended = f", superseded by {passage.superseded_by}"
    children = await _origins(tx, participants, passage.source.origins, depth)
    if depth < _MAX_DEPTH:
        for former in await passages.superseded_by(tx, passage):
            if not participants.can_see(former.source.audience):
                continue
            trace = await _passage(tx, participants, former, depth + 1)
            children.append(Trace(f"took the place of {trace.what}", *_rest(trace)))
    return Trace(
        f"passage {passage.id} in the archive{whose}, written by {passage.author}{ended}",
        passage.text,
        passage.known_from_ms,
        tuple(children),
    )


def _rest(trace: Trace) -> tuple[str, int | None, tuple[Trace, ...]]:
    return trace.text, trace.at_ms, trace.children


async def _origins(
    tx: Connection, participants: Participants, origins: Sequence[Origin], depth: int
) -> list[Trace]:
    return [await _origin(tx, participants, origin, depth) for origin in origins]


async def _origin(tx: Connection, participants: Participants, origin: Origin, depth: int) -> Trace:
    match origin.kind:
        case OriginKind.PERSON:
            return await _person(tx, origin)
        case OriginKind.MESSAGE:
            return await _message(tx, participants, origin)
        case OriginKind.CALL:
            return await _call(tx, participants, origin)
        case OriginKind.DOCUMENT:
            where = f", {origin.detail}" if origin.detail else ""
            return Trace(f"document {origin.ref}{where}", "")
        case OriginKind.IMPORT:
            detail = f", {origin.detail}" if origin.detail else ""
            return Trace(f"imported from {origin.ref}{detail}", "")
        case OriginKind.PASSAGE:
            passage = await passages.get(tx, origin.ref)
            visible = passage is not None and participants.can_see(passage.source.audience)
            if passage is not None and visible and depth < _MAX_DEPTH:
                return await _passage(tx, participants, passage, depth + 1)
        case OriginKind.SUMMARY:
            trace = await _summary(tx, participants, origin.ref)
            if trace is not None:
                return trace
    return _gone(f"{origin.kind.value} {origin.ref}")


def _gone(what: str) -> Trace:
    return Trace(f"{what}, which is not kept any more", "")


async def _person(tx: Connection, origin: Origin) -> Trace:
    how = f" ({origin.detail})" if origin.detail else ""
    try:
        name = (await people.find(tx, origin.ref)).name
    except NotFound:
        name = origin.ref
    return Trace(f"written by {name}{how}", "")


# -- the journal -----------------------------------------------------------------------------------


async def _entries(tx: Connection, participants: Participants, turn_id: str) -> dict[str, Entry]:
    record = await journal.turn(tx, turn_id)
    if record is None or not participants.can_see(Audience.of_turn(record.audience)):
        return {}
    return {entry.key: entry for entry in await journal.entries_of(tx, record)}


async def _message(tx: Connection, participants: Participants, origin: Origin) -> Trace:
    entries = await _entries(tx, participants, origin.ref)
    entry = entries.get("in")
    if entry is None:
        return _gone(f"the message of {origin.ref}")
    meta = MessageMeta.from_json(entry.meta)
    sender = meta.sender
    if meta.person is not None:
        # Whoever acts by verbs has no account.
        names = dict(await stored_people.people_names(tx))
        sender = names.get(meta.person, meta.person)
    from_whom = f" from {sender}" if sender else ""
    return Trace(f"message{from_whom} that opened {origin.ref}", text_of(entry.body), entry.at_ms)


async def _call(tx: Connection, participants: Participants, origin: Origin) -> Trace:
    entries = await _entries(tx, participants, origin.ref)
    step, _, index = origin.detail.partition("/call/")
    reply = entries.get(f"{step}/reply")
    if reply is None or not index.isdecimal():
        return _gone(f"call {origin.detail} of {origin.ref}")
    calls = Reply.from_entry(reply.body, reply.meta).calls
    if int(index) >= len(calls):
        return _gone(f"call {origin.detail} of {origin.ref}")
    call = calls[int(index)]
    children: list[Trace] = []
    result = entries.get(origin.detail)
    if result is not None:
        children.append(Trace("its result", text_of(result.body), result.at_ms))
    # The model made the call; what it was asked for is where a person would look.
    children.append(await _message(tx, participants, origin))
    return Trace(
        f"call of {call.name} in {origin.ref}",
        f"{call.name}({call.arguments})",
        reply.at_ms,
        tuple(children),
    )


async def _summary(tx: Connection, participants: Participants, summary_id: str) -> Trace | None:
    summary = await summaries.get(tx, summary_id)
    if summary is None or not participants.can_see(summary.audience):
        return None
    agent = await agents.by_id(tx, summary.agent_id)
    originals = await summaries.originals(
        tx,
        summary,
        participants.can_see,
        most=_MAX_ORIGINALS,
    )
    children = [
        Trace(f"{entry.kind.value} in {entry.turn_id}", text_of(entry.body), entry.at_ms)
        for entry in originals
    ]
    if summary.messages > len(children) and participants.owner_alone:
        children.append(Trace(f"and {summary.messages - len(children):,} more messages", ""))
    return Trace(
        f"summary {summary.id} of {summary.messages:,} messages of {agent.name if agent else '?'}, "
        f"made by {summary.made_by}",
        summary.text,
        summary.at_ms,
        tuple(children),
    )


# -- blocks ----------------------------------------------------------------------------------------


async def _block(
    tx: Connection, participants: Participants, ref: str, agent_id: str | None
) -> Trace:
    numbered = _NUMBERED.match(ref)
    line = None
    try:
        seen = await blocks.find(tx, agent_id, ref, participants)
    except NotFound:
        # A label may end in a number, so that the whole is tried first.
        if numbered is None:
            raise
        seen = await blocks.find(tx, agent_id, numbered[1], participants)
        # Python reads no number of thousands of digits.
        line = int(numbered[2][:_MAX_DIGITS])
    visible = blocks.as_visible_to(seen, participants)
    assert visible is not None, "what those present may not see was not found"
    seen = visible
    blame = await blame_for(tx, seen, participants)
    if line is not None and not 1 <= line <= len(blame):
        raise NotFound(
            f"Block {seen.block.label!r} has {len(blame)} lines, so there is no line {line}."
        )
    children: list[Trace] = []
    for number, (text_line, records) in enumerate(blame, 1):
        if line is None or number == line:
            edits = [await _edit(tx, participants, record) for record in records]
            at = records[-1].at_ms if records else None
            children.append(
                Trace(f"line {number} of {seen.name}", text_line.text, at, tuple(edits))
            )
    if line is not None:
        return children[0]
    return Trace(f"block {seen.name}", seen.block.text, seen.block.updated_at_ms, tuple(children))


async def _edit(tx: Connection, participants: Participants, record: EditRecord) -> Trace:
    turn = f" in {record.turn_id}" if record.turn_id else ""
    return Trace(
        f"edit {record.number}, {record.kind} by {record.author}{turn}",
        record.reason,
        record.at_ms,
        tuple(await _origins(tx, participants, record.source.origins, 0)),
    )
