"""Digests: summaries made by rule, from the sentences that tell most; the same for the same."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any

import orjson

from asterism.memory.facts import facts_in
from asterism.memory.words import digest
from asterism.records import dataclass
from asterism.types.turns import MARK, text_of, without_stamp

SHORT_DIGEST_BYTES = 800
"""How long the digest for a small model may be: some 200 tokens."""
FORMER_SHARE = 0.4
"""How much of a digest lines of the former summary may fill, and more where room is left."""
LEAST_WEIGHT = 0.05
"""The weight of a sentence that holds no fact: it tells at least what was talked about."""
MAX_READ = 20_000
"""Characters of one message that are looked at; who writes more sends a document."""
_MAX_LINE_LENGTH = 240
_MAX_SHORT_LINE_LENGTH = 120
_LEAST_LENGTH = 12
"""Shorter sentences, such as `Thank you!`, tell a small model nothing."""
_SENTENCE_END = re.compile(r"(?<=[.!?…])\s+|(?<=[。！？])|\n+")
_HEAD = re.compile(r"^- (?:\d{1,2} \w{3} \d{4}, )?(?:(?:person|agent|you): )?")
_QUOTED = "> "
_WHO = {"user": "person", "assistant": "you"}


@dataclass(frozen=True, slots=True)
class DigestLine:
    """A line that a digest may have."""

    text: str
    weight: float
    day: str = ""
    """The day on which it was said, where that stands above it."""

    @property
    def size(self) -> int:
        """Its bytes, with the end of the line."""
        return len(self.text.encode()) + 1


def pick_lines(lines: Iterable[DigestLine], room: int, seen: set[str]) -> list[DigestLine]:
    """Return the most telling lines that fit, in their order; of equals, the later ones.

    What they say is added to `seen`, and what is in there is not said again.
    """
    all_lines = list(lines)
    taken: list[int] = []
    for index in sorted(
        range(len(all_lines)), key=lambda place: (-all_lines[place].weight, -place)
    ):
        line = all_lines[index]
        if line.size > room:
            continue
        words = digest(_HEAD.sub("", line.text))
        if words not in seen:
            seen.add(words)
            room -= line.size
            taken.append(index)
    return [all_lines[index] for index in sorted(taken)]


def lines_of(
    role: str, text: str, at: int, head: str, *, longest: int = _MAX_LINE_LENGTH
) -> Iterator[DigestLine]:
    """Yield a line for each fact of a message; of a person's without any, its first sentence."""
    facts = facts_in(role, text[:MAX_READ], at)
    for fact in facts:
        yield DigestLine(head + _shortened(fact.text, longest), max(fact.weight, LEAST_WEIGHT))
    if not facts and role == "user":
        first = next(iter(_sentences(text[:MAX_READ])), "")
        if first:
            yield DigestLine(head + _shortened(first, longest), LEAST_WEIGHT)


def former_lines(former: str, *, longest: int = _MAX_LINE_LENGTH) -> Iterator[DigestLine]:
    """Yield the lines of a former summary, each with the weight of the facts in it."""
    for line in former.splitlines():
        parts = [line] if len(line) <= longest + 40 else _sentences(line)
        for part in parts:
            head = _HEAD.match(part)
            text = part[head.end() :].strip() if head else part.strip()
            if text:
                facts = facts_in("user", text, 0)
                weight = max((fact.weight for fact in facts), default=LEAST_WEIGHT)
                whole = (head[0] if head else "- ") + _shortened(text, longest)
                yield DigestLine(whole, max(weight, LEAST_WEIGHT))


def short_digest(said: Sequence[DigestLine], former: str = "") -> str:
    """Return what matters most of messages that a small model is not sent.

    Args:
        said: The lines of the messages.
        former: A summary of what came before them, which the model is not sent either.
    """
    quoted = [
        line.removeprefix(_QUOTED) for line in former.splitlines() if line.startswith(_QUOTED)
    ]
    seen: set[str] = set()
    free = SHORT_DIGEST_BYTES - sum(line.size for line in said)
    room = max(int(SHORT_DIGEST_BYTES * FORMER_SHARE), free)
    before = former_lines("\n".join(quoted), longest=_MAX_SHORT_LINE_LENGTH)
    older = pick_lines(before, room, seen)
    days = {line.day for line in said}
    left = SHORT_DIGEST_BYTES - sum(line.size for line in older) - sum(len(day) + 2 for day in days)
    newer = pick_lines(said, left, seen)
    told = [line.text for line in older]
    for day, lines in groupby(newer, key=lambda line: line.day):
        told += [f"{day}:"] * bool(day) + [line.text for line in lines]
    return "\n".join(told)


def digest_lines(wires: Iterable[bytes]) -> Iterator[DigestLine]:
    """Yield the lines of messages, as they are sent, that a person or the agent has said.

    What tools and the system say is not among them.
    """
    for wire in wires:
        message: dict[str, Any] = orjson.loads(wire)
        role = str(message.get("role"))
        text = text_of(wire)
        if role not in _WHO or text.startswith(MARK):
            continue
        said = without_stamp(text)
        day = text[: len(text) - len(said)][5:15]
        head = f"- {_WHO[role]}: "
        for line in lines_of(role, said, 0, head, longest=_MAX_SHORT_LINE_LENGTH):
            if len(line.text) - len(head) >= _LEAST_LENGTH:
                yield DigestLine(line.text, line.weight, day)


def _sentences(text: str) -> list[str]:
    return [
        sentence.strip() for sentence in _SENTENCE_END.split(text) if sentence and sentence.strip()
    ]


def _shortened(text: str, longest: int) -> str:
    one_line = " ".join(text.split())
    return one_line if len(one_line) <= longest else one_line[: longest - 1] + "…"
