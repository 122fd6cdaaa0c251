"""Addresses that may be asked: the open internet, and what the owner allows; nothing at home.

Whoever writes a page can make an agent ask for any address. Routers, databases and the metadata of
a cloud machine answer whoever asks from inside, so that no address of theirs is ever connected to.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import TYPE_CHECKING

from asterism.errors import ToolError

if TYPE_CHECKING:
    from aiohttp.abc import AbstractResolver
    from yarl import URL

Address = IPv4Address | IPv6Address

_PORTS = {"http": 80, "https": 443}
_LONGEST_HOST = 253
_NUMBERS = 4
"""How many numbers an IPv4 address can be written with."""

# What carries an IPv4 address inside: it is that address which is reached in the end.
_MAPPED = IPv6Network("::ffff:0:0/96")
_COMPATIBLE = IPv6Network("::/96")
_TRANSLATED = IPv6Network("::ffff:0:0:0/96")
_NAT64 = IPv6Network("64:ff9b::/96")
_SIX_TO_FOUR = IPv6Network("2002::/16")
# IPv4 addresses within these may be anywhere in the address, so that none is taken.
_CARRYING = (IPv6Network("64:ff9b:1::/48"), IPv6Network("2001::/32"))
# Not told apart by `is_global` in every release of Python that is in use.
_CLOSED: tuple[IPv4Network | IPv6Network, ...] = (
    IPv4Network("100.64.0.0/10"),
    IPv4Network("192.0.0.0/24"),
    IPv4Network("192.88.99.0/24"),
    IPv4Network("168.63.129.16/32"),  # Azure's host, which is no private address
    IPv6Network("fec0::/10"),
    IPv6Network("5f00::/16"),
    IPv6Network("3fff::/20"),
)


def is_open(address: Address) -> bool:
    """Tell whether an address is one of the open internet, whatever it is wrapped in."""
    if isinstance(address, IPv6Address):
        if address.scope_id is not None or any(address in one for one in _CARRYING):
            return False
        inner = _inside(address)
        if inner is not None:
            return is_open(inner)
    if any(address.version == one.version and address in one for one in _CLOSED):
        return False
    return (
        address.is_global
        and not address.is_multicast
        and not address.is_reserved
        and not address.is_unspecified
        and not address.is_loopback
        and not address.is_link_local
    )


def _inside(address: IPv6Address) -> IPv4Address | None:
    for network in (_MAPPED, _COMPATIBLE, _TRANSLATED, _NAT64):
        if address in network:
            return IPv4Address(int(address) & 0xFFFF_FFFF)
    if address in _SIX_TO_FOUR:
        return IPv4Address(int(address) >> 80 & 0xFFFF_FFFF)
    return None


def literal(host: str) -> Address | None:
    """Return the address that a host is, in any of the ways to write one; None for a name."""
    bare = host.rstrip(".").strip("[]")
    try:
        return ip_address(bare)
    except ValueError:
        return _numbers(bare)


def _numbers(host: str) -> IPv4Address | None:
    """Read `2130706433`, `0x7f.1` and `0177.0.0.1` as C libraries do."""
    parts = host.split(".")
    if not 1 <= len(parts) <= _NUMBERS:
        return None
    values: list[int] = []
    for part in parts:
        value = _number(part)
        if value is None:
            return None
        values.append(value)
    *before, last = values
    if any(one > 0xFF for one in before) or last >= 256 ** (_NUMBERS + 1 - len(values)):
        return None
    return IPv4Address(sum(one << 8 * (3 - at) for at, one in enumerate(before)) + last)


def _number(text: str) -> int | None:
    if not (text.isascii() and text and len(text) <= 16):
        return None
    try:
        if text[:2].lower() == "0x":
            return int(text[2:] or "0", 16)
        return int(text, 8) if text.startswith("0") and text.isdecimal() else int(text, 10)
    except ValueError:
        return None


class Allowed:
    """The hosts that the owner allows although they are at home, each as `host:port`."""

    def __init__(self, hosts: Iterable[str] = ()) -> None:
        self._hosts = frozenset(_spelled(one) for one in hosts)

    def __contains__(self, place: object) -> bool:
        return place in self._hosts

    def __hash__(self) -> int:
        return hash(self._hosts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Allowed) and other._hosts == self._hosts


def _spelled(place: str) -> tuple[str, int]:
    host, _, port = place.rpartition(":")
    return _plain(host), int(port)


def _plain(host: str) -> str:
    """Return a host in one spelling."""
    bare = host.casefold().rstrip(".").strip("[]")
    address = literal(bare)
    return str(address) if address is not None else bare


def checked(text: str, allowed: Allowed) -> URL:
    """Return an address that may be asked for; raise `ToolError` for any other."""
    from yarl import URL

    written = text.strip()
    if "://" not in written:
        written = f"https://{written}"
    try:
        url = URL(written)
        host, port = url.host, url.port
    except ValueError as error:
        raise ToolError(f"{text!r} is no address ({error}). Write one such as {_SUCH}.") from None
    if url.scheme not in _PORTS or not host or port is None:
        raise ToolError(
            f"{text!r} is no address of a web page. Write one such as {_SUCH}; files and other "
            "protocols cannot be fetched."
        )
    if url.user is not None or url.password is not None:
        raise ToolError(f"{text!r} carries a name or password. Write the address without it.")
    if any(ord(one) < ord(" ") or one in ' "<>\\^`{|}' for one in host) or len(host) > (
        _LONGEST_HOST
    ):
        raise ToolError(f"{text!r} has no host that could be asked. Write one such as {_SUCH}.")
    address = literal(host)
    if address is not None:
        if not is_open(address) and (_plain(host), port) not in allowed:
            raise _closed(host, port)
        # One spelling, so that what is connected to is what was looked at.
        url = url.with_host(str(address)).with_port(port)
    return url.with_fragment(None)


_SUCH = "https://example.org/page"


def _closed(host: str, port: int) -> ToolError:
    return ToolError(
        f"{host} is an address of a private network, which web does not ask. If it shall be "
        f'reached, the owner can set allow = ["{host}:{port}"] under [web] in asterism.toml. '
        "Nothing was fetched."
    )


def resolver(allowed: Allowed) -> AbstractResolver:
    """Return what finds the addresses of a host, and gives none that must not be asked.

    The connection is made to the very addresses that were looked at: a name that is resolved a
    second time may lead elsewhere by then.
    """
    from aiohttp.abc import AbstractResolver, ResolveResult

    class Checked(AbstractResolver):
        async def resolve(
            self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
        ) -> list[ResolveResult]:
            loop = asyncio.get_running_loop()
            try:
                found = await loop.getaddrinfo(
                    host.rstrip("."), port, type=socket.SOCK_STREAM, family=family
                )
            except (OSError, UnicodeError):
                raise ToolError(
                    f"There is no host {host!r}, or its name cannot be looked up now. Check the "
                    "address."
                ) from None
            addresses = [str(one[4][0]) for one in found]
            if (_plain(host), port) not in allowed:
                for one in addresses:
                    if not is_open(ip_address(one)):
                        raise _closed(host, port)
            return [
                ResolveResult(
                    hostname=host,
                    host=address,
                    port=port,
                    family=one[0],
                    proto=one[2],
                    flags=socket.AI_NUMERICHOST,
                )
                for one, address in zip(found, addresses, strict=True)
            ]

        async def close(self) -> None:
            """There is nothing to let go of."""

    return Checked()
