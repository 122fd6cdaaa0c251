"""A live agent: what a process keeps in memory of an agent whose turn it is."""

from __future__ import annotations

import difflib
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace

from asterism.agents.context import Context, Tail
from asterism.agents.held import held
from asterism.agents.present import introduce
from asterism.agents.sections import (
    Memory,
    Section,
    Shown,
    block_text,
    is_shown,
    read_sections,
    sections_of,
    sections_wire,
)
from asterism.errors import NotFound
from asterism.memory import blocks, history
from asterism.memory.blocks import VisibleBlock
from asterism.ports import Profile
from asterism.store import agents as agents_at_rest
from asterism.store import blobs, epochs, journal, summaries
from asterism.store.database import Connection, Database
from asterism.store.epochs import Epoch
from asterism.types.agents import Agent
from asterism.types.blobs import Blob
from asterism.types.labels import Label
from asterism.types.people import Audience, Participants
from asterism.types.summaries import Summary
from asterism.types.wire import images_in, text_of, with_images

_ANY = Profile()
_AT_ONCE = 512
"""Entries read at once while a tail is filled from its end."""
_MOST_CONTEXTS = 8
_MOST_OWN_EDITS = 64
"""After more edits of a block than this an agent is told what it says now, whoever made them."""
_COMPACT_SUMMARY_BYTES = 1_600
"""The longest summary that a small model is given."""


class LiveAgent:
    """An agent with its claim, the length of its journal and what it sees with whom."""

    def __init__(
        self, agent: Agent, constellation: str, claim: journal.Claim, length: int, memory: int
    ) -> None:
        self.agent = agent
        self.constellation = constellation
        self.claim = claim
        self.length = length
        self.memory = memory
        """How many changes of memory it knows of."""
        self.counted = 0
        """The bytes of its tails that its keeper knows of."""
        self.contexts: OrderedDict[str, Context] = OrderedDict()
        self._images: dict[str, Blob] = {}

    @property
    def context(self) -> Context:
        """What it sees in the participants of its turn."""
        return next(reversed(self.contexts.values()))

    @property
    def size(self) -> int:
        """The bytes of all its tails."""
        return sum(one.tail.size for one in self.contexts.values())

    def memory_changed(self) -> None:
        """Look at memory again before the next turn."""
        for one in self.contexts.values():
            one.stale = True
            one.account = None  # it vouches with what blocks said

    def messages(self, profile: Profile = _ANY) -> list[bytes]:
        """Return the context as wire forms, with images where the model can see them."""
        context = self.context
        messages = context.messages(profile)
        if context.tail.pictured:
            seen = self._images if profile.images else None
            messages = [with_images(one, seen) if images_in(one) else one for one in messages]
        return messages

    async def fetch_images(self, database: Database) -> None:
        """Read the images that the tail names, so that `messages` can show them."""
        named = {id for wire in self.context.tail.wires for id in images_in(wire)}
        self._images = {id: blob for id, blob in self._images.items() if id in named}
        if lacking := sorted(named - self._images.keys()):
            self._images |= await database.read(lambda tx: blobs.get(tx, lacking))

    def put(self, context: Context) -> None:
        """Keep a context as that of the turn; the one unused for longest makes room."""
        self.contexts[context.participants.key] = context
        self.contexts.move_to_end(context.participants.key)
        while len(self.contexts) > _MOST_CONTEXTS:
            self.contexts.popitem(last=False)


async def load(database: Database, agent_id: str, claim: journal.Claim | None) -> LiveAgent:
    """Read an agent; what it sees is read when it is known who is present."""

    async def read(tx: Connection) -> LiveAgent:
        agent = await agents_at_rest.by_id(tx, agent_id)
        standing = await journal.standing(tx, agent_id)
        if agent is None or standing is None:
            raise NotFound(f"There is no agent {agent_id}. It may have been removed.")
        held, length = standing
        constellation, memory = await agents_at_rest.memory_of(tx, agent_id)
        return LiveAgent(agent, constellation, claim or held, length, memory)

    return await database.read(read)


@dataclass(frozen=True, slots=True)
class Note:
    """Something about memory that an agent is told beside a message."""

    key: str
    text: str


async def enter(
    database: Database,
    live: LiveAgent,
    participants: Participants,
    budget: int,
    now: int,
    *,
    tell: bool = True,
) -> list[Note]:
    """Make the context with some participants the one of the turn; return what has changed since.

    Without `tell`, what has changed waits for the next turn: one that goes on takes no notes.
    """
    context = live.contexts.get(participants.key)
    if context is None:
        live.put(await database.read(lambda tx: load_context(tx, live, participants, budget, now)))
        return []
    live.contexts.move_to_end(participants.key)
    context.participants = participants  # the owner alone hears the same in every room
    if context.upto == live.length and not context.stale:
        return []
    return await database.read(lambda tx: _catch_up(tx, live, context, budget, now, tell=tell))


async def _catch_up(
    tx: Connection, live: LiveAgent, context: Context, budget: int, now: int, *, tell: bool
) -> list[Note]:
    """Take in what was said in other participants since, and what has changed of memory."""
    if context.stale and await _shows_too_much(tx, live, context):
        epoch, why = context.epoch, "a block is for others than those present now"
        live.put(
            await compile_context(
                *(tx, live, context.participants, budget, now, epoch.first_seq, epoch.summary, why)
            )
        )
        return []
    first = context.upto + 1
    _fill(context, await held(tx, live.agent.id, context.participants, None, first, live.length))
    context.upto = live.length
    if not (context.stale and tell):
        return []
    notes = await _changes(tx, live, context)
    context.stale = False
    return notes


async def _shows_too_much(tx: Connection, live: LiveAgent, context: Context) -> bool:
    """Tell whether a context shows a block that its owner has since given a smaller audience."""
    return any(
        one.block.id in context.shown and not context.participants.can_see(one.block.audience)
        for one in await blocks.seen_by(tx, live.constellation, live.agent.id)
    )


def _fill(context: Context, entries: Sequence[journal.Told]) -> None:
    """Append to a tail what those present may hear."""
    labels = {(one.trust, one.audience) for one in entries}
    context.learn(*(Label(trust, Audience.of_turn(audience)) for trust, audience in labels))
    for one in entries:
        context.tail.append(one.kind, one.body)


# -- compiling -------------------------------------------------------------------------------------


async def load_context(
    tx: Connection, live: LiveAgent, participants: Participants, budget: int, now: int
) -> Context:
    """Read what an agent sees with some participants; its epoch goes on if nothing has changed."""
    agent = live.agent
    former = await epochs.latest(tx, agent.id, participants.key)
    first = former.first_seq if former else await _first_that_fits(tx, live, participants, budget)
    context = await compile_context(
        tx, live, participants, budget, now, first, former.summary if former else None, "first turn"
    )
    if former is not None:
        if former.sections == context.epoch.sections:
            context.epoch, context.saved = former, True
        else:
            why = "memory or settings had changed when the agent was loaded"
            context.epoch = replace(context.epoch, why=why)
    return context


async def compile_context(
    tx: Connection,
    live: LiveAgent,
    participants: Participants,
    budget: int,
    now: int,
    first: int,
    summary: str | None,
    why: str,
) -> Context:
    """Compile a context anew: a prefix of what memory is now, a tail from an entry on."""
    agent = live.agent
    seen = tuple(await blocks.seen_by(tx, live.constellation, agent.id))
    told = await introduce(tx, live.constellation, participants)
    sections, shown = sections_of(agent, participants, Memory(seen, told), budget_tokens=budget)
    stands_for = await summaries.get(tx, summary) if summary else None
    if stands_for is not None:
        text = await _summary_text(tx, stands_for)
        compact = len(text.encode()) <= _COMPACT_SUMMARY_BYTES
        why_there = f"stands for {stands_for.messages:,} earlier messages"
        sections.append(Section("summary", text, why_there, stands_for.id, compact=compact))
    epoch = Epoch(
        agent.id,
        await epochs.count(tx, agent.id) + 1,
        participants.key,
        first,
        summary,
        sections_wire(sections),
        why,
        now,
    )
    context = Context(participants, epoch, sections, shown, Tail(budget), live.length)
    context.saved = False
    context.referable = _referable(seen, participants)
    _take_in(context, [one for one in seen if one.block.id in shown])
    if stands_for is not None:
        context.learn(Label(stands_for.trust, stands_for.audience))
    _fill(context, await held(tx, agent.id, participants, stands_for, first, live.length))
    return context


async def _summary_text(tx: Connection, summary: Summary) -> str:
    from asterism.agents.compaction import summary_message

    first = await journal.entry_at(tx, summary.agent_id, summary.first_seq)
    last = await journal.entry_at(tx, summary.agent_id, summary.last_seq)
    first_at = first.at if first is not None else summary.at
    last_at = last.at if last is not None else summary.at
    return text_of(
        summary_message(
            summary.id, summary.text, first_at, last_at, summary.messages, summary.trust
        )
    )


async def _first_that_fits(
    tx: Connection, live: LiveAgent, participants: Participants, budget: int
) -> int:
    """Return the entry from which on a past that was never folded fits the budget."""
    context = Tail(budget)
    last, size, first = live.length, 0, live.length + 1
    while last > 0 and size <= context.budget:
        rows = await journal.told(tx, live.agent.id, 1, last, newest=_AT_ONCE)
        if not rows:
            return 1
        for one in reversed(rows):
            if participants.can_see(Audience.of_turn(one.audience)):
                size += len(one.body)
            if size > context.budget:
                return first
            if one.kind is journal.EntryKind.MESSAGE:
                first = one.seq
        last = rows[0].seq - 1
    return 1


def _referable(seen: Sequence[VisibleBlock], participants: Participants) -> dict[str, str]:
    return {
        one.block.id: one.block.label
        for one in seen
        if not is_shown(one) and participants.can_see(one.block.audience)
    }


def _take_in(context: Context, seen: Sequence[VisibleBlock]) -> None:
    """Note of blocks that a context shows who else may hear them, and how far they are trusted."""
    labels = {line.label for one in seen for line in one.lines}
    labels |= {Label(audience=one.block.audience) for one in seen}
    context.learn(*(one for one in labels if one.flows_to(context.participants)))


# -- memory that changes within an epoch -----------------------------------------------------------


async def _changes(tx: Connection, live: LiveAgent, context: Context) -> list[Note]:
    """Return what the agent must be told, since its prefix stays as it is."""
    participants, notes = context.participants, list[Note]()
    seen = await blocks.seen_by(tx, live.constellation, live.agent.id)
    there: set[str] = set()
    for one in seen:
        block = one.block
        text = block_text(one, participants) if is_shown(one) else ""
        if not text:
            continue
        there.add(block.id)
        former = context.shown.get(block.id)
        if former is not None and former.text == text:
            continue
        context.shown[block.id] = Shown(block.version, text)
        own = await _made_here(tx, live, participants, block.id, former.version if former else 0)
        if not (former is not None and own):
            told = _difference(block.label, former.text, text) if former is not None else ""
            told = told or f"This is in your memory now:\n{text}"
            notes.append(Note(f"note/{block.id}", told))
    for gone in context.shown.keys() - there:
        label = context.shown.pop(gone).text.partition("\n")[0]
        notes.append(Note(f"note/{gone}", f"You see this memory block no more: {label}"))
    context.referable = _referable(seen, participants)
    _take_in(context, [one for one in seen if one.block.id in context.shown])
    return notes


def _difference(label: str, old: str, new: str) -> str:
    """Return how a block has changed, or nothing if the whole of it is told as quickly."""
    # Without the tags, of which the first says how full the block is.
    was, is_now = (
        text.partition('">')[2].removesuffix("</block>").split("\n") for text in (old, new)
    )
    lines = list(difflib.unified_diff(was, is_now, n=0, lineterm=""))[2:]
    changed = [line for line in lines if not line.startswith("@@")]
    if not changed:
        return ""
    told = "\n".join([f"Your memory block {label!r} has changed (- was, + is now):", *changed])
    return told if len(told) < len(new) else ""


async def _made_here(
    tx: Connection, live: LiveAgent, participants: Participants, block_id: str, since: int
) -> bool:
    """Tell whether the agent itself made all edits since a version, in turns that it sees here."""
    newest = await history.edits(tx, block_id, limit=_MOST_OWN_EDITS)
    edits = [one for one in newest if one.number > since]
    if len(edits) == _MOST_OWN_EDITS:
        return False
    for edit in edits:
        record = await journal.turn(tx, edit.turn_id) if edit.turn_id else None
        if record is None or record.agent_id != live.agent.id:
            return False
        if not participants.can_see(Audience.of_turn(record.audience)):
            return False
    return bool(edits)


async def referred_to(database: Database, live: LiveAgent, text: str, most: int = 3) -> list[Note]:
    """Return the blocks that a message names by their labels and the prefix does not show."""
    context = live.context
    if not context.referable:
        return []
    said = _plain_words(text)
    named = [label for label in context.referable.values() if f" {_label(label)} " in said][:most]
    if not named:
        return []

    async def read(tx: Connection) -> list[Note]:
        notes: list[Note] = []
        for label in named:
            seen = await blocks.find(tx, live.constellation, live.agent.id, label)
            shown = block_text(seen, context.participants)
            if shown:
                _take_in(context, [seen])
                notes.append(
                    Note(
                        f"note/refers/{seen.block.id}",
                        f"The message refers to this block:\n{shown}",
                    )
                )
        return notes

    return await database.read(read)


def _label(label: str) -> str:
    return _plain_words(label).strip()


def _plain_words(text: str) -> str:
    words = "".join(c if c.isalnum() else " " for c in text.casefold()).split()
    return f" {' '.join(words)} "


def sections_at(epoch: Epoch) -> list[Section]:
    """Return the sections of the prefix that held in an epoch."""
    return read_sections(epoch.sections)
