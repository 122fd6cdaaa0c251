"""The terminal: questions to a person, their editor, and the signals that end a process."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Generator
from pathlib import Path
from typing import TypeVar

from asterism.cli.output import console, printable
from asterism.errors import AsterismError, InvalidInput

T = TypeVar("T")

MAX_ATTEMPTS = 10
"""Wrong answers to one question before it is given up, so that no loop is endless."""
NOTE_STYLE, WARNING_STYLE = "bright_black", "yellow"
_ROOM = 12
"""Columns for an answer on the line of its question; it gets its own line otherwise."""
_NOT_UTF8 = "That was not UTF-8."
_A_MOMENT = 0.05
_EDITORS = ("sensible-editor", "editor", "nano", "vim", "vi", "notepad")


# -- questions: each has a default, and a wrong answer is asked again ------------------------------


def may_ask(*, yes: bool) -> bool:
    """Tell whether there is a person to ask, who has not asked to be left alone."""
    at_terminal = sys.stdin.isatty() and sys.stdout.isatty()
    return at_terminal and not yes and not os.environ.get("ASTERISM_NONINTERACTIVE")


def say(text: str, style: str = "") -> None:
    """Print a sentence, broken at words at a terminal and whole in a pipe."""
    if not sys.stdout.isatty():
        print(printable(text))  # noqa: T201
        return
    from rich.text import Text

    console().print(Text(printable(text), style))


def ask(question: str, default: str, check: Callable[[str], T]) -> T | None:
    """Ask until an answer can be taken, and return it; None stands for Enter, the default.

    `check` makes the answer of the text, or raises an `AsterismError` that says what is wrong.
    Ctrl-C and the end of input raise KeyboardInterrupt.
    """
    for _ in range(MAX_ATTEMPTS):
        try:
            answer = _input(f"{question} [{printable(default)}]: ")
            return check(answer) if answer else None
        except AsterismError as error:
            say(error.message, WARNING_STYLE)
        except UnicodeDecodeError:
            say(_NOT_UTF8, WARNING_STYLE)
    raise KeyboardInterrupt


def confirm(question: str, *, default: bool = True) -> bool:
    """Ask for a yes or a no."""
    for _ in range(MAX_ATTEMPTS):
        try:
            answer = _input(f"{question} [{'Y/n' if default else 'y/N'}] ").lower()
        except UnicodeDecodeError:
            answer = _NOT_UTF8
        if not answer:
            return default
        if answer in ("y", "yes", "n", "no"):
            return answer.startswith("y")
        say('Answer "y" or "n"; Enter chooses the capital letter.', WARNING_STYLE)
    raise KeyboardInterrupt


def ask_line(question: str) -> str:
    """Ask for a line; empty if nothing was typed."""
    try:
        return _input(question)
    except UnicodeDecodeError:
        say(_NOT_UTF8, WARNING_STYLE)
        return ""


def ask_secret(question: str) -> str:
    """Ask for something that is not shown while it is typed; empty if nothing was."""
    from getpass import getpass

    try:
        # It turns the echo off before it shows the prompt, so that nothing of it is seen.
        with ctrl_c_interrupts():
            return getpass(f"{question}: ")
    except (EOFError, KeyboardInterrupt):
        print()  # noqa: T201
        raise KeyboardInterrupt from None


def _input(question: str) -> str:
    """Return a line; it is not a part of the history of the chat, which may open next."""
    _keep_history(wanted=False)
    if len(question) + _ROOM > console().width:
        say(question.rstrip())
        question = "> "
    try:
        with ctrl_c_interrupts():
            return input(question).strip()
    except (EOFError, KeyboardInterrupt):
        print()  # noqa: T201
        raise KeyboardInterrupt from None
    finally:
        _keep_history(wanted=True)


def _keep_history(*, wanted: bool) -> None:
    readline = sys.modules.get("readline")
    if readline is not None:
        readline.set_auto_history(wanted)


# -- an editor -------------------------------------------------------------------------------------


class EditorFile:
    """A file with a text that a person edits; it is removed when it is not needed any more."""

    def __init__(self, name: str, suffix: str, text: str) -> None:
        self._command = editor_command()
        safe = "".join(sign if sign.isalnum() or sign in "-_" else "-" for sign in name)[:40]
        self.file = Path(tempfile.mkdtemp(prefix="asterism-")) / f"{safe}{suffix}"
        # Editors end the last line; whether the text itself did is remembered.
        self._ended = text.endswith("\n")
        self.file.write_text(text if self._ended or not text else f"{text}\n", encoding="utf-8")

    def edit(self) -> str:
        """Open the editor, wait until it is closed, and return what the text is then."""
        command = [*self._command, str(self.file)]
        try:
            with ctrl_c_interrupts():
                code = subprocess.call(command)  # noqa: S603 - the person's own choice
        except OSError as error:
            self.discard()
            raise InvalidInput(
                f"The editor {command[0]!r} cannot be started ({error.strerror}). Set EDITOR to "
                "one that can, or use --text, --file or --append. Nothing was changed."
            ) from None
        if code != 0:
            raise InvalidInput(
                f"The editor {command[0]!r} ended with code {code}, so nothing was changed. "
                f"The edited text is in {self.file}."
            )
        try:
            text = self.file.read_text("utf-8")
        except (OSError, UnicodeDecodeError):
            raise InvalidInput(
                f"{self.file} is not UTF-8 text after the editor, so nothing was changed."
            ) from None
        return text if self._ended else text.removesuffix("\n")

    def discard(self) -> None:
        """Remove the file."""
        shutil.rmtree(self.file.parent, ignore_errors=True)


def editor_command() -> list[str]:
    """Return the command of the person's editor; raise `InvalidInput` if there is none."""
    chosen = os.environ.get("VISUAL") or os.environ.get("EDITOR")
    if chosen:
        try:
            words = shlex.split(chosen)
        except ValueError:
            words = []
        if words:
            return words
        raise InvalidInput(
            f"VISUAL or EDITOR is {chosen!r}, which is not a command. Set it to one such as nano. "
            "Nothing was changed."
        )
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise InvalidInput(
            "There is no terminal to open an editor. Set EDITOR, or use --text, --file or "
            "--append. Nothing was changed."
        )
    for name in _EDITORS:
        if command := shutil.which(name):
            return [command]
    raise InvalidInput(
        "No editor was found. Set EDITOR to one such as nano, or use --text, --file or --append. "
        "Nothing was changed."
    )


# -- signals ---------------------------------------------------------------------------------------


async def until_stopped() -> None:
    """Return at the first SIGINT or SIGTERM; a second one ends the process at once."""
    loop = asyncio.get_running_loop()
    stopped = asyncio.Event()
    numbers = (signal.SIGINT, signal.SIGTERM)
    for number in numbers:
        loop.add_signal_handler(number, stopped.set)
    try:
        await stopped.wait()
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)


def _ignore(number: int, frame: object) -> None:
    """Do nothing, so that a signal does not end the process by itself."""


def _wake_main_thread() -> None:
    """Let the main thread notice a signal that came just before it began to wait for a key.

    Between showing its prompt and waiting, `input` runs no Python, so that the interrupt would
    be seen at the next key only (CPython 3.11, Modules/readline.c and Parser/myreadline.c). The
    size of the window is a signal that may come at any time and that changes nothing.
    """
    time.sleep(_A_MOMENT)
    with contextlib.suppress(ProcessLookupError):
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGWINCH)


def _let_window_size_interrupt() -> None:
    """Let a change of the window's size end a call that waits; nobody else may listen to it.

    By default the kernel drops that signal before anybody wakes up. Readline has a handler itself.
    """
    if signal.getsignal(signal.SIGWINCH) is signal.SIG_DFL and "readline" not in sys.modules:
        signal.signal(signal.SIGWINCH, _ignore)


@contextlib.contextmanager
def ctrl_c_interrupts() -> Generator[None, None, None]:
    """Let a Ctrl-C within end the waiting for a person, however shortly before that it came.

    An event loop that runs would only take a note of it, and `input` would wait on.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    former_file = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    former_handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    _let_window_size_interrupt()

    def wait() -> None:
        while number := os.read(reading, 1):
            if number[0] in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                _wake_main_thread()

    thread = threading.Thread(target=wait, name="asterism-ctrl-c", daemon=True)
    thread.start()
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, former_handler)
        signal.set_wakeup_fd(former_file)
        os.close(writing)
        thread.join()
        os.close(reading)


def exit_on(numbers: Collection[signal.Signals], last: Callable[[], None]) -> None:
    """End the process at these signals, after a last effect, whatever its threads wait for.

    A handler alone would run when the main thread has read its line, which may be never.
    """
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    for number in numbers:
        signal.signal(number, _ignore)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    _let_window_size_interrupt()

    def wait() -> None:
        while (number := os.read(reading, 1)[0]) not in numbers:
            if number == signal.SIGINT:
                _wake_main_thread()
        last()
        os._exit(128 + number)

    threading.Thread(target=wait, name="asterism-signals", daemon=True).start()
