"""Messages between agents, and what roles in groups give: cooldown, loop guard, labels, tools."""

from pathlib import Path
from typing import Any

import orjson
import pytest

from asterism import Asterism, TurnState
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
