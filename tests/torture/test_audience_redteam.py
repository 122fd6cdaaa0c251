"""The red team, whole: a thousand worlds and more, and nobody overhears anything."""

import os
from pathlib import Path

import pytest

from asterism.testing.postgres import postgres_server
from tests.conftest import TORTURE
from tests.redteam_scene import Tally
from tests.redteam_world import World

SEED = int(os.environ.get("ASTERISM_SEED", "1"))
TOGETHER = 25
"""So many worlds are lived through in one test; a failure names the seed of its world."""
STEPS = 40
BATCHES = range(SEED, SEED + (1_000 if TORTURE else TOGETHER), TOGETHER)
ON_POSTGRES = range(SEED, SEED + (40 if TORTURE else 2), 2)

pytestmark = [pytest.mark.promise("M9"), pytest.mark.timeout(600), pytest.mark.torture]


@pytest.mark.parametrize("first", BATCHES)
async def test_nobody_overhears_anything_in_any_world(tmp_path: Path, first: int):
    total = Tally(first)
    for seed in range(first, first + TOGETHER):
        total += await World(seed, tmp_path / str(seed)).run(STEPS)
    print(f"\n{total}")
    assert total.found >= 0.95 * total.wanted > 0, "\n".join(total.missed)
    assert total.compactions > TOGETHER


@pytest.mark.postgres
@pytest.mark.parametrize("first", ON_POSTGRES)
async def test_nobody_overhears_anything_in_any_world_on_postgres(tmp_path: Path, first: int):
    total = Tally(first)
    for seed in (first, first + 1):
        with postgres_server().database() as url:
            total += await World(seed, tmp_path / str(seed), url).run(STEPS)
    print(f"\n{total}")
    assert total.found >= 0.95 * total.wanted > 0, "\n".join(total.missed)
