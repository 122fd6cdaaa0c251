"""The landing: where a browser comes back to after a login, on this machine only."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

from asterism.errors import Conflict, InvalidInput

if TYPE_CHECKING:
    from mcp.client.auth import AuthorizationCodeResult

_HOST = "127.0.0.1"
_PATH = "/callback"
_PAGE = (
    b"<!doctype html><meta charset=utf-8><title>asterism</title>"
    b"<p>You are logged in, and can close this page.</p>"
)
_LONGEST_LINE = 16_384


class Landing:
    """Waits for one browser with a code."""

    def __init__(self, port: int) -> None:
        self.address = f"http://{_HOST}:{port}{_PATH}"
        self._came: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def come(self, address: str) -> None:
        """Take the address with which a person came back, as it stands in the browser."""
        if not self._came.done():
            self._came.set_result(address)

    async def callback(self) -> AuthorizationCodeResult:
        """Wait for the person to come back, and return what came along."""
        from mcp.client.auth import AuthorizationCodeResult

        query = parse_qs(urlsplit(await self._came).query)

        def only(name: str) -> str | None:
            return query.get(name, [None])[0]

        if error := only("error"):
            said = only("error_description") or error
            raise InvalidInput(f"The login was refused: {said[:300]}. Nothing was stored.")
        return AuthorizationCodeResult(
            code=only("code") or "", state=only("state"), iss=only("iss")
        )

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one visitor."""
        try:
            async with asyncio.timeout(10):
                line = (await reader.readline()).decode("latin-1").split()
                while (await reader.readline()).strip():
                    pass
            target = line[1] if len(line) == 3 and line[0] == "GET" else ""
            query = parse_qs(urlsplit(target).query)
            found = urlsplit(target).path == _PATH and bool({"code", "error"} & query.keys())
            status = b"200 OK" if found else b"404 Not Found"
            page = _PAGE if found else b""
            writer.write(
                b"HTTP/1.1 %b\r\nContent-Type: text/html\r\nContent-Length: %d\r\n"
                b"Connection: close\r\n\r\n%b" % (status, len(page), page)
            )
            await writer.drain()
            if found:
                self.come(target)
        except (OSError, ValueError, TimeoutError):
            return  # whoever that was, it was no browser that comes back from a login
        finally:
            writer.close()


@asynccontextmanager
async def landing(port: int) -> AsyncGenerator[Landing, None]:
    """Listen on a port of this machine, any free one for 0, while the block runs."""
    made: list[Landing] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await made[0].serve(reader, writer)

    try:
        listener = await asyncio.start_server(serve, _HOST, port, limit=_LONGEST_LINE)
    except OSError as error:
        raise Conflict(
            f"Port {port} of this machine cannot be used ({error.strerror or error}). Set "
            "oauth.callback_port of the server to a free one, or to 0. Nothing was done."
        ) from None
    async with listener:
        made.append(Landing(listener.sockets[0].getsockname()[1]))
        yield made[0]
