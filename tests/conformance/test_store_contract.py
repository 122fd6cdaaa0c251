"""What a database must do, whatever the engine, and what becomes of SQLite when its disk fails."""

import asyncio
import itertools
import os
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Protocol

import apsw
import psycopg
import pytest

from asterism.errors import (
    StoreDamaged,
    StoreError,
    StoreFull,
    StoreInUse,
    StoreMissing,
    StoreReadOnly,
    StoreTooNew,
    StoreTooOld,
    StoreUnavailable,
)
from asterism.store.database import Connection, Database, Migration, Row, Values, load_migrations
from asterism.store.postgres import open_postgres
from asterism.store.sqlite import open_sqlite
from asterism.testing.postgres import postgres_server

THINGS = [
    Migration(
        1,
        "0001_things.sql",
        """
        CREATE TABLE things (
            id    TEXT PRIMARY KEY,  -- a TEXT, not a BLOB; what about '?'
            count BIGINT,
            body  BLOB,
            note  TEXT,
            text  TEXT,
            gone  BIGINT
        ) WITHOUT ROWID;
        CREATE UNIQUE INDEX things_note ON things (note) WHERE gone IS NULL;
        """,
    )
]


class Engine(Protocol):
    """A place for one database, and what the contract cannot see through `Database`."""

    async def open(self, migrations: list[Migration], *, readonly: bool = False) -> Database: ...

    def snapshots(self) -> list[list[Row]]:
        """Return the things in each snapshot, oldest first."""
        ...


class OnSQLite:
    def __init__(self, directory: Path) -> None:
        self.directory = directory

    async def open(self, migrations: list[Migration], *, readonly: bool = False) -> Database:
        return await open_sqlite(self.directory, migrations=migrations, readonly=readonly)

    def snapshots(self) -> list[list[Row]]:
        found: list[list[Row]] = []
        for file in sorted((self.directory / "snapshots").glob("*.db")):
            with closing(sqlite3.connect(file)) as raw:
                found.append(raw.execute("SELECT * FROM things ORDER BY id").fetchall())
        return found


class OnPostgres:
    def __init__(self, url: str) -> None:
        self.url = url

    async def open(self, migrations: list[Migration], *, readonly: bool = False) -> Database:
        return await open_postgres(self.url, migrations=migrations, readonly=readonly)

    def snapshots(self) -> list[list[Row]]:
        with psycopg.connect(self.url) as raw:
            schemas = raw.execute(
                "SELECT nspname FROM pg_namespace WHERE nspname LIKE 'asterism_snapshot_%'"
                " ORDER BY nspname"
            ).fetchall()
            return [
                raw.execute(f"SELECT * FROM {schema}.things ORDER BY id".encode()).fetchall()
                for (schema,) in schemas
            ]


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    with ExitStack() as stack:
        if request.param == "sqlite":
            yield OnSQLite(tmp_path / "data")
        else:
            yield OnPostgres(stack.enter_context(postgres_server(fsync=True).database(empty=True)))


@pytest.fixture
async def database(engine: Engine) -> AsyncIterator[Database]:
    database = await engine.open(THINGS)
    yield database
    await database.close()


async def put(tx: Connection, id: str, *, count: int | None = None, note: str | None = None) -> str:
    await tx.run("INSERT INTO things (id, count, note) VALUES (?, ?, ?)", (id, count, note))
    return id


async def ids(database: Database) -> list[str]:
    rows = await database.read(lambda tx: tx.all("SELECT id FROM things ORDER BY id"))
    return [row[0] for row in rows]


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(120):
        while not condition():  # noqa: ASYNC110 - the condition is another process's
            await asyncio.sleep(0.01)


class Upset(Exception):
    """Raised by a transaction that changes its mind."""


# -- transactions ------------------------------------------------------------------------------


async def test_a_write_returns_its_value_and_is_read_by_others(database: Database) -> None:
    assert await database.write(lambda tx: put(tx, "a")) == "a"
    assert await ids(database) == ["a"]


async def test_what_was_written_is_there_after_opening_again(engine: Engine) -> None:
    for id in "ab":
        database = await engine.open(THINGS)
        await database.write(lambda tx, id=id: put(tx, id))
        await database.close()
    database = await engine.open(THINGS, readonly=True)
    assert await ids(database) == ["a", "b"]
    await database.close()


async def test_a_name_is_held_by_one_at_a_time(engine: Engine) -> None:
    database = await engine.open(THINGS)
    # Of SQLite, there is no other process.
    other = await engine.open(THINGS) if database.distributed else database
    inside: list[str] = []
    most = 0

    async def work(held: Database, name: str) -> None:
        nonlocal most
        async with held.alone(name):
            inside.append(name)
            most = max(most, inside.count("one"))
            try:
                for _ in range(5):
                    await ids(held)
            finally:
                inside.remove(name)

    async def fail() -> None:
        async with database.alone("one"):
            raise Upset

    async with asyncio.timeout(120):
        with pytest.raises(Upset):
            await fail()
        async with database.alone("two"):
            await asyncio.gather(*(work(one, "one") for one in (database, other, database, other)))
        waiting = asyncio.create_task(work(other, "one"))
        async with database.alone("three"):
            waiting.cancel()
            await asyncio.wait({waiting})
        await work(database, "one")
    assert most == 1
    if other is not database:
        await other.close()
    await database.close()


async def test_an_exception_undoes_all_of_a_transaction(database: Database) -> None:
    async def change_mind(tx: Connection) -> None:
        await put(tx, "a")
        async with tx.savepoint():
            await put(tx, "b")
        raise Upset

    with pytest.raises(Upset):
        await database.write(change_mind)
    assert await ids(database) == []


async def test_a_savepoint_undoes_its_part_alone(database: Database) -> None:
    async def change_mind(tx: Connection) -> None:
        async with tx.savepoint():
            await put(tx, "undone")
            async with tx.savepoint():
                await put(tx, "undone too")
            raise Upset

    async def work(tx: Connection) -> None:
        async with tx.savepoint():
            await put(tx, "kept")
        with pytest.raises(Upset):
            await change_mind(tx)
        await put(tx, "after")

    await database.write(work)
    assert await ids(database) == ["after", "kept"]


async def test_a_savepoint_makes_a_failed_statement_harmless(database: Database) -> None:
    async def work(tx: Connection) -> None:
        await put(tx, "a")
        try:
            async with tx.savepoint():
                await put(tx, "b")
                await put(tx, "a")
        except (apsw.Error, psycopg.Error):
            await put(tx, "c")

    await database.write(work)
    assert await ids(database) == ["a", "c"]


async def test_200_writes_at_once(database: Database) -> None:
    names = [f"{number:03}" for number in range(200)]
    done = await asyncio.gather(*(database.write(lambda tx, n=n: put(tx, n)) for n in names))
    assert done == names
    assert await ids(database) == names


async def test_failing_writes_harm_no_others(database: Database) -> None:
    async def work(tx: Connection, number: int) -> int:
        await put(tx, f"{number:03}")
        if number % 3 == 0:
            raise Upset(number)
        return number

    done = await asyncio.gather(
        *(database.write(lambda tx, n=n: work(tx, n)) for n in range(60)), return_exceptions=True
    )
    assert [isinstance(each, Upset) for each in done] == [n % 3 == 0 for n in range(60)]
    assert await ids(database) == [f"{n:03}" for n in range(60) if n % 3]


async def test_writes_to_one_row_do_not_lose_each_other(database: Database) -> None:
    async def increase(tx: Connection) -> int:
        row = await tx.one("UPDATE things SET count = count + 1 WHERE id = 'a' RETURNING count")
        assert row is not None
        return row[0]

    await database.write(lambda tx: put(tx, "a", count=0))
    seen = await asyncio.gather(*(database.write(increase) for _ in range(50)))
    assert sorted(seen) == list(range(1, 51))


async def test_a_read_sees_one_moment_and_writes_nothing(database: Database) -> None:
    async def both(tx: Connection) -> None:
        await put(tx, "a", count=1)
        await put(tx, "b", count=1)

    await database.write(both)

    async def flip() -> None:
        for sign in (-1, 1) * 20:
            await database.write(lambda tx, s=sign: tx.run("UPDATE things SET count = ?", (s,)))

    async def look(tx: Connection) -> tuple[Row | None, Row | None]:
        first = await tx.one("SELECT count FROM things WHERE id = 'a'")
        return first, await tx.one("SELECT count FROM things WHERE id = 'b'")

    flipping = asyncio.create_task(flip())
    while not flipping.done():
        first, second = await database.read(look)
        assert first == second
    await flipping

    with pytest.raises(StoreReadOnly, match=r"Nothing (was )?(written|changed)"):
        await database.read(lambda tx: put(tx, "c"))
    assert await ids(database) == ["a", "b"]


async def test_a_database_opened_for_reading_takes_no_writes(engine: Engine) -> None:
    with pytest.raises(StoreMissing):
        await engine.open(THINGS, readonly=True)
    await (await engine.open(THINGS)).close()
    database = await engine.open(THINGS, readonly=True)
    with pytest.raises(StoreReadOnly, match="Nothing was written"):
        await database.write(lambda tx: put(tx, "a"))
    assert await ids(database) == []
    await database.close()


async def test_closing_finishes_what_is_queued(engine: Engine) -> None:
    database = await engine.open(THINGS)
    names = [f"{number:02}" for number in range(50)]
    writes = [asyncio.create_task(database.write(lambda tx, n=n: put(tx, n))) for n in names]
    await asyncio.sleep(0)
    await database.close()
    assert await asyncio.gather(*writes) == names
    database = await engine.open(THINGS)
    assert await ids(database) == names
    await database.close()


async def test_a_healthy_database_passes_its_check(database: Database) -> None:
    await database.write(lambda tx: put(tx, "a"))
    assert await database.check() == []


# -- statements and values ---------------------------------------------------------------------


async def test_run_tells_how_many_rows_it_changed(database: Database) -> None:
    async def work(tx: Connection) -> list[int]:
        await tx.run_many("INSERT INTO things (id) VALUES (?)", [("a",), ("b",), ("c",)])
        await tx.run_many("INSERT INTO things (id) VALUES (?)", [])
        return [
            await tx.run("INSERT INTO things (id) VALUES ('d')"),
            await tx.run("INSERT INTO things (id) VALUES ('d') ON CONFLICT DO NOTHING"),
            await tx.run("UPDATE things SET count = 1 WHERE id < 'd'"),
            await tx.run("UPDATE things SET count = 1"),
            await tx.run("DELETE FROM things WHERE id = 'nobody'"),
            await tx.run("DELETE FROM things"),
        ]

    assert await database.write(work) == [1, 0, 3, 4, 0, 4]


async def test_many_rows_at_once_keep_every_value(database: Database) -> None:
    texts = ["", "\\N", "\\.", "a\tb\nc\r\\d", "NULL", "%s ? '\"", "é漢🎈\u2028", "x" * 70_000]
    rows: list[Row] = [
        (f"{n:03}", n * (1 << 55) - (1 << 62), bytes([n, 0, 255, 92]) * n, text, None)
        for n, text in enumerate(texts * 16)
    ]
    insert = "INSERT INTO things (id, count, body, text, gone) VALUES (?, ?, ?, ?, ?)"
    await database.write(lambda tx: tx.run_many(insert, rows))
    kept = "SELECT id, count, body, text, gone FROM things ORDER BY id"
    assert await database.read(lambda tx: tx.all(kept)) == rows


async def test_many_rows_at_once_are_all_there_or_none(database: Database) -> None:
    insert = "INSERT INTO things (id, count) VALUES (?, ?)"
    rows = [(f"{n:03}", n) for n in range(100)]

    async def work(tx: Connection) -> list[Row]:
        with pytest.raises((apsw.ConstraintError, psycopg.errors.UniqueViolation)):
            async with tx.savepoint():
                await tx.run_many(insert, [*rows, rows[50]])
        await tx.run_many(insert, rows[:60])
        return await tx.all("SELECT COUNT(*) FROM things")

    assert await database.write(work) == [(60,)]
    with pytest.raises((apsw.ConstraintError, psycopg.errors.UniqueViolation)):
        await database.write(lambda tx: tx.run_many(insert, rows[::-1]))
    assert len(await ids(database)) == 60


async def test_returning(database: Database) -> None:
    insert = "INSERT INTO things (id, count) VALUES (?, ?) ON CONFLICT DO NOTHING RETURNING count"

    async def work(tx: Connection) -> list[object]:
        return [
            await tx.one(insert, ("a", 7)),
            await tx.one(insert, ("a", 8)),
            await tx.all("UPDATE things SET count = count + ? RETURNING id, count", (1,)),
            await tx.one("SELECT id FROM things WHERE id = 'nobody'"),
            await tx.all("DELETE FROM things WHERE id = 'nobody' RETURNING id"),
        ]

    assert await database.write(work) == [(7,), None, [("a", 8)], None, []]


@pytest.mark.parametrize(
    ("column", "value"),
    [
        pytest.param("body", bytes(range(256)) + b"\0\0", id="every byte"),
        pytest.param("body", b"", id="no bytes"),
        pytest.param("body", os.urandom(1024) * 10_240, id="10 MB"),
        pytest.param("text", "naïve 漢字 🪐 e\u0301 \u200f'\"\\ 100% ?", id="unicode"),
        pytest.param("text", "", id="no text"),
        pytest.param("text", "漢" * 3_500_000, id="10 MB of text"),
        pytest.param("count", 2**63 - 1, id="largest"),
        pytest.param("count", -(2**63), id="smallest"),
        pytest.param("count", 0, id="zero"),
        pytest.param("body", None, id="NULL bytes"),
        pytest.param("text", None, id="NULL text"),
        pytest.param("count", None, id="NULL number"),
    ],
)
async def test_values_come_back_as_they_went(
    database: Database, column: str, value: object
) -> None:
    await database.write(
        lambda tx: tx.run(f"INSERT INTO things (id, {column}) VALUES ('a', ?)", (value,))
    )
    row = await database.read(lambda tx: tx.one(f"SELECT {column} FROM things"))
    assert row == (value,)
    assert row is not None
    assert type(row[0]) is type(value)


@pytest.mark.parametrize(
    ("sql", "values", "row"),
    [
        ("SELECT '?', ?, '100%', '%s'", ("x",), ("?", "x", "100%", "%s")),
        ("SELECT 'it''s ?', ? -- why ?", ("x",), ("it's ?", "x")),
        ('SELECT ? AS "?" /* ? */', ("x",), ("x",)),
        ("SELECT 7 % 4", (), (3,)),
        ("SELECT id FROM things WHERE id LIKE 'a%' AND note = ?", ("%s",), ("ab",)),
        ("SELECT SUM(count), COUNT(*), MAX(count) FROM things", (), (6, 3, 3)),
        ("SELECT AVG(count) FROM things WHERE count < 3", (), (1.5,)),
    ],
)
async def test_the_same_sql_means_the_same(
    database: Database, sql: str, values: Values, row: Row
) -> None:
    async def fill(tx: Connection) -> None:
        await put(tx, "ab", count=1, note="%s")
        await put(tx, "B", count=2)
        await put(tx, "é", count=3)

    await database.write(fill)
    assert await database.read(lambda tx: tx.one(sql, values)) == row


async def test_text_is_ordered_by_its_code_points(database: Database) -> None:
    names = ["é", "a", "B", "b", "A", "_", "Z", "z", "漢", "10", "9"]
    await database.write(
        lambda tx: tx.run_many("INSERT INTO things (id) VALUES (?)", [(name,) for name in names])
    )
    assert await ids(database) == sorted(names)


async def test_a_partial_unique_index_minds_only_its_rows(database: Database) -> None:
    taken = "INSERT INTO things (id, note) VALUES (?, 'n') ON CONFLICT DO NOTHING RETURNING id"

    async def work(tx: Connection) -> list[Row | None]:
        first = await tx.one(taken, ("a",))
        second = await tx.one(taken, ("b",))
        await tx.run("UPDATE things SET gone = 1 WHERE id = 'a'")
        return [first, second, await tx.one(taken, ("c",))]

    assert await database.write(work) == [("a",), None, ("c",)]


# -- notices -----------------------------------------------------------------------------------


async def test_listeners_hear_what_was_committed_in_order(database: Database) -> None:
    one: list[str] = []
    same: list[str] = []
    other: list[str] = []
    await database.listen("topic", one.append)
    await database.listen("other", other.append)
    await database.listen("topic", same.append)

    async def work(tx: Connection, number: int) -> None:
        await tx.notify("topic", f"{number}")
        await tx.notify("other", "é" * 3_900)

    for number in range(5):
        await database.write(lambda tx, n=number: work(tx, n))
    await until(lambda: len(one) == len(same) == len(other) == 5)
    assert one == same == list("01234")
    assert other == ["é" * 3_900] * 5


async def test_what_was_undone_is_not_heard(database: Database) -> None:
    heard: list[str] = []
    await database.listen("topic", heard.append)

    async def change_mind(tx: Connection) -> None:
        await tx.notify("topic", "undone")
        raise Upset

    async def half(tx: Connection) -> None:
        await tx.notify("topic", "kept")
        with pytest.raises(Upset):
            async with tx.savepoint():
                await change_mind(tx)

    await asyncio.gather(
        *(database.write(work) for work in (change_mind, half, change_mind)), return_exceptions=True
    )
    with pytest.raises(Upset):
        await database.write(change_mind)
    await database.write(lambda tx: tx.notify("topic", "last"))
    await until(lambda: "last" in heard)
    assert heard == ["kept", "last"]


# -- schema ------------------------------------------------------------------------------------


def more(directory: Path, sql: str) -> list[Migration]:
    """Return the release's own migrations and one more, read from files as a release does."""
    directory.mkdir()
    for migration in load_migrations():
        (directory / migration.name).write_text(migration.sql, "utf-8")
    last = load_migrations()[-1].number
    (directory / f"{last + 1:04}_more.sql").write_text(sql, "utf-8")
    return load_migrations(directory)


def things_and(sql: str) -> list[Migration]:
    return [*THINGS, Migration(2, "0002_more.sql", sql)]


@pytest.mark.promise("X5")
async def test_a_newer_schema_is_refused_and_left_alone(engine: Engine) -> None:
    newer = await engine.open(things_and("ALTER TABLE things ADD COLUMN extra TEXT;"))
    await newer.write(lambda tx: tx.run("INSERT INTO things (id, extra) VALUES ('a', 'b')"))
    await newer.close()
    for readonly in (False, True):
        with pytest.raises(StoreTooNew, match=r"schema 2.* up to 1\b.*Nothing was changed"):
            await engine.open(THINGS, readonly=readonly)
    newer = await engine.open(things_and(""))
    assert await newer.read(lambda tx: tx.all("SELECT id, extra FROM things")) == [("a", "b")]
    assert await newer.check() == []
    await newer.close()
    assert len(engine.snapshots()) == 0


@pytest.mark.promise("X5")
async def test_an_older_schema_is_not_read_before_it_is_brought_up_to_date(engine: Engine) -> None:
    await (await engine.open(THINGS)).close()
    newer = things_and("ALTER TABLE things ADD COLUMN extra TEXT;")
    with pytest.raises(StoreTooOld, match=r"schema 1.* reads schema 2\b.*Nothing was changed"):
        await engine.open(newer, readonly=True)
    await (await engine.open(newer)).close()
    reader = await engine.open(newer, readonly=True)
    assert await reader.read(lambda tx: tx.all("SELECT extra FROM things")) == []
    await reader.close()


@pytest.mark.promise("X5")
@pytest.mark.parametrize("version", [1, load_migrations()[0].number - 1])
async def test_a_schema_from_before_the_first_release_is_refused_and_left_alone(
    engine: Engine, version: int
) -> None:
    old = [Migration(version, "old.sql", THINGS[0].sql)]
    database = await engine.open(old)
    await database.write(lambda tx: put(tx, "a"))
    columns = await database.columns()
    await database.close()
    first = load_migrations()[0].number
    said = rf"schema {version}, from before the first release.* with schema {first}\..*export.*anew"
    for readonly in (False, True):
        with pytest.raises(StoreTooOld, match=rf"{said}.*Nothing was changed\.$"):
            await engine.open(load_migrations(), readonly=readonly)
    database = await engine.open(old)
    assert await database.columns() == columns
    assert await ids(database) == ["a"]
    await database.close()
    assert len(engine.snapshots()) == 0


async def test_a_migration_keeps_the_data_and_a_snapshot_of_it(engine: Engine) -> None:
    database = await engine.open(THINGS)
    await database.write(lambda tx: put(tx, "a", count=1))
    await database.close()
    later = things_and("ALTER TABLE things ADD COLUMN extra TEXT; DELETE FROM things;")
    for _ in range(2):
        database = await engine.open(later)
        await database.write(lambda tx: tx.run("INSERT INTO things (id, extra) VALUES ('b', 'c')"))
        await database.write(lambda tx: tx.run("DELETE FROM things"))
        await database.close()
    assert engine.snapshots() == [[("a", 1, None, None, None, None)]]


async def test_the_release_can_be_migrated(engine: Engine, tmp_path: Path) -> None:
    database = await engine.open(load_migrations())
    await database.write(
        lambda tx: tx.run(
            "INSERT INTO inbox (agent_id, arrival, id, kind, channel, body, at)"
            " VALUES ('a', 1, 'm', 'message', 'terminal', ?, 0)",
            (b"\0body",),
        )
    )
    await database.close()
    database = await engine.open(
        more(tmp_path / "migrations", "ALTER TABLE inbox ADD COLUMN x TEXT;")
    )
    assert await database.check() == []
    assert await database.read(lambda tx: tx.all("SELECT body, x FROM inbox")) == [
        (b"\0body", None)
    ]
    await database.close()


async def test_a_failing_migration_leaves_the_old_schema(engine: Engine) -> None:
    database = await engine.open(THINGS)
    await database.write(lambda tx: put(tx, "a"))
    await database.close()
    broken = things_and("DELETE FROM things; CREATE TABLE extra (id TEXT); CREATE NONSENSE;")
    with pytest.raises((apsw.Error, psycopg.Error)):
        await engine.open(broken)
    database = await engine.open(THINGS)
    assert await ids(database) == ["a"]
    assert await database.check() == []
    await database.write(lambda tx: put(tx, "b"))
    await database.close()
    mended = await engine.open(things_and("CREATE TABLE extra (id TEXT);"))
    assert await ids(mended) == ["a", "b"]
    await mended.close()


# -- SQLite alone ------------------------------------------------------------------------------


@pytest.mark.promise("X5")
@pytest.mark.parametrize("mode", ["wal", "delete"])
@pytest.mark.parametrize("version", [1, 10_000])
async def test_sqlite_leaves_every_byte_of_a_schema_that_it_does_not_know(
    tmp_path: Path, version: int, mode: str
) -> None:
    """A snapshot that was put back, for one, has no log to write ahead."""
    await (await open_sqlite(tmp_path, migrations=[Migration(version, "", "")])).close()
    with closing(sqlite3.connect(tmp_path / "asterism.db")) as raw:
        raw.execute(f"PRAGMA journal_mode={mode}")
    before = (tmp_path / "asterism.db").read_bytes()
    for readonly in (False, True):
        with pytest.raises((StoreTooOld, StoreTooNew)):
            await open_sqlite(tmp_path, readonly=readonly)
    assert (tmp_path / "asterism.db").read_bytes() == before
    assert not (tmp_path / "snapshots").exists()


async def test_sqlite_refuses_a_transaction_that_waits_for_something_else(tmp_path: Path) -> None:
    database = await open_sqlite(tmp_path, migrations=THINGS)

    async def work(tx: Connection) -> None:
        await put(tx, "a")
        await asyncio.sleep(0)

    with pytest.raises(RuntimeError, match="await its connection and nothing else"):
        await database.write(work)
    with pytest.raises(RuntimeError, match="await its connection and nothing else"):
        await database.read(lambda _: asyncio.sleep(0))
    assert await ids(database) == []
    await database.close()


@pytest.mark.promise("X5")
@pytest.mark.parametrize("trace", ["asterism.db-wal", "snapshots"])
async def test_sqlite_does_not_replace_a_database_that_is_gone(tmp_path: Path, trace: str) -> None:
    (tmp_path / trace).mkdir()
    with pytest.raises(StoreMissing, match=f"{trace}.*Nothing was created"):
        await open_sqlite(tmp_path)
    assert not (tmp_path / "asterism.db").exists()
    (tmp_path / trace).rename(tmp_path / "aside")
    await (await open_sqlite(tmp_path)).close()


HOLD = (
    "import asyncio, pathlib, sys\n"
    "from asterism.store.sqlite import open_sqlite\n"
    "async def main():\n"
    "    database = await open_sqlite(pathlib.Path(sys.argv[1]))\n"
    "    print('open', flush=True)\n"
    "    sys.stdin.read()\n"
    "    await database.close()\n"
    "asyncio.run(main())\n"
)


@pytest.mark.promise("X5")
async def test_sqlite_is_for_one_process_at_a_time(tmp_path: Path) -> None:
    other = await asyncio.create_subprocess_exec(
        sys.executable, "-c", HOLD, tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert other.stdout is not None
    assert await other.stdout.readline() == b"open\n"
    with pytest.raises(StoreInUse, match=rf"process {other.pid}\b.*Nothing was changed"):
        await open_sqlite(tmp_path)
    looking = await open_sqlite(tmp_path, readonly=True)
    assert await looking.check() == []
    await looking.close()
    await other.communicate(b"")
    assert other.returncode == 0
    await (await open_sqlite(tmp_path)).close()


@pytest.mark.promise("X5")
async def test_sqlite_needs_a_directory(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("mine")
    for place in (file, file / "below"):
        with pytest.raises(StoreReadOnly, match="Nothing was changed"):
            await open_sqlite(place)
    assert file.read_text() == "mine"


@pytest.mark.promise("X5")
@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_sqlite_in_a_read_only_directory(tmp_path: Path) -> None:
    async def opened(directory: Path) -> None:
        await (await open_sqlite(directory, migrations=THINGS)).close()

    asyncio.run(opened(tmp_path))
    (tmp_path / "asterism.db").chmod(0o400)
    tmp_path.chmod(0o500)
    try:
        for directory in (tmp_path, tmp_path / "new"):
            with pytest.raises(StoreReadOnly, match=r"Nothing (was )?changed"):
                asyncio.run(opened(directory))
    finally:
        tmp_path.chmod(0o700)


@pytest.mark.promise("X5")
async def test_sqlite_leaves_a_file_alone_that_is_no_database(tmp_path: Path) -> None:
    (tmp_path / "asterism.db").write_bytes(b"Dear diary, " * 1000)
    with pytest.raises(StoreDamaged, match=r"not a healthy database.*Nothing was changed"):
        await open_sqlite(tmp_path)
    assert (tmp_path / "asterism.db").read_bytes() == b"Dear diary, " * 1000


@pytest.mark.promise("X5")
async def test_sqlite_tells_of_a_damaged_file(tmp_path: Path) -> None:
    database = await open_sqlite(tmp_path, migrations=THINGS)
    await database.write(
        lambda tx: tx.run_many(
            "INSERT INTO things (id, body) VALUES (?, ?)",
            [(f"{n:04}", b"x" * 900) for n in range(500)],
        )
    )
    await database.close()
    with (tmp_path / "asterism.db").open("r+b") as file:
        file.seek(4096 * 8)
        file.write(b"\xff" * 4096 * 4)
    database = await open_sqlite(tmp_path, migrations=THINGS)
    assert await database.check() != []
    with pytest.raises(StoreDamaged):
        await database.read(lambda tx: tx.all("SELECT body FROM things"))
    await database.close()


class Faults:
    """Fails chosen writes and syncs of the files under it, counted from `arm`."""

    def __init__(self) -> None:
        self.fails: Callable[[str, int], apsw.Error | None] = lambda _kind, _number: None
        self._count = itertools.count(1)

    def arm(self, fails: Callable[[str, int], apsw.Error | None]) -> None:
        self._count = itertools.count(1)
        self.fails = fails

    def disarm(self) -> None:
        self.fails = lambda _kind, _number: None

    def meet(self, kind: str) -> None:
        error = self.fails(kind, next(self._count))
        if error is not None:
            raise error


class FaultyFile(apsw.VFSFile):
    def __init__(
        self, faults: Faults, name: str | apsw.URIFilename | None, flags: list[int]
    ) -> None:
        # APSW raises when a read-only file cannot be locked for writing, which SQLite tries, and
        # takes lightly, at the end.
        writable = (flags[0] & ~apsw.SQLITE_OPEN_READONLY) | apsw.SQLITE_OPEN_READWRITE
        super().__init__("", name, [writable, 0])
        flags[1] = flags[0]
        self._faults = faults

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802
        self._faults.meet("write")
        super().xWrite(data, offset)  # pyright: ignore[reportUnknownMemberType] - the stub's buffer

    def xSync(self, flags: int) -> None:  # noqa: N802
        self._faults.meet("sync")
        super().xSync(flags)


class FaultyDisk(apsw.VFS):
    def __init__(self, name: str, faults: Faults) -> None:
        super().__init__(name, "")
        self._faults = faults

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> FaultyFile:  # noqa: N802
        return FaultyFile(self._faults, name, flags)

    def excepthook(self, etype: object, evalue: object, etraceback: object) -> bool:
        """Stay silent: the failures are meant."""
        return True


@pytest.fixture
def faults() -> Iterator[Faults]:
    faults = Faults()
    disk = FaultyDisk("faulty", faults)
    yield faults
    disk.unregister()


def full() -> apsw.Error:
    return apsw.FullError("disk full")


def not_synced() -> apsw.Error:
    error = apsw.IOError("fsync failed")
    error.extendedresult = apsw.SQLITE_IOERR_FSYNC  # pyright: ignore[reportAttributeAccessIssue] - APSW's own
    return error


async def reopened_ids(directory: Path) -> list[str]:
    with closing(sqlite3.connect(directory / "asterism.db")) as raw:
        assert raw.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    database = await open_sqlite(directory, migrations=THINGS)
    found = await ids(database)
    await database.close()
    return found


@pytest.mark.promise("X5")
@pytest.mark.parametrize("number", range(1, 5))
@pytest.mark.parametrize(
    ("kind", "error", "expected"),
    [("write", full, StoreFull), ("sync", not_synced, StoreUnavailable)],
)
async def test_sqlite_acknowledges_nothing_that_the_disk_refused(
    tmp_path: Path,
    faults: Faults,
    kind: str,
    error: Callable[[], apsw.Error],
    expected: type[StoreError],
    number: int,
) -> None:
    """The disk fails from a given operation on, until it is mended."""
    database = await open_sqlite(tmp_path, migrations=THINGS, vfs="faulty")
    await database.write(lambda tx: put(tx, "before"))
    faults.arm(lambda what, count: error() if what == kind and count >= number else None)
    acknowledged: list[str] = []
    refused: list[str] = []
    for group in range(4):
        names = [f"{group}-{each}" for each in range(3)]
        done = await asyncio.gather(
            *(database.write(lambda tx, n=n: put(tx, n)) for n in names), return_exceptions=True
        )
        for name, result in zip(names, done, strict=True):
            assert result == name or isinstance(result, expected), result
            (acknowledged if result == name else refused).append(name)
    assert refused
    faults.disarm()
    await database.write(lambda tx: put(tx, "later"))
    assert await database.check() == []
    await database.close()
    found = await reopened_ids(tmp_path)
    assert set(found) >= {"before", "later", *acknowledged}
    assert not set(found) & set(refused)


@pytest.mark.promise("X5")
async def test_sqlite_cannot_be_made_on_a_full_disk(tmp_path: Path, faults: Faults) -> None:
    faults.arm(lambda what, _: full() if what == "write" else None)
    with pytest.raises(StoreFull, match="no room left"):
        await open_sqlite(tmp_path, migrations=THINGS, vfs="faulty")
    faults.disarm()
    await (await open_sqlite(tmp_path, migrations=THINGS, vfs="faulty")).close()


async def test_sqlite_keeps_its_data_when_a_migration_meets_a_full_disk(
    tmp_path: Path, faults: Faults
) -> None:
    database = await open_sqlite(tmp_path, migrations=THINGS, vfs="faulty")
    await database.write(lambda tx: put(tx, "a"))
    await database.close()
    later = things_and("DELETE FROM things; CREATE TABLE extra (id TEXT);")
    for number in range(1, 200):
        faults.arm(lambda what, count, n=number: full() if what == "write" and count >= n else None)
        try:
            database = await open_sqlite(tmp_path, migrations=later, vfs="faulty")
        except StoreFull:
            faults.disarm()
            assert await reopened_ids(tmp_path) == ["a"]
            continue
        faults.disarm()
        await database.close()
        assert number > 1
        return
    pytest.fail("the migration never went through")


async def test_sqlite_gives_up_its_directory_when_opening_fails(tmp_path: Path) -> None:
    first = await open_sqlite(tmp_path, migrations=THINGS)
    with pytest.raises(StoreInUse):
        await open_sqlite(tmp_path, migrations=THINGS)
    await first.close()
    with pytest.raises(apsw.SQLError):
        await open_sqlite(tmp_path, migrations=things_and("CREATE NONSENSE;"))
    await (await open_sqlite(tmp_path, migrations=THINGS)).close()
