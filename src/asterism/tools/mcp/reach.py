"""Reaching a server: a program that is started, or an address that is asked."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from asterism.config.settings import McpSettings
from asterism.errors import ConfigError
from asterism.tools.mcp.oauth import Renewals, Vault, is_logged_in, kept_login
from asterism.tools.mcp.tap import Tap
from asterism.tools.mcp.values import Secret, all_filled, filled

if TYPE_CHECKING:
    import httpx2
    import mcp_types
    from mcp import Client
    from mcp.client import ClientRequestContext, IncomingMessage, Transport

_LAST_WORDS = 12
_LONGEST_WORDS = 400

Elicit = Callable[[str, str, Mapping[str, Any]], Awaitable[dict[str, Any] | None]]
"""Asks a person what a server wants to know: its name, its words, a schema; None declines."""


@dataclass(frozen=True, slots=True)
class Means:
    """What reaching servers takes from the rest of the home."""

    secret: Secret
    vault: Vault
    elicit: Elicit | None = None
    """Without it servers are told that nobody can be asked."""
    login: Callable[[str, McpSettings], Awaitable[httpx2.Auth]] | None = None
    """Makes a login while a person waits; without it only kept ones are used."""
    renewals: Renewals = field(default_factory=Renewals)


@dataclass(slots=True)
class Reached:
    """A connection with a server, and what was noticed about it."""

    name: str
    settings: McpSettings
    tap: Tap = field(default_factory=Tap)
    words: deque[str] = field(default_factory=lambda: deque[str](maxlen=_LAST_WORDS))
    """The last lines that a program wrote on its standard error."""
    status: int = 0
    """The last HTTP status that was no success."""
    changed: Callable[[], None] = lambda: None
    """Called when the server says that its tools have changed."""

    @asynccontextmanager
    async def connected(self, means: Means) -> AsyncGenerator[Client, None]:
        """Connect, agree on a protocol, and stay connected while the block runs."""
        mcp = _library()
        async with AsyncExitStack() as stack:
            transport = await (
                self._program(stack, means)
                if self.settings.command
                else self._address(stack, means)
            )
            client = mcp.Client(
                self.tap.on(transport),
                mode="legacy" if self.settings.protocol == "2025-11-25" else "auto",
                client_info=_introduction(),
                message_handler=self._hear,
                list_roots_callback=self._roots if self.settings.roots else None,
                elicitation_callback=_asking(self.name, means.elicit) if means.elicit else None,
                cache=None,
            )
            await stack.enter_async_context(client)
            if self.settings.protocol not in ("auto", client.protocol_version):
                raise ConfigError(
                    f"mcp.{self.name}.protocol is {self.settings.protocol!r}, and the server "
                    f'speaks {client.protocol_version}. Set it to "auto". The server is not used.'
                )
            yield client

    async def _program(self, stack: AsyncExitStack, means: Means) -> Transport:
        from mcp.client.stdio import StdioServerParameters, stdio_client

        wanted = self.settings
        assert wanted.command is not None
        command = await filled(self.name, "command", wanted.command, means.secret)
        parameters = StdioServerParameters(
            command=_homed(command),
            args=[await filled(self.name, "args", one, means.secret) for one in wanted.args],
            env=await all_filled(self.name, "env", wanted.env, means.secret),
            cwd=_homed(wanted.cwd) if wanted.cwd else None,
            encoding_error_handler="replace",
        )
        reading, writing = os.pipe()
        overheard = stack.enter_context(os.fdopen(writing, "w"))
        await stack.enter_async_context(_overhearing(reading, self.words))
        return stdio_client(parameters, errlog=overheard)

    async def _address(self, stack: AsyncExitStack, means: Means) -> Transport:
        import httpx2
        from mcp.client.streamable_http import streamable_http_client

        wanted = self.settings
        assert wanted.url is not None
        url = await filled(self.name, "url", wanted.url, means.secret)
        headers = await all_filled(self.name, "headers", wanted.headers, means.secret)
        auth: httpx2.Auth | None = None
        if means.login is not None:
            auth = await means.login(url, wanted)
        elif await is_logged_in(means.vault, self.name):
            auth = await kept_login(
                self.name,
                url,
                wanted.oauth,
                means.vault,
                means.renewals,
                secret=await self._client_secret(means),
            )

        async def notice(response: httpx2.Response) -> None:
            if response.status_code >= 400:
                self.status = response.status_code
            elif self.status == 401:
                self.status = 0  # the login was renewed

        http = httpx2.AsyncClient(
            headers=headers,
            auth=auth,
            timeout=httpx2.Timeout(wanted.connect_timeout, read=max(wanted.timeout, 300.0)),
            event_hooks={"response": [notice]},
        )
        return streamable_http_client(url, http_client=await stack.enter_async_context(http))

    async def _client_secret(self, means: Means) -> str | None:
        named = self.settings.oauth.client_secret
        return (
            await filled(self.name, "oauth.client_secret", named, means.secret) if named else None
        )

    async def _hear(self, message: IncomingMessage) -> None:
        import mcp_types

        if isinstance(message, mcp_types.ToolListChangedNotification):
            self.changed()

    async def _roots(self, _: ClientRequestContext) -> mcp_types.ListRootsResult:
        import mcp_types
        from pydantic import FileUrl

        places = [_place(one) for one in self.settings.roots]
        return mcp_types.ListRootsResult(
            roots=[mcp_types.Root(uri=FileUrl(one.as_uri()), name=one.name) for one in places]
        )


def _homed(path: str) -> str:
    return os.path.expanduser(path)  # noqa: PTH111 - a Path would take "./" from a program


def _place(path: str) -> Path:
    return Path(path).expanduser().absolute()


def _library() -> Any:
    try:
        import mcp
    except ImportError as error:
        raise ConfigError(
            f"MCP servers are configured, but {error.name} is not installed. "
            "Install it with: pip install 'asterism[mcp]'."
        ) from error
    return mcp


def _introduction() -> mcp_types.Implementation:
    from importlib.metadata import version

    import mcp_types

    return mcp_types.Implementation(name="asterism", version=version("asterism"))


def _asking(server: str, elicit: Elicit) -> Any:
    async def ask(
        _: ClientRequestContext, wanted: mcp_types.ElicitRequestParams
    ) -> mcp_types.ElicitResult:
        import mcp_types

        if not isinstance(wanted, mcp_types.ElicitRequestFormParams):
            return mcp_types.ElicitResult(action="decline")
        answer = await elicit(server, wanted.message, wanted.requested_schema)
        if answer is None:
            return mcp_types.ElicitResult(action="decline")
        return mcp_types.ElicitResult(action="accept", content=answer)

    return ask


@asynccontextmanager
async def _overhearing(reading: int, words: deque[str]) -> AsyncGenerator[None, None]:
    """Keep the last lines that come out of a pipe."""
    loop = asyncio.get_running_loop()
    stream = asyncio.StreamReader(limit=65_536)
    transport, _ = await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(stream), os.fdopen(reading, "rb", buffering=0)
    )

    async def listen() -> None:
        rest = b""
        while chunk := await stream.read(8_192):
            *lines, rest = (rest + chunk).split(b"\n")
            rest = rest[-_LONGEST_WORDS:]
            for line in lines:
                text = line.decode("utf-8", "replace").strip()
                if text:
                    words.append(text[:_LONGEST_WORDS])

    listening = asyncio.create_task(listen())
    try:
        yield
    finally:
        transport.close()
        listening.cancel()
