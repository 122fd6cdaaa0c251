"""Whatever is done to blocks: replicas converge, undo and redo cancel, the past stays as it was."""

import asyncio
import itertools
from collections.abc import Generator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asterism.errors import AsterismError, Conflict
from asterism.memory import blocks, history
from asterism.memory.gate import blocks as gate
from asterism.memory.gate import replicas
from asterism.memory.gate.writer import Writer
from asterism.store.database import Database
from asterism.types.memory import (
    CONSTELLATION,
    Add,
    Append,
    Block,
    BlockWrite,
    Describe,
    EditRange,
    Field,
    FieldType,
    Line,
    ListSchema,
    LogSchema,
    MapSchema,
    Merge,
    Permission,
    Redo,
    RemoveItem,
    Replace,
    Restore,
    Revert,
    Schema,
    SetField,
    SetItem,
    SetText,
    TextSchema,
    Undo,
)
from tests.conformance.memory_scene import (
    ENGINES,
    NOW,
    as_agent,
    as_owner,
    examples_on,
    opened,
    put_agent,
)
from tests.conftest import longer_in_torture

WORDS = st.text("abc \n", min_size=1, max_size=12)
PLAIN = st.text("abcde", min_size=1, max_size=8)
NUMBERS = st.integers(1, 5)
SCHEMAS: dict[str, Schema] = {
    "text": TextSchema(),
    "list": ListSchema(),
    "log": LogSchema(),
    "map": MapSchema((Field("name"), Field("n", FieldType.COUNTER))),
}


def _range(at: int, more: int, text: str) -> BlockWrite:
    return EditRange(at, at + more, text)


EDITS: dict[str, st.SearchStrategy[BlockWrite]] = {
    "text": st.one_of(
        st.builds(Append, WORDS),
        st.builds(Replace, st.sampled_from("abc"), PLAIN),
        st.builds(_range, NUMBERS, NUMBERS, WORDS),
        st.builds(SetText, WORDS),
    ),
    "list": st.one_of(
        st.builds(Append, PLAIN),
        st.builds(SetItem, NUMBERS, PLAIN),
        st.builds(RemoveItem, NUMBERS),
    ),
    "log": st.builds(Append, PLAIN),
    "map": st.one_of(
        st.builds(SetField, st.just("name"), PLAIN),
        st.builds(Add, st.just("n"), st.integers(-3, 3)),
    ),
}
PAST = st.one_of(
    st.just(Undo()), st.just(Redo()), st.builds(Revert, NUMBERS), st.builds(Restore, NUMBERS)
)


def scripts(kind: str, longest: int = 14) -> st.SearchStrategy[list[tuple[int, BlockWrite]]]:
    """Edits by three authors."""
    one = st.tuples(st.integers(0, 2), st.one_of(EDITS[kind], EDITS[kind], PAST))
    return st.lists(one, min_size=1, max_size=longest)


@dataclass
class Replica:
    """A database with the three authors."""

    database: Database
    authors: list[Writer] = field(default_factory=list[Writer])

    async def settle(self) -> None:
        names = ("aria", "bob")
        ids = [await self.database.write(lambda tx, n=name: put_agent(tx, n)) for name in names]
        self.authors = [as_owner(), *map(as_agent, ids)]

    async def create(self, label: str, schema: Schema, **given: Any) -> Block:
        return await self.database.write(
            lambda tx: gate.create(
                *(tx, as_owner(), CONSTELLATION, label),
                schema=schema,
                limit=100_000,
                permission=Permission.READ_WRITE,
                **given,
            )
        )

    async def write(self, block: Block, author: int, write: BlockWrite, now: int = NOW) -> bool:
        """Try a write; an edit that does not fit what is there is no edit."""
        writer = self.authors[author]
        by = Writer(
            *(writer.actor, writer.source, now),
            agent_id=writer.agent_id,
            participants=writer.participants,
        )
        try:
            await self.database.write(lambda tx: gate.write(tx, by, block.id, write, era=3))
        except AsterismError:
            return False
        return True

    async def lines(self, block: Block, **when: int) -> list[Line]:
        return await self.database.read(lambda tx: history.lines_at(tx, block.id, **when))

    async def text(self, block: Block) -> str:
        return "\n".join(line.text for line in await self.lines(block))

    async def ops(self, block: Block) -> bytes:
        return await self.database.write(
            lambda tx: replicas.export_updates(tx, as_owner(), block.id, None)
        )


class World:
    """Replicas that stay open while hypothesis looks for a script that breaks something."""

    def __init__(self, runner: asyncio.Runner, replicas: list[Replica]) -> None:
        self.runner = runner
        self.replicas = replicas
        self._numbers = itertools.count()

    def label(self) -> str:
        """A label that was not used before."""
        return f"b{next(self._numbers)}"


@contextmanager
def world(engine: str, place: Path, count: int) -> Generator[World]:
    """Open so many replicas."""
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()

        async def enter() -> list[Replica]:
            found: list[Replica] = []
            for number in range(count):
                database = await stack.enter_async_context(opened(engine, place / str(number)))
                found.append(Replica(database))
                await found[-1].settle()
            return found

        try:
            yield World(runner, runner.run(enter()))
        finally:
            runner.run(stack.aclose())


@longer_in_torture
@pytest.mark.promise("M3")
@pytest.mark.parametrize("kind", SCHEMAS)
@pytest.mark.parametrize("engine", ENGINES)
def test_replicas_converge(engine: str, kind: str, tmp_path: Path) -> None:
    """Three authors edit on two replicas, which meet now and then."""
    with world(engine, tmp_path, 2) as here:
        step = st.tuples(st.integers(0, 1), scripts(kind, 4), st.booleans())

        @examples_on(engine)
        @given(st.lists(step, min_size=1, max_size=6))
        def check(script: list[tuple[int, list[tuple[int, BlockWrite]], bool]]) -> None:
            here.runner.run(_converge(here, SCHEMAS[kind], script))

        check()


async def _converge(
    here: World, schema: Schema, script: list[tuple[int, list[tuple[int, BlockWrite]], bool]]
) -> None:
    one, other = here.replicas
    label = here.label()
    first = await one.create(label, schema)
    second = await other.create(label, schema, updates=await one.ops(first))
    both = [(one, first), (other, second)]

    async def meet() -> None:
        updates = [await replica.ops(block) for replica, block in both]
        for (replica, block), given_ops in zip(both, reversed(updates), strict=True):
            await replica.database.write(
                lambda tx, b=block, u=given_ops: gate.write(tx, as_owner(), b.id, Merge(u), era=3)
            )

    for at, edits, meets in script:
        replica, block = both[at]
        for author, write in edits:
            await replica.write(block, author, write)
        if meets:
            await meet()
    await meet()
    assert await one.text(first) == await other.text(second)


@longer_in_torture
@pytest.mark.promise("M3")
@pytest.mark.parametrize("kind", SCHEMAS)
@pytest.mark.parametrize("engine", ENGINES)
def test_undo_and_redo_cancel(engine: str, kind: str, tmp_path: Path) -> None:
    with world(engine, tmp_path, 1) as here:

        @examples_on(engine)
        @given(scripts(kind), st.integers(1, 4))
        def check(script: list[tuple[int, BlockWrite]], times: int) -> None:
            here.runner.run(_undo_redo(here, SCHEMAS[kind], script, times))

        check()


async def _undo_redo(
    here: World, schema: Schema, script: list[tuple[int, BlockWrite]], times: int
) -> None:
    (home,) = here.replicas
    block = await home.create(here.label(), schema)
    for author, write in script:
        await home.write(block, author, write)
    passed = [await home.lines(block)]
    for _ in range(times):
        if not await home.write(block, 0, Undo()):
            break
        passed.append(await home.lines(block))
    for expected in reversed(passed[:-1]):
        assert await home.write(block, 0, Redo())
        found = await home.lines(block)
        assert [line.text for line in found] == [line.text for line in expected]
        assert [line.label for line in found] == [line.label for line in expected]


@longer_in_torture
@pytest.mark.promise("M3", "M8")
@pytest.mark.parametrize("kind", SCHEMAS)
@pytest.mark.parametrize("engine", ENGINES)
def test_the_past_is_what_it_was(engine: str, kind: str, tmp_path: Path) -> None:
    """Eras of three edits: most of a script's edits have been folded at its end."""
    with world(engine, tmp_path, 1) as here:

        @examples_on(engine)
        @given(scripts(kind, 24))
        def check(script: list[tuple[int, BlockWrite]]) -> None:
            here.runner.run(_recorded(here, SCHEMAS[kind], script))

        check()


async def _recorded(here: World, schema: Schema, script: list[tuple[int, BlockWrite]]) -> None:
    (home,) = here.replicas
    block = await home.create(here.label(), schema)
    recorded = {1: await home.lines(block)}
    for turn, (author, write) in enumerate(script):
        now = NOW + 10 * (turn + 1)
        if await home.write(block, author, write, now):
            seen = await home.database.read(lambda tx: blocks.find(tx, None, block.label))
            recorded[seen.block.version] = await home.lines(block)
            assert await home.lines(block, moment=now) == recorded[seen.block.version]
    for version, lines in recorded.items():
        assert await home.lines(block, version=version) == lines
    edits = await home.database.read(lambda tx: history.edits(tx, block.id, limit=100))
    assert [one.number for one in edits] == list(range(max(recorded), 0, -1))
    for one in edits:
        latest = max(other.number for other in edits if other.at_ms <= one.at_ms)
        assert await home.lines(block, moment=one.at_ms) == await home.lines(block, version=latest)


def test_nothing_to_undo_is_a_conflict(tmp_path: Path) -> None:
    with world("sqlite", tmp_path, 1) as here:

        async def check() -> None:
            (home,) = here.replicas
            block = await home.create("b", TextSchema())
            await home.write(block, 0, Describe(description="x"))
            with pytest.raises(Conflict):
                await home.database.write(lambda tx: gate.write(tx, as_owner(), block.id, Undo()))

        here.runner.run(check())
