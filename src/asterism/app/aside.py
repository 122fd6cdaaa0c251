"""A question to an agent's model outside of any turn, paid for like one."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from asterism.ports import ModelRequest, Profile, Question
from asterism.turns.spending import TurnPurse
from asterism.turns.turn import Means
from asterism.types.agents import Agent
from asterism.types.spending import Payer
from asterism.types.turns import message_wire

_log = logging.getLogger(__name__)
_SECONDS = 60.0
_SHORT = 64


def tell_log(kind: str, text: str) -> None:
    """Note what an owner would be told in a turn."""
    _log.warning("%s: %s", kind, text)


@asynccontextmanager
async def purse_for(means: Means, agent: Agent, key: str) -> AsyncGenerator[TurnPurse | None]:
    """Yield the money for what no turn pays for, and settle it; None where none is counted."""
    if means.spending is None:
        yield None
        return
    purse = TurnPurse(
        means.spending,
        means.database,
        means.clock,
        turn_id=key,
        payer=Payer(agent.id, agent.name, None),
        seconds=agent.limits.seconds,
        write=means.database.write,
    )
    try:
        yield purse
    finally:
        charges = purse.take(ended=True)
        await means.database.write(lambda tx: purse.record(tx, charges))
        await purse.close()


async def ask_aside(means: Means, agent: Agent, text: str, key: str) -> str:
    """Return a short answer of an agent's model; raise `ModelError` or `BudgetReached`."""

    def compose(model: str, profile: Profile, too_long: int) -> ModelRequest:
        del profile, too_long
        return ModelRequest(
            model=model.partition(":")[2],
            messages=[message_wire("user", text)],
            tools=None,
            key=f"{key}/0",
            timeout=_SECONDS,
            agent_id=agent.id,
            frozen=0,
            max_output=_SHORT,
        )

    async with purse_for(means, agent, key) as purse:
        question = Question(means.chain(agent.model), compose, purse, tell_log)
        return (await means.ask(question)).text
