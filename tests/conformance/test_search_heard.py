"""Those present find what they may see, and the rest is as if it were not there."""

import itertools
import random
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from asterism.memory import people
from asterism.memory.gate import blocks as block_gate
from asterism.memory.gate import passages as gate
from asterism.memory.gate.passages import NewPassage
from asterism.search import rank
from asterism.store.database import Connection, Database
from asterism.types.agents import OWNER, PUBLIC, Account, Audience, Participant, Participants, Trust
from asterism.types.memory import Append, Origin, OriginKind, Source
from asterism.types.search import SearchResult
from tests.conformance.index_scene import fold_all, say
from tests.conformance.memory_scene import (
    ENGINES,
    NOW,
    as_agent,
    as_owner,
    opened,
    put_agent,
    put_turn,
)
from tests.conformance.search_scene import ANNA, DAY, ask, find, insert, put_summary, texts
from tests.conftest import TORTURE


@pytest.fixture(params=ENGINES)
async def database(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Database]:
    async with opened(request.param, tmp_path) as database:
        yield database


@pytest.fixture
async def aria(database: Database) -> str:
    return await database.write(lambda tx: put_agent(tx, "aria"))


async def test_what_is_hidden_takes_no_room(database: Database, aria: str):
    await insert(database, aria, "The otter was heard by Anna.", participants=ANNA)
    heard = str(ANNA.audience)

    async def put(tx: Connection) -> None:
        await put_turn(tx, aria, "turn_0", "An otter!", audience=heard)
        for number in range(700):
            await put_turn(tx, aria, f"turn_x{number}", "otter otter", at=NOW + 9)
        rows = [NewPassage(f"Otter {number}", known_from=NOW + 9) for number in range(40)]
        await gate.insert_many(tx, as_agent(aria, NOW + 9), aria, rows)

    await database.write(put)
    for query in ("otter", "", '"otter"', "ott*"):
        found = await ask(database, aria, query, ANNA, limit=2)
        assert sorted(hit.text for hit in found.hits) == [
            "An otter!",
            "The otter was heard by Anna.",
        ], query
        assert (found.total, found.more) == (2, False), query


# -- nobody hears what is not meant for them -------------------------------------------------------

PERSONS = ["person_a", "person_b", "person_c", "person_d"]
ROLES = ["family", "work"]
ROOMS = ["discord:home", "slack:office"]


def _audiences() -> list[Audience]:
    words = [f"person:{one}" for one in PERSONS] + [f"role:{one}" for one in ROLES]
    words += [f"room:{one}" for one in ROOMS]
    alone = [Audience.read(word) for word in ("public", "owner", *words)]
    return alone + [one & other for one, other in itertools.combinations(alone[2:], 2)]


def _company(rng: random.Random) -> Participants:
    def hearer(person: str) -> Participant:
        roles = frozenset(one for one in ROLES if rng.random() < 0.4)
        return Participant(person, roles, frozenset(one for one in ROOMS if rng.random() < 0.4))

    present = [hearer(one) for one in rng.sample(PERSONS, rng.randint(1, 3))]
    if rng.random() < 0.2:
        present.append(Participant(OWNER, frozenset({OWNER})))
    return Participants(tuple(present), rng.choice([None, None, *ROOMS]))


async def _put_all(tx: Connection, agent_id: str, audiences: Sequence[Audience]) -> None:
    """Store a memory of each kind for each audience; the text names its audience's number."""
    for number, audience in enumerate(audiences):
        source = Source((Origin(OriginKind.IMPORT, "test"),), audience, Trust.OWNER)
        rows = [NewPassage(f"canary passage number{number}", source)]
        await gate.insert_many(tx, as_owner(), agent_id, rows)
        await put_turn(
            tx,
            agent_id,
            f"turn_{number}",
            f"canary message number{number}",
            f"canary reply number{number}",
            audience=str(audience),
        )
        await put_summary(
            tx, agent_id, f"canary summary number{number}", str(audience), f"sum_{number}"
        )
        await block_gate.create(
            tx,
            as_owner(),
            agent_id,
            f"block{number}",
            content=f"canary block number{number}",
            audience=audience,
        )


@pytest.mark.promise("M9")
async def test_nobody_finds_what_they_may_not_hear(database: Database, aria: str):
    audiences = _audiences()
    await database.write(lambda tx: _put_all(tx, aria, audiences))
    rng = random.Random(11)
    found = 0
    for turn in range(300 if TORTURE else 25):
        if turn == 12:
            for kind in ("journal", "archive"):
                await fold_all(database, kind, aria)
        participants = _company(rng)
        for query in ("canary", "", "cana*", f"canary number{rng.randrange(len(audiences))}"):
            for hit in await find(database, aria, query, participants, limit=1_000, neighbours=2):
                for one in (hit, *hit.before, *hit.after):
                    number = int(one.text.rpartition("number")[2])
                    assert participants.can_see(audiences[number]), (participants, query, one)
                    found += 1
        everything = await ask(database, aria, "canary", participants, limit=1_000)
        heard = sum(participants.can_see(audience) for audience in audiences)
        assert len(everything.hits) == everything.total == 5 * heard
    assert found > 100


async def test_members_of_a_room_find_what_was_said_in_it(database: Database, aria: str):
    """From who writes to what is found, through the functions that a turn uses."""

    async def put(tx: Connection) -> Participants:
        told = await people.meet(tx, Account("discord", "anna"), "discord:x|public", (), NOW)
        participants = await people.read_participants(tx, told)
        await put_turn(
            tx, aria, "turn_1", "The heron is back.", audience=str(participants.audience)
        )
        return participants

    participants = await database.write(put)
    assert await texts(database, aria, "heron", participants) == ["The heron is back."]
    assert await find(database, aria, "heron", ANNA) == []


# -- what is hidden changes nothing ----------------------------------------------------------------

_QUERIES = (
    "Zelda's cake",
    "What did I say about the cake?",
    "What did Zelda say about the party?",
    "cake party candles",
    '"the cake" candles',
    "cand*",
    "xylophone",
    "What did I tell you of xylophones?",
    "cake last week",
    "",
)


async def _put_heard(tx: Connection, aria: str) -> None:
    heard = str(ANNA.audience)
    for number, said in enumerate(
        (
            "Zelda baked the cake for the party.",
            "There are candles on it.",
            "The party is on Saturday.",
            "Candied fruit is sweet.",
        )
    ):
        at = NOW - 9 * DAY + number * 1_000
        await say(tx, aria, f"heard_{number}", said, "I see.", at=at, audience=heard, sender="anna")
    await put_summary(tx, aria, "They spoke of a party.", heard, "sum_heard")
    writer = as_agent(aria, participants=ANNA)
    await gate.insert_many(tx, writer, aria, [NewPassage("Anna likes cake.")])
    await block_gate.create(
        tx, as_owner(), aria, "human", content="Bakes cake.", audience=ANNA.audience
    )


async def _put_hidden(tx: Connection, aria: str) -> None:
    for number in range(80):
        said = f"The cake, the cake: cand{chr(97 + number // 9)}{number} and a xylophone party!"
        at = NOW - 9 * DAY + number
        await say(tx, aria, f"hidden_{number}", said, "Cake!", at=at, sender="zelda")
    await put_summary(tx, aria, "Zelda plans a xylophone cake.", OWNER, "sum_hidden")
    rows = [NewPassage(f"Cake candle {number}") for number in range(40)]
    await gate.insert_many(tx, as_owner(), aria, [replace(one, source=_SECRET) for one in rows])
    await block_gate.create(
        tx, as_owner(), aria, "secret", content="A cake party.", audience=Audience.read(OWNER)
    )


_SECRET = Source((Origin(OriginKind.IMPORT, "test"),), Audience.read(OWNER), Trust.OWNER)


def _signals(found: SearchResult) -> tuple[Any, ...]:
    """Return all that a search tells, but for the numbers of turns."""

    def named(id: str) -> str:
        return id.partition("#")[0] if "#" in id else id

    hits = [
        (
            *(hit.kind, named(hit.id), hit.text, hit.score, hit.reason, hit.at_ms, hit.speaker),
            *(hit.where, hit.matched),
            [(named(one.id), one.text) for one in (*hit.before, *hit.after)],
        )
        for hit in found.hits
    ]
    return hits, found.total, found.more, found.notes


@pytest.mark.parametrize("indexed", [False, True])
@pytest.mark.promise("M9", "M6")
async def test_what_is_hidden_changes_nothing_for_those_present(
    database: Database, aria: str, indexed: bool
):
    """The answers are the same, to the last digit of a score, with and without it."""
    await database.write(lambda tx: _put_heard(tx, aria))

    async def answers() -> list[tuple[Any, ...]]:
        return [
            _signals(await ask(database, aria, query, ANNA, now=NOW, limit=50, neighbours=2))
            for query in _QUERIES
        ]

    before = await answers()
    assert all(hits for hits, *_ in before[:6])
    await database.write(lambda tx: _put_hidden(tx, aria))
    if indexed:
        for kind in ("journal", "archive"):
            await fold_all(database, kind, aria)
    rank.views.clear()
    for query, told, then in zip(_QUERIES, await answers(), before, strict=True):
        assert told == then, query


async def test_a_block_counts_the_lines_that_are_heard(database: Database, aria: str):
    """A gap in the numbers of lines would tell of one between them."""

    async def put(tx: Connection) -> None:
        await block_gate.create(tx, as_owner(), aria, "human", content="", audience=PUBLIC)

    await database.write(put)
    row = await database.read(lambda tx: tx.one("SELECT id FROM blocks"))
    assert row is not None
    for participants, text in (
        (ANNA, "tea at four"),
        (None, "tea in secret"),
        (ANNA, "tea at five"),
    ):
        writer = as_owner() if participants is None else as_agent(aria, participants=participants)
        if participants is None:
            writer = replace(writer, source=_SECRET)
        await database.write(
            lambda tx, writer=writer, text=text: block_gate.write(tx, writer, row[0], Append(text))
        )
    found = await find(database, aria, "tea", ANNA, domains=("blocks",))
    assert {(hit.id, hit.text) for hit in found} == {
        ("human:1", "tea at four"),
        ("human:2", "tea at five"),
    }
    assert len(await find(database, aria, "tea", domains=("blocks",))) == 3
