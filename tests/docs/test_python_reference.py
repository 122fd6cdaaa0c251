"""The page on the Python API and the public names agree."""

from __future__ import annotations

import inspect
import pkgutil
import re
from functools import cached_property
from importlib import import_module
from pathlib import Path

import asterism
import asterism.app
from asterism import Home

PAGE = (Path(__file__).parents[2] / "docs/reference/python.md").read_text("utf-8")
NAMED = set(re.findall(r"`(\w+)", PAGE))


def test_every_public_name_is_on_the_page() -> None:
    assert set(asterism.__all__) <= NAMED
    assert all(getattr(asterism, name) is not None for name in asterism.__all__)


def test_every_verb_of_every_noun_is_on_the_page() -> None:
    verbs = {
        name
        for module in pkgutil.iter_modules(asterism.app.__path__)
        for noun in vars(import_module(f"asterism.app.{module.name}")).values()
        if inspect.isclass(noun) and noun.__module__.startswith("asterism.app.")
        for name, value in vars(noun).items()
        if not name.startswith("_") and hasattr(value, "verb")
    }
    assert len(verbs) > 60
    assert verbs - NAMED == set()


def test_every_noun_of_a_home_is_on_the_page() -> None:
    nouns = {name for name, value in vars(Home).items() if isinstance(value, cached_property)}
    assert len(nouns) > 15
    assert nouns - NAMED == set()


def test_what_a_user_writes_comes_from_the_package_itself() -> None:
    root = Path(__file__).parents[2]
    pages = [root / "README.md", *sorted((root / "docs").rglob("*.md"))]
    pages += sorted((root / "examples").rglob("*.py"))
    deeper = {
        f"{page.relative_to(root)}: {line.strip()}"
        for page in pages
        if "adr" not in page.parts
        for line in page.read_text("utf-8").splitlines()
        if re.match(r"\s*(from|import) asterism\.(?!testing\b)", line)
    }
    assert deeper == set()
