"""Connecting to an MCP server: a program that is started, or an address that is asked."""

from __future__ import annotations

import asyncio
import os
import re
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, cast

import orjson

from asterism.config.settings import McpSettings
from asterism.errors import ConfigError, ToolError
from asterism.records import dataclass
from asterism.telemetry.redaction import add_secret
from asterism.tools.mcp.login import Renewals, Vault, is_logged_in, stored_login

if TYPE_CHECKING:
    from types import TracebackType

    import httpx2
    import mcp_types
    from mcp import Client
    from mcp.client import ClientRequestContext, IncomingMessage, Transport
    from mcp.shared.message import SessionMessage

# -- values that name a secret or a variable -------------------------------------------------------

ReadSecret = Callable[[str], Awaitable[str | None]]
"""Returns a stored secret by its name."""

_REFERENCE = re.compile(
    r"\$\{(?P<name>secret:\w[\w.:/@-]*|(?:env:)?\w+)(?::-(?P<otherwise>[^}]*))?\}"
)
_WHOLE_SECRET = re.compile(r"secret:(?P<name>\w[\w.:/@-]*)")
_LOOKS_SECRET = re.compile(r"(?i)auth|cookie|credential|key|pass|secret|token")


def looks_secret(name: str) -> bool:
    """Tell whether a variable or a header of this name is likely to hold a secret."""
    return _LOOKS_SECRET.search(name) is not None


async def resolve_value(
    server: str, where: str, text: str, secret: ReadSecret, environ: Mapping[str, str] | None = None
) -> str:
    """Return a text with what it names put in: `secret:NAME`, `${secret:NAME}`, `${NAME}`."""
    variables = os.environ if environ is None else environ
    if whole := _WHOLE_SECRET.fullmatch(text):
        return await _stored_secret(server, where, whole["name"], secret)
    parts: list[str] = []
    end = 0
    for match in _REFERENCE.finditer(text):
        parts.append(text[end : match.start()])
        end = match.end()
        name = match["name"]
        if name.startswith("secret:"):
            parts.append(await _stored_secret(server, where, name.removeprefix("secret:"), secret))
            continue
        name = name.removeprefix("env:")
        value = variables.get(name) or match["otherwise"]
        if value is None:
            raise ToolError(
                f"{where} of MCP server {server!r} names the variable {name}, which is not set. "
                f'Set it, or store it with "asterism key set {name}" and write '
                f"${{secret:{name}}}. The server was not started."
            )
        parts.append(value)
    return "".join((*parts, text[end:]))


async def resolve_values(
    server: str, where: str, values: Mapping[str, str], secret: ReadSecret
) -> dict[str, str]:
    """Return a table with what its values name put in."""
    resolved: dict[str, str] = {}
    for key, value in values.items():
        resolved[key] = await resolve_value(server, f"{where}.{key}", value, secret)
        if looks_secret(key):
            add_secret(f"mcp {server} {key}", resolved[key].removeprefix("Bearer "))
    return resolved


async def _stored_secret(server: str, where: str, name: str, secret: ReadSecret) -> str:
    value = await secret(name)
    if value is None:
        raise ToolError(
            f"{where} of MCP server {server!r} names the secret {name}, which is not stored. "
            f'Store it with "asterism key set {name}". The server was not started.'
        )
    return value


# -- what a server sends ---------------------------------------------------------------------------
# Everything passes here before the library reads it: one tool that is not well formed would make
# the library refuse the whole list, and it would hold results against a schema of the server's own,
# however long that takes.

_MAX_TOOL_NAME = 256
_HINTS = ("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")

JsonObject = dict[str, Any]


class MessageFilter:
    """Reads what a server sends, and notes what became of it."""

    def __init__(self) -> None:
        self.refused: dict[str, str] = {}
        """Tools of the list that is being read which are not well formed, with the reason."""
        self.unreadable = ""
        """What was wrong with the last message that could not be read at all."""
        self.on_end: Callable[[], None] = lambda: None
        """Called when the server will send nothing any more."""

    def wrap(self, transport: Transport) -> FilteredTransport:
        """Return the transport with this tap on it."""
        return FilteredTransport(transport, self)

    def check(self, item: SessionMessage | Exception) -> SessionMessage | Exception:
        """Look at a message, and clean it if it is a list of tools."""
        if isinstance(item, Exception):
            self.unreadable = str(item).partition(" [type=")[0]
            return _as_error_response(item, self.unreadable) or item
        result: Any = getattr(item.message, "result", None)
        if isinstance(result, dict):
            known = cast("JsonObject", result)
            if isinstance(known.get("tools"), list):
                known["tools"] = self._clean(cast("list[object]", known["tools"]))
        return item

    def _clean(self, tools: list[object]) -> list[JsonObject]:
        cleaned: list[JsonObject] = []
        for index, tool in enumerate(tools):
            result = clean_tool(tool)
            if isinstance(result, str):
                self.refused[_listed_name(tool) or f"(tool {index + 1})"] = result
            else:
                cleaned.append(result)
        return cleaned


def clean_tool(listed: object) -> JsonObject | str:
    """Return a tool with nothing but what is used of it, or the reason why it cannot be used."""
    if not isinstance(listed, dict):
        return "it is not a JSON object"
    tool = cast("JsonObject", listed)
    name = tool.get("name")
    if not isinstance(name, str) or not name:
        return "it has no name"
    if len(name) > _MAX_TOOL_NAME:
        return f"its name has {len(name):,} characters; the most is {_MAX_TOOL_NAME}"
    schema = tool.get("inputSchema")
    if not isinstance(schema, dict):
        return "it has no inputSchema, or one that is not a JSON object"
    known = dict(cast("JsonObject", schema))
    if fault := _schema_fault(known):
        return fault
    clean: JsonObject = {"name": name, "inputSchema": {**known, "type": "object"}}
    for key in ("title", "description"):
        if isinstance(tool.get(key), str):
            clean[key] = tool[key]
    try:
        orjson.dumps(clean)
    except TypeError as error:  # a number of many digits, half of a character
        return f"it cannot be kept as JSON ({error})"
    hints = tool.get("annotations")
    if isinstance(hints, dict):
        annotations = cast("JsonObject", hints)
        clean["annotations"] = {
            key: annotations[key] for key in _HINTS if isinstance(annotations.get(key), bool)
        }
    return clean


def _schema_fault(schema: JsonObject) -> str:
    """Say what the library could not read in a schema, and mend what means nothing."""
    if schema.get("type", "object") != "object":
        return f"its inputSchema has the type {str(schema['type'])[:40]!r}; 'object' is needed"
    if not isinstance(schema.get("$schema", ""), str):
        del schema["$schema"]
    for key in ("properties", "required"):
        if schema.get(key, ...) is None:
            del schema[key]
    properties = schema.get("properties", {})
    if not isinstance(properties, dict):
        return "the properties of its inputSchema are not a JSON object"
    for key, value in cast("JsonObject", properties).items():
        if not isinstance(value, dict | bool):
            return f"its parameter {key[:40]!r} is not described by a schema"
    required = schema.get("required", [])
    if not isinstance(required, list) or not all(
        isinstance(name, str) for name in cast("list[object]", required)
    ):
        return "what its inputSchema requires is not a list of names"
    return ""


def _as_error_response(error: Exception, why: str) -> SessionMessage | None:
    """Return an answer that cannot be read as a failure, so that nobody waits for it in vain.

    Such an answer may be nested too deeply; other lines that are not JSON may be anything.
    """
    from pydantic import ValidationError

    if not isinstance(error, ValidationError):
        return None
    line: Any = error.errors(include_url=False)[0].get("input")
    if not isinstance(line, str) or not re.search(r'"(result|error)"\s*:', line):
        return None
    id = re.search(r'"id"\s*:\s*(\d{1,15})\b', line)
    if '"jsonrpc"' not in line or id is None:
        return None
    from mcp.shared.message import SessionMessage
    from mcp_types import PARSE_ERROR, ErrorData, JSONRPCError

    error_data = ErrorData(code=PARSE_ERROR, message=f"its answer cannot be read ({why[:200]})")
    return SessionMessage(JSONRPCError(jsonrpc="2.0", id=int(id[1]), error=error_data))


def _listed_name(tool: object) -> str:
    name = cast("JsonObject", tool).get("name") if isinstance(tool, dict) else None
    return name[:_MAX_TOOL_NAME] if isinstance(name, str) else ""


class FilteredTransport:
    """A transport whose incoming messages pass a tap."""

    def __init__(self, transport: Transport, message_filter: MessageFilter) -> None:
        self._transport = transport
        self._filter = message_filter

    async def __aenter__(self) -> tuple[Any, Any]:
        incoming, outgoing = await self._transport.__aenter__()
        return _FilteredStream(incoming, self._filter), outgoing

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        return await self._transport.__aexit__(kind, error, trace)


class _FilteredStream:
    """The stream that the library reads from."""

    def __init__(self, stream: Any, message_filter: MessageFilter) -> None:
        self._stream = stream
        self._filter = message_filter

    @property
    def last_context(self) -> Any:
        return getattr(self._stream, "last_context", None)

    async def receive(self) -> SessionMessage | Exception:
        return self._filter.check(await self._read(self._stream.receive))

    async def aclose(self) -> None:
        await self._stream.aclose()

    def __aiter__(self) -> AsyncIterator[SessionMessage | Exception]:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        return self._filter.check(await self._read(self._stream.__anext__))

    async def __aenter__(self) -> Self:
        await self._stream.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        return await self._stream.__aexit__(kind, error, trace)

    async def _read(self, read: Callable[[], Awaitable[Any]]) -> Any:
        try:
            return await read()
        except Exception:  # the end of the stream, in whatever form
            self._filter.on_end()
            raise


# -- connections -----------------------------------------------------------------------------------

_MAX_STDERR_LINES = 12
_MAX_STDERR_LINE = 400

Elicit = Callable[[str, str, Mapping[str, Any]], Awaitable[dict[str, Any] | None]]
"""Asks a person what a server wants to know: its name, its words, a schema; None declines."""


@dataclass(frozen=True, slots=True)
class McpHost:
    """What reaching servers takes from the rest of the home."""

    read_secret: ReadSecret
    vault: Vault
    elicit: Elicit | None = None
    """Without it servers are told that nobody can be asked."""
    login: Callable[[str, McpSettings], Awaitable[httpx2.Auth]] | None = None
    """Makes a login while a person waits; without it only kept ones are used."""
    renewals: Renewals = field(default_factory=Renewals)


@dataclass(slots=True)
class McpConnection:
    """A connection with a server, and what was noticed about it."""

    name: str
    settings: McpSettings
    filter: MessageFilter = field(default_factory=MessageFilter)
    stderr_lines: deque[str] = field(default_factory=lambda: deque[str](maxlen=_MAX_STDERR_LINES))
    """The last lines that a program wrote on its standard error."""
    status: int = 0
    """The last HTTP status that was not a success."""
    on_tools_changed: Callable[[], None] = lambda: None
    """Called when the server says that its tools have changed."""

    @asynccontextmanager
    async def open(self, host: McpHost) -> AsyncGenerator[Client, None]:
        """Connect, agree on a protocol, and stay connected while the block runs."""
        mcp = _import_mcp()
        async with AsyncExitStack() as stack:
            transport = await (
                self._program(stack, host) if self.settings.command else self._address(stack, host)
            )
            client = mcp.Client(
                self.filter.wrap(transport),
                mode="legacy" if self.settings.protocol == "2025-11-25" else "auto",
                client_info=_client_info(),
                message_handler=self._on_message,
                list_roots_callback=self._roots if self.settings.roots else None,
                elicitation_callback=_elicitation(self.name, host.elicit) if host.elicit else None,
                cache=None,
            )
            await stack.enter_async_context(client)
            if self.settings.protocol not in ("auto", client.protocol_version):
                raise ConfigError(
                    f"mcp.{self.name}.protocol is {self.settings.protocol!r}, and the server "
                    f'speaks {client.protocol_version}. Set it to "auto". The server is not used.'
                )
            yield client

    async def _program(self, stack: AsyncExitStack, host: McpHost) -> Transport:
        from mcp.client.stdio import StdioServerParameters, stdio_client

        wanted = self.settings
        assert wanted.command is not None
        command = await resolve_value(self.name, "command", wanted.command, host.read_secret)
        parameters = StdioServerParameters(
            command=_expand_home(command),
            args=[
                await resolve_value(self.name, "args", argument, host.read_secret)
                for argument in wanted.args
            ],
            env=await resolve_values(self.name, "env", wanted.env, host.read_secret),
            cwd=_expand_home(wanted.cwd) if wanted.cwd else None,
            encoding_error_handler="replace",
        )
        reading, writing = os.pipe()
        overheard = stack.enter_context(os.fdopen(writing, "w"))
        await stack.enter_async_context(_reading_stderr(reading, self.stderr_lines))
        return stdio_client(parameters, errlog=overheard)

    async def _address(self, stack: AsyncExitStack, host: McpHost) -> Transport:
        import httpx2
        from mcp.client.streamable_http import streamable_http_client

        wanted = self.settings
        assert wanted.url is not None
        url = await resolve_value(self.name, "url", wanted.url, host.read_secret)
        headers = await resolve_values(self.name, "headers", wanted.headers, host.read_secret)
        auth: httpx2.Auth | None = None
        if host.login is not None:
            auth = await host.login(url, wanted)
        elif await is_logged_in(host.vault, self.name):
            auth = await stored_login(
                self.name,
                url,
                wanted.oauth,
                host.vault,
                host.renewals,
                secret=await self._client_secret(host),
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

    async def _client_secret(self, host: McpHost) -> str | None:
        named = self.settings.oauth.client_secret
        return (
            await resolve_value(self.name, "oauth.client_secret", named, host.read_secret)
            if named
            else None
        )

    async def _on_message(self, message: IncomingMessage) -> None:
        import mcp_types

        if isinstance(message, mcp_types.ToolListChangedNotification):
            self.on_tools_changed()

    async def _roots(self, _: ClientRequestContext) -> mcp_types.ListRootsResult:
        import mcp_types
        from pydantic import FileUrl

        places = [_root_path(root) for root in self.settings.roots]
        return mcp_types.ListRootsResult(
            roots=[mcp_types.Root(uri=FileUrl(path.as_uri()), name=path.name) for path in places]
        )


def _expand_home(path: str) -> str:
    return os.path.expanduser(path)  # noqa: PTH111 - a Path would take "./" from a program


def _root_path(path: str) -> Path:
    return Path(path).expanduser().absolute()


def _import_mcp() -> Any:
    try:
        import mcp
    except ImportError as error:
        raise ConfigError(
            f"MCP servers are configured, but {error.name} is not installed. "
            "Install it with: pip install 'asterism[mcp]'."
        ) from error
    return mcp


def _client_info() -> mcp_types.Implementation:
    from importlib.metadata import version

    import mcp_types

    return mcp_types.Implementation(name="asterism", version=version("asterism"))


def _elicitation(server: str, elicit: Elicit) -> Any:
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
async def _reading_stderr(reading: int, stderr_lines: deque[str]) -> AsyncGenerator[None, None]:
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
            rest = rest[-_MAX_STDERR_LINE:]
            for line in lines:
                text = line.decode("utf-8", "replace").strip()
                if text:
                    stderr_lines.append(text[:_MAX_STDERR_LINE])

    listening = asyncio.create_task(listen())
    try:
        yield
    finally:
        transport.close()
        listening.cancel()
