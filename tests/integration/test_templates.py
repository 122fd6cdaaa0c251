"""Templates: what they make, that they make it once, and a week with the one for ADHD."""

from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import orjson
import pytest

from asterism import Asterism, TurnState, apply_template
from asterism.config.parse import ConfigDocument
from asterism.errors import ConfigError, Conflict, InvalidInput, NotFound
from asterism.groups.template import (
    parse_template,
    read_template,
    template_names,
    with_prefix,
)
from asterism.ports import ModelRequest
from asterism.store import messages
from asterism.testing.clock import ManualClock
from asterism.testing.scripted import ScriptedModel
from asterism.times import quiet_until, to_datetime, to_ms, zone_named
from asterism.tools.planning.records import fits
from asterism.types.groups import Role
from asterism.types.turns import Reply, text_of
from tests.conformance.memory_scene import ENGINES
from tests.integration.group_scene import store
from tests.scenes import calls, obedient, open_home, until

BERLIN = zone_named("Europe/Berlin")
MONDAY = datetime(2026, 11, 16, 8, 30, tzinfo=BERLIN)
HOUR = 3_600_000
QUIET = "22:00-08:00"


# -- the files -------------------------------------------------------------------------------------


@pytest.mark.promise("G4")
def test_the_templates_that_there_are() -> None:
    assert template_names() == ["adhd", "personal", "research", "review-board", "support-desk"]
    adhd = read_template("adhd")
    assert len(adhd.agents) == 6
    patterns = {
        name: [group.pattern for group in read_template(name).groups] for name in template_names()
    }
    assert patterns == {
        "adhd": ["supervisor"],
        "personal": [],
        "research": ["pipeline"],
        "review-board": ["voting"],
        "support-desk": ["supervisor"],
    }


@pytest.mark.parametrize("name", template_names())
def test_personas_are_short_and_every_name_in_them_is_known(name: str) -> None:
    template = with_prefix(read_template(name), "my-")
    for agent in template.agents:
        assert f"You are {agent.name}" in agent.system
        assert "{" not in agent.system
        assert len(agent.system) < 1_200
        assert agent.tools is not None
        assert "halt" not in agent.tools
    for block in template.blocks:
        if block.planning is not None:
            assert fits(block.schema, block.planning)
            assert block.audience == "owner"


GOOD = """
name = "team"
description = "Two agents."
[[agents]]
name = "ann"
system = "You are {ann}. Ask {ben}."
[[agents]]
name = "ben"
system = "You are {ben}."
"""
GROUP = '[[groups]]\nname = "pair"\npattern = "round_robin"\nmembers = [{ agent = "ann" }]\n'


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("name = ", "line 1"),
        ('name = "x"\ndescription = ""\nagents = []', "agents: tuple should have at least 1 item"),
        (GOOD + "colour = 1", "agents.1.colour: extra inputs are not permitted"),
        (GOOD + '[[agents]]\nname = "Ann"\nsystem = "x"', "'Ann' is there twice"),
        (GOOD + GROUP.replace("round_robin", "circle"), "'circle' is not a pattern"),
        (GOOD + GROUP.replace('"ann" }', '"cid" }'), "'cid' is not one of its agents: ann, ben"),
        (GOOD + GROUP + "options = { speed = 3 }", "groups.0.options"),
        (GOOD + '[[blocks]]\nlabel = "x"\nagents = ["ann"]\nschema = "nope"', "blocks.0.schema"),
        (GOOD + '[[blocks]]\nlabel = "x"\nagents = ["ann"]\nschema = "planning"', "not a label of"),
        (GOOD + '[[blocks]]\nlabel = "x"\nagents = ["cid"]', "'cid' is not one of its agents"),
        (GOOD + '[[schedules]]\nagent = "ann"\nwhen = "soonish"\ntext = "x"', "schedules.0"),
        (
            GOOD + '[[schedules]]\nagent = "ann"\nwhen = "every day at 9"\ntext = "x"\nquiet = "n"',
            "schedules.0",
        ),
    ],
)
def test_a_template_of_ones_own_is_checked(text: str, expected: str) -> None:
    with pytest.raises(ConfigError) as raised:
        parse_template(ConfigDocument.parse("team.toml", text))
    assert expected in raised.value.message
    assert "\n" not in raised.value.message


@pytest.mark.parametrize("prefix", ["x/", "@", " ", "p" * 60])
def test_a_prefix_that_no_name_can_have_is_refused_in_a_sentence(prefix: str) -> None:
    with pytest.raises(InvalidInput, match="cannot stand before the names of a template"):
        with_prefix(read_template("review-board"), prefix)


@pytest.mark.parametrize("name", ["Review board", "review_board", " REVIEW-BOARD "])
def test_a_template_is_found_however_its_name_is_written(name: str) -> None:
    assert read_template(name) == read_template("review-board")


def test_names_are_put_in_and_prefixed() -> None:
    template = parse_template(ConfigDocument.parse("team.toml", GOOD + GROUP))
    named = with_prefix(template, "x-")
    assert named.agents[0].system == "You are x-ann. Ask x-ben."
    assert named.groups[0].name == "x-pair"
    assert named.groups[0].members[0].agent == "x-ann"
    stages = with_prefix(read_template("research"), "x-").groups[0].options["stages"]
    assert stages[0]["agents"] == ["x-asker"]
    assert stages[0]["name"] == "questions"


def test_an_unknown_template_is_refused_with_those_that_there_are(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"Did you mean 'research'\?"):
        read_template("reserch")
    with pytest.raises(NotFound, match=r"There is no file .* Nothing was created"):
        read_template(str(tmp_path / "none.toml"))


# -- what they make --------------------------------------------------------------------------------


@asynccontextmanager
async def a_home(
    engine: str, place: Path, model: ScriptedModel | None = None, **options: Any
) -> AsyncGenerator[Asterism]:
    with store(engine) as stored:
        settings = {**stored, "timezone": "Europe/Berlin"}
        async with open_home(place, model, settings=settings, **options) as home:
            yield home


async def everything(home: Asterism) -> list[Any]:
    """All that a template may have changed, events of the audit log included."""
    agents = await home.agents.list()
    return [
        agents,
        await home.groups.list(),
        [(seen.name, seen.block) for seen in await home.blocks.list()],
        [await home.schedules.list(agent) for agent in agents],
        len(await home.audit.list(limit=1_000)),
    ]


@pytest.mark.promise("G4")
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", template_names())
async def test_a_template_makes_all_of_it_once(tmp_path: Path, engine: str, name: str) -> None:
    template = read_template(name)
    async with a_home(engine, tmp_path) as home:
        before = await everything(home)
        preview = await apply_template(home, name, preview=True)
        assert preview.is_preview
        assert await everything(home) == before
        report = await apply_template(home, name)
        assert report.items == preview.items
        assert report.new == report.items
        made = await everything(home)
        again = await apply_template(home, name)
        assert again.new == ()
        assert await everything(home) == made
        agents = {agent.name: agent for agent in await home.agents.list()}
        assert set(agents) == {agent.name for agent in template.agents}
        for wanted in template.agents:
            assert agents[wanted.name].tools == wanted.tools
        for group in template.groups:
            found = await home.groups.get(group.name)
            assert {member.name: member.role for member in found.members} == {
                member.agent: member.role for member in group.members
            }
        for block in template.blocks:
            for agent in block.agents:
                assert (await home.blocks.get(agent, block.label)).block.label == block.label


async def test_what_was_there_stays_and_what_is_missing_comes(tmp_path: Path) -> None:
    async with a_home("sqlite", tmp_path) as home:
        await home.agents.create("asker", system="Mine.")
        report = await apply_template(home, "research", model="scripted:two")
        assert [item.name for item in report.items if not item.is_new] == ["asker"]
        assert (await home.agents.get("asker")).system == "Mine."
        assert (await home.agents.get("finder")).model == "scripted:two"
        await home.groups.remove_member("research", "writer")
        again = await apply_template(home, "research")
        assert [item.name for item in again.new] == ["writer in research"]


async def test_a_name_that_is_taken_is_told_before_anything_is_made(tmp_path: Path) -> None:
    async with a_home("sqlite", tmp_path) as home:
        await home.agents.create("board")
        before = await everything(home)
        with pytest.raises(Conflict, match="--prefix"):
            await apply_template(home, "review-board")
        path = tmp_path / "mine.toml"
        path.write_text(GOOD + 'tools = ["teleport"]', "utf-8")
        with pytest.raises(NotFound, match="teleport"):
            await apply_template(home, str(path))
        assert await everything(home) == before
        report = await apply_template(home, "review-board", prefix="my-")
        assert "my-board" in {item.name for item in report.new}


# -- at work ---------------------------------------------------------------------------------------


def call(name: str, **arguments: Any) -> str:
    return f"[[call:{name} {orjson.dumps(arguments).decode()}]]"


def who(request: ModelRequest) -> str:
    return text_of(request.messages[0]).partition("You are ")[2].split()[0].rstrip(",.")


@pytest.mark.promise("G4")
async def test_the_group_for_adhd_gives_work_to_the_agent_with_the_tool(tmp_path: Path) -> None:
    steps = ["Open the folder (5 min)", "Fill in page one (20 min)"]
    add = calls(
        ("task", orjson.dumps({"operation": "add", "task": "Tax", "steps": steps}).decode())
    )
    give = calls(("delegate", '{"to": "planner", "task": "Break the tax report into steps."}'))

    def play(request: ModelRequest) -> Reply | str:
        name, last = who(request), text_of(request.messages[-1])
        if name == "planner":
            return "Begin with the folder." if last.startswith("Added task") else add
        if last.startswith("Given to planner"):
            return "I asked planner."
        if "Begin with the folder." in last:
            return "One step is enough: open the folder."
        return give

    async with a_home("sqlite", tmp_path, ScriptedModel.from_rule(play)) as home:
        await apply_template(home, "adhd", schedules=False)
        outcome = await home.groups.ask("support", "The tax report is too much for me.")
        assert outcome.text == "One step is enough: open the folder."
        seen = await home.blocks.get("clock", "tasks")
        assert "Open the folder" in seen.block.text
        roles = {member.name: member for member in (await home.groups.get("support")).members}
        assert roles["guide"].role is Role.SUPERVISOR
        assert roles["thread"].domain == "memory_management"


async def test_who_finds_the_way_back_knows_what_was_said_to_the_group(tmp_path: Path) -> None:
    def play(request: ModelRequest) -> Reply | str:
        last = text_of(request.messages[-1])
        if b'"tool"' in request.messages[-1][:40]:
            return "Done." if who(request) != "thread" else last
        if who(request) == "thread":
            return calls(("where_was_i", "{}"))
        if "was I?" in last and "has come back" not in last:
            return calls(("delegate", '{"to": "thread", "task": "Where were they?"}'))
        if "photo booth" in last and "takes cards" not in last:
            add = {"operation": "start" if "start" in last else "add", "task": "photo booth"}
            return calls(("task", orjson.dumps(add).decode()))
        return last if "has come back" in last else "Fine."

    clock = ManualClock()
    model = ScriptedModel.from_rule(play)
    async with a_home("sqlite", tmp_path, model, clock=clock) as home:
        await apply_template(home, "adhd", schedules=False)
        group = await home.groups.get("support")
        for text in ("add the photo booth", "start the photo booth", "The booth takes cards only."):
            await group.ask(text)
        clock.forward(seconds=3_600)
        await group.ask("What is a good name for a parrot?")
        clock.forward(seconds=3_600)
        for _ in range(2):
            told = (await group.ask("Where was I?")).text
            assert "photo booth (under way" in told
            assert "The booth takes cards only." in told
            assert "parrot" not in told
            assert "Members:" not in told
            clock.forward(seconds=3_600)


class Week:
    """A home with the template for ADHD, and a clock that is moved hour by hour."""

    def __init__(self, home: Asterism, clock: ManualClock, model: ScriptedModel) -> None:
        self.home = home
        self.clock = clock
        self.model = model

    async def say(self, agent: str, text: str) -> str:
        """Say something to an agent; return what its call has brought."""
        outcome = await self.home.agents.ask(agent, text)
        assert outcome.state is TurnState.DONE
        told = text_of(self.model.requests[-1].messages[-1])
        assert "Nothing was" not in told
        return told

    async def settle(self) -> None:
        """Let everything that is due happen."""

        async def over() -> bool:
            following = await self.home.database.read(messages.next_schedule_time)
            if following is not None and following <= self.clock.now:
                return False
            return (await self.home.status()).open_turns == 0

        await self.home.database.write(lambda tx: tx.notify("schedule", ""))
        await until(over)

    async def do_something(self, hour: int) -> None:
        """Let an hour pass; in each of the first ten, a task of 30 minutes takes 50."""
        if hour >= 10:
            self.clock.forward(seconds=3_600)
            return
        title = f"Write part {hour}"
        add = call("task", operation="add", task=title, minutes=30, kind="writing")
        await self.say("planner", add)
        await self.say("guide", call("task", operation="start", task=title))
        self.clock.forward(seconds=50 * 60)
        await self.settle()
        await self.say("guide", call("task", operation="done", task=title))
        self.clock.forward(seconds=10 * 60)

    async def messages_to(self, agent: str) -> list[tuple[int, str]]:
        """Return the planned messages that an agent got, with their times, the oldest first."""
        found: list[tuple[int, str]] = []
        for record in await self.home.turns.list(agent, limit=1_000):
            _, entries = await self.home.turns.get(record.id)
            opened = next(entry for entry in entries if entry.key == "in")
            text = text_of(opened.body)
            if text.startswith("[scheduled for "):
                found.append((opened.at_ms, text.partition("] ")[2]))
        return sorted(found)


@pytest.mark.promise("G4")
@pytest.mark.parametrize(
    ("engine", "days"), [("sqlite", 7), pytest.param("postgres", 2, marks=pytest.mark.postgres)]
)
@pytest.mark.timeout(300)
async def test_a_week_with_the_template_for_adhd(tmp_path: Path, engine: str, days: int) -> None:
    """On SQLite for a week; a server takes much longer for each of its turns."""
    clock, model = ManualClock(to_ms(MONDAY)), obedient()
    async with a_home(engine, tmp_path, model, clock=clock) as home:
        week = Week(home, clock, model)
        await apply_template(home, "adhd")
        await week.say(
            "care", call("habit", operation="add", habit="medicine", when="every day at 9")
        )
        await week.say(
            "care", call("habit", operation="add", habit="drink water", when="every 2 hours")
        )
        for hour in range(days * 24):
            await week.do_something(hour)
            await week.settle()
            now = to_datetime(clock.now, BERLIN)
            if now.hour == 9:  # 9:30, half an hour after the reminder
                await week.say("care", call("habit", operation="done", habit="medicine"))
                level = 4 if now.weekday() == 0 else 7
                await week.say("pace", call("energy", operation="log", level=level))
        got = await week.messages_to("care")
        water = [at for at, text in got if text.endswith("drink water")]
        medicine = [at for at, text in got if text.endswith("medicine")]

        # Each reminder came once, and none in quiet hours.
        assert len(got) == len(set(got))
        for at, _ in [*got, *await week.messages_to("guide")]:
            assert quiet_until(QUIET, at, BERLIN) is None, to_datetime(at, BERLIN)

        # What was done is asked for every day; what was ignored ever less, and then no more.
        assert Counter(f"{to_datetime(at, BERLIN):%a}" for at in medicine) == Counter(
            ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"][:days]
        )
        gaps = [later - former for former, later in pairwise(water)]
        assert 3 <= len(water) <= 6
        assert gaps[-1] > gaps[0]
        habits = await week.say("care", call("habit", operation="list"))
        assert ("paused" in habits) == (days == 7)

        # Every morning one greeting.
        check_ins = [text for _, text in await week.messages_to("guide") if "Check in" in text]
        assert check_ins
        assert len(check_ins) == len(set(check_ins))
        greetings = [text for _, text in await week.messages_to("guide") if "Morning" in text]
        assert len(greetings) == days

        # Another agent knows what was learned.
        told = await week.say(
            "clock", call("task", operation="estimate", minutes=30, kind="writing")
        )
        assert "You say 30 min, you usually take" in told
        assert "from 10 writing tasks" in told
        factor = float(told.partition("factor ")[2].split()[0])
        assert 1.4 <= factor <= 50 / 30
        trends = await week.say("pace", call("energy", operation="trends"))
        mean = (4 + 7 * (days - 1)) / days
        assert f"Energy: {mean:.1f} of 10 on average, from {days} notes." in trends

        # Work, an interruption, something else, and back.
        await week.say(
            "guide",
            call("task", operation="add", task="Renew the passport", steps=["Find a photo booth"]),
        )
        await week.say("guide", call("task", operation="start", task="photo booth"))
        await home.agents.ask("guide", "The photo booth at the station takes cards only.")
        clock.now += to_ms(MONDAY + timedelta(hours=2)) - to_ms(MONDAY)
        await week.settle()
        await home.agents.ask("guide", "The neighbour rang; what is a good name for a parrot?")
        clock.forward(seconds=600)
        told = await week.say("guide", call("where_was_i"))
        assert "Find a photo booth" in told
        assert "takes cards only" in told
        assert "Renew the passport" in told
        assert "parrot" not in told


@pytest.mark.parametrize("engine", ENGINES)
async def test_a_reminder_that_was_asked_for_in_the_group_comes(
    tmp_path: Path, engine: str
) -> None:
    habit = {"operation": "add", "habit": "drink water", "when": "every 2 hours"}
    add = calls(("habit", orjson.dumps(habit).decode()))
    give = calls(("delegate", '{"to": "care", "task": "Remind of water every two hours."}'))

    def play(request: ModelRequest) -> Reply | str:
        name, last = who(request), text_of(request.messages[-1])
        if name == "care":
            if last.startswith("Remind your owner of this"):
                return "A glass of water?"
            return "It is planned." if last.startswith("Added habit") else add
        if last.startswith("Given to care"):
            return "I asked care."
        return "Water it is." if "It is planned." in last else give

    clock = ManualClock(to_ms(MONDAY))
    async with a_home(engine, tmp_path, ScriptedModel.from_rule(play), clock=clock) as home:
        await apply_template(home, "adhd", schedules=False)
        assert (await home.groups.ask("support", "Remind me to drink.")).text == "Water it is."
        (planned,) = await home.schedules.list("care")
        clock.now = planned.due_at_ms
        await Week(home, clock, ScriptedModel()).settle()
        newest, *_ = await home.turns.list("care", limit=1)
        assert newest.state is TurnState.DONE
        _, entries = await home.turns.get(newest.id)
        assert any(b"A glass of water?" in entry.body for entry in entries)
        assert [item for item in await home.outbox.list() if item.state == "dead"] == []
