"""Patterns for texts, recipients, hosts and paths: one at a time, or many asked at once."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from typing import Any

from asterism.types.values import (
    host_of,
    host_with_all_letters,
    plain_name,
    plain_path,
    recipients_in,
)

Test = Callable[[str], Any]
"""Tells whether a text is meant by a pattern."""

_BEYOND_HOST = re.compile(r"[/?#@]")
_UPWARDS = re.compile(
    r"(?:^|[/\\]|%(?:25)*(?:2f|5c))(?:\.|%(?:25)*2e){2}(?:[/\\]|%(?:25)*(?:2f|5c)|$)",
    re.IGNORECASE,
)
_SEPARATOR = re.compile(r"[,;]")
_DISPLAY_FORM = re.compile(r"[^<>]*<([^<>]*)>")
_MAILTO = re.compile(r"mailto:\s*", re.IGNORECASE)


class Reading(Enum):
    """How a text is read before it is compared."""

    TEXT = "text"
    RECIPIENT = "recipient"
    HOST = "host"
    PATH = "path"

    def read(self, text: str) -> tuple[str, ...] | None:
        """Return what a text names, in the form in which it is compared; None if unreadable."""
        if self is Reading.RECIPIENT:
            return recipients_in(text)
        if self is Reading.TEXT:
            return (text,)
        plain = host_of(text) if self is Reading.HOST else _certain_path(text)
        return None if plain is None else (plain,)


def _certain_path(path: str) -> str | None:
    """Return a path in plain form; None if nobody here can tell where it leads.

    Where a way up or the folder of another user leads depends on who opens it.
    """
    plain = plain_path(path)
    return None if plain is None or plain.startswith(("..", "~", "$")) else plain


def glob(pattern: str, *, loosely: bool = False) -> Test:
    """Compile a glob, where `*` stands for any text; behind `re:` stands a regular expression.

    Loosely, an expression ignores case, and a way up in a text does not matter.
    """
    if pattern.startswith("re:"):
        flags = re.DOTALL | re.IGNORECASE if loosely else re.DOTALL
        return re.compile(pattern[3:], flags).fullmatch
    if not _is_glob(pattern):
        return pattern.__eq__
    parts = {"*": ".*", "?": "."}
    fits = re.compile(
        "".join(parts.get(char) or re.escape(char) for char in pattern), re.DOTALL
    ).fullmatch
    if loosely or "/" not in pattern:
        return fits
    # A way up leads out of the folder or the address that the pattern means.
    return lambda text: fits(text) and not _UPWARDS.search(text)


def path_glob(pattern: str) -> Test:
    """Compile a glob for paths: `*` stays within a folder, `**` goes below it."""
    out = ""
    for piece in re.split(r"(/\*\*(?=/|$)|\*\*|\*|\?)", plain_path(pattern) or pattern):
        match piece:
            case "/**":
                out += "(?:/.*)?"
            case "**":
                out += ".*"
            case "*":
                out += "[^/]*"
            case "?":
                out += "[^/]"
            case _:
                out += re.escape(piece)
    fits = re.compile(out, re.DOTALL).fullmatch

    def test(path: str) -> bool:
        plain = plain_path(path)
        return plain is not None and fits(plain) is not None

    return test


def host_glob(pattern: str) -> str:
    """Return a pattern for hosts in the one spelling in which hosts are compared."""
    below = "*." if pattern.startswith("*.") else ""
    name = pattern.removeprefix(below)
    # With a path, a name or a port it means more than a host, and no host fits it.
    if not _is_glob(name) and not _BEYOND_HOST.search(name) and name.count(":") != 1:
        name = host_of(name) or name
    return (below + name).lower().removesuffix(".")


def recipient_globs(pattern: str) -> tuple[str, ...]:
    """Return the recipients that a pattern means, in the form in which these are compared."""
    if not _is_glob(pattern):
        return recipients_in(pattern) or (pattern,)
    found: list[str] = []
    for part in _SEPARATOR.split(plain_name(pattern) or pattern):
        display = _DISPLAY_FORM.fullmatch(part.strip())
        one = _MAILTO.sub("", (display[1] if display else part).strip(), count=1)
        local, at, domain = one.rpartition("@")
        found.append(f"{local.lower()}@{host_glob(domain)}" if at and local else one)
    return tuple(one for one in found if one) or (pattern,)


def _loosely(text: str) -> str:
    return "".join(text.split()).lower()


def _spellings(recipient: str) -> set[str]:
    """Return a recipient in every way in which a pattern that denies may mean it, if several."""
    lowered = recipient.lower()
    if lowered == recipient and " " not in recipient and "xn--" not in recipient:
        return set()
    found = {lowered, _loosely(recipient)}
    local, at, host = recipient.rpartition("@")
    if at and "xn--" in host:
        found.add(f"{local}@{host_with_all_letters(host)}")
    return found


def _is_glob(pattern: str) -> bool:
    return "*" in pattern or "?" in pattern


class Patterns:
    """The patterns of many, each known by a bit; says at once which of them a text fits."""

    def __init__(
        self, named: Iterable[tuple[int, Sequence[str]]], reading: Reading = Reading.TEXT
    ) -> None:
        self._reading = reading
        self._free = 0
        self._named = 0
        self._exactly = _Index()
        self._loosely = _Index(loosely=True)
        """For those who deny or ask: an account is the same in other letters and with spaces."""
        self._changed = _Index(loosely=True)
        """Those of them that mean more than what they mean exactly."""
        for bit, patterns in named:
            if patterns:
                self._named |= 1 << bit
            else:
                self._free |= 1 << bit
            for one in patterns:
                self._add(1 << bit, one)

    def fitting(self, values: Sequence[str] | None, allows: int) -> int:
        """Return who has nothing against a call with these values.

        Those among `allows` must have a pattern for every value, the others for one of them. A
        value that cannot be read fits every pattern of the others and none of theirs; so do values
        that are None.
        """
        if values is None:
            return self._free | (self._named & ~allows)
        if not values:
            return self._free
        any_, every = 0, -1
        for value in values:
            texts = self._reading.read(value)
            if texts is None:
                any_, every = self._named, 0
                break
            for text in texts:
                fits = self._exactly.of(text)
                every &= fits
                any_ |= fits
                if self._reading is Reading.RECIPIENT:
                    any_ |= self._loosely_of(text)
        return self._free | (every & allows) | (any_ & ~allows)

    def of(self, value: str) -> int:
        """Return whose patterns a value fits; none if it cannot be read."""
        texts = self._reading.read(value)
        fits = -1 if texts else 0
        for text in texts or ():
            fits &= self._exactly.of(text)
        return fits

    def _loosely_of(self, text: str) -> int:
        spellings = _spellings(text)
        if not spellings:
            return self._changed.of(text)
        fits = 0
        for one in spellings:
            fits |= self._loosely.of(one)
        return fits

    def _add(self, bit: int, pattern: str) -> None:
        if self._reading is Reading.RECIPIENT:
            self._add_recipient(bit, pattern)
        elif pattern.startswith("re:") or self._reading is Reading.TEXT:
            self._exactly.add(bit, pattern)
        elif self._reading is Reading.PATH:
            self._exactly.add_path(bit, pattern)
        else:
            self._exactly.add(bit, host_glob(pattern))

    def _add_recipient(self, bit: int, pattern: str) -> None:
        is_expression = pattern.startswith("re:")
        for one in (pattern,) if is_expression else recipient_globs(pattern):
            loose = one if is_expression else _loosely(one)
            self._exactly.add(bit, one)
            self._loosely.add(bit, loose)
            if is_expression or loose != one or "/" in one:
                self._changed.add(bit, loose)


class _Index:
    """Patterns to be looked up.

    Those with a fixed beginning or end are looked up by it, only the rest is gone through.
    """

    def __init__(self, *, loosely: bool = False) -> None:
        self._loosely = loosely
        self._exact: dict[str, int] = {}
        self._starts: dict[int, dict[str, int]] = {}
        self._ends: dict[int, dict[str, int]] = {}
        self._below: dict[str, int] = {}
        self._rest: list[tuple[int, Test]] = []

    def of(self, text: str) -> int:
        """Return whose patterns a text fits."""
        fits = self._exact.get(text, 0)
        for length, by_start in self._starts.items():
            fits |= by_start.get(text[:length], 0)
        for length, by_end in self._ends.items():
            if len(text) >= length:
                fits |= by_end.get(text[-length:], 0)
        if self._below:
            fits |= self._below_of(text)
        for bit, test in self._rest:
            if test(text):
                fits |= bit
        return fits

    def _below_of(self, path: str) -> int:
        fits = self._below.get(path, 0)
        while (cut := path.rfind("/")) > 0:
            path = path[:cut]
            fits |= self._below.get(path, 0)
        return fits | self._below.get("/", 0)

    def add_path(self, bit: int, pattern: str) -> None:
        """Add a pattern for paths."""
        plain = plain_path(pattern) or pattern
        if plain.endswith("/**") and not _is_glob(plain[:-3]):
            _put(self._below, plain[:-3] or "/", bit)
        elif _is_glob(plain):
            self._rest.append((bit, path_glob(pattern)))
        else:
            _put(self._exact, plain, bit)

    def add(self, bit: int, pattern: str) -> None:
        """Add a pattern for texts."""
        stars = pattern.count("*")
        if pattern.startswith("re:") or "?" in pattern or "/" in pattern or stars > 1:
            self._rest.append((bit, glob(pattern, loosely=self._loosely)))
        elif stars == 0:
            _put(self._exact, pattern, bit)
        elif pattern.endswith("*"):
            _put(self._starts.setdefault(len(pattern) - 1, {}), pattern[:-1], bit)
        elif pattern.startswith("*"):
            _put(self._ends.setdefault(len(pattern) - 1, {}), pattern[1:], bit)
        else:
            self._rest.append((bit, glob(pattern)))


def _put(kept: dict[str, int], text: str, bit: int) -> None:
    kept[text] = kept.get(text, 0) | bit
