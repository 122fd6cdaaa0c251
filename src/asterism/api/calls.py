"""`POST /api/call`: any verb of a home by its name, for programs of the owner.

It is what `Asterism.connect` and the command line use; its values are those of the socket
(`asterism.wire`), and the answer is lines of JSON. A caller names classes of asterism and hands in
records, so that only the owner may use it, with a token for all acts and all agents. The verbs are
those of the caller's home: a token that ends gives nobody access for longer, and events name it.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import TYPE_CHECKING, Any

from starlette.responses import Response

from asterism.api.endpoints import (
    MANY_VALUES,
    EventStream,
    check_values,
    problem_answer,
    read_body,
)
from asterism.app.home import owns_machine
from asterism.app.listener import VerbCalls, callback_line
from asterism.errors import AsterismError, BadRequest, NotAllowed, OtherVersion
from asterism.version import __version__
from asterism.wire import BadFrame, from_line, to_line

if TYPE_CHECKING:
    from starlette.requests import Request

    from asterism.app import Asterism
    from asterism.app.home import Home

MAX_CALL = 64 << 20
"""Bytes of a call."""
_MAX_WAITING = 256
"""Lines that wait for a slow reader."""


def call_route() -> Callable[[Request], Any]:
    """Return what answers calls of verbs of the home that the caller is the owner of."""

    async def answer(request: Request) -> Response:
        home: Asterism = request.state.asterism
        try:
            if not request.state.home.is_unlimited:
                raise NotAllowed(
                    "Only the owner may call verbs by their names, with a token for all acts and "
                    "all agents. Use the endpoints of /api/docs. Nothing was changed."
                )
            try:
                body = await read_body(request, MAX_CALL)
                check_values(body, MANY_VALUES)
                called = from_line(body)
            except BadFrame as error:
                raise BadRequest(f"This is not a call: {error}. Nothing was changed.") from None
            _check_version(called)
        except AsterismError as error:
            return problem_answer(error, getattr(request.state, "request_id", ""))
        caller: Home = request.state.home
        verbs = VerbCalls(_CallersHome(home, caller), traces=owns_machine(caller))
        return EventStream(_lines(verbs, called, _QueueFrames()), 200, _HEADERS)

    return answer


class _CallersHome:
    """The home of a constellation, with the verbs as whoever calls them may use them."""

    def __init__(self, home: Asterism, caller: Home) -> None:
        self._home = home
        self._owns_machine = owns_machine(caller)
        self.find_verb = caller.find_verb

    async def greet(self, *, work: bool) -> dict[str, Any]:
        """Return what clients must know; with `work`, turns are taken from now on."""
        greeting = await self._home.greet(work=work)
        if not self._owns_machine:
            greeting |= {"pid": None, "config": ""}
        return greeting


def _check_version(called: Mapping[str, Any]) -> None:
    """Raise `OtherVersion` if a call comes from another release."""
    if (version := called.get("version")) != __version__:
        raise OtherVersion(
            f"The server runs asterism {__version__}, and this is asterism {str(version)[:40]}. "
            "Use the release of the server. Nothing was changed."
        )


_HEADERS = {"content-type": "application/x-ndjson", "x-accel-buffering": "no"}


async def _lines(
    verbs: VerbCalls, called: Mapping[str, Any], frames: _QueueFrames
) -> AsyncGenerator[bytes, None]:
    """Yield the lines of an answer; whoever stops reading ends the call."""

    async def work() -> None:
        try:
            await verbs.answer(called, frames)
        finally:
            await frames.queue.put(None)

    task = asyncio.create_task(work())
    try:
        while (line := await frames.queue.get()) is not None:
            yield line
    finally:
        task.cancel()
        while not frames.queue.empty():
            frames.queue.get_nowait()
        await asyncio.gather(task, return_exceptions=True)


class _QueueFrames:
    """The lines that go to whoever called a verb over HTTP."""

    def __init__(self) -> None:
        self.queue: asyncio.Queue[bytes | None] = asyncio.Queue(_MAX_WAITING)
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()

    async def send(self, frame: Mapping[str, Any]) -> None:
        """Send a frame; whoever reads slowly is waited for."""
        await self.queue.put(to_line(frame))

    def callback(self, place: int | str, *, awaited: bool) -> Callable[..., Any]:
        """Return a function that is called in the other process; nothing is returned from there."""

        def report(*args: Any) -> Any:
            line = callback_line(place, args)
            if threading.get_ident() == self._thread:
                self._put(line)
            else:
                self._loop.call_soon_threadsafe(self._put, line)
            return asyncio.sleep(0) if awaited else None

        return report

    def _put(self, line: bytes) -> None:
        if not self.queue.full():  # a report that nobody reads in time is left out
            self.queue.put_nowait(line)
