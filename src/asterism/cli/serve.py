"""`asterism serve`: everything at work, with an HTTP server."""

from __future__ import annotations

import asyncio
import logging
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from asterism.cli import log
from asterism.cli.home import opened
from asterism.cli.options import Options, Play, Record
from asterism.cli.stop import until_told
from asterism.cli.text import printable

if TYPE_CHECKING:
    from asterism.config import Settings

_log = logging.getLogger(__name__)


def serve(
    options: Options,
    host: Annotated[str, typer.Option(help="The address to listen at.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="The port; 0 takes a free one.")
    ] = 8283,
    record: Record = None,
    play: Play = None,
) -> None:
    """Start everything, with an HTTP server.

    Turns, schedules and deliveries are worked on until Ctrl-C or SIGTERM; GET /health tells how
    it goes, GET /metrics tells Prometheus.
    """
    asyncio.run(_serve(options.with_cassette(record, play), host, port))


async def _serve(options: Options, host: str, port: int) -> None:
    from asterism.api.server import Server, bind

    problems: list[str] = []

    def heed(problem: str) -> None:
        _log.warning("%s", problem)
        _say(problem)
        problems[:] = [problem]

    socket = bind(host, port)  # before anything starts: the port may be taken
    async with opened(options, work=True, on_problem=heed) as home:

        def changed(new: Settings) -> None:
            problems.clear()
            log.follow(new)

        home.follow_configuration(changed)
        async with Server(home, socket, lambda: problems) as server:
            _say(f"Listening at {server.url}, for example {server.url}/health. Ctrl-C stops.")
            await until_told()
            _say("Stopping; turns under way get a moment to finish.")


def _say(text: str) -> None:
    print(printable(text), file=sys.stderr, flush=True)  # noqa: T201
