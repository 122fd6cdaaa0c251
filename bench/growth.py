"""`python -m bench.growth`: how the time of reading hostile and large values grows with their size.

All figures are ratios of the processor's time, the best of several, so that a slow or a busy
machine gives the same ones. Exits with 1 if one is too high.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from asterism.memory.content import Parts
from asterism.memory.edits import BlockContent
from asterism.models.anthropic import Anthropic
from asterism.ports import ModelRequest
from asterism.search.query import days_in, read, span_of
from asterism.telemetry.redaction import KnownSecrets, RedactingStream
from asterism.types.memory import EditRange, SetText, TextSchema
from asterism.types.turns import message_wire, unmarked
from bench.gate_time import cost

MAX_GROWTH = 9.0
"""Four times the size may take nine times as long: a square would take sixteen times."""
MAX_SAME = 3.0
"""Where the size must not matter."""
FLOOR_MS = 0.5
"""Below this, a ratio says more about the clock than about the code."""
_NOW = int(datetime(2023, 6, 9, 15, 30, tzinfo=UTC).timestamp() * 1000)
_CANARY = "canary-3-canary-3-canary-3-canary"


@dataclass(frozen=True)
class Case:
    """Something to be read, small and large."""

    name: str
    work: Callable[[Any], Any]
    small: Any
    large: Any
    most: float = MAX_GROWTH


def _four(name: str, work: Callable[[Any], Any], piece: str, size: int, end: str = "") -> Case:
    """Return the case of a text and one that is four times as long."""
    small, large = (piece * (length // len(piece)) + end for length in (size, 4 * size))
    return Case(f"{name} {piece[:12]!a}", work, small, large)


def redaction() -> list[Case]:
    """Texts of every kind, with a secret at their end and without."""
    secrets = KnownSecrets()
    for number in range(5):
        secrets.add(f"secret-{number}", _CANARY.replace("3", str(number)))
    hidden = base64.encodebytes(b"x" * 100 + _CANARY.encode()).decode()
    kinds = [
        "The quick brown fox jumps over the lazy dog. ",
        base64.encodebytes(bytes(range(256))).decode(),
        bytes(range(256)).hex(" "),
        "a line\\n\\tanother\\n",
        "汉字 и кириллица ",
        " \n\t",
        "Tea &amp; cake. ",
        base64.b64encode(b"canary-0-canary-0-canary-").decode() + "\n",
    ]
    found = [
        _four("redact", secrets.redact, piece, 200_000, end)
        for piece in kinds
        for end in ("", f"\n{hidden}")
    ]

    def stream(feeds: int) -> None:
        out = RedactingStream(secrets)
        out.feed(base64.b64encode(b"canary").decode())
        for _ in range(feeds):
            out.feed(" " * 100)

    return [*found, Case("stream of white space", stream, 1_000, 4_000)]


def search() -> list[Case]:
    """Dates in hostile texts, and questions of a page and of a megabyte."""

    def dates(text: str) -> None:
        days_in(text, _NOW)
        span_of(text, _NOW)

    def question(text: str) -> None:
        read(text, {"ann": "discord:ann"}, "owner", "agent", _NOW)

    pieces = ["1 ", "may ", "in the last two ", "the week before ", "2023-", "on the ", "\u0130"]
    questions = ["word ", "\u20ac", "a\0", "Ann's 'quoted' 7 May 2023, "]
    return [
        *(_four("dates", dates, piece, 100_000) for piece in pieces),
        Case("dates apart", dates, _apart(50_000), _apart(200_000)),
        *(
            Case(
                f"question {piece[:12]!a}",
                question,
                piece * (8_000 // len(piece)),
                piece * (1_000_000 // len(piece)),
                MAX_SAME,
            )
            for piece in questions
        ),
    ]


def _apart(size: int) -> str:
    return f"5 may{' ' * size}and 6 may"


def marks() -> list[Case]:
    """Brackets that may begin a mark."""
    pieces = ["[", "]", "[a", "[" + "a" * 1_990, "[\u200b", "[asteris", "[]"]
    return [_four("marks", unmarked, piece, 100_000) for piece in pieces]


def documents() -> list[Case]:
    """A block that was edited ten times and one that was edited thousands of times."""

    def after(edits: int) -> Parts:
        document = BlockContent(TextSchema(), {})
        document.apply(SetText("\n".join(f"line {number}" for number in range(50))))
        for number in range(edits):
            document.apply(EditRange(number % 50 + 1, number % 50 + 1, f"line {number}"))
        return document.parts

    def load(parts: Parts) -> None:
        for _ in range(20):
            BlockContent(TextSchema(), parts)

    return [Case("load a block", load, after(10), after(3_000), MAX_SAME)]


def messages() -> list[Case]:
    """A conversation that is known to the port, short and long: only what is new costs anything."""

    def known(exchanges: int) -> Callable[[], bytes]:
        talk = [message_wire("system", "You are a test.")]
        for number in range(exchanges):
            talk.append(message_wire("user", f"Number {number}. " * 20))
            talk.append(message_wire("assistant", f"It is blue, number {number}."))
        talk.append(message_wire("user", "And now?"))
        port = Anthropic("local", {"base_url": "http://127.0.0.1:9", "options": {}})
        request = ModelRequest("guide", talk, None, "turn_1/0/reply", 20.0, agent_id="agent_1")
        port.body(request, streamed=True)
        return lambda: port.body(request, streamed=True)

    def repeat(body: Callable[[], bytes]) -> None:
        for _ in range(50):
            body()

    return [Case("known messages", repeat, known(125), known(500))]


def main() -> int:
    """Print how often the time of the small goes into the time of the large."""
    failed = 0
    print(f"{'what':<32} {'small ms':>9} {'large ms':>9} {'ratio':>6} {'most':>5}")
    for case in [*redaction(), *search(), *marks(), *documents(), *messages()]:
        small, large = cost(case.work, case.small), cost(case.work, case.large)
        ratio = large / max(small, FLOOR_MS)
        failed += ratio > case.most
        told = "  too slow" if ratio > case.most else ""
        print(f"{case.name:<32} {small:>9.2f} {large:>9.2f} {ratio:>6.1f} {case.most:>5g}{told}")
    print(f"{failed} too slow")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
