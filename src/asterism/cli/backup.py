"""`asterism backup`: copies of the whole home: make, list, verify and restore them."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from asterism.cli import log
from asterism.cli.commands import (
    FAILED,
    Options,
    argument,
    command,
    flag,
    group,
    open_home,
    option,
)
from asterism.cli.output import Column, Grid, ItemTable, ProgressBar, Result, plural
from asterism.cli.terminal import ask_secret
from asterism.errors import InvalidInput, PassphraseWrong
from asterism.times import local_text
from asterism.types.memory import BACKUP_SUFFIX

if TYPE_CHECKING:
    from asterism.app.backups import Backup, BackupProgress, BackupReport, OnProgress
    from asterism.config import Settings

app = group("Make, list, verify and restore backups of the whole home.")

_LARGE = 20_000_000

File = Annotated[Path, argument("FILE", f"The backup, a file ending with {BACKUP_SUFFIX}.")]
FromEnv = Annotated[
    str | None,
    option("--passphrase-env", "VAR", "Read the passphrase from this environment variable."),
]


@command(app, "create", example="backup create")
async def create(
    options: Options,
    to: Annotated[
        Path | None,
        option("--to", "PATH", "The file or directory (default: backups.directory)."),
    ] = None,
    encrypt: Annotated[
        bool, flag("--encrypt", "Encrypt it; the terminal asks for a passphrase.")
    ] = False,
    passphrase_env: FromEnv = None,
    note: Annotated[str, option("--note", "TEXT", "What the backup is for.")] = "",
) -> Result:
    """Make a backup; turns go on meanwhile."""
    passphrase = _from_env(passphrase_env)
    if encrypt and passphrase is None:
        passphrase = _new_passphrase()
    target = to.expanduser().absolute() if to is not None else None
    async with open_home(options) as home:
        with _progress(options) as progress:
            made = await home.backups.create(
                target, passphrase=passphrase, note=note, progress=progress
            )
    encrypted = ", encrypted" if made.encrypted else ""
    lines = [f"{made.path} ({amount(made.size)}{encrypted})"]
    if made.left_out:
        lines.append(f"Not in it: {', '.join(made.left_out)}.")
    return Result(made, *lines)


@command(app, "list", example="backup list")
async def list_all(
    options: Options,
    directory: Annotated[
        Path | None, option("--from", "DIR", "A directory (default: backups.directory).")
    ] = None,
) -> Result:
    """Show the backups, newest first; no home has to be there for it."""
    from asterism.app.backups import backup_directory, list_backups

    if directory is None:
        place = backup_directory(_settings(options), options.place)
        backups = list_backups(place, options.place)
    else:
        place = directory.expanduser().absolute()
        backups = list_backups(place)
    columns: list[Column[Backup]] = [
        Column("made", lambda backup: local_text(backup.created_at_ms)),
        Column("kind", lambda backup: backup.kind),
        Column("size", lambda backup: amount(backup.size)),
        Column("encrypted", lambda backup: "yes" if backup.encrypted else "no", least=80),
        Column("note", lambda backup: backup.problem or backup.note, prose=True, least=100),
        Column("file", lambda backup: backup.path, prose=True),
    ]
    empty = f'There are no backups in {place}. "asterism backup create" makes one.'
    return Result(backups, ItemTable(columns, backups, empty))


@command(app, "verify", example="backup verify home.backup")
async def verify(options: Options, file: File, passphrase_env: FromEnv = None) -> Result:
    """Read all of a backup, open its database in a temporary place, and check both."""
    from asterism.app.backups import verify_backup

    path = file.expanduser().absolute()
    log.start(None)
    passphrase = _from_env(passphrase_env)
    if passphrase is None and _is_encrypted(path):
        if _settings(options).backups.passphrase is not None:
            async with open_home(options, readonly=True) as home:
                with _progress(options) as progress:
                    return _verified(await home.backups.verify(path, progress=progress))
        passphrase = _ask_passphrase(path)
    with _progress(options) as progress:
        return _verified(await verify_backup(path, passphrase, progress=progress))


def _verified(report: BackupReport) -> Result:
    whole = "It is whole, and its database is healthy."
    parts = [Grid(_rows(report)), whole if not report.problems else "Its audit log has flaws:"]
    return Result(report, *parts, *report.problems, code=FAILED if report.problems else 0)


@command(app, "restore", example="backup restore home.backup --data ~/restored")
async def restore(
    options: Options,
    file: File,
    replace: Annotated[
        bool, flag("--replace", "Move what the data directory holds aside, and keep it.")
    ] = False,
    store: Annotated[
        str | None,
        option("--store", "URL", "The empty PostgreSQL database to fill, for a backup of one."),
    ] = None,
    passphrase_env: FromEnv = None,
    despite_flaws: Annotated[
        bool, flag("--despite-flaws", "Restore it even if its audit log has flaws.")
    ] = False,
) -> Result:
    """Put the home of a backup into a data directory that nobody has open."""
    from asterism.app.restore import restore_backup

    path = file.expanduser().absolute()
    log.start(None)
    passphrase = _from_env(passphrase_env)
    if passphrase is None and _is_encrypted(path):
        passphrase = _ask_passphrase(path)
    with _progress(options) as progress:
        done = await restore_backup(
            path,
            options.place,
            passphrase=passphrase,
            replace=replace,
            store=store,
            despite_flaws=despite_flaws,
            progress=progress,
        )
    moved = f"What was there before is in {done.moved_to}." if done.moved_to else ""
    lines = [f"Restored into {done.data}. {moved}".rstrip(), *done.notes]
    return Result(done, Grid(_rows(done.report)), *lines)


# -- what is shown ---------------------------------------------------------------------------------


def amount(size: int) -> str:
    """Return a number of bytes in words."""
    if size < 1_000_000:
        return f"{size / 1e3:.1f} kB"
    return f"{size / 1e6:,.1f} MB" if size < 1e9 else f"{size / 1e9:,.2f} GB"


def _rows(report: BackupReport) -> list[tuple[str, str]]:
    backup = report.backup
    about = f"asterism {backup.version}, schema {backup.schema}, {backup.engine}"
    rows = [
        ("made", local_text(backup.created_at_ms)),
        ("by", about),
        ("size", amount(backup.size)),
        ("constellations", ", ".join(report.constellations) or "none"),
    ]
    rows += [(name, f"{count:,}") for name, count in report.contents.items()]
    if backup.note:
        rows.append(("note", backup.note))
    if backup.left_out:
        left = plural(len(backup.left_out), "file")
        rows.append(("not in it", f"{left}: {', '.join(backup.left_out)}"))
    return rows


@contextmanager
def _progress(options: Options) -> Generator[OnProgress, None, None]:
    """Show how far a large backup is; a small one is done before anybody has read it."""
    with ProgressBar(silent=options.json) as bar:

        def show(now: BackupProgress) -> None:
            if now.total >= _LARGE:
                figures = f"{now.stage}: {amount(now.done)} of {amount(now.total)}"
                bar.update(now.done, now.total, figures, now.stage, stage=now.stage)

        yield show


# -- passphrases -----------------------------------------------------------------------------------


def _settings(options: Options) -> Settings:
    from asterism.config import load

    log.start(None)
    return load(options.place, options.config, os.environ)


def _is_encrypted(path: Path) -> bool:
    from asterism.app.backup_file import is_encrypted
    from asterism.private import open_regular

    try:
        with os.fdopen(open_regular(path), "rb") as raw:
            return is_encrypted(raw)
    except OSError:
        return False  # whoever opens it says why it cannot be


def _from_env(variable: str | None) -> str | None:
    if variable is None:
        return None
    if value := os.environ.get(variable, ""):
        return value
    raise InvalidInput(
        f"The environment variable {variable} is not set, or is empty. Set it to the passphrase. "
        "Nothing was done."
    )


def _ask_passphrase(path: Path) -> str:
    if not sys.stdin.isatty():
        raise PassphraseWrong(
            f"{path.name} is encrypted, and there is no terminal to type the passphrase. Name an "
            "environment variable that holds it with --passphrase-env. Nothing was restored."
        )
    return ask_secret(f"Passphrase of {path.name}")


def _new_passphrase() -> str:
    """Ask for a passphrase twice."""
    from asterism.app.backup_file import check_passphrase

    if not sys.stdin.isatty():
        raise InvalidInput(
            "There is no terminal to type a passphrase. Name an environment variable that holds it "
            "with --passphrase-env. Nothing was done."
        )
    passphrase = ask_secret("Passphrase (nobody can open the backup without it)")
    check_passphrase(passphrase)
    if ask_secret("The same again") != passphrase:
        raise InvalidInput("These are two different passphrases. Nothing was done.")
    return passphrase
