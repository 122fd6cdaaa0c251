"""Caps at work: reserved before a model is asked, settled with its reply, told before and after."""

import asyncio
import re
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from asterism import Asterism, TurnState
from asterism.errors import ModelRefused, ModelUnavailable
from asterism.ports import Emit, ModelRequest
from asterism.store import spending
from asterism.store.database import Row
from asterism.testing.channel import MemoryChannel
from asterism.testing.clock import ManualClock
from asterism.testing.postgres import postgres_server
from asterism.testing.scripted import Line, ScriptedModel
from asterism.types.spending import Standing, nano
from asterism.types.turns import Reply, Usage
from tests.scenes import PATIENCE, calls, open_home, until

DAY = 86_400
ONE_DOLLAR = Reply("Here you are.", usage=Usage(200, 7_992))
PRICES = {"scripted:one": {"input": 5.0, "output": 125.0}}
"""With these, `ONE_DOLLAR` costs a dollar, and a short question at most a few cents more."""

Home = Callable[..., AbstractAsyncContextManager[Asterism]]


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
async def home(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Home, None]:
    """Opens the same home again and again, on either engine."""

    def opener(store: dict[str, Any]) -> Home:
        @asynccontextmanager
        async def opened(
            model: ScriptedModel, budget: dict[str, Any], **given: Any
        ) -> AsyncGenerator[Asterism, None]:
            settings = {"budget": budget, "prices": PRICES, **store, **given.pop("settings", {})}
            async with open_home(tmp_path, model, settings=settings, **given) as one:
                yield one

        return opened

    if request.param == "sqlite":
        yield opener({})
        return
    with postgres_server().database() as url:
        yield opener({"store": {"url": url}})


def says(*lines: Line) -> ScriptedModel:
    return ScriptedModel(lines)


async def standing(home: Asterism, setting: str) -> Standing:
    (found,) = [one for one in await home.spending.caps() if one.cap.setting == setting]
    return found


async def charges(home: Asterism) -> list[Row]:
    return await home.database.read(
        lambda tx: tx.all("SELECT state, amount, tokens_in, person FROM charges ORDER BY at, id")
    )


@pytest.mark.promise("T7")
async def test_at_the_cap_the_agent_says_so_in_the_channel_and_asks_no_model(home: Home) -> None:
    model, door, clock = says(ONE_DOLLAR, ONE_DOLLAR), MemoryChannel(), ManualClock()
    given: dict[str, Any] = {"channels": {"chat": door}, "clock": clock}
    async with home(model, {"day": 1.5}, **given) as one:
        await one.agents.create("aria")
        asked = {"channel": "chat", "sender": "eve", "reply_to": "room"}
        assert (await one.agents.ask("aria", "Hello", **asked)).state is TurnState.DONE
        refused = await one.agents.ask("aria", "And again", **asked)
        assert refused.state is TurnState.FAILED
        assert re.fullmatch(
            r"I had to stop: The spending cap for everything is \$1\.50 a day, with \$1\.00 spent, "
            r"and asking scripted:one could cost up to \$1\.0\d\. It starts anew at 2027-01-16 "
            r"00:00 UTC; to go on now, raise it \(budget\.day in asterism\.toml\)\. The model was "
            r"not asked\.",
            refused.text,
        )
        assert len(model.requests) == 1
        await until(lambda: len(door.delivered) == 2)
        assert door.delivered[1].text == refused.text
        clock.forward(seconds=DAY)
        assert (await one.agents.ask("aria", "A new day", **asked)).state is TurnState.DONE


@pytest.mark.promise("T7")
async def test_what_was_reserved_is_settled_in_the_commit_of_the_reply(home: Home) -> None:
    model = says(Reply("Hi.", usage=Usage(1_000, 100, cached=400)))
    async with home(model, {"day": 5.0, "each_person": {"month": 3.0}}) as one:
        await one.agents.create("aria")
        await one.agents.ask("aria", "Hello", channel="chat", sender="eve")
        cost = nano("0.0175")
        assert await charges(one) == [("settled", cost, 1_000, "chat:eve")]
        for setting in ("budget.day", "budget.each_person.month"):
            total = (await standing(one, setting)).total
            assert (total.spent, total.presumed, total.reserved) == (cost, 0, 0)
        # A capped call is told how much it may write.
        assert model.requests[0].max_output == 8_192


@pytest.mark.promise("T7")
async def test_a_call_that_was_refused_costs_nothing_and_one_that_was_cut_its_worst(
    home: Home,
) -> None:
    def cut(request: ModelRequest) -> Reply:
        problem = ModelUnavailable("The connection was lost.")
        problem.begun = True
        raise problem

    model = says(ModelRefused("No."), cut)
    settings = {"models": {"scripted": {"retries": 0}}}
    async with home(model, {"day": 5.0}, settings=settings) as one:
        await one.agents.create("aria")
        await one.agents.ask("aria", "Hello")
        assert await charges(one) == []
        await one.agents.ask("aria", "Hello")
        ((state, amount, _, _),) = await charges(one)
        assert state == "presumed"
        assert nano("1.024") < amount < nano("1.1")
        total = (await standing(one, "budget.day")).total
        assert (total.spent, total.presumed, total.reserved) == (0, amount, 0)


@pytest.mark.promise("T7")
async def test_a_vendor_that_does_not_count_is_presumed_to_have_charged_the_worst(
    home: Home,
) -> None:
    async with home(says("A line whose tokens nobody counted."), {"day": 5.0}) as one:
        await one.agents.create("aria")
        assert (await one.agents.ask("aria", "Hello")).state is TurnState.DONE
        ((state, amount, tokens, _),) = await charges(one)
        assert (state, tokens > 0) == ("presumed", True)
        assert amount > nano("1.024")
        total = (await standing(one, "budget.day")).total
        assert (total.spent, total.presumed, total.reserved) == (0, amount, 0)


class Hanging(ScriptedModel):
    """Never answers."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = asyncio.Event()

    async def complete(self, request: ModelRequest, emit: Emit | None = None) -> Reply:
        self.asked.set()
        await asyncio.Event().wait()
        raise AssertionError


@pytest.mark.promise("T7")
async def test_a_stopped_turn_presumes_what_its_call_may_have_cost(home: Home) -> None:
    model = Hanging()
    async with home(model, {"day": 5.0}) as one:
        await one.agents.create("aria")
        receipt = await one.agents.send("aria", "Hello")
        await asyncio.wait_for(model.asked.wait(), PATIENCE)
        held = (await standing(one, "budget.day")).total
        assert held.reserved > 0
        await one.turns.stop(receipt.turn_id)
        await one.turns.wait(receipt)
        total = (await standing(one, "budget.day")).total
        assert (total.reserved, total.presumed) == (0, held.reserved)


@pytest.mark.promise("T7")
async def test_what_a_dead_process_reserved_is_presumed_when_its_turn_goes_on(home: Home) -> None:
    model = Hanging()
    async with home(model, {"day": 5.0}, grace=0.0) as one:
        agent = await one.agents.create("aria")
        receipt = await one.agents.send(agent, "Hello")
        await asyncio.wait_for(model.asked.wait(), PATIENCE)
        (row,) = await charges(one)
    # A crash leaves the reservation as it was before the process could say anything.
    async with home(says(ONE_DOLLAR), {"day": 5.0}, work=False) as one:

        async def crashed(tx: Any) -> None:
            await tx.run("UPDATE charges SET state = 'reserved' WHERE state = 'presumed'")
            await tx.run("UPDATE totals SET reserved = presumed, presumed = 0")

        await one.database.write(crashed)
    async with home(says(ONE_DOLLAR), {"day": 5.0}) as one:
        assert (await asyncio.wait_for(one.turns.wait(receipt), PATIENCE)).state is TurnState.DONE
        total = (await standing(one, "budget.day")).total
        assert (total.reserved, total.presumed, total.spent) == (0, row[1], nano(1))


@pytest.mark.promise("T7")
async def test_a_late_answer_takes_the_place_of_what_was_presumed(home: Home) -> None:
    async with home(says(), {"day": 5.0}) as one:
        from asterism.turns.spending import Spending, TurnBudget
        from asterism.types.spending import Payer

        agent = await one.agents.create("aria")
        shared = Spending(one._engine.prices.of, lambda: one.settings.spending_caps)  # pyright: ignore[reportPrivateUsage] - as the home has it
        payer = Payer(agent.id, agent.name)
        reservations = TurnBudget(
            shared, one.database, ManualClock(), turn_id="turn_1", payer=payer, seconds=60
        )
        hold = await reservations.reserve(
            "scripted:one", ModelRequest("one", [b"{}"], None, "k", 1.0)
        )
        await one.database.write(lambda tx: spending.presume_orphans(tx, None))
        reservations.settle(hold, ONE_DOLLAR)
        await reservations.close()
        await reservations.close()
        assert [row[:2] for row in await charges(one)] == [("settled", nano(1))]
        totals = await one.database.read(lambda tx: spending.totals(tx, ["2027-01"]))
        assert {(one.spent, one.presumed, one.reserved) for one in totals} == {(nano(1), 0, 0)}


@pytest.mark.promise("T7")
async def test_the_owner_is_told_once_when_most_of_a_cap_is_used(home: Home) -> None:
    async with home(says(*[ONE_DOLLAR] * 4), {"day": 4.5, "warn_at": 0.6}) as one:
        await one.agents.create("aria")
        for told in (0, 0, 1, 1):
            await one.agents.ask("aria", "Hello")
            assert len(await one.notices.list()) == told
        (notice,) = await one.notices.list()
        assert notice.kind == "budget"
        assert notice.text.startswith(
            "Everything has used $3.00 of the $4.50 that budget.day allows a day: 66 %."
        )


@pytest.mark.promise("T7")
async def test_caps_of_agents_and_persons_hold_for_them_alone(home: Home) -> None:
    budget = {
        "agents": {"aria": {"day": 1.5}},
        "persons": {"chat:eve": {"month": 1.5}},
    }
    async with home(says(*[ONE_DOLLAR] * 4), budget) as one:
        for name in ("aria", "bert"):
            await one.agents.create(name)
        assert (await one.agents.ask("aria", "Hello")).state is TurnState.DONE
        refused = await one.agents.ask("aria", "Hello")
        assert "the agent aria is $1.50 a day" in refused.text
        assert "(budget.agents.aria.day in asterism.toml)" in refused.text
        eve = {"channel": "chat", "sender": "eve"}
        assert (await one.agents.ask("bert", "Hello", **eve)).state is TurnState.DONE
        refused = await one.agents.ask("bert", "Hello", **eve)
        assert "the person chat:eve is $1.50 a month" in refused.text
        assert 'budget.persons."chat:eve".month' in refused.text
        assert (await one.agents.ask("bert", "Hello")).state is TurnState.DONE


@pytest.mark.promise("T7")
async def test_under_a_cap_a_model_without_a_known_price_is_not_asked(home: Home) -> None:
    settings: dict[str, Any] = {"prices": {}, "model": "elsewhere:one"}
    settings["models"] = {"elsewhere": {"base_url": "https://models.invalid/v1", "retries": 0}}
    async with home(says(), {"day": 1.0}, settings=settings) as one:
        await one.agents.create("aria")
        refused = await one.agents.ask("aria", "Hello")
        assert refused.text.startswith(
            "I had to stop: The price of the model 'elsewhere:one' is not known, and budget.day "
            'caps what may be spent. Write [prices."elsewhere:one"] with input and output'
        )


@pytest.mark.promise("T7")
async def test_without_a_cap_the_tokens_of_a_model_without_a_price_are_counted(home: Home) -> None:
    reply = Reply("Hi.", usage=Usage(70, 7))
    async with home(says(reply), {}, settings={"prices": {}}) as one:
        one._engine.prices.custom_vendors.clear()  # pyright: ignore[reportPrivateUsage] - else it is free
        await one.agents.create("aria")
        assert (await one.agents.ask("aria", "Hello")).state is TurnState.DONE
        (line,) = (await one.spending.report(1)).lines
        assert (line.calls, line.usage, line.cost) == (1, Usage(70, 7), None)


@pytest.mark.promise("T7")
async def test_money_is_counted_without_a_cap_so_that_a_later_cap_knows_of_it(home: Home) -> None:
    clock = ManualClock()
    async with home(says(ONE_DOLLAR), {}, clock=clock) as one:
        await one.agents.create("aria")
        await one.agents.ask("aria", "Hello")
        assert await one.spending.caps() == []
        (line,) = (await one.spending.report(1)).lines
        assert (line.agent, line.model, line.calls, line.cost) == (
            "aria",
            "scripted:one",
            1,
            nano(1),
        )
    async with home(says(), {"day": 1.0}, clock=clock) as one:
        assert (await one.agents.ask("aria", "Hello")).state is TurnState.FAILED


@pytest.mark.promise("T7")
async def test_free_models_are_never_capped_and_their_tokens_are_shown(home: Home) -> None:
    reply = Reply("Hi.", usage=Usage(70, 7))
    async with home(says(reply), {"day": 0.0}, settings={"prices": {}}) as one:
        await one.agents.create("aria")
        outcome = await one.agents.ask("aria", "Hello", channel="chat", sender="eve")
        assert outcome.state is TurnState.DONE
        assert await charges(one) == []
        (line,) = (await one.spending.report(1)).lines
        assert (line.calls, line.usage, line.cost) == (1, Usage(70, 7), 0)
        assert line.person == "chat:eve"


@pytest.mark.promise("T7")
async def test_what_asterism_works_out_by_itself_is_no_call_of_a_model(home: Home) -> None:
    reply = Reply("It is 391.", usage=Usage(70, 7))
    async with home(says(reply), {}, settings={"prices": {}}) as one:
        await one.agents.create("aria")
        outcome = await one.agents.ask("aria", "Please remember that I like tea. What is 17 * 23?")
        _, entries = await one.turns.get(outcome.turn_id)
        assert any(entry.key == "0/call/0" for entry in entries)  # made by a processor
        (line,) = (await one.spending.report(1)).lines
        assert (line.model, line.calls, line.cost) == ("scripted:one", 1, 0)


@pytest.mark.promise("T7")
async def test_a_call_counts_for_whoever_asked_also_with_something_worked_out(home: Home) -> None:
    async with home(says("It is 391."), {}, settings={"prices": {}}) as one:
        await one.agents.create("aria")
        await one.agents.ask("aria", "What is 17 * 23?", channel="chat", sender="eve")
        (line,) = (await one.spending.report(1)).lines
        assert line.person == "chat:eve"


@pytest.mark.promise("T7")
async def test_steps_of_a_turn_are_reserved_one_by_one_and_tighter_when_usage_is_known(
    home: Home,
) -> None:
    said = "x" * 40_000
    thrifty = calls(("schedule", "{}"))
    model = says(
        Reply(calls=thrifty.calls, usage=Usage(12_000, 10)), Reply("Done.", usage=Usage(12_100, 10))
    )
    worst: list[int] = []
    async with home(model, {"day": 5.0}) as one:
        await one.agents.create("aria")
        reserve = spending.reserve

        async def noting(tx: Any, charge: Any, *more: Any, **named: Any) -> None:
            worst.append(charge.amount)
            await reserve(tx, charge, *more, **named)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(spending, "reserve", noting)
            await one.agents.ask("aria", said)
        assert len(worst) == 2
        # The first counts bytes; the second knows that the vendor counted 12,000 tokens for them.
        assert worst[0] > nano("0.2") + nano("1.024")
        assert worst[1] < nano("0.075") + nano("1.024")
        assert sum(row[1] for row in await charges(one)) == nano("0.123")


@pytest.mark.promise("T7")
async def test_an_idle_constellation_makes_no_model_call(home: Home) -> None:
    model, clock = says(), ManualClock()
    async with home(model, {"day": 1.0}, clock=clock) as one:
        await one.agents.create("aria")
        for _ in range(60):
            clock.forward(seconds=DAY / 2)
            await one.spending.caps()
            await asyncio.sleep(0.01)
        assert model.requests == []
        assert (await one.spending.report(40)).lines == ()
