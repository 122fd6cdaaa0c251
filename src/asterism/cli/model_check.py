"""Whether the models that are configured answer, as `asterism doctor` asks them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

from asterism.cli.finding import BAD, LOOK, OK, CheckResult
from asterism.errors import AsterismError

if TYPE_CHECKING:
    from asterism.app.keys import StoredKeys
    from asterism.config import Settings

PATIENCE = 20.0
"""Seconds that a model has for its one token."""


async def check_models(
    settings: Settings, models: Iterable[str], keys: StoredKeys, *, offline: bool
) -> list[CheckResult]:
    """Ask every model of these chains for one token, all at the same time."""
    from asterism.types.agents import chain_of

    named = sorted({one for model in models for one in chain_of(model)})
    findings = await asyncio.gather(
        *(_check(settings, model, keys, offline=offline) for model in named)
    )
    in_use = {model.partition(":")[0] for model in named}
    unused = [vendor for vendor in settings.models if vendor not in in_use]
    return [*findings, *(_unused(vendor) for vendor in unused)]


def _unused(vendor: str) -> CheckResult:
    said = f"[models.{vendor}] is configured, and no agent uses it; it was not asked"
    return CheckResult("model", OK, said)


async def _check(settings: Settings, model: str, keys: StoredKeys, *, offline: bool) -> CheckResult:
    from asterism import plugins
    from asterism.config.vendors import EMBEDDED

    vendor, _, name = model.partition(":")
    if settings.api_of(vendor, plugins.names("models")) == "demo":
        said = f"{model} is built in, and no language model."
        return CheckResult("model", LOOK, said, '"asterism setup" finds or fetches a real one.')
    if vendor == EMBEDDED and (problem := _lacks_weights(name)):
        return problem
    if offline:
        return _by_looks(settings, model, keys)
    return await _ask(settings, model, keys, embedded=vendor == EMBEDDED)


async def _ask(settings: Settings, model: str, keys: StoredKeys, *, embedded: bool) -> CheckResult:
    from asterism.app.discovery import try_model

    try:
        async with asyncio.timeout(PATIENCE):
            trial = await try_model(settings, model, most=1, secret=keys.get)
    except AsterismError as error:
        return CheckResult("model", BAD, error.message)
    except TimeoutError:
        said = f"{model} said nothing within {PATIENCE:g} s."
        return CheckResult("model", BAD, said, "Ask it again when its server is less busy.")
    how = "; it ran in a process of its own, which has ended" if embedded else ""
    return CheckResult("model", OK, f"{model} answers after {trial.seconds:.1f} s{how}")


def _by_looks(settings: Settings, model: str, keys: StoredKeys) -> CheckResult:
    """See, without asking anybody, whether a model could be asked."""
    from asterism import plugins
    from asterism.app.keys import key_place

    vendor = model.partition(":")[0]
    known = plugins.names("models")
    if settings.api_of(vendor, known) not in known:
        said = f"{model} names the vendor {vendor!r}, which is not known or lacks its plugin."
        return CheckResult("model", BAD, said, f"Known: {', '.join(known)}. See [models.{vendor}].")
    place = key_place(settings, vendor, keys, os.environ)
    if place.lacks:
        remedy = (
            f'Set it, run "asterism key set {vendor}", or write key under [models.{vendor}] in '
            "asterism.toml."
        )
        return CheckResult("model", BAD, f"{model} needs a key, but {place.problem}.", remedy)
    return CheckResult("model", OK, f"{model} is configured; without --offline it is asked")


def _lacks_weights(name: str) -> CheckResult | None:
    from asterism.config.vendors import can_embed
    from asterism.models.embedded.weights import WeightsDirectory

    if not can_embed():
        said = f"embedded:{name} needs xllamacpp, which is not installed."
        return CheckResult("model", BAD, said, "pip install 'asterism[embedded]'")
    try:
        if WeightsDirectory().path(name) is not None:
            return None
    except AsterismError as error:
        return CheckResult("model", BAD, error.message)
    said = f"The weights of embedded:{name} are not on this machine."
    return CheckResult("model", BAD, said, f'"asterism model pull {name}" gets them.')
