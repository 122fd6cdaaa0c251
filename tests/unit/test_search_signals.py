"""Signals of texts: their weighted sum is the same, however it is reckoned."""

from __future__ import annotations

import random

import numpy as np
import pytest

from asterism.memory.words import words
from asterism.search.query import read as read_question
from asterism.search.query import terms_of
from asterism.search.signals import ConversationView, Similarity, signals, weights
from asterism.search.texts import IndexedText, analyze, make_texts

_AT = 1_750_000_000_000
_WORDS = [
    "river",
    "bridge",
    "lantern",
    "harbour",
    "orchard",
    "copper",
    "violin",
    "winter",
    "saddle",
    "pepper",
]


def _signals(
    count: int, sessions: int, asked: str, *, rare: bool
) -> tuple[ConversationView, dict[str, list[int]]]:
    dice = random.Random(count * 7 + sessions)
    placed: list[IndexedText] = []
    where: dict[str, list[int]] = {}
    for number in range(count):
        select_texts = dice.choices(_WORDS[3:] if rare else _WORDS, k=8)
        if rare and number % 97 == 5:
            select_texts[0] = "lantern"
        text = " ".join(select_texts) + dice.choice(["?", "."])
        for term in set(terms_of(words(text))) & set(terms_of(words(asked))):
            where.setdefault(term, []).append(number)
        pause = 3 * 3_600_000 * (number * sessions // count)
        found = analyze(text, _AT)
        placed.append(
            IndexedText(number + 1, _AT + pause, ("owner", "agent")[number % 2], "", "", found)
        )
    return ConversationView(make_texts(placed)), where


@pytest.mark.parametrize("encoded", [False, True])
@pytest.mark.parametrize(
    ("count", "sessions", "rare"), [(1, 1, False), (2, 1, False), (60, 4, False), (900, 9, True)]
)
def test_the_sum_of_signals_is_that_of_their_columns(
    count: int, sessions: int, rare: bool, encoded: bool
):
    asked = "When did you say that the lantern is by the river?"
    view, where = _signals(count, sessions, asked, rare=rare)
    places = {
        term: (np.array(rows, dtype=np.int32), np.ones(len(rows), dtype=np.float32))
        for term, rows in where.items()
    }
    chance = np.random.default_rng(3)
    near = Similarity(
        chance.random(count, dtype=np.float32),
        chance.random(count, dtype=np.float32) if encoded else None,
        chance.random(count) > 0.2 if encoded else None,
    )
    question = read_question(asked, {}, "owner", "agent", _AT)
    found = signals(view, question, places, near, ["owner", "agent"])
    assert (found.lexical.near is not None) == rare
    select_texts = weights()["with" if encoded else "without"]
    columns = found.columns()
    assert set(select_texts) <= set(columns)
    one_by_one = sum(
        (columns[name].astype(np.float64) * weight for name, weight in select_texts.items()),
        np.zeros(count),
    )
    assert np.allclose(found.summed(select_texts), one_by_one, atol=2e-3)
