"""What a new process would find, for a command that runs within the process of a test."""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import signal
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Generator
from pathlib import Path
from types import ModuleType
from unittest import mock

import typer.main

from asterism.search import clear_caches
from asterism.telemetry.redaction import SECRETS, KnownSecrets

# The same at each run, and building it takes longer than most commands.
_commands = functools.cache(typer.main.get_command)


@contextlib.contextmanager
def as_new_process(
    arguments: list[str], env: dict[str, str], streams: tuple[int, int, int]
) -> Generator[None, None, None]:
    """Let what is inside find the state of a new process, and leave nothing of its own behind."""
    with (
        _standard_streams(streams),
        contextlib.chdir(Path.cwd()),
        mock.patch.dict(os.environ, env, clear=True),
        mock.patch.object(tempfile, "tempdir", None),
        mock.patch.multiple(sys, argv=arguments, path=[*sys.path], excepthook=sys.__excepthook__),
        mock.patch.object(typer.main, "get_command", _commands),
        mock.patch.dict(vars(SECRETS), vars(KnownSecrets()), clear=True),
        warnings.catch_warnings(),
        _modules(),
        _logging(),
        _signals(),
    ):
        time.tzset()
        umask = os.umask(0)
        os.umask(umask)
        clear_caches()
        try:
            yield
        finally:
            os.umask(umask)
            clear_caches()
    time.tzset()


@contextlib.contextmanager
def _standard_streams(streams: tuple[int, int, int]) -> Generator[None, None, None]:
    """Let descriptors 0, 1 and 2 be these files, for Python and for processes that it starts."""
    kept = [os.dup(number) for number in range(3)]
    try:
        for number, given in enumerate(streams):
            os.dup2(given, number)
        # The ways in which Python opens them where the locale is C.UTF-8.
        with (
            open(0, encoding="utf-8", errors="surrogateescape", closefd=False) as stdin,
            open(1, "w", encoding="utf-8", errors="surrogateescape", closefd=False) as stdout,
            open(2, "w", 1, encoding="utf-8", errors="backslashreplace", closefd=False) as stderr,
            mock.patch.multiple(sys, stdin=stdin, stdout=stdout, stderr=stderr),
            mock.patch.multiple(sys, __stdin__=stdin, __stdout__=stdout, __stderr__=stderr),
        ):
            yield
    finally:
        for number, before in enumerate(kept):
            os.dup2(before, number)
            os.close(before)


@contextlib.contextmanager
def _modules() -> Generator[None, None, None]:
    """Let the main module be a script, by which a command is named, and forget tools of a home."""
    before = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = before
        for name in [one for one in sys.modules if one.startswith("asterism_tools_")]:
            del sys.modules[name]


@contextlib.contextmanager
def _logging() -> Generator[None, None, None]:
    """Begin with a log that nobody has set up, and give the handlers of the test back."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    levels = {
        one: one.level
        for one in root.manager.loggerDict.values()
        if isinstance(one, logging.Logger)
    }
    root.handlers[:] = []
    root.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logging.captureWarnings(capture=False)
        for handler in root.handlers:
            handler.close()
        root.handlers[:] = handlers
        root.setLevel(level)
        for logger, before in levels.items():
            logger.setLevel(before)


@contextlib.contextmanager
def _signals() -> Generator[None, None, None]:
    """Give every handler of a signal back; only the main thread can have changed one."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handlers = {number: signal.getsignal(number) for number in signal.valid_signals()}
    wakeup = signal.set_wakeup_fd(-1)
    try:
        yield
    finally:
        signal.set_wakeup_fd(wakeup)
        for number, before in handlers.items():
            if signal.getsignal(number) is not before:
                signal.signal(number, before)


def open_below(place: Path) -> set[tuple[str, str]]:
    """Return the files below a place that this process has open, where the system tells."""
    found: set[tuple[str, str]] = set()
    with contextlib.suppress(FileNotFoundError):
        for number in Path("/proc/self/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):
                found.add((number.name, str(number.readlink())))
    return {(number, path) for number, path in found if path.startswith(f"{place}/")}
