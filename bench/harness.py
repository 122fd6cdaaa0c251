"""What a system under test has to offer and what it is given, the same for the floor and for us."""

from __future__ import annotations

import os
import resource
import signal
import sys
from pathlib import Path
from typing import Any

MODEL = "loopback"
SYSTEM = (
    "You are a helpful long-lived assistant. Answer in one or two sentences, and keep in mind what "
    "you are told."
)
ANSWER = (
    "Understood, and noted. This is an answer of two sentences and about two hundred characters, "
    "the same each time, so that whatever differs between two measurements is not in what was said."
)
TOOL_TEXT = 'Please write this down. [[call:record_event {"note": "milk"}]]'
TOOL_LOG = "BENCH_TOOL_LOG"
KILL_IN_TOOL = "BENCH_KILL_IN_TOOL"


def user_text(number: int) -> str:
    """Return what the user says in a plain turn, about a hundred characters."""
    return (
        f"This is message {number}: please remember that I liked item {number} best today, thanks."
    )


def tool_impl(note: str) -> str:
    """Have the tool's effect: a line in a file, if one is named. It may be the last thing we do."""
    log = os.environ.get(TOOL_LOG)
    if log:
        with Path(log).open("a", encoding="utf-8") as file:
            file.write(f"{note}\n")
            file.flush()
            os.fsync(file.fileno())
        if os.environ.get(KILL_IN_TOOL):
            os.kill(os.getpid(), signal.SIGKILL)
    return f"recorded {note}"


def resident_kb() -> int:
    """Return the memory that this process holds now."""
    statm = Path("/proc/self/statm")
    if statm.exists():
        return int(statm.read_text("ascii").split()[1]) * (resource.getpagesize() // 1024)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak // 1024 if sys.platform == "darwin" else peak


def bytes_in(directory: Path) -> int:
    """Return the size of all files in a directory."""
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())


class Env:
    """Where the model listens and where data may be kept."""

    def __init__(self, base_url: str, directory: Path) -> None:
        self.base_url = base_url
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)

    def p(self, name: str) -> str:
        """Return a path in the scratch directory."""
        return str(self.directory / name)


class Adapter:
    """A system under test."""

    name = ""

    def __init__(self, env: Env) -> None:
        self.env = env

    async def open(self) -> None:
        """Make ready for the first turn."""
        raise NotImplementedError

    async def agent(self, key: str, tool: bool = False) -> Any:
        """Return a handle on a durable conversation, made if there is none of that name."""
        raise NotImplementedError

    async def turn(self, h: Any, text: str) -> str:
        """Return the answer to a message; both are durable by then."""
        raise NotImplementedError

    async def resume(self, key: str) -> str | None:
        """Return the answer of a turn that a crash interrupted, or None if it has none."""
        raise NotImplementedError

    async def close(self) -> None:
        """Let go of everything."""
