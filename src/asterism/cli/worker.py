"""`asterism worker`: takes turns beside other workers, on PostgreSQL."""

from __future__ import annotations

import asyncio
import os
import sys

from asterism.cli import log
from asterism.cli.home import opened
from asterism.cli.options import Options
from asterism.cli.stop import until_told
from asterism.errors import InvalidInput


def worker(options: Options) -> None:
    """Take turns beside other workers, on PostgreSQL.

    It works until Ctrl-C or SIGTERM. On SQLite one process does it all: use serve or chat.
    """
    asyncio.run(_work(options))


async def _work(options: Options) -> None:
    from asterism.config import load

    if load(options.place, options.config, os.environ).store.url is None:
        raise InvalidInput(
            "Workers need PostgreSQL, and store.url is not set: on SQLite one process does it all, "
            'so use "asterism serve" or "asterism chat". Nothing was started.'
        )
    async with opened(options, work=True) as home:
        home.follow_configuration(log.follow)
        print("Working; Ctrl-C or SIGTERM stops.", file=sys.stderr)  # noqa: T201
        await until_told()
        print("Stopping; turns under way get a moment to finish.", file=sys.stderr)  # noqa: T201
