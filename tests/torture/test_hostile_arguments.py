"""Every verb with several hostile arguments at once, for a long time."""

import itertools
import random
from pathlib import Path

import pytest

from asterism.errors import AsterismError
from asterism.testing.postgres import postgres_server
from tests.hostile import Scene
from tests.scenes import open_home

CALLS = 20_000


@pytest.mark.torture
@pytest.mark.postgres
@pytest.mark.promise("X5")
@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
@pytest.mark.parametrize("seed", [1, 2])
async def test_no_verb_raises_what_is_not_ours(tmp_path: Path, engine: str, seed: int):
    with postgres_server().database() as url:
        settings = {"store.url": url} if engine == "postgres" else {}
        async with open_home(tmp_path / "data", work=False, settings=settings) as home:
            scene = await Scene.make(home)
            for attempt in itertools.islice(scene.at_random(random.Random(seed)), CALLS):
                try:
                    await attempt.run()
                except AsterismError:
                    continue
                except Exception as error:
                    raise AssertionError(attempt.told) from error
