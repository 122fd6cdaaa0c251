"""`asterism person`: who agents talk to, from which accounts, and how far they are trusted."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

from asterism.cli.commands import Options, argument, command, flag, group, open_home, option
from asterism.cli.inputs import Yes, require_yes
from asterism.cli.output import Column, Grid, ItemTable, Result, one_line
from asterism.errors import InvalidInput
from asterism.times import local_text

if TYPE_CHECKING:
    from asterism.app import Asterism
    from asterism.app.people import Room
    from asterism.types.agents import Person

app = group("Manage people, their accounts, and how far they are trusted.")

Who = Annotated[str, argument("WHO", "The person's name, id or account (CHANNEL:SENDER).")]
Account = Annotated[str, argument("ACCOUNT", "CHANNEL:SENDER, such as discord:4711.")]
FreeName = Annotated[str, argument("NAME", "A new name.")]
Roles = Annotated[
    list[str] | None, option("--role", "ROLE", "A role, such as family; repeat for each role.")
]


class PersonTrust(StrEnum):
    """How far an owner trusts a person."""

    KNOWN = "known"
    STRANGER = "stranger"


@command(app, "list", example="person list", readonly=True)
async def list_persons(home: Asterism) -> Result:
    """Show all people, the owner first."""
    persons = await home.people.list()
    columns: list[Column[Person]] = [
        Column("person", lambda person: person.name, prose=True),
        Column("trust", lambda person: person.trust.value),
        Column("roles", lambda person: ", ".join(person.roles), prose=True),
        Column("accounts", _accounts, prose=True),
        Column("id", lambda person: person.id, least=120),
    ]
    return Result(persons, ItemTable(columns, persons, "There are no people."))


@command(app, "show", example="person show Ben", readonly=True)
async def show(home: Asterism, who: Who) -> Result:
    """Show one person."""
    person = await home.people.get(who)
    rows = [
        ("name", person.name),
        ("id", person.id),
        ("trust", person.trust.value),
        ("roles", _roles(person)),
        ("accounts", "\n".join(_accounts(person).split(", ")) or "none"),
        ("since", local_text(person.created_at_ms) if person.created_at_ms else "ever"),
    ]
    return Result(person, Grid(rows))


def _accounts(person: Person) -> str:
    return ", ".join(f"{account.channel}:{account.sender}" for account in person.accounts)


def _roles(person: Person) -> str:
    return ", ".join(person.roles) or "none"


@command(app, "add", example="person add Ben --trust known")
async def add(
    home: Asterism,
    name: FreeName,
    trust: Annotated[
        PersonTrust, option("--trust", None, "How far they are trusted.")
    ] = PersonTrust.KNOWN,
    role: Roles = None,
) -> Result:
    """Add a person; "person link" adds an account."""
    from asterism.types.agents import Trust

    person = await home.people.create(name, trust=Trust(trust), roles=role or ())
    return Result(person, f"Added {person.name}.")


@command(app, "rename", example="person rename Ben Benjamin")
async def rename(home: Asterism, who: Who, name: FreeName) -> Result:
    """Rename a person."""
    person = await home.people.rename(who, name)
    return Result(person, f"The new name is {person.name}.")


@command(app, "trust", example="person trust Ben known")
async def set_trust(
    home: Asterism,
    who: Who,
    trust: Annotated[PersonTrust, argument("LEVEL", "known or stranger.")],
) -> Result:
    """Set how far a person is trusted."""
    from asterism.types.agents import Trust

    person = await home.people.set_trust(who, Trust(trust))
    return Result(person, f"{person.name} is now: {person.trust.value}.")


@command(app, "roles", example="person roles Ben family")
async def set_roles(
    options: Options,
    who: Who,
    roles: Annotated[list[str] | None, argument("ROLE", "The new roles.")] = None,
    none: Annotated[bool, flag("--none", "Remove all roles.")] = False,
) -> Result:
    """Replace the roles of a person."""
    if bool(roles) == none:
        raise InvalidInput("Name the roles, or remove all with --none. Nothing was changed.")
    async with open_home(options) as home:
        person = await home.people.set_roles(who, roles or ())
    return Result(person, f"{person.name} has roles: {_roles(person)}.")


@command(app, "link", example="person link Ben webhook:ben")
async def link(home: Asterism, who: Who, account: Account) -> Result:
    """Link an account to a person."""
    person = await home.people.link(who, account)
    return Result(person, f"Accounts of {person.name}: {_accounts(person) or 'none'}.")


@command(app, "unlink", example="person unlink webhook:ben")
async def unlink(home: Asterism, account: Account) -> Result:
    """Unlink an account; its next message comes from a stranger."""
    await home.people.unlink(account)
    return Result({"account": account}, f"Unlinked {account}.")


@command(app, "rooms", example="person rooms", readonly=True)
async def rooms(home: Asterism) -> Result:
    """Show the rooms of channels, and who is known to be in each."""
    found = await home.people.rooms()
    columns: list[Column[Room]] = [
        Column("room", lambda room: room.name, prose=True),
        Column(
            "people", lambda room: ", ".join(member.name for member in room.members), prose=True
        ),
    ]
    return Result(found, ItemTable(columns, found, "Nobody is known to be in a room."))


@command(app, "leave", example="person leave Ben discord:kitchen")
async def leave(
    home: Asterism, who: Who, room: Annotated[str, argument("ROOM", "As channel:room.")]
) -> Result:
    """Note that a person has left a room; from now on they do not see what is said there."""
    await home.people.leave_room(room, who)
    return Result({"who": who, "room": room}, f"{who} is not in {room} any more.")


@command(app, "merge", example="person merge Ben Benny")
async def merge(
    options: Options,
    remaining: Annotated[str, argument("KEPT", "Who stays.")],
    merged: Annotated[str, argument("GONE", "The other name of the same person.")],
    yes: Yes = False,
) -> Result:
    """Merge two people into one, with the accounts and the permissions of both."""
    async with open_home(options, readonly=True) as home:
        names = [one_line((await home.people.get(who)).name) for who in (merged, remaining)]
    require_yes(
        f"Make {' and '.join(names)} one person? "
        "Then both may see everything that one of them may see. This cannot be undone.",
        yes=yes,
    )
    async with open_home(options) as home:
        person = await home.people.merge(remaining, merged)
    return Result(person, f"Accounts of {person.name}: {_accounts(person) or 'none'}.")
