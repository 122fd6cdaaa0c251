"""What is looked for: texts, or fingerprints of texts that nobody here knows any more.

Both find a text whatever its case, its spaces and its Unicode form, and behind up to three layers
of JSON's escapes. A fingerprint is of no use without the key, which is kept apart from it: whoever
can search fast can also guess fast, so no fingerprint alone could guard a short text.
"""

from __future__ import annotations

import functools
import hashlib
import hmac
import re
import secrets
import unicodedata
from collections.abc import Iterable, Sequence
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
_ESCAPE = re.compile(r'\\(?:u([0-9a-fA-F]{4})|(["\\/bfnrt]))')
_MEANS = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_SURROGATE = re.compile("[\ud800-\udbff][\udc00-\udfff]")
_ESCAPED_DEPTH = 3


# -- folding -----------------------------------------------------------------------------------


class _Folds(dict[str, str]):
    """Each character without what makes no difference: case, form, being invisible."""

    def __missing__(self, character: str) -> str:
        if unicodedata.category(character) == "Cf":
            folded = ""
        else:
            plain = unicodedata.normalize("NFKD", character).casefold()
            folded = "".join(
                " " if one.isspace() else one for one in unicodedata.normalize("NFKD", plain)
            )
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
        """Return the same with JSON's escapes read."""
        text = "".join(self.characters)
        units = _Units([], [], [])
        at = 0
        for found in _ESCAPE.finditer(text):
            units._copy(self, at, found.start())
            character = chr(int(found[1], 16)) if found[1] else _MEANS[found[2]]
            units._add(character, self.starts[found.start()], self.ends[found.end() - 1])
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
        if "\\" not in text:
            break
        text = _unescaped(text)
    return depths


def _unescaped(text: str) -> str:
    text = _ESCAPE.sub(lambda one: chr(int(one[1], 16)) if one[1] else _MEANS[one[2]], text)
    if text.isascii() or not _SURROGATE.search(text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def merged(found: Iterable[tuple[int, int]]) -> Spans:
    """Return spans in order, those that overlap as one."""
    kept: Spans = []
    for start, end in sorted(found):
        if kept and start < kept[-1][1]:
            kept[-1] = (kept[-1][0], max(end, kept[-1][1]))
        else:
            kept.append((start, end))
    return kept


class Texts:
    """Texts that are looked for as they are."""

    def __init__(self, texts: Iterable[str]) -> None:
        self.texts = tuple(dict.fromkeys(fold(text).strip() for text in texts))
        self._bytes = [text.encode("utf-8", "surrogatepass") for text in self.texts]
        self.plain = all(text.isascii() for text in self.texts)

    def find(self, folded: str) -> Spans:
        """Return where they are in a folded text."""
        return merged(span for text in self.texts for span in _occurrences(folded, text))

    def find_bytes(self, folded: bytes) -> Spans:
        """Return where they are in folded bytes."""
        return merged(span for text in self._bytes for span in _occurrences(folded, text))


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
    body = folded.encode("utf-8", "surrogatepass")
    salt = secrets.token_hex(16)
    return {
        "key": key_name(key),
        "salt": salt,
        "bytes": len(body),
        "plain": folded.isascii(),
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
        self.plain = all(mark["plain"] for mark in self._marks)

    def __len__(self) -> int:
        return len(self._marks)

    def find(self, folded: str) -> Spans:
        """Return where they are in a folded text."""
        body = folded.encode("utf-8", "surrogatepass")
        found = self.find_bytes(body)
        if not found or len(body) == len(folded):
            return found
        place = list[int]()
        for index, character in enumerate(folded):
            place += [index] * len(character.encode("utf-8", "surrogatepass"))
        place.append(len(folded))
        return [(place[start], place[end]) for start, end in found]

    def find_bytes(self, folded: bytes) -> Spans:
        """Return where they are in folded bytes."""
        found: Spans = []
        for mark, numbers in zip(self._marks, self._numbers, strict=True):
            size = int(mark["bytes"])
            for at in _candidates(folded, size, mark["tag"], numbers):
                if self._is(mark, folded[at : at + size]):
                    found.append((at, at + size))
        return merged(found)

    def _is(self, mark: dict[str, Any], body: bytes) -> bool:
        check = _remembered_verifier(body, self._key, mark["salt"])
        return hmac.compare_digest(check.hex(), mark["check"])


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
