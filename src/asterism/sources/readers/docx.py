"""DOCX: headings, paragraphs, lists and tables, from the XML inside, in bounded memory."""

from __future__ import annotations

import lzma
import re
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from xml.parsers import expat

from asterism.sources.readers.cut import (
    LINE,
    PARAGRAPH,
    Atom,
    Outline,
    atoms_of,
    counted,
    pieces,
    under_heading,
)
from asterism.sources.readers.decode import open_regular
from asterism.sources.readers.piece import DocumentRefused, Piece

UNPACKED = 1 << 28
"""Bytes that a part of a document may unpack to; a book of 1,000 pages has about 10 MB."""
_STYLES_UNPACKED = 1 << 23
_MOST_FILES = 20_000
_LONGEST_TOKEN = 1 << 22
_DEEPEST = 1_000
_LONGEST = 1_000_000
"""Characters of a paragraph, or of a row of a table."""
_CHUNK = 1 << 16

_BODY = "word/document.xml"
_STYLES = "word/styles.xml"
_NOTES = ("word/footnotes.xml", "word/endnotes.xml")
_HEADING = re.compile(r"heading (\d)\Z", re.IGNORECASE)
_OLD = b"\xd0\xcf\x11\xe0"

_UNPACKING = (
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    NotImplementedError,
    RuntimeError,
    EOFError,
    KeyError,
    ValueError,
)
"""What unpacking raises for a file that is damaged, encrypted or made to harm."""


def read(path: Path) -> Iterator[Piece]:
    """Yield the pieces of a Word document."""
    return pieces(_atoms(path), under_heading(counted("paragraph", "paragraphs")))


def _atoms(path: Path) -> Iterator[Atom]:
    with open_regular(path) as file:
        if file.read(4) == _OLD:
            raise DocumentRefused(
                path, "is protected by a password or of an older format; save it as plain .docx."
            )
        file.seek(0)
        try:
            with zipfile.ZipFile(file) as archive:
                yield from _Text(path, archive).atoms()
        except _UNPACKING as error:
            raise DocumentRefused(
                path, "is not a Word document that can be read; open it in Word and save it anew."
            ) from error


def _parse(
    path: Path,
    archive: zipfile.ZipFile,
    name: str,
    most: int,
    start: Callable[[str, dict[str, str]], None],
    end: Callable[[str], None],
    text: Callable[[str], None],
) -> Iterator[None]:
    """Read a file of XML step by step; pause after each."""
    parser: Any = expat.ParserCreate(namespace_separator=" ")
    parser.buffer_text = True
    parser.SetParamEntityParsing(expat.XML_PARAM_ENTITY_PARSING_NEVER)
    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.CharacterDataHandler = text

    def refuse(*_: Any) -> None:
        # Word never declares a document type; entities that unfold without end need one.
        raise DocumentRefused(path, "declares XML entities, which no Word document needs.")

    parser.StartDoctypeDeclHandler = refuse
    unpacked = 0
    try:
        with archive.open(name) as inside:
            while chunk := inside.read(_CHUNK):
                unpacked += len(chunk)
                if unpacked > most:
                    raise DocumentRefused(
                        path, f"unpacks to more than {most >> 20} MB of text; split it."
                    )
                parser.Parse(chunk, False)  # noqa: FBT003 - by position only
                # Expat before 2.6 looks at an unfinished token again and again (CVE-2023-52425).
                if unpacked - max(parser.CurrentByteIndex, 0) > _LONGEST_TOKEN:
                    raise DocumentRefused(path, "holds XML without end; save it anew.")
                yield
        parser.Parse(b"", True)  # noqa: FBT003
        yield
    except expat.ExpatError as error:
        raise DocumentRefused(
            path, f"holds broken XML ({error}); open it in Word and save it anew."
        ) from error


class _Styles:
    """Which styles are headings, and how deep; their ids depend on the language of the author."""

    def __init__(self) -> None:
        self.levels: dict[str, int] = {}
        self._id = ""

    def start(self, tag: str, given: dict[str, str]) -> None:
        """Take in what opens."""
        space, _, name = tag.rpartition(" ")
        if name == "style":
            self._id = given.get(f"{space} styleId", "")
        elif name == "name" and self._id:
            told = given.get(f"{space} val", "")
            if found := _HEADING.match(told):
                self.levels[self._id] = int(found[1])
            elif told.lower() == "title":
                self.levels[self._id] = 1

    def end(self, tag: str) -> None:
        """Take in what closes."""
        if tag.endswith(" style"):
            self._id = ""


class _Text:
    """The text of a document, paragraph by paragraph."""

    def __init__(self, path: Path, archive: zipfile.ZipFile) -> None:
        self._path = path
        self._archive = archive
        self._outline = Outline()
        self._done: list[Atom] = []
        self._said: list[str] = []
        self._number = 0
        self._depth = 0
        self._level = 0
        self._item = False
        self._open = 0
        """Depth of the text that is being read; 0: none."""
        self._skipped = 0
        """Depth of what repeats what was read before; 0: nothing."""
        self._size = 0
        """Characters of the paragraph, or of the outermost row, that is open."""
        self._rows: list[list[list[str]]] = []
        """The cells of the rows that are open, a row in a cell being within another."""
        self._levels: dict[str, int] = {}

    def atoms(self) -> Iterator[Atom]:
        """Yield paragraphs and rows, then notes."""
        names = set(self._archive.namelist())
        if len(names) > _MOST_FILES or _BODY not in names:
            raise DocumentRefused(
                self._path, "is not a Word document; it holds no text of the form Word writes."
            )
        if _STYLES in names:
            styles = _Styles()
            for _ in _parse(
                self._path,
                self._archive,
                _STYLES,
                _STYLES_UNPACKED,
                styles.start,
                styles.end,
                lambda _: None,
            ):
                pass
            self._levels = styles.levels
        for name in (_BODY, *(one for one in _NOTES if one in names)):
            if name != _BODY:
                self._done += self._outline.enter(1, name[5:-4].capitalize(), (self._number, 0))
            for _ in _parse(
                self._path, self._archive, name, UNPACKED, self._start, self._end, self._text
            ):
                yield from self._done
                self._done = []
        yield from self._outline.end((self._number, 0))

    def _start(self, tag: str, given: dict[str, str]) -> None:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise DocumentRefused(self._path, f"is nested more than {_DEEPEST} deep; save it anew.")
        space, _, name = tag.rpartition(" ")
        if self._skipped:
            return
        match name:
            case "Fallback":
                self._skipped = self._depth
            case "p":
                self._said, self._level, self._item = [], 0, False
            case "pStyle":
                self._level = self._levels.get(given.get(f"{space} val", ""), 0)
            case "outlineLvl":
                told = given.get(f"{space} val", "")
                self._level = int(told) + 1 if told.isdigit() and int(told) < 6 else self._level
            case "numPr":
                self._item = True
            case "tr":
                self._rows.append([])
            case "tc" if self._rows:
                self._rows[-1].append([])
            case "t":
                self._open = self._depth
            case "tab" | "br" | "cr":
                self._said.append(" " if name == "tab" else "\n")
            case _:
                pass

    def _text(self, text: str) -> None:
        if self._open and not self._skipped:
            self._said.append(text)
            self._size += len(text)
            if self._size > _LONGEST:
                raise DocumentRefused(
                    self._path,
                    f"has more than {_LONGEST:,} characters in one paragraph or row; split it.",
                )

    def _end(self, tag: str) -> None:
        depth, self._depth = self._depth, self._depth - 1
        if self._skipped:
            if depth == self._skipped:
                self._skipped = 0
            return
        if depth == self._open:
            self._open = 0
        name = tag.rpartition(" ")[2]
        if name == "p":
            self._paragraph()
        elif name == "tr" and self._rows:
            cells = [" ".join(cell) for cell in self._rows.pop()]
            self._say(" | ".join(cells) if any(cells) else "", "\n", LINE)

    def _paragraph(self) -> None:
        text = "".join(self._said).strip()
        self._said = []
        if self._rows:
            self._in_cell(text)
            return
        self._size = 0
        if not text:
            return
        if self._level and len(text) <= 300:
            self._number += 1
            self._done += self._outline.enter(min(self._level, 6), text, (self._number, 0))
            return
        if self._item:
            self._say(f"- {text}", "\n", PARAGRAPH / 2)
        else:
            self._say(text, "\n\n", PARAGRAPH)

    def _say(self, text: str, joint: str, strength: float) -> None:
        if not text:
            return
        if self._rows:
            self._in_cell(text)
            return
        self._number += 1
        self._size = 0
        for line in text.split("\n"):
            if line.strip():
                self._done += atoms_of(
                    " ".join(line.split()),
                    (self._number, 0),
                    strength=self._outline.seam(strength),
                    joint=joint,
                    heading=self._outline.heading,
                )
                joint, strength = "\n", LINE

    def _in_cell(self, text: str) -> None:
        cells = self._rows[-1]
        if text and cells:
            cells[-1].append(" ".join(text.split()))
