"""The log: a file in the data directory, turned over before it grows large."""

from __future__ import annotations

import logging
import os
import tempfile
import traceback
from datetime import UTC, datetime
from logging.handlers import RotatingFileHandler
from pathlib import Path

FILE = "asterism.log"
_LARGEST, _KEPT = 1_000_000, 3


class _LogFile(RotatingFileHandler):
    """A log that is silent when it cannot be written: the terminal belongs to the conversation."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - named by logging
        """Let it go."""


def start(place: Path | None, level: str = "warning") -> None:
    """Send what is logged to the file in `place`, or nowhere, and never to the terminal."""
    handler: logging.Handler = logging.NullHandler()
    if place is not None:
        handler = _LogFile(
            place / FILE,
            maxBytes=_LARGEST,
            backupCount=_KEPT,
            encoding="utf-8",
            errors="backslashreplace",
            delay=True,
        )
        handler.setFormatter(
            logging.Formatter("%(asctime)s %(levelname)s %(name)s (%(process)d): %(message)s")
        )
    logging.basicConfig(handlers=[handler], force=True)
    logging.captureWarnings(capture=True)
    set_level(level)


def set_level(level: str) -> None:
    """Write what is at least this grave."""
    logging.getLogger().setLevel(level.upper())


def write_fault(place: Path, error: BaseException) -> Path:
    """Append a traceback to the log and return the file; elsewhere if the log cannot be written."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    text = f"{now} FAULT\n{''.join(traceback.format_exception(error))}\n"
    spare = Path(tempfile.gettempdir()) / f"asterism-{os.getpid()}.log"
    for file in (place / FILE, spare):
        try:
            with file.open("a", encoding="utf-8", errors="backslashreplace") as log:
                log.write(text)
        except OSError:
            continue
        return file
    return spare
