"""What a person hands in: a text, a file, standard input; and their yes."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import typer

from asterism.cli.text import printable
from asterism.errors import InvalidInput
from asterism.private import MAX_BYTES, NotRegular, TooLarge, private, read_regular
from asterism.times import read_range

_MOST_DIGITS = 18
"""Of a number that stores can keep; Python itself refuses to read thousands."""


def number_of(text: str) -> int | None:
    """Return the number that digits spell; None if they are none, or one that nothing has."""
    if not text.isdecimal() or len(text) > _MOST_DIGITS:
        return None
    return int(text)


def read_since(text: str, now: datetime | None = None) -> int:
    """Return the first moment of the time that a person means, such as "last week" or a day."""
    return read_range(text, now, _read_phrase)[0]


def read_until(text: str, now: datetime | None = None) -> int:
    """Return the last moment of the time that a person means; a day is meant to its end."""
    return read_range(text, now, _read_phrase)[1]


def _read_phrase(text: str, now: int) -> tuple[int, int] | None:
    from asterism.search.dates import span_of

    return span_of(text, now)


def only_one(given: Sequence[tuple[str, object]], *, needed: bool = True) -> str | None:
    """Return which one of some options was given; raise `InvalidInput` if it is not one."""
    there = [name for name, value in given if value is not None and value is not False]
    names = [name for name, _ in given]
    if len(there) > 1:
        raise InvalidInput(
            f"{' and '.join(there)} exclude each other. Give one of them. Nothing was done."
        )
    if not there and needed:
        raise InvalidInput(
            f"Give one of {', '.join(names[:-1])} and {names[-1]}. Nothing was done."
        )
    return there[0] if there else None


def read_bytes(file: Path) -> bytes:
    """Return what is in a file; `-` is standard input."""
    try:
        if str(file) != "-":
            return read_regular(file)
        content = sys.stdin.buffer.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise TooLarge(MAX_BYTES)
    except NotRegular:
        raise InvalidInput(
            f"{file} is not a regular file. Name one, or hand its content in at standard input, "
            'as "-". Nothing was done.'
        ) from None
    except TooLarge:
        raise InvalidInput(
            f"{_named(file)} has more than {MAX_BYTES >> 20:,} MB, which is the most that is read "
            'at once. Split it; folders of documents are read with "asterism source add". '
            "Nothing was done."
        ) from None
    except OSError as error:
        raise InvalidInput(
            f"{file} cannot be read ({error.strerror}). Name a file that is there. "
            "Nothing was done."
        ) from None
    return content


def read_text(file: Path) -> str:
    """Return the text of a file; `-` is standard input."""
    content = read_bytes(file)
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InvalidInput(
            f"{_named(file)} is not UTF-8 text. Save it as UTF-8; documents such as PDF files are "
            'read with "asterism source add". Nothing was done.'
        ) from None
    if "\0" in text:
        raise InvalidInput(
            f"{_named(file)} is binary, not text. Name a text file; documents such as PDF files "
            'are read with "asterism source add". Nothing was done.'
        )
    return text


def _named(file: Path) -> str:
    return "Standard input" if str(file) == "-" else str(file)


def write_bytes(file: Path, content: bytes) -> None:
    """Write a file that is not there yet."""
    try:
        with open(file, "xb", opener=private) as out:
            out.write(content)
    except FileExistsError:
        raise InvalidInput(
            f"{file} is there already. Name another file, or move it away. Nothing was written."
        ) from None
    except OSError as error:
        raise InvalidInput(
            f"{file} cannot be written ({error.strerror}). Nothing was written."
        ) from None


def be_sure(question: str, *, yes: bool) -> None:
    """Ask for a yes; without it the command ends. `--yes` has answered before."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise InvalidInput(
            f"{question} That takes a yes, and there is no terminal to ask at. Add --yes. "
            "Nothing was done."
        )
    if not typer.confirm(printable(question), err=True):
        raise typer.Exit(1)
