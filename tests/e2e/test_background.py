"""The home in the background: up, down, status, and the unit that starts it."""

import os
import plistlib
import signal
import time
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from asterism.cli.commands import Options
from asterism.cli.units import launchd_unit
from tests.e2e.command import PATIENCE, Command, Installed, ModelServer

pytestmark = pytest.mark.promise("A8")


@pytest.fixture
def background(installed: Installed) -> Generator[Installed, None, None]:
    """The installed command; whatever it leaves in the background is ended."""
    yield installed
    installed.run("down")


def until(fulfilled: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not fulfilled():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_up_is_ready_once_and_down_ends_it(
    background: Installed, asterism: Command, model: ModelServer
):
    asterism.use(model)
    assert asterism.json("status")["running"] is False
    started = background.json("up")
    assert started["started"] is True
    assert asterism.json("up") == {**started, "started": False}
    assert asterism.ok("chat", "--once", "hello") == "answer to: hello\n"
    asterism.ok("halt", "smoke in the kitchen")
    status = asterism.json("status")
    assert (status["running"], status["background"], status["pid"]) == (True, True, started["pid"])
    assert (status["agents"], status["model"], status["open_turns"]) == (1, "local:m", 0)
    assert status["halted"]["reason"] == "smoke in the kitchen"
    assert Path(status["log"]).parent == asterism.data
    shown = asterism.ok("status")
    assert f"in the background (process {started['pid']}) since 20" in shown
    assert '"asterism resume" lets them continue.' in shown
    ended = asterism.ok("down")
    assert ended == f"Ended the home in the background (process {started['pid']}).\n"
    assert asterism.json("status")["running"] is False
    assert asterism.json("down") == {"ended": None, "crashed": None}
    assert {file.name for file in asterism.data.iterdir()}.isdisjoint(
        {"background.json", "asterism.sock"}
    )


def test_two_that_start_it_at_once_get_the_same_home(
    background: Installed, asterism: Command, model: ModelServer
):
    asterism.use(model)
    with ThreadPoolExecutor() as threads:
        told = [*threads.map(background.json, ["up", "up"])]
    assert sorted(one["started"] for one in told) == [False, True]
    assert len({one["pid"] for one in told}) == 1


def test_a_schedule_fires_although_no_chat_is_open(
    background: Installed, asterism: Command, model: ModelServer
):
    asterism.use(model)
    asterism.ok("agent", "create", "aria")
    background.ok("up")
    asterism.ok("schedule", "add", "aria", "in 1 second", "water the plants")
    until(lambda: "water the plants" in str(model.bodies))
    until(lambda: asterism.json("turn", "list")[0]["state"] == "done")


def test_a_crash_is_told_and_the_next_command_works(
    background: Installed, asterism: Command, model: ModelServer
):
    asterism.use(model)
    pid = background.json("up")["pid"]
    os.kill(pid, signal.SIGKILL)
    until(lambda: asterism.json("status")["running"] is False)
    status = asterism.json("status")
    assert (status["running"], status["background"], status["crashed"]["pid"]) == (
        False,
        False,
        pid,
    )
    assert f"process {pid}, in the background since" in asterism.ok("status")
    assert asterism.ok("chat", "--once", "hello") == "answer to: hello\n"
    again = background.json("up")
    assert again["pid"] != pid
    assert asterism.json("status")["crashed"] is None
    os.kill(again["pid"], signal.SIGKILL)
    until(lambda: asterism.json("status")["running"] is False)
    assert f"Process {again['pid']} had ended" in asterism.ok("down")
    assert asterism.json("status")["crashed"] is None


def test_what_up_and_down_refuse(background: Installed, asterism: Command, model: ModelServer):
    asterism.use(model)
    with asterism.started("serve", "--port", "0") as server:
        assert server.stderr is not None
        assert "Listening" in server.stderr.readline()
        for arguments in (("up",), ("down",)):
            done = asterism.run(*arguments)
            assert done.returncode == 1
            assert f"Process {server.pid} has {asterism.data} open" in done.stderr
        assert "in a chat, a server or a program" in asterism.ok("status")
    asterism.configure("model = 5\n")
    broken = background.run("up")
    assert broken.returncode == 1
    assert "model" in broken.stderr
    asterism.configure('[store]\nurl = "postgresql://127.0.0.1/asterism"\n')
    assert "PostgreSQL" in asterism.run("up").stderr


def test_a_home_that_cannot_start_says_why(background: Installed, asterism: Command):
    asterism.data.mkdir()
    (asterism.data / "asterism.db").write_text("this is not a database, but it is long enough" * 99)
    failed = background.run("up")
    assert failed.returncode == 1
    assert "The home did not start:" in failed.stderr
    assert "is not a healthy database" in failed.stderr


def test_a_data_directory_that_cannot_be_one_is_told(installed: Installed, tmp_path: Path):
    file = tmp_path / "letter.txt"
    file.write_text("Dear Ada")
    for place in (file, file / "data"):
        for command in ("up", "down"):
            done = installed.run(command, "--data", str(place))
            assert done.returncode == 1
            assert f"{place} is a file, or below one, and a directory is needed" in done.stderr


# -- units -----------------------------------------------------------------------------------------


@pytest.fixture
def systemctl(asterism: Command, tmp_path: Path) -> Path:
    """A systemctl that only notes what it is asked."""
    tools = tmp_path / "bin"
    tools.mkdir()
    notes = tmp_path / "systemctl.txt"
    notes.touch()
    tool = tools / "systemctl"
    tool.write_text(f'#!/bin/sh\necho "$@" >> {notes}\n[ ! -e {notes}.fail ] || exit 1\n')
    tool.chmod(0o755)
    asterism.env["PATH"] = f"{tools}:{os.environ['PATH']}"
    return notes


def test_a_unit_is_written_once_and_removed(asterism: Command, systemctl: Path):
    done = asterism.json("service", "install")
    file = Path(done["file"])
    assert file.parent == Path(asterism.env["XDG_CONFIG_HOME"]) / "systemd" / "user"
    text = file.read_text("utf-8")
    assert f"--data {asterism.data} up --foreground\n" in text
    assert text == asterism.json("service", "install", "--print")["text"]
    name = done["name"]
    assert systemctl.read_text() == f"--user daemon-reload\n--user enable --now {name}\n"
    assert asterism.json("service", "install")["changed"] is False
    file.write_text("[Unit]\n")
    assert asterism.json("service", "install")["changed"] is True
    assert f"--user disable --now {name}\n" in systemctl.read_text()
    assert asterism.json("service", "remove") == {"name": name, "removed": True}
    assert not file.exists()
    assert asterism.json("service", "remove")["removed"] is False


def test_a_unit_with_odd_words_is_quoted(asterism: Command, systemctl: Path, tmp_path: Path):
    odd = tmp_path / 'a "home" for 100% of $us'
    text = asterism.json("--data", str(odd), "service", "install", "--print")["text"]
    assert rf'--data "{tmp_path}/a \"home\" for 100%% of $$us" up' in text
    assert systemctl.read_text() == ""


def test_what_the_system_refuses_is_told(asterism: Command, systemctl: Path):
    systemctl.with_name("systemctl.txt.fail").touch()
    done = asterism.run("service", "install")
    assert done.returncode == 1
    assert '"systemctl --user daemon-reload" failed' in done.stderr
    assert "asterism service remove" in done.stderr


def test_without_systemd_and_launchd_nothing_is_written(asterism: Command, tmp_path: Path):
    empty = tmp_path / "empty"
    empty.mkdir()
    asterism.env["PATH"] = str(empty)
    for verb in ("install", "remove"):
        done = asterism.run("service", verb)
        assert done.returncode == 2
        assert "There is no systemctl on this machine" in done.stderr
    assert not Path(asterism.env["XDG_CONFIG_HOME"], "systemd").exists()
    assert "ExecStart=" in asterism.ok("service", "install", "--print")


def test_a_home_that_is_open_is_not_given_to_the_system(asterism: Command, systemctl: Path):
    with asterism.started("serve", "--port", "0") as server:
        assert server.stderr is not None
        assert "Listening" in server.stderr.readline()
        done = asterism.run("service", "install")
        assert f"Process {server.pid} has" in done.stderr
    assert systemctl.read_text() == ""


def test_launchd_gets_an_agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    unit = launchd_unit(Options(data=tmp_path / "data"), "up")
    agent = plistlib.loads(unit.text)
    assert agent["ProgramArguments"][-4:] == [
        "--data",
        str(tmp_path / "data"),
        "up",
        "--foreground",
    ]
    assert agent["KeepAlive"] == {"SuccessfulExit": False}
    assert unit.file == tmp_path / "Library" / "LaunchAgents" / f"{unit.name}.plist"
    assert unit.start[0][:2] == ("launchctl", "bootstrap")


@pytest.mark.promise("X5")
@pytest.mark.parametrize(
    ("name", "make", "reason"),
    [
        ("asterism.sock", "directory", "is not a socket"),
        ("asterism.log", "directory", "cannot be written"),
        ("asterism.log", "pipe", "cannot be written"),
    ],
)
def test_an_odd_file_in_the_way_is_named_and_nothing_is_started(
    installed: Installed, name: str, make: str, reason: str
):
    installed.ok("agent", "create", "aria")
    place = installed.data / name
    place.unlink(missing_ok=True)
    if make == "pipe":
        os.mkfifo(place)
    else:
        place.mkdir()
    refused = installed.run("up")
    assert refused.returncode == 1
    assert reason in refused.stderr
    assert "not started" in refused.stderr
