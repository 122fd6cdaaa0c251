"""Whatever happens to calls, no cap is passed and nothing stays held, on both engines."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from asterism.errors import BudgetReached
from asterism.ports import Hold, ModelRequest
from asterism.store import agents, spending
from asterism.store.database import Connection, Database
from asterism.store.postgres import open_postgres
from asterism.store.sqlite import open_sqlite
from asterism.testing.clock import ManualClock
from asterism.testing.postgres import postgres_server
from asterism.turns.spending import Spending, TurnBudget
from asterism.types.agents import AgentRecord
from asterism.types.spending import Budget, Limit, Payer, Price
from asterism.types.turns import Reply, Usage
from tests.conftest import TORTURE

AGENTS, PERSONS, CALLS = 64, 5, 3
Engine = Callable[[], AbstractAsyncContextManager[Database]]


@asynccontextmanager
async def on_sqlite() -> AsyncGenerator[Database, None]:
    with TemporaryDirectory() as place:
        database = await open_sqlite(Path(place))
        try:
            yield database
        finally:
            await database.close()


@asynccontextmanager
async def on_postgres() -> AsyncGenerator[Database, None]:
    with postgres_server().database() as url:
        database = await open_postgres(url)
        try:
            yield database
        finally:
            await database.close()


@dataclass
class Vendor:
    """Bills what it really did, whether or not we heard of it."""

    billed: Counter[str] = field(default_factory=Counter[str])

    def bill(self, payer: Payer, amount: int) -> None:
        for scope in payer.scopes:
            self.billed[scope] += amount


@dataclass(frozen=True)
class World:
    database: Database
    shared: Spending
    vendor: Vendor
    chance: random.Random
    clock: ManualClock


prices = st.builds(
    Price,
    input=st.integers(1, 10**10),
    output=st.integers(1, 10**11),
    cached=st.integers(0, 10**10),
    written=st.integers(0, 10**11),
    request=st.integers(0, 10**6),
)


@st.composite
def scenes(draw: st.DrawFn) -> tuple[Price, Budget]:
    """A price, and caps that hold for some calls of an agent, a person or everybody."""
    price, most = draw(prices), draw(st.integers(1, 4_096))
    call = price.worst(1_100, most)

    def cap(*calls: float) -> st.SearchStrategy[Limit]:
        amounts = st.sampled_from([*(int(call * number) for number in calls), None])
        return st.builds(Limit, day=amounts, month=amounts)

    budget = Budget(
        all=draw(cap(200, 64.5, 20)),
        agents=draw(st.dictionaries(st.sampled_from(["a0", "a1", "a2"]), cap(6, 2.5, 0.5))),
        each_agent=draw(cap(5, 3.5, 1)),
        each_person=draw(cap(60, 20.5, 7)),
        max_output=most,
    )
    assume(budget.caps(Payer("agent_0", "a0", "chat:p0")))
    return price, budget


async def live(world: World, number: int) -> None:
    """One agent's turns: calls are answered, refused, cut off, or die with their process."""
    chance = world.chance
    person = f"chat:p{number % PERSONS}" if chance.random() < 0.8 else None
    payer = Payer(f"agent_{number}", f"a{number}", person)
    for turn in range(2):
        turn_id = f"turn_{number}_{turn}"
        reservations = reservations_of(world, turn_id, payer)
        messages = [b'{"role":"user","content":"hello"}']
        for call in range(CALLS):
            request = ModelRequest("m", messages, None, f"{turn_id}/{call}/reply", 60.0)
            try:
                hold = await reservations.reserve("v:m", request)
            except BudgetReached:
                break
            assert hold is not None
            if not await outcome(world, reservations, payer, hold, messages):
                reservations = reservations_of(
                    world, turn_id, payer
                )  # taken up again by a new process
            messages = [*messages, b'{"role":"assistant","content":"x"}', b'{"role":"user"}']
            if chance.random() < 0.7:
                await flush(world, reservations)
        if chance.random() < 0.9:
            await reservations.close()


def reservations_of(world: World, turn_id: str, payer: Payer) -> TurnBudget:
    return TurnBudget(
        world.shared, world.database, world.clock, turn_id=turn_id, payer=payer, seconds=60.0
    )


async def flush(world: World, reservations: TurnBudget) -> None:
    charges = reservations.take()
    await world.database.write(lambda tx: reservations.record(tx, charges))


async def outcome(
    world: World, reservations: TurnBudget, payer: Payer, hold: Hold, messages: list[bytes]
) -> bool:
    """Let a call end somehow; False if the process died of it."""
    chance, price = world.chance, world.shared.price("v:m")
    assert price is not None
    most = hold.max_output or 4_096
    size = sum(map(len, messages))
    whole, written = chance.randint(1, size), chance.randint(0, most)
    cached = chance.randint(0, whole)
    usage = Usage(whole, written, cached, chance.randint(0, whole - cached))
    await asyncio.sleep(0)
    match chance.choice(
        ["answered"] * 4 + ["refused", "cut", "cancelled", "died", "died unbilled"]
    ):
        case "answered":
            world.vendor.bill(payer, price.cost(usage))
            reservations.settle(hold, Reply("x", usage=usage))
        case "refused":
            reservations.release(hold)
        case "cut":
            world.vendor.bill(payer, price.cost(usage))
            reservations.presume(hold)
        case "cancelled":
            reservations.presume(hold)
        case "died":
            world.vendor.bill(payer, price.cost(usage))
            return False
        case _:
            return False
    return True


async def check(engine: Engine, price: Price, budget: Budget, seed: int) -> None:
    async with engine() as database:
        shared = Spending(lambda _: price, lambda: budget)
        clock = ManualClock()
        world = World(database, shared, Vendor(), random.Random(seed), clock)

        async def people(tx: Connection) -> None:
            for number in range(AGENTS):
                agent = AgentRecord(f"agent_{number}", f"a{number}", "v:m", "", clock())
                await agents.create(tx, agent)

        await database.write(people)
        await asyncio.gather(*(live(world, number) for number in range(AGENTS)))
        await assert_within(world, budget)
        # What died is presumed by the next start, or by a sweep when its time is over.
        clock.forward(seconds=3_600)
        before = clock() if database.distributed else None
        await database.write(lambda tx: spending.presume_orphans(tx, before))
        totals = await assert_within(world, budget)
        assert all(total.reserved == 0 for total in totals)
        assert all(min(total.spent, total.presumed) >= 0 for total in totals)
        await assert_totals_are_sums(world)


async def assert_within(world: World, budget: Budget) -> list[spending.Total]:
    periods = budget.periods(world.clock())
    totals = await world.database.read(lambda tx: spending.totals(tx, periods.values()))
    counted = {(total.period, total.scope): total.counted for total in totals}
    for number in range(AGENTS):
        for person in (None, f"chat:p{number % PERSONS}"):
            for cap in budget.caps(Payer(f"agent_{number}", f"a{number}", person)):
                assert counted.get((periods[cap.span], cap.scope), 0) <= cap.amount
                assert world.vendor.billed[cap.scope] <= cap.amount
    for scope, amount in world.vendor.billed.items():
        assert all(amount <= counted[period, scope] for period in periods.values())
    return totals


async def assert_totals_are_sums(world: World) -> None:
    sums = await world.database.read(lambda tx: spending.sums(tx, "0000-00-00", "9999-99-99", None))
    totals = await world.database.read(lambda tx: spending.totals(tx, {one.day for one in sums}))
    whole = sum(total.counted for total in totals if total.scope == "all")
    assert whole == sum(one.amount for one in sums)
    by_agent = sum(total.counted for total in totals if total.scope.startswith("agent:"))
    assert by_agent == whole


@pytest.mark.promise("T7")
@pytest.mark.timeout(900 if TORTURE else 120)
@settings(max_examples=300 if TORTURE else 12)
@given(scene=scenes(), seed=st.integers(0, 2**32))
def test_no_cap_is_passed_on_sqlite(scene: tuple[Price, Budget], seed: int) -> None:
    asyncio.run(check(on_sqlite, *scene, seed))


@pytest.mark.postgres
@pytest.mark.promise("T7")
@pytest.mark.timeout(900 if TORTURE else 120)
@settings(max_examples=40 if TORTURE else 3)
@given(scene=scenes(), seed=st.integers(0, 2**32))
def test_no_cap_is_passed_on_postgres(scene: tuple[Price, Budget], seed: int) -> None:
    asyncio.run(check(on_postgres, *scene, seed))
