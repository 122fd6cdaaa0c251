"""The verbs about rules for tools."""

from __future__ import annotations

import builtins
import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from asterism.app.session import Session, note, verbs
from asterism.config.rules import read_rules
from asterism.errors import Conflict, InvalidInput, NotFound
from asterism.permissions import Act
from asterism.store import agents as rows
from asterism.store.database import Connection
from asterism.tools.tool import Toolbox
from asterism.turns.rule_conflicts import contradiction
from asterism.types.agents import AgentRecord, Rule, fits, is_pattern

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
        return [*(await self._now(agent)).rules]

    async def add(self, agent: AgentRecord | str, *rules: Form) -> builtins.list[Rule]:
        """Give an agent more rules; they count from its next turn on.

        Args:
            agent: The agent, or its name or id.
            rules: Rules, or their JSON forms such as
                `{"tool": "web", "kind": "max_calls", "count": 3}`.

        Returns:
            All rules that it has now.
        """
        who, new = await self._now(agent), read_rules(rules)
        kept = [rule for rule in who.rules if rule not in new]
        return await self._put(who, [*kept, *new])

    async def set(self, agent: AgentRecord | str, rules: Iterable[Form]) -> builtins.list[Rule]:
        """Give an agent these rules instead of those it has."""
        return await self._put(await self._now(agent), read_rules(rules))

    async def remove(self, agent: AgentRecord | str, rule: Rule | int) -> Rule:
        """Take a rule from an agent: the rule itself, or its number in the list, from 1 on."""
        who = await self._now(agent)
        if isinstance(rule, int):
            if not 1 <= rule <= len(who.rules):
                raise NotFound(
                    f"{who.name} has {len(who.rules)} rules, and none has the number {rule}. "
                    f'"asterism rule list {who.name}" shows them. Nothing was changed.'
                )
            gone = who.rules[rule - 1]
        elif rule in who.rules:
            gone = rule
        else:
            raise NotFound(f"{who.name} has no rule {rule.key!r}. Nothing was changed.")
        await self._put(who, [one for one in who.rules if one != gone])
        return gone

    async def _now(self, agent: AgentRecord | str) -> AgentRecord:
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
            keys = [one.key for one in new]
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
    """Return the operations of a tool; empty: it takes any, None: it takes none."""
    tool = toolbox.get(name, None)
    assert tool is not None
    schema: dict[str, Any] = tool.wire()["function"]["parameters"]
    described: dict[str, Any] | None = schema.get("properties", {}).get("operation")
    if described is None:
        return None
    reference = str(described.get("$ref", "")).rpartition("/")[2]
    return schema.get("$defs", {}).get(reference, described).get("enum", [])
