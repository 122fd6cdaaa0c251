"""The first lines that a user writes, with `await` and without."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from asterism import (
    Agent,
    Approval,
    Asterism,
    Conflict,
    InvalidInput,
    NotFound,
    PastMessage,
    TurnState,
    tool,
)
from asterism.times import to_ms
from tests.scenes import obedient, open_home

PAY = '[[call:pay {"euros": 5}]]'


@tool(ask=True)
def pay(euros: int) -> str:
    """Pay an amount.

    Args:
        euros: How much.
    """
    return f"paid {euros}"


@pytest.mark.promise("M9")
async def test_what_the_owner_creates_is_for_the_owner_unless_said_otherwise(tmp_path: Path):
    async with open_home(tmp_path) as home:
        aria = await home.agents.create("aria")
        await aria.blocks.create("garden", "Beans.")
        await aria.blocks.create("house", "Quiet after ten.", audience="public")
        seen = {seen.name: str(seen.block.audience) for seen in await aria.blocks.list()}
        assert (seen["garden"], seen["house"]) == ("owner", "public")


async def test_an_agent_is_talked_to_and_remembers(tmp_path: Path):
    async with open_home(tmp_path) as home:
        aria = await home.agents.ensure("aria")
        assert isinstance(aria, Agent)
        assert await home.agents.ensure("aria") == aria == await home.agents.get(aria.id)
        assert (await aria.ask("Hello!")).text == "answer to: Hello!"
        signals = [signal async for signal in aria.stream("And now?")]
        assert "".join(one.text for one in signals if one.kind == "text") == "answer to: And now?"
        assert (signals[0].kind, signals[0].text) == ("opened", "")
        assert (signals[-1].kind, signals[-1].text) == ("ended", "answer to: And now?")
        receipt = await aria.send("Later.")
        assert (await home.turns.wait(receipt)).state is TurnState.DONE
        block = await aria.blocks.create("human", "Likes tea.")
        await block.append("Has a cat.")
        await aria.blocks["human"].replace("tea", "coffee")
        assert await block.text() == "Likes coffee.\nHas a cat."
        await block.undo()
        assert await block.text() == "Likes tea.\nHas a cat."
        assert [edit.number for edit in await block.history()][-1] == 1
        assert [line.text for line in await block.at(version=1)] == ["Likes tea."]
        assert [seen.block.label for seen in await aria.blocks.list()] == ["human", "persona"]
        with pytest.raises(NotFound):
            await aria.blocks["nothing"].get()
        await aria.archive.add("The spare key is with the neighbour.")
        assert "neighbour" in (await aria.search("spare key")).hits[0].text
        assert [passage.text for passage in await aria.archive.list()] == [
            "The spare key is with the neighbour."
        ]


async def test_an_agent_is_changed_and_deleted(tmp_path: Path):
    async with open_home(tmp_path) as home:
        aria = await home.agents.create("aria")
        with pytest.raises(Conflict, match="already"):
            await home.agents.create("aria")
        bo = await aria.edit(new_name="bo", system="Be bo.")
        assert (bo.id, bo.name, bo.system) == (aria.id, "bo", "Be bo.")
        assert bo.model_in_use == home.settings.default_model
        assert [agent.name for agent in await home.agents.list()] == ["bo"]
        await bo.delete()
        assert await home.agents.list() == []


@pytest.mark.parametrize("approved", [True, False])
async def test_questions_are_answered_where_they_are_found(tmp_path: Path, approved: bool):
    async with open_home(tmp_path, obedient(), tools=[pay]) as home:
        aria = await home.agents.create("aria")
        assert (await aria.ask(PAY)).state is TurnState.PARKED
        (question,) = await home.approvals.list()
        assert isinstance(question, Approval)
        receipt = await (question.approve() if approved else question.deny(note="too dear"))
        assert (await home.turns.wait(receipt)).state is TurnState.DONE
        (answered,) = await home.approvals.answered()
        assert (answered.id, answered.approved) == (question.id, approved)


async def test_times_are_given_as_datetimes(tmp_path: Path):
    yesterday = datetime.now(UTC) - timedelta(days=1)
    async with open_home(tmp_path) as home:
        aria = await home.agents.create("aria")
        await aria.import_messages(
            [
                PastMessage("user", "We have a red bicycle.", at=yesterday - timedelta(days=9)),
                PastMessage("assistant", "Good.", at=yesterday - timedelta(days=9)),
                PastMessage("user", "We have a green bicycle.", at=yesterday),
            ]
        )
        found = await aria.search("bicycle", since=yesterday - timedelta(days=2))
        assert [hit.text for hit in found.hits] == ["We have a green bicycle."]
        with pytest.raises(InvalidInput, match="no time zone"):
            await aria.search("bicycle", since=datetime(2026, 1, 1))  # noqa: DTZ001 - the point
        block = await aria.blocks.create("human", "Likes tea.")
        assert [line.text for line in await block.at(moment=datetime.now(UTC))] == ["Likes tea."]
        assert await block.at(moment=yesterday) == []


async def test_times_of_other_nouns_are_given_as_datetimes_too(tmp_path: Path):
    now = datetime.now(UTC)
    yesterday, tomorrow = now - timedelta(days=1), now + timedelta(days=1)
    async with open_home(tmp_path) as home:
        aria = await home.agents.create("aria")
        bea = await home.agents.create("bea")
        added = await aria.archive.add("The bell is broken.", true_from=yesterday)
        assert added.passage.true_from_ms == to_ms(yesterday)
        assert await home.archive.list(aria, moment=yesterday - timedelta(days=1)) == []
        assert len(await home.archive.list(aria, moment=tomorrow)) == 1
        assert (await home.memory.as_of(aria, yesterday)).passages == ()
        assert len((await home.memory.as_of(aria, tomorrow)).passages) == 1
        assert (await home.memory.fork(aria, bea, moment=tomorrow)).passages == 1
        grant = await home.grants.give("web", agent=aria, until=tomorrow)
        assert grant.until_ms == to_ms(tomorrow)
        assert await home.audit.list(since=tomorrow) == []
        assert await home.audit.list(until=yesterday) == []
        assert await home.audit.list(since=yesterday, until=tomorrow) != []
        assert (await home.audit.autonomy(since=yesterday)).total("allowed") == 0


def test_a_script_needs_no_await(tmp_path: Path):
    options: dict[str, Any] = {
        "models": {"scripted": obedient()},
        "settings": {"model": "scripted:one"},
        "environ": {},
        "tools": [pay],
    }
    with Asterism.open_sync(tmp_path, **options) as home:
        aria = home.agents.ensure("aria")
        assert aria.name == "aria"
        assert aria.ask("Hello!").text == "answer to: Hello!"
        assert [signal.kind for signal in aria.stream("And now?")][-1] == "ended"
        aria.blocks.create("human", "Likes tea.")
        aria.blocks["human"].append("Has a cat.")
        assert aria.blocks["human"].text() == "Likes tea.\nHas a cat."
        assert home.search(aria, "cat").hits
        assert aria.ask(PAY).state is TurnState.PARKED
        (question,) = home.approvals.list()
        assert home.turns.wait(question.approve()).state is TurnState.DONE
        assert home.agents.list() == [aria]
        with pytest.raises(NotFound, match="arya"):
            home.agents.get("arya")
        stream = aria.stream("Somebody leaves.")
        next(stream)
        stream.close()
    with Asterism.open_sync(tmp_path, **options) as home:
        assert [agent.name for agent in home.agents.list()] == ["aria"]
