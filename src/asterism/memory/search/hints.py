"""What a text looks like, as far as that tells which kind of question it may answer."""

from __future__ import annotations

import re

from asterism.memory.words import word_set

_MOST_READ = 2_000
_LONGEST_WISH = 600
"""A wish for the answers to come is looked for in so many characters from the beginning."""

_PLAIN = bytes(
    ord(chr(one).lower()) if one < 128 and chr(one).isalnum() else ord(" ") for one in range(256)
)


def _bytes(words: str) -> frozenset[bytes]:
    return frozenset(one.encode() for one in word_set(words))


def plain_words(text: str) -> list[bytes]:
    """Return the words of a text in lower case, as far as they are letters and digits of ASCII.

    A split of bytes is several times faster than any pattern, so it goes before one.
    """
    return text.encode("ascii", "replace").translate(_PLAIN).split()


_NUMBER_WORDS = _bytes(
    "two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen"
    " seventeen eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety hundred"
    " hundreds thousand thousands million dozen dozens half twice triple couple several"
)
_DIGIT = re.compile(r"\d")


def has_number(text: str) -> bool:
    """Tell whether a text has a number, in figures or in words."""
    if _DIGIT.search(text, 0, _MOST_READ):
        return True
    return not _NUMBER_WORDS.isdisjoint(plain_words(text[:_MOST_READ]))


_PLACE = re.compile(r"\b(?:in|at|to|from|near|around|visit(?:ed|ing)?) (?:the )?(?!I\b)[A-Z][a-z]")


def names_place(text: str) -> bool:
    """Tell whether a text names somewhere, as far as `in Rome` does."""
    return _PLACE.search(text, 0, _MOST_READ) is not None


_WISH_WORDS = _bytes(
    "always never whenever ask sure ensure remember now prefer preference preferred rather like"
    " want please"
)
"""One of these is in every wish."""
_WISH = re.compile(
    r"(?:^|[.!?;:\n]\s*)(?:(?:please|and|so|also|but)[\s,]+)*(?:always|never|whenever|remember\s+to|"
    r"make\s+sure|ensure)\b|\b(?:when(?:ever)?|if|every\s+time)\s+i\s+ask\b|\bfrom\s+now\s+on\b|"
    r"\bi\s+(?:\w+\s+)?prefer\b|\bi(?:['\u2019]d|\s+would)\s+(?:rather|prefer|like\s+you)\b|"
    r"\bi\s+want\s+you\s+to\b|\bplease\s+(?:always|never|use|include|keep|avoid|don['\u2019]t|do\s+not)\b|"
    r"\bmy\s+prefer(?:ence|red)\b"
)


def states_wish(text: str) -> bool:
    """Tell whether a text says how its speaker wants things: `Always …`, `I prefer …`."""
    text = text[:_LONGEST_WISH]
    return not _WISH_WORDS.isdisjoint(plain_words(text)) and bool(_WISH.search(text.lower()))
