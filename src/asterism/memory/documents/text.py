"""Edits of plain text: append, replace, patch, whole lines; pure, from text to text."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from typing import Any

from asterism.errors import InvalidInput
from asterism.types.memory import Append, EditRange, Patch, Replace, Which

LONGEST_PATTERN = 500
SECONDS_FOR_PATTERN = 0.25
_COMPARED_LINES = 400
_QUOTED = 100
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


def appended(text: str, edit: Append) -> str:
    """Return the text with the content on a line of its own at the end."""
    content = clean_text(edit.content, "The text").rstrip("\n")
    if not content:
        raise InvalidInput("There is no text to append. Give some; nothing was changed.")
    return text + ("\n" if text and not text.endswith("\n") else "") + content


# -- replace ---------------------------------------------------------------------------------------


def replaced(text: str, edit: Replace) -> str:
    """Return the text with one text, or all, in the place of another."""
    old = clean_text(edit.old, "The text to replace")
    new = clean_text(edit.new, "The new text")
    if not old:
        raise InvalidInput(
            "The text to replace is empty. Say what to replace, or append; nothing was changed."
        )
    if edit.which is Which.REGEX:
        return _by_pattern(text, old, new)
    count = text.count(old)
    if not count:
        raise InvalidInput(f"{_quoted(old)} is not in the text. {_nearest(text, old)}{_NOTHING}")
    match edit.which:
        case Which.ALL:
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


def _by_pattern(text: str, pattern: str, new: str) -> str:
    # The standard library's `re` cannot be stopped; this one takes a time limit.
    import regex

    module: Any = regex
    if len(pattern) > LONGEST_PATTERN:
        raise InvalidInput(
            f"The pattern has {len(pattern)} characters; the most is {LONGEST_PATTERN}. {_NOTHING}"
        )
    try:
        compiled: Any = module.compile(pattern, module.MULTILINE)
        made, count = compiled.subn(new, text, count=1, timeout=SECONDS_FOR_PATTERN)
    except TimeoutError:
        raise InvalidInput(
            f"The pattern {_quoted(pattern)} takes too long on this text; one repeat inside "
            f"another, such as (a+)+, often does. Write a simpler one. {_NOTHING}"
        ) from None
    except (module.error, IndexError, RecursionError, MemoryError, OverflowError) as error:
        raise InvalidInput(
            f"The pattern {_quoted(pattern)} with {_quoted(new)} is not valid: {error}. {_NOTHING}"
        ) from None
    if not count:
        raise InvalidInput(f"The pattern {_quoted(pattern)} matches nothing. {_NOTHING}")
    return clean_text(made, "What the pattern makes")


def _quoted(text: str) -> str:
    return repr(text if len(text) <= _QUOTED else text[: _QUOTED - 1] + "…")


def _nearest(text: str, wanted: str) -> str:
    """Say which line is most like what was looked for."""
    wanted = next((line for line in wanted.split("\n") if line.strip()), wanted)[:200]
    best, found = 0.5, ""
    matcher = SequenceMatcher(None, autojunk=False)
    matcher.set_seq2(wanted)
    for line in lines_of(text)[:_COMPARED_LINES]:
        matcher.set_seq1(line[:200])
        if matcher.real_quick_ratio() > best and matcher.quick_ratio() > best:
            ratio = matcher.ratio()
            if ratio > best:
                best, found = ratio, line
    return f"The nearest line is {_quoted(found)}. " if found else ""


# -- lines -----------------------------------------------------------------------------------------


def with_lines(text: str, edit: EditRange) -> str:
    """Return the text with other text in the place of whole lines."""
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


def patched(text: str, edit: Patch) -> str:
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
    if not hunks or all(one.old == one.new for one in hunks):
        raise InvalidInput(
            "The diff changes nothing: it needs a hunk such as '@@ -3,2 +3,2 @@' with lines that "
            f"begin with '-' and '+'. {_NOTHING}"
        )
    return hunks


def _place(lines: list[str], hunk: _Hunk, number: int, behind: int, shift: int) -> int:
    """Return where a hunk fits: where it says, or else at the only other place."""
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
    missing = next((one for one in hunk.old if one not in lines), hunk.old[0])
    return f"{_quoted(missing)} is not there. {_nearest(chr(10).join(lines), missing)}{_NOTHING}"
