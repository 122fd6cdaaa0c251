"""What a model was sent in a step of a turn: exactly, line by line, with origin and reason."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from enum import StrEnum
from typing import Any

import orjson

from asterism.ports import ModelRequest, Profile, RequestPart
from asterism.records import dataclass
from asterism.store import epochs, journal, spending, summaries
from asterism.store.database import Connection
from asterism.turns.context import (
    BYTES_PER_TOKEN,
    COMPACT_MEMORY_TOKENS,
    COMPACT_TOKENS,
    CORE_WHY,
    Context,
    Section,
    Tail,
    earlier_message,
    entries_for,
    hidden_summary,
    prefix_wire,
    sections_at,
    sent_wire,
    zone_of,
)
from asterism.turns.digest import digest_lines
from asterism.types.agents import Audience, Participants
from asterism.types.turns import (
    END,
    RECALLED,
    Entry,
    EntryKind,
    MessageMeta,
    NoteMeta,
    ReplyMeta,
    SentContext,
    TurnRecord,
    images_in,
    text_of,
    with_images,
)

Describe = Callable[[str, ModelRequest], Sequence[RequestPart]]
"""From a model, as `vendor:name`, and a request to all that its port sends for it."""

_EPOCHS_LOOKED_AT = 64
_COUNTS_LOOKED_AT = 8
"""Replies that are looked at for the latest count of a model."""
_MESSAGE_TOKENS = 4
"""What vendors put around a message."""
_MAX_DIFFERENCE = 0.03
"""How far an estimate may be off without a word about it."""


class TokenBasis(StrEnum):
    """Where the tokens of a context come from; those of its lines are estimates that add up."""

    COUNTED = "counted"
    """The vendor, or the model's own process, counted the whole."""
    CORRECTED = "corrected"
    """They are estimated, and corrected by what the vendor counted before."""
    ESTIMATED = "estimated"
    """They are estimated, and there is no count of the model to correct them by."""


@dataclass(frozen=True, slots=True)
class ContextLine:
    """One part of a context: a section of the prefix, a tool, or a message of the tail."""

    part: str
    """`system`, `block human`, `tool recall`, `examples` …, or `message`, `reply`, `result`."""
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
class LeftOut:
    """Something of a context that a model is not sent."""

    what: str
    """Such as `6 messages` or `block diary`."""
    tokens: int
    """About how many it has."""
    why: str


@dataclass(frozen=True, slots=True)
class ContextView:
    """All that a model was sent in a step, or would be sent next."""

    turn_id: str | None
    step: int | None
    model: str
    epoch: int
    why: str
    """Why the prefix was compiled."""
    lines: tuple[ContextLine, ...]
    messages: tuple[bytes, ...]
    """The request's messages, byte by byte, images by their digests."""
    left_out: tuple[LeftOut, ...] = ()
    compact: bool = False
    """Whether it is the short prompt for small models."""
    basis: TokenBasis = TokenBasis.ESTIMATED
    estimate: int = 0
    """How many tokens were estimated, without the count of this very request."""
    corrected_by: str = ""
    """The reply whose count the estimate is corrected by, such as `turn_…/0/reply`."""
    difference: str = ""
    """Why the count is more than 3 % off the estimate, if it is."""
    tokens_in: int = 0
    """What the vendor counted; 0 if nothing was sent, or it did not count."""
    tokens_cached: int = 0
    tokens_out: int = 0
    cost: int | None = None
    """What the reply cost, in nano-dollars; None where no money is counted."""

    @property
    def tokens(self) -> int:
        """How many tokens it has, as `basis` says: the sum of its lines."""
        return sum(line.tokens for line in self.lines)


def tokens_in(text: str) -> int:
    """Return about how many tokens a text has.

    Most vendors read four letters at once, a digit with what separates it alone, and three bytes
    of other scripts: looked at with the tokenizers of Llama 2 and SmolLM2 (2026-11).
    """
    digits = sum(map(text.count, "0123456789"))
    plain = len(text.encode("ascii", "ignore"))
    other = len(text.encode("utf-8", "replace")) - plain
    return round((plain - digits) / BYTES_PER_TOKEN + digits * 1.2 + other / 3)


async def context_of_step(
    tx: Connection, record: TurnRecord, entries: Sequence[Entry], step: int, describe: Describe
) -> ContextView | None:
    """Return what the model was sent before a reply of a turn; None if there is no such reply."""
    reply = next((entry for entry in entries if entry.key == f"{step}/reply"), None)
    if reply is None:
        return None
    context = await _sent_for(tx, record, entries, reply, describe)
    if context is None:
        return None
    earlier = await _earlier_count(tx, record.agent_id, reply.seq, context.model, describe)
    usage = ReplyMeta.from_json(reply.meta).usage
    context = replace(
        context,
        tokens_in=0 if usage.estimated else usage.input,
        tokens_cached=usage.cached,
        tokens_out=usage.output,
        cost=await spending.cost_of(tx, record.id, reply.key),
    )
    return _with_tokens(context, earlier, 0 if usage.estimated else usage.input - usage.discarded)


async def context_now(
    tx: Connection,
    context: Context,
    model: str,
    request: ModelRequest,
    sent: SentContext,
    describe: Describe,
) -> tuple[ContextView, ModelRequest]:
    """Return what a model would be sent if a message came now, and the request with its messages.

    Args:
        tx: The connection.
        context: What the agent sees with those present.
        model: The model, as `vendor:name`.
        request: What is asked, without messages.
        sent: What of the context is sent.
        describe: Tells what the model's port sends for a request.
    """
    epoch, agent_id = context.epoch, context.epoch.agent_id
    tail = await _tail(tx, agent_id, epoch, context.participants, context.upto)
    messages, known = _messages(epoch, tail, sent), context.saved
    request = replace(request, messages=_seen_by(sent, messages))
    parts = describe(model, request)
    shown = _compose(epoch, tail, sent, messages, model, parts, lambda _: known, cached=known)
    earlier = await _earlier_count(tx, agent_id, context.upto + 1, model, describe)
    earlier = earlier or await _count_of_others(tx, model, describe)
    return _with_tokens(shown, earlier, 0), request


def with_count(context: ContextView, counted: int) -> ContextView:
    """Return a context with the tokens that its model counts; 0: it does not."""
    if not counted:
        return context
    lines = _adding_up(context.lines, counted)
    return replace(context, lines=lines, basis=TokenBasis.COUNTED)


async def _sent_for(
    tx: Connection,
    record: TurnRecord,
    entries: Sequence[Entry],
    reply: Entry,
    describe: Describe,
) -> ContextView | None:
    """Return what was sent for a reply, with tokens that are estimated by length alone."""
    meta = ReplyMeta.from_json(reply.meta)
    epoch = await epochs.get(tx, record.agent_id, meta.epoch or 0)
    if epoch is None:
        return None
    sent = meta.sent
    participants = Participants.from_key(epoch.participants)
    tail = await _tail(tx, record.agent_id, epoch, participants, reply.seq - 1)
    before = await _sent_before(tx, record, epoch, reply.seq)
    same = before is not None and before[1] == sent
    upto = before[0] if before is not None and same else 0
    tools = await _tools(tx, sent.tools)
    messages = _messages(epoch, tail, sent)
    request = ModelRequest(
        model=meta.model.partition(":")[2],
        messages=_seen_by(sent, messages),
        tools=tools,
        message_tools=await _tools(tx, sent.message_tools),
        key=f"{record.id}/{reply.key}",
        timeout=0.0,
        agent_id=record.agent_id,
        schema=_schema(entries),
        thoughts=_thoughts(entries, reply, meta.model),
    )
    shown = _compose(
        epoch,
        tail,
        sent,
        messages,
        meta.model,
        describe(meta.model, request),
        lambda entry: entry.seq <= upto,
        cached=before is not None and replace(before[1], skipped=sent.skipped) == sent,
    )
    if sent.tools and tools is None:
        gone = LeftOut("tools", 0, "what was offered then is not kept any more")
        shown = replace(shown, left_out=(*shown.left_out, gone))
    return replace(shown, turn_id=record.id, step=int(reply.key.partition("/")[0]))


async def _tools(tx: Connection, blob_id: str) -> bytes | None:
    """Return the descriptions of tools that a request offered."""
    found = await journal.get_blob(tx, [blob_id]) if blob_id else {}
    return found[blob_id].body if blob_id in found else None


def _schema(entries: Sequence[Entry]) -> bytes | None:
    """Return the JSON schema that the answer of a turn must fulfil."""
    opening = next((entry for entry in entries if entry.key == "in"), None)
    schema = MessageMeta.from_json(opening.meta).schema if opening is not None else None
    return schema.encode() if schema else None


def _thoughts(entries: Sequence[Entry], reply: Entry, model: str) -> dict[bytes, bytes]:
    """Return the vendor's records of its reasoning that went back to it in a turn."""
    vendor = model.partition(":")[0]
    earlier = [entry for entry in entries if entry.seq < reply.seq]
    metas = {
        entry.body: ReplyMeta.from_json(entry.meta)
        for entry in earlier
        if entry.kind is EntryKind.REPLY and entry.meta is not None and '"thought"' in entry.meta
    }
    return {
        body: meta.thought
        for body, meta in metas.items()
        if meta.thought and meta.model.partition(":")[0] == vendor
    }


def _messages(
    epoch: epochs.Epoch, tail: Sequence[journal.VisibleEntry], sent: SentContext
) -> list[bytes]:
    """Return the messages of a request, images by their digests."""
    sections = sections_at(epoch)
    bodies = [entry.body for entry in tail]
    prefix = prefix_wire(sections, compact=sent.compact)
    earlier = _earlier(sections, bodies, sent)
    return [prefix, *earlier, *bodies[sent.skipped :]]


def _earlier(
    sections: Sequence[Section], bodies: Sequence[bytes], sent: SentContext
) -> list[bytes]:
    """Return the message that stands for what a small model is not sent, if there is one."""
    summary = hidden_summary(sections)
    if not sent.compact or not (sent.skipped or summary):
        return []
    message = earlier_message(summary, list(digest_lines(bodies[: sent.skipped])))
    return [message] if message is not None else []


def _seen_by(sent: SentContext, messages: list[bytes]) -> list[bytes]:
    """Return messages as a model sees them: a small one sees no images."""
    if not sent.compact:
        return messages
    return [with_images(body, None) if images_in(body) else body for body in messages]


def plain_parts(request: ModelRequest) -> list[RequestPart]:
    """Return the parts of a request that is sent as it is."""
    parts: list[RequestPart] = []
    for place, wire in enumerate(request.messages):
        parts.append(RequestPart("message", _line_text(wire), message=place, messages=1))
        if wire in request.thoughts:
            why = "the vendor wants its own record of its reasoning back"
            thought = request.thoughts[wire].decode(errors="replace")
            parts.append(RequestPart("reasoning", thought, why, message=place))
    tools: list[dict[str, Any]] = orjson.loads(request.tools) if request.tools else []
    described = [
        RequestPart(
            "tool",
            orjson.dumps(tool).decode(),
            "the agent may call it",
            str(tool.get("function", {}).get("name", "")),
        )
        for tool in tools
    ]
    if request.schema is not None:
        why = "the answer has to be JSON of this form"
        described.append(RequestPart("schema", request.schema.decode(), why))
    return [*parts[:1], *described, *parts[1:]]


def _compose(
    epoch: epochs.Epoch,
    tail: Sequence[journal.VisibleEntry],
    sent: SentContext,
    messages: Sequence[bytes],
    model: str,
    parts: Sequence[RequestPart],
    is_cached: Callable[[journal.VisibleEntry], bool],
    *,
    cached: bool,
) -> ContextView:
    """Return a context from the parts of its request, with tokens that are estimated by length."""
    sections = sections_at(epoch)
    entries = tail[sent.skipped :]
    ahead = len(messages) - len(entries)
    lines: list[ContextLine] = []
    for part in parts:
        if part.message == 0 and part.kind == "message":
            lines += _section_lines(sections, compact=sent.compact, cached=cached)
        elif part.message is not None and part.message < ahead:
            known = bool(entries) and is_cached(entries[0])
            lines.append(_earlier_line(part, sent.skipped, cached=known))
        elif part.message is not None:
            entry = entries[part.message - ahead]
            lines.append(_message_line(entry, part, epoch.first_seq, cached=is_cached(entry)))
        else:
            lines.append(_added_line(part, model, cached=cached))
    return ContextView(
        turn_id=None,
        step=None,
        model=model,
        epoch=epoch.number,
        why=epoch.why,
        lines=tuple(lines),
        messages=tuple(messages),
        left_out=tuple(_left_out(sections, tail[: sent.skipped], compact=sent.compact)),
        compact=sent.compact,
    )


def _left_out(
    sections: Sequence[Section], messages: Sequence[journal.VisibleEntry], *, compact: bool
) -> list[LeftOut]:
    """Return what a model is not sent of its context."""
    found: list[LeftOut] = []
    if messages:
        count = len(messages)
        what = f"{count:,} message{'s' * (count != 1)}"
        why = "the model's window has no room for them"
        if compact:
            why = f"a small model reads at most {COMPACT_TOKENS:,} tokens of the past"
        tokens = sum(len(entry.body) for entry in messages) // BYTES_PER_TOKEN
        found.append(LeftOut(what, tokens, why))
    in_short = {section.name for section in sections if section.compact}
    room = COMPACT_MEMORY_TOKENS * BYTES_PER_TOKEN
    for section in sections if compact else ():
        is_block, size = section.name.startswith("block "), len(section.text.encode())
        if is_block and section.compact:
            room -= size
        elif section.full and section.name not in in_short and section.text.strip():
            why = _why_no_block(section, size, room) if is_block else "a small model is given less"
            found.append(LeftOut(section.name, tokens_in(section.text), why))
    return found


def _why_no_block(section: Section, size: int, room: int) -> str:
    """Return why a small model is not sent a block, by the bytes that were left for it."""
    if not section.why.startswith(CORE_WHY):
        return "a small model reads core blocks only"
    if size <= room:
        return "it said nothing when this context began"
    return f"a small model reads at most {COMPACT_MEMORY_TOKENS:,} tokens of core blocks"


# -- tokens ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Count:
    """How many tokens a model reads for each that is estimated."""

    factor: float
    origin: str
    """The reply whose count tells so."""


async def _earlier_count(
    tx: Connection, agent_id: str, before: int, model: str, describe: Describe
) -> _Count | None:
    """Return by what the latest count of a model, before an entry, corrects the estimate."""
    for _ in range(_COUNTS_LOOKED_AT):
        found = await journal.reply_before(tx, agent_id, before)
        if found is None:
            return None
        before = found.seq
        record = await journal.turn_of(tx, agent_id, found.turn_id)
        count = await _count_of(tx, record, found, model, describe) if record is not None else None
        if count is not None:
            return count
    return None


async def _count_of_others(tx: Connection, model: str, describe: Describe) -> _Count | None:
    """Return the latest count of a model for any agent, for one that it has not answered yet."""
    for record in await journal.turns_of(tx, None, _COUNTS_LOOKED_AT):
        reply = await journal.reply_before(tx, record.agent_id, record.last_seq + 1)
        count = await _count_of(tx, record, reply, model, describe) if reply is not None else None
        if count is not None:
            return count
    return None


async def _count_of(
    tx: Connection, record: TurnRecord, reply: Entry, model: str, describe: Describe
) -> _Count | None:
    """Return what the vendor's count for a reply tells; None if it is another model's, or none."""
    meta = ReplyMeta.from_json(reply.meta)
    usage = meta.usage
    if meta.model != model or usage.estimated or not usage.input or reply.turn_id != record.id:
        return None
    entries = await journal.entries_of(tx, record)
    shown = await _sent_for(tx, record, entries, reply, describe)
    if shown is None or not shown.tokens:
        return None
    return _Count((usage.input - usage.discarded) / shown.tokens, f"{record.id}/{reply.key}")


def _with_tokens(context: ContextView, earlier: _Count | None, counted: int) -> ContextView:
    """Return a context whose lines add up to what was counted, or is estimated best."""
    estimate = round(context.tokens * earlier.factor) if earlier is not None else context.tokens
    basis = TokenBasis.CORRECTED if earlier is not None else TokenBasis.ESTIMATED
    difference = ""
    if counted:
        basis = TokenBasis.COUNTED
        if abs(estimate - counted) > counted * _MAX_DIFFERENCE:
            difference = _explain_difference(context, estimate, counted, corrected=earlier)
    return replace(
        context,
        lines=_adding_up(context.lines, counted or estimate),
        basis=basis,
        estimate=estimate,
        corrected_by=earlier.origin if earlier is not None else "",
        difference=difference,
    )


def _explain_difference(
    context: ContextView, estimate: int, counted: int, *, corrected: _Count | None
) -> str:
    if any(images_in(message) for message in context.messages) and not context.compact:
        return "it has images, which the vendor counts in its own way"
    if any(line.part == "reasoning" for line in context.lines):
        return "it has the vendor's record of its reasoning, which is not counted by its length"
    if corrected is None:
        return "there was no earlier count of this model to correct the estimate by"
    more = "more" if counted > estimate else "fewer"
    return f"its text has {more} tokens for its length than what was counted before"


def _adding_up(lines: Sequence[ContextLine], total: int) -> tuple[ContextLine, ...]:
    """Return lines whose tokens are in proportion to what they had, and add up to a total."""
    weight = sum(line.tokens for line in lines)
    if not weight or weight == total:
        return tuple(lines)
    shares = [line.tokens * total / weight for line in lines]
    tokens = [int(share) for share in shares]
    by_rest = sorted(range(len(shares)), key=lambda place: tokens[place] - shares[place])
    for place in by_rest[: total - sum(tokens)]:
        tokens[place] += 1
    return tuple(replace(line, tokens=new) for line, new in zip(lines, tokens, strict=True))


# -- lines -----------------------------------------------------------------------------------------


def _section_lines(
    sections: Sequence[Section], *, compact: bool, cached: bool
) -> list[ContextLine]:
    """Return a line for each section of a prefix; the first one has what a message costs."""
    there = [section for section in sections if section.text.strip()]
    there = [section for section in there if (section.compact if compact else section.full)]
    return [
        ContextLine(
            part=section.name,
            origin=section.origin or "agent",
            why=section.why,
            tokens=tokens_in(section.text) + (0 if place else _MESSAGE_TOKENS),
            cached=cached,
            text=section.text,
        )
        for place, section in enumerate(there)
    ]


def _added_line(part: RequestPart, model: str, *, cached: bool) -> ContextLine:
    """Return the line of something that is not a message: a tool, a rule, examples, a schema."""
    return ContextLine(
        part=f"{part.kind} {part.name}" if part.name else part.kind,
        origin="agent" if part.kind in {"tool", "schema"} else model.partition(":")[0],
        why=part.why,
        tokens=_tokens_of(part),
        cached=cached,
        text=part.text,
    )


def _earlier_line(part: RequestPart, left_out: int, *, cached: bool) -> ContextLine:
    """Return the line of what stands for messages that a small model is not sent."""
    what = f"{left_out:,} earlier message{'s' * (left_out != 1)}"
    if not left_out:
        what = "a summary that is too long"
    return ContextLine(
        part="earlier",
        origin="rule",
        why=f"stands for {what} for a small model",
        tokens=_tokens_of(part),
        cached=cached,
        text=part.text,
    )


def _message_line(
    entry: journal.VisibleEntry, part: RequestPart, first_seq: int, *, cached: bool
) -> ContextLine:
    if part.kind != "message":
        name, why, wire = part.kind, part.why, b""
    else:
        name, why, wire = entry.kind.value, _reason(entry, first_seq), entry.body
        if entry.key.startswith(RECALLED):
            name = "recalled"
        elif entry.kind is EntryKind.MESSAGE and entry.key.startswith("note/"):
            name = "note"
    return ContextLine(
        part=name,
        origin=f"{entry.turn_id}/{entry.key}",
        why=why,
        tokens=_tokens_of(part),
        cached=cached,
        text=part.text,
        wire=wire,
    )


def _tokens_of(part: RequestPart) -> int:
    return tokens_in(part.text) + part.messages * _MESSAGE_TOKENS


def _reason(entry: journal.VisibleEntry, first_seq: int) -> str:
    """Return why a message is in the context."""
    why = "of the conversation since the last compaction"
    if entry.seq < first_seq:
        why = "kept in full when older messages were compacted"
    if entry.kind is EntryKind.MESSAGE and entry.key.startswith("note/") and entry.meta is not None:
        why = _note_reason(entry.meta) or why
    return why


def _note_reason(meta: str) -> str:
    """Return why a processor told something; what it quotes is named in it, or comes after it."""
    note = NoteMeta.from_json(meta)
    unnamed = [origin for origin in note.origins if origin not in note.why]
    return "; ".join([*([note.why] if note.why else []), *unnamed])


def _line_text(wire: bytes) -> str:
    text = text_of(wire)
    calls: list[dict[str, Any]] = orjson.loads(wire).get("tool_calls") or []
    spelled = [f"{call['function']['name']}({call['function']['arguments']})" for call in calls]
    return "\n".join([*([text] if text else []), *spelled])


# -- the past --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Past:
    """What stood in the context before an entry, from which requests can be composed anew."""

    head: bytes
    messages: tuple[bytes, ...]
    """The whole tail, of which a request may have sent less."""
    compact: tuple[bytes, ...]
    """What a small model was sent, from its prefix on."""


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
    # How the turn ended was not known to the model that was asked before.
    tail = [entry for entry in tail if (entry.turn_id, entry.key) != (record.id, END)]
    sent = ReplyMeta.from_json(reply.meta).sent if reply is not None else SentContext()
    if not sent.compact:
        sent = SentContext(_skipped_for_small(tail), compact=True)
    return Past(
        prefix_wire(sections_at(epoch)),
        tuple(entry.body for entry in tail),
        tuple(_messages(epoch, tail, sent)),
    )


def _skipped_for_small(tail: Sequence[journal.VisibleEntry]) -> int:
    """Return how many of the first messages a small model is not sent."""
    messages = Tail(0)
    for entry in tail:
        messages.append(entry.kind, entry.body, entry.key)
    return messages.sent(Profile(compact=True))


async def _epoch_of(tx: Connection, record: TurnRecord) -> epochs.Epoch | None:
    """Return the epoch in which a turn ended that has no reply to tell."""
    heard_by = str(Audience.of_turn(record.audience))
    until = record.ended_at_ms or record.opened_at_ms
    for epoch in await epochs.until(tx, record.agent_id, until, _EPOCHS_LOOKED_AT):
        if str(Participants.from_key(epoch.participants).audience) == heard_by:
            return epoch
    return None


async def _tail(
    tx: Connection, agent_id: str, epoch: epochs.Epoch, participants: Participants, last: int
) -> list[journal.VisibleEntry]:
    """Return the entries of a tail, each as it was sent in its epoch."""
    summary = await summaries.get(tx, epoch.summary) if epoch.summary else None
    entries = await entries_for(tx, agent_id, participants, summary, epoch.first_seq, last)
    zone = zone_of(sections_at(epoch))
    return [replace(entry, body=sent_wire(entry, zone)) for entry in entries] if zone else entries


async def _sent_before(
    tx: Connection, record: TurnRecord, epoch: epochs.Epoch, before: int
) -> tuple[int, SentContext] | None:
    """Return what the request before this one had sent in the same epoch, and its last entry."""
    found = await journal.reply_before(tx, record.agent_id, before)
    while found is not None:
        meta = ReplyMeta.from_json(found.meta)
        if meta.epoch == epoch.number:
            return found.seq - 1, meta.sent
        if (meta.epoch or 0) < epoch.number and found.seq < epoch.first_seq:
            return None
        found = await journal.reply_before(tx, record.agent_id, found.seq)
    return None
