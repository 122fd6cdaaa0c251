"""`asterism serve`: everything at work, with an HTTP server."""

from __future__ import annotations

import asyncio
import logging
import sys
from typing import Annotated

import typer

from asterism.cli import log
from asterism.cli.home import opened
from asterism.cli.options import Options
from asterism.cli.stop import until_told
from asterism.cli.text import printable

_log = logging.getLogger(__name__)


def serve(
    options: Options,
    host: Annotated[str, typer.Option(help="The address to listen at.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="The port; 0 takes a free one.")
    ] = 8283,
) -> None:
    """Start everything, with an HTTP server.

    Turns, schedules and deliveries are worked on until Ctrl-C or SIGTERM; GET /health tells how
    it goes.
    """
    asyncio.run(_serve(options, host, port))


async def _serve(options: Options, host: str, port: int) -> None:
    from asterism.api.server import Server, bind

    problems: list[str] = []

    def heed(problem: str) -> None:
        _log.warning("%s", problem)
        _say(problem)
        problems[:] = [problem]

    socket = bind(host, port)  # before anything starts: the port may be taken
    async with opened(options, work=True, on_problem=heed) as home:

        def changed_to(level: str) -> None:
            problems.clear()
            log.set_level(level)

        home.follow_configuration(lambda new: changed_to(new.log.level))
        async with Server(home, socket, lambda: problems) as server:
            _say(f"Listening at {server.url}, for example {server.url}/health. Ctrl-C stops.")
            await until_told()
            _say("Stopping; turns under way get a moment to finish.")


def _say(text: str) -> None:
    print(printable(text), file=sys.stderr, flush=True)  # noqa: T201
