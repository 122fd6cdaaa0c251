"""A call as people read it before they answer: its effects first, nothing hidden, cuts said."""

from __future__ import annotations

import contextlib
import json
import re
import unicodedata
from collections.abc import Iterable

from asterism.types.approvals import Approval, read_effects
from asterism.types.effects import Effect, EffectKind

MAX_ANNOUNCED = 3_000
"""How many characters of a call's arguments a message in a channel shows."""
_MAX_SPELLED = 300
_MIN_LINE = 80
"""So much of each argument is shown at least, however many there are."""
# Letters and marks that show nothing; what else does is no printable character to Python.
_BLANK = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
_PLAIN_TARGET = re.compile(r"[\w.@+/:#=&?%~-]+")
_MIXED_WITH_LATIN = ("CYRILLIC", "GREEK", "ARMENIAN", "CHEROKEE", "FULLWIDTH", "MATHEMATICAL")
_ESCAPES = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}

_EFFECTS = {
    EffectKind.READ: ("look at", "look at something"),
    EffectKind.REMEMBER: ("change its memory:", "change its memory"),
    EffectKind.FETCH: ("ask", "ask a host outside"),
    EffectKind.SEND: ("send something to", "send something"),
    EffectKind.WRITE: ("write", "write something"),
    EffectKind.RUN: ("run", "run a program"),
    EffectKind.DELETE: ("delete", "delete something"),
    EffectKind.PAY: ("pay", "pay"),
    EffectKind.GRANT: ("give access to", "give access"),
}
"""What each kind of effect is called, with and without something that it is done to."""
_UNREADABLE = "an amount that cannot be read"
_UNREADABLE_ARGUMENTS = "(some of its arguments cannot be read)"
_UNDECLARED = "do something that its tool does not declare"


def visible(text: str) -> str:
    r"""Return a text on one line in which nothing is invisible or moves other characters.

    Line breaks, controls, marks that turn the direction of text, zero-width characters and unusual
    spaces are spelled out, such as `\n` and `\u202e`.
    """
    if not text.isprintable():
        text = "".join(char if char.isprintable() else _spelled(char) for char in text)
    return _BLANK.sub(lambda found: _spelled(found[0]), text) if not text.isascii() else text


def _spelled(char: str) -> str:
    # As JSON has it, so that arguments in which something is spelled out can still be edited.
    return _ESCAPES.get(char) or json.dumps(char)[1:-1]


def effects_in_words(effects: Iterable[Effect]) -> str:
    """Return what a call would do, as people say it: to whom, what, how much; never cut."""
    said: list[str] = []
    for effect in effects:
        if effect.kind is EffectKind.UNDECLARED:
            said.append(_UNDECLARED)
            continue
        with_targets, alone = _EFFECTS[effect.kind]
        words = with_targets if effect.targets else alone
        if effect.counted is not None:
            words += f" {_amount(effect)}"
            words += " to" if effect.kind is EffectKind.PAY and effect.targets else ""
        more = f" {_UNREADABLE_ARGUMENTS}" if effect.unreadable else ""
        said.append(f"{words} {', '.join(map(target_in_words, effect.targets))}".rstrip() + more)
    return "; ".join(said)


def target_in_words(target: str) -> str:
    """Return a name or address so that where it ends, and what is odd about it, can be seen."""
    shown = visible(target)
    if shown != target or not _PLAIN_TARGET.fullmatch(target):
        shown = visible(json.dumps(target, ensure_ascii=False))
    return f"{shown} ({mixed})" if (mixed := _mixed_letters(target)) else shown


def amount_in_words(amount: float) -> str:
    """Return an amount with all of its digits."""
    return str(int(amount)) if amount.is_integer() and abs(amount) < 1e15 else repr(amount)


def _amount(effect: Effect) -> str:
    if effect.amount is None or effect.amount_unreadable:
        return _UNREADABLE
    return amount_in_words(effect.amount)


def _mixed_letters(text: str) -> str:
    """Return what is to be said of a text whose letters look like others; mostly nothing."""
    if text.isascii():
        return ""
    for word in re.findall(r"\w+", text):
        scripts = {unicodedata.name(char, "").partition(" ")[0] for char in word if char.isalpha()}
        odd = sorted(scripts.intersection(_MIXED_WITH_LATIN))
        if odd and ("LATIN" in scripts or len(odd) > 1):
            return f"careful: it mixes Latin with {' and '.join(odd).lower()} letters"
    return ""


# -- arguments -------------------------------------------------------------------------------------


def argument_lines(arguments: str) -> list[str]:
    """Return arguments as they are read by the tool, a line for each; no value has two lines."""
    try:
        read = json.loads(arguments or "{}")  # of a key that is there twice, the last value counts
    except ValueError:
        return [visible(arguments)]
    return [visible(line) for line in json.dumps(read, indent=2, ensure_ascii=False).split("\n")]


def spell_call(name: str, arguments: str) -> str:
    """Return a call on one line; of long arguments it says how much is left out."""
    with contextlib.suppress(ValueError):
        arguments = json.dumps(json.loads(arguments or "{}"), ensure_ascii=False)
    shown = visible(arguments)
    if len(shown) > _MAX_SPELLED:
        shown = f"{shown[:_MAX_SPELLED]} … and {len(shown) - _MAX_SPELLED:,} characters more"
    return f"{visible(name)}({shown})"


def call_lines(approval: Approval, most: int | None = None) -> list[str]:
    """Return the call of a question as whoever answers must see it.

    First what it would do to whom, which is never cut; then the tool and all of its arguments. If
    these have more than `most` characters, long ones are cut in their middles, and a line says by
    how much and where all can be seen. Of a tool that does not declare what it does, all is shown.
    """
    if not approval.tool:
        return []
    effects = read_effects(approval.effects)
    lines = argument_lines(approval.arguments)
    lost = 0
    if most is not None and not any(one.kind is EffectKind.UNDECLARED for one in effects):
        lines, lost = _cut(lines, most)
    head = [f"It would {effects}."] if (effects := effects_in_words(effects)) else []
    said = [f"{lost:,} characters are cut here. {whole_at(approval.id)}"] if lost else []
    return [*head, visible(approval.tool), *lines, *said]


def whole_at(approval_id: str) -> str:
    """Return where a question can be seen whole."""
    return f'"asterism approval show {approval_id}" shows all of it.'


def _cut(lines: list[str], most: int) -> tuple[list[str], int]:
    """Cut the longest lines in their middles, and lines in the middle if there are too many."""
    if sum(map(len, lines)) <= most:
        return lines, 0
    lost = 0
    room = max(2, most // _MIN_LINE)
    if len(lines) > room:
        first, last = (room + 1) // 2, room // 2
        gone = lines[first : len(lines) - last]
        size = sum(map(len, gone))
        middle = f"… {len(gone):,} lines with {size:,} characters cut …"
        lines, lost = [*lines[:first], middle, *lines[len(lines) - last :]], size
    width, longest = _MIN_LINE, max(map(len, lines))
    while width < longest:
        middle_width = (width + longest + 1) // 2
        if sum(min(len(line), middle_width) for line in lines) <= most:
            width = middle_width
        else:
            longest = middle_width - 1
    shown: list[str] = []
    for line in lines:
        if (over := len(line) - width) <= 0:
            shown.append(line)
            continue
        tail = width // 3
        shown.append(f"{line[: width - tail]} … {over:,} characters cut … {line[-tail:]}")
        lost += over
    return shown, lost


def announcement(approval: Approval) -> str:
    """Return a question as people read it in a channel: the exact call, why, how to answer."""
    again = f" (asked {approval.rounds} times)" if approval.rounds > 1 else ""
    lines = [f"{visible(approval.question)}{again}", *call_lines(approval, MAX_ANNOUNCED)]
    if approval.reason and approval.reason not in approval.question:
        lines.append(f"Asked because {visible(approval.reason)}.")
    lines.append(f'Answer "approve {approval.id}" or "deny {approval.id} WHY".')
    return "\n".join(lines)
