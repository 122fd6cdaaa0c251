"""Every operation on a block, and edits as pure functions from one state to the next."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, cast, get_args

from asterism.errors import AsterismError, InvalidInput, NotFound
from asterism.memory import texts
from asterism.memory.content import (
    ROW_ID,
    Change,
    Parts,
    Row,
    composed_texts,
    from_json,
    initial,
    is_plain,
    lead_field,
    merge,
    merge_rows,
    new_row,
    parse,
    read_parts,
    read_row,
    row_fields,
    to_json,
    to_lines,
    write_parts,
    wrong,
)
from asterism.memory.schemas import LOG_TIME, read_fields, read_value, tidy_number, unknown_name
from asterism.memory.texts import Splice, clean_text, rebase_splices, sequence_splices, splice_text
from asterism.permissions import Act
from asterism.records import dataclass
from asterism.times import iso_text
from asterism.types.memory import (
    MAX_LIMIT,
    Add,
    Append,
    Block,
    BlockType,
    BlockWrite,
    CompositeSchema,
    Describe,
    EditRange,
    Field,
    FieldType,
    ListSchema,
    LogSchema,
    MapSchema,
    Merge,
    Patch,
    Redo,
    RemoveItem,
    Replace,
    Restore,
    Retire,
    Revert,
    Schema,
    SectionSchema,
    SetField,
    SetItem,
    SetText,
    Share,
    TextSchema,
    Undo,
    Unshare,
)

ContentEdit = Append | Replace | Patch | EditRange | SetText | SetField | Add | SetItem | RemoveItem
"""The edits that can be made of the content alone, without its history."""


@dataclass(frozen=True, slots=True)
class EditScope:
    """When an edit is made, in which lines, and how much it may make; see `BlockContent.apply`."""

    now: int = 0
    seen: Sequence[bool] | None = None
    limit: int = MAX_LIMIT


Apply = Callable[[Any, Any, Any, EditScope], Any]
"""Makes an edit: of a schema, a state and the edit."""


def apply_edit(schema: Schema, value: Any, edit: ContentEdit, scope: EditScope) -> Any:
    """Return the state of a document after an edit, or raise InvalidInput or NotFound."""
    if not isinstance(schema, CompositeSchema):
        if edit.section is not None:
            raise InvalidInput(
                f"This block has no sections, so there is no section {edit.section[:80]!r}. "
                "Leave the section out; nothing was changed."
            )
        return _edited_part(schema, value, edit, scope)
    if edit.section is None:
        if not isinstance(edit, SetText):
            names = ", ".join(repr(part.name) for part in schema.sections)
            raise InvalidInput(
                f"This block has sections. Say which one is meant: {names}. Nothing was changed."
            )
        return _all_sections(schema, value, edit, scope)
    section = section_of(schema, edit.section)
    if scope.seen is not None:
        scope = replace(scope, seen=_part_seen(schema, value, scope.seen)[section.name])
    made = _edited_part(section.schema, value[section.name], edit, scope)
    return {**value, section.name: made}


def section_of(schema: CompositeSchema, name: str) -> SectionSchema:
    """Return the section of a name."""
    for section in schema.sections:
        if section.name == name:
            return section
    raise unknown_name("section", name, [section.name for section in schema.sections])


def _part_seen(
    schema: CompositeSchema, value: Any, seen: Sequence[bool]
) -> dict[str, Sequence[bool]]:
    parts: dict[str, Sequence[bool]] = {}
    at = 0
    for section in schema.sections:
        count = len(to_lines(section.schema, value[section.name]))
        parts[section.name] = seen[at + 1 : at + 1 + count]
        at += 1 + count
    return parts


def _all_sections(schema: CompositeSchema, value: Any, edit: SetText, scope: EditScope) -> Any:
    new_value = parse(schema, edit.content)
    if not isinstance(new_value, Mapping):
        raise wrong("an object with the sections", new_value)
    wire = cast("Mapping[str, Any]", new_value)
    for name in wire:
        section_of(schema, name)
    parts = None if scope.seen is None else _part_seen(schema, value, scope.seen)
    return {
        section.name: _written(
            section.schema,
            value[section.name],
            wire[section.name]
            if section.name in wire
            else to_json(section.schema, initial(section.schema)),
            scope.now,
            None if parts is None else parts[section.name],
        )
        for section in schema.sections
    }


def _edited_part(schema: Schema, value: Any, edit: ContentEdit, scope: EditScope) -> Any:
    apply = (OPERATIONS[type(edit)].on or {}).get(type(schema))
    if apply is None:
        fitting = [
            kind_of(kind) for kind, op in OPERATIONS.items() if type(schema) in (op.on or ())
        ]
        raise InvalidInput(
            f"{kind_of(type(edit))!r} does not go with {_NAMES[type(schema)]}; "
            f"{', '.join(fitting)} would. Nothing was changed."
        )
    return apply(schema, value, edit, scope)


# -- the whole anew --------------------------------------------------------------------------------


def _set_text(schema: Schema, value: Any, edit: SetText, scope: EditScope) -> Any:
    return _written(schema, value, parse(schema, edit.content), scope.now, scope.seen)


def _written(
    schema: Schema, value: Any, new_value: Any, now: int, seen: Sequence[bool] | None
) -> Any:
    if isinstance(schema, MapSchema):
        # What is required cannot be taken away; a new map may be without it until it is known.
        fields = (replace(f, required=f.required and f.name in value) for f in schema.fields)
        schema = MapSchema(tuple(fields))
    made = from_json(schema, new_value, now)
    match schema:
        case TextSchema():
            return made if seen is None else _lines_carried(value, made, seen)
        case MapSchema():
            hidden = _hidden_fields(schema, seen)
            hidden_values = {n: v for n, v in value.items() if n in hidden and n not in new_value}
            return {
                **{n: v for n, v in made.items() if n not in hidden or n in new_value},
                **hidden_values,
            }
        case ListSchema() | LogSchema():
            visible_rows = value if seen is None else _seen_rows(value, seen)
            rows = _with_ids(schema, visible_rows, made)
            if isinstance(schema, ListSchema):
                _check_count(schema, len(rows) + len(value) - len(visible_rows))
            return rows if seen is None else merge_rows(visible_rows, value, rows, keep_all=True)
        case _:
            raise AssertionError(schema)


def _hidden_fields(schema: MapSchema, seen: Sequence[bool] | None) -> set[str]:
    if seen is None:
        return set()
    return {field.name for field, see in zip(schema.fields, seen, strict=True) if not see}


def _with_ids(schema: ListSchema | LogSchema, old: list[Row], new: list[Row]) -> list[Row]:
    """Give rows that were there before, as they are or changed, the ids that they had."""
    names = [LOG_TIME, *(field.name for field in row_fields(schema))]

    def row_text(row: Row) -> str:
        return json.dumps([row.get(name) for name in names], sort_keys=True)

    old_texts, new_texts = [row_text(row) for row in old], [row_text(row) for row in new]
    ids: dict[int, str] = {}
    pairs: list[tuple[int, int]] = []
    splices = sequence_splices(old_texts, new_texts)
    shift = behind = 0
    for splice in [*splices, Splice(len(old), 0, [])]:
        ids.update({i + shift: old[i][ROW_ID] for i in range(behind, splice.at)})
        if splice.delete == len(splice.insert):
            pairs += [(splice.at + k, splice.at + shift + k) for k in range(splice.delete)]
        shift += len(splice.insert) - splice.delete
        behind = splice.end
    taken = set(ids.values())
    gone = {
        text: row[ROW_ID]
        for text, row in zip(old_texts, old, strict=True)
        if row[ROW_ID] not in taken
    }
    for j, text in enumerate(new_texts):
        if j not in ids and text in gone:
            ids[j] = gone.pop(text)
            taken.add(ids[j])
    for i, j in pairs:
        if j not in ids and old[i][ROW_ID] not in taken:
            ids[j] = old[i][ROW_ID]
            taken.add(ids[j])
    return [{**row, ROW_ID: ids.get(j, row[ROW_ID])} for j, row in enumerate(new)]


# -- text ------------------------------------------------------------------------------------------


def _append_text(_schema: Schema, value: str, edit: Append, _scope: EditScope) -> str:
    return texts.append_line(value, edit)


def _on_seen_text(make: Callable[[str, Any, EditScope], str]) -> Apply:
    """Return what makes an edit in the lines of a text that its author sees."""

    def apply(_schema: Schema, value: str, edit: Any, scope: EditScope) -> str:
        if scope.seen is None:
            return make(value, edit, scope)
        visible = "\n".join(_seen_lines(value, scope.seen))
        return _lines_carried(value, make(visible, edit, scope), scope.seen)

    return apply


def _replace(text: str, edit: Replace, scope: EditScope) -> str:
    return texts.replace_part(text, edit, max(scope.limit, len(text)))


def _patch(text: str, edit: Patch, _scope: EditScope) -> str:
    return texts.apply_patch(text, edit)


def _edit_range(text: str, edit: EditRange, _scope: EditScope) -> str:
    return texts.with_lines(text, edit)


def _seen_lines(value: str, seen: Sequence[bool]) -> list[str]:
    return [line for line, see in zip(texts.lines_of(value), seen, strict=True) if see]


def _lines_carried(value: str, made: str, seen: Sequence[bool]) -> str:
    """Apply an edit of the visible lines to the whole text.

    It works on whole lines: a hidden line never becomes part of a visible line.
    """
    lines = texts.lines_of(value)
    hidden: list[Splice[list[str]]] = []
    place = 0
    for line, see in zip(lines, seen, strict=True):
        if see:
            place += 1
        elif hidden and hidden[-1].at == place:
            hidden[-1] = Splice(place, 0, [*hidden[-1].insert, line])
        else:
            hidden.append(Splice(place, 0, [line]))
    view = _seen_lines(value, seen)
    change = sequence_splices(view, texts.lines_of(made))
    moved = rebase_splices(
        [Splice(splice.at, splice.delete, list(splice.insert)) for splice in change],
        hidden,
        keep_all=True,
    )
    return "\n".join(splice_text(lines, moved))


# -- maps ------------------------------------------------------------------------------------------


def _add(schema: MapSchema, value: Row, edit: Add, _scope: EditScope) -> Row:
    field = field_of(schema, edit.field)
    if field.type is not FieldType.COUNTER:
        raise InvalidInput(
            f"Field {field.name!r} is not a counter but {field.type.value}, so nothing can be "
            "added to it. Set it; nothing was changed."
        )
    amount = read_value(field, edit.amount)
    total = tidy_number(value.get(field.name, 0) + amount)
    return {**value, field.name: read_value(field, total)}


def _set_field(schema: MapSchema, value: Row, edit: SetField, _scope: EditScope) -> Row:
    field = field_of(schema, edit.field)
    if edit.value is None:
        if field.required:
            raise InvalidInput(
                f"Field {field.name!r} is required and cannot be left empty. Nothing was changed."
            )
        return {name: other for name, other in value.items() if name != field.name}
    return {**value, field.name: read_value(field, edit.value)}


def field_of(schema: MapSchema, name: str) -> Field:
    """Return the field of a name."""
    for field in schema.fields:
        if field.name == name:
            return field
    raise unknown_name("field", name, [field.name for field in schema.fields])


# -- lists and logs --------------------------------------------------------------------------------


def _append_row(
    schema: ListSchema | LogSchema, value: list[Row], edit: Append, scope: EditScope
) -> list[Row]:
    if isinstance(schema, ListSchema):
        _check_count(schema, len(value) + 1)
    row = read_row(schema, parse_row(schema, edit.content))
    if isinstance(schema, LogSchema):
        row = {LOG_TIME: iso_text(scope.now), **row}
    return [*value, new_row(row)]


def parse_row(schema: ListSchema | LogSchema, content: str) -> Any:
    """Return the text of an item or an entry, or the object if the text is a JSON object."""
    if is_plain(schema) or not content.lstrip().startswith("{"):
        return clean_text(content, "The text").strip("\n")
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(
            f"This begins like a JSON object and is not one: {error}. Nothing was changed."
        ) from None


def _check_count(schema: ListSchema, count: int) -> None:
    if schema.max_items is not None and count > schema.max_items:
        raise InvalidInput(
            f"The list can hold {schema.max_items} items and would have {count}. Take some out "
            "first; nothing was changed."
        )


def _seen_rows(value: list[Row], seen: Sequence[bool]) -> list[Row]:
    return [row for row, see in zip(value, seen, strict=True) if see]


def _set_item(schema: ListSchema, value: list[Row], edit: SetItem, scope: EditScope) -> list[Row]:
    row = _item(value, edit.index, scope.seen)
    made = _changed_item(schema, row, edit.value)
    return [made if other is row else other for other in value]


def _remove_item(
    _schema: ListSchema, value: list[Row], edit: RemoveItem, scope: EditScope
) -> list[Row]:
    row = _item(value, edit.index, scope.seen)
    return [other for other in value if other is not row]


def _item(value: list[Row], index: int, seen: Sequence[bool] | None) -> Row:
    visible = value if seen is None else _seen_rows(value, seen)
    if not 1 <= index <= len(visible):
        count = f"{len(visible)} item{'' if len(visible) == 1 else 's'}" if visible else "no items"
        raise NotFound(f"There is no item {index}; the list has {count}. Nothing was changed.")
    return visible[index - 1]


def _changed_item(schema: ListSchema, row: Row, value: Any) -> Row:
    fields = row_fields(schema)
    if isinstance(value, str):
        value = parse_row(schema, value)
    if is_plain(schema) or isinstance(value, str):
        return (
            {**row, **read_row(schema, value)}
            if is_plain(schema)
            else _with_lead(row, schema, value)
        )
    if not isinstance(value, Mapping):
        names = ", ".join(field.name for field in fields)
        raise InvalidInput(f"An object with {names} is needed for an item. Nothing was changed.")
    wire = cast("Mapping[str, Any]", value)
    values = read_fields(fields, wire, "an item", whole=False)
    for field in fields:
        if field.required and field.name in wire and wire[field.name] is None:
            raise InvalidInput(
                f"Field {field.name!r} is required and cannot be left empty. Nothing was changed."
            )
    return {n: v for n, v in {**row, **values}.items() if n not in wire or wire[n] is not None}


def _with_lead(row: Row, schema: ListSchema, value: Any) -> Row:
    made = read_row(
        ListSchema(tuple(f for f in schema.item if f.type is FieldType.TEXT)[:1]), value
    )
    return {**row, **made}


# -- operations ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Operation:
    """One way to write to a block."""

    act: Act | Callable[[Any, Block], Act]
    """The act that `permissions.decide` judges."""
    undoable: bool = True
    """Whether it changes what a block says: an undo takes it back, and no redo goes beyond it."""
    describe: Callable[[Any, str], str] | None = None
    """Returns the words that a person who has to approve it reads; None: the name of its kind."""
    on: Mapping[type, Apply] | None = None
    """The functions that apply it, by kind of schema; None: only the gate can apply it."""


def _act_of_add(write: Add, _: Block) -> Act:
    # Taking away from a counter undoes what others added.
    return Act.APPEND if write.amount >= 0 else Act.OVERWRITE


def _act_of_describe(write: Describe, block: Block) -> Act:
    of_rule = (write.permission, write.audience, write.limit, write.label)
    if any(value is not None for value in of_rule):
        return Act.GOVERN
    if write.type not in (None, block.type) and BlockType.CORE in (write.type, block.type):
        return Act.GOVERN
    if write.schema is not None and not _only_viewport(write, block):
        return Act.GOVERN
    return Act.OVERWRITE


def _only_viewport(write: Describe, block: Block) -> bool:
    if not isinstance(write.schema, TextSchema) or not isinstance(block.schema, TextSchema):
        return False
    old = block.schema
    return replace(write.schema, first_line=old.first_line, lines=old.lines) == old


_EXCERPT = 200


def _short(text: str) -> str:
    return text if len(text) <= _EXCERPT else f"{text[:_EXCERPT]} …"


OPERATIONS: dict[type, Operation] = {
    Append: Operation(
        Act.APPEND,
        describe=lambda write, block: f"append to {block}: {_short(write.content)}",
        on={TextSchema: _append_text, ListSchema: _append_row, LogSchema: _append_row},
    ),
    Replace: Operation(
        Act.OVERWRITE,
        describe=lambda write, block: (
            f"replace in {block}: {_short(write.old)} by {_short(write.new)}"
        ),
        on={TextSchema: _on_seen_text(_replace)},
    ),
    Patch: Operation(
        Act.OVERWRITE,
        describe=lambda write, block: f"patch {block}: {_short(write.diff)}",
        on={TextSchema: _on_seen_text(_patch)},
    ),
    EditRange: Operation(
        Act.OVERWRITE,
        describe=lambda write, block: (
            f"write lines {write.first} to {write.last} of {block} anew: {_short(write.content)}"
        ),
        on={TextSchema: _on_seen_text(_edit_range)},
    ),
    SetField: Operation(
        Act.OVERWRITE,
        describe=lambda write, block: (
            f"set {write.field!r} of {block} to {_short(repr(write.value))}"
        ),
        on={MapSchema: _set_field},
    ),
    Add: Operation(
        _act_of_add,
        describe=lambda write, block: f"add {write.amount:g} to {write.field!r} of {block}",
        on={MapSchema: _add},
    ),
    SetItem: Operation(
        Act.OVERWRITE,
        describe=lambda write, block: (
            f"change item {write.index} of {block} to {_short(repr(write.value))}"
        ),
        on={ListSchema: _set_item},
    ),
    RemoveItem: Operation(
        Act.OVERWRITE,
        describe=lambda write, block: f"remove item {write.index} of {block}",
        on={ListSchema: _remove_item},
    ),
    SetText: Operation(
        Act.OVERWRITE,
        describe=lambda write, block: f"write {block} anew: {_short(write.content)}",
        on=dict.fromkeys((TextSchema, MapSchema, ListSchema, LogSchema), _set_text),
    ),
    Undo: Operation(Act.OVERWRITE, undoable=False),
    Redo: Operation(Act.OVERWRITE, undoable=False),
    Revert: Operation(Act.OVERWRITE),
    Restore: Operation(Act.OVERWRITE),
    Merge: Operation(Act.OVERWRITE),
    Describe: Operation(_act_of_describe, undoable=False),
    Share: Operation(
        Act.GOVERN,
        undoable=False,
        describe=lambda write, block: f"share {block} with the permission {write.permission.value}",
    ),
    Unshare: Operation(Act.GOVERN, undoable=False),
    Retire: Operation(Act.DELETE, undoable=False),
}
"""Every way to write to a block that is there."""

_NAMES: dict[type, str] = {
    TextSchema: "a text",
    MapSchema: "a map",
    ListSchema: "a list",
    LogSchema: "a log, to which entries are only added",
}
_unjudged = [kind.__name__ for kind in get_args(BlockWrite) if kind not in OPERATIONS]
if _unjudged:
    raise TypeError(f"These writes have no act, so that nobody could judge them: {_unjudged}")


def act_of(write: BlockWrite, block: Block) -> Act:
    """Return what a write counts as."""
    act = OPERATIONS[type(write)].act
    return act if isinstance(act, Act) else act(write, block)


def description_of(write: BlockWrite, block: Block) -> str:
    """Say what a write would do: "append to block 'human': likes tea"."""
    describe = OPERATIONS[type(write)].describe
    named = f"block {block.label!r}"
    return (
        describe(write, named) if describe else f"{kind_of(type(write)).replace('_', ' ')} {named}"
    )


@cache
def kind_of(write: type) -> str:
    """Return the kind, such as `append` or `edit_range`, that the history keeps of a write."""
    return re.sub("(?<!^)(?=[A-Z])", "_", write.__name__).lower()


UNDOABLE_KINDS = tuple(kind_of(kind) for kind, op in OPERATIONS.items() if op.undoable)


def touched_read_only(
    schema: Schema, value: Any, edit: ContentEdit, seen: Sequence[bool] | None = None
) -> str | None:
    """Return the read-only field or section that an edit would write, if any."""
    part = schema
    if isinstance(schema, CompositeSchema) and edit.section is not None:
        for section in schema.sections:
            if section.name == edit.section:
                if section.read_only:
                    return section.name
                part = section.schema
    named = _named_fields(part, edit)
    for field in _fields_of(part):
        if field.read_only and field.name in named:
            return field.name
    if not isinstance(edit, SetText):
        return None
    try:
        made = apply_edit(schema, value, edit, EditScope(seen=seen))
    except AsterismError:
        return None
    return read_only_difference(schema, value, made)


def _fields_of(schema: Schema) -> tuple[Field, ...]:
    match schema:
        case MapSchema():
            return schema.fields
        case ListSchema() | LogSchema():
            return row_fields(schema)
        case _:
            return ()


def _named_fields(schema: Schema, edit: ContentEdit) -> frozenset[str]:
    """Return the fields that an edit names."""
    value: Any = None
    match edit:
        case SetField() | Add():
            return frozenset({edit.field})
        case Append() if isinstance(schema, ListSchema | LogSchema):
            value = edit.content
        case SetItem() if isinstance(schema, ListSchema):
            value = edit.value
        case _:
            return frozenset()
    rows = schema
    if isinstance(value, str):
        try:
            value = parse_row(rows, value)
        except AsterismError:
            return frozenset()
    if isinstance(value, Mapping):
        return frozenset(map(str, cast("Mapping[str, Any]", value)))
    lead = lead_field(row_fields(rows))
    return frozenset({lead.name} if lead else ())


def read_only_difference(schema: Schema, old: Any, new: Any) -> str | None:
    """Return the read-only field or section in which two states differ, if any."""
    match schema:
        case CompositeSchema():
            for section in schema.sections:
                a, b = old[section.name], new[section.name]
                if section.read_only and to_json(section.schema, a) != to_json(section.schema, b):
                    return section.name
                if inner := read_only_difference(section.schema, a, b):
                    return inner
        case MapSchema():
            for field in schema.fields:
                if field.read_only and old.get(field.name) != new.get(field.name):
                    return field.name
        case ListSchema() | LogSchema():
            before = {row[ROW_ID]: row for row in old}
            for row in new:
                was = before.get(row[ROW_ID], {})
                for field in row_fields(schema):
                    former = was.get(field.name, None if was else field.default)
                    if field.read_only and row.get(field.name) != former:
                        return field.name
        case _:
            pass
    return None


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
        self,
        edit: ContentEdit,
        *,
        now: int = 0,
        seen: Sequence[bool] | None = None,
        limit: int = MAX_LIMIT,
    ) -> None:
        """Make one edit; on InvalidInput or NotFound nothing has changed.

        Args:
            edit: The edit. `SetText.base` is ignored here; see `write_against`.
            now: The moment in ms, for a log's entries.
            seen: For each of `lines()`, whether the author sees it; None: all. Numbers in the edit
                count the visible lines, errors quote no others, and hidden lines stay.
            limit: How many characters a replacement may make of a text that has fewer.
        """
        self.write(apply_edit(self._schema, self._state, edit, EditScope(now, seen, limit)))

    def write(self, state: Any) -> None:
        """Make the state another one."""
        self._parts = write_parts(self._schema, self._parts, state)
        self._state = read_parts(self._schema, self._parts)

    def take_back(self, before: Parts, after: Parts, since: Sequence[Change]) -> None:
        """Take back the edit from `before` to `after`; later changes stay.

        The edit is taken back character by character where its text is still there, also in lines
        that an undo and a redo have brought back to the same place.
        """
        self._merge(after, read_parts(self._schema, before), since, keep_all=False)

    def write_against(
        self, base: Parts, edit: SetText, since: Sequence[Change], *, now: int = 0
    ) -> None:
        """Replace the whole content, based on a former state; changes since then stay."""
        wanted = apply_edit(self._schema, read_parts(self._schema, base), edit, EditScope(now))
        self._merge(base, wanted, since, keep_all=True)

    def _merge(self, base: Parts, wanted: Any, since: Sequence[Change], *, keep_all: bool) -> None:
        was = read_parts(self._schema, base)
        texts = composed_texts(since, self._parts)
        self.write(merge(self._schema, was, self._state, wanted, keep_all=keep_all, deltas=texts))

    def touched_read_only(
        self, edit: ContentEdit, *, seen: Sequence[bool] | None = None
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
        """The content in the form of `values`."""
        return self._state

    @property
    def schema(self) -> Schema:
        """The schema for reading and writing."""
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
        """Return the content for editing and for `SetText`: plain text, or pretty JSON."""
        value = self.value()
        if isinstance(self._schema, TextSchema):
            return value
        return json.dumps(value, ensure_ascii=False, indent=2) + "\n"

    def value(self) -> Any:
        """Return the whole as a JSON value."""
        return to_json(self._schema, self._state)
