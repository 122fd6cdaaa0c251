"""Memory as a document: exact there and back, and nothing in it that those present may not see."""

import itertools
import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from asterism.errors import AsterismError, InvalidInput, NotAllowed, NotFound
from asterism.memory import people
from asterism.memory.archive import listing
from asterism.memory.blocks import seen_by
from asterism.memory.export import Report, export, import_memory
from asterism.memory.gate import blocks, passages
from asterism.memory.gate.passages import NewPassage
from asterism.memory.gate.writer import Writer
from asterism.store import summaries
from asterism.store.database import Connection, Database
from asterism.types.agents import OWNER, OWNER_ALONE, Audience, Participant, Participants, Trust
from asterism.types.memory import (
    Append,
    BlockType,
    CompositeSchema,
    Describe,
    Field,
    FieldType,
    Insert,
    ListSchema,
    LogSchema,
    MapSchema,
    Origin,
    OriginKind,
    Permission,
    Schema,
    SectionSchema,
    Share,
    Source,
    TextSchema,
)
from asterism.types.turns import Strategy, Summary
from tests.conformance.memory_scene import ENGINES, NOW, as_agent, as_owner, opened, put_agent
from tests.conformance.travel_script import TURNS, Turn, World, world


@dataclass
class Home:
    """A database with an agent that has a memory, and one that has none."""

    database: Database
    aria: str
    carl: str

    async def export(
        self, agent_id: str, participants: Participants = OWNER_ALONE
    ) -> dict[str, Any]:
        return await self.database.read(lambda tx: export(tx, agent_id, participants=participants))

    async def import_(self, document: Any, writer: Writer | None = None, **given: Any) -> Report:
        by = writer or as_owner(NOW + 1)
        return await self.database.write(
            lambda tx: import_memory(tx, by, self.carl, document, **given)
        )

    async def everything(self) -> list[Any]:
        tables = ("blocks", "block_edits", "passages", "passage_edits", "persons", "agents")

        async def work(tx: Connection) -> list[Any]:
            found = [await tx.all(f"SELECT * FROM {table}") for table in tables]
            return [sorted(one, key=repr) for one in found]

        return await self.database.read(work)


@pytest.fixture(params=ENGINES)
async def home(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Home]:
    async with opened(request.param, tmp_path) as database:
        aria = await database.write(lambda tx: put_agent(tx, "aria"))
        carl = await database.write(lambda tx: put_agent(tx, "carl"))
        yield Home(database, aria, carl)


def carried(document: dict[str, Any]) -> Any:
    """What an import carries of a document, in an order that does not depend on ids."""

    def passage(given: dict[str, Any]) -> dict[str, Any]:
        kept = {name: value for name, value in given.items() if name not in ("id", "author")}
        metadata = dict(given["metadata"])
        metadata.pop("contradicts", None)
        return {**kept, "metadata": metadata}

    return (
        document["blocks"],
        sorted(map(passage, document["passages"]), key=json.dumps),
    )


# -- there and back --------------------------------------------------------------------------------


@pytest.mark.promise("M7", "M9")
@pytest.mark.parametrize("engine", ENGINES)
def test_what_is_exported_comes_back_as_it_was(engine: str, tmp_path: Path) -> None:
    with world(engine, tmp_path) as here:

        @given(st.lists(TURNS, min_size=1, max_size=4))
        def check(script: list[Turn]) -> None:
            here.runner.run(_there_and_back(here, script))

        check()


async def _there_and_back(here: World, script: list[Turn]) -> None:
    life = await here.life()
    for turn in script:
        await life.play(turn)
    carl = await life.database.write(lambda tx: put_agent(tx, "carl"))
    aria = life.agents["aria"]
    first = await life.database.read(lambda tx: export(tx, aria))
    document = json.loads(json.dumps(first))
    assert document == first
    writer = life.owner()
    report = await life.database.write(lambda tx: import_memory(tx, writer, carl, document))
    assume(report.merged == 0)
    assert [one for one in report.left if "Blocks of others" not in one] == []
    assert report.passages == len(first["passages"])
    again = await life.database.read(lambda tx: export(tx, carl))
    assert carried(again) == carried(first)


EVERY_SCHEMA: dict[str, tuple[Schema, Sequence[str]]] = {
    "text": (TextSchema(2, 1), ["one\ntwo", "three"]),
    "list": (ListSchema((Field("task"), Field("done", FieldType.BOOLEAN))), ['{"task": "row"}']),
    "log": (LogSchema(), ["saw Anna", "saw Ben"]),
    "map": (MapSchema((Field("name", default="x"), Field("n", FieldType.COUNTER))), []),
    "composite": (
        CompositeSchema((SectionSchema("a", TextSchema()), SectionSchema("b", ListSchema()))),
        [],
    ),
}


@pytest.mark.parametrize("kind", EVERY_SCHEMA)
async def test_every_schema_comes_back(home: Home, kind: str):
    schema, said = EVERY_SCHEMA[kind]

    async def work(tx: Connection) -> None:
        block = await blocks.create(
            *(tx, as_owner(), home.aria, "b"),
            schema=schema,
            type=BlockType.WORKING,
            description="what it is for",
            limit=777,
            permission=Permission.PARTNER,
            audience=Audience.read("role:family"),
            pinned=True,
        )
        for at, content in enumerate(said):
            writer = as_agent(home.aria, NOW + at, turn_id=f"turn_{at}", trust=Trust.KNOWN)
            writer = replace(
                writer, approved=True, participants=OWNER_ALONE, actor=replace(writer.actor)
            )
            await blocks.write(tx, writer, block.id, Append(content))
        if kind == "composite":
            await blocks.write(tx, as_owner(), block.id, Append("# x", section="a"))
            await blocks.write(tx, as_owner(), block.id, Append("item", section="b"))

    await home.database.write(work)
    first = await home.export(home.aria)
    report = await home.import_(first)
    assert report == Report(blocks=("b",))
    assert carried(await home.export(home.carl)) == carried(first)
    (was,), (now,) = [
        await home.database.read(lambda tx, a=agent_id: seen_by(tx, a))
        for agent_id in (home.aria, home.carl)
    ]
    assert [(line.text, line.label) for line in now.lines] == [
        (line.text, line.label) for line in was.lines
    ]
    # It is a block like any other from now on.
    if kind in ("text", "log"):
        after = await home.database.write(
            lambda tx: blocks.write(tx, as_owner(NOW + 9), now.block.id, Append("more"))
        )
        assert after.text.startswith(was.block.text)


async def put_memory(home: Home) -> None:
    """Give aria a block, passages, a summary, and what is not carried."""

    async def work(tx: Connection) -> None:
        anna = await people.create_person(tx, "Anna", NOW)
        for_anna = Audience.read(f"person:{anna.id}")
        notes = await blocks.create(tx, as_owner(), home.aria, "notes", content="one")
        participants = Participants((Participant(anna.id),))
        writer = as_agent(
            home.aria,
            participants=participants,
            trust=Trust.KNOWN,
            origins=[Origin(OriginKind.PERSON, anna.id, "discord")],
        )
        await blocks.write(tx, writer, notes.id, Append("two"))
        lent = await blocks.create(tx, as_owner(), home.carl, "lent", content="carl's")
        await blocks.write(tx, as_owner(), lent.id, Share(home.aria, Permission.APPEND))
        source = Source((Origin(OriginKind.PERSON, anna.id, "discord"),), for_anna, Trust.KNOWN)
        await passages.insert_many(
            *(tx, as_owner(), home.aria),
            [NewPassage("Anna rows.", source, ("anna",), {"a": [1, None]}, true_from=NOW - 9)],
        )
        await passages.write(tx, as_owner(), home.aria, Insert("The sky is blue."))
        await summaries.put(
            tx,
            Summary(
                *("sum_1", home.aria, OWNER, for_anna, Trust.KNOWN, 1, 9, Strategy.SUMMARY),
                *("Anna was here.", (), 9, 100, "rule", NOW),
            ),
        )

    await home.database.write(work)


async def test_people_are_found_by_name_or_introduced_as_strangers(home: Home, tmp_path: Path):
    await put_memory(home)
    document = await home.export(home.aria)
    (anna,) = document["people"]
    assert document["people"] == {anna: "Anna"}
    async with opened("sqlite", tmp_path / "other") as database:
        other = Home(database, "", await database.write(lambda tx: put_agent(tx, "carl")))
        report = await other.import_(document)
        assert report.people == ("Anna",)
        assert (report.blocks, report.passages, report.merged) == (("notes",), 2, 0)
        assert list(report.left) == [
            "Summaries (1) were not imported: they stand for messages that are not here.",
            "Blocks of others (1) were not imported. Ask their owners to share them.",
        ]
        there = await database.read(lambda tx: people.find(tx, "Anna"))
        assert (there.trust, there.roles, there.accounts) == (Trust.STRANGER, (), ())
        assert there.id != anna
        again = await other.export(other.carl)
        assert carried(json.loads(json.dumps(again).replace(there.id, anna))) == carried(document)
        # Who is known by that name already is meant, whatever their id.
        twin = Home(database, "", await database.write(lambda tx: put_agent(tx, "twin")))
        assert (await twin.import_(document)).people == ()


async def test_a_dry_run_tells_the_same_and_changes_nothing(home: Home):
    await put_memory(home)
    document = await home.export(home.aria)
    document["people"] = {"person_9": "Zoe"}
    document["blocks"][0]["audience"] = "person:person_9"
    before = await home.everything()
    tried = await home.import_(document, dry_run=True)
    assert await home.everything() == before
    assert tried == await home.import_(document)
    assert tried.people == ("Zoe",)
    assert await home.everything() != before


async def test_what_breaks_a_rule_is_left_and_the_rest_is_carried(home: Home):
    await put_memory(home)
    document = await home.export(home.aria)
    (good,) = document["blocks"]
    rows: dict[str, Any] = {**good, "schema": {"kind": "list"}, "lines": [], "text": ""}
    document["blocks"] = [
        {**good, "label": "no good"},
        {**good, "label": "small", "limit": 3},
        {**good, "label": "rows", "schema": {"kind": "rows"}},
        {**rows, "label": "wrong", "value": [{"a": 1}]},
        {**rows, "label": "part", "value": None},
        {**good, "label": "other", "text": "one\nthree"},
        {
            **good,
            "label": "trust",
            "lines": [good["lines"][0], {**good["lines"][0], "trust": "king"}],
        },
        {**good, "label": "aud", "audience": "everybody"},
        good,
        good,
        7,
    ]
    (first, second) = document["passages"]
    document["passages"] = [
        first,
        {**first, "text": "x\x00y", "id": "pas_nul"},
        {**first, "text": "z" * 100_001, "id": "pas_long"},
        {**first, "tags": [1], "id": "pas_tags"},
        {**first, "origins": [], "text": "From nowhere."},
        {**first, "origins": [["person"]], "id": "pas_origin"},
        second,
        None,
    ]
    report = await home.import_(document)
    assert (report.blocks, report.passages) == (("notes",), 2)
    left = [one for one in report.left if one.startswith(("Block ", "Passage "))]
    assert [one.split(" was not imported: ")[0] for one in left] == [
        "Block 'no good'",
        "Block 'small'",
        "Block 'rows'",
        "Block 'wrong'",
        "Block 'part'",
        "Block 'other'",
        "Block 'trust'",
        "Block 'aud'",
        "Block 'notes'",
        "Block number 11",
        "Passage 'pas_nul'",
        "Passage 'pas_tags'",
        "Passage 'pas_origin'",
        "Passage number 8",
        f"Passage {'z' * 60!r}",
        "Passage 'From nowhere.'",
    ]
    assert all("Nothing was" not in one for one in left)
    assert left[6].endswith(
        "of line 2, 'trust' is 'king'; it is one of owner, known, stranger, tool, document, web."
    )
    assert len(await home.database.read(lambda tx: listing(tx, [home.carl]))) == 2


async def test_what_was_exported_in_version_1_is_carried_the_same(home: Home):
    """There, how far something is trusted was called its tier."""
    await put_memory(home)
    document = await home.export(home.aria)
    former: dict[str, Any] = json.loads(json.dumps(document).replace('"trust":', '"tier":'))
    former["version"] = 1
    assert former != document
    report = await home.import_(former)
    assert (report.blocks, report.passages) == (("notes",), 2)
    blocks, passages = carried(await home.export(home.carl))
    notes = [block for block in blocks if block["label"] == "notes"]
    assert (notes, passages) == carried(document)


async def test_what_is_there_is_merged_and_not_told_twice(home: Home):
    await put_memory(home)
    document = await home.export(home.aria)
    await home.import_(document)
    again = await home.import_({**document, "blocks": []})
    assert (again.passages, again.merged) == (0, 2)
    assert carried(await home.export(home.carl))[1] == carried(document)[1]


async def test_only_the_owner_imports(home: Home):
    await put_memory(home)
    document = await home.export(home.aria)
    before = await home.everything()
    for agent_id in (home.carl, home.aria):
        with pytest.raises(NotAllowed):
            await home.import_(document, as_agent(agent_id))
    assert await home.everything() == before


@pytest.mark.parametrize(
    ("document", "match"),
    [
        (7, "not an exported memory"),
        ({"kind": "something"}, "not an exported memory"),
        ({"kind": "asterism memory", "x": {1, 2}}, "not an exported memory"),
        ({"kind": "asterism memory", "x": "\ud800"}, "not an exported memory"),
        ({"kind": "asterism memory"}, "version None of the format"),
        ({"kind": "asterism memory", "version": 3}, "version 3 of the format"),
        ({"kind": "asterism memory", "version": 1, "blocks": {}}, "'blocks' .* is not a list"),
        ({"kind": "asterism memory", "version": 1, "people": [1]}, "'people' .* not an object"),
    ],
)
async def test_what_is_no_exported_memory_is_refused(home: Home, document: Any, match: str):
    before = await home.everything()
    with pytest.raises(InvalidInput, match=match):
        await home.import_(document)
    assert await home.everything() == before


async def test_an_agent_that_is_not_there(home: Home):
    with pytest.raises(NotFound, match="There is no agent 'agent_9'"):
        await home.export("agent_9")
    with pytest.raises(NotFound, match="There is no agent 'agent_9'"):
        await replace(home, carl="agent_9").import_({"kind": "asterism memory", "version": 1})


@pytest.mark.parametrize("engine", ENGINES)
def test_no_document_brings_the_import_down(engine: str, tmp_path: Path) -> None:
    names = st.sampled_from(
        [
            *("label", "type", "schema", "description", "limit", "permission", "audience", "text"),
            *("lines", "value", "tags", "metadata", "origins", "trust", "known_from", "true_from"),
            *("kind", "fields", "name"),
        ]
    )
    words = st.sampled_from(
        [
            "a",
            "",
            "core",
            "public",
            "read_write",
            "text",
            "list",
            "map",
            "owner",
            "x\x00",
            "person:",
        ]
    )
    values = st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | words | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=8),
        max_leaves=25,
    )
    parts = st.lists(st.dictionaries(names, values, max_size=12) | values, max_size=4)
    with world(engine, tmp_path) as here:

        @given(
            st.fixed_dictionaries(
                {}, optional={"blocks": parts, "passages": parts, "people": values}
            )
        )
        def check(document: dict[str, Any]) -> None:
            here.runner.run(_import_anything(here, document))

        check()


async def _import_anything(here: World, document: dict[str, Any]) -> None:
    life = await here.life()
    whole = {"kind": "asterism memory", "version": 1, **document}
    writer = life.owner()
    refused = ""
    try:
        await life.database.write(lambda tx: import_memory(tx, writer, life.agents["bob"], whole))
    except AsterismError as error:
        refused = error.message
    assert not refused or "Nothing was changed." in refused


# -- what may be heard -----------------------------------------------------------------------------

_ROOMS = ("discord:kitchen", "discord:office")
_WORDS = (
    *("public", "owner", "person:person_anna", "person:person_ben", "role:family"),
    *(f"room:{room}" for room in _ROOMS),
)
_AUDIENCES = st.lists(
    st.lists(st.sampled_from(_WORDS), min_size=1, max_size=2).map("|".join), min_size=1, max_size=2
).map(lambda clauses: Audience.read("&".join(clauses)))
_HEARERS = st.builds(
    Participant,
    st.sampled_from(["person_anna", "person_ben", "person_carl", OWNER]),
    st.sets(st.sampled_from(["family", "work"])).map(frozenset),
    st.sets(st.sampled_from(_ROOMS)).map(frozenset),
)
_COMPANIES = st.builds(
    Participants,
    st.lists(_HEARERS, min_size=1, max_size=2, unique_by=lambda one: one.person_id).map(tuple),
    st.none() | st.sampled_from(_ROOMS),
)


@pytest.mark.promise("M9")
@pytest.mark.parametrize("engine", ENGINES)
def test_an_export_holds_nothing_that_somebody_present_may_not_hear(
    engine: str, tmp_path: Path
) -> None:
    numbers = itertools.count(1_000)
    memories = st.lists(
        st.tuples(st.sampled_from(["line", "item", "passage", "summary", "block"]), _AUDIENCES),
        min_size=1,
        max_size=10,
    )
    with world(engine, tmp_path) as here:

        @given(memories, _AUDIENCES, st.lists(_COMPANIES, min_size=1, max_size=6))
        def check(
            told: list[tuple[str, Audience]],
            blocks_audience: Audience,
            companies: list[Participants],
        ) -> None:
            secrets = [(kind, audience, f"canary{next(numbers)}") for kind, audience in told]
            here.runner.run(_listen(here, secrets, blocks_audience, companies))

        check()


async def _listen(
    here: World,
    secrets: list[tuple[str, Audience, str]],
    audience: Audience,
    companies: list[Participants],
) -> None:
    life = await here.life()
    aria = life.agents["aria"]
    heard_by: dict[str, Audience] = {}

    async def work(tx: Connection) -> None:
        wider = Describe(audience=audience)
        for label in ("notes", "tasks"):
            await blocks.write(tx, life.owner(), life.ids[label], wider)
        for at, (kind, meant, secret) in enumerate(secrets):
            source = Source((Origin(OriginKind.MESSAGE, f"turn_{secret}"),), meant, Trust.KNOWN)
            writer = replace(
                life.owner(),
                source=source,
                actor=replace(life.owner().actor, kind="system", name="rule"),
            )
            heard_by[secret] = meant
            if kind in ("line", "item"):
                label = "notes" if kind == "line" else "tasks"
                await blocks.write(tx, writer, life.ids[label], Append(f"{at} {secret}"))
                heard_by[secret] = meant & audience
            elif kind == "block":
                await blocks.create(
                    *(tx, writer, aria, f"b{secret}"), content=secret, audience=meant
                )
            elif kind == "passage":
                new = NewPassage(f"{secret} is {at}", source)
                await passages.insert_many(tx, writer, aria, [new])
            else:
                await summaries.put(
                    tx,
                    Summary(
                        *(f"sum_{secret}", aria, OWNER, meant, Trust.KNOWN, at * 9 + 1, at * 9 + 9),
                        *(Strategy.SUMMARY, secret, (), 9, 100, "rule", NOW),
                    ),
                )

    await life.database.write(work)
    for participants in companies:
        document = await life.database.read(
            lambda tx, c=participants: export(tx, aria, participants=c)
        )
        found = json.dumps(document)
        for secret, meant in heard_by.items():
            assert (secret in found) == participants.can_see(meant), (secret, str(meant))
