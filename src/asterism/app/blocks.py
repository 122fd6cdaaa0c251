"""The verbs about blocks, for command line, API and programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from asterism.app.session import Session, note, verbs
from asterism.errors import NotAllowed, NotFound
from asterism.memory import blocks, history, people
from asterism.memory import blocks as rows
from asterism.memory.blocks import VisibleBlock
from asterism.memory.edits import BlockContent
from asterism.memory.gate import blocks as gate
from asterism.memory.gate import replicas, undo
from asterism.memory.schemas import read_schema
from asterism.permissions import Act
from asterism.store.database import Connection
from asterism.times import to_ms
from asterism.types.agents import AgentRecord
from asterism.types.memory import (
    DEFAULT_LIMIT,
    Append,
    Block,
    BlockType,
    BlockWrite,
    EditRecord,
    Line,
    Permission,
    Replace,
    Restore,
    Revert,
    Schema,
    SetField,
    SetText,
    Share,
    Undo,
    Unshare,
)

OptionalAgent = AgentRecord | str | None
"""An agent, its name or id, or None for blocks of the whole constellation."""


@verbs(
    "block",
    list=Act.READ,
    get=Act.READ,
    create=Act.OVERWRITE,
    write=Act.OVERWRITE,
    editable=Act.READ,
    shares=Act.READ,
    history=Act.READ,
    at=Act.READ,
    version_at=Act.READ,
    diff=Act.READ,
    blame=Act.READ,
    updates=Act.READ,
)
class Blocks:
    """Blocks: labelled documents that agents always see, or see when they need them."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def list(self, agent: OptionalAgent = None) -> list[VisibleBlock]:
        """Return the blocks that an agent sees; without one, all blocks there are."""
        agent_id = await self._session.agent_id(agent) or None

        async def read(tx: Connection) -> list[VisibleBlock]:
            participants = await self._session.participants(tx)
            stored = await blocks.seen_by(tx, agent_id)
            visible = (blocks.as_visible_to(block, participants) for block in stored)
            return [block for block in visible if block is not None]

        return await self._session.database.read(read)

    async def get(self, agent: OptionalAgent, label: str) -> VisibleBlock:
        """Return a block that an agent sees by its label; `owner/label` for one of another's."""
        agent_id = await self._session.agent_id(agent) or None
        return await self._session.database.read(lambda tx: self._visible(tx, agent_id, label))

    async def _visible(self, tx: Connection, agent_id: str | None, label: str) -> VisibleBlock:
        """Return a block as the actor may see it."""
        participants = await self._session.participants(tx)
        seen = await blocks.find(tx, agent_id, label, participants)
        visible = blocks.as_visible_to(seen, participants)
        assert visible is not None, "what they may not see was not found"
        return visible

    async def create(
        self,
        agent: OptionalAgent,
        label: str,
        content: str = "",
        *,
        kind: BlockType = BlockType.CORE,
        schema: Schema | Mapping[str, Any] | str = "text",
        description: str = "",
        limit: int = DEFAULT_LIMIT,
        permission: Permission = Permission.READ_WRITE,
        audience: str | None = None,
        pinned: bool = False,
        shared_with: Mapping[str, Permission] | None = None,
        existing: bool = False,
        by: str = "api",
    ) -> Block:
        """Create a block; with `existing`, return the block of that label if it exists.

        Args:
            agent: Its owner; None: the constellation, so that every agent sees it.
            label: What it is called.
            content: What it says at first: text, or JSON for other schemas.
            kind: When agents see it.
            schema: What it is made of: a schema, its JSON form, or the name of a template.
            description: What it is for; agents read it.
            limit: The most characters it may hold.
            permission: What its owner may do to it.
            audience: Who may see it, such as `owner`, `public` or `person:anna|role:family`; the
                owner alone if the owner or an admin creates it, else `public`.
            pinned: Whether a working block is always seen.
            shared_with: Other agents by name, with what each may do to it.
            existing: Whether to accept a block that exists already.
            by: What asks for it, such as `api` or `cli`.
        """
        session = self._session
        owner_id = await session.agent_id(agent)
        seen_by = audience or ("owner" if session.sees_all else "public")
        shares = [
            Share((await session.agent(name)).id, permitted)
            for name, permitted in (shared_with or {}).items()
        ]
        parsed = read_schema(schema) if isinstance(schema, str | Mapping) else schema
        make = gate.ensure if existing else _create

        async def work(tx: Connection) -> Block:
            writer = await session.writer(tx, by)
            block, is_new = await make(
                tx,
                writer,
                owner_id,
                label,
                type=kind,
                schema=parsed,
                content=content,
                description=description,
                limit=limit,
                permission=permission,
                audience=await people.read_audience(tx, seen_by),
                pinned=pinned,
            )
            for share in shares:
                block = await gate.write(tx, writer, block.id, share)
            if is_new or shares:
                event = "block.created" if is_new else "block.shared"
                details = {"permission": permission.value, "audience": seen_by}
                await self._note(tx, event, block, owner_id, by, details)
            return block

        return self._answer(await session.database.write(work))

    def _answer(self, block: Block) -> Block:
        """Return a block as whoever has written it is shown it; without its text to non-readers."""
        return block if self._session.may(Act.READ, "block.get") else replace(block, text="")

    async def _note(
        self,
        tx: Connection,
        event: str,
        block: Block,
        owner_id: str | None,
        by: str,
        details: Mapping[str, str],
    ) -> None:
        """Add an event about a block to the audit log: its text is in its own history."""
        await note(
            tx,
            self._session,
            event,
            by=by,
            agent_id=owner_id,
            what=block.label,
            block=block.id,
            **details,
        )

    async def write(
        self,
        agent: OptionalAgent,
        label: str,
        write: BlockWrite,
        *,
        reason: str = "",
        by: str = "api",
        version: int | None = None,
    ) -> Block:
        """Edit, describe, share, undo or retire a block, as its owner.

        Args:
            agent: The agent that sees it; None: blocks of the whole constellation.
            label: Which block, by its label.
            write: What is done to it.
            reason: Why, for its history.
            by: What asks for it, such as `api` or `cli`.
            version: The version that it must still have; None: whichever it has.
        """
        session = self._session
        agent_id = await session.agent_id(agent) or None

        async def work(tx: Connection) -> Block:
            seen = await self._writable(tx, agent_id, label, version)
            self._must_own(seen, write)
            writer = await session.writer(tx, by, reason)
            await note(
                tx,
                session,
                "block.written",
                by=by,
                agent_id=seen.block.owner_id,
                what=seen.block.label,
                block=seen.block.id,
                edit=type(write).__name__.lower(),
                reason=reason,
            )
            if isinstance(write, Revert):  # an owner may take back what was said of a block, too
                return await undo.revert_edit(tx, writer, seen.block.id, write.edit)
            return await gate.write(tx, writer, seen.block.id, write)

        return self._answer(await session.database.write(work))

    async def _writable(
        self, tx: Connection, agent_id: str | None, label: str, version: int | None
    ) -> VisibleBlock:
        """Return a block that the actor may write: they must see all of it."""
        found = await self._visible(tx, agent_id, label)
        if version is not None or not self._session.sees_all:
            await gate.lock(tx, found.block.id, version)
        if self._session.sees_all:
            return found
        found = await self._visible(tx, agent_id, label)  # as it is now that it is locked
        row = await rows.get(tx, found.block.id)
        if row is None or len(rows.read_lines(row.text, row.lines)) != len(found.lines):
            raise NotAllowed(
                f"Block {label!r} cannot be changed by {self._session.actor}. The owner can do it, "
                "or tell the agent. Nothing was changed."
            )
        return found

    def _must_own(self, seen: VisibleBlock, write: BlockWrite) -> None:
        """Raise for a write that other agents would notice, if they do not exist for the actor."""
        session = self._session
        if isinstance(write, Share | Unshare) and not session.sees_agent(write.agent_id):
            raise NotFound(
                f'There is no agent {write.agent_id!r}. "asterism agent list" shows all. Nothing '
                "was changed."
            )
        if not session.sees_agent(seen.block.owner_id):
            raise NotAllowed(
                f"Block {seen.name!r} belongs to other agents, or to all of them. Use a token for "
                "all agents to change it. Nothing was changed."
            )

    async def editable(self, agent: OptionalAgent, label: str) -> tuple[Block, str]:
        """Return a block and the form that a person edits: its text, or JSON for other schemas."""
        seen = await self.get(agent, label)
        row = await self._session.database.read(lambda tx: rows.get(tx, seen.block.id))
        assert row is not None
        block = blocks.block_of(row)
        if block.text != seen.block.text:
            return seen.block, seen.block.text
        return block, BlockContent(block.schema, rows.read_parts(row)).editable()

    async def shares(self, agent: OptionalAgent, label: str) -> dict[str, Permission]:
        """Return the agents that a block is shared with, by name, and what each may do to it."""
        block = (await self.get(agent, label)).block
        shares = await self._session.database.read(lambda tx: rows.shares(tx, block.id))
        return {
            name: Permission(permitted)
            for agent_id, name, permitted in shares
            if self._session.sees_agent(agent_id)
        }

    async def history(
        self, agent: OptionalAgent, label: str, *, limit: int = 50, before: int | None = None
    ) -> list[EditRecord]:
        """Return the edits of a block, the newest first."""
        block = (await self.get(agent, label)).block

        async def read(tx: Connection) -> list[EditRecord]:
            if self._session.sees_all:
                return await history.edits(tx, block.id, limit=limit, before=before)
            visible = await history.visible_edits(
                tx, block.id, await self._session.participants(tx)
            )
            newest = sorted(
                (version for version in visible if before is None or version < before), reverse=True
            )
            return [history.record_of(block.id, visible[version][0]) for version in newest[:limit]]

        return await self._session.database.read(read)

    async def at(
        self,
        agent: OptionalAgent,
        label: str,
        *,
        version: int | None = None,
        moment: datetime | None = None,
    ) -> list[Line]:
        """Return the lines of a block at a version, or at a moment."""
        seen = await self.get(agent, label)
        if version is None and moment is None:
            return list(seen.lines)
        if version is None and moment is not None:
            version = await self.version_at(agent, label, moment)
        return await self._lines(seen.block, version or 0)

    async def version_at(self, agent: OptionalAgent, label: str, moment: datetime) -> int:
        """Return the version that a block had at a moment; 0: it was not there yet."""
        block = (await self.get(agent, label)).block
        then = to_ms(moment)
        assert then is not None

        async def read(tx: Connection) -> int:
            if self._session.sees_all:
                return await history.version_at(tx, block.id, then)
            visible = await history.visible_edits(
                tx, block.id, await self._session.participants(tx)
            )
            return max(
                (version for version, (edit, _) in visible.items() if edit.at <= then), default=0
            )

        return await self._session.database.read(read)

    async def diff(self, agent: OptionalAgent, label: str, a: int, b: int | None = None) -> str:
        """Return how a block differs between two versions; without the second, from now."""
        seen = await self.get(agent, label)
        old = await self._lines(seen.block, a)
        new = await self._lines(seen.block, b) if b is not None else seen.lines
        names = (f"version {a}", f"version {seen.block.version if b is None else b}")
        return history.diff_text([line.text for line in old], [line.text for line in new], *names)

    async def _lines(self, block: Block, version: int) -> list[Line]:
        async def read(tx: Connection) -> list[Line] | None:
            participants = await self._session.participants(tx)
            if version == 0:
                return []
            return await history.visible_lines_at(tx, block, version, participants)

        found = await self._session.database.read(read)
        if found is None:
            raise NotFound(f"Block {block.label!r} has no version {version}.")
        return found

    async def blame(
        self, agent: OptionalAgent, label: str
    ) -> Sequence[tuple[Line, list[EditRecord]]]:
        """Return each line of a block with the edits it comes from."""
        seen = await self.get(agent, label)

        async def read(tx: Connection) -> list[tuple[Line, list[EditRecord]]]:
            return await history.blame_for(tx, seen, await self._session.participants(tx))

        return await self._session.database.read(read)

    async def updates(self, agent: OptionalAgent, label: str, since: bytes | None = None) -> bytes:
        """Return the Loro updates of a block, for another replica to merge."""
        block = (await self.get(agent, label)).block
        if not self._session.sees_all:
            raise NotAllowed(
                f"The updates of block {label!r} hold all of it, and what it said when it was "
                "exported before, which only the owner and an admin may see. Read it with `get`. "
                "Nothing was read."
            )

        async def work(tx: Connection) -> bytes:
            writer = await self._session.writer(tx, "api")
            return await replicas.export_updates(tx, writer, block.id, since)

        return await self._session.database.write(work)


class AgentBlocks:
    """The blocks that one agent sees; `agent.blocks["human"]` names one of them."""

    def __init__(self, blocks: Blocks, agent: AgentRecord | str) -> None:
        self._blocks = blocks
        self._agent = agent

    def __getitem__(self, label: str) -> AgentBlock:
        """Return a block by its label; nothing is read yet."""
        return AgentBlock(self._blocks, self._agent, label)

    __iter__ = None  # else Python would go through labels 0, 1, 2 and so on without an end

    async def list(self) -> Sequence[VisibleBlock]:
        """Return all of them."""
        return await self._blocks.list(self._agent)

    async def create(self, label: str, content: str = "", **options: Any) -> AgentBlock:
        """Create a block of this agent; `Blocks.create` has the options."""
        await self._blocks.create(self._agent, label, content, **options)
        return self[label]


class AgentBlock:
    """A block that an agent sees, by its label: read and edited by the owner."""

    def __init__(self, blocks: Blocks, agent: AgentRecord | str, label: str) -> None:
        self._blocks = blocks
        self._agent = agent
        self.label = label

    async def get(self) -> VisibleBlock:
        """Return the block with its lines."""
        return await self._blocks.get(self._agent, self.label)

    async def text(self) -> str:
        """Return its text."""
        return (await self.get()).block.text

    async def append(self, content: str, *, section: str | None = None, reason: str = "") -> Block:
        """Add a line, or an item or entry, to the end."""
        return await self.write(Append(content, section), reason=reason)

    async def replace(
        self, old: str, new: str, *, section: str | None = None, reason: str = ""
    ) -> Block:
        """Put a text in place of the first that reads so."""
        return await self.write(Replace(old, new, section=section), reason=reason)

    async def set(self, content: str, *, section: str | None = None, reason: str = "") -> Block:
        """Put a text in place of all that it says."""
        return await self.write(SetText(content, section=section), reason=reason)

    async def set_field(
        self, field: str, value: Any, *, section: str | None = None, reason: str = ""
    ) -> Block:
        """Give a field of a map a value."""
        return await self.write(SetField(field, value, section), reason=reason)

    async def undo(self, *, reason: str = "") -> Block:
        """Take the latest edit back."""
        return await self.write(Undo(), reason=reason)

    async def restore(self, version: int, *, reason: str = "") -> Block:
        """Restore the text of a version; this is a new edit."""
        return await self.write(Restore(version), reason=reason)

    async def write(self, write: BlockWrite, *, reason: str = "") -> Block:
        """Edit, describe, share, undo or retire it."""
        return await self._blocks.write(self._agent, self.label, write, reason=reason)

    async def history(self, *, limit: int = 50, before: int | None = None) -> Sequence[EditRecord]:
        """Return its edits, the newest first."""
        return await self._blocks.history(self._agent, self.label, limit=limit, before=before)

    async def at(
        self, *, version: int | None = None, moment: datetime | None = None
    ) -> Sequence[Line]:
        """Return its lines at a version, or at a moment."""
        return await self._blocks.at(self._agent, self.label, version=version, moment=moment)


async def _create(*arguments: Any, **options: Any) -> tuple[Block, bool]:
    return await gate.create(*arguments, **options), True
