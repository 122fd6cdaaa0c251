"""A conversation as a small model reads it: few tools in few words, and a grammar for its reply.

Every reply of a model that has tools begins with a line that names one of them or none:

    tool: none                        tool: weather
    Words for the person.             {"place": "Rome"}

The grammar lets nothing else through, so a call names a tool that is offered and its arguments fit
the tool's schema. Rendering looks only backwards: a longer conversation begins with the same bytes
as a shorter one, and what the runtime has read of it stays of use.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

import orjson

from asterism.models.embedded.supervisor import StopGeneration
from asterism.types.turns import Call, Reply

if TYPE_CHECKING:
    from asterism.ports import Emit, ModelRequest

NONE = "none"
DEFAULT_OUTPUT = 512
MAX_CALL_TOKENS = 512
_HEAD_TOKENS = 8
_SHORT_STRING = 160
_SHORT_ARRAY = 4
_LONG_ARRAY = 16
_MAX_TOOL_BYTES = 2_400
"""Of tools in the prefix, about 600 tokens; with more of them, a few are chosen per message."""

_RULE = (
    'Begin every reply with the tool it needs: "tool: none" and then your words, or "tool: NAME" '
    "and then its arguments as JSON. Most messages, such as greetings and questions of general "
    "knowledge, need none."
)
_EXAMPLES = (
    ("user", "Hi there!"),
    ("assistant", "tool: none\nHello! What can I do for you?"),
    ("user", "Play some jazz in the kitchen."),
    ("assistant", 'tool: play_music\n{"genre": "jazz", "room": "kitchen"}'),
    ("user", "[result of play_music] Playing."),
    ("assistant", "tool: none\nThere is jazz in the kitchen now."),
    ("user", "Turn the lamp off."),
    ("assistant", 'tool: set_lamp\n{"on": false}'),
    ("user", "[result of set_lamp] Off."),
    ("assistant", "tool: none\nThe lamp is off."),
    ("user", "What is a comet?"),
    ("assistant", "tool: none\nA ball of ice and dust that travels around the sun."),
    ("user", "My bike is blue."),
    ("assistant", 'tool: note\n{"text": "The bike is blue."}'),
    ("user", "[result of note] Kept."),
    ("assistant", "tool: none\nI will keep that in mind."),
    ("user", "Thanks!"),
    ("assistant", "tool: none\nYou are welcome."),
)
_LOOP = re.compile(r"(?s)(\S.{7,120}?)\1{3,}.{0,120}\Z")
_CHECK_EVERY = 24
_HEAD = re.compile(r"tool: (\S+)\s*")


@dataclass(frozen=True, slots=True)
class EmbeddedPrompt:
    """What is sent for a request, and how the answer to it is read."""

    messages: list[bytes]
    names: tuple[str, ...]
    """The tools that the grammar offers."""
    prefixed: bool
    """Whether replies begin with the line that names a tool."""
    schemas: dict[str, Any]
    request: ModelRequest

    def fields(self, *, tight: bool = False) -> bytes:
        """Return the members of the request that hold the model to its grammar."""
        grammar = self.grammar(tight=tight)
        if grammar is None:
            return b""
        members: dict[str, Any] = {"grammar": grammar}
        if self.prefixed:
            members["stop"] = ["\ntool:"]
        return orjson.dumps(members)[1:-1]

    def max_tokens(self, *, tight: bool = False) -> int:
        """Return how many tokens may be written."""
        limit = self.request.max_output or DEFAULT_OUTPUT
        if tight:
            limit = max(limit, MAX_CALL_TOKENS)
        return limit + _HEAD_TOKENS if self.prefixed else limit

    def grammar(self, *, tight: bool = False) -> str | None:
        """Return the grammar of a reply, or None where any text will do.

        Written for llguidance, https://github.com/guidance-ai/llguidance (docs/syntax.md,
        2026-11), which xllamacpp is built with. A tight one bounds strings and lists.
        """
        schema = self.request.schema
        words = (
            "/[^\\s](.|\\n)*/"
            if schema is None
            else f"%json {_grammar_schema(orjson.loads(schema))}"
        )
        if not self.prefixed:
            return None if schema is None else f"%llguidance {{}}\nstart: {words}\n"
        choice = self.request.tool_choice
        ways: list[str] = []
        rules: list[str] = []
        if choice in {"auto", "none"} or not self.names:
            ways.append("words")
            rules.append(f'words: "tool: none\\n" {words}')
        for number, name in enumerate(self.names if choice != "none" else ()):
            head = orjson.dumps(f"tool: {name}\n").decode()
            ways.append(f"call_{number}")
            rules.append(
                f"call_{number}: {head} %json {_grammar_schema(self.schemas[name], tight=tight)}"
            )
        return "\n".join(("%llguidance {}", f"start: {' | '.join(ways)}", *rules, ""))

    def read(self, reply: Reply) -> Reply | None:
        """Return the reply as the port gives it; None for a call that was cut off."""
        if not self.prefixed:
            return reply
        head = _HEAD.match(reply.text)
        rest = reply.text[head.end() :] if head else reply.text
        if head is None or head[1] == NONE:
            # A reply that was cut within its first line says nothing.
            text = "" if head is None and "tool:".startswith(rest[:5]) else rest.strip()
            return Reply(text=text, usage=reply.usage, finish=reply.finish)
        try:
            whole = isinstance(orjson.loads(rest), dict) and head[1] in self.schemas
        except orjson.JSONDecodeError:
            whole = False
        if not whole:
            return None
        seed = f"{self.request.key}\n{reply.text}".encode()
        id = f"call_{hashlib.blake2b(seed, digest_size=6).hexdigest()}"
        return Reply(
            calls=(Call(id, head[1], rest.strip()),), usage=reply.usage, finish="tool_calls"
        )


def render(request: ModelRequest) -> EmbeddedPrompt:
    """Return the prompt of a request."""
    summaries = _summaries(request.tools)
    conversation = [cast("dict[str, Any]", orjson.loads(message)) for message in request.messages]
    names = tuple(summaries)
    few = (
        len(summaries) <= MAX_TOOLS
        and sum(len(summary.line) for summary in summaries.values()) < _MAX_TOOL_BYTES
    )
    messages = _MessageList()
    system = (
        _text(conversation.pop(0).get("content"))
        if conversation and conversation[0].get("role") == "system"
        else ""
    )
    if summaries:
        listed = "\n".join(summary.line for summary in summaries.values()) if few else ""
        tools = f"Tools:\n{listed}\n\n{_RULE}" if few else _RULE
        messages.add("system", f"{system}\n\n{tools}".strip())
        for role, text in _EXAMPLES:
            messages.add(role, text)
    elif system:
        messages.add("system", system)
    introduced: list[str] = []
    called: dict[str, str] = {}
    for message in conversation:
        role, text = str(message.get("role")), _text(message.get("content"))
        if role == "assistant":
            _add_reply(messages, message, text, called, prefixed=bool(summaries))
        elif role == "tool":
            name = called.get(str(message.get("tool_call_id")), "a tool")
            messages.add("user", f"[result of {name}] {text}")
        else:
            note = "" if few else _introduce(text, summaries, introduced)
            messages.add("user", (text if role == "user" else f"[note] {text}") + note)
    if summaries and not few:
        names = tuple(introduced[-MAX_TOOLS:])
    if request.tool_choice in summaries:
        names = (request.tool_choice,)
    schemas = {name: summaries[name].schema for name in names}
    return EmbeddedPrompt(messages.wires(), names, bool(summaries), schemas, request)


def _introduce(text: str, summaries: dict[str, ToolSummary], introduced: list[str]) -> str:
    """Return a note on the tools that a message may need and that were not shown before it."""
    new: list[str] = []
    for name in select_tools(text, summaries, fill=not introduced):
        if name in introduced:
            introduced.remove(name)
        else:
            new.append(name)
        introduced.append(name)
    if not new:
        return ""
    return "\n\n[tools you may use]\n" + "\n".join(summaries[name].line for name in new)


def _add_reply(
    messages: _MessageList,
    message: dict[str, Any],
    text: str,
    called: dict[str, str],
    *,
    prefixed: bool,
) -> None:
    """Add what the model said itself, as it would have written it."""
    calls: list[dict[str, Any]] = message.get("tool_calls") or []
    lines = [f"tool: {NONE}\n{text}" if prefixed else text] if text or not calls else []
    for call in calls:
        function: dict[str, Any] = call.get("function") or {}
        name = str(function.get("name"))
        called[str(call.get("id"))] = name
        lines.append(f"tool: {name}\n{function.get('arguments') or '{}'}")
    messages.add("assistant", "\n".join(lines))


class ReplyFilter:
    """Passes on the words of a streamed reply, without the line that names a tool.

    Raises `StopGeneration` when the model has begun to repeat itself, as small ones may do without
    end.
    """

    def __init__(self, prompt: EmbeddedPrompt, emit: Emit | None) -> None:
        self._emit = emit
        self._open = not prompt.prefixed
        self._buffer = ""
        self._text = ""
        self._pieces = 0

    @property
    def text(self) -> str:
        """The words so far, a repetition taken out."""
        loop = _LOOP.search(self._text)
        return (self._text[: loop.end(1)] if loop else self._text).strip()

    def __call__(self, kind: str, piece: str) -> None:
        """Take a piece of the reply."""
        if kind != "text":
            self._pass_on(kind, piece)
            return
        if not self._open:
            self._buffer += piece
            head, broken, piece = self._buffer.partition("\n")
            if not broken or head != f"tool: {NONE}":
                return
            self._open = True
        if not self._text:
            piece = piece.lstrip()
        if not piece:
            return
        self._text += piece
        self._pass_on(kind, piece)
        self._pieces += 1
        if self._pieces % _CHECK_EVERY == 0 and _LOOP.search(self._text, len(self._text) - 600):
            raise StopGeneration

    def _pass_on(self, kind: str, piece: str) -> None:
        if self._emit is not None:
            self._emit(kind, piece)


class _MessageList:
    """Messages in the making; neighbours of one role are joined, as many templates demand."""

    def __init__(self) -> None:
        self._messages: list[tuple[str, list[str]]] = []

    def add(self, role: str, text: str) -> None:
        if self._messages and self._messages[-1][0] == role:
            self._messages[-1][1].append(text)
        else:
            self._messages.append((role, [text]))

    def wires(self) -> list[bytes]:
        return [
            orjson.dumps({"role": role, "content": "\n".join(texts)})
            for role, texts in self._messages
        ]


@lru_cache(maxsize=64)
def _summaries(tools: bytes | None) -> dict[str, ToolSummary]:
    found: dict[str, ToolSummary] = {}
    for tool in cast("list[dict[str, Any]]", orjson.loads(tools)) if tools else ():
        function: dict[str, Any] = tool.get("function") or {}
        summary = ToolSummary.from_function(function)
        found[summary.name] = summary
    return found


def _text(content: Any) -> str:
    if isinstance(content, list):
        parts = cast("list[dict[str, Any]]", content)
        return "\n".join(
            str(part["text"]) if "text" in part else f"[{part.get('type')}: cannot be seen]"
            for part in parts
        )
    return content if isinstance(content, str) else ""


def _grammar_schema(schema: Any, *, tight: bool = False) -> str:
    """Return a schema as the grammar takes it: on one line, closed, and perhaps bounded."""
    closed = cast("dict[str, Any]", _close(schema, tight=tight))
    # What it cannot enforce, such as `uniqueItems`, it shall pass over instead of refusing all.
    rules = {"whitespace_flexible": False, "lenient": True}
    rules |= {"key_separator": ": ", "item_separator": ", "}
    return orjson.dumps({"x-guidance": rules, **closed}).decode()


def _close(schema: Any, *, tight: bool) -> Any:
    """Let no objects have members that were not named, and drop what is only for reading."""
    if isinstance(schema, list):
        return [_close(member, tight=tight) for member in cast("list[Any]", schema)]
    if not isinstance(schema, dict):
        return schema
    table = cast("dict[str, Any]", schema)
    closed: dict[str, Any] = {}
    for key, value in table.items():
        if key in {"properties", "$defs", "definitions", "patternProperties"}:
            named = cast("dict[str, Any]", value)
            closed[key] = {name: _close(member, tight=tight) for name, member in named.items()}
        elif key in {"enum", "const", "required"}:
            closed[key] = value
        elif key not in {"description", "title", "default", "examples"}:
            closed[key] = _close(value, tight=tight)
    if "properties" in closed:
        closed.setdefault("additionalProperties", False)
    if tight and closed.get("type") == "string" and "enum" not in closed:
        closed["maxLength"] = min(closed.get("maxLength", _SHORT_STRING), _SHORT_STRING)
        closed["maxLength"] = max(closed["maxLength"], closed.get("minLength", 0))
    if closed.get("type") == "array":
        max_items = _SHORT_ARRAY if tight else _LONG_ARRAY
        closed["maxItems"] = min(closed.get("maxItems", max_items), max_items)
        closed["maxItems"] = max(closed["maxItems"], closed.get("minItems", 0))
    return closed


MAX_TOOLS = 8
_SELECTED_TOOLS = 4
_MAX_LINE = 260
_WORD = re.compile(r"[^\W\d_]{3,}")
_STOP_WORDS = frozenset(
    _WORD.findall(
        "the and for with from that this what when where which who how you your are was "
        "will can could would should please have has had not but all any its one use such "
        "into out them they about tell give let want need make get put"
    )
)


@dataclass(frozen=True, slots=True)
class ToolSummary:
    """A tool as a small model is told of it."""

    name: str
    line: str
    schema: dict[str, Any]
    words: frozenset[str]

    @staticmethod
    def from_function(function: dict[str, Any]) -> ToolSummary:
        """Make an offer from a function as the wire format describes it."""
        name = str(function.get("name"))
        about = " ".join(str(function.get("description") or "").split("\n\n")[0].split())
        schema: dict[str, Any] = function.get("parameters") or {}
        schema = {"type": "object", "properties": {}, **schema}
        members = cast("dict[str, dict[str, Any]]", schema["properties"])
        required: list[str] = schema.get("required") or []
        arguments = ", ".join(
            f"{member_name}{'' if member_name in required else '?'}: {_type_name(member)}"
            for member_name, member in members.items()
        )
        notes = " ".join(str(member.get("description") or "") for member in members.values())
        line = f"- {name}({arguments}): {about}"
        if len(line) > _MAX_LINE:
            line = line[: _MAX_LINE - 1] + "…"
        return ToolSummary(name, line, schema, frozenset(_stems(f"{name} {about} {notes}")))


def select_tools(text: str, summaries: dict[str, ToolSummary], *, fill: bool) -> list[str]:
    """Return the few tools whose names and descriptions share the rarest words with a message.

    With `fill`, the first of the others make up the number, so that there always are some.
    """
    spread = Counter(word for summary in summaries.values() for word in summary.words)
    stems = set(_stems(text))
    scores = {
        name: sum(math.log(1 + len(summaries) / spread[word]) for word in stems & summary.words)
        for name, summary in summaries.items()
    }
    order = sorted(summaries, key=lambda name: -scores[name])
    return [name for name in order[:_SELECTED_TOOLS] if fill or scores[name] > 0]


def _stems(text: str) -> list[str]:
    words = (word.lower() for word in _WORD.findall(text.replace("_", " ")))
    return [_stem(word) for word in words if word not in _STOP_WORDS]


def _stem(word: str) -> str:
    for ending in ("ing", "ed", "es", "s", "er"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word[: -len(ending)].rstrip("e")
    return word.rstrip("e")


def _type_name(member: dict[str, Any]) -> str:
    """Name what an argument may be, in a word."""
    if "enum" in member:
        return "|".join(str(value) for value in member["enum"])
    if "const" in member:
        return str(member["const"])
    ways = cast("list[dict[str, Any]]", member.get("anyOf") or member.get("oneOf") or [])
    if ways:
        return "|".join(dict.fromkeys(_type_name(way) for way in ways if way.get("type") != "null"))
    kind = member.get("type", "object")
    if kind == "array":
        return f"[{_type_name(cast('dict[str, Any]', member.get('items') or {'type': 'any'}))}]"
    return str(kind) if isinstance(kind, str) else "|".join(cast("list[str]", kind))
