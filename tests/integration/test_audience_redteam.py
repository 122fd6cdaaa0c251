"""The red team, short: generated worlds, a model that tells what it hears, and nobody overhears.

`tests/torture/test_audience_redteam.py` runs many more worlds. The last tests here are what the red
team has found so far, each as small as it gets.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from asterism import Asterism, ProcessorNote, TurnView
from asterism.memory import archive, blocks
from asterism.memory.blocks import VisibleBlock
from asterism.search.search import Searcher
from asterism.store.database import Connection, Work
from asterism.testing.clock import ManualClock
from asterism.testing.postgres import postgres_server
from asterism.types.agents import OWNER_ALONE, OWNER_ONLY, Audience, Participants, Trust
from asterism.types.memory import BlockType, Describe, Passage
from asterism.types.search import Query, SearchResult
from tests.redteam_scene import Tally
from tests.redteam_world import World
from tests.scenes import heard, obedient, open_home, until

SEED = int(os.environ.get("ASTERISM_SEED", "1"))
WORLDS, STEPS = 5, 25
KITCHEN: dict[str, Any] = {"channel": "chat", "room": "kitchen"}

pytestmark = pytest.mark.promise("M9")


async def live_through(
    place: Path, seeds: range, *, steps: int = STEPS, url: str | None = None
) -> Tally:
    """Live through some worlds; raise at the first leak."""
    total = Tally(seeds.start)
    for seed in seeds:
        total += await World(seed, place / str(seed), url).run(steps)
    return total


def is_sound(total: Tally) -> None:
    """What may be heard is found, so that nothing is kept secret by showing nothing."""
    assert total.found >= 0.95 * total.wanted, "\n".join(total.missed)
    assert total.wanted > 0
    assert total.looked_at > 1_000
    assert total.recalled > 100, "nothing came by itself"


@pytest.mark.parametrize("first", [SEED, SEED + WORLDS])
async def test_nobody_overhears_anything(tmp_path: Path, first: int):
    total = await live_through(tmp_path, range(first, first + WORLDS))
    print(f"\n{total}")
    is_sound(total)
    assert total.compactions > 0


@pytest.mark.postgres
async def test_nobody_overhears_anything_on_postgres(tmp_path: Path):
    with postgres_server().database() as url:
        total = await live_through(tmp_path, range(SEED, SEED + 1), steps=10, url=url)
    is_sound(total)


# -- the red team is worth its pay -----------------------------------------------------------------


def one_may_hear(self: Participants, audience: Audience) -> bool:
    return all(
        any(any(map(one.is_named_by, clause)) for one in self.people) for clause in audience.clauses
    )


def all_lines(seen: VisibleBlock, participants: Participants) -> Sequence[str]:
    del participants
    return [line.text for line in seen.lines]


def nothing_heard(self: Participants, heard: Audience) -> Audience:
    del heard
    return self.audience


async def any_passage(*given: Any, **named: Any) -> Passage:
    return await _GET(*given, **{**named, "participants": OWNER_ALONE})


async def any_text(
    self: Searcher, whose: Work[str | None], query: Query, present: object
) -> SearchResult:
    del present

    async def owner_alone(_: Connection) -> Participants:
        return OWNER_ALONE

    return await _FIND(self, whose, query, owner_alone)


_GET, _FIND = archive.get, Searcher.find
BREAKS: dict[str, tuple[Any, str, Any]] = {
    "what one of those present may see is told": (Participants, "can_see", one_may_hear),
    "all lines of a block are shown": (blocks, "visible_lines", all_lines),
    "all passages can be read": (archive, "get", any_passage),
    "all texts are found": (Searcher, "find", any_text),
    "what was said after hearing a secret is for all": (
        Participants,
        "audience_after_reading",
        nothing_heard,
    ),
}


@pytest.mark.parametrize("name", BREAKS)
async def test_the_red_team_finds_what_is_broken(tmp_path: Path, name: str):
    found = pytest.raises(AssertionError, match=r"leaks in the world|tells what")
    with patch.object(*BREAKS[name]), found:
        await live_through(tmp_path, range(SEED, SEED + 10))


# -- what it has found -----------------------------------------------------------------------------


def told(request: Any) -> str:
    return "\n".join(str(message["content"]) for message in heard(request))


async def enters(home: Asterism, sender: str) -> None:
    await home.agents.ask("aria", "hello", sender=sender, **KITCHEN)


async def test_a_block_for_fewer_is_shown_no_more_at_once(tmp_path: Path):
    model = obedient()
    async with open_home(tmp_path, model) as home:
        await home.agents.create("aria")
        await home.blocks.create("aria", "plans", "We move to Bern.", audience="public")
        await home.blocks.create("aria", "manners", "Be kind.", audience="public")
        await home.agents.ask("aria", "hello", channel="chat", sender="ben")
        assert "Bern" in told(model.requests[-1])
        await home.blocks.write("aria", "plans", Describe(audience=OWNER_ONLY))
        outcome = await home.agents.ask("aria", "hello again", channel="chat", sender="ben")
        assert "Bern" not in told(model.requests[-1])
        assert "Be kind." in told(model.requests[-1])
        assert "hello again" in told(model.requests[-1])
        shown = await home.contexts.of_turn(outcome.turn_id)
        assert list(shown.messages) == model.requests[-1].messages


async def test_what_is_written_where_the_owner_is_alone_is_for_the_owner(tmp_path: Path):
    model = obedient()
    async with open_home(tmp_path, model) as home:
        await home.agents.create("aria")
        await home.blocks.create("aria", "notes", "Be kind.", audience="public")
        await home.agents.ask("aria", "I am pregnant", channel="chat", sender="anna")
        append = '{"operation": "append", "label": "notes", "content": "Anna is pregnant."}'
        insert = '{"operation": "insert", "text": "Anna expects a child in May."}'
        text = f"[[call:block_edit {append}]] [[call:recall {insert}]]"
        await home.agents.ask("aria", text, **KITCHEN)
        search = '{"operation": "search", "text": "Anna child May"}'
        await home.agents.ask("aria", f"[[call:recall {search}]]", sender="ben", **KITCHEN)
        assert "pregnant" not in told(model.requests[-1])
        assert "expects" not in told(model.requests[-1])


async def test_the_owner_alone_is_in_the_room_that_they_speak_in(
    tmp_path: Path, clock: ManualClock
):
    later = '{"operation": "in", "when": "1 hour", "message": "the ring for Anna"}'
    model = obedient()
    async with open_home(tmp_path, model, clock=clock) as home:
        await home.agents.create("aria")
        await home.agents.ask("aria", "hello")
        await home.agents.ask("aria", f"[[call:schedule {later}]]", **KITCHEN)
        (one,) = await home.schedules.list("aria")
        assert "kitchen" in (one.participants or "")
        await home.agents.ask("aria", f"[[call:schedule {later}]]")
        assert [one.participants for one in await home.schedules.list("aria")].count(None) == 1


async def comes_true(home: Asterism, clock: ManualClock) -> None:
    clock.forward(seconds=7_200)
    await home.database.write(lambda tx: tx.notify("schedule", ""))

    async def done() -> bool:
        return not (await home.schedules.list("aria") or await home.turns.unfinished())

    await until(done)


async def test_a_plan_is_not_told_to_those_who_came_later(tmp_path: Path, clock: ManualClock):
    later = '{"operation": "in", "when": "1 hour", "message": "the ring for Anna"}'
    model = obedient()
    async with open_home(tmp_path, model, clock=clock) as home:
        await home.agents.create("aria")
        await home.people.create("Ben", trust=Trust.KNOWN)
        await home.people.link("Ben", "chat:ben")
        # Ben may know, so that the agent may speak of it while only Ben is there.
        await home.blocks.create("aria", "secret", "A ring for Anna.", audience="person:Ben")
        await home.agents.ask("aria", f"[[call:schedule {later}]]", sender="ben", **KITCHEN)
        await enters(home, "anna")
        listing = '{"operation": "list"}'
        await home.agents.ask("aria", f"[[call:schedule {listing}]]", sender="anna", **KITCHEN)
        assert "ring" not in told(model.requests[-1])
        await comes_true(home, clock)
        assert "something that you had planned" in told(model.requests[-1])
        assert "ring" not in told(model.requests[-1])
        (notice,) = await home.notices.list()
        assert notice.kind == "plan.withheld"
        assert "the ring for Anna" in notice.text


async def test_a_plan_that_is_not_told_brings_no_memories_with_it(
    tmp_path: Path, clock: ManualClock
):
    """What comes by itself would tell those present what the plan is about."""
    later = '{"operation": "in", "when": "1 hour", "message": "the sapphire ring for Anna"}'
    model, seen = obedient(), list[str]()

    class Listener:
        async def process(self, turn: TurnView) -> Sequence[ProcessorNote]:
            seen.append(turn.message)
            return []

    plugins = {"processors": {"listener": Listener()}}
    async with open_home(tmp_path, model, clock=clock, plugins=plugins) as home:
        await home.agents.create("aria")
        await home.people.create("Ben", trust=Trust.KNOWN)
        await home.people.link("Ben", "chat:ben")
        await home.blocks.create("aria", "secret", "A ring for Anna.", audience="person:Ben")
        await home.blocks.create("aria", "sapphire", "They are blue.", audience="public")
        await home.archive.add("aria", "Sapphire rings are blue.", audience="public")
        await home.agents.ask("aria", f"[[call:schedule {later}]]", sender="ben", **KITCHEN)
        await enters(home, "anna")
        seen.clear()
        await comes_true(home, clock)
        request = told(model.requests[-1])
        assert "something that you had planned" in request
        assert "Sapphire rings" not in request
        assert "refers to this block" not in request
        assert seen == []


async def test_a_plan_is_told_to_those_among_whom_it_was_made(tmp_path: Path, clock: ManualClock):
    later = '{"operation": "in", "when": "1 hour", "message": "the ring for Anna"}'
    model = obedient()
    async with open_home(tmp_path, model, clock=clock) as home:
        await home.agents.create("aria")
        await home.agents.ask("aria", f"[[call:schedule {later}]]", sender="ben", **KITCHEN)
        await comes_true(home, clock)
        assert "the ring for Anna" in told(model.requests[-1])


@pytest.mark.parametrize("how", ["load", "refer"])
async def test_a_block_looked_at_in_a_room_is_not_told_to_those_who_come_later(
    tmp_path: Path, how: str
):
    model = obedient()
    async with open_home(tmp_path, model) as home:
        await home.agents.create("aria")
        await enters(home, "ben")
        await home.blocks.create(
            "aria", "gift", "A ring.", kind=BlockType.WORKING, audience="person:chat:ben"
        )
        load = '[[call:block {"operation": "load", "label": "gift"}]]'
        await home.agents.ask(
            "aria", load if how == "load" else "the gift?", sender="ben", **KITCHEN
        )
        assert "A ring." in told(model.requests[-1])
        await enters(home, "anna")
        assert "A ring." not in told(model.requests[-1])


async def test_what_was_searched_in_a_room_is_not_told_to_who_comes_in(tmp_path: Path):
    model = obedient()
    async with open_home(tmp_path, model) as home:
        await home.agents.create("aria")
        await enters(home, "ben")
        await home.archive.add("aria", "Ben bought a ring in Ghent.", audience="person:chat:ben")
        search = '[[call:search {"query": "Who bought a ring?"}]]'
        await home.agents.ask("aria", search, sender="ben", **KITCHEN)
        assert "Ghent" in told(model.requests[-1])
        await enters(home, "anna")
        assert "Ghent" not in told(model.requests[-1])
        await home.agents.ask("aria", search, sender="anna", **KITCHEN)
        assert "Ghent" not in told(model.requests[-1])


async def test_what_a_turn_has_seen_counts_also_if_its_past_is_folded(tmp_path: Path):
    model = obedient()
    async with open_home(tmp_path, model, settings={"context.tokens": 300}) as home:
        await home.agents.create("aria")
        await enters(home, "ben")
        await home.blocks.create(
            "aria", "gift", "A ring.", kind=BlockType.WORKING, audience="person:chat:ben"
        )
        talk = "and then the garden, " * 20
        await home.agents.ask("aria", talk, sender="ben", **KITCHEN)
        assert not any("/compact/" in request.key for request in model.requests)
        await home.agents.ask("aria", f"what about the gift? {talk}", sender="ben", **KITCHEN)
        assert "/compact/" in model.requests[-2].key
        assert "A ring." in told(model.requests[-1])
        await enters(home, "anna")
        assert "A ring." not in told(model.requests[-1])
