"""The parts by name: models, channels, tools and the database, made from the configuration."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from asterism import plugins
from asterism.app.vendor_keys import Secret, key_of, named_by_setting
from asterism.config import ContextSettings, Settings
from asterism.errors import AsterismError, ConfigError, NotFound
from asterism.models.chain import Link, Server
from asterism.models.pace import Pace
from asterism.ports import Channel, ChannelFactory, Encoder, Encodes, Model, ModelFactory, Profile
from asterism.private import make_directory
from asterism.store.database import Database
from asterism.store.sqlite import open_sqlite
from asterism.tools.more import lead_to_more
from asterism.tools.plan import offer_plans
from asterism.tools.tool import Tool, Toolbox
from asterism.types.agents import DEFAULT_MODEL, chain_of
from asterism.types.memory import TOMBSTONES
from asterism.types.turns import Folds, Strategy

if TYPE_CHECKING:
    from asterism.models.http.cassette import Cassette


class Parts:
    """Models and channels, each made when first named and made anew when its settings change."""

    def __init__(
        self,
        settings: Callable[[], Settings],
        secret: Secret = lambda _: None,
    ) -> None:
        """Make the parts; `secret` returns a stored key by its name."""
        self._settings = settings
        self._secret = secret
        self._models: dict[str, Model] = {}
        self._servers: dict[str, Server] = {}
        self._links: dict[str, Link] = {}
        self._channels: dict[str, Channel] = {}
        self._encoders: dict[str, Encoder] = {}
        self._retired: list[Model | Channel | Encoder] = []
        self._given: set[str] = set()

    def put(self, models: Mapping[str, Model], channels: Mapping[str, Channel]) -> None:
        """Use these instead of configured ones."""
        self._models.update(models)
        self._given.update(models)
        self._channels.update(channels)

    @cached_property
    def cassette(self) -> Cassette | None:
        """The tape that is recorded or played, if one is configured."""
        wanted = self._settings().cassette
        if wanted.file is None:
            return None
        from asterism.models.http.cassette import Cassette

        return Cassette(wanted.file, wanted.mode, speed=wanted.speed, loose=wanted.loose)

    def channel_names(self) -> set[str]:
        """Return the names of all channels there are."""
        return {*self._settings().channels, *self._channels}

    def chain(self, model: str) -> tuple[str, ...]:
        """Return the models that an agent's names, as `vendor:name`; `default` is configured."""
        return chain_of(self._settings().default_model if model == DEFAULT_MODEL else model)

    def link(self, model: str) -> Link:
        """Return the port and all that is known of a model such as `openai:gpt-4.1-mini`."""
        link = self._links.get(model)
        if link is not None:
            return link
        vendor, _, name = model.partition(":")
        settings = self._settings().vendor(vendor)
        port = self._models.get(vendor)
        if port is None:
            port = self._models[vendor] = make_model(
                self._settings(), model, self.cassette, self._secret
            )
        server = self._servers.get(vendor)
        if server is None:
            pace = Pace(settings.requests_per_minute, settings.tokens_per_minute)
            server = self._servers[vendor] = Server(pace=pace)
        link = self._links[model] = Link(model, port, name, server, settings.retries)
        return link

    def profile(self, model: str) -> Profile:
        """Return what a model can take in; nothing is known of one that cannot be reached."""
        try:
            return self.link(model).profile
        except AsterismError:
            return Profile()

    def encoder(self, name: str) -> Encoder | None:
        """Return an encoder by its name in the configuration; None for `none`."""
        if name == "none":
            return None
        found = self._encoders.get(name)
        if found is None:
            found = self._encoders[name] = make_encoder(
                self._settings(), name, self.cassette, self._secret
            )
        return found

    def breakers(self) -> dict[str, bool]:
        """Return whether each vendor that was asked is left alone since it fails."""
        return {vendor: server.breaker.is_open for vendor, server in self._servers.items()}

    def channel(self, name: str) -> Channel:
        """Return a channel by its name in the configuration."""
        channel = self._channels.get(name)
        if channel is None:
            configured = self._settings().channels.get(name)
            if configured is None:
                raise NotFound(
                    f"There is no channel {name!r}. Add a table [channels.{name}] to asterism.toml."
                )
            make: ChannelFactory = plugins.load("channels", configured.type)
            channel = self._channels[name] = make(name, configured.options)
        return channel

    def key_changed(self, name: str) -> None:
        """Ask with another key from now on; turns under way may still use the old one."""
        for vendor in self._models.keys() - self._given:
            if name in (vendor, named_by_setting(self._settings(), vendor)):
                self._retired.append(self._models.pop(vendor))
                self._links.clear()

    def settings_changed(self, old: Settings, new: Settings) -> None:
        """Let go of what is configured otherwise now; turns under way may still use it."""
        for vendor in list(self._models):
            if old.models.get(vendor) != new.models.get(vendor):
                self._retired.append(self._models.pop(vendor))
                self._servers.pop(vendor, None)
                self._links.clear()
        for name in list(self._encoders):
            vendor = name.partition(":")[0]
            if (old.search.threads, old.models.get(vendor)) != (
                new.search.threads,
                new.models.get(vendor),
            ):
                self._retired.append(self._encoders.pop(name))
        for name in list(self._channels):
            if old.channels.get(name) != new.channels.get(name):
                self._retired.append(self._channels.pop(name))

    async def close(self) -> None:
        """Close everything that was made."""
        for server in self._servers.values():
            server.pace.close()
        made = (*self._models.values(), *self._channels.values(), *self._encoders.values())
        for part in (*made, *self._retired):
            with contextlib.suppress(Exception):
                await part.close()


def forgets_again(data: Path) -> bool:
    """Tell whether something was forgotten, which an older copy of the database may bring back."""
    return (data / TOMBSTONES).exists()


def folds_of(context: ContextSettings) -> Folds:
    """Return how a past that has become too long is folded, as it is configured."""
    return Folds(
        Strategy(context.strategy),
        keep_recent=context.keep_recent,
        keep_important=context.keep_important,
        decay_hours=context.decay_hours,
    )


def make_model(
    settings: Settings,
    model: str,
    cassette: Cassette | None = None,
    secret: Secret = lambda _: None,
) -> Model:
    """Return a port to the vendor that a model such as `openai:gpt-4.1-mini` names."""
    vendor = model.partition(":")[0]
    known = plugins.names("models")
    api = settings.api_of(vendor, known)
    if api not in known:
        there = ", ".join(sorted({*known, *settings.models}))
        raise ConfigError(
            f"The model {model!r} names the vendor {vendor!r}, which is not known. Known: "
            f"{there}. Add a table [models.{vendor}] with its base_url to asterism.toml."
        )
    configured = settings.vendor(vendor)
    options = configured.model_dump(exclude={"api"})
    options["key"] = key_of(settings, vendor, secret, os.environ)
    options["cassette"] = cassette
    make: ModelFactory = plugins.load("models", api)
    return make(vendor, options)


def make_encoder(
    settings: Settings,
    name: str,
    cassette: Cassette | None = None,
    secret: Secret = lambda _: None,
) -> Encoder:
    """Return an encoder: `minilm`, or one of a vendor's such as `ollama:nomic-embed-text`."""
    if ":" not in name:
        from asterism.memory.search.encoders.minilm import NAME, MiniLM

        if name != NAME:
            raise ConfigError(
                f"There is no encoder {name!r}. Set search.encoder to {NAME!r}, to a model as "
                'vendor:name, or to "none".'
            )
        return MiniLM(settings.search.threads)
    port = make_model(settings, name, cassette, secret)
    if not isinstance(port, Encodes):
        raise ConfigError(
            f"The encoder {name!r} names a vendor whose models make no vectors here. Set "
            'search.encoder to "minilm", or to a model for embeddings of a server that speaks '
            "OpenAI's wire format. Search goes on by words and static vectors."
        )
    return port.encoder(name.partition(":")[2])


async def open_database(settings: Settings, place: Path, *, readonly: bool) -> Database:
    """Open the database that is configured: SQLite in `place`, or PostgreSQL."""
    if settings.store.url is None:
        return await open_sqlite(place, readonly=readonly)
    try:
        from asterism.store.postgres import open_postgres
    except ImportError as error:
        raise ConfigError(
            f"store.url names a PostgreSQL database, but {error.name} is not installed. "
            "Install it with: pip install 'asterism[postgres]'."
        ) from error
    if not readonly:
        # The rest of a home is in there; where nothing can be written, nothing is.
        with contextlib.suppress(OSError):
            make_directory(place)
    return await open_postgres(settings.store.url, readonly=readonly)


def make_toolbox(settings: Settings, place: Path, given: Sequence[Tool]) -> Toolbox:
    """Gather all tools: built-in ones, those of plugins, configured modules, and given ones."""
    toolbox = Toolbox()
    for name in plugins.names("tools"):
        for one in plugins.load("tools", name):
            toolbox.add(one)
    for module in settings.tools.modules:
        for value in vars(_import(module, place)).values():
            if isinstance(value, Tool):
                toolbox.add(value)
    for one in given:
        toolbox.add(one)
    offer_plans(toolbox)
    lead_to_more(toolbox)
    return toolbox


def _import(module: str, place: Path) -> ModuleType:
    try:
        if not module.endswith(".py"):
            return importlib.import_module(module)
        path = (place / module).resolve()
        spec = importlib.util.spec_from_file_location(f"asterism_tools_{path.stem}", path)
        if spec is None or spec.loader is None:
            raise ConfigError(f"tools.modules: {path} is not a Python file.")
        loaded = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = loaded
        spec.loader.exec_module(loaded)
        return loaded
    except AsterismError:
        raise
    except (Exception, SystemExit) as error:
        raise ConfigError(
            f"tools.modules: {module!r} cannot be loaded ({type(error).__name__}: {error}). "
            "Correct it or take it out of the list."
        ) from error
