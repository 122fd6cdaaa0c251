"""The story of an approval, killed between every two commits of it: nothing lost, nothing twice."""

import asyncio
import itertools
import shutil
from collections import Counter
from pathlib import Path

import pytest

from asterism.types.turns import TurnState
from tests.conftest import TORTURE
from tests.scenes import open_home
from tests.torture.asker import life, live, tools_of
from tests.torture.worker import Aim, lines
from tests.torture.world import spawn

STRIDE = 1 if TORTURE else 3

pytestmark = [
    pytest.mark.promise("H1", "T2", "T3"),
    pytest.mark.timeout(600 if TORTURE else 120),
]
if TORTURE:
    pytestmark.append(pytest.mark.torture)


async def killed(place: Path, aim: Aim) -> bool:
    """Let a life run to its doom; False if it came to its end."""
    process = spawn.Process(target=life, args=(place, aim), daemon=True)
    process.start()
    await asyncio.to_thread(process.join, 30)
    assert process.exitcode in (0, -9), f"{aim}: exit code {process.exitcode}"
    return process.exitcode == -9


async def test_an_approval_killed_between_every_two_commits(tmp_path: Path):
    kills = 0
    for nth in itertools.count(1, STRIDE):
        place = tmp_path / str(nth)
        place.mkdir()
        if not await killed(place, Aim("disk sync", nth)):
            break
        kills += 1
        async with asyncio.timeout(30):
            turn_id = await live(place)
        await judge(place, turn_id, f"sync {nth}")
        shutil.rmtree(place)
    assert kills > 10 / STRIDE
    print(f"\n{kills} kills")


async def judge(place: Path, turn_id: str, instant: str) -> None:
    async with open_home(place, tools=tools_of(place)) as home:
        assert (await home.turns.outcome(turn_id)).state is TurnState.DONE, instant
        (answered,) = await home.approvals.answered()
        assert (answered.turn_id, answered.verdict) == (turn_id, "approved"), instant
        assert await home.approvals.list() == [], instant
        assert await home.turns.waiting() == [], instant
        verified = await home.audit.verify()
        assert verified.sound, (instant, verified.flaws)
    assert len(lines(place / "effects.jsonl")) == 1, instant
    received = Counter(line["key"] for line in lines(place / "received.jsonl"))
    asked = answered.id
    # A delivery may be tried again after a crash; its key tells people that it is the same.
    assert {f"{turn_id}/{asked}", f"{turn_id}/answer", f"{asked}/told/room:ada"} <= set(received)
    rounds = [key for key in received if key.startswith(f"{asked}/") and "/told/" not in key]
    assert f"{asked}/1/room:owner" in rounds, instant
    assert set(rounds) <= {f"{asked}/{n}/room:{who}" for n in (1, 2) for who in ("owner", "ada")}
