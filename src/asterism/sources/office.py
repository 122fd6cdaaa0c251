"""Word documents, PowerPoint presentations and EPUB books: XML in a ZIP file, read as a stream.

Nothing is unpacked but the text, and no more of it than one paragraph or slide is in memory, so
that pictures and films inside of a document cost nothing.
"""

from __future__ import annotations

import codecs
import lzma
import posixpath
import re
import zipfile
import zlib
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import field
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import unquote
from xml.parsers import expat

from asterism.records import dataclass
from asterism.sources.html import HtmlText
from asterism.sources.pieces import (
    LINE,
    PARAGRAPH,
    Atom,
    DocumentPiece,
    DocumentRefused,
    Outline,
    cut,
    encoding_by_mark,
    open_regular,
    place_by_heading,
)

_MAX_UNPACKED = 1 << 28
"""Bytes that the text of a document may unpack to; a book of 1,000 pages has about 10 MB."""
_MAX_SMALL_PART = 1 << 23
"""Bytes of a list of styles, relationships or chapters."""
_MAX_SLIDE = 1 << 24
_MAX_FILES = 20_000
_MAX_TOKEN = 1 << 22
_MAX_DEPTH = 1_000
_MAX_PARAGRAPH = 1_000_000
"""Characters and cells of a paragraph, or of a row of a table."""
_CHUNK = 1 << 16
_OLE = b"\xd0\xcf\x11\xe0"
"""How files of Office begin that are encrypted, or from before 2007."""

_UNPACKING_ERRORS = (
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


@dataclass(frozen=True, slots=True)
class _Format:
    suffix: str
    name: str
    program: str


_WORD = _Format(".docx", "a Word document", "Word")
_POWERPOINT = _Format(".pptx", "a PowerPoint presentation", "PowerPoint")
_EPUB = _Format(".epub", "an EPUB book", "the program that made it")


def read_docx(path: Path) -> Iterator[DocumentPiece]:
    """Yield the pieces of a Word document: headings, paragraphs, lists, tables, then notes."""
    return cut(_docx_atoms(path), place_by_heading("paragraph", "paragraphs"))


def read_pptx(path: Path) -> Iterator[DocumentPiece]:
    """Yield the pieces of a presentation: the title, text, tables and notes of each slide."""
    return cut(_pptx_atoms(path), place_by_heading("slide", "slides"))


def read_epub(path: Path) -> Iterator[DocumentPiece]:
    """Yield the pieces of a book, chapter by chapter."""
    return cut(_epub_atoms(path), place_by_heading("paragraph", "paragraphs"))


# -- the ZIP file and the XML in it ----------------------------------------------------------------


class _Handler(Protocol):
    """Takes in the elements and the text of an XML file; names are without their namespace."""

    def start(self, name: str, attributes: dict[str, str]) -> None: ...
    def end(self, name: str) -> None: ...
    def text(self, text: str) -> None: ...


class _Archive:
    """The files inside of a document, unpacked within limits."""

    def __init__(self, path: Path, form: _Format, archive: zipfile.ZipFile) -> None:
        self.path = path
        self._format = form
        self._archive = archive
        self.names = set(archive.namelist())
        self._unpacked = 0
        if len(self.names) > _MAX_FILES:
            raise self.wrong_format()

    def wrong_format(self) -> DocumentRefused:
        """Return the error for an archive of something else."""
        form = self._format
        return DocumentRefused(
            self.path,
            f"is not {form.name}; it holds no text of the form that {form.program} writes.",
        )

    def chunks(self, name: str, max_bytes: int = _MAX_UNPACKED) -> Iterator[bytes]:
        """Yield the bytes of a file inside."""
        count = 0
        with self._archive.open(name) as file:
            while chunk := file.read(_CHUNK):
                count += len(chunk)
                self._unpacked += len(chunk)
                limit = max_bytes if count > max_bytes else _MAX_UNPACKED
                if max(count, self._unpacked) > limit:
                    raise DocumentRefused(
                        self.path, f"unpacks to more than {limit >> 20} MB of text; split it."
                    )
                yield chunk

    def parse(self, name: str, handler: _Handler, max_bytes: int = _MAX_UNPACKED) -> Iterator[None]:
        """Read an XML file inside step by step; pause after each."""
        parser = self._parser(handler)
        fed = 0
        try:
            for chunk in self.chunks(name, max_bytes):
                parser.Parse(chunk, False)  # noqa: FBT003 - by position only
                fed += len(chunk)
                # Expat before 2.6 looks at an unfinished token again and again (CVE-2023-52425).
                if fed - max(parser.CurrentByteIndex, 0) > _MAX_TOKEN:
                    raise DocumentRefused(self.path, "holds XML without end; save it anew.")
                yield
            parser.Parse(b"", True)  # noqa: FBT003
            yield
        except expat.ExpatError as error:
            raise DocumentRefused(
                self.path,
                f"holds broken XML ({error}); open it in {self._format.program} and save it anew.",
            ) from error

    def _parser(self, handler: _Handler) -> Any:
        parser: Any = expat.ParserCreate(namespace_separator=" ")
        parser.buffer_text = True
        parser.SetParamEntityParsing(expat.XML_PARAM_ENTITY_PARSING_NEVER)
        depth = 0

        def start(tag: str, attributes: dict[str, str]) -> None:
            nonlocal depth
            depth += 1
            if depth > _MAX_DEPTH:
                raise DocumentRefused(
                    self.path, f"is nested more than {_MAX_DEPTH} deep; save it anew."
                )
            handler.start(tag.rpartition(" ")[2], attributes)

        def end(tag: str) -> None:
            nonlocal depth
            depth -= 1
            handler.end(tag.rpartition(" ")[2])

        def doctype(_name: str, _system: str, _public: str, has_declarations: int) -> None:
            # Entities that unfold without end have to be declared inside of the file.
            if has_declarations:
                raise DocumentRefused(
                    self.path, f"declares XML entities, which {self._format.name} does not need."
                )

        parser.StartElementHandler = start
        parser.EndElementHandler = end
        parser.CharacterDataHandler = handler.text
        parser.StartDoctypeDeclHandler = doctype
        return parser

    def elements(self, name: str) -> Iterator[tuple[str, dict[str, str]]]:
        """Yield the elements of a small XML file; none if it is not there."""
        if name in self.names:
            handler = _Elements()
            for _ in self.parse(name, handler, _MAX_SMALL_PART):
                yield from handler.found
                handler.found.clear()

    def related(self, name: str) -> list[tuple[str, str, str]]:
        """Return id, kind and file of what a file of an Office document refers to."""
        folder, _, base = name.rpartition("/")
        parts: list[tuple[str, str, str]] = []
        for element, attributes in self.elements(posixpath.join(folder, "_rels", f"{base}.rels")):
            if element == "Relationship" and attributes.get("TargetMode") != "External":
                kind = attributes.get("Type", "").rpartition("/")[2]
                target = _resolve(name, attributes.get("Target", ""))
                if target in self.names:
                    parts.append((attributes.get("Id", ""), kind, target))
        return parts

    def main_part(self, default: str) -> str:
        """Return the file that an Office document begins with."""
        for _, kind, target in self.related(""):
            if kind == "officeDocument":
                return target
        if default not in self.names:
            raise self.wrong_format()
        return default


class _Elements:
    """A handler that lists elements."""

    def __init__(self) -> None:
        self.found: list[tuple[str, dict[str, str]]] = []

    def start(self, name: str, attributes: dict[str, str]) -> None:
        self.found.append((name, attributes))

    def end(self, name: str) -> None: ...

    def text(self, text: str) -> None: ...


def _resolve(base: str, target: str) -> str:
    """Return the name inside of the archive that a reference in a file means."""
    if target.startswith("/"):
        return posixpath.normpath(target[1:])
    return posixpath.normpath(posixpath.join(posixpath.dirname(base), target))


def _in_namespace(attributes: dict[str, str], name: str) -> str:
    """Return an attribute that has a namespace, as those of Word have."""
    ending = f" {name}"
    return next((value for key, value in attributes.items() if key.endswith(ending)), "")


@contextmanager
def _opened(path: Path, form: _Format) -> Generator[_Archive, None, None]:
    with open_regular(path) as file:
        if file.read(4) == _OLE:
            raise DocumentRefused(
                path,
                "is protected by a password or of an older format; save it as plain"
                f" {form.suffix}.",
            )
        file.seek(0)
        try:
            with zipfile.ZipFile(file) as archive:
                yield _Archive(path, form, archive)
        except _UNPACKING_ERRORS as error:
            raise DocumentRefused(
                path,
                f"is not {form.name} that can be read; open it in {form.program} and save it anew.",
            ) from error


# -- Word and PowerPoint ---------------------------------------------------------------------------

_HEADING_STYLE = re.compile(r"heading (\d)\Z", re.IGNORECASE)
_SLIDE_FURNITURE = frozenset({"dt", "ftr", "hdr", "sldImg", "sldNum"})
"""Placeholders for dates, footers and numbers, which are the same on every slide."""
_BREAKS = {"tab": " ", "br": "\n", "cr": "\n"}


@dataclass(slots=True)
class _Block:
    """A paragraph, an item of a list or a row of a table."""

    kind: str
    text: str
    level: int = 0
    """How deep a heading is; 0: it is not one."""


@dataclass(slots=True)
class _Paragraph:
    """A paragraph that is open; one in a text box is inside of another."""

    runs: list[str] = field(default_factory=list[str])
    level: int = 0
    item: bool = False


class _OfficeText:
    """A handler that gathers the blocks of a Word document or a slide: both use the same names."""

    def __init__(self, path: Path, levels: dict[str, int]) -> None:
        self.blocks: list[_Block] = []
        self._path = path
        self._levels = levels
        """The levels of styles that are headings, by their ids."""
        self._paragraphs: list[_Paragraph] = []
        self._rows: list[list[list[str]]] = []
        """The cells of the rows that are open; a row of a table in a cell is inside of another."""
        self._in_text = False
        self._fallbacks = 0
        """How many elements are open that repeat in an older form what was read before."""
        self._placeholder = ""
        self._size = 0
        """Characters of the paragraph, or of the outermost row, that is open."""

    def start(self, name: str, attributes: dict[str, str]) -> None:
        """Take in what opens."""
        if name == "Fallback":
            self._fallbacks += 1
        if self._fallbacks:
            return
        match name:
            case "p":
                is_title = self._placeholder in ("title", "ctrTitle")
                self._paragraphs.append(_Paragraph(level=int(is_title)))
            case "tr":
                self._rows.append([])
            case "tc" if self._rows:
                self._grow(1)
                self._rows[-1].append([])
            case "sp":
                self._placeholder = ""
            case "ph":
                self._placeholder = attributes.get("type", "")
            case _ if self._paragraphs:
                self._in_paragraph(self._paragraphs[-1], name, attributes)
            case _:
                pass

    def _in_paragraph(self, paragraph: _Paragraph, name: str, attributes: dict[str, str]) -> None:
        match name:
            case "t":
                self._in_text = True
            case "pStyle":
                style = _in_namespace(attributes, "val")
                paragraph.level = self._levels.get(style, 0)
            case "outlineLvl":
                level = _in_namespace(attributes, "val")
                if level.isdecimal() and int(level) < 6:
                    paragraph.level = int(level) + 1
            case "numPr":
                paragraph.item = True
            case _ if name in _BREAKS:
                self._append(_BREAKS[name])
            case _:
                pass

    def text(self, text: str) -> None:
        """Take in text."""
        if self._in_text and not self._fallbacks:
            self._append(text)

    def _append(self, text: str) -> None:
        self._grow(len(text))
        self._paragraphs[-1].runs.append(text)

    def _grow(self, count: int) -> None:
        """Count what is in memory until the paragraph or the row ends; empty cells, too."""
        self._size += count
        if self._size > _MAX_PARAGRAPH:
            raise DocumentRefused(
                self._path,
                f"has more than {_MAX_PARAGRAPH:,} characters in one paragraph or row; split it.",
            )

    def end(self, name: str) -> None:
        """Take in what closes."""
        if self._fallbacks:
            self._fallbacks -= name == "Fallback"
            return
        match name:
            case "t":
                self._in_text = False
            case "p":
                self._end_paragraph(self._paragraphs.pop())
            case "tr":
                cells = [" ".join(cell) for cell in self._rows.pop()]
                self._add(_Block("row", " | ".join(cells) if any(cells) else ""))
            case "sp":
                self._placeholder = ""
            case _:
                pass

    def _end_paragraph(self, paragraph: _Paragraph) -> None:
        text = "".join(paragraph.runs).strip()
        level = paragraph.level if len(text) <= 300 else 0
        kind = "item" if paragraph.item else "paragraph"
        self._add(_Block(kind, text, min(level, 6)))

    def _add(self, block: _Block) -> None:
        if self._rows:
            if block.text and self._rows[-1]:
                self._rows[-1][-1].append(" ".join(block.text.split()))
            return
        self._size = 0
        if block.text and self._placeholder not in _SLIDE_FURNITURE:
            self.blocks.append(block)


def _block_atoms(
    outline: Outline, block: _Block, number: int, *, separator: str, strength: float
) -> Iterator[Atom]:
    """Yield a block line by line."""
    prefix = "- " if block.kind == "item" else ""
    for raw_line in block.text.split("\n"):
        if line := " ".join(raw_line.split()):
            yield from outline.atoms(
                prefix + line, (number, 0), strength=strength, separator=separator
            )
            prefix, separator, strength = "", "\n", LINE


_DOCX_SEAMS = {"paragraph": ("\n\n", PARAGRAPH), "item": ("\n", PARAGRAPH / 2), "row": ("\n", LINE)}


def _docx_atoms(path: Path) -> Iterator[Atom]:
    with _opened(path, _WORD) as archive:
        main = archive.main_part("word/document.xml")
        parts = {kind: target for _, kind, target in archive.related(main)}
        for kind in ("styles", "footnotes", "endnotes"):
            if (name := f"word/{kind}.xml") in archive.names:
                parts.setdefault(kind, name)
        levels = _heading_styles(archive, parts.get("styles", ""))
        outline, number = Outline(), 0
        for title in ("", "footnotes", "endnotes"):
            name = parts.get(title, "") if title else main
            if not name:
                continue
            yield from outline.enter(1, title.capitalize(), (number, 0))
            handler = _OfficeText(path, levels)
            for _ in archive.parse(name, handler):
                for block in handler.blocks:
                    number += 1
                    if block.level:
                        yield from outline.enter(block.level, block.text, (number, 0))
                    else:
                        separator, strength = _DOCX_SEAMS[block.kind]
                        yield from _block_atoms(
                            outline, block, number, separator=separator, strength=strength
                        )
                handler.blocks.clear()
        yield from outline.end((number, 0))


def _heading_styles(archive: _Archive, name: str) -> dict[str, int]:
    """Return which styles are headings, and how deep; ids depend on the author's language."""
    levels: dict[str, int] = {}
    style = ""
    for element, attributes in archive.elements(name):
        if element == "style":
            style = _in_namespace(attributes, "styleId")
        elif element == "name" and style:
            title = _in_namespace(attributes, "val")
            if match := _HEADING_STYLE.match(title):
                levels[style] = int(match[1])
            elif title.lower() == "title":
                levels[style] = 1
    return levels


def _pptx_atoms(path: Path) -> Iterator[Atom]:
    with _opened(path, _POWERPOINT) as archive:
        main = archive.main_part("ppt/presentation.xml")
        targets = {identity: target for identity, _, target in archive.related(main)}
        listed = [
            targets.get(_in_namespace(attributes, "id"), "")
            for element, attributes in archive.elements(main)
            if element == "sldId"
        ]
        outline = Outline()
        slides = [name for name in dict.fromkeys(listed) if name]
        for number, name in enumerate(slides, 1):
            yield from _slide_atoms(archive, name, number, outline)
        yield from outline.end((len(slides), 0))


def _slide_atoms(archive: _Archive, name: str, number: int, outline: Outline) -> Iterator[Atom]:
    blocks = _slide_blocks(archive, name)
    title = " ".join(block.text for block in blocks if block.level)
    body = [block for block in blocks if not block.level]
    notes = [
        block
        for _, kind, target in archive.related(name)
        if kind == "notesSlide"
        for block in _slide_blocks(archive, target)
    ]
    if notes:
        notes[0].text = f"Notes: {notes[0].text}"
    if title or body or notes:
        yield from outline.enter(1, title or f"Slide {number}", (number, 0))
    for group in (body, notes):
        separator, strength = "\n\n", PARAGRAPH
        for block in group:
            yield from _block_atoms(outline, block, number, separator=separator, strength=strength)
            separator, strength = "\n", LINE if block.kind == "row" else PARAGRAPH / 2


def _slide_blocks(archive: _Archive, name: str) -> list[_Block]:
    handler = _OfficeText(archive.path, {})
    for _ in archive.parse(name, handler, _MAX_SLIDE):
        pass
    return handler.blocks


# -- EPUB ------------------------------------------------------------------------------------------


def _epub_atoms(path: Path) -> Iterator[Atom]:
    with _opened(path, _EPUB) as archive:
        chapters = _chapters(archive)
        encrypted = {
            unquote(attributes.get("URI", ""))
            for element, attributes in archive.elements("META-INF/encryption.xml")
            if element == "CipherReference"
        }
        if encrypted.intersection(chapters):
            raise DocumentRefused(
                path, "is protected against copying; only books without protection can be read."
            )
        text = HtmlText(path)
        for name in chapters:
            yield from text.atoms(_decoded(archive.chunks(name)), xml=True)
        yield from text.end()


def _chapters(archive: _Archive) -> list[str]:
    """Return the files of a book in the order in which they are read."""
    package = next(
        (
            unquote(attributes.get("full-path", ""))
            for element, attributes in archive.elements("META-INF/container.xml")
            if element == "rootfile"
        ),
        "",
    )
    files: dict[str, str] = {}
    chapters: dict[str, None] = {}
    for element, attributes in archive.elements(package):
        if element == "item" and "html" in attributes.get("media-type", ""):
            href = unquote(attributes.get("href", "").partition("#")[0])
            files[attributes.get("id", "")] = _resolve(package, href)
        elif element == "itemref" and attributes.get("idref") in files:
            chapters[files[attributes["idref"]]] = None
    present = [name for name in chapters if name in archive.names]
    if not present:
        raise archive.wrong_format()
    return present


def _decoded(chunks: Iterator[bytes]) -> Iterator[str]:
    """Decode a chapter, which is UTF-8 unless a mark at its start says otherwise."""
    decoder: codecs.IncrementalDecoder | None = None
    for chunk in chunks:
        if decoder is None:
            make: Callable[..., codecs.IncrementalDecoder] = codecs.getincrementaldecoder(
                encoding_by_mark(chunk) or "utf-8"
            )
            decoder = make(errors="replace")
        if text := decoder.decode(chunk):
            yield text
