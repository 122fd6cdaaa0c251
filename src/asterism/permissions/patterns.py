"""Patterns for texts, hosts and paths: one at a time, or many asked at once."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from pathlib import Path
from typing import Any

from asterism.types.deeds import host_of

Test = Callable[[str], Any]
"""Tells whether a text is meant by a pattern."""

_UPWARDS = re.compile(r"(?:^|[/\\])(?:\.|%2e){2}(?:[/\\]|%2f|%5c|$)", re.IGNORECASE)


class Reading(Enum):
    """How a text is read before it is compared."""

    TEXT = "text"
    HOST = "host"
    PATH = "path"

    def plain(self, text: str) -> str:
        """Return a text in the one form in which it is compared."""
        if self is Reading.HOST:
            return host_of(text)
        return plain_path(text) if self is Reading.PATH else text


def glob(pattern: str) -> Test:
    """Compile a glob, where `*` stands for any text; behind `re:` stands a regular expression."""
    if pattern.startswith("re:"):
        return re.compile(pattern[3:], re.DOTALL).fullmatch
    if not _is_glob(pattern):
        return pattern.__eq__
    parts = {"*": ".*", "?": "."}
    fits = re.compile(
        "".join(parts.get(char) or re.escape(char) for char in pattern), re.DOTALL
    ).fullmatch
    if "/" not in pattern:
        return fits
    # A way up leads out of the folder or the address that the pattern means.
    return lambda text: fits(text) and not _UPWARDS.search(text)


def path_glob(pattern: str) -> Test:
    """Compile a glob for paths: `*` stays within a folder, `**` goes below it."""
    out = ""
    for piece in re.split(r"(/\*\*(?=/|$)|\*\*|\*|\?)", plain_path(pattern)):
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
    return lambda path: fits(plain_path(path))


def plain_path(path: str) -> str:
    """Return a path without `~`, `.` and `..`; links in it are not followed."""
    if path.startswith("~"):
        with contextlib.suppress(RuntimeError):
            path = str(Path(path).expanduser())
    return os.path.normpath(path)


def _is_glob(pattern: str) -> bool:
    return "*" in pattern or "?" in pattern


class Patterns:
    """The patterns of many, each known by a bit; says at once which of them a text fits.

    Those with a fixed beginning or end are looked up by it, only the rest is gone through.
    """

    def __init__(
        self, named: Iterable[tuple[int, Sequence[str]]], reading: Reading = Reading.TEXT
    ) -> None:
        self._reading = reading
        self._free = 0
        self._exact: dict[str, int] = {}
        self._starts: dict[int, dict[str, int]] = {}
        self._ends: dict[int, dict[str, int]] = {}
        self._below: dict[str, int] = {}
        self._rest: list[tuple[int, Test]] = []
        for bit, patterns in named:
            if not patterns:
                self._free |= 1 << bit
            for one in patterns:
                self._add(1 << bit, one)

    def fitting(self, values: Sequence[str], allows: int) -> int:
        """Return who has nothing against a call with these values.

        Those among `allows` must have a pattern for every value, the others for one of them.
        """
        if not values:
            return self._free
        any_, every = 0, -1
        for value in values:
            fits = self.of(value)
            any_ |= fits
            every &= fits
        return self._free | (every & allows) | (any_ & ~allows)

    def of(self, value: str) -> int:
        """Return whose patterns a value fits."""
        text = self._reading.plain(value)
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

    def _add(self, bit: int, pattern: str) -> None:
        reading = self._reading
        if reading is Reading.PATH and not pattern.startswith("re:"):
            plain = plain_path(pattern)
            if plain.endswith("/**") and not _is_glob(plain[:-3]):
                _put(self._below, plain[:-3] or "/", bit)
            elif _is_glob(plain):
                self._rest.append((bit, path_glob(pattern)))
            else:
                _put(self._exact, plain, bit)
            return
        if reading is Reading.HOST and not pattern.startswith("re:"):
            pattern = pattern.casefold()
        stars = pattern.count("*")
        if pattern.startswith("re:") or "?" in pattern or "/" in pattern or stars > 1:
            self._rest.append((bit, glob(pattern)))
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
