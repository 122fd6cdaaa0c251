"""Indexing: texts are indexed and encoded in the background, whatever comes between."""

import asyncio
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from asterism import Asterism
from asterism.errors import ConfigError, ModelUnavailable
from asterism.memory import people
from asterism.ports import Encoder
from asterism.search import encode, index
from asterism.search.search import encoder_in_use
from asterism.store import agents, search_index
from asterism.store.database import Connection, Database
from asterism.store.sqlite import open_sqlite
from asterism.testing.clock import ManualClock
from asterism.testing.scripted import ScriptedModel
from asterism.turns.lanes import Indexing
from asterism.types.agents import Person, Trust, now_ms
from asterism.types.turns import Reply
from tests.conformance.index_scene import say
from tests.conformance.memory_scene import ENGINES, HOME, opened, put_agent
from tests.servers.openai_server import OpenAIServer, status

SIZE = 8


@pytest.fixture(params=ENGINES)
async def database(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Database]:
    index.cache.clear()
    async with opened(request.param, tmp_path) as database:
        yield database


class Counting:
    """An encoder that counts, and meets each call as a test wants it to."""

    def __init__(self, name: str = "counting") -> None:
        self.name = name
        self.seen: list[str] = []
        self.meet: Callable[[int], Any] = lambda _: None
        self._calls = 0

    async def encode(self, texts: Sequence[str], *, question: bool = False) -> Any:
        self._calls += 1
        met = self.meet(self._calls)
        if met is not None:
            await met
        self.seen += texts
        rows = [[len(text), *text.encode()[: SIZE - 1].ljust(SIZE - 1)] for text in texts]
        return np.array(rows, dtype=np.float32).reshape(len(texts), SIZE)

    async def close(self) -> None:
        """Nothing to let go of."""


async def fail() -> None:
    raise ModelUnavailable("The encoder is out of order.")


def made(database: Database, encoder: Encoder | None, clock: ManualClock) -> Indexing:
    return Indexing(database, clock, lambda: encoder, quiet=0)


async def talk(database: Database, turns: int, name: str = "aria", first: int = 0) -> str:
    """Let an agent have had turns of a message and a reply each; return its id."""

    async def work(tx: Connection) -> str:
        agent_id = f"agent_{HOME}_{name}"
        if await agents.by_id(tx, agent_id) is None:
            await put_agent(tx, name)
        for number in range(first, first + turns):
            said = f"Message {number} of Caroline to {name}"
            await say(tx, agent_id, f"turn_{name}_{number}", said, f"Reply {number}", sender="Bo")
        return agent_id

    return await database.write(work)


async def vectors(database: Database, agent_id: str, encoder: str) -> list[bool] | None:
    """Return which texts of an agent's journal a search finds with a vector."""

    async def read(tx: Connection) -> list[bool] | None:
        found = await encode.encode_rows(tx, [await index.load(tx, "journal", agent_id)], encoder)
        return None if found is None else [bool(one) for one in found[1]]

    index.cache.clear()
    return await database.read(read)


async def until(indexing: Indexing, reached: tuple[int, int]) -> None:
    while await indexing.progress() != reached:  # noqa: ASYNC110 - the database's condition
        await asyncio.sleep(0.01)


async def served(database: Database, agent_id: str, wanted: str) -> str | None:
    return await database.read(lambda tx: encoder_in_use(tx, [("journal", agent_id)], wanted))


@pytest.mark.promise("M15")
async def test_all_that_was_said_is_folded_and_encoded(database: Database, clock: ManualClock):
    agent_id = await talk(database, 50)
    encoder = Counting()
    indexing = made(database, encoder, clock)
    assert await indexing.progress() == (0, 0)
    assert await served(database, agent_id, "counting") is None
    await indexing.catch_up()
    assert await indexing.progress() == (100, 100)
    assert await vectors(database, agent_id, "counting") == [True] * 100
    assert await served(database, agent_id, "counting") == "counting"
    assert await served(database, agent_id, "none") is None
    assert len(encoder.seen) == 100
    await indexing.catch_up()
    assert len(encoder.seen) == 100


async def test_names_of_those_who_spoke_are_not_encoded(database: Database, clock: ManualClock):
    await talk(database, 50)
    encoder = Counting()
    await made(database, encoder, clock).catch_up()
    assert encoder.seen[0] == "Message 0 of Caroline to"

    caroline = Person("person_c", "Caroline Lee", Trust.KNOWN)
    assert await database.write(lambda tx: people.put_person(tx, caroline))
    other = Counting("other")
    await made(database, other, clock).catch_up()
    assert other.seen[0] == "Message 0 of to"


async def test_without_an_encoder_texts_are_folded_all_the_same(
    database: Database, clock: ManualClock
):
    agent_id = await talk(database, 50)
    indexing = made(database, None, clock)
    await indexing.catch_up()
    assert await indexing.progress() == (0, 100)
    assert indexing.problem is None
    assert await vectors(database, agent_id, "counting") is None


@pytest.mark.promise("M15")
async def test_a_half_encoded_shelf_is_found_with_what_it_has_and_completed(
    database: Database, clock: ManualClock, caplog: pytest.LogCaptureFixture
):
    agent_id = await talk(database, 100)
    encoder = Counting()
    encoder.meet = lambda call: fail() if call > 2 else None
    indexing = made(database, encoder, clock)
    with caplog.at_level(logging.INFO):
        await indexing.catch_up()
        assert await indexing.progress() == (128, 200)
        assert await vectors(database, agent_id, "counting") == [True] * 128 + [False] * 72
        assert await served(database, agent_id, "counting") == "counting"
        assert indexing.problem == "The encoder is out of order."
        await indexing.catch_up()  # it rests
        clock.forward(seconds=61)
        await indexing.catch_up()
        clock.forward(seconds=61)  # and rests longer the next time
        calls: list[int] = []
        encoder.meet = calls.append
        await indexing.catch_up()
        assert not calls
        clock.forward(seconds=60)
        await indexing.catch_up()
    assert await indexing.progress() == (200, 200)
    assert len(encoder.seen) == len(set(encoder.seen)) == 200
    assert indexing.problem is None
    broken, mended = caplog.messages
    assert broken.startswith("Texts are not encoded for search: The encoder is out of order. ")
    assert mended == "Texts are encoded for search again."


async def test_an_encoder_that_cannot_be_made_is_tried_again(
    database: Database, clock: ManualClock, caplog: pytest.LogCaptureFixture
):
    await talk(database, 50)
    encoder = Counting()
    ready = False

    def make() -> Encoder:
        if not ready:
            raise ConfigError("There is no such vendor.")
        return encoder

    indexing = Indexing(database, clock, make, quiet=0)
    await indexing.catch_up()
    assert await indexing.progress() == (0, 100)
    assert indexing.problem == await indexing.check() == "There is no such vendor."
    ready = True
    assert await indexing.check() is None
    indexing.encoder_changed()
    await indexing.catch_up()
    assert await indexing.progress() == (100, 100)
    assert len(caplog.messages) == 1


@pytest.mark.promise("M15")
async def test_what_was_broken_off_goes_on_where_it_was(database: Database, clock: ManualClock):
    agent_id = await talk(database, 100)
    encoder, hangs = Counting(), asyncio.Event()

    async def hang() -> None:
        hangs.set()
        await asyncio.Event().wait()

    encoder.meet = lambda call: hang() if call == 3 else None
    indexing = made(database, encoder, clock)
    await indexing.start()
    async with asyncio.timeout(120):
        await hangs.wait()
    await indexing.stop()
    assert len(encoder.seen) == 128
    again = Counting()
    await made(database, again, clock).catch_up()
    assert len(again.seen) == 72
    assert not {*encoder.seen} & {*again.seen}
    assert await vectors(database, agent_id, "counting") == [True] * 200


@pytest.mark.promise("M15")
async def test_another_encoder_takes_over_when_it_has_encoded_all(
    database: Database, clock: ManualClock
):
    agent_id = await talk(database, 100)
    await made(database, Counting("former"), clock).catch_up()
    latter = Counting("latter")
    latter.meet = lambda call: fail() if call > 2 else None
    indexing = made(database, latter, clock)
    await indexing.catch_up()
    assert await indexing.progress() == (128, 200)
    assert await served(database, agent_id, "latter") == "former"
    assert await vectors(database, agent_id, "former") == [True] * 200
    latter.meet = lambda _: None
    clock.forward(seconds=61)
    await indexing.catch_up()
    assert await served(database, agent_id, "latter") == "latter"
    there = await database.read(lambda tx: index.encoder_counts(tx, "journal", agent_id))
    assert there == {"latter": 200}


async def test_what_is_taken_off_while_it_is_encoded_is_not_stored(
    database: Database, clock: ManualClock
):
    agent_id = await talk(database, 100)
    encoder = Counting()

    async def drop() -> None:
        await database.write(lambda tx: search_index.drop(tx, "journal", agent_id, [1]))

    encoder.meet = lambda call: drop() if call == 2 else None
    indexing = made(database, encoder, clock)
    await indexing.catch_up()
    await indexing.catch_up()
    assert await indexing.progress() == (200, 200)
    assert await vectors(database, agent_id, "counting") == [True] * 200


async def test_what_comes_meanwhile_does_not_wait_for_a_long_shelf(
    database: Database, clock: ManualClock
):
    await talk(database, 800, "long")
    encoder = Counting()
    indexing = made(database, encoder, clock)

    async def more() -> None:
        indexing.kick(await talk(database, 50, "quick", first=5_000))

    encoder.meet = lambda call: more() if call == 1 else None
    await indexing.catch_up()
    assert len(encoder.seen) == 1_700
    # The second of three segments of the long index has yet to be encoded.
    assert encoder.seen.index("Reply 5049") < encoder.seen.index("Reply 799")
    assert encoder.seen.index("Reply 5049") < 900


async def test_indexing_begins_by_itself_when_an_agent_is_quiet(database: Database):
    agent_id = await talk(database, 50)
    encoder = Counting()
    indexing = Indexing(database, now_ms, lambda: encoder, quiet=0.02)
    await indexing.start()
    try:
        async with asyncio.timeout(120):
            await until(indexing, (100, 100))
            await talk(database, 60, first=50)
            for _ in range(60):
                indexing.kick(agent_id)
            assert indexing.due == {agent_id}
            await until(indexing, (220, 220))
            assert not indexing.due
    finally:
        await indexing.stop()


@pytest.mark.promise("M15")
async def test_a_home_encodes_with_the_server_that_is_configured(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    index.cache.clear()
    async with OpenAIServer() as server:
        given = {
            "search.encoder": "ours:embedder",
            "models": {"ours": {"base_url": server.base_url}},
        }
        model = ScriptedModel([Reply("Hello.")])
        async with Asterism.open(
            tmp_path / "home", settings=given, models={"scripted": model}, environ={}
        ) as home:
            agent = await home.agents.create("aria", model="scripted:one")
            said = [("user", "I row on Sundays"), ("assistant", "Where?")] * 50
            await home.agents.import_messages(agent, said)
            assert home.indexing.due == {agent.id}
            server.next(status(404, "no such model"))
            await home.indexing.catch_up()
            assert home.indexing.problem is not None
            assert "'ours:embedder'" in home.indexing.problem
            home.indexing.encoder_changed()
            await home.indexing.catch_up()
            assert await home.indexing.progress() == (100, 100)
            assert home.indexing.problem is None
            assert not home.indexing.due
            await home.agents.ask(agent, "Hello")
            assert home.indexing.due == {agent.id}
            await home.indexing.catch_up()
            passage = (await home.archive.add(agent, "The rent is 900 euros")).passage.id
            assert home.indexing.due == {agent.id}
            await home.indexing.catch_up()
            await home.archive.append(passage, "a month")
            assert home.indexing.due == {agent.id}
    assert {one.path for one in server.requests} == {"/v1/embeddings"}
    assert len(caplog.messages) == 1


async def test_the_latest_texts_are_not_told_as_vectors_that_are_missing(tmp_path: Path):
    """They are read as they are until there are more of them, by design and for good."""
    index.cache.clear()
    async with OpenAIServer() as server:
        given = {
            "search.encoder": "ours:embedder",
            "models": {"ours": {"base_url": server.base_url}},
        }
        async with Asterism.open(tmp_path / "home", settings=given, environ={}) as home:
            agent = await home.agents.create("aria", model="demo:guide")
            said = [("user", "I row on Sundays"), ("assistant", "Where?")] * 10
            await home.agents.import_messages(agent, said)
            await home.indexing.catch_up()
            assert await home.indexing.progress() == (20, 20)
            await home.agents.import_messages(agent, said[:10])
            await home.indexing.catch_up()
            assert await home.indexing.progress() == (20, 20)
            found = await home.search(agent, "who rows?")
            assert found.hits
            assert found.notes == ()


CHILD = """
import asyncio, sys, time
from pathlib import Path
import numpy as np
from asterism.turns.lanes import Indexing
from asterism.store.sqlite import open_sqlite

class Slow:
    name = "counting"
    async def encode(self, texts, *, question=False):
        print(len(texts), flush=True)
        await asyncio.sleep(0.05)
        return np.ones((len(texts), 8), dtype=np.float32)

async def main():
    database = await open_sqlite(Path(sys.argv[1]))
    await Indexing(database, lambda: int(time.time() * 1000), Slow).catch_up()

asyncio.run(main())
"""


@pytest.mark.promise("M15")
async def test_a_process_killed_in_the_middle_leaves_nothing_half(
    tmp_path: Path, clock: ManualClock
):
    database = await open_sqlite(tmp_path / "data")
    agent_id = await talk(database, 500)
    await database.close()
    for batches in (2, 5):
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-c", CHILD, str(tmp_path / "data"), stdout=asyncio.subprocess.PIPE
        )
        assert child.stdout is not None
        async with asyncio.timeout(120):
            for _ in range(batches):
                assert await child.stdout.readline() == b"64\n"
            os.kill(child.pid, signal.SIGKILL)
            await child.communicate()
    database = await open_sqlite(tmp_path / "data")
    encoder = Counting()
    indexing = made(database, encoder, clock)
    done, total = await indexing.progress()
    assert total == 1_000
    assert done >= 5 * 64
    found = await vectors(database, agent_id, "counting")
    assert found == [True] * done + [False] * (total - done)
    await indexing.catch_up()
    assert len(encoder.seen) == total - done
    assert await vectors(database, agent_id, "counting") == [True] * total
    await database.close()
