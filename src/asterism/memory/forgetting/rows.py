"""Every column of every table, how it is forgotten, and taking a text out of all rows.

The table of columns is total: a test compares it with the schema of both engines. A migration has
to say of each new column whether it can hold something that a person wants to be forgotten.
"""

from __future__ import annotations

import secrets
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import field
from enum import StrEnum
from functools import partial
from typing import Any

import orjson

from asterism.memory.blocks import EditRow
from asterism.memory.forgetting.redaction import FORGOTTEN, FixedFields, Redactor
from asterism.memory.words import digest, embed
from asterism.records import dataclass
from asterism.store import forgetting as store
from asterism.store import search_index
from asterism.store.database import Connection, Database
from asterism.store.forgetting import ForgetRequest
from asterism.types.memory import OriginKind


class How(StrEnum):
    """The kind of content of a column, which decides how a text is removed from it."""

    ID = "id"
    """Numbers, ids and fixed words of our own: nobody can write a text into it."""
    NAME = "name"
    """A name, an address or a setting that is used as a key: it stays; the receipt names it."""
    TEXT = "text"
    UNIQUE = "unique"
    """Text that is used as a key: each row gets a different replacement."""
    JSON = "json"
    """JSON that others write: any part of it may be what they said."""
    OWN_JSON = "own json"
    """JSON whose form is our own."""
    ORIGINS = "origins"
    SOURCE = "source"
    """Where an edit comes from, as JSON."""
    BEFORE = "before"
    """Columns of a passage as they were, as JSON."""
    WIRE = "wire"
    """JSON or text as bytes."""
    META = "meta"
    """JSON beside a reply: reasoning goes whole, since its other words tell of the text."""
    BYTES = "bytes"
    """Contents of any kind: the row goes whole."""
    PASSAGE = "passage"
    """A passage's text, with what was made of it."""
    MADE = "made"
    """Made of a passage's text and made anew with it."""
    BLOCK = "block"
    """What a block says or said, written anew with its history."""
    PACKED = "packed"
    """JSON, compressed."""
    SALTED = "salted"
    """JSON of which a digest is kept: it goes whole and its salt with it, so that the digest tells
    nothing."""
    INDEX = "index"
    """Made of texts that are stored elsewhere: it goes with them, and is made anew."""


@dataclass(frozen=True, slots=True)
class Table:
    """How one table is gone through."""

    key: tuple[str, ...]
    condition: str
    """A condition with one `?` for the constellation, `{at}` before each table; or empty."""
    columns: dict[str, How]
    agent: str | None = None
    """The column that says whose memory changes when a row does."""


# With IN, SQLite would look rows up by it and sort them, page after page.
_OF_AGENT = "EXISTS (SELECT 1 FROM {at}agents x WHERE x.id = agent_id AND x.constellation = ?)"
_OF_OWN_GROUP = "IN (SELECT x.id FROM {at}agents x WHERE x.constellation = ?)"
_OF_BLOCK = "EXISTS (SELECT 1 FROM {at}blocks x WHERE x.id = block_id AND x.constellation = ?)"
_OF_SOURCE = "EXISTS (SELECT 1 FROM {at}sources x WHERE x.id = source_id AND x.constellation = ?)"
_OF_PASSAGE = (
    "EXISTS (SELECT 1 FROM {at}passages x WHERE x.id = passage_id AND x.constellation = ?)"
)
# A chain is an agent's id, or home: and the constellation.
# Those of the log's own hold ids, numbers and hashes, and prove what the others were.
_OF_CHAIN = (
    "kind NOT IN ('audit.anchored', 'audit.emptied') AND"
    " ? = COALESCE((SELECT x.constellation FROM {at}agents x WHERE x.id = chain), SUBSTR(chain, 6))"
)
_OWN = "constellation = ?"


def _ids(*names: str) -> dict[str, How]:
    return dict.fromkeys(names, How.ID)


def _names(*names: str) -> dict[str, How]:
    return dict.fromkeys(names, How.NAME)


TABLES: dict[str, Table] = {
    "schema_versions": Table(("version",), "", _ids("version", "applied_at")),
    "agents": Table(
        ("id",),
        _OWN,
        _ids("id", "constellation", "version", "arrivals", "length", "fence", "created_at")
        | _ids("deleted_at", "archived_at", "memory", "facts_upto", "kind")
        | _names("name", "model", "tools", "limits", "rules")
        | {"system": How.TEXT},
        agent="id",
    ),
    "groups": Table(
        ("id",),
        f"id {_OF_OWN_GROUP}",
        _ids("id", "joined", "wake_at")
        | _names("pattern")
        | {"options": How.JSON, "memory": How.JSON, "description": How.TEXT},
    ),
    "group_members": Table(
        ("group_id", "agent_id"),
        f"group_id {_OF_OWN_GROUP}",
        _ids("group_id", "agent_id", "position", "role", "weight", "active", "since")
        | _names("domain")
        | {"capabilities": How.JSON},
    ),
    "agent_messages": Table(
        ("message_id",),
        _OWN,
        _ids("message_id", "constellation", "sender_id", "recipient_id", "thread", "depth")
        | _ids("turn_id", "at")
        | _names("key"),
    ),
    "accepted": Table(
        ("constellation", "channel", "external_id"),
        _OWN,
        _ids("constellation", "message_id", "agent_id")
        | _names("channel")
        | {"external_id": How.UNIQUE},
    ),
    "inbox": Table(
        ("agent_id", "arrival"),
        _OF_AGENT,
        _ids("agent_id", "arrival", "id", "kind", "at", "participants", "turn_id")
        | _ids("person", "token", "round")
        | _names("channel", "sender", "reply_to")
        | {"body": How.WIRE, "schema": How.JSON, "stopped": How.TEXT, "client": How.JSON},
        agent="agent_id",
    ),
    "turns": Table(
        ("id",),
        _OF_AGENT,
        _ids("id", "agent_id", "state", "first_seq", "last_seq", "opened_at", "ended_at")
        | _ids("arrived_at", "tokens_in", "tokens_out", "tokens_cached", "trust")
        | _names("channel", "reply_to", "audience")
        | {"error": How.TEXT, "stopping": How.TEXT},
        agent="agent_id",
    ),
    "entries": Table(
        ("agent_id", "seq"),
        _OF_AGENT,
        _ids("agent_id", "seq", "turn_id", "kind", "key", "at")
        | {"body": How.WIRE, "meta": How.META},
        agent="agent_id",
    ),
    "crashes": Table(
        ("turn_id",),
        _OF_AGENT,
        _ids("turn_id", "agent_id", "seq", "ends", "total", "executing"),
    ),
    "approvals": Table(
        ("id",),
        _OF_AGENT,
        _ids("id", "agent_id", "turn_id", "key", "asked_at", "approved", "decided_at")
        | _ids("rounds", "next_at", "expires_at", "grant_id", "announced_at", "definition")
        | _names("decided_by", "tool", "reviewers", "place", "announced")
        | {"question": How.TEXT, "note": How.TEXT, "reason": How.TEXT}
        | {"arguments": How.JSON, "effects": How.JSON, "edited": How.JSON},
        agent="agent_id",
    ),
    "outbox": Table(
        ("key",),
        _OF_AGENT,
        _ids("key", "agent_id", "turn_id", "number", "state", "attempts", "next_at")
        | _ids("created_at", "sent_at", "claimed_by")
        | _names("channel", "target")
        | {"body": How.TEXT, "error": How.TEXT},
    ),
    "schedules": Table(
        ("id",),
        _OF_AGENT,
        _ids("id", "agent_id", "due_at", "cron", "zone", "quiet", "created_at", "participants")
        | _names("reply_to", "channel")
        | {"text": How.TEXT},
        agent="agent_id",
    ),
    "notices": Table(
        ("id",),
        _OF_AGENT,
        _ids("id", "agent_id", "turn_id", "kind", "at", "seen_at") | {"text": How.TEXT},
    ),
    "alerts": Table(
        ("constellation", "cause"),
        _OWN,
        _ids("constellation", "id", "since", "seen_at", "ended_at", "told_at", "attempts")
        | _names("cause")
        | {"text": How.TEXT},
    ),
    "charges": Table(
        ("id",),
        _OWN,
        _ids("id", "constellation", "agent_id", "turn_id", "key", "day", "month", "state")
        | _ids("amount", "tokens_in", "tokens_out", "tokens_cached", "tokens_written", "at")
        | _ids("until")
        | _names("person", "party", "model"),
    ),
    "totals": Table(
        ("constellation", "period", "scope"),
        _OWN,
        _ids("constellation", "period", "spent", "presumed", "reserved", "warned")
        | _names("scope"),
    ),
    "blobs": Table(("id",), "", _ids("id", "type", "created_at") | {"body": How.BYTES}),
    "persons": Table(
        ("constellation", "id"),
        _OWN,
        _ids("constellation", "id", "trust", "created_at") | _names("name", "roles"),
    ),
    "tokens": Table(
        ("id",),
        _OWN,
        _ids("id", "constellation", "hash", "agents", "person_id", "created_at", "expires_at")
        | _ids("used_at", "revoked_at")
        | _names("name", "role", "scopes"),
    ),
    "users": Table(
        ("constellation", "person_id"),
        _OWN,
        _ids("constellation", "person_id", "hash", "changed_at"),
    ),
    "web_sessions": Table(
        ("id",),
        _OWN,
        _ids("id", "constellation", "person_id", "digest", "created_at", "seen_at", "expires_at"),
    ),
    "constellations": Table(("name",), "", _ids("created_at") | _names("name")),
    "idempotency_keys": Table(
        ("constellation", "caller", "key"),
        _OWN,
        # An answer is encrypted; whatever is forgotten, all answers go.
        _ids("constellation", "caller", "request", "status", "answer", "created_at")
        | {"key": How.UNIQUE},
    ),
    "accounts": Table(
        ("constellation", "channel", "sender"),
        _OWN,
        _ids("constellation", "person_id") | _names("channel", "sender"),
    ),
    "room_members": Table(
        ("constellation", "room", "person_id"),
        _OWN,
        _ids("constellation", "person_id", "since") | _names("room"),
    ),
    "blocks": Table(
        ("id",),
        _OWN,
        _ids("id", "constellation", "owner_id", "type", "max_chars", "permission", "pinned")
        | _ids("version", "lines", "created_at", "updated_at", "retired_at")
        | _names("audience")
        | {"label": How.UNIQUE, "description": How.TEXT, "schema": How.OWN_JSON}
        | {"text": How.BLOCK, "content": How.BLOCK},
    ),
    "block_agents": Table(
        ("block_id", "agent_id"), _OF_BLOCK, _ids("block_id", "agent_id", "permission", "since")
    ),
    "block_edits": Table(
        ("block_id", "number"),
        _OF_BLOCK,
        _ids("block_id", "number", "kind", "turn_id", "undoes", "undone_by", "at")
        | _names("author")
        | {"reason": How.TEXT, "source": How.SOURCE, "change": How.BLOCK},
    ),
    "block_eras": Table(
        ("block_id", "first"),
        _OF_BLOCK,
        _ids("block_id", "first", "last", "since") | {"content": How.BLOCK, "edits": How.PACKED},
    ),
    "block_replicas": Table(
        ("block_id",), _OF_BLOCK, _ids("block_id", "version") | {"document": How.BLOCK}
    ),
    "sources": Table(
        ("id",),
        _OWN,
        _ids("id", "constellation", "created_at", "synced_at")
        | _names("name", "path", "options", "audience"),
    ),
    "source_agents": Table(
        ("source_id", "agent_id"), _OF_SOURCE, _ids("source_id", "agent_id", "since")
    ),
    "documents": Table(
        ("source_id", "path"),
        _OF_SOURCE,
        _ids("source_id", "digest", "size", "modified", "state", "passages", "read_at")
        | _names("path")
        | {"error": How.TEXT},
    ),
    "passages": Table(
        ("id",),
        _OWN,
        _ids("id", "constellation", "archive_id", "place", "trust", "turn_id", "known_from")
        | _ids("true_from", "superseded_by", "superseded_at", "retracted_at", "number")
        | _names("document", "audience", "author")
        | {"text": How.PASSAGE, "digest": How.MADE, "vector": How.MADE}
        | {"tags": How.JSON, "metadata": How.JSON, "origins": How.ORIGINS},
        agent="archive_id",
    ),
    "passage_edits": Table(
        ("passage_id", "number"),
        _OF_PASSAGE,
        _ids("passage_id", "number", "kind", "turn_id", "at")
        | _names("author")
        | {"reason": How.TEXT, "before": How.BEFORE},
    ),
    "search_indexes": Table(("id",), "", _ids("id", "kind", "owner_id", "removals")),
    "segments": Table(
        ("index_id", "first"),
        "",
        _ids("index_id", "first", "last", "fingerprint", "terms", "stale", "open_numbers")
        | {"columns": How.INDEX, "vectors": How.INDEX},
    ),
    "postings": Table(
        ("index_id", "first", "prefix"),
        "",
        _ids("index_id", "first") | {"prefix": How.INDEX, "codes": How.INDEX},
    ),
    "embeddings": Table(
        ("index_id", "encoder", "first"),
        "",
        _ids("index_id", "encoder", "first", "fingerprint", "numbers") | {"vectors": How.INDEX},
    ),
    "summaries": Table(
        ("id",),
        _OF_AGENT,
        _ids("id", "agent_id", "trust", "first_seq", "last_seq", "strategy", "kept", "messages")
        | _ids("tokens", "made_by", "at")
        | _names("participants", "audience")
        | {"text": How.TEXT},
        agent="agent_id",
    ),
    "epochs": Table(
        ("agent_id", "number"),
        _OF_AGENT,
        _ids("agent_id", "number", "first_seq", "summary", "at")
        | _names("participants")
        | {"sections": How.OWN_JSON, "why": How.TEXT},
        agent="agent_id",
    ),
    "tombstones": Table(
        ("id",),
        _OWN,
        _ids("id", "constellation", "marks", "at")
        | _names("by_whom")
        | {"reason": How.TEXT, "receipt": How.OWN_JSON},
    ),
    "grants": Table(
        ("id",),
        _OWN,
        _ids("id", "constellation", "agent_id", "turn_id", "until", "uses", "given_at")
        | _ids("approval_id", "revoked_at", "amount", "per_day", "definition")
        | _names("tool", "given_by")
        | {"pattern": How.JSON, "effects": How.JSON, "arguments": How.JSON},
    ),
    "events": Table(
        ("chain", "number"),
        _OF_CHAIN,
        _ids("chain", "number", "at", "kind", "agent_id", "turn_id", "salt", "digest", "hash")
        | _names("actor")
        | {"body": How.SALTED},
    ),
    "chains": Table(("id",), "", _ids("id", "length", "hash")),
    "anchors": Table(("chain",), "", _ids("chain", "length")),
    "data_keys": Table(("id",), "", _ids("id", "wrapped", "nonce", "master", "created_at")),
    "secrets": Table(
        ("constellation", "name"),
        _OWN,
        _ids("constellation", "ciphertext", "nonce", "key_id", "created_at", "used_at")
        | _names("name"),
    ),
    "quota_uses": Table(
        ("agent_id", "policy", "at"), _OF_AGENT, _ids("agent_id", "at", "amount") | _names("policy")
    ),
    "tool_runs": Table(("agent_id", "tool"), _OF_AGENT, _ids("agent_id", "at") | _names("tool")),
    "halts": Table(
        ("id",),
        _OWN,
        _ids("id", "constellation", "agent_id", "turn_id", "severity", "at", "lifted_at")
        | _names("lifted_by")
        | {"reason": How.TEXT},
    ),
    "registered_tools": Table(
        ("constellation", "name", "version"),
        _OWN,
        _ids("constellation", "version", "created_at", "removed_at")
        | _names("name", "made_by")
        | {"spec": How.JSON},
    ),
}

OWN_FIELDS: FixedFields = frozenset({"kind", "type", "audience", "permission", "trust"})
_REASONING = ("reasoning", "thought")
_META: FixedFields = frozenset(
    {"sender", "participants", "trust_levels", "model", "finish", "state", "approval"}
)


def redact_column(how: How, value: Any, redactor: Redactor) -> Any:
    """Return the value of a column without the matches; the same object if there are none."""
    change = _CHANGES.get(how)
    if change is None or value is None:
        return value
    try:
        return change(value, redactor)
    except (orjson.JSONDecodeError, zlib.error, ValueError, KeyError, TypeError):
        # Not as this release writes it, such as a column of an older one.
        return redactor.wire(value) if isinstance(value, bytes) else redactor.text(value)


def _unique(text: str, redactor: Redactor) -> str:
    changed = redactor.text(text)
    # Two rows may not have the same, so each gets another ending.
    return text if changed is text else f"{changed}-{secrets.token_hex(4)}"


def _meta(text: str, redactor: Redactor) -> str:
    meta: dict[str, Any] = orjson.loads(text)
    remaining = dict(meta)
    for name in _REASONING:
        if name in remaining and redactor.value(remaining[name]) is not remaining[name]:
            del remaining[name]
    changed = redactor.value(remaining, _META)
    return text if changed == meta else orjson.dumps(changed).decode()


def without_reasoning(meta: str) -> str:
    """Return the metadata of a reply without the vendor's record of its reasoning.

    The record may be encrypted, so that it cannot be searched.
    """
    fields: dict[str, Any] = orjson.loads(meta)
    if fields.pop("thought", None) is None:
        return meta
    return orjson.dumps(fields).decode()


def _origins(origins: list[list[Any]], redactor: Redactor) -> list[list[Any]]:
    changed = [
        [
            kind,
            redactor.text(ref) if kind == OriginKind.DOCUMENT else ref,
            *map(redactor.text, rest),
        ]
        for kind, ref, *rest in origins
    ]
    return origins if changed == origins else changed


def _origins_json(text: str, redactor: Redactor) -> str:
    origins = orjson.loads(text)
    changed = _origins(origins, redactor)
    return text if changed is origins else orjson.dumps(changed).decode()


def _source(text: str, redactor: Redactor) -> str:
    source: dict[str, Any] = orjson.loads(text)
    changed = dict(source)
    changed["origins"] = _origins(source["origins"], redactor)
    for name in source.keys() - {"origins", "audience", "trust", "lines"}:
        changed[name] = redactor.value(source[name], OWN_FIELDS)
    return text if changed == source else orjson.dumps(changed).decode()


def _before(text: str, redactor: Redactor) -> str:
    before: dict[str, Any] = orjson.loads(text)
    how = TABLES["passages"].columns
    # Besides columns there is the number of the edit that was taken back.
    changed = {
        name: redact_column(how[name], value, redactor) if name in how else value
        for name, value in before.items()
    }
    if changed == before:
        return text
    # What was made of the former text tells of it.
    for name in changed.keys() & {"digest", "vector"}:
        changed[name] = None if name == "vector" else ""
    return orjson.dumps(changed).decode()


def _packed(body: bytes, redactor: Redactor) -> bytes:
    values: dict[str, Any] = orjson.loads(zlib.decompress(body))
    columns: list[list[Any]] = values["edits"]
    before = redactor.count
    if values["schema"] is not None:
        values["schema"] = redactor.json(values["schema"], OWN_FIELDS)
    if columns:
        for name, how in (("reason", How.TEXT), ("source", How.SOURCE)):
            place = EditRow._fields.index(name)
            columns[place] = [redact_column(how, value, redactor) for value in columns[place]]
    return body if redactor.count == before else zlib.compress(orjson.dumps(values), 9)


def _salted(body: bytes, redactor: Redactor) -> bytes | None:
    return body if redactor.wire(body) is body else None


_CHANGES: dict[How, Callable[[Any, Redactor], Any]] = {
    How.TEXT: lambda text, redactor: redactor.text(text),
    How.PASSAGE: lambda text, redactor: redactor.text(text),
    How.UNIQUE: _unique,
    How.JSON: lambda text, redactor: redactor.json(text),
    How.OWN_JSON: lambda text, redactor: redactor.json(text, OWN_FIELDS),
    How.WIRE: lambda body, redactor: redactor.wire(body),
    How.META: _meta,
    How.ORIGINS: _origins_json,
    How.SOURCE: _source,
    How.BEFORE: _before,
    How.PACKED: _packed,
    How.SALTED: _salted,
}


def is_nearly_empty(text: str) -> bool:
    """Tell whether a text is almost empty after the redaction."""
    rest = text.replace(FORGOTTEN, " ")
    return sum(character.isalnum() for character in rest) < _MIN_LEFT


_MIN_LEFT = 12


# -- every row -------------------------------------------------------------------------------------

_PAGE = 500
_MAX_ATTEMPTS = 5
_UNREAD = frozenset({How.ID, How.INDEX})

Columns = dict[str, dict[str, str]]
"""The tables that are there and their columns, as a database tells them."""


@dataclass(slots=True)
class SweepResult:
    """The number of matches by place, without the matches."""

    places: Counter[str] = field(default_factory=Counter[str])
    """How often, by table and column, or by file."""
    agents: set[str] = field(default_factory=set[str])
    """Whose memory was changed."""
    turns: set[str] = field(default_factory=set[str])
    """Turns of which an entry was changed."""
    names: Counter[str] = field(default_factory=Counter[str])
    """Names and addresses that hold it and were left, by table and column."""
    left: list[str] = field(default_factory=list[str])
    """Sentences on other places that still contain it."""

    def add(self, other: SweepResult) -> None:
        """Add the result of another sweep."""
        self.places += other.places
        self.agents |= other.agents
        self.turns |= other.turns
        self.names += other.names
        self.left += [text for text in other.left if text not in self.left]


@dataclass(slots=True)
class _Change:
    """What becomes of one row."""

    key: dict[str, Any]
    old: dict[str, Any]
    new: dict[str, Any] | None
    """None: the row goes."""


@dataclass(slots=True)
class _Page:
    changes: list[_Change]
    result: SweepResult
    last: Sequence[Any] | None
    """Where the next page begins; None: there is none."""


@dataclass(frozen=True, slots=True)
class TableSweep:
    """One table of one place, to be gone through."""

    name: str
    """As SQL wants it."""
    table: Table
    columns: tuple[str, ...]
    """Those that are there."""
    request: ForgetRequest
    indexed: bool
    """Whether what is stored in it is found through an index beside it."""

    @property
    def place(self) -> str:
        """The prefix of the tables beside it."""
        schema, dot, _ = self.name.rpartition(".")
        return schema + dot


def table_sweeps(present: Columns, request: ForgetRequest) -> list[TableSweep]:
    """Return how to go through all tables that are there and known."""
    result: list[TableSweep] = []
    indexed = {name for name in ("entries", "passages") if "search_indexes" in present}
    for name, columns in present.items():
        table = TABLES.get(name.rpartition(".")[2])
        if table is not None and set(table.columns.values()) - _UNREAD:
            there = tuple(
                column
                for column, how in table.columns.items()
                if column in columns and how is not How.BLOCK and how not in _UNREAD
            )
            result.append(TableSweep(name, table, there, request, name in indexed))
    return result


async def sweep_database(
    database: Database, present: Columns, request: ForgetRequest, redactor: Redactor
) -> SweepResult:
    """Take it out of every row of an open database, those of snapshots inside too."""
    result = SweepResult()
    for sweep in table_sweeps(present, request):
        after: Sequence[Any] | None = None
        while True:
            page = await _sweep_page(database, sweep, after, redactor)
            result.add(page.result)
            if page.last is None:
                break
            after = page.last
    for name in unknown_tables(present):
        work = partial(_sweep_unknown, name=name, columns=present[name], redactor=redactor)
        result.add(await database.write(work))
    for turn_id in sorted(result.turns):
        await database.write(partial(remove_reasoning, place="", turn_id=turn_id))
    return result


async def _sweep_page(
    database: Database, sweep: TableSweep, after: Sequence[Any] | None, redactor: Redactor
) -> _Page:
    """Go through one page; rows that others change meanwhile are looked at again."""
    for _ in range(_MAX_ATTEMPTS):
        page = await database.read(lambda tx: _read_page(tx, sweep, after, redactor))
        apply = partial(_apply, sweep=sweep, changes=page.changes)
        if not page.changes or await database.write(apply):
            return page

    async def at_once(tx: Connection) -> _Page:
        page = await _read_page(tx, sweep, after, redactor)
        await _apply(tx, sweep, page.changes)
        return page

    return await database.write(at_once)


async def sweep_connection(
    tx: Connection, present: Columns, request: ForgetRequest, redactor: Redactor
) -> SweepResult:
    """Take it out of every row in one transaction, for files that nobody else has open."""
    result = SweepResult()
    for sweep in table_sweeps(present, request):
        after: Sequence[Any] | None = None
        while True:
            page = await _read_page(tx, sweep, after, redactor)
            await _apply(tx, sweep, page.changes)
            result.add(page.result)
            if page.last is None:
                break
            after = page.last
    for name in unknown_tables(present):
        result.add(await _sweep_unknown(tx, name, present[name], redactor))
    for turn_id in sorted(result.turns):
        await remove_reasoning(tx, "", turn_id)
    return result


# -- one page ----------------------------------------------------------------------------------


async def _read_page(
    tx: Connection, sweep: TableSweep, after: Sequence[Any] | None, redactor: Redactor
) -> _Page:
    table = sweep.table
    wanted = {table.agent or "", "turn_id"} & table.columns.keys()
    also = tuple(sorted(wanted - set(table.key)))
    values = (tx.constellation,) if table.condition else ()
    rows = await store.page(
        tx,
        sweep.name,
        table.key,
        (*sweep.columns, *also),
        where=table.condition.format(at=sweep.place),
        values=values,
        after=after,
        limit=_PAGE,
    )
    page = _Page([], SweepResult(), rows[-1][: len(table.key)] if len(rows) == _PAGE else None)
    for row in rows:
        key = dict(zip(table.key, row, strict=False))
        values = dict(zip(sweep.columns, row[len(table.key) :], strict=False))
        known = key | dict(zip(also, row[len(table.key) + len(values) :], strict=True))
        change = _changed(sweep, key, values, redactor, page.result)
        if change is not None:
            page.changes.append(change)
            if table.agent is not None:
                page.result.agents.add((known | values)[table.agent])
            if sweep.name == "entries":
                page.result.turns.add(known["turn_id"])
    return page


def _changed(
    sweep: TableSweep,
    key: dict[str, Any],
    values: dict[str, Any],
    redactor: Redactor,
    result: SweepResult,
) -> _Change | None:
    """Return what becomes of a row, or None if it stays as it is."""
    new: dict[str, Any] = {}
    for column, value in values.items():
        how = sweep.table.columns[column]
        before = redactor.count
        if how is How.NAME:
            if isinstance(value, str) and redactor.spans(value):
                result.names[f"{sweep.name}.{column}"] += 1
            continue
        if how is How.BYTES:
            if value is not None and redactor.counted_in_bytes(value):
                result.places[f"{sweep.name}.{column}"] += 1
                return _Change(key, {}, None)
            continue
        changed = redact_column(how, value, redactor)
        if changed is not value and changed != value:
            new[column] = changed
            result.places[f"{sweep.name}.{column}"] += redactor.count - before
    if not new:
        return None
    old = {column: values[column] for column in new}
    if "text" in new and sweep.table.columns["text"] is How.PASSAGE:
        if is_nearly_empty(new["text"]):
            return _Change(key, old, None)
        vectors = embed([new["text"]])
        made = {"digest": digest(new["text"]), "vector": vectors[0] if vectors else None}
        new |= {name: value for name, value in made.items() if name in sweep.columns}
    return _Change(key, old, new)


async def _apply(tx: Connection, sweep: TableSweep, changes: list[_Change]) -> bool:
    """Make the changes of a page; False if a row had been changed by others."""
    settled = True
    if sweep.indexed and changes:
        await _remove_from_index(tx, sweep, changes)
    if sweep.table is TABLES["events"]:
        gone = [(change.key["chain"], change.key["number"]) for change in changes]
        await store.empty_events(tx, sweep.request, gone, place=sweep.place)
        return True
    for change in changes:
        if change.new is not None:
            settled &= await store.change(tx, sweep.name, change.key, change.old, change.new)
            continue
        where = " AND ".join(f"{name} = ?" for name in change.key)
        await store.remove(tx, sweep.name, where, tuple(change.key.values()))
        if sweep.table is TABLES["passages"]:
            edits = f"{sweep.place}passage_edits"
            await store.remove(tx, edits, "passage_id = ?", tuple(change.key.values()))
    return settled


async def _remove_from_index(tx: Connection, sweep: TableSweep, changes: list[_Change]) -> None:
    """Take texts that are about to change out of the index of search."""
    gone: dict[str, list[int]] = {}
    if sweep.name == "entries":
        for change in changes:
            gone.setdefault(change.key["agent_id"], []).append(change.key["seq"])
        kind = search_index.JOURNAL
    else:
        for change in changes:
            for archive_id, number in await tx.all(
                "SELECT archive_id, number FROM passages WHERE id = ? AND number IS NOT NULL",
                (change.key["id"],),
            ):
                gone.setdefault(archive_id, []).append(number)
        kind = search_index.ARCHIVE
    for owner_id, numbers in gone.items():
        await search_index.drop(tx, kind, owner_id, numbers)


async def remove_reasoning(tx: Connection, place: str, turn_id: str) -> None:
    """Remove what vendors keep of their reasoning from the replies of a turn."""
    rows = await tx.all(
        f"SELECT agent_id, seq, meta FROM {place}entries WHERE kind = 'reply' AND turn_id = ?"
        " AND meta LIKE '%\"thought\"%'",
        (turn_id,),
    )
    for agent_id, seq, meta in rows:
        key = {"agent_id": agent_id, "seq": seq}
        await store.change(tx, f"{place}entries", key, {}, {"meta": without_reasoning(meta)})


# -- tables that this release does not know ----------------------------------------------------


def unknown_tables(present: Columns) -> list[str]:
    """Return the tables that an older or later release has made."""
    return [name for name in present if name.rpartition(".")[2] not in TABLES]


async def _sweep_unknown(
    tx: Connection, name: str, columns: Iterable[str], redactor: Redactor
) -> SweepResult:
    """Remove matches from an unknown table, value by value."""
    result = SweepResult()
    for column in columns:
        before = redactor.count
        for (value,) in await tx.all(f"SELECT DISTINCT {column} FROM {name}"):
            how = How.JSON if isinstance(value, str) else How.ID
            how = How.WIRE if isinstance(value, bytes) else how
            changed = redact_column(how, value, redactor)
            if changed is not value:
                await store.change_value(tx, name, column, value, changed)
        if redactor.count > before:
            result.places[f"{name}.{column}"] += redactor.count - before
    return result
