"""The reference of the command line names every command and option, and no other."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
import typer.main

from asterism.cli import build
from asterism.cli.agent_chat import AgentChat

PAGE = (Path(__file__).parents[2] / "docs/reference/cli.md").read_text(encoding="utf-8")
SECTION = re.compile(
    r"^### `asterism (?P<name>[a-z -]+?)(?P<arguments>(?: [A-Z]+)*)`\n(?P<text>.*?)(?=^##)",
    re.MULTILINE | re.DOTALL,
)
OPTION = re.compile(r"(?<![\w-])(--?[a-z][a-z-]*)")


def commands(command: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Every command that does something, by its name behind `asterism`."""
    inner: dict[str, Any] = getattr(command, "commands", {})
    if not inner:
        yield name, command
    for word, one in inner.items():
        yield from commands(one, f"{name} {word}".strip())


COMMANDS = dict(commands(typer.main.get_command(build())))
SECTIONS = {found["name"]: found for found in SECTION.finditer(PAGE + "\n##")}
EVERYWHERE = {"--data", "--config", "--json", "--help"}


def options_of(command: Any) -> set[str]:
    return {name for param in command.params for name in param.opts if name.startswith("-")}


def rows(text: str) -> set[str]:
    cells = re.findall(r"^\| (`-[^|]*) \|", text, re.MULTILINE)
    return {name for cell in cells for name in OPTION.findall(cell)}


def test_every_command_has_a_section_and_every_section_a_command() -> None:
    assert set(SECTIONS) == set(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_options_and_arguments(name: str) -> None:
    command, section = COMMANDS[name], SECTIONS[name]
    assert rows(section["text"]) == options_of(command) - EVERYWHERE
    arguments = [param.metavar for param in command.params if not param.opts[0].startswith("-")]
    assert section["arguments"].split() == arguments


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_takes_the_common_options_and_says_what_it_does(name: str) -> None:
    assert options_of(COMMANDS[name]) >= EVERYWHERE - {"--help"}
    assert COMMANDS[name].help.strip().endswith(".")


def test_common_options_are_documented() -> None:
    common, _, _ = PAGE.partition("## What is printed where")
    assert rows(common) == EVERYWHERE
    assert all(name in common for name in ("--version", "--install-completion"))


def test_commands_of_a_chat_are_documented() -> None:
    section = SECTIONS["chat"]["text"]
    assert set(re.findall(r"`/(\w+)", section)) == set(AgentChat.COMMANDS)


def test_commands_in_shell_blocks_of_the_documentation_exist() -> None:
    root = Path(__file__).parents[2]
    for page in (root / "README.md", *(root / "docs").rglob("*.md")):
        for block in re.findall(r"```(?:sh|bash)\n(.*?)```", page.read_text("utf-8"), re.DOTALL):
            for named in re.findall(r"^ *asterism ([a-z]+(?: [a-z-]+)*)", block, re.MULTILINE):
                assert named_in(named.split()), f"{page.name}: asterism {named}"


def named_in(words: list[str]) -> str:
    """The command that words begin with, which has one to three words; empty if there is none."""
    names = (" ".join(words[:count]) for count in (3, 2, 1))
    return next((name for name in names if name in COMMANDS), "")


LINE = re.compile(r"^ *(?:\$ )?(?:[A-Z_]+=\S+ )*asterism ([a-z].*)$", re.MULTILINE)


def typed_commands() -> Iterator[tuple[str, list[str]]]:
    """Every command of the documentation that a reader would type, with the page it is on."""
    root = Path(__file__).parents[2]
    for page in (root / "README.md", *sorted((root / "docs").rglob("*.md"))):
        for block in re.findall(
            r"```(?:sh|bash|console)\n(.*?)```", page.read_text("utf-8"), re.DOTALL
        ):
            for line in LINE.findall(block.replace("\\\n", " ")):
                lexer = shlex.shlex(line, posix=True, punctuation_chars="|<>;&")
                lexer.whitespace_split = True
                words: list[str] = list(lexer)
                end = next((n for n, word in enumerate(words) if word[:1] in "|<>;&"), len(words))
                yield page.name, words[:end]


def test_commands_of_the_documentation_are_understood() -> None:
    refused: list[str] = []
    for page, typed in typed_commands():
        named = named_in(typed)
        rest = typed[len(named.split()) :]
        if named and "--help" not in rest:
            try:
                COMMANDS[named].make_context(named, rest)
            except typer.TyperException as error:
                refused.append(f"{page}: {' '.join(typed)}: {error.format_message()}")
    assert refused == []
