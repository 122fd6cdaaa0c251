"""A shelf that is in memory, and the shelves that a process keeps there."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from threading import RLock
from typing import TYPE_CHECKING, Any, NamedTuple

from asterism.memory.search.rows import Rows
from asterism.memory.search.stored import Raw
from asterism.memory.search.texts import Placed, gather
from asterism.store.shelves import Segment, Standing

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Encoded = tuple[Any, NDArray[np.int8], NDArray[np.bool_], NDArray[np.float32]]

MOST_OFTEN = 15
"""How often a term counts in one text at most; four bits."""
FORMAT = b"3"
"""Counted up when texts are found by something else; segments of another are made anew."""
_MOST_BYTES = 64 << 20

Whose = tuple[str, str]
"""A kind of shelf, `journal` or `archive`, and whose it is: an agent's or a source's id."""
Signature = tuple[tuple[int, int, int, str, bool], ...]
Key = tuple[int, str, str]


def fingerprint(*parts: bytes) -> int:
    """Return a number by which the same contents are known again."""
    made = blake2b(digest_size=8)
    for part in parts:
        made.update(len(part).to_bytes(8, "little"))
        made.update(part)
    return int.from_bytes(made.digest(), "little") >> 1


def signature_of(segments: Sequence[Segment]) -> Signature:
    """Return what changes whenever a segment does."""
    return tuple((one.first, one.last, one.made, one.absent, one.fits) for one in segments)


class Folded(NamedTuple):
    """Where the texts of a segment are among the rows of its shelf."""

    first: int
    made: int
    texts: int
    """How many."""
    start: int
    rows: NDArray[np.int64] | None
    """Each of them; None: they follow one another from `start`."""


@dataclass(slots=True)
class Shelf:
    """A shelf in memory. Texts are added at its end; whatever else changes makes a new one."""

    key: Key
    shelf: int | None
    dropped: int
    signature: Signature
    rows: Rows
    next: int
    """All texts from this number on are in no segment."""
    left_out: int = 0
    folded: dict[int, Folded] = field(default_factory=dict[int, Folded])
    said: dict[str, tuple[list[int], list[int]]] = field(
        default_factory=dict[str, tuple[list[int], list[int]]]
    )
    """The rows that have a term, and how often; of texts that are in no segment."""
    open_turns: dict[str, list[int]] = field(default_factory=dict[str, list[int]])
    """The rows of turns that go on."""
    mark: tuple[int, tuple[Any, ...]] | None = None
    """The last text that is in no segment: its number, and what tells it from others."""
    encoded: dict[str, Encoded] = field(default_factory=dict[str, "Encoded"])
    """Vectors by the name of their encoder."""

    @property
    def size(self) -> int:
        """About how many bytes it takes."""
        vectors = sum(one[1].nbytes for one in self.encoded.values())
        return self.rows.size + vectors + 200 * len(self.said)

    @property
    def since(self) -> int:
        """The number from which texts are read again: the last known one, to know it again."""
        return self.next if self.mark is None else self.mark[0]

    def is_of(self, standing: Standing, signature: Signature) -> bool:
        """Tell whether it shows a shelf that stands so, but for texts at its end."""
        return (
            self.shelf == standing.shelf
            and self.dropped == standing.dropped
            and self.signature == signature
        )

    def news(self, read: list[Raw]) -> list[Raw] | None:
        """Return what comes after the last known text; None: that one is another one now."""
        if self.mark is None:
            return read
        if not read or (read[0].number, read[0].mark) != self.mark:
            return None
        return read[1:]

    def add(self, raws: Sequence[Raw], placed: Sequence[Placed]) -> None:
        """Add texts that are in no segment, whose numbers are above all others."""
        if not raws:
            return
        start = self.rows.count
        self.rows.add(gather(placed))
        self.note(raws, placed, range(start, start + len(raws)))
        self.mark = (raws[-1].number, raws[-1].mark)

    @property
    def identity(self) -> tuple[Hashable, ...]:
        """What tells its texts from others, together with how many they are."""
        return (self.key, self.dropped, self.signature, self.mark)

    def note(self, raws: Sequence[Raw], placed: Sequence[Placed], rows: Iterable[int]) -> None:
        """Note where the terms of texts in no segment are, and which turns go on."""
        for raw, one, row in zip(raws, placed, rows, strict=True):
            if raw.open_turn is not None:
                self.open_turns.setdefault(raw.open_turn, []).append(row)
            for term, often in one.text.terms.items():
                there, counts = self.said.setdefault(term, ([], []))
                there.append(row)
                counts.append(min(often, MOST_OFTEN))

    def end_turns(self, ends: dict[str, tuple[str | None, int | None]], owner: str) -> None:
        """Take over who may hear what was said in turns that went on."""
        for turn_id, (audience, ended_at) in ends.items():
            for row in self.open_turns.get(turn_id, ()):
                self.rows.put("audience", row, audience or owner)
            if ended_at is not None:
                self.open_turns.pop(turn_id, None)


class Shelves:
    """The shelves that a process keeps in memory, those used last, up to so many bytes.

    The one used last stays, however large it is, since each search would have to read it again.
    """

    def __init__(self, most_bytes: int = _MOST_BYTES) -> None:
        self.lock = RLock()
        self._most = most_bytes
        self._kept: OrderedDict[Key, tuple[Shelf, int]] = OrderedDict()
        self._bytes = 0

    def get(self, key: Key) -> Shelf | None:
        """Return a shelf if it is kept."""
        with self.lock:
            found = self._kept.get(key)
            if found is None:
                return None
            self._kept.move_to_end(key)
            return found[0]

    def keep(self, shelf: Shelf) -> None:
        """Keep a shelf in the place of what is kept of it."""
        with self.lock:
            _, before = self._kept.pop(shelf.key, (None, 0))
            size = shelf.size
            self._kept[shelf.key] = (shelf, size)
            self._bytes += size - before
            while self._bytes > self._most and len(self._kept) > 1:
                _, (_, gone) = self._kept.popitem(last=False)
                self._bytes -= gone

    def clear(self) -> None:
        """Keep nothing any more."""
        with self.lock:
            self._kept.clear()
            self._bytes = 0

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def size(self) -> int:
        """How many bytes are kept."""
        return self._bytes
