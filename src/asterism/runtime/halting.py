"""Halting: whether a constellation stands still, asked before every turn and cheap to ask."""

from __future__ import annotations

import time

from asterism.store import halts
from asterism.store.database import Connection, Database
from asterism.types.halts import Halt

_LOOK_AGAIN = 2.0
"""Seconds after which workers that share a database look again: a notice can be lost."""


class Halting:
    """Knows of halts by notices, and reads the store only when it may not know."""

    def __init__(self, database: Database, constellation: str) -> None:
        self._database = database
        self._constellation = constellation
        self._halt: Halt | None = None
        self._known = False
        self._looked = 0.0

    async def start(self) -> None:
        """Begin to listen."""
        await self._database.listen(halts.TOPIC, self._heard)

    def _heard(self, constellation: str) -> None:
        if constellation == self._constellation:
            self._known = False

    async def stands(self) -> Halt | None:
        """Return the halt that keeps turns from being taken, if there is one."""
        late = self._database.distributed and time.monotonic() - self._looked > _LOOK_AGAIN
        if self._known and self._halt is None and not late:
            return None
        self._known, self._looked = True, time.monotonic()
        self._halt = await self._database.read(self._read)
        return self._halt

    async def _read(self, tx: Connection) -> Halt | None:
        return await halts.current(tx, self._constellation)
