"""The keys of one vendor: found, told apart, and used in turn."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Any

from asterism.errors import ConfigError

_RESTS = 60.0
"""Seconds that a key which had too many requests rests, where the vendor names none."""


class VendorKeys:
    """One vendor's keys; when one is refused or has had too many requests, the next is used."""

    def __init__(self, found: list[str], name: str) -> None:
        self.found = found
        self.name = name
        """The place where they belong."""
        self._rest_until = dict.fromkeys(found, 0.0)

    @staticmethod
    def find(
        vendor: str, options: Mapping[str, Any], usual: tuple[str, ...], api: str
    ) -> VendorKeys:
        """Look into the options, then into the environment.

        Args:
            vendor: The vendor's name in the configuration.
            options: Its table.
            usual: The variables that the vendor's own tools read.
            api: The vendor's usual name; under another one, `<NAME>_API_KEY` is read first.
        """
        own = () if vendor == api else (f"{vendor.upper().replace('-', '_')}_API_KEY",)
        names = (options["key_env"],) if options.get("key_env") else (*own, *usual)
        name = next((each for each in names if os.environ.get(each)), (own or names)[0])
        given = os.environ.get(name, "")
        if options.get("key"):
            name, given = f"models.{vendor}.key", str(options["key"])
        keys = [key.strip() for key in given.split(",") if key.strip()]
        if not all(key.isascii() and key.isprintable() for key in keys):
            raise ConfigError(
                f"{name} holds characters that no key has, such as line breaks or typographic "
                "quotes. Copy the key again, without anything around it."
            )
        return VendorKeys(list(dict.fromkeys(keys)), name)

    def usable(self) -> list[str]:
        """Return the keys that do not rest, or the one that rests the shortest; "" if none is."""
        if len(self.found) < 2:
            return self.found or [""]
        now = time.monotonic()
        rested = [key for key in self.found if self._rest_until[key] <= now]
        return rested or [min(self.found, key=self._rest_until.__getitem__)]

    def set_aside(self, key: str, seconds: float | None = None) -> bool:
        """Let a key rest; tell whether there is another one to use now."""
        now = time.monotonic()
        self._rest_until[key] = now + (_RESTS if seconds is None else seconds)
        return any(until <= now for other, until in self._rest_until.items() if other != key)
