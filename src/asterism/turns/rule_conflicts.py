"""Contradictions: sets of rules that no agent could keep, found when they are written."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

from asterism.types.agents import Rule, RuleKind, fits, is_pattern

_NEEDS = (RuleKind.PRECEDING, RuleKind.RIGHT_AFTER)
_BEFORE_THE_END = (RuleKind.BEFORE_EXIT, RuleKind.FOLLOWED_BY, RuleKind.PERIODIC)
_ONE_AFTER_THE_OTHER = {
    RuleKind.PRECEDING: all,
    RuleKind.RIGHT_AFTER: any,
}


def contradiction(rules: Sequence[Rule], tools: Sequence[str]) -> str | None:
    """Return why no agent with these tools could keep all of these rules, or None if one could."""
    return next(_found(rules, tools), None)


def _found(rules: Sequence[Rule], tools: Sequence[str]) -> Iterator[str]:
    for one, other in combinations(rules, 2):
        for first, second in ((one, other), (other, one)):
            yield from _pair(first, second)
    yield from _operations(rules, tools)
    yield from _out_of_reach(rules, tools)
    yield from _excluded(rules)
    yield from _never_next(rules)
    yield from _circles(rules, tools)


def _pair(one: Rule, other: Rule) -> Iterator[str]:
    same = one.tool == other.tool
    if one.kind is RuleKind.START and other.kind in _NEEDS and other.is_for(one.tool):
        yield _both(one, other, f"{one.tool} cannot be both first and after another tool")
    if one.kind in _NEEDS and other.kind is RuleKind.NOT_AFTER and same and _meet(one, other.tools):
        yield _both(one, other, f"{one.tool} could never be called")
    if one.kind is RuleKind.EXIT_LOOP and other.kind is RuleKind.CONTINUE_LOOP and same:
        yield _both(one, other, f"a turn cannot both end and go on after {one.tool}")
    if (
        one.kind is RuleKind.PERIODIC
        and other.kind is RuleKind.COOLDOWN
        and same
        and one.seconds < other.seconds
    ):
        yield _both(one, other, f"{one.tool} would be due before it can be called again")
    if (
        one.kind in (RuleKind.FOLLOWED_BY, RuleKind.NEXT)
        and other.kind is RuleKind.NOT_AFTER
        and set(one.tools) == {other.tool}
        and one.tool in other.tools
    ):
        yield _both(one, other, f"nothing could follow {one.tool}")


def _meet(rule: Rule, tools: Sequence[str]) -> bool:
    """Tell whether what a rule needs is among these tools."""
    enough = _ONE_AFTER_THE_OTHER[rule.kind]
    among = [tool in tools for tool in rule.tools]
    return any(among) if enough is all else all(among)


def _excluded(rules: Sequence[Rule]) -> Iterator[str]:
    for group in (one for one in rules if one.kind is RuleKind.EXCLUSIVE):
        members = {one for one in (group.tool, *group.tools) if not is_pattern(one)}
        always: list[Rule] = []
        for rule in rules:
            if rule.tool not in members:
                continue
            if rule.kind is RuleKind.BEFORE_EXIT and not rule.tools:
                always.append(rule)
            elif rule.kind is RuleKind.PRECEDING and members & set(rule.tools):
                yield _both(rule, group, f"{rule.tool} could never be called")
            elif rule.kind in (RuleKind.RIGHT_AFTER, RuleKind.FOLLOWED_BY, RuleKind.NEXT):
                others = set(rule.tools) - {rule.tool}
                if others and others <= members and rule.tool not in rule.tools:
                    yield _both(rule, group, f"{rule.tool} excludes what has to go with it")
        if len({rule.tool for rule in always}) > 1:
            yield _both(always[0], group, f"{always[0].tool} and {always[1].tool} are both needed")


def _never_next(rules: Sequence[Rule]) -> Iterator[str]:
    """Find tools that have to come right after others, after which something else has to come."""
    after = [one for one in rules if one.kind is RuleKind.NEXT]
    for rule in rules:
        if rule.kind is not RuleKind.RIGHT_AFTER:
            continue
        against = [
            next((one for one in after if one.is_for(tool) and not one.names(rule.tool)), None)
            for tool in rule.tools
        ]
        if against[0] is not None and all(against):
            yield _both(rule, against[0], f"{rule.tool} could never be called")


def _circles(rules: Sequence[Rule], tools: Sequence[str]) -> Iterator[str]:
    """Find tools that lead to each other for ever, while another is wanted before the end."""
    binding = [one for one in rules if one.kind is RuleKind.NEXT]

    def after(name: str) -> list[str]:
        mine = [one for one in binding if one.is_for(name)]
        return [tool for tool in tools if mine and all(one.names(tool) for one in mine)]

    for rule in binding:
        for name in (tool for tool in tools if rule.is_for(tool)):
            circle, new = {name}, after(name)
            while new and all(map(after, new)):
                circle.update(new)
                new = [tool for one in new for tool in after(one) if tool not in circle]
            if after(name) and circle >= set(after(name)) and not new:
                yield from _outside(rules, rule, circle)


def _outside(rules: Sequence[Rule], way_in: Rule, circle: set[str]) -> Iterator[str]:
    for rule in rules:
        wanted = rule.tools if rule.kind is RuleKind.FOLLOWED_BY else (rule.tool,)
        if rule.kind in _BEFORE_THE_END and not any(fits(t, p) for t in circle for p in wanted):
            yield _both(rule, way_in, f"there is no way from {way_in.tool} to {wanted[0]}")


def _operations(rules: Sequence[Rule], tools: Sequence[str]) -> Iterator[str]:
    for name in tools:
        mine = [one for one in rules if one.kind is RuleKind.OPERATIONS and one.is_for(name)]
        open_to_all = (
            [
                operation
                for operation in mine[0].operations
                if all(operation in rule.operations for rule in mine)
            ]
            if mine
            else []
        )
        if mine and not open_to_all:
            yield _both(mine[0], mine[1], f"no operation of {name} would be open")


def _out_of_reach(rules: Sequence[Rule], tools: Sequence[str]) -> Iterator[str]:
    """Find tools that need each other first."""
    needs = [one for one in rules if one.kind in _NEEDS]
    reached: set[str] = set()
    while True:
        more = {
            name
            for name in tools
            if name not in reached
            and all(_is_reached(rule, reached) for rule in needs if rule.is_for(name))
        }
        if not more:
            break
        reached |= more
    for name in sorted(set(tools) - reached):
        mine = next(rule for rule in needs if rule.is_for(name) and not _is_reached(rule, reached))
        yield (
            f'{name} could never be called: "{mine}" But what it needs is not among the agent\'s '
            "tools, or needs it in turn."
        )


def _is_reached(rule: Rule, reached: set[str]) -> bool:
    enough = _ONE_AFTER_THE_OTHER[rule.kind]
    return enough(any(fits(name, pattern) for name in reached) for pattern in rule.tools)


def _both(one: Rule, other: Rule, why: str) -> str:
    return f'Two rules contradict each other: "{one}" and "{other}" For {why}.'
