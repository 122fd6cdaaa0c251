"""Chains of models: who is asked, how often, and what an owner and a watcher get to know."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from asterism import Asterism
from asterism.errors import (
    ContentRefused,
    ContextTooLong,
    InvalidInput,
    KeyRefused,
    ModelBusy,
    ModelError,
    ModelGarbled,
    ModelRefused,
    ModelUnavailable,
)
from asterism.models import chain
from asterism.models.chain import CircuitBreaker, RateLimiter
from asterism.ports import Emit, Model, ModelQuestion, ModelRequest, Profile
from asterism.testing.scripted import ScriptedModel
from asterism.types.turns import Call, Reply, TurnState, Usage

pytestmark = pytest.mark.promise("T8")


@asynccontextmanager
async def open_home(
    place: Path, ports: Mapping[str, Model], model: str, **settings: Any
) -> AsyncGenerator[Asterism]:
    async with Asterism.open(
        place, environ={}, models=ports, settings={"model": model, **settings}
    ) as home:
        await home.agents.create("aria")
        yield home


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    def small(low: float, high: float) -> float:
        return 0.001

    monkeypatch.setattr(chain.random, "uniform", small)


@pytest.mark.parametrize(
    ("error", "asked"),
    [
        (ModelUnavailable("Down."), 3),
        (ModelUnavailable("Nothing came.", slow=True, begun=True), 1),
        (ModelBusy("Too many.", retry_after=60), 1),
        (ModelGarbled("Odd."), 1),
        (ModelRefused("No such model."), 1),
        (KeyRefused("The key is wrong."), 1),
        (ContentRefused("Not that."), 1),
        (ContextTooLong("Too long."), 4),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else str(value),
)
async def test_the_next_model_answers(tmp_path: Path, error: ModelError, asked: int):
    first, second = ScriptedModel([error] * asked), ScriptedModel(["I can."])
    models = {"a": first, "b": second}
    async with open_home(tmp_path, models, "a:one, b:two") as home:
        outcome = await home.agents.ask("aria", "hello")
        assert (outcome.state, outcome.text) == (TurnState.DONE, "I can.")
        assert (len(first.requests), len(second.requests)) == (asked, 1)
        assert [request.model for request in second.requests] == ["two"]
        notices = await home.notices.list()
        assert [(one.kind, error.message in one.text) for one in notices] == [("model", True)]
        _, entries = await home.turns.get(outcome.turn_id)
        reply = Reply.from_entry(entries[1].body, entries[1].meta)
        assert reply.model == "b:two"


async def test_a_reply_that_is_no_unicode_is_mended(tmp_path: Path):
    odd = Reply(
        "a \ud800 b",
        (Call("c\udfff1", "nobody", '{"text": "\ud83d\ude00 \ud800"}'),),
        reasoning="\udc00",
        thought=b"\xed\xa0\x80",
        finish="tool\ud800",
    )
    model = ScriptedModel([odd, Reply("fin \udfff")])
    async with open_home(tmp_path, {"a": model}, "a:one") as home:
        outcome = await home.agents.ask("aria", "hello")
        assert (outcome.state, outcome.text) == (TurnState.DONE, "fin \ufffd")
        _, entries = await home.turns.get(outcome.turn_id)
        reply = Reply.from_entry(entries[1].body, entries[1].meta)
        assert (reply.text, reply.reasoning, reply.thought) == ("a \ufffd b", "\ufffd", b"")
        assert reply.calls == (Call("c\ufffd1", "nobody", '{"text": "\U0001f600 \ufffd"}'),)


async def test_all_of_them_failing_is_told_in_one_answer(tmp_path: Path):
    models = {
        "a": ScriptedModel([KeyRefused("The first key is wrong.")]),
        "b": ScriptedModel([ModelRefused("The second knows no such model."), "Now."]),
    }
    async with open_home(tmp_path, models, "a:one,b:two,nobody:three") as home:
        outcome = await home.agents.ask("aria", "hello")
        assert outcome.state is TurnState.FAILED
        for part in ("None of the 3 models", "1. The first key", "2. The second", "'nobody'"):
            assert part in outcome.text


async def test_the_owner_is_told_once_until_it_is_well_again(tmp_path: Path):
    bad = KeyRefused("The key is wrong.")
    models = {"a": ScriptedModel([bad, bad, "Well.", bad]), "b": ScriptedModel(["1", "2", "3"])}
    async with open_home(tmp_path, models, "a:one, b:two") as home:
        texts = [(await home.agents.ask("aria", "hello")).text for _ in range(4)]
        assert texts == ["1", "2", "Well.", "3"]
        assert len(await home.notices.list()) == 2


async def test_a_watcher_is_told_to_forget_what_was_cut_off(tmp_path: Path):
    class Cut:
        async def complete(self, request: ModelRequest, emit: Emit | None = None) -> Reply:
            assert emit is not None
            emit("text", "Half an ans")
            raise ModelUnavailable("It was cut off.", begun=True, slow=True)

        async def close(self) -> None:
            pass

    models = {"a": Cut(), "b": ScriptedModel(["Whole."])}
    async with open_home(tmp_path, models, "a:one, b:two") as home:
        seen = [(one.kind, one.data) async for one in home.agents.stream("aria", "hello")]
    kinds = [kind for kind, _ in seen if kind in {"text", "again"}]
    assert kinds == ["text", "again", "text"]
    assert dict(seen)["again"] == {"why": "It was cut off."}


async def test_a_past_that_is_too_long_is_shortened_and_kept(tmp_path: Path):
    def picky(request: ModelRequest) -> Reply | str:
        if sum(map(len, request.messages)) > 6_000:
            raise ContextTooLong("Too long.")
        return "ok " * 100

    model = ScriptedModel.from_rule(picky)
    async with open_home(tmp_path, {"a": model}, "a:one") as home:
        for number in range(30):
            outcome = await home.agents.ask("aria", f"{number} " + "word " * 60)
            assert outcome.state is TurnState.DONE
        assert len(await home.turns.list("aria", limit=100)) == 30
        # Having learned how much fits, it is not asked in vain each time.
        asked = [request for request in model.requests if "/compact/" not in request.key]
        assert len(asked) < 40


async def test_a_window_that_is_known_is_never_passed(tmp_path: Path):
    class Small(ScriptedModel):
        def profile(self, model: str) -> Profile:
            return Profile(window=1_000)

    model = Small(["ok " * 100] * 30)
    async with open_home(tmp_path, {"a": model}, "a:one") as home:
        for number in range(30):
            await home.agents.ask("aria", f"{number} " + "word " * 60)
    assert max(sum(map(len, request.messages)) for request in model.requests) < 4 * 1_000


async def test_call_ids_that_are_used_again_are_told_apart(tmp_path: Path):
    call = Reply(calls=(Call("call_0", "heartbeat", "{}"),))
    model = ScriptedModel([call, call, "Done."])
    async with open_home(tmp_path, {"a": model}, "a:one") as home:
        outcome = await home.agents.ask("aria", "twice")
        _, entries = await home.turns.get(outcome.turn_id)
    ids = [call.id for one in entries if one.kind == "reply" for call in _calls(one.body)]
    assert ids == ["call_0", "call_0_1"]


def _calls(body: bytes) -> tuple[Call, ...]:
    return Reply.from_entry(body, None).calls


@pytest.mark.promise("X5")
@pytest.mark.parametrize("model", ["a:one,", ",", "a:one b:two", "a:one, two", ":x", "a:"])
async def test_what_is_no_chain_is_refused(tmp_path: Path, model: str):
    async with open_home(tmp_path, {"a": ScriptedModel()}, "a:one") as home:
        with pytest.raises(InvalidInput, match="does not name a model"):
            await home.agents.create("other", model=model)


async def test_reasoning_goes_back_to_its_own_vendor_only(tmp_path: Path):
    thinking = Reply(calls=(Call("1", "heartbeat", "{}"),), thought=b'{"reasoning":"Hm."}')
    first = ScriptedModel([thinking, ModelRefused("No."), "unused"])
    second = ScriptedModel(["Answer."])
    async with open_home(tmp_path, {"a": first, "b": second}, "a:one, b:two") as home:
        assert (await home.agents.ask("aria", "think")).text == "Answer."
    assert list(first.requests[1].thoughts.values()) == [b'{"reasoning":"Hm."}']
    assert dict(second.requests[0].thoughts) == {}


async def test_pauses_grow_and_are_never_quite_the_same(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.undo()

    async def pauses() -> list[float]:
        slept: list[float] = []

        async def sleep(seconds: float) -> None:
            slept.append(seconds)

        port = ScriptedModel([ModelUnavailable("Down.")] * 3 + ["Up."])
        link = chain.ChainLink("a:one", port, "one", chain.VendorState(), retries=3)
        request = ModelRequest("one", [], None, "turn/0/reply", 60.0)
        question = ModelQuestion(("a:one",), lambda m, p, n: request, None, lambda kind, text: None)
        reply = await chain.Chain(lambda _: link, sleep=sleep).ask(question)
        assert reply.text == "Up."
        return slept

    runs = [await pauses() for _ in range(20)]
    for slept in runs:
        for pause, most in zip(slept, (0.5, 1.0, 2.0), strict=True):
            assert most / 2 <= pause <= most
    assert len({slept[0] for slept in runs}) > 1


# The breaker, on a clock of its own


def test_a_server_that_fails_is_left_alone_longer_and_longer():
    now = 0.0
    breaker = CircuitBreaker(lambda: now)
    for _ in range(4):
        breaker.request_started()
        breaker.note_failure()
    assert breaker.seconds_to_wait == 0
    breaker.note_failure()
    assert breaker.seconds_to_wait == 15
    now = 15.0
    assert breaker.seconds_to_wait == 0
    breaker.request_started()
    assert breaker.is_probing, "one may try, not all at once"
    breaker.note_failure()
    assert breaker.seconds_to_wait == 30
    now = 45.0
    breaker.request_started()
    breaker.note_success()
    assert breaker.seconds_to_wait == 0


async def test_a_broken_server_is_not_hammered(tmp_path: Path):
    model = ScriptedModel.from_rule(_always_down)
    async with open_home(tmp_path, {"a": model}, "a:one") as home:
        outcomes = [await home.agents.ask("aria", "hello") for _ in range(10)]
        assert {outcome.state for outcome in outcomes} == {TurnState.FAILED}
        assert len(model.requests) == 5
        assert "left alone" in outcomes[-1].text


def _always_down(request: ModelRequest) -> str:
    raise ModelUnavailable("Down.")


# The pace, likewise


class Time:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds
        await asyncio.sleep(0)


async def test_agents_that_wait_take_turns():
    time = Time()
    pace = RateLimiter(60, None, clock=time, sleep=time.sleep)
    order: list[str] = []

    async def ask(agent: str) -> None:
        await pace.acquire(agent, 0)
        order.append(agent)

    for _ in range(60):
        await pace.acquire("before", 0)
    asking = [asyncio.create_task(ask("greedy")) for _ in range(20)]
    await asyncio.sleep(0)
    asking += [asyncio.create_task(ask("modest")) for _ in range(2)]
    await asyncio.gather(*asking)
    assert [place for place, who in enumerate(order) if who == "modest"] == [1, 3]
    assert time.now == pytest.approx(22)


async def test_tokens_beyond_what_was_thought_are_made_up_for():
    time = Time()
    pace = RateLimiter(None, 6_000, clock=time, sleep=time.sleep)
    await pace.acquire("a", 1_000)
    pace.adjust(11_000)
    await pace.acquire("a", 1_000)
    assert time.now == pytest.approx(70)
    await pace.acquire("a", 1_000_000)
    assert time.now == pytest.approx(130), "more than a minute's worth is let in after a minute"


async def test_who_gives_up_is_not_waited_for():
    time = Time()
    pace = RateLimiter(1, None, clock=time, sleep=time.sleep)
    await pace.acquire("a", 0)
    gone = asyncio.create_task(pace.acquire("a", 0))
    await asyncio.sleep(0)
    gone.cancel()
    await pace.acquire("b", 0)
    assert time.now == pytest.approx(60)


@pytest.mark.promise("T8")
async def test_the_pace_is_configured(tmp_path: Path):
    model = ScriptedModel([Reply("x", usage=Usage(10, 10))] * 3)
    models: dict[str, object] = {"a": {"requests_per_minute": 2}}
    async with open_home(tmp_path, {"a": model}, "a:one", models=models) as home:
        receipts = [await home.agents.send("aria", "hello") for _ in range(3)]
        await home.turns.wait(receipts[1])
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(home.turns.wait(receipts[2]), 0.2)
        await home.turns.stop(receipts[2].turn_id)
        assert (await home.turns.wait(receipts[2])).state is TurnState.STOPPED
    assert len(model.requests) == 2
