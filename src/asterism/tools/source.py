"""The tool `source`: the folders of documents that an agent can search, and whether they rest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from asterism.errors import ToolError
from asterism.store import documents
from asterism.times import day_text
from asterism.tools.spellings import OPERATION, TEXT, WORD, also
from asterism.tools.tool import Tool, ToolContext, tool
from asterism.types.documents import DocumentSource
from asterism.types.effects import Effect, EffectKind


def _effects_of(arguments: Mapping[str, Any]) -> list[Effect]:
    name = str(arguments.get("name") or "")
    reads = arguments.get("operation") in ("list", "status")
    kind = EffectKind.READ if reads else EffectKind.WRITE
    return [Effect(kind, things=(name,) if name else ())]


@tool(transactional=True, trust=None, compact=False, effects=_effects_of, audience="public")
async def source(
    ctx: ToolContext,
    operation: Annotated[Literal["list", "status", "pause", "resume"], OPERATION, WORD],
    name: Annotated[str, also("name", "source_id", "id", "source", "label"), TEXT] = "",
) -> str:
    """Folders of documents that you can search. A paused one is not read again."""
    there = await _attached(ctx)
    if operation == "list":
        return "\n".join([await _line(ctx, one) for one in there]) or "You have no sources."
    found = next((one for one in there if name in (one.name, one.id)), None)
    if found is None:
        names = ", ".join(one.name for one in there) or "none"
        raise ToolError(f"There is no source {name!r}. Give `name`; there are: {names}.")
    if operation == "status":
        return await _line(ctx, found)
    paused = operation == "pause"
    if found.paused == paused:
        return f"Source {found.name!r} {'is paused' if paused else 'is not paused'} already."
    await documents.set_paused(ctx.tx, found, paused=paused)
    if paused:
        return f"Source {found.name!r} is paused: what was read can be searched, nothing new is."
    return f"Source {found.name!r} is read again from now on."


async def _attached(ctx: ToolContext) -> list[DocumentSource]:
    """Return the sources of this agent that those present may know of."""
    return [
        one
        for one in await documents.sources(ctx.tx, ctx.constellation)
        if ctx.agent.id in await documents.agents_of(ctx.tx, one.id)
        and ctx.participants.can_see(one.audience)
    ]


async def _line(ctx: ToolContext, one: DocumentSource) -> str:
    read, passages, refused = await documents.counts(ctx.tx, one.id)
    ctx.audiences.append(one.audience)
    parts = [
        f"{one.name}: {read:,} document{'s' * (read != 1)}, {passages:,} passages",
        f"{refused:,} could not be read" if refused else "",
        f"read on {day_text(one.synced_at)}" if one.synced_at else "never read to its end",
        "paused" if one.paused else "",
    ]
    return ", ".join(part for part in parts if part)


TOOLS: list[Tool] = [source]
