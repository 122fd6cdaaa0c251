"""Sources of documents at rest: folders, the agents that may read them, and their files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import orjson

from asterism.store import search_index
from asterism.store.database import Connection, Row
from asterism.types.agents import Audience
from asterism.types.documents import STAGED, DocumentSource, DocumentState, SourceDocument

_SOURCE = "id, name, path, options, audience, created_at, synced_at"
_DOCUMENT = "source_id, path, digest, size, modified, state, passages, error, read_at"


def _source(row: Row) -> DocumentSource:
    options = orjson.loads(row[3])
    return DocumentSource(
        id=row[0],
        name=row[1],
        path=row[2],
        include=tuple(options.get("include", ())),
        exclude=tuple(options.get("exclude", ())),
        audience=Audience.read(row[4]),
        created_at_ms=row[5],
        synced_at_ms=row[6],
        paused=bool(options.get("paused")),
        unread=options.get("unread", {}),
    )


def _options(source: DocumentSource) -> str:
    options: dict[str, object] = {"include": source.include, "exclude": source.exclude}
    if source.paused:
        options["paused"] = True
    if source.unread:
        options["unread"] = source.unread
    return orjson.dumps(options).decode()


def _document(row: Row) -> SourceDocument:
    source_id, path, digest, size, modified, state, passages, error, read_at = row
    return SourceDocument(
        source_id,
        path,
        digest,
        size,
        modified,
        DocumentState(state),
        passages=passages,
        error=error,
        read_at_ms=read_at,
    )


# -- sources ---------------------------------------------------------------------------------------


async def create(tx: Connection, source: DocumentSource) -> bool:
    """Store a source; False if its name is taken."""
    changed = await tx.run(
        f"INSERT INTO sources (constellation, {_SOURCE}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
        " ON CONFLICT (constellation, name) DO NOTHING",
        (
            tx.constellation,
            source.id,
            source.name,
            source.path,
            _options(source),
            str(source.audience),
            source.created_at_ms,
            source.synced_at_ms,
        ),
    )
    return changed > 0


async def by_name(tx: Connection, name: str) -> DocumentSource | None:
    """Return a source by its name."""
    row = await tx.one(
        f"SELECT {_SOURCE} FROM sources WHERE constellation = ? AND name = ?",
        (tx.constellation, name),
    )
    return _source(row) if row else None


async def sources(tx: Connection) -> list[DocumentSource]:
    """Return all sources of a constellation by name."""
    rows = await tx.all(
        f"SELECT {_SOURCE} FROM sources WHERE constellation = ? ORDER BY name", (tx.constellation,)
    )
    return [_source(row) for row in rows]


async def set_paused(tx: Connection, source: DocumentSource, *, paused: bool) -> None:
    """Pause a source, or resume it."""
    options = _options(replace(source, paused=paused))
    await tx.run("UPDATE sources SET options = ? WHERE id = ?", (options, source.id))


async def mark_synced(
    tx: Connection, source_id: str, now: int, unread: Mapping[str, int] | None = None
) -> None:
    """Note that everything in a source was looked at, and the files that are not read, by kind."""
    row = await tx.one(f"SELECT {_SOURCE} FROM sources WHERE id = ?", (source_id,))
    if row is not None:
        options = _options(replace(_source(row), unread=unread or {}))
        await tx.run(
            "UPDATE sources SET synced_at = ?, options = ? WHERE id = ?", (now, options, source_id)
        )


async def remove(tx: Connection, source_id: str) -> None:
    """Remove a source that has no documents any more."""
    await tx.run("DELETE FROM source_agents WHERE source_id = ?", (source_id,))
    await tx.run("DELETE FROM sources WHERE id = ?", (source_id,))
    await search_index.remove(tx, source_id)


async def attach(tx: Connection, source_id: str, agent_id: str, now: int) -> bool:
    """Let an agent read a source; False if it does already."""
    changed = await tx.run(
        "INSERT INTO source_agents (source_id, agent_id, since) VALUES (?, ?, ?)"
        " ON CONFLICT DO NOTHING",
        (source_id, agent_id, now),
    )
    return changed > 0


async def detach(tx: Connection, source_id: str, agent_id: str) -> bool:
    """Let an agent read a source no longer; False if it did not."""
    changed = await tx.run(
        "DELETE FROM source_agents WHERE source_id = ? AND agent_id = ?", (source_id, agent_id)
    )
    return changed > 0


async def detach_all(tx: Connection, source_id: str) -> None:
    """Let no agent read a source any longer."""
    await tx.run("DELETE FROM source_agents WHERE source_id = ?", (source_id,))


async def agents_of(tx: Connection, source_id: str) -> list[str]:
    """Return the ids of the agents that read a source, the first one first."""
    rows = await tx.all(
        "SELECT agent_id FROM source_agents WHERE source_id = ? ORDER BY since, agent_id",
        (source_id,),
    )
    return [row[0] for row in rows]


# -- documents -------------------------------------------------------------------------------------


async def documents(
    tx: Connection, source_id: str, *, after: str = "", most: int = 200
) -> list[SourceDocument]:
    """Return documents of a source by path, after a path."""
    rows = await tx.all(
        f"SELECT {_DOCUMENT} FROM documents WHERE source_id = ? AND path > ? ORDER BY path LIMIT ?",
        (source_id, after, most),
    )
    return [_document(row) for row in rows]


async def those(tx: Connection, source_id: str, paths: Sequence[str]) -> dict[str, SourceDocument]:
    """Return the documents of a source that have one of some paths, by path."""
    if not paths:
        return {}
    marks = ", ".join("?" * len(paths))
    rows = await tx.all(
        f"SELECT {_DOCUMENT} FROM documents WHERE source_id = ? AND path IN ({marks})",
        (source_id, *paths),
    )
    return {row[1]: _document(row) for row in rows}


async def put(tx: Connection, document: SourceDocument) -> None:
    """Store the new state of a document."""
    await tx.run(
        f"INSERT INTO documents ({_DOCUMENT}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
        " ON CONFLICT (source_id, path) DO UPDATE SET digest = excluded.digest,"
        " size = excluded.size, modified = excluded.modified, state = excluded.state,"
        " passages = excluded.passages, error = excluded.error, read_at = excluded.read_at",
        (
            document.source_id,
            document.path,
            document.digest,
            document.size,
            document.modified,
            document.state.value,
            document.passages,
            document.error,
            document.read_at_ms,
        ),
    )


async def advance(tx: Connection, document: SourceDocument, more: int) -> bool:
    """Count more passages of a document that is being read; False if others have read on."""
    changed = await tx.run(
        "UPDATE documents SET passages = passages + ? WHERE source_id = ? AND path = ?"
        " AND digest = ? AND state = ? AND passages = ?",
        (
            more,
            document.source_id,
            document.path,
            document.digest,
            DocumentState.READING.value,
            document.passages,
        ),
    )
    return changed > 0


async def drop(tx: Connection, source_id: str, path: str) -> None:
    """Forget that there was a document."""
    await tx.run("DELETE FROM documents WHERE source_id = ? AND path = ?", (source_id, path))


async def staged_text(tx: Connection, source_id: str, path: str, place: int) -> str | None:
    """Return a passage, by its number, of a document that is being read."""
    row = await tx.one(
        "SELECT text FROM passages WHERE archive_id = ? AND document = ? AND place = ?"
        " AND retracted_at = ?",
        (source_id, path, place, STAGED),
    )
    return row[0] if row else None


async def counts(tx: Connection, source_id: str) -> tuple[int, int, int]:
    """Return how many documents of a source were read, their passages, and how many were not."""
    row = await tx.one(
        "SELECT COUNT(CASE WHEN state = 'read' THEN 1 END), SUM(passages),"
        " COUNT(CASE WHEN state = 'refused' THEN 1 END) FROM documents WHERE source_id = ?",
        (source_id,),
    )
    return (int(row[0]), int(row[1] or 0), int(row[2])) if row else (0, 0, 0)
