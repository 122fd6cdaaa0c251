"""The tool `web` itself: fetch a page in parts, or search for one."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator

from asterism.errors import ToolError
from asterism.tools.addresses import Allowed, checked
from asterism.tools.spellings import OPERATION, TEXT, WORD, also, unless_null
from asterism.tools.tool import Tool, ToolContext, tool
from asterism.tools.web.pages import PAGE, Format, Pages, title_of
from asterism.types.deeds import Deed, DeedKind
from asterism.types.people import Tier

_MOST_RESULTS = 20
_FORMATS = {"markdown": "md", "txt": "text", "plain": "text"}
_pages = Pages()


def _does(arguments: Mapping[str, Any]) -> list[Deed]:
    query = str(arguments.get("query") or "")
    if arguments.get("operation") == "search":
        return [Deed(DeedKind.FETCH, content=(query,))]
    return [Deed(DeedKind.FETCH, hosts=(query,) if query else ())]


def _form(given: Any) -> Any:
    if not isinstance(given, str):
        return "md" if given is None else given
    word = given.strip().casefold()
    return _FORMATS.get(word, word)


@tool(repeatable=True, tier=Tier.WEB, timeout=40, compact=False, does=_does)
async def web(
    ctx: ToolContext,
    operation: Annotated[Literal["fetch", "search"], OPERATION, WORD],
    query: Annotated[str, also("query", "url", "q"), TEXT] = "",
    form: Annotated[Format, also("format", "form"), BeforeValidator(_form)] = "md",
    continue_from: Annotated[int, also("continue_from", "offset"), unless_null(0)] = 0,
    limit: Annotated[int, unless_null(10)] = 10,
) -> str:
    """Read a web page in parts, or search the web.

    Args:
        query: An address, or what to search for.
        continue_from: Where to read on.
    """
    if operation == "search":
        return await _search(ctx, query, limit)
    return await _fetch(ctx, query, form, continue_from)


async def _fetch(ctx: ToolContext, query: str, form: Format, place: int) -> str:
    from asterism.tools.web.fetching import fetch

    address, place = _where(ctx, query, place)
    allowed = Allowed(ctx.settings().web.allow)
    address = str(checked(address, allowed))
    page = _pages.get(address, allowed, ctx.now)
    if page is None:
        ctx.progress(f"fetching {address}")
        page = await fetch(address, allowed)
        _pages.put(address, allowed, page, ctx.now)
    text = await asyncio.to_thread(_pages.text, address, allowed, page, form)
    if not text:
        return f"{page.url} has no text."
    if not 0 <= place < len(text):
        raise ToolError(
            f"{page.url} has {len(text):,} characters, so that nothing is at {place:,}. Give "
            f"continue_from from 0 to {len(text) - 1:,}."
        )
    end = _end(text, place)
    _pages.went_to(ctx.agent.id, address, end if end < len(text) else 0)
    return _told(page.url, title_of(page), text[place:end], place, end, len(text), page.whole)


def _where(ctx: ToolContext, query: str, place: int) -> tuple[str, int]:
    if query.strip():
        return query, place
    last = _pages.last(ctx.agent.id)
    if last is None:
        raise ToolError("Which page? Give its address as `query`.")
    return last[0], place or last[1]


def _end(text: str, place: int) -> int:
    """Return where a part ends: at the end of a line if there is one in its second half."""
    end = place + PAGE
    if end >= len(text):
        return len(text)
    line = text.rfind("\n", place + PAGE // 2, end)
    return line + 1 if line > 0 else end


def _told(url: str, title: str, text: str, place: int, end: int, length: int, whole: bool) -> str:
    head = f"{title}\n{url}" if title else url
    parts = [head, text.strip("\n")]
    if end < length:
        parts.append(
            f"({place:,} to {end:,} of {length:,} characters; go on with continue_from {end}.)"
        )
    elif not whole:
        parts.append("(The page goes on, but no more than 5 MB of a page are read.)")
    return "\n\n".join(parts)


async def _search(ctx: ToolContext, query: str, limit: int) -> str:
    from asterism.tools.web.engines import search

    most = max(1, min(limit, _MOST_RESULTS))
    found = await search(ctx.settings().web, query, most, ctx.resolve)
    if not found:
        return "Nothing was found. Try other words."
    return "\n".join(
        f"{number}. {one.title}\n   {one.url}" + (f"\n   {one.snippet}" if one.snippet else "")
        for number, one in enumerate(found, 1)
    )


TOOLS: list[Tool] = [web]
