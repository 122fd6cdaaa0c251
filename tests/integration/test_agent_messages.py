"""Messages between agents, and what roles in groups give: cooldown, loop guard, labels, tools."""

from pathlib import Path
from typing import Any

import orjson
import pytest

from asterism import Asterism, TurnState
from asterism.groups.patterns.round_robin import RoundRobinPattern
from asterism.store import journal
from asterism.testing.clock import ManualClock
from asterism.types.agents import Trust
from asterism.types.turns import Reply, text_of
from tests.integration.group_scene import Cast, cast_home, soon
from tests.scenes import calls, until

pytestmark = pytest.mark.parametrize(
    "engine", ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)]
)


def write_to(kind: str, name: str, content: str = "Your turn.") -> Reply:
    """A call that sends a message to an agent or a group."""
    arguments = {"target": {"type": kind, "id": name}, "content": content}
    return calls(("send_message", orjson.dumps(arguments).decode()))


async def idle(home: Asterism) -> bool:
    return not await home.turns.unfinished() and (await home.counts())[1] == 0


@pytest.mark.promise("G3")
async def test_two_agents_that_answer_each_other_for_ever_are_stopped_and_a_person_is_told(
    engine: str, tmp_path: Path
):
    clock = ManualClock()

    def answer_to(other: str) -> Any:
        def say(said: str) -> str | Reply:
            clock.forward(seconds=31)
            return write_to("agent", other) if "from agent" in said or "start" in said else "ok"

        return say

    cast = Cast({"ada": answer_to("ben"), "ben": answer_to("ada")})
    settings = {"agent_messages": {"max_messages": 6, "max_depth": 100}}
    async with cast_home(
        engine, tmp_path, cast, "ada", "ben", clock=clock, settings=settings
    ) as home:
        await soon(home.agents.ask("ada", "start"))
        await until(lambda: idle(home))
        sent = sum("from agent" in said for _, said in cast.heard if not said.startswith("Not"))
        assert sent == 6
        (notice,) = await home.notices.list()
        assert notice.kind == "agents.loop"
        assert "have sent each other 6 messages" in notice.text
        assert any("Not sent" in said for _, said in cast.heard)
        # A person may let them go on: their message begins another exchange.
        before = len(cast.heard)
        await soon(home.agents.ask("ada", "start"))
        await until(lambda: idle(home))
        assert len(cast.heard) > before + 6
        assert len(await home.notices.list()) == 2


@pytest.mark.promise("G3")
async def test_a_chain_of_agents_ends_at_its_depth(engine: str, tmp_path: Path):
    clock = ManualClock()

    def pass_on(other: str) -> Any:
        def say(said: str) -> str | Reply:
            clock.forward(seconds=31)
            return write_to("agent", other) if "from agent" in said or "start" in said else "ok"

        return say

    cast = Cast({"ada": pass_on("ben"), "ben": pass_on("cy"), "cy": pass_on("ada")})
    settings = {"agent_messages": {"max_depth": 5}}
    async with cast_home(
        engine, tmp_path, cast, "ada", "ben", "cy", clock=clock, settings=settings
    ) as home:
        await soon(home.agents.ask("ada", "start"))
        await until(lambda: idle(home))
        assert sum("from agent" in said for _, said in cast.heard) == 5
        (notice,) = await home.notices.list()
        assert "5 messages between agents" in notice.text


@pytest.mark.promise("G3")
async def test_the_cooldown_refuses_or_delays_and_says_so(engine: str, tmp_path: Path):
    clock = ManualClock()
    cast = Cast({"ada": lambda said: write_to("agent", "ben", said) if "say" in said else said})
    async with cast_home(engine, tmp_path, cast, "ada", "ben", clock=clock) as home:
        assert "Sent to ben" in (await soon(home.agents.ask("ada", "say one"))).text
        await until(lambda: idle(home))
        clock.forward(seconds=10)
        refused = (await soon(home.agents.ask("ada", "say two"))).text
        assert "less than 30 s ago. Wait 20 s" in refused
        clock.forward(seconds=21)
        assert "Sent to ben" in (await soon(home.agents.ask("ada", "say three"))).text
        await until(lambda: len(cast.asked("ben")) == 2)


@pytest.mark.promise("G3")
async def test_a_delayed_message_is_sent_later_in_the_same_exchange(engine: str, tmp_path: Path):
    clock = ManualClock()
    cast = Cast({"ada": lambda said: write_to("agent", "ben", said) if "say" in said else said})
    settings = {"agent_messages": {"on_cooldown": "delay", "cooldown": 60}}
    async with cast_home(
        engine, tmp_path, cast, "ada", "ben", clock=clock, settings=settings
    ) as home:
        await soon(home.agents.ask("ada", "say one"))
        await until(lambda: idle(home))
        assert "gets it in 60 s" in (await soon(home.agents.ask("ada", "say two"))).text
        assert len(cast.asked("ben")) == 1
        (schedule,) = await home.schedules.list("ben")
        assert "say two" in schedule.text
        clock.forward(seconds=61)
        await home.database.write(lambda tx: tx.notify("schedule", ""))
        await until(lambda: len(cast.asked("ben")) == 2)


@pytest.mark.promise("G3", "X6")
async def test_a_message_to_a_group_is_answered_to_the_agent_with_its_labels(
    engine: str, tmp_path: Path
):
    cast = Cast(
        {
            "cy": lambda said: (
                write_to("group", "ring", "What is new?") if "ask" in said else "thanks"
            )
        }
    )
    async with cast_home(engine, tmp_path, cast, "ada", "cy") as home:
        await home.groups.create("ring", members=["ada"])
        await soon(home.agents.ask("cy", "ask them", channel="mail", sender="stranger@x.org"))
        # Nobody who is trusted has asked for it.
        (approval,) = await home.approvals.list()
        await approval.approve()
        await until(lambda: len(cast.asked("cy")) == 3)
        await until(lambda: idle(home))
        assert "[from group ring, in answer to you] ada answers" in cast.asked("cy")[-1]
        assert "the agent cy" in cast.asked("ada")[0]
        (turn,) = await home.turns.list("ada")
        record = await home.database.read(lambda tx: journal.turn(tx, turn.id))
        assert record is not None
        # It was a stranger who began it, and nobody on the way is trusted further than that.
        assert record.trust == Trust.STRANGER
        assert "person:" in str(record.audience)


@pytest.mark.promise("X6", "M9")
async def test_members_see_what_those_present_may_see_and_trust_as_far(engine: str, tmp_path: Path):
    cast = Cast()
    async with cast_home(engine, tmp_path, cast, "ada", "ben") as home:
        await home.agents.ask("ada", "My PIN is 4711, remember that for me.")
        stages = {"stages": ["ada", "ben"]}
        group = await home.groups.create(
            "line", pattern="pipeline", options=stages, members=["ada", "ben"]
        )
        receipt = await group.send("hello", channel="chat", sender="mallory", room="lobby")
        await soon(home.turns.wait(receipt))
        requests = [
            request
            for request in cast.model.requests
            if "from chat:mallory" in text_of(request.messages[-1])
        ]
        assert len(requests) == 2
        assert all("4711" not in wire.decode() for request in requests for wire in request.messages)
        for name in ("ada", "ben"):
            turn = (await home.turns.list(name))[0]
            record = await home.database.read(lambda tx, id=turn.id: journal.turn(tx, id))
            assert record is not None
            assert record.trust == Trust.STRANGER
            assert "room:chat:lobby" in str(record.audience)


@pytest.mark.promise("G3")
@pytest.mark.parametrize("by", ["schedule", "heartbeat"])
async def test_plans_of_their_own_do_not_begin_a_new_exchange(engine: str, tmp_path: Path, by: str):
    clock = ManualClock()
    plan = {
        "schedule": ("schedule", '{"operation": "in", "when": "1 minute", "message": "answer"}'),
        "heartbeat": ("heartbeat", '{"reason": "answer"}'),
    }[by]

    def later(other: str) -> Any:
        def say(said: str) -> str | Reply:
            if "[scheduled for" in said or "[heartbeat" in said or said.endswith("start"):
                clock.forward(seconds=31)
                return write_to("agent", other)
            return calls(plan) if "[from agent" in said else "ok"

        return say

    cast = Cast({"ada": later("ben"), "ben": later("ada")})
    settings = {"agent_messages": {"max_messages": 6, "max_depth": 100}}
    async with cast_home(
        engine, tmp_path, cast, "ada", "ben", clock=clock, settings=settings
    ) as home:
        await soon(home.agents.ask("ada", "start"))
        for _ in range(12):
            await until(lambda: idle(home))
            clock.forward(seconds=61)
            if not (due := await schedule_ids(home)):
                break
            await home.database.write(lambda tx: tx.notify("schedule", ""))
            await until(lambda due=due: have_fired(home, due))
        await until(lambda: idle(home))
        assert sum("[from agent" in said for _, said in cast.heard) == 6
        (notice,) = await home.notices.list()
        assert notice.kind == "agents.loop"
        assert "have sent each other 6 messages" in notice.text


async def schedule_ids(home: Asterism) -> set[str]:
    return {plan.id for name in ("ada", "ben") for plan in await home.schedules.list(name)}


async def have_fired(home: Asterism, due: set[str]) -> bool:
    return not due & await schedule_ids(home)  # what was due may have made new ones by now


@pytest.mark.promise("G3")
async def test_a_regular_plan_made_in_an_exchange_belongs_to_it_each_time(
    engine: str, tmp_path: Path
):
    clock = ManualClock()
    rule = '{"operation": "every", "when": "day at 9", "message": "tell ada"}'

    def ben(said: str) -> str | Reply:
        if "[scheduled for" in said:
            return write_to("agent", "ada")
        return calls(("schedule", rule)) if "[from agent" in said else "ok"

    cast = Cast(
        {"ada": lambda said: write_to("agent", "ben") if "start" in said else "ok", "ben": ben}
    )
    settings = {"agent_messages": {"max_messages": 3}}
    async with cast_home(
        engine, tmp_path, cast, "ada", "ben", clock=clock, settings=settings
    ) as home:
        await soon(home.agents.ask("ada", "start"))
        await until(lambda: idle(home))
        for day in range(1, 6):
            clock.forward(seconds=86_400)
            await home.database.write(lambda tx: tx.notify("schedule", ""))
            await until(lambda day=day: fired(cast, day))
            await until(lambda: idle(home))
        assert sum("[from agent ben]" in said for said in cast.asked("ada")) == 2
        (notice,) = await home.notices.list()
        assert "have sent each other 3 messages" in notice.text


async def fired(cast: Cast, times: int) -> bool:
    return sum("[scheduled for" in said for said in cast.asked("ben")) == times


@pytest.mark.promise("G3")
async def test_what_a_person_has_asked_a_group_to_plan_begins_anew_each_time(
    engine: str, tmp_path: Path
):
    clock = ManualClock()
    rule = '{"operation": "every", "when": "day at 9", "message": "tell ben"}'

    def ada(said: str) -> str | Reply:
        if "[scheduled for" in said:
            return write_to("agent", "ben")
        return calls(("schedule", rule)) if "[group ring" in said else "ok"

    cast = Cast({"ada": ada})
    settings = {"agent_messages": {"max_messages": 2}}
    async with cast_home(
        engine, tmp_path, cast, "ada", "ben", clock=clock, settings=settings
    ) as home:
        ring = await home.groups.create("ring", members=["ada"])
        await soon(ring.ask("Tell ben every day."))
        for day in range(1, 5):
            clock.forward(seconds=86_400)
            await home.database.write(lambda tx: tx.notify("schedule", ""))
            await until(lambda day=day: count(cast, day))
            await until(lambda: idle(home))
        assert await home.notices.list() == []


async def count(cast: Cast, times: int) -> bool:
    return len(cast.asked("ben")) == times


@pytest.mark.promise("G3")
async def test_a_delayed_message_is_not_refused_while_the_former_is_unread(
    engine: str, tmp_path: Path
):
    clock = ManualClock()
    cast = Cast({"ada": lambda said: write_to("agent", "ben", said) if "say" in said else said})
    settings = {"agent_messages": {"on_cooldown": "delay"}}
    busy = cast.hold("ben")
    async with cast_home(
        engine, tmp_path, cast, "ada", "ben", clock=clock, settings=settings
    ) as home:
        await home.agents.send("ben", "something long")
        await soon(busy.wait())
        assert "Sent to ben" in (await soon(home.agents.ask("ada", "say one"))).text
        clock.forward(seconds=1)
        assert "gets it in 29 s" in (await soon(home.agents.ask("ada", "say two"))).text
        cast.release("ben")
        await until(lambda: idle(home))
        clock.forward(seconds=31)
        await home.database.write(lambda tx: tx.notify("schedule", ""))
        await until(lambda: len(cast.asked("ben")) == 3)


@pytest.mark.promise("G3")
@pytest.mark.parametrize(
    ("how", "why"),
    [
        ("a member", "ben failed"),
        ("the pattern", "no active member"),
        ("a fault", "a fault inside asterism"),
    ],
)
async def test_an_agent_hears_that_the_group_it_has_asked_has_failed(
    engine: str, tmp_path: Path, how: str, why: str, monkeypatch: pytest.MonkeyPatch
):
    def broken(*said: object) -> str:
        raise RuntimeError(said)

    cast = Cast({"ada": lambda said: write_to("group", "team") if "go" in said else "ok"})
    cast.lines["ben"] = broken
    if how == "a fault":
        monkeypatch.setattr(RoundRobinPattern, "decide", broken)
    async with cast_home(engine, tmp_path, cast, "ada", "ben") as home:
        members = ["ben"] if how == "a member" else []
        await home.groups.create("team", members=members)
        await soon(home.agents.ask("ada", "go"))
        await until(lambda: heard_back(cast))
        await until(lambda: idle(home))
        assert (await home.groups.transcript("team"))[-1].details == {"state": "failed"}
        answers = [said for said in cast.asked("ada") if "[from group team" in said]
        assert len(answers) == 1
        assert why in answers[0]


async def heard_back(cast: Cast) -> bool:
    return any("[from group team, in answer to you]" in said for said in cast.asked("ada"))


# -- roles ---------------------------------------------------------------------------------------


@pytest.mark.promise("G2")
async def test_specialists_get_the_tools_of_their_domain(engine: str, tmp_path: Path):
    def act(said: str) -> str | Reply:
        if said.endswith("halt"):
            return calls(("halt", '{"reason": "smoke"}'))
        if said.endswith("look"):
            return calls(("search_constellation", '{"query": "bicycle"}'))
        return said

    cast = Cast({"ada": act, "ben": act})
    async with cast_home(engine, tmp_path, cast, "ada", "ben", "cy") as home:
        await soon(home.agents.ask("cy", "My bicycle is green."))
        await home.search.catch_up()
        group = await home.groups.create("ring", members=["ada"])
        assert "there is no tool" in (await soon(home.agents.ask("ada", "look"))).text
        await group.add_member("ben", role="specialist", domain="memory_management")
        assert "bicycle is green" in (await soon(home.agents.ask("ben", "look"))).text
        assert "there is no tool" in (await soon(home.agents.ask("ben", "halt"))).text
        await group.add_member("ada", role="specialist", domain="system_integrity")
        await soon(home.agents.ask("ada", "halt"))
        assert (await home.halts.current()) is not None
        await home.halts.resume()
        await group.remove_member("ben")
        assert "there is no tool" in (await soon(home.agents.ask("ben", "look"))).text


@pytest.mark.promise("G2")
async def test_observers_hear_what_was_said_and_are_never_asked(engine: str, tmp_path: Path):
    cast = Cast()
    async with cast_home(engine, tmp_path, cast, "ada", "ben") as home:
        group = await home.groups.create("ring", members=["ada"])
        await group.add_member("ben", role="observer")
        for _ in range(2):
            await soon(group.ask("The zeppelin lands at noon."))
        assert cast.asked("ben") == []
        await home.search.catch_up()
        found = await home.search("ben", "zeppelin")
        assert any("zeppelin lands at noon" in hit.text for hit in found.hits)


@pytest.mark.promise("T7")
async def test_a_group_has_a_spending_cap(engine: str, tmp_path: Path):
    cast = Cast()
    settings = {
        "budget": {"groups": {"ring": {"day": 0.000001}}, "max_output": 100},
        "prices": {"scripted:one": {"input": 1.0, "output": 1.0}},
    }
    async with cast_home(engine, tmp_path, cast, "ada", settings=settings) as home:
        group = await home.groups.create("ring", members=["ada"])
        outcome = await soon(group.ask("hello"))
        assert outcome.state is TurnState.FAILED
        assert "budget.groups.ring" in outcome.text
        assert cast.heard == []
        assert (await soon(home.agents.ask("ada", "hello"))).text == "ada answers"


@pytest.mark.promise("G3")
async def test_an_agent_hears_that_whom_it_writes_to_is_archived(
    engine: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    cast = Cast({"ada": lambda said: write_to("agent", "ben") if "start" in said else said})
    async with cast_home(engine, tmp_path, cast, "ada", "ben") as home:
        await home.agents.archive("ben")
        said = (await soon(home.agents.ask("ada", "start"))).text
    assert (
        said == "Error: ben is archived and takes no messages. Go on without it. Nothing was sent."
    )
    assert "Traceback" not in caplog.text
