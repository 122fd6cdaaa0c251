"""The outbox: every answer goes out, in order for each target, until it arrives or is given up."""

import asyncio
from pathlib import Path
from typing import Any

import orjson
import pytest

from asterism import Asterism, Delivery, tool
from asterism.errors import DeliveryError, NotFound
from asterism.testing.channel import MemoryChannel
from asterism.testing.clock import ManualClock
from asterism.testing.scripted import ScriptedModel
from asterism.types.turns import Message, MessageOrigin
from tests.scenes import calls, open_home, until

DOWN = DeliveryError("The room is closed.")
QUICK = {"outbox": {"first_delay": 0.01, "longest_delay": 0.02, "attempts": 3}}


def home_with(place: Path, channel: MemoryChannel, **given: Any) -> Any:
    return open_home(place, channels={"room": channel}, **given)


async def say(home: Asterism, *texts: str, to: str = "ada") -> list[str]:
    """Hand messages in whose answers go to a target; return the keys of their deliveries."""
    aria = await home.agents.get("aria")
    sends = (home.agents.send(aria, text, channel="room", reply_to=to) for text in texts)
    receipts = await asyncio.gather(*sends)
    for receipt in receipts:
        await home.turns.wait(receipt)
    return [f"{receipt.turn_id}/answer" for receipt in receipts]


def keys(deliveries: list[Delivery]) -> list[str]:
    return [delivery.key for delivery in deliveries]


@pytest.mark.promise("K2")
async def test_answers_reach_each_target_in_order(tmp_path: Path, clock: ManualClock):
    # The clock stands still, so that nothing but the order of the turns can tell them apart.
    channel = MemoryChannel()
    async with home_with(tmp_path, channel, clock=clock) as home:
        await home.agents.create("aria")
        texts = [str(number) for number in range(12)]
        expected = await say(home, *texts)
        await until(lambda: len(channel.delivered) == 12)
        assert keys(channel.delivered) == expected
        assert [one.text for one in channel.delivered] == [f"answer to: {text}" for text in texts]
        await until(lambda: _all_sent(home))
        assert set(keys(await home.outbox.list("sent"))) == set(expected)


@pytest.mark.promise("K2")
async def test_a_delivery_is_tried_again_under_the_same_key_and_later_ones_wait_for_it(
    tmp_path: Path,
):
    channel = MemoryChannel()
    channel.trouble(DOWN, OSError("cable cut"))
    async with home_with(tmp_path, channel, settings=QUICK) as home:
        await home.agents.create("aria")
        first, second = await say(home, "one", "two")
        await until(lambda: len(channel.delivered) == 2)
        assert keys(channel.tried) == [first, first, first, second]
        assert [one.attempts for one in channel.tried] == [1, 2, 3, 1]
        assert keys(channel.delivered) == [first, second]


async def test_waiting_for_the_next_try_costs_nothing(tmp_path: Path):
    channel = MemoryChannel()
    channel.trouble(DOWN)
    slow = {"outbox": {"first_delay": 60.0}}
    async with home_with(tmp_path, channel, settings=slow) as home:
        await home.agents.create("aria")
        await say(home, "one", "two")
        await until(lambda: len(channel.tried) == 1)
        reads, read = 0, home.database.read

        async def counting(work: Any) -> Any:
            nonlocal reads
            reads += 1
            return await read(work)

        home.database.read = counting
        await asyncio.sleep(0.1)
        assert reads <= 6
        first, second = await home.outbox.list()
        assert (first.error, first.attempts) == (DOWN.message, 1)
        assert second.attempts == 0


async def test_the_wait_doubles_up_to_its_limit(tmp_path: Path, clock: ManualClock):
    channel = MemoryChannel()
    channel.trouble(*[DOWN] * 5)
    patient = {"outbox": {"first_delay": 10.0, "longest_delay": 40.0, "attempts": 9}}
    async with home_with(tmp_path, channel, clock=clock, settings=patient) as home:
        await home.agents.create("aria")
        await say(home, "one")
        waits: list[float] = []
        for tries in range(1, 6):
            await until(
                lambda tries=tries: len(channel.tried) == tries and not home._engine.outbox._trying
            )
            (one,) = await home.outbox.list()
            waits.append((one.next_at_ms - clock.now) / 1000)
            clock.now = one.next_at_ms
            home._engine.outbox.kick()
        await until(lambda: len(channel.delivered) == 1)
    for wait, expected in zip(waits, [10, 20, 40, 40, 40], strict=True):
        assert expected * 0.8 <= wait <= expected * 1.2


@pytest.mark.promise("K2")
@pytest.mark.parametrize("final", [False, True])
async def test_what_cannot_be_delivered_is_kept_shown_and_tried_again_on_request(
    tmp_path: Path, final: bool
):
    channel = MemoryChannel()
    channel.trouble(*[DeliveryError("Nobody lives here.", final=final)] * (1 if final else 3))
    async with home_with(tmp_path, channel, settings=QUICK) as home:
        await home.agents.create("aria")
        lost, next_one = await say(home, "one", "two")
        await until(lambda: keys(channel.delivered) == [next_one])
        (dead,) = await home.outbox.list("dead")
        assert (dead.key, dead.attempts) == (lost, 1 if final else 3)
        (notice,) = await home.notices.list()
        assert notice.kind == "delivery.dead"
        assert "Nobody lives here." in notice.text
        with pytest.raises(NotFound):
            await home.outbox.retry(next_one)
        await home.outbox.retry(lost)
        await until(lambda: keys(channel.delivered) == [next_one, lost])
        await until(lambda: _all_sent(home))


async def test_a_channel_that_is_not_there_makes_a_dead_letter(tmp_path: Path):
    async with open_home(tmp_path) as home:
        await home.agents.create("aria")
        await home.agents.ask("aria", "hello", channel="gone", reply_to="ada")
        await until(lambda: _dead(home))
        (dead,) = await home.outbox.list("dead")
        assert dead.error is not None
        assert "There is no channel 'gone'" in dead.error


async def _dead(home: Asterism) -> bool:
    return bool(await home.outbox.list("dead"))


@pytest.mark.promise("K2")
async def test_what_was_under_way_at_a_crash_is_tried_again_under_the_same_key(tmp_path: Path):
    class Hanging(MemoryChannel):
        async def deliver(self, delivery: Delivery) -> None:
            await super().deliver(delivery)
            await asyncio.Event().wait()

    hanging, channel = Hanging(), MemoryChannel()
    async with home_with(tmp_path, hanging) as home:
        await home.agents.create("aria")
        expected = await say(home, "one", "two")
        await until(lambda: len(hanging.tried) == 1)
    async with home_with(tmp_path, channel) as home:
        await until(lambda: len(channel.delivered) == 2)
        assert keys(hanging.tried) == expected[:1]
        assert keys(channel.delivered) == expected


async def test_a_target_that_hangs_does_not_hold_up_the_others(tmp_path: Path):
    class Hanging(MemoryChannel):
        async def deliver(self, delivery: Delivery) -> None:
            if delivery.target == "bob":
                await asyncio.Event().wait()
            await super().deliver(delivery)

    channel = Hanging()
    async with home_with(tmp_path, channel) as home:
        await home.agents.create("aria")
        await say(home, "one", to="bob")
        expected = await say(home, "two", "three", to="ada")
        await until(lambda: len(channel.delivered) == 2)
        assert keys(channel.delivered) == expected


@pytest.mark.promise("T1")
async def test_a_channel_hands_a_message_in_once_and_gets_one_answer(tmp_path: Path):
    channel = MemoryChannel()
    async with home_with(tmp_path, channel) as home:
        await home.agents.create("aria")
        accept = await channel.accepting()
        receipts = [
            await accept(Message("aria", ("hello",), MessageOrigin("", "ada", "ada"), "7"))
            for _ in range(3)
        ]
        assert [one.duplicate for one in receipts] == [False, True, True]
        await home.turns.wait(receipts[0])
        await until(lambda: _all_sent(home))
        assert [one.text for one in channel.delivered] == ["answer to: hello"]


async def _all_sent(home: Asterism) -> bool:
    return not await home.outbox.list() and bool(await home.outbox.list("sent"))


@pytest.mark.promise("K2")
async def test_channels_are_told_how_turns_end_and_that_they_wait(tmp_path: Path):
    wanted = {"type": "webhook", "url": "http://127.0.0.1:9", "events": ["ended", "parked"]}
    settings = {"channels": {"room": {**wanted, "agents": ["aria"]}}}
    channel = MemoryChannel()
    channel.trouble(DOWN)
    model = ScriptedModel(["Hello.", "Hi.", calls(("ask_first", "{}")), "Done."])
    async with open_home(
        tmp_path,
        model,
        channels={"room": channel},
        settings={**QUICK, **settings},
        tools=[tool(name="ask_first", ask=True)(_nothing)],
    ) as home:
        aria, bea = await home.agents.create("aria"), await home.agents.create("bea")
        await aria.ask("hi")
        await bea.ask("hi")
        await aria.ask("and now ask")
        (waiting,) = await home.approvals.list()
        await home.turns.wait(await waiting.approve())
        await until(lambda: len(channel.delivered) == 3)
    told = [orjson.loads(delivery.text) for delivery in channel.delivered]
    assert [(one["agent"], one["event"], one["state"]) for one in told] == [
        ("aria", "ended", "done"),
        ("aria", "parked", "parked"),
        ("aria", "ended", "done"),
    ]
    assert told[0]["text"] == "Hello."


async def _nothing() -> str:
    """Do nothing."""
    return "done"
