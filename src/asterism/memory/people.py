"""People: who writes, who is present, and what an owner says of them."""

from __future__ import annotations

import difflib
import re
import unicodedata
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import orjson

from asterism.errors import Conflict, InvalidInput, NotFound
from asterism.store import search_index
from asterism.store.database import MAX_VALUES, Connection, Row, marks
from asterism.types.agents import (
    OWNER,
    OWNER_ALONE,
    Account,
    Audience,
    Participant,
    Participants,
    Person,
    Trust,
    new_id,
)
from asterism.types.turns import plain

_MAX_NAME_LENGTH = 80
_MAX_ROLE_LENGTH = 40
_MAX_ROLES = 50
_JOINTS = frozenset("|&")
"""Characters that join the words of an audience, so that a word cannot contain them."""
_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
"""Categories of characters that show nothing, or cannot be stored."""
_NOBODY = Participant("")
"""Somebody of whom nothing is known."""
_THE_OWNER = Person(OWNER, OWNER, Trust.OWNER, (OWNER,))


# -- who is present --------------------------------------------------------------------------------


async def person_for(tx: Connection, account: Account, now: int) -> Person:
    """Return the person of an account; an unknown account becomes a new stranger."""
    account = Account(plain(account.channel), plain(account.sender))
    person_id = await person_of_account(tx, account)
    if person_id is None:
        stranger = new_id("person")
        if await claim_account(tx, account, stranger):
            return await _put_stranger(tx, stranger, account, now)
        person_id = await person_of_account(tx, account)
        assert person_id is not None, "an account that could not be claimed is somebody's"
    person = await _get(tx, person_id)
    return person or Person(person_id, person_id, Trust.STRANGER, accounts=(account,))


async def _put_stranger(tx: Connection, person_id: str, account: Account, now: int) -> Person:
    written = f"{account.channel}:{account.sender}"
    plain_name = "".join("_" if _is_unprintable(sign) else sign for sign in written)[
        : _MAX_NAME_LENGTH - 8
    ]
    name, number = plain_name, 1
    while True:
        person = Person(person_id, name, Trust.STRANGER, (), (account,), now)
        if await put_person(tx, person):
            return person
        number += 1
        name = f"{plain_name} ({number})"


async def participants(
    tx: Connection, persons: Sequence[str], room: str | None, *, planned: bool = False
) -> Participants:
    """Return those present: the persons named and, in a room, everybody known to be in it.

    Somebody who is not known any more is a stranger without roles; nobody at all is one, too. With
    `planned`, those who are named were there when it was planned, and may have left the room.
    """
    present = list(dict.fromkeys(persons))
    if room is not None:
        present = list(dict.fromkeys([*present, *await members(tx, room)]))
    if present == [OWNER] and room is None:
        return OWNER_ALONE
    roles = await roles_of(tx, present)
    rooms = await rooms_of(tx, [person_id for person_id in present if person_id in roles])
    here = frozenset[str]() if room is None or planned else frozenset({room})
    result = [
        Participant(OWNER, frozenset({OWNER}))
        if person_id == OWNER
        else Participant(
            person_id, roles.get(person_id, frozenset()), rooms.get(person_id, frozenset()) | here
        )
        for person_id in present
    ]
    return Participants(tuple(result) or (replace(_NOBODY, rooms=here),), room)


async def names_of(tx: Connection, present: Participants) -> dict[str, str]:
    """Return what those present are called, by their ids; who is not known is left out."""
    people_by_id = {
        participant.person_id: await _get(tx, participant.person_id)
        for participant in present.people
    }
    return {
        person_id: person.name for person_id, person in people_by_id.items() if person is not None
    }


async def meet(
    tx: Connection, account: Account | None, room: str | None, present: Sequence[Account], now: int
) -> str | None:
    """Note who is present; return that as JSON for the inbox, or None for the owner alone.

    Args:
        account: Who writes; None: the owner, on their own machine.
        room: Where, as `channel:room`; None: in private.
        present: Who else is there, as far as the channel tells.
    """
    # In one order, so that two transactions that meet the same people do not wait for each other.
    everybody: set[Account] = {*present, *(() if account is None else (account,))}
    accounts = sorted(everybody, key=lambda account: (account.channel, account.sender))
    known = {account: (await person_for(tx, account, now)).id for account in accounts}
    writer = OWNER if account is None else known[account]
    persons = list(dict.fromkeys([writer, *(known[account] for account in present)]))
    if room is None:
        if persons == [OWNER]:
            return None
        return orjson.dumps({"persons": persons}).decode()
    room = room_word(room)
    await join_room(tx, room, sorted(persons), now)
    return orjson.dumps({"persons": persons, "room": room}).decode()


def alone_with(person_id: str) -> str:
    """Return for the inbox that a person is alone with the agent."""
    return orjson.dumps({"persons": [person_id]}).decode()


async def read_participants(tx: Connection, text: str | None) -> Participants:
    """Return the participants that the JSON of `meet` names, with their present roles and rooms."""
    if text is None:
        return OWNER_ALONE
    stored: dict[str, Any] = orjson.loads(text)
    persons, planned = stored.get("persons", []), "audience" in stored
    return await participants(tx, persons, stored.get("room"), planned=planned)


def room_word(room: str) -> str:
    """Return a room's name in the form that an audience can hold, one for each name.

    A room can be named by strangers: one called `x|public` must not make its talk public.
    """
    inner = room.strip()
    start = len(room) - len(room.lstrip())
    blank = {*range(start), *range(start + len(inner), len(room))}
    return "".join(
        f"%{ord(sign):X};" if at in blank or sign in "%;" or _is_unprintable(sign) else sign
        for at, sign in enumerate(room)
    )


def _is_unprintable(sign: str) -> bool:
    return sign in _JOINTS or unicodedata.category(sign) in _UNSEEN


# -- what an owner says of them --------------------------------------------------------------------


async def list_people(tx: Connection) -> list[Person]:
    """Return all persons, the owner first, then by name."""
    people = await all_people(tx)
    others = [person for person in people if person.id != OWNER]
    owner = await _get(tx, OWNER)
    assert owner is not None
    return [owner, *others]


async def find(tx: Connection, who: str) -> Person:
    """Return the person of that name, id or account (`channel:sender`)."""
    who = who.strip()
    channel, _, sender = who.partition(":")
    person_id = (
        await person_by_name(tx, plain(who))
        or await person_of_account(tx, Account(plain(channel), plain(sender)))
        or who
    )
    person = await _get(tx, person_id)
    if person is not None:
        return person
    names = await people_names(tx)
    alike = [person_id for person_id, name in names if name.casefold() == who.casefold()]
    if len(alike) == 1:
        only = await _get(tx, alike[0])
        assert only is not None
        return only
    by_casefold = {name.casefold(): name for _, name in names}
    near = difflib.get_close_matches(who.casefold(), by_casefold, 1)
    hint = f" Did you mean {by_casefold[near[0]]!r}?" if near else ""
    raise NotFound(
        f'No person is called {who!r}.{hint} "asterism person list" shows everybody who is known.'
    )


async def create_person(
    tx: Connection, name: str, now: int, *, trust: Trust = Trust.KNOWN, roles: Sequence[str] = ()
) -> Person:
    """Introduce a person."""
    person = Person(new_id("person"), _name(name), _trust(trust), _roles(roles), created_at_ms=now)
    if not await put_person(tx, person):
        raise _name_taken(person.name)
    return person


async def rename(tx: Connection, person_id: str, name: str) -> Person:
    """Rename a person."""
    person = await _get_or_raise(tx, person_id)
    # The owner begins with this name, and may go back to it.
    name = OWNER if person_id == OWNER and name.strip().casefold() == OWNER else _name(name)
    former = await person_by_name(tx, name)
    if former is not None and former != person_id:
        raise _name_taken(name)
    if not await change_person(tx, person_id, name=name):
        await put_person(tx, replace(_THE_OWNER, name=name, roles=()))
    return replace(person, name=name)


async def set_trust(tx: Connection, person_id: str, trust: Trust) -> Person:
    """Say how far a person is trusted."""
    person = await _get_other_than_owner(tx, person_id, "trusted more or less")
    await change_person(tx, person_id, trust=_trust(trust))
    return replace(person, trust=trust)


async def set_roles(tx: Connection, person_id: str, roles: Sequence[str]) -> Person:
    """Set the roles of a person. An audience can name a role."""
    person = await _get_other_than_owner(tx, person_id, "given roles")
    checked = _roles(roles)
    await change_person(tx, person_id, roles=checked)
    return replace(person, roles=checked)


async def link(tx: Connection, account: Account, person_id: str) -> Person:
    """Assign an account to a person, also if it belonged to somebody else."""
    if not account.channel.strip() or not account.sender.strip():
        raise InvalidInput(
            f"{account.channel}:{account.sender} is not a valid account. Write CHANNEL:SENDER, "
            "such as discord:4711. Nothing was changed."
        )
    await _get_or_raise(tx, person_id)
    clean = Account(plain(account.channel), plain(account.sender))
    await give_account(tx, clean, person_id)
    return await _get_or_raise(tx, person_id)


async def unlink(tx: Connection, account: Account) -> None:
    """Say that an account is nobody's that is known; who writes from it next is a stranger."""
    clean = Account(plain(account.channel), plain(account.sender))
    if not await drop_account(tx, clean):
        raise NotFound(
            f"{account.channel}:{account.sender} belongs to nobody who is known. "
            '"asterism person list" shows the accounts of everybody. Nothing was changed.'
        )


async def leave_room(tx: Connection, room: str, person_id: str) -> bool:
    """Note that somebody has left a room; False if they were not known to be in it."""
    return await remove_from_room(tx, room_word(room), person_id)


async def merge(tx: Connection, kept_id: str, gone_id: str) -> Person:
    """Make one person of two: accounts, rooms, roles and every audience that names the other."""
    person = await _get_or_raise(tx, kept_id)
    gone = await _get_other_than_owner(tx, gone_id, "merged into somebody")
    if person.id == gone.id:
        raise InvalidInput(f"{person.name!r} is one person already. Name two. Nothing was changed.")
    await move_memories(tx, gone.id, person.id)
    await remove_person(tx, gone.id)
    if person.id != OWNER:
        roles = tuple(dict.fromkeys([*person.roles, *gone.roles]))
        await change_person(tx, person.id, roles=roles)
    await people_changed(tx)
    return await _get_or_raise(tx, person.id)


async def read_audience(tx: Connection, text: str) -> Audience:
    """Return the audience that a person has written, in which persons may go by their names."""
    clauses: list[frozenset[str]] = []
    for clause in Audience.read(text).clauses:
        words: set[str] = set()
        for word in clause:
            kind, _, name = word.partition(":")
            if kind == "person":
                person = await find(tx, name)
                words.add(OWNER if person.id == OWNER else f"person:{person.id}")
            else:
                words.add(word.casefold() if kind == "role" else word)
        clauses.append(frozenset(words))
    return Audience.intersection([Audience(tuple(clauses))])


# -- checks ----------------------------------------------------------------------------------------


async def _get(tx: Connection, person_id: str) -> Person | None:
    person = await get_person(tx, person_id)
    if person is None and person_id == OWNER:
        return replace(_THE_OWNER, accounts=tuple(await accounts_of(tx, OWNER)))
    return person


async def _get_or_raise(tx: Connection, person_id: str) -> Person:
    person = await _get(tx, person_id)
    if person is None:
        raise NotFound(
            f"There is no person {person_id!r}. "
            '"asterism person list" shows everybody who is known. Nothing was changed.'
        )
    return person


async def _get_other_than_owner(tx: Connection, person_id: str, what: str) -> Person:
    if person_id == OWNER:
        raise InvalidInput(
            f"The owner cannot be {what}: they see and decide everything. Nothing was changed."
        )
    return await _get_or_raise(tx, person_id)


def _name(name: str) -> str:
    name = " ".join(name.split())
    if (
        not name
        or len(name) > _MAX_NAME_LENGTH
        or any(_is_unprintable(sign) for sign in name)
        or name.casefold() in (OWNER, "public")
        or name.startswith("person_")
    ):
        raise InvalidInput(
            f"{name!r} cannot be a person's name: it has 1 to {_MAX_NAME_LENGTH} characters, none "
            'of them | or &, does not begin with "person_" and is neither owner nor public. '
            "Nothing was changed."
        )
    return name


def _trust(trust: Trust) -> Trust:
    if trust not in (Trust.KNOWN, Trust.STRANGER):
        raise InvalidInput(
            f"A person is known or a stranger, not {trust.value!r}. To say that an account is the "
            "owner's, link it to owner. Nothing was changed."
        )
    return trust


def _roles(roles: Sequence[str]) -> tuple[str, ...]:
    checked = tuple(dict.fromkeys(" ".join(role.split()).casefold() for role in roles))
    if len(checked) > _MAX_ROLES:
        raise InvalidInput(
            f"{len(checked)} roles are too many; {_MAX_ROLES} is the most. Nothing was changed."
        )
    for role in checked:
        if (
            not role
            or len(role) > _MAX_ROLE_LENGTH
            or role == OWNER
            or any(_is_unprintable(sign) for sign in role)
        ):
            raise InvalidInput(
                f"{role!r} cannot be a role: it has 1 to {_MAX_ROLE_LENGTH} characters, none of "
                "them | or &, and is not owner, which only the owner is. Nothing was changed."
            )
    return checked


def _name_taken(name: str) -> Conflict:
    return Conflict(
        f"Another person is called {name!r} already. Choose another name, or merge the two. "
        "Nothing was changed."
    )


_PERSON = "id, name, trust, roles, created_at"
"""Values in one statement, below what either engine takes."""

_MAX_ACCOUNTS = 100


def _person(row: Row, accounts: Iterable[Account] = ()) -> Person:
    roles: list[str] = orjson.loads(row[3])
    owners = (OWNER,) if row[0] == OWNER else ()
    return Person(row[0], row[1], Trust(row[2]), (*owners, *roles), tuple(accounts), row[4])


def _parts(values: Sequence[str]) -> list[Sequence[str]]:
    return [values[first : first + MAX_VALUES] for first in range(0, len(values), MAX_VALUES)]


# -- persons ---------------------------------------------------------------------------------------


async def put_person(tx: Connection, person: Person) -> bool:
    """Store a new person; False if the id or the name is taken."""
    row = await tx.one(
        f"INSERT INTO persons (constellation, {_PERSON}) VALUES (?, ?, ?, ?, ?, ?)"
        " ON CONFLICT DO NOTHING RETURNING id",
        (
            tx.constellation,
            person.id,
            person.name,
            person.trust.value,
            orjson.dumps(person.roles).decode(),
            person.created_at_ms,
        ),
    )
    return row is not None


async def get_person(tx: Connection, person_id: str) -> Person | None:
    """Return a person with their accounts."""
    row = await tx.one(
        f"SELECT {_PERSON} FROM persons WHERE constellation = ? AND id = ?",
        (tx.constellation, person_id),
    )
    if row is None:
        return None
    return _person(row, await accounts_of(tx, person_id))


async def person_by_name(tx: Connection, name: str) -> str | None:
    """Return the id of the person of that name."""
    row = await tx.one(
        "SELECT id FROM persons WHERE constellation = ? AND name = ?", (tx.constellation, name)
    )
    return row[0] if row else None


async def people_names(tx: Connection) -> list[tuple[str, str]]:
    """Return the (id, name) of all persons, by name."""
    rows = await tx.all(
        "SELECT id, name FROM persons WHERE constellation = ? ORDER BY name", (tx.constellation,)
    )
    return [(row[0], row[1]) for row in rows]


async def all_people(tx: Connection) -> list[Person]:
    """Return all persons that have a row, by name, with their accounts."""
    accounts: dict[str, list[Account]] = {}
    for channel, sender, person_id in await tx.all(
        "SELECT channel, sender, person_id FROM accounts WHERE constellation = ?"
        " ORDER BY channel, sender",
        (tx.constellation,),
    ):
        accounts.setdefault(person_id, []).append(Account(channel, sender))
    rows = await tx.all(
        f"SELECT {_PERSON} FROM persons WHERE constellation = ? ORDER BY name", (tx.constellation,)
    )
    return [_person(row, accounts.get(row[0], ())) for row in rows]


async def change_person(
    tx: Connection,
    person_id: str,
    *,
    name: str | None = None,
    trust: Trust | None = None,
    roles: Sequence[str] | None = None,
) -> bool:
    """Change a person; None leaves a column as it is. False if there is no such person."""
    changed = await tx.run(
        "UPDATE persons SET name = COALESCE(?, name), trust = COALESCE(?, trust),"
        " roles = COALESCE(?, roles) WHERE constellation = ? AND id = ?",
        (
            name,
            trust.value if trust is not None else None,
            orjson.dumps(list(roles)).decode() if roles is not None else None,
            tx.constellation,
            person_id,
        ),
    )
    return changed > 0


async def remove_person(tx: Connection, person_id: str) -> None:
    """Remove a person's own row; accounts and rooms are the caller's business."""
    await tx.run(
        "DELETE FROM persons WHERE constellation = ? AND id = ?", (tx.constellation, person_id)
    )


# -- accounts --------------------------------------------------------------------------------------


async def accounts_of(tx: Connection, person_id: str) -> list[Account]:
    """Return where a person writes from."""
    rows = await tx.all(
        "SELECT channel, sender FROM accounts WHERE constellation = ? AND person_id = ?"
        " ORDER BY channel, sender",
        (tx.constellation, person_id),
    )
    return [Account(row[0], row[1]) for row in rows]


async def person_of_account(tx: Connection, account: Account) -> str | None:
    """Return the id of the person that an account belongs to."""
    row = await tx.one(
        "SELECT person_id FROM accounts WHERE constellation = ? AND channel = ? AND sender = ?",
        (tx.constellation, account.channel, account.sender),
    )
    return row[0] if row else None


async def people_of_accounts(
    tx: Connection, accounts: Sequence[Account]
) -> dict[Account, tuple[str, str]]:
    """Return the ids and names of the people of some accounts; unknown accounts are left out."""
    result: dict[Account, tuple[str, str]] = {}
    for first in range(0, len(accounts), _MAX_ACCOUNTS):
        part = accounts[first : first + _MAX_ACCOUNTS]
        rows = await tx.all(
            "SELECT a.channel, a.sender, p.id, p.name FROM accounts a JOIN persons p"
            " ON p.constellation = a.constellation AND p.id = a.person_id WHERE"
            + " OR ".join(
                [" (a.constellation = ? AND a.channel = ? AND a.sender = ?)"] * len(part)
            ),
            [
                value
                for account in part
                for value in (tx.constellation, account.channel, account.sender)
            ],
        )
        result.update({Account(row[0], row[1]): (row[2], row[3]) for row in rows})
    return result


async def claim_account(tx: Connection, account: Account, person_id: str) -> bool:
    """Give an account to a person unless it is somebody's; False if it is.

    On PostgreSQL this waits for another transaction that is about to do the same.
    """
    row = await tx.one(
        "INSERT INTO accounts (constellation, channel, sender, person_id) VALUES (?, ?, ?, ?)"
        " ON CONFLICT DO NOTHING RETURNING person_id",
        (tx.constellation, account.channel, account.sender, person_id),
    )
    return row is not None


async def give_account(tx: Connection, account: Account, person: str) -> None:
    """Assign an account to a person, also if it belonged to somebody else."""
    await tx.run(
        "INSERT INTO accounts (constellation, channel, sender, person_id) VALUES (?, ?, ?, ?)"
        " ON CONFLICT (constellation, channel, sender) DO UPDATE SET person_id = ?",
        (tx.constellation, account.channel, account.sender, person, person),
    )


async def drop_account(tx: Connection, account: Account) -> bool:
    """Take an account away from whoever has it; False if nobody had it."""
    changed = await tx.run(
        "DELETE FROM accounts WHERE constellation = ? AND channel = ? AND sender = ?",
        (tx.constellation, account.channel, account.sender),
    )
    return changed > 0


# -- rooms -----------------------------------------------------------------------------------------


async def join_room(tx: Connection, room: str, persons: Sequence[str], now: int) -> None:
    """Note that persons are members of a room."""
    await tx.run_many(
        "INSERT INTO room_members (constellation, room, person_id, since) VALUES (?, ?, ?, ?)"
        " ON CONFLICT DO NOTHING",
        [(tx.constellation, room, person, now) for person in persons],
    )


async def remove_from_room(tx: Connection, room: str, person_id: str) -> bool:
    """Note that a person is no longer in a room; False if they were not."""
    changed = await tx.run(
        "DELETE FROM room_members WHERE constellation = ? AND room = ? AND person_id = ?",
        (tx.constellation, room, person_id),
    )
    return changed > 0


async def members(tx: Connection, room: str) -> list[str]:
    """Return the ids of the persons who are known to be in a room."""
    rows = await tx.all(
        "SELECT person_id FROM room_members WHERE constellation = ? AND room = ?"
        " ORDER BY since, person_id",
        (tx.constellation, room),
    )
    return [row[0] for row in rows]


async def rooms(tx: Connection) -> list[tuple[str, str, str, int]]:
    """Return (room, person, name, since) of everybody who is known to be in a room."""
    rows = await tx.all(
        "SELECT r.room, r.person_id, COALESCE(p.name, r.person_id), r.since FROM room_members r"
        " LEFT JOIN persons p ON p.constellation = r.constellation AND p.id = r.person_id"
        " WHERE r.constellation = ? ORDER BY r.room, r.since, r.person_id",
        (tx.constellation,),
    )
    return [(row[0], row[1], row[2], row[3]) for row in rows]


async def roles_of(tx: Connection, persons: Sequence[str]) -> dict[str, frozenset[str]]:
    """Return the roles of those persons that there are."""
    result: dict[str, frozenset[str]] = {}
    for part in _parts(persons):
        rows = await tx.all(
            f"SELECT id, roles FROM persons WHERE constellation = ? AND id IN ({marks(len(part))})",
            (tx.constellation, *part),
        )
        result.update({row[0]: frozenset[str](orjson.loads(row[1])) for row in rows})
    return result


async def rooms_of(tx: Connection, persons: Sequence[str]) -> dict[str, frozenset[str]]:
    """Return the rooms that each of these persons is in."""
    result: dict[str, set[str]] = {}
    for part in _parts(persons):
        rows = await tx.all(
            "SELECT person_id, room FROM room_members"
            f" WHERE constellation = ? AND person_id IN ({marks(len(part))})",
            (tx.constellation, *part),
        )
        for person_id, room in rows:
            result.setdefault(person_id, set()).add(room)
    return {person_id: frozenset(rooms) for person_id, rooms in result.items()}


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


async def move_memories(tx: Connection, gone_id: str, kept_id: str) -> None:
    """Hand everything that names a person over to another: accounts, rooms, audiences, origins."""
    await tx.run(
        "UPDATE accounts SET person_id = ? WHERE constellation = ? AND person_id = ?",
        (kept_id, tx.constellation, gone_id),
    )
    await tx.run(
        "INSERT INTO room_members (constellation, room, person_id, since)"
        " SELECT constellation, room, ?, since FROM room_members"
        " WHERE constellation = ? AND person_id = ? ON CONFLICT DO NOTHING",
        (kept_id, tx.constellation, gone_id),
    )
    await tx.run(
        "DELETE FROM room_members WHERE constellation = ? AND person_id = ?",
        (tx.constellation, gone_id),
    )
    # In JSON inside of JSON a backslash stands before the quote.
    word = re.compile(rf"""(?<![^|&"]){re.escape(f"person:{gone_id}")}(?![^|&"\\])""")
    quoted = re.compile(rf"""(?<="){re.escape(gone_id)}(?=\\*")""")
    instead = f"person:{kept_id}"

    def audience(text: str) -> str:
        return str(Audience.read(word.sub(instead, text)))

    def named(text: str) -> str:
        return quoted.sub(kept_id, word.sub(instead, text))

    for table, whose_rows in _AUDIENCES.items():
        await _rewrite(tx, table, "audience", ("id",), whose_rows, gone_id, audience)
    await search_index.drop_naming(tx, f"person:{gone_id}")
    for table, column, key, whose_rows in _NAMING:
        await _rewrite(tx, table, column, key, whose_rows, gone_id, named)
    await _rewrite_eras(tx, gone_id, named)


async def _rewrite(
    tx: Connection,
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
        (tx.constellation, f"%{gone.replace('_', '!_')}%"),
    )
    changed = [(rewrite(row[0]), *row[1:]) for row in rows]
    where = " AND ".join(f"{name} = ?" for name in key)
    await tx.run_many(f"UPDATE {table} SET {column} = ? WHERE {where}", changed)


async def _rewrite_eras(tx: Connection, gone: str, rewrite: Callable[[str], str]) -> None:
    """Rewrite what the squashed history of blocks says of its edits, which is compressed JSON."""
    changed: list[tuple[bytes, str, int]] = []
    for block_id, first, packed in await tx.all(
        f"SELECT block_id, first, edits FROM block_eras WHERE {_BLOCKS}", (tx.constellation,)
    ):
        text = zlib.decompress(packed).decode()
        if gone in text:
            changed.append((zlib.compress(rewrite(text).encode(), 9), block_id, first))
    await tx.run_many("UPDATE block_eras SET edits = ? WHERE block_id = ? AND first = ?", changed)


async def people_changed(tx: Connection) -> None:
    """Count a change of what all agents may see."""
    await tx.run(
        "UPDATE agents SET memory = memory + 1 WHERE constellation = ?", (tx.constellation,)
    )
