"""The tool `expand`: the exact messages that a summary in the context stands for, page by page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from asterism.errors import ToolError
from asterism.store import journal, summaries
from asterism.store.database import Connection
from asterism.store.journal import Told
from asterism.store.summaries import MayHear
from asterism.times import days_text, to_datetime
from asterism.tools.spellings import TEXT, also, unless_null
from asterism.tools.tool import Tool, ToolContext, tool
from asterism.types.effects import ToolEffect
from asterism.types.memory import Source
from asterism.types.people import Audience, Participants
from asterism.types.turns import Summary, spoken

_PAGE = 6_000
"""Bytes of wire form on a page; the text of a message is no longer than its wire form."""

_LONGEST_NUMBER = 19
"""Digits of a number that both engines can hold."""


@dataclass(frozen=True, slots=True)
class _Page:
    """Whole messages, or one part of a long one."""

    first_seq: int
    last_seq: int
    part: int = 0
    parts: int = 1


@tool(transactional=True, trust=None, compact=False, effects=ToolEffect("read"), audience="public")
async def expand(
    ctx: ToolContext,
    summary: Annotated[str, also("summary", "id", "message"), TEXT],
    page: Annotated[int, unless_null(1)] = 1,
) -> str:
    """Read the exact earlier messages that a summary stands for, or a message that was found.

    Args:
        summary: Its id, such as "sum_…" or "turn_…#12".
        page: Which page, from 1.
    """
    if "#" in summary:
        return await _message(ctx, summary.strip(), page)
    can_see = ctx.participants.can_see
    found = await _heard(ctx.tx, ctx.agent.id, can_see, summary.strip())
    if found is None:
        raise ToolError(
            f"There is no summary {summary!r}. Give the id that stands in front of a summary in "
            "your context; it begins with sum_."
        )
    outline = await summaries.outline(ctx.tx, found, can_see)
    pages = _pages(outline)
    if not pages:
        return f"The messages that {found.id} stands for are no longer there: they were forgotten."
    if not 1 <= page <= len(pages):
        raise ToolError(
            f"Summary {found.id} has {len(pages)} page{'s' * (len(pages) != 1)}, so there is no "
            f"page {page}. Call expand with a page from 1 to {len(pages)}."
        )
    shown = pages[page - 1]
    entries = await summaries.originals(
        ctx.tx, found, can_see, after_seq=shown.first_seq - 1, upto_seq=shown.last_seq
    )
    ctx.quotes([_source(one) for one in entries])
    parts = [_head(found, len(outline), page, len(pages)), _body(entries, shown)]
    if page == 1 and (former := await _taken_in(ctx.tx, found, can_see)):
        parts.insert(1, former)
    if page < len(pages):
        parts.append(f"Page {page} of {len(pages)}: call expand again with page {page + 1}.")
    return "\n\n".join(parts)


async def _message(ctx: ToolContext, id: str, page: int) -> str:
    """Return a message that a search has found, whole or page by page."""
    turn_id, _, number = id.partition("#")
    seq = int(number) if number.isdecimal() and len(number) < _LONGEST_NUMBER else 0
    found = [
        one
        for one in await journal.told(ctx.tx, ctx.agent.id, seq, seq)
        if one.turn_id == turn_id and ctx.participants.can_see(_source(one).audience)
    ]
    if not found:
        raise ToolError(f"There is no message {id!r}. Search for it to learn its id.")
    ctx.quotes(map(_source, found))
    parts = max(1, -(-len(found[0].body) // _PAGE))
    if not 1 <= page <= parts:
        raise ToolError(f"Message {id} has {parts} page{'s' * (parts != 1)}; there is no {page}.")
    text = _body(found, _Page(seq, seq, page - 1, parts))
    more = f"\n\nPage {page} of {parts}: call expand again with page {page + 1}."
    return text + more * (page < parts)


async def originals_exact(
    tx: Connection, agent_id: str, participants: Participants, summary_id: str
) -> list[bytes] | None:
    """Return the wire forms behind a summary; None if there is none for these participants."""
    found = await _heard(tx, agent_id, participants.can_see, summary_id)
    if found is None:
        return None
    entries = await summaries.originals(tx, found, participants.can_see)
    return [entry.body for entry in entries]


def _source(one: Told) -> Source:
    return Source((), Audience.of_turn(one.audience), one.trust)


async def _heard(
    tx: Connection, agent_id: str, can_see: MayHear, summary_id: str
) -> Summary | None:
    """Return a summary if it is the agent's own and may be heard."""
    found = await summaries.get(tx, summary_id)
    if found is None or found.agent_id != agent_id or not can_see(found.audience):
        return None
    return found


async def _taken_in(tx: Connection, summary: Summary, can_see: MayHear) -> str:
    """Return what tells of the summary before, which this one took in."""
    former = await summaries.latest(tx, summary.agent_id, summary.participants, summary.first_seq)
    if former is None or not can_see(former.audience):
        return ""
    return (
        f"It took in an earlier summary, {former.id}, of {former.messages:,} messages before "
        "these; call expand with that id to read them."
    )


def _pages(outline: Sequence[summaries.Place]) -> list[_Page]:
    pages: list[_Page] = []
    filled = _PAGE
    for place in outline:
        if place.size > _PAGE:
            parts = -(-place.size // _PAGE)
            pages.extend(_Page(place.seq, place.seq, part, parts) for part in range(parts))
            filled = _PAGE
        elif filled + place.size > _PAGE:
            pages.append(_Page(place.seq, place.seq))
            filled = place.size
        else:
            pages[-1] = _Page(pages[-1].first_seq, place.seq)
            filled += place.size
    return pages


def _head(summary: Summary, messages: int, page: int, pages: int) -> str:
    of = f", page {page} of {pages}" if pages > 1 else ""
    return f"{summary.id}: {messages:,} message{'s' * (messages != 1)}, word by word{of}."


def _body(entries: Sequence[Told], page: _Page) -> str:
    lines: list[str] = []
    turn_id = ""
    for entry in entries:
        if entry.turn_id != turn_id:
            turn_id = entry.turn_id
            lines.append(f"{turn_id}, {days_text(entry.at, entry.at)}")
        who, text = spoken(entry.body)
        if page.parts > 1:
            length = -(-len(text) // page.parts)
            text = text[page.part * length : (page.part + 1) * length]
            who = f"{who} (part {page.part + 1} of {page.parts})"
        lines.append(f"{who}, {to_datetime(entry.at):%H:%M}: {text}")
    return "\n".join(lines)


TOOLS: list[Tool] = [expand]
