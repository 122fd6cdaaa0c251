"""Help fits the terminal, shows an example that can be typed, and speaks plainly."""

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from asterism import __version__
from tests.docs.test_cli_reference import COMMANDS
from tests.e2e.command import Command

NOUNS = sorted({name.partition(" ")[0] for name in COMMANDS if " " in name})


def help_of(asterism: Command, name: str, columns: int) -> str:
    asterism.env["COLUMNS"] = str(columns)
    return asterism.ok(*name.split(), "--help")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_an_example_that_it_takes(name: str):
    command: Any = COMMANDS[name]
    words = shlex.split(command.epilog or "")
    assert " ".join(words[: len(name.split())]) == name
    command.make_context(name, words[len(name.split()) :])


@pytest.mark.parametrize("columns", [60, 80, 140])
@pytest.mark.parametrize("name", ["", "search", "agent edit", *NOUNS])
def test_help_fits_the_terminal_and_cuts_nothing(asterism: Command, name: str, columns: int):
    shown = help_of(asterism, name, columns)
    text, _, example = shown.partition("\nExample:")
    assert max(map(len, text.splitlines())) <= columns
    assert not re.search(r"\w\.\.\.$|…", text, re.MULTILINE), shown
    assert len(example.strip().splitlines()) <= 1


def test_a_wide_terminal_is_used(asterism: Command):
    assert max(map(len, help_of(asterism, "search", 140).splitlines())) > 90


@pytest.mark.parametrize("name", ["search", "agent edit", "spend", "block create", "rule add"])
def test_types_of_the_program_are_not_in_help(asterism: Command, name: str):
    shown = help_of(asterism, name, 100)
    assert not re.search(r"<(?!=)|x>=|\{[A-Z]", shown), shown
    assert "\nExample:\n  asterism " in shown


@pytest.mark.promise("X5")
@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("spend", "--days", "0"), "'--days': it must be 1 to 3660."),
        (("spend", "--days", "many"), "'--days': it must be a whole number."),
        (("spend", "--by", "hour"), "'hour' is not one of "),
        (("search", "x", "--limit", "5000"), "'--limit': it must be 1 to 1000."),
    ],
)
def test_wrong_values_are_named_in_plain_words(
    asterism: Command, words: tuple[str, ...], problem: str
):
    done = asterism.run(*words)
    assert done.returncode == 2
    assert problem in done.stderr
    assert "Input should" not in done.stderr
    assert "Value error" not in done.stderr


@pytest.mark.promise("X5")
@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ("halp", "Did you mean 'help'?"),
        ("hepl", "Did you mean 'help'?"),
        ("HELP", "Did you mean 'help'?"),
        ("halpp", "Did you mean 'help'?"),
        ("hablar", '"asterism --help"'),
        ("agnt", "'agent'"),
        ("Agents", "Did you mean 'agent'?"),
        ("dwon", "Did you mean 'down'?"),
        ("haltt", "Did you mean 'halt'?"),
        ("confg", "Did you mean 'config'?"),
        ("log", "Did you mean 'logs'?"),
        ("agent halp", "Did you mean 'help'?"),
        ("agent lst", "Did you mean 'list'?"),
        ("help agnt", "'agent'"),
        ("", '"asterism --help"'),
        ("xyzzy", '"asterism --help"'),
    ],
)
def test_what_is_misspelt_leads_to_what_is_meant(asterism: Command, words: str, meant: str):
    done = asterism.run(*words.split(" "))
    assert (done.returncode, done.stdout) == (2, "")
    assert meant in done.stderr
    if words != "haltt":
        assert "'halt'" not in done.stderr  # it stops all agents


@pytest.mark.parametrize(
    ("words", "same"),
    [
        ("help", "--help"),
        ("help agent", "agent --help"),
        ("help agent create", "agent create --help"),
        ("agent help create", "agent create --help"),
        ("help search", "search --help"),
        ("version", "--version"),
    ],
)
def test_what_people_type_for_help_and_version_works(asterism: Command, words: str, same: str):
    assert asterism.ok(*words.split()) == asterism.ok(*same.split())


def test_where_configuration_and_log_are_is_said_in_a_sentence(asterism: Command, tmp_path: Path):
    other = tmp_path / "other.toml"
    other.write_text("")
    said = asterism.ok("config")
    assert "asterism.toml, which does not exist" in said
    assert '"asterism setup"' in said
    assert f"The configuration is {other}." in asterism.ok("config", "--config", str(other))
    assert "asterism.log" in asterism.ok("logs")
    found = json.loads(asterism.ok("logs", "--json"))
    assert (Path(found["file"]).name, found["exists"]) == ("asterism.log", False)
    assert json.loads(asterism.ok("--json", "version")) == {"version": __version__}
    elsewhere = asterism.run("--url", "https://home.example.org", "logs")
    assert elsewhere.returncode == 2
    assert "on the machine where it runs" in elsewhere.stderr
