"""Indexing in the background: what agents say and keep is put into the index, then encoded."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING

from asterism.errors import AsterismError, StoreError
from asterism.ports import Clock, Encoder
from asterism.store.database import Database
from asterism.store.search_index import ARCHIVE, JOURNAL
from asterism.turns.lanes import Pump

if TYPE_CHECKING:
    from asterism.search.build import IndexBuilder
    from asterism.search.index import IndexKey

_QUIET = 5.0
"""Seconds in which nothing more must come before an agent's texts are looked at."""
_MANY = 256
"""Turns after which they are looked at in any case."""
_LOOK_AGAIN = 600_000
"""Milliseconds until all indexes are looked at, for what nobody has told of."""
_FIRST_REST = 60_000
_LONGEST_REST = 3_600_000

_log = logging.getLogger(__name__)


class _Due:
    """When texts are looked at, and how often more have come until then."""

    __slots__ = ("at", "times")

    def __init__(self, at: int) -> None:
        self.at = at
        self.times = 0


class Indexing:
    """Indexes and encodes what has come, when its agent has been quiet for some seconds."""

    def __init__(
        self,
        database: Database,
        constellation: str,
        clock: Clock,
        encoder: Callable[[], Encoder | None],
        *,
        quiet: float = _QUIET,
    ) -> None:
        """Make it; `encoder` returns the one that is configured, None if none is wanted."""
        self._database = database
        self._constellation = constellation
        self._clock = clock
        self._encoder = encoder
        self._quiet = int(quiet * 1000)
        self._builder: IndexBuilder | None = None
        self._at_work = asyncio.Lock()
        self._due: dict[str, _Due] = {}
        self._look_at = 0
        self._waiting: set[IndexKey] = set()
        """Indexes with texts that the encoder could not encode yet."""
        self._rest = 0
        self._rest_until = 0
        self._pump = Pump("indexing", self._work, clock)
        self.problem: str | None = None
        """Why texts are not encoded, if they are not."""

    # -- life ----------------------------------------------------------------------------------

    async def start(self) -> None:
        """Begin; what was left, or came while no process worked, is looked at after a moment."""
        self._look_at = self._clock() + self._quiet
        await self._database.listen("search_index", self.kick)
        self._pump.start()

    async def stop(self) -> None:
        """Stop; what was not done is found again at the next start."""
        await self._pump.stop()

    def kick(self, owner_id: str) -> None:
        """Note that an agent or a source has more texts; costs next to nothing."""
        due = self._due.get(owner_id)
        if due is None:
            due = self._due[owner_id] = _Due(0)
            if len(self._due) == 1:
                self._pump.kick()
        due.times += 1
        if due.times < _MANY:
            due.at = self._clock() + self._quiet
        elif due.times == _MANY:
            due.at = 0
            self._pump.kick()

    @property
    def due(self) -> frozenset[str]:
        """The agents and sources whose texts wait to be looked at."""
        return frozenset(self._due)

    def encoder_changed(self) -> None:
        """Look at all indexes, since another encoder is configured."""
        self._look_at = self._rest = self._rest_until = 0
        self._pump.kick()

    async def catch_up(self) -> None:
        """Index and encode all that there is to index and encode, now."""
        self._look_at = 0
        for due in self._due.values():
            due.at = 0
        await self._work()

    async def progress(self) -> tuple[int, int]:
        """Return how many of the indexed texts are encoded, and how many there are."""
        try:
            encoder = self._encoder()
        except AsterismError:
            encoder = None
        builder = await self._open()
        return await builder.progress(encoder.name if encoder is not None else "")

    async def check(self) -> str | None:
        """Ask the encoder for one vector; return what is wrong with it, if something is."""
        try:
            encoder = self._encoder()
            if encoder is not None:
                await encoder.encode(["Is it there?"])
        except AsterismError as error:
            return error.message
        return None

    # -- work ----------------------------------------------------------------------------------

    async def _work(self) -> int | None:
        async with self._at_work:
            keys = deque(await self._ready())
            while keys:
                index_key = keys.popleft()
                try:
                    more = await self._index(index_key)
                except BaseException:
                    self._due.setdefault(index_key[1], _Due(self._clock() + self._quiet))
                    raise
                # What has come meanwhile goes before what takes long.
                keys.extendleft(key for key in await self._ready() if key not in keys)
                if more and index_key not in keys:
                    keys.append(index_key)
        moments = [due.at for due in self._due.values()]
        if self._waiting:
            moments.append(self._rest_until)
        return min((*moments, self._look_at))

    async def _ready(self) -> list[IndexKey]:
        """Return the indexes to look at now."""
        now = self._clock()
        found: dict[IndexKey, None] = {}
        if now >= self._look_at:
            self._look_at = now + _LOOK_AGAIN
            encoder = self._usable()
            behind = await (await self._open()).outdated(encoder.name if encoder else None)
            found |= dict.fromkeys(behind)
        if self._waiting and now >= self._rest_until:
            found |= dict.fromkeys(sorted(self._waiting))
            self._waiting.clear()
        for owner_id in [owner_id for owner_id, due in self._due.items() if due.at <= now]:
            del self._due[owner_id]
            found |= {(JOURNAL, owner_id): None, (ARCHIVE, owner_id): None}
        return list(found)

    async def _index(self, index_key: IndexKey) -> bool:
        """Index an index and encode a part of it; return whether there is more to encode."""
        builder = await self._open()
        built, settled = await builder.build(index_key)
        if not settled:
            self.kick(index_key[1])
        encoder = self._usable()
        if encoder is None:
            if self.problem is not None:
                self._waiting.add(index_key)
            return False
        try:
            if (
                built or await builder.lacks_vectors(index_key, encoder.name)
            ) and await builder.encode(index_key, encoder):
                self._works()
                return True
            await builder.drop_former_vectors(index_key, encoder.name)
        except AsterismError as error:
            if isinstance(error, StoreError):
                raise
            self._lay_aside(error)
            self._waiting.add(index_key)
        return False

    async def _open(self) -> IndexBuilder:
        if self._builder is None:
            # Takes a good part of a second, which neither a start nor a turn should wait for.
            module = await asyncio.to_thread(import_module, "asterism.search.build")
            self._builder = module.IndexBuilder(self._database, self._constellation)
        assert self._builder is not None
        return self._builder

    # -- the encoder ---------------------------------------------------------------------------

    def _usable(self) -> Encoder | None:
        """Return the encoder, unless none is wanted or it rests since it could not answer."""
        if self._clock() < self._rest_until:
            return None
        try:
            encoder = self._encoder()
        except AsterismError as error:
            self._lay_aside(error)
            return None
        if encoder is None:
            self.problem = None
        return encoder

    def _lay_aside(self, error: AsterismError) -> None:
        """Leave the encoder alone for a while, and say so once."""
        self._rest = min(max(2 * self._rest, _FIRST_REST), _LONGEST_REST)
        self._rest_until = self._clock() + self._rest
        if self.problem is None:
            _log.warning(
                "Texts are not encoded for search: %s It is tried again from time to time.",
                error.message,
            )
        self.problem = error.message

    def _works(self) -> None:
        if self.problem is not None:
            _log.info("Texts are encoded for search again.")
        self.problem = None
        self._rest = 0
