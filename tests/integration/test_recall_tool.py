"""The tool `recall`, called by a model in turns with different people present."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from asterism import Asterism, TurnState
from asterism.memory import archive, people
from asterism.memory.gate import passages as gate
from asterism.memory.gate.passages import NewPassage
from asterism.memory.gate.writer import Writer
from asterism.store import journal
from asterism.testing.clock import ManualClock
from asterism.tools.builtin.memory import NOTHING_FOUND, recall
from asterism.types.agents import OWNER_ONLY, PUBLIC, Account, AgentRecord, Audience, Trust
from asterism.types.memory import Insert, Origin, OriginKind, Passage, Source
from asterism.types.turns import EntryKind
from tests.scenes import open_home

NOON = 1_800_273_600_000  # 2027-01-18 12:00 UTC


@pytest.fixture
async def home(tmp_path: Path) -> AsyncIterator[Asterism]:
    async with open_home(tmp_path, tools=[recall], clock=ManualClock(NOON)) as home:
        await home.agents.create("aria")
        yield home


async def call(
    home: Asterism,
    said_by: dict[str, Any] | None = None,
    *,
    agent: str = "aria",
    **arguments: Any,
) -> str:
    """Have the agent call `recall`; return the call's result."""
    text = f"[[call:recall {orjson.dumps(arguments).decode()}]]"
    outcome = await home.agents.ask(agent, text, **(said_by or {}))
    assert outcome.state is TurnState.DONE
    record = (await home.turns.list(agent))[0]
    entries = await home.database.read(lambda tx: journal.entries_of(tx, record))
    (result,) = [entry for entry in entries if entry.kind is EntryKind.RESULT]
    return orjson.loads(result.body)["content"]


def id_in(text: str) -> str:
    return next(word.strip(".,:") for word in text.split() if word.startswith("pas_"))


async def the_agent(home: Asterism) -> AgentRecord:
    return await home.agents.get("aria")


async def kept(home: Asterism, passage_id: str) -> Passage:
    return await home.database.read(lambda tx: archive.get(tx, passage_id))


async def put(
    home: Asterism,
    text: str,
    trust: Trust = Trust.OWNER,
    audience: Any = PUBLIC,
    *,
    into: str = "aria",
) -> str:
    """Store a passage as something that came from elsewhere."""
    agent = await home.agents.get(into)
    source = Source((Origin(OriginKind.IMPORT, "test"),), audience, trust)
    writer = Writer.owner(NOON)
    await home.database.write(
        lambda tx: gate.insert_many(tx, writer, agent.id, [NewPassage(text, source)])
    )
    found = await home.database.read(lambda tx: archive.listing(tx, [agent.id], limit=9))
    return next(one.id for one in found if one.text == text.strip())


@pytest.mark.promise("S1", "M5")
async def test_a_fact_is_inserted_found_read_extended_and_retracted(home: Asterism):
    stored = await call(home, operation="insert", text="Anna plays the cello.", tags=["Music"])
    passage_id = id_in(stored)
    assert stored == f"Stored as {passage_id}."
    assert await call(home, operation="search", text="cello") == (
        f"{passage_id}, 18 Jan 2027: Anna plays the cello."
    )
    assert passage_id in await call(home, operation="search", tags=["music"])
    assert (
        await call(home, operation="append", id=passage_id, text="In Bremen.")
        == f"Appended to {passage_id}, which has 32 characters now."
    )
    assert (
        await call(home, operation="append", id=passage_id, tags=["anna"])
        == f"The tags of {passage_id} are: anna."
    )
    assert await call(home, operation="read", id=passage_id) == (
        f"{passage_id}, 18 Jan 2027 [anna]\nAnna plays the cello.\nIn Bremen."
    )
    assert (await call(home, operation="retract", id=passage_id)).startswith("Retracted")
    assert await call(home, operation="search", text="cello") == NOTHING_FOUND
    assert "is no longer valid" in await call(home, operation="read", id=passage_id)


@pytest.mark.promise("M7")
async def test_what_a_call_stores_comes_from_that_call(home: Asterism):
    passage_id = id_in(await call(home, operation="insert", text="Anna plays the cello."))
    record = (await home.turns.list("aria"))[0]
    found = await kept(home, passage_id)
    assert found.source == Source(
        (Origin(OriginKind.CALL, record.id, "0/call/0"),), OWNER_ONLY, Trust.OWNER
    )
    assert (found.author, found.turn_id) == ("agent:aria", record.id)


@pytest.mark.promise("M14")
async def test_the_agent_is_told_of_repetitions_and_contradictions(home: Asterism):
    first = id_in(await call(home, operation="insert", text="Anna lives in Berlin."))
    again = await call(home, operation="insert", text="Anna lives in Berlin")
    assert again.startswith(f"Nothing new was stored. {first} says that already")
    other = await call(home, operation="insert", text="Anna lives in Hamburg.")
    assert f"This contradicts {first}" in other
    third = await call(home, operation="insert", text="Anna moved to Rome.", id=first)
    assert f"takes the place of {first}" in third
    superseded = await call(home, operation="read", id=first)
    assert f"Superseded by {id_in(third)}" in superseded


@pytest.mark.promise("X5")
async def test_a_bad_call_is_explained_so_that_the_model_can_correct_itself(home: Asterism):
    bad: list[tuple[dict[str, Any], str]] = [
        ({"operation": "insert"}, "There is no text"),
        ({"operation": "search"}, "Set `text`, `tags`, or both"),
        ({"operation": "read", "id": "pas_x"}, "no passage 'pas_x'"),
        ({"operation": "append", "id": "pas_x"}, "Set `text`, or `tags`"),
        ({"operation": "append", "id": "pas_x", "text": "y"}, "no passage 'pas_x'"),
        ({"operation": "retract", "id": ""}, "no passage ''"),
        ({"operation": "dream"}, "do not fit recall"),
        ({"operation": "insert", "text": "a\x00b"}, "NUL"),
    ]
    for arguments, said in bad:
        result = await call(home, **arguments)
        assert result.startswith("Error: ")
        assert said in result
    agent = await the_agent(home)
    assert await home.database.read(lambda tx: archive.listing(tx, [agent.id])) == []


@pytest.mark.promise("M10")
async def test_text_of_low_trust_is_marked_and_taints_the_turn(home: Asterism):
    await home.agents.create("bram")
    nuts, museum = "Anna is allergic to nuts.", "The museum opens at nine."
    web = {one: await put(home, museum, Trust.WEB, into=one) for one in ("aria", "bram")}
    await put(home, nuts, Trust.KNOWN)
    assert "(from" not in await call(home, operation="search", text="nuts")
    found = await call(home, operation="search", text="museum")
    assert found == f"{web['aria']}, 18 Jan 2027 (from the web): {museum}"
    assert "(from" not in await call(home, operation="search", text="nuts")
    # What was read stays in the context; bram has read nothing yet.
    read = await call(home, agent="bram", operation="read", id=web["bram"])
    assert "(from the web)" in read
    trust_levels = {
        one: [turn.trust for turn in reversed(await home.turns.list(one))] for one in web
    }
    assert trust_levels == {"aria": ["known", "web", "web"], "bram": ["web"]}


@pytest.mark.promise("M9")
async def test_what_somebody_said_is_not_recalled_for_somebody_else(home: Asterism):
    anna = {"sender": "anna", "channel": "discord"}
    ben = {"sender": "ben", "channel": "discord"}
    secret = id_in(await call(home, anna, operation="insert", text="Anna is expecting a child."))
    owners = id_in(await call(home, operation="insert", text="A surprise for the child."))
    assert secret in await call(home, anna, operation="search", text="child")
    for passage_id in (secret, owners):
        touching: list[dict[str, Any]] = [
            {"operation": "read", "id": passage_id},
            {"operation": "append", "id": passage_id, "text": "x"},
            {"operation": "retract", "id": passage_id},
            {"operation": "insert", "id": passage_id, "text": "x"},
        ]
        for arguments in touching:
            refused = await call(home, ben, **arguments)
            assert refused.startswith(f"Error: There is no passage '{passage_id}'")
    assert await call(home, ben, operation="search", text="child") == (NOTHING_FOUND)
    both = {**anna, "present": ["ben"]}
    assert secret not in await call(home, both, operation="search", text="child")
    everything = await call(home, operation="search", text="child")
    assert secret in everything
    assert owners in everything


@pytest.mark.promise("M9")
async def test_what_was_recalled_in_a_room_is_not_heard_by_those_who_join_later(home: Asterism):
    anna = {"sender": "anna", "channel": "discord"}
    room = {**anna, "room": "family"}
    assert "Nothing" in await call(home, room, operation="search", text="tortoise")
    account = Account("discord", "anna")
    person = await home.database.read(lambda tx: people.person_of_account(tx, account))
    private = await put(home, "The tortoise is ill.", audience=Audience.read(f"person:{person}"))
    said = await put(home, "The tortoise is here.", audience=Audience.read("room:discord:family"))
    # Anna is alone in the room, so she may see it there.
    found = await call(home, room, operation="search", text="tortoise")
    assert said in found
    assert private in found
    assert "is ill." in await call(home, room, operation="read", id=private)
    # Ben joins: neither the passage nor the turns that quoted it are for him.
    joined = {"sender": "ben", "channel": "discord", "room": "family"}
    found = await call(home, joined, operation="search", text="tortoise")
    assert said in found
    assert private not in found
    shown = await home.contexts.now("aria", present=["discord:ben"])
    assert "is ill." not in "\n".join(line.text for line in shown.lines)
    outcome = await home.agents.ask("aria", "what do you know?", **joined)
    context = await home.contexts.of_turn(outcome.turn_id)
    assert "is ill." not in "\n".join(line.text for line in context.lines)


async def test_an_agent_does_not_read_the_archive_of_another(home: Asterism):
    other = await home.agents.create("ben")
    done = await home.database.write(
        lambda tx: gate.write(tx, Writer.owner(NOON), other.id, Insert("Ben's own."))
    )
    assert "no passage" in await call(home, operation="read", id=done.passage.id)
    assert await call(home, operation="search", text="own") == (NOTHING_FOUND)


async def test_long_passages_are_cut_in_the_list_and_read_in_full(home: Asterism):
    passage_id = await put(home, "walrus " * 500)
    found = await call(home, operation="search", text="walrus", limit=99)
    assert f"(3,499 characters; read {passage_id} for all)" in found
    assert len(found) < 1_200
    assert (await call(home, operation="read", id=passage_id)).count("walrus") == 500


async def test_the_owners_account_in_a_channel_is_the_owner(home: Asterism):
    passage_id = id_in(await call(home, operation="insert", text="The otter is mine."))
    me = {"sender": "me", "channel": "discord"}
    assert passage_id not in await call(home, me, operation="search", text="otter")
    await home.database.write(lambda tx: people.give_account(tx, Account("discord", "me"), "owner"))
    assert passage_id in await call(home, me, operation="search", text="otter")


def test_the_description_is_short():
    assert len(orjson.dumps(recall.wire())) < 350 * 4
