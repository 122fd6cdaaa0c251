"""Finding a text and taking it out: of plain text, JSON, wire forms and any bytes.

What is looked for is a text, or the fingerprint of one that nobody here knows any more.
Both are found whatever the case, the spaces, the dashes and the Unicode form, also without them
or with others between the words (`a-b c`, `a+b+c`, `abc`), and behind up to three layers of
escapes: of JSON, of addresses (%C3%BC) and of HTML (&uuml;). A fingerprint is of no use without the
key, which is kept apart from it: whoever can search fast can also guess fast, so no fingerprint
alone could guard a short text.
"""

from __future__ import annotations

import base64
import binascii
import functools
import hashlib
import hmac
import html
import re
import secrets
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, cast

import orjson

from asterism.errors import InvalidInput
from asterism.records import dataclass

if TYPE_CHECKING:
    import numpy as np

MIN_LENGTH = 4
"""A text has at least so many characters: one that is in every second sentence says nothing."""
MAX_LENGTH = 20_000

Spans = list[tuple[int, int]]

_SPACES = re.compile(r"\s+")
_BYTE_SPACES = re.compile(rb"[ \t\n\r\f\v]+")
_ESCAPE = re.compile(
    r'\\(?:u([0-9a-fA-F]{4})|(["\\/bfnrt]))'
    r"|((?:%[0-9a-fA-F]{2})+)"
    r"|(&(?:#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6}|[a-zA-Z][a-zA-Z0-9]{1,31});)"
)
_ESCAPING = ("\\", "%", "&")
_ESCAPED_CHARACTERS = {
    '"': '"',
    "\\": "\\",
    "/": "/",
    "b": "\b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
}
_SURROGATE = re.compile("[\ud800-\udbff][\udc00-\udfff]")
_MAX_ESCAPE_DEPTH = 3
_MINUS = "\N{MINUS SIGN}"
_BETWEEN = " -+_"
"""What stands between words once normalized: a plus for a space in an address, a line in a name."""
_BETWEEN_BYTES = _BETWEEN.encode()
_GAP = re.compile(r"[ \-+_]+")
_MIN_GAPLESS, _MIN_INSIDE_WORDS = 8, 12
"""How many letters words have at least that are looked for with nothing between them, and from how
many on they are found in the middle of other words, too."""


# -- normalizing -----------------------------------------------------------------------------------


def _plain_character(character: str) -> str:
    if character.isspace():
        return " "
    return "-" if character == _MINUS or unicodedata.category(character) == "Pd" else character


class _NormalForms(dict[str, str]):
    """Each character without what makes no difference: case, form, being invisible."""

    def __missing__(self, character: str) -> str:
        if unicodedata.category(character) == "Cf":
            normalized = ""
        else:
            plain = unicodedata.normalize("NFKD", character).casefold()
            normalized = "".join(map(_plain_character, unicodedata.normalize("NFKD", plain)))
        self[character] = normalized
        return normalized


_normal_forms = _NormalForms()


def normalize(text: str) -> str:
    """Return a text without differences of case, spaces and Unicode form."""
    if text.isascii():
        return _SPACES.sub(" ", text).lower()
    return _SPACES.sub(" ", "".join(map(_normal_forms.__getitem__, text)))


def normalize_bytes(body: bytes) -> bytes:
    """Return bytes without differences of the case of ASCII letters and of spaces."""
    return _BYTE_SPACES.sub(b" ", body).lower()


@dataclass(slots=True)
class _Characters:
    """The characters that a text means, each with where it is written."""

    characters: list[str]
    starts: list[int]
    ends: list[int]

    @staticmethod
    def of(text: str) -> _Characters:
        return _Characters(list(text), list(range(len(text))), list(range(1, len(text) + 1)))

    def unescaped(self) -> _Characters:
        """Return the same with one layer of escapes read."""
        text = "".join(self.characters)
        units = _Characters([], [], [])
        at = 0
        for match in _ESCAPE.finditer(text):
            units._copy(self, at, match.start())
            first = match.start()
            for characters, size in _characters_of(match):
                for character in characters:
                    units._add(character, self.starts[first], self.ends[first + size - 1])
                first += size
            at = match.end()
        units._copy(self, at, len(text))
        return units

    def _copy(self, other: _Characters, first: int, last: int) -> None:
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

    def normalized(self) -> tuple[str, list[int], list[int]]:
        """Return the normalized text, and for each of its characters where it comes from."""
        parts: list[str] = []
        starts: list[int] = []
        ends: list[int] = []
        for character, start, end in zip(self.characters, self.starts, self.ends, strict=True):
            for plain in _normal_forms[character]:
                if plain == " " and parts and parts[-1] == " ":
                    ends[-1] = end
                else:
                    parts.append(plain)
                    starts.append(start)
                    ends.append(end)
        return "".join(parts), starts, ends


# -- matching -----------------------------------------------------------------------------------


class Matcher(Protocol):
    """Finds texts, or texts with certain fingerprints."""

    plain: bool
    """Whether all that is looked for is ASCII, so that it can be found in any bytes."""

    def find(self, normalized: str) -> Spans:
        """Return where it is in a normalized text."""
        ...

    def find_bytes(self, normalized: bytes) -> Spans:
        """Return where it is in normalized bytes."""
        ...


def find_spans(matcher: Matcher, text: str) -> Spans:
    """Return the matches in a text, in order and without overlaps."""
    spans: Spans = []
    depths = _escape_depths(matcher, text)
    if not depths:
        return spans
    units = _Characters.of(text)
    for depth in range(max(depths) + 1):
        if depth:
            units = units.unescaped()
        if depth in depths:
            normalized, starts, ends = units.normalized()
            spans += [(starts[first], ends[last - 1]) for first, last in matcher.find(normalized)]
    return merge_spans(spans)


def _escape_depths(matcher: Matcher, text: str) -> list[int]:
    """Return behind how many layers of escapes it is found."""
    depths: list[int] = []
    for depth in range(_MAX_ESCAPE_DEPTH + 1):
        if matcher.find(normalize(text)):
            depths.append(depth)
        if not any(sign in text for sign in _ESCAPING):
            break
        escaped, text = text, _unescaped(text)
        if text == escaped:
            break
    return depths


def _unescaped(text: str) -> str:
    text = _ESCAPE.sub(lambda match: "".join(part for part, _ in _characters_of(match)), text)
    if text.isascii() or not _SURROGATE.search(text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def _characters_of(escape: re.Match[str]) -> list[tuple[str, int]]:
    """Return the characters of an escape, each with the length of its written form."""
    code, letter, percents, entity = escape.groups()
    if code:
        return [(chr(int(code, 16)), len(escape[0]))]
    if letter:
        return [(_ESCAPED_CHARACTERS[letter], len(escape[0]))]
    if entity:
        return [(html.unescape(entity), len(entity))]
    body = bytes.fromhex(percents.replace("%", ""))
    characters: list[tuple[str, int]] = []
    at = 0
    while at < len(body):
        # As many bytes as make a character of UTF-8; else the byte by itself.
        size = next((n for n in range(1, 5) if _is_character(body[at : at + n], n)), 1)
        part = body[at : at + size]
        characters.append(
            (part.decode("utf-8") if _is_character(part, size) else chr(part[0]), 3 * size)
        )
        at += size
    return characters


def _is_character(body: bytes, size: int) -> bool:
    try:
        return len(body) == size and len(body.decode("utf-8")) == 1
    except UnicodeDecodeError:
        return False


def merge_spans(spans: Iterable[tuple[int, int]]) -> Spans:
    """Return spans in order, those that overlap as one."""
    merged: Spans = []
    for start, end in sorted(spans):
        if merged and start < merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


@dataclass(frozen=True, slots=True)
class Gaps:
    """How many gaps between words there are: those with a dash in them, and others."""

    spaces: int
    dashes: int

    @staticmethod
    def of(normalized: str) -> Gaps:
        """Return the gaps of a normalized text."""
        gaps = _GAP.findall(normalized)
        dashes = sum("-" in gap for gap in gaps)
        return Gaps(len(gaps) - dashes, dashes)

    def fit(self, other: Gaps) -> bool:
        """Tell whether words with other gaps between them are the same.

        All gaps of a kind may be left out, or none; where some are, the words are others.
        """
        whole, there = self.spaces + self.dashes, other.spaces + other.dashes
        both = other.spaces in (0, self.spaces) and other.dashes in (0, self.dashes)
        return both or there in (0, whole)


def gapless_form(normalized: str) -> str:
    """Return a normalized text with nothing between its words; empty if it is not looked for so."""
    tight = _GAP.sub("", normalized)
    if tight == normalized:
        return ""
    least = MIN_LENGTH if any(map(str.isdigit, tight)) else _MIN_GAPLESS
    return tight if len(tight) >= least else ""


def _without_gaps(normalized: Any) -> Any:
    """Return a normalized text, or bytes, without what stands between words."""
    if isinstance(normalized, bytes):
        return normalized.translate(None, _BETWEEN_BYTES)
    for sign in _BETWEEN:
        normalized = normalized.replace(sign, "")
    return normalized


def _with_gaps(normalized: Any, matches: Sequence[tuple[int, int, Gaps]]) -> Spans:
    """Return where in a normalized text that is which was found with nothing between its words."""
    if not matches:
        return []
    between: Any = _BETWEEN_BYTES if isinstance(normalized, bytes) else _BETWEEN
    places = [at for at, character in enumerate(normalized) if character not in between]
    spread: Spans = []
    for start, end, gaps in matches:
        first, last = places[start], places[end - 1] + 1
        part = normalized[first:last]
        text = part.decode("utf-8", "replace") if isinstance(part, bytes) else part
        around = (normalized[max(0, first - 1) : first], normalized[last : last + 1])
        apart = end - start >= _MIN_INSIDE_WORDS or not any(beside.isalnum() for beside in around)
        if apart and gaps.fit(Gaps.of(text)):
            spread.append((first, last))
    return spread


class TextMatcher:
    """Texts that are looked for as they are."""

    def __init__(self, texts: Iterable[str]) -> None:
        self.texts = tuple(dict.fromkeys(normalize(text).strip() for text in texts))
        self._bytes = [text.encode("utf-8", "surrogatepass") for text in self.texts]
        self._tight = [(form, Gaps.of(text)) for text in self.texts if (form := gapless_form(text))]
        self.plain = all(text.isascii() for text in self.texts)

    def find(self, normalized: str) -> Spans:
        """Return where they are in a normalized text."""
        spans = [span for text in self.texts for span in _occurrences(normalized, text)]
        return merge_spans(
            [*spans, *self._find_gapless(normalized, [form for form, _ in self._tight])]
        )

    def find_bytes(self, normalized: bytes) -> Spans:
        """Return where they are in normalized bytes."""
        spans = [span for text in self._bytes for span in _occurrences(normalized, text)]
        forms = [form.encode("utf-8", "surrogatepass") for form, _ in self._tight]
        return merge_spans([*spans, *self._find_gapless(normalized, forms)])

    def _find_gapless(self, normalized: Any, forms: Sequence[Any]) -> Spans:
        if not forms:
            return []
        tight = _without_gaps(normalized)
        matches = [
            (start, end, gaps)
            for form, (_, gaps) in zip(forms, self._tight, strict=True)
            for start, end in _occurrences(tight, form)
        ]
        return _with_gaps(normalized, matches)


def _occurrences(whole: Any, part: Any) -> Spans:
    spans: Spans = []
    at = whole.find(part)
    while at >= 0:
        spans.append((at, at + len(part)))
        at = whole.find(part, at + 1)
    return spans


def check_texts(texts: Sequence[str]) -> tuple[str, ...]:
    """Return the texts to be looked for, or raise `InvalidInput` if one of them cannot be."""
    for text in texts:
        if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance] - from Python
            raise InvalidInput(
                f"A text to forget must be text, and a {type(text).__name__} was given. "
                "Nothing was forgotten."
            )
        size = len(normalize(text).strip())
        if size < MIN_LENGTH:
            raise InvalidInput(
                f"A text of {size} characters cannot be forgotten, since it is part of too much "
                f"else; at least {MIN_LENGTH} are needed. Give more of it. Nothing was forgotten."
            )
        if size > MAX_LENGTH:
            raise InvalidInput(
                f"The text has {size:,} characters, and at most {MAX_LENGTH:,} can be looked for. "
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
    normalized = normalize(text).strip()
    salt = secrets.token_hex(16)
    item = {
        "key": key_name(key),
        "salt": salt,
        "plain": normalized.isascii(),
        **_hashes_of(normalized, key, salt),
    }
    if tight := gapless_form(normalized):
        gaps = Gaps.of(normalized)
        item["tight"] = {
            **_hashes_of(tight, key, salt),
            "spaces": gaps.spaces,
            "dashes": gaps.dashes,
        }
    return item


def _hashes_of(text: str, key: bytes, salt: str) -> dict[str, Any]:
    body = text.encode("utf-8", "surrogatepass")
    return {
        "bytes": len(body),
        "tag": int(_tags(body, len(body), *_hash_numbers(key, salt))[0]),
        "check": _verifier(body, key, salt).hex(),
    }


class FingerprintMatcher:
    """Texts of which only the fingerprints are known."""

    def __init__(self, fingerprints: Iterable[dict[str, Any]], key: bytes) -> None:
        """Take the fingerprints that were made with this key; others cannot be looked for."""
        name = key_name(key)
        self._key = key
        self._fingerprints = [item for item in fingerprints if item["key"] == name]
        self._hash_numbers = [_hash_numbers(key, item["salt"]) for item in self._fingerprints]
        self._is_loose = any("tight" in item for item in self._fingerprints)
        self.plain = all(item["plain"] for item in self._fingerprints)

    def __len__(self) -> int:
        return len(self._fingerprints)

    def find(self, normalized: str) -> Spans:
        """Return where they are in a normalized text."""
        spans = [(start, end) for start, end, _ in _by_characters(normalized, self._exact)]
        if self._is_loose:
            spans += _with_gaps(normalized, _by_characters(_without_gaps(normalized), self._tight))
        return merge_spans(spans)

    def find_bytes(self, normalized: bytes) -> Spans:
        """Return where they are in normalized bytes."""
        spans = [(start, end) for start, end, _ in self._exact(normalized)]
        if self._is_loose:
            spans += _with_gaps(normalized, self._tight(_without_gaps(normalized)))
        return merge_spans(spans)

    def _exact(self, body: bytes) -> list[tuple[int, int, Gaps]]:
        matches: list[tuple[int, int, Gaps]] = []
        for item, numbers in zip(self._fingerprints, self._hash_numbers, strict=True):
            matches += ((*span, _NO_GAPS) for span in self._of(item, item["salt"], numbers, body))
        return matches

    def _tight(self, body: bytes) -> list[tuple[int, int, Gaps]]:
        matches: list[tuple[int, int, Gaps]] = []
        for item, numbers in zip(self._fingerprints, self._hash_numbers, strict=True):
            if tight := item.get("tight"):
                gaps = Gaps(tight["spaces"], tight["dashes"])
                matches += ((*span, gaps) for span in self._of(tight, item["salt"], numbers, body))
        return matches

    def _of(
        self, item: dict[str, Any], salt: str, numbers: tuple[int, int], body: bytes
    ) -> Iterable[tuple[int, int]]:
        size = int(item["bytes"])
        for at in _candidates(body, size, item["tag"], numbers):
            check = _cached_verifier(body[at : at + size], self._key, salt)
            if hmac.compare_digest(check.hex(), item["check"]):
                yield at, at + size


_NO_GAPS = Gaps(0, 0)


def _by_characters(
    text: str, find: Callable[[bytes], list[tuple[int, int, Gaps]]]
) -> list[tuple[int, int, Gaps]]:
    """Return by its characters where something is in a text that is looked for in its bytes."""
    body = text.encode("utf-8", "surrogatepass")
    matches = find(body)
    if not matches or len(body) == len(text):
        return matches
    place = list[int]()
    for index, character in enumerate(text):
        place += [index] * len(character.encode("utf-8", "surrogatepass"))
    place.append(len(text))
    return [(place[start], place[end], gaps) for start, end, gaps in matches]


def _verifier(body: bytes, key: bytes, salt: str) -> bytes:
    # Slow, so that even with the key a guess has its price.
    return hashlib.scrypt(body, salt=hmac.digest(key, salt.encode(), "sha256"), **_SCRYPT)


# The same text is often found again.
_cached_verifier = functools.lru_cache(256)(_verifier)


def _hash_numbers(key: bytes, salt: str) -> tuple[int, int]:
    """Return the base of the rolling hash and what its bits are mixed with."""
    made = hmac.digest(key, b"rolling " + salt.encode(), "sha256")
    # 5 modulo 8, so that its powers do not repeat soon; odd, so that nothing is lost.
    base = int.from_bytes(made[:8]) & ~7 | 5
    return base, int.from_bytes(made[8:16]) | 1


def _candidates(body: bytes, size: int, tag: int, numbers: tuple[int, int]) -> list[int]:
    places: list[int] = []
    for first in range(0, len(body) - size + 1, _WINDOW):
        tags = _tags(body[first : first + _WINDOW + size - 1], size, *numbers)
        places += [first + int(at) for at in (tags == tag).nonzero()[0]]
    return places


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


# -- taking it out ---------------------------------------------------------------------------------

FORGOTTEN = "[forgotten]"

_BASE64 = re.compile(r"[A-Za-z0-9+/_-]{16,}={0,2}")
_BREAK = re.compile(r"(?:[ \t]*\r?\n[ \t>]*|\\+[rn])+")
_BASE64_LINES = re.compile(
    r"[A-Za-z0-9+/_-]{4,}(?:(?:[ \t]*\r?\n[ \t>]*|\\+[rn])+[A-Za-z0-9+/_-]{2,})+={0,2}"
)
"""Base64 as it stands in letters and in the output of `base64`: in lines."""
_MAX_SHIFTED = 1 << 20
_HEX = re.compile(
    r"[0-9a-fA-F]{2}"
    r"(?:(?:[ \t:,-]{1,2}|[ \t]*\r?\n[ \t]*|\\+[rn])?(?:0[xX]|\\+x|\\+u00)?[0-9a-fA-F]{2}){3,}"
)
_NOT_HEX = re.compile(r"0[xX]|\\+u00|[^0-9a-fA-F]+")
_DIGESTS = frozenset({32, 40, 56, 64, 96, 128})
"""How many digits a digest has: there are many, and what is no text is not looked through."""
_URL_SAFE = str.maketrans("-_", "+/")
_NESTED = ("{", "[", '"')
_OWN_WORD = re.compile(r"[a-z]+_[0-9a-f]{24}|asterism:blob/[0-9a-f]{64}")

FixedFields = frozenset[str]
"""Of JSON whose form is our own: the names of fields that hold no words of people. Its names and
numbers stay as they are; in JSON of others, everything may be such words."""

WIRE_FIELDS: FixedFields = frozenset({"role", "type", "id", "tool_call_id", "name"})


def same_length(text: str) -> str:
    """Return a replacement of the same length."""
    return "".join(character if character.isspace() else "*" for character in text)


def _last_that_holds(low: int, high: int, holds: Callable[[int], bool]) -> int:
    """Return the last number that holds, where the first does and none after one that does not."""
    while low < high:
        middle = (low + high + 1) // 2
        if holds(middle):
            low = middle
        else:
            high = middle - 1
    return low


class Redactor:
    """Removes the matches from texts, JSON and bytes, and counts them."""

    def __init__(self, matcher: Matcher) -> None:
        self.matcher = matcher
        self.count = 0
        """How many times it was found so far."""

    # -- text ----------------------------------------------------------------------------------

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Return where it is in a text, also when a run of Base64 or hexadecimal holds it."""
        spans = find_spans(self.matcher, text)
        spans += [run.span() for run in _HEX.finditer(text) if self._in_hex(run[0])]
        if len(text) >= 16:
            spans += [run.span() for run in _BASE64.finditer(text) if self._in_base64(run[0])]
            for run in _BASE64_LINES.finditer(text):
                spans += self._in_lines(run[0], run.start())
        return merge_spans(spans)

    def _in_base64(self, run: str) -> bool:
        run = run.rstrip("=").translate(_URL_SAFE)
        # A word in front of it may look like a part of it; a large one begins where it begins.
        for shift in range(4 if len(run) < _MAX_SHIFTED else 1):
            part = run[shift:]
            part = part[: len(part) - (len(part) % 4 == 1)]
            try:
                if self.in_bytes(base64.b64decode(part + "=" * (-len(part) % 4))):
                    return True
            except binascii.Error:
                continue
        return False

    def _in_lines(self, run: str, at: int) -> list[tuple[int, int]]:
        """Return which lines of Base64 hold it: as few as do, since others may be no part of it."""
        breaks = [match.span() for match in _BREAK.finditer(run)]
        starts = [0, *(end for _, end in breaks)]
        ends = [*(start for start, _ in breaks), len(run)]

        def holds(first: int, last: int) -> bool:
            lines = zip(starts[first:last], ends[first:last], strict=True)
            return self._in_base64("".join(run[start:end] for start, end in lines))

        spans: list[tuple[int, int]] = []
        end = len(starts)
        while end > 0 and holds(0, end):
            first = _last_that_holds(0, end - 1, lambda number, end=end: holds(number, end))
            spare = _last_that_holds(
                0, end - first - 1, lambda number, first=first, end=end: holds(first, end - number)
            )
            last = end - spare
            spans.append((at + starts[first], at + ends[last - 1]))
            end = first + 1 if last > first + 1 else first
        return spans

    def _in_hex(self, run: str) -> bool:
        digits = _NOT_HEX.sub("", run)
        digits = digits[: len(digits) & ~1]
        try:
            text = bytes.fromhex(digits).decode(
                "utf-8", "strict" if len(digits) in _DIGESTS else "replace"
            )
        except UnicodeDecodeError:
            return False
        return bool(find_spans(self.matcher, text))

    def text(self, text: str, put: Callable[[str], str] = lambda _: FORGOTTEN) -> str:
        """Return a text without the matches; the same object if there are none."""
        parts: list[str] = []
        at = 0
        for start, end in self.spans(text):
            parts += [text[at:start], put(text[start:end])]
            at = end
            self.count += 1
        return "".join([*parts, text[at:]]) if parts else text

    # -- JSON ----------------------------------------------------------------------------------

    def value(self, value: Any, fixed_fields: FixedFields | None = None) -> Any:
        """Return a JSON value without the matches; the same object if there are none."""
        if isinstance(value, str):
            return self._string(value)
        if isinstance(value, list):
            items = cast("list[Any]", value)
            changed = [self.value(item, fixed_fields) for item in items]
            same = all(new is old for new, old in zip(changed, items, strict=True))
            return cast("Any", value) if same else changed
        if isinstance(value, dict):
            return self._fields(cast("dict[str, Any]", value), fixed_fields)
        if fixed_fields is None and isinstance(value, int | float) and not isinstance(value, bool):
            # A telephone number may be written as a number; digits inside of others mean nothing.
            text = str(value)
            if find_spans(self.matcher, text) == [(0, len(text))]:
                self.count += 1
                return FORGOTTEN
        return value

    def _fields(self, fields: dict[str, Any], fixed_fields: FixedFields | None) -> dict[str, Any]:
        changed: dict[str, Any] = {}
        same = True
        for name, item in fields.items():
            fixed = fixed_fields is not None and name in fixed_fields and isinstance(item, str)
            put = item if fixed else self.value(item, fixed_fields)
            key = name if fixed_fields is not None else self.text(name)
            same = same and put is item and key is name
            changed[key] = put
        return fields if same else changed

    def _string(self, text: str) -> str:
        if _OWN_WORD.fullmatch(text):
            return text
        if text.startswith(_NESTED):
            try:
                nested = orjson.loads(text)
            except orjson.JSONDecodeError:
                return self.text(text)
            changed = self.value(nested)
            return text if changed is nested else orjson.dumps(changed).decode()
        return self.text(text)

    def json(self, text: str, fixed_fields: FixedFields | None = None) -> str:
        """Return JSON text without the matches; invalid JSON counts as plain text."""
        try:
            value = orjson.loads(text)
        except orjson.JSONDecodeError:
            return self.text(text)
        changed = self.value(value, fixed_fields)
        return text if changed is value else orjson.dumps(changed).decode()

    def wire(self, body: bytes) -> bytes:
        """Return a wire form (or text) as bytes without it."""
        try:
            text = body.decode()
        except UnicodeDecodeError:
            return FORGOTTEN.encode() if self.counted_in_bytes(body) else body
        changed = self.json(text, WIRE_FIELDS)
        return body if changed is text else changed.encode()

    # -- bytes ---------------------------------------------------------------------------------

    def in_bytes(self, body: bytes) -> bool:
        """Tell whether any bytes hold it, as UTF-8 or as UTF-16."""
        matcher = self.matcher
        if matcher.plain:
            forms = (body, body[::2], body[1::2]) if b"\0" in body else (body,)
            return any(matcher.find_bytes(normalize_bytes(form)) for form in forms)
        texts = [body.decode("utf-8", "replace")]
        if b"\0" in body:
            forms = (body, body[1:])
            texts += [form.decode("utf-16-le", "replace") for form in forms]
            texts += [form.decode("utf-16-be", "replace") for form in forms]
        return any(find_spans(matcher, text) for text in texts)

    def counted_in_bytes(self, body: bytes) -> bool:
        """Tell whether any bytes hold it, and count them if they do."""
        contains = self.in_bytes(body)
        self.count += contains
        return contains
