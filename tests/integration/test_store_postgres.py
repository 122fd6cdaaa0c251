"""PostgreSQL when it is out of reach, restarted, full, or not ours to write."""

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest

from asterism.errors import (
    AsterismError,
    ConfigError,
    StoreFull,
    StoreReadOnly,
    StoreTooNew,
    StoreUnavailable,
)
from asterism.store import postgres
from asterism.store.database import Connection, Migration, load_migrations
from asterism.store.postgres import Postgres, open_postgres
from asterism.testing.postgres import PostgresServer, postgres_server

pytestmark = pytest.mark.postgres

SECRET = "s3cr3t-pa55"


@pytest.fixture
def server() -> PostgresServer:
    return postgres_server(fsync=True)


@pytest.fixture
def url(server: PostgresServer) -> Iterator[str]:
    with server.database() as url:
        yield url


@pytest.fixture
async def database(url: str) -> AsyncIterator[Postgres]:
    database = await open_postgres(url)
    yield database
    await database.close()


async def note(tx: Connection, id: str) -> str:
    await tx.run(
        "INSERT INTO notices (id, agent_id, kind, text, at) VALUES (?, 'a', 'k', 't', 0)", (id,)
    )
    return id


async def notes(database: Postgres) -> set[str]:
    return {row[0] for row in await database.read(lambda tx: tx.all("SELECT id FROM notices"))}


async def define(database: Postgres, *statements: str) -> None:
    async def work(tx: Connection) -> None:
        for statement in statements:
            await tx.run(statement)

    await database.write(work)


async def on_each_note(database: Postgres, body: str, *, at_commit: bool = False) -> None:
    """Run PL/pgSQL for each new notice, at once or when its transaction commits."""
    timing = "CONSTRAINT TRIGGER t AFTER INSERT ON notices DEFERRABLE INITIALLY DEFERRED"
    await define(
        database,
        f"CREATE FUNCTION f() RETURNS trigger AS $$ BEGIN {body}; RETURN NEW; END $$"
        " LANGUAGE plpgsql",
        f"CREATE {timing if at_commit else 'TRIGGER t BEFORE INSERT ON notices'}"
        " FOR EACH ROW EXECUTE FUNCTION f()",
    )


# -- opening -----------------------------------------------------------------------------------


@pytest.mark.promise("X5")
@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://me:{SECRET}@loopback:name/db",
        f"postgresql://me:{SECRET}@{SECRET}@host/db",
        f"postgresql://me:4/{SECRET}@host/db",
        f"postgresql://me:{SECRET}%zz@host/db",
        f"mysql://me:{SECRET}@host/db",
        SECRET,
        "",
    ],
)
async def test_an_address_that_cannot_be_read(url: str) -> None:
    with pytest.raises(ConfigError, match="postgresql://user:password@host:5432/name") as caught:
        await open_postgres(url)
    assert SECRET not in str(caught.value)
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


@pytest.mark.promise("X5")
async def test_a_server_that_is_not_there() -> None:
    with pytest.raises(
        StoreUnavailable, match=r"127\.0\.0\.1:9/db is out of reach \(Connection refused\)"
    ) as caught:
        await open_postgres(f"postgresql://me:{SECRET}@127.0.0.1:9/db")
    assert SECRET not in str(caught.value)


@pytest.mark.promise("X5")
async def test_a_wrong_password(server: PostgresServer, url: str) -> None:
    server.add_user("locked_in", SECRET)
    wrong = url.replace("//postgres:", f"//locked_in:not-{SECRET}")
    with pytest.raises(ConfigError, match="refused the password of user 'locked_in'") as caught:
        await open_postgres(wrong)
    assert SECRET not in str(caught.value)
    with pytest.raises(ConfigError, match="refused the password of user 'locked_in'"):
        await open_postgres(url.replace("//postgres:", "//locked_in:"))
    with pytest.raises(StoreReadOnly):  # let in, with nothing granted
        await open_postgres(wrong.replace("not-", ""))


@pytest.mark.promise("X5")
async def test_a_database_or_a_user_that_does_not_exist(server: PostgresServer, url: str) -> None:
    with pytest.raises(ConfigError, match=r"has no database 'nowhere'.*createdb nowhere"):
        await open_postgres(server.url("nowhere"))
    with pytest.raises(ConfigError, match=r"has no user 'nobody'.*createuser nobody"):
        await open_postgres(url.replace("//postgres:", "//nobody:"))


@pytest.mark.promise("X5")
async def test_a_user_without_rights(server: PostgresServer) -> None:
    server.add_user("guest", SECRET)
    with server.database(empty=True) as url:
        as_guest = url.replace("//postgres:", f"//guest:{SECRET}")
        with pytest.raises(StoreReadOnly, match=r"'guest' may not write.*Grant") as caught:
            await open_postgres(as_guest)
        assert SECRET not in str(caught.value)
        owner = await open_postgres(url)
        await define(owner, "GRANT SELECT ON ALL TABLES IN SCHEMA public TO guest")
        await owner.close()
        database = await open_postgres(as_guest)
        assert await notes(database) == set()
        with pytest.raises(StoreReadOnly, match=r"'guest' may not write.*Nothing was written"):
            await database.write(lambda tx: note(tx, "a"))
        await database.close()


@pytest.mark.promise("D2")
async def test_workers_that_start_at_once_set_the_database_up_once(server: PostgresServer) -> None:
    with server.database(empty=True) as url:
        opened = await asyncio.gather(*(open_postgres(url, pool_size=1) for _ in range(8)))
        later = [
            *load_migrations(),
            Migration(9_999, "9999_more.sql", "CREATE TABLE more (id TEXT)"),
        ]
        # Of a database without a row no copy is made.
        await opened[0].write(lambda tx: tx.run("INSERT INTO anchors VALUES ('home', 1)"))
        for database in opened:
            await database.close()
        opened = await asyncio.gather(
            *(open_postgres(url, migrations=later, pool_size=1) for _ in range(8))
        )
        assert await opened[0].check() == []
        snapshots = await opened[0].read(
            lambda tx: tx.all("SELECT 1 FROM pg_namespace WHERE nspname LIKE 'asterism_snapshot_%'")
        )
        assert len(snapshots) == 1
        for database in opened:
            await database.close()


# -- while it runs -----------------------------------------------------------------------------


@pytest.mark.promise("D2")
async def test_a_crash_of_the_server_loses_nothing_that_was_confirmed(
    server: PostgresServer, database: Postgres
) -> None:
    confirmed: set[str] = set()
    failures: list[AsterismError] = []
    heard: list[str] = []
    await database.listen("topic", heard.append)
    over = asyncio.Event()

    async def keep_writing(name: str) -> None:
        number = 0
        while not over.is_set():
            number += 1
            try:
                confirmed.add(await database.write(lambda tx, n=number: note(tx, f"{name}-{n}")))
            except StoreUnavailable as error:
                failures.append(error)

    async def more(count: int) -> None:
        target = len(confirmed) + count
        while len(confirmed) < target:  # noqa: ASYNC110 - four tasks count
            await asyncio.sleep(0.01)

    async with asyncio.timeout(120), asyncio.TaskGroup() as writers:
        for name in "abcd":
            writers.create_task(keep_writing(name))
        for way_down in (server.crash, server.stop):
            await more(100)
            await asyncio.to_thread(way_down)
            await asyncio.to_thread(server.start)
        await more(100)
        over.set()

    found = await notes(database)
    assert confirmed <= found
    # Of a commit that was cut off nothing is known; of every other failure, that nothing happened.
    unknown = [error for error in failures if "not known" in error.message]
    assert len(found - confirmed) <= len(unknown)
    assert await database.check() == []
    async with asyncio.timeout(120):
        while not heard:
            await database.write(lambda tx: tx.notify("topic", "back"))
            await asyncio.sleep(0.05)


async def test_a_topic_named_while_the_server_is_away_is_heard_when_it_is_back(
    server: PostgresServer, database: Postgres
) -> None:
    heard: list[str] = []
    back = asyncio.Event()
    await database.listen("topic", heard.append)
    await asyncio.to_thread(server.stop)
    try:
        for number in range(2):
            await database.listen(f"other_{number}", heard.append, missed=back.set)
    finally:
        await asyncio.to_thread(server.start)
    async with asyncio.timeout(120):
        await back.wait()
        for topic in ("other_0", "other_1", "topic"):
            await database.write(lambda tx, topic=topic: tx.notify(topic, topic))
        while len(heard) < 3:  # noqa: ASYNC110 - the notices are the database's
            await asyncio.sleep(0.01)
    assert heard == ["other_0", "other_1", "topic"]


async def test_a_lost_connection_is_replaced_before_anybody_notices(database: Postgres) -> None:
    for id in ("a", "b", "c"):
        await asyncio.gather(*(database.write(lambda tx, n=n: note(tx, n)) for n in (id, id * 2)))
        with pytest.raises(StoreUnavailable):
            await database.write(
                lambda tx: tx.run(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                    " WHERE datname = current_database()"
                )
            )
    assert await notes(database) == {"a", "aa", "b", "bb", "c", "cc"}


async def test_when_a_commit_is_cut_off_its_outcome_is_not_known(database: Postgres) -> None:
    await on_each_note(database, "PERFORM pg_terminate_backend(pg_backend_pid())", at_commit=True)
    with pytest.raises(StoreUnavailable, match="Whether this was written is not known"):
        await database.write(lambda tx: note(tx, "a"))
    assert await notes(database) == set()


@pytest.mark.promise("X5")
async def test_a_server_that_is_down(
    server: PostgresServer, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "_PATIENCE", 0.5)
    database = await open_postgres(url)
    server.stop()
    try:
        with pytest.raises(StoreUnavailable, match=r"is out of reach .*Nothing was"):
            await database.write(lambda tx: note(tx, "a"))
        with pytest.raises(StoreUnavailable, match=r"is out of reach .*Nobody listens"):
            await database.listen("topic", print)
        assert "is out of reach" in (await database.check())[0]
    finally:
        server.start()
    assert await database.write(lambda tx: note(tx, "b")) == "b"
    assert await notes(database) == {"b"}
    await database.close()


async def test_connections_that_are_all_busy(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres, "_MAX_QUEUE", 0.3)
    database = await open_postgres(url, pool_size=1)
    slow = asyncio.create_task(database.read(lambda tx: tx.one("SELECT 1 FROM pg_sleep(1)")))
    await asyncio.sleep(0.05)
    with pytest.raises(
        StoreUnavailable, match=r"All connections .* were busy .*Nothing was written"
    ):
        await database.write(lambda tx: note(tx, "a"))
    assert await slow == (1,)
    await database.close()


@pytest.mark.promise("X5")
async def test_a_full_disk(database: Postgres) -> None:
    await on_each_note(database, "RAISE EXCEPTION 'no room' USING ERRCODE = 'disk_full'")
    with pytest.raises(StoreFull, match=r"no room left.*this was not written"):
        await database.write(lambda tx: note(tx, "a"))
    await define(database, "DROP TRIGGER t ON notices")
    assert await database.write(lambda tx: note(tx, "b")) == "b"
    assert await notes(database) == {"b"}


async def test_a_standby_takes_no_writes(url: str) -> None:
    read_only = await open_postgres(f"{url}&options=-cdefault_transaction_read_only%3Don")
    with pytest.raises(StoreReadOnly, match=r"name the primary server.*Nothing was written"):
        await read_only.write(lambda tx: note(tx, "a"))
    await read_only.close()


# -- transactions ------------------------------------------------------------------------------


async def test_a_clash_is_tried_again(database: Postgres) -> None:
    await define(database, "CREATE SEQUENCE tries")
    await on_each_note(
        database,
        "IF nextval('tries') % 4 <> 0 THEN"
        " RAISE EXCEPTION 'clash' USING ERRCODE = 'serialization_failure'; END IF",
    )
    assert await database.write(lambda tx: note(tx, "a")) == "a"
    await define(database, "DROP TRIGGER t ON notices", "DROP FUNCTION f")
    await on_each_note(database, "RAISE EXCEPTION 'clash' USING ERRCODE = 'deadlock_detected'")
    with pytest.raises(StoreUnavailable, match=r"Others keep changing.*Nothing was written"):
        await database.write(lambda tx: note(tx, "b"))
    assert await notes(database) == {"a"}


async def test_two_that_wait_for_each_other_both_get_through(database: Postgres) -> None:
    await database.write(lambda tx: note(tx, "a"))
    await database.write(lambda tx: note(tx, "b"))
    both_began = asyncio.Barrier(2)
    meet = True

    async def work(tx: Connection, first: str, second: str) -> None:
        nonlocal meet
        add = "UPDATE notices SET at = at + 1 WHERE id = ?"
        await tx.run(add, (first,))
        if meet:
            await both_began.wait()
            meet = False
        await tx.run(add, (second,))

    async with asyncio.timeout(120):
        await asyncio.gather(
            database.write(lambda tx: work(tx, "a", "b")),
            database.write(lambda tx: work(tx, "b", "a")),
        )
    rows = await database.read(lambda tx: tx.all("SELECT at FROM notices"))
    assert rows == [(2,), (2,)]


async def test_a_failure_that_was_passed_over_is_not_taken_for_success(database: Postgres) -> None:
    async def work(tx: Connection) -> None:
        await note(tx, "a")
        try:
            await note(tx, "a")
        except Exception:  # noqa: BLE001 - whatever a careless caller passes over
            return

    with pytest.raises(RuntimeError, match=r"passed over outside a savepoint.*Nothing was written"):
        await database.write(work)
    assert await notes(database) == set()


async def test_a_lane_is_put_to_work_only_by_a_commit(database: Postgres) -> None:
    async def work(tx: Connection, *, fail: bool) -> None:
        await tx.enqueue("agent_1")
        if fail:
            raise LookupError

    with pytest.raises(LookupError):
        await database.write(lambda tx: work(tx, fail=True))
    await database.write(lambda tx: work(tx, fail=False))
    jobs = await database.read(
        lambda tx: tx.all(
            "SELECT queue_name, task_name, lock, status::text FROM procrastinate_jobs"
        )
    )
    assert jobs == [("lanes", "lane", "agent_1", "todo")]


async def test_a_cancelled_transaction_leaves_a_clean_connection(url: str) -> None:
    database = await open_postgres(url, pool_size=1)

    async def work(tx: Connection) -> None:
        await note(tx, "a")
        await tx.run("SELECT pg_sleep(30)")

    for _ in range(3):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await database.write(work)
    assert await notes(database) == set()
    await database.close()


async def test_a_notice_is_short(database: Postgres) -> None:
    with pytest.raises(ValueError, match="at most 7900 bytes"):
        await database.write(lambda tx: tx.notify("topic", "é" * 4_000))


async def test_a_closed_database_says_so(url: str) -> None:
    database = await open_postgres(url)
    await database.close()
    with pytest.raises(StoreUnavailable, match=r"was closed.*Nothing was written"):
        await database.write(lambda tx: note(tx, "a"))


# -- health ------------------------------------------------------------------------------------


async def test_the_check_finds_what_is_wrong(database: Postgres) -> None:
    await define(database, "DROP TABLE notices", "DROP TABLE procrastinate_jobs CASCADE")
    assert await database.check() == [
        "The table 'notices' is missing.",
        "The table 'procrastinate_jobs' is missing.",
    ]
    await define(database, "DELETE FROM schema_versions")
    assert (await database.check())[0].startswith("The schema is 0, and this release needs ")
    await define(database, "INSERT INTO schema_versions VALUES (10000, 0)")
    assert "has schema 10000" in (await database.check())[0]
    with pytest.raises(StoreTooNew):
        await database.open(load_migrations())


async def test_the_check_finds_a_server_that_does_not_sync(
    server: PostgresServer, database: Postgres
) -> None:
    await database.write(
        lambda tx: tx.run(
            "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET synchronous_commit = off',"
            " current_database()); END $$"
        )
    )
    assert await database.check() == [
        "The server runs with synchronous_commit = off, and may lose what it confirmed."
    ]
