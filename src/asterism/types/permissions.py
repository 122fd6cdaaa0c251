"""Effects: what a call does, whatever its tool is called; by its effects a call is judged."""

from __future__ import annotations

import contextlib
import json
import math
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Any, cast

import orjson

from asterism.types.agents import OWNER, Label
from asterism.types.values import amounts_of, leaves_of

_UNIT = re.compile(r"[^\W\d_]{2,}|[$€£¥₹₽₿]")


class EffectKind(StrEnum):
    """The kinds of effects, the mildest first."""

    READ = "read"
    """Looks at something of the owner's: nothing changes, nothing leaves."""
    REMEMBER = "remember"
    """Changes the agent's own memory or its own future turns."""
    FETCH = "fetch"
    """Asks a host outside, which learns the address that it is asked for."""
    SEND = "send"
    """Tells somebody something."""
    WRITE = "write"
    """Makes or changes a thing outside: a file, a record, a booking."""
    RUN = "run"
    """Runs a program."""
    DELETE = "delete"
    """Takes something or somebody away."""
    PAY = "pay"
    """Moves money, or promises to."""
    GRANT = "grant"
    """Gives somebody access, or changes a password, a key or a right."""
    UNDECLARED = "undeclared"
    """Its tool does not say: it might do anything with anything that it is given."""

    @property
    def outside(self) -> bool:
        """Whether something outside of the agent is touched or told."""
        return self not in (EffectKind.READ, EffectKind.REMEMBER)

    @property
    def shows(self) -> bool:
        """Whether the result tells what was found, rather than that something was done."""
        return self in (EffectKind.READ, EffectKind.FETCH, EffectKind.RUN, EffectKind.UNDECLARED)


@dataclass(frozen=True, slots=True)
class Effect:
    """One thing that a call does, with its arguments filled in."""

    kind: EffectKind
    recipients: tuple[str, ...] = ()
    """Who gets it: persons, accounts, mail addresses, channels."""
    hosts: tuple[str, ...] = ()
    """Hosts or whole addresses that are asked."""
    paths: tuple[str, ...] = ()
    """Files and folders."""
    things: tuple[str, ...] = ()
    """Whatever else it is done to: records, ids, names."""
    amount: float | None = None
    """What all payments of the call add up to."""
    content: tuple[str, ...] = ()
    """What is told or written: texts that whoever gets it will read."""
    amends: bool = False
    """Whether it changes or takes away what was there, rather than to add to it."""
    amount_unreadable: bool = False
    """Whether an amount is there that cannot be read: it may be any, so it is below no bound."""
    unit: str = ""
    """What stands beside the number of an amount, such as `EUR`."""
    missing: tuple[str, ...] = ()
    """What its tool declares and the call does not have: `recipients`, `amount` …"""
    unreadable: bool = False
    """Whether some of its arguments are nested too deeply or too large to be read: it may be done
    to anybody and anything, so every denial fits it and no allowance does."""

    def __post_init__(self) -> None:
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
        """To whom and to what it is done."""
        return (*self.recipients, *self.hosts, *self.paths, *self.things)

    @property
    def counted(self) -> float | None:
        """What bounds and quotas count: its size whatever its sign, without end if unreadable."""
        if self.amount_unreadable:
            return math.inf
        return None if self.amount is None else abs(self.amount)

    def __str__(self) -> str:
        to = ", ".join(self.targets)
        said = f"{self.kind.value} {to}".rstrip()
        if self.unreadable:
            return f"{said} (arguments that cannot be read)"
        if self.amount_unreadable:
            return f"{said} (an amount that cannot be read)"
        return said if self.amount is None else f"{said} ({self.amount:g})"


@dataclass(frozen=True, slots=True)
class DoubtReason:
    """One step on the way from untrusted text to what a call would do."""

    what: str
    """What of the call it is about, such as `recipients 'US133…'`."""
    origin: str
    """Where the text is from, such as `read_file (turn_…/0/call/0)`."""
    trust: str
    where: str
    """The place in the text."""


@dataclass(frozen=True, slots=True)
class Doubt:
    """Why nobody who is trusted vouches for a call."""

    reason: str
    because: tuple[DoubtReason, ...] = ()


@dataclass(frozen=True, slots=True)
class Results:
    """What a tool declares of its results. What it does not declare, anybody may have written."""

    source: str = ""
    fields: tuple[str, ...] | str = ()
    accounts: tuple[str, ...] | None = None
    closed: bool = False
    names: tuple[str, ...] = ()


Named = str | Sequence[str]
"""The name of an argument, or several; `to.address` reaches inside of one."""


@dataclass(frozen=True, slots=True)
class ToolEffect:
    """What calls of a tool do, in terms of their arguments.

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
    """A label for what its results are, such as `contacts` or `mail`; else the tool's name."""
    fields: Named = ()
    """Fields of its results that only the system or the owner's side writes; `*`: all of them."""
    accounts: Named | None = None
    """Those of them that hold accounts which the system itself vouches for: they can be paid.
    None: nothing of it, or where the owner's side wrote all, what looks like the one account."""
    closed: bool = False
    """Whether only people whom the owner's side let in can add to what it reads."""
    names: Named = ()
    """Those of them that say what a record is called; by default those that end in `name`."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "kind", EffectKind(self.kind))

    @property
    def results(self) -> Results:
        """What it says of its results."""
        fields = self.fields
        all_of_it = isinstance(fields, str) and fields == "*"
        known = "*" if all_of_it else _names(fields)
        accounts = None if self.accounts is None else _names(self.accounts)
        return Results(self.source, known, accounts, self.closed, _names(self.names))

    def effect(self, arguments: Mapping[str, Any]) -> Effect:
        """Return the effect of a call with these arguments."""
        amounts = amounts_of(_values_at(arguments, self.amount)) if self.amount else ()
        return Effect(
            EffectKind(self.kind),
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
        declared = (*targets, self.content, self.amount or ())
        return any(names and read_texts_at(arguments, names) is None for names in declared)

    def _unit(self, arguments: Mapping[str, Any]) -> str:
        if not self.amount or isinstance(arguments.get(self.amount), int | float):
            return ""
        words = _UNIT.findall(" ".join(texts_at(arguments, self.amount)))
        return " ".join(dict.fromkeys(word for word in words if amounts_of(word) is None))

    def _missing(self, arguments: Mapping[str, Any]) -> tuple[str, ...]:
        declared = {
            "recipients": self.recipients,
            "hosts": self.hosts,
            "paths": self.paths,
            "things": self.things,
            "content": self.content,
            "amount": self.amount or (),
        }
        return tuple(
            role for role, names in declared.items() if names and not _is_given(arguments, names)
        )


@dataclass(frozen=True, slots=True)
class ComputedEffects:
    """A function that says what a call does, and what is declared of the tool's results."""

    function: Callable[[Mapping[str, Any]], Iterable[Effect]]
    source: str = ""
    fields: Named = ()
    closed: bool = False

    def __call__(self, arguments: Mapping[str, Any]) -> Iterable[Effect]:
        """Return what a call with these arguments does."""
        return self.function(arguments)

    @property
    def results(self) -> Results:
        """What it says of its results."""
        return ToolEffect(EffectKind.READ, source=self.source, fields=self.fields).results


Declared = ToolEffect | Iterable[ToolEffect] | Callable[[Mapping[str, Any]], Iterable[Effect]]
"""How a tool declares its effects: one or several `ToolEffect`, or a function of the arguments."""


def effects_of(declared: Declared | None, arguments: Mapping[str, Any]) -> tuple[Effect, ...]:
    """Return what a call does; of a tool that declares nothing, that it might do anything."""
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
            return effects_of(None, arguments)  # so it did not say what the call does
        return (
            tuple(replace(effect, unreadable=True) for effect in effects) if unreadable else effects
        )
    return tuple(one.effect(arguments) for one in declared)


def results_of(declared: Declared | None) -> Results:
    """Return what a tool declares of its results."""
    if isinstance(declared, ToolEffect | ComputedEffects):
        return declared.results
    if declared is None or callable(declared):
        return Results()
    return next((one.results for one in declared if one.source or one.fields), Results())


def _names(names: Named) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)


def texts_at(arguments: Mapping[str, Any], names: Named) -> tuple[str, ...]:
    """Return what stands in the named arguments, as texts; nothing of what cannot be read."""
    texts = read_texts_at(arguments, names)
    if texts is not None or isinstance(names, str):
        return texts or ()
    found: list[str] = []
    for name in names:
        found += read_texts_at(arguments, name) or ()
    return tuple(found)


def read_texts_at(arguments: Mapping[str, Any], names: Named) -> tuple[str, ...] | None:
    """Return what stands in the named arguments, as texts; None if some of it cannot be read."""
    if isinstance(names, str) and "." not in names:
        plain = arguments.get(names)
        if plain and isinstance(plain, str):
            return (plain,)
        texts = _texts(plain)
        return None if texts is None else tuple(texts)
    found: list[str] = []
    for name in (names,) if isinstance(names, str) else names:
        texts = _texts(_values_at(arguments, name))
        if texts is None:
            return None
        found += texts
    return tuple(found)


def amount_of(effects: Iterable[Effect]) -> float:
    """Return what effects move in all, for a quota; without end if an amount cannot be read."""
    return sum(effect.counted or 0.0 for effect in effects)


def _values_at(arguments: Mapping[str, Any], name: str) -> list[Any]:
    """Return what stands under a name; `to.address` reaches inside, also of each of a list."""
    values: list[Any] = [arguments]
    for part in name.split("."):
        inside: list[Any] = []
        for value in values:
            inside += cast("list[Any]", value) if isinstance(value, list) else [value]
        values = [
            cast("Mapping[str, Any]", one).get(part) for one in inside if isinstance(one, Mapping)
        ]
    return values


def _is_given(arguments: Mapping[str, Any], names: Named) -> bool:
    return any(text.strip() for text in texts_at(arguments, names))


def _sum(amounts: Sequence[float]) -> float:
    # What is paid back to one makes what another gets no smaller.
    paid = [amount for amount in amounts if amount > 0]
    return sum(paid or amounts)


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
"""The reviewer that is the person who opened the turn."""


@dataclass(frozen=True, slots=True)
class ApprovalRecord:
    """A question to a person that a turn waits for."""

    id: str
    agent_id: str
    turn_id: str
    key: str
    """The call that waits, such as `0/call/0`."""
    question: str
    asked_at: int
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
    next_at: int | None = None
    """When it is announced again or to others."""
    expires_at: int | None = None
    """When it ends as denied; None: never."""
    approved: bool | None = None
    note: str | None = None
    decided_by: str | None = None
    decided_at: int | None = None
    place: str | None = None
    """Where it was answered, as `channel:address`."""
    edited: str | None = None
    """The arguments as the person changed them, as JSON."""
    grant: str | None = None
    """The id of the grant that was given with the answer."""
    announced: Mapping[str, int] = field(default_factory=dict[str, int])
    """Where it was announced, as `channel:address`, and in which round the last time."""
    announced_at: int | None = None
    """When the latest round began."""
    definition: str = ""
    """The digest of the tool that was asked about, which alone is run; empty: not known."""

    @property
    def verdict(self) -> str:
        """How it was answered, in a word or two."""
        if self.decided_at is None:
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
    """Other arguments than those that were asked for, as JSON."""
    place: str | None = None
    """Where it was said, as `channel:address`."""
    definition: str | None = None
    """With other arguments, the digest of the tool for these; None: as it was asked."""
    effects: str | None = None
    """With other arguments, what the call does with these, as JSON; None: as it was asked."""
    label: Label = field(default_factory=Label)
    """How far what they say is trusted, and who may see it."""


def write_effects(effects: Iterable[Effect]) -> str:
    """Return effects as JSON, for people who are asked."""
    shown = [
        # An amount of 0 says more than none.
        {name: value for name, value in asdict(effect).items() if value or type(value) is float}
        for effect in effects
    ]
    return orjson.dumps(shown).decode()


def plain_effects(text: str) -> Any:
    """Return effects that were written as plain lists and texts; None if it is not JSON."""
    try:
        return orjson.loads(text) if text else []
    except orjson.JSONDecodeError:
        return None


def read_effects(text: str) -> tuple[Effect, ...]:
    """Return effects that were written; what is no list of them says nothing."""
    try:
        told: Any = orjson.loads(text) if text else []
        return tuple(
            Effect(
                EffectKind(one["kind"]),
                *(tuple(one.get(name, ())) for name in ("recipients", "hosts", "paths", "things")),
                amount=one.get("amount"),
                content=tuple(one.get("content", ())),
                amends=bool(one.get("amends")),
                amount_unreadable=bool(one.get("amount_unreadable")),
                unreadable=bool(one.get("unreadable")),
            )
            for one in told
        )
    except (ValueError, TypeError, KeyError, AttributeError):
        return ()  # some of it has been forgotten


@dataclass(frozen=True, slots=True)
class Grant:
    """Leave to call a tool without asking each time. What it leaves open, it does not limit."""

    id: str
    constellation: str
    tool: str
    """A tool's name, or a glob such as `file*`."""
    agent_id: str | None = None
    """Whose calls; None: those of every agent."""
    pattern: Mapping[str, str] = field(default_factory=dict[str, str])
    """Which calls: a glob for each argument that matters."""
    turn_id: str | None = None
    """For calls of this turn only."""
    until: int | None = None
    uses: int | None = None
    """For how many calls more."""
    given_by: str = "owner"
    given_at: int = 0
    approval_id: str | None = None
    """The question it was given with."""
    revoked_at: int | None = None
    effects: tuple[Effect, ...] | None = None
    """What calls may do at most: the same kinds of effects, to the same targets and amounts."""
    arguments: str | None = None
    """The only arguments that calls may have, as `exact_arguments` writes them."""
    amount: float | None = None
    """Up to which amount each call, whatever the amounts of `effects`."""
    per_day: int | None = None
    """How many calls in 24 hours."""
    definition: str | None = None
    """The digest of the tool that it was given for; another tool of that name is not meant."""


class Extent(StrEnum):
    """How far a yes reaches beyond the call that it was said to."""

    TURN = "turn"
    """Calls of this tool until the turn ends."""
    RECIPIENT = "recipient"
    """Calls of this tool that do the same to the same targets, texts aside."""
    ALWAYS = "always"
    """Calls of this tool; under a limit, those to the same targets."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What a person grants along with a yes."""

    extent: Extent
    until: int | None = None
    pattern: Mapping[str, str] | None = None
    """A glob for each argument that matters; None: as the extent has it."""
    amount: float | None = None
    """With `ALWAYS`: up to which amount each call."""
    per_day: int | None = None
    """With `ALWAYS`: how many calls in 24 hours."""

    @property
    def limited(self) -> bool:
        """Whether there is a limit."""
        return self.amount is not None or self.per_day is not None


def told_of(grant: Grant) -> dict[str, Any]:
    """Return a grant as an event tells it."""
    told = {
        "what": grant.id,
        "tool": grant.tool,
        "pattern": dict(grant.pattern),
        "turn": grant.turn_id,
        "until": grant.until,
        "uses": grant.uses,
        "approval": grant.approval_id,
    }
    limits = {
        "effects": [str(effect) for effect in grant.effects] if grant.effects is not None else None,
        "arguments": grant.arguments,
        "amount": grant.amount,
        "per_day": grant.per_day,
    }
    return told | {name: value for name, value in limits.items() if value is not None}


# -- what calls like one call are ------------------------------------------------------------------


def limits_of(effects: Iterable[Effect]) -> tuple[Effect, ...] | None:
    """Return what calls like one that does this may do; None where its effects do not tell.

    Each effect needs something that it is done to, or it could be done to anything; and an amount
    that cannot be read might be any.
    """
    told = tuple(replace(effect, content=()) for effect in effects)
    telling = all(
        one.kind is not EffectKind.UNDECLARED
        and one.targets
        and not (one.amount_unreadable or one.unreadable)
        for one in told
    )
    return told if told and telling else None


def does_no_more(
    effects: Iterable[Effect], granted: Iterable[Effect], *, amounts: bool = True
) -> bool:
    """Tell whether each effect was granted, to no more targets and of the same amount."""
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
    # Nothing named is not less than something named: it may mean everything.
    return set(some) <= set(granted) and bool(some) == bool(granted)


def _same_amount(one: Effect, other: Effect) -> bool:
    # Amounts that cannot be read are not known to be the same.
    return one.amount == other.amount and not (one.amount_unreadable or other.amount_unreadable)


def amount_within(effects: Iterable[Effect], most: float) -> bool:
    """Tell whether a call has amounts that can be read and are no more than this together."""
    paying = [
        effect for effect in effects if effect.counted is not None or effect.kind is EffectKind.PAY
    ]
    known = all(one.amount is not None and one.amount >= 0 for one in paying)
    return bool(paying) and known and amount_of(paying) <= most


def arguments_json(arguments: Mapping[str, Any]) -> str:
    """Return arguments as their tool has read them, as JSON that people may change."""
    return json.dumps(arguments, ensure_ascii=False, default=_plain)


def exact_arguments(arguments: Mapping[str, Any]) -> str:
    """Return arguments as a text that is the same for the same arguments and no others."""
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
"""So much of each argument is shown at least, however many there are."""
# Letters and marks that show nothing; what else does is no printable character to Python.
_BLANK = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
_PLAIN_TARGET = re.compile(r"[\w.@+/:#=&?%~-]+")
_MIXED_WITH_LATIN = ("CYRILLIC", "GREEK", "ARMENIAN", "CHEROKEE", "FULLWIDTH", "MATHEMATICAL")
_ESCAPES = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}

_EFFECTS = {
    EffectKind.READ: ("look at", "look at something"),
    EffectKind.REMEMBER: ("change its memory:", "change its memory"),
    EffectKind.FETCH: ("ask", "ask a host outside"),
    EffectKind.SEND: ("send something to", "send something"),
    EffectKind.WRITE: ("write", "write something"),
    EffectKind.RUN: ("run", "run a program"),
    EffectKind.DELETE: ("delete", "delete something"),
    EffectKind.PAY: ("pay", "pay"),
    EffectKind.GRANT: ("give access to", "give access"),
}
"""What each kind of effect is called, with and without something that it is done to."""
_UNREADABLE = "an amount that cannot be read"
_UNREADABLE_ARGUMENTS = "(some of its arguments cannot be read)"
_UNDECLARED = "do something that its tool does not declare"


def visible(text: str) -> str:
    r"""Return a text on one line in which nothing is invisible or moves other characters.

    Line breaks, controls, marks that turn the direction of text, zero-width characters and unusual
    spaces are spelled out, such as `\n` and `\u202e`.
    """
    if not text.isprintable():
        text = "".join(char if char.isprintable() else _spelled(char) for char in text)
    return _BLANK.sub(lambda found: _spelled(found[0]), text) if not text.isascii() else text


def _spelled(char: str) -> str:
    # As JSON has it, so that arguments in which something is spelled out can still be edited.
    return _ESCAPES.get(char) or json.dumps(char)[1:-1]


def effects_in_words(effects: Iterable[Effect]) -> str:
    """Return what a call would do, as people say it: to whom, what, how much; never cut."""
    said: list[str] = []
    for effect in effects:
        if effect.kind is EffectKind.UNDECLARED:
            said.append(_UNDECLARED)
            continue
        with_targets, alone = _EFFECTS[effect.kind]
        words = with_targets if effect.targets else alone
        if effect.counted is not None:
            words += f" {_amount(effect)}"
            words += " to" if effect.kind is EffectKind.PAY and effect.targets else ""
        more = f" {_UNREADABLE_ARGUMENTS}" if effect.unreadable else ""
        said.append(f"{words} {', '.join(map(target_in_words, effect.targets))}".rstrip() + more)
    return "; ".join(said)


def target_in_words(target: str) -> str:
    """Return a name or address so that where it ends, and what is odd about it, can be seen."""
    shown = visible(target)
    if shown != target or not _PLAIN_TARGET.fullmatch(target):
        shown = visible(json.dumps(target, ensure_ascii=False))
    return f"{shown} ({mixed})" if (mixed := _mixed_letters(target)) else shown


def amount_in_words(amount: float) -> str:
    """Return an amount with all of its digits."""
    return str(int(amount)) if amount.is_integer() and abs(amount) < 1e15 else repr(amount)


def _amount(effect: Effect) -> str:
    if effect.amount is None or effect.amount_unreadable:
        return _UNREADABLE
    return amount_in_words(effect.amount)


def _mixed_letters(text: str) -> str:
    """Return what is to be said of a text whose letters look like others; mostly nothing."""
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
    """Return arguments as they are read by the tool, a line for each; no value has two lines."""
    try:
        read = json.loads(arguments or "{}")  # of a key that is there twice, the last value counts
    except ValueError:
        return [visible(arguments)]
    return [visible(line) for line in json.dumps(read, indent=2, ensure_ascii=False).split("\n")]


def spell_call(name: str, arguments: str) -> str:
    """Return a call on one line; of long arguments it says how much is left out."""
    with contextlib.suppress(ValueError):
        arguments = json.dumps(json.loads(arguments or "{}"), ensure_ascii=False)
    shown = visible(arguments)
    if len(shown) > _MAX_SPELLED:
        shown = f"{shown[:_MAX_SPELLED]} … and {len(shown) - _MAX_SPELLED:,} characters more"
    return f"{visible(name)}({shown})"


def call_lines(approval: ApprovalRecord, most: int | None = None) -> list[str]:
    """Return the call of a question as whoever answers must see it.

    First what it would do to whom, which is never cut; then the tool and all of its arguments. If
    these have more than `most` characters, long ones are cut in their middles, and a line says by
    how much and where all can be seen. Of a tool that does not declare what it does, all is shown.
    """
    if not approval.tool:
        return []
    effects = read_effects(approval.effects)
    lines = argument_lines(approval.arguments)
    lost = 0
    if most is not None and not any(effect.kind is EffectKind.UNDECLARED for effect in effects):
        lines, lost = _cut(lines, most)
    head = [f"It would {effects}."] if (effects := effects_in_words(effects)) else []
    said = [f"{lost:,} characters are cut here. {whole_at(approval.id)}"] if lost else []
    return [*head, visible(approval.tool), *lines, *said]


def whole_at(approval_id: str) -> str:
    """Return where a question can be seen whole."""
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
    shown: list[str] = []
    for line in lines:
        if (over := len(line) - width) <= 0:
            shown.append(line)
            continue
        tail = width // 3
        shown.append(f"{line[: width - tail]} … {over:,} characters cut … {line[-tail:]}")
        lost += over
    return shown, lost


def announcement(approval: ApprovalRecord) -> str:
    """Return a question as people read it in a channel: the exact call, why, how to answer."""
    again = f" (asked {approval.rounds} times)" if approval.rounds > 1 else ""
    lines = [f"{visible(approval.question)}{again}", *call_lines(approval, MAX_ANNOUNCED)]
    if approval.reason and approval.reason not in approval.question:
        lines.append(f"Asked because {visible(approval.reason)}.")
    lines.append(f'Answer "approve {approval.id}" or "deny {approval.id} WHY".')
    return "\n".join(lines)
