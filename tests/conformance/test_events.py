"""The audit log at rest: appended in order, found, verified, forgotten without breaking a chain."""

# apsw's stubs use a type that they do not define, so that all its methods count as partly unknown.
# pyright: reportUnknownMemberType=false

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import closing
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any, cast

import apsw
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asterism.memory.forgetting import Forgetting, forget
from asterism.store import events
from asterism.store.database import Connection, Database
from asterism.store.events import Event, Verified, home_chain, verify
from asterism.store.forgetting import ForgetRequest, empty_events
from asterism.store.sqlite import open_sqlite
from asterism.telemetry import redaction
from tests.conformance.memory_scene import ENGINES, HOME, NOW, as_owner, opened, put_agent

HOME_CHAIN = home_chain(HOME)
REQUEST = ForgetRequest(HOME, by="owner", at=NOW, receipt="tomb_1")
COLUMNS = (
    *("chain", "number", "at", "kind", "actor", "agent_id", "turn_id", "body", "salt"),
    *("digest", "hash"),
)


@pytest.fixture(params=ENGINES)
async def database(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Database]:
    async with opened(request.param, tmp_path) as database:
        yield database


def some(count: int, first: int = 0, **given: Any) -> list[Event]:
    return [
        Event("call.done", "agent:aria", NOW + first + number, {"what": f"call {number}"}, **given)
        for number in range(count)
    ]


async def append(database: Database, chain: str, made: Sequence[Event]) -> None:
    await database.write(lambda tx: events.append(tx, chain, made))


async def scene(database: Database) -> str:
    """An agent with 12 events, a home with 3, of which one is an anchor; return the agent's id."""
    agent_id = await database.write(lambda tx: put_agent(tx, "aria"))
    await append(database, agent_id, some(5, agent_id=agent_id, turn_id="turn_1"))
    await append(database, agent_id, some(7, 5, agent_id=agent_id, turn_id="turn_2"))
    await append(database, HOME_CHAIN, [Event("agent.created", "owner", NOW, {"name": "aria"})])
    assert await database.write(lambda tx: events.anchor(tx, NOW + 20)) == 1
    await append(database, HOME_CHAIN, [Event("key.set", "owner", NOW + 30, {"name": "openai"})])
    return agent_id


@pytest.mark.promise("X2")
async def test_events_are_numbered_linked_and_found(database: Database):
    agent_id = await scene(database)
    found = await verify(database, batch=4)
    assert (found.sound, found.events, found.forgotten) == (True, 15, 0)
    assert [(one.chain, one.length) for one in found.heads] == [(HOME_CHAIN, 3), (agent_id, 12)]

    async def page(**given: Any) -> list[tuple[str, int]]:
        rows = await database.read(lambda tx: events.page(tx, **given))
        return [("home" if one.chain == HOME_CHAIN else "aria", one.number) for one in rows]

    assert await page(limit=3) == [("home", 3), ("home", 2), ("aria", 12)]
    assert await page(kind="call", limit=2) == [("aria", 12), ("aria", 11)]
    assert await page(kind="agent.created") == [("home", 1)]
    assert await page(kind="agent.creat") == []
    assert len(await page(turn_id="turn_1")) == 5
    assert len(await page(agent_id=agent_id)) == 12
    assert await page(since=NOW + 10, until=NOW + 20) == [
        ("home", 2),
        ("aria", 12),
        ("aria", 11),
    ]
    assert await page(actor="owner") == [("home", 3), ("home", 1)]
    assert await page(before=(NOW, HOME_CHAIN, 1)) == [("aria", 1)]
    assert await database.for_constellation("elsewhere").read(events.page) == []
    one = await database.read(lambda tx: events.get(tx, agent_id, 3))
    assert one is not None
    assert one.body == {"what": "call 2"}
    assert await database.write(lambda tx: events.anchor(tx, NOW)) == 0


async def test_an_event_is_in_the_transaction_of_its_effect(database: Database):
    async def fails(tx: Connection) -> None:
        await put_agent(tx, "ben")
        await events.append(tx, HOME_CHAIN, some(1))
        raise RuntimeError

    with pytest.raises(RuntimeError):
        await database.write(fails)
    found = await verify(database)
    assert (found.sound, found.events) == (True, 0)


@pytest.mark.promise("X2")
async def test_those_who_append_at_once_wait_for_each_other(database: Database):
    await asyncio.gather(*(append(database, HOME_CHAIN, some(3, n * 10)) for n in range(12)))
    found = await verify(database)
    assert (found.sound, found.events) == (True, 36)


@pytest.mark.promise("X3")
async def test_a_secret_never_gets_into_an_event(database: Database):
    canary = 'canary-4711-"quoted"-0815'
    redaction.add_secret("test-canary", canary)
    body = {"arguments": orjson.dumps({"key": canary}).decode(), "plain": canary}
    await append(database, HOME_CHAIN, [Event("call.done", f"by {canary}", NOW, body)])
    [one] = await database.read(events.page)
    assert one.actor == "by [redacted test-canary]"
    put = "[redacted test-canary]"
    assert one.body == {"arguments": f'{{"key":"{put}"}}', "plain": put}
    assert (await verify(database)).sound


async def test_odd_bodies_are_taken(database: Database):
    bodies = [
        {"lone": "\udcff"},
        {"nul": "\x00"},
        {"long": "x" * 100_000},
        {"deep": [[[{"a": {1, 2}}]]]},
        {},
    ]
    await append(database, HOME_CHAIN, [Event("k", "a\x00b", NOW, body) for body in bodies])
    rows = await database.read(events.page)
    assert len(rows) == 5
    assert len(rows[2].body["long"]) < 3_000 if rows[2].body else False
    assert (await verify(database)).sound


@pytest.mark.promise("M13", "X2")
async def test_forgetting_takes_the_body_and_leaves_the_chain_whole(
    database: Database, tmp_path: Path
):
    agent_id = await scene(database)
    made = Event("call.done", "agent:aria", NOW, {"to": "anna.canary@example.org"})
    await append(database, agent_id, [made])
    receipt = await forget(
        database, tmp_path, as_owner(), Forgetting(texts=("anna.canary@example.org",))
    )
    assert receipt.places["events.body"] == 1
    one = await database.read(lambda tx: events.get(tx, agent_id, 13))
    assert one is not None
    assert (one.body, one.salt, one.kind) == (None, None, "call.done")
    found = await verify(database)
    # One more than were written: the one that names what was emptied.
    assert (found.sound, found.events, found.forgotten) == (True, 17, 1)


@pytest.mark.promise("M13", "X2")
async def test_a_forgotten_agent_leaves_an_empty_chain(database: Database, tmp_path: Path):
    agent_id = await scene(database)
    await forget(database, tmp_path, as_owner(), Forgetting(agents=(agent_id,)))
    found = await verify(database)
    assert (found.sound, found.forgotten) == (True, 12)


@pytest.mark.promise("X2")
async def test_a_body_is_a_fault_if_no_forgetting_names_it(database: Database, tmp_path: Path):
    agent_id = await scene(database)
    made = Event("call.done", "agent:aria", NOW, {"to": "anna.canary@example.org"})
    await append(database, agent_id, [made, *some(1, 99)])
    await append(database, HOME_CHAIN, [made])
    what = Forgetting(texts=("anna.canary@example.org",))
    receipt = await forget(database, tmp_path, as_owner(), what)
    named = await database.read(lambda tx: events.page(tx, kind="audit.emptied"))
    told = [(one.chain, one.actor, (one.body or {})) for one in named]
    assert {(chain, actor) for chain, actor, _ in told} == {(HOME_CHAIN, "owner")}
    assert {body["receipt"] for _, _, body in told} == {receipt.id}
    numbers = {chain: spans for _, _, body in told for chain, spans in body["emptied"].items()}
    assert numbers == {agent_id: [[13, 13]], HOME_CHAIN: [[4, 4]]}
    assert (await verify(database, batch=2)).sound

    wipe = "UPDATE events SET body = NULL, salt = NULL WHERE chain = ? AND number BETWEEN 4 AND 6"
    found = await spoilt(database, wipe, agent_id)
    assert [(one.chain, one.number) for one in found.flaws] == [(agent_id, n) for n in (4, 5, 6)]
    assert found.forgotten == 5


@pytest.mark.promise("X2")
async def test_the_event_that_names_what_was_emptied_is_not_emptied(
    database: Database, tmp_path: Path
):
    agent_id = await scene(database)
    await append(database, agent_id, [Event("k", "a", NOW, {"to": "a-canary-word"})])
    await forget(database, tmp_path, as_owner(), Forgetting(texts=("a-canary-word",)))
    # Words of asterism's own, in the body of that event and of the anchor.
    what = Forgetting(texts=("emptied", agent_id, "heads of 1 chain"))
    await forget(database, tmp_path, as_owner(), what)
    assert (await verify(database)).sound
    rows = await database.read(lambda tx: events.page(tx, kind="audit"))
    assert len(rows) >= 2
    assert all(one.body is not None for one in rows)
    wipe = "UPDATE events SET body = NULL, salt = NULL WHERE kind = 'audit.emptied'"
    found = await spoilt(database, wipe)
    assert (agent_id, 13) in {(one.chain, one.number) for one in found.flaws}


@pytest.mark.promise("X2")
async def test_forgetting_beside_verifying_is_no_fault(database: Database, tmp_path: Path):
    """The home's chain is read before the others, so what names them may come behind it."""
    agent_id = await scene(database)
    await append(database, agent_id, some(40, 50, turn_id="turn_9"))
    seen: list[int] = []
    forgetting: list[asyncio.Task[Any]] = []

    def progress(count: int) -> None:
        seen.append(count)
        if count == 6:  # the home's chain, and the first of the agent's

            async def work(tx: Connection) -> None:
                await empty_events(tx, REQUEST, [(agent_id, 40), (agent_id, 41)])
                await events.anchor(tx, NOW)

            forgetting.append(asyncio.ensure_future(database.write(work)))

    class Waiting:
        """The same database, which lets the forgetting come first."""

        async def read(self, work: Any, **options: Any) -> Any:
            await asyncio.gather(*forgetting)
            return await database.read(work)

    found = await verify(cast("Database", Waiting()), progress, batch=3)
    assert forgetting
    assert (found.flaws, found.forgotten) == ([], 2)


@pytest.mark.promise("X2")
async def test_many_that_were_emptied_are_named_in_several_events(database: Database):
    agent_id = await scene(database)
    await append(database, agent_id, some(3_000, 50))
    gone = [(agent_id, number) for number in range(14, 3_000, 2)]
    await database.write(lambda tx: empty_events(tx, REQUEST, gone))
    found = await verify(database)
    assert (found.flaws, found.forgotten) == ([], len(gone))
    assert len(await database.read(lambda tx: events.page(tx, kind="audit.emptied"))) > 1


# -- what was changed ------------------------------------------------------------------------------


async def spoilt(database: Database, sql: str, *values: object) -> Verified:
    await database.write(lambda tx: tx.run(sql, values))
    found = await verify(database, batch=5)
    assert not found.sound
    return found


SPOILING = {
    "a row removed": "DELETE FROM events WHERE chain = 'A' AND number = 7",
    "the first removed": "DELETE FROM events WHERE chain = 'A' AND number = 1",
    "the last removed": "DELETE FROM events WHERE chain = 'A' AND number = 12",
    "a chain emptied": "DELETE FROM events WHERE chain = 'A'",
    "a head removed": "DELETE FROM chains WHERE id = 'A'",
    "a body dropped alone": "UPDATE events SET body = NULL WHERE chain = 'A' AND number = 3",
    "a salt dropped alone": "UPDATE events SET salt = NULL WHERE chain = 'A' AND number = 3",
    "body and salt dropped": (
        "UPDATE events SET body = NULL, salt = NULL WHERE chain = 'A' AND number = 3"
    ),
    "all bodies dropped": "UPDATE events SET body = NULL, salt = NULL",
    "a kind changed": "UPDATE events SET kind = 'call.denied' WHERE chain = 'A' AND number = 3",
    "a turn unsaid": "UPDATE events SET turn_id = NULL WHERE chain = 'A' AND number = 3",
    "an agent changed": "UPDATE events SET agent_id = 'B' WHERE chain = 'A' AND number = 3",
    "a time changed": "UPDATE events SET at = at + 1 WHERE chain = 'A' AND number = 12",
    "a number moved on": "UPDATE events SET number = 13 WHERE chain = 'A' AND number = 12",
    "a number before the first": "UPDATE events SET number = 0 WHERE chain = 'A' AND number = 5",
    "into another chain": "UPDATE events SET chain = 'home:other' WHERE chain = 'A' AND number = 5",
    "a head's length": "UPDATE chains SET length = 11 WHERE id = 'A'",
    "another head": "UPDATE chains SET id = 'B' WHERE id = 'A'",
    "a row twice": (
        "INSERT INTO events SELECT chain, 13, at, kind, actor, agent_id, turn_id, body, salt,"
        " digest, hash FROM events WHERE chain = 'A' AND number = 12"
    ),
}


@pytest.mark.promise("X2")
@pytest.mark.parametrize("how", SPOILING)
async def test_what_was_changed_is_found(database: Database, how: str):
    agent_id = await scene(database)
    await spoilt(database, SPOILING[how].replace("'A'", f"'{agent_id}'"))


@pytest.mark.promise("X2")
async def test_rows_that_changed_places_are_found(database: Database):
    agent_id = await scene(database)

    async def swap(tx: Connection) -> None:
        for old, new in ((3, 99), (4, 3), (99, 4)):
            where = "WHERE chain = ? AND number = ?"
            await tx.run(f"UPDATE events SET number = ? {where}", (new, agent_id, old))

    await database.write(swap)
    found = await verify(database)
    assert {one.number for one in found.flaws} >= {3, 4}


@pytest.mark.promise("X2")
async def test_agents_and_turns_without_any_event_are_told(database: Database):
    agent_id = await scene(database)
    await database.write(lambda tx: put_agent(tx, "bela"))
    assert (await verify(database)).sound  # it has done nothing so far

    async def open_turn(tx: Connection) -> None:
        await tx.run(
            "INSERT INTO turns (id, agent_id, state, channel, first_seq, last_seq, opened_at)"
            " SELECT 'turn_9', id, 'done', 'cli', 1, 1, 0 FROM agents WHERE name = 'bela'"
        )

    await database.write(open_turn)
    [flaw] = (await verify(database)).flaws
    assert flaw.chain != agent_id
    assert "1 turns of it, and no event is about it" in flaw.what

    async def empty(tx: Connection) -> None:
        await tx.run("DELETE FROM events")
        await tx.run("DELETE FROM chains")

    await database.write(empty)
    found = await verify(database)
    assert not found.sound
    [flaw] = found.flaws
    assert flaw.what == "there are 2 agents and 1 turns, and no event is about them"


@pytest.mark.promise("X2")
async def test_a_tail_cut_off_with_its_head_is_found_by_the_anchor(database: Database):
    agent_id = await scene(database)

    async def cut(tx: Connection) -> None:
        row = await tx.one("SELECT hash FROM events WHERE chain = ? AND number = 8", (agent_id,))
        assert row is not None
        await tx.run("DELETE FROM events WHERE chain = ? AND number > 8", (agent_id,))
        await tx.run("UPDATE chains SET length = 8, hash = ? WHERE id = ?", (row[0], agent_id))

    await database.write(cut)
    [flaw] = (await verify(database)).flaws
    assert (flaw.chain, flaw.number) == (agent_id, 12)
    await database.write(lambda tx: tx.run("DELETE FROM events WHERE chain = ?", (agent_id,)))
    await database.write(lambda tx: tx.run("DELETE FROM chains WHERE id = ?", (agent_id,)))
    [flaw] = (await verify(database)).flaws
    assert (flaw.chain, flaw.number) == (agent_id, None)


def _flip(value: Any, random: Random) -> Any:
    """Return a value of which one bit is another."""
    if isinstance(value, int):
        return value ^ (1 << random.randrange(40))
    raw = bytearray(value.encode() if isinstance(value, str) else value)
    at = random.randrange(len(raw))
    raw[at] ^= 1 << random.randrange(7 if isinstance(value, str) else 8)
    return raw.decode(errors="replace") if isinstance(value, str) else bytes(raw)


@pytest.mark.promise("X2")
@given(st.integers(0, 2**32), st.sampled_from(COLUMNS), st.sampled_from(["agent", "home"]))
def test_any_flipped_bit_of_any_column_is_found(seed: int, column: str, which: str):
    random = Random(seed)

    async def play(place: Path) -> None:
        database = await open_sqlite(place)
        agent_id = await scene(database)
        chain = agent_id if which == "agent" else HOME_CHAIN
        number = random.randint(1, 12 if which == "agent" else 3)

        async def spoil(tx: Connection) -> bool:
            where = "WHERE chain = ? AND number = ?"
            row = await tx.one(f"SELECT {column} FROM events {where}", (chain, number))
            assert row is not None
            if row[0] is None:
                return False
            await tx.run(
                f"UPDATE OR REPLACE events SET {column} = ? {where}",
                (_flip(row[0], random), chain, number),
            )
            return True

        assert await database.write(spoil) != (await verify(database, batch=5)).sound
        await database.close()

    with TemporaryDirectory() as place:
        asyncio.run(play(Path(place)))


@pytest.mark.promise("X2")
@given(st.integers(0, 2**32))
def test_any_flipped_bit_of_the_file_is_found(seed: int):
    """Flip one bit of the bytes in which an event rests: it is found, or nothing can be read."""
    random = Random(seed)

    async def play(place: Path) -> None:
        database = await open_sqlite(place)
        agent_id = await scene(database)
        chain, most = random.choice([(agent_id, 12), (HOME_CHAIN, 3)])
        number = random.randint(1, most)
        one = await database.read(lambda tx: events.get(tx, chain, number))
        assert one is not None
        assert one.salt is not None
        before = await database.read(_all)
        await database.close()
        file = place / "asterism.db"
        with closing(apsw.Connection(str(file))) as raw:
            raw.execute("PRAGMA journal_mode=DELETE").fetchall()
        content = bytearray(file.read_bytes())
        # A record is one run of bytes; salt, digest and hash occur nowhere else, or in the head.
        texts = [one.kind.encode(), one.actor.encode(), chain.encode()]
        at = content.find(one.salt)
        assert at > 0
        spread = 40 + sum(map(len, texts))
        where = random.randint(at - spread, at + 16 + 64 - 1)
        content[where] ^= 1 << random.randrange(8)
        file.write_bytes(content)
        try:
            database = await open_sqlite(place)
        except Exception:  # noqa: BLE001 - a file that cannot be opened is noticed, too
            return
        try:
            # A bit of a neighbour that is no column, such as a pointer, may change nothing.
            if (await verify(database, batch=5)).sound:
                assert await database.read(_all) == before
        finally:
            await database.close()

    async def _all(tx: Connection) -> list[Any]:
        return await tx.all(f"SELECT {', '.join(COLUMNS)} FROM events ORDER BY chain, number")

    with TemporaryDirectory() as place:
        asyncio.run(play(Path(place)))
