"""JSON and JSON Lines: members and items that fit stay whole, in bounded memory."""

from __future__ import annotations

import json
import re
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from asterism.sources.readers.cut import LINE, LONGEST_WORD, MUST, Atom, parts, pieces
from asterism.sources.readers.decode import chunks
from asterism.sources.readers.piece import DocumentRefused, Piece

DEEPEST = 500
WHOLE = 1_000
"""Characters up to which a container is kept in one; a longer one is parted into its members."""
_LONG = 1 << 16
"""Characters up to which a string is read in one."""

_TOKEN = re.compile(
    r"(?P<mark>[{}\[\],:])"
    r'|"(?P<string>[^"\\]*+(?:\\.[^"\\]*+)*+)"'
    r"|(?P<number>-?\d++(?:\.\d++)?(?:[eE][+-]?\d++)?|-?Infinity|NaN)"
    r"|(?P<word>true|false|null)",
    re.DOTALL,
)
_SPACE = re.compile(r"[ \t\r\n]*+")
_SPACES = re.compile(r"\s")
_PART = re.compile(r'(?:[^"\\]++|\\u[0-9a-fA-F]{4}|\\[^u])*+', re.DOTALL)
_ENDS = {"{": "}", "[": "]", "": ""}
_NAME = re.compile(r"[A-Za-z_][\w-]{0,60}\Z")


def read(path: Path) -> Iterator[Piece]:
    """Yield the pieces of a JSON file."""
    return pieces(_Document(path, by_line=False).atoms(), _place)


def read_lines(path: Path) -> Iterator[Piece]:
    """Yield the pieces of a file with one JSON value a line."""
    return pieces(_Document(path, by_line=True).atoms(), _place)


def _place(first: Atom, last: Atom) -> str:
    return first.label if first.label == last.label else f"{first.label} to {last.label}"


# -- tokens ----------------------------------------------------------------------------------------


class _Tokens:
    """The tokens of a file: kind and text; a long string comes as `part`, `part` … `string`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._given = chunks(path)
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
        chunk = next(self._given, "")
        self._ended = self._ended or not chunk
        self._text = self._text[self._at :] + chunk
        self._at = self._counted = 0
        return bool(chunk)

    def next(self) -> tuple[str, str]:
        """Return the next token; `end` at the end."""
        while True:
            space = _SPACE.match(self._text, self._at)
            self._at = space.end() if space else self._at
            if self._at < len(self._text) or not self._more():
                break
        while True:
            found = _TOKEN.match(self._text, self._at)
            # A number or a word may go on in the next chunk.
            if found and (found.end() < len(self._text) or self._ended or found["mark"]):
                break
            if len(self._text) - self._at > _LONG or not self._more():
                break
        if found is not None:
            self._at = found.end()
            kind = found.lastgroup or ""
            return kind, (self.decoded(found[kind]) if kind == "string" else found[kind])
        if self._at == len(self._text):
            return "end", ""
        if self._text[self._at] == '"':
            self._at += 1
            return "part", ""
        raise self.problem(f"{self._text[self._at : self._at + 20]!r} is no JSON")

    def rest_of_string(self) -> Iterator[str]:
        """Yield the parts of a string that is too long to be read in one."""
        carry, dropped = "", 0
        while True:
            while len(self._text) - self._at < _LONG and self._more():
                pass
            found = _PART.match(self._text, self._at, self._at + _LONG)
            end = found.end() if found else self._at
            closes = self._text[end : end + 1] == '"'
            if not closes and end == self._at:
                raise self.problem("a string is never closed")
            text = carry + self.decoded(self._text[self._at : end])
            self._at = end + closes
            cut = len(text) if closes else text.rfind(" ") + 1
            carry = text[cut:]
            if dropped and cut:
                yield f"({dropped:,} characters of data)"
                dropped = 0
            elif len(carry) > _LONG:
                # No text has such words, but what it is part of is still worth reading.
                dropped, carry = dropped + len(carry), ""
            if cut:
                yield text[:cut]
            if closes:
                return

    def decoded(self, string: str) -> str:
        """Return what a string between quotes means."""
        if "\\" not in string:
            return string
        try:
            value: str = json.loads(f'"{string}"', strict=False)
        except ValueError:
            raise self.problem(f"{string[:20]!r} has an escape that means nothing") from None
        return value

    def problem(self, what: str) -> DocumentRefused:
        """Return the reason to refuse the file here."""
        return DocumentRefused(
            self._path,
            f"is not valid JSON: {what} (line {self.line}); correct it, or name it .txt to have it"
            " read as text.",
        )


# -- values ----------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Frame:
    """A container that is open."""

    kind: str
    """`{`, `[`, or empty for all that a file holds."""
    path: str
    key: str = ""
    index: int = 0
    parted: bool = False
    """Whether its members were too long to be kept in one."""
    children: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    size: int = 0


class _Document:
    """The values of a file, from the inside out."""

    def __init__(self, path: Path, *, by_line: bool) -> None:
        self._tokens = _Tokens(path)
        self._by_line = by_line
        self._stack = [_Frame("", "", parted=by_line)]
        self._number = 0
        self._last = ""

    def atoms(self) -> Iterator[Atom]:
        """Yield members and items with their paths, in the order of the file."""
        first = False
        """Whether a container was just opened."""
        while True:
            kind, text = self._tokens.next()
            frame = self._stack[-1]
            if kind == "end":
                break
            if kind == "mark" and text == _ENDS[frame.kind] and (first or frame.index):
                yield from self._close()
                first = False
                continue
            if not first:
                kind, text = self._between(frame, kind, text)
            if frame.kind == "{":
                self._key(kind, text)
                kind, text = self._tokens.next()
            first = yield from self._value(frame, kind, text)
        if len(self._stack) > 1:
            raise self._tokens.problem("it ends in the middle")
        yield from self._part()

    def _between(self, frame: _Frame, kind: str, text: str) -> tuple[str, str]:
        """Check what stands between two values; return the token after it."""
        if not frame.index:
            return kind, text
        if frame.kind:
            if (kind, text) != ("mark", ","):
                raise self._tokens.problem("a comma or an end is missing")
            return self._tokens.next()
        if not self._by_line:
            raise self._tokens.problem("there is more after its end")
        return kind, text

    def _key(self, kind: str, text: str) -> None:
        if kind != "string":
            raise self._tokens.problem("an object's member needs a name in double quotes")
        self._stack[-1].key = text
        if self._tokens.next() != ("mark", ":"):
            raise self._tokens.problem(f"a colon is missing after {text[:40]!r}")

    def _value(self, frame: _Frame, kind: str, text: str) -> Generator[Atom, None, bool]:
        """Take a value in; return whether it is a container, which is only opened."""
        if kind == "string":
            yield from self._complete(text, json.dumps(text, ensure_ascii=False))
        elif kind in ("number", "word"):
            yield from self._complete(text, text)
        elif kind == "part":
            yield from self._part()
            for part in self._tokens.rest_of_string():
                yield from self._said(frame, self._path(frame), part)
            frame.index += 1
        elif text in ("{", "["):
            if len(self._stack) > DEEPEST:
                raise self._tokens.problem(f"it is nested more than {DEEPEST} deep")
            self._stack.append(_Frame(text, self._path(frame)))
            return True
        else:
            raise self._tokens.problem(
                "it ends in the middle" if kind == "end" else f"{text!r} is no value"
            )
        return False

    def _close(self) -> Iterator[Atom]:
        frame = self._stack.pop()
        if frame.parted:
            self._stack[-1].index += 1
            return
        if frame.kind == "{":
            inner = ", ".join(
                f"{json.dumps(k, ensure_ascii=False)}: {v}" for k, v in frame.children
            )
            whole = f"{{{inner}}}"
        else:
            whole = f"[{', '.join(value for _, value in frame.children)}]"
        yield from self._complete(whole, whole)

    def _complete(self, plain: str, written: str) -> Iterator[Atom]:
        """Take in a value that is whole: `plain` for a line of its own, `written` inside others."""
        frame = self._stack[-1]
        if frame.parted:
            yield from self._said(frame, self._path(frame), plain)
        else:
            frame.children.append((frame.key if frame.kind == "{" else self._path(frame), written))
            frame.size += len(written) + len(frame.key) + 4
        frame.index += 1
        if frame.size > WHOLE:
            yield from self._part()

    def _part(self) -> Iterator[Atom]:
        """Give up keeping the open containers whole: yield the members that are there."""
        for frame in self._stack:
            if frame.parted:
                continue
            frame.parted = True
            key = frame.key
            for told, value in frame.children:
                frame.key = told
                path = self._path(frame) if frame.kind == "{" else told
                plain = json.loads(value) if value.startswith('"') else value
                yield from self._said(frame, path, plain)
            frame.key, frame.children, frame.size = key, [], 0

    def _path(self, frame: _Frame) -> str:
        """Return the path of the value that comes next in a container."""
        if not frame.kind:
            return f"line {self._tokens.line}: $" if self._by_line else "$"
        if frame.kind == "[":
            return f"{frame.path}[{frame.index}]"
        key = frame.key if len(frame.key) <= 60 else f"{frame.key[:59]}…"
        return f"{frame.path}.{key}" if _NAME.match(key) else f"{frame.path}[{key!r}]"

    def _said(self, frame: _Frame, path: str, text: str) -> Iterator[Atom]:
        """Yield a value that stands in a line of its own, under the path of its container."""
        label = path.removesuffix(": $")
        heading = frame.path.removesuffix(": $")[:300]
        name = f"{frame.key}: " if frame.kind == "{" else ""
        if len(text) > LONGEST_WORD and text.isascii() and not _SPACES.search(text):
            text = f"({len(text):,} characters of data)"
        self._number += 1
        same = heading == self._last
        self._last = heading
        for offset, part, strength, joint in parts(name + text):
            yield Atom(
                part,
                (self._number, offset),
                strength if offset else (LINE * 2 if same else MUST),
                joint if offset else "\n",
                heading,
                label[-300:],
            )
