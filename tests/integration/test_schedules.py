"""Schedules and heartbeats: an agent's own turns later, durable, and made up for once."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from asterism import Asterism, TurnState
from asterism.testing.channel import MemoryChannel
from asterism.testing.clock import ManualClock
from asterism.testing.scripted import ScriptedModel
from asterism.types.turns import text_of
from tests.scenes import heard, obedient, open_home, until

NINE_ON_MONDAY = 1_800_262_800_000  # 2027-01-18 09:00 UTC


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NINE_ON_MONDAY)


def plan(**arguments: str) -> str:
    """A message that makes an agent call `schedule`."""
    body = ", ".join(f'"{name}": "{value}"' for name, value in arguments.items())
    return f"[[call:schedule {{{body}}}]]"


async def look(home: Asterism) -> None:
    """Have schedules look at the clock, as they do by themselves when time passes."""
    await home.database.write(lambda tx: tx.notify("schedule", ""))


async def said_to(home: Asterism, count: int) -> list[str]:
    """Wait until `count` turns are over; return what began them, oldest first."""

    async def over() -> bool:
        turns = await home.turns.list("aria", limit=100)
        return len(turns) >= count and all(turn.state is TurnState.DONE for turn in turns)

    await until(over)
    turns = [await home.turns.get(record.id) for record in await home.turns.list("aria", limit=100)]
    turns.sort(key=lambda turn: turn[0].first_seq)
    return [text_of(entries[0].body) for _, entries in turns]


@pytest.mark.promise("T9")
async def test_in_20_minutes_comes_true_once(tmp_path: Path, clock: ManualClock):
    async with open_home(tmp_path, clock=clock) as home:
        await home.agents.create("aria")
        await home.agents.ask("aria", plan(operation="in", when="20 minutes", message="tea"))
        (one,) = await home.schedules.list("aria")
        assert one.due_at_ms == clock.now + 20 * 60_000
        clock.forward(seconds=19 * 60)
        await look(home)
        assert len(await said_to(home, 1)) == 1
        clock.forward(seconds=60)
        await look(home)
        assert (await said_to(home, 2))[1] == "[scheduled for Mon 18 Jan 09:20] tea"
        await look(home)
        assert await home.schedules.list("aria") == []
        assert len(await said_to(home, 2)) == 2


@pytest.mark.promise("T9")
async def test_what_fell_due_while_nothing_ran_runs_once(tmp_path: Path, clock: ManualClock):
    async with open_home(tmp_path, clock=clock) as home:
        await home.agents.create("aria")
        await home.agents.ask(
            "aria", plan(operation="every", when="0 9 * * 1-5", message="stand up")
        )
        await home.agents.ask(
            "aria", plan(operation="at", when="2027-01-19T12:00", message="lunch")
        )
    clock.forward(seconds=10 * 86_400)  # Thursday, eight occasions of the first one later
    for _ in range(2):
        async with open_home(tmp_path, clock=clock) as home:
            said = await said_to(home, 4)
            assert said[2:] == [
                "[scheduled for Tue 19 Jan 09:00] stand up",
                "[scheduled for Tue 19 Jan 12:00] lunch",
            ]
            (one,) = await home.schedules.list("aria")
            assert one.due_at_ms == NINE_ON_MONDAY + 11 * 86_400_000


@pytest.mark.promise("T9")
async def test_a_regular_one_goes_on(tmp_path: Path, clock: ManualClock):
    async with open_home(tmp_path, clock=clock) as home:
        await home.agents.create("aria")
        await home.agents.ask("aria", plan(operation="every", when="*/5 * * * *", message="look"))
        for count in range(2, 5):
            clock.forward(seconds=300)
            await look(home)
            assert len(await said_to(home, count)) == count


@pytest.mark.promise("T9")
async def test_a_heartbeat_is_a_turn_right_after_this_one(tmp_path: Path):
    model = obedient()
    async with open_home(tmp_path, model) as home:
        aria = await home.agents.create("aria")
        await home.agents.send(aria, '[[call:heartbeat {"reason": "go on reading"}]]')
        assert (await said_to(home, 2))[1] == "[heartbeat you asked for] go on reading"
    assert heard(model.requests[-1])[-1]["content"].endswith("go on reading")


@pytest.mark.promise("T9")
async def test_a_heartbeat_outlives_a_crash(tmp_path: Path):
    stuck = asyncio.Event()

    class Stuck(ScriptedModel):
        async def complete(self, request: Any, emit: Any = None) -> Any:
            if heard(request)[-1]["role"] == "tool":
                stuck.set()
                await asyncio.Event().wait()
            return await obedient().complete(request, emit)

    async with open_home(tmp_path, Stuck(), grace=0) as home:
        await home.agents.create("aria")
        await home.agents.send("aria", '[[call:heartbeat {"reason": "again"}]]')
        await stuck.wait()
        await home.agents.send("aria", "later")
    async with open_home(tmp_path) as home:
        said = await said_to(home, 3)
        assert said[1:] == ["[heartbeat you asked for] again", "later"]


async def test_the_answer_goes_where_the_matter_came_from(tmp_path: Path, clock: ManualClock):
    channel = MemoryChannel()
    async with open_home(tmp_path, clock=clock, channels={"room": channel}) as home:
        await home.agents.create("aria")
        later = plan(operation="in", when="1 hour", message="tea")
        await home.agents.ask("aria", later, channel="room", reply_to="ada")
        clock.forward(seconds=3_600)
        await look(home)
        await until(lambda: len(channel.delivered) == 2)
        assert channel.delivered[1].target == "ada"
        assert channel.delivered[1].text.endswith("[scheduled for Mon 18 Jan 10:00] tea")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"operation": "in", "when": "soon", "message": "x"}, "is not a valid time"),
        ({"operation": "every", "when": "99 * * * *", "message": "x"}, "not a valid cron rule"),
        ({"operation": "every", "when": "0 0 30 2 *", "message": "x"}, "not a valid cron rule"),
        ({"operation": "in", "when": "90000 weeks", "message": "x"}, "a hundred years"),
        ({"operation": "in", "when": "1 hour"}, "What should the message say"),
        ({"operation": "cancel", "id": "sch_0"}, "no schedule 'sch_0'"),
        ({"operation": "list"}, "Nothing is scheduled"),
    ],
)
async def test_what_cannot_be_scheduled_is_told_to_the_model(
    tmp_path: Path, arguments: dict[str, str], told: str
):
    model = obedient()
    async with open_home(tmp_path, model) as home:
        await home.agents.create("aria")
        await home.agents.ask("aria", plan(**arguments))
        assert await home.schedules.list("aria") == []
    assert told in heard(model.requests[-1])[-1]["content"]


async def test_a_schedule_can_be_cancelled_and_goes_with_its_agent(
    tmp_path: Path, clock: ManualClock
):
    async with open_home(tmp_path, clock=clock) as home:
        for name in ("aria", "bela"):
            await home.agents.create(name)
            await home.agents.ask(name, plan(operation="every", when="0 * * * *", message="x"))
        (one,) = await home.schedules.list("aria")
        await home.agents.ask("aria", plan(operation="cancel", id=one.id))
        assert await home.schedules.list("aria") == []
        bela = await home.agents.delete("bela")
        clock.forward(seconds=3_600)
        await look(home)

        async def gone() -> bool:
            return not await home.schedules.list(bela)

        await until(gone)
        assert await home.turns.waiting() == []
