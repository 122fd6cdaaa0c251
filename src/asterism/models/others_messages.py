"""A request in our wire form, turned into the messages that pydantic-ai hands to a vendor."""

from __future__ import annotations

import os
import re
import socket
import ssl
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import field
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast
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
from asterism.models.endpoint import (
    CONNECT_SECONDS,
    RequestRejected,
    StreamedText,
    fix_surrogates,
    is_loopback,
    shorten,
)
from asterism.records import dataclass
from asterism.types.turns import Call, Reply, Usage

if TYPE_CHECKING:
    from pydantic_ai.exceptions import ModelAPIError, ModelConnectionError, ModelHTTPError
    from pydantic_ai.messages import (
        ModelMessage,
        ModelRequestPart,
        ModelResponse,
        ModelResponsePart,
        ModelResponseStreamEvent,
        ToolReturnPart,
        UserContent,
    )
    from pydantic_ai.tools import ToolDefinition

    from asterism.models.endpoint import Peer
    from asterism.ports import Emit, ModelRequest

MAX_CACHED_BYTES = 32 << 20
"""Bytes of wire forms whose conversion is kept."""

_Value = TypeVar("_Value")


class UnsupportedContent(Exception):
    """Something in the request cannot be said to this vendor; the message says what to do."""


@dataclass(slots=True)
class _ConvertedMessage:
    """One message, converted."""

    role: str
    request: list[ModelRequestPart] = field(default_factory=list["ModelRequestPart"])
    response: ModelResponse | None = None
    names: dict[str, str] = field(default_factory=dict[str, str])
    """The tools that it calls, by the id of the call."""
    answers: str = ""
    content: str | list[UserContent] = ""
    results: dict[str, ToolReturnPart] = field(default_factory=dict[str, "ToolReturnPart"])
    """What it is as a tool's result, by the tool's name, which only the call tells."""
    links: bool = False
    """Whether it names a picture by its address."""


@dataclass(frozen=True, slots=True)
class ConvertedHistory:
    """All that was said before, converted."""

    messages: list[ModelMessage]
    links: bool
    """Whether pictures are named by their addresses."""
    late: bool
    """Whether the system says something after the beginning, which not every vendor can take."""


class HistoryConverter:
    """Turns wire forms into messages and tools; what was converted once is kept for the next time.

    Kept by the bytes themselves, so that a turn converts what is new in it and no more.
    """

    def __init__(self, max_bytes: int = MAX_CACHED_BYTES) -> None:
        self._messages: ConversionCache[_ConvertedMessage] = ConversionCache(max_bytes)
        self._thoughts: ConversionCache[ModelResponse | None] = ConversionCache(max_bytes // 4)
        self._tools: ConversionCache[list[ToolDefinition]] = ConversionCache(max_bytes // 4)

    def history(self, request: ModelRequest, by: str) -> ConvertedHistory:
        """Return what was said before; `by` is whose thoughts can be given back."""
        from pydantic_ai.messages import ModelRequest as VendorRequest

        history: list[ModelMessage] = []
        names: dict[str, str] = {}
        links = late = begun = False
        parts: list[ModelRequestPart] = []
        for wire in request.messages:
            converted = self._messages.get(wire, _convert)
            links = links or converted.links
            late = late or (begun and converted.role == "system")
            begun = begun or converted.role != "system"
            if converted.role == "tool":
                parts.append(_result(converted, names.get(converted.answers, "tool")))
            elif converted.role != "assistant":
                parts += converted.request
            elif converted.response is not None:
                if parts:
                    history.append(VendorRequest(parts))
                    parts = []
                names.update(converted.names)
                thought = request.thoughts.get(wire)
                whole = self._recall(thought, by) if thought else None
                history.append(whole or converted.response)
        if parts:
            history.append(VendorRequest(parts))
        return ConvertedHistory(history, links, late)

    def tools(self, wire: bytes | None) -> list[ToolDefinition]:
        """Return the descriptions of tools."""
        return self._tools.get(wire, _convert_tools) if wire else []

    def _recall(self, thought: bytes, by: str) -> ModelResponse | None:
        return self._thoughts.get(thought, lambda record: load_thought(record, by))


class ConversionCache(Generic[_Value]):
    """What was made of bytes, the least used given up first."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._size = 0
        self._values: OrderedDict[bytes, _Value] = OrderedDict()

    def get(self, wire: bytes, make: Callable[[bytes], _Value]) -> _Value:
        """Return what was made of these bytes, or make it."""
        if wire in self._values:
            self._values.move_to_end(wire)
            return self._values[wire]
        value = make(wire)
        if len(wire) <= self._max_bytes:
            self._values[wire] = value
            self._size += len(wire)
        while self._size > self._max_bytes:
            self._size -= len(self._values.popitem(last=False)[0])
        return value


def dump_thought(response: ModelResponse, by: str) -> bytes:
    """Return a vendor's own record of a reply as JSON, to be given back while the turn goes on."""
    from dataclasses import replace

    from pydantic_ai.messages import ModelMessagesTypeAdapter
    from pydantic_ai.usage import RequestUsage

    plain = replace(response, usage=RequestUsage(), provider_details=None, metadata=None)
    dumped = ModelMessagesTypeAdapter.dump_json([plain])
    return orjson.dumps({"by": by, "said": orjson.Fragment(dumped)})


def load_thought(thought: bytes, by: str) -> ModelResponse | None:
    """Return the reply that a record tells, or None if it is another's or of another form."""
    from pydantic import ValidationError
    from pydantic_ai.messages import ModelMessagesTypeAdapter, ModelResponse

    try:
        record = orjson.loads(thought)
        if record["by"] != by:
            return None
        (response,) = ModelMessagesTypeAdapter.validate_python(record["said"])
    except (ValueError, KeyError, TypeError, ValidationError):
        return None
    return response if isinstance(response, ModelResponse) else None


def _convert(wire: bytes) -> _ConvertedMessage:
    from pydantic_ai.messages import SystemPromptPart, UserPromptPart

    message: dict[str, Any] = orjson.loads(wire)
    role: str = message["role"]
    content = message.get("content")
    match role:
        case "assistant":
            return _convert_reply(message)
        case "tool":
            converted = _ConvertedMessage(role, answers=message.get("tool_call_id") or "")
            converted.content = _content(content, converted)
        case "user":
            converted = _ConvertedMessage(role)
            converted.request = [UserPromptPart(_content(content, converted))]
        case _:
            converted = _ConvertedMessage("system", request=[SystemPromptPart(_text(content))])
    return converted


def _convert_reply(message: dict[str, Any]) -> _ConvertedMessage:
    from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart

    converted = _ConvertedMessage("assistant")
    parts: list[ModelResponsePart] = []
    if text := _text(message.get("content")):
        parts.append(TextPart(text))
    for call in message.get("tool_calls") or ():
        function = call["function"]
        converted.names[call["id"]] = function["name"]
        parts.append(ToolCallPart(function["name"], function["arguments"], call["id"]))
    converted.response = ModelResponse(parts) if parts else None
    return converted


def _result(converted: _ConvertedMessage, name: str) -> ToolReturnPart:
    from pydantic_ai.messages import ToolReturnPart

    result = converted.results.get(name)
    if result is None:
        result = converted.results[name] = ToolReturnPart(
            name, converted.content, converted.answers
        )
    return result


def _content(content: Any, converted: _ConvertedMessage) -> str | list[UserContent]:
    """Return text as it is, and a list with pictures in it part by part."""
    if not isinstance(content, list):
        return _text(content)
    content_parts: list[UserContent] = []
    for table in cast("list[dict[str, Any]]", content):
        match table.get("type"):
            case "text":
                content_parts.append(_text(table.get("text")))
            case "image_url":
                content_parts.append(_image(table["image_url"]["url"], converted))
            case other:
                raise UnsupportedContent(
                    f"a message holds a part of the type {other!r}, and only text and pictures can "
                    "be passed on"
                )
    return content_parts


def _image(address: str, converted: _ConvertedMessage) -> UserContent:
    from pydantic_ai.messages import BinaryContent, ImageUrl

    if not address.startswith("data:"):
        converted.links = True
        return ImageUrl(address)
    try:
        return BinaryContent.from_data_uri(address)
    except ValueError:
        raise UnsupportedContent("a message holds a picture whose data is not in base64") from None


def _text(content: Any) -> str:
    if isinstance(content, list):
        return "".join(map(_text, cast("list[Any]", content)))
    if isinstance(content, dict):
        return _text(cast("dict[str, Any]", content).get("text"))
    return content if isinstance(content, str) else ""


def _convert_tools(wire: bytes) -> list[ToolDefinition]:
    from pydantic_ai.tools import ToolDefinition

    empty = {"type": "object", "properties": dict[str, Any]()}
    return [
        ToolDefinition(
            name=tool["function"]["name"],
            description=tool["function"].get("description"),
            parameters_json_schema=tool["function"].get("parameters") or empty,
        )
        for tool in orjson.loads(wire)
    ]


_FINISHES = {"tool_call": "tool_calls"}


class IncompleteReply(Exception):
    """The answer ended early; the message says how."""


class ReplyFiltered(Exception):
    """The vendor's content filter left nothing of the answer."""


class ReplyCollector:
    """The text of a reply in the making. Pieces of it are emitted as they come."""

    def __init__(self, emit: Emit | None = None) -> None:
        self.text = StreamedText()
        self.reasoning = StreamedText()
        self._emit = emit

    def take(self, event: ModelResponseStreamEvent) -> None:
        """Take an event of a stream; those of calls are left to the whole response."""
        from pydantic_ai.messages import (
            PartDeltaEvent,
            PartStartEvent,
            TextPart,
            TextPartDelta,
            ThinkingPart,
            ThinkingPartDelta,
        )

        match event:
            case PartStartEvent(part=TextPart(content=piece)):
                self._add("text", self.text, piece)
            case PartStartEvent(part=ThinkingPart(content=piece)):
                self._add("reasoning", self.reasoning, piece)
            case PartDeltaEvent(delta=TextPartDelta(content_delta=piece)):
                self._add("text", self.text, piece)
            case PartDeltaEvent(delta=ThinkingPartDelta(content_delta=piece)):
                self._add("reasoning", self.reasoning, piece or "")
            case _:
                pass

    def take_whole(self, response: ModelResponse) -> None:
        """Take the text of an answer that was not streamed."""
        from pydantic_ai.messages import TextPart, ThinkingPart

        for part in response.parts:
            if isinstance(part, TextPart):
                self.text.add(part.content)
            elif isinstance(part, ThinkingPart):
                self.reasoning.add(part.content)

    def _add(self, kind: str, to: StreamedText, piece: str) -> None:
        piece_text = to.add(piece)
        if piece_text and self._emit is not None:
            self._emit(kind, piece_text)

    def reply(self, response: ModelResponse, sent: int, by: str) -> Reply:
        """Return the reply to a request of `sent` bytes.

        Raises `IncompleteReply` or `ReplyFiltered` if there is none.
        """
        text, reasoning = str(self.text), str(self.reasoning)
        calls = _calls(response)
        finish = _finish(response, empty=not (text or calls), streamed=self._emit is not None)
        if calls and finish == "stop":
            finish = "tool_calls"
        usage = _usage(response)
        if not usage.total:
            output = text + reasoning + "".join(call.name + call.arguments for call in calls)
            usage = Usage.estimate(sent, len(output.encode()))
        thought = dump_thought(response, by) if calls and _has_vendor_parts(response) else b""
        return Reply(text, calls, reasoning, usage, finish, thought)


def _calls(response: ModelResponse) -> tuple[Call, ...]:
    calls: dict[str, Call] = {}
    for index, part in enumerate(response.tool_calls):
        if not part.tool_name:
            raise IncompleteReply("with a tool call that names no tool. Ask again.")
        # Changed in place, so that the vendor's record and our reply know a call by the same id.
        part.tool_call_id = fix_surrogates(part.tool_call_id or f"call_{index}")
        while part.tool_call_id in calls:
            part.tool_call_id += "_"
        arguments = part.args if isinstance(part.args, str) else part.args_as_json_str()
        id = part.tool_call_id
        calls[id] = Call(
            id, fix_surrogates(part.tool_name), fix_surrogates(arguments.strip() or "{}")
        )
    return tuple(calls.values())


def _finish(response: ModelResponse, *, empty: bool, streamed: bool) -> str:
    """Return how the answer ended, in the words of chat completions."""
    details: dict[str, Any] = response.provider_details or {}
    own: object = details.get("finish_reason") or details.get("block_reason") or ""
    finish = response.finish_reason
    if finish is None and not own:
        if streamed:
            raise ConnectionAbortedError
        raise IncompleteReply("in another form than this vendor's. Is base_url right?")
    if empty and finish == "content_filter":
        raise ReplyFiltered(str(own))
    if empty and finish == "error":
        raise IncompleteReply(f"it broke off by itself ({own}). Ask again.")
    return _FINISHES.get(finish or "stop", finish or "stop")


def _usage(response: ModelResponse) -> Usage:
    usage = response.usage
    return Usage(
        input=usage.input_tokens,
        output=usage.output_tokens,
        cached=usage.cache_read_tokens,
        written=usage.cache_write_tokens,
    )


def _has_vendor_parts(response: ModelResponse) -> bool:
    """Whether the vendor said more than our wire form can hold."""
    from pydantic_ai.messages import TextPart, ToolCallPart

    return any(
        not isinstance(part, TextPart | ToolCallPart) or bool(part.provider_details)
        for part in response.parts
    )


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
            problem = f"was not asked: {why}. Change that, or give the agent another model."
        case ReplyFiltered() | ContentFilterError():
            return ContentRefused(
                f"{named} did not answer, since its content filter objects ({why}). Say it "
                "otherwise, or give the agent another model."
            )
        case _ if type(error).__module__.startswith("botocore."):
            # What Amazon's library raises before anything is sent.
            if _ABOUT_CREDENTIALS.search(type(error).__name__):
                return KeyRefused(f"{named} was not asked: {why}. {_credentials(peer.key_name)}")
            problem = f"was not asked: {why}. Correct the options under [models.{peer.vendor}]."
        case _ if links and not isinstance(error, UnexpectedModelBehavior):
            problem = (
                "was not asked, since a picture could not be fetched from its address "
                f"({why}). Send the picture itself."
            )
        case _:
            return _unreadable(error, peer, named)
    return ModelRefused(f"{named} {problem}")


def missing_credentials(why: str, vendor: str, model: str, variable: str) -> KeyRefused:
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
    quoted = f"HTTP {rejected.status}, {shorten(_redact(rejected.words, peer))!r}"
    named = peer.describe_model(model)
    # Asked of the class: the categories share no ancestor with the statuses but the root.
    category = type(error)
    if issubclass(category, theirs.ModelAuthenticationError):
        if peer.key:
            problem = f"refused the key ({quoted}). Put a valid one into {peer.key_name}."
        else:
            problem = (
                f"refused the credentials ({quoted}). Renew them, or use a key ({peer.key_name})."
            )
        return KeyRefused(f"{named} {problem}")
    if issubclass(category, theirs.ModelNotFoundError):
        nearest = error.suggested_model_id
        nearest = f" Did you mean {nearest!r}?" if nearest else ""
        return ModelRefused(f"{named} is not there ({quoted}). Check its name.{nearest}")
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
            details = cast("dict[str, Any]", theirs)
            table = {"message": details.get("Message") or details.get("Code") or "", "code": ""}
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
        problem = f"did not take the connection within {CONNECT_SECONDS:g} seconds."
        remedy = f"Check that the server is up, and {base_url}."
        if sent:
            problem = f"sent nothing for {peer.timeout:g} seconds."
            remedy = f"Ask again, or raise models.{peer.vendor}.timeout if it needs longer."
        return ModelUnavailable(f"{named} {problem} {remedy}", slow=True, begun=sent)
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
    problem = f"{type(error).__name__}: {words}" if words else type(error).__name__
    return ModelGarbled(
        f"{named} answered, but not in its wire format ({problem}). Ask again; if it stays so, its "
        "server is at fault."
    )


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """Give an error and all that led to it."""
    seen: set[int] = set()
    left = [error]
    while left:
        cause = left.pop()
        if cause is None or id(cause) in seen:
            continue
        seen.add(id(cause))
        yield cause
        left += [cause.__cause__, cause.__context__]
        if isinstance(cause, BaseExceptionGroup):
            left += cast("BaseExceptionGroup[BaseException]", cause).exceptions


def _redact(words: str, peer: Peer) -> str:
    # A server may quote the key it was given; one as short as "none" is no secret.
    return words.replace(peer.key, "…") if len(peer.key) > 7 else words
