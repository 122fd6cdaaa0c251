"""`python -m bench.compaction`: what 50 compactions of a 5,000-message conversation cost."""

from __future__ import annotations

import argparse
import json
import statistics
import time
from dataclasses import dataclass, field

from asterism.turns.compaction import (
    Compaction,
    ContextEntry,
    Strategy,
    ask_for_summary,
    choose,
    chunks,
    facts_leaving,
    rule_digest,
)
from asterism.types.agents import PUBLIC, Trust
from asterism.types.turns import Call, EntryKind, Reply, Summary, message_wire, result_wire

_START = 1_777_766_400_000  # 2026-05-03 00:00 UTC
_MINUTE = 60_000
_BUDGET = 12_000
_WINDOW = 32_000
_TALK = (
    "I was thinking about the garden again, and whether the beans will come up before the frost. "
    "The neighbour says they will, but he always says so. Tell me what you would do with that "
    "corner behind the shed, where nothing but nettles has grown for as long as I can remember."
)
_FACTS = (
    "My sister Anna lives in Bergen since 2019.",
    "Remember that the plumber comes on 14 May at 9:30.",
    "Let's meet Dr. Weber, her number is +49 30 1234567.",
    "I prefer trains to planes, always.",
    "The rent is 1,240 euros from June on.",
)


@dataclass
class Figures:
    """What one strategy did."""

    strategy: str
    compactions: int = 0
    choose_ms: list[float] = field(default_factory=list[float])
    digest_ms: list[float] = field(default_factory=list[float])
    facts_ms: list[float] = field(default_factory=list[float])
    ask_ms: list[float] = field(default_factory=list[float])
    digest_tokens: list[int] = field(default_factory=list[int])
    facts: int = 0
    kept: int = 0


def conversation(messages: int) -> list[ContextEntry]:
    """Return talk with a fact in every tenth turn and a call in every fourth."""
    told: list[ContextEntry] = []
    number = 0
    while len(told) < messages:
        name = "".join(chr(ord("a") + int(digit)) for digit in str(number))
        fact = f" {_FACTS[number // 10 % len(_FACTS)]}" if number % 10 == 0 else ""
        parts = [(EntryKind.MESSAGE, message_wire("user", f"{_TALK} So much for {name}.{fact}"))]
        if number % 4 == 0:
            call = Call(f"call_{number}", "search", '{"query": "beans"}')
            parts.append((EntryKind.REPLY, Reply(calls=(call,)).wire()))
            parts.append((EntryKind.RESULT, result_wire(call.id, _TALK)))
        parts.append((EntryKind.REPLY, Reply(f"As to {name}: {_TALK}").wire()))
        for kind, wire in parts:
            seq = len(told) + 1
            at = _START + seq * _MINUTE
            told.append(ContextEntry(seq, f"turn_{number}", kind, wire, at, PUBLIC, Trust.OWNER))
        number += 1
    return told


def measure(strategy: Strategy, told: list[ContextEntry]) -> Figures:
    """Compact whenever the tail outgrows its budget, and time each part."""
    figures = Figures(strategy.value)
    tail: list[ContextEntry] = []
    size = 0
    former: Summary | None = None
    for one in told:
        tail.append(one)
        size += len(one.wire)
        if one.kind is not EntryKind.MESSAGE or size <= _BUDGET * 4:
            continue
        began = time.perf_counter()
        compaction = choose(tail, strategy, budget_tokens=_BUDGET, now=one.at, former=former)
        figures.choose_ms.append(_since(began))
        assert compaction is not None
        former = _summarise(figures, compaction)
        tail = compaction.kept_entries(tail)
        size = sum(len(one.wire) for one in tail)
    return figures


def _summarise(figures: Figures, compaction: Compaction) -> Summary:
    began = time.perf_counter()
    figures.facts += len(facts_leaving(compaction))
    figures.facts_ms.append(_since(began))
    began = time.perf_counter()
    for piece in chunks(compaction, _WINDOW):
        ask_for_summary(piece)
    figures.ask_ms.append(_since(began))
    began = time.perf_counter()
    text = rule_digest(compaction)
    figures.digest_ms.append(_since(began))
    figures.digest_tokens.append(len(text.encode()) // 4)
    figures.compactions += 1
    figures.kept = len(compaction.kept)
    return Summary(
        id=f"sum_{figures.compactions}",
        agent_id="agent_1",
        participants="owner",
        audience=compaction.audience,
        trust=compaction.trust,
        first_seq=compaction.first_seq,
        last_seq=compaction.last_seq,
        strategy=compaction.strategy,
        text=text,
        kept=compaction.kept,
        messages=compaction.messages,
        tokens=compaction.tokens,
        made_by="rule",
        at_ms=compaction.last_at,
    )


def _since(began: float) -> float:
    return (time.perf_counter() - began) * 1000


def _spread(values: list[float]) -> str:
    return f"{statistics.median(values):8.2f} {max(values):8.2f}"


def main() -> None:
    """Print a table, or with --json the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=5_000)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    told = conversation(arguments.messages)
    measured = [measure(strategy, told) for strategy in Strategy]
    if arguments.json:
        print(json.dumps([vars(one) for one in measured]))
        return
    print(f"{len(told):,} messages, budget {_BUDGET:,} tokens; median and most, ms")
    print(
        f"{'strategy':<12}{'compactions':>9}{'choose':>17} {'facts':>17} {'ask':>17} {'digest':>17}"
        f"{'tokens':>8}{'facts':>7}{'kept':>6}"
    )
    for one in measured:
        times = " ".join(
            _spread(ms) for ms in (one.choose_ms, one.facts_ms, one.ask_ms, one.digest_ms)
        )
        print(
            f"{one.strategy:<12}{one.compactions:>9}{times}{max(one.digest_tokens):>8}"
            f"{one.facts:>7}{one.kept:>6}"
        )


if __name__ == "__main__":
    main()
