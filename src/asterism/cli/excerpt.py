"""The part of a found text that is shown: around what was found, with the places to mark."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from asterism.cli.text import one_line

if TYPE_CHECKING:
    from asterism.types.search import Hit

_MOST_READ = 200_000
"""Of a text that is longer, the rest is not looked through for what to show."""

_NEAR_SPACE = 20
"""How far to look for the space before or after a word, so that it is not cut."""


@dataclass(frozen=True, slots=True)
class Excerpt:
    """A text on one line, and where in it the words are that were found."""

    text: str
    places: tuple[tuple[int, int], ...]


def cut(hit: Hit, most: int) -> Excerpt:
    """Return at most so many characters of a hit, those with the most of what was found."""
    line = one_line(hit.text[:_MOST_READ])
    places = _places(line, [one_line(word) for word in hit.matched])
    if len(line) <= most:
        return Excerpt(line, tuple(places))
    first = _start(line, places, most)
    last = _end(line, places, first + most)
    lead, trail = "…" * (first > 0), "…" * (last < len(line))
    moved = len(lead) - first
    shown = [
        (one + moved, other + moved) for one, other in places if one >= first and other <= last
    ]
    return Excerpt(f"{lead}{line[first:last]}{trail}", tuple(shown))


def _places(line: str, words: list[str]) -> list[tuple[int, int]]:
    """Return where the words are, as whole words if they are anywhere written so."""
    found: set[tuple[int, int]] = set()
    for word in filter(None, words):
        inner = re.escape(word)
        # Some scripts have no space between words.
        whole = [one.span() for one in re.finditer(rf"(?<!\w){inner}(?!\w)", line)]
        found.update(whole or [one.span() for one in re.finditer(inner, line)])
    merged: list[tuple[int, int]] = []
    for first, last in sorted(found):
        if merged and first < merged[-1][1]:
            merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
        else:
            merged.append((first, last))
    return merged


def _start(line: str, places: list[tuple[int, int]], most: int) -> int:
    """Return where the part begins that has the most different words, a little before the first."""
    best, start, ahead = 0, 0, most // 4
    for first, _ in places:
        begin = max(0, min(first - ahead, len(line) - most))
        inside = {
            line[one:other] for one, other in places if begin <= one and other <= begin + most
        }
        if len(inside) > best:
            best, start = len(inside), begin
    space = line.find(" ", start, start + _NEAR_SPACE)
    return space + 1 if start and space >= 0 and not _is_in(places, start, space) else start


def _end(line: str, places: list[tuple[int, int]], last: int) -> int:
    if last >= len(line):
        return len(line)
    space = line.rfind(" ", last - _NEAR_SPACE, last)
    return space if space >= 0 and not _is_in(places, space, last) else last


def _is_in(places: list[tuple[int, int]], first: int, last: int) -> bool:
    return any(one < last and other > first for one, other in places)
