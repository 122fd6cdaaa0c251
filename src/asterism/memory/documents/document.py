"""The content of a block under its schema."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from asterism.memory.documents.edits import DocumentEdit, edited
from asterism.memory.documents.merging import merged
from asterism.memory.documents.parts import Change, Parts, composed_texts, read_parts, write_parts
from asterism.memory.documents.read_only import read_only_difference, touched_read_only
from asterism.memory.documents.values import initial, to_json, to_lines
from asterism.types.memory import Schema, SetText, TextSchema


class BlockContent:
    """The content of a block under its schema: edits are made on its state and checked first."""

    __slots__ = ("_parts", "_schema", "_state")

    def __init__(self, schema: Schema, parts: Parts) -> None:
        self._schema = schema
        self._parts = parts
        self._state = read_parts(schema, parts)

    @staticmethod
    def new(schema: Schema) -> BlockContent:
        """Return the content of a new block: the defaults of its fields."""
        content = BlockContent(schema, {})
        content.write(initial(schema))
        return content

    def apply(
        self, edit: DocumentEdit, *, now: int = 0, seen: Sequence[bool] | None = None
    ) -> None:
        """Make one edit; on InvalidInput or NotFound nothing has changed.

        Args:
            edit: What to do. `SetText.base` is the caller's business (`write_against`).
            now: The moment in ms, for a log's entries.
            seen: For each of `lines()`, whether the author sees it; None: all. Numbers in the edit
                count what is seen, errors quote nothing else, and what is not seen stays.
        """
        self.write(edited(self._schema, self._state, edit, now, seen))

    def write(self, state: Any) -> None:
        """Make the state another one."""
        self._parts = write_parts(self._schema, self._parts, state)
        self._state = read_parts(self._schema, self._parts)

    def take_back(self, before: Parts, after: Parts, since: Sequence[Change]) -> None:
        """Take one edit back, which made `after` of `before`; what has changed since stays.

        What the edit did is taken back in what is left of it, character by character, and in lines
        that have come back at the same place since (by an undo and a redo).
        """
        self._merge(after, read_parts(self._schema, before), since, keep_all=False)

    def write_against(
        self, base: Parts, edit: SetText, since: Sequence[Change], *, now: int = 0
    ) -> None:
        """Write the whole anew as against a former state; what has changed since is kept."""
        wanted = edited(self._schema, read_parts(self._schema, base), edit, now)
        self._merge(base, wanted, since, keep_all=True)

    def _merge(self, base: Parts, wanted: Any, since: Sequence[Change], *, keep_all: bool) -> None:
        was = read_parts(self._schema, base)
        texts = composed_texts(since, self._parts)
        self.write(merged(self._schema, was, self._state, wanted, keep_all=keep_all, deltas=texts))

    def touched_read_only(
        self, edit: DocumentEdit, *, seen: Sequence[bool] | None = None
    ) -> str | None:
        """Return the read-only field or section that an edit would write, if any."""
        return touched_read_only(self._schema, self._state, edit, seen)

    def read_only_changed(self, other: BlockContent) -> str | None:
        """Return the read-only field or section in which two states differ, if any."""
        return read_only_difference(self._schema, self._state, other.state)

    def lines(self) -> list[str]:
        """Return everything, one unit after the other; never a newline inside one."""
        return to_lines(self._schema, self._state)

    @property
    def parts(self) -> Parts:
        """What is stored of it."""
        return self._parts

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

    def editable(self) -> str:
        """Return what a person edits and `SetText` takes: text as it is, else pretty JSON."""
        value = self.value()
        if isinstance(self._schema, TextSchema):
            return value
        return json.dumps(value, ensure_ascii=False, indent=2) + "\n"

    def value(self) -> Any:
        """Return the whole as a JSON value."""
        return to_json(self._schema, self._state)
