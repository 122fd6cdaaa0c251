"""Readings: what tools and people who are not trusted brought into a context, value by value.

A value that only the owner's side or a system itself can have written is told from text that
anybody may have written. Which fields are such is *declared* with the tool that brings them in;
the shape of a result proves nothing.
"""

from __future__ import annotations

import contextlib
import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast
from urllib.parse import urljoin

import orjson

from asterism.permissions.texts import (
    as_seen,
    equal,
    long_words,
    pieces_of,
    plain,
    same,
    squeezed,
    stands_in,
)
from asterism.types.effects import Effect, Results, texts_at
from asterism.types.people import Trust
from asterism.types.values import address_of, links_in, number_of, numbers_in

MAX_VALUES = 20_000
"""How many values of a result are looked at one by one; what is beyond counts as text."""
_MAX_DEPTH = 24
_NUMERIC = frozenset("0123456789$€£")
_MAX_TEXT = 2_000_000
MAX_QUOTED = 400_000
"""Characters of a text in which quotes are looked for."""
_NO_ARGUMENTS: Mapping[str, Any] = {}
_RELATIVE = re.compile(r"(?:href=[\"']?|\]\()((?!//)[/.\w][\w./~-]{0,300})")
"""Links of a page to pages of the same host, in HTML and Markdown."""
_DISPLAY_NAME = re.compile(r"[^<>]{0,200}<\s*([^<>\s]{1,320}@[^<>\s]{1,255})\s*>")


class Record:
    """Values of a result that belong together, such as one mail or one line of an account."""

    __slots__ = (
        "_links",
        "_plain",
        "_prose",
        "_trusted_text",
        "accounts",
        "guessed",
        "names",
        "numbers",
        "prose_parts",
        "raw",
        "values",
    )

    def __init__(self) -> None:
        self.values: list[str] = []
        """What only the owner's side or the system can have written, in plain form."""
        self.raw: list[str] = []
        """The same as it was written."""
        self.names: list[str] = []
        """Those of them that say what it is called, in plain form."""
        self.accounts: list[str] = []
        """Those of them that can be paid, as they were written."""
        self.guessed = False
        """Whether nobody has declared which of them are accounts."""
        self.numbers: set[float] = set()
        self.prose_parts: list[str] = []
        self._prose: str | None = None
        self._plain: str | None = None
        self._links: tuple[str, ...] | None = None
        self._trusted_text: str | None = None

    @property
    def plain_prose(self) -> str:
        """Text that anybody may have written, in plain form."""
        if self._plain is None:
            self._plain = plain(self.prose)
        return self._plain

    @property
    def links(self) -> tuple[str, ...]:
        """The links in it."""
        if self._links is None:
            self._links = tuple(links_in(self.text))
        return self._links

    @property
    def prose(self) -> str:
        """Text that anybody may have written."""
        if self._prose is None:
            self._prose = "\n".join(self.prose_parts)
        return self._prose

    @property
    def trusted_text(self) -> str:
        """All trusted values, one a line."""
        if self._trusted_text is None:
            self._trusted_text = "\n".join(self.values)
        return self._trusted_text

    @property
    def text(self) -> str:
        """All of it."""
        return f"{self.prose}\n{self.trusted_text}"

    def holds(self, value: str) -> bool:
        """Tell whether a value is one of the trusted ones."""
        return is_among(value, self.raw)

    def trust(
        self, text: str, number: float | None, *, account: bool = False, name: bool = False
    ) -> None:
        """Take in a value that only the owner's side or the system can have written."""
        named = _DISPLAY_NAME.fullmatch(text)
        if named is not None:
            # Anybody may choose the name before their address.
            self.prose_parts.append(text.partition("<")[0].strip("\"' "))
            text = named.group(1)
        value = plain(text)
        self.values.append(value)
        self.raw.append(text)
        if name:
            self.names.append(value)
        if account:
            self.accounts.append(text)
        if number is None and len(text) <= 32 and text[:1] in _NUMERIC:
            number = number_of(text)
        if number is not None:
            self.numbers.add(round(number, 2))


class Reading:
    """One result of a tool, or one text of somebody who is not trusted."""

    def __init__(
        self,
        tool: str,
        value: Any,
        trust: Trust,
        *,
        arguments: Mapping[str, Any] | None = None,
        places: Sequence[str] = (),
        results: Results | None = None,
        effects: Sequence[Effect] = (),
        key: str = "",
    ) -> None:
        """Take in a result.

        Args:
            tool: Where it is from.
            value: Text, or JSON-like values.
            trust: How far it is trusted.
            arguments: Those of the call.
            places: Which of them say what was read: a path, an address, a channel.
            results: What the tool declares of its results.
            effects: What the call did.
            key: The call's, for people who ask.
        """
        self.tool = tool
        self.trust = trust
        self.arguments = arguments or _NO_ARGUMENTS
        self.places = tuple(places)
        self.results = results or Results()
        self.effects = tuple(effects)
        self.key = key
        self._value = value
        self._text: str | None = None
        self._seen: str | None = None
        self._tight: str | None = None
        self._pieces: frozenset[str] | None = None
        self._words: frozenset[str] | None = None
        self._links: frozenset[str] | None = None
        self._records: list[Record] | None = None
        self._numbers: set[float] | None = None
        self._left = MAX_VALUES

    def __str__(self) -> str:
        return f"{self.tool} ({self.key})" if self.key else self.tool

    @property
    def source(self) -> str:
        """The label under which it is known what its results are."""
        return self.results.source or self.tool

    @property
    def closed(self) -> bool:
        """Whether only those whom the owner's side let in can add to it."""
        return self.owned or self.results.closed

    @property
    def owned(self) -> bool:
        """Whether nobody but the owner's side writes any of it."""
        return self.trust.trusted or self.results.fields == "*"

    @property
    def text(self) -> str:
        """All of it, as text."""
        if self._text is None:
            self._text = _text(self._value)[:_MAX_TEXT]
        return self._text

    @property
    def links(self) -> frozenset[str]:
        """The links in it."""
        if self._links is None:
            found = set(links_in(self.text))
            if self.trust is Trust.WEB and self.places:
                base = self.places[0] if "://" in self.places[0] else f"https://{self.places[0]}"
                found.update(
                    urljoin(base, one) for one in _RELATIVE.findall(self.text[:MAX_QUOTED])
                )
            self._links = frozenset(found)
        return self._links

    @property
    def numbers(self) -> set[float]:
        """The numbers in it."""
        if self._numbers is None:
            self._numbers = numbers_in(self.text)
        return self._numbers

    def brings(self, value: str) -> bool:
        """Tell whether a value stands in it, whatever disguise it wears there."""
        needle = as_seen(value)
        if self._seen is None:
            self._seen = as_seen(self.text)
        if stands_in(needle, self._seen):
            return True
        tight = squeezed(needle)
        if len(tight) < (5 if "." in tight else 8):
            return False
        if self._tight is None:
            self._tight = squeezed(self._seen)
        return tight in self._tight

    @property
    def words(self) -> frozenset[str]:
        """The longer words of its text."""
        if self._words is None:
            self._words = long_words(self.text[:MAX_QUOTED])
        return self._words

    @property
    def pieces(self) -> frozenset[str]:
        """The pieces of its text by which it is known what was copied from it."""
        if self._pieces is None:
            self._pieces = frozenset(pieces_of(self.text[:MAX_QUOTED]))
        return self._pieces

    def is_about(self, literal: str) -> bool:
        """Tell whether a literal says which place was read."""
        wanted = plain(literal)
        web = self.trust is Trust.WEB
        if any(_is_place(wanted, one, web=web) for one in self.places):
            return True
        texts = texts_at(self.arguments, tuple(self.arguments))
        if len(self.records) > 1:
            # Words of a search are no place, and do not tell records apart: what is searched for
            # stands in what is found.
            named = any(same(wanted, plain(one)) for one in texts)
            return named and not any(wanted in plain(one.text) for one in self.records)
        return any(_is_place(wanted, one, web=web) for one in texts)

    # -- records -----------------------------------------------------------------------------------

    @property
    def records(self) -> list[Record]:
        """What it holds; taken apart when it is first asked for."""
        if self._records is None:
            self._records = []
            value = _opened(self._value)
            declared = self.owned or bool(self.results.fields)
            if not declared:
                record = Record()
                record.prose_parts.append(self.text)
                self._records.append(record)
                return self._records
            if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
                with contextlib.suppress(ValueError):
                    value = orjson.loads(value)
            self._take(value, None, "", 0, trusted=self.owned)
        return self._records

    def _take(
        self, value: Any, record: Record | None, key: str, depth: int, *, trusted: bool
    ) -> None:
        self._left -= 1
        value = _opened(value)
        if depth > _MAX_DEPTH or self._left < 0:
            self._add(record).prose_parts.append(_text(value))
        elif isinstance(value, Mapping):
            self._take_mapping(cast("Mapping[Any, Any]", value), record, depth, trusted=trusted)
        elif isinstance(value, list | tuple):
            for one in cast("Iterable[Any]", value):
                item = _opened(one)
                # A list of values under a key belongs to its record; one of mappings has its own,
                # unless they are nameless parts of what the owner's side wrote.
                own = isinstance(item, Mapping) and not (
                    self.owned and depth and not self._has_name(cast("Mapping[Any, Any]", item))
                )
                self._take(item, None if own else record, key, depth + 1, trusted=trusted)
        elif value is not None:
            # A bare value, or one of a bare list, has no name.
            known = trusted or (record is None and "" in self.results.fields)
            self._take_scalar(value, self._add(record), key, trusted=known)

    def _take_mapping(
        self, mapping: Mapping[Any, Any], record: Record | None, depth: int, *, trusted: bool
    ) -> None:
        inside = record is not None
        mine = self._add(record)
        fields = self.results.fields
        for name, one in mapping.items():
            key = str(name)
            known = trusted or (not inside and key in fields)
            if known and not key.isidentifier():
                mine.trust(key, None, name=True)  # the key is a value itself, as in a table
            item = _opened(one)
            if self.owned and isinstance(item, Mapping) and depth == 0:
                inner = self._add(None)
                inner.trust(key, None, name=True)
                self._take(item, inner, key, depth + 1, trusted=True)
            elif isinstance(item, Mapping) and self._has_name(cast("Mapping[Any, Any]", item)):
                # Somebody or something else that has a name of its own.
                self._take(item, None, key, depth + 1, trusted=known)
            else:
                self._take(item, mine, key, depth + 1, trusted=known)

    def _has_name(self, mapping: Mapping[Any, Any]) -> bool:
        return any(self._is_name(str(key)) for key in mapping)

    def _is_name(self, key: str) -> bool:
        """Tell whether a field says what its record is called."""
        if self.results.names:
            return key in self.results.names
        return key.lower().endswith("name")

    def _take_scalar(self, value: Any, record: Record, key: str, *, trusted: bool) -> None:
        if isinstance(value, bool):
            return
        text = value if isinstance(value, str) else _text(value)
        if not trusted:
            record.prose_parts.append(text)
            return
        number = _number(value) if isinstance(value, int | float) else None
        accounts = self.results.accounts
        payable = key in accounts if accounts is not None else self.owned
        record.guessed = accounts is None
        record.trust(text, number, account=payable, name=self._is_name(key))

    def _add(self, record: Record | None) -> Record:
        if record is None:
            record = Record()
            assert self._records is not None
            self._records.append(record)
        return record


def _is_place(wanted: str, place: str, *, web: bool) -> bool:
    """Tell whether a literal names a place: the whole of it, or a part that tells it."""
    address = address_of(place) if web or "://" in place else None
    if address is None:
        return same(wanted, plain(place)) or stands_in(wanted, plain(place))
    # What stands behind the path of an address is chosen by whoever wrote the link, and so are
    # parts of the path that look like another address.
    path = plain(address.host + address.rest.partition("?")[0].partition("#")[0])
    path = path.removeprefix("www.").rstrip("/")
    if not re.search(r"[./]", wanted):
        return stands_in(wanted, path)
    wanted = (wanted.partition("://")[2] or wanted).removeprefix("www.").rstrip("/")
    return path == wanted or path.startswith(f"{wanted}/")


def _number(value: float) -> float | None:
    try:
        return float(value)
    except OverflowError:
        return None


def is_among(value: str, values: Iterable[str]) -> bool:
    """Tell whether a value is one of some."""
    return any(equal(value, one) for one in values)


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    try:
        return orjson.dumps(
            _opened(value), default=_opened, option=orjson.OPT_NON_STR_KEYS
        ).decode()
    except (TypeError, orjson.JSONEncodeError, RecursionError):
        return _shown(value)


def _shown(value: Any) -> str:
    try:
        return str(value)
    except RecursionError:
        return "(nested too deeply to be shown)"


def _opened(value: Any) -> Any:
    """Turn what a tool returned into a mapping, a list or a scalar, one level deep."""
    if value is None or isinstance(value, str | int | float | Mapping | list | tuple):
        return cast("Any", value)
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, set | frozenset):
        return list(cast("Iterable[Any]", value))
    dump = getattr(value, "model_dump", None)
    if callable(dump):
        return dump(mode="json")
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    return _shown(value)
