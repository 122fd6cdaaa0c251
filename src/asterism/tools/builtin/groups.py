"""Tools that roles in groups give: `delegate` for whoever leads, and a search of all memory."""

from __future__ import annotations

from typing import Annotated

import orjson

from asterism.errors import AsterismError, StoreError, ToolError
from asterism.store import groups, messages
from asterism.tools.builtin.arguments import TEXT, also
from asterism.tools.builtin.memory import NOTHING_FOUND, hit_line
from asterism.tools.tool import NothingFound, Tool, ToolContext, tool
from asterism.types.agents import message_id_for, new_id
from asterism.types.permissions import ToolEffect
from asterism.types.search import Query

_MAX_TASK = 20_000
_MAX_HITS = 50


# A task stays in the group that the owner has made for it and carries its labels along, so that
# the member's own calls are judged by whoever began it: to give it away does nothing by itself.
@tool(
    transactional=True,
    trust=None,
    compact=True,
    reserved=True,
    effects=ToolEffect("read"),
    audience="public",
)
async def delegate(
    ctx: ToolContext,
    task: Annotated[str, also("task", "message", "content", "text"), TEXT],
    to: Annotated[str, also("to", "member", "agent", "name"), TEXT] = "",
) -> str:
    """Give a task to a member of your group. Without `to`, whoever fits best gets it."""
    if not task.strip():
        raise ToolError("What is the task? Set `task`. Nothing was given away.")
    if len(task) > _MAX_TASK:
        raise ToolError(
            f"The task has {len(task):,} characters; the limit is {_MAX_TASK:,}. Shorten it. "
            "Nothing was given away."
        )
    asked = await groups.find_agent_message(ctx.tx, message_id_for(ctx.turn_id))
    if asked is None or not asked.key:
        raise ToolError(
            "You can give tasks away only while you answer for a group. Use send_message to write "
            "to another agent. Nothing was given away."
        )
    if not await groups.leads(ctx.tx, asked):
        raise ToolError(
            "Only whoever leads a group with the pattern supervisor can give tasks away, and you "
            "do not lead here: do it yourself, and say in your answer what is missing. Nothing "
            "was given away."
        )
    chosen = await _member(ctx, asked.sender_id, to)
    said = {
        "key": ctx.key,
        "by": asked.key,
        "task": task,
        "to": chosen,
        "trust": ctx.source.trust.value,
        "audience": str(ctx.source.audience),
    }
    await messages.put_result(
        ctx.tx, asked.sender_id, new_id("res"), asked.turn_id, orjson.dumps(said), ctx.now_ms
    )
    whom = to.strip() if chosen else "the member that fits best"
    return (
        f"Given to {whom}. The result comes to you after your turn. Give away what else is "
        "needed, then end your turn with one short sentence."
    )


async def _member(ctx: ToolContext, group_id: str, name: str) -> str:
    """Return the id of a member by name; nothing if none is named."""
    wanted = name.strip().removeprefix("@").casefold()
    if not wanted:
        return ""
    others = [
        member
        for member in await groups.members_of(ctx.tx, group_id)
        if member.takes_part and member.agent_id != ctx.agent.id
    ]
    for member in others:
        if wanted in (member.name.casefold(), member.agent_id):
            return member.agent_id
    names = ", ".join(member.name for member in others) or "none"
    raise ToolError(
        f"There is no member {name!r} that can be given a task. Members: {names}. Nothing was "
        "given away."
    )


@tool(
    repeatable=True,
    trust=None,
    compact=False,
    reserved=True,
    effects=ToolEffect("read"),
    audience="public",
)
async def search_constellation(
    ctx: ToolContext, query: Annotated[str, also("query", "text", "q"), TEXT], limit: int = 10
) -> str:
    """Search what all agents of your owner have heard and kept."""
    most = max(1, min(limit, _MAX_HITS))
    try:
        result = await ctx.search_all(Query(query, limit=most + 1))
    except StoreError:
        raise
    except AsterismError as error:
        raise ToolError(error.message) from None
    hits = [hit for hit in result.hits if not hit.id.startswith(f"{ctx.turn_id}#")][:most]
    ctx.quotes(source for hit in hits for source in hit.sources)
    if not hits:
        return NothingFound(NOTHING_FOUND)
    zone = ctx.settings().zone
    return "\n".join(hit_line(hit, zone) for hit in hits)


TOOLS: list[Tool] = [delegate, search_constellation]
