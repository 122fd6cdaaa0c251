"""Going through the chains of the audit log: is every event as it was written, and in its place?"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, TypeVar

import orjson

from asterism.errors import StoreError, StoreUnavailable
from asterism.store.database import Connection, Database, Row
from asterism.store.events import heads
from asterism.types.events import ANCHORED, NOTHING, Flaw, Head, Verified, is_home

T = TypeVar("T")

_BATCH = 5_000
_MOST_FLAWS = 20
_COLUMNS = "number, at, kind, actor, agent_id, turn_id, body, salt, digest, hash"
_UNREADABLE = (UnicodeDecodeError, StoreError)

Anchors = dict[str, dict[int, str]]
"""By chain, the hashes that it had at some lengths."""


@dataclass(slots=True)
class _Walk:
    """Where the walk along one chain stands."""

    chain: str
    flaws: list[Flaw]
    anchored: dict[int, str]
    """Hashes of this chain that others know."""
    known: Anchors
    """Takes in what this chain says of others."""
    number: int = 0
    hash: bytes = NOTHING
    events: int = 0
    forgotten: int = 0
    noted: int = field(default=0)

    def flaw(self, number: int | None, what: str) -> None:
        """Note what is wrong; of many things in one chain, the first ones."""
        self.noted += 1
        if self.noted <= _MOST_FLAWS:
            self.flaws.append(Flaw(self.chain, number, what))

    def take(self, rows: list[Row]) -> None:
        """Walk on over rows as they are stored."""
        chain, before, expected = self.chain, self.hash, self.number
        gathers, anchored = is_home(chain), self.anchored
        for row in rows:
            number, at, kind, actor, agent_id, turn_id, body, salt, digest, own = row
            expected += 1
            if number != expected:
                self._gap(expected, number)
                expected = number
            try:
                if body is None or salt is None:
                    self.forgotten += 1
                    if body is not salt:
                        self.flaw(number, "its body or its salt is gone, and not both of them")
                elif sha256(salt + body).digest() != digest:
                    self.flaw(number, "its body is not the one that was written")
                facts = orjson.dumps((chain, number, at, kind, actor, agent_id, turn_id))
                if sha256(before + digest + facts).digest() != own:
                    self.flaw(number, "it does not follow from the event before it")
                if number in anchored and anchored.pop(number) != own.hex():
                    self.flaw(number, "it is not the one that the home's chain knows")
                before = own
            except (TypeError, AttributeError):  # not even of the types that were written
                self.flaw(number, "it cannot be read as it was written")
            if gathers and kind == ANCHORED and body is not None:
                self._gather(number, body)
        self.hash, self.number = before, expected
        self.events += len(rows)

    def _gap(self, expected: int, number: Any) -> None:
        if not isinstance(number, int) or number < expected:
            self.flaw(number if isinstance(number, int) else None, "it is not in its place")
        elif number == expected + 1:
            self.flaw(expected, "it is missing")
        else:
            self.flaw(expected, f"it is missing, and so are those up to {number - 1}")

    def _gather(self, number: int, body: bytes) -> None:
        try:
            for chain, (length, known) in orjson.loads(body)["heads"].items():
                self.known.setdefault(chain, {})[length] = known
        except (ValueError, KeyError, TypeError, AttributeError):
            self.flaw(number, "it does not say how far other chains had come")

    def end(self, head: Head | None) -> None:
        """Compare the end of the walk with where the chain's head says that it is."""
        if head is None:
            self.flaw(None, "events are there, and nothing says how far the chain goes")
        elif head.length != self.number:
            there = f"{head.length:,} events were written, and it ends after {self.number:,}"
            self.flaw(self.number, there)
        elif head.hash != self.hash:
            self.flaw(self.number, "it is not the last event that was written")
        for number in sorted(self.anchored):
            if number > self.number:
                self.flaw(number, "the home's chain knows it, and it is missing")


async def verify(
    database: Database, progress: Callable[[int], None] | None = None, *, batch: int = _BATCH
) -> Verified:
    """Go through all chains of a database, in batches; events may be appended meanwhile."""
    found = Verified()
    known: Anchors = {}
    names = await _names(database.read, found)
    # What the home's chain knows of the others has to be read before them.
    for chain in sorted(names, key=lambda one: (not is_home(one), one)):
        walk = _Walk(chain, found.flaws, known.pop(chain, {}), known)
        head = await _follow(database.read, walk, batch, found, progress)
        found.events += walk.events
        found.forgotten += walk.forgotten
        if head is not None:
            found.heads.append(head)
    for chain in sorted(known):
        found.flaws.append(Flaw(chain, None, "the home's chain knows it, and all of it is missing"))
    return found


async def _names(
    read: Callable[[Callable[[Connection], Awaitable[Any]]], Awaitable[Any]], found: Verified
) -> set[str]:
    """Return all chains: those with a head, and those with events."""
    names: set[str] = set()

    async def next_name(tx: Connection) -> str | None:
        row = await tx.one(
            "SELECT MIN(chain) FROM events WHERE chain > ?", (max(seen, default=""),)
        )
        return row[0] if row else None

    seen: list[str] = []
    try:
        names.update(one.chain for one in await read(heads))
        while (name := await read(next_name)) is not None:
            seen.append(name)
    except StoreUnavailable:
        raise
    except _UNREADABLE as error:
        found.flaws.append(Flaw("", None, f"the names of the chains cannot be read ({error})"))
    return names | set(seen)


async def _follow(
    read: Callable[[Callable[[Connection], Awaitable[Any]]], Awaitable[Any]],
    walk: _Walk,
    batch: int,
    found: Verified,
    progress: Callable[[int], None] | None,
) -> Head | None:
    """Walk along one chain to its end, and return its head."""
    limit = batch

    async def step(tx: Connection) -> tuple[bool, Head | None]:
        # The first step takes what has a number that nothing should have, too.
        such, values = ("", ()) if walk.events == 0 else (" AND number > ?", (walk.number,))
        rows = await tx.all(
            f"SELECT {_COLUMNS} FROM events WHERE chain = ?{such} ORDER BY number LIMIT ?",
            (walk.chain, *values, limit),
        )
        row = await tx.one("SELECT id, length, hash FROM chains WHERE id = ?", (walk.chain,))
        # All is read before anything is noted: a step that fails is tried again.
        walk.take(rows)
        return len(rows) < limit, Head(*row) if row else None

    while True:
        try:
            ended, head = await read(step)
        except StoreUnavailable:
            raise
        except _UNREADABLE as error:
            if limit > 1:
                limit = max(1, limit // 10)
                continue
            walk.flaw(walk.number + 1, f"it cannot be read ({error})")
            if not await _skip(read, walk):
                return None
            continue
        limit = batch if limit == batch else min(batch, limit * 10)
        if progress is not None:
            progress(found.events + walk.events)
        if ended:
            walk.end(head)
            return head


async def _skip(
    read: Callable[[Callable[[Connection], Awaitable[Any]]], Awaitable[Any]], walk: _Walk
) -> bool:
    """Step over an event that cannot be read; tell whether that was possible."""

    async def over(tx: Connection) -> tuple[int, bytes] | None:
        row = await tx.one(
            "SELECT number, hash FROM events WHERE chain = ? AND number > ?"
            " ORDER BY number LIMIT 1",
            (walk.chain, walk.number),
        )
        return (int(row[0]), bytes(row[1])) if row else None

    try:
        passed = await read(over)
    except (*_UNREADABLE, TypeError, ValueError):
        return False
    if passed is None:
        return False
    walk.number, walk.hash = passed
    walk.events += 1
    return True
