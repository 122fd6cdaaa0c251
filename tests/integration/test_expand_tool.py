"""The tool `expand`: a summary in the context leads back to the exact messages."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random

import orjson
import pytest

from asterism import AgentRecord, Asterism
from asterism.errors import ToolError
from asterism.store import agents, journal, summaries
from asterism.store.database import Connection, Database
from asterism.store.journal import Draft
from asterism.store.postgres import open_postgres
from asterism.store.sqlite import open_sqlite
from asterism.testing.postgres import postgres_server
from asterism.tools.builtin.memory import expand, originals_exact
from asterism.tools.tool import ToolContext
from asterism.turns.compaction import ContextEntry, Strategy, choose, rule_digest
from asterism.types.agents import (
    OWNER_ALONE,
    OWNER_ONLY,
    Audience,
    Participant,
    Participants,
    Trust,
)
from asterism.types.memory import Source
from asterism.types.turns import EntryKind, Summary, text_of
from tests.conversations import MAY_3, TurnShape, told_turns
from tests.scenes import open_home

ARIA = AgentRecord("agent_1", "aria", "a:b", "Be aria.", 0)
ANNA = Audience.read("person:anna")
WITH_ANNA = Participants((Participant("anna"),))


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
async def database(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Database]:
    if request.param == "sqlite":
        database = await open_sqlite(tmp_path / "data")
        yield database
        await database.close()
        return
    with postgres_server().database() as url:
        database = await open_postgres(url)
        yield database
        await database.close()


async def write_journal(database: Database, told: list[ContextEntry]) -> None:
    """Put what was told into the journal at the very numbers that it has."""

    async def work(tx: Connection) -> None:
        await agents.create(tx, ARIA)
        claimed = await journal.claim(tx, ARIA.id)
        assert claimed is not None
        by_seq = {one.seq: one for one in told}
        turn_id = ""
        for seq in range(1, told[-1].seq + 1):
            one = by_seq.get(seq)
            turn_id = one.turn_id if one is not None else turn_id
            draft = (
                Draft(one.kind, str(seq), one.wire, one.at)
                if one is not None
                else Draft(EntryKind.ONCE, str(seq), b"", 0)
            )
            await journal.append(tx, claimed[0], seq - 1, turn_id, [draft])
        for turn_id, one in {one.turn_id: one for one in told}.items():
            await tx.run(
                "INSERT INTO turns (id, agent_id, state, channel, first_seq, last_seq, opened_at,"
                " audience, trust) VALUES (?, ?, 'done', 'test', 1, ?, 7, ?, ?)",
                (turn_id, ARIA.id, told[-1].seq, str(one.audience), one.trust.value),
            )

    await database.write(work)


async def compact(
    database: Database,
    told: list[ContextEntry],
    participants: Participants,
    *,
    strategy: Strategy = Strategy.SUMMARY,
    budget: int = 1,
    former: Summary | None = None,
) -> tuple[Summary, list[ContextEntry]]:
    """Compact what some participants saw, as its context does; return summary and rest."""
    heard = [one for one in told if participants.can_see(one.audience)]
    compaction = choose(heard, strategy, budget_tokens=budget, now=heard[-1].at, former=former)
    assert compaction is not None
    one = Summary(
        id=f"sum_{participants.key.strip('|') or 'x'}_{compaction.first_seq}",
        agent_id=ARIA.id,
        participants=participants.key,
        audience=compaction.audience & participants.audience,
        trust=compaction.trust,
        first_seq=compaction.first_seq,
        last_seq=compaction.last_seq,
        strategy=strategy,
        text=rule_digest(compaction),
        kept=compaction.kept,
        messages=compaction.messages,
        tokens=compaction.tokens,
        made_by="rule",
        at_ms=MAY_3,
    )
    await database.write(lambda tx: summaries.put(tx, one))
    return one, compaction.kept_entries(heard)


async def read(
    database: Database,
    summary: str,
    page: int = 1,
    *,
    participants: Participants = OWNER_ALONE,
    agent: AgentRecord = ARIA,
    trust_levels: list[Trust] | None = None,
    audiences: list[Audience] | None = None,
) -> str:
    async def work(tx: Connection) -> str:
        context = ToolContext(
            agent,
            "turn_x",
            "key",
            MAY_3,
            transaction=tx,
            participants=participants,
            source=Source((), participants.audience),
            trust_levels=trust_levels if trust_levels is not None else [],
            audiences=audiences if audiences is not None else [],
        )
        arguments = expand.read(orjson.dumps({"summary": summary, "page": page}).decode())
        return await expand.run(context, arguments)

    return await database.write(work)


def test_its_description_is_short():
    assert len(orjson.dumps(expand.wire())) // 4 < 150


@pytest.mark.promise("M11")
async def test_a_summary_expands_to_the_exact_messages(database: Database):
    told = told_turns([TurnShape(calls=1, text=f"Line {i}\n  “two” 🚣") for i in range(4)])
    await write_journal(database, told)
    summary, _ = await compact(database, told, OWNER_ALONE)
    text = await read(database, summary.id)
    assert text.startswith(f"{summary.id}: 12 messages, word by word.")
    for one in told[:12]:
        assert text_of(one.wire) in text
        assert one.turn_id in text
    assert '[calls look_up {"what": 0}]' in text
    assert "person, 00:01: Line 0" in text
    assert told[-1].turn_id not in text
    exact = await database.read(lambda tx: originals_exact(tx, ARIA.id, OWNER_ALONE, summary.id))
    assert exact == [one.wire for one in told[:12]]


@pytest.mark.promise("M11")
@pytest.mark.parametrize("strategy", list(Strategy))
async def test_all_summaries_together_hold_every_message_once(
    database: Database, strategy: Strategy
):
    shapes = [TurnShape(calls=i % 2, words=30, parked=(i % 7 == 0) * 2) for i in range(90)]
    told = told_turns(shapes)
    await write_journal(database, told)
    tail: list[ContextEntry] = []
    former: Summary | None = None
    stored: list[Summary] = []
    for one in told:
        tail.append(one)
        if sum(len(one.wire) for one in tail) > 1_200 * 4 and one.kind is EntryKind.MESSAGE:
            former, tail = await compact(
                database, tail, OWNER_ALONE, strategy=strategy, budget=1_200, former=former
            )
            stored.append(former)
    assert len(stored) > 5
    found: list[bytes] = []
    for one in stored:
        exact = await database.read(
            lambda tx, id=one.id: originals_exact(tx, ARIA.id, OWNER_ALONE, id)
        )
        assert exact is not None
        found.extend(exact)
    found.extend(one.wire for one in tail if one.seq > stored[-1].last_seq)
    assert found == [one.wire for one in told]
    # Whoever begins at the latest finds the way back to the first.
    seen, id = [stored[-1].id], stored[-1].id
    while match := re.search(r"earlier summary, (\S+),", await read(database, id)):
        id = match[1]
        seen.append(id)
    assert seen == [one.id for one in reversed(stored)]


async def test_long_ranges_and_long_messages_come_in_pages(database: Database):
    huge = "".join(f"{i:06}:" for i in range(4_000))
    shapes = [TurnShape(words=100)] * 20 + [TurnShape(text=huge)] + [TurnShape(words=100)] * 20
    told = told_turns([*shapes, TurnShape()])
    await write_journal(database, told)
    summary, _ = await compact(database, told, OWNER_ALONE)
    first = await read(database, summary.id)
    match = re.search(r"page 1 of (\d+)\.", first)
    assert match is not None
    count = int(match[1])
    assert first.endswith(f"Page 1 of {count}: call expand again with page 2.")
    pages = [await read(database, summary.id, number) for number in range(1, count + 1)]
    assert all(len(page) < 7_500 for page in pages)
    assert "call expand again" not in pages[-1]
    together = "\n".join(pages)
    for one in told[:-2]:
        text = text_of(one.wire)
        assert text == huge or text in together
    parts = re.findall(r"person \(part \d+ of \d+\), \d\d:\d\d: ([\d:]+)", together)
    assert "".join(parts) == huge
    for wrong in (0, count + 1, -1):
        with pytest.raises(ToolError, match=f"has {count} pages, so there is no page {wrong}"):
            await read(database, summary.id, wrong)


@pytest.mark.promise("M9")
async def test_nobody_expands_what_those_present_may_not_hear(database: Database):
    told = told_turns(
        [
            TurnShape(text="For Anna.", audience=ANNA),
            TurnShape(text="For the owner.", audience=OWNER_ONLY),
            TurnShape(text="Anna again.", audience=ANNA),
            TurnShape(audience=ANNA),
            TurnShape(audience=OWNER_ONLY),
        ]
    )
    await write_journal(database, told)
    of_owner, _ = await compact(database, told, OWNER_ALONE)
    with_anna, _ = await compact(database, told, WITH_ANNA)
    for participants in (
        WITH_ANNA,
        Participants((Participant("carl"),)),
        Participants((Participant("anna"), Participant("b"))),
    ):
        with pytest.raises(ToolError, match="There is no summary"):
            await read(database, of_owner.id, participants=participants)
        assert (
            await database.read(
                lambda tx, who=participants: originals_exact(tx, ARIA.id, who, of_owner.id)
            )
            is None
        )
    for participants in (WITH_ANNA, OWNER_ALONE):
        text = await read(database, with_anna.id, participants=participants)
        assert "For Anna." in text
        assert "For the owner." not in text
    with pytest.raises(ToolError, match="There is no summary"):
        await read(database, with_anna.id, participants=Participants((Participant("carl"),)))


@pytest.mark.promise("M9", "M11")
@pytest.mark.parametrize("strategy", [Strategy.SUMMARY, Strategy.IMPORTANCE])
async def test_each_company_gets_back_all_that_it_heard_and_nothing_else(
    database: Database, strategy: Strategy
):
    chance = Random(7)
    people, rooms = ["anna", "ben", "carl"], ["slack:kitchen", "slack:hall"]
    words = [f"person:{one}" for one in people] + [f"room:{one}" for one in rooms] + ["role:friend"]

    def audience() -> Audience:
        clauses = ["|".join(chance.sample(words, chance.randint(1, 3))) for _ in range(2)]
        options = ["public", "owner", clauses[0], "&".join(clauses)]
        return Audience.read(chance.choice(options))

    def hearer(name: str) -> Participant:
        roles = frozenset(chance.sample(["friend"], chance.randint(0, 1)))
        return Participant(name, roles, frozenset(chance.sample(rooms, chance.randint(0, 2))))

    told = told_turns(
        [TurnShape(calls=i % 2, words=i % 30, audience=audience()) for i in range(120)]
    )
    await write_journal(database, told)
    known = [hearer(name) for name in people]
    companies = {OWNER_ALONE.key: OWNER_ALONE}
    for _ in range(20):
        present = tuple(chance.sample(known, chance.randint(1, 3)))
        shared = [room for room in rooms if all(room in one.rooms for one in present)]
        participants = Participants(present, chance.choice([None, *shared]))
        companies.setdefault(participants.key, participants)
    stored: list[tuple[Summary, Participants]] = []
    for participants in companies.values():
        left = [one for one in told if participants.can_see(one.audience)]
        former: Summary | None = None
        for upto in (90, 200, told[-1].seq):
            part = [one for one in left if one.seq <= upto]
            former, rest = await compact(
                database, part, participants, strategy=strategy, budget=300, former=former
            )
            stored.append((former, participants))
            left = [*rest, *(one for one in left if one.seq > upto)]
    for summary, made_for in stored:
        for participants in companies.values():
            exact = await database.read(
                lambda tx, id=summary.id, who=participants: originals_exact(tx, ARIA.id, who, id)
            )
            heard = [
                one.wire
                for one in told
                if summary.first_seq <= one.seq <= summary.last_seq
                and made_for.can_see(one.audience)
                and participants.can_see(one.audience)
            ]
            if participants is made_for:
                assert exact == heard
            elif exact is not None:
                assert participants.can_see(summary.audience)
                assert [wire for wire in heard if wire in set(exact)] == exact


@pytest.mark.promise("M9")
async def test_a_room_reads_what_all_present_may_hear_and_the_turn_knows_it(database: Database):
    here = Audience.read("room:slack:kitchen")
    told = told_turns(
        [
            TurnShape(text="Between Anna and Ben.", audience=Audience.read("person:anna|person:b")),
            TurnShape(text="In the kitchen.", audience=here),
            TurnShape(audience=here),
        ]
    )
    await write_journal(database, told)
    rooms = frozenset({"slack:kitchen"})
    both = (Participant("anna", rooms=rooms), Participant("b", rooms=rooms))
    alone, room = Participants(both), Participants(both, "slack:kitchen")
    private, _ = await compact(database, told[:3], alone)
    kitchen, _ = await compact(database, [one for one in told if one.audience == here], room)
    assert "Between Anna and Ben." in await read(database, private.id, participants=alone)
    # Carl may join the kitchen tomorrow: that it was quoted is told, so that he does not see it.
    audiences: list[Audience] = []
    assert "Between" in await read(database, private.id, participants=room, audiences=audiences)
    assert not Participants((Participant("carl", rooms=rooms),), "slack:kitchen").can_see(
        room.audience_after_reading(Audience.intersection(audiences))
    )
    text = await read(database, kitchen.id, participants=room)
    assert "In the kitchen." in text
    assert "Between" not in text


@pytest.mark.promise("M10")
async def test_what_is_read_again_is_trusted_as_far_as_it_was(database: Database):
    told = told_turns(
        [
            *[TurnShape(words=200, trust=Trust.KNOWN)] * 5,
            *[TurnShape(words=200, trust=Trust.WEB)] * 5,
            TurnShape(),
        ]
    )
    await write_journal(database, told)
    summary, _ = await compact(database, told, OWNER_ALONE)
    assert summary.trust is Trust.WEB
    first: list[Trust] = []
    await read(database, summary.id, 1, trust_levels=first)
    assert first == [Trust.KNOWN]
    later: list[Trust] = []
    await read(database, summary.id, 2, trust_levels=later)
    assert Trust.WEB in later


async def test_a_summary_of_another_agent_or_of_nobody_is_not_there(database: Database):
    told = told_turns([TurnShape()] * 3)
    await write_journal(database, told)
    summary, _ = await compact(database, told, OWNER_ALONE)
    other = AgentRecord("agent_2", "ben", "a:b", "", 0)
    with pytest.raises(ToolError, match=f"There is no summary '{summary.id}'"):
        await read(database, summary.id, agent=other)
    for wrong in ("", "sum_0", "🚣", "' OR 1=1 --"):
        with pytest.raises(ToolError, match=r"There is no summary .* begins with sum_"):
            await read(database, wrong)


@pytest.mark.promise("M11")
async def test_an_agent_reads_again_what_was_folded(tmp_path: Path):
    async with open_home(tmp_path, tools=[expand]) as home:
        agent = await home.agents.create("aria")
        await home.agents.ask("aria", "My boat is called Wilma.")
        length = await home.database.read(lambda tx: journal.length_of(tx, agent.id))
        summary = Summary(
            id="sum_1",
            agent_id=agent.id,
            participants=OWNER_ALONE.key,
            audience=OWNER_ONLY,
            trust=Trust.OWNER,
            first_seq=1,
            last_seq=length,
            strategy=Strategy.SUMMARY,
            text="A boat.",
            kept=(),
            messages=2,
            tokens=10,
            made_by="rule",
            at_ms=0,
        )
        await home.database.write(lambda tx: summaries.put(tx, summary))
        outcome = await home.agents.ask("aria", '[[call:expand {"summary": "sum_1"}]]')
        results = await results_of(home, outcome.turn_id)
        assert "person, " in results[0]
        assert "My boat is called Wilma." in results[0]
        outcome = await home.agents.ask("aria", '[[call:expand {"summary": "sum_2", "page": "x"}]]')
        assert "page" in (await results_of(home, outcome.turn_id))[0]


async def results_of(home: Asterism, turn_id: str) -> list[str]:
    _, entries = await home.turns.get(turn_id)
    return [text_of(entry.body) for entry in entries if entry.kind is EntryKind.RESULT]
