"""Killed at each single write, in its middle, and at each sync: no instant is left to chance."""

import asyncio
import contextlib
import itertools
import shutil
import sqlite3
from collections import Counter
from pathlib import Path

import pytest

from asterism.store.database import Database, Migration, load_migrations
from asterism.store.sqlite import open_sqlite
from asterism.types.turns import TurnState
from tests.conftest import TORTURE
from tests.scenes import open_home
from tests.torture.audit import audit
from tests.torture.short_life import CONVERSATION, FileChannel, Migrating, hand_in, short_life
from tests.torture.worker import Aim, Doom, finished, lines, prepare, tools_of
from tests.torture.world import spawn

STRIDE = 1 if TORTURE else 23
POINTS = pytest.mark.parametrize("point", ["disk write", "disk write torn", "disk sync"])

pytestmark = [pytest.mark.promise("T2", "T3"), pytest.mark.timeout(600 if TORTURE else 120)]
if TORTURE:
    pytestmark.append(pytest.mark.torture)


async def killed(work: Path | Migrating, aim: Aim) -> bool:
    """Let a short life run to its doom; False if it came to its end."""
    process = spawn.Process(target=short_life, args=(work, aim), daemon=True)
    process.start()
    await asyncio.to_thread(process.join, 20)
    assert process.exitcode in (0, -9), f"{aim}: exit code {process.exitcode}"
    return process.exitcode == -9


@POINTS
async def test_a_conversation_killed_at_its_every_write(tmp_path: Path, point: str):
    kills = 0
    for nth in itertools.count(1, STRIDE if point != "disk sync" else 1):
        place = tmp_path / str(nth)
        place.mkdir()
        if not await killed(place, Aim(point, nth)):
            break
        kills += 1
        channel = FileChannel(place)
        tools = tools_of(place, Doom(None))
        async with open_home(place, tools=tools, channels={"room": channel}) as home:
            await prepare(home)
            await hand_in(home)
            async with asyncio.timeout(20):
                await finished(home)
            await judge(place, home.database, f"{point} {nth}")
        shutil.rmtree(place)
    assert kills > (10 if point == "disk sync" else 100 / STRIDE)
    print(f"\n{point}: {kills} kills")


async def judge(place: Path, database: Database, instant: str) -> None:
    found = await audit(database)
    (turns,) = found.turns.values()
    assert [turn.state for turn in turns] == [TurnState.DONE] * 3, instant
    asked = [turn.asked for turn in turns]
    beat = asked.index("[heartbeat you asked for] 4")
    assert asked[:beat] + asked[beat + 1 :] == list(CONVERSATION), instant
    received = list(dict.fromkeys(line["key"] for line in lines(place / "received.jsonl")))
    assert received == [f"{turn.id}/answer" for turn in turns], instant
    done = Counter(line["tool"] for line in lines(place / "effects.jsonl"))
    keys = {(line["tool"], line["key"]) for line in lines(place / "effects.jsonl")}
    assert (done["post"], len(keys) - ("mail" in done)) == (1, 2), instant
    results = dict(turns[0].results.values())
    if done["mail"] == 0:
        assert results["mail"].startswith("Outcome unknown"), instant
    assert done["mail"] <= 1, instant
    unknown = sum(text.startswith("Outcome unknown") for text in results.values())
    assert sum(found.notices.values()) == unknown <= 1, instant
    assert not [text for text in results.values() if text.startswith("Error")], instant


# -- migrations ----------------------------------------------------------------------------------

SECOND = Migration(
    load_migrations()[-1].number + 1,
    "later.sql",
    "CREATE TABLE later (id TEXT PRIMARY KEY, body BLOB);"
    "INSERT INTO later SELECT agent_id || seq, body FROM entries;"
    "ALTER TABLE agents ADD COLUMN mood TEXT NOT NULL DEFAULT 'fine';",
)


@POINTS
async def test_a_second_migration_killed_at_its_every_write(tmp_path: Path, point: str):
    origin = tmp_path / "origin"
    async with open_home(origin) as home:
        await home.agents.create("aria")
        for number in range(8):
            await home.agents.ask("aria", f"{number} {'x' * 2_000}")
    migrations = [*load_migrations(), SECOND]
    kills = 0
    for nth in itertools.count(1, STRIDE if point != "disk sync" else 1):
        place = tmp_path / str(nth)
        shutil.copytree(origin, place)
        if not await killed(Migrating(place, migrations), Aim(point, nth)):
            break
        kills += 1
        check_snapshots(place / "snapshots")
        database = await open_sqlite(place, migrations=migrations)
        try:
            found = await audit(database)
            assert len(found.all_turns()) == 8
            rows = await database.read(lambda tx: tx.all("SELECT COUNT(*) FROM later"))
            assert rows == [(16,)]
        finally:
            await database.close()
        assert check_snapshots(place / "snapshots") > 0
        shutil.rmtree(place)
    assert kills > (1 if point == "disk sync" else 20 / STRIDE)
    print(f"\n{point}: {kills} kills")


def check_snapshots(directory: Path) -> int:
    """Whatever is called a snapshot is whole and of the schema before; return how many."""
    found = list(directory.glob("schema-*.db"))
    for snapshot in found:
        with contextlib.closing(sqlite3.connect(snapshot)) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
            assert connection.execute("SELECT COUNT(*) FROM entries").fetchall() == [(16,)]
            version = connection.execute("SELECT MAX(version) FROM schema_versions").fetchall()
            assert version == [(SECOND.number - 1,)]
    return len(found)
