"""Summaries at rest: written once, chained by range, and back to the exact originals."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from asterism import AgentRecord
from asterism.errors import Conflict
from asterism.store import agents, journal, summaries
from asterism.store.database import Connection, Database
from asterism.store.journal import Draft
from asterism.store.postgres import open_postgres
from asterism.store.sqlite import open_sqlite
from asterism.testing.postgres import postgres_server
from asterism.types.agents import OWNER_ONLY, PUBLIC, Audience, Participant, Participants, Trust
from asterism.types.turns import EntryKind, Strategy, Summary, message_wire

ARIA = AgentRecord("agent_1", "aria", "a:b", "Be aria.", 0)
ANNA = Audience.read("person:anna")
FAMILY = Audience.read("person:anna|person:ben")
OWNER = Participants()
ALONE_WITH_ANNA = Participants((Participant("anna"),))
STRANGER = Participants((Participant("carl"),))


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


def summary(first: int, last: int, **given: object) -> Summary:
    one = Summary(
        id=f"sum_{first}_{last}",
        agent_id=ARIA.id,
        participants="owner",
        audience=PUBLIC,
        trust=Trust.KNOWN,
        first_seq=first,
        last_seq=last,
        strategy=Strategy.SUMMARY,
        text="Ada rows. 🚣",
        kept=(),
        messages=last - first + 1,
        tokens=12,
        made_by="rule",
        at_ms=1_000,
    )
    return replace(one, **given)


async def tell(
    database: Database, turns: Sequence[tuple[str, Audience | None, int]]
) -> list[tuple[int, bytes]]:
    """Write turns with (id, audience, messages), two entries that no model sees after each."""
    written: list[tuple[int, bytes]] = []

    async def work(tx: Connection) -> None:
        await agents.create(tx, ARIA)
        claimed = await journal.claim(tx, ARIA.id)
        assert claimed is not None
        length = 0
        for turn_id, audience, count in turns:
            drafts = [
                Draft(EntryKind.MESSAGE, str(i), message_wire("user", f"{turn_id} {i}"), 7)
                for i in range(count)
            ]
            written.extend((seq, draft.body) for seq, draft in enumerate(drafts, length + 1))
            drafts += [Draft(EntryKind.BEGUN, "b", b"", 7), Draft(EntryKind.ONCE, "e", b"", 7)]
            await journal.append(tx, claimed[0], length, turn_id, drafts)
            await tx.run(
                "INSERT INTO turns (id, agent_id, state, channel, first_seq, last_seq, opened_at,"
                " audience) VALUES (?, ?, 'done', 'test', ?, ?, 7, ?)",
                (
                    turn_id,
                    ARIA.id,
                    length + 1,
                    length + len(drafts),
                    str(audience) if audience is not None else None,
                ),
            )
            length += len(drafts)

    await database.write(work)
    return written


async def test_a_summary_comes_back_as_it_was(database: Database):
    one = summary(
        3,
        9,
        audience=ANNA & FAMILY,
        trust=Trust.WEB,
        strategy=Strategy.IMPORTANCE,
        kept=(4, 5),
        text="a\nb",
        made_by="scripted:one",
    )
    assert await database.write(lambda tx: agents.create(tx, ARIA))
    assert await database.write(lambda tx: summaries.put(tx, one)) == one
    assert await database.read(lambda tx: summaries.get(tx, one.id)) == one
    assert await database.read(lambda tx: summaries.get(tx, "sum_0")) is None


async def test_text_that_no_store_keeps_is_stored_without_it(database: Database):
    await database.write(lambda tx: summaries.put(tx, summary(1, 2, text="a\x00b")))
    (one,) = await database.read(lambda tx: summaries.of_agent(tx, ARIA.id))
    assert one.text == "a\ufffdb"


@pytest.mark.promise("M11")
async def test_a_summary_is_written_once(database: Database):
    first = summary(1, 9)
    await database.write(lambda tx: summaries.put(tx, first))
    for again in (replace(first, text="other"), replace(first, id="sum_x", text="other")):
        assert await database.write(lambda tx, one=again: summaries.put(tx, one)) == first
    elsewhere = replace(first, id="sum_y", participants="anna")
    assert await database.write(lambda tx: summaries.put(tx, elsewhere)) == elsewhere
    assert len(await database.read(lambda tx: summaries.of_agent(tx, ARIA.id))) == 2


async def test_ranges_of_one_company_do_not_overlap(database: Database):
    await database.write(lambda tx: summaries.put(tx, summary(1, 9)))
    for first, last in ((9, 12), (2, 4), (1, 10)):
        with pytest.raises(Conflict, match="sum_1_9 stands for 1 to 9"):
            await database.write(
                lambda tx, first=first, last=last: summaries.put(tx, summary(first, last))
            )
    await database.write(lambda tx: summaries.put(tx, summary(10, 12)))
    found = await database.read(lambda tx: summaries.of_agent(tx, ARIA.id))
    assert [one.id for one in found] == ["sum_1_9", "sum_10_12"]


async def test_summaries_are_found_by_agent_company_and_place(database: Database):
    stored = [
        summary(1, 9),
        summary(10, 19),
        summary(20, 29),
        summary(5, 40, id="sum_room", participants="room"),
        summary(1, 99, id="sum_other", agent_id="agent_2"),
    ]

    async def work(tx: Connection) -> None:
        for one in reversed(stored):
            await summaries.put(tx, one)

    await database.write(work)

    async def ids(**given: object) -> list[str]:
        found = await database.read(
            lambda tx: summaries.of_agent(tx, ARIA.id, **given)  # pyright: ignore[reportArgumentType] - by name
        )
        return [one.id for one in found]

    assert await ids() == ["sum_1_9", "sum_10_19", "sum_20_29", "sum_room"]
    assert await ids(participants="owner") == ["sum_1_9", "sum_10_19", "sum_20_29"]
    assert await ids(participants="owner", before_seq=20) == ["sum_1_9", "sum_10_19"]
    assert await ids(before_seq=9) == []
    for before, wanted in ((None, stored[2]), (20, stored[1]), (19, stored[0]), (1, None)):
        found = await database.read(
            lambda tx, before=before: summaries.latest(tx, ARIA.id, "owner", before)
        )
        assert found == wanted
    assert await database.read(lambda tx: summaries.latest(tx, ARIA.id, "nobody")) is None


@pytest.mark.promise("M9", "M11")
async def test_originals_are_those_that_the_company_of_the_summary_heard(database: Database):
    turns = [
        ("turn_1", PUBLIC, 2),
        ("turn_2", None, 2),
        ("turn_3", ANNA, 2),
        ("turn_4", FAMILY, 2),
        ("turn_5", Audience.read("person:ben"), 2),
        ("turn_6", OWNER_ONLY, 2),
    ]
    written = await tell(database, turns)

    async def shown(one: Summary, participants: Participants) -> list[str]:
        found = await database.read(lambda tx: summaries.originals(tx, one, participants.can_see))
        assert [(entry.seq, entry.body) for entry in found] == [
            (seq, body) for seq, body in written if seq in {entry.seq for entry in found}
        ]
        outline = await database.read(lambda tx: summaries.outline(tx, one, participants.can_see))
        assert [(place.seq, place.size) for place in outline] == [
            (entry.seq, len(entry.body)) for entry in found
        ]
        return sorted({entry.turn_id for entry in found})

    with_anna = summary(1, 24, participants="anna", audience=ANNA & FAMILY)
    assert await shown(with_anna, ALONE_WITH_ANNA) == ["turn_1", "turn_3", "turn_4"]
    # The owner hears everything, and yet sees of this summary what it is made of.
    assert await shown(with_anna, OWNER) == ["turn_1", "turn_3", "turn_4"]
    assert await shown(with_anna, STRANGER) == ["turn_1"]
    of_all = summary(
        1,
        24,
        audience=Audience.intersection([ANNA, FAMILY, OWNER_ONLY]) & (Audience.read("person:ben")),
    )
    assert await shown(of_all, OWNER) == [turn[0] for turn in turns]
    assert await shown(of_all, ALONE_WITH_ANNA) == ["turn_1", "turn_3", "turn_4"]
    # What stayed in full belongs to the range as well, though not to what was summarised.
    narrow = summary(1, 24, audience=PUBLIC, kept=(9, 10))
    assert await shown(narrow, ALONE_WITH_ANNA) == ["turn_1", "turn_3"]
    assert await shown(narrow, STRANGER) == ["turn_1"]


async def test_originals_come_in_pages_whatever_is_left_out(database: Database):
    turns = [(f"turn_{i:04}", ANNA if i % 3 else OWNER_ONLY, 3) for i in range(600)]
    written = await tell(database, turns)
    one = summary(6, 2_990, audience=ANNA)
    wanted = [(seq, body) for seq, body in written if 6 <= seq <= 2_990 and ((seq - 1) // 5) % 3]
    found: list[tuple[int, bytes]] = []
    while True:
        after = found[-1][0] if found else 0
        page = await database.read(
            lambda tx, after=after: summaries.originals(
                tx, one, ALONE_WITH_ANNA.can_see, after_seq=after, most=250
            )
        )
        found.extend((entry.seq, entry.body) for entry in page)
        assert len(page) <= 250
        if len(page) < 250:
            break
    assert found == wanted
    some = await database.read(
        lambda tx: summaries.originals(
            tx, one, ALONE_WITH_ANNA.can_see, after_seq=100, upto_seq=200
        )
    )
    assert [(entry.seq, entry.body) for entry in some] == [
        (seq, body) for seq, body in wanted if 100 < seq <= 200
    ]
