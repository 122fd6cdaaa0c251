"""The reference of errors names every code, and no other."""

import re
from collections.abc import Iterator
from pathlib import Path

from asterism.cli.commands import TITLES
from asterism.errors import AsterismError

PAGE = (Path(__file__).parents[2] / "docs/reference/errors.md").read_text(encoding="utf-8")
ROW = re.compile(
    r"^\| `(?P<code>[\w.-]+)` \| (?P<example>[^|]+) \| (?P<move>[^|]+) \|$", re.MULTILINE
)


def kinds(kind: type[AsterismError] = AsterismError) -> Iterator[type[AsterismError]]:
    yield kind
    for inner in kind.__subclasses__():
        if inner.__module__ == "asterism.errors":
            yield from kinds(inner)


def rows(text: str) -> list[str]:
    return [row["code"] for row in ROW.finditer(text)]


def test_every_code_is_documented_once_and_in_the_order_of_the_tree() -> None:
    shared, _, _ = PAGE.partition("## Of the command line alone")
    assert rows(shared) == [kind.code for kind in kinds()]


def test_codes_of_the_command_line_are_documented() -> None:
    _, _, own = PAGE.partition("## Of the command line alone")
    assert rows(own) == list(TITLES)


def test_codes_are_unique_and_each_kind_says_what_it_is() -> None:
    codes = [kind.code for kind in kinds()]
    assert len(codes) == len(set(codes))
    assert all((kind.__doc__ or "").strip().endswith(".") for kind in kinds())


def test_every_example_is_a_sentence_with_a_next_move() -> None:
    for row in ROW.finditer(PAGE):
        assert row["example"].strip().endswith((".", "?")), row[0]
        assert row["move"].strip(), row[0]
