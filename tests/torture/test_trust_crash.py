"""A crash between what an approved call brought in and its answer does not make it the owner's."""

import asyncio
from pathlib import Path

import pytest

from asterism import Asterism
from asterism.ports import ModelRequest
from asterism.store.sqlite import open_sqlite
from asterism.testing.scripted import ScriptedModel
from asterism.types.agents import Rule, RuleKind
from asterism.types.turns import Reply
from tests.conftest import TORTURE
from tests.integration.test_trust import (
    INJECTED,
    PAY,
    READ,
    THIEF,
    World,
    asks,
    insert,
    say,
    script,
)
from tests.scenes import calls, heard, open_home, until
from tests.torture.test_state_machine import Mortal, MortalDatabase

LAST_WRITE = 8
"""Before that many writes after the approval, the turn has asked about the payment."""


def search_and_pay(request: ModelRequest) -> Reply | str:
    """Look the rent up, then pay whom the archive names."""
    step = int(request.key.split("/")[1])
    search = ("recall", '{"operation": "search", "text": "rent"}')
    return [calls(search), calls(PAY), "done"][min(step, 2)]


async def prepare(place: Path, world: World) -> None:
    """Make an agent whose archive holds what a page said, and whose context has never seen it."""
    model = script([READ, "a page"], [calls(("recall", insert(INJECTED))), "noted"])
    async with open_home(place, model, tools=world.tools()) as home:
        await home.agents.create("aria")
        await say(home, "Have a look at the page.")
        await say(home, "Thanks!")
        await home.agents.create("carl")
        await home.rules.add("carl", Rule("recall", RuleKind.CONSENT))
        await home.memory.import_("carl", await home.memory.export("aria"))


async def live_until(place: Path, world: World, nth: int) -> bool:
    """Approve what was asked and die at the nth write after that; False if it was not needed."""
    mortal = Mortal()
    database = MortalDatabase(await open_sqlite(place), mortal)
    model = ScriptedModel.from_rule(search_and_pay)
    opened = open_home(place, model, database=database, tools=world.tools(), grace=5.0)
    home = await opened.__aenter__()
    await say(home, "See to the rent.", "carl")
    (question,) = await home.approvals.list()
    mortal.doom(nth, durable=True)

    async def approve() -> None:
        await home.turns.wait(await home.approvals.decide(question.id, approved=True))

    approving = asyncio.ensure_future(approve())
    dying = asyncio.ensure_future(mortal.died.wait())
    async with asyncio.timeout(20):
        await asyncio.wait({approving, dying}, return_when=asyncio.FIRST_COMPLETED)
        died = mortal.died.is_set()
        while died and (dropped := asyncio.all_tasks() - {asyncio.current_task()}):
            for task in dropped:
                task.cancel()
            await asyncio.wait(dropped, timeout=0.1)
        dying.cancel()
        mortal.doom(0, durable=False)
        await opened.__aexit__(None, None, None)
    return died


async def paid_or_asked(home: Asterism, world: World) -> bool:
    """Whether something came of it."""
    return bool(world.paid) or await asks(home)


@pytest.mark.promise("X6", "T2")
@pytest.mark.timeout(400)
async def test_result_of_an_approved_call_keeps_its_trust_through_a_crash(tmp_path: Path):
    deaths = 0
    for nth in range(1, LAST_WRITE):
        world, place = World(), tmp_path / str(nth)
        await prepare(place, world)
        deaths += await live_until(place, world, nth)
        model = ScriptedModel.from_rule(search_and_pay)
        async with open_home(place, model, tools=world.tools()) as home:
            await until(lambda home=home, world=world: paid_or_asked(home, world))
            if model.requests:
                assert THIEF in str(heard(model.requests[-1])), "nothing was found"
        assert world.paid == [], f"paid after a crash at write {nth}"
    assert deaths > 2


if TORTURE:
    pytestmark = pytest.mark.torture
