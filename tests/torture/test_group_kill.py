"""Kill -9 while a group is at work: the same answers, and no member's turn twice."""

import asyncio
import os
import random
from collections import Counter
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

from asterism import Asterism
from asterism.store import journal
from asterism.store.database import Connection
from asterism.testing.postgres import postgres_server
from tests.conftest import TORTURE
from tests.scenes import open_home, until
from tests.torture.group_worker import MESSAGES, OPTIONS, GroupLife, live, model, prepare, work
from tests.torture.world import spawn

SEED = int(os.environ.get("ASTERISM_SEED", "1"))
KILLS = 50 if TORTURE else 3

pytestmark = [pytest.mark.promise("T2", "G1"), pytest.mark.timeout(600)]
if TORTURE:
    pytestmark.append(pytest.mark.torture)


async def kill_some(life: GroupLife, rng: random.Random, kills: int) -> int:
    """Let processes work and kill each at a random instant; return how many were still at work."""
    struck = 0
    for _ in range(kills):
        (life.place / "begun").unlink(missing_ok=True)
        process = spawn.Process(target=live, args=(life,), daemon=True)
        process.start()
        await begun(life, process)
        await asyncio.sleep(rng.uniform(0.0, 0.12))
        struck += process.is_alive()
        process.kill()
        await asyncio.to_thread(process.join, 30)
    return struck


async def begun(life: GroupLife, process: BaseProcess) -> None:
    """Wait until a process has the home open."""
    await until(lambda: (life.place / "begun").exists() or not process.is_alive(), 60)


async def shape(home: Asterism) -> tuple[dict[str, int], list[list[str]]]:
    """Return how many turns each member took, and what each turn of the group wrote."""
    counts: Counter[str] = Counter()
    for agent in await home.agents.list():
        for turn in await home.turns.list(agent.name):
            assert turn.state.value == "done", (agent.name, turn)
            counts[agent.name] += 1
    group = await home.groups.get("team")

    async def read(tx: Connection) -> list[list[str]]:
        written: list[list[str]] = []
        for turn in await journal.turns_of(tx, group.id, 100):
            keys = [entry.key for entry in await journal.entries_of(tx, turn)]
            assert len(keys) == len(set(keys)), keys
            assert [key for key in keys if key.endswith("/reply")] == ["0/reply"]
            answered = sorted(key for key in keys if key.endswith("/outcome"))
            assert answered, keys
            written.append(answered)
        return written

    return dict(counts), await home.database.read(read)


async def calm(place: Path, pattern: str, url: str = "") -> tuple[list[str], dict[str, int]]:
    """Return what comes out where nobody is killed."""
    life = GroupLife(place, pattern, {"store": {"url": url}} if url else {})
    await prepare(life)
    async with open_home(place, model(), settings=life.settings) as home:
        answers = await work(home)
        counts, _ = await shape(home)
    return answers, counts


@pytest.mark.parametrize("pattern", OPTIONS)
async def test_a_group_killed_at_any_instant_on_sqlite(tmp_path: Path, pattern: str):
    expected, turns = await calm(tmp_path / "calm", pattern)
    rng, struck, rounds = random.Random(f"{SEED}/{pattern}"), 0, 0
    while struck < KILLS:
        place = tmp_path / f"home{rounds}"
        place.mkdir()
        rounds += 1
        life = GroupLife(place, pattern, {"runtime": {"crashes": 1_000}})
        await prepare(life)
        struck += await kill_some(life, rng, 3)
        async with open_home(place, model(), settings=life.settings) as home:
            answers = await work(home)
            found, written = await shape(home)
        check(pattern, expected, turns, answers, found)
        assert len(written) == MESSAGES
    print(f"\n{pattern}: {struck} kills in {rounds} homes")


@pytest.mark.postgres
@pytest.mark.promise("D2")
@pytest.mark.parametrize("pattern", OPTIONS)
async def test_a_group_killed_at_any_instant_on_postgres(tmp_path: Path, pattern: str):
    server, rng = postgres_server(fsync=True), random.Random(f"{SEED}/{pattern}")
    with server.database() as url:
        expected, turns = await calm(tmp_path / "calm", pattern, url)
    struck = 0
    while struck < (KILLS if TORTURE else 1):
        with server.database() as url:
            place = tmp_path / f"home{struck}"
            place.mkdir(exist_ok=True)
            runtime = {"heartbeat": 0.3, "stalled_after": 1.0, "crashes": 1_000}
            life = GroupLife(place, pattern, {"store": {"url": url}, "runtime": runtime})
            await prepare(life)
            struck += await kill_some(life, rng, 3)
            async with open_home(place, model(), settings=life.settings) as home:
                answers = await work(home)
                found, _ = await shape(home)
            check(pattern, expected, turns, answers, found)


def check(
    pattern: str,
    expected: list[str],
    turns: dict[str, int],
    answers: list[str],
    found: dict[str, int],
) -> None:
    """The outcome is that of an uninterrupted run; a draw may have chosen others."""
    assert sum(found.values()) == sum(turns.values())
    if pattern == "dynamic":
        assert all(answer.count("answers") == 4 for answer in answers)
        return
    assert found == turns
    assert [_without_seed(text) for text in answers] == [_without_seed(text) for text in expected]


def _without_seed(text: str) -> str:
    return text.partition("drawn with")[0]
