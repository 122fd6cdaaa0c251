"""`asterism version`, `config` and `logs`: which release this is, and where its files are."""

from __future__ import annotations

import os
from pathlib import Path

from asterism import __version__
from asterism.cli import log
from asterism.cli.commands import Options
from asterism.cli.output import Result
from asterism.errors import InvalidInput


def version() -> Result:
    """Print the version."""
    return Result({"version": __version__}, f"asterism {__version__}")


def config(options: Options) -> Result:
    """Say where the configuration is, and what shows, checks and changes it."""
    from asterism.config import config_file

    _check_here(options, "configuration")
    file = config_file(options.place, options.config, os.environ)
    there = "" if file.exists() else ", which does not exist (optional): defaults are used"
    return _found(
        file,
        f'The configuration is {file}{there}. "asterism doctor --offline" checks it, and '
        '"asterism setup" asks for the most important settings and writes them there.',
    )


def logs(options: Options) -> Result:
    """Say where the log is, and what shows how the home is doing."""
    _check_here(options, "log")
    file = options.place / log.FILE
    there = "" if file.exists() else ", which does not exist: nothing was logged yet"
    return _found(
        file,
        f'The log is {file}{there}. "asterism doctor" shows what is wrong now, "asterism notice '
        'list" what you should know, and "asterism audit list" what was done.',
    )


def _found(file: Path, text: str) -> Result:
    return Result({"file": str(file), "exists": file.exists()}, text)


def _check_here(options: Options, what: str) -> None:
    """Raise `InvalidInput` if the home is on another machine, or behind an address."""
    url = options.url or (os.environ.get("ASTERISM_URL") if options.data is None else None)
    if url:
        raise InvalidInput(
            f"The {what} of {url} is on the machine where it runs. Run this command there, or "
            "leave out the address for the home of this machine. Nothing was done."
        )
