"""`asterism setup`: model, first agent and spending, asked for or given as options."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from asterism.cli.first_run import settings_for
from asterism.cli.given import number_of
from asterism.cli.home import visit
from asterism.cli.options import Options
from asterism.cli.output import Output, console
from asterism.cli.questions import ask, ask_secret, confirm, may_ask, tell
from asterism.cli.text import one_line
from asterism.errors import InvalidInput, StoreMissing

if TYPE_CHECKING:
    from asterism.app import Asterism
    from asterism.app.discovery import AvailableModel
    from asterism.app.keys import KeyPlace, StoredKeys
    from asterism.config import Settings
    from asterism.config.parse import Key
    from asterism.types.agents import AgentRecord

_NONE = "none"
_NOTE, _WARNING = "bright_black", "yellow"
_USUAL_CAP = 5.0
_WIDE = 72

Model = Annotated[
    str | None,
    typer.Option("--model", metavar="MODEL", help="The model, such as ollama:llama3.2."),
]
AgentName = Annotated[
    str | None, typer.Option("--agent", metavar="NAME", help="The name of the first agent.")
]
Persona = Annotated[
    str | None, typer.Option("--persona", metavar="TEXT", help="Who it is: its system prompt.")
]
Cap = Annotated[
    str | None,
    typer.Option("--cap", metavar="USD", help="Dollars that may be spent in a day, or none."),
]
Yes = Annotated[
    bool, typer.Option("--yes", "-y", help="Ask nothing: what is not given stays as it is.")
]


@dataclass(frozen=True, slots=True)
class _Now:
    """What is in use now, which is the default of each question."""

    settings: Settings
    agent: AgentRecord | None
    found: list[AvailableModel]
    keys: StoredKeys


@dataclass(slots=True)
class _Plan:
    """What is to be written when all is answered."""

    changes: dict[Key, object]
    agent: str | None = None
    persona: str | None = None
    model: str = ""


def setup(
    options: Options,
    model: Model = None,
    agent: AgentName = None,
    persona: Persona = None,
    cap: Cap = None,
    yes: Yes = False,
) -> None:
    """Choose model, first agent and spending. It can be run again at any time."""
    given = {"model": model, "agent": agent, "persona": persona, "cap": cap}
    asking = may_ask(yes=yes) and not options.json
    if not asking and not any(value is not None for value in given.values()):
        raise InvalidInput(
            "There is nothing to set up: no question can be asked here, and no answer was given. "
            'Run "asterism setup" at a terminal, or give answers such as --model ollama:llama3.2; '
            '"asterism setup --help" shows all. Nothing was changed.'
        )
    now = _look(options, asking=asking)
    plan = _Plan({})
    _plan_model(plan, now, model, asking=asking)
    _plan_agent(plan, now, agent, persona, asking=asking)
    _plan_cap(plan, now, cap, asking=asking)
    _carry_out(options, plan, now, asking=asking)


def _look(options: Options, *, asking: bool) -> _Now:
    from asterism.app.discovery import discover
    from asterism.app.keys import NoStoredKeys
    from asterism.config import load

    async def first(home: Asterism) -> tuple[AgentRecord | None, StoredKeys]:
        return next(iter(await home.agents.list()), None), home.keys

    settings = load(options.place, options.config, os.environ)
    try:
        agent, keys = visit(options, first, readonly=True)
    except StoreMissing:
        agent, keys = None, NoStoredKeys()
    found = asyncio.run(discover(os.environ)) if asking else []
    return _Now(settings, agent, found, keys)


# -- the model -----------------------------------------------------------------------------------


def _plan_model(plan: _Plan, now: _Now, given: str | None, *, asking: bool) -> None:
    plan.model = now.settings.default_model
    if given is not None:
        chosen = settings_by_name(now.settings, given)
    elif asking:
        chosen = _ask_model(now)
    else:
        return
    if chosen is None:
        return
    plan.model = str(chosen["model",])
    if plan.model != now.settings.model:
        plan.changes |= chosen
    if asking:
        for vendor, place in _without_key(now, plan.model).items():
            _ask_key(plan, vendor, place)


def settings_by_name(settings: Settings, text: str) -> dict[Key, object]:
    """Return what to write for a model that was named: `vendor:name`, or several with commas."""
    from asterism import plugins
    from asterism.app.session import checked_model
    from asterism.config.vendors import EMBEDDED, vendors
    from asterism.models.embedded.weights import WeightsDirectory
    from asterism.types.agents import DEFAULT_MODEL, chain_of

    if text == DEFAULT_MODEL:
        raise InvalidInput(
            "'default' is what agents call the model that is chosen here; name it as vendor:name, "
            "such as ollama:llama3.2. Nothing was changed."
        )
    installed = plugins.names("models")
    chain = [_with_vendor(one) for one in chain_of(text)]
    for one in chain:
        vendor, _, name = checked_model(one).partition(":")
        if vendor == EMBEDDED:
            WeightsDirectory().weights(name)
        elif settings.api_of(vendor, installed) not in installed:
            known = ", ".join(sorted({*installed, *vendors(), *settings.models}))
            raise InvalidInput(
                f"{one!r} names the vendor {vendor!r}, which is not known or lacks its plugin. "
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


def _ask_model(now: _Now) -> dict[Key, object] | None:
    from asterism.config.vendors import DEMO

    offers = [one for one in now.found if one.ready or one.embedded]
    rows = [(one.model, f"{one.where} · {one.why}") for one in offers]
    rows.append((DEMO, "built in · answers by a few rules, no language model"))
    tell("Models to be had here:")
    _show_numbered(rows)
    for one in offers:
        if one.others:
            tell(f"  Also at {one.where}: {', '.join(one.others)}", _NOTE)

    def choice(text: str) -> dict[Key, object]:
        number = number_of(text)
        if number is None:
            return settings_by_name(now.settings, text)
        if not 1 <= number <= len(rows):
            raise InvalidInput(f"There is no number {number}; the last is {len(rows)}.")
        return settings_for(offers[number - 1]) if number <= len(offers) else {("model",): DEMO}

    usual = now.settings.model or "1"
    chosen = ask("Model, by number or as vendor:name", usual, choice)
    return chosen or (None if now.settings.model else choice("1"))


def _show_numbered(rows: list[tuple[str, str]]) -> None:
    if console().width >= _WIDE:
        numbered = [(f" {number}", *row) for number, row in enumerate(rows, 1)]
        Output(json=False).grid(numbered)
        return
    for number, (model, about) in enumerate(rows, 1):
        tell(f"{number} {model}")
        tell(about, _NOTE)


def _without_key(now: _Now, model: str) -> dict[str, KeyPlace]:
    """Return the vendors of a chain that need a key and have none, and where it should be."""
    from asterism.app.keys import key_place
    from asterism.types.agents import chain_of

    named = dict.fromkeys(one.partition(":")[0] for one in chain_of(model))
    places = {name: key_place(now.settings, name, now.keys, os.environ) for name in named}
    return {name: place for name, place in places.items() if place.lacks}


def _ask_key(plan: _Plan, vendor: str, place: KeyPlace) -> None:
    if place.stored:
        tell(f'Store the key of {vendor} with "asterism key set {place.stored}".', _WARNING)
        return
    variable = place.where
    tell(
        f"{vendor} needs a key, best kept in the environment: export {variable}=… before you "
        "start asterism. Typed here it is stored as text in the configuration, which then only "
        "you can read."
    )
    if key := ask_secret(f"Key for {vendor} (not shown; Enter for the environment)"):
        plan.changes["models", vendor, "key"] = key
    else:
        tell(f"Set {variable} before the next start.", _WARNING)


# -- the rest ------------------------------------------------------------------------------------


def _plan_agent(
    plan: _Plan, now: _Now, name: str | None, persona: str | None, *, asking: bool
) -> None:
    from asterism.app.agents import DEFAULT_SYSTEM
    from asterism.app.session import checked_name, checked_system
    from asterism.cli.chat import FIRST_AGENT

    current = now.agent.name if now.agent else FIRST_AGENT
    if name is not None:
        name = checked_name(name)
    elif asking:
        name = ask("Name of the first agent", current, checked_name)
    plan.agent = name or (current if asking or persona is not None else None)
    if persona is not None:
        plan.persona = checked_system(persona)
        return
    written = now.agent.system if now.agent else DEFAULT_SYSTEM.format(name=current)
    if plan.agent and written == DEFAULT_SYSTEM.format(name=current):
        written = DEFAULT_SYSTEM.format(name=plan.agent)  # it goes by its new name
    if asking:
        plan.persona = ask(
            "Who it is, in a sentence or more", one_line(written, 60), checked_system
        )
    plan.persona = plan.persona or (written if plan.agent else None)


def _plan_cap(plan: _Plan, now: _Now, given: str | None, *, asking: bool) -> None:
    def cap(text: str) -> tuple[float | None]:
        if text.lower() == _NONE:
            return (None,)
        try:
            dollars = float(text.removeprefix("$"))
        except ValueError:
            dollars = -1.0
        if not 0 < dollars <= 1_000_000:
            raise InvalidInput(
                f"{text!r} is no cap; dollars a day above 0 are needed, such as 5 or 0.50, "
                'or "none". Nothing was changed.'
            )
        return (dollars,)

    current = now.settings.budget.day
    if given is not None:
        chosen = cap(given)
    elif asking:
        # Only who never chose a model gets a cap proposed: "none" may have been a choice.
        new = now.settings.model is None and _costs(now.settings, plan.model) is True
        offered = _USUAL_CAP if new and current is None else current
        usual = _NONE if offered is None else f"{offered:g}"
        question = 'Most to spend on models in a day, in dollars, or "none"'
        chosen = ask(question, usual, cap) or (offered,)
    else:
        return
    if chosen[0] != current:
        plan.changes["budget", "day"] = chosen[0]


def _costs(settings: Settings, model: str) -> bool | None:
    """Tell whether asking a model costs money; None if its price is not known."""
    from asterism.config.load import FixedSettings
    from asterism.turns.spending import Prices
    from asterism.types.agents import chain_of
    from asterism.types.spending import FREE

    found = [Prices(FixedSettings(settings)).of(one) for one in chain_of(model)]
    return None if None in found else any(price != FREE for price in found)


# -- carrying it out -----------------------------------------------------------------------------


def _carry_out(options: Options, plan: _Plan, now: _Now, *, asking: bool) -> None:
    """Do all of it or nothing: the file is checked first, and put in place last."""
    from asterism.config.edit import edit

    with edit(options.place, options.config, os.environ, plan.changes) as prepared:
        agent = _apply_agent(options, plan, now)
        if plan.changes:
            prepared.commit()
    out = Output(json=options.json)
    written = [".".join(map(str, key)) for key in plan.changes]
    if out.json:
        name = agent.name if agent else None
        out.data({"file": str(prepared.path), "written": written, "agent": name})
        return
    if written:
        tell(f"Wrote {', '.join(written)} to {prepared.path}.")
    if agent is not None:
        tell(f'{agent.name} is ready. "asterism" opens the chat.')
    if not written and agent is None:
        tell("All of it was so before. Nothing was changed.")
    _warn(plan, now)
    _get_weights(plan.model, asking=asking)


def _apply_agent(options: Options, plan: _Plan, now: _Now) -> AgentRecord | None:
    name, before = plan.agent, now.agent
    if name is None:
        return None

    async def errand(home: Asterism) -> AgentRecord:
        if before is None:
            return await home.agents.create(name, system=plan.persona)
        return await home.agents.edit(
            before.id, new_name=name if name != before.name else None, system=plan.persona
        )

    if before and (before.name, before.system) == (name, plan.persona or before.system):
        return None
    return visit(options, errand)


def _warn(plan: _Plan, now: _Now) -> None:
    """Say what is written and yet without effect."""
    for key in plan.changes:
        variable = "ASTERISM_" + "__".join(map(str, key)).upper()
        if os.environ.get(variable):
            tell(f"{variable} is set in the environment and wins over the file.", _WARNING)
    cap = plan.changes.get(("budget", "day"), now.settings.budget.day)
    if cap is not None and _costs(now.settings, plan.model) is None:
        tell(
            f"What {plan.model} costs is not known, so the cap keeps it from being asked. Write "
            f'its price under [prices."{plan.model}"], or take the cap away with --cap none.',
            _WARNING,
        )
    if ("model",) in plan.changes and now.agent and now.agent.model != "default":
        said = f"{now.agent.name} keeps its own model, {now.agent.model}."
        tell(f"{said} asterism agent edit {now.agent.name} --model default changes it.", _NOTE)


def _get_weights(model: str, *, asking: bool) -> None:
    """Offer to fetch the weights of an embedded model that is not on this machine yet."""
    from asterism.config.vendors import EMBEDDED
    from asterism.types.agents import chain_of

    for one in chain_of(model):
        vendor, _, name = one.partition(":")
        if vendor == EMBEDDED:
            _offer_weights(name, asking=asking)


def _offer_weights(name: str, *, asking: bool) -> None:
    from asterism.cli.model import fetch
    from asterism.models.embedded.weights import WeightsDirectory, format_bytes

    shelf = WeightsDirectory()
    if shelf.path(name) is not None:
        return
    size = format_bytes(shelf.weights(name).size)
    if asking and confirm(f"{name} is not on this machine yet. Get it now ({size})?"):
        fetch(name)
        return
    tell(f'"asterism model pull {name}" gets it ({size}); until then it cannot answer.', _NOTE)
