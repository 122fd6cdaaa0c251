"""A model that says what a test tells it to."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, Any

import orjson

from asterism.types.turns import Reply, Usage, text_of

if TYPE_CHECKING:
    from asterism.ports import Emit, ModelRequest

Rule = Callable[["ModelRequest"], Reply | str]
Line = Reply | str | Exception | Rule
"""One answer: a reply, its text, an error to raise, or a function of the request."""

PIECE = 7


class ScriptedModel:
    """Answers with the lines of a script, one a request, and keeps the requests."""

    def __init__(
        self,
        script: Iterable[Line] = (),
        *,
        delay: float = 0.0,
        intents: Mapping[str, Sequence[Any]] | None = None,
        facts: Mapping[str, Sequence[Any]] | None = None,
    ) -> None:
        """Make a model.

        Args:
            script: What it says, a line a request.
            delay: Seconds that each answer takes.
            intents: What it reads out of requests when it is asked what they ask for: effects in
                JSON by the request's text. A request that is missing here it cannot read.
            facts: What it reads out of messages when it is asked for lasting facts: facts in JSON
                by the message's text. In a message that is missing here it finds none.
        """
        self.requests: list[ModelRequest] = []
        self.read: list[ModelRequest] = []
        """Requests that asked it what somebody wants."""
        self._intents = intents or {}
        self._facts = facts or {}
        self._script: Iterator[Line] = iter(script)
        self._delay = delay

    @classmethod
    def from_rule(cls, rule: Rule, *, delay: float = 0.0) -> ScriptedModel:
        """Answer every request with what a function makes of it."""
        return cls(repeat(rule), delay=delay)

    async def complete(self, request: ModelRequest, emit: Emit | None = None) -> Reply:
        """Say the next line; with `emit`, in small pieces that ignore where words end."""
        if "/intent/" in request.key:
            return self._read(request)
        if "/facts/" in request.key:
            self.read.append(request)
            said = text_of(request.messages[-1]).rpartition("The person said:\n")[2]
            return _whole(
                orjson.dumps({"facts": list(self._facts.get(said, ()))}).decode(), request
            )
        self.requests.append(request)
        line = next(self._script, None)
        assert line is not None, f"The script is over; request {len(self.requests)} has no line."
        if self._delay:
            await asyncio.sleep(self._delay)
        if isinstance(line, Exception):
            raise line
        said = line(request) if callable(line) else line
        reply = _whole(said, request) if isinstance(said, str) else said
        if emit is not None:
            for kind, text in (("reasoning", reply.reasoning), ("text", reply.text)):
                for start in range(0, len(text), PIECE):
                    emit(kind, text[start : start + PIECE])
                    await asyncio.sleep(0)
        return reply

    def _read(self, request: ModelRequest) -> Reply:
        """Say what a person asks for, as a good model would."""
        self.read.append(request)
        asked = text_of(request.messages[-1]).rpartition("The latest request:\n")[2]
        effects = self._intents.get(asked)
        if effects is None:
            return _whole("I cannot tell.", request)
        return _whole(orjson.dumps({"effects": list(effects)}).decode(), request)

    async def close(self) -> None:
        """There is nothing to let go of."""


def _whole(text: str, request: ModelRequest) -> Reply:
    sent = sum(map(len, request.messages))
    return Reply(text, usage=Usage.estimate(sent, len(text.encode())))
