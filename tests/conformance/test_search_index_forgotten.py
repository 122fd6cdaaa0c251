"""The index of search and what is forgotten, restored or renamed: it follows what is stored."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from asterism.memory import people
from asterism.memory.forgetting import Forgetting, forget
from asterism.memory.forgetting.removal import RetentionKind, RetentionRule, enforce_retention
from asterism.search import build, index
from asterism.store import search_index
from asterism.store.database import Database
from tests.conformance.forget_scene import OnSQLite, files_with
from tests.conformance.index_scene import (
    WORDS,
    agree,
    fold_all,
    found_by,
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


SECRET = "xylophone-quincunx"


async def encode_all(database: Database, kind: str, owner_id: str) -> None:
    while found := await database.read(lambda tx: build.missing_vectors(tx, kind, owner_id, "one")):
        missing = found[0]
        rows = dict.fromkeys(missing.numbers, b"abcd")
        await database.write(
            lambda tx, missing=missing, rows=rows: build.store_vectors(
                tx, kind, owner_id, "one", missing.first, rows, missing.removals
            )
        )


async def plant(database: Database, agent_id: str) -> str:
    """Put a secret into a journal and an archive, and index and encode both."""
    await talk(database, agent_id, 6)
    await database.write(
        lambda tx: say(tx, agent_id, "turn_s", f"It is {SECRET}.", f"So {SECRET} it is.")
    )
    await talk(database, agent_id, 6, 6)
    passage_id = ""
    for number in range(10):
        text = f"{WORDS[number]} of {number}" + (f" and {SECRET}" if number == 4 else "")
        made = await insert(database, agent_id, text)
        passage_id = made if number == 4 else passage_id
    for kind in (JOURNAL, ARCHIVE):
        await fold_all(database, kind, agent_id)
        await encode_all(database, kind, agent_id)
    assert {"xylophon", "quincunx"} <= await terms_at_rest(database)
    return passage_id


async def is_forgotten(database: Database, data: Path, agent_id: str) -> None:
    index_key = [(JOURNAL, agent_id), (ARCHIVE, agent_id)]
    for word in ("xylophon", "quincunx"):
        assert word not in await terms_at_rest(database)
        for one in index_key:
            assert (
                await database.read(lambda tx, one=one, word=word: found_by(tx, *one, word)) == []
            )
    await agree(database, index_key)
    for one in index_key:
        await fold_all(database, *one)
    await agree(database, index_key)
    assert not {"xylophon", "quincunx"} & await terms_at_rest(database)
    assert not files_with(data, "xylophon-")


@pytest.mark.promise("M13")
@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("what", ["text", "ids", "retention"])
async def test_forgetting_takes_words_and_vectors_out_of_the_index(
    database: Database, aria: str, tmp_path: Path, what: str
) -> None:
    data = tmp_path / "data"
    data.mkdir(exist_ok=True)
    passage_id = await plant(database, aria)
    before = await rows_of(database)
    match what:
        case "text":
            await forget(database, data, as_owner(), Forgetting(texts=(SECRET,)))
        case "ids":
            ids = Forgetting(turns=("turn_s",), passages=(passage_id,))
            await forget(database, data, as_owner(), ids)
        case _:
            rules = [
                RetentionRule(RetentionKind.MESSAGES, 1),
                RetentionRule(RetentionKind.PASSAGES, 1),
            ]
            await enforce_retention(database, rules, NOW + 3 * 86_400_000)
    after = await rows_of(database)
    if what == "retention":
        assert after == {"segments": 0, "postings": 0, "embeddings": 0}
    else:
        # Only the segments that held it.
        assert 0 < after["segments"] < before["segments"]
        assert after["embeddings"] == after["segments"]
    await is_forgotten(database, data, aria)


@pytest.mark.promise("M13")
@pytest.mark.usefixtures("small")
async def test_forgetting_takes_out_words_of_what_was_there_once(
    database: Database, aria: str, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    data.mkdir(exist_ok=True)
    passage_id = await plant(database, aria)
    # The text is gone from the passage already, and its segment waits to be built again.
    await run(database, "UPDATE passages SET text = 'calm' WHERE id = ?", (passage_id,))
    await run(database, "UPDATE segments SET stale = 1")
    await forget(database, data, as_owner(), Forgetting(texts=(SECRET,)))
    assert not {"xylophon", "quincunx"} & await terms_at_rest(database)


@pytest.mark.promise("M13")
@pytest.mark.usefixtures("small")
async def test_a_forgotten_agent_leaves_nothing_in_the_index(
    database: Database, aria: str, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    data.mkdir(exist_ok=True)
    await plant(database, aria)
    other = await database.write(lambda tx: put_agent(tx, "bo"))
    await database.write(lambda tx: say(tx, other, "turn_bo", "Bo plays chess.", "With joy."))
    await talk_of(database, other)
    await forget(database, data, as_owner(), Forgetting(agents=(aria,)))
    left = await database.read(lambda tx: tx.all("SELECT DISTINCT owner_id FROM search_indexes"))
    assert left == [(other,)]
    assert "chess" in await terms_at_rest(database)
    assert "xylophon" not in await terms_at_rest(database)
    await agree(database, [(JOURNAL, other)])


async def talk_of(database: Database, agent_id: str) -> None:
    for number in range(4):
        await database.write(
            lambda tx, number=number: say(tx, agent_id, f"turn_{agent_id}_{number}", "More chess.")
        )
    await fold_all(database, JOURNAL, agent_id)


@pytest.mark.usefixtures("small")
async def test_a_restored_backup_is_seen_as_it_is(tmp_path: Path) -> None:
    engine = OnSQLite(tmp_path / "data")
    database = await engine.open()
    aria = await database.write(lambda tx: put_agent(tx, "aria"))
    await talk(database, aria, 10)
    await fold_all(database, JOURNAL, aria)
    await database.close()
    engine.back_up()
    database = await engine.open()
    await talk(database, aria, 10, 10)
    await fold_all(database, JOURNAL, aria)
    await agree(database, [(JOURNAL, aria)])
    await loaded(database, JOURNAL, aria)
    await database.close()
    engine.restore()
    database = await engine.open()
    assert len((await loaded(database, JOURNAL, aria)).texts) == 20
    await agree(database, [(JOURNAL, aria)])
    await database.write(lambda tx: say(tx, aria, "turn_n", "Something else.", "Indeed."))
    await agree(database, [(JOURNAL, aria)])
    await database.close()


@pytest.mark.usefixtures("small")
async def test_persons_who_are_one_hear_what_either_may_hear(database: Database, aria: str) -> None:
    for_ben = "person:person_ben"
    for number in range(6):
        await database.write(
            lambda tx, number=number: say(tx, aria, f"turn_{number}", "Hi.", audience=for_ben)
        )
    await fold_all(database, JOURNAL, aria)
    await database.write(lambda tx: say(tx, aria, "turn_l", "Late.", audience=for_ben))
    await loaded(database, JOURNAL, aria)
    await database.write(lambda tx: people.move_memories(tx, "person_ben", "person_benjamin"))
    texts = seen((await loaded(database, JOURNAL, aria)).texts)
    assert {one.audience for one in texts} == {"person:person_benjamin"}
    await agree(database, [(JOURNAL, aria)])
