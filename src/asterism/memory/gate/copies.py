"""The gate for copies of memory: an agent's forked to another, and blocks as an export has them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
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
    insert_block,
    insert_passages,
    lock_archive,
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
from asterism.records import dataclass
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
    """Copy the memory of an agent, as it is now or was at a moment, to another agent.

    Without a moment, blocks and passages are copied with their history. With a moment, they are
    copied as they were then, and a block gets one edit for each set of origins; sources are those
    that were attached then and still are. Shares are always those of now. To revert a turn in the
    original leaves the copy as it is.
    """
    source = await _agent(tx, source_agent_id)
    target = await _agent(tx, target_agent_id)
    if source == target:
        raise InvalidInput(
            f"{source.name!r} cannot be copied to itself. Name another agent. Nothing was changed."
        )
    judge_memory(writer, target, f"copy the memory of {source.name!r} to {target.name!r}")
    async with tx.savepoint():
        await lock_archive(tx, target.id)
        visible = await rows.rows_visible_to(tx, source.id)
        labels = [found.row.label for found in visible if found.row.owner_id == source.id]
        await blocks.drop_untouched(tx, writer, target.id, labels)
        if moment is None:
            copied = await _fork_blocks(tx, source, target)
        else:
            copied = await _fork_past_blocks(tx, writer, source, target, moment)
        shared = await _fork_shares(tx, writer, source, target)
        passage_count = await _fork_passages(tx, source, target, moment)
        if moment is None:
            sources = [attached.id for attached in await agents.attached_sources(tx, source.id)]
        else:
            past = await passages.sources_attached_at(tx, source.id, moment)
            sources = [source_row[0] for source_row in past]
        attached = [
            await documents.attach(tx, source_id, target.id, writer.now) for source_id in sources
        ]
        return Forked(copied, shared, passage_count, sum(attached))


async def create_with_lines(
    tx: Connection,
    writer: Writer,
    owner_id: str,
    label: str,
    *,
    kind: str,
    write: Callable[[BlockContent], None],
    lines: Sequence[SourcedLine],
    **options: Unpack[BlockOptions],
) -> Block:
    """Make a block whose lines keep who may see them, their trust and their origins.

    Args:
        tx: The transaction.
        writer: The owner, since this decides who may see what.
        owner_id: The agent that owns it.
        label: Its name.
        kind: The kind of its first edit: `fork` or `import`.
        write: Writes the content into an empty `BlockContent`.
        lines: The lines of that content.
        options: As for `blocks.create`, except the content.
    """
    owner = await _agent(tx, owner_id)
    judge_memory(writer, owner, f"make block {label!r} of {owner.name!r}")
    if writer.by_verb and kind == "import":
        # What they say that others have written is still told by them.
        writer_label = Label(writer.source.trust)
        lines = [replace(line, label=Label.join((line.label, writer_label))) for line in lines]
    async with tx.savepoint():
        block = await blocks.create(tx, writer, owner_id, label, **options)
        return await _fill(tx, writer, block, kind, write, lines)


async def _agent(tx: Connection, agent_id: str) -> PassageOwner:
    owner = await passages.archive(tx, agent_id)
    if owner is None or owner.kind != "agent":
        raise NotFound(
            f'There is no agent {agent_id!r}. "asterism agent list" shows all. Nothing was changed.'
        )
    return owner


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
        made = [Line(line.text, (numbers[line.origins],), line.label) for line in lines]
        pending = replace(pending_content(target, content, made), nothing=False)
        block = await blocks.store_edit(target, kind, pending)
    return block


async def _opened(tx: Connection, writer: Writer, block: Block) -> OpenBlock:
    row = await lock_block(tx, block.id)
    assert row is not None, "it was made in this transaction"
    return OpenBlock.of(tx, writer, row, block)


# -- blocks ----------------------------------------------------------------------------------------


async def _check_labels_free(
    tx: Connection, source: PassageOwner, target: PassageOwner, labels: Iterable[str]
) -> None:
    there = await rows.rows_visible_to(tx, target.id)
    own = {visible_row.row.label for visible_row in there if visible_row.row.owner_id == target.id}
    taken = sorted(own & set(labels))
    if taken:
        named = ", ".join(map(repr, taken))
        raise Conflict(
            f"{target.name!r} has blocks of the same labels as {source.name!r} ({named}). Rename "
            "or retire those, or copy to a new agent. Nothing was changed."
        )


async def _fork_blocks(tx: Connection, source: PassageOwner, target: PassageOwner) -> int:
    visible = await rows.rows_visible_to(tx, source.id)
    own = [visible_row.row for visible_row in visible if visible_row.row.owner_id == source.id]
    await _check_labels_free(tx, source, target, [row.label for row in own])
    for row in own:
        whole = await rows.get(tx, row.id)
        assert whole is not None
        await _copy_block(tx, whole, target.id)
    return len(own)


async def _copy_block(tx: Connection, row: BlockRow, owner_id: str) -> None:
    """Copy a block with its history, without turns: they wrote to the original."""
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


async def _fork_past_blocks(
    tx: Connection, writer: Writer, source: PassageOwner, target: PassageOwner, moment: int
) -> int:
    then = await as_of(tx, source.id, moment, most=0)
    own = [past_block for past_block in then.blocks if past_block.owner_name is None]
    await _check_labels_free(tx, source, target, [past_block.block.label for past_block in own])
    for seen in own:
        block = seen.block
        run = await history.run_with(tx, block.id, block.version)
        assert run is not None
        state = BlockContent(block.schema, run.parts_at(block.version)).state
        lines = await history.raw_lines_at(tx, block.id, block.version)
        await create_with_lines(
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
    for visible_row in await rows.rows_visible_to(tx, source.id):
        if visible_row.row.owner_id in (source.id, target.id):
            continue
        permission = await rows.share_of(tx, visible_row.row.id, source.id)
        if permission is None:  # the constellation's, which everybody sees
            assert visible_row.row.owner_id == CONSTELLATION
            continue
        await blocks.write(tx, writer, visible_row.row.id, Share(target.id, Permission(permission)))
        copied += 1
    return copied


# -- archives --------------------------------------------------------------------------------------


async def _fork_passages(
    tx: Connection, source: PassageOwner, target: PassageOwner, moment: int | None
) -> int:
    ids = await _new_ids(tx, source.id)
    count = 0
    after = ""
    while page := await passages.stored_passages(tx, source.id, after, _PAGE):
        after = page[-1].passage.id
        if moment is None:
            fresh = [_copied(stored_row, stored_row.passage, target.id, ids) for stored_row in page]
        else:
            stored = {stored_row.passage.id: stored_row for stored_row in page}
            then = await archive.as_of(tx, [stored_row.passage for stored_row in page], moment)
            fresh = [_copied(stored[passage.id], passage, target.id, ids) for passage in then]
        await insert_passages(tx, fresh)
        count += sum(
            row.passage.superseded_at_ms is None and row.passage.retracted_at_ms is None
            for row in fresh
        )
        if moment is None:
            await _copy_edits(tx, [stored_row.passage.id for stored_row in page], ids)
    return count


async def _new_ids(tx: Connection, archive_id: str) -> dict[str, str]:
    """Return a new id for each passage of an archive, in the same order."""
    old: list[str] = []
    while page := await passages.stored_passages(tx, archive_id, old[-1] if old else "", _PAGE):
        old += [stored_row.passage.id for stored_row in page]
    return dict(zip(sorted(old), sorted(new_id("pas") for _ in old), strict=True))


def _copied(stored: StoredPassage, then: Passage, archive_id: str, ids: dict[str, str]) -> Fresh:
    same = then.text == stored.passage.text
    vectors = None if same else embed([then.text])
    copy = replace(
        then,
        id=ids[then.id],
        archive_id=archive_id,
        superseded_by=ids.get(then.superseded_by or ""),
        metadata=_with_new_ids(then.metadata, ids),
        turn_id=None,
    )
    if same:
        return Fresh(copy, stored.digest, stored.vector)
    return Fresh(copy, digest(then.text), vectors[0] if vectors else None)


def _with_new_ids(metadata: dict[str, Any], ids: dict[str, str]) -> dict[str, Any]:
    contradicted: Any = metadata.get("contradicts")
    if not isinstance(contradicted, list):
        return metadata
    named = cast("list[Any]", contradicted)
    return {
        **metadata,
        "contradicts": [ids.get(str(passage_id), passage_id) for passage_id in named],
    }


async def _copy_edits(tx: Connection, passage_ids: Sequence[str], ids: dict[str, str]) -> None:
    for passage_id, edits in (await passages.edits_after(tx, passage_ids, -1)).items():
        numbers = {0: 0}
        for edit in reversed(edits):
            before = dict(edit.before)
            if before.get("superseded_by") is not None:
                before["superseded_by"] = ids.get(before["superseded_by"])
            if "metadata" in before:
                was = _with_new_ids(orjson.loads(before["metadata"]), ids)
                before["metadata"] = orjson.dumps(was).decode()
            if UNDOES in before:
                before[UNDOES] = numbers[before[UNDOES]]
            copy = replace(edit, passage_id=ids[passage_id], turn_id=None, before=before)
            numbers[edit.number] = await passages_changed(tx, copy)
