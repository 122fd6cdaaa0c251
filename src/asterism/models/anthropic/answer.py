"""A reply put together from what the API sends: a whole body, or the events of a stream."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, cast

import orjson

from asterism.models import estimate_usage
from asterism.models.http.text import (
    EventLines,
    StreamedText,
    fix_surrogates,
    fix_surrogates_in,
    parse_json,
)
from asterism.models.http.trouble import MalformedAnswer, RequestRejected
from asterism.types.turns import Call, Reply, Usage

if TYPE_CHECKING:
    from asterism.ports import Emit

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
        said = text + reasoning + "".join(call.name + call.arguments for call in calls.values())
        return Reply(
            text,
            tuple(calls.values()),
            reasoning,
            self._usage() or estimate_usage(sent, len(said.encode())),
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
            told = cast("dict[str, Any]", details)
            self.objection = _string(told.get("explanation")) or _string(told.get("category"))

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
        given = self.start.get("input")
        return fix_surrogates(json.dumps(given, ensure_ascii=False)) if given else "{}"

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
        kept = [block for block in blocks if block.kind != "text" or str(block.text).strip()]
    else:
        kept = blocks[:count]
    return orjson.dumps([block.whole() for block in kept]) if kept else b""


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
