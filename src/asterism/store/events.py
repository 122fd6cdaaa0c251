"""Events of the audit log: each holds the hash of the event before it."""

from __future__ import annotations

import json
import os
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import field
from hashlib import sha256
from typing import Any, TypeVar, cast

import orjson

from asterism.errors import StoreError, StoreUnavailable
from asterism.records import dataclass
from asterism.store.database import Connection, Database, Row
from asterism.telemetry.redaction import redact
from asterism.times import Moment
from asterism.types.turns import plain

NOTHING = bytes(32)
"""What the first event of a chain has before it."""
ANCHORED = "audit.anchored"
"""The kind of event that holds how far other chains had come."""
EMPTIED = "audit.emptied"
"""The kind of event that names the events whose bodies were forgotten: `emptied` has, by chain, the
first and the last number of each run of them."""
_HOME = "home:"
_MAX_BODY_BYTES = 16_384
_MAX_TEXT_LENGTH = 2_000


@dataclass(frozen=True, slots=True)
class Event:
    """Something that was done or refused, before it has its place in a chain."""

    kind: str
    """A thing and what became of it, such as `call.denied`."""
    actor: str
    """Who did it, such as `owner`, `agent:aria` or `person:anna`."""
    at: int
    body: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """What else is to be known, as JSON: `what`, `verdict`, `reason`, and `because`, a list of
    `{what, from, trust}` that leads from what was read to what was decided."""
    agent_id: str | None = None
    turn_id: str | None = None


@dataclass(frozen=True, slots=True)
class RecordedEvent:
    """An event in its place."""

    chain: str
    number: int
    at_ms: int
    kind: str
    actor: str
    agent_id: str | None
    turn_id: str | None
    body: dict[str, Any] | None
    """None: forgotten."""
    salt: bytes | None
    digest: bytes
    hash: bytes

    at = Moment()


@dataclass(frozen=True, slots=True)
class Flaw:
    """Where a chain is not as it was written."""

    chain: str
    number: int | None
    what: str


@dataclass(frozen=True, slots=True)
class Head:
    """How far a chain has come."""

    chain: str
    length: int
    hash: bytes


@dataclass(slots=True)
class Verified:
    """What came of going through all chains."""

    events: int = 0
    forgotten: int = 0
    """Events whose body is gone; that they were there, and when, is not."""
    flaws: list[Flaw] = field(default_factory=list[Flaw])
    heads: list[Head] = field(default_factory=list[Head])

    @property
    def sound(self) -> bool:
        """Whether every event is as it was written."""
        return not self.flaws


def home_chain(constellation: str) -> str:
    """Return the chain of events about a whole constellation; the chain of an agent is its id."""
    return f"{_HOME}{constellation}"


def is_home(chain: str) -> bool:
    """Tell whether a chain is that of a constellation."""
    return chain.startswith(_HOME)


def body_bytes(body: Mapping[str, Any]) -> bytes:
    """Return a body as it is stored: JSON in which very long texts are cut."""
    encoded = _json(body)
    return encoded if len(encoded) <= _MAX_BODY_BYTES else _json(_cut(body))


def _json(body: object) -> bytes:
    try:
        return orjson.dumps(body, default=str)
    except TypeError:  # a lone surrogate, which is not UTF-8, or a key that is no text
        text = json.dumps(body, default=str, separators=(",", ":"), ensure_ascii=False)
        return text.encode("utf-8", "replace")


def _cut(value: object) -> object:
    if isinstance(value, str):
        if len(value) <= _MAX_TEXT_LENGTH:
            return value
        return f"{value[:_MAX_TEXT_LENGTH]}… ({len(value):,} characters)"
    if isinstance(value, Mapping):
        named = cast("Mapping[object, object]", value)
        return {str(name): _cut(item) for name, item in list(named.items())[:_MAX_CUT_ITEMS]}
    if isinstance(value, list | tuple):
        return [_cut(item) for item in cast("Sequence[object]", value)[:_MAX_CUT_ITEMS]]
    return value


_MAX_CUT_ITEMS = 1_000


def digest_of(salt: bytes, body: bytes) -> bytes:
    """Return the hash of a body for the chain; without the salt, it reveals nothing."""
    return sha256(salt + body).digest()


def hash_of(before: bytes, digest: bytes, facts: Sequence[str | int | None]) -> bytes:
    """Return the hash of an event.

    Args:
        before: The hash of the event before it.
        digest: What stands for its body.
        facts: Chain, number, at, kind, actor, agent and turn, in this order.
    """
    # JSON says where each fact ends, and tells a text from a number and from nothing.
    return sha256(before + digest + orjson.dumps(facts)).digest()


@dataclass(frozen=True, slots=True)
class Figures:
    """How much there is and how much waits, as the store knows it."""

    agents: int = 0
    inbox: int = 0
    """Messages and decisions that wait for their turn."""
    oldest: int | None = None
    """When the one that has waited longest came in."""
    approvals: int = 0
    notices: int = 0
    deliveries: dict[str, int] = field(default_factory=dict[str, int])
    """What is not sent, by state."""
    schedules: int = 0
    money: dict[str, int] = field(default_factory=dict[str, int])
    """Nano-dollars of all months: `spent`, `presumed` (perhaps billed) and `reserved`."""


_SALT = 16
_COLUMNS = "chain, number, at, kind, actor, agent_id, turn_id, body, salt, digest, hash"
_ANCHORS_AT_ONCE = 200


async def append(tx: Connection, chain: str, events: Sequence[Event], *, place: str = "") -> None:
    """Append events to a chain, without any secret that is known; three statements.

    Args:
        tx: A transaction.
        chain: An agent's id, or that of a home.
        events: In their order.
        place: What stands before the names of the tables: nothing, or a snapshot's name and a dot.
    """
    if not events:
        return
    take = f"UPDATE {place}chains SET length = length + ? WHERE id = ? RETURNING length, hash"
    # The update locks the head, so that whoever else appends to this chain waits.
    head = await tx.one(take, (len(events), chain))
    if head is None:
        await tx.run(
            f"INSERT INTO {place}chains (id, length, hash) VALUES (?, 0, ?) ON CONFLICT DO NOTHING",
            (chain, NOTHING),
        )
        head = await tx.one(take, (len(events), chain))
        assert head is not None
    rows = _linked(chain, int(head[0]) - len(events), bytes(head[1]), events)
    values = ", ".join("?" * len(rows[0]))
    await tx.run_many(f"INSERT INTO {place}events ({_COLUMNS}) VALUES ({values})", rows)
    await tx.run(f"UPDATE {place}chains SET hash = ? WHERE id = ?", (rows[-1][10], chain))


def _linked(chain: str, length: int, before: bytes, events: Sequence[Event]) -> list[Row]:
    rows: list[Row] = []
    salts = os.urandom(_SALT * len(events))
    for number, event in enumerate(events, length + 1):
        at = (number - length - 1) * _SALT
        salt = salts[at : at + _SALT]
        body = redact(body_bytes(event.body).decode()).encode()
        digest = digest_of(salt, body)
        actor = plain(redact(event.actor))
        about = (event.agent_id or None, event.turn_id or None)
        facts = (chain, number, event.at, event.kind, actor, *about)
        before = hash_of(before, digest, facts)
        rows.append((*facts, body, salt, digest, before))
    return rows


def _recorded(row: Row) -> RecordedEvent:
    chain, number, at, kind, actor, agent_id, turn_id, body, salt, digest, own = row
    return RecordedEvent(
        chain,
        number,
        at,
        kind,
        actor,
        agent_id,
        turn_id,
        orjson.loads(body) if body is not None else None,
        bytes(salt) if salt is not None else None,
        bytes(digest),
        bytes(own),
    )


async def page(
    tx: Connection,
    *,
    agent_id: str | None = None,
    kind: str | None = None,
    actor: str | None = None,
    turn_id: str | None = None,
    since: int | None = None,
    until: int | None = None,
    limit: int = 50,
    before: tuple[int, str, int] | None = None,
) -> list[RecordedEvent]:
    """Return events of a constellation, the newest first.

    Args:
        tx: A transaction.
        agent_id: Only those in an agent's chain, or about it.
        kind: Only those of a kind, such as `call.denied`, or all of a thing, such as `call`.
        actor: Only what this one did.
        turn_id: Only what belongs to a turn.
        since: The first moment in milliseconds.
        until: The last one.
        limit: How many at most.
        before: Time, chain and number of the last one of the page before.
    """
    home = home_chain(tx.constellation)
    if agent_id is None:
        such = ["(chain = ? OR chain IN (SELECT id FROM agents WHERE constellation = ?))"]
        values: list[object] = [home, tx.constellation]
    else:
        such = ["(chain = ? OR (chain = ? AND agent_id = ?))"]
        values = [agent_id, home, agent_id]
    for column, wanted in (("actor", actor), ("turn_id", turn_id)):
        if wanted is not None:
            such.append(f"{column} = ?")
            values.append(wanted)
    if kind is not None:
        such.append("(kind = ? OR SUBSTR(kind, 1, ?) = ?)")
        values += [kind, len(kind) + 1, f"{kind}."]
    if since is not None:
        such.append("at >= ?")
        values.append(since)
    if until is not None:
        such.append("at <= ?")
        values.append(until)
    if before is not None:
        such.append("(at, chain, number) < (?, ?, ?)")
        values += before
    rows = await tx.all(
        f"SELECT {_COLUMNS} FROM events WHERE {' AND '.join(such)}"
        " ORDER BY at DESC, chain DESC, number DESC LIMIT ?",
        (*values, limit),
    )
    return [_recorded(row) for row in rows]


async def get(tx: Connection, chain: str, number: int) -> RecordedEvent | None:
    """Return one event of this constellation."""
    row = await tx.one(
        f"SELECT {_COLUMNS} FROM events WHERE chain = ? AND number = ? AND (chain = ?"
        " OR EXISTS (SELECT 1 FROM agents x WHERE x.id = chain AND x.constellation = ?))",
        (chain, number, home_chain(tx.constellation), tx.constellation),
    )
    return _recorded(row) if row else None


async def following(tx: Connection, chain: str, after: int, limit: int) -> list[Row]:
    """Return rows of a chain in its order, as they are stored."""
    return await tx.all(
        f"SELECT {_COLUMNS} FROM events WHERE chain = ? AND number > ? ORDER BY number LIMIT ?",
        (chain, after, limit),
    )


async def heads(tx: Connection) -> list[Head]:
    """Return the heads of all chains in the database."""
    rows = await tx.all("SELECT id, length, hash FROM chains ORDER BY id")
    return [Head(*row) for row in rows]


async def chains_of(tx: Connection) -> list[str]:
    """Return the chains of a constellation, its own first."""
    home = home_chain(tx.constellation)
    rows = await tx.all(
        "SELECT id FROM chains WHERE id IN (SELECT id FROM agents WHERE constellation = ?)"
        " ORDER BY id",
        (tx.constellation,),
    )
    return [home, *(row[0] for row in rows)]


async def anchor(tx: Connection, at: int) -> int:
    """Write into the home's chain how far the others have come since; return how many had."""
    rows = await tx.all(
        "SELECT c.id, c.length, c.hash FROM chains c LEFT JOIN anchors a ON a.chain = c.id"
        " WHERE (a.length IS NULL OR c.length > a.length)"
        " AND c.id IN (SELECT id FROM agents WHERE constellation = ?) ORDER BY c.id",
        (tx.constellation,),
    )
    home = home_chain(tx.constellation)
    for first in range(0, len(rows), _ANCHORS_AT_ONCE):
        some = rows[first : first + _ANCHORS_AT_ONCE]
        heads = {chain: [length, bytes(own).hex()] for chain, length, own in some}
        body = {"what": f"heads of {len(heads)} chain{'s' * (len(heads) != 1)}", "heads": heads}
        await append(tx, home, [Event(ANCHORED, "asterism", at, body)])
        await tx.run_many(
            "INSERT INTO anchors (chain, length) VALUES (?, ?)"
            " ON CONFLICT (chain) DO UPDATE SET length = excluded.length",
            [(chain, length) for chain, length, _ in some],
        )
    return len(rows)


T = TypeVar("T")

_BATCH = 5_000
_MAX_FLAWS = 20
_CHAIN_COLUMNS = "number, at, kind, actor, agent_id, turn_id, body, salt, digest, hash"
_OF_THE_LOG = (ANCHORED, EMPTIED)
_UNREADABLE = (UnicodeDecodeError, StoreError)

Anchors = dict[str, dict[int, str]]
"""By chain, the hashes that it had at some lengths."""
Spans = list[tuple[int, int]]
"""First and last number of runs of events."""


@dataclass(slots=True)
class _Walk:
    """Where the walk along one chain stands."""

    chain: str
    flaws: list[Flaw]
    anchored: dict[int, str]
    """Hashes of this chain that others know."""
    known: Anchors
    """Takes in what this chain says of others."""
    named: dict[str, Spans]
    """Takes in which bodies this chain says were forgotten, by chain."""
    number: int = 0
    hash: bytes = NOTHING
    events: int = 0
    forgotten: int = 0
    emptied: Spans = field(default_factory=Spans)
    """Events without a body."""
    about: set[str | None] = field(default_factory=set[str | None])
    """The agents that its events are about."""
    noted: int = field(default=0)

    def flaw(self, number: int | None, what: str) -> None:
        """Note a flaw; only the first flaws of each chain are kept."""
        self.noted += 1
        if self.noted <= _MAX_FLAWS:
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
                    self._empty(number)
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
            if gathers and kind in _OF_THE_LOG and body is not None:
                (self._gather if kind == ANCHORED else self._gather_emptied)(number, body)
        self.about.update(row[4] for row in rows)
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

    def _empty(self, number: int) -> None:
        self.forgotten += 1
        if self.emptied and self.emptied[-1][1] == number - 1:
            self.emptied[-1] = (self.emptied[-1][0], number)
        else:
            self.emptied.append((number, number))

    def _gather_emptied(self, number: int, body: bytes) -> None:
        try:
            for chain, spans in orjson.loads(body)["emptied"].items():
                self.named.setdefault(chain, []).extend(
                    (int(first), int(last)) for first, last in spans
                )
        except (ValueError, KeyError, TypeError, AttributeError):
            self.flaw(number, "it does not say which bodies were forgotten")

    def unnamed(self) -> Iterator[int]:
        """Yield the events whose body is gone although no event says that it was forgotten."""
        named = iter(sorted(self.named.get(self.chain, ())))
        span = next(named, None)
        for first, last in sorted(self.emptied):
            number = first
            while number <= last:
                while span is not None and span[1] < number:
                    span = next(named, None)
                if span is not None and span[0] <= number:
                    number = span[1] + 1
                else:
                    yield number
                    number += 1

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
    database: Database,
    progress: Callable[[int], None] | None = None,
    *,
    batch: int = _BATCH,
    own: bool = False,
) -> Verified:
    """Go through all chains of a database, in batches; events may be appended meanwhile.

    With `own`, only through those of the constellation.
    """
    result = Verified()
    known: Anchors = {}
    named: dict[str, Spans] = {}
    walks: list[tuple[_Walk, _End]] = []
    # First, since an agent that is made meanwhile has its event in the same transaction.
    there = await _there(database, result)
    names = await _names(database.read, result)
    if own:
        chains = set(await database.read(chains_of))
        ids = set(await database.read(_ids_of_agents))
        names &= chains
        there = {agent_id: turns for agent_id, turns in there.items() if agent_id in ids}
    # What the home's chain knows of the others has to be read before them.
    for chain in sorted(names, key=lambda name: (not is_home(name), name)):
        walk = _Walk(chain, result.flaws, known.pop(chain, {}), known, named)
        end = await _follow(database.read, walk, batch, result, progress)
        result.events += walk.events
        walks.append((walk, end))
    walks = await _read_on(database, walks, batch, result)
    for walk, end in walks:
        result.forgotten += walk.forgotten
        if end.reached:
            walk.end(end.head)
        if end.head is not None:
            result.heads.append(end.head)
        for number in walk.unnamed():
            walk.flaw(number, "its body is gone, and no forgetting has named it")
    for chain in sorted(known):
        result.flaws.append(
            Flaw(chain, None, "the home's chain knows it, and all of it is missing")
        )
    # A chain that cannot be read is told as such; what it says is not missing.
    if all(end.reached for _, end in walks):
        # What is told of a chain above is told once.
        about: set[str | None] = {flaw.chain for flaw in result.flaws}
        about.update(*(walk.about for walk, _ in walks))
        result.flaws += _without_events(there, about)
    return result


async def _ids_of_agents(tx: Connection) -> list[str]:
    rows = await tx.all("SELECT id FROM agents WHERE constellation = ?", (tx.constellation,))
    return [row[0] for row in rows]


async def _there(database: Database, result: Verified) -> dict[str, int]:
    """Return the agents that there are, or of which there are turns, each with how many."""

    async def read(tx: Connection) -> dict[str, int]:
        agents = await tx.all("SELECT id FROM agents")
        turns = await tx.all("SELECT agent_id, COUNT(*) FROM turns GROUP BY agent_id")
        return {row[0]: 0 for row in agents} | {row[0]: int(row[1]) for row in turns}

    try:
        return await database.read(read)
    except StoreUnavailable:
        raise
    except _UNREADABLE as error:
        result.flaws.append(Flaw("", None, f"the agents and turns cannot be read ({error})"))
        return {}


def _without_events(there: dict[str, int], about: Collection[str | None]) -> Iterator[Flaw]:
    """Tell of agents that no event is about: one is written when an agent is made."""
    silent = {agent_id: turns for agent_id, turns in there.items() if agent_id not in about}
    if silent and silent.keys() == there.keys():
        turns = sum(silent.values())
        problem = (
            f"there are {len(silent):,} agents and {turns:,} turns, and no event is about them"
        )
        yield Flaw("", None, problem)
        return
    busy = [(agent_id, turns) for agent_id, turns in sorted(silent.items()) if turns]
    for agent_id, turns in busy[:_MAX_FLAWS]:
        yield Flaw(agent_id, None, f"there are {turns:,} turns of it, and no event is about it")


@dataclass(frozen=True, slots=True)
class _End:
    """Where a walk has ended."""

    reached: bool
    """Whether it got to the end of the chain."""
    head: Head | None


async def _read_on(
    database: Database, walks: list[tuple[_Walk, _End]], batch: int, result: Verified
) -> list[tuple[_Walk, _End]]:
    """Read what was appended to the homes' chains meanwhile, if a body is gone that none names.

    It may have been forgotten since they were read; what names it is in the same transaction.
    """
    if not any(next(walk.unnamed(), None) for walk, _ in walks):
        return walks
    ends: list[tuple[_Walk, _End]] = []
    for walk, end in walks:
        if is_home(walk.chain) and end.reached:
            before, walk.known = walk.events, {}  # the other chains were compared before
            end = await _follow(database.read, walk, batch, result, None)  # noqa: PLW2901
            result.events += walk.events - before
        ends.append((walk, end))
    return ends


async def _names(
    read: Callable[[Callable[[Connection], Awaitable[Any]]], Awaitable[Any]], result: Verified
) -> set[str]:
    """Return all chains that have a head or events."""
    names: set[str] = set()

    async def next_name(tx: Connection) -> str | None:
        row = await tx.one(
            "SELECT MIN(chain) FROM events WHERE chain > ?", (max(seen, default=""),)
        )
        return row[0] if row else None

    seen: list[str] = []
    try:
        names.update(head.chain for head in await read(heads))
        while (name := await read(next_name)) is not None:
            seen.append(name)
    except StoreUnavailable:
        raise
    except _UNREADABLE as error:
        result.flaws.append(Flaw("", None, f"the names of the chains cannot be read ({error})"))
    return names | set(seen)


async def _follow(
    read: Callable[[Callable[[Connection], Awaitable[Any]]], Awaitable[Any]],
    walk: _Walk,
    batch: int,
    result: Verified,
    progress: Callable[[int], None] | None,
) -> _End:
    """Walk along one chain to its end, and return it."""
    limit = batch

    async def step(tx: Connection) -> tuple[bool, Head | None]:
        # The first step takes what has a number that nothing should have, too.
        such, values = ("", ()) if walk.events == 0 else (" AND number > ?", (walk.number,))
        rows = await tx.all(
            f"SELECT {_CHAIN_COLUMNS} FROM events WHERE chain = ?{such} ORDER BY number LIMIT ?",
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
                return _End(reached=False, head=None)
            continue
        limit = batch if limit == batch else min(batch, limit * 10)
        if progress is not None:
            progress(result.events + walk.events)
        if ended:
            return _End(reached=True, head=head)


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


_OURS = "agent_id IN (SELECT id FROM agents WHERE constellation = ?)"


async def read(tx: Connection) -> Figures:
    """Return the figures of a constellation."""
    own = (tx.constellation,)

    async def one(sql: str) -> tuple[Any, ...]:
        return await tx.one(sql, own) or (0, None)

    agents = await one("SELECT COUNT(*) FROM agents WHERE constellation = ? AND deleted_at IS NULL")
    inbox = await one(f"SELECT COUNT(*), MIN(at) FROM inbox WHERE {_OURS}")
    approvals = await one(
        "SELECT COUNT(*) FROM approvals JOIN turns ON turns.id = approvals.turn_id"
        " JOIN agents ON agents.id = approvals.agent_id WHERE agents.constellation = ?"
        " AND approvals.decided_at IS NULL AND turns.ended_at IS NULL"
    )
    unseen = await tx.one(
        f"SELECT COUNT(*) FROM notices WHERE seen_at IS NULL AND (agent_id = ? OR {_OURS})",
        (home_chain(tx.constellation), *own),
    )
    notices = unseen or (0,)
    unsent = await tx.all(
        f"SELECT state, COUNT(*) FROM outbox WHERE state <> 'sent' AND {_OURS} GROUP BY state",
        own,
    )
    schedules = await one(f"SELECT COUNT(*) FROM schedules WHERE {_OURS}")
    # A month's period is written as 2026-11; those of days are parts of it.
    money = await one(
        "SELECT SUM(spent), SUM(presumed), SUM(reserved) FROM totals"
        " WHERE constellation = ? AND scope = 'all' AND LENGTH(period) = 7"
    )
    return Figures(
        agents=int(agents[0]),
        inbox=int(inbox[0]),
        oldest=int(inbox[1]) if inbox[1] is not None else None,
        approvals=int(approvals[0]),
        notices=int(notices[0]),
        deliveries={str(state): int(count) for state, count in unsent},
        schedules=int(schedules[0]),
        money={
            state: int(amount or 0)
            for state, amount in zip(("spent", "presumed", "reserved"), money, strict=False)
        },
    )
