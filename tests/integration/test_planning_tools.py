"""The planning tools on both engines: durable, for the owner alone, undone, forgotten, exported."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import orjson
import pytest

from asterism import Asterism, TurnState
from asterism.errors import ToolError
from asterism.memory import blocks
from asterism.memory.forgetting import Forgetting
from asterism.memory.gate import blocks as gate
from asterism.store import agents, messages
from asterism.store.database import Connection, Database
from asterism.testing.clock import ManualClock
from asterism.testing.scripted import ScriptedModel
from asterism.times import to_ms, zone_named
from asterism.tools.planning import TOOLS, records, tasks
from asterism.tools.tool import NeedsApproval, Tool, Toolbox, ToolContext
from asterism.types.agents import (
    OWNER,
    OWNER_ALONE,
    AgentRecord,
    Participant,
    Participants,
    Schedule,
    Trust,
)
from asterism.types.memory import Origin, OriginKind, Permission, Share, Source, Undo
from tests.conformance.memory_scene import ENGINES, as_owner, opened, put_agent
from tests.scenes import heard, obedient, open_home, until

NINE = to_ms(datetime(2026, 11, 16, 9, 0, tzinfo=zone_named("UTC")))
"""A Monday."""
MINUTE = 60_000
DAY = 24 * 60 * MINUTE
WITH_ANNA = Participants(
    (Participant(OWNER), Participant("person_anna", rooms=frozenset({"discord:kitchen"}))),
    room="discord:kitchen",
)
BY_NAME = {tool.name: tool for tool in TOOLS}


@dataclass
class Scene:
    """Two agents that call planning tools at the time that a test has set."""

    database: Database
    aria: AgentRecord
    bob: AgentRecord
    now: int = NINE

    async def call(
        self,
        name: str,
        *,
        agent: AgentRecord | None = None,
        participants: Participants = OWNER_ALONE,
        trust: Trust = Trust.OWNER,
        **given: Any,
    ) -> str:
        called: Tool = BY_NAME[name]

        async def work(tx: Connection) -> str:
            context = ToolContext(
                *(agent or self.aria, "turn_1", "turn_1/0/call/0", self.now),
                transaction=tx,
                participants=participants,
                source=Source((Origin(OriginKind.CALL, "turn_1"),), participants.audience, trust),
            )
            return await called.run(context, called.read(orjson.dumps(given).decode()))

        return await self.database.write(work)

    async def task(self, operation: str, task: str = "", **given: Any) -> str:
        return await self.call("task", operation=operation, task=task, **given)

    async def habit(self, operation: str, habit: str = "", **given: Any) -> str:
        return await self.call("habit", operation=operation, habit=habit, **given)

    async def schedules(self, agent: AgentRecord | None = None) -> list[Schedule]:
        return await self.database.read(
            lambda tx: messages.schedules_of(tx, (agent or self.aria).id)
        )

    async def text(self, label: str) -> str:
        seen = await self.database.read(lambda tx: blocks.find(tx, self.aria.id, label))
        return seen.block.text


@pytest.fixture(params=ENGINES)
async def scene(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Scene]:
    async with opened(request.param, tmp_path) as database:
        found: list[AgentRecord] = []
        for name in ("aria", "bob"):
            await database.write(lambda tx, wanted=name: put_agent(tx, wanted))
            agent = await database.read(lambda tx, wanted=name: agents.by_name(tx, wanted))
            assert agent is not None
            found.append(agent)
        yield Scene(database, found[0], found[1])


# -- who has them ----------------------------------------------------------------------------------


def test_only_agents_have_them_whose_list_names_them() -> None:
    toolbox = Toolbox(TOOLS)
    assert toolbox.tool_names(None) == []
    assert toolbox.get("task", None) is None
    assert toolbox.tool_names(("task", "habit")) == ["habit", "task"]


def test_their_description_costs_few_tokens() -> None:
    assert len(orjson.dumps([tool.wire() for tool in TOOLS])) / 4 < 1_100


async def test_they_are_for_the_owner_alone(scene: Scene) -> None:
    reads: list[tuple[str, dict[str, Any]]] = [
        ("task", {"operation": "list"}),
        ("habit", {"operation": "list"}),
        ("energy", {"operation": "trends"}),
        ("where_was_i", {}),
    ]
    for name, given in reads:
        with pytest.raises(ToolError, match="somebody else is present"):
            await scene.call(name, participants=WITH_ANNA, **given)
        tool = BY_NAME[name]
        assert str(tool.audience(scene.aria, WITH_ANNA, {})) == "owner"
        assert tool.effects(tool.read(orjson.dumps(given).decode()))[0].kind.value == "read"


async def test_what_a_stranger_wrote_changes_nothing_without_a_person(scene: Scene) -> None:
    await scene.task("add", "Pay the rent")
    with pytest.raises(NeedsApproval):
        await scene.call(
            "task", operation="done", task="1", trust=Trust.WEB, participants=OWNER_ALONE
        )
    assert await scene.text("tasks") == (
        "[ ] Pay the rent (number: 1, touched: 2026-11-16T09:00:00Z)"
    )


# -- tasks -----------------------------------------------------------------------------------------


@pytest.mark.promise("G4")
async def test_a_task_is_broken_down_done_and_learned_from(scene: Scene) -> None:
    told = await scene.task(
        "add",
        "Write the tax report",
        minutes=60,
        kind="writing",
        steps=["Find the receipts (10 min)", "Fill in form A - 1 h", "Send it"],
    )
    assert "Steps of task 1: 2 Find the receipts; 3 Fill in form A; 4 Send it." in told
    assert await scene.task("next") == (
        "Next: 2 Find the receipts (estimate 10 min, usually 10 min). Offer only this one."
    )
    assert "Started task 2" in await scene.task("start", "receipts")
    scene.now += 17 * MINUTE
    done = await scene.task("done")
    assert "It took 17 min; the estimate was 10 min." in done
    assert "Next step: 3, Fill in form A." in done
    for number, minutes in ((3, 110), (4, 3)):
        told = await scene.task("done", str(number), minutes=minutes)
    assert "All steps of task 1 are done" in told
    await scene.task("done", "tax report", minutes=130)
    assert "factor" in await scene.task("estimate", kind="writing")
    assert "You say 30 min, you usually take 40 min" in await scene.task(
        "estimate", minutes=30, kind="writing"
    )
    assert await scene.task("list") == "No task is open; 4 are done."


async def test_starting_one_pauses_the_other_and_time_adds_up(scene: Scene) -> None:
    await scene.task("add", "Clean the kitchen")
    await scene.task("add", "Answer Nils")
    await scene.task("start", "1")
    scene.now += 10 * MINUTE
    assert "Paused task 1 (Clean the kitchen) after 10 min." in await scene.task("start", "2")
    scene.now += 5 * MINUTE
    await scene.task("start", "1")
    scene.now += 20 * MINUTE
    assert "under way, 30 min" in await scene.task("list")
    await scene.task("done", "1")
    assert "spent: 30" in await scene.text("tasks")


async def test_a_check_in_comes_with_the_usual_time_and_goes_with_the_task(scene: Scene) -> None:
    await scene.task("add", "Draft", minutes=40, kind="writing")
    await scene.task("start", "1")
    (planned,) = await scene.schedules()
    assert planned.due_at_ms == scene.now + 40 * MINUTE
    assert planned.text == "Check in on task 1: Draft"
    assert planned.quiet == "22:00-08:00"
    await scene.task("pause", "1")
    assert await scene.schedules() == []
    await scene.task("start", "1")
    scene.now += 40 * MINUTE
    assert "Ask in one kind sentence" in await scene.task("check_in", "1")
    (planned,) = await scene.schedules()
    assert planned.due_at_ms == scene.now + 80 * MINUTE
    await scene.task("check_in", "1")
    await scene.task("drop", "1")
    assert await scene.schedules() == []
    assert await scene.text("tasks") == ""


async def test_errors_tell_a_model_how_to_go_on(scene: Scene) -> None:
    await scene.task("add", "Call the bank")
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"operation": "done", "task": "99"}, "Set `task` to one of these numbers: 1 (Call"),
        ({"operation": "add", "task": " "}, "A title has 1 to 300 characters"),
        ({"operation": "split", "task": "1"}, "Set `steps` to 1 to 20 small steps"),
        ({"operation": "add", "task": "x", "minutes": -1}, "not a valid number of minutes"),
    ]
    for given, expected in wrong:
        with pytest.raises(ToolError) as raised:
            await scene.call("task", **given)
        assert expected in str(raised.value)
    with pytest.raises(ToolError, match="not a valid time"):
        await scene.habit("add", "stretch", when="whenever")
    with pytest.raises(ToolError, match="There is no habit 'yoga'"):
        await scene.habit("done", "yoga")
    with pytest.raises(ToolError, match="not a valid level"):
        await scene.call("energy", operation="log", level=11)


async def test_a_block_of_another_schema_is_left_alone(scene: Scene) -> None:
    await scene.database.write(
        lambda tx: gate.create(tx, as_owner(), scene.aria.id, "tasks", content="buy milk")
    )
    with pytest.raises(ToolError, match="has another schema"):
        await scene.task("add", "x")
    assert await scene.text("tasks") == "buy milk"


async def test_agents_that_share_a_block_share_its_tasks_and_reminders(scene: Scene) -> None:
    await scene.habit("add", "drink water", when="every 2 hours")
    await scene.task("add", "Draft")
    for label in ("tasks", "habits", "reminders"):
        seen = await scene.database.read(
            lambda tx, name=label: blocks.find(tx, scene.aria.id, name)
        )
        share = Share(scene.bob.id, Permission.READ_WRITE)
        await scene.database.write(
            lambda tx, found=seen, write=share: gate.write(tx, as_owner(), found.block.id, write)
        )
    assert "Started task 1" in await scene.call(
        "task", agent=scene.bob, operation="start", task="Draft"
    )
    scene.now += 5 * MINUTE
    assert "done 1 time" in await scene.call(
        "habit", agent=scene.bob, operation="done", habit="water"
    )
    (reminder,) = await scene.schedules()
    assert reminder.text == "Remind of habit 1: drink water"
    (check_in,) = await scene.schedules(scene.bob)
    assert check_in.text.startswith("Check in on task 1")


async def test_an_edit_is_undone_and_a_forgotten_word_is_gone(scene: Scene) -> None:
    await scene.task("add", "Surprise for Zebulon")
    seen = await scene.database.read(lambda tx: blocks.find(tx, scene.aria.id, "tasks"))
    await scene.task("done", "1", minutes=5)
    assert "[x]" in await scene.text("tasks")
    await scene.database.write(lambda tx: gate.write(tx, as_owner(), seen.block.id, Undo()))
    assert "[ ]" in await scene.text("tasks")


# -- habits ----------------------------------------------------------------------------------------


@pytest.mark.promise("G4")
async def test_ignored_reminders_back_off_and_done_brings_them_back(scene: Scene) -> None:
    await scene.habit("add", "take a walk", when="every day at 9")
    gaps: list[float] = []
    worded: list[str] = []
    for _ in range(5):
        (planned,) = await scene.schedules()
        gaps.append((planned.due_at_ms - scene.now) / DAY)
        scene.now = planned.due_at_ms
        worded.append(await scene.habit("remind", "1"))
    assert gaps == [1, 1, 2, 4, 8]
    assert "one friendly sentence" in worded[0]
    assert "as an offer" in worded[1]
    assert "without any pressure" in worded[2]
    (planned,) = await scene.schedules()
    scene.now = planned.due_at_ms
    assert "This is the last reminder" in await scene.habit("remind", "1")
    assert await scene.schedules() == []
    assert "paused" in await scene.habit("list")
    scene.now += 2 * DAY
    assert "done 1 time." in await scene.habit("done", "walk")
    (planned,) = await scene.schedules()
    assert planned.due_at_ms == scene.now + DAY


async def test_pause_resume_skip_and_remove(scene: Scene) -> None:
    await scene.habit("add", "stretch", when="every day at 11")
    await scene.habit("pause", "stretch")
    assert await scene.schedules() == []
    assert "do not remind" in await scene.habit("remind", "1")
    await scene.habit("resume", "stretch")
    assert len(await scene.schedules()) == 1
    await scene.habit("remind", "1")
    await scene.habit("skip", "1")
    await scene.habit("remind", "1")
    assert "ignored" not in await scene.text("habits")
    await scene.habit("remove", "1")
    assert await scene.schedules() == []
    with pytest.raises(ToolError, match="There is no habit"):
        await scene.habit("remind", "1")


async def test_not_now_ends_the_backing_off(scene: Scene) -> None:
    await scene.habit("add", "water", when="every 2 hours")
    for _ in range(4):
        scene.now += 2 * 60 * MINUTE
        await scene.habit("remind", "1")
    assert "ignored: 3" in await scene.text("habits")
    said = await scene.habit("skip", "1")
    assert "ignored" not in await scene.text("habits")
    assert "which is fine" in said
    (planned,) = await scene.schedules()
    assert planned.due_at_ms <= scene.now + 2 * 60 * MINUTE
    assert "one friendly sentence" in await scene.habit("remind", "1")


async def test_new_quiet_hours_hold_for_reminders_that_are_planned(scene: Scene) -> None:
    await scene.habit("add", "breakfast", when="every day at 8:30")
    assert (await scene.habit("quiet_hours")) == "No reminders come in 22:00-08:00."
    await scene.habit("quiet_hours", when="21:00-10:00")
    (planned,) = await scene.schedules()
    assert planned.quiet == "21:00-10:00"
    assert planned.due_at_ms == NINE + DAY + 60 * MINUTE
    with pytest.raises(ToolError, match="not valid quiet hours"):
        await scene.habit("quiet_hours", when="at night")


# -- energy ----------------------------------------------------------------------------------------


async def test_energy_is_logged_with_its_time_and_trends_come_of_it(scene: Scene) -> None:
    assert "Nothing was noted yet" in await scene.call("energy", operation="trends")
    for day in range(4):
        for hour, level in ((9, 8), (15, 3)):
            scene.now = NINE + day * DAY + (hour - 9) * 60 * MINUTE
            await scene.call("energy", operation="log", level=level, mood=6, state="neutral")
    told = await scene.call("energy", operation="trends")
    assert "Energy: 5.5 of 10 on average, from 8 notes." in told
    assert "Best around 09:00, lowest around 15:00." in told
    assert "Mood: 6.0" in told
    assert "States: neutral 8." in told


async def test_old_notes_and_finished_tasks_make_room(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "MAX_ROWS", 5)
    monkeypatch.setattr(records, "_SPARE_ROWS", 3)
    monkeypatch.setattr(tasks, "MAX_ROWS", 5)
    for number in range(12):
        scene.now = NINE + number * MINUTE
        await scene.call("energy", operation="log", level=1 + number % 10, note=f"note {number}")
        lines = (await scene.text("energy")).splitlines()
        assert len(lines) <= 8
        assert f"note {number} " in lines[-1]
        assert lines[-1].startswith("2026-11-16T09:")
    for number in range(5):
        await scene.task("add", f"Task {number}")
    with pytest.raises(ToolError, match="open tasks, and no more than 5 are kept"):
        await scene.task("add", "One more")
    await scene.task("done", "2", minutes=5)
    await scene.task("add", "One more")
    assert [line[4:10] for line in (await scene.text("tasks")).splitlines()] == [
        *("Task 0", "Task 2", "Task 3", "Task 4", "One mo"),
    ]


# -- in a home: messages that come, and what becomes of them ---------------------------------------


def call(name: str, **arguments: Any) -> str:
    return f"[[call:{name} {orjson.dumps(arguments).decode()}]]"


async def look(home: Asterism) -> None:
    await home.database.write(lambda tx: tx.notify("schedule", ""))


async def turns_over(home: Asterism, count: int) -> None:
    async def over() -> bool:
        turns = await home.turns.list("aria", limit=100)
        return len(turns) >= count and all(turn.state is TurnState.DONE for turn in turns)

    await until(over)
    assert len(await home.turns.list("aria", limit=100)) == count


TOOL_NAMES = [tool.name for tool in TOOLS]
IN_UTC = {"timezone": "UTC"}


@pytest.mark.promise("G4")
async def test_a_reminder_fires_once_and_the_next_is_planned_whatever_the_model_says(
    tmp_path: Path,
) -> None:
    clock, model = ManualClock(NINE), obedient()
    async with open_home(tmp_path, model, clock=clock, settings=IN_UTC) as home:
        await home.agents.create("aria", tools=TOOL_NAMES)
        add = call("habit", operation="add", habit="drink water", when="every 2 hours")
        await home.agents.ask("aria", add)
        (first,) = await home.schedules.list("aria")
        clock.now = first.due_at_ms
        await look(home)
        await turns_over(home, 2)
        (second,) = await home.schedules.list("aria")
        assert second.due_at_ms == first.due_at_ms + 2 * 60 * MINUTE
        await look(home)
        await turns_over(home, 2)
        results = [one["content"] for one in heard(model.requests[-1]) if one["role"] == "tool"]
        assert results[-1].startswith("Remind your owner of this in one friendly sentence")


@pytest.mark.promise("T9")
async def test_what_falls_due_in_quiet_hours_comes_once_when_they_end(tmp_path: Path) -> None:
    clock = ManualClock(NINE)
    async with open_home(tmp_path, clock=clock, settings=IN_UTC) as home:
        await home.agents.create("aria", tools=TOOL_NAMES)
        await home.schedules.add("aria", "today at 21:00", "stretch", quiet="22:00-08:00")
        await home.schedules.add("aria", "every 2 hours", "drink", quiet="22:00-08:00")
        await home.schedules.add("aria", "today at 23:30", "wake me")
    clock.now = NINE + 14 * 60 * MINUTE + 45 * MINUTE  # 23:45, and nothing ran since nine
    async with open_home(tmp_path, clock=clock, settings=IN_UTC) as home:
        await look(home)
        await turns_over(home, 1)  # the alarm, which has no quiet hours
        assert {entry.due_at_ms for entry in await home.schedules.list("aria")} == {
            NINE + 23 * 60 * MINUTE
        }
        clock.now = NINE + 23 * 60 * MINUTE  # 08:00
        await look(home)
        await turns_over(home, 3)
        (entry,) = await home.schedules.list("aria")
        assert entry.due_at_ms == NINE + 25 * 60 * MINUTE


@pytest.mark.promise("T3")
async def test_a_reminder_that_a_crash_interrupts_is_counted_once(tmp_path: Path) -> None:
    clock, stuck = ManualClock(NINE), asyncio.Event()

    class Stuck(ScriptedModel):
        async def complete(self, request: Any, emit: Any = None) -> Any:
            if heard(request)[-1]["role"] == "tool":
                stuck.set()
                await asyncio.Event().wait()
            return await obedient().complete(request, emit)

    async with open_home(tmp_path, clock=clock, settings=IN_UTC) as home:
        await home.agents.create("aria", tools=TOOL_NAMES)
        add = call("habit", operation="add", habit="drink water", when="every 2 hours")
        await home.agents.ask("aria", add)
        (first,) = await home.schedules.list("aria")
    clock.now = first.due_at_ms
    async with open_home(tmp_path, Stuck(), clock=clock, settings=IN_UTC, grace=0) as home:
        async with asyncio.timeout(120):
            await stuck.wait()  # the reminder is counted, and no word is said yet
    clock.now += 5 * MINUTE
    async with open_home(tmp_path, clock=clock, settings=IN_UTC) as home:
        await turns_over(home, 2)
        (second,) = await home.schedules.list("aria")
        assert second.due_at_ms == first.due_at_ms + 2 * 60 * MINUTE
        habits = (await home.blocks.get("aria", "habits")).block.text
        assert "reminded: 2026-11-16T10:00:00Z" in habits
        assert "ignored" not in habits


async def test_where_was_i_finds_the_work_before_the_interruption(tmp_path: Path) -> None:
    clock, model = ManualClock(NINE), obedient()
    async with open_home(tmp_path, model, clock=clock, settings=IN_UTC) as home:
        await home.agents.create("aria", tools=TOOL_NAMES)
        steps = ["Find the receipts", "Fill in form A"]
        await home.agents.ask(
            "aria", call("task", operation="add", task="Write the tax report", steps=steps)
        )
        await home.agents.ask("aria", call("task", operation="start", task="2"))
        await home.agents.ask("aria", "The receipt from March is missing; I looked in the drawer.")
        clock.forward(seconds=50 * 60)
        await home.agents.ask("aria", "My sister called, what shall I cook for her tonight?")
        clock.forward(seconds=10 * 60)
        await home.agents.ask("aria", call("where_was_i"))
        told = [one["content"] for one in heard(model.requests[-1]) if one["role"] == "tool"][-1]
        assert "Task 2: Find the receipts (under way, 1 h so far" in told
        assert "It is a step of task 1: Write the tax report." in told
        assert "Then: 3 Fill in form A." in told
        assert "The receipt from March is missing" in told
        assert "sister" not in told
        await home.agents.ask("aria", call("where_was_i", about="cooking for my sister"))
        told = [one["content"] for one in heard(model.requests[-1]) if one["role"] == "tool"][-1]
        assert "sister called" in told


async def test_planning_is_forgotten_with_its_words(tmp_path: Path) -> None:
    clock = ManualClock(NINE)
    async with open_home(tmp_path, clock=clock, settings=IN_UTC) as home:
        await home.agents.create("aria", tools=TOOL_NAMES)
        await home.agents.ask(
            "aria", call("task", operation="add", task="Meet Zebulonia", minutes=20)
        )
        await home.agents.ask("aria", call("task", operation="start", task="1"))
        await home.agents.ask(
            "aria", call("habit", operation="add", habit="ring Zebulonia", when="every day at 9")
        )
        (tasks,) = [one for one in await home.blocks.list("aria") if one.block.label == "tasks"]
        assert "Zebulonia" in tasks.block.text
        exported = orjson.dumps(await home.memory.export("aria"), default=str).decode()
        assert "Meet Zebulonia" in exported
        assert "ring Zebulonia" in exported
        await home.memory.forget(Forgetting(texts=("Zebulonia",)))
        for seen in await home.blocks.list():
            assert "Zebulonia" not in seen.block.text
        for entry in await home.schedules.list("aria"):
            assert "Zebulonia" not in entry.text
