"""The seam between SQL by topic and the two drivers.

A topic function is `async def f(tx: Connection, …)`. On PostgreSQL it is awaited; on SQLite the
writer thread drives it to its end in one go, since nothing on that connection ever suspends. So the
SQL and the logic around it are written once, and a transaction costs one thread hop, not one per
statement. It follows that a topic function awaits its connection and nothing else.

SQL is the common subset of both engines, with `?` for values. Times are milliseconds since 1970.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Protocol, TypeVar

from asterism.errors import StoreTooNew, StoreTooOld
from asterism.types.agents import now_ms

T = TypeVar("T")

Row = tuple[Any, ...]
Values = Sequence[Any]


class Connection(Protocol):
    """A transaction under way."""

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
        """Put a lane to work in this transaction, where lanes are distributed; else do nothing."""
        ...


Work = Callable[[Connection], Awaitable[T]]
MAX_VALUES = 500
"""How many values one statement is given in a list at most; of more, several statements."""


@lru_cache(1024)
def marks(count: int) -> str:
    """Return as many `?`, for a list of values such as `IN (…)`."""
    return ", ".join("?" * count)


class Database(Protocol):
    """A database that is open. Errors are those of `asterism.errors`, whatever the driver."""

    distributed: bool
    """True when several processes share it, so that lanes must be claimed."""

    async def write(self, work: Work[T]) -> T:
        """Run `work` in a transaction; on return it is durable. It may be run again on a clash."""
        ...

    async def read(self, work: Work[T]) -> T:
        """Run `work` on a read-only snapshot."""
        ...

    async def listen(
        self,
        topic: str,
        heard: Callable[[str], None],
        *,
        missed: Callable[[], None] | None = None,
    ) -> None:
        """Call `heard` on the event loop with each payload notified under `topic`, from now on.

        `missed` is called when something may have been notified that was not heard.
        """
        ...

    def alone(self, name: str) -> AbstractAsyncContextManager[None]:
        """Hold a name: nobody else who uses this database does so at the same time.

        For work outside of transactions, in whatever process. It ends with the block, or with the
        process.
        """
        ...

    async def check(self) -> list[str]:
        """Return what is wrong with the database itself; empty when it is healthy."""
        ...

    async def columns(self) -> dict[str, dict[str, str]]:
        """Return the columns of each table with their types, those of snapshots inside too.

        A table's name is as SQL wants it; one in a snapshot has that before it.
        """
        ...

    async def scrub(self) -> list[str]:
        """Rewrite all pages, so that nothing deleted or changed is left in a file.

        Return in sentences what could not be rewritten yet; empty when all was.
        """
        ...

    async def close(self) -> None:
        """Finish what is queued and let go."""
        ...


@dataclass(frozen=True, slots=True)
class Migration:
    """One step of the schema, from the one before to `number`; the first one makes all tables."""

    number: int
    name: str
    sql: str


def load_migrations(directory: Path | None = None) -> list[Migration]:
    """Return the migrations of this release (or of another directory), in order."""
    place = files("asterism.store") / "migrations" if directory is None else directory
    found = [
        Migration(int(entry.name[:4]), entry.name, entry.read_text("utf-8"))
        for entry in place.iterdir()
        if entry.name.endswith(".sql")
    ]
    found.sort(key=lambda migration: migration.number)
    return found


async def schema_version(tx: Connection) -> int:
    """Return the schema the database has; 0 for a new one."""
    await tx.run(
        "CREATE TABLE IF NOT EXISTS schema_versions"
        " (version BIGINT PRIMARY KEY, applied_at BIGINT NOT NULL)"
    )
    row = await tx.one("SELECT MAX(version) FROM schema_versions")
    return int(row[0]) if row and row[0] is not None else 0


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
