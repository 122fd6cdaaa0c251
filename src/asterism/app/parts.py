"""The parts by name: models, channels, tools and the database, made from the configuration."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType

from asterism import plugins
from asterism.config import ModelSettings, Settings
from asterism.errors import AsterismError, ConfigError, NotFound
from asterism.ports import Channel, Model
from asterism.store.database import Database
from asterism.store.sqlite import open_sqlite
from asterism.tools.tool import Tool, Toolbox
from asterism.types.agents import DEFAULT_MODEL


class Parts:
    """Models and channels, each made when first named and made anew when its settings change."""

    def __init__(self, settings: Callable[[], Settings]) -> None:
        self._settings = settings
        self._models: dict[str, Model] = {}
        self._channels: dict[str, Channel] = {}
        self._retired: list[Model | Channel] = []

    def put(self, models: Mapping[str, Model], channels: Mapping[str, Channel]) -> None:
        """Use these instead of configured ones."""
        self._models.update(models)
        self._channels.update(channels)

    def channel_names(self) -> set[str]:
        """Return the names of all channels there are."""
        return {*self._settings().channels, *self._channels}

    def model(self, model: str) -> tuple[Model, str]:
        """Return the port and the name there of a model: `openai:gpt-4.1-mini`, or `default`."""
        if model == DEFAULT_MODEL:
            model = self._settings().default_model
        vendor, _, name = model.partition(":")
        port = self._models.get(vendor)
        if port is None:
            port = self._models[vendor] = make_model(self._settings(), model)
        return port, name

    def channel(self, name: str) -> Channel:
        """Return a channel by its name in the configuration."""
        channel = self._channels.get(name)
        if channel is None:
            configured = self._settings().channels.get(name)
            if configured is None:
                raise NotFound(
                    f"There is no channel {name!r}. Add a table [channels.{name}] to asterism.toml."
                )
            channel = plugins.load("channels", configured.type)(name, configured.options)
            self._channels[name] = channel
        return channel

    def settings_changed(self, old: Settings, new: Settings) -> None:
        """Let go of what is configured otherwise now; turns under way may still use it."""
        for vendor in list(self._models):
            if old.models.get(vendor) != new.models.get(vendor):
                self._retired.append(self._models.pop(vendor))
        for name in list(self._channels):
            if old.channels.get(name) != new.channels.get(name):
                self._retired.append(self._channels.pop(name))

    async def close(self) -> None:
        """Close everything that was made."""
        for part in (*self._models.values(), *self._channels.values(), *self._retired):
            with contextlib.suppress(Exception):
                await part.close()


def make_model(settings: Settings, model: str) -> Model:
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
    configured = settings.models.get(vendor, ModelSettings())
    options = configured.model_dump(exclude={"api"})
    options["key"] = configured.key.get_secret_value() if configured.key else None
    port: Model = plugins.load("models", api)(vendor, options)
    return port


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
