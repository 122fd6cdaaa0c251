"""The texts of a shelf as a ranking sees them: column by column, in the order of their numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntFlag
from typing import TYPE_CHECKING, Any

import orjson

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

WIDTH = 128
"""How many dimensions of static vectors are kept: the first ones tell nearly all."""
NO_DAY = -1
"""Stands for a text that names no day."""


class Flag(IntFlag):
    """What a text looks like."""

    TIME = 1
    """It has words of time, such as `yesterday` or `in May`."""
    DIGIT = 2
    """It has a number."""
    ASKS = 4
    """It ends in a question."""
    REPLY = 8
    """The agent said it."""
    WISH = 16
    """It says how its speaker wants things: `Always …`, `I prefer …`."""
    PLACE = 32
    """It names somewhere."""


@dataclass(frozen=True, slots=True)
class Analysed:
    """What is kept of one text, beside who said it, where and when."""

    terms: dict[str, int]
    """How often each term is in it."""
    words: int
    """How many words it has, stop words too."""
    flags: Flag
    days: tuple[int, int]
    """The first and last day that it names, in days since 1970; else `NO_DAY` twice."""
    vector: bytes
    """The first `WIDTH` dimensions of its static vector."""
    weight: float
    """How much its tokens tell together: common ones have short vectors."""
    tokens: int
    addresses: int
    """How often it says `you`: what is said to somebody tells less of the speaker."""


@dataclass(frozen=True, slots=True)
class Placed:
    """A text with its place on a shelf."""

    number: int
    at: int
    """When it was said or became known."""
    speaker: str
    """Who said it: `owner`, `agent`, or an account as `channel:sender`; empty: nobody."""
    thread: str
    """The conversation or document that it is a part of, in which it has neighbours."""
    audience: str
    """Who may hear it, as it is stored."""
    text: Analysed


_COLUMNS = {
    "numbers": "<i8",
    "at": "<i8",
    "speaker": "<u2",
    "thread": "<u2",
    "audience": "<u2",
    "words": "<u4",
    "length": "<u4",
    "norm": "<f4",
    "weight": "<f4",
    "tokens": "<u2",
    "addresses": "u1",
    "flags": "u1",
    "first_day": "<i4",
    "last_day": "<i4",
}


@dataclass(slots=True)
class Texts:
    """Columns of texts; `speaker`, `thread` and `audience` are places in the lists beside them."""

    numbers: NDArray[np.int64]
    at: NDArray[np.int64]
    speaker: NDArray[np.uint16]
    thread: NDArray[np.uint16]
    audience: NDArray[np.uint16]
    words: NDArray[np.uint32]
    """How many words each has, stop words too."""
    length: NDArray[np.uint32]
    """How many terms each has, repeated ones too."""
    norm: NDArray[np.float32]
    """The length of each one's static vector."""
    weight: NDArray[np.float32]
    """How much the tokens of each tell together."""
    tokens: NDArray[np.uint16]
    addresses: NDArray[np.uint8]
    """How often each says `you`."""
    flags: NDArray[np.uint8]
    first_day: NDArray[np.int32]
    last_day: NDArray[np.int32]
    vectors: NDArray[np.int8]
    """Static vectors, a row a text."""
    speakers: list[str] = field(default_factory=list[str])
    threads: list[str] = field(default_factory=list[str])
    audiences: list[str] = field(default_factory=list[str])

    def __len__(self) -> int:
        return len(self.numbers)

    def pack(self) -> tuple[bytes, bytes]:
        """Return what `unpack` reads: the columns, and the static vectors."""
        head = orjson.dumps([len(self), self.speakers, self.threads, self.audiences])
        body = b"".join(
            getattr(self, name).astype(kind).tobytes() for name, kind in _COLUMNS.items()
        )
        return len(head).to_bytes(4, "little") + head + body, self.vectors.tobytes()


def gather(placed: Sequence[Placed]) -> Texts:
    """Return texts column by column."""
    import numpy as np

    lists: dict[str, dict[str, int]] = {"speaker": {}, "thread": {}, "audience": {}}

    def known(column: str, value: str) -> int:
        return lists[column].setdefault(value, len(lists[column]))

    most = 65_535
    rows: dict[str, list[float]] = {name: [] for name in _COLUMNS}
    for one in placed:
        rows["numbers"].append(one.number)
        rows["at"].append(one.at)
        rows["speaker"].append(known("speaker", one.speaker))
        rows["thread"].append(known("thread", one.thread))
        rows["audience"].append(known("audience", one.audience))
        rows["words"].append(one.text.words)
        rows["length"].append(sum(one.text.terms.values()))
        rows["weight"].append(one.text.weight)
        rows["tokens"].append(min(one.text.tokens, most))
        rows["addresses"].append(min(one.text.addresses, 255))
        rows["flags"].append(int(one.text.flags))
        rows["first_day"].append(one.text.days[0])
        rows["last_day"].append(one.text.days[1])
    joined = b"".join(one.text.vector for one in placed)
    vectors = np.frombuffer(joined, dtype=np.int8).reshape(len(placed), WIDTH)
    floats = vectors.astype(np.float32)
    rows["norm"] = np.sqrt(np.einsum("ij,ij->i", floats, floats)).tolist()
    columns: dict[str, Any] = {
        name: np.array(rows[name], dtype=kind) for name, kind in _COLUMNS.items()
    }
    return Texts(
        **columns,
        vectors=vectors,
        speakers=list(lists["speaker"]),
        threads=list(lists["thread"]),
        audiences=list(lists["audience"]),
    )


def unpack(columns: bytes, vectors: bytes) -> Texts:
    """Return texts that `Texts.pack` has packed; nothing is copied."""
    import numpy as np

    size = int.from_bytes(columns[:4], "little")
    count, speakers, threads, audiences = orjson.loads(columns[4 : 4 + size])
    at = 4 + size
    read: dict[str, Any] = {}
    for name, kind in _COLUMNS.items():
        read[name] = np.frombuffer(columns, dtype=kind, count=count, offset=at)
        at += read[name].nbytes
    table = np.frombuffer(vectors, dtype=np.int8).reshape(count, WIDTH)
    return Texts(**read, vectors=table, speakers=speakers, threads=threads, audiences=audiences)


def concatenate(parts: Sequence[Texts]) -> Texts:
    """Return texts of several segments or shelves as one, in this order."""
    import numpy as np

    if len(parts) == 1:
        return parts[0]
    lists: dict[str, dict[str, int]] = {"speaker": {}, "thread": {}, "audience": {}}
    columns: dict[str, list[Any]] = {name: [] for name in (*_COLUMNS, "vectors")}
    for part in parts:
        for name, kept in columns.items():
            values = getattr(part, name)
            if name in lists:
                merged = lists[name]
                moved = [merged.setdefault(one, len(merged)) for one in getattr(part, f"{name}s")]
                values = np.array(moved or [0], dtype=np.uint32)[values]
            kept.append(values)
    joined: dict[str, Any] = {name: np.concatenate(kept) for name, kept in columns.items()}
    return Texts(
        **joined,
        speakers=list(lists["speaker"]),
        threads=list(lists["thread"]),
        audiences=list(lists["audience"]),
    )


def chosen(texts: Texts, rows: NDArray[Any]) -> Texts:
    """Return some of the texts, those of these rows."""
    columns: dict[str, Any] = {name: getattr(texts, name)[rows] for name in (*_COLUMNS, "vectors")}
    return Texts(
        **columns, speakers=texts.speakers, threads=texts.threads, audiences=texts.audiences
    )
