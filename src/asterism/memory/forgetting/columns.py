"""Where memory can live: every column of every table, and how it is forgotten.

The table is total: a test compares it with the schema of both engines, so that a migration has to
say of each new column whether it can hold what a person wants to be forgotten.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class How(StrEnum):
    """What a column holds, and so how a text is taken out of it."""

    ID = "id"
    """Numbers, ids and fixed words of our own: nobody can write a text into it."""
    NAME = "name"
    """A name, an address or a setting by which things are found: left, and told in the receipt."""
    TEXT = "text"
    UNIQUE = "unique"
    """Text by which a row is found: what stands in its place differs from row to row."""
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
    whose: str
    """A condition with one `?` for the constellation, `{at}` before each table; or empty."""
    columns: dict[str, How]
    agent: str | None = None
    """The column that says whose memory changes when a row does."""


# With IN, SQLite would look rows up by it and sort them, page after page.
_OF_AGENT = "EXISTS (SELECT 1 FROM {at}agents x WHERE x.id = agent_id AND x.constellation = ?)"
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
        | _ids("deleted_at", "memory")
        | _names("name", "model", "tools", "limits", "rules")
        | {"system": How.TEXT},
        agent="id",
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
        | _names("channel", "sender", "reply_to")
        | {"body": How.WIRE, "schema": How.JSON, "stopped": How.TEXT},
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
        _ids("id", "agent_id", "due_at", "cron", "created_at", "participants")
        | _names("reply_to", "channel")
        | {"text": How.TEXT},
        agent="agent_id",
    ),
    "notices": Table(
        ("id",),
        _OF_AGENT,
        _ids("id", "agent_id", "turn_id", "kind", "at", "seen_at") | {"text": How.TEXT},
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
