"""The page on the Python API and the public names agree."""

from __future__ import annotations

import re
from functools import cached_property
from pathlib import Path
from typing import cast

import pytest

import asterism
from asterism import Home
from tests.scenes import open_home

PAGE = (Path(__file__).parents[2] / "docs/reference/python.md").read_text("utf-8")
NAMED = set(re.findall(r"`(\w+)", PAGE))


def test_every_public_name_is_on_the_page() -> None:
    assert set(asterism.__all__) <= NAMED
    assert all(getattr(asterism, name) is not None for name in asterism.__all__)


def rows_of(noun: str) -> str:
    """Return the rows of the page whose first cell names a noun."""
    rows = (line for line in PAGE.splitlines() if line.startswith("|"))
    return "\n".join(row for row in rows if re.search(rf"`{noun}\b", row.split("|")[1]))


@pytest.mark.parametrize(
    "noun", [name for name, value in vars(Home).items() if isinstance(value, cached_property)]
)
async def test_every_verb_of_a_noun_is_in_its_row(noun: str, tmp_path: Path) -> None:
    async with open_home(tmp_path, work=False) as home:
        members: dict[str, object] = dict(vars(cast("type[object]", type(getattr(home, noun)))))
    verbs = {name for name, value in members.items() if hasattr(value, "verb")} - {"__call__"}
    assert verbs or noun == "search"
    assert rows_of(noun)
    assert verbs - set(re.findall(r"`(\w+)", rows_of(noun))) == set()


def test_every_noun_of_a_home_is_on_the_page() -> None:
    nouns = {name for name, value in vars(Home).items() if isinstance(value, cached_property)}
    assert len(nouns) > 15
    assert nouns - NAMED == set()


def test_every_kind_of_signal_is_in_the_table() -> None:
    kinds = set(re.findall(r"`(\w+)`", asterism.Signal.__doc__ or ""))
    rows = re.findall(r"^\|([^|]*)\|", PAGE.partition("## Signals")[2], re.MULTILINE)
    assert kinds > {"text", "ended", "member"}
    assert kinds | {"kind"} == set(re.findall(r"`(\w+)`", "".join(rows[:16])))


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
