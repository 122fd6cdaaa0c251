"""Rules hold whatever is called, and whoever keeps them is never refused: judged from outside."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
from itertools import product

import orjson
import pytest
from hypothesis import assume, event, given
from hypothesis import strategies as st

from asterism.app.rules import contradiction
from asterism.store.journal import Draft
from asterism.turns.rules import Attempt, RuleState
from asterism.types.agents import Rule, RuleKind
from asterism.types.turns import Call, EntryKind, Reply, result_wire

TOOLS = ["a", "b", "c", "x_1", "x_2"]
KINDS = [kind for kind in RuleKind if kind not in (RuleKind.CONSENT, RuleKind.OPERATIONS)]
START, STEP = 1_000_000, 700

names = st.sampled_from([*TOOLS, "x_*", "*"])
some_names = st.lists(names, min_size=1, max_size=2, unique=True).map(tuple)


@st.composite
def rule(draw: st.DrawFn) -> Rule:
    """A rule for one of a few tools, with as little time as a few calls take."""
    kind = draw(st.sampled_from(KINDS))
    others = draw(some_names) if kind not in (RuleKind.MAX_CALLS, *_TIMES, *_ALONE) else ()
    return Rule(
        draw(names),
        kind,
        others if kind is not RuleKind.BEFORE_EXIT or draw(st.booleans()) else (),
        count=draw(st.integers(1, 2)) if kind is RuleKind.MAX_CALLS else 0,
        seconds=draw(st.sampled_from([1.0, 2.0])) if kind in _TIMES else 0.0,
        priority=draw(st.integers(4, 6)),
    )


_TIMES = (RuleKind.COOLDOWN, RuleKind.PERIODIC)
_ALONE = (RuleKind.START, RuleKind.EXIT_LOOP, RuleKind.CONTINUE_LOOP)
rule_sets = st.lists(rule(), min_size=1, max_size=5, unique=True)


# -- a turn, as the journal has it ---------------------------------------------------------------


@dataclass
class Scene:
    """A turn that is played against the engine; what was run is noted beside it."""

    rules: Sequence[Rule]
    ran: dict[str, int] = field(default_factory=dict[str, int])
    now: int = START
    done: list[tuple[str, str, int]] = field(default_factory=list[tuple[str, str, int]])
    journal: dict[str, Draft] = field(default_factory=dict[str, Draft])

    def __post_init__(self) -> None:
        self.course = RuleState(self.rules, TOOLS, self.ran)

    def refused(self, name: str) -> bool:
        """Tell whether the engine would refuse a call now."""
        self.course.read(self.journal)
        return self.course.refusal(Attempt(name), self.now) is not None

    def call(self, name: str, outcome: str = "ok") -> None:
        """Write a call and its result into the journal."""
        step, text = len(self.done), {"ok": "Done.", "failed": "Error: no."}[outcome]
        reply = Reply(calls=(Call(f"call_{step}", name, "{}"),))
        for kind, key, body in (
            (EntryKind.REPLY, f"{step}/reply", reply.wire()),
            (EntryKind.RESULT, f"{step}/call/0", result_wire(f"call_{step}", text)),
        ):
            meta = reply.meta() if kind is EntryKind.REPLY else None
            self.journal[key] = Draft(kind, key, body, self.now, meta)
        self.done.append((name, outcome, self.now))
        self.now += STEP

    def due(self) -> bool:
        """Tell whether the engine wants something before the turn ends."""
        self.course.read(self.journal)
        return bool(self.course.due_calls(self.now))

    def copy(self) -> "Scene":
        """A turn that stands where this one does, read anew from its journal."""
        return Scene(self.rules, self.ran, self.now, [*self.done], {**self.journal})


# -- the judge, who knows the finished sequence and nothing of the engine ------------------------


def fit(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch(name, pattern) for pattern in patterns)


def breaks(scene: Scene, name: str, *, order: bool = True) -> set[RuleKind]:
    """The kinds of rules that a call of a tool, after what was done, would break."""
    ok = [tool for tool, outcome, _ in scene.done if outcome == "ok"]
    found: set[RuleKind] = set()

    def of(kind: RuleKind) -> list[Rule]:
        return [one for one in scene.rules if one.kind is kind]

    for one in of(RuleKind.PRECEDING):
        if fit(name, [one.tool]) and not all(any(fit(t, [p]) for t in ok) for p in one.tools):
            found.add(one.kind)
    for one in of(RuleKind.RIGHT_AFTER):
        if fit(name, [one.tool]) and not (ok and fit(ok[-1], one.tools)):
            found.add(one.kind)
    found |= breaks_bounds(scene, name, ok)
    return found | breaks_order(scene, name, ok) if order else found


def breaks_bounds(scene: Scene, name: str, ok: list[str]) -> set[RuleKind]:
    """What must not be done any more, since something else was, or it was, or just now."""
    found: set[RuleKind] = set()

    def of(kind: RuleKind) -> list[Rule]:
        return [one for one in scene.rules if one.kind is kind]

    for one in of(RuleKind.NOT_AFTER):
        others = [t for t in ok if t != name or name in one.tools]
        if fit(name, [one.tool]) and any(fit(t, one.tools) for t in others):
            found.add(one.kind)
    for one in of(RuleKind.EXCLUSIVE):
        group = (one.tool, *one.tools)
        if fit(name, group) and {t for t in ok if fit(t, group)} - {name}:
            found.add(one.kind)
    for one in of(RuleKind.MAX_CALLS):
        if fit(name, [one.tool]) and [t for t, _, _ in scene.done].count(name) >= one.count:
            found.add(one.kind)
    for one in of(RuleKind.COOLDOWN):
        times = [at for t, outcome, at in scene.done if t == name and outcome == "ok"]
        times += [scene.ran[name]] if name in scene.ran else []
        if fit(name, [one.tool]) and any(scene.now - at < one.seconds * 1000 for at in times):
            found.add(one.kind)
    return found


def breaks_order(scene: Scene, name: str, ok: list[str]) -> set[RuleKind]:
    """What comes first and next counts where something of it can be called at all."""
    found: set[RuleKind] = set()
    can = [tool for tool in TOOLS if not breaks(scene, tool, order=False)]
    starts = [one.tool for one in scene.rules if one.kind is RuleKind.START]
    if starts and not fit(name, starts) and not any(fit(t, starts) for t, _, _ in scene.done):
        found |= {RuleKind.START} if any(fit(tool, starts) for tool in can) else set()
    if ok:
        sets = [
            one.tools
            for one in scene.rules
            if one.kind is RuleKind.NEXT and fit(ok[-1], [one.tool])
        ]
        way_out = [tool for tool in can if all(fit(tool, one) for one in sets)]
        if way_out and not all(fit(name, one) for one in sets):
            found.add(RuleKind.NEXT)
    return found


def ended(scene: Scene) -> bool:
    """Whether a tool has succeeded that ends turns."""

    def fits_any(name: str, kind: RuleKind) -> bool:
        return fit(name, [one.tool for one in scene.rules if one.kind is kind])

    return any(
        outcome == "ok"
        and fits_any(name, RuleKind.EXIT_LOOP)
        and not fits_any(name, RuleKind.CONTINUE_LOOP)
        for name, outcome, _ in scene.done
    )


def owed(scene: Scene) -> list[tuple[str, ...]]:
    """What has yet to succeed before the turn ends, one of each."""
    ok = [tool for tool, outcome, _ in scene.done if outcome == "ok"]
    found: list[tuple[str, ...]] = []
    for one in scene.rules:
        if one.kind is RuleKind.BEFORE_EXIT:
            if (not one.tools or any(fit(t, one.tools) for t, _, _ in scene.done)) and not any(
                fit(t, [one.tool]) for t in ok
            ):
                found.append((one.tool,))
        elif one.kind is RuleKind.FOLLOWED_BY:
            first = max((i for i, t in enumerate(ok) if fit(t, [one.tool])), default=-1)
            then = max((i for i, t in enumerate(ok) if fit(t, one.tools)), default=-1)
            if first > then:
                found.append(one.tools)
        elif one.kind is RuleKind.PERIODIC:
            times = [at for t, outcome, at in scene.done if outcome == "ok" and fit(t, [one.tool])]
            times += [at for t, at in scene.ran.items() if fit(t, [one.tool])]
            if not any(scene.now - at < one.seconds * 1000 for at in times) and not any(
                fit(t, [one.tool]) for t in ok
            ):
                found.append((one.tool,))
    return found


def reachable(scene: Scene, wanted: tuple[str, ...], depth: int = 3) -> bool:
    """Whether some calls that keep the rules lead to one of these tools."""
    if any(fit(tool, wanted) and not breaks(scene, tool) for tool in TOOLS):
        return True
    if depth == 1:
        return False
    for tool in TOOLS:
        if not breaks(scene, tool):
            after = scene.copy()
            after.call(tool)
            after.now = scene.now
            if reachable(after, wanted, depth - 1):
                return True
    return False


def way_to_the_end(scene: Scene, depth: int = 4) -> bool:
    """Whether some calls that the engine lets pass lead to where it lets the turn end."""
    if not scene.due():
        return True
    for tool in TOOLS if depth else ():
        if not scene.refused(tool):
            after = scene.copy()
            after.call(tool)
            if way_to_the_end(after, depth - 1):
                return True
    return False


wishes = st.lists(
    st.tuples(st.sampled_from(TOOLS), st.sampled_from(["ok", "ok", "ok", "failed"])), max_size=7
)
pasts = st.dictionaries(st.sampled_from(TOOLS), st.sampled_from([START - 200, START - 1_500]))


@pytest.mark.promise("S2")
@given(rule_sets, wishes, pasts)
def test_no_executed_sequence_violates_a_rule(
    rules: list[Rule], wanted: list[tuple[str, str]], ran: dict[str, int]
):
    assume(contradiction(rules, TOOLS) is None)
    scene = Scene(rules, ran)
    for name, outcome in wanted:
        if scene.refused(name):
            event("refused")
            continue
        assert not breaks(scene, name), (name, scene.done)
        assert not ended(scene) or scene.due()
        scene.call(name, outcome)
    if not scene.due():
        event("ended")
        for tools in owed(scene):
            assert not reachable(scene, tools), (tools, scene.done)


@pytest.mark.promise("S2")
@given(rule_sets, wishes, pasts)
def test_whoever_keeps_the_rules_is_never_refused_and_can_always_end(
    rules: list[Rule], wanted: list[tuple[str, str]], ran: dict[str, int]
):
    assume(contradiction(rules, TOOLS) is None)
    scene = Scene(rules, ran)
    for name, outcome in wanted:
        if breaks(scene, name) or ended(scene):
            continue
        assert not scene.refused(name), (name, scene.done)
        scene.call(name, outcome)
        event("called")
    assert way_to_the_end(scene), scene.done


@pytest.mark.promise("S2", "T2")
@given(rule_sets, wishes, pasts)
def test_a_course_that_is_read_anew_comes_to_the_same_verdicts(
    rules: list[Rule], wanted: list[tuple[str, str]], ran: dict[str, int]
):
    scene = Scene(rules, ran)
    for name, outcome in wanted:
        anew = scene.copy()
        assert [anew.refused(tool) for tool in TOOLS] == [scene.refused(tool) for tool in TOOLS]
        assert anew.due() == scene.due()
        if not scene.refused(name):
            scene.call(name, outcome)


@pytest.mark.promise("S2")
def test_the_judge_finds_what_a_blind_engine_lets_pass():
    """The judge is no echo of the engine: without rules to go by, it does find violations."""
    rules = [
        Rule("a", RuleKind.START),
        Rule("b", RuleKind.MAX_CALLS, count=1),
        Rule("c", RuleKind.PRECEDING, ("b",)),
    ]
    found: set[RuleKind] = set()
    for sequence in product(["a", "b", "c"], repeat=3):
        scene = Scene(rules)
        for name in sequence:
            found |= breaks(scene, name)
            scene.call(name)
    assert found == {RuleKind.START, RuleKind.MAX_CALLS, RuleKind.PRECEDING}


def test_scenes_are_journals():
    scene = Scene([])
    scene.call("a")
    assert orjson.loads(scene.journal["0/call/0"].body)["content"] == "Done."
