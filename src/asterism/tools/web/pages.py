"""Pages that were fetched: as Markdown, in parts, kept for a few minutes."""

from __future__ import annotations

import html
import re
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, Literal

from asterism.errors import ToolError
from asterism.tools.addresses import Allowed
from asterism.tools.web.fetching import Fetched

Format = Literal["md", "html", "text"]
PAGE = 10_000
"""Characters in one result."""
KEPT_FOR = 300_000
"""Milliseconds."""
_MOST_PAGES = 64
_MOST_CHARACTERS = 20_000_000
_MOST_READERS = 1_000
_HEAD = 100_000
_TITLE = re.compile(r"<title[^>]{0,200}>([^<]{1,1000})", re.IGNORECASE)
# A picture inside of the page's text is a wall of letters to a model.
_PICTURE = re.compile(r"!\[[^\]\n]{0,500}\]\(data:[^)\s]*\)")


def shown_as(page: Fetched, form: Format) -> str:
    """Return a page in the form that is asked for."""
    if form == "html" or not page.html:
        return page.text
    return _converted(page, form)


def _converted(page: Fetched, form: Format) -> str:
    try:
        import html_to_markdown
    except ImportError:
        raise ToolError(
            "Pages cannot be turned into Markdown here, since html-to-markdown is not installed. "
            'Fetch with format "html", or tell the owner: pip install html-to-markdown.'
        ) from None
    forms = html_to_markdown.OutputFormat
    options = html_to_markdown.ConversionOptions(
        base_url=page.url,
        extract_metadata=False,
        skip_images=form == "text",
        output_format=forms.PLAIN if form == "text" else forms.MARKDOWN,
    )
    converted: Any = html_to_markdown.convert(page.text, options)
    return _PICTURE.sub("", str(converted.content or "")).strip()


def title_of(page: Fetched) -> str:
    """Return the title of a page, on one line; empty if it has none."""
    found = _TITLE.search(page.text[:_HEAD]) if page.html else None
    return " ".join(html.unescape(found[1]).split())[:200] if found else ""


@dataclass(frozen=True, slots=True)
class _Kept:
    page: Fetched
    until: int


class Pages:
    """Pages that were fetched a moment ago, so that reading on does not fetch them again.

    All of it is kept by reader, an agent among certain people: neither that a page is there already
    nor where others stopped reading is for anybody else to notice.
    """

    def __init__(self) -> None:
        self._pages: OrderedDict[tuple[str, str, Allowed], _Kept] = OrderedDict()
        self._shown: OrderedDict[tuple[str, str, Allowed, str], str] = OrderedDict()
        self._last: OrderedDict[str, tuple[str, int]] = OrderedDict()

    def clear(self) -> None:
        """Drop all pages, and where agents read, since something was forgotten."""
        self._pages.clear()
        self._shown.clear()
        self._last.clear()

    def get(self, reader: str, address: str, allowed: Allowed, now: int) -> Fetched | None:
        """Return a page that was fetched within the last minutes."""
        kept = self._pages.get((reader, address, allowed))
        if kept is None or not kept.until - KEPT_FOR <= now < kept.until:
            return None
        self._pages.move_to_end((reader, address, allowed))
        return kept.page

    def put(self, reader: str, address: str, allowed: Allowed, page: Fetched, now: int) -> None:
        """Keep a page for a while."""
        self._pages[reader, address, allowed] = _Kept(page, now + KEPT_FOR)
        self._pages.move_to_end((reader, address, allowed))
        self._shown = OrderedDict(
            (key, text)
            for key, text in self._shown.items()
            if key[:3] != (reader, address, allowed)
        )
        while len(self._pages) > _MOST_PAGES or self._size() > _MOST_CHARACTERS:
            gone, _ = self._pages.popitem(last=False)
            self._shown = OrderedDict(
                (key, text) for key, text in self._shown.items() if key[:3] != gone
            )

    def _size(self) -> int:
        texts = (*(kept.page.text for kept in self._pages.values()), *self._shown.values())
        return sum(map(len, texts)) if len(self._pages) > 1 else 0

    def text(self, reader: str, address: str, allowed: Allowed, page: Fetched, form: Format) -> str:
        """Return a page in a form, converted once."""
        key = (reader, address, allowed, form)
        if key not in self._shown:
            self._shown[key] = shown_as(page, form)
        return self._shown[key]

    def went_to(self, reader: str, address: str, place: int) -> None:
        """Note where somebody reads."""
        self._last[reader] = (address, place)
        self._last.move_to_end(reader)
        while len(self._last) > _MOST_READERS:
            self._last.popitem(last=False)

    def last(self, reader: str) -> tuple[str, int] | None:
        """Return the address that somebody has read last, and where they would read on."""
        return self._last.get(reader)
