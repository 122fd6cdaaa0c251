"""The screen of a chat: a turn while it is under way, and the prompt below it."""

from __future__ import annotations

import contextlib
import re
import select
import sys
import termios
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from asterism.cli.output import console, one_line, printable

if TYPE_CHECKING:
    from asterism.types.turns import Signal

try:
    import readline as _readline
except ImportError:  # some builds of Python have none
    readline: ModuleType | None = None
else:
    readline = _readline

_HISTORY = "chat-history"
MAX_HISTORY = 1_000
_PARTS = re.compile(r"\n|[^\S\n]+|\S+")
_DIM, _KEPT, _WARNING, _ERROR = "bright_black", "green", "yellow", "red"


class Screen:
    """Shows signals: answers as they come, tool calls and trouble on lines of their own."""

    def __init__(self) -> None:
        self._console = console()
        self._text = _Typewriter(lambda text: self._write(text, ""), lambda: self.width)
        self._thought = _Typewriter(lambda text: self._write(text, _DIM), lambda: self.width)
        self._streamed = ""
        """What was streamed since the last step."""
        self._calls: dict[str, str] = {}
        self._open_call: str | None = None
        self._waits_for = ""
        self.hints = True
        """Whether to say how a question is answered."""
        self._shows: dict[str, Callable[[dict[str, Any]], None]] = {
            "text": self._show_text,
            "reasoning": self._show_reasoning,
            "call": self._show_call,
            "progress": self._show_progress,
            "result": self._show_result,
            "kept": self._show_kept,
            "again": self._show_again,
            "waiting": self._show_waiting,
            "parked": self._show_parked,
            "ended": self._show_ended,
        }

    @property
    def width(self) -> int:
        """How many columns the terminal has now."""
        return self._console.width

    @property
    def coloured(self) -> bool:
        """Whether the terminal takes styles."""
        return self._console.color_system is not None and not self._console.no_color

    def show(self, signal: Signal) -> None:
        """Show what happened; kinds that nobody needs to see are passed over."""
        show = self._shows.get(signal.kind)
        if show is not None:
            show(signal.data)

    def say(self, text: str) -> None:
        """Print a line or more of plain text, broken at words."""
        self._finish_line()
        self._text.put(printable(text))
        self._text.end()

    def gap(self) -> None:
        """Leave a line empty."""
        self._finish_line()
        self._write("\n", "")

    def note(self, text: str) -> None:
        """Print something beside the conversation."""
        self._line(text, _DIM)

    def warn(self, text: str) -> None:
        """Print something that needs attention."""
        self._line(f"! {text}", _WARNING)

    def fail(self, text: str) -> None:
        """Print what went wrong."""
        self._line(f"✗ {text}", _ERROR)

    def _show_text(self, data: dict[str, Any]) -> None:
        self._end_call()
        self._thought.end()
        self._streamed += data["text"]
        self._text.put(printable(data["text"]))

    def _show_reasoning(self, data: dict[str, Any]) -> None:
        self._end_call()
        self._text.end()
        self._thought.put(printable(data["text"]))

    def _show_call(self, data: dict[str, Any]) -> None:
        self._finish_line()
        self._streamed = ""
        self._calls[data["key"]] = data["name"]
        self._open_call = data["key"]
        arguments = one_line(data["arguments"], max(20, self.width // 2 - len(data["name"])))
        self._write(f"· {printable(data['name'])} {arguments}", _DIM)

    def _show_progress(self, data: dict[str, Any]) -> None:
        self._line(f"  {self._calls.get(data['key'], '')}: {one_line(data['text'], 200)}", _DIM)

    def _show_result(self, data: dict[str, Any]) -> None:
        name = self._calls.get(data["key"], data["key"])
        if self._open_call == data["key"]:
            self._write(f" → {one_line(data['text'], max(20, self.width // 2 - 8))}\n", _DIM)
            self._open_call = None
        else:
            self._line(f"· {name} → {one_line(data['text'], max(20, self.width - 20))}", _DIM)

    def _show_kept(self, data: dict[str, Any]) -> None:
        where = "archive" if data["where"].startswith("pass_") else data["where"]
        before = f" (before: {one_line(data['before'], 60)})" if data["before"] else ""
        text = one_line(data["text"], max(20, self.width - 30))
        self._line(f"+ {where}: {text}{before} · /why · /undo", _KEPT)

    def _show_again(self, data: dict[str, Any]) -> None:
        self._streamed = ""
        self._line(
            f"(The model was interrupted and is asked again: {one_line(data['why'], 200)})", _DIM
        )

    def _show_waiting(self, data: dict[str, Any]) -> None:
        if data["why"] != self._waits_for:
            self._waits_for = data["why"]
            self.warn(f"Waiting: {data['why']} The turn continues by itself.")

    def _show_parked(self, data: dict[str, Any]) -> None:
        self.show_questions(data["text"])
        self._streamed = ""

    def show_questions(self, questions: str) -> None:
        """Show questions that wait for an answer, and how to give it."""
        for question in questions.splitlines():
            self._line(f"? {question}", _WARNING)
        if self.hints:
            self.note('  "/approve" allows it, "/deny why" refuses it; add the id if several wait.')

    def _show_ended(self, data: dict[str, Any]) -> None:
        text = data["text"]
        if data["state"] == "done":
            if text != self._streamed:  # nobody watched while it was written
                self._finish_line()
                self._text.put(printable(text))
            self._finish_line()
        elif data["state"] == "stopped":
            self.note(f"({text})")
        else:
            self.fail(text)
        self._streamed = self._waits_for = ""
        self._calls.clear()

    def _line(self, text: str, style: str) -> None:
        from rich.text import Text

        self._finish_line()
        self._console.print(Text(printable(text), style))

    def _finish_line(self) -> None:
        self._end_call()
        self._thought.end()
        self._text.end()

    def _end_call(self) -> None:
        if self._open_call is not None:
            self._write("\n", "")
            self._open_call = None

    def _write(self, text: str, style: str) -> None:
        from rich.text import Text

        self._console.print(Text(text, style), end="", soft_wrap=True)
        self._console.file.flush()


class _Typewriter:
    """Writes text that comes in pieces, and breaks lines between words."""

    def __init__(self, write: Callable[[str], None], width: Callable[[], int]) -> None:
        self._write = write
        self._width = width
        self._column = 0
        self._space = ""
        self._word = ""

    def put(self, text: str) -> None:
        """Write a piece; its last word is held back, since it may go on."""
        for part in _PARTS.findall(text):
            if not part.isspace():
                self._word += part
                continue
            self._put_word()
            if part == "\n":
                self._write("\n")
                self._column, self._space = 0, ""
            else:
                self._space += part.expandtabs(4)

    def end(self) -> None:
        """Write what was held back and finish the line, if one was begun."""
        self._put_word()
        if self._column:
            self._write("\n")
        self._column, self._space = 0, ""

    def _put_word(self) -> None:
        if not self._word:
            return
        from rich.cells import cell_len

        size = cell_len(self._word)
        if self._column and self._column + len(self._space) + size > self._width():
            self._write("\n")
            self._column, self._space = 0, ""
        self._write(self._space + self._word)
        self._column += len(self._space) + size
        self._space = self._word = ""


# -- the prompt ------------------------------------------------------------------------------------


class Prompt:
    """Asks for a line; other threads may print above it while it waits."""

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
            readline.set_history_length(MAX_HISTORY)
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
        words = [word for word in self._words if text and word.startswith(text)]
        return words[number] if number < len(words) else None


def _is_gnu() -> bool:
    return readline is not None and "libedit" not in (readline.__doc__ or "")


def _pastes_whole() -> bool:
    return _is_gnu()
