"""Only the owner reads and writes what asterism writes, whatever the umask."""

import json
import os
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from asterism.cli.log import write_fault
from tests.e2e.command import EXECUTABLE, PATIENCE, Command, Installed


@pytest.fixture
def no_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def open_to_others(*places: Path) -> dict[str, str]:
    """What others may read or write, in and below some places."""
    found = [one for place in places for one in (place, *place.rglob("*"))]
    return {
        str(one): oct(stat.S_IMODE(one.stat().st_mode))
        for one in found
        if stat.S_IMODE(one.stat().st_mode) & 0o077 and not one.is_symlink()
    }


@pytest.mark.promise("X3")
@pytest.mark.usefixtures("no_umask")
def test_whatever_is_written_is_for_the_owner_alone(installed: Installed, tmp_path: Path):
    installed.data = tmp_path / "not" / "there" / "yet"
    installed.env["ASTERISM_DATA"] = str(installed.data)
    installed.ok("agent", "create", "aria", "--model", "demo:guide")
    installed.ok("chat", "--once", "My door code is 4711-XK.", "--agent", "aria")
    installed.ok("memory", "forget", "--text", "4711-XK", "--yes")
    out = tmp_path / "out"
    out.mkdir(mode=0o700)
    installed.ok("memory", "export", "aria", "--file", str(out / "memory.json"))
    installed.ok("audit", "export", "--file", str(out / "log.jsonl"))
    installed.ok("key", "set", "mine", "--stdin", stdin="hunter2-hunter2")
    deep = installed.data / "workspaces" / "agent_1" / "deep"
    deep.mkdir(mode=0o700, parents=True)
    (deep / "note.txt").write_text("a note", encoding="utf-8")
    for folder in (deep.parent, deep.parent.parent):
        folder.chmod(0o700)
    (deep / "note.txt").chmod(0o600)
    installed.ok("backup", "create", "--to", str(out / "backup"))
    installed.ok("backup", "create")
    restored = tmp_path / "restored"
    installed.ok("backup", "restore", str(out / "backup"), "--data", str(restored))
    assert (restored / "workspaces" / "agent_1" / "deep" / "note.txt").exists()
    names = {one.name for one in installed.data.iterdir()}
    assert names >= {"asterism.db", "asterism.lock", "tombstones.jsonl", "tombstones.key"}
    assert open_to_others(installed.data, out, restored) == {}
    assert not {one for one in installed.data.parents[:2] if one.stat().st_mode & 0o022}


@pytest.mark.usefixtures("no_umask")
def test_the_log_of_a_running_home_is_for_the_owner_alone(asterism: Command):
    with asterism.started("serve", "--port", "0") as server:
        assert server.stderr is not None
        assert "Listening" in server.stderr.readline()
        names = {one.name for one in asterism.data.iterdir()}
        assert names >= {"asterism.db", "asterism.db-wal", "asterism.db-shm"}
        assert open_to_others(asterism.data) == {}
    write_fault(asterism.data, RuntimeError("a fault"))
    assert open_to_others(asterism.data) == {}


def checks(asterism: Command) -> dict[str, dict[str, str]]:
    done = asterism.run("doctor", "--offline", "--json")
    return {one["check"]: one for one in json.loads(done.stdout)}


def test_doctor_tells_who_else_reads_or_writes(asterism: Command):
    asterism.ok("agent", "create", "aria", "--model", "demo:guide")
    assert "access" not in checks(asterism)
    asterism.data.chmod(0o755)
    found = checks(asterism)["access"]
    assert (found["state"], found["remedy"]) == ("look", f'Run "chmod 700 {asterism.data}".')
    asterism.data.chmod(0o777)
    assert checks(asterism)["access"]["state"] == "bad"
    asterism.data.chmod(0o711)
    assert "access" not in checks(asterism)
    (asterism.data / "asterism.db").chmod(0o644)
    assert f"chmod 600 {asterism.data}" in checks(asterism)["access"]["remedy"]
    asterism.data.chmod(0o700)
    assert "access" not in checks(asterism)


@pytest.mark.promise("X1")
@pytest.mark.parametrize("name", ["asterism.toml", "authorizations.toml"])
def test_a_configuration_that_others_can_have_written_is_not_read(asterism: Command, name: str):
    asterism.ok("agent", "create", "aria", "--model", "demo:guide")
    (asterism.data / name).write_text("")
    asterism.ok("agent", "list")
    asterism.data.chmod(0o777)
    done = asterism.run("agent", "list")
    assert done.returncode != 0
    said = " ".join(done.stderr.split())
    assert f"{name} may not be yours" in said
    assert "chmod 700" in said
    asterism.data.chmod(0o700)
    (asterism.data / name).chmod(0o666)
    done = asterism.run("agent", "list")
    assert done.returncode != 0
    assert "chmod 600" in " ".join(done.stderr.split())
    (asterism.data / name).chmod(0o600)
    asterism.ok("agent", "list")


def test_a_fault_goes_to_no_file_that_others_can_guess(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    aim = tmp_path / "aim"
    guess = tmp_path / f"asterism-{os.getpid()}.log"
    guess.symlink_to(aim)
    file = write_fault(tmp_path / "missing", RuntimeError("a fault"))
    assert file != guess
    assert not aim.exists()
    assert "a fault" in file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


# -- what is handed in -----------------------------------------------------------------------------


def test_what_is_no_regular_file_is_not_read(asterism: Command, tmp_path: Path):
    asterism.ok("agent", "create", "aria", "--model", "demo:guide")
    os.mkfifo(tmp_path / "pipe")
    for place in ("/dev/zero", str(tmp_path / "pipe")):
        for command in (
            ("memory", "import", "aria", place),
            ("archive", "import", place, "--agent", "aria"),
            ("agent", "edit", "aria", "--system-file", place),
            ("chat", "--once", "Look", "--image", place),
            ("chat", "--once", "Look", "--play", place),
            ("rule", "add", "aria", "--file", place),
            ("mcp", "import", place),
            ("model", "pull", "mine", "--file", place),
            ("agent", "list", "--config", place),
        ):
            done = asterism.run(*command)
            assert done.returncode == (1 if {"--play", "--config"} & {*command} else 2), (
                command,
                done.stderr,
            )
            assert "not a regular file" in " ".join(done.stderr.split())


def test_standard_input_has_a_bound(asterism: Command):
    asterism.ok("agent", "create", "aria", "--model", "demo:guide")
    with Path("/dev/zero").open("rb") as endless:
        done = subprocess.run(
            [EXECUTABLE, "memory", "import", "aria", "-"],
            stdin=endless,
            stderr=subprocess.PIPE,
            env=asterism.env,
            timeout=PATIENCE * 2,
            check=False,
        )
    assert done.returncode == 2
    assert "more than 256 MB" in " ".join(done.stderr.decode().split())


@pytest.mark.promise("X3")
def test_what_an_older_release_left_open_is_closed(asterism: Command):
    asterism.ok("agent", "create", "aria", "--model", "demo:guide")
    (asterism.data / "asterism.log").write_text("a line")
    for found in (asterism.data, *asterism.data.iterdir()):
        found.chmod(0o755 if found.is_dir() else 0o644)
    assert open_to_others(asterism.data)
    asterism.ok("agent", "create", "bea")
    assert open_to_others(asterism.data) == {}


def test_a_directory_with_things_of_others_is_left_as_it_is(asterism: Command):
    asterism.ok("agent", "create", "aria", "--model", "demo:guide")
    (asterism.data / "notes.txt").write_text("mine")
    (asterism.data / "notes.txt").chmod(0o644)
    asterism.data.chmod(0o755)
    (asterism.data / "asterism.db").chmod(0o644)
    asterism.ok("agent", "create", "bea")
    assert set(open_to_others(asterism.data)) == {
        str(asterism.data),
        str(asterism.data / "notes.txt"),
    }
