"""Going through all rows that there are: reading, changing and removing them, whatever the table.

A place is what stands before a table's name: nothing, or a snapshot's name and a dot.
"""

# apsw's stubs use a type that they do not define, so that all its methods count as partly unknown.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import apsw

from asterism.errors import StoreError
from asterism.records import dataclass
from asterism.store import events
from asterism.store.database import Connection, Row, Work
from asterism.store.events import EMPTIED, Event, home_chain
from asterism.store.sqlite import SQLiteConnection, drive

T = TypeVar("T")

DATA_FILES = "the files of a home"
"""The lock of whoever goes through all files of a data directory, or copies them."""
FORGOTTEN = "forgotten"
"""The topic under which every process hears that something is forgotten, before and after."""
# So few that the body of the event is not cut.
_SPANS_AT_ONCE = 300


async def page(
    tx: Connection,
    table: str,
    key: Sequence[str],
    columns: Sequence[str],
    *,
    where: str = "",
    values: Sequence[Any] = (),
    after: Sequence[Any] | None = None,
    limit: int,
) -> list[Row]:
    """Return rows in the order of their keys, each as its key and then its columns."""
    conditions = [f"({where})"] if where else []
    if after is not None:
        conditions.append(f"({', '.join(key)}) > ({', '.join('?' * len(key))})")
        values = (*values, *after)
    such = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    return await tx.all(
        f"SELECT {', '.join((*key, *columns))} FROM {table}{such}"
        f" ORDER BY {', '.join(key)} LIMIT {limit:d}",
        tuple(values),
    )


async def change(
    tx: Connection,
    table: str,
    key: dict[str, Any],
    old: dict[str, Any],
    new: dict[str, Any],
) -> bool:
    """Change columns of a row; False if they are not any more what they were."""
    setting = ", ".join(f"{name} = ?" for name in new)
    conditions = [f"{name} = ?" for name in key]
    values = [*new.values(), *key.values()]
    for name, value in old.items():
        conditions.append(f"{name} IS NULL" if value is None else f"{name} = ?")
        values += [] if value is None else [value]
    return (
        await tx.run(f"UPDATE {table} SET {setting} WHERE {' AND '.join(conditions)}", values) > 0
    )


async def change_value(tx: Connection, table: str, column: str, old: Any, new: Any) -> int:
    """Put one value in the place of another wherever it is in a column."""
    return await tx.run(f"UPDATE {table} SET {column} = ? WHERE {column} = ?", (new, old))


async def remove(tx: Connection, table: str, where: str, values: Sequence[Any]) -> int:
    """Remove rows."""
    return await tx.run(f"DELETE FROM {table} WHERE {where}", tuple(values))


async def ids(
    tx: Connection, table: str, column: str, where: str, values: Sequence[Any]
) -> list[Any]:
    """Return a column of the rows for which a condition holds, each value once."""
    rows = await tx.all(
        f"SELECT DISTINCT {column} FROM {table} WHERE {where} ORDER BY {column}", tuple(values)
    )
    return [row[0] for row in rows]


async def set_column(
    tx: Connection, table: str, column: str, value: Any, where: str, values: Sequence[Any]
) -> int:
    """Give a column of rows one value."""
    return await tx.run(f"UPDATE {table} SET {column} = ? WHERE {where}", (value, *values))


async def note_memory(tx: Connection, agent_ids: Sequence[str]) -> None:
    """Count a change of the memory that agents see."""
    await tx.run_many(
        "UPDATE agents SET memory = memory + 1 WHERE id = ?",
        [(agent_id,) for agent_id in agent_ids],
    )


# -- events ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ForgetRequest:
    """A request to forget: its constellation, actor, time and receipt."""

    constellation: str
    by: str
    at: int
    receipt: str


async def empty_events(
    tx: Connection,
    request: ForgetRequest,
    which: Iterable[tuple[str, int]],
    *,
    place: str = "",
) -> None:
    """Take the bodies of events, given by chain and number, and name them in the home's chain.

    `chains.verify` counts a body that is gone and that no such event names as a fault.
    """
    gone = sorted(set(which))
    await tx.run_many(
        f"UPDATE {place}events SET body = NULL, salt = NULL WHERE chain = ? AND number = ?", gone
    )
    spans = _spans(gone)
    named: list[Event] = []
    for first in range(0, len(spans), _SPANS_AT_ONCE):
        emptied: dict[str, list[tuple[int, int]]] = {}
        for chain, start, end in spans[first : first + _SPANS_AT_ONCE]:
            emptied.setdefault(chain, []).append((start, end))
        count = sum(end - start + 1 for some in emptied.values() for start, end in some)
        body = {
            "what": f"bodies of {count} events",
            "receipt": request.receipt,
            "emptied": emptied,
        }
        named.append(Event(EMPTIED, request.by, request.at, body))
    await events.append(tx, home_chain(tx.constellation), named, place=place)


def _spans(sorted_events: Sequence[tuple[str, int]]) -> list[tuple[str, int, int]]:
    """Return runs of numbers that follow each other, as chain, first and last."""
    spans: list[tuple[str, int, int]] = []
    for chain, number in sorted_events:
        if spans and spans[-1][0] == chain and spans[-1][2] == number - 1:
            spans[-1] = (chain, spans[-1][1], number)
        else:
            spans.append((chain, number, number))
    return spans


# -- tombstones --------------------------------------------------------------------------------


async def tombstones(tx: Connection) -> list[Row]:
    """Return (id, by whom, reason, marks, receipt, at) of all that was forgotten."""
    return await tx.all(
        "SELECT id, by_whom, reason, marks, receipt, at FROM tombstones WHERE constellation = ?"
        " ORDER BY at, id",
        (tx.constellation,),
    )


async def put_tombstone(tx: Connection, row: Row) -> None:
    """Store (id, by whom, reason, marks, receipt, at); it may be there already."""
    await tx.run(
        "INSERT INTO tombstones (constellation, id, by_whom, reason, marks, receipt, at)"
        " VALUES (?, ?, ?, ?, ?, ?, ?)"
        " ON CONFLICT (id) DO UPDATE SET receipt = excluded.receipt",
        (tx.constellation, *row),
    )
    # What the API has answered may hold it, and cannot be read without the token of the caller.
    await tx.run(
        "UPDATE idempotency_keys SET answer = NULL WHERE constellation = ?", (tx.constellation,)
    )
    await tx.notify(FORGOTTEN, tx.constellation)


# -- other files -------------------------------------------------------------------------------


def rewrite_file(path: Path, constellation: str, work: Work[T]) -> T:
    """Run `work` in a transaction on another SQLite file, then rewrite all of its pages."""

    def explain(error: apsw.Error) -> Exception:
        return StoreError(f"{path.name} is not a database that can be changed ({error}).")

    raw = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        raw.set_busy_timeout(1_000)
        # Without a log there is one file, and nothing beside it.
        raw.execute("PRAGMA journal_mode=DELETE").fetchall()
        raw.execute("BEGIN IMMEDIATE")
        result = drive(work, SQLiteConnection(raw, explain, constellation))
        raw.execute("COMMIT")
        raw.execute("VACUUM")
    except apsw.Error as error:
        raise explain(error) from error
    finally:
        raw.close()
    return result
