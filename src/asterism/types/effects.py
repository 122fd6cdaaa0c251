"""Effects: what a call does, whatever its tool is called; by its effects a call is judged."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, cast

import orjson

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
        return tuple(replace(one, unreadable=True) for one in effects) if unreadable else effects
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
    return sum(one.counted or 0.0 for one in effects)


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
    paid = [one for one in amounts if one > 0]
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
