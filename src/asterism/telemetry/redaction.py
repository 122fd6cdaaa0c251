"""Secrets taken out of texts: those that are known, in each form, and what looks like one.

What is known is kept for the whole process and is only ever added to: a key that was removed or
changed may still stand in what is written later.
"""

from __future__ import annotations

import base64
import html
import json
import re
import threading
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from typing import Any, cast
from urllib.parse import quote, quote_plus

import orjson

from asterism.errors import AsterismError

SHORTEST = 8
"""A shorter secret is not taken out: half of all texts would hold it."""
_LONG_LINE = 16
_BASE64 = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/_-")
_NAME = re.compile(r"[^\w.:/-]+")

_SHAPES = (
    # what it begins with, what it is called, the whole
    ("sk-", "key", r"(?<![A-Za-z0-9])sk-(?=[A-Za-z0-9_-]*\d)[A-Za-z0-9_-]{20,}"),
    ("gh", "github key", r"(?<![A-Za-z0-9])gh[pousr]_[A-Za-z0-9]{30,}"),
    ("github_pat_", "github key", r"(?<![A-Za-z0-9])github_pat_[A-Za-z0-9_]{22,}"),
    ("glpat-", "gitlab key", r"(?<![A-Za-z0-9])glpat-[A-Za-z0-9_-]{20,}"),
    ("xox", "slack key", r"(?<![A-Za-z0-9])xox[abeoprs]-[A-Za-z0-9-]{10,}"),
    ("hf_", "hugging face key", r"(?<![A-Za-z0-9])hf_[A-Za-z0-9]{30,}"),
    ("AIza", "google key", r"(?<![A-Za-z0-9])AIza[A-Za-z0-9_-]{35}"),
    ("KIA", "aws key", r"(?<![A-Za-z0-9])AKIA[A-Z0-9]{16}(?![A-Z0-9])"),
    ("SIA", "aws key", r"(?<![A-Za-z0-9])ASIA[A-Z0-9]{16}(?![A-Z0-9])"),
    (
        "eyJ",
        "token",
        r"(?<![A-Za-z0-9])eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}",
    ),
    (
        # A quote ends it: in JSON, what follows must stay.
        "PRIVATE KEY-----",
        "private key",
        (
            r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----[A-Za-z0-9+/=\s\\:,.-]*?"
            r"(?:-----END [A-Z0-9 ]*PRIVATE KEY-----|(?![A-Za-z0-9+/=\s\\:,.-]))"
        ),
    ),
)
_COMPILED = [(begins, f"[redacted {name}]", re.compile(shape)) for begins, name, shape in _SHAPES]
# Looking for one character is ten times as fast as looking for three.
_BY_SIGN = [
    (sign, [one for one in _COMPILED if one[0] in begins])
    for sign, begins in (
        ("_", ("gh", "github_pat_", "hf_")),
        ("-", ("sk-", "glpat-", "xox", "PRIVATE KEY-----")),
        ("J", ("eyJ",)),
        ("I", ("AIza", "KIA", "SIA")),
    )
]
_BEGUN = re.compile(
    r"(?:sk-|gh[pousr]_|github_pat_|glpat-|xox[abeoprs]-|hf_|AIza|AKIA|ASIA|eyJ)[A-Za-z0-9_.-]*\Z"
    r"|-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----[A-Za-z0-9+/=\s\\:,.-]*\Z"
)
_BEGINNINGS = (
    *("sk-", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-", "hf_", "AIza"),
    *("AKIA", "ASIA", "eyJ", "-----BEGIN ", "xoxa-", "xoxb-", "xoxe-", "xoxp-", "xoxs-"),
)
_LONGEST_HELD = 16_384


def _plain_forms(secret: str) -> Iterator[str]:
    yield secret
    dumped = (json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1])
    for escaped in dumped:
        yield escaped
        yield escaped.replace("/", "\\/")
        yield json.dumps(escaped)[1:-1]
    yield repr(secret)[1:-1]
    yield html.escape(secret)
    yield html.escape(secret, quote=False)
    for quoted in (quote(secret, safe=""), quote(secret), quote_plus(secret)):
        yield quoted
        yield re.sub("%[0-9A-F]{2}", lambda found: found[0].lower(), quoted)


def _in_base64(raw: bytes) -> Iterator[tuple[bytes, bool, bool]]:
    """Yield what Base64 makes of bytes, wherever they begin in what was encoded.

    Two flags tell whether the character before and the one after hold bits of the secret, too.
    """
    for before in range(3):
        bits, end = 8 * before, 8 * (before + len(raw))
        # The characters that hold nothing but bits of the secret.
        first, last = -(-bits // 6), end // 6
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            core = encode(bytes(before) + raw + bytes(3))[first:last]
            yield core, bool(bits % 6), bool(end % 6)


class _Squeezed:
    """A text without the characters that programs put in the middle of what they encode.

    Each of its bytes stands for one character of the text, so that what is found in it is found
    in the text.
    """

    def __init__(self, padded: bytes, left_out: bytes) -> None:
        self._padded = padded
        self._left_out = left_out
        self.body = padded.translate(None, left_out)
        self._runs: tuple[list[int], list[int]] | None = None

    def place(self, at: int) -> int:
        """Return where in the text the byte is that stands at a place of the body."""
        if self._runs is None:
            # Where each run of kept bytes begins: in the body, and in the text.
            kept, places, count = list[int](), list[int](), 0
            for run in re.finditer(b"[^" + re.escape(self._left_out) + b"]+", self._padded):
                kept.append(count)
                places.append(run.start())
                count += run.end() - run.start()
            self._runs = kept, places
        kept, places = self._runs
        run = bisect_right(kept, at) - 1
        return places[run] + at - kept[run]


_WHITE = b" \t\r\n\v\f\\"
"""White space, and the backslash of an escape such as `\\n` in JSON within JSON."""


_ESCAPE = re.compile(r"(?:\\+(?:u00|x)|0[xX]|%|&#[xX])\Z")
_CUT_ESCAPE = re.compile(r"(?:, ?0?|\\u0?|0)\Z")
"""What stands between hexadecimal digits, as far as it has come."""


def _squeezed(text: str) -> tuple[_Squeezed, _Squeezed]:
    """Return a text squeezed as for Base64, and as for hexadecimal digits."""
    # One byte for each character: what is not ASCII is part of no encoded secret.
    raw = text.encode("ascii", "replace")
    if b"\\" in raw:
        for escape in (b"\\n", b"\\r", b"\\t"):
            raw = raw.replace(escape, b"  ")
    digits = raw.lower()
    for written, put in ((b"\\u00", b"    "), (b", 0x", b"    "), (b",0x", b"   "), (b"0x", b"  ")):
        digits = digits.replace(written, put)
    return _Squeezed(raw, _WHITE), _Squeezed(digits, _WHITE + b":-%&#x;")


_WRITTEN = re.compile(
    r"&(?:#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6}|[a-zA-Z][a-zA-Z0-9]{1,31});"
    r"|%[0-9a-fA-F]{2}|\\+(?:u00|x)[0-9a-fA-F]{2}"
)
"""A character that is written as a reference or an escape."""
_CUT_WRITTEN = re.compile(
    r"(?:&(?:#[xX]?[0-9a-fA-F]{0,6})?|%[0-9a-fA-F]?|\\+(?:u0{0,2}|x)?[0-9a-fA-F]?)\Z"
)

_LONGEST_WRITTEN = 12
_MOST_CHARACTERS = 4_096


class _Characters(dict[str, str]):
    """What each reference or escape stands for."""

    def __missing__(self, written: str) -> str:
        if len(self) >= _MOST_CHARACTERS:
            self.clear()
        meant = html.unescape(written) if written[0] == "&" else chr(int(written[-2:], 16))
        self[written] = meant
        return meant


_characters = _Characters()


def _meant(text: str) -> str:
    """Return a text with references and escapes read."""
    return _WRITTEN.sub(lambda found: _characters[found[0]], text)


class _Places:
    """Where each character of what a text means is written."""

    def __init__(self, text: str) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        done = 0
        for found in _WRITTEN.finditer(text):
            self._add(done, found.start())
            size = len(_characters[found[0]])
            self._starts += [found.start()] * size
            self._ends += [found.end()] * size
            done = found.end()
        self._add(done, len(text))

    def _add(self, first: int, last: int) -> None:
        self._starts += range(first, last)
        self._ends += range(first + 1, last + 1)

    def span(self, first: int, last: int) -> tuple[int, int]:
        """Return where the characters from one place up to another are written."""
        return self._starts[first], self._ends[last - 1]


class Secrets:
    """The secrets that are known, and how each is taken out."""

    def __init__(self) -> None:
        self._values: set[str] = set()
        self._plain: dict[str, str] = {}
        self._base64: dict[bytes, tuple[bool, bool, str]] = {}
        self._hex: dict[bytes, str] = {}
        self._parts: dict[str, str] = {}
        self._lock = threading.Lock()
        self.order: list[tuple[str, str]] = []
        """Plain forms and what takes their place, the longest first."""
        self.beginnings: dict[str, list[str]] = {}
        """Plain forms, and what looks like a secret begins with, by their first characters."""
        self.longest = 0
        self._arrange()

    def know(self, name: str, value: str) -> None:
        """Take a secret out of all texts from now on, and put its name in its place."""
        value = value.strip()
        if len(value) < SHORTEST or value in self._values:
            return
        put = f"[redacted {_NAME.sub(' ', name).strip() or 'secret'}]"
        with self._lock:
            self._values.add(value)
            # Of a key of many lines, each line may be written alone.
            for part in {value, *(one for one in value.split() if len(one) >= _LONG_LINE)}:
                for form in _plain_forms(part):
                    self._plain.setdefault(form, put)
                self._parts.setdefault(part, put)
                raw = part.encode("utf-8", "surrogatepass")
                for form, before, after in _in_base64(raw):
                    self._base64.setdefault(form, (before, after, put))
                self._hex.setdefault(raw.hex().encode(), put)
            self._arrange()

    def _arrange(self) -> None:
        forms = sorted(self._plain, key=len, reverse=True)
        beginnings: dict[str, list[str]] = {}
        for form in (*forms, *_BEGINNINGS):
            beginnings.setdefault(form[0], []).append(form)
        self.beginnings = beginnings
        self.longest = max(map(len, (*forms[:1], *_BEGINNINGS)))
        self.order = [(one, self._plain[one]) for one in forms]
        # Replaced, never changed: other threads may be going through them.
        self._base64, self._hex = dict(self._base64), dict(self._hex)
        self._parts = dict(self._parts)

    def spans(self, text: str) -> Iterator[tuple[int, int]]:
        """Yield where secrets are in a text."""
        yield from ((start, end) for start, end, _ in self._encoded(text))
        for form, _ in self.order:
            yield from ((at, at + len(form)) for at in _places(text, form))
        for begins, _, shape in _COMPILED:
            if begins in text:
                yield from (found.span() for found in shape.finditer(text))

    def redact(self, text: str) -> str:
        """Return a text without secrets; the very same text if it holds none."""
        if self.order:
            if len(text) >= SHORTEST and (encoded := self._encoded(text)):
                text = _replaced(text, encoded)
            for form, put in self.order:
                if form in text:
                    text = text.replace(form, put)
        for sign, shapes in _BY_SIGN:
            if sign in text:
                for begins, put, shape in shapes:
                    if begins in text:
                        text = shape.sub(put, text)
        return text

    def _encoded(self, text: str) -> list[tuple[int, int, str]]:
        """Return where secrets are in Base64 or hexadecimal, or written as references or escapes.

        Base64 and hexadecimal may go over several lines.
        """
        if not self._hex:
            return []
        lines, digits = _squeezed(text)
        found: list[tuple[int, int, str]] = []
        for form, (before, after, put) in self._base64.items():
            if form in lines.body:
                for at in _places(lines.body, form):
                    start, end = lines.place(at), lines.place(at + len(form) - 1) + 1
                    start -= before and start > 0 and text[start - 1] in _BASE64
                    end += after and text[end : end + 1] in _BASE64
                    end += len(text[end : end + 2]) - len(text[end : end + 2].lstrip("="))
                    found.append((start, end, put))
        for form, put in self._hex.items():
            if form in digits.body:
                for at in _places(digits.body, form):
                    start, end = digits.place(at), digits.place(at + len(form) - 1) + 1
                    # Half an escape would leave no JSON behind.
                    if escape := _ESCAPE.search(text, max(0, start - 8), start):
                        start = escape.start()
                    found.append((start, end + (text[end : end + 1] == ";"), put))
        # Looking for one character is much faster than looking for a pattern.
        if ("&" in text or "%" in text or "\\" in text) and _WRITTEN.search(text):
            meant, places = _meant(text), None
            for part, put in self._parts.items():
                if part in meant:
                    places = places or _Places(text)
                    spans = (places.span(at, at + len(part)) for at in _places(meant, part))
                    found += ((start, end, put) for start, end in spans)
        return found

    def begun(self, text: str) -> int:
        """Return where at the end of a text an encoded secret may begin; its length if nowhere."""
        place = len(text)
        if not self._hex:
            return place
        shift = max(0, len(text) - _LONGEST_HELD)
        end = text[shift:]
        lines, digits = _squeezed(end)
        looks: list[tuple[_Squeezed, Iterable[bytes]]] = [
            (lines, self._base64),
            (digits, self._hex),
        ]
        if cut := _CUT_ESCAPE.search(end, max(0, len(end) - 4)):
            looks.append((_squeezed(end[: cut.start()])[1], self._hex))
        for squeezed, forms in looks:
            for form in forms:
                at = _prefix_at_end(squeezed.body, form)
                if at < len(squeezed.body):
                    place = min(place, shift + squeezed.place(at))
        return min(place, shift + self._begun_written(end))

    def _begun_written(self, end: str) -> int:
        """Return where a secret may begin that is written as references or escapes."""
        cut = _CUT_WRITTEN.search(end, max(0, len(end) - _LONGEST_WRITTEN))
        whole = end[: cut.start()] if cut else end
        place = len(whole)
        if cut or _WRITTEN.search(whole):
            shift = max(0, place - _LONGEST_WRITTEN * max(map(len, self._parts)))
            whole = whole[shift:]
            meant, places = _meant(whole), _Places(whole)
            for part in self._parts:
                at = _prefix_at_end(meant, part)
                if at < len(meant):
                    place = min(place, shift + places.span(at, at + 1)[0])
        return place


def _prefix_at_end(body: Any, form: Any) -> int:
    """Return where at the end of a body a form begins that is cut off; its length if nowhere."""
    at = body.find(form[:1], max(0, len(body) - len(form) + 1))
    while at >= 0 and not form.startswith(body[at:]):
        at = body.find(form[:1], at + 1)
    return at if at >= 0 else len(body)


def _places(text: Any, form: Any) -> Iterator[int]:
    """Yield where a form stands in a text or in bytes."""
    at = text.find(form)
    while at >= 0:
        yield at
        at = text.find(form, at + len(form))


def _replaced(text: str, spans: list[tuple[int, int, str]]) -> str:
    """Return a text with something else in place of parts of it, which may overlap."""
    parts: list[str] = []
    done = 0
    for start, end, put in sorted(spans, key=lambda one: (one[0], -one[1])):
        if start >= done:
            parts += (text[done:start], put)
        done = max(done, end)
    return "".join((*parts, text[done:]))


KNOWN = Secrets()
"""The secrets of this process."""


def know(name: str, value: str) -> None:
    """Take a secret out of everything that is written or sent from now on, in this process."""
    KNOWN.know(name, value)


def know_all(secrets: Iterable[tuple[str, str]]) -> None:
    """Take several secrets out, each given with its name."""
    for name, value in secrets:
        KNOWN.know(name, value)


redact = KNOWN.redact
"""Returns a text without secrets; the very same text if it holds none."""
AsterismError.cleaned = redact


def redact_json(text: str, secrets: Secrets | None = None) -> str:
    """Return JSON text without secrets, also those that it spells with escapes.

    Text that is not JSON is treated as any other.
    """
    known = KNOWN if secrets is None else secrets
    text = known.redact(text)
    if "\\" not in text:
        return text
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return text
    changed = _in_value(value, known.redact)
    return text if changed == value else orjson.dumps(changed).decode()


def _in_value(value: Any, redact: Callable[[str], str]) -> Any:
    match value:
        case str():
            return redact(value)
        case list():
            return [_in_value(one, redact) for one in cast("list[Any]", value)]
        case dict():
            items = cast("dict[str, Any]", value).items()
            return {redact(key): _in_value(one, redact) for key, one in items}
        case _:
            return value


class Stream:
    """Takes secrets out of a text that comes in pieces, however they cut it.

    What may be the beginning of a secret is held back until it is known whether it is one.
    """

    def __init__(self, secrets: Secrets | None = None) -> None:
        self._secrets = KNOWN if secrets is None else secrets
        self._held = ""

    def feed(self, piece: str) -> str:
        """Take a piece in; return what can be shown by now, which may be nothing."""
        text = self._held + piece
        at = self._beginning(text)
        if at < len(text):
            at = self._uncut(text, at)
        self._held = text[at:]
        return self._secrets.redact(text[:at])

    def rest(self) -> str:
        """Return what is held back, since nothing follows."""
        text, self._held = self._held, ""
        return self._secrets.redact(text)

    def _beginning(self, text: str) -> int:
        """Return where something begins at the end of a text that may become a secret."""
        place = len(text)
        beginnings = self._secrets.beginnings
        for at in range(max(0, len(text) - self._secrets.longest), len(text)):
            forms = beginnings.get(text[at])
            if forms is not None:
                end = text[at:]
                if any(form.startswith(end) for form in forms):
                    place = at
                    break
        begun = _BEGUN.search(text, max(0, len(text) - _LONGEST_HELD))
        place = min(place, begun.start()) if begun else place
        return min(place, self._secrets.begun(text))

    def _uncut(self, text: str, at: int) -> int:
        """Return a place up to there that is in the middle of no secret."""
        spans = sorted(self._secrets.spans(text), reverse=True)
        for start, end in spans:
            if start < at < end:
                at = start
        return at
