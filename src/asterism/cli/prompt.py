"""The prompt: lines with editing and history, and room above them for what comes meanwhile."""

from __future__ import annotations

import contextlib
import select
import sys
import termios
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType

try:
    import readline as _readline
except ImportError:  # some builds of Python have none
    readline: ModuleType | None = None
else:
    readline = _readline

_HISTORY = "chat-history"
_KEPT = 1_000


class Prompt:
    """Asks for a line; may be spoken to from other threads while it waits."""

    def __init__(self, place: Path, words: Sequence[str], *, coloured: bool) -> None:
        """Make a prompt that keeps its history in `place` and completes `words`."""
        mark = "› " if (sys.stdout.encoding or "").lower().startswith("utf") else "> "
        self._plain = f"\x1b[1m{mark}\x1b[0m" if coloured else mark
        # Readline must know what takes no room on the line.
        self._prompt = f"\x01\x1b[1m\x02{mark}\x01\x1b[0m\x02" if coloured else mark
        if readline is None:
            self._prompt = self._plain
        self._terminal = termios.tcgetattr(sys.stdin)
        self._history = place / _HISTORY
        self._words = words
        self._lock = threading.Lock()
        self._asking = False
        self._announced: list[Callable[[], None]] = []
        self._set_up()

    def ask(self) -> str:
        """Return what a person typed; raises EOFError or KeyboardInterrupt if they leave."""
        with self._lock:
            self._show_announced()
            self._asking = True
        try:
            line = input(self._prompt)
            # Without bracketed paste the lines of a paste come one by one.
            while not _pastes_whole() and select.select([sys.stdin], [], [], 0.01)[0]:
                line += "\n" + input()
            return line
        finally:
            with self._lock:
                self._asking = False

    def announce(self, show: Callable[[], None]) -> None:
        """Let `show` print above the prompt: now if a person is asked, else before the next ask."""
        with self._lock:
            self._announced.append(show)
            if self._asking:
                print("\r\x1b[J", end="")  # noqa: T201
                self._show_announced()
                typed = readline.get_line_buffer() if readline else ""
                print(f"{self._plain}{typed}", end="", flush=True)  # noqa: T201

    def close(self) -> None:
        """Give the terminal back as it was, and keep the history for the next time."""
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, self._terminal)
        if readline is not None:
            readline.set_history_length(_KEPT)
            with contextlib.suppress(OSError):
                readline.write_history_file(self._history)

    def _show_announced(self) -> None:
        for show in self._announced:
            show()
        self._announced.clear()

    def _set_up(self) -> None:
        if readline is None:
            return
        if _is_gnu():
            readline.parse_and_bind("set enable-bracketed-paste on")
        readline.set_completer(self._complete)
        readline.set_completer_delims(" ")
        readline.parse_and_bind("tab: complete" if _is_gnu() else "bind ^I rl_complete")
        with contextlib.suppress(OSError):
            readline.read_history_file(self._history)

    def _complete(self, text: str, number: int) -> str | None:
        found = [word for word in self._words if text and word.startswith(text)]
        return found[number] if number < len(found) else None


def _is_gnu() -> bool:
    return readline is not None and "libedit" not in (readline.__doc__ or "")


def _pastes_whole() -> bool:
    return _is_gnu()
