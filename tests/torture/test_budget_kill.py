"""A spender that is killed again and again never passes its cap, and nothing stays held."""

import asyncio
import contextlib
import random
from pathlib import Path

import pytest

from asterism import Asterism
from asterism.testing.postgres import postgres_server
from asterism.types.spending import nano
from tests.conftest import TORTURE
from tests.scenes import open_home, until
from tests.torture.spender import CAP, Spree, spend
from tests.torture.worker import lines
from tests.torture.world import spawn

ROUNDS = 40 if TORTURE else 5


async def kill_after(spree: Spree, turns: int) -> None:
    """Let processes spend for so many turns, then kill them in the middle of others."""
    place = spree.place / "turns.jsonl"
    before = len(lines(place))
    crowd = [
        spawn.Process(target=spend, args=(spree,), daemon=True)
        for _ in range(2 if spree.store_url else 1)
    ]
    for process in crowd:
        process.start()
    try:
        await until(lambda: len(lines(place)) >= before + turns, 30)
    finally:
        for process in crowd:
            process.kill()
            await asyncio.to_thread(process.join, 10)


async def assert_within_cap(home: Asterism, place: Path, *, held: bool) -> None:
    billed = sum(bill["amount"] for bill in lines(place / "bills.jsonl"))
    for one in await home.spending.caps():
        assert one.total.counted <= one.cap.amount
        if one.cap.scope == "all":
            assert billed <= one.total.counted
    assert billed <= nano(CAP)
    if not held:
        assert all(one.total.reserved == 0 for one in await home.spending.caps())


@pytest.mark.promise("T7")
@pytest.mark.timeout(600 if TORTURE else 120)
@pytest.mark.parametrize("engine", ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
async def test_kills_between_reserve_and_settle(tmp_path: Path, engine: str) -> None:
    with contextlib.ExitStack() as stack:
        url = (
            stack.enter_context(postgres_server(fsync=True).database())
            if engine == "postgres"
            else None
        )
        chance = random.Random(7)
        presumed, spree = 0, Spree(tmp_path, 0, url)
        for number in range(ROUNDS):
            spree = Spree(tmp_path, number, url)
            await kill_after(spree, chance.randint(1, 25))
            async with open_home(tmp_path, settings=spree.settings, work=False) as home:
                await assert_within_cap(home, tmp_path, held=url is not None)
                presumed = max(
                    presumed, *(one.total.presumed for one in await home.spending.caps())
                )
        if url is None:
            assert presumed > 0
        else:
            # On PostgreSQL others may be at work: what the dead held is presumed in its time.
            async with open_home(tmp_path, settings=spree.settings, work=False) as home:
                await home.database.write(
                    lambda tx: tx.run("UPDATE charges SET until = 0 WHERE state = 'reserved'")
                )
                await home.database.write(
                    lambda tx: tx.run("UPDATE turns SET state = 'failed' WHERE state = 'open'")
                )
            async with open_home(tmp_path, settings=spree.settings, work=False) as home:
                await assert_within_cap(home, tmp_path, held=False)
