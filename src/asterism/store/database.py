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
from typing import Any, Protocol, TypeVar

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
MOST_VALUES = 500
"""How many values one statement is given in a list at most; of more, several statements."""


def marks(values: Sequence[Any]) -> str:
    """Return a `?` for each value, for a list such as `IN (…)`."""
    return ", ".join("?" * len(values))


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
