"""Turns that were under way at an abnormal end: which are counted, tried again and put aside."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from asterism import Asterism, Conflict, NotAllowed, NotFound, ToolContext, tool
from asterism.permissions import Actor
from asterism.store import crashes
from asterism.store.database import Connection
from asterism.turns.crashes import MARKS, Marks
from asterism.types.permissions import ToolEffect
from asterism.types.turns import AttachedDocument, MessageMeta, TurnState
from tests.scenes import obedient, open_home, until

pytestmark = [pytest.mark.promise("T2", "T10", "X5")]

STUCK = "[[call:stick {}]]"


class Ends:
    """Lives of a home that end as if the process had been killed: the file of marks is left."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.stuck: set[str] = set()
        """Agents whose turn is in the call that does not end."""
        self.most_at_once = 0
        self.freed = asyncio.Event()

        @tool(repeatable=True, effects=ToolEffect("read"))
        async def stick(ctx: ToolContext) -> str:
            """Go on for ever."""
            self.stuck.add(ctx.agent.id)
            self.most_at_once = max(self.most_at_once, len(self.stuck))
            try:
                await self.freed.wait()
            finally:
                self.stuck.discard(ctx.agent.id)
            return "free"

        self.tools = [stick]

    @contextlib.asynccontextmanager
    async def life(self, *, clean: bool = False, **options: Any) -> AsyncGenerator[Asterism]:
        """Open the home; in the end it is closed, with the marks of what was under way then."""
        given: dict[str, Any] = {"tools": self.tools, "grace": 0.0, **options}
        async with open_home(self.place, **given) as home:
            yield home
            left = (self.place / MARKS).read_bytes()
        assert not (self.place / MARKS).exists()
        if not clean:
            (self.place / MARKS).write_bytes(left)


@pytest.fixture
def ends(tmp_path: Path) -> Ends:
    return Ends(tmp_path)


async def state_of(home: Asterism, turn_id: str) -> str:
    return (await home.turns.outcome(turn_id)).state.value


async def test_a_turn_that_is_executed_at_two_ends_is_put_aside(ends: Ends):
    async with ends.life() as home:
        aria = await home.agents.create("aria")
        document = AttachedDocument("plan.txt", "The plan is blue.", 0)
        receipt = await aria.send(STUCK, documents=[document])
        behind = await aria.send("behind")
        await until(lambda: aria.id in ends.stuck)
    async with ends.life() as home:
        await until(lambda: aria.id in ends.stuck)
    async with ends.life() as home:
        outcome = await home.turns.wait(receipt)
        assert outcome.state is TurnState.FAILED
        assert "ended 2 times" in outcome.text
        assert (await home.turns.wait(behind)).text == "answer to: behind"
        notices = [one for one in await home.notices.list() if one.kind == "turn.put-aside"]
        assert [one.turn_id for one in notices] == [receipt.turn_id]
        assert await home.database.read(crashes.all_crashes) == []
        ends.freed.set()
        again = await home.turns.retry(receipt.turn_id)
        assert again.turn_id != receipt.turn_id
        assert (await home.turns.wait(again)).text == f"answer to: {STUCK}"
        with pytest.raises(Conflict, match="is done"):
            await home.turns.retry(again.turn_id)


async def test_what_came_beside_a_message_that_never_began_is_kept_for_another_try(ends: Ends):
    async with ends.life() as home:
        aria = await home.agents.create("aria")
        receipt = await aria.send("hello", documents=[AttachedDocument("a.txt", "Blue.", 0)])
        await home.turns.wait(receipt)
        waiting = await aria.send("more", documents=[AttachedDocument("b.txt", "Red.", 0)])
        await home.turns.wait(waiting)
        await home.halts.halt("to keep the next one from beginning")
        waiting = await aria.send("last", documents=[AttachedDocument("c.txt", "Green.", 0)])
        for _ in range(2):
            await home.database.write(lambda tx: crashes.count(tx, waiting.turn_id, executing=True))
    async with ends.life() as home:
        await home.halts.resume()
        assert (await home.turns.wait(waiting)).state is TurnState.FAILED
        again = await home.turns.retry(waiting.turn_id)
        assert (await home.turns.wait(again)).state is TurnState.DONE
        _, entries = await home.turns.get(again.turn_id)
        assert any(b"Green." in entry.body for entry in entries)


async def test_a_turn_that_waits_for_its_model_does_not_count_as_one_that_ends_the_process(
    ends: Ends,
):
    async with ends.life(model=obedient(delay=1_000.0)) as home:
        aria = await home.agents.create("aria")
        receipt = await aria.send("hello")
        await until(lambda: (ends.place / MARKS).read_bytes()[:1] != b"x" and is_asked(ends.place))
    for _ in range(8):
        async with ends.life(model=obedient(delay=1_000.0)) as home:
            await until(lambda: is_asked(ends.place))
    async with ends.life(clean=True) as home:
        assert (await home.turns.wait(receipt)).text == "answer to: hello"
    async with ends.life() as home:
        assert await home.database.read(crashes.all_crashes) == []


def is_asked(place: Path) -> bool:
    """Whether a turn is under way that waits for its model."""
    return [executing for _, executing in Marks.read(place / MARKS)] == [False]


async def test_even_a_turn_that_only_waits_is_put_aside_after_many_ends(ends: Ends):
    async with ends.life(clean=True) as home:
        aria = await home.agents.create("aria")
        await home.halts.halt("to keep it from beginning")
        receipt = await aria.send("hello")
        for _ in range(10):
            await home.database.write(
                lambda tx: crashes.count(tx, receipt.turn_id, executing=False)
            )
    async with ends.life() as home:
        await home.halts.resume()
        assert (await home.turns.wait(receipt)).state is TurnState.FAILED


async def test_clean_stops_are_not_counted(ends: Ends):
    async with ends.life(clean=True) as home:
        aria = await home.agents.create("aria")
        receipt = await aria.send(STUCK)
        await until(lambda: aria.id in ends.stuck)
    for _ in range(3):
        async with ends.life(clean=True) as home:
            await until(lambda: aria.id in ends.stuck)
            assert await home.database.read(crashes.all_crashes) == []
    async with ends.life() as home:
        ends.freed.set()
        assert (await home.turns.wait(receipt)).state is TurnState.DONE


async def test_those_that_were_counted_are_executed_one_at_a_time(ends: Ends):
    names = ("aria", "bela", "carl")
    async with ends.life() as home:
        for name in names:
            await (await home.agents.create(name)).send(STUCK)
        await until(lambda: len(ends.stuck) == 3)
    ends.most_at_once = 0
    async with ends.life() as home:
        await until(lambda: len(ends.stuck) == 1)
        assert (await home.agents.create("dora")).id not in ends.stuck
        assert (await home.agents.ask("dora", "others go on")).state is TurnState.DONE
        assert len(Marks.read(ends.place / MARKS)) == 1
    async with ends.life() as home:
        turns = {record.agent_id: record for record in await home.turns.list()}
        await until(lambda: len(ends.stuck) == 1)
        ends.freed.set()
        await until(lambda: _are_over(home, [record.id for record in turns.values()]))
        states = [await state_of(home, record.id) for record in turns.values()]
        assert sorted(states) == ["done", "done", "done", "failed"]
    assert ends.most_at_once == 1


async def _are_over(home: Asterism, turn_ids: list[str]) -> bool:
    return all([await state_of(home, turn_id) in ("done", "failed") for turn_id in turn_ids])


async def test_a_turn_that_gets_further_is_not_put_aside(tmp_path: Path):
    async with open_home(tmp_path) as home:
        aria = await home.agents.create("aria")
        await home.halts.halt("to keep it from beginning")
        receipt = await aria.send("hello")

        async def step(tx: Connection) -> None:
            await crashes.count(tx, receipt.turn_id, executing=True)
            await tx.run("UPDATE crashes SET seq = seq - 1")

        for _ in range(5):
            await home.database.write(step)
        (found,) = await home.database.read(crashes.all_crashes)
        assert (found.ends, found.total) == (1, 5)


@pytest.mark.promise("G1")
async def test_a_member_whose_turn_is_put_aside_fails_and_its_group_goes_on(ends: Ends):
    async with ends.life() as home:
        aria = await home.agents.create("aria")
        await home.agents.create("bela")
        await home.groups.create("desk", pattern="round_robin", members=["aria", "bela"])
        receipt = await home.groups.send("desk", STUCK)
        await until(lambda: ends.stuck == {aria.id})
    async with ends.life() as home:
        await until(lambda: ends.stuck == {aria.id})
    async with ends.life() as home:
        ends.freed.set()
        outcome = await home.turns.wait(receipt)
        assert "put aside" in outcome.text
        assert (await home.groups.ask("desk", "hello")).state is TurnState.DONE
        records = await home.turns.list(aria)
        assert [record.state for record in records] == [TurnState.FAILED]
        with pytest.raises(Conflict, match="question of an agent or a group"):
            await home.turns.retry(records[0].id)


async def test_only_the_owner_and_the_sender_try_a_turn_again(tmp_path: Path):
    async with open_home(tmp_path) as home:
        aria = await home.agents.create("aria")
        anna = await home.people.create("Anna", roles=["partner"])
        bert = await home.people.create("Bert", roles=["admin"])
        hers = home.acting_as(Actor("person", anna.id, "Anna", anna.trust, frozenset(anna.roles)))
        his = home.acting_as(Actor("person", bert.id, "Bert", bert.trust, frozenset(bert.roles)))
        await home.halts.halt("to keep it from beginning")
        theirs = await hers.agents.send(aria.id, "hello")
        owners = await aria.send("hello")
        for receipt in (theirs, owners):
            await home.turns.stop(receipt.turn_id)
        await home.halts.resume()
        for receipt in (theirs, owners):
            await home.turns.wait(receipt)
            await until(lambda receipt=receipt: _is_recorded(home, receipt.turn_id))
        with pytest.raises(NotAllowed, match="somebody else"):
            await his.turns.retry(owners.turn_id)
        with pytest.raises(NotAllowed, match="somebody else"):
            await his.turns.retry(theirs.turn_id)
        with pytest.raises(NotFound):
            await hers.turns.retry(owners.turn_id)
        for again in (
            await hers.turns.retry(theirs.turn_id),
            await home.turns.retry(theirs.turn_id),
        ):
            assert (await home.turns.wait(again)).state is TurnState.DONE
            _, entries = await home.turns.get(again.turn_id)
            assert MessageMeta.from_json(entries[0].meta).person == anna.id


async def _is_recorded(home: Asterism, turn_id: str) -> bool:
    return any(record.id == turn_id for record in await home.turns.list())
