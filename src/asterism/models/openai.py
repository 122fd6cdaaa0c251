"""The OpenAI chat-completions wire format, which most vendors and local servers speak.

Written from the API reference, https://platform.openai.com/docs/api-reference/chat, and lenient
where servers are known to differ from it. A request joins the stored bytes of its messages; they
are never parsed or serialised again, so that a call costs what is new in it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

import orjson

from asterism.errors import ContentRefused
from asterism.models.endpoint import (
    Endpoint,
    EventLines,
    MalformedAnswer,
    RequestRejected,
    StreamedText,
    extra_fields,
    fix_surrogates,
    number_option,
    parse_json,
)
from asterism.ports import ModelRequest
from asterism.types.turns import Call, Reply, Usage

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from asterism.ports import Emit

OPENAI_URL = "https://api.openai.com/v1"
_RESERVED_FIELDS = frozenset({"model", "messages", "tools", "stream", "stream_options"})
_STREAMING_FIELDS = b',"stream":true,"stream_options":{"include_usage":true}}'


class OpenAI:
    """The models of one vendor that speaks this wire format, asked over HTTP.

    Options: those of `Endpoint`; `options`, a table of further fields for every request such as
    `temperature`; and `on_prompt`, called with the tokens of the prompt and how many of them were
    cached, which llama.cpp tells before it answers.
    """

    def __init__(self, vendor: str, options: dict[str, Any]) -> None:
        self._vendor = vendor
        self._options = options
        home = None
        if vendor == "openai":
            home = os.environ.get("OPENAI_BASE_URL") or OPENAI_URL
        self._default_url = home
        self._endpoint = Endpoint(
            vendor, options, path="/chat/completions", home=home, headers=_auth_headers
        )
        self._extra = extra_fields(vendor, options.get("options") or {}, _RESERVED_FIELDS)
        # OpenAI's reasoning models take this name only, and other servers mostly the older one.
        official = self._endpoint.address == OPENAI_URL
        self._max_tokens_field = b"max_completion_tokens" if official else b"max_tokens"

    async def complete(self, request: ModelRequest, emit: Emit | None = None) -> Reply:
        """Ask the model once."""
        body = self._body(request, streamed=emit is not None)
        on_prompt = self._options.get("on_prompt")
        answer = await self._endpoint.ask(request, body, lambda: ChatReplyParser(emit, on_prompt))
        reply = answer.reply(len(body))
        if reply.finish == "content_filter" and not (reply.text or reply.calls):
            raise ContentRefused(
                f"The model '{self._vendor}:{request.model}' did not answer, since its content "
                "filter objects. Say it otherwise, or give the agent another model."
            )
        return reply

    def encoder(self, model: str) -> OpenAIEncoder:
        """Return an encoder by its name at the vendor."""
        endpoint = Endpoint(
            self._vendor,
            self._options,
            path=EMBEDDINGS_PATH,
            home=self._default_url,
            headers=_auth_headers,
        )
        timeout = number_option(self._vendor, self._options, "timeout", 120)
        return OpenAIEncoder(self._vendor, model, endpoint, timeout)

    async def close(self) -> None:
        """Let go of connections."""
        await self._endpoint.close()

    def _body(self, request: ModelRequest, *, streamed: bool) -> bytes:
        tools = request.tools
        if tools == b"[]":
            tools = None
        return b"".join(
            (
                b'{"model":',
                orjson.dumps(request.model),
                self._extra,
                self._optional_fields(request, tools),
                b',"messages":[',
                b",".join(_with_reasoning(request)),
                b'],"tools":' + tools if tools else b"]",
                _STREAMING_FIELDS if streamed else b"}",
            )
        )

    def _optional_fields(self, request: ModelRequest, tools: bytes | None) -> bytes:
        """Return the members that few requests have."""
        fields = b"," + request.extra if request.extra else b""
        if request.max_output is not None:
            fields += b',"%b":%d' % (self._max_tokens_field, request.max_output)
        if request.schema is not None:
            fields += (
                b',"response_format":{"type":"json_schema","json_schema":'
                b'{"name":"answer","schema":%b}}' % request.schema
            )
        if tools and request.tool_choice != "auto":
            fields += b',"tool_choice":' + _tool_choice(request.tool_choice)
        return fields


def _auth_headers(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"} if key else {}


def _tool_choice(choice: str) -> bytes:
    if choice in {"none", "required"}:
        return orjson.dumps(choice)
    return orjson.dumps({"type": "function", "function": {"name": choice}})


def _with_reasoning(request: ModelRequest) -> list[bytes]:
    """Return the messages; replies of this turn with the reasoning that came with them.

    Servers that send `reasoning_content` (DeepSeek, vLLM, llama.cpp) may want it back while the
    turn goes on, and OpenRouter its `reasoning_details`; others never sent any and get none.
    """
    thoughts = request.thoughts
    if not thoughts:
        return request.messages
    return [
        message[:-1] + b"," + thought[1:] if (thought := thoughts.get(message)) else message
        for message in request.messages
    ]


_ADDRESS_HINT = "It usually ends in /v1."


class ChatReplyParser:
    """A reply in the making. Pieces of it are emitted as they come."""

    def __init__(
        self, emit: Emit | None = None, on_prompt: Callable[[int, int, int], None] | None = None
    ) -> None:
        self.done = False
        self.finish = ""
        self._emit = emit
        self._on_prompt = on_prompt
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
            output = text + reasoning + "".join(c.name + c.arguments for c in calls.values())
            usage = Usage.estimate(sent, len(output.encode()))
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
        if self._on_prompt is not None and (read := event.get("prompt_progress")):
            progress = _table(read)
            self._on_prompt(
                _count(progress.get("total")),
                _count(progress.get("cache")),
                _count(progress.get("processed")),
            )
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

    __slots__ = ("_buffer", "_state")

    def __init__(self) -> None:
        self._state: str = "before"
        self._buffer: str = ""

    def split(self, piece: str) -> list[tuple[bool, str]]:
        """Return pieces and whether they are reasoning; the end of one may wait for the next."""
        if self._state == "after":
            return [(False, piece)]
        if self._state == "closed":
            return self._finish(piece.lstrip())
        buffered = self._buffer + piece
        if self._state == "before":
            start = buffered.lstrip()
            if _OPEN.startswith(start[: len(_OPEN)]) and len(start) < len(_OPEN):
                self._buffer = buffered
                return []
            if not start.startswith(_OPEN):
                return self._finish(buffered)
            self._state, buffered = "inside", start[len(_OPEN) :]
        thought, closed, text = buffered.partition(_CLOSE)
        if closed:
            self._state, self._buffer = "closed", ""
            return [(True, thought), *self._finish(text.lstrip())]
        overlap = next(
            (n for n in range(len(_CLOSE) - 1, 0, -1) if buffered.endswith(_CLOSE[:n])), 0
        )
        self._buffer = buffered[len(buffered) - overlap :] if overlap else ""
        return [(True, buffered[: len(buffered) - overlap])]

    def rest(self) -> list[tuple[bool, str]]:
        """Return what was held back, at the end of a reply."""
        buffered, self._buffer = self._buffer, ""
        return [(self._state == "inside", buffered)] if buffered else []

    def _finish(self, text: str) -> list[tuple[bool, str]]:
        if not text:
            return []
        self._state, self._buffer = "after", ""
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


EMBEDDINGS_PATH = "/embeddings"
_TEXTS_PER_REQUEST = 64
"""Texts in one request; small servers work through them one after the other."""
_EMBEDDINGS_HINT = "The address usually ends in /v1, and the model must be one for embeddings."


class OpenAIEncoder:
    """An encoder that is asked over HTTP."""

    def __init__(self, vendor: str, model: str, endpoint: Endpoint, timeout: float) -> None:
        self.name = f"{vendor}:{model}"
        self._model = model
        self._endpoint = endpoint
        self._timeout = timeout

    async def encode(
        self,
        texts: Sequence[str],
        *,
        question: bool = False,  # noqa: ARG002 - the format has no word for it
    ) -> NDArray[np.float32]:
        """Return a vector for each text, a row each; zeros for one without words."""
        import numpy as np

        with_words = [row for row, text in enumerate(texts) if text.strip()]
        rows: list[NDArray[np.float32]] = []
        for first in range(0, len(with_words), _TEXTS_PER_REQUEST):
            batch = with_words[first : first + _TEXTS_PER_REQUEST]
            rows.append(await self._ask([texts[row] for row in batch]))
        if not rows:
            return np.zeros((len(texts), 0), dtype=np.float32)
        matrix = np.zeros((len(texts), rows[0].shape[1]), dtype=np.float32)
        matrix[with_words] = np.concatenate(rows)
        return matrix

    async def close(self) -> None:
        """Let go of connections."""
        await self._endpoint.close()

    async def _ask(self, texts: list[str]) -> NDArray[np.float32]:
        # JSON has no lone surrogates.
        clean = [text.encode("utf-8", "replace").decode("utf-8") for text in texts]
        body = orjson.dumps({"model": self._model, "input": clean, "encoding_format": "float"})
        request = ModelRequest(self._model, [], None, key="encode", timeout=self._timeout)
        answer = await self._endpoint.ask(request, body, lambda: _VectorParser(len(texts)))
        return answer.vectors


class _VectorParser:
    """The vectors of an answer; there is nothing to stream."""

    def __init__(self, count: int) -> None:
        self.done = False
        self.finish = ""
        self.vectors: NDArray[np.float32]
        self._count = count

    def take(self, body: bytes) -> None:
        whole: Any = parse_json(body, _EMBEDDINGS_HINT)
        if not isinstance(whole, dict):
            raise MalformedAnswer(f"with no list of embeddings. {_EMBEDDINGS_HINT}")
        table = cast("dict[str, Any]", whole)
        if table.get("error"):
            raise RequestRejected.from_table(table)
        self.vectors = _rows(table.get("data"), self._count)
        self.done = True

    def feed(self, chunk: bytes) -> None:
        raise MalformedAnswer(f"with a stream of {len(chunk)} bytes and more. {_EMBEDDINGS_HINT}")

    def end(self) -> None:
        raise MalformedAnswer(f"with an empty stream. {_EMBEDDINGS_HINT}")


def _rows(data: Any, count: int) -> NDArray[np.float32]:
    import numpy as np

    if not isinstance(data, list):
        raise MalformedAnswer(f"with no list of embeddings. {_EMBEDDINGS_HINT}")
    entries = cast("list[dict[str, Any]]", data)
    if len(entries) != count:
        raise MalformedAnswer(
            f"with {len(entries)} embeddings for {count} texts. Nothing of it was kept."
        )
    try:
        ordered = sorted(entries, key=lambda entry: int(entry["index"]))
        rows = np.array([entry["embedding"] for entry in ordered], dtype=np.float32)
    except (KeyError, TypeError, ValueError) as error:
        raise MalformedAnswer(
            f"with embeddings that are not lists of numbers. {_EMBEDDINGS_HINT}"
        ) from error
    if rows.ndim != 2 or not rows.shape[1] or not np.isfinite(rows).all():
        raise MalformedAnswer(f"with embeddings that are not lists of numbers. {_EMBEDDINGS_HINT}")
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
