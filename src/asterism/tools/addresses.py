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
from asterism.types.values import IPAddress, address_of, host_of, ip_of

if TYPE_CHECKING:
    from aiohttp.abc import AbstractResolver
    from yarl import URL

_PORTS = {"http": 80, "https": 443}

# What carries an IPv4 address inside: it is that address which is reached in the end.
_MAPPED = IPv6Network("::ffff:0:0/96")
_COMPATIBLE = IPv6Network("::/96")
_IPV4_TRANSLATED = IPv6Network("::ffff:0:0:0/96")
_NAT64 = IPv6Network("64:ff9b::/96")
_SIX_TO_FOUR = IPv6Network("2002::/16")
# IPv4 addresses within these may be anywhere in the address, so that none is taken.
_IPV4_ANYWHERE = (IPv6Network("64:ff9b:1::/48"), IPv6Network("2001::/32"))
# Not told apart by `is_global` in every release of Python that is in use.
_PRIVATE: tuple[IPv4Network | IPv6Network, ...] = (
    IPv4Network("100.64.0.0/10"),
    IPv4Network("192.0.0.0/24"),
    IPv4Network("192.88.99.0/24"),
    IPv4Network("168.63.129.16/32"),  # Azure's host, which is no private address
    IPv6Network("fec0::/10"),
    IPv6Network("5f00::/16"),
    IPv6Network("3fff::/20"),
)


def is_public(address: IPAddress) -> bool:
    """Tell whether an address is one of the open internet, whatever it is wrapped in."""
    if isinstance(address, IPv6Address):
        if address.scope_id is not None or any(address in network for network in _IPV4_ANYWHERE):
            return False
        inner = _embedded_ipv4(address)
        if inner is not None:
            return is_public(inner)
    if any(address.version == network.version and address in network for network in _PRIVATE):
        return False
    return (
        address.is_global
        and not address.is_multicast
        and not address.is_reserved
        and not address.is_unspecified
        and not address.is_loopback
        and not address.is_link_local
    )


def _embedded_ipv4(address: IPv6Address) -> IPv4Address | None:
    for network in (_MAPPED, _COMPATIBLE, _IPV4_TRANSLATED, _NAT64):
        if address in network:
            return IPv4Address(int(address) & 0xFFFF_FFFF)
    if address in _SIX_TO_FOUR:
        return IPv4Address(int(address) >> 80 & 0xFFFF_FFFF)
    return None


class AllowedHosts:
    """The hosts that the owner allows although they are at home, each as `host:port`."""

    def __init__(self, hosts: Iterable[str] = ()) -> None:
        self._hosts = frozenset(_host_port(host) for host in hosts)

    def __contains__(self, place: object) -> bool:
        return place in self._hosts

    def __hash__(self) -> int:
        return hash(self._hosts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AllowedHosts) and other._hosts == self._hosts


def _host_port(place: str) -> tuple[str, int]:
    host, _, port = place.rpartition(":")
    return _normal_host(host), int(port)


def _normal_host(host: str) -> str:
    """Return a host in the one spelling in which hosts are compared."""
    return host_of(host) or host.casefold()


def checked_url(text: str, allowed: AllowedHosts) -> URL:
    """Return an address that may be asked for; raise `ToolError` for any other.

    It leads to the host that policies were asked about: `host_of` of the text.
    """
    from yarl import URL

    parts = address_of(text)
    if parts is None:
        raise ToolError(
            f"{_quoted(text)} has no certain host. Write the address as "
            f"browsers show it, such as {_EXAMPLE}. Nothing was fetched."
        )
    scheme = parts.scheme or "https"
    if scheme not in _PORTS:
        raise ToolError(
            f"{_quoted(text)} is not the address of a web page. Write one such as {_EXAMPLE}; "
            "files and other protocols cannot be fetched."
        )
    if parts.user is not None:
        raise ToolError(
            f"{_quoted(text)} contains a name or password. Write the address without it."
        )
    port = parts.port if parts.port is not None else _PORTS[scheme]
    address = ip_of(parts.host)
    if address is not None and not is_public(address) and (parts.host, port) not in allowed:
        raise _private_error(parts.host, port)
    host = f"[{parts.host}]" if ":" in parts.host else parts.host
    try:
        written = "" if parts.port is None else f":{parts.port}"
        url = URL(f"{scheme}://{host}{written}{parts.rest}")
        same = url.host == parts.host and url.port == port
    except ValueError as error:
        raise ToolError(
            f"{_quoted(text)} is not a valid address ({error}). Write one such as {_EXAMPLE}."
        ) from (None)
    if not same:
        raise ToolError(f"{_quoted(text)} is not a valid address. Write one such as {_EXAMPLE}.")
    return url.with_fragment(None)


def host_and_port(text: str) -> tuple[str, int]:
    """Return the host and the port that an address leads to; raise `ToolError` if it has none."""
    parts = address_of(text)
    if parts is None:
        raise ToolError(f"{_quoted(text)} is not a valid address. Write one such as {_EXAMPLE}.")
    return parts.host, parts.port or _PORTS.get(parts.scheme, _PORTS["https"])


_EXAMPLE = "https://example.org/page"
_MAX_QUOTED = 200


def _quoted(text: str) -> str:
    return repr(text if len(text) <= _MAX_QUOTED else text[:_MAX_QUOTED] + "…")


def _private_error(host: str, port: int) -> ToolError:
    return ToolError(
        f"{host} is an address of a private network, which web does not contact. To allow "
        f'it, the owner can set allow = ["{host}:{port}"] under [web] in asterism.toml. '
        "Nothing was fetched."
    )


def public_resolver(allowed: AllowedHosts) -> AbstractResolver:
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
                infos = await loop.getaddrinfo(
                    host.rstrip("."), port, type=socket.SOCK_STREAM, family=family
                )
            except (OSError, UnicodeError):
                raise ToolError(
                    f"There is no host {host!r}, or its name cannot be looked up now. Check the "
                    "address."
                ) from None
            addresses = [str(entry[4][0]) for entry in infos]
            if (_normal_host(host), port) not in allowed:
                for address in addresses:
                    if not is_public(ip_address(address)):
                        raise _private_error(host, port)
            return [
                ResolveResult(
                    hostname=host,
                    host=address,
                    port=port,
                    family=entry[0],
                    proto=entry[2],
                    flags=socket.AI_NUMERICHOST,
                )
                for entry, address in zip(infos, addresses, strict=True)
            ]

        async def close(self) -> None:
            """There is nothing to let go of."""

    return Checked()
