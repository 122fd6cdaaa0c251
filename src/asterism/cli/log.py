"""The log: a file in the data directory, turned over before it grows large."""

from __future__ import annotations

import logging
import os
import re
import tempfile
import traceback
from collections.abc import Mapping
from datetime import UTC, datetime
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from asterism.private import append_regular, private

if TYPE_CHECKING:
    from asterism.config import Settings

FILE = "asterism.log"
_MAX_LOG_BYTES, _MAX_LOG_FILES = 1_000_000, 3
_SECRET_NAME = re.compile(r"(key|token|secret|password)$", re.IGNORECASE)


class _LogFile(RotatingFileHandler):
    """A log that is silent when it cannot be written: the terminal belongs to the conversation."""

    def _open(self) -> TextIOWrapper:
        """Open the log; only this user reads a new one."""
        handle = append_regular(Path(self.baseFilename))
        return TextIOWrapper(os.fdopen(handle, "ab"), encoding=self.encoding, errors=self.errors)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - named by logging
        """Let it go."""


def start(place: Path | None, level: str = "warning") -> None:
    """Send what is logged to the file in `place`, or nowhere, and never to the terminal."""
    handler: logging.Handler = logging.NullHandler()
    if place is not None:
        from asterism.telemetry.logs import TextLines, TurnFilter

        handler = _LogFile(
            place / FILE,
            maxBytes=_MAX_LOG_BYTES,
            backupCount=_MAX_LOG_FILES,
            encoding="utf-8",
            errors="backslashreplace",
            delay=True,
        )
        handler.addFilter(TurnFilter())
        handler.setFormatter(TextLines(()))
    logging.basicConfig(handlers=[handler], force=True)
    logging.captureWarnings(capture=True)
    logging.getLogger().setLevel(level.upper())


def follow(settings: Settings) -> None:
    """Write as the configuration says, and never a key or a password that it knows."""
    from asterism.telemetry.logs import JsonLines, TextLines

    lines = JsonLines if settings.log.format == "json" else TextLines
    formatter = lines(secrets_of(settings, os.environ))
    for handler in logging.getLogger().handlers:
        if isinstance(handler, _LogFile):
            handler.setFormatter(formatter)
    logging.getLogger().setLevel(settings.log.level.upper())


def secrets_of(settings: Settings, environ: Mapping[str, str]) -> set[str]:
    """Return what must not be written, from the configuration and the environment."""
    secrets = {value for name, value in environ.items() if _SECRET_NAME.search(name)}
    for model in settings.models.values():
        if model.key is not None:
            secrets.add(model.key.get_secret_value())
    for header in settings.telemetry.headers.values():
        secrets.add(header.get_secret_value())
    for channel in settings.channels.values():
        secrets |= {
            value
            for name, value in channel.options.items()
            if isinstance(value, str) and _SECRET_NAME.search(name)
        }
    if settings.store.url and (password := urlsplit(settings.store.url).password):
        secrets |= {password, unquote(password)}
    return secrets


def write_fault(place: Path, error: BaseException) -> Path:
    """Append a traceback to the log and return the file; elsewhere if the log cannot be written."""
    text = _format_fault(error)
    file = place / FILE
    try:
        with open(file, "a", encoding="utf-8", errors="backslashreplace", opener=private) as log:
            log.write(text)
    except OSError:
        # A name that nobody can guess, so that nobody has put a link there before.
        handle, name = tempfile.mkstemp(prefix="asterism-", suffix=".log")
        with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as log:
            log.write(text)
        return Path(name)
    return file


def _format_fault(error: BaseException) -> str:
    """Return a fault as the log in use writes it."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler, _LogFile) and handler.formatter is not None:
            fault = logging.makeLogRecord(
                {
                    "name": "asterism",
                    "levelno": logging.CRITICAL,
                    "levelname": "FAULT",
                    "msg": "a fault inside asterism",
                    "exc_info": (type(error), error, error.__traceback__),
                }
            )
            return f"{handler.format(fault)}\n"
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return f"{now} FAULT\n{''.join(traceback.format_exception(error))}\n"
