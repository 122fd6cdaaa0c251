"""The OpenAI chat-completions wire format, which most vendors and local servers speak.

Written from the API reference, https://platform.openai.com/docs/api-reference/chat, and lenient
where servers are known to differ from it. A request joins the stored bytes of its messages; they
are never parsed or serialised again, so that a call costs what is new in it.
"""

from __future__ import annotations

import asyncio
import io
import os
import random
import time
from contextlib import suppress
from importlib import import_module
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, urlsplit

import orjson

from asterism.errors import ConfigError, ModelRefused, ModelUnavailable
from asterism.models.openai.answer import Answer
from asterism.models.openai.trouble import CONNECT_SECONDS, Odd, Peer, Rejected, shorten

if TYPE_CHECKING:
    from aiohttp import ClientSession, StreamReader
    from yarl import URL

    from asterism.ports import Emit, ModelRequest
    from asterism.types.turns import Reply

OPENAI_URL = "https://api.openai.com/v1"
LONGEST_PAUSE = 30.0
LONGEST_ANSWER = 64 << 20
OWN_FIELDS = frozenset({"model", "messages", "tools", "stream", "stream_options"})
STREAMED = b',"stream":true,"stream_options":{"include_usage":true}}'


class OpenAI:
    """The models of one vendor that speaks this wire format, asked over HTTP.

    Options: `base_url`, `key` or `key_env`, `timeout` (seconds without a byte), `retries`, and
    `options`, a table of further fields for every request such as `temperature`.
    """

    def __init__(self, vendor: str, options: dict[str, Any]) -> None:
        parts = _split_address(vendor, str(options.get("base_url") or ""))
        self._endpoint = parts._replace(path=f"{parts.path}/chat/completions").geturl()
        self._loopback = _is_loopback(parts.hostname or "")
        key, key_name = _find_key(vendor, options)
        self._lacks_key = not key and (
            bool(options.get("key_env")) or (vendor == "openai" and not self._loopback)
        )
        self._peer = Peer(
            vendor=vendor,
            address=f"{parts.scheme}://{parts.netloc}{parts.path}",
            key=key,
            key_name=key_name,
            timeout=_number(vendor, options, "timeout", 120),
        )
        self._retries = int(_number(vendor, options, "retries", 2))
        self._extra = _extra_fields(vendor, options.get("options") or {})
        self._session: ClientSession | None = None
        self._url: URL

        # Takes 0.2 s or more, so it is done when a port is made and not in the middle of a turn.
        import_module("aiohttp")

    async def complete(self, request: ModelRequest, emit: Emit | None = None) -> Reply:
        """Ask the model; again where that may help and nothing was emitted yet."""
        if self._lacks_key:
            vendor, key_name = self._peer.vendor, self._peer.key_name
            raise ModelRefused(
                f"The model '{vendor}:{request.model}' needs a key, but {key_name} is not set. "
                f'Set it, or write key = "…" under [models.{vendor}] in asterism.toml.'
            )
        try:
            async with asyncio.timeout(request.timeout):
                return await self._insist(request, emit)
        except TimeoutError:
            raise ModelUnavailable(
                f"{self._peer.named(request.model)} gave no whole answer within "
                f"{request.timeout:g} seconds. Ask again, or allow it more time."
            ) from None

    async def close(self) -> None:
        """Let go of connections."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def _insist(self, request: ModelRequest, emit: Emit | None) -> Reply:
        body = self._body(request, streamed=emit is not None)
        deadline = time.monotonic() + request.timeout
        attempt = 0
        while True:
            answer = Answer(emit)
            try:
                return await self._ask(request.model, body, answer)
            except ModelUnavailable as error:
                pause = error.retry_after or _backoff(attempt)
                spent = attempt >= self._retries or pause > LONGEST_PAUSE
                if spent or answer.emitted or time.monotonic() + pause >= deadline:
                    raise
            await asyncio.sleep(pause)
            attempt += 1

    def _body(self, request: ModelRequest, *, streamed: bool) -> bytes:
        tools = request.tools
        return b"".join(
            (
                b'{"model":',
                orjson.dumps(request.model),
                self._extra,
                b',"messages":[',
                b",".join(request.messages),
                b'],"tools":' + tools if tools and tools != b"[]" else b"]",
                STREAMED if streamed else b"}",
            )
        )

    async def _ask(self, model: str, body: bytes, answer: Answer) -> Reply:
        session = self._session or self._open()
        from aiohttp import ClientError

        # aiohttp warns of bytes over 1 MiB, since one write of them holds up the event loop.
        data = body if len(body) <= 1 << 20 else io.BytesIO(body)
        try:
            async with session.post(self._url, data=data, allow_redirects=False) as response:
                if response.status >= 300:
                    raise await Rejected.from_response(response)
                if "event-stream" in response.headers.get("Content-Type", ""):
                    await _follow(response.content, answer)
                else:
                    answer.take(await _read(response.content))
            return answer.reply(len(body))
        except (Rejected, Odd, ClientError, OSError) as error:
            # Not chained: aiohttp's errors carry the request's headers, and so the key.
            raise self._peer.explain(error, model, len(body)) from None

    def _open(self) -> ClientSession:
        import aiohttp
        from yarl import URL

        headers = {
            "Accept": "application/json, text/event-stream",
            "Accept-Encoding": "identity",
            "Content-Type": "application/json",
            "User-Agent": "asterism",
        }
        if self._peer.key:
            headers["Authorization"] = f"Bearer {self._peer.key}"
        self._url = URL(self._endpoint)
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers=headers,
            # Not `trust_env`: it also reads ~/.netrc, whose entries collide with the key.
            proxy=None if self._loopback else _proxy_for(self._url),
            timeout=aiohttp.ClientTimeout(
                total=None, connect=CONNECT_SECONDS, sock_read=self._peer.timeout
            ),
        )
        return self._session


async def _read(content: StreamReader) -> bytes:
    """Read a body to its end."""
    chunks: list[bytes] = []
    size = 0
    while chunk := await content.readany():
        size = _grown(size, chunk)
        chunks.append(chunk)
    return b"".join(chunks)


async def _follow(content: StreamReader, answer: Answer) -> None:
    """Read an event stream until it says that it is done, or ends."""
    from aiohttp import ClientError

    size = 0
    try:
        while not answer.done and (chunk := await content.readany()):
            size = _grown(size, chunk)
            answer.feed(chunk)
    except (ClientError, OSError):
        if not answer.finish:
            raise
    answer.end()
    # The end of the body is mostly a moment behind; with it the connection can be used again.
    if not content.at_eof():
        with suppress(ClientError, OSError):
            async with asyncio.timeout(0.1):
                await content.readany()


def _grown(size: int, chunk: bytes) -> int:
    if size + len(chunk) > LONGEST_ANSWER:
        raise Odd(f"with more than {LONGEST_ANSWER >> 20} MiB. The rest was not read.")
    return size + len(chunk)


def _backoff(attempt: int) -> float:
    return min(8.0, 0.5 * 2**attempt) * random.uniform(0.5, 1.0)


def _split_address(vendor: str, base_url: str) -> SplitResult:
    if not base_url and vendor == "openai":
        base_url = os.environ.get("OPENAI_BASE_URL") or OPENAI_URL
    with suppress(ValueError):
        parts = urlsplit(base_url)
        sound = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0
        if sound and "@" not in parts.netloc:
            return parts._replace(path=parts.path.rstrip("/"), fragment="")
    shown = shorten(base_url.rpartition("@")[2])
    raise ConfigError(
        f"models.{vendor}.base_url is {shown!r}; the address of a server is needed, without user "
        "or password, such as http://127.0.0.1:11434/v1."
    )


def _find_key(vendor: str, options: dict[str, Any]) -> tuple[str, str]:
    """Return the key, which may be empty, and the name of the place where it belongs."""
    name: str = options.get("key_env") or f"{vendor.upper().replace('-', '_')}_API_KEY"
    key = os.environ.get(name, "")
    if options.get("key"):
        name, key = f"models.{vendor}.key", str(options["key"])
    key = key.strip()
    if not (key.isascii() and key.isprintable()):
        raise ConfigError(
            f"{name} holds characters that no key has, such as line breaks or typographic quotes. "
            "Copy the key again, without anything around it."
        )
    return key, name


def _number(vendor: str, options: dict[str, Any], name: str, default: float) -> float:
    value = options.get(name, default)
    if isinstance(value, int | float) and value >= 0:
        return value
    raise ConfigError(
        f"models.{vendor}.{name} is {value!r}; a number from 0 up is needed, such as {default}."
    )


def _extra_fields(vendor: str, fields: dict[str, Any]) -> bytes:
    if taken := sorted(OWN_FIELDS & fields.keys()):
        raise ConfigError(
            f"models.{vendor}.options sets {taken[0]!r}, which asterism sets by itself. Take it "
            "out; fields such as temperature or max_tokens belong there."
        )
    try:
        return b"," + orjson.dumps(fields)[1:-1] if fields else b""
    except TypeError as error:
        raise ConfigError(f"models.{vendor}.options cannot be sent as JSON: {error}.") from None


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def _proxy_for(url: URL) -> str | None:
    """Return the proxy that the environment names for an address."""
    from urllib.request import getproxies, proxy_bypass  # as slow to import as it is rarely needed

    return None if proxy_bypass(url.host or "") else getproxies().get(url.scheme)
