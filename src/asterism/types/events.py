"""Events: what was done, by whom and why, each bound to the one before it by its hash."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, cast

import orjson

NOTHING = bytes(32)
"""What the first event of a chain has before it."""
ANCHORED = "audit.anchored"
"""The kind of event that holds how far other chains had come."""
EMPTIED = "audit.emptied"
"""The kind of event that names the events whose bodies were forgotten: `emptied` has, by chain, the
first and the last number of each run of them."""
_HOME = "home:"
_LARGEST = 16_384
_LONGEST = 2_000


@dataclass(frozen=True, slots=True)
class Event:
    """Something that was done or refused, before it has its place in a chain."""

    kind: str
    """A thing and what became of it, such as `call.denied`."""
    actor: str
    """Who did it, such as `owner`, `agent:aria` or `person:anna`."""
    at: int
    body: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """What else is to be known, as JSON: `what`, `verdict`, `reason`, and `because`, a list of
    `{what, from, trust}` that leads from what was read to what was decided."""
    agent_id: str | None = None
    turn_id: str | None = None


@dataclass(frozen=True, slots=True)
class Recorded:
    """An event in its place."""

    chain: str
    number: int
    at: int
    kind: str
    actor: str
    agent_id: str | None
    turn_id: str | None
    body: dict[str, Any] | None
    """None: forgotten."""
    salt: bytes | None
    digest: bytes
    hash: bytes


@dataclass(frozen=True, slots=True)
class Flaw:
    """Where a chain is not as it was written."""

    chain: str
    number: int | None
    what: str


@dataclass(frozen=True, slots=True)
class Head:
    """How far a chain has come."""

    chain: str
    length: int
    hash: bytes


@dataclass(slots=True)
class Verified:
    """What came of going through all chains."""

    events: int = 0
    forgotten: int = 0
    """Events whose body is gone; that they were there, and when, is not."""
    flaws: list[Flaw] = field(default_factory=list[Flaw])
    heads: list[Head] = field(default_factory=list[Head])

    @property
    def sound(self) -> bool:
        """Whether every event is as it was written."""
        return not self.flaws


def home_chain(constellation: str) -> str:
    """Return the chain of what is done to a constellation as a whole; agents have their ids."""
    return f"{_HOME}{constellation}"


def is_home(chain: str) -> bool:
    """Tell whether a chain is that of a constellation."""
    return chain.startswith(_HOME)


def body_bytes(body: Mapping[str, Any]) -> bytes:
    """Return a body as it is stored: JSON in which very long texts are cut."""
    made = _json(body)
    return made if len(made) <= _LARGEST else _json(_cut(body))


def _json(body: object) -> bytes:
    try:
        return orjson.dumps(body, default=str)
    except TypeError:  # a lone surrogate, which is not UTF-8, or a key that is no text
        said = json.dumps(body, default=str, separators=(",", ":"), ensure_ascii=False)
        return said.encode("utf-8", "replace")


def _cut(value: object) -> object:
    if isinstance(value, str):
        if len(value) <= _LONGEST:
            return value
        return f"{value[:_LONGEST]}… ({len(value):,} characters)"
    if isinstance(value, Mapping):
        named = cast("Mapping[object, object]", value)
        return {str(name): _cut(one) for name, one in list(named.items())[:_MOST]}
    if isinstance(value, list | tuple):
        return [_cut(one) for one in cast("Sequence[object]", value)[:_MOST]]
    return value


_MOST = 1_000


def digest_of(salt: bytes, body: bytes) -> bytes:
    """Return what stands for a body in the chain; without the salt, it tells nothing."""
    return sha256(salt + body).digest()


def hash_of(before: bytes, digest: bytes, facts: Sequence[str | int | None]) -> bytes:
    """Return the hash of an event.

    Args:
        before: The hash of the event before it.
        digest: What stands for its body.
        facts: Chain, number, at, kind, actor, agent and turn, in this order.
    """
    # JSON says where each fact ends, and tells a text from a number and from nothing.
    return sha256(before + digest + orjson.dumps(facts)).digest()


@dataclass(frozen=True, slots=True)
class Figures:
    """How much there is and how much waits, as the store knows it."""

    agents: int = 0
    inbox: int = 0
    """Messages and decisions that wait for their turn."""
    oldest: int | None = None
    """When the one that has waited longest came in."""
    approvals: int = 0
    notices: int = 0
    deliveries: dict[str, int] = field(default_factory=dict[str, int])
    """What is not sent, by state."""
    schedules: int = 0
    money: dict[str, int] = field(default_factory=dict[str, int])
    """Nano-dollars of all months: `spent`, `presumed` (perhaps billed) and `reserved`."""
