"""What tests of memory in the store play with: a database of either engine, agents, writers."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import settings

from asterism.memory.gate.writer import Writer
from asterism.permissions import Actor
from asterism.store import agents, journal
from asterism.store.database import Connection, Database
from asterism.store.journal import Draft
from asterism.store.postgres import open_postgres
from asterism.store.sqlite import open_sqlite
from asterism.testing.postgres import postgres_server
from asterism.types.agents import OWNER_ALONE, AgentRecord, Participants, Trust
from asterism.types.memory import Origin, OriginKind, Source
from asterism.types.turns import Entry, EntryKind, TurnRecord, TurnState, message_wire
from tests.conftest import TORTURE

HOME = "home"
NOW = 1_790_000_000_000
HOUR = 3_600_000
ENGINES = ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)]


def examples_on(engine: str) -> settings:
    """How many scripts are tried: a server takes much longer, and SQLite finds the same faults."""
    few, many = (40, 300) if engine == "sqlite" else (6, 40)
    return settings(max_examples=many if TORTURE else few)


@asynccontextmanager
async def opened(engine: str, place: Path) -> AsyncGenerator[Database, None]:
    """Open a new database of an engine."""
    if engine == "sqlite":
        database: Database = await open_sqlite(place / "data")
        yield database
        await database.close()
        return
    with postgres_server().database() as url:
        database = await open_postgres(url)
        yield database
        await database.close()


async def put_agent(tx: Connection, name: str) -> str:
    """Put an agent at rest; return its id."""
    agent = AgentRecord(f"agent_{tx.constellation}_{name}", name, "scripted:one", "", NOW)
    assert await agents.create(tx, agent)
    return agent.id


def as_agent(
    agent_id: str,
    now: int = NOW,
    *,
    participants: Participants = OWNER_ALONE,
    turn_id: str = "turn_1",
    trust: Trust = Trust.OWNER,
    origins: Sequence[Origin] | None = None,
) -> Writer:
    """Whoever writes as an agent in a turn, with participants."""
    source = Source(
        tuple(origins or (Origin(OriginKind.MESSAGE, turn_id),)), participants.audience, trust
    )
    return Writer(
        actor=Actor("agent", agent_id, agent_id.rpartition("_")[2], trust),
        source=source,
        now=now,
        agent_id=agent_id,
        participants=participants,
        turn_id=turn_id,
    )


def as_owner(now: int = NOW) -> Writer:
    """The owner, with their own hands."""
    return Writer.owner(now)


async def put_turn(
    tx: Connection,
    agent_id: str,
    turn_id: str,
    said: str,
    answered: str = "",
    *,
    at: int = NOW,
    audience: str | None = None,
    trust: str | None = None,
    more: Sequence[Draft] = (),
) -> list[Entry]:
    """Put a turn that has ended at rest: what was said, what was answered, and more."""
    drafts = [Draft(EntryKind.MESSAGE, "in", message_wire("user", said), at)]
    if answered:
        drafts.append(
            Draft(EntryKind.REPLY, "0/reply", message_wire("assistant", answered), at + 1)
        )
    drafts += more
    found = await journal.standing(tx, agent_id)
    assert found is not None
    claim, length = found
    await journal.append(tx, claim, length, turn_id, drafts)
    record = TurnRecord(
        turn_id, agent_id, TurnState.DONE, "cli", None, length + 1, length + len(drafts), at, at
    )
    await journal.open_turn(tx, record, record.last_seq)
    await tx.run(
        "UPDATE turns SET audience = ?, trust = ? WHERE id = ?", (audience, trust, turn_id)
    )
    return await journal.entries_of(tx, replace(record, last_seq=record.last_seq))
