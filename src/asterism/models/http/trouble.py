"""What can go wrong between us and a model's server, each in a sentence with the next move."""

from __future__ import annotations

import errno
import os
import re
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, cast

import orjson

from asterism.errors import (
    ContentRefused,
    ContextTooLong,
    KeyRefused,
    ModelBusy,
    ModelError,
    ModelGarbled,
    ModelRefused,
    ModelUnavailable,
)

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
        kind, told = self._describe(error)
        if kind is ModelUnavailable:
            from aiohttp import ClientConnectorError, ConnectionTimeoutError

            return ModelUnavailable(
                f"{self.describe_model(model)} {told}",
                slow=isinstance(error, TimeoutError),
                begun=not isinstance(error, ClientConnectorError | ConnectionTimeoutError),
            )
        return kind(f"{self.describe_model(model)} {told}")

    def _describe(self, error: Exception) -> tuple[type[ModelError], str]:
        import aiohttp

        base_url = f"models.{self.vendor}.base_url"
        match error:
            case MalformedAnswer():
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

    def _explain_status(self, error: RequestRejected, model: str, size: int) -> ModelError:
        # A server may quote the key it was given; one as short as "none" is no secret.
        words = error.words.replace(self.key, "…") if len(self.key) > 7 else error.words
        said = f"HTTP {error.status}, {shorten(words)!r}" if words else f"HTTP {error.status}"
        kind, told, remedy = self._describe_status(error, said, size)
        message = f"{self.describe_model(model)} {told} {remedy}"
        if issubclass(kind, ModelUnavailable):
            return kind(message, retry_after=error.retry_after)
        return kind(message)

    def _describe_status(
        self, error: RequestRejected, said: str, size: int
    ) -> tuple[type[ModelError], str, str]:
        another = "or give the agent another model."
        if error.is_out_of_quota:
            told = f"has no quota left for this key ({said})."
            return KeyRefused, told, f"Add to it at the vendor, {another}"
        if error.is_too_long:
            told = f"has too small a window for this conversation ({said})."
            return ContextTooLong, told, f"Shorten it, {another}"
        if error.is_filtered:
            told = f"did not answer, since its content filter objects ({said})."
            return ContentRefused, told, f"Say it otherwise, {another}"
        kind: type[ModelError] = ModelRefused
        match error.status:
            case 401 | 403:
                kind = KeyRefused
                told = f"{'refused the key' if self.key else 'wants a key'} ({said})."
                remedy = f"Put a valid one into {self.key_name}."
            case 404 | 405:
                told = f"is not there ({said})."
                remedy = f"Check its name, and that models.{self.vendor}.base_url is right; it"
                remedy += " usually ends in /v1."
            case 413:
                kind = ContextTooLong
                told = f"found the request of {size:,} bytes too large ({said})."
                remedy = f"Shorten the conversation, {another}"
            case 429:
                kind, told = ModelBusy, f"has had too many requests ({said})."
                remedy = f"Ask again {_in_how_long(error.retry_after)}."
            case status if status >= 500 or status in {408, 409, 425}:
                kind, told = ModelUnavailable, f"is failing or overloaded ({said})."
                remedy = f"Ask again {_in_how_long(error.retry_after)}."
            case status if status < 400:
                told = f"sends requests on to another address ({said})."
                remedy = f"Put the right one into models.{self.vendor}.base_url."
            case _:
                told = f"did not take the request ({said})."
                remedy = f"Change what it objects to, {another}"
        return kind, told, remedy


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
        given = [str(each) for each in (table.get("code"), table.get("type")) if each]
        given = [each for each in given if each != "error"]
        code = next((each for each in given if not each.isdecimal()), given[0] if given else code)
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
