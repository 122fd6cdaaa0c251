"""Kill -9 at any instant: every accepted message is answered once, in order, nothing done twice."""

import asyncio
import contextlib
import os
from collections.abc import AsyncGenerator, Mapping
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

from asterism import Asterism
from asterism.testing.postgres import postgres_server
from tests.conftest import TORTURE
from tests.torture.worker import (
    POINTS,
    POSTGRES_POINTS,
    SQLITE_POINTS,
    Aim,
    Doom,
    finished,
    hand_in,
    prepare,
    settings_of,
)
from tests.torture.world import World, judge, judge_watching, world

SEED = int(os.environ.get("ASTERISM_SEED", "1"))
KILLS = 12
"""How often one world is struck; worlds are small, so that a failure is short to read."""
WORLDS = range(SEED, SEED + (45 if TORTURE else 2))
PER_LIFE = 3
"""Messages handed in anew in each life, so that there is always something to interrupt."""

pytestmark = [pytest.mark.promise("T1", "T2", "T3", "T4", "K2"), pytest.mark.timeout(400)]
if TORTURE:
    pytestmark.append(pytest.mark.torture)


def draw(here: World, points: Mapping[str, int]) -> tuple[Aim | None, float]:
    """Draw where to strike next: at a point, or at any time."""
    if here.rng.random() < 0.25:
        return None, here.rng.uniform(0.0, 0.5)
    point = here.rng.choice(list(points))
    return Aim(point, here.rng.randint(1, points[point])), 0.7


@pytest.mark.parametrize("seed", WORLDS)
async def test_killed_at_any_instant_on_sqlite(tmp_path: Path, seed: int):
    async with world(tmp_path, seed) as here:
        here.write_spool(PER_LIFE * KILLS)
        for number in range(1, KILLS + 1):
            aim, patience = draw(here, {**POINTS, **SQLITE_POINTS})
            worker = here.start(aim=aim, hand_in=PER_LIFE * number)
            await here.end(worker, patience, aim.point if aim else "any time")
        await here.finish(here.start(hand_in=PER_LIFE * KILLS, finish=True), 60)
        async with Asterism.open(here.place, readonly=True, environ={}) as home:
            found = await judge(here, home.database)
        judge_watching(here, found)
    print(f"\nseed {seed}: {here.kills} kills, {len(found.all_turns())} turns; {dict(here.deaths)}")


@pytest.mark.postgres
@pytest.mark.promise("D2")
@pytest.mark.parametrize("seed", WORLDS)
async def test_one_of_two_workers_killed_at_any_instant_on_postgres(tmp_path: Path, seed: int):
    with postgres_server(fsync=True).database() as url:
        async with world(tmp_path, seed, store_url=url) as here, client(here) as home:
            here.write_spool(PER_LIFE * KILLS)
            pair: dict[BaseProcess, str] = {}
            while here.kills < KILLS:
                while len(pair) < 2:
                    aim, _ = draw(here, {**POINTS, **POSTGRES_POINTS})
                    pair[here.start(aim=aim)] = aim.point if aim else "any time"
                await hand_in(home, here.place, PER_LIFE * (here.kills + 1), Doom(None))
                victim = await first_to_die(here, list(pair), here.rng.uniform(0.2, 1.2))
                await here.end(victim, 0.0, pair.pop(victim))
            await here.end(next(iter(pair)), 0.0, "any time")
            rest = [here.start() for _ in range(2)]
            await finished(home)
            found = await judge(here, home.database)
            for worker in rest:
                await here.stop(worker)
    print(f"\nseed {seed}: {here.kills} kills, {len(found.all_turns())} turns; {dict(here.deaths)}")


@contextlib.asynccontextmanager
async def client(here: World) -> AsyncGenerator[Asterism, None]:
    """A process that hands in and waits, and takes no turns: this one."""
    async with Asterism.open(
        here.place, environ={}, settings=settings_of(here.life), work=False
    ) as home:
        await prepare(home)
        yield home


async def first_to_die(here: World, workers: list[BaseProcess], patience: float) -> BaseProcess:
    """Return the worker that died by its doom, or after some time one that is to be killed."""
    ended = await asyncio.to_thread(wait, [worker.sentinel for worker in workers], patience)
    dead = [worker for worker in workers if worker.sentinel in ended]
    return dead[0] if dead else here.rng.choice(workers)
