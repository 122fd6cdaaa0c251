"""Both engines give the very same answers: ids, order, scores, reasons, neighbours and totals."""

import itertools
import random
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from asterism.memory import people
from asterism.memory.gate import blocks as block_gate
from asterism.memory.gate import passages as gate
from asterism.memory.gate.passages import NewPassage
from asterism.search import index, rank
from asterism.store.database import Connection, Database
from asterism.types.agents import OWNER_ALONE, Account, Participant, Participants
from asterism.types.memory import AppendPassage, Insert, Retract
from asterism.types.search import DOMAINS, SearchResult
from tests.conformance.index_scene import fold_all, say
from tests.conformance.memory_scene import HOUR, NOW, as_agent, as_owner, opened, put_agent
from tests.conformance.search_scene import ANNA, DAY, ask, attach, put_source, put_summary
from tests.conftest import TORTURE

WORDS = (
    *("river", "bridge", "lantern", "harbour", "orchard", "copper", "violin", "winter", "pepper"),
    *("Käse", "straße", "Москва", "東京タワー", "القاهرة", "🎂", "gardening", "gardener", "42"),
    *("yesterday", "on 3 May 2026", "last week", "I love", "you said", "Ben", "Anna", "zoo"),
)
SENDERS = (None, "anna", "ben", "Zoë", "ben2")
AUDIENCES = (None, str(ANNA.audience), "public")


def _text(rng: random.Random) -> str:
    return " ".join(rng.choices(WORDS, k=rng.randint(1, 9))) + rng.choice([".", "?", "!"])


async def _put_talk(tx: Connection, rng: random.Random, agent_id: str, count: int) -> None:
    for number in range(count):
        await say(
            tx,
            agent_id,
            f"turn_{agent_id}_{number:03}",
            _text(rng),
            rng.choice(["", _text(rng)]),
            at=NOW - DAY * 30 + number * rng.choice([1_000, HOUR, 3 * HOUR]),
            sender=rng.choice(SENDERS),
            audience=rng.choice(AUDIENCES),
            reply_to=rng.choice([None, "a", "b"]),
        )


async def _put_kept(tx: Connection, rng: random.Random, agent_id: str) -> None:
    for number in range(40):
        writer = as_agent(
            agent_id, NOW - 40 * HOUR + number * HOUR, participants=rng.choice([OWNER_ALONE, ANNA])
        )
        tags = tuple(rng.sample(["music", "Home", "work"], rng.randint(0, 2)))
        await gate.write(tx, writer, agent_id, Insert(_text(rng), tags=tags))
    rows = await tx.all(
        "SELECT id FROM passages WHERE archive_id = ? AND superseded_at IS NULL ORDER BY id",
        (agent_id,),
    )
    some = rng.sample([row[0] for row in rows], 12)
    for id in some[:6]:
        await gate.write(tx, as_agent(agent_id, NOW), agent_id, AppendPassage(id, _text(rng)))
    for id in some[6:]:
        await gate.write(tx, as_agent(agent_id, NOW), agent_id, Retract(id))
    await gate.insert_many(
        tx, as_owner(NOW), agent_id, [NewPassage(_text(rng), known_from=NOW) for _ in range(30)]
    )
    for label in ("human", "Äpfel", "zebra"):
        lines = "\n".join(_text(rng) for _ in range(4))
        await block_gate.create(tx, as_owner(), agent_id, f"{label}_{agent_id}", content=lines)
    for number in range(4):
        audience = rng.choice([str(ANNA.audience), "owner"])
        id = f"sum_{agent_id}_{number}"
        await put_summary(tx, agent_id, _text(rng), audience, id, NOW)


async def _furnish(database: Database, seed: int) -> None:
    rng = random.Random(seed)

    async def put(tx: Connection) -> list[str]:
        agents = [await put_agent(tx, name) for name in ("aria", "Bea", "ämil")]
        for name, senders in (("Anna", ("anna",)), ("Ben Okafor", ("ben", "ben2"))):
            person = await people.create_person(tx, name, NOW)
            for sender in senders:
                await people.link(tx, Account("cli", sender), person.id)
        for agent_id in agents:
            await _put_talk(tx, rng, agent_id, 90)
            await _put_kept(tx, rng, agent_id)
        await put_source(tx, "source_1", "papers", "a.md", [_text(rng) for _ in range(9)])
        return agents

    agents = await database.write(put)
    for agent_id in agents[:2]:
        await attach(database, "source_1", agent_id)
        for kind in ("journal", "archive"):
            await fold_all(database, kind, agent_id)
    # Some of it is in no segment.
    await database.write(lambda tx: _put_more(tx, rng, agents[0]))


async def _put_more(tx: Connection, rng: random.Random, agent_id: str) -> None:
    for number in range(10):
        await say(tx, agent_id, f"turn_late_{number}", _text(rng), _text(rng), at=NOW + number)


def _questions(seed: int, count: int) -> list[tuple[str | None, str, Participants, dict[str, Any]]]:
    rng = random.Random(seed)
    made: list[tuple[str | None, str, Participants, dict[str, Any]]] = []
    both = Participants((*ANNA.people, Participant("person_ben")))
    for _ in range(count):
        text = rng.choice([_text(rng), _text(rng), f'"{_text(rng)[:-1]}"', "garden* win*", ""])
        filters: dict[str, Any] = {
            "limit": rng.choice([3, 10, 200]),
            "offset": rng.choice([0, 0, 5]),
            "neighbours": rng.choice([0, 2]),
        }
        for name, values in (
            ("since", [NOW - 9 * DAY]),
            ("until", [NOW - DAY]),
            ("moment", [NOW - DAY, NOW - 20 * HOUR]),
            ("role", ["user", "assistant"]),
            ("speaker", ["Ben", "anna", "owner", "Zoë"]),
            ("tags", [("music",), ("HOME", "work")]),
            ("domains", [DOMAINS[:1], DOMAINS[1:3], DOMAINS[3:]]),
        ):
            if rng.random() < 0.15:
                filters[name] = rng.choice(values)
        index_key = rng.choice(["agent_home_aria", "agent_home_aria", "agent_home_Bea", None])
        made.append((index_key, text, rng.choice([OWNER_ALONE, OWNER_ALONE, ANNA, both]), filters))
    return made


@pytest.mark.postgres
@pytest.mark.promise("M6", "D2")
@pytest.mark.parametrize("seed", range(20 if TORTURE else 2))
async def test_the_answers_are_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int):
    asked = _questions(seed, 120)
    told: list[list[SearchResult]] = []
    async with AsyncExitStack() as stack:
        for engine in ("sqlite", "postgres"):
            numbers = itertools.count(1)

            def new_id(kind: str, numbers: Any = numbers) -> str:
                return f"{kind}_{next(numbers):08}"

            monkeypatch.setattr(gate, "new_id", new_id)
            monkeypatch.setattr(people, "new_id", new_id)
            database = await stack.enter_async_context(opened(engine, tmp_path))
            await _furnish(database, seed)
            rank.views.clear()
            index.cache.clear()
            told.append(
                [
                    await ask(database, index_key, text, participants, **filters)
                    for index_key, text, participants, filters in asked
                ]
            )
    for question, on_sqlite, on_postgres in zip(asked, *told, strict=True):
        assert on_sqlite == on_postgres, question
    assert sum(bool(one.hits) for one in told[0]) > 60
    assert {hit.kind.value for one in told[0] for hit in one.hits} == {
        "message",
        "passage",
        "document",
        "block",
        "summary",
    }
