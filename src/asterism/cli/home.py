"""The home of the agents, opened for one command or for a conversation."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator
from concurrent.futures import Future
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, contextmanager
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from asterism.cli import log
from asterism.errors import AsterismError, StoreMissing

if TYPE_CHECKING:
    from asterism.app import Asterism
    from asterism.app.keys import StoredKeys
    from asterism.cli.options import Options

T = TypeVar("T")

_log = logging.getLogger(__name__)


@asynccontextmanager
async def opened(
    options: Options,
    *,
    work: bool = False,
    readonly: bool = False,
    grace: float = 10.0,
    on_problem: Callable[[str], None] = _log.warning,
) -> AsyncGenerator[Asterism, None]:
    """Open the home that the options name."""
    from asterism.app import Asterism

    log.start(None if readonly else options.place)
    async with Asterism.open(
        options.data,
        config=options.config,
        settings=options.settings,
        work=work,
        readonly=readonly,
        grace=grace,
        on_problem=on_problem,
    ) as home:
        log.follow(home.settings)
        yield home


@asynccontextmanager
async def stored_keys(
    options: Options, *, lenient: bool = False
) -> AsyncGenerator[StoredKeys, None]:
    """Open the keys that turns would use; none where there is no database yet.

    With `lenient`, there are none either where the database cannot be read.
    """
    from asterism.app.keys import NoStoredKeys

    async with AsyncExitStack() as stack:
        keys: StoredKeys = NoStoredKeys()
        try:
            home = await stack.enter_async_context(opened(options, readonly=True))
            keys = home.keys
        except StoreMissing:
            pass
        except AsterismError:
            if not lenient:
                raise
        yield keys


def visit(
    options: Options,
    errand: Callable[[Asterism], Awaitable[T]],
    *,
    work: bool = False,
    readonly: bool = False,
) -> T:
    """Open the home, do an errand there, leave, and return what came of it."""

    async def there_and_back() -> T:
        async with opened(options, work=work, readonly=readonly) as home:
            return await errand(home)

    return asyncio.run(there_and_back())


class Household:
    """A home at work in a thread of its own, so that this one can wait for a person to type."""

    def __init__(self, home: Asterism, loop: asyncio.AbstractEventLoop) -> None:
        self.home = home
        self.leaving = asyncio.Event()
        self._loop = loop

    def leave(self) -> None:
        """Let the home close."""
        self._loop.call_soon_threadsafe(self.leaving.set)

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine there and wait for its result."""
        return self.start(coroutine).result()

    def start(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        """Run a coroutine there."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def iterate(self, source: AsyncGenerator[T, None]) -> Passed[T]:
        """Return an iterator over what a generator yields there."""
        return Passed(self, source)


class Passed(Generic[T]):
    """What a generator in the other thread yields; being interrupted does not end it."""

    def __init__(self, house: Household, source: AsyncGenerator[T, None]) -> None:
        self._items: SimpleQueue[tuple[T] | BaseException | None] = SimpleQueue()
        self._passing = house.start(self._pass_on(source))

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> T:
        item = self._items.get()
        if item is None:
            raise StopIteration
        if isinstance(item, BaseException):
            raise item
        return item[0]

    def close(self) -> None:
        """End the generator."""
        self._passing.cancel()

    async def _pass_on(self, source: AsyncGenerator[T, None]) -> None:
        try:
            async with aclosing(source):
                async for item in source:
                    self._items.put((item,))
        except BaseException as error:  # noqa: BLE001 - raised again in the thread that waits
            self._items.put(error)
        else:
            self._items.put(None)


@contextmanager
def household(
    options: Options,
    *,
    grace: float,
    follow: bool = False,
    on_problem: Callable[[str], None] = _log.warning,
) -> Generator[Household, None, None]:
    """Open the home at work in a thread of its own; with `follow`, it heeds its configuration."""
    ready: Future[Household] = Future()
    closed: Future[None] = Future()

    async def keep() -> None:
        async with opened(options, work=True, grace=grace, on_problem=on_problem) as home:
            if follow:
                home.follow_configuration(log.follow)
            house = Household(home, asyncio.get_running_loop())
            ready.set_result(house)
            await house.leaving.wait()

    def live() -> None:
        try:
            asyncio.run(keep())
            closed.set_result(None)
        except BaseException as error:  # noqa: BLE001 - raised again in the thread that waits
            (closed if ready.done() else ready).set_exception(error)

    # A daemon, since a second Ctrl-C may leave at once: nothing is lost by it.
    threading.Thread(target=live, name="asterism", daemon=True).start()
    house = ready.result()
    try:
        yield house
    finally:
        house.leave()
        closed.result()
