"""Verbs: what can be done to a home, each judged by the one decision before it is carried out."""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any, TypeVar

from asterism.errors import ConfigError
from asterism.permissions import Act

C = TypeVar("C", bound=type[Any])


def verbs(noun: str, **acts: Act) -> Callable[[C], C]:
    """Have the methods of a class judged: each by its name, with what it does to the noun.

    All of its public coroutines and async generators must be named, so that none is forgotten. The
    class keeps in `_reach` who acts and what they may do.
    """

    def wrap(judged: C) -> C:
        for name, member in list(vars(judged).items()):
            public = not name.startswith("_") or name == "__call__"
            if not public or not callable(member) or isinstance(member, type):
                continue
            awaited = inspect.iscoroutinefunction(member) or inspect.isasyncgenfunction(member)
            if name in acts:
                setattr(judged, name, _judged(member, acts[name], noun, name))
            elif awaited:
                raise ConfigError(f"{judged.__name__}.{name} does not say what kind of act it is.")
        return judged

    return wrap


def _judged(method: Callable[..., Any], act: Act, noun: str, name: str) -> Callable[..., Any]:
    verb = f"{noun}.{'list' if name == '__call__' else name}"

    if inspect.isasyncgenfunction(method):

        @functools.wraps(method)
        async def streamed(self: Any, *given: Any, **named: Any) -> AsyncGenerator[Any, None]:
            await self._reach.allow(act, verb, noun, given)
            async with aclosing(method(self, *given, **named)) as found:
                async for one in found:
                    yield one

        made: Callable[..., Any] = streamed
    elif inspect.iscoroutinefunction(method):

        @functools.wraps(method)
        async def awaited(self: Any, *given: Any, **named: Any) -> Any:
            if not self._reach.is_owner:
                await self._reach.allow(act, verb, noun, given)
            return await method(self, *given, **named)

        made = awaited
    else:

        @functools.wraps(method)
        def called(self: Any, *given: Any, **named: Any) -> Any:
            self._reach.check(act, verb, noun, given)
            return method(self, *given, **named)

        made = called
    setattr(made, "verb", (act, verb))  # noqa: B010 - a function has no such attribute to a checker
    return made
