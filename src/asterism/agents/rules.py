"""The engine of rules: which calls a turn may make now, and what is due before it ends.

A course knows nothing but the rules and the journal, so that a turn that is taken up again after a
crash comes to the same verdicts as before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import orjson

from asterism.agents.trail import RUN, SETTLED, Made, Noted, Refusal, Trail
from asterism.agents.verdicts import CHECKS, Attempt, Look, repeated
from asterism.types.rules import OF_TIME, Rule, RuleKind, one_of
from asterism.types.turns import ResultState

_TO_ANSWER = "Error: not run, by a rule for your tools: the turn ends with {name}. Answer now."


@dataclass(frozen=True, slots=True)
class Due:
    """What has to be called before the turn ends."""

    rule: Rule
    tools: tuple[str, ...]
    """Tools that would do, each of which can still be called."""

    def __str__(self) -> str:
        return f"{one_of(self.tools)} has to be called before the turn ends. ({self.rule})"


class Course:
    """How a turn has gone so far, as far as rules look at it."""

    def __init__(
        self,
        rules: Sequence[Rule] = (),
        tools: Iterable[str] = (),
        ran: Mapping[str, int] | None = None,
        meant: Callable[[str, str], tuple[str, str]] | None = None,
    ) -> None:
        """Begin a course.

        Args:
            rules: The agent's rules.
            tools: The names of the tools it has: a rule that wants another is not held against it.
            ran: When tools succeeded in earlier turns, in milliseconds since 1970.
            meant: Returns the call that is meant by one that is made by way of another tool.
        """
        self.rules = tuple(sorted(rules, key=lambda rule: -rule.priority))
        self.trail = Trail() if meant is None else Trail(meant=meant)
        self.tools = sorted(tools)
        self._ran = dict(ran or {})

    def read(self, entries: Mapping[str, Noted]) -> None:
        """Take in what the journal has of the turn beyond what was taken in before."""
        self.trail.read(entries)

    def _look(self, now: int, pending: Sequence[Attempt] = ()) -> Look:
        return Look(self.rules, self.tools, self._ran, self.trail, now, pending)

    # -- before a call -------------------------------------------------------------------------

    def refusal(
        self, attempt: Attempt, now: int, pending: Sequence[Attempt] = ()
    ) -> Refusal | None:
        """Return why a call must not be made now, or None if it may.

        `pending` are calls that were let pass and have no result yet. What depends on their outcome
        is refused: let them end, and ask again.
        """
        look = self._look(now, pending)
        for rule in self.rules:
            check = CHECKS.get(rule.kind)
            refused = check(look, rule, attempt) if check is not None else None
            if refused is None and rule.kind is RuleKind.EXIT_LOOP:
                refused = self._over(rule, look)
            if refused is not None:
                return refused
        return repeated(look, attempt) if attempt.outside else None

    def _over(self, rule: Rule, look: Look) -> Refusal | None:
        ending = next((one.name for one in look.pending if self._ends(one.name)), None)
        if ending is None:
            made = self.ended()
            if made is None or self.due(look.now):
                return None
            ending = made.name
        return Refusal(rule.key, _TO_ANSWER.format(name=ending)) if rule.is_for(ending) else None

    def consent(self, attempt: Attempt) -> bool:
        """Tell whether a rule wants a person to be asked before this call."""
        return any(
            rule.kind is RuleKind.CONSENT
            and rule.is_for(attempt.name)
            and (not rule.operations or attempt.operation in rule.operations)
            for rule in self.rules
        )

    def first_step(self, name: str, now: int) -> str | None:
        """Return the tool that can be called now on the way to another, or None if none can."""
        seen: set[str] = set()
        wanted: str | None = name
        while wanted is not None and wanted not in seen:
            seen.add(wanted)
            refused = self.refusal(Attempt(wanted), now)
            if refused is None:
                return wanted
            wanted = refused.needs
        return None

    def broken(self, step: int) -> list[tuple[int, Refusal]]:
        """Return the refusals of a step by rule, each with the number of steps that had such."""
        here = {one.rule: one for at, one in self.trail.refused if at == step}
        return [
            (
                len({at for at, one in self.trail.refused if one.rule == rule and at <= step}),
                refused,
            )
            for rule, refused in here.items()
        ]

    # -- before the end ------------------------------------------------------------------------

    def due(self, now: int) -> list[Due]:
        """Return what has to be called before the turn ends, as far as it still can be called."""
        look = self._look(now)
        found: list[Due] = []
        for rule in self.rules:
            wanted = self._wanted(rule, look)
            if tools := tuple(look.ahead(look.open(wanted))):
                found.append(Due(rule, tools))
        return found

    def _wanted(self, rule: Rule, look: Look) -> tuple[str, ...]:
        """Return the tools of which a rule wants one before the end, and has not got it."""
        trail = self.trail
        if rule.kind is RuleKind.FOLLOWED_BY:
            return rule.tools if self._owed(rule) else ()
        if rule.kind is RuleKind.BEFORE_EXIT:
            applies = not rule.tools or any(trail.any(one, RUN) for one in rule.tools)
        elif rule.kind is RuleKind.PERIODIC:
            times = (look.last(name) for name in look.there((rule.tool,)))
            applies = all(at is None or look.now - at >= rule.seconds * 1000 for at in times)
        else:
            return ()
        return (rule.tool,) if applies and not trail.any(rule.tool, SETTLED) else ()

    def _owed(self, rule: Rule) -> bool:
        owed = False
        for one in self.trail.made:
            if one.state in SETTLED and rule.names(one.name):
                owed = False
            elif one.state is ResultState.OK and rule.is_for(one.name):
                owed = True
        return owed

    def ended(self) -> Made | None:
        """Return the call that ends the turn, by a rule that says so."""
        return next(
            (
                one
                for one in self.trail.made
                if one.state is ResultState.OK and self._ends(one.name)
            ),
            None,
        )

    def _ends(self, name: str) -> bool:
        kinds = {rule.kind for rule in self.rules if rule.is_for(name)}
        return RuleKind.EXIT_LOOP in kinds and RuleKind.CONTINUE_LOOP not in kinds

    # -- beyond the turn -----------------------------------------------------------------------

    @property
    def looks_back(self) -> bool:
        """Whether there are rules that look at earlier turns."""
        return any(rule.kind in OF_TIME for rule in self.rules)

    @property
    def lasting(self) -> dict[str, int]:
        """When the tools that such rules are for succeeded in this turn."""
        timed = [rule for rule in self.rules if rule.kind in OF_TIME]
        return {
            one.name: one.at
            for one in self.trail.made
            if one.state in (ResultState.OK, ResultState.UNKNOWN)
            and any(rule.is_for(one.name) for rule in timed)
        }

    def look_back(self, ran: Mapping[str, int]) -> None:
        """Take in when tools succeeded in earlier turns."""
        self._ran = dict(ran)


# -- what models are offered -----------------------------------------------------------------------


@lru_cache(maxsize=256)
def narrowed(tools: bytes | None, rules: tuple[Rule, ...]) -> bytes | None:
    """Return the descriptions of tools with only the operations that rules leave open."""
    allowing = [rule for rule in rules if rule.kind is RuleKind.OPERATIONS]
    if tools is None or not allowing:
        return tools
    found: list[dict[str, Any]] = orjson.loads(tools)
    for one in found:
        function = one["function"]
        mine = [rule.operations for rule in allowing if rule.is_for(function["name"])]
        if mine:
            _narrow(function["parameters"], mine)
    return orjson.dumps(found)


def _narrow(schema: dict[str, Any], allowed: Sequence[Sequence[str]]) -> None:
    properties: dict[str, Any] = schema.get("properties", {})
    described = properties.get("operation")
    if not isinstance(described, dict):
        return
    known: dict[str, Any] = dict(described)  # pyright: ignore[reportUnknownArgumentType] - JSON
    reference = str(known.pop("$ref", "")).rpartition("/")[2]
    meant: dict[str, Any] = schema.get("$defs", {}).get(reference, known)
    # What is open to it and is not there (any more) is not offered.
    there: list[str] = meant.get("enum") or list(allowed[0])
    left = [one for one in there if all(one in each for each in allowed)]
    kept = {name: known[name] for name in ("description", "default") if name in known}
    if kept.get("default", left[:1]) not in (*left, left[:1]):
        kept.pop("default", None)
    properties["operation"] = {**kept, "type": "string", "enum": left}
