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
from collections.abc import Iterable, Iterator
from urllib.parse import quote, quote_plus

SHORTEST = 8
"""A shorter secret is not taken out: half of all texts would hold it."""
_LONG_LINE = 16
_BASE64 = "[A-Za-z0-9+/_-]"
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


def _forms(secret: str) -> Iterator[tuple[str, str]]:
    """Yield the forms in which a secret may be written, each with the pattern that takes it out."""
    for one in dict.fromkeys(_plain_forms(secret)):
        yield one, re.escape(one)
    raw = secret.encode()
    yield from dict.fromkeys(_in_base64(raw))


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
    yield secret.encode().hex()
    yield secret.encode().hex().upper()


def _in_base64(raw: bytes) -> Iterator[tuple[str, str]]:
    """Yield what Base64 makes of bytes, wherever they begin in what was encoded."""
    for before in range(3):
        bits, end = 8 * before, 8 * (before + len(raw))
        # The characters that hold nothing but bits of the secret.
        first, last = -(-bits // 6), end // 6
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            core = encode(bytes(before) + raw + bytes(3)).decode()[first:last]
            head = f"{_BASE64}?" if bits % 6 else ""
            tail = f"{_BASE64}?" if end % 6 else ""
            yield core, f"{head}{re.escape(core)}{tail}={{0,2}}"


class Secrets:
    """The secrets that are known, and how each is taken out."""

    def __init__(self) -> None:
        self._values: set[str] = set()
        self._forms: dict[str, tuple[re.Pattern[str], str]] = {}
        self._lock = threading.Lock()
        self.order: list[tuple[str, re.Pattern[str], str]] = []
        """Forms with their patterns and what takes their place, the longest first."""
        self.beginnings: dict[str, list[str]] = {}
        """Forms, and what looks like a secret begins with, by their first characters."""
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
                for form, pattern in _forms(part):
                    self._forms.setdefault(form, (re.compile(pattern), put))
            self._arrange()

    def _arrange(self) -> None:
        forms = sorted(self._forms, key=len, reverse=True)
        beginnings: dict[str, list[str]] = {}
        for form in (*forms, *_BEGINNINGS):
            beginnings.setdefault(form[0], []).append(form)
        self.beginnings = beginnings
        self.longest = max(map(len, (*forms[:1], *_BEGINNINGS)))
        self.order = [(one, *self._forms[one]) for one in forms]

    def spans(self, text: str) -> Iterator[tuple[int, int]]:
        """Yield where secrets are in a text."""
        for form, pattern, _ in self.order:
            if form in text:
                yield from (found.span() for found in pattern.finditer(text))
        for begins, _, shape in _COMPILED:
            if begins in text:
                yield from (found.span() for found in shape.finditer(text))

    def redact(self, text: str) -> str:
        """Return a text without secrets; the very same text if it holds none."""
        for form, pattern, put in self.order:
            if form in text:
                text = pattern.sub(put, text)
        for sign, shapes in _BY_SIGN:
            if sign in text:
                for begins, put, shape in shapes:
                    if begins in text:
                        text = shape.sub(put, text)
        return text


_known = Secrets()


def know(name: str, value: str) -> None:
    """Take a secret out of everything that is written or sent from now on, in this process."""
    _known.know(name, value)


def know_all(secrets: Iterable[tuple[str, str]]) -> None:
    """Take several secrets out, each given with its name."""
    for name, value in secrets:
        _known.know(name, value)


def redact(text: str) -> str:
    """Return a text without secrets; the very same text if it holds none."""
    return _known.redact(text)


def redact_bytes(body: bytes) -> bytes:
    """Return a wire form without secrets; the very same bytes if they hold none."""
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return body
    changed = _known.redact(text)
    return body if changed is text else changed.encode()


class Stream:
    """Takes secrets out of a text that comes in pieces, however they cut it.

    What may be the beginning of a secret is held back until it is known whether it is one.
    """

    def __init__(self, secrets: Secrets | None = None) -> None:
        self._secrets = _known if secrets is None else secrets
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
        return min(place, begun.start()) if begun else place

    def _uncut(self, text: str, at: int) -> int:
        """Return a place up to there that is in the middle of no secret."""
        spans = sorted(self._secrets.spans(text), reverse=True)
        for start, end in spans:
            if start < at < end:
                at = start
        return at
