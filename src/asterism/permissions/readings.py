"""Readings: what was said and read in a turn, so that it can be told where a value comes from.

Values that an owner's own systems keep as *fields* are told from words inside of *prose*: whoever
writes a mail fills its text at will, and not the list of accounts that a bank keeps.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from importlib import import_module
from typing import Any, cast

import orjson

from asterism.permissions.saying import (
    Wishes,
    each,
    excerpt,
    loose,
    number_of,
    numbers_in,
    sentences_apart,
    squeezed,
    stands_in,
    strict,
    telling_words,
)
from asterism.types.deeds import Reason, texts_at
from asterism.types.people import Tier, least_trusted

_FREE_TEXT = frozenset(
    each(
        "subject title body content contents text description note notes message comment "
        "comments memo summary detail details review reviews remark remarks caption snippet "
        "excerpt answer html markdown abstract bio about output stdout stderr reason "
        "instructions"
    )
)
"""Keys whose values anybody may have written, however short they are."""
_MOST_WORDS = 8
"""A longer value is prose, whatever its key; a postal address is still a value."""
_MOST_LINKING = 12
"""The longest free text whose words still tell which record is meant."""
_SECRET = re.compile(
    r"pass(?:word|phrase|code|port)|secret|token|credential|api_?key|private_?key|(?:^|_)(?:pin|cvv|"
    r"cvc|ssn|otp)(?:$|_)|card_?(?:number|no)|social_security|tax_?id|id_?card|licen[cs]e_?number",
    re.IGNORECASE,
)
"""Names of fields whose values are for their owner alone."""
_NUMERIC = frozenset("0123456789$€£ ")
_SCALARS = frozenset({str, int, float})
_YAML = re.compile(r"(?:- )?[\w'\"-]+:(?: |\n)|- ")
_LONGEST_YAML = 32_768
_DEEPEST = 24
_MOST_VALUES = 200_000


class Record:
    """Values that belong together, such as one line of an account."""

    __slots__ = (
        "_text",
        "_words",
        "fields",
        "linking",
        "numbers",
        "plain",
        "prose",
        "reading",
        "secrets",
        "table",
    )

    def __init__(self, reading: Reading, *, plain: bool = False) -> None:
        self.reading = reading
        self.fields: set[str] = set()
        self.numbers: set[float] = set()
        self.linking: list[str] = []
        """Short values, by whose words a request may mean this record."""
        self.prose: list[str] = []
        self._text: str | None = None
        self._words: set[str] | None = None
        self.secrets: list[tuple[str, str]] = []
        """Names and values of fields that nobody passes on without being asked to."""
        self.table = False
        """Whether its key is a value, as in a table of ratings by name."""
        self.plain = plain
        """Whether it is a bare list of values, of which each stands for itself."""

    def may_have(self, word: str) -> bool:
        """Tell at little cost whether a stem may be among its words: it begins one of them."""
        if self._text is None:
            self._text = "\n".join(self.linking).casefold().replace("_", " ")
        return word in self._text

    @property
    def words(self) -> set[str]:
        """What its short values are about."""
        if self._words is None:
            self._words = telling_words(" ".join(self.linking).replace("_", " "))
        return self._words


class Reading:
    """One result of a tool, or one text of somebody who is not trusted."""

    def __init__(
        self, tool: str, value: Any, tier: Tier, arguments: Mapping[str, Any], key: str
    ) -> None:
        self.tool = tool
        self.tier = tier
        self.arguments = arguments
        self.key = key
        self._value = value
        self._records: list[Record] | None = None
        self._loose: list[str] | None = None
        self._squeezed: list[str] | None = None
        self._numbers: set[float] | None = None
        self._common: dict[str, bool] = {}
        self._shapes: dict[tuple[Any, ...], bool] = {}
        self._left = _MOST_VALUES

    def __str__(self) -> str:
        return f"{self.tool} ({self.key})" if self.key else self.tool

    @property
    def records(self) -> list[Record]:
        """What it holds; taken apart when it is first asked for."""
        if self._records is None:
            self._records = []
            self._take(_whole(self._value, self.tier), None, "", 0)
            self._value = None
        return self._records

    @property
    def prose(self) -> list[str]:
        """All of its free text."""
        return [text for record in self.records for text in record.prose]

    def brings(self, value: str) -> str | None:
        """Return the free text that brings a value in, whatever disguise it wears there."""
        needle = loose(value)
        if self._loose is None:
            self._loose = [loose(text) for text in self.prose]
        for text, original in zip(self._loose, self.prose, strict=True):
            if stands_in(needle, text):
                return original
        tight = squeezed(needle)
        if len(tight) < (5 if "." in tight else 8):
            return None
        if self._squeezed is None:
            self._squeezed = [squeezed(text) for text in self._loose]
        for text, original in zip(self._squeezed, self.prose, strict=True):
            if tight in text:
                return original
        return None

    @property
    def numbers(self) -> set[float]:
        """The numbers in its free text."""
        if self._numbers is None:
            self._numbers = numbers_in("\n".join(self.prose))
        return self._numbers

    def is_common(self, word: str) -> bool:
        """Tell whether so many of its records have a word that it tells none from the others."""
        known = self._common.get(word)
        if known is None:
            records = [one for one in self.records if one.fields]
            having = sum(one.may_have(word) for one in records)
            known = self._common[word] = len(records) >= 4 and having > len(records) / 2
        return known

    # -- taking a value apart ----------------------------------------------------------------------

    def _take(self, value: Any, record: Record | None, key: str, depth: int) -> None:
        self._left -= 1
        value = _opened(value)
        if depth > _DEEPEST or self._left < 0:
            self._open(record).prose.append(_shown(value)[:100_000])
        elif isinstance(value, Mapping):
            self._take_mapping(cast("Mapping[Any, Any]", value), record, key, depth)
        elif isinstance(value, list | tuple):
            items = [_opened(one) for one in cast("Iterable[Any]", value)]
            if record is None and items and not any(_holds(one) for one in items):
                record = self._open(None, plain=len(items) > 1)
            for one in items:
                self._take(one, record, key, depth + 1)
        elif value is not None:
            self._take_scalar(value, self._open(record), key)

    def _take_mapping(
        self, mapping: Mapping[Any, Any], record: Record | None, key: str, depth: int
    ) -> None:
        if self._is_table(mapping):
            for name, one in mapping.items():
                inner = self._open(None)
                inner.table = True
                self._take_scalar(str(name), inner, key)
                self._take(one, inner, str(name), depth + 1)
            return
        mine = self._open(record)
        for name, one in mapping.items():
            if type(one) in _SCALARS and self._left > 0:
                self._left -= 1
                self._take_scalar(one, mine, str(name))
            else:
                self._take(one, mine, str(name), depth + 1)

    def _is_table(self, mapping: Mapping[Any, Any]) -> bool:
        """Tell whether the keys are values themselves, such as ids, rather than names of fields."""
        if not mapping:
            return False
        keys = tuple(mapping)
        named = self._shapes.get(keys)
        if named is None:
            named = self._shapes[keys] = all(str(one).isidentifier() for one in keys)
        return not named or all(isinstance(one, Mapping) for one in mapping.values())

    def _take_scalar(self, value: Any, record: Record, key: str) -> None:
        make: Any = value.__class__
        if make is bool:
            return
        text: str = value if make is str else _shown(value)
        free, secret = _nature_of(key)
        if secret and len(text) >= 4:
            record.secrets.append((key, text))
        if make is int or make is float:
            record.numbers.add(round(value, 2))
            record.fields.add(text)
            return
        if self.tier is not Tier.TOOL:
            record.prose.append(text)
            return
        words = text.count(" ") + 1
        if words > _MOST_WORDS or free or "\n" in text:
            record.prose.append(text)
        else:
            record.fields.add(strict(text))
            number = number_of(text) if text[:1] in _NUMERIC and "-" not in text else None
            if number is not None:
                record.numbers.add(number)
        if words <= _MOST_LINKING:
            record.linking.append(text)

    def _open(self, record: Record | None, *, plain: bool = False) -> Record:
        if record is None:
            record = Record(self, plain=plain)
            assert self._records is not None
            self._records.append(record)
        return record


class Readings:
    """What was said by people who are trusted, and what was read, up to a call."""

    def __init__(self) -> None:
        self._asking: list[str] = []
        self._untrusted: list[Reading] = []
        self._wishes: Wishes | None = None
        self._strict = ""
        self._tight = ""
        self._names: dict[str, bool] = {}
        self._meant: dict[Record, bool] = {}

    def trust(self, text: str, *, asks: bool = False) -> None:
        """Take in what somebody trusted said; `asks` for messages by which they want something."""
        text = sentences_apart(text)
        if asks:
            self._asking.append(text)
        self._wishes = None
        self._strict = "\n".join([self._strict, strict(text)])
        self._tight = "\n".join([self._tight, squeezed(strict(text))])
        self._names.clear()
        self._meant.clear()

    def wants(self, texts: Sequence[str]) -> None:
        """Take these, and no others, as the messages by which trusted people want something."""
        if list(texts) != self._asking:
            self._asking = list(texts)
            self._wishes = None
            self._meant.clear()

    def read(
        self,
        tool: str,
        value: Any,
        *,
        tier: Tier = Tier.TOOL,
        arguments: Mapping[str, Any] | None = None,
        key: str = "",
    ) -> None:
        """Take in the result of a call. JSON text of the owner's own tools is taken apart, too."""
        if tier.trusted:
            self.trust(value if isinstance(value, str) else _text(value))
            return
        self._untrusted.append(Reading(tool, value, tier, arguments or {}, key))
        if self.wishes.delegates:
            self._meant.clear()

    @property
    def tier(self) -> Tier:
        """The least trusted tier of what was read."""
        return least_trusted(one.tier for one in self._untrusted)

    @property
    def untrusted(self) -> list[Reading]:
        """What was read and is not trusted, the oldest first."""
        return self._untrusted

    @property
    def wishes(self) -> Wishes:
        """What trusted people ask for."""
        if self._wishes is None:
            self._wishes = Wishes(self._asking)
        return self._wishes

    # -- where a value comes from ------------------------------------------------------------------

    def named(self, value: str) -> bool:
        """Tell whether trusted text names a value, letter by letter."""
        known = self._names.get(value)
        if known is None:
            known = self._names[value] = self._named(value)
        return known

    def _named(self, value: str) -> bool:
        name = strict(value)
        if len(name) < 2 and not name.isdigit():
            return False
        if stands_in(name, self._strict):
            return True
        tight = squeezed(name)
        if len(tight) < 10 or not any(char.isdigit() for char in tight) or not tight.isalnum():
            return False
        return tight in self._tight

    def brought_by(self, value: str) -> tuple[Reading, str] | None:
        """Return the untrusted reading whose free text names a value, and that text."""
        for one in self._untrusted:
            text = one.brings(value)
            if text is not None:
                return one, text
        return None

    def records_of(self, value: str) -> list[Record]:
        """Return the records that hold a value as a field."""
        name = strict(value)
        return [
            record for one in self._untrusted for record in one.records if name in record.fields
        ]

    def is_named_place(self, reading: Reading) -> bool:
        """Tell whether trusted text named what was read, by an argument of its call."""
        return any(
            self.named(one) and any(char.isalpha() for char in one)
            for one in texts_at(reading.arguments, tuple(reading.arguments))
        )

    def points_at(self, record: Record) -> bool:
        """Tell whether the request points at a text: one that it names, or of a named author."""
        if not record.fields and len(record.reading.records) == 1:
            return self.is_named_place(record.reading)
        return not record.table and any(len(one) >= 3 and self.named(one) for one in record.fields)

    def secrets_in(self, text: str) -> str | None:
        """Return the name of a secret whose value stands in a text, unless it is asked for."""
        tight = squeezed(loose(text))
        for one in self._untrusted:
            for record in one.records:
                for key, value in record.secrets:
                    words = telling_words(key.replace("_", " "))
                    if squeezed(loose(value)) in tight and not words & self.wishes.words:
                        return key
        return None

    def is_meant(self, record: Record, value: str = "") -> bool:
        """Tell whether the request speaks of a record: by its words or numbers, or by its call."""
        if record.plain:
            wishes = self.wishes
            if wishes.everybody or self.is_named_place(record.reading):
                return True
            return bool(telling_words(value) & wishes.words)
        known = self._meant.get(record)
        if known is None:
            known = self._meant[record] = self._is_meant(record)
        return known

    def _is_meant(self, record: Record) -> bool:
        wishes = self.wishes
        reading = record.reading
        if len(reading.records) == 1 and self.is_named_place(reading):
            return True
        if any(one > 1 for one in record.numbers & wishes.numbers):
            return True
        text = wishes.text
        if any(len(one) >= 3 and one in text and stands_in(one, text) for one in record.fields):
            return True
        words = wishes.words
        if wishes.delegates:
            words = words | self._delegated_words()
        return any(
            record.may_have(one) and not reading.is_common(one) and one in record.words
            for one in words
        )

    def _delegated_words(self) -> set[str]:
        found: set[str] = set()
        for one in self._untrusted:
            if self.is_named_place(one):
                found |= {word for text in one.prose for word in telling_words(text[:20_000])}
        return found

    def reasons(self, what: str, value: str = "") -> tuple[Reason, ...]:
        """Return the way from untrusted text to something of a call."""
        brought = self.brought_by(value) if value else None
        if brought is not None:
            reading, text = brought
            return (Reason(what, str(reading), reading.tier.value, excerpt(value, text)),)
        for one in reversed(self._untrusted):
            prose = max(one.prose, key=len, default="")
            if prose:
                return (Reason(what, str(one), one.tier.value, excerpt("", prose)),)
        return ()


@lru_cache(maxsize=4_096)
def _nature_of(key: str) -> tuple[bool, bool]:
    """Tell whether a field is for free text, and whether it is for a secret."""
    return key.casefold() in _FREE_TEXT, _SECRET.search(key) is not None


def _holds(value: Any) -> bool:
    return isinstance(value, Mapping | list | tuple | set | frozenset)


def _text(value: Any) -> str:
    try:
        return orjson.dumps(
            _opened(value), default=_opened, option=orjson.OPT_NON_STR_KEYS
        ).decode()
    except (TypeError, orjson.JSONEncodeError):
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
        return dump()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    return _shown(value)


def _whole(value: Any, tier: Tier) -> Any:
    """Open a whole result. Only as a whole may text be JSON or YAML; inside, it stays text."""
    value = _opened(value)
    # Text of others is theirs from end to end; its shape proves nothing.
    if not isinstance(value, str) or tier is not Tier.TOOL:
        return value
    if value.lstrip()[:1] in ("{", "["):
        try:
            return orjson.loads(value)
        except ValueError:
            return value
    return _rendered(value)


def _rendered(text: str) -> Any:
    """Return the values that a program has rendered as YAML; what a person wrote stays a text."""
    if len(text) > _LONGEST_YAML or not _YAML.match(text):
        return text
    yaml: Any = import_module("yaml")
    try:
        value = yaml.safe_load(text)
        same = yaml.safe_dump(value).strip() == text.strip()
    except (yaml.YAMLError, ValueError, RecursionError):
        return text
    return cast("Any", value) if same and isinstance(value, Mapping | list) else text
