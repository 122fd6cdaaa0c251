"""Every way to write to memory asks the gate: each permission with each write, no path left out."""

import ast
import importlib
import inspect
import pkgutil
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest

import asterism
import asterism.memory.gate
from asterism.errors import NotAllowed, NotFound
from asterism.memory import edits, history
from asterism.memory.edits import BlockContent
from asterism.memory.gate import blocks, passages, replicas
from asterism.memory.gate.passages import NewPassage
from asterism.memory.gate.writer import WriteNeedsApproval, Writer
from asterism.memory.history import TurnWrites
from asterism.permissions import Act, Actor, Authority
from asterism.store.database import Connection, Database
from asterism.types.agents import PUBLIC, Trust
from asterism.types.memory import (
    CONSTELLATION,
    Add,
    Append,
    Block,
    BlockType,
    BlockWrite,
    Describe,
    EditRange,
    Field,
    FieldType,
    Insert,
    ListSchema,
    MapSchema,
    Merge,
    Patch,
    Permission,
    Redo,
    RemoveItem,
    Replace,
    Restore,
    Retire,
    Revert,
    Schema,
    SetField,
    SetItem,
    SetText,
    Share,
    TextSchema,
    Undo,
    Unshare,
)
from tests.conformance.memory_scene import as_agent, as_owner, opened, put_agent

TEXT, MAP, LIST = (
    TextSchema(),
    MapSchema((Field("name"), Field("n", FieldType.COUNTER))),
    ListSchema(),
)
CONTENT: dict[Schema, str] = {TEXT: "one\ntwo", MAP: "", LIST: '["a", "b"]'}

WRITES: list[tuple[Act, Schema, BlockWrite]] = [
    (Act.APPEND, TEXT, Append("three")),
    (Act.APPEND, LIST, Append("c")),
    (Act.APPEND, MAP, Add("n", 2)),
    (Act.OVERWRITE, MAP, Add("n", -2)),
    (Act.OVERWRITE, TEXT, Replace("one", "1")),
    (Act.OVERWRITE, TEXT, Patch("@@ -1,1 +1,1 @@\n-one\n+1\n")),
    (Act.OVERWRITE, TEXT, EditRange(1, 1, "1")),
    (Act.OVERWRITE, TEXT, SetText("anew")),
    (Act.OVERWRITE, TEXT, SetText("one\ntwo\nbase", base=1)),
    (Act.OVERWRITE, MAP, SetField("name", "Anna")),
    (Act.OVERWRITE, LIST, SetItem(1, "A")),
    (Act.OVERWRITE, LIST, RemoveItem(1)),
    (Act.OVERWRITE, TEXT, Undo()),
    (Act.OVERWRITE, TEXT, Redo()),
    (Act.OVERWRITE, TEXT, Revert(2)),
    (Act.OVERWRITE, TEXT, Restore(1)),
    (Act.OVERWRITE, TEXT, Merge(b"")),
    (Act.OVERWRITE, TEXT, Describe(pinned=True)),
    (Act.OVERWRITE, TEXT, Describe(description="what it is for")),
    (Act.OVERWRITE, TEXT, Describe(schema=TextSchema(2, 1))),
    (Act.OVERWRITE, TEXT, Describe(type=BlockType.ARCHIVAL)),
    (Act.GOVERN, TEXT, Describe(type=BlockType.CORE)),
    (Act.GOVERN, TEXT, Describe(limit=9_000)),
    (Act.GOVERN, TEXT, Describe(permission=Permission.READ_ONLY)),
    (Act.GOVERN, TEXT, Describe(audience=PUBLIC & as_agent("x").source.audience)),
    (Act.GOVERN, TEXT, Describe(label="other")),
    (Act.GOVERN, LIST, Describe(schema=ListSchema(max_items=9))),
    (Act.GOVERN, TEXT, Describe(pinned=True, limit=9_000)),
    (Act.GOVERN, TEXT, Share("agent_home_carl", Permission.READ_ONLY)),
    (Act.GOVERN, TEXT, Unshare("agent_home_dora")),
    (Act.DELETE, TEXT, Retire()),
]

# What is to come of it, written out: - no, ? a person is asked, + yes.
EXPECTED = {
    Permission.READ_ONLY: {Act.APPEND: "-", Act.OVERWRITE: "-", Act.DELETE: "-", Act.GOVERN: "-"},
    Permission.PARTNER: {Act.APPEND: "?", Act.OVERWRITE: "?", Act.DELETE: "-", Act.GOVERN: "-"},
    Permission.HUMAN: {Act.APPEND: "?", Act.OVERWRITE: "?", Act.DELETE: "-", Act.GOVERN: "-"},
    Permission.APPEND: {Act.APPEND: "+", Act.OVERWRITE: "-", Act.DELETE: "-", Act.GOVERN: "-"},
    Permission.READ_WRITE: {Act.APPEND: "+", Act.OVERWRITE: "+", Act.DELETE: "-", Act.GOVERN: "-"},
    Permission.ADMIN: {Act.APPEND: "+", Act.OVERWRITE: "+", Act.DELETE: "+", Act.GOVERN: "+"},
}
WAYS = ["own", "shared", "constellation"]


class Rolled(Exception):
    """Ends a savepoint whose work is not wanted any more."""


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    async with opened("sqlite", tmp_path) as database:
        for name in ("aria", "bob", "carl", "dora"):
            await database.write(lambda tx, one=name: put_agent(tx, one))
        yield database


ARIA, BOB = "agent_home_aria", "agent_home_bob"


def open_talk(agent_id: str = ARIA, trust: Trust = Trust.OWNER) -> Writer:
    """An agent in a turn that everybody may hear of."""
    writer = as_agent(agent_id, trust=trust)
    return replace(writer, source=replace(writer.source, audience=PUBLIC))


async def prepared(
    tx: Connection, way: str, permission: Permission, schema: Schema, write: BlockWrite
) -> tuple[Block, BlockWrite]:
    """Make a block to which the write can be made, and on which aria has the permission."""
    owner_id = {"own": ARIA, "shared": BOB, "constellation": CONSTELLATION}[way]
    given = Permission.READ_WRITE if way == "shared" else permission
    owner = as_owner()
    kind = BlockType.WORKING
    block = await blocks.create(
        tx,
        owner,
        owner_id,
        "b",
        type=kind,
        schema=schema,
        content=CONTENT[schema],
        permission=given,
    )
    if way == "shared":
        await blocks.write(tx, owner, block.id, Share(ARIA, permission))
    if isinstance(write, Unshare):
        await blocks.write(tx, owner, block.id, Share(write.agent_id))
    if isinstance(write, Undo | Redo | Restore):
        await blocks.write(tx, owner, block.id, Append("more"))
    if isinstance(write, Redo):
        await blocks.write(tx, owner, block.id, Undo())
    if isinstance(write, SetText) and write.base is not None:
        await blocks.write(tx, owner, block.id, Append("more"))
    if isinstance(write, Revert):
        block = await blocks.write(tx, owner, block.id, Append("more"))
        write = Revert(block.version)
    if isinstance(write, Merge):
        ops = await replicas.export_updates(tx, owner, block.id)
        twin = await blocks.create(tx, owner, BOB, "twin", schema=schema, updates=ops)
        await blocks.write(tx, owner, twin.id, Append("from the twin"))
        write = Merge(await replicas.export_updates(tx, owner, twin.id))
    return block, write


async def state_of(tx: Connection) -> list[Any]:
    """Everything that a write could change."""
    tables = (
        *("blocks", "block_edits", "block_eras", "block_replicas", "block_agents"),
        *("passages", "agents"),
    )
    return [sorted(await tx.all(f"SELECT * FROM {table}"), key=repr) for table in tables]


async def outcome(tx: Connection, attempt: Callable[[], Awaitable[Any]]) -> str:
    """Say what came of a write, and make sure that a refused one changed nothing."""
    before = await state_of(tx)
    try:
        async with tx.savepoint():
            await attempt()
    except WriteNeedsApproval:
        assert await state_of(tx) == before
        return "?"
    except (NotAllowed, NotFound):
        assert await state_of(tx) == before
        return "-"
    assert await state_of(tx) != before, "it says that it was written, and nothing is different"
    return "+"


async def in_a_draft(database: Database, work: Callable[[Connection], Awaitable[str]]) -> str:
    """Run a cell of the matrix and undo what it did."""
    found: list[str] = []

    async def run(tx: Connection) -> None:
        try:
            async with tx.savepoint():
                found.append(await work(tx))
                raise Rolled
        except Rolled:
            pass

    await database.write(run)
    return found[-1]


def test_every_kind_of_write_has_an_act_and_a_place_in_the_matrix() -> None:
    kinds = set(get_args(BlockWrite))
    assert set(edits.OPERATIONS) == kinds
    assert {type(write) for _, _, write in WRITES} == kinds
    assert set(EXPECTED) == set(Permission)


def test_a_kind_without_an_act_stops_the_import(monkeypatch: pytest.MonkeyPatch) -> None:
    class Smuggle:
        pass

    monkeypatch.setattr("asterism.types.memory.BlockWrite", BlockWrite | Smuggle)
    with pytest.raises(TypeError, match="Smuggle"):
        importlib.reload(edits)
    monkeypatch.undo()
    importlib.reload(edits)


@pytest.mark.promise("M2", "M4")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("permission", Permission)
async def test_each_permission_with_each_write(
    database: Database, way: str, permission: Permission
) -> None:
    wrong: list[str] = []
    for act, schema, given in WRITES:

        async def cell(tx: Connection, schema: Schema = schema, given: BlockWrite = given) -> str:
            block, write = await prepared(tx, way, permission, schema, given)
            first = await outcome(tx, lambda: blocks.write(tx, open_talk(), block.id, write))
            if first != "?":
                return first
            # With a person's consent it is really made.
            writer = replace(open_talk(), approved=True)
            again = await outcome(tx, lambda: blocks.write(tx, writer, block.id, write))
            return "?" if again == "+" else f"asked, and then {again}"

        found = await in_a_draft(database, cell)
        if found != EXPECTED[permission][act]:
            wrong.append(f"{given}: {found}, not {EXPECTED[permission][act]}")
    assert wrong == []


@pytest.mark.promise("M2")
async def test_the_owner_and_their_rules_may_do_everything(database: Database) -> None:
    rule = replace(open_talk(), actor=Actor("system", "rule", "rule"), agent_id=None)
    for writer in (as_owner(), rule):
        for _, schema, given in WRITES:

            async def cell(
                tx: Connection,
                writer: Writer = writer,
                schema: Schema = schema,
                given: BlockWrite = given,
            ) -> str:
                block, write = await prepared(tx, "own", Permission.READ_ONLY, schema, given)
                if isinstance(write, Describe) and write.permission is Permission.READ_ONLY:
                    write = Describe(permission=Permission.ADMIN)
                return await outcome(tx, lambda: blocks.write(tx, writer, block.id, write))

            assert await in_a_draft(database, cell) == "+", given


@pytest.mark.promise("M10")
@pytest.mark.parametrize("trust", Trust)
async def test_untrusted_content_writes_only_with_a_rule_or_a_person(
    database: Database, trust: Trust
) -> None:
    expected = "+" if trust in (Trust.OWNER, Trust.KNOWN) else "?"
    writer = open_talk(trust=trust)
    trusting = replace(writer, authority=Authority(frozenset({trust})))
    for _, schema, given in WRITES:

        async def cell(
            tx: Connection, by: Writer, schema: Schema = schema, given: BlockWrite = given
        ) -> str:
            block, write = await prepared(tx, "own", Permission.ADMIN, schema, given)
            return await outcome(tx, lambda: blocks.write(tx, by, block.id, write))

        assert await in_a_draft(database, lambda tx: cell(tx, writer)) == expected, given
        assert await in_a_draft(database, lambda tx: cell(tx, trusting)) == "+", given


CREATIONS: list[tuple[str, Writer, dict[str, Any], str, str]] = [
    ("owner", as_owner(), {}, ARIA, "+"),
    ("owner for all", as_owner(), {}, CONSTELLATION, "+"),
    ("agent its own", open_talk(), {"type": BlockType.WORKING}, ARIA, "+"),
    ("agent a core block", open_talk(), {"type": BlockType.CORE}, ARIA, "-"),
    (
        "agent as admin",
        open_talk(),
        {"type": BlockType.WORKING, "permission": Permission.ADMIN},
        ARIA,
        "-",
    ),
    ("agent for another", open_talk(), {"type": BlockType.WORKING}, BOB, "-"),
    ("agent for all", open_talk(), {"type": BlockType.WORKING}, CONSTELLATION, "-"),
    ("from the web", open_talk(trust=Trust.WEB), {"type": BlockType.WORKING}, ARIA, "?"),
    (
        "a person",
        replace(open_talk(), actor=Actor("person", "p", "p"), agent_id=None),
        {"type": BlockType.WORKING},
        ARIA,
        "-",
    ),
]


@pytest.mark.promise("M2")
@pytest.mark.parametrize("make", [blocks.create, blocks.ensure], ids=["create", "ensure"])
@pytest.mark.parametrize(
    ("writer", "given", "owner_id", "expected"),
    [case[1:] for case in CREATIONS],
    ids=[case[0] for case in CREATIONS],
)
async def test_who_may_make_a_block(
    database: Database,
    make: Callable[..., Awaitable[Any]],
    writer: Writer,
    given: dict[str, Any],
    owner_id: str,
    expected: str,
) -> None:
    async def cell(tx: Connection) -> str:
        return await outcome(tx, lambda: make(tx, writer, owner_id, "new", **given))

    assert await in_a_draft(database, cell) == expected


# -- no path is left out ---------------------------------------------------------------------------

INNER = {
    *("blocks.store_edit", "blocks.prepare", "writer.resource_for"),
    *("replicas.replica_of", "replicas.store"),
}
"""Public within the gate: what they are given was judged before, or they change nothing."""
HARMLESS = {"blocks.lock"}
"""Public, and they change nothing."""


def gate_functions() -> dict[str, Callable[..., Awaitable[Any]]]:
    """Every public function of the gate that can await a connection."""
    found: dict[str, Callable[..., Awaitable[Any]]] = {}
    for module in pkgutil.iter_modules(asterism.memory.gate.__path__):
        if module.name == "rows":
            continue  # nothing outside the gate may import it, as a test below and `make check` say
        loaded = importlib.import_module(f"asterism.memory.gate.{module.name}")
        for name, one in vars(loaded).items():
            public = inspect.iscoroutinefunction(one) and not name.startswith("_")
            if public and one.__module__ == loaded.__name__:
                found[f"{module.name}.{name}"] = one
    return found


PATHS = {name: one for name, one in gate_functions().items() if name not in INNER | HARMLESS}


def test_the_gate_is_looked_at() -> None:
    assert {"blocks.create", "blocks.ensure", "blocks.write", "passages.write"} <= set(PATHS)
    assert {"blocks.store_edit"} <= set(gate_functions())


@pytest.mark.promise("M2")
@pytest.mark.parametrize("path", sorted(PATHS))
async def test_no_path_lets_an_agent_write_to_what_is_not_its(
    database: Database, path: str
) -> None:
    function = PATHS[path]
    parameters = inspect.signature(function).parameters
    assert [*parameters][:2] == ["tx", "writer"], "a path that does not know who writes"
    module = path.partition(".")[0]

    async def cell(tx: Connection) -> str:
        owner = replace(as_owner(), turn_id="turn_1")
        theirs = await blocks.create(tx, owner, BOB, "theirs", content="x")
        await blocks.write(tx, owner, theirs.id, Append("y"))
        stored = await passages.write(tx, owner, BOB, Insert("Bob lives in Bern"))
        run = await history.run_with(tx, theirs.id, 2)
        assert run is not None
        known: dict[str, Any] = {
            "owner_id": BOB,
            "label": "theirs" if path == "blocks.ensure" else "new",
            "block_id": theirs.id,
            "archive_id": BOB,
            "agent_id": BOB,
            "labels": ["human"],
            "fact": "Bob lives in Bern.",
            "source_agent_id": BOB,
            "target_agent_id": ARIA,
            "turn_id": "turn_1",
            "document": "a.txt",
            "rows": [NewPassage("words of a stranger")],
            "number": 2,
            "edit": run.edit(2),
            "era": blocks.ERA,
            "left": [],
            "kind": "import",
            "lines": [],
            "effects": TurnWrites("turn_1", inserted=(stored.passage,)),
            "taken": TurnWrites("turn_1"),
            "write": Append("x") if module == "blocks" else Insert("words of a stranger"),
        }
        if module == "copies":
            known["write"] = BlockContent.value  # anything that takes a content
        needed = [
            name
            for name, one in parameters.items()
            if one.default is one.empty
            and one.kind is not one.VAR_KEYWORD
            and name not in ("tx", "writer")
        ]
        missing = [name for name in needed if name not in known]
        assert not missing, f"say in this test how {path} is called: {missing}"
        arguments = {name: known[name] for name in needed}
        return await outcome(tx, lambda: function(tx, open_talk(), **arguments))

    assert await in_a_draft(database, cell) == "-"


@pytest.mark.promise("M2")
def test_nothing_but_the_gate_writes_blocks_and_passages() -> None:
    root = Path(asterism.__file__).parent
    writing = {"asterism.memory.gate.rows"}
    inner = {name.partition(".")[2] for name in INNER}
    wrong: list[str] = []
    for file in root.rglob("*.py"):
        if (root / "memory" / "gate") in file.parents:
            continue
        for node in ast.walk(ast.parse(file.read_text())):
            names: set[str] = set()
            if isinstance(node, ast.Import):
                names = {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                names = {node.module, *(f"{node.module}.{one.name}" for one in node.names)}
                if node.module.startswith("asterism.memory.gate"):
                    wrong += [f"{file}: {one.name}" for one in node.names if one.name in inner]
            elif isinstance(node, ast.Attribute) and ast.unparse(node) in {
                f"gate.{one}" for one in inner
            }:
                wrong.append(f"{file}: gate.{node.attr}")
            wrong += [f"{file}: {name}" for name in names & writing]
    assert wrong == []
