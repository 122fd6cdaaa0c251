"""The manifest of promises and the marks on the tests agree with each other."""

import ast
import functools
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple

import pytest
from pydantic import BaseModel, ConfigDict, TypeAdapter

TESTS = Path(__file__).parent


class Promise(BaseModel):
    """One entry of requirements.toml."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    text: str
    sources: list[Literal["P", "L", "O", "C", "U"]]
    status: Literal["kept", "partly", "open"]


class Mark(NamedTuple):
    """One id named by one `pytest.mark.promise`; None where it is not written out as a string."""

    place: str
    id: str | None


def promises() -> dict[str, Promise]:
    manifest = tomllib.loads((TESTS / "requirements.toml").read_text(encoding="utf-8"))
    return TypeAdapter(dict[str, Promise]).validate_python(manifest)


def marks_in(source: str, name: str) -> Iterator[Mark]:
    # Reading the source finds the marks of every test, whichever of them this run selected.
    for node in ast.walk(ast.parse(source, name)):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Attribute(attr="mark"), attr="promise")):
                place = f"{name}:{node.lineno}"
                for arg in node.args or [None]:
                    match arg:
                        case ast.Constant(value=str(id)):
                            yield Mark(place, id)
                        case _:
                            yield Mark(place, None)
            case _:
                pass


@functools.cache
def marks() -> list[Mark]:
    return [
        mark
        for path in sorted(TESTS.rglob("*.py"))
        for mark in marks_in(path.read_text(encoding="utf-8"), str(path.relative_to(TESTS)))
    ]


def test_marks_name_their_promises_as_strings():
    assert [mark.place for mark in marks() if mark.id is None] == []


def test_marks_name_promises_that_exist():
    known = promises()
    assert [mark for mark in marks() if mark.id is not None and mark.id not in known] == []


def test_no_open_promise_is_marked():
    known = promises()
    marked = {mark.id for mark in marks() if mark.id is not None}
    still_open = sorted(id for id in marked if id in known and known[id].status == "open")
    assert still_open == [], "these have tests: say `kept` or `partly` in tests/requirements.toml"


def test_each_kept_promise_has_a_test():
    marked = {mark.id for mark in marks()}
    claimed = {id for id, promise in promises().items() if promise.status != "open"}
    assert sorted(claimed - marked) == [], "no test carries @pytest.mark.promise for these"


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("@pytest.mark.promise('T1')\ndef test_a(): ...", ["T1"]),
        ("@pytest.mark.promise('T1', 'T2')\ndef test_a(): ...", ["T1", "T2"]),
        ("pytestmark = [pytest.mark.promise('M3'), pytest.mark.postgres]", ["M3"]),
        ("pytest.param(1, marks=pytest.mark.promise('X5'))", ["X5"]),
        ("@pytest.mark.promise(ID)\ndef test_a(): ...", [None]),
        ("@pytest.mark.promise()\ndef test_a(): ...", [None]),
        ("@pytest.mark.postgres\ndef test_a(): ...", []),
        ("'@pytest.mark.promise(\"T1\")'", []),
    ],
)
def test_marks_are_found_wherever_pytest_takes_them(source: str, found: list[str | None]):
    assert [mark.id for mark in marks_in(source, "test_a.py")] == found
