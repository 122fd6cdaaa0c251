"""Words of a text in any script, and the digest by which two writings of one text are the same."""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from hashlib import sha256


def word_set(text: str) -> frozenset[str]:
    """Return the words of a list that is written as one text."""
    return frozenset(text.split())


STOP_WORDS = word_set(
    "a an the this that these those and or but so as if of to in on at by for from with about"
    " into is are was were be been being am 's do does did has have had will would shall it"
    " its he she they them his her their i me my we us our you your there here then than too"
    " very just also really quite some any again"
)
"""English words that say little by themselves; negations are not among them."""

# Scripts that are written without spaces between words.
_UNSPACED = (
    "\u0e00-\u0eff"  # Thai, Lao
    "\u1000-\u109f\u1780-\u17ff"  # Burmese, Khmer
    "\u1100-\u11ff\uac00-\ud7af"  # Hangul: spaced, but the particles hang on the nouns
    "\u3005\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    "\U00020000-\U0003ffff"
)
_NUMBER = r"(?<![^\W\d])[-\u2212]?\d+(?:[.,:/\-]\d+)*"
_ASCII = re.compile(
    rf"(?<!\S){_NUMBER}|\d+(?:[.,:/\-]\d+)*|[a-z](?:[a-z0-9]|'(?=[a-z]))*[+#]*|[$%]"
)
_APOSTROPHES = str.maketrans({"\u2019": "'", "\u02bc": "'", "\u2018": "'", "\u2212": "-"})
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")


def words(text: str) -> list[str]:
    """Return the words of a text as they are compared: any script, one case, one way to write.

    Numbers keep their points, colons and dashes (`3.5`, `14:30`, `2026-07-04`), signs of money,
    per cent and pictures are words, and what is written without spaces is cut into pairs.
    """
    if text.isascii():
        found = _ASCII.findall(text.lower())
        return [_THOUSANDS.sub("", one) if "," in one else one for one in found]
    plain = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    found: list[str] = []
    hidden, word = _patterns()
    for match in word.finditer(hidden.sub("", plain.translate(_APOSTROPHES))):
        one = match[0]
        if match.lastgroup == "unspaced":
            found.extend(_pairs(one))
        elif "," in one:
            found.append(_THOUSANDS.sub("", one))
        else:
            found.append(one)
    return found


def terms(text: str) -> list[str]:
    """Return the words of a text that carry meaning, plurals and possessives folded."""
    return [fold(one) for one in words(text) if one not in STOP_WORDS]


def fold(word: str) -> str:
    """Return an English word without the ending of a plural, a possessive or a third person."""
    word = word.removesuffix("'s")
    if len(word) < 4 or word[-1] != "s" or not word.isalpha():
        return word
    if word.endswith(("ss", "us", "is", "as", "news")):
        return word
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    if word.endswith(("sses", "shes", "ches", "xes", "zes", "oes")):
        return word[:-2]
    return word[:-1]


def digest(text: str) -> str:
    """Return the SHA-256 of a text's words: equal whatever its spacing, case and punctuation."""
    found = words(text)
    # A text without a word, such as "?!", is known by its characters.
    kept = found or unicodedata.normalize("NFKC", text).split()
    return sha256("\x1f".join(kept).encode("utf-8", "surrogatepass")).hexdigest()


def _pairs(run: str) -> list[str]:
    if len(run) < 3:
        return [run]
    return [run[at : at + 2] for at in range(len(run) - 1)]


@lru_cache(maxsize=1)
def _patterns() -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Return the pattern of signs that show nothing (joiners, directions) and that of a word.

    They are made when first needed, as that looks at every character there is.
    """
    classes = _classes()
    marks, symbols = classes["M"], classes["S"]
    letter = rf"(?:(?![{_UNSPACED}])[^\W\d_])"
    inner = rf"(?:(?![{_UNSPACED}])[^\W_]|[{marks}]|'(?=[^\W\d_]))"
    word = re.compile(
        rf"(?P<unspaced>(?:[{_UNSPACED}][{marks}]*)+)"
        rf"|(?P<number>(?<!\S){_NUMBER}|\d+(?:[.,:/\-]\d+)*)"
        rf"|(?P<word>{letter}{inner}*[+#]*)"
        rf"|(?P<sign>[$%{symbols}])"
    )
    return re.compile(f"[{classes['C']}]+"), word


def _classes() -> dict[str, str]:
    """Return marks, symbols and signs that show nothing in the form of character classes."""
    kinds = {"Mn": "M", "Mc": "M", "Me": "M", "So": "S", "Sc": "S", "Cf": "C"}
    found: dict[str, list[list[int]]] = {"M": [], "S": [], "C": []}
    for code in (*range(0x80, 0x3100), *range(0xA000, 0x10000), *range(0x1F000, 0x1FB00)):
        kind = kinds.get(unicodedata.category(chr(code)))
        if kind is None:
            continue
        ranges = found[kind]
        if ranges and ranges[-1][1] == code - 1:
            ranges[-1][1] = code
        else:
            ranges.append([code, code])
    return {
        kind: "".join(f"{chr(first)}-{chr(last)}" for first, last in ranges)
        for kind, ranges in found.items()
    }
