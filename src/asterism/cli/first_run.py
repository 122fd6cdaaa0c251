"""The first start: a model is found or fetched before the chat opens, and asked about once."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

from asterism.cli.options import Options
from asterism.cli.questions import confirm, may_ask, tell
from asterism.errors import AsterismError

if TYPE_CHECKING:
    from asterism.app.discovery import AvailableModel
    from asterism.config.parse import Key
    from asterism.models.embedded.weights import ModelWeights

_NOTE, _WARNING = "bright_black", "yellow"
_DEMO = (
    "The chat opens with the demo model, which is none that thinks; "
    '"asterism setup" chooses another at any time.'
)


def choose_model(options: Options, *, yes: bool) -> None:
    """See to it that a new home has a model; a home that has been used is left alone."""
    if any(options.place.glob("asterism.db*")) or not may_ask(yes=yes):
        return
    from asterism.config import load

    settings = load(options.place, options.config, os.environ)
    if settings.model is not None or settings.store.url is not None:
        return
    from asterism.app.discovery import discover

    found = asyncio.run(discover(os.environ))
    chosen = _accepted(found) or _embedded(found)
    if chosen is not None:
        _keep(options, chosen)


def settings_for(finding: AvailableModel) -> dict[Key, object]:
    """Return what must stand in the configuration for a model to be used."""
    changes: dict[Key, object] = {("model",): finding.model}
    if finding.base_url:
        changes["models", finding.vendor, "base_url"] = finding.base_url
    return changes


def _accepted(found: list[AvailableModel]) -> AvailableModel | None:
    """Propose the first model that could be asked at once."""
    offers = [one for one in found if not one.embedded]
    for one in offers:
        if not one.ready:
            tell(f"Found {one.where}, but {one.why}.", _NOTE)
    ready = [one for one in offers if one.ready]
    if not ready:
        return None
    first, *others = ready
    if others:
        names = ", ".join(one.model for one in others)
        tell(f'Also to be had here: {names}; "asterism setup" changes to them.', _NOTE)
    if confirm(f"Found {first.where}: use {first.model} ({first.why})?"):
        return first
    return None


def _embedded(found: list[AvailableModel]) -> AvailableModel | None:
    """Take the embedded model: what is on this machine, else what can be fetched."""
    from asterism.config.vendors import can_embed

    if not can_embed():
        tell(
            "What runs a model on this machine is not installed "
            f"(pip install 'asterism[embedded]'). {_DEMO}",
            _WARNING,
        )
        return None
    from asterism.models.embedded.weights import manifest

    ours = {one.name: one for one in found if one.embedded}
    smallest = min(manifest().values(), key=lambda one: one.size)
    # The smallest talks poorly: that it is here is no reason to be content with it.
    here = (one for one in ours.values() if one.ready and one.name != smallest.name)
    return next(here, None) or _fetched(ours, smallest)


def _fetched(ours: dict[str, AvailableModel], smallest: ModelWeights) -> AvailableModel | None:
    """Fetch the recommended weights, or the smallest if no place has those."""
    from asterism.cli.model import fetch
    from asterism.models.embedded.weights import format_bytes, manifest

    best = next(one for one in manifest().values() if one.recommended)
    for one in dict.fromkeys((best, smallest)):
        tell(
            f"Getting {one.name} ({format_bytes(one.size)}, {one.licence}), a language model that "
            f"runs on this machine. {one.about} Once per machine; Ctrl-C skips it.",
        )
        try:
            fetch(one.name)
        except KeyboardInterrupt:
            if (spare := ours[smallest.name]).ready:
                tell(
                    f"Skipped; what was fetched is kept. {spare.name} is here meanwhile.", _WARNING
                )
                return spare
            tell(f"Skipped; what was fetched is kept. {_DEMO}", _WARNING)
            return None
        except AsterismError as error:
            tell(error.message, _WARNING)
        else:
            return ours[one.name]
    tell(_DEMO, _WARNING)
    return None


def _keep(options: Options, chosen: AvailableModel) -> None:
    """Write the choice down, so that nothing is asked again and a new key changes nothing."""
    from asterism.config.edit import save

    try:
        file = save(options.place, options.config, os.environ, settings_for(chosen))
    except AsterismError as error:
        tell(f"{error.message} This start goes on without it.", _WARNING)
        return
    tell(f'Wrote model = "{chosen.model}" to {file}.', _NOTE)
