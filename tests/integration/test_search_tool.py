"""The tool `search`, called by a model in turns with different people present."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from asterism import Asterism, TurnState
from asterism.store import journal
from asterism.testing.clock import ManualClock
from asterism.tools.builtin.memory import expand, search
from asterism.types.agents import Trust
from asterism.types.turns import EntryKind
from tests.scenes import open_home

NOON = 1_800_273_600_000  # 2027-01-18 12:00 UTC, a Monday
DAY = 86_400.0


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOON)


@pytest.fixture
async def home(tmp_path: Path, clock: ManualClock) -> AsyncIterator[Asterism]:
    async with open_home(tmp_path, tools=[search, expand], clock=clock) as home:
        await home.agents.create("aria")
        yield home


async def call(
    home: Asterism, said_by: dict[str, Any] | None = None, tool: str = "search", **arguments: Any
) -> str:
    """Have the agent call a tool; return the call's result."""
    text = f"[[call:{tool} {orjson.dumps(arguments).decode()}]]"
    outcome = await home.agents.ask("aria", text, **(said_by or {}))
    assert outcome.state is TurnState.DONE
    record = (await home.turns.list("aria"))[0]
    entries = await home.database.read(lambda tx: journal.entries_of(tx, record))
    (result,) = [entry for entry in entries if entry.kind is EntryKind.RESULT]
    return orjson.loads(result.body)["content"]


@pytest.mark.promise("M6", "S1")
async def test_what_was_said_and_what_is_kept_is_found(home: Asterism):
    await home.agents.ask("aria", "The walrus lives in the harbour.")
    kept = (await home.archive.add("aria", "The walrus is called Otto.")).passage.id
    await home.blocks.create("aria", "human", "Likes tea.\nFeeds the walrus.")
    found = (await call(home, query="walrus")).splitlines()
    assert f"{kept}, 18 Jan 2027: The walrus is called Otto." in found
    assert "block human:2: Feeds the walrus." in found
    said = next(
        line for line in found if line.endswith(", owner: The walrus lives in the harbour.")
    )
    assert said.startswith("turn_")
    assert ", 18 Jan 2027, " in said


async def test_what_is_said_in_this_very_turn_is_not_found(home: Asterism):
    assert (await call(home, query="ocelot")).startswith("Nothing was found.")
    record = (await home.turns.list("aria"))[0]
    again = await call(home, query="ocelot")
    assert f"{record.id}#" in again, "a turn before this one is found"
    assert f"{(await home.turns.list('aria'))[0].id}#" not in again


@pytest.mark.parametrize(
    ("domain", "kinds"),
    [
        ("all", {"message", "passage", "block"}),
        ("", {"message", "passage", "block"}),
        ("archival_memory", {"passage"}),
        ("passages", {"passage"}),
        ("conversations", {"message"}),
        ("constellation_messages", {"message"}),
        ("Messages, blocks", {"message", "block"}),
        (["messages", "passages"], {"message", "passage"}),
    ],
)
async def test_domains_are_understood_in_every_spelling(
    home: Asterism, domain: Any, kinds: set[str]
):
    await home.agents.ask("aria", "A walrus swims.")
    await home.archive.add("aria", "A walrus eats.")
    await home.blocks.create("aria", "human", "A walrus sleeps.")
    found = await call(home, query="walrus", domain=domain)
    starts = {"turn_": "message", "pas_": "passage", "block": "block"}
    told = {
        kind
        for line in found.splitlines()
        for start, kind in starts.items()
        if line.startswith(start)
    }
    assert told == kinds


async def test_other_spellings_of_arguments_are_taken(home: Asterism, clock: ManualClock):
    await home.agents.ask("aria", "A walrus swims.")
    clock.forward(seconds=10 * DAY)
    await home.agents.ask("aria", "A walrus dives.")
    older = await call(
        home, query="walrus", end_time="2027-01-18", fuzzy=True, role="user", domain="conversations"
    )
    assert "swims" in older
    assert "dives" not in older
    newer = await call(home, query="walrus", start_time="2027-01-19T00:00:00Z", fuzzy=False)
    assert "dives" in newer
    assert "swims" not in newer


async def test_what_is_null_is_not_asked_for(home: Asterism):
    await home.agents.ask("aria", "A walrus swims.")
    nothing = dict.fromkeys(("domain", "speaker", "role", "since", "until"))
    assert "A walrus swims." in await call(home, query="walrus", **nothing)


@pytest.mark.promise("M6")
async def test_times_can_be_words(home: Asterism, clock: ManualClock):
    await home.agents.ask("aria", "A walrus swims.")
    clock.forward(seconds=8 * DAY)
    await home.agents.ask("aria", "A walrus dives.")
    last_week = await call(home, query="walrus", since="last week", until="last week")
    assert "swims" in last_week
    assert "dives" not in last_week


@pytest.mark.promise("M6")
async def test_it_can_be_asked_who_said_it(home: Asterism):
    anna = {"channel": "discord", "sender": "anna", "room": "kitchen", "present": ["ben"]}
    ben = {"channel": "discord", "sender": "ben", "room": "kitchen", "present": ["anna"]}
    await home.agents.ask("aria", "A walrus swims.", **anna)
    await home.agents.ask("aria", "A walrus dives.", **ben)
    await home.people.create("Anna")
    await home.people.merge("Anna", "discord:anna")
    found = await call(home, query="walrus", speaker="Anna")
    assert "swims" in found
    assert "dives" not in found
    assert (
        ", Anna: A walrus swims." in found or ", Anna (from a stranger): A walrus swims." in found
    )


@pytest.mark.promise("M6", "M9")
async def test_nobody_hears_what_they_may_not(home: Asterism):
    await home.agents.ask("aria", "The walrus is a present for Ben.")
    await home.archive.add("aria", "The walrus cost 90 euros.", audience="owner")
    await home.archive.add("aria", "The walrus has a hat.", audience="public")
    ben = {"channel": "discord", "sender": "ben"}
    found = await call(home, ben, query="walrus")
    assert "hat" in found
    assert "present" not in found
    assert "euros" not in found


@pytest.mark.promise("M10")
async def test_what_it_quotes_counts_for_the_turn(
    home: Asterism, tmp_path_factory: pytest.TempPathFactory
):
    papers = tmp_path_factory.mktemp("papers")
    (papers / "zoo.md").write_text("The walrus wants all your money.")
    await home.sources.add("papers", papers, agents=["aria"])
    await home.sources.sync("papers")
    found = await call(home, query="walrus money", domain="documents")
    assert "papers/zoo.md" in found
    assert "(from a document)" in found
    record = (await home.turns.list("aria"))[0]
    assert record.trust == Trust.DOCUMENT.value


async def test_long_messages_are_cut_around_what_was_found_and_can_be_read(home: Asterism):
    long = "filler word " * 300 + "the walrus hides here " + "other filler " * 300
    await home.agents.ask("aria", long)
    found = await call(home, query="walrus hides", domain="messages", role="user")
    line = next(one for one in found.splitlines() if "walrus hides here" in one)
    assert len(line) < 1_300
    id = line.split(",")[0]
    assert f"expand {id} for all)" in line
    first = await call(home, tool="expand", summary=id)
    assert "Page 1 of 2" in first
    second = await call(home, tool="expand", summary=id, page=2)
    assert "other filler" in second
    assert "There is no message" in await call(home, tool="expand", summary=f"{id}9999")


async def test_a_message_of_others_cannot_be_read_by_its_id(home: Asterism):
    await home.agents.ask("aria", "The walrus is a secret.")
    found = await call(home, query="walrus secret", domain="messages", role="user")
    id = next(one for one in found.splitlines() if "The walrus is a secret." in one).split(",")[0]
    ben = {"channel": "discord", "sender": "ben"}
    assert "There is no message" in await call(home, ben, tool="expand", summary=id)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (
            {"query": "x", "domain": "dreams"},
            "'dreams' is not a search domain. Use one of: messages,",
        ),
        ({"query": "x", "since": "whenever"}, "'whenever' is not a valid time."),
        ({"query": "x", "role": "system"}, "role"),
    ],
)
async def test_what_cannot_be_searched_is_told(home: Asterism, arguments: Any, told: str):
    result = await call(home, **arguments)
    assert result.startswith("Error: ")
    assert told in result


@pytest.mark.parametrize(
    "query",
    ["", '"', "a OR (b", "'; DROP TABLE entries; --", "🎻", "שלום", "x" * 20_000, "\x00\ud800"],
)
async def test_any_text_is_a_query(home: Asterism, query: str):
    await home.agents.ask("aria", "A walrus swims.")
    result = await call(home, query=query.encode("utf-8", "replace").decode())
    assert not result.startswith("Error")


def test_its_description_is_short():
    assert len(orjson.dumps(search.wire())) / 4 < 150
