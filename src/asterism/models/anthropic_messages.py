"""A conversation as the Messages API takes it: turns that alternate, every call with its result.

Messages of one side in a row become one, results come before what is said with them, ids of calls
are unique, and what lacks its counterpart is filled in. All of it is decided from the front, so
that a longer conversation begins with the same blocks as a shorter one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

import orjson

from asterism.models.endpoint import shorten
from asterism.records import dataclass

if TYPE_CHECKING:
    from asterism.ports import ModelRequest

CACHE_MARK = b',"cache_control":{"type":"ephemeral"}}'
_LATEST = 2
_THINKING = frozenset({"thinking", "redacted_thinking"})


_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9_-]")
_DATA_URL = re.compile(r"data:([\w.+/-]+);base64,(.*)", re.DOTALL)
_IMAGES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
_MAX_NAME = 128


@dataclass(frozen=True, slots=True)
class ToolUse:
    """A tool call: its block is `tool_use_block(id, rest)`."""

    id: str
    """As the wire form has it; not necessarily unique."""
    safe_id: str
    """The same in the characters that an id may have."""
    name: str
    rest: bytes
    """The block after its id."""


@dataclass(frozen=True, slots=True)
class ConvertedMessage:
    """What one message adds to a conversation."""

    role: str
    """`system`, `user`, `assistant`, or `tool` for the result of a call."""
    blocks: tuple[bytes, ...]
    """Its blocks; those of a result are what to say if nobody asked for it."""
    uses: tuple[ToolUse, ...] = ()
    call_id: str = ""
    """The id of the call that a result belongs to."""
    rest: bytes = b""
    """A result's block after that id."""


def convert_message(wire: bytes) -> ConvertedMessage:
    """Return what a chat-completions message adds to a conversation."""
    message: dict[str, Any] = orjson.loads(wire)
    role, content = message.get("role"), message.get("content")
    if role == "assistant":
        uses = tuple(_tool_use(call) for call in message.get("tool_calls") or ())
        return ConvertedMessage("assistant", _blocks(content, _text_only), uses)
    if role == "tool":
        blocks = _blocks(content, _part)
        notice = text_block("[asterism] The result of a call that is no longer shown:")
        rest = b',"content":[%b]}' % b",".join(blocks) if blocks else b"}"
        return ConvertedMessage(
            "tool", (*notice, *blocks), call_id=str(message.get("tool_call_id") or ""), rest=rest
        )
    if role == "user":
        return ConvertedMessage("user", _blocks(content, _part))
    return ConvertedMessage("system", _blocks(content, _text_only))


def text_block(text: str) -> tuple[bytes, ...]:
    """Return a block of text, or none: the API takes no text that is empty or only white space."""
    return (orjson.dumps({"type": "text", "text": text}),) if text.strip() else ()


def tool_use_block(id: str, rest: bytes) -> bytes:
    """Return the block of a tool call."""
    return b'{"type":"tool_use","id":"%b"%b' % (id.encode(), rest)


def tool_result_block(id: str, rest: bytes) -> bytes:
    """Return the block of a call's result."""
    return b'{"type":"tool_result","tool_use_id":"%b"%b' % (id.encode(), rest)


def _blocks(content: Any, read: Callable[[dict[str, Any]], tuple[bytes, ...]]) -> tuple[bytes, ...]:
    if isinstance(content, list):
        parts = cast("list[Any]", content)
        return tuple(block for part in parts for block in read(_as_table(part)))
    return text_block(content) if isinstance(content, str) else ()


def _text_only(part: dict[str, Any]) -> tuple[bytes, ...]:
    return text_block(str(part.get("text") or part.get("refusal") or ""))


def _part(part: dict[str, Any]) -> tuple[bytes, ...]:
    """Return a part of a message's content: text, an image, a document, or a word instead of it."""
    kind = part.get("type")
    if kind == "text":
        return text_block(str(part.get("text") or ""))
    if kind == "image_url":
        return _sourced("image", str(_as_table(part.get("image_url")).get("url") or ""), _IMAGES)
    if kind == "file":
        data = str(_as_table(part.get("file")).get("file_data") or "")
        return _sourced("document", data, frozenset({"application/pdf"}))
    return text_block(f"[asterism] Here was a part of the kind {kind!r}, which cannot be shown.")


def _sourced(kind: str, url: str, types: frozenset[str]) -> tuple[bytes, ...]:
    source: dict[str, str]
    if url.startswith(("https://", "http://")):
        source = {"type": "url", "url": url}
    elif (match := _DATA_URL.match(url)) and match[1] in types:
        source = {"type": "base64", "media_type": match[1], "data": match[2]}
    else:
        what = match[1] if match else shorten(url, 40) or "empty"
        return text_block(
            f"[asterism] Here was an attachment ({what}), which cannot be shown; it would have to "
            f"be {' or '.join(sorted(types))}."
        )
    return (orjson.dumps({"type": kind, "source": source}),)


def _tool_use(call: dict[str, Any]) -> ToolUse:
    function = _as_table(call.get("function"))
    id, name = str(call.get("id") or ""), str(function.get("name") or "")
    # Hallucinated names are part of the past as well, and the API checks names there too.
    name = _NOT_IN_NAMES.sub("_", name)[:_MAX_NAME] or "unnamed"
    rest = b',"name":"%b","input":%b}' % (name.encode(), _input(function.get("arguments")))
    return ToolUse(id, _NOT_IN_NAMES.sub("_", id) or "call", name, rest)


def _as_table(value: Any) -> dict[str, Any]:
    if isinstance(value, dict):
        return cast("dict[str, Any]", value)
    return {"type": "text", "text": value, "url": value} if isinstance(value, str) else {}


def _input(arguments: Any) -> bytes:
    """Return a call's arguments as a JSON object, which the API wants them to be."""
    text = arguments if isinstance(arguments, str) else orjson.dumps(arguments or {}).decode()
    try:
        if isinstance(orjson.loads(text or "{}"), dict):
            return text.encode() or b"{}"
    except orjson.JSONDecodeError:
        pass
    return orjson.dumps({"malformed_arguments": text})


_EARLIER = text_block("[asterism] What was said before is not shown.")
_GO_ON = text_block("[asterism] Go on.")
_NO_RESULT = b',"is_error":true,"content":[%b]}' % b"".join(
    text_block("[asterism] There is no result: the call was interrupted.")
)


class Conversation:
    """The system prompt and the messages of a request, which a later request may continue."""

    def __init__(self, frozen: int) -> None:
        """Begin a conversation of which the first `frozen` messages stay from turn to turn."""
        self.system: list[bytes] = []
        self.tool_names: dict[str, None] = {}
        """The tools that were called in it, in order."""
        self.lacks_thinking = False
        """Whether the reply that the last results belong to came without a thought."""
        self.frozen = frozen
        self.read: list[bytes] = []
        """The messages that were taken in."""
        self.size = 0
        self._settled: list[bytes] = []
        """Messages that nothing can change, in the API's form."""
        self._turns: list[list[bytes]] = []
        """The blocks of the latest turns; the user's and the assistant's alternate."""
        self._results: list[bytes] = []
        self._user_blocks: list[bytes] = []
        self._ids: set[str] = set()
        self._waiting: dict[str, list[str]] = {}
        """The calls without a result, by their id in the wire form."""

    def copy(self) -> Conversation:
        """Return a copy that goes its own way."""
        other = Conversation(self.frozen)
        other.system, other.tool_names = self.system.copy(), self.tool_names.copy()
        other.lacks_thinking = self.lacks_thinking
        other.read, other.size = self.read.copy(), self.size
        other._settled = self._settled.copy()
        other._turns = [turn.copy() for turn in self._turns]
        other._results, other._user_blocks = self._results.copy(), self._user_blocks.copy()
        other._ids = self._ids.copy()
        other._waiting = {id: ids.copy() for id, ids in self._waiting.items()}
        return other

    def add(self, wire: bytes, thought: bytes | None = None) -> None:
        """Take in the next message."""
        piece = convert_message(wire)
        if piece.role == "assistant":
            if piece.uses or piece.blocks:
                self._add_reply(piece, thought)
        elif piece.role == "user":
            self._user_blocks += piece.blocks
        elif piece.role == "tool":
            self._add_result(piece)
        elif self._turns or self._user_blocks or self._results:
            self._user_blocks += (*text_block("[asterism]"), *piece.blocks)
        else:
            self.system += piece.blocks
        self.read.append(wire)
        self.size += len(wire)
        if len(self.read) == self.frozen:
            _mark_last(self._user_blocks or self._results or (self._turns or [self.system])[-1])

    def end(self) -> bytes:
        """Return the messages, marked where the last request ended and where this one ends."""
        self.lacks_thinking = self.lacks_thinking and bool(self._results or self._waiting)
        self._close_user_turn()
        if self._count() % 2 == 0:
            # Not every model goes on with a reply that was begun, and none takes an empty request.
            self._turns.append(list(_GO_ON))
        # A cached prefix is found at a mark or in the 20 blocks before it, and is written at marks
        # only; the request before this one ended where the last reply began. Marks may move: they
        # are not part of what is compared.
        # https://platform.claude.com/docs/en/build-with-claude/prompt-caching, 2026-11
        for turn in self._turns[-1:-4:-2]:
            _mark_last(turn)
        while self._turns:
            self._settle()
        return b",".join(self._settled)

    def _count(self) -> int:
        return len(self._settled) + len(self._turns)

    def _settle(self) -> None:
        role = b"assistant" if len(self._settled) % 2 else b"user"
        blocks = b",".join(self._turns.pop(0))
        self._settled.append(b'{"role":"%b","content":[%b]}' % (role, blocks))

    def _add_result(self, piece: ConvertedMessage) -> None:
        ids = self._waiting.get(piece.call_id)
        if ids:
            self._results.append(tool_result_block(ids.pop(0), piece.rest))
        else:
            self._user_blocks += piece.blocks

    def _add_reply(self, piece: ConvertedMessage, thought: bytes | None) -> None:
        self._close_user_turn()
        if not self._count():
            self._turns.append(list(_EARLIER))
        if self._count() % 2:
            self._turns.append([])
        ids = [self._unique(use) for use in piece.uses]
        self._turns[-1] += _with_thinking(piece, ids, thought)
        self.lacks_thinking = not thought
        # The latest may still be added to, and the one before it gets a mark.
        while len(self._turns) > 3:
            self._settle()

    def _unique(self, use: ToolUse) -> str:
        id, number = use.safe_id, 1
        while id in self._ids:
            number += 1
            id = f"{use.safe_id}_{number}"
        self._ids.add(id)
        self._waiting.setdefault(use.id, []).append(id)
        self.tool_names[use.name] = None
        return id

    def _close_user_turn(self) -> None:
        """Put what the user's side said into the turns, after a result for each call."""
        self._results += [
            tool_result_block(id, _NO_RESULT) for ids in self._waiting.values() for id in ids
        ]
        self._waiting.clear()
        if self._results or self._user_blocks:
            self._turns.append(self._results + self._user_blocks)
            self._results, self._user_blocks = [], []


class ConversationCache:
    """The conversations of late, so that a call costs what is new in it."""

    def __init__(self, room: int = 64 << 20) -> None:
        """Keep up to `room` bytes of messages; those not used for longest are let go."""
        self._room = self._free = room
        self._known: dict[tuple[str, bytes], Conversation] = {}

    def find(self, request: ModelRequest) -> Conversation:
        """Return the conversation of a request, to be ended and used once."""
        messages, thoughts = request.messages, request.thoughts
        # Thoughts go with a turn, and the last messages may be others next time: neither is kept.
        settled_count = max(len(messages) - _LATEST, 0)
        if thoughts:
            settled_count = min(settled_count, _first_thought(messages, thoughts))
        conversation = self._continue(request, settled_count).copy()
        for wire in messages[settled_count:]:
            conversation.add(wire, thoughts.get(wire))
        return conversation

    def _continue(self, request: ModelRequest, count: int) -> Conversation:
        messages = request.messages
        key = (request.agent_id, messages[0] if messages else b"")
        known = self._known.pop(key, None)
        if known is not None:
            self._free += known.size
            length = len(known.read)
            if known.frozen != request.frozen or known.read != messages[: min(length, count)]:
                known = None
        conversation = known or Conversation(request.frozen)
        for wire in messages[len(conversation.read) : count]:
            conversation.add(wire)
        self._known[key] = conversation
        self._free -= conversation.size
        while self._free < 0:
            oldest = next(iter(self._known))
            self._free += self._known.pop(oldest).size
        return conversation


def _first_thought(messages: list[bytes], thoughts: Mapping[bytes, bytes]) -> int:
    """Return the place of the first reply that has a thought; they are near the end."""
    first, left = len(messages), len(thoughts)
    for index in range(len(messages) - 1, -1, -1):
        if messages[index] in thoughts:
            first, left = index, left - 1
            if not left:
                break
    return first


def _with_thinking(piece: ConvertedMessage, ids: list[str], thought: bytes | None) -> list[bytes]:
    """Return the blocks of a reply with the vendor's own record of its reasoning.

    The record is the thinking that the reply began with, or, if the thinking came in between, all
    of its blocks. https://platform.claude.com/docs/en/build-with-claude/extended-thinking, 2026-11
    """
    uses = [tool_use_block(id, use.rest) for id, use in zip(ids, piece.uses, strict=True)]
    if not thought or not thought.startswith(b"[{"):
        return [*piece.blocks, *uses]
    record: list[dict[str, Any]] = orjson.loads(thought)
    if all(block.get("type") in _THINKING for block in record):
        return [thought[1:-1], *piece.blocks, *uses]
    recorded = [block for block in record if block.get("type") == "tool_use"]
    if [block.get("id") for block in recorded] == ids:
        return [thought[1:-1]]
    for block, id in zip(recorded, ids, strict=False):
        block["id"] = id
    return [orjson.dumps(block) for block in record]


def _mark_last(blocks: list[bytes]) -> None:
    if blocks and not blocks[-1].endswith(CACHE_MARK):
        blocks[-1] = blocks[-1][:-1] + CACHE_MARK


# https://platform.claude.com/docs/en/build-with-claude/structured-outputs, 2026-11
_UNSUPPORTED = frozenset(
    {
        *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
        *("minLength", "maxLength", "maxItems", "uniqueItems", "minProperties", "maxProperties"),
    }
)
_FORMATS = frozenset(
    {"date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid"}
)
_ANYTHING: dict[str, Any] = {"type": "object", "properties": {}}


@lru_cache(maxsize=64)
def convert_tools(tools: bytes) -> bytes:
    """Return chat-completions tools as the API takes them, the last one marked for its cache."""
    converted: list[bytes] = []
    for tool in orjson.loads(tools):
        function: dict[str, Any] = tool["function"]
        fields = {name: function[name] for name in ("description", "strict") if function.get(name)}
        schema = {"type": "object", **(function.get("parameters") or _ANYTHING)}
        converted.append(orjson.dumps({"name": function["name"], **fields, "input_schema": schema}))
    converted[-1] = converted[-1][:-1] + CACHE_MARK
    return b"[%b]" % b",".join(converted)


def placeholder_tools(names: Iterable[str]) -> bytes:
    """Return tools that only exist since a conversation with calls in it must name some."""
    return orjson.dumps([{"name": name, "input_schema": _ANYTHING} for name in names])


def convert_choice(choice: str) -> bytes:
    """Return a choice of tools: `none`, `required`, or the name of one."""
    if choice == "none":
        return b'{"type":"none"}'
    if choice == "required":
        return b'{"type":"any"}'
    return orjson.dumps({"type": "tool", "name": choice})


@lru_cache(maxsize=64)
def convert_schema(schema: bytes) -> bytes:
    """Return a JSON schema without what the API refuses; bounds become words for the model."""
    return orjson.dumps(_strict(orjson.loads(schema)))


def _strict(node: Any) -> Any:
    if not isinstance(node, dict):
        return node
    schema, strict, bounds = cast("dict[str, Any]", node), dict[str, Any](), list[str]()
    for name, value in schema.items():
        if _is_bound(name, value):
            bounds.append(f"{name}: {orjson.dumps(value).decode()}")
        elif name in {"properties", "$defs", "definitions"}:
            strict[name] = {key: _strict(each) for key, each in value.items()}
        elif name in {"anyOf", "oneOf", "allOf"}:
            strict["anyOf" if name == "oneOf" else name] = [_strict(each) for each in value]
        else:
            strict[name] = _strict(value) if name == "items" else value
    if strict.get("type") == "object" or "properties" in strict:
        strict["additionalProperties"] = False
    if bounds:
        limits = f"({', '.join(bounds)})"
        strict["description"] = f"{strict.get('description', '')} {limits}".strip()
    return strict


def _is_bound(name: str, value: Any) -> bool:
    if name == "minItems":
        return value not in {0, 1}
    return name in _UNSUPPORTED or (name == "format" and value not in _FORMATS)
