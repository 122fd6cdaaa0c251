"""A small demo model that needs no key and no network, and says plainly that it is one."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Any, cast

import orjson

from asterism.types.turns import MARK, Call, Reply, Usage, without_stamp

if TYPE_CHECKING:
    from asterism.ports import Emit, ModelRequest

CALL = re.compile(r"^\s*(?:\[scheduled for [^\]]*\]\s*)?call\s+([\w.-]+)\s*(\{.*)?$", re.DOTALL)
ORDER = re.compile(r"^[^\w\n]*call\s+([\w.-]+)\s*(\{.*\})?[ \t]*$", re.MULTILINE)
IN_GROUP = re.compile(r"^\[group [^\]]*\]\s*")
"""What stands before a message that a group passes on; what it adds follows an empty line."""
WORD = re.compile(r"\s*\S+\s*")

ABOUT = "I am the demo model built into asterism, not a language model: I answer by a few rules."
REAL_MODEL = 'To talk to a real model, run "asterism setup".'
EXAMPLE = 'call calculator {"expression": "6 * 7"}'
GULLIBLE = "gullible"


class Demo:
    """The model `demo:guide`: shows how a conversation, streaming and tools work.

    As `demo:gullible` it also obeys whatever it reads, as language models can be made to: a line
    `call TOOL {…}` in the result of a tool is carried out like one of a person.
    """

    def __init__(self, vendor: str, options: dict[str, Any]) -> None:
        """Take what every model port takes; there is nothing to configure."""

    async def complete(self, request: ModelRequest, emit: Emit | None = None) -> Reply:
        """Answer by rule, from the last two messages alone."""
        text, call = _answer(request)
        if emit is not None:
            for word in WORD.findall(text):
                emit("text", word)
                await asyncio.sleep(0)
        sent = sum(map(len, request.messages)) + len(request.tools or b"")
        output_bytes = len(text.encode()) + (len(call.name + call.arguments) if call else 0)
        return Reply(
            text=text,
            calls=(call,) if call else (),
            usage=Usage.estimate(sent, output_bytes),
            finish="tool_calls" if call else "stop",
        )

    async def close(self) -> None:
        """There is nothing to let go of."""


def _answer(request: ModelRequest) -> tuple[str, Call | None]:
    if request.schema is not None:
        return orjson.dumps(_example(orjson.loads(request.schema))).decode(), None
    last = [orjson.loads(message) for message in request.messages[-2:]]
    tools = _names(request.tools)
    if last and last[-1].get("role") == "tool":
        order = ORDER.search(_text(last[-1])) if request.model == GULLIBLE else None
        if order is not None and order[1] in tools:
            return "", Call(f"call_{len(request.messages)}", order[1], order[2] or "{}")
        return _report(last), None
    # A note of the system may stand after what the person wrote.
    said = next((_text(each) for each in reversed(last) if each.get("role") == "user"), "")
    question = without_stamp(said)
    if passed_on := IN_GROUP.match(question):
        question = question[passed_on.end() :].partition("\n\n")[0]
    if call := CALL.match(question):
        name, arguments = call.groups()
        if name in tools:
            id = f"call_{len(request.messages)}"
            return "", Call(id, name, (arguments or "{}").strip())
        return f"{ABOUT} There is no tool named '{name}' here. {_offer(tools)}", None
    if question.startswith(MARK):
        return f"I was told: “{_short(without_stamp(question.removeprefix(MARK).lstrip()))}”", None
    echo = f"You wrote “{_short(question)}”. " if question.strip() else ""
    count = len(request.messages)
    shown_count = f"I was shown {count} message{'s' if count > 1 else ''} of this conversation."
    return f"{ABOUT} {echo}{shown_count} {_offer(tools)} {REAL_MODEL}", None


def _example(schema: dict[str, Any], room: int = 10_000) -> Any:
    """Return the simplest value that fulfils a simple JSON schema: the first of each choice.

    It has at most about `room` values.
    """
    if options := schema.get("enum"):
        return options[0]
    match schema.get("type"):
        case "object":
            parts: dict[str, Any] = schema.get("properties", {})
            inner = room // max(1, len(parts))
            return {name: _example(part, inner) for name, part in parts.items()}
        case "array":
            count = max(1, min(int(schema.get("minItems", 1)), room))
            return [_example(schema.get("items", {}), room // count)] * count
        case "integer" | "number":
            return schema.get("minimum", 0)
        case "boolean":
            return False
        case _:
            return "The demo model always takes what comes first."


def _report(last: list[dict[str, Any]]) -> str:
    result = last[-1]
    calls: list[dict[str, Any]] = last[0].get("tool_calls") or []
    named = [
        f" '{call['function']['name']}'"
        for call in calls
        if call.get("id") == result.get("tool_call_id")
    ]
    return f"The tool{named[0] if named else ''} answered: “{_short(_text(result))}”."


def _offer(tools: list[str]) -> str:
    if not tools:
        return "No tools are offered to me."
    some = ", ".join(tools[:5]) + (" …" if len(tools) > 5 else "")
    call = EXAMPLE if "calculator" in tools else f"call {tools[0]} {{}}"
    return f"Write “{call}” to see a tool at work; offered are: {some}."


def _names(tools: bytes | None) -> list[str]:
    return [tool["function"]["name"] for tool in orjson.loads(tools)] if tools else []


def _text(message: dict[str, Any]) -> str:
    content = message.get("content") or ""
    if isinstance(content, list):
        parts = cast("list[dict[str, Any]]", content)
        return " ".join(part.get("text", "") for part in parts)
    return str(content)


def _short(text: str) -> str:
    text = " ".join(text[:1000].split())
    return text if len(text) <= 200 else text[:199] + "…"
