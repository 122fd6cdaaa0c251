"""A past from elsewhere keeps who said what, and when."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import orjson
import pytest

from asterism import Asterism, AsterismError
from asterism.memory.forgetting import Forgetting
from asterism.testing.clock import ManualClock
from asterism.testing.scripted import ScriptedModel
from asterism.types.agents import OWNER_ALONE, Participant, Participants, Trust
from asterism.types.turns import PastMessage
from tests.conformance.memory_scene import ENGINES, opened

MAY = datetime.fromtimestamp(1_715_000_000, UTC)
SECOND = timedelta(seconds=1)
DAY = timedelta(days=1)
NUMBER: Any = 1_715_000_000_000
TALK = [
    PastMessage("user", "I adopted a kitten yesterday.", "Anna", MAY),
    PastMessage("user", "What is it called?", "Ben", MAY + SECOND),
    PastMessage("assistant", "Congratulations to both of you.", at=MAY + 2 * SECOND),
    PastMessage("assistant", "Kittens sleep a lot."),
    PastMessage("user", "We should visit.", at=MAY + DAY),
]


@pytest.fixture(params=ENGINES)
async def home(
    request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock
) -> AsyncIterator[Asterism]:
    async with (
        opened(request.param, tmp_path) as database,
        Asterism.open(
            tmp_path,
            environ={},
            settings={"model": "test:a"},
            models={"test": ScriptedModel()},
            database=database,
            work=False,
            clock=clock,
        ) as home,
    ):
        yield home


@pytest.mark.promise("M6")
async def test_each_message_is_found_again_by_the_id_that_the_import_gave(home: Asterism):
    agent = await home.agents.create("aria")
    past = await home.agents.import_messages(agent, TALK)

    assert len(past.messages) == len(TALK)
    hits = {
        hit.id: hit
        for query in ("kitten adopted", "what is called", "congratulations", "sleep", "visit")
        for hit in await home.archive.search(agent, query, domains=("messages",))
    }
    assert [(hits[one].text, hits[one].at) for one in past.messages] == [
        ("I adopted a kitten yesterday.", MAY),
        ("What is it called?", MAY + SECOND),
        ("Congratulations to both of you.", MAY + 2 * SECOND),
        ("Kittens sleep a lot.", MAY + 2 * SECOND),
        ("We should visit.", MAY + DAY),
    ]
    before = MAY + DAY - timedelta(milliseconds=1)
    early = await home.archive.search(agent, "visit", domains=("messages",), until=before)
    assert past.messages[-1] not in [hit.id for hit in early]


async def test_speakers_are_people_and_each_message_begins_a_turn(home: Asterism):
    agent = await home.agents.create("aria")
    past = await home.agents.import_messages(agent, TALK)

    assert len(past.turns) == 3
    told = [await home.turns.get(one) for one in past.turns]
    senders = [orjson.loads(entries[0].meta or "{}").get("sender") for _, entries in told]
    assert senders == ["Anna", "Ben", None]
    assert [record.channel for record, _ in told] == ["import"] * 3
    assert [(record.opened_at, record.ended_at) for record, _ in told] == [
        (MAY, MAY),
        (MAY + SECOND, MAY + 2 * SECOND),
        (MAY + DAY, MAY + DAY),
    ]
    # Nobody has said yet that they are known, so what they say is a stranger's word.
    assert [record.trust for record, _ in told] == ["stranger", "stranger", None]
    known = await home.people.list()
    assert [one.name for one in known] == ["owner", "import:Anna", "import:Ben"]


async def test_a_second_import_meets_the_same_people_and_trusts_them_as_told(home: Asterism):
    agent = await home.agents.create("aria")
    await home.agents.import_messages(agent, TALK)
    await home.people.set_trust("import:Anna", Trust.KNOWN)
    later = await home.agents.import_messages(
        agent, [PastMessage("user", "The kitten is grey.", "Anna")]
    )

    record, entries = await home.turns.get(later.turns[0])
    assert record.trust == "known"
    assert record.opened_at_ms == 1_800_000_000_000
    assert later.messages == (f"{record.id}#{entries[0].seq}",)
    assert len(await home.people.list()) == 3


@pytest.mark.promise("M9")
async def test_only_the_owner_hears_an_imported_past(home: Asterism):
    agent = await home.agents.create("aria")
    await home.agents.import_messages(agent, TALK)
    anna = await home.people.get("import:Anna")

    for participants, found in (
        (OWNER_ALONE, True),
        (Participants((Participant(anna.id),)), False),
    ):
        hits = await home.archive.search(agent, "kitten", participants=participants)
        assert bool(hits) is found


async def test_who_is_forgotten_is_forgotten_in_an_imported_past(home: Asterism):
    agent = await home.agents.create("aria")
    past = await home.agents.import_messages(agent, TALK)
    anna = await home.people.get("import:Anna")
    await home.memory.forget(Forgetting(persons=(anna.id,)))

    found = [hit.id for hit in await home.archive.search(agent, "kitten")]
    assert past.messages[3] in found
    assert past.messages[0] not in found


@pytest.mark.parametrize(
    ("messages", "problem"),
    [
        (
            [PastMessage("user", "One.", at=MAY), PastMessage("user", "Two.", at=MAY - DAY)],
            "Message 2 is of 2024-05-05 12:53:20 UTC, before the one that precedes it",
        ),
        (
            [PastMessage("user", "One."), PastMessage("assistant", "Two.", at=MAY)],
            "before the one that precedes it",
        ),
        (
            [PastMessage("user", "One.", at=datetime(2999, 1, 1, tzinfo=UTC))],
            "the time at which it",
        ),
        ([PastMessage("user", "One.", at=NUMBER)], "1715000000000 has no time zone"),
        (
            [PastMessage("user", "One."), PastMessage("assistant", "Two.", "Anna")],
            "what the agent said has none",
        ),
        ([PastMessage("user", "One.", " ")], "a speaker without a name"),
        ([PastMessage("user", "One.", "An\x00na")], "NUL"),
        ([PastMessage("assistant", "One.")], "the first of 'user'"),
    ],
)
async def test_a_past_that_cannot_be_is_refused_whole(
    home: Asterism, messages: list[PastMessage], problem: str
):
    agent = await home.agents.create("aria")
    with pytest.raises(AsterismError, match=problem) as raised:
        await home.agents.import_messages(agent, messages)
    assert "othing was" in raised.value.message
    assert await home.turns.list(agent) == []
    assert len(await home.people.list()) == 1
