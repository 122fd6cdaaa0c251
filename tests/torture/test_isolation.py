"""Two constellations of one server: ten thousand requests of one, and how long the answers take."""

import random
import statistics
import time
from collections import defaultdict
from pathlib import Path

import pytest

from asterism.testing.postgres import postgres_server
from tests.isolation_scene import isolation_scene, twin

REQUESTS = 10_000
ROUNDS = 400
MAX_DIFFERENCE = 0.15
"""By how much the median times may differ, as a share of the time itself."""


@pytest.mark.torture
@pytest.mark.postgres
@pytest.mark.timeout(900)
@pytest.mark.promise("X1")
@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
async def test_ten_thousand_requests_tell_nothing_of_another_constellation(
    tmp_path: Path, engine: str
):
    with postgres_server().database() as url:
        settings = {"store.url": url} if engine == "postgres" else {}
        async with isolation_scene(tmp_path, 4, settings=settings) as scene:
            while scene.sent < REQUESTS:
                await scene.try_pair()
            assert scene.leaks == []
            assert scene.differences == []


@pytest.mark.torture
@pytest.mark.promise("X1")
async def test_what_exists_elsewhere_takes_as_long_as_what_does_not_exist(tmp_path: Path):
    chance = random.Random(5)
    async with isolation_scene(tmp_path, 5) as scene:
        paths = {
            "agent": "/api/agents/{}",
            "turn": "/api/turns/{}",
            "passage": "/api/passages/{}",
            "approval": "/api/approvals/{}",
            "person": "/api/people/{}",
            "event": "/api/audit/{}",
        }
        taken: dict[tuple[str, bool], list[float]] = defaultdict(list)
        for _ in range(ROUNDS):
            for kind, path in paths.items():
                value = scene.probes[kind][0]
                pair = [(True, value), (False, twin(value, chance))]
                chance.shuffle(pair)
                for exists, asked in pair:
                    began = time.perf_counter()
                    answer = await scene.birch.get(path.format(asked))
                    taken[kind, exists].append(time.perf_counter() - began)
                    assert answer.status_code == 404
        for kind in paths:
            there, nowhere = (statistics.median(taken[kind, exists]) for exists in (True, False))
            share = abs(there - nowhere) / nowhere
            assert share < MAX_DIFFERENCE, (kind, there, nowhere)
