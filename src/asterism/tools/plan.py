"""The tool `propose_plan`: calls that an agent intends are put to a person in one question."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict

from asterism.errors import ToolError
from asterism.store import approvals, events
from asterism.tools.tool import Tool, Toolbox, ToolContext
from asterism.types.agents import Agent, new_id
from asterism.types.approvals import (
    Grant,
    arguments_json,
    effects_in_words,
    exact_arguments,
    told_of,
)
from asterism.types.effects import Effect
from asterism.types.events import Event, home_chain
from asterism.types.people import OWNER, Audience, Participants
from asterism.types.turns import RetrySafety

PLAN_TOOL = "propose_plan"
MAX_STEPS = 50


def _parsed(given: Any) -> Any:
    """Return arguments that a model has written as a text of JSON as the object they are."""
    if not isinstance(given, str):
        return given
    try:
        return json.loads(given or "{}")
    except ValueError:
        return given


class PlanStep(BaseModel):
    """One call of a plan."""

    model_config = ConfigDict(extra="forbid")

    tool: str
    arguments: Annotated[dict[str, Any], BeforeValidator(_parsed)]


@dataclass(frozen=True, slots=True)
class _Planned:
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
            raise ToolError(f"A plan has 1 to {MAX_STEPS} calls, and this one has {len(steps)}.")
        planned = [self._planned(number, one) for number, one in enumerate(steps, 1)]
        return {
            "steps": [
                PlanStep(tool=one.tool.name, arguments=json.loads(arguments_json(one.arguments)))
                for one in planned
            ]
        }

    def _planned(self, number: int, step: PlanStep) -> _Planned:
        name, arguments = self._toolbox.meant(step.tool, json.dumps(step.arguments))
        tool = self._toolbox.get(name, (name,))
        if tool is None or tool is self:
            raise ToolError(f"Step {number}: there is no tool {name!r} that a plan could call.")
        try:
            return _Planned(tool, tool.read(arguments))
        except ToolError as error:
            raise ToolError(f"Step {number}: {error.message}") from None

    def _calls(self, arguments: Mapping[str, Any]) -> list[_Planned]:
        return [self._planned(number, one) for number, one in enumerate(arguments["steps"], 1)]

    def shown_effects(self, arguments: dict[str, Any]) -> tuple[Effect, ...]:
        """Return what all calls of the plan would do."""
        return tuple(
            effect for one in self._calls(arguments) for effect in one.tool.effects(one.arguments)
        )

    def audience(
        self, agent: Agent, participants: Participants, arguments: Mapping[str, Any]
    ) -> Audience:
        """Return who may see what all calls of the plan bring back.

        So whoever approves it is told of others who are present and would see more than they may.
        """
        calls = self._calls(arguments)
        return Audience.intersection(
            one.tool.audience(agent, participants, one.arguments) for one in calls
        )

    def digest(self, arguments: Mapping[str, Any]) -> str:
        """Return what tells this plan's tools from others of their names."""
        parts = [one.tool.digest(one.arguments) for one in self._calls(arguments)]
        return hashlib.sha256(" ".join([super().digest(arguments), *parts]).encode()).hexdigest()

    async def _propose(self, ctx: ToolContext, steps: list[PlanStep]) -> str:
        arguments = {"steps": steps}
        calls = self._calls(arguments)
        for number, one in enumerate(calls, 1):
            if self._toolbox.get(one.tool.name, ctx.agent.tools) is None:
                raise ToolError(f"Step {number}: you have no tool {one.tool.name!r}.")
        effects = effects_in_words(self.shown_effects(arguments))
        # Not a reviewer of one of the calls: whoever approves the plan approves all of them.
        ctx.ask(f"{ctx.agent.name} plans {len(calls)} calls, which would {effects}.", (OWNER,))
        assert ctx.decision is not None
        by = ctx.decision.by or OWNER
        given = [
            Grant(
                id=new_id("grant"),
                constellation=ctx.constellation,
                tool=one.tool.name,
                agent_id=ctx.agent.id,
                turn_id=ctx.turn_id,
                uses=1,
                given_by=ctx.decision.person_id or by,
                given_at=ctx.now,
                approval_id=ctx.decision.approval_id,
                arguments=exact_arguments(one.arguments),
                definition=one.tool.digest(one.arguments),
            )
            for one in calls
        ]
        for grant in given:
            await approvals.put_grant(ctx.tx, grant)
        actor = by if by == OWNER else f"person:{by}"
        about = (ctx.agent.id, ctx.turn_id)
        told = [Event("grant.given", actor, ctx.now, told_of(one), *about) for one in given]
        await events.append(ctx.tx, home_chain(ctx.constellation), told)
        return (
            f"The plan is approved. Make these {len(given)} calls now: each runs once without "
            "asking, with exactly these arguments, until this turn ends. Other calls still ask."
        )


def offer_plans(toolbox: Toolbox) -> None:
    """Let agents ask for several calls at once, unless the name is taken."""
    if toolbox.get(PLAN_TOOL, (PLAN_TOOL,)) is None:
        toolbox.add(PlanTool(toolbox))
