"""What a model was shown in a step of a turn: exactly, line by line, with origin and reason."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from asterism.store import epochs, journal, spending, summaries
from asterism.store.database import Connection
from asterism.turns.context import BYTES_PER_TOKEN, Context, Section, held, prefix_wire, sections_at
from asterism.types.agents import Audience, Participants
from asterism.types.turns import Entry, EntryKind, ReplyMeta, TurnRecord, text_of

_EPOCHS_LOOKED_AT = 64


@dataclass(frozen=True, slots=True)
class ShownLine:
    """One part of a context: a section of the prefix, or a message of the tail."""

    part: str
    """`system`, `block human`, `summary` …, or `message`, `reply`, `result`."""
    origin: str
    """A turn and its step, a block and its version, a summary …"""
    why: str
    tokens: int
    cached: bool
    """Whether the request before it, in the same epoch, began with the same."""
    text: str
    wire: bytes = b""
    """The message itself; empty for a section, which is a part of the first message."""


@dataclass(frozen=True, slots=True)
class ShownContext:
    """All that a model was sent in a step, or would be sent next."""

    turn_id: str | None
    step: int | None
    model: str
    epoch: int
    why: str
    """Why the prefix was compiled."""
    lines: tuple[ShownLine, ...]
    messages: tuple[bytes, ...]
    """The request's messages, byte by byte, images by their digests."""
    tokens_in: int = 0
    """What the vendor counted; 0 if nothing was sent."""
    tokens_cached: int = 0
    tokens_out: int = 0
    cost: int | None = None
    """What the reply cost, in nano-dollars; None where no money is counted."""

    @property
    def tokens(self) -> int:
        """About how many tokens it has."""
        return sum(line.tokens for line in self.lines)


def tokens_in(text: str) -> int:
    """Return about how many tokens a text has."""
    return len(text.encode()) // BYTES_PER_TOKEN


async def context_of_step(
    tx: Connection, record: TurnRecord, entries: Sequence[Entry], step: int
) -> ShownContext | None:
    """Return what the model was shown before a reply of a turn; None if there is no such reply."""
    replies = [entry for entry in entries if entry.kind is EntryKind.REPLY]
    reply = next((one for one in replies if one.key == f"{step}/reply"), None)
    if reply is None:
        return None
    meta = ReplyMeta.from_json(reply.meta)
    epoch = await epochs.get(tx, record.agent_id, meta.epoch or 0)
    if epoch is None:
        return None
    compact, skipped = meta.compact, meta.skipped
    sections = [one for one in sections_at(epoch) if (one.compact if compact else one.full)]
    participants = Participants.from_key(epoch.participants)
    tail = await _tail(tx, record.agent_id, epoch, participants, reply.seq - 1)
    sent_before = await _sent_before(tx, record, epoch, reply.seq)
    lines = [
        _section_line(section, cached=sent_before > 0)
        for section in sections
        if section.text.strip()
    ]
    lines += [
        _message_line(one, epoch.first_seq, cached=one.seq <= sent_before) for one in tail[skipped:]
    ]
    return ShownContext(
        turn_id=record.id,
        step=step,
        model=meta.model,
        epoch=epoch.number,
        why=epoch.why,
        lines=tuple(lines),
        messages=(
            prefix_wire(sections, compact=compact),
            *(one.body for one in tail[skipped:]),
        ),
        tokens_in=meta.usage.input,
        tokens_cached=meta.usage.cached,
        tokens_out=meta.usage.output,
        cost=await spending.cost_of(tx, record.id, reply.key),
    )


@dataclass(frozen=True, slots=True)
class Past:
    """What stood in the context before an entry, from which requests can be composed anew."""

    head: bytes
    compact_head: bytes
    messages: tuple[bytes, ...]


async def past_of(tx: Connection, record: TurnRecord, reply: Entry | None) -> Past | None:
    """Return the past before a reply, or before the end of a turn that got none."""
    number = ReplyMeta.from_json(reply.meta).epoch if reply is not None else None
    if number is not None:
        epoch = await epochs.get(tx, record.agent_id, number)
    else:
        epoch = await _epoch_of(tx, record)
    if epoch is None:
        return None
    last = record.last_seq if reply is None else reply.seq - 1
    tail = await _tail(tx, record.agent_id, epoch, Participants.from_key(epoch.participants), last)
    sections = sections_at(epoch)
    return Past(
        prefix_wire(sections),
        prefix_wire(sections, compact=True),
        tuple(one.body for one in tail),
    )


async def _epoch_of(tx: Connection, record: TurnRecord) -> epochs.Epoch | None:
    """Return the epoch in which a turn ended that has no reply to tell."""
    heard_by = str(Audience.of_turn(record.audience))
    until = record.ended_at or record.opened_at
    for epoch in await epochs.until(tx, record.agent_id, until, _EPOCHS_LOOKED_AT):
        if str(Participants.from_key(epoch.participants).audience) == heard_by:
            return epoch
    return None


def context_now(context: Context, tail: Sequence[journal.VisibleEntry], model: str) -> ShownContext:
    """Return what a model would be shown if a message came now."""
    epoch = context.epoch
    sections = [one for one in sections_at(epoch) if one.full and one.text.strip()]
    lines = [_section_line(section, cached=context.saved) for section in sections]
    lines += [_message_line(one, epoch.first_seq, cached=context.saved) for one in tail]
    return ShownContext(
        turn_id=None,
        step=None,
        model=model,
        epoch=epoch.number,
        why=epoch.why,
        lines=tuple(lines),
        messages=(context.prefix, *(one.body for one in tail)),
    )


async def tail_now(tx: Connection, agent_id: str, context: Context) -> list[journal.VisibleEntry]:
    """Return what the tail of a context is made of."""
    return await _tail(tx, agent_id, context.epoch, context.participants, context.upto)


async def _tail(
    tx: Connection, agent_id: str, epoch: epochs.Epoch, participants: Participants, last: int
) -> list[journal.VisibleEntry]:
    summary = await summaries.get(tx, epoch.summary) if epoch.summary else None
    return await held(tx, agent_id, participants, summary, epoch.first_seq, last)


async def _sent_before(tx: Connection, record: TurnRecord, epoch: epochs.Epoch, before: int) -> int:
    """Return the last entry that the request before this one had sent in the same epoch, or 0."""
    found = await journal.reply_before(tx, record.agent_id, before)
    while found is not None:
        number = ReplyMeta.from_json(found.meta).epoch
        if number == epoch.number:
            return found.seq - 1
        if (number or 0) < epoch.number and found.seq < epoch.first_seq:
            return 0
        found = await journal.reply_before(tx, record.agent_id, found.seq)
    return 0


def _section_line(section: Section, *, cached: bool) -> ShownLine:
    return ShownLine(
        part=section.name,
        origin=section.origin or "agent",
        why=section.why,
        tokens=tokens_in(section.text),
        cached=cached,
        text=section.text,
    )


def _message_line(one: journal.VisibleEntry, first_seq: int, *, cached: bool) -> ShownLine:
    why = "of the conversation since the last compaction"
    if one.seq < first_seq:
        why = "kept in full when older messages were compacted"
    return ShownLine(
        part=one.kind.value,
        origin=f"{one.turn_id}/{one.key}",
        why=why,
        tokens=len(one.body) // BYTES_PER_TOKEN,
        cached=cached,
        text=_said(one),
        wire=one.body,
    )


def _said(one: journal.VisibleEntry) -> str:
    text = text_of(one.body)
    calls: list[dict[str, Any]] = orjson.loads(one.body).get("tool_calls") or []
    spelled = [f"{call['function']['name']}({call['function']['arguments']})" for call in calls]
    return "\n".join([*([text] if text else []), *spelled])
