"""What went wrong, in one sentence; tracebacks go to the log and never to the terminal."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Generator
from pathlib import Path

import typer

from asterism.cli.text import as_json, printable
from asterism.errors import AsterismError, InvalidInput

FAILED, MISUSED, PARKED, INTERRUPTED = 1, 2, 3, 130

TITLES = {"usage": "The command cannot be understood", "fault": "A fault inside asterism"}
"""Kinds of problems that only a command line has."""


@contextlib.contextmanager
def told(place: Callable[[], Path], *, json: bool) -> Generator[None, None, None]:
    """Say what goes wrong inside on standard error, and end with the code that fits.

    A bug of ours is written down in the log of the data directory, which `place` finds.
    """
    try:
        yield
    except typer.Exit:
        raise
    except AsterismError as error:
        tell(error.code, title(error), error.message, json=json)
        raise typer.Exit(MISUSED if isinstance(error, InvalidInput) else FAILED) from None
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
    except BrokenPipeError:
        raise typer.Exit(abandoned()) from None
    except Exception as error:  # noqa: BLE001 - the one place where a bug of ours is told
        tell("fault", TITLES["fault"], _fault(place(), error), json=json)
        raise typer.Exit(FAILED) from None


def abandoned() -> int:
    """Be silent, since whoever read our output has had enough; Python would complain at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return FAILED


def title(error: AsterismError) -> str:
    """Return what kind of error this is, in words: the first sentence of its class."""
    return (type(error).__doc__ or "").strip().partition("\n")[0].rstrip(".")


def tell(code: str, title: str, detail: str, *, json: bool) -> None:
    """Print a problem on standard error: a sentence, or a JSON object with `--json`."""
    from asterism.telemetry.redaction import redact

    detail = redact(detail)
    problem = {"type": code, "title": title, "detail": detail}
    said = as_json(problem) if json else f"asterism: {printable(detail)}"
    print(said, file=sys.stderr)  # noqa: T201


def misused(error: typer.TyperException, *, json: bool) -> int:
    """Tell what was wrong with the command line."""
    detail = error.format_message().strip()
    stop = "" if detail.endswith((".", "?", "!")) else "."
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "asterism"
    tell(
        "usage", TITLES["usage"], f'{detail}{stop} "{path} --help" shows what is there.', json=json
    )
    return MISUSED


def _fault(place: Path, error: Exception) -> str:
    from asterism.cli.log import write_fault

    file = write_fault(place, error)
    return (
        f"A fault inside asterism ({type(error).__name__}); nothing that was confirmed is lost. "
        f"The details are at the end of {file}: please open an issue with them and what you did."
    )
