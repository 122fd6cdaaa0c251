"""Code: functions and classes stay together; what they are inside of stands in front."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from asterism.sources.readers.cut import (
    BLOCK,
    HEADING,
    LINE,
    PARAGRAPH,
    WORD,
    Atom,
    atoms_of,
    counted,
    pieces,
)
from asterism.sources.readers.decode import lines
from asterism.sources.readers.piece import Piece

_DEFINITION = re.compile(
    r"(?:(?:export|default|pub(?:\([a-z]+\))?|public|private|protected|internal|static|final|"
    r"abstract|sealed|open|override|virtual|inline|async|unsafe|extern|const)\s+)*"
    r"(?:def|class|function\*?|func|fn|fun|interface|struct|enum|trait|impl|module|namespace|"
    r"package|record|object|protocol|extension|type|sub|procedure|create\s+(?:or\s+replace\s+)?"
    r"(?:table|view|function|procedure|trigger|index|unique\s+index))\b",
    re.IGNORECASE,
)
_LEADS = ("@", "#[", "//", "/*", "*", "# ", "--", '"""', "[")
"""How lines begin that belong to the definition after them."""
_CLOSES = (")", "]", "}", "end")


def read(path: Path) -> Iterator[Piece]:
    """Yield the pieces of a program."""
    return pieces(_atoms(path), counted("line", "lines"))


def _atoms(path: Path) -> Iterator[Atom]:
    scopes: list[tuple[int, str]] = []
    blank, led = True, False
    for number, column, line in lines(path):
        code = line.strip()
        if column:
            heading = _told(scopes)
            yield from atoms_of(line, (number, column), strength=LINE, joint=" ", heading=heading)
            continue
        if not code:
            blank = True
            continue
        indent = len(line.expandtabs(8)) - len(line.expandtabs(8).lstrip())
        definition = _DEFINITION.match(code) is not None
        if not code.startswith(_CLOSES):
            while scopes and scopes[-1][0] >= indent:
                scopes.pop()
        yield from atoms_of(
            line.rstrip(),
            (number, 0),
            strength=_strength(indent, definition=definition, blank=blank, led=led),
            joint="\n\n" if blank else "\n",
            heading=_told(scopes),
        )
        if definition:
            scopes.append((indent, code))
        blank, led = False, code.startswith(_LEADS)


def _strength(indent: int, *, definition: bool, blank: bool, led: bool) -> float:
    """Return how good it is to cut in front of a line: before definitions, and far out."""
    depth = min(indent / 4, 8)
    if led and not blank:
        return WORD
    if definition or (blank and not indent):
        return BLOCK - 0.2 * depth
    if blank:
        return PARAGRAPH - 0.1 * depth
    return LINE - 0.05 * depth


def _told(scopes: list[tuple[int, str]]) -> str:
    if not scopes:
        return ""
    told = " > ".join(code[:80].rstrip(" :{(") for _, code in scopes[-3:])
    return told[:HEADING]
