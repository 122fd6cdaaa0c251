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
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import quote, quote_plus

import orjson

from asterism.errors import AsterismError

if TYPE_CHECKING:
    from asterism.ports import ModelRequest

MIN_SECRET_LENGTH = 8
"""A shorter secret is not taken out: half of all texts would hold it."""
_MIN_LINE_LENGTH = 16
_BASE64 = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/_-")
_NAME = re.compile(r"[^\w.:/-]+")

_PATTERNS = (
    # what it begins with, what it is called, the whole
    ("sk-", "key", r"(?<![A-Za-z0-9])sk-(?=[A-Za-z0-9_-]*\d)[A-Za-z0-9_-]{20,}"),
    ("gh", "github key", r"(?<![A-Za-z0-9])gh[pousr]_[A-Za-z0-9]{30,}"),
    ("github_pat_", "github key", r"(?<![A-Za-z0-9])github_pat_[A-Za-z0-9_]{22,}"),
    ("glpat-", "gitlab key", r"(?<![A-Za-z0-9])glpat-[A-Za-z0-9_-]{20,}"),
    ("xox", "slack key", r"(?<![A-Za-z0-9])xox[abeoprs]-[A-Za-z0-9-]{10,}"),
    ("ast_", "asterism token", r"(?<![A-Za-z0-9])ast_[0-9a-f]{24}_[A-Za-z0-9]{20,}"),
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
_COMPILED = [(begins, f"[redacted {name}]", re.compile(shape)) for begins, name, shape in _PATTERNS]
# Looking for one character is ten times as fast as looking for three.
_BY_CHARACTER = [
    (character, [pattern for pattern in _COMPILED if pattern[0] in begins])
    for character, begins in (
        ("_", ("gh", "github_pat_", "hf_", "ast_")),
        ("-", ("sk-", "glpat-", "xox", "PRIVATE KEY-----")),
        ("J", ("eyJ",)),
        ("I", ("AIza", "KIA", "SIA")),
    )
]
_UNFINISHED = re.compile(
    r"(?:sk-|gh[pousr]_|github_pat_|glpat-|xox[abeoprs]-|hf_|ast_|AIza|AKIA|ASIA|eyJ)[A-Za-z0-9_.-]*\Z"
    r"|-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----[A-Za-z0-9+/=\s\\:,.-]*\Z"
)
_PREFIXES = (
    *(
        "sk-",
        "ghp_",
        "gho_",
        "ghu_",
        "ghs_",
        "ghr_",
        "github_pat_",
        "glpat-",
        "hf_",
        "ast_",
        "AIza",
    ),
    *("AKIA", "ASIA", "eyJ", "-----BEGIN ", "xoxa-", "xoxb-", "xoxe-", "xoxp-", "xoxs-"),
)
_MAX_PENDING = 16_384


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
        yield re.sub("%[0-9A-F]{2}", lambda match: match[0].lower(), quoted)


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
            starts, places, count = list[int](), list[int](), 0
            for run in re.finditer(b"[^" + re.escape(self._left_out) + b"]+", self._padded):
                starts.append(count)
                places.append(run.start())
                count += run.end() - run.start()
            self._runs = starts, places
        starts, places = self._runs
        run = bisect_right(starts, at) - 1
        return places[run] + at - starts[run]


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


_ESCAPED = re.compile(
    r"&(?:#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6}|[a-zA-Z][a-zA-Z0-9]{1,31});"
    r"|%[0-9a-fA-F]{2}|\\+(?:u00|x)[0-9a-fA-F]{2}"
)
"""A character that is written as a reference or an escape."""
_CUT_ESCAPED = re.compile(
    r"(?:&(?:#[xX]?[0-9a-fA-F]{0,6})?|%[0-9a-fA-F]?|\\+(?:u0{0,2}|x)?[0-9a-fA-F]?)\Z"
)

_MAX_ESCAPE_LENGTH = 12
_MAX_CHARACTERS = 4_096


class _Characters(dict[str, str]):
    """What each reference or escape stands for."""

    def __missing__(self, written: str) -> str:
        if len(self) >= _MAX_CHARACTERS:
            self.clear()
        character = html.unescape(written) if written[0] == "&" else chr(int(written[-2:], 16))
        self[written] = character
        return character


_characters = _Characters()


def _unescaped(text: str) -> str:
    """Return a text with references and escapes read."""
    return _ESCAPED.sub(lambda match: _characters[match[0]], text)


class _EscapeOffsets:
    """Where each character of what a text means is written."""

    def __init__(self, text: str) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        done = 0
        for match in _ESCAPED.finditer(text):
            self._add(done, match.start())
            size = len(_characters[match[0]])
            self._starts += [match.start()] * size
            self._ends += [match.end()] * size
            done = match.end()
        self._add(done, len(text))

    def _add(self, first: int, last: int) -> None:
        self._starts += range(first, last)
        self._ends += range(first + 1, last + 1)

    def span(self, first: int, last: int) -> tuple[int, int]:
        """Return where the characters from one place up to another are written."""
        return self._starts[first], self._ends[last - 1]


class KnownSecrets:
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

    def add(self, name: str, value: str) -> None:
        """Take a secret out of all texts from now on, and put its name in its place."""
        value = value.strip()
        if len(value) < MIN_SECRET_LENGTH or value in self._values:
            return
        put = f"[redacted {_NAME.sub(' ', name).strip() or 'secret'}]"
        with self._lock:
            self._values.add(value)
            # Of a key of many lines, each line may be written alone.
            for part in {value, *(line for line in value.split() if len(line) >= _MIN_LINE_LENGTH)}:
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
        for form in (*forms, *_PREFIXES):
            beginnings.setdefault(form[0], []).append(form)
        self.beginnings = beginnings
        self.longest = max(map(len, (*forms[:1], *_PREFIXES)))
        self.order = [(form, self._plain[form]) for form in forms]
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
                yield from (match.span() for match in shape.finditer(text))

    def redact(self, text: str) -> str:
        """Return a text without secrets; the very same text if it holds none."""
        if self.order:
            if len(text) >= MIN_SECRET_LENGTH and (encoded := self._encoded(text)):
                text = _replaced(text, encoded)
            for form, put in self.order:
                if form in text:
                    text = text.replace(form, put)
        for character, shapes in _BY_CHARACTER:
            if character in text:
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
        matches: list[tuple[int, int, str]] = []
        for form, (before, after, put) in self._base64.items():
            if form in lines.body:
                for at in _places(lines.body, form):
                    start, end = lines.place(at), lines.place(at + len(form) - 1) + 1
                    start -= before and start > 0 and text[start - 1] in _BASE64
                    end += after and text[end : end + 1] in _BASE64
                    end += len(text[end : end + 2]) - len(text[end : end + 2].lstrip("="))
                    matches.append((start, end, put))
        for form, put in self._hex.items():
            if form in digits.body:
                for at in _places(digits.body, form):
                    start, end = digits.place(at), digits.place(at + len(form) - 1) + 1
                    # Half an escape would leave no JSON behind.
                    if escape := _ESCAPE.search(text, max(0, start - 8), start):
                        start = escape.start()
                    matches.append((start, end + (text[end : end + 1] == ";"), put))
        # Looking for one character is much faster than looking for a pattern.
        if ("&" in text or "%" in text or "\\" in text) and _ESCAPED.search(text):
            decoded, places = _unescaped(text), None
            for part, put in self._parts.items():
                if part in decoded:
                    places = places or _EscapeOffsets(text)
                    spans = (places.span(at, at + len(part)) for at in _places(decoded, part))
                    matches += ((start, end, put) for start, end in spans)
        return matches

    def unfinished_at(self, text: str) -> int:
        """Return where at the end of a text an encoded secret may begin; its length if nowhere."""
        place = len(text)
        if not self._hex:
            return place
        shift = max(0, len(text) - _MAX_PENDING)
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
        return min(place, shift + self._unfinished_escaped(end))

    def _unfinished_escaped(self, end: str) -> int:
        """Return where a secret may begin that is written as references or escapes."""
        cut = _CUT_ESCAPED.search(end, max(0, len(end) - _MAX_ESCAPE_LENGTH))
        whole = end[: cut.start()] if cut else end
        place = len(whole)
        if cut or _ESCAPED.search(whole):
            shift = max(0, place - _MAX_ESCAPE_LENGTH * max(map(len, self._parts)))
            whole = whole[shift:]
            decoded, places = _unescaped(whole), _EscapeOffsets(whole)
            for part in self._parts:
                at = _prefix_at_end(decoded, part)
                if at < len(decoded):
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
    for start, end, put in sorted(spans, key=lambda span: (span[0], -span[1])):
        if start >= done:
            parts += (text[done:start], put)
        done = max(done, end)
    return "".join((*parts, text[done:]))


SECRETS = KnownSecrets()
"""The secrets of this process."""


def add_secret(name: str, value: str) -> None:
    """Take a secret out of everything that is written or sent from now on, in this process."""
    SECRETS.add(name, value)


def add_secrets(secrets: Iterable[tuple[str, str]]) -> None:
    """Take several secrets out, each with its name."""
    for name, value in secrets:
        SECRETS.add(name, value)


redact = SECRETS.redact
"""Returns a text without secrets; the very same text if it holds none."""
AsterismError.cleaned = redact


def redact_json(text: str, secrets: KnownSecrets | None = None) -> str:
    """Return JSON text without secrets, also those that it spells with escapes.

    Text that is not JSON is treated as any other.
    """
    known = SECRETS if secrets is None else secrets
    text = known.redact(text)
    if "\\" not in text:
        return text
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return text
    changed = _redact_value(value, known.redact)
    return text if changed == value else orjson.dumps(changed).decode()


def _redact_value(value: Any, redact: Callable[[str], str]) -> Any:
    match value:
        case str():
            return redact(value)
        case list():
            return [_redact_value(item, redact) for item in cast("list[Any]", value)]
        case dict():
            items = cast("dict[str, Any]", value).items()
            return {redact(key): _redact_value(item, redact) for key, item in items}
        case _:
            return value


class RedactingStream:
    """Takes secrets out of a text that comes in pieces, however they cut it.

    What may be the beginning of a secret is held back until it is known whether it is one.
    """

    def __init__(self, secrets: KnownSecrets | None = None) -> None:
        self._secrets = SECRETS if secrets is None else secrets
        self._pending = ""

    def feed(self, piece: str) -> str:
        """Take a piece in; return what can be shown by now, which may be nothing."""
        text = self._pending + piece
        at = self._beginning(text)
        if at < len(text):
            at = self._uncut(text, at)
        self._pending = text[at:]
        return self._secrets.redact(text[:at])

    def rest(self) -> str:
        """Return what is held back, since nothing follows."""
        text, self._pending = self._pending, ""
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
        unfinished_at = _UNFINISHED.search(text, max(0, len(text) - _MAX_PENDING))
        place = min(place, unfinished_at.start()) if unfinished_at else place
        return min(place, self._secrets.unfinished_at(text))

    def _uncut(self, text: str, at: int) -> int:
        """Return a place up to there that is in the middle of no secret."""
        spans = sorted(self._secrets.spans(text), reverse=True)
        for start, end in spans:
            if start < at < end:
                at = start
        return at


# -- requests to models ----------------------------------------------------------------------------
#
# Messages, results and replies are redacted before they are recorded. What reaches a prompt another
# way, such as a block, a system prompt or a message from before a key was stored, is redacted here.

_MAX_CACHED_BYTES = 64 << 20
"""How many bytes of messages are cached with their redacted form."""
_IMAGE = re.compile(r"data:[\w/+.-]+;base64,[A-Za-z0-9+/=]{1000,}")
_NOT_TEXT = frozenset({"role", "type", "url"})
"""Members that hold no words of anybody."""
_NAME_FIELDS = frozenset({"id", "tool_call_id", "name"})
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]+")


class RequestRedactor(dict[bytes, bytes]):
    """Wire forms of messages without known keys; most stay the very same bytes.

    The past is sent again with every request, so each message of it is searched once.
    """

    def __init__(self) -> None:
        super().__init__()
        self._size = 0
        self._known: object = None

    def request(self, request: ModelRequest) -> ModelRequest:
        """Return a request without known keys; the very same one if it holds none."""
        if self._known is not SECRETS.order or self._size > _MAX_CACHED_BYTES:
            # Another key is known by now.
            self.clear()
            self._known, self._size = SECRETS.order, 0
        messages = [self[message] for message in request.messages]
        tools = request.tools if request.tools is None else self[request.tools]
        if tools is request.tools and all(
            new is old for new, old in zip(messages, request.messages, strict=True)
        ):
            return request
        return replace(request, messages=messages, tools=tools)

    def __missing__(self, wire: bytes) -> bytes:
        self._size += len(wire)
        text = wire.decode()
        # Pictures are large, and hold no keys that anybody could read.
        words = _IMAGE.sub("", text) if len(text) > 1000 else text
        redacted = wire
        if redact(words) is not words:
            changed = orjson.dumps(_redact_wire(orjson.loads(wire), ""))
            redacted = wire if changed == wire else changed
        self[wire] = redacted
        return redacted


def redact_name(name: str) -> str:
    """Return an id or a name without known keys, made of characters that every vendor accepts."""
    changed = redact(name)
    return name if changed is name else _NOT_IN_NAMES.sub("_", changed).strip("_")


def _redact_wire(value: Any, name: str) -> Any:
    if isinstance(value, str):
        if name in _NOT_TEXT:
            return value
        if name in _NAME_FIELDS:
            return redact_name(value)
        return redact_json(value) if name == "arguments" else redact(value)
    if isinstance(value, list):
        return [_redact_wire(item, name) for item in cast("list[Any]", value)]
    if isinstance(value, dict):
        items = cast("dict[str, Any]", value).items()
        return {key: _redact_wire(item, key) for key, item in items}
    return value
