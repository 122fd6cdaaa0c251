"""`asterism serve` and `asterism worker`: processes that work until they are stopped."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from asterism.cli import log
from asterism.cli.commands import Options, flag, open_here, option
from asterism.cli.halt import halt_notes
from asterism.cli.inputs import Play, Record
from asterism.cli.output import note
from asterism.cli.terminal import until_stopped
from asterism.errors import InvalidInput, StoreUnavailable

if TYPE_CHECKING:
    from asterism.app import Asterism
    from asterism.config import ApiSettings, Settings

_STOPPING = "Stopping; running turns get a moment to finish."
_GRACE = 10.0
"""Seconds that requests under way have to end, and turns after them."""
_FIRST_WAIT, _MAX_WAIT = 0.5, 5.0
_SAY_AGAIN = 300.0

_log = logging.getLogger(__name__)


async def serve(
    options: Options,
    host: Annotated[
        str | None, option("--host", None, "The address to listen at (default: 127.0.0.1).")
    ] = None,
    port: Annotated[
        int | None,
        option("--port", None, "The port (default: 8283); 0 chooses a free one.", min=0, max=65535),
    ] = None,
    tls_cert: Annotated[
        Path | None, option("--tls-cert", "FILE", "The certificate for TLS, as PEM.")
    ] = None,
    tls_key: Annotated[Path | None, option("--tls-key", "FILE", "Its private key, as PEM.")] = None,
    behind_proxy: Annotated[
        bool, flag("--behind-proxy", "A reverse proxy does TLS; believe what it says of clients.")
    ] = False,
    no_worker: Annotated[
        bool, flag("--no-worker", "Take no turns here: workers do (PostgreSQL only).")
    ] = False,
    record: Record = None,
    play: Play = None,
) -> None:
    """Start everything, with an HTTP server.

    Turns, schedules and deliveries are worked on until Ctrl-C or SIGTERM; GET /health shows how
    it goes, GET /metrics is for Prometheus.
    """
    from asterism.config import load

    options = options.with_cassette(record, play).with_settings(
        {
            "api.host": host,
            "api.port": port,
            "api.tls_cert": str(tls_cert.absolute()) if tls_cert is not None else None,
            "api.tls_key": str(tls_key.absolute()) if tls_key is not None else None,
            "api.behind_proxy": behind_proxy or None,
        }
    )
    settings = load(options.place, options.config, os.environ, options.settings)
    if no_worker and settings.store.url is None:
        raise InvalidInput(
            "--no-worker leaves turns to other processes, which needs PostgreSQL, but store.url is "
            'not set. On SQLite a single process does everything: use "asterism serve". Nothing '
            "was started."
        )
    await serve_home(options, settings.api, work=not no_worker)


async def serve_home(
    options: Options,
    api: ApiSettings,
    *,
    work: bool = True,
    others: int = 0,
    grace: float = _GRACE,
    ready: Callable[[str, str], None] | None = None,
) -> None:
    """Open a home and serve it over HTTP until stopped.

    Args:
        options: Which home.
        api: Where to listen.
        work: Take turns in this process.
        others: How many ports after the wanted one may be taken in its place.
        grace: Seconds that requests, and then turns, have to end.
        ready: Called with the address and what a person should know of the token, in place of
            printing it.
    """
    from asterism.api.server import Server, listening_socket

    problems: list[str] = []

    def on_problem(problem: str) -> None:
        _log.warning("%s", problem)
        note(problem)
        problems[:] = [problem]

    # Before anything starts: the port may be taken.
    with listening_socket(api, os.environ, others=others) as (socket, tls):
        opening = open_here(options, work=work, grace=grace, on_problem=on_problem)
        async with opening as home:

            def changed(new: Settings) -> None:
                problems.clear()
                log.follow(new)

            home.follow_configuration(changed)
            token = await home.ensure_default_token()
            stopped = asyncio.create_task(until_stopped())
            await asyncio.sleep(0)  # it takes signals before anything is printed
            async with Server(home, socket, lambda: problems, tls=tls, grace=grace) as server:
                if ready is not None:
                    ready(server.url, token)
                else:
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
