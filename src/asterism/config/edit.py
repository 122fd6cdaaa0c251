"""Settings written into `asterism.toml`: comments and order stay, and the file changes at once."""

from __future__ import annotations

import contextlib
import os
import tempfile
import tomllib
from collections.abc import Generator, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any, cast

from asterism.config.load import config_file, load
from asterism.config.parse import ConfigDocument, Key, dotted
from asterism.errors import ConfigError
from asterism.private import make_directory

_OWNER_ONLY = 0o600
_MARK = "\ufeff"


class Edit:
    """A new version of the configuration, checked and on disk, and not in its place yet."""

    def __init__(self, path: Path, draft: Path) -> None:
        self.path = path
        self._draft = draft

    def commit(self) -> None:
        """Put the new version in its place, in one instant."""
        try:
            self._draft.replace(self.path)
        except OSError as error:
            raise _unwritable(self.path, error) from None
        _sync(self.path.parent)


@contextlib.contextmanager
def edit(
    data: Path,
    file: Path | None,
    environ: Mapping[str, str],
    changes: Mapping[Key, object],
) -> Generator[Edit, None, None]:
    """Prepare a change of settings: a value for each key, or None to take it out.

    Problems are raised here, before anything is changed: a file that is not valid, a value that is
    not valid, a file that cannot be written. Without `commit`, nothing is written.
    """
    named = config_file(data, file, environ)
    before = ConfigDocument.read(named, must_exist=False)
    # A link stays a link: what it points to is replaced.
    path = named.resolve()
    if path.exists() and not path.is_file():
        raise ConfigError(
            f"{path} is not an ordinary file, so it is not replaced. Name a file with "
            "--config or ASTERISM_CONFIG. Nothing was changed."
        )
    text = apply_changes(before, path, changes)
    try:
        make_directory(path.parent)
        folder = tempfile.TemporaryDirectory(prefix=".asterism-", dir=path.parent)
    except OSError as error:
        raise _unwritable(path, error) from None
    with folder as beside:
        # The draft has the file's own name, so that problems are told with it.
        draft = Path(beside) / named.name
        try:
            if path.exists() and not os.access(path, os.W_OK):
                raise PermissionError(13, "Permission denied")
            _write(draft, text, _mode(path, changes))
        except OSError as error:
            raise _unwritable(path, error) from None
        try:
            load(data, draft, environ)
        except ConfigError as error:
            raise ConfigError(error.reason, outcome="Nothing was changed.") from None
        yield Edit(path, draft)


def save(
    data: Path,
    file: Path | None,
    environ: Mapping[str, str],
    changes: Mapping[Key, object],
) -> Path:
    """Change settings at once, and return the file that holds them now."""
    with edit(data, file, environ, changes) as prepared:
        prepared.commit()
    return prepared.path


def apply_changes(before: ConfigDocument, path: Path, changes: Mapping[Key, object]) -> str:
    """Return the text of a file with some settings changed and all else as it was."""
    import tomlkit

    raw = path.read_bytes().decode() if path.exists() else ""
    mark = _MARK if raw.startswith(_MARK) else ""
    document = tomlkit.parse(raw.removeprefix(_MARK))
    wanted = deepcopy(before.values)
    for key, value in changes.items():
        _put(cast("dict[str, Any]", document), key, value, tomlkit.table)
        _put(wanted, key, value, dict)
    text = tomlkit.dumps(document)
    try:
        came_out = tomllib.loads(text)
    except ValueError:
        came_out = None
    if came_out != wanted:
        names = ", ".join(map(dotted, changes))
        raise ConfigError(
            f"{before.name} has a layout that asterism cannot change safely. "
            f"Set {names} in it yourself. Nothing was changed."
        )
    return mark + text


def _put(table: dict[str, Any], key: Key, value: object, new_table: Any) -> None:
    *outer, last = (str(part) for part in key)
    for part in outer:
        if part not in table:
            if value is None:
                return
            table[part] = new_table()
        table = table[part]
    if value is not None:
        table[last] = value
    else:
        table.pop(last, None)


def _mode(path: Path, changes: Mapping[Key, object]) -> int:
    """Only the owner reads a new file, and one that gets a key."""
    if not path.exists() or any(key[-1] == "key" for key in changes):
        return _OWNER_ONLY
    return path.stat().st_mode & 0o777


def _write(path: Path, text: str, mode: int) -> None:
    with path.open("xb") as file:
        os.fchmod(file.fileno(), mode)
        file.write(text.encode())
        file.flush()
        os.fsync(file.fileno())


def _sync(directory: Path) -> None:
    """Make a replaced file last, where the system can be asked to."""
    with contextlib.suppress(OSError):
        handle = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _unwritable(path: Path, error: OSError) -> ConfigError:
    return ConfigError(
        f"{path} cannot be written ({error.strerror or error}). Give this user write access, or "
        "name another file with --config or ASTERISM_CONFIG. Nothing was changed."
    )
