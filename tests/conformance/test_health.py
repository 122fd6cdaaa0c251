"""The health report of an agent's memory: what is wrong in it, and the next move."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from asterism.errors import NotFound
from asterism.memory.gate import blocks as block_gate
from asterism.memory.gate import passages as gate
from asterism.memory.gate.passages import NewPassage
from asterism.memory.health import Health, health
from asterism.store.database import Connection, Database
from asterism.types.agents import Trust
from asterism.types.memory import Retract
from tests.conformance.memory_scene import (
    ENGINES,
    NOW,
    as_agent,
    as_owner,
    opened,
    put_agent,
)
from tests.conformance.search_scene import DAY, insert


@pytest.fixture(params=ENGINES)
async def database(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Database]:
    async with opened(request.param, tmp_path) as database:
        yield database


@pytest.fixture
async def aria(database: Database) -> str:
    return await database.write(lambda tx: put_agent(tx, "aria"))


async def look(database: Database, agent_id: str, now: int = NOW + 400 * DAY) -> Health:
    return await database.read(lambda tx: health(tx, agent_id, now=now))


@pytest.mark.promise("M14")
async def test_a_health_report_shows_what_is_wrong_and_the_next_move(database: Database, aria: str):
    berlin = await insert(database, aria, "Anna lives in Berlin.")
    hamburg = await insert(database, aria, "Anna lives in Hamburg.", now=NOW + 1)
    meeting = await insert(database, aria, "There is a meeting on 3 May with the bank.")
    await insert(database, aria, "Ben's birthday is on 4 May.")
    await insert(database, aria, "The war ended on 8 May 1945.")
    web = await insert(database, aria, "The museum is closed.", trust=Trust.WEB)
    junk = await insert(database, aria, "ok")
    dog = await insert(database, aria, "Ben has a dog called Rex.")
    dead = await insert(database, aria, "The dog called Rex has died.", supersedes=dog)
    await database.write(lambda tx: gate.write(tx, as_agent(aria), aria, Retract(dead)))
    doubles = [NewPassage("Coffee is at ten."), NewPassage("coffee is at TEN")]

    async def put(tx: Connection) -> None:
        # Imported into two archives, then put together by hand: nothing merged them.
        await gate.insert_many(tx, as_owner(), aria, doubles[:1])
        await tx.run("UPDATE passages SET digest = 'other' WHERE text = 'Coffee is at ten.'")
        await gate.insert_many(tx, as_owner(), aria, doubles[1:])
        await block_gate.create(tx, as_owner(), aria, "full", content="x" * 95, limit=100)
        await block_gate.create(tx, as_owner(), aria, "free", content="x" * 5, limit=100)

    await database.write(put)
    report = await look(database, aria)
    assert report.counts["passages"] == 11
    assert report.counts["valid"] == 9
    assert (report.counts["superseded"], report.counts["retracted"]) == (1, 1)
    assert report.counts["blocks"] == 2
    by_kind = {one.kind: one for one in report.findings}
    assert {kind: len(report.of(kind)) for kind in by_kind} == dict.fromkeys(by_kind, 1)
    assert set(by_kind) == {
        "duplicate",
        "contradiction",
        "stale",
        "orphaned",
        "junk",
        "full",
        "untrusted",
    }
    assert by_kind["contradiction"].ids == (hamburg, berlin)
    assert by_kind["stale"].ids == (meeting,)
    assert by_kind["orphaned"].ids == (dog, dead)
    assert by_kind["junk"].ids == (junk,)
    assert by_kind["full"].ids == ("full",)
    assert "95 of 100" in by_kind["full"].text
    assert by_kind["untrusted"].ids == (web,)
    assert all(one.move for one in report.findings)

    await database.write(lambda tx: gate.write(tx, as_agent(aria), aria, Retract(berlin)))
    assert not (await look(database, aria)).of("contradiction")
    assert not (await look(database, aria, NOW + DAY)).of("stale")
    await database.write(lambda tx: tx.run("UPDATE passages SET origins = '[]'"))
    assert len((await look(database, aria)).of("sourceless")) == 1
    with pytest.raises(NotFound, match="no agent"):
        await look(database, "agent_none")


async def test_the_memory_of_a_new_agent_is_healthy(database: Database, aria: str):
    report = await look(database, aria)
    assert (report.findings, report.checked_passages) == ((), 0)
