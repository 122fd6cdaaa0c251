"""Builders: a new agent and a new group by arrow keys, at a real terminal."""

import shlex

import pytest

from tests.e2e.command import Command
from tests.e2e.terminal_scene import (
    BACKSPACE,
    CTRL_C,
    DOWN,
    ENTER,
    ESCAPE,
    RIGHT,
    SPACE,
    UP,
    at_terminal,
)


def test_an_agent_is_built_by_arrow_keys(asterism: Command) -> None:
    asterism.ok("agent", "create", "bob")
    with at_terminal("agent", "create", data=asterism.data) as person:
        person.see("New agent")
        person.press("b", "o", "b")
        person.see("There is an agent named 'bob' already")
        person.press(ENTER)
        person.press(BACKSPACE, BACKSPACE, BACKSPACE, "ari", "a", ENTER, "nonsense")
        person.see("'nonsense' does not name a model")
        person.press(*[BACKSPACE] * 8, "demo:guide", ENTER)
        person.press("You are Aria's friend.", ENTER)
        person.see("[ ] block")
        person.press(SPACE, DOWN, DOWN, SPACE)
        text = person.see("--tool")
        command = text.partition("The same as a command:\n")[2].replace("\n", " ")
        person.press(ENTER)
        person.see("› Create")
        person.press(ENTER)
        person.see("Created aria.")
        assert person.end() == 0
        assert "New agent" not in person.text, "nothing of the form stays"
    (agent,) = [one for one in asterism.json("agent", "list") if one["name"] == "aria"]
    assert agent["model"] == "demo:guide"
    assert agent["system"] == "You are Aria's friend."
    assert len(agent["tools"]) == 2
    again = shlex.split(command)
    assert again[:4] == ["asterism", "agent", "create", "aria"]
    assert again[again.index("--system") + 1] == "You are Aria's friend."


def test_a_group_is_built_with_what_its_pattern_needs(asterism: Command) -> None:
    for name in ("ann", "ben", "cid"):
        asterism.ok("agent", "create", name)
    with at_terminal("group", "create", data=asterism.data) as person:
        person.see("New group")
        person.press("team", ENTER)
        person.see("‹ ")
        for _ in range(8):
            if "‹ supervisor ›" in person.text:
                break
            before = person.text
            person.press(RIGHT)
            person.see(lambda text, old=before: text != old)
        person.see("one leads, and gives tasks to the others")
        person.press(ENTER)
        person.see("[ ] ann")
        person.press(DOWN, SPACE, DOWN, SPACE)
        person.see("2 of 3")
        person.press(ENTER)
        person.see("‹ ben ›")
        person.press(RIGHT)
        person.see("‹ cid ›")
        person.press(ENTER, "helps", ENTER, ENTER)
        person.see("Created team (supervisor) with 2 members.")
        assert person.end() == 0
    group = asterism.json("group", "show", "team")
    assert group["pattern"] == "supervisor"
    assert group["options"]["leader"] == "cid"
    assert [member["name"] for member in group["members"]] == ["ben", "cid"]
    assert group["description"] == "helps"


@pytest.mark.parametrize("key", [ESCAPE, CTRL_C])
@pytest.mark.parametrize("noun", ["agent", "group"])
def test_cancel_leaves_no_trace(asterism: Command, noun: str, key: str) -> None:
    with at_terminal(noun, "create", data=asterism.data) as person:
        person.see(f"New {noun}")
        person.press("x", DOWN, UP, key)
        person.see("Cancelled. Nothing was created.")
        assert person.end() == 130
        assert "New" not in person.text
    assert not asterism.data.exists()


def test_a_form_that_is_not_right_is_not_done(asterism: Command) -> None:
    with at_terminal("agent", "create", data=asterism.data) as person:
        person.see("New agent")
        person.press(*[DOWN] * 40)
        person.see("› Create")
        person.press(ENTER)
        person.see("A name is needed")
        assert person.text.count("› name") == 1
        person.press(ESCAPE)
        assert person.end() == 130


def test_it_fits_a_narrow_terminal(asterism: Command) -> None:
    with at_terminal("agent", "create", data=asterism.data, columns=40, lines=24) as person:
        text = person.see("The same as a command:")
        assert "› name" in text
        assert "Create" in text
        person.press(ESCAPE)
        assert person.end() == 130


@pytest.mark.parametrize("noun", ["agent", "group"])
def test_without_a_terminal_a_name_is_asked_for(asterism: Command, noun: str) -> None:
    done = asterism.run(noun, "create")
    assert done.returncode == 2
    assert f"Name the new {noun}" in done.stderr
    assert not asterism.data.exists()
