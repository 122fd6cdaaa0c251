"""A home that another process has open: the same nouns and verbs, over its socket."""

from __future__ import annotations

import asyncio
import builtins
import inspect
import socket
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import field
from pathlib import Path
from typing import Any, Protocol, cast

from asterism.errors import AsterismError, HomeLost, StoreInUse
from asterism.records import dataclass
from asterism.types.agents import AgentRecord
from asterism.version import __version__
from asterism.wire import (
    FILE,
    MAX_FRAME,
    BadFrame,
    connect,
    decode,
    decode_error,
    encode,
    from_line,
    to_line,
)

SYNC = frozenset(
    {
        "groups.patterns",
        "keys.get",
        "keys.has",
        "keys.place",
        "keys.resolve",
        "mcp.configured",
        "mcp.list",
    }
)
"""Verbs that return at once; all others are awaited or gone through."""
STREAMS = frozenset(
    {
        "agents.stream",
        "agents.watch",
        "approvals.stream_decision",
        "audit.export",
        "groups.stream",
        "groups.watch",
        "turns.follow",
        "turns.stream_results",
    }
)
"""Verbs that yield."""

_ANSWER_WITHIN = 10.0
"""Seconds until a process that has the home open must have said so."""
_OPEN_WITHIN = 20.0
"""Seconds to wait for a process that is just opening or closing the home."""
_LOOK_EVERY = 0.05

Opening = Callable[[], AbstractAsyncContextManager[Any]]


@dataclass(frozen=True, slots=True)
class RemoteAgent(AgentRecord):
    """An agent of a home that another process has open."""

    _model_in_use: str = field(default="", kw_only=True, repr=False, compare=False)

    @property
    def model_in_use(self) -> str:
        """The model that this agent thinks with now, as `vendor:name`."""
        return self._model_in_use


@dataclass(frozen=True, slots=True)
class Hello:
    """What a process that has a home open says of itself."""

    pid: int | None
    """Its process; None over HTTP, unless the machine is the caller's."""
    zone: str | None
    """The time zone of the configuration, if it has one."""
    config: str
    """Its configuration file."""


@asynccontextmanager
async def running_or_opened(
    place: Path, opening: Opening, *, work: bool
) -> AsyncGenerator[Any, None]:
    """Give the home that a process has open in a data directory; else the one opened here.

    Args:
        place: The data directory.
        opening: Opens the home in this process.
        work: Whether turns must be taken: a process that only writes begins to.
    """
    async with AsyncExitStack() as stack:
        yield await _running_or_opened(stack, place, opening, work=work)


async def _running_or_opened(
    stack: AsyncExitStack, place: Path, opening: Opening, *, work: bool
) -> Any:
    until = time.monotonic() + _OPEN_WITHIN
    while True:
        hello = await greet(place, work=work)
        if hello is not None:
            remote = RemoteHome(
                hello, SocketTransport(place), work=work, place=place, opening=opening
            )
            stack.push_async_callback(remote.close)
            return remote
        try:
            return await stack.enter_async_context(opening())
        except StoreInUse:
            # It was opened in between, or is being closed.
            if time.monotonic() > until:
                raise
        await asyncio.sleep(_LOOK_EVERY)


async def greet(place: Path, *, work: bool = False) -> Hello | None:
    """Return what the process says that has a data directory open; None if there is none."""
    try:
        async with asyncio.timeout(_ANSWER_WITHIN):
            frames = _frames(place, {"call": "hello", "work": work}, "hello")
            async with aclosing(frames):
                async for frame in frames:
                    return Hello(**frame["result"])
    except _NobodyThere:
        return None
    except HomeLost:
        return None  # it has just closed
    except TimeoutError:
        raise HomeLost(
            f"A process has {place} open and does not answer within {_ANSWER_WITHIN:g} seconds. "
            f"The first line of {place / 'asterism.lock'} is its number: let it go on or end it, "
            "then try again. Nothing was changed."
        ) from None
    return None


class _NobodyThere(Exception):
    """No process listens, so that nothing was sent."""


class Transport(Protocol):
    """How calls reach the process that has a home open."""

    def frames(
        self, request: Mapping[str, Any], name: str, pid: int | None
    ) -> AsyncGenerator[dict[str, Any], None]:
        """Send a request and yield the frames of its answer; the last one has the result."""
        ...

    def frame_now(self, request: Mapping[str, Any], name: str, pid: int | None) -> dict[str, Any]:
        """Send a request whose answer is one frame, and wait for it."""
        ...


class SocketTransport:
    """Calls over the socket in a data directory."""

    def __init__(self, place: Path) -> None:
        """Make it; nothing is sent yet."""
        self._place = place

    def frames(
        self, request: Mapping[str, Any], name: str, pid: int | None
    ) -> AsyncGenerator[dict[str, Any], None]:
        """Send a request and yield the frames of its answer; the last one has the result."""
        return _frames(self._place, request, name, pid)

    def frame_now(self, request: Mapping[str, Any], name: str, pid: int | None) -> dict[str, Any]:
        """Send a request whose answer is one frame, and wait for it."""
        connection = connect(self._place / FILE, _ANSWER_WITHIN)
        if connection is None:
            raise lost(self._place, name, pid)
        with connection, connection.makefile("rb") as lines:
            connection.sendall(to_line({**request, "version": __version__}))
            try:
                return read_frame(lines.readline(), self._place, name, pid)
            except TimeoutError:
                raise lost(self._place, name, pid) from None


class RemoteHome:
    """A home that another process has open. Each verb is a call to that process.

    When it ends, the next verb goes to whoever has the home open then; if nobody has and the data
    directory is on this machine, it is opened here.
    """

    def __init__(
        self,
        hello: Hello,
        transport: Transport,
        *,
        work: bool,
        place: Path | None = None,
        opening: Opening | None = None,
    ) -> None:
        """Make it; `hello` was just said.

        Args:
            hello: What the process says of itself.
            transport: How calls reach it.
            work: Whether turns must be taken.
            place: The data directory, where it is on this machine.
            opening: Opens the home here when nobody has it open any more; None: it is lost then.
        """
        self.hello = hello
        self._place = place
        self._transport = transport
        self._opening = opening
        self._work = work
        self._opened: Any = None
        self._follow: Callable[[Any], None] | None = None
        self._renewing = asyncio.Lock()
        self._stack = AsyncExitStack()

    @property
    def taken_up(self) -> list[str]:
        """Turns that go on in this process, if the home was opened here meanwhile."""
        return self._opened.taken_up if self._opened is not None else []

    def follow_configuration(self, changed: Callable[[Any], None] | None = None) -> None:
        """Leave it to the process that has the home open, as long as it has."""
        self._follow = lambda opened: opened.follow_configuration(changed)

    async def close(self) -> None:
        """Close what was opened here."""
        await self._stack.aclose()

    async def renew(self) -> None:
        """Find out who has the home open now; if nobody has, open it here."""
        if self._opening is None or self._place is None:
            raise lost(self._place or "the home", "the call", self.hello.pid)
        async with self._renewing:
            if self._opened is not None:
                return
            found = await _running_or_opened(
                self._stack, self._place, self._opening, work=self._work
            )
            if isinstance(found, RemoteHome):
                self.hello = found.hello
            else:
                self._opened = found
                if self._follow is not None:
                    self._follow(found)

    def __getattr__(self, noun: str) -> Any:
        """Return a noun, or a verb of the home itself."""
        if noun.startswith("_"):
            raise AttributeError(noun)
        return RemoteNoun(self, noun)

    # -- calls ---------------------------------------------------------------------------------

    def named(self, noun: str, name: str) -> Any:
        """Return what `home.NOUN[name]` is; nothing is read yet."""
        raise TypeError(f"home.{noun} has no [{name!r}] in a home of another process")

    def sent(self, value: Any) -> Any:
        """Return what is sent for a record."""
        return value

    def received(self, value: Any) -> Any:
        """Return what a caller gets for what was received."""
        return value

    def here(self, name: str) -> Callable[..., Any] | None:
        """Return a verb of the home that was opened here; None if it was not."""
        if self._opened is None:
            return None
        noun, _, verb = name.partition(".")
        return getattr(self._opened if noun == "home" else getattr(self._opened, noun), verb)

    async def call(self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Return what a verb returns."""
        while True:
            if method := self.here(name):
                return await method(*args, **kwargs)
            try:
                async with aclosing(self._answers(name, args, kwargs)) as answers:
                    async for is_item, value in answers:
                        if not is_item:
                            return value
            except _NobodyThere:
                await self.renew()
            except HomeLost:
                # It may have ended since it had nothing more to do, like any command.
                if self._opening is None or name.rpartition(".")[2] not in _READING:
                    raise
                await self.renew()

    async def stream(
        self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> AsyncGenerator[Any, None]:
        """Yield what a verb yields."""
        while True:
            if method := self.here(name):
                async with aclosing(method(*args, **kwargs)) as items:
                    async for item in items:
                        yield item
                return
            try:
                async with aclosing(self._answers(name, args, kwargs)) as answers:
                    async for is_item, value in answers:
                        if not is_item:
                            return
                        yield value
            except _NobodyThere:
                await self.renew()

    def call_now(self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Return what a verb returns that needs no `await`."""
        if method := self.here(name):
            return method(*args, **kwargs)
        request, _ = _request(name, args, kwargs, self.sent)
        frame = self._transport.frame_now(request, name, self.hello.pid)
        return self.received(decode(frame["result"], trusted=True))

    async def _answers(
        self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> AsyncGenerator[tuple[bool, Any], None]:
        """Yield what the other process answers, each with whether it is an item of several."""
        request, callbacks = _request(name, args, kwargs, self.sent)
        frames = self._transport.frames(request, name, self.hello.pid)
        async with aclosing(frames):
            async for frame in frames:
                if "callback" in frame:
                    reported = callbacks[frame["callback"]](*decode(frame["args"], trusted=True))
                    if inspect.isawaitable(reported):
                        await reported
                elif "item" in frame:
                    yield True, self.received(decode(frame["item"], trusted=True))
                else:
                    yield False, self.received(decode(frame["result"], trusted=True))


class RemoteNoun:
    """A noun of a home that another process has open, such as `home.agents`."""

    def __init__(self, home: RemoteHome, noun: str) -> None:
        """Make it."""
        self._home = home
        self._noun = noun

    def __getattr__(self, verb: str) -> Callable[..., Any]:
        """Return a verb."""
        if verb.startswith("_"):
            raise AttributeError(verb)
        return self._verb(f"{self._noun}.{verb}")

    def __getitem__(self, name: str) -> Any:
        """Return something by its name, such as `home.agents["aria"]`."""
        return self._home.named(self._noun, name)

    __iter__ = None  # else Python would go through names 0, 1, 2 and so on without an end

    def __call__(self, *args: Any, **kwargs: Any) -> Coroutine[Any, Any, Any]:
        """Call a noun that is a verb, such as `home.search`, or a verb of the home itself."""
        name = f"home.{self._noun}" if self._noun in HOME else f"{self._noun}.__call__"
        return self._home.call(name, args, kwargs)

    def _verb(self, name: str) -> Callable[..., Any]:
        home = self._home

        def use(*args: Any, **kwargs: Any) -> Any:
            if name in SYNC:
                return home.call_now(name, args, kwargs)
            if name in STREAMS:
                return home.stream(name, args, kwargs)
            return home.call(name, args, kwargs)

        return use


_READING = frozenset(
    {"check", "count", "counts", "cost", "current", "get", "list", "outcome", "status", "waiting"}
)
"""Verbs that change nothing, so that they can be asked again of whoever has the home open then."""
HOME = frozenset({"counts", "metrics", "check", "status"})
"""Verbs of the home itself."""


def _request(
    name: str,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    convert: Callable[[Any], Any],
) -> tuple[dict[str, Any], dict[Any, Callable[..., Any]]]:
    """Return a call as it is sent, and the functions among its arguments by their place."""
    named = [*enumerate(args), *kwargs.items()]
    callbacks: dict[Any, Callable[..., Any]] = {
        place: value for place, value in named if callable(value) and not isinstance(value, type)
    }
    request = {
        "call": name,
        "args": [
            None if place in callbacks else encode(part, convert) for place, part in enumerate(args)
        ],
        "kwargs": {
            place: None if place in callbacks else encode(part, convert)
            for place, part in kwargs.items()
        },
        "callbacks": [
            [place, inspect.iscoroutinefunction(function)] for place, function in callbacks.items()
        ],
    }
    return request, callbacks


async def _frames(
    place: Path, request: Mapping[str, Any], name: str, pid: int | None = None
) -> AsyncGenerator[dict[str, Any], None]:
    """Send a request and yield the frames of its answer; the one with the result is the last."""
    connection = connect(place / FILE, _ANSWER_WITHIN)
    if connection is None:
        raise _NobodyThere
    connection.settimeout(0)
    reader, writer = await _open(connection)
    try:
        try:
            writer.write(to_line({**request, "version": __version__}))
            await writer.drain()
            while True:
                frame = read_frame(await reader.readline(), place, name, pid)
                yield frame
                if "result" in frame:
                    return
        except ConnectionError:
            raise lost(place, name, pid) from None
    finally:
        writer.close()


async def _open(
    connection: socket.socket,
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_unix_connection(sock=connection, limit=MAX_FRAME)


def read_frame(line: bytes, place: Path | str, name: str, pid: int | None) -> dict[str, Any]:
    """Return a frame; raise the error that it holds."""
    if not line.endswith(b"\n"):
        raise lost(place, name, pid)
    frame = from_line(line)
    if "error" in frame:
        raise _error_of(cast("dict[str, Any]", frame["error"]), place, name)
    if "fault" in frame:
        fault = cast("dict[str, str]", frame["fault"])
        raise _fault_of(fault)
    return frame


def _fault_of(fault: Mapping[str, str]) -> Exception:
    """Return what another process raised beside its errors, with the traceback from there."""
    kind = getattr(builtins, fault["kind"], None)
    if not (isinstance(kind, type) and issubclass(kind, Exception)):
        kind = type(fault["kind"], (Exception,), {})
    try:
        error = kind(fault["message"])
    except TypeError:  # such as a UnicodeError, which is made of several values
        error = RuntimeError(f"{fault['kind']}: {fault['message']}")
    error.add_note(f"In another process:\n{fault['trace']}")
    return error


def _error_of(frame: dict[str, Any], place: Path | str, name: str) -> AsterismError:
    """Return the error that a frame holds, or one that says that it holds none."""
    try:
        return decode_error(frame)
    except (BadFrame, AttributeError, KeyError, TypeError) as error:
        return HomeLost(
            f"{place} answered with what is not an answer of a home ({error}). See that the "
            "address is that of your home, and that both sides are of the same release.",
            outcome=f"Look whether {name} was done.",
        )


def lost(place: Path | str, name: str, pid: int | None) -> HomeLost:
    """Return the error for a call that was sent and not answered."""
    who = f"Process {pid}" if pid else "The process"
    return HomeLost(
        f"{who}, which had {place} open, ended before it answered. What it had confirmed is kept, "
        "and messages that it had accepted are answered at the next start.",
        outcome=f"Look whether {name} was done, then run the command again.",
    )
