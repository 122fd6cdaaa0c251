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
"""What joins the words of an audience, and so cannot be in one."""
_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
"""Categories of characters that show nothing, or cannot be stored."""
_NOBODY = Participant("")
"""Somebody of whom nothing is known."""
_THE_OWNER = Person(OWNER, OWNER, Trust.OWNER, (OWNER,))


# -- who is present --------------------------------------------------------------------------------


async def person_for(tx: Connection, constellation: str, account: Account, now: int) -> Person:
    """Return whose account this is; an unknown one is a new stranger's, named after it."""
    account = Account(plain(account.channel), plain(account.sender))
    person_id = await person_of_account(tx, constellation, account)
    if person_id is None:
        stranger = new_id("person")
        if await claim_account(tx, constellation, account, stranger):
            return await _put_stranger(tx, constellation, stranger, account, now)
        person_id = await person_of_account(tx, constellation, account)
        assert person_id is not None, "an account that could not be claimed is somebody's"
    found = await _get(tx, constellation, person_id)
    return found or Person(person_id, person_id, Trust.STRANGER, accounts=(account,))


async def _put_stranger(
    tx: Connection, constellation: str, person_id: str, account: Account, now: int
) -> Person:
    written = f"{account.channel}:{account.sender}"
    shown = "".join("_" if _is_odd(sign) else sign for sign in written)[: _MAX_NAME_LENGTH - 8]
    name, number = shown, 1
    while True:
        person = Person(person_id, name, Trust.STRANGER, (), (account,), now)
        if await put_person(tx, constellation, person):
            return person
        number += 1
        name = f"{shown} ({number})"


async def participants(
    tx: Connection,
    constellation: str,
    persons: Sequence[str],
    room: str | None,
    *,
    planned: bool = False,
) -> Participants:
    """Return those present: the persons named and, in a room, everybody known to be in it.

    Somebody who is not known any more is a stranger without roles; nobody at all is one, too. With
    `planned`, those who are named were there when it was planned, and may have left the room.
    """
    present = list(dict.fromkeys(persons))
    if room is not None:
        present = list(dict.fromkeys([*present, *await members(tx, constellation, room)]))
    if present == [OWNER] and room is None:
        return OWNER_ALONE
    roles = await roles_of(tx, constellation, present)
    rooms = await rooms_of(
        tx, constellation, [person_id for person_id in present if person_id in roles]
    )
    here = frozenset[str]() if room is None or planned else frozenset({room})
    found = [
        Participant(OWNER, frozenset({OWNER}))
        if person_id == OWNER
        else Participant(
            person_id, roles.get(person_id, frozenset()), rooms.get(person_id, frozenset()) | here
        )
        for person_id in present
    ]
    return Participants(tuple(found) or (replace(_NOBODY, rooms=here),), room)


async def names_of(tx: Connection, constellation: str, present: Participants) -> dict[str, str]:
    """Return what those present are called, by their ids; who is not known is left out."""
    found = {
        participant.person_id: await _get(tx, constellation, participant.person_id)
        for participant in present.people
    }
    return {person_id: person.name for person_id, person in found.items() if person is not None}


async def meet(
    tx: Connection,
    constellation: str,
    account: Account | None,
    room: str | None,
    present: Sequence[Account],
    now: int,
) -> str | None:
    """Note who has come together; return that as JSON for the inbox, or None: the owner alone.

    Args:
        account: Who writes; None: the owner, on their own machine.
        room: Where, as `channel:room`; None: in private.
        present: Who else is there, as far as the channel tells.
    """
    # In one order, so that two transactions that meet the same people do not wait for each other.
    everybody: set[Account] = {*present, *(() if account is None else (account,))}
    accounts = sorted(everybody, key=lambda account: (account.channel, account.sender))
    known = {
        account: (await person_for(tx, constellation, account, now)).id for account in accounts
    }
    writer = OWNER if account is None else known[account]
    persons = list(dict.fromkeys([writer, *(known[account] for account in present)]))
    if room is None:
        if persons == [OWNER]:
            return None
        return orjson.dumps({"persons": persons}).decode()
    room = room_word(room)
    await join_room(tx, constellation, room, sorted(persons), now)
    return orjson.dumps({"persons": persons, "room": room}).decode()


def alone_with(person_id: str) -> str:
    """Return for the inbox that a person is alone with the agent."""
    return orjson.dumps({"persons": [person_id]}).decode()


async def read_company(tx: Connection, constellation: str, text: str | None) -> Participants:
    """Return those whom the JSON of `meet` names, with what is known of them now."""
    if text is None:
        return OWNER_ALONE
    stored: dict[str, Any] = orjson.loads(text)
    persons, planned = stored.get("persons", []), "audience" in stored
    return await participants(tx, constellation, persons, stored.get("room"), planned=planned)


def room_word(room: str) -> str:
    """Return a room's name in the form that an audience can hold, one for each name.

    A room can be named by strangers: one called `x|public` must not make its talk public.
    """
    inner = room.strip()
    start = len(room) - len(room.lstrip())
    blank = {*range(start), *range(start + len(inner), len(room))}
    return "".join(
        f"%{ord(sign):X};" if at in blank or sign in "%;" or _is_odd(sign) else sign
        for at, sign in enumerate(room)
    )


def _is_odd(sign: str) -> bool:
    return sign in _JOINTS or unicodedata.category(sign) in _UNSEEN


# -- what an owner says of them --------------------------------------------------------------------


async def list_people(tx: Connection, constellation: str) -> list[Person]:
    """Return all persons, the owner first, then by name."""
    found = await all_people(tx, constellation)
    others = [person for person in found if person.id != OWNER]
    owner = await _get(tx, constellation, OWNER)
    assert owner is not None
    return [owner, *others]


async def find(tx: Connection, constellation: str, who: str) -> Person:
    """Return the person of that name, id or account (`channel:sender`)."""
    who = who.strip()
    channel, _, sender = who.partition(":")
    person_id = (
        await person_by_name(tx, constellation, plain(who))
        or await person_of_account(tx, constellation, Account(plain(channel), plain(sender)))
        or who
    )
    found = await _get(tx, constellation, person_id)
    if found is not None:
        return found
    names = await people_names(tx, constellation)
    alike = [person_id for person_id, name in names if name.casefold() == who.casefold()]
    if len(alike) == 1:
        only = await _get(tx, constellation, alike[0])
        assert only is not None
        return only
    by_fold = {name.casefold(): name for _, name in names}
    near = difflib.get_close_matches(who.casefold(), by_fold, 1)
    hint = f" Did you mean {by_fold[near[0]]!r}?" if near else ""
    raise NotFound(
        f'No person is called {who!r}.{hint} "asterism person list" shows everybody who is known.'
    )


async def create_person(
    tx: Connection,
    constellation: str,
    name: str,
    now: int,
    *,
    trust: Trust = Trust.KNOWN,
    roles: Sequence[str] = (),
) -> Person:
    """Introduce a person."""
    person = Person(new_id("person"), _name(name), _trust(trust), _roles(roles), created_at=now)
    if not await put_person(tx, constellation, person):
        raise _taken(person.name)
    return person


async def rename(tx: Connection, constellation: str, person_id: str, name: str) -> Person:
    """Call a person something else."""
    person = await _must(tx, constellation, person_id)
    name = _name(name)
    former = await person_by_name(tx, constellation, name)
    if former is not None and former != person_id:
        raise _taken(name)
    if not await change_person(tx, constellation, person_id, name=name):
        await put_person(tx, constellation, replace(_THE_OWNER, name=name, roles=()))
    return replace(person, name=name)


async def set_trust(tx: Connection, constellation: str, person_id: str, trust: Trust) -> Person:
    """Say how far a person is trusted."""
    person = await _other(tx, constellation, person_id, "trusted more or less")
    await change_person(tx, constellation, person_id, trust=_trust(trust))
    return replace(person, trust=trust)


async def set_roles(
    tx: Connection, constellation: str, person_id: str, roles: Sequence[str]
) -> Person:
    """Say by which roles an audience may name a person; they replace the former ones."""
    person = await _other(tx, constellation, person_id, "given roles")
    checked = _roles(roles)
    await change_person(tx, constellation, person_id, roles=checked)
    return replace(person, roles=checked)


async def link(tx: Connection, constellation: str, account: Account, person_id: str) -> Person:
    """Say that an account is a person's, whosever it was thought to be."""
    if not account.channel.strip() or not account.sender.strip():
        raise InvalidInput(
            f"{account.channel}:{account.sender} is not a valid account. Write CHANNEL:SENDER, "
            "such as discord:4711. Nothing was changed."
        )
    await _must(tx, constellation, person_id)
    clean = Account(plain(account.channel), plain(account.sender))
    await give_account(tx, constellation, clean, person_id)
    return await _must(tx, constellation, person_id)


async def unlink(tx: Connection, constellation: str, account: Account) -> None:
    """Say that an account is nobody's that is known; who writes from it next is a stranger."""
    clean = Account(plain(account.channel), plain(account.sender))
    if not await drop_account(tx, constellation, clean):
        raise NotFound(
            f"{account.channel}:{account.sender} belongs to nobody who is known. "
            '"asterism person list" shows the accounts of everybody. Nothing was changed.'
        )


async def leave_room(tx: Connection, constellation: str, room: str, person_id: str) -> bool:
    """Note that somebody has left a room; False if they were not known to be in it."""
    return await remove_from_room(tx, constellation, room_word(room), person_id)


async def merge(tx: Connection, constellation: str, kept_id: str, gone_id: str) -> Person:
    """Make one person of two: accounts, rooms, roles and every audience that names the other."""
    kept = await _must(tx, constellation, kept_id)
    gone = await _other(tx, constellation, gone_id, "merged into somebody")
    if kept.id == gone.id:
        raise InvalidInput(f"{kept.name!r} is one person already. Name two. Nothing was changed.")
    await move_memories(tx, constellation, gone.id, kept.id)
    await remove_person(tx, constellation, gone.id)
    if kept.id != OWNER:
        roles = tuple(dict.fromkeys([*kept.roles, *gone.roles]))
        await change_person(tx, constellation, kept.id, roles=roles)
    await people_changed(tx, constellation)
    return await _must(tx, constellation, kept.id)


async def read_audience(tx: Connection, constellation: str, text: str) -> Audience:
    """Return the audience that a person has written, in which persons may go by their names."""
    clauses: list[frozenset[str]] = []
    for clause in Audience.read(text).clauses:
        words: set[str] = set()
        for word in clause:
            kind, _, name = word.partition(":")
            if kind == "person":
                found = await find(tx, constellation, name)
                words.add(OWNER if found.id == OWNER else f"person:{found.id}")
            else:
                words.add(word.casefold() if kind == "role" else word)
        clauses.append(frozenset(words))
    return Audience.intersection([Audience(tuple(clauses))])


# -- checks ----------------------------------------------------------------------------------------


async def _get(tx: Connection, constellation: str, person_id: str) -> Person | None:
    found = await get_person(tx, constellation, person_id)
    if found is None and person_id == OWNER:
        return replace(_THE_OWNER, accounts=tuple(await accounts_of(tx, constellation, OWNER)))
    return found


async def _must(tx: Connection, constellation: str, person_id: str) -> Person:
    found = await _get(tx, constellation, person_id)
    if found is None:
        raise NotFound(
            f"There is no person {person_id!r}. "
            '"asterism person list" shows everybody who is known. Nothing was changed.'
        )
    return found


async def _other(tx: Connection, constellation: str, person_id: str, what: str) -> Person:
    if person_id == OWNER:
        raise InvalidInput(
            f"The owner cannot be {what}: they see and decide everything. Nothing was changed."
        )
    return await _must(tx, constellation, person_id)


def _name(name: str) -> str:
    name = " ".join(name.split())
    if (
        not name
        or len(name) > _MAX_NAME_LENGTH
        or any(_is_odd(sign) for sign in name)
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
            or any(_is_odd(sign) for sign in role)
        ):
            raise InvalidInput(
                f"{role!r} cannot be a role: it has 1 to {_MAX_ROLE_LENGTH} characters, none of "
                "them | or &, and is not owner, which only the owner is. Nothing was changed."
            )
    return checked


def _taken(name: str) -> Conflict:
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


async def put_person(tx: Connection, constellation: str, person: Person) -> bool:
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


async def get_person(tx: Connection, constellation: str, person_id: str) -> Person | None:
    """Return a person with their accounts."""
    row = await tx.one(
        f"SELECT {_PERSON} FROM persons WHERE constellation = ? AND id = ?",
        (constellation, person_id),
    )
    if row is None:
        return None
    return _person(row, await accounts_of(tx, constellation, person_id))


async def person_by_name(tx: Connection, constellation: str, name: str) -> str | None:
    """Return the id of the person of that name."""
    row = await tx.one(
        "SELECT id FROM persons WHERE constellation = ? AND name = ?", (constellation, name)
    )
    return row[0] if row else None


async def people_names(tx: Connection, constellation: str) -> list[tuple[str, str]]:
    """Return the (id, name) of all persons, by name."""
    rows = await tx.all(
        "SELECT id, name FROM persons WHERE constellation = ? ORDER BY name", (constellation,)
    )
    return [(row[0], row[1]) for row in rows]


async def all_people(tx: Connection, constellation: str) -> list[Person]:
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


async def change_person(
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


async def remove_person(tx: Connection, constellation: str, person_id: str) -> None:
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


async def person_of_account(tx: Connection, constellation: str, account: Account) -> str | None:
    """Return the id of the person that an account belongs to."""
    row = await tx.one(
        "SELECT person_id FROM accounts WHERE constellation = ? AND channel = ? AND sender = ?",
        (constellation, account.channel, account.sender),
    )
    return row[0] if row else None


async def people_of_accounts(
    tx: Connection, constellation: str, accounts: Sequence[Account]
) -> dict[Account, tuple[str, str]]:
    """Return the ids and names of those whose accounts these are, as far as they are known."""
    found: dict[Account, tuple[str, str]] = {}
    for first in range(0, len(accounts), _MAX_ACCOUNTS):
        part = accounts[first : first + _MAX_ACCOUNTS]
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


async def join_room(
    tx: Connection, constellation: str, room: str, persons: Sequence[str], now: int
) -> None:
    """Note that persons are members of a room."""
    await tx.run_many(
        "INSERT INTO room_members (constellation, room, person_id, since) VALUES (?, ?, ?, ?)"
        " ON CONFLICT DO NOTHING",
        [(constellation, room, person, now) for person in persons],
    )


async def remove_from_room(tx: Connection, constellation: str, room: str, person_id: str) -> bool:
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
            f"SELECT id, roles FROM persons WHERE constellation = ? AND id IN ({marks(len(part))})",
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
            f" WHERE constellation = ? AND person_id IN ({marks(len(part))})",
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


async def move_memories(tx: Connection, constellation: str, gone: str, kept: str) -> None:
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


async def people_changed(tx: Connection, constellation: str) -> None:
    """Count a change of what all agents may see."""
    await tx.run("UPDATE agents SET memory = memory + 1 WHERE constellation = ?", (constellation,))
