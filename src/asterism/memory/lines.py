"""Lines of a block through an edit: which edits made them, who may hear them, what stays hidden."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from typing import Any

from asterism.store.blocks import Blame, blame_runs, read_blame
from asterism.types.memory import Line
from asterism.types.people import Audience, Label

_ALIKE = 0.6
_HARDLY = 0.3
_COMPARED = 2_000
"""Only so many characters of two lines, and so many pairs of lines, are compared."""
_FIRST_EDITS, _LAST_EDITS = 16, 48
"""A line names its first and its latest edits, so that one edited forever stays small."""


@dataclass(frozen=True, slots=True)
class Stroke:
    """What an edit leaves on the lines that it makes."""

    number: int
    label: Label
    own_hands: bool = False
    """The owner wrote it: what is not like the old line is not made from it."""


def _edits(lines: Sequence[Line], number: int) -> tuple[int, ...]:
    found = sorted({one for line in lines for one in line.edits} | {number})
    if len(found) > _FIRST_EDITS + _LAST_EDITS:
        found = found[:_FIRST_EDITS] + found[-_LAST_EDITS:]
    return tuple(found)


def _alike(one: str, other: str) -> bool:
    one, other = one[:_COMPARED], other[:_COMPARED]
    pairs, others = _pairs(one), _pairs(other)
    # Cheap, and what has few pairs of letters in common is not alike by any measure.
    if 2 * len(pairs & others) < _HARDLY * (len(pairs) + len(others)):
        return False
    return SequenceMatcher(None, one, other, autojunk=False).ratio() > _ALIKE


def _pairs(text: str) -> set[str]:
    return {text[at : at + 2] for at in range(max(len(text) - 1, 1))}


def _shared_ends(old: Sequence[Any], new: Sequence[Any]) -> tuple[int, int]:
    """Return how many entries are the same at the beginning, and then at the end."""
    shorter = min(len(old), len(new))
    before = 0
    while before < shorter and old[before] == new[before]:
        before += 1
    after = 0
    while after < shorter - before and old[-1 - after] == new[-1 - after]:
        after += 1
    return before, after


def carry(
    old: Sequence[Line], new: Sequence[str], stroke: Stroke, past: Sequence[Line] | None = None
) -> list[Line]:
    """Return the lines after an edit, each with what is known of it.

    Args:
        old: The lines before.
        new: The texts after.
        stroke: What lines that the edit makes get.
        past: For an edit that brings back what was there: the lines as they were then.
    """
    before, after = _shared_ends([line.text for line in old], new)
    middle = old[before : len(old) - after]
    texts = new[before : len(new) - after]
    if past is not None:
        carried = _recalled(middle, texts, stroke, past)
    else:
        carried = _changed(middle, texts, stroke)
    return [*old[:before], *carried, *old[len(old) - after :]]


def _changed(old: Sequence[Line], new: Sequence[str], stroke: Stroke) -> list[Line]:
    if not old:
        return [Line(text, (stroke.number,), stroke.label) for text in new]
    matcher = SequenceMatcher(None, [line.text for line in old], new, autojunk=False)
    steps = matcher.get_opcodes()
    removed = [
        line
        for tag, first, last, _, _ in steps
        if tag in ("delete", "replace")
        for line in old[first:last]
        if line.text.strip()
    ]
    exact: defaultdict[str, list[Line]] = defaultdict(list)
    for line in removed:
        exact[line.text].append(line)
    made = sum(last - first for tag, _, _, first, last in steps if tag != "equal")
    compared = removed if made * len(removed) <= _COMPARED else []
    found: list[Line] = []
    for tag, first, last, begin, end in steps:
        if tag == "equal":
            found += old[first:last]
            continue
        for text in new[begin:end]:
            # A line that was moved is the same line, wherever it went.
            moved = exact[text]
            if len(moved) == 1:
                found.append(moved[0])
                continue
            alike = moved or [line for line in compared if _alike(line.text, text)]
            replaced = old[first:last] if not stroke.own_hands or not compared else ()
            label = Label.join([stroke.label, *(line.label for line in (*alike, *replaced))])
            found.append(Line(text, _edits(alike, stroke.number), label))
    return found


def _recalled(
    old: Sequence[Line], new: Sequence[str], stroke: Stroke, past: Sequence[Line]
) -> list[Line]:
    known: defaultdict[str, list[Line]] = defaultdict(list)
    for line in (*past, *old):
        if line not in known[line.text]:
            known[line.text].append(line)
    # What is neither as it was nor as it is was put together from both, no one knows how.
    rest = Label.join([stroke.label, *(line.label for line in (*old, *past))])
    in_turn: defaultdict[str, list[Line]] = defaultdict(list)
    for line in past:
        in_turn[line.text].append(line)
    found: list[Line] = []
    for text in new:
        if in_turn[text]:
            found.append(in_turn[text].pop(0))
        elif known[text]:
            found.append(known[text][0])
        else:
            similar = [line for line in old if _alike(line.text, text)][:8]
            found.append(Line(text, _edits(similar, stroke.number), rest))
    return found


# -- what changed of it, small enough to keep with every edit --------------------------------------


def splice(old: Sequence[Line], new: Sequence[Line]) -> list[Any]:
    """Return `[at, how many go, runs that come]`, which makes the blame of old that of new."""
    was: list[Blame] = [(line.edits, line.label) for line in old]
    now: list[Blame] = [(line.edits, line.label) for line in new]
    before, after = _shared_ends(was, now)
    return [
        before,
        len(was) - before - after,
        blame_runs(now[before : len(now) - after]),
    ]


def spliced(blame: list[Blame], change: Sequence[Any]) -> list[Blame]:
    """Return the blame after an edit from that before it."""
    at, gone, runs = change
    return [*blame[:at], *read_blame(runs), *blame[at + gone :]]


def seen_with(lines: Sequence[Line], audience: Audience) -> tuple[Line, ...]:
    """Return lines whose labels say all: those who may hear the line *and* the block."""
    return tuple(
        line
        if audience.public
        else replace(line, label=Label(line.label.trust, line.label.audience & audience))
        for line in lines
    )
