"""What the rules of a sleeptime group see: each message of a person once, and no others."""

from pathlib import Path
from typing import Any

import pytest

from asterism import Asterism, Group
from asterism.testing.clock import ManualClock
from asterism.types.turns import Reply
from tests.integration.group_scene import Cast, cast_home, soon
from tests.scenes import calls, until

pytestmark = pytest.mark.parametrize(
    "engine", ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)]
)
FOR_HELP = {"name": "help", "condition": "pattern", "pattern": "help"}
FOR_ONE = {"name": "one", "condition": "messages", "count": 1}


async def idle(home: Asterism) -> bool:
    return not await home.turns.unfinished() and (await home.counts())[1] == 0


async def look(home: Asterism, clock: ManualClock, times: int = 1) -> None:
    """Let the home look at its groups when the next look is due."""
    for _ in range(times):
        clock.forward(seconds=61)
        await home._engine.groups.look()  # pyright: ignore[reportPrivateUsage]


async def night_of(home: Asterism, *triggers: dict[str, Any], **more: Any) -> Group:
    options = {"agent": "ben", "check_interval": 60, "triggers": list(triggers), **more}
    return await home.groups.create(
        "night", pattern="sleeptime", options=options, members=["ada", "ben"]
    )


@pytest.mark.promise("G1")
async def test_a_message_that_waits_at_a_look_counts_at_a_later_one_and_once(
    engine: str, tmp_path: Path
):
    clock, cast = ManualClock(), Cast({"ben": "NOTHING"})
    busy = cast.hold("ada")
    async with cast_home(engine, tmp_path, cast, "ada", "ben", clock=clock) as home:
        await night_of(home, FOR_HELP)
        await home.agents.send("ada", "first")
        await soon(busy.wait())
        waits = await home.agents.send("ada", "please help me")
        await look(home, clock)
        assert cast.asked("ben") == []
        cast.release("ada")
        await soon(home.turns.wait(waits))
        await look(home, clock)
        await until(lambda: idle(home))
        await look(home, clock, 5)
        await until(lambda: idle(home))
        assert len(cast.asked("ben")) == 1


@pytest.mark.promise("G1")
async def test_the_newest_of_many_messages_is_looked_at(engine: str, tmp_path: Path):
    clock, cast = ManualClock(), Cast({"ben": "NOTHING"})
    busy = cast.hold("ada")
    async with cast_home(engine, tmp_path, cast, "ada", "ben", clock=clock) as home:
        await night_of(home, FOR_HELP)
        receipts = [await home.agents.send("ada", "hi") for _ in range(201)]
        receipts.append(await home.agents.send("ada", "help"))
        await soon(busy.wait())
        cast.release("ada")
        await soon(home.turns.wait(receipts[-1]), seconds=60)
        await look(home, clock)
        await until(lambda: len(cast.asked("ben")) == 1)
        await until(lambda: idle(home))


@pytest.mark.promise("G1")
async def test_what_people_say_by_way_of_another_group_counts_once(engine: str, tmp_path: Path):
    clock, cast = ManualClock(), Cast({"ben": "NOTHING"})
    two = {"name": "two", "condition": "messages", "count": 2}
    async with cast_home(engine, tmp_path, cast, "ada", "ben", "cy", clock=clock) as home:
        await night_of(home, two)
        line = await home.groups.create("line", pattern="pipeline", members=["cy", "ada", "ben"])
        await soon(line.ask("help us"))
        before = len(cast.asked("ben"))
        await look(home, clock, 3)
        await until(lambda: idle(home))
        assert len(cast.asked("ben")) == before  # one message, although two members were asked
        await soon(line.ask("help us again"))
        await look(home, clock)
        await until(lambda: any("two: 2 messages" in said for said in cast.asked("ben")))
        await until(lambda: idle(home))


@pytest.mark.promise("G1")
async def test_a_rule_for_words_sees_what_was_said_to_another_group(engine: str, tmp_path: Path):
    clock, cast = ManualClock(), Cast({"ben": "NOTHING"})
    first_word = {"name": "help", "condition": "pattern", "pattern": "^help"}
    async with cast_home(engine, tmp_path, cast, "ada", "ben", clock=clock) as home:
        await night_of(home, first_word)
        ring = await home.groups.create("ring", members=["ada"])
        await soon(ring.ask("help me"))
        await look(home, clock)
        await until(lambda: len(cast.asked("ben")) == 1)
        await until(lambda: idle(home))


@pytest.mark.promise("G1")
async def test_what_agents_plan_and_say_by_themselves_is_nobodys_word(engine: str, tmp_path: Path):
    def ada(said: str) -> str | Reply:
        return calls(("heartbeat", '{"reason": "to go on"}')) if "good morning" in said else "ok"

    clock, cast = ManualClock(), Cast({"ada": ada, "ben": "NOTHING"})
    async with cast_home(engine, tmp_path, cast, "ada", "ben", clock=clock) as home:
        await night_of(home, FOR_ONE, FOR_HELP)
        await home.schedules.add("ada", "in 10 minutes", "good morning, help them")
        clock.forward(seconds=601)
        await home.database.write(lambda tx: tx.notify("schedule", ""))
        await until(lambda: any("heartbeat" in said for said in cast.asked("ada")))
        await until(lambda: idle(home))
        await look(home, clock, 3)
        await until(lambda: idle(home))
        assert cast.asked("ben") == []
        await soon(home.agents.ask("ada", "hello"))
        await look(home, clock)
        await until(lambda: len(cast.asked("ben")) == 1)
        await until(lambda: idle(home))


@pytest.mark.promise("G1")
async def test_silence_begins_with_the_last_word_of_a_person(engine: str, tmp_path: Path):
    clock, cast = ManualClock(), Cast({"ben": "NOTHING"})
    silence = {"name": "quiet", "condition": "silence", "seconds": 300}
    async with cast_home(engine, tmp_path, cast, "ada", "ben", clock=clock) as home:
        await night_of(home, silence)
        await look(home, clock, 10)
        assert cast.asked("ben") == []
        clock.forward(seconds=1)
        await soon(home.agents.ask("ada", "hello"))
        await look(home, clock, 4)
        assert cast.asked("ben") == []
        await look(home, clock)
        await until(lambda: len(cast.asked("ben")) == 1)
        await until(lambda: idle(home))
        await look(home, clock, 20)
        await until(lambda: idle(home))
        assert len(cast.asked("ben")) == 1


@pytest.mark.promise("G1")
async def test_a_silence_is_noticed_after_another_rule_has_fired(engine: str, tmp_path: Path):
    clock, cast = ManualClock(), Cast({"ben": "NOTHING"})
    silence = {"name": "quiet", "condition": "silence", "seconds": 300}
    async with cast_home(engine, tmp_path, cast, "ada", "ben", clock=clock) as home:
        await night_of(home, silence, FOR_HELP)
        clock.forward(seconds=1)
        await soon(home.agents.ask("ada", "help"))
        await look(home, clock)
        await until(lambda: len(cast.asked("ben")) == 1)
        await until(lambda: idle(home))
        await look(home, clock, 10)
        await until(lambda: any("quiet: " in said for said in cast.asked("ben")))
        await until(lambda: idle(home))
        await look(home, clock, 10)
        await until(lambda: idle(home))
        assert len(cast.asked("ben")) == 2
