"""The tool `tools`: what a small model is not shown, it can look up and call all the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, cast

import orjson
from pydantic import BeforeValidator

from asterism.errors import ToolError
from asterism.tools.spellings import TEXT, also
from asterism.tools.tool import More, Tool, Toolbox, ToolContext, tool
from asterism.types.effects import ToolEffect

NAME = "tools"


def _parsed(given: Any) -> Any:
    if not isinstance(given, str):
        return given
    try:
        return orjson.loads(given) if given.strip() else None
    except orjson.JSONDecodeError:
        return given


def lead_to_more(toolbox: Toolbox) -> None:
    """Let small models get at the tools that they are not shown, unless the name is taken."""
    if toolbox.get(NAME, (NAME,)) is None:
        toolbox.more = More(_more_tools(toolbox.left_out), _meant)


def _more_tools(left_out: Callable[[tuple[str, ...] | None], list[Tool]]) -> Tool:

    @tool(name=NAME, repeatable=True, trust=None, effects=ToolEffect("read"), audience="public")
    async def more(
        ctx: ToolContext,
        name: Annotated[str, also("name", "tool"), TEXT] = "",
        arguments: Annotated[dict[str, Any], BeforeValidator(_parsed)] | None = None,
    ) -> str:
        """More tools: lists them; with name, shows one; with arguments too, calls it."""
        there = {one.name: one for one in left_out(ctx.agent.tools)}
        if name in there and arguments is None:
            return orjson.dumps(there[name].wire()["function"]).decode()
        if name:
            raise ToolError(f"There is no tool {name!r} here. There are: {', '.join(there)}.")
        return "\n".join(
            f"{one.name}: {one.wire()['function']['description'].partition(chr(10))[0]}"
            for one in there.values()
        )

    return more


def _meant(arguments: str) -> tuple[str, str] | None:
    """Return the name and the arguments of the tool that is called through this one, if any."""
    try:
        given: Any = orjson.loads(arguments) if arguments.strip() else {}
    except orjson.JSONDecodeError:
        return None
    if not isinstance(given, dict):
        return None
    told = cast("dict[str, Any]", given)
    name, inner = told.get("name", told.get("tool")), _parsed(told.get("arguments"))
    if not isinstance(name, str) or not isinstance(inner, dict):
        return None
    return name, orjson.dumps(inner).decode()
