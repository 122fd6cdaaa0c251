"""Readers of plain formats: text, Markdown, code, tables of values, JSON and JSON Lines."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Generator, Iterator
from dataclasses import field
from itertools import chain, islice
from pathlib import Path

from asterism.records import dataclass
from asterism.sources.pieces import (
    BLOCK,
    LINE,
    MAX_HEADING,
    MAX_WHOLE_WORD,
    MUST,
    PARAGRAPH,
    WORD,
    Atom,
    DocumentPiece,
    DocumentRefused,
    Outline,
    TextLine,
    atoms_of,
    cut,
    place_by_heading,
    place_by_number,
    read_chunks,
    read_lines,
    split_text,
)

# -- text ------------------------------------------------------------------------------------------


def read_text(path: Path) -> Iterator[DocumentPiece]:
    """Yield the pieces of a text file: paragraphs, with blank lines between them."""
    return cut(_text_atoms(path), place_by_number("line", "lines"))


def _text_atoms(path: Path) -> Iterator[Atom]:
    after_blank, after_sentence = False, False
    for number, column, line in read_lines(path):
        if not line.strip():
            after_blank = after_blank or not column
            continue
        if column:
            strength, separator = LINE, " "
        elif after_blank:
            strength, separator = PARAGRAPH, "\n\n"
        else:
            strength, separator = LINE + 0.2 * after_sentence, "\n"
        at = (number, column)
        yield from atoms_of(line.rstrip(), at, strength=strength, separator=separator)
        after_blank, after_sentence = False, line.rstrip().endswith((".", "!", "?", ":"))


# -- Markdown --------------------------------------------------------------------------------------

_HEADING = re.compile(r" {0,3}(#{1,6})(?:[ \t]+(.*?))?(?:[ \t]+#+)?[ \t]*\Z")
_UNDERLINE = re.compile(r" {0,3}(=+|-+)[ \t]*\Z")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_LIST_ITEM = re.compile(r"\s*(?:[-*+]|\d{1,9}[.)])[ \t]+\S")
_NOT_A_PARAGRAPH = re.compile(r"\s*(?:[-*+>|#]|\d{1,9}[.)][ \t]|`{3}|~{3})")


def read_markdown(path: Path) -> Iterator[DocumentPiece]:
    """Yield the pieces of a Markdown file: what is under a heading stays together."""
    return cut(_Markdown().atoms(read_lines(path)), place_by_heading("line", "lines"))


class _Markdown:
    """The state from line to line."""

    def __init__(self) -> None:
        self._outline = Outline()
        self._fence = ""
        self._after_blank = True
        """Whether nothing but a blank line or a heading came just before."""
        self._candidate: TextLine | None = None
        """A line that is a heading if the next one underlines it."""

    def atoms(self, lines: Iterator[TextLine]) -> Iterator[Atom]:
        """Yield the text below headings; fenced code stays in one piece where it can."""
        at = (1, 0)
        for number, column, line in _without_front_matter(lines):
            at = (number, column)
            if self._candidate is not None:
                candidate, self._candidate = self._candidate, None
                if not column and (underline := _UNDERLINE.match(line)):
                    level = 1 if underline[1][0] == "=" else 2
                    yield from self._outline.enter(level, candidate[2], candidate[:2])
                    self._after_blank = True
                    continue
                yield from self._line(*candidate)
            if self._fence or column or not (heading := _HEADING.match(line)):
                if self._may_be_underlined(column, line):
                    self._candidate = number, column, line
                else:
                    yield from self._line(number, column, line)
                continue
            yield from self._outline.enter(len(heading[1]), heading[2] or "", at)
            self._after_blank = True
        if self._candidate is not None:
            yield from self._line(*self._candidate)
        yield from self._outline.end(at)

    def _may_be_underlined(self, column: int, line: str) -> bool:
        if self._fence or column or not self._after_blank or len(line) > 200:
            return False
        return bool(line.strip()) and not _NOT_A_PARAGRAPH.match(line)

    def _line(self, number: int, column: int, line: str) -> Iterator[Atom]:
        if not line.strip() and not self._fence:
            self._after_blank = True
            return
        strength, separator = self._seam(column, line)
        self._follow_fence(column, line)
        yield from self._outline.atoms(
            line.rstrip(), (number, column), strength=strength, separator=separator
        )
        self._after_blank = False

    def _seam(self, column: int, line: str) -> tuple[float, str]:
        if column:
            return LINE, " "
        if self._fence:
            return WORD, "\n"
        if self._after_blank:
            return PARAGRAPH, "\n\n"
        return (PARAGRAPH / 2 if _LIST_ITEM.match(line) else LINE), "\n"

    def _follow_fence(self, column: int, line: str) -> None:
        fence = _FENCE.match(line) if not column else None
        if fence is None:
            return
        if not self._fence:
            self._fence = fence[1]
        elif fence[1].startswith(self._fence) and line.strip() == fence[1]:
            self._fence = ""


def _without_front_matter(lines: Iterator[TextLine]) -> Iterator[TextLine]:
    """Yield the lines; the rules around a block of metadata at the top are not underlines."""
    inside = False
    for number, column, line in lines:
        rule = not column and line.rstrip() == "---"
        if rule and (number == 1 or inside):
            inside = number == 1
            yield number, column, ""
        else:
            yield number, column, line


# -- code ------------------------------------------------------------------------------------------

_DEFINITION = re.compile(
    r"(?:(?:export|default|pub(?:\([a-z]+\))?|public|private|protected|internal|static|final|"
    r"abstract|sealed|open|override|virtual|inline|async|unsafe|extern|const)\s+)*"
    r"(?:def|class|function\*?|func|fn|fun|interface|struct|enum|trait|impl|module|namespace|"
    r"package|record|object|protocol|extension|type|sub|procedure|create\s+(?:or\s+replace\s+)?"
    r"(?:table|view|function|procedure|trigger|index|unique\s+index))\b",
    re.IGNORECASE,
)
_LEADS = ("@", "#[", "//", "/*", "*", "# ", "--", '"""', "[")
"""How lines begin that belong to the definition after them."""
_CLOSES = (")", "]", "}", "end")


def read_code(path: Path) -> Iterator[DocumentPiece]:
    """Yield the pieces of a program: functions stay together, with what they are in in front."""
    return cut(_code_atoms(path), place_by_number("line", "lines"))


def _code_atoms(path: Path) -> Iterator[Atom]:
    scopes: list[tuple[int, str]] = []
    after_blank, after_lead = True, False
    for number, column, line in read_lines(path):
        code = line.strip()
        if column:
            at, heading = (number, column), _scope_heading(scopes)
            yield from atoms_of(line, at, strength=LINE, separator=" ", heading=heading)
            continue
        if not code:
            after_blank = True
            continue
        indent = len(line.expandtabs(8)) - len(line.expandtabs(8).lstrip())
        definition = _DEFINITION.match(code) is not None
        if not code.startswith(_CLOSES):
            while scopes and scopes[-1][0] >= indent:
                scopes.pop()
        yield from atoms_of(
            line.rstrip(),
            (number, 0),
            strength=WORD
            if after_lead and not after_blank
            else _code_strength(indent, definition=definition, after_blank=after_blank),
            separator="\n\n" if after_blank else "\n",
            heading=_scope_heading(scopes),
        )
        if definition:
            scopes.append((indent, code))
        after_blank, after_lead = False, code.startswith(_LEADS)


def _code_strength(indent: int, *, definition: bool, after_blank: bool) -> float:
    """Return how good it is to cut in front of a line: before definitions, and far out."""
    depth = min(indent / 4, 8)
    if definition or (after_blank and not indent):
        return BLOCK - 0.2 * depth
    if after_blank:
        return PARAGRAPH - 0.1 * depth
    return LINE - 0.05 * depth


def _scope_heading(scopes: list[tuple[int, str]]) -> str:
    return " > ".join(code[:80].rstrip(" :{(") for _, code in scopes[-3:])[:MAX_HEADING]


# -- tables ----------------------------------------------------------------------------------------

_MAX_ROW = 1_000_000
_DELIMITERS = ",;\t|"


def read_csv(path: Path) -> Iterator[DocumentPiece]:
    """Yield the pieces of a CSV or TSV file: rows, with the header in front of every piece."""
    return cut(_csv_atoms(path), place_by_number("row", "rows"))


def _csv_atoms(path: Path) -> Iterator[Atom]:
    lines = _csv_lines(path)
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
            yield from row_atoms(header, cells, number)
    except csv.Error as error:
        raise DocumentRefused(
            path,
            f"is not a valid table from row {number + 1} on ({error}); is a quote never closed?"
            " Correct it, or name it .txt to have it read as text.",
        ) from error
    if header is not None and not number:
        yield from atoms_of(" | ".join(header), (0, 0), strength=LINE, separator="\n")


def row_atoms(
    header: list[str], cells: list[str], number: int, *, sheet: str = ""
) -> Iterator[Atom]:
    """Yield a row; where it is too wide for one line, each value with its name."""
    heading = " | ".join(header)
    if sheet:
        heading = f"{sheet}\n\n{heading}"
    row = " | ".join(cells)
    strength, separator = LINE * 2, "\n"
    if len(heading) <= MAX_HEADING and len(row) <= 1_000:
        yield from atoms_of(
            row,
            (number, 0),
            strength=strength,
            separator=separator,
            heading=heading,
            label=sheet,
        )
        return
    separator = "\n\n"
    for index, cell in enumerate(cells):
        if cell:
            name = header[index] if index < len(header) else f"column {index + 1}"
            yield from atoms_of(
                f"{name[:100]}: {cell}",
                (number, 0),
                strength=strength,
                separator=separator,
                heading=sheet,
                label=sheet,
            )
            strength, separator = LINE, "\n"


def _delimiter(path: Path, first: list[str]) -> str:
    """Return what stands between cells: what most lines at the top have, and equally often."""
    if path.suffix.lower() in (".tsv", ".tab"):
        return "\t"

    def fitness(mark: str) -> tuple[int, int]:
        counts = [line.count(mark) for line in first if line.strip()]
        usual = max(set(counts), key=counts.count, default=0)
        return (counts.count(usual) if usual else 0, usual)

    return max(_DELIMITERS, key=fitness)


def _csv_lines(path: Path) -> Iterator[str]:
    """Yield lines with their ends, as the standard library's reader wants them."""
    rest, number = "", 1
    for chunk in read_chunks(path):
        *complete, rest = (rest + chunk).split("\n")
        for line in complete:
            yield line + "\n"
            number += 1
        if len(rest) > _MAX_ROW:
            raise DocumentRefused(
                path,
                f"has more than {_MAX_ROW:,} characters in line {number}, too many for a row of a"
                " table; name it .txt to have it read as text.",
            )
    if rest:
        yield rest


# -- JSON ------------------------------------------------------------------------------------------

_MAX_DEPTH = 500
_MAX_WHOLE = 1_000
"""Characters up to which a container stays whole; a longer one is split into its members."""
_MAX_STRING = 1 << 16
"""Characters up to which a string is read at once."""

_TOKEN = re.compile(
    r"(?P<mark>[{}\[\],:])"
    r'|"(?P<string>[^"\\]*+(?:\\.[^"\\]*+)*+)"'
    r"|(?P<number>-?\d++(?:\.\d++)?(?:[eE][+-]?\d++)?|-?Infinity|NaN)"
    r"|(?P<word>true|false|null)",
    re.DOTALL,
)
_JSON_SPACE = re.compile(r"[ \t\r\n]*+")
_SPACE = re.compile(r"\s")
_STRING_PART = re.compile(r'(?:[^"\\]++|\\u[0-9a-fA-F]{4}|\\[^u])*+', re.DOTALL)
_CLOSING = {"{": "}", "[": "]", "": ""}
_SIMPLE_KEY = re.compile(r"[A-Za-z_][\w-]{0,60}\Z")


def read_json(path: Path) -> Iterator[DocumentPiece]:
    """Yield the pieces of a JSON file: members and items that fit stay whole."""
    return cut(_JsonDocument(path, by_line=False).atoms(), _json_place)


def read_json_lines(path: Path) -> Iterator[DocumentPiece]:
    """Yield the pieces of a file with one JSON value a line."""
    return cut(_JsonDocument(path, by_line=True).atoms(), _json_place)


def _json_place(first: Atom, last: Atom) -> str:
    return first.label if first.label == last.label else f"{first.label} to {last.label}"


class _JsonTokens:
    """The tokens of a file: kind and text; a string that is too long is announced as `part`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._chunks = read_chunks(path)
        self._text = ""
        self._at = 0
        self._ended = False
        self._lines = 1
        self._counted = 0

    @property
    def line(self) -> int:
        """The number of the line that the next token is in."""
        self._lines += self._text.count("\n", self._counted, self._at)
        self._counted = self._at
        return self._lines

    def _more(self) -> bool:
        _ = self.line
        chunk = next(self._chunks, "")
        self._ended = self._ended or not chunk
        self._text = self._text[self._at :] + chunk
        self._at = self._counted = 0
        return bool(chunk)

    def next(self) -> tuple[str, str]:
        """Return the next token; `end` at the end."""
        while True:
            space = _JSON_SPACE.match(self._text, self._at)
            self._at = space.end() if space else self._at
            if self._at < len(self._text) or not self._more():
                break
        while True:
            token = _TOKEN.match(self._text, self._at)
            # A number or a word may go on in the next chunk.
            if token and (token.end() < len(self._text) or self._ended or token["mark"]):
                break
            if len(self._text) - self._at > _MAX_STRING or not self._more():
                break
        if token is not None:
            self._at = token.end()
            kind = token.lastgroup or ""
            return kind, (self._unescape(token[kind]) if kind == "string" else token[kind])
        if self._at == len(self._text):
            return "end", ""
        if self._text[self._at] == '"':
            self._at += 1
            return "part", ""
        raise self.problem(f"{self._text[self._at : self._at + 20]!r} is not a JSON value")

    def rest_of_string(self) -> Iterator[str]:
        """Yield the parts of a string that is too long to be read at once."""
        rest, skipped = "", 0
        while True:
            while len(self._text) - self._at < _MAX_STRING and self._more():
                pass
            part = _STRING_PART.match(self._text, self._at, self._at + _MAX_STRING)
            end = part.end() if part else self._at
            closes = self._text[end : end + 1] == '"'
            if not closes and end == self._at:
                raise self.problem("a string is never closed")
            text = rest + self._unescape(self._text[self._at : end])
            self._at = end + closes
            count = len(text) if closes else text.rfind(" ") + 1
            rest = text[count:]
            if skipped and count:
                yield f"({skipped:,} characters of data)"
                skipped = 0
            elif len(rest) > _MAX_STRING:
                # No text has such words, but what it is part of is still worth reading.
                skipped, rest = skipped + len(rest), ""
            if count:
                yield text[:count]
            if closes:
                return

    def _unescape(self, string: str) -> str:
        """Return what a string between quotes means."""
        if "\\" not in string:
            return string
        try:
            value: str = json.loads(f'"{string}"', strict=False)
        except ValueError:
            raise self.problem(f"{string[:20]!r} has an escape that means nothing") from None
        return value

    def problem(self, reason: str) -> DocumentRefused:
        """Return the error that refuses the file here."""
        return DocumentRefused(
            self._path,
            f"is not valid JSON: {reason} (line {self.line}); correct it, or name it .txt to have"
            " it read as text.",
        )


@dataclass(slots=True)
class _Container:
    """A container that is open."""

    kind: str
    """`{`, `[`, or empty for the file itself."""
    path: str
    key: str = ""
    index: int = 0
    split: bool = False
    """Whether its members were too long to stay in one line."""
    members: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    size: int = 0


class _JsonDocument:
    """The values of a file, from the inside out."""

    def __init__(self, path: Path, *, by_line: bool) -> None:
        self._tokens = _JsonTokens(path)
        self._by_line = by_line
        self._open = [_Container("", "", split=by_line)]
        self._number = 0
        self._last_heading = ""

    def atoms(self) -> Iterator[Atom]:
        """Yield members and items with their paths, in the order of the file."""
        just_opened = False
        while True:
            kind, text = self._tokens.next()
            container = self._open[-1]
            if kind == "end":
                break
            closes = kind == "mark" and text == _CLOSING[container.kind]
            if closes and (just_opened or container.index):
                yield from self._close()
                just_opened = False
                continue
            if not just_opened:
                kind, text = self._after_separator(container, kind, text)
            if container.kind == "{":
                self._key(kind, text)
                kind, text = self._tokens.next()
            just_opened = yield from self._value(container, kind, text)
        if len(self._open) > 1:
            raise self._tokens.problem("it ends in the middle")
        yield from self._split()

    def _after_separator(self, container: _Container, kind: str, text: str) -> tuple[str, str]:
        """Check what stands between two values; return the token after it."""
        if not container.index:
            return kind, text
        if container.kind:
            if (kind, text) != ("mark", ","):
                raise self._tokens.problem("a comma or an end is missing")
            return self._tokens.next()
        if not self._by_line:
            raise self._tokens.problem("there is more after its end")
        return kind, text

    def _key(self, kind: str, text: str) -> None:
        if kind != "string":
            raise self._tokens.problem("an object's member needs a name in double quotes")
        self._open[-1].key = text
        if self._tokens.next() != ("mark", ":"):
            raise self._tokens.problem(f"a colon is missing after {text[:40]!r}")

    def _value(self, container: _Container, kind: str, text: str) -> Generator[Atom, None, bool]:
        """Take a value in; return whether it is a container, which is only opened."""
        if kind == "string":
            yield from self._add(text, json.dumps(text, ensure_ascii=False))
        elif kind in ("number", "word"):
            yield from self._add(text, text)
        elif kind == "part":
            yield from self._split()
            for part in self._tokens.rest_of_string():
                yield from self._line(container, self._path(container), part)
            container.index += 1
        elif text in ("{", "["):
            if len(self._open) > _MAX_DEPTH:
                raise self._tokens.problem(f"it is nested more than {_MAX_DEPTH} deep")
            self._open.append(_Container(text, self._path(container)))
            return True
        else:
            ends = kind == "end"
            raise self._tokens.problem(
                "it ends in the middle" if ends else f"{text!r} is not a JSON value"
            )
        return False

    def _close(self) -> Iterator[Atom]:
        container = self._open.pop()
        if container.split:
            self._open[-1].index += 1
            return
        if container.kind == "{":
            members = ", ".join(
                f"{json.dumps(key, ensure_ascii=False)}: {value}"
                for key, value in container.members
            )
            whole = f"{{{members}}}"
        else:
            whole = f"[{', '.join(value for _, value in container.members)}]"
        yield from self._add(whole, whole)

    def _add(self, plain: str, encoded: str) -> Iterator[Atom]:
        """Add a complete value: `plain` for a line of its own, `encoded` inside others."""
        container = self._open[-1]
        if container.split:
            yield from self._line(container, self._path(container), plain)
        else:
            name = container.key if container.kind == "{" else self._path(container)
            container.members.append((name, encoded))
            container.size += len(encoded) + len(container.key) + 4
        container.index += 1
        if container.size > _MAX_WHOLE:
            yield from self._split()

    def _split(self) -> Iterator[Atom]:
        """Give up on the open containers as one line each: yield the members so far."""
        for container in self._open:
            if container.split:
                continue
            container.split = True
            key = container.key
            for name, value in container.members:
                container.key = name
                path = self._path(container) if container.kind == "{" else name
                plain = json.loads(value) if value.startswith('"') else value
                yield from self._line(container, path, plain)
            container.key, container.members, container.size = key, [], 0

    def _path(self, container: _Container) -> str:
        """Return the path of the value that comes next in a container."""
        if not container.kind:
            return f"line {self._tokens.line}: $" if self._by_line else "$"
        if container.kind == "[":
            return f"{container.path}[{container.index}]"
        key = container.key if len(container.key) <= 60 else f"{container.key[:59]}…"
        return f"{container.path}.{key}" if _SIMPLE_KEY.match(key) else f"{container.path}[{key!r}]"

    def _line(self, container: _Container, path: str, text: str) -> Iterator[Atom]:
        """Yield a value that stands in a line of its own, under the path of its container."""
        label = path.removesuffix(": $")
        heading = container.path.removesuffix(": $")[:MAX_HEADING]
        name = f"{container.key}: " if container.kind == "{" else ""
        if len(text) > MAX_WHOLE_WORD and text.isascii() and not _SPACE.search(text):
            text = f"({len(text):,} characters of data)"
        self._number += 1
        same = heading == self._last_heading
        self._last_heading = heading
        for offset, part, strength, separator in split_text(name + text):
            yield Atom(
                part,
                (self._number, offset),
                strength if offset else (LINE * 2 if same else MUST),
                separator if offset else "\n",
                heading,
                label[-300:],
            )
