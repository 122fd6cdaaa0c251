"""Leaks: does a text carry what was read elsewhere, however it is written there?

Numbers are compared by their digits, whatever groups them. Beyond that only disguises are looked
for that nobody uses by accident: spelled letter by letter, run together, backwards, shifted, or
encoded. What is told in other words cannot be seen here.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import html
import re
import unicodedata
from collections.abc import Iterator
from functools import cached_property
from urllib.parse import unquote

from asterism.permissions.numbers import digit_of
from asterism.permissions.texts import tight

_MAX_TEXT = 50_000
"""Characters: in a longer text anything can be hidden, so that a person is asked."""
_MIN_DIGITS = 4
_MIN_WORD = 5
_MIN_RUN_TOGETHER = 10
_PIECE = 10
_DIGITS = re.compile(r"\d(?:[\s,.\-_/'’:;|]{0,2}\d)+")
_WHEN = re.compile(r"(?:19|20)\d\d(?:[01]?\d(?:[0-3]?\d)?)?|[0-3]?\d[01]?\d(?:19|20)\d\d")
_LETTERS = re.compile(r"\w(?:[\s.,;:|/_*-]{1,2}\w(?!\w)){4,}")
_TOKEN = re.compile(r"[^\W_]{10,}")
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]{8,}={0,2}")
_HEX_NUMBER = re.compile(r"0x([0-9a-fA-F]{2,16})\b")
_BARE_HEX = re.compile(r"\b(?=[0-9]*[a-fA-F])(?=[a-fA-F]*[0-9])[0-9a-fA-F]{4,12}\b")
_BINARY = re.compile(r"\b[01]{8,64}\b")
_ESCAPE = re.compile(r"\\(?:u|x|U000)([0-9a-fA-F]{2,5})")
_HEX = re.compile(r"[0-9a-fA-F]{8,}")
_HEX_JOINTS = str.maketrans("", "", " \t\r\n:,-")
_CODES = re.compile(r"(?:\b(?:3[2-9]|[4-9]\d|1[01]\d|12[0-6])\b[\s,;]*){4,}")
_BITS = re.compile(r"\b[01]{8}\b")
_OCTAL = re.compile(r"(?<![\d])[01][0-7]{2}(?![\d])")
_BASE85 = re.compile(r"[!-~]{10,400}")
_ROT47 = {code: 33 + (code - 33 + 47) % 94 for code in range(33, 127)}
_INVISIBLE = re.compile("[\u200b-\u200f\u2060-\u206f\ufe00-\ufe0f\U000e0000-\U000e01ef]{3,}")
_WORD = re.compile(r"[^\W_]+")
_NUMERAL = re.compile("[〇零一二三四五六七八九]{4,}")
_LONGEST_DIGIT = 8
_MIXED = re.compile(r"[A-Za-z][\u0370-\u03ff\u0400-\u04ff]|[\u0370-\u03ff\u0400-\u04ff][A-Za-z]")
_DRAWN = re.compile("[\U0001f130-\U0001f189\U0001f1e6-\U0001f1ff\u2800-\u28ff]{3,}")
_MORSE = re.compile(r"[.\-·–−]{1,6}(?:[ /]{1,3}[.\-·–−]{1,6}){4,}")
_ROT13 = str.maketrans("abcdefghijklmnopqrstuvwxyz", "nopqrstuvwxyzabcdefghijklm")


class Leaks:
    """Looks for what stands in one text and not in another."""

    def __init__(self, secret: str, allowed: str) -> None:
        """Take the texts.

        Args:
            secret: What may not be told.
            allowed: What may be told, and what was said anyway.
        """
        self._secret = secret
        self._allowed = allowed

    @cached_property
    def _secret_tight(self) -> str:
        return tight(self._secret)

    @cached_property
    def _allowed_tight(self) -> str:
        return tight(self._allowed)

    @cached_property
    def _secret_numbers(self) -> str:
        return "|".join(_numbers(self._secret))

    @cached_property
    def _allowed_numbers(self) -> str:
        return "|".join(_numbers(self._allowed))

    def first(self, text: str) -> str:
        """Return the first thing in a text that was read elsewhere; empty if there is none."""
        if not self._secret.strip():
            return ""
        if len(text) > _MAX_TEXT:
            return text[:40]
        forms = [text, *_unescaped(text)]
        numbers = (number for form in forms for number in _numbers(form))
        for number in (*numbers, *_spelled_numbers(text)):
            if self._is_secret_number(number):
                return number
        disguise = _disguise(text)
        if disguise:
            return disguise
        plainly = tight(text)
        words = (tight(word) for form in forms[1:] for word in form.split())
        for word in (*(one for one in words if one not in plainly), *_hidden_words(text)):
            if len(word) >= _MIN_WORD and self._is_secret(word):
                return word
        return self._backwards(text)

    def _is_secret_number(self, number: str) -> bool:
        if number in self._allowed_numbers:
            return False
        return any(one in self._secret_numbers for one in (number, number[::-1]))

    def _is_secret(self, word: str) -> bool:
        return word in self._secret_tight and word not in self._allowed_tight

    def _backwards(self, text: str) -> str:
        """Return a piece that is written backwards, or with shifted letters."""
        seen = tight(text)
        step = 1 if len(seen) <= 400 else _PIECE
        for form in (seen[::-1], seen.translate(_ROT13)):
            for start in range(0, len(form) - _PIECE + 1, step):
                piece = form[start : start + _PIECE]
                if self._is_secret(piece) and piece != piece[::-1]:
                    return piece
        return ""


def _numbers(text: str) -> Iterator[str]:
    """Yield numbers by their digits alone; dates and short ones tell nothing."""
    seen = unicodedata.normalize("NFKC", text) if not text.isascii() else text
    for match in _DIGITS.finditer(seen):
        digits = tight(match.group())
        if len(digits) >= _MIN_DIGITS and not _WHEN.fullmatch(digits):
            yield digits
    for match in _HEX_NUMBER.finditer(seen):
        yield str(int(match.group(1), 16))
    for match in _BARE_HEX.finditer(seen):
        yield str(int(match.group(), 16))
    for match in _BINARY.finditer(seen):
        yield str(int(match.group(), 2))


def _unescaped(text: str) -> Iterator[str]:
    """Yield what escapes of a text stand for."""
    if "%" in text:
        yield unquote(text)
    if "&" in text:
        yield html.unescape(text)
    if "\\" in text:
        yield _ESCAPE.sub(lambda match: chr(int(match.group(1), 16)), text)


def _spelled_numbers(text: str) -> Iterator[str]:
    """Yield digits that are spelled in words, or set apart among other words."""
    run = ""
    for word in _WORD.findall(_NUMERAL.sub(lambda match: " ".join(match.group()), text)):
        digit = digit_of(word) if len(word) <= _LONGEST_DIGIT else ""
        if digit:
            run += digit
            continue
        if len(run) >= _MIN_DIGITS:
            yield run
        run = ""
    if len(run) >= _MIN_DIGITS:
        yield run
    single = [word for word in _WORD.findall(text) if any(map(str.isdigit, word))]
    if len(single) >= _MIN_DIGITS and all(len(word) == 1 for word in single):
        yield tight("".join(single))


def _disguise(text: str) -> str:
    """Return what nobody writes but to hide something: mixed alphabets, drawn letters, Morse."""
    for pattern in (_MIXED, _DRAWN, _MORSE, _INVISIBLE):
        found = pattern.search(text)
        if found is not None:
            return found.group()
    return ""


def _hidden_words(text: str) -> Iterator[str]:
    """Yield what a text says in disguise: spelled out, run together or encoded."""
    for match in _LETTERS.finditer(text):
        yield tight(match.group())
    for match in _TOKEN.finditer(text):
        word = match.group()
        if len(word) >= _MIN_RUN_TOGETHER and _is_run_together(word):
            yield tight(word)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if len(lines) >= _MIN_WORD:
        yield tight("".join(line[0] for line in lines))
    yield from _encoded_words(text)


def _encoded_words(text: str) -> Iterator[str]:
    """Yield what is encoded in a text, in the ways that programs encode."""
    squeezed = "".join(text.split())
    for run in _BASE64.findall(squeezed):
        yield from _decoded(run)
    for run in _HEX.findall(text.translate(_HEX_JOINTS)):
        for start in (0, 1):
            end = start + (len(run) - start) // 2 * 2
            yield from _words_of(bytes.fromhex(run[start:end]))
    bits = "".join(_BITS.findall(text))
    if bits:
        yield from _words_of(int(bits, 2).to_bytes(len(bits) // 8, "big"))
    octal = _OCTAL.findall(text)
    if len(octal) >= 4:
        yield from _words_of(bytes(int(one, 8) for one in octal))
    for run in _BASE85.findall(text):
        for decode in (base64.b85decode, base64.a85decode):
            with contextlib.suppress(ValueError):
                yield from _words_of(decode(run))
    yield from _words_of(text.translate(_ROT47).encode("ascii", "ignore"))
    for match in _CODES.finditer(text):
        yield from _words_of(bytes(int(one) for one in re.findall(r"\d+", match.group())))


def _is_run_together(word: str) -> bool:
    """Tell whether a word is too long to be one, or has capitals or digits in its middle."""
    return len(word) >= 14 or bool(re.search(r"[a-z][A-Z0-9]|\d[A-Za-z]", word))


def _decoded(run: str) -> Iterator[str]:
    standard = run.translate(str.maketrans("-_", "+/")).rstrip("=")
    for start in range(4):
        part = standard[start:]
        part = part[: len(part) - (len(part) % 4 == 1)]
        try:
            yield from _words_of(base64.b64decode(part + "=" * (-len(part) % 4)))
        except binascii.Error:
            continue


def _words_of(data: bytes) -> Iterator[str]:
    """Yield the readable parts of what was decoded."""
    for run in re.findall(rb"[\x20-\x7e]{4,}", data):
        text = run.decode("ascii")
        yield from _numbers(text)
        yield tight(text)
        yield from (tight(word) for word in text.split())
