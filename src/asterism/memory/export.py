"""An agent's memory as one JSON document, for those who may see it, and back through the gate."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, cast

import orjson

from asterism.errors import AsterismError, InvalidInput
from asterism.memory import archive, blocks, people
from asterism.memory import blocks as rows
from asterism.memory import people as persons
from asterism.memory.blocks import VisibleBlock, is_visible
from asterism.memory.edits import BlockContent
from asterism.memory.gate import copies
from asterism.memory.gate import passages as gate
from asterism.memory.gate.passages import NewPassage
from asterism.memory.gate.writer import Writer
from asterism.memory.history import SourcedLine, lines_with_origins
from asterism.memory.schemas import read_schema, schema_wire
from asterism.records import dataclass
from asterism.store import summaries
from asterism.store.database import Connection
from asterism.types.agents import OWNER, OWNER_ALONE, Audience, Participants, Trust
from asterism.types.memory import (
    BlockType,
    Origin,
    OriginKind,
    Passage,
    Permission,
    SetText,
    Source,
    TextSchema,
)
from asterism.types.turns import Summary

VERSION = 2
_VERSIONS = (1, VERSION)
"""Those that are read; in version 1, `trust` was called `tier`."""
_KIND = "asterism memory"
_BATCH = 200
_EVERY = 1 << 31
_MAX_NAME_LENGTH = 60


# -- out -------------------------------------------------------------------------------------------


async def export(
    tx: Connection, agent_id: str, *, participants: Participants = OWNER_ALONE
) -> dict[str, Any]:
    """Return an agent's memory as a JSON document, as far as all participants may see it.

    Its own blocks with every line's audience, trust and origins, passages that hold, summaries, and
    the names of people that audiences and origins refer to. What others share with it, and sources
    of documents, by name only. For others than the owner, only those present go by name.
    """
    own, *attached = await archive.archives_of(tx, agent_id)
    seen = await blocks.seen_by(tx, agent_id)
    visible = [
        visible_block
        for visible_block in seen
        if participants.can_see(visible_block.block.audience)
    ]
    document: dict[str, Any] = {
        "kind": _KIND,
        "version": VERSION,
        "agent": own.name,
        "blocks": [
            await _block_out(tx, visible_block, participants)
            for visible_block in visible
            if visible_block.owner_name is None
        ],
        "shared": [
            {
                "owner": visible_block.owner_name,
                "label": visible_block.block.label,
                "permission": visible_block.permission.value,
            }
            for visible_block in visible
            if visible_block.owner_name is not None
        ],
        "passages": [
            _passage_out(passage)
            for passage in await archive.listing(
                tx, [agent_id], participants=participants, limit=_EVERY
            )
        ],
        "sources": [source.name for source in attached] if participants.owner_alone else [],
        "summaries": [
            _summary_out(summary)
            for summary in await summaries.of_agent(tx, agent_id)
            if participants.can_see(summary.audience)
        ],
    }
    document["people"] = await _people_out(tx, document, participants)
    return document


async def _block_out(
    tx: Connection, seen: VisibleBlock, participants: Participants
) -> dict[str, Any]:
    block = seen.block
    row = await rows.get(tx, block.id)
    assert row is not None, "it was seen with this transaction"
    lines = [
        line
        for line in rows.read_lines(row.text, row.lines)
        if participants.owner_alone or is_visible(block.schema, line, block.audience, participants)
    ]
    # A value cannot be cut by lines, so that it is told only where all of it may be seen.
    whole = len(lines) == len(seen.lines) and not isinstance(block.schema, TextSchema)
    return {
        "label": block.label,
        "type": block.type.value,
        "schema": schema_wire(block.schema),
        "description": block.description,
        "limit": block.limit,
        "permission": block.permission.value,
        "audience": str(block.audience),
        "pinned": block.pinned,
        "text": "\n".join(line.text for line in lines),
        "lines": [
            {
                "text": line.text,
                **_source_out(Source(line.origins, line.label.audience, line.label.trust)),
            }
            for line in await lines_with_origins(tx, block.id, lines, participants)
        ],
        "value": BlockContent(block.schema, rows.read_parts(row)).value() if whole else None,
    }


def _source_out(source: Source) -> dict[str, Any]:
    return {
        "audience": str(source.audience),
        "trust": source.trust.value,
        "origins": [[origin.kind.value, origin.ref, origin.detail] for origin in source.origins],
    }


def _passage_out(passage: Passage) -> dict[str, Any]:
    return {
        "id": passage.id,
        "text": passage.text,
        "tags": list(passage.tags),
        "metadata": passage.metadata,
        "author": passage.author,
        "known_from": passage.known_from_ms,
        "true_from": passage.true_from_ms,
        **_source_out(passage.source),
    }


def _summary_out(summary: Summary) -> dict[str, Any]:
    return {
        "id": summary.id,
        "text": summary.text,
        "audience": str(summary.audience),
        "trust": summary.trust.value,
        "strategy": summary.strategy.value,
        "messages": summary.messages,
        "made_by": summary.made_by,
        "at": summary.at_ms,
    }


async def _people_out(
    tx: Connection, document: dict[str, Any], participants: Participants
) -> dict[str, str]:
    """Return the names of people that a document refers to by their ids."""
    text = orjson.dumps(document).decode()
    present = {participant.person_id for participant in participants.people}
    return {
        person_id: name
        for person_id, name in await persons.people_names(tx)
        if person_id != OWNER
        and person_id in text
        and (participants.owner_alone or person_id in present)
    }


# -- in --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Report:
    """What an import has stored, and what it could not store."""

    blocks: tuple[str, ...] = ()
    """Labels of those that were made."""
    passages: int = 0
    """How many were stored."""
    merged: int = 0
    """How many were there already; they now name these sources as well."""
    people: tuple[str, ...] = ()
    """Names of those who were not known here: strangers now, to whom no account belongs."""
    left: tuple[str, ...] = ()
    """Sentences on what was not stored, and why."""


class _Rolled(Exception):
    """Ends the savepoint of a dry run."""


async def import_memory(
    tx: Connection,
    writer: Writer,
    agent_id: str,
    document: Any,
    *,
    dry_run: bool = False,
) -> Report:
    """Give an agent the memory of a document that `export` has made.

    Each block and each passage goes through the gate by itself. The report names those that the
    gate refuses; the others are stored. With `dry_run`, nothing is stored.
    """
    checked = _check_document(document)
    own, *_ = await archive.archives_of(tx, agent_id)
    copies.judge_memory(writer, own, f"import memory for {own.name!r}")
    report = Report()
    try:
        async with tx.savepoint():
            report = await _import(tx, writer, agent_id, checked)
            if dry_run:
                raise _Rolled
    except _Rolled:
        pass
    return report


def _check_document(source: Any) -> dict[str, Any]:
    try:
        value: Any = orjson.loads(orjson.dumps(source))
    except (TypeError, RecursionError, orjson.JSONDecodeError):
        value = None
    if not isinstance(value, dict) or cast("dict[str, Any]", value).get("kind") != _KIND:
        raise InvalidInput(
            "This is not an exported memory. Give a document that was made by "
            '"asterism memory export". Nothing was changed.'
        )
    document = cast("dict[str, Any]", value)
    if document.get("version") not in _VERSIONS:
        known = " and ".join(map(str, _VERSIONS))
        raise InvalidInput(
            f"This memory was exported in version {document.get('version')!r} of the format, and "
            f"this release reads versions {known}. Upgrade asterism. Nothing was changed."
        )
    for name in ("blocks", "passages", "summaries", "shared", "sources"):
        if not isinstance(document.get(name, []), list):
            raise InvalidInput(
                f"{name!r} of this exported memory is not a list. Leave it as it was exported. "
                "Nothing was changed."
            )
    return document


async def _import(
    tx: Connection, writer: Writer, agent_id: str, document: dict[str, Any]
) -> Report:
    left: list[str] = []
    who, created = await _people_in(tx, writer, document, left)
    read = _Reader(who)
    labels: list[str] = []
    for at, value in enumerate(document.get("blocks", []), 1):
        name = _name(value, "label", f"number {at}")
        try:
            async with tx.savepoint():
                labels.append(await _block_in(tx, writer, agent_id, read, value))
        except AsterismError as error:
            left.append(f"Block {name} was not imported: {_reason(error)}")
    new: list[NewPassage] = []
    for at, value in enumerate(document.get("passages", []), 1):
        try:
            new.append(read.passage(value))
        except AsterismError as error:
            name = _name(value, "id", f"number {at}")
            left.append(f"Passage {name} was not imported: {_reason(error)}")
    stored, merged = await _passages_in(tx, writer, agent_id, new, left)
    left += _not_imported(document)
    return Report(tuple(labels), stored, merged, tuple(created), tuple(left))


def _reason(error: AsterismError) -> str:
    """Return what an error says, without that nothing was done: that is said of the whole."""
    return re.sub(r" (Nothing was (changed|stored)|It was not made)\.$", "", error.message)


def _name(value: Any, key: str, otherwise: str) -> str:
    named: Any = cast("dict[str, Any]", value).get(key) if isinstance(value, dict) else None
    return repr(named[:_MAX_NAME_LENGTH]) if isinstance(named, str) and named else otherwise


def _not_imported(document: dict[str, Any]) -> list[str]:
    counted = {
        "summaries": "Summaries ({}) were not imported: they stand for messages that are not here.",
        "shared": "Blocks of others ({}) were not imported. Ask their owners to share them.",
        "sources": "Sources of documents ({}) were not imported. Add their folders again.",
    }
    return [
        sentence.format(f"{len(document[name]):,}")
        for name, sentence in counted.items()
        if document.get(name)
    ]


async def _block_in(
    tx: Connection, writer: Writer, agent_id: str, read: _Reader, value: Any
) -> str:
    block = read.table(value, "block")
    schema = read_schema(read.table(block.get("schema"), "schema"))
    lines = [read.line(line, at) for at, line in enumerate(read.many(block, "lines"), 1)]
    if isinstance(schema, TextSchema):
        content = read.text(block, "text")
    elif block.get("value") is None:
        raise InvalidInput(
            "not all of it was exported, since not everyone it was exported for may see it."
        )
    else:
        content = orjson.dumps(block["value"]).decode()
    made = await copies.create_with_lines(
        *(tx, writer, agent_id, read.text(block, "label")),
        kind="import",
        write=lambda made: _write(made, content, writer.now),
        lines=lines,
        type=read.word(BlockType, block, "type"),
        schema=schema,
        description=read.text(block, "description"),
        limit=read.number(block, "limit"),
        permission=read.word(Permission, block, "permission"),
        audience=read.audience(read.text(block, "audience")),
        pinned=block.get("pinned") is True,
    )
    return made.label


def _write(made: BlockContent, content: str, now: int) -> None:
    if content:
        made.apply(SetText(content), now=now)


async def _passages_in(
    tx: Connection, writer: Writer, agent_id: str, new: Sequence[NewPassage], left: list[str]
) -> tuple[int, int]:
    """Store passages in batches; one batch with something wrong in it, one by one."""
    stored = merged = 0
    for first in range(0, len(new), _BATCH):
        batch = new[first : first + _BATCH]
        try:
            async with tx.savepoint():
                fresh = await gate.insert_many(tx, writer, agent_id, batch)
                stored, merged = stored + fresh, merged + len(batch) - fresh
            continue
        except AsterismError:
            pass
        for passage in batch:
            try:
                async with tx.savepoint():
                    fresh = await gate.insert_many(tx, writer, agent_id, [passage])
                    stored, merged = stored + fresh, merged + 1 - fresh
            except AsterismError as error:
                name = repr(passage.text[:_MAX_NAME_LENGTH])
                left.append(f"Passage {name} was not imported: {_reason(error)}")
    return stored, merged


async def _people_in(
    tx: Connection, writer: Writer, document: dict[str, Any], left: list[str]
) -> tuple[dict[str, str], list[str]]:
    """Return the person for each exported id, found by id or by name, and the new persons."""
    value: Any = document.get("people") or {}
    if not isinstance(value, dict):
        raise InvalidInput(
            "'people' of this exported memory is not an object. Leave it as it was exported. "
            "Nothing was changed."
        )
    who: dict[str, str] = {}
    created: list[str] = []
    for person_id, name in cast("dict[str, Any]", value).items():
        if await persons.get_person(tx, person_id) is not None:
            continue
        known = await persons.person_by_name(tx, str(name))
        if known is None:
            try:
                made = await people.create_person(
                    *(tx, str(name), writer.now), trust=Trust.STRANGER
                )
            except AsterismError as error:
                left.append(f"Nobody here is {str(name)[:_MAX_NAME_LENGTH]!r}: {_reason(error)}")
                continue
            known = made.id
            created.append(made.name)
        who[person_id] = known
    return who, created


class _Reader:
    """Reads the parts of a document, and says which one cannot be read."""

    def __init__(self, who: dict[str, str]) -> None:
        self._who = who

    def table(self, value: Any, what: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise InvalidInput(f"a {what} is an object.")
        return cast("dict[str, Any]", value)

    def many(self, table: dict[str, Any], name: str) -> list[Any]:
        value: Any = table.get(name, [])
        if not isinstance(value, list):
            raise InvalidInput(f"{name!r} is not a list.")
        return cast("list[Any]", value)

    def text(self, table: dict[str, Any], name: str) -> str:
        value: Any = table.get(name, "")
        if not isinstance(value, str) or "\x00" in value:
            raise InvalidInput(f"{name!r} is not a text without NUL characters.")
        return value

    def number(self, table: dict[str, Any], name: str) -> int:
        value: Any = table.get(name)
        if not isinstance(value, int) or isinstance(value, bool) or abs(value) >> 62:
            raise InvalidInput(f"{name!r} is not a whole number.")
        return value

    def word(self, kind: Any, table: dict[str, Any], name: str) -> Any:
        value: Any = table.get(name)
        try:
            return kind(value)
        except ValueError:
            known = ", ".join(member.value for member in kind)
            raise InvalidInput(f"{name!r} is {value!r}; it is one of {known}.") from None

    def audience(self, text: str) -> Audience:
        clauses = (frozenset(map(self._word_of, clause)) for clause in Audience.read(text).clauses)
        return Audience.intersection([Audience(tuple(clauses))])

    def _word_of(self, word: str) -> str:
        kind, _, name = word.partition(":")
        return f"person:{self._who.get(name, name)}" if kind == "person" else word

    def source(self, table: dict[str, Any]) -> Source:
        origins: list[Origin] = []
        for origin in self.many(table, "origins"):
            parts = cast("list[Any]", origin) if isinstance(origin, list) else []
            if len(parts) != 3:
                raise InvalidInput("an origin is a list of three texts: kind, id and place.")
            named: dict[str, Any] = {"kind": parts[0], "id": parts[1], "place": parts[2]}
            kind = self.word(OriginKind, named, "kind")
            ref = self.text(named, "id")
            ref = self._who.get(ref, ref) if kind is OriginKind.PERSON else ref
            origins.append(Origin(kind, ref, self.text(named, "place")))
        audience = self.audience(self.text(table, "audience"))
        trust = self.word(Trust, table, "tier" if "tier" in table else "trust")
        return Source(tuple(origins), audience, trust)

    def line(self, value: Any, number: int) -> SourcedLine:
        try:
            table = self.table(value, "line")
            source = self.source(table)
            return SourcedLine(self.text(table, "text"), source.label, source.origins)
        except AsterismError as error:
            raise InvalidInput(f"of line {number}, {error.message}") from None

    def passage(self, value: Any) -> NewPassage:
        table = self.table(value, "passage")
        tags = self.many(table, "tags")
        if not all(isinstance(tag, str) for tag in tags):
            raise InvalidInput("a tag is a text.")
        # Its ids are those of passages that are not here.
        metadata = {
            name: value
            for name, value in self.table(table.get("metadata", {}), "metadata").items()
            if name != "contradicts"
        }
        since = table.get("true_from")
        return NewPassage(
            text=self.text(table, "text"),
            source=self.source(table),
            tags=tuple(tags),
            metadata=metadata,
            known_from=self.number(table, "known_from"),
            true_from=None if since is None else self.number(table, "true_from"),
        )
