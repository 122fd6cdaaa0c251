"""What goes wrong at a vendor asked by way of pydantic-ai, said as every other model says it."""

from __future__ import annotations

import os
import re
import socket
import ssl
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

import orjson

from asterism.errors import (
    ContentRefused,
    KeyRefused,
    ModelError,
    ModelGarbled,
    ModelRefused,
    ModelUnavailable,
)
from asterism.models.http.endpoint import is_loopback
from asterism.models.http.trouble import CONNECT_SECONDS, RequestRejected, shorten
from asterism.models.others.history import UnsupportedContent
from asterism.models.others.reply import IncompleteReply, ReplyFiltered
from asterism.models.others.vendors import MissingCredentials

if TYPE_CHECKING:
    from pydantic_ai.exceptions import ModelAPIError, ModelConnectionError, ModelHTTPError

    from asterism.models.http.trouble import Peer

_UNSENT = frozenset({"pool", "connect"})
_ABOUT_CREDENTIALS = re.compile(r"Credential|Token|SSO|Profile|AssumeRole|Login")
_DELAY = re.compile(r"(\d+(?:\.\d+)?)s")


def explain(
    error: Exception, peer: Peer, model: str, size: int, *, links: bool = False
) -> ModelError:
    """Say what it means that a request of `size` bytes ended with this error.

    With `links`, pictures had to be fetched from their addresses first.
    """
    from pydantic_ai import exceptions as theirs

    match error:
        case theirs.ModelHTTPError():
            return _status(error, peer, model, size)
        case theirs.ModelConnectionError():
            return _transport(error, peer, peer.describe_model(model))
        case theirs.ModelAPIError():
            return _without_status(error, peer, model, size)
        case _:
            return _other(error, peer, peer.describe_model(model), links=links)


def _other(error: Exception, peer: Peer, named: str, *, links: bool) -> ModelError:
    """Explain what is no error of the vendor's server."""
    from pydantic_ai.exceptions import ContentFilterError, UnexpectedModelBehavior, UserError

    why = shorten(_redact(str(error) or type(error).__name__, peer)).rstrip(".")
    match error:
        case ModelError():
            return error
        case IncompleteReply():
            return ModelGarbled(f"{named} answered, but {error}")
        case ConnectionAbortedError():
            return _cut_off(named)
        case UnsupportedContent() | UserError():
            told = f"was not asked: {why}. Change that, or give the agent another model."
        case ReplyFiltered() | ContentFilterError():
            return ContentRefused(
                f"{named} did not answer, since its content filter objects ({why}). Say it "
                "otherwise, or give the agent another model."
            )
        case _ if type(error).__module__.startswith("botocore."):
            # What Amazon's library raises before anything is sent.
            if _ABOUT_CREDENTIALS.search(type(error).__name__):
                return KeyRefused(f"{named} was not asked: {why}. {_credentials(peer.key_name)}")
            told = f"was not asked: {why}. Correct the options under [models.{peer.vendor}]."
        case _ if links and not isinstance(error, UnexpectedModelBehavior):
            told = (
                "was not asked, since a picture could not be fetched from its address "
                f"({why}). Send the picture itself."
            )
        case _:
            return _unreadable(error, peer, named)
    return ModelRefused(f"{named} {told}")


def missing_credentials(
    why: MissingCredentials, vendor: str, model: str, variable: str
) -> KeyRefused:
    """Say that a vendor's library does not know who asks."""
    return KeyRefused(
        f"The model '{vendor}:{model}' was not asked: {why}. {_credentials(variable)} The region "
        'belongs into AWS_DEFAULT_REGION, or stands as region = "…" under '
        f"[models.{vendor}.options] in asterism.toml."
    )


def _credentials(variable: str) -> str:
    return (
        f"Put a key into {variable}, or set up what Amazon's own tools use: AWS_PROFILE, or "
        "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY."
    )


def _status(error: ModelHTTPError, peer: Peer, model: str, size: int) -> ModelError:
    from pydantic_ai import exceptions as theirs

    rejected = _rejected(error)
    said = f"HTTP {rejected.status}, {shorten(_redact(rejected.words, peer))!r}"
    named = peer.describe_model(model)
    # Asked of the class: the categories share no ancestor with the statuses but the root.
    category = type(error)
    if issubclass(category, theirs.ModelAuthenticationError):
        if peer.key:
            told = f"refused the key ({said}). Put a valid one into {peer.key_name}."
        else:
            told = f"refused the credentials ({said}). Renew them, or use a key ({peer.key_name})."
        return KeyRefused(f"{named} {told}")
    if issubclass(category, theirs.ModelNotFoundError):
        nearest = error.suggested_model_id
        nearest = f" Did you mean {nearest!r}?" if nearest else ""
        return ModelRefused(f"{named} is not there ({said}). Check its name.{nearest}")
    if issubclass(category, theirs.ModelContextWindowExceededError):
        rejected.code = "context_length_exceeded"
    elif issubclass(category, theirs.ModelQuotaExceededError):
        rejected.code = "insufficient_quota"
    return peer.explain(rejected, model, size)


def _rejected(error: ModelHTTPError) -> RequestRejected:
    body = error.body
    if isinstance(body, dict):
        table = cast("dict[str, Any]", body)
        # Amazon's errors are capitalised.
        if isinstance(theirs := table.get("Error"), dict):
            told = cast("dict[str, Any]", theirs)
            table = {"message": told.get("Message") or told.get("Code") or "", "code": ""}
        body = orjson.dumps(table, default=str)
    data = body if isinstance(body, bytes) else str(body or "").encode()
    rejected = RequestRejected.from_body(error.status_code, {}, data)
    rejected.retry_after = error.retry_after
    if rejected.retry_after is None and (delay := _DELAY.fullmatch(_delay(error.body))):
        rejected.retry_after = float(delay[1])
    return rejected


def _delay(body: Any) -> str:
    """Find Google's wish how long to wait (google.rpc.RetryInfo), such as "13s"."""
    match body:
        case {"error": {"details": [*details]}}:
            for detail in details:
                match detail:
                    case {"retryDelay": str(delay)}:
                        return delay
                    case _:
                        pass
        case _:
            pass
    return ""


def _without_status(error: ModelAPIError, peer: Peer, model: str, size: int) -> ModelError:
    """Explain an error in a stream that has no status, or an answer that could not be read."""
    from pydantic_ai import exceptions as theirs

    kinds: dict[type[ModelAPIError], int] = {
        theirs.ModelRateLimitError: 429,
        theirs.ModelQuotaExceededError: 402,
        theirs.ModelUnavailableError: 503,
        theirs.ModelServerError: 500,
        theirs.ModelAuthenticationError: 401,
        theirs.ModelRequestRejectedError: 400,
    }
    for kind, status in kinds.items():
        if isinstance(error, kind):
            words = shorten(error.message)
            return peer.explain(RequestRejected(status, words, "", error.retry_after), model, size)
    return _unreadable(error, peer, peer.describe_model(model))


def _transport(error: ModelConnectionError, peer: Peer, named: str) -> ModelError:
    from pydantic_ai.exceptions import ModelTimeoutError

    base_url = f"models.{peer.vendor}.base_url"
    sent = error.phase not in _UNSENT
    causes = list(_causes(error))
    if isinstance(error, ModelTimeoutError):
        told = f"did not take the connection within {CONNECT_SECONDS:g} seconds."
        remedy = f"Check that the server is up, and {base_url}."
        if sent:
            told = f"sent nothing for {peer.timeout:g} seconds."
            remedy = f"Ask again, or raise models.{peer.vendor}.timeout if it needs longer."
        return ModelUnavailable(f"{named} {told} {remedy}", slow=True, begun=sent)
    if unsafe := next((each for each in causes if isinstance(each, ssl.SSLError)), None):
        return ModelRefused(
            f"{named} was not asked, since no safe connection could be made: "
            f"{shorten(str(unsafe))}. Give the server a valid certificate, or correct {base_url}."
        )
    refused = not sent and _is_proxied(peer.address)
    if refused or any("Proxy" in type(each).__name__ for each in causes):
        return ModelUnavailable(
            f"{named} was not reached: the proxy named by the environment lets nothing through. "
            "Correct HTTP_PROXY or HTTPS_PROXY, or put the host into NO_PROXY."
        )
    if any(isinstance(each, socket.gaierror) for each in causes):
        return ModelUnavailable(
            f"{named} was not reached: there is no host of that name. Correct {base_url}, or check "
            "the network."
        )
    if sent:
        return _cut_off(named)
    known = (each.errno for each in causes if isinstance(each, OSError) and each.errno)
    reason = os.strerror(number).lower() if (number := next(known, 0)) else "no connection"
    return ModelUnavailable(
        f"{named} was not reached: {reason}. Start the server there, or correct {base_url}."
    )


def _is_proxied(address: str) -> bool:
    from urllib.request import getproxies, proxy_bypass  # as slow to import as it is rarely needed

    parts = urlsplit(address)
    host = parts.hostname or ""
    return not is_loopback(host) and parts.scheme in getproxies() and not proxy_bypass(host)


def _cut_off(named: str) -> ModelUnavailable:
    return ModelUnavailable(
        f"{named} was cut off: the connection closed before the answer was whole. Nothing of it "
        "was kept; ask again.",
        begun=True,
    )


def _unreadable(error: Exception, peer: Peer, named: str) -> ModelGarbled:
    """Explain what a vendor's library raises when an answer is not what it expects."""
    words = shorten(_redact(str(error), peer), 200).rstrip(".")
    told = f"{type(error).__name__}: {words}" if words else type(error).__name__
    return ModelGarbled(
        f"{named} answered, but not in its wire format ({told}). Ask again; if it stays so, its "
        "server is at fault."
    )


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """Give an error and all that led to it."""
    seen: set[int] = set()
    left = [error]
    while left:
        one = left.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        left += [one.__cause__, one.__context__]
        if isinstance(one, BaseExceptionGroup):
            left += cast("BaseExceptionGroup[BaseException]", one).exceptions


def _redact(words: str, peer: Peer) -> str:
    # A server may quote the key it was given; one as short as "none" is no secret.
    return words.replace(peer.key, "…") if len(peer.key) > 7 else words
