"""The one decision about a call, a verb or a write to memory; policies, grants, their patterns."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, replace
from enum import Enum, StrEnum
from typing import Any

from asterism.patterns import (
    InvalidPattern,
    RegularExpression,
    TooMuchWork,
    compile_glob,
    compile_pattern,
)
from asterism.records import dataclass
from asterism.types.agents import OWNER, OWNER_ALONE, PUBLIC, Audience, Participants, Trust
from asterism.types.memory import Permission
from asterism.types.permissions import (
    PRESENT,
    Doubt,
    DoubtReason,
    Effect,
    EffectKind,
    Grant,
    amount_of,
    amount_within,
    does_no_more,
    exact_arguments,
    leaves_of,
    read_texts_at,
    texts_at,
)
from asterism.types.values import (
    host_of,
    host_with_all_letters,
    plain_name,
    plain_path,
    recipients_in,
)

Test = Callable[[str], bool]
"""Tells whether a text matches a pattern."""

_BEYOND_HOST = re.compile(r"[/?#@]")
_UPWARDS = re.compile(
    r"(?:^|[/\\]|%(?:25)*(?:2f|5c))(?:\.|%(?:25)*2e){2}(?:[/\\]|%(?:25)*(?:2f|5c)|$)",
    re.IGNORECASE,
)
_SEPARATOR = re.compile(r"[,;]")
_DISPLAY_FORM = re.compile(r"[^<>]*<([^<>]*)>")
_MAILTO = re.compile(r"mailto:\s*", re.IGNORECASE)


class PatternKind(Enum):
    """How a text is read before it is compared."""

    TEXT = "text"
    RECIPIENT = "recipient"
    HOST = "host"
    PATH = "path"

    def read(self, text: str) -> tuple[str, ...] | None:
        """Return the values in a text, in the form for comparison; None if it is unreadable."""
        if self is PatternKind.RECIPIENT:
            return recipients_in(text)
        if self is PatternKind.TEXT:
            return (text,)
        plain = host_of(text) if self is PatternKind.HOST else _certain_path(text)
        return None if plain is None else (plain,)


def _certain_path(path: str) -> str | None:
    """Return a path in plain form; None if it is not certain which file it means.

    The meaning of `..`, or of the home of another user, depends on who opens it.
    """
    plain = plain_path(path)
    return None if plain is None or plain.startswith(("..", "~", "$")) else plain


def glob(pattern: str, *, loosely: bool = False) -> Test:
    """Compile a glob, where `*` matches any text, or a regular expression after `re:`.

    With `loosely`, an expression ignores case, and `..` in a text is allowed. The test may raise
    `TooMuchWork` for a long text.
    """
    if pattern.startswith("re:"):
        return _test(lambda: compile_pattern(pattern[3:], "is" if loosely else "s"))
    if not _is_glob(pattern):
        return pattern.__eq__
    fits = _test(lambda: compile_glob(pattern, {"*": ".*", "?": "."}))
    if loosely or "/" not in pattern:
        return fits
    # `..` leaves the folder or the address that the pattern means.
    return lambda text: fits(text) and not _UPWARDS.search(text)


def _test(compile_: Callable[[], RegularExpression]) -> Test:
    try:
        return compile_().matches
    except InvalidPattern:  # of a grant that was stored before this was refused
        return lambda _: False


def path_glob(pattern: str) -> Test:
    """Compile a glob for paths: `*` matches within a folder, `**` also in folders below it."""
    pieces = _PATH_WILDCARD.split(plain_path(pattern) or pattern)
    wildcards = {"/**": "(?:/.*)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    fits = _test(lambda: compile_glob(pieces, wildcards))

    def test(path: str) -> bool:
        plain = plain_path(path)
        return plain is not None and fits(plain)

    return test


_PATH_WILDCARD = re.compile(r"(/\*\*(?=/|$)|\*\*|\*|\?)")


def host_glob(pattern: str) -> str:
    """Return a pattern for hosts in the spelling in which hosts are compared."""
    below = "*." if pattern.startswith("*.") else ""
    name = pattern.removeprefix(below)
    # With a path, a user name or a port it is more than a host, and matches no host.
    if not _is_glob(name) and not _BEYOND_HOST.search(name) and name.count(":") != 1:
        name = host_of(name) or name
    return (below + name).lower().removesuffix(".")


def recipient_globs(pattern: str) -> tuple[str, ...]:
    """Return the recipients that a pattern means, in the form for comparison."""
    if not _is_glob(pattern):
        return recipients_in(pattern) or (pattern,)
    recipients: list[str] = []
    for part in _SEPARATOR.split(plain_name(pattern) or pattern):
        display = _DISPLAY_FORM.fullmatch(part.strip())
        recipient = _MAILTO.sub("", (display[1] if display else part).strip(), count=1)
        local, at, domain = recipient.rpartition("@")
        recipients.append(f"{local.lower()}@{host_glob(domain)}" if at and local else recipient)
    return tuple(recipient for recipient in recipients if recipient) or (pattern,)


def _loosely(text: str) -> str:
    return "".join(text.split()).lower()


def _spellings(recipient: str) -> set[str]:
    """Return every spelling of a recipient that a denying pattern may use; empty if only one."""
    lowered = recipient.lower()
    if lowered == recipient and " " not in recipient and "xn--" not in recipient:
        return set()
    spellings = {lowered, _loosely(recipient)}
    local, at, host = recipient.rpartition("@")
    if at and "xn--" in host:
        spellings.add(f"{local}@{host_with_all_letters(host)}")
    return spellings


def _is_glob(pattern: str) -> bool:
    return "*" in pattern or "?" in pattern


class Patterns:
    """The patterns of many policies, one bit each; tells in one step which of them a text fits."""

    def __init__(
        self, named: Iterable[tuple[int, Sequence[str]]], reading: PatternKind = PatternKind.TEXT
    ) -> None:
        self._reading = reading
        self._free = 0
        self._named = 0
        self._exactly = _Index()
        self._loosely = _Index(loosely=True)
        """For policies that deny or ask: case and spaces in an account are ignored."""
        self._changed = _Index(loosely=True)
        """The loose patterns that differ from the exact ones."""
        for bit, patterns in named:
            if patterns:
                self._named |= 1 << bit
            else:
                self._free |= 1 << bit
            for pattern in patterns:
                self._add(1 << bit, pattern)

    def fitting(self, values: Sequence[str] | None, allows: int) -> int:
        """Return the policies that fit a call with these values.

        A policy in `allows` must have a pattern for every value, any other policy for at least one.
        A value that cannot be read, or is None, fits every pattern of the other policies and no
        pattern of a policy in `allows`.
        """
        if values is None:
            return self._free | (self._named & ~allows)
        if not values:
            return self._free
        any_, every = 0, -1
        try:
            for value in values:
                for text in self._texts(value):
                    fits = self._exactly.of(text)
                    every &= fits
                    any_ |= fits
                    if self._reading is PatternKind.RECIPIENT:
                        any_ |= self._loosely_of(text)
        except TooMuchWork:
            any_, every = self._named, 0
        return self._free | (every & allows) | (any_ & ~allows)

    def of(self, value: str) -> int:
        """Return the policies whose patterns a value fits; none if it cannot be read."""
        try:
            texts = self._texts(value)
            fits = -1 if texts else 0
            for text in texts:
                fits &= self._exactly.of(text)
        except TooMuchWork:
            return 0
        return fits

    def _texts(self, value: str) -> Sequence[str]:
        """Return the values in a text, or raise `TooMuchWork` where it cannot be read."""
        texts = self._reading.read(value)
        if texts is None:
            raise TooMuchWork
        return texts

    def _loosely_of(self, text: str) -> int:
        spellings = _spellings(text)
        if not spellings:
            return self._changed.of(text)
        fits = 0
        for spelling in spellings:
            fits |= self._loosely.of(spelling)
        return fits

    def _add(self, bit: int, pattern: str) -> None:
        if self._reading is PatternKind.RECIPIENT:
            self._add_recipient(bit, pattern)
        elif pattern.startswith("re:") or self._reading is PatternKind.TEXT:
            self._exactly.add(bit, pattern)
        elif self._reading is PatternKind.PATH:
            self._exactly.add_path(bit, pattern)
        else:
            self._exactly.add(bit, host_glob(pattern))

    def _add_recipient(self, bit: int, pattern: str) -> None:
        is_expression = pattern.startswith("re:")
        for recipient in (pattern,) if is_expression else recipient_globs(pattern):
            loose = recipient if is_expression else _loosely(recipient)
            self._exactly.add(bit, recipient)
            self._loosely.add(bit, loose)
            if is_expression or loose != recipient or "/" in recipient:
                self._changed.add(bit, loose)


class _Index:
    """An index of patterns.

    Patterns with a fixed beginning or end are found by it; only the rest is tried one by one.
    """

    def __init__(self, *, loosely: bool = False) -> None:
        self._loosely = loosely
        self._exact: dict[str, int] = {}
        self._starts: dict[int, dict[str, int]] = {}
        self._ends: dict[int, dict[str, int]] = {}
        self._below: dict[str, int] = {}
        self._rest: list[tuple[int, Test]] = []

    def of(self, text: str) -> int:
        """Return the policies whose patterns a text fits."""
        fits = self._exact.get(text, 0)
        for length, by_start in self._starts.items():
            fits |= by_start.get(text[:length], 0)
        for length, by_end in self._ends.items():
            if len(text) >= length:
                fits |= by_end.get(text[-length:], 0)
        if self._below:
            fits |= self._below_of(text)
        for bit, test in self._rest:
            if test(text):
                fits |= bit
        return fits

    def _below_of(self, path: str) -> int:
        fits = self._below.get(path, 0)
        while (cut := path.rfind("/")) > 0:
            path = path[:cut]
            fits |= self._below.get(path, 0)
        return fits | self._below.get("/", 0)

    def add_path(self, bit: int, pattern: str) -> None:
        """Add a pattern for paths."""
        plain = plain_path(pattern) or pattern
        if plain.endswith("/**") and not _is_glob(plain[:-3]):
            _put(self._below, plain[:-3] or "/", bit)
        elif _is_glob(plain):
            self._rest.append((bit, path_glob(pattern)))
        else:
            _put(self._exact, plain, bit)

    def add(self, bit: int, pattern: str) -> None:
        """Add a pattern for texts."""
        stars = pattern.count("*")
        if pattern.startswith("re:") or "?" in pattern or "/" in pattern or stars > 1:
            self._rest.append((bit, glob(pattern, loosely=self._loosely)))
        elif stars == 0:
            _put(self._exact, pattern, bit)
        elif pattern.endswith("*"):
            _put(self._starts.setdefault(len(pattern) - 1, {}), pattern[:-1], bit)
        elif pattern.startswith("*"):
            _put(self._ends.setdefault(len(pattern) - 1, {}), pattern[1:], bit)
        else:
            self._rest.append((bit, glob(pattern)))


def _put(bits: dict[str, int], text: str, bit: int) -> None:
    bits[text] = bits.get(text, 0) | bit


_MAX_KEPT = 4_096
_MAX_KEPT_LENGTH = 200


class Ruling(StrEnum):
    """The result of a policy."""

    ALLOW = "allow"
    ASK = "ask"
    DENY = "deny"


@dataclass(frozen=True, slots=True)
class Quota:
    """How much is allowed before a person is asked."""

    most: float
    span: int
    """Milliseconds: the period before now that counts."""
    of: str = "calls"
    """`calls`, or `amount` for the sum of their amounts."""
    words: str = ""
    """As it was written, such as `10 per day`."""


@dataclass(frozen=True, slots=True)
class Policy:
    """One policy of the authorizations. An empty field matches every call."""

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
    """Only in turns whose least trusted content has one of these levels."""
    verbs: tuple[str, ...] = ()
    """For verbs instead of calls, such as `agent.create` or `block.*`."""
    reviewers: tuple[str, ...] = (OWNER,)
    """Who may answer when it asks: `owner`, `present`, `person:NAME` or `role:NAME`."""
    quota: Quota | None = None
    reason: str = ""

    def __str__(self) -> str:
        return f"policy {self.name!r}"


@dataclass(frozen=True, slots=True)
class CallRequest:
    """A call that is waiting for a decision."""

    agent: str
    tool: str
    arguments: Mapping[str, Any]
    effects: tuple[Effect, ...]
    operation: str = ""
    trust: Trust = Trust.OWNER
    """The trust of the least trusted content that was read before it."""
    people: frozenset[str] = frozenset({OWNER})
    """Who speaks, with every name that a policy may use for them."""
    asks: bool = False
    """Whether its tool requires an approval each time."""
    audience: Audience = PUBLIC
    """Who may see its result."""
    participants: Participants = OWNER_ALONE
    """Who is present and will see the result."""
    names: Mapping[str, str] = field(default_factory=dict[str, str])
    """The names of those present, by their ids."""
    definition: str = ""
    """The digest of its tool, from `Tool.digest`."""


class Policies:
    """All policies of an owner, compiled for many decisions.

    Each policy is one bit of a number, the first policy the lowest bit. Each part of a call gives
    the bits of the policies that it fits, by look-up where a pattern has a fixed end. The bits that
    remain after all parts are tested from the lowest. So two hundred policies cost little more than
    two.
    """

    def __init__(self, policies: Iterable[Policy] = ()) -> None:
        self.all = tuple(policies)
        self._calls = tuple(policy for policy in self.all if not policy.verbs)
        self._verbs = [(policy, _any_of(policy.verbs)) for policy in self.all if policy.verbs]
        self._fitting: dict[tuple[str, str, str], int] = {}
        named = [(bit, policy) for bit, policy in enumerate(self._calls)]
        self._whom = [
            (_any_of(policy.agents), _any_of(policy.tools), _any_of(policy.operations))
            for _, policy in named
        ]
        self._allows = sum(1 << bit for bit, policy in named if policy.ruling is Ruling.ALLOW)
        self._effects = _bits((bit, policy.effects) for bit, policy in named)
        self._people = _bits((bit, policy.people) for bit, policy in named)
        self._trust_levels = _bits((bit, policy.trust_levels) for bit, policy in named)
        self._targets = {
            name: Patterns(((bit, getattr(policy, name)) for bit, policy in named), reads)
            for name, reads in _TARGETS.items()
            if any(getattr(policy, name) for _, policy in named)
        }
        arguments = sorted({name for call in self._calls for name in call.arguments})
        self._arguments = {
            name: Patterns(
                (bit, (policy.arguments[name],) if name in policy.arguments else ())
                for bit, policy in named
            )
            for name in arguments
        }

    def __len__(self) -> int:
        return len(self.all)

    def first(self, wanted: CallRequest) -> Policy | None:
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
            # Its targets may be anybody and anything.
            fits &= ~self._allows
            return self._calls[(fits & -fits).bit_length() - 1] if fits else None
        return self._first_about(fits, wanted)

    def _first_about(self, fits: int, wanted: CallRequest) -> Policy | None:
        """Return the first of these policies that fits the targets and amounts of a call."""
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
        """Return the policies for this agent, tool and operation."""
        if len(self._fitting) >= _MAX_KEPT:
            self._fitting.clear()
        agent, tool, operation = key
        fits = 0
        for bit, (agents, tools, operations) in enumerate(self._whom):
            try:
                is_meant = agents(agent) and tools(tool) and operations(operation)
            except TooMuchWork:
                is_meant = not self._allows >> bit & 1
            fits |= is_meant << bit
        if len(operation) <= _MAX_KEPT_LENGTH:
            self._fitting[key] = fits
        return fits

    def first_for_verb(self, verb: str, people: frozenset[str]) -> Policy | None:
        """Return the first policy that fits a verb, such as `agent.create`."""
        for policy, named in self._verbs:
            if named(verb) and (not policy.people or not people.isdisjoint(policy.people)):
                return policy
        return None


def _is_unreadable(effects: Sequence[Effect]) -> bool:
    for effect in effects:  # noqa: SIM110 -- called for each decision
        if effect.unreadable:
            return True
    return False


def _amounts_fit(policy: Policy, wanted: CallRequest) -> bool:
    low, high = policy.amount_above, policy.amount_up_to
    if low is None and high is None:
        return True
    allows = policy.ruling is Ruling.ALLOW
    # An unreadable amount may have any value: it is above every bound, and no policy that allows
    # within bounds covers it.
    if allows and any(effect.amount_unreadable for effect in wanted.effects):
        return False
    amounts = [effect.counted for effect in wanted.effects if effect.counted is not None]
    covers = all if allows else any
    return bool(amounts) and covers(
        (low is None or amount > low) and (high is None or amount <= high < math.inf)
        for amount in amounts
    )


class _Bits:
    """For each word, the policies that name it; a policy without words accepts every word."""

    def __init__(self, named: dict[str, int], free: int) -> None:
        self._named = named
        self._free = free

    def any_of(self, words: Iterable[str]) -> int:
        fits = self._free
        for word in words:
            fits |= self._named.get(word, 0)
        return fits

    def of_effects(self, effects: Sequence[Effect], allows: int) -> int:
        """Return the policies for these effects; one that allows must cover all outside effects."""
        any_, every = 0, -1
        for effect in effects:
            names = self._named.get(effect.kind, 0)
            any_ |= names
            if effect.kind.outside:
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
    tests = [glob(pattern) for pattern in patterns]
    return tests[0] if len(tests) == 1 else lambda text: any(test(text) for test in tests)


_TARGETS: Mapping[str, PatternKind] = {
    "recipients": PatternKind.RECIPIENT,
    "hosts": PatternKind.HOST,
    "paths": PatternKind.PATH,
    "things": PatternKind.TEXT,
}


class GrantSet:
    """The grants of a constellation that have not been revoked.

    Grants with an exact value for an argument are found by that value, so their number does not
    matter; the other grants of a tool are tried one by one.
    """

    def __init__(self, grants: Iterable[Grant] = ()) -> None:
        self.all = tuple(grant for grant in grants if grant.revoked_at_ms is None)
        self._exact: dict[str, dict[str, dict[str, list[_Compiled]]]] = {}
        self._rest: dict[str, list[_Compiled]] = {}
        self._globs: list[_Compiled] = []
        for grant in self.all:
            self._add(_Compiled(grant))

    def __len__(self) -> int:
        return len(self.all)

    def covering(
        self,
        agent_id: str,
        wanted: CallRequest,
        turn_id: str,
        now: int,
        counts: Callable[[Grant], bool] = lambda _: True,
    ) -> Grant | None:
        """Return a grant that covers a call at a moment, among the grants that count."""
        for name, by_value in self._exact.get(wanted.tool, {}).items():
            for value in texts_at(wanted.arguments, name):
                for compiled in by_value.get(value, ()):
                    if counts(compiled.grant) and compiled.covers(agent_id, wanted, turn_id, now):
                        return compiled.grant
        for compiled in self._rest.get(wanted.tool, ()):
            if counts(compiled.grant) and compiled.covers(agent_id, wanted, turn_id, now):
                return compiled.grant
        for compiled in self._globs:
            meant = counts(compiled.grant) and compiled.names(wanted.tool)
            if meant and compiled.covers(agent_id, wanted, turn_id, now):
                return compiled.grant
        return None

    def _add(self, compiled: _Compiled) -> None:
        tool = compiled.grant.tool
        if any(char in tool for char in "*?"):
            self._globs.append(compiled)
            return
        for name, value in compiled.grant.pattern.items():
            if not value.startswith("re:") and not any(char in value for char in "*?"):
                by_name = self._exact.setdefault(tool, {})
                by_name.setdefault(name, {}).setdefault(value, []).append(compiled)
                return
        self._rest.setdefault(tool, []).append(compiled)


def _all_fit(test: Test, values: Sequence[str]) -> bool:
    try:
        return all(test(value) for value in values)
    except TooMuchWork:
        return False


class _Compiled:
    """A grant with its patterns compiled."""

    __slots__ = ("_tests", "grant", "names")

    def __init__(self, grant: Grant) -> None:
        self.grant = grant
        self.names = glob(grant.tool)
        self._tests = [(name, glob(value)) for name, value in grant.pattern.items()]

    def covers(self, agent_id: str, wanted: CallRequest, turn_id: str, now: int) -> bool:
        grant = self.grant
        if grant.agent_id is not None and grant.agent_id != agent_id:
            return False
        if grant.turn_id is not None and grant.turn_id != turn_id:
            return False
        if grant.until_ms is not None and now >= grant.until_ms:
            return False
        if grant.uses is not None and grant.uses <= 0:
            return False
        for name, test in self._tests:
            values = read_texts_at(wanted.arguments, name)
            if not values or not _all_fit(test, values):
                return False
        return self._is_within_limits(wanted)

    def _is_within_limits(self, wanted: CallRequest) -> bool:
        grant = self.grant
        if any(effect.unreadable for effect in wanted.effects):
            return False
        if grant.definition is not None and grant.definition != wanted.definition:
            return False
        if grant.arguments is not None and (
            leaves_of(wanted.arguments) is None
            or grant.arguments != exact_arguments(wanted.arguments)
        ):
            return False
        if grant.amount is not None and not amount_within(wanted.effects, grant.amount):
            return False
        return grant.effects is None or does_no_more(
            wanted.effects, grant.effects, amounts=grant.amount is None
        )


SYSTEM = "system"


class Act(StrEnum):
    """The kinds of action, the mildest first."""

    READ = "read"
    TALK = "talk"
    """Say something to an agent."""
    CALL = "call"
    """Run a tool."""
    APPEND = "append"
    OVERWRITE = "overwrite"
    DELETE = "delete"
    """Archive or undo text that others wrote."""
    GOVERN = "govern"
    """Change who may see or do what."""


@dataclass(frozen=True, slots=True)
class Actor:
    """Who wants to act."""

    kind: str
    """`owner`, `person`, `agent`, or `system` for rules that an owner has set."""
    id: str
    name: str
    trust: Trust = Trust.OWNER
    """The trust of the least trusted content that the actor has read for this."""
    roles: frozenset[str] = frozenset()

    def __str__(self) -> str:
        return self.kind if self.kind in (OWNER, SYSTEM) else f"{self.kind}:{self.name}"

    @property
    def tokens(self) -> frozenset[str]:
        """Every name that a policy or an approval may use for them."""
        if self.kind == OWNER:
            return frozenset({OWNER})
        named = {f"{self.kind}:{self.name}", f"{self.kind}:{self.id}", self.trust.value}
        return frozenset(named | {f"role:{role}" for role in self.roles})


@dataclass(frozen=True, slots=True)
class Resource:
    """The target of an action."""

    kind: str
    """`block`, `passage`, `tool`, or the noun of a verb, such as `agent`."""
    label: str
    permission: Permission | None = None
    """The actor's permission on a memory; None: the actor may not see it."""
    trust: Trust | None = None
    """The trust of the text that would be removed; None: no text would be."""
    read_only_part: str | None = None
    """The field or section that only the owner may write, if the action changes one."""
    wanted: CallRequest | None = None
    """For a tool, the call."""
    verb: str = ""
    """For a verb, its name, such as `agent.create`."""


@dataclass(frozen=True, slots=True)
class Authority:
    """The decisions that an owner has made in advance."""

    trusted: frozenset[Trust] = frozenset()
    """Levels whose content may change blocks, besides the owner and known persons."""
    policies: Policies = field(default_factory=Policies)
    roles: Mapping[str, frozenset[Act]] = field(default_factory=dict[str, "frozenset[Act]"])
    """The actions that persons with a role may do by verbs."""


class LiveAuthority:
    """The current authority, rebuilt when its source changes."""

    def __init__(self, source: Any, make: Callable[[Any], Authority]) -> None:
        """Set the source: `source.current` is the input of `make`, such as the settings."""
        self._source = source
        self._make = make
        self._made_of: object = None
        self._made = Authority()

    def __call__(self) -> Authority:
        """Return the current authority."""
        current = self._source.current
        if current is not self._made_of:
            self._made, self._made_of = self._make(current), current
        return self._made


@dataclass(frozen=True, slots=True)
class Situation:
    """The circumstances of an action."""

    authority: Authority = field(default_factory=Authority)
    grants: GrantSet = field(default_factory=GrantSet)
    doubt: Callable[[tuple[Effect, ...]], Doubt | None] | None = None
    """Returns why trusted text does not cover effects, after everything that was read; None where
    readings are not recorded."""
    now: int = 0
    turn_id: str = ""
    used: Mapping[str, float] = field(default_factory=dict[str, float])
    """How much of each quota is used, by the policy's name."""
    givers: Mapping[str, frozenset[str]] = field(default_factory=dict[str, "frozenset[str]"])
    """Every name that a policy may use for the givers of grants, by their ids."""


@dataclass(frozen=True, slots=True)
class Allow:
    """The action is allowed."""

    reason: str = ""
    policy: str = ""
    """The name of the policy that allows it."""
    grant: str = ""
    """The id of the grant that allows it."""


@dataclass(frozen=True, slots=True)
class Ask:
    """The action needs an approval."""

    reason: str
    reviewers: tuple[str, ...] = (OWNER,)
    """Who may approve: `owner`, `present`, `person:…` or `role:…`."""
    policy: str = ""
    because: tuple[DoubtReason, ...] = ()
    """How untrusted text led to this action."""


@dataclass(frozen=True, slots=True)
class Deny:
    """The action is denied, with the reason."""

    reason: str
    policy: str = ""


Verdict = Allow | Ask | Deny

ALLOWED = Allow()
ROLES: Mapping[str, frozenset[Act]] = {
    "viewer": frozenset({Act.READ}),
    "partner": frozenset({Act.READ, Act.TALK}),
    "agent-service": frozenset({Act.READ, Act.TALK}),
    "operator": frozenset({Act.READ, Act.TALK, Act.APPEND}),
    "editor": frozenset({Act.READ, Act.TALK, Act.APPEND, Act.OVERWRITE}),
    "admin": frozenset(Act),
}
"""Roles that need no definition."""
_ALLOWED: dict[Permission, frozenset[Act]] = {
    Permission.READ_ONLY: frozenset({Act.READ}),
    Permission.PARTNER: frozenset({Act.READ}),
    Permission.HUMAN: frozenset({Act.READ}),
    Permission.APPEND: frozenset({Act.READ, Act.APPEND}),
    Permission.READ_WRITE: frozenset({Act.READ, Act.APPEND, Act.OVERWRITE}),
    Permission.ADMIN: frozenset(Act),
}
_ASKED: dict[Permission, str] = {Permission.PARTNER: OWNER, Permission.HUMAN: PRESENT}
"""Permissions with which a write waits for an approval, and whose."""
_HARSH = frozenset({EffectKind.PAY, EffectKind.GRANT, EffectKind.DELETE, EffectKind.RUN})
"""Effects that only the owner may request without an approval."""
_READ = {
    Trust.KNOWN: "a message of somebody else",
    Trust.STRANGER: "a message of a stranger",
    Trust.TOOL: "the result of a tool",
    Trust.DOCUMENT: "a document",
    Trust.WEB: "text from the web",
}


def decide(
    actor: Actor, act: Act, resource: Resource, situation: Situation | None = None
) -> Verdict:
    """Allow, ask or deny, with a reason that a person (and a model) understands."""
    if actor.kind in (OWNER, SYSTEM):
        return ALLOWED
    now = situation or _ORDINARY
    if resource.wanted is not None:
        return _call(actor, resource.wanted, now)
    if resource.verb:
        return _verb(actor, act, resource, now)
    return _memory(actor, act, resource, now)


_ORDINARY = Situation()


# -- calls -----------------------------------------------------------------------------------------


def _call(actor: Actor, wanted: CallRequest, now: Situation) -> Verdict:
    policy = now.authority.policies.first(wanted)
    if policy is not None and policy.ruling is Ruling.DENY:
        why = policy.reason or f"{policy} denies it"
        return Deny(f"This call of {wanted.tool} is not allowed: {why}.", policy.name)
    owners = now.grants.covering(actor.id, wanted, now.turn_id, now.now, _by_owner)
    if owners is not None:
        return _granted(owners)
    verdict = _ungranted(actor, wanted, policy, now)
    if not isinstance(verdict, Ask) or not now.givers:
        return verdict
    # A grant from another person covers only the calls that this person may approve.
    may = _may_answer(verdict.reviewers, now.givers)
    other = now.grants.covering(actor.id, wanted, now.turn_id, now.now, may)
    return verdict if other is None else _granted(other)


def _ungranted(actor: Actor, wanted: CallRequest, policy: Policy | None, now: Situation) -> Verdict:
    if policy is not None:
        return _by_policy(policy, wanted, now)
    if wanted.asks:
        return _by_audience(wanted, Ask(f"{wanted.tool} asks before each call"))
    return _by_audience(wanted, _by_trust(actor, wanted, now))


def _granted(grant: Grant) -> Allow:
    return Allow(f"grant {grant.id} of {grant.given_by}", grant=grant.id)


def _by_owner(grant: Grant) -> bool:
    return grant.given_by == OWNER


def _may_answer(
    reviewers: tuple[str, ...], givers: Mapping[str, frozenset[str]]
) -> Callable[[Grant], bool]:
    def may(grant: Grant) -> bool:
        return names_one_of(reviewers, givers.get(grant.given_by, frozenset()))

    return may


def names_one_of(reviewers: Iterable[str], tokens: frozenset[str]) -> bool:
    """Tell whether reviewers name the person with these tokens; the case of roles is ignored.

    Only tokens for a person or a role count: being a stranger makes nobody a reviewer.
    """
    names = {name for name in map(_as_reviewer, tokens) if name.partition(":")[0] in _REVIEWERS}
    return not names.isdisjoint(map(_as_reviewer, reviewers))


_REVIEWERS = frozenset({OWNER, PRESENT, "person", "role"})


def _as_reviewer(word: str) -> str:
    return word.casefold() if word.startswith("role:") else word


def _by_policy(policy: Policy, wanted: CallRequest, now: Situation) -> Verdict:
    if policy.ruling is Ruling.ASK:
        return Ask(policy.reason or f"{policy} requires it", policy.reviewers, policy.name)
    quota = policy.quota
    if quota is not None:
        this = 1.0
        if quota.of == "amount":
            this = amount_of(wanted.effects)
        if now.used.get(policy.name, 0.0) + this > quota.most:
            return Ask(
                f"{policy} allows {quota.words or quota.most}, and this call would exceed it",
                policy.reviewers,
                policy.name,
            )
    return Allow(str(policy), policy=policy.name)


def _by_trust(actor: Actor, wanted: CallRequest, now: Situation) -> Verdict:
    outside = _outside(wanted.effects)
    if not outside:
        return ALLOWED
    harsh = next((effect for effect in outside if effect.kind in _HARSH), None)
    if harsh is not None and OWNER not in wanted.people:
        return Ask(f"it would {harsh}, but the owner did not ask for it")
    trust = wanted.trust
    if trust is Trust.OWNER or (trust.trusted and harsh is None):
        return ALLOWED
    unreadable = next((effect for effect in outside if effect.unreadable), None)
    if unreadable is not None:
        return Ask(f"it would {unreadable}, so its effect cannot be judged")
    unreadable = next((effect for effect in outside if effect.amount_unreadable), None)
    if unreadable is not None:
        return Ask(f"it would {unreadable}, so its amount cannot be judged")
    if now.doubt is None:
        return Ask(f"{actor.name} has read {_READ[trust]}, and this would {outside[0]}")
    doubt = now.doubt(wanted.effects)
    if doubt is None:
        return ALLOWED
    read = next((reason.name for reason in doubt.because if reason.name), "")
    reason = f"{doubt.reason}; the agent has read {read}" if read else doubt.reason
    return Ask(reason, because=doubt.because)


def has_outside_effect(effects: tuple[Effect, ...]) -> bool:
    """Tell whether a call changes or sends something outside of the agent and its owner."""
    return bool(_outside(effects))


def _outside(effects: tuple[Effect, ...]) -> tuple[Effect, ...]:
    return tuple(effect for effect in effects if effect.kind.outside and not _tells_owner(effect))


def _by_audience(wanted: CallRequest, verdict: Verdict) -> Verdict:
    """Ask the owner, too, if somebody present would see a result that they may not see."""
    if isinstance(verdict, Deny) or wanted.participants.can_see(wanted.audience):
        return verdict
    reads = next(
        (effect for effect in wanted.effects if effect.kind is EffectKind.READ and effect.targets),
        None,
    )
    what = f"reading {', '.join(reads.targets)}" if reads else f"calling {wanted.tool}"
    others = wanted.participants.people_who_cannot_see(wanted.audience)
    names = ", ".join(wanted.names.get(person, "somebody unknown") for person in others)
    reason = f"{what} would show its result to {names}, who may not see it"
    if isinstance(verdict, Ask):
        return replace(verdict, reason=f"{verdict.reason}; {reason}")
    return Ask(reason)


def _tells_owner(effect: Effect) -> bool:
    """Tell whether an effect only sends a message to the owner, like any answer."""
    return (
        effect.kind is EffectKind.SEND and set(effect.targets) == {OWNER} and not effect.unreadable
    )


# -- verbs -----------------------------------------------------------------------------------------


def _verb(actor: Actor, act: Act, resource: Resource, now: Situation) -> Verdict:
    policy = now.authority.policies.first_for_verb(resource.verb, actor.tokens)
    named = f"{resource.kind} {resource.label!r}" if resource.label else resource.kind
    if policy is not None:
        if policy.ruling is Ruling.ALLOW:
            return Allow(str(policy), policy=policy.name)
        why = policy.reason or f"{policy} denies it"
        return Deny(f"{actor} may not {resource.verb} ({named}): {why}.", policy.name)
    if act is Act.TALK and actor.kind == "person" and actor.trust is Trust.KNOWN:
        return ALLOWED
    for role in actor.roles:
        if act in now.authority.roles.get(role, ROLES.get(role, frozenset())):
            return Allow(f"role {role}")
    has = ", ".join(sorted(actor.roles)) or "no role"
    return Deny(
        f"{actor} has {has}, which does not allow {resource.verb} ({named}). "
        "The owner can give them a role or add a policy."
    )


# -- memory ----------------------------------------------------------------------------------------


def _memory(actor: Actor, act: Act, resource: Resource, now: Situation) -> Verdict:
    named = f"{resource.kind} {resource.label!r}"
    if resource.permission is None:
        return Deny(f"{actor} has no {named}.")
    if act is Act.READ:
        return ALLOWED
    if resource.read_only_part is not None:
        return Deny(
            f"{resource.read_only_part!r} of {named} is read-only; only the owner can change it."
        )
    if resource.permission in _ASKED and act in (Act.APPEND, Act.OVERWRITE):
        return Ask(
            f"the permission on {named} is {resource.permission.value}",
            (_ASKED[resource.permission],),
        )
    if act not in _ALLOWED[resource.permission]:
        return Deny(
            f"The permission of {actor} on {named} is {resource.permission.value}, "
            f"which does not allow it to {act.value}."
        )
    return _memory_by_trust(actor, resource, now)


def _memory_by_trust(actor: Actor, resource: Resource, now: Situation) -> Verdict:
    """After untrusted text, ask before a change to a block and before removing trusted memory."""
    trust = actor.trust
    if trust.trusted or trust in now.authority.trusted:
        return ALLOWED
    if resource.kind == "block":
        return Ask(
            f"{actor} has read {_READ[trust]} in this turn, and block {resource.label!r} changes "
            "how it behaves"
        )
    if resource.trust is not None and resource.trust.trusted:
        return Ask(
            f"{actor} has read {_READ[trust]} in this turn, and this would remove a memory "
            "that comes from a trusted person"
        )
    return ALLOWED
