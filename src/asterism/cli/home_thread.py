"""A home at work in a thread of its own, while other threads wait for a person."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from concurrent.futures import Future
from contextlib import aclosing
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from asterism.cli import log
from asterism.cli.commands import Options, open_home

if TYPE_CHECKING:
    from asterism.app import Asterism

T = TypeVar("T")

_GRACE = 5.0

_log = logging.getLogger(__name__)


class HomeThread:
    """A home at work in a thread of its own, so that this one can wait for a person to type."""

    def __init__(self, home: Asterism, loop: asyncio.AbstractEventLoop) -> None:
        self.home = home
        self.closing = asyncio.Event()
        self._loop = loop

    def close(self) -> None:
        """Let the home close."""
        self._loop.call_soon_threadsafe(self.closing.set)

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine there and wait for its result."""
        return self.start(coroutine).result()

    def start(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        """Run a coroutine there."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def iterate(self, source: AsyncGenerator[T, None]) -> ThreadIterator[T]:
        """Return an iterator over what a generator yields there."""
        return ThreadIterator(self, source)


class ThreadIterator(Generic[T]):
    """What a generator in the other thread yields; being interrupted does not end it."""

    def __init__(self, thread: HomeThread, source: AsyncGenerator[T, None]) -> None:
        self._items: SimpleQueue[tuple[T] | BaseException | None] = SimpleQueue()
        self._next: tuple[tuple[T] | BaseException | None] | None = None
        """What was waited for and not taken yet."""
        self._relaying = thread.start(self._relay(source))

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> T:
        item = self._items.get() if self._next is None else self._next[0]
        self._next = None
        if item is None:
            raise StopIteration
        if isinstance(item, BaseException):
            raise item
        return item[0]

    def wait(self, seconds: float) -> bool:
        """Wait for the next item; False if none has come so far."""
        if self._next is None:
            with contextlib.suppress(Empty):
                self._next = (self._items.get(timeout=seconds),)
        return self._next is not None

    def interrupt(self) -> None:
        """Raise KeyboardInterrupt where the next item is waited for."""
        self._items.put(KeyboardInterrupt())

    def close(self) -> None:
        """End the generator."""
        self._relaying.cancel()

    async def _relay(self, source: AsyncGenerator[T, None]) -> None:
        try:
            async with aclosing(source):
                async for item in source:
                    self._items.put((item,))
        except BaseException as error:  # noqa: BLE001 - raised again in the thread that waits
            self._items.put(error)
        else:
            self._items.put(None)


@contextlib.contextmanager
def home_thread(
    options: Options,
    *,
    follow: bool = False,
    on_problem: Callable[[str], None] = _log.warning,
) -> Generator[HomeThread, None, None]:
    """Open the home at work in a thread of its own; with `follow`, it heeds its configuration."""
    ready: Future[HomeThread] = Future()
    closed: Future[None] = Future()

    async def work() -> None:
        async with open_home(options, work=True, grace=_GRACE, on_problem=on_problem) as home:
            if follow:
                home.follow_configuration(log.follow)
            thread = HomeThread(home, asyncio.get_running_loop())
            ready.set_result(thread)
            await thread.closing.wait()

    def run() -> None:
        try:
            asyncio.run(work())
            closed.set_result(None)
        except BaseException as error:  # noqa: BLE001 - raised again in the thread that waits
            (closed if ready.done() else ready).set_exception(error)

    # A daemon, since a second Ctrl-C may leave at once: nothing is lost by it.
    threading.Thread(target=run, name="asterism", daemon=True).start()
    thread = ready.result()
    try:
        yield thread
    finally:
        thread.close()
        closed.result()
