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
    from asterism.types.agents import Person

app = group("Say who people are, where they write from, and how far they are trusted.")

Who = Annotated[str, argument("WHO", "The person's name, id or account (CHANNEL:SENDER).")]
Account = Annotated[str, argument("ACCOUNT", "CHANNEL:SENDER, such as discord:4711.")]
FreeName = Annotated[str, argument("NAME", "A name that is free.")]
Roles = Annotated[
    list[str] | None, option("--role", "ROLE", "A role, such as family; once for each.")
]


class PersonTrust(StrEnum):
    """How far an owner trusts a person."""

    KNOWN = "known"
    STRANGER = "stranger"


@command(app, "list", readonly=True)
async def list_persons(home: Asterism) -> Result:
    """Show everybody who is known, the owner first."""
    persons = await home.people.list()
    columns: list[Column[Person]] = [
        Column("person", lambda person: person.name, prose=True),
        Column("trust", lambda person: person.trust.value),
        Column("roles", lambda person: ", ".join(person.roles), prose=True),
        Column("accounts", _accounts, prose=True),
        Column("id", lambda person: person.id, least=120),
    ]
    return Result(persons, ItemTable(columns, persons, "Nobody is known."))


@command(app, "show", readonly=True)
async def show(home: Asterism, who: Who) -> Result:
    """Show one person."""
    person = await home.people.get(who)
    rows = [
        ("name", person.name),
        ("id", person.id),
        ("trust", person.trust.value),
        ("roles", _roles(person)),
        ("accounts", "\n".join(_accounts(person).split(", ")) or "none"),
        ("since", local_text(person.created_at) if person.created_at else "ever"),
    ]
    return Result(person, Grid(rows))


def _accounts(person: Person) -> str:
    return ", ".join(f"{account.channel}:{account.sender}" for account in person.accounts)


def _roles(person: Person) -> str:
    return ", ".join(person.roles) or "none"


@command(app, "add")
async def add(
    home: Asterism,
    name: FreeName,
    trust: Annotated[
        PersonTrust, option("--trust", None, "How far they are trusted.")
    ] = PersonTrust.KNOWN,
    role: Roles = None,
) -> Result:
    """Add a person; "person link" says where they write from."""
    from asterism.types.agents import Trust

    person = await home.people.create(name, trust=Trust(trust), roles=role or ())
    return Result(person, f"{person.name} is known now.")


@command(app, "rename")
async def rename(home: Asterism, who: Who, name: FreeName) -> Result:
    """Give a person another name."""
    person = await home.people.rename(who, name)
    return Result(person, f"{person.name} is the name from now on.")


@command(app, "trust")
async def set_trust(
    home: Asterism,
    who: Who,
    trust: Annotated[PersonTrust, argument("LEVEL", "known or stranger.")],
) -> Result:
    """Say how far a person is trusted."""
    from asterism.types.agents import Trust

    person = await home.people.set_trust(who, Trust(trust))
    return Result(person, f"{person.name} is: {person.trust.value}.")


@command(app, "roles")
async def set_roles(
    options: Options,
    who: Who,
    roles: Annotated[list[str] | None, argument("ROLE", "The roles from now on.")] = None,
    none: Annotated[bool, flag("--none", "Take all roles away.")] = False,
) -> Result:
    """Give a person these roles and no others."""
    if bool(roles) == none:
        raise InvalidInput("Name the roles, or take all away with --none. Nothing was changed.")
    async with open_home(options) as home:
        person = await home.people.set_roles(who, roles or ())
    return Result(person, f"{person.name} has roles: {_roles(person)}.")


@command(app, "link")
async def link(home: Asterism, who: Who, account: Account) -> Result:
    """Say that an account belongs to a person."""
    person = await home.people.link(who, account)
    return Result(person, f"{person.name} writes from: {_accounts(person) or 'no account'}.")


@command(app, "unlink")
async def unlink(home: Asterism, account: Account) -> Result:
    """Say that an account belongs to no known person; who writes from it next is a stranger."""
    await home.people.unlink(account)
    return Result({"account": account}, f"{account} belongs to no known person now.")


@command(app, "merge")
async def merge(
    options: Options,
    remaining: Annotated[str, argument("KEPT", "Who stays.")],
    merged: Annotated[str, argument("GONE", "Who is the same person.")],
    yes: Yes = False,
) -> Result:
    """Make one person of two, with the accounts of both and all that either may see."""
    async with open_home(options, readonly=True) as home:
        names = [one_line((await home.people.get(who)).name) for who in (merged, remaining)]
    require_yes(
        f"Make {' and '.join(names)} one person? What either may see, both may see then, and they "
        "cannot be told apart again.",
        yes=yes,
    )
    async with open_home(options) as home:
        person = await home.people.merge(remaining, merged)
    return Result(person, f"{person.name} writes from: {_accounts(person) or 'no account'}.")
