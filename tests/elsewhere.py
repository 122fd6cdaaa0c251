"""A replica of a block that another program edits."""

from __future__ import annotations

from asterism.memory.edits import BlockContent, ContentEdit
from asterism.memory.gate.replicas import Replica
from asterism.types.memory import Schema


class Elsewhere:
    """A replica of a block that another program edits."""

    def __init__(self, schema: Schema, updates: bytes) -> None:
        self.schema = schema
        self.replica = Replica.read(schema, updates)

    @property
    def content(self) -> BlockContent:
        """What it says."""
        content = BlockContent(self.schema, {})
        content.write(self.replica.state)
        return content

    def edit(self, edit: ContentEdit, now: int = 0) -> None:
        """Make one edit."""
        content = self.content
        content.apply(edit, now=now)
        self.replica.write(content.state)

    def updates(self, since: bytes | None = None) -> bytes:
        """Return what there is to merge."""
        return self.replica.updates(since)
