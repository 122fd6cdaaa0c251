"""The tool `calculator`: exact arithmetic with units, dates and percentages; no code is run."""

from __future__ import annotations

from typing import Annotated

from pydantic.json_schema import SkipJsonSchema

from asterism.tools.builtin.arguments import TEXT, also, null_as
from asterism.tools.tool import Tool, ToolContext, tool
from asterism.types.permissions import ToolEffect


@tool(repeatable=True, trust=None, compact=False, effects=ToolEffect("read"), audience="public")
async def calculator(
    ctx: ToolContext,
    expression: Annotated[str, also("expression", "query", "input"), TEXT],
    reset_context: SkipJsonSchema[Annotated[bool, null_as(default=False)]] = False,
) -> str:
    """Exact arithmetic, units, dates, percentages: "5 ft 3 in in cm", "today + 3 weeks"."""
    # Units and patterns take 7 ms to set up, which no start of the program should pay.
    from asterism.tools.calculator.parser import calculate
    from asterism.tools.calculator.quantities import value_text

    del reset_context  # names keep their values within one call
    return value_text(calculate(expression, ctx.now))


TOOLS: list[Tool] = [calculator]
