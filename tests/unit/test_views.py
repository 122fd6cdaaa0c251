"""The JSON shapes that the command line and the API share."""

from dataclasses import dataclass
from enum import Enum
from typing import Any

import pytest

from asterism.errors import NotFound
from asterism.memory.schemas import read_schema
from asterism.types.agents import OWNER_ONLY, Audience
from asterism.views import page_of, problem, problem_of, view


class Colour(Enum):
    RED = "red"


@dataclass(frozen=True, slots=True)
class Thing:
    audience: Audience
    colour: Colour
    raw: bytes
    inner: Any = None


def test_a_value_of_any_type_has_a_shape():
    thing = Thing(OWNER_ONLY, Colour.RED, b"\x00\xff", {1: [Thing(OWNER_ONLY, Colour.RED, b"")]})
    assert view(thing) == {
        "audience": "owner",
        "colour": "red",
        "raw": "AP8=",
        "inner": {
            "1": [{"audience": "owner", "colour": "red", "raw": "", "inner": None}],
        },
    }
    assert view((True, 1.5, None, "text")) == [True, 1.5, None, "text"]


def test_a_schema_has_the_form_that_it_is_written_in():
    assert view(read_schema("tasks"))["kind"] == "list"


@pytest.mark.promise("X5")
def test_a_problem_says_what_kind_it_is_and_what_happened_without_secrets(
    monkeypatch: pytest.MonkeyPatch,
):
    def redact(text: str) -> str:
        return text.replace("sk-verysecretkey", "[key]")

    monkeypatch.setattr("asterism.telemetry.redaction.redact", redact)
    found = problem(NotFound("There is no key sk-verysecretkey. Store one. Nothing was done."))
    assert (found["type"], found["title"]) == ("not-found", "The name or id is not known")
    assert "verysecret" not in found["detail"]
    assert found["detail"].endswith("Nothing was done.")
    assert "verysecret" not in problem_of("usage", "Usage", "sk-verysecretkey")["detail"]


def test_a_page_that_is_full_names_where_the_next_begins():
    assert page_of(["a", "b"], 2, str.upper).next == "B"
    assert page_of(["a"], 2, str.upper).next is None
    assert page_of([], 2, str.upper).items == []
