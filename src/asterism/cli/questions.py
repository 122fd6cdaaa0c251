"""Questions to a person at a terminal: each with a default, and a wrong answer is asked again."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import TypeVar

from asterism.cli.output import console
from asterism.cli.stop import noticing_ctrl_c
from asterism.cli.text import printable
from asterism.errors import AsterismError

T = TypeVar("T")

_ATTEMPTS = 10
"""Wrong answers to one question before it is given up, so that no loop is endless."""
_ROOM = 12
"""Columns for an answer on the line of its question; it gets its own line otherwise."""
_NOT_UTF8 = "That was not UTF-8."


def may_ask(*, yes: bool) -> bool:
    """Tell whether there is a person to ask, who has not said to be left alone."""
    at_terminal = sys.stdin.isatty() and sys.stdout.isatty()
    return at_terminal and not yes and not os.environ.get("ASTERISM_NONINTERACTIVE")


def tell(text: str, style: str = "") -> None:
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
    for _ in range(_ATTEMPTS):
        try:
            answer = _line(f"{question} [{printable(default)}]: ")
            return check(answer) if answer else None
        except AsterismError as error:
            tell(error.message, "yellow")
        except UnicodeDecodeError:
            tell(_NOT_UTF8, "yellow")
    raise KeyboardInterrupt


def confirm(question: str, *, default: bool = True) -> bool:
    """Ask for a yes or a no."""
    for _ in range(_ATTEMPTS):
        try:
            answer = _line(f"{question} [{'Y/n' if default else 'y/N'}] ").lower()
        except UnicodeDecodeError:
            answer = _NOT_UTF8
        if not answer:
            return default
        if answer in ("y", "yes", "n", "no"):
            return answer.startswith("y")
        tell('Answer "y" or "n"; Enter takes the one in capitals.', "yellow")
    raise KeyboardInterrupt


def line(question: str) -> str:
    """Ask for a line; empty if nothing was typed."""
    try:
        return _line(question)
    except UnicodeDecodeError:
        tell(_NOT_UTF8, "yellow")
        return ""


def ask_secret(question: str) -> str:
    """Ask for something that is not shown while it is typed; empty if nothing was."""
    from getpass import getpass

    try:
        return getpass(f"{question}: ").strip()
    except (EOFError, KeyboardInterrupt):
        print()  # noqa: T201
        raise KeyboardInterrupt from None


def _line(question: str) -> str:
    """Return a line; it is no part of the history of the chat, which may open next."""
    _keep_history(wanted=False)
    if len(question) + _ROOM > console().width:
        tell(question.rstrip())
        question = "> "
    try:
        with noticing_ctrl_c():
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
