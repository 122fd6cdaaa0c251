"""What of a text is handed to an encoder: its sentences in pieces of a size that models take in."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import regex

MOST_PIECES = 4
"""What comes later in a text changes the mean of its pieces little, and costs as much."""
_MOST_WORDS = 90
_MOST_CHARACTERS = 16_000
_SENTENCE_END = re.compile(r"(?<=[.!?:])\s+|(?<=[。！？])|\n+")
_SPACES = re.compile(r"[^\S\n]+")
# Where words are not told apart by spaces, a model reads about a sign at a time.
_WORD = regex.compile(r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]|\w+")


def pieces(text: str) -> list[str]:
    """Return the parts of a text that are encoded; its vector is the mean of theirs."""
    found: list[str] = []
    held: list[str] = []
    size = 0
    for sentence, words in _sentences(text[:_MOST_CHARACTERS]):
        if held and size + words > _MOST_WORDS:
            found.append(" ".join(held))
            held, size = [], 0
            if len(found) == MOST_PIECES:
                return found
        held.append(sentence)
        size += words
    if held:
        found.append(" ".join(held))
    return found[:MOST_PIECES]


def without(names: Iterable[str], text: str) -> str:
    """Return a text without the names of speakers: who said it is asked apart from what was."""
    # Few of many names are in a text, and to look for them so is quick.
    folded = text.casefold()
    wanted = {one for one in names if one.strip() and one.casefold() in folded}
    if wanted:
        joined = "|".join(map(re.escape, sorted(wanted, key=len, reverse=True)))
        text = re.sub(rf"(?<!\w)(?:{joined})(?:['’]s)?(?!\w)", "", text, flags=re.IGNORECASE)
    return _SPACES.sub(" ", text).strip()


def _sentences(text: str) -> Iterator[tuple[str, int]]:
    """Yield sentences with the number of their words; a very long one comes in several parts."""
    for sentence in _SENTENCE_END.split(text):
        clean = " ".join(sentence.split())
        starts = [match.start() for match in _WORD.finditer(clean)]
        for first in range(0, len(starts), _MOST_WORDS):
            some = starts[first : first + _MOST_WORDS + 1]
            begin = some[0] if first else 0
            end = some[-1] if len(some) > _MOST_WORDS else len(clean)
            yield clean[begin:end].strip(), min(len(some), _MOST_WORDS)
        if clean and not starts:
            yield clean, 1
