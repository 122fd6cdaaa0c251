"""Markdown: what is under a heading stays together, with the path of headings in front."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from asterism.sources.readers.cut import (
    LINE,
    PARAGRAPH,
    WORD,
    Atom,
    Outline,
    atoms_of,
    counted,
    pieces,
    under_heading,
)
from asterism.sources.readers.decode import Line, lines
from asterism.sources.readers.piece import Piece

_HEADING = re.compile(r" {0,3}(#{1,6})(?:[ \t]+(.*?))?(?:[ \t]+#+)?[ \t]*\Z")
_UNDERLINE = re.compile(r" {0,3}(=+|-+)[ \t]*\Z")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_ITEM = re.compile(r"\s*(?:[-*+]|\d{1,9}[.)])[ \t]+\S")
_NOT_A_PARAGRAPH = re.compile(r"\s*(?:[-*+>|#]|\d{1,9}[.)][ \t]|`{3}|~{3})")


def read(path: Path) -> Iterator[Piece]:
    """Yield the pieces of a Markdown file."""
    return pieces(_Markdown().atoms(lines(path)), under_heading(counted("line", "lines")))


class _Markdown:
    """What has to be remembered from line to line."""

    def __init__(self) -> None:
        self._outline = Outline()
        self._fence = ""
        self._blank = True
        """Whether nothing but a blank line or a heading came just before."""
        self._held: Line | None = None
        """A line that is a heading if the next one underlines it."""

    def atoms(self, given: Iterator[Line]) -> Iterator[Atom]:
        """Yield the text below headings; fenced code stays in one piece where it can."""
        at = (1, 0)
        for number, column, line in _without_front_matter(given):
            at = (number, column)
            if self._held is not None:
                held, self._held = self._held, None
                if not column and (under := _UNDERLINE.match(line)):
                    level = 1 if under[1][0] == "=" else 2
                    yield from self._outline.enter(level, held[2], (held[0], held[1]))
                    self._blank = True
                    continue
                yield from self._line(*held)
            if self._fence or column or not (heading := _HEADING.match(line)):
                if self._may_be_underlined(column, line):
                    self._held = number, column, line
                else:
                    yield from self._line(number, column, line)
                continue
            yield from self._outline.enter(len(heading[1]), heading[2] or "", at)
            self._blank = True
        if self._held is not None:
            yield from self._line(*self._held)
        yield from self._outline.end(at)

    def _may_be_underlined(self, column: int, line: str) -> bool:
        if self._fence or column or not self._blank or len(line) > 200:
            return False
        return bool(line.strip()) and not _NOT_A_PARAGRAPH.match(line)

    def _line(self, number: int, column: int, line: str) -> Iterator[Atom]:
        if not line.strip() and not self._fence:
            self._blank = True
            return
        strength, joint = self._seam(column, line)
        self._turn_fence(column, line)
        yield from atoms_of(
            line.rstrip(),
            (number, column),
            strength=self._outline.seam(strength),
            joint=joint,
            heading=self._outline.heading,
        )
        self._blank = False

    def _seam(self, column: int, line: str) -> tuple[float, str]:
        if column:
            return LINE, " "
        if self._fence:
            return WORD, "\n"
        if self._blank:
            return PARAGRAPH, "\n\n"
        return (PARAGRAPH / 2 if _ITEM.match(line) else LINE), "\n"

    def _turn_fence(self, column: int, line: str) -> None:
        fence = _FENCE.match(line) if not column else None
        if fence is None:
            return
        if not self._fence:
            self._fence = fence[1]
        elif fence[1].startswith(self._fence) and line.strip() == fence[1]:
            self._fence = ""


def _without_front_matter(given: Iterator[Line]) -> Iterator[Line]:
    """Yield the lines; the rules around a block of metadata at the top are no underlines."""
    inside = False
    for number, column, line in given:
        rule = not column and line.rstrip() == "---"
        if rule and (number == 1 or inside):
            inside = number == 1
            yield number, column, ""
        else:
            yield number, column, line
