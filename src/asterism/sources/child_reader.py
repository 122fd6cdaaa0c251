"""PDF files, spreadsheets and mail: read by libraries in a process of its own, with bounds."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import subprocess
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from time import monotonic
from typing import Any

from asterism.records import dataclass
from asterism.sources.html import HtmlText
from asterism.sources.pieces import (
    LINE,
    MUST,
    PARAGRAPH,
    Atom,
    DocumentPiece,
    DocumentRefused,
    Outline,
    atoms_of,
    cut,
    open_regular,
    place_by_heading,
    place_by_number,
)
from asterism.sources.plain import row_atoms

CHILD = Path(__file__).with_name("child.py")
PATIENCE = 30.0
"""Seconds for one answer."""
_MAX_ANSWER = 1 << 24
_MAX_PAGES = 20_000


@dataclass(frozen=True, slots=True)
class _Kind:
    name: str
    """What the child calls it."""
    title: str
    library: str
    """What is imported; empty for the standard library."""
    repair: str


_PDF = _Kind("pdf", "a PDF", "pypdfium2", "print it to a new PDF")
_SHEETS = _Kind("sheets", "a spreadsheet", "python_calamine", "save it as a new .xlsx file")
_MAIL = _Kind("mail", "a mail message", "", "save it anew as .eml")


def read_pdf(path: Path) -> Iterator[DocumentPiece]:
    """Yield the pieces of a PDF, by page."""
    has_text = False
    for piece in cut(_pdf_atoms(path), place_by_number("page", "pages")):
        has_text = True
        yield piece
    if not has_text:
        raise DocumentRefused(
            path,
            "holds no text; if its pages are scanned, have text recognised first (such as with"
            " ocrmypdf).",
        )


def read_sheets(path: Path) -> Iterator[DocumentPiece]:
    """Yield the pieces of a spreadsheet: rows, with sheet and header in front of every piece."""
    return cut(_sheet_atoms(path), place_by_number("row", "rows"))


def read_mail(path: Path) -> Iterator[DocumentPiece]:
    """Yield the pieces of a message under its subject, and of those that are forwarded in it."""
    return cut(_mail_atoms(path), place_by_heading("paragraph", "paragraphs"))


# -- PDF -------------------------------------------------------------------------------------------

# PDFium marks a word that was hyphenated at the end of a line with one of these.
_HYPHEN = re.compile("[\x02\ufffe\u00ad]\r?\n?")


def _pdf_atoms(path: Path) -> Iterator[Atom]:
    with _answers(path, _PDF) as answers:
        count = next(answers)["pages"]
        if count > _MAX_PAGES:
            raise DocumentRefused(
                path, f"has {count:,} pages, more than {_MAX_PAGES:,}; split it and try again."
            )
        for number, answer in enumerate(answers, 1):
            yield from _page_atoms(number, answer["text"])


def _page_atoms(number: int, text: str) -> Iterator[Atom]:
    lines = [" ".join(line.split()) for line in _HYPHEN.sub("", text).splitlines()]
    widest = sorted(map(len, lines))[-(len(lines) // 10 + 1)] if lines else 0
    strength, separator = PARAGRAPH, "\n\n"
    for line in lines:
        if not line:
            strength, separator = PARAGRAPH, "\n\n"
            continue
        yield from atoms_of(line, (number, 0), strength=strength, separator=separator)
        # A page has no paragraphs, only lines: one that ends early and with a full stop ends
        # a paragraph.
        ends = len(line) < 0.85 * widest and line.endswith((".", "!", "?", ":"))
        strength, separator = (PARAGRAPH, "\n\n") if ends else (LINE, "\n")


# -- spreadsheets ----------------------------------------------------------------------------------


def _sheet_atoms(path: Path) -> Iterator[Atom]:
    sheet = ""
    header: list[str] = []
    alone = False
    """Whether the sheet has nothing but its header so far."""
    header_number = 0
    with _answers(path, _SHEETS) as answers:
        for answer in answers:
            for number, cells in answer["rows"]:
                if answer["sheet"] != sheet:
                    yield from _only_header(sheet, header, header_number, alone=alone)
                    sheet, header, header_number, alone = answer["sheet"], cells, number, True
                    continue
                for atom in row_atoms(header, cells, number, sheet=sheet[:100]):
                    if alone:
                        atom.strength, alone = MUST, False
                    yield atom
        yield from _only_header(sheet, header, header_number, alone=alone)


def _only_header(sheet: str, header: list[str], number: int, *, alone: bool) -> Iterator[Atom]:
    """Yield the first row of a sheet that has no other."""
    if alone:
        yield from atoms_of(
            " | ".join(header),
            (number, 0),
            strength=MUST,
            separator="\n",
            heading=sheet[:100],
            label=sheet[:100],
        )


# -- mail ------------------------------------------------------------------------------------------


def _mail_atoms(path: Path) -> Iterator[Atom]:
    outline = Outline()
    number, level = 1, 1
    with _answers(path, _MAIL) as answers:
        for answer in answers:
            if "subject" in answer:
                level = min(answer["level"], 5)
                yield from outline.enter(level, answer["subject"], (number, 0))
                lines = [f"{name}: {value}" for name, value in answer["headers"]]
            elif "html" in answer:
                page = HtmlText(path, outline, level=level, number=number)
                yield from page.atoms(iter([answer["html"]]))
                number = page.number
                continue
            elif "attachment" in answer:
                lines = [f"Attachment: {answer['attachment']}"]
            else:
                lines = answer["text"].splitlines()
            strength, separator = PARAGRAPH, "\n\n"
            for line in lines:
                if line.strip():
                    yield from outline.atoms(
                        line.rstrip(), (number, 0), strength=strength, separator=separator
                    )
                    strength, separator = LINE, "\n"
                elif separator == "\n":
                    strength, separator = PARAGRAPH, "\n\n"
                    number += 1
            number += 1
        yield from outline.end((number, 0))


# -- the child -------------------------------------------------------------------------------------


@contextmanager
def _answers(path: Path, kind: _Kind) -> Generator[Iterator[dict[str, Any]], None, None]:
    """Start the child; it ends with the block, however far it is."""
    with open_regular(path) as file:
        if not file.read(1):
            raise DocumentRefused(path, "is empty.")
    if kind.library and find_spec(kind.library) is None:
        raise _refusal(path, kind, "missing")
    process = subprocess.Popen(  # noqa: S603 - our own program, on a file that was named to us
        [sys.executable, "-P", str(CHILD), kind.name, str(path.absolute())],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        # Ctrl-C in the terminal is for the parent, which then ends the child.
        start_new_session=True,
    )
    try:
        yield _received(path, kind, process)
    finally:
        process.kill()
        assert process.stdout is not None
        process.stdout.close()
        process.wait()


def _refusal(path: Path, kind: _Kind, reason: str) -> DocumentRefused:
    sentences = {
        "missing": "needs a library that is not installed: pip install 'asterism[documents]'.",
        "password": "is protected by a password; save it without one and try again.",
        "broken": f"is not {kind.title} that can be read; it is damaged, or of another format than"
        " its name.",
        "memory": "needs too much memory to be read; split it and try again.",
    }
    return DocumentRefused(path, sentences[reason], temporary=reason == "missing")


def _received(
    path: Path, kind: _Kind, process: subprocess.Popen[bytes]
) -> Iterator[dict[str, Any]]:
    """Yield what the child sends; raise once it refuses, breaks or takes too long."""
    count = 0
    while True:
        deadline = monotonic() + PATIENCE
        try:
            length = int.from_bytes(_receive(process, 4, deadline), "big")
            if length > _MAX_ANSWER:
                raise _refusal(path, kind, "broken")
            answer: dict[str, Any] = json.loads(_receive(process, length, deadline))
        except TimeoutError:
            part = f"part {count}" if count else "its first part"
            raise DocumentRefused(
                path,
                f"takes more than {PATIENCE:.0f} seconds to read {part}; {kind.repair} and try"
                " again.",
            ) from None
        except EOFError:
            # Native code that gets no memory ends its process.
            aborted = process.wait() == -signal.SIGABRT
            raise _refusal(path, kind, "memory" if aborted else "broken") from None
        if "refused" in answer:
            raise _refusal(path, kind, answer["refused"])
        if "end" in answer:
            return
        yield answer
        count += 1


def _receive(process: subprocess.Popen[bytes], count: int, deadline: float) -> bytes:
    assert process.stdout is not None
    stream = process.stdout.fileno()
    received = bytearray()
    while len(received) < count:
        ready, _, _ = select.select([stream], [], [], max(deadline - monotonic(), 0))
        if not ready:
            raise TimeoutError
        chunk = os.read(stream, count - len(received))
        if not chunk:
            raise EOFError
        received += chunk
    return bytes(received)
