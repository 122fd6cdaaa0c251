"""Stopping: signals end a process that would otherwise run for ever, or wait for a person."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Collection, Generator

_A_MOMENT = 0.05


async def until_told() -> None:
    """Return at the first SIGINT or SIGTERM; a second one ends the process at once."""
    loop = asyncio.get_running_loop()
    told = asyncio.Event()
    numbers = (signal.SIGINT, signal.SIGTERM)
    for number in numbers:
        loop.add_signal_handler(number, told.set)
    try:
        await told.wait()
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)


def _nothing(number: int, frame: object) -> None:
    """Do nothing, so that a signal does not end the process by itself."""


def _wake_main_thread() -> None:
    """Let the main thread notice a Ctrl-C that came just before it began to wait for a key.

    Between showing its prompt and waiting, readline runs no Python, so that the interrupt would
    be seen at the next key only (CPython 3.11, Modules/readline.c). The size of the window is a
    signal that readline takes at any time and that changes nothing.
    """
    time.sleep(_A_MOMENT)
    with contextlib.suppress(ProcessLookupError):
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGWINCH)


@contextlib.contextmanager
def noticing_ctrl_c() -> Generator[None, None, None]:
    """Let a Ctrl-C within end the waiting for a line, however shortly before that it came."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    former = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)

    def wait() -> None:
        while number := os.read(reading, 1):
            if number[0] == signal.SIGINT:
                _wake_main_thread()

    thread = threading.Thread(target=wait, name="asterism-ctrl-c", daemon=True)
    thread.start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(former)
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
        signal.signal(number, _nothing)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)

    def wait() -> None:
        while (number := os.read(reading, 1)[0]) not in numbers:
            if number == signal.SIGINT:
                _wake_main_thread()
        last()
        os._exit(128 + number)

    threading.Thread(target=wait, name="asterism-signals", daemon=True).start()
