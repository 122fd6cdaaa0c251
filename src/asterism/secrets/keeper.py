"""Who keeps the master key: a file of one's own, the environment, or the system's keyring.

A keeper holds one key or several, the current one first. Those behind it open what was sealed
before, so that a change of keys can be cut off at any instant.
"""

from __future__ import annotations

import base64
import binascii
import os
import stat
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from asterism.errors import ConfigError
from asterism.private import make_directory
from asterism.secrets.sealing import SIZE, new_key

VARIABLE = "ASTERISM_KEY"
_FILE = "master.key"
_MAKE = "openssl rand -base64 32"


class Keeper(Protocol):
    """Where the master key is."""

    place: str
    """In words, for messages."""
    changes: bool
    """Whether a new key can be put there."""

    def read(self) -> list[bytes]:
        """Return the keys, the current one first; none if there is no key yet."""
        ...

    def put(self, keys: Sequence[bytes]) -> None:
        """Keep these keys and no others."""
        ...


class EnvironmentKeeper:
    """The master key in the variable ASTERISM_KEY; it is changed by whoever sets it."""

    changes = False

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self.place = f"the environment variable {VARIABLE}"

    def read(self) -> list[bytes]:
        """Return the keys."""
        return _read(self._environ.get(VARIABLE, ""), self.place)

    def put(self, keys: Sequence[bytes]) -> None:
        """Refuse: the environment is not ours."""
        del keys
        raise ConfigError(
            f'{VARIABLE} is not set, and secrets.keeper is "env". Set it to 32 random bytes in '
            f'Base64, such as "{_MAKE}" prints, and keep a copy. Nothing was stored.'
        )


class FileKeeper:
    """The master key in a file that only its owner may read."""

    changes = True

    def __init__(self, path: Path) -> None:
        self._path = path
        self.place = str(path)

    def read(self) -> list[bytes]:
        """Return the keys; a file that others may read is refused."""
        try:
            mode = self._path.stat().st_mode
            text = self._path.read_text("ascii", "replace")
        except FileNotFoundError:
            return []
        except OSError as error:
            raise ConfigError(
                f"The master key {self._path} cannot be read ({error.strerror}). Let the user that "
                "runs asterism read it. Nothing was changed."
            ) from None
        if stat.S_IMODE(mode) & 0o077:
            raise ConfigError(
                f"The master key {self._path} can be read by others (mode "
                f'{stat.S_IMODE(mode):04o}). Run "chmod 600 {self._path}". Nothing was changed.'
            )
        return _read(text, self.place)

    def put(self, keys: Sequence[bytes]) -> None:
        """Write the file anew, in one go."""
        text = "".join(f"{base64.b64encode(key).decode()}\n" for key in keys)
        try:
            make_directory(self._path.parent)
            handle, name = tempfile.mkstemp(prefix=".master", dir=self._path.parent)
            try:
                with os.fdopen(handle, "w", encoding="ascii") as file:
                    file.write(text)
                    file.flush()
                    os.fsync(file.fileno())
                Path(name).replace(self._path)
            except BaseException:
                with suppress(OSError):
                    Path(name).unlink()
                raise
        except OSError as error:
            raise ConfigError(
                f"The master key cannot be written to {self._path} ({error.strerror}). Set "
                f"secrets.key_file to a place that can be, or {VARIABLE}. Nothing was stored."
            ) from None


class KeyringKeeper:
    """The master key in the keyring of the system."""

    changes = True
    _SERVICE, _USER = "asterism", "master key"

    def __init__(self, constellation: str) -> None:
        self._user = f"{self._USER} of {constellation}"
        self.place = "the system's keyring"

    def read(self) -> list[bytes]:
        """Return the keys."""
        return _read(self._ask("get_password", self._SERVICE, self._user) or "", self.place)

    def put(self, keys: Sequence[bytes]) -> None:
        """Keep these keys."""
        text = ",".join(base64.b64encode(key).decode() for key in keys)
        self._ask("set_password", self._SERVICE, self._user, text)

    def _ask(self, verb: str, *given: str) -> str | None:
        try:
            import keyring
            from keyring.errors import KeyringError
        except ImportError:
            raise ConfigError(
                'secrets.keeper is "keyring", but keyring is not installed. Install it with: pip '
                "install 'asterism[keyring]', or set secrets.keeper to \"file\". Nothing was done."
            ) from None
        try:
            return getattr(keyring, verb)(*given)
        except (KeyringError, RuntimeError) as error:
            raise ConfigError(
                f"The system's keyring does not answer ({error}). Unlock it, or set secrets.keeper "
                'to "file" or "env". Nothing was changed.'
            ) from None


def keeper_of(
    kind: str, key_file: str | None, data: Path, constellation: str, environ: Mapping[str, str]
) -> Keeper:
    """Return who keeps the master key; the environment wins where it has one."""
    if kind == "env" or environ.get(VARIABLE):
        return EnvironmentKeeper(environ)
    if kind == "keyring":
        return KeyringKeeper(constellation)
    return FileKeeper(Path(key_file).expanduser() if key_file else usual_file(data, environ))


def usual_file(data: Path, environ: Mapping[str, str]) -> Path:
    """Return where the master key rests: not with the data, so that a copy of them tells nothing.

    The user's place for configuration; beside the data for an environment that was made up.
    """
    if environ is not os.environ and not {"HOME", "XDG_CONFIG_HOME"} & environ.keys():
        return data.parent / _FILE
    if chosen := environ.get("XDG_CONFIG_HOME"):
        return Path(chosen) / "asterism" / _FILE
    from platformdirs import user_config_path

    return user_config_path("asterism", appauthor=False) / _FILE


def first_key(keeper: Keeper) -> bytes:
    """Make a master key where there is none yet, and return it."""
    key = new_key()
    keeper.put([key])
    return key


def _read(text: str, place: str) -> list[bytes]:
    found: list[bytes] = []
    for word in text.replace(",", " ").split():
        try:
            key = base64.b64decode(word, validate=True)
        except (binascii.Error, ValueError):
            key = b""
        if len(key) != SIZE:
            raise ConfigError(
                f"The master key in {place} is no key: 32 bytes in Base64 are needed, such as "
                f'"{_MAKE}" prints. Put the right one back; nothing was changed.'
            )
        found.append(key)
    return found
