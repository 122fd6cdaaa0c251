"""Tools about tools: `tools` shows what small models are not sent, `propose_plan` asks once."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Annotated, Any, cast

import orjson
from pydantic import BaseModel, BeforeValidator, ConfigDict

from asterism.errors import ToolError
from asterism.records import dataclass
from asterism.store import approvals, events
from asterism.store.events import Event, home_chain
from asterism.tools.builtin.arguments import TEXT, also
from asterism.tools.tool import MoreTools, Tool, Toolbox, ToolContext, tool
from asterism.types.agents import OWNER, AgentRecord, Audience, Participants, new_id
from asterism.types.permissions import (
    Effect,
    Grant,
    ToolEffect,
    arguments_json,
    effects_in_words,
    exact_arguments,
    grant_details,
)
from asterism.types.turns import RetrySafety

# -- tools -----------------------------------------------------------------------------------------

NAME = "tools"
_ABOUT_TOOLS = (
    r"\b(?:your|which|what|list|use|call|more|other|the)\b[\w ]{0,15}\btools?\b"
    r"|\b(?:deine|welche|weitere)\b[\w ]{0,10}\bwerkzeuge?n?\b|\b(?:tus|qu[eé]) herramientas\b"
    r"|\b(?:tes|vos|quels) outils\b|\b(?:tuoi|quali) strumenti\b"
    r"|\b(?:tuas|suas|quais) ferramentas\b"
    r"|ツール|工具"
)


def _arguments_or_none(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return orjson.loads(value) if value.strip() else None
    except orjson.JSONDecodeError:
        return value


def add_more_tool(toolbox: Toolbox) -> None:
    """Let small models get at the tools that they are not shown, unless the name is taken."""
    if toolbox.get(NAME, (NAME,)) is None:
        toolbox.more = MoreTools(_more_tool(toolbox.hidden_from_small_models), _target_call)


def _more_tool(left_out: Callable[[tuple[str, ...] | None], list[Tool]]) -> Tool:

    @tool(
        name=NAME,
        repeatable=True,
        trust=None,
        compact=_ABOUT_TOOLS,
        effects=ToolEffect("read"),
        audience="public",
    )
    async def more(
        ctx: ToolContext,
        name: Annotated[str, also("name", "tool"), TEXT] = "",
        arguments: Annotated[dict[str, Any], BeforeValidator(_arguments_or_none)] | None = None,
    ) -> str:
        """More tools: lists them; with name, shows one; with arguments too, calls it."""
        tools = {hidden.name: hidden for hidden in left_out(ctx.agent.tools)}
        if name in tools and arguments is None:
            return orjson.dumps(tools[name].wire()["function"]).decode()
        if name:
            raise ToolError(f"There is no tool {name!r} here. Available: {', '.join(tools)}.")
        return "\n".join(
            f"{hidden.name}: {hidden.wire()['function']['description'].partition(chr(10))[0]}"
            for hidden in tools.values()
        )

    return more


def _target_call(arguments: str) -> tuple[str, str] | None:
    """Return the name and the arguments of the tool that is called through this one, if any."""
    try:
        parsed: Any = orjson.loads(arguments) if arguments.strip() else {}
    except orjson.JSONDecodeError:
        return None
    if not isinstance(parsed, dict):
        return None
    call = cast("dict[str, Any]", parsed)
    name, inner = call.get("name", call.get("tool")), _arguments_or_none(call.get("arguments"))
    if not isinstance(name, str) or not isinstance(inner, dict):
        return None
    return name, orjson.dumps(inner).decode()


# -- propose_plan ----------------------------------------------------------------------------------

PLAN_TOOL = "propose_plan"
MAX_STEPS = 50


def _arguments(value: Any) -> Any:
    """Return arguments that a model has written as a text of JSON as the object they are."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value or "{}")
    except (ValueError, RecursionError):
        return value


class PlanStep(BaseModel):
    """One call of a plan."""

    model_config = ConfigDict(extra="forbid", defer_build=True)

    tool: str
    arguments: Annotated[dict[str, Any], BeforeValidator(_arguments)]


@dataclass(frozen=True, slots=True)
class _PlannedCall:
    """A call of a plan, read as its tool will read it."""

    tool: Tool
    arguments: dict[str, Any]


class PlanTool(Tool):
    """Asks once for several calls, and grants each of them once for the rest of the turn."""

    def __init__(self, toolbox: Toolbox) -> None:
        self._toolbox = toolbox

        async def propose_plan(ctx: ToolContext, steps: list[PlanStep]) -> str:
            """Ask your owner once for several calls before you make them, not once for each.

            What is approved runs without asking, in this turn and with exactly these arguments.

            Args:
                steps: The calls in order, each with the tool's name and its exact arguments.
            """
            return await self._propose(ctx, steps)

        super().__init__(
            propose_plan,
            name=PLAN_TOOL,
            retry_safety=RetrySafety.TRANSACTIONAL,
            check=None,
            ask=False,
            timeout=None,
            trust=None,
            compact=False,
        )

    def read(self, arguments: str) -> dict[str, Any]:
        """Return the calls of a plan as their tools read them; `ToolError` if one does not fit."""
        steps: list[PlanStep] = super().read(arguments)["steps"]
        if not 1 <= len(steps) <= MAX_STEPS:
            raise ToolError(f"A plan needs 1 to {MAX_STEPS} calls; this one has {len(steps)}.")
        planned = [self._planned(number, step) for number, step in enumerate(steps, 1)]
        return {
            "steps": [
                PlanStep(tool=call.tool.name, arguments=json.loads(arguments_json(call.arguments)))
                for call in planned
            ]
        }

    def _planned(self, number: int, step: PlanStep) -> _PlannedCall:
        name, arguments = self._toolbox.resolve_call(step.tool, json.dumps(step.arguments))
        tool = self._toolbox.get(name, (name,))
        if tool is None or tool is self:
            raise ToolError(f"Step {number}: there is no tool {name!r} that a plan could call.")
        try:
            return _PlannedCall(tool, tool.read(arguments))
        except ToolError as error:
            raise ToolError(f"Step {number}: {error.message}") from None

    def _calls(self, arguments: Mapping[str, Any]) -> list[_PlannedCall]:
        return [self._planned(number, step) for number, step in enumerate(arguments["steps"], 1)]

    def reviewed_effects(self, arguments: dict[str, Any]) -> tuple[Effect, ...]:
        """Return what all calls of the plan would do."""
        return tuple(
            effect
            for call in self._calls(arguments)
            for effect in call.tool.effects(call.arguments)
        )

    def audience(
        self, agent: AgentRecord, participants: Participants, arguments: Mapping[str, Any]
    ) -> Audience:
        """Return who may see what all calls of the plan bring back.

        So whoever approves it is told of others who are present and would see more than they may.
        """
        calls = self._calls(arguments)
        return Audience.intersection(
            call.tool.audience(agent, participants, call.arguments) for call in calls
        )

    def digest(self, arguments: Mapping[str, Any]) -> str:
        """Return what tells this plan's tools from others of their names."""
        parts = [call.tool.digest(call.arguments) for call in self._calls(arguments)]
        return hashlib.sha256(" ".join([super().digest(arguments), *parts]).encode()).hexdigest()

    async def _propose(self, ctx: ToolContext, steps: list[PlanStep]) -> str:
        arguments = {"steps": steps}
        calls = self._calls(arguments)
        for number, call in enumerate(calls, 1):
            if self._toolbox.get(call.tool.name, ctx.agent.tools) is None:
                raise ToolError(f"Step {number}: you have no tool {call.tool.name!r}.")
        effects = effects_in_words(self.reviewed_effects(arguments))
        # Not a reviewer of one of the calls: whoever approves the plan approves all of them.
        ctx.ask(f"{ctx.agent.name} plans {len(calls)} calls, which would {effects}.", (OWNER,))
        assert ctx.decision is not None
        by = ctx.decision.by or OWNER
        approved = [
            Grant(
                id=new_id("grant"),
                constellation=ctx.tx.constellation,
                tool=call.tool.name,
                agent_id=ctx.agent.id,
                turn_id=ctx.turn_id,
                uses=1,
                given_by=ctx.decision.person_id or by,
                given_at_ms=ctx.now_ms,
                approval_id=ctx.decision.approval_id,
                arguments=exact_arguments(call.arguments),
                definition=call.tool.digest(call.arguments),
            )
            for call in calls
        ]
        for grant in approved:
            await approvals.put_grant(ctx.tx, grant)
        actor = by if by == OWNER else f"person:{by}"
        about = (ctx.agent.id, ctx.turn_id)
        entries = [
            Event("grant.given", actor, ctx.now_ms, grant_details(grant), *about)
            for grant in approved
        ]
        await events.append(ctx.tx, home_chain(ctx.tx.constellation), entries)
        return (
            f"The plan is approved. Make these {len(approved)} calls now: each runs once without "
            "asking, with exactly these arguments, until this turn ends. Other calls still ask."
        )


def add_plan_tool(toolbox: Toolbox) -> None:
    """Let agents ask for several calls at once, unless the name is taken."""
    if toolbox.get(PLAN_TOOL, (PLAN_TOOL,)) is None:
        toolbox.add(PlanTool(toolbox))
