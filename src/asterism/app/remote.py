"""A home on another machine, or behind an address: the same nouns and verbs, over HTTP."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

from asterism.client import Hello, RemoteHome, lost, read_frame
from asterism.errors import HomeLost, InvalidInput, NotAllowed
from asterism.version import __version__
from asterism.wire import MAX_FRAME, to_line

_CONNECT_WITHIN = 10.0
_PATH = "/api/call"


@asynccontextmanager
async def connected(url: str, token: str) -> AsyncGenerator[RemoteHome, None]:
    """Give the home behind an address, such as `https://home.example.org`.

    Args:
        url: Where `asterism serve` listens, or what stands in front of it.
        token: A token of the owner without limits.
    """
    import aiohttp

    address = checked_url(url)
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_WITHIN)
    async with aiohttp.ClientSession(
        timeout=timeout, headers={"authorization": f"Bearer {token}"}, read_bufsize=1 << 20
    ) as session:
        transport = HttpTransport(address, token, session)
        hello: Hello | None = None
        async for frame in transport.frames({"call": "hello", "work": True}, "hello", None):
            hello = Hello(**frame["result"])
        assert hello is not None
        yield RemoteHome(Path(address), hello, None, work=True, transport=transport)


def checked_url(url: str) -> str:
    """Return the address of a home without a slash at its end; raise if it is none."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise InvalidInput(
            f"{url[:80]!r} is not an address of a home. Write one such as "
            "https://home.example.org or http://127.0.0.1:8283. Nothing was done."
        )
    return url.rstrip("/")


class HttpTransport:
    """Calls as requests to the address of a home."""

    def __init__(self, url: str, token: str, session: Any) -> None:
        """Make it; `session` is one of aiohttp."""
        self._url = url
        self._token = token
        self._session = session

    async def frames(
        self, request: Mapping[str, Any], name: str, pid: int | None
    ) -> AsyncGenerator[dict[str, Any], None]:
        """Send a request and yield the frames of its answer; the last one has the result."""
        import aiohttp

        body = to_line({**request, "version": __version__})
        try:
            async with self._session.post(f"{self._url}{_PATH}", data=body) as answer:
                if answer.status != 200:
                    raise _refused(self._url, answer.status, await answer.text())
                buffer = bytearray()
                async for part in answer.content.iter_any():
                    buffer += part
                    while (end := buffer.find(b"\n")) >= 0:
                        line = bytes(buffer[: end + 1])
                        del buffer[: end + 1]
                        frame = read_frame(line, self._url, name, pid)
                        yield frame
                        if "result" in frame:
                            return
                    if len(buffer) > MAX_FRAME:
                        raise lost(self._url, name, pid)
            raise lost(self._url, name, pid)
        except aiohttp.ClientConnectorError as error:
            raise HomeLost(
                f"There is no home at {self._url} ({error.strerror or error}). Start it there with "
                '"asterism serve", or correct the address. Nothing was done.'
            ) from None
        except (aiohttp.ClientError, ConnectionError):
            raise lost(self._url, name, pid) from None

    def frame_now(self, request: Mapping[str, Any], name: str, pid: int | None) -> dict[str, Any]:
        """Send a request whose answer is one frame, and wait for it."""
        import urllib.error
        import urllib.request

        body = to_line({**request, "version": __version__})
        sent = urllib.request.Request(  # noqa: S310 - `checked_url` lets http and https through
            f"{self._url}{_PATH}", body, {"authorization": f"Bearer {self._token}"}
        )
        try:
            with urllib.request.urlopen(sent, timeout=_CONNECT_WITHIN) as answer:  # noqa: S310
                return read_frame(answer.readline(), self._url, name, pid)
        except urllib.error.HTTPError as error:
            with error:
                raise _refused(self._url, error.code, error.read().decode()) from None
        except OSError:
            raise lost(self._url, name, pid) from None


def _refused(url: str, status: int, text: str) -> NotAllowed:
    """Return the error for an answer that is not one of a verb."""
    try:
        shape: object = json.loads(text)
    except ValueError:
        shape = None
    detail = cast("dict[str, Any]", shape).get("detail") if isinstance(shape, dict) else None
    said = detail or f"The server answered with status {status}, which is not asterism's."
    return NotAllowed(f"{url} does not let this in: {said}")
