"""Turns through the front door: accepted once, answered in order, ended in plain words."""

# What a process keeps in memory shows nowhere else.
# pyright: reportPrivateUsage=false

import asyncio
import gc
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asterism import Asterism, Limits, Receipt, ToolContext, TurnState, tool
from asterism.errors import Conflict, InvalidInput, ModelRefused, ModelUnavailable, NotFound
from asterism.store.sqlite import open_sqlite
from asterism.testing.channel import MemoryChannel
from asterism.testing.scripted import ScriptedModel
from asterism.turns import runtime
from asterism.turns.context import LiveAgent, Tail
from asterism.types.permissions import ToolEffect
from asterism.types.turns import EntryKind, Outcome, Reply, Usage
from tests.scenes import calls, heard, obedient, open_home, until
from tests.torture.audit import audit, check_wire
from tests.torture.disk import MeddledDisk


@tool(repeatable=True, effects=ToolEffect("read"))
def echo(word: str) -> str:
    """Say a word back."""
    return word


async def answers(home: Asterism, receipts: list[Receipt]) -> list[str]:
    """Wait for all turns and return what they said."""
    async with asyncio.timeout(120):
        outcomes = [await home.turns.wait(receipt) for receipt in receipts]
    return [outcome.text for outcome in outcomes]


# -- accepted once -------------------------------------------------------------------------------


@pytest.mark.promise("T1")
async def test_the_same_external_id_is_stored_and_answered_once(tmp_path: Path):
    model = obedient()
    async with open_home(tmp_path, model) as home:
        await home.agents.create("aria")
        first = await home.agents.send("aria", "hello", channel="mail", external_id="m1")
        again = await home.agents.send("aria", "hello", channel="mail", external_id="m1")
        at_once = await asyncio.gather(
            *(home.agents.send("aria", "x", channel="mail", external_id="m2") for _ in range(8))
        )
        assert (again.turn_id, again.duplicate) == (first.turn_id, True)
        assert len({receipt.turn_id for receipt in at_once}) == 1
        assert [receipt.duplicate for receipt in at_once].count(False) == 1
        assert await answers(home, [again, at_once[3]]) == ["answer to: hello", "answer to: x"]
    assert len(model.requests) == 2


@pytest.mark.promise("T1")
async def test_an_id_counts_within_its_channel_and_after_a_restart(tmp_path: Path):
    async with open_home(tmp_path) as home:
        await home.agents.create("aria")
        mail = await home.agents.send("aria", "hello", channel="mail", external_id="1")
        chat = await home.agents.send("aria", "hello", channel="chat", external_id="1")
        bare = [await home.agents.send("aria", "hello") for _ in range(2)]
        assert len({one.turn_id for one in (mail, chat, *bare)}) == 4
        await answers(home, [mail, chat, *bare])
    model = ScriptedModel()
    async with open_home(tmp_path, model) as home:
        again = await home.agents.send("aria", "hello", channel="mail", external_id="1")
        assert (again.turn_id, again.duplicate) == (mail.turn_id, True)
        assert await answers(home, [again]) == ["answer to: hello"]
    assert model.requests == []


@pytest.mark.promise("T1", "T4")
async def test_a_message_is_answered_in_its_place_though_its_sender_left_before_the_receipt(
    tmp_path: Path,
):
    async with open_home(tmp_path) as home:
        aria = await home.agents.create("aria")
        hasty = asyncio.ensure_future(home.agents.send(aria, "first", channel="c", external_id="1"))
        await asyncio.sleep(0)  # it is on its way to the store
        hasty.cancel()
        second = await home.agents.send(aria, "second", channel="c", external_id="2")
        assert await answers(home, [second]) == ["answer to: second"]
        first = await home.agents.send(aria, "first", channel="c", external_id="1")
        assert first.duplicate
        assert await answers(home, [first]) == ["answer to: first"]
        newest, oldest = await home.turns.list(aria)
        assert (oldest.id, newest.id) == (first.turn_id, second.turn_id)


async def test_a_turn_that_has_ended_can_still_be_waited_for(tmp_path: Path):
    async with open_home(tmp_path) as home:
        await home.agents.create("aria")
        receipt = await home.agents.send("aria", "hello")
        await until(lambda: _is_over(home, receipt))
        assert await answers(home, [receipt, receipt]) == ["answer to: hello"] * 2


async def _is_over(home: Asterism, receipt: Receipt) -> bool:
    return (await home.turns.outcome(receipt.turn_id)).state is TurnState.DONE


@pytest.mark.promise("X5")
@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (" \n", "empty"),
        ("x" * 1_000_001, "1,000,001 characters"),
        ("half a pair: \ud800", "lone surrogates"),
    ],
)
async def test_what_cannot_be_taken_is_refused_in_a_sentence(
    tmp_path: Path, text: str, complaint: str
):
    async with open_home(tmp_path) as home:
        await home.agents.create("aria")
        with pytest.raises(InvalidInput, match=complaint):
            await home.agents.send("aria", text)
        assert await home.turns.waiting() == []
        assert (await home.agents.ask("aria", "next")).text == "answer to: next"


@pytest.mark.promise("X5")
async def test_control_characters_arrive_as_they_are(tmp_path: Path):
    text = "a\x00b\x07c\x1b[31m\u2028\U0001f600"
    model = obedient()
    async with open_home(tmp_path, model) as home:
        await home.agents.create("aria")
        assert (await home.agents.ask("aria", text)).text == f"answer to: {text}"
    assert heard(model.requests[0])[-1]["content"] == text


async def test_an_unknown_agent_is_named_with_the_nearest_one(tmp_path: Path):
    async with open_home(tmp_path) as home:
        await home.agents.create("aria")
        with pytest.raises(NotFound, match="Did you mean 'aria'"):
            await home.agents.send("arya", "hello")


# -- order ---------------------------------------------------------------------------------------


@pytest.mark.promise("T4")
async def test_the_model_sees_the_conversation_in_order_also_after_a_restart(tmp_path: Path):
    async with open_home(tmp_path, tools=[echo]) as home:
        await home.agents.create("aria", system="Be brief.")
        await home.agents.ask("aria", 'one [[call:echo {"word": "w"}]]')
        await home.agents.ask("aria", "two")
    model = obedient()
    async with open_home(tmp_path, model, tools=[echo]) as home:
        await home.agents.ask("aria", "three")
    told = heard(model.requests[0])
    assert [message["role"] for message in told] == [
        "system", "user", "assistant", "tool", "assistant", "user", "assistant", "user",
    ]  # fmt: skip
    assert told[0]["content"].startswith("Be brief.")
    assert told[3] == {
        "role": "tool",
        "tool_call_id": told[2]["tool_calls"][0]["id"],
        "content": "w",
    }
    assert told[-1]["content"] == "three"


@pytest.mark.promise("T4")
async def test_a_slow_agent_does_not_hold_up_another(tmp_path: Path):
    waiting = asyncio.Event()

    @tool(repeatable=True)
    async def hold() -> None:
        await waiting.wait()

    async with open_home(tmp_path, tools=[hold]) as home:
        for name in ("slow", "quick"):
            await home.agents.create(name)
        slow = await home.agents.send("slow", "[[call:hold {}]]")
        async with asyncio.timeout(120):
            assert (await home.agents.ask("quick", "hello")).text == "answer to: hello"
        waiting.set()
        assert (await home.turns.wait(slow)).state is TurnState.DONE


# -- limits --------------------------------------------------------------------------------------

ENDLESS = Reply(calls=calls(("echo", '{"word": "w"}')).calls, usage=Usage(40, 10))


@pytest.mark.promise("T10")
@pytest.mark.parametrize(
    ("limits", "model", "explanation"),
    [
        (Limits(steps=3), [ENDLESS] * 3, "the 3 steps"),
        (Limits(calls=2), [ENDLESS] * 3, "the 2 calls"),
        (Limits(tokens=120), [ENDLESS] * 3, "150 tokens, and a turn may use 120"),
    ],
)
async def test_a_limit_ends_the_turn_with_an_explanation(
    tmp_path: Path, limits: Limits, model: list[Reply], explanation: str
):
    scripted = ScriptedModel([*model, "well again"])
    async with open_home(tmp_path, scripted, tools=[echo]) as home:
        await home.agents.create("aria", limits=limits)
        outcome = await home.agents.ask("aria", "go on for ever")
        assert outcome.state is TurnState.FAILED
        assert explanation in outcome.text
        assert outcome.text.startswith("I had to stop")
        assert await home.turns.outcome(outcome.turn_id) == outcome
        assert (await home.agents.ask("aria", "next")).text == "well again"
    next_turn = heard(scripted.requests[-1])
    check_wire(next_turn)
    # The agent knows what its limit said, so that "go on" means something to it.
    ended = f"[asterism] Your turn ended here without an answer. You said: {outcome.text}"
    assert ended in [message["content"] for message in next_turn]


@pytest.mark.promise("T10")
@pytest.mark.parametrize("slow", ["model", "tool"])
async def test_time_running_out_ends_the_turn_with_an_explanation(tmp_path: Path, slow: str):
    @tool(repeatable=True)
    async def hold() -> None:
        await asyncio.Event().wait()

    model = obedient(delay=60.0 if slow == "model" else 0.0)
    async with open_home(tmp_path, model, tools=[hold]) as home:
        await home.agents.create("aria", limits=Limits(seconds=0.1))
        async with asyncio.timeout(120):
            outcome = await home.agents.ask("aria", "[[call:hold {}]]")
        assert outcome.state is TurnState.FAILED
        assert "longer than the 0.1 s" in outcome.text


@pytest.mark.promise("T10")
@pytest.mark.parametrize("error", [ModelRefused("The key is wrong."), ModelUnavailable("Down.")])
async def test_a_model_that_does_not_answer_is_explained(tmp_path: Path, error: Exception):
    tries = 3 if isinstance(error, ModelUnavailable) else 1
    async with open_home(tmp_path, ScriptedModel([error] * tries + ["well again"])) as home:
        await home.agents.create("aria")
        outcome = await home.agents.ask("aria", "hello")
        assert (outcome.state, str(error) in outcome.text) == (TurnState.FAILED, True)
        assert outcome.text.endswith("Your message is kept. Ask again to get an answer.")
        assert (await home.agents.ask("aria", "next")).text == "well again"


async def test_a_fault_of_ours_ends_the_turn_with_an_explanation(tmp_path: Path):
    async with open_home(tmp_path, ScriptedModel([ValueError("oops"), "well again"])) as home:
        await home.agents.create("aria")
        outcome = await home.agents.ask("aria", "hello")
        assert outcome.state is TurnState.FAILED
        assert "ValueError" in outcome.text
        assert (await home.agents.ask("aria", "next")).text == "well again"


async def test_an_empty_answer_is_said_to_be_empty(tmp_path: Path):
    async with open_home(tmp_path, ScriptedModel([Reply()] * 3)) as home:
        await home.agents.create("aria")
        assert "empty answer" in (await home.agents.ask("aria", "hello")).text


# -- stopping ------------------------------------------------------------------------------------


async def stopped(home: Asterism, text: str, started: asyncio.Event) -> Outcome:
    receipt = await home.agents.send("aria", text)
    async with asyncio.timeout(120):
        await started.wait()
        await home.turns.stop(receipt.turn_id, "Enough.")
        return await home.turns.wait(receipt)


@pytest.mark.promise("T3")
@pytest.mark.parametrize(("repeatable", "told"), [(True, "Cut short"), (False, "Outcome unknown")])
async def test_stopping_in_mid_tool_tells_what_is_known_of_it(
    tmp_path: Path, repeatable: bool, told: str
):
    started = asyncio.Event()

    @tool(repeatable=repeatable)
    async def hold() -> None:
        started.set()
        await asyncio.Event().wait()

    model = obedient()
    async with open_home(tmp_path, model, tools=[hold]) as home:
        await home.agents.create("aria")
        outcome = await stopped(home, "[[call:hold {}]]", started)
        assert (outcome.state, outcome.text) == (TurnState.STOPPED, "Enough.")
        assert (await home.agents.ask("aria", "next")).text == "answer to: next"
        notices = await home.notices.list()
        assert [notice.kind for notice in notices] == ([] if repeatable else ["call.unknown"])
    messages = heard(model.requests[-1])
    check_wire(messages)
    assert told in messages[-3]["content"]
    assert messages[-2]["content"] == "[asterism] Your turn was stopped here by a person: Enough."


async def test_stopping_twice_stops_once_and_the_lane_goes_on(tmp_path: Path):
    started = asyncio.Event()

    @tool
    async def hold() -> None:
        started.set()
        await asyncio.Event().wait()

    async with open_home(tmp_path, tools=[hold]) as home:
        await home.agents.create("aria")
        receipt = await home.agents.send("aria", "[[call:hold {}]]")
        after = [await home.agents.send("aria", text) for text in ("one", "two")]
        async with asyncio.timeout(120):
            await started.wait()
        for _ in range(3):
            await home.turns.stop(receipt.turn_id)
            await asyncio.sleep(0)
        assert (await home.turns.wait(receipt)).state is TurnState.STOPPED
        assert await answers(home, after) == ["answer to: one", "answer to: two"]


@pytest.mark.promise("T2", "T3")
async def test_stopping_while_a_call_commits_keeps_its_effect_and_its_result(tmp_path: Path):
    slow, reached, go = threading.Event(), threading.Event(), threading.Event()

    def meddle(operation: str, file: object, data: bytes, offset: int) -> None:
        if operation == "sync" and slow.is_set():
            reached.set()
            go.wait(5)

    @tool(transactional=True)
    async def note(ctx: ToolContext) -> str:
        await ctx.tx.run("INSERT INTO noted VALUES (?)", (ctx.key,))
        slow.set()
        return "noted"

    disk = MeddledDisk(meddle)
    database = await open_sqlite(tmp_path, vfs=disk.name)
    async with open_home(tmp_path, database=database, tools=[note]) as home:
        await database.write(lambda tx: tx.run("CREATE TABLE noted (key TEXT)"))
        await home.agents.create("aria")
        receipt = await home.agents.send("aria", "[[call:note {}]]")
        await until(reached.is_set)
        await home.turns.stop(receipt.turn_id)
        await asyncio.sleep(0)
        slow.clear()
        go.set()
        assert (await home.turns.wait(receipt)).state is TurnState.STOPPED
        found = await audit(database)
        (turn,) = found.all_turns()
        assert list(turn.results.values()) == [("note", "noted")]
        assert len(await database.read(lambda tx: tx.all("SELECT key FROM noted"))) == 1


async def test_there_is_nothing_to_stop_in_a_turn_that_has_ended(tmp_path: Path):
    async with open_home(tmp_path) as home:
        await home.agents.create("aria")
        outcome = await home.agents.ask("aria", "hello")
        with pytest.raises(Conflict, match="nothing to stop"):
            await home.turns.stop(outcome.turn_id)


# -- closing -------------------------------------------------------------------------------------


async def test_what_is_heard_while_a_home_closes_begins_nothing_there(tmp_path: Path):
    problems: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, problem: problems.append(problem))
    before, halting = asyncio.all_tasks(), list[asyncio.Task[Any]]()

    class LastWord(MemoryChannel):
        async def close(self) -> None:
            # The home takes no more turns, but its store still tells it what happens there.
            halting.append(asyncio.create_task(home.halts.halt("The fuse has blown.")))
            await asyncio.sleep(0)  # it is on its way to the store

    async with open_home(tmp_path, channels={"room": LastWord()}) as home:
        await home.agents.create("aria")
        assert (await home.agents.ask("aria", "hello")).text == "answer to: hello"
    async with asyncio.timeout(120):
        await asyncio.gather(*halting)
    assert len(halting) == 1
    assert asyncio.all_tasks() - before == set()
    gc.collect()
    assert problems == []


# -- what is kept in memory ----------------------------------------------------------------------


async def test_agents_leave_memory_and_come_back_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(runtime, "_MAX_LIVE", 2)
    model = obedient()
    async with open_home(tmp_path, model) as home:
        for name in "abcd":
            await home.agents.create(name)
        for text in ("one", "two", "three"):
            for name in "abcd":
                await home.agents.ask(name, text)
        said = [message["content"] for message in heard(model.requests[-1])[1:]]
        assert said == ["one", "answer to: one", "two", "answer to: two", "three"]
        assert len(home._engine.runtime._live) <= 2


async def test_memory_is_counted_as_it_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    async with open_home(tmp_path) as home:
        for name in "ab":
            await home.agents.create(name)
        for _ in range(5):
            for name in "ab":
                await home.agents.ask(name, "x" * 1_000)
        await home.agents.edit("a", system="new")
        kept = home._engine.runtime._live
        assert home._engine.runtime._live_bytes == sum(live.size for live in kept.values()) > 0
        monkeypatch.setattr(runtime, "_MAX_LIVE_BYTES", 1)
        await home.agents.ask("b", "hello")
        assert (len(kept), home._engine.runtime._live_bytes) == (0, 0)


async def test_an_edit_counts_from_the_next_turn_on(tmp_path: Path):
    started, go = asyncio.Event(), asyncio.Event()

    @tool(repeatable=True)
    async def hold() -> None:
        started.set()
        await go.wait()

    model = obedient()
    async with open_home(tmp_path, model, tools=[hold]) as home:
        await home.agents.create("aria", system="old")
        under_way = await home.agents.send("aria", "[[call:hold {}]]")
        await started.wait()
        await home.agents.edit("aria", system="new")
        go.set()
        await home.turns.wait(under_way)
        await home.agents.ask("aria", "next")
    systems = [heard(request)[0]["content"][:3] for request in model.requests]
    assert systems == ["old", "old", "new"]


async def test_an_edit_while_an_agent_is_being_read_is_not_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    model, load = obedient(), runtime.load

    async def read_and_edit(*given: Any) -> LiveAgent:
        live = await load(*given)
        if live.agent.system == "old":
            await home.agents.edit("aria", system="new")
        return live

    async with open_home(tmp_path, model) as home:
        await home.agents.create("aria", system="old")
        monkeypatch.setattr(runtime, "load", read_and_edit)
        await home.agents.ask("aria", "hello")
    assert heard(model.requests[0])[0]["content"].startswith("new")


# -- context within its budget -------------------------------------------------------------------


@st.composite
def conversations(draw: st.DrawFn) -> list[list[tuple[EntryKind, bytes]]]:
    """Turns as the journal keeps them: a message, replies with their results, an answer."""
    wire = st.integers(1, 400).map(lambda size: b"x" * size)
    turns: list[list[tuple[EntryKind, bytes]]] = []
    for _ in range(draw(st.integers(1, 12))):
        entries = [(EntryKind.MESSAGE, draw(wire))]
        for _ in range(draw(st.integers(0, 3))):
            entries.append((EntryKind.REPLY, draw(wire)))
            results = draw(st.integers(1, 3))
            entries += [(EntryKind.RESULT, draw(wire)) for _ in range(results)]
        entries.append((EntryKind.REPLY, draw(wire)))
        turns.append(entries)
    return turns


@given(turns=conversations(), squeezes=st.lists(st.integers(0, 12), max_size=6))
def test_what_is_left_out_is_left_out_at_the_front_up_to_a_message(
    turns: list[list[tuple[EntryKind, bytes]]], squeezes: list[int]
):
    tail, entries = Tail(1_000), list[tuple[EntryKind, bytes]]()
    for number, turn in enumerate(turns):
        for kind, wire in turn:
            tail.append(kind, wire)
        entries += turn
        before = sum(len(wire) for _, wire in entries[tail.sent() :])
        if number in squeezes:
            squeezed = tail.squeeze()
            sent = entries[tail.sent() :]
            now = sum(len(wire) for _, wire in sent)
            only_turn = sum(kind is EntryKind.MESSAGE for kind, _ in sent) == 1
            assert now <= before // 2 or only_turn
            assert squeezed == (now < before)
        # It begins where a turn begins, so no result is without the call it answers.
        assert entries[tail.sent()][0] is EntryKind.MESSAGE
        assert [wire for _, wire in entries] == tail.wires
        assert tail.size == sum(map(len, tail.wires))


@pytest.mark.promise("T4")
async def test_a_long_conversation_stays_within_the_budget_and_sound(tmp_path: Path):
    model = obedient()
    home_of = {"tools": [echo], "settings": {"context": {"tokens": 500}}}
    async with open_home(tmp_path, model, **home_of) as home:
        await home.agents.create("aria", system="Be brief.")
        for number in range(30):
            await home.agents.ask(
                "aria", f'{number} {"x" * 50} [[call:echo {{"word": "{number}"}}]]'
            )
    async with open_home(tmp_path, model, **home_of) as home:
        await home.agents.ask("aria", "at last")
    asked = [request for request in model.requests if "/compact/" not in request.key]
    assert len(asked) < len(model.requests), "nothing was compacted"
    sizes = [sum(map(len, request.messages[1:])) for request in asked]
    assert max(sizes) < 500 * 4 + 1_000
    for request in asked:
        messages = heard(request)
        assert messages[0]["content"].startswith("Be brief.")
        assert messages[1]["role"] == "user"
        check_wire(messages)


@pytest.mark.promise("X5")
@pytest.mark.parametrize("field", ["external_id", "sender", "reply_to", "channel"])
@pytest.mark.parametrize(
    "value", ["a\x00b", "half \ud800", "x" * 10_001], ids=["nul", "half", "long"]
)
async def test_what_no_store_can_keep_is_refused_beside_a_message(
    tmp_path: Path, field: str, value: str
):
    async with open_home(tmp_path) as home:
        await home.agents.create("aria")
        given: dict[str, Any] = {field: value}
        with pytest.raises(InvalidInput, match=rf"^{field} .*Nothing was stored"):
            await home.agents.send("aria", "hello", **given)
        assert await home.turns.waiting() == []
        assert (await home.agents.ask("aria", "hello")).state is TurnState.DONE


@pytest.mark.promise("X5")
async def test_what_no_store_can_keep_is_refused_in_an_agent(tmp_path: Path):
    async with open_home(tmp_path) as home:
        for name, system in (("a\x00", "Be brief."), ("aria", "\ud800")):
            with pytest.raises(InvalidInput, match="Nothing was stored"):
                await home.agents.create(name, system=system)
        await home.agents.create("aria")
        assert (await home.agents.edit("aria", tools=[])).tools == ()
        assert (await home.agents.edit("aria", model="a:b")).tools == ()
        assert (await home.agents.edit("aria", all_tools=True)).tools is None
