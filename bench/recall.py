"""How good and how quick memory is that comes by itself: `python -m bench.recall`.

Prints for how many questions the message that answers them is among what the processor `recall`
puts before the model, for how many messages of small talk anything is put there, and how long it
takes. By default on conversations made up from a seed; with `--data FILE` on real ones, as
`bench.search` takes them. Nothing is held to be in the context, which is the hardest case.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from asterism import TurnView
from asterism.errors import AsterismError
from asterism.ports import ProcessorNote
from asterism.turns.pipeline import Recall
from asterism.types.agents import OWNER_ALONE, Trust
from asterism.types.search import Query, SearchResult
from bench.adapters.memory import Memory, milliseconds
from bench.dialogues import APART, Conversation, Session, load, made
from bench.search_speed import made_questions, made_sessions
from bench.small_talk import MEASURED

LEAST_ANSWERED, MAX_TALK, MAX_MS = 0.70, 0.05, 25.0
"""The goals: questions answered, small talk that is told something, ms at 10,000 messages."""
MAX_HITS, MAX_TOKENS = 6, 700


@dataclass(slots=True)
class Figures:
    """What was told."""

    asked: Counter[str] = field(default_factory=Counter[str])
    answered: Counter[str] = field(default_factory=Counter[str])
    """Questions of which a message that answers them was told, by category."""
    whole: int = 0
    """Questions of which all such messages were told."""
    hits: int = 0
    tokens: list[float] = field(default_factory=list[float])
    talk: int = 0
    told: list[str] = field(default_factory=list[str])
    """Small talk to which something was told."""


class Teller:
    """The processor before an agent that holds one memory."""

    def __init__(self, memory: Memory, *, compact: bool = False) -> None:
        self._memory = memory
        self._compact = compact
        self._recall = Recall()

    async def tell(
        self, message: str, now: int = 0, previous: tuple[str, ...] = ()
    ) -> ProcessorNote:
        """Return what is put before a message."""
        memory = self._memory

        async def search(query: Query) -> SearchResult:
            return await memory.home.search(
                memory.agent, query.text, domains=query.domains, limit=query.limit
            )

        view = TurnView(
            agent=memory.agent,
            turn_id="turn_asked",
            message=message,
            participants=OWNER_ALONE,
            trust=Trust.OWNER,
            now_ms=now,
            previous=previous,
            compact=self._compact,
            search=search,
        )
        notes = await self._recall.process(view)
        return notes[0] if notes else ProcessorNote("")


def ask(conversations: Sequence[Conversation], encoder: str, figures: Figures) -> None:
    """Ask each conversation its questions, and make small talk in it."""
    for conversation in conversations:
        with tempfile.TemporaryDirectory(prefix="asterism-recall-") as place:
            memory = Memory(place, encoder=encoder)
            try:
                for session in conversation.sessions:
                    memory.ingest(session)
                memory.finish()
                memory.run(_ask(memory, conversation, figures))
            finally:
                memory.close()


async def _ask(memory: Memory, conversation: Conversation, figures: Figures) -> None:
    teller, now = Teller(memory), milliseconds(conversation.messages[-1].time)
    for question in conversation.questions:
        if not question.gold or question.category in APART:
            continue
        note = await teller.tell(question.text, now)
        told = {memory.dataset_id(origin) for origin in note.origins}
        tokens = len(note.text.encode()) / 4
        assert len(told) <= MAX_HITS, note
        assert tokens <= MAX_TOKENS, note
        figures.asked[question.category] += 1
        figures.answered[question.category] += bool(told & set(question.gold))
        figures.whole += told >= set(question.gold)
        figures.hits += len(told)
        figures.tokens.append(tokens)
    latest = (conversation.messages[-2].text, conversation.messages[-1].text)
    for text in MEASURED:
        figures.talk += 1
        if (await teller.tell(text, now, latest)).text:
            figures.told.append(text)


def quality(title: str, conversations: Sequence[Conversation], encoder: str) -> list[str]:
    """Print how good it is, and return what falls short."""
    figures = Figures()
    ask(conversations, encoder, figures)
    count = figures.asked.total()
    answered, talk = figures.answered.total() / count, len(figures.told) / figures.talk
    print(f"\n{title}, encoder {encoder}: {len(conversations)} memories, {count:,} questions")
    print(f"  a message that answers is told    {answered:7.1%} of the questions")
    print(f"  all messages that answer are told {figures.whole / count:7.1%}")
    for category, asked in sorted(figures.asked.items()):
        print(f"    {category:30}  {figures.answered[category] / asked:7.1%} of {asked}")
    print(
        f"  told {figures.hits / count:.1f} hits, {statistics.mean(figures.tokens):.0f} tokens; "
        f"at most {max(figures.tokens):.0f}"
    )
    often = Counter(figures.told).most_common(6)
    print(f"  small talk that is told something {talk:7.1%} of {figures.talk:,}: {often}")
    missed: list[str] = []
    if answered < LEAST_ANSWERED:
        missed.append(f"{title}, encoder {encoder}: {answered:.1%} of the questions are answered")
    if talk > MAX_TALK:
        missed.append(f"{title}, encoder {encoder}: {talk:.1%} of small talk is told something")
    return missed


def speed(count: int, encoder: str) -> list[str]:
    """Print how long it takes, and return what falls short."""
    sessions = made_sessions(count)
    asked = made_questions(sessions)
    with tempfile.TemporaryDirectory(prefix="asterism-recall-") as place:
        memory = Memory(place, encoder=encoder)
        try:
            for session in sessions:
                memory.ingest(session)
            memory.finish()
            wall, cpu, told = memory.run(_times(memory, asked, sessions))
        finally:
            memory.close()
    print(f"\n{count:,} messages, encoder {encoder}; {told} of {len(asked)} were told something")
    for name, times in (("wall", wall), ("CPU", cpu)):
        ordered = sorted(times)
        p95 = ordered[int(len(ordered) * 0.95)]
        print(f"  {name:5} p50 {statistics.median(ordered):6.2f} ms   p95 {p95:6.2f} ms")
    p95 = sorted(cpu)[int(len(cpu) * 0.95)]
    if p95 > MAX_MS:
        return [f"encoder {encoder}: p95 is {p95:.1f} ms of CPU time, more than {MAX_MS:g}"]
    return []


async def _times(
    memory: Memory, asked: Sequence[str], sessions: Sequence[Session]
) -> tuple[list[float], list[float], int]:
    teller = Teller(memory)
    now = milliseconds(sessions[-1].messages[-1].time + timedelta(hours=1))
    await teller.tell("What was it that loads all that is needed?", now)
    wall: list[float] = []
    cpu: list[float] = []
    told = 0
    for text in asked:
        begin, busy = time.perf_counter(), time.process_time()
        note = await teller.tell(text, now)
        wall.append((time.perf_counter() - begin) * 1000)
        cpu.append((time.process_time() - busy) * 1000)
        told += bool(note.text)
    return wall, cpu, told


def main() -> int:
    """Measure, and print what was found."""
    parser = argparse.ArgumentParser(prog="python -m bench.recall", description=__doc__)
    parser.add_argument("--data", type=Path, action="append", metavar="FILE", default=[])
    parser.add_argument("--no-encoder", action="store_true", help="leave MiniLM out; much quicker")
    parser.add_argument("--no-speed", action="store_true", help="quality alone")
    parser.add_argument("--messages", type=int, default=10_000, help="how many, for the time")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a goal is missed")
    given = parser.parse_args()
    missed: list[str] = []
    for encoder in ("none",) if given.no_encoder else ("none", "minilm"):
        try:
            missed += quality("made-up conversations", made(), encoder)
            for path in given.data:
                missed += quality(path.stem, load(path), encoder)
            if not given.no_speed:
                missed += speed(given.messages, encoder)
        except (AsterismError, ImportError) as problem:
            print(f"Without the encoder: {problem}", file=sys.stderr)
    for one in missed:
        print(f"MISSED  {one}")
    return int(given.check and bool(missed))


if __name__ == "__main__":
    sys.exit(main())
