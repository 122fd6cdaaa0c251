"""A reply put together from what a server sends: a whole body, or the events of a stream."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, cast

import orjson

from asterism.models import estimate_usage
from asterism.models.openai.trouble import Odd, Rejected, is_html, shorten
from asterism.types.turns import Call, Reply, Usage

if TYPE_CHECKING:
    from asterism.ports import Emit


class Answer:
    """A reply in the making. Pieces of it are emitted as they come."""

    def __init__(self, emit: Emit | None = None) -> None:
        self.emitted = False
        self.done = False
        self.finish = ""
        self._emit = emit
        self._rest: list[bytes] = []
        self._text = _Text()
        self._reasoning = _Text()
        self._calls: list[_CallDraft] = []
        self._open: dict[int, _CallDraft] = {}
        self._usage = Usage()

    def take(self, body: bytes) -> None:
        """Take a whole body."""
        # Some proxies stream whether asked to or not.
        if body.lstrip()[:5] in {b"data:", b"event"}:
            self.feed(body)
            self.end()
            return
        whole = _table(_parse(body))
        if whole.get("error"):
            raise Rejected.from_table(whole)
        choices = _list(whole.get("choices"))
        if not choices:
            raise Odd("with an empty list of choices. Ask again, or give the agent another model.")
        choice = _table(choices[0])
        self._take_part(_table(choice.get("message")))
        self._take_usage(whole.get("usage"))
        self.finish = _string(choice.get("finish_reason"))
        self.done = True

    def feed(self, chunk: bytes) -> None:
        """Take the next bytes of an event stream, wherever they were cut."""
        self._rest.append(chunk)
        if b"\n" not in chunk:
            return
        *lines, rest = b"".join(self._rest).split(b"\n")
        self._rest = [rest]
        for line in lines:
            # An event is one line here; others are comments, event names and keep-alives.
            if line.startswith(b"data:"):
                self._take_event(line[5:].strip())

    def end(self) -> None:
        """Take the last line, which may lack its break, and check that the reply is whole."""
        self.feed(b"\n")
        if not (self.done or self.finish):
            raise ConnectionAbortedError

    def reply(self, sent: int) -> Reply:
        """Return the reply to a request of `sent` bytes."""
        text, reasoning = str(self._text), str(self._reasoning)
        calls: dict[str, Call] = {}
        for index, draft in enumerate(self._calls):
            if not draft.name:
                raise Odd("with a tool call that names no tool. Ask again.")
            id = draft.id or f"call_{index}"
            while id in calls:
                id += "_"
            calls[id] = Call(id, draft.name, str(draft.arguments) or "{}")
        usage = self._usage
        if not usage.total:
            said = text + reasoning + "".join(c.name + c.arguments for c in calls.values())
            usage = estimate_usage(sent, len(said.encode()))
        finish = self.finish or ("tool_calls" if calls else "stop")
        return Reply(text, tuple(calls.values()), reasoning, usage, finish)

    def _take_event(self, data: bytes) -> None:
        if data == b"[DONE]":
            self.done = True
        if self.done or not data:
            return
        event = _table(_parse(data))
        if event.get("error"):
            raise Rejected.from_table(event)
        self._take_usage(event.get("usage"))
        for each in _list(event.get("choices") or []):
            choice = _table(each)
            if not choice.get("index"):
                self._take_part(_table(choice.get("delta") or {}))
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

    def _take_part(self, part: dict[str, Any]) -> None:
        if reasoning := _string(part.get("reasoning_content") or part.get("reasoning")):
            self._show("reasoning", self._reasoning.add(reasoning))
        if text := _string(part.get("content") or part.get("refusal")):
            self._show("text", self._text.add(text))
        for position, call in enumerate(_list(part.get("tool_calls") or [])):
            self._take_call(_table(call), position)

    def _show(self, kind: str, piece: str) -> None:
        if piece and self._emit is not None:
            self.emitted = True
            self._emit(kind, piece)

    def _take_call(self, part: dict[str, Any], position: int) -> None:
        function = _table(part.get("function") or {})
        id, name = _mend(_string(part.get("id"))), _mend(_string(function.get("name")))
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


class _Text:
    """Text that comes in pieces; half a surrogate pair waits for the other half."""

    __slots__ = ("_half", "_pieces")

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._half = ""

    def add(self, piece: str) -> str:
        """Take a piece; return what can be shown by now."""
        piece = self._half + piece
        self._half = piece[-1:] if "\ud800" <= piece[-1:] <= "\udbff" else ""
        piece = _mend(piece[:-1] if self._half else piece)
        self._pieces.append(piece)
        return piece

    def __str__(self) -> str:
        return "".join(self._pieces) + _mend(self._half)


class _CallDraft:
    """A tool call whose arguments come in fragments."""

    __slots__ = ("arguments", "id", "name")

    def __init__(self) -> None:
        self.id = ""
        self.name = ""
        self.arguments = _Text()


def _parse(data: bytes) -> Any:
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError as error:
        if is_html(data):
            raise Odd(
                "with an HTML page (HTTP 200) instead of JSON. Is base_url right? It usually ends "
                "in /v1."
            ) from None
        # The standard library also takes halves of surrogate pairs, which are mended later.
        try:
            return json.loads(data.decode(errors="replace"))
        except (ValueError, RecursionError):
            raise Odd(
                f"with malformed JSON ({error}): {shorten(data[:2000].decode(errors='replace'))!r}."
                " Ask again; if it stays so, its server is at fault."
            ) from None


def _table(value: Any) -> dict[str, Any]:
    if isinstance(value, dict):
        return cast("dict[str, Any]", value)
    raise _other_shape()


def _list(value: Any) -> list[Any]:
    if isinstance(value, list):
        return cast("list[Any]", value)
    raise _other_shape()


def _other_shape() -> Odd:
    return Odd(
        "with JSON that is not a chat completion. Is base_url right? It usually ends in /v1."
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


def _mend(text: str) -> str:
    """Replace halves of surrogate pairs, which no encoding can hold; join whole pairs."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text
