"""One address that is asked over HTTP: a body out, an answer in, with the next key if one fails."""

from __future__ import annotations

import asyncio
import io
import os
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from importlib import import_module
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Protocol, TypeVar
from urllib.parse import SplitResult, urlsplit

from asterism.errors import ConfigError, KeyRefused, ModelBusy, ModelUnavailable
from asterism.models.http.cassette import RecordedFailure, RecordedTimeout, asked_for
from asterism.models.http.trouble import (
    CONNECT_SECONDS,
    MalformedAnswer,
    Peer,
    RequestRejected,
    shorten,
)

if TYPE_CHECKING:
    from aiohttp import ClientSession
    from yarl import URL

    from asterism.models.http.cassette import Cassette, Recording
    from asterism.ports import ModelRequest

MAX_ANSWER_BYTES = 64 << 20
_KEY_RESTS = 60.0
"""Seconds that a key which had too many requests rests, where the server names none."""

Read = Callable[[], Awaitable[bytes]]
"""Gives the next bytes of a body, none at its end."""


class ReplyParser(Protocol):
    """A reply in the making, put together from a whole body or from the events of a stream."""

    done: bool
    finish: str

    def take(self, body: bytes) -> None:
        """Take a whole body."""
        ...

    def feed(self, chunk: bytes) -> None:
        """Take the next bytes of an event stream."""
        ...

    def end(self) -> None:
        """Take the end of a stream; ConnectionAbortedError if the reply is not whole."""
        ...


A = TypeVar("A", bound=ReplyParser)


class Endpoint:
    """Where a vendor's models are asked.

    Options: `base_url`, `key` or `key_env` (several keys are separated by commas: when one is
    refused or has had too many requests, the next is used), `timeout` (seconds without a byte),
    `cassette`, which records what goes over the wire or plays it, and `unnamed`, with which errors
    do not name the address.
    """

    def __init__(
        self,
        vendor: str,
        options: Mapping[str, Any],
        *,
        path: str,
        home: str | None,
        headers: Callable[[str], dict[str, str]],
    ) -> None:
        """Make an endpoint; `home` is the vendor's own address, `headers` present a key."""
        parts = _split_address(vendor, str(options.get("base_url") or home or ""))
        self.address = f"{parts.scheme}://{parts.netloc}{parts.path}"
        self.loopback = is_loopback(parts.hostname or "")
        self._named = "" if options.get("unnamed") else self.address
        self._target = parts._replace(path=parts.path + path).geturl()
        found, self._key_name = _find_keys(vendor, options)
        # Headers of a session cost less than those of a request, which keys in rotation need.
        self._fixed = headers(found[0] if found else "") if len(found) < 2 else {}
        self._keys = [_Key(key, headers(key) if len(found) > 1 else None) for key in found or [""]]
        self._lacks_key = not found and (
            bool(options.get("key_env")) or (bool(home) and not self.loopback)
        )
        self._path = path
        self._cassette: Cassette | None = options.get("cassette")
        self._plays = self._cassette is not None and self._cassette.plays
        self._vendor = vendor
        self._timeout = number_option(vendor, options, "timeout", 120)
        self._peers: dict[str, Peer] = {}
        self._session: ClientSession | None = None
        self._url: URL

        # Takes 0.2 s or more, so it is done when a port is made and not in the middle of a turn.
        self._http = import_module("aiohttp")

    async def ask(self, request: ModelRequest, body: bytes, begin: Callable[[], A]) -> A:
        """Send a body and return the answer, begun anew with the next key if one fails."""
        if self._lacks_key and not self._plays:
            raise KeyRefused(
                f"The model '{self._vendor}:{request.model}' needs a key, but {self._key_name} is "
                f'not set. Set it, run "asterism key set {self._vendor}", or write key = "…" under '
                f"[models.{self._vendor}] in asterism.toml."
            )
        key, *others = self._usable()
        try:
            async with asyncio.timeout(request.timeout):
                while True:
                    answer = begin()
                    try:
                        await self._post(request, body, key, answer)
                    except KeyRefused:
                        key.rest(float("inf"))
                        if not others:
                            raise
                    except ModelBusy as busy:
                        key.rest(busy.retry_after or _KEY_RESTS)
                        if not others:
                            raise
                    else:
                        return answer
                    key, *others = others
        except (TimeoutError, RecordedTimeout):
            raise ModelUnavailable(
                f"{self._peer(key.text).describe_model(request.model)} gave no whole answer within "
                f"{request.timeout:g} seconds. Ask again, or allow it more time.",
                slow=True,
                begun=True,
            ) from None

    async def close(self) -> None:
        """Let go of connections."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    def _usable(self) -> list[_Key]:
        """Return the keys that do not rest, or the one that rests the shortest."""
        if len(self._keys) < 2:
            return self._keys
        now = time.monotonic()
        rested = [key for key in self._keys if key.rests_until <= now]
        return rested or [min(self._keys, key=lambda key: key.rests_until)]

    async def _post(
        self, request: ModelRequest, body: bytes, key: _Key, answer: ReplyParser
    ) -> None:
        recording = None
        try:
            if self._cassette is None:
                return await self._exchange(body, key, answer)
            asked = asked_for(self._vendor, self.address, self._path, request, body)
            if self._plays:
                tape = self._cassette.play(asked)
                return await _read_answer(*await tape.answer(), tape.read, answer)
            recording = self._cassette.begin(asked, key.text)
            await self._exchange(body, key, answer, recording)
        except (RequestRejected, MalformedAnswer, self._http.ClientError, OSError) as error:
            if isinstance(error, RecordedFailure):
                raise error.problem from None
            problem = self._peer(key.text).explain(error, request.model, len(body))
            if recording is not None and not isinstance(error, RequestRejected | MalformedAnswer):
                recording.failed(problem)
            # Not chained: aiohttp's errors carry the request's headers, and so the key.
            raise problem from None
        except asyncio.CancelledError:
            if recording is not None:
                recording.abandoned()
            raise
        finally:
            if recording is not None:
                recording.close()

    async def _exchange(
        self,
        body: bytes,
        key: _Key,
        answer: ReplyParser,
        recording: Recording | None = None,
        *,
        again: bool = False,
    ) -> None:
        session = self._session or self._open()
        # aiohttp warns of bytes over 1 MiB, since one write of them holds up the event loop.
        data = body if len(body) <= 1 << 20 else io.BytesIO(body)
        try:
            async with session.post(
                self._url, data=data, headers=key.headers, allow_redirects=False
            ) as response:
                read: Read = response.content.readany
                if recording is not None:
                    read = recording.answered(response.status, response.headers, read)
                await _read_answer(response.status, response.headers, read, answer)
        except self._http.ClientOSError as error:
            unsent = self._http.ClientConnectionResetError
            if again or not isinstance(error.__cause__ or error, unsent):
                raise
            # A connection from before that the server closed just now, as llama.cpp does after each
            # stream: the request has not been read.
            await self._exchange(body, key, answer, recording, again=True)

    def _peer(self, key: str) -> Peer:
        peer = self._peers.get(key)
        if peer is None:
            peer = self._peers[key] = Peer(
                self._vendor, self._named, key, self._key_name, self._timeout
            )
        return peer

    def _open(self) -> ClientSession:
        import aiohttp
        from yarl import URL

        self._url = URL(self._target)
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={
                "Accept": "application/json, text/event-stream",
                "Accept-Encoding": "identity",
                "Content-Type": "application/json",
                "User-Agent": "asterism",
                **self._fixed,
            },
            # Not `trust_env`: it also reads ~/.netrc, whose entries collide with the key.
            proxy=None if self.loopback else proxy_for(self._url),
            timeout=aiohttp.ClientTimeout(
                total=None, connect=CONNECT_SECONDS, sock_read=self._timeout
            ),
        )
        return self._session


class _Key:
    """One of the keys, and until when it rests."""

    __slots__ = ("headers", "rests_until", "text")

    def __init__(self, text: str, headers: dict[str, str] | None) -> None:
        self.text = text
        self.headers = headers
        self.rests_until = 0.0

    def rest(self, seconds: float) -> None:
        """Use another one for a while, if there is one."""
        self.rests_until = time.monotonic() + seconds


async def _read_answer(
    status: int, headers: Mapping[str, str], read: Read, answer: ReplyParser
) -> None:
    if status >= 300:
        raise await _rejection(status, headers, read)
    if "event-stream" in headers.get("Content-Type", ""):
        await _read_stream(read, answer)
    else:
        answer.take(await _read_body(read))


async def _rejection(status: int, headers: Mapping[str, str], read: Read) -> RequestRejected:
    from aiohttp import ClientError

    body = b""
    with suppress(ClientError, OSError):
        while len(body) < 1 << 16 and (chunk := await read()):
            body += chunk
    return RequestRejected.from_body(status, headers, body)


async def _read_body(read: Read) -> bytes:
    chunks: list[bytes] = []
    size = 0
    while chunk := await read():
        size = _checked_size(size, chunk)
        chunks.append(chunk)
    return b"".join(chunks)


async def _read_stream(read: Read, answer: ReplyParser) -> None:
    """Read an event stream until it says that it is done, or ends."""
    from aiohttp import ClientError

    size, ended = 0, False
    try:
        while not answer.done:
            chunk = await read()
            if not chunk:
                ended = True
                break
            size = _checked_size(size, chunk)
            answer.feed(chunk)
    except (ClientError, OSError):
        if not answer.finish:
            raise
        ended = True
    answer.end()
    # The end of the body is mostly a moment behind; with it the connection can be used again.
    if not ended:
        with suppress(ClientError, OSError):
            async with asyncio.timeout(0.1):
                await read()


def _checked_size(size: int, chunk: bytes) -> int:
    if size + len(chunk) > MAX_ANSWER_BYTES:
        raise MalformedAnswer(
            f"with more than {MAX_ANSWER_BYTES >> 20} MiB. The rest was not read."
        )
    return size + len(chunk)


def _split_address(vendor: str, base_url: str) -> SplitResult:
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


def _find_keys(vendor: str, options: Mapping[str, Any]) -> tuple[list[str], str]:
    """Return the keys, of which there may be none, and the name of the place where they belong."""
    name: str = options.get("key_env") or f"{vendor.upper().replace('-', '_')}_API_KEY"
    given = os.environ.get(name, "")
    if options.get("key"):
        name, given = f"models.{vendor}.key", str(options["key"])
    keys = [key.strip() for key in given.split(",") if key.strip()]
    for key in keys:
        if not (key.isascii() and key.isprintable()):
            raise ConfigError(
                f"{name} holds characters that no key has, such as line breaks or typographic "
                "quotes. Copy the key again, without anything around it."
            )
    return keys, name


def number_option(vendor: str, options: Mapping[str, Any], name: str, default: float) -> float:
    """Return an option that must be a number from 0 up."""
    value = options.get(name, default)
    if isinstance(value, int | float) and value >= 0:
        return value
    raise ConfigError(
        f"models.{vendor}.{name} is {value!r}; a number from 0 up is needed, such as {default}."
    )


def is_loopback(host: str) -> bool:
    """Tell whether a host is this machine."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def proxy_for(url: URL) -> str | None:
    """Return the proxy that the environment names for an address."""
    from urllib.request import getproxies, proxy_bypass  # as slow to import as it is rarely needed

    return None if proxy_bypass(url.host or "") else getproxies().get(url.scheme)
