"""The key that a vendor is asked with: the configured one, one of the environment, or a stored one.

Whoever asks a model or tells whether it can be asked goes by this: turns, trials and checks.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from asterism.config import Settings
from asterism.config.vendors import vendors
from asterism.errors import NotFound

STORED = "secret:"
"""What a setting begins with that names a stored key."""

Secret = Callable[[str], str | None]
"""Returns a stored key by its name; None if there is none."""


class StoredKeys(Protocol):
    """The keys that are stored in a home."""

    def get(self, name: str) -> str | None:
        """Return a key; None if there is none."""
        ...

    def has(self, name: str) -> bool:
        """Tell whether there is a key of a name."""
        ...


class NoStoredKeys:
    """The keys of a home that is not there yet."""

    def get(self, name: str) -> str | None:
        """Return nothing."""
        del name
        return None

    def has(self, name: str) -> bool:
        """Say that there is none."""
        del name
        return False


@dataclass(frozen=True, slots=True)
class KeyPlace:
    """Where the key of a vendor is, or should be."""

    found: bool
    where: str = ""
    """A file, a variable or a stored key, in words; empty where no key is needed."""
    stored: str = ""
    """The name of the stored key, if it is one."""

    @property
    def lacks(self) -> bool:
        """Whether a key is needed that is not there."""
        return not self.found and bool(self.where)

    @property
    def problem(self) -> str:
        """What is the matter with a key that is needed and not there, as a clause."""
        return f"{self.where} is not {'there' if self.stored else 'set'}"


def named_by_setting(settings: Settings, vendor: str) -> str | None:
    """Return the stored key that `models.VENDOR.key` names, if it names one."""
    own = settings.vendor(vendor).key
    given = own.get_secret_value() if own is not None else ""
    return given.removeprefix(STORED) if given.startswith(STORED) else None


def key_of(
    settings: Settings, vendor: str, secret: Secret, environ: Mapping[str, str]
) -> str | None:
    """Return a vendor's key: the configured one, or a stored one where nothing else names any.

    None leaves it to the port, which looks into the environment.
    """
    name = named_by_setting(settings, vendor)
    if name is not None:
        stored = secret(name)
        if stored is None:
            raise NotFound(
                f"models.{vendor}.key is '{STORED}{name}', but there is no stored key {name!r}. "
                f'Store it with "asterism key set {name}". Nothing was asked.'
            )
        return stored
    own = settings.vendor(vendor).key
    if own is not None:
        return own.get_secret_value()
    return secret(vendor) if settings.takes_stored_key(vendor, environ) else None


def key_place(
    settings: Settings, vendor: str, keys: StoredKeys, environ: Mapping[str, str]
) -> KeyPlace:
    """Tell where `key_of` and the port find a vendor's key, without looking at the key."""
    name = named_by_setting(settings, vendor)
    if name is not None:
        found = keys.has(name)
        return KeyPlace(found, f"stored as {name}" if found else f"the stored key {name!r}", name)
    if settings.vendor(vendor).key is not None:
        return KeyPlace(found=True, where="in asterism.toml")
    if settings.takes_stored_key(vendor, environ) and keys.has(vendor):
        return KeyPlace(found=True, where=f"stored as {vendor}", stored=vendor)
    variable = settings.vendor(vendor).key_env
    known, own = vendors().get(vendor), settings.models.get(vendor)
    if variable is None and known is not None and not (own and own.base_url):
        variable = known.key_variable(environ)
    if variable is None:
        usual = f"{vendor.upper().replace('-', '_')}_API_KEY"
        found = bool(environ.get(usual))
        return KeyPlace(found, f"in {usual}" if found else "")
    # A key may have been put into key_env by mistake; no variable looks like one.
    shown = variable if re.fullmatch(r"[A-Z][A-Z0-9_]{0,60}", variable) else "key_env"
    found = bool(environ.get(variable))
    return KeyPlace(found, f"in {shown}" if found else shown)
