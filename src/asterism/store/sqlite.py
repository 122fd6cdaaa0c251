"""The SQLite driver: one process, one writer thread with group commit, readers beside it."""

# apsw's stubs use a type that they do not define, so that all its methods count as partly unknown.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import queue
import re
import sys
import threading
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar, cast

import apsw

from asterism.errors import (
    StoreDamaged,
    StoreError,
    StoreFull,
    StoreInUse,
    StoreMissing,
    StoreReadOnly,
    StoreUnavailable,
)
from asterism.private import (
    is_disk_full,
    keep_private,
    make_directory,
    private,
    read_regular,
)
from asterism.store.database import (
    TABLE_SUFFIX,
    Connection,
    Database,
    DatabaseView,
    Migration,
    Row,
    Upgrade,
    Values,
    Work,
    load_migrations,
    record_version,
    refuse_newer,
    refuse_older,
    refuse_unreleased,
    schema_version,
)
from asterism.types.agents import now_ms

T = TypeVar("T")

FILE = "asterism.db"
RESTORING = ".restoring"
"""The directory in a data directory from which a restore is moving files."""
_LOCK = "asterism.lock"
_MAX_PER_COMMIT = 512
_READERS = 4
_PATIENCE = 5_000
_SCRUB_ATTEMPTS, _SCRUB_PATIENCE = 3, 1_000


class SQLiteConnection:
    """A transaction on SQLite. Its methods never suspend, so a thread can drive their caller."""

    def __init__(
        self,
        raw: apsw.Connection,
        explain: Callable[[apsw.Error], Exception],
        constellation: str = "",
    ) -> None:
        self.raw = raw
        self.constellation = constellation
        """Set anew for each transaction; a connection serves all constellations."""
        self._explain = explain
        self.notices: list[tuple[str, str]] = []
        self._depth = 0

    async def run(self, sql: str, values: Values = ()) -> int:
        """Run a statement; return how many rows it changed."""
        try:
            self.raw.execute(sql, tuple(values))
        except apsw.Error as error:
            raise self._explain(error) from error
        return self.raw.changes()

    async def run_many(self, sql: str, rows: Sequence[Values]) -> None:
        """Run a statement once per row of values."""
        try:
            self.raw.executemany(sql, rows)
        except apsw.Error as error:
            raise self._explain(error) from error

    async def one(self, sql: str, values: Values = ()) -> Row | None:
        """Return the first row, or None."""
        # All rows are fetched so that a statement with RETURNING runs to its end.
        rows = await self.all(sql, values)
        return rows[0] if rows else None

    async def all(self, sql: str, values: Values = ()) -> list[Row]:
        """Return all rows."""
        try:
            return cast("list[Row]", self.raw.execute(sql, tuple(values)).fetchall())
        except apsw.Error as error:
            raise self._explain(error) from error

    @contextlib.asynccontextmanager
    async def savepoint(self) -> AsyncGenerator[None, None]:
        """Undo what happens inside if it raises; the exception goes on."""
        self._depth += 1
        name = f"inner{self._depth}"
        noticed = len(self.notices)
        self.raw.execute(f"SAVEPOINT {name}")
        try:
            yield
        except BaseException:
            # SQLite ends the whole transaction by itself on some errors, such as a full disk.
            if self.raw.in_transaction:
                self.raw.execute(f"ROLLBACK TO {name}; RELEASE {name}")
            del self.notices[noticed:]
            raise
        else:
            self.raw.execute(f"RELEASE {name}")
        finally:
            self._depth -= 1

    async def notify(self, topic: str, payload: str) -> None:
        """Tell listeners after the commit."""
        self.notices.append((topic, payload))

    async def enqueue(self, agent_id: str) -> None:
        """Do nothing: lanes live in this process and are told after the commit."""


def drive(work: Work[T], connection: Connection) -> T:
    """Run `work` to its end on this thread."""
    coroutine = cast("Coroutine[Any, Any, T]", work(connection))
    refusal = RuntimeError("A transaction may await its connection and nothing else.")
    try:
        coroutine.send(None)
        # Raised where it awaited, so that it can be told to whoever wrote that.
        coroutine.throw(refusal)
    except StopIteration as done:
        return cast("T", done.value)
    coroutine.close()
    raise refusal


_Job = tuple[Work[Any] | None, str, "asyncio.Future[Any]", asyncio.AbstractEventLoop]
"""A transaction of a constellation, or with None the wish that all pages are written anew."""
_Settled = tuple["asyncio.Future[Any]", Any, BaseException | None]


class SQLite:
    """A SQLite database that is open. Made by `open_sqlite`."""

    distributed = False

    def __init__(self, path: Path, *, constellation: str, readonly: bool, vfs: str | None) -> None:
        self.path = path
        self.constellation = constellation
        self.readonly = readonly
        self.upgrade: Upgrade | None = None
        self.last_full: float | None = None
        self._vfs = vfs
        self._lock_fd: int | None = None
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._writer: threading.Thread | None = None
        self._listeners: dict[str, list[Callable[[str], None]]] = {}
        self._locks: dict[str, asyncio.Lock] = {}
        self._local = threading.local()
        self._readers = ThreadPoolExecutor(_READERS, thread_name_prefix="asterism-reader")
        self._read_connections: list[apsw.Connection] = []
        self._closed = False

    # -- opening -------------------------------------------------------------------------------

    def open(self, migrations: list[Migration]) -> None:
        """Take the directory, bring the schema up to date, start the writer."""
        raw = None
        try:
            if not self.readonly:
                self._lock_directory()
            self._refuse_missing()
            raw = self._connect(write=not self.readonly)
            version = _version_of(raw)
            self._refuse_unknown(version, migrations)
            if self.readonly:
                refuse_older(version, migrations)
                raw.close()
                return
            self._prepare(raw)
            self._bring_up_to_date(raw, version, migrations)
        except BaseException as error:
            if raw is not None:
                raw.close()
            self._unlock_directory()
            self._readers.shutdown(wait=False)
            if isinstance(error, apsw.Error):
                raise self._explain(error) from error
            raise
        self._writer = threading.Thread(
            target=self._write_loop, args=(raw,), name="asterism-writer", daemon=True
        )
        self._writer.start()

    def _lock_directory(self) -> None:
        try:
            self._lock_fd = _lock(self.path.parent)
        except OSError as error:
            raise self._explain_os(error) from error

    def _unlock_directory(self) -> None:
        if self._lock_fd is not None:
            os.close(self._lock_fd)
            self._lock_fd = None

    def _refuse_missing(self) -> None:
        if self.path.exists():
            return
        if (self.path.parent / RESTORING).exists():
            raise StoreMissing(
                f"A restore into {self.path.parent} was interrupted before its database was in "
                'place. Run "asterism backup restore" again, with --replace. What was there before '
                "is in the directory before-restore-…. Nothing was created."
            )
        # A log without its database, or snapshots of one, mean that there was a database.
        traces = [self.path.with_name(self.path.name + "-wal"), self.path.parent / "snapshots"]
        left = [trace for trace in traces if trace.exists()]
        if left:
            raise StoreMissing(
                f"{self.path} is gone, although {left[0].name} shows that it was there. Put the "
                f"database back from a backup or from {self.path.parent / 'snapshots'}; to start "
                f"anew, move {left[0].name} away first. Nothing was created."
            )
        if self.readonly:
            raise StoreMissing(
                f"There is no database in {self.path.parent} yet. "
                '"asterism chat" creates it; --data names another directory.'
            )

    def _create(self) -> None:
        """Make the file for this user alone; SQLite gives its log and its index the same mode."""
        try:
            # Only a new one: to close a database lets go of the locks that this process has on it.
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        except FileExistsError:
            pass
        except OSError as error:
            raise self._explain_os(error) from error

    def _connect(self, *, write: bool) -> apsw.Connection:
        flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE
        if write:
            self._create()
        if not write:
            flags = apsw.SQLITE_OPEN_READONLY
        raw = apsw.Connection(str(self.path), flags=flags, vfs=self._vfs, statementcachesize=200)
        try:
            raw.set_busy_timeout(_PATIENCE)
            raw.execute("PRAGMA cache_size=-4096")
        except BaseException:
            raw.close()
            raise
        return raw

    def _refuse_unknown(self, version: int, migrations: list[Migration]) -> None:
        directory = self.path.parent
        refuse_newer(version, migrations, self._snapshots_hint())
        anew = f"move {directory} away or choose another directory with --data"
        refuse_unreleased(version, migrations, f"in {directory}", anew)

    def _prepare(self, raw: apsw.Connection) -> None:
        """Make a connection fit for writing; a database without a log has one from then on."""
        raw.execute("PRAGMA journal_mode=WAL").fetchall()
        raw.execute("PRAGMA synchronous=FULL")
        raw.execute("PRAGMA fullfsync=ON; PRAGMA checkpoint_fullfsync=ON")
        # A short log keeps the files small and a restart quick.
        raw.execute("PRAGMA wal_autocheckpoint=256; PRAGMA journal_size_limit=4194304")
        if not os.access(self.path, os.W_OK) or raw.readonly("main"):
            raise apsw.ReadOnlyError("attempt to write a readonly database")

    def _bring_up_to_date(
        self, raw: apsw.Connection, version: int, migrations: list[Migration]
    ) -> None:
        connection = SQLiteConnection(raw, self._explain)
        pending = [migration for migration in migrations if migration.number > version]
        # A first start that was cut off has left nothing that would have to be kept.
        if pending and version > 0 and _has_rows(raw):
            copy = self._snapshot(raw, version)
            self.upgrade = Upgrade(version, pending[-1].number, str(copy))
        for migration in pending:
            raw.execute("BEGIN IMMEDIATE")
            try:
                drive(schema_version, connection)
                raw.execute(migration.sql)
                drive(lambda tx, number=migration.number: record_version(tx, number), connection)
                raw.execute("COMMIT")
            except BaseException:
                if raw.in_transaction:
                    raw.execute("ROLLBACK")
                raise

    def _snapshots_hint(self) -> str:
        return str(self.path.parent / "snapshots")

    def _snapshot(self, raw: apsw.Connection, version: int) -> Path:
        """Copy the database before its schema changes; whole or not at all. Return the file."""
        directory = self.path.parent / "snapshots"
        try:
            make_directory(directory)
            unfinished = directory / f".schema-{version}.partial"
            unfinished.unlink(missing_ok=True)
            # SQLite writes into an empty file, and keeps its mode.
            unfinished.touch(mode=0o600)
            raw.execute("VACUUM INTO ?", (str(unfinished),))
            self._check_copy(raw, unfinished)
            fd = os.open(unfinished, os.O_RDONLY)
            os.fsync(fd)
            os.close(fd)
            copy = unfinished.rename(directory / f"schema-{version}-{now_ms()}.db")
            _sync_directory(directory)
            return copy
        except OSError as error:
            raise self._explain_os(error) from error

    def _check_copy(self, raw: apsw.Connection, copy: Path) -> None:
        """Raise `StoreDamaged` unless a copy is healthy and has as many rows as the original."""
        faults = [str(row[0]) for row in read_file(copy, "PRAGMA integrity_check(1)")]
        if faults == ["ok"]:
            tables = (
                "SELECT name FROM sqlite_schema WHERE type = 'table' AND sql NOT LIKE '%VIRTUAL%'"
            )
            for (table,) in raw.execute(tables).fetchall():
                count = f'SELECT COUNT(*) FROM "{table}"'
                if raw.execute(count).fetchall() != read_file(copy, count):
                    faults = [f"rows of {table} are missing"]
        if faults != ["ok"]:
            raise StoreDamaged(
                f"The copy from before the upgrade, {copy}, is not healthy ({faults[0]}). Look at "
                "the disk and start again. The schema was not changed."
            )

    def for_constellation(self, name: str) -> Database:
        """Return the same database with transactions of another constellation."""
        return self if name == self.constellation else DatabaseView(self, name)

    # -- writing -------------------------------------------------------------------------------

    async def write(self, work: Work[T]) -> T:
        """Run `work` in a transaction; on return it is durable."""
        return await self._queue(work, self.constellation)

    async def write_for(self, constellation: str, work: Work[T]) -> T:
        """Run `work` in a transaction of a constellation; on return it is durable."""
        return await self._queue(work, constellation)

    async def scrub(self) -> list[str]:
        """Rewrite all pages, so that nothing deleted or changed is left in a file."""
        return await self._queue(None, "")

    async def _queue(self, work: Work[Any] | None, constellation: str) -> Any:
        if self._writer is None:
            if self.readonly:
                raise StoreReadOnly(
                    f"{self.path.parent} was opened for reading only. Nothing was written."
                )
            raise StoreUnavailable(f"{self.path} was closed. Nothing was written.")
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        self._jobs.put((work, constellation, future, loop))
        return await future

    def _write_loop(self, raw: apsw.Connection) -> None:
        connection = SQLiteConnection(raw, self._explain)
        jobs = self._jobs
        running = True
        while running:
            job = jobs.get()
            batch: list[_Job] = []
            while job is not None and job[0] is not None:
                batch.append(job)
                if len(batch) == _MAX_PER_COMMIT:
                    break
                try:
                    job = jobs.get_nowait()
                except queue.Empty:
                    break
            if batch:
                self._settle(batch, self._commit(raw, connection, batch), connection)
            if job is None:
                running = False
            elif job[0] is None:
                connection.notices.clear()
                self._settle([job], [self._scrub(raw, job)], connection)
        # On a full disk the log cannot be folded in; the next start does it.
        with contextlib.suppress(apsw.Error):
            raw.close()

    def _commit(
        self, raw: apsw.Connection, connection: SQLiteConnection, batch: list[_Job]
    ) -> list[_Settled]:
        """Run all waiting transactions, each undoable by itself, and commit them together."""
        settled: list[_Settled] = []
        connection.notices.clear()
        alone = len(batch) == 1
        try:
            raw.execute("BEGIN IMMEDIATE")
            for work, constellation, future, _ in batch:
                assert work is not None
                connection.constellation = constellation
                if not alone:
                    raw.execute("SAVEPOINT one")
                noticed = len(connection.notices)
                try:
                    settled.append((future, drive(work, connection), None))
                except BaseException as error:  # whatever it is, the writer lives on
                    if not raw.in_transaction:  # ended by SQLite itself: all of it is undone
                        raise
                    settled.append((future, None, error))
                    del connection.notices[noticed:]
                    if alone:
                        raw.execute("ROLLBACK")
                        return settled
                    raw.execute("ROLLBACK TO one")
                if not alone:
                    raw.execute("RELEASE one")
            raw.execute("COMMIT")
            self.last_full = None
        except BaseException as error:  # noqa: BLE001 - told to everybody who waits
            if raw.in_transaction:
                with contextlib.suppress(apsw.Error):
                    raw.execute("ROLLBACK")
            connection.notices.clear()
            failed = self._explain(error) if isinstance(error, apsw.Error) else error
            return [(future, None, failed) for _, _, future, _ in batch]
        return settled

    def _scrub(self, raw: apsw.Connection, job: _Job) -> _Settled:
        """Rewrite every page and empty the log; report it if a reader prevents that."""
        name = self.path.name
        try:
            raw.execute("VACUUM")
            raw.set_busy_timeout(_SCRUB_PATIENCE)
            emptied = any(_empty_log(raw) for _ in range(_SCRUB_ATTEMPTS))
        except apsw.Error as error:
            return job[2], [f"The pages of {name} were not written anew: {error}."], None
        finally:
            raw.set_busy_timeout(_PATIENCE)
        problem = (
            f"A program that reads {name} kept {name}-wal from being emptied. Close it; the next "
            "start of asterism empties the file."
        )
        return job[2], [] if emptied else [problem], None

    def _settle(
        self, batch: list[_Job], settled: list[_Settled], connection: SQLiteConnection
    ) -> None:
        notifications = [
            (listener, payload)
            for topic, payload in connection.notices
            for listener in self._listeners.get(topic, ())
        ]
        by_loop: dict[asyncio.AbstractEventLoop, list[_Settled]] = {batch[0][3]: settled}
        if len(batch) > 1:
            by_loop = {}
            for (_, _, _, loop), job in zip(batch, settled, strict=True):
                by_loop.setdefault(loop, []).append(job)
        for loop, jobs in by_loop.items():
            # A loop that has been closed has nobody waiting.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(_resolve, jobs, notifications)

    # -- reading -------------------------------------------------------------------------------

    async def read(self, work: Work[T], *, brief: bool = False) -> T:
        """Run `work` on a snapshot."""
        return await self.read_for(self.constellation, work, brief=brief)

    async def read_for(self, constellation: str, work: Work[T], *, brief: bool = False) -> T:
        """Run `work` on a snapshot, for a constellation."""
        if brief and not self._closed:
            # In WAL mode a reader waits for no writer; a change of threads costs ten times as much.
            return self._read(work, constellation)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._readers, self._read, work, constellation)

    def _read(self, work: Work[T], constellation: str) -> T:
        try:
            connection: SQLiteConnection | None = getattr(self._local, "connection", None)
            if connection is None:
                raw = self._connect(write=False)
                self._read_connections.append(raw)
                connection = self._local.connection = SQLiteConnection(raw, self._explain)
            connection.constellation = constellation
            connection.raw.execute("BEGIN")
            try:
                return drive(work, connection)
            finally:
                if connection.raw.in_transaction:
                    connection.raw.execute("COMMIT")
        except apsw.Error as error:
            raise self._explain(error) from error

    async def listen(
        self,
        topic: str,
        on_payload: Callable[[str], None],
        *,
        missed: Callable[[], None] | None = None,
    ) -> None:
        """Call `on_payload` with each payload notified under `topic`; none is missed."""
        del missed
        self._listeners.setdefault(topic, []).append(on_payload)

    @contextlib.asynccontextmanager
    async def alone(self, name: str) -> AsyncGenerator[None, None]:
        """Lock a name in this process; the directory lock already excludes other processes."""
        async with self._locks.setdefault(name, asyncio.Lock()):
            yield

    async def columns(self) -> dict[str, dict[str, str]]:
        """Return the columns of each table with their types."""
        return await self.read(columns_of)

    async def snapshot(self, directory: Path) -> list[str]:
        """Copy the database as it is at one moment, without what was deleted, while others write.

        It is a reader among others, which in SQLite's WAL mode no writer waits for.
        """
        try:
            raw = self._connect(write=False)
        except apsw.Error as error:
            raise self._explain(error) from error
        copying = asyncio.ensure_future(asyncio.to_thread(_copy_into, raw, directory / FILE))
        try:
            await asyncio.shield(copying)
        except asyncio.CancelledError:
            raw.interrupt()
            await asyncio.wait([copying])
            copying.exception()
            raise
        except apsw.FullError:
            raise StoreFull(_FULL.format(place=directory)) from None
        except apsw.Error as error:
            raise self._explain(error) from error
        finally:
            raw.close()
        return [FILE]

    async def check(self) -> list[str]:
        """Return the problems of the database file; empty when it is healthy."""

        async def look(tx: Connection) -> list[str]:
            problems = [str(row[0]) for row in await tx.all("PRAGMA integrity_check")]
            return [line for line in problems if line != "ok"]

        try:
            return await self.read(look)
        except StoreDamaged as error:
            return [error.message]

    async def close(self) -> None:
        """Finish the queued work and unlock the directory."""
        self._closed = True
        writer, self._writer = self._writer, None  # nothing is queued behind the end
        await asyncio.to_thread(self._readers.shutdown)
        for raw in self._read_connections:
            raw.close()
        self._read_connections.clear()
        # The last connection to close folds the log into the database; only the writer can.
        if writer is not None:
            self._jobs.put(None)
            await asyncio.to_thread(writer.join)
        self._unlock_directory()

    # -- errors --------------------------------------------------------------------------------

    def _explain(self, error: apsw.Error) -> Exception:
        place = self.path.parent
        if isinstance(error, apsw.ConstraintError | apsw.SQLError | apsw.MisuseError):
            return error  # a bug of ours, not of the place
        # Where SQLite cannot make room for its shared memory, it speaks of input and output.
        unwritten = isinstance(error, apsw.IOError | apsw.CantOpenError) and is_disk_full(place)
        if isinstance(error, apsw.FullError) or unwritten:
            self.last_full = time.monotonic()
            return StoreFull(_FULL.format(place=place))
        if isinstance(error, apsw.ReadOnlyError | apsw.CantOpenError | apsw.PermissionsError):
            return StoreReadOnly(
                f"{self.path} cannot be opened for writing ({error}). Give this user write access "
                "to the directory and its files, or choose another with --data. Nothing changed."
            )
        if isinstance(error, apsw.CorruptError | apsw.NotADBError):
            return StoreDamaged(
                f"{self.path} is not a healthy database ({error}). Put it back from a backup or "
                f"from {self._snapshots_hint()}, keeping the damaged file. Nothing was changed."
            )
        if isinstance(error, apsw.BusyError | apsw.LockedError):
            return StoreUnavailable(
                f"Another program holds a lock on {self.path}. Close it and try again. "
                "Nothing was written."
            )
        return StoreUnavailable(
            f"Writing to {place} failed ({error}). Look at the disk, then try again; "
            "what was confirmed before is safe, and this was not written."
        )

    def _explain_os(self, error: OSError) -> StoreError:
        place = self.path.parent
        if error.errno == 28:  # ENOSPC
            return StoreFull(_FULL.format(place=place))
        if isinstance(error, FileExistsError | NotADirectoryError):
            return StoreReadOnly(
                f"{place} is a file, and a directory is needed to keep the data in. "
                "Choose another with --data. Nothing was changed."
            )
        return StoreReadOnly(
            f"The data directory {place} cannot be used ({error.strerror}). Give this user write "
            "access to it, or choose another with --data. Nothing was changed."
        )


_FULL = (
    "There is no room left on the disk of {place}. Free some space and try again; what was "
    "confirmed before is safe, and this was not written."
)


def _resolve(
    settled: list[_Settled], notifications: list[tuple[Callable[[str], None], str]]
) -> None:
    for future, value, error in settled:
        if future.done():  # nobody waits any more
            continue
        if error is None:
            future.set_result(value)
        else:
            future.set_exception(error)
    for listener, payload in notifications:
        listener(payload)


async def columns_of(tx: Connection) -> dict[str, dict[str, str]]:
    """Return the columns of each table of a SQLite database with their types."""
    tables: dict[str, dict[str, str]] = {}
    for table, name, kind in await tx.all(
        "SELECT s.name, c.name, c.type FROM sqlite_schema s JOIN pragma_table_info(s.name) c"
        " WHERE s.type = 'table' AND s.name NOT LIKE 'sqlite#_%' ESCAPE '#' ORDER BY s.name, c.cid"
    ):
        tables.setdefault(table, {})[name] = kind
    return tables


def _empty_log(raw: apsw.Connection) -> bool:
    """Fold the log into the database and cut it to nothing; False if a reader is in the way."""
    rows = raw.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    return not cast("tuple[int, int, int]", rows[0])[0]


def _has_rows(raw: apsw.Connection) -> bool:
    """Tell whether a database holds anything beside the versions of its schema."""
    tables: Any = raw.execute(
        "SELECT name FROM sqlite_schema WHERE type = 'table' AND name <> 'schema_versions'"
    ).fetchall()
    return any(bool(raw.execute(f'SELECT 1 FROM "{name}"').fetchone()) for (name,) in tables)


def _version_of(raw: apsw.Connection) -> int:
    known = raw.execute("SELECT 1 FROM sqlite_schema WHERE name = 'schema_versions'").fetchall()
    if not known:
        return 0
    rows = cast(
        "list[tuple[object]]",
        raw.execute("SELECT COALESCE(MAX(version), 0) FROM schema_versions").fetchall(),
    )
    version = rows[0][0]
    if not isinstance(version, int):
        raise StoreDamaged("The number of its schema is not a number.")
    return version


def _sync_directory(directory: Path) -> None:
    if sys.platform == "win32":
        return
    fd = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


async def open_sqlite(
    directory: Path,
    *,
    constellation: str = "home",
    readonly: bool = False,
    migrations: list[Migration] | None = None,
    vfs: str | None = None,
) -> SQLite:
    """Open the database of a data directory, creating it unless `readonly`."""
    database = SQLite(directory / FILE, constellation=constellation, readonly=readonly, vfs=vfs)
    await asyncio.to_thread(database.open, migrations or load_migrations())
    return database


@contextlib.contextmanager
def locked(directory: Path) -> Generator[None, None, None]:
    """Have a data directory that nobody has open; raise `StoreInUse` if a process has it."""
    fd = _lock(directory)
    try:
        yield
    finally:
        os.close(fd)


def _lock(directory: Path) -> int:
    """Lock a data directory for this process; return the handle whose closing unlocks it.

    The directory itself is locked, since a file in it could be deleted. The file says who has it.
    """
    make_directory(directory)
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with open(directory / _LOCK, "w", encoding="ascii", opener=private) as file:
            file.write(f"{os.getpid()}\n")
        keep_private(directory)
    except BlockingIOError:
        os.close(fd)
        raise StoreInUse(
            f"Another asterism (process {_holder(directory)}) is using {directory}. Talk to that "
            "one, stop it, or choose another directory with --data. Nothing was changed."
        ) from None
    except OSError:
        os.close(fd)
        raise
    return fd


def _holder(directory: Path) -> str:
    """Return the id of the process that has locked a data directory last, as far as is known."""
    try:
        return read_regular(directory / _LOCK, 64).decode("ascii", "replace").strip() or "unknown"
    except OSError:
        return "unknown"


def holder_of(directory: Path) -> str | None:
    """Return the id of the process that locks a data directory, or None."""
    try:
        fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _holder(directory)
    finally:
        os.close(fd)
    return None


# -- copies ----------------------------------------------------------------------------------------


def _copy_into(raw: apsw.Connection, target: Path) -> None:
    target.touch(mode=0o600)  # SQLite writes into an empty file, and keeps its mode
    raw.execute("VACUUM INTO ?", (str(target),))


def version_of_file(path: Path) -> int:
    """Return the schema of a database file; raise `StoreDamaged` if it is not a database."""
    try:
        raw = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
        try:
            return _version_of(raw)
        finally:
            raw.close()
    except apsw.Error as error:
        raise StoreDamaged(f"{path.name} is not a healthy database ({error}).") from error


def refuse_foreign_schema(path: Path, migrations: list[Migration]) -> None:
    """Raise `StoreDamaged` unless a database file has what its schema consists of, and no more.

    A trigger, a view or an index of somebody else would do its work in every transaction. Nothing
    of the kind is run to find out.
    """
    try:
        raw = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
        try:
            raw.execute("PRAGMA trusted_schema=OFF").fetchall()
            there, version = _parts_of(raw), 0
            if set(_parts_made(migrations, 0)) <= set(there):
                version = _version_of(raw)
        finally:
            raw.close()
    except apsw.Error as error:
        raise StoreDamaged(f"{path.name} is not a healthy database ({error}).") from error
    if 0 < version < migrations[0].number or version > migrations[-1].number:
        return  # whoever opens it says which release it needs
    if difference := _difference(there, _parts_made(migrations, version)):
        raise StoreDamaged(
            f"Its schema is not what asterism makes: {difference}, as of schema {version}."
        )


_Part = tuple[str, str, str, str]
"""A part of a schema: what it is, its name, its table, and its SQL without blanks and comments."""
_STATISTICS = ("sqlite_stat1", "sqlite_stat4")
_SQL = re.compile(
    r"('(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|`(?:[^`]|``)*`|\[[^\]]*\])"
    r"|(?:\s|--[^\n]*|/\*.*?(?:\*/|\Z))+",
    re.DOTALL,
)


def _parts_of(raw: apsw.Connection) -> list[_Part]:
    query = "SELECT type, name, tbl_name, sql FROM sqlite_schema"
    rows = cast("list[Row]", raw.execute(query).fetchall())
    return [
        (str(kind), str(name), str(table), _SQL.sub(lambda part: part[1] or " ", str(sql)).strip())
        for kind, name, table, sql in rows
        if name not in _STATISTICS
    ]


def _parts_made(migrations: list[Migration], version: int) -> list[_Part]:
    """Return the parts that a database has when it was brought to a version."""
    raw = apsw.Connection(":memory:")
    try:
        _make_tables(raw, migrations, version)
        return _parts_of(raw)
    finally:
        raw.close()


def _make_tables(raw: apsw.Connection, migrations: list[Migration], version: int) -> None:
    drive(schema_version, SQLiteConnection(raw, lambda error: error))
    for migration in migrations:
        if migration.number <= version:
            raw.execute(migration.sql)


def _difference(there: list[_Part], made: list[_Part]) -> str:
    """Say in what a schema differs from the one that migrations make; nothing if in nothing."""
    names = {part[:2] for part in made}
    for part in there:
        if part not in made:
            what = "is another one" if part[:2] in names else "does not belong to it"
            return f"the {part[0][:20]} {part[1][:80]!r} {what}"
    if missing := [part for part in made if part not in there]:
        return f"the {missing[0][0]} {missing[0][1]!r} is missing"
    return "" if len(there) == len(made) else "a part of it is there twice"


def read_file(path: Path, query: str) -> list[Row]:
    """Return the rows of a database file that nobody has open."""
    raw = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return cast("list[Row]", raw.execute(query).fetchall())
    finally:
        raw.close()


def load_tables(source: Path, target: Path, version: int, migrations: list[Migration]) -> None:
    """Make a SQLite database of the files that a snapshot of PostgreSQL consists of.

    Args:
        source: The directory of the files.
        target: The directory that the database is made in.
        version: The schema of the snapshot.
        migrations: Those of this release.
    """
    raw = apsw.Connection(str(target / FILE))
    try:
        raw.execute("PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF")
        raw.execute("BEGIN")
        _make_tables(raw, migrations, version)
        known = drive(columns_of, SQLiteConnection(raw, lambda error: error))
        for table in known:
            raw.execute(f"DELETE FROM {table}")
        files = {
            file.name.removesuffix(TABLE_SUFFIX): file for file in source.glob(f"*{TABLE_SUFFIX}")
        }
        if missing := known.keys() - files.keys():
            raise ValueError(f"the table {min(missing)} is missing")
        if foreign := files.keys() - known.keys():
            raise ValueError(f"the table {min(foreign)} does not belong to it")
        for table, columns in known.items():
            _load_table(raw, table, columns, files[table])
        if (found := _version_of(raw)) != version:
            raise ValueError(f"they have schema {found} instead of {version}")
        raw.execute("COMMIT")
    except (apsw.Error, ValueError) as error:
        raise StoreDamaged(f"The tables cannot be read ({error}).") from error
    finally:
        raw.close()


def _load_table(raw: apsw.Connection, table: str, known: dict[str, str], file: Path) -> None:
    with file.open("rb") as lines:
        columns = lines.readline().decode().rstrip("\n").split("\t")
        if sorted(columns) != sorted(known):
            raise ValueError(f"{table} has other columns than asterism gives it")
        kinds = [known[column] for column in columns]
        marks = ", ".join("?" * len(columns))
        sql = f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks})"
        raw.executemany(sql, _rows_of(lines, kinds))


_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_ESCAPES = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


def _rows_of(lines: Iterator[bytes], kinds: list[str]) -> Iterator[Row]:
    """Yield the rows of a file in the text format of COPY."""
    for line in lines:
        cells = line.decode().removesuffix("\n").split("\t")
        if len(cells) != len(kinds):
            raise ValueError(f"a row has {len(cells)} columns instead of {len(kinds)}")
        yield tuple(map(_value_of, cells, kinds))


def _value_of(cell: str, kind: str) -> int | float | str | bytes | None:
    if cell == "\\N":
        return None
    if "\\" in cell:
        cell = _ESCAPED.sub(lambda match: _ESCAPES.get(match[1], match[1]), cell)
    if kind == "BIGINT":
        return int(cell)
    if kind == "DOUBLE PRECISION":
        return float(cell)
    return bytes.fromhex(cell.removeprefix("\\x")) if kind == "BLOB" else cell
