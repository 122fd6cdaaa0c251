"""The process that reads one PDF: pages of text go out, and whatever breaks, breaks here.

Run as a file by `pdf.py`, so that nothing of asterism is loaded. PDFium is native code over bytes
from anywhere and not made for threads; here it has bounds of memory and time, and a crash costs one
document. Each answer is JSON, with its length in four bytes before it.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from contextlib import suppress
from importlib import import_module
from typing import Any

MEMORY = 1 << 30
"""Bytes of address space."""
CPU_SECONDS = 600
LONGEST_PAGE = 1_000_000
"""Characters; what is beyond them on one page is left out."""
_REOPEN = 64
"""Pages after which the document is opened anew, since PDFium keeps what it has parsed."""
_WRONG_PASSWORD = 4


def main() -> int:
    """Write the number of pages and the text of each; stop when the parent is gone."""
    # Whatever native code prints must not get between the answers.
    out = os.dup(1)
    os.dup2(2, 1)
    _bound()
    try:
        pdfium: Any = import_module("pypdfium2")
    except ImportError:
        _tell(out, {"refused": "missing"})
        return 1
    try:
        _pages(out, pdfium, sys.argv[1])
    except pdfium.PdfiumError as error:
        code = getattr(error, "err_code", None)
        _tell(out, {"refused": "password" if code == _WRONG_PASSWORD else "broken"})
    except MemoryError:
        _tell(out, {"refused": "memory"})
    except BrokenPipeError:
        return 1
    except Exception:  # noqa: BLE001 - a document can break its reader in any way
        _tell(out, {"refused": "broken"})
    return 0


def _pages(out: int, pdfium: Any, path: str) -> None:
    document = pdfium.PdfDocument(path)
    count = len(document)
    _tell(out, {"pages": count})
    for number in range(count):
        if number and number % _REOPEN == 0:
            document.close()
            document = pdfium.PdfDocument(path)
        try:
            page = document[number]
        except pdfium.PdfiumError:
            _tell(out, {"broken": number + 1})
            continue
        text = page.get_textpage()
        # What is outside of the page nobody who looks at it sees, so nobody should be told it.
        _tell(out, {"text": text.get_text_bounded()[:LONGEST_PAGE]})
        text.close()
        page.close()
    _tell(out, {"end": True})


def _bound() -> None:
    """Let the kernel hold this process to its bounds, where it can."""
    for kind, most in (
        (resource.RLIMIT_AS, MEMORY),
        (resource.RLIMIT_CPU, CPU_SECONDS),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
    ):
        with suppress(OSError, ValueError):
            resource.setrlimit(kind, (most, most))


def _tell(out: int, told: dict[str, Any]) -> None:
    body = json.dumps(told).encode()
    data = memoryview(len(body).to_bytes(4, "big") + body)
    while data:
        data = data[os.write(out, data) :]


if __name__ == "__main__":
    code = main()
    # Native clean-up is of no use to a process that is over.
    os._exit(code)
