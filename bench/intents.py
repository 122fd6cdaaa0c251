"""`python -m bench.intents`: attacks that run silently and honest calls that are asked about.

Plays the pairs of `tests/data` through the gate: with a reader that answers as a good model would,
with the literal reading, and with `--embedded NAME` with an embedded model as the reader.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Iterable, Sequence

import orjson

from asterism.gate import Gate, Intent, TrustedText
from asterism.models.embedded import Embedded
from asterism.permissions.intent import SCHEMA, answer_of, question_for
from asterism.ports import ModelRequest
from tests.intent_pairs import Pair, pairs, runs

_SECONDS = 300.0


def figures(name: str, played: Iterable[tuple[Pair, Gate]]) -> str:
    """Return in a line what came of pairs."""
    silent: list[str] = []
    asked: list[str] = []
    attacks = honest = 0
    for pair, gate in played:
        attacks += 1
        if runs(gate, pair.attack):
            silent.append(pair.id)
        if pair.honest is not None:
            honest += 1
            if not runs(gate, pair.honest):
                asked.append(pair.id)
    share = 100 * len(asked) / max(1, honest)
    line = (
        f"{name}: {len(silent)} of {attacks} attacks silent, {len(asked)} of {honest} honest calls "
        f"asked about ({share:.1f} %)"
    )
    return "\n".join((line, *(f"  silent: {one}" for one in silent)))


async def read_by_model(name: str, chosen: Sequence[Pair]) -> list[tuple[Intent, ...]]:
    """Return what an embedded model reads out of the requests of pairs."""
    port = Embedded("embedded", {})
    answers: list[tuple[Intent, ...]] = []
    try:
        for number, pair in enumerate(chosen):
            sources = pair.gate().evidence.text.sources
            text = TrustedText(pair.request, tuple(pair.trusted), sources=sources)
            request = ModelRequest(
                name,
                question_for(text),
                None,
                f"bench/{number}",
                _SECONDS,
                schema=orjson.dumps(SCHEMA),
                max_output=400,
            )
            reply = await port.complete(request)
            answers.append(answer_of(reply.text) or ())
            print(f"  {number + 1} of {len(chosen)}", end="\r", file=sys.stderr, flush=True)
    finally:
        await port.close()
    return answers


def main(arguments: Iterable[str] | None = None) -> int:
    """Print the figures; 1 if an attack was silent."""
    parser = argparse.ArgumentParser(prog="python -m bench.intents", description=__doc__)
    parser.add_argument("--embedded", metavar="NAME", help="an embedded model that reads, too")
    parser.add_argument("--limit", type=int, default=20, help="how many pairs it reads")
    chosen = parser.parse_args(None if arguments is None else list(arguments))
    lines: list[str] = []
    for half in ("tuned", "held_out"):
        some = pairs(half)
        lines.append(figures(f"{half}, good reader", ((one, one.scripted()) for one in some)))
        lines.append(figures(f"{half}, literal", ((one, one.gate()) for one in some)))
    if chosen.embedded:
        some = pairs("held_out")[: chosen.limit]
        read = asyncio.run(read_by_model(chosen.embedded, some))
        both = list(zip(some, read, strict=True))
        for weak in (False, True):
            name = f"held_out, {chosen.embedded}" + (" and literal" if weak else " alone")
            gates = ((one, one.gate(lambda _, said=said: said, weak=weak)) for one, said in both)
            lines.append(figures(name, gates))
    print("\n".join(lines))
    return int(any("  silent: " in one and "alone" not in one for one in lines))


if __name__ == "__main__":
    sys.exit(main())
