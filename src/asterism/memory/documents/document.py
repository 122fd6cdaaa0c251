"""A block's Loro document under its schema."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from asterism.errors import NotFound, StoreDamaged
from asterism.memory.documents import storage
from asterism.memory.documents.edits import DocumentEdit, edited
from asterism.memory.documents.read_only import read_only_difference, touched_read_only
from asterism.memory.documents.values import initial, to_json, to_lines
from asterism.types.memory import Schema, TextSchema

if TYPE_CHECKING:
    from loro import LoroDoc


class Document:
    """A block's Loro document under its schema.

    Its state is read once and kept; edits are made on the state, checked, and only then written as
    one commit with as few operations as tell them.
    """

    __slots__ = ("_doc", "_schema", "_state")

    def __init__(self, schema: Schema, doc: LoroDoc) -> None:
        self._schema = schema
        self._doc = doc
        self._state = storage.read(schema, doc)

    @staticmethod
    def new(schema: Schema, peer: int) -> Document:
        """Make an empty document, with the defaults of its fields filled in."""
        document = Document(schema, storage.create(peer))
        document.write(initial(schema))
        return document

    @staticmethod
    def load(schema: Schema, snapshot: bytes, peer: int) -> Document:
        """Load a document from a snapshot; edits made to it belong to the peer."""
        return Document(schema, loaded([snapshot], peer))

    def apply(
        self, edit: DocumentEdit, *, now: int = 0, seen: Sequence[bool] | None = None
    ) -> None:
        """Make one edit as one commit; on InvalidInput or NotFound nothing has changed.

        Args:
            edit: What to do. `SetText.base` is the caller's business (`History.write_at`).
            now: The moment in ms, for a log's entries.
            seen: For each of `lines()`, whether the author sees it; None: all. Numbers in the edit
                count what is seen, errors quote nothing else, and what is not seen stays.
        """
        self.write(edited(self._schema, self._state, edit, now, seen))

    def write(self, state: Any) -> None:
        """Make the state another one, in one commit."""
        storage.write(self._schema, self._doc, self._state, state)
        self._state = storage.read(self._schema, self._doc)

    def touched_read_only(
        self, edit: DocumentEdit, *, seen: Sequence[bool] | None = None
    ) -> str | None:
        """Return the read-only field or section that an edit would write, if any."""
        return touched_read_only(self._schema, self._state, edit, seen)

    def read_only_changed(self, other: Document) -> str | None:
        """Return the read-only field or section in which two states differ, if any."""
        return read_only_difference(self._schema, self._state, other.state)

    def lines(self) -> list[str]:
        """Return everything, one unit after the other; never a newline inside one."""
        return to_lines(self._schema, self._state)

    @property
    def state(self) -> Any:
        """What it holds, as `values` describes it."""
        return self._state

    @property
    def schema(self) -> Schema:
        """What it is read and written as."""
        return self._schema

    @property
    def text(self) -> str:
        """All lines."""
        return "\n".join(self.lines())

    @property
    def size(self) -> int:
        """How many characters it holds."""
        return len(self.text)

    @property
    def version(self) -> bytes:
        """The encoded frontiers of its state."""
        return self._doc.oplog_frontiers.encode()

    def snapshot(self) -> bytes:
        """Return the document as it is now, without its history."""
        from loro import ExportMode

        return self._doc.export(ExportMode.ShallowSnapshot(self._doc.oplog_frontiers))

    def ops_since(self, version: bytes) -> bytes:
        """Return the Loro update from encoded frontiers until now."""
        from loro import ExportMode

        try:
            since = self._doc.frontiers_to_vv(storage.frontiers(version))
        except storage.LoroRefused:
            since = None
        if since is None:
            raise NotFound(
                "This document does not know the version that its updates are asked from."
            )
        return self._doc.export(ExportMode.Updates(since))

    def editable(self) -> str:
        """Return what a person edits and `SetText` takes: text as it is, else pretty JSON."""
        value = self.value()
        if isinstance(self._schema, TextSchema):
            return value
        return json.dumps(value, ensure_ascii=False, indent=2) + "\n"

    def value(self) -> Any:
        """Return the whole as a JSON value."""
        return to_json(self._schema, self._state)


def loaded(blobs: Sequence[bytes], peer: int | None) -> LoroDoc:
    """Load a stored document."""
    try:
        return storage.load(blobs, peer)
    except storage.LoroRefused as error:
        raise StoreDamaged(
            f"A block's document cannot be read as it is stored ({error}). "
            "Restore the database from a backup; nothing was changed."
        ) from error
