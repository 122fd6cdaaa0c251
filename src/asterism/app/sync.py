"""A home for scripts and notebooks: the same nouns and verbs, without `await`.

Everything with verbs is wrapped when a program runs. Its types are in `sync.pyi`, which
`python -m bench.sync_types` makes of the classes that are wrapped.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager
from dataclasses import is_dataclass
from types import TracebackType
from typing import Any, Self, TypeVar, cast

T = TypeVar("T")
_HANDLES = "asterism.app."
"""Objects of these modules have verbs, so they are wrapped; records are handed out as they are."""


class SyncAsterism:
    """An open home whose verbs need no `await`: `with Asterism.open_sync() as home:`.

    It runs in an event loop in a separate thread. What it returns is wrapped: a verb returns its
    result, and `for` replaces `async for`.
    """

    def __init__(self, opening: Callable[[], AbstractAsyncContextManager[Any]]) -> None:
        """Make it; `opening` returns what opens the home."""
        self._opening = opening
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> Self:
        """Open the home."""
        self._thread.start()
        try:
            self._context = self._opening()
            self._home = self.run(self._context.__aenter__())
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the home; turns under way get their grace."""
        try:
            self.run(self._context.__aexit__(kind, error, trace))
        finally:
            self._stop()

    def _stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Return what a coroutine of the home returns."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def wrap(self, value: Any) -> Any:
        """Return a value as a script can use it."""
        if inspect.iscoroutine(value):
            return self.wrap(self.run(value))
        if isinstance(value, AsyncIterator):
            return self._iterate(cast("AsyncIterator[Any]", value))
        if isinstance(value, list):
            return [self.wrap(part) for part in cast("list[Any]", value)]
        if type(value) is tuple:
            return tuple(self.wrap(part) for part in cast("tuple[Any, ...]", value))
        if isinstance(value, dict):
            return {name: self.wrap(part) for name, part in cast("dict[Any, Any]", value).items()}
        return _Handle(self, value) if has_verbs(cast("type[Any]", type(value))) else value

    def _iterate(self, stream: AsyncIterator[Any]) -> Iterator[Any]:
        async def advance() -> Any:
            return await anext(stream)

        try:
            while True:
                try:
                    yield self.run(advance())
                except StopAsyncIteration:
                    return
        finally:
            if hasattr(stream, "aclose"):
                self.run(cast("Any", stream).aclose())

    def __getattr__(self, name: str) -> Any:
        """Return a noun or a verb of the home."""
        return getattr(_Handle(self, self._home), name)


class _Handle:
    """Something with verbs, such as a noun, an agent or a block."""

    def __init__(self, sync: SyncAsterism, target: Any) -> None:
        self._sync = sync
        self._target = target

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._target, name)
        if not callable(value) or isinstance(value, type):
            return self._sync.wrap(value)

        def call(*values: Any, **options: Any) -> Any:
            return self._sync.wrap(value(*map(_unwrap, values), **options))

        return call if inspect.isroutine(value) else _Handle(self._sync, value)

    def __getitem__(self, key: Any) -> Any:
        return self._sync.wrap(self._target[key])

    __iter__ = None  # what has names or labels is listed by its verb

    def __call__(self, *values: Any, **options: Any) -> Any:
        return self._sync.wrap(self._target(*map(_unwrap, values), **options))

    def __eq__(self, other: object) -> bool:
        return bool(self._target == _unwrap(other))

    def __hash__(self) -> int:
        return hash(self._target)

    def __repr__(self) -> str:
        return repr(self._target)


def _unwrap(value: Any) -> Any:
    return vars(value)["_target"] if isinstance(value, _Handle) else value


def has_verbs(kind: type[Any]) -> bool:
    """Tell whether what is of a class can be asked to do something, as an agent can."""
    if not kind.__module__.startswith(_HANDLES):
        return False
    members = (getattr(kind, name, None) for name in dir(kind))
    return not is_dataclass(kind) or any(map(inspect.iscoroutinefunction, members))
