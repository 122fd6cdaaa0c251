"""The PostgreSQL driver: a pool of connections, and one connection that listens for notices."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import logging
import random
import re
import time
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from pathlib import Path
from typing import IO, LiteralString, NoReturn, TypeVar

import psycopg
from procrastinate.schema import SchemaManager
from psycopg import errors
from psycopg.abc import Buffer
from psycopg.adapt import Loader
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import Conninfo, Format, TransactionStatus
from psycopg.sql import SQL, Identifier
from psycopg.types.numeric import NumericBinaryLoader
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from asterism.errors import (
    ConfigError,
    Conflict,
    StoreDamaged,
    StoreError,
    StoreFull,
    StoreMissing,
    StoreReadOnly,
    StoreTooNew,
    StoreUnavailable,
)
from asterism.private import private
from asterism.store.database import (
    TABLE_SUFFIX,
    UNSAFE_SERVER,
    Connection,
    Database,
    DatabaseView,
    Migration,
    Row,
    Upgrade,
    Values,
    Work,
    end_tasks,
    load_migrations,
    record_version,
    refuse_newer,
    refuse_older,
    refuse_unreleased,
    schema_version,
)
from asterism.types.agents import now_ms

T = TypeVar("T")
Raw = psycopg.AsyncConnection[Row]

LANE_QUEUE = "lanes"

_MIGRATING = 0x61_73_74_65_72  # "aster": the advisory lock of whoever changes the schema
_NEW_TOPIC = "asterism_ear"
_MAX_NOTICE_LENGTH = 7_900
_PATIENCE = 5.0
_MAX_QUEUE = 60.0
_LOOK_EVERY = 0.02
_LOCK_PATIENCE = "10s"
_MAX_ATTEMPTS = 10
_SNAPSHOTS = "the schemas named asterism_snapshot_…"

_WRITE: LiteralString = "BEGIN"
_READ: LiteralString = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"

# The pool logs each connection it loses; whoever wants that configures a handler.
logging.getLogger("psycopg").addHandler(logging.NullHandler())

# A server that is gone without a word is noticed in seconds, not in the quarter of an hour of TCP.
_DEFAULTS: dict[str, str] = {
    "application_name": "asterism",
    "client_encoding": "UTF8",
    "connect_timeout": "5",
    "keepalives_idle": "5",
    "keepalives_interval": "2",
    "keepalives_count": "3",
    "tcp_user_timeout": "10000",
}


# -- a transaction -----------------------------------------------------------------------------

# Procrastinate's own `defer_async` hides the server's errors, by which a clash is known.
_DEFER = (
    "SELECT procrastinate_defer_jobs_v1(ARRAY["
    "ROW(?, 'lane', 0, ?, NULL, '{}', NULL)::procrastinate_job_to_defer_v1])"
)


# Rows that are only inserted go in by COPY, which the server takes several times faster.
_PLAIN_INSERT = re.compile(r"INSERT INTO (\w+ \([\w, ]+\)) VALUES \((?:\?, )*\?\)")
_MIN_COPIED = 32


class PostgresConnection:
    """A transaction on PostgreSQL."""

    def __init__(self, raw: Raw, constellation: str = "") -> None:
        self.raw = raw
        self.constellation = constellation
        # Text results would carry bytes as hexadecimal digits, at twice the size.
        self._cursor = raw.cursor(binary=True)

    async def run(self, sql: str, values: Values = ()) -> int:
        """Run a statement; return how many rows it changed."""
        await self._cursor.execute(translate(sql), values)
        return max(self._cursor.rowcount, 0)

    async def run_many(self, sql: str, rows: Sequence[Values]) -> None:
        """Run a statement once per row of values."""
        insert = _PLAIN_INSERT.fullmatch(sql) if len(rows) >= _MIN_COPIED else None
        if insert is None:
            await self._cursor.executemany(translate(sql), rows)
            return
        async with self._cursor.copy(f"COPY {insert[1]} FROM STDIN".encode()) as copy:
            for row in rows:
                await copy.write_row(row)

    async def one(self, sql: str, values: Values = ()) -> Row | None:
        """Return the first row, or None."""
        await self._cursor.execute(translate(sql), values)
        return await self._cursor.fetchone()

    async def all(self, sql: str, values: Values = ()) -> list[Row]:
        """Return all rows."""
        await self._cursor.execute(translate(sql), values)
        return await self._cursor.fetchall()

    @contextlib.asynccontextmanager
    async def savepoint(self) -> AsyncGenerator[None, None]:
        """Undo what happens inside if it raises; the exception goes on."""
        async with self.raw.transaction():
            yield

    async def notify(self, topic: str, payload: str) -> None:
        """Tell listeners in every process when this transaction commits."""
        if len(payload.encode()) > _MAX_NOTICE_LENGTH:
            raise ValueError(f"A notice has at most {_MAX_NOTICE_LENGTH} bytes; send an id.")
        await self.run("SELECT pg_notify(?, ?)", (topic, payload))

    async def enqueue(self, agent_id: str) -> None:
        """Defer a job for a lane, so that it commits with what the lane shall do."""
        await self.run(_DEFER, (LANE_QUEUE, agent_id))


# -- the database ------------------------------------------------------------------------------


class Postgres:
    """A PostgreSQL database that is open. Made by `open_postgres`."""

    distributed = True

    def __init__(self, url: str, *, constellation: str, pool_size: int, readonly: bool) -> None:
        parts = _read_url(url)
        self.constellation = constellation
        self.readonly = readonly
        known = {**_libpq_defaults(), **parts}
        self._user = known.get("user", "")
        self._name = known.get("dbname", self._user)
        self.address = _address_of(known, self._name)
        self.upgrade: Upgrade | None = None
        self.last_full: float | None = None
        self._migrations: list[Migration] = []
        self._conninfo = make_conninfo(**{**_DEFAULTS, **parts})
        # Connections commit by themselves, and every transaction says BEGIN: psycopg would take
        # the first savepoint of a transaction not yet begun for the transaction.
        self._pool: AsyncConnectionPool[Raw] = AsyncConnectionPool(
            self._conninfo,
            kwargs={"autocommit": True},
            configure=_configure,
            min_size=1,
            max_size=pool_size,
            timeout=_PATIENCE,
            reconnect_timeout=_PATIENCE,
            open=False,
        )
        self._room = asyncio.Semaphore(pool_size)
        self._apart: Raw | None = None
        self._apart_alone = asyncio.Lock()
        self._under_way = 0
        self._quiet = asyncio.Event()
        self._closed = False
        self._listeners: dict[str, list[Callable[[str], None]]] = {}
        self._listening: dict[str, asyncio.Event] = {_NEW_TOPIC: asyncio.Event()}
        self._missed: list[Callable[[], None]] = []
        self._listener: asyncio.Task[None] | None = None
        self._listener_lost = False

    # -- opening -------------------------------------------------------------------------------

    async def open(self, migrations: list[Migration]) -> None:
        """Reach the server, bring the schema up to date, open the pool."""
        self._migrations = migrations
        raw = await self._connect()
        try:
            async with raw:
                await self._bring_up_to_date(raw)
        except psycopg.Error as error:
            self._raise(error)
        await self._pool.open()

    async def _connect(self) -> Raw:
        try:
            raw = await psycopg.AsyncConnection.connect(self._conninfo, autocommit=True)
        except psycopg.Error as error:
            raise self._explain_connecting(error) from error
        await _configure(raw)
        return raw

    async def _bring_up_to_date(self, raw: Raw) -> None:
        # Held until the connection closes, so that of several starting workers one migrates.
        await raw.execute("SELECT pg_advisory_lock(%s)", (_MIGRATING,))
        version = await _version_of(PostgresConnection(raw))
        refuse_newer(version, self._migrations, _SNAPSHOTS)
        anew = "name another database in [store] url"
        refuse_unreleased(version, self._migrations, self.address, anew)
        if self.readonly:
            if version == 0:
                raise StoreMissing(
                    f"The database {self.address} holds no asterism yet. "
                    '"asterism worker" sets it up; [store] url names another database.'
                )
            refuse_older(version, self._migrations)
            return
        pending = [migration for migration in self._migrations if migration.number > version]
        # A first start that was cut off has left nothing that would have to be kept.
        if pending and version > 0 and await _has_rows(PostgresConnection(raw)):
            copy = await self._snapshot(raw, version)
            self.upgrade = Upgrade(version, pending[-1].number, f"the schema {copy}")
        for migration in pending:
            async with raw.transaction():
                connection = PostgresConnection(raw)
                await schema_version(connection)
                await raw.execute(translate_schema(migration.sql))
                await record_version(connection, migration.number)
        if not await _is_there(PostgresConnection(raw), "procrastinate_jobs"):
            async with raw.transaction():
                await raw.execute(SchemaManager.get_schema())

    async def _snapshot(self, raw: Raw, version: int) -> str:
        """Copy all tables at one moment before their schema changes; on an error, copy none.

        Return the schema that holds the copy.
        """
        schema = f"asterism_snapshot_{version}_{now_ms()}"
        async with raw.transaction():
            await raw.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            await raw.execute(SQL("CREATE SCHEMA {}").format(Identifier(schema)))
            for table in tables_of(self._migrations, version):
                names = {"copy": Identifier(schema, table), "table": Identifier(table)}
                for statement in (
                    "CREATE TABLE {copy} (LIKE {table} INCLUDING ALL)",
                    "INSERT INTO {copy} SELECT * FROM {table}",
                ):
                    await raw.execute(SQL(statement).format(**names))
                counts = "SELECT (SELECT COUNT(*) FROM {copy}), (SELECT COUNT(*) FROM {table})"
                found = await (await raw.execute(SQL(counts).format(**names))).fetchone()
                if found is None or found[0] != found[1]:
                    raise StoreDamaged(
                        f"The copy of the table {table} from before the upgrade does not have all "
                        "its rows. Look at the server's log and start again. The schema was not "
                        "changed."
                    )
        return schema

    def for_constellation(self, name: str) -> Database:
        """Return the same database with transactions of another constellation."""
        return self if name == self.constellation else DatabaseView(self, name)

    # -- transactions --------------------------------------------------------------------------

    async def write(self, work: Work[T]) -> T:
        """Run `work` in a transaction; on return it is durable. It may be run again on a clash."""
        return await self.write_for(self.constellation, work)

    async def write_for(self, constellation: str, work: Work[T]) -> T:
        """Run `work` in a transaction of a constellation; on return it is durable."""
        if self.readonly:
            raise StoreReadOnly(f"{self.address} was opened for reading only. Nothing was written.")
        return await self._transact(_WRITE, constellation, work)

    async def read(self, work: Work[T], *, brief: bool = False) -> T:
        """Run `work` on a snapshot; the server is as far away for a brief one."""
        del brief
        return await self._transact(_READ, self.constellation, work)

    async def read_for(self, constellation: str, work: Work[T], *, brief: bool = False) -> T:
        """Run `work` on a snapshot, for a constellation."""
        del brief
        return await self._transact(_READ, constellation, work)

    async def _transact(self, begin: LiteralString, constellation: str, work: Work[T]) -> T:
        with self._counted():
            for attempt in itertools.count(1):
                committing = False
                try:
                    async with self._wait_for_connection(), self._pool.connection() as raw:
                        await raw.execute(begin)
                        result = await work(PostgresConnection(raw, constellation))
                        _refuse_failed(raw)
                        committing = True
                        await raw.commit()
                        if begin is _WRITE:
                            self.last_full = None
                        return result
                except psycopg.Error as error:
                    if isinstance(error, _CLASHES) and attempt < _MAX_ATTEMPTS:
                        await asyncio.sleep(random.uniform(0, min(0.005 * 2**attempt, 0.3)))
                    elif isinstance(error, errors.UniqueViolation) and attempt == 1:
                        # Somebody was quicker; the work sees their row now, and says so itself.
                        continue
                    elif _is_lost(error) and not committing and attempt == 1:
                        # After a restart of the server every idle connection is a dead one.
                        await self._pool.check()
                    elif isinstance(error, PoolTimeout):
                        raise await self._explain_waiting() from error
                    else:
                        self._raise(error, committing=committing)
        raise AssertionError("unreachable")

    async def write_apart(self, work: Work[T]) -> T:
        """Run `work` in a transaction on a separate connection, and try it once.

        It does not wait for the pool, which may be busy, and takes its time to find a server that
        was away. One such transaction is run at a time.
        """
        with self._counted():
            async with self._apart_alone:
                try:
                    async with asyncio.timeout(_PATIENCE):
                        return await self._transact_apart(work)
                except BaseException as error:
                    raw, self._apart = self._apart, None
                    if raw is not None:
                        await raw.close()
                    if isinstance(error, TimeoutError):
                        raise self._unreachable(
                            f"no answer in {_PATIENCE:g} s",
                            "Whether this was written is not known.",
                        ) from None
                    if isinstance(error, psycopg.Error):
                        self._raise(error, committing=True)
                    raise

    async def _transact_apart(self, work: Work[T]) -> T:
        if self._apart is None:
            self._apart = await self._connect()
        await self._apart.execute(_WRITE)
        result = await work(PostgresConnection(self._apart, self.constellation))
        _refuse_failed(self._apart)
        await self._apart.commit()
        return result

    @contextlib.asynccontextmanager
    async def _wait_for_connection(self) -> AsyncGenerator[None, None]:
        """Wait in line for a connection, so that the pool's patience is for the server alone."""
        try:
            async with asyncio.timeout(_MAX_QUEUE):
                await self._room.acquire()
        except TimeoutError:
            raise StoreUnavailable(
                f"All connections to PostgreSQL at {self.address} were busy for "
                f"{_MAX_QUEUE:g} s. Try again when there is less to do, or add a worker. "
                "Nothing was written."
            ) from None
        try:
            yield
        finally:
            self._room.release()

    @contextlib.contextmanager
    def _counted(self) -> Generator[None, None, None]:
        if self._closed:
            raise StoreUnavailable(
                f"The connection to {self.address} was closed. Nothing was written."
            )
        self._under_way += 1
        self._quiet.clear()
        try:
            yield
        finally:
            self._under_way -= 1
            if self._under_way == 0:
                self._quiet.set()

    @contextlib.asynccontextmanager
    async def alone(self, name: str) -> AsyncGenerator[None, None]:
        """Lock a name on a separate connection; closing the connection unlocks it."""
        raw = await self._connect()
        try:
            # Whoever waits inside of a statement keeps the server from removing deleted rows.
            while not await _take_lock(raw, name):  # noqa: ASYNC110 - the server has the lock
                await asyncio.sleep(_LOOK_EVERY)
        except psycopg.Error as error:
            await raw.close()
            self._raise(error)
        except BaseException:
            await raw.close()
            raise
        try:
            yield
        finally:
            await raw.close()

    # -- notices -------------------------------------------------------------------------------

    async def listen(
        self,
        topic: str,
        on_payload: Callable[[str], None],
        *,
        missed: Callable[[], None] | None = None,
    ) -> None:
        """Call `on_payload` on the event loop with each payload notified under `topic`.

        `missed` is called whenever the listening connection was opened again. If it is being opened
        again right now, this is not an error: the result is the same as a loss a moment later.
        """
        self._listeners.setdefault(topic, []).append(on_payload)
        try:
            await self._start_listening(topic)
        except StoreError:
            if not (self._listener_lost or self._listening[topic].is_set()):
                self._listeners[topic].remove(on_payload)
                raise
        if missed is not None:
            self._missed.append(missed)

    async def _start_listening(self, topic: str) -> None:
        listening = self._listening.setdefault(topic, asyncio.Event())
        if self._listener is None:
            self._listener = asyncio.create_task(self._receive_notices(), name="asterism-listener")
        elif self._listener_lost:
            return
        elif not listening.is_set():
            # The listener waits for notices, and begins with new topics after each.
            await self._transact(_WRITE, "", lambda tx: tx.notify(_NEW_TOPIC, ""))
        try:
            await asyncio.wait_for(listening.wait(), _PATIENCE)
        except TimeoutError:
            raise self._unreachable("no answer", "Nobody listens.") from None

    async def _receive_notices(self) -> None:
        """Listen on a separate connection; open it again when it is lost."""
        delay, again = 0.1, False
        while True:
            try:
                async with await self._connect() as raw:
                    delay = 0.1
                    await self._receive_on(raw, again=again)
            except (psycopg.Error, StoreError, ConfigError):
                again = True
                self._listener_lost |= self._listening[_NEW_TOPIC].is_set()
                for listening in self._listening.values():
                    listening.clear()
                await asyncio.sleep(delay * random.uniform(0.5, 1))
                delay = min(delay * 2, 2.0)

    async def _receive_on(self, raw: Raw, *, again: bool) -> None:
        loop = asyncio.get_running_loop()
        listening: set[str] = set()
        while True:
            while fresh := self._listening.keys() - listening:
                for topic in fresh:
                    await raw.execute(SQL("LISTEN {}").format(Identifier(topic)))
                listening |= fresh
            self._listener_lost = False
            # Whoever waits for its topic may add another topic at once.
            for topic in listening:
                self._listening[topic].set()
            if again:
                again = False
                for missed in self._missed:
                    loop.call_soon(missed)
            async for notice in raw.notifies(stop_after=1):
                for listener in self._listeners.get(notice.channel, ()):
                    loop.call_soon(listener, notice.payload)

    # -- health --------------------------------------------------------------------------------

    async def check(self) -> list[str]:
        """Return the problems of the database; empty when it is healthy."""
        problems: list[str] = []
        try:
            raw = await self._connect()
            async with raw:
                tx = PostgresConnection(raw)
                version = await _version_of(tx)
                refuse_newer(version, self._migrations, _SNAPSHOTS)
                known = self._migrations[-1].number
                if version < known:
                    problems.append(f"The schema is {version}, and this release needs {known}.")
                expected = [*tables_of(self._migrations, version), "procrastinate_jobs"]
                for table in expected:
                    problems += await _check_table(raw, table)
                problems += await _check_settings(tx)
                problems += await _check_indexes(raw, expected)
        except (StoreUnavailable, StoreTooNew, ConfigError) as error:
            problems.append(error.message)
        except psycopg.Error as error:
            problems.append(str(self._explain(error) or error))
        return problems

    # -- copies --------------------------------------------------------------------------------

    async def snapshot(self, directory: Path) -> list[str]:
        """Copy all tables as they are at one moment into files, while others write."""
        names: list[str] = []
        raw = await self._connect()
        try:
            async with raw:
                await raw.execute(_READ)
                version = await _version_of(PostgresConnection(raw))
                for table in tables_of(self._migrations, version):
                    name = f"{table}{TABLE_SUFFIX}"
                    await _copy_out(raw, table, directory / name)
                    names.append(name)
                await raw.rollback()
        except psycopg.Error as error:
            self._raise(error)
        return names

    async def load_snapshot(
        self, directory: Path, version: int, migrations: list[Migration]
    ) -> None:
        """Fill a database that is still empty with what a snapshot holds; all of it or nothing."""
        raw = await self._connect()
        try:
            async with raw, raw.transaction():
                await raw.execute("SELECT pg_advisory_xact_lock(%s)", (_MIGRATING,))
                connection = PostgresConnection(raw)
                await self._refuse_filled(connection)
                await schema_version(connection)
                for migration in migrations:
                    if migration.number <= version:
                        await raw.execute(translate_schema(migration.sql))
                for table in tables_of(migrations, version):
                    await raw.execute(SQL("DELETE FROM {}").format(Identifier(table)))
                    await _copy_in(raw, table, directory / f"{table}{TABLE_SUFFIX}")
        except psycopg.Error as error:
            self._raise(error)

    async def _refuse_filled(self, connection: PostgresConnection) -> None:
        if await _is_there(connection, "schema_versions"):
            raise Conflict(
                f"The database {self.address} holds an asterism already. Make an empty one with "
                '"createdb", and name it with --store. Nothing was restored.'
            )

    # -- leaving nothing behind ----------------------------------------------------------------

    async def columns(self) -> dict[str, dict[str, str]]:
        """Return the columns of each table with their types, also of snapshots inside."""

        async def look(tx: Connection) -> list[Row]:
            return await tx.all(
                "SELECT table_schema, table_name, column_name, data_type,"
                " table_schema = current_schema() FROM information_schema.columns"
                " WHERE table_schema = current_schema() OR table_schema LIKE ?"
                " ORDER BY table_schema, table_name, ordinal_position",
                (r"asterism\_snapshot\_%",),
            )

        tables: dict[str, dict[str, str]] = {}
        for schema, table, name, kind, here in await self.read(look):
            if not table.startswith("procrastinate_"):
                place = table if here else f"{schema}.{table}"
                tables.setdefault(place, {})[name] = kind
        return tables

    async def scrub(self) -> list[str]:
        """Rewrite all tables, so that nothing deleted or changed is left in a file."""
        tables = list(await self.columns())
        left: list[str] = []
        try:
            async with await self._connect() as raw:
                await raw.execute(SQL("SET lock_timeout = {}").format(_LOCK_PATIENCE))
                left += await _wait_for_readers(raw)
                for table in tables:
                    left += await _rewrite(raw, Identifier(*table.split(".")))
                # The planner's statistics hold samples of what was in the columns.
                left += await _rewrite(raw, Identifier("pg_catalog", "pg_statistic"))
        except psycopg.Error as error:
            left.append(f"Not all tables of {self.address} were rewritten: {_first_line(error)}")
        except StoreUnavailable as error:
            left.append(f"Not all tables of {self.address} were rewritten: {error.message}")
        return left

    async def close(self) -> None:
        """Finish the queued work and close."""
        self._closed = True
        if self._under_way:
            await self._quiet.wait()
        if self._listener is not None:
            await end_tasks([self._listener])
            self._listener = None
        if self._apart is not None:
            await self._apart.close()
            self._apart = None
        await self._pool.close()

    # -- errors --------------------------------------------------------------------------------

    def _unreachable(self, reason: str, lost: str) -> StoreUnavailable:
        return StoreUnavailable(
            f"PostgreSQL at {self.address} is out of reach ({reason}). Start it, or correct "
            "[store] url, and try again.",
            outcome=lost,
        )

    def _raise(self, error: psycopg.Error, *, committing: bool = False) -> NoReturn:
        failure = self._explain(error, committing=committing)
        if failure is None:
            raise error
        raise failure from error

    def _explain(self, error: psycopg.Error, *, committing: bool = False) -> StoreError | None:
        """Return the error to show to a user; None when it is a bug of asterism."""
        reason = error.diag.message_primary or _first_line(error)
        if isinstance(error, errors.DiskFull):
            self.last_full = time.monotonic()
            return StoreFull(
                f"There is no room left on the disk of PostgreSQL at {self.address}. Free some "
                "space and try again; what was confirmed before is safe, and this was not written."
            )
        if isinstance(error, errors.ReadOnlySqlTransaction | errors.InsufficientPrivilege):
            return StoreReadOnly(
                f"User {self._user!r} may not write to {self.address} ({reason}). Grant the "
                "rights, or name the primary server in [store] url. Nothing was written."
            )
        if isinstance(error, errors.DataCorrupted | errors.IndexCorrupted):
            return StoreDamaged(
                f"{self.address} is damaged ({reason}). Put it back from a backup. "
                "Nothing was written."
            )
        if isinstance(error, _CLASHES):
            return StoreUnavailable(
                f"Others keep changing the same rows of {self.address} ({reason}). Try again. "
                "Nothing was written."
            )
        if isinstance(error, psycopg.OperationalError):
            if committing:
                return self._unreachable(reason, "Whether this was written is not known.")
            return self._unreachable(reason, "Nothing was written.")
        return None

    async def _explain_waiting(self) -> StoreUnavailable | ConfigError:
        # The pool tells that it waited in vain, not for what.
        try:
            await (await self._connect()).close()
        except (StoreUnavailable, ConfigError) as error:
            return error
        return self._unreachable(f"no connection in {_PATIENCE:g} s", "Nothing was written.")

    def _explain_connecting(self, error: psycopg.Error) -> StoreUnavailable | ConfigError:
        # The server's code is not given to the client here, so its words have to do.
        words = str(error)
        if "password" in words:
            return ConfigError(
                f"PostgreSQL at {self.address} refused the password of user {self._user!r}. "
                "Correct it in [store] url or PGPASSWORD. Nothing was changed."
            )
        if re.search(r'database ".*" does not exist', words):
            return ConfigError(
                f"PostgreSQL at {self.address} has no database {self._name!r}. Create it with "
                f'"createdb {self._name}", or correct [store] url. Nothing was changed.'
            )
        if re.search(r'role ".*" does not exist', words):
            return ConfigError(
                f"PostgreSQL at {self.address} has no user {self._user!r}. Create it with "
                f'"createuser {self._user}", or correct [store] url. Nothing was changed.'
            )
        return self._unreachable(_first_line(error), "Nothing was changed.")


_CLASHES = (errors.SerializationFailure, errors.DeadlockDetected)


def _is_lost(error: psycopg.Error) -> bool:
    if not isinstance(error, psycopg.OperationalError) or isinstance(error, PoolTimeout):
        return False
    return error.sqlstate is None or error.sqlstate.startswith(("08", "57P"))


def _refuse_failed(raw: Raw) -> None:
    if raw.info.transaction_status == TransactionStatus.INERROR:
        # PostgreSQL would answer COMMIT with a rollback and report no error.
        raise RuntimeError(
            "A statement of this transaction failed and the failure was passed over outside a "
            "savepoint. Nothing was written."
        )


def _first_line(error: psycopg.Error) -> str:
    line = str(error).partition("\n")[0]
    return line.rpartition("failed: ")[2]


async def _configure(raw: Raw) -> None:
    raw.adapters.register_loader("numeric", PlainNumber)


async def _take_lock(raw: Raw, name: str) -> bool:
    query = "SELECT pg_try_advisory_lock(hashtextextended(?, 0))"
    row = await PostgresConnection(raw).one(query, (name,))
    return row is not None and bool(row[0])


async def _is_there(tx: PostgresConnection, table: str) -> bool:
    row = await tx.one("SELECT to_regclass(?) IS NOT NULL", (table,))
    return row is not None and bool(row[0])


async def _has_rows(tx: PostgresConnection) -> bool:
    """Tell whether a schema holds anything beside the versions of itself."""
    tables = await tx.all(
        "SELECT tablename FROM pg_tables"
        " WHERE schemaname = current_schema() AND tablename <> 'schema_versions'"
    )
    for (name,) in tables:
        row = await tx.one(f'SELECT EXISTS (SELECT 1 FROM "{name}")')
        if row is not None and row[0]:
            return True
    return False


async def _version_of(tx: PostgresConnection) -> int:
    if not await _is_there(tx, "schema_versions"):
        return 0
    row = await tx.one("SELECT COALESCE(MAX(version), 0) FROM schema_versions")
    return int(row[0]) if row else 0


_COPY_BUFFER = 1 << 20


async def _copy_out(raw: Raw, table: str, file: Path) -> None:
    """Write the rows of a table into a file, below a line with the names of its columns."""
    rows = await PostgresConnection(raw).all(
        "SELECT attname::text FROM pg_attribute WHERE attrelid = to_regclass(?)"
        " AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
        (table,),
    )
    columns = [str(row[0]) for row in rows]
    names = SQL(", ").join(map(Identifier, columns))
    query = SQL("COPY {} ({}) TO STDOUT").format(Identifier(table), names)
    buffer = bytearray("\t".join(columns).encode() + b"\n")
    with _create(file) as out:
        async with raw.cursor().copy(query) as copy:
            async for part in copy:
                buffer += part
                if len(buffer) >= _COPY_BUFFER:
                    await asyncio.to_thread(out.write, bytes(buffer))
                    buffer.clear()
        await asyncio.to_thread(out.write, bytes(buffer))


def _create(file: Path) -> IO[bytes]:
    return open(file, "xb", opener=private)


async def _copy_in(raw: Raw, table: str, file: Path) -> None:
    """Put the rows of a file into a table."""
    with file.open("rb") as lines:
        columns = lines.readline().decode().rstrip("\n").split("\t")
        names = SQL(", ").join(map(Identifier, columns))
        query = SQL("COPY {} ({}) FROM STDIN").format(Identifier(table), names)
        async with raw.cursor().copy(query) as copy:
            while part := await asyncio.to_thread(lines.read, _COPY_BUFFER):
                await copy.write(part)


async def _wait_for_readers(raw: Raw) -> list[str]:
    """Wait for transactions that can still see deleted rows; report those that stay open.

    VACUUM keeps for them whatever they may want to read.
    """
    query = (
        "SELECT COUNT(*) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
        " AND datname = current_database() AND backend_xmin IS NOT NULL AND xact_start < %s"
    )
    tx = PostgresConnection(raw)
    begun = await tx.one("SELECT clock_timestamp()")
    for _ in range(int(_PATIENCE / 0.1)):
        rows = await (await raw.execute(query.encode(), begun)).fetchone()
        if not rows or rows[0] == 0:
            return []
        await asyncio.sleep(0.1)
    problem = (
        "A long transaction of another program kept the server from removing all that was "
        "deleted. End it, and forget the same again."
    )
    return [problem]


async def _rewrite(raw: Raw, table: Identifier) -> list[str]:
    try:
        await raw.execute(SQL("VACUUM (FULL, ANALYZE) {}").format(table))
    except errors.LockNotAvailable:
        name = table.as_string(None).replace('"', "")
        return [f"The table {name} was in use and was not rewritten. Forget the same again."]
    return []


async def _check_table(raw: Raw, table: str) -> list[str]:
    if not await _is_there(PostgresConnection(raw), table):
        return [f"The table {table!r} is missing."]
    try:
        # Reading all of it has the server check each page.
        await raw.execute(SQL("SELECT COUNT(t.*) FROM {} t").format(Identifier(table)))
    except psycopg.DatabaseError as error:
        return [f"The table {table!r} cannot be read ({_first_line(error)})."]
    return []


async def _check_settings(tx: PostgresConnection) -> list[str]:
    rows = await tx.all(
        "SELECT name FROM pg_settings WHERE setting = 'off'"
        " AND name IN ('fsync', 'full_page_writes', 'synchronous_commit') ORDER BY name"
    )
    problems = [f"{UNSAFE_SERVER} {row[0]} = off, and may lose what it confirmed." for row in rows]
    encoding = await tx.one("SELECT current_setting('server_encoding')")
    if encoding is not None and encoding[0] != "UTF8":
        problems.append(f"The database is encoded in {encoding[0]}, and UTF8 is needed.")
    return problems


async def _check_indexes(raw: Raw, tables: list[str]) -> list[str]:
    """Have the extension amcheck look at each index, where it may be used; leave no trace."""
    problems: list[str] = []
    try:
        async with raw.transaction(force_rollback=True):
            await raw.execute("CREATE EXTENSION IF NOT EXISTS amcheck")
            tx = PostgresConnection(raw)
            indexes = await tx.all(
                "SELECT indexrelid, indexrelid::regclass::text FROM pg_index"
                " JOIN pg_class c ON c.oid = indexrelid JOIN pg_am a ON a.oid = c.relam"
                " WHERE a.amname = 'btree' AND indrelid::regclass::text = ANY(?)",
                (tables,),
            )
            for oid, name in indexes:
                try:
                    async with tx.savepoint():
                        await tx.run("SELECT bt_index_check(?::oid::regclass, true)", (oid,))
                except psycopg.DatabaseError as error:
                    problems.append(f"The index {name!r} is damaged ({_first_line(error)}).")
    except (
        errors.FeatureNotSupported,
        errors.UndefinedFile,
        errors.InsufficientPrivilege,
        errors.ReadOnlySqlTransaction,
    ):
        return []
    return problems


# -- the URL -----------------------------------------------------------------------------------


def _read_url(url: str) -> dict[str, str]:
    try:
        parts = {name: str(value) for name, value in conninfo_to_dict(url).items()}
    except psycopg.Error:
        parts = {}
    # An unescaped character of a password makes the rest of it part of another field, so none of
    # them is shown.
    fields = parts.get("host", "") + parts.get("dbname", "")
    if not parts or "@" in fields or not re.fullmatch(r"[\d,]*", parts.get("port", "")):
        raise ConfigError(
            "[store] url cannot be read as the address of a PostgreSQL database. It should look "
            "like postgresql://user:password@host:5432/name, with characters such as @ : / % in "
            "the password written as %40 %3A %2F %25."
        )
    return parts


def _libpq_defaults() -> dict[str, str]:
    """Return what PGHOST, PGUSER and the like say, and the system where they say nothing."""
    options = Conninfo.get_defaults()
    return {option.keyword.decode(): option.val.decode() for option in options if option.val}


def _address_of(parts: dict[str, str], name: str) -> str:
    host = parts.get("host") or parts.get("hostaddr") or "localhost"
    if host.startswith("/"):
        return f"{host} ({name})"
    return f"{host}:{parts.get('port', '5432')}/{name}"


async def restore_postgres(
    url: str, directory: Path, version: int, migrations: list[Migration]
) -> None:
    """Fill the empty database of a URL with the files of a snapshot."""
    database = Postgres(url, constellation="", pool_size=1, readonly=False)
    await database.load_snapshot(directory, version, migrations)


async def open_postgres(
    url: str,
    *,
    constellation: str = "home",
    migrations: list[Migration] | None = None,
    pool_size: int = 10,
    readonly: bool = False,
) -> Postgres:
    """Open a database by its URL, creating the tables unless `readonly`."""
    database = Postgres(url, constellation=constellation, pool_size=pool_size, readonly=readonly)
    await database.open(load_migrations() if migrations is None else migrations)
    return database


__all__ = ["LANE_QUEUE", "Postgres", "PostgresConnection", "open_postgres"]


_PARTS = re.compile(r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|--[^\n]*|/\*.*?\*/|\?""", re.DOTALL)


@functools.lru_cache(2048)
def translate(statement: str) -> bytes:
    """Put psycopg's placeholders in place of `?`, leaving literals, names and comments alone."""
    escaped = statement.replace("%", "%%")
    return _PARTS.sub(lambda part: "%s" if part[0] == "?" else part[0], escaped).encode()


_TYPES = re.compile(r"""'(?:[^']|'')*'|--[^\n]*|\bBLOB\b|(?<!AS )\bTEXT\b|\)\s*WITHOUT ROWID\b""")
# SQLite compares text byte by byte; without a collation PostgreSQL follows its host's language.
_TRANSLATED = {"BLOB": "BYTEA", "TEXT": 'TEXT COLLATE "C"'}


def translate_schema(migration: str) -> bytes:
    """Return a migration in PostgreSQL's words."""

    def put(part: re.Match[str]) -> str:
        return ")" if part[0].startswith(")") else _TRANSLATED.get(part[0], part[0])

    return _TYPES.sub(put, migration).encode()


_TABLES = re.compile(r"^\s*(CREATE|DROP) TABLE (?:IF (?:NOT )?EXISTS )?(\w+)", re.MULTILINE)


def tables_of(migrations: list[Migration], version: int) -> list[str]:
    """Return the tables that a schema has."""
    tables = {"schema_versions": None}
    for migration in migrations:
        if migration.number <= version:
            for verb, table in _TABLES.findall(migration.sql):
                if verb == "CREATE":
                    tables[table] = None
                else:
                    tables.pop(table, None)
    return list(tables)


class PlainNumber(Loader):
    """Reads NUMERIC, which SUM of whole numbers is on PostgreSQL, as int or float."""

    format = Format.BINARY

    def load(self, data: Buffer) -> int | float:
        """Return the number."""
        number = NumericBinaryLoader(self.oid, None).load(data)
        whole = int(number)
        return whole if whole == number else float(number)
