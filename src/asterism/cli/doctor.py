"""`asterism doctor`: what is wrong, and how to put it right."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from asterism.cli.finding import BAD, LOOK, OK, CheckResult
from asterism.cli.home import stored_keys
from asterism.cli.options import Options
from asterism.cli.output import Output, console
from asterism.cli.text import plural, printable
from asterism.errors import AsterismError, StoreMissing
from asterism.private import others_may

if TYPE_CHECKING:
    from asterism.app import Asterism
    from asterism.config import Settings

_MARKS = {OK: ("✓", "green"), LOOK: ("!", "yellow"), BAD: ("✗", "red")}
_LITTLE_ROOM, _NO_ROOM = 500_000_000, 20_000_000


def doctor(
    options: Options,
    offline: Annotated[
        bool, typer.Option("--offline", help="Do not ask the models, only look at what is here.")
    ] = False,
) -> None:
    """Say what is wrong and how to put it right, and ask each model for one token.

    Of what is at rest it only reads, and so works beside a running process.
    """
    from asterism.cli import log

    log.start(None)
    findings = asyncio.run(_examine(options, offline=offline))
    out = Output(json=options.json)
    if out.json:
        out.data([asdict(finding) for finding in findings])
    else:
        _print(findings)
    if any(finding.state == BAD for finding in findings):
        raise typer.Exit(1)


def _print(findings: list[CheckResult]) -> None:
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
        told = Text(printable(finding.text), overflow="fold")
        if finding.remedy:
            told.append(f"\n→ {printable(finding.remedy)}", style)
        table.add_row(Text(mark, style), Text(finding.check, "bold"), told)
    screen.print(table)


async def _examine(options: Options, *, offline: bool) -> list[CheckResult]:
    from asterism.cli.mcp_check import check_servers
    from asterism.cli.model_check import check_models
    from asterism.cli.sandbox_check import check_sandbox

    place = options.place
    findings = [_python(), *_directory(place)]
    settings, finding = _configuration(options)
    findings.append(finding)
    if settings is None:
        return findings
    models = {settings.default_model}
    findings += [finding async for finding in _store(options, settings, models)]
    # What is wrong with the store was told just now.
    async with stored_keys(options, lenient=True) as keys:
        findings += await check_models(settings, models, keys, offline=offline)
    findings.append(await check_sandbox(settings, place))
    findings += await check_servers(options, settings, offline=offline)
    return [*findings, *_channels(settings)]


# -- the place -----------------------------------------------------------------------------------


def _python() -> CheckResult:
    version = ".".join(map(str, sys.version_info[:3]))
    return CheckResult("python", OK, f"{version} at {sys.executable}")


def _directory(place: Path) -> Iterator[CheckResult]:
    if not place.exists():
        yield CheckResult("data", LOOK, f"{place} is not there yet.", '"asterism" creates it.')
        return
    if not place.is_dir():
        yield CheckResult("data", BAD, f"{place} is no directory.", "Choose another with --data.")
        return
    if not os.access(place, os.W_OK | os.X_OK):
        remedy = "Give this user write access, or choose another with --data."
        yield CheckResult("data", BAD, f"{place} cannot be written.", remedy)
    else:
        yield CheckResult("data", OK, str(place))
    yield from _access(place)
    free = shutil.disk_usage(place).free
    said = f"{free / 1e9:,.1f} GB free"
    if free < _LITTLE_ROOM:
        state = BAD if free < _NO_ROOM else LOOK
        yield CheckResult("room", state, said, "Free some space: turns wait when the disk is full.")
    else:
        yield CheckResult("room", OK, said)


def _access(place: Path) -> Iterator[CheckResult]:
    """Tell what other users of the machine may do with what is here."""
    database = place / "asterism.db"
    if others := others_may(place):
        remedy = f'Run "chmod 700 {place}".'
    elif place.stat().st_mode & 0o011 and database.exists() and (others := others_may(database)):
        place, remedy = database, f'Run "chmod 600 {database}*".'
    else:
        return
    # What others can change is worse than what they can read.
    state, word = (BAD, "changed") if others == "write" else (LOOK, "read")
    yield CheckResult("access", state, f"{place} can be {word} by other users.", remedy)


def _configuration(options: Options) -> tuple[Settings | None, CheckResult]:
    from asterism.config import config_file, load

    file = config_file(options.place, options.config, os.environ)
    try:
        settings = load(options.place, options.config, os.environ)
    except AsterismError as error:
        remedy = f"Correct it in {file} or in the environment."
        return None, CheckResult("configuration", BAD, error.message, remedy)
    said = (
        str(file) if file.exists() else f"{file} is not there, and need not be: defaults are used."
    )
    return settings, CheckResult("configuration", OK, said)


# -- the store -----------------------------------------------------------------------------------


async def _store(
    options: Options, settings: Settings, models: set[str]
) -> AsyncIterator[CheckResult]:
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
                yield CheckResult(
                    "store", BAD, f"{kind} is damaged: {'; '.join(faults[:3])}", remedy
                )
                return
            yield CheckResult(
                "store", OK, f"{kind}, healthy, with a schema that this release knows"
            )
            async for finding in _contents(home, options.place, models):
                yield finding
    except StoreMissing as error:
        yield CheckResult("store", LOOK if _is_new(options.place) else BAD, error.message)
    except AsterismError as error:
        yield CheckResult("store", BAD, error.message)
    except TimeoutError:
        yield CheckResult("store", BAD, f"{kind} does not answer.", "See whether its server works.")


def _is_new(place: Path) -> bool:
    """Tell whether there has never been a database."""
    return not any(place.glob("asterism.db*")) and not (place / "snapshots").exists()


async def _contents(home: Asterism, place: Path, models: set[str]) -> AsyncIterator[CheckResult]:
    from asterism.store.sqlite import holder_of

    agents = await home.agents.list()
    models.update(home.agents.model_of(agent) for agent in agents)
    yield CheckResult("agents", OK, plural(len(agents), "agent"))
    holder = None if home.database.distributed else holder_of(place)
    if not home.database.distributed:
        said = f"process {holder} is at work here" if holder else "none is at work here"
        yield CheckResult("process", OK, said)
    yield await _searching(home)
    async for finding in _left(home, at_work=bool(holder) or home.database.distributed):
        yield finding


async def _searching(home: Asterism) -> CheckResult:
    """Tell by what texts are found."""
    encoder = home.settings.search.encoder
    if encoder == "none":
        return CheckResult("search", OK, "by words and static vectors; no encoder is wanted")
    if problem := await home.indexing.check():
        return CheckResult("search", LOOK, problem, "Until then search goes by words, without it.")
    done, total = await home.indexing.progress()
    return CheckResult("search", OK, f"{encoder}: {done:,} of {total:,} indexed texts have vectors")


async def _left(home: Asterism, *, at_work: bool) -> AsyncIterator[CheckResult]:
    """Tell what waits for a process or for a person."""
    unfinished = len(await home.turns.unfinished())
    if unfinished and not at_work:
        said = f"{plural(unfinished, 'message')} not answered yet"
        yield CheckResult("turns", LOOK, said, '"asterism" or "asterism serve" goes on with them.')
    else:
        yield await _stuck(home)
    if count := len(await home.approvals.list()):
        said = f"{plural(count, 'question')} without an answer"
        yield CheckResult("approvals", LOOK, said, '"asterism approval list" shows them.')
    if count := len(await home.outbox.list("dead")):
        said = f"{plural(count, 'message')} could not be delivered"
        yield CheckResult("outbox", LOOK, said, '"asterism outbox list --state dead" shows why.')
    if count := len(await home.notices.list()):
        yield CheckResult(
            "notices",
            LOOK,
            f"{plural(count, 'notice')} not seen yet",
            '"asterism notice list" shows them.',
        )


async def _stuck(home: Asterism) -> CheckResult:
    from asterism.types.agents import now_ms

    limits = {agent.id: agent.limits.seconds for agent in await home.agents.list()}
    stuck: list[str] = []
    for turn in await home.turns.list(limit=200):
        latest = now_ms() - int(limits.get(turn.agent_id, 0) * 1000) - 60_000
        if turn.state.value == "open" and turn.opened_at < latest:
            _, entries = await home.turns.get(turn.id)
            # Each decision of a person gives a turn its time anew.
            if all(entry.at < latest for entry in entries if entry.is_decision):
                stuck.append(turn.id)
    if not stuck:
        return CheckResult("turns", OK, "none is stuck")
    remedy = "See what holds them up in the log; a restart takes them up again."
    return CheckResult("turns", LOOK, f"longer than they may be: {', '.join(stuck[:5])}", remedy)


# -- channels ------------------------------------------------------------------------------------


def _channels(settings: Settings) -> Iterator[CheckResult]:
    from asterism import plugins

    for name, configured in settings.channels.items():
        try:
            plugins.load("channels", configured.type)(name, configured.options)
        except AsterismError as error:
            yield CheckResult("channel", BAD, f"{name}: {error.message}")
        else:
            yield CheckResult("channel", OK, f"{name} ({configured.type})")
