"""What a text looks like to a ranking."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asterism.search.texts import has_number, names_place, states_wish

YES: dict[Callable[[str], bool], list[str]] = {
    has_number: ["I have 3 cats", "we own three boats", "Twice a day", "route 66", "10km"],
    names_place: ["We ate in Rome", "I moved to the Hague", "she is from Peru", "near Lake Erie"],
    states_wish: [
        "Always answer in French.",
        "Never call me at work",
        "Thanks! Please always add a source.",
        "Give the unit when I ask about lengths",
        "From now on, keep it short",
        "I prefer tea over coffee, can you help me choose?",
        "I\u2019d rather walk",
        "I really prefer short answers",
        "please don't use emoji",
        "My preferred editor is vim",
    ],
}
NO: dict[Callable[[str], bool], list[str]] = {
    has_number: ["", "I have a cat", "often", "someone"],
    names_place: ["", "we ate in silence", "to I know not what", "Rome", "In short, no"],
    states_wish: [
        "",
        "I have always lived here",
        "you never know",
        "Do you prefer tea?",
        "I like it",
    ],
}


@pytest.mark.promise("M6")
@pytest.mark.parametrize(("tell", "text"), [(one, text) for one in YES for text in YES[one]])
def test_text_that_looks_like_it(tell: Callable[[str], bool], text: str) -> None:
    assert tell(text)


@pytest.mark.parametrize(("tell", "text"), [(one, text) for one in NO for text in NO[one]])
def test_text_that_does_not(tell: Callable[[str], bool], text: str) -> None:
    assert not tell(text)


@given(st.text())
def test_any_text_has_an_answer(text: str) -> None:
    for tell in YES:
        assert tell(text) in (True, False)
