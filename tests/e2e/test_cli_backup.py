"""`asterism backup` as a person uses it: on one machine, and then on another."""

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from asterism.types.memory import BACKUP_SUFFIX
from tests.e2e.command import PATIENCE, Command, Installed, ModelServer
from tests.e2e.test_terminals import served

pytestmark = pytest.mark.promise("A6")

PASSPHRASE = "eleven green bottles"


def backups_of(asterism: Command) -> list[Path]:
    return sorted((asterism.data / "backups").iterdir())


def test_from_one_machine_to_another(asterism: Command, model: ModelServer):
    asterism.use(model)
    asterism.ok("chat", "--once", "Remember the milk")
    said = asterism.ok("backup", "create", "--note", "before the move")
    [file] = backups_of(asterism)
    assert str(file) in said
    [listed] = asterism.json("backup", "list")
    assert (listed["path"], listed["note"], listed["encrypted"]) == (
        str(file),
        "before the move",
        False,
    )
    assert "before the move" in asterism.ok("backup", "list")
    shown = asterism.ok("backup", "verify", str(file))
    assert "It is whole" in shown
    assert asterism.json("backup", "verify", str(file))["contents"]["turns"] == 1
    other = asterism.place / "other"
    said = asterism.ok("backup", "restore", str(file), "--data", str(other))
    assert f"Restored into {other}." in said
    asterism.env["ASTERISM_DATA"] = str(other)
    assert len(asterism.json("turn", "list")) == 1
    assert asterism.ok("chat", "--once", "And now?")
    # No home is needed to see what there is.
    asterism.env["ASTERISM_DATA"] = str(asterism.place / "nothing")
    assert "There are no backups" in asterism.ok("backup", "list")
    assert asterism.json("backup", "list", "--from", str(file.parent))[0]["path"] == str(file)


def test_encrypted(asterism: Command):
    asterism.ok("agent", "create", "aria")
    asterism.env["PW"] = PASSPHRASE
    asterism.ok("backup", "create", "--passphrase-env", "PW")
    [file] = backups_of(asterism)
    assert b"aria" not in file.read_bytes()
    asterism.ok("backup", "verify", str(file), "--passphrase-env", "PW")
    refused = asterism.run("backup", "verify", str(file))
    assert refused.returncode == 1
    assert "is encrypted" in refused.stderr
    asterism.env["PW"] = "another passphrase"
    refused = asterism.run("backup", "restore", str(file), "--passphrase-env", "PW", "--replace")
    assert refused.returncode == 1
    assert "does not open" in refused.stderr
    assert asterism.json("agent", "list")[0]["name"] == "aria"
    assert asterism.run("backup", "create", "--passphrase-env", "NONE").returncode == 2
    assert asterism.run("backup", "create", "--encrypt").returncode == 2


def test_a_passphrase_is_typed_and_not_shown(installed: Installed):
    installed.ok("agent", "create", "aria")
    with installed.terminal("backup", "create", "--encrypt") as terminal:
        terminal.expect("without it): ")
        terminal.type(PASSPHRASE)
        terminal.expect("again: ")
        terminal.type(PASSPHRASE)
        terminal.expect("encrypted")
        assert terminal.ended() == 0
        assert PASSPHRASE not in terminal.shown
    [file] = backups_of(installed)
    with installed.terminal("backup", "restore", str(file), "--replace") as terminal:
        terminal.expect("Passphrase of")
        terminal.type(PASSPHRASE)
        terminal.expect("What was there before")
        assert terminal.ended() == 0
    with installed.terminal("backup", "create", "--encrypt") as terminal:
        terminal.expect("without it): ")
        terminal.type(PASSPHRASE)
        terminal.expect("again: ")
        terminal.type("twelve green bottles")
        terminal.expect("two different passphrases")
        assert terminal.ended() == 2
    assert backups_of(installed) == [file]


def test_a_configured_passphrase_serves_all(asterism: Command):
    asterism.configure('[backups]\ndirectory = "copies"\npassphrase = "secret:backup"\n')
    asterism.ok("key", "set", "backup", "--stdin", stdin=PASSPHRASE)
    asterism.ok("backup", "create")
    [file] = (asterism.data / "copies").iterdir()
    assert asterism.json("backup", "list")[0]["encrypted"]
    assert "It is whole" in asterism.ok("backup", "verify", str(file))


def test_a_damaged_backup_and_a_directory_in_use(asterism: Command):
    asterism.ok("agent", "create", "aria")
    asterism.ok("backup", "create")
    [file] = backups_of(asterism)
    refused = asterism.run("backup", "restore", str(file))
    assert refused.returncode == 1
    assert "--replace" in refused.stderr
    assert "What was there before is in" in asterism.ok("backup", "restore", str(file), "--replace")
    file.write_bytes(file.read_bytes()[:-1])
    for command in (("verify",), ("restore", "--replace")):
        refused = asterism.run("backup", *command, str(file), "--json")
        assert refused.returncode == 1
        assert json.loads(refused.stderr)["type"] == "backup.damaged"
    assert asterism.json("agent", "list")[0]["name"] == "aria"


def test_a_process_that_is_killed_leaves_no_backup(installed: Installed):
    installed.ok("agent", "create", "aria")
    (installed.data / "large").write_bytes(os.urandom(60_000_000))
    with installed.started("backup", "create") as process:
        deadline = time.monotonic() + PATIENCE
        while not list(installed.data.glob(".backup-*/packed/1")):
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.001)
        process.kill()
        process.wait(PATIENCE)
    assert list(installed.data.glob(".backup-*"))
    assert installed.json("backup", "list") == []
    installed.ok("backup", "create")
    [file] = backups_of(installed)
    assert not list(installed.data.glob(".backup-*"))
    assert "It is whole" in installed.ok("backup", "verify", str(file))


def test_beside_a_process_that_has_the_home_open(installed: Installed, model: ModelServer):
    installed.use(model)
    installed.ok("agent", "create", "aria")
    with served(installed):
        installed.ok("backup", "create", "--to", str(installed.place / "mine"))
        made: Any = installed.json("backup", "verify", str(installed.place / "mine"))
        assert made["contents"]["agents"] == 1
        refused = installed.run("backup", "restore", str(installed.place / "mine"), "--replace")
        assert refused.returncode == 1
        assert "Another asterism" in refused.stderr
    assert not list(installed.data.glob(f"*{BACKUP_SUFFIX}"))
