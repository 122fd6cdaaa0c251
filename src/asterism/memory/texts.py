"""Plain texts and their lines: edits, what changed between two texts, and which edits made a line.

Everything here is done in bounded time.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import field
from itertools import pairwise
from typing import Any, Generic, TypeVar

from asterism.errors import InvalidInput
from asterism.patterns import InvalidPattern, TooMuchWork, compile_pattern
from asterism.records import dataclass
from asterism.types.agents import Label
from asterism.types.memory import Append, EditRange, Line, Patch, Replace, Which

MAX_PATTERN = 500
_COMPARED_LINES = 400
_QUOTED = 100
_NEAR = 0.45
_NOTHING = "Nothing was changed."


def clean_text(text: str, what: str) -> str:
    r"""Return text with `\n` as its only line end, or refuse what no text may hold."""
    for character, name in (("\0", "a null character"), (None, "half a character (a surrogate)")):
        at = text.find(character) if character is not None else _surrogate(text)
        if at >= 0:
            raise InvalidInput(
                f"{what} holds {name} at position {at + 1}. Take it out and try again.",
                outcome=_NOTHING,
            )
    return text.replace("\r\n", "\n")


def _surrogate(text: str) -> int:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        return error.start
    return -1


def lines_of(text: str) -> list[str]:
    """Return the lines of a text; an empty text has none."""
    return text.split("\n") if text else []


def append_line(text: str, edit: Append) -> str:
    """Return the text with the content on a line of its own at the end."""
    content = clean_text(edit.content, "The text").rstrip("\n")
    if not content:
        raise InvalidInput("There is no text to append. Give some; nothing was changed.")
    return text + ("\n" if text and not text.endswith("\n") else "") + content


# -- replace ---------------------------------------------------------------------------------------


def replace_part(text: str, edit: Replace, most: int) -> str:
    """Return the text with one occurrence of a part replaced, or all of them.

    What would make more than `most` characters is refused before it is made.
    """
    old = clean_text(edit.old, "The text to replace")
    new = clean_text(edit.new, "The new text")
    if not old:
        raise InvalidInput(
            "The text to replace is empty. Say what to replace, or append; nothing was changed."
        )
    if edit.which is Which.REGEX:
        return _by_pattern(text, old, new, most)
    count = text.count(old)
    if not count:
        raise InvalidInput(f"{_quoted(old)} is not in the text. {_nearest(text, old)}{_NOTHING}")
    match edit.which:
        case Which.ALL:
            size = len(text) + count * (len(new) - len(old))
            if size > most:
                raise InvalidInput(
                    f"That would make a text of {size:,} characters; the most is {most:,}. "
                    f"{_NOTHING}"
                )
            return text.replace(old, new)
        case Which.NTH:
            return _nth(text, old, new, edit.n, count)
        case _:
            return text.replace(old, new, 1)


def _nth(text: str, old: str, new: str, n: int, count: int) -> str:
    if not 1 <= n <= count:
        there = "once" if count == 1 else f"{count} times"
        raise InvalidInput(
            f"{_quoted(old)} is {there} in the text, so that there is no number {n}. {_NOTHING}"
        )
    at = -len(old)
    for _ in range(n):
        at = text.index(old, at + len(old))
    return text[:at] + new + text[at + len(old) :]


def _by_pattern(text: str, pattern: str, new: str, most: int) -> str:
    if len(pattern) > MAX_PATTERN:
        raise InvalidInput(
            f"The pattern has {len(pattern)} characters; the most is {MAX_PATTERN}. {_NOTHING}"
        )
    try:
        made = compile_pattern(pattern, "m", groups=True).replace_first(text, new, most)
    except InvalidPattern as error:
        raise InvalidInput(
            f"The pattern {_quoted(pattern)} with {_quoted(new)} is not valid: {error}. {_NOTHING}"
        ) from None
    except TooMuchWork:
        raise InvalidInput(
            f"The pattern {_quoted(pattern)} takes too long on a text of {len(text):,} characters. "
            "Write a shorter one, with lower counts and without classes of many letters such as "
            f"\\p{{L}}, or replace a text. {_NOTHING}"
        ) from None
    if made is None:
        raise InvalidInput(f"The pattern {_quoted(pattern)} matches nothing. {_NOTHING}")
    return clean_text(made, "What the pattern makes")


def _quoted(text: str) -> str:
    return repr(text if len(text) <= _QUOTED else text[: _QUOTED - 1] + "…")


def _nearest(text: str, wanted: str) -> str:
    """Name the line that is most similar to the missing text."""
    first = next((line for line in wanted.split("\n") if line.strip()), wanted)
    pairs = letter_pairs(first[:200])
    lines = lines_of(text)[:_COMPARED_LINES]
    likeness, at = max(
        ((likeness_of(letter_pairs(line[:200]), pairs), -at) for at, line in enumerate(lines)),
        default=(0.0, 0),
    )
    return f"The nearest line is {_quoted(lines[-at])}. " if likeness > _NEAR else ""


def letter_pairs(text: str) -> Counter[str]:
    """Return how often two letters follow each other in a text."""
    return Counter(text[at : at + 2] for at in range(max(len(text) - 1, 1)))


def likeness_of(one: Counter[str], other: Counter[str]) -> float:
    """Return the share of letter pairs that two texts have in common, from 0 to 1."""
    return 2 * (one & other).total() / (one.total() + other.total())


# -- lines -----------------------------------------------------------------------------------------


def with_lines(text: str, edit: EditRange) -> str:
    """Return the text with whole lines replaced."""
    lines = lines_of(text)
    count = len(lines)
    content = clean_text(edit.content, "The text")
    added = content.removesuffix("\n").split("\n") if content else []
    if edit.first == count + 1 and edit.last in (count, count + 1):
        if not added:
            raise InvalidInput(f"There is no text to put behind the last line. {_NOTHING}")
        return "\n".join(lines + added)
    if not 1 <= edit.first <= edit.last <= count:
        there = f"has {count} line{'' if count == 1 else 's'}" if count else "is empty"
        raise InvalidInput(
            f"The text {there}, so lines {edit.first} to {edit.last} cannot be edited. Give lines "
            f"within it, or {count + 1} to {count + 1} to add behind it. {_NOTHING}"
        )
    return "\n".join(lines[: edit.first - 1] + added + lines[edit.last :])


# -- patch -----------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Hunk:
    first: int | None
    """The line it says that it begins at; None: it does not say."""
    old: list[str] = field(default_factory=list[str])
    new: list[str] = field(default_factory=list[str])


_HUNK = re.compile(r"@@(?: -(\d{1,9})(?:,(\d{1,9}))? \+\d{1,9}(?:,\d{1,9})?)?(?: [^@]*)? ?@@.*")
_HEADER = re.compile(r"(---|\+\+\+|diff |index |new file|deleted file|similarity |rename )")


def apply_patch(text: str, edit: Patch) -> str:
    """Return the text with a unified diff applied, if all of its context is there."""
    hunks = _read_hunks(clean_text(edit.diff, "The diff"))
    ends = text.endswith("\n")
    lines = text.removesuffix("\n").split("\n") if text else []
    behind = shift = 0
    for number, hunk in enumerate(hunks, 1):
        at = _place(lines, hunk, number, behind, shift)
        lines[at : at + len(hunk.old)] = hunk.new
        behind = at + len(hunk.new)
        if hunk.first is not None:
            shift = behind - (hunk.first - (1 if hunk.old else 0) + len(hunk.old))
    return "\n".join(lines) + ("\n" if ends and lines else "")


def _read_hunks(diff: str) -> list[_Hunk]:
    hunks: list[_Hunk] = []
    for number, line in enumerate(diff.removesuffix("\n").split("\n"), 1):
        if match := _HUNK.fullmatch(line):
            hunks.append(_Hunk(int(match[1]) if match[1] else None))
        elif not hunks:
            if line.strip() and not _HEADER.match(line):
                raise InvalidInput(
                    f"Line {number} of the diff is {_quoted(line)}, where a hunk such as "
                    f"'@@ -3,2 +3,2 @@' is needed. {_NOTHING}"
                )
        elif line.startswith("-"):
            hunks[-1].old.append(line[1:])
        elif line.startswith("+"):
            hunks[-1].new.append(line[1:])
        elif not line.startswith("\\"):
            # An editor may have cut the space off an empty line of context.
            if line and not line.startswith(" "):
                raise InvalidInput(
                    f"Line {number} of the diff is {_quoted(line)}; it has to begin with a space, "
                    f"'+', '-' or '@@'. {_NOTHING}"
                )
            hunks[-1].old.append(line[1:])
            hunks[-1].new.append(line[1:])
    if not hunks or all(hunk.old == hunk.new for hunk in hunks):
        raise InvalidInput(
            "The diff changes nothing: it needs a hunk such as '@@ -3,2 +3,2 @@' with lines that "
            f"begin with '-' and '+'. {_NOTHING}"
        )
    return hunks


def _place(lines: list[str], hunk: _Hunk, number: int, behind: int, shift: int) -> int:
    """Return where a hunk fits: at its line number, or at the only other place."""
    size = len(hunk.old)
    expected = None if hunk.first is None else hunk.first - (1 if size else 0) + shift
    if not size:
        if expected is not None and behind <= expected <= len(lines):
            return expected
        if not lines:
            return 0
        raise InvalidInput(
            f"Hunk {number} of the diff adds lines without context at a place that the text of "
            f"{len(lines)} lines does not have. Put a line of context in. {_NOTHING}"
        )
    if (
        expected is not None
        and expected >= behind
        and lines[expected : expected + size] == hunk.old
    ):
        return expected
    first = hunk.old[0]
    fits = [
        at
        for at in range(behind, len(lines) - size + 1)
        if lines[at] == first and lines[at : at + size] == hunk.old
    ]
    if len(fits) == 1:
        return fits[0]
    if fits:
        places = ", ".join(str(at + 1) for at in fits[:6])
        raise InvalidInput(
            f"Hunk {number} of the diff fits at several lines ({places}). Give its line in "
            f"'@@ -LINE,… @@' or more context. {_NOTHING}"
        )
    raise InvalidInput(f"Hunk {number} of the diff does not fit: {_misfit(lines, hunk, expected)}")


def _misfit(lines: list[str], hunk: _Hunk, expected: int | None) -> str:
    """Say which line of a hunk is not what the text has there."""
    if expected is not None and 0 <= expected < len(lines):
        for wanted, at in zip(hunk.old, range(expected, len(lines)), strict=False):
            if lines[at] != wanted:
                return (
                    f"it has {_quoted(wanted)} where line {at + 1} of the text is "
                    f"{_quoted(lines[at])}. {_NOTHING}"
                )
    missing = next((line for line in hunk.old if line not in lines), hunk.old[0])
    return f"{_quoted(missing)} is not there. {_nearest(chr(10).join(lines), missing)}{_NOTHING}"


_MAX_STEPS = 200
"""How many differences are looked for between two anchors; with more, all between is replaced."""
_MAX_WORDS = 4_000
_MIN_LIKENESS = 0.4
"""The share of a passage that must stay. Below it, the passage counts as replaced."""
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
        """The place after the removed part."""
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
        inner = _pair_items(
            old[head + i + 1 : head + next_i], new[head + j + 1 : head + next_j], _MAX_STEPS
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
    return [pairs[k] for k in longest_increasing([j for _, j in pairs])]


def longest_increasing(numbers: Sequence[int]) -> list[int]:
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


def _pair_items(old: Sequence[Item], new: Sequence[Item], most: int) -> list[tuple[int, int]]:
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


def unified_diff(
    old: Sequence[str], new: Sequence[str], names: tuple[str, str] | None = None, around: int = 3
) -> list[str]:
    """Return what changed between two texts, given by their lines, as a unified diff.

    Args:
        old: The lines before.
        new: The lines after.
        names: Of the two, for lines above the first hunk.
        around: How many lines that stay are shown before and after each change.
    """
    lines: list[str] = []
    splices = sequence_splices(old, new)
    if splices and names is not None:
        lines += [f"--- {names[0]}", f"+++ {names[1]}"]
    shift = 0
    while splices:
        count = 1
        while count < len(splices) and splices[count].at - splices[count - 1].end <= 2 * around:
            count += 1
        hunk, splices = splices[:count], splices[count:]
        first = max(hunk[0].at - around, 0)
        last = min(hunk[-1].end + around, len(old))
        body: list[str] = []
        place = first
        for splice in hunk:
            body += [f" {line}" for line in old[place : splice.at]]
            body += [f"-{line}" for line in old[splice.at : splice.end]]
            body += [f"+{line}" for line in splice.insert]
            place = splice.end
        body += [f" {line}" for line in old[place:last]]
        grown = sum(len(splice.insert) - splice.delete for splice in hunk)
        was = _range(first, last - first)
        lines += [f"@@ -{was} +{_range(first + shift, last - first + grown)} @@", *body]
        shift += grown
    return lines


def _range(first: int, count: int) -> str:
    """Return a range of lines, counted from 1, as a unified diff writes it."""
    if count == 1:
        return str(first + 1)
    return f"{first + 1 if count else first},{count}"


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


def _common(old: str, new: str) -> int:
    """Return how many characters two texts have in common at the beginning."""
    low, high = 0, min(len(old), len(new))
    while low < high:
        middle = (low + high + 1) // 2
        if old[low:middle] == new[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _word_splices(old: str, new: str, at: int) -> list[Splice[str]]:
    whole = [Splice(at, len(old), new)]
    if not old or not new:
        return whole
    old_words, new_words = _WORDS.findall(old), _WORDS.findall(new)
    if max(len(old_words), len(new_words)) > _MAX_WORDS:
        return whole
    starts = [0]
    for word in old_words:
        starts.append(starts[-1] + len(word))
    splices = _join_close_splices(
        [
            Splice(
                starts[splice.at], starts[splice.end] - starts[splice.at], "".join(splice.insert)
            )
            for splice in sequence_splices(old_words, new_words)
        ],
        old,
    )
    unchanged = len(old) - sum(splice.delete for splice in splices)
    both = any(splice.delete for splice in splices) and any(splice.insert for splice in splices)
    if both and unchanged < _MIN_LIKENESS * max(len(old), len(new)):
        return whole
    return [Splice(at + splice.at, splice.delete, splice.insert) for splice in splices]


def _join_close_splices(splices: list[Splice[str]], old: str) -> list[Splice[str]]:
    """Join splices if the gap between them is smaller than the changes beside it."""
    joined: list[Splice[str]] = []
    for splice in splices:
        if joined:
            last = joined[-1]
            gap = splice.at - last.end
            size = min(max(last.delete, len(last.insert)), max(splice.delete, len(splice.insert)))
            changes = (last.delete or splice.delete) and (last.insert or splice.insert)
            if changes and gap < size:
                insert = last.insert + old[last.end : splice.at] + splice.insert
                joined[-1] = Splice(last.at, splice.end - last.at, insert)
                continue
        joined.append(splice)
    return joined


def refine_splices(splices: Sequence[Splice[str]], old: str) -> list[Splice[str]]:
    """Find the lines again that were taken out and put back at the same place."""
    result: list[Splice[str]] = []
    for splice in splices:
        gone = old[splice.at : splice.end]
        if not gone or not splice.insert:
            result.append(splice)
            continue
        gone_lines = _LINES.findall(gone)
        starts = [splice.at]
        for line in gone_lines:
            starts.append(starts[-1] + len(line))
        result += [
            Splice(starts[each.at], starts[each.end] - starts[each.at], "".join(each.insert))
            for each in sequence_splices(gone_lines, _LINES.findall(splice.insert))
        ]
    return result


# -- carrying over ---------------------------------------------------------------------------------


def rebase_splices(
    theirs: Sequence[Splice[Run]], ours: Sequence[Splice[Run]], *, keep_all: bool
) -> list[Splice[Run]]:
    """Return splices of a sequence, moved so that they fit the sequence after other splices.

    Args:
        theirs: The splices to move.
        ours: The other splices of the same sequence.
        keep_all: Whether to keep insertions that replace text that is gone by now.
    """
    result: list[Splice[Run]] = []
    for their in theirs:
        alive = _remaining_ranges(their.at, their.end, ours)
        left = sum(end - start for start, end in alive)
        if their.delete and not left and not keep_all:
            continue
        at = alive[0][0] if alive else _moved(their.at, ours)
        first = alive[0] if alive else (at, at)
        result.append(Splice(first[0], first[1] - first[0], their.insert))
        result += [Splice(start, end - start, their.insert[:0]) for start, end in alive[1:]]
    return result


def _remaining_ranges(start: int, end: int, ours: Sequence[Splice[Run]]) -> list[tuple[int, int]]:
    """Return the ranges that are left of a range after other splices."""
    ranges: list[tuple[int, int]] = []
    shift = at = 0
    for our in ours:
        ranges.append((max(start, at) + shift, min(end, our.at) + shift))
        shift += len(our.insert) - our.delete
        at = our.end
    ranges.append((max(start, at) + shift, end + shift))
    return [(low, high) for low, high in ranges if low < high]


def _moved(place: int, ours: Sequence[Splice[Run]]) -> int:
    """Return a place after other splices; before their insertions at the same place."""
    shift = 0
    for our in ours:
        if our.at >= place:
            break
        if place < our.end:
            return our.at + shift + len(our.insert)
        shift += len(our.insert) - our.delete
    return place + shift


def splice_text(sequence: Run, splices: Sequence[Splice[Run]]) -> Run:
    """Return a sequence with splices made."""
    for splice in reversed(splices):
        sequence = sequence[: splice.at] + splice.insert + sequence[splice.end :]
    return sequence


# -- lines through an edit -------------------------------------------------------------------------

_ALIKE = 0.55
"""The likeness from which a line is taken for another one that was edited; of lines that have
nothing to do with each other, one pair in a hundred comes to 0.45."""
_COMPARED = 2_000
"""Only so many characters of two lines, and so many pairs of lines, are compared."""
_FIRST_EDITS, _LAST_EDITS = 16, 48
"""A line names its first and its latest edits only, so that the list stays short."""


@dataclass(frozen=True, slots=True)
class EditStamp:
    """The number and the label that an edit gives to its lines."""

    number: int
    label: Label
    own_hands: bool = False
    """The owner wrote it: a line that is not similar to an old line is new."""


def _edits(lines: Sequence[Line], number: int) -> tuple[int, ...]:
    numbers = sorted({edit for line in lines for edit in line.edits} | {number})
    if len(numbers) > _FIRST_EDITS + _LAST_EDITS:
        numbers = numbers[:_FIRST_EDITS] + numbers[-_LAST_EDITS:]
    return tuple(numbers)


class _Similar:
    """Old lines that new ones may have been made of; none where there are too many to compare."""

    def __init__(self, lines: Sequence[Line], made: int) -> None:
        self._lines = [
            (line, letter_pairs(line.text[:_COMPARED]))
            for line in (lines if made * len(lines) <= _COMPARED else ())
        ]

    def __bool__(self) -> bool:
        return bool(self._lines)

    def to(self, text: str) -> list[Line]:
        """Return the old lines that a new one is similar to."""
        pairs = letter_pairs(text[:_COMPARED])
        return [line for line, others in self._lines if likeness_of(others, pairs) > _ALIKE]


def shared_ends(old: Sequence[Any], new: Sequence[Any]) -> tuple[int, int]:
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
    old: Sequence[Line], new: Sequence[str], stamp: EditStamp, past: Sequence[Line] | None = None
) -> list[Line]:
    """Return the lines after an edit, each with its edits and its label.

    Args:
        old: The lines before.
        new: The texts after.
        stamp: The number and label for the lines of this edit.
        past: For an edit that restores former lines: these lines.
    """
    before, after = shared_ends([line.text for line in old], new)
    middle = old[before : len(old) - after]
    texts = new[before : len(new) - after]
    if past is not None:
        carried = _restored_lines(middle, texts, stamp, past)
    else:
        carried = _changed_lines(middle, texts, stamp)
    return [*old[:before], *carried, *old[len(old) - after :]]


def _changed_lines(old: Sequence[Line], new: Sequence[str], stamp: EditStamp) -> list[Line]:
    if not old:
        return [Line(text, (stamp.number,), stamp.label) for text in new]
    splices = sequence_splices([line.text for line in old], new)
    removed = [
        line for splice in splices for line in old[splice.at : splice.end] if line.text.strip()
    ]
    exact: defaultdict[str, list[Line]] = defaultdict(list)
    for line in removed:
        exact[line.text].append(line)
    similar = _Similar(removed, sum(len(splice.insert) for splice in splices))
    result: list[Line] = []
    behind = 0
    for splice in splices:
        result += old[behind : splice.at]
        behind = splice.end
        replaced = old[splice.at : splice.end] if not stamp.own_hands or not similar else ()
        label = Label.join([stamp.label, *(line.label for line in replaced)])
        made: dict[str, Line] = {}
        for text in splice.insert:
            if text not in made:
                # A line that was moved is the same line, wherever it went.
                moved = exact[text]
                alike = moved or similar.to(text)
                made[text] = moved[0] if len(moved) == 1 else _made_line(text, alike, label, stamp)
            result.append(made[text])
    return [*result, *old[behind:]]


def _made_line(text: str, alike: Sequence[Line], label: Label, stamp: EditStamp) -> Line:
    joined = Label.join([label, *(line.label for line in alike)])
    return Line(text, _edits(alike, stamp.number), joined)


def _restored_lines(
    old: Sequence[Line], new: Sequence[str], stamp: EditStamp, past: Sequence[Line]
) -> list[Line]:
    known: defaultdict[str, list[Line]] = defaultdict(list)
    for line in (*past, *old):
        if line not in known[line.text]:
            known[line.text].append(line)
    # What is neither as it was nor as it is was put together from both, no one knows how.
    rest = Label.join([stamp.label, *(line.label for line in (*old, *past))])
    in_turn: defaultdict[str, list[Line]] = defaultdict(list)
    for line in past:
        in_turn[line.text].append(line)
    similar = _Similar(old, len(new))
    result: list[Line] = []
    for text in new:
        if in_turn[text]:
            result.append(in_turn[text].pop(0))
        elif known[text]:
            result.append(known[text][0])
        else:
            result.append(Line(text, _edits(similar.to(text)[:8], stamp.number), rest))
    return result
