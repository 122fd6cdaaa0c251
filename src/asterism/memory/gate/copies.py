"""The gate for copies of memory: an agent's forked to another, and blocks as an export has them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Unpack, cast

import orjson

from asterism.errors import Conflict, InvalidInput, NotFound
from asterism.memory import archive, history
from asterism.memory import blocks as rows
from asterism.memory.blocks import OPEN, BlockRow, EraRow
from asterism.memory.edits import BlockContent
from asterism.memory.gate import blocks
from asterism.memory.gate.blocks import BlockOptions, OpenBlock, pending_content
from asterism.memory.gate.rows import (
    Fresh,
    block_changed,
    hold_archive,
    insert_block,
    insert_passages,
    lock_block,
    passages_changed,
    put_edit,
    put_era,
    put_replica,
)
from asterism.memory.gate.writer import Writer, judge
from asterism.memory.history import UNDOES, SourcedLine, as_of, lines_with_origins
from asterism.memory.words import digest, embed
from asterism.permissions import Act, Resource
from asterism.store import agents, documents, passages
from asterism.store.agents import PassageOwner
from asterism.store.database import Connection
from asterism.store.passages import StoredPassage
from asterism.types.agents import Label, new_id
from asterism.types.memory import (
    CONSTELLATION,
    Block,
    Line,
    Origin,
    Passage,
    Permission,
    Share,
    Source,
)

_PAGE = 500


@dataclass(frozen=True, slots=True)
class Forked:
    """How much was copied from one agent to another."""

    blocks: int
    shared: int
    """Blocks of others that both see now."""
    passages: int
    """Those that hold; others go along with their history."""
    sources: int


async def fork_memory(
    tx: Connection,
    writer: Writer,
    source_agent_id: str,
    target_agent_id: str,
    *,
    moment: int | None = None,
) -> Forked:
    """Copy what an agent remembers, now or at a moment, to another one.

    Now: its blocks and passages with their history. At a moment: each as it was then, its blocks
    with one edit for whatever came from the same origins. What others share with it, and sources,
    as they are now. A turn's writing in the original is not the copy's: to take it back in one
    leaves the other as it is.
    """
    source = await _agent(tx, writer, source_agent_id)
    target = await _agent(tx, writer, target_agent_id)
    if source == target:
        raise InvalidInput(
            f"{source.name!r} cannot be copied to itself. Name another agent. Nothing was changed."
        )
    judge_memory(writer, target, f"copy the memory of {source.name!r} to {target.name!r}")
    async with tx.savepoint():
        await hold_archive(tx, target.id)
        if moment is None:
            copied = await _fork_blocks(tx, writer, source, target)
        else:
            copied = await _fork_blocks_of_then(tx, writer, source, target, moment)
        shared = await _fork_shares(tx, writer, source, target)
        held = await _fork_passages(tx, writer, source, target, moment)
        attached = [
            await documents.attach(tx, one.id, target.id, writer.now)
            for one in await agents.attached(tx, source.id)
        ]
        return Forked(copied, shared, held, sum(attached))


async def plant(
    tx: Connection,
    writer: Writer,
    owner_id: str,
    label: str,
    *,
    kind: str,
    write: Callable[[BlockContent], None],
    lines: Sequence[SourcedLine],
    **given: Unpack[BlockOptions],
) -> Block:
    """Make a block whose lines keep who may see them, their trust and their origins.

    Args:
        tx: The transaction.
        writer: Who makes it: the owner, since who may see what is decided here.
        owner_id: The agent it shall belong to.
        label: What it is called.
        kind: What its history says of it: `fork` or `import`.
        write: Writes what the block shall say to its empty content.
        lines: The lines that this gives.
        given: As for `blocks.create`, besides content.
    """
    owner = await _agent(tx, writer, owner_id)
    judge_memory(writer, owner, f"make block {label!r} of {owner.name!r}")
    if writer.by_verb and kind == "import":
        # What they say that others have written is still told by them.
        told = Label(writer.source.trust)
        lines = [replace(line, label=Label.join((line.label, told))) for line in lines]
    async with tx.savepoint():
        block = await blocks.create(tx, writer, owner_id, label, **given)
        return await _fill(tx, writer, block, kind, write, lines)


async def _agent(tx: Connection, writer: Writer, agent_id: str) -> PassageOwner:
    found = await passages.archive(tx, writer.constellation, agent_id)
    if found is None or found.kind != "agent":
        raise NotFound(
            f'There is no agent {agent_id!r}. "asterism agent list" shows all. Nothing was changed.'
        )
    return found


def judge_memory(writer: Writer, agent: PassageOwner, what: str) -> None:
    """Return if the writer may make an agent's memory another one, which is the owner's to do."""
    permission = Permission.READ_WRITE if writer.agent_id == agent.id else None
    judge(writer, Act.GOVERN, Resource("memory", agent.name, permission), what)


async def _fill(
    tx: Connection,
    writer: Writer,
    block: Block,
    kind: str,
    write: Callable[[BlockContent], None],
    lines: Sequence[SourcedLine],
) -> Block:
    tried = BlockContent.new(block.schema)
    write(tried)
    if tried.lines() != [line.text for line in lines]:
        raise InvalidInput(
            f"Block {block.label!r} has {len(lines):,} lines that are not those of its content. "
            "Leave both as they were exported. It was not made."
        )
    sources: dict[tuple[Origin, ...], list[Label]] = {}
    for line in lines:
        sources.setdefault(line.origins, []).append(line.label)
    numbers = {origins: block.version + 1 + at for at, origins in enumerate(sources)}
    for at, (origins, labels) in enumerate(sources.items()):
        label = Label.join(labels)
        by = replace(writer, source=Source(origins, label.audience, label.trust))
        target = await _opened(tx, by, block)
        content = target.copy()
        if at == 0:
            write(content)
        made = [Line(one.text, (numbers[one.origins],), one.label) for one in lines]
        pending = replace(pending_content(target, content, made), nothing=False)
        block = await blocks.store_edit(target, kind, pending)
    return block


async def _opened(tx: Connection, writer: Writer, block: Block) -> OpenBlock:
    row = await lock_block(tx, block.id)
    assert row is not None, "it was made in this transaction"
    return OpenBlock.of(tx, writer, row, block)


# -- blocks ----------------------------------------------------------------------------------------


async def _refuse_taken(
    tx: Connection,
    writer: Writer,
    source: PassageOwner,
    target: PassageOwner,
    labels: Iterable[str],
) -> None:
    there = await rows.rows_visible_to(tx, writer.constellation, target.id)
    own = {one.row.label for one in there if one.row.owner_id == target.id}
    taken = sorted(own & set(labels))
    if taken:
        named = ", ".join(map(repr, taken))
        raise Conflict(
            f"{target.name!r} has blocks of the same labels as {source.name!r} ({named}). Rename "
            "or retire those, or copy to a new agent. Nothing was changed."
        )


async def _fork_blocks(
    tx: Connection, writer: Writer, source: PassageOwner, target: PassageOwner
) -> int:
    visible = await rows.rows_visible_to(tx, writer.constellation, source.id)
    own = [one.row for one in visible if one.row.owner_id == source.id]
    await _refuse_taken(tx, writer, source, target, [row.label for row in own])
    for row in own:
        whole = await rows.get(tx, row.id)
        assert whole is not None
        await _copy_block(tx, whole, target.id)
    return len(own)


async def _copy_block(tx: Connection, row: BlockRow, owner_id: str) -> None:
    """Copy a block with its history; whoever wrote it wrote to the original, so turns stay out."""
    copy = row._replace(id=new_id("block"), owner_id=owner_id)
    stored = await insert_block(tx, copy)
    assert stored, "the label is free"
    for era in await rows.eras(tx, row.id):
        await put_era(tx, copy.id, era if era.last == OPEN else _without_turns(era))
    for edit in await rows.edits(tx, row.id, 1, 1 << 62):
        await put_edit(tx, copy.id, edit._replace(turn_id=None))
    replica = await rows.replica(tx, row.id)
    if replica is not None:
        await put_replica(tx, copy.id, *replica)
    await block_changed(tx, copy)


def _without_turns(era: EraRow) -> EraRow:
    return history.era_with_edits(era, lambda edit: edit._replace(turn_id=None))


async def _fork_blocks_of_then(
    tx: Connection, writer: Writer, source: PassageOwner, target: PassageOwner, moment: int
) -> int:
    then = await as_of(tx, writer.constellation, source.id, moment, most=0)
    own = [one for one in then.blocks if one.owner_name is None]
    await _refuse_taken(tx, writer, source, target, [one.block.label for one in own])
    for seen in own:
        block = seen.block
        run = await history.run_with(tx, block.id, block.version)
        assert run is not None
        state = BlockContent(block.schema, run.parts_at(block.version)).state
        lines = await history.raw_lines_at(tx, block.id, block.version)
        await plant(
            *(tx, writer, target.id, block.label),
            kind="fork",
            write=lambda content, state=state: content.write(state),
            lines=await lines_with_origins(tx, block.id, lines),
            type=block.type,
            schema=block.schema,
            description=block.description,
            limit=block.limit,
            permission=block.permission,
            audience=block.audience,
            pinned=block.pinned,
        )
    return len(own)


async def _fork_shares(
    tx: Connection, writer: Writer, source: PassageOwner, target: PassageOwner
) -> int:
    copied = 0
    for one in await rows.rows_visible_to(tx, writer.constellation, source.id):
        if one.row.owner_id in (source.id, target.id):
            continue
        permission = await rows.share_of(tx, one.row.id, source.id)
        if permission is None:  # the constellation's, which everybody sees
            assert one.row.owner_id == CONSTELLATION
            continue
        await blocks.write(tx, writer, one.row.id, Share(target.id, Permission(permission)))
        copied += 1
    return copied


# -- archives --------------------------------------------------------------------------------------


async def _fork_passages(
    tx: Connection, writer: Writer, source: PassageOwner, target: PassageOwner, moment: int | None
) -> int:
    ids = await _new_ids(tx, source.id)
    held = 0
    after = ""
    while page := await passages.stored_passages(tx, source.id, after, _PAGE):
        after = page[-1].passage.id
        if moment is None:
            fresh = [_copied(one, one.passage, target.id, ids) for one in page]
        else:
            stored = {one.passage.id: one for one in page}
            then = await archive.as_of(tx, [one.passage for one in page], moment)
            fresh = [_copied(stored[one.id], one, target.id, ids) for one in then]
        await insert_passages(tx, writer.constellation, fresh)
        held += sum(
            one.passage.superseded_at is None and one.passage.retracted_at is None for one in fresh
        )
        if moment is None:
            await _copy_edits(tx, [one.passage.id for one in page], ids)
    return held


async def _new_ids(tx: Connection, archive_id: str) -> dict[str, str]:
    """Return a new id for each passage of an archive, in the same order."""
    old: list[str] = []
    while page := await passages.stored_passages(tx, archive_id, old[-1] if old else "", _PAGE):
        old += [one.passage.id for one in page]
    return dict(zip(sorted(old), sorted(new_id("pas") for _ in old), strict=True))


def _copied(stored: StoredPassage, then: Passage, archive_id: str, ids: dict[str, str]) -> Fresh:
    same = then.text == stored.passage.text
    vectors = None if same else embed([then.text])
    copy = replace(
        then,
        id=ids[then.id],
        archive_id=archive_id,
        superseded_by=ids.get(then.superseded_by or ""),
        metadata=_renamed(then.metadata, ids),
        turn_id=None,
    )
    if same:
        return Fresh(copy, stored.digest, stored.vector)
    return Fresh(copy, digest(then.text), vectors[0] if vectors else None)


def _renamed(metadata: dict[str, Any], ids: dict[str, str]) -> dict[str, Any]:
    found: Any = metadata.get("contradicts")
    if not isinstance(found, list):
        return metadata
    named = cast("list[Any]", found)
    return {**metadata, "contradicts": [ids.get(str(one), one) for one in named]}


async def _copy_edits(tx: Connection, passage_ids: Sequence[str], ids: dict[str, str]) -> None:
    for passage_id, edits in (await passages.edits_after(tx, passage_ids, -1)).items():
        numbers = {0: 0}
        for edit in reversed(edits):
            before = dict(edit.before)
            if before.get("superseded_by") is not None:
                before["superseded_by"] = ids.get(before["superseded_by"])
            if "metadata" in before:
                was = _renamed(orjson.loads(before["metadata"]), ids)
                before["metadata"] = orjson.dumps(was).decode()
            if UNDOES in before:
                before[UNDOES] = numbers[before[UNDOES]]
            copy = replace(edit, passage_id=ids[passage_id], turn_id=None, before=before)
            numbers[edit.number] = await passages_changed(tx, copy)
