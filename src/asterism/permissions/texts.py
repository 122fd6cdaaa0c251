"""Texts compared: in one plain form, as an eye reads them, and whether one stands in another.

*Does a trusted text say this?* is answered in the plain form: letters that merely look alike do not
count. *Did an untrusted text bring this in?* is answered as an eye reads: look-alikes, invisible
characters and spaces within a word do not hide it. So each error falls to the side of asking.
"""

from __future__ import annotations

import re
import unicodedata

_ALIKE = str.maketrans(
    "авеёзікмнорсуухѕјԁԛԝһӏαβεικνορτυχ",
    "aBee3iKMHopcyyxsjdqwhlaBeiKvoptux".casefold(),
)
"""Cyrillic and Greek letters that are drawn like Latin ones."""
_SQUEEZED = str.maketrans("", "", " \t\r\n-\u00a0\u2010\u2011\u2013'\"")
_JOINS = frozenset("@._+-/")
"""Signs that make one name of what stands on both sides."""
_FOREIGN = re.compile(r"[^\x00-\x7f]+")
_UNSEEN = frozenset({"Cf", "Mn", "Me"})
_SENTENCES = re.compile(r"(?<=[.!?。！？؟])\s*|[\r\n]+")
_MARKS = " \t\"'“”„«»*-–—•.,;:!?。！？؟()"


def plain(text: str) -> str:
    """Return a text with one kind of spaces and without capitals."""
    if not text.isascii():
        text = unicodedata.normalize("NFC", text)
    return " ".join(text.casefold().split())


def as_seen(text: str) -> str:
    """Return a text as an eye reads it."""
    if not text.isascii():
        text = _FOREIGN.sub(_look, text)
    return " ".join(text.casefold().split())


def _look(run: re.Match[str]) -> str:
    folded = unicodedata.normalize("NFKD", run.group()).casefold().translate(_ALIKE)
    return "".join(char for char in folded if unicodedata.category(char) not in _UNSEEN)


def squeezed(text: str) -> str:
    """Return a text without the spaces and dashes by which numbers are grouped."""
    return text.translate(_SQUEEZED)


def stands_in(name: str, text: str) -> bool:
    """Tell whether a name stands in a text as a whole, and not as a part of another name."""
    at = text.find(name) if name else -1
    while at >= 0:
        end = at + len(name)
        if not _goes_on(text, at - 1, -1, name[0]) and not _goes_on(text, end, 1, name[-1]):
            return True
        at = text.find(name, at + 1)
    return False


def _goes_on(text: str, at: int, step: int, edge: str) -> bool:
    """Tell whether the name that ends with `edge` goes on at a place of the text."""
    if not 0 <= at < len(text):
        return False
    if text[at].isalnum():
        # Scripts without spaces set names and other words side by side.
        return not (_is_unspaced(text[at]) or _is_unspaced(edge))
    beyond = at + step
    return text[at] in _JOINS and 0 <= beyond < len(text) and text[beyond].isalnum()


def _is_unspaced(char: str) -> bool:
    return (
        "\u2e80" <= char <= "\ud7ff" or "\uf900" <= char <= "\ufaff" or "\u0e00" <= char <= "\u0eff"
    )


def is_quoted_from(text: str, said: str) -> bool:
    """Tell whether somebody has said every sentence of a text, word by word."""
    there = plain(said)
    parts = [plain(one).strip(_MARKS) for one in _SENTENCES.split(text)]
    parts = [one for one in parts if one]
    return bool(parts) and all(stands_in(one, there) for one in parts)


def excerpt(needle: str, text: str, around: int = 60) -> str:
    """Return the place in a text where a needle stands, or its beginning."""
    at = text.casefold().find(needle.casefold()) if needle else -1
    start = max(0, at - around) if at >= 0 else 0
    end = (at + len(needle) if at >= 0 else 0) + around
    cut = " ".join(text[start:end].split())
    return f"{'…' if start else ''}{cut}{'…' if end < len(text) else ''}"
