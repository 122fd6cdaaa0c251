"""Plain text: paragraphs, which blank lines part."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from asterism.sources.readers.cut import LINE, PARAGRAPH, Atom, atoms_of, counted, pieces
from asterism.sources.readers.decode import lines
from asterism.sources.readers.piece import Piece


def read(path: Path) -> Iterator[Piece]:
    """Yield the pieces of a text file."""
    return pieces(_atoms(path), counted("line", "lines"))


def _atoms(path: Path) -> Iterator[Atom]:
    blank, ended = False, False
    for number, column, line in lines(path):
        if not line.strip():
            blank = blank or not column
            continue
        if column:
            strength, joint = LINE, " "
        elif blank:
            strength, joint = PARAGRAPH, "\n\n"
        else:
            strength, joint = LINE + 0.2 * ended, "\n"
        yield from atoms_of(line.rstrip(), (number, column), strength=strength, joint=joint)
        blank, ended = False, line.rstrip().endswith((".", "!", "?", ":"))
