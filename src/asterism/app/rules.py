"""The verbs about rules for tools, and the contradictions that a set of rules may hold."""

from __future__ import annotations

import builtins
import difflib
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

from asterism.app.session import Session, note, verbs
from asterism.config.rules import read_rules
from asterism.errors import Conflict, InvalidInput, NotFound
from asterism.permissions import Act
from asterism.store import agents as rows
from asterism.store.database import Connection
from asterism.tools.tool import Toolbox
from asterism.types.agents import AgentRecord, Rule, RuleKind, fits, is_pattern

Form = Rule | Mapping[str, Any]
"""A rule, or its JSON form: ours, Pattern's or Letta's."""
_MAX_RULES = 200


@verbs("rule", list=Act.READ, add=Act.GOVERN, set=Act.GOVERN, remove=Act.GOVERN)
class Rules:
    """Rules for the tools of agents: told to the model, and enforced."""

    def __init__(self, session: Session, toolbox: Toolbox) -> None:
        self._session = session
        self._toolbox = toolbox

    async def list(self, agent: AgentRecord | str) -> list[Rule]:
        """Return the rules of an agent, in the order in which they were given."""
        return [*(await self._current(agent)).rules]

    async def add(self, agent: AgentRecord | str, *rules: Form) -> builtins.list[Rule]:
        """Give an agent more rules; they count from its next turn on.

        Args:
            agent: The agent, or its name or id.
            rules: Rules, or their JSON forms such as
                `{"tool": "web", "kind": "max_calls", "count": 3}`.

        Returns:
            All rules that it has now.
        """
        who, new = await self._current(agent), read_rules(rules)
        former = [rule for rule in who.rules if rule not in new]
        return await self._put(who, [*former, *new])

    async def set(self, agent: AgentRecord | str, rules: Iterable[Form]) -> builtins.list[Rule]:
        """Replace the rules of an agent."""
        return await self._put(await self._current(agent), read_rules(rules))

    async def remove(self, agent: AgentRecord | str, rule: Rule | int) -> Rule:
        """Take a rule from an agent: the rule itself, or its number in the list, from 1 on."""
        who = await self._current(agent)
        if isinstance(rule, int):
            if not 1 <= rule <= len(who.rules):
                raise NotFound(
                    f"{who.name} has {len(who.rules)} rules, and none has the number {rule}. "
                    f'"asterism rule list {shlex.quote(who.name)}" shows them. Nothing was changed.'
                )
            gone = who.rules[rule - 1]
        elif rule in who.rules:
            gone = rule
        else:
            raise NotFound(f"{who.name} has no rule {rule.key!r}. Nothing was changed.")
        await self._put(who, [rule for rule in who.rules if rule != gone])
        return gone

    async def _current(self, agent: AgentRecord | str) -> AgentRecord:
        # An agent that was handed in may have been given other rules since.
        return await self._session.agent(agent.id if isinstance(agent, AgentRecord) else agent)

    async def _put(self, agent: AgentRecord, rules: Sequence[Rule]) -> builtins.list[Rule]:
        new = list(dict.fromkeys(rules))
        if len(new) > _MAX_RULES:
            raise InvalidInput(
                f"An agent can have {_MAX_RULES} rules, and these are {len(new)}. Patterns such as "
                "'web_*' make them fewer. Nothing was changed."
            )
        tools = self._toolbox.names(agent.tools)
        for rule in new:
            if rule not in agent.rules:
                self._check(agent, rule, tools)
        why = contradiction(new, tools)
        if why is not None:
            raise InvalidInput(f"{why} Change one of them. Nothing was changed.")

        async def work(tx: Connection) -> bool:
            if not await rows.put_rules(tx, agent.id, agent.version, new):
                return False
            keys = [rule.key for rule in new]
            await note(
                *(tx, self._session, "rules.changed"),
                by="api",
                agent_id=agent.id,
                what=agent.name,
                rules=keys,
            )
            return True

        if not await self._session.database.write(work):
            raise Conflict(
                f"{agent.name} was changed by somebody else meanwhile. Look at its rules and try "
                "again. Nothing was changed."
            )
        self._session.drop(agent.id)
        return new

    def _check(self, agent: AgentRecord, rule: Rule, tools: Sequence[str]) -> None:
        for name in (rule.tool, *rule.tools):
            if any(fits(tool, name) for tool in tools):
                continue
            what = "fits the pattern" if is_pattern(name) else "is named"
            near = difflib.get_close_matches(name, tools, 1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise NotFound(
                f"No tool of {agent.name} {what} {name!r}.{hint} "
                '"asterism tool list" shows the tools there are. Nothing was changed.'
            )
        if rule.operations:
            self._check_operations(agent, rule)

    def _check_operations(self, agent: AgentRecord, rule: Rule) -> None:
        for name in self._toolbox.names(agent.tools):
            if is_pattern(rule.tool) or not rule.is_for(name):
                continue
            known = _operations_of(self._toolbox, name)
            if known is None:
                raise InvalidInput(
                    f"The tool {name!r} has no operations to choose from. To keep it from "
                    f'{agent.name}, use "asterism agent edit --tool". Nothing was changed.'
                )
            for operation in rule.operations:
                if known and operation not in known:
                    near = difflib.get_close_matches(operation, known, 1)
                    hint = f" Did you mean {near[0]!r}?" if near else ""
                    raise InvalidInput(
                        f"The tool {name!r} has no operation {operation!r}.{hint} "
                        f"There are: {', '.join(known)}. Nothing was changed."
                    )


def _operations_of(toolbox: Toolbox, name: str) -> list[str] | None:
    """Return the operations of a tool; empty: it accepts any, None: it has no operations."""
    tool = toolbox.get(name, None)
    assert tool is not None
    schema: dict[str, Any] = tool.wire()["function"]["parameters"]
    described: dict[str, Any] | None = schema.get("properties", {}).get("operation")
    if described is None:
        return None
    reference = str(described.get("$ref", "")).rpartition("/")[2]
    return schema.get("$defs", {}).get(reference, described).get("enum", [])


# -- contradictions --------------------------------------------------------------------------------

_NEEDS = (RuleKind.PRECEDING, RuleKind.RIGHT_AFTER)
_BEFORE_THE_END = (RuleKind.BEFORE_EXIT, RuleKind.FOLLOWED_BY, RuleKind.PERIODIC)
_ONE_AFTER_THE_OTHER = {
    RuleKind.PRECEDING: all,
    RuleKind.RIGHT_AFTER: any,
}


def contradiction(rules: Sequence[Rule], tools: Sequence[str]) -> str | None:
    """Return why an agent with these tools cannot follow all of these rules, or None if it can."""
    return next(_contradictions(rules, tools), None)


def _contradictions(rules: Sequence[Rule], tools: Sequence[str]) -> Iterator[str]:
    for rule, other in combinations(rules, 2):
        for first, second in ((rule, other), (other, rule)):
            yield from _pair(first, second)
    yield from _operations(rules, tools)
    yield from _out_of_reach(rules, tools)
    yield from _excluded(rules)
    yield from _never_next(rules)
    yield from _circles(rules, tools)


def _pair(rule: Rule, other: Rule) -> Iterator[str]:
    same = rule.tool == other.tool
    if rule.kind is RuleKind.START and other.kind in _NEEDS and other.is_for(rule.tool):
        yield _both(rule, other, f"{rule.tool} cannot be both first and after another tool")
    if (
        rule.kind in _NEEDS
        and other.kind is RuleKind.NOT_AFTER
        and same
        and _meet(rule, other.tools)
    ):
        yield _both(rule, other, f"{rule.tool} could never be called")
    if rule.kind is RuleKind.EXIT_LOOP and other.kind is RuleKind.CONTINUE_LOOP and same:
        yield _both(rule, other, f"a turn cannot both end and go on after {rule.tool}")
    if (
        rule.kind is RuleKind.PERIODIC
        and other.kind is RuleKind.COOLDOWN
        and same
        and rule.seconds < other.seconds
    ):
        yield _both(rule, other, f"{rule.tool} would be due before it can be called again")
    if (
        rule.kind in (RuleKind.FOLLOWED_BY, RuleKind.NEXT)
        and other.kind is RuleKind.NOT_AFTER
        and set(rule.tools) == {other.tool}
        and rule.tool in other.tools
    ):
        yield _both(rule, other, f"nothing could follow {rule.tool}")


def _meet(rule: Rule, tools: Sequence[str]) -> bool:
    """Tell whether the tools that a rule needs are among these tools."""
    enough = _ONE_AFTER_THE_OTHER[rule.kind]
    among = [tool in tools for tool in rule.tools]
    return any(among) if enough is all else all(among)


def _excluded(rules: Sequence[Rule]) -> Iterator[str]:
    for group in (rule for rule in rules if rule.kind is RuleKind.EXCLUSIVE):
        members = {tool for tool in (group.tool, *group.tools) if not is_pattern(tool)}
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
    """Find tools that must come right after a tool which must be followed by another tool."""
    after = [rule for rule in rules if rule.kind is RuleKind.NEXT]
    for rule in rules:
        if rule.kind is not RuleKind.RIGHT_AFTER:
            continue
        against = [
            next(
                (other for other in after if other.is_for(tool) and not other.names(rule.tool)),
                None,
            )
            for tool in rule.tools
        ]
        if against[0] is not None and all(against):
            yield _both(rule, against[0], f"{rule.tool} could never be called")


def _circles(rules: Sequence[Rule], tools: Sequence[str]) -> Iterator[str]:
    """Find tools that lead to each other for ever, while another is wanted before the end."""
    binding = [rule for rule in rules if rule.kind is RuleKind.NEXT]

    def after(name: str) -> list[str]:
        mine = [rule for rule in binding if rule.is_for(name)]
        return [tool for tool in tools if mine and all(rule.names(tool) for rule in mine)]

    for rule in binding:
        for name in (tool for tool in tools if rule.is_for(tool)):
            circle, new = {name}, after(name)
            while new and all(map(after, new)):
                circle.update(new)
                new = [tool for step in new for tool in after(step) if tool not in circle]
            if after(name) and circle >= set(after(name)) and not new:
                yield from _outside(rules, rule, circle)


def _outside(rules: Sequence[Rule], way_in: Rule, circle: set[str]) -> Iterator[str]:
    for rule in rules:
        wanted = rule.tools if rule.kind is RuleKind.FOLLOWED_BY else (rule.tool,)
        if rule.kind in _BEFORE_THE_END and not any(fits(t, p) for t in circle for p in wanted):
            yield _both(rule, way_in, f"there is no way from {way_in.tool} to {wanted[0]}")


def _operations(rules: Sequence[Rule], tools: Sequence[str]) -> Iterator[str]:
    for name in tools:
        mine = [rule for rule in rules if rule.kind is RuleKind.OPERATIONS and rule.is_for(name)]
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
    needs = [rule for rule in rules if rule.kind in _NEEDS]
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


def _both(rule: Rule, other: Rule, why: str) -> str:
    return f'Two rules contradict each other: "{rule}" and "{other}" For {why}.'
