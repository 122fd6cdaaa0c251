"""The vectors of questions: kept for a while, and done without where an encoder cannot answer."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from asterism.errors import AsterismError
from asterism.memory.search.encoders import encode_question, without
from asterism.memory.search.folding import encoders_of
from asterism.memory.search.index import Whose
from asterism.ports import Encoder
from asterism.store.database import Connection

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_PATIENCE = 3.0
"""Seconds that a search waits for the vector of its question."""
_REST = 30.0
"""Seconds that an encoder is left alone after it could not answer."""
_MOST_KEPT = 512
_MOST_SHELVES = 8

_log = logging.getLogger(__name__)


class Asking:
    """Makes the vectors of questions."""

    def __init__(self, encoder: Callable[[str], Encoder | None]) -> None:
        """Make it; `encoder` returns an encoder by its name, None for one that is not wanted."""
        self._encoder = encoder
        self._kept: OrderedDict[tuple[str, str], NDArray[np.float32]] = OrderedDict()
        self._rests: dict[str, float] = {}
        self._told: set[str] = set()

    async def vector(
        self, name: str | None, question: str, names: Iterable[str] = ()
    ) -> NDArray[np.float32] | None:
        """Return the vector of a question by the encoder `name`; None where there is none now.

        Args:
            name: What `serving` says.
            question: As it was asked.
            names: The speakers, whose names are left out.
        """
        if name is None or time.monotonic() < self._rests.get(name, 0):
            return None
        asked = without(names, question)
        kept = self._kept.get((name, asked))
        if kept is None:
            kept = await self._ask(name, asked)
            if kept is None:
                return None
            self._kept[name, asked] = kept
            if len(self._kept) > _MOST_KEPT:
                self._kept.popitem(last=False)
        self._kept.move_to_end((name, asked))
        return kept

    async def _ask(self, name: str, asked: str) -> NDArray[np.float32] | None:
        try:
            encoder = self._encoder(name)
            if encoder is None:
                return None
            async with asyncio.timeout(_PATIENCE):
                made = await encode_question(encoder, asked)
        except TimeoutError:
            told = f"The encoder {name!r} gave no answer within {_PATIENCE:g} seconds."
        except AsterismError as error:
            told = error.message
        else:
            self._told.discard(name)
            return made
        self._rests[name] = time.monotonic() + _REST
        if name not in self._told:
            self._told.add(name)
            _log.warning("%s Searches go on by words and static vectors until it works.", told)
        return None


async def serving(tx: Connection, whose: Sequence[Whose], wanted: str) -> str | None:
    """Return the encoder whose vectors a search over these shelves uses; None: there are none.

    After a change of encoder that is the former one, until as many texts have the new vectors.
    """
    counts: dict[str, int] = {}
    for kind, owner_id in whose[:_MOST_SHELVES]:
        for name, count in (await encoders_of(tx, kind, owner_id)).items():
            counts[name] = counts.get(name, 0) + count
    if wanted == "none" or not any(counts.values()):
        return None
    return max(counts, key=lambda name: (counts[name], name == wanted, name))
