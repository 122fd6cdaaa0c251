"""CSV and TSV: rows, with the header in front of every piece."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path

from asterism.sources.readers.cut import HEADING, LINE, Atom, atoms_of, counted, pieces
from asterism.sources.readers.decode import chunks
from asterism.sources.readers.piece import DocumentRefused, Piece

LONGEST_ROW = 1_000_000
_DELIMITERS = ",;\t|"


def read(path: Path) -> Iterator[Piece]:
    """Yield the pieces of a table."""
    return pieces(_atoms(path), counted("row", "rows"))


def _atoms(path: Path) -> Iterator[Atom]:
    lines = _lines(path)
    first = list(islice(lines, 20))
    rows = csv.reader(chain(first, lines), delimiter=_delimiter(path, first), strict=False)
    header: list[str] | None = None
    number = 0
    try:
        for row in rows:
            cells = [" ".join(cell.split()) for cell in row]
            if not any(cells):
                continue
            if header is None:
                header = cells
                continue
            number += 1
            yield from _row(header, cells, number)
    except csv.Error as error:
        raise DocumentRefused(
            path,
            f"is no table from row {number + 1} on ({error}); is a quote never closed? Correct it,"
            " or name it .txt to have it read as text.",
        ) from error
    if header is not None and not number:
        yield from atoms_of(" | ".join(header), (0, 0), strength=LINE, joint="\n")


def _row(header: list[str], cells: list[str], number: int) -> Iterator[Atom]:
    """Yield a row; where it is too wide for one line, each value with its name."""
    told = " | ".join(header)
    row = " | ".join(cells)
    if len(told) <= HEADING and len(row) <= 1_000:
        yield from atoms_of(row, (number, 0), strength=LINE * 2, joint="\n", heading=told)
        return
    strength, joint = LINE * 2, "\n\n"
    for index, cell in enumerate(cells):
        if cell:
            name = header[index] if index < len(header) else f"column {index + 1}"
            text = f"{name[:100]}: {cell}"
            yield from atoms_of(text, (number, 0), strength=strength, joint=joint)
            strength, joint = LINE, "\n"


def _delimiter(path: Path, first: list[str]) -> str:
    """Return what parts the cells: what most lines at the top have, and equally often."""
    if path.suffix.lower() in (".tsv", ".tab"):
        return "\t"

    def fitness(mark: str) -> tuple[int, int]:
        counts = [line.count(mark) for line in first if line.strip()]
        usual = max(set(counts), key=counts.count, default=0)
        return (counts.count(usual) if usual else 0, usual)

    return max(_DELIMITERS, key=fitness)


def _lines(path: Path) -> Iterator[str]:
    """Yield lines with their ends, as the standard library's reader wants them."""
    carry, number = "", 1
    for chunk in chunks(path):
        *whole, carry = (carry + chunk).split("\n")
        for line in whole:
            yield line + "\n"
            number += 1
        if len(carry) > LONGEST_ROW:
            raise DocumentRefused(
                path,
                f"has more than {LONGEST_ROW:,} characters in line {number}, which is no row of a"
                " table; name it .txt to have it read as text.",
            )
    if carry:
        yield carry
