"""The socket of an open home: calls its verbs for other terminals of the same user."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import inspect
import logging
import os
import threading
import traceback
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, cast

from asterism.app.agents import Agent
from asterism.app.turns import Approval
from asterism.client import RemoteAgent
from asterism.errors import AsterismError, InvalidInput, NotAllowed, NotFound, OtherVersion
from asterism.types.agents import AgentRecord
from asterism.types.groups import GroupRecord
from asterism.types.permissions import ApprovalRecord
from asterism.version import __version__
from asterism.wire import (
    FILE,
    MAX_FRAME,
    BadFrame,
    bind,
    decode,
    encode,
    encode_error,
    from_line,
    peer_uid,
    refuse_peer,
    to_line,
)

_log = logging.getLogger(__name__)

_FIRST_LINE_WITHIN = 60.0
"""Seconds until whoever has connected must have said what they want."""


class Listening(Protocol):
    """What a listener needs of a home."""

    def find_verb(self, name: str) -> Callable[..., Any] | None:
        """Return a public verb by its name, such as `agents.list`."""
        ...

    async def greet(self, *, work: bool) -> dict[str, Any]:
        """Return what clients must know; with `work`, turns are taken from now on."""
        ...


class Listener:
    """Listens in the data directory, and calls the verbs that other processes of the user name."""

    def __init__(self, home: Listening, data: Path, *, max_frame: int = MAX_FRAME) -> None:
        """Make it; it listens from `start` on."""
        self._verbs = VerbCalls(home)
        self._path = data / FILE
        self._max_frame = max_frame
        self._server: asyncio.Server | None = None
        self._calls: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Begin to listen; a home whose directory cannot hold a socket does without."""
        try:
            listening = bind(self._path)
        except OSError as error:
            _log.warning(
                "%s cannot be listened at (%s), so other terminals cannot use this home while it "
                "is open here",
                self._path,
                error.strerror or error,
            )
            return
        self._server = await asyncio.start_unix_server(
            self._serve, sock=listening, limit=self._max_frame
        )

    @property
    def calls(self) -> int:
        """How many calls are under way."""
        return len(self._calls)

    def refuse_new(self) -> None:
        """Let nobody in any more; those who are inside may finish."""
        if self._server is not None:
            self._server.close()
            self._server = None
            self._path.unlink(missing_ok=True)

    async def close(self) -> None:
        """End all calls; whoever waits sees the connection close."""
        self.refuse_new()
        for call in self._calls:
            call.cancel()
        await asyncio.gather(*self._calls, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._calls.add(task)
        try:
            with contextlib.suppress(ConnectionError, TimeoutError, asyncio.CancelledError):
                await self._answer(reader, writer)
        finally:
            self._calls.discard(task)
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if refusal := refuse_peer(peer_uid(writer.get_extra_info("socket")), self._path.parent):
                raise NotAllowed(refusal)
            request = await self._read(reader)
            check_call_version(request)
            call = asyncio.create_task(self._verbs.answer(request, _Frames(writer)))
        except AsterismError as error:
            await _send(writer, {"error": encode_error(error)})
            return
        # To close the connection, or to write more, is to have no more interest in the answer.
        gone = asyncio.create_task(reader.read(1))
        try:
            await asyncio.wait([call, gone], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (call, gone):
                task.cancel()
            await asyncio.gather(call, gone, return_exceptions=True)

    async def _read(self, reader: asyncio.StreamReader) -> dict[str, Any]:
        try:
            async with asyncio.timeout(_FIRST_LINE_WITHIN):
                line = await reader.readuntil()
            return from_line(line)
        except asyncio.LimitOverrunError:
            problem = f"it is longer than {self._max_frame:,} bytes"
        except asyncio.IncompleteReadError:
            problem = "it ends before its line does"
        except BadFrame as error:
            problem = str(error)
        raise InvalidInput(
            f"What was sent to {self._path} is not a call: {problem}. A call is one line of JSON, "
            "as the commands of asterism write it. Nothing was changed."
        )


class Frames(Protocol):
    """Where the answer to a call goes."""

    async def send(self, frame: Mapping[str, Any]) -> None:
        """Send a frame; whoever reads slowly is waited for."""
        ...

    def callback(self, place: int | str, *, awaited: bool) -> Callable[..., Any]:
        """Return a function that is called in the other process; nothing is returned from there."""
        ...


_FAULT = "Something went wrong that should not. The log of the server has it."


class VerbCalls:
    """Calls the verbs of a home by their names, for other processes."""

    def __init__(self, home: Listening, *, traces: bool = True) -> None:
        """Call the verbs of this home; with `traces`, faults of ours are told with their traces."""
        self._home = home
        self._traces = traces

    async def answer(self, request: Mapping[str, Any], frames: Frames) -> None:
        """Do what a request asks for, and send what it yields and its result or its error."""
        try:
            name = str(request.get("call"))
            if name == "hello":
                result = await self._home.greet(work=bool(request.get("work")))
            else:
                method, args, kwargs = self._verb(name, request, frames)
                result = method(*args, **kwargs)
                if inspect.isasyncgen(result):
                    await self._stream(cast("AsyncGenerator[Any, None]", result), frames)
                    result = None
                elif inspect.isawaitable(result):
                    result = await result
            await frames.send({"result": _to_wire(result)})
        except AsterismError as error:
            await frames.send({"error": encode_error(error)})
        except ConnectionError:
            raise
        except Exception as error:  # noqa: BLE001 - a bug of ours is told where it was met
            _log.exception("a call of another terminal failed")
            trace = "".join(traceback.format_exception(error))
            fault = {"kind": type(error).__name__, "message": str(error), "trace": trace}
            if not self._traces:
                fault = {"kind": "RuntimeError", "message": _FAULT, "trace": "not shown"}
            await frames.send({"fault": fault})

    async def _stream(self, items: AsyncGenerator[Any, None], frames: Frames) -> None:
        async with contextlib.aclosing(items):
            async for item in items:
                await frames.send({"item": _to_wire(item)})

    def _verb(
        self, name: str, request: Mapping[str, Any], frames: Frames
    ) -> tuple[Callable[..., Any], list[Any], dict[str, Any]]:
        """Return what a request asks to be called, and with what."""
        method = self._home.find_verb(name)
        if method is None:
            raise NotFound(
                f"{name[:80]!r} is not a verb of a home. A client of the same release knows the "
                "valid ones. Nothing was changed."
            )
        try:
            args: Any = decode(request.get("args", []))
            kwargs: Any = decode(request.get("kwargs", {}))
            callbacks: Any = decode(request.get("callbacks", []))
            if not (isinstance(args, list) and isinstance(kwargs, dict)):
                raise BadFrame("args must be a list and kwargs an object")
            listed, named = cast("list[Any]", args), cast("dict[str, Any]", kwargs)
            for place, awaited in callbacks:
                _put(listed, named, place, frames.callback(place, awaited=bool(awaited)))
            inspect.signature(method).bind(*listed, **named)
        except (BadFrame, TypeError, ValueError, IndexError, RecursionError) as error:
            raise InvalidInput(
                f"{name} cannot be called with what was sent: {error}. Nothing was changed."
            ) from None
        return method, listed, named


def _put(args: list[Any], kwargs: dict[str, Any], place: Any, value: Any) -> None:
    if isinstance(place, int):
        args[place] = value
    else:
        kwargs[place] = value


def check_call_version(request: Mapping[str, Any]) -> None:
    """Raise `OtherVersion` if a request comes from another release."""
    version = request.get("version")
    if version != __version__:
        raise OtherVersion(
            f"Process {os.getpid()} has this home open with asterism {__version__}, and this is "
            f'asterism {str(version)[:40]}. End that process ("asterism down", or leave its chat) '
            "and try again. Nothing was changed."
        )


def _to_wire(value: Any) -> Any:
    return encode(value, _as_record)


def _as_record(value: Any) -> Any:
    """Return what is sent for something that has verbs here: its record."""
    if isinstance(value, Agent):
        return RemoteAgent(**_fields(value, AgentRecord), _model_in_use=value.model_in_use)
    if isinstance(value, GroupRecord):
        return GroupRecord(**_fields(value, GroupRecord))
    if isinstance(value, Approval):
        return ApprovalRecord(**_fields(value, ApprovalRecord))
    return value


def _fields(value: Any, kind: type[Any]) -> dict[str, Any]:
    return {field.name: getattr(value, field.name) for field in dataclasses.fields(kind)}


async def _send(writer: asyncio.StreamWriter, frame: Mapping[str, Any]) -> None:
    writer.write(to_line(frame))
    await writer.drain()


def callback_line(place: int | str, args: Sequence[Any]) -> bytes:
    """Return the line by which a function in the other process is called."""
    return to_line({"callback": place, "args": _to_wire(list(args))})


class _Frames:
    """The lines that go to whoever called a verb."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()

    async def send(self, frame: Mapping[str, Any]) -> None:
        """Send a line; whoever reads slowly is waited for."""
        await _send(self._writer, frame)

    def callback(self, place: int | str, *, awaited: bool) -> Callable[..., Any]:
        """Return a function that is called in the other process; nothing is returned from there."""

        def report(*args: Any) -> Any:
            line = callback_line(place, args)
            if threading.get_ident() == self._thread:
                self._write(line)
            else:
                self._loop.call_soon_threadsafe(self._write, line)
            return asyncio.sleep(0) if awaited else None

        return report

    def _write(self, line: bytes) -> None:
        if not self._writer.is_closing():
            self._writer.write(line)
