"""The tool `web`: pages of the open internet as Markdown, in parts, and a search for them."""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import html
import re
import zlib
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast
from urllib.parse import quote, urlencode

import orjson
from pydantic import BeforeValidator

from asterism.config.settings import WebSettings
from asterism.errors import NotFound, ToolError
from asterism.permissions.decide import CallRequest, Policy, Ruling
from asterism.records import dataclass
from asterism.tools.addresses import AllowedHosts, checked_url, host_and_port, public_resolver
from asterism.tools.builtin.arguments import OPERATION, TEXT, WORD, also, null_as
from asterism.tools.tool import NothingFound, Tool, ToolContext, tool
from asterism.types.agents import Trust
from asterism.types.permissions import ComputedEffects, Effect, EffectKind
from asterism.types.values import host_of

if TYPE_CHECKING:
    from aiohttp import ClientResponse, ClientSession
    from yarl import URL

# -- fetching a page -------------------------------------------------------------------------------

MAX_PAGE_BYTES = 5_000_000
"""How much of a page is read, after it was unpacked."""
_MAX_SECONDS = 20.0
_CONNECT_SECONDS = 10.0
_MAX_REDIRECTS = 5
_ABSOLUTE = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*:|//")
_REDIRECTS = (301, 302, 303, 307, 308)
_CHUNK = 1 << 16
_FAILED = 400
_HTML_TYPES = ("text/html", "application/xhtml+xml")
_TEXT_TYPES = re.compile(r"^(text/|application/(.*\+)?(json|xml|yaml|toml|javascript|x-ndjson)\b)")
_CHARSET = re.compile(rb"""<meta[^>]{0,200}?charset\s*=\s*["']?\s*([\w-]{2,40})""", re.IGNORECASE)
_BOMS = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"))
_HEADERS = {
    "User-Agent": "asterism (a personal agent)",
    "Accept": "text/html,application/xhtml+xml,text/*,application/json;q=0.9,*/*;q=0.1",
    "Accept-Encoding": "gzip, deflate",
    "Accept-Language": "en,*;q=0.5",
}


@dataclass(frozen=True, slots=True)
class FetchedPage:
    """What a server answered."""

    url: str
    """Where it was found in the end."""
    text: str
    html: bool
    whole: bool = True
    """Whether all of it was read."""
    redirects: tuple[str, ...] = ()
    """The addresses that were asked one after the other beyond the first."""


RedirectCheck = Callable[[str], None]
"""Raises `ToolError` for an address that a redirect leads to and that must not be asked."""


async def fetch(
    address: str,
    allowed: AllowedHosts,
    hop: RedirectCheck,
    headers: Mapping[str, str] | None = None,
) -> FetchedPage:
    """Fetch a page; raise `ToolError` with what a model must know.

    Args:
        address: Of the page.
        allowed: The hosts at home that may be asked.
        hop: Asked about every address that a redirect leads to, before it is followed.
        headers: Go to the first host only.
    """
    from aiohttp import ClientError

    first = checked_url(address, allowed)
    try:
        async with asyncio.timeout(_MAX_SECONDS), _session(allowed) as session:
            return await _follow(session, first, allowed, hop, headers or {})
    except TimeoutError:
        raise ToolError(
            f"{first.host} did not answer within {_MAX_SECONDS:g} s. Try another page, or later."
        ) from None
    except (ClientError, OSError, zlib.error, ValueError) as error:
        raise ToolError(f"{address!r} could not be fetched: {_error_text(error)}.") from None


def _session(allowed: AllowedHosts) -> ClientSession:
    from aiohttp import ClientSession, ClientTimeout, DummyCookieJar, TCPConnector

    connector = TCPConnector(
        resolver=public_resolver(allowed), use_dns_cache=False, force_close=True, limit=4
    )
    return ClientSession(
        connector=connector,
        cookie_jar=DummyCookieJar(),
        headers=_HEADERS,
        timeout=ClientTimeout(total=_MAX_SECONDS, sock_connect=_CONNECT_SECONDS),
        trust_env=False,
        read_bufsize=_CHUNK,
        max_line_size=16_384,
        max_field_size=16_384,
    )


def _error_text(error: BaseException) -> str:
    text = str(error).strip().rstrip(".") or type(error).__name__
    return text if len(text) <= 200 else text[:200] + "…"


async def _follow(
    session: ClientSession,
    url: URL,
    allowed: AllowedHosts,
    hop: RedirectCheck,
    headers: Mapping[str, str],
) -> FetchedPage:
    first = url
    redirects: tuple[str, ...] = ()
    for _ in range(_MAX_REDIRECTS + 1):
        own = dict(headers) if url.origin() == first.origin() else dict[str, str]()
        async with session.get(url, allow_redirects=False, headers=own) as response:
            if response.status not in _REDIRECTS or "Location" not in response.headers:
                return replace(await _read_page(response, url), redirects=redirects)
            # Each hop is looked at like the first: a page may send us home.
            url = checked_url(_redirect_target(url, response.headers["Location"]), allowed)
            hop(str(url))
            redirects = (*redirects, str(url))
    raise ToolError(
        f"{str(first)!r} has more than {_MAX_REDIRECTS} redirects. "
        "Use the address of the page itself."
    )


def _redirect_target(url: URL, target: str) -> str:
    """Return where a redirect leads: an address of its own, or a place on the same host."""
    from yarl import URL

    text = target.strip()
    if _ABSOLUTE.match(text):
        # As it is written: what is looked at and what is asked must be read by the same rules.
        return f"{url.scheme}:{text}" if text.startswith("//") else text
    return str(url.join(URL(text)))


async def _read_page(response: ClientResponse, url: URL) -> FetchedPage:
    if response.status >= _FAILED:
        raise ToolError(
            f"{url} answered with {response.status} {response.reason or ''}".rstrip()
            + ". Check the address, or try another page."
        )
    kind = response.content_type.lower() if "Content-Type" in response.headers else ""
    if kind and kind not in _HTML_TYPES and not _TEXT_TYPES.match(kind):
        raise ToolError(
            f"{url} is {kind}, which cannot be read as text. Look for a web page with the same."
        )
    body = bytearray()
    async for chunk in response.content.iter_chunked(_CHUNK):
        body += chunk
        if len(body) >= MAX_PAGE_BYTES:
            break
    whole = len(body) < MAX_PAGE_BYTES
    data = bytes(body[:MAX_PAGE_BYTES])
    text = decode_page(data, _declared_charset(response))
    if not kind and "\0" in text[:_CHUNK]:
        raise ToolError(f"{url} is not text. Look for the same content as a web page.")
    html = kind in _HTML_TYPES or (not kind and _looks_like_html(text))
    return FetchedPage(str(url), text, html, whole)


def _declared_charset(response: ClientResponse) -> str | None:
    try:
        return response.charset
    except (LookupError, ValueError):
        return None


def _looks_like_html(text: str) -> bool:
    start = text[:1000].lstrip().lower()
    return start.startswith(("<!doctype html", "<html", "<head", "<body", "<!--"))


def decode_page(data: bytes, declared: str | None) -> str:
    """Return a page as text; what cannot be read is replaced, never an error."""
    for mark, name in _BOMS:
        if data.startswith(mark):
            return data.decode(name, "replace")
    if data.startswith(codecs.BOM_UTF16_BE):
        return data.decode("utf-16", "replace")
    charset = _CHARSET.search(data[:4096])
    names = (declared, charset[1].decode("ascii") if charset else None)
    for name in names:
        with contextlib.suppress(LookupError, ValueError):  # none, or not one of texts
            if name:
                return data.decode(name, "replace")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        if len(data) >= MAX_PAGE_BYTES and error.start > len(data) - 4:  # cut within a sign
            return data.decode("utf-8", "replace")
        return data.decode("cp1252", "replace")


# -- engines that search the web -------------------------------------------------------------------

_MAX_SNIPPET = 400
_NO_ENGINE = (
    'The web cannot be searched, since no engine is set. The owner can set search = "searxng" '
    '(with search_url), "brave" or "kagi" (with search_key_env) under [web] in asterism.toml. '
    "A page whose address you know can be fetched."
)


@dataclass(frozen=True, slots=True)
class WebResult:
    """One page that an engine knows."""

    title: str
    url: str
    snippet: str


@dataclass(frozen=True, slots=True)
class _SearchRequest:
    url: str
    headers: dict[str, str]


async def search_web(
    settings: WebSettings,
    query: str,
    limit: int,
    hop: RedirectCheck,
    resolve: Callable[[str], str] = str,
) -> list[WebResult]:
    """Ask the configured engine; the best results first.

    `hop` is asked about redirects, `resolve` finds a stored key.
    """
    if not query.strip():
        raise ToolError("What should be searched for? Set `query`.")
    request = _request(settings, query.strip(), limit, _key(settings, resolve))
    host, port = host_and_port(request.url)
    # The owner has named this host, so that it may be one at home.
    answer = await fetch(request.url, AllowedHosts([f"{host}:{port}"]), hop, request.headers)
    try:
        parsed: Any = orjson.loads(answer.text)
    except orjson.JSONDecodeError:
        raise ToolError(
            f"The search engine {host} did not answer with JSON, so its results "
            "cannot be read. Tell the owner to look at [web] in asterism.toml."
        ) from None
    return _results(parsed)[:limit]


def _key(settings: WebSettings, resolve: Callable[[str], str]) -> str | None:
    key = settings.key()
    try:
        return resolve(key) if key else None
    except NotFound as error:
        raise ToolError(error.message) from None


def _request(settings: WebSettings, query: str, limit: int, key: str | None) -> _SearchRequest:
    engine, base = settings.search, (settings.search_url or "").rstrip("/")
    if engine == "none":
        raise ToolError(_NO_ENGINE)
    if engine in ("brave", "kagi") and not key:
        raise ToolError(
            f'The search engine "{engine}" needs a key, and none is set. The owner can set '
            "search_key_env under [web] in asterism.toml. Nothing was searched."
        )
    match engine:
        case "searxng":  # https://docs.searxng.org/dev/search_api.html (2026-11)
            parameters = urlencode({"q": query, "format": "json"})
            return _SearchRequest(f"{base}/search?{parameters}", _bearer(key))
        case "brave":  # https://api-dashboard.search.brave.com (2026-11)
            base = base or "https://api.search.brave.com/res/v1"
            parameters = urlencode({"q": query, "count": limit, "text_decorations": "false"})
            return _SearchRequest(
                f"{base}/web/search?{parameters}", {"X-Subscription-Token": key or ""}
            )
        case "kagi":  # https://help.kagi.com/kagi/api/search.html (2026-11)
            base = base or "https://kagi.com/api/v0"
            parameters = urlencode({"q": query, "limit": limit})
            return _SearchRequest(f"{base}/search?{parameters}", {"Authorization": f"Bot {key}"})
        case "json":
            url = (settings.search_url or "").replace("{query}", quote(query, safe=""))
            return _SearchRequest(url.replace("{limit}", str(limit)), _bearer(key))


def _bearer(key: str | None) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"} if key else {}


def _results(answer: Any) -> list[WebResult]:
    """Return what looks like results: engines differ in names, not in kind."""
    results: list[WebResult] = []
    for row in _result_rows(answer):
        url = _first_text(row, "url", "link", "href")
        if not url.startswith(("http://", "https://")):
            continue
        snippet = _first_text(row, "content", "description", "snippet", "text")
        results.append(
            WebResult(_first_text(row, "title", "name") or url, url, snippet[:_MAX_SNIPPET])
        )
    return results


def _result_rows(answer: Any) -> list[Mapping[str, Any]]:
    if isinstance(answer, list):
        rows = cast("list[Any]", answer)
        return [cast("Mapping[str, Any]", row) for row in rows if isinstance(row, Mapping)]
    if not isinstance(answer, Mapping):
        return []
    inside = cast("Mapping[str, Any]", answer)
    for name in ("results", "web", "data", "items", "organic"):
        listed = _result_rows(inside.get(name))
        if listed:
            return listed
    return []


def _first_text(row: Mapping[str, Any], *names: str) -> str:
    for name in names:
        value = row.get(name)
        if isinstance(value, str) and value.strip():
            return " ".join(value.split())
    return ""


# -- pages as text ---------------------------------------------------------------------------------

Format = Literal["md", "html", "text"]
PART = 10_000
"""Characters in one result."""
CACHE_MS = 300_000
"""Milliseconds."""
_MAX_PAGES = 64
_MAX_CHARACTERS = 20_000_000
_MAX_READERS = 1_000
_HEAD = 100_000
_TITLE = re.compile(r"<title[^>]{0,200}>([^<]{1,1000})", re.IGNORECASE)
# A picture inside of the page's text is a wall of letters to a model.
_PICTURE = re.compile(r"!\[[^\]\n]{0,500}\]\(data:[^)\s]*\)")


def page_text(page: FetchedPage, form: Format) -> str:
    """Return a page in the form that is asked for."""
    if form == "html" or not page.html:
        return page.text
    return _convert_html(page, form)


def _convert_html(page: FetchedPage, form: Format) -> str:
    try:
        import html_to_markdown
    except ImportError:
        raise ToolError(
            "Pages cannot be turned into Markdown here, since html-to-markdown is not installed. "
            'Fetch with format "html", or tell the owner: pip install html-to-markdown.'
        ) from None
    forms = html_to_markdown.OutputFormat
    options = html_to_markdown.ConversionOptions(
        base_url=page.url,
        extract_metadata=False,
        skip_images=form == "text",
        output_format=forms.PLAIN if form == "text" else forms.MARKDOWN,
    )
    converted: Any = html_to_markdown.convert(page.text, options)
    return _PICTURE.sub("", str(converted.content or "")).strip()


def title_of(page: FetchedPage) -> str:
    """Return the title of a page, on one line; empty if it has none."""
    title = _TITLE.search(page.text[:_HEAD]) if page.html else None
    return " ".join(html.unescape(title[1]).split())[:200] if title else ""


@dataclass(frozen=True, slots=True)
class _CachedPage:
    page: FetchedPage
    until: int


class PageCache:
    """Pages that were fetched a moment ago, so that reading on does not fetch them again.

    All of it is kept by reader, an agent among certain people: neither that a page is there already
    nor where others stopped reading is for anybody else to notice.
    """

    def __init__(self) -> None:
        self._pages: OrderedDict[tuple[str, str, AllowedHosts], _CachedPage] = OrderedDict()
        self._shown: OrderedDict[tuple[str, str, AllowedHosts, str], str] = OrderedDict()
        self._last: OrderedDict[str, tuple[str, int]] = OrderedDict()

    def clear(self) -> None:
        """Drop all pages, and where agents read, since something was forgotten."""
        self._pages.clear()
        self._shown.clear()
        self._last.clear()

    def get(self, reader: str, address: str, allowed: AllowedHosts, now: int) -> FetchedPage | None:
        """Return a page that was fetched within the last minutes."""
        cached = self._pages.get((reader, address, allowed))
        if cached is None or not cached.until - CACHE_MS <= now < cached.until:
            return None
        self._pages.move_to_end((reader, address, allowed))
        return cached.page

    def put(
        self, reader: str, address: str, allowed: AllowedHosts, page: FetchedPage, now: int
    ) -> None:
        """Keep a page for a while."""
        self._pages[reader, address, allowed] = _CachedPage(page, now + CACHE_MS)
        self._pages.move_to_end((reader, address, allowed))
        self._shown = OrderedDict(
            (key, text)
            for key, text in self._shown.items()
            if key[:3] != (reader, address, allowed)
        )
        while len(self._pages) > _MAX_PAGES or self._size() > _MAX_CHARACTERS:
            gone, _ = self._pages.popitem(last=False)
            self._shown = OrderedDict(
                (key, text) for key, text in self._shown.items() if key[:3] != gone
            )

    def _size(self) -> int:
        texts = (*(cached.page.text for cached in self._pages.values()), *self._shown.values())
        return sum(map(len, texts)) if len(self._pages) > 1 else 0

    def text(
        self, reader: str, address: str, allowed: AllowedHosts, page: FetchedPage, form: Format
    ) -> str:
        """Return a page in a form, converted once."""
        key = (reader, address, allowed, form)
        if key not in self._shown:
            self._shown[key] = page_text(page, form)
        return self._shown[key]

    def went_to(self, reader: str, address: str, place: int) -> None:
        """Note where somebody reads."""
        self._last[reader] = (address, place)
        self._last.move_to_end(reader)
        while len(self._last) > _MAX_READERS:
            self._last.popitem(last=False)

    def last(self, reader: str) -> tuple[str, int] | None:
        """Return the address that somebody has read last, and where they would read on."""
        return self._last.get(reader)


# -- the tool --------------------------------------------------------------------------------------

_MAX_RESULTS = 20
_FORMATS = {"markdown": "md", "txt": "text", "plain": "text"}
_pages = PageCache()
clear_pages = _pages.clear


def _web_effects(arguments: Mapping[str, Any]) -> list[Effect]:
    query = str(arguments.get("query") or "")
    if arguments.get("operation") == "search":
        return [Effect(EffectKind.FETCH, content=(query,))]
    if not query.strip():
        return [Effect(EffectKind.READ)]  # reads on in a page whose host was asked before
    return [Effect(EffectKind.FETCH, hosts=(query,))]


def _read_format(value: Any) -> Any:
    if not isinstance(value, str):
        return "md" if value is None else value
    word = value.strip().casefold()
    return _FORMATS.get(word, word)


@tool(
    repeatable=True,
    trust=Trust.WEB,
    timeout=40,
    compact=r"https?://|\bwww\.",
    effects=ComputedEffects(_web_effects, source="web"),
    audience="public",
)
async def web(
    ctx: ToolContext,
    operation: Annotated[Literal["fetch", "search"], OPERATION, WORD],
    query: Annotated[str, also("query", "url", "q"), TEXT] = "",
    form: Annotated[Format, also("format", "form"), BeforeValidator(_read_format)] = "md",
    continue_from: Annotated[int, also("continue_from", "offset"), null_as(0)] = 0,
    limit: Annotated[int, null_as(10)] = 10,
) -> str:
    """Read a web page in parts, or search the web.

    Args:
        query: An address, or what to search for.
        continue_from: Where to read on.
    """
    if operation == "search":
        return await _run_search(ctx, query, limit)
    return await _fetch(ctx, query, form, continue_from)


async def _fetch(ctx: ToolContext, query: str, form: Format, place: int) -> str:

    reader = _reader(ctx)
    address, place = _page_and_offset(ctx, query, place)
    allowed = AllowedHosts(ctx.settings().web.allow)
    address = str(checked_url(address, allowed))
    hop = _redirect_check(ctx, address)
    page = _pages.get(reader, address, allowed, ctx.now_ms)
    if not query.strip():
        hop(address)  # a policy may have closed it since
    if page is None:
        ctx.progress(f"fetching {address}")
        page = await fetch(address, allowed, hop)
        _pages.put(reader, address, allowed, page, ctx.now_ms)
    else:
        # It may have been fetched under other policies.
        for redirect in page.redirects:
            hop(redirect)
    text = await asyncio.to_thread(_pages.text, reader, address, allowed, page, form)
    if not text:
        return f"{page.url} has no text."
    if not 0 <= place < len(text):
        raise ToolError(
            f"{page.url} has {len(text):,} characters, so there is nothing at {place:,}. Use "
            f"continue_from from 0 to {len(text) - 1:,}."
        )
    end = _end(text, place)
    _pages.went_to(reader, address, end if end < len(text) else 0)
    return _part_text(page.url, title_of(page), text[place:end], place, end, len(text), page.whole)


def _redirect_check(ctx: ToolContext, first: str) -> Callable[[str], None]:
    """Return what asks the policies whether a redirect may be followed.

    Nobody can be asked in the middle of a call: what would be asked about is not followed, except
    within the host of the first address, where the same policy has been answered.
    """

    def policy_of(address: str) -> Policy | None:
        arguments = {"operation": "fetch", "query": address}
        return ctx.authority.policies.first(
            CallRequest(
                ctx.agent.name,
                "web",
                arguments,
                tuple(_web_effects(arguments)),
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
            why = policy.reason or f"{policy} denies it"
            raise ToolError(f"The page redirects to {address}, which is not allowed: {why}.")
        if host_of(address) != host_of(first) or policy != policy_of(first):
            raise ToolError(
                f"The page redirects to {address}, which was not followed, since {policy} requires "
                "an approval. Fetch that address itself."
            )

    return hop


def _reader(ctx: ToolContext) -> str:
    return f"{ctx.agent.id} {ctx.participants.key}"


def _page_and_offset(ctx: ToolContext, query: str, place: int) -> tuple[str, int]:
    if query.strip():
        return query, place
    last = _pages.last(_reader(ctx))
    if last is None:
        raise ToolError("Which page? Set its address as `query`.")
    return last[0], place or last[1]


def _end(text: str, place: int) -> int:
    """Return where a part ends: at the end of a line if there is one in its second half."""
    end = place + PART
    if end >= len(text):
        return len(text)
    line = text.rfind("\n", place + PART // 2, end)
    return line + 1 if line > 0 else end


def _part_text(
    url: str, title: str, text: str, place: int, end: int, length: int, whole: bool
) -> str:
    head = f"{title}\n{url}" if title else url
    parts = [head, text.strip("\n")]
    if end < length:
        parts.append(
            f"({place:,} to {end:,} of {length:,} characters; continue with continue_from {end}.)"
        )
    elif not whole:
        parts.append("(The page is longer, but only the first 5 MB of a page are read.)")
    return "\n\n".join(parts)


async def _run_search(ctx: ToolContext, query: str, limit: int) -> str:

    max_results = max(1, min(limit, _MAX_RESULTS))
    settings = ctx.settings().web
    results = await search_web(
        settings, query, max_results, _redirect_check(ctx, settings.search_url or ""), ctx.resolve
    )
    if not results:
        return NothingFound(
            "Nothing was found. Search once more with other words, or say that you found nothing."
        )
    return "\n".join(
        f"{number}. {result.title}\n   {result.url}"
        + (f"\n   {result.snippet}" if result.snippet else "")
        for number, result in enumerate(results, 1)
    )


TOOLS: list[Tool] = [web]
