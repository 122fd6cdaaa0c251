"""The seam between SQL by topic and the two drivers.

A topic function is `async def f(tx: Connection, …)`. On PostgreSQL it is awaited; on SQLite the
writer thread drives it to its end in one go, since nothing on that connection ever suspends. So the
SQL and the logic around it are written once, and a transaction costs one thread hop, not one per
statement. It follows that a topic function awaits its connection and nothing else.

Every row of somebody belongs to a constellation, and a transaction is that of one: a topic function
takes `tx.constellation` for its conditions and is not told it. `Database.for_constellation` gives
another one over the same driver.

SQL is the common subset of both engines, with `?` for values. Times are milliseconds since 1970.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Protocol, TypeVar

from asterism.errors import StoreTooNew, StoreTooOld
from asterism.records import dataclass
from asterism.types.agents import now_ms

T = TypeVar("T")

Row = tuple[Any, ...]
Values = Sequence[Any]


class Connection(Protocol):
    """A transaction under way."""

    @property
    def constellation(self) -> str:
        """The constellation of its rows. Work for all of them, such as a lane, ignores it."""
        ...

    async def run(self, sql: str, values: Values = ()) -> int:
        """Run a statement; return how many rows it changed."""
        ...

    async def run_many(self, sql: str, rows: Sequence[Values]) -> None:
        """Run a statement once per row of values."""
        ...

    async def one(self, sql: str, values: Values = ()) -> Row | None:
        """Return the first row, or None."""
        ...

    async def all(self, sql: str, values: Values = ()) -> list[Row]:
        """Return all rows."""
        ...

    def savepoint(self) -> AbstractAsyncContextManager[None]:
        """Undo what happens inside if it raises; the exception goes on."""
        ...

    async def notify(self, topic: str, payload: str) -> None:
        """Tell listeners in every process, once and only if this transaction commits."""
        ...

    async def enqueue(self, agent_id: str) -> None:
        """Queue work for a lane in this transaction; without distributed lanes, do nothing."""
        ...


Work = Callable[[Connection], Awaitable[T]]
OF_OWN_AGENT = "EXISTS (SELECT 1 FROM agents x WHERE x.id = agent_id AND x.constellation = ?)"
"""A condition on a row of an agent: the agent is of the constellation that the value names."""
MAX_VALUES = 500
"""How many values one statement is given in a list at most; of more, several statements."""


@lru_cache(1024)
def marks(count: int) -> str:
    """Return as many `?`, for a list of values such as `IN (…)`."""
    return ", ".join("?" * count)


async def end_tasks(tasks: Iterable[asyncio.Task[Any]], *, again: float = 1.0) -> None:
    """Cancel tasks that go on for ever, and wait until all have ended.

    In Python 3.11 `asyncio.wait_for` loses a cancellation that comes together with the result it
    waits for (https://github.com/python/cpython/issues/86296), and psycopg waits with it for every
    answer. So a task that has not ended after `again` seconds is cancelled once more.
    """
    left = set(tasks)
    while left:
        for task in left:
            task.cancel()
        ended, left = await asyncio.wait(left, timeout=again)
        for task in ended:
            if not task.cancelled():
                task.exception()  # nobody else asks for it


@dataclass(frozen=True, slots=True)
class Upgrade:
    """What was done to the schema of a database when it was opened."""

    before: int
    """The schema that it had."""
    after: int
    copy: str
    """Where the database is as it was before: a file, or a schema of PostgreSQL."""


class Database(Protocol):
    """An open database. Every driver raises the errors of `asterism.errors`."""

    @property
    def constellation(self) -> str:
        """The constellation that its transactions are of."""
        ...

    @property
    def distributed(self) -> bool:
        """True when several processes share it, so that lanes must be claimed."""
        ...

    @property
    def upgrade(self) -> Upgrade | None:
        """How its schema was brought up to date when it was opened; None if it was not."""
        ...

    @property
    def last_full(self) -> float | None:
        """When a write last found no room, by the monotonic clock; None: none has."""
        ...

    def for_constellation(self, name: str) -> Database:
        """Return the same database with transactions of another constellation.

        It costs next to nothing. To close it closes the database.
        """
        ...

    async def write(self, work: Work[T]) -> T:
        """Run `work` in a transaction; on return it is durable. It may be run again on a clash."""
        ...

    async def read(self, work: Work[T], *, brief: bool = False) -> T:
        """Run `work` on a read-only snapshot.

        `brief`: it reads a few rows by a key, so that a store in this process may do it at once,
        without a change of threads that takes longer than the reading.
        """
        ...

    async def listen(
        self,
        topic: str,
        on_payload: Callable[[str], None],
        *,
        missed: Callable[[], None] | None = None,
    ) -> None:
        """Call `on_payload` on the event loop with each payload notified under `topic`.

        `missed` is called when a notification may have been lost.
        """
        ...

    def alone(self, name: str) -> AbstractAsyncContextManager[None]:
        """Lock a name for all processes that use this database.

        For work outside of transactions, in whatever process. It ends with the block, or with the
        process.
        """
        ...

    async def check(self) -> list[str]:
        """Return the problems of the database; empty when it is healthy."""
        ...

    async def columns(self) -> dict[str, dict[str, str]]:
        """Return the columns of each table with their types, also of snapshots inside.

        A table's name is as SQL wants it; one in a snapshot has that before it.
        """
        ...

    async def scrub(self) -> list[str]:
        """Rewrite all pages, so that nothing deleted or changed is left in a file.

        Return in sentences what could not be rewritten yet; empty when all was.
        """
        ...

    async def snapshot(self, directory: Path) -> list[str]:
        """Copy all rows as they are at one moment, of all constellations, while others write.

        Return the names of the files in the directory, which must be there and empty.
        """
        ...

    async def close(self) -> None:
        """Finish the queued work and close."""
        ...


class Driver(Database, Protocol):
    """A database that can run a transaction for any constellation."""

    async def write_for(self, constellation: str, work: Work[T]) -> T:
        """Run `work` in a transaction of a constellation; on return it is durable."""
        ...

    async def read_for(self, constellation: str, work: Work[T], *, brief: bool = False) -> T:
        """Run `work` on a read-only snapshot, for a constellation."""
        ...


class DatabaseView:
    """A database for another constellation than the one it was opened for."""

    def __init__(self, driver: Driver, constellation: str) -> None:
        self.driver = driver
        self.constellation = constellation
        self.distributed = driver.distributed
        # What is not about rows of somebody is the same for all.
        self.listen = driver.listen
        self.alone = driver.alone
        self.check = driver.check
        self.columns = driver.columns
        self.scrub = driver.scrub
        self.snapshot = driver.snapshot
        self.upgrade = driver.upgrade
        self.close = driver.close

    @property
    def last_full(self) -> float | None:
        """When a write last found no room, by the monotonic clock; None: none has."""
        return self.driver.last_full

    def for_constellation(self, name: str) -> Database:
        """Return the same database with transactions of another constellation."""
        return self.driver.for_constellation(name)

    async def write(self, work: Work[T]) -> T:
        """Run `work` in a transaction; on return it is durable. It may be run again on a clash."""
        return await self.driver.write_for(self.constellation, work)

    async def read(self, work: Work[T], *, brief: bool = False) -> T:
        """Run `work` on a read-only snapshot."""
        return await self.driver.read_for(self.constellation, work, brief=brief)


@dataclass(frozen=True, slots=True)
class Migration:
    """A step of the schema, from the number before to `number`; the first makes all tables."""

    number: int
    name: str
    sql: str


def load_migrations(directory: Path | None = None) -> list[Migration]:
    """Return the migrations of this release (or of another directory), in order."""
    place = files("asterism.store") / "migrations" if directory is None else directory
    migrations = [
        Migration(int(entry.name[:4]), entry.name, entry.read_text("utf-8"))
        for entry in place.iterdir()
        if entry.name.endswith(".sql")
    ]
    migrations.sort(key=lambda migration: migration.number)
    return migrations


async def schema_version(tx: Connection) -> int:
    """Return the schema the database has; 0 for a new one."""
    await tx.run(
        "CREATE TABLE IF NOT EXISTS schema_versions"
        " (version BIGINT PRIMARY KEY, applied_at BIGINT NOT NULL)"
    )
    row = await tx.one("SELECT MAX(version) FROM schema_versions")
    return int(row[0]) if row and row[0] is not None else 0


UNSAFE_SERVER = "The server runs with"
"""What a fault of a server's settings begins with; the database itself is whole."""
TABLE_SUFFIX = ".copy"
"""Of a file with the rows of a table, in the text format of PostgreSQL's COPY.

Its first line names the columns, with tabs between.
"""


async def record_version(tx: Connection, version: int) -> None:
    """Record that the database now has schema `version`."""
    await tx.run("INSERT INTO schema_versions VALUES (?, ?)", (version, now_ms()))


def refuse_newer(version: int, migrations: list[Migration], snapshots: str) -> None:
    """Raise `StoreTooNew` if the database was written by a later release."""
    known = migrations[-1].number if migrations else 0
    if version > known:
        raise StoreTooNew(
            f"The database has schema {version}, and this release knows schemas up to {known}. "
            f"Upgrade asterism, or go back to a snapshot ({snapshots}). Nothing was changed."
        )


def refuse_unreleased(version: int, migrations: list[Migration], place: str, anew: str) -> None:
    """Raise `StoreTooOld` if no migration leads from the schema of the database to a later one."""
    first = migrations[0].number if migrations else 0
    if 0 < version < first:
        raise StoreTooOld(
            f"The database {place} has schema {version}, from before the first release; this "
            f"release begins with schema {first}. The checkout of asterism that wrote it can still "
            'export memories and the log ("asterism memory export", "asterism audit export"); to '
            f"start anew, {anew}. Nothing was changed."
        )


def refuse_older(version: int, migrations: list[Migration]) -> None:
    """Raise `StoreTooOld` if the database has yet to be brought up to date."""
    known = migrations[-1].number if migrations else 0
    if 0 < version < known:
        raise StoreTooOld(
            f"The database has schema {version}, and this release reads schema {known}. Start "
            '"asterism" or "asterism worker" once: it is brought up to date then, after a snapshot.'
            " Nothing was changed."
        )
