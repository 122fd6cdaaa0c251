"""Dictation: does a text say what was dictated, word by word or in reported speech?"""

from __future__ import annotations

import re
from collections.abc import Sequence

from asterism.permissions.texts import word_count

_MAX_CLOSING = 5
"""Words that may stand behind a dictated text, on one or two lines of their own."""
MARKS = " .,:;!?\"'。！？、।，؛،؟…"
_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")


def is_signature(lines: str, closing: str) -> bool:
    """Tell whether what closes a text stands on one or two lines of its own, and is short."""
    if word_count(closing) > _MAX_CLOSING:
        return False
    last = [line.strip() for line in lines.splitlines() if line.strip(MARKS)]
    ends = (" ".join(last[-count:]).strip(MARKS) for count in (1, 2) if count < len(last))
    return closing in ends


def is_ending(closing: str) -> bool:
    """Tell whether a few signs are a polite ending, in scripts where it is glued to the last word.

    Not one that denies: in Japanese that stands at the end, too.
    """
    signs = closing.strip(MARKS)
    return len(signs) <= 3 and word_count(signs) <= 2 and not signs.isascii() and "な" not in signs


def spread(said: str, parts: Sequence[str]) -> tuple[int, int]:
    """Return from where to where the dictated parts of a text reach."""
    first = min(said.find(one) for one in parts)
    return first, max(said.find(one) + len(one) for one in parts)


def reported(dictated: str, text: str) -> str:
    """Return what of a text says in its own words just what was dictated; empty if nothing does.

    People dictate in reported speech: "tell Lena that the parcel is there". Each word must have a
    counterpart that is the same but for its ending, in any order, and no other word may stand
    among them: it might turn the sense around.
    """
    wanted, words = _WORD.findall(dictated), _WORD.findall(text)
    places: set[int] = set()
    for one in wanted:
        place = next(
            (at for at, word in enumerate(words) if at not in places and inflects(one, word)), None
        )
        if place is None:
            place = _taken_apart(one, words, places)
        if place is None:
            return ""
        places.add(place)
    if not places or len(wanted) < 2:
        return ""
    first, last = min(places), max(places)
    if any(at not in places for at in range(first, last + 1)):
        return ""
    matches = list(_WORD.finditer(text))
    return text[matches[first].start() : matches[last].end()]


def inflects(one: str, other: str) -> bool:
    """Tell whether two words are the same, or the same but for their ending."""
    if one == other:
        return True
    if "'" in one + other or "’" in one + other or any(map(str.isdigit, one + other)):
        return False
    shorter = min(len(one), len(other))
    stem = max(3, -(-2 * shorter // 3))
    return shorter >= 3 and abs(len(one) - len(other)) <= 4 and one[:stem] == other[:stem]


def _taken_apart(one: str, words: Sequence[str], places: set[int]) -> int | None:
    """Find a verb whose first part stands apart: `annehme` as `nehme … an`. Marks both places."""
    for at, word in enumerate(words):
        if at in places or len(word) < 3:
            continue
        for cut in range(2, len(one) - 2):
            if not inflects(one[cut:], word):
                continue
            apart = next(
                (k for k, w in enumerate(words) if w == one[:cut] and k not in places), None
            )
            if apart is not None:
                places.add(apart)
                return at
    return None
