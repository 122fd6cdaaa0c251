"""Verdicts: for each kind of rule, whether it speaks against a call, and what would be right."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import orjson

from asterism.agents.trail import TAKEN, Made, Refusal, Trail
from asterism.types.rules import Rule, RuleKind, fits, one_of, span
from asterism.types.turns import Call, ResultState

REPEATED = "repeated"
"""The rule that every agent has: not the same call to the outside twice in a row."""
ANY_OPERATION = "*"
_MOST_WAYS = 200
"""How many ways on are looked at, at most."""
_QUOTED = 200
"""How much of a former result is quoted."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """A call that an agent would like to make."""

    name: str
    arguments: str = "{}"
    """As the model wrote them."""
    operation: str | None = ANY_OPERATION
    outside: bool = False
    """Whether it touches the outside, so that it must not happen twice by mistake."""


@dataclass(frozen=True, slots=True)
class Look:
    """What a verdict looks at."""

    rules: Sequence[Rule]
    tools: Sequence[str]
    """The tools that the agent has: a rule that wants another is not held against it."""
    ran: Mapping[str, int]
    """When tools succeeded in earlier turns."""
    trail: Trail
    now: int
    pending: Sequence[Attempt] = ()
    """Calls that were let pass and have no result yet: what depends on it is refused."""

    def there(self, patterns: Iterable[str]) -> list[str]:
        """Return the tools that names and patterns stand for, among those that the agent has."""
        return [name for pattern in patterns for name in self.tools if fits(name, pattern)]

    def open(self, patterns: Iterable[str]) -> list[str]:
        """Return those of them that can still be called in this turn."""
        return [name for name in self.there(patterns) if not self.hopeless(name)]

    def callable(self, patterns: Iterable[str]) -> list[str]:
        """Return those of them that can be called now, but for rules of what comes first or next.

        Where there is none, such a rule is not held against anybody: it would leave no way out.
        """
        look = replace(self, pending=()) if self.pending else self
        rules = [one for one in self.rules if one.kind in CHECKS and one.kind not in _OF_ORDER]
        return [
            name
            for name in self.there(patterns)
            if not any(CHECKS[rule.kind](look, rule, Attempt(name)) for rule in rules)
        ]

    def ahead(self, wanted: Sequence[str]) -> list[str]:
        """Return those of some tools to which there is a way from here, if all calls succeed.

        Rules of what comes next may lead into a circle, which other rules must not wait to leave.
        """
        latest = self.trail.latest
        if not any(one.kind is RuleKind.NEXT and one.is_for(latest) for one in self.rules):
            return list(wanted)
        found: set[str] = set()
        ways, seen = deque([self.trail.made]), set[tuple[str, ...]]()
        while ways and len(seen) < _MOST_WAYS and not found.issuperset(wanted):
            made = ways.popleft()
            look = replace(self, trail=Trail(made), pending=())
            for name in self.tools:
                if any(
                    CHECKS[one.kind](look, one, Attempt(name))
                    for one in self.rules
                    if one.kind in CHECKS
                ):
                    continue
                found.add(name)
                call = Made("", Call("", name, "{}"), ResultState.OK, "", self.now)
                way = [*made, call]
                key = (name, *sorted(one.name for one in way))
                if key not in seen:
                    seen.add(key)
                    ways.append(way)
        return [name for name in wanted if name in found]

    def follows(self, rule: Rule) -> bool:
        """Tell whether the tool that succeeded last is among the others of a rule."""
        latest = self.trail.latest
        return bool(latest) and rule.names(latest)

    def last(self, name: str) -> int | None:
        """Return when a tool was last called with success, in this turn or an earlier one."""
        times = (self.trail.last_taken(name), self.ran.get(name))
        return max((at for at in times if at is not None), default=None)

    def hopeless(self, name: str, seen: tuple[str, ...] = ()) -> bool:
        """Tell whether a tool cannot be called any more in this turn, whatever else is called."""
        if name in seen or self.trail.any(name, frozenset({ResultState.DENIED})):
            return True
        attempt, seen = Attempt(name), (*seen, name)
        look = replace(self, pending=()) if self.pending else self

        def gone(patterns: Iterable[str]) -> bool:
            return all(look.hopeless(one, seen) for one in look.there(patterns))

        for rule in self.rules:
            if rule.kind in _FOR_GOOD:
                if CHECKS[rule.kind](look, rule, attempt) is not None:
                    return True
            elif rule.kind is RuleKind.PRECEDING and rule.is_for(name):
                if any(gone((one,)) for one in rule.tools if not self.trail.succeeded(one)):
                    return True
            elif (
                rule.kind is RuleKind.RIGHT_AFTER
                and rule.is_for(name)
                and not self.follows(rule)
                and gone(rule.tools)
            ):
                return True
        return False


def _start(look: Look, rule: Rule, attempt: Attempt) -> Refusal | None:
    starts = [one.tool for one in look.rules if one.kind is RuleKind.START]
    if any(fits(attempt.name, one) for one in starts):
        return None
    # A start that failed or was denied is a start: else nothing could be done without it.
    tried = frozenset(set(ResultState) - {ResultState.WAITING})
    if any(look.trail.any(one, tried) for one in starts):
        return None
    there = look.callable(starts)
    if not there:
        return None
    what = f"{one_of(there)} has to be called before any other tool in this turn"
    return _refused(rule, what, f"Call {there[0]} first", needs=there[0])


def _preceding(look: Look, rule: Rule, attempt: Attempt) -> Refusal | None:
    if not rule.is_for(attempt.name):
        return None
    lacking = [one for one in rule.tools if not look.trail.succeeded(one)]
    if not lacking:
        return None
    what = f"{attempt.name} can be called only after {one_of(lacking[:1])} has succeeded"
    for one in lacking:
        if not look.open((one,)):
            what += f", and {one} cannot be called in this turn"
            return _refused(rule, what, f"Go on without {attempt.name}")
    first = look.open(lacking[:1])[0]
    return _refused(rule, what, f"Call {first} first", needs=first)


def _right_after(look: Look, rule: Rule, attempt: Attempt) -> Refusal | None:
    if not rule.is_for(attempt.name) or (not look.pending and look.follows(rule)):
        return None
    what = f"{attempt.name} can be called only right after {one_of(rule.tools)}"
    there = look.open(rule.tools)
    if not there:
        return _refused(rule, what, f"Go on without {attempt.name}")
    return _refused(rule, what, f"Call {there[0]} first", needs=there[0])


def _next(look: Look, rule: Rule, attempt: Attempt) -> Refusal | None:
    if rule.names(attempt.name):
        return None
    latest = look.trail.latest
    if not latest or not rule.is_for(latest):
        waits = next((one.name for one in look.pending if rule.is_for(one.name)), None)
        what = f"it depends on what becomes of {waits}"
        return _refused(rule, what, "Call it later") if waits else None
    binding = [one for one in look.rules if one.kind is RuleKind.NEXT and one.is_for(latest)]
    there = [name for name in look.callable(rule.tools) if all(one.names(name) for one in binding)]
    if not there:
        return None
    what = f"right after {latest}, only {one_of(there)} can be called"
    return _refused(rule, what, f"Call {there[0]} next", needs=there[0])


def _not_after(look: Look, rule: Rule, attempt: Attempt) -> Refusal | None:
    if not rule.is_for(attempt.name):
        return None
    for one in rule.tools:
        # `*` among the others means the others.
        itself = "" if one == attempt.name else attempt.name
        if look.trail.any(one, TAKEN, but=itself) or any(
            fits(other.name, one) and other.name != itself for other in look.pending
        ):
            what = f"{attempt.name} cannot be called after {one_of([one])} in the same turn"
            return _refused(rule, what, f"Go on without {attempt.name}")
    return None


def _exclusive(look: Look, rule: Rule, attempt: Attempt) -> Refusal | None:
    group = (rule.tool, *rule.tools)
    if not any(fits(attempt.name, one) for one in group):
        return None
    used = [one.name for one in look.trail.made if one.state in TAKEN]
    for name in (*used, *(one.name for one in look.pending)):
        if name != attempt.name and any(fits(name, one) for one in group):
            what = f"{name} was used in this turn, which excludes {attempt.name}"
            return _refused(rule, what, f"Go on without {attempt.name}")
    return None


def _max_calls(look: Look, rule: Rule, attempt: Attempt) -> Refusal | None:
    if not rule.is_for(attempt.name):
        return None
    count = sum(one.name == attempt.name for one in look.pending)
    count += sum(
        one.name == attempt.name and one.state is not ResultState.DENIED for one in look.trail.made
    )
    if count < rule.count:
        return None
    times = "once" if rule.count == 1 else f"{rule.count} times"
    what = f"{attempt.name} can be called {times} in a turn, and it was"
    return _refused(rule, what, "Go on with what you have")


def _cooldown(look: Look, rule: Rule, attempt: Attempt) -> Refusal | None:
    if not rule.is_for(attempt.name):
        return None
    last = look.last(attempt.name)
    if any(one.name == attempt.name for one in look.pending):
        last = look.now
    left = 0.0 if last is None else rule.seconds - (look.now - last) / 1000
    if left <= 0:
        return None
    what = (
        f"{span(rule.seconds)} have to pass between calls of {attempt.name}, and it can be called "
        f"again in {max(1, round(left))} s"
    )
    return _refused(rule, what, "Go on without it for now")


def _operations(_: Look, rule: Rule, attempt: Attempt) -> Refusal | None:
    if not rule.is_for(attempt.name) or attempt.operation in (ANY_OPERATION, *rule.operations):
        return None
    given = f"the operation {attempt.operation!r}" if attempt.operation else "a call without one"
    what = (
        f"of {attempt.name}, you may use the operations {', '.join(rule.operations)}, not {given}"
    )
    return _refused(rule, what, "Use one of these")


def repeated(look: Look, attempt: Attempt) -> Refusal | None:
    """Return why a call to the outside is taken for a mistake, or None if it is none.

    It is one if the same call was made before, did not fail, and no other has succeeded since.
    """
    wanted = _same(attempt.arguments)
    if any(one.name == attempt.name and _same(one.arguments) == wanted for one in look.pending):
        return Refusal(REPEATED, f"Error: {attempt.name} is under way with the same arguments.")
    for one in reversed(look.trail.made):
        if one.name == attempt.name and _same(one.call.arguments) == wanted:
            return _said_before(one) if one.state in TAKEN else None
        if one.state is ResultState.OK:
            return None
    return None


def _said_before(made: Made) -> Refusal:
    said = made.said if len(made.said) <= _QUOTED else f"{made.said[:_QUOTED]}…"
    return Refusal(
        REPEATED,
        f"Error: not run, since you have just called {made.name} with the same arguments. Its "
        f"result was: {said} Use that. If it has to be done once more, look with another tool at "
        "what has become of it first.",
    )


def _same(arguments: str) -> bytes | str:
    """Return arguments so that the same ones are equal, however they are written."""
    try:
        return orjson.dumps(orjson.loads(arguments or "{}"), option=orjson.OPT_SORT_KEYS)
    except orjson.JSONDecodeError:
        return arguments


def _refused(rule: Rule, what: str, move: str, *, needs: str | None = None) -> Refusal:
    return Refusal(rule.key, f"Error: not run, by a rule for your tools: {what}. {move}.", needs)


_FOR_GOOD = frozenset(
    {RuleKind.NOT_AFTER, RuleKind.EXCLUSIVE, RuleKind.MAX_CALLS, RuleKind.COOLDOWN}
)
"""Kinds whose refusals hold for the rest of the turn."""
_OF_ORDER = frozenset({RuleKind.START, RuleKind.NEXT})
CHECKS: dict[RuleKind, Callable[[Look, Rule, Attempt], Refusal | None]] = {
    RuleKind.START: _start,
    RuleKind.PRECEDING: _preceding,
    RuleKind.RIGHT_AFTER: _right_after,
    RuleKind.NEXT: _next,
    RuleKind.NOT_AFTER: _not_after,
    RuleKind.EXCLUSIVE: _exclusive,
    RuleKind.MAX_CALLS: _max_calls,
    RuleKind.COOLDOWN: _cooldown,
    RuleKind.OPERATIONS: _operations,
}
