"""The engine of rules: which calls a turn may make now, and what is due before it ends.

A course knows nothing but the rules and the journal, so that a turn that is taken up again after a
crash comes to the same verdicts as before.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import islice
from typing import Any, Protocol

import orjson

from asterism.times import exact_duration
from asterism.types.agents import OF_TIME, Rule, RuleKind, fits, one_of
from asterism.types.turns import Call, EntryKind, Reply, ResultMeta, ResultState, text_of

_TO_ANSWER = "Error: not run, by a rule for your tools: the turn ends with {name}. Answer now."


@dataclass(frozen=True, slots=True)
class Due:
    """What has to be called before the turn ends."""

    rule: Rule
    tools: tuple[str, ...]
    """Tools that would do, each of which can still be called."""

    def __str__(self) -> str:
        return f"{one_of(self.tools)} has to be called before the turn ends. ({self.rule})"


class RuleState:
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
        self.trail = CallHistory() if meant is None else CallHistory(meant=meant)
        self.tools = sorted(tools)
        self._ran = dict(ran or {})

    def read(self, entries: Mapping[str, Noted]) -> None:
        """Take in what the journal has of the turn beyond what was taken in before."""
        self.trail.read(entries)

    def _look(self, now: int, pending: Sequence[Attempt] = ()) -> RuleCheck:
        return RuleCheck(self.rules, self.tools, self._ran, self.trail, now, pending)

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

    def _over(self, rule: Rule, look: RuleCheck) -> Refusal | None:
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

    def _wanted(self, rule: Rule, look: RuleCheck) -> tuple[str, ...]:
        """Return the tools of which a rule wants one before the end, and has not got it."""
        trail = self.trail
        if rule.kind is RuleKind.FOLLOWED_BY:
            return rule.tools if self._owed(rule) else ()
        if rule.kind is RuleKind.BEFORE_EXIT:
            applies = not rule.tools or any(trail.any(tool, RUN) for tool in rule.tools)
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

    def ended(self) -> CallRecord | None:
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


REPEATED = "repeated"
"""The rule that every agent has: not the same call to the outside twice in a row."""
ANY_OPERATION = "*"
_MAX_WAYS = 200
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
class RuleCheck:
    """What a verdict looks at."""

    rules: Sequence[Rule]
    tools: Sequence[str]
    """The tools that the agent has: a rule that wants another is not held against it."""
    ran: Mapping[str, int]
    """When tools succeeded in earlier turns."""
    trail: CallHistory
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
        if not any(rule.kind is RuleKind.NEXT and rule.is_for(latest) for rule in self.rules):
            return list(wanted)
        found: set[str] = set()
        ways, seen = deque([self.trail.made]), set[tuple[str, ...]]()
        while ways and len(seen) < _MAX_WAYS and not found.issuperset(wanted):
            made = ways.popleft()
            look = replace(self, trail=CallHistory(made), pending=())
            for name in self.tools:
                if any(
                    CHECKS[one.kind](look, one, Attempt(name))
                    for one in self.rules
                    if one.kind in CHECKS
                ):
                    continue
                found.add(name)
                call = CallRecord("", Call("", name, "{}"), ResultState.OK, "", self.now)
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
                if any(gone((tool,)) for tool in rule.tools if not self.trail.succeeded(tool)):
                    return True
            elif (
                rule.kind is RuleKind.RIGHT_AFTER
                and rule.is_for(name)
                and not self.follows(rule)
                and gone(rule.tools)
            ):
                return True
        return False


def _start(look: RuleCheck, rule: Rule, attempt: Attempt) -> Refusal | None:
    starts = [one.tool for one in look.rules if one.kind is RuleKind.START]
    if any(fits(attempt.name, start) for start in starts):
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


def _preceding(look: RuleCheck, rule: Rule, attempt: Attempt) -> Refusal | None:
    if not rule.is_for(attempt.name):
        return None
    lacking = [tool for tool in rule.tools if not look.trail.succeeded(tool)]
    if not lacking:
        return None
    what = f"{attempt.name} can be called only after {one_of(lacking[:1])} has succeeded"
    for one in lacking:
        if not look.open((one,)):
            what += f", and {one} cannot be called in this turn"
            return _refused(rule, what, f"Go on without {attempt.name}")
    first = look.open(lacking[:1])[0]
    return _refused(rule, what, f"Call {first} first", needs=first)


def _right_after(look: RuleCheck, rule: Rule, attempt: Attempt) -> Refusal | None:
    if not rule.is_for(attempt.name) or (not look.pending and look.follows(rule)):
        return None
    what = f"{attempt.name} can be called only right after {one_of(rule.tools)}"
    there = look.open(rule.tools)
    if not there:
        return _refused(rule, what, f"Go on without {attempt.name}")
    return _refused(rule, what, f"Call {there[0]} first", needs=there[0])


def _next(look: RuleCheck, rule: Rule, attempt: Attempt) -> Refusal | None:
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


def _not_after(look: RuleCheck, rule: Rule, attempt: Attempt) -> Refusal | None:
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


def _exclusive(look: RuleCheck, rule: Rule, attempt: Attempt) -> Refusal | None:
    group = (rule.tool, *rule.tools)
    if not any(fits(attempt.name, one) for one in group):
        return None
    used = [one.name for one in look.trail.made if one.state in TAKEN]
    for name in (*used, *(one.name for one in look.pending)):
        if name != attempt.name and any(fits(name, one) for one in group):
            what = f"{name} was used in this turn, which excludes {attempt.name}"
            return _refused(rule, what, f"Go on without {attempt.name}")
    return None


def _max_calls(look: RuleCheck, rule: Rule, attempt: Attempt) -> Refusal | None:
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


def _cooldown(look: RuleCheck, rule: Rule, attempt: Attempt) -> Refusal | None:
    if not rule.is_for(attempt.name):
        return None
    last = look.last(attempt.name)
    if any(one.name == attempt.name for one in look.pending):
        last = look.now
    left = 0.0 if last is None else rule.seconds - (look.now - last) / 1000
    if left <= 0:
        return None
    what = (
        f"{exact_duration(rule.seconds)} have to pass between calls of {attempt.name}, and it can "
        f"be called again in {max(1, round(left))} s"
    )
    return _refused(rule, what, "Go on without it for now")


def _operations(_: RuleCheck, rule: Rule, attempt: Attempt) -> Refusal | None:
    if not rule.is_for(attempt.name) or attempt.operation in (ANY_OPERATION, *rule.operations):
        return None
    given = f"the operation {attempt.operation!r}" if attempt.operation else "a call without one"
    what = (
        f"of {attempt.name}, you may use the operations {', '.join(rule.operations)}, not {given}"
    )
    return _refused(rule, what, "Use one of these")


def repeated(look: RuleCheck, attempt: Attempt) -> Refusal | None:
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


def _said_before(made: CallRecord) -> Refusal:
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
CHECKS: dict[RuleKind, Callable[[RuleCheck, Rule, Attempt], Refusal | None]] = {
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


TAKEN = frozenset({ResultState.OK, ResultState.UNKNOWN, ResultState.WAITING})
"""Calls that may stand in the way of others.

One whose outcome is unknown counts as done where that forbids, not where it helps.
"""
RUN = frozenset({ResultState.OK, ResultState.FAILED, ResultState.UNKNOWN})
SETTLED = frozenset({ResultState.OK, ResultState.DENIED})
"""As good as done: it succeeded, or it was not wanted."""


@dataclass(frozen=True, slots=True)
class CallRecord:
    """A call that was made in the turn."""

    key: str
    call: Call
    state: ResultState
    said: str
    """Its result."""
    at: int

    @property
    def name(self) -> str:
        """The tool that was called."""
        return self.call.name


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a call is not made: which rule, what is right now, and the next move."""

    rule: str
    """The key of the rule."""
    text: str
    needs: str | None = None
    """The tool that has to be called first, if that is what the rule wants."""

    def meta(self) -> ResultMeta:
        """Return what is kept beside the result of the refused call."""
        return ResultMeta(ResultState.NOT_RUN, rule=self.rule, needs=self.needs)


class Noted(Protocol):
    """An entry of the journal, written or staged."""

    @property
    def kind(self) -> EntryKind:
        """What it is an entry of."""
        ...

    @property
    def body(self) -> bytes:
        """What it says."""
        ...

    @property
    def meta(self) -> str | None:
        """What is kept beside it."""
        ...

    @property
    def at(self) -> int:
        """When it was noted."""
        ...


@dataclass(slots=True)
class CallHistory:
    """The calls of a turn, in the order in which they came to an end."""

    made: list[CallRecord] = field(default_factory=list[CallRecord])
    refused: list[tuple[int, Refusal]] = field(default_factory=list[tuple[int, Refusal]])
    """Refusals with the steps they were in."""
    meant: Callable[[str, str], tuple[str, str]] = lambda name, arguments: (name, arguments)
    """From a call's name and arguments to those of the call that is meant by it."""
    _calls: dict[str, Call] = field(default_factory=dict[str, Call])
    _approved: dict[str, bool] = field(default_factory=dict[str, bool])
    _seen: int = 0

    def read(self, entries: Mapping[str, Noted]) -> None:
        """Take in what the journal has of the turn beyond what was taken in before."""
        if len(entries) == self._seen:
            return
        for key, entry in islice(entries.items(), self._seen, None):
            if entry.kind is EntryKind.REPLY:
                step = key.partition("/")[0]
                for index, call in enumerate(Reply.from_entry(entry.body, entry.meta).calls):
                    name, arguments = self.meant(call.name, call.arguments)
                    if name != call.name:
                        call = Call(call.id, name, arguments)  # noqa: PLW2901 - what it stands for
                    self._calls[f"{step}/call/{index}"] = call
            elif entry.kind is EntryKind.RESULT:
                self._read_result(key, entry)
            elif key.endswith("/decision"):
                said: dict[str, Any] = orjson.loads(entry.body)
                self._approved[_call_key(key)] = bool(said["approved"])
            elif key.endswith("/outcome"):
                self._read_outcome(_call_key(key), entry)
        self._seen = len(entries)

    def _read_result(self, key: str, entry: Noted) -> None:
        call = self._calls.get(key)
        if call is None:
            return
        meta, said = ResultMeta.from_json(entry.meta), text_of(entry.body)
        if meta.rule is not None:
            step = int(key.partition("/")[0])
            self.refused.append((step, Refusal(meta.rule, said, meta.needs)))
        elif meta.state is not ResultState.NOT_RUN:
            self.made.append(CallRecord(key, call, meta.state, said, entry.at))

    def _read_outcome(self, key: str, entry: Noted) -> None:
        """Take in that a call which waited has run, or was denied: now is when it happened."""
        former = next((one for one in self.made if one.key == key), None)
        state = ResultMeta.from_json(entry.meta).state
        if former is None or state is ResultState.WAITING:
            return
        self.made.remove(former)
        said = text_of(entry.body)
        if self._approved.get(key):
            said = said.partition(" Result: ")[2]
        self.made.append(CallRecord(key, former.call, state, said, entry.at))

    def any(self, pattern: str, states: frozenset[ResultState], *, but: str = "") -> bool:
        """Tell whether a call that fits a pattern stands in one of these states."""
        return any(
            one.state in states and fits(one.name, pattern) and one.name != but for one in self.made
        )

    def succeeded(self, pattern: str) -> bool:
        """Tell whether a call that fits a pattern has succeeded."""
        return any(one.state is ResultState.OK and fits(one.name, pattern) for one in self.made)

    @property
    def latest(self) -> str:
        """The tool that succeeded last, or nothing."""
        return next((one.name for one in reversed(self.made) if one.state is ResultState.OK), "")

    def last_taken(self, name: str) -> int | None:
        """Return when a tool was last called with success, perhaps or surely."""
        return max(
            (one.at for one in self.made if one.name == name and one.state in TAKEN), default=None
        )


def _call_key(key: str) -> str:
    """Return the call that a key such as `0/call/0/decision` is about."""
    return "/".join(key.split("/")[:3])
