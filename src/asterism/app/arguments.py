"""What verbs are given, checked by the types they declare before anything else is done."""

from __future__ import annotations

import dataclasses
import inspect
import math
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, TypeAlias, Union, cast, get_args, get_origin

from asterism.errors import InvalidInput
from asterism.types.agents import Agent
from asterism.types.turns import Receipt

MAX_NUMBER = 2**63 - 1
"""The largest number that the stores can keep."""
_MAX_DEPTH = 100
_COUNTS = ("limit", "offset", "days", "neighbours")
AnyText: TypeAlias = str
"""A text that may hold whatever people write; the verb itself says what it cannot take."""
_FREE = ("AnyText", "Query")
"""Types whose texts are not looked into here."""

_MADE_HERE = frozenset({Agent, Receipt})
"""What verbs give back, and what nobody makes by hand."""

Fits = Callable[[Any], bool]


class Arguments:
    """The arguments of one verb: of which types they must be."""

    def __init__(self, method: Callable[..., Any], verb: str) -> None:
        self._method = method
        self._verb = verb
        self._names = list(inspect.signature(method).parameters)[1:]
        self._declared: dict[str, tuple[Fits | None, str]] | None = None
        """By name, what a value must fulfil, and the type as it is written."""

    def check(self, given: Sequence[Any], named: Mapping[str, Any]) -> None:
        """Return if a call can be made; else raise `InvalidInput`. Python counts the arguments."""
        if self._declared is None:
            self._declared = self._read()
        for at, value in enumerate(given):
            self._check(self._names[at] if at < len(self._names) else self._names[-1], value)
        for name, value in named.items():
            self._check(name, value)

    def _check(self, name: str, value: Any) -> None:
        assert self._declared is not None
        if name in self._declared:
            fits, written = self._declared[name]
            if fits is not None and not fits(value):
                raise InvalidInput(
                    f"{self._verb} takes {name} as {written}, and was given "
                    f"{_kind(value)}. Nothing was changed."
                )
            if written in _FREE:
                return
        # Most arguments are one of these, and a turn should not pay for the others.
        kind = cast("type[Any]", type(value))
        if value is None or kind is bool or kind in _MADE_HERE:
            return
        if kind is str and value.isascii() and "\0" not in value:
            return
        if problem := _holds_nul(value) or _is_no_count(name, value) or problem_of(value):
            raise InvalidInput(f"{name} of {self._verb} {problem}. Nothing was stored or changed.")

    def _read(self) -> dict[str, tuple[Fits | None, str]]:
        found: dict[str, tuple[Fits | None, str]] = {}
        for name, one in inspect.signature(self._method).parameters.items():
            if one.kind is one.VAR_KEYWORD or one.annotation is one.empty:
                continue
            written = str(one.annotation)
            hint = eval(written, self._method.__globals__)  # noqa: S307 - an annotation of ours
            found[name] = (fits_of(hint), written)
        return found


def _kind(value: Any) -> str:
    return "None" if value is None else f"a value of type {type(value).__name__}"


def _holds_nul(value: Any) -> str:
    """Say so if a text, or one of several, has a NUL in it, which PostgreSQL does not store."""
    texts = cast("Sequence[Any]", value) if isinstance(value, list | tuple) else (value,)
    found = any(isinstance(one, str) and "\0" in one for one in texts)
    return "holds a NUL character" if found else ""


def _is_no_count(name: str, value: Any) -> str:
    return "is less than 0" if name in _COUNTS and isinstance(value, int) and value < 0 else ""


def problem_of(value: Any) -> str:
    """Say what in a value no store can keep, however deep inside; nothing if all of it can be."""
    return _problem(value, 0, set())


def _problem(value: Any, depth: int, done: set[int]) -> str:
    if isinstance(value, str):
        return _problem_of_text(value)
    if isinstance(value, int):
        return "" if abs(value) <= MAX_NUMBER else "holds a number of more than 64 bits"
    if isinstance(value, float):
        return "" if math.isfinite(value) else f"holds {value}, which is no number"
    inside = _inside(value)
    if inside is None or id(value) in done:
        return ""
    if depth == _MAX_DEPTH:
        return f"is nested more than {_MAX_DEPTH} times, or holds itself"
    for part in inside:
        if problem := _problem(part, depth + 1, done):
            return problem
    done.add(id(value))
    return ""


def _inside(value: Any) -> Iterable[Any] | None:
    if isinstance(value, Mapping):
        both = cast("Mapping[Any, Any]", value)
        return [*both.keys(), *both.values()]
    if isinstance(value, list | tuple | set | frozenset):
        return cast("Iterable[Any]", value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [getattr(value, one.name) for one in dataclasses.fields(value)]
    return None


def _problem_of_text(text: str) -> str:
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            return (
                "holds characters that are not valid Unicode (lone surrogates), as when bytes of "
                "another encoding are read as UTF-8"
            )
    return ""


def fits_of(hint: Any) -> Fits | None:
    """Return what tells whether a value is of a type; None if any value may be."""
    origin, inside = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        members = [fits_of(one) for one in inside]
        if None in members:
            return None
        several = cast("list[Fits]", members)
        return lambda value: any(one(value) for one in several)
    if hint is None or hint is type(None):
        return lambda value: value is None
    if origin is Literal:
        return lambda value: isinstance(value, str | int) and value in inside
    if isinstance(origin, type):
        return _fits_container(origin, inside)
    if hint in (Any, object) or not isinstance(hint, type) or getattr(hint, "_is_protocol", False):
        return None
    kinds: tuple[type[Any], ...] = (int, float) if hint is float else (hint,)
    return lambda value: isinstance(value, kinds)


def _fits_container(origin: type[Any], inside: tuple[Any, ...]) -> Fits | None:
    if issubclass(origin, tuple) and Ellipsis not in inside:
        each = [fits_of(one) for one in inside]
        return lambda value: (
            isinstance(value, tuple)
            and len(cast("tuple[Any, ...]", value)) == len(each)
            and all(
                one is None or one(part)
                for one, part in zip(each, cast("tuple[Any, ...]", value), strict=True)
            )
        )
    if issubclass(origin, Mapping):
        key, item = (fits_of(one) for one in inside)
        return lambda value: (
            isinstance(value, Mapping)
            and (key is None or all(map(key, cast("Mapping[Any, Any]", value))))
            and (item is None or all(map(item, cast("Mapping[Any, Any]", value).values())))
        )
    if not issubclass(origin, Iterable):
        return None  # such as a function
    part = fits_of(inside[0])

    def fits(value: Any) -> bool:
        # A text is a sequence of texts, and never meant as one.
        if not isinstance(value, origin) or isinstance(value, str | bytes):
            return False
        if part is None or not isinstance(value, Sequence):
            return True  # what can be gone through once is looked at by whoever does
        return all(map(part, cast("Sequence[Any]", value)))

    return fits
