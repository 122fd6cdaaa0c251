"""Turns that were under way when a process ended abnormally, so that none ends it for ever.

While a turn is under way, a file beside the database says so. It is mapped into memory: what is
written there outlives the process, whatever ends it, and costs no system call. The next process
counts what it finds. Workers that share a database find out by the lanes of the dead. A turn that
was counted goes on alone among those that were, so that the next end points to one.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import mmap
import os
from collections.abc import Callable
from pathlib import Path

from asterism.errors import StoreError
from asterism.private import private
from asterism.store import crashes
from asterism.store.crashes import Crash
from asterism.store.database import Connection, Database

_log = logging.getLogger(__name__)
MARKS = "asterism.turns"
"""The file in the data directory."""
_SIZE = 64
_EXECUTING, _WAITING, _FREE = b"x"[0], b"w"[0], 0
_PATIENCE = 30.0
"""Seconds that a turn waits for another one to work alone: that one may wait for this one."""
_IN_ALL = 5
"""How many times as many ends are counted in all, where a turn gets further or only waits."""


class Marks:
    """What the turns of this process do now: a file of records, each with a turn and a letter."""

    def __init__(self, path: Path, turns: int) -> None:
        """Make the file anew, with room for so many turns."""
        self._path = path
        fd = private(str(path), os.O_RDWR | os.O_CREAT)
        try:
            os.ftruncate(fd, 0)
            os.write(fd, bytes(turns * _SIZE))  # written, so that there is room on the disk
            self._records = mmap.mmap(fd, turns * _SIZE)
        finally:
            os.close(fd)
        self._free = list(range(0, turns * _SIZE, _SIZE))

    @staticmethod
    def read(path: Path) -> list[tuple[str, bool]]:
        """Return the turns that a former process was at, and whether it was executing them."""
        try:
            text = path.read_bytes()
        except OSError:
            return []
        records = [text[place : place + _SIZE] for place in range(0, len(text), _SIZE)]
        return [
            (record[1:].rstrip(b"\0").decode("ascii", "replace"), record[0] == _EXECUTING)
            for record in records
            if record[0] != _FREE
        ]

    def put(self, turn_id: str) -> int | None:
        """Note that a turn is executed; return its place, or None if there is no room."""
        text = turn_id.encode()
        if not self._free or len(text) >= _SIZE:
            return None
        place = self._free.pop()
        self._records[place + 1 : place + _SIZE] = text.ljust(_SIZE - 1, b"\0")
        self._records[place] = _EXECUTING
        return place

    def note(self, place: int, *, executing: bool) -> None:
        """Note whether a turn is executed, or waits for a model."""
        self._records[place] = _EXECUTING if executing else _WAITING

    def take_out(self, place: int) -> None:
        """Note that a turn is not under way any more."""
        self._records[place] = _FREE
        self._free.append(place)

    def close(self) -> None:
        """Take the file away: the process ends as it should."""
        self._records.close()
        self._path.unlink(missing_ok=True)


class Crashes:
    """Notes what turns do, counts abnormal ends, and knows which turns are not tried again."""

    def __init__(self, database: Database, most: Callable[[], int]) -> None:
        """Make it; `most` returns how often a process may end with the same turn under way."""
        self._database = database
        self._most = most
        self._marks: Marks | None = None
        self._turns: dict[str, str] = {}
        """The turns under way, by agent."""
        self._places: dict[str, int] = {}
        """Where the turns under way are noted, by agent."""
        self._known: dict[str, Crash] = {}
        """By turn, how often it was under way at an abnormal end."""
        self._doubtful: dict[str, str] = {}
        """By agent, the turn under way that was counted before."""
        self._alone = asyncio.Lock()
        self._holder: str | None = None
        self._notes: dict[str, asyncio.Task[None]] = {}

    async def start(self, path: Path | None, turns: int) -> None:
        """Count what the former process was at, and note in a file what this one does.

        Args:
            path: The file; None: other processes take over from this one by its lanes.
            turns: How many turns may be under way at once.
        """
        if path is None:
            return
        left = Marks.read(path)
        # Made anew first: an end that is not counted is better than one that is counted twice.
        try:
            self._marks = Marks(path, turns)
        except OSError as error:
            _log.warning("turns that end the process cannot be told from others: %s", error)
        if left:
            ids = ", ".join(turn_id for turn_id, _ in left)
            _log.warning("the last process ended abnormally; these turns were under way: %s", ids)

        async def work(tx: Connection) -> None:
            for turn_id, executing in left:
                await crashes.count(tx, turn_id, executing=executing)

        if left:
            await self._database.write(work)
        known = await self._database.read(crashes.all_crashes)
        self._known = {crash.turn_id: crash for crash in known}

    async def close(self) -> None:
        """Note that this process ends as it should."""
        marks, self._marks = self._marks, None
        self._places.clear()
        if marks is not None:
            marks.close()

    async def read(self, agent_id: str) -> None:
        """Read the crashes of an agent's turns, which other workers may have counted."""
        for crash in await self._database.read(lambda tx: crashes.crashes_of(tx, agent_id)):
            self._known[crash.turn_id] = crash

    def of(self, turn_id: str) -> Crash | None:
        """Return the crashes of a turn that is not to be tried again; None if it may be."""
        crash = self._known.get(turn_id)
        if crash is None:
            return None
        most = self._most()
        return crash if crash.ends >= most or crash.total >= most * _IN_ALL else None

    async def begin(self, agent_id: str, turn_id: str) -> None:
        """Note that a turn is taken up; one that was counted waits until it is alone."""
        if turn_id in self._known:
            if self.of(turn_id) is not None:
                return  # it is not executed
            self._doubtful[agent_id] = turn_id
            await self._hold(agent_id)
        self._turns[agent_id] = turn_id
        if self._marks is not None:
            place = self._marks.put(turn_id)
            if place is not None:
                self._places[agent_id] = place

    def wait(self, agent_id: str) -> None:
        """Note that the turn of an agent waits for a model from now on."""
        place = self._places.get(agent_id)
        if self._marks is not None and place is not None:
            self._marks.note(place, executing=False)
        if agent_id in self._doubtful:
            turn_id = self._doubtful[agent_id]
            self._let_go(agent_id)
            if self._marks is None:
                note = self._note(turn_id, executing=False)
                self._notes[agent_id] = asyncio.ensure_future(note)

    async def go_on(self, agent_id: str) -> None:
        """Note that the turn of an agent has heard from its model."""
        if agent_id in self._doubtful:
            await self._hold(agent_id)
        place = self._places.get(agent_id)
        if self._marks is not None and place is not None:
            self._marks.note(place, executing=True)

    async def count(self, agent_id: str) -> None:
        """Count that the turn of an agent ends this process, which is about to stop."""
        turn_id = self._turns.get(agent_id)
        if turn_id is not None:
            with contextlib.suppress(StoreError):
                await self._database.write(lambda tx: crashes.count(tx, turn_id, executing=True))

    async def end(self, agent_id: str, turn_id: str | None) -> None:
        """Note that the turn of an agent is not under way any more.

        `turn_id` is that of a turn that has ended, or waits for a person.
        """
        self._turns.pop(agent_id, None)
        place = self._places.pop(agent_id, None)
        if self._marks is not None and place is not None:
            self._marks.take_out(place)
        doubtful = self._doubtful.pop(agent_id, None)
        if doubtful is not None:
            self._let_go(agent_id)
            if turn_id is None and self._marks is None:
                await self._note(doubtful, executing=False)
        if turn_id is not None and self._known.pop(turn_id, None) is not None:
            with contextlib.suppress(StoreError):  # a turn that has ended counts for nothing
                await self._database.write(lambda tx: crashes.forget(tx, turn_id))

    async def _hold(self, agent_id: str) -> None:
        """Wait until no other turn that was counted is executed, and note that this one is."""
        if self._holder != agent_id:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_PATIENCE):
                    await self._alone.acquire()
                    self._holder = agent_id
        if self._marks is None:
            if (note := self._notes.pop(agent_id, None)) is not None:
                await note
            await self._note(self._doubtful[agent_id], executing=True)

    def _let_go(self, agent_id: str) -> None:
        if self._holder == agent_id:
            self._holder = None
            self._alone.release()

    async def _note(self, turn_id: str, *, executing: bool) -> None:
        # The next end of the process is judged by it; the turn itself does not depend on it.
        with contextlib.suppress(StoreError):
            await self._database.write(
                lambda tx: crashes.note_executing(tx, turn_id, executing=executing)
            )
