"""Whatever a model's server does: an answer from the next one or a clear sentence, exactly once."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from asterism import Asterism, Limits, Signal, TurnState
from asterism.models.chain import Chain, CircuitBreaker, RateLimiter, VendorState
from asterism.testing.channel import MemoryChannel
from asterism.types.turns import END, Entry, EntryKind, Outcome, ReplyMeta
from tests.scenes import until
from tests.servers.fault_server import (
    ANTHROPIC,
    FAULTS,
    FORMATS,
    OPENAI,
    Break,
    FaultServer,
    closed_port,
)

TURN_SECONDS = 5.0
DRIP_SECONDS = 2.0
"""The same for a server that never falls silent and never ends, where only this ends it."""
SILENCE = 0.3
"""Seconds without a byte after which the server under test is given up."""

NOT_MENDED = {
    "401": "Put a valid one into models.first.key",
    "403": "Put a valid one into models.first.key",
    "404": "Check its name",
    "400": "did not take the request (HTTP 400, 'Unknown field.')",
    "400-filter": "content filter objects",
    "429-quota": "has no quota left for this key",
    "filtered": "content filter objects",
    "html": "an HTML page",
    "broken-json": "malformed JSON",
    "broken-events": "malformed JSON",
    "other-shape": "Is base_url right?",
    "wrong-types": "Is base_url right?",
    "binary": "malformed JSON",
}
"""Faults that trying again cannot mend, and what is said of them."""
TOLD = {
    "429": "has had too many requests (HTTP 429, 'Slow down.')",
    "429-soon": "has had too many requests",
    "429-late": "in 3600 seconds",
    "429-date": "has had too many requests",
    "500": "HTTP 500",
    "503-soon": "HTTP 503",
    "529": "HTTP 529, 'Overloaded.'",
    "400-too-long": "has too small a window",
    "hang": "sent nothing for",
    "hang-midway": "sent nothing for",
    "drop": "was cut off",
    "drop-after-status": "was cut off",
    "drop-midway": "was cut off",
    "reset-midway": "was cut off",
    "drop-at-the-end": "was cut off",
    "drip": "",
    "no-body": "",
    "label-swapped": "was cut off",
    "error-in-success": "Overloaded.",
    "down": "was not reached: connection refused",
    **NOT_MENDED,
}


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the pauses before another try be short; what is done after them stays the same."""

    async def briefly(seconds: float) -> None:
        await asyncio.sleep(min(seconds, 0.01) if seconds < 5 else seconds)

    monkeypatch.setattr("asterism.models.chain.Chain", partial(Chain, sleep=briefly))


@pytest.fixture
async def server() -> AsyncIterator[FaultServer]:
    async with FaultServer() as server:
        yield server


def configured(wire: str, address: str, name: str = "", **more: object) -> dict[str, Any]:
    return {
        "model": "first:m",
        "models.first.api": wire,
        "models.first.base_url": address,
        "models.first.key": "sk-first-0123456789",
        "models.first.timeout": SILENCE,
        "models.first.retries": 1,
        "limits.seconds": DRIP_SECONDS if name == "drip" else TURN_SECONDS,
        **more,
    }


def opened(
    place: Path, settings: dict[str, Any], channel: MemoryChannel | None = None
) -> AbstractAsyncContextManager[Asterism]:
    return Asterism.open(
        place,
        environ={},
        settings=settings,
        grace=1.0,
        channels={"room": channel or MemoryChannel()},
    )


async def said(home: Asterism, text: str, *, streamed: bool) -> tuple[Outcome, list[Signal]]:
    """Say something and wait for how it ends, with or without somebody who watches."""
    given = {"channel": "room", "reply_to": "here", "external_id": text}
    async with asyncio.timeout(120):
        if not streamed:
            return await home.agents.ask("aria", text, **given), []
        signals = [one async for one in home.agents.stream("aria", text, **given)]
        return await home.turns.outcome(signals[-1].turn_id), signals


def _that_stand(entries: list[Entry]) -> list[Entry]:
    """Leave out how a turn ended, and words and answers that did not stand."""
    keys = {entry.key for entry in entries}
    return [
        entry
        for entry in entries
        if entry.key != END
        and not entry.key.endswith(("/retry", "/void", "/empty_answer"))
        and f"{entry.key.partition('/')[0]}/retry" not in keys
        and not (entry.kind is EntryKind.REPLY and ReplyMeta.from_json(entry.meta).finish == "cut")
    ]


async def check_once(home: Asterism, channel: MemoryChannel, outcomes: list[Outcome]) -> None:
    """One turn for each message, one delivery for each turn, no entry twice, nothing left over."""
    await until(lambda: len(channel.delivered) == len(outcomes))
    assert [one.text for one in channel.delivered] == [one.text for one in outcomes]
    turns = await home.turns.list("aria")
    assert [one.id for one in reversed(turns)] == [one.turn_id for one in outcomes]
    for turn in turns:
        _, entries = await home.turns.get(turn.id)
        kinds = [entry.kind for entry in _that_stand(entries)]
        answered = turn.state is TurnState.DONE
        assert kinds == [EntryKind.MESSAGE] + [EntryKind.REPLY] * answered
    assert await home.turns.unfinished() == []


def shown(signals: list[Signal]) -> str:
    """What a watcher has read in the end."""
    text = ""
    for one in signals:
        if one.kind == "again":
            text = ""
        elif one.kind == "text":
            text += one.data["text"]
    return text


def is_answer(name: str, *, streamed: bool) -> bool:
    """Tell whether all of an answer is there, though something is odd about it."""
    # Of a stream, only the mark of its end is missing; and a stream is known without its label.
    odd = name in {"drop-at-the-end", "label-swapped"} and streamed
    return odd or name in {"empty", "label-plain"}


class Minutes:
    """A clock that stands still, but for those who sleep by it."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds
        await asyncio.sleep(0)


class Seats:
    """Who has something to say, and who of them waits to be let in."""

    def __init__(self) -> None:
        self.clock = Minutes()
        self.unanswered: Counter[str] = Counter()
        self.waiting = 0

    def pace(self, requests: float | None, tokens: float | None) -> RateLimiter:
        seats = self

        class Watched(RateLimiter):
            async def acquire(self, agent_id: str, tokens: int) -> None:
                seats.waiting += 1
                try:
                    await super().acquire(agent_id, tokens)
                finally:
                    seats.waiting -= 1

        return Watched(requests, tokens, clock=self.clock, sleep=self.sleep)

    async def say(self, home: Asterism, agent: str, text: str) -> Outcome:
        self.unanswered[agent] += 1
        try:
            return await home.agents.ask(agent, text)
        finally:
            self.unanswered[agent] -= 1

    async def sleep(self, seconds: float) -> None:
        """Let time pass only when everybody with something to say stands in the queue."""
        await until(lambda: self.waiting == sum(n > 0 for n in self.unanswered.values()))
        await self.clock.sleep(seconds)


class Place:
    """A server with a fault that stays, or a port at which nobody listens."""

    def __init__(self, name: str, server: FaultServer) -> None:
        self._name = name
        self._server = server
        self.address = server.base_url
        if name == "down":
            self.address = f"http://127.0.0.1:{closed_port()}/v1"
        else:
            server.stays = FAULTS[name]

    async def mend(self, stack: AsyncExitStack) -> None:
        """Let the server be well from now on."""
        self._server.stays = None
        if self._name == "down":
            port = int(self.address.rpartition(":")[2].partition("/")[0])
            await stack.enter_async_context(FaultServer(port=port))


@pytest.mark.promise("T8")
@pytest.mark.parametrize("streamed", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("wire", FORMATS)
@pytest.mark.parametrize("name", [*FAULTS, "down"])
async def test_alone_it_ends_in_a_clear_sentence_and_the_lane_is_free(
    server: FaultServer, tmp_path: Path, name: str, wire: str, streamed: bool
):
    place, channel = Place(name, server), MemoryChannel()
    async with (
        AsyncExitStack() as stack,
        opened(tmp_path, configured(wire, place.address, name), channel) as home,
    ):
        await home.agents.create("aria")
        outcome, _ = await said(home, "hello", streamed=streamed)
        if name == "empty":
            assert (outcome.state, outcome.text) == (
                TurnState.DONE,
                "(The model gave an empty answer.)",
            )
        elif is_answer(name, streamed=streamed):
            assert (outcome.state, outcome.text) == (TurnState.DONE, server.text)
        else:
            assert outcome.state is TurnState.FAILED
            assert TOLD[name] in outcome.text
            assert outcome.text.startswith(("I could not answer: The model 'first:m'", "I had to"))
            assert "Traceback" not in outcome.text
            assert "sk-first" not in outcome.text
        asked = len(server.requests)
        if name in NOT_MENDED:
            assert asked == 1

        await place.mend(stack)
        after, signals = await said(home, "and now?", streamed=streamed)
        if name == "429-late":
            # It said to come back in an hour: so it is not even asked.
            assert len(server.requests) == asked
            assert "is left alone for another" in after.text
        else:
            assert (after.state, after.text) == (TurnState.DONE, server.text)
            assert not streamed or shown(signals) == after.text
        await check_once(home, channel, [outcome, after])


@pytest.mark.promise("T8")
@pytest.mark.parametrize("streamed", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("wire", FORMATS)
@pytest.mark.parametrize(
    "name", sorted({*FAULTS} - {*NOT_MENDED, "429-late", "drip", "empty", "no-body"})
)
async def test_what_passes_is_mended_by_another_try(
    server: FaultServer, tmp_path: Path, name: str, wire: str, streamed: bool
):
    channel = MemoryChannel()
    server.next(FAULTS[name], None)
    async with opened(tmp_path, configured(wire, server.base_url), channel) as home:
        await home.agents.create("aria")
        outcome, signals = await said(home, "hello", streamed=streamed)
        assert (outcome.state, outcome.text) == (TurnState.DONE, server.text)
        assert not streamed or shown(signals) == outcome.text
        await check_once(home, channel, [outcome])


@pytest.mark.promise("T8")
@pytest.mark.parametrize("streamed", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("wire", FORMATS)
@pytest.mark.parametrize("name", [*FAULTS, "down"])
async def test_in_a_chain_the_next_model_answers(
    server: FaultServer, tmp_path: Path, name: str, wire: str, streamed: bool
):
    place, channel = Place(name, server), MemoryChannel()
    other = ANTHROPIC if wire == OPENAI else OPENAI
    async with FaultServer(text="the second model's answer") as second:
        settings = configured(wire, place.address, name, model="first:m, second:n") | {
            "models.second.api": other,
            "models.second.base_url": second.base_url,
        }
        async with opened(tmp_path, settings, channel) as home:
            await home.agents.create("aria")
            outcomes: list[Outcome] = []
            own = is_answer(name, streamed=streamed)
            # Those that take a second of waiting are met once.
            for text in ("hello", "again")[: 1 if name in {"drip", "429-date"} else 2]:
                outcome, signals = await said(home, text, streamed=streamed)
                outcomes.append(outcome)
                assert outcome.state is TurnState.DONE, outcome.text
                if name != "empty":
                    assert outcome.text == (server.text if own else second.text)
                    assert not streamed or shown(signals) == outcome.text
                _, entries = await home.turns.get(outcome.turn_id)
                assert ('"model":"second:n"' in (entries[-1].meta or "")) is not own
            await check_once(home, channel, outcomes)
            told = [notice.text for notice in await home.notices.list()]
            # The owner is told once, not with every message.
            assert len(told) == (0 if own else 1), told
            assert own or "Meanwhile the next model of the chain is asked." in told[0]
            assert not any("sk-first" in text for text in told)


# What each kind of trouble asks for


@pytest.mark.promise("T8")
@pytest.mark.parametrize("wire", FORMATS)
@pytest.mark.parametrize("name", ["401", "429", "429-late", "429-quota"])
async def test_the_next_key_is_used_when_one_fails(
    server: FaultServer, tmp_path: Path, name: str, wire: str
):
    settings = configured(wire, server.base_url) | {"models.first.key": "sk-one-123, sk-two-456"}
    async with opened(tmp_path, settings) as home:
        await home.agents.create("aria")
        server.next(FAULTS[name])
        for text in ("one", "two", "three"):
            outcome, _ = await said(home, text, streamed=False)
            assert (outcome.state, outcome.text) == (TurnState.DONE, server.text)
    # The first key is not tried again while it rests.
    assert [seen.key for seen in server.requests] == ["sk-one-123", *["sk-two-456"] * 3]


@pytest.mark.promise("T8")
@pytest.mark.parametrize("wire", FORMATS)
async def test_wrong_keys_fail_at_once_with_the_next_move(
    server: FaultServer, tmp_path: Path, wire: str
):
    server.refuses = {"sk-first-0123456789"}
    async with opened(tmp_path, configured(wire, server.base_url)) as home:
        await home.agents.create("aria")
        outcome, _ = await said(home, "hello", streamed=False)
        assert outcome.state is TurnState.FAILED
        assert outcome.text == (
            f"I could not answer: The model 'first:m' at {_address(wire, server)} refused the key "
            "(HTTP 401, 'Invalid key.'). Put a valid one into models.first.key. Your message is "
            "kept. Ask again to get an answer."
        )
        assert len(server.requests) == 1
        (notice,) = await home.notices.list()
        assert "Put a valid one into models.first.key." in notice.text


def _address(wire: str, server: FaultServer) -> str:
    return server.base_url if wire == OPENAI else server.base_url.removesuffix("/v1")


@pytest.mark.promise("T8")
@pytest.mark.parametrize("wire", FORMATS)
async def test_a_server_that_keeps_failing_is_left_alone(
    server: FaultServer, tmp_path: Path, wire: str
):
    server.stays = FAULTS["500"]
    async with opened(tmp_path, configured(wire, server.base_url)) as home:
        await home.agents.create("aria")
        texts = [(await said(home, str(n), streamed=False))[0].text for n in range(12)]
    assert len(server.requests) <= 6, "12 messages, each tried twice, would be 24 requests"
    assert "has failed several times in a row and is left alone for another" in texts[-1]
    assert all("HTTP 500" in text for text in texts[:2])


@pytest.mark.promise("T8")
@pytest.mark.parametrize("wire", FORMATS)
async def test_many_agents_together_do_not_hammer_a_server_that_is_down(
    server: FaultServer, tmp_path: Path, wire: str
):
    server.stays = FAULTS["529"]
    async with opened(tmp_path, configured(wire, server.base_url)) as home:
        for number in range(30):
            await home.agents.create(f"agent{number}")
        for _ in range(3):
            await asyncio.gather(*(home.agents.ask(f"agent{n}", "hello") for n in range(30)))
        hammered = len(server.requests)
        # All were under way when it was noticed; after that it is left alone.
        assert hammered <= 60
        await asyncio.gather(*(home.agents.ask(f"agent{n}", "hello") for n in range(30)))
        assert len(server.requests) == hammered


@pytest.mark.promise("T8")
async def test_after_its_rest_one_request_tries_a_failing_server(
    server: FaultServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    clock = Minutes()
    monkeypatch.setattr(
        "asterism.models.chain.VendorState", partial(VendorState, breaker=CircuitBreaker(clock))
    )
    server.stays = FAULTS["500"]
    async with opened(tmp_path, configured(OPENAI, server.base_url)) as home:
        names = [f"agent{n}" for n in range(10)]
        for name in ("aria", *names):
            await home.agents.create(name)
        for text in ("one", "two", "three"):
            await said(home, text, streamed=False)
        assert len(server.requests) == 5
        clock.now += 15
        # Ten at once: one of them tries, the others are told.
        outcomes = await asyncio.gather(*(home.agents.ask(name, "hello") for name in names))
        assert {one.state for one in outcomes} == {TurnState.FAILED}
        assert len(server.requests) == 6
        server.stays = None
        # The rest is twice as long after that.
        clock.now += 29
        assert (await said(home, "four", streamed=False))[0].state is TurnState.FAILED
        assert len(server.requests) == 6
        clock.now += 1
        outcome, _ = await said(home, "five", streamed=False)
        assert (outcome.state, outcome.text) == (TurnState.DONE, server.text)
        outcomes = await asyncio.gather(*(home.agents.ask(name, "again") for name in names))
        assert {one.state for one in outcomes} == {TurnState.DONE}


@pytest.mark.promise("T8")
@pytest.mark.parametrize("wire", FORMATS)
@pytest.mark.parametrize("name", ["429-soon", "503-soon"])
async def test_the_servers_wish_is_honoured(
    server: FaultServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, wire: str
):
    monkeypatch.setattr("asterism.models.chain.Chain", Chain)
    server.next(FAULTS[name], None)
    async with opened(tmp_path, configured(wire, server.base_url)) as home:
        await home.agents.create("aria")
        outcome, _ = await said(home, "hello", streamed=False)
        assert outcome.state is TurnState.DONE
    first, second = server.requests
    assert 0.05 <= second.at - first.at < 2.0


@pytest.mark.promise("T8")
@pytest.mark.parametrize("wire", FORMATS)
async def test_watchers_see_that_pieces_are_void_and_read_the_answer_once(
    server: FaultServer, tmp_path: Path, wire: str
):
    server.text = "one two three four five six seven eight nine ten"
    server.stays = Break.DROP_MIDWAY
    async with FaultServer(text="said by the second") as second:
        settings = configured(wire, server.base_url, model="first:m, second:n") | {
            "models.second.base_url": second.base_url
        }
        async with opened(tmp_path, settings) as home:
            await home.agents.create("aria")
            outcome, signals = await said(home, "hello", streamed=True)
    assert outcome.text == shown(signals) == "said by the second"
    kinds = [one.kind for one in signals]
    assert kinds.count("again") == 2, "after each of the two tries at the first"
    assert kinds.count("ended") == 1
    before = "".join(
        one.data["text"] for one in signals[: kinds.index("again")] if one.kind == "text"
    )
    assert before.startswith("one two")
    why = next(one.data["why"] for one in signals if one.kind == "again")
    assert "was cut off" in why


@pytest.mark.promise("T8")
@pytest.mark.parametrize("wire", FORMATS)
async def test_too_long_a_past_is_shortened_and_answered(
    server: FaultServer, tmp_path: Path, wire: str
):
    async with opened(tmp_path, configured(wire, server.base_url)) as home:
        await home.agents.create("aria")
        for number in range(8):
            await said(home, f"message {number} " + "x" * 400, streamed=False)
        server.next(FAULTS["400-too-long"])
        outcome, _ = await said(home, "the last", streamed=False)
        assert (outcome.state, outcome.text) == (TurnState.DONE, server.text)
    refused, taken = server.requests[-2:]
    assert len(taken.body["messages"]) < len(refused.body["messages"])
    assert "the last" in str(taken.body["messages"][-1])


# Rate limits


@pytest.mark.promise("T8")
async def test_agents_that_wait_for_a_rate_limit_take_turns(
    server: FaultServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    seats = Seats()
    monkeypatch.setattr("asterism.models.chain.RateLimiter", seats.pace)
    settings = configured(OPENAI, server.base_url) | {"models.first.requests_per_minute": 3}
    names = ("busy", "calm", "late")
    async with opened(tmp_path, settings) as home:
        for name in names:
            await home.agents.create(name, system=name, limits=Limits(seconds=30))
        waiting = [seats.say(home, "busy", f"message {n}") for n in range(12)]
        waiting += [seats.say(home, name, f"message {n}") for name in names[1:] for n in range(4)]
        outcomes = await asyncio.gather(*waiting)
    assert {one.state for one in outcomes} == {TurnState.DONE}
    order = [seen.body["messages"][0]["content"].split()[0] for seen in server.requests]
    assert len(order) == 20
    # Three in the first minute, and 20 seconds for each that follows.
    assert seats.clock.now - 1000.0 == pytest.approx(17 * 20, abs=1)
    # Whoever has little to ask is through long before the one with much.
    assert set(order[3:6]) == set(names)
    assert {*order[15:]} == {"busy"}


@pytest.mark.promise("T8")
async def test_one_agent_with_many_requests_does_not_hold_up_another():
    clock = Minutes()
    pace = RateLimiter(60, None, clock=clock, sleep=clock.sleep)
    order: list[str] = []

    async def enter(agent: str) -> None:
        await pace.acquire(agent, 0)
        order.append(agent)

    for _ in range(60):
        await enter("first minute")
    await asyncio.gather(*(enter("many") for _ in range(20)), enter("few"), enter("few"))
    assert order[60:64] == ["many", "few", "many", "few"]
    assert order[64:] == ["many"] * 18
    pace.close()
