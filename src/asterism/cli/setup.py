"""`asterism setup` and the first start: model, first agent and spending.

Both ask a person at the terminal, and so are plain functions that run what is async piece by piece.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import sys
from dataclasses import field
from typing import TYPE_CHECKING, Annotated

from asterism.cli.commands import Options, flag, open_home, option
from asterism.cli.inputs import FIRST_AGENT, number_of
from asterism.cli.model import fetch
from asterism.cli.output import Grid, Output, Result, console, one_line
from asterism.cli.terminal import (
    NOTE_STYLE,
    WARNING_STYLE,
    ask,
    ask_secret,
    confirm,
    may_ask,
    say,
)
from asterism.errors import AsterismError, InvalidInput, StoreMissing
from asterism.records import dataclass

if TYPE_CHECKING:
    from asterism.app.discovery import AvailableModel
    from asterism.app.keys import KeyPlace, StoredKeys
    from asterism.config import Settings
    from asterism.config.parse import Key
    from asterism.models.embedded.weights import ModelWeights
    from asterism.types.agents import AgentRecord

_NONE = "none"
_DEMO_HINT = (
    "The chat opens with the demo model, which is not a real language model; "
    '"asterism setup" changes it at any time.'
)
_TOUR_HINT = '"asterism tour" shows in two minutes what your agents can do.'
_USUAL_CAP = 5.0
_WIDE = 72

Model = Annotated[str | None, option("--model", "MODEL", "The model, such as ollama:llama3.2.")]
AgentName = Annotated[str | None, option("--agent", "NAME", "The name of the first agent.")]
Persona = Annotated[str | None, option("--persona", "TEXT", "Who it is: its system prompt.")]
Cap = Annotated[str | None, option("--cap", "USD", "The daily spending limit in dollars, or none.")]
Zone = Annotated[
    str | None, option("--timezone", "ZONE", "The owner's time zone, such as Europe/Berlin.")
]
Yes = Annotated[
    bool, flag("--yes -y", "Ask no questions: options that you leave out stay unchanged.")
]


@dataclass(frozen=True, slots=True)
class _Current:
    """What is in use now, which is the default of each question."""

    settings: Settings
    agent: AgentRecord | None
    found: list[AvailableModel]
    keys: StoredKeys


@dataclass(slots=True)
class _Plan:
    """What is to be written when all is answered."""

    changes: dict[Key, object]
    keys: dict[str, str] = field(default_factory=dict[str, str], repr=False)
    """Keys that were typed, by the names they are stored under."""
    agent: str | None = None
    persona: str | None = None
    model: str = ""


def setup(
    options: Options,
    model: Model = None,
    agent: AgentName = None,
    persona: Persona = None,
    cap: Cap = None,
    timezone: Zone = None,
    yes: Yes = False,
) -> Result | None:
    """Choose the model, first agent, spending limit and time zone. Can be run again at any time."""
    asking = may_ask(yes=yes) and not options.json
    if not asking and all(value is None for value in (model, agent, persona, cap, timezone)):
        raise InvalidInput(
            "There is nothing to set up: this is not a terminal, and no options were used. "
            'Run "asterism setup" in a terminal, or use options such as --model ollama:llama3.2; '
            '"asterism setup --help" shows all. Nothing was changed.'
        )
    current = asyncio.run(_look(options, asking=asking))
    plan = _Plan({})
    _plan_model(plan, current, model, asking=asking)
    _plan_agent(plan, current, agent, persona, asking=asking)
    _plan_cap(plan, current, cap, asking=asking)
    _plan_zone(plan, current, timezone, asking=asking)
    return _carry_out(options, plan, current, asking=asking)


async def _look(options: Options, *, asking: bool) -> _Current:
    from asterism.app.discovery import discover
    from asterism.app.keys import NoStoredKeys
    from asterism.config import load

    settings = load(options.place, options.config, os.environ)
    agent: AgentRecord | None = None
    keys: StoredKeys = NoStoredKeys()
    try:
        async with open_home(options, readonly=True) as home:
            agents, keys = await home.agents.list(), home.keys
            agent = min(agents, key=lambda agent: agent.created_at_ms, default=None)
    except StoreMissing:
        pass
    models = await discover(os.environ) if asking else []
    return _Current(settings, agent, models, keys)


# -- the model -----------------------------------------------------------------------------------


def _plan_model(plan: _Plan, current: _Current, answer: str | None, *, asking: bool) -> None:
    plan.model = current.settings.default_model
    if answer is not None:
        chosen = _settings_by_name(current.settings, answer)
    elif asking:
        chosen = _ask_model(current)
    else:
        return
    if chosen is None:
        return
    plan.model = str(chosen["model",])
    if plan.model != current.settings.model:
        plan.changes |= chosen
    if asking:
        for vendor, place in _without_key(current, plan.model).items():
            _ask_key(plan, current, vendor, place)


def _settings_by_name(settings: Settings, text: str) -> dict[Key, object]:
    """Return what to write for a model that was named: `vendor:name`, or several with commas."""
    from asterism import plugins
    from asterism.app.session import checked_model
    from asterism.config.vendors import EMBEDDED, vendors
    from asterism.models.embedded.weights import WeightsDirectory
    from asterism.types.agents import DEFAULT_MODEL, chain_of

    if text == DEFAULT_MODEL:
        raise InvalidInput(
            "'default' is not a valid choice here: it refers to this setting. Use vendor:name, "
            "such as ollama:llama3.2. Nothing was changed."
        )
    installed = plugins.names("models")
    chain = [_with_vendor(name) for name in chain_of(text)]
    for model in chain:
        vendor, _, name = checked_model(model).partition(":")
        if vendor == EMBEDDED:
            WeightsDirectory().weights(name)
        elif settings.api_of(vendor, installed) not in installed:
            known = ", ".join(sorted({*installed, *vendors(), *settings.models}))
            raise InvalidInput(
                f"{model!r} names the vendor {vendor!r}, which is not known or lacks its plugin. "
                f"Known: {known}. Nothing was changed."
            )
    return {("model",): ", ".join(chain)}


def _with_vendor(model: str) -> str:
    """Return a model as `vendor:name`; the bare name of weights will do."""
    from asterism.config.vendors import EMBEDDED
    from asterism.models.embedded.weights import WeightsDirectory

    return (
        f"{EMBEDDED}:{model}"
        if ":" not in model and model in WeightsDirectory().available()
        else model
    )


def _ask_model(current: _Current) -> dict[Key, object] | None:
    from asterism.config.vendors import DEMO

    offers = [model for model in current.found if model.ready or model.embedded]
    rows = [(offer.model, f"{offer.where} · {offer.why}") for offer in offers]
    rows.append((DEMO, "built in · answers from a few rules, not a real language model"))
    say("Available models:")
    _show_numbered(rows)
    for offer in offers:
        if offer.others:
            say(f"  Also at {offer.where}: {', '.join(offer.others)}", NOTE_STYLE)

    def choice(text: str) -> dict[Key, object]:
        number = number_of(text)
        if number is None:
            return _settings_by_name(current.settings, text)
        if not 1 <= number <= len(rows):
            raise InvalidInput(f"{number} is not in the list; the last number is {len(rows)}.")
        return _settings_for(offers[number - 1]) if number <= len(offers) else {("model",): DEMO}

    usual = current.settings.model or "1"
    chosen = ask("Model, by number or as vendor:name", usual, choice)
    return chosen or (None if current.settings.model else choice("1"))


def _show_numbered(rows: list[tuple[str, str]]) -> None:
    if console().width >= _WIDE:
        numbered = [(f" {number}", *row) for number, row in enumerate(rows, 1)]
        Grid(numbered).show(Output(json=False))
        return
    for number, (model, about) in enumerate(rows, 1):
        say(f"{number} {model}")
        say(about, NOTE_STYLE)


def _without_key(current: _Current, model: str) -> dict[str, KeyPlace]:
    """Return the vendors of a chain that need a key and have none, and where it should be."""
    from asterism.app.keys import key_place
    from asterism.types.agents import chain_of

    named = dict.fromkeys(name.partition(":")[0] for name in chain_of(model))
    places = {name: key_place(current.settings, name, current.keys, os.environ) for name in named}
    return {name: place for name, place in places.items() if place.lacks}


def _ask_key(plan: _Plan, current: _Current, vendor: str, place: KeyPlace) -> None:
    """Ask for a key, which is stored as "asterism key set" does."""
    from asterism.app.keys import STORED

    name = place.stored or vendor
    elsewhere = (
        "" if place.stored else f" You can also set {place.where} before you start asterism."
    )
    say(f"{vendor} needs a key. It is stored encrypted, and never shown.{elsewhere}")
    if key := ask_secret(f"Key for {vendor} (not shown; Enter skips it)").strip():
        plan.keys[name] = key
        if not place.stored and not current.settings.takes_stored_key(vendor, {}):
            plan.changes["models", vendor, "key"] = f"{STORED}{name}"
    else:
        say(f'"asterism key set {name}" stores it later; until then it is missing.', WARNING_STYLE)


# -- the rest ------------------------------------------------------------------------------------


def _plan_agent(
    plan: _Plan, current: _Current, name: str | None, persona: str | None, *, asking: bool
) -> None:
    from asterism.app.agents import DEFAULT_SYSTEM
    from asterism.app.session import checked_agent_name, checked_system

    present = current.agent.name if current.agent else FIRST_AGENT

    def check(name: str) -> str:
        return name if current.agent and name == present else checked_agent_name(name)

    if name is not None:
        name = check(name)
    elif asking:
        name = ask("Name of the first agent", present, check)
    plan.agent = name or (present if asking or persona is not None else None)
    if persona is not None:
        plan.persona = checked_system(persona)
        return
    written = current.agent.system if current.agent else DEFAULT_SYSTEM.format(name=present)
    if plan.agent and written == DEFAULT_SYSTEM.format(name=present):
        written = DEFAULT_SYSTEM.format(name=plan.agent)  # it goes by its new name
    if asking:
        plan.persona = ask(
            "Who it is, in a sentence or more", one_line(written, 60), checked_system
        )
    plan.persona = plan.persona or (written if plan.agent else None)


def _plan_cap(plan: _Plan, current: _Current, answer: str | None, *, asking: bool) -> None:
    def cap(text: str) -> tuple[float | None]:
        if text.lower() == _NONE:
            return (None,)
        try:
            dollars = float(text.removeprefix("$"))
        except ValueError:
            dollars = -1.0
        if not 0 < dollars <= 1_000_000:
            raise InvalidInput(
                f"{text!r} is not a valid cap. Use dollars a day above 0, such as 5 or 0.50, "
                'or "none". Nothing was changed.'
            )
        return (dollars,)

    present = current.settings.budget.day
    if answer is not None:
        chosen = cap(answer)
    elif asking:
        # Only who never chose a model gets a cap proposed: "none" may have been a choice.
        new = current.settings.model is None and _costs(current.settings, plan.model) is True
        offered = _USUAL_CAP if new and present is None else present
        usual = _NONE if offered is None else f"{offered:g}"
        question = 'Most to spend on models in a day, in dollars, or "none"'
        chosen = ask(question, usual, cap) or (offered,)
    else:
        return
    if chosen[0] != present:
        plan.changes["budget", "day"] = chosen[0]


def _plan_zone(plan: _Plan, current: _Current, answer: str | None, *, asking: bool) -> None:
    from asterism.times import zone_named

    def zone(text: str) -> str:
        try:
            zone_named(text)
        except ValueError:
            raise InvalidInput(
                f"{text!r} is not the name of a time zone on this machine. Use a name such as "
                "Europe/Berlin or America/New_York, with its capitals. Nothing was changed."
            ) from None
        return text

    chosen = None
    if answer is not None:
        chosen = zone(answer)
    elif asking:
        chosen = ask("Your time zone", current.settings.zone_name, zone)
    # What the machine says is not written by Enter: whoever moves with it need not come back.
    if chosen is not None and chosen != current.settings.timezone:
        plan.changes["timezone",] = chosen


def _costs(settings: Settings, model: str) -> bool | None:
    """Say whether asking a model costs money; None if its price is not known."""
    from asterism.config.load import FixedSettings
    from asterism.turns.spending import Prices
    from asterism.types.agents import chain_of
    from asterism.types.spending import FREE

    prices = [Prices(FixedSettings(settings)).of(name) for name in chain_of(model)]
    return None if None in prices else any(price != FREE for price in prices)


# -- carrying it out -----------------------------------------------------------------------------


def _carry_out(options: Options, plan: _Plan, current: _Current, *, asking: bool) -> Result | None:
    """Do all of it or nothing: the file is checked first, and put in place last."""
    from asterism.config.edit import edit

    with edit(options.place, options.config, os.environ, plan.changes) as prepared:
        place = asyncio.run(_store_keys(options, plan.keys))
        agent = asyncio.run(_apply_agent(options, plan, current))
        if plan.changes:
            prepared.commit()
    written = [".".join(map(str, key)) for key in plan.changes]
    if options.json:
        name = agent.name if agent else None
        return Result({"file": str(prepared.path), "written": written, "agent": name})
    if written:
        say(f"Wrote {', '.join(written)} to {prepared.path}.")
    if plan.keys:
        names = " and ".join(plan.keys)
        say(f"Stored the key of {names}, encrypted. The master key is in {place}: keep a copy.")
    if agent is not None:
        say(f'{agent.name} is ready. "asterism" opens the chat. {_TOUR_HINT}')
    if not written and not plan.keys and agent is None:
        say("This is already the current setup. Nothing was changed.")
    _warn(plan, current)
    _get_weights(plan.model, asking=asking)
    return None


async def _store_keys(options: Options, keys: dict[str, str]) -> str:
    """Store keys that were typed; return where the key is that opens them."""
    if not keys:
        return ""
    async with open_home(options) as home:
        for name, key in keys.items():
            await home.keys.set(name, key, by="cli")
        return home.keys.place()


async def _apply_agent(options: Options, plan: _Plan, current: _Current) -> AgentRecord | None:
    name, before = plan.agent, current.agent
    if name is None:
        return None
    if before and (before.name, before.system) == (name, plan.persona or before.system):
        return None
    async with open_home(options) as home:
        if before is None:
            return await home.agents.create(name, system=plan.persona)
        return await home.agents.edit(
            before.id, new_name=name if name != before.name else None, system=plan.persona
        )


def _warn(plan: _Plan, current: _Current) -> None:
    """Say what is written and yet without effect."""
    for key in plan.changes:
        variable = "ASTERISM_" + "__".join(map(str, key)).upper()
        if os.environ.get(variable):
            say(f"{variable} is set in the environment and overrides the file.", WARNING_STYLE)
    cap = plan.changes.get(("budget", "day"), current.settings.budget.day)
    if cap is not None and _costs(current.settings, plan.model) is None:
        say(
            f"The price of {plan.model} is not known, so the cap blocks it. Write "
            f'its price under [prices."{plan.model}"], or remove the cap with --cap none.',
            WARNING_STYLE,
        )
    if ("model",) in plan.changes and current.agent and current.agent.model != "default":
        name, model = current.agent.name, current.agent.model
        say(
            f"{name} keeps its own model, {model}. "
            f'"asterism agent edit {shlex.quote(name)} --model default" changes it.',
            NOTE_STYLE,
        )


def _get_weights(model: str, *, asking: bool) -> None:
    """Offer to fetch the weights of an embedded model that is not on this machine yet."""
    from asterism.config.vendors import EMBEDDED
    from asterism.types.agents import chain_of

    for part in chain_of(model):
        vendor, _, name = part.partition(":")
        if vendor == EMBEDDED:
            _offer_weights(name, asking=asking)


def _offer_weights(name: str, *, asking: bool) -> None:
    from asterism.models.embedded.weights import WeightsDirectory, format_bytes

    directory = WeightsDirectory()
    if directory.path(name) is not None:
        return
    size = format_bytes(directory.weights(name).size)
    if asking and confirm(f"{name} is not on this machine yet. Get it now ({size})?"):
        asyncio.run(fetch(name))
        return
    say(f'"asterism model pull {name}" gets it ({size}); until then it cannot answer.', NOTE_STYLE)


# -- the first start -------------------------------------------------------------------------------


def choose_model(options: Options, *, yes: bool) -> None:
    """Find or fetch a model for a new home, and ask about it once; a used home is left alone."""
    if any(options.place.glob("asterism.db*")) or not may_ask(yes=yes):
        return
    from asterism.config import load

    settings = load(options.place, options.config, os.environ)
    if settings.model is not None or settings.store.url is not None:
        return
    from asterism.app.discovery import discover

    models = asyncio.run(discover(os.environ))
    chosen = _accepted(models) or _embedded(models)
    if chosen is not None:
        _save(options, chosen)


def fetch_model(options: Options) -> None:
    """Fetch a model for a new home that has none or the smallest, where nobody can be asked.

    What is going on is told on standard error: standard output is for the answer.
    """
    from asterism.config import load

    settings = load(options.place, options.config, os.environ)
    if settings.store.url is not None or settings.model is not None:
        return
    if not (settings.default_model.startswith("demo:") or _is_smallest(settings.default_model)):
        return
    from asterism.app.discovery import discover

    with contextlib.redirect_stdout(sys.stderr):
        chosen = _embedded(asyncio.run(discover(os.environ)))
        if chosen is not None:
            _save(options, chosen)


def _is_smallest(model: str) -> bool:
    """Tell whether a model is the smallest embedded one, which talks poorly."""
    from asterism.config.vendors import EMBEDDED

    vendor, _, name = model.partition(":")
    if vendor != EMBEDDED:
        return False
    from asterism.models.embedded.weights import manifest

    return name == min(manifest().values(), key=lambda weights: weights.size).name


def hint_at_better(model: str) -> str:
    """Return a sentence on what is recommended instead of the smallest model; else nothing."""
    if not _is_smallest(model):
        return ""
    from asterism.models.embedded.weights import format_bytes, machine_memory, manifest

    for weights in manifest().values():
        if weights.recommended and weights.fits(machine_memory()):
            return (
                f"{model} is the smallest model and often wrong; {weights.name} is recommended: "
                f'"asterism model pull {weights.name}" gets it ({format_bytes(weights.size)}), and '
                f'"asterism model use embedded:{weights.name}" makes it the default.'
            )
    return ""


def _settings_for(model: AvailableModel) -> dict[Key, object]:
    """Return what must stand in the configuration for a model to be used."""
    changes: dict[Key, object] = {("model",): model.model}
    if model.base_url:
        changes["models", model.vendor, "base_url"] = model.base_url
    return changes


def _accepted(models: list[AvailableModel]) -> AvailableModel | None:
    """Propose the first model that could be asked at once."""
    offers = [offer for offer in models if not offer.embedded]
    for offer in offers:
        if not offer.ready:
            say(f"Found {offer.where}, but {offer.why}.", NOTE_STYLE)
    ready = [offer for offer in offers if offer.ready]
    if not ready:
        return None
    first, *others = ready
    if others:
        names = ", ".join(offer.model for offer in others)
        say(f'Also available here: {names}; "asterism setup" changes to them.', NOTE_STYLE)
    if confirm(f"Found {first.where}: use {first.model} ({first.why})?"):
        return first
    return None


def _embedded(models: list[AvailableModel]) -> AvailableModel | None:
    """Take the embedded model: what is on this machine, else what can be fetched."""
    from asterism.config.vendors import can_embed

    if not can_embed():
        say(
            "The library to run a model on this machine is not installed "
            f"(pip install 'asterism[embedded]'). {_DEMO_HINT}",
            WARNING_STYLE,
        )
        return None
    from asterism.models.embedded.weights import manifest

    embedded = {offer.name: offer for offer in models if offer.embedded}
    smallest = min(manifest().values(), key=lambda weights: weights.size)
    # The smallest talks poorly: that it is here is no reason to be content with it.
    here = (offer for offer in embedded.values() if offer.ready and offer.name != smallest.name)
    return next(here, None) or _fetched(embedded, smallest)


def _fetched(embedded: dict[str, AvailableModel], smallest: ModelWeights) -> AvailableModel | None:
    """Fetch the recommended weights, if there is memory for them, or else the smallest."""
    from asterism.models.embedded.weights import format_bytes, manifest

    offered = [weights for weights in manifest().values() if weights.name in embedded]
    measured = [weights for weights in offered if weights.measured]
    best = next((weights for weights in measured if weights.recommended), smallest)
    if best is smallest and measured:  # there is not enough memory for the recommended ones
        best = max(measured, key=lambda weights: weights.size)
    for weights in dict.fromkeys((best, smallest)):
        say(
            f"Getting {weights.name} ({format_bytes(weights.size)}, {weights.licence}), a language "
            f"model that runs on this machine and takes {weights.memory_bytes / 1e9:.1f} GB of "
            f"memory. {weights.about} "
            "This happens once per machine; Ctrl-C skips it. Meanwhile, in another terminal: "
            f"{_TOUR_HINT}",
        )
        try:
            asyncio.run(fetch(weights.name))
        except KeyboardInterrupt:
            if (spare := embedded.get(smallest.name)) is not None and spare.ready:
                hint = hint_at_better(spare.model)
                say(f"Skipped; the downloaded part is kept. {hint}".rstrip(), WARNING_STYLE)
                return None  # nothing is written, so that what is fetched later is used
            say(f"Skipped; the downloaded part is kept. {_DEMO_HINT}", WARNING_STYLE)
            return None
        except AsterismError as error:
            say(error.message, WARNING_STYLE)
        else:
            offer = embedded.get(weights.name)
            if offer is None or weights is best:
                return offer
            say(hint_at_better(offer.model), WARNING_STYLE)
            return None  # nothing is written, so that what is fetched later is used
    say(_DEMO_HINT, WARNING_STYLE)
    say(_TOUR_HINT)
    return None


def _save(options: Options, chosen: AvailableModel) -> None:
    """Write the choice down, so that nothing is asked again and a new key changes nothing."""
    from asterism.config.edit import save

    try:
        file = save(options.place, options.config, os.environ, _settings_for(chosen))
    except AsterismError as error:
        say(f"{error.message} This start continues without it.", WARNING_STYLE)
        return
    say(f'Wrote model = "{chosen.model}" to {file}.', NOTE_STYLE)
