"""`asterism serve` and `asterism worker`: processes that work until they are stopped."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Annotated

from asterism.cli import log
from asterism.cli.commands import Options, open_here, option
from asterism.cli.halt import halt_notes
from asterism.cli.inputs import Play, Record
from asterism.cli.output import note
from asterism.cli.terminal import until_stopped
from asterism.errors import InvalidInput, StoreUnavailable

if TYPE_CHECKING:
    from asterism.app import Asterism
    from asterism.config import Settings

_STOPPING = "Stopping; running turns get a moment to finish."
_FIRST_WAIT, _MAX_WAIT = 0.5, 5.0
_SAY_AGAIN = 300.0

_log = logging.getLogger(__name__)


async def serve(
    options: Options,
    host: Annotated[str, option("--host", None, "The address to listen at.")] = "127.0.0.1",
    port: Annotated[
        int, option("--port", None, "The port; 0 chooses a free port.", min=0, max=65535)
    ] = 8283,
    record: Record = None,
    play: Play = None,
) -> None:
    """Start everything, with an HTTP server.

    Turns, schedules and deliveries are worked on until Ctrl-C or SIGTERM; GET /health shows how
    it goes, GET /metrics is for Prometheus.
    """
    from asterism.api.server import Server, bind

    options = options.with_cassette(record, play)
    problems: list[str] = []

    def on_problem(problem: str) -> None:
        _log.warning("%s", problem)
        note(problem)
        problems[:] = [problem]

    # Before anything starts: the port may be taken.
    with bind(host, port) as socket:
        async with open_here(options, work=True, on_problem=on_problem) as home:

            def changed(new: Settings) -> None:
                problems.clear()
                log.follow(new)

            home.follow_configuration(changed)
            token = await home.ensure_default_token()
            stopped = asyncio.create_task(until_stopped())
            await asyncio.sleep(0)  # it takes signals before anything is printed
            async with Server(home, socket, lambda: problems) as server:
                listening = f"Listening at {server.url}, for example {server.url}/health."
                note(f"{listening} Ctrl-C stops. {token}".rstrip())
                for text in await halt_notes(home):
                    note(text)
                await stopped
                note(_STOPPING)


async def worker(options: Options) -> None:
    """Take turns beside other workers, on PostgreSQL.

    It works until Ctrl-C or SIGTERM, and waits for a server that is not there yet. On SQLite one
    process does it all: use serve or chat.
    """
    from asterism.config import load

    if load(options.place, options.config, os.environ).store.url is None:
        raise InvalidInput(
            "Workers need PostgreSQL, but store.url is not set. On SQLite a single process does "
            'everything: use "asterism serve" or "asterism chat". Nothing was started.'
        )
    stopped = asyncio.create_task(until_stopped())
    await asyncio.sleep(0)  # it takes signals before anything is printed
    try:
        async with AsyncExitStack() as stack:
            home = await _open_when_there(stack, options, stopped)
            if home is None:
                return
            home.follow_configuration(log.follow)
            note("Running; Ctrl-C or SIGTERM stops it.")
            for text in await halt_notes(home):
                note(text)
            await stopped
            note(_STOPPING)
    finally:
        stopped.cancel()


async def _open_when_there(
    stack: AsyncExitStack, options: Options, stopped: asyncio.Task[None]
) -> Asterism | None:
    """Open the home as soon as its server is there; None if stopped before."""
    wait, said_at = _FIRST_WAIT, float("-inf")
    while True:
        try:
            return await stack.enter_async_context(open_here(options, work=True))
        except StoreUnavailable as error:
            if time.monotonic() - said_at >= _SAY_AGAIN:
                said_at = time.monotonic()
                note(f"{error.reason} Waiting for it; Ctrl-C or SIGTERM ends.")
        done, _ = await asyncio.wait([stopped], timeout=wait)
        if done:
            return None
        wait = min(wait * 2, _MAX_WAIT)
