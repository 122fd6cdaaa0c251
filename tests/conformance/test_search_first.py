"""Search and health over passages, messages, blocks and summaries, for those who are present."""

import itertools
import random
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from asterism.errors import InvalidInput, NotFound
from asterism.memory import people
from asterism.memory import search as searching
from asterism.memory.gate import blocks as block_gate
from asterism.memory.gate import passages as gate
from asterism.memory.gate.passages import NewPassage
from asterism.memory.health import Health, health
from asterism.memory.search import Hit, search
from asterism.memory.why import why
from asterism.store.database import Connection, Database
from asterism.types.memory import (
    Append,
    Insert,
    Origin,
    OriginKind,
    Retract,
    Source,
)
from asterism.types.people import (
    OWNER,
    OWNER_ALONE,
    PUBLIC,
    Account,
    Audience,
    Company,
    Hearer,
    Tier,
)
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
from tests.conftest import TORTURE

DAY = 24 * HOUR
ANNA = Company((Hearer("person_anna"),))


@pytest.fixture(params=ENGINES)
async def database(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Database]:
    async with opened(request.param, tmp_path) as database:
        yield database


@pytest.fixture
async def aria(database: Database) -> str:
    return await database.write(lambda tx: put_agent(tx, "aria"))


async def find(
    database: Database, agent_id: str, query: str, company: Company = OWNER_ALONE, **given: Any
) -> list[Hit]:
    return await database.read(
        lambda tx: search(tx, HOME, agent_id, query, company=company, **given)
    )


async def texts(
    database: Database, agent_id: str, query: str, company: Company = OWNER_ALONE, **given: Any
) -> list[str]:
    return [hit.text for hit in await find(database, agent_id, query, company, **given)]


async def put_summary(
    tx: Connection, agent_id: str, text: str, audience: str = OWNER, id: str = "sum_1"
) -> None:
    await tx.run(
        "INSERT INTO summaries VALUES (?, ?, ?, ?, 'owner', 1, 1, 'summary', ?, '[]', 1, 1,"
        " 'rule', ?)",
        (id, agent_id, id, audience, text, NOW),
    )


async def insert(database: Database, agent_id: str, text: str, **given: Any) -> str:
    """Store a passage; return its id."""
    now = given.pop("now", NOW)
    company = given.pop("company", OWNER_ALONE)
    tier = given.pop("tier", Tier.OWNER)
    writer = as_agent(agent_id, now, company=company, tier=tier)
    done = await database.write(lambda tx: gate.write(tx, writer, agent_id, Insert(text, **given)))
    return done.passage.id


@pytest.mark.promise("M6")
async def test_one_search_finds_passages_messages_blocks_and_summaries(
    database: Database, aria: str
):
    passage_id = await insert(database, aria, "The dentist is Dr. Okafor.", tier=Tier.WEB)

    async def put(tx: Connection) -> None:
        await put_turn(tx, aria, "turn_1", "Book the dentist, please.", "The dentist is booked.")
        await put_summary(tx, aria, "They talked about the dentist.")
        await block_gate.create(
            tx, as_owner(), aria, "human", content="Likes tea.\nFears the dentist."
        )

    await database.write(put)
    found = {hit.id: hit for hit in await find(database, aria, "DENTISTS?")}
    assert {(hit.kind, hit.text) for hit in found.values()} == {
        ("passage", "The dentist is Dr. Okafor."),
        ("message", "Book the dentist, please."),
        ("message", "The dentist is booked."),
        ("summary", "They talked about the dentist."),
        ("block", "Fears the dentist."),
    }
    assert set(found) == {passage_id, "turn_1#1", "turn_1#2", "sum_1", "human:2"}
    assert found[passage_id].source.tier is Tier.WEB
    assert all("words: dentist" in hit.why and hit.score > 0 for hit in found.values())
    assert [hit.text for hit in await find(database, aria, "dentist", domains=("blocks",))] == [
        "Fears the dentist."
    ]
    assert await texts(database, aria, "dentist", role="user") == ["Book the dentist, please."]
    assert await texts(database, aria, "dentist", role="assistant") == ["The dentist is booked."]
    line = await database.read(lambda tx: why(tx, HOME, "human:2", agent_id=aria))
    assert (line.text, line.children[0].children[0].what) == (
        "Fears the dentist.",
        "written by owner (cli)",
    )
    whole = await database.read(lambda tx: why(tx, HOME, "human"))
    assert [child.text for child in whole.children] == ["Likes tea.", "Fears the dentist."]
    with pytest.raises(NotFound, match="there is no line 7"):
        await database.read(lambda tx: why(tx, HOME, "human:7", agent_id=aria))


async def test_the_best_comes_first_and_says_why(database: Database, aria: str):
    for text in (
        "Anna plays the cello in an orchestra.",
        "The orchestra meets on Tuesdays.",
        "Anna has a brother.",
        "Tea is served at five.",
    ):
        await insert(database, aria, text)
    found = await find(database, aria, "What does Anna play in the orchestra?")
    assert found[0].text == "Anna plays the cello in an orchestra."
    assert found[0].score > found[1].score
    assert "orchestra" in found[0].why
    assert "Tea is served at five." not in [hit.text for hit in found]
    assert len(await find(database, aria, "anna orchestra", limit=1)) == 1


async def test_what_has_no_word_in_common_is_found_by_meaning(database: Database, aria: str):
    await insert(database, aria, "The puppy chased a kitten.")
    await insert(database, aria, "Quarterly taxes are due.")
    found = await find(database, aria, "puppies and kittens")
    assert found[0].text == "The puppy chased a kitten."


@pytest.mark.promise("M6")
async def test_any_text_is_a_query(database: Database, aria: str):
    await insert(database, aria, "100 % of _all_ [things] (cost) $5 & more.")
    await database.write(lambda tx: put_turn(tx, aria, "turn_1", "hello", "hi"))
    odd = [
        "",
        " ",
        "%",
        "_",
        "\\",
        "'",
        '"',
        "'; DROP TABLE passages; --",
        "a AND (b",
        "*",
        "?!",
    ]
    odd += [
        "\x00",
        "\ud800",
        "🎉",
        "\u202e",
        "x" * 100_000,
        "to be or not to be",
        "NEAR/3",
        "%%%",
    ]
    for query in odd:
        await find(database, aria, query)
    assert await texts(database, aria, "things, or what?") == [
        "100 % of _all_ [things] (cost) $5 & more."
    ]


@pytest.mark.promise("M6")
async def test_words_are_found_in_any_script_and_case(database: Database, aria: str):
    said = {
        "ÄGYPTEN": "Wir fahren nach Ägypten.",
        "straße": "Die STRASSE ist gesperrt.",
        "МОСКВА": "Она живёт в городе Москва.",
        "東京タワー": "昨日は東京タワーに行きました。",
        "القاهرة": "تسكن في القاهرة.",
        "🎂": "Friday is 🎂 day.",
        "cities": "Every city has a mayor.",
    }

    async def put(tx: Connection) -> None:
        for number, text in enumerate(said.values()):
            await put_turn(tx, aria, f"turn_{number}", text)

    await database.write(put)
    for text in said.values():
        await insert(database, aria, text)
    for query, text in said.items():
        found = await find(database, aria, query, domains=("passages", "messages"))
        assert {hit.kind for hit in found if hit.text == text} == {"passage", "message"}, query


async def test_an_empty_query_shows_the_newest(database: Database, aria: str):
    for number in range(3):
        await insert(database, aria, f"{'abc'[number]} fact", now=NOW + number, tags=("fact",))
    await insert(database, aria, "Something else.", now=NOW + 9)
    assert await texts(database, aria, "", tags=("FACT",), limit=2) == ["c fact", "b fact"]
    assert (await find(database, aria, " "))[0].why == "the newest"


@pytest.mark.promise("M6", "M8")
async def test_time_and_tags_narrow_a_search(database: Database, aria: str):
    old = await insert(database, aria, "The code of the gate is 4711.", tags=("codes", "gate"))
    await insert(
        database, aria, "The code is 1234 at the gate now.", now=NOW + 2 * DAY, supersedes=old
    )

    async def put(tx: Connection) -> None:
        await put_turn(tx, aria, "turn_1", "gate one", at=NOW)
        await put_turn(tx, aria, "turn_2", "gate two", at=NOW + DAY)

    await database.write(put)
    assert sorted(await texts(database, aria, "gate")) == [
        "The code is 1234 at the gate now.",
        "gate one",
        "gate two",
    ]
    assert sorted(await texts(database, aria, "gate", moment=NOW + HOUR)) == [
        "The code of the gate is 4711.",
        "gate one",
    ]
    assert await texts(database, aria, "gate", since=NOW + 1, until=NOW + DAY) == ["gate two"]
    assert await texts(database, aria, "gate", tags=("codes",)) == []
    assert await texts(database, aria, "gate", tags=("codes", "GATE"), moment=NOW) == [
        "The code of the gate is 4711."
    ]
    await database.write(
        lambda tx: block_gate.create(tx, as_owner(NOW), aria, "notes", content="gate: left")
    )
    block = await database.read(lambda tx: tx.one("SELECT id FROM blocks"))
    assert block is not None
    await database.write(
        lambda tx: block_gate.write(tx, as_owner(NOW + DAY), block[0], Append("gate: right"))
    )
    only: dict[str, Any] = {"domains": ("blocks",)}
    assert sorted(await texts(database, aria, "gate", **only)) == ["gate: left", "gate: right"]
    assert await texts(database, aria, "gate", moment=NOW + HOUR, **only) == ["gate: left"]
    assert await texts(database, aria, "gate", moment=NOW - 1, **only) == []


async def test_what_was_taken_back_is_not_found(database: Database, aria: str):
    gone = await insert(database, aria, "The zebra is called Zoe.")
    await database.write(lambda tx: gate.write(tx, as_agent(aria), aria, Retract(gone)))
    assert await texts(database, aria, "zebra") == []


async def test_agents_do_not_find_each_others_memories(database: Database, aria: str):
    ben = await database.write(lambda tx: put_agent(tx, "ben"))
    elsewhere = await database.write(lambda tx: put_agent(tx, "aria", "elsewhere"))
    await insert(database, ben, "The walrus is mine.")
    await database.write(lambda tx: put_turn(tx, ben, "turn_1", "walrus", "walrus"))
    assert await texts(database, aria, "walrus") == []
    assert len(await texts(database, ben, "walrus")) == 3
    for domain in ("passages", "messages", "summaries"):
        with pytest.raises(NotFound, match="no agent"):
            await find(database, elsewhere, "walrus", domains=(domain,))


async def test_attached_sources_are_searched(database: Database, aria: str):
    async def put(tx: Connection) -> None:
        await tx.run(
            "INSERT INTO sources VALUES ('source_1', ?, 'manuals', '/', '{}', 'public', 0, NULL)",
            (HOME,),
        )
        source = Source(
            (Origin(OriginKind.DOCUMENT, "manuals/a.md", "page 1"),), PUBLIC, Tier.DOCUMENT
        )
        await gate.insert_many(
            tx, as_owner(), "source_1", [NewPassage("Descale the kettle.", source)]
        )

    await database.write(put)
    assert await texts(database, aria, "kettle") == []
    await database.write(
        lambda tx: tx.run("INSERT INTO source_agents VALUES ('source_1', ?, 0)", (aria,))
    )
    assert await texts(database, aria, "kettle") == ["Descale the kettle."]


async def test_a_domain_or_role_that_is_not_there_is_named(database: Database, aria: str):
    with pytest.raises(InvalidInput, match=r"'dreams' cannot be searched. There are: passages"):
        await find(database, aria, "x", domains=("dreams",))
    with pytest.raises(InvalidInput, match="Nobody speaks as 'robot'"):
        await find(database, aria, "x", role="robot")


@pytest.mark.promise("M11")
async def test_a_fact_is_found_among_thousands_of_messages(database: Database, aria: str):
    rng = random.Random(7)
    common = ["the", "weather", "lunch", "train", "coffee", "report", "garden", "music", "paper"]
    planted = {
        f"The locker {number} opens with {rng.randint(10**5, 10**6)}." for number in range(20)
    }
    chatter = [" ".join(rng.choices(common, k=12)) for _ in range(4_000)]
    messages = [*chatter, *planted]
    rng.shuffle(messages)
    wire = [f'{{"role":"user","content":"{text}"}}'.encode() for text in messages]
    await database.write(
        lambda tx: tx.run_many(
            "INSERT INTO entries VALUES (?, ?, ?, 'message', 'in', ?, NULL, ?)",
            [(aria, seq, f"turn_{seq}", body, NOW + seq) for seq, body in enumerate(wire, 1)],
        )
    )
    for text in planted:
        number = text.split()[2]
        assert text in await texts(database, aria, f"Which code has locker {number}?", limit=10)


async def test_hidden_candidates_take_no_room(
    database: Database, aria: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(searching, "_MOST_CANDIDATES", 10)
    monkeypatch.setattr(searching, "_PAGE", 10)
    await insert(database, aria, "The otter was heard by Anna.", company=ANNA)
    heard = str(ANNA.audience)

    async def put(tx: Connection) -> None:
        await put_turn(tx, aria, "turn_0", "An otter!", audience=heard)
        for number in range(40):
            await put_turn(tx, aria, f"turn_x{number}", "otter otter", at=NOW + 9)
        rows = [NewPassage(f"Otter {number}", known_from=NOW + 9) for number in range(40)]
        secret = as_agent(aria, NOW + 9)
        await gate.insert_many(tx, secret, aria, rows)

    await database.write(put)
    assert sorted(await texts(database, aria, "otter", ANNA)) == [
        "An otter!",
        "The otter was heard by Anna.",
    ]


# -- nobody hears what is not meant for them -------------------------------------------------------

PERSONS = ["person_a", "person_b", "person_c", "person_d"]
ROLES = ["family", "work"]
ROOMS = ["discord:home", "slack:office"]


def _audiences() -> list[Audience]:
    words = [f"person:{one}" for one in PERSONS] + [f"role:{one}" for one in ROLES]
    words += [f"room:{one}" for one in ROOMS]
    alone = [Audience.read(word) for word in ("public", "owner", *words)]
    return alone + [one & other for one, other in itertools.combinations(alone[2:], 2)]


def _company(rng: random.Random) -> Company:
    def hearer(person: str) -> Hearer:
        roles = frozenset(one for one in ROLES if rng.random() < 0.4)
        return Hearer(person, roles, frozenset(one for one in ROOMS if rng.random() < 0.4))

    present = [hearer(one) for one in rng.sample(PERSONS, rng.randint(1, 3))]
    if rng.random() < 0.2:
        present.append(Hearer(OWNER, frozenset({OWNER})))
    return Company(tuple(present), rng.choice([None, None, *ROOMS]))


async def _put_all(tx: Connection, agent_id: str, audiences: Sequence[Audience]) -> None:
    """Store a memory of each kind for each audience; the text names its audience's number."""
    for number, audience in enumerate(audiences):
        source = Source((Origin(OriginKind.IMPORT, "test"),), audience, Tier.OWNER)
        rows = [NewPassage(f"canary passage number{number}", source)]
        await gate.insert_many(tx, as_owner(), agent_id, rows)
        await put_turn(
            tx,
            agent_id,
            f"turn_{number}",
            f"canary message number{number}",
            f"canary reply number{number}",
            audience=str(audience),
        )
        await put_summary(
            tx, agent_id, f"canary summary number{number}", str(audience), f"sum_{number}"
        )
        await block_gate.create(
            tx,
            as_owner(),
            agent_id,
            f"block{number}",
            content=f"canary block number{number}",
            audience=audience,
        )


@pytest.mark.promise("M9")
async def test_nobody_finds_what_they_may_not_hear(database: Database, aria: str):
    audiences = _audiences()
    await database.write(lambda tx: _put_all(tx, aria, audiences))
    rng = random.Random(11)
    found = 0
    for _ in range(300 if TORTURE else 25):
        company = _company(rng)
        for query in ("canary", "", f"canary number{rng.randrange(len(audiences))}"):
            hits = await find(database, aria, query, company, limit=1_000)
            for hit in hits:
                number = int(hit.text.rpartition("number")[2])
                assert company.may_hear(audiences[number]), (company, hit)
            found += len(hits)
        everything = await find(database, aria, "canary", company, limit=1_000)
        heard = sum(company.may_hear(audience) for audience in audiences)
        assert len(everything) == 5 * heard
    assert found > 100


# -- health ----------------------------------------------------------------------------------------


async def look(database: Database, agent_id: str, now: int = NOW + 400 * DAY) -> Health:
    return await database.read(lambda tx: health(tx, HOME, agent_id, now=now))


@pytest.mark.promise("M14")
async def test_a_health_report_shows_what_is_wrong_and_the_next_move(database: Database, aria: str):
    berlin = await insert(database, aria, "Anna lives in Berlin.")
    hamburg = await insert(database, aria, "Anna lives in Hamburg.", now=NOW + 1)
    meeting = await insert(database, aria, "There is a meeting on 3 May with the bank.")
    await insert(database, aria, "Ben's birthday is on 4 May.")
    await insert(database, aria, "The war ended on 8 May 1945.")
    web = await insert(database, aria, "The museum is closed.", tier=Tier.WEB)
    junk = await insert(database, aria, "ok")
    dog = await insert(database, aria, "Ben has a dog called Rex.")
    dead = await insert(database, aria, "The dog called Rex has died.", supersedes=dog)
    await database.write(lambda tx: gate.write(tx, as_agent(aria), aria, Retract(dead)))
    doubles = [NewPassage("Coffee is at ten."), NewPassage("coffee is at TEN")]

    async def put(tx: Connection) -> None:
        # Imported into two archives, then put together by hand: nothing merged them.
        await gate.insert_many(tx, as_owner(), aria, doubles[:1])
        await tx.run("UPDATE passages SET digest = 'other' WHERE text = 'Coffee is at ten.'")
        await gate.insert_many(tx, as_owner(), aria, doubles[1:])
        await block_gate.create(tx, as_owner(), aria, "full", content="x" * 95, limit=100)
        await block_gate.create(tx, as_owner(), aria, "free", content="x" * 5, limit=100)

    await database.write(put)
    report = await look(database, aria)
    assert report.counts["passages"] == 11
    assert report.counts["that hold"] == 9
    assert (report.counts["superseded"], report.counts["retracted"]) == (1, 1)
    assert report.counts["blocks"] == 2
    by_kind = {one.kind: one for one in report.findings}
    assert {kind: len(report.of(kind)) for kind in by_kind} == dict.fromkeys(by_kind, 1)
    assert set(by_kind) == {
        "duplicate",
        "contradiction",
        "stale",
        "orphaned",
        "junk",
        "full",
        "untrusted",
    }
    assert by_kind["contradiction"].ids == (hamburg, berlin)
    assert by_kind["stale"].ids == (meeting,)
    assert by_kind["orphaned"].ids == (dog, dead)
    assert by_kind["junk"].ids == (junk,)
    assert by_kind["full"].ids == ("full",)
    assert "95 of 100" in by_kind["full"].text
    assert by_kind["untrusted"].ids == (web,)
    assert all(one.move for one in report.findings)

    await database.write(lambda tx: gate.write(tx, as_agent(aria), aria, Retract(berlin)))
    assert not (await look(database, aria)).of("contradiction")
    assert not (await look(database, aria, NOW + DAY)).of("stale")
    await database.write(lambda tx: tx.run("UPDATE passages SET origins = '[]'"))
    assert len((await look(database, aria)).of("sourceless")) == 1
    with pytest.raises(NotFound, match="no agent"):
        await look(database, "agent_none")


async def test_the_memory_of_a_new_agent_is_healthy(database: Database, aria: str):
    report = await look(database, aria)
    assert (report.findings, report.looked_at) == ((), 0)


async def test_members_of_a_room_find_what_was_said_in_it(database: Database, aria: str):
    """From who writes to what is found, through the functions that a turn uses."""

    async def put(tx: Connection) -> Company:
        told = await people.meet(tx, HOME, Account("discord", "anna"), "discord:x|public", (), NOW)
        company = await people.read_company(tx, HOME, told)
        await put_turn(tx, aria, "turn_1", "The heron is back.", audience=str(company.audience))
        return company

    company = await database.write(put)
    assert await texts(database, aria, "heron", company) == ["The heron is back."]
    assert await texts(database, aria, "heron", ANNA) == []
