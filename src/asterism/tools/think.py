"""The tool `think`: room for a thought that nobody but the agent reads."""

from __future__ import annotations

from typing import Annotated

from asterism.tools.spellings import TEXT, also
from asterism.tools.tool import Tool, ToolContext, tool
from asterism.types.effects import ToolEffect


@tool(repeatable=True, trust=None, compact=False, effects=ToolEffect("read"), audience="public")
async def think(ctx: ToolContext, thought: Annotated[str, also("thought", "content"), TEXT]) -> str:
    """Think something through before you act. Nothing else happens."""
    del ctx, thought  # the call itself is in the log
    return "Noted."


TOOLS: list[Tool] = [think]
