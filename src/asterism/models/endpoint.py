"""One address that is asked over HTTP: a body out, an answer in, with the next key if one fails."""

from __future__ import annotations

import asyncio
import errno
import io
import json
import os
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from importlib import import_module
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast
from urllib.parse import SplitResult, urlsplit

import orjson

from asterism.errors import (
    ConfigError,
    ContentRefused,
    ContextTooLong,
    KeyRefused,
    ModelBusy,
    ModelError,
    ModelGarbled,
    ModelRefused,
    ModelUnavailable,
)
from asterism.models.cassette import RecordedFailure, RecordedTimeout, taped_request
from asterism.records import dataclass

if TYPE_CHECKING:
    from aiohttp import ClientSession
    from yarl import URL

    from asterism.models.cassette import Cassette, Recording
    from asterism.ports import ModelRequest

MAX_ANSWER_BYTES = 64 << 20
_KEY_PAUSE = 60.0
"""Seconds that a key which had too many requests is not used, where the server names none."""

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
T = TypeVar("T")


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
        parts = split_address(vendor, str(options.get("base_url") or home or ""))
        self.address = f"{parts.scheme}://{parts.netloc}{parts.path}"
        self.loopback = is_loopback(parts.hostname or "")
        self._named = "" if options.get("unnamed") else self.address
        self._target = parts._replace(path=parts.path + path).geturl()
        self._keys = VendorKeys.find(vendor, options)
        keys = self._keys.all
        # Headers of a session cost less than those of a request, which keys in rotation need.
        self._session_headers = headers(keys[0] if keys else "") if len(keys) < 2 else {}
        self._key_headers = {key: headers(key) for key in keys} if len(keys) > 1 else {}
        self._lacks_key = not keys and (
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
            raise self._keys.missing(request.model)

        async def post(key: str) -> A:
            answer = begin()
            await self._post(request, body, key, answer)
            return answer

        try:
            async with asyncio.timeout(request.timeout):
                return await self._keys.ask_with_each(post)
        except (TimeoutError, RecordedTimeout):
            raise ModelUnavailable(
                f"{self._peer('').describe_model(request.model)} gave no whole answer within "
                f"{request.timeout:g} seconds. Ask again, or allow it more time.",
                slow=True,
                begun=True,
            ) from None

    async def close(self) -> None:
        """Let go of connections."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def _post(
        self, request: ModelRequest, body: bytes, key: str, answer: ReplyParser
    ) -> None:
        recording = None
        try:
            if self._cassette is None:
                return await self._exchange(body, key, answer)
            recorded = taped_request(self._vendor, self.address, self._path, request, body)
            if self._plays:
                tape = self._cassette.play(recorded)
                return await _read_answer(*await tape.answer(), tape.read, answer)
            recording = self._cassette.begin(recorded, key)
            await self._exchange(body, key, answer, recording)
        except (RequestRejected, MalformedAnswer, self._http.ClientError, OSError) as error:
            if isinstance(error, RecordedFailure):
                raise error.problem from None
            problem = self._peer(key).explain(error, request.model, len(body))
            if recording is not None and not isinstance(error, RequestRejected | MalformedAnswer):
                recording.note_failure(problem)
            # Not chained: aiohttp's errors carry the request's headers, and so the key.
            raise problem from None
        except asyncio.CancelledError:
            if recording is not None:
                recording.note_abandoned()
            raise
        finally:
            if recording is not None:
                recording.close()

    async def _exchange(
        self,
        body: bytes,
        key: str,
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
                self._url, data=data, headers=self._key_headers.get(key), allow_redirects=False
            ) as response:
                read: Read = response.content.readany
                if recording is not None:
                    read = recording.note_answer(response.status, response.headers, read)
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
                self._vendor, self._named, key, self._keys.name, self._timeout
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
                **self._session_headers,
            },
            # Not `trust_env`: it also reads ~/.netrc, whose entries collide with the key.
            proxy=None if self.loopback else proxy_for(self._url),
            timeout=aiohttp.ClientTimeout(
                total=None, connect=CONNECT_SECONDS, sock_read=self._timeout
            ),
        )
        return self._session


class VendorKeys:
    """One vendor's keys; when one is refused or has had too many requests, the next is used."""

    def __init__(self, vendor: str, keys: list[str], name: str) -> None:
        self.all = keys
        self.name = name
        """The variable or setting where they belong."""
        self._vendor = vendor
        self._paused_until = dict.fromkeys(keys, 0.0)

    @staticmethod
    def find(
        vendor: str, options: Mapping[str, Any], usual: tuple[str, ...] = (), api: str = ""
    ) -> VendorKeys:
        """Look into the options, then into the environment.

        Args:
            vendor: The vendor's name in the configuration.
            options: Its table.
            usual: The variables that the vendor's own tools read.
            api: The vendor's usual name; under another one, `<NAME>_API_KEY` is read first.
        """
        own = () if vendor == api else (f"{vendor.upper().replace('-', '_')}_API_KEY",)
        names = (options["key_env"],) if options.get("key_env") else (*own, *usual)
        name = next((name for name in names if os.environ.get(name)), names[0])
        text = os.environ.get(name, "")
        if options.get("key"):
            name, text = f"models.{vendor}.key", str(options["key"])
        keys = [key.strip() for key in text.split(",") if key.strip()]
        if not all(key.isascii() and key.isprintable() for key in keys):
            raise ConfigError(
                f"{name} holds characters that no key has, such as line breaks or typographic "
                "quotes. Copy the key again, without anything around it."
            )
        return VendorKeys(vendor, list(dict.fromkeys(keys)), name)

    def missing(self, model: str) -> KeyRefused:
        """Return the error for a model that cannot be asked without a key."""
        return KeyRefused(
            f"The model '{self._vendor}:{model}' needs a key, but {self.name} is not set. Set it, "
            f'run "asterism key set {self._vendor}", or write key = "…" under '
            f"[models.{self._vendor}] in asterism.toml."
        )

    async def ask_with_each(self, ask: Callable[[str], Awaitable[T]]) -> T:
        """Return the first answer; raise what the last key met. Without keys, ask with ""."""
        *first, last = self._usable()
        for key in first:
            try:
                return await ask(key)
            except (KeyRefused, ModelBusy) as error:
                self._pause(key, error)
        try:
            return await ask(last)
        except (KeyRefused, ModelBusy) as error:
            self._pause(last, error)
            raise

    def _usable(self) -> list[str]:
        """Return the keys that are not paused, or the one that is paused the shortest."""
        if len(self.all) < 2:
            return self.all or [""]
        now = time.monotonic()
        usable = [key for key in self.all if self._paused_until[key] <= now]
        return usable or [min(self.all, key=self._paused_until.__getitem__)]

    def _pause(self, key: str, error: KeyRefused | ModelBusy) -> None:
        pause = error.retry_after or _KEY_PAUSE if isinstance(error, ModelBusy) else float("inf")
        self._paused_until[key] = time.monotonic() + pause


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


def split_address(vendor: str, base_url: str) -> SplitResult:
    """Return the parts of a server's address; `ConfigError` if it is not one."""
    with suppress(ValueError):
        parts = urlsplit(base_url)
        sound = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0
        if sound and "@" not in parts.netloc:
            return parts._replace(path=parts.path.rstrip("/"), fragment="")
    address = shorten(base_url.rpartition("@")[2])
    raise ConfigError(
        f"models.{vendor}.base_url is {address!r}; the address of a server is needed, without user "
        "or password, such as http://127.0.0.1:11434/v1."
    )


def number_option(vendor: str, options: Mapping[str, Any], name: str, default: float) -> float:
    """Return an option that must be a number from 0 up."""
    value = options.get(name, default)
    if isinstance(value, int | float) and value >= 0:
        return value
    raise ConfigError(
        f"models.{vendor}.{name} is {value!r}; a number from 0 up is needed, such as {default}."
    )


def extra_fields(vendor: str, fields: dict[str, Any], reserved: frozenset[str]) -> bytes:
    """Return further members of every request as JSON, after a comma."""
    if taken := sorted(reserved & fields.keys()):
        raise ConfigError(
            f"models.{vendor}.options sets {taken[0]!r}, which asterism sets by itself. Take it "
            "out; fields such as temperature or max_tokens belong there."
        )
    try:
        return b"," + orjson.dumps(fields)[1:-1] if fields else b""
    except TypeError as error:
        raise ConfigError(f"models.{vendor}.options cannot be sent as JSON: {error}.") from None


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


CONNECT_SECONDS = 10.0

# Only OpenAI and llama.cpp say it with a code; the others, and proxies, say it in words such as
# "prompt is too long: 201000 tokens > 200000 maximum" (Anthropic), "This model's maximum context
# length is 8192 tokens" (OpenAI, vLLM), "exceeds the available context size" (llama.cpp), "input
# length and `max_tokens` exceed context limit" (Anthropic); seen 2026-11.
_TOO_LONG = re.compile(
    r"context.?(length|window|size|limit)|prompt is too long|too many (input )?tokens"
    r"|maximum (number of )?(input )?tokens|input is too long|exceeds? the max\w* .*tokens",
    re.IGNORECASE,
)
_TOO_LONG_CODES = frozenset({"context_length_exceeded", "exceed_context_size_error"})
_FILTER_CODES = frozenset(
    {"content_filter", "content_policy_violation", "ResponsibleAIPolicyViolation"}
)
_NO_QUOTA_CODES = frozenset({"insufficient_quota", "billing_error", "billing_hard_limit_reached"})
_STATUS_OF_TYPE = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "api_error": 500,
    "server_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
}
"""What an error that comes in the middle of a stream, without a status of its own, would have."""


class MalformedAnswer(Exception):
    """Not in the wire format; the message says what is odd and what to do."""


class RequestRejected(Exception):
    """The server says no, in a status and words of its own."""

    def __init__(
        self, status: int, message: str, code: str = "", retry_after: float | None = None
    ) -> None:
        super().__init__(status, message)
        self.status, self.words, self.code, self.retry_after = status, message, code, retry_after

    @property
    def is_too_long(self) -> bool:
        """Whether the conversation does not fit the model's window."""
        if self.code in _TOO_LONG_CODES:
            return True
        return self.status in {400, 413, 422} and bool(_TOO_LONG.search(self.words[:2000]))

    @property
    def is_out_of_quota(self) -> bool:
        """Whether the key is sound and nothing is left to spend with it."""
        # Anthropic says so with 400, invalid_request_error and these words; seen 2026-11.
        broke = self.status == 400 and "credit balance is too low" in self.words
        return self.code in _NO_QUOTA_CODES or self.status == 402 or broke

    @property
    def is_filtered(self) -> bool:
        """Whether a content filter objects; Anthropic says so in words only."""
        return self.code in _FILTER_CODES or (
            self.status == 400 and "content filter" in self.words[:2000].lower()
        )

    @staticmethod
    def from_table(table: dict[str, Any]) -> RequestRejected:
        """Read an error that came in place of an answer, under a status of success."""
        words, code = _error_text(table)
        status = int(code) if code.isdecimal() else _STATUS_OF_TYPE.get(code, 500)
        return RequestRejected(status if 400 <= status < 600 else 500, words, code)

    @staticmethod
    def from_body(status: int, headers: Mapping[str, str], body: bytes) -> RequestRejected:
        """Read what a server says with a status that is no success."""
        words, code = body.decode(errors="replace"), ""
        if status < 400:
            words = headers.get("Location", "").partition("?")[0]
        elif is_html(body):
            words = "an HTML page"
        else:
            with suppress(orjson.JSONDecodeError):
                words, code = _error_text(orjson.loads(body))
        return RequestRejected(status, words, code, _retry_after(headers))


@dataclass(frozen=True, slots=True)
class Peer:
    """The server at the other end, as errors speak of it."""

    vendor: str
    address: str
    """Empty where it means nothing to people."""
    key: str
    key_name: str
    timeout: float

    def describe_model(self, model: str) -> str:
        """Name a model as the subject of a sentence."""
        at = f" at {self.address}" if self.address else ""
        return f"The model '{self.vendor}:{model}'{at}"

    def explain(self, error: Exception, model: str, size: int) -> ModelError:
        """Say what it means that a request of `size` bytes ended with this error."""
        if isinstance(error, RequestRejected):
            return self._explain_status(error, model, size)
        kind, problem = self._describe(error)
        if kind is ModelUnavailable:
            from aiohttp import ClientConnectorError, ConnectionTimeoutError

            return ModelUnavailable(
                f"{self.describe_model(model)} {problem}",
                slow=isinstance(error, TimeoutError),
                begun=not isinstance(error, ClientConnectorError | ConnectionTimeoutError),
            )
        return kind(f"{self.describe_model(model)} {problem}")

    def _describe(self, error: Exception) -> tuple[type[ModelError], str]:
        import aiohttp

        base_url = f"models.{self.vendor}.base_url"
        match error:
            case MalformedAnswer():
                return ModelGarbled, f"answered, but {error}"
            case aiohttp.ClientConnectorDNSError():
                problem = f"was not reached: there is no host named {error.host!r}."
                remedy = f"Correct {base_url}, or check the network."
            case aiohttp.ClientConnectorCertificateError() | aiohttp.ClientSSLError():
                problem = f"was not asked, since no safe connection could be made: {error}."
                remedy = f"Give the server a valid certificate, or correct {base_url}."
                return ModelRefused, f"{problem} {remedy}"
            case aiohttp.ClientProxyConnectionError() | aiohttp.ClientHttpProxyError():
                problem = (
                    "was not reached: the proxy named by the environment lets nothing through."
                )
                remedy = "Correct HTTP_PROXY or HTTPS_PROXY, or put the host into NO_PROXY."
            case aiohttp.ClientConnectorError():
                reason = os.strerror(error.errno or errno.EHOSTUNREACH).lower()
                problem = f"was not reached: {reason}."
                remedy = f"Start the server there, or correct {base_url}."
            case aiohttp.ConnectionTimeoutError():
                problem = f"did not take the connection within {CONNECT_SECONDS:g} seconds."
                remedy = f"Check that the server is up, and {base_url}."
            case TimeoutError():
                problem = f"sent nothing for {self.timeout:g} seconds."
                remedy = f"Ask again, or raise models.{self.vendor}.timeout if it needs longer."
            case aiohttp.ClientResponseError() | aiohttp.InvalidURL():
                return ModelGarbled, f"does not speak HTTP. Is {base_url} right, port included?"
            case _:
                problem = "was cut off: the connection closed before the answer was whole."
                remedy = "Nothing of it was kept; ask again."
        return ModelUnavailable, f"{problem} {remedy}"

    def _explain_status(self, error: RequestRejected, model: str, size: int) -> ModelError:
        # A server may quote the key it was given; one as short as "none" is no secret.
        words = error.words.replace(self.key, "…") if len(self.key) > 7 else error.words
        quoted = f"HTTP {error.status}, {shorten(words)!r}" if words else f"HTTP {error.status}"
        kind, problem, remedy = self._describe_status(error, quoted, size)
        message = f"{self.describe_model(model)} {problem} {remedy}"
        if issubclass(kind, ModelUnavailable):
            return kind(message, retry_after=error.retry_after)
        return kind(message)

    def _describe_status(
        self, error: RequestRejected, quoted: str, size: int
    ) -> tuple[type[ModelError], str, str]:
        another = "or give the agent another model."
        if error.is_out_of_quota:
            problem = f"has no quota left for this key ({quoted})."
            return KeyRefused, problem, f"Add to it at the vendor, {another}"
        if error.is_too_long:
            problem = f"has too small a window for this conversation ({quoted})."
            return ContextTooLong, problem, f"Shorten it, {another}"
        if error.is_filtered:
            problem = f"did not answer, since its content filter objects ({quoted})."
            return ContentRefused, problem, f"Say it otherwise, {another}"
        kind: type[ModelError] = ModelRefused
        match error.status:
            case 401 | 403:
                kind = KeyRefused
                problem = f"{'refused the key' if self.key else 'wants a key'} ({quoted})."
                remedy = f"Put a valid one into {self.key_name}."
            case 404 | 405:
                problem = f"is not there ({quoted})."
                remedy = f"Check its name, and that models.{self.vendor}.base_url is right; it"
                remedy += " usually ends in /v1."
            case 413:
                kind = ContextTooLong
                problem = f"found the request of {size:,} bytes too large ({quoted})."
                remedy = f"Shorten the conversation, {another}"
            case 429:
                kind, problem = ModelBusy, f"has had too many requests ({quoted})."
                remedy = f"Ask again {_in_how_long(error.retry_after)}."
            case status if status >= 500 or status in {408, 409, 425}:
                kind, problem = ModelUnavailable, f"is failing or overloaded ({quoted})."
                remedy = f"Ask again {_in_how_long(error.retry_after)}."
            case status if status < 400:
                problem = f"sends requests on to another address ({quoted})."
                remedy = f"Put the right one into models.{self.vendor}.base_url."
            case _:
                problem = f"did not take the request ({quoted})."
                remedy = f"Change what it objects to, {another}"
        return kind, problem, remedy


def is_html(body: bytes) -> bool:
    """Tell a web page from JSON."""
    return body.lstrip()[:1] == b"<"


def shorten(text: str, limit: int = 300) -> str:
    """Put text on one line of a bearable length, to be quoted."""
    text = " ".join(text[: 4 * limit].split())
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _error_text(error: Any) -> tuple[str, str]:
    """Find message and code in what servers send as an error."""
    code = ""
    while isinstance(error, dict):
        table = cast("dict[str, Any]", error)
        # A code in letters says most; llama.cpp repeats the status there and tells more by type.
        codes = [str(each) for each in (table.get("code"), table.get("type")) if each]
        codes = [each for each in codes if each != "error"]
        code = next((each for each in codes if not each.isdecimal()), codes[0] if codes else code)
        fallback = "" if "message" in table else repr(table)
        error = table.get("error") or table.get("message") or table.get("detail") or fallback
    return error if isinstance(error, str) else repr(error), code


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Return how long a server wants us to wait."""
    with suppress(KeyError, ValueError):
        return max(0.0, min(float(headers["retry-after-ms"]) / 1000, 1e6))
    return _parse_retry_after(headers.get("Retry-After", ""))


def _parse_retry_after(retry_after: str) -> float | None:
    """Read a Retry-After header: seconds, or a date."""
    from email.utils import parsedate_to_datetime  # slow to import, rarely needed

    with suppress(ValueError):
        return max(0.0, min(float(retry_after), 1e6))
    with suppress(ValueError):
        return max(0.0, parsedate_to_datetime(retry_after).timestamp() - time.time())
    return None


def _in_how_long(retry_after: float | None) -> str:
    return f"in {retry_after:.0f} seconds" if retry_after else "in a moment"


class StreamedText:
    """Text that comes in pieces; half a surrogate pair waits for the other half."""

    __slots__ = ("_half", "_pieces")

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._half = ""

    def add(self, piece: str) -> str:
        """Take a piece; return what can be shown by now."""
        piece = self._half + piece
        self._half = piece[-1:] if "\ud800" <= piece[-1:] <= "\udbff" else ""
        piece = fix_surrogates(piece[:-1] if self._half else piece)
        self._pieces.append(piece)
        return piece

    def __str__(self) -> str:
        return "".join(self._pieces) + fix_surrogates(self._half)


class EventLines:
    """The data lines of an event stream, wherever its bytes were cut."""

    __slots__ = ("_rest",)

    def __init__(self) -> None:
        self._rest: list[bytes] = []

    def feed(self, chunk: bytes) -> list[bytes]:
        """Take the next bytes; return the data of the events that are whole by now."""
        self._rest.append(chunk)
        if b"\n" not in chunk:
            return []
        *lines, rest = b"".join(self._rest).split(b"\n")
        self._rest = [rest]
        # An event's data is one line; others are comments, event names and keep-alives.
        return [line[5:].strip() for line in lines if line.startswith(b"data:")]


def parse_json(data: bytes, hint: str) -> Any:
    """Return the JSON that a server sent; `hint` says how its address should look."""
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError as error:
        if is_html(data):
            raise MalformedAnswer(
                f"with an HTML page (HTTP 200) instead of JSON. Is base_url right? {hint}"
            ) from None
        # The standard library also takes halves of surrogate pairs, which are mended later.
        try:
            return json.loads(data.decode(errors="replace"))
        except (ValueError, RecursionError):
            raise MalformedAnswer(
                f"with malformed JSON ({error}): {shorten(data[:2000].decode(errors='replace'))!r}."
                " Ask again; if it stays so, its server is at fault."
            ) from None


def fix_surrogates(text: str) -> str:
    """Replace halves of surrogate pairs, which no encoding can hold; join whole pairs."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def fix_surrogates_in(value: Any) -> Any:
    """Mend every text inside of a JSON value."""
    if isinstance(value, str):
        return fix_surrogates(value)
    if isinstance(value, list):
        return [fix_surrogates_in(each) for each in cast("list[Any]", value)]
    if isinstance(value, dict):
        table = cast("dict[str, Any]", value)
        return {fix_surrogates(key): fix_surrogates_in(each) for key, each in table.items()}
    return value
