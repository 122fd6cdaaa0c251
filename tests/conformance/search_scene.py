"""What tests of search play with: passages, summaries, sources, and questions to them."""

from collections.abc import Sequence
from typing import Any

from asterism.memory.gate import passages as gate
from asterism.memory.gate.passages import NewPassage
from asterism.search.search import search
from asterism.store.database import Connection, Database
from asterism.types.agents import OWNER, OWNER_ALONE, PUBLIC, Participant, Participants, Trust
from asterism.types.memory import Insert, Origin, OriginKind, Source
from asterism.types.search import Hit, Query, SearchResult
from tests.conformance.memory_scene import HOME, HOUR, NOW, as_agent, as_owner

DAY = 24 * HOUR
ANNA = Participants((Participant("person_anna"),))
ONE, TWO = "agent_home_aria", "agent_home_bea"


async def ask(
    database: Database,
    agent_id: str | None,
    query: str,
    participants: Participants = OWNER_ALONE,
    now: int = NOW + HOUR,
    **given: Any,
) -> SearchResult:
    """Ask memory something."""
    wanted = Query(query, **given)
    return await database.read(
        lambda tx: search(tx, agent_id, wanted, participants=participants, now=now)
    )


async def find(
    database: Database,
    agent_id: str | None,
    query: str,
    participants: Participants = OWNER_ALONE,
    **given: Any,
) -> list[Hit]:
    """Return what is found."""
    return (await ask(database, agent_id, query, participants, **given)).hits


async def texts(
    database: Database,
    agent_id: str | None,
    query: str,
    participants: Participants = OWNER_ALONE,
    **given: Any,
) -> list[str]:
    """Return the texts that are found by their own words, or as the newest."""
    hits = await find(database, agent_id, query, participants, **given)
    return [hit.text for hit in hits if hit.matched or hit.reason == "newest"]


async def insert(database: Database, agent_id: str, text: str, **given: Any) -> str:
    """Store a passage; return its id."""
    now = given.pop("now", NOW)
    participants = given.pop("participants", OWNER_ALONE)
    trust = given.pop("trust", Trust.OWNER)
    writer = as_agent(agent_id, now, participants=participants, trust=trust)
    done = await database.write(lambda tx: gate.write(tx, writer, agent_id, Insert(text, **given)))
    return done.passage.id


async def put_summary(
    tx: Connection,
    agent_id: str,
    text: str,
    audience: str = OWNER,
    id: str = "sum_1",
    at: int = NOW,
) -> None:
    """Put a summary at rest."""
    await tx.run(
        "INSERT INTO summaries VALUES (?, ?, ?, ?, 'owner', 1, 1, 'summary', ?, '[]', 1, 1,"
        " 'rule', ?)",
        (id, agent_id, id, audience, text, at),
    )


async def put_source(
    tx: Connection, id: str, name: str, document: str, parts: Sequence[str]
) -> None:
    """Put a source at rest, with one document."""
    await tx.run(
        "INSERT INTO sources VALUES (?, ?, ?, '/', '{}', 'public', 0, NULL)", (id, HOME, name)
    )
    source = Source(
        (Origin(OriginKind.DOCUMENT, f"{name}/{document}", "page 1"),), PUBLIC, Trust.DOCUMENT
    )
    rows = [
        NewPassage(text, source, document=document, place=place)
        for place, text in enumerate(parts, 1)
    ]
    await gate.insert_many(tx, as_owner(), id, rows)


async def attach(database: Database, source_id: str, agent_id: str) -> None:
    """Let an agent read a source."""
    await database.write(
        lambda tx: tx.run("INSERT INTO source_agents VALUES (?, ?, 0)", (source_id, agent_id))
    )
