"""Effects: what a call does. A call is judged by its effects, not by the name of its tool."""

from __future__ import annotations

import contextlib
import json
import math
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, field, replace
from datetime import datetime
from enum import StrEnum
from typing import Any, cast

import orjson

from asterism.records import dataclass
from asterism.times import Moment, OptionalMoment
from asterism.types.agents import OWNER, Label
from asterism.types.values import amounts_in

_UNIT = re.compile(r"[^\W\d_]{2,}|[$€£¥₹₽₿]")
MAX_DEPTH = 64
"""Levels of lists and mappings: what is nested more deeply is not read."""
_MAX_VALUES = 100_000
"""How many values one argument may hold; a list that stands in itself many times has no end."""


class EffectKind(StrEnum):
    """The kinds of effects, the mildest first."""

    READ = "read"
    """Reads something of the owner's: nothing changes, nothing is sent."""
    REMEMBER = "remember"
    """Changes the agent's own memory or its own future turns."""
    FETCH = "fetch"
    """Contacts an outside host, which learns the requested address."""
    SEND = "send"
    """Sends a message to somebody."""
    WRITE = "write"
    """Creates or changes a thing outside: a file, a record, a booking."""
    RUN = "run"
    """Runs a program."""
    DELETE = "delete"
    """Deletes something or removes somebody."""
    PAY = "pay"
    """Moves money, or promises to."""
    GRANT = "grant"
    """Gives somebody access, or changes a password, a key or a right."""
    UNDECLARED = "undeclared"
    """Its tool does not declare it: it might do anything with its arguments."""

    @property
    def outside(self) -> bool:
        """Whether it changes or sends something outside of the agent."""
        return self not in (EffectKind.READ, EffectKind.REMEMBER)

    @property
    def shows(self) -> bool:
        """Whether the result is content that was read, not a report of an action."""
        return self in (EffectKind.READ, EffectKind.FETCH, EffectKind.RUN, EffectKind.UNDECLARED)


@dataclass(frozen=True, slots=True)
class Effect:
    """One thing that a call does, with its arguments filled in."""

    kind: EffectKind
    recipients: tuple[str, ...] = ()
    """Who gets it: persons, accounts, mail addresses, channels."""
    hosts: tuple[str, ...] = ()
    """Hosts or whole addresses that are contacted."""
    paths: tuple[str, ...] = ()
    """Files and folders."""
    things: tuple[str, ...] = ()
    """Other targets: records, ids, names."""
    amount: float | None = None
    """The sum of all payments of the call."""
    content: tuple[str, ...] = ()
    """Texts that the recipients will read, or that are written."""
    amends: bool = False
    """Whether it changes or removes existing content, instead of only adding to it."""
    amount_unreadable: bool = False
    """Whether it has an amount that cannot be read: it may have any value, so it exceeds every
    bound."""
    unit: str = ""
    """The unit beside the number of an amount, such as `EUR`."""
    missing: tuple[str, ...] = ()
    """Arguments that its tool declares and the call does not have: `recipients`, `amount` …"""
    unreadable: bool = False
    """Whether some arguments are nested too deeply or too large to be read: the targets may be
    anybody and anything, so every policy that denies fits, and no policy that allows."""

    def __post_init__(self) -> None:
        if type(self.kind) is not EffectKind:
            object.__setattr__(self, "kind", EffectKind(self.kind))
        amount = self.amount
        if amount is None or (type(amount) is float and math.isfinite(amount)):
            return
        amounts = amounts_of(amount)
        total = _sum(amounts) if amounts else None
        unreadable = amounts is None or not math.isfinite(total or 0.0)
        object.__setattr__(self, "amount", None if unreadable else total)
        object.__setattr__(self, "amount_unreadable", unreadable or self.amount_unreadable)

    @property
    def targets(self) -> tuple[str, ...]:
        """All targets: recipients, hosts, paths and things."""
        return (*self.recipients, *self.hosts, *self.paths, *self.things)

    @property
    def counted(self) -> float | None:
        """The amount that bounds and quotas count: without its sign, infinite if unreadable."""
        if self.amount_unreadable:
            return math.inf
        return None if self.amount is None else abs(self.amount)

    def __str__(self) -> str:
        to = ", ".join(self.targets)
        text = f"{self.kind.value} {to}".rstrip()
        if self.unreadable:
            return f"{text} (arguments that cannot be read)"
        if self.amount_unreadable:
            return f"{text} (an amount that cannot be read)"
        return text if self.amount is None else f"{text} ({self.amount:g})"


@dataclass(frozen=True, slots=True)
class DoubtReason:
    """One step on the way from untrusted text to what a call would do."""

    what: str
    """The part of the call, such as `recipients 'US133…'`."""
    origin: str
    """The origin of the text, such as `read_file (turn_…/0/call/0)`."""
    trust: str
    where: str
    """The place in the text."""
    name: str = ""
    """What was read, for a person: `'recipe.txt' (file)`, or the tool alone."""


@dataclass(frozen=True, slots=True)
class Doubt:
    """Why trusted text does not justify a call."""

    reason: str
    because: tuple[DoubtReason, ...] = ()


@dataclass(frozen=True, slots=True)
class Results:
    """A tool's declaration of its results. Anybody may have written the undeclared fields."""

    source: str = ""
    fields: tuple[str, ...] | str = ()
    accounts: tuple[str, ...] | None = None
    closed: bool = False
    names: tuple[str, ...] = ()


Named = str | Sequence[str]
"""The name of an argument, or several; `to.address` names a field inside an argument."""


@dataclass(frozen=True, slots=True)
class ToolEffect:
    """An effect of the calls of a tool, in terms of their arguments.

    `ToolEffect("pay", recipients="recipient", amount="amount", content="subject")` says that a call
    pays the amount to the recipient, who reads the subject.
    """

    kind: EffectKind | str
    recipients: Named = ()
    hosts: Named = ()
    paths: Named = ()
    things: Named = ()
    amount: str | None = None
    content: Named = ()
    source: str = ""
    """A label for the kind of its results, such as `contacts` or `mail`; default: the tool's
    name."""
    fields: Named = ()
    """Fields of its results that only the system or the owner's side writes; `*`: all of them."""
    accounts: Named | None = None
    """Fields with accounts that the system itself guarantees: they can be paid. None: no field,
    or, if the owner's side wrote all fields, the only value that looks like an account."""
    closed: bool = False
    """Whether only people whom the owner's side invited can add to the content that it reads."""
    names: Named = ()
    """Fields with the name of a record; by default the fields that end in `name`."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "kind", EffectKind(self.kind))

    @property
    def results(self) -> Results:
        """The declaration of its results."""
        fields = self.fields
        all_of_it = isinstance(fields, str) and fields == "*"
        known = "*" if all_of_it else _names(fields)
        accounts = None if self.accounts is None else _names(self.accounts)
        return Results(self.source, known, accounts, self.closed, _names(self.names))

    def effect(self, arguments: Mapping[str, Any]) -> Effect:
        """Return the effect of a call with these arguments."""
        amounts = amounts_of(_values_at(arguments, self.amount)) if self.amount else ()
        return Effect(
            cast("EffectKind", self.kind),
            recipients=texts_at(arguments, self.recipients),
            hosts=texts_at(arguments, self.hosts),
            paths=texts_at(arguments, self.paths),
            things=texts_at(arguments, self.things),
            amount=_sum(amounts) if amounts else None,
            content=texts_at(arguments, self.content),
            amount_unreadable=amounts is None,
            unit=self._unit(arguments),
            missing=self._missing(arguments),
            unreadable=self._is_unreadable(arguments),
        )

    def _is_unreadable(self, arguments: Mapping[str, Any]) -> bool:
        targets = (self.recipients, self.hosts, self.paths, self.things)
        for names in (*targets, self.content, self.amount):
            if names and read_texts_at(arguments, names) is None:
                return True
        return False

    def _unit(self, arguments: Mapping[str, Any]) -> str:
        if not self.amount or isinstance(arguments.get(self.amount), int | float):
            return ""
        words = _UNIT.findall(" ".join(texts_at(arguments, self.amount)))
        return " ".join(dict.fromkeys(word for word in words if amounts_of(word) is None))

    def _missing(self, arguments: Mapping[str, Any]) -> tuple[str, ...]:
        declared = (
            ("recipients", self.recipients),
            ("hosts", self.hosts),
            ("paths", self.paths),
            ("things", self.things),
            ("content", self.content),
            ("amount", self.amount),
        )
        missing = [role for role, names in declared if names and not _is_given(arguments, names)]
        return tuple(missing)


@dataclass(frozen=True, slots=True)
class ComputedEffects:
    """A function that returns the effects of a call, and the declaration of the tool's results."""

    function: Callable[[Mapping[str, Any]], Iterable[Effect]]
    source: str = ""
    fields: Named = ()
    closed: bool = False

    def __call__(self, arguments: Mapping[str, Any]) -> Iterable[Effect]:
        """Return the effects of a call with these arguments."""
        return self.function(arguments)

    @property
    def results(self) -> Results:
        """The declaration of its results."""
        return ToolEffect(EffectKind.READ, source=self.source, fields=self.fields).results


Declared = ToolEffect | Iterable[ToolEffect] | Callable[[Mapping[str, Any]], Iterable[Effect]]
"""How a tool declares its effects: one or several `ToolEffect`, or a function of the arguments."""


def effects_of(declared: Declared | None, arguments: Mapping[str, Any]) -> tuple[Effect, ...]:
    """Return the effects of a call; `UNDECLARED` for a tool that declares nothing."""
    if declared is None:
        texts = _texts(arguments)
        return (Effect(EffectKind.UNDECLARED, things=tuple(texts or ()), unreadable=texts is None),)
    if isinstance(declared, ToolEffect):
        return (declared.effect(arguments),)
    if callable(declared):
        unreadable = leaves_of(arguments) is None
        try:
            effects = tuple(declared(arguments))
        except Exception:  # noqa: BLE001 - a tool's author wrote it, and it may fail in any way
            return effects_of(None, arguments)  # the function failed, so the effects are not known
        return (
            tuple(replace(effect, unreadable=True) for effect in effects) if unreadable else effects
        )
    return tuple(declaration.effect(arguments) for declaration in declared)


def results_of(declared: Declared | None) -> Results:
    """Return a tool's declaration of its results."""
    if isinstance(declared, ToolEffect | ComputedEffects):
        return declared.results
    if declared is None or callable(declared):
        return Results()
    return next(
        (
            declaration.results
            for declaration in declared
            if declaration.source or declaration.fields
        ),
        Results(),
    )


def _names(names: Named) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)


def texts_at(arguments: Mapping[str, Any], names: Named) -> tuple[str, ...]:
    """Return the values of the named arguments as texts, without those that cannot be read."""
    if not names:
        return ()
    texts = read_texts_at(arguments, names)
    if texts is not None or isinstance(names, str):
        return texts or ()
    values: list[str] = []
    for name in names:
        values += read_texts_at(arguments, name) or ()
    return tuple(values)


def read_texts_at(arguments: Mapping[str, Any], names: Named) -> tuple[str, ...] | None:
    """Return the values of the named arguments as texts; None if some cannot be read."""
    if isinstance(names, str) and "." not in names:
        plain = arguments.get(names)
        if plain and isinstance(plain, str):
            return (plain,)
        texts = _texts(plain)
        return None if texts is None else tuple(texts)
    values: list[str] = []
    for name in (names,) if isinstance(names, str) else names:
        texts = _texts(_values_at(arguments, name))
        if texts is None:
            return None
        values += texts
    return tuple(values)


def amount_of(effects: Iterable[Effect]) -> float:
    """Return the sum of the amounts, for a quota; infinite if an amount cannot be read."""
    return sum(effect.counted or 0.0 for effect in effects)


def _values_at(arguments: Mapping[str, Any], name: str) -> list[Any]:
    """Return the values under a name; `to.address` reads a field, also in each item of a list."""
    values: list[Any] = [arguments]
    for part in name.split("."):
        inside: list[Any] = []
        for value in values:
            inside += cast("list[Any]", value) if isinstance(value, list) else [value]
        values = [
            cast("Mapping[str, Any]", value).get(part)
            for value in inside
            if isinstance(value, Mapping)
        ]
    return values


def _is_given(arguments: Mapping[str, Any], names: Named) -> bool:
    return any(text.strip() for text in texts_at(arguments, names))


def _sum(amounts: Sequence[float]) -> float:
    # A refund to one recipient does not reduce the payment to another.
    paid = [amount for amount in amounts if amount > 0]
    return sum(paid or amounts)


def leaves_of(value: Any) -> list[Any] | None:
    """Return all values in nested lists and mappings; None if these are too deep or too many."""
    leaves: list[Any] = []
    waiting = [(value, 0)]
    seen = 0
    while waiting:
        item, depth = waiting.pop()
        if isinstance(item, list | tuple | set | frozenset):
            inside = list(cast("Iterable[Any]", item))
        elif isinstance(item, Mapping):
            inside = list(cast("Mapping[Any, Any]", item).values())
        else:
            leaves.append(item)
            continue
        seen += 1 + len(inside)
        if depth >= MAX_DEPTH or seen > _MAX_VALUES:
            return None
        waiting += [(inner, depth + 1) for inner in reversed(inside)]
    return leaves


def amounts_of(value: Any) -> tuple[float, ...] | None:
    """Return every amount that an argument holds; None if something in it is none.

    Numbers, texts (see `amounts_in`) and lists and mappings of these, in which the name of a
    currency may stand by itself.
    """
    leaves = leaves_of(value)
    if leaves is None:
        return None
    values: list[float] = []
    has_value = False
    for leaf in leaves:
        amounts = amounts_in(leaf)
        if amounts is None or not all(map(math.isfinite, amounts)):
            return None
        values += amounts
        has_value = has_value or (leaf is not None and leaf != "")
    return tuple(values) if values or not has_value else None


def _texts(value: Any) -> list[str] | None:
    """Return all values in a value, as texts; None if some of it cannot be read."""
    leaves = leaves_of(value)
    if leaves is None:
        return None
    texts: list[str] = []
    for leaf in leaves:
        text = leaf if isinstance(leaf, str) else _text(leaf)
        if text is None:
            return None
        if text:
            texts.append(text)
    return texts


def _text(value: Any) -> str | None:
    if value is None:
        return ""
    try:
        if isinstance(value, bool | float):
            return orjson.dumps(value).decode()
        return str(value)
    except (RecursionError, ValueError):  # such as an integer of more than 4300 digits
        return None


PRESENT = "present"
"""The reviewer name for the person who opened the turn."""
CLIENT = "client"
"""The reviewer name for the program that carries a call out itself; people can only deny it."""


@dataclass(frozen=True, slots=True)
class ApprovalRecord:
    """A question to a person that a turn waits for."""

    id: str
    agent_id: str
    turn_id: str
    key: str
    """The call that waits, such as `0/call/0`."""
    question: str
    asked_at_ms: int
    tool: str = ""
    arguments: str = ""
    """The exact call: its arguments as the tool reads them, as JSON."""
    effects: str = ""
    """What the call does, as a JSON list; for people, and for what is granted along with a yes."""
    reason: str = ""
    """Why it must be asked."""
    reviewers: tuple[str, ...] = (OWNER,)
    """Who may answer: `owner`, `person:ID`, `role:NAME` or `present`; the first answer counts."""
    rounds: int = 0
    """How often it was announced."""
    next_at_ms: int | None = None
    """When it is announced again or to others."""
    expires_at_ms: int | None = None
    """When it ends as denied; None: never."""
    approved: bool | None = None
    note: str | None = None
    decided_by: str | None = None
    decided_at_ms: int | None = None
    place: str | None = None
    """Where it was answered, as `channel:address`."""
    edited: str | None = None
    """The arguments as the person changed them, as JSON."""
    grant: str | None = None
    """The id of the grant that was given with the answer."""
    announced: Mapping[str, int] = field(default_factory=dict[str, int])
    """Where it was announced, as `channel:address`, and in which round the last time."""
    announced_at_ms: int | None = None
    """When the latest round began."""
    definition: str = ""
    """The digest of the tool that was asked about, which alone is run; empty: not known."""

    asked_at = Moment()
    next_at = OptionalMoment()
    expires_at = OptionalMoment()
    decided_at = OptionalMoment()
    announced_at = OptionalMoment()

    @property
    def for_client(self) -> bool:
        """Whether it waits for the result of a program, not for the word of a person."""
        return self.reviewers == (CLIENT,)

    @property
    def verdict(self) -> str:
        """How it was answered, in a word or two."""
        if self.decided_at_ms is None:
            return "waiting"
        if not self.approved:
            return "denied"
        return "approved with changes" if self.edited is not None else "approved"


@dataclass(frozen=True, slots=True)
class Answer:
    """What a person says to a question."""

    approved: bool
    by: str = OWNER
    """The id of the person, or `owner`."""
    name: str = OWNER
    """What they are called: the agent reads it."""
    note: str | None = None
    edited: str | None = None
    """Changed arguments of the call, as JSON."""
    place: str | None = None
    """Where it was said, as `channel:address`."""
    definition: str | None = None
    """With changed arguments, the digest of the tool; None: as in the question."""
    effects: str | None = None
    """With changed arguments, the new effects of the call, as JSON; None: as in the question."""
    label: Label = field(default_factory=Label)
    """The trust and the audience of their words."""


def write_effects(effects: Iterable[Effect]) -> str:
    """Return effects as JSON, to show to a reviewer."""
    wire = [
        # An amount of 0 is not the same as no amount.
        {name: value for name, value in asdict(effect).items() if value or type(value) is float}
        for effect in effects
    ]
    return orjson.dumps(wire).decode()


def plain_effects(text: str) -> Any:
    """Return stored effects as plain lists and texts; None if it is not JSON."""
    try:
        return orjson.loads(text) if text else []
    except orjson.JSONDecodeError:
        return None


def read_effects(text: str) -> tuple[Effect, ...]:
    """Return stored effects; empty if the text is not a list of effects."""
    try:
        wire: Any = orjson.loads(text) if text else []
        return tuple(
            Effect(
                EffectKind(fields["kind"]),
                *(
                    tuple(fields.get(name, ()))
                    for name in ("recipients", "hosts", "paths", "things")
                ),
                amount=fields.get("amount"),
                content=tuple(fields.get("content", ())),
                amends=bool(fields.get("amends")),
                amount_unreadable=bool(fields.get("amount_unreadable")),
                unreadable=bool(fields.get("unreadable")),
            )
            for fields in wire
        )
    except (ValueError, TypeError, KeyError, AttributeError):
        return ()  # some of it has been forgotten


@dataclass(frozen=True, slots=True)
class Grant:
    """A permission to call a tool without asking each time. None in a field means no limit."""

    id: str
    constellation: str
    tool: str
    """A tool's name, or a glob such as `file*`."""
    agent_id: str | None = None
    """The agent whose calls it covers; None: every agent."""
    pattern: Mapping[str, str] = field(default_factory=dict[str, str])
    """A glob for each argument that matters."""
    turn_id: str | None = None
    """Only calls of this turn."""
    until_ms: int | None = None
    uses: int | None = None
    """How many more calls it covers."""
    given_by: str = "owner"
    given_at_ms: int = 0
    approval_id: str | None = None
    """The approval that it was given with."""
    revoked_at_ms: int | None = None
    effects: tuple[Effect, ...] | None = None
    """The allowed effects of calls: the same kinds, with the same targets and amounts."""
    arguments: str | None = None
    """The only arguments that calls may have, as `exact_arguments` writes them."""
    amount: float | None = None
    """The highest amount of each call; overrides the amounts of `effects`."""
    per_day: int | None = None
    """The number of calls in 24 hours."""
    definition: str | None = None
    """The digest of the tool that it was given for; it does not cover another tool of that name."""

    until = OptionalMoment()
    given_at = Moment()
    revoked_at = OptionalMoment()


class Extent(StrEnum):
    """Which calls an approval covers, besides the one that was approved."""

    TURN = "turn"
    """Calls of this tool until the turn ends."""
    RECIPIENT = "recipient"
    """Calls of this tool with the same effects on the same targets; texts may differ."""
    ALWAYS = "always"
    """Calls of this tool; with a limit, only those with the same targets."""


@dataclass(frozen=True, slots=True)
class Wish:
    """The grant that a person gives together with an approval."""

    extent: Extent
    until: datetime | None = None
    pattern: Mapping[str, str] | None = None
    """A glob for each argument that matters; None: from the extent."""
    amount: float | None = None
    """With `ALWAYS`: the highest amount of each call."""
    per_day: int | None = None
    """With `ALWAYS`: the number of calls in 24 hours."""

    @property
    def limited(self) -> bool:
        """Whether there is a limit."""
        return self.amount is not None or self.per_day is not None


def grant_details(grant: Grant) -> dict[str, Any]:
    """Return the fields of a grant for an event."""
    wire = {
        "what": grant.id,
        "tool": grant.tool,
        "pattern": dict(grant.pattern),
        "turn": grant.turn_id,
        "until": grant.until_ms,
        "uses": grant.uses,
        "approval": grant.approval_id,
    }
    limits = {
        "effects": [str(effect) for effect in grant.effects] if grant.effects is not None else None,
        "arguments": grant.arguments,
        "amount": grant.amount,
        "per_day": grant.per_day,
    }
    return wire | {name: value for name, value in limits.items() if value is not None}


# -- what calls like one call are ------------------------------------------------------------------


def limits_of(effects: Iterable[Effect]) -> tuple[Effect, ...] | None:
    """Return the limits of a grant for calls with these effects; None if they give no limits.

    Each effect needs a target, or it would cover every target; and an amount that cannot be read
    could have any value.
    """
    bounds = tuple(replace(effect, content=()) for effect in effects)
    telling = all(
        effect.kind is not EffectKind.UNDECLARED
        and effect.targets
        and not (effect.amount_unreadable or effect.unreadable)
        for effect in bounds
    )
    return bounds if bounds and telling else None


def does_no_more(
    effects: Iterable[Effect], granted: Iterable[Effect], *, amounts: bool = True
) -> bool:
    """Tell whether each effect was granted, with no other targets and with the same amount."""
    most = tuple(granted)
    return all(
        any(
            effect.kind is other.kind
            and _within(effect.recipients, other.recipients)
            and _within(effect.hosts, other.hosts)
            and _within(effect.paths, other.paths)
            and _within(effect.things, other.things)
            and (other.amends or not effect.amends)
            and (not amounts or _same_amount(effect, other))
            for other in most
        )
        for effect in effects
    )


def _within(some: tuple[str, ...], granted: tuple[str, ...]) -> bool:
    # No target is not fewer targets: it may mean all of them.
    return set(some) <= set(granted) and bool(some) == bool(granted)


def _same_amount(first: Effect, second: Effect) -> bool:
    # Amounts that cannot be read may differ.
    return first.amount == second.amount and not (
        first.amount_unreadable or second.amount_unreadable
    )


def amount_within(effects: Iterable[Effect], most: float) -> bool:
    """Tell whether all amounts of a call can be read and their sum is not above a limit."""
    paying = [
        effect for effect in effects if effect.counted is not None or effect.kind is EffectKind.PAY
    ]
    known = all(effect.amount is not None and effect.amount >= 0 for effect in paying)
    return bool(paying) and known and amount_of(paying) <= most


def arguments_json(arguments: Mapping[str, Any]) -> str:
    """Return arguments as their tool reads them, as JSON that people may edit."""
    return json.dumps(arguments, ensure_ascii=False, default=_plain)


def exact_arguments(arguments: Mapping[str, Any]) -> str:
    """Return arguments as a text that is equal only for equal arguments."""
    return json.dumps(arguments, ensure_ascii=False, default=_plain, sort_keys=True)


def _plain(value: Any) -> Any:
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    if isinstance(value, set | frozenset):
        return sorted(map(str, cast("set[Any]", value)))
    return str(value)


MAX_ANNOUNCED = 3_000
"""How many characters of a call's arguments a message in a channel shows."""
_MAX_SPELLED = 300
_MIN_LINE = 80
"""The least number of characters that is shown of each argument."""
# Blank letters and marks that Python counts as printable.
_BLANK = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
_PLAIN_TARGET = re.compile(r"[\w.@+/:#=&?%~-]+")
_MIXED_WITH_LATIN = ("CYRILLIC", "GREEK", "ARMENIAN", "CHEROKEE", "FULLWIDTH", "MATHEMATICAL")
_ESCAPES = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}

_EFFECTS = {
    EffectKind.READ: ("look at", "read something"),
    EffectKind.REMEMBER: ("change its memory:", "change its memory"),
    EffectKind.FETCH: ("ask", "contact an outside host"),
    EffectKind.SEND: ("send something to", "send something"),
    EffectKind.WRITE: ("write", "write something"),
    EffectKind.RUN: ("run", "run a program"),
    EffectKind.DELETE: ("delete", "delete something"),
    EffectKind.PAY: ("pay", "pay"),
    EffectKind.GRANT: ("give access to", "give access"),
}
"""The words for each kind of effect, with and without a target."""
_UNREADABLE = "an amount that cannot be read"
_UNREADABLE_ARGUMENTS = "(some of its arguments cannot be read)"
_UNDECLARED = "do something that its tool does not declare"


def visible_line(text: str) -> str:
    r"""Return a text on one line, without invisible or reordering characters.

    Line breaks, controls, marks that turn the direction of text, zero-width characters and unusual
    spaces are spelled out, such as `\n` and `\u202e`.
    """
    if not text.isprintable():
        text = "".join(char if char.isprintable() else _spelled(char) for char in text)
    return _BLANK.sub(lambda match: _spelled(match[0]), text) if not text.isascii() else text


def _spelled(char: str) -> str:
    # As in JSON, so that arguments with escaped characters can still be edited.
    return _ESCAPES.get(char) or json.dumps(char)[1:-1]


def effects_in_words(effects: Iterable[Effect]) -> str:
    """Return the effects of a call in words: to whom, what, how much; never shortened."""
    phrases: list[str] = []
    for effect in effects:
        if effect.kind is EffectKind.UNDECLARED:
            phrases.append(_UNDECLARED)
            continue
        with_targets, alone = _EFFECTS[effect.kind]
        words = with_targets if effect.targets else alone
        if effect.counted is not None:
            words += f" {_amount(effect)}"
            words += " to" if effect.kind is EffectKind.PAY and effect.targets else ""
        more = f" {_UNREADABLE_ARGUMENTS}" if effect.unreadable else ""
        phrases.append(f"{words} {', '.join(map(target_in_words, effect.targets))}".rstrip() + more)
    return "; ".join(phrases)


def target_in_words(target: str) -> str:
    """Return a name or address so that its end and unusual characters are visible."""
    spelling = visible_line(target)
    if spelling != target or not _PLAIN_TARGET.fullmatch(target):
        spelling = visible_line(json.dumps(target, ensure_ascii=False))
    return f"{spelling} ({mixed})" if (mixed := _mixed_letters(target)) else spelling


def amount_in_words(amount: float) -> str:
    """Return an amount with all of its digits."""
    return str(int(amount)) if amount.is_integer() and abs(amount) < 1e15 else repr(amount)


def _amount(effect: Effect) -> str:
    if effect.amount is None or effect.amount_unreadable:
        return _UNREADABLE
    return amount_in_words(effect.amount)


def _mixed_letters(text: str) -> str:
    """Return a warning about letters that look like other letters; mostly empty."""
    if text.isascii():
        return ""
    for word in re.findall(r"\w+", text):
        scripts = {unicodedata.name(char, "").partition(" ")[0] for char in word if char.isalpha()}
        odd = sorted(scripts.intersection(_MIXED_WITH_LATIN))
        if odd and ("LATIN" in scripts or len(odd) > 1):
            return f"careful: it mixes Latin with {' and '.join(odd).lower()} letters"
    return ""


# -- arguments -------------------------------------------------------------------------------------


def argument_lines(arguments: str) -> list[str]:
    """Return arguments as the tool reads them, exactly one line for each."""
    try:
        read = json.loads(arguments or "{}")  # if a key occurs twice, the last value counts
        lines = json.dumps(read, indent=2, ensure_ascii=False).split("\n")
    except (ValueError, RecursionError):
        return [visible_line(arguments)]
    return [visible_line(line) for line in lines]


def spell_call(name: str, arguments: str) -> str:
    """Return a call on one line; long arguments are cut, with the number of characters cut."""
    with contextlib.suppress(ValueError, RecursionError):
        arguments = json.dumps(json.loads(arguments or "{}"), ensure_ascii=False)
    text = visible_line(arguments)
    if len(text) > _MAX_SPELLED:
        text = f"{text[:_MAX_SPELLED]} … and {len(text) - _MAX_SPELLED:,} characters more"
    return f"{visible_line(name)}({text})"


def call_lines(approval: ApprovalRecord, most: int | None = None) -> list[str]:
    """Return the call of an approval as its reviewer must see it.

    First the effects and their targets, which are never cut; then the tool and all its arguments.
    If these have more than `most` characters, long ones are cut in the middle, and a line says how
    much was cut and how to see it all. Without declared effects, arguments are never cut.
    """
    if not approval.tool:
        return []
    effects = read_effects(approval.effects)
    lines = argument_lines(approval.arguments)
    lost = 0
    if most is not None and not any(effect.kind is EffectKind.UNDECLARED for effect in effects):
        lines, lost = _cut(lines, most)
    head = [f"It would {effects}."] if (effects := effects_in_words(effects)) else []
    note = [f"{lost:,} characters are cut here. {whole_at(approval.id)}"] if lost else []
    return [*head, visible_line(approval.tool), *lines, *note]


_SENTENCE_ENDS = (".", "!", "?", "…", "。", "！", "？")


def comment_of(note: str | None) -> str:
    """Return what whoever answered has said, as sentences behind others; empty if nothing."""
    if not note:
        return ""
    return f" They say: {note}" if note.endswith(_SENTENCE_ENDS) else f" They say: {note}."


def whole_at(approval_id: str) -> str:
    """Return the command that shows a whole question."""
    return f'"asterism approval show {approval_id}" shows all of it.'


def _cut(lines: list[str], most: int) -> tuple[list[str], int]:
    """Cut the longest lines in their middles, and lines in the middle if there are too many."""
    if sum(map(len, lines)) <= most:
        return lines, 0
    lost = 0
    room = max(2, most // _MIN_LINE)
    if len(lines) > room:
        first, last = (room + 1) // 2, room // 2
        gone = lines[first : len(lines) - last]
        size = sum(map(len, gone))
        middle = f"… {len(gone):,} lines with {size:,} characters cut …"
        lines, lost = [*lines[:first], middle, *lines[len(lines) - last :]], size
    width, longest = _MIN_LINE, max(map(len, lines))
    while width < longest:
        middle_width = (width + longest + 1) // 2
        if sum(min(len(line), middle_width) for line in lines) <= most:
            width = middle_width
        else:
            longest = middle_width - 1
    result: list[str] = []
    for line in lines:
        if (over := len(line) - width) <= 0:
            result.append(line)
            continue
        tail = width // 3
        result.append(f"{line[: width - tail]} … {over:,} characters cut … {line[-tail:]}")
        lost += over
    return result, lost


def announcement(approval: ApprovalRecord) -> str:
    """Return a question for a channel: the exact call, the reason, how to answer."""
    again = f" (asked {approval.rounds} times)" if approval.rounds > 1 else ""
    lines = [f"{visible_line(approval.question)}{again}", *call_lines(approval, MAX_ANNOUNCED)]
    if approval.reason and approval.reason not in approval.question:
        lines.append(f"Asked because {visible_line(approval.reason)}.")
    lines.append(f'Answer "approve {approval.id}" or "deny {approval.id} WHY".')
    return "\n".join(lines)
