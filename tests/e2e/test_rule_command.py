"""`asterism rule`: rules are given, shown and taken back."""

import json
from pathlib import Path

import pytest

from tests.e2e.command import TRACEBACK, Command, Installed


@pytest.fixture
def command(asterism: Command) -> Command:
    """The command, with an agent."""
    assert asterism.run("agent", "create", "aria").returncode == 0
    return asterism


@pytest.mark.promise("S2", "X2")
def test_rules_are_given_shown_and_taken_back(
    command: Command, installed: Installed, tmp_path: Path
):
    done = command.run("rule", "add", "aria", "recall", "start")
    assert done.stdout == (
        "Call recall before any other tool.\n"
        "aria has 1 rule now; they take effect at its next turn.\n"
    )
    file = tmp_path / "rules.toml"
    file.write_text('[[tool_rules]]\ntool_name="search"\nrule_type={type="MaxCalls", value=3}\n')
    assert command.run("rule", "add", "aria", "--file", str(file)).returncode == 0
    listed = json.loads(command.run("rule", "list", "aria", "--json").stdout)
    assert [(one["number"], one["tool"], one["kind"]) for one in listed] == [
        (1, "recall", "start"),
        (2, "search", "max_calls"),
    ]
    assert command.run("rule", "remove", "aria", "1").stdout == (
        "Removed: Call recall before any other tool.\n"
    )
    shown = installed.run("rule", "list", "aria").stdout
    assert "Call search at most 3 times in a turn." in shown
    assert "recall" not in shown


@pytest.mark.promise("S2", "X3")
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("add", "aria", "serch", "start"), "named 'serch'. Did you mean 'search'?"),
        (("add", "aria", "search"), "Name a tool and a kind"),
        (("add", "aria", "search", "max_calls", "many"), "count is 'many'; a whole number"),
        (("add", "aria", "--file", "nowhere.toml"), "'nowhere.toml' cannot be read"),
        (("remove", "aria", "1"), "aria has 0 rules, and none has the number 1."),
        (("list", "arya"), "Did you mean 'aria'?"),
    ],
)
def test_what_cannot_be_done_is_said_in_a_sentence(
    command: Command, arguments: tuple[str, ...], said: str
):
    done = command.run("rule", *arguments)
    assert done.returncode != 0
    assert said in done.stderr
    assert TRACEBACK not in done.stderr
