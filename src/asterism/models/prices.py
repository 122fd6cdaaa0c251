"""Prices by `vendor:name`: those of the configuration, else the vendors' lists in `prices.toml`."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import replace
from decimal import Decimal
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from asterism.config import Settings
from asterism.types.spending import FREE, IMAGE_TOKENS, Price, nano

T = TypeVar("T")

ALWAYS_FREE = frozenset({"demo", "embedded"})
"""Vendors that run in a process of ours."""
# A vendor's dated name of a model costs what its plain name does: -2025-04-14, -20250929, -08-2024,
# -latest, and Bedrock's -v1:0 behind any of them.
_DATED = re.compile(r"(-(\d{4}-\d{2}-\d{2}|\d{8}|\d{2}-\d{4}|latest))?(-v\d+(:\d+)?)?$")


class Prices:
    """Finds prices as they are configured now."""

    def __init__(self, settings: Callable[[], Settings]) -> None:
        self._settings = settings
        self.custom_vendors: set[str] = set()
        """Vendors whose ports were handed in by a program: free, unless the configuration says."""
        self._found: dict[str, Price | None] = {}
        self._found_in: Settings | None = None

    def of(self, model: str) -> Price | None:
        """Return the price of a model; None if nobody knows it."""
        settings = self._settings()
        if settings is not self._found_in:
            self._found, self._found_in = {}, settings
        if model not in self._found:
            self._found[model] = self._look_up(model, settings)
        return self._found[model]

    def _look_up(self, model: str, settings: Settings) -> Price | None:
        configured = match_name(model, settings.prices)
        if configured is not None:
            return configured.price
        vendor, _, name = model.partition(":")
        settings_of_vendor = settings.vendor(vendor)
        if (
            vendor in ALWAYS_FREE
            or vendor in self.custom_vendors
            or is_local_url(settings_of_vendor.base_url)
        ):
            return FREE
        listed = published_prices().get(vendor)
        if listed is None and settings_of_vendor.api and not settings_of_vendor.base_url:
            listed = published_prices().get(settings_of_vendor.api)
        return match_name(name, listed or {})


def match_name(name: str, table: Mapping[str, T]) -> T | None:
    """Return what a table says of a name: itself, without its date, or by the longest pattern."""
    names = (name, _DATED.sub("", name, count=1))
    for candidate in names:
        if candidate in table:
            return table[candidate]
    for pattern in sorted(
        (pattern_in_table for pattern_in_table in table if "*" in pattern_in_table),
        key=len,
        reverse=True,
    ):
        if any(fnmatchcase(candidate, pattern) for candidate in names):
            return table[pattern]
    return None


def is_local_url(url: str | None) -> bool:
    """Tell whether an address is on this machine, where asking costs nothing."""
    if url is None:
        return False
    host = urlsplit(url).hostname or ""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    import ipaddress

    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@cache
def published_prices() -> dict[str, dict[str, Price]]:
    """Return the vendors' lists that come with asterism."""
    found: dict[str, dict[str, Price]] = {}
    for vendor, listed in _document().items():
        if vendor != "as_of":
            rates: dict[str, dict[str, Any]] = listed["models"]
            found[vendor] = {name: _price(rate) for name, rate in rates.items()}
    return found


@cache
def _document() -> dict[str, Any]:
    text = Path(__file__).with_name("prices.toml").read_text("utf-8")
    return tomllib.loads(text, parse_float=Decimal)


def _price(rates: dict[str, Any]) -> Price:
    price = replace(_per_token(rates), image_tokens=rates.get("image_tokens", IMAGE_TOKENS))
    if "above" not in rates:
        return price
    return replace(price, long_from=rates["above"], long=_per_token(rates["long"]))


def _per_token(rates: dict[str, Any]) -> Price:
    usual = rates["input"]
    return Price(
        input=nano(usual),
        output=nano(rates["output"]),
        cached=nano(rates.get("cached", usual)),
        written=nano(rates.get("written", usual)),
    )
