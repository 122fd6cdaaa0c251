"""How well and how fast memory is searched: `python -m bench.search`.

Prints how many of the messages that answer a question are among the first ten, beside plain FTS5
and beside FTS5 fused with the cosines of MiniLM, all in one run: on conversations made up from a
seed, or with `--data FILE` on real ones. `--speed` and `--hostile` measure time and size.
"""

from __future__ import annotations

import argparse
import functools
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from asterism.errors import AsterismError
from bench.adapters.memory import Memory
from bench.baselines import Fts5, Hybrid, minilm
from bench.dialogues import APART, Conversation, Question, Session, load, made

if TYPE_CHECKING:
    from bench.baselines import Encode

_DEPTH = 50
OVERALL = "overall"
FTS5 = "FTS5"


class System(Protocol):
    """Something that conversations are put into and asked back from."""

    def ingest(self, session: Session) -> None:
        """Take in a session."""
        ...

    def finish(self) -> None:
        """Get ready for questions."""
        ...

    def search(self, query: str, k: int, now: datetime | None = None) -> list[str]:
        """Return ids of messages, the best first."""
        ...

    def close(self) -> None:
        """Let go of everything."""
        ...


Make = Callable[[Path], System]


@dataclass(slots=True)
class Score:
    """Means over questions."""

    count: int = 0
    sums: list[float] = field(default_factory=lambda: [0.0, 0.0, 0.0])

    def add(self, ranked: Sequence[str], question: Question) -> None:
        """Count one question."""
        gold = set(question.gold)
        seen = list(dict.fromkeys(ranked))
        first = next((place for place, one in enumerate(seen, 1) if one in gold), None)
        figures = (
            *(len(gold & set(seen[:k])) / len(gold) for k in (10, 5)),
            1 / first if first else 0,
        )
        self.sums = [total + figure for total, figure in zip(self.sums, figures, strict=True)]
        self.count += 1

    @property
    def services(self) -> tuple[float, float, float]:
        """Recall at 10, recall at 5, and the mean of 1 by the place of the first right one."""
        recall, recall5, mrr = (total / max(self.count, 1) for total in self.sums)
        return recall, recall5, mrr


Scores = dict[str, Score]
"""By category of questions."""


def systems(*, encoder: bool = True) -> dict[str, Make]:
    """Return what is measured, by the title of its column."""
    found: dict[str, Make] = {FTS5: Fts5}
    encode = _encoder() if encoder else None
    if encode is not None:
        found["FTS5 + MiniLM"] = functools.partial(Hybrid, encode=encode)
    found["asterism"] = functools.partial(Memory, encoder="none")
    if encode is not None:
        found["asterism + MiniLM"] = functools.partial(Memory, encoder="minilm")
    return found


def _encoder() -> Encode | None:
    try:
        encode = minilm()
        encode(["hello"])
    except (AsterismError, ImportError) as problem:
        print(f"Without the encoder: {problem}", file=sys.stderr)
        return None
    return encode


def measure(make: Make, conversations: Sequence[Conversation]) -> Scores:
    """Ask a system all questions, each conversation in a memory of its own."""
    scores: Scores = {OVERALL: Score()}
    for conversation in conversations:
        with tempfile.TemporaryDirectory(prefix="asterism-search-") as place:
            system = make(Path(place))
            for session in conversation.sessions:
                system.ingest(session)
            system.finish()
            now = conversation.messages[-1].time
            for question in conversation.questions:
                if not question.gold:
                    continue
                ranked = system.search(question.text, _DEPTH, now)
                scores.setdefault(question.category, Score()).add(ranked, question)
                if question.category not in APART:
                    scores[OVERALL].add(ranked, question)
            system.close()
    return scores


def table(measured: dict[str, Scores]) -> str:
    """Return the figures, a line a category and three columns a system."""
    categories = sorted({one for scores in measured.values() for one in scores} - {OVERALL})
    wide = max(map(len, [*categories, OVERALL])) + 2
    lines = [
        " " * (wide + 6) + "".join(f"{name:^24}" for name in measured),
        " " * (wide + 6) + "".join(f"{'R@10':>8}{'R@5':>7}{'MRR':>7}  " for _ in measured),
    ]
    for category in (OVERALL, *categories):
        known = [scores.get(category, Score()) for scores in measured.values()]
        cells = "".join("{:8.3f}{:7.3f}{:7.3f}  ".format(*score.services) for score in known)
        apart = " *" if category in APART else ""
        lines.append(f"{category + apart:<{wide}}{known[0].count:>6}{cells}")
    if APART & set(categories):
        lines.append(
            "* no message answers it, or the whole history does: not in the overall figure"
        )
    return "\n".join(lines)


def below_words(measured: dict[str, Scores]) -> list[str]:
    """Return the categories in which asterism finds less than plain FTS5."""
    return [
        f"{name}, {category}: R@10 {score.services[0]:.3f} is below {FTS5}"
        for name, scores in measured.items()
        if name.startswith("asterism")
        for category, score in scores.items()
        if score.services[0] < measured[FTS5][category].services[0]
    ]


def quality(title: str, conversations: Sequence[Conversation], *, encoder: bool) -> list[str]:
    """Measure, print the table, and return what falls short."""
    messages = sum(len(one.messages) for one in conversations)
    print(f"\n{title}: {len(conversations)} conversations, {messages:,} messages")
    measured: dict[str, Scores] = {}
    for name, make in systems(encoder=encoder).items():
        start = time.monotonic()
        measured[name] = measure(make, conversations)
        print(f"{time.monotonic() - start:5.0f} s  {name}", file=sys.stderr, flush=True)
    print(table(measured))
    return below_words(measured)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.search", description=__doc__)
    parser.add_argument(
        "--data", type=Path, action="append", metavar="FILE", help="real conversations as JSON"
    )
    parser.add_argument("--no-encoder", action="store_true", help="leave MiniLM out; much quicker")
    parser.add_argument("--speed", action="store_true", help="time and size instead of quality")
    parser.add_argument("--postgres", action="store_true", help="the same on PostgreSQL")
    parser.add_argument("--messages", type=int, default=10_000, help="how many, with --speed")
    parser.add_argument("--words", type=int, default=20, help="words of a message, with --speed")
    parser.add_argument(
        "--hostile", type=int, nargs="?", const=2_000, metavar="N", help="time N hostile queries"
    )
    parser.add_argument("--check", action="store_true", help="exit with 1 if a goal is missed")
    return parser.parse_args()


def main() -> int:
    """Measure, and print what was found."""
    arguments = _arguments()
    encoder = not arguments.no_encoder
    short: list[str] = []
    if arguments.speed or arguments.postgres or arguments.hostile:
        from bench import search_speed

        if arguments.speed:
            short += search_speed.speed(arguments.messages, arguments.words, encoder=encoder)
        if arguments.postgres:
            short += search_speed.postgres(arguments.messages, arguments.words)
        if arguments.hostile:
            short += search_speed.hostile(arguments.hostile, arguments.messages)
    elif arguments.data:
        for path in arguments.data:
            short += quality(path.stem, load(path), encoder=encoder)
    else:
        short += quality("made-up conversations", made(), encoder=encoder)
    for one in short:
        print(f"MISSED  {one}")
    return int(arguments.check and bool(short))


if __name__ == "__main__":
    sys.exit(main())
