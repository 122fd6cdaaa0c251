"""Random lives of two agents' memory: turns that write to blocks and archives, and what is seen."""

import asyncio
import itertools
from collections.abc import Generator, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from asterism.errors import AsterismError
from asterism.memory import archive, blocks
from asterism.memory.blocks import VisibleBlock, wrapped
from asterism.memory.gate import blocks as gate
from asterism.memory.gate import passages as archives
from asterism.memory.gate.writer import WriteNeedsApproval, Writer
from asterism.store.database import Connection, Database
from asterism.types.agents import OWNER, OWNER_ALONE, Audience, Participant, Participants, Trust
from asterism.types.memory import (
    CONSTELLATION,
    Add,
    Append,
    AppendPassage,
    BlockType,
    BlockWrite,
    Describe,
    EditRange,
    Field,
    FieldType,
    Insert,
    ListSchema,
    LogSchema,
    MapSchema,
    Passage,
    PassageWrite,
    Permission,
    Redo,
    RemoveItem,
    Replace,
    Restore,
    Retire,
    Retract,
    Revert,
    Schema,
    SetField,
    SetItem,
    SetText,
    Share,
    Tag,
    TextSchema,
    Undo,
    Unshare,
)
from tests.conformance.memory_scene import HOME, NOW, as_agent, as_owner, opened, put_agent

ANNA = Participants(
    (Participant(OWNER, frozenset({OWNER})), Participant("person_anna")), room="discord:kitchen"
)
COMPANIES = (OWNER_ALONE, ANNA, Participants((Participant("person_ben"),)))
ERA = 3

BEGINNINGS = {
    "notes": "a b\nc\na",
    "tasks": '["a", "b", "c"]',
    "facts": '{"name": "abc"}',
    "lent": "abc\nb",
}
SCHEMAS: dict[str, Schema] = {
    "notes": TextSchema(),
    "tasks": ListSchema(),
    "diary": LogSchema(),
    "facts": MapSchema((Field("name"), Field("n", FieldType.COUNTER))),
    "lent": TextSchema(),
    "all": TextSchema(),
}
_WORDS = st.text("abc \n", min_size=1, max_size=12)
_PLAIN = st.text("abcde", min_size=1, max_size=8)
_NUMBERS = st.integers(1, 5)


def _edit_range(first: int, more: int, text: str) -> EditRange:
    return EditRange(first, first + more, text)


def _with_field(name: str) -> Describe:
    return Describe(schema=MapSchema((Field("name"), Field("n", FieldType.COUNTER), Field(name))))


_TEXT: st.SearchStrategy[BlockWrite] = st.one_of(
    st.builds(Append, _WORDS),
    st.builds(Replace, st.sampled_from("abc"), _PLAIN),
    st.builds(_edit_range, _NUMBERS, _NUMBERS, _WORDS),
    st.builds(SetText, _WORDS),
)
_EDITS: dict[str, st.SearchStrategy[BlockWrite]] = {
    "notes": _TEXT,
    "lent": _TEXT,
    "all": _TEXT,
    "tasks": st.one_of(
        st.builds(Append, _PLAIN),
        st.builds(SetItem, _NUMBERS, _PLAIN),
        st.builds(RemoveItem, _NUMBERS),
    ),
    "diary": st.builds(Append, _PLAIN),
    "facts": st.one_of(
        st.builds(SetField, st.just("name"), _PLAIN),
        st.builds(Add, st.just("n"), st.integers(-3, 3)),
    ),
}
_PAST: st.SearchStrategy[BlockWrite] = st.one_of(
    st.just(Undo()), st.just(Redo()), st.builds(Revert, _NUMBERS), st.builds(Restore, _NUMBERS)
)
_SAYINGS: st.SearchStrategy[BlockWrite] = st.one_of(
    st.builds(Describe, description=_PLAIN),
    st.builds(Describe, pinned=st.booleans()),
    st.builds(Describe, type=st.sampled_from(BlockType), limit=st.integers(500, 600)),
    st.builds(Describe, audience=st.sampled_from(["public", "person:x"]).map(Audience.read)),
    st.builds(Describe, label=st.sampled_from(["other", "notes", "tasks"])),
    st.builds(Describe, permission=st.sampled_from([Permission.READ_WRITE, Permission.ADMIN])),
    st.builds(_with_field, st.sampled_from(["more", "mood"])),
    st.builds(Share, st.just("bob"), st.sampled_from([Permission.APPEND, Permission.READ_WRITE])),
    st.just(Unshare("bob")),
    st.just(Unshare("aria")),
    st.just(Retire()),
)


@dataclass(frozen=True)
class Create:
    """A new block of a label."""

    label: str
    content: str


_SENTENCES = st.sampled_from(
    [
        "Anna likes green tea.",
        "Anna likes green tea",
        "Anna likes green tea with milk in the morning.",
        "Anna does not like green tea.",
        "The meeting is on 3 May.",
        "The meeting is on 4 May.",
        "The key lies under the third pot.",
        "zebra",
    ]
)
_TAGS = st.lists(st.sampled_from(["tea", "anna", "todo"]), max_size=3).map(tuple)
_PLACES = st.integers(0, 3)
Do = tuple[str, Any]
"""A block's label and what is done to it; `create` and what; `archive` with place and write."""


_ARCHIVE: st.SearchStrategy[tuple[int, PassageWrite]] = st.one_of(
    st.tuples(st.just(-1), st.builds(Insert, _SENTENCES, _TAGS)),
    st.tuples(_PLACES, st.builds(AppendPassage, st.just(""), _SENTENCES)),
    st.tuples(_PLACES, st.builds(Tag, st.just(""), _TAGS)),
    st.tuples(_PLACES, st.just(Retract(""))),
    st.tuples(_PLACES, st.builds(Insert, _SENTENCES, supersedes=st.just(""))),
)


_LABELS = st.sampled_from([*SCHEMAS, "notes", "notes", "tasks"])
_KINDS: dict[str, st.SearchStrategy[Do]] = {
    "edit": _LABELS.flatmap(lambda label: st.tuples(st.just(label), _EDITS[label])),
    "past": st.tuples(_LABELS, _PAST),
    "saying": st.tuples(_LABELS, _SAYINGS),
    "create": st.tuples(
        st.just("create"), st.builds(Create, st.sampled_from(["new", "other", "notes"]), _PLAIN)
    ),
    "archive": st.tuples(st.just("archive"), _ARCHIVE),
}
DOINGS: st.SearchStrategy[Do] = st.sampled_from(
    [*["edit"] * 6, *["past"] * 3, *["saying"] * 2, "create", *["archive"] * 5]
).flatmap(_KINDS.__getitem__)


@dataclass(frozen=True)
class Turn:
    """Who writes in what participants, and what."""

    author: str
    participants: int
    doings: Sequence[Do]
    trust: Trust = Trust.OWNER


TURNS = st.builds(
    Turn,
    st.sampled_from(["owner", "aria", "aria", "bob"]),
    st.integers(0, 1),
    st.lists(DOINGS, min_size=1, max_size=6),
    st.sampled_from([Trust.OWNER, Trust.KNOWN]),
)


@dataclass
class Life:
    """The memory of two agents in a database."""

    database: Database
    number: int
    now: int = NOW
    agents: dict[str, str] = field(default_factory=dict[str, str])
    ids: dict[str, str] = field(default_factory=dict[str, str])
    moments: dict[int, Any] = field(default_factory=dict[int, Any])
    turns: int = 0

    def tick(self) -> int:
        self.now += 1
        return self.now

    def owner(self) -> Writer:
        return as_owner(self.tick())

    async def begin(self) -> None:
        """Put the agents and their blocks there."""

        async def work(tx: Connection) -> None:
            for name in ("aria", "bob"):
                self.agents[name] = await put_agent(tx, name)
            for label, schema in SCHEMAS.items():
                owner = {"lent": self.agents["bob"], "all": CONSTELLATION}.get(label)
                block = await gate.create(
                    *(tx, self.owner(), owner or self.agents["aria"], label),
                    schema=schema,
                    content=BEGINNINGS.get(label, ""),
                    limit=400,
                    permission=Permission.ADMIN,
                )
                self.ids[label] = block.id
            share = Share(self.agents["aria"], Permission.READ_WRITE)
            await gate.write(tx, self.owner(), self.ids["lent"], share, era=ERA)
            for text in ("Anna likes green tea.", "The meeting is on 3 May."):
                await archives.write(tx, self.owner(), self.agents["aria"], Insert(text))

        await self.database.write(work)

    def writer(self, turn: Turn, turn_id: str) -> Writer:
        if turn.author == "owner":
            return replace(self.owner(), turn_id=turn_id)
        participants = COMPANIES[turn.participants]
        agent_id = self.agents[turn.author]
        return as_agent(
            agent_id, self.tick(), participants=participants, turn_id=turn_id, trust=turn.trust
        )

    async def play(self, turn: Turn) -> str:
        """Let a turn happen; what the gate refuses does not. Return its id."""
        self.turns += 1
        turn_id = f"turn_{self.number}_{self.turns}"
        for do in turn.doings:
            writer = self.writer(turn, turn_id)
            try:
                await self.database.write(lambda tx, w=writer, d=do: self._do(tx, w, d))
            except (AsterismError, WriteNeedsApproval):
                continue
            await self.remember()
        return turn_id

    async def _do(self, tx: Connection, writer: Writer, do: Do) -> None:
        label, what = do
        if label == "create":
            owner_id = writer.agent_id or self.agents["aria"]
            kind = BlockType.WORKING
            await gate.create(tx, writer, owner_id, what.label, content=what.content, type=kind)
        elif label == "archive":
            await self._archive(tx, writer, *what)
        else:
            if isinstance(what, Share | Unshare):
                what = replace(what, agent_id=self.agents[what.agent_id])
            await gate.write(tx, writer, self.ids[label], what, era=ERA)

    async def _archive(
        self, tx: Connection, writer: Writer, place: int, write: PassageWrite
    ) -> None:
        archive_id = writer.agent_id or self.agents["aria"]
        if place >= 0:
            held = await archive.listing(tx, [archive_id])
            if place >= len(held):
                return
            name = "supersedes" if isinstance(write, Insert) else "passage_id"
            write = replace(write, **{name: held[place].id})
        await archives.write(tx, writer, archive_id, write)

    async def remember(self) -> None:
        """Keep what both see at this moment."""
        self.moments[self.now] = await self.seen()

    async def seen(self) -> dict[str, tuple[list[VisibleBlock], list[Passage]]]:
        """Return all that the agents see: blocks and passages that hold."""

        async def work(tx: Connection) -> dict[str, tuple[list[VisibleBlock], list[Passage]]]:
            return {
                name: (
                    await blocks.seen_by(tx, agent_id),
                    await archive.listing(tx, [agent_id], limit=1_000),
                )
                for name, agent_id in self.agents.items()
            }

        return await self.database.read(work)

    async def state(self) -> Any:
        """Return what a revert brings back: all but how often a block was edited, and when."""
        return {
            name: (
                [
                    (
                        replace(one, block=replace(one.block, version=0, updated_at_ms=0)),
                        [wrapped(one, participants) for participants in COMPANIES],
                    )
                    for one in seen
                ],
                held,
            )
            for name, (seen, held) in (await self.seen()).items()
        }


class World:
    """A database that stays open while hypothesis looks for a life that breaks something."""

    def __init__(self, runner: asyncio.Runner, database: Database) -> None:
        self.runner = runner
        self.database = database
        self._numbers = itertools.count()

    async def life(self) -> Life:
        """Begin a life of its own, in a constellation of its own."""
        number = next(self._numbers)
        life = Life(self.database.for_constellation(f"{HOME}{number}"), number)
        await life.begin()
        await life.remember()
        return life


@contextmanager
def world(engine: str, place: Path) -> Generator[World]:
    """Open a database."""
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()
        try:
            yield World(runner, runner.run(stack.enter_async_context(opened(engine, place))))
        finally:
            runner.run(stack.aclose())
