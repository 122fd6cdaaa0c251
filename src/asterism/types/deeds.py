"""Deeds: what a call does, whatever its tool is called; by its deeds a call is judged."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, cast
from urllib.parse import urlsplit

import orjson


class DeedKind(StrEnum):
    """The kinds of deeds, the mildest first."""

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
        return self not in (DeedKind.READ, DeedKind.REMEMBER)


@dataclass(frozen=True, slots=True)
class Deed:
    """One thing that a call does, with its arguments filled in."""

    kind: DeedKind
    recipients: tuple[str, ...] = ()
    """Who gets it: persons, accounts, mail addresses, channels."""
    hosts: tuple[str, ...] = ()
    """Hosts or whole addresses that are asked."""
    paths: tuple[str, ...] = ()
    """Files and folders."""
    things: tuple[str, ...] = ()
    """Whatever else it is done to: records, ids, names."""
    amount: float | None = None
    content: tuple[str, ...] = ()
    """What is told or written: texts that whoever gets it will read."""
    amends: bool = False
    """Whether it changes or takes away what was there, rather than to add to it."""

    @property
    def targets(self) -> tuple[str, ...]:
        """To whom and to what it is done."""
        return (*self.recipients, *self.hosts, *self.paths, *self.things)

    def __str__(self) -> str:
        to = ", ".join(self.targets)
        said = f"{self.kind.value} {to}".rstrip()
        return said if self.amount is None else f"{said} ({self.amount:g})"


@dataclass(frozen=True, slots=True)
class Reason:
    """One step on the way from untrusted text to what a call would do."""

    what: str
    """What of the call it is about, such as `recipients 'US133…'`."""
    origin: str
    """Where the text is from, such as `read_file (turn_…/0/call/0)`."""
    tier: str
    where: str
    """The place in the text."""


@dataclass(frozen=True, slots=True)
class Doubt:
    """Why nobody who is trusted vouches for a call."""

    reason: str
    because: tuple[Reason, ...] = ()


Named = str | Sequence[str]
"""The name of an argument, or several; `to.address` reaches inside of one."""


@dataclass(frozen=True, slots=True)
class Does:
    """What calls of a tool do, in terms of their arguments.

    `Does("pay", recipients="recipient", amount="amount", content="subject")` says that a call pays
    the amount to the recipient, who reads the subject.
    """

    kind: DeedKind | str
    recipients: Named = ()
    hosts: Named = ()
    paths: Named = ()
    things: Named = ()
    amount: str | None = None
    content: Named = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "kind", DeedKind(self.kind))

    def deed(self, arguments: Mapping[str, Any]) -> Deed:
        """Return the deed of a call with these arguments."""
        amounts = texts_at(arguments, self.amount or ())
        return Deed(
            DeedKind(self.kind),
            recipients=texts_at(arguments, self.recipients),
            hosts=texts_at(arguments, self.hosts),
            paths=texts_at(arguments, self.paths),
            things=texts_at(arguments, self.things),
            amount=_number(amounts[0]) if amounts else None,
            content=texts_at(arguments, self.content),
        )


Declared = Does | Iterable[Does] | Callable[[Mapping[str, Any]], Iterable[Deed]]
"""How a tool declares its deeds: one or several `Does`, or a function of the arguments."""


def deeds_of(declared: Declared | None, arguments: Mapping[str, Any]) -> tuple[Deed, ...]:
    """Return what a call does; of a tool that declares nothing, that it might do anything."""
    if declared is None:
        return (Deed(DeedKind.UNDECLARED, things=tuple(_texts(arguments))),)
    if isinstance(declared, Does):
        return (declared.deed(arguments),)
    if callable(declared):
        return tuple(declared(arguments))
    return tuple(one.deed(arguments) for one in declared)


def texts_at(arguments: Mapping[str, Any], names: Named) -> tuple[str, ...]:
    """Return what stands in the named arguments, as texts."""
    if isinstance(names, str) and "." not in names:
        plain = arguments.get(names)
        return (plain,) if plain and isinstance(plain, str) else tuple(_texts(plain))
    found: list[str] = []
    for name in (names,) if isinstance(names, str) else names:
        value: Any = arguments
        for part in name.split("."):
            value = cast("Mapping[str, Any]", value).get(part) if _is_map(value) else None
        found += _texts(value)
    return tuple(found)


def host_of(address: str) -> str:
    """Return the host of an address, or the address itself if it is a bare host."""
    text = address.strip()
    try:
        host = urlsplit(text if "//" in text else f"//{text}").hostname
    except ValueError:
        return text.casefold()
    return (host or text).casefold()


def _is_map(value: Any) -> bool:
    return isinstance(value, Mapping)


def _texts(value: Any) -> list[str]:
    if value is None or value == "":
        return []
    if isinstance(value, str):
        return [value]
    if isinstance(value, Mapping):
        items = cast("Mapping[str, Any]", value).values()
        return [text for one in items for text in _texts(one)]
    if isinstance(value, list | tuple | set | frozenset):
        return [text for one in cast("Iterable[Any]", value) for text in _texts(one)]
    if isinstance(value, bool | int | float):
        return [orjson.dumps(value).decode()]
    return [str(value)]


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
