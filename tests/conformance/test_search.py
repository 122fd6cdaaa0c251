"""One search over messages, passages, documents, blocks and summaries, on both engines."""

import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from asterism.errors import InvalidInput, NotFound
from asterism.memory.gate import blocks as block_gate
from asterism.memory.gate import passages as gate
from asterism.memory.gate.passages import NewPassage
from asterism.memory.why import why
from asterism.search import clear_caches
from asterism.store.database import Connection, Database
from asterism.types.agents import Participant, Participants, Trust
from asterism.types.memory import Retract
from asterism.types.search import HitKind, ReasonKind
from tests.conformance.index_scene import fold_all, say
from tests.conformance.memory_scene import (
    ENGINES,
    NOW,
    as_agent,
    as_owner,
    opened,
    put_agent,
    put_turn,
)
from tests.conformance.search_scene import (
    DAY,
    ask,
    attach,
    find,
    insert,
    put_source,
    put_summary,
    texts,
)


@pytest.fixture(params=ENGINES)
async def database(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Database]:
    async with opened(request.param, tmp_path) as database:
        yield database


@pytest.fixture
async def aria(database: Database) -> str:
    return await database.write(lambda tx: put_agent(tx, "aria"))


# -- what is found ---------------------------------------------------------------------------------


@pytest.mark.promise("M6")
async def test_one_search_finds_all_kinds_of_memory(database: Database, aria: str):
    passage_id = await insert(database, aria, "The dentist is Dr. Okafor.", trust=Trust.WEB)

    async def put(tx: Connection) -> None:
        await put_turn(tx, aria, "turn_1", "Book the dentist, please.", "The dentist is booked.")
        await put_summary(tx, aria, "They talked about the dentist.")
        await block_gate.create(
            tx, as_owner(), aria, "human", content="Likes tea.\nFears the dentist."
        )
        await put_source(tx, "source_1", "papers", "a.md", ["Pay the dentist by June."])

    await database.write(put)
    await attach(database, "source_1", aria)
    found = {hit.id: hit for hit in await find(database, aria, "DENTISTS?")}
    document_id = next(id for id, hit in found.items() if hit.kind is HitKind.DOCUMENT)
    assert {id: (hit.kind.value, hit.text) for id, hit in found.items()} == {
        passage_id: ("passage", "The dentist is Dr. Okafor."),
        "turn_1#1": ("message", "Book the dentist, please."),
        "turn_1#2": ("message", "The dentist is booked."),
        "sum_1": ("summary", "They talked about the dentist."),
        "human:2": ("block", "Fears the dentist."),
        document_id: ("document", "Pay the dentist by June."),
    }
    assert found[passage_id].source.trust is Trust.WEB
    assert found[document_id].where == "papers/a.md"
    assert {hit.agent_id for hit in found.values()} == {aria}
    for hit in found.values():
        assert hit.matched == ("dentist",)
        assert "words: dentist" in hit.reason
    assert await texts(database, aria, "dentist", domains=("blocks",)) == ["Fears the dentist."]
    assert await texts(database, aria, "dentist", role="user") == ["Book the dentist, please."]
    assert await texts(database, aria, "dentist", role="assistant") == ["The dentist is booked."]
    line = await database.read(lambda tx: why(tx, "human:2", agent_id=aria))
    assert line.text == "Fears the dentist."


async def test_the_best_comes_first_and_says_why(database: Database, aria: str):
    for text in (
        "Anna plays the cello in an orchestra.",
        "The orchestra meets on Tuesdays.",
        "Anna has a brother.",
        "Tea is served at five.",
    ):
        await insert(database, aria, text)
    found = await ask(database, aria, "What does Anna play in the orchestra?")
    assert found.hits[0].text == "Anna plays the cello in an orchestra."
    assert found.hits[0].score > found.hits[1].score
    assert {"Anna", "plays", "orchestra"} == set(found.hits[0].matched)
    assert found.hits[0].why[0].kind is ReasonKind.WORDS
    assert "Tea is served at five." not in [hit.text for hit in found.hits]
    assert found.total == len(found.hits)
    assert not found.more
    one = await ask(database, aria, "anna orchestra", limit=1)
    assert (len(one.hits), one.more) == (1, True)


@pytest.mark.promise("M15")
async def test_what_has_no_word_in_common_is_found_by_meaning(database: Database, aria: str):
    await insert(database, aria, "The puppy chased a kitten.")
    await insert(database, aria, "Quarterly taxes are due.")
    (hit,) = await find(database, aria, "pets such as dogs and cats")
    assert hit.text == "The puppy chased a kitten."
    assert hit.matched == ()
    assert [one.kind for one in hit.why] == [ReasonKind.MEANING]


async def test_a_message_is_found_by_the_words_of_its_neighbours_and_says_so(
    database: Database, aria: str
):
    async def put(tx: Connection) -> None:
        await put_turn(tx, aria, "turn_1", "Which locker did you get?", "Number 48.")
        await put_turn(tx, aria, "turn_2", "Quite another matter.", at=NOW + DAY)

    await database.write(put)
    found = {hit.text: hit for hit in await find(database, aria, "locker")}
    assert list(found) == ["Which locker did you get?", "Number 48."]
    assert "words: those of its neighbours" in found["Number 48."].reason
    question, answer = found.values()
    assert (question.beside, question.steps) == ("", 0)
    assert (answer.beside, answer.steps) == (question.id, 1)
    # By itself it is a hit of its own, as on a page where that other one is not.
    (second,) = await find(database, aria, "locker", limit=1, offset=1)
    assert (second.text, second.beside) == ("Number 48.", "")
    # What an agent keeps stands for itself.
    await insert(database, aria, "The ferry leaves at noon.")
    await insert(database, aria, "Ben collects stamps.")
    assert [hit.text for hit in await find(database, aria, "ferry", domains=("passages",))] == [
        "The ferry leaves at noon."
    ]


@pytest.mark.promise("M6")
async def test_words_are_found_in_any_script_and_case(database: Database, aria: str):
    said = {
        "ÄGYPTEN": "Wir fahren nach Ägypten.",
        "straße": "Die STRASSE ist gesperrt.",
        "МОСКВА": "Она живёт в городе Москва.",
        "東京タワー": "昨日は東京タワーに行きました。",
        "咖啡": "我每天早上喝咖啡。",
        "القاهرة": "تسكن في القاهرة.",
        "เชียงใหม่": "เธออยู่ที่เชียงใหม่ตั้งแต่ปีที่แล้ว",
        "🎂": "Friday is 🎂 day.",
        "cities": "Every city has a mayor.",
    }

    async def put(tx: Connection) -> None:
        for number, text in enumerate(said.values()):
            await put_turn(tx, aria, f"turn_{number}", text, at=NOW + number * DAY)

    await database.write(put)
    for text in said.values():
        await insert(database, aria, text)
    for indexed in (False, True):
        for query, text in said.items():
            found = await find(database, aria, query)
            assert {hit.kind.value for hit in found[:2]} == {"passage", "message"}, (query, indexed)
            assert {hit.text for hit in found[:2]} == {text}, (query, indexed)
        for kind in ("journal", "archive"):
            await fold_all(database, kind, aria)


@pytest.mark.promise("M6")
async def test_any_text_is_a_query(database: Database, aria: str):
    await insert(database, aria, "100 % of _all_ [things] (cost) $5 & more.")
    await database.write(lambda tx: put_turn(tx, aria, "turn_1", "hello", "hi"))
    odd = ["", " ", "%", "_", "\\", "'", '"', "'; DROP TABLE passages; --", "a AND (b", "*", "?!"]
    odd += ["\x00", "\ud800", "🎉", "\u202e", "x" * 100_000, "to be or not to be", "NEAR/3", "**"]
    for query in odd:
        assert await ask(database, aria, query) == await ask(database, aria, query)
    assert await texts(database, aria, "things, or what?") == [
        "100 % of _all_ [things] (cost) $5 & more."
    ]


async def test_an_empty_query_shows_the_newest(database: Database, aria: str):
    for number in range(3):
        await insert(database, aria, f"{'abc'[number]} fact", now=NOW + number, tags=("fact",))
    await insert(database, aria, "Something else.", now=NOW + 9)
    assert await texts(database, aria, "", tags=("FACT",), limit=2) == ["c fact", "b fact"]
    (newest, *_) = await find(database, aria, " ")
    assert (newest.text, newest.reason) == ("Something else.", "newest")


@pytest.mark.promise("M6")
async def test_the_very_words_in_quotes_come_first(database: Database, aria: str):
    await insert(database, aria, "Garden, garden, garden: the rose garden has a secret rose.")
    await insert(database, aria, "She read The Secret Garden as a child.")
    await insert(database, aria, "To be or not to be.")
    first, second = (await find(database, aria, 'rose "the secret  garden"'))[:2]
    assert first.text == "She read The Secret Garden as a child."
    assert "phrase: “the secret garden”" in first.reason
    assert "phrase" not in second.reason
    # Also where all of its words say little by themselves.
    assert (await find(database, aria, '"to be or not to be"'))[0].text == "To be or not to be."


@pytest.mark.promise("M6")
async def test_beginnings_of_words(database: Database, aria: str):
    await insert(database, aria, "Gardening is fun.")
    await insert(database, aria, "The gardener comes on Fridays.")
    await insert(database, aria, "A guard stands there.")
    await database.write(
        lambda tx: block_gate.create(tx, as_owner(), aria, "human", content="Owns gardens.")
    )
    for _ in range(2):
        found = [hit for hit in await find(database, aria, "garden*") if hit.matched]
        assert {hit.text for hit in found} == {
            "Gardening is fun.",
            "The gardener comes on Fridays.",
            "Owns gardens.",
        }
        assert {hit.why[0].kind for hit in found} == {ReasonKind.PREFIX}
        await fold_all(database, "archive", aria)
    assert await texts(database, aria, "guar*") == ["A guard stands there."]


# -- pages and neighbours --------------------------------------------------------------------------


@pytest.mark.promise("M6")
async def test_pages_have_no_gaps_and_repeat_nothing(database: Database, aria: str):
    async def put(tx: Connection) -> None:
        for number in range(900):
            await put_turn(tx, aria, f"turn_{number}", "otter", at=NOW)
        await put_turn(tx, aria, "turn_best", "otter otter otter", at=NOW + DAY)

    await database.write(put)
    paged: list[str] = []
    for offset in range(0, 950, 50):
        found = await ask(database, aria, "otter", limit=50, offset=offset)
        paged += [hit.id for hit in found.hits]
        assert found.total == 901
        assert found.more == (offset < 900)
    assert len(paged) == len(set(paged)) == 901
    whole = await ask(database, aria, "otter", limit=1_000)
    assert [hit.id for hit in whole.hits] == paged
    assert (await ask(database, aria, "otter", offset=901)).hits == []


async def test_neighbours_come_in_order_from_the_same_conversation(database: Database, aria: str):
    async def put(tx: Connection) -> None:
        for number, (said, room) in enumerate(
            (("one", "a"), ("two", "a"), ("far", "b"), ("needle", "a"), ("four", "a"))
        ):
            await say(
                tx, aria, f"turn_{number}", said, f"re {said}", at=NOW + number, reply_to=room
            )
        parts = ["First part.", "Second part.", "The haystack.", "Last part."]
        await put_source(tx, "source_1", "papers", "a.md", parts)

    await database.write(put)
    await attach(database, "source_1", aria)
    for _ in range(2):
        asked = await find(database, aria, "needle", role="user", neighbours=2, limit=1)
        (hit,) = asked
        assert hit.text == "needle"
        assert [one.text for one in hit.before] == ["two", "re two"]
        assert [one.text for one in hit.after] == ["re needle", "four"]
        assert [one.speaker for one in hit.after] == ["aria", "owner"]
        (part,) = await find(database, aria, "haystack", source="papers", neighbours=2, limit=1)
        assert [one.text for one in part.before] == ["First part.", "Second part."]
        assert [one.text for one in part.after] == ["Last part."]
        await fold_all(database, "journal", aria)
        await fold_all(database, "archive", "source_1")


async def test_neighbours_need_no_tags_and_pass_over_what_is_no_more(database: Database, aria: str):
    await insert(database, aria, "Ada was born in 1815.")
    gone = await insert(database, aria, "Boats are boring.")
    await insert(database, aria, "Cora keeps bees.", tags=("bees",))
    await database.write(lambda tx: gate.write(tx, as_agent(aria), aria, Retract(gone)))
    (hit,) = await find(database, aria, "bees", tags=("bees",), neighbours=1)
    assert [one.text for one in hit.before] == ["Ada was born in 1815."]


# -- whose -----------------------------------------------------------------------------------------


async def test_agents_do_not_find_each_others_memories(database: Database, aria: str):
    ben = await database.write(lambda tx: put_agent(tx, "ben"))
    other = database.for_constellation("elsewhere")
    elsewhere = await other.write(lambda tx: put_agent(tx, "aria"))
    await insert(database, ben, "The walrus is mine.")
    await database.write(lambda tx: put_turn(tx, ben, "turn_1", "walrus", "walrus"))
    assert await find(database, aria, "walrus") == []
    assert len(await find(database, ben, "walrus")) == 3
    for domain in ("passages", "messages", "summaries"):
        with pytest.raises(NotFound, match="no agent"):
            await find(database, elsewhere, "walrus", domains=(domain,))
    await insert(database, aria, "A walrus came by.")
    everywhere = await find(database, None, "walrus")
    assert {(hit.agent_id, hit.text) for hit in everywhere} == {
        (aria, "A walrus came by."),
        (ben, "The walrus is mine."),
        (ben, "walrus"),
    }


async def test_all_of_many_agents(database: Database):
    """Of more agents than are looked at closely, those with the words are."""

    async def put(tx: Connection) -> list[str]:
        ids = [await put_agent(tx, f"a{number:03}") for number in range(60)]
        for number, agent_id in enumerate(ids):
            await put_turn(tx, agent_id, f"turn_{number}", f"chatter of {number}")
        await put_turn(tx, ids[57], "turn_x", "The axolotl has hatched.")
        await gate.insert_many(tx, as_owner(), ids[3], [NewPassage("An axolotl is a salamander.")])
        return ids

    ids = await database.write(put)
    found = await find(database, None, "axolotl")
    assert {(hit.agent_id, hit.text) for hit in found if hit.matched} == {
        (ids[57], "The axolotl has hatched."),
        (ids[3], "An axolotl is a salamander."),
    }


@pytest.mark.promise("M6")
async def test_a_search_over_many_agents_says_that_some_are_left_out(database: Database):
    async def put(tx: Connection) -> list[str]:
        ids = [await put_agent(tx, f"a{number:03}") for number in range(60)]
        for number, agent_id in enumerate(ids):
            await put_turn(tx, agent_id, f"turn_{number}", f"The newt {number} swims.")
        return ids

    # Databases that are copies of one another have agents of the same ids.
    clear_caches()
    ids = await database.write(put)
    of_all = "Only 12 of 60 agents and sources were searched closely, those whose texts fit best"
    (note,) = (await ask(database, None, "newt")).notes
    assert note == f"{of_all} by their words; name one to search all it has."
    (note,) = (await ask(database, None, "")).notes
    assert "those who spoke last" in note
    # Where no agent has the words, there is nothing to look at closely.
    nothing = await ask(database, None, "quagga")
    assert (nothing.hits, len(nothing.notes)) == ([], 1)
    # How many agents there are is not for everybody.
    anna = Participants((Participant("person_anna"),))
    assert "60" not in "".join((await ask(database, None, "newt", anna)).notes)
    assert (await ask(database, ids[0], "newt")).notes == ()
    assert (await ask(database, None, "newt", domains=("blocks",))).notes == ()


async def test_blocks_of_many_agents(database: Database):
    async def put(tx: Connection) -> list[str]:
        ids = [await put_agent(tx, f"a{number:03}") for number in range(60)]
        await block_gate.create(tx, as_owner(), ids[41], "pets", content="An axolotl called Xochi.")
        return ids

    ids = await database.write(put)
    (found,) = await find(database, None, "axolotl", domains=("blocks",))
    assert (found.agent_id, found.where) == (ids[41], "pets")


@pytest.mark.promise("M5", "M6")
async def test_only_attached_sources_are_searched(database: Database, aria: str):
    bea = await database.write(lambda tx: put_agent(tx, "bea"))

    async def put(tx: Connection) -> None:
        await put_source(tx, "source_1", "manuals", "a.md", ["Descale the kettle."])
        await put_source(tx, "source_2", "recipes", "b.md", ["Boil the kettle for tea."])

    await database.write(put)
    assert await find(database, aria, "kettle") == []
    await attach(database, "source_1", aria)
    assert await texts(database, aria, "kettle") == ["Descale the kettle."]
    await attach(database, "source_2", aria)
    await attach(database, "source_2", bea)
    assert await texts(database, aria, "kettle", source="recipes") == ["Boil the kettle for tea."]
    assert await texts(database, aria, "kettle", source="source_1") == ["Descale the kettle."]
    assert await texts(database, bea, "kettle", source="manuals") == []
    # What two agents read is found once.
    assert len(await find(database, None, "kettle")) == 2


async def test_what_cannot_be_searched_is_named(database: Database, aria: str):
    with pytest.raises(
        InvalidInput, match=r"'dreams' is not a search domain. Use one of: messages"
    ):
        await find(database, aria, "x", domains=("dreams",))
    with pytest.raises(InvalidInput, match="'robot' is not a role"):
        await find(database, aria, "x", role="robot")
    with pytest.raises(InvalidInput, match="limit is 0; it must be from 1 to 1,000"):
        await find(database, aria, "x", limit=0)


@pytest.mark.promise("M11")
async def test_a_fact_is_found_among_thousands_of_messages(database: Database, aria: str):
    rng = random.Random(7)
    common = ["the", "weather", "lunch", "train", "coffee", "report", "garden", "music", "paper"]
    planted = {
        f"The locker {number} opens with {rng.randint(10**5, 10**6)}." for number in range(20)
    }
    chatter = [" ".join(rng.choices(common, k=12)) for _ in range(4_000)]
    messages = [*chatter, *sorted(planted)]
    rng.shuffle(messages)
    wire = [f'{{"role":"user","content":"{text}"}}'.encode() for text in messages]

    async def put(tx: Connection) -> None:
        await tx.run_many(
            "INSERT INTO entries VALUES (?, ?, ?, 'message', 'in', ?, NULL, ?)",
            [(aria, seq, f"turn_{seq}", body, NOW + seq) for seq, body in enumerate(wire, 1)],
        )
        await tx.run("UPDATE agents SET length = ? WHERE id = ?", (len(wire), aria))

    await database.write(put)
    assert await fold_all(database, "journal", aria) == 4
    for text in planted:
        number = text.split()[2]
        assert text in await texts(database, aria, f"Which code has locker {number}?", limit=10)
