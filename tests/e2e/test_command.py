"""A command within the process of a test behaves as the installed one, and leaves no trace."""

import asyncio
import logging
import os
import signal
import sys
import threading
from pathlib import Path

import pytest

from asterism.telemetry.redaction import redact
from tests.e2e.command import TRACEBACK, Command, Installed, ModelServer

CANARY = "canary-0815-key-of-a-vendor"


@pytest.mark.parametrize(
    "arguments",
    [("--help",), ("agent", "lsit"), ("agent", "show", "nobody", "--json"), ("agent", "list")],
    ids=" ".join,
)
def test_both_ways_of_running_a_command_agree(
    asterism: Command, installed: Installed, arguments: tuple[str, ...]
):
    asterism.ok("agent", "create", "aria", "--model", "demo:guide")
    here, there = asterism.run(*arguments), installed.run(*arguments)
    assert (here.returncode, here.stdout, here.stderr) == (
        there.returncode,
        there.stdout,
        there.stderr,
    )


def state() -> dict[str, object]:
    """Return what a command could leave changed in this process."""
    return {
        "directory": Path.cwd(),
        "environment": dict(os.environ),
        "files": [os.fstat(number)[:3] for number in range(3)],
        "hooks": (sys.excepthook, threading.excepthook),
        "level": logging.getLogger().level,
        "log": logging.getLogger().handlers[:],
        "main": sys.modules["__main__"],
        "path": sys.path[:],
        "signals": [signal.getsignal(number) for number in signal.valid_signals()],
        "streams": (sys.stdin, sys.stdout, sys.stderr),
        "threads": set(threading.enumerate()),
    }


def test_a_command_leaves_this_process_as_it_was(asterism: Command, model: ModelServer):
    asterism.use(model, 'log.level = "debug"')
    before = state()
    asterism.ok("key", "set", "local", "--stdin", stdin=CANARY)
    assert asterism.ok("chat", "--once", "hi") == "answer to: hi\n"
    with asterism.screen("agent", "list", columns=60) as person:
        assert person.ended() == 0
    assert asterism.run("nonsense").returncode == 2
    assert state() == before
    assert redact(CANARY) == CANARY
    assert "[redacted local]" in asterism.run("agent", "show", CANARY).stderr


async def test_a_command_runs_beside_an_event_loop(asterism: Command, model: ModelServer):
    loop = asyncio.get_running_loop()
    asterism.use(model)
    assert asterism.ok("chat", "--once", "hi") == "answer to: hi\n"
    assert await asyncio.to_thread(asterism.ok, "chat", "--once", "on") == "answer to: on\n"
    assert asyncio.get_running_loop() is loop


def test_what_a_process_of_a_command_prints_is_its_own(asterism: Command, tmp_path: Path):
    asterism.ok("agent", "create", "aria")
    asterism.ok("block", "create", "human", "--text", "Likes tea.")
    script = tmp_path / "editor.sh"
    script.write_text("#!/bin/sh\necho seen by the person\necho and a problem >&2\n")
    script.chmod(0o700)
    asterism.env["EDITOR"] = str(script)
    done = asterism.run("block", "edit", "human")
    assert "seen by the person\n" in done.stdout
    assert done.stderr == "and a problem\n"


def test_a_traceback_fails_the_test(asterism: Command, monkeypatch: pytest.MonkeyPatch):
    def broken(*_: object, **__: object) -> None:
        print(TRACEBACK)

    asterism.ok("agent", "create", "aria")
    monkeypatch.setattr("asterism.cli.commands.open_home", broken)
    with pytest.raises(AssertionError, match="most recent call last"):
        asterism.run("agent", "list")
