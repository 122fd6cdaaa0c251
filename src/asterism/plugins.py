"""Plugins: entry points by kind, loaded when first named. Built-ins come through the same door."""

from __future__ import annotations

from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from asterism.errors import ConfigError, NotFound


@cache
def _installed() -> Any:  # what it is depends on Python: SelectableGroups, from 3.12 EntryPoints
    # To find those of one kind, all installed packages are read: once is enough.
    return entry_points()


@cache
def _entry_points(kind: str) -> dict[str, EntryPoint]:
    return {point.name: point for point in _installed().select(group=f"asterism.{kind}")}


def names(kind: str) -> list[str]:
    """Return the names of all plugins of a kind, such as `channels`."""
    return sorted(_entry_points(kind))


def load(kind: str, name: str) -> Any:
    """Return what a plugin offers."""
    point = _entry_points(kind).get(name)
    if point is None:
        known = ", ".join(names(kind)) or "none"
        raise NotFound(
            f"There is no plugin {name!r} for {kind}. Installed: {known}. "
            "Install a missing plugin with pip."
        )
    try:
        return point.load()
    except ImportError as error:
        raise ConfigError(
            f"The plugin {name!r} for {kind} cannot be loaded: {error}. "
            "Install its dependencies, or remove it from the configuration."
        ) from error
