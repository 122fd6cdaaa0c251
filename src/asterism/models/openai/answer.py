"""A reply put together from what a server sends: a whole body, or the events of a stream."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, cast

import orjson

from asterism.models import estimate_usage
from asterism.models.http.text import EventLines, StreamedText, fix_surrogates, parse_json
from asterism.models.http.trouble import MalformedAnswer, RequestRejected
from asterism.types.turns import Call, Reply, Usage

if TYPE_CHECKING:
    from asterism.ports import Emit


_ADDRESS_HINT = "It usually ends in /v1."


class ChatReplyParser:
    """A reply in the making. Pieces of it are emitted as they come."""

    def __init__(self, emit: Emit | None = None) -> None:
        self.done = False
        self.finish = ""
        self._emit = emit
        self._lines = EventLines()
        self._text = StreamedText()
        self._reasoning = StreamedText()
        self._details: list[Any] = []
        self._think = _ThinkTags()
        self._calls: list[_CallDraft] = []
        self._open: dict[int, _CallDraft] = {}
        self._usage = Usage()
        self._reasoning_field = ""

    def take(self, body: bytes) -> None:
        """Take a whole body."""
        # Some proxies stream whether asked to or not.
        if body.lstrip()[:5] in {b"data:", b"event"}:
            self.feed(body)
            self.end()
            return
        whole = _table(parse_json(body, _ADDRESS_HINT))
        if whole.get("error"):
            raise RequestRejected.from_table(whole)
        choices = _list(whole.get("choices"))
        if not choices:
            raise MalformedAnswer(
                "with an empty list of choices. Ask again, or give the agent another model."
            )
        choice = _table(choices[0])
        self._take_message(_table(choice.get("message")))
        self._take_usage(whole.get("usage"))
        self.finish = _string(choice.get("finish_reason"))
        self.done = True
        self._check()

    def feed(self, chunk: bytes) -> None:
        """Take the next bytes of an event stream, wherever they were cut."""
        for event in self._lines.feed(chunk):
            self._take_event(event)

    def end(self) -> None:
        """Take the last line, which may lack its break, and check that the reply is whole."""
        self.feed(b"\n")
        if not (self.done or self.finish):
            raise ConnectionAbortedError
        self._check()

    def reply(self, sent: int) -> Reply:
        """Return the reply to a request of `sent` bytes."""
        for is_thought, piece in self._think.rest():
            (self._reasoning if is_thought else self._text).add(piece)
        text, reasoning = str(self._text), str(self._reasoning)
        calls: dict[str, Call] = {}
        for index, draft in enumerate(self._calls):
            id = draft.id or f"call_{index}"
            while id in calls:
                id += "_"
            calls[id] = Call(id, draft.name, _arguments(str(draft.arguments)))
        usage = self._usage
        if not usage.total:
            said = text + reasoning + "".join(c.name + c.arguments for c in calls.values())
            usage = estimate_usage(sent, len(said.encode()))
        finish = self.finish or ("tool_calls" if calls else "stop")
        return Reply(
            text, tuple(calls.values()), reasoning, usage, finish, self._thought() if calls else b""
        )

    def _check(self) -> None:
        if not all(draft.name for draft in self._calls):
            raise MalformedAnswer("with a tool call that names no tool. Ask again.")

    def _thought(self) -> bytes:
        """Return what the server may want back with this reply, in the names it used itself."""
        if self._details:
            return orjson.dumps({"reasoning_details": self._details})
        if self._reasoning_field:
            return orjson.dumps({self._reasoning_field: str(self._reasoning)})
        return b""

    def _take_event(self, data: bytes) -> None:
        if data == b"[DONE]":
            self.done = True
        if self.done or not data:
            return
        event = _table(parse_json(data, _ADDRESS_HINT))
        if event.get("error"):
            raise RequestRejected.from_table(event)
        self._take_usage(event.get("usage"))
        for each in _list(event.get("choices") or []):
            choice = _table(each)
            if not choice.get("index"):
                self._take_message(_table(choice.get("delta") or {}))
                self.finish = _string(choice.get("finish_reason")) or self.finish

    def _take_usage(self, usage: Any) -> None:
        if usage:
            counts = _table(usage)
            details = _table(counts.get("prompt_tokens_details") or {})
            self._usage = Usage(
                input=_count(counts.get("prompt_tokens")),
                output=_count(counts.get("completion_tokens")),
                cached=_count(details.get("cached_tokens")),
            )

    def _take_message(self, part: dict[str, Any]) -> None:
        for name in ("reasoning_content", "reasoning"):
            if reasoning := _string(part.get(name)):
                self._reasoning_field = name
                self._emit_piece("reasoning", self._reasoning.add(reasoning))
                break
        self._details += _list(part.get("reasoning_details") or [])
        if text := _string(part.get("content") or part.get("refusal")):
            self._take_text(text)
        for position, call in enumerate(_list(part.get("tool_calls") or [])):
            self._take_call(_table(call), position)

    def _take_text(self, text: str) -> None:
        for is_thought, piece in self._think.split(text):
            if is_thought:
                self._emit_piece("reasoning", self._reasoning.add(piece))
            else:
                self._emit_piece("text", self._text.add(piece))

    def _emit_piece(self, kind: str, piece: str) -> None:
        if piece and self._emit is not None:
            self._emit(kind, piece)

    def _take_call(self, part: dict[str, Any], position: int) -> None:
        function = _table(part.get("function") or {})
        id, name = (
            fix_surrogates(_string(part.get("id"))),
            fix_surrogates(_string(function.get("name"))),
        )
        index = part.get("index")
        index = index if isinstance(index, int) else position
        draft = self._open.get(index)
        # Some servers number every call 0, others send a new id with each fragment: only a
        # fragment with a name and an id of its own begins another call.
        if draft is None or (name and id and draft.id and id != draft.id):
            draft = self._open[index] = _CallDraft()
            self._calls.append(draft)
        draft.id = draft.id or id
        draft.name = draft.name or name
        arguments = function.get("arguments")
        if isinstance(arguments, str):
            draft.arguments.add(arguments)
        elif arguments is not None:
            draft.arguments.add(json.dumps(arguments, ensure_ascii=False))


_OPEN, _CLOSE = "<think>", "</think>"


class _ThinkTags:
    """Tells reasoning from text where a server sends both as text, the former in <think> tags.

    Only at the beginning of a reply: later on the tags may be what the text is about.
    """

    __slots__ = ("_held", "_state")

    def __init__(self) -> None:
        self._state: str = "before"
        self._held: str = ""

    def split(self, piece: str) -> list[tuple[bool, str]]:
        """Return pieces and whether they are reasoning; the end of one may wait for the next."""
        if self._state == "after":
            return [(False, piece)]
        if self._state == "closed":
            return self._finish(piece.lstrip())
        held = self._held + piece
        if self._state == "before":
            start = held.lstrip()
            if _OPEN.startswith(start[: len(_OPEN)]) and len(start) < len(_OPEN):
                self._held = held
                return []
            if not start.startswith(_OPEN):
                return self._finish(held)
            self._state, held = "inside", start[len(_OPEN) :]
        thought, closed, text = held.partition(_CLOSE)
        if closed:
            self._state, self._held = "closed", ""
            return [(True, thought), *self._finish(text.lstrip())]
        kept = next((n for n in range(len(_CLOSE) - 1, 0, -1) if held.endswith(_CLOSE[:n])), 0)
        self._held = held[len(held) - kept :] if kept else ""
        return [(True, held[: len(held) - kept])]

    def rest(self) -> list[tuple[bool, str]]:
        """Return what was held back, at the end of a reply."""
        held, self._held = self._held, ""
        return [(self._state == "inside", held)] if held else []

    def _finish(self, text: str) -> list[tuple[bool, str]]:
        if not text:
            return []
        self._state, self._held = "after", ""
        return [(False, text)]


class _CallDraft:
    """A tool call whose arguments come in fragments."""

    __slots__ = ("arguments", "id", "name")

    def __init__(self) -> None:
        self.id = ""
        self.name = ""
        self.arguments = StreamedText()


def _arguments(text: str) -> str:
    """Return the arguments of a call as JSON text, without what some models add to it."""
    if not text.strip():
        return "{}"
    try:
        value: Any = json.loads(text)
    except ValueError:
        try:
            value, end = json.JSONDecoder().raw_decode(text.lstrip())
        except (ValueError, RecursionError):
            return text
        return text.lstrip()[:end] if isinstance(value, dict) else text
    except RecursionError:
        return text
    # JSON inside of a JSON string.
    if isinstance(value, str) and value.lstrip().startswith("{"):
        return _arguments(value)
    return "{}" if value is None else text


def _table(value: Any) -> dict[str, Any]:
    if isinstance(value, dict):
        return cast("dict[str, Any]", value)
    raise _other_shape()


def _list(value: Any) -> list[Any]:
    if isinstance(value, list):
        return cast("list[Any]", value)
    raise _other_shape()


def _other_shape() -> MalformedAnswer:
    return MalformedAnswer(
        f"with JSON that is not a chat completion. Is base_url right? {_ADDRESS_HINT}"
    )


def _string(value: Any) -> str:
    """Return text that is given as such, as a list of parts, or not at all."""
    if isinstance(value, list):
        return "".join(_string(part) for part in cast("list[Any]", value))
    if isinstance(value, dict):
        return _string(cast("dict[str, Any]", value).get("text"))
    return value if isinstance(value, str) else ""


def _count(value: Any) -> int:
    return value if isinstance(value, int) and value > 0 else 0
