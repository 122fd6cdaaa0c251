"""`asterism person`: who agents talk to, from which accounts, and how far they are trusted."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from asterism.cli.given import be_sure
from asterism.cli.home import visit
from asterism.cli.options import Options, command, group
from asterism.cli.output import Column, Output
from asterism.cli.shapes import plain
from asterism.cli.text import one_line
from asterism.cli.whose import Yes
from asterism.errors import InvalidInput
from asterism.times import local_text

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from asterism.app import Asterism
    from asterism.types.agents import Person

app = group("Say who people are, where they write from, and how far they are trusted.")

Who = Annotated[
    str, typer.Argument(metavar="WHO", help="The person's name, id or account (CHANNEL:SENDER).")
]
Account = Annotated[
    str, typer.Argument(metavar="ACCOUNT", help="CHANNEL:SENDER, such as discord:4711.")
]
Roles = Annotated[
    list[str] | None,
    typer.Option("--role", metavar="ROLE", help="A role, such as family; once for each."),
]


class PersonTrust(StrEnum):
    """How far an owner trusts a person."""

    KNOWN = "known"
    STRANGER = "stranger"


@command(app, "list")
def list_all(options: Options) -> None:
    """Show everybody who is known, the owner first."""

    async def errand(home: Asterism) -> list[Person]:
        return await home.people.list()

    found = visit(options, errand, readonly=True)
    out = Output(json=options.json)
    if out.json:
        out.data(plain(found))
        return
    columns: list[Column[Person]] = [
        Column("person", lambda one: one.name, prose=True),
        Column("trust", lambda one: one.trust.value),
        Column("roles", lambda one: ", ".join(one.roles), prose=True),
        Column("accounts", _accounts, prose=True),
        Column("id", lambda one: one.id, least=120),
    ]
    out.table(columns, found, empty="Nobody is known.")


@command(app, "show")
def show(options: Options, who: Who) -> None:
    """Show one person."""

    async def errand(home: Asterism) -> Person:
        return await home.people.get(who)

    person = visit(options, errand, readonly=True)
    out = Output(json=options.json)
    if out.json:
        out.data(plain(person))
        return
    out.grid(
        [
            ("name", person.name),
            ("id", person.id),
            ("trust", person.trust.value),
            ("roles", ", ".join(person.roles) or "none"),
            ("accounts", "\n".join(_accounts(person).split(", ")) or "none"),
            ("since", local_text(person.created_at) if person.created_at else "ever"),
        ]
    )


def _accounts(person: Person) -> str:
    return ", ".join(f"{one.channel}:{one.sender}" for one in person.accounts)


@command(app, "add")
def add(
    options: Options,
    name: Annotated[str, typer.Argument(metavar="NAME", help="A name that is free.")],
    trust: Annotated[
        PersonTrust, typer.Option("--trust", help="How far they are trusted.")
    ] = PersonTrust.KNOWN,
    role: Roles = None,
) -> None:
    """Introduce a person; "person link" says where they write from."""
    from asterism.types.agents import Trust

    async def errand(home: Asterism) -> Person:
        return await home.people.create(name, trust=Trust(trust), roles=role or ())

    _do(options, errand, "{name} is known now.")


@command(app, "rename")
def rename(
    options: Options,
    who: Who,
    name: Annotated[str, typer.Argument(metavar="NAME", help="A name that is free.")],
) -> None:
    """Call a person something else."""
    _do(options, lambda home: home.people.rename(who, name), "{name} is the name from now on.")


@command(app, "trust")
def set_trust(
    options: Options,
    who: Who,
    trust: Annotated[PersonTrust, typer.Argument(metavar="LEVEL", help="known or stranger.")],
) -> None:
    """Say how far a person is trusted."""
    from asterism.types.agents import Trust

    _do(options, lambda home: home.people.set_trust(who, Trust(trust)), "{name} is: {trust}.")


@command(app, "roles")
def set_roles(
    options: Options,
    who: Who,
    roles: Annotated[
        list[str] | None, typer.Argument(metavar="ROLE", help="The roles from now on.")
    ] = None,
    none: Annotated[bool, typer.Option("--none", help="Take all roles away.")] = False,
) -> None:
    """Give a person these roles and no others."""
    if bool(roles) == none:
        raise InvalidInput("Name the roles, or take all away with --none. Nothing was changed.")
    _do(options, lambda home: home.people.set_roles(who, roles or ()), "{name} has roles: {roles}.")


@command(app, "link")
def link(options: Options, who: Who, account: Account) -> None:
    """Say that an account is a person's."""
    _do(options, lambda home: home.people.link(who, account), "{name} writes from: {accounts}.")


@command(app, "unlink")
def unlink(options: Options, account: Account) -> None:
    """Say that an account is nobody's that is known; who writes from it next is a stranger."""

    async def errand(home: Asterism) -> None:
        await home.people.unlink(account)

    visit(options, errand)
    out = Output(json=options.json)
    if out.json:
        out.data({"account": account})
    else:
        out.line(f"{account} is nobody's that is known.")


@command(app, "merge")
def merge(
    options: Options,
    kept: Annotated[str, typer.Argument(metavar="KEPT", help="Who stays.")],
    gone: Annotated[str, typer.Argument(metavar="GONE", help="Who is the same person.")],
    yes: Yes = False,
) -> None:
    """Make one person of two: accounts, and what either may hear."""

    async def look(home: Asterism) -> tuple[Person, Person]:
        return await home.people.get(kept), await home.people.get(gone)

    stays, goes = visit(options, look, readonly=True)
    be_sure(
        f"Make {one_line(goes.name)} and {one_line(stays.name)} one person? What either may hear, "
        "both may hear then, and they cannot be told apart again.",
        yes=yes,
    )
    _do(options, lambda home: home.people.merge(kept, gone), "{name} writes from: {accounts}.")


def _do(options: Options, errand: Callable[[Asterism], Awaitable[Person]], said: str) -> None:
    person = visit(options, errand)
    out = Output(json=options.json)
    if out.json:
        out.data(plain(person))
        return
    words = {
        "name": person.name,
        "trust": person.trust.value,
        "roles": ", ".join(person.roles) or "none",
        "accounts": _accounts(person) or "no account",
    }
    out.line(said.format(**words))
