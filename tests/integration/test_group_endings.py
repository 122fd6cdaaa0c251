"""How turns of groups end: with them ends what was asked of members, and nothing else stands still.

Stops, deadlines, changes in the middle of a turn, and rules that fail; on both engines.
"""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson
import pytest

from asterism import Approval, Asterism, ToolContext, TurnState, plugins, tool
from asterism.errors import Conflict, NotFound
from asterism.groups import runner
from asterism.store import journal
from asterism.testing.clock import ManualClock
from asterism.tools.tool import Tool
from asterism.turns.turn import Turn
from asterism.types.groups import GroupActivity
from asterism.types.permissions import ToolEffect
from asterism.types.turns import Reply
from tests.integration.group_scene import Cast, cast_home, soon
from tests.scenes import calls, until

pytestmark = pytest.mark.parametrize(
    "engine", ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)]
)
BOTH = {"stages": [{"name": "buy", "agents": ["ada", "ben"]}]}
"""A stage in which ada asks for an approval while ben is at work."""
EVERY_MINUTE: dict[str, Any] = {
    "check_interval": 60,
    "triggers": [{"name": "again", "condition": "time_elapsed", "seconds": 60}],
}


class Shop:
    """A tool that asks before each call, and what was ordered with it."""

    def __init__(self) -> None:
        self.orders: list[str] = []

        @tool(ask=True, repeatable=True, effects=ToolEffect("read"))
        async def order(ctx: ToolContext) -> str:
            """Order something."""
            self.orders.append(ctx.turn_id)
            return "ordered"

        self.tools: Sequence[Tool] = [order]


def buy(said: str) -> str | Reply:
    """Order what a group asks for."""
    return calls(("order", "{}")) if "group" in said else "bought"


async def look(home: Asterism) -> None:
    await home._engine.groups.look()  # pyright: ignore[reportPrivateUsage] - what the pump does


async def approvals(home: Asterism, count: int = 1) -> list[Approval]:
    """Return the open approvals once there are so many."""

    async def are_there() -> bool:
        return len(await home.approvals.list()) == count

    await until(are_there)
    return await home.approvals.list()


async def ends(home: Asterism, turn_id: str) -> TurnState:
    """Return how a turn ends."""

    async def is_over() -> bool:
        waits = (TurnState.OPEN, TurnState.WAITING, TurnState.PARKED)
        return (await home.turns.outcome(turn_id)).state not in waits

    await until(is_over)
    return (await home.turns.outcome(turn_id)).state


async def states(home: Asterism, name: str) -> list[TurnState]:
    """Return how the turns of an agent stand, once it has nothing left to do."""

    async def are_over() -> bool:
        turns = await home.turns.list(name)
        nothing_waits = (await home.counts())[1] == 0
        return nothing_waits and all(turn.ended_at_ms is not None for turn in turns)

    await until(are_over)
    return [turn.state for turn in await home.turns.list(name)]


# -- what was asked ends with the turn -----------------------------------------------------------


@pytest.mark.promise("G1", "H1")
async def test_an_approval_of_a_stopped_turn_of_a_group_is_withdrawn(engine: str, tmp_path: Path):
    shop, cast = Shop(), Cast({"ada": buy})
    asked = cast.hold("ben")
    async with cast_home(engine, tmp_path, cast, "ada", "ben", tools=shop.tools) as home:
        group = await home.groups.create(
            "line", pattern="pipeline", options=BOTH, members=["ada", "ben"]
        )
        receipt = await group.send("buy it")
        await soon(asked.wait())
        (approval,) = await approvals(home)
        await home.turns.stop(receipt.turn_id, "Too expensive.")
        assert await ends(home, receipt.turn_id) is TurnState.STOPPED
        assert await home.approvals.list() == []
        with pytest.raises(Conflict, match="was denied by asterism before"):
            await approval.approve()
        assert [await states(home, name) for name in ("ada", "ben")] == [[TurnState.STOPPED]] * 2
        withdrawn = await home.approvals.get(approval.id)
    assert withdrawn.note == "Withdrawn: Too expensive."
    assert shop.orders == []


@pytest.mark.promise("G1", "H1")
async def test_an_approval_that_came_before_the_stop_is_not_carried_out(
    engine: str, tmp_path: Path
):
    shop, cast = Shop(), Cast({"ada": buy})
    asked = cast.hold("ben")
    async with cast_home(engine, tmp_path, cast, "ada", "ben", tools=shop.tools) as home:
        group = await home.groups.create(
            "line", pattern="pipeline", options=BOTH, members=["ada", "ben"]
        )
        receipt = await group.send("buy it")
        await soon(asked.wait())
        (approval,) = await approvals(home)
        busy = cast.hold("ada")
        other = await home.agents.send("ada", "something long")
        await soon(busy.wait())
        await approval.approve()  # ada's lane is busy, so that it waits
        await home.turns.stop(receipt.turn_id)
        assert await ends(home, receipt.turn_id) is TurnState.STOPPED
        cast.release("ada")
        assert (await soon(home.turns.wait(other))).text == "bought"
        assert await states(home, "ada") == [TurnState.DONE, TurnState.STOPPED]
    assert shop.orders == []


@pytest.mark.promise("G1", "H1")
@pytest.mark.parametrize("how", ["fails", "timeout"])
async def test_an_approval_that_a_group_does_not_need_any_more_is_withdrawn(
    engine: str, tmp_path: Path, how: str
):
    def fail(said: str) -> str:
        raise RuntimeError("a bug in the model")

    clock, shop, cast = ManualClock(), Shop(), Cast({"ada": buy, "cy": "cy answers"})
    asked = cast.hold("ben")
    stages = [
        {"agents": ["ada", "ben"], "timeout": 60, "on_failure": "skip"},
        {"agents": ["cy"]},
    ]
    options: dict[str, Any] = {"stages": stages} if how == "timeout" else BOTH
    names = ("ada", "ben", "cy")
    async with cast_home(engine, tmp_path, cast, *names, tools=shop.tools, clock=clock) as home:
        group = await home.groups.create("line", pattern="pipeline", options=options, members=names)
        receipt = await group.send("buy it")
        await soon(asked.wait())
        await approvals(home)
        if how == "timeout":
            clock.forward(seconds=61)
            await look(home)
        else:
            cast.lines["ben"] = fail
            cast.release("ben")
        state = await ends(home, receipt.turn_id)
        assert state is (TurnState.DONE if how == "timeout" else TurnState.FAILED)
        assert await home.approvals.list() == []
        assert await states(home, "ada") == [TurnState.STOPPED]
    assert shop.orders == []


@pytest.mark.promise("G1", "H1")
async def test_a_turn_that_was_stopped_as_it_came_to_park_asks_nobody(engine: str, tmp_path: Path):
    shop = Shop()

    @tool(transactional=True, effects=ToolEffect("read"))
    async def begin(ctx: ToolContext) -> str:
        """Begin."""
        held.append(cast.hold("ada"))
        return "begun"

    held: list[asyncio.Event] = []
    replies = [calls(("begin", "{}")), calls(("order", "{}"))]
    cast = Cast({"ada": lambda said: replies.pop(0)})
    tools = [begin, *shop.tools]
    async with cast_home(engine, tmp_path, cast, "ada", tools=tools) as home:
        receipt = await home.agents.send("ada", "hello")
        await until(lambda: bool(held))
        await soon(held[0].wait())
        # As by another process, whose notice has not come yet.
        assert await home.database.write(lambda tx: journal.stop_turn(tx, receipt.turn_id, "No."))
        cast.release("ada")
        assert (await ends(home, receipt.turn_id)) is TurnState.STOPPED
        assert await home.approvals.list() == []
    assert shop.orders == []


@pytest.mark.promise("G1", "T2")
async def test_a_stop_that_finds_the_group_at_work_stops_its_members(
    engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    at_work, speaker = asyncio.Event(), runner._speaker  # pyright: ignore[reportPrivateUsage] - where it is interrupted
    cast = Cast()
    asked = [cast.hold(name) for name in ("ada", "ben")]

    async def slow(turn: Turn) -> str:
        at_work.set()
        await asyncio.sleep(60)
        return await speaker(turn)

    async with cast_home(engine, tmp_path, cast, "ada", "ben") as home:
        group = await home.groups.create(
            "line", pattern="pipeline", options=BOTH, members=["ada", "ben"]
        )
        receipt = await group.send("go")
        for each in asked:
            await soon(each.wait())
        monkeypatch.setattr(runner, "_speaker", slow)
        cast.release("ada")
        await soon(at_work.wait())
        await home.turns.stop(receipt.turn_id, "Enough.")
        assert await ends(home, receipt.turn_id) is TurnState.STOPPED
        assert await states(home, "ben") == [TurnState.STOPPED]


@pytest.mark.promise("G1")
async def test_a_question_that_nobody_needs_is_not_asked_any_more(engine: str, tmp_path: Path):
    cast = Cast()
    busy = cast.hold("ada")
    async with cast_home(engine, tmp_path, cast, "ada") as home:
        group = await home.groups.create("ring", members=["ada"])
        private = await home.agents.send("ada", "something long")
        await soon(busy.wait())
        receipt = await group.send("hello")

        async def is_asked() -> bool:
            return any(event.kind == "question" for event in await group.transcript())

        await until(is_asked)
        await home.turns.stop(receipt.turn_id)
        assert await ends(home, receipt.turn_id) is TurnState.STOPPED
        cast.release("ada")
        assert (await soon(home.turns.wait(private))).text == "ada answers"
        assert await states(home, "ada") == [TurnState.STOPPED, TurnState.DONE]
    assert len(cast.asked("ada")) == 1


@pytest.mark.promise("G1", "H1")
async def test_a_parked_turn_of_a_group_can_be_stopped_and_the_group_deleted(
    engine: str, tmp_path: Path
):
    shop, cast = Shop(), Cast({"ada": buy})
    async with cast_home(engine, tmp_path, cast, "ada", "ben", tools=shop.tools) as home:
        group = await home.groups.create("ring", members=["ada", "ben"])
        outcome = await soon(group.ask("buy it"))
        assert outcome.state is TurnState.PARKED
        with pytest.raises(Conflict, match=f"asterism turn stop {outcome.turn_id}"):
            await group.delete()
        await home.turns.stop(outcome.turn_id, "No.")
        assert await ends(home, outcome.turn_id) is TurnState.STOPPED
        assert await home.approvals.list() == []
        assert await states(home, "ada") == [TurnState.STOPPED]
        await group.delete()
        assert await home.groups.list() == []
    assert shop.orders == []


@pytest.mark.promise("G1", "H1")
@pytest.mark.parametrize("how", ["archived", "archived, then deleted", "deleted"])
async def test_what_a_member_asks_is_withdrawn_when_it_leaves(
    engine: str, tmp_path: Path, how: str
):
    shop, cast = Shop(), Cast({"ada": buy})
    async with cast_home(engine, tmp_path, cast, "ada", "ben", tools=shop.tools) as home:
        group = await home.groups.create("ring", members=["ada", "ben"])
        parked = await soon(group.ask("buy it"))
        (approval,) = await home.approvals.list()
        if how != "deleted":
            await home.agents.archive("ada")
        if how != "archived":
            await home.agents.delete("ada")
        assert await ends(home, parked.turn_id) is TurnState.DONE
        assert await home.approvals.list() == []
        if how == "archived":
            await home.agents.unarchive("ada")
            assert await states(home, "ada") == [TurnState.STOPPED]
        else:
            assert await ends(home, approval.turn_id) is TurnState.STOPPED
    assert shop.orders == []


# -- deadlines -----------------------------------------------------------------------------------


@pytest.mark.promise("G1")
async def test_the_time_of_a_stage_passes_while_its_member_waits_for_a_person(
    engine: str, tmp_path: Path
):
    clock, shop, cast = ManualClock(), Shop(), Cast({"ada": buy})
    stages = [{"agents": ["ada"], "timeout": 60, "on_failure": "skip"}, {"agents": ["ben"]}]
    names = ("ada", "ben", "cy")
    async with cast_home(engine, tmp_path, cast, *names, tools=shop.tools, clock=clock) as home:
        group = await home.groups.create(
            "line", pattern="pipeline", options={"stages": stages}, members=["ada", "ben"]
        )
        outcome = await soon(group.ask("buy it"))
        assert outcome.state is TurnState.PARKED
        # Another turn meanwhile leaves the deadline of this one as it is.
        await group.edit(options={"stages": [{"agents": ["ben"]}]})
        assert (await soon(group.ask("meanwhile"))).text == "ben answers"
        clock.forward(seconds=59)
        await look(home)
        assert (await home.turns.outcome(outcome.turn_id)).state is TurnState.PARKED
        clock.forward(seconds=2)
        await look(home)
        assert await ends(home, outcome.turn_id) is TurnState.DONE
        assert (await home.turns.outcome(outcome.turn_id)).text == "ben answers"
        assert await home.approvals.list() == []
    assert shop.orders == []


@pytest.mark.promise("G1")
@pytest.mark.parametrize(
    "change", [{"description": "other words"}, {"options": {}}, {"pattern": "sleeptime"}]
)
async def test_a_change_of_a_group_leaves_a_deadline_as_it_is(
    engine: str, tmp_path: Path, change: dict[str, Any]
):
    clock, cast = ManualClock(), Cast()
    asked = cast.hold("ada")
    stages = [{"agents": ["ada"], "timeout": 60, "on_failure": "skip"}, {"agents": ["ben"]}]
    async with cast_home(engine, tmp_path, cast, "ada", "ben", clock=clock) as home:
        group = await home.groups.create(
            "line", pattern="pipeline", options={"stages": stages}, members=["ada", "ben"]
        )
        receipt = await group.send("go")
        await soon(asked.wait())
        await group.edit(**change)
        clock.forward(seconds=61)
        await look(home)
        assert (await soon(home.turns.wait(receipt))).text == "ben answers"
        assert await states(home, "ada") == [TurnState.STOPPED]


# -- changes in the middle of a turn -------------------------------------------------------------


@pytest.mark.promise("G1")
async def test_a_change_counts_from_the_next_turn_on(engine: str, tmp_path: Path):
    cast = Cast()
    asked = cast.hold("ada")
    async with cast_home(engine, tmp_path, cast, "ada", "ben", "cy") as home:
        group = await home.groups.create("ring", members=["ada", "ben", "cy"])
        receipt = await group.send("one")
        await soon(asked.wait())
        await group.edit(pattern="pipeline", options={"stages": ["cy"]})
        cast.release("ada")
        outcome = await soon(home.turns.wait(receipt))
        assert (outcome.state, outcome.text) == (TurnState.DONE, "ada answers")
        assert (await soon(group.ask("two"))).text == "cy answers"
        # What the former pattern kept in its last turn is not given to another one.
        assert (await home.groups.get("ring")).memory == {}


@pytest.mark.promise("G1")
async def test_stages_of_a_turn_under_way_stay_and_follow_new_names(engine: str, tmp_path: Path):
    cast = Cast({"ada": "a draft", "ben": "the report", "cy": "cy answers"})
    asked = cast.hold("ada")
    async with cast_home(engine, tmp_path, cast, "ada", "ben", "cy") as home:
        group = await home.groups.create(
            "line",
            pattern="pipeline",
            options={"stages": ["ada", "ben"]},
            members=["ada", "ben", "cy"],
        )
        receipt = await group.send("go")
        await soon(asked.wait())
        await group.edit(options={"stages": ["cy"]})
        await home.agents.edit("ben", new_name="eve")
        await home.agents.edit("cy", new_name="ben")
        cast.release("ada")
        assert (await soon(home.turns.wait(receipt))).text == "the report"
        said = [event for event in await group.transcript() if event.kind == "question"]
        assert [event.details["to"] for event in said] == ["ada", "eve"]
        assert (await soon(group.ask("again"))).text == "cy answers"
    assert cast.asked("cy") != []


# -- rules ---------------------------------------------------------------------------------------


@pytest.mark.promise("G1")
async def test_a_rule_that_fails_keeps_no_other_group_from_its_deadline(
    engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def broken(activity: GroupActivity) -> bool:
        raise KeyError("no such thing")

    def names(kind: str) -> list[str]:
        return ["broken"] if kind == "group_rules" else installed(kind)

    def load(kind: str, name: str) -> Any:
        return broken if kind == "group_rules" else load_installed(kind, name)

    installed, load_installed = plugins.names, plugins.load
    monkeypatch.setattr(plugins, "names", names)
    monkeypatch.setattr(plugins, "load", load)
    clock, cast = ManualClock(), Cast()
    asked = cast.hold("ada")
    rule = {"condition": "custom", "function": "broken"}
    stages = [{"agents": ["ada"], "timeout": 60, "on_failure": "skip"}, {"agents": ["ben"]}]
    async with cast_home(engine, tmp_path, cast, "ada", "ben", clock=clock) as home:
        night = await home.groups.create(
            "night",
            pattern="sleeptime",
            options={"check_interval": 10, "triggers": [rule]},
            members=["ben"],
        )
        line = await home.groups.create(
            "line", pattern="pipeline", options={"stages": stages}, members=["ada", "ben"]
        )
        receipt = await line.send("go")
        await soon(asked.wait())
        clock.forward(seconds=61)
        await look(home)
        assert (await soon(home.turns.wait(receipt))).text == "ben answers"
        for _ in range(3):
            clock.forward(seconds=3_600)
            await look(home)
        (notice,) = await home.notices.list()
        assert notice.agent_id == night.id
        assert "KeyError" in notice.text
        assert "asterism group show night" in notice.text
        # Once it is mended, it watches again.
        await night.edit(options=EVERY_MINUTE)
        clock.forward(seconds=61)
        await look(home)
        await until(lambda: len(cast.asked("ben")) == 2)


@pytest.mark.promise("G1")
async def test_a_pattern_that_is_gone_keeps_no_other_group_from_its_deadline(
    engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    clock, cast = ManualClock(), Cast()
    asked = cast.hold("ada")
    stages = [{"agents": ["ada"], "timeout": 60, "on_failure": "skip"}, {"agents": ["ben"]}]
    async with cast_home(engine, tmp_path, cast, "ada", "ben", clock=clock) as home:
        night = await home.groups.create(
            "night", pattern="sleeptime", options=EVERY_MINUTE, members=["ben"]
        )
        line = await home.groups.create(
            "line", pattern="pipeline", options={"stages": stages}, members=["ada", "ben"]
        )
        receipt = await line.send("go")
        await soon(asked.wait())
        patterns = home._engine.patterns  # pyright: ignore[reportPrivateUsage] - as after an uninstall
        gone = patterns.pop("sleeptime")
        load = plugins.load

        def installed(kind: str, name: str) -> Any:
            if name == "sleeptime":
                raise NotFound("There is no pattern 'sleeptime'. Install it.")
            return load(kind, name)

        monkeypatch.setattr(plugins, "load", installed)
        clock.forward(seconds=61)
        await look(home)
        assert (await soon(home.turns.wait(receipt))).text == "ben answers"
        (notice,) = await home.notices.list()
        assert "There is no pattern 'sleeptime'" in notice.text
        # Its words can be changed all the same, and it watches again once the pattern is back.
        await night.edit(description="It looks after things.")
        patterns["sleeptime"] = gone
        clock.forward(seconds=601)
        await look(home)
        await until(lambda: len(cast.asked("ben")) == 2)


@pytest.mark.promise("G1")
@pytest.mark.parametrize("how", ["stopped", "failed", "parked"])
async def test_a_group_watches_on_after_a_turn_without_an_answer(
    engine: str, tmp_path: Path, how: str
):
    def fail(said: str) -> str:
        raise RuntimeError("a bug in the model")

    clock, shop = ManualClock(), Shop()
    cast = Cast({"ada": {"stopped": "NOTHING", "failed": fail, "parked": buy}[how]})
    asked = cast.hold("ada")
    async with cast_home(engine, tmp_path, cast, "ada", tools=shop.tools, clock=clock) as home:
        group = await home.groups.create(
            "night", pattern="sleeptime", options=EVERY_MINUTE, members=["ada"]
        )
        clock.forward(seconds=61)
        await look(home)
        await soon(asked.wait())
        (first,) = {event.turn_id for event in await group.transcript()}
        if how == "stopped":
            await home.turns.stop(first)
        cast.release("ada")

        async def came_to_it() -> bool:
            return (await home.turns.outcome(first)).state.value == how

        await until(came_to_it)
        cast.lines["ada"] = "NOTHING"
        before = len(cast.heard)
        clock.forward(seconds=61)
        await look(home)
        await until(lambda: len(cast.heard) == before + 1)


@pytest.mark.promise("G1")
async def test_no_rule_fires_while_everything_is_halted_or_a_watch_waits(
    engine: str, tmp_path: Path
):
    clock, cast = ManualClock(), Cast({"ada": "NOTHING"})
    async with cast_home(engine, tmp_path, cast, "ada", clock=clock) as home:
        await home.groups.create(
            "night", pattern="sleeptime", options=EVERY_MINUTE, members=["ada"]
        )
        await home.halts.halt("for now")
        for _ in range(20):
            clock.forward(seconds=61)
            await look(home)
        assert (await home.counts())[1] == 0
        await home.halts.resume()
        clock.forward(seconds=61)
        await look(home)
        await until(lambda: len(cast.heard) == 1)
        assert orjson.dumps(cast.heard).count(b"in the background") == 1


# -- asking again --------------------------------------------------------------------------------


@pytest.mark.promise("G1", "T1")
async def test_whoever_asks_a_group_again_after_a_decision_waits_for_what_follows(
    engine: str, tmp_path: Path
):
    shop, cast = Shop(), Cast({"ada": buy})
    async with cast_home(engine, tmp_path, cast, "ada", tools=shop.tools) as home:
        group = await home.groups.create("ring", members=["ada"])
        parked = await soon(group.ask("buy it", external_id="x"))
        again = await soon(group.ask("buy it", external_id="x"))
        assert (again.state, again.text) == (TurnState.PARKED, parked.text)
        (approval,) = await home.approvals.list()
        asked = cast.hold("ada")
        await approval.approve()
        waits = asyncio.ensure_future(group.ask("buy it", external_id="x"))
        await soon(asked.wait())  # ada is at work again
        later = asyncio.ensure_future(group.ask("buy it", external_id="x"))
        await asyncio.wait([waits, later], timeout=0.2)
        assert not waits.done()
        assert not later.done()
        cast.release("ada")
        assert [(await soon(each)).text for each in (waits, later)] == ["bought", "bought"]
    assert len(shop.orders) == 1


@pytest.mark.promise("G1")
@pytest.mark.parametrize(
    ("pattern", "options"),
    [
        ("pipeline", {"stages": [{"agents": ["ada"], "timeout": 0.05}]}),
        ("voting", {"timeout": 0.05}),
    ],
)
async def test_the_time_of_a_member_is_noticed_when_it_is_over(
    engine: str, tmp_path: Path, pattern: str, options: dict[str, Any]
):
    cast = Cast()
    async with cast_home(engine, tmp_path, cast, "ada") as home:
        group = await home.groups.create("desk", pattern=pattern, options=options, members=["ada"])
        cast.hold("ada")
        # Nobody else wakes the group: the pump looks by itself every minute.
        text = (await soon(group.ask("hello"))).text
        cast.release("ada")
    assert "ada" in text
