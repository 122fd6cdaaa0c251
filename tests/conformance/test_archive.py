"""Archives: what is stored, who may touch it, what is alike, what held when, and why it is."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from asterism.errors import AsterismError, Conflict, InvalidInput, NotAllowed, NotFound
from asterism.memory import archive
from asterism.memory.archive import Relation
from asterism.memory.gate import passages as gate
from asterism.memory.gate.passages import NewPassage, Written
from asterism.memory.gate.writer import Writer
from asterism.memory.why import Trace, why
from asterism.store.database import Connection, Database
from asterism.store.journal import Draft
from asterism.types.agents import (
    OWNER,
    OWNER_ONLY,
    PUBLIC,
    Audience,
    Participant,
    Participants,
    Trust,
)
from asterism.types.memory import (
    AppendPassage,
    Insert,
    Origin,
    OriginKind,
    Passage,
    PassageWrite,
    Retract,
    Source,
    Tag,
)
from asterism.types.turns import Call, EntryKind, Reply, result_wire
from tests.conformance.memory_scene import (
    ENGINES,
    HOME,
    HOUR,
    NOW,
    as_agent,
    as_owner,
    opened,
    put_agent,
    put_turn,
)

ANNA = Participants((Participant("person_anna"),))
BEN = Participants((Participant("person_ben"),))


@pytest.fixture(params=ENGINES)
async def database(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Database]:
    async with opened(request.param, tmp_path) as database:
        yield database


@pytest.fixture
async def aria(database: Database) -> str:
    return await database.write(lambda tx: put_agent(tx, "aria"))


async def write(
    database: Database, writer: Writer, archive_id: str, what: PassageWrite, **given: Any
) -> Written:
    return await database.write(lambda tx: gate.write(tx, writer, archive_id, what, **given))


async def insert(database: Database, writer: Writer, text: str, **given: Any) -> Written:
    assert writer.agent_id is not None
    return await write(database, writer, writer.agent_id, Insert(text, **given))


async def texts(database: Database, archive_id: str, **given: Any) -> list[str]:
    found = await database.read(lambda tx: archive.listing(tx, [archive_id], **given))
    return [one.text for one in found]


async def everything(database: Database) -> list[Any]:
    async def read(tx: Connection) -> list[Any]:
        return [
            *await tx.all("SELECT * FROM passages ORDER BY id"),
            *await tx.all("SELECT * FROM passage_edits ORDER BY passage_id, number"),
        ]

    return await database.read(read)


async def source_for(database: Database, agent_id: str) -> str:
    async def put(tx: Connection) -> None:
        await tx.run(
            "INSERT INTO sources VALUES ('source_1', ?, 'manuals', '/', '{}', 'public', 0, NULL)",
            (HOME,),
        )
        await tx.run("INSERT INTO source_agents VALUES ('source_1', ?, 0)", (agent_id,))

    await database.write(put)
    return "source_1"


# -- storing ---------------------------------------------------------------------------------------


@pytest.mark.promise("M5", "M7")
async def test_a_passage_is_kept_word_by_word_with_where_it_comes_from(
    database: Database, aria: str
):
    text = "Anna's birthday is on 3 May; she likes “Schwarzwälder Kirschtorte” 🎂."
    done = await insert(
        database, as_agent(aria, trust=Trust.KNOWN), text, tags=("Birthdays", "anna"), true_from=5
    )
    assert done.kind == "stored"
    found = await database.read(lambda tx: archive.get(tx, done.passage.id))
    assert found == done.passage
    assert found.text == text
    assert found.tags == ("birthdays", "anna")
    assert found.source == Source((Origin(OriginKind.MESSAGE, "turn_1"),), OWNER_ONLY, Trust.KNOWN)
    assert (found.author, found.turn_id) == ("agent:aria", "turn_1")
    assert (found.known_from_ms, found.true_from_ms) == (NOW, 5)
    assert await texts(database, aria, tag="BIRTHDAYS") == [text]
    assert await texts(database, aria, tag="birth") == []


@pytest.mark.promise("M5")
async def test_every_change_keeps_what_was(database: Database, aria: str):
    writer = as_agent(aria)
    one = (await insert(database, writer, "The boiler was serviced in June.")).passage
    web = as_agent(aria, NOW + HOUR, turn_id="turn_2", trust=Trust.WEB)
    later = replace(web, reason="more is known")
    done = await write(database, later, aria, AppendPassage(one.id, "By Herr Kaya."))
    assert done.passage.text == "The boiler was serviced in June.\nBy Herr Kaya."
    assert done.passage.source.trust is Trust.WEB
    assert [str(one) for one in done.passage.source.origins] == [
        "message:turn_1",
        "message:turn_2",
    ]
    await write(database, as_owner(NOW + 2 * HOUR), aria, Tag(one.id, ("house",)))
    await write(database, as_owner(NOW + 3 * HOUR), aria, Retract(one.id))

    edits = await database.read(lambda tx: archive.history(tx, one.id))
    assert [(edit.number, edit.kind, edit.author) for edit in edits] == [
        (1, "append", "agent:aria"),
        (2, "tag", "owner"),
        (3, "retract", "owner"),
    ]
    assert edits[0].reason == "more is known"
    assert edits[0].before["text"] == "The boiler was serviced in June."
    assert await texts(database, aria) == []
    now = await database.read(lambda tx: archive.get(tx, one.id))
    assert now.retracted_at_ms == NOW + 3 * HOUR


@pytest.mark.promise("M8")
async def test_an_archive_can_be_read_as_it_was_at_any_moment(database: Database, aria: str):
    """Every state is recorded when it is there, and found again at its moment."""
    recorded: dict[int, list[Passage]] = {}

    async def record(moment: int) -> None:
        recorded[moment] = await database.read(lambda tx: archive.listing(tx, [aria]))

    def at(step: int) -> Writer:
        return as_agent(aria, NOW + step * HOUR, turn_id=f"turn_{step}")

    await record(NOW - 1)
    dog = (await insert(database, at(0), "Ben has a dog called Rex.")).passage
    await record(NOW)
    await write(database, at(1), aria, AppendPassage(dog.id, "Rex is old."))
    await record(NOW + HOUR)
    await write(database, at(2), aria, Tag(dog.id, ("pets",)))
    await record(NOW + 2 * HOUR)
    await insert(database, at(3), "The dog of Ben has died.", supersedes=dog.id)
    await record(NOW + 3 * HOUR)
    berlin = (await insert(database, at(4), "Anna lives in Berlin.")).passage
    await record(NOW + 4 * HOUR)
    await insert(database, at(5), "Anna lives in Berlin.")
    await record(NOW + 5 * HOUR)
    await write(database, at(6), aria, Retract(berlin.id))
    await record(NOW + 6 * HOUR)

    for moment, then in recorded.items():
        found = await database.read(
            lambda tx, moment=moment: archive.listing(tx, [aria], moment=moment)
        )
        # What a passage will become later is part of its row, and no part of what it said.
        assert [_told(one) for one in found] == [_told(one) for one in then]
        for one in then:
            single = await database.read(
                lambda tx, one=one, moment=moment: archive.get(tx, one.id, moment=moment)
            )
            assert _told(single) == _told(one)
    assert await texts(database, aria, moment=NOW + 2 * HOUR, tag="pets")
    assert await texts(database, aria, moment=NOW + HOUR, tag="pets") == []
    with pytest.raises(NotFound, match="at that time"):
        await database.read(lambda tx: archive.get(tx, dog.id, moment=NOW - 1))


def _told(passage: Passage) -> tuple[Any, ...]:
    return (passage.id, passage.text, passage.tags, passage.source, passage.superseded_by)


async def test_long_lists_come_in_pages(database: Database, aria: str):
    rows = [NewPassage(f"Fact number {number} of many.") for number in range(450)]
    stored = await database.write(lambda tx: gate.insert_many(tx, as_owner(), aria, rows))
    assert stored == 450
    seen: list[str] = []
    last: str | None = None
    while True:
        page = await database.read(
            lambda tx, last=last: archive.listing(tx, [aria], limit=120, before=last)
        )
        if not page:
            break
        seen += [one.text for one in page]
        last = page[-1].id
    assert len(seen) == 450
    assert set(seen) == {one.text for one in rows}
    with pytest.raises(NotFound, match="first page"):
        await database.read(lambda tx: archive.listing(tx, [aria], before="pas_none"))


# -- who may ---------------------------------------------------------------------------------------


@pytest.mark.promise("M2", "M5")
async def test_an_agent_writes_to_its_own_archive_and_to_no_other(database: Database, aria: str):
    ben = await database.write(lambda tx: put_agent(tx, "ben"))
    manuals = await source_for(database, aria)
    mine = (await write(database, as_owner(), ben, Insert("Ben's own."))).passage
    before = await everything(database)
    for archive_id in (ben, manuals):
        with pytest.raises(NotAllowed, match="Nothing was changed"):
            await write(database, as_agent(aria), archive_id, Insert("mine now"))
        with pytest.raises(NotAllowed, match="Nothing was changed"):
            await write(database, as_agent(aria), archive_id, Retract(mine.id))
        with pytest.raises(NotAllowed, match="Nothing was changed"):
            await database.write(
                lambda tx, archive_id=archive_id: gate.insert_many(
                    tx, as_agent(aria), archive_id, [NewPassage("x")]
                )
            )
        with pytest.raises(NotAllowed, match="Nothing was changed"):
            await database.write(
                lambda tx, archive_id=archive_id: gate.delete_document(
                    tx, as_agent(aria), archive_id, "a.md"
                )
            )
    with pytest.raises(NotFound, match="no passage"):
        await write(database, as_agent(aria), aria, Retract(mine.id))
    with pytest.raises(NotFound, match="no archive"):
        await write(database, as_owner(), "agent_none", Insert("x"))
    assert await everything(database) == before


async def test_another_constellations_archive_is_not_there(database: Database, aria: str):
    other = database.for_constellation("elsewhere")
    elsewhere = await other.write(lambda tx: put_agent(tx, "aria"))
    with pytest.raises(NotFound, match="no archive"):
        await write(database, as_owner(), elsewhere, Insert("x"))
    one = (await write(database, as_owner(), aria, Insert("ours"))).passage
    with pytest.raises(NotFound):
        await other.read(lambda tx: archive.get(tx, one.id))


@pytest.mark.promise("M9")
async def test_what_those_present_may_not_hear_is_not_there_to_be_touched(
    database: Database, aria: str
):
    secret = (await insert(database, as_agent(aria), "The owner plans a surprise.")).passage
    annas = (await insert(database, as_agent(aria, participants=ANNA), "Anna is ill.")).passage
    assert annas.source.audience == Audience.read("person:person_anna")
    before = await everything(database)
    for hidden in (secret, annas):
        for what in (
            AppendPassage(hidden.id, "x"),
            Retract(hidden.id),
            Tag(hidden.id, ("x",)),
            Insert("x", supersedes=hidden.id),
        ):
            with pytest.raises(NotFound) as refused:
                await write(database, as_agent(aria, participants=BEN), aria, what)
            assert hidden.text not in str(refused.value)
        with pytest.raises(NotFound):
            await database.read(
                lambda tx, hidden=hidden: archive.get(tx, hidden.id, participants=BEN)
            )
    assert await texts(database, aria, participants=BEN) == []
    assert await texts(database, aria, participants=ANNA) == ["Anna is ill."]
    assert await everything(database) == before


@pytest.mark.promise("M9")
async def test_appending_in_other_company_leaves_those_who_may_hear_both(
    database: Database, aria: str
):
    one = (await write(database, as_owner(), aria, Insert("Tea is served at five."))).passage
    assert one.source.audience == PUBLIC
    writer = as_agent(aria, participants=ANNA)
    done = await write(database, writer, aria, AppendPassage(one.id, "Anna takes milk."))
    assert done.passage.source.audience == Audience.read("person:person_anna")
    assert await texts(database, aria, participants=BEN) == []


# -- hygiene ---------------------------------------------------------------------------------------


@pytest.mark.promise("M14", "M7")
async def test_the_same_again_is_merged_and_keeps_both_sources(database: Database, aria: str):
    one = await insert(database, as_agent(aria), "Anna lives in Berlin.", tags=("anna",))
    two = await insert(
        database,
        as_agent(aria, NOW + HOUR, turn_id="turn_2"),
        "anna  lives in BERLIN",
        tags=("homes",),
    )
    assert (two.kind, two.passage.id) == ("merged", one.passage.id)
    assert one.passage.id in two.note
    assert two.passage.tags == ("anna", "homes")
    assert [str(origin) for origin in two.passage.source.origins] == [
        "message:turn_1",
        "message:turn_2",
    ]
    assert await texts(database, aria) == ["Anna lives in Berlin."]
    again = await insert(database, as_agent(aria), "Anna lives in Berlin.")
    assert again.kind == "merged"
    edits = await database.read(lambda tx: archive.history(tx, one.passage.id))
    assert [edit.kind for edit in edits] == ["merge"]


@pytest.mark.promise("M14", "M7")
async def test_what_says_more_takes_the_place_of_what_says_less(database: Database, aria: str):
    old = (await insert(database, as_agent(aria), "Anna lives in Berlin.", tags=("anna",))).passage
    new = await insert(
        database,
        as_agent(aria, NOW + HOUR, turn_id="turn_2"),
        "Anna lives in Berlin, in a flat near the zoo.",
    )
    assert new.kind == "superseded"
    assert old.id in new.note
    assert new.passage.tags == ("anna",)
    assert [origin.ref for origin in new.passage.source.origins] == ["turn_1", "turn_2"]
    assert await texts(database, aria) == ["Anna lives in Berlin, in a flat near the zoo."]
    was = await database.read(lambda tx: archive.get(tx, old.id))
    assert (was.superseded_by, was.superseded_at_ms) == (new.passage.id, NOW + HOUR)


@pytest.mark.promise("M14")
async def test_a_contradiction_is_stored_flagged_and_told(database: Database, aria: str):
    old = (await insert(database, as_agent(aria), "Anna lives in Berlin.")).passage
    new = await insert(database, as_agent(aria, NOW + HOUR), "Anna lives in Hamburg.")
    assert new.kind == "contradicts"
    assert old.id in new.note
    assert "Anna lives in Berlin." in new.note
    assert "retract" in new.note
    assert new.passage.metadata == {"contradicts": [old.id]}
    was = await database.read(lambda tx: archive.get(tx, old.id))
    assert was.metadata == {"contradicts": [new.passage.id]}
    assert len(await texts(database, aria)) == 2
    third = await insert(database, as_agent(aria, NOW + 2 * HOUR), "Anna lives in Munich.")
    assert sorted(third.passage.metadata["contradicts"]) == sorted([old.id, new.passage.id])


async def test_two_facts_about_one_subject_both_stay(database: Database, aria: str):
    for text in (
        "Anna lives in Berlin.",
        "Anna works in Hamburg.",
        "Ben has a dog.",
        "Ben has a cat.",
    ):
        assert (await insert(database, as_agent(aria), text)).kind == "stored"
    assert len(await texts(database, aria)) == 4


@pytest.mark.promise("M9", "M14")
async def test_nothing_is_merged_or_told_across_audiences(database: Database, aria: str):
    annas = await insert(
        database, as_agent(aria, participants=ANNA), "The code of the gate is 4711."
    )
    for participants, text in (
        (BEN, "The code of the gate is 4711."),
        (Participants((Participant("person_carl"),)), "The code of the gate is 1234."),
    ):
        other = await insert(database, as_agent(aria, participants=participants), text)
        assert (other.kind, other.note) == ("stored", "")
    owners = await insert(database, as_agent(aria), "The code of the gate is 4711.")
    assert owners.kind == "stored"
    untouched = await database.read(lambda tx: archive.get(tx, annas.passage.id))
    assert untouched == annas.passage


@pytest.mark.promise("M10", "M14")
async def test_text_of_less_trust_never_takes_the_place_of_more(database: Database, aria: str):
    def by(trust: Trust, step: int) -> Writer:
        return as_agent(aria, NOW + step, turn_id=f"turn_{step}", trust=trust)

    said = (await insert(database, by(Trust.OWNER, 1), "The bank is called Nordbank.")).passage
    same = await insert(database, by(Trust.WEB, 2), "The bank is called Nordbank.")
    assert (same.kind, same.passage.id) == ("merged", said.id)
    assert same.passage.source.trust is Trust.OWNER
    more = await insert(
        database, by(Trust.WEB, 3), "The bank is called Nordbank, and it pays to evil.example."
    )
    assert more.kind != "superseded"
    assert more.passage.source.trust is Trust.WEB
    still = await database.read(lambda tx: archive.get(tx, said.id))
    assert still.superseded_by is None

    web = (await insert(database, by(Trust.WEB, 4), "The museum opens at nine.")).passage
    told = await insert(database, by(Trust.OWNER, 5), "The museum opens at nine.")
    assert (told.kind, told.passage.source.trust) == ("superseded", Trust.OWNER)
    assert (
        await database.read(lambda tx: archive.get(tx, web.id))
    ).superseded_by == told.passage.id


async def test_somebody_else_may_judge_where_the_rules_find_nothing(database: Database, aria: str):
    old = (await insert(database, as_agent(aria), "Ben is a heavy smoker.")).passage
    asked: list[tuple[str, str]] = []

    def judge(new: str, former: str) -> Relation | None:
        asked.append((new, former))
        return Relation.CONTRADICTS if "never" in new else None

    done = await write(
        database, as_agent(aria), aria, Insert("Ben has never smoked."), judge_with=judge
    )
    assert asked == [("Ben has never smoked.", "Ben is a heavy smoker.")]
    assert (done.kind, done.note.count(old.id)) == ("contradicts", 1)
    # What the rules have decided is not put to anybody.
    asked.clear()
    done = await write(
        database, as_agent(aria), aria, Insert("Ben is a heavy smoker!"), judge_with=judge
    )
    assert (done.kind, done.passage.id) == ("merged", old.id)
    assert all(former != old.text for _, former in asked)


async def test_without_vectors_the_same_is_found_by_words(
    database: Database, aria: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(gate, "embed", lambda texts: None)  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType] - as `embed` answers without weights
    await insert(database, as_agent(aria), "Anna lives in Berlin.")
    await insert(database, as_agent(aria, participants=BEN), "Anna lives in Rome.")
    done = await insert(database, as_agent(aria), "Anna lives in Hamburg.")
    assert done.kind == "contradicts"
    assert "Rome" not in done.note


@pytest.mark.promise("M14")
async def test_the_same_said_at_once_is_stored_once(database: Database, aria: str):
    done = await asyncio.gather(
        *(
            insert(database, as_agent(aria, turn_id=f"turn_{number}"), "Anna lives in Berlin.")
            for number in range(8)
        )
    )
    assert sorted(one.kind for one in done) == ["merged"] * 7 + ["stored"]
    (kept,) = await database.read(lambda tx: archive.listing(tx, [aria]))
    assert {origin.ref for origin in kept.source.origins} == {f"turn_{n}" for n in range(8)}


# -- in bulk ---------------------------------------------------------------------------------------


@pytest.mark.promise("M5", "M7")
async def test_an_import_merges_equal_words_and_keeps_every_source(database: Database, aria: str):
    def row(text: str, ref: str, audience: Audience = PUBLIC) -> NewPassage:
        return NewPassage(
            text, Source((Origin(OriginKind.IMPORT, ref),), audience, Trust.DOCUMENT), known_from=7
        )

    there = (await write(database, as_owner(), aria, Insert("Tea is at five."))).passage
    stored = await database.write(
        lambda tx: gate.insert_many(
            tx,
            as_owner(),
            aria,
            [
                row("tea is at FIVE", "a"),
                row("Coffee is at ten.", "b"),
                row("coffee is at ten", "c"),
                row("Coffee is at ten.", "d", OWNER_ONLY),
            ],
        )
    )
    assert stored == 2
    found = await database.read(lambda tx: archive.listing(tx, [aria]))
    told = {(one.text, str(one.source.audience)): one for one in found}
    assert len(told) == 3
    tea = told["Tea is at five.", "public"]
    assert [str(one) for one in tea.source.origins] == ["person:owner#cli", "import:a"]
    coffee = told["Coffee is at ten.", "public"]
    assert [str(one) for one in coffee.source.origins] == ["import:b", "import:c"]
    assert (coffee.known_from_ms, coffee.author) == (7, "owner")
    edits = await database.read(lambda tx: archive.history(tx, there.id))
    assert [edit.kind for edit in edits] == ["merge"]


@pytest.mark.promise("M5")
async def test_the_pieces_of_a_document_are_all_stored_and_go_with_it(
    database: Database, aria: str
):
    manuals = await source_for(database, aria)

    def pieces(document: str) -> list[NewPassage]:
        return [
            NewPassage(
                text,
                Source(
                    (Origin(OriginKind.DOCUMENT, f"manuals/{document}", f"page {place}"),),
                    PUBLIC,
                    Trust.DOCUMENT,
                ),
                document=document,
                place=place,
            )
            for place, text in enumerate(["All rights reserved.", "Press the red button."])
        ]

    for document in ("a.md", "b.md"):
        stored = await database.write(
            lambda tx, document=document: gate.insert_many(
                tx, as_owner(), manuals, pieces(document)
            )
        )
        assert stored == 2
    removed = await database.write(lambda tx: gate.delete_document(tx, as_owner(), manuals, "a.md"))
    assert removed == 2
    assert sorted(await texts(database, manuals)) == [
        "All rights reserved.",
        "Press the red button.",
    ]
    readable = await database.read(lambda tx: archive.archives_of(tx, aria))
    assert [one.name for one in readable] == ["aria", "manuals"]


# -- bad input -------------------------------------------------------------------------------------

BAD: list[tuple[PassageWrite, type[AsterismError], str]] = [
    (Insert(""), InvalidInput, "There is no text"),
    (Insert(" \n\t "), InvalidInput, "There is no text"),
    (Insert("a\x00b"), InvalidInput, "NUL"),
    (Insert("a\ud800b"), InvalidInput, "half of a pair"),
    (Insert("x" * 100_001), InvalidInput, "100,001 characters; a passage takes 100,000"),
    (Insert("x", tags=tuple(str(n) for n in range(51))), InvalidInput, "51 tags are too many"),
    (Insert("x", tags=("t" * 81,)), InvalidInput, "cannot be a tag"),
    (Insert("x", tags=("",)), InvalidInput, "cannot be a tag"),
    (Insert("x", tags=("a\x00",)), InvalidInput, "cannot be a tag"),
    (Insert("x", metadata={"big": "x" * 20_001}), InvalidInput, "20,000 is the most"),
    (Insert("x", metadata={"odd": object()}), InvalidInput, "cannot be written as JSON"),
    (Insert("x", metadata={"nul": ["a\x00"]}), InvalidInput, "without NUL"),
    (Insert("x", supersedes="pas_none"), NotFound, "no passage 'pas_none'"),
    (AppendPassage("pas_none", "x"), NotFound, "no passage 'pas_none'"),
    (Retract("pas_none"), NotFound, "no passage 'pas_none'"),
    (Tag("pas_none", ()), NotFound, "no passage 'pas_none'"),
]


@pytest.mark.promise("X5")
async def test_bad_input_is_said_in_a_sentence_and_changes_nothing(database: Database, aria: str):
    await insert(database, as_agent(aria), "There before.")
    before = await everything(database)
    for what, error, said in BAD:
        with pytest.raises(error, match=said) as refused:
            await write(database, as_agent(aria), aria, what)
        assert "Nothing was" in str(refused.value)
        assert await everything(database) == before


async def test_what_no_longer_holds_cannot_be_changed(database: Database, aria: str):
    one = (await insert(database, as_agent(aria), "Ben has a dog.")).passage
    two = (await insert(database, as_agent(aria), "The dog is dead.", supersedes=one.id)).passage
    with pytest.raises(Conflict, match=f"superseded by {two.id}. Change that one"):
        await write(database, as_agent(aria), aria, Retract(one.id))
    await write(database, as_agent(aria), aria, Retract(two.id))
    with pytest.raises(Conflict, match="was retracted"):
        await write(database, as_agent(aria), aria, AppendPassage(two.id, "x"))
    long = (await insert(database, as_agent(aria), "x" * 99_999)).passage
    with pytest.raises(InvalidInput, match="a passage takes"):
        await write(database, as_agent(aria), aria, AppendPassage(long.id, "yy"))


@pytest.mark.promise("M7")
async def test_a_passage_without_an_origin_is_refused(database: Database, aria: str):
    with pytest.raises(InvalidInput, match="must say where it comes from"):
        await database.write(
            lambda tx: gate.insert_many(tx, as_owner(), aria, [NewPassage("x", Source(()))])
        )


# -- why -------------------------------------------------------------------------------------------


def lines(trace: Trace, depth: int = 0) -> list[str]:
    own = "  " * depth + trace.what + (f": {trace.text}" if trace.text else "")
    return [own, *(line for child in trace.children for line in lines(child, depth + 1))]


@pytest.mark.promise("M7")
async def test_why_a_passage_is_there_is_told_with_the_very_texts(database: Database, aria: str):
    call = Reply(calls=(Call("c1", "weather", '{"city":"Oslo"}'),))

    async def talk(tx: Connection) -> None:
        await put_turn(
            tx,
            aria,
            "turn_1",
            "My sister lives in Oslo.",
            more=[
                Draft(EntryKind.REPLY, "0/reply", call.wire(), NOW, call.meta()),
                Draft(EntryKind.RESULT, "0/call/0", result_wire("c1", "It snows."), NOW),
            ],
        )

    await database.write(talk)
    origins = (
        Origin(OriginKind.MESSAGE, "turn_1"),
        Origin(OriginKind.CALL, "turn_1", "0/call/0"),
        Origin(OriginKind.DOCUMENT, "manuals/a.pdf", "page 3"),
        Origin(OriginKind.MESSAGE, "turn_gone"),
        Origin(OriginKind.CALL, "turn_1", "7/call/0"),
        Origin(OriginKind.PERSON, OWNER, "cli"),
        Origin(OriginKind.IMPORT, "old.json", "line 4"),
    )
    old = (await insert(database, as_agent(aria), "A sister in Norway.")).passage
    new = (
        await insert(
            database,
            as_agent(aria, origins=origins),
            "The owner's sister lives in Oslo, where it snows.",
            supersedes=old.id,
        )
    ).passage
    top = (
        await insert(
            database,
            as_agent(aria, origins=[Origin(OriginKind.PASSAGE, new.id)]),
            "Pack warm clothes for Oslo.",
        )
    ).passage
    trace = await database.read(lambda tx: why(tx, top.id))
    assert lines(trace) == [
        (
            f"passage {top.id} in the archive of aria, written by agent:aria: "
            "Pack warm clothes for Oslo."
        ),
        (
            f"  passage {new.id} in the archive of aria, written by agent:aria: "
            "The owner's sister lives in Oslo, where it snows."
        ),
        "    message that opened turn_1: My sister lives in Oslo.",
        '    call of weather in turn_1: weather({"city":"Oslo"})',
        "      its result: It snows.",
        "      message that opened turn_1: My sister lives in Oslo.",
        "    document manuals/a.pdf, page 3",
        "    the message of turn_gone, which is not kept any more",
        "    call 7/call/0 of turn_1, which is not kept any more",
        "    written by owner (cli)",
        "    imported from old.json, line 4",
        (
            f"    took the place of passage {old.id} in the archive of aria, "
            f"written by agent:aria, superseded by {new.id}: A sister in Norway."
        ),
        "      message that opened turn_1: My sister lives in Oslo.",
    ]
    with pytest.raises(NotFound, match="archive list"):
        await database.read(lambda tx: why(tx, "pas_none"))
    with pytest.raises(NotFound):
        await database.for_constellation("elsewhere").read(lambda tx: why(tx, top.id))


async def test_origins_that_lead_in_a_circle_end(database: Database, aria: str):
    one = (await insert(database, as_agent(aria), "Round and round.")).passage
    await database.write(
        lambda tx: tx.run(
            "UPDATE passages SET origins = ? WHERE id = ?",
            (orjson.dumps([["passage", one.id, ""]]).decode(), one.id),
        )
    )
    told = lines(await database.read(lambda tx: why(tx, one.id)))
    assert told[-1].endswith("which is not kept any more")
    assert len(told) < 20


@pytest.mark.promise("M7", "M11")
async def test_why_a_summary_is_there_leads_to_what_was_said(database: Database, aria: str):
    async def talk(tx: Connection) -> None:
        await put_turn(tx, aria, "turn_1", "I moved to Oslo.", "Congratulations!")
        await tx.run(
            "INSERT INTO summaries VALUES ('sum_1', ?, 'owner', 'owner', 'owner', 1, 2, 'summary',"
            " 'The owner lives in Oslo.', '[]', 2, 20, 'rule', ?)",
            (aria, NOW),
        )

    await database.write(talk)
    told = lines(await database.read(lambda tx: why(tx, "sum_1")))
    assert told == [
        "summary sum_1 of 2 messages of aria, made by rule: The owner lives in Oslo.",
        "  message in turn_1: I moved to Oslo.",
        "  reply in turn_1: Congratulations!",
    ]
    with pytest.raises(NotFound):
        await database.read(lambda tx: why(tx, "sum_2"))
