"""Pieces of a document: its bytes opened and decoded in bounded memory, its text cut at seams."""

from __future__ import annotations

import codecs
import io
import os
import re
import stat
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from asterism.errors import InvalidInput
from asterism.records import dataclass

# -- what readers return and raise -----------------------------------------------------------------

# Neither store accepts NUL or half of a surrogate pair, and no reader wants the other controls.
_UNWANTED = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff\ufffe\uffff]")


@dataclass(frozen=True, slots=True)
class DocumentPiece:
    """A future passage: some text of a document, and where in it."""

    text: str
    place: str
    """`page 12`, `lines 40-58`, `# Heading > ## Sub`, `rows 1-40`, `$.items[3]` …"""


class DocumentRefused(InvalidInput):
    """A document that cannot be read; nothing of it is stored, and the others go on."""

    def __init__(self, path: Path, problem: str, *, temporary: bool = False) -> None:
        """Say what is wrong.

        Args:
            path: The file; its name begins the message.
            problem: The rest of the sentence.
            temporary: Whether the same file may be readable later.
        """
        # A name may be made of any bytes.
        name = path.name.encode(errors="replace").decode()
        super().__init__(f"{name!r} {problem} Nothing of it was stored.")
        self.path = path
        self.temporary = temporary


def _clean(text: str) -> str:
    return _UNWANTED.sub(" ", text)


# -- opening and decoding --------------------------------------------------------------------------

_CHUNK = 1 << 16
_SAMPLE = 1 << 16
"""Bytes from the start by which a file is judged."""
_MAX_LINE = 1 << 13
"""Characters; a longer line comes in parts."""
MAX_WORD = 100_000
"""Characters; with a longer one without any space, a file is not text for people."""

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
_SPACE = re.compile(r"\s")


@contextmanager
def open_regular(path: Path) -> Generator[BinaryIO, None, None]:
    """Open a regular file to read; a pipe or a device would never end."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError as error:
        raise DocumentRefused(
            path, "is not there any more; it may have been moved.", temporary=True
        ) from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise DocumentRefused(
            path, f"cannot be opened ({reason}); check its permissions.", temporary=True
        ) from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise DocumentRefused(path, "is not a regular file; only files can be read.")
    with open(descriptor, "rb", buffering=_CHUNK) as file:  # noqa: PTH123 - by its descriptor
        try:
            yield file
        except OSError as error:
            reason = error.strerror or error
            raise DocumentRefused(
                path, f"cannot be read ({reason}); check its disk.", temporary=True
            ) from error


def detect_encoding(path: Path, declared: str | None = None) -> str:
    """Return the encoding of a text file after a look at all of it; refuse what is binary."""
    with open_regular(path) as file:
        start = file.read(_SAMPLE)
        if encoding := encoding_by_mark(start):
            return encoding
        if b"\0" in start:
            encoding = _utf16_by_zeros(start)
            if encoding is None or not _decodes(file, encoding):
                raise DocumentRefused(
                    path,
                    "is binary, not text; name it by its format (such as .pdf or .docx),"
                    " or leave it out of the source.",
                )
            return encoding
        if _decodes(file, "utf-8"):
            return "utf-8"
        return _legacy_encoding(start, declared)


def is_unicode(file: BinaryIO) -> bool:
    """Tell whether a file is text by a byte order mark, or in UTF-8 or UTF-16 throughout."""
    file.seek(0)
    start = file.read(_SAMPLE)
    if encoding_by_mark(start):
        return True
    encoding = _utf16_by_zeros(start) if b"\0" in start else "utf-8"
    return encoding is not None and _decodes(file, encoding)


def encoding_by_mark(start: bytes) -> str | None:
    """Return the encoding that a byte order mark at the start declares."""
    for mark, encoding in _BOMS:
        if start.startswith(mark):
            return encoding
    return None


def _utf16_by_zeros(start: bytes) -> str | None:
    even, odd = start[0:4096:2], start[1:4096:2]
    zeros_even = even.count(0) / max(len(even), 1)
    zeros_odd = odd.count(0) / max(len(odd), 1)
    if zeros_odd > 0.3 and zeros_even < 0.05:
        return "utf-16-le"
    if zeros_even > 0.3 and zeros_odd < 0.05:
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


def _legacy_encoding(start: bytes, declared: str | None) -> str:
    """Return the likeliest encoding of a text that is not Unicode."""
    if declared and _CHARSET.match(declared.lower()) and _is_codec(declared):
        return declared
    letters = sum(byte >= 0x80 or chr(byte).isalpha() for byte in start)
    high = sum(byte >= 0x80 for byte in start)
    # Western text has some accents, for which charset-normalizer prefers cp1250 (2026-11, 3.5.2);
    # where many letters are not ASCII, it is another script, and its guess is good.
    if high * 3 > letters and (guess := _guess_encoding(start)):
        return guess
    return "cp1252"


def _guess_encoding(start: bytes) -> str | None:
    try:
        from charset_normalizer import from_bytes
    except ImportError:
        return None
    best = from_bytes(start[: 1 << 14]).best()
    return best.encoding if best is not None and best.encoding != "ascii" else None


def _is_codec(encoding: str) -> bool:
    try:
        codecs.lookup(encoding)
    except LookupError:
        return False
    return True


def read_chunks(path: Path, encoding: str | None = None) -> Iterator[str]:
    """Yield a file's text in chunks, with one newline for every end of a line."""
    encoding = encoding or detect_encoding(path)
    with open_regular(path) as file:
        yield from decode_chunks(file, encoding)


def decode_chunks(file: BinaryIO, encoding: str) -> Iterator[str]:
    """Yield the text of an open file in chunks, with one newline for every end of a line."""
    # What was judged by its start may still hold a byte that the encoding does not know.
    text = io.TextIOWrapper(file, encoding, errors="replace", newline=None)
    try:
        while chunk := text.read(_CHUNK):
            yield chunk
    finally:
        text.detach()


TextLine = tuple[int, int, str]
"""Its number, how far into it this part begins, and the text."""


def read_lines(path: Path) -> Iterator[TextLine]:
    """Yield a file's lines, long ones in parts that end between words."""
    number, column, rest = 1, 0, ""
    for chunk in read_chunks(path):
        *complete, rest = (rest + chunk).split("\n")
        for line in complete:
            if len(line) > _MAX_LINE:
                yield (yield from _line_parts(path, number, column, line, ends=True))
            else:
                yield number, column, line
            number, column = number + 1, 0
        if len(rest) > _MAX_LINE:
            _, column, rest = yield from _line_parts(path, number, column, rest, ends=False)
    if rest:
        yield number, column, rest


def _line_parts(
    path: Path, number: int, column: int, text: str, *, ends: bool
) -> Generator[TextLine, None, TextLine]:
    """Yield parts of a long line; return the rest of it."""
    start = 0
    while len(text) - start > _MAX_LINE:
        end = text.rfind(" ", start + 1, start + _MAX_LINE)
        if end < 0:
            space = _SPACE.search(text, start + _MAX_LINE)
            if space is None:
                if len(text) - start > MAX_WORD:
                    raise word_too_long(path, f" in line {number}")
                if not ends:
                    break
                end = len(text)
            else:
                end = space.start()
        if end - start > MAX_WORD:
            raise word_too_long(path, f" in line {number}")
        yield number, column + start, text[start:end]
        start = min(end + 1, len(text))
    return number, column + start, text[start:]


def word_too_long(path: Path, where: str = "") -> DocumentRefused:
    """Return the reason to refuse a file that is not text for people."""
    return DocumentRefused(
        path,
        f"has a word of more than {MAX_WORD:,} characters{where}, so it is data rather than text;"
        " leave it out of the source.",
    )


# -- cutting ---------------------------------------------------------------------------------------

_GOAL = 800
"""Characters that a piece should have."""
MAX_PIECE = 1_600
"""Characters that no piece exceeds."""
_MAX_ATOM = 400
"""Characters above which a text becomes several atoms."""
MAX_WHOLE_WORD = 1_200
"""A word above this is cut; with the longest heading in front it still fits a piece."""
MAX_HEADING = 300
"""Characters of what stands in front of a piece."""

# How good it is to cut in front of an atom; a distance of `_GOAL` from the goal weighs 1.
MUST = 100.0
BLOCK = 2.0
PARAGRAPH = 1.2
LINE = 0.5
_SENTENCE = 0.5
WORD = 0.0

_SENTENCE_END = re.compile(r"[.!?…][\"”’»)\]]*\s+|[。！？]")
_SPACES = re.compile(r"\s+")


@dataclass(slots=True)
class Atom:
    """Text that stays together."""

    text: str
    at: tuple[int, int]
    """Where it is: a line, page, row or paragraph, and how far into it."""
    strength: float = LINE
    """How good it is to cut in front of it."""
    separator: str = "\n"
    """What stands between it and the one before, if they are in one piece."""
    heading: str = ""
    """What stands in front of a piece that begins with it."""
    label: str = ""
    """Where it is, in words, where numbers do not say it."""


PlaceOf = Callable[[Atom, Atom], str]
"""Says where a piece is, by its first and last atom."""


def place_by_number(singular: str, plural: str) -> PlaceOf:
    """Return how to say where a piece is by the numbers of its atoms, after their label."""

    def place(first: Atom, last: Atom) -> str:
        (start, offset), (end, _) = first.at, last.at
        label = f"{first.label}, " if first.label else ""
        if start != end:
            return f"{label}{plural} {start}-{end}"
        return f"{label}{singular} {start}" + (f" from character {offset + 1}" if offset else "")

    return place


def place_by_heading(singular: str, plural: str) -> PlaceOf:
    """Return how to say where a piece is by its heading, and then by the numbers of its atoms."""
    by_number = place_by_number(singular, plural)

    def place(first: Atom, last: Atom) -> str:
        where = by_number(first, last)
        return f"{first.heading} ({where})" if first.heading else where

    return place


def cut(atoms: Iterable[Atom], place_of: PlaceOf) -> Iterator[DocumentPiece]:
    """Gather atoms into pieces of about `_GOAL` characters; holds no more than one piece."""
    pending: list[Atom] = []
    size = 0
    for atom in atoms:
        if pending and atom.strength >= MUST:
            yield from _cut_rest(pending, place_of)
            pending, size = [], 0
        pending.append(atom)
        size += len(atom.text) + len(atom.separator)
        while size > MAX_PIECE - len(pending[0].heading) - 4:
            count = _best_cut(pending)
            yield from _piece(pending[:count], place_of)
            del pending[:count]
            size = _size(pending)
    yield from _cut_rest(pending, place_of)


def _size(atoms: list[Atom]) -> int:
    return sum(len(atom.text) + len(atom.separator) for atom in atoms)


def _cut_rest(pending: list[Atom], place_of: PlaceOf) -> Iterator[DocumentPiece]:
    if len(pending) > 1 and _size(pending) + len(pending[0].heading) > _GOAL * 1.5:
        count = _best_cut(pending)
        yield from _piece(pending[:count], place_of)
        pending = pending[count:]
    yield from _piece(pending, place_of)


def _best_cut(pending: list[Atom]) -> int:
    """Return before which atom to cut: near the goal, and where the text has a seam."""
    room = MAX_PIECE - len(pending[0].heading) - 4
    goal = _GOAL - len(pending[0].heading)
    best, chosen, length = -MUST, 1, 0
    for index, atom in enumerate(pending):
        if index:
            score = atom.strength - abs(length - goal) / goal
            if score > best and (length <= room or index == 1):
                best, chosen = score, index
        length += len(atom.text) + len(atom.separator)
    return chosen


def _piece(atoms: list[Atom], place_of: PlaceOf) -> Iterator[DocumentPiece]:
    if not atoms:
        return
    first = atoms[0]
    parts = [first.text]
    for atom in atoms[1:]:
        parts += (atom.separator, atom.text)
    body = _clean("".join(parts)).strip("\n").rstrip()
    heading = _clean(first.heading)
    if not body.strip() and (not heading or first.text):
        return
    text = f"{heading}\n\n{body}" if heading and body else heading or body
    yield DocumentPiece(text, _clean(place_of(first, atoms[-1])))


def split_text(text: str) -> Iterator[tuple[int, str, float, str]]:
    """Split a text at sentences, else between words; yield offset, part, strength and separator.

    Strength and separator of the first part are for the caller to say. A word is cut only if it is
    longer than `MAX_WHOLE_WORD`.
    """
    start, strength, separator = 0, LINE, "\n"
    while len(text) - start > _MAX_ATOM:
        end, following = _seam(text, start)
        yield start, text[start:end], strength, separator
        start, strength, separator = following
    if start < len(text) or start == 0:
        yield start, text[start:], strength, separator


def _seam(text: str, start: int) -> tuple[int, tuple[int, float, str]]:
    """Return where a part ends, and where, how willingly and after what the next one begins."""
    limit = start + _MAX_ATOM
    sentence = None
    for match in _SENTENCE_END.finditer(text, start + _MAX_ATOM // 4, limit):
        sentence = match
    if sentence is not None:
        end = start + len(text[start : sentence.end()].rstrip())
        return end, (sentence.end(), _SENTENCE, " " if end < sentence.end() else "")
    space = text.rfind(" ", start + 1, limit)
    if space >= 0:
        return space, (space + 1, WORD, " ")
    spaces = _SPACES.search(text, start + 1, start + MAX_WHOLE_WORD)
    if spaces is not None:
        return spaces.start(), (spaces.end(), WORD, " ")
    end = min(start + MAX_WHOLE_WORD, len(text))
    return end, (end, WORD, "")


def atoms_of(
    text: str,
    at: tuple[int, int],
    *,
    strength: float,
    separator: str,
    heading: str = "",
    label: str = "",
) -> Iterator[Atom]:
    """Yield a text as one atom, or if it is long as several."""
    if len(text) <= _MAX_ATOM:
        yield Atom(text, at, strength, separator, heading, label)
        return
    number, column = at
    for offset, part, part_strength, part_separator in split_text(text):
        if offset:
            inner = (number, column + offset)
            yield Atom(part, inner, part_strength, part_separator, heading, label)
        else:
            yield Atom(part, at, strength, separator, heading, label)


class Outline:
    """The headings above a place in a document."""

    def __init__(self) -> None:
        self._path: list[tuple[int, str]] = []
        self._bare = False
        """Whether nothing came after the last heading yet."""
        self.heading = ""
        """The path of headings, as `# Heading > ## Sub`."""

    def enter(
        self, level: int, title: str, at: tuple[int, int], *, quiet: bool = False
    ) -> Iterator[Atom]:
        """Go under a heading; unless `quiet`, one with nothing below it is a piece by itself."""
        title = " ".join(title.split())
        if not title:
            return
        if self._bare and self._path and level <= self._path[-1][0]:
            yield from self.end(at)
        while self._path and self._path[-1][0] >= level:
            self._path.pop()
        short = title if len(title) <= 120 else f"{title[:119].rstrip()}…"
        self._path.append((level, f"{'#' * level} {short}"))
        self.heading = _join_headings([heading for _, heading in self._path])
        self._bare = not quiet

    def end(self, at: tuple[int, int]) -> Iterator[Atom]:
        """Yield the heading itself if nothing came after it."""
        if self._bare:
            self._bare = False
            yield Atom("", at, MUST, "", self.heading)

    def atoms(
        self, text: str, at: tuple[int, int], *, strength: float, separator: str
    ) -> Iterator[Atom]:
        """Yield a text under the heading; the first one under a heading begins a piece."""
        if self._bare:
            self._bare, strength = False, MUST
        yield from atoms_of(text, at, strength=strength, separator=separator, heading=self.heading)


def _join_headings(path: list[str]) -> str:
    joined = " > ".join(path)
    while len(joined) > MAX_HEADING and len(path) > 2:
        path = [path[0], *path[2:]]
        joined = " > ".join([path[0], "…", *path[1:]])
    return joined if len(joined) <= MAX_HEADING else f"{joined[: MAX_HEADING - 1]}…"
