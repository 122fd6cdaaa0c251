"""The Anthropic Messages wire format.

Written from the API reference, https://platform.claude.com/docs/en/api/messages. Messages are
converted once each, and a request joins what is known, so that a call costs what is new in it.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, cast

import orjson

from asterism.errors import ConfigError, ContentRefused, ContextTooLong
from asterism.models.anthropic_messages import (
    ConversationCache,
    convert_choice,
    convert_schema,
    convert_tools,
    placeholder_tools,
)
from asterism.models.endpoint import (
    Endpoint,
    EventLines,
    MalformedAnswer,
    RequestRejected,
    StreamedText,
    extra_fields,
    fix_surrogates,
    fix_surrogates_in,
    parse_json,
    shorten,
)
from asterism.ports import Profile
from asterism.types.turns import Call, Reply, Usage

if TYPE_CHECKING:
    from asterism.ports import Emit, ModelRequest

ANTHROPIC_URL = "https://api.anthropic.com"
# The one that other servers of this format know as well. The next, 2026-10-21, has no temperature,
# top_p and top_k any more: https://platform.claude.com/docs/en/api/versioning, 2026-11.
VERSION = "2023-06-01"
_RESERVED_FIELDS = frozenset({"model", "messages", "system", "tools", "tool_choice", "stream"})
DEFAULT_OUTPUT_TOKENS = 8192
"""Tokens that an answer may have where nobody says: the API wants a bound, and every model that is
offered can write that much. Thinking comes on top."""
_MIN_BUDGET = 1024
"""Tokens of thinking below which the API takes no budget."""


class Anthropic:
    """The models of one vendor that speaks this wire format, asked over HTTP.

    Options: those of `Endpoint`, and `options`, a table of further fields for every request such
    as `max_tokens`, `temperature` or `thinking`.
    """

    def __init__(self, vendor: str, options: dict[str, Any]) -> None:
        self._vendor = vendor
        home = None
        if vendor == "anthropic":
            home = os.environ.get("ANTHROPIC_BASE_URL") or ANTHROPIC_URL
        address = str(options.get("base_url") or home or "").rstrip("/").removesuffix("/v1")
        self._endpoint = Endpoint(
            vendor,
            {**options, "base_url": address},
            path="/v1/messages",
            home=home,
            headers=_auth_headers,
        )
        fields = dict(options.get("options") or {})
        self._max_tokens = _max_tokens(vendor, fields.pop("max_tokens", None))
        self._thinking = _table_option(vendor, "thinking", fields.pop("thinking", None))
        self._output = _table_option(vendor, "output_config", fields.pop("output_config", None))
        self._budget = _budget(vendor, self._thinking, self._max_tokens)
        extra_fields(
            vendor, {"thinking": self._thinking, "output_config": self._output}, _RESERVED_FIELDS
        )
        self._extra = extra_fields(vendor, fields, _RESERVED_FIELDS)
        self._conversations = ConversationCache()

    async def complete(self, request: ModelRequest, emit: Emit | None = None) -> Reply:
        """Ask the model once."""
        body = self.body(request, streamed=emit is not None)
        answer = await self._endpoint.ask(request, body, lambda: MessagesReplyParser(emit))
        reply = answer.reply(len(body))
        if not (reply.text or reply.calls):
            self._raise_refusal(request.model, answer)
        return reply

    def profile(self, model: str) -> Profile:  # noqa: ARG002
        """Return what all of Anthropic's models can take in; some can take more."""
        return Profile(window=200_000, images=True)

    async def close(self) -> None:
        """Let go of connections."""
        await self._endpoint.close()

    def body(self, request: ModelRequest, *, streamed: bool) -> bytes:
        """Return what is sent for a request."""
        conversation = self._conversations.find(request)
        messages = conversation.end()
        tools = request.tools if request.tools != b"[]" else None
        choice = request.tool_choice if tools else "auto"
        if tools:
            tools = convert_tools(tools)
        elif conversation.tool_names:
            tools, choice = placeholder_tools(conversation.tool_names), "none"
        forced = choice not in {"auto", "none"}
        bound = self._max_output(request)
        body = [
            b'{"model":',
            orjson.dumps(request.model),
            b',"max_tokens":%d' % bound,
            self._extra,
            self._thinking_field(bound, apart=forced or conversation.lacks_thinking),
            self._output_field(request.schema),
        ]
        if request.extra:
            body += (b",", request.extra)
        if tools:
            body += (b',"tools":', tools)
        if choice != "auto":
            body += (b',"tool_choice":', convert_choice(choice))
        if conversation.system:
            body += (b',"system":[', b",".join(conversation.system), b"]")
        body += (b',"messages":[', messages, b'],"stream":true}' if streamed else b"]}")
        return b"".join(body)

    def _raise_refusal(self, model: str, answer: MessagesReplyParser) -> None:
        """Raise if an answer without a word says why."""
        named = f"The model '{self._vendor}:{model}'"
        if answer.finish == REFUSED:
            about = f" ({shorten(answer.objection)!r})" if answer.objection else ""
            raise ContentRefused(
                f"{named} did not answer, since its content filter objects{about}. Say it "
                "otherwise, or give the agent another model."
            )
        if answer.finish == WINDOW_FULL:
            raise ContextTooLong(
                f"{named} has too small a window for this conversation: there was no room left for "
                "an answer. Shorten it, or give the agent another model."
            )

    def _max_output(self, request: ModelRequest) -> int:
        bounds = [bound for bound in (request.max_output, self._max_tokens) if bound]
        if bounds:
            return min(bounds)
        # How much an adaptive model thinks is up to it; it gets as much room again.
        return DEFAULT_OUTPUT_TOKENS + (
            self._budget or (DEFAULT_OUTPUT_TOKENS if self._thinking else 0)
        )

    def _thinking_field(self, bound: int, *, apart: bool) -> bytes:
        """Return the field `thinking`, unless it does not go with the rest of the request.

        With a budget, no tool can be forced, a turn must have begun with thinking, and the budget
        is part of the bound. https://platform.claude.com/docs/en/build-with-claude/extended-thinking
        """
        if not self._thinking:
            return b""
        thinking = self._thinking
        if self._budget:
            budget = self._budget if bound > self._budget else bound // 2
            if apart or budget < _MIN_BUDGET:
                return b""
            thinking = {**thinking, "budget_tokens": budget}
        return b',"thinking":' + orjson.dumps(thinking)

    def _output_field(self, schema: bytes | None) -> bytes:
        if schema is None:
            return b',"output_config":' + orjson.dumps(self._output) if self._output else b""
        shape = {"type": "json_schema", "schema": orjson.Fragment(convert_schema(schema))}
        return b',"output_config":' + orjson.dumps({**(self._output or {}), "format": shape})


def _auth_headers(key: str) -> dict[str, str]:
    headers = {"anthropic-version": VERSION}
    return {"x-api-key": key, **headers} if key else headers


def _max_tokens(vendor: str, value: Any) -> int | None:
    if value is None or (isinstance(value, int) and value > 0):
        return value
    raise ConfigError(
        f"models.{vendor}.options.max_tokens is {value!r}; a whole number from 1 up is needed, "
        f"such as {DEFAULT_OUTPUT_TOKENS}."
    )


def _table_option(vendor: str, name: str, value: Any) -> dict[str, Any] | None:
    if value is None or isinstance(value, dict):
        return cast("dict[str, Any] | None", value)
    raise ConfigError(
        f"models.{vendor}.options.{name} is {value!r}; a table is needed, such as "
        '{type = "adaptive"} for thinking.'
    )


def _budget(vendor: str, thinking: dict[str, Any] | None, bound: int | None) -> int:
    """Return the tokens that thinking has of its own; 0 if the model decides."""
    budget = (thinking or {}).get("budget_tokens", 0)
    if not isinstance(budget, int) or (budget and budget < _MIN_BUDGET):
        raise ConfigError(
            f"models.{vendor}.options.thinking.budget_tokens is {budget!r}; a whole number from "
            f"{_MIN_BUDGET} up is needed."
        )
    if bound is not None and bound <= budget:
        raise ConfigError(
            f"models.{vendor}.options.max_tokens is {bound}, which must be more than "
            f"thinking.budget_tokens ({budget}): thinking is part of what the model writes."
        )
    return budget


_ADDRESS_HINT = "It is the address before /v1/messages."
REFUSED, WINDOW_FULL = "content_filter", "window_full"
# https://platform.claude.com/docs/en/build-with-claude/handling-stop-reasons, 2026-11
_FINISHES = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "pause_turn": "length",
    "refusal": REFUSED,
    "model_context_window_exceeded": WINDOW_FULL,
}
_THINKING = frozenset({"thinking", "redacted_thinking"})


class MessagesReplyParser:
    """A reply in the making. Pieces of it are emitted as they come."""

    def __init__(self, emit: Emit | None = None) -> None:
        self.done = False
        self.finish = ""
        self.objection = ""
        """What a refusal is about, if the server says so."""
        self._emit = emit
        self._lines = EventLines()
        self._blocks: dict[int, _ReplyBlock] = {}
        self._counts: dict[str, int] = {}

    def take(self, body: bytes) -> None:
        """Take a whole body."""
        # Some proxies stream whether asked to or not.
        if body.lstrip()[:5] in {b"data:", b"event"}:
            self.feed(body)
            self.end()
            return
        message = _table(parse_json(body, _ADDRESS_HINT))
        if message.get("type") == "error" or message.get("error"):
            raise RequestRejected.from_table(message)
        for index, block in enumerate(_list(message.get("content"))):
            self._begin(index, _table(block))
        self._take_end(message)
        self._take_usage(message.get("usage"))
        self.done = True

    def feed(self, chunk: bytes) -> None:
        """Take the next bytes of an event stream, wherever they were cut."""
        for data in self._lines.feed(chunk):
            if data and not self.done:
                self._take_event(_table(parse_json(data, _ADDRESS_HINT)))

    def end(self) -> None:
        """Take the last line, which may lack its break, and check that the reply is whole."""
        self.feed(b"\n")
        if not (self.done or self.finish):
            raise ConnectionAbortedError

    def reply(self, sent: int) -> Reply:
        """Return the reply to a request of `sent` bytes."""
        blocks = [self._blocks[index] for index in sorted(self._blocks)]
        text = "".join(str(block.text) for block in blocks if block.kind == "text")
        reasoning = "".join(str(block.text) for block in blocks if block.kind == "thinking")
        calls: dict[str, Call] = {}
        # What a refused reply wanted to do is not done.
        for block in blocks if self.finish != REFUSED else ():
            if block.kind == "tool_use":
                id = block.field("id") or f"call_{len(calls)}"
                while id in calls:
                    id += "_"
                calls[id] = Call(id, block.field("name"), block.arguments())
        finish = self.finish or ("tool_calls" if calls else "stop")
        output = text + reasoning + "".join(call.name + call.arguments for call in calls.values())
        return Reply(
            text,
            tuple(calls.values()),
            reasoning,
            self._usage() or Usage.estimate(sent, len(output.encode())),
            "length" if finish == WINDOW_FULL else finish,
            _thinking_record(blocks) if calls else b"",
        )

    def _usage(self) -> Usage | None:
        counts = self._counts
        read = counts.get("cache_read_input_tokens", 0)
        written = counts.get("cache_creation_input_tokens", 0)
        # The API's own count of input leaves out what went through its cache.
        usage = Usage(
            input=counts.get("input_tokens", 0) + read + written,
            output=counts.get("output_tokens", 0),
            cached=read,
            written=written,
        )
        return usage if usage.total else None

    def _take_event(self, event: dict[str, Any]) -> None:
        match event.get("type"):
            case "message_start":
                message = _table(event.get("message"))
                self._take_usage(message.get("usage"))
            case "content_block_start":
                self._begin(_index(event), _table(event.get("content_block")))
            case "content_block_delta":
                self._extend(_index(event), _table(event.get("delta")))
            case "message_delta":
                self._take_end(_table(event.get("delta")))
                self._take_usage(event.get("usage"))
            case "message_stop":
                self.done = True
            case "error":
                raise RequestRejected.from_table(event)
            case _:
                if event.get("error"):
                    raise RequestRejected.from_table(event)
                # Others are pings, ends of blocks, and what is still to be invented.

    def _take_end(self, message: dict[str, Any]) -> None:
        reason = _string(message.get("stop_reason"))
        if reason:
            self.finish = _FINISHES.get(reason, "stop")
        details = message.get("stop_details")
        if isinstance(details, dict):
            table = cast("dict[str, Any]", details)
            self.objection = _string(table.get("explanation")) or _string(table.get("category"))

    def _take_usage(self, usage: Any) -> None:
        # The counts of a later event are totals, and stand for those of an earlier one.
        if isinstance(usage, dict):
            for name, count in cast("dict[str, Any]", usage).items():
                if isinstance(count, int) and count >= 0:
                    self._counts[name] = count

    def _begin(self, index: int, start: dict[str, Any]) -> None:
        block = self._blocks[index] = _ReplyBlock(start)
        if block.kind in {"text", "thinking"}:
            self._add_text(block, _string(start.get(block.kind)))
            block.signature.add(_string(start.get("signature")))
        elif block.kind == "tool_use" and not block.field("name"):
            raise MalformedAnswer("with a tool call that names no tool. Ask again.")

    def _extend(self, index: int, delta: dict[str, Any]) -> None:
        block = self._blocks.get(index)
        if block is None:
            raise MalformedAnswer("with a piece of a block that was never begun. Ask again.")
        match delta.get("type"):
            case "text_delta" if block.kind == "text":
                self._add_text(block, _string(delta.get("text")))
            case "thinking_delta" if block.kind == "thinking":
                self._add_text(block, _string(delta.get("thinking")))
            case "signature_delta":
                block.signature.add(_string(delta.get("signature")))
            case "input_json_delta":
                block.json.add(_string(delta.get("partial_json")))
            case _:
                pass

    def _add_text(self, block: _ReplyBlock, piece: str) -> None:
        piece = block.text.add(piece)
        if piece and self._emit is not None:
            self._emit("text" if block.kind == "text" else "reasoning", piece)


class _ReplyBlock:
    """One block of a reply, whose content comes in pieces."""

    __slots__ = ("json", "kind", "signature", "start", "text")

    def __init__(self, start: dict[str, Any]) -> None:
        self.start = start
        self.kind = _string(start.get("type"))
        self.text = StreamedText()
        self.signature = StreamedText()
        self.json = StreamedText()

    def field(self, name: str) -> str:
        """Return a text that the block began with."""
        return fix_surrogates(_string(self.start.get(name)))

    def arguments(self) -> str:
        """Return the input of a call as JSON text."""
        pieces = str(self.json).strip()
        if pieces:
            return pieces
        value = self.start.get("input")
        return fix_surrogates(json.dumps(value, ensure_ascii=False)) if value else "{}"

    def whole(self) -> dict[str, Any]:
        """Return the block as the API would have sent it in one."""
        match self.kind:
            case "thinking":
                content = {"thinking": str(self.text), "signature": str(self.signature)}
            case "text":
                content = {"text": str(self.text)}
            case "tool_use":
                content = {"input": _arguments_object(self.arguments())}
            case _:
                content = {}
        return {**fix_surrogates_in(self.start), **content}


def _thinking_record(blocks: list[_ReplyBlock]) -> bytes:
    """Return what the API wants back with this reply, as it sent it.

    The thinking that the reply began with, or all blocks if there was thinking later on.
    """
    kinds = [block.kind for block in blocks]
    count = next((n for n, kind in enumerate(kinds) if kind not in _THINKING), len(kinds))
    if _THINKING.intersection(kinds[count:]):
        recorded = [block for block in blocks if block.kind != "text" or str(block.text).strip()]
    else:
        recorded = blocks[:count]
    return orjson.dumps([block.whole() for block in recorded]) if recorded else b""


def _arguments_object(arguments: str) -> Any:
    try:
        value = json.loads(arguments)
    except (ValueError, RecursionError):
        value = None
    return (
        fix_surrogates_in(value) if isinstance(value, dict) else {"malformed_arguments": arguments}
    )


def _index(event: dict[str, Any]) -> int:
    index = event.get("index")
    return index if isinstance(index, int) else 0


def _table(value: Any) -> dict[str, Any]:
    if isinstance(value, dict):
        return cast("dict[str, Any]", value)
    raise _other_shape()


def _list(value: Any) -> list[Any]:
    if isinstance(value, list):
        return cast("list[Any]", value)
    raise _other_shape()


def _other_shape() -> MalformedAnswer:
    return MalformedAnswer(f"with JSON that is not a message. Is base_url right? {_ADDRESS_HINT}")


def _string(value: Any) -> str:
    return value if isinstance(value, str) else ""
