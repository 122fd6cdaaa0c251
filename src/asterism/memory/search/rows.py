"""Texts of a shelf in memory, to which later ones are added without copying the earlier ones."""

from __future__ import annotations

from dataclasses import fields
from functools import cache
from typing import TYPE_CHECKING, Any

from asterism.memory.search.texts import Texts, gather

if TYPE_CHECKING:
    from numpy.typing import NDArray

_LISTS = {"speaker": "speakers", "thread": "threads", "audience": "audiences"}
_SPARE = 256


@cache
def _columns() -> dict[str, tuple[tuple[int, ...], Any]]:
    """Return the columns of texts, each with the shape of a value and its type."""
    nothing = gather([])
    columns = [one.name for one in fields(Texts) if one.name not in _LISTS.values()]
    # More texts have more speakers, threads and audiences than those of one segment.
    return {
        name: (
            getattr(nothing, name).shape[1:],
            "uint32" if name in _LISTS else getattr(nothing, name).dtype,
        )
        for name in columns
    }


class Rows:
    """Columns with room at their end. What a view shows stays as it is when rows are added."""

    def __init__(self, capacity: int) -> None:
        self.count = 0
        self._room = 0
        self._columns: dict[str, NDArray[Any]] = {}
        self._known: dict[str, dict[str, int]] = {name: {} for name in _LISTS}
        self._lists: dict[str, list[str]] = {name: [] for name in _LISTS}
        self._grow(capacity)

    @property
    def size(self) -> int:
        """How many bytes it takes."""
        return sum(one.nbytes for one in self._columns.values())

    def _grow(self, capacity: int) -> None:
        import numpy as np

        for name, (shape, kind) in _columns().items():
            made = np.empty((capacity, *shape), dtype=kind)
            if self.count:
                made[: self.count] = self._columns[name][: self.count]
            self._columns[name] = made
        self._room = capacity

    def add(self, texts: Texts) -> None:
        """Add texts at the end."""
        import numpy as np

        first, last = self.count, self.count + len(texts)
        if last > self._room:
            self._grow(last + last // 4 + _SPARE)
        for name, column in self._columns.items():
            values = getattr(texts, name)
            if name in _LISTS and len(texts):
                moved = [self.known(name, one) for one in getattr(texts, _LISTS[name])]
                values = np.array(moved, dtype="uint32")[values]
            column[first:last] = values
        self.count = last

    def known(self, column: str, value: str) -> int:
        """Return the place of a value in the list of a column, which is added if need be."""
        known = self._known[column]
        place = known.get(value)
        if place is None:
            place = known[value] = len(known)
            self._lists[column].append(value)
        return place

    def put(self, column: str, row: int, value: str) -> None:
        """Give a row another speaker, thread or audience."""
        self._columns[column][row] = self.known(column, value)

    def sort(self) -> None:
        """Put the rows in the order of their numbers; only before anybody has seen them."""
        import numpy as np

        numbers = self._columns["numbers"][: self.count]
        if bool(np.all(numbers[1:] > numbers[:-1])):
            return
        order = np.argsort(numbers, kind="stable")
        for column in self._columns.values():
            column[: self.count] = column[: self.count][order]

    def view(self, first: int = 0, last: int | None = None) -> Texts:
        """Return some rows as texts; nothing is copied."""
        last = self.count if last is None else last
        return self._texts({name: one[first:last] for name, one in self._columns.items()})

    def at(self, rows: NDArray[Any]) -> Texts:
        """Return a copy of some rows."""
        return self._texts({name: one[rows] for name, one in self._columns.items()})

    def _texts(self, columns: dict[str, Any]) -> Texts:
        return Texts(
            **columns,
            speakers=self._lists["speaker"],
            threads=self._lists["thread"],
            audiences=self._lists["audience"],
        )
