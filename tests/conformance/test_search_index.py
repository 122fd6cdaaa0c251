"""The index of search: what it tells is what is stored, indexed or not, whatever happens to it."""

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from asterism.memory.gate import passages as gate
from asterism.memory.gate.passages import NewPassage
from asterism.search import build, index, texts
from asterism.search.encode import drop_vectors, encode_rows
from asterism.search.search import best_indexes
from asterism.store import search_index
from asterism.store.database import Connection, Database
from asterism.types.memory import AppendPassage, Insert, Retract
from asterism.types.turns import TurnState
from tests.conformance.index_scene import (
    WORDS,
    agree,
    as_searched,
    end,
    fold_all,
    found_by,
    index_state,
    insert,
    loaded,
    rows_of,
    run,
    say,
    seen,
    talk,
    terms_at_rest,
)
from tests.conformance.memory_scene import ENGINES, NOW, as_owner, opened, put_agent

JOURNAL, ARCHIVE = search_index.JOURNAL, search_index.ARCHIVE


@pytest.fixture(params=ENGINES)
async def database(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Database]:
    index.cache.clear()
    async with opened(request.param, tmp_path) as database:
        yield database


@pytest.fixture
async def aria(database: Database) -> str:
    return await database.write(lambda tx: put_agent(tx, "aria"))


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make segments so short that a few texts fill several."""
    for module in (search_index, build):
        monkeypatch.setattr(module, "RANGE", 8)
    monkeypatch.setattr(build, "MIN_NEW_TEXTS", 3)


# -- at once ---------------------------------------------------------------------------------------


@pytest.mark.promise("M6")
async def test_a_text_is_found_in_the_transaction_that_stores_it(
    database: Database, aria: str
) -> None:
    async def work(tx: Connection) -> tuple[list[int], list[int], list[int]]:
        await say(tx, aria, "turn_1", "The lantern hangs in the hall.", "A nice lantern.")
        before = await found_by(tx, ARCHIVE, aria, "violin")
        await gate.write(tx, as_owner(), aria, Insert("Anna plays the violin."))
        return (
            await found_by(tx, JOURNAL, aria, "lantern"),
            before,
            await found_by(tx, ARCHIVE, aria, "violin"),
        )

    assert await database.write(work) == ([1, 3], [], [1])


async def test_what_an_undone_transaction_had_stored_is_not_found(
    database: Database, aria: str
) -> None:
    await talk(database, aria, 2)

    async def undone(tx: Connection) -> None:
        await say(tx, aria, "turn_x", "An umbrella.")
        assert await found_by(tx, JOURNAL, aria, "umbrella") == [7]
        raise RuntimeError("undone")

    with pytest.raises(RuntimeError, match="undone"):
        await database.write(undone)
    assert await database.read(lambda tx: found_by(tx, JOURNAL, aria, "umbrella")) == []
    await database.write(lambda tx: say(tx, aria, "turn_y", "A parasol."))
    assert await database.read(lambda tx: found_by(tx, JOURNAL, aria, "umbrella")) == []
    assert await database.read(lambda tx: found_by(tx, JOURNAL, aria, "parasol")) == [7]


async def test_a_text_knows_who_said_it_where_and_who_may_hear_it(
    database: Database, aria: str
) -> None:
    async def work(tx: Connection) -> None:
        await say(tx, aria, "turn_1", "Mine.", "Yours.")
        await say(
            *(tx, aria, "turn_2", "Ben here, did you hear me yesterday?"),
            sender="ben",
            audience="person:person_ben",
            reply_to="room-7",
        )
        await gate.write(tx, as_owner(), aria, Insert("A passage."))

    await database.write(work)
    said = seen((await loaded(database, JOURNAL, aria)).texts)
    assert [(one.speaker, one.thread, one.audience) for one in said] == [
        ("owner", "cli", "owner"),
        ("agent", "cli", "owner"),
        ("cli:ben", "cli:room-7", "person:person_ben"),
    ]
    assert [bool(one.flags & 8) for one in said] == [False, True, False]
    cache = seen((await loaded(database, ARCHIVE, aria)).texts)
    assert [(one.speaker, one.thread, one.audience, one.at) for one in cache] == [
        ("", "", "public", NOW)
    ]


async def test_an_agent_without_texts_has_an_empty_shelf(database: Database, aria: str) -> None:
    for kind in (JOURNAL, ARCHIVE):
        empty = await loaded(database, kind, aria)
        assert (len(empty.texts), empty.index_id, empty.left_out) == (0, None, 0)
        assert await fold_all(database, kind, aria) == 0
    found = await database.read(
        lambda tx: as_searched(tx, [(JOURNAL, aria), (ARCHIVE, aria)], ["a", "", "a"])
    )
    assert found == ([[], []], {})


async def test_a_very_long_tail_is_looked_at_from_its_end(
    database: Database, aria: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index, "MAX_TAIL", 12)
    await talk(database, aria, 10)
    late = await loaded(database, JOURNAL, aria)
    assert [int(one) for one in late.texts.numbers] == [19, 21, 22, 24, 25, 27, 28, 30]
    assert late.left_out == 18


# -- indexing --------------------------------------------------------------------------------------


async def test_folding_waits_until_enough_has_come(database: Database, aria: str) -> None:
    await talk(database, aria, 5)
    assert await fold_all(database, JOURNAL, aria) == 0
    await talk(database, aria, 1, 5)
    assert await fold_all(database, JOURNAL, aria) == 1
    assert (await rows_of(database))["segments"] == 1
    await talk(database, aria, 5, 6)
    assert await fold_all(database, JOURNAL, aria) == 0
    await agree(database, [(JOURNAL, aria)])
    await talk(database, aria, 400, 11)
    assert await fold_all(database, JOURNAL, aria) == 2
    assert await fold_all(database, JOURNAL, aria) == 0
    assert await database.read(build.outdated_indexes) == []
    await agree(database, [(JOURNAL, aria)])


class Walk:
    """Things that happen to the memory of two agents, at random."""

    def __init__(self, database: Database, agents: Sequence[str], seed: int) -> None:
        self._chance = random.Random(seed)
        self._database = database
        self._agents = agents
        self.index_key = [(kind, one) for one in agents for kind in (JOURNAL, ARCHIVE)]
        self._going: dict[str, str] = {}
        self._held: dict[str, str] = {}

    def _text(self) -> str:
        words = self._chance.choices(WORDS, k=self._chance.randint(1, 30))
        return " ".join(words) + self._chance.choice(["?", ".", " in May 2024.", " 42"])

    async def step(self, number: int) -> None:
        steps = [self.say, self.say, self.say, self.end, self.insert, self.append, self.build]
        await self._chance.choice([*steps, self.look])(number)

    async def say(self, number: int) -> None:
        agent_id, turn_id = self._chance.choice(self._agents), f"turn_{number}"
        state = self._chance.choice([TurnState.DONE] * 4 + [TurnState.PARKED])
        if agent_id not in self._going.values() and self._chance.random() < 0.2:
            state = TurnState.OPEN
        if state is not TurnState.DONE:
            self._going[turn_id] = agent_id if state is TurnState.OPEN else ""
        said, answered = self._text(), self._chance.choice(["", self._text()])
        await self._database.write(
            lambda tx: say(tx, agent_id, turn_id, said, answered, state=state, audience="public")
        )

    async def end(self, _: int) -> None:
        if self._going:
            turn_id = self._chance.choice(sorted(self._going))
            del self._going[turn_id]
            audience = self._chance.choice([None, "public", "person:person_anna"])
            await self._database.write(lambda tx: end(tx, turn_id, audience))

    async def insert(self, number: int) -> None:
        agent_id = self._chance.choice(self._agents)
        passage_id = await insert(self._database, agent_id, f"{self._text()} {number}")
        self._held[passage_id] = agent_id

    async def append(self, _: int) -> None:
        if self._held:
            passage_id = self._chance.choice(sorted(self._held))
            more = AppendPassage(passage_id, self._text())
            await self._database.write(
                lambda tx: gate.write(tx, as_owner(), self._held[passage_id], more)
            )

    async def build(self, _: int) -> None:
        for one in self.index_key:
            await fold_all(self._database, *one)

    async def look(self, _: int) -> None:
        await agree(self._database, self.index_key[: self._chance.randint(1, len(self.index_key))])


@pytest.mark.promise("M6")
@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("seed", range(6))
async def test_folded_or_not_a_search_sees_what_is_stored(database: Database, seed: int) -> None:
    agents = [
        await database.write(lambda tx, name=name: put_agent(tx, name)) for name in ("aria", "bo")
    ]
    walk = Walk(database, agents, seed)
    for number in range(60):
        await walk.step(number)
    await agree(database, walk.index_key)
    await walk.build(60)
    await agree(database, walk.index_key)
    assert (await rows_of(database))["segments"] > 2


@pytest.mark.usefixtures("small")
async def test_a_turn_that_goes_on_stays_in_the_tail(database: Database, aria: str) -> None:
    await talk(database, aria, 2)
    parked = TurnState.PARKED
    await database.write(
        lambda tx: say(tx, aria, "turn_p", "A secret umbrella.", audience="public", state=parked)
    )
    await talk(database, aria, 8, 2)
    await database.write(
        lambda tx: say(tx, aria, "turn_o", "A late parasol.", state=TurnState.OPEN)
    )
    await fold_all(database, JOURNAL, aria)
    row = await database.read(
        lambda tx: tx.one("SELECT COUNT(*), MAX(last) FROM segments WHERE open_numbers <> ''")
    )
    assert row == (1, 8)
    assert "umbrella" not in await terms_at_rest(database)
    assert await database.read(lambda tx: found_by(tx, JOURNAL, aria, "umbrella")) == [7]
    assert await database.read(lambda tx: found_by(tx, JOURNAL, aria, "parasol")) == [33]
    await agree(database, [(JOURNAL, aria)])
    await loaded(database, JOURNAL, aria)
    await database.write(lambda tx: end(tx, "turn_p", "person:person_anna"))
    heard = {
        one.number: one.audience for one in seen((await loaded(database, JOURNAL, aria)).texts)
    }
    assert heard[7] == "person:person_anna"
    await fold_all(database, JOURNAL, aria)
    assert (
        await database.read(
            lambda tx: tx.all("SELECT first FROM segments WHERE open_numbers <> ''")
        )
        == []
    )
    assert await database.read(lambda tx: found_by(tx, JOURNAL, aria, "umbrella")) == [7]
    await agree(database, [(JOURNAL, aria)])


@pytest.mark.usefixtures("small")
async def test_a_segment_made_by_two_at_once_is_stored_once(database: Database, aria: str) -> None:
    await talk(database, aria, 4)
    ranges = await database.read(lambda tx: build.pending_segments(tx, JOURNAL, aria))
    read = await database.read(lambda tx: build.read_segment_texts(tx, ranges[0]))
    made = build.build_segment(read)
    results = await asyncio.gather(
        *(database.write(lambda tx: build.store_segment(tx, made)) for _ in range(4))
    )
    assert sorted(results) == [False, False, False, True]
    await agree(database, [(JOURNAL, aria)])


@pytest.mark.usefixtures("small")
async def test_shelves_made_at_once_are_different_ones(database: Database) -> None:
    names = [f"a{number}" for number in range(8)]
    agents = [await database.write(lambda tx, name=name: put_agent(tx, name)) for name in names]
    for one in agents:
        await database.write(
            lambda tx, one=one: say(tx, one, f"turn_{one}", f"Only {one} says a lantern.")
        )
    found = await asyncio.gather(
        *(
            database.write(lambda tx, one=one: search_index.lock_index(tx, JOURNAL, one))
            for one in agents
        )
    )
    assert len({index_id for index_id, _ in found}) == len(agents)


# -- passages --------------------------------------------------------------------------------------


@pytest.mark.usefixtures("small")
async def test_a_changed_passage_is_found_by_its_new_words_only(
    database: Database, aria: str
) -> None:
    ids = [await insert(database, aria, f"{word} is here") for word in WORDS[:4]]
    await fold_all(database, ARCHIVE, aria)
    await database.write(
        lambda tx: gate.write(tx, as_owner(), aria, AppendPassage(ids[1], "a parasol too"))
    )
    assert await database.read(lambda tx: found_by(tx, ARCHIVE, aria, "parasol")) == [5]
    numbers = await database.read(
        lambda tx: tx.all("SELECT number FROM passages WHERE id = ?", (ids[1],))
    )
    assert numbers == [(5,)]
    assert await fold_all(database, ARCHIVE, aria) == 1
    assert await database.read(lambda tx: found_by(tx, ARCHIVE, aria, "bridg")) == [5]
    await database.write(lambda tx: gate.write(tx, as_owner(), aria, Retract(ids[0])))
    # What does not hold any more is on the index still: it held once.
    assert await database.read(lambda tx: found_by(tx, ARCHIVE, aria, "river")) == [1]
    await agree(database, [(ARCHIVE, aria)])


@pytest.mark.usefixtures("small")
async def test_a_document_is_on_the_shelf_once_it_is_published(
    database: Database, aria: str
) -> None:
    async def stage(tx: Connection, words: Sequence[str]) -> None:
        rows = [
            NewPassage(f"{word} in a letter", document="a.md", place=place, staged=True)
            for place, word in enumerate(words)
        ]
        await gate.insert_many(tx, as_owner(), aria, rows)

    async def publish(tx: Connection) -> int:
        return await gate.publish_document(tx, as_owner(NOW + 9), aria, "a.md")

    await database.write(lambda tx: stage(tx, WORDS[:5]))
    assert len((await loaded(database, ARCHIVE, aria)).texts) == 0
    assert await fold_all(database, ARCHIVE, aria) == 0
    assert await database.write(publish) == 5
    assert await database.read(lambda tx: found_by(tx, ARCHIVE, aria, "river")) == [1]
    assert await fold_all(database, ARCHIVE, aria) == 1
    await database.write(lambda tx: stage(tx, WORDS[3:8]))
    await database.write(publish)
    texts = seen((await loaded(database, ARCHIVE, aria)).texts)
    assert {(one.thread, one.at) for one in texts if one.number > 5} == {("a.md", NOW + 9)}
    await fold_all(database, ARCHIVE, aria)
    await agree(database, [(ARCHIVE, aria)])
    assert await database.read(lambda tx: found_by(tx, ARCHIVE, aria, "river")) == []
    assert await database.write(lambda tx: gate.delete_document(tx, as_owner(), aria, "a.md")) == 5
    await fold_all(database, ARCHIVE, aria)
    assert await rows_of(database) == {"segments": 0, "postings": 0, "embeddings": 0}


# -- rows that are lost or damaged -----------------------------------------------------------------


DAMAGE = {
    "no segments": "DELETE FROM segments WHERE first = 9",
    "no postings": "DELETE FROM postings WHERE first = 9",
    "a posting less": "DELETE FROM postings WHERE first = 9 AND prefix = 'ha'",
    "a mark less": "DELETE FROM postings WHERE first = 9 AND prefix = ''",
    "cut columns": "UPDATE segments SET columns = SUBSTR(columns, 1, 40) WHERE first = 9",
    "cut vectors": "UPDATE segments SET vectors = SUBSTR(vectors, 1, 100) WHERE first = 9",
    "another segment": (
        "UPDATE segments SET columns = (SELECT columns FROM segments WHERE first = 1)"
        " WHERE first = 9"
    ),
    "no index": "DELETE FROM search_indexes",
}


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("damage", DAMAGE)
async def test_a_damaged_index_still_answers_and_is_healed(
    database: Database, aria: str, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    await talk(database, aria, 10)
    await fold_all(database, JOURNAL, aria)
    assert (await rows_of(database))["segments"] == 4
    assert await run(database, DAMAGE[damage]) > 0
    index.cache.clear()
    await agree(database, [(JOURNAL, aria)])
    assert await database.read(build.outdated_indexes) == [(JOURNAL, aria)]
    assert await fold_all(database, JOURNAL, aria) > 0
    caplog.clear()
    await agree(database, [(JOURNAL, aria)])
    assert not caplog.records
    assert await database.read(lambda tx: build.check(tx, JOURNAL, aria)) == []
    assert await fold_all(database, JOURNAL, aria) == 0


@pytest.mark.usefixtures("small")
async def test_checking_finds_what_no_search_has_met(database: Database, aria: str) -> None:
    await talk(database, aria, 10)
    await fold_all(database, JOURNAL, aria)
    await loaded(database, JOURNAL, aria)
    await run(database, "DELETE FROM postings WHERE first = 9 AND prefix = 'la'")
    assert await database.read(lambda tx: build.check(tx, JOURNAL, aria)) == [9]
    assert await fold_all(database, JOURNAL, aria) == 1
    await agree(database, [(JOURNAL, aria)])


# -- vectors of encoders ---------------------------------------------------------------------------


@pytest.mark.promise("M15")
@pytest.mark.usefixtures("small")
async def test_encoders_vectors_stay_with_their_texts(database: Database, aria: str) -> None:
    await talk(database, aria, 5)
    assert await database.read(lambda tx: build.missing_vectors(tx, JOURNAL, aria, "one")) == []
    await fold_all(database, JOURNAL, aria)

    async def encode(most: int) -> bool:
        missing = (await database.read(lambda tx: build.missing_vectors(tx, JOURNAL, aria, "one")))[
            0
        ]
        rows = {number: bytes([number] * 4) for number in missing.numbers[:most]}
        return await database.write(
            lambda tx: build.store_vectors(
                tx, JOURNAL, aria, "one", missing.first, rows, missing.removals
            )
        )

    async def look(tx: Connection) -> dict[int, int] | None:
        one = await index.load(tx, JOURNAL, aria)
        found = await encode_rows(tx, [one], "one")
        if found is None:
            return None
        vectors, has, _ = found
        assert vectors.shape == (len(one.texts), 4)
        assert not vectors[~has].any()
        return {
            int(number): int(row[0])
            for number, row, there in zip(one.texts.numbers, vectors, has, strict=True)
            if there
        }

    assert await database.read(look) is None
    assert await encode(2)
    assert await database.read(look) == {1: 1, 3: 3}
    assert await encode(9)
    assert await encode(9)
    everything = {number: number for number in (1, 3, 4, 6, 7, 9, 10, 12, 13, 15)}
    assert await database.read(look) == everything
    assert await database.read(lambda tx: build.missing_vectors(tx, JOURNAL, aria, "one")) == []
    # A segment that is built again has them still.
    await talk(database, aria, 2, 5)
    await fold_all(database, JOURNAL, aria)
    assert await database.read(look) == everything
    assert await database.read(lambda tx: index.encoder_counts(tx, JOURNAL, aria)) == {"one": 10}
    both = [(JOURNAL, aria), (ARCHIVE, aria), (JOURNAL, aria)]
    vectors, has = await database.read(lambda tx: _encoded(tx, both))
    assert np.array_equal(has, np.concatenate([has[: len(has) // 2]] * 2))
    assert int(has.sum()) == 20
    assert vectors.dtype == np.int8
    await run(database, "UPDATE embeddings SET vectors = SUBSTR(vectors, 1, 3) WHERE first = 1")
    index.cache.clear()
    assert await database.read(look) == {one: one for one in everything if one > 8}
    await database.write(lambda tx: drop_vectors(tx, JOURNAL, aria, "one"))
    assert await database.read(look) is None


async def _encoded(
    tx: Connection, index_key: list[tuple[str, str]]
) -> tuple[np.ndarray, np.ndarray]:
    found = await encode_rows(tx, await index.load_indexes(tx, index_key), "one")
    assert found is not None
    return found[:2]


@pytest.mark.usefixtures("small")
async def test_vectors_of_what_was_dropped_meanwhile_are_not_stored(
    database: Database, aria: str
) -> None:
    await talk(database, aria, 5)
    await fold_all(database, JOURNAL, aria)
    missing = (await database.read(lambda tx: build.missing_vectors(tx, JOURNAL, aria, "one")))[0]
    read = await database.read(lambda tx: build.texts_at(tx, JOURNAL, aria, missing.numbers))
    assert read[1] == "river number 0"
    await database.write(lambda tx: search_index.drop(tx, JOURNAL, aria, [1]))
    vectors = dict.fromkeys(missing.numbers, bytes(4))
    assert not await database.write(
        lambda tx: build.store_vectors(
            tx, JOURNAL, aria, "one", missing.first, vectors, missing.removals
        )
    )
    assert (await rows_of(database))["embeddings"] == 0


@pytest.mark.usefixtures("small")
async def test_what_is_dropped_while_it_is_folded_is_not_stored(
    database: Database, aria: str
) -> None:
    await talk(database, aria, 5)
    ranges = await database.read(lambda tx: build.pending_segments(tx, JOURNAL, aria))
    reads = [
        await database.read(lambda tx, one=one: build.read_segment_texts(tx, one)) for one in ranges
    ]
    await database.write(lambda tx: search_index.drop(tx, JOURNAL, aria, [1]))
    for read in reads:
        made = build.build_segment(read)
        assert not await database.write(lambda tx, made=made: build.store_segment(tx, made))
    assert await rows_of(database) == {"segments": 0, "postings": 0, "embeddings": 0}
    assert (await index_state(database, JOURNAL, aria)).removals == 1


# -- what a process keeps --------------------------------------------------------------------------


@pytest.mark.usefixtures("small")
async def test_what_is_kept_in_memory_is_bounded(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = index.IndexCache(100_000)
    monkeypatch.setattr(index, "cache", cache)
    agents: list[str] = []
    for name in "abcdefghij":
        agents.append(await database.write(lambda tx, name=name: put_agent(tx, name)))
        await database.write(
            lambda tx, name=name: say(tx, agents[-1], f"turn_{name}", f"{name} has a lantern.")
        )
    for one in agents:
        await loaded(database, JOURNAL, one)
    assert 0 < len(cache) < len(agents)
    assert cache.size <= 100_000
    assert [
        await database.read(lambda tx, one=one: found_by(tx, JOURNAL, one, "lantern"))
        for one in agents
    ] == [[1]] * 10
    cache = index.IndexCache(1)
    monkeypatch.setattr(index, "cache", cache)
    await loaded(database, JOURNAL, agents[0])
    assert len(cache) == 1


async def test_a_warm_shelf_reads_no_text_again(
    database: Database, aria: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await talk(database, aria, 80)
    await fold_all(database, JOURNAL, aria)
    await talk(database, aria, 5, 80)
    before = await loaded(database, JOURNAL, aria)
    build_segment: list[str] = []
    analyze = texts.analyze

    def noted(text: str, at: int) -> object:
        build_segment.append(text)
        return analyze(text, at)

    monkeypatch.setattr(texts, "analyze", noted)
    texts.clear()
    await talk(database, aria, 1, 85)
    after = await loaded(database, JOURNAL, aria)
    assert build_segment == [f"{WORDS[5]} number 85", f"About {WORDS[1]}."]
    assert len(before.texts) + 2 == len(after.texts)
    assert np.shares_memory(before.texts.vectors, after.texts.vectors)


# -- many indexes ----------------------------------------------------------------------------------


@pytest.mark.promise("M6")
async def test_of_many_shelves_those_with_the_best_words_are_looked_at(database: Database) -> None:
    agents: list[str] = []
    for number in range(12):
        name = f"a{number}"
        agents.append(await database.write(lambda tx, name=name: put_agent(tx, name)))
        await talk_as(database, agents[-1], 30, "river and bridge")
    await talk_as(database, agents[4], 1, "a lantern at the harbour", "x")
    for one in agents:
        await fold_all(database, JOURNAL, one)
    # Not indexed: too little for it.
    await talk_as(database, agents[7], 1, "a lantern at the harbour bridge", "y")
    await talk_as(database, agents[2], 1, "one lantern", "z")
    index_key = [(JOURNAL, one) for one in agents]

    async def look(terms: list[str], most: int) -> list[str]:
        found = await database.read(lambda tx: best_indexes(tx, index_key, terms, most))
        return [owner_id for _, owner_id in found]

    assert await look(["lantern", "harbour", "bridg"], 3) == [agents[one] for one in (7, 4, 2)]
    assert await look(["lantern"], 40) == [agents[one] for one in (2, 4, 7)]
    assert await look(["nowhere"], 40) == []
    assert await look([], 40) == []
    assert len(await look(["river"], 40)) == 12
    await talk_as(database, agents[0], 1, "a violin", "v")
    assert await look(["violin"], 40) == [agents[0]]


async def talk_as(
    database: Database, agent_id: str, count: int, text: str, mark: str = "t"
) -> None:
    async def work(tx: Connection) -> None:
        for number in range(count):
            await say(tx, agent_id, f"turn_{mark}_{agent_id}_{number}", text, "Yes.")

    await database.write(work)
