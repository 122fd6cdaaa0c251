"""The program that reads one document with libraries of others: whatever breaks, breaks here.

Run as a file by `child_reader.py`, so that nothing of asterism is loaded. PDFium and calamine are
native code over bytes from anywhere, and a message can be nested to any depth; here they have
bounds of memory and time, and a crash costs one document. Each answer is JSON, with its length in
four bytes before it.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from typing import Any

_MAX_MEMORY = 1 << 30
"""Bytes of address space."""
_MAX_CPU_SECONDS = 600
_MAX_TEXT = 1_000_000
"""Characters of a page, a row or a part of a message; what is beyond them is left out."""
_BATCH = 1 << 16
"""Characters of rows that go out together."""
_REOPEN = 64
"""Pages after which a PDF is opened anew, since PDFium keeps what it has parsed."""
_WRONG_PASSWORD = 4
_MAX_MAIL_PARTS = 10_000

Answer = dict[str, Any]


class Refused(Exception):
    """The document cannot be read, for a reason that the parent knows by name."""


def main() -> int:
    """Write what the document says; stop when the parent is gone."""
    # Whatever native code prints must not get between the answers.
    out = os.dup(1)
    os.dup2(2, 1)
    _limit_resources()
    kind, path = sys.argv[1:]
    try:
        for answer in _READERS[kind](path):
            _send(out, answer)
        _send(out, {"end": True})
    except BrokenPipeError:
        return 1
    except ImportError:
        _send(out, {"refused": "missing"})
    except MemoryError:
        _send(out, {"refused": "memory"})
    except Refused as error:
        _send(out, {"refused": str(error)})
    except Exception:  # noqa: BLE001 - a document can break its reader in any way
        _send(out, {"refused": "broken"})
    return 0


def _limit_resources() -> None:
    """Let the kernel hold this process to its bounds, where it can."""
    for kind, limit in (
        (resource.RLIMIT_AS, _MAX_MEMORY),
        (resource.RLIMIT_CPU, _MAX_CPU_SECONDS),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
    ):
        with suppress(OSError, ValueError):
            resource.setrlimit(kind, (limit, limit))


def _send(out: int, answer: Answer) -> None:
    body = json.dumps(answer).encode()
    data = memoryview(len(body).to_bytes(4, "big") + body)
    while data:
        data = data[os.write(out, data) :]


# -- PDF -------------------------------------------------------------------------------------------


def _read_pdf(path: str) -> Iterator[Answer]:
    """Yield the number of pages, then the text of each."""
    pdfium: Any = import_module("pypdfium2")
    try:
        document = pdfium.PdfDocument(path)
    except pdfium.PdfiumError as error:
        wrong_password = getattr(error, "err_code", None) == _WRONG_PASSWORD
        raise Refused("password" if wrong_password else "broken") from error
    count = len(document)
    yield {"pages": count}
    for number in range(count):
        if number and number % _REOPEN == 0:
            document.close()
            document = pdfium.PdfDocument(path)
        try:
            page = document[number]
        except pdfium.PdfiumError:
            yield {"text": ""}
            continue
        text = page.get_textpage()
        # What is outside of the page nobody sees who looks at it, so it is not read either.
        yield {"text": text.get_text_bounded()[:_MAX_TEXT]}
        text.close()
        page.close()


# -- spreadsheets ----------------------------------------------------------------------------------


def _read_sheets(path: str) -> Iterator[Answer]:
    """Yield the rows of each sheet that people see, with their numbers."""
    calamine: Any = import_module("python_calamine")
    try:
        workbook = calamine.CalamineWorkbook.from_path(path)
    except calamine.PasswordError as error:
        raise Refused("password") from error
    for index, sheet in enumerate(workbook.sheets_metadata):
        visible = sheet.visible == calamine.SheetVisibleEnum.Visible
        if not visible or sheet.typ != calamine.SheetTypeEnum.WorkSheet:
            continue
        values = workbook.get_sheet_by_index(index)
        rows: list[tuple[int, list[str]]] = []
        size = 0
        for number, row in enumerate(values.iter_rows(), 1):
            cells = _cells(row)
            if not cells:
                continue
            rows.append((number, cells))
            size += sum(map(len, cells))
            if size > _BATCH:
                yield {"sheet": sheet.name, "rows": rows}
                rows, size = [], 0
        if rows:
            yield {"sheet": sheet.name, "rows": rows}


def _cells(row: list[Any]) -> list[str]:
    """Return the values of a row as text; nothing if it is empty."""
    cells: list[str] = []
    size = 0
    for value in row:
        # Spreadsheets have no whole numbers: 35 comes as 35.0.
        whole = isinstance(value, float) and value.is_integer() and abs(value) < 1e15
        text = " ".join(str(int(value) if whole else value)[: _MAX_TEXT - size].split())
        size += len(text)
        cells.append(text)
    while cells and not cells[-1]:
        cells.pop()
    return cells


# -- messages --------------------------------------------------------------------------------------


def _read_mail(path: str) -> Iterator[Answer]:
    """Yield the headers and the text of a message, and of the messages inside of it."""
    from email import message_from_binary_file, policy

    # The parser calls itself for each part inside of another; real mail has a few of them.
    sys.setrecursionlimit(400)
    with open(path, "rb") as file:  # noqa: PTH123 - pathlib would cost the start some milliseconds
        message: Any = message_from_binary_file(file, policy=policy.default)
    if not message.keys() or not any(message[name] for name in ("From", "Date", "Subject")):
        raise Refused("broken")
    waiting: list[tuple[Any, int]] = [(message, 1)]
    for _ in range(_MAX_MAIL_PARTS):
        if not waiting:
            return
        part, level = waiting.pop()
        if part.get_content_type() == "message/rfc822" and part.is_multipart():
            waiting += [(inner, level + 1) for inner in part.get_payload()]
            continue
        if part["From"] or part["Subject"]:
            yield _headers(part, level)
        inner_parts, answer = _mail_part(part)
        waiting += [(inner, level) for inner in reversed(inner_parts)]
        if answer:
            yield answer
    raise Refused("broken")


def _headers(message: Any, level: int) -> Answer:
    headers = [
        (name, " ".join(str(message[name]).split())[:1_000])
        for name in ("From", "To", "Cc", "Date")
        if message[name]
    ]
    subject = " ".join(str(message["Subject"] or "No subject").split())
    return {"subject": subject[:1_000], "level": level, "headers": headers}


def _mail_part(part: Any) -> tuple[list[Any], Answer | None]:
    """Return the parts to be read inside of a part of a message, and what it says itself."""
    name = part.get_filename()
    kind = part.get_content_type()
    if part.is_multipart():
        inner = list(part.get_payload())
        if kind != "multipart/alternative":
            return inner, None
        # The same text in several forms, of which the last is the richest.
        plain = [form for form in inner if form.get_content_type() == "text/plain"]
        return (plain or inner[-1:])[:1], None
    if name or part.get_content_disposition() == "attachment":
        return [], {"attachment": " ".join(str(name or kind).split())[:200]}
    if kind not in ("text/plain", "text/html"):
        return [], None
    try:
        text = str(part.get_content())
    except (LookupError, UnicodeError):
        # It names an encoding that nobody knows.
        text = part.get_payload(decode=True).decode(errors="replace")
    return [], {"html" if kind == "text/html" else "text": text[:_MAX_TEXT]}


_READERS = {"pdf": _read_pdf, "sheets": _read_sheets, "mail": _read_mail}


if __name__ == "__main__":
    code = main()
    # Native clean-up is of no use to a process that is over.
    os._exit(code)
