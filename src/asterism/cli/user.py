"""`asterism user`: who can log in at the web page."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

from asterism.cli.commands import Options, argument, command, flag, group, open_home
from asterism.cli.output import Column, ItemTable, Result
from asterism.cli.terminal import ask_secret
from asterism.errors import InvalidInput
from asterism.times import local_text

if TYPE_CHECKING:
    from asterism.app import Asterism
    from asterism.app.authentication import User

app = group("Manage who can log in at the web page.")

Who = Annotated[str, argument("WHO", "The person's name or id, or owner.")]


@command(app, "password", example="user password owner")
async def password(
    options: Options,
    who: Who,
    stdin: Annotated[bool, flag("--stdin", "Read the password from standard input.")] = False,
) -> Result:
    """Set the password of the owner or of a person; their sessions end."""
    text = _read_password(who, stdin)
    async with open_home(options) as home:
        user = await home.users.set_password(who, text, by="cli")
    return Result(user, f"The password of {user.name} is set. Sessions from before have ended.")


def _read_password(who: str, stdin: bool) -> str:
    if stdin:
        return sys.stdin.read().removesuffix("\n").removesuffix("\r")
    if not sys.stdin.isatty():
        raise InvalidInput(
            f"There is no terminal to type the password of {who!r}. Use --stdin. Nothing was "
            "changed."
        )
    text = ask_secret(f"Password of {who}")
    if ask_secret("The same again") != text:
        raise InvalidInput("The two passwords differ. Try again. Nothing was changed.")
    return text


@command(app, "list", example="user list", readonly=True)
async def list_users(home: Asterism) -> Result:
    """Show who has a password, since when, and how many sessions they have."""
    users = await home.users.list()
    columns: list[Column[User]] = [
        Column("user", lambda user: user.name, prose=True),
        Column("password set", lambda user: local_text(user.changed_at_ms)),
        Column("sessions", lambda user: f"{user.sessions:,}"),
    ]
    empty = 'Nobody has a password. "asterism user password owner" sets yours.'
    return Result(users, ItemTable(columns, users, empty))


@command(app, "remove", example="user remove Ben")
async def remove(home: Asterism, who: Who) -> Result:
    """Take a password away; the user cannot log in any more, and their sessions end."""
    await home.users.remove(who, by="cli")
    return Result({"who": who}, f"{who} cannot log in any more.")
