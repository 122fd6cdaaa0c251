"""People: who writes, who is present, and what an owner says of them."""

from __future__ import annotations

import difflib
import unicodedata
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import orjson

from asterism.errors import Conflict, InvalidInput, NotFound
from asterism.store import people
from asterism.store.database import Connection
from asterism.types.agents import new_id
from asterism.types.people import (
    OWNER,
    OWNER_ALONE,
    Account,
    Audience,
    Participant,
    Participants,
    Person,
    Trust,
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
    person_id = await people.whose(tx, constellation, account)
    if person_id is None:
        stranger = new_id("person")
        if await people.claim_account(tx, constellation, account, stranger):
            return await _put_stranger(tx, constellation, stranger, account, now)
        person_id = await people.whose(tx, constellation, account)
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
        if await people.put(tx, constellation, person):
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
        present = list(dict.fromkeys([*present, *await people.members(tx, constellation, room)]))
    if present == [OWNER] and room is None:
        return OWNER_ALONE
    roles = await people.roles_of(tx, constellation, present)
    rooms = await people.rooms_of(
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
    await people.join(tx, constellation, room, sorted(persons), now)
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


async def everyone(tx: Connection, constellation: str) -> list[Person]:
    """Return all persons, the owner first, then by name."""
    found = await people.everyone(tx, constellation)
    others = [person for person in found if person.id != OWNER]
    owner = await _get(tx, constellation, OWNER)
    assert owner is not None
    return [owner, *others]


async def find(tx: Connection, constellation: str, who: str) -> Person:
    """Return the person of that name, id or account (`channel:sender`)."""
    who = who.strip()
    channel, _, sender = who.partition(":")
    person_id = (
        await people.by_name(tx, constellation, plain(who))
        or await people.whose(tx, constellation, Account(plain(channel), plain(sender)))
        or who
    )
    found = await _get(tx, constellation, person_id)
    if found is not None:
        return found
    names = await people.names(tx, constellation)
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
    if not await people.put(tx, constellation, person):
        raise _taken(person.name)
    return person


async def rename(tx: Connection, constellation: str, person_id: str, name: str) -> Person:
    """Call a person something else."""
    person = await _must(tx, constellation, person_id)
    name = _name(name)
    former = await people.by_name(tx, constellation, name)
    if former is not None and former != person_id:
        raise _taken(name)
    if not await people.change(tx, constellation, person_id, name=name):
        await people.put(tx, constellation, replace(_THE_OWNER, name=name, roles=()))
    return replace(person, name=name)


async def set_trust(tx: Connection, constellation: str, person_id: str, trust: Trust) -> Person:
    """Say how far a person is trusted."""
    person = await _other(tx, constellation, person_id, "trusted more or less")
    await people.change(tx, constellation, person_id, trust=_trust(trust))
    return replace(person, trust=trust)


async def set_roles(
    tx: Connection, constellation: str, person_id: str, roles: Sequence[str]
) -> Person:
    """Say by which roles an audience may name a person; they replace the former ones."""
    person = await _other(tx, constellation, person_id, "given roles")
    checked = _roles(roles)
    await people.change(tx, constellation, person_id, roles=checked)
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
    await people.give_account(tx, constellation, clean, person_id)
    return await _must(tx, constellation, person_id)


async def unlink(tx: Connection, constellation: str, account: Account) -> None:
    """Say that an account is nobody's that is known; who writes from it next is a stranger."""
    clean = Account(plain(account.channel), plain(account.sender))
    if not await people.drop_account(tx, constellation, clean):
        raise NotFound(
            f"{account.channel}:{account.sender} belongs to nobody who is known. "
            '"asterism person list" shows the accounts of everybody. Nothing was changed.'
        )


async def leave(tx: Connection, constellation: str, room: str, person_id: str) -> bool:
    """Note that somebody has left a room; False if they were not known to be in it."""
    return await people.leave(tx, constellation, room_word(room), person_id)


async def merge(tx: Connection, constellation: str, kept_id: str, gone_id: str) -> Person:
    """Make one person of two: accounts, rooms, roles and every audience that names the other."""
    kept = await _must(tx, constellation, kept_id)
    gone = await _other(tx, constellation, gone_id, "merged into somebody")
    if kept.id == gone.id:
        raise InvalidInput(f"{kept.name!r} is one person already. Name two. Nothing was changed.")
    await people.move(tx, constellation, gone.id, kept.id)
    await people.remove(tx, constellation, gone.id)
    if kept.id != OWNER:
        roles = tuple(dict.fromkeys([*kept.roles, *gone.roles]))
        await people.change(tx, constellation, kept.id, roles=roles)
    await people.memory_changed(tx, constellation)
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
    found = await people.get(tx, constellation, person_id)
    if found is None and person_id == OWNER:
        return replace(
            _THE_OWNER, accounts=tuple(await people.accounts_of(tx, constellation, OWNER))
        )
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
            f"The owner cannot be {what}: they hear and decide everything. Nothing was changed."
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
