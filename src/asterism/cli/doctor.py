"""`asterism doctor`: what is wrong, and how to put it right."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

import typer

from asterism.cli.options import Options
from asterism.cli.output import Output, console
from asterism.cli.text import plural, printable
from asterism.errors import AsterismError, StoreMissing

if TYPE_CHECKING:
    from asterism.app import Asterism
    from asterism.config import Settings

OK, LOOK, BAD = "ok", "look", "bad"
_MARKS = {OK: ("✓", "green"), LOOK: ("!", "yellow"), BAD: ("✗", "red")}
_LITTLE_ROOM, _NO_ROOM = 500_000_000, 20_000_000
_PATIENCE = 5.0


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check found."""

    check: str
    state: str
    """`ok`, `look` (works, but look at it) or `bad` (does not work)."""
    text: str
    remedy: str = ""


def doctor(
    options: Options,
    probe: Annotated[
        bool, typer.Option("--probe", help="Ask the models a word, which may cost a little.")
    ] = False,
) -> None:
    """Say what is wrong and how to put it right.

    It only reads, and so works beside a running process.
    """
    from asterism.cli import log

    log.start(None)
    findings = asyncio.run(_examine(options, probe=probe))
    out = Output(json=options.json)
    if out.json:
        out.data([asdict(finding) for finding in findings])
    else:
        _print(findings)
    if any(finding.state == BAD for finding in findings):
        raise typer.Exit(1)


def _print(findings: list[Finding]) -> None:
    if not sys.stdout.isatty():
        for finding in findings:
            remedy = f" → {finding.remedy}" if finding.remedy else ""
            said = f"{finding.text}{remedy}".replace("\n", " ")
            Output(json=False).line(f"{_MARKS[finding.state][0]} {finding.check:<13} {said}")
        return
    from rich.table import Table
    from rich.text import Text

    screen = console()
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 1, 0, 0))
    for finding in findings:
        mark, style = _MARKS[finding.state]
        told = Text(printable(finding.text))
        if finding.remedy:
            told.append(f"\n→ {printable(finding.remedy)}", style)
        table.add_row(Text(mark, style), Text(finding.check, "bold"), told)
    screen.print(table)


async def _examine(options: Options, *, probe: bool) -> list[Finding]:
    place = options.place
    findings = [_python(), *_directory(place)]
    settings, finding = _configuration(options)
    findings.append(finding)
    if settings is None:
        return findings
    models = {settings.default_model}
    findings += [finding async for finding in _store(options, settings, models)]
    findings += [await _model(settings, model, probe=probe) for model in sorted(models)]
    return [*findings, *_channels(settings)]


# -- the place -----------------------------------------------------------------------------------


def _python() -> Finding:
    version = ".".join(map(str, sys.version_info[:3]))
    return Finding("python", OK, f"{version} at {sys.executable}")


def _directory(place: Path) -> Iterator[Finding]:
    if not place.exists():
        yield Finding("data", LOOK, f"{place} is not there yet.", '"asterism" creates it.')
        return
    if not place.is_dir():
        yield Finding("data", BAD, f"{place} is no directory.", "Choose another with --data.")
        return
    if not os.access(place, os.W_OK | os.X_OK):
        remedy = "Give this user write access, or choose another with --data."
        yield Finding("data", BAD, f"{place} cannot be written.", remedy)
    else:
        yield Finding("data", OK, str(place))
    free = shutil.disk_usage(place).free
    said = f"{free / 1e9:,.1f} GB free"
    if free < _LITTLE_ROOM:
        state = BAD if free < _NO_ROOM else LOOK
        yield Finding("room", state, said, "Free some space: turns wait when the disk is full.")
    else:
        yield Finding("room", OK, said)


def _configuration(options: Options) -> tuple[Settings | None, Finding]:
    from asterism.config import config_file, load

    file = config_file(options.place, options.config, os.environ)
    try:
        settings = load(options.place, options.config, os.environ)
    except AsterismError as error:
        remedy = f"Correct it in {file} or in the environment."
        return None, Finding("configuration", BAD, error.message, remedy)
    said = (
        str(file) if file.exists() else f"{file} is not there, and need not be: defaults are used."
    )
    return settings, Finding("configuration", OK, said)


# -- the store -----------------------------------------------------------------------------------


async def _store(options: Options, settings: Settings, models: set[str]) -> AsyncIterator[Finding]:
    """Look into the store; add the models of the agents there to `models`."""
    from asterism.app import Asterism

    kind = "SQLite" if settings.store.url is None else "PostgreSQL"
    try:
        async with (
            asyncio.timeout(60),
            Asterism.open(options.data, config=options.config, readonly=True) as home,
        ):
            faults = await home.database.check()
            if faults:
                remedy = "Put it back from a backup or a snapshot, keeping the damaged file."
                yield Finding("store", BAD, f"{kind} is damaged: {'; '.join(faults[:3])}", remedy)
                return
            yield Finding("store", OK, f"{kind}, healthy, with a schema that this release knows")
            async for finding in _contents(home, options.place, models):
                yield finding
    except StoreMissing as error:
        yield Finding("store", LOOK if _is_new(options.place) else BAD, error.message)
    except AsterismError as error:
        yield Finding("store", BAD, error.message)
    except TimeoutError:
        yield Finding("store", BAD, f"{kind} does not answer.", "See whether its server works.")


def _is_new(place: Path) -> bool:
    """Tell whether there has never been a database."""
    return not any(place.glob("asterism.db*")) and not (place / "snapshots").exists()


async def _contents(home: Asterism, place: Path, models: set[str]) -> AsyncIterator[Finding]:
    from asterism.store.sqlite import holder_of

    agents = await home.agents()
    models.update(home.model_of(agent) for agent in agents)
    yield Finding("agents", OK, plural(len(agents), "agent"))
    holder = None if home.database.distributed else holder_of(place)
    if not home.database.distributed:
        said = f"process {holder} is at work here" if holder else "none is at work here"
        yield Finding("process", OK, said)
    async for finding in _left(home, at_work=bool(holder) or home.database.distributed):
        yield finding


async def _left(home: Asterism, *, at_work: bool) -> AsyncIterator[Finding]:
    """Tell what waits for a process or for a person."""
    unfinished = len(await home.unfinished())
    if unfinished and not at_work:
        said = f"{plural(unfinished, 'message')} not answered yet"
        yield Finding("turns", LOOK, said, '"asterism" or "asterism serve" goes on with them.')
    else:
        yield await _stuck(home)
    if count := len(await home.approvals()):
        said = f"{plural(count, 'question')} without an answer"
        yield Finding("approvals", LOOK, said, '"asterism approval list" shows them.')
    if count := len(await home.deliveries("dead")):
        said = f"{plural(count, 'message')} could not be delivered"
        yield Finding("outbox", LOOK, said, '"asterism outbox list --state dead" shows why.')
    if count := len(await home.notices()):
        yield Finding(
            "notices",
            LOOK,
            f"{plural(count, 'notice')} not seen yet",
            '"asterism notice list" shows them.',
        )


async def _stuck(home: Asterism) -> Finding:
    from asterism.types.ids import now_ms

    limits = {agent.id: agent.limits.seconds for agent in await home.agents()}
    stuck = [
        turn.id
        for turn in await home.turns(limit=200)
        if turn.state.value == "open"
        and now_ms() - turn.opened_at > limits.get(turn.agent_id, 0) * 1000 + 60_000
    ]
    if not stuck:
        return Finding("turns", OK, "none is stuck")
    remedy = "See what holds them up in the log; a restart takes them up again."
    return Finding("turns", LOOK, f"longer than they may be: {', '.join(stuck[:5])}", remedy)


# -- models and channels -------------------------------------------------------------------------


async def _model(settings: Settings, model: str, *, probe: bool) -> Finding:
    from asterism.app import make_model
    from asterism.ports import ModelRequest
    from asterism.types.wire import message_wire

    try:
        port = make_model(settings, model)
    except AsterismError as error:
        return Finding("model", BAD, error.message)
    try:
        if probe:
            asked = [message_wire("user", "Say ok.")]
            name = model.partition(":")[2]
            await port.complete(ModelRequest(name, asked, None, "doctor", 60.0))
            return Finding("model", OK, f"{model} answers")
        return await _reach(settings, model)
    except AsterismError as error:
        return Finding("model", BAD, error.message)
    finally:
        await port.close()


async def _reach(settings: Settings, model: str) -> Finding:
    """See, without asking the model anything, whether it could be asked."""
    from asterism import plugins
    from asterism.models.openai import OPENAI_URL

    vendor = model.partition(":")[0]
    if settings.api_of(vendor, plugins.names("models")) == "demo":
        remedy = 'Set OPENAI_API_KEY, or name another with model = "vendor:name" in asterism.toml.'
        return Finding("model", LOOK, f"{model} is built in, and no language model.", remedy)
    if missing := _missing_key(settings, vendor):
        remedy = f"Set it, or write key under [models.{vendor}] in asterism.toml."
        return Finding("model", BAD, f"{model} needs a key, but {missing} is not set.", remedy)
    configured = settings.models.get(vendor)
    parts = urlsplit((configured.base_url if configured else None) or OPENAI_URL)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        async with asyncio.timeout(_PATIENCE):
            _, writer = await asyncio.open_connection(parts.hostname, port)
        writer.close()
    except (OSError, TimeoutError) as error:
        said = f"{model}: {parts.hostname}:{port} cannot be reached ({error or 'no answer'})."
        return Finding("model", BAD, said, "Start it, or correct base_url in asterism.toml.")
    return Finding(
        "model", OK, f"{model} at {parts.hostname}:{port} can be reached; --probe asks it"
    )


def _missing_key(settings: Settings, vendor: str) -> str | None:
    """Return the environment variable that should hold a vendor's key, if there is no key."""
    configured = settings.models.get(vendor)
    if configured and (configured.key or not (configured.key_env or vendor == "openai")):
        return None
    if configured and configured.base_url and not configured.key_env:
        return None
    variable = (configured.key_env if configured else None) or "OPENAI_API_KEY"
    return None if os.environ.get(variable) else variable


def _channels(settings: Settings) -> Iterator[Finding]:
    from asterism import plugins

    for name, configured in settings.channels.items():
        try:
            plugins.load("channels", configured.type)(name, configured.options)
        except AsterismError as error:
            yield Finding("channel", BAD, f"{name}: {error.message}")
        else:
            yield Finding("channel", OK, f"{name} ({configured.type})")
