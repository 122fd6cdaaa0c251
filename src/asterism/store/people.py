"""People at rest: persons, their accounts, the rooms they are in, and audiences that name them."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterable, Sequence

import orjson

from asterism.store import search_index
from asterism.store.database import MOST_VALUES, Connection, Row, marks
from asterism.types.people import OWNER, Account, Audience, Person, Trust

_PERSON = "id, name, trust, roles, created_at"
"""Values in one statement, below what either engine takes."""

_MOST_ACCOUNTS = 100


def _person(row: Row, accounts: Iterable[Account] = ()) -> Person:
    roles: list[str] = orjson.loads(row[3])
    owners = (OWNER,) if row[0] == OWNER else ()
    return Person(row[0], row[1], Trust(row[2]), (*owners, *roles), tuple(accounts), row[4])


def _parts(values: Sequence[str]) -> list[Sequence[str]]:
    return [values[first : first + MOST_VALUES] for first in range(0, len(values), MOST_VALUES)]


# -- persons ---------------------------------------------------------------------------------------


async def put(tx: Connection, constellation: str, person: Person) -> bool:
    """Store a new person; False if the id or the name is taken."""
    row = await tx.one(
        f"INSERT INTO persons (constellation, {_PERSON}) VALUES (?, ?, ?, ?, ?, ?)"
        " ON CONFLICT DO NOTHING RETURNING id",
        (
            constellation,
            person.id,
            person.name,
            person.trust.value,
            orjson.dumps(person.roles).decode(),
            person.created_at,
        ),
    )
    return row is not None


async def get(tx: Connection, constellation: str, person_id: str) -> Person | None:
    """Return a person with their accounts."""
    row = await tx.one(
        f"SELECT {_PERSON} FROM persons WHERE constellation = ? AND id = ?",
        (constellation, person_id),
    )
    if row is None:
        return None
    return _person(row, await accounts_of(tx, constellation, person_id))


async def by_name(tx: Connection, constellation: str, name: str) -> str | None:
    """Return the id of the person of that name."""
    row = await tx.one(
        "SELECT id FROM persons WHERE constellation = ? AND name = ?", (constellation, name)
    )
    return row[0] if row else None


async def names(tx: Connection, constellation: str) -> list[tuple[str, str]]:
    """Return the (id, name) of all persons, by name."""
    rows = await tx.all(
        "SELECT id, name FROM persons WHERE constellation = ? ORDER BY name", (constellation,)
    )
    return [(row[0], row[1]) for row in rows]


async def everyone(tx: Connection, constellation: str) -> list[Person]:
    """Return all persons that have a row, by name, with their accounts."""
    accounts: dict[str, list[Account]] = {}
    for channel, sender, person_id in await tx.all(
        "SELECT channel, sender, person_id FROM accounts WHERE constellation = ?"
        " ORDER BY channel, sender",
        (constellation,),
    ):
        accounts.setdefault(person_id, []).append(Account(channel, sender))
    rows = await tx.all(
        f"SELECT {_PERSON} FROM persons WHERE constellation = ? ORDER BY name", (constellation,)
    )
    return [_person(row, accounts.get(row[0], ())) for row in rows]


async def change(
    tx: Connection,
    constellation: str,
    person_id: str,
    *,
    name: str | None = None,
    trust: Trust | None = None,
    roles: Sequence[str] | None = None,
) -> bool:
    """Change what is said of a person; None leaves a thing as it is. False if there is none."""
    changed = await tx.run(
        "UPDATE persons SET name = COALESCE(?, name), trust = COALESCE(?, trust),"
        " roles = COALESCE(?, roles) WHERE constellation = ? AND id = ?",
        (
            name,
            trust.value if trust is not None else None,
            orjson.dumps(list(roles)).decode() if roles is not None else None,
            constellation,
            person_id,
        ),
    )
    return changed > 0


async def remove(tx: Connection, constellation: str, person_id: str) -> None:
    """Remove a person's own row; accounts and rooms are the caller's business."""
    await tx.run(
        "DELETE FROM persons WHERE constellation = ? AND id = ?", (constellation, person_id)
    )


# -- accounts --------------------------------------------------------------------------------------


async def accounts_of(tx: Connection, constellation: str, person_id: str) -> list[Account]:
    """Return where a person writes from."""
    rows = await tx.all(
        "SELECT channel, sender FROM accounts WHERE constellation = ? AND person_id = ?"
        " ORDER BY channel, sender",
        (constellation, person_id),
    )
    return [Account(row[0], row[1]) for row in rows]


async def whose(tx: Connection, constellation: str, account: Account) -> str | None:
    """Return the id of the person that an account belongs to."""
    row = await tx.one(
        "SELECT person_id FROM accounts WHERE constellation = ? AND channel = ? AND sender = ?",
        (constellation, account.channel, account.sender),
    )
    return row[0] if row else None


async def behind(
    tx: Connection, constellation: str, accounts: Sequence[Account]
) -> dict[Account, tuple[str, str]]:
    """Return the ids and names of those whose accounts these are, as far as they are known."""
    found: dict[Account, tuple[str, str]] = {}
    for first in range(0, len(accounts), _MOST_ACCOUNTS):
        part = accounts[first : first + _MOST_ACCOUNTS]
        rows = await tx.all(
            "SELECT a.channel, a.sender, p.id, p.name FROM accounts a JOIN persons p"
            " ON p.constellation = a.constellation AND p.id = a.person_id WHERE"
            + " OR ".join(
                [" (a.constellation = ? AND a.channel = ? AND a.sender = ?)"] * len(part)
            ),
            [value for one in part for value in (constellation, one.channel, one.sender)],
        )
        found.update({Account(row[0], row[1]): (row[2], row[3]) for row in rows})
    return found


async def claim_account(
    tx: Connection, constellation: str, account: Account, person_id: str
) -> bool:
    """Give an account to a person unless it is somebody's; False if it is.

    On PostgreSQL this waits for another transaction that is about to do the same.
    """
    row = await tx.one(
        "INSERT INTO accounts (constellation, channel, sender, person_id) VALUES (?, ?, ?, ?)"
        " ON CONFLICT DO NOTHING RETURNING person_id",
        (constellation, account.channel, account.sender, person_id),
    )
    return row is not None


async def give_account(tx: Connection, constellation: str, account: Account, person: str) -> None:
    """Give an account to a person, whosever it was."""
    await tx.run(
        "INSERT INTO accounts (constellation, channel, sender, person_id) VALUES (?, ?, ?, ?)"
        " ON CONFLICT (constellation, channel, sender) DO UPDATE SET person_id = ?",
        (constellation, account.channel, account.sender, person, person),
    )


async def drop_account(tx: Connection, constellation: str, account: Account) -> bool:
    """Take an account away from whoever has it; False if nobody had it."""
    changed = await tx.run(
        "DELETE FROM accounts WHERE constellation = ? AND channel = ? AND sender = ?",
        (constellation, account.channel, account.sender),
    )
    return changed > 0


# -- rooms -----------------------------------------------------------------------------------------


async def join(
    tx: Connection, constellation: str, room: str, persons: Sequence[str], now: int
) -> None:
    """Note that persons are members of a room."""
    await tx.run_many(
        "INSERT INTO room_members (constellation, room, person_id, since) VALUES (?, ?, ?, ?)"
        " ON CONFLICT DO NOTHING",
        [(constellation, room, person, now) for person in persons],
    )


async def leave(tx: Connection, constellation: str, room: str, person_id: str) -> bool:
    """Note that a person is no longer in a room; False if they were not."""
    changed = await tx.run(
        "DELETE FROM room_members WHERE constellation = ? AND room = ? AND person_id = ?",
        (constellation, room, person_id),
    )
    return changed > 0


async def members(tx: Connection, constellation: str, room: str) -> list[str]:
    """Return the ids of the persons who are known to be in a room."""
    rows = await tx.all(
        "SELECT person_id FROM room_members WHERE constellation = ? AND room = ?"
        " ORDER BY since, person_id",
        (constellation, room),
    )
    return [row[0] for row in rows]


async def roles_of(
    tx: Connection, constellation: str, persons: Sequence[str]
) -> dict[str, frozenset[str]]:
    """Return the roles of those persons that there are."""
    found: dict[str, frozenset[str]] = {}
    for part in _parts(persons):
        rows = await tx.all(
            f"SELECT id, roles FROM persons WHERE constellation = ? AND id IN ({marks(part)})",
            (constellation, *part),
        )
        found.update({row[0]: frozenset[str](orjson.loads(row[1])) for row in rows})
    return found


async def rooms_of(
    tx: Connection, constellation: str, persons: Sequence[str]
) -> dict[str, frozenset[str]]:
    """Return the rooms that each of these persons is in."""
    found: dict[str, set[str]] = {}
    for part in _parts(persons):
        rows = await tx.all(
            "SELECT person_id, room FROM room_members"
            f" WHERE constellation = ? AND person_id IN ({marks(part)})",
            (constellation, *part),
        )
        for person_id, room in rows:
            found.setdefault(person_id, set()).add(room)
    return {person_id: frozenset(rooms) for person_id, rooms in found.items()}


# -- one person in the place of another ------------------------------------------------------------

_AGENTS = "agent_id IN (SELECT id FROM agents WHERE constellation = ?)"
_BLOCKS = "block_id IN (SELECT id FROM blocks WHERE constellation = ?)"
_PASSAGES = "passage_id IN (SELECT id FROM passages WHERE constellation = ?)"
_AUDIENCES = {
    "blocks": "constellation = ?",
    "passages": "constellation = ?",
    "sources": "constellation = ?",
    "summaries": _AGENTS,
    "turns": _AGENTS,
}
"""Tables with an `audience`, and which of their rows are a constellation's. The key is `id`."""
_NAMING = (
    ("blocks", "lines", ("id",), "constellation = ?"),
    ("block_edits", "source", ("block_id", "number"), _BLOCKS),
    ("passages", "origins", ("id",), "constellation = ?"),
    ("passage_edits", "before", ("passage_id", "number"), _PASSAGES),
    ("inbox", "participants", ("agent_id", "arrival"), _AGENTS),
    ("schedules", "participants", ("id",), _AGENTS),
)
"""JSON texts in which a person may be named: table, column, key, which rows."""


async def move(tx: Connection, constellation: str, gone: str, kept: str) -> None:
    """Hand everything that names a person over to another: accounts, rooms, audiences, origins."""
    await tx.run(
        "UPDATE accounts SET person_id = ? WHERE constellation = ? AND person_id = ?",
        (kept, constellation, gone),
    )
    await tx.run(
        "INSERT INTO room_members (constellation, room, person_id, since)"
        " SELECT constellation, room, ?, since FROM room_members"
        " WHERE constellation = ? AND person_id = ? ON CONFLICT DO NOTHING",
        (kept, constellation, gone),
    )
    await tx.run(
        "DELETE FROM room_members WHERE constellation = ? AND person_id = ?", (constellation, gone)
    )
    # In JSON inside of JSON a backslash stands before the quote.
    word = re.compile(rf"""(?<![^|&"]){re.escape(f"person:{gone}")}(?![^|&"\\])""")
    quoted = re.compile(rf"""(?<="){re.escape(gone)}(?=\\*")""")
    instead = f"person:{kept}"

    def audience(text: str) -> str:
        return str(Audience.read(word.sub(instead, text)))

    def named(text: str) -> str:
        return quoted.sub(kept, word.sub(instead, text))

    for table, whose_rows in _AUDIENCES.items():
        await _rewrite(tx, constellation, table, "audience", ("id",), whose_rows, gone, audience)
    await search_index.drop_naming(tx, constellation, f"person:{gone}")
    for table, column, key, whose_rows in _NAMING:
        await _rewrite(tx, constellation, table, column, key, whose_rows, gone, named)
    await _rewrite_eras(tx, constellation, gone, named)


async def _rewrite(
    tx: Connection,
    constellation: str,
    table: str,
    column: str,
    key: Sequence[str],
    whose_rows: str,
    gone: str,
    rewrite: Callable[[str], str],
) -> None:
    rows = await tx.all(
        f"SELECT {column}, {', '.join(key)} FROM {table}"
        f" WHERE {whose_rows} AND {column} LIKE ? ESCAPE '!'",
        (constellation, f"%{gone.replace('_', '!_')}%"),
    )
    changed = [(rewrite(row[0]), *row[1:]) for row in rows]
    where = " AND ".join(f"{one} = ?" for one in key)
    await tx.run_many(f"UPDATE {table} SET {column} = ? WHERE {where}", changed)


async def _rewrite_eras(
    tx: Connection, constellation: str, gone: str, rewrite: Callable[[str], str]
) -> None:
    """Rewrite what the folded history of blocks says of its edits, which is compressed JSON."""
    changed: list[tuple[bytes, str, int]] = []
    for block_id, first, packed in await tx.all(
        f"SELECT block_id, first, edits FROM block_eras WHERE {_BLOCKS}", (constellation,)
    ):
        text = zlib.decompress(packed).decode()
        if gone in text:
            changed.append((zlib.compress(rewrite(text).encode(), 9), block_id, first))
    await tx.run_many("UPDATE block_eras SET edits = ? WHERE block_id = ? AND first = ?", changed)


async def memory_changed(tx: Connection, constellation: str) -> None:
    """Count a change of what all agents may see."""
    await tx.run("UPDATE agents SET memory = memory + 1 WHERE constellation = ?", (constellation,))
