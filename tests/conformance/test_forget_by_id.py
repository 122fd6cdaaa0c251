"""Forgetting by id: a passage, a message, a person, a source, a block, an agent."""

from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import orjson
import pytest

from asterism.errors import NotFound
from asterism.memory import archive
from asterism.memory.forgetting import Forgetting, forget
from asterism.memory.gate import blocks, passages
from asterism.memory.gate.passages import NewPassage
from asterism.permissions import Actor
from asterism.store.database import Connection, Database
from asterism.types.agents import Audience
from asterism.types.memory import (
    Append,
    Insert,
    Origin,
    OriginKind,
    Source,
    Tag,
)
from asterism.types.turns import text_of
from tests.conformance.forget_scene import (
    ENGINES,
    HOME,
    OWNER,
    Engine,
    an_engine,
    columns_with,
    new_canary,
    people_and_agents,
    plant,
    versions_of,
)
from tests.conformance.memory_scene import put_turn


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    with an_engine(request.param, tmp_path) as engine:
        yield engine


@pytest.fixture
async def database(engine: Engine) -> AsyncIterator[Database]:
    database = await engine.open()
    await database.write(people_and_agents)
    yield database
    await database.close()


@pytest.fixture
def canary() -> str:
    return new_canary()


AGENT = Actor("agent", "agent_aria", "aria")


async def test_a_passage(engine: Engine, database: Database) -> None:
    fact = "Anna keeps the spare key under the blue pot"

    async def write(tx: Connection) -> str:
        await put_turn(tx, "agent_aria", "turn_1", "remember this", f"Stored: {fact}.")
        stored = await passages.write(tx, OWNER, "agent_aria", Insert(fact))
        await passages.write(tx, OWNER, "agent_aria", Tag(stored.passage.id, ("keys",)))
        await passages.write(tx, OWNER, "agent_aria", Insert("The weather in Lyon is mild in May"))
        return stored.passage.id

    passage_id = await database.write(write)
    receipt = await forget(database, engine.data, OWNER, Forgetting(passages=(passage_id,)))
    assert receipt.places.keys() >= {"passages", "passage_edits", "entries.body"}
    left = await database.read(lambda tx: archive.listing(tx, ["agent_aria"], limit=9))
    assert [one.text for one in left] == ["The weather in Lyon is mild in May"]
    rows = await database.read(lambda tx: tx.all("SELECT body FROM entries ORDER BY seq"))
    assert [text_of(row[0]) for row in rows] == ["remember this", "Stored: [forgotten]."]
    with pytest.raises(NotFound, match="Nothing was forgotten"):
        await forget(database, engine.data, OWNER, Forgetting(passages=(passage_id,)))


async def test_a_message(engine: Engine, database: Database) -> None:
    """A turn is emptied; what was written in it, and summaries of it, go with it."""
    private = "the doctor said that it is only a cold"

    async def write(tx: Connection) -> None:
        await put_turn(tx, "agent_aria", "turn_1", "hello", "hi")
        await put_turn(tx, "agent_aria", "turn_2", private, "get well")
        await put_turn(tx, "agent_bela", "turn_3", f"she told me: {private}", "noted")
        writer = replace(OWNER, turn_id="turn_2")
        await passages.write(tx, writer, "agent_aria", Insert("The owner has a cold"))
        block = await blocks.create(tx, OWNER, "agent_aria", "human", content="one")
        await blocks.write(tx, writer, block.id, Append("has a cold"), era=4)
        await blocks.write(tx, OWNER, block.id, Append("two"), era=4)
        await tx.run(
            "INSERT INTO summaries VALUES ('sum_1', 'agent_aria', 'owner', 'owner', 'owner', 1, 4,"
            " 'summary', 'A cold was spoken of.', '[]', 4, 9, 'rule', 0)"
        )

    await database.write(write)
    receipt = await forget(database, engine.data, OWNER, Forgetting(turns=("turn_2",)))
    assert receipt.summaries == ("sum_1",)
    rows = await database.read(
        lambda tx: tx.all("SELECT agent_id, seq, body FROM entries ORDER BY agent_id, seq")
    )
    assert [text_of(row[2]) for row in rows] == [
        *("hello", "hi", "[forgotten]", "[forgotten]"),
        *("she told me: [forgotten]", "noted"),
    ]
    assert await database.read(lambda tx: archive.listing(tx, ["agent_aria"], limit=9)) == []
    said = await versions_of(database)
    assert "one\n*** * ****\ntwo" in said
    for word in ("cold", private):
        assert await columns_with(database, f"{word}-") == set()


async def test_a_person(engine: Engine, database: Database) -> None:
    """What a person said, what only they may see, and who they are."""
    alone = Audience.read("person:person_1")
    annas = replace(OWNER, source=Source((Origin(OriginKind.PERSON, "person_1"),), alone))
    as_aria = replace(annas, actor=AGENT, agent_id="agent_aria")
    room = orjson.dumps({"sender": "anna"}).decode()

    async def write(tx: Connection) -> None:
        await put_turn(
            tx, "agent_aria", "turn_1", "I am moving", "good", audience="person:person_1"
        )
        await put_turn(tx, "agent_aria", "turn_2", "see you all", "bye", audience="room:mail:r")
        await tx.run(
            "UPDATE entries SET meta = ? WHERE turn_id = 'turn_2' AND kind = 'message'", (room,)
        )
        await tx.run("UPDATE turns SET channel = 'mail'")
        await put_turn(tx, "agent_aria", "turn_3", "mine", "yours")
        await passages.write(tx, annas, "agent_aria", Insert("Anna is moving to Lyon in spring"))
        await passages.write(tx, OWNER, "agent_aria", Insert("The weather in Lyon is mild in May"))
        block = await blocks.create(tx, OWNER, "agent_aria", "people", content="a list")
        await blocks.write(tx, as_aria, block.id, Append("Anna moves"))
        await tx.run(
            "INSERT INTO totals VALUES (?, '2026-11', 'person:mail:anna', 1, 0, 0, 0)", (HOME,)
        )

    await database.write(write)
    await forget(database, engine.data, OWNER, Forgetting(persons=("person_1",)))
    rows = await database.read(lambda tx: tx.all("SELECT body FROM entries ORDER BY seq"))
    assert [text_of(row[0]) for row in rows] == [*["[forgotten]"] * 4, "mine", "yours"]
    left = await database.read(lambda tx: archive.listing(tx, ["agent_aria"], limit=9))
    assert [one.text for one in left] == ["The weather in Lyon is mild in May"]
    for table in ("persons", "accounts", "totals"):
        count = await database.read(lambda tx, table=table: tx.one(f"SELECT COUNT(*) FROM {table}"))
        assert count == (0,)
    assert await columns_with(database, "Anna-") == set()
    assert await columns_with(database, "anna-") == set()


async def test_a_source_a_block_an_agent(engine: Engine, database: Database, canary: str) -> None:
    await plant(database, engine, canary)

    async def attach(tx: Connection) -> str:
        await tx.run("INSERT INTO source_agents VALUES ('source_1', 'agent_aria', 0)")
        pieces = [NewPassage(f"piece {number} of the book", document="a") for number in range(3)]
        assert await passages.insert_many(tx, OWNER, "source_1", pieces) == 3
        row = await tx.one("SELECT id FROM blocks WHERE label = 'human'")
        assert row is not None
        return str(row[0])

    block_id = await database.write(attach)
    what = Forgetting(sources=("source_1",), blocks=(block_id,), agents=("agent_bela",))
    receipt = await forget(database, engine.data, OWNER, what)
    assert set(receipt.agents) == {"agent_aria", "agent_bela"}
    empty = {
        "passages": "archive_id IN ('source_1', 'agent_bela')",
        "documents": "source_id = 'source_1'",
        "source_agents": "1 = 1",
        "sources": "1 = 1",
        "blocks": "owner_id = 'agent_bela' OR label = 'human'",
        "block_eras": "1 = 1",
        "agents": "id = 'agent_bela'",
    }
    for table, where in empty.items():
        sql = f"SELECT COUNT(*) FROM {table} WHERE {where}"
        assert await database.read(lambda tx, sql=sql: tx.one(sql)) == (0,), table
    assert "entries.body" in await columns_with(database, canary)
