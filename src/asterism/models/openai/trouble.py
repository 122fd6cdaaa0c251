"""What can go wrong between us and a model's server, each in a sentence with the next move."""

from __future__ import annotations

import errno
import os
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import orjson

from asterism.errors import ModelError, ModelGarbled, ModelRefused, ModelUnavailable

if TYPE_CHECKING:
    from aiohttp import ClientResponse

CONNECT_SECONDS = 10.0


class Odd(Exception):
    """Not in the wire format; the message says what is odd and what to do."""


class Rejected(Exception):
    """The server says no, in a status and words of its own."""

    def __init__(
        self, status: int, words: str, code: object = None, retry_after: float | None = None
    ) -> None:
        super().__init__(status, words)
        self.status, self.words, self.code, self.retry_after = status, words, code, retry_after

    @staticmethod
    def from_table(table: dict[str, Any]) -> Rejected:
        """Read an error that came in place of an answer, under a status of success."""
        words, code = _words(table)
        return Rejected(code if isinstance(code, int) and 400 <= code < 600 else 500, words, code)

    @staticmethod
    async def from_response(response: ClientResponse) -> Rejected:
        """Read what a server says with a status that is no success."""
        from aiohttp import ClientError

        body = b""
        with suppress(ClientError, OSError):
            body = await response.content.read(1 << 16)
        words, code = body.decode(errors="replace"), None
        if response.status < 400:
            words = response.headers.get("Location", "").partition("?")[0]
        elif is_html(body):
            words = "an HTML page"
        else:
            with suppress(orjson.JSONDecodeError):
                words, code = _words(orjson.loads(body))
        wait = _seconds(response.headers.get("Retry-After", ""))
        return Rejected(response.status, words, code, wait)


@dataclass(frozen=True, slots=True)
class Peer:
    """The server at the other end, as errors speak of it."""

    vendor: str
    address: str
    key: str
    key_name: str
    timeout: float

    def named(self, model: str) -> str:
        """Name a model as the subject of a sentence."""
        return f"The model '{self.vendor}:{model}' at {self.address}"

    def explain(self, error: Exception, model: str, size: int) -> ModelError:
        """Say what it means that a request of `size` bytes ended with this error."""
        if isinstance(error, Rejected):
            return self._explain_status(error, model, size)
        kind, told = self._told(error)
        return kind(f"{self.named(model)} {told}")

    def _told(self, error: Exception) -> tuple[type[ModelError], str]:
        import aiohttp

        base_url = f"models.{self.vendor}.base_url"
        match error:
            case Odd():
                return ModelGarbled, f"answered, but {error}"
            case aiohttp.ClientConnectorDNSError():
                told = f"was not reached: there is no host named {error.host!r}."
                remedy = f"Correct {base_url}, or check the network."
            case aiohttp.ClientConnectorCertificateError() | aiohttp.ClientSSLError():
                told = f"was not asked, since no safe connection could be made: {error}."
                remedy = f"Give the server a valid certificate, or correct {base_url}."
                return ModelRefused, f"{told} {remedy}"
            case aiohttp.ClientProxyConnectionError() | aiohttp.ClientHttpProxyError():
                told = "was not reached: the proxy named by the environment lets nothing through."
                remedy = "Correct HTTP_PROXY or HTTPS_PROXY, or put the host into NO_PROXY."
            case aiohttp.ClientConnectorError():
                reason = os.strerror(error.errno or errno.EHOSTUNREACH).lower()
                told = f"was not reached: {reason}."
                remedy = f"Start the server there, or correct {base_url}."
            case aiohttp.ConnectionTimeoutError():
                told = f"did not take the connection within {CONNECT_SECONDS:g} seconds."
                remedy = f"Check that the server is up, and {base_url}."
            case TimeoutError():
                told = f"sent nothing for {self.timeout:g} seconds."
                remedy = f"Ask again, or raise models.{self.vendor}.timeout if it needs longer."
            case aiohttp.ClientResponseError() | aiohttp.InvalidURL():
                return ModelGarbled, f"does not speak HTTP. Is {base_url} right, port included?"
            case _:
                told = "was cut off: the connection closed before the answer was whole."
                remedy = "Nothing of it was kept; ask again."
        return ModelUnavailable, f"{told} {remedy}"

    def _explain_status(self, error: Rejected, model: str, size: int) -> ModelError:
        # A server may quote the key it was given; one as short as "none" is no secret.
        words = error.words.replace(self.key, "…") if len(self.key) > 7 else error.words
        said = f"HTTP {error.status}, {shorten(words)!r}" if words else f"HTTP {error.status}"
        passing = False
        match error.status:
            case _ if error.code == "insufficient_quota":
                told = f"has no quota left for this key ({said})."
                remedy = "Add to it at the vendor, or give the agent another model."
            case 401 | 403:
                told = f"{'refused the key' if self.key else 'wants a key'} ({said})."
                remedy = f"Put a valid one into {self.key_name}."
            case 404 | 405:
                told = f"is not there ({said})."
                remedy = f"Check its name, and that models.{self.vendor}.base_url is right; it"
                remedy += " usually ends in /v1."
            case 413:
                told = f"found the request of {size:,} bytes too large ({said})."
                remedy = "Shorten the conversation, or give the agent another model."
            case 429:
                told, passing = f"has had too many requests ({said}).", True
                remedy = f"Ask again {_when(error.retry_after)}."
            case status if status >= 500 or status in {408, 409, 425}:
                told, passing = f"is failing or overloaded ({said}).", True
                remedy = f"Ask again {_when(error.retry_after)}."
            case status if status < 400:
                told = f"sends requests on to another address ({said})."
                remedy = f"Put the right one into models.{self.vendor}.base_url."
            case _:
                told = f"did not take the request ({said})."
                remedy = "Change what it objects to, or give the agent another model."
        message = f"{self.named(model)} {told} {remedy}"
        if passing:
            return ModelUnavailable(message, retry_after=error.retry_after)
        return ModelRefused(message)


def is_html(body: bytes) -> bool:
    """Tell a web page from JSON."""
    return body.lstrip()[:1] == b"<"


def shorten(text: str, limit: int = 300) -> str:
    """Put text on one line of a bearable length, to be quoted."""
    text = " ".join(text[: 4 * limit].split())
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _words(error: Any) -> tuple[str, object]:
    """Find message and code in what servers send as an error."""
    code: object = None
    while isinstance(error, dict):
        table = cast("dict[str, Any]", error)
        code = table.get("code") or code
        fallback = "" if "message" in table else repr(table)
        error = table.get("error") or table.get("message") or table.get("detail") or fallback
    return error if isinstance(error, str) else repr(error), code


def _seconds(retry_after: str) -> float | None:
    """Read a Retry-After header: seconds, or a date."""
    from email.utils import parsedate_to_datetime  # slow to import, rarely needed

    with suppress(ValueError):
        return max(0.0, min(float(retry_after), 1e6))
    with suppress(ValueError):
        return max(0.0, parsedate_to_datetime(retry_after).timestamp() - time.time())
    return None


def _when(retry_after: float | None) -> str:
    return f"in {retry_after:.0f} seconds" if retry_after else "in a moment"
