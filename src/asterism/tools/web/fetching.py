"""Fetching a page: every hop checked, no more read than is useful, and never for long."""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import re
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from asterism.errors import ToolError
from asterism.tools.addresses import Allowed, checked, resolver

if TYPE_CHECKING:
    from aiohttp import ClientResponse, ClientSession
    from yarl import URL

MOST_BYTES = 5_000_000
"""How much of a page is read, after it was unpacked."""
_SECONDS = 20.0
_CONNECT_SECONDS = 10.0
_HOPS = 5
_ABSOLUTE = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*:|//")
_REDIRECTS = (301, 302, 303, 307, 308)
_CHUNK = 1 << 16
_FAILED = 400
_HTML = ("text/html", "application/xhtml+xml")
_TEXT = re.compile(r"^(text/|application/(.*\+)?(json|xml|yaml|toml|javascript|x-ndjson)\b)")
_CHARSET = re.compile(rb"""<meta[^>]{0,200}?charset\s*=\s*["']?\s*([\w-]{2,40})""", re.IGNORECASE)
_BOMS = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"))
_HEADERS = {
    "User-Agent": "asterism (a personal agent)",
    "Accept": "text/html,application/xhtml+xml,text/*,application/json;q=0.9,*/*;q=0.1",
    "Accept-Encoding": "gzip, deflate",
    "Accept-Language": "en,*;q=0.5",
}


@dataclass(frozen=True, slots=True)
class Fetched:
    """What a server answered."""

    url: str
    """Where it was found in the end."""
    text: str
    html: bool
    whole: bool = True
    """Whether all of it was read."""
    redirects: tuple[str, ...] = ()
    """The addresses that were asked one after the other beyond the first."""


Hop = Callable[[str], None]
"""Raises `ToolError` for an address that a redirect leads to and that must not be asked."""


async def fetch(
    address: str, allowed: Allowed, hop: Hop, headers: Mapping[str, str] | None = None
) -> Fetched:
    """Fetch a page; raise `ToolError` with what a model must know.

    Args:
        address: Of the page.
        allowed: The hosts at home that may be asked.
        hop: Asked about every address that a redirect leads to, before it is followed.
        headers: Go to the first host only.
    """
    from aiohttp import ClientError

    first = checked(address, allowed)
    try:
        async with asyncio.timeout(_SECONDS), _session(allowed) as session:
            return await _follow(session, first, allowed, hop, headers or {})
    except TimeoutError:
        raise ToolError(
            f"{first.host} did not answer within {_SECONDS:g} s. Try another page, or later."
        ) from None
    except (ClientError, OSError, zlib.error, ValueError) as error:
        raise ToolError(f"{address!r} could not be fetched: {_said(error)}.") from None


def _session(allowed: Allowed) -> ClientSession:
    from aiohttp import ClientSession, ClientTimeout, DummyCookieJar, TCPConnector

    connector = TCPConnector(
        resolver=resolver(allowed), use_dns_cache=False, force_close=True, limit=4
    )
    return ClientSession(
        connector=connector,
        cookie_jar=DummyCookieJar(),
        headers=_HEADERS,
        timeout=ClientTimeout(total=_SECONDS, sock_connect=_CONNECT_SECONDS),
        trust_env=False,
        read_bufsize=_CHUNK,
        max_line_size=16_384,
        max_field_size=16_384,
    )


def _said(error: BaseException) -> str:
    text = str(error).strip().rstrip(".") or type(error).__name__
    return text if len(text) <= 200 else text[:200] + "…"


async def _follow(
    session: ClientSession, url: URL, allowed: Allowed, hop: Hop, headers: Mapping[str, str]
) -> Fetched:
    first = url
    redirects: tuple[str, ...] = ()
    for _ in range(_HOPS + 1):
        own = dict(headers) if url.origin() == first.origin() else dict[str, str]()
        async with session.get(url, allow_redirects=False, headers=own) as response:
            if response.status not in _REDIRECTS or "Location" not in response.headers:
                return replace(await _read(response, url), redirects=redirects)
            # Each hop is looked at like the first: a page may send us home.
            url = checked(_joined(url, response.headers["Location"]), allowed)
            hop(str(url))
            redirects = (*redirects, str(url))
    raise ToolError(
        f"{str(first)!r} leads from one address to the next, more than {_HOPS} times. Give the "
        "address of the page itself."
    )


def _joined(url: URL, target: str) -> str:
    """Return where a redirect leads: an address of its own, or a place on the same host."""
    from yarl import URL

    text = target.strip()
    if _ABSOLUTE.match(text):
        # As it is written: what is looked at and what is asked must be read by the same rules.
        return f"{url.scheme}:{text}" if text.startswith("//") else text
    return str(url.join(URL(text)))


async def _read(response: ClientResponse, url: URL) -> Fetched:
    if response.status >= _FAILED:
        raise ToolError(
            f"{url} answered with {response.status} {response.reason or ''}".rstrip()
            + ". Check the address, or try another page."
        )
    kind = response.content_type.lower() if "Content-Type" in response.headers else ""
    if kind and kind not in _HTML and not _TEXT.match(kind):
        raise ToolError(
            f"{url} is {kind}, which cannot be read as text. Look for the same as a web page."
        )
    body = bytearray()
    async for chunk in response.content.iter_chunked(_CHUNK):
        body += chunk
        if len(body) >= MOST_BYTES:
            break
    whole = len(body) < MOST_BYTES
    data = bytes(body[:MOST_BYTES])
    text = decoded(data, _declared(response))
    if not kind and "\0" in text[:_CHUNK]:
        raise ToolError(f"{url} is no text. Look for the same as a web page.")
    html = kind in _HTML or (not kind and _looks_like_html(text))
    return Fetched(str(url), text, html, whole)


def _declared(response: ClientResponse) -> str | None:
    try:
        return response.charset
    except (LookupError, ValueError):
        return None


def _looks_like_html(text: str) -> bool:
    start = text[:1000].lstrip().lower()
    return start.startswith(("<!doctype html", "<html", "<head", "<body", "<!--"))


def decoded(data: bytes, declared: str | None) -> str:
    """Return a page as text; what cannot be read is replaced, never an error."""
    for mark, name in _BOMS:
        if data.startswith(mark):
            return data.decode(name, "replace")
    if data.startswith(codecs.BOM_UTF16_BE):
        return data.decode("utf-16", "replace")
    found = _CHARSET.search(data[:4096])
    names = (declared, found[1].decode("ascii") if found else None)
    for name in names:
        with contextlib.suppress(LookupError, ValueError):  # none, or not one of texts
            if name:
                return data.decode(name, "replace")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        if len(data) >= MOST_BYTES and error.start > len(data) - 4:  # cut within a sign
            return data.decode("utf-8", "replace")
        return data.decode("cp1252", "replace")
