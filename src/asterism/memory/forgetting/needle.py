"""What is looked for: texts, or fingerprints of texts that nobody here knows any more.

Both find a text whatever its case, its spaces, its dashes and its Unicode form, also without them
or with others between its words (`a-b c`, `a+b+c`, `abc`), and behind up to three layers of
escapes: of JSON, of addresses (%C3%BC) and of HTML (&uuml;). A fingerprint is of no
use without the key, which is kept apart from it: whoever can search fast can also guess fast, so no
fingerprint alone could guard a short text.
"""

from __future__ import annotations

import functools
import hashlib
import hmac
import html
import re
import secrets
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from asterism.errors import InvalidInput

if TYPE_CHECKING:
    import numpy as np

SHORTEST = 4
"""A text has at least so many characters: one that is in every second sentence says nothing."""
LONGEST = 20_000

Spans = list[tuple[int, int]]

_SPACES = re.compile(r"\s+")
_BYTE_SPACES = re.compile(rb"[ \t\n\r\f\v]+")
_ESCAPE = re.compile(
    r'\\(?:u([0-9a-fA-F]{4})|(["\\/bfnrt]))'
    r"|((?:%[0-9a-fA-F]{2})+)"
    r"|(&(?:#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6}|[a-zA-Z][a-zA-Z0-9]{1,31});)"
)
_ESCAPING = ("\\", "%", "&")
_MEANS = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_SURROGATE = re.compile("[\ud800-\udbff][\udc00-\udfff]")
_ESCAPED_DEPTH = 3
_MINUS = "\N{MINUS SIGN}"
_BETWEEN = " -+_"
"""What stands between words, folded: an address has a plus for a space, a file's name a line."""
_BETWEEN_BYTES = _BETWEEN.encode()
_GAP = re.compile(r"[ \-+_]+")
_SHORTEST_WORDS, _SURE = 8, 12
"""How many letters words have at least that are looked for with nothing between them, and from how
many on they are found in the middle of other words, too."""


# -- folding -----------------------------------------------------------------------------------


def _folded(one: str) -> str:
    if one.isspace():
        return " "
    return "-" if one == _MINUS or unicodedata.category(one) == "Pd" else one


class _Folds(dict[str, str]):
    """Each character without what makes no difference: case, form, being invisible."""

    def __missing__(self, character: str) -> str:
        if unicodedata.category(character) == "Cf":
            folded = ""
        else:
            plain = unicodedata.normalize("NFKD", character).casefold()
            folded = "".join(map(_folded, unicodedata.normalize("NFKD", plain)))
        self[character] = folded
        return folded


_folds = _Folds()


def fold(text: str) -> str:
    """Return a text without differences of case, spaces and Unicode form."""
    if text.isascii():
        return _SPACES.sub(" ", text).lower()
    return _SPACES.sub(" ", "".join(map(_folds.__getitem__, text)))


def fold_bytes(body: bytes) -> bytes:
    """Return bytes without differences of the case of ASCII letters and of spaces."""
    return _BYTE_SPACES.sub(b" ", body).lower()


@dataclass(slots=True)
class _Units:
    """The characters that a text means, each with where it is written."""

    characters: list[str]
    starts: list[int]
    ends: list[int]

    @staticmethod
    def of(text: str) -> _Units:
        return _Units(list(text), list(range(len(text))), list(range(1, len(text) + 1)))

    def unescaped(self) -> _Units:
        """Return the same with one layer of escapes read."""
        text = "".join(self.characters)
        units = _Units([], [], [])
        at = 0
        for found in _ESCAPE.finditer(text):
            units._copy(self, at, found.start())
            first = found.start()
            for characters, size in _meant(found):
                for character in characters:
                    units._add(character, self.starts[first], self.ends[first + size - 1])
                first += size
            at = found.end()
        units._copy(self, at, len(text))
        return units

    def _copy(self, other: _Units, first: int, last: int) -> None:
        self.characters += other.characters[first:last]
        self.starts += other.starts[first:last]
        self.ends += other.ends[first:last]

    def _add(self, character: str, start: int, end: int) -> None:
        last = self.characters[-1] if self.characters else ""
        if "\ud800" <= last <= "\udbff" and "\udc00" <= character <= "\udfff":
            joined = 0x10000 + ((ord(last) - 0xD800) << 10) + (ord(character) - 0xDC00)
            self.characters[-1] = chr(joined)
            self.ends[-1] = end
        else:
            self.characters.append(character)
            self.starts.append(start)
            self.ends.append(end)

    def folded(self) -> tuple[str, list[int], list[int]]:
        """Return the folded text, and for each of its characters where it comes from."""
        parts: list[str] = []
        starts: list[int] = []
        ends: list[int] = []
        for character, start, end in zip(self.characters, self.starts, self.ends, strict=True):
            for one in _folds[character]:
                if one == " " and parts and parts[-1] == " ":
                    ends[-1] = end
                else:
                    parts.append(one)
                    starts.append(start)
                    ends.append(end)
        return "".join(parts), starts, ends


# -- seeking -----------------------------------------------------------------------------------


class Seeker(Protocol):
    """Something that knows what is looked for."""

    plain: bool
    """Whether all that is looked for is ASCII, so that it can be found in any bytes."""

    def find(self, folded: str) -> Spans:
        """Return where it is in a folded text."""
        ...

    def find_bytes(self, folded: bytes) -> Spans:
        """Return where it is in folded bytes."""
        ...


def spans(seeker: Seeker, text: str) -> Spans:
    """Return where what is looked for is written in a text, in order and without overlaps."""
    found: Spans = []
    depths = _depths_of(seeker, text)
    if not depths:
        return found
    units = _Units.of(text)
    for depth in range(max(depths) + 1):
        if depth:
            units = units.unescaped()
        if depth in depths:
            folded, starts, ends = units.folded()
            found += [(starts[first], ends[last - 1]) for first, last in seeker.find(folded)]
    return merged(found)


def _depths_of(seeker: Seeker, text: str) -> list[int]:
    """Return behind how many layers of escapes it is found."""
    depths: list[int] = []
    for depth in range(_ESCAPED_DEPTH + 1):
        if seeker.find(fold(text)):
            depths.append(depth)
        if not any(one in text for one in _ESCAPING):
            break
        escaped, text = text, _unescaped(text)
        if text == escaped:
            break
    return depths


def _unescaped(text: str) -> str:
    text = _ESCAPE.sub(lambda one: "".join(part for part, _ in _meant(one)), text)
    if text.isascii() or not _SURROGATE.search(text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def _meant(escape: re.Match[str]) -> list[tuple[str, int]]:
    """Return what an escape stands for: characters, each with how many it is written in."""
    code, letter, percents, entity = escape.groups()
    if code:
        return [(chr(int(code, 16)), len(escape[0]))]
    if letter:
        return [(_MEANS[letter], len(escape[0]))]
    if entity:
        return [(html.unescape(entity), len(entity))]
    body = bytes.fromhex(percents.replace("%", ""))
    meant: list[tuple[str, int]] = []
    at = 0
    while at < len(body):
        # As many bytes as make a character of UTF-8; else the byte by itself.
        size = next((n for n in range(1, 5) if _is_character(body[at : at + n], n)), 1)
        part = body[at : at + size]
        meant.append(
            (part.decode("utf-8") if _is_character(part, size) else chr(part[0]), 3 * size)
        )
        at += size
    return meant


def _is_character(body: bytes, size: int) -> bool:
    try:
        return len(body) == size and len(body.decode("utf-8")) == 1
    except UnicodeDecodeError:
        return False


def merged(found: Iterable[tuple[int, int]]) -> Spans:
    """Return spans in order, those that overlap as one."""
    kept: Spans = []
    for start, end in sorted(found):
        if kept and start < kept[-1][1]:
            kept[-1] = (kept[-1][0], max(end, kept[-1][1]))
        else:
            kept.append((start, end))
    return kept


@dataclass(frozen=True, slots=True)
class Gaps:
    """How many gaps between words there are: those with a dash in them, and others."""

    spaces: int
    dashes: int

    @staticmethod
    def of(folded: str) -> Gaps:
        """Return the gaps of a folded text."""
        found = _GAP.findall(folded)
        dashes = sum("-" in one for one in found)
        return Gaps(len(found) - dashes, dashes)

    def fit(self, other: Gaps) -> bool:
        """Tell whether words with other gaps between them are the same.

        All gaps of a kind may be left out, or none; where some are, the words are others.
        """
        whole, there = self.spaces + self.dashes, other.spaces + other.dashes
        both = other.spaces in (0, self.spaces) and other.dashes in (0, self.dashes)
        return both or there in (0, whole)


def tight_form(folded: str) -> str:
    """Return a folded text with nothing between its words; empty if it is not looked for so."""
    tight = _GAP.sub("", folded)
    if tight == folded:
        return ""
    least = SHORTEST if any(map(str.isdigit, tight)) else _SHORTEST_WORDS
    return tight if len(tight) >= least else ""


def _tightened(folded: Any) -> Any:
    """Return a folded text, or bytes, without what stands between words."""
    if isinstance(folded, bytes):
        return folded.translate(None, _BETWEEN_BYTES)
    for one in _BETWEEN:
        folded = folded.replace(one, "")
    return folded


def _spread(folded: Any, found: Sequence[tuple[int, int, Gaps]]) -> Spans:
    """Return where in a folded text that is which was found with nothing between its words."""
    if not found:
        return []
    between: Any = _BETWEEN_BYTES if isinstance(folded, bytes) else _BETWEEN
    places = [at for at, one in enumerate(folded) if one not in between]
    spread: Spans = []
    for start, end, gaps in found:
        first, last = places[start], places[end - 1] + 1
        part = folded[first:last]
        text = part.decode("utf-8", "replace") if isinstance(part, bytes) else part
        around = (folded[max(0, first - 1) : first], folded[last : last + 1])
        apart = end - start >= _SURE or not any(one.isalnum() for one in around)
        if apart and gaps.fit(Gaps.of(text)):
            spread.append((first, last))
    return spread


class Texts:
    """Texts that are looked for as they are."""

    def __init__(self, texts: Iterable[str]) -> None:
        self.texts = tuple(dict.fromkeys(fold(text).strip() for text in texts))
        self._bytes = [text.encode("utf-8", "surrogatepass") for text in self.texts]
        self._tight = [(one, Gaps.of(text)) for text in self.texts if (one := tight_form(text))]
        self.plain = all(text.isascii() for text in self.texts)

    def find(self, folded: str) -> Spans:
        """Return where they are in a folded text."""
        found = [span for text in self.texts for span in _occurrences(folded, text)]
        return merged([*found, *self._loose(folded, [one for one, _ in self._tight])])

    def find_bytes(self, folded: bytes) -> Spans:
        """Return where they are in folded bytes."""
        found = [span for text in self._bytes for span in _occurrences(folded, text)]
        forms = [one.encode("utf-8", "surrogatepass") for one, _ in self._tight]
        return merged([*found, *self._loose(folded, forms)])

    def _loose(self, folded: Any, forms: Sequence[Any]) -> Spans:
        if not forms:
            return []
        tight = _tightened(folded)
        found = [
            (start, end, gaps)
            for form, (_, gaps) in zip(forms, self._tight, strict=True)
            for start, end in _occurrences(tight, form)
        ]
        return _spread(folded, found)


def _occurrences(whole: Any, part: Any) -> Spans:
    found: Spans = []
    at = whole.find(part)
    while at >= 0:
        found.append((at, at + len(part)))
        at = whole.find(part, at + 1)
    return found


def checked(texts: Sequence[str]) -> tuple[str, ...]:
    """Return the texts to be looked for, or raise `InvalidInput` if one of them cannot be."""
    for text in texts:
        if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance] - from Python
            raise InvalidInput(
                f"What is to be forgotten must be text, and a {type(text).__name__} was given. "
                "Nothing was forgotten."
            )
        size = len(fold(text).strip())
        if size < SHORTEST:
            raise InvalidInput(
                f"A text of {size} characters cannot be forgotten, since it is part of too much "
                f"else; at least {SHORTEST} are needed. Give more of it. Nothing was forgotten."
            )
        if size > LONGEST:
            raise InvalidInput(
                f"The text has {size:,} characters, and at most {LONGEST:,} can be looked for. "
                "Give a part of it, or the id of the passage or message. Nothing was forgotten."
            )
    return tuple(texts)


# -- fingerprints ------------------------------------------------------------------------------

_TAG_BITS = 24
_WINDOW = 1 << 20
_SCRYPT: dict[str, int] = {"n": 1 << 14, "r": 8, "p": 1, "maxmem": 64 << 20, "dklen": 32}


def new_key() -> bytes:
    """Return a key for fingerprints."""
    return secrets.token_bytes(32)


def key_name(key: bytes) -> str:
    """Return what tells keys apart and says nothing of them."""
    return hashlib.blake2b(key, digest_size=4, person=b"key name").hexdigest()


def fingerprint(text: str, key: bytes) -> dict[str, Any]:
    """Return by what a text is known again, as JSON, to those who have the key."""
    folded = fold(text).strip()
    salt = secrets.token_hex(16)
    mark = {
        "key": key_name(key),
        "salt": salt,
        "plain": folded.isascii(),
        **_print_of(folded, key, salt),
    }
    if tight := tight_form(folded):
        gaps = Gaps.of(folded)
        mark["tight"] = {
            **_print_of(tight, key, salt),
            "spaces": gaps.spaces,
            "dashes": gaps.dashes,
        }
    return mark


def _print_of(text: str, key: bytes, salt: str) -> dict[str, Any]:
    body = text.encode("utf-8", "surrogatepass")
    return {
        "bytes": len(body),
        "tag": int(_tags(body, len(body), *_numbers(key, salt))[0]),
        "check": _verifier(body, key, salt).hex(),
    }


class Prints:
    """Texts of which only the fingerprints are known."""

    def __init__(self, marks: Iterable[dict[str, Any]], key: bytes) -> None:
        """Take the fingerprints that were made with this key; others cannot be looked for."""
        name = key_name(key)
        self._key = key
        self._marks = [mark for mark in marks if mark["key"] == name]
        self._numbers = [_numbers(key, mark["salt"]) for mark in self._marks]
        self._is_loose = any("tight" in mark for mark in self._marks)
        self.plain = all(mark["plain"] for mark in self._marks)

    def __len__(self) -> int:
        return len(self._marks)

    def find(self, folded: str) -> Spans:
        """Return where they are in a folded text."""
        found = [(start, end) for start, end, _ in _by_characters(folded, self._exact)]
        if self._is_loose:
            found += _spread(folded, _by_characters(_tightened(folded), self._tight))
        return merged(found)

    def find_bytes(self, folded: bytes) -> Spans:
        """Return where they are in folded bytes."""
        found = [(start, end) for start, end, _ in self._exact(folded)]
        if self._is_loose:
            found += _spread(folded, self._tight(_tightened(folded)))
        return merged(found)

    def _exact(self, body: bytes) -> list[tuple[int, int, Gaps]]:
        found: list[tuple[int, int, Gaps]] = []
        for mark, numbers in zip(self._marks, self._numbers, strict=True):
            found += ((*span, _NO_GAPS) for span in self._of(mark, mark["salt"], numbers, body))
        return found

    def _tight(self, body: bytes) -> list[tuple[int, int, Gaps]]:
        found: list[tuple[int, int, Gaps]] = []
        for mark, numbers in zip(self._marks, self._numbers, strict=True):
            if tight := mark.get("tight"):
                gaps = Gaps(tight["spaces"], tight["dashes"])
                found += ((*span, gaps) for span in self._of(tight, mark["salt"], numbers, body))
        return found

    def _of(
        self, mark: dict[str, Any], salt: str, numbers: tuple[int, int], body: bytes
    ) -> Iterable[tuple[int, int]]:
        size = int(mark["bytes"])
        for at in _candidates(body, size, mark["tag"], numbers):
            check = _remembered_verifier(body[at : at + size], self._key, salt)
            if hmac.compare_digest(check.hex(), mark["check"]):
                yield at, at + size


_NO_GAPS = Gaps(0, 0)


def _by_characters(
    text: str, find: Callable[[bytes], list[tuple[int, int, Gaps]]]
) -> list[tuple[int, int, Gaps]]:
    """Return by its characters where something is in a text that is looked for in its bytes."""
    body = text.encode("utf-8", "surrogatepass")
    found = find(body)
    if not found or len(body) == len(text):
        return found
    place = list[int]()
    for index, character in enumerate(text):
        place += [index] * len(character.encode("utf-8", "surrogatepass"))
    place.append(len(text))
    return [(place[start], place[end], gaps) for start, end, gaps in found]


def _verifier(body: bytes, key: bytes, salt: str) -> bytes:
    # Slow, so that even with the key a guess has its price.
    return hashlib.scrypt(body, salt=hmac.digest(key, salt.encode(), "sha256"), **_SCRYPT)


# The same text is often found again.
_remembered_verifier = functools.lru_cache(256)(_verifier)


def _numbers(key: bytes, salt: str) -> tuple[int, int]:
    """Return the base of the rolling hash and what its bits are mixed with."""
    made = hmac.digest(key, b"rolling " + salt.encode(), "sha256")
    # 5 modulo 8, so that its powers do not repeat soon; odd, so that nothing is lost.
    base = int.from_bytes(made[:8]) & ~7 | 5
    return base, int.from_bytes(made[8:16]) | 1


def _candidates(body: bytes, size: int, tag: int, numbers: tuple[int, int]) -> list[int]:
    found: list[int] = []
    for first in range(0, len(body) - size + 1, _WINDOW):
        tags = _tags(body[first : first + _WINDOW + size - 1], size, *numbers)
        found += [first + int(at) for at in (tags == tag).nonzero()[0]]
    return found


def _tags(body: bytes, size: int, base: int, mix: int) -> np.ndarray[Any, Any]:
    """Return a short hash of each window of `size` bytes: a polynomial modulo 2^64."""
    import numpy as np

    count = len(body) - size + 1
    powers = _powers(len(body), base)
    values = np.frombuffer(body, np.uint8).astype(np.uint64) + np.uint64(1)
    sums = np.concatenate((np.zeros(1, np.uint64), np.cumsum(values * powers, dtype=np.uint64)))
    windows = (sums[size:] - sums[:-size]) * _powers(count, pow(base, -1, 1 << 64))
    return (windows * np.uint64(mix)) >> np.uint64(64 - _TAG_BITS)


def _powers(count: int, base: int) -> np.ndarray[Any, Any]:
    import numpy as np

    factors = np.full(count, base, np.uint64)
    factors[0] = 1
    return np.multiply.accumulate(factors)
