"""The tool `halt`: an agent that looks after integrity stops the whole constellation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from asterism.errors import ToolError
from asterism.store import agents
from asterism.tools.spellings import TEXT, WORD, also, unless_null
from asterism.tools.tool import Tool, ToolContext, tool
from asterism.types.agents import Halt, new_id
from asterism.types.effects import Effect, EffectKind
from asterism.types.turns import Notice


def _effects_of(arguments: Mapping[str, Any]) -> list[Effect]:
    del arguments
    return [Effect(EffectKind.WRITE, things=("the whole constellation",))]


@tool(transactional=True, trust=None, compact=False, reserved=True, effects=_effects_of)
async def halt(
    ctx: ToolContext,
    reason: Annotated[str, also("reason", "message"), TEXT],
    severity: Annotated[
        Literal["warning", "high", "critical"], unless_null("critical"), WORD
    ] = "critical",
) -> str:
    """Stop all agents at once, until the owner lets them go on. Only for real danger."""
    if not reason.strip():
        raise ToolError("Why shall everything stop? Give `reason`; the owner reads it.")
    await agents.put_halt(
        ctx.tx,
        ctx.constellation,
        Halt(new_id("halt"), ctx.agent.id, ctx.turn_id, severity, reason, ctx.now),
    )
    await agents.put_notice(
        ctx.tx,
        Notice(
            new_id("ntc"),
            ctx.agent.id,
            ctx.turn_id,
            "halt",
            f"{ctx.agent.name} has halted everything ({severity}): {reason} No agent takes a turn "
            'until you say "asterism resume".',
            ctx.now,
        ),
    )
    return "Everything is halted after this turn. The owner has been told."


TOOLS: list[Tool] = [halt]
