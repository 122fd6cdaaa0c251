"""Texts compared: in one plain form, as an eye reads them, and whether one stands in another.

*Does a trusted text say this?* is answered in the plain form: letters that merely look alike do not
count. *Did an untrusted text bring this in?* is answered as an eye reads: look-alikes, invisible
characters and spaces within a word do not hide it. So each error falls to the side of asking.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

_ALIKE = str.maketrans(
    "авеёзікмнорсуухѕјԁԛԝһӏαβεικνορτυχ",
    "aBee3iKMHopcyyxsjdqwhlaBeiKvoptux".casefold(),
)
"""Cyrillic and Greek letters that are drawn like Latin ones."""
_SQUEEZED = str.maketrans("", "", " \t\r\n-\u00a0\u2010\u2011\u2013'\"")
_AROUND = "\"'#@ "
_CODE = re.compile(r"[a-z][A-Z]|\d[a-z]+[A-Z]|[A-Z]\d+[a-z]|[a-z]\d+[A-Z]|[A-Z]{2,}[a-z]")
_JOINS = frozenset("@._+-/")
"""Signs that make one name of what stands on both sides."""
_FOREIGN = re.compile(r"[^\x00-\x7f]+")
_UNSEEN = frozenset({"Cf", "Mn", "Me"})
_SENTENCES = re.compile(r"(?<=[.!?。！？؟])\s*|[\r\n]+")
_MARKS = " \t\"'“”„«»*-–—•.,;:!?。！？؟()、"


_RUN_ON = re.compile(r"(?<=[a-z][.!?])(?=[A-Z][a-z])")


def sentences_apart(text: str) -> str:
    """Return a text with the spaces that its author forgot between sentences."""
    return _RUN_ON.sub(" ", text)


def plain(text: str) -> str:
    """Return a text with one kind of spaces and without capitals.

    Not `casefold`, which makes two letters of some: `weiß.example` is not `weiss.example`.
    """
    if not text.isascii():
        text = unicodedata.normalize("NFC", text)
    return " ".join(text.lower().split())


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


def equal(one: str, other: str) -> bool:
    """Tell whether two values are the same, however a number in them is grouped.

    Capitals do not count, but in codes such as `aB3x`, which may differ by nothing else.
    """
    if not same(plain(one), plain(other)):
        return False
    if not (_is_code(one) or _is_code(other)):
        return True
    return squeezed(one.strip(_AROUND)) == squeezed(other.strip(_AROUND))


def same(one: str, other: str) -> bool:
    """Tell whether two values in plain form are the same, however a number in them is grouped."""
    one, other = one.strip(_AROUND), other.strip(_AROUND)
    if one == other:
        return bool(one)
    tight = squeezed(one)
    if len(tight) >= 8 and any(char.isdigit() for char in tight) and tight.isalnum():
        return tight == squeezed(other)
    return False


def _is_code(value: str) -> bool:
    """Tell whether a value has digits and capitals in the middle of a word, as ids and keys do."""
    return "@" not in value and bool(_CODE.search(value)) and any(map(str.isdigit, value))


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
    if not 0 <= at < len(text) or not edge.isalnum():
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


_QUOTED_WORDS = 4
_QUOTED_SIGNS = 5
_LONG_WORD = 5
_PIECE_WORD = re.compile(r"[^\W_]+")
_UNSPACED = re.compile("[\u2e80-\u9fff\uac00-\ud7af\u0e00-\u0e7f0-9]{5,}")


def pieces_of(text: str) -> Iterator[str]:
    """Yield the pieces of a text that tell where it was copied from.

    Some words in a row with at least two long ones; in scripts without spaces, some signs.
    """
    seen = as_seen(text)
    words = _PIECE_WORD.findall(seen)
    long = [len(one) >= _LONG_WORD for one in words]
    for start in range(len(words) - _QUOTED_WORDS + 1):
        end = start + _QUOTED_WORDS
        if sum(long[start:end]) >= 2:
            yield " ".join(words[start:end])
    if seen.isascii():
        return
    for run in _UNSPACED.findall(squeezed(seen)):
        for start in range(len(run) - _QUOTED_SIGNS + 1):
            if not (piece := run[start : start + _QUOTED_SIGNS]).isascii():
                yield piece


def word_count(text: str) -> int:
    """Return how many words a text has; of scripts without spaces, two signs count as one."""
    unspaced = sum(map(_is_unspaced, text))
    return len(text.split()) + unspaced // 2


def tight(text: str) -> str:
    """Return the letters and digits of a text alone, without capitals; digits are ASCII."""
    seen = unicodedata.normalize("NFKC", text) if not text.isascii() else text
    return "".join(_digit(char) for char in seen.casefold() if char.isalnum())


def _digit(char: str) -> str:
    return char if char.isascii() else str(unicodedata.decimal(char, char))


def long_words(text: str) -> frozenset[str]:
    """Return the words of a text that are long enough to tell what it is about."""
    return frozenset(one for one in _PIECE_WORD.findall(as_seen(text)) if len(one) >= _LONG_WORD)


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
