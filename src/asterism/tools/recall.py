"""The tool `recall`: an agent's archive, as far as those present may hear it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator
from pydantic.json_schema import SkipJsonSchema

from asterism.errors import AsterismError, StoreError, ToolError
from asterism.memory import archive
from asterism.memory.gate import passages as gate
from asterism.memory.gate.writer import NeedsConsent
from asterism.times import day_text
from asterism.tools.quoting import line, mark
from asterism.tools.spellings import OPERATION, TEXT, also, unless_null
from asterism.tools.tool import NeedsApproval, Tool, ToolContext, tool
from asterism.types.effects import Effect, EffectKind
from asterism.types.memory import AppendPassage, Insert, Passage, Retract, Tag
from asterism.types.search import Query

_MOST_FOUND = 20


def _listed(given: Any) -> Any:
    """Take one word, or several with commas between them, as a list."""
    if isinstance(given, str):
        return [one.strip() for one in given.split(",") if one.strip()]
    return given


def _operation(given: Any) -> Any:
    word = given.strip().casefold() if isinstance(given, str) else given
    return "retract" if word in ("delete", "remove") else word


def _effects_of(arguments: Mapping[str, Any]) -> list[Effect]:
    if arguments.get("operation") in ("search", "read"):
        return [Effect(EffectKind.READ)]
    said = str(arguments.get("text") or "")
    amends = arguments.get("operation") == "retract" or bool(arguments.get("id"))
    return [Effect(EffectKind.REMEMBER, content=(said,) if said else (), amends=amends)]


@tool(transactional=True, trust=None, effects=_effects_of, audience="public")
async def recall(
    ctx: ToolContext,
    operation: Annotated[
        Literal["search", "read", "insert", "append", "retract"],
        OPERATION,
        BeforeValidator(_operation),
    ],
    text: Annotated[str, also("text", "content", "query"), TEXT] = "",
    id: Annotated[str, also("id", "entry_id", "passage_id", "label", "name"), TEXT] = "",
    tags: Annotated[list[str], BeforeValidator(_listed)] | None = None,
    limit: Annotated[int, unless_null(5)] = 5,
    metadata: SkipJsonSchema[dict[str, Any] | None] = None,
) -> str:
    """Your archive: lasting facts, kept word by word and found by search.

    Args:
        text: What to search for, insert or append.
        id: The passage. For insert: one that the new one supersedes.
        tags: For insert; for append, to set them anew; for search, to find only those with all.
    """
    try:
        match operation:
            case "search":
                return await _search(ctx, text, tags or [], limit)
            case "read":
                return await _read(ctx, id)
            case "insert":
                wanted = Insert(
                    text, tuple(tags or ()), metadata=metadata or {}, supersedes=id or None
                )
                done = await gate.write(ctx.tx, ctx.writer(), ctx.agent.id, wanted)
                if done.quoted:
                    # The reason quotes both: what was there, and what the model has just written.
                    ctx.quotes((*done.quoted, done.passage.source))
                return " ".join(filter(None, (_DONE[done.kind].format(done.passage.id), done.note)))
            case "append":
                return await _append(ctx, id, text, tags)
            case "retract":
                await gate.write(ctx.tx, ctx.writer(text), ctx.agent.id, Retract(id))
                return f"Retracted {id}. It is not found any more; its history stays."
    except NeedsConsent as needed:
        raise NeedsApproval(needed.question, needed.reviewers) from None
    except StoreError:
        raise
    except AsterismError as error:
        raise ToolError(error.message) from None


_DONE = {
    "stored": "Stored as {}.",
    "merged": "Nothing new was stored.",
    "superseded": "Stored as {}.",
    "contradicts": "Stored as {}.",
}


async def _append(ctx: ToolContext, id: str, text: str, tags: list[str] | None) -> str:
    if not text and tags is None:
        raise ToolError("What shall be appended? Give `text`, or `tags` to set them anew.")
    told: list[str] = []
    if text:
        done = await gate.write(ctx.tx, ctx.writer(), ctx.agent.id, AppendPassage(id, text))
        told.append(f"Appended to {id}, which has {len(done.passage.text):,} characters now.")
    if tags is not None:
        done = await gate.write(ctx.tx, ctx.writer(), ctx.agent.id, Tag(id, tuple(tags)))
        told.append(f"The tags of {id} are: {', '.join(done.passage.tags) or 'none'}.")
    return " ".join(told)


async def _read(ctx: ToolContext, id: str) -> str:
    found = await archive.get(ctx.tx, ctx.constellation, id, participants=ctx.participants)
    archives = await archive.archives_of(ctx.tx, ctx.constellation, ctx.agent.id)
    if found.archive_id not in {one.id for one in archives}:
        raise ToolError(f"There is no passage {id!r}. Search for it to learn its id.")
    ctx.quotes([found.source])
    ended = ""
    if found.retracted_at is not None:
        ended = f" Retracted on {day_text(found.retracted_at)}: it does not hold any more."
    elif found.superseded_by is not None:
        ended = f" Superseded by {found.superseded_by}: read that instead."
    return f"{_head(found)}{ended}\n{found.text}"


def _head(passage: Passage) -> str:
    tags = f" [{', '.join(passage.tags)}]" if passage.tags else ""
    return f"{passage.id}, {day_text(passage.known_from)}{mark(passage.source)}{tags}"


async def _search(ctx: ToolContext, text: str, tags: list[str], limit: int) -> str:
    from asterism.memory.search.search import search  # its patterns take long to compile

    if not text.strip() and not tags:
        raise ToolError("What shall be searched for? Give `text`, `tags`, or both.")
    # An encoder would keep the writer waiting, so that words and static vectors have to do.
    found = await search(
        ctx.tx,
        ctx.constellation,
        ctx.agent.id,
        Query(
            text,
            domains=("passages", "documents"),
            tags=tuple(tags),
            limit=max(1, min(limit, _MOST_FOUND)),
        ),
        participants=ctx.participants,
        now=ctx.now,
    )
    ctx.quotes(hit.source for hit in found.hits)
    return "\n".join(map(line, found.hits)) or "Nothing was found. Try other words."


TOOLS: list[Tool] = [recall]
