"""Time travel: memory as of a moment, a turn taken back, and that taken back again."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asterism.errors import Conflict, InvalidInput, NotAllowed, NotFound
from asterism.memory import blocks as rows
from asterism.memory import history
from asterism.memory.archive import listing
from asterism.memory.blocks import seen_by
from asterism.memory.forgetting import Forgetting, forget
from asterism.memory.gate import blocks, passages
from asterism.memory.gate import undo as gate
from asterism.memory.gate.copies import Forked, fork_memory
from asterism.memory.gate.writer import WriteNeedsApproval, Writer
from asterism.memory.history import MemoryAt, TurnWrites, as_of, blame, writes_of_turn
from asterism.search.search import search
from asterism.store import documents
from asterism.store.database import Connection, Database
from asterism.types.agents import (
    OWNER,
    OWNER_ALONE,
    OWNER_ONLY,
    PUBLIC,
    Participant,
    Participants,
    Trust,
)
from asterism.types.documents import DocumentSource
from asterism.types.memory import (
    Append,
    AppendPassage,
    Block,
    BlockType,
    BlockWrite,
    Describe,
    Insert,
    Origin,
    OriginKind,
    Passage,
    PassageWrite,
    Permission,
    Retire,
    Share,
    Tag,
    Unshare,
)
from asterism.types.search import Hit, Query
from tests.conformance.memory_scene import (
    ENGINES,
    NOW,
    as_agent,
    as_owner,
    examples_on,
    opened,
    put_agent,
    put_turn,
)
from tests.conformance.travel_script import ERA, TURNS, Life, Turn, World, world
from tests.conftest import longer_in_torture


async def take_back(life: Life, turn_id: str) -> TurnWrites | None:
    """Take a turn back as the owner; None: there was nothing to take back."""
    writer = life.owner()
    try:
        effects = await life.database.write(
            lambda tx: gate.revert_turn(tx, writer, turn_id, era=ERA)
        )
    except (Conflict, NotFound):
        return None
    await life.remember()
    return effects


async def check_moments(life: Life) -> None:
    """Look back at every moment of a life."""
    for moment, then in life.moments.items():
        for name, agent_id in life.agents.items():
            found = await life.database.read(lambda tx, a=agent_id, m=moment: as_of(tx, a, m))
            assert (list(found.blocks), list(found.passages)) == then[name], (moment, name)


@longer_in_torture
@pytest.mark.promise("M8")
@pytest.mark.parametrize("engine", ENGINES)
def test_a_turn_taken_back_leaves_no_trace_and_can_be_had_back(engine: str, tmp_path: Path) -> None:
    with world(engine, tmp_path) as here:

        @examples_on(engine)
        @given(st.lists(TURNS, max_size=3), TURNS)
        def check(former: list[Turn], last: Turn) -> None:
            here.runner.run(_to_and_fro(here, former, last))

        check()


async def _to_and_fro(here: World, former: list[Turn], last: Turn) -> None:
    life = await here.life()
    for turn in former:
        await life.play(turn)
    before = await life.state()
    turn_id = await life.play(last)
    after = await life.state()
    effects = await take_back(life, turn_id)
    assert await life.state() == before
    assert await take_back(life, turn_id) is None
    assert await life.state() == before
    if effects is None:
        assert after == before
        return
    assert effects.taken_back_by is not None
    again = await take_back(life, effects.taken_back_by)
    assert again is not None
    assert await life.state() == after
    assert await take_back(life, turn_id) is not None
    assert await life.state() == before
    assert await take_back(life, turn_id) is None


@longer_in_torture
@pytest.mark.promise("M8")
@pytest.mark.parametrize("engine", ENGINES)
def test_memory_as_of_every_moment_is_what_was_seen_then(engine: str, tmp_path: Path) -> None:
    with world(engine, tmp_path) as here:

        @examples_on(engine)
        @given(st.lists(st.tuples(TURNS, st.booleans()), min_size=1, max_size=6))
        def check(script: list[tuple[Turn, bool]]) -> None:
            here.runner.run(_look_back(here, script))

        check()


async def _look_back(here: World, script: list[tuple[Turn, bool]]) -> None:
    life = await here.life()
    for turn, is_taken_back in script:
        turn_id = await life.play(turn)
        if is_taken_back:
            await take_back(life, turn_id)
    await check_moments(life)


@longer_in_torture
@pytest.mark.promise("M8")
@pytest.mark.parametrize("engine", ENGINES)
def test_an_earlier_turn_can_be_taken_back_whatever_came_after(engine: str, tmp_path: Path) -> None:
    with world(engine, tmp_path) as here:

        @examples_on(engine)
        @given(st.lists(TURNS, min_size=2, max_size=5), st.data())
        def check(script: list[Turn], data: Any) -> None:
            which = data.draw(st.integers(0, len(script) - 2))
            here.runner.run(_earlier(here, script, which))

        check()


async def _earlier(here: World, script: list[Turn], which: int) -> None:
    life = await here.life()
    ids = [await life.play(turn) for turn in script]
    others = {
        turn_id: await life.database.read(lambda tx, t=turn_id: writes_of_turn(tx, t))
        for turn_id in ids
    }
    try:
        effects = await take_back(life, ids[which])
    except Conflict:
        effects = None
    if effects is not None:
        assert await take_back(life, ids[which]) is None
        assert effects.taken_back_by is not None
        mine = {one.id for one in effects.inserted}
        held = {one.id for name in life.agents for one in (await life.seen())[name][1]}
        assert not mine & held
    for turn_id in ids:
        now = await life.database.read(lambda tx, t=turn_id: writes_of_turn(tx, t))
        assert [one.number for one in now.edits] == [one.number for one in others[turn_id].edits]
    await check_moments(life)


# -- one by one ------------------------------------------------------------------------------------


@dataclass
class Home:
    """A database with two agents, and short ways to do what the tests do all the time."""

    database: Database
    aria: str
    bob: str
    now: int = NOW

    def tick(self) -> int:
        self.now += 1_000
        return self.now

    def agent(self, turn_id: str, agent_id: str | None = None, **given: Any) -> Writer:
        return as_agent(agent_id or self.aria, self.tick(), turn_id=turn_id, **given)

    async def create(self, label: str, writer: Writer | None = None, **given: Any) -> Block:
        by = writer or as_owner(self.tick())
        owner = given.pop("owner", self.aria)
        return await self.database.write(lambda tx: blocks.create(tx, by, owner, label, **given))

    async def write(self, writer: Writer, block: Block, write: BlockWrite) -> Block:
        return await self.database.write(lambda tx: blocks.write(tx, writer, block.id, write))

    async def archive(
        self, writer: Writer, write: PassageWrite, whose: str | None = None
    ) -> Passage:
        written = await self.database.write(
            lambda tx: passages.write(tx, writer, whose or self.aria, write)
        )
        return written.passage

    async def take_back(self, writer: Writer, turn_id: str) -> TurnWrites:
        return await self.database.write(lambda tx: gate.revert_turn(tx, writer, turn_id))

    async def text(self, block: Block) -> str:
        row = await self.database.read(lambda tx: rows.get(tx, block.id))
        assert row is not None
        return row.text

    async def labels(self, agent_id: str | None = None) -> list[str]:
        seen = await self.database.read(lambda tx: seen_by(tx, agent_id or self.aria))
        return [one.name for one in seen]

    async def held(self, agent_id: str | None = None) -> list[Passage]:
        return await self.database.read(lambda tx: listing(tx, [agent_id or self.aria]))

    async def then(self, moment: int, agent_id: str | None = None) -> MemoryAt:
        return await self.database.read(lambda tx: as_of(tx, agent_id or self.aria, moment))

    async def everything(self) -> list[Any]:
        tables = ("blocks", "block_edits", "block_agents", "passages", "passage_edits")

        async def work(tx: Connection) -> list[Any]:
            found = [await tx.all(f"SELECT * FROM {table}") for table in tables]
            return [sorted(one, key=repr) for one in found]

        return await self.database.read(work)


@pytest.fixture(params=ENGINES)
async def home(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Home]:
    async with opened(request.param, tmp_path) as database:
        aria = await database.write(lambda tx: put_agent(tx, "aria"))
        bob = await database.write(lambda tx: put_agent(tx, "bob"))
        yield Home(database, aria, bob)


async def test_an_agent_takes_back_its_own_turn_and_no_other(home: Home):
    notes = await home.create("notes", content="one")
    await home.write(home.agent("turn_1"), notes, Append("two"))
    await home.write(as_owner(home.tick()), notes, Append("three"))
    with pytest.raises(NotAllowed, match="turn_1 is not yours to take back"):
        await home.take_back(home.agent("turn_2", home.bob), "turn_1")
    effects = await home.take_back(home.agent("turn_3"), "turn_1")
    assert [(one.number, one.kind) for one in effects.edits] == [(2, "append")]
    assert await home.text(notes) == "one\nthree"
    # What an agent takes back in a turn is one of the things that turn has done.
    assert effects.taken_back_by == "turn_3"
    await home.take_back(as_owner(home.tick()), "turn_3")
    assert await home.text(notes) == "one\ntwo\nthree"


async def test_a_turn_of_another_agent_that_is_in_the_journal_is_not_ones_own(home: Home):
    await home.database.write(lambda tx: put_turn(tx, home.bob, "turn_1", "hello"))
    notes = await home.create("notes")
    # The same words for the author are no proof: agents can be given another's former name.
    await home.write(home.agent("turn_1"), notes, Append("two"))
    with pytest.raises(NotAllowed):
        await home.take_back(home.agent("turn_2"), "turn_1")
    await home.database.write(lambda tx: put_turn(tx, home.aria, "turn_2", "hello"))
    with pytest.raises(Conflict, match="nothing to take back of turn turn_2"):
        await home.take_back(home.agent("turn_3"), "turn_2")


async def test_what_needs_consent_changes_nothing_before_it_is_given(home: Home):
    notes = await home.create("notes", content="one")
    await home.write(home.agent("turn_1"), notes, Append("two"))
    await home.archive(home.agent("turn_1"), Insert("Anna likes green tea."))
    await home.write(as_owner(home.tick()), notes, Describe(permission=Permission.PARTNER))
    before = await home.everything()
    with pytest.raises(WriteNeedsApproval, match="aria wants to revert block 'notes'"):
        await home.take_back(home.agent("turn_2"), "turn_1")
    assert await home.everything() == before
    await home.take_back(replace(home.agent("turn_2"), approved=True), "turn_1")
    assert await home.text(notes) == "one"
    assert await home.held() == []


async def test_a_block_that_may_not_be_overwritten_keeps_the_whole_turn(home: Home):
    notes = await home.create("notes", content="one")
    await home.archive(home.agent("turn_1"), Insert("Anna likes green tea."))
    await home.write(home.agent("turn_1"), notes, Append("two"))
    await home.write(as_owner(home.tick()), notes, Describe(permission=Permission.APPEND))
    before = await home.everything()
    with pytest.raises(NotAllowed, match="append, which does not allow it to overwrite"):
        await home.take_back(home.agent("turn_2"), "turn_1")
    assert await home.everything() == before


async def test_in_company_an_agent_does_not_touch_what_they_may_not_hear(home: Home):
    await home.archive(home.agent("turn_1"), Insert("The key lies under the third pot."))
    before = await home.everything()
    stranger = Participants((Participant("person_carl"),))
    with pytest.raises(NotFound) as caught:
        await home.take_back(home.agent("turn_2", participants=stranger), "turn_1")
    assert "key" not in caught.value.message
    assert await home.everything() == before


async def test_an_unknown_turn_is_not_found(home: Home):
    with pytest.raises(NotFound, match="There is no turn 'turn_9'"):
        await home.take_back(as_owner(home.tick()), "turn_9")


async def test_a_block_made_in_the_turn_goes_and_comes_back(home: Home):
    working = BlockType.WORKING
    notes = await home.create("notes", home.agent("turn_1"), content="one", type=working)
    await home.write(home.agent("turn_1"), notes, Append("two"))
    made = home.now
    effects = await home.take_back(home.agent("turn_2"), "turn_1")
    gone = home.now
    assert await home.labels() == []
    assert await home.text(notes) == "one\ntwo"
    assert effects.taken_back_by is not None
    await home.take_back(as_owner(home.tick()), "turn_2")
    assert await home.labels() == ["notes"]
    assert [len((await home.then(at)).blocks) for at in (made, gone, home.now)] == [1, 0, 1]


async def test_a_block_that_others_wrote_to_stays(home: Home):
    working = BlockType.WORKING
    notes = await home.create("notes", home.agent("turn_1"), content="one", type=working)
    await home.write(home.agent("turn_1"), notes, Append("two"))
    await home.write(as_owner(home.tick()), notes, Append("mine"))
    effects = await home.take_back(as_owner(home.tick()), "turn_1")
    assert effects.left == ("Block 'notes' stays, since others have written to it.",)
    assert await home.text(notes) == "one\nmine"


async def test_a_block_put_away_comes_back_unless_its_label_is_taken(home: Home):
    notes = await home.create("notes", content="one", permission=Permission.ADMIN)
    await home.write(home.agent("turn_1"), notes, Append("two"))
    await home.write(home.agent("turn_1"), notes, Retire())
    other = await home.create("notes", content="other")
    before = await home.everything()
    with pytest.raises(Conflict, match="'notes' cannot come back, since there is another one"):
        await home.take_back(as_owner(home.tick()), "turn_1")
    assert await home.everything() == before
    await home.write(as_owner(home.tick()), other, Describe(label="others"))
    await home.take_back(as_owner(home.tick()), "turn_1")
    assert await home.labels() == ["notes", "others"]
    assert await home.text(notes) == "one"


async def test_what_is_said_of_a_block_goes_back_where_nobody_changed_it_since(home: Home):
    notes = await home.create("notes", content="one")
    by_turn = replace(as_owner(home.tick()), turn_id="turn_1")
    await home.write(by_turn, notes, Describe(description="new", pinned=True, label="renamed"))
    await home.write(by_turn, notes, Share(home.bob, Permission.READ_ONLY))
    await home.write(as_owner(home.tick()), notes, Describe(description="mine"))
    await home.create("notes", content="another")
    effects = await home.take_back(as_owner(home.tick()), "turn_1")
    assert effects.left == ("Block 'renamed' keeps its label, since there is another 'notes' now.",)
    (seen,) = [
        one
        for one in await home.database.read(lambda tx: seen_by(tx, home.aria))
        if one.block.id == notes.id
    ]
    assert (seen.block.description, seen.block.pinned) == ("mine", False)
    assert await home.labels(home.bob) == []


async def test_later_words_of_others_stay_in_a_passage(home: Home):
    first = await home.archive(as_owner(home.tick()), Insert("Anna rows.", tags=("anna",)))
    turn = home.agent("turn_1", origins=[Origin(OriginKind.MESSAGE, "turn_1")])
    await home.archive(turn, AppendPassage(first.id, "She rows on Mondays."))
    await home.archive(home.agent("turn_1"), Tag(first.id, ("anna", "sport")))
    await home.archive(as_owner(home.tick()), AppendPassage(first.id, "She lives in Bern."))
    await home.archive(as_owner(home.tick()), Tag(first.id, ("anna", "sport", "bern")))
    effects = await home.take_back(as_owner(home.tick()), "turn_1")
    assert [one.kind for one in effects.passage_edits] == ["append", "tag"]
    (held,) = await home.held()
    assert held.text == "Anna rows.\nShe lives in Bern."
    assert held.tags == ("anna", "bern")
    assert Origin(OriginKind.MESSAGE, "turn_1") not in held.source.origins
    # Who may see what is left is not known any more, so that it stays with the fewer.
    assert held.source.audience == turn.source.audience

    async def find(text: str, moment: int | None = None) -> list[Hit]:
        query = Query(text, domains=("passages",), moment=moment)
        found = await home.database.read(
            lambda tx: search(tx, home.aria, query, participants=OWNER_ALONE, now=home.now)
        )
        return [one for one in found.hits if one.matched]

    assert [one.id for one in await find("Bern")] == [first.id]
    # Words that were taken back are found as of when they were there, and no others.
    assert await find("Mondays") == []
    then = await find("Mondays", home.now - 1)
    assert [one.text for one in then] == ["Anna rows.\nShe rows on Mondays.\nShe lives in Bern."]
    assert await find("Mondays", first.known_from_ms) == []


async def test_what_comes_back_into_a_passage_is_heard_by_no_more_than_before(home: Home):
    first = await home.archive(as_owner(home.tick()), Insert("Anna rows."))
    private = home.agent("turn_1")
    await home.archive(private, AppendPassage(first.id, "She is ill."))
    assert first.source.audience == PUBLIC
    effects = await home.take_back(as_owner(home.tick()), "turn_1")
    assert (await home.held())[0].source == first.source
    await home.archive(as_owner(home.tick()), AppendPassage(first.id, "She lives in Bern."))
    assert (await home.held())[0].source.audience == PUBLIC
    assert effects.taken_back_by is not None
    await home.take_back(as_owner(home.tick()), effects.taken_back_by)
    (held,) = await home.held()
    assert "She is ill." in held.text
    assert held.source.audience == OWNER_ONLY


async def test_what_a_turn_superseded_holds_again(home: Home):
    old = await home.archive(as_owner(home.tick()), Insert("The meeting is on 3 May."))
    await home.archive(home.agent("turn_1"), Insert("The meeting is on 4 May.", supersedes=old.id))
    superseded = home.now
    await home.take_back(as_owner(home.tick()), "turn_1")
    assert await home.held() == [old]
    assert [one.text for one in (await home.then(superseded)).passages] == [
        "The meeting is on 4 May."
    ]


async def test_what_was_taken_back_can_be_forgotten(home: Home, tmp_path: Path):
    notes = await home.create("notes", content="one")
    first = await home.archive(as_owner(home.tick()), Insert("Anna rows."))
    await home.write(home.agent("turn_1"), notes, Append("the secret is marzipan"))
    await home.archive(home.agent("turn_1"), AppendPassage(first.id, "Her secret is marzipan."))
    effects = await home.take_back(as_owner(home.tick()), "turn_1")
    (tmp_path / "data").mkdir(exist_ok=True)
    request = Forgetting(texts=("marzipan",))
    await forget(home.database, tmp_path / "data", as_owner(home.tick()), request)
    assert "marzipan" not in repr(await home.everything())
    # The rest of what was taken back can still be had back.
    assert effects.taken_back_by is not None
    await home.take_back(as_owner(home.tick()), effects.taken_back_by)
    assert (await home.text(notes)).startswith("one\nthe secret is ")
    assert (await home.held())[0].text.startswith("Anna rows.\nHer secret is ")


async def test_one_edit_is_taken_back_whatever_it_did(home: Home):
    notes = await home.create("notes", content="one")
    await home.write(as_owner(home.tick()), notes, Append("two"))
    await home.write(as_owner(home.tick()), notes, Describe(pinned=True))
    await home.write(as_owner(home.tick()), notes, Append("three"))

    async def revert(number: int, writer: Writer | None = None) -> Block:
        by = writer or as_owner(home.tick())
        return await home.database.write(lambda tx: gate.revert_edit(tx, by, notes.id, number))

    assert (await revert(2)).text == "one\nthree"
    assert not (await revert(3)).pinned
    for number in (2, 3):
        with pytest.raises(Conflict, match=f"Edit {number} of block 'notes' was taken back"):
            await revert(number)
    assert (await revert(5)).text == "one\ntwo\nthree"
    assert (await revert(2)).text == "one\nthree"
    with pytest.raises(NotFound, match="no edit 99"):
        await revert(99)
    with pytest.raises(NotAllowed, match="Edit 4 of block 'notes' is not yours"):
        await revert(4, home.agent("turn_1"))
    assert await home.text(notes) == "one\nthree"


async def test_sharing_is_told_as_it_was(home: Home):
    notes = await home.create("notes", content="one")
    created = home.now
    await home.write(as_owner(home.tick()), notes, Share(home.bob, Permission.READ_ONLY))
    shared = home.now
    await home.write(as_owner(home.tick()), notes, Share(home.bob, Permission.APPEND))
    more = home.now
    await home.write(as_owner(home.tick()), notes, Unshare(home.bob))
    then = [(await home.then(at, home.bob)).blocks for at in (created, shared, more, home.now)]
    assert [[one.permission.value for one in seen] for seen in then] == [
        [],
        ["read_only"],
        ["append"],
        [],
    ]
    with pytest.raises(NotFound, match="There is no agent 'agent_9'"):
        await home.then(home.now, "agent_9")


# -- forks -----------------------------------------------------------------------------------------


async def lived(home: Home) -> tuple[Block, Block]:
    """Let aria have a life with blocks, a lent block, passages and a source."""
    notes = await home.create("notes", content="one")
    lent = await home.create("lent", owner=home.bob, content="bob's")
    await home.write(as_owner(home.tick()), lent, Share(home.aria, Permission.APPEND))
    anna = Participants((Participant(OWNER, frozenset({OWNER})), Participant("person_anna")))
    await home.write(
        home.agent("turn_1", participants=anna, trust=Trust.KNOWN), notes, Append("two")
    )
    first = await home.archive(
        home.agent("turn_1"), Insert("The meeting is on 3 May.", tags=("may",))
    )
    await home.archive(home.agent("turn_2"), Insert("Anna likes green tea."))
    source = DocumentSource("source_1", "papers", "/papers", created_at_ms=NOW)
    await home.database.write(lambda tx: documents.create(tx, source))
    await home.database.write(lambda tx: documents.attach(tx, "source_1", home.aria, NOW))
    home.tick()
    await home.write(home.agent("turn_3"), notes, Append("three"))
    await home.archive(
        home.agent("turn_3"), Insert("The meeting is on 4 May.", supersedes=first.id)
    )
    return notes, lent


def told(memory: MemoryAt) -> Any:
    """What a memory says, whoever's it is."""
    return (
        [
            (one.name, one.block.text, [(line.text, line.label) for line in one.lines])
            for one in memory.blocks
        ],
        [
            (one.text, one.tags, one.source, one.known_from_ms, one.true_from_ms, one.author)
            for one in memory.passages
        ],
    )


async def fork(home: Home, target: str, moment: int | None = None, **given: Any) -> Forked:
    by = given.get("writer") or as_owner(home.tick())
    return await home.database.write(
        lambda tx: fork_memory(tx, by, home.aria, target, moment=moment)
    )


@pytest.mark.promise("M8")
async def test_a_fork_has_the_same_memory_and_past_and_then_goes_its_own_way(home: Home):
    notes, _ = await lived(home)
    moments = [(at, await home.then(at)) for at in range(NOW, home.now + 1_000, 1_000)]
    carl = await home.database.write(lambda tx: put_agent(tx, "carl"))
    assert await fork(home, carl) == Forked(blocks=1, shared=1, passages=2, sources=1)
    now = await home.then(home.now, carl)
    assert told(now) == told(await home.then(home.now))
    assert [one.permission.value for one in now.blocks] == ["read_write", "append"]
    for moment, then in moments:
        own = [one for one in then.blocks if one.owner_name is None]
        found = await home.then(moment, carl)
        assert told(replace(found, blocks=found.blocks[:1] if own else ())) == told(
            replace(then, blocks=tuple(own))
        )
    (copy,) = [one.block for one in now.blocks if one.owner_name is None]
    was = await home.database.read(lambda tx: history.edits(tx, notes.id, limit=99))
    edits = await home.database.read(lambda tx: history.edits(tx, copy.id, limit=99))
    assert [(one.kind, one.author, one.source) for one in edits] == [
        (one.kind, one.author, one.source) for one in was
    ]
    # Both go on by themselves: neither a turn's revert nor an edit reaches the other.
    await home.take_back(as_owner(home.tick()), "turn_3")
    await home.write(as_owner(home.tick()), copy, Append("four"))
    assert await home.text(notes) == "one\ntwo"
    assert await home.text(copy) == "one\ntwo\nthree\nfour"
    assert [one.text for one in await home.held(carl)] == [
        "The meeting is on 4 May.",
        "Anna likes green tea.",
    ]


@pytest.mark.promise("M8")
async def test_a_fork_of_a_moment_is_what_was_known_then(home: Home):
    notes, _ = await lived(home)
    moment = home.now - 2_000
    then = await home.then(moment)
    await home.write(as_owner(home.tick()), notes, Retire())
    carl = await home.database.write(lambda tx: put_agent(tx, "carl"))
    assert await fork(home, carl, moment) == Forked(1, 1, 2, 1)
    found = await home.then(home.now, carl)
    assert told(found) == told(then)
    assert found.blocks[0].block.text == "one\ntwo"
    assert [one.text for one in found.passages][-1] == "The meeting is on 3 May."
    dora = await home.database.write(lambda tx: put_agent(tx, "dora"))
    assert (await fork(home, dora, NOW - 1)).sources == 0, "the source came later"
    told_by = await home.database.read(lambda tx: blame(tx, found.blocks[0].block.id))
    assert [
        [str(origin) for edit in edits for origin in edit.source.origins] for _, edits in told_by
    ] == [["person:owner#cli"], ["message:turn_1"]]
    assert {edit.kind for _, edits in told_by for edit in edits} == {"fork"}


async def test_a_fork_over_blocks_of_the_same_label_changes_nothing(home: Home):
    await lived(home)
    await home.create("notes", owner=home.bob)
    before = await home.everything()
    for moment in (None, home.now):
        with pytest.raises(Conflict, match=r"'bob' has blocks of the same labels .*\('notes'\)"):
            await fork(home, home.bob, moment)
        assert await home.everything() == before
    with pytest.raises(InvalidInput, match="'aria' cannot be copied to itself"):
        await fork(home, home.aria)
    with pytest.raises(NotFound, match="There is no agent 'agent_9'"):
        await fork(home, "agent_9")


async def test_only_the_owner_forks(home: Home):
    await lived(home)
    carl = await home.database.write(lambda tx: put_agent(tx, "carl"))
    before = await home.everything()
    for agent_id in (home.aria, carl):
        with pytest.raises(NotAllowed):
            await fork(home, carl, writer=home.agent("turn_9", agent_id))
    assert await home.everything() == before
