"""Search by who said something and when, and search of what has changed since."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from asterism.memory import people
from asterism.memory.forgetting import Forgetting, forget
from asterism.memory.gate import blocks as block_gate
from asterism.memory.gate import passages as gate
from asterism.memory.gate.passages import NewPassage
from asterism.search.search import search
from asterism.store.database import Connection, Database
from asterism.types.agents import OWNER_ALONE, Account
from asterism.types.memory import Append, AppendPassage, Insert, Retract
from asterism.types.search import HitKind, Query, ReasonKind
from tests.conformance.index_scene import fold_all, say
from tests.conformance.memory_scene import (
    ENGINES,
    HOUR,
    NOW,
    as_agent,
    as_owner,
    opened,
    put_agent,
    put_turn,
)
from tests.conformance.search_scene import (
    DAY,
    ask,
    find,
    insert,
    put_summary,
    texts,
)


@pytest.fixture(params=ENGINES)
async def database(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Database]:
    async with opened(request.param, tmp_path) as database:
        yield database


@pytest.fixture
async def aria(database: Database) -> str:
    return await database.write(lambda tx: put_agent(tx, "aria"))


# -- who, and when ---------------------------------------------------------------------------------


async def _household(tx: Connection, aria: str) -> None:
    for name, sender in (("Ben Okafor", "ben_77"), ("Clara", "c.l.")):
        person = await people.create_person(tx, name, NOW)
        await people.link(tx, Account("cli", sender), person.id)
    for number, (sender, said) in enumerate(
        (
            ("ben_77", "The blue bicycle needs new brakes."),
            ("c.l.", "The red bicycle needs new brakes."),
            (None, "The green bicycle needs new brakes."),
            ("stray", "The old bicycle needs new brakes."),
        )
    ):
        at = NOW + number * DAY
        await say(
            tx, aria, f"turn_{number}", said, "A bicycle shop can do it.", at=at, sender=sender
        )


@pytest.mark.promise("M6")
async def test_a_name_is_a_word_where_nobody_speaks(database: Database, aria: str):
    await database.write(lambda tx: _household(tx, aria))
    await insert(database, aria, "Ben likes green tea.")
    await insert(database, aria, "Clara likes black tea.")
    for name in ("Ben", "Clara"):
        best = (await find(database, aria, f"What tea does {name} like?"))[0]
        assert best.text.startswith(name)
        assert name in best.matched


@pytest.mark.promise("M6")
async def test_only_what_somebody_said(database: Database, aria: str):
    await database.write(lambda tx: _household(tx, aria))
    for who, said in (
        ("Ben Okafor", "blue"),
        ("ben", "blue"),
        ("cli:ben_77", "blue"),
        ("ben_77", "blue"),
        ("CLARA", "red"),
        ("owner", "green"),
        ("stray", "old"),
    ):
        found = await find(database, aria, "bicycle", speaker=who)
        assert [hit.text for hit in found] == [f"The {said} bicycle needs new brakes."], who
    replies = await find(database, aria, "bicycle", speaker="aria")
    assert {(hit.text, hit.speaker) for hit in replies} == {("A bicycle shop can do it.", "aria")}
    assert await find(database, aria, "bicycle", speaker="Nobody") == []


@pytest.mark.promise("M6")
async def test_names_and_i_and_you_say_whose_words_are_asked_for(database: Database, aria: str):
    await database.write(lambda tx: _household(tx, aria))
    for query, said, who in (
        ("What did Ben say about the bicycle brakes?", "The blue", "Ben Okafor"),
        ("What did Clara tell of the bicycle brakes?", "The red", "Clara"),
        ("What did I say about the bicycle brakes?", "The green", "owner"),
        ("What did you say about a bicycle shop?", "A bicycle shop", "aria"),
    ):
        first = (await find(database, aria, query))[0]
        assert first.text.startswith(said), query
        assert first.speaker == who
        assert f"speaker: {who}" in first.reason


def _at(year: int, month: int, day: int) -> int:
    return int(datetime(year, month, day, 12, tzinfo=UTC).timestamp() * 1000)


@pytest.mark.promise("M6")
async def test_days_that_a_question_names(database: Database, aria: str):
    days = [_at(2025, 12, 24), _at(2026, 6, 3), _at(2026, 8, 20), _at(2026, 9, 15)]

    async def put(tx: Connection) -> None:
        for number, at in enumerate(days):
            await say(tx, aria, f"turn_{number}", "We had dinner at the harbour.", at=at)

    await database.write(put)
    # It is Monday, 21 September 2026.
    for query, turn in (
        ("dinner on 24 December 2025", 0),
        ("dinner in June 2026", 1),
        ("Where was the dinner on 2026-08-20?", 2),
        ("Where did we have dinner last Tuesday?", 3),
        ("dinner last week", 3),
        ("dinner last month", 2),
    ):
        first = (await find(database, aria, query))[0]
        assert first.id.startswith(f"turn_{turn}#"), query
        assert ReasonKind.DATE in {one.kind for one in first.why}, query
    # The time alone is enough.
    assert (await find(database, aria, "What happened last Tuesday?"))[0].id.startswith("turn_3#")


@pytest.mark.promise("M6", "M8")
async def test_time_and_tags_narrow_a_search(database: Database, aria: str):
    old = await insert(database, aria, "The code of the gate is 4711.", tags=("codes", "gate"))
    await insert(
        database, aria, "The code is 1234 at the gate now.", now=NOW + 2 * DAY, supersedes=old
    )

    async def put(tx: Connection) -> None:
        await put_turn(tx, aria, "turn_1", "gate one", at=NOW)
        await put_turn(tx, aria, "turn_2", "gate two", at=NOW + DAY)

    await database.write(put)
    for _ in range(2):
        assert sorted(await texts(database, aria, "gate")) == [
            "The code is 1234 at the gate now.",
            "gate one",
            "gate two",
        ]
        assert sorted(await texts(database, aria, "gate", moment=NOW + HOUR)) == [
            "The code of the gate is 4711.",
            "gate one",
        ]
        between: dict[str, Any] = {"since": NOW + 1, "until": NOW + DAY}
        assert await texts(database, aria, "gate", **between) == ["gate two"]
        assert await texts(database, aria, "gate", tags=("codes",)) == []
        then = await texts(database, aria, "gate", tags=("codes", "GATE"), moment=NOW)
        assert then == ["The code of the gate is 4711."]
        await fold_all(database, "archive", aria)
        await fold_all(database, "journal", aria)
    await database.write(
        lambda tx: block_gate.create(tx, as_owner(NOW), aria, "notes", content="gate: left")
    )
    block = await database.read(lambda tx: tx.one("SELECT id FROM blocks"))
    assert block is not None
    await database.write(
        lambda tx: block_gate.write(tx, as_owner(NOW + DAY), block[0], Append("gate: right"))
    )
    only: dict[str, Any] = {"domains": ("blocks",)}
    assert sorted(await texts(database, aria, "gate", **only)) == ["gate: left", "gate: right"]
    assert await texts(database, aria, "gate", moment=NOW + HOUR, **only) == ["gate: left"]
    assert await texts(database, aria, "gate", moment=NOW - 1, **only) == []


# -- what changes ----------------------------------------------------------------------------------


@pytest.mark.promise("M6")
async def test_a_text_is_found_in_the_transaction_that_stores_it(database: Database, aria: str):
    async def put(tx: Connection) -> list[str]:
        await put_turn(tx, aria, "turn_1", "The heron is back.")
        await gate.write(tx, as_agent(aria), aria, Insert("Herons eat fish."))
        await block_gate.create(tx, as_owner(), aria, "human", content="Counts every heron.")
        await put_summary(tx, aria, "A heron came.")
        found = await search(tx, aria, Query("heron"), participants=OWNER_ALONE, now=NOW)
        return sorted(hit.text for hit in found.hits)

    assert await database.write(put) == [
        "A heron came.",
        "Counts every heron.",
        "Herons eat fish.",
        "The heron is back.",
    ]


@pytest.mark.parametrize("indexed", [False, True])
@pytest.mark.promise("M6", "M8")
async def test_a_changed_passage_is_found_by_the_words_it_had(
    database: Database, aria: str, indexed: bool
):
    rows = await insert(database, aria, "Anna rows.")
    if indexed:
        await fold_all(database, "archive", aria)
    await database.write(
        lambda tx: gate.write(
            tx, as_agent(aria, NOW + DAY), aria, AppendPassage(rows, "She skates on ice.")
        )
    )
    whole = "Anna rows.\nShe skates on ice."
    assert [hit.text for hit in await find(database, aria, "skates")] == [whole]
    assert [hit.text for hit in await find(database, aria, "rows")] == [whole]
    (then,) = await find(database, aria, "rows", moment=NOW + HOUR)
    assert (then.id, then.text, then.kind) == (rows, "Anna rows.", HitKind.PASSAGE)
    assert await find(database, aria, "skates ice", moment=NOW + HOUR) == []


@pytest.mark.parametrize("indexed", [False, True])
async def test_what_was_taken_back_is_found_only_as_of_before(
    database: Database, aria: str, indexed: bool
):
    gone = await insert(database, aria, "The zebra is called Zoe.")
    if indexed:
        await fold_all(database, "archive", aria)
    await database.write(lambda tx: gate.write(tx, as_agent(aria, NOW + DAY), aria, Retract(gone)))
    found = await ask(database, aria, "zebra")
    assert (found.hits, found.total, found.more) == ([], 0, False)
    assert await texts(database, aria, "zebra", moment=NOW) == ["The zebra is called Zoe."]


@pytest.mark.promise("M13")
async def test_what_was_forgotten_is_not_found(database: Database, aria: str, tmp_path: Path):
    gone = await insert(database, aria, "The walrus has a wooden leg.")
    await database.write(lambda tx: put_turn(tx, aria, "turn_1", "A walrus!", "Which walrus?"))
    for kind in ("archive", "journal"):
        await fold_all(database, kind, aria)
    assert len(await texts(database, aria, "walrus")) == 3
    for what in (Forgetting(passages=(gone,)), Forgetting(turns=("turn_1",))):
        await forget(database, tmp_path / "data", as_owner(NOW + DAY), what)
    for moment in (None, NOW + HOUR):
        assert (await ask(database, aria, "walrus", moment=moment)).hits == []


async def test_more_that_is_no_more_than_is_put_in_order(database: Database, aria: str):
    """A fact that took the place of hundreds of others is found, and nothing else of them."""

    async def put(tx: Connection) -> None:
        rows = [NewPassage(f"Weight {number} kg, weight noted.") for number in range(1_000)]
        await gate.insert_many(tx, as_owner(), aria, rows)
        await tx.run("UPDATE passages SET retracted_at = ?", (NOW + 1,))
        await gate.insert_many(tx, as_owner(NOW + 2), aria, [NewPassage("Weight: see the log.")])

    await database.write(put)
    found = await ask(database, aria, "Which weight was noted?")
    assert [hit.text for hit in found.hits] == ["Weight: see the log."]
    assert (found.total, found.more) == (1, False)
