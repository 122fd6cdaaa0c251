"""Rules for tools: which calls a turn may make now, and which are due before it ends.

A course knows nothing but the rules and the journal, so that a turn that is taken up again after a
crash comes to the same verdicts as before.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, replace
from functools import lru_cache
from itertools import islice
from typing import Any, Protocol

import orjson

from asterism.records import dataclass
from asterism.times import exact_duration
from asterism.types.agents import OF_TIME, Rule, RuleKind, fits, one_of
from asterism.types.turns import Call, EntryKind, Reply, ResultMeta, ResultState, text_of

_TO_ANSWER = "Error: not run, by a rule for your tools: the turn ends with {name}. Answer now."


@dataclass(frozen=True, slots=True)
class Due:
    """A call that is due before the turn ends."""

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
        resolve: Callable[[str, str], tuple[str, str]] | None = None,
    ) -> None:
        """Begin with the rules of an agent.

        Args:
            rules: The agent's rules.
            tools: The names of the tools it has: a rule that wants another is not held against it.
            ran: When tools succeeded in earlier turns, in milliseconds since 1970.
            resolve: Returns the call that is meant, where a tool calls another tool.
        """
        self.rules = tuple(sorted(rules, key=lambda rule: -rule.priority))
        self.history = CallHistory() if resolve is None else CallHistory(resolve=resolve)
        self.tools = sorted(tools)
        self._ran = dict(ran or {})

    def read(self, entries: Mapping[str, AnyEntry]) -> None:
        """Read the new journal entries of the turn."""
        self.history.read(entries)

    def _look(self, now: int, pending: Sequence[Attempt] = ()) -> RuleCheck:
        return RuleCheck(self.rules, self.tools, self._ran, self.history, now, pending)

    # -- before a call -------------------------------------------------------------------------

    def refusal(
        self, attempt: Attempt, now: int, pending: Sequence[Attempt] = ()
    ) -> Refusal | None:
        """Return why a call must not be made now, or None if it is allowed.

        `pending` are calls that were let pass and have no result yet. What depends on their outcome
        is refused: let them end, and ask again.
        """
        look = self._look(now, pending)
        for rule in self.rules:
            check = CHECKS.get(rule.kind)
            refused = check(look, rule, attempt) if check is not None else None
            if refused is None and rule.kind is RuleKind.EXIT_LOOP:
                refused = self._refuse_after_end(rule, look)
            if refused is not None:
                return refused
        return repetition_error(look, attempt) if attempt.outside else None

    def _refuse_after_end(self, rule: Rule, look: RuleCheck) -> Refusal | None:
        ending = next((attempt.name for attempt in look.pending if self._ends(attempt.name)), None)
        if ending is None:
            ending_call = self.ending_call()
            if ending_call is None or self.due_calls(look.now):
                return None
            ending = ending_call.name
        return Refusal(rule.key, _TO_ANSWER.format(name=ending)) if rule.is_for(ending) else None

    def asks_person(self, attempt: Attempt) -> bool:
        """Tell whether a rule wants a person to be asked before this call."""
        return any(
            rule.kind is RuleKind.CONSENT
            and rule.is_for(attempt.name)
            and (not rule.operations or attempt.operation in rule.operations)
            for rule in self.rules
        )

    def first_step(self, name: str, now: int) -> str | None:
        """Return the tool to call now on the way to another tool, or None."""
        seen: set[str] = set()
        wanted: str | None = name
        while wanted is not None and wanted not in seen:
            seen.add(wanted)
            refused = self.refusal(Attempt(wanted), now)
            if refused is None:
                return wanted
            wanted = refused.needs
        return None

    def step_refusals(self, step: int) -> list[tuple[int, Refusal]]:
        """Return the refusals of a step, each with the number of steps its rule has refused."""
        here = {refusal.rule: refusal for at, refusal in self.history.refused if at == step}
        return [
            (
                len(
                    {
                        at
                        for at, refusal in self.history.refused
                        if refusal.rule == rule and at <= step
                    }
                ),
                refused,
            )
            for rule, refused in here.items()
        ]

    # -- before the end ------------------------------------------------------------------------

    def due_calls(self, now: int) -> list[Due]:
        """Return the calls that are due before the turn ends and are still possible."""
        look = self._look(now)
        duties: list[Due] = []
        for rule in self.rules:
            wanted = self._tools_due(rule, look)
            if tools := tuple(look.reachable_tools(look.open_tools(wanted))):
                duties.append(Due(rule, tools))
        return duties

    def _tools_due(self, rule: Rule, look: RuleCheck) -> tuple[str, ...]:
        """Return the tools of which a rule wants one before the end, and has not got it."""
        history = self.history
        if rule.kind is RuleKind.FOLLOWED_BY:
            return rule.tools if self._is_follow_up_due(rule) else ()
        if rule.kind is RuleKind.BEFORE_EXIT:
            applies = not rule.tools or any(history.any(tool, RUN) for tool in rule.tools)
        elif rule.kind is RuleKind.PERIODIC:
            times = (look.last(name) for name in look.matching_tools((rule.tool,)))
            applies = all(at is None or look.now - at >= rule.seconds * 1000 for at in times)
        else:
            return ()
        return (rule.tool,) if applies and not history.any(rule.tool, SETTLED) else ()

    def _is_follow_up_due(self, rule: Rule) -> bool:
        owed = False
        for call in self.history.calls:
            if call.state in SETTLED and rule.names(call.name):
                owed = False
            elif call.state is ResultState.OK and rule.is_for(call.name):
                owed = True
        return owed

    def ending_call(self) -> CallRecord | None:
        """Return the call that ends the turn, by a rule that says so."""
        return next(
            (
                call
                for call in self.history.calls
                if call.state is ResultState.OK and self._ends(call.name)
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
    def success_times(self) -> dict[str, int]:
        """When tools with rules about time succeeded in this turn."""
        timed = [rule for rule in self.rules if rule.kind in OF_TIME]
        return {
            call.name: call.at
            for call in self.history.calls
            if call.state in (ResultState.OK, ResultState.UNKNOWN)
            and any(rule.is_for(call.name) for rule in timed)
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
    descriptions: list[dict[str, Any]] = orjson.loads(tools)
    for description in descriptions:
        function = description["function"]
        mine = [rule.operations for rule in allowing if rule.is_for(function["name"])]
        if mine:
            _narrow(function["parameters"], mine)
    return orjson.dumps(descriptions)


def _narrow(schema: dict[str, Any], allowed: Sequence[Sequence[str]]) -> None:
    properties: dict[str, Any] = schema.get("properties", {})
    described = properties.get("operation")
    if not isinstance(described, dict):
        return
    known: dict[str, Any] = dict(described)  # pyright: ignore[reportUnknownArgumentType] - JSON
    reference = str(known.pop("$ref", "")).rpartition("/")[2]
    definition: dict[str, Any] = schema.get("$defs", {}).get(reference, known)
    # What is open to it and is not there (any more) is not offered.
    there: list[str] = definition.get("enum") or list(allowed[0])
    left = [operation for operation in there if all(operation in each for each in allowed)]
    remaining = {name: known[name] for name in ("description", "default") if name in known}
    if remaining.get("default", left[:1]) not in (*left, left[:1]):
        remaining.pop("default", None)
    properties["operation"] = {**remaining, "type": "string", "enum": left}


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
    """The state that a check of a rule reads."""

    rules: Sequence[Rule]
    tools: Sequence[str]
    """The tools that the agent has: a rule that wants another is not held against it."""
    ran: Mapping[str, int]
    """When tools succeeded in earlier turns."""
    history: CallHistory
    now: int
    pending: Sequence[Attempt] = ()
    """Calls that were let pass and have no result yet: what depends on it is refused."""

    def matching_tools(self, patterns: Iterable[str]) -> list[str]:
        """Return the agent's tools that fit names and patterns."""
        return [name for pattern in patterns for name in self.tools if fits(name, pattern)]

    def open_tools(self, patterns: Iterable[str]) -> list[str]:
        """Return the fitting tools that can still be called in this turn."""
        return [name for name in self.matching_tools(patterns) if not self.is_unreachable(name)]

    def callable_tools(self, patterns: Iterable[str]) -> list[str]:
        """Return the fitting tools that can be called now, apart from rules about order.

        Where there is none, such a rule is not held against anybody: it would leave no way out.
        """
        look = replace(self, pending=()) if self.pending else self
        rules = [rule for rule in self.rules if rule.kind in CHECKS and rule.kind not in _OF_ORDER]
        return [
            name
            for name in self.matching_tools(patterns)
            if not any(CHECKS[rule.kind](look, rule, Attempt(name)) for rule in rules)
        ]

    def reachable_tools(self, wanted: Sequence[str]) -> list[str]:
        """Return the tools that can be reached from here if all calls succeed.

        Rules of what comes next may lead into a circle, which other rules must not wait to leave.
        """
        latest = self.history.latest
        if not any(rule.kind is RuleKind.NEXT and rule.is_for(latest) for rule in self.rules):
            return list(wanted)
        reachable: set[str] = set()
        ways, seen = deque([self.history.calls]), set[tuple[str, ...]]()
        while ways and len(seen) < _MAX_WAYS and not reachable.issuperset(wanted):
            calls = ways.popleft()
            look = replace(self, history=CallHistory(calls), pending=())
            for name in self.tools:
                if any(
                    CHECKS[rule.kind](look, rule, Attempt(name))
                    for rule in self.rules
                    if rule.kind in CHECKS
                ):
                    continue
                reachable.add(name)
                call = CallRecord("", Call("", name, "{}"), ResultState.OK, "", self.now)
                way = [*calls, call]
                key = (name, *sorted(record.name for record in way))
                if key not in seen:
                    seen.add(key)
                    ways.append(way)
        return [name for name in wanted if name in reachable]

    def follows(self, rule: Rule) -> bool:
        """Tell whether the tool that succeeded last is among the others of a rule."""
        latest = self.history.latest
        return bool(latest) and rule.names(latest)

    def last(self, name: str) -> int | None:
        """Return when a tool was last called with success, in this turn or an earlier one."""
        times = (self.history.last_success(name), self.ran.get(name))
        return max((at for at in times if at is not None), default=None)

    def is_unreachable(self, name: str, seen: tuple[str, ...] = ()) -> bool:
        """Tell whether a tool cannot be called any more in this turn, after any other call."""
        if name in seen or self.history.any(name, frozenset({ResultState.DENIED})):
            return True
        attempt, seen = Attempt(name), (*seen, name)
        look = replace(self, pending=()) if self.pending else self

        def gone(patterns: Iterable[str]) -> bool:
            return all(look.is_unreachable(tool, seen) for tool in look.matching_tools(patterns))

        for rule in self.rules:
            if rule.kind in _FOR_GOOD:
                if CHECKS[rule.kind](look, rule, attempt) is not None:
                    return True
            elif rule.kind is RuleKind.PRECEDING and rule.is_for(name):
                if any(
                    gone((tool,)) for tool in rule.tools if not self.history.has_succeeded(tool)
                ):
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
    starts = [rule.tool for rule in look.rules if rule.kind is RuleKind.START]
    if any(fits(attempt.name, start) for start in starts):
        return None
    # A start that failed or was denied is a start: else nothing could be done without it.
    tried = frozenset(set(ResultState) - {ResultState.WAITING})
    if any(look.history.any(start, tried) for start in starts):
        return None
    there = look.callable_tools(starts)
    if not there:
        return None
    what = f"{one_of(there)} has to be called before any other tool in this turn"
    return _refused(rule, what, f"Call {there[0]} first", needs=there[0])


def _preceding(look: RuleCheck, rule: Rule, attempt: Attempt) -> Refusal | None:
    if not rule.is_for(attempt.name):
        return None
    lacking = [tool for tool in rule.tools if not look.history.has_succeeded(tool)]
    if not lacking:
        return None
    what = f"{attempt.name} can be called only after {one_of(lacking[:1])} has succeeded"
    for name in lacking:
        if not look.open_tools((name,)):
            what += f", and {name} cannot be called in this turn"
            return _refused(rule, what, f"Go on without {attempt.name}")
    first = look.open_tools(lacking[:1])[0]
    return _refused(rule, what, f"Call {first} first", needs=first)


def _right_after(look: RuleCheck, rule: Rule, attempt: Attempt) -> Refusal | None:
    if not rule.is_for(attempt.name) or (not look.pending and look.follows(rule)):
        return None
    what = f"{attempt.name} can be called only right after {one_of(rule.tools)}"
    there = look.open_tools(rule.tools)
    if not there:
        return _refused(rule, what, f"Go on without {attempt.name}")
    return _refused(rule, what, f"Call {there[0]} first", needs=there[0])


def _next(look: RuleCheck, rule: Rule, attempt: Attempt) -> Refusal | None:
    if rule.names(attempt.name):
        return None
    latest = look.history.latest
    if not latest or not rule.is_for(latest):
        waits = next((pending.name for pending in look.pending if rule.is_for(pending.name)), None)
        what = f"it depends on what becomes of {waits}"
        return _refused(rule, what, "Call it later") if waits else None
    binding = [
        other for other in look.rules if other.kind is RuleKind.NEXT and other.is_for(latest)
    ]
    there = [
        name
        for name in look.callable_tools(rule.tools)
        if all(other.names(name) for other in binding)
    ]
    if not there:
        return None
    what = f"right after {latest}, only {one_of(there)} can be called"
    return _refused(rule, what, f"Call {there[0]} next", needs=there[0])


def _not_after(look: RuleCheck, rule: Rule, attempt: Attempt) -> Refusal | None:
    if not rule.is_for(attempt.name):
        return None
    for tool in rule.tools:
        # `*` among the others means the others.
        itself = "" if tool == attempt.name else attempt.name
        if look.history.any(tool, TAKEN, but=itself) or any(
            fits(other.name, tool) and other.name != itself for other in look.pending
        ):
            what = f"{attempt.name} cannot be called after {one_of([tool])} in the same turn"
            return _refused(rule, what, f"Go on without {attempt.name}")
    return None


def _exclusive(look: RuleCheck, rule: Rule, attempt: Attempt) -> Refusal | None:
    group = (rule.tool, *rule.tools)
    if not any(fits(attempt.name, pattern) for pattern in group):
        return None
    used = [call.name for call in look.history.calls if call.state in TAKEN]
    for name in (*used, *(pending.name for pending in look.pending)):
        if name != attempt.name and any(fits(name, pattern) for pattern in group):
            what = f"{name} was used in this turn, which excludes {attempt.name}"
            return _refused(rule, what, f"Go on without {attempt.name}")
    return None


def _max_calls(look: RuleCheck, rule: Rule, attempt: Attempt) -> Refusal | None:
    if not rule.is_for(attempt.name):
        return None
    count = sum(pending.name == attempt.name for pending in look.pending)
    count += sum(
        call.name == attempt.name and call.state is not ResultState.DENIED
        for call in look.history.calls
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
    if any(pending.name == attempt.name for pending in look.pending):
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
    described = (
        f"the operation {attempt.operation!r}" if attempt.operation else "a call without one"
    )
    allowed = ", ".join(rule.operations)
    what = f"of {attempt.name}, you may use the operations {allowed}, not {described}"
    return _refused(rule, what, "Use one of these")


def repetition_error(look: RuleCheck, attempt: Attempt) -> Refusal | None:
    """Return why a call to the outside is a mistaken repetition, or None if it is not.

    It is one if the same call was made before, did not fail, and no other has succeeded since.
    """
    wanted = _same(attempt.arguments)
    if any(
        pending.name == attempt.name and _same(pending.arguments) == wanted
        for pending in look.pending
    ):
        return Refusal(REPEATED, f"Error: {attempt.name} is under way with the same arguments.")
    for call in reversed(look.history.calls):
        if call.name == attempt.name and _same(call.call.arguments) == wanted:
            return _refuse_repeated(call) if call.state in TAKEN else None
        if call.state is ResultState.OK:
            return None
    return None


def _refuse_repeated(call: CallRecord) -> Refusal:
    result = call.result if len(call.result) <= _QUOTED else f"{call.result[:_QUOTED]}…"
    return Refusal(
        REPEATED,
        f"Error: not run, since you have just called {call.name} with the same arguments. Its "
        f"result was: {result} Use that. If it has to be done once more, look with another tool at "
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
    result: str
    """What came back."""
    at: int

    @property
    def name(self) -> str:
        """The tool that was called."""
        return self.call.name


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a call is not made: the rule, what is right now, and the next move."""

    rule: str
    """The key of the rule."""
    text: str
    needs: str | None = None
    """The tool that has to be called first, if that is what the rule wants."""

    def meta(self) -> ResultMeta:
        """Return the metadata of the refused call's result."""
        return ResultMeta(ResultState.NOT_RUN, rule=self.rule, needs=self.needs)


class AnyEntry(Protocol):
    """An entry of the journal, written or staged."""

    @property
    def kind(self) -> EntryKind:
        """The kind of the entry."""
        ...

    @property
    def body(self) -> bytes:
        """The content."""
        ...

    @property
    def meta(self) -> str | None:
        """The metadata, as JSON."""
        ...

    @property
    def at_ms(self) -> int:
        """When it was noted."""
        ...


@dataclass(slots=True)
class CallHistory:
    """The calls of a turn, in the order in which they came to an end."""

    calls: list[CallRecord] = field(default_factory=list[CallRecord])
    refused: list[tuple[int, Refusal]] = field(default_factory=list[tuple[int, Refusal]])
    """Refusals with the steps they were in."""
    resolve: Callable[[str, str], tuple[str, str]] = lambda name, arguments: (name, arguments)
    """From a call's name and arguments to those of the call that is meant by it."""
    _calls: dict[str, Call] = field(default_factory=dict[str, Call])
    _approved: dict[str, bool] = field(default_factory=dict[str, bool])
    _seen: int = 0

    def read(self, entries: Mapping[str, AnyEntry]) -> None:
        """Read the new journal entries of the turn."""
        if len(entries) == self._seen:
            return
        for key, entry in islice(entries.items(), self._seen, None):
            if entry.kind is EntryKind.REPLY:
                step = key.partition("/")[0]
                for index, call in enumerate(Reply.from_entry(entry.body, entry.meta).calls):
                    name, arguments = self.resolve(call.name, call.arguments)
                    if name != call.name:
                        call = Call(call.id, name, arguments)  # noqa: PLW2901 - what it stands for
                    self._calls[f"{step}/call/{index}"] = call
            elif entry.kind is EntryKind.RESULT:
                self._read_result(key, entry)
            elif key.endswith("/decision"):
                decision: dict[str, Any] = orjson.loads(entry.body)
                self._approved[_call_key(key)] = bool(decision["approved"])
            elif key.endswith("/outcome"):
                self._read_outcome(_call_key(key), entry)
        self._seen = len(entries)

    def _read_result(self, key: str, entry: AnyEntry) -> None:
        call = self._calls.get(key)
        if call is None:
            return
        meta, text = ResultMeta.from_json(entry.meta), text_of(entry.body)
        if meta.rule is not None:
            step = int(key.partition("/")[0])
            self.refused.append((step, Refusal(meta.rule, text, meta.needs)))
        elif meta.state is not ResultState.NOT_RUN:
            self.calls.append(CallRecord(key, call, meta.state, text, entry.at_ms))

    def _read_outcome(self, key: str, entry: AnyEntry) -> None:
        """Take in that a call which waited has run, or was denied: now is when it happened."""
        former = next((call for call in self.calls if call.key == key), None)
        state = ResultMeta.from_json(entry.meta).state
        if former is None or state is ResultState.WAITING:
            return
        self.calls.remove(former)
        text = text_of(entry.body)
        if self._approved.get(key):
            text = text.partition(" Result: ")[2]
        self.calls.append(CallRecord(key, former.call, state, text, entry.at_ms))

    def any(self, pattern: str, states: frozenset[ResultState], *, but: str = "") -> bool:
        """Tell whether a call that fits a pattern stands in one of these states."""
        return any(
            call.state in states and fits(call.name, pattern) and call.name != but
            for call in self.calls
        )

    def has_succeeded(self, pattern: str) -> bool:
        """Tell whether a call that fits a pattern has succeeded."""
        return any(call.state is ResultState.OK and fits(call.name, pattern) for call in self.calls)

    @property
    def latest(self) -> str:
        """The tool that succeeded last, or nothing."""
        return next(
            (call.name for call in reversed(self.calls) if call.state is ResultState.OK), ""
        )

    def last_success(self, name: str) -> int | None:
        """Return when a tool was last called with success, perhaps or surely."""
        return max(
            (call.at for call in self.calls if call.name == name and call.state in TAKEN),
            default=None,
        )


def _call_key(key: str) -> str:
    """Return the call that a key such as `0/call/0/decision` is about."""
    return "/".join(key.split("/")[:3])
