"""`asterism constellation new`, `task`, `habit` and `energy`: in pipes, wide and narrow."""

from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.e2e.command import Command, ModelServer


def tell(asterism: Command, agent: str, tool: str, **arguments: Any) -> None:
    wanted = f"[[call:{tool} {orjson.dumps(arguments).decode()}]]"
    asterism.ok("chat", "--agent", agent, "--once", wanted)


@pytest.mark.promise("G4")
def test_a_constellation_from_a_template(asterism: Command, model: ModelServer) -> None:
    asterism.use(model)
    assert "review-board" in asterism.ok("constellation", "templates")
    preview = asterism.ok("constellation", "new", "--template", "adhd", "--preview")
    assert "Would create 6 agents, 6 blocks, 1 group, 1 schedule. Nothing was created." in preview
    assert asterism.json("agent", "list") == []
    made = asterism.ok("constellation", "new", "--template", "adhd")
    assert "Created 6 agents, 6 blocks, 1 group, 1 schedule." in made
    assert len(asterism.json("agent", "list")) == 6
    again = asterism.ok("constellation", "new", "--template", "adhd")
    assert "All of it was there already. Nothing was changed." in again
    report = asterism.json("constellation", "new", "--template", "personal", "--prefix", "my-")
    assert [item["name"] for item in report["items"] if item["kind"] == "agent"] == ["my-companion"]


def test_a_template_of_ones_own_and_one_that_is_none(asterism: Command, tmp_path: Path) -> None:
    mine = tmp_path / "mine.toml"
    mine.write_text(
        'name = "mine"\ndescription = "One"\n[[agents]]\nname = "ann"\nsystem = "You are {ann}."\n',
        "utf-8",
    )
    assert "Created 1 agent." in asterism.ok("constellation", "new", "--template", str(mine))
    mine.write_text('name = "mine"\ndescription = "x"\nagents = 3\n', "utf-8")
    for given, expected in (
        (["--template", str(mine)], "The template mine.toml cannot be used: agents"),
        (["--template", "adhs"], "Did you mean 'adhd'?"),
        ([], "Say which template with --template"),
    ):
        done = asterism.run("constellation", "new", *given)
        assert done.returncode in (1, 2)
        assert expected in done.stderr
        assert "created" in done.stderr.lower()


def test_tasks_and_what_they_took(asterism: Command, model: ModelServer) -> None:
    asterism.use(model)
    asterism.ok("constellation", "new", "--template", "adhd", "--no-schedules")
    assert "No task is open." in asterism.ok("task", "list")
    assert "No finished task" in asterism.ok("task", "times")
    for number, took in enumerate((50, 45, 55), 1):
        title = f"Write part {number}"
        tell(asterism, "planner", "task", operation="add", task=title, minutes=30, kind="writing")
        tell(asterism, "planner", "task", operation="done", task=title, minutes=took)
    tell(
        asterism,
        "planner",
        "task",
        operation="add",
        task="Write the end",
        minutes=60,
        kind="writing",
        steps=["Open the file", "Write one line"],
    )
    listed = asterism.ok("task", "list", "--done", "1")
    assert "Write the end" in listed
    assert "1 h 15 min" in listed
    assert "done in 55 min" in listed
    shown = asterism.ok("task", "show", "4")
    assert "5 Open the file (open)" in shown
    assert "There is no task 99" in asterism.run("task", "show", "99").stderr
    times = asterism.json("task", "times")
    assert times["tasks"] == 3
    assert 1.2 < times["kinds"]["writing"]["factor"] < 5 / 3
    for columns in (40, 80, 160):
        asterism.env["COLUMNS"] = str(columns)
        chart = asterism.ok("task", "times")
        assert "▒" in chart
        assert "writing: 1." in chart
        assert max(map(len, chart.splitlines())) <= max(columns, 64)


def test_energy_and_habits(asterism: Command, model: ModelServer) -> None:
    asterism.use(model)
    asterism.ok("constellation", "new", "--template", "adhd", "--no-schedules")
    assert "Nothing was noted" in asterism.ok("energy", "show")
    assert "There are no habits." in asterism.ok("habit", "list")
    tell(asterism, "pace", "energy", operation="log", level=8, state="flow")
    tell(asterism, "pace", "energy", operation="log", level=6, mood=4)
    tell(asterism, "care", "habit", operation="add", habit="drink water", when="every 2 hours")
    tell(asterism, "care", "habit", operation="done", habit="drink water")
    told = asterism.ok("energy", "show")
    assert "Energy: 7.0 of 10 on average, from 2 notes." in told
    assert "Mood: 4.0 of 10 on average, from 1 note." in told
    assert "by weekday" in told
    assert asterism.json("energy", "show")["energy"]["overall"] == {"mean": 7.0, "count": 2}
    asterism.env["COLUMNS"] = "40"
    assert max(map(len, asterism.ok("energy", "show").splitlines())) <= 46
    assert "every 2 hours" in asterism.ok("habit", "list")
    (habit,) = asterism.json("habit", "list")
    assert habit["times"] == 1


def test_several_that_keep_tasks_are_told_apart(asterism: Command, model: ModelServer) -> None:
    asterism.use(model)
    for prefix in ("a-", "b-"):
        asterism.ok("constellation", "new", "--template", "personal", "--prefix", prefix)
        tell(asterism, f"{prefix}companion", "task", operation="add", task=f"{prefix}task")
    done = asterism.run("task", "list")
    assert "Several agents keep tasks: a-companion, b-companion." in done.stderr
    assert "b-task" in asterism.ok("task", "list", "--agent", "b-companion")
