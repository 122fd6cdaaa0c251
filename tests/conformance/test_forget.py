"""Forgetting with proof: a canary in every place memory can live is found nowhere afterwards."""

# apsw's stubs use a type that they do not define, so that all its methods count as partly unknown.
# pyright: reportUnknownMemberType=false

import bz2
import gzip
import hashlib
import io
import json
import lzma
import shutil
import tarfile
import zipfile
import zlib
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import apsw
import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asterism.errors import InvalidInput, NotAllowed
from asterism.memory import archive, history
from asterism.memory.forgetting import Forgetting, forget, replay
from asterism.memory.forgetting.blocks import sweep_blocks
from asterism.memory.forgetting.redaction import Redactor, TextMatcher, find_spans
from asterism.memory.forgetting.rows import TABLES, How
from asterism.memory.gate import blocks, passages, replicas
from asterism.memory.gate.writer import Writer
from asterism.memory.schemas import read_schema
from asterism.permissions import Actor
from asterism.store import agents, postgres
from asterism.store.database import Connection, Database
from asterism.store.events import verify
from asterism.store.sqlite import open_sqlite
from asterism.types.agents import AgentRecord
from asterism.types.memory import (
    Add,
    Append,
    CompositeSchema,
    Insert,
    ListSchema,
    Merge,
    RemoveItem,
    Replace,
    Schema,
    SectionSchema,
    SetField,
    SetItem,
    SetText,
    TextSchema,
    Undo,
)
from tests.conformance.forget_scene import (
    ENGINES,
    OWNER,
    Engine,
    OnPostgres,
    OnSQLite,
    an_engine,
    columns_with,
    files_with,
    holds,
    new_canary,
    people_and_agents,
    plain,
    plant,
    versions_of,
)
from tests.conformance.memory_scene import put_turn
from tests.elsewhere import Elsewhere


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    with an_engine(request.param, tmp_path) as engine:
        yield engine


@pytest.fixture
async def database(engine: Engine) -> AsyncIterator[Database]:
    database = await engine.open()
    await database.write(people_and_agents)
    yield database
    await database.close()


@pytest.fixture
def canary() -> str:
    return new_canary()


async def test_every_column_is_known(database: Database) -> None:
    """A migration that adds a column has to say how it is forgotten."""
    present = await database.columns()
    assert {name: set(columns) for name, columns in present.items()} == {
        name: set(table.columns) for name, table in TABLES.items()
    }
    for name, table in TABLES.items():
        assert set(table.key) <= table.columns.keys(), name
        assert table.agent is None or table.agent in table.columns, name


@pytest.mark.promise("M13")
async def test_a_canary_is_nowhere_afterwards(
    engine: Engine, database: Database, canary: str
) -> None:
    await plant(database, engine, canary)
    where = {
        f"{name}.{column}"
        for name, table in TABLES.items()
        for column, how in table.columns.items()
        if how not in (How.ID, How.NAME, How.INDEX, How.MADE)
    }
    # Every place that can hold a text does, so that the proof covers all of them.
    assert where - await columns_with(database, canary) == set()
    before = await versions_of(database)

    receipt = await forget(database, engine.data, OWNER, Forgetting(texts=(canary,)))

    assert await columns_with(database, canary) == set()
    after = await versions_of(database)
    assert len(after) == len(before)
    assert not [said for said in after if plain(canary) in said]
    assert any("line 7" in said for said in after)
    assert receipt.finished
    assert receipt.unreached == ()
    assert set(receipt.agents) == {"agent_aria", "agent_bela"}
    assert receipt.places.keys() >= {"entries.body", "blocks.text", "tape.jsonl", "asterism.log"}
    assert plain(canary) not in receipt.wire()
    await database.close()
    assert files_with(engine.data, canary) == set()
    for body in engine.everything():
        assert not holds(canary, body)
    # The answer that was recorded letter by letter is off the tape, the others are still on it.
    tape = [json.loads(line) for line in (engine.data / "tape.jsonl").read_text().splitlines()]
    assert [line["chunks"] for line in tape] == [[], [[0, "[forgotten]"]]]
    assert (engine.data / "notes" / "a.txt").read_text() == "A note of [forgotten]."
    assert json.loads((engine.data / "notes" / "b.json").read_text()) == {"a": ["[forgotten]", 1]}


@pytest.mark.promise("M13")
async def test_an_older_backup_forgets_again(engine: Engine, canary: str) -> None:
    database = await engine.open()
    await database.write(people_and_agents)
    await plant(database, engine, canary)
    await database.close()
    engine.back_up()
    database = await engine.open()
    await forget(database, engine.data, OWNER, Forgetting(texts=(canary,)))
    assert await replay(database, engine.data) is None
    await database.close()

    engine.restore()
    database = await engine.open()
    assert "entries.body" in await columns_with(database, canary)
    receipt = await replay(database, engine.data)
    assert receipt is not None
    assert receipt.unreached == ()
    assert receipt.places.keys() >= {"entries.body", "blocks.text", "passages.text"}
    assert await columns_with(database, canary) == set()
    assert not [said for said in await versions_of(database) if plain(canary) in said]
    assert await replay(database, engine.data) is None
    await database.close()
    assert files_with(engine.data, canary) == set()
    for body in engine.everything():
        assert not holds(canary, body)


async def test_snapshots_forget_too(engine: Engine, database: Database, canary: str) -> None:
    """Copies from before a migration, with tables that this release does not know or miss some."""
    await plant(database, engine, canary)
    await engine.snapshot()
    receipt = await forget(database, engine.data, OWNER, Forgetting(texts=(canary,)))
    assert receipt.unreached == ()
    assert any("snapshot" in place for place in receipt.places)
    assert await columns_with(database, canary) == set()
    await database.close()
    assert files_with(engine.data, canary) == set()
    for body in engine.everything():
        assert not holds(canary, body)


@pytest.mark.promise("X2")
async def test_the_log_of_a_snapshot_names_what_it_forgot(
    engine: Engine, database: Database, canary: str, tmp_path: Path
) -> None:
    await plant(database, engine, canary)
    await engine.snapshot()
    await forget(database, engine.data, OWNER, Forgetting(texts=(canary,)))
    assert (await verify(database)).sound
    if isinstance(engine, OnSQLite):
        [file] = (engine.data / "snapshots").iterdir()
        (tmp_path / "restored").mkdir()
        shutil.copy(file, tmp_path / "restored" / "asterism.db")
        restored = await open_sqlite(tmp_path / "restored")
        found = await verify(restored)
        await restored.close()
        assert (found.flaws, found.forgotten) == ([], 1)
    else:
        place = "asterism_snapshot_14_1."
        count = f"SELECT COUNT(*) FROM {place}events WHERE kind = 'audit.emptied'"
        assert await database.read(lambda tx: tx.all(count)) == [(1,)]
        lengths = (
            f"SELECT length FROM {place}chains WHERE id = 'home:home' UNION ALL"
            f" SELECT COUNT(*) FROM {place}events WHERE chain = 'home:home'"
        )
        assert await database.read(lambda tx: tx.all(lengths)) == [(1,), (1,)]


async def test_packed_files_are_looked_into_or_named(
    engine: Engine, database: Database, canary: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What cannot be reached is said, too."""
    monkeypatch.setattr("asterism.memory.forgetting.files.MAX_UNPACKED", 1 << 20)
    said = f"It is {canary}.".encode()
    place = engine.data / "old"
    place.mkdir()
    (place / "a.log.gz").write_bytes(gzip.compress(said))
    (place / "b.bz2").write_bytes(bz2.compress(said))
    (place / "c").write_bytes(lzma.compress(said))
    with tarfile.open(place / "d.tgz", "w:gz") as archive:
        archive.addfile(_member("notes.txt", said), io.BytesIO(said))
    with zipfile.ZipFile(place / "e.zip", "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("one.txt", "nothing")
        packed.writestr("two.txt", said)
    holding = {one.name for one in place.iterdir()}
    (place / "clean.gz").write_bytes(gzip.compress(b"nothing of it"))
    unread = {"f.zst": b"\x28\xb5\x2f\xfdxx", "g.7z": b"7z\xbc\xaf\x27\x1cxx", "h.rar": b"x"}
    unread["torn.gz"] = gzip.compress(said * 9)[:-20]
    unread["twice.gz"] = gzip.compress(gzip.compress(said))
    unread["bomb.gz"] = gzip.compress(bytes((1 << 20) + 1), 1)
    for name, body in unread.items():
        (place / name).write_bytes(body)
    receipt = await forget(database, engine.data, OWNER, Forgetting(texts=(canary,)))
    told = {one.split(" ", 1)[0].removeprefix("old/"): one for one in receipt.unreached}
    assert told.keys() == holding | unread.keys()
    assert all("holds it and is packed" in told[name] for name in holding)
    assert all("was not looked into" in told[name] for name in unread)
    assert plain(canary) not in receipt.wire()


@pytest.mark.promise("M13")
async def test_what_is_packed_behind_a_beginning_is_looked_into_or_named(
    engine: Engine, database: Database, canary: str
) -> None:
    said = f"It is {canary}.".encode()
    place = engine.data / "old"
    place.mkdir()
    dense = bytes(hashlib.sha256(b"%d" % (at // 32)).digest()[at % 32] for at in range(4096))
    raw = zlib.compressobj(9, wbits=-15)
    holding = {
        "behind.bin": b"\xff junk" * 5 + gzip.compress(said) + b" and \xff more",
        "stream.zlib": zlib.compress(said),
        "letter.pdf": b"%PDF-1.7\n\xe2\xe3 stream\n" + zlib.compress(said * 40) + b"\nendstream",
        "second.bin": b"\xff" + zlib.compress(b"nothing of it") + bz2.compress(said),
        "third.bin": b"\xff" + lzma.compress(said),
    }
    unread = {
        "dense.bin": b"\xff" + dense,
        "raw.deflate": raw.compress(said + dense.hex().encode()) + raw.flush(),
        "inner.bin": b"\xff" + gzip.compress(gzip.compress(said)),
        "inner.zip": b"\xff\xff\xff\xffPK\x03\x04 and so on",
    }
    neither = {
        "clean.bin": b"\xff" + gzip.compress(b"nothing of it"),
        "picture.png": b"\x89PNG\r\n\x1a\n" + dense,
        "program": bytes(range(256)) * 2 + b"words and words and more words " * 60,
    }
    for name, body in (holding | unread | neither).items():
        (place / name).write_bytes(body)
    receipt = await forget(database, engine.data, OWNER, Forgetting(texts=(canary,)))
    told = {one.split(" ", 1)[0].removeprefix("old/"): one for one in receipt.unreached}
    assert told.keys() == holding.keys() | unread.keys()
    assert all("holds it and is" in told[name] for name in holding)
    assert all("looked into" in told[name] for name in unread)


def _member(name: str, body: bytes) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.size = len(body)
    return member


async def test_what_a_crash_interrupted_is_finished(
    engine: Engine, database: Database, canary: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await plant(database, engine, canary)

    async def stumble(*_: Any) -> None:
        raise RuntimeError("the lights went out")

    with monkeypatch.context() as patch:
        patch.setattr("asterism.memory.forgetting.sweep_database", stumble)
        with pytest.raises(RuntimeError):
            await forget(database, engine.data, OWNER, Forgetting(texts=(canary,)))
    assert "entries.body" in await columns_with(database, canary)
    receipt = await replay(database, engine.data)
    assert receipt is not None
    assert receipt.finished
    assert await columns_with(database, canary) == set()


async def test_tombstones_tell_nothing_without_the_key(
    engine: Engine, database: Database, canary: str
) -> None:
    await plant(database, engine, canary)
    await forget(database, engine.data, OWNER, Forgetting(texts=(canary,)))
    stone = json.loads((engine.data / "tombstones.jsonl").read_text().splitlines()[-1])
    assert stone["marks"]["texts"][0]["bytes"] == len(canary.encode()) + 1  # é as two characters
    assert (engine.data / "tombstones.key").stat().st_mode & 0o077 == 0
    (engine.data / "tombstones.key").write_text("00" * 32)
    await database.write(lambda tx: tx.run("DELETE FROM tombstones"))
    await database.write(lambda tx: tx.run("UPDATE agents SET system = ?", (canary,)))
    receipt = await replay(database, engine.data)
    assert receipt is not None
    assert "1 forgotten texts cannot be looked for" in receipt.unreached[0]
    assert "agents.system" in await columns_with(database, canary)


async def test_words_of_our_own_stay(engine: Engine, database: Database, canary: str) -> None:
    """What gives rows their form is no memory, whatever the text that is forgotten."""
    await plant(database, engine, canary)
    words = ("user", "role", "content", "public", "message", "text", "function", "owner", "kind")
    receipt = await forget(database, engine.data, OWNER, Forgetting(texts=words))
    assert receipt.finished
    rows = await database.read(
        lambda tx: tx.all("SELECT kind, body FROM entries ORDER BY agent_id, seq")
    )
    assert json.loads(rows[0][1])["role"] == "user"
    assert json.loads(rows[1][1])["tool_calls"][0]["type"] == "function"
    assert json.loads(rows[2][1])["role"] == "tool"
    assert len(await versions_of(database)) > 10
    listed = await database.read(lambda tx: archive.listing(tx, ["agent_aria"], limit=10))
    assert canary in listed[0].text


async def test_history_goes_on_afterwards(engine: Engine, database: Database, canary: str) -> None:
    """Undo, versions and merging with another replica work on what was written anew."""

    async def write(tx: Connection, *edits: Any) -> Any:
        for edit in edits:
            await blocks.write(tx, OWNER, block.id, edit, era=4)
        return await history.lines_at(tx, block.id)

    block = await database.write(
        lambda tx: blocks.create(tx, OWNER, "agent_aria", "human", content="first")
    )
    lines = [Append(f"line {number}") for number in range(9)]
    await database.write(lambda tx: write(tx, *lines, Append(f"it is {canary}!"), Append("end")))
    updates = await database.write(lambda tx: replicas.export_updates(tx, OWNER, block.id))
    replica = Elsewhere(TextSchema(), updates)
    both = replica.replica.version
    replica.edit(Append("from elsewhere"))
    await forget(database, engine.data, OWNER, Forgetting(texts=(canary,)))
    # A replica that still knows it all cannot bring it back.
    whole = replica.updates()
    with pytest.raises(InvalidInput):
        await database.write(lambda tx: write(tx, Merge(whole)))
    theirs = replica.updates(both)
    merged = await database.write(lambda tx: write(tx, Merge(theirs)))
    said = [line.text for line in merged]
    assert "from elsewhere" in said
    assert f"it is {'*' * len(canary)}!" in said
    undone = await database.write(lambda tx: write(tx, Undo()))
    assert [line.text for line in undone] == [one for one in said if one != "from elsewhere"]
    assert undone[1].edits == (2,)
    old = await database.read(lambda tx: history.lines_at(tx, block.id, version=4))
    assert [line.text for line in old] == ["first", "line 0", "line 1", "line 2"]


async def test_replicas_of_every_kind_still_merge_afterwards(
    engine: Engine, database: Database, canary: str
) -> None:
    """Of a Loro document, what the block says stays and the rest is covered under its ids."""
    kinds: list[tuple[Schema, list[Any], Any]] = [
        (
            TextSchema(),
            [Append(f"is {canary}"), Append("tea"), Replace("tea", "cake")],
            Append("x"),
        ),
        (
            read_schema("partner"),
            [
                SetField("name", canary),
                SetField("preferences", ["tea", canary]),
                SetField("preferences", ["tea", canary, "quiet"]),
                Add("energy_level", 2),
            ],
            Add("energy_level", 1),
        ),
        (
            read_schema("tasks"),
            [Append(canary), Append("milk"), SetItem(2, {"title": "oats"}), RemoveItem(1)],
            SetItem(1, {"done": True}),
        ),
        (
            CompositeSchema((SectionSchema("a", TextSchema()), SectionSchema("b", ListSchema()))),
            [Append(canary, "a"), Append("kept", "b"), Append(canary, "b")],
            Append("more", "b"),
        ),
    ]
    for number, (schema, edits, elsewhere) in enumerate(kinds):

        async def plant_block(
            tx: Connection,
            schema: Schema = schema,
            edits: list[Any] = edits,
            label: str = f"b{number}",
        ) -> tuple[str, bytes]:
            block = await blocks.create(tx, OWNER, "agent_aria", label, schema=schema)
            updates = b""
            for edit in edits:
                await blocks.write(tx, OWNER, block.id, edit)
                updates = await replicas.export_updates(tx, OWNER, block.id)
            return block.id, updates

        async def merge(tx: Connection, block_id: str, updates: bytes) -> str:
            return (await blocks.write(tx, OWNER, block_id, Merge(updates))).text

        block_id, updates = await database.write(plant_block)
        other = Elsewhere(schema, updates)
        both = other.replica.version
        other.edit(elsewhere)
        await forget(database, engine.data, OWNER, Forgetting(texts=(canary,)))
        assert await columns_with(database, canary) == set()
        text = await database.write(
            lambda tx, block_id=block_id, theirs=other.updates(both): merge(tx, block_id, theirs)
        )
        said = other.content.lines()
        assert [line for line in said if canary not in line] == [
            line for line in text.split("\n") if line in said
        ]


async def test_others_keep_theirs(engine: Engine, database: Database, canary: str) -> None:
    """Another constellation in the same database is not touched."""

    async def elsewhere(tx: Connection) -> None:
        agent = AgentRecord("agent_far", "far", "demo:demo", f"Know {canary}.", 0)
        assert await agents.create(tx, agent)
        await passages.write(
            tx, Writer.owner(1), "agent_far", Insert(f"the secret is {canary} for all")
        )

    await database.for_constellation("away").write(elsewhere)
    await plant(database, engine, canary)
    await forget(database, engine.data, OWNER, Forgetting(texts=(canary,)))
    assert await columns_with(database, canary) == {
        *("agents.system", "passages.text"),
    }


async def test_names_are_left_and_told(engine: Engine, database: Database) -> None:
    receipt = await forget(database, engine.data, OWNER, Forgetting(texts=("Anna",)))
    assert receipt.names == {"accounts.sender": 1, "persons.name": 1}
    rows = await database.read(lambda tx: tx.all("SELECT name FROM persons"))
    assert rows == [("Anna",)]


async def test_a_damaged_block_is_told(engine: Engine, database: Database, canary: str) -> None:
    await plant(database, engine, canary)
    await database.write(lambda tx: tx.run("UPDATE block_eras SET content = ?", (b"broken",)))
    receipt = await forget(database, engine.data, OWNER, Forgetting(texts=(canary,)))
    assert len(receipt.unreached) == 1
    assert "could not be written anew" in receipt.unreached[0]
    assert "entries.body" not in await columns_with(database, canary)


async def test_owners_files_and_binaries_are_told(
    engine: Engine, database: Database, canary: str
) -> None:
    (engine.data / "asterism.toml").write_text(f'[agent]\nsystem = "{canary}"\n')
    (engine.data / "model.bin").write_bytes(b"\xff\xfe\x00" + canary.encode())
    receipt = await forget(database, engine.data, OWNER, Forgetting(texts=(canary,)))
    assert sorted(receipt.unreached) == [
        "asterism.toml holds it. It is yours to edit.",
        "model.bin holds it and is not text. Remove it if it may go.",
    ]
    assert canary in (engine.data / "asterism.toml").read_text()


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
async def test_a_reader_in_the_way_is_told(engine: Engine, database: Database, canary: str) -> None:
    """What a reader keeps from being emptied is said, and is empty after the next start."""
    await plant(database, engine, canary)
    with closing(apsw.Connection(str(engine.data / "asterism.db"))) as reader:
        reader.execute("BEGIN; SELECT * FROM agents")
        receipt = await forget(database, engine.data, OWNER, Forgetting(texts=(canary,)))
        assert len(receipt.unreached) == 1
        assert "asterism.db-wal" in receipt.unreached[0]
    await database.close()
    database = await engine.open()
    await database.close()
    assert files_with(engine.data, canary) == set()


@pytest.mark.parametrize(
    "engine", [pytest.param("postgres", marks=pytest.mark.postgres)], indirect=True
)
async def test_a_long_transaction_is_told(
    engine: Engine, database: Database, canary: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "_PATIENCE", 0.2)
    monkeypatch.setattr(postgres, "_LOCK_PATIENCE", "100ms")
    await plant(database, engine, canary)
    assert isinstance(engine, OnPostgres)
    async with await psycopg.AsyncConnection.connect(engine.url) as other:
        await other.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        await other.execute("SELECT * FROM notices")
        receipt = await forget(database, engine.data, OWNER, Forgetting(texts=(canary,)))
    assert len(receipt.unreached) == 2
    assert "long transaction" in receipt.unreached[0]
    assert receipt.unreached[1].startswith("The table notices was in use")
    again = await forget(database, engine.data, OWNER, Forgetting(texts=(canary,)))
    assert again.unreached == ()
    for body in engine.everything():
        assert not holds(canary, body)


@given(st.lists(st.text("ab \n", max_size=14), min_size=1, max_size=12), st.integers(2, 5))
async def test_no_version_of_a_block_holds_it(texts: list[str], era: int) -> None:
    """Whatever was written in whatever order: only what made up the text is covered."""
    with TemporaryDirectory() as place:
        database = await open_sqlite(Path(place))
        await database.write(people_and_agents)

        async def write(tx: Connection) -> str:
            block = await blocks.create(tx, OWNER, "agent_aria", "human")
            for text in texts:
                await blocks.write(tx, OWNER, block.id, SetText(text), era=era)
            return block.id

        block_id = await database.write(write)
        before = await all_lines(database, block_id)
        seeker = TextMatcher(["abba"])
        await sweep_blocks(database, Redactor(seeker))
        after = await all_lines(database, block_id)
        await database.close()
    assert len(after) == len(before)
    for old, new in zip(before, after, strict=True):
        assert not find_spans(seeker, new)
        assert len(new) == len(old)
        assert all(b in (a, "*") for a, b in zip(old, new, strict=True))
    if not any(find_spans(seeker, text) for text in texts):
        assert after == before


async def all_lines(database: Database, block_id: str) -> list[str]:
    async def look(tx: Connection) -> list[str]:
        row = await tx.one("SELECT version FROM blocks WHERE id = ?", (block_id,))
        assert row is not None
        return [
            "\n".join(line.text for line in await history.lines_at(tx, block_id, version=number))
            for number in range(1, row[0] + 1)
        ]

    return await database.read(look)


# -- who, and what cannot be ---------------------------------------------------------------------

AGENT = Actor("agent", "agent_aria", "aria")


@pytest.mark.parametrize("text", ["", "  ", "abc", " a b ", "\u200babc"])
async def test_short_texts_are_refused(engine: Engine, database: Database, text: str) -> None:
    with pytest.raises(InvalidInput, match="at least 4 are needed"):
        await forget(database, engine.data, OWNER, Forgetting(texts=(text,)))
    assert not (engine.data / "tombstones.jsonl").exists()


async def test_only_an_owner_forgets(engine: Engine, database: Database, canary: str) -> None:
    await plant(database, engine, canary)
    before = await columns_with(database, canary)
    writer = replace(OWNER, actor=AGENT, agent_id="agent_aria")
    with pytest.raises(NotAllowed):
        await forget(database, engine.data, writer, Forgetting(texts=(canary,)))
    with pytest.raises(InvalidInput):
        await forget(database, engine.data, OWNER, Forgetting())
    assert await columns_with(database, canary) == before


async def test_memory_held_by_the_process_is_dropped(
    engine: Engine, database: Database, canary: str
) -> None:
    """A turn under way that writes it again is met by a second look."""
    await plant(database, engine, canary)
    dropped: list[str] = []

    async def drop(agent_ids: Any) -> None:
        if not dropped:
            await database.write(lambda tx: plant_late(tx, canary))
        dropped.extend(agent_ids)

    async def plant_late(tx: Connection, text: str) -> None:
        await tx.run("UPDATE notices SET text = ?", (text,))
        await put_turn(tx, "agent_bela", "turn_9", f"late {text}")

    await forget(database, engine.data, OWNER, Forgetting(texts=(canary,)), drop=drop)
    assert dropped[:2] == ["agent_aria", "agent_bela"]
    assert dropped[2:] == ["agent_bela"]
    assert await columns_with(database, canary) == set()
