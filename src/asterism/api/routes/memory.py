"""`/blocks`, `/passages`, `/search` and `/memory`: what agents remember."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

from pydantic import Field

from asterism.api.endpoints import (
    MANY_VALUES,
    ApiCall,
    Body,
    endpoint,
    expected_state,
    is_conditional,
)
from asterism.api.fields import (
    NEXT,
    AudienceText,
    Limit,
    Name,
    Paging,
    Reference,
    ShortText,
    SomeText,
    TagName,
    Text,
    When,
    page_by,
    page_of_all,
    whole_list,
)
from asterism.api.shapes import ANY, Shape, list_of
from asterism.memory.forgetting import ForgetReceipt, Forgetting
from asterism.memory.schemas import read_schema
from asterism.store.passages import PassageEdit
from asterism.types.memory import (
    Append,
    Block,
    BlockType,
    BlockWrite,
    Describe,
    EditRecord,
    Line,
    Passage,
    Permission,
    Redo,
    Replace,
    Restore,
    Retire,
    Revert,
    SetField,
    SetText,
    Share,
    Undo,
    Unshare,
    Which,
)
from asterism.types.search import DOMAINS
from asterism.views import blame_view, block_view, health_view

BLOCK = Shape("VisibleBlock", Block, name=str, owner=str | None, may=Permission)
_BLOCKS = "/agents/{agent}/blocks"
_BLOCK = f"{_BLOCKS}/{{label}}"


class NewBlock(Body):
    """A block that is to be made."""

    label: Name
    content: Text = ""
    kind: BlockType = BlockType.CORE
    json_schema: dict[str, Any] | str = "text"
    description: str = Field("", max_length=10_000)
    limit: int = Field(5_000, ge=1, le=10_000_000)
    permission: Permission = Permission.READ_WRITE
    audience: AudienceText | None = None
    pinned: bool = False
    shared_with: dict[str, Permission] = Field(default_factory=dict)


class BlockEdit(Body):
    """One edit of a block."""

    operation: Literal[
        "append", "replace", "set", "set_field", "undo", "redo", "revert", "restore", "retire"
    ]
    content: Text = ""
    old: Text = Field("", description="For `replace`: the text that `content` takes the place of.")
    which: Which = Field(Which.FIRST, description="For `replace`: which of several matches.")
    section: Reference | None = None
    field: Reference = ""
    value: Any = None
    number: int = Field(0, ge=0, description="For `revert` the edit, for `restore` the version.")
    reason: ShortText = ""


class BlockChange(Body):
    """What is changed of what a block is; what is left out stays."""

    label: Name | None = None
    description: str | None = Field(None, max_length=10_000)
    kind: BlockType | None = None
    limit: int | None = Field(None, ge=1, le=10_000_000)
    permission: Permission | None = None
    audience: AudienceText | None = None
    pinned: bool | None = None
    json_schema: dict[str, Any] | str | None = None
    reason: ShortText = ""


class BlockSharing(Body):
    """With whom a block is shared; None ends it."""

    permission: Permission | None = Permission.APPEND


class HistoryQuery(Body):
    """Which edits."""

    limit: Limit = 50
    cursor: int | None = Field(None, ge=1, description=NEXT)
    before: int | None = Field(None, ge=1, description="The same as `cursor`.")


class DiffQuery(Body):
    """Which two versions."""

    a: int = Field(ge=0, description="The one.")
    b: int | None = Field(None, ge=0, description="The other; None: as it is now.")


class VersionQuery(Body):
    """Which version."""

    version: int | None = Field(None, ge=0)
    moment: When | None = None


def _block_write(edit: BlockEdit) -> BlockWrite:
    writes: dict[str, Any] = {
        "append": lambda: Append(edit.content, edit.section),
        "replace": lambda: Replace(
            edit.old, edit.content, edit.which, edit.number or 1, edit.section
        ),
        "set": lambda: SetText(edit.content, section=edit.section),
        "set_field": lambda: SetField(edit.field, edit.value, edit.section),
        "undo": Undo,
        "redo": Redo,
        "revert": lambda: Revert(edit.number),
        "restore": lambda: Restore(edit.number),
        "retire": Retire,
    }
    return writes[edit.operation]()


@endpoint("GET", "/blocks", "blocks.list", query=Paging, answer=list_of(BLOCK))
async def list_all_blocks(call: ApiCall) -> Any:
    """List all blocks there are."""
    return page_of_all(await call.home.blocks.list(), call.query, block_view)


@endpoint("GET", _BLOCKS, "blocks.list", query=Paging, answer=list_of(BLOCK))
async def list_blocks(call: ApiCall) -> Any:
    """List the blocks that an agent sees."""
    return page_of_all(await call.home.blocks.list(call.path["agent"]), call.query, block_view)


@endpoint("POST", _BLOCKS, "blocks.create", body=NewBlock, answer=Block, status=201, edits=True)
async def create_block(call: ApiCall) -> Any:
    """Create a block of an agent."""
    new: NewBlock = call.body
    return await call.home.blocks.create(
        call.path["agent"], schema=new.json_schema, **new.values("json_schema")
    )


@endpoint("GET", _BLOCK, "blocks.get", answer=BLOCK, edits=True)
async def get_block(call: ApiCall) -> Any:
    """Return a block that an agent sees."""
    return block_view(await call.home.blocks.get(**call.path))


@endpoint(
    "POST",
    f"{_BLOCK}/edits",
    "blocks.write",
    body=BlockEdit,
    answer=BLOCK,
    edits=True,
    conditional=True,
)
async def edit_block(call: ApiCall) -> Any:
    """Edit the content of a block, undo an edit, or restore a version."""
    return await _write_block(call, _block_write(call.body), call.body.reason)


@endpoint(
    "PATCH",
    _BLOCK,
    "blocks.write",
    body=BlockChange,
    answer=BLOCK,
    edits=True,
    conditional=True,
)
async def change_block(call: ApiCall) -> Any:
    """Change what a block is called, who may see it, and what may be done to it."""
    change: BlockChange = call.body
    people = call.home.people
    describe = Describe(
        type=change.kind,
        audience=await people.audience(change.audience) if change.audience else None,
        schema=read_schema(change.json_schema) if change.json_schema else None,
        **change.values("kind", "audience", "json_schema", "reason"),
    )
    return await _write_block(call, describe, change.reason, label=change.label)


@endpoint(
    "PUT",
    f"{_BLOCK}/shares/{{other}}",
    "blocks.write",
    body=BlockSharing,
    answer=BLOCK,
    edits=True,
    conditional=True,
)
async def share_block(call: ApiCall) -> Any:
    """Share a block with another agent, or end that."""
    other = await call.home.agents.get(call.path["other"])
    permission = call.body.permission
    write = Share(other.id, permission) if permission is not None else Unshare(other.id)
    return await _write_block(call, write)


@endpoint("DELETE", _BLOCK, "blocks.write", conditional=True)
async def retire_block(call: ApiCall) -> None:
    """Archive a block; its history stays."""
    await _write_block(call, Retire())


async def _write_block(
    call: ApiCall, write: BlockWrite, reason: str = "", label: str | None = None
) -> dict[str, Any]:
    """Write to a block, unless it was changed; return it, by its new label if it gets one."""
    agent, former = call.path["agent"], call.path["label"]
    seen = await call.home.blocks.get(agent, former)
    version = expected_state(call, seen.block.version, block_view(seen))
    written = await call.home.blocks.write(agent, former, write, reason=reason, version=version)
    if isinstance(write, Retire):  # so that nobody finds it any more
        return block_view(replace(seen, block=written))
    return block_view(await call.home.blocks.get(agent, label or former))


@endpoint(
    "GET",
    f"{_BLOCK}/history",
    "blocks.history",
    query=HistoryQuery,
    answer=list_of(EditRecord),
)
async def block_history(call: ApiCall) -> Any:
    """List the edits of a block, the newest first."""
    query: HistoryQuery = call.query
    before = query.cursor or query.before
    found = await call.home.blocks.history(**call.path, limit=query.limit + 1, before=before)
    return page_by(found, query, lambda edit: str(edit.number))


@endpoint("GET", f"{_BLOCK}/lines", "blocks.at", query=VersionQuery, answer=list_of(Line))
async def block_lines(call: ApiCall) -> Any:
    """Return the lines of a block, now, at a version or at a moment."""
    return whole_list(await call.home.blocks.at(**call.path, **call.query.values()))


@endpoint(
    "GET",
    f"{_BLOCK}/diff",
    "blocks.diff",
    query=DiffQuery,
    answer=Shape("BlockDiff", None, "How two versions differ.", diff=str),
)
async def diff_block(call: ApiCall) -> Any:
    """Return how a block differs between two versions, as a unified diff."""
    return {"diff": await call.home.blocks.diff(**call.path, **call.query.values())}


@endpoint("GET", f"{_BLOCK}/blame", "blocks.blame", answer=list_of(ANY, "LineWithEdits"))
async def blame_block(call: ApiCall) -> Any:
    """Return each line of a block with the edits that it comes from; the list is whole."""
    return whole_list(blame_view(await call.home.blocks.blame(**call.path)))


# -- passages --------------------------------------------------------------------------------------


class PassagesQuery(Body):
    """Which passages."""

    tag: TagName | None = None
    moment: When | None = None
    limit: Limit = 50
    cursor: Reference | None = Field(None, description=NEXT)


class NewPassageBody(Body):
    """A passage that is to be kept."""

    text: SomeText
    tags: list[TagName] = Field(default_factory=list, max_length=100)
    metadata: dict[str, Any] = Field(default_factory=dict)
    true_from: When | None = None
    supersedes: Reference | None = None
    audience: AudienceText = "owner"


class PassageChange(Body):
    """What is changed of a passage."""

    append: SomeText | None = None
    tags: list[TagName] | None = Field(None, max_length=100)


@endpoint(
    "GET",
    "/agents/{agent}/passages",
    "archive.list",
    query=PassagesQuery,
    answer=list_of(Passage),
)
async def list_passages(call: ApiCall) -> Any:
    """List the passages of an agent, newest first."""
    query: PassagesQuery = call.query
    found = await call.home.archive.list(
        call.path["agent"],
        tag=query.tag,
        moment=query.moment,
        limit=query.limit + 1,
        before=query.cursor,
    )
    return page_by(found, query, lambda passage: passage.id)


@endpoint(
    "POST",
    "/agents/{agent}/passages",
    "archive.add",
    body=NewPassageBody,
    answer=ANY,
    status=201,
)
async def add_passage(call: ApiCall) -> Any:
    """Keep a passage in an agent's archive."""
    return await call.home.archive.add(call.path["agent"], **call.body.values())


@endpoint("GET", "/passages/{passage}", "archive.get", answer=Passage, edits=True)
async def get_passage(call: ApiCall) -> Any:
    """Return a passage."""
    return await call.home.archive.get(call.path["passage"])


@endpoint(
    "PATCH",
    "/passages/{passage}",
    "archive.edit",
    body=PassageChange,
    answer=Passage,
    edits=True,
    conditional=True,
)
async def change_passage(call: ApiCall) -> Any:
    """Add text to a passage, or give it other tags."""
    former = await _expected_passage(call)
    return await call.home.archive.edit(call.path["passage"], expected=former, **call.body.values())


@endpoint("DELETE", "/passages/{passage}", "archive.retract", conditional=True)
async def retract_passage(call: ApiCall) -> None:
    """Hold a passage to be true no longer; it stays in the history."""
    former = await _expected_passage(call)
    await call.home.archive.retract(call.path["passage"], expected=former)


async def _expected_passage(call: ApiCall) -> Passage | None:
    """Return the passage as it must still be, if the request is for one state of it."""
    if not is_conditional(call):
        return None
    passage = await call.home.archive.get(call.path["passage"])
    return expected_state(call, passage, passage)


@endpoint(
    "GET",
    "/passages/{passage}/history",
    "archive.history",
    query=Paging,
    answer=list_of(PassageEdit),
)
async def passage_history(call: ApiCall) -> Any:
    """List the edits of a passage, the first one first."""
    return page_of_all(await call.home.archive.history(call.path["passage"]), call.query)


# -- search ----------------------------------------------------------------------------------------


class SearchBody(Body):
    """What is looked for, and where."""

    text: Text
    agent: Reference | None = None
    domains: list[Literal["messages", "passages", "documents", "blocks", "summaries"]] | None = None
    speaker: Reference | None = None
    role: Literal["user", "assistant"] | None = None
    since: When | None = None
    until: When | None = None
    tags: list[Name] = Field(default_factory=list, max_length=100)
    source: Reference | None = None
    limit: int = Field(10, ge=1, le=200)
    offset: int = Field(0, ge=0, le=10_000)
    moment: When | None = None
    neighbours: int = Field(0, ge=0, le=20)


@endpoint("POST", "/search", "search.__call__", body=SearchBody, answer=ANY, keyed=False)
async def search(call: ApiCall) -> Any:
    """Return what memory has on a query, the best first."""
    query: SearchBody = call.body
    return await call.home.search(domains=query.domains or DOMAINS, **query.values("domains"))


# -- the memory as a whole -------------------------------------------------------------------------


class WhyQuery(Body):
    """Which memory."""

    ref: str = Field(min_length=1, max_length=400)
    agent: Reference | None = None


class MomentQuery(Body):
    """When."""

    moment: When
    most: int = Field(100, ge=1, le=10_000, description="How many passages, the latest first.")


class ForgetBody(Body):
    """What is to be forgotten; at least one of these."""

    texts: list[SomeText] = Field(default_factory=list, max_length=100)
    passages: list[Name] = Field(default_factory=list, max_length=1_000)
    turns: list[Name] = Field(default_factory=list, max_length=1_000)
    persons: list[Name] = Field(default_factory=list, max_length=100)
    sources: list[Name] = Field(default_factory=list, max_length=100)
    blocks: list[Name] = Field(default_factory=list, max_length=100)
    agents: list[Name] = Field(default_factory=list, max_length=100)
    reason: ShortText = ""


class MemoryDocument(Body):
    """A document that an export has made."""

    document: dict[str, Any]
    dry_run: bool = False


@endpoint("GET", "/memory/why", "memory.why", query=WhyQuery, answer=ANY)
async def why(call: ApiCall) -> Any:
    """Return where a memory comes from."""
    return await call.home.memory.why(call.query.ref, agent=call.query.agent)


@endpoint("GET", "/agents/{agent}/health", "memory.health", answer=ANY)
async def memory_health(call: ApiCall) -> Any:
    """Return the problems of an agent's memory."""
    return health_view(await call.home.memory.health(call.path["agent"]))


@endpoint("GET", "/agents/{agent}/memory", "memory.export", answer=ANY)
async def export_memory(call: ApiCall) -> Any:
    """Export an agent's memory as a document."""
    return await call.home.memory.export(call.path["agent"])


@endpoint("GET", "/agents/{agent}/memory/at", "memory.as_of", query=MomentQuery, answer=ANY)
async def memory_at(call: ApiCall) -> Any:
    """Return what an agent remembered at a moment: its blocks, passages and sources."""
    return await call.home.memory.as_of(call.path["agent"], **call.query.values())


@endpoint(
    "POST",
    "/agents/{agent}/memory",
    "memory.import_",
    body=MemoryDocument,
    answer=ANY,
    values=MANY_VALUES,
)
async def import_memory(call: ApiCall) -> Any:
    """Import a document that an export has made."""
    return await call.home.memory.import_(call.path["agent"], **call.body.values())


@endpoint("POST", "/memory/forget", "memory.forget", body=ForgetBody, answer=ForgetReceipt)
async def forget(call: ApiCall) -> Any:
    """Forget something everywhere, and return the receipt."""
    wanted: dict[str, list[str]] = call.body.values("reason")
    what = Forgetting(**{kind: tuple(items) for kind, items in wanted.items()})
    return await call.home.memory.forget(what, reason=call.body.reason)


@endpoint("GET", "/memory/receipts", "memory.receipts", query=Paging, answer=list_of(ForgetReceipt))
async def list_receipts(call: ApiCall) -> Any:
    """List the receipts of everything that was forgotten, the newest first."""
    return page_of_all(await call.home.memory.receipts(), call.query)
