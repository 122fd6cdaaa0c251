"""`asterism worker`: takes turns beside other workers, on PostgreSQL."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from asterism.cli import log
from asterism.cli.home import opened
from asterism.cli.options import Options
from asterism.cli.stop import until_told
from asterism.cli.text import printable
from asterism.errors import InvalidInput, StoreUnavailable

if TYPE_CHECKING:
    from asterism.app import Asterism

_FIRST_WAIT, _LONGEST_WAIT = 0.5, 5.0
_SAY_AGAIN = 300.0


def worker(options: Options) -> None:
    """Take turns beside other workers, on PostgreSQL.

    It works until Ctrl-C or SIGTERM, and waits for a server that is not there yet. On SQLite one
    process does it all: use serve or chat.
    """
    asyncio.run(work(options))


async def work(options: Options) -> None:
    """Work until told to stop."""
    from asterism.config import load

    if load(options.place, options.config, os.environ).store.url is None:
        raise InvalidInput(
            "Workers need PostgreSQL, and store.url is not set: on SQLite one process does it all, "
            'so use "asterism serve" or "asterism chat". Nothing was started.'
        )
    told = asyncio.create_task(until_told())
    await asyncio.sleep(0)  # it hears signals before anything is said
    try:
        async with AsyncExitStack() as stack:
            home = await _open(stack, options, told)
            if home is None:
                return
            home.follow_configuration(log.follow)
            _say("Working; Ctrl-C or SIGTERM stops.")
            await told
            _say("Stopping; turns under way get a moment to finish.")
    finally:
        told.cancel()


async def _open(
    stack: AsyncExitStack, options: Options, told: asyncio.Task[None]
) -> Asterism | None:
    """Open the home as soon as its server is there; None if told to end before."""
    wait, said_at = _FIRST_WAIT, float("-inf")
    while True:
        try:
            return await stack.enter_async_context(opened(options, work=True))
        except StoreUnavailable as error:
            if time.monotonic() - said_at >= _SAY_AGAIN:
                said_at = time.monotonic()
                _say(f"{error.reason} Waiting for it; Ctrl-C or SIGTERM ends.")
        done, _ = await asyncio.wait([told], timeout=wait)
        if done:
            return None
        wait = min(wait * 2, _LONGEST_WAIT)


def _say(text: str) -> None:
    print(printable(text), file=sys.stderr, flush=True)  # noqa: T201
