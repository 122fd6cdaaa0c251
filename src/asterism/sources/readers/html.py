"""HTML: text by headings and paragraphs, from a tokenizer that never looks at a byte twice.

The standard library's parser takes quadratic time for some malformed input in releases that are
still in use (CVE-2025-6069, 2025-06), and holds an unfinished tag in memory however long it is.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from pathlib import Path

from asterism.sources.readers.cut import (
    LINE,
    PARAGRAPH,
    Atom,
    Outline,
    atoms_of,
    counted,
    pieces,
    under_heading,
)
from asterism.sources.readers.decode import chunks, encoding_of, open_regular
from asterism.sources.readers.piece import DocumentRefused, Piece

Token = tuple[str, str]
"""`text`, `open` or `close`, and the text or the name of the tag."""

_NAME = re.compile(r"</?([a-zA-Z][^\s/>]{0,30})")
_IN_TAG = re.compile(r"""[>"']""")
_CHARSET = re.compile(rb"""<meta[^>]{0,200}?charset\s*=\s*["']?\s*([\w-]{2,20})""", re.IGNORECASE)
_RAW = frozenset({"script", "style", "xmp", "iframe", "noembed", "noframes", "plaintext"})
_HIDDEN = frozenset({"template", "svg", "math", "noscript", "select", "object", "audio", "video"})
_BLOCK_NAMES = (
    "address article aside blockquote body caption center dd details dialog div dl dt fieldset"
    " figcaption figure footer form h1 h2 h3 h4 h5 h6 header hr html legend li main menu nav ol p"
    " pre section summary table tbody tfoot thead title tr ul"
)
_BLOCKS = frozenset(_BLOCK_NAMES.split())
_LONGEST_PARAGRAPH = 1 << 14
_LONGEST_WORD = 100_000


def read(path: Path) -> Iterator[Piece]:
    """Yield the pieces of an HTML file."""
    with open_regular(path) as file:
        declared = _CHARSET.search(file.read(4096))
    encoding = encoding_of(path, declared[1].decode("ascii") if declared else None)
    place = under_heading(counted("paragraph", "paragraphs"))
    return pieces(_Page(path).atoms(_tokens(chunks(path, encoding))), place)


# -- tokens ----------------------------------------------------------------------------------------


class _Tail:
    """The text that is not read yet."""

    def __init__(self, given: Iterator[str]) -> None:
        self._given = given
        self.text = ""
        self.at = 0
        """Where in `text` the part that is not read begins."""
        self.ended = False

    def more(self) -> bool:
        """Add the next chunk; False at the end."""
        chunk = next(self._given, "")
        self.ended = self.ended or not chunk
        self.text = self.text[self.at :] + chunk
        self.at = 0
        return bool(chunk)

    def past(self, wanted: re.Pattern[str], keep: int) -> str:
        """Pass everything up to and with a match, however far off; return what matched."""
        while True:
            found = wanted.search(self.text, self.at)
            if found:
                self.at = found.end()
                return found[0]
            self.at = max(len(self.text) - keep, self.at)
            if not self.more():
                self.at = len(self.text)
                return ""


_COMMENT_END = re.compile(r"-->")
_TAG_END = re.compile(r">")
_QUOTES = {'"': re.compile('"'), "'": re.compile("'")}


def _tokens(given: Iterator[str]) -> Iterator[Token]:
    tail = _Tail(given)
    while tail.at < len(tail.text) or tail.more():
        opens = tail.text.find("<", tail.at)
        end = opens if opens >= 0 else _whole_references(tail)
        if end > tail.at:
            yield "text", html.unescape(tail.text[tail.at : end])
            tail.at = end
        if opens < 0:
            tail.more()
            continue
        while len(tail.text) - tail.at < 40 and tail.more():
            pass
        yield from _markup(tail)


def _whole_references(tail: _Tail) -> int:
    """Return up to where the text holds no reference such as `&amp;` that may go on after it."""
    last = tail.text.rfind("&", max(len(tail.text) - 40, tail.at))
    whole = tail.ended or last < 0 or ";" in tail.text[last:]
    return len(tail.text) if whole else last


def _markup(tail: _Tail) -> Iterator[Token]:
    """Yield the tag that the text begins with, if it is one."""
    name = _NAME.match(tail.text, tail.at)
    if name is not None:
        closes = tail.text[tail.at + 1] == "/"
        tag = name[1].lower()
        tail.at = name.end()
        _past_attributes(tail)
        yield "close" if closes else "open", tag
        if tag in _RAW and not closes:
            tail.past(re.compile(rf"</{tag}\b", re.IGNORECASE), 40)
            _past_attributes(tail)
            yield "close", tag
    elif tail.text.startswith("<!-->", tail.at):
        tail.at += 5
    elif tail.text.startswith("<!--", tail.at):
        tail.at += 4
        tail.past(_COMMENT_END, 2)
    elif tail.text[tail.at + 1 : tail.at + 2] in ("!", "?", "/"):
        tail.past(_TAG_END, 0)
    else:
        tail.at += 1
        yield "text", "<"


def _past_attributes(tail: _Tail) -> None:
    while quote := tail.past(_IN_TAG, 0):
        if quote == ">":
            return
        tail.past(_QUOTES[quote], 0)


# -- what the tokens say ---------------------------------------------------------------------------


class _Page:
    """What has to be remembered from token to token."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._outline = Outline()
        self._number = 1
        self._text: list[str] = []
        self._size = 0
        self._begun = False
        self._pre = 0
        self._hidden = ""
        self._depth = 0
        self._prefix = ""

    def atoms(self, tokens: Iterator[Token]) -> Iterator[Atom]:
        """Yield the text of paragraphs, list items, rows and lines."""
        for kind, value in tokens:
            if self._hidden:
                self._pass_hidden(kind, value)
            elif kind == "text":
                yield from self._say(value)
            elif value in _HIDDEN and kind == "open":
                self._hidden, self._depth = value, 1
            elif value in _BLOCKS:
                yield from self._block(kind, value)
            else:
                self._inline(kind, value)
        yield from self._paragraph()
        yield from self._outline.end((self._number, 0))

    def _pass_hidden(self, kind: str, value: str) -> None:
        if value == self._hidden and kind != "text":
            self._depth += 1 if kind == "open" else -1
        if not self._depth or (kind == "open" and value == "body"):
            self._hidden = ""

    def _block(self, kind: str, value: str) -> Iterator[Atom]:
        heading = value == "title" or (len(value) == 2 and value[0] == "h" and value[1].isdigit())
        if heading and kind == "close":
            title, self._text, self._size = "".join(self._text), [], 0
            # A title stands in for headings until the first one comes.
            level = 1 if value == "title" else int(value[1])
            self._begun = False
            yield from self._outline.enter(level, title, (self._number, 0), quiet=value == "title")
            return
        yield from self._paragraph()
        if value == "pre":
            self._pre = max(self._pre + (1 if kind == "open" else -1), 0)
        self._prefix = "- " if value == "li" and kind == "open" else ""

    def _inline(self, kind: str, value: str) -> None:
        if kind != "open":
            return
        if value == "br":
            self._text.append("\n")
            self._size += 1
        elif value in ("td", "th") and self._size:
            self._text.append(" | ")
            self._size += 3

    def _say(self, text: str) -> Iterator[Atom]:
        self._text.append(text if self._pre else text.replace("\n", " "))
        self._size += len(text)
        if self._size > _LONGEST_PARAGRAPH:
            yield from self._paragraph(go_on=True)

    def _paragraph(self, *, go_on: bool = False) -> Iterator[Atom]:
        """Yield what was said since the last block began."""
        text = "".join(self._text)
        self._text, self._size = [], 0
        if go_on:
            text = self._keep_last_word(text)
        joint, strength = ("\n\n", PARAGRAPH) if not self._begun else (" ", LINE)
        if self._prefix:
            joint = "\n"
        for line in text.split("\n"):
            said = line.rstrip() if self._pre else " ".join(line.split())
            if not said.strip():
                continue
            yield from atoms_of(
                self._prefix + said,
                (self._number, 0),
                strength=self._outline.seam(strength),
                joint=joint,
                heading=self._outline.heading,
            )
            self._prefix, self._begun = "", True
            joint, strength = "\n", LINE
        if self._begun and not go_on:
            self._begun = False
            self._number += 1

    def _keep_last_word(self, text: str) -> str:
        cut = max(text.rfind(" "), text.rfind("\n"))
        rest = text[cut + 1 :]
        if len(rest) > _LONGEST_WORD:
            raise DocumentRefused(
                self._path,
                f"has a word of more than {_LONGEST_WORD:,} characters, so it is data rather than"
                " text; leave it out of the source.",
            )
        self._text, self._size = [rest], len(rest)
        return text[: cut + 1]
