"""Every noun of the command line: its lists, its commands, at a terminal and in a pipe."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.e2e.command import EXECUTABLE, Command, Installed, ModelServer
from tests.e2e.test_cli_once import with_tools
from tests.servers.openai_server import Fault

LISTS = [
    ("agent", "list"),
    ("turn", "list"),
    ("approval", "list"),
    ("outbox", "list"),
    ("outbox", "list", "--state", "dead"),
    ("notice", "list", "--all"),
    ("schedule", "list"),
    ("tool", "list"),
    ("model", "list"),
]


@pytest.mark.parametrize("arguments", LISTS, ids=" ".join)
def test_lists_are_json_plain_text_and_tables(asterism: Command, arguments: tuple[str, ...]):
    asterism.ok("chat", "--once", "hi")
    found = asterism.json(*arguments)
    assert isinstance(found, list)
    plain = asterism.ok(*arguments)
    assert not set(plain) & set("│┃─━\x1b")
    with asterism.screen(*arguments, columns=60) as person:
        assert person.ended() == 0
    assert max(map(len, person.shown.splitlines())) <= 60


def test_agents_are_created_shown_changed_and_deleted(asterism: Command):
    made = asterism.json("agent", "create", "aria", "--system", "Be brief.", "--tool", "schedule")
    assert made["tools"] == ["schedule"]
    assert asterism.run("agent", "create", "aria").returncode == 1
    asterism.ok("agent", "edit", "aria", "--model", "local:m", "--all-tools", "--calls", "3")
    shown = asterism.json("agent", "show", "aria")
    assert (shown["model"], shown["tools"], shown["version"]) == ("local:m", None, 2)
    assert shown["limits"]["calls"] == 3
    assert "Be brief." in asterism.ok("agent", "show", "aria")
    asterism.ok("agent", "edit", "aria", "--name", "bea")
    unsure = asterism.run("agent", "delete", "bea")
    assert unsure.returncode == 2
    assert "--yes" in unsure.stderr
    with asterism.terminal("agent", "delete", "bea") as person:
        person.expect("Delete bea?")
        person.type("n")
        assert person.ended() == 1
    asterism.ok("agent", "delete", "bea", "--yes")
    assert asterism.json("agent", "list") == []


@pytest.mark.promise("X5")
def test_ctrl_c_at_a_question_ends_the_command_and_nothing_else(asterism: Command):
    for name in ("Ann", "Bob"):
        asterism.ok("person", "add", name)
    for arguments, question in (
        (("agent", "delete", "aria"), "Delete aria?"),
        (("person", "merge", "Ann", "Bob"), "[y/N]"),
        (("key", "set", "shop"), "Key of shop"),
    ):
        with asterism.terminal(*arguments) as person:
            person.expect(question)
            person.press("\x03")
            assert person.ended() == 130
            assert "fault" not in person.shown
    assert len(asterism.json("person", "list")) == 3


@pytest.mark.promise("X5")
def test_what_agents_cannot_be_given(asterism: Command):
    asterism.ok("agent", "create", "aria")
    for arguments in (
        ("agent", "edit", "aria"),
        ("agent", "edit", "aria", "--steps", "0"),
        ("agent", "edit", "aria", "--tool", "schedule", "--all-tools"),
        ("agent", "edit", "aria", "--model", "nonsense"),
        ("agent", "create", "bea", "--system", "a", "--system-file", "b"),
        ("agent", "create", "bea", "--system-file", "/nowhere/at/all"),
        ("agent", "create", "two\nlines"),
    ):
        done = asterism.run(*arguments)
        assert done.returncode == 2, arguments
        assert done.stderr.count("\n") == 1
    assert asterism.run("agent", "create", "bea", "--tool", "hammer").returncode == 1
    assert [agent["name"] for agent in asterism.json("agent", "list")] == ["aria"]


def test_turns_are_shown_replayed_and_forked(asterism: Command, model: ModelServer):
    with_tools(asterism, model)
    asterism.ok("chat", "--once", '[[call:add {"a": 1, "b": 2}]]')
    (turn,) = asterism.json("turn", "list", "--agent", "aster", "--limit", "5")
    assert turn["agent"] == "aster"
    shown = asterism.json("turn", "show", turn["id"])
    assert [entry["kind"] for entry in shown["entries"]] == ["message", "reply", "result", "reply"]
    assert "Identical" in asterism.ok("turn", "replay", turn["id"])
    assert asterism.json("turn", "replay", turn["id"])["same"] is True
    forked = asterism.json("turn", "fork", turn["id"], "--name", "other", "--system", "Sing.")
    assert (forked["agent"], forked["state"]) == ("other", "done")
    late = asterism.run("turn", "stop", turn["id"])
    assert "nothing to stop" in late.stderr
    assert "There is no turn" in asterism.run("turn", "show", "turn_0").stderr


def test_a_waiting_turn_is_stopped(asterism: Command, stalled_model: ModelServer):
    asterism.use(stalled_model)
    stalled_model.next(None, Fault.STALL)  # the doctor asks before the turn is taken up again
    with asterism.started("chat", "--once", "never mind") as process:
        stalled_model.wait_until_asked()
        process.kill()
        process.wait()
    (turn,) = asterism.json("turn", "list")
    assert turn["state"] == "waiting"
    assert "waiting" in asterism.ok("turn", "show", turn["id"])
    assert "1 message not answered yet" in asterism.ok("doctor")
    assert "stopped" in asterism.ok("turn", "stop", turn["id"])
    assert asterism.json("turn", "list")[0]["state"] == "stopped"


def test_a_delivery_that_was_given_up_is_listed(asterism: Command):
    done = asterism.run("outbox", "retry", "turn_0/answer")
    assert done.returncode == 1
    assert "There is no dead delivery" in done.stderr


def test_output_that_nobody_reads_any_more(asterism: Command):
    asterism.ok("agent", "create", "aria")
    shell = f"{EXECUTABLE} agent list --json | head -c 1"
    done = subprocess.run(
        shell, shell=True, env=asterism.env, capture_output=True, timeout=60, check=False
    )
    assert done.stdout == b"["
    assert done.stderr == b""


def test_options_are_taken_before_and_behind_the_command(asterism: Command, tmp_path: Path):
    elsewhere = str(tmp_path / "elsewhere")
    asterism.ok("--data", elsewhere, "agent", "create", "aria")
    before = asterism.ok("--json", "--data", elsewhere, "agent", "list")
    behind = asterism.ok("agent", "list", "--data", elsewhere, "--json")
    assert json.loads(before) == json.loads(behind) != []
    assert not asterism.data.exists()
    done = asterism.run("agent", "list", "--config", str(tmp_path / "none.toml"))
    assert "none.toml does not exist" in done.stderr


def test_version_help_and_completion(installed: Installed):
    assert installed.ok("--version").startswith("asterism 0.")
    assert "doctor" in installed.ok("--help")
    assert "edit" in installed.ok("agent")
    installed.env |= {
        "_ASTERISM_COMPLETE": "complete_bash",
        "COMP_WORDS": "asterism ag",
        "COMP_CWORD": "1",
    }
    assert installed.run().stdout.split() == ["agent"]


@pytest.mark.promise("X5")
def test_a_number_of_thousands_of_digits_is_told_in_a_sentence(asterism: Command):
    asterism.ok("agent", "create", "aria", "--model", "demo:guide")
    asterism.ok("block", "create", "human", "--text", "A person.", "--agent", "aria")
    many = "9" * 5_000
    for command in (
        ("audit", "verify", "--head", f"home:{many}:00"),
        ("audit", "show", f"home:{many}"),
        ("audit", "show", "home:99999999999999999999"),
        ("block", "edit", "human", "--item", f"{many}=x", "--agent", "aria"),
        ("memory", "why", f"human:{many}", "--agent", "aria"),
    ):
        done = asterism.run(*command)
        assert done.returncode in (1, 2), (command[:2], done.stderr)
        assert "fault" not in done.stderr
        assert len(done.stderr) < 300


@pytest.mark.promise("T15")
def test_a_schedule_is_added_and_cancelled_in_local_time(asterism: Command):
    asterism.configure('timezone = "Asia/Kolkata"\n')
    asterism.ok("agent", "create", "planner")
    told = asterism.ok("schedule", "add", "planner", "every Monday at 8", "Water the plants.")
    assert ", 08:00 (Asia/Kolkata), then by the rule 0 8 * * 1, as sch_" in told
    assert told.startswith("Scheduled for Mon ")
    (entry,) = asterism.json("schedule", "list", "--agent", "planner")
    assert (entry["agent"], entry["cron"], entry["zone"]) == (
        "planner",
        "0 8 * * 1",
        "Asia/Kolkata",
    )
    assert " 08:00:00" in asterism.ok("schedule", "list", "--agent", "planner")
    assert "Water the plants." in asterism.ok("schedule", "cancel", entry["id"])
    assert asterism.json("schedule", "list", "--agent", "planner") == []


def test_a_schedule_is_cancelled_by_whatever_names_it(asterism: Command):
    asterism.ok("agent", "create", "aria")

    def add(*texts: str) -> list[str]:
        made = [asterism.json("schedule", "add", "aria", "2036-01-01", text) for text in texts]
        return [entry["id"] for entry in made]

    plants, tea, water = add("Water the plants.", "Make tea.", "Drink water.")
    assert water in asterism.ok("schedule", "cancel", "latest")
    assert plants in asterism.ok("schedule", "cancel", "water", "the", "Plants")
    assert tea in asterism.ok("schedule", "cancel", tea[-6:])
    (plants,) = add("Water the plants.")
    assert plants in asterism.ok("schedule", "cancel", plants[:-2])
    add("Water the plants.", "Drink water.")
    several = asterism.run("schedule", "cancel", "water")
    assert several.returncode == 1
    assert "'water' could be 2 schedules: sch_" in several.stderr
    unknown = asterism.run("schedule", "cancel", "sch_nonsense")
    assert unknown.returncode == 1
    assert "There is no schedule 'sch_nonsense'." in unknown.stderr
    assert len(asterism.json("schedule", "list")) == 2, "nothing was cancelled by guessing"
    for word in ("remove", "delete", "rm"):
        assert "Did you mean 'cancel'?" in asterism.run("schedule", word, plants).stderr
    assert "Did you mean 'add'?" in asterism.run("schedule", "create").stderr
    assert "Did you mean 'add'?" in asterism.run("person", "create", "anna").stderr


@pytest.mark.promise("X3")
def test_a_list_says_that_there_is_more_and_a_schedule_how_it_is_cancelled(asterism: Command):
    asterism.ok("agent", "create", "aria")
    asterism.ok("group", "create", "ring", "--pattern", "round_robin", "--member", "aria")
    for number in range(3):
        asterism.ok("archive", "add", f"Fact number {number}.", "--agent", "aria")
        asterism.ok("block", "create", f"notes-{number}", "--agent", "aria")
        asterism.ok("block", "edit", "notes-0", "--append", f"Line {number}.", "--agent", "aria")
        asterism.ok("chat", "--group", "ring", "--once", f"Question {number}")
    lists = (
        ("audit", "list"),
        ("archive", "list", "--agent", "aria"),
        ("block", "history", "notes-0", "--agent", "aria"),
        ("turn", "list"),
        ("group", "transcript", "ring"),
        ("memory", "as-of", "aria", "2036-01-01"),
    )
    for arguments in lists:
        cut = asterism.run(*arguments, "--limit", "2")
        assert "There are more" in cut.stderr, arguments
        assert "--limit 10 shows more." in cut.stderr, arguments
        assert "There are more" not in asterism.run(*arguments, "--limit", "100").stderr, arguments
    assert len(asterism.json("turn", "list", "--limit", "2")) == 2
    nowhere = asterism.run("group", "transcript", "ring", "--output", "/nowhere/ring.md")
    assert nowhere.returncode == 2
    assert "/nowhere/ring.md cannot be written (No such file or directory)." in nowhere.stderr
    for arguments in (("outbox", "list"), ("notice", "list"), ("approval", "list", "--answered")):
        assert asterism.json(*arguments, "--limit", "1") == []
    asterism.ok("schedule", "add", "aria", "2036-01-01", "Water the plants.")
    with asterism.screen("schedule", "list", columns=80) as person:
        assert "takes an id, words of the message, or latest" in person.shown
