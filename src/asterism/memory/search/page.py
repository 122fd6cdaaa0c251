"""The page of a search that is shown: hits with their reasons, and their neighbours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from asterism.memory.search.hits import Shown, matched
from asterism.memory.search.looking import ALIKE, ALIKE_ENCODED, DATED, Looking, Ranked, Why
from asterism.times import days_text
from asterism.types.search import Found, Hit, Neighbour, Reason, ReasonKind

if TYPE_CHECKING:
    from numpy.typing import NDArray

_PHRASED = 400
"""How many of the best texts are read for the very words in quotes."""
_PAGE = 100
_GAPS = 20
"""How many texts beside a hit may be there no more without a neighbour being missed."""


async def page(looking: Looking, ranked: Ranked) -> Found:
    """Read the page of hits that the query asks for."""
    query, reader = looking.query, looking.reader
    wanted = query.offset + query.limit
    if looking.question.phrases and ranked.why is not None:
        ranked = await _phrases_first(looking, ranked)
    shown: list[tuple[int, Shown]] = []
    gone = 0
    first, size = 0, wanted + 2
    while first < len(ranked.rows) and len(shown) <= wanted:
        rows: list[int] = ranked.rows[first : first + size].tolist()
        first, size = first + len(rows), _PAGE
        texts = await reader.read([looking.held.spot(row) for row in rows])
        for row, text in zip(rows, texts, strict=True):
            if text is None:
                gone += 1
            else:
                shown.append((row, text))
        if first >= len(ranked.rows) and len(shown) <= wanted:
            ranked = _with_the_rest(looking, ranked)
    page = shown[query.offset : wanted]
    hits = [_hit(looking, ranked, row, text) for row, text in page]
    if query.neighbours:
        hits = [await _among(looking, hit, row) for hit, (row, _) in zip(hits, page, strict=True)]
    return Found(hits, ranked.total - gone, len(shown) > wanted, ranked.notes)


def _with_the_rest(looking: Looking, ranked: Ranked) -> Ranked:
    """Return all that was found in order, where so many of the best are no more that it counts."""
    import numpy as np

    if ranked.unordered is None or len(ranked.unordered) == len(ranked.rows):
        return ranked
    left = np.setdiff1d(ranked.unordered, ranked.rows, assume_unique=True)
    rest = looking.ordered(left, ranked.scores, len(left))
    return replace(ranked, rows=np.concatenate([ranked.rows, rest]))


async def _phrases_first(looking: Looking, ranked: Ranked) -> Ranked:
    """Put texts with the very words that stand in quotes before the others."""
    import numpy as np

    rows = ranked.rows[:_PHRASED]
    texts = await looking.reader.read([looking.held.spot(int(row)) for row in rows])
    exact = [
        text is not None and all(_has(text.text, one) for one in looking.question.phrases)
        for text in texts
    ]
    if not any(exact):
        return ranked
    order = np.argsort(~np.array(exact), kind="stable")
    return replace(ranked, rows=np.concatenate([rows[order], ranked.rows[_PHRASED:]]))


def _has(text: str, phrase: str) -> bool:
    return " ".join(phrase.split()).casefold() in " ".join(text.split()).casefold()


def _hit(looking: Looking, ranked: Ranked, row: int, text: Shown) -> Hit:
    question = looking.question
    names = () if text.speaker else question.names
    found = matched(text.text, frozenset((*question.terms, *names)), question.prefixes)
    return Hit(
        text.kind,
        text.id,
        text.text,
        round(float(ranked.scores[row]), 4),
        _reasons(looking, ranked, row, text, found),
        text.at,
        text.source,
        text.agent_id,
        text.speaker,
        text.where,
        found,
    )


def _reasons(
    looking: Looking, ranked: Ranked, row: int, text: Shown, found: Sequence[str]
) -> tuple[Reason, ...]:
    question = looking.question
    if ranked.why is None:
        return (Reason(ReasonKind.NEWEST),)
    phrases = [
        Reason(ReasonKind.PHRASE, f"\u201c{one}\u201d")
        for one in question.phrases
        if _has(text.text, one)
    ]
    return (
        *phrases,
        *_by_words(looking, ranked.why, row, found),
        *_by(looking, ranked.why, row, text),
    )


def _by_words(looking: Looking, why: Why, row: int, found: Sequence[str]) -> list[Reason]:
    prefixes = looking.question.prefixes
    begun = [one for one in found if _is_prefixed(one, prefixes)]
    plain = [one.lower() for one in found if not _is_prefixed(one, prefixes)]
    reasons: list[Reason] = []
    if begun:
        reasons.append(Reason(ReasonKind.PREFIX, ", ".join(dict.fromkeys(begun))))
    if plain:
        reasons.append(Reason(ReasonKind.WORDS, ", ".join(dict.fromkeys(plain))))
    elif why.covered[row] > 0 and not found:
        reasons.append(Reason(ReasonKind.WORDS, "those of its neighbours"))
    return reasons


def _by(looking: Looking, why: Why, row: int, text: Shown) -> list[Reason]:
    """Return the reasons besides words: meaning, time, and who said it."""
    question = looking.question
    reasons: list[Reason] = []
    static = float(why.static[row])
    near = -1.0 if why.encoded is None else float(why.encoded[row])
    if static >= ALIKE or near >= ALIKE_ENCODED:
        reasons.append(Reason(ReasonKind.MEANING, f"{max(static, near):.2f}"))
    if question.span is not None and why.dated is not None and why.dated[row] >= DATED:
        reasons.append(Reason(ReasonKind.DATE, days_text(*question.span)))
    if why.spoken is not None and why.spoken[row] > 0 and text.speaker:
        reasons.append(Reason(ReasonKind.SPEAKER, text.speaker))
    return reasons


def _is_prefixed(word: str, prefixes: Sequence[str]) -> bool:
    return any(word.casefold().startswith(one) for one in prefixes)


async def _among(looking: Looking, hit: Hit, row: int) -> Hit:
    """Return a hit with what comes before and after it in its conversation or document."""
    import numpy as np

    held, most = looking.held, looking.query.neighbours
    texts = held.texts
    at = max(number for number, start in enumerate(held.starts) if start <= row)
    end = held.starts[at + 1] if at + 1 < len(held.starts) else len(texts)
    start = held.starts[at]
    same = start + np.flatnonzero(texts.thread[start:end] == texts.thread[row])
    if looking.heard is not None:
        same = same[looking.heard[same]]
    place = int(np.searchsorted(same, row))
    reach = most + _GAPS
    before = await _neighbours(looking, same[max(0, place - reach) : place])
    after = await _neighbours(looking, same[place + 1 : place + 1 + reach])
    return replace(hit, before=before[-most:], after=after[:most])


async def _neighbours(looking: Looking, rows: NDArray[Any]) -> tuple[Neighbour, ...]:
    spots = [looking.held.spot(int(row)) for row in rows]
    shown = await looking.reader.read(spots, tagged=False)
    return tuple(
        Neighbour(one.id, one.text, one.at, one.speaker, one.source)
        for one in shown
        if one is not None
    )
