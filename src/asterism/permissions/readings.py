"""Readings: results of tools and texts of people who are not trusted, value by value.

Values that only the owner's side or a system can have written are kept apart from text that anybody
may have written. A tool *declares* which of its fields hold such values; the shape of a result
proves nothing.
"""

from __future__ import annotations

import contextlib
import dataclasses
import re
import tomllib
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib import resources
from typing import Any, cast
from urllib.parse import urljoin

import orjson

from asterism.types.agents import Trust
from asterism.types.permissions import Effect, Results, amounts_of, texts_at
from asterism.types.values import address_of, links_in, number_of, numbers_in

MAX_VALUES = 20_000
"""How many values of a result are read one by one; the rest counts as text."""
_MAX_DEPTH = 24
_NUMERIC = frozenset("0123456789$€£")
_MAX_TEXT = 2_000_000
MAX_QUOTED = 400_000
"""Characters of a text in which quotes are looked for."""
_MAX_PLACE = 80
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
        """Values that only the owner's side or the system can have written, in plain form."""
        self.raw: list[str] = []
        """The same values as they were written."""
        self.names: list[str] = []
        """The values that are names of the record, in plain form."""
        self.accounts: list[str] = []
        """The values that are accounts and can be paid, as they were written."""
        self.guessed = False
        """Whether the tool does not declare which values are accounts."""
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
        """Tell whether a value is one of the trusted values."""
        return is_among(value, self.raw)

    def trust(
        self, text: str, number: float | None, *, account: bool = False, name: bool = False
    ) -> None:
        """Add a value that only the owner's side or the system can have written."""
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


class ReadContent:
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
        """Add a result.

        Args:
            tool: The tool that returned it.
            value: Text, or JSON-like values.
            trust: How far the text is trusted.
            arguments: The arguments of the call.
            places: The arguments that say what was read: a path, an address, a channel.
            results: The tool's declaration of its results.
            effects: The effects of the call.
            key: The key of the call, to show to people.
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
    def name(self) -> str:
        """What was read, for a person: a path or an address with the tool, or the tool alone."""
        if not self.places:
            return self.tool
        return f"{self.places[0][:_MAX_PLACE]!r} ({self.tool})"

    @property
    def source(self) -> str:
        """The label of the kind of results, such as `mail`."""
        return self.results.source or self.tool

    @property
    def closed(self) -> bool:
        """Whether only people whom the owner's side invited can add to it."""
        return self.owned or self.results.closed

    @property
    def owned(self) -> bool:
        """Whether only the owner's side writes all of it."""
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
            links = set(links_in(self.text))
            if self.trust is Trust.WEB and self.places:
                base = self.places[0] if "://" in self.places[0] else f"https://{self.places[0]}"
                links.update(
                    urljoin(base, link) for link in _RELATIVE.findall(self.text[:MAX_QUOTED])
                )
            self._links = frozenset(links)
        return self._links

    @property
    def numbers(self) -> set[float]:
        """The numbers in it."""
        if self._numbers is None:
            self._numbers = numbers_in(self.text)
        return self._numbers

    def brings(self, value: str) -> bool:
        """Tell whether the text contains a value, even in a disguised spelling."""
        needle = replace_lookalikes(value)
        if self._seen is None:
            self._seen = replace_lookalikes(self.text)
        if contains_name(needle, self._seen):
            return True
        tight = squeeze(needle)
        if len(tight) < (5 if "." in tight else 8):
            return False
        if self._tight is None:
            self._tight = squeeze(self._seen)
        return tight in self._tight

    @property
    def words(self) -> frozenset[str]:
        """The longer words of its text."""
        if self._words is None:
            self._words = long_words(self.text[:MAX_QUOTED])
        return self._words

    @property
    def pieces(self) -> frozenset[str]:
        """The pieces of its text that show whether something was copied from it."""
        if self._pieces is None:
            self._pieces = frozenset(pieces_of(self.text[:MAX_QUOTED]))
        return self._pieces

    def is_about(self, literal: str) -> bool:
        """Tell whether a literal names the place that was read."""
        wanted = plain(literal)
        web = self.trust is Trust.WEB
        if any(_is_place(wanted, place, web=web) for place in self.places):
            return True
        texts = texts_at(self.arguments, tuple(self.arguments))
        if len(self.records) > 1:
            # Words of a search are not a place and do not identify a record: every record that is
            # found contains them.
            named = any(same(wanted, plain(text)) for text in texts)
            return named and not any(wanted in plain(record.text) for record in self.records)
        return any(_is_place(wanted, text, web=web) for text in texts)

    # -- records -----------------------------------------------------------------------------------

    @property
    def records(self) -> list[Record]:
        """The records of the result; read at the first use."""
        if self._records is None:
            self._records = []
            value = _as_plain_value(self._value)
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
        value = _as_plain_value(value)
        if depth > _MAX_DEPTH or self._left < 0:
            self._add(record).prose_parts.append(_text(value))
        elif isinstance(value, Mapping):
            self._take_mapping(cast("Mapping[Any, Any]", value), record, depth, trusted=trusted)
        elif isinstance(value, list | tuple):
            for element in cast("Iterable[Any]", value):
                item = _as_plain_value(element)
                # A list of values under a key belongs to its record. Mappings in a list are records
                # of their own, unless they are nameless parts of the owner's text.
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
        for name, value in mapping.items():
            key = str(name)
            known = trusted or (not inside and key in fields)
            if known and not key.isidentifier():
                mine.trust(key, None, name=True)  # the key is a value itself, as in a table
            item = _as_plain_value(value)
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
    """Tell whether a literal names a place: the whole of it, or a part that identifies it."""
    address = address_of(place) if web or "://" in place else None
    if address is None:
        return same(wanted, plain(place)) or contains_name(wanted, plain(place))
    # The author of a link chooses everything after the path of an address, and the parts of the
    # path that look like another address.
    path = plain(address.host + address.rest.partition("?")[0].partition("#")[0])
    path = path.removeprefix("www.").rstrip("/")
    if not re.search(r"[./]", wanted):
        return contains_name(wanted, path)
    wanted = (wanted.partition("://")[2] or wanted).removeprefix("www.").rstrip("/")
    return path == wanted or path.startswith(f"{wanted}/")


def _number(value: float) -> float | None:
    try:
        return float(value)
    except OverflowError:
        return None


def is_among(value: str, values: Iterable[str]) -> bool:
    """Tell whether a value is equal to one of several values."""
    return any(equal(value, other) for other in values)


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    try:
        return orjson.dumps(
            _as_plain_value(value), default=_as_plain_value, option=orjson.OPT_NON_STR_KEYS
        ).decode()
    except (TypeError, orjson.JSONEncodeError, RecursionError):
        return _as_string(value)


def _as_string(value: Any) -> str:
    try:
        return str(value)
    except RecursionError:
        return "(nested too deeply to be shown)"


def _as_plain_value(value: Any) -> Any:
    """Convert a value of a tool into a mapping, a list or a scalar, one level deep."""
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
    return _as_string(value)


_ALIKE = str.maketrans(
    "авеёзікмнорсуухѕјԁԛԝһӏαβεικνορτυχ",
    "aBee3iKMHopcyyxsjdqwhlaBeiKvoptux".casefold(),
)
"""Cyrillic and Greek letters that are drawn like Latin ones."""
_SQUEEZED = str.maketrans("", "", " \t\r\n-\u00a0\u2010\u2011\u2013'\"")
_AROUND = "\"'#@ "
_CODE = re.compile(r"[a-z][A-Z]|\d[a-z]+[A-Z]|[A-Z]\d+[a-z]|[a-z]\d+[A-Z]|[A-Z]{2,}[a-z]")
_JOINS = frozenset("@._+-/")
"""Signs that join the words on both sides into one name."""
_FOREIGN = re.compile(r"[^\x00-\x7f]+")
_UNSEEN = frozenset({"Cf", "Mn", "Me"})
_SENTENCES = re.compile(r"(?<=[.!?。！？؟])\s*|[\r\n]+")
_MARKS = " \t\"'“”„«»*-–—•.,;:!?。！？؟()、"


_RUN_ON = re.compile(r"(?<=[a-z][.!?])(?=[A-Z][a-z])")


def separate_sentences(text: str) -> str:
    """Return a text with the spaces that its author forgot between sentences."""
    return _RUN_ON.sub(" ", text)


def plain(text: str) -> str:
    """Return a text with one kind of spaces and without capitals.

    Not `casefold`, which makes two letters of some: `weiß.example` is not `weiss.example`.
    """
    if not text.isascii():
        text = unicodedata.normalize("NFC", text)
    return " ".join(text.lower().split())


def replace_lookalikes(text: str) -> str:
    """Return a text with look-alike letters replaced by the letters that people see."""
    if not text.isascii():
        text = _FOREIGN.sub(_as_latin, text)
    return " ".join(text.casefold().split())


def _as_latin(run: re.Match[str]) -> str:
    folded = unicodedata.normalize("NFKD", run.group()).casefold().translate(_ALIKE)
    return "".join(char for char in folded if unicodedata.category(char) not in _UNSEEN)


def squeeze(text: str) -> str:
    """Return a text without the spaces and dashes that group numbers."""
    return text.translate(_SQUEEZED)


def equal(first: str, second: str) -> bool:
    """Tell whether two values are the same, however a number in them is grouped.

    Case is ignored, except in codes such as `aB3x`, which may differ only in case.
    """
    if not same(plain(first), plain(second)):
        return False
    if not (_is_code(first) or _is_code(second)):
        return True
    return squeeze(first.strip(_AROUND)) == squeeze(second.strip(_AROUND))


def same(first: str, second: str) -> bool:
    """Tell whether two values in plain form are the same, however a number in them is grouped."""
    first, second = first.strip(_AROUND), second.strip(_AROUND)
    if first == second:
        return bool(first)
    tight = squeeze(first)
    if len(tight) >= 8 and any(char.isdigit() for char in tight) and tight.isalnum():
        return tight == squeeze(second)
    return False


def _is_code(value: str) -> bool:
    """Tell whether a value has digits and capitals in the middle of a word, as ids and keys do."""
    return "@" not in value and bool(_CODE.search(value)) and any(map(str.isdigit, value))


def contains_name(name: str, text: str) -> bool:
    """Tell whether a text contains a name as a whole, not as a part of another name."""
    at = text.find(name) if name else -1
    while at >= 0:
        end = at + len(name)
        if not _goes_on(text, at - 1, -1, name[0]) and not _goes_on(text, end, 1, name[-1]):
            return True
        at = text.find(name, at + 1)
    return False


def _goes_on(text: str, at: int, step: int, edge: str) -> bool:
    """Tell whether the name that ends with `edge` continues at a position of the text."""
    if not 0 <= at < len(text) or not edge.isalnum():
        return False
    if text[at].isalnum():
        # Scripts without spaces have no gap between names and other words.
        return not (_is_unspaced(text[at]) or _is_unspaced(edge))
    beyond = at + step
    return text[at] in _JOINS and 0 <= beyond < len(text) and text[beyond].isalnum()


def _is_unspaced(char: str) -> bool:
    return (
        "\u2e80" <= char <= "\ud7ff" or "\uf900" <= char <= "\ufaff" or "\u0e00" <= char <= "\u0eff"
    )


_QUOTED_WORDS = 4
_QUOTED_SIGNS = 5
_LONG_WORD = 5
_PIECE_WORD = re.compile(r"[^\W_]+")
_UNSPACED = re.compile("[\u2e80-\u9fff\uac00-\ud7af\u0e00-\u0e7f0-9]{5,}")


def pieces_of(text: str) -> Iterator[str]:
    """Yield the pieces of a text that show where it was copied from.

    A few words in a row with at least two long ones; in scripts without spaces, a few signs.
    """
    seen = replace_lookalikes(text)
    words = _PIECE_WORD.findall(seen)
    long = [len(word) >= _LONG_WORD for word in words]
    for start in range(len(words) - _QUOTED_WORDS + 1):
        end = start + _QUOTED_WORDS
        if sum(long[start:end]) >= 2:
            yield " ".join(words[start:end])
    if seen.isascii():
        return
    for run in _UNSPACED.findall(squeeze(seen)):
        for start in range(len(run) - _QUOTED_SIGNS + 1):
            if not (piece := run[start : start + _QUOTED_SIGNS]).isascii():
                yield piece


def word_count(text: str) -> int:
    """Return how many words a text has; of scripts without spaces, two signs count as one."""
    unspaced = sum(map(_is_unspaced, text))
    return len(text.split()) + unspaced // 2


def tight(text: str) -> str:
    """Return the letters and digits of a text alone, without capitals; digits are ASCII."""
    seen = unicodedata.normalize("NFKC", text) if not text.isascii() else text
    return "".join(_digit(char) for char in seen.casefold() if char.isalnum())


def _digit(char: str) -> str:
    return char if char.isascii() else str(unicodedata.decimal(char, char))


def long_words(text: str) -> frozenset[str]:
    """Return the words of a text that are long enough to show its topic."""
    return frozenset(
        word for word in _PIECE_WORD.findall(replace_lookalikes(text)) if len(word) >= _LONG_WORD
    )


def is_quoted_from(text: str, source: str) -> bool:
    """Tell whether every sentence of a text is in a source text, word by word."""
    there = plain(source)
    parts = [plain(sentence).strip(_MARKS) for sentence in _SENTENCES.split(text)]
    parts = [part for part in parts if part]
    return bool(parts) and all(contains_name(part, there) for part in parts)


def excerpt(needle: str, text: str, around: int = 60) -> str:
    """Return the part of a text around a needle, or the beginning of the text."""
    at = text.casefold().find(needle.casefold()) if needle else -1
    start = max(0, at - around) if at >= 0 else 0
    end = (at + len(needle) if at >= 0 else 0) + around
    cut = " ".join(text[start:end].split())
    return f"{'…' if start else ''}{cut}{'…' if end < len(text) else ''}"


_CURRENCIES = {
    name: group.split()[0]
    for group in (
        "eur € euro euros",
        "usd $ dollar dollars us$",
        "gbp £ pound pounds",
        "jpy yen 円",
        "cny yuan rmb 元",
        "chf franken francs",
        "inr ₹ rupees",
        "btc ₿ bitcoin bitcoins",
    )
    for name in group.split()
}
_MONEY = re.compile(
    r"(?:[$€£¥₹₽]|\b[A-Z]{3})[  ]?(\d[\d.,'  ]{0,20})|"
    r"(\d[\d.,']{0,20})[  ]?(?:[$€£¥₹₽]|[A-Z]{3}\b)|(\d[\d']{0,12}[.,]\d\d)(?!\d)"
)
_MAX_PARTS = 12
_MAX_OPERANDS = 24
_NUMERALS = {
    **{char: value for value, char in enumerate("〇一二三四五六七八九")},
    "零": 0,
    "两": 2,
    "兩": 2,
    "十": 10,
    "百": 100,
    "千": 1_000,
    "万": 10_000,
}


@cache
def number_words() -> dict[str, float]:
    """Return numbers in words, in languages other than English."""
    text = resources.files("asterism.permissions").joinpath("numbers.toml").read_text("utf-8")
    table = tomllib.loads(text)
    words = {word: value for value, names in table.pop("more").items() for word in names.split()}
    for names in table.values():
        words |= {word: value for value, word in enumerate(names.split())}
    return {word: float(value) for word, value in words.items()}


def amounts_in_literal(text: str) -> tuple[float, ...]:
    """Return the amounts in a literal of a request, in digits or in words."""
    word = plain(text).strip(" .,!?")
    if word in number_words():
        return (number_words()[word],)
    numeral = _numeral(word)
    if numeral is not None:
        return (numeral,)
    return amounts_of(text) or ()


def _numeral(word: str) -> float | None:
    """Read Chinese and Japanese numerals, such as 两, 一百 or 二十五."""
    if not word or not all(char in _NUMERALS for char in word):
        return None
    total = digit = 0
    for char in word:
        value = _NUMERALS[char]
        if value >= 10:
            total, digit = total + (digit or 1) * value, 0
        else:
            digit = value
    return float(total + digit)


def digit_of(word: str) -> str:
    """Return the digit that a word means; empty if it means none."""
    for value in amounts_in_literal(word):
        if 0 <= value <= 9 and value == int(value):
            return str(int(value))
    return ""


def amounts_in_text(text: str) -> set[float]:
    """Return the amounts in a text: numbers beside a currency or with cents, if there are such."""
    money = [
        amounts_of(next(filter(None, match.groups())).strip()) for match in _MONEY.finditer(text)
    ]
    amounts = {round(amount, 2) for group in money for amount in group or ()}
    return amounts or {round(amount, 2) for amount in numbers_in(text)}


def computed_amounts(known: set[float], way: str) -> set[float]:
    """Return the amounts that can be computed from known ones in one way, such as `part`."""
    few = sorted(known)[:_MAX_OPERANDS]
    shares = {a * b / 100 for a in few for b in few if b <= 100}
    results: set[float] = set()
    match way:
        case "part":
            results = {amount / share for amount in few for share in range(2, _MAX_PARTS + 1)}
        case "percent":
            results = shares | {share + amount for share in shares for amount in few}
        case "sum":
            results = {a + b for a in few for b in few if a != b} | {sum(few)}
        case "difference":
            # The difference to a share, such as of a bill for two.
            results = {abs(a - b / n) for a in few for b in few for n in (1, 2, 3, 4) if a != b}
        case "more":
            results = {a + b for a in few for b in few if a != b}
            results |= {a + a * b / 100 for a in few for b in few if b < a and b <= 100}
        case "less":
            results = {a - b for a in few for b in few if a > b}
            results |= {a - a * b / 100 for a in few for b in few if b < a and b <= 100}
        case _:
            pass
    return {round(amount, 2) for amount in results if amount > 0}


def currency_of(unit: str) -> str:
    """Return the code of a currency, such as `eur` for `€`; other units stay unchanged."""
    return _CURRENCIES.get(unit.lower(), unit.lower())


def currencies_in(text: str) -> set[str]:
    """Return the codes of the currencies in a text."""
    words = plain(text)
    return {
        code
        for name, code in _CURRENCIES.items()
        if (contains_name(name, words) if name.isascii() and name.isalpha() else name in words)
    }
