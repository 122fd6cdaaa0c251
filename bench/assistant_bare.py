"""The bare loop beside asterism in `bench.assistant`: the same weights, the same tools, no more.

It sends the whole conversation with the model's own chat template, runs the calls that come back
and asks again. It is given what a careful author of such a loop gives it: the time and the zone in
each message, calls that are written as plain JSON, a conversation that outlives a restart.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, cast

from cronsim import CronSim, CronSimError

from asterism import AsterismError
from asterism.times import read_duration, read_iso, to_ms
from asterism.tools.calculator.parser import calculate
from asterism.tools.calculator.quantities import value_text
from bench.assistant_checks import MAX_CALLS, CallRecord, Conversation, PlannedMessage

SYSTEM = (
    "You are Aria, a long-lived assistant in the home of your owner. Answer briefly and plainly, "
    "{tools}and say so when you do not know something. Each message begins "
    "with the time at which it was said, in the time zone of your owner. All times are theirs."
)
_USE_TOOLS = "use the tools where they help, "
Ask = Callable[[dict[str, Any]], Any]
_WORD = re.compile(r"\w{3,}")
_BEGINS_CALL = re.compile(r"\{\s*\"name\"\s*:")
_MAX_FOUND = 3
_MAX_OUTPUT = 512


class ContextExceeded(Exception):
    """The conversation is longer than the model's window."""


@dataclass
class BareLoop:
    """One conversation with a model and its tools, if it has any."""

    conversation: Conversation
    ask: Ask
    """Posts a chat completion to the child and returns its message."""
    tools: Sequence[Mapping[str, Any]]
    now: Callable[[], datetime]
    history: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    calls: list[CallRecord] = field(default_factory=list[CallRecord])
    memory: list[str] = field(default_factory=list[str])
    schedules: dict[str, PlannedMessage] = field(default_factory=dict[str, PlannedMessage])

    def __post_init__(self) -> None:
        """Put in what the conversation has at the beginning."""
        self.memory += [*self.conversation.blocks.values(), *self.conversation.archive]
        self.add(self.conversation.earlier)

    def add(self, messages: Sequence[tuple[str, str]]) -> None:
        """Put messages at the end of the conversation."""
        self.history += [{"role": role, "content": text} for role, text in messages]

    async def say(self, text: str) -> str:
        """Return the answer to a message; `calls` has what was called for it."""
        # In the message and not before the tools, so that what the child has read stays of use.
        stamp = f"{self.now():%A, %d %B %Y, %H:%M}, {self.conversation.timezone}"
        self.history.append({"role": "user", "content": f"[{stamp}] {text}"})
        self.calls.clear()
        while True:
            message = await self._complete()
            self.history.append(message)
            wanted = read_calls(message)
            if not wanted or len(self.calls) >= MAX_CALLS:
                return str(message.get("content") or "")
            for call_id, call in wanted:
                self.calls.append(call)
                result = {"role": "tool", "content": self.run(call)}
                self.history.append({**result, "tool_call_id": call_id} if call_id else result)

    async def _complete(self) -> dict[str, Any]:
        while True:
            system = SYSTEM.format(tools=_USE_TOOLS if self.tools else "")
            body: dict[str, Any] = {
                "messages": [{"role": "system", "content": system}, *self.history],
                "temperature": 0.2,
                "max_tokens": _MAX_OUTPUT,
            }
            if self.tools:
                body["tools"] = list(self.tools)
            try:
                return await self.ask(body)
            except ContextExceeded:
                # The oldest quarter goes; a message of the owner comes first in what is left.
                del self.history[: max(2, len(self.history) // 4)]
                while self.history and self.history[0]["role"] != "user":
                    del self.history[0]

    # -- tools -------------------------------------------------------------------------------------

    def run(self, call: CallRecord) -> str:
        """Return what a tool says; what goes wrong is told to the model."""
        try:
            arguments: Any = json.loads(call.arguments or "{}")
            if not isinstance(arguments, dict):
                return "The arguments are not a JSON object."
            tool = TOOLS.get(call.name)
            if tool is None:
                return f"There is no tool {call.name!r}."
            return tool(self, cast("dict[str, Any]", arguments))
        except (ValueError, KeyError, TypeError, AsterismError, CronSimError) as error:
            return f"That did not work: {error}"

    def calculator(self, arguments: dict[str, Any]) -> str:
        """Work out an expression."""
        return value_text(calculate(str(arguments["expression"]), self._now_ms()))

    def recall(self, arguments: dict[str, Any]) -> str:
        """Keep a text, or look for one that was kept."""
        text = str(arguments.get("text") or arguments.get("content") or "")
        if arguments.get("operation") in ("insert", "append"):
            self.memory.append(text)
            return "Stored."
        return self._find(text, self.memory)

    def search(self, arguments: dict[str, Any]) -> str:
        """Look for words in documents and in what was kept."""
        paragraphs = [
            f"{name}: {paragraph}"
            for name, text in self.conversation.documents.items()
            for paragraph in text.split("\n\n")
        ]
        return self._find(str(arguments["query"]), [*self.memory, *paragraphs])

    def schedule(self, arguments: dict[str, Any]) -> str:
        """Plan a message, list the plans, or cancel one."""
        operation, when = arguments.get("operation"), str(arguments.get("when") or "").strip()
        if operation == "list":
            lines = [f"{key}: {one.due:%c}: {one.text}" for key, one in self.schedules.items()]
            return "\n".join(lines) or "Nothing is scheduled."
        if operation == "cancel":
            self.schedules.pop(str(arguments["id"]))
            return "Cancelled."
        now, cron = self.now(), None
        if operation == "every":
            due, cron = next(CronSim(when, now)), when
        elif operation == "in":
            due = now + timedelta(seconds=read_duration(when.lower().removeprefix("in ")))
        else:
            due = read_iso(when, now.tzinfo)
        key = f"s{len(self.schedules) + 1}"
        self.schedules[key] = PlannedMessage(str(arguments["message"]), due, cron)
        return f"Scheduled as {key} for {due:%A, %d %B %Y, %H:%M}."

    def _find(self, query: str, texts: Sequence[str]) -> str:
        words = set(_WORD.findall(query.casefold()))
        ranked = sorted(texts, key=lambda text: -len(words & set(_WORD.findall(text.casefold()))))
        found = [text for text in ranked if words & set(_WORD.findall(text.casefold()))]
        return "\n".join(found[:_MAX_FOUND]) or "Nothing was found."

    def _now_ms(self) -> int:
        return to_ms(self.now())


TOOLS: dict[str, Callable[[BareLoop, dict[str, Any]], str]] = {
    "calculator": BareLoop.calculator,
    "recall": BareLoop.recall,
    "schedule": BareLoop.schedule,
    "search": BareLoop.search,
}


def read_calls(message: Mapping[str, Any]) -> list[tuple[str, CallRecord]]:
    """Return the calls of a message with their ids; small models write them as JSON in the text."""
    found: list[tuple[str, CallRecord]] = []
    for call in cast("list[dict[str, Any]]", message.get("tool_calls") or []):
        function = call["function"]
        found.append((str(call.get("id") or ""), _call(function["name"], function["arguments"])))
    if found:
        return found
    text = str(message.get("content") or "")
    for begin in _BEGINS_CALL.finditer(text):
        try:
            value, _ = json.JSONDecoder().raw_decode(text, begin.start())
        except ValueError:
            continue
        if "arguments" in value:
            found.append(("", _call(value["name"], value["arguments"])))
    return found


def _call(name: Any, arguments: Any) -> CallRecord:
    return CallRecord(str(name), arguments if isinstance(arguments, str) else json.dumps(arguments))
