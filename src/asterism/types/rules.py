"""Rules for tools: what an agent's owner wants of its calls, told to the model and enforced."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any

import orjson

from asterism.times import exact_duration


class RuleKind(StrEnum):
    """The kinds of rules."""

    START = "start"
    """It runs before any other tool; of several such tools, one does."""
    PRECEDING = "preceding"
    """It runs only after each of the others has succeeded in the turn."""
    RIGHT_AFTER = "right_after"
    """It runs only if the latest call that succeeded was one of the others."""
    NOT_AFTER = "not_after"
    """It does not run once one of the others has succeeded in the turn."""
    NEXT = "next"
    """When it has succeeded, the next call is one of the others."""
    FOLLOWED_BY = "followed_by"
    """When it has succeeded, one of the others succeeds before the turn ends."""
    EXCLUSIVE = "exclusive"
    """Of it and the others, one is used in a turn."""
    BEFORE_EXIT = "before_exit"
    """It succeeds before the turn ends; with others, only if one of those has run."""
    MAX_CALLS = "max_calls"
    """It runs so many times in a turn."""
    COOLDOWN = "cooldown"
    """So much time passes between a success and the next call, also from turn to turn."""
    PERIODIC = "periodic"
    """It succeeds at least every so often: a turn does not end before, when it is time."""
    CONSENT = "consent"
    """A person is asked before each call; with operations, only before those."""
    OPERATIONS = "operations"
    """Only these operations of it can be used."""
    EXIT_LOOP = "exit_loop"
    """The turn ends when it has succeeded."""
    CONTINUE_LOOP = "continue_loop"
    """The turn goes on after it, although another rule would end it there."""


OF_OTHERS = frozenset(
    {
        RuleKind.PRECEDING,
        RuleKind.RIGHT_AFTER,
        RuleKind.NOT_AFTER,
        RuleKind.NEXT,
        RuleKind.FOLLOWED_BY,
        RuleKind.EXCLUSIVE,
    }
)
"""Kinds that name other tools, too."""
OF_TIME = frozenset({RuleKind.COOLDOWN, RuleKind.PERIODIC})
"""Kinds that look beyond the turn."""
DEFAULT_PRIORITY = 5


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule for a tool, or for all tools that a pattern such as `web_*` stands for."""

    tool: str
    kind: RuleKind
    tools: tuple[str, ...] = ()
    """The other tools, for kinds that name some; patterns here stand for any that fits."""
    operations: tuple[str, ...] = ()
    count: int = 0
    seconds: float = 0.0
    priority: int = DEFAULT_PRIORITY
    """Where several rules speak against a call, the one of the highest priority is told."""

    @property
    def key(self) -> str:
        """The rule in one line, the same for the same rule."""
        parts = [self.tool, self.kind.value, *self.tools, *self.operations]
        if self.count:
            parts.append(str(self.count))
        if self.seconds:
            parts.append(f"{self.seconds:g}")
        return " ".join(parts)

    def is_for(self, name: str) -> bool:
        """Tell whether it is a rule for the tool of that name."""
        return fits(name, self.tool)

    def names(self, name: str) -> bool:
        """Tell whether the tool of that name is among the others."""
        return any(fits(name, one) for one in self.tools)

    def form(self) -> dict[str, Any]:
        """Return the rule as JSON and TOML have it, without what it does not say."""
        form: dict[str, Any] = {"tool": self.tool, "kind": self.kind.value}
        for name in ("tools", "operations"):
            if values := getattr(self, name):
                form[name] = list(values)
        for name in ("count", "seconds"):
            if value := getattr(self, name):
                form[name] = value
        if self.priority != DEFAULT_PRIORITY:
            form["priority"] = self.priority
        return form

    def __str__(self) -> str:
        return _SENTENCES[self.kind](self)


@lru_cache(maxsize=65_536)
def fits(name: str, pattern: str) -> bool:
    """Tell whether a tool's name is the one that is meant, or fits the pattern (`*`, `?`)."""
    return name == pattern or (is_pattern(pattern) and fnmatchcase(name, pattern))


def is_pattern(name: str) -> bool:
    """Tell whether a name stands for any tool that fits it."""
    return any(char in name for char in "*?[")


# -- words -----------------------------------------------------------------------------------------


def one_of(names: Sequence[str]) -> str:
    """Return names as a choice: `a, b or c`."""
    return _joined([called(one) for one in names], "or")


def all_of(names: Sequence[str]) -> str:
    """Return names as a list: `a, b and c`."""
    return _joined([called(one) for one in names], "and")


def called(name: str) -> str:
    """Return what a tool or a pattern is called in a sentence."""
    if name == "*":
        return "any tool"
    return f"any {name}" if is_pattern(name) else name


def _joined(names: Sequence[str], word: str) -> str:
    if len(names) < 2:
        return "".join(names)
    return f"{', '.join(names[:-1])} {word} {names[-1]}"


def _before_exit(rule: Rule) -> str:
    if rule.tools:
        return f"If you called {one_of(rule.tools)}, call {called(rule.tool)} before you answer."
    return f"Call {called(rule.tool)} before you answer."


def _max_calls(rule: Rule) -> str:
    times = {1: "once", 2: "twice"}.get(rule.count, f"{rule.count} times")
    return f"Call {called(rule.tool)} at most {times} in a turn."


def _consent(rule: Rule) -> str:
    if rule.operations:
        which = f"{called(rule.tool)} with the operation {_joined(rule.operations, 'or')}"
    else:
        which = called(rule.tool)
    return f"A person is asked before each call of {which}."


_SENTENCES: dict[RuleKind, Callable[[Rule], str]] = {
    RuleKind.START: lambda rule: f"Call {called(rule.tool)} before any other tool.",
    RuleKind.PRECEDING: lambda rule: (
        f"Call {called(rule.tool)} only after {all_of(rule.tools)} succeeded in the same turn."
    ),
    RuleKind.RIGHT_AFTER: lambda rule: (
        f"Call {called(rule.tool)} only right after {one_of(rule.tools)}."
    ),
    RuleKind.NOT_AFTER: lambda rule: (
        f"Do not call {called(rule.tool)} after {one_of(rule.tools)} in the same turn."
    ),
    RuleKind.NEXT: lambda rule: f"Right after {called(rule.tool)}, call only {one_of(rule.tools)}.",
    RuleKind.FOLLOWED_BY: lambda rule: (
        f"After {called(rule.tool)}, call {one_of(rule.tools)} before you answer."
    ),
    RuleKind.EXCLUSIVE: lambda rule: (
        f"Of {all_of((rule.tool, *rule.tools))}, use only one in a turn."
    ),
    RuleKind.BEFORE_EXIT: _before_exit,
    RuleKind.MAX_CALLS: _max_calls,
    RuleKind.COOLDOWN: lambda rule: (
        f"After a call of {called(rule.tool)}, wait {exact_duration(rule.seconds)} before the next."
    ),
    RuleKind.PERIODIC: lambda rule: (
        f"Call {called(rule.tool)} at least every {exact_duration(rule.seconds)}."
    ),
    RuleKind.CONSENT: _consent,
    RuleKind.OPERATIONS: lambda rule: (
        f"Of {called(rule.tool)}, use only the operations {_joined(rule.operations, 'and')}."
    ),
    RuleKind.EXIT_LOOP: lambda rule: (
        f"Your turn ends when {called(rule.tool)} has succeeded: call it last."
    ),
    RuleKind.CONTINUE_LOOP: lambda rule: f"Your turn goes on after {called(rule.tool)}.",
}


def told(rules: Sequence[Rule]) -> str:
    """Return rules as a model reads them; the same rules give the same text in any order."""
    starts = sorted({rule.tool for rule in rules if rule.kind is RuleKind.START})
    lines = [f"Call {one_of(starts)} before any other tool."] if starts else []
    rest = {rule for rule in rules if rule.kind is not RuleKind.START}
    lines += [str(one) for one in sorted(rest, key=lambda one: (-one.priority, one.key))]
    if not lines:
        return ""
    listed = "\n".join(f"- {line}" for line in dict.fromkeys(lines))
    return f"Rules for your tools, which are enforced:\n{listed}"


# -- at rest ---------------------------------------------------------------------------------------


def rules_text(rules: Sequence[Rule]) -> str | None:
    """Return rules as they are stored; None for none."""
    return orjson.dumps([one.form() for one in rules]).decode() if rules else None


def stored_rules(text: str | None) -> tuple[Rule, ...]:
    """Return the rules of a stored text."""
    return tuple(_stored(one) for one in orjson.loads(text)) if text else ()


def _stored(form: Mapping[str, Any]) -> Rule:
    return Rule(
        form["tool"],
        RuleKind(form["kind"]),
        tuple(form.get("tools", ())),
        tuple(form.get("operations", ())),
        form.get("count", 0),
        form.get("seconds", 0.0),
        form.get("priority", DEFAULT_PRIORITY),
    )
