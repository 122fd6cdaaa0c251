"""`asterism up`, `down` and `status`: the home in the background, for all terminals."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import orjson

from asterism.cli import log
from asterism.cli.commands import Options, flag, open_here, open_home
from asterism.cli.halt import RESUME, halt_notes, halt_text
from asterism.cli.output import Grid, Result, note, plural
from asterism.cli.serve import serve_home
from asterism.cli.terminal import until_stopped
from asterism.client import greet
from asterism.errors import AsterismError, Conflict, StoreMissing
from asterism.private import append_regular, is_disk_full, make_directory, private
from asterism.records import dataclass
from asterism.times import local_text
from asterism.types.agents import now_ms
from asterism.wire import FILE as SOCKET

if TYPE_CHECKING:
    from asterism.app.home import HomeStatus

FILE = "background.json"
"""Says which process is in the background; it is removed when that process ends by itself."""
_READY_WITHIN = 120.0
_TOLD_WITHIN = 1.0
"""Seconds between having the directory open and saying that it is the home in the background."""
_END_WITHIN = 20.0
"""Seconds to end by itself: turns under way get half of it."""
_LOOK_EVERY = 0.05
_MORE_PORTS = 50
"""How many ports after the usual one are tried where that is taken."""
_MAX_LOG_BYTES = 20_000


@dataclass(frozen=True, slots=True)
class Background:
    """A home that was started in the background."""

    pid: int
    started_at_ms: int
    address: str | None = None
    """Where its HTTP API listens, if it does."""


def read_background(place: Path) -> Background | None:
    """Return the home in the background, which may have crashed; None if there is none."""
    try:
        found = orjson.loads((place / FILE).read_bytes())
        return Background(int(found["pid"]), int(found["started_at_ms"]), found.get("address"))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _holder(place: Path) -> int | None:
    """Return the process that has a data directory open."""
    from asterism.store.sqlite import holder_of

    pid = holder_of(place)
    return int(pid) if pid is not None and pid.isdecimal() else None


# -- up --------------------------------------------------------------------------------------------


async def up(
    options: Options,
    foreground: Annotated[
        bool, flag("--foreground", "Stay in this terminal, as systemd and launchd need it.")
    ] = False,
) -> Result | None:
    """Run the home in the background, so that every terminal can use it.

    Schedules fire and the model stays loaded, although no chat is open.
    """
    if foreground:
        await _stay(options)
        return None
    place = options.place
    if _on_postgres(options):
        raise Conflict(
            "This home is on PostgreSQL, where any number of processes work side by side. "
            'Use "asterism serve" or "asterism worker". Nothing was started.'
        )
    if (holder := _holder(place)) is not None:
        known = await _in_background(place, _TOLD_WITHIN)
        if known is None:
            raise Conflict(
                f"Process {holder} has {place} open: a chat, a served home or a program. End it, "
                'then run "asterism up" again. Nothing was started.'
            )
        started = False
    else:
        known, started = await _start(options)
    word = "The home runs" if started else "The home runs already"
    at = f", at {known.address}" if known.address is not None else ""
    async with open_home(options, readonly=True) as home:
        notes = await halt_notes(home)
    return Result(
        {
            "pid": known.pid,
            "since": known.started_at_ms,
            "started": started,
            "address": known.address,
        },
        f"{word} in the background (process {known.pid}, since "
        f'{local_text(known.started_at_ms)}){at}. "asterism down" ends it.',
        notes=notes,
    )


def _on_postgres(options: Options) -> bool:
    from asterism.config import load

    return load(options.place, options.config, os.environ).store.url is not None


async def _in_background(place: Path, within: float) -> Background | None:
    """Return the home in the background; wait for one that another command is starting."""
    until = time.monotonic() + within
    while (holder := _holder(place)) is not None:
        known = read_background(place)
        if known is not None and known.pid == holder and await greet(place) is not None:
            return known
        if time.monotonic() > until:
            break
        await asyncio.sleep(_LOOK_EVERY)
    return None


async def _start(options: Options) -> tuple[Background, bool]:
    """Start a process that outlives this one, and return when it is ready.

    The second value is false if another command was quicker.
    """
    place = options.place
    file = place / log.FILE
    process, before = _spawn(options, file)
    until = time.monotonic() + _READY_WITHIN
    while time.monotonic() < until:
        known = read_background(place)
        if known is not None and known.pid == process.pid and await greet(place) is not None:
            return known, True
        if process.poll() is not None:
            if (known := await _in_background(place, until - time.monotonic())) is not None:
                return known, False
            words = _last_words(file, before)
            if words is None:
                full = is_disk_full(place)
                words = "there is no room left on its disk." if full else "it ended without a word."
            raise Conflict(f"The home did not start: {words} The log is {file}.")
        await asyncio.sleep(_LOOK_EVERY)
    raise Conflict(
        f"The home is not ready after {_READY_WITHIN:g} seconds, and goes on starting as process "
        f'{process.pid}. "asterism status" shows whether it is; the log is {file}.'
    )


def _spawn(options: Options, file: Path) -> tuple[subprocess.Popen[bytes], int]:
    """Start a process that writes to the log, and return it with the length of the log before."""
    try:
        make_directory(options.place)
    except OSError as error:
        raise _unusable(options.place, error) from None
    config = ["--config", str(options.config.absolute())] if options.config else []
    command = [sys.executable, "-m", "asterism", "--data", str(options.place), *config]
    socket = options.place / SOCKET
    if socket.exists() and not socket.is_socket():
        raise Conflict(
            f"{socket} is not a socket, so that no terminal could reach the home. Move it away and "
            "try again. The home was not started."
        )
    try:
        handle = append_regular(file)
    except OSError as error:
        raise Conflict(
            f"The log {file} cannot be written ({error.strerror}). Move it away and try again. "
            "The home was not started."
        ) from None
    with os.fdopen(handle, "ab") as output:
        before = output.tell()
        process = subprocess.Popen(  # noqa: S603 - our own words
            [*command, "up", "--foreground"],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    return process, before


def _last_words(file: Path, before: int) -> str | None:
    """Return the last line that a process wrote, which says why it ended; None if there is none."""
    with contextlib.suppress(OSError), file.open("rb") as written:
        written.seek(before)
        lines = written.read(_MAX_LOG_BYTES).decode(errors="replace").split("\n")
        said = [line.removeprefix("asterism: ") for line in lines if line.strip()]
        if said:
            return said[-1]
    return None


async def _stay(options: Options) -> None:
    """Work until stopped; say in the data directory that this is the home in the background."""
    from asterism.config import load

    place = options.place
    file = place / FILE
    settings = load(place, options.config, os.environ, options.settings)

    def ready(address: str, token: str) -> None:
        _write_background(file, address)
        opened = f"The home in {place} is open to every terminal, and at {address}."
        note(f"{opened} Ctrl-C or SIGTERM ends it. {token}".rstrip())

    try:
        if settings.api.background:
            # A port that was chosen is that one or none; the usual one may be another home's.
            is_chosen = "port" in settings.api.model_fields_set
            await serve_home(
                options,
                settings.api,
                others=0 if is_chosen else _MORE_PORTS,
                grace=_END_WITHIN / 3,
                ready=ready,
            )
        else:
            await _stay_without_http(options, file)
    finally:
        known = read_background(place)
        if known is not None and known.pid == os.getpid():
            file.unlink(missing_ok=True)


async def _stay_without_http(options: Options, file: Path) -> None:
    async with open_here(options, work=True, grace=_END_WITHIN / 2) as home:
        home.follow_configuration(log.follow)
        _write_background(file, None)
        opened = f"The home in {options.place} is open to every terminal."
        note(f"{opened} Ctrl-C or SIGTERM ends it.")
        await until_stopped()
        note("Stopping; running turns get a moment to finish.")


def _write_background(file: Path, address: str | None) -> None:
    # Whole or not at all, since others may read it at any time.
    new = file.with_suffix(".new")
    known = {"pid": os.getpid(), "started_at_ms": now_ms(), "address": address}
    with open(new, "wb", opener=private) as output:
        output.write(orjson.dumps(known))
    new.replace(file)


# -- down ------------------------------------------------------------------------------------------


async def down(options: Options) -> Result:
    """End the home in the background; turns under way get a moment to finish."""
    place = options.place
    known, holder = read_background(place), _holder(place)
    if known is None or known.pid != holder:
        if holder is not None:
            raise Conflict(
                f'Process {holder} has {place} open, and was not started by "asterism up". Leave '
                "its chat, or stop it where it runs. Nothing was ended."
            )
        crashed = _forget_crash(place, known)
        text = f" Process {crashed} had ended without being asked to." if crashed else ""
        return Result({"ended": None, "crashed": crashed}, f"Nothing runs in {place}.{text}")
    os.kill(known.pid, signal.SIGTERM)
    if await _is_gone(place, known.pid, _END_WITHIN):
        shape = {"ended": known.pid, "killed": False}
        return Result(shape, f"Ended the home in the background (process {known.pid}).")
    with contextlib.suppress(ProcessLookupError):
        os.kill(known.pid, signal.SIGKILL)
    await _is_gone(place, known.pid, _END_WITHIN)
    _forget_crash(place, known)
    return Result(
        {"ended": known.pid, "killed": True},
        f"Process {known.pid} did not end within {_END_WITHIN:g} seconds, so it was killed. "
        "Nothing that was confirmed is lost; open turns continue at the next start.",
    )


def _forget_crash(place: Path, known: Background | None) -> int | None:
    try:
        (place / FILE).unlink(missing_ok=True)
    except OSError as error:
        raise _unusable(place, error) from None
    return known.pid if known is not None else None


def _unusable(place: Path, error: OSError) -> Conflict:
    if isinstance(error, FileExistsError | NotADirectoryError):
        return Conflict(
            f"{place} is a file, or below one, and a directory is needed to keep the data in. "
            "Choose another with --data. Nothing was changed."
        )
    return Conflict(
        f"The data directory {place} cannot be used ({error.strerror}). Give this user write "
        "access to it, or choose another with --data. Nothing was changed."
    )


async def _is_gone(place: Path, pid: int, within: float) -> bool:
    """Wait until a process does not have the directory any more; False if it still has."""
    until = time.monotonic() + within
    while _holder(place) == pid:
        if time.monotonic() > until:
            return False
        await asyncio.sleep(_LOOK_EVERY)
    return True


# -- status ----------------------------------------------------------------------------------------


async def status(options: Options) -> Result:
    """Show whether the home runs, and what is going on in it."""
    from asterism.app.access import DEFAULT_FILE

    place = options.place
    token = place / DEFAULT_FILE
    known, holder = read_background(place), _holder(place)
    crashed = known if known is not None and known.pid != holder else None
    home, problem = await _ask(options)
    in_background = crashed is None and known is not None
    shape: dict[str, Any] = {
        "store": "postgresql" if _on_postgres(options) else "sqlite",
        "running": holder is not None,
        "background": in_background,
        "pid": holder,
        "since": home.started_at_ms if home is not None and holder is not None else None,
        "address": home.address if home is not None and holder is not None else None,
        "token": str(token) if token.exists() else None,
        "data": str(place),
        "log": str(place / log.FILE),
        "model": home.model if home is not None else None,
        "agents": home.agents if home is not None else 0,
        "open_turns": home.open_turns if home is not None else 0,
        "approvals": home.approvals if home is not None else 0,
        "halted": home.halt if home is not None else None,
        "crashed": crashed,
        "problem": problem,
    }
    return Result(shape, Grid(_lines(shape, home)))


async def _ask(options: Options) -> tuple[HomeStatus | None, str | None]:
    """Return what the home says of itself, or why it does not."""
    try:
        async with open_home(options, readonly=True) as home:
            return await home.status(), None
    except StoreMissing:
        return None, None
    except AsterismError as error:
        return None, error.message


def _lines(shape: dict[str, Any], home: HomeStatus | None) -> list[tuple[str, str]]:
    lines = [("home", _running(shape))]
    if shape["address"] is not None:
        token = f"; the token is in {shape['token']}" if shape["token"] else ""
        lines.append(("address", f"{shape['address']}{token}"))
    lines += [("data", shape["data"]), ("log", shape["log"])]
    if crashed := cast("Background | None", shape["crashed"]):
        since = local_text(crashed.started_at_ms)
        text = (
            f"process {crashed.pid}, in the background since {since}, ended without being asked "
            'to. Look into the log; "asterism up" starts the home again.'
        )
        lines.append(("crashed", text))
    if shape["problem"]:
        lines.append(("problem", shape["problem"]))
    if home is not None:
        lines += [
            ("model", home.model),
            ("agents", f"{home.agents:,}"),
            ("turns", f"{home.open_turns:,} open"),
            ("approvals", f"{plural(home.approvals, 'question')} without an answer"),
        ]
    if home is not None and home.halt is not None:
        lines.append(("halted", f"{halt_text(home.halt)} {RESUME}"))
    return lines


def _running(shape: dict[str, Any]) -> str:
    if shape["store"] == "postgresql":
        return "on PostgreSQL, where any number of processes work side by side"
    if not shape["running"]:
        return 'not running; commands open it by themselves, and "asterism up" keeps it running'
    where = "in the background" if shape["background"] else "in a chat, a server or a program"
    since = f" since {local_text(shape['since'])}" if shape["since"] is not None else ""
    return f"runs {where} (process {shape['pid']}){since}"
