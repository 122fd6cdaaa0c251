"""The trail of a turn: the calls that were made in it, as the journal has them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Protocol

import orjson

from asterism.types.rules import fits
from asterism.types.turns import Call, EntryKind, Reply, ResultMeta, ResultState
from asterism.types.wire import text_of

TAKEN = frozenset({ResultState.OK, ResultState.UNKNOWN, ResultState.WAITING})
"""Calls that may stand in the way of others.

One whose outcome is unknown counts as done where that forbids, not where it helps.
"""
RUN = frozenset({ResultState.OK, ResultState.FAILED, ResultState.UNKNOWN})
SETTLED = frozenset({ResultState.OK, ResultState.DENIED})
"""As good as done: it succeeded, or it was not wanted."""


@dataclass(frozen=True, slots=True)
class Made:
    """A call that was made in the turn."""

    key: str
    call: Call
    state: ResultState
    said: str
    """Its result."""
    at: int

    @property
    def name(self) -> str:
        """The tool that was called."""
        return self.call.name


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a call is not made: which rule, what is right now, and the next move."""

    rule: str
    """The key of the rule."""
    text: str
    needs: str | None = None
    """The tool that has to be called first, if that is what the rule wants."""

    def meta(self) -> ResultMeta:
        """Return what is kept beside the result of the refused call."""
        return ResultMeta(ResultState.NOT_RUN, rule=self.rule, needs=self.needs)


class Noted(Protocol):
    """An entry of the journal, written or staged."""

    @property
    def kind(self) -> EntryKind:
        """What it is an entry of."""
        ...

    @property
    def body(self) -> bytes:
        """What it says."""
        ...

    @property
    def meta(self) -> str | None:
        """What is kept beside it."""
        ...

    @property
    def at(self) -> int:
        """When it was noted."""
        ...


@dataclass(slots=True)
class Trail:
    """The calls of a turn, in the order in which they came to an end."""

    made: list[Made] = field(default_factory=list[Made])
    refused: list[tuple[int, Refusal]] = field(default_factory=list[tuple[int, Refusal]])
    """Refusals with the steps they were in."""
    meant: Callable[[str, str], tuple[str, str]] = lambda name, arguments: (name, arguments)
    """From a call's name and arguments to those of the call that is meant by it."""
    _calls: dict[str, Call] = field(default_factory=dict[str, Call])
    _approved: dict[str, bool] = field(default_factory=dict[str, bool])
    _seen: int = 0

    def read(self, entries: Mapping[str, Noted]) -> None:
        """Take in what the journal has of the turn beyond what was taken in before."""
        if len(entries) == self._seen:
            return
        for key, entry in islice(entries.items(), self._seen, None):
            if entry.kind is EntryKind.REPLY:
                step = key.partition("/")[0]
                for index, call in enumerate(Reply.from_entry(entry.body, entry.meta).calls):
                    name, arguments = self.meant(call.name, call.arguments)
                    if name != call.name:
                        call = Call(call.id, name, arguments)  # noqa: PLW2901 - what it stands for
                    self._calls[f"{step}/call/{index}"] = call
            elif entry.kind is EntryKind.RESULT:
                self._read_result(key, entry)
            elif key.endswith("/decision"):
                said: dict[str, Any] = orjson.loads(entry.body)
                self._approved[_call_key(key)] = bool(said["approved"])
            elif key.endswith("/outcome"):
                self._read_outcome(_call_key(key), entry)
        self._seen = len(entries)

    def _read_result(self, key: str, entry: Noted) -> None:
        call = self._calls.get(key)
        if call is None:
            return
        meta, said = ResultMeta.from_json(entry.meta), text_of(entry.body)
        if meta.rule is not None:
            step = int(key.partition("/")[0])
            self.refused.append((step, Refusal(meta.rule, said, meta.needs)))
        elif meta.state is not ResultState.NOT_RUN:
            self.made.append(Made(key, call, meta.state, said, entry.at))

    def _read_outcome(self, key: str, entry: Noted) -> None:
        """Take in that a call which waited has run, or was denied: now is when it happened."""
        former = next((one for one in self.made if one.key == key), None)
        state = ResultMeta.from_json(entry.meta).state
        if former is None or state is ResultState.WAITING:
            return
        self.made.remove(former)
        said = text_of(entry.body)
        if self._approved.get(key):
            said = said.partition(" Result: ")[2]
        self.made.append(Made(key, former.call, state, said, entry.at))

    def any(self, pattern: str, states: frozenset[ResultState], *, but: str = "") -> bool:
        """Tell whether a call that fits a pattern stands in one of these states."""
        return any(
            one.state in states and fits(one.name, pattern) and one.name != but for one in self.made
        )

    def succeeded(self, pattern: str) -> bool:
        """Tell whether a call that fits a pattern has succeeded."""
        return any(one.state is ResultState.OK and fits(one.name, pattern) for one in self.made)

    @property
    def latest(self) -> str:
        """The tool that succeeded last, or nothing."""
        return next((one.name for one in reversed(self.made) if one.state is ResultState.OK), "")

    def last_taken(self, name: str) -> int | None:
        """Return when a tool was last called with success, perhaps or surely."""
        return max(
            (one.at for one in self.made if one.name == name and one.state in TAKEN), default=None
        )


def _call_key(key: str) -> str:
    """Return the call that a key such as `0/call/0/decision` is about."""
    return "/".join(key.split("/")[:3])
