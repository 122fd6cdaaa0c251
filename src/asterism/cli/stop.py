"""Stopping: signals end a process that would otherwise run for ever, or wait for a person."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Collection


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


def exit_on(numbers: Collection[signal.Signals], last: Callable[[], None]) -> None:
    """End the process at these signals, after a last deed, whatever its threads wait for.

    A handler alone would run when the main thread has read its line, which may be never.
    """
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    for number in numbers:
        signal.signal(number, _nothing)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)

    def wait() -> None:
        while (number := os.read(reading, 1)[0]) not in numbers:
            pass
        last()
        os._exit(128 + number)

    threading.Thread(target=wait, name="asterism-signals", daemon=True).start()
