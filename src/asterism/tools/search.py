"""The tool `search`: all that an agent remembers, as far as those present may hear it."""

from __future__ import annotations

from datetime import UTC
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator

from asterism.errors import AsterismError, StoreError, ToolError
from asterism.memory.words import words
from asterism.times import DAY, read_iso, to_ms
from asterism.tools.quoting import line
from asterism.tools.spellings import TEXT, also, unless_null
from asterism.tools.tool import Tool, ToolContext, tool
from asterism.types.effects import ToolEffect
from asterism.types.search import DOMAINS, MOST_HITS, Query

_MOST_FOUND = 50
_OWN_TURN = 8
"""How many more are asked for, since what was said in this turn is in the context anyway."""
_KEPT = ("passages", "documents")
_SPELLINGS: dict[str, tuple[str, ...]] = {
    "": DOMAINS,
    "all": DOMAINS,
    "archival_memory": _KEPT,
    "archival": _KEPT,
    "archive": _KEPT,
    "local_archival": _KEPT,
    "group_archival": _KEPT,
    "conversations": ("messages",),
    "conversation": ("messages",),
    "constellation_messages": ("messages",),
    "constellation_history": ("messages",),
    "message": ("messages",),
    "passage": ("passages",),
    "document": ("documents",),
    "block": ("blocks",),
    "summary": ("summaries",),
    **{one: (one,) for one in DOMAINS},
}
_DOMAIN = also("domain", "domains")
_SINCE = also("since", "start_time")
_UNTIL = also("until", "end_time")


def _role(given: Any) -> Any:
    word = given.strip().casefold() if isinstance(given, str) else given
    return {None: "", "agent": "assistant", "human": "user"}.get(word, word)


_Text = Annotated[str, TEXT]


@tool(repeatable=True, trust=None, compact=False, effects=ToolEffect("read"), audience="public")
async def search(
    ctx: ToolContext,
    query: Annotated[str, also("query", "text", "q"), TEXT],
    domain: Annotated[_Text, _DOMAIN] = "all",
    speaker: _Text = "",
    role: Annotated[Literal["", "user", "assistant"], BeforeValidator(_role)] = "",
    since: Annotated[_Text, _SINCE] = "",
    until: Annotated[_Text, _UNTIL] = "",
    limit: Annotated[int, unless_null(10)] = 10,
    fuzzy: Annotated[bool, unless_null(default=True)] = True,
) -> str:
    """Search all you have heard and kept.

    Args:
        domain: messages, passages, documents, blocks, summaries.
        since: Date or "last week".
        fuzzy: false: exact words.
    """
    most = max(1, min(limit, _MOST_FOUND))
    try:
        wanted = Query(
            query,
            domains=_domains(domain),
            speaker=speaker.strip() or None,
            role=role or None,
            since=_moment(since, ctx.now, last=False),
            until=_moment(until, ctx.now, last=True),
            limit=most + _OWN_TURN if fuzzy else MOST_HITS,
        )
        found = await ctx.search(wanted)
    except StoreError:
        raise
    except AsterismError as error:
        raise ToolError(error.message) from None
    there = [hit for hit in found.hits if not hit.id.startswith(f"{ctx.turn_id}#")]
    if not fuzzy:
        asked = set(words(query))
        there = [hit for hit in there if asked <= set(words(hit.text))]
    shown = there[:most]
    ctx.quotes(source for hit in shown for source in hit.sources)
    if not shown:
        wider = "search more widely" if fuzzy else "search with fuzzy true"
        return f"Nothing was found. Try other words, or {wider}."
    return "\n".join(map(line, shown))


def _domains(text: str) -> tuple[str, ...]:
    """Return the domains that a model means, however it spells them."""
    meant: list[str] = []
    for word in text.split(","):
        spelled = word.strip().casefold().replace(" ", "_").replace("-", "_")
        if spelled not in _SPELLINGS:
            raise ToolError(
                f"{word.strip()!r} cannot be searched. There are: {', '.join(DOMAINS)}, all."
            )
        meant += _SPELLINGS[spelled]
    return tuple(dict.fromkeys(meant))


def _moment(text: str, now: int, *, last: bool) -> int | None:
    """Return the first, or the last, moment of the time that a model has written."""
    text = text.strip()
    if not text:
        return None
    try:
        at = to_ms(read_iso(text, UTC))
    except ValueError:
        from asterism.memory.search.dates import span_of  # its patterns take long to compile

        span = span_of(text, now)
        if span is None:
            raise ToolError(
                f"{text!r} is not a valid time. Write a date such as 2026-12-24, or words such "
                "as 'last week'."
            ) from None
        return span[last]
    whole_day = ":" not in text and "T" not in text.upper()
    return at + DAY - 1 if last and whole_day else at


TOOLS: list[Tool] = [search]
