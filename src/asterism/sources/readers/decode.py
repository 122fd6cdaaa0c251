"""Decoding: bytes of any encoding as text, in bounded memory; what is not text is refused."""

from __future__ import annotations

import codecs
import io
import os
import re
import stat
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from asterism.sources.readers.piece import DocumentRefused

CHUNK = 1 << 16
LOOK = 1 << 16
"""Bytes from the start by which a file is judged."""
LONGEST_LINE = 1 << 13
"""Characters; a longer line comes in parts."""
LONGEST_WORD = 100_000
"""Characters; with a longer one without any space, a file is no text for people."""

_BOMS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
# Only names of character sets: Python also knows codecs that unpack, or that mean something else.
_CHARSET = re.compile(
    r"(?:iso-?8859-\d{1,2}|windows-\d{3,4}|cp\d{3,4}|koi8-[ru]|shift_jis|euc-(?:jp|kr)|"
    r"gb(?:k|2312|18030)|big5|macintosh|iso-2022-jp)\Z"
)
_SPACES = re.compile(r"\s")


@contextmanager
def open_regular(path: Path) -> Generator[BinaryIO, None, None]:
    """Open a regular file to read; a pipe or a device would never end."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError as error:
        raise DocumentRefused(
            path, "is not there any more; it may have been moved.", passing=True
        ) from error
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise DocumentRefused(
            path, f"cannot be opened ({why}); check its permissions.", passing=True
        ) from error
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise DocumentRefused(path, "is not a regular file; only files can be read.")
    with open(file, "rb", buffering=CHUNK) as opened:  # noqa: PTH123 - by its descriptor
        try:
            yield opened
        except OSError as error:
            why = error.strerror or error
            raise DocumentRefused(
                path, f"cannot be read ({why}); check its disk.", passing=True
            ) from error


def encoding_of(path: Path, declared: str | None = None) -> str:
    """Return the encoding of a text file, having looked at all of it; refuse what is binary."""
    with open_regular(path) as file:
        start = file.read(LOOK)
        for bom, encoding in _BOMS:
            if start.startswith(bom):
                return encoding
        if b"\0" in start:
            encoding = _wide(start)
            if encoding is None or not _decodes(file, encoding):
                raise DocumentRefused(
                    path,
                    "is binary, not text; name it by its format (such as .pdf or .docx),"
                    " or leave it out of the source.",
                )
            return encoding
        if _decodes(file, "utf-8"):
            return "utf-8"
        return _legacy(start, declared)


def _wide(start: bytes) -> str | None:
    """Return the kind of UTF-16 that the zeros speak for."""
    even, odd = start[0:4096:2], start[1:4096:2]
    zeros = even.count(0) / max(len(even), 1), odd.count(0) / max(len(odd), 1)
    if zeros[1] > 0.3 and zeros[0] < 0.05:
        return "utf-16-le"
    if zeros[0] > 0.3 and zeros[1] < 0.05:
        return "utf-16-be"
    return None


def _decodes(file: BinaryIO, encoding: str) -> bool:
    file.seek(0)
    decoder = codecs.getincrementaldecoder(encoding)()
    try:
        while chunk := file.read(1 << 20):
            decoder.decode(chunk)
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return False
    return True


def _legacy(start: bytes, declared: str | None) -> str:
    """Return the likeliest encoding of a text that is not Unicode."""
    if declared and _CHARSET.match(declared.lower()) and _is_known(declared):
        return declared
    letters = sum(byte >= 0x80 or chr(byte).isalpha() for byte in start)
    high = sum(byte >= 0x80 for byte in start)
    # Western text has some accents; where most letters are not ASCII, it is another script.
    if high * 3 > letters and (guess := _guess(start)):
        return guess
    return "cp1252"


def _guess(start: bytes) -> str | None:
    try:
        from charset_normalizer import from_bytes
    except ImportError:
        return None
    best = from_bytes(start[: 1 << 14]).best()
    return best.encoding if best is not None and best.encoding != "ascii" else None


def _is_known(encoding: str) -> bool:
    try:
        codecs.lookup(encoding)
    except LookupError:
        return False
    return True


def chunks(path: Path, encoding: str | None = None) -> Iterator[str]:
    """Yield a file's text in parts of some size, with one newline for every end of a line."""
    encoding = encoding or encoding_of(path)
    with open_regular(path) as file:
        # What was judged by its start may still hold a byte that the encoding does not know.
        text = io.TextIOWrapper(file, encoding, errors="replace", newline=None)
        try:
            while chunk := text.read(CHUNK):
                yield chunk
        finally:
            text.detach()


Line = tuple[int, int, str]
"""Its number, how far into it this part begins, and the text."""


def lines(path: Path) -> Iterator[Line]:
    """Yield a file's lines, long ones in parts that end between words."""
    number, column, carry = 1, 0, ""
    for chunk in chunks(path):
        *whole, carry = (carry + chunk).split("\n")
        for line in whole:
            if len(line) > LONGEST_LINE:
                yield (yield from _long(path, number, column, line, ends=True))
            else:
                yield number, column, line
            number, column = number + 1, 0
        if len(carry) > LONGEST_LINE:
            _, column, carry = yield from _long(path, number, column, carry, ends=False)
    if carry:
        yield number, column, carry


def _long(
    path: Path, number: int, column: int, text: str, *, ends: bool
) -> Generator[Line, None, Line]:
    """Yield parts of a long line; return the rest of it."""
    start = 0
    while len(text) - start > LONGEST_LINE:
        end = text.rfind(" ", start + 1, start + LONGEST_LINE)
        if end < 0:
            found = _SPACES.search(text, start + LONGEST_LINE)
            if found is None:
                if len(text) - start > LONGEST_WORD:
                    raise DocumentRefused(path, _no_text(number))
                if not ends:
                    break
                end = len(text)
            else:
                end = found.start()
        if end - start > LONGEST_WORD:
            raise DocumentRefused(path, _no_text(number))
        yield number, column + start, text[start:end]
        start = min(end + 1, len(text))
    return number, column + start, text[start:]


def _no_text(number: int) -> str:
    return (
        f"has a word of more than {LONGEST_WORD:,} characters in line {number}, so it is data"
        " rather than text; leave it out of the source."
    )
