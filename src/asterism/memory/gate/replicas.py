"""Replicas of a block elsewhere: its Loro document, kept beside it once it has left the database.

A block is merged with what was written elsewhere through Loro. The document is made when a block is
exported for the first time, and brought up to what the block says whenever it is exported or
merged; the block itself is written and read without it.

Each section (the whole: `""`) has root containers of its own: `SECTION:text`, `SECTION:fields`,
`SECTION:list:FIELD`, `SECTION:counter:FIELD`, `SECTION:rows`. Rows are Loro maps in a movable list,
so that two who change two fields of a row do not undo each other.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

from asterism.errors import InvalidInput, NotAllowed, NotFound, StoreDamaged
from asterism.memory import blocks as rows
from asterism.memory.blocks import BlockRow
from asterism.memory.content import (
    ROW_ID,
    Row,
    is_row,
    read_map,
    read_parts,
    read_rows,
    row_fields,
    sections_of,
)
from asterism.memory.gate.rows import put_replica
from asterism.memory.gate.writer import Writer, by_owner
from asterism.memory.schemas import read_value, schema_of
from asterism.memory.texts import Splice, longest_increasing, sequence_splices, text_splices
from asterism.store.database import Connection
from asterism.types.memory import (
    CompositeSchema,
    Field,
    FieldType,
    ListSchema,
    LogSchema,
    MapSchema,
    Schema,
    TextSchema,
)

if TYPE_CHECKING:
    from loro import LoroDoc

_ABOUT = "about"
_ID = "id"


# -- of a block ------------------------------------------------------------------------------------


async def export_updates(
    tx: Connection, writer: Writer, block_id: str, since: bytes | None = None
) -> bytes:
    """Return the updates that another replica of a block has to merge.

    Args:
        tx: The transaction.
        writer: Who takes it along: the owner, since it says all that the block says.
        block_id: The block.
        since: The encoded frontiers that the other replica has; None, or what this one does not
            know, gives everything. What is known already does no harm.
    """
    row = await rows.get(tx, block_id)
    if row is None or row.constellation != tx.constellation:
        raise NotFound(f"There is no block {block_id!r}.")
    if not by_owner(writer) and not writer.by_verb:
        raise NotAllowed(
            f"The updates of block {row.label!r} hold all that it ever said elsewhere, and only "
            "the owner takes them along. Read the block. Nothing was read."
        )
    return (await replica_of(tx, row)).updates(since)


async def replica_of(tx: Connection, row: BlockRow) -> Replica:
    """Return the Loro document of a block, with all that it says now in it, and keep it."""
    stored = await rows.replica(tx, row.id)
    schema = schema_of(row.schema)
    replica = Replica.new(schema) if stored is None else Replica.load(schema, stored.document)
    if stored is None or stored.version != row.version:
        replica.write(read_parts(schema, rows.read_parts(row)))
        await store(tx, row.id, row.version, replica)
    return replica


async def store(tx: Connection, block_id: str, version: int, replica: Replica) -> None:
    """Store a block's Loro document, which says what the block says at a version."""
    await put_replica(tx, block_id, version, replica.snapshot())


class Replica:
    """The Loro document of a block under its schema, with all of its operations."""

    __slots__ = ("_doc", "_schema")

    def __init__(self, schema: Schema, doc: LoroDoc) -> None:
        self._schema = schema
        self._doc = doc

    @staticmethod
    def new(schema: Schema) -> Replica:
        """Make a document that knows which one it is, so that no other is ever merged into it."""
        from loro import LoroDoc

        doc = LoroDoc()
        doc.peer_id = secrets.randbits(63)
        doc.get_map(_ABOUT).insert(_ID, secrets.token_hex(8))
        doc.commit()
        return Replica(schema, doc)

    @staticmethod
    def load(schema: Schema, document: bytes) -> Replica:
        """Load a document that was stored."""
        try:
            return Replica(schema, _loaded(document))
        except LoroRefused as error:
            raise StoreDamaged(
                f"A block's Loro document cannot be read as it is stored ({error}). "
                "Restore the database from a backup; nothing was changed."
            ) from error

    @staticmethod
    def read(schema: Schema, updates: bytes) -> Replica:
        """Make one more replica from all the updates of another."""
        try:
            replica = Replica(schema, _loaded(updates))
        except LoroRefused:
            raise InvalidInput(
                "These are not all the updates of a block. Export them from its other replica. "
                "Nothing was changed."
            ) from None
        if misfits := set(_invalid_values(schema, replica._doc)):
            raise _schema_error(misfits)
        return replica

    @property
    def state(self) -> Any:
        """What it says."""
        return _read(self._schema, self._doc)

    @property
    def version(self) -> bytes:
        """The encoded frontiers of its state."""
        return self._doc.oplog_frontiers.encode()

    def write(self, state: Any) -> None:
        """Bring it to the content of a block, with as few operations as possible.

        They belong to a peer of their own: were it the same each time, a database that was copied
        would write other operations under the same ids, and Loro would take them for known ones.
        """
        self._doc.peer_id = secrets.randbits(63)
        _write(self._schema, self._doc, self.state, state)

    def snapshot(self) -> bytes:
        """Return the whole document with its operations."""
        from loro import ExportMode

        return self._doc.export(ExportMode.Snapshot())

    def updates(self, since: bytes | None = None) -> bytes:
        """Return the operations since encoded frontiers; all of them if those are not known."""
        from loro import ExportMode, Frontiers, VersionVector

        known = None
        if since is not None:
            try:
                with loro_errors():
                    known = self._doc.frontiers_to_vv(Frontiers.decode(since))
            except LoroRefused:
                known = None
        return self._doc.export(ExportMode.Updates(VersionVector() if known is None else known))

    def merge(self, updates: bytes) -> None:
        """Take in another replica's updates.

        Raises:
            InvalidInput: They are not updates, are of another document or of another schema, or
                build on updates that are missing.
        """
        # On a copy: Loro keeps updates that it cannot apply yet.
        doc = _loaded(self.snapshot())
        known = doc.oplog_vv.to_spans().inner()
        _import(doc, updates)
        for peer in doc.oplog_vv.to_spans().inner():
            if peer not in known and _has_new_root(doc, peer):
                raise InvalidInput(
                    "These updates are of another document. Give updates that were made from a "
                    "copy of this block; nothing was changed."
                )
        if new := set(_invalid_values(self._schema, doc)) - set(
            _invalid_values(self._schema, self._doc)
        ):
            raise _schema_error(new)
        self._doc = doc


def _schema_error(misfits: set[str]) -> InvalidInput:
    return InvalidInput(
        f"These updates would write what the schema does not take: {min(misfits)} "
        "Nothing was changed."
    )


# -- Loro ------------------------------------------------------------------------------------------


class LoroRefused(Exception):
    """Loro refused an operation; the message is Loro's own."""


@contextmanager
def loro_errors() -> Generator[None]:
    """Turn Loro's errors, which are bare BaseExceptions (as of 1.17), into one of ours."""
    try:
        yield
    except BaseException as error:
        if type(error) is BaseException or type(error).__module__ == "pyo3_runtime":
            raise LoroRefused(str(error)) from error
        raise


def _loaded(blob: bytes) -> LoroDoc:
    from loro import LoroDoc

    doc = LoroDoc()
    with loro_errors():
        doc.import_(blob)
        if doc.export_pending_updates() is not None:
            raise LoroRefused("updates are missing")
    return doc


def _import(doc: LoroDoc, updates: bytes) -> None:
    from loro import EncodedBlobMode, LoroDoc

    try:
        with loro_errors():
            mode = LoroDoc.decode_import_blob_meta(updates, check_checksum=True).mode
            if mode not in (EncodedBlobMode.Updates, EncodedBlobMode.Snapshot):
                raise InvalidInput(
                    "This is a snapshot without history, which cannot be merged. Export updates "
                    "instead; nothing was changed."
                )
            pending = doc.import_(updates).pending
    except LoroRefused as error:
        raise InvalidInput(
            f"These are not Loro updates ({error}). Export them from a replica of this block; "
            "nothing was changed."
        ) from error
    if pending is not None:
        raise InvalidInput(
            "These updates build on others that are not here. Merge those first, or export all "
            "updates since the two replicas were the same; nothing was changed."
        )


def _has_new_root(doc: LoroDoc, peer: int) -> bool:
    """Tell whether a peer's first change builds on nothing: only a document's first may."""
    from loro import ID, Frontiers

    change = doc.get_change(ID(peer, 0))
    return change is not None and change.deps.encode() == Frontiers().encode()


# -- reading ---------------------------------------------------------------------------------------


def _read(schema: Schema, doc: LoroDoc) -> Any:
    roots = cast("dict[str, Any]", doc.get_deep_value())
    parts = {name: _read_part(inner, roots, name) for name, inner in sections_of(schema)}
    return parts if isinstance(schema, CompositeSchema) else parts[""]


def _read_part(schema: Schema, roots: dict[str, Any], section: str) -> Any:
    match schema:
        case TextSchema():
            return roots.get(f"{section}:text", "")
        case MapSchema():
            return read_map(schema, _fields(schema, roots, section))
        case ListSchema() | LogSchema():
            return read_rows(schema, roots.get(f"{section}:rows", []))
        case CompositeSchema():
            raise AssertionError(schema)


def _fields(schema: MapSchema, roots: dict[str, Any], section: str) -> Row:
    stored: Row = dict(roots.get(f"{section}:fields", {}))
    for field in schema.fields:
        if field.type in (FieldType.COUNTER, FieldType.LIST):
            stored[field.name] = roots.get(f"{section}:{field.type.value}:{field.name}")
    return stored


def _invalid_values(schema: Schema, doc: LoroDoc) -> Iterator[str]:
    """Say which values in a document its schema does not take; no edit of ours writes one."""
    roots = cast("dict[str, Any]", doc.get_deep_value())
    for section, inner in sections_of(schema):
        value = _read_part(inner, roots, section)
        match inner:
            case TextSchema():
                if "\0" in value:
                    yield "a null character in the text."
            case MapSchema():
                yield from _invalid_fields(inner.fields, value)
            case ListSchema() | LogSchema():
                if not all(map(is_row, roots.get(f"{section}:rows", []))):
                    yield "a row without an id."
                for row in value:
                    yield from _invalid_fields(row_fields(inner), row)
            case CompositeSchema():
                raise AssertionError(schema)


def _invalid_fields(fields: Sequence[Field], values: Row) -> Iterator[str]:
    for field in fields:
        if field.name in values:
            try:
                if read_value(field, values[field.name]) == values[field.name]:
                    continue
            except InvalidInput:
                pass
            yield f"field {field.name!r} with {values[field.name]!r:.80}."


# -- writing ---------------------------------------------------------------------------------------


def _write(schema: Schema, doc: LoroDoc, old: Any, new: Any) -> None:
    """Make a document's state, which is `old`, the new one, in one commit."""
    if isinstance(schema, CompositeSchema):
        for section in schema.sections:
            _write_part(section.schema, doc, section.name, old[section.name], new[section.name])
    else:
        _write_part(schema, doc, "", old, new)
    doc.commit()


def _write_part(schema: Schema, doc: LoroDoc, section: str, old: Any, new: Any) -> None:
    if old == new:
        return
    match schema:
        case TextSchema():
            text = doc.get_text(f"{section}:text")
            for splice in reversed(text_splices(old, new)):
                if splice.delete:
                    text.delete(splice.at, splice.delete)
                if splice.insert:
                    text.insert(splice.at, splice.insert)
        case MapSchema():
            for field in schema.fields:
                if old.get(field.name) != new.get(field.name):
                    _write_field(field, doc, section, old, new)
        case ListSchema() | LogSchema():
            _write_rows(schema, doc, section, old, new)
        case CompositeSchema():
            raise AssertionError(schema)


def _write_field(field: Field, doc: LoroDoc, section: str, old: Row, new: Row) -> None:
    value = new.get(field.name)
    match field.type:
        case FieldType.COUNTER:
            change = (value or 0) - old.get(field.name, 0)
            doc.get_counter(f"{section}:counter:{field.name}").increment(round(change, 9))
        case FieldType.LIST:
            listed = doc.get_list(f"{section}:list:{field.name}")
            for splice in reversed(_list_splices(old.get(field.name, []), value or [])):
                if splice.delete:
                    listed.delete(splice.at, splice.delete)
                for offset, item in enumerate(splice.insert):
                    listed.insert(splice.at + offset, item)
        case _ if value is None:
            doc.get_map(f"{section}:fields").delete(field.name)
        case _:
            doc.get_map(f"{section}:fields").insert(field.name, value)


def _list_splices(old: list[Any], new: list[Any]) -> list[Splice[list[Any]]]:
    """Compare lists in which `1` and `True` are not the same."""
    changes = sequence_splices(
        [json.dumps(item) for item in old], [json.dumps(item) for item in new]
    )
    splices: list[Splice[list[Any]]] = []
    shift = 0
    for change in changes:
        start = change.at + shift
        splices.append(Splice(change.at, change.delete, new[start : start + len(change.insert)]))
        shift += len(change.insert) - change.delete
    return splices


def _write_rows(
    schema: ListSchema | LogSchema, doc: LoroDoc, section: str, old: list[Row], new: list[Row]
) -> None:
    rows: Any = doc.get_movable_list(f"{section}:rows")
    wanted = {row[ROW_ID]: row for row in new}
    was = {row[ROW_ID]: row for row in old}
    there = _remove_rows(rows, wanted)
    for index, row_id in enumerate(there):
        _write_row(rows.get(index).container, was.get(row_id, {}), wanted[row_id])
    if isinstance(schema, ListSchema):
        _order_rows(rows, there, [row[ROW_ID] for row in new])
    else:
        there += [row[ROW_ID] for row in new if row[ROW_ID] not in was]
    for index, row_id in enumerate(there):
        if row_id not in was:
            _insert_row(rows, index, wanted[row_id])


def _remove_rows(rows: Any, wanted: dict[str, Row]) -> list[str]:
    """Remove rows that are not wanted, doubled or not valid; return the ids that stay."""
    there: list[str] = []
    gone: list[int] = []
    for index, row in enumerate(rows.get_deep_value()):
        if is_row(row) and row[ROW_ID] in wanted and row[ROW_ID] not in there:
            there.append(row[ROW_ID])
        else:
            gone.append(index)
    for index in reversed(gone):
        rows.delete(index, 1)
    return there


def _order_rows(rows: Any, there: list[str], wanted: list[str]) -> None:
    """Move rows until they are in order, as few as possible; note the new ones in `there`."""
    place = {row_id: index for index, row_id in enumerate(wanted)}
    stay = {there[index] for index in longest_increasing([place[row_id] for row_id in there])}
    for row_id in [row_id for row_id in there if row_id not in stay]:
        index = there.index(row_id)
        rows.mov(index, len(there) - 1)
        there.append(there.pop(index))
    shift = 0
    for index, row_id in enumerate(wanted):
        if row_id not in there:
            shift += 1
        elif there[index - shift] != row_id:
            here = there.index(row_id)
            rows.mov(here, index - shift)
            there.insert(index - shift, there.pop(here))
    there[:] = wanted


def _write_row(container: Any, old: Row, new: Row) -> None:
    for name in {**old, **new}:
        if name not in new:
            container.delete(name)
        elif old.get(name) != new[name] or type(old.get(name)) is not type(new[name]):
            container.insert(name, new[name])


def _insert_row(rows: Any, index: int, row: Row) -> None:
    from loro import LoroMap

    container = rows.insert_container(index, LoroMap())
    for name, value in row.items():
        container.insert(name, value)
