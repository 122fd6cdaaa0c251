"""What a group does next is written with the end of a member's turn, if that still fits."""

import contextlib
from pathlib import Path
from typing import Any

import pytest

from asterism import Asterism, TurnState
from asterism.groups import runner
from asterism.store import messages
from asterism.store.database import Connection, Work
from tests.integration.group_scene import Cast, cast_home, soon
from tests.scenes import until

NAMES = ("ada", "ben", "cy")
AT_ONCE = {"stages": [{"name": "all", "agents": list(NAMES)}]}


async def make(home: Asterism, options: dict[str, Any] | None = None) -> None:
    """Make a pipeline of three and have it answer once, so that it is in memory."""
    stages = options or {"stages": list(NAMES)}
    await home.groups.create("line", pattern="pipeline", options=stages, members=NAMES)
    await soon(home.groups.ask("line", "first"))


def count_writes(home: Asterism, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that grows with each transaction that writes."""
    found: list[str] = []
    database = home.database
    write = database.write

    async def counted(work: Work[Any]) -> Any:
        found.append(getattr(work, "__qualname__", ""))
        return await write(work)

    monkeypatch.setattr(database, "write", counted)
    return found


@pytest.mark.parametrize("options", [None, AT_ONCE], ids=["stages", "at once"])
async def test_a_turn_of_three_members_costs_four_transactions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any] | None
):
    cast = Cast()
    async with cast_home("sqlite", tmp_path, cast, *NAMES) as home:
        await make(home, options)
        found = count_writes(home, monkeypatch)
        await soon(home.groups.ask("line", "hello"))
        # The message with the first decision, and the end of each member's turn.
        assert len(found) == 4, found


@pytest.mark.promise("G1")
@pytest.mark.parametrize("options", [None, AT_ONCE], ids=["stages", "at once"])
async def test_messages_that_come_meanwhile_are_answered_in_order(
    tmp_path: Path, options: dict[str, Any] | None
):
    cast = Cast()
    async with cast_home("sqlite", tmp_path, cast, *NAMES) as home:
        await make(home, options)
        asked = cast.hold("ben")
        receipts = [await home.groups.send("line", f"message {number}") for number in range(3)]
        await soon(asked.wait())
        cast.release("ben")
        outcomes = [await soon(home.turns.wait(receipt)) for receipt in receipts]
        assert all(outcome.state is TurnState.DONE for outcome in outcomes)
        for name in NAMES:
            heard = [said for said in cast.asked(name) if "message" in said]
            places = [said.index("message") for said in heard]
            said = [text[at : at + 9] for text, at in zip(heard, places, strict=True)]
            assert said == ["message 0", "message 1", "message 2"]
        again = await soon(home.turns.wait(receipts[0]))
        assert again.text == outcomes[0].text


@pytest.mark.promise("G1")
async def test_a_result_that_nobody_here_has_read_is_decided_on_by_the_lane(tmp_path: Path):
    cast = Cast()
    async with cast_home("sqlite", tmp_path, cast, *NAMES) as home:
        await make(home)
        asked = cast.hold("ada")
        receipt = await home.groups.send("line", "hello")
        await soon(asked.wait())
        group = await home.groups.get("line")

        async def put(tx: Connection) -> None:
            body = b'{"look":true}'
            await messages.put_result(
                tx, group.id, "res_other", receipt.turn_id, body, 1, announce=False
            )

        await home.database.write(put)
        cast.release("ada")
        outcome = await soon(home.turns.wait(receipt))
        assert outcome.text == "cy answers"
        assert await home.database.read(messages.count) == 0
        assert [name for name, said in cast.heard if "hello" in said] == list(NAMES)


@pytest.mark.promise("G1")
async def test_a_change_of_the_group_or_a_member_counts_at_the_next_decision(tmp_path: Path):
    cast = Cast()
    async with cast_home("sqlite", tmp_path, cast, *NAMES) as home:
        await make(home)
        asked = cast.hold("ada")
        receipt = await home.groups.send("line", "hello")
        await soon(asked.wait())
        await home.agents.edit("ben", new_name="bea")
        await home.agents.archive("cy")
        cast.release("ada")
        outcome = await soon(home.turns.wait(receipt))
        assert outcome.state is TurnState.FAILED
        assert "'cy'" in outcome.text
        assert len([said for said in cast.asked("ben") if "hello" in said]) == 1


@pytest.mark.promise("T2", "G1")
async def test_a_turn_that_is_stopped_asks_nobody_any_more(tmp_path: Path):
    cast = Cast()
    async with cast_home("sqlite", tmp_path, cast, *NAMES) as home:
        await make(home)
        asked = cast.hold("ada")
        receipt = await home.groups.send("line", "hello")
        await soon(asked.wait())
        await home.turns.stop(receipt.turn_id, "enough")
        outcome = await soon(home.turns.wait(receipt))
        assert outcome.state is TurnState.STOPPED
        cast.release("ada")
        assert not [said for said in cast.asked("ben") if "hello" in said]


@pytest.mark.promise("T2", "G1")
async def test_a_halt_keeps_a_group_from_going_on(tmp_path: Path):
    cast = Cast()
    async with cast_home("sqlite", tmp_path, cast, *NAMES) as home:
        await make(home)
        await home.halts.halt("quiet, please")
        receipt = await home.groups.send("line", "hello")
        assert [name for name, said in cast.heard if "hello" in said] == []
        await home.halts.resume()
        outcome = await soon(home.turns.wait(receipt))
        assert outcome.text == "cy answers"


@pytest.mark.promise("T2", "G1")
async def test_an_open_home_that_is_closed_in_between_goes_on_at_the_next_start(tmp_path: Path):
    cast = Cast()
    async with cast_home("sqlite", tmp_path, cast, *NAMES) as home:
        await make(home)
        asked = cast.hold("ben")
        receipt = await home.groups.send("line", "hello")
        await soon(asked.wait())
    again = Cast()
    async with cast_home("sqlite", tmp_path, again, *NAMES) as home:
        outcome = await soon(home.turns.wait(receipt))
        assert outcome.text == "cy answers"
        assert again.asked("ada") == []
        turns = [len(await home.turns.list(name)) for name in NAMES]
        assert turns == [2, 2, 2]


@pytest.mark.promise("G1")
async def test_a_fault_in_the_write_of_a_group_costs_no_member_its_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    cast = Cast()
    async with cast_home("sqlite", tmp_path, cast, *NAMES) as home:
        await make(home)
        put, faults = runner.groups.put_agent_message, list[str]()

        async def fails_once(tx: Connection, message: Any) -> None:
            if not faults and message.key == "stage/1/0/0":
                faults.append(message.key)
                raise RuntimeError("a fault")
            await put(tx, message)

        monkeypatch.setattr(runner.groups, "put_agent_message", fails_once)
        outcome = await soon(home.groups.ask("line", "hello"))
        assert outcome.text == "cy answers"
        assert faults
        assert [name for name, said in cast.heard if "hello" in said] == list(NAMES)
        ada = await home.turns.list("ada")
        await until(lambda: all(turn.state is TurnState.DONE for turn in ada))


@pytest.mark.promise("G1")
async def test_a_message_that_is_handed_in_again_shows_watchers_nothing(tmp_path: Path):
    cast = Cast()
    async with cast_home("sqlite", tmp_path, cast, *NAMES) as home:
        await make(home)
        async with contextlib.aclosing(
            home.groups.stream("line", "hello", channel="mail", external_id="1")
        ) as signals:
            kinds = [signal.kind async for signal in signals]
        assert kinds == [*("decision", "member") * 3, "decision", "ended"]
        hub = home._engine.hub  # pyright: ignore[reportPrivateUsage] - what watchers are shown
        place = hub.place((await home.groups.get("line")).id)
        receipt = await home.groups.send("line", "hello", channel="mail", external_id="1")
        assert receipt.duplicate
        assert (
            hub.place((await home.groups.get("line")).id).rpartition("-")[0]
            == (place.rpartition("-")[0])
        )
