"""What makes a function a command: the home, the options, printing and exit codes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated, Any

import orjson
import pytest
import typer
from typer.testing import CliRunner

from asterism.cli import commands
from asterism.cli.commands import Options, argument, command, flag, group, option
from asterism.cli.output import Column, Grid, ItemTable, Result
from asterism.errors import InvalidInput, NotFound

if TYPE_CHECKING:
    from asterism.app import Asterism

app = group("For tests.")
opened: list[dict[str, Any]] = []


@command(app, "list", readonly=True)
async def list_things(home: Asterism, limit: Annotated[int, option("--limit", "N", "Most.")] = 2):
    """Show things."""
    things = [f"{home} {number}" for number in range(limit)]
    table = ItemTable([Column("thing", str)], things, "There are none.")
    return Result(things, table, Grid([("total", f"{limit}")]))


@command(app, "check", work=True)
async def check(
    home: Asterism,
    name: Annotated[str, argument("NAME", "Which.")],
    fail: Annotated[bool, flag("--fail -f", "Fail.")] = False,
) -> Result:
    """Check a thing."""
    if name == "nobody":
        raise NotFound(f"There is no thing {name!r}.")
    if name == "":
        raise InvalidInput("A name is needed. Nothing was checked.")
    if name == "bug":
        raise ZeroDivisionError
    return Result({"name": name, "home": str(home)}, notes=["Beside."], code=3 if fail else 0)


@command(app, "plain")
def plain(options: Options) -> None:
    """Talk with a person."""
    with pytest.raises(RuntimeError):
        asyncio.get_running_loop()
    typer.echo(f"json: {options.json}")


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch) -> None:
    @asynccontextmanager
    async def open_home(options: Options, **how: bool) -> AsyncGenerator[str, None]:
        opened.append({"data": options.data, **how})
        yield "home"

    opened.clear()
    monkeypatch.setattr(commands, "open_home", open_home)


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, arguments)


def test_a_command_gets_the_home_and_its_result_is_printed_for_people():
    done = run("list", "--limit", "1", "--data", "/srv/x")
    assert done.stdout == "thing\nhome 0\ntotal  1\n"
    assert [(str(how["data"]), how["readonly"], how["work"]) for how in opened] == [
        ("/srv/x", True, False)
    ]


def test_programs_get_the_data_and_nothing_else():
    done = run("list", "--json")
    assert orjson.loads(done.stdout) == ["home 0", "home 1"]
    assert orjson.loads(run("check", "x", "--json").stdout) == {"name": "x", "home": "home"}
    assert run("check", "x", "--json").stderr == ""


def test_a_list_without_items_says_so():
    assert run("list", "--limit", "0").stdout == "There are none.\ntotal  0\n"


def test_notes_go_beside_the_output_and_a_result_has_its_exit_code():
    done = run("check", "x", "-f")
    assert (done.exit_code, done.stdout, done.stderr) == (3, "", "Beside.\n")
    assert opened == [{"data": None, "readonly": False, "work": True}]


@pytest.mark.promise("X5")
@pytest.mark.parametrize(("name", "code", "kind"), [("nobody", 1, "not-found"), ("", 2, "input")])
def test_an_error_is_a_sentence_or_a_problem_with_the_code_that_fits(
    name: str, code: int, kind: str
):
    done = run("check", name)
    assert (done.exit_code, done.stdout) == (code, "")
    assert done.stderr.startswith("asterism: ")
    found = orjson.loads(run("check", name, "--json").stderr)
    assert found["type"] == kind
    assert f"asterism: {found['detail']}\n" == done.stderr


@pytest.mark.promise("X5")
def test_a_bug_of_ours_is_one_sentence(tmp_path: Any):
    done = run("check", "bug", "--data", str(tmp_path))
    assert done.exit_code == 1
    assert done.stderr.count("\n") == 1
    assert "ZeroDivisionError" in (tmp_path / "asterism.log").read_text()


def test_a_function_that_talks_with_a_person_runs_outside_the_event_loop():
    assert run("plain", "--json").stdout == "json: True\n"
    assert opened == []


async def test_a_command_can_be_called_by_another():
    home: Any = "another home"
    result = await list_things(home, limit=1)
    assert result.data == ["another home 0"]
