"""The tool `calculator` itself."""

from __future__ import annotations

from typing import Annotated

from pydantic.json_schema import SkipJsonSchema

from asterism.tools.builtin.arguments import TEXT, also, null_as
from asterism.tools.tool import Tool, ToolContext, tool
from asterism.types.effects import ToolEffect


@tool(repeatable=True, trust=None, compact=False, effects=ToolEffect("read"), audience="public")
async def calculator(
    ctx: ToolContext,
    expression: Annotated[str, also("expression", "query", "input"), TEXT],
    reset_context: SkipJsonSchema[Annotated[bool, null_as(default=False)]] = False,
) -> str:
    """Exact arithmetic, units, dates, percentages: "5 ft 3 in in cm", "today + 3 weeks"."""
    from asterism.tools.calculator.parsing import work_out
    from asterism.tools.calculator.showing import shown

    del reset_context  # names are given within one call
    value, _ = work_out(expression, ctx.now)
    return shown(value)


TOOLS: list[Tool] = [calculator]
