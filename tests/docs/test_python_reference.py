"""The page on the Python API and the public names agree."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import asterism
from asterism import Asterism

PAGE = (Path(__file__).parents[2] / "docs/reference/python.md").read_text("utf-8")
NAMED = set(re.findall(r"`(\w+)", PAGE))


def test_every_public_name_is_on_the_page() -> None:
    assert set(asterism.__all__) <= NAMED


def test_every_verb_is_on_the_page() -> None:
    verbs = {
        name
        for part in Asterism.__mro__[:-1]
        for name, value in vars(part).items()
        if not name.startswith("_") and inspect.isroutine(value)
    }
    verbs -= {"follow_configuration"}  # for processes with a terminal of their own
    assert verbs - NAMED == set()
