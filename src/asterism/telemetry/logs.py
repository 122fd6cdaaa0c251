"""Log lines that say which turn they belong to, as text or as JSON."""

from __future__ import annotations

import logging
import time
import traceback
from collections.abc import Collection
from typing import Any

import orjson

from asterism.telemetry.metrics import current_request, current_turn
from asterism.telemetry.redaction import MIN_SECRET_LENGTH, redact


class TurnFilter(logging.Filter):
    """Adds `turn_id` and `agent_id`, or outside of turns `request_id`, to each record."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Let the record pass, and say where it was made."""
        turn = current_turn()
        record.turn_id = turn.turn_id if turn is not None else ""
        record.agent_id = turn.agent.id if turn is not None else ""
        # A turn goes on after the request that began it, and may answer others.
        record.request_id = current_request() if turn is None else ""
        return True


class _Lines(logging.Formatter):
    """Lines without secrets."""

    def __init__(self, secrets: Collection[str]) -> None:
        super().__init__()
        # The longest first: one secret may be a part of another.
        long_enough = {secret for secret in secrets if len(secret) >= MIN_SECRET_LENGTH}
        self._secrets = sorted(long_enough, key=len, reverse=True)

    def _words(self, record: logging.LogRecord) -> tuple[str, str]:
        """Return the message and the traceback."""
        trace = "".join(traceback.format_exception(*record.exc_info)) if record.exc_info else ""
        return self._hide(record.getMessage()), self._hide(trace)

    def _hide(self, text: str) -> str:
        # A lone surrogate, as in a file's name, is neither UTF-8 nor JSON.
        text = text.encode("utf-8", "backslashreplace").decode()
        for secret in self._secrets:
            text = text.replace(secret, "…")
        return redact(text)


class TextLines(_Lines):
    """One line for each record, a traceback below it."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the text of a record."""
        message, trace = self._words(record)
        turn = getattr(record, "turn_id", "")
        where = f" [{turn} {getattr(record, 'agent_id', '')}]" if turn else ""
        if request := getattr(record, "request_id", ""):
            where = f" [{request}]"
        line = (
            f"{_time(record)} {record.levelname} {record.name} ({record.process}){where}: {message}"
        )
        return f"{line}\n{trace.rstrip()}" if trace else line


class JsonLines(_Lines):
    """One JSON object on one line for each record."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the JSON of a record."""
        message, trace = self._words(record)
        line: dict[str, Any] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "process": record.process,
            "message": message,
        }
        for name in ("turn_id", "agent_id", "request_id"):
            if value := getattr(record, name, ""):
                line[name] = value
        if trace and record.exc_info is not None and record.exc_info[0] is not None:
            line["error"] = record.exc_info[0].__name__
            line["traceback"] = trace
        return orjson.dumps(line).decode()


def _time(record: logging.LogRecord) -> str:
    seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
    return f"{seconds}.{int(record.msecs):03d}Z"
