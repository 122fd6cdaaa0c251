"""Errors in few words, as spans and metrics name them."""

from __future__ import annotations

import asyncio

from asterism.errors import AsterismError


def error_class(error: BaseException) -> str:
    """Return what kind of error it is: `busy`, `key`, `timeout`, or the name of its class."""
    if isinstance(error, AsterismError):
        return error.code.removeprefix("model.")
    if isinstance(error, asyncio.CancelledError):
        return "cancelled"
    return "timeout" if isinstance(error, TimeoutError) else type(error).__name__
