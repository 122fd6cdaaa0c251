"""Archives at rest: passages and their edits."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import field
from typing import Any, NamedTuple

import orjson

from asterism.records import dataclass
from asterism.store.agents import PassageOwner
from asterism.store.database import MAX_VALUES, Connection, Row, marks
from asterism.times import Moment
from asterism.types.agents import Audience, Trust
from asterism.types.memory import Origin, OriginKind, Passage, Source

COLUMNS = (
    "id, archive_id, text, tags, metadata, origins, audience, trust, author, turn_id, known_from,"
    " true_from, superseded_by, superseded_at, retracted_at"
)
"""What a `Passage` is made of."""
_HOLDS = "superseded_at IS NULL AND retracted_at IS NULL"


@dataclass(frozen=True, slots=True)
class PassageEdit:
    """Something that was done to a passage after it was inserted."""

    passage_id: str
    number: int
    kind: str
    """`append`, `retract`, `supersede`, `tag`, `merge`, `flag` or `revert`."""
    author: str
    turn_id: str | None
    reason: str
    at_ms: int
    before: dict[str, Any] = field(default_factory=dict[str, Any])
    """The columns that it changed, as they were."""

    at = Moment()


def origins_wire(origins: Iterable[Origin]) -> str:
    """Return origins as they are stored, in JSON."""
    return orjson.dumps(
        [[origin.kind.value, origin.ref, origin.detail] for origin in origins]
    ).decode()


def read_origins(text: str) -> tuple[Origin, ...]:
    """Return origins that were stored."""
    return tuple(Origin(OriginKind(kind), ref, rest) for kind, ref, rest in orjson.loads(text))


def read_passage(row: Row) -> Passage:
    """Return the passage that a row of `COLUMNS` is."""
    return Passage(
        id=row[0],
        archive_id=row[1],
        text=row[2],
        tags=tuple(orjson.loads(row[3])),
        metadata=orjson.loads(row[4]),
        source=Source(read_origins(row[5]), Audience.read(row[6]), Trust(row[7])),
        author=row[8],
        turn_id=row[9],
        known_from_ms=row[10],
        true_from_ms=row[11],
        superseded_by=row[12],
        superseded_at_ms=row[13],
        retracted_at_ms=row[14],
    )


# -- archives --------------------------------------------------------------------------------------


async def archive(tx: Connection, archive_id: str) -> PassageOwner | None:
    """Return an archive by its id: an agent that is in service, or a source."""
    row = await tx.one(
        "SELECT id, name FROM agents WHERE constellation = ? AND id = ? AND deleted_at IS NULL",
        (tx.constellation, archive_id),
    )
    if row is not None:
        return PassageOwner(row[0], row[1], "agent")
    row = await tx.one(
        "SELECT id, name FROM sources WHERE constellation = ? AND id = ?",
        (tx.constellation, archive_id),
    )
    return PassageOwner(row[0], row[1], "source") if row else None


# -- passages --------------------------------------------------------------------------------------


async def has_any(tx: Connection, agent_id: str) -> bool:
    """Tell whether an agent has a passage, or a source that it may read."""
    row = await tx.one(
        "SELECT EXISTS (SELECT 1 FROM passages WHERE archive_id = ?)"
        " OR EXISTS (SELECT 1 FROM source_agents WHERE agent_id = ?)",
        (agent_id, agent_id),
    )
    return bool(row and row[0])


async def get(tx: Connection, passage_id: str) -> Passage | None:
    """Return a passage, whether it still holds or not."""
    row = await tx.one(
        f"SELECT {COLUMNS} FROM passages WHERE id = ? AND constellation = ?",
        (passage_id, tx.constellation),
    )
    return read_passage(row) if row else None


async def many(tx: Connection, passage_ids: Sequence[str]) -> dict[str, Passage]:
    """Return the stored passages among `passage_ids`, by id."""
    passages: dict[str, Passage] = {}
    for first in range(0, len(passage_ids), MAX_VALUES):
        part = passage_ids[first : first + MAX_VALUES]
        rows = await tx.all(
            f"SELECT {COLUMNS} FROM passages WHERE id IN ({marks(len(part))})", part
        )
        passages.update({row[0]: read_passage(row) for row in rows})
    return passages


class Numbered(NamedTuple):
    """A passage with its number in the index of its archive."""

    number: int
    document: str | None
    passage: Passage


async def by_numbers(
    tx: Connection, archive_id: str, numbers: Sequence[int]
) -> dict[int, Numbered]:
    """Return passages of an archive by their numbers."""
    passages: dict[int, Numbered] = {}
    for first in range(0, len(numbers), MAX_VALUES):
        part = numbers[first : first + MAX_VALUES]
        rows = await tx.all(
            f"SELECT {COLUMNS}, number, document FROM passages"
            f" WHERE archive_id = ? AND number IN ({marks(len(part))})",
            (archive_id, *part),
        )
        passages.update({row[-2]: Numbered(row[-2], row[-1], read_passage(row)) for row in rows})
    return passages


async def reworded_since(tx: Connection, archive_id: str, moment: int) -> list[Numbered]:
    """Return the passages of an archive whose text was changed after a moment, as they are now."""
    rows = await tx.all(
        f"SELECT {COLUMNS}, number, document FROM passages WHERE archive_id = ? AND known_from <= ?"
        " AND id IN (SELECT passage_id FROM passage_edits WHERE at > ? AND before LIKE ?)"
        " ORDER BY number",
        (archive_id, moment, moment, '%"text":%'),
    )
    return [Numbered(row[-2], row[-1], read_passage(row)) for row in rows]


async def newest(
    tx: Connection,
    archive_ids: Sequence[str],
    most: int,
    *,
    holding: bool = True,
    tags: Sequence[str] = (),
    known_until: int | None = None,
    before: tuple[int, str] | None = None,
    patterns: Sequence[str] = (),
    audiences: Sequence[str] | None = None,
) -> list[Passage]:
    """Return passages of some archives, the latest known first.

    Args:
        most: How many.
        holding: Leave out what was taken back or superseded.
        tags: Only those that have all of these.
        known_until: Only those known at this moment.
        before: Only those that come after this (known from, id) in the list.
        patterns: Only those whose text, ASCII letters in lower case, is `LIKE` one of these.
        audiences: Only those of one of these audiences.
    """
    if not archive_ids:
        return []
    where = [f"archive_id IN ({marks(len(archive_ids))})"]
    values: list[Any] = list(archive_ids)
    if holding:
        where.append(_HOLDS)
    for tag in tags:
        where.append("tags LIKE ? ESCAPE '!'")
        values.append(f"%{_literal(orjson.dumps(tag).decode())}%")
    if known_until is not None:
        where.append("known_from <= ?")
        values.append(known_until)
    if before is not None:
        where.append("(known_from < ? OR (known_from = ? AND id < ?))")
        values += [before[0], before[0], before[1]]
    if patterns:
        where.append("(" + " OR ".join(["LOWER(text) LIKE ?"] * len(patterns)) + ")")
        values += patterns
    if audiences is not None:
        where.append(f"audience IN ({marks(len(audiences)) or 'NULL'})")
        values += audiences
    rows = await tx.all(
        f"SELECT {COLUMNS} FROM passages WHERE {' AND '.join(where)}"
        " ORDER BY known_from DESC, id DESC LIMIT ?",
        (*values, most),
    )
    return [read_passage(row) for row in rows]


def _literal(text: str) -> str:
    for sign in "!%_":
        text = text.replace(sign, f"!{sign}")
    return text


async def vectors(
    tx: Connection, archive_ids: Sequence[str], most: int, audiences: Sequence[str] | None = None
) -> list[tuple[str, bytes]]:
    """Return the (id, vector) of the latest passages that hold, perhaps of some audiences only."""
    if not archive_ids:
        return []
    condition = (
        f" AND audience IN ({marks(len(audiences)) or 'NULL'})" if audiences is not None else ""
    )
    rows = await tx.all(
        f"SELECT id, vector FROM passages WHERE archive_id IN ({marks(len(archive_ids))})"
        f" AND {_HOLDS} AND vector IS NOT NULL{condition}"
        " ORDER BY known_from DESC, id DESC LIMIT ?",
        (*archive_ids, *(audiences or ()), most),
    )
    return [(row[0], row[1]) for row in rows]


async def audiences(tx: Connection, archive_ids: Sequence[str]) -> list[str]:
    """Return each audience that some archives have passages for."""
    rows = await tx.all(
        f"SELECT DISTINCT audience FROM passages WHERE archive_id IN ({marks(len(archive_ids))})",
        archive_ids,
    )
    return [row[0] for row in rows]


async def by_digest(
    tx: Connection, archive_id: str, digests: Sequence[str]
) -> dict[tuple[str, str], str]:
    """Return the ids of passages that hold and say these words, by (digest, audience)."""
    passages: dict[tuple[str, str], str] = {}
    for first in range(0, len(digests), MAX_VALUES):
        part = digests[first : first + MAX_VALUES]
        rows = await tx.all(
            "SELECT known_from, id, digest, audience FROM passages WHERE archive_id = ?"
            f" AND digest IN ({marks(len(part))}) AND {_HOLDS}",
            (archive_id, *part),
        )
        # Sorted here: for an ORDER BY, SQLite would walk the whole archive in that order.
        for _, passage_id, digest, audience in sorted(rows):
            passages.setdefault((digest, audience), passage_id)
    return passages


async def superseded_by(tx: Connection, passage: Passage) -> list[Passage]:
    """Return the passages that a passage took the place of."""
    rows = await tx.all(
        f"SELECT {COLUMNS} FROM passages WHERE archive_id = ? AND superseded_by = ?"
        " ORDER BY known_from, id",
        (passage.archive_id, passage.id),
    )
    return [read_passage(row) for row in rows]


# -- what was done to them -------------------------------------------------------------------------

_EDIT = "passage_id, number, kind, author, turn_id, reason, at, before"


def _edit(row: Row) -> PassageEdit:
    return PassageEdit(*row[:7], before=orjson.loads(row[7]))


async def edits(tx: Connection, passage_id: str) -> list[PassageEdit]:
    """Return the edits of a passage, in order."""
    rows = await tx.all(
        f"SELECT {_EDIT} FROM passage_edits WHERE passage_id = ? ORDER BY number", (passage_id,)
    )
    return [_edit(row) for row in rows]


async def edits_after(
    tx: Connection, passage_ids: Sequence[str], moment: int
) -> dict[str, list[PassageEdit]]:
    """Return the edits of passages after a moment, the latest first."""
    edits: dict[str, list[PassageEdit]] = {}
    for first in range(0, len(passage_ids), MAX_VALUES):
        part = passage_ids[first : first + MAX_VALUES]
        rows = await tx.all(
            f"SELECT {_EDIT} FROM passage_edits WHERE passage_id IN ({marks(len(part))}) AND at > ?"
            " ORDER BY passage_id, number DESC",
            (*part, moment),
        )
        for row in rows:
            edits.setdefault(row[0], []).append(_edit(row))
    return edits


# -- figures ---------------------------------------------------------------------------------------


async def counts(tx: Connection, archive_id: str) -> dict[str, int]:
    """Return the number of passages in an archive, by state."""
    row = await tx.one(
        "SELECT COUNT(*),"
        " SUM(CASE WHEN superseded_at IS NULL AND retracted_at IS NULL THEN 1 ELSE 0 END),"
        " SUM(CASE WHEN superseded_at IS NOT NULL THEN 1 ELSE 0 END),"
        " SUM(CASE WHEN retracted_at IS NOT NULL THEN 1 ELSE 0 END)"
        " FROM passages WHERE archive_id = ?",
        (archive_id,),
    )
    assert row is not None
    kinds = ("passages", "valid", "superseded", "retracted")
    return {kind: int(number or 0) for kind, number in zip(kinds, row, strict=True)}


async def without_origin(tx: Connection, archive_id: str, most: int) -> list[str]:
    """Return the ids of passages without an origin; there must not be any."""
    rows = await tx.all(
        "SELECT id FROM passages WHERE archive_id = ? AND origins = '[]' ORDER BY id LIMIT ?",
        (archive_id, most),
    )
    return [row[0] for row in rows]


async def orphaned_passages(
    tx: Connection, archive_id: str, most: int
) -> list[tuple[Passage, str]]:
    """Return passages whose successor was retracted or is gone, each with its successor's id."""
    columns = ", ".join(f"old.{name.strip()}" for name in COLUMNS.split(","))
    rows = await tx.all(
        f"SELECT {columns} FROM passages old LEFT JOIN passages new ON new.id = old.superseded_by"
        " WHERE old.archive_id = ? AND old.superseded_by IS NOT NULL AND old.retracted_at IS NULL"
        " AND (new.id IS NULL OR new.retracted_at IS NOT NULL)"
        " ORDER BY old.known_from DESC, old.id DESC LIMIT ?",
        (archive_id, most),
    )
    passages = [read_passage(row) for row in rows]
    return [(passage, passage.superseded_by or "") for passage in passages]


# -- of a turn, and whole archives -----------------------------------------------------------------


async def inserted_by(tx: Connection, turn_id: str) -> list[Passage]:
    """Return the passages that a turn stored, in order."""
    rows = await tx.all(
        f"SELECT {COLUMNS} FROM passages WHERE turn_id = ? AND constellation = ?"
        " ORDER BY known_from, id",
        (turn_id, tx.constellation),
    )
    return [read_passage(row) for row in rows]


async def passage_edits_by(tx: Connection, turn_id: str) -> list[PassageEdit]:
    """Return the edits that a turn made to existing passages, in order for each."""
    rows = await tx.all(
        "SELECT e.passage_id, e.number, e.kind, e.author, e.turn_id, e.reason, e.at, e.before"
        " FROM passage_edits e JOIN passages p ON p.id = e.passage_id"
        " WHERE e.turn_id = ? AND p.constellation = ? ORDER BY e.passage_id, e.number",
        (turn_id, tx.constellation),
    )
    return [PassageEdit(*row[:7], before=orjson.loads(row[7])) for row in rows]


class StoredPassage(NamedTuple):
    """A passage with its digest and its vector."""

    passage: Passage
    digest: str
    vector: bytes | None


async def stored_passages(
    tx: Connection, archive_id: str, after: str, most: int
) -> list[StoredPassage]:
    """Return the passages of an archive by id, after an id."""
    rows = await tx.all(
        f"SELECT {COLUMNS}, digest, vector FROM passages WHERE archive_id = ? AND id > ?"
        " ORDER BY id LIMIT ?",
        (archive_id, after, most),
    )
    return [StoredPassage(read_passage(row[:15]), row[15], row[16]) for row in rows]


async def sources_attached_at(
    tx: Connection, agent_id: str, moment: int
) -> list[tuple[str, str, int, int]]:
    """Return the sources attached to an agent before a moment, and what had been read of them.

    Each as id, name, how many documents and how many passages of them.
    """
    rows = await tx.all(
        "SELECT s.id, s.name, COUNT(DISTINCT p.document), COUNT(p.id) FROM source_agents a"
        " JOIN sources s ON s.id = a.source_id"
        " LEFT JOIN passages p ON p.archive_id = s.id AND p.known_from <= ?"
        " WHERE a.agent_id = ? AND a.since <= ? GROUP BY s.id, s.name ORDER BY s.name",
        (moment, agent_id, moment),
    )
    return [(row[0], row[1], int(row[2]), int(row[3])) for row in rows]


_CHANGEABLE = (
    *("text", "tags", "metadata", "origins", "audience", "trust"),
    *("superseded_by", "superseded_at", "retracted_at"),
)


async def stored_columns(tx: Connection, passage_id: str) -> dict[str, Any]:
    """Return what can change of a passage, as it is stored."""
    row = await tx.one(f"SELECT {', '.join(_CHANGEABLE)} FROM passages WHERE id = ?", (passage_id,))
    return dict(zip(_CHANGEABLE, row, strict=True)) if row else {}
