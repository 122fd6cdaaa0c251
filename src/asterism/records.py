"""`dataclass` for the records of the package: methods are written when the first record is made.

A process defines 240 kinds of records when it starts and makes about 40 of them. To write the
methods of all would take a fifth of the start, so a class begins with its slots alone. What its
methods are is up to the standard library, as with any dataclass.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from threading import RLock
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from dataclasses import dataclass
else:

    def dataclass(*, frozen: bool = False, slots: bool = False) -> Callable[[type[T]], type[T]]:
        """Return a decorator that makes a dataclass, with slots at once and methods later."""
        if not slots:
            return dataclasses.dataclass(frozen=frozen)
        return lambda plain: _with_slots(plain, frozen=frozen)


__all__ = ["dataclass"]
T = TypeVar("T")
_ABSENT = object()
_FIELDS = "__dataclass_fields__"
_NOT_FIELDS = ("ClassVar", "InitVar", "KW_ONLY")
# One for all classes: to complete one is to complete those that it inherits from.
_LOCK = RLock()


class _Fields:
    """Completes a class where somebody asks for its fields before one of it was made."""

    def __init__(self, complete: Callable[[], None]) -> None:
        self._complete = complete

    def __get__(self, _instance: object, owner: type) -> Any:
        self._complete()
        return getattr(owner, _FIELDS)


def _with_slots(plain: type[T], *, frozen: bool) -> type[T]:
    """Return a class with slots for the fields of a plain one, and no other methods yet."""
    before = dict(plain.__dict__)
    own = before.get("__annotations__", {})
    kinds = " ".join(map(str, own.values()))
    if "__init__" in before or any(word in kinds for word in _NOT_FIELDS):
        return dataclasses.dataclass(plain, frozen=frozen, slots=True)

    def complete() -> None:
        """Let the standard library write the methods on the plain class, and take them over."""
        with _LOCK:
            if not isinstance(made.__dict__[_FIELDS], _Fields):
                return
            dataclasses.dataclass(plain, frozen=frozen)
            written = {
                name: value
                for name, value in plain.__dict__.items()
                if name not in own and before.get(name, _ABSENT) is not value
            }
            # Last, because with it other threads begin to make instances.
            init = written.pop("__init__")
            for name, value in written.items():
                setattr(made, name, value)
            made.__init__ = init

    def first_init(self: Any, *arguments: Any, **named: Any) -> None:
        complete()
        made.__init__(self, *arguments, **named)

    inherited = {name for base in plain.__mro__[1:] for name in getattr(base, "__slots__", ())}
    namespace = {
        name: value
        for name, value in before.items()
        if name not in own and name not in ("__dict__", "__weakref__")
    }
    namespace |= {
        "__slots__": tuple(name for name in own if name not in inherited),
        "__init__": first_init,
        "__getstate__": _state,
        "__setstate__": _set_state,
        _FIELDS: _Fields(complete),
    }
    made = type(plain)(plain.__name__, plain.__bases__, namespace)
    made.__qualname__ = plain.__qualname__
    return made


def _state(self: Any) -> list[Any]:
    return [getattr(self, field.name) for field in dataclasses.fields(self)]


def _set_state(self: Any, state: list[Any]) -> None:
    for field, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, field.name, value)
