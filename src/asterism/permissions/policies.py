"""Policies: what an owner has decided beforehand about calls and verbs; the first that fits counts.

A policy that *allows* fits only if everything that a call does is covered by it; one that *asks* or
*denies* fits as soon as a part is. So a broad allowance never lets a stricter case slip through.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from asterism.permissions.patterns import Patterns, Reading, Test, glob
from asterism.types.effects import Effect, read_texts_at
from asterism.types.people import OWNER, OWNER_ALONE, PUBLIC, Audience, Participants, Trust

_MOST_KEPT = 4_096


class Ruling(StrEnum):
    """What a policy says."""

    ALLOW = "allow"
    ASK = "ask"
    DENY = "deny"


@dataclass(frozen=True, slots=True)
class Quota:
    """How much may go by before a person is asked."""

    most: float
    span: int
    """In milliseconds: the time that counts, up to now."""
    of: str = "calls"
    """`calls`, or `amount` for the sum of their amounts."""
    words: str = ""
    """As it was written, such as `10 per day`."""


@dataclass(frozen=True, slots=True)
class Policy:
    """One line of the authorizations. What it leaves empty, it does not ask for."""

    name: str
    ruling: Ruling
    agents: tuple[str, ...] = ()
    """Names of agents, as globs."""
    people: tuple[str, ...] = ()
    """Who speaks: `owner`, `known`, `stranger`, `person:NAME` or `role:NAME`."""
    tools: tuple[str, ...] = ()
    operations: tuple[str, ...] = ()
    """Values of the argument `operation`."""
    effects: tuple[str, ...] = ()
    """Kinds of effects, such as `send`."""
    arguments: Mapping[str, str] = field(default_factory=dict[str, str])
    """A glob, or an expression behind `re:`, for each argument that matters."""
    recipients: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    things: tuple[str, ...] = ()
    amount_up_to: float | None = None
    amount_above: float | None = None
    trust_levels: tuple[Trust, ...] = ()
    """Only in turns whose least trusted content is of one of these."""
    verbs: tuple[str, ...] = ()
    """For verbs instead of calls, such as `home.create_agent` or `block.*`."""
    reviewers: tuple[str, ...] = (OWNER,)
    """Who may answer, where it asks: `owner`, `present`, `person:NAME` or `role:NAME`."""
    quota: Quota | None = None
    reason: str = ""

    def __str__(self) -> str:
        return f"policy {self.name!r}"


@dataclass(frozen=True, slots=True)
class Wanted:
    """A call that is to be judged."""

    agent: str
    tool: str
    arguments: Mapping[str, Any]
    effects: tuple[Effect, ...]
    operation: str = ""
    trust: Trust = Trust.OWNER
    """The least trusted content that was read before it."""
    people: frozenset[str] = frozenset({OWNER})
    """Who speaks, in every way that a policy may name them."""
    asks: bool = False
    """Whether its tool wants a person to be asked each time."""
    audience: Audience = PUBLIC
    """Who may see what it brings back."""
    participants: Participants = OWNER_ALONE
    """Who is present, and sees it."""
    names: Mapping[str, str] = field(default_factory=dict[str, str])
    """What those present are called, by their ids."""
    definition: str = ""
    """The digest of its tool, as `Tool.digest` gives it."""


class Policies:
    """All policies of an owner, ready to be asked often.

    Policies are bits of a number, the first the lowest. Each part of a call gives the bits of those
    that it fits, found by look-up where a pattern has a fixed end; what is left after all parts has
    its lowest bit tested to the end. So two hundred policies cost little more than two.
    """

    def __init__(self, policies: Iterable[Policy] = ()) -> None:
        self.all = tuple(policies)
        self._calls = tuple(one for one in self.all if not one.verbs)
        self._verbs = [(one, _any_of(one.verbs)) for one in self.all if one.verbs]
        self._fitting: dict[tuple[str, str, str], int] = {}
        named = [(bit, one) for bit, one in enumerate(self._calls)]
        self._whom = [
            (_any_of(one.agents), _any_of(one.tools), _any_of(one.operations)) for _, one in named
        ]
        self._allows = sum(1 << bit for bit, one in named if one.ruling is Ruling.ALLOW)
        self._effects = _bits((bit, one.effects) for bit, one in named)
        self._people = _bits((bit, one.people) for bit, one in named)
        self._trust_levels = _bits((bit, one.trust_levels) for bit, one in named)
        self._targets = {
            name: Patterns(((bit, getattr(one, name)) for bit, one in named), reads)
            for name, reads in _TARGETS.items()
            if any(getattr(one, name) for _, one in named)
        }
        arguments = sorted({name for one in self._calls for name in one.arguments})
        self._arguments = {
            name: Patterns(
                (bit, (one.arguments[name],) if name in one.arguments else ()) for bit, one in named
            )
            for name in arguments
        }

    def __len__(self) -> int:
        return len(self.all)

    def first(self, wanted: Wanted) -> Policy | None:
        """Return the first policy that fits a call."""
        if not self._calls:
            return None
        key = (wanted.agent, wanted.tool, wanted.operation)
        fits = self._fitting.get(key)
        if fits is None:
            fits = self._about(key)
        if self._people is not None:
            fits &= self._people.any_of(wanted.people)
        if self._trust_levels is not None:
            fits &= self._trust_levels.any_of((wanted.trust,))
        if fits and self._effects is not None:
            fits &= self._effects.of_effects(wanted.effects, self._allows)
        if _is_unreadable(wanted.effects):
            # It may be done to anybody and anything.
            fits &= ~self._allows
            return self._calls[(fits & -fits).bit_length() - 1] if fits else None
        return self._first_about(fits, wanted)

    def _first_about(self, fits: int, wanted: Wanted) -> Policy | None:
        """Return the first of those policies that fits what a call is done to, and how much."""
        for name, patterns in self._targets.items():
            if not fits:
                return None
            values = [value for effect in wanted.effects for value in getattr(effect, name)]
            fits &= patterns.fitting(values, self._allows)
        for name, patterns in self._arguments.items():
            if not fits:
                return None
            fits &= patterns.fitting(read_texts_at(wanted.arguments, name), self._allows)
        while fits:
            lowest = fits & -fits
            policy = self._calls[lowest.bit_length() - 1]
            if _amounts_fit(policy, wanted):
                return policy
            fits ^= lowest
        return None

    def _about(self, key: tuple[str, str, str]) -> int:
        """Return the policies that are about such calls at all."""
        if len(self._fitting) >= _MOST_KEPT:
            self._fitting.clear()
        agent, tool, operation = key
        fits = sum(
            1 << bit
            for bit, (agents, tools, operations) in enumerate(self._whom)
            if agents(agent) and tools(tool) and operations(operation)
        )
        self._fitting[key] = fits
        return fits

    def first_for_verb(self, verb: str, people: frozenset[str]) -> Policy | None:
        """Return the first policy that fits a verb, such as `home.create_agent`."""
        for policy, named in self._verbs:
            if named(verb) and (not policy.people or not people.isdisjoint(policy.people)):
                return policy
        return None


def _is_unreadable(effects: Sequence[Effect]) -> bool:
    for one in effects:  # noqa: SIM110 -- called for each decision
        if one.unreadable:
            return True
    return False


def _amounts_fit(policy: Policy, wanted: Wanted) -> bool:
    low, high = policy.amount_above, policy.amount_up_to
    if low is None and high is None:
        return True
    allows = policy.ruling is Ruling.ALLOW
    # An amount that cannot be read may be any: it is above every bound, and nothing that allows
    # within bounds covers it.
    if allows and any(one.amount_unreadable for one in wanted.effects):
        return False
    amounts = [one.counted for one in wanted.effects if one.counted is not None]
    covers = all if allows else any
    return bool(amounts) and covers(
        (low is None or one > low) and (high is None or one <= high < math.inf) for one in amounts
    )


class _Bits:
    """For each word, the policies that name it; those that name none take any."""

    def __init__(self, named: dict[str, int], free: int) -> None:
        self._named = named
        self._free = free

    def any_of(self, words: Iterable[str]) -> int:
        fits = self._free
        for word in words:
            fits |= self._named.get(word, 0)
        return fits

    def of_effects(self, effects: Sequence[Effect], allows: int) -> int:
        """Return the policies about such effects; one that allows must cover all outside ones."""
        any_, every = 0, -1
        for one in effects:
            names = self._named.get(one.kind, 0)
            any_ |= names
            if one.kind.outside:
                every &= names
        return self._free | (any_ & every & allows) | (any_ & ~allows)


def _bits(named: Iterable[tuple[int, Sequence[str]]]) -> _Bits | None:
    by_word: dict[str, int] = {}
    free, all_ = 0, 0
    for bit, words in named:
        all_ |= 1 << bit
        if not words:
            free |= 1 << bit
        for word in words:
            by_word[word] = by_word.get(word, 0) | 1 << bit
    return _Bits(by_word, free) if free != all_ else None


def _any_of(patterns: Sequence[str]) -> Test:
    if not patterns or "*" in patterns:
        return lambda _: True
    tests = [glob(one) for one in patterns]
    return tests[0] if len(tests) == 1 else lambda text: any(test(text) for test in tests)


_TARGETS: Mapping[str, Reading] = {
    "recipients": Reading.RECIPIENT,
    "hosts": Reading.HOST,
    "paths": Reading.PATH,
    "things": Reading.TEXT,
}
