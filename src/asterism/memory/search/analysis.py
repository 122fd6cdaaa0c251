"""What is read from a text once, when it is put on a shelf; a question is read the same way."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from functools import lru_cache

from asterism.memory.search.dates import days_in, has_time_words
from asterism.memory.search.hints import has_number, names_place, states_wish
from asterism.memory.search.texts import WIDTH, Analysed, Flag
from asterism.memory.vectors import NOTHING_READ
from asterism.memory.vectors import read as read_tokens
from asterism.memory.words import word_set, words

LONGEST_TERM = 40
_MOST_CHARACTERS = 200_000
"""Terms of a longer text are those of its beginning."""
_PARTS = re.compile(r"[.,:/\-']")


def analyse(text: str, at: int) -> Analysed:
    """Return what a text is found by; days that it names are counted from the moment `at`."""
    text = text[:_MOST_CHARACTERS]
    found = words(text)
    read = read_tokens(text) or NOTHING_READ
    return Analysed(
        terms=dict(Counter(terms_of(found))),
        words=len(text.split()),
        flags=_flags(text),
        days=days_in(text, at),
        vector=read.vector[:WIDTH],
        weight=read.weight,
        tokens=read.tokens,
        addresses=sum(one in _YOU for one in found),
    )


_YOU = frozenset(("you", "your", "you're", "you've", "you'd", "you'll", "yours"))


def _flags(text: str) -> Flag:
    flags = Flag(0)
    for flag, tells in (
        (Flag.TIME, has_time_words),
        (Flag.DIGIT, has_number),
        (Flag.WISH, states_wish),
        (Flag.PLACE, names_place),
    ):
        if tells(text):
            flags |= flag
    if text.rstrip().endswith(("?", "\uff1f", "\u061f")):
        flags |= Flag.ASKS
    return flags


def terms_of(found: list[str]) -> list[str]:
    """Return the terms of words: those that tell something, by their stems."""
    return [term for one in found for term in _term(one)]


@lru_cache(65_536)
def _term(word: str) -> tuple[str, ...]:
    if word in STOP_WORDS:
        return ()
    if word.isalpha() and word.isascii():
        return (_stemmer()(word)[:LONGEST_TERM],)
    parts = [one for one in _PARTS.split(word) if one]
    if "'" in word and parts[-1] in _ENDINGS:
        # Of "don't" and "we've" nothing is left, of "Anna's" the name.
        return () if parts[0] in _CONTRACTED else _term(parts[0])
    if len(parts) > 1 and parts[0].isalpha():
        # What hangs together by an apostrophe or a dash: each part by itself.
        return tuple(term for one in parts for term in _term(one) if len(one) > 1)
    return (word[:LONGEST_TERM],)


_ENDINGS = word_set("s t re ve ll d m")
_CONTRACTED = word_set(
    "don didn doesn isn aren wasn weren hasn haven hadn won wouldn shouldn couldn can mustn needn"
    " ain let"
)


@lru_cache(1)
def _stemmer() -> Callable[[str], str]:
    from importlib import import_module

    # The library has no types.
    return import_module("Stemmer").Stemmer("english").stemWord


STOP_WORDS = word_set(
    "a an the and or but if of to in on at by for from with as is are was were be been being am do"
    " does did doing done have has had having will would shall should can could may might must i"
    " you he she it we they me him her us them my your his its our their mine yours hers ours"
    " theirs this that these those there here what which who whom whose when where why how than"
    " then so such not no nor only own same too very just about into over under again more most"
    " some any both each few other up out off down during before after above below between because"
    " while until also get got"
)
"""English words that say little by themselves, in questions above all."""
