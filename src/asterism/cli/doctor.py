"""`asterism doctor`: what is wrong, and how to fix it."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import shlex
import shutil
import sys
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from asterism.cli import log
from asterism.cli.commands import FAILED, Options, flag, open_home, stored_keys
from asterism.cli.halt import RESUME, halt_text
from asterism.cli.output import Result, console, plural, printable
from asterism.errors import AsterismError, Conflict, StoreMissing
from asterism.private import others_may
from asterism.records import dataclass

if TYPE_CHECKING:
    from asterism.app import Asterism
    from asterism.app.keys import StoredKeys
    from asterism.cli.output import Output
    from asterism.config import Settings
    from asterism.tools.mcp.clients import McpServerStatus

OK, LOOK, BAD = "ok", "look", "bad"
_MARKS = {OK: ("✓", "green"), LOOK: ("!", "yellow"), BAD: ("✗", "red")}
_LITTLE_ROOM, _NO_ROOM = 500_000_000, 20_000_000
_MODEL_TIMEOUT = 20.0
"""Seconds that a model has for its one token."""
_SERVER_TIMEOUT = 60.0


@dataclass(frozen=True, slots=True)
class CheckResult:
    """What one check found."""

    check: str
    state: str
    """`ok`, `look` (works, but look at it) or `bad` (does not work)."""
    text: str
    remedy: str = ""


async def doctor(
    options: Options,
    offline: Annotated[
        bool, flag("--offline", "Do not call the models, only check this machine.")
    ] = False,
) -> Result:
    """Show problems and how to fix them, and ask each model for one token.

    Of what is at rest it only reads, and so works beside a running process.
    """
    log.start(None)
    findings = await _examine(options, offline=offline)
    is_bad = any(finding.state == BAD for finding in findings)
    return Result(findings, _Findings(findings), code=FAILED if is_bad else 0)


@dataclass(frozen=True, slots=True)
class _Findings:
    """What the checks found, each with a mark."""

    findings: list[CheckResult]

    def show(self, out: Output) -> None:
        if sys.stdout.isatty():
            self._show_rich()
            return
        for finding in self.findings:
            remedy = f" → {finding.remedy}" if finding.remedy else ""
            text = f"{finding.text}{remedy}".replace("\n", " ")
            out.line(f"{_MARKS[finding.state][0]} {finding.check:<13} {text}")

    def _show_rich(self) -> None:
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 1, 0, 0))
        for finding in self.findings:
            mark, style = _MARKS[finding.state]
            text = Text(printable(finding.text), overflow="fold")
            if finding.remedy:
                text.append(f"\n→ {printable(finding.remedy)}", style)
            table.add_row(Text(mark, style), Text(finding.check, "bold"), text)
        console().print(table)


async def _examine(options: Options, *, offline: bool) -> list[CheckResult]:
    place = options.place
    findings = [_python(), *_directory(place)]
    settings, finding = _configuration(options)
    findings.append(finding)
    if settings is None:
        return findings
    findings.append(_time_zone(settings))
    models = {settings.default_model}
    findings += [finding async for finding in _store(options, settings, models)]
    # What is wrong with the store is reported above.
    async with stored_keys(options, lenient=True) as keys:
        findings += await _check_models(settings, models, keys, offline=offline)
    findings.append(await _check_sandbox(settings, place))
    findings += await _check_servers(options, settings, offline=offline)
    return [*findings, *_channels(settings)]


def _time_zone(settings: Settings) -> CheckResult:
    now = datetime.now(settings.zone)
    found = "set in the configuration" if settings.timezone else "that of this machine"
    return CheckResult("time", OK, f"{now:%a %Y-%m-%d %H:%M} in {settings.zone_name}, {found}")


# -- the place -----------------------------------------------------------------------------------


def _python() -> CheckResult:
    version = ".".join(map(str, sys.version_info[:3]))
    return CheckResult("python", OK, f"{version} at {sys.executable}")


def _directory(place: Path) -> Iterator[CheckResult]:
    if not place.exists():
        yield CheckResult("data", LOOK, f"{place} does not exist yet.", '"asterism" creates it.')
        return
    if not place.is_dir():
        yield CheckResult(
            "data", BAD, f"{place} is not a directory.", "Choose another with --data."
        )
        return
    if not os.access(place, os.W_OK | os.X_OK):
        remedy = "Give this user write access, or choose another with --data."
        yield CheckResult("data", BAD, f"{place} cannot be written.", remedy)
    else:
        yield CheckResult("data", OK, str(place))
    yield from _access(place)
    free = shutil.disk_usage(place).free
    text = f"{free / 1e9:,.1f} GB free"
    if free < _LITTLE_ROOM:
        state = BAD if free < _NO_ROOM else LOOK
        yield CheckResult("room", state, text, "Free some space: turns wait when the disk is full.")
    else:
        yield CheckResult("room", OK, text)


def _access(place: Path) -> Iterator[CheckResult]:
    """Say what other users of the machine may do with what is here."""
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
    from asterism.app.engine import channel_check
    from asterism.config import config_file, load

    file = config_file(options.place, options.config, os.environ)
    settings = None
    try:
        # What names a plugin that is not installed can be looked at all the same.
        settings = load(options.place, options.config, os.environ)
        load(options.place, options.config, os.environ, check=channel_check(()))
    except AsterismError as error:
        remedy = f"Correct it in {file} or in the environment."
        return settings, CheckResult("configuration", BAD, error.message, remedy)
    text = str(file) if file.exists() else f"{file} does not exist (optional): defaults are used."
    return settings, CheckResult("configuration", OK, text)


# -- the store -----------------------------------------------------------------------------------


async def _store(
    options: Options, settings: Settings, models: set[str]
) -> AsyncIterator[CheckResult]:
    """Look into the store; add the models of the agents there to `models`."""
    kind = "SQLite" if settings.store.url is None else "PostgreSQL"
    try:
        async with (
            asyncio.timeout(60),
            open_home(options, readonly=True) as home,
        ):
            faults = await home.check()
            if faults:
                yield _store_fault(kind, faults)
                return
            yield CheckResult("store", OK, f"{kind}, healthy, with a supported schema")
            async for finding in _contents(home, options.place, settings, models):
                yield finding
    except StoreMissing as error:
        yield CheckResult("store", LOOK if _is_new(options.place) else BAD, error.message)
    except AsterismError as error:
        yield CheckResult("store", BAD, error.message)
    except TimeoutError:
        yield CheckResult("store", BAD, f"{kind} does not answer.", "See whether its server works.")


def _is_new(place: Path) -> bool:
    """Say whether there has never been a database."""
    return not any(place.glob("asterism.db*")) and not (place / "snapshots").exists()


def _store_fault(kind: str, faults: Sequence[str]) -> CheckResult:
    """Say what is wrong with a store: it is damaged, or its server is set up unsafely."""
    from asterism.store.database import UNSAFE_SERVER

    told = " ".join(faults[:3])
    if all(fault.startswith(UNSAFE_SERVER) for fault in faults):
        remedy = "Set them to on in postgresql.conf, and reload it with SELECT pg_reload_conf()."
        return CheckResult("store", BAD, f"{kind} is whole, but not safe. {told}", remedy)
    remedy = "Restore it from a backup or a snapshot, and keep the damaged file."
    return CheckResult("store", BAD, f"{kind} is damaged. {told}", remedy)


async def _contents(
    home: Asterism, place: Path, settings: Settings, models: set[str]
) -> AsyncIterator[CheckResult]:
    from asterism.store.sqlite import holder_of

    agents = await home.agents.list()
    models.update(agent.model_in_use for agent in agents)
    yield CheckResult("agents", OK, plural(len(agents), "agent"))
    distributed = settings.store.url is not None
    holder = None if distributed else holder_of(place)
    if not distributed:
        text = f"process {holder} is running here" if holder else "none is at work here"
        yield CheckResult("process", OK, text)
    yield await _searching(home, settings.search.encoder)
    async for finding in _left(home, at_work=bool(holder) or distributed):
        yield finding


async def _searching(home: Asterism, encoder: str) -> CheckResult:
    """Say by what texts are found."""
    if encoder == "none":
        return CheckResult("search", OK, "by words and static vectors; no encoder is configured")
    if problem := await home.search.check():
        return CheckResult("search", LOOK, problem, "Until then, search uses words only.")
    done, total = await home.search.progress()
    if not total:
        text = f"{encoder}; the few texts there are so far are read as they are, without vectors"
        return CheckResult("search", OK, text)
    return CheckResult("search", OK, f"{encoder}: {done:,} of {total:,} indexed texts have vectors")


async def _left(home: Asterism, *, at_work: bool) -> AsyncIterator[CheckResult]:
    """Say what waits for a process or for a person."""
    unfinished = len(await home.turns.unfinished())
    if (halted := await home.halts.current()) is not None:
        waiting = f" {plural(unfinished, 'message')} not answered yet." if unfinished else ""
        yield CheckResult("halt", BAD, f"{halt_text(halted)}{waiting}", RESUME)
    elif unfinished and not at_work:
        text = f"{plural(unfinished, 'message')} not answered yet"
        yield CheckResult("turns", LOOK, text, '"asterism" or "asterism serve" continues them.')
    else:
        yield await _stuck(home)
    if count := len(await home.approvals.list()):
        text = f"{plural(count, 'question')} without an answer"
        yield CheckResult("approvals", LOOK, text, '"asterism approval list" shows them.')
    if count := len(await home.outbox.list("dead")):
        text = f"{plural(count, 'message')} could not be delivered"
        yield CheckResult("outbox", LOOK, text, '"asterism outbox list --state dead" shows why.')
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
        if turn.state.value == "open" and turn.opened_at_ms < latest:
            _, entries = await home.turns.get(turn.id)
            # Each decision of a person gives a turn its time anew.
            if all(entry.at_ms < latest for entry in entries if entry.is_decision):
                stuck.append(turn.id)
    if not stuck:
        return CheckResult("turns", OK, "none is stuck")
    remedy = "The log shows the reason; a restart continues them."
    return CheckResult("turns", LOOK, f"over their time limit: {', '.join(stuck[:5])}", remedy)


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


# -- models ----------------------------------------------------------------------------------------


async def _check_models(
    settings: Settings, models: Iterable[str], keys: StoredKeys, *, offline: bool
) -> list[CheckResult]:
    """Ask every model of these chains for one token, all at the same time."""
    from asterism.types.agents import chain_of

    named = sorted({name for chain in models for name in chain_of(chain)})
    findings = await asyncio.gather(
        *(_check_model(settings, model, keys, offline=offline) for model in named)
    )
    in_use = {model.partition(":")[0] for model in named}
    unused = [vendor for vendor in settings.models if vendor not in in_use]
    return [*findings, *(_unused_vendor(vendor) for vendor in unused)]


def _unused_vendor(vendor: str) -> CheckResult:
    text = f"[models.{vendor}] is configured, but no agent uses it; it was not tested"
    return CheckResult("model", OK, text)


async def _check_model(
    settings: Settings, model: str, keys: StoredKeys, *, offline: bool
) -> CheckResult:
    from asterism import plugins
    from asterism.config.vendors import EMBEDDED

    vendor, _, name = model.partition(":")
    if settings.api_of(vendor, plugins.names("models")) == "demo":
        text = f"{model} is built in; it is not a language model."
        return CheckResult("model", LOOK, text, '"asterism setup" finds or fetches a real one.')
    if vendor == EMBEDDED and (problem := _lacks_weights(name)):
        return problem
    if offline:
        return _check_offline(settings, model, keys)
    return await _ask_model(settings, model, keys, embedded=vendor == EMBEDDED)


async def _ask_model(
    settings: Settings, model: str, keys: StoredKeys, *, embedded: bool
) -> CheckResult:
    from asterism.app.discovery import try_model

    try:
        async with asyncio.timeout(_MODEL_TIMEOUT):
            trial = await try_model(settings, model, most=1, secret=keys.get)
    except AsterismError as error:
        return CheckResult("model", BAD, error.message)
    except TimeoutError:
        text = f"{model} did not answer within {_MODEL_TIMEOUT:g} s."
        return CheckResult("model", BAD, text, "Ask it again when its server is less busy.")
    how = "; it ran in a separate process, which has ended" if embedded else ""
    return CheckResult("model", OK, f"{model} answers after {trial.seconds:.1f} s{how}")


def _check_offline(settings: Settings, model: str, keys: StoredKeys) -> CheckResult:
    """See, without asking anybody, whether a model could be asked."""
    from asterism import plugins
    from asterism.app.keys import key_place

    vendor = model.partition(":")[0]
    known = plugins.names("models")
    if settings.api_of(vendor, known) not in known:
        text = f"{model} names the vendor {vendor!r}, which is not known or lacks its plugin."
        return CheckResult("model", BAD, text, f"Known: {', '.join(known)}. See [models.{vendor}].")
    place = key_place(settings, vendor, keys, os.environ)
    if place.lacks:
        remedy = (
            f'Set it, run "asterism key set {vendor}", or write key under [models.{vendor}] in '
            "asterism.toml."
        )
        return CheckResult("model", BAD, f"{model} needs a key, but {place.problem}.", remedy)
    return CheckResult("model", OK, f"{model} is configured; run without --offline to test it")


def _lacks_weights(name: str) -> CheckResult | None:
    from asterism.config.vendors import can_embed
    from asterism.models.embedded.weights import WeightsDirectory

    if not can_embed():
        text = f"embedded:{name} needs xllamacpp, which is not installed."
        return CheckResult("model", BAD, text, "pip install 'asterism[embedded]'")
    try:
        if WeightsDirectory().path(name) is not None:
            return None
    except AsterismError as error:
        return CheckResult("model", BAD, error.message)
    text = f"The weights of embedded:{name} are not on this machine."
    return CheckResult("model", BAD, text, f'"asterism model pull {name}" gets them.')


# -- sandbox and MCP servers -----------------------------------------------------------------------


async def _check_sandbox(settings: Settings, place: Path) -> CheckResult:
    """Say which sandbox programs would run in, after trying it."""
    from asterism.tools.builtin.shell import Workspaces, sandbox_status

    status = await sandbox_status(Workspaces(place, lambda: settings))
    if status.problem:
        return CheckResult(
            "sandbox", LOOK, status.problem, "Until then, shell and registered Python tools fail."
        )
    if status.kind == "unsandboxed":
        remedy = "Install bubblewrap, and remove sandbox.allow_unsandboxed from asterism.toml."
        return CheckResult("sandbox", LOOK, "Programs run with your rights.", remedy)
    limitations = "; ".join(status.limitations)
    return CheckResult(
        "sandbox", OK, f"{status.kind}: {limitations}" if limitations else status.kind
    )


async def _check_servers(
    options: Options, settings: Settings, *, offline: bool
) -> list[CheckResult]:
    """Ask each server for its tools; offline, say what is known of them."""
    if not settings.mcp:
        return []
    if importlib.util.find_spec("mcp") is None:
        remedy = "Install it with: pip install 'asterism[mcp]'."
        return [CheckResult("mcp", BAD, "servers are configured, but mcp is not installed", remedy)]
    try:
        async with open_home(options, readonly=True) as home:
            checks = (_check_server(home, server, offline) for server in home.mcp.list())
            return list(await asyncio.gather(*checks))
    except StoreMissing:
        text = f"{plural(len(settings.mcp), 'server')} configured, not asked yet"
        return [CheckResult("mcp", OK, text)]
    except AsterismError as error:
        return [CheckResult("mcp", BAD, error.message)]


async def _check_server(home: Asterism, server: McpServerStatus, offline: bool) -> CheckResult:
    if not server.settings.enabled:
        return CheckResult("mcp", OK, f"{server.name}: off")
    if not offline:
        try:
            async with asyncio.timeout(_SERVER_TIMEOUT):
                server = await home.mcp.ask(server.name)
        except TimeoutError:
            return CheckResult("mcp", BAD, f"{server.name}: no answer within {_SERVER_TIMEOUT:g} s")
        except Conflict as error:
            return CheckResult("mcp", LOOK, error.message)
        except AsterismError as error:
            return CheckResult("mcp", BAD, error.message)
    if server.listing is None:
        return CheckResult("mcp", OK, f"{server.name}: not asked yet")
    text = f"{server.name}: {plural(server.offered, 'tool')}, protocol {server.listing.protocol}"
    refused = [offer for offer in server.tools if offer.refused and not offer.excluded]
    if not refused:
        return CheckResult("mcp", OK, text)
    remedy = f'"asterism mcp tools {shlex.quote(server.name)}" shows why.'
    return CheckResult("mcp", LOOK, f"{text}; {plural(len(refused), 'tool')} not offered", remedy)
