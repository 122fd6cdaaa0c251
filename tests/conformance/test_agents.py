"""Agents at rest, on either engine: read all at once, they are what each of them is alone."""

from pathlib import Path

import pytest

from asterism.store import agents
from asterism.store.database import Connection
from asterism.types.agents import AgentRecord, Limits
from tests.conformance.memory_scene import ENGINES, NOW, opened

STORED = [
    AgentRecord("agent_1", "zora", "scripted:one", "Be kind.", NOW),
    AgentRecord("agent_2", "aria", "default", "", NOW + 1, tools=("recall", "send")),
    AgentRecord(
        "agent_3", "mila", "a:b, c:d", "Be brief.", NOW + 2, tools=(), limits=Limits(steps=3)
    ),
    AgentRecord("agent_4", "gone", "scripted:one", "", NOW + 3),
]


@pytest.mark.parametrize("engine", ENGINES)
async def test_all_agents_are_read_as_each_of_them_is(engine: str, tmp_path: Path):
    async def put(tx: Connection) -> None:
        for agent in STORED:
            assert await agents.create(tx, agent)
        assert await agents.delete(tx, "agent_4", NOW + 4)

    async def read(tx: Connection) -> tuple[list[AgentRecord], list[AgentRecord | None]]:
        alone = [await agents.by_id(tx, agent.id) for agent in STORED[:3]]
        return await agents.everyone(tx), alone

    async with opened(engine, tmp_path) as database:
        await database.write(put)
        everyone, alone = await database.read(read)
        elsewhere = await database.for_constellation("elsewhere").read(read)
    assert everyone == sorted(STORED[:3], key=lambda one: one.name)
    assert alone == STORED[:3]
    assert elsewhere == ([], [None, None, None])
    assert [hash(one) for one in alone] == [hash(one) for one in STORED[:3]]
