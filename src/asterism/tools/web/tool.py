"""The tool `web` itself: fetch a page in parts, or search for one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator

from asterism.errors import ToolError
from asterism.permissions.decide import Policy, Ruling, Wanted
from asterism.tools.addresses import Allowed, checked
from asterism.tools.spellings import OPERATION, TEXT, WORD, also, unless_null
from asterism.tools.tool import Tool, ToolContext, tool
from asterism.tools.web.pages import PAGE, Format, Pages, title_of
from asterism.types.effects import ComputedEffects, Effect, EffectKind
from asterism.types.people import Trust
from asterism.types.values import host_of

_MOST_RESULTS = 20
_FORMATS = {"markdown": "md", "txt": "text", "plain": "text"}
_pages = Pages()
clear_pages = _pages.clear


def _effects_of(arguments: Mapping[str, Any]) -> list[Effect]:
    query = str(arguments.get("query") or "")
    if arguments.get("operation") == "search":
        return [Effect(EffectKind.FETCH, content=(query,))]
    if not query.strip():
        return [Effect(EffectKind.READ)]  # reads on in a page whose host was asked before
    return [Effect(EffectKind.FETCH, hosts=(query,))]


def _form(given: Any) -> Any:
    if not isinstance(given, str):
        return "md" if given is None else given
    word = given.strip().casefold()
    return _FORMATS.get(word, word)


@tool(
    repeatable=True,
    trust=Trust.WEB,
    timeout=40,
    compact=False,
    effects=ComputedEffects(_effects_of, source="web"),
    audience="public",
)
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

    reader = _reader(ctx)
    address, place = _where(ctx, query, place)
    allowed = Allowed(ctx.settings().web.allow)
    address = str(checked(address, allowed))
    hop = _hop(ctx, address)
    page = _pages.get(reader, address, allowed, ctx.now)
    if not query.strip():
        hop(address)  # a policy may have closed it since
    if page is None:
        ctx.progress(f"fetching {address}")
        page = await fetch(address, allowed, hop)
        _pages.put(reader, address, allowed, page, ctx.now)
    else:
        # It may have been fetched under other policies.
        for redirect in page.redirects:
            hop(redirect)
    text = await asyncio.to_thread(_pages.text, reader, address, allowed, page, form)
    if not text:
        return f"{page.url} has no text."
    if not 0 <= place < len(text):
        raise ToolError(
            f"{page.url} has {len(text):,} characters, so that nothing is at {place:,}. Give "
            f"continue_from from 0 to {len(text) - 1:,}."
        )
    end = _end(text, place)
    _pages.went_to(reader, address, end if end < len(text) else 0)
    return _told(page.url, title_of(page), text[place:end], place, end, len(text), page.whole)


def _hop(ctx: ToolContext, first: str) -> Callable[[str], None]:
    """Return what asks the policies whether a redirect may be followed.

    Nobody can be asked in the middle of a call: what would be asked about is not followed, except
    within the host of the first address, where the same policy has been answered.
    """

    def policy_of(address: str) -> Policy | None:
        arguments = {"operation": "fetch", "query": address}
        return ctx.authority.policies.first(
            Wanted(
                ctx.agent.name,
                "web",
                arguments,
                tuple(_effects_of(arguments)),
                operation="fetch",
                trust=ctx.source.trust,
                people=ctx.people,
            )
        )

    def hop(address: str) -> None:
        policy = policy_of(address)
        if policy is None or policy.ruling is Ruling.ALLOW:
            return
        if policy.ruling is Ruling.DENY:
            why = policy.reason or f"{policy} does not let it"
            raise ToolError(f"The page leads to {address}, which may not be asked for: {why}.")
        if host_of(address) != host_of(first) or policy != policy_of(first):
            raise ToolError(
                f"The page leads to {address}, which was not followed, since {policy} wants a "
                "person to be asked. Fetch that address itself."
            )

    return hop


def _reader(ctx: ToolContext) -> str:
    return f"{ctx.agent.id} {ctx.participants.key}"


def _where(ctx: ToolContext, query: str, place: int) -> tuple[str, int]:
    if query.strip():
        return query, place
    last = _pages.last(_reader(ctx))
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
    settings = ctx.settings().web
    found = await search(settings, query, most, _hop(ctx, settings.search_url or ""), ctx.resolve)
    if not found:
        return "Nothing was found. Try other words."
    return "\n".join(
        f"{number}. {one.title}\n   {one.url}" + (f"\n   {one.snippet}" if one.snippet else "")
        for number, one in enumerate(found, 1)
    )


TOOLS: list[Tool] = [web]
