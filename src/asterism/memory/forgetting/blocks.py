"""Rewriting the history of a block without a text.

The text of a block is followed character by character through all of its edits, and what is to be
forgotten is covered wherever it was written, so that every edit keeps its places and lengths:
numbers, versions, blame by line and undo work as before. Values of fields and rows are replaced
whole. The Loro document of a block that has one keeps only what the block says; the operations that
wrote anything else are covered in the same way, so that merging with other replicas still works.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import orjson

from asterism.errors import AsterismError
from asterism.memory.blocks import EditRow, EraRow, ReplicaRow, write_parts
from asterism.memory.content import (
    ROW_ID,
    TEXT_PART,
    Parts,
    Row,
    change_between,
    part_json,
    sections_of,
)
from asterism.memory.edits import BlockContent
from asterism.memory.forgetting.redaction import FORGOTTEN, Redactor, TextMatcher, same_length
from asterism.memory.forgetting.rows import TABLES, SweepResult
from asterism.memory.gate.replicas import LoroRefused, Replica, loro_errors
from asterism.memory.history import EditRun, change_of, read_era, write_era
from asterism.memory.schemas import schema_of
from asterism.memory.texts import Splice, splice_text
from asterism.records import dataclass
from asterism.store import forgetting as store
from asterism.store.database import Connection, Database
from asterism.types.memory import FieldType, MapSchema

if TYPE_CHECKING:
    from loro import LoroDoc

_ATTEMPTS = 5


Choice = Callable[[EditRow], bool]
"""Says of an edit whether all that it wrote is to be forgotten."""


@dataclass(slots=True)
class _Block:
    """All that is kept of a block's content, as it was read."""

    id: str
    version: int
    schema: str
    owner_id: str
    eras: list[EraRow]
    edits: list[EditRow]
    """The loose ones."""
    replica: ReplicaRow | None

    def runs(self) -> list[EditRun]:
        """Return all that was done to it, the earliest first; the last run is of loose edits."""
        runs = [read_era(era) for era in self.eras]
        loose = runs.pop() if runs else EditRun(1, {}, None, [], [])
        return [*runs, replace(loose, edits=self.edits)]


@dataclass(slots=True)
class _Rewritten:
    text: str
    content: str
    eras: list[EraRow]
    edits: list[EditRow]
    replica: bytes | None
    """The Loro document; empty: it had to go; None: it stays as it is."""
    count: int


def no_edit(_: EditRow) -> bool:
    """Choose no edit."""
    return False


async def sweep_blocks(
    database: Database, redactor: Redactor, chosen: Choice = no_edit, place: str = ""
) -> SweepResult:
    """Take it out of every version of every block of an open database."""
    result = SweepResult()
    for block_id in await database.read(partial(_ids, place=place)):
        for _ in range(_ATTEMPTS):
            block = await database.read(partial(_read, place=place, block_id=block_id))
            made = await asyncio.to_thread(
                _rewritten_or_reason, partial(rewritten, block, redactor, chosen)
            )
            if isinstance(made, str):
                result.left.append(f"Block {block_id} could not be written anew ({made}).")
            if not isinstance(made, _Rewritten):
                break
            if await database.write(partial(_write, place=place, block=block, made=made)):
                result.places[f"{place}blocks.text"] += made.count
                seers = partial(_agents_that_see, place=place, block_id=block_id)
                result.agents |= set(await database.read(seers))
                break
        else:
            result.left.append(f"Block {block_id} was edited all the time. Forget the same again.")
    return result


async def drop_former_texts(database: Database, owner: str | None, moment: int) -> SweepResult:
    """Forget what blocks, all or those of one agent, said before a moment and not since."""
    result = SweepResult()
    for block_id in await database.read(partial(_ids, place="")):
        block = await database.read(partial(_read, place="", block_id=block_id))
        if owner is not None and block.owner_id != owner:
            continue
        made = await asyncio.to_thread(_rewritten_or_reason, partial(without_past, block, moment))
        if isinstance(made, _Rewritten) and await database.write(
            partial(_write, place="", block=block, made=made)
        ):
            result.places["block history"] += made.count
    return result


async def sweep_blocks_of(
    tx: Connection, redactor: Redactor, chosen: Choice = no_edit, place: str = ""
) -> SweepResult:
    """Take it out of every version of every block in one transaction."""
    result = SweepResult()
    for block_id in await _ids(tx, place):
        block = await _read(tx, place, block_id)
        made = _rewritten_or_reason(partial(rewritten, block, redactor, chosen))
        if isinstance(made, _Rewritten):
            await _write(tx, place, block, made)
            result.places[f"{place}blocks.text"] += made.count
        elif made is not None:
            result.left.append(f"Block {block_id} could not be written anew ({made}).")
    return result


# -- rows --------------------------------------------------------------------------------------

_EDIT = "number, kind, author, turn_id, reason, source, undoes, undone_by, at, change"


async def _ids(tx: Connection, place: str) -> list[str]:
    condition = TABLES["blocks"].condition
    return await store.ids(tx, f"{place}blocks", "id", condition, (tx.constellation,))


async def _agents_that_see(tx: Connection, place: str, block_id: str) -> list[str]:
    """Return the agents that see a block."""
    rows = await tx.all(
        f"SELECT a.id FROM {place}agents a JOIN {place}blocks b"
        " ON b.constellation = a.constellation"
        " WHERE b.id = ? AND (b.owner_id = a.id OR b.owner_id = '' OR EXISTS (SELECT 1 FROM"
        f" {place}block_agents s WHERE s.block_id = b.id AND s.agent_id = a.id))",
        (block_id,),
    )
    return [row[0] for row in rows]


async def _read(tx: Connection, place: str, block_id: str) -> _Block:
    own = (block_id,)
    row = await tx.one(f"SELECT version, schema, owner_id FROM {place}blocks WHERE id = ?", own)
    eras = await tx.all(
        f"SELECT first, last, content, edits, since FROM {place}block_eras"
        " WHERE block_id = ? ORDER BY first",
        own,
    )
    edits = await tx.all(
        f"SELECT {_EDIT} FROM {place}block_edits WHERE block_id = ? ORDER BY number", own
    )
    replica = await tx.one(
        f"SELECT version, document FROM {place}block_replicas WHERE block_id = ?", own
    )
    version, schema, owner = row or (0, "", "")
    past = [EraRow(*era) for era in eras], [EditRow(*edit) for edit in edits]
    return _Block(
        block_id, version, schema, owner, *past, ReplicaRow(*replica) if replica else None
    )


async def _write(tx: Connection, place: str, block: _Block, made: _Rewritten) -> bool:
    """Store the rewritten block; False if it was edited since it was read."""
    whole = {"text": made.text, "content": made.content}
    if not await store.change(
        tx, f"{place}blocks", {"id": block.id}, {"version": block.version}, whole
    ):
        return False
    for era in made.eras:
        key = {"block_id": block.id, "first": era.first}
        new = {"content": era.content, "edits": era.edits}
        await store.change(tx, f"{place}block_eras", key, {}, new)
    for edit in made.edits:
        key = {"block_id": block.id, "number": edit.number}
        new = {"change": edit.change, "reason": edit.reason}
        await store.change(tx, f"{place}block_edits", key, {}, new)
    if made.replica:
        new = {"document": made.replica}
        await store.change(tx, f"{place}block_replicas", {"block_id": block.id}, {}, new)
    elif made.replica is not None:
        await tx.run(f"DELETE FROM {place}block_replicas WHERE block_id = ?", (block.id,))
    return True


# -- the history -------------------------------------------------------------------------------


def _rewritten_or_reason(make: Callable[[], _Rewritten | None]) -> _Rewritten | str | None:
    """Return a rewritten block, or the reason why it cannot be: its bytes may be damaged."""
    try:
        with loro_errors():
            return make()
    except (LoroRefused, AsterismError) as error:
        return str(error)


def rewritten(block: _Block, redactor: Redactor, chosen: Choice = no_edit) -> _Rewritten | None:
    """Return a block's content and history without it, or None if it is nowhere in them."""
    before = redactor.count
    past = _BlockHistory(block, redactor)
    gone = {edit.number for edit in past.edits if chosen(edit)}
    past.follow(gone)
    return past.rewrite(gone, redactor.count - before + len(gone))


def without_past(block: _Block, moment: int) -> _Rewritten | None:
    """Return a block without the texts that it had before a moment and does not have since.

    Its edits stay in the history with their authors and times; their texts are covered.
    """
    past = _BlockHistory(block, Redactor(TextMatcher(())))
    old = {edit.number for edit in past.edits if edit.at < moment and edit.reason != FORGOTTEN}
    if not old:
        return None
    past.follow(set(), keep_from=max(edit.number for edit in past.edits if edit.at < moment))
    return past.rewrite(old, len(old))


Leaf = tuple[str, str, str, str]
"""A value that a block said: its part, row (empty: a map has none), field, and itself as JSON."""


class _BlockHistory:
    """All that a block ever said, followed from its first edit on."""

    def __init__(self, block: _Block, redactor: Redactor) -> None:
        self._block = block
        self._redactor = redactor
        self._runs = block.runs()
        self.edits = [edit for run in self._runs for edit in run.edits]
        """The oldest first."""
        self._texts: dict[str, _Letters] = {}
        self._covered: set[Leaf] = set()
        """Values that go whole."""
        self._kept_values: set[str] | None = None
        """Values, as JSON, that stay of those said before `_keep_from`; None: all."""
        self._keep_from = 0
        self._values: dict[str, Any] = {}
        """The redacted values, by the JSON of the old ones."""
        self._states: dict[int, Parts] = {}
        """The parts that are JSON after each edit that changed them."""

    def follow(self, gone: set[int], keep_from: int = 0) -> None:
        """Find the parts to cover: the matches, and all text of the edits in `gone`.

        With `keep_from`, also all text from before that edit that is not there after it.
        """
        parts: dict[str, str] = {}
        for edit in self.edits:
            before = dict(parts)
            for name, splices in change_of(edit).items():
                if name.endswith(TEXT_PART):
                    self._letters(name).take(splices, wholly=edit.number in gone)
                else:
                    parts[name] = splice_text(
                        parts.get(name, ""), [Splice(*splice) for splice in splices]
                    )
            if parts != before:
                self._states[edit.number] = dict(parts)
                if edit.number in gone:
                    new = set(_leaves(parts)) - set(_leaves(before))
                    self._covered |= {leaf for leaf in new if leaf[:3] not in self._counters()}
            if edit.number == keep_from:
                for letters in self._texts.values():
                    letters.cover_removed()
                self._kept_values = {leaf[3] for leaf in _leaves(parts)}
                self._keep_from = keep_from

    def _letters(self, name: str) -> _Letters:
        return self._texts.setdefault(name, _Letters(self._redactor))

    def _counters(self) -> set[tuple[str, str, str]]:
        """Return which values are counters: those that others added to stay."""
        return {
            (f"{section}:fields", "", field.name)
            for section, inner in sections_of(schema_of(self._block.schema))
            if isinstance(inner, MapSchema)
            for field in inner.fields
            if field.type is FieldType.COUNTER
        }

    def rewrite(self, gone: set[int], count: int) -> _Rewritten | None:
        """Return the block and its history as they are now to be, or None if nothing changes."""
        block, replica = self._block, self._block.replica
        parts: Parts = {}
        then: Parts = {}
        runs: list[EditRun] = []
        changed = False
        for run in self._runs:
            start, edits = parts, list[EditRow]()
            for edit in run.edits:
                parts, change = self._next(parts, edit)
                changed = changed or change != edit.change
                reason = FORGOTTEN if edit.number in gone and edit.reason else edit.reason
                edits.append(edit._replace(change=change, reason=reason))
                then = parts if replica and edit.number == replica.version else then
            runs.append(replace(run, start=start, edits=edits))
        document = self._document(replica.document, then) if replica is not None else None
        if not changed and document is None:
            return None
        content = BlockContent(schema_of(block.schema), parts)
        return _Rewritten(
            content.text,
            write_parts(parts, content.text),
            [
                _era(era, run, gone)
                for era, run in zip(
                    block.eras, [*runs[:-1], replace(runs[-1], edits=[])], strict=False
                )
            ],
            runs[-1].edits,
            document,
            count if changed else 0,
        )

    def _next(self, parts: Parts, edit: EditRow) -> tuple[Parts, str]:
        """Return the parts after an edit, and what the edit is now said to have changed."""
        if not edit.change:
            return parts, edit.change
        change: dict[str, list[list[Any]]] = {}
        made = dict(parts)
        for name, splices in change_of(edit).items():
            if name.endswith(TEXT_PART):
                new, named = self._texts[name].next(splices), self._name(name)
                made[named] = splice_text(made.get(named, ""), [Splice(*splice) for splice in new])
                change[named] = new
        state = self._states.get(edit.number)
        if state is not None:
            now = self._rewritten_parts(state, edit.number)
            was = {name: text for name, text in parts.items() if not name.endswith(TEXT_PART)}
            change |= change_between(was, now)
            made = {**{n: t for n, t in made.items() if n.endswith(TEXT_PART)}, **now}
        made = {name: text for name, text in made.items() if text}
        return made, orjson.dumps(change).decode() if change else ""

    def _name(self, name: str) -> str:
        """Return the name of a part, which a section gives it."""
        section, colon, kind = name.rpartition(":")
        return self._redactor.text(section) + colon + kind

    def _rewritten_parts(self, parts: Parts, number: int) -> dict[str, str]:
        return {self._name(name): self._part(name, text, number) for name, text in parts.items()}

    def _part(self, name: str, text: str, number: int) -> str:
        value = orjson.loads(text)
        if isinstance(value, dict):
            new: Any = self._row(name, cast("Row", value), number)
        else:
            new = [self._row(name, row, number) for row in cast("list[Row]", value)]
        return text if new == value else part_json(new)

    def _row(self, name: str, row: Row, number: int) -> Row:
        made: Row = {}
        for key, value in row.items():
            if key == ROW_ID:
                made[key] = value
                continue
            value_json = _as_json(value)
            leaf = (name, str(row.get(ROW_ID, "")), key, value_json)
            past = (
                number < self._keep_from
                and self._kept_values is not None
                and value_json not in self._kept_values
            )
            if leaf in self._covered or past:
                made[self._redactor.text(key)] = _emptied(value)
            else:
                if value_json not in self._values:
                    self._values[value_json] = _value(value, self._redactor)
                made[self._redactor.text(key)] = self._values[value_json]
        return made

    def _document(self, document: bytes, parts: Parts) -> bytes | None:
        """Return the Loro document that says no more than some parts; empty if there is none."""
        schema = schema_of(self._block.schema)
        new = covered_document(document, parts, self._redactor)
        if new is None:
            return None
        stays = Replica.load(schema, new).state == BlockContent(schema, parts).state
        return new if stays else b""


def _era(era: EraRow, run: EditRun, gone: set[int]) -> EraRow:
    new = write_era(run, era.last)
    # What is said of the edits is gone through with all other rows at the same time.
    return era._replace(
        content=new.content,
        edits=new.edits if any(edit.number in gone for edit in run.edits) else era.edits,
    )


def _leaves(parts: Parts) -> Iterable[Leaf]:
    for name, text in parts.items():
        if name.endswith(TEXT_PART):
            continue
        value: Any = orjson.loads(text)
        rows = cast("list[Row]", value if isinstance(value, list) else [value])
        for row in rows:
            for key, inner in row.items():
                if key != ROW_ID:
                    yield name, str(row.get(ROW_ID, "")), key, _as_json(inner)


class _Letters:
    """One text through all of its versions, letter by letter."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._written: list[str] = []
        """All letters that were ever written, in order; their places are their ids."""
        self._ids: list[int] = []
        """Those that the text has now."""
        self._text = ""
        self._covered: set[int] = set()
        self._seen: set[str] = set()
        self._at = 0

    def take(self, splices: Sequence[Sequence[Any]], *, wholly: bool) -> None:
        """Follow an edit; cover what is found in the text after it, or all that the edit wrote."""
        for at, delete, insert in reversed(splices):
            new = range(len(self._written), len(self._written) + len(insert))
            self._written += insert
            self._ids[at : at + delete] = new
            self._text = self._text[:at] + insert + self._text[at + delete :]
            if wholly:
                self._covered.update(new)
        if self._text not in self._seen:
            self._seen.add(self._text)
            for start, end in self._redactor.spans(self._text):
                self._redactor.count += 1
                self._covered.update(self._ids[start:end])

    def cover_removed(self) -> None:
        """Cover all that was written so far and is not in the text now."""
        self._covered.update(set(range(len(self._written))) - set(self._ids))

    def next(self, splices: Sequence[Sequence[Any]]) -> list[list[Any]]:
        """Return the next edit with what is covered in it; they are asked for in their order."""
        made: list[list[Any]] = []
        for at, delete, insert in reversed(splices):
            made.append([at, delete, self._letters(len(insert))])
        return made[::-1]

    def _letters(self, count: int) -> str:
        begin, self._at = self._at, self._at + count
        return "".join(
            same_length(self._written[at]) if at in self._covered else self._written[at]
            for at in range(begin, self._at)
        )


# -- the Loro document -------------------------------------------------------------------------


def covered_document(document: bytes, parts: Parts, redactor: Redactor) -> bytes | None:
    """Return a Loro document in which only what some parts say can be read; None: it is so."""
    from loro import ExportMode, LoroDoc, VersionVector

    whole = LoroDoc()
    whole.import_(document)
    updates = orjson.loads(whole.export_json_updates(VersionVector(), whole.oplog_vv))
    kept_values = {leaf[3] for leaf in _leaves(parts)}
    for text in list(kept_values):
        value = orjson.loads(text)
        kept_values |= (
            {_as_json(item) for item in cast("list[Any]", value)}
            if isinstance(value, list)
            else set()
        )
    if not _cover(updates, _visible(whole, updates, parts), kept_values, redactor):
        return None
    clean = LoroDoc()
    clean.import_json_updates(orjson.dumps(updates).decode())
    return clean.export(ExportMode.Snapshot())


Ids = set[tuple[int, int]]
"""Characters, by the peer and the counter of what wrote them."""


def _visible(document: LoroDoc, updates: dict[str, Any], parts: Parts) -> Ids:
    """Return the characters of a document that some parts have at the same places."""
    from loro import Side

    ops = (op for change in updates["changes"] for op in change["ops"])
    names = {op["container"] for op in ops if op["container"].endswith(":Text")}
    result: Ids = set()
    for name in names:
        text = document.get_text(name.removeprefix(_ROOT).removesuffix(":Text"))
        part_text = parts.get(name.removeprefix(_ROOT).removesuffix(":Text"), "")
        for at, letter in enumerate(text.to_string()):
            cursor = text.get_cursor(at, Side.Middle) if part_text[at : at + 1] == letter else None
            if cursor is not None and cursor.id is not None:
                result.add((cursor.id.peer, cursor.id.counter))
    return result


def _cover(
    updates: dict[str, Any], visible: Ids, kept_values: set[str], redactor: Redactor
) -> bool:
    """Cover the operations that wrote other texts; tell whether there were any."""
    changed = False
    for change in updates["changes"]:
        peer = int(updates["peers"][int(change["id"].partition("@")[2])])
        change["msg"] = None
        for op in change["ops"]:
            content: dict[str, Any] = op["content"]
            if op["container"] == _ABOUT or content.get("key") == ROW_ID:
                continue
            new = dict(content)
            if "text" in content:
                new["text"] = "".join(
                    letter if (peer, at) in visible else same_length(letter)
                    for at, letter in enumerate(content["text"], op["counter"])
                )
            elif content["type"] != "counter" and "value" in content:
                new["value"] = _emptied(content["value"], kept_values)
            if "key" in content:
                new["key"] = redactor.text(content["key"])
            name, colon, kind = op["container"].rpartition(":")
            if name.startswith(_ROOT):
                # Named after sections and fields.
                op["container"] = _ROOT + redactor.text(name.removeprefix(_ROOT)) + colon + kind
            changed = changed or new != content
            op["content"] = new
    return changed


# -- values ------------------------------------------------------------------------------------


def _as_json(value: Any) -> str:
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()


def _value(value: Any, redactor: Redactor) -> Any:
    """Return a value of a field without it."""
    if isinstance(value, list):
        items = cast("list[Any]", value)
        changed = [_value(item, redactor) for item in items]
        return cast("Any", value) if changed == items else changed
    changed = redactor.value(value)
    # A field of numbers holds a number, whatever else it may not hold.
    return 0 if changed is not value and isinstance(value, int | float) else changed


def _emptied(value: Any, kept_values: Container[str] = ()) -> Any:
    """Return an empty value of the same kind; values whose JSON is in `kept_values` stay."""
    if not isinstance(value, list | dict) and _as_json(value) in kept_values:
        return value
    if isinstance(value, str):
        return value if value.startswith(_NESTED_CONTAINER) or not value else FORGOTTEN
    if isinstance(value, list):
        return [_emptied(item, kept_values) for item in cast("list[Any]", value)]
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        return {name: _emptied(item, kept_values) for name, item in fields.items()}
    if isinstance(value, bool) or value is None:
        return value
    return 0


_ROOT = "cid:root-"
_ABOUT = "cid:root-about:Map"
_NESTED_CONTAINER = "\N{PARROT}:cid:"
