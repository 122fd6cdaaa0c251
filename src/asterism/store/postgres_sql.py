"""One SQL for both engines: the common subset in PostgreSQL's words."""

from __future__ import annotations

import functools
import re

from psycopg.abc import Buffer
from psycopg.adapt import Loader
from psycopg.pq import Format
from psycopg.types.numeric import NumericBinaryLoader

from asterism.store.migrate import Migration

_PARTS = re.compile(r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|--[^\n]*|/\*.*?\*/|\?""", re.DOTALL)


@functools.lru_cache(2048)
def translate(statement: str) -> bytes:
    """Put psycopg's placeholders in place of `?`, leaving literals, names and comments alone."""
    escaped = statement.replace("%", "%%")
    return _PARTS.sub(lambda part: "%s" if part[0] == "?" else part[0], escaped).encode()


_TYPES = re.compile(r"""'(?:[^']|'')*'|--[^\n]*|\bBLOB\b|(?<!AS )\bTEXT\b|\)\s*WITHOUT ROWID\b""")
# SQLite compares text byte by byte; without a collation PostgreSQL follows its host's language.
_TRANSLATED = {"BLOB": "BYTEA", "TEXT": 'TEXT COLLATE "C"'}


def translate_schema(migration: str) -> bytes:
    """Return a migration in PostgreSQL's words."""

    def put(part: re.Match[str]) -> str:
        return ")" if part[0].startswith(")") else _TRANSLATED.get(part[0], part[0])

    return _TYPES.sub(put, migration).encode()


_TABLES = re.compile(r"^\s*(CREATE|DROP) TABLE (?:IF (?:NOT )?EXISTS )?(\w+)", re.MULTILINE)


def tables_of(migrations: list[Migration], version: int) -> list[str]:
    """Return the tables that a schema has."""
    tables = {"schema_versions": None}
    for migration in migrations:
        if migration.number <= version:
            for verb, table in _TABLES.findall(migration.sql):
                if verb == "CREATE":
                    tables[table] = None
                else:
                    tables.pop(table, None)
    return list(tables)


class PlainNumber(Loader):
    """Reads NUMERIC, which SUM of whole numbers is on PostgreSQL, as int or float."""

    format = Format.BINARY

    def load(self, data: Buffer) -> int | float:
        """Return the number."""
        number = NumericBinaryLoader(self.oid, None).load(data)
        whole = int(number)
        return whole if whole == number else float(number)
