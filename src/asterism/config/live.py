"""The settings in use while a process runs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from asterism.config.document import Key, dotted
from asterism.config.load import DOCUMENTS, config_file, document_files, load
from asterism.config.settings import Settings
from asterism.errors import ConfigError

_log = logging.getLogger(__name__)

NEEDS_RESTART = frozenset({"cassette", "constellation", "runtime", "store", "telemetry", "tools"})
"""What a running process keeps; everything else changes live."""


@dataclass(frozen=True, slots=True)
class Reload:
    """What came of reading the configuration again."""

    changed: tuple[str, ...] = ()
    """Settings that are in use with their new value."""
    needs_restart: tuple[str, ...] = ()
    """Settings that differ, and keep their old value until the next start."""
    error: str | None = None


class LiveSettings:
    """The settings in use, which follow the file."""

    def __init__(
        self,
        data: Path,
        file: Path | None,
        environ: Mapping[str, str],
        overrides: Mapping[str, object] | None = None,
        *,
        on_problem: Callable[[str], None] = _log.warning,
    ) -> None:
        """Load for the first time; `on_problem` hears what a later reload cannot put in use."""
        self._data = data
        self._named = file
        self._environ = environ
        self._overrides = overrides
        self._on_problem = on_problem
        self._subscribers: list[Callable[[Settings, Settings], None]] = []
        self._file = config_file(data, file, environ)
        self._must_exist = False
        self._current = self._load()

    @property
    def current(self) -> Settings:
        """The settings in use."""
        return self._current

    def subscribe(self, callback: Callable[[Settings, Settings], None]) -> None:
        """Call back with the old and the new settings after each change; it must not raise."""
        self._subscribers.append(callback)

    def reload(self) -> Reload:
        """Read the file again and put in use what can change live."""
        try:
            read = self._load()
        except ConfigError as error:
            problem = f"{error.message} The previous configuration stays in use."
            self._on_problem(problem)
            return Reload(error=problem)
        old = self._current
        kept = {section: getattr(old, section) for section in NEEDS_RESTART}
        self._current = new = read.model_copy(update=kept)
        changed, needs_restart = _differences(old, new), _differences(new, read)
        if changed:
            for callback in self._subscribers:
                callback(old, new)
        if needs_restart:
            names = ", ".join(needs_restart)
            self._on_problem(f"{names}: changed in {self._file.name}, in use after a restart.")
        return Reload(changed, needs_restart)

    async def watch(self) -> None:
        """Reload whenever the file changes, until cancelled."""
        # Its annotations name trio, which need not be installed.
        from watchfiles import awatch  # pyright: ignore[reportUnknownVariableType]

        target = self._file.resolve()
        # Kubernetes changes a mounted file by pointing the link "..data" beside it elsewhere.
        names = {self._file.name, target.name, "..data"}
        names.update(name for one in DOCUMENTS for name in document_files(one))
        changes = awatch(
            *{self._file.parent, target.parent},
            watch_filter=lambda _, path: Path(path).name in names,
            recursive=False,
        )
        try:
            while True:
                change = asyncio.ensure_future(anext(changes))
                await asyncio.sleep(0)  # it watches from here on, so nothing saved later is missed
                self.reload()
                await change
        except OSError as error:
            self._on_problem(
                f"{self._file} cannot be watched: {error}. Changes are in use after a restart."
            )

    def _load(self) -> Settings:
        settings = load(
            self._data,
            self._named,
            self._environ,
            self._overrides,
            must_exist=self._must_exist,
        )
        # A file that was there once must not turn into defaults when it is gone.
        self._must_exist = self._must_exist or self._file.exists()
        return settings


def _differences(old: Settings, new: Settings) -> tuple[str, ...]:
    # Without defaults, so that a new vendor is named by what was written about it.
    before = dict(_leaves((), old.model_dump(exclude_defaults=True)))
    after = dict(_leaves((), new.model_dump(exclude_defaults=True)))
    changed = [key for key in before | after if before.get(key) != after.get(key)]
    return tuple(map(dotted, changed))


def _leaves(key: Key, value: object) -> Iterator[tuple[Key, object]]:
    if isinstance(value, dict) and (value or not key):
        for name, inner in cast("dict[str, object]", value).items():
            yield from _leaves((*key, name), inner)
    else:
        yield key, value
