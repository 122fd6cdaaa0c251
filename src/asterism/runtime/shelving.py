"""One shelf at a time: its texts are folded into the index, and then encoded."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from asterism.memory.search import folding
from asterism.memory.search.encoders import encode_texts
from asterism.memory.search.encoders.names import names_for
from asterism.memory.search.index import Whose
from asterism.memory.search.texts import WIDTH
from asterism.ports import Encoder
from asterism.store import encoding
from asterism.store.database import Connection, Database

_AT_ONCE = 64
"""Texts that are encoded and stored in one go; a crash costs no more than these."""


class Shelving:
    """What is done with shelves; each step is whole, so that it can be broken off anywhere."""

    def __init__(self, database: Database, constellation: str) -> None:
        self._database = database
        self._constellation = constellation

    async def behind(self, encoder: str | None) -> list[Whose]:
        """Return the shelves of which something is to be folded, or to be encoded."""

        async def read(tx: Connection) -> list[Whose]:
            found = await folding.behind(tx, self._constellation)
            if encoder is not None:
                found += await encoding.lacking(tx, self._constellation, encoder, WIDTH)
            return found

        return await self._database.read(read)

    async def progress(self, encoder: str) -> tuple[int, int]:
        """Return how many of the folded texts are encoded, and how many there are."""
        return await self._database.read(
            lambda tx: encoding.progress(tx, self._constellation, encoder, WIDTH)
        )

    async def fold(self, whose: Whose) -> tuple[int, bool]:
        """Fold what is to be folded of a shelf.

        Returns:
            How many segments were made, and whether that is all of them: a shelf may change
            meanwhile.
        """
        count, settled = 0, True
        for wanted in await self._database.read(lambda tx: folding.pending(tx, *whose)):
            read = await self._database.read(lambda tx, one=wanted: folding.read_range(tx, one))
            made = await asyncio.to_thread(folding.analysed, read)
            done = await self._database.write(lambda tx, one=made: folding.fold(tx, one))
            count, settled = count + done, settled and done
        return count, settled

    async def lacks(self, whose: Whose, encoder: str) -> bool:
        """Tell by a glance whether texts of a shelf have to be encoded."""
        return bool(
            await self._database.read(
                lambda tx: encoding.lacking(tx, self._constellation, encoder, WIDTH, whose)
            )
        )

    async def encode(self, whose: Whose, encoder: Encoder) -> bool:
        """Encode a segment of a shelf; return whether there is more to do."""
        lacking = await self._database.read(lambda tx: folding.unencoded(tx, *whose, encoder.name))
        if not lacking:
            return False
        names = await self._database.read(lambda tx: names_for(tx, self._constellation, whose[1]))
        for one in lacking:
            for start in range(0, len(one.numbers), _AT_ONCE):
                some = one.numbers[start : start + _AT_ONCE]
                made = await self._vectors(whose, some, encoder, names)
                if not await self._database.write(
                    lambda tx, one=one, made=made: folding.put_encoded(
                        tx, *whose, encoder.name, one.first, made, one.dropped
                    )
                ):
                    return True  # something was taken off the shelf meanwhile
        return True

    async def _vectors(
        self, whose: Whose, numbers: Sequence[int], encoder: Encoder, names: Sequence[str]
    ) -> dict[int, bytes]:
        texts = await self._database.read(lambda tx: folding.texts_at(tx, *whose, numbers))
        # One that is gone gets a vector too, so that it is not looked for again.
        made = await encode_texts(encoder, [texts.get(one, "") for one in numbers], names)
        return {number: row.tobytes() for number, row in zip(numbers, made, strict=True)}

    async def retire(self, whose: Whose, encoder: str) -> None:
        """Remove the vectors of former encoders, once all texts of a shelf have new ones."""
        there = await self._database.read(lambda tx: folding.encoders_of(tx, *whose))
        for name in there.keys() - {encoder}:
            await self._database.write(lambda tx, name=name: folding.drop_encoded(tx, *whose, name))
