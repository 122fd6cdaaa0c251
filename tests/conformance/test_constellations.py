"""Constellations that share a database, on both engines: none sees what another has."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from asterism import secrets
from asterism.errors import NotFound
from asterism.memory import archive, blocks, export, health, history, people
from asterism.memory.blocks import CONSTELLATION
from asterism.memory.gate import blocks as gate
from asterism.memory.gate import passages as gate_of_archive
from asterism.memory.why import why
from asterism.search.search import search
from asterism.store import (
    agents,
    approvals,
    documents,
    events,
    forgetting,
    journal,
    messages,
    passages,
    search_index,
    summaries,
)
from asterism.store.database import Connection, Database
from asterism.store.events import Event, home_chain
from asterism.turns.context import load
from asterism.types.agents import (
    OWNER_ALONE,
    PUBLIC,
    Account,
    AgentRecord,
    Halt,
    ToolSpec,
    Trust,
)
from asterism.types.documents import DocumentSource
from asterism.types.memory import Append, Insert, Retract
from asterism.types.permissions import ApprovalRecord, Grant
from asterism.types.search import Query
from asterism.types.turns import MessageOrigin, Notice, Strategy, Summary, message_wire
from tests.conformance.memory_scene import (
    ENGINES,
    HOME,
    NOW,
    as_agent,
    as_owner,
    opened,
    put_agent,
    put_turn,
)

pytestmark = pytest.mark.parametrize("engine", ENGINES)

ANNA = Account("mail", "anna@example.org")


@pytest.fixture
async def database(engine: str, tmp_path: Path) -> AsyncIterator[Database]:
    async with opened(engine, tmp_path) as database:
        yield database


@dataclass(frozen=True)
class Things:
    """The ids of what one constellation has."""

    agent: str
    person: str
    block: str
    passage: str


async def furnish(tx: Connection) -> Things:
    """Put something of every kind into the constellation of a transaction."""
    agent_id = await put_agent(tx, "aria")
    anna = await people.person_for(tx, ANNA, NOW)
    await people.meet(tx, ANNA, "mail:list", [], NOW)
    await gate.create(tx, as_owner(), agent_id, "notes", content="aria notes tea")
    block = await gate.create(tx, as_owner(), CONSTELLATION, "house", content="the house is cold")
    written = await gate_of_archive.write(tx, as_agent(agent_id), agent_id, Insert("tea is in"))
    await documents.create(tx, DocumentSource("source_1", "docs", "/docs"))
    origin = MessageOrigin("cli")
    await messages.put_message(tx, agent_id, "msg_2", message_wire("user", "hello"), origin, NOW)
    await messages.accept_once(tx, "mail", "<1>", "msg_2", agent_id)
    await put_turn(tx, agent_id, "turn_1", "is there tea?", "there is tea")
    await summaries.put(
        tx,
        Summary(
            *("sum_1", agent_id, "owner", PUBLIC, Trust.OWNER, 1, 2, Strategy.SUMMARY),
            *("They spoke of tea.", (), 2, 4, "rule", NOW),
        ),
    )
    asked = ApprovalRecord("ap_1", agent_id, "turn_1", "0/call/0", "May I?", NOW, expires_at_ms=NOW)
    await approvals.put(tx, asked)
    await tx.run("UPDATE turns SET ended_at = NULL WHERE id = 'turn_1'")  # it waits for the answer
    await approvals.put_grant(tx, Grant("grant_1", tx.constellation, "pay", given_at_ms=NOW))
    await agents.put_halt(tx, Halt("halt_1", None, None, "high", "stop", NOW))
    await agents.put_tool(tx, ToolSpec("add", "Adds.", {}, python="def run(): ..."), "owner", NOW)
    await agents.put_notice(tx, Notice("notice_1", agent_id, None, "warning", "low on tea", NOW))
    row = secrets.SecretRow("openai", secrets.EncryptedText(b"c", b"n"), "key_1", NOW, None)
    await secrets.put_secret(tx, row)
    await events.append(tx, home_chain(tx.constellation), [Event("key.set", "owner", NOW, {})])
    await forgetting.put_tombstone(tx, ("tomb_1", "owner", "", "{}", "{}", NOW))
    return Things(agent_id, anna.id, block.id, written.passage.id)


READS: dict[str, Callable[[Connection, Things], Awaitable[Any]]] = {
    "agents.everyone": lambda tx, _: agents.everyone(tx),
    "agents.by_name": lambda tx, _: agents.by_name(tx, "aria"),
    "agents.by_name, an id": lambda tx, it: agents.by_name(tx, it.agent),
    "agents.by_id": lambda tx, it: agents.by_id(tx, it.agent),
    "agents.is_agent_of": lambda tx, it: agents.is_agent_of(tx, it.agent),
    "agents.current_halt": lambda tx, _: agents.current_halt(tx),
    "agents.registered_tools": lambda tx, _: agents.registered_tools(tx),
    "agents.list_notices": lambda tx, _: agents.list_notices(tx, unseen=True, most=9),
    "people.all_people": lambda tx, _: people.all_people(tx),
    "people.get_person": lambda tx, it: people.get_person(tx, it.person),
    "people.person_of_account": lambda tx, _: people.person_of_account(tx, ANNA),
    "people.accounts_of": lambda tx, it: people.accounts_of(tx, it.person),
    "people.members": lambda tx, _: people.members(tx, "mail:list"),
    "blocks.seen_by": lambda tx, it: blocks.seen_by(tx, it.agent),
    "blocks.seen_by, all": lambda tx, _: blocks.seen_by(tx, None),
    "blocks.find": lambda tx, _: blocks.find(tx, None, "house"),
    "passages.get": lambda tx, it: passages.get(tx, it.passage),
    "passages.archive": lambda tx, it: passages.archive(tx, it.agent),
    "passages.inserted_by": lambda tx, _: passages.inserted_by(tx, "turn_1"),
    "archive.get": lambda tx, it: archive.get(tx, it.passage),
    "documents.sources": lambda tx, _: documents.sources(tx),
    "documents.named": lambda tx, _: documents.by_name(tx, "docs"),
    "messages.waiting": lambda tx, _: messages.waiting(tx),
    "messages.waiting, of an agent": lambda tx, it: messages.waiting(tx, it.agent),
    "messages.find": lambda tx, _: messages.find(tx, "msg_2"),
    "messages.count": lambda tx, _: messages.count(tx),
    "journal.turn": lambda tx, _: journal.turn(tx, "turn_1"),
    "journal.turns_of": lambda tx, it: journal.turns_of(tx, it.agent, 9),
    "summaries.get": lambda tx, _: summaries.get(tx, "sum_1"),
    "approvals.get": lambda tx, _: approvals.get(tx, "ap_1"),
    "approvals.waiting": lambda tx, _: approvals.waiting(tx),
    "approvals.live_grants": lambda tx, it: approvals.live_grants(tx, it.agent, NOW),
    "approvals.get_grant": lambda tx, _: approvals.get_grant(tx, "grant_1"),
    "secrets.list_secrets": lambda tx, _: secrets.list_secrets(tx),
    "events.page": lambda tx, _: events.page(tx),
    "forgetting.tombstones": lambda tx, _: forgetting.tombstones(tx),
    "search_index.owners": lambda tx, _: search_index.owners(tx),
    "history.as_of": lambda tx, it: history.as_of(tx, it.agent, NOW + 1),
    "export": lambda tx, it: export.export(tx, it.agent),
    "health": lambda tx, it: health.health(tx, it.agent, now=NOW),
    "why": lambda tx, it: why(tx, it.passage),
    "why, of a summary": lambda tx, _: why(tx, "sum_1"),
    "search": lambda tx, it: search(tx, it.agent, Query("tea"), participants=OWNER_ALONE, now=NOW),
}


@pytest.mark.promise("X1")
async def test_a_transaction_reads_nothing_of_another_constellation(database: Database) -> None:
    there = await database.write(furnish)
    other = database.for_constellation("other")

    async def nothing(tx: Connection, name: str) -> bool:
        try:
            return not await READS[name](tx, there)
        except NotFound:
            return True

    seen = {name for name in READS if not await database.read(lambda tx, n=name: nothing(tx, n))}
    leaked = {name for name in READS if not await other.read(lambda tx, n=name: nothing(tx, n))}
    assert seen == set(READS)
    assert leaked == set()


WRITES: dict[str, Callable[[Connection, Things], Awaitable[Any]]] = {
    "agents.delete": lambda tx, it: agents.delete(tx, it.agent, NOW),
    "agents.edit": lambda tx, it: agents.edit(tx, AgentRecord(it.agent, "ben", "a:b", "", NOW)),
    "agents.lift_halt": lambda tx, _: agents.lift_halt(tx, "owner", NOW),
    "agents.remove_tool": lambda tx, _: agents.remove_tool(tx, "add", NOW),
    "people.rename": lambda tx, it: people.rename(tx, it.person, "Ben"),
    "people.drop_account": lambda tx, _: people.drop_account(tx, ANNA),
    "gate.write": lambda tx, it: gate.write(tx, as_owner(), it.block, Append("and wet")),
    "gate of the archive": lambda tx, it: gate_of_archive.write(
        tx, as_owner(), it.agent, Retract(it.passage)
    ),
    "messages.stop": lambda tx, _: messages.stop(tx, "msg_2", "no"),
    "approvals.revoke_grant": lambda tx, _: approvals.revoke_grant(tx, "grant_1", NOW),
    "secrets.remove_secret": lambda tx, _: secrets.remove_secret(tx, "openai"),
}


@pytest.mark.promise("X1")
async def test_a_transaction_changes_nothing_of_another_constellation(database: Database) -> None:
    there = await database.write(furnish)
    other = database.for_constellation("other")

    async def refused(tx: Connection, name: str) -> bool:
        try:
            return not await WRITES[name](tx, there)
        except NotFound:
            return True

    for name in WRITES:
        assert await other.write(lambda tx, n=name: refused(tx, n)), name
    for name in reversed(WRITES):  # the agent is deleted last
        assert not await database.write(lambda tx, n=name: refused(tx, n)), name


async def test_the_same_names_mean_something_else_elsewhere(database: Database) -> None:
    """Names, accounts and numbers of others do not stand in the way."""

    async def work(tx: Connection) -> tuple[str, str]:
        agent_id = await put_agent(tx, "aria")
        await gate.create(tx, as_owner(), CONSTELLATION, "house", content=tx.constellation)
        await documents.create(tx, DocumentSource(f"source_{agent_id}", "docs", "/docs"))
        assert await messages.accept_once(tx, "mail", "<1>", f"msg_{agent_id}", agent_id) is None
        return agent_id, (await people.person_for(tx, ANNA, NOW)).id

    views = [database, *(database.for_constellation(name) for name in ("one", "two"))]
    made = [await view.write(work) for view in views]
    assert len(set(made)) == 3
    for view, (agent_id, person_id) in zip(views, made, strict=True):
        assert [one.id for one in await view.read(agents.everyone)] == [agent_id]
        assert await view.read(lambda tx: people.person_of_account(tx, ANNA)) == person_id
        seen = await view.read(lambda tx: blocks.find(tx, None, "house"))
        assert [line.text for line in seen.lines] == [view.constellation]


async def test_transactions_at_once_are_each_of_their_own_constellation(database: Database) -> None:
    """Several are committed together, and connections are used again by whoever comes next."""
    names = [f"tenant {number}" for number in range(5)]

    async def write(tx: Connection, number: int) -> str:
        async with tx.savepoint():
            await put_agent(tx, f"agent {number}")
        if number % 3 == 0:
            raise NotFound("changed its mind")
        return tx.constellation

    async def take(number: int) -> None:
        view = database.for_constellation(names[number % 5])
        try:
            assert await view.write(lambda tx: write(tx, number)) == view.constellation
        except NotFound:
            assert number % 3 == 0
        assert await view.read(_whose) == view.constellation
        assert await database.read(_whose) == HOME

    await asyncio.gather(*(take(number) for number in range(60)))
    for place, name in enumerate(names):
        found = await database.for_constellation(name).read(agents.everyone)
        assert {one.name for one in found} == {
            f"agent {number}" for number in range(60) if number % 5 == place and number % 3
        }
    assert await database.read(agents.everyone) == []


async def _whose(tx: Connection) -> str:
    return tx.constellation


async def test_a_view_of_a_view_is_one_of_the_database(database: Database) -> None:
    view = database.for_constellation("other")
    assert view.constellation == "other"
    assert view.distributed == database.distributed
    assert view.for_constellation(HOME) is database
    assert view.for_constellation("third").constellation == "third"
    assert await view.columns() == await database.columns()


@pytest.mark.promise("X1")
async def test_a_lane_takes_an_agent_into_its_own_constellation(database: Database) -> None:
    """Lanes are shared by all, and a turn sees what its agent's constellation has."""
    other = database.for_constellation("other")
    agent_id = await other.write(lambda tx: put_agent(tx, "aria"))
    live = await load(database, agent_id, None)
    assert live.database.constellation == "other"
    assert live.agent.id == agent_id
    own = await database.write(lambda tx: put_agent(tx, "aria"))
    assert (await load(database, own, None)).database is database
    with pytest.raises(NotFound):
        await load(database, "agent_none", None)
