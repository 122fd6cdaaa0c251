"""Parking: a call that waits for a person, what goes on meanwhile, and what a decision does."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from asterism import NOT_HAPPENED, Asterism, Limits, Tool, ToolContext, TurnState, tool
from asterism.errors import Conflict, LaneLost, NotFound
from asterism.testing.channel import MemoryChannel
from asterism.testing.scripted import ScriptedModel
from asterism.turns.turn import Turn
from asterism.types.turns import Outcome, RetrySafety
from tests.scenes import calls, heard, obedient, open_home, until

ASK = "[[call:act {}]]"


class Outside:
    """A place outside that approved calls act upon; it outlives every crash."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.hang = False
        self.reached = asyncio.Event()

    def tool(self, effect: RetrySafety, *, ask: bool = True) -> Tool:
        """A tool that asks before it acts: by its declaration, or by itself."""

        async def act(ctx: ToolContext, number: int = 0) -> str:
            ctx.ask("May I?")
            if effect is RetrySafety.TRANSACTIONAL:
                await ctx.tx.run("INSERT INTO outside VALUES (?)", (ctx.key,))
                return "acted"
            self.done.append(ctx.key)
            if self.hang:
                self.reached.set()
                await asyncio.Event().wait()
            return "acted"

        async def check(ctx: ToolContext, number: int = 0) -> Any:
            return "acted" if ctx.key in self.done else NOT_HAPPENED

        return {
            RetrySafety.TRANSACTIONAL: tool(transactional=True, ask=ask),
            RetrySafety.REPEATABLE: tool(repeatable=True, ask=ask),
            RetrySafety.CHECKABLE: tool(check=check, ask=ask),
            RetrySafety.UNKNOWN: tool(ask=ask),
        }[effect](act)

    async def keys(self, home: Asterism) -> list[str]:
        """The keys under which it was acted upon, in or outside the database."""
        rows = await home.database.read(lambda tx: tx.all("SELECT key FROM outside"))
        return [*self.done, *(row[0] for row in rows)]


async def prepare(home: Asterism, **given: Any) -> None:
    await home.database.write(lambda tx: tx.run("CREATE TABLE outside (key TEXT)"))
    await home.agents.create("aria", **given)


async def decided(home: Asterism, *, approved: bool = True, **given: Any) -> Outcome:
    """Answer the only question there is, and wait for what becomes of the turn."""
    (question,) = await home.approvals.list()
    receipt = await home.approvals.decide(question.id, approved=approved, **given)
    async with asyncio.timeout(120):
        return await home.turns.wait(receipt)


@pytest.mark.parametrize("ask", [True, False], ids=["declared", "asked in the tool"])
@pytest.mark.parametrize("effect", list(RetrySafety))
async def test_others_are_answered_while_a_call_waits_and_it_goes_on_after_the_decision(
    tmp_path: Path, effect: RetrySafety, ask: bool
):
    outside, model = Outside(), obedient()
    async with open_home(tmp_path, model, tools=[outside.tool(effect, ask=ask)]) as home:
        await prepare(home)
        parked = await home.agents.ask("aria", ASK)
        assert parked.state is TurnState.PARKED
        assert "approval ap_" in parked.text
        assert (await home.agents.ask("aria", "meanwhile")).text == "answer to: meanwhile"
        assert await outside.keys(home) == []

        outcome = await decided(home, note="Go ahead.")
        assert outcome.state is TurnState.DONE
        assert "was approved by owner. They say: Go ahead. Result: acted" in outcome.text
        assert await outside.keys(home) == [f"{parked.turn_id}/0/call/0"]
        assert await home.approvals.list() == []
        assert (await home.turns.outcome(parked.turn_id)).state is TurnState.DONE
    told = heard(model.requests[-1])
    assert told[3]["content"].startswith("Waiting for approval")
    assert [one["role"] for one in told[1:]] == [
        "user", "assistant", "tool", "user", "assistant", "user",
    ]  # fmt: skip


async def test_a_denied_call_is_not_run(tmp_path: Path):
    outside = Outside()
    async with open_home(tmp_path, tools=[outside.tool(RetrySafety.UNKNOWN)]) as home:
        await prepare(home)
        await home.agents.ask("aria", ASK)
        outcome = await decided(home, approved=False, note="Too dear.")
        assert outcome.state is TurnState.DONE
        assert "was denied by owner. They say: Too dear. It was not run." in outcome.text
        assert outside.done == []


async def test_a_question_is_answered_once(tmp_path: Path):
    outside = Outside()
    async with open_home(tmp_path, tools=[outside.tool(RetrySafety.UNKNOWN)]) as home:
        await prepare(home)
        await home.agents.ask("aria", ASK)
        (question,) = await home.approvals.list()
        first = home.approvals.decide(question.id, approved=True)
        second = home.approvals.decide(question.id, approved=False)
        receipt, refused = await asyncio.gather(first, second, return_exceptions=True)
        assert isinstance(refused, Conflict)
        assert not isinstance(receipt, BaseException)
        assert "approved" in (await home.turns.wait(receipt)).text
        with pytest.raises(Conflict):
            await home.approvals.decide(question.id, approved=True)
        with pytest.raises(NotFound):
            await home.approvals.decide("ap_0", approved=True)
        assert len(outside.done) == 1


@pytest.mark.promise("T2")
async def test_a_question_waits_across_restarts(tmp_path: Path):
    outside, model = Outside(), obedient()
    tools = [outside.tool(RetrySafety.UNKNOWN)]
    async with open_home(tmp_path, model, tools=tools) as home:
        await prepare(home)
        await home.agents.ask("aria", ASK)
    async with open_home(tmp_path, model, tools=tools) as home:
        (question,) = await home.approvals.list()
        asked = 'aria wants to call act({"number": 0}) (act asks before each call).'
        assert question.question == asked
    async with open_home(tmp_path, model, tools=tools) as home:
        assert (await decided(home)).state is TurnState.DONE
    assert (len(model.requests), len(outside.done)) == (2, 1)


@pytest.mark.promise("T2", "T3")
@pytest.mark.parametrize(
    "effect", [RetrySafety.REPEATABLE, RetrySafety.CHECKABLE, RetrySafety.UNKNOWN]
)
async def test_a_crash_in_an_approved_call_is_reconciled(tmp_path: Path, effect: RetrySafety):
    outside, model = Outside(), obedient()
    tools = [outside.tool(effect)]
    async with open_home(tmp_path, model, tools=tools, grace=0) as home:
        await prepare(home)
        parked = await home.agents.ask("aria", ASK)
        outside.hang = True
        (question,) = await home.approvals.list()
        await home.approvals.decide(question.id, approved=True)
        await outside.reached.wait()

    outside.hang = False
    async with open_home(tmp_path, model, tools=tools) as home:

        async def over() -> bool:
            return (await home.turns.outcome(parked.turn_id)).state is TurnState.DONE

        await until(over)
        outcome = await home.turns.outcome(parked.turn_id)
        kinds = [notice.kind for notice in await home.notices.list()]
    assert len(outside.done) == (2 if effect is RetrySafety.REPEATABLE else 1)
    assert len(set(outside.done)) == 1
    assert ("Outcome unknown" in outcome.text) is (effect is RetrySafety.UNKNOWN)
    assert kinds == (["call.unknown"] if effect is RetrySafety.UNKNOWN else [])


async def test_a_turn_with_two_questions_goes_on_after_both(tmp_path: Path):
    outside = Outside()
    model = ScriptedModel([calls(("act", "{}"), ("act", '{"number": 1}')), "both done"])
    async with open_home(tmp_path, model, tools=[outside.tool(RetrySafety.CHECKABLE)]) as home:
        await prepare(home)
        parked = await home.agents.ask("aria", "go")
        one, two = sorted(await home.approvals.list(), key=lambda asked: asked.key)
        again = await home.turns.wait(await home.approvals.decide(two.id, approved=True))
        assert (again.state, one.id in again.text) == (TurnState.PARKED, True)
        assert outside.done == [f"{parked.turn_id}/0/call/1"]
        done = await home.turns.wait(await home.approvals.decide(one.id, approved=False))
        assert (done.state, done.text) == (TurnState.DONE, "both done")


async def test_an_answer_that_comes_after_the_turns_end_changes_nothing(tmp_path: Path):
    release = asyncio.Event()

    @tool(repeatable=True)
    async def hold() -> None:
        await release.wait()

    @tool(ask=True)
    async def dawdle(number: int = 0) -> None:
        await asyncio.Event().wait()

    both = calls(("dawdle", "{}"), ("dawdle", '{"number": 1}'))
    one_by_one = calls(("hold", "{}"))
    model = ScriptedModel([both, one_by_one, "answer to: hold", "answer to: next"])
    async with open_home(tmp_path, model, tools=[hold, dawdle]) as home:
        await prepare(home, limits=Limits(seconds=0.3))
        parked = await home.agents.ask("aria", "go")
        # Both answers wait behind another turn; carrying out the first one takes too long.
        held = await home.agents.send("aria", "hold")
        one, two = await home.approvals.list()
        first = await home.approvals.decide(one.id, approved=True)
        second = await home.approvals.decide(two.id, approved=True)
        release.set()
        await home.turns.wait(held)
        async with asyncio.timeout(120):
            outcome = await home.turns.wait(first)
            assert await home.turns.wait(second) == outcome
        assert outcome.state is TurnState.FAILED
        assert await home.turns.waiting() == []
        assert (await home.agents.ask("aria", "next")).text == "answer to: next"
        assert await home.turns.outcome(parked.turn_id) == outcome
        assert await home.approvals.list() == []


async def test_a_question_of_a_turn_that_has_ended_waits_no_more(tmp_path: Path):
    @tool(ask=True)
    async def dawdle(number: int = 0) -> None:
        await asyncio.Event().wait()

    model = ScriptedModel([calls(("dawdle", "{}"), ("dawdle", '{"number": 1}'))])
    async with open_home(tmp_path, model, tools=[dawdle]) as home:
        await prepare(home, limits=Limits(seconds=1))
        await home.agents.ask("aria", "go")
        one, two = await home.approvals.list()
        outcome = await home.turns.wait(await home.approvals.decide(one.id, approved=True))
        assert outcome.state is TurnState.FAILED
        assert await home.approvals.list() == []
        with pytest.raises(Conflict, match="has ended"):
            await home.approvals.decide(two.id, approved=True)


async def test_question_and_answer_are_delivered_in_order(tmp_path: Path):
    outside, channel = Outside(), MemoryChannel()
    tools = [outside.tool(RetrySafety.REPEATABLE)]
    async with open_home(tmp_path, tools=tools, channels={"room": channel}) as home:
        await prepare(home)
        await home.agents.ask("aria", ASK, channel="room", reply_to="ada")
        (question,) = await home.approvals.list()
        await decided(home)
        await until(lambda: len(channel.delivered) == 3)
    said, told, answer = channel.delivered
    assert question.id in said.text
    assert told.text == f"Approval {question.id} was answered by owner: approved."
    assert answer.key.endswith("/answer")


async def test_an_approved_effect_in_the_database_is_not_made_again_after_a_crash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    outside = Outside()
    tools = [outside.tool(RetrySafety.TRANSACTIONAL)]
    tell = Turn.tell

    def die(turn: Turn, key: str, text: str, *, meta: str | None = None) -> None:
        if key.endswith("/outcome"):
            raise LaneLost("the process ended here")
        tell(turn, key, text, meta=meta)

    async with open_home(tmp_path, obedient(), tools=tools) as home:
        await prepare(home)
        parked = await home.agents.ask("aria", ASK)
        monkeypatch.setattr(Turn, "tell", die)
        (question,) = await home.approvals.list()
        await home.approvals.decide(question.id, approved=True)

        async def acted() -> bool:
            return bool(await outside.keys(home))

        await until(acted)
    monkeypatch.undo()
    async with open_home(tmp_path, obedient(), tools=tools) as home:

        async def ended() -> bool:
            return (await home.turns.outcome(parked.turn_id)).state is TurnState.DONE

        await until(ended)
        assert len(await outside.keys(home)) == 1
