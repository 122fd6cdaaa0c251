"""`asterism service`: let the system start the home, by a user unit of systemd or launchd."""

from __future__ import annotations

import hashlib
import os
import plistlib
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from asterism.cli.commands import Options, command, flag, group, option
from asterism.cli.log import FILE as LOG
from asterism.cli.output import Result
from asterism.errors import Conflict, InvalidInput
from asterism.private import make_directory
from asterism.records import dataclass

app = group("Let the system start the home when you log in, and keep it running.")

_ANSWER_WITHIN = 60.0
COMMANDS = {
    "up": ("up", "--foreground"),
    "serve": ("serve",),
    "api": ("serve", "--no-worker"),
    "worker": ("worker",),
}
"""What a unit can run."""
Run = Annotated[
    str,
    option(
        "--run", "WHAT", "up, serve, api or worker (default: up; serve where it is PostgreSQL's)."
    ),
]


@dataclass(frozen=True, slots=True)
class SystemUnit:
    """What the system reads to start the home."""

    name: str
    file: Path
    text: bytes
    stop: tuple[tuple[str, ...], ...]
    """Commands that end what an earlier file started, and take it out of use."""
    start: tuple[tuple[str, ...], ...]
    """Commands that put it in use."""
    left: tuple[tuple[str, ...], ...] = ()
    """Commands for after its file is gone."""


@command(app, "install", example="service install")
async def install(
    options: Options,
    run: Run = "",
    show: Annotated[bool, flag("--print", "Only print the unit; write nothing.")] = False,
) -> Result:
    """Write a unit for systemd or launchd that runs the home in the background, and start it."""
    from asterism.store.sqlite import holder_of

    unit = _unit(options, run)
    shape = {"name": unit.name, "file": str(unit.file)}
    if show:
        return Result({**shape, "text": unit.text.decode()}, unit.text.decode().rstrip("\n"))
    _require(unit)
    exists = unit.file.exists()
    if not exists and (holder := holder_of(options.place)) is not None:
        raise Conflict(
            f"Process {holder} has {options.place} open, so that the system cannot start the home "
            'now. End it ("asterism down", or leave its chat) and try again. Nothing was written.'
        )
    changed = not exists or unit.file.read_bytes() != unit.text
    if exists and changed:
        _run(unit.stop, unit, must=False)
    if changed:
        make_directory(unit.file.parent)
        unit.file.write_bytes(unit.text)
    _run(unit.start, unit, must=changed)
    what = f"Wrote {unit.file}" if changed else f"{unit.file} is up to date"
    return Result(
        {**shape, "changed": changed},
        f'{what}; {unit.name} is started now and whenever you log in. "asterism status" shows it.',
    )


@command(app, "remove", example="service remove")
async def remove(options: Options, run: Run = "") -> Result:
    """Stop the home that the system runs, and remove its unit."""
    unit = _unit(options, run)
    _require(unit)
    if not unit.file.exists():
        return Result({"name": unit.name, "removed": False}, f"{unit.file} does not exist.")
    _run(unit.stop, unit, must=False)
    unit.file.unlink()
    _run(unit.left, unit, must=False)
    return Result({"name": unit.name, "removed": True}, f"Removed {unit.file}. The data stays.")


def _unit(options: Options, run: str) -> SystemUnit:
    what = _what(options, run)
    if sys.platform == "darwin":
        return launchd_unit(options, what)
    return systemd_unit(options, what)


def _what(options: Options, run: str) -> str:
    """Return what a unit runs; raise `InvalidInput` if that cannot be."""
    from asterism.config import load

    if run and run not in COMMANDS:
        raise InvalidInput(
            f"{run!r} is not something that a unit can run. Use {', '.join(COMMANDS)}. Nothing was "
            "written."
        )
    on_postgres = load(options.place, options.config, os.environ).store.url is not None
    what = run or ("serve" if on_postgres else "up")
    if on_postgres and what == "up":
        raise InvalidInput(
            'This home is on PostgreSQL, where "asterism up" is not used. Take --run serve, api or '
            "worker. Nothing was written."
        )
    if not on_postgres and what in ("api", "worker"):
        raise InvalidInput(
            f"--run {what} needs PostgreSQL, but store.url is not set. Take --run up or serve. "
            "Nothing was written."
        )
    return what


def _name(options: Options, what: str) -> str:
    """Return a name for the home: each data directory has one of its own."""
    from asterism.config import data_directory

    place = options.place
    more = "" if what == "up" else f"-{what}"
    if place == data_directory(None, {}):
        return f"asterism{more}"
    return f"asterism-{hashlib.sha256(os.fsencode(place)).hexdigest()[:8]}{more}"


def _command(options: Options, what: str) -> list[str]:
    named = options.config or os.environ.get("ASTERISM_CONFIG")
    config = ["--config", str(Path(named).absolute())] if named else []
    here = [sys.executable, "-m", "asterism"]
    return [*here, "--data", str(options.place), *config, *COMMANDS[what]]


def systemd_unit(options: Options, what: str) -> SystemUnit:
    """Return the unit for systemd."""
    unit = f"{_name(options, what)}.service"
    root = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    words = " ".join(_quote(word) for word in _command(options, what))
    text = (
        f"[Unit]\nDescription=asterism, the home in {options.place}\n".replace("%", "%%")
        + "After=network-online.target\n\n"
        "[Service]\n"
        f"ExecStart={words}\n"
        "Restart=on-failure\n"
        "RestartSec=5\n"
        "TimeoutStopSec=45\n\n"
        "[Install]\n"
        "WantedBy=default.target\n"
    )
    control = ("systemctl", "--user")
    return SystemUnit(
        unit,
        Path(root) / "systemd" / "user" / unit,
        text.encode(),
        ((*control, "disable", "--now", unit),),
        ((*control, "daemon-reload"), (*control, "enable", "--now", unit)),
        ((*control, "daemon-reload"),),
    )


def _quote(word: str) -> str:
    """Return a word of a command as systemd reads it."""
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{escaped}"' if escaped != shlex.quote(escaped) else escaped


def launchd_unit(options: Options, what: str) -> SystemUnit:
    """Return the agent for launchd."""
    label = f"dev.{_name(options, what)}"
    file = Path.home() / "Library" / "LaunchAgents" / f"{label}.plist"
    log = str(options.place / LOG)
    text = plistlib.dumps(
        {
            "Label": label,
            "ProgramArguments": _command(options, what),
            "RunAtLoad": True,
            "KeepAlive": {"SuccessfulExit": False},
            "StandardOutPath": log,
            "StandardErrorPath": log,
        }
    )
    domain = f"gui/{os.getuid()}"
    return SystemUnit(
        label,
        file,
        text,
        (("launchctl", "bootout", f"{domain}/{label}"),),
        (("launchctl", "bootstrap", domain, str(file)),),
    )


def _require(unit: SystemUnit) -> None:
    tool = unit.start[0][0]
    if shutil.which(tool) is None:
        raise InvalidInput(
            f"There is no {tool} on this machine, so neither systemd nor launchd can start the "
            'home. Run "asterism up" after each start of the machine, or use --print and adapt '
            "what is shown to your system. Nothing was written."
        )


def _run(commands: Sequence[Sequence[str]], unit: SystemUnit, *, must: bool) -> None:
    """Run commands; with `must`, raise `Conflict` if one of them fails."""
    for words in commands:
        try:
            done = subprocess.run(  # noqa: S603 - our own words
                words, capture_output=True, timeout=_ANSWER_WITHIN, check=False, text=True
            )
            problem = done.stderr.strip() or "no reason given" if done.returncode else ""
        except subprocess.TimeoutExpired:
            problem = f"no answer within {_ANSWER_WITHIN:g} seconds"
        if problem and must:
            raise Conflict(
                f'"{" ".join(words)}" failed ({problem}). {unit.file} is written: run the command '
                'yourself, or take it back with "asterism service remove".'
            )
