"""A document's state in Loro's containers: read from them, and written with few operations.

Each section (the whole: `""`) has root containers of its own: `SECTION:text`, `SECTION:fields`,
`SECTION:list:FIELD`, `SECTION:counter:FIELD`, `SECTION:rows`. Rows are Loro maps in a movable list,
so that two who change two fields of a row do not undo each other.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

from asterism.errors import InvalidInput
from asterism.memory.documents.diffing import (
    Splice,
    longest_rise,
    sequence_splices,
    text_splices,
)
from asterism.memory.documents.fields import read_value, tidy_number
from asterism.memory.documents.schemas import LOG_TIME
from asterism.memory.documents.values import ROW_ID, Row, row_fields
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
    from loro import Frontiers, LoroDoc

_ABOUT = "about"
_ID = "id"
_TOO_LATE = "shallow history"
"""What Loro says when updates build on what is older than the start (as of 1.17)."""


class LoroRefused(Exception):
    """Loro's own words on what it would not do."""


class LoroTooLate(LoroRefused):
    """What was given builds on versions that are older than the history at hand."""


@contextmanager
def loro_errors() -> Generator[None]:
    """Turn Loro's errors, which are bare BaseExceptions (as of 1.17), into one of ours."""
    try:
        yield
    except BaseException as error:
        if type(error) is BaseException or type(error).__module__ == "pyo3_runtime":
            kind = LoroTooLate if _TOO_LATE in str(error) else LoroRefused
            raise kind(str(error)) from error
        raise


# -- documents -------------------------------------------------------------------------------------


def create(peer: int) -> LoroDoc:
    """Make a document that knows which one it is, so that no other is ever merged into it."""
    from loro import LoroDoc

    doc = LoroDoc()
    identity = secrets.token_hex(8)
    doc.peer_id = _own_peer(identity, peer)
    doc.get_map(_ABOUT).insert(_ID, identity)
    doc.commit()
    return doc


def load(blobs: Sequence[bytes], peer: int | None) -> LoroDoc:
    """Load a document from a snapshot and updates; LoroRefused if it cannot be."""
    from loro import LoroDoc

    doc = LoroDoc()
    with loro_errors():
        # One by one: a batch is twenty times slower (Loro 1.17, a thousand updates of a text).
        for blob in blobs:
            doc.import_(blob)
        if doc.export_pending_updates() is not None:
            raise LoroRefused("updates are missing")
    use_peer(doc, peer)
    return doc


def use_peer(doc: LoroDoc, peer: int | None) -> None:
    """Let edits belong to a peer; None: to one that nobody else has."""
    own = secrets.randbits(63) if peer is None else _own_peer(identity_of(doc), peer)
    if doc.peer_id != own:
        doc.peer_id = own


def _own_peer(identity: str, peer: int) -> int:
    """Return a replica's peer in one document.

    Were it the same in all of them, Loro would take another document's updates for known ones.
    """
    told = hashlib.blake2b(f"{identity}:{peer}".encode(), digest_size=8).digest()
    return int.from_bytes(told) >> 1


def identity_of(doc: LoroDoc) -> str:
    """Return what tells a document from all others."""
    about = cast("dict[str, Any]", doc.get_map(_ABOUT).get_deep_value())
    return str(about.get(_ID, ""))


def frontiers(version: bytes) -> Frontiers:
    """Return a version as Loro's frontiers."""
    from loro import Frontiers

    with loro_errors():
        return Frontiers.decode(version)


# -- reading ---------------------------------------------------------------------------------------


def read(schema: Schema, doc: LoroDoc) -> Any:
    """Return a document's state."""
    roots = cast("dict[str, Any]", doc.get_deep_value())
    if isinstance(schema, CompositeSchema):
        return {one.name: _read_part(one.schema, roots, one.name) for one in schema.sections}
    return _read_part(schema, roots, "")


def _read_part(schema: Schema, roots: dict[str, Any], section: str) -> Any:
    match schema:
        case TextSchema():
            return roots.get(f"{section}:text", "")
        case MapSchema():
            return _read_map(schema, roots, section)
        case ListSchema() | LogSchema():
            return _read_rows(schema, roots.get(f"{section}:rows", []))
        case CompositeSchema():
            raise AssertionError(schema)


def _read_map(schema: MapSchema, roots: dict[str, Any], section: str) -> Row:
    stored = roots.get(f"{section}:fields", {})
    value: Row = {}
    for field in schema.fields:
        match field.type:
            case FieldType.COUNTER:
                value[field.name] = tidy_number(roots.get(f"{section}:counter:{field.name}", 0))
            case FieldType.LIST:
                if listed := roots.get(f"{section}:list:{field.name}"):
                    value[field.name] = listed
            case _:
                if stored.get(field.name) is not None:
                    value[field.name] = stored[field.name]
    return value


def _read_rows(schema: ListSchema | LogSchema, stored: list[Any]) -> list[Row]:
    names = {ROW_ID, LOG_TIME, *(field.name for field in row_fields(schema))}
    rows: dict[str, Row] = {}
    for one in stored:
        if is_row(one):
            # Two who put back the same row at once have it twice; it is shown once.
            kept = {name: value for name, value in one.items() if name in names}
            rows.setdefault(one[ROW_ID], {n: v for n, v in kept.items() if v is not None})
    if isinstance(schema, ListSchema):
        return list(rows.values())
    return sorted(rows.values(), key=lambda row: str(row.get(LOG_TIME, "")))


def is_row(stored: Any) -> bool:
    """Tell whether what is in a list of rows is one."""
    return isinstance(stored, dict) and isinstance(cast("dict[str, Any]", stored).get(ROW_ID), str)


def misfits(schema: Schema, doc: LoroDoc) -> set[str]:
    """Say which values in a document are none that its schema takes; no edit of ours writes one."""
    roots = cast("dict[str, Any]", doc.get_deep_value())
    parts = (
        [(one.name, one.schema) for one in schema.sections]
        if isinstance(schema, CompositeSchema)
        else [("", schema)]
    )
    return {told for section, part in parts for told in _misfits(part, roots, section)}


def _misfits(schema: Schema, roots: dict[str, Any], section: str) -> Iterator[str]:
    value = _read_part(schema, roots, section)
    match schema:
        case TextSchema():
            if "\0" in value:
                yield "a null character in the text."
        case MapSchema():
            yield from _misfitting(schema.fields, value)
        case ListSchema() | LogSchema():
            if not all(map(is_row, roots.get(f"{section}:rows", []))):
                yield "a row without an id."
            for row in value:
                yield from _misfitting(row_fields(schema), row)
        case CompositeSchema():
            raise AssertionError(schema)


def _misfitting(fields: Sequence[Field], values: Row) -> Iterator[str]:
    for field in fields:
        if field.name in values:
            try:
                if read_value(field, values[field.name]) == values[field.name]:
                    continue
            except InvalidInput:
                pass
            yield f"field {field.name!r} with {values[field.name]!r:.80}."


# -- writing ---------------------------------------------------------------------------------------


def write(schema: Schema, doc: LoroDoc, old: Any, new: Any) -> None:
    """Make a document's state, which is `old`, the new one, in one commit."""
    if isinstance(schema, CompositeSchema):
        for one in schema.sections:
            _write_part(one.schema, doc, one.name, old[one.name], new[one.name])
    else:
        _write_part(schema, doc, "", old, new)
    doc.commit()


def _write_part(schema: Schema, doc: LoroDoc, section: str, old: Any, new: Any) -> None:
    if old == new:
        return
    match schema:
        case TextSchema():
            text = doc.get_text(f"{section}:text")
            for one in reversed(text_splices(old, new)):
                if one.delete:
                    text.delete(one.at, one.delete)
                if one.insert:
                    text.insert(one.at, one.insert)
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
            for one in reversed(_list_splices(old.get(field.name, []), value or [])):
                if one.delete:
                    listed.delete(one.at, one.delete)
                for offset, item in enumerate(one.insert):
                    listed.insert(one.at + offset, item)
        case _ if value is None:
            doc.get_map(f"{section}:fields").delete(field.name)
        case _:
            doc.get_map(f"{section}:fields").insert(field.name, value)


def _list_splices(old: list[Any], new: list[Any]) -> list[Splice[list[Any]]]:
    """Compare lists in which `1` and `True` are not the same."""
    told = sequence_splices([json.dumps(one) for one in old], [json.dumps(one) for one in new])
    splices: list[Splice[list[Any]]] = []
    shift = 0
    for one in told:
        start = one.at + shift
        splices.append(Splice(one.at, one.delete, new[start : start + len(one.insert)]))
        shift += len(one.insert) - one.delete
    return splices


def _write_rows(
    schema: ListSchema | LogSchema, doc: LoroDoc, section: str, old: list[Row], new: list[Row]
) -> None:
    rows: Any = doc.get_movable_list(f"{section}:rows")
    wanted = {row[ROW_ID]: row for row in new}
    was = {row[ROW_ID]: row for row in old}
    there = _remove_rows(rows, wanted)
    for index, one in enumerate(there):
        _write_row(rows.get(index).container, was.get(one, {}), wanted[one])
    if isinstance(schema, ListSchema):
        _order_rows(rows, there, [row[ROW_ID] for row in new])
    else:
        there += [row[ROW_ID] for row in new if row[ROW_ID] not in was]
    for index, one in enumerate(there):
        if one not in was:
            _insert_row(rows, index, wanted[one])


def _remove_rows(rows: Any, wanted: dict[str, Row]) -> list[str]:
    """Take out what is not wanted, is there twice or is no row; return the ids that stay."""
    there: list[str] = []
    gone: list[int] = []
    for index, one in enumerate(rows.get_deep_value()):
        if is_row(one) and one[ROW_ID] in wanted and one[ROW_ID] not in there:
            there.append(one[ROW_ID])
        else:
            gone.append(index)
    for index in reversed(gone):
        rows.delete(index, 1)
    return there


def _order_rows(rows: Any, there: list[str], wanted: list[str]) -> None:
    """Move rows until they are in order, as few as possible; note the new ones in `there`."""
    place = {one: index for index, one in enumerate(wanted)}
    stay = {there[index] for index in longest_rise([place[one] for one in there])}
    for one in [one for one in there if one not in stay]:
        index = there.index(one)
        rows.mov(index, len(there) - 1)
        there.append(there.pop(index))
    shift = 0
    for index, one in enumerate(wanted):
        if one not in there:
            shift += 1
        elif there[index - shift] != one:
            here = there.index(one)
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
