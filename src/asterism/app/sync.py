"""The synchronous door for scripts and notebooks: the same home, without `await`.

The home lives in an event loop in a thread of its own. Whatever it hands out is wrapped: calls that
are awaited elsewhere return their results, and what is iterated with `async for` is iterated.
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


class SyncHome:
    """An open home whose verbs need no `await`: `with Asterism.open_sync() as home:`."""

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
        if type(value).__module__.startswith(_HANDLES):
            return value if is_dataclass(value) and not _has_verbs(value) else _Handle(self, value)
        return value

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

    def __init__(self, sync: SyncHome, target: Any) -> None:
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


def _has_verbs(value: Any) -> bool:
    """Tell whether a record can be asked to do something, as an agent can."""
    members: dict[str, object] = dict(vars(cast("type[object]", type(value))))
    return any(map(inspect.iscoroutinefunction, members.values()))
