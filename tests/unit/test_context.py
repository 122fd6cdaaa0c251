"""Context: the frozen prefix and what is in it."""

from dataclasses import replace

import orjson
import pytest

from asterism import AgentRecord
from asterism.turns.context import (
    Section,
    VisibleMemory,
    prefix_wire,
    read_sections,
    sections_of,
    sections_wire,
)
from asterism.types.agents import OWNER_ALONE, Trust
from asterism.types.turns import NoteMeta

ARIA = AgentRecord("agent_1", "aria", "a:b", "Be aria.", 0)


def sections(agent: AgentRecord = ARIA, people: str = "") -> list[Section]:
    return sections_of(agent, OWNER_ALONE, VisibleMemory((), people), budget_tokens=1_000)[0]


def content(given: list[Section], *, compact: bool = False) -> str:
    return orjson.loads(prefix_wire(given, compact=compact))["content"]


def test_the_prefix_is_the_sections_in_order_and_the_same_each_time():
    given = sections(people="Present: anna.")
    assert [one.name for one in given if one.full] == ["system", "notes", "people"]
    assert all(one.why for one in given)
    assert content(given).startswith("Be aria.\n\nMessages that begin with [asterism]")
    assert content(given).endswith("\n\nPresent: anna.")
    assert prefix_wire(given) == prefix_wire(sections(people="Present: anna."))


def test_a_small_model_gets_short_notes():
    assert len(content(sections(), compact=True)) < len(content(sections()))


def test_sections_are_kept_as_they_are():
    assert read_sections(sections_wire(sections())) == sections()


def test_an_agent_without_tools_is_not_told_about_calls():
    assert content(sections(replace(ARIA, tools=()))) == "Be aria."


def test_an_empty_section_leaves_no_trace():
    assert content(sections(replace(ARIA, system="  ", tools=()))) == ""


@pytest.mark.parametrize(
    ("note", "stored"),
    [
        (NoteMeta(), None),
        (NoteMeta("it is about time"), '{"why":"it is about time"}'),
        (
            NoteMeta("quoted", ("turn_1#2",), ("recall",), Trust.WEB),
            '{"why":"quoted","origins":["turn_1#2"],"replaces":["recall"],"trust":"web"}',
        ),
    ],
)
def test_a_note_comes_back_from_rest_with_all_that_is_known_of_it(
    note: NoteMeta, stored: str | None
) -> None:
    assert note.to_json() == stored
    assert NoteMeta.from_json(stored) == note
