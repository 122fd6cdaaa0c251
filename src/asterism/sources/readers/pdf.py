"""PDF: pages and paragraphs, read by PDFium in a process of its own."""

from __future__ import annotations

import json
import os
import re
import select
import subprocess
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from time import monotonic
from typing import Any

from asterism.sources.readers.cut import LINE, PARAGRAPH, Atom, atoms_of, counted, pieces
from asterism.sources.readers.decode import open_regular
from asterism.sources.readers.piece import DocumentRefused, Piece

CHILD = Path(__file__).with_name("pdf_child.py")
PATIENCE = 30.0
"""Seconds for one page."""
MOST_PAGES = 20_000
_LONGEST_ANSWER = 1 << 24

_WHY = {
    "missing": "needs a library that is not installed: pip install 'asterism[documents]'.",
    "password": "is protected by a password; save it without one and try again.",
    "broken": "is not a PDF that can be read; it is damaged, or of another format than its name.",
    "memory": "needs too much memory to be read; split it and try again.",
}
# PDFium marks a word that was hyphenated at the end of a line with one of these.
_HYPHEN = re.compile("[\x02\ufffe\u00ad]\r?\n?")


def read(path: Path) -> Iterator[Piece]:
    """Yield the pieces of a PDF."""
    with open_regular(path) as file:
        if not file.read(1):
            raise DocumentRefused(path, "is empty.")
    if find_spec("pypdfium2") is None:
        raise DocumentRefused(path, _WHY["missing"], passing=True)
    found = False
    for piece in pieces(_atoms(path), counted("page", "pages")):
        found = True
        yield piece
    if not found:
        raise DocumentRefused(
            path,
            "holds no text; if its pages are scanned, have text recognised first (such as with"
            " ocrmypdf).",
        )


def _atoms(path: Path) -> Iterator[Atom]:
    for number, text in _pages(path):
        lines = [" ".join(line.split()) for line in _HYPHEN.sub("", text).splitlines()]
        widest = sorted(map(len, lines))[-(len(lines) // 10 + 1)] if lines else 0
        strength, joint = PARAGRAPH, "\n\n"
        for line in lines:
            if not line:
                strength, joint = PARAGRAPH, "\n\n"
                continue
            yield from atoms_of(line, (number, 0), strength=strength, joint=joint)
            # A page has no paragraphs, only lines: one that ends early and with a full stop ends
            # a paragraph.
            over = len(line) < 0.85 * widest and line.endswith((".", "!", "?", ":"))
            strength, joint = (PARAGRAPH, "\n\n") if over else (LINE, "\n")


def _pages(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the number and the text of each page."""
    with _child(path) as answers:
        count = next(answers)["pages"]
        if count > MOST_PAGES:
            raise DocumentRefused(
                path, f"has {count:,} pages, more than {MOST_PAGES:,}; split it and try again."
            )
        for number, answer in enumerate(answers, 1):
            yield number, answer.get("text", "")


@contextmanager
def _child(path: Path) -> Generator[Iterator[dict[str, Any]], None, None]:
    process = subprocess.Popen(  # noqa: S603 - our own program, on a file that was named to us
        [sys.executable, "-P", str(CHILD), str(path.absolute())],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        # Ctrl-C in the terminal is for the parent, which then ends the child.
        start_new_session=True,
    )
    try:
        assert process.stdout is not None
        yield _answers(path, process.stdout.fileno())
    finally:
        process.kill()
        assert process.stdout is not None
        process.stdout.close()
        process.wait()


def _answers(path: Path, stream: int) -> Iterator[dict[str, Any]]:
    """Yield what the child says; raise once it refuses, breaks or takes too long."""
    page = 0
    while True:
        deadline = monotonic() + PATIENCE
        length = int.from_bytes(_exactly(path, stream, 4, deadline, page), "big")
        if length > _LONGEST_ANSWER:
            raise DocumentRefused(path, _WHY["broken"])
        answer: dict[str, Any] = json.loads(_exactly(path, stream, length, deadline, page))
        if "refused" in answer:
            why = answer["refused"]
            raise DocumentRefused(path, _WHY[why], passing=why == "missing")
        if "end" in answer:
            return
        yield answer
        page += 1


def _exactly(path: Path, stream: int, count: int, deadline: float, page: int) -> bytes:
    got = bytearray()
    while len(got) < count:
        ready, _, _ = select.select([stream], [], [], max(deadline - monotonic(), 0))
        if not ready:
            raise DocumentRefused(
                path,
                f"takes more than {PATIENCE:.0f} seconds to read"
                f" {f'page {page}' if page else 'its first page'}; print it to a new PDF and try"
                " again.",
            )
        chunk = os.read(stream, count - len(got))
        if not chunk:
            raise DocumentRefused(path, _WHY["broken"])
        got += chunk
    return bytes(got)
