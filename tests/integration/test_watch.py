"""Watching: signals of a turn as it goes on, and what a watcher that comes back is told."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from functools import partial
from pathlib import Path

import orjson
import pytest

from asterism import Asterism, Signal, ToolContext, tool
from asterism.errors import ModelUnavailable
from asterism.ports import Emit, ModelRequest
from asterism.testing.scripted import ScriptedModel
from asterism.turns import turn as turn_module
from asterism.turns.runtime import Hub
from asterism.types.turns import Reply
from tests.api_scene import api_client, events
from tests.scenes import calls, obedient, open_home


@tool(repeatable=True)
def echo(word: str) -> str:
    """Say a word back."""
    return word


async def taken(signals: AsyncGenerator[Signal, None], until: str = "ended") -> list[Signal]:
    """Read signals up to the first of a kind."""
    found: list[Signal] = []
    async with asyncio.timeout(120):
        async for signal in signals:
            found.append(signal)
            if signal.kind == until:
                return found
    raise AssertionError(f"no signal {until!r} among {found}")


def said(signals: list[Signal], kind: str = "text") -> str:
    return "".join(signal.text for signal in signals if signal.kind == kind)


@pytest.mark.promise("T5")
async def test_text_reasoning_and_calls_stream_to_whoever_watches(tmp_path: Path):
    script = [calls(("echo", '{"word": "w"}')), Reply("the answer", reasoning="let me see")]
    async with open_home(tmp_path, ScriptedModel(script), tools=[echo]) as home:
        aria = await home.agents.create("aria")
        watching = [asyncio.ensure_future(taken(home.agents.watch(aria))) for _ in range(2)]
        await asyncio.sleep(0)
        streamed = [signal async for signal in home.agents.stream(aria, "go")]
        for signals in (streamed, *(await asyncio.gather(*watching))):
            kinds = list(dict.fromkeys(signal.kind for signal in signals))
            assert kinds == ["opened", "call", "result", "reasoning", "text", "ended"]
            assert (said(signals), said(signals, "reasoning")) == ("the answer", "let me see")
            assert said(signals, "result") == "w"
            assert signals[-1].data == {"state": "done", "text": "the answer"}


@pytest.mark.promise("T5")
async def test_a_watcher_that_comes_back_misses_nothing(tmp_path: Path):
    async with open_home(tmp_path) as home:
        aria = await home.agents.create("aria")
        whole = [signal async for signal in home.agents.stream(aria, "first")]
        seen = whole[3]
        second = await home.agents.ask(aria, "second")
        async with aclosing(home.agents.watch(aria, after=seen.id)) as signals:
            rest = await taken(signals)
            assert said(whole[:4]) + said(rest) == "answer to: first"
            again = await taken(signals)
            assert (said(again), again[-1].turn_id) == ("answer to: second", second.turn_id)


@pytest.mark.promise("A1", "T5")
async def test_whoever_comes_back_to_one_turn_misses_nothing_of_it(tmp_path: Path):
    script = [calls(("echo", '{"word": "w"}')), "the answer", "another"]
    async with (
        open_home(tmp_path, ScriptedModel(script), tools=[echo]) as home,
        api_client(home) as client,
    ):
        aria = await home.agents.create("aria")
        whole = [signal async for signal in home.agents.stream(aria, "go")]
        await home.agents.ask(aria, "next")
        path = f"/api/turns/{whole[0].turn_id}/events"
        begun = events((await client.get(path)).text)
        assert [one.get("event") for one in begun] == [None, "ended"]
        for place in (0, 2):
            again = await client.get(path, headers={"last-event-id": whole[place].id})
            told = events(again.text)
            wanted = [signal.kind for signal in whole[place + 1 :]]
            assert [one["event"] for one in told] == wanted
            assert {orjson.loads(one["data"])["turn_id"] for one in told} == {whole[0].turn_id}
        last = events((await client.get(path, headers={"last-event-id": told[-1]["id"]})).text)
        assert [one["event"] for one in last] == ["gap", "ended"]
    async with open_home(tmp_path) as home:
        signals = home.turns.follow(whole[0].turn_id, after=whole[1].id)
        assert [one.kind async for one in signals] == ["gap", "ended"]


@pytest.mark.promise("T5")
async def test_a_turn_that_was_parked_is_followed_until_it_ends(tmp_path: Path):
    @tool
    async def pay(ctx: ToolContext) -> str:
        """Pay."""
        ctx.ask("May I?")
        return "Paid."

    script = [calls(("pay", "{}")), "Done."]
    async with open_home(tmp_path, ScriptedModel(script), tools=[pay]) as home:
        aria = await home.agents.create("aria")
        asked = [signal async for signal in home.agents.stream(aria, "pay")]
        assert asked[-1].kind == "parked"
        follow = partial(home.turns.follow, asked[0].turn_id, after=asked[0].id)
        waiting = [signal.kind async for signal in follow()]
        assert waiting.count("parked") == 1
        assert waiting[-1] == "parked"
        (question,) = await home.approvals.list()
        await home.turns.wait(await question.approve())
        whole = [signal.kind async for signal in follow()]
        assert whole[: len(waiting)] == waiting
        assert (whole.count("ended"), whole[-1]) == (1, "ended")


@pytest.mark.promise("T5")
async def test_after_a_restart_the_gap_is_told_from_the_journal(tmp_path: Path):
    async with open_home(tmp_path) as home:
        aria = await home.agents.create("aria")
        seen = [signal async for signal in home.agents.stream(aria, "first")][1]
        missed = [(await home.agents.ask(aria, text)).turn_id for text in ("second", "third")]
    async with (
        open_home(tmp_path) as home,
        aclosing(home.agents.watch("aria", after=seen.id)) as signals,
    ):
        first = await anext(signals)
        assert first.kind == "gap"
        told = [await anext(signals) for _ in range(3)]
        assert [one.turn_id for one in told] == [seen.turn_id, *missed]
        assert [one.data["text"] for one in told] == [
            f"answer to: {text}" for text in ("first", "second", "third")
        ]
        live = asyncio.ensure_future(taken(signals))
        await asyncio.sleep(0)
        await home.agents.ask("aria", "fourth")
        assert said(await live) == "answer to: fourth"


@pytest.mark.promise("T5")
async def test_a_turn_that_ends_while_the_gap_is_told_is_not_missed(tmp_path: Path):
    async with open_home(tmp_path) as home:
        await home.agents.create("aria")
        seen = [signal async for signal in home.agents.stream("aria", "first")][-2]
    async with (
        open_home(tmp_path) as home,
        aclosing(home.agents.watch("aria", after=seen.id)) as signals,
    ):
        assert (await anext(signals)).kind == "gap"
        assert (await anext(signals)).data["text"] == "answer to: first"
        second = await home.agents.ask("aria", "second")
        rest = await taken(signals)
        assert (rest[-1].turn_id, rest[-1].data["text"]) == (second.turn_id, second.text)


@pytest.mark.promise("T5")
async def test_a_long_gap_is_told_whole(tmp_path: Path):
    async with open_home(tmp_path) as home:
        aria = await home.agents.create("aria")
        seen = [signal async for signal in home.agents.stream(aria, "first")][-2]
        for number in range(120):
            await home.agents.ask(aria, str(number))
    async with open_home(tmp_path) as home:
        async with aclosing(home.agents.watch("aria", after=seen.id)) as signals:
            told = [await anext(signals) for _ in range(122)]
        assert [one.kind for one in told] == ["gap", *["ended"] * 121]
        assert told[-1].data["text"] == "answer to: 119"


@pytest.mark.promise("T5")
async def test_what_the_log_drops_while_the_gap_is_told_is_not_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async with open_home(tmp_path) as home:
        await home.agents.create("aria")
        seen = [signal async for signal in home.agents.stream("aria", "first")][-2]
    monkeypatch.setattr(turn_module, "_KEPT", 8)
    async with (
        open_home(tmp_path) as home,
        aclosing(home.agents.watch(after=seen.id)) as signals,
    ):
        assert (await anext(signals)).kind == "gap"
        assert (await anext(signals)).data["text"] == "answer to: first"
        # The reader is slow: more is said meanwhile than is kept in memory.
        missed = [(await home.agents.ask("aria", str(number))).turn_id for number in range(6)]
        told: list[str] = []
        async with asyncio.timeout(120):
            async for signal in signals:
                if signal.kind == "ended" and signal.turn_id in missed:
                    told.append(signal.turn_id)
                if len(set(told)) == len(missed):
                    break
        assert told == missed


async def test_a_reply_cut_off_in_mid_stream_is_asked_for_again_and_said_to_be(tmp_path: Path):
    class CutOff(ScriptedModel):
        async def complete(self, request: ModelRequest, emit: Emit | None = None) -> Reply:
            if not self.requests and emit is not None:
                emit("text", "half of")
                self.requests.append(request)
                raise ModelUnavailable("The connection broke.")
            return await super().complete(request, emit)

    async with open_home(tmp_path, CutOff(["the answer"])) as home:
        aria = await home.agents.create("aria")
        signals = [signal async for signal in home.agents.stream(aria, "go")]
        kinds = [signal.kind for signal in signals]
        assert kinds.index("again") == kinds.index("text") + 1
        assert said(signals[kinds.index("again") :]) == "the answer"
        assert signals[-1].data["state"] == "done"


async def test_nothing_is_kept_for_an_agent_that_nobody_watches(tmp_path: Path):
    model = obedient()
    async with open_home(tmp_path, model) as home:
        aria = await home.agents.create("aria")
        await home.agents.ask(aria, "hello")
        assert not home.hub.is_watched(aria.id)


@pytest.mark.promise("T5")
async def test_a_watcher_that_falls_behind_is_told_so(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(turn_module, "_KEPT", 4)
    hub = Hub()
    async with aclosing(hub.watch("a")) as signals:
        first = asyncio.ensure_future(anext(signals))
        await asyncio.sleep(0)
        hub.publish("a", "t", "text", {"text": "0"})
        assert (await first).data["text"] == "0"
        for number in range(1, 10):
            hub.publish("a", "t", "text", {"text": str(number)})
        behind = await anext(signals)
        assert behind.kind == "gap"
        assert [(await anext(signals)).data["text"] for _ in range(4)] == ["6", "7", "8", "9"]


async def stopped_reading(home: Asterism) -> None:
    async with aclosing(home.agents.stream("aria", "go")) as signals:
        async for _ in signals:
            return


async def test_leaving_a_stream_leaves_the_turn_alone(tmp_path: Path):
    async with open_home(tmp_path) as home:
        await home.agents.create("aria")
        await stopped_reading(home)
        assert (await home.agents.ask("aria", "next")).text == "answer to: next"
        first, _ = reversed(await home.turns.list("aria"))
        assert (await home.turns.outcome(first.id)).text == "answer to: go"
