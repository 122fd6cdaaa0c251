"""One process at a time: a lock that ends with the process that holds it."""

from __future__ import annotations

import asyncio
import fcntl
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from asterism.private import private

_POLL_SECONDS = 0.25


@asynccontextmanager
async def exclusive_lock(path: Path, on_wait: Callable[[], None]) -> AsyncGenerator[None, None]:
    """Hold the lock of a file; while another process has it, wait and call `on_wait` at times."""
    with open(path, "ab", opener=private) as file:  # noqa: ASYNC230 - an opener; at once
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                on_wait()
                await asyncio.sleep(_POLL_SECONDS)
        yield
