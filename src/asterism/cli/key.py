"""`asterism key`: keys of vendors and others, encrypted at rest and never shown."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from asterism.cli.home import visit
from asterism.cli.options import Options, command, group
from asterism.cli.output import Column, Output
from asterism.cli.text import plural
from asterism.errors import InvalidInput
from asterism.times import local_short, local_text

if TYPE_CHECKING:
    from asterism.app import Asterism
    from asterism.app.keys import StoredKey

app = group("Store the keys of vendors and tools, encrypted; they are never shown.")

Name = Annotated[
    str,
    typer.Argument(metavar="NAME", help="A vendor's name, such as openai, or one of your own."),
]
_SHORT = 8


@command(app, "set")
def set_key(
    options: Options,
    name: Name,
    stdin: Annotated[
        bool, typer.Option("--stdin", help="Read the key from standard input.")
    ] = False,
    from_env: Annotated[
        str | None,
        typer.Option("--from-env", metavar="VAR", help="Take it from this environment variable."),
    ] = None,
) -> None:
    """Store a key; it is asked for, and not shown while it is typed."""
    value = _given(name, stdin, from_env)

    async def errand(home: Asterism) -> tuple[bool, str]:
        replaced = await home.keys.set(name, value, by="cli")
        return replaced, home.keys.place()

    replaced, place = visit(options, errand)
    out = Output(json=options.json)
    if out.json:
        out.data({"name": name, "replaced": replaced})
        return
    what = "It takes the place of the former one. " if replaced else ""
    out.line(f"{name} is stored, encrypted. {what}The master key is in {place}: keep a copy of it.")
    if len(value.strip()) < _SHORT:
        out.line(
            f"It has fewer than {_SHORT} characters: it cannot be taken out of logs and texts."
        )


def _given(name: str, stdin: bool, from_env: str | None) -> str:
    if stdin and from_env:
        raise InvalidInput(
            "--stdin and --from-env exclude each other. Give one of them. Nothing was stored."
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
            f"There is no terminal to type the key of {name!r} at. Give it with --stdin or "
            "--from-env. Nothing was stored."
        )
    from getpass import getpass

    # It turns the echo off before it shows the prompt, so that nothing of the key is seen.
    return getpass(f"Key of {name}: ")


@command(app, "list")
def list_keys(options: Options) -> None:
    """Show which keys are stored, since when and for what: never what they are."""

    async def errand(home: Asterism) -> list[StoredKey]:
        return await home.keys.list()

    found = visit(options, errand, readonly=True)
    out = Output(json=options.json)
    if out.json:
        out.data(found)
        return
    columns: list[Column[StoredKey]] = [
        Column("key", lambda one: one.name),
        Column("stored", lambda one: local_text(one.created_at), least=80),
        Column("last used", lambda one: local_short(one.used_at) if one.used_at else "never"),
        Column("used by", lambda one: ", ".join(one.used_by) or "nothing", prose=True),
    ]
    if any(one.problem for one in found):
        columns.append(Column("problem", lambda one: one.problem or "", prose=True))
    out.table(columns, found, empty='No key is stored. "asterism key set NAME" stores one.')


@command(app, "remove")
def remove(options: Options, name: Name) -> None:
    """Remove a key."""

    async def errand(home: Asterism) -> None:
        await home.keys.remove(name, by="cli")

    visit(options, errand)
    out = Output(json=options.json)
    if out.json:
        out.data({"name": name})
    else:
        out.line(f"{name} is removed. At its vendor it is still valid: withdraw it there, too.")


@command(app, "rotate")
def rotate(options: Options) -> None:
    """Encrypt all keys anew, with a new master key where it is kept in a file or a keyring."""

    async def errand(home: Asterism) -> tuple[int, str]:
        return await home.keys.rotate(by="cli"), home.keys.place()

    count, place = visit(options, errand)
    out = Output(json=options.json)
    if out.json:
        out.data({"keys": count})
    else:
        out.line(f"{plural(count, 'key')} encrypted anew. The master key is in {place}.")
