"""Bytes from an address into a file, going on at the byte where an earlier try ended."""

from __future__ import annotations

import asyncio
import os
import random
import ssl
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from asterism.models.http.endpoint import is_loopback, proxy_for

if TYPE_CHECKING:
    from aiohttp import ClientResponse, ClientSession

MAX_TRIES = 5
"""How often an address is tried without getting further."""
FIRST_PAUSE = 0.5
"""Seconds before the second try; doubled for each further one."""
STALL_SECONDS = 30.0
"""Seconds without a byte until a connection counts as dead."""
_BUNDLES = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "PIP_CERT")
"""Where people name the certificates of their mirror or proxy, beside OpenSSL's own variables."""

OnBytes = Callable[[int], None]
"""Called with the bytes that came in; a negative number when some have to be fetched again."""


class SourceFailed(Exception):
    """A place did not give the bytes; the words are a clause such as `it answers with 404`."""


class _Transient(Exception):
    """May work when tried again."""


@asynccontextmanager
async def open_session() -> AsyncGenerator[ClientSession, None]:
    """Open what downloads share."""
    import aiohttp

    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(ssl=_ssl_context()),
        cookie_jar=aiohttp.DummyCookieJar(),
        headers={"Accept-Encoding": "identity", "User-Agent": "asterism"},
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=STALL_SECONDS),
    ) as session:
        yield session


async def download(
    session: ClientSession, url: str, target: Path, *, size: int, moved: OnBytes
) -> None:
    """Fetch `size` bytes into a file, behind those that it holds already. Raises `SourceFailed`."""
    fruitless = 0
    while True:
        before = size_of(target)
        if before == size:
            return
        try:
            await _attempt(session, url, target, size, moved)
        except _Transient as hiccup:
            fruitless = 0 if size_of(target) > before else fruitless + 1
            if fruitless >= MAX_TRIES:
                raise SourceFailed(f"{hiccup}, {MAX_TRIES} times in a row") from None
            await asyncio.sleep(FIRST_PAUSE * 2**fruitless * random.uniform(0.5, 1.0))


async def _attempt(
    session: ClientSession, url: str, target: Path, size: int, moved: OnBytes
) -> None:
    from aiohttp import (
        ClientConnectorCertificateError,
        ClientConnectorError,
        ClientError,
        ConnectionTimeoutError,
    )
    from yarl import URL

    held = size_of(target)
    headers = {"Range": f"bytes={held}-"} if held else {}
    address = URL(url, encoded=True)
    proxy = None if is_loopback(address.host or "") else proxy_for(address)
    try:
        async with session.get(address, headers=headers, proxy=proxy) as response:
            _check_response(response, address.host or url, size)
            if response.status != 206 and held:
                _truncate(target, moved)
            await _receive(response, target, size, moved)
    except ClientConnectorCertificateError as error:
        raise SourceFailed(
            f"the certificate of {error.host} is not trusted; if that is your own mirror or "
            "proxy, name its certificates in SSL_CERT_FILE"
        ) from None
    except ClientConnectorError as error:
        raise _Transient(f"{error.host} cannot be reached ({_reason(error.os_error)})") from None
    except ConnectionTimeoutError:
        raise _Transient(f"{address.host} cannot be reached (no answer)") from None
    except TimeoutError:
        raise _Transient(f"{address.host} does not go on sending") from None
    except ClientError as error:
        raise _Transient(
            f"the connection to {address.host} broke ({type(error).__name__})"
        ) from None
    if size_of(target) < size:
        raise _Transient(f"{address.host} ended the connection early")


def _check_response(response: ClientResponse, host: str, size: int) -> None:
    """Refuse an answer that cannot be the file; its size is known."""
    status = response.status
    if status in (408, 416, 425, 429) or status >= 500:
        raise _Transient(f"{host} answers with {status}")
    if status not in (200, 206):
        raise SourceFailed(f"{host} answers with {status}")
    _, _, told = response.headers.get("Content-Range", "").rpartition("/")
    offered = int(told) if told.isdigit() else response.content_length
    if status == 200 and response.headers.get("Content-Encoding"):
        offered = None
    if offered is not None and offered != size and (status == 200 or told.isdigit()):
        raise SourceFailed(f"{host} has a file of {offered:,} bytes there instead of {size:,}")


async def _receive(response: ClientResponse, target: Path, size: int, moved: OnBytes) -> None:
    held = size_of(target)
    start = response.headers.get("Content-Range", "").removeprefix("bytes ").partition("-")[0]
    if response.status == 206 and start != str(held):
        _truncate(target, moved)
        raise _Transient("the answer begins at another byte than was asked for")
    with target.open("ab") as file:
        async for chunk in response.content.iter_chunked(1 << 18):
            held += len(chunk)
            if held > size:
                raise SourceFailed(f"more than the {size:,} bytes come that the file has")
            file.write(chunk)
            moved(len(chunk))


def _truncate(target: Path, moved: OnBytes) -> None:
    moved(-size_of(target))
    target.unlink(missing_ok=True)


def size_of(path: Path) -> int:
    """Return the size of a file, 0 where there is none."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _reason(error: OSError) -> str:
    return error.strerror or type(error).__name__


def _ssl_context() -> ssl.SSLContext:
    context = ssl.create_default_context()
    for name in _BUNDLES:
        bundle = Path(os.environ.get(name) or "/dev/null")
        if bundle.is_dir():
            context.load_verify_locations(capath=bundle)
        elif bundle.is_file() and bundle.stat().st_size:
            context.load_verify_locations(cafile=bundle)
    return context
