"""A conversation as a small model reads it: few tools in few words, and a grammar for its reply.

A conversation is sent as it is, without the calls that were made in it: their results stand beside
the messages. Where the latest message seems to need a tool, the tool stands at its end, and the
reply names it with its arguments, or none; words are then asked for without tools. An agent with
tools that every message may need has them in front, and all its replies begin with such a line:

    tool: none                        tool: weather
    Words for the person.             {"place": "Rome"}

The grammar lets nothing else through, so a call names a tool that is offered and its arguments fit
the tool's schema. Rendering looks only backwards: up to its latest message, a longer conversation
begins with the same bytes as a shorter one, and what the runtime has read of it stays of use.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections import Counter
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

import orjson

from asterism.memory.keep import is_question
from asterism.models.embedded.hints import (
    MAX_QUOTED,
    MAY_BE_KNOWN,
    NAME_ASKED,
    UNKNOWN,
    UNTOLD,
    WHETHER_KNOWN,
    hints_for,
    in_second_person,
    lines_on_owner,
)
from asterism.models.embedded.supervisor import StopGeneration
from asterism.ports import RequestPart
from asterism.records import dataclass
from asterism.tools.calculator.questions import language_of
from asterism.types.turns import MARK, RETRY, Call, Reply, without_stamp

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
_USES = {
    "calculator": '{"expression": "count * price"} with numbers for these names',
    "remember": '{"fact": "FACT"} with what is to be remembered for FACT',
    "schedule": '{"operation": "at", "when": "TIME", "message": "MATTER"} in words of the message',
    "search": '{"query": "WORDS"} with the words to look for',
}
"""How tools that every agent has are called, shown with them. A small model copies an example that
it could take for an answer, so there is none in them."""
_STYLE = (
    "Answer in the language of the latest message, in one or two short sentences. What [asterism] "
    "tells you is right: say it in your words. What your owner has not told you about themselves "
    "you do not know."
)
_TIME_TOLD = f"{MARK} Now it is "
_RETRY = f"{MARK} {RETRY} "
_WORKED_OUT = f"{MARK} Worked out exactly, tell each: it was a Sunday; it is a week ago."
_PLAIN_EXAMPLES = (
    ("user", f"私の血液型は何ですか？\n{UNKNOWN}"),
    ("assistant", "わかりません。まだ教えてもらっていません。"),
    ("user", f"¿Cuál es mi comida favorita?\n{UNKNOWN}"),
    ("assistant", "No lo sé, todavía no me lo has dicho."),
    ("user", f"Wann hat meine Tante Geburtstag?\n{UNKNOWN}"),
    ("assistant", "Das weiß ich nicht, du hast es mir noch nicht gesagt."),
    ("user", f"Which weekday was that, and how long ago is it?\n{_WORKED_OUT}"),
    ("assistant", "It was a Sunday, and it is a week ago."),
    ("user", "The neighbours expect snow, but we hope for sun."),
    ("assistant", "Then let us hope for sun!"),
    ("user", f"what did i say we hope for?\n{MAY_BE_KNOWN}"),
    ("assistant", "You hope for sun."),
    ("user", f"What is my brother's name?\n{UNKNOWN}"),
    ("assistant", "I don't know your brother's name. You have not told me yet."),
)
"""Nothing in them can be taken for something that the owner has said, nor are there numbers that
could find their way into a sum. The last ones are in English: a small model tends to go on in the
language that it has read last."""
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
    chooses: bool = False
    """Whether the reply only names a tool with its arguments, or none, without words."""

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
            rules.append(
                'words: "tool: none"' if self.chooses else f'words: "tool: none\\n" {words}'
            )
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
    summaries, chosen = _summaries(request.tools), _summaries(request.message_tools)
    conversation = [cast("dict[str, Any]", orjson.loads(message)) for message in request.messages]
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
        system = f"{system}\n\nTools:\n{listed}\n\n{_RULE}" if few else f"{system}\n\n{_RULE}"
    elif system:
        system = f"{system} {_STYLE}"
    if system:
        messages.add("system", system.strip())
        for role, text in _EXAMPLES if summaries else _PLAIN_EXAMPLES:
            messages.add(role, text)
    introduced = _add_conversation(messages, conversation, summaries, system, few=few)
    names = tuple(summaries) if few else tuple(introduced[-MAX_TOOLS:])
    if chosen:
        messages.add(
            "user",
            _offer(chosen, ruled=bool(summaries), required=request.tool_choice == "required"),
        )
        names = (*names, *chosen)
    offered = summaries | chosen
    if request.tool_choice in offered:
        names = (request.tool_choice,)
    schemas = {name: offered[name].schema for name in names}
    chooses = bool(chosen) and not summaries
    return EmbeddedPrompt(messages.wires(), names, bool(offered), schemas, request, chooses)


def _add_conversation(
    messages: _MessageList,
    conversation: list[dict[str, Any]],
    summaries: dict[str, ToolSummary],
    system: str,
    *,
    few: bool,
) -> list[str]:
    """Add what was said; return the tools that messages were found to need, the latest last."""
    own_name, kept = _name_in(system), lines_on_owner(system)
    introduced: list[str] = []
    called: dict[str, str] = {}
    notes: list[str] = []
    said_before: list[str] = []
    for place, message in enumerate(conversation):
        role, text = str(message.get("role")), _text(message.get("content"))
        if _is_rejected(conversation, place):
            continue
        if role == "user" and text.startswith(_RETRY):
            messages.add(
                "user", f"{MARK} {text.removeprefix(_RETRY).removesuffix('Answer again.')}"
            )
        elif role == "user" and text.startswith(MARK):
            # It counts for the message behind it, and a small model heeds what it reads last.
            notes.append(in_second_person(text))
        elif role in ("assistant", "tool"):
            messages.add_all("user", notes)
            if role == "assistant":
                _add_reply(messages, message, text, called, prefixed=bool(summaries))
                continue
            name = called.get(str(message.get("tool_call_id")), "a tool")
            messages.add(
                "user",
                f"[result of {name}] {text}" if summaries else _result_note(name, text),
            )
        else:
            note = "" if few else _introduce(text, summaries, introduced)
            said = without_stamp(text) if role == "user" else f"[note] {text}"
            messages.add("user", said)
            if not summaries and role == "user":
                told = any(not note.startswith(_TIME_TOLD) for note in notes)
                hints = hints_for(said, said_before, kept, told=told)
                if any(hint.startswith(UNTOLD) for hint in hints):
                    notes.clear()  # with the time, a small model makes something up for it
                notes += hints
                if own_name and NAME_ASKED.search(said):
                    notes.append(f"{MARK} You are {own_name}.")
                english = language_of(said) == "en"
                if told and english and len(said) <= MAX_QUOTED and is_question(said):
                    # A small model heeds what it reads last. In other languages it repeats it.
                    notes.append(f"So, {WHETHER_KNOWN.sub('', said)}")
                said_before.append(said)
            messages.add_all("user", notes)
            if note:
                messages.add("user", note)
    messages.add_all("user", notes)
    return introduced


def _is_rejected(conversation: list[dict[str, Any]], place: int) -> bool:
    """Tell whether a message is an answer that did not stand: a small model would say it again."""
    if conversation[place].get("role") != "assistant" or place + 1 >= len(conversation):
        return False
    following = conversation[place + 1]
    return _is_note(following, text := _text(following.get("content"))) and text.startswith(_RETRY)


def _result_note(tool: str, text: str) -> str:
    """Return a result as a small model reads it: what was looked up is the answer."""
    if tool == "remember" and text.startswith(_KEPT):
        # It would repeat words that are for the agent.
        return f"{MARK} You have kept it. Tell your owner in a few words that you will remember it."
    then = "" if tool in _DOING else "\nAnswer my message with this."
    return f"{MARK} {tool}: {text}{then}"


_KEPT = "Kept"
"""How the result of `remember` begins when something was kept."""


_DOING = frozenset(("remember", "schedule"))
"""Tools whose result says that something was done."""


def _name_in(system: str) -> str:
    """Return the name that a system prompt gives the agent; empty if it gives none."""
    named = re.match(r"You are ([^\s,.]+)[,.]", system)
    return named[1] if named else ""


def _offer(chosen: dict[str, ToolSummary], *, ruled: bool, required: bool) -> str:
    """Return what stands at the end of a message that seems to need some tools."""
    lines = [f"{MARK} Tools for this message:", *(summary.line for summary in chosen.values())]
    if required:
        lines.append("Do not answer yet. Call one with what is said above, in two lines such as")
    else:
        lines.append("Call one, in two lines such as")
    for name in chosen:
        lines += [f"tool: {name}", _USES.get(name, "{}")]
    if not ruled and not required:
        lines += ["or, if none is needed, write", "tool: none"]
    return "\n".join(lines)


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
    return "\n[tools you may use]\n" + "\n".join(summaries[name].line for name in new)


def _add_reply(
    messages: _MessageList,
    message: dict[str, Any],
    text: str,
    called: dict[str, str],
    *,
    prefixed: bool,
) -> None:
    """Add what the model said itself, as it would have written it; calls only with tools."""
    calls: list[dict[str, Any]] = message.get("tool_calls") or []
    if calls and not prefixed:
        for call in calls:
            function = cast("dict[str, Any]", call.get("function") or {})
            called[str(call.get("id"))] = str(function.get("name"))
        if text:
            messages.add("assistant", text)
        return
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
        self.prompt_tokens = 0
        """The tokens of the prompt, as the runtime tells before it answers."""
        self.cached_tokens = 0

    def note_prompt(self, tokens: int, cached: int, processed: int) -> None:
        """Take note of how long the prompt is, how much was read before, and how much is by now."""
        self.prompt_tokens, self.cached_tokens = tokens, cached
        if self._emit is not None and tokens:
            self._emit("reading", f"{min(processed, tokens)}/{tokens}")

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

    def add_all(self, role: str, texts: list[str]) -> None:
        """Add some texts and take them out of their list."""
        for text in texts:
            self.add(role, text)
        texts.clear()

    def wires(self) -> list[bytes]:
        return [
            orjson.dumps({"role": role, "content": "\n".join(texts)})
            for role, texts in self._messages
        ]


@lru_cache(maxsize=64)
def _summaries(tools: bytes | None) -> dict[str, ToolSummary]:
    summaries: dict[str, ToolSummary] = {}
    for tool in cast("list[dict[str, Any]]", orjson.loads(tools)) if tools else ():
        function: dict[str, Any] = tool.get("function") or {}
        summary = ToolSummary.from_function(function)
        summaries[summary.name] = summary
    return summaries


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


def describe(request: ModelRequest) -> list[RequestPart]:
    """Return what the prompt of a request is made of, in its order.

    Rendering looks only backwards, so a message adds what the prompt has more with it. Notes before
    a message come behind it, so that they are described together.
    """
    given = [cast("dict[str, Any]", orjson.loads(message)) for message in request.messages]
    texts = [_text(message.get("content")) for message in given]
    first = int(bool(given) and given[0].get("role") == "system")
    known = _prompt_texts(replace(request, messages=request.messages[:first]))
    examples = known
    parts: list[RequestPart] = []
    if known and known[0][0] == "system":
        parts, examples = (
            _describe_system(known[0][1], texts[0] if first else "", request),
            known[1:],
        )
    if examples:
        told = "\n".join(f"{role}: {text}" for role, text in examples)
        why = "shows a small model how replies and calls look"
        parts.append(RequestPart("examples", told, why, messages=len(examples)))
    waiting: list[int] = []
    for place in range(first, len(given)):
        if _is_rejected(given, place):
            parts.append(RequestPart("message", "", "it did not stand", message=place))
            continue
        waiting.append(place)
        is_note = _is_note(given[place], texts[place]) and not texts[place].startswith(_RETRY)
        if is_note and place + 1 < len(given):
            continue
        longer = _prompt_texts(replace(request, messages=request.messages[: place + 1]))
        added = _added(known, longer)
        for note in waiting[:-1]:
            added = added.replace(texts[note], "", 1)
            parts.append(RequestPart("message", texts[note], message=note, messages=1))
        own, more = added, ""
        if given[place].get("role") not in {"assistant", "tool"}:
            said = without_stamp(texts[place])
            before, _, more = added.partition(said)
            own = before + said
        parts.append(RequestPart("message", own, message=place, messages=1))
        if more.strip():
            why = "helps a small model with this message"
            parts.append(RequestPart("tool note", more.strip(), why, message=place))
        known = longer
        waiting.clear()
    if offer := _added(known, _prompt_texts(request, offered=True)).strip():
        parts.append(RequestPart("tool note", offer, "the latest message may need these tools"))
    return parts


def _is_note(message: dict[str, Any], text: str) -> bool:
    return message.get("role") == "user" and text.startswith(MARK)


def _describe_system(text: str, system: str, request: ModelRequest) -> list[RequestPart]:
    """Return the parts of the first message: what the agent has in it, tools, and the rule."""
    own = text[: len(system)] if text.startswith(system) else ""
    parts = [RequestPart("message", own, message=0 if request.messages else None, messages=1)]
    heads = {f"- {name}(": name for name in _summaries(request.tools)}
    unnamed: list[str] = []
    for line in text[len(own) :].strip().split("\n"):
        unnamed.append(line)
        name = heads.get(line.partition("(")[0] + "(")
        if name is not None:  # the first one has the heading, too
            parts.append(RequestPart("tool", "\n".join(unnamed), "the agent may call it", name))
            unnamed.clear()
    if rule := "\n".join(unnamed).strip():
        why = "tells a small model how replies and calls look"
        parts.append(RequestPart("rule", rule, why))
    return parts


def _prompt_texts(request: ModelRequest, *, offered: bool = False) -> list[tuple[str, str]]:
    """Return the roles and texts of a prompt's messages, with the tools for the latest or not."""
    asked = request if offered else replace(request, message_tools=None)
    messages = [cast("dict[str, str]", orjson.loads(wire)) for wire in render(asked).messages]
    return [(message["role"], message["content"]) for message in messages]


def _added(shorter: list[tuple[str, str]], longer: list[tuple[str, str]]) -> str:
    """Return the text that a longer prompt has more than a shorter one that it begins with."""
    last = len(shorter) - 1
    joined = longer[last][1][len(shorter[last][1]) :].lstrip("\n") if shorter else ""
    return "\n".join([*([joined] if joined else []), *(text for _, text in longer[last + 1 :])])
