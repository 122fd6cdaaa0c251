"""What search is held against: plain FTS5, and FTS5 with the cosines of an encoder beside it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import apsw

from bench.dialogues import Message, Session

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Encode = Callable[[Sequence[str]], NDArray[np.float32]]

_WORD = re.compile(r"[^\W_]+")
_POOL = 100
_RRF = 60
"""The constant that reciprocal rank fusion is published with."""


class Fts5:
    """SQLite's own full-text index and ranking; the words of a query are joined by OR."""

    def __init__(self, place: Path) -> None:
        self._ids: list[str] = []
        self._db: Any = apsw.Connection(str(place / "fts5.db"))
        self._db.execute("PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL")
        self._db.execute("CREATE TABLE texts (id INTEGER PRIMARY KEY, text TEXT)")
        self._db.execute("CREATE VIRTUAL TABLE found USING fts5(text, content = 'texts')")

    def ingest(self, session: Session) -> None:
        """Store messages with who said them."""
        with self._db:
            for one in session.messages:
                self._ids.append(one.id)
                row = (len(self._ids), _line(one))
                self._db.execute("INSERT INTO texts VALUES (?, ?)", row)
                self._db.execute("INSERT INTO found (rowid, text) VALUES (?, ?)", row)

    def finish(self) -> None:
        """Do nothing: the index is written with the texts."""

    def search(self, query: str, k: int, now: datetime | None = None) -> list[str]:  # noqa: ARG002
        """Return ids of messages, the best first; what time it is does not matter to it."""
        words = dict.fromkeys(one.lower() for one in _WORD.findall(query))
        if not words:
            return []
        rows = self._db.execute(
            "SELECT rowid FROM found WHERE found MATCH ? ORDER BY bm25(found) LIMIT ?",
            (" OR ".join(f'"{one}"' for one in words), k),
        )
        return [self._ids[row[0] - 1] for row in rows]

    def close(self) -> None:
        """Let go of the file."""
        self._db.close()


class Hybrid:
    """FTS5 and exact cosines of one vector a message, fused by their ranks."""

    def __init__(self, place: Path, encode: Encode) -> None:
        self._words = Fts5(place)
        self._encode = encode
        self._ids: list[str] = []
        self._rows: list[NDArray[np.float32]] = []

    def ingest(self, session: Session) -> None:
        """Store messages and their vectors."""
        self._words.ingest(session)
        self._ids += [one.id for one in session.messages]
        self._rows.append(self._encode([_line(one) for one in session.messages]))

    def finish(self) -> None:
        """Make one matrix of the vectors."""
        import numpy as np

        self._rows = [np.concatenate(self._rows)]

    def search(self, query: str, k: int, now: datetime | None = None) -> list[str]:  # noqa: ARG002
        """Return ids of messages, the best first; what time it is does not matter to it."""
        cosines = self._rows[0] @ self._encode([query])[0]
        by_vector = [self._ids[int(row)] for row in (-cosines).argsort(kind="stable")[:_POOL]]
        scores: dict[str, float] = {}
        for ranked in (self._words.search(query, _POOL), by_vector):
            for place, one in enumerate(ranked, 1):
                scores[one] = scores.get(one, 0.0) + 1 / (_RRF + place)
        return sorted(scores, key=lambda one: -scores[one])[:k]

    def close(self) -> None:
        """Let go of the file."""
        self._words.close()


def minilm() -> Encode:
    """Return the encoder that comes with asterism, by itself."""
    from asterism.search.minilm import MiniLM

    return MiniLM().encode_here


def _line(message: Message) -> str:
    return f"{message.speaker}: {message.text}"
