"""The summary without a model: dated lines of the most telling sentences; and facts that leave."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from asterism.agents.compaction.folding import SUMMARY_TOKENS, Folding, Told
from asterism.memory.facts import Fact, facts_in
from asterism.memory.words import digest
from asterism.types.marks import MARK
from asterism.types.summaries import Strategy, day, days
from asterism.types.turns import EntryKind
from asterism.types.wire import text_of

_LONGEST = SUMMARY_TOKENS * 4
_FORMER_SHARE = 0.4
"""How much of a digest lines of the former summary may fill, and more where room is left."""
_LONGEST_LINE = 240
_LONGEST_READ = 20_000
"""Characters of one message that are looked at; who writes more sends a document."""
_LEAST = 0.05
"""The weight of a sentence that holds no fact: it tells at least what was talked about."""
_SENTENCE_END = re.compile(r"(?<=[.!?…])\s+|(?<=[。！？])|\n+")
_HEAD = re.compile(r"^- (?:\d{1,2} \w{3} \d{4}, (?:person|agent): )?")
_LEFT_OUT = re.compile(
    r"^- Left out, not summarised: ([\d,]+) messages? \((\d{1,2} \w{3}(?: \d{4})?)"
    r"(?: – \d{1,2} \w{3} (\d{4}))?\)\.$"
)


def facts_leaving(folding: Folding) -> list[tuple[Fact, Told]]:
    """Return the facts that leave the context with the folded, each once for those who heard it."""
    found: dict[tuple[str, str, str], tuple[Fact, Told]] = {}
    for one in folding.folded:
        for fact in _facts_of(one):
            key = (digest(fact.text), str(one.audience), one.trust.value)
            found.setdefault(key, (fact, one))
    return list(found.values())


def rule_digest(folding: Folding) -> str:
    """Return a summary made by rule: the same for the same, at most some 600 tokens long."""
    if folding.strategy is Strategy.TRUNCATE:
        line = _left_out(folding)
        former = (one for one in _former_lines(folding.former) if not _LEFT_OUT.match(one.text))
        lines = _pick(former, _LONGEST - len(line.encode()) - 1, set())
        return "\n".join([*(one.text for one in lines), line])
    seen: set[str] = set()
    candidates = list(_new_lines(folding.folded))
    free = _LONGEST - sum(one.size for one in candidates)
    room = max(int(_LONGEST * _FORMER_SHARE), free)
    former = _pick(_former_lines(folding.former), room, seen)
    new = _pick(candidates, _LONGEST - sum(one.size for one in former), seen)
    return "\n".join(one.text for one in (*former, *new)) or _left_out(folding)


@dataclass(frozen=True, slots=True)
class _Line:
    """A line that a digest may have."""

    text: str
    weight: float

    @property
    def size(self) -> int:
        return len(self.text.encode()) + 1


def _pick(lines: Iterable[_Line], room: int, seen: set[str]) -> list[_Line]:
    """Return the most telling lines that fit, in their order; of equals, the later ones."""
    all_lines = list(lines)
    taken: list[int] = []
    for index in sorted(range(len(all_lines)), key=lambda one: (-all_lines[one].weight, -one)):
        line = all_lines[index]
        words = digest(_HEAD.sub("", line.text))
        if line.size <= room and words not in seen:
            seen.add(words)
            room -= line.size
            taken.append(index)
    return [all_lines[index] for index in sorted(taken)]


def _new_lines(folded: Iterable[Told]) -> Iterator[_Line]:
    for one in folded:
        if not _is_said(one):
            continue
        who = "person" if one.kind is EntryKind.MESSAGE else "agent"
        head = f"- {day(one.at)}, {who}: "
        facts = _facts_of(one)
        for fact in facts:
            yield _Line(head + _short(fact.text), max(fact.weight, _LEAST))
        if not facts and one.kind is EntryKind.MESSAGE:
            first = next(iter(_sentences(text_of(one.wire)[:_LONGEST_READ])), "")
            if first:
                yield _Line(head + _short(first), _LEAST)


def _former_lines(former: str) -> Iterator[_Line]:
    for line in former.splitlines():
        if _LEFT_OUT.match(line):
            yield _Line(line, 1.0)
            continue
        parts = [line] if len(line) <= _LONGEST_LINE + 40 else _sentences(line)
        for part in parts:
            head = _HEAD.match(part)
            said = part[head.end() :].strip() if head else part.strip()
            if said:
                facts = facts_in("user", said, 0)
                weight = max((fact.weight for fact in facts), default=_LEAST)
                yield _Line((head[0] if head else "- ") + _short(said), max(weight, _LEAST))


def _left_out(folding: Folding) -> str:
    """Return the line of a strategy that does not summarise, taking in the former such line."""
    count, since = folding.messages, folding.first_at
    span = days(since, folding.last_at)
    for line in folding.former.splitlines():
        if former := _LEFT_OUT.match(line):
            count += int(former[1].replace(",", ""))
            first, last = former[2], day(folding.last_at)
            if not first[-4:].isdigit():
                first = f"{first} {former[3]}"
            same_year = first[-4:] == last[-4:]
            span = last if first == last else f"{first[:-5] if same_year else first} – {last}"
            break
    return f"- Left out, not summarised: {count:,} message{'s' * (count != 1)} ({span})."


def _facts_of(one: Told) -> list[Fact]:
    if not _is_said(one):
        return []
    role = "user" if one.kind is EntryKind.MESSAGE else "assistant"
    return facts_in(role, text_of(one.wire)[:_LONGEST_READ], one.at)


def _is_said(one: Told) -> bool:
    """Tell whether a person or the agent says it: not a tool, and not the system."""
    if one.kind is EntryKind.MESSAGE:
        return not text_of(one.wire).startswith(MARK)
    return one.kind is EntryKind.REPLY


def _sentences(text: str) -> list[str]:
    return [one.strip() for one in _SENTENCE_END.split(text) if one and one.strip()]


def _short(text: str) -> str:
    one_line = " ".join(text.split())
    return one_line if len(one_line) <= _LONGEST_LINE else one_line[: _LONGEST_LINE - 1] + "…"
