"""How well and how fast the rules of memory work: `python -m bench.likeness`.

Prints precision and recall of likeness and facts on the labelled sets of `tests/data`, the cost of
each call, and what the static vectors take to load.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from asterism.memory.archive import Relation, compare
from asterism.memory.facts import facts_in
from asterism.memory.statements import parse_text
from asterism.memory.words import cosine, digest, embed, nearest, words

_DATA = Path(__file__).parents[1] / "tests" / "data"
_SETS = ("tuned", "held_out")
_LOAD = """
import time
def resident():
    with open('/proc/self/statm') as file:
        return int(file.read().split()[1]) * 4096
from asterism.memory.words import embed
before, start = resident(), time.perf_counter()
embed(['hello'])
print(time.perf_counter() - start, (resident() - before) / 1e6)
"""


def rows(name: str) -> list[list[str]]:
    """Return the lines of a labelled set in their parts."""
    lines = (_DATA / f"{name}.txt").read_text("utf-8").splitlines()
    return [line.split("|") for line in lines if line and not line.startswith("#")]


def table(title: str, counts: Counter[tuple[str, str]], kinds: list[str]) -> None:
    """Print precision and recall by kind, of pairs of what was meant and what was said."""
    print(f"\n{title} ({sum(counts.values())})")
    for kind in kinds:
        right = counts[kind, kind]
        said = sum(count for (_, found), count in counts.items() if found == kind)
        meant = sum(count for (expected, _), count in counts.items() if expected == kind)
        if meant:
            print(f"  {kind:12} precision {right / max(said, 1):.2f}  recall {right / meant:.2f}")


def likeness(name: str) -> None:
    """Measure the kinds of likeness on a set."""
    counts: Counter[tuple[str, str]] = Counter()
    for kind, new, old in rows(f"likeness_{name}"):
        made = embed([new, old]) or [None, None]
        counts[kind, compare(new, old, made[0], made[1]).kind.value] += 1
    table(f"likeness, {name}", counts, [kind.value for kind in Relation])


def facts(name: str) -> None:
    """Measure on a set whether a sentence is taken for a fact, and how often its kind is right."""
    counts: Counter[tuple[str, str]] = Counter()
    right = found_kinds = 0
    for kind, role, sentence in rows(f"facts_{name}"):
        found = facts_in(role, sentence, 0)
        counts["none" if kind == "none" else "fact", "fact" if found else "none"] += 1
        if found and kind != "none":
            found_kinds += 1
            right += found[0].kind == kind
    table(f"facts, {name}", counts, ["fact", "none"])
    print(f"  kind right   {right / max(found_kinds, 1):.2f}")


def cost(title: str, call: Callable[[int], object], times: int) -> None:
    """Print what a call takes of the processor, the best of some rounds."""
    rounds: list[float] = []
    for _ in range(5):
        start = time.thread_time()
        for number in range(times):
            call(number)
        rounds.append((time.thread_time() - start) / times * 1e6)
    print(f"  {title:34} {min(rounds):9.1f} µs")


def costs() -> None:
    """Print what the calls cost."""
    pairs = [(new, old) for name in _SETS for _, new, old in rows(f"likeness_{name}")]
    said = [sentence for name in _SETS for _, _, sentence in rows(f"facts_{name}")]
    messages = [" ".join(said[at : at + 3]) for at in range(0, len(said), 3)]
    vectors = embed([new for new, _ in pairs]) or []
    print("\ncost of a call")
    cost("words, one sentence", lambda at: words(pairs[at][0]), len(pairs))
    cost("digest, one sentence", lambda at: digest(pairs[at][0]), len(pairs))

    def unread(at: int) -> None:
        parse_text.cache_clear()
        compare(*pairs[at])

    cost("compare, both texts new", unread, len(pairs))
    cost("compare, both texts read before", lambda at: compare(*pairs[at]), 200)
    cost(
        "facts, a message of 3 sentences",
        lambda at: facts_in("user", messages[at], 0),
        len(messages),
    )
    if vectors:
        many = (vectors * (10_000 // len(vectors) + 1))[:10_000]
        cost("embed, one sentence", lambda at: embed([pairs[at][0]]), len(pairs))
        cost("cosine", lambda at: cosine(vectors[at], vectors[0]), len(vectors))
        cost("nearest 10 of 10,000", lambda at: nearest(vectors[at], many, 10), 20)


def main() -> None:
    """Print all figures."""
    for name in _SETS:
        likeness(name)
        facts(name)
    costs()
    if Path("/proc/self/statm").exists():
        ran = subprocess.run(
            [sys.executable, "-c", _LOAD], check=True, capture_output=True, text=True, timeout=60
        )
        seconds, megabytes = ran.stdout.split()
        print(f"\nloading the vectors: {float(seconds):.2f} s, {float(megabytes):.0f} MB resident")


if __name__ == "__main__":
    main()
