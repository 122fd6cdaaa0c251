"""Verbs: what can be done to a home, each judged by the one decision before it is carried out.

What a verb is given is checked by the types that it declares, before it is judged.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any, TypeVar

from asterism.app.arguments import Arguments
from asterism.errors import AsterismError, ConfigError
from asterism.permissions import Act

C = TypeVar("C", bound=type[Any])

_LONGEST_MESSAGE = 4_000


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
    arguments = Arguments(method, verb)

    if inspect.isasyncgenfunction(method):

        @functools.wraps(method)
        async def streamed(self: Any, *given: Any, **named: Any) -> AsyncGenerator[Any, None]:
            arguments.check(given, named)
            await self._reach.allow(act, verb, noun, given)
            try:
                async with aclosing(method(self, *given, **named)) as found:
                    async for one in found:
                        yield one
            except AsterismError as error:
                _shorten(error)
                raise

        made: Callable[..., Any] = streamed
    elif inspect.iscoroutinefunction(method):

        @functools.wraps(method)
        async def awaited(self: Any, *given: Any, **named: Any) -> Any:
            arguments.check(given, named)
            if not self._reach.is_owner:
                await self._reach.allow(act, verb, noun, given)
            try:
                return await method(self, *given, **named)
            except AsterismError as error:
                _shorten(error)
                raise

        made = awaited
    else:

        @functools.wraps(method)
        def called(self: Any, *given: Any, **named: Any) -> Any:
            arguments.check(given, named)
            self._reach.check(act, verb, noun, given)
            try:
                return method(self, *given, **named)
            except AsterismError as error:
                _shorten(error)
                raise

        made = called
    setattr(made, "verb", (act, verb))  # noqa: B010 - a function has no such attribute to a checker
    return made


def _shorten(error: AsterismError) -> None:
    """Leave out the middle of a reason that repeats a very long argument."""
    over = len(error.message) - _LONGEST_MESSAGE
    if over > 0:
        half = (len(error.reason) - over) // 2
        error.reason = f"{error.reason[:half]}…{error.reason[-half:]}"
