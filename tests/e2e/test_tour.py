"""The tour: what it says happened is in the journal, the audit log and the files of its home."""

import json
import os
import re
import time
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.command import PATIENCE, Command, Installed

STEPS = ["memory", "crash", "attack", "forget", "replay"]


def processes_of(place: Path) -> list[int]:
    """The processes that name a directory, as `ps` shows them."""
    found: list[int] = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes()
        except OSError:
            continue
        if str(place).encode() in words:
            found.append(int(folder.name))
    return found


def until_gone(place: Path) -> None:
    deadline = time.monotonic() + PATIENCE
    while processes_of(place):
        assert time.monotonic() < deadline, processes_of(place)


def in_a_tour(command: Command) -> list[Path]:
    return list(command.place.glob("asterism-tour-*"))


@pytest.mark.promise("T2", "T3", "T12", "M13")
def test_every_step_really_happened(installed: Installed, tmp_path: Path):
    home = tmp_path / "kept"
    told: dict[str, Any] = json.loads(installed.ok("tour", "--keep", str(home), "--json"))
    steps: dict[str, Any] = {step["step"]: step for step in told["steps"]}
    assert list(steps) == STEPS
    assert all(step["passed"] for step in told["steps"])
    until_gone(home)
    looking = Command(tmp_path)
    looking.env["ASTERISM_DATA"] = str(home)

    # Killed between posting and the note of it; another process found out and did not post again.
    crash = steps["crash"]
    assert crash["code"] == -9
    assert crash["killed"] != crash["continued_by"]
    posted = (home / "letters.txt").read_text("utf-8").splitlines()
    assert len(posted) == 1
    assert posted[0].startswith(f"{crash['turn']}/0/call/0\t")
    entries = looking.json("turn", "show", crash["turn"])["entries"]
    kinds = [(entry["kind"], entry["key"]) for entry in entries]
    assert [key for kind, key in kinds if kind == "message"] == ["in"]
    assert [kind for kind, key in kinds if key.startswith("0/call/0")] == ["begun", "result"]
    assert kinds[-1] == ("reply", "1/reply")

    # The model obeyed the file, the gate asked, and the answer was no.
    events = [json.loads(line) for line in looking.ok("audit", "export").splitlines()]
    asked = [event for event in events if event["kind"] == "call.asked"]
    assert [event["turn_id"] for event in asked] == [steps["attack"]["turn"]]
    shown = looking.json("approval", "show", steps["attack"]["approval"])
    assert (shown["approved"], shown["tool"]) == (False, "post_letter")
    assert "mallory@example.com" in shown["arguments"]
    assert "'recipe.txt' (file)" in shown["reason"]

    # Forgotten in every file; the receipt stays, and so does the turn of the fact.
    canary = steps["memory"]["canary"].encode()
    assert steps["forget"]["found_before"]
    for file in home.rglob("*"):
        if file.is_file():
            assert canary.lower() not in file.read_bytes().lower(), file
    assert looking.json("memory", "receipts")[0]["id"] == steps["forget"]["receipt"]
    assert looking.json("turn", "show", steps["memory"]["turn"])["state"] == "done"
    turns = {turn["id"] for turn in looking.json("turn", "list")}
    assert turns == {steps[name]["turn"] for name in ("memory", "crash", "attack")}

    assert looking.json("turn", "replay", crash["turn"])["same"] is True


def test_it_leaves_no_directory_and_no_process_and_says_so(installed: Installed):
    done = installed.run("tour")
    assert done.returncode == 0
    assert "5 of 5 steps went as promised." in done.stdout
    assert "The home of the tour was removed." in done.stdout
    assert "\x1b" not in done.stdout
    for number, _ in enumerate(STEPS, 1):
        assert f"{number}/5  " in done.stdout
    (place,) = set(re.findall(r"/\S*asterism-tour-\w+", done.stdout))
    assert not Path(place).exists()
    assert not in_a_tour(installed)
    assert not installed.data.exists()
    until_gone(Path(place))


@pytest.mark.parametrize("columns", [60, 140])
def test_it_fits_a_terminal_and_waits_for_enter(installed: Installed, columns: int):
    with installed.terminal("tour", columns=columns) as person:
        for number, _ in enumerate(STEPS, 1):
            person.expect("[Enter continues")
            assert f"{number}/5  " not in person.shown
            person.type("")
            person.expect(f"{number}/5  ")
        person.expect("went as promised")
        assert person.ended() == 0
    assert max(map(len, person.lines)) <= columns


@pytest.mark.parametrize("key", ["\x03", "hangup"])
def test_leaving_in_the_middle_removes_everything(installed: Installed, key: str):
    with installed.terminal("tour") as person:
        person.expect("[Enter continues")
        person.type("")
        person.expect("[Enter continues")
        (place,) = in_a_tour(installed)
        assert processes_of(place)
        if key == "hangup":
            os.kill(person.pid, 1)
        else:
            person.press(key)
        assert person.ended() == 130
    assert not in_a_tour(installed)
    until_gone(place)


def test_a_killed_tour_leaves_no_process(installed: Installed):
    with installed.terminal("tour") as person:
        person.expect("[Enter continues")
        (place,) = in_a_tour(installed)
        person.kill()
    until_gone(place)


@pytest.mark.promise("X5")
@pytest.mark.parametrize(
    ("arguments", "problem"),
    [(("--data", "x", "tour"), "home of its own"), (("tour", "--keep", "."), "not empty")],
)
def test_what_it_does_not_take(asterism: Command, arguments: tuple[str, ...], problem: str):
    done = asterism.run(*arguments)
    assert done.returncode == 2
    assert problem in done.stderr
    assert done.stderr.rstrip().endswith("Nothing was done.")
