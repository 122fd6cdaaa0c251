"""A person at a real terminal: they press keys and see a screen."""

import os
import sys
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pexpect
import pyte

UP, DOWN, RIGHT, LEFT = "\x1b[A", "\x1b[B", "\x1b[C", "\x1b[D"
ENTER, SPACE, BACKSPACE, CTRL_C, ESCAPE = "\r", " ", "\x7f", "\x03", "\x1b"
PATIENCE = 120.0


class FormScreen:
    """A command at a terminal of so many columns and lines, and what its screen shows."""

    def __init__(self, arguments: Sequence[str], data: Path, columns: int, lines: int) -> None:
        self._screen = pyte.Screen(columns, lines)
        self._stream = pyte.ByteStream(self._screen)
        environ = {
            **{name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ},
            "TERM": "xterm-256color",
            "LANG": "C.UTF-8",
            "ASTERISM_DATA": str(data),
            "ASTERISM_SERVERS": "none",
            "XDG_CONFIG_HOME": str(data.parent / "config"),
        }
        self.child: Any = pexpect.spawn(
            sys.executable,
            ["-m", "asterism", *arguments],
            env=environ,
            dimensions=(lines, columns),
            timeout=PATIENCE,
        )

    @property
    def text(self) -> str:
        """What the screen shows."""
        return "\n".join(line.rstrip() for line in self._screen.display).rstrip()

    def press(self, *keys: str) -> None:
        """Press keys, one after the other."""
        for key in keys:
            self.child.send(key)

    def _read(self) -> bool:
        """Take in what the command has written; False if it has ended."""
        try:
            self._stream.feed(self.child.read_nonblocking(65_536, timeout=0.05))
        except pexpect.TIMEOUT:
            return True
        except pexpect.EOF:
            return False
        return True

    def see(self, wanted: str | Callable[[str], bool]) -> str:
        """Wait until the screen shows a text, and return all of it."""

        def shows(text: str) -> bool:
            return wanted(text) if callable(wanted) else wanted in text

        ends = time.monotonic() + PATIENCE
        while time.monotonic() < ends:
            going = self._read()
            if shows(self.text):
                return self.text
            if not going:
                break
        raise AssertionError(f"The screen never showed {wanted!r}:\n{self.text}")

    def end(self) -> int:
        """Wait until the command has ended, and return its code."""
        ends = time.monotonic() + PATIENCE
        while self._read():
            assert time.monotonic() < ends, f"It did not end:\n{self.text}"
        self.child.close()
        return int(self.child.exitstatus if self.child.exitstatus is not None else -1)


@contextmanager
def at_terminal(
    *arguments: str, data: Path, columns: int = 100, lines: int = 34
) -> Generator[FormScreen]:
    """Run a command at a terminal; it is ended at the latest with the block."""
    screen = FormScreen(arguments, data, columns, lines)
    try:
        yield screen
    finally:
        screen.child.close(force=True)
