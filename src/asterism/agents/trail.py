"""The trail of a turn: the calls that were made in it, as the journal has them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import islice
from typing import Any, Protocol

import orjson

from asterism.types.rules import fits
from asterism.types.turns import Call, EntryKind, Reply
from asterism.types.wire import text_of

_FAILED = ("Error:", "Not run:", "Cut short:")
"""How results begin of calls that did not succeed."""
_UNKNOWN = "Outcome unknown:"


class State(StrEnum):
    """What became of a call that the rules let pass."""

    OK = "ok"
    FAILED = "failed"
    UNKNOWN = "unknown"
    """It may or may not have happened: it counts as done where that forbids, not where it helps."""
    WAITING = "waiting"
    """A person is asked."""
    DENIED = "denied"


TAKEN = frozenset({State.OK, State.UNKNOWN, State.WAITING})
"""Calls that may stand in the way of others."""
RUN = frozenset({State.OK, State.FAILED, State.UNKNOWN})
SETTLED = frozenset({State.OK, State.DENIED})
"""As good as done: it succeeded, or it was not wanted."""


@dataclass(frozen=True, slots=True)
class Made:
    """A call that was made in the turn."""

    key: str
    call: Call
    state: State
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

    def beside(self) -> str:
        """Return what is kept beside the result of the refused call, as JSON."""
        kept = {"rule": self.rule} | ({"needs": self.needs} if self.needs else {})
        return orjson.dumps(kept).decode()


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
            elif key.endswith("/outcome") and '"parked"' not in (entry.meta or ""):
                self._read_outcome(_call_key(key), entry)
        self._seen = len(entries)

    def _read_result(self, key: str, entry: Noted) -> None:
        call = self._calls.get(key)
        if call is None:
            return
        beside: dict[str, Any] = orjson.loads(entry.meta) if entry.meta else {}
        said = text_of(entry.body)
        if "rule" in beside:
            step = int(key.partition("/")[0])
            self.refused.append((step, Refusal(beside["rule"], said, beside.get("needs"))))
        elif "unrun" not in beside:
            state = State.DENIED if "denied" in beside else state_of(said)
            state = State.WAITING if "parked" in beside else state
            self.made.append(Made(key, call, state, said, entry.at))

    def _read_outcome(self, key: str, entry: Noted) -> None:
        """Take in that a call which waited has run, or was denied: now is when it happened."""
        former = next((one for one in self.made if one.key == key), None)
        if former is None:
            return
        self.made.remove(former)
        said, state = text_of(entry.body), State.DENIED
        if self._approved.get(key):
            said = said.partition(" Result: ")[2]
            state = state_of(said)
        self.made.append(Made(key, former.call, state, said, entry.at))

    def any(self, pattern: str, states: frozenset[State], *, but: str = "") -> bool:
        """Tell whether a call that fits a pattern stands in one of these states."""
        return any(
            one.state in states and fits(one.name, pattern) and one.name != but for one in self.made
        )

    def succeeded(self, pattern: str) -> bool:
        """Tell whether a call that fits a pattern has succeeded."""
        return any(one.state is State.OK and fits(one.name, pattern) for one in self.made)

    @property
    def latest(self) -> str:
        """The tool that succeeded last, or nothing."""
        return next((one.name for one in reversed(self.made) if one.state is State.OK), "")

    def last_taken(self, name: str) -> int | None:
        """Return when a tool was last called with success, perhaps or surely."""
        return max(
            (one.at for one in self.made if one.name == name and one.state in TAKEN), default=None
        )


def _call_key(key: str) -> str:
    """Return the call that a key such as `0/call/0/decision` is about."""
    return "/".join(key.split("/")[:3])


def state_of(result: str) -> State:
    """Return what became of a call, by how its result begins."""
    if result.startswith((_UNKNOWN, "Error:")) and _UNKNOWN in result[:1_000]:
        return State.UNKNOWN
    return State.FAILED if result.startswith(_FAILED) else State.OK
