"""Any text is a query: none raises, and each has one answer."""

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from asterism import AgentRecord, Asterism, AsterismError
from asterism.testing.scripted import ScriptedModel
from asterism.types.search import Hit
from asterism.types.turns import PastMessage
from bench.hostile import extremes, queries
from tests.conformance.memory_scene import ENGINES, opened

MAY = datetime.fromtimestamp(1_715_000_000, UTC)
PAST = [
    PastMessage("user", "My cat sat on the museum's roof yesterday.", "Anna", MAY),
    PastMessage(
        "user", "She goes to Lisbon every May. 猫はどこ?", "Ben", MAY + timedelta(seconds=1)
    ),
    PastMessage("assistant", "A cat & a dog: \"NEAR('x')\" -- 100 %_* {0} \\ \x00 😀 é."),
    PastMessage("user", "What did I say last week about the house?", at=MAY + timedelta(days=1)),
    PastMessage("assistant", "שלום, кот и пёс, naïve Ωmega; SELECT * FROM entries"),
]


@pytest.fixture(params=ENGINES)
async def home(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Asterism]:
    async with (
        opened(request.param, tmp_path) as database,
        Asterism.open(
            tmp_path,
            environ={},
            settings={"model": "test:a", "search": {"encoder": "none"}},
            models={"test": ScriptedModel()},
            database=database,
            work=False,
        ) as home,
    ):
        yield home


@pytest.fixture
async def aria(home: Asterism) -> AgentRecord:
    agent = await home.agents.create("aria")
    # Some of it is in the index, some is not yet.
    await home.agents.import_messages(agent, PAST[:3])
    await home.indexing.catch_up()
    await home.agents.import_messages(agent, PAST[3:])
    await home.archive.add(agent, "The spare key is under the cat's cushion.", tags=["house"])
    await home.blocks.create(agent, "human", "Likes cats.\nHas a dog?\n'; DROP TABLE blocks; --")
    return agent


async def answer(home: Asterism, agent: AgentRecord, query: str) -> list[tuple[str, float]]:
    """Return what is found, twice the same."""
    try:
        first, second = [await home.search(agent, query, limit=5) for _ in range(2)]
    except Exception as error:
        error.add_note(f"The query was {query[:200]!a}, {len(query):,} characters.")
        raise
    assert first == second, f"Two answers to {query[:200]!a}"
    return [(hit.id, hit.score) for hit in first.hits]


async def ask_all(home: Asterism, agent: AgentRecord, asked: Iterable[str]) -> int:
    """Ask everything, and a usual question last; return how many found something."""
    usual = await answer(home, agent, "Where is the spare key?")
    assert usual
    found = 0
    for number, query in enumerate(asked):
        found += bool(await answer(home, agent, query))
        if number % 100 == 0:
            await asyncio.sleep(0)
    # Nothing was broken on the way.
    assert await answer(home, agent, "Where is the spare key?") == usual
    assert len(await home.turns.list(agent)) == 3
    return found


@pytest.mark.promise("M6")
async def test_any_text_is_a_query(home: Asterism, aria: AgentRecord):
    # The ranking is one for both engines, so that the slower one need not see them all.
    count = 500 if home.database.distributed else 1_500
    assert await ask_all(home, aria, queries(count)) > 100


@pytest.mark.promise("M6")
async def test_a_query_of_a_megabyte_is_answered(home: Asterism, aria: AgentRecord):
    assert await ask_all(home, aria, extremes())


@pytest.mark.promise("M6")
@pytest.mark.torture
@pytest.mark.timeout(900)
async def test_ten_thousand_queries(home: Asterism, aria: AgentRecord):
    assert await ask_all(home, aria, itertools.islice(queries(11_500, seed=7), 1_500, None))


@pytest.mark.parametrize("name", ["\x00'\ud800", "';--", "%", ""])
async def test_a_filter_that_names_nothing_finds_nothing_or_says_so(
    home: Asterism, aria: AgentRecord, name: str
):
    hits: list[Hit] = []
    with contextlib.suppress(AsterismError):
        hits += (await home.search(aria, "cat", speaker=name)).hits
    with contextlib.suppress(AsterismError):
        hits += (await home.search(aria, "cat", source=name)).hits
    assert hits == []
