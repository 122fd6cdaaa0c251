"""The contacts document: where people are reached, and who is asked when nobody answers."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, time, timedelta, tzinfo
from pathlib import Path
from typing import Any, cast
from zoneinfo import ZoneInfo

from asterism.config.document import Document, Key, dotted, printable
from asterism.errors import ConfigError
from asterism.private import refuse_writable

_log = logging.getLogger(__name__)

CONTACTS = "contacts.toml"
_SPAN = re.compile(r"(\d+(?:\.\d+)?)\s*(s|m|h|d|w)\w*")
_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_LONGEST = 100 * 366 * _MS["d"]
_HOURS = re.compile(r"(\d{1,2}):(\d{2})\s*-\s*(\d{1,2}):(\d{2})")


@dataclass(frozen=True, slots=True)
class Hours:
    """When somebody may be disturbed."""

    first: time
    last: time
    zone: tzinfo | None = None
    """None: that of the machine."""

    def next_open(self, now: int) -> int:
        """Return the first moment from `now` on at which they may be disturbed."""
        here = datetime.fromtimestamp(now / 1000, self.zone)
        clock = here.time().replace(tzinfo=None)
        if self.first < self.last:
            is_open = self.first <= clock < self.last
        else:  # over midnight
            is_open = clock >= self.first or clock < self.last
        if is_open:
            return now
        opening = datetime.combine(here.date(), self.first, here.tzinfo)
        if opening <= here:
            opening = datetime.combine(here.date() + timedelta(days=1), self.first, here.tzinfo)
        return int(opening.timestamp() * 1000)


@dataclass(frozen=True, slots=True)
class Contact:
    """Where one person is reached."""

    person: str
    """Their name or id, or `owner`."""
    reach: tuple[str, ...]
    """Places as `channel:address`."""
    hours: Hours | None = None


@dataclass(frozen=True, slots=True)
class Escalation:
    """Who else is asked when nobody has answered for a time."""

    after: int
    """Milliseconds since the question was asked."""
    to: tuple[str, ...]
    """Reviewers: `owner`, `person:NAME` or `role:NAME`."""
    tools: tuple[str, ...] = ()
    """Only for calls of these, as globs; empty: for all."""


@dataclass(frozen=True, slots=True)
class Contacts:
    """What the document says."""

    people: tuple[Contact, ...] = ()
    escalations: tuple[Escalation, ...] = ()
    again: int | None = None
    """Milliseconds after which a question is announced again."""
    expire: int | None = None
    """Milliseconds after which it ends as denied; None: never."""


class ContactBook:
    """The contacts document in use: read again when its file has changed."""

    def __init__(self, data: Path, on_problem: Callable[[str], None] = _log.warning) -> None:
        """Read the document in a data directory, if there is one; raise if it cannot be used."""
        self._path = data / CONTACTS
        self._on_problem = on_problem
        self._seen = self._stamp()
        self._current = read_contacts(self._path)

    @property
    def current(self) -> Contacts:
        """What the document says now; one that cannot be used leaves the former in use."""
        stamp = self._stamp()
        if stamp != self._seen:
            self._seen = stamp
            try:
                self._current = read_contacts(self._path)
            except ConfigError as error:
                self._on_problem(f"{error.message} The previous contacts stay in use.")
        return self._current

    def _stamp(self) -> tuple[int, int]:
        try:
            found = self._path.stat()
        except OSError:
            return (0, 0)
        return (found.st_mtime_ns, found.st_size)


def read_contacts(path: Path) -> Contacts:
    """Read a contacts document; one that is missing says nothing."""
    if path.exists():
        refuse_writable(path)
    document = Document.read(path, must_exist=False)
    return _Reading(document).contacts()


def read_span(text: str) -> int:
    """Return a time such as `4h` or `30 days` in milliseconds; raise `ValueError` if it is none."""
    found = _SPAN.fullmatch(text.strip().lower())
    span = int(float(found[1]) * _MS[found[2]]) if found else 0
    if not 0 < span <= _LONGEST:
        raise ValueError(text)
    return span


@dataclass
class _Reading:
    """One pass over the document; what is wrong is told with its line."""

    document: Document
    values: Mapping[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        self.values = self.document.values

    def contacts(self) -> Contacts:
        self._known((), self.values, ("again", "expire", "contacts", "escalation"))
        return Contacts(
            tuple(
                self._contact(("contacts", name), value)
                for name, value in self._table(("contacts",), "contacts.anna").items()
            ),
            tuple(
                self._escalation(("escalation", number), value)
                for number, value in enumerate(self._list(("escalation",), self.values))
            ),
            self._span(("again",), self.values),
            self._span(("expire",), self.values),
        )

    def _contact(self, key: Key, value: object) -> Contact:
        table = self._as_table(key, value)
        self._known(key, table, ("person", "reach", "hours", "zone"))
        person = table.get("person", str(key[-1]))
        if not isinstance(person, str) or not person.strip():
            raise self._wrong((*key, "person"), "a person's name in quotes is needed")
        reach = self._texts((*key, "reach"), table, 'such as ["discord:4711"]')
        if not reach:
            raise self._wrong(key, 'reach is missing; a list such as ["discord:4711"] is needed')
        for number, place in enumerate(reach):
            channel, colon, address = place.partition(":")
            if not (channel and colon and address):
                needed = f'"{printable(place)}" is no place; CHANNEL:ADDRESS is needed'
                raise self._wrong((*key, "reach", number), needed)
        return Contact(person.strip(), reach, self._hours(key, table))

    def _hours(self, key: Key, table: Mapping[str, Any]) -> Hours | None:
        zone: tzinfo | None = None
        if (name := table.get("zone")) is not None:
            try:
                zone = ZoneInfo(name)
            except (KeyError, OSError, TypeError, ValueError):
                needed = 'the name of a time zone is needed, such as "Europe/Berlin"'
                raise self._wrong((*key, "zone"), needed) from None
        if (text := table.get("hours")) is None:
            return None
        found = _HOURS.fullmatch(text.strip()) if isinstance(text, str) else None
        try:
            if found is None:
                raise ValueError
            first, last = time(int(found[1]), int(found[2])), time(int(found[3]), int(found[4]))
            if first == last:
                raise ValueError
        except ValueError:
            needed = 'two times of the day are needed, such as "08:00-22:00"'
            raise self._wrong((*key, "hours"), needed) from None
        return Hours(first, last, zone)

    def _escalation(self, key: Key, value: object) -> Escalation:
        table = self._as_table(key, value)
        self._known(key, table, ("after", "to", "tools"))
        after = self._span((*key, "after"), table)
        if after is None:
            raise self._wrong(key, 'after is missing; a time such as "4h" is needed')
        to = self._texts((*key, "to"), table, 'such as ["role:admin"]')
        if not to:
            raise self._wrong(key, 'to is missing; a list such as ["role:admin"] is needed')
        for number, one in enumerate(to):
            kind, colon, name = one.partition(":")
            if one != "owner" and not (kind in ("person", "role") and colon and name):
                needed = f'"{printable(one)}" is nobody; owner, person:NAME or role:NAME is needed'
                raise self._wrong((*key, "to", number), needed)
        tools = self._texts((*key, "tools"), table, 'such as ["pay*"]')
        return Escalation(after, to, tools)

    # -- values --------------------------------------------------------------------------------

    def _table(self, key: Key, example: str) -> Mapping[str, Any]:
        value = self.values.get(str(key[0]), {})
        if not isinstance(value, dict):
            raise self._wrong(key, f"a table is needed, such as [{example}]")
        return cast("Mapping[str, Any]", value)

    def _as_table(self, key: Key, value: object) -> Mapping[str, Any]:
        if not isinstance(value, dict):
            raise self._wrong(key, "a table is needed")
        return cast("Mapping[str, Any]", value)

    def _list(self, key: Key, table: Mapping[str, Any]) -> list[Any]:
        value = table.get(str(key[-1]), [])
        if not isinstance(value, list):
            raise self._wrong(key, f"a list of tables is needed, such as [[{key[-1]}]]")
        return cast("list[Any]", value)

    def _texts(self, key: Key, table: Mapping[str, Any], example: str) -> tuple[str, ...]:
        value = table.get(str(key[-1]), [])
        found: list[Any] = cast("list[Any]", value) if isinstance(value, list) else [None]
        if not all(isinstance(one, str) and one.strip() for one in found):
            raise self._wrong(key, f"a list of texts is needed, {example}")
        return tuple(one.strip() for one in found)

    def _span(self, key: Key, table: Mapping[str, Any]) -> int | None:
        value = table.get(str(key[-1]))
        if value is None:
            return None
        try:
            return read_span(value) if isinstance(value, str) else _not_a_span()
        except ValueError:
            raise self._wrong(key, 'a time is needed, such as "4h", "1d" or "30d"') from None

    def _known(self, key: Key, table: Mapping[str, Any], names: tuple[str, ...]) -> None:
        for name in table:
            if name not in names:
                raise self._wrong((*key, name), f"it is not known here; {', '.join(names)} are")

    def _wrong(self, key: Key, needed: str) -> ConfigError:
        line = self.document.line_of(key)
        return ConfigError(f"{self.document.name} line {line}: {dotted(key)}: {needed}.")


def _not_a_span() -> int:
    raise ValueError
