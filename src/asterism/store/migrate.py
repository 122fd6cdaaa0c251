"""Numbered migrations: plain SQL files, each run in one transaction with the number it leads to."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from asterism.errors import StoreTooNew, StoreTooOld
from asterism.store.database import Connection
from asterism.types.ids import now_ms


@dataclass(frozen=True, slots=True)
class Migration:
    """One step of the schema, from the one before to `number`; the first one makes all tables."""

    number: int
    name: str
    sql: str


def load_migrations(directory: Path | None = None) -> list[Migration]:
    """Return the migrations of this release (or of another directory), in order."""
    place = files("asterism.store") / "migrations" if directory is None else directory
    found = [
        Migration(int(entry.name[:4]), entry.name, entry.read_text("utf-8"))
        for entry in place.iterdir()
        if entry.name.endswith(".sql")
    ]
    found.sort(key=lambda migration: migration.number)
    return found


async def schema_version(tx: Connection) -> int:
    """Return the schema the database has; 0 for a new one."""
    await tx.run(
        "CREATE TABLE IF NOT EXISTS schema_versions"
        " (version BIGINT PRIMARY KEY, applied_at BIGINT NOT NULL)"
    )
    row = await tx.one("SELECT MAX(version) FROM schema_versions")
    return int(row[0]) if row and row[0] is not None else 0


async def record_version(tx: Connection, version: int) -> None:
    """Record that the database now has schema `version`."""
    await tx.run("INSERT INTO schema_versions VALUES (?, ?)", (version, now_ms()))


def refuse_newer(version: int, migrations: list[Migration], snapshots: str) -> None:
    """Raise `StoreTooNew` if the database was written by a later release."""
    known = migrations[-1].number if migrations else 0
    if version > known:
        raise StoreTooNew(
            f"The database has schema {version}, and this release knows schemas up to {known}. "
            f"Upgrade asterism, or go back to a snapshot ({snapshots}). Nothing was changed."
        )


def refuse_unreleased(version: int, migrations: list[Migration], place: str, anew: str) -> None:
    """Raise `StoreTooOld` if no migration leads from the schema of the database to a later one."""
    first = migrations[0].number if migrations else 0
    if 0 < version < first:
        raise StoreTooOld(
            f"The database {place} has schema {version}, from before the first release; this "
            f"release begins with schema {first}. The checkout of asterism that wrote it can still "
            'export memories and the log ("asterism memory export", "asterism audit export"); to '
            f"start anew, {anew}. Nothing was changed."
        )


def refuse_older(version: int, migrations: list[Migration]) -> None:
    """Raise `StoreTooOld` if the database has yet to be brought up to date."""
    known = migrations[-1].number if migrations else 0
    if 0 < version < known:
        raise StoreTooOld(
            f"The database has schema {version}, and this release reads schema {known}. Start "
            '"asterism" or "asterism worker" once: it is brought up to date then, after a snapshot.'
            " Nothing was changed."
        )
