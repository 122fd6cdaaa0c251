"""HTML: text by headings and paragraphs, from a tokenizer that never looks at a byte twice.

The standard library's parser takes quadratic time for some malformed input in releases that are
still in use (CVE-2025-6069, 2025-06), and holds an unfinished tag in memory however long it is.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from pathlib import Path

from asterism.sources.pieces import (
    LINE,
    MAX_WORD,
    PARAGRAPH,
    Atom,
    DocumentPiece,
    Outline,
    cut,
    detect_encoding,
    open_regular,
    place_by_heading,
    read_chunks,
    word_too_long,
)

_Token = tuple[str, str]
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
_MAX_PARAGRAPH = 1 << 14


def read_html(path: Path) -> Iterator[DocumentPiece]:
    """Yield the pieces of an HTML file."""
    with open_regular(path) as file:
        declared = _CHARSET.search(file.read(4096))
    encoding = detect_encoding(path, declared[1].decode("ascii") if declared else None)
    return cut(_atoms(path, encoding), place_by_heading("paragraph", "paragraphs"))


def _atoms(path: Path, encoding: str) -> Iterator[Atom]:
    text = HtmlText(path)
    xml = path.suffix.lower() == ".xhtml"
    yield from text.atoms(read_chunks(path, encoding), xml=xml)
    yield from text.end()


# -- tokens ----------------------------------------------------------------------------------------


class _Tail:
    """The text that is not read yet."""

    def __init__(self, chunks: Iterator[str]) -> None:
        self._chunks = chunks
        self.text = ""
        self.at = 0
        """Where in `text` the part that is not read begins."""
        self.ended = False

    def more(self) -> bool:
        """Add the next chunk; False at the end."""
        chunk = next(self._chunks, "")
        self.ended = self.ended or not chunk
        self.text = self.text[self.at :] + chunk
        self.at = 0
        return bool(chunk)

    def skip_past(self, pattern: re.Pattern[str], keep: int) -> str:
        """Skip everything up to and with a match, however far off; return what matched.

        The last `keep` characters of a chunk are looked at again with the next one.
        """
        while True:
            match = pattern.search(self.text, self.at)
            if match:
                self.at = match.end()
                return match[0]
            self.at = max(len(self.text) - keep, self.at)
            if not self.more():
                self.at = len(self.text)
                return ""


_COMMENT_END = re.compile(r"-->")
_TAG_END = re.compile(r">")
_QUOTES = {'"': re.compile('"'), "'": re.compile("'")}


def _tokens(chunks: Iterator[str], *, xml: bool) -> Iterator[_Token]:
    tail = _Tail(chunks)
    while tail.at < len(tail.text) or tail.more():
        tag = tail.text.find("<", tail.at)
        end = tag if tag >= 0 else _end_of_whole_references(tail)
        if end > tail.at:
            yield "text", html.unescape(tail.text[tail.at : end])
            tail.at = end
        if tag < 0:
            tail.more()
            continue
        while len(tail.text) - tail.at < 40 and tail.more():
            pass
        yield from _markup(tail, xml=xml)


def _end_of_whole_references(tail: _Tail) -> int:
    """Return up to where the text holds no reference such as `&amp;` that may go on after it."""
    last = tail.text.rfind("&", max(len(tail.text) - 40, tail.at))
    whole = tail.ended or last < 0 or ";" in tail.text[last:]
    return len(tail.text) if whole else last


def _markup(tail: _Tail, *, xml: bool) -> Iterator[_Token]:
    """Yield the tag that the text begins with, if it is one; in XML a slash closes any tag."""
    name = _NAME.match(tail.text, tail.at)
    if name is not None:
        closes = tail.text[tail.at + 1] == "/"
        tag = name[1].lower()
        tail.at = name.end()
        empty = _skip_attributes(tail)
        yield "close" if closes else "open", tag
        if xml and empty:
            yield "close", tag
        elif tag in _RAW and not closes:
            tail.skip_past(re.compile(rf"</{tag}\b", re.IGNORECASE), 40)
            _skip_attributes(tail)
            yield "close", tag
    elif tail.text.startswith("<!-->", tail.at):
        tail.at += 5
    elif tail.text.startswith("<!--", tail.at):
        tail.at += 4
        tail.skip_past(_COMMENT_END, 2)
    elif tail.text[tail.at + 1 : tail.at + 2] in ("!", "?", "/"):
        tail.skip_past(_TAG_END, 0)
    else:
        tail.at += 1
        yield "text", "<"


def _skip_attributes(tail: _Tail) -> bool:
    """Skip the rest of a tag; return whether it ends with a slash."""
    while mark := tail.skip_past(_IN_TAG, 1):
        if mark == ">":
            return tail.text[max(tail.at - 2, 0)] == "/"
        tail.skip_past(_QUOTES[mark], 0)
    return False


# -- text ------------------------------------------------------------------------------------------


class HtmlText:
    """The text of one or more pages as people see it, paragraph by paragraph.

    Args:
        path: The file, for errors.
        outline: The headings above the pages; theirs are below.
        level: How many levels of headings are above the pages.
        number: The number of the first paragraph.
    """

    def __init__(
        self, path: Path, outline: Outline | None = None, *, level: int = 0, number: int = 1
    ) -> None:
        self._path = path
        self._outline = outline or Outline()
        self._level = level
        self.number = number
        """The number of the next paragraph."""
        self._reset()

    def _reset(self) -> None:
        self._text: list[str] = []
        self._size = 0
        self._begun = False
        """Whether a part of the paragraph was yielded already."""
        self._pre = 0
        self._hidden = ""
        self._hidden_depth = 0
        self._prefix = ""

    def atoms(self, chunks: Iterator[str], *, xml: bool = False) -> Iterator[Atom]:
        """Yield paragraphs, list items, rows and lines of a page."""
        for kind, value in _tokens(chunks, xml=xml):
            if self._hidden:
                self._skip_hidden(kind, value)
            elif kind == "text":
                yield from self._add(value)
            elif value in _HIDDEN and kind == "open":
                self._hidden, self._hidden_depth = value, 1
            elif value in _BLOCKS:
                yield from self._block(kind, value)
            else:
                self._inline(kind, value)
        yield from self._paragraph()
        self._reset()

    def end(self) -> Iterator[Atom]:
        """Yield the last heading if nothing came after it."""
        yield from self._outline.end((self.number, 0))

    def _skip_hidden(self, kind: str, value: str) -> None:
        if value == self._hidden and kind != "text":
            self._hidden_depth += 1 if kind == "open" else -1
        if not self._hidden_depth or (kind == "open" and value == "body"):
            self._hidden = ""

    def _block(self, kind: str, value: str) -> Iterator[Atom]:
        is_title = value == "title"
        is_heading = is_title or (len(value) == 2 and value[0] == "h" and value[1].isdigit())
        if is_heading and kind == "close":
            title, self._text, self._size = "".join(self._text), [], 0
            # A title stands in for headings until the first one comes.
            level = min(self._level + (1 if is_title else int(value[1])), 6)
            self._begun = False
            yield from self._outline.enter(level, title, (self.number, 0), quiet=is_title)
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

    def _add(self, text: str) -> Iterator[Atom]:
        self._text.append(text if self._pre else text.replace("\n", " "))
        self._size += len(text)
        if self._size > _MAX_PARAGRAPH:
            yield from self._paragraph(unfinished=True)

    def _paragraph(self, *, unfinished: bool = False) -> Iterator[Atom]:
        """Yield the text since the last block began."""
        text = "".join(self._text)
        self._text, self._size = [], 0
        if unfinished:
            text = self._keep_last_word(text)
        separator, strength = ("\n\n", PARAGRAPH) if not self._begun else (" ", LINE)
        if self._prefix:
            separator = "\n"
        for raw_line in text.split("\n"):
            line = raw_line.rstrip() if self._pre else " ".join(raw_line.split())
            if not line.strip():
                continue
            yield from self._outline.atoms(
                self._prefix + line, (self.number, 0), strength=strength, separator=separator
            )
            self._prefix, self._begun = "", True
            separator, strength = "\n", LINE
        if self._begun and not unfinished:
            self._begun = False
            self.number += 1

    def _keep_last_word(self, text: str) -> str:
        """Put the last word, which may go on, back; return the text before it."""
        end = max(text.rfind(" "), text.rfind("\n"))
        rest = text[end + 1 :]
        if len(rest) > MAX_WORD:
            raise word_too_long(self._path)
        self._text, self._size = [rest], len(rest)
        return text[: end + 1]
