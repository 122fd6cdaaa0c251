"""`asterism key`: keys of vendors and others, encrypted at rest and never shown."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Annotated

from asterism.cli.commands import Options, argument, command, flag, group, open_home, option
from asterism.cli.output import Column, ItemTable, Result, plural
from asterism.cli.terminal import ask_secret
from asterism.errors import InvalidInput
from asterism.times import local_short, local_text

if TYPE_CHECKING:
    from asterism.app import Asterism
    from asterism.app.keys import StoredKey

app = group("Store the keys of vendors and tools, encrypted; they are never shown.")

Name = Annotated[str, argument("NAME", "A vendor's name, such as openai, or a name of your own.")]
_SHORT = 8


@command(app, "set", example="key set openai")
async def set_key(
    options: Options,
    name: Name,
    stdin: Annotated[bool, flag("--stdin", "Read the key from standard input.")] = False,
    from_env: Annotated[
        str | None, option("--from-env", "VAR", "Read it from this environment variable.")
    ] = None,
) -> Result:
    """Store a key; the terminal asks for it and does not show it."""
    value = _read_key(name, stdin, from_env)
    async with open_home(options) as home:
        replaced = await home.keys.set(name, value, by="cli")
        place = home.keys.place()
    former = "It replaces the earlier key. " if replaced else ""
    lines = [
        f"{name} is stored, encrypted. {former}The master key is in {place}: keep a copy of it."
    ]
    if len(value.strip()) < _SHORT:
        lines.append(
            f"It has fewer than {_SHORT} characters: it cannot be redacted in logs and texts."
        )
    return Result({"name": name, "replaced": replaced}, *lines)


def _read_key(name: str, stdin: bool, from_env: str | None) -> str:
    if stdin and from_env:
        raise InvalidInput(
            "--stdin and --from-env cannot be used together. Choose one. Nothing was stored."
        )
    if from_env:
        value = os.environ.get(from_env, "")
        if not value:
            raise InvalidInput(
                f"The environment variable {from_env} is not set, or is empty. Set it, or leave "
                "--from-env out and type the key. Nothing was stored."
            )
        return value
    if stdin:
        return sys.stdin.read()
    if not sys.stdin.isatty():
        raise InvalidInput(
            f"There is no terminal to type the key of {name!r}. Use --stdin or "
            "--from-env. Nothing was stored."
        )
    return ask_secret(f"Key of {name}")


@command(app, "list", example="key list", readonly=True)
async def list_keys(home: Asterism) -> Result:
    """Show the names of the stored keys, since when and for what; never the keys."""
    keys = await home.keys.list()
    columns: list[Column[StoredKey]] = [
        Column("key", lambda key: key.name),
        Column("stored", lambda key: local_text(key.created_at_ms), least=80),
        Column("last used", lambda key: local_short(key.used_at_ms) if key.used_at_ms else "never"),
        Column("used by", lambda key: ", ".join(key.used_by) or "nothing", prose=True),
    ]
    if any(key.problem for key in keys):
        columns.append(Column("problem", lambda key: key.problem or "", prose=True))
    empty = 'No keys are stored. "asterism key set NAME" stores a key.'
    return Result(keys, ItemTable(columns, keys, empty))


@command(app, "remove", example="key remove openai")
async def remove(home: Asterism, name: Name) -> Result:
    """Remove a key."""
    await home.keys.remove(name, by="cli")
    return Result(
        {"name": name},
        f"Removed the key {name}. It is still valid at its vendor: revoke it there, too.",
    )


@command(app, "rotate", example="key rotate")
async def rotate(home: Asterism) -> Result:
    """Encrypt all keys again, with a new master key where it is kept in a file or a keyring."""
    count = await home.keys.rotate(by="cli")
    place = home.keys.place()
    return Result(
        {"keys": count}, f"{plural(count, 'key')} encrypted again. The master key is in {place}."
    )
