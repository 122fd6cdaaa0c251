"""Context: the frozen prefix and what is in it."""

from dataclasses import replace

import orjson

from asterism import Agent
from asterism.agents.context import Section, prefix_wire, sections_of

ARIA = Agent("agent_1", "aria", "a:b", "Be aria.", 0)


def content(sections: list[Section]) -> str:
    return orjson.loads(prefix_wire(sections))["content"]


def test_the_prefix_is_the_sections_in_order_and_the_same_each_time():
    sections = sections_of(ARIA)
    assert [one.name for one in sections] == ["system", "notes"]
    assert all(one.why for one in sections)
    assert content(sections).startswith("Be aria.\n\nMessages that begin with [asterism]")
    assert prefix_wire(sections) == prefix_wire(sections_of(ARIA))


def test_an_agent_without_tools_is_not_told_about_calls():
    assert content(sections_of(replace(ARIA, tools=()))) == "Be aria."


def test_an_empty_section_leaves_no_trace():
    assert content(sections_of(replace(ARIA, system="  ", tools=()))) == ""
