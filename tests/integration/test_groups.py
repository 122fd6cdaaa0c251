"""Groups through the front door: six patterns, each answered once, on both engines."""

import asyncio
from pathlib import Path

import orjson
import pytest

from asterism import Asterism, Group, ToolContext, TurnState, tool
from asterism.errors import Conflict, InvalidInput, NotFound
from asterism.testing.channel import MemoryChannel
from asterism.testing.clock import ManualClock
from asterism.types.groups import GroupEvent
from asterism.types.permissions import ToolEffect
from asterism.types.turns import Reply
from asterism.views import transcript_markdown
from tests.integration.group_scene import Cast, ballot, cast_home, soon, store
from tests.scenes import calls, open_home, until

pytestmark = pytest.mark.parametrize(
    "engine", ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)]
)


def kinds(events: list[GroupEvent]) -> list[str]:
    return [event.kind for event in events]


# -- round robin ---------------------------------------------------------------------------------


@pytest.mark.promise("G1")
async def test_round_robin_goes_on_where_it_was_after_a_restart(engine: str, tmp_path: Path):
    cast = Cast()
    with store(engine) as settings:
        async with open_home(tmp_path, cast.model, settings=settings) as home:
            for name in ("ada", "ben", "cy"):
                await home.agents.create(name)
            group = await home.groups.create("ring", members=["ada", "ben", "cy"])
            said = [(await soon(group.ask(f"message {number}"))).text for number in range(2)]
        async with open_home(tmp_path, cast.model, settings=settings) as home:
            group = await home.groups.get("ring")
            said += [(await soon(group.ask(f"message {number}"))).text for number in range(2, 4)]
    assert said == ["ada answers", "ben answers", "cy answers", "ada answers"]


@pytest.mark.promise("G1", "T4")
async def test_messages_to_a_group_are_answered_one_at_a_time_in_order(engine: str, tmp_path: Path):
    cast = Cast()
    async with cast_home(engine, tmp_path, cast, "ada", "ben", "cy") as home:
        group = await home.groups.create("ring", members=["ada", "ben", "cy"])
        receipts = [await group.send(f"number {number}") for number in range(7)]
        outcomes = [await soon(home.turns.wait(receipt)) for receipt in receipts]
        again = await group.send("number 0", channel="mail", external_id="x")
        twice = await group.send("number 0", channel="mail", external_id="x")
        await soon(home.turns.wait(again))
    names = ["ada", "ben", "cy"]
    assert [outcome.text for outcome in outcomes] == [
        f"{names[number % 3]} answers" for number in range(7)
    ]
    assert [said.rpartition(" ")[2] for _, said in cast.heard] == [*"0123456", "0"]
    assert twice.duplicate
    assert twice.turn_id == again.turn_id


@pytest.mark.promise("G1")
async def test_a_member_that_is_not_active_is_skipped_and_told(engine: str, tmp_path: Path):
    cast = Cast()
    async with cast_home(engine, tmp_path, cast, "ada", "ben") as home:
        group = await home.groups.create("ring", members=["ada", "ben"])
        await group.add_member("ada", active=False)
        assert (await soon(group.ask("hello"))).text == "ben answers"
        events = await group.transcript()
        assert "ada cannot be asked now" in events[1].text
        await group.edit(options={"skip_unavailable": False})
        failed = await soon(group.ask("hello"))
        assert failed.state is TurnState.FAILED
        assert "ada's turn" in failed.text
        await group.add_member("ben", active=False)
        await group.edit(options={})
        assert "no active member" in (await soon(group.ask("hello"))).text


# -- pipeline ------------------------------------------------------------------------------------


@pytest.mark.promise("G1")
async def test_each_stage_gets_the_output_of_the_one_before(engine: str, tmp_path: Path):
    cast = Cast({"ada": "a draft", "ben": "a fact", "cy": "a doubt", "dee": "the report"})
    async with cast_home(engine, tmp_path, cast, "ada", "ben", "cy", "dee") as home:
        stages = [
            {"name": "write", "agents": ["ada"]},
            {"name": "check", "agents": ["ben", "cy"], "instructions": "Check it."},
            {"name": "publish", "agents": ["dee"]},
        ]
        group = await home.groups.create(
            "research",
            pattern="pipeline",
            options={"stages": stages},
            members=["ada", "ben", "cy", "dee"],
        )
        outcome = await soon(group.ask("Write about bees."))
        events = await group.transcript()
    assert outcome.text == "the report"
    assert "a draft" in cast.asked("ben")[0]
    assert "Your part: Check it." in cast.asked("cy")[0]
    assert "ben: a fact" in cast.asked("dee")[0]
    assert "cy: a doubt" in cast.asked("dee")[0]
    assert "a draft" not in cast.asked("dee")[0]
    assert kinds(events).count("question") == 4
    assert {event.speaker for event in events if event.kind == "answer"} == {
        "ada",
        "ben",
        "cy",
        "dee",
    }


@pytest.mark.promise("G1")
@pytest.mark.parametrize(
    ("stage", "expected"),
    [
        ({"on_failure": "abort"}, "I had to stop at the stage 'first'"),
        ({"on_failure": "skip"}, "cy answers"),
        ({"on_failure": "retry", "attempts": 3}, "cy answers"),
        ({"on_failure": "fallback", "fallback": "ben"}, "cy answers"),
    ],
)
async def test_what_follows_when_a_stage_fails(
    engine: str, tmp_path: Path, stage: dict[str, object], expected: str
):
    tries: list[str] = []

    def fail(said: str) -> str:
        tries.append(said)
        if stage["on_failure"] == "retry" and len(tries) == 3:
            return "at last"
        raise RuntimeError("a bug in the model")

    cast = Cast({"ada": fail})
    async with cast_home(engine, tmp_path, cast, "ada", "ben", "cy") as home:
        stages = [{"name": "first", "agents": ["ada"], **stage}, {"agents": ["cy"]}]
        group = await home.groups.create(
            "line", pattern="pipeline", options={"stages": stages}, members=["ada", "ben", "cy"]
        )
        outcome = await soon(group.ask("go"))
    assert outcome.text.startswith(expected)
    heard = cast.asked("cy")[0] if cast.asked("cy") else ""
    match stage["on_failure"]:
        case "retry":
            assert len(tries) == 3
            assert "at last" in heard
        case "fallback":
            assert "ben answers" in heard
        case "skip":
            assert "the stage before" not in heard
        case _:
            assert outcome.state is TurnState.FAILED
            assert heard == ""


@pytest.mark.promise("G1")
async def test_a_stage_that_takes_too_long_is_stopped(engine: str, tmp_path: Path):
    started, released = asyncio.Event(), asyncio.Event()

    @tool(repeatable=True, effects=ToolEffect("read"))
    async def linger(ctx: ToolContext) -> str:
        """Take very long."""
        started.set()
        await released.wait()
        return "done"

    def slow(said: str) -> str | Reply:
        return calls(("linger", "{}")) if "group" in said else "late"

    clock = ManualClock()
    cast = Cast({"ada": slow})
    async with cast_home(engine, tmp_path, cast, "ada", "ben", tools=[linger], clock=clock) as home:
        stages = [{"agents": ["ada"], "timeout": 60, "on_failure": "skip"}, {"agents": ["ben"]}]
        group = await home.groups.create(
            "line", pattern="pipeline", options={"stages": stages}, members=["ada", "ben"]
        )
        receipt = await group.send("go")
        await soon(started.wait())
        clock.forward(seconds=59)
        await look(home)
        assert (await home.turns.outcome(receipt.turn_id)).state is TurnState.OPEN
        clock.forward(seconds=2)
        await look(home)
        outcome = await soon(home.turns.wait(receipt))
        assert outcome.text == "ben answers"
        turns = await home.turns.list("ada")
        assert turns[0].state is TurnState.STOPPED
        timed_out = [
            event.details["state"] for event in await group.transcript() if event.kind == "answer"
        ]
        assert timed_out == ["timeout", "done"]


async def look(home: Asterism) -> None:
    """Let the home look at groups that are due, as its pump does from time to time."""
    await home._engine.groups.look()  # pyright: ignore[reportPrivateUsage]


# -- supervisor ----------------------------------------------------------------------------------


def delegate(*tasks: tuple[str, str]) -> Reply:
    return calls(
        *(("delegate", orjson.dumps({"to": to, "task": task}).decode()) for to, task in tasks)
    )


@pytest.mark.promise("G1")
async def test_a_supervisor_delegates_collects_and_answers(engine: str, tmp_path: Path):
    def lead(said: str) -> str | Reply:
        if "You lead this group" in said:
            return delegate(("ben", "Look up the price."), ("cy", "Look up the weather."))
        if "has come back" in said:
            return "It costs 3 and rains."
        return "I have given it away."

    cast = Cast({"ada": lead, "ben": "The price is 3.", "cy": "It rains."})
    async with cast_home(engine, tmp_path, cast, "ada", "ben", "cy") as home:
        group = await home.groups.create("desk", pattern="supervisor", members=["ben", "cy"])
        await group.add_member("ada", role="supervisor")
        outcome = await soon(group.ask("Price and weather?"))
        events = await group.transcript()
        assert len(await home.turns.list("ben")) == 1
        assert len(await home.turns.list("ada")) == 2
    assert outcome.text == "It costs 3 and rains."
    assert "task from ada] Look up the price." in cast.asked("ben")[0]
    final = cast.asked("ada")[-1]
    assert "The price is 3." in final
    assert "It rains." in final
    given = [event for event in events if event.kind == "delegation"]
    assert [(event.speaker, event.details["to"]) for event in given] == [
        ("ada", "ben"),
        ("ada", "cy"),
    ]
    assert "**ada** delegates to ben: Look up the price." in transcript_markdown("desk", events)


@pytest.mark.promise("G1")
async def test_tasks_beyond_the_limit_are_left_to_the_leader(engine: str, tmp_path: Path):
    def lead(said: str) -> str | Reply:
        if "You lead this group" in said:
            return delegate(("ben", "one"), ("ben", "two"), ("ben", "three"))
        return "done" if "has come back" in said else "given away"

    cast = Cast({"ada": lead})
    async with cast_home(engine, tmp_path, cast, "ada", "ben") as home:
        group = await home.groups.create(
            "desk",
            pattern="supervisor",
            options={"leader": "ada", "max_delegations_per_agent": 2},
            members=["ben"],
        )
        await group.add_member("ada", role="supervisor")
        assert (await soon(group.ask("go"))).text == "done"
        assert len(cast.asked("ben")) == 2
        assert "Not given away: three" in cast.asked("ada")[-1]
        await group.edit(options={"max_delegations_per_agent": 2, "fallback": "fail"})
        failed = await soon(group.ask("go"))
        assert failed.state is TurnState.FAILED
        assert "2 tasks" in failed.text
        await group.edit(options={"max_delegations_per_agent": 2, "fallback": "queue"})
        assert (await soon(group.ask("go"))).text == "done"
    assert len(cast.asked("ben")) == 2 + 2 + 3


@pytest.mark.promise("G2")
async def test_only_a_supervisor_has_the_tool_delegate(engine: str, tmp_path: Path):
    def try_it(said: str) -> str | Reply:
        return delegate(("ada", "x")) if said.endswith("go") else said

    cast = Cast({"ben": try_it})
    async with cast_home(engine, tmp_path, cast, "ada", "ben") as home:
        group = await home.groups.create("ring", members=["ben"])
        outcome = await soon(group.ask("go"))
        assert "delegate" in outcome.text
        assert "no tool" in outcome.text.casefold() or "not" in outcome.text
        assert cast.asked("ada") == []


# -- dynamic -------------------------------------------------------------------------------------


@pytest.mark.promise("G1", "G2")
async def test_the_selector_capability_finds_who_fits(engine: str, tmp_path: Path):
    cast = Cast()
    async with cast_home(engine, tmp_path, cast, "ada", "ben", "cy", "dee") as home:
        group = await home.groups.create("all", pattern="dynamic")
        await group.add_member("ada", role="supervisor")
        await group.add_member("ben", capabilities=["tax and invoices"])
        await group.add_member("cy", capabilities=["cooking recipes"])
        await group.add_member("dee", role="observer", capabilities=["tax"])
        assert (await soon(group.ask("Is this invoice right?"))).text == "ben answers"
        assert (await soon(group.ask("A recipe with leeks, please"))).text == "cy answers"
        assert (await soon(group.ask("xyzzy"))).text == "ada answers"
        assert (await soon(group.ask("Hey ben, how are you?"))).text == "ben answers"
        assert (await soon(group.ask("What do you say, @cy?"))).text == "cy answers"
        everybody = (await soon(group.ask("@all good morning"))).text
        assert everybody == "ada: ada answers\n\nben: ben answers\n\ncy: cy answers"
        reasons = [event.text for event in await group.transcript() if event.kind == "decision"]
        assert any("share the words" in reason and "invoice" in reason for reason in reasons)


@pytest.mark.promise("G1", "G5")
async def test_the_other_selectors_and_the_end_of_a_conversation(engine: str, tmp_path: Path):
    chosen = orjson.dumps({"members": ["ben"], "reason": "fits"}).decode()
    cast = Cast({"ada": chosen, "ben": "I am done. STOP"})
    async with cast_home(engine, tmp_path, cast, "ada", "ben", "cy") as home:
        group = await home.groups.create(
            "all", pattern="dynamic", options={"selector": "supervisor"}, members=["ben", "cy"]
        )
        await group.add_member("ada", role="supervisor")
        await group.edit(
            options={"selector": "supervisor", "max_turns": 5, "termination_token": "STOP"}
        )
        assert (await soon(group.ask("Who?"))).text == "I am done."
        await group.edit(options={"selector": "load_balancing"})
        cast.lines = {}
        answers = [(await soon(group.ask(f"number {number}"))).text for number in range(3)]
        assert sorted(answers) == ["ada answers", "ben answers", "cy answers"]
        await group.edit(options={"selector": "random", "count": 2})
        drawn = (await soon(group.ask("two of you"))).text
        assert drawn.count("answers") == 2


# -- voting --------------------------------------------------------------------------------------


@pytest.mark.promise("G1")
async def test_a_vote_by_real_ballots_with_weights_and_minutes(engine: str, tmp_path: Path):
    cast = Cast({"ada": ballot("red"), "ben": ballot("blue"), "cy": ballot("blue", "It is calm.")})
    async with cast_home(engine, tmp_path, cast, "ada", "ben", "cy") as home:
        group = await home.groups.create("board", pattern="voting", members=["ada", "ben", "cy"])
        outcome = await soon(group.ask("Which colour?\n- red\n- blue"))
        assert outcome.text.startswith("Decision: blue.")
        assert "cy voted blue: It is calm." in outcome.text
        await group.edit(options={"weighted": True, "secret": True})
        await group.add_member("ada", weight=5)
        outcome = await soon(group.ask("Which colour?\n- red\n- blue"))
        assert outcome.text.startswith("Decision: red.")
        assert "It is calm." not in outcome.text
        minutes = [
            event.details["notes"]["minutes"]
            for event in await group.transcript()
            if "minutes" in event.details.get("notes", {})
        ]
        assert [each["totals"] for each in minutes] == [
            {"red": 1, "blue": 2},
            {"red": 1, "blue": 2},  # of a secret ballot, heads: weights would tell whose vote
        ]
        assert "votes" not in minutes[1]


@pytest.mark.promise("G1")
async def test_a_tie_and_a_missing_quorum(engine: str, tmp_path: Path):
    cast = Cast({"ada": ballot("approve"), "ben": ballot("reject")})
    async with cast_home(engine, tmp_path, cast, "ada", "ben") as home:
        group = await home.groups.create("board", pattern="voting", members=["ada", "ben"])
        assert (await soon(group.ask("Shall we?"))).text.startswith("No decision.")
        await group.edit(options={"tie": "named", "tie_member": "ben"})
        assert (await soon(group.ask("Shall we?"))).text.startswith("Decision: reject.")
        await group.edit(options={"quorum": 3})
        assert "2 of the 3 ballots needed" in (await soon(group.ask("Shall we?"))).text


# -- sleeptime -----------------------------------------------------------------------------------


@pytest.mark.promise("G1", "T7")
async def test_24_idle_hours_ask_no_model_and_a_rule_that_fires_asks_once(
    engine: str, tmp_path: Path
):
    clock = ManualClock()
    cast = Cast({"ada": "NOTHING"})
    async with cast_home(engine, tmp_path, cast, "ada", "ben", clock=clock) as home:
        group = await home.groups.create(
            "night",
            pattern="sleeptime",
            options={
                "check_interval": 60,
                "triggers": [{"name": "busy", "condition": "messages", "count": 3}],
            },
            members=["ada", "ben"],
        )
        for _ in range(24 * 60):
            clock.forward(seconds=60)
            await look(home)
        assert cast.heard == []
        assert await group.transcript() == []
        for number in range(3):
            await soon(home.agents.ask("ben", f"message {number}"))
        before = len(cast.heard)
        for _ in range(60):
            clock.forward(seconds=60)
            await look(home)
            await until(lambda: idle(home))
        assert cast.heard[before:] == [("ada", cast.heard[-1][1])]
        assert "busy: 3 messages came in." in cast.heard[-1][1]
        assert await home.notices.list() == []
        cast.lines["ada"] = "Ben should rest."
        for number in range(3):
            await soon(home.agents.ask("ben", f"message {number}"))
        clock.forward(seconds=60)
        await look(home)
        await until(lambda: idle(home))
        (notice,) = await home.notices.list()
        assert notice.text == "night: Ben should rest."


async def idle(home: Asterism) -> bool:
    return not await home.turns.unfinished() and (await home.counts())[1] == 0


# -- approvals, stops, errors --------------------------------------------------------------------


@pytest.mark.promise("H1", "H2", "G1")
async def test_a_member_that_waits_for_a_person_parks_the_group(engine: str, tmp_path: Path):
    @tool(ask=True, repeatable=True, effects=ToolEffect("read"))
    async def order(ctx: ToolContext) -> str:
        """Order something."""
        return "ordered"

    def buy(said: str) -> str | Reply:
        return calls(("order", "{}")) if "group" in said else "bought"

    channel = MemoryChannel()
    cast = Cast({"ada": buy})
    async with cast_home(
        engine, tmp_path, cast, "ada", "ben", tools=[order], channels={"chat": channel}
    ) as home:
        group = await home.groups.create("ring", members=["ada", "ben"])
        receipt = await group.send("buy it", channel="chat", reply_to="#shop")
        outcome = await soon(home.turns.wait(receipt))
        assert outcome.state is TurnState.PARKED
        assert "order" in outcome.text
        assert (await soon(group.ask("meanwhile"))).text == "ben answers"
        (approval,) = await home.approvals.list()
        await approval.approve()
        await until(lambda: ended(home, receipt.turn_id))
        assert (await home.turns.outcome(receipt.turn_id)).text == "bought"
        await until(lambda: len(channel.delivered) == 2)
    assert [sent.target for sent in channel.delivered] == ["#shop", "#shop"]
    assert "order" in channel.delivered[0].text
    assert channel.delivered[1].text == "bought"


async def ended(home: Asterism, turn_id: str) -> bool:
    return (await home.turns.outcome(turn_id)).state is TurnState.DONE


# -- members that leave while the group waits ----------------------------------------------------


async def leave(home: Asterism, name: str, how: str) -> None:
    """Archive or delete an agent."""
    await (home.agents.archive(name) if how == "archived" else home.agents.delete(name))


def gone(events: list[GroupEvent]) -> list[tuple[str, str]]:
    """Return the members that a transcript says were not available, and why."""
    return [
        (event.speaker, event.text)
        for event in events
        if event.kind == "answer" and event.details["state"] == "unavailable"
    ]


@pytest.mark.promise("G1")
@pytest.mark.parametrize("how", ["archived", "deleted"])
@pytest.mark.parametrize(
    ("stage", "expected"),
    [
        ({}, "I had to stop at the stage 'first': ada is not available: it was"),
        ({"on_failure": "skip"}, "cy answers"),
        ({"on_failure": "retry"}, "I had to stop at the stage 'first': ada is not available"),
        ({"on_failure": "fallback", "fallback": "ben"}, "cy answers"),
    ],
)
async def test_a_pipeline_goes_on_when_a_member_leaves_that_it_waits_for(
    engine: str, tmp_path: Path, how: str, stage: dict[str, object], expected: str
):
    cast = Cast()
    asked = cast.hold("ada")
    async with cast_home(engine, tmp_path, cast, "ada", "ben", "cy") as home:
        stages = [{"name": "first", "agents": ["ada"], **stage}, {"agents": ["cy"]}]
        group = await home.groups.create(
            "line", pattern="pipeline", options={"stages": stages}, members=["ada", "ben", "cy"]
        )
        receipt = await group.send("go")
        await soon(asked.wait())
        await leave(home, "ada", how)
        outcome = await soon(home.turns.wait(receipt))
        assert outcome.text.startswith(expected)
        assert gone(await group.transcript()) == [("ada", f"it was {how}")]
        await until(lambda: idle(home))
    assert ("ben answers" in "".join(cast.asked("cy"))) == ("fallback" in stage)
    assert cast.asked("ada") == []


@pytest.mark.promise("G1")
@pytest.mark.parametrize("how", ["archived", "deleted"])
async def test_a_stage_stays_done_when_its_member_leaves(engine: str, tmp_path: Path, how: str):
    cast = Cast({"ada": "a draft"})
    asked = cast.hold("ben")
    async with cast_home(engine, tmp_path, cast, "ada", "ben", "cy") as home:
        group = await home.groups.create("line", pattern="pipeline", members=["ada", "ben", "cy"])
        receipt = await group.send("go")
        await soon(asked.wait())
        await leave(home, "ada", how)
        cast.release("ben")
        assert (await soon(home.turns.wait(receipt))).text == "cy answers"
        assert gone(await group.transcript()) == []
    assert [len(cast.asked(name)) for name in ("ada", "ben", "cy")] == [1, 1, 1]


@pytest.mark.promise("G1")
@pytest.mark.parametrize("how", ["archived", "deleted"])
async def test_a_leader_is_told_that_a_member_with_a_task_has_left(
    engine: str, tmp_path: Path, how: str
):
    def lead(said: str) -> str | Reply:
        if "You lead this group" in said:
            return delegate(("ben", "Look up the price."))
        return "I do not know the price." if "has come back" in said else "Given away."

    cast = Cast({"ada": lead})
    asked = cast.hold("ben")
    async with cast_home(engine, tmp_path, cast, "ada", "ben") as home:
        group = await home.groups.create("desk", pattern="supervisor", members=["ben"])
        await group.add_member("ada", role="supervisor")
        receipt = await group.send("The price?")
        await soon(asked.wait())
        await leave(home, "ben", how)
        outcome = await soon(home.turns.wait(receipt))
        assert outcome.text == "I do not know the price."
        assert gone(await group.transcript()) == [("ben", f"it was {how}")]
    assert f"ben is not available: it was {how}" in cast.asked("ada")[-1]


@pytest.mark.promise("G1")
@pytest.mark.parametrize("how", ["archived", "deleted"])
async def test_a_vote_is_counted_without_a_member_that_leaves(
    engine: str, tmp_path: Path, how: str
):
    cast = Cast({"ada": ballot("red"), "ben": ballot("blue"), "cy": ballot("blue")})
    asked = cast.hold("ada")
    async with cast_home(engine, tmp_path, cast, "ada", "ben", "cy") as home:
        group = await home.groups.create("board", pattern="voting", members=["ada", "ben", "cy"])
        receipt = await group.send("Which colour?\n- red\n- blue")
        await soon(asked.wait())
        await leave(home, "ada", how)
        outcome = await soon(home.turns.wait(receipt))
        assert outcome.text.startswith("Decision: blue.")
        assert "Without a ballot: ada." in outcome.text
        assert gone(await group.transcript()) == [("ada", f"it was {how}")]


@pytest.mark.promise("G1")
@pytest.mark.parametrize("how", ["archived", "deleted"])
async def test_round_robin_asks_the_next_one_when_a_member_leaves(
    engine: str, tmp_path: Path, how: str
):
    cast = Cast()
    asked = cast.hold("ada")
    async with cast_home(engine, tmp_path, cast, "ada", "ben", "cy") as home:
        group = await home.groups.create("ring", members=["ada", "ben", "cy"])
        receipt = await group.send("one")
        await soon(asked.wait())
        await leave(home, "ada", how)
        assert (await soon(home.turns.wait(receipt))).text == "ben answers"
        assert f"ada is not available: it was {how}. ben comes next." in [
            event.text for event in await group.transcript() if event.kind == "decision"
        ]
        await group.edit(options={"skip_unavailable": False})
        asked = cast.hold("cy")
        receipt = await group.send("two")
        await soon(asked.wait())
        await leave(home, "cy", how)
        failed = await soon(home.turns.wait(receipt))
        assert failed.state is TurnState.FAILED
        assert failed.text.startswith(f"I could not answer: cy is not available: it was {how}")


@pytest.mark.promise("G1")
async def test_a_question_that_waits_is_withdrawn_from_an_archived_member(
    engine: str, tmp_path: Path
):
    cast = Cast()
    asked = cast.hold("ada")
    async with cast_home(engine, tmp_path, cast, "ada", "ben") as home:
        group = await home.groups.create("ring", members=["ada", "ben"])
        private = await home.agents.send("ada", "Something else first.")
        await soon(asked.wait())
        receipt = await group.send("hello")
        await until(lambda: asks(group))
        with pytest.raises(Conflict, match="1 messages to answer first"):
            await home.agents.delete("ada")
        await home.agents.archive("ada")
        assert (await soon(home.turns.wait(receipt))).text == "ben answers"
        cast.release("ada")
        assert (await soon(home.turns.wait(private))).text == "ada answers"
        await home.agents.delete("ada")
        assert [agent.name for agent in await home.agents.list(archived=None)] == ["ben"]
    assert len(cast.asked("ada")) == 1


@pytest.mark.promise("G1", "H1")
@pytest.mark.parametrize("how", ["archived", "deleted"])
async def test_a_group_goes_on_when_a_member_leaves_that_waits_for_a_person(
    engine: str, tmp_path: Path, how: str
):
    @tool(ask=True, repeatable=True, effects=ToolEffect("read"))
    async def order(ctx: ToolContext) -> str:
        """Order something."""
        return "ordered"

    cast = Cast({"ada": calls(("order", "{}"))})
    async with cast_home(engine, tmp_path, cast, "ada", "ben", tools=[order]) as home:
        group = await home.groups.create("ring", members=["ada", "ben"])
        receipt = await group.send("buy it")
        assert (await soon(home.turns.wait(receipt))).state is TurnState.PARKED
        await leave(home, "ada", how)
        await until(lambda: ended(home, receipt.turn_id))
        assert (await home.turns.outcome(receipt.turn_id)).text == "ben answers"
        assert gone(await group.transcript()) == [("ada", f"it was {how}")]


async def asks(group: Group) -> bool:
    return "question" in kinds(await group.transcript())


# -- members that get another name ---------------------------------------------------------------


@pytest.mark.promise("G1")
@pytest.mark.parametrize(
    ("pattern", "options", "expected"),
    [
        (
            "pipeline",
            {
                "stages": [
                    {"name": "ada", "agents": ["Ada", "ben"], "instructions": "ada"},
                    {"agents": ["ben"], "on_failure": "fallback", "fallback": "ada"},
                ]
            },
            {
                "stages": [
                    {"name": "ada", "agents": ["eve", "ben"], "instructions": "ada"},
                    {
                        "name": "stage 2",
                        "agents": ["ben"],
                        "on_failure": "fallback",
                        "fallback": "eve",
                    },
                ]
            },
        ),
        ("supervisor", {"leader": "ada"}, {"leader": "eve"}),
        (
            "dynamic",
            {"selector": "supervisor", "supervisor": "ada", "termination_token": "ada"},
            {"selector": "supervisor", "supervisor": "eve", "termination_token": "ada"},
        ),
        (
            "voting",
            {"options": ["ada", "ben"], "tie": "named", "tie_member": "ada"},
            {"options": ["ada", "ben"], "tie": "named", "tie_member": "eve"},
        ),
        ("sleeptime", {"agent": "ada"}, {"agent": "eve"}),
        ("round_robin", {"speakers": 2}, {"speakers": 2}),
    ],
)
async def test_options_that_name_a_member_follow_its_name(
    engine: str,
    tmp_path: Path,
    pattern: str,
    options: dict[str, object],
    expected: dict[str, object],
):
    async with cast_home(engine, tmp_path, Cast(), "ada", "ben") as home:
        group = await home.groups.create(
            "all", pattern=pattern, options=options, members=["ben", "ada"]
        )
        other = await home.groups.create(
            "other", pattern="supervisor", options={"leader": "ada"}, members=["ben"]
        )
        await home.agents.edit("ada", new_name="eve")
        changed = await home.groups.get("all")
        assert changed.options == expected
        assert (changed.version > group.version) == (expected != options)
        assert (await home.groups.get("other")).options == other.options


@pytest.mark.promise("G1")
async def test_a_group_answers_after_its_members_were_renamed(engine: str, tmp_path: Path):
    def fail(said: str) -> str:
        raise RuntimeError("a bug in the model")

    cast = Cast({"ada": "a draft", "ben": fail, "cy": "the report"})
    async with cast_home(engine, tmp_path, cast, "ada", "ben", "cy") as home:
        stages = [
            {"agents": ["ada"]},
            {"agents": ["ben"], "on_failure": "fallback", "fallback": "cy"},
        ]
        group = await home.groups.create(
            "line", pattern="pipeline", options={"stages": stages}, members=["ada", "ben", "cy"]
        )
        assert (await soon(group.ask("one"))).text == "the report"
        for name in ("ada", "ben", "cy"):
            await home.agents.edit(name, new_name=f"{name}-two")
        assert (await soon(group.ask("two"))).text == "the report"
        votes = await home.groups.create(
            "board",
            pattern="voting",
            options={"tie": "named", "tie_member": "ada-two"},
            members=["ada-two", "cy-two"],
        )
        cast.lines = {"ada": ballot("reject"), "cy": ballot("approve")}
        await home.agents.edit("ada-two", new_name="ada")
        assert (await soon(votes.ask("Shall we?"))).text.startswith("Decision: reject.")


@pytest.mark.promise("G1")
@pytest.mark.parametrize("named", [True, False])
async def test_a_pipeline_goes_on_when_members_are_renamed_in_a_turn(
    engine: str, tmp_path: Path, named: bool
):
    cast = Cast({"ada": "a draft", "ben": "a fact", "cy": "the report"})
    asked = cast.hold("ben")
    names = ["ada", "ben", "cy"]
    async with cast_home(engine, tmp_path, cast, *names) as home:
        group = await home.groups.create(
            "line", pattern="pipeline", options={"stages": names} if named else {}, members=names
        )
        receipt = await group.send("go")
        await soon(asked.wait())
        for name in names:
            await home.agents.edit(name, new_name=f"{name}-two")
        cast.release("ben")
        assert (await soon(home.turns.wait(receipt))).text == "the report"
    assert [len(cast.asked(name)) for name in names] == [1, 1, 1]
    assert "a fact" in cast.asked("cy")[0]


@pytest.mark.promise("G1")
async def test_a_choice_holds_for_a_member_that_is_renamed_meanwhile(engine: str, tmp_path: Path):
    cast = Cast({"ada": orjson.dumps({"members": ["ben"], "reason": "fits"}).decode()})
    asked = cast.hold("ada")
    async with cast_home(engine, tmp_path, cast, "ada", "ben", "cy") as home:
        group = await home.groups.create(
            "all",
            pattern="dynamic",
            options={"selector": "supervisor", "supervisor": "ada", "fallback": "fail"},
            members=["ada", "ben", "cy"],
        )
        receipt = await group.send("Who?")
        await soon(asked.wait())
        await home.agents.edit("ben", new_name="eve")
        await home.agents.edit("ada", new_name="ida")
        cast.release("ada")
        assert (await soon(home.turns.wait(receipt))).text == "ben answers"


async def test_stopping_a_group_stops_its_members(engine: str, tmp_path: Path):
    started = asyncio.Event()

    @tool(repeatable=True, effects=ToolEffect("read"))
    async def linger(ctx: ToolContext) -> str:
        """Take very long."""
        started.set()
        await asyncio.Event().wait()
        return "done"

    cast = Cast({"ada": calls(("linger", "{}"))})
    async with cast_home(engine, tmp_path, cast, "ada", tools=[linger]) as home:
        group = await home.groups.create("ring", members=["ada"])
        receipt = await group.send("go")
        await soon(started.wait())
        await soon(home.turns.stop(receipt.turn_id))
        outcome = await soon(home.turns.wait(receipt))
        assert outcome.state is TurnState.STOPPED
        await until(lambda: idle(home))
        assert (await home.turns.list("ada"))[0].state is TurnState.STOPPED


async def test_what_is_refused(engine: str, tmp_path: Path):
    async with cast_home(engine, tmp_path, Cast(), "ada") as home:
        await home.groups.create("ring", members=["ada"])
        for name in ("ring", "ada"):
            with pytest.raises(Conflict, match="already"):
                await home.groups.create(name)
        with pytest.raises(Conflict, match="already"):
            await home.agents.create("ring")
        with pytest.raises(InvalidInput, match="'circle' is not a pattern"):
            await home.groups.create("x", pattern="circle")
        with pytest.raises(InvalidInput, match="'speed' is not an option"):
            await home.groups.create("x", options={"speed": 1})
        with pytest.raises(InvalidInput, match="not a role"):
            await home.groups.add_member("ring", "ada", role="boss")
        with pytest.raises(NotFound, match="no agent named 'bob'"):
            await home.groups.create("x", members=["bob"])
        with pytest.raises(NotFound, match="no group named 'rang'"):
            await home.groups.get("rang")
        with pytest.raises(NotFound):
            await home.agents.get("ring")
        assert [group.name for group in await home.groups.list()] == ["ring"]
        assert [agent.name for agent in await home.agents.list()] == ["ada"]
        await home.groups.delete("ring")
        assert await home.groups.list() == []
