"""What changed between two sequences or texts, found in bounded time, and carried over."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Generic, TypeVar

_MOST_STEPS = 200
"""How many differences are looked for between two anchors; with more, all between is replaced."""
_MOST_WORDS = 4_000
_ALIKE = 0.4
"""The share that has to stay for a passage to count as changed rather than written anew."""
_LINES = re.compile(r"\n[^\n]*|[^\n]+")
_WORDS = re.compile(r"\w+|[^\S\n]+|\n|[^\w\s]")

Item = TypeVar("Item", bound=Hashable)
Run = TypeVar("Run", str, list[Any])


@dataclass(frozen=True, slots=True)
class Splice(Generic[Run]):
    """At a place of the old sequence, take `delete` items out and put `insert` in."""

    at: int
    delete: int
    insert: Run

    @property
    def end(self) -> int:
        """The place behind what is taken out."""
        return self.at + self.delete


# -- sequences -------------------------------------------------------------------------------------


def sequence_splices(old: Sequence[Item], new: Sequence[Item]) -> list[Splice[list[Any]]]:
    """Return what makes the new sequence of the old one: splices in order, none touching."""
    splices: list[Splice[list[Any]]] = []
    behind_old = behind_new = 0
    for i, j in [*_matches(old, new), (len(old), len(new))]:
        if i > behind_old or j > behind_new:
            splices.append(Splice(behind_old, i - behind_old, list(new[behind_new:j])))
        behind_old, behind_new = i + 1, j + 1
    return splices


def _matches(old: Sequence[Item], new: Sequence[Item]) -> list[tuple[int, int]]:
    """Pair items that stay: equal ends, then items that are there once, then by few steps."""
    most = min(len(old), len(new))
    head = next((k for k in range(most) if old[k] != new[k]), most)
    tail = next((k for k in range(most - head) if old[-1 - k] != new[-1 - k]), most - head)
    ends = (len(old) - tail, len(new) - tail)
    anchors = _anchors(old[head : ends[0]], new[head : ends[1]])
    stops = [(-1, -1), *anchors, (ends[0] - head, ends[1] - head)]
    pairs = [(k, k) for k in range(head)]
    for (i, j), (next_i, next_j) in pairwise(stops):
        inner = _by_steps(
            old[head + i + 1 : head + next_i], new[head + j + 1 : head + next_j], _MOST_STEPS
        )
        pairs += [(head + i + 1 + a, head + j + 1 + b) for a, b in inner]
        if (next_i, next_j) != stops[-1]:
            pairs.append((head + next_i, head + next_j))
    pairs += [(ends[0] + k, ends[1] + k) for k in range(tail)]
    return pairs


def _anchors(old: Sequence[Item], new: Sequence[Item]) -> list[tuple[int, int]]:
    """Pair items that are in each once and keep their order (patience)."""
    once_old = {item: i for i, item in enumerate(old)}
    once_new = {item: j for j, item in enumerate(new)}
    counts_old, counts_new = Counter(old), Counter(new)
    pairs = [
        (i, once_new[item])
        for item, i in once_old.items()
        if counts_old[item] == 1 and counts_new[item] == 1
    ]
    pairs.sort()
    return [pairs[k] for k in longest_rise([j for _, j in pairs])]


def longest_rise(numbers: Sequence[int]) -> list[int]:
    """Return the positions of a longest strictly rising subsequence."""
    ends: list[int] = []
    positions: list[int] = []
    before: list[int] = []
    for position, number in enumerate(numbers):
        length = bisect_left(ends, number)
        before.append(positions[length - 1] if length else -1)
        if length == len(ends):
            ends.append(number)
            positions.append(position)
        else:
            ends[length], positions[length] = number, position
    rise: list[int] = []
    position = positions[-1] if positions else -1
    while position >= 0:
        rise.append(position)
        position = before[position]
    return rise[::-1]


def _by_steps(old: Sequence[Item], new: Sequence[Item], most: int) -> list[tuple[int, int]]:
    """Pair items by the fewest differences (Myers), or none when there are more than `most`."""
    n, m = len(old), len(new)
    if not n or not m or abs(n - m) > most:
        return []
    reach = {1: 0}
    trace: list[dict[int, int]] = []
    for steps in range(min(n + m, most) + 1):
        trace.append(reach.copy())
        for k in range(-steps, steps + 1, 2):
            down = k == -steps or (k != steps and reach[k - 1] < reach[k + 1])
            x = reach[k + 1] if down else reach[k - 1] + 1
            while x < n and x - k < m and old[x] == new[x - k]:
                x += 1
            reach[k] = x
            if x >= n and x - k >= m:
                return _walk_back(trace, n, m)
    return []


def _walk_back(trace: list[dict[int, int]], x: int, y: int) -> list[tuple[int, int]]:
    pairs: list[tuple[int, int]] = []
    for steps in range(len(trace) - 1, -1, -1):
        reach = trace[steps]
        k = x - y
        down = k == -steps or (k != steps and reach[k - 1] < reach[k + 1])
        before = k + 1 if down else k - 1
        from_x = reach[before] if steps else 0
        from_y = from_x - before if steps else 0
        while x > from_x and y > from_y:
            x, y = x - 1, y - 1
            pairs.append((x, y))
        x, y = from_x, from_y
    return pairs[::-1]


# -- texts -----------------------------------------------------------------------------------------


def text_splices(old: str, new: str) -> list[Splice[str]]:
    """Return what makes the new text of the old one, in whole words.

    Single letters that two unrelated passages share do not count as kept: an edit that is taken
    back later must not take letters out of what has been written since.
    """
    head = _common(old, new)
    tail = _common(old[head:][::-1], new[head:][::-1])
    if head + tail in (len(old), len(new)):
        whole = Splice(head, len(old) - head - tail, new[head : len(new) - tail])
        return [whole] if whole.delete or whole.insert else []
    old_lines, new_lines = _LINES.findall(old), _LINES.findall(new)
    starts = [0]
    for line in old_lines:
        starts.append(starts[-1] + len(line))
    splices: list[Splice[str]] = []
    for hunk in sequence_splices(old_lines, new_lines):
        at, end = starts[hunk.at], starts[hunk.end]
        splices += _word_splices(old[at:end], "".join(hunk.insert), at)
    return splices


def _common(one: str, other: str) -> int:
    """Return how many characters two texts have in common at the beginning."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _word_splices(old: str, new: str, at: int) -> list[Splice[str]]:
    whole = [Splice(at, len(old), new)]
    if not old or not new:
        return whole
    old_words, new_words = _WORDS.findall(old), _WORDS.findall(new)
    if max(len(old_words), len(new_words)) > _MOST_WORDS:
        return whole
    starts = [0]
    for word in old_words:
        starts.append(starts[-1] + len(word))
    splices = _without_crumbs(
        [
            Splice(starts[one.at], starts[one.end] - starts[one.at], "".join(one.insert))
            for one in sequence_splices(old_words, new_words)
        ],
        old,
    )
    kept = len(old) - sum(one.delete for one in splices)
    both = any(one.delete for one in splices) and any(one.insert for one in splices)
    if both and kept < _ALIKE * max(len(old), len(new)):
        return whole
    return [Splice(at + one.at, one.delete, one.insert) for one in splices]


def _without_crumbs(splices: list[Splice[str]], old: str) -> list[Splice[str]]:
    """Join splices whose gap is smaller than what changes on either side of it."""
    joined: list[Splice[str]] = []
    for one in splices:
        if joined:
            last = joined[-1]
            gap = one.at - last.end
            size = min(max(last.delete, len(last.insert)), max(one.delete, len(one.insert)))
            changes = (last.delete or one.delete) and (last.insert or one.insert)
            if changes and gap < size:
                insert = last.insert + old[last.end : one.at] + one.insert
                joined[-1] = Splice(last.at, one.end - last.at, insert)
                continue
        joined.append(one)
    return joined


def refined(splices: Sequence[Splice[str]], old: str) -> list[Splice[str]]:
    """Find the lines again that were taken out and put back at the same place."""
    result: list[Splice[str]] = []
    for one in splices:
        gone = old[one.at : one.end]
        if not gone or not one.insert:
            result.append(one)
            continue
        gone_lines = _LINES.findall(gone)
        starts = [one.at]
        for line in gone_lines:
            starts.append(starts[-1] + len(line))
        result += [
            Splice(starts[each.at], starts[each.end] - starts[each.at], "".join(each.insert))
            for each in sequence_splices(gone_lines, _LINES.findall(one.insert))
        ]
    return result


# -- carrying over ---------------------------------------------------------------------------------


def carried(
    theirs: Sequence[Splice[Run]], ours: Sequence[Splice[Run]], *, keep_all: bool
) -> list[Splice[Run]]:
    """Return splices of one sequence as they apply to what others have made of it.

    Args:
        theirs: What to carry over.
        ours: What has become of the same sequence meanwhile.
        keep_all: Whether to put in also what stands for something that is gone meanwhile.
    """
    result: list[Splice[Run]] = []
    for one in theirs:
        alive = _alive(one.at, one.end, ours)
        left = sum(end - start for start, end in alive)
        if one.delete and not left and not keep_all:
            continue
        at = alive[0][0] if alive else _moved(one.at, ours)
        first = alive[0] if alive else (at, at)
        result.append(Splice(first[0], first[1] - first[0], one.insert))
        result += [Splice(start, end - start, one.insert[:0]) for start, end in alive[1:]]
    return result


def _alive(start: int, end: int, ours: Sequence[Splice[Run]]) -> list[tuple[int, int]]:
    """Return the ranges, in what others have made, of what they left of a range."""
    ranges: list[tuple[int, int]] = []
    shift = at = 0
    for one in ours:
        ranges.append((max(start, at) + shift, min(end, one.at) + shift))
        shift += len(one.insert) - one.delete
        at = one.end
    ranges.append((max(start, at) + shift, end + shift))
    return [(low, high) for low, high in ranges if low < high]


def _moved(place: int, ours: Sequence[Splice[Run]]) -> int:
    """Return a place as others have moved it; before what they put in at the same place."""
    shift = 0
    for one in ours:
        if one.at >= place:
            break
        if place < one.end:
            return one.at + shift + len(one.insert)
        shift += len(one.insert) - one.delete
    return place + shift


def spliced(sequence: Run, splices: Sequence[Splice[Run]]) -> Run:
    """Return a sequence with splices made."""
    for one in reversed(splices):
        sequence = sequence[: one.at] + one.insert + sequence[one.end :]
    return sequence
