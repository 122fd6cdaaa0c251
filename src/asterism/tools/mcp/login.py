"""Logins at MCP servers: OAuth with stored tokens, and the address that a browser comes back to."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any, Protocol, TypeVar
from urllib.parse import parse_qs, urlsplit

import orjson

from asterism.config.settings import SERVER_NAME, OAuthSettings
from asterism.errors import Conflict, InvalidInput
from asterism.telemetry.redaction import add_secret
from asterism.tools.mcp.tools import file_name

if TYPE_CHECKING:
    import httpx2
    from mcp.client.auth import AuthorizationCodeResult, OAuthClientProvider
    from mcp.shared.auth import OAuthClientInformationFull, OAuthToken

T = TypeVar("T")

_log = logging.getLogger(__name__)

_CLIENT_NAME = "asterism"
_EARLY_SECONDS = 30
"""Seconds before its end at which a token counts as expired."""
_EXCHANGE_SECONDS = 30.0
"""Seconds in which a server exchanges a token."""
_NO_REDIRECT = "http://127.0.0.1/callback"
"""Where nobody comes back to from a login, since none is made."""
_VERSION_HEADER = "mcp-protocol-version"


class Vault(Protocol):
    """Where tokens rest, for all processes of a home."""

    @property
    def writes(self) -> bool:
        """Whether anything can be kept; not where a home is opened for reading."""
        ...

    async def read(self, name: str) -> str | None:
        """Return what is kept under a name at this moment, whoever put it there."""
        ...

    async def write(self, name: str, value: str | None) -> None:
        """Keep a value; None takes it away. On return it is durable."""
        ...

    def alone(self, name: str) -> AbstractAsyncContextManager[None]:
        """Keep everybody else from holding the name, in any process, while the block runs."""
        ...


class LoginNeeded(Exception):
    """Raised where a person would have to log in and none is there."""


class LoginExpired(Exception):
    """Raised where a login has run out, and a new token could not be kept."""

    def __init__(self) -> None:
        super().__init__(LOGIN_EXPIRED)


class RenewalFailed(Exception):
    """Raised where a login could not be renewed this time."""


LOGIN_EXPIRED = (
    "its login has run out and is renewed when an agent next uses it; what is opened for reading "
    "cannot keep a new one"
)


class Renewals:
    """Renewals of logins under way. One that nobody waits for any more is brought to its end.

    The server takes the former refresh token for used once it has been asked, so that a renewal
    that is given up in the middle loses the login.
    """

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Carry out a renewal; being cancelled does not end it."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return await asyncio.shield(task)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.debug("a login was not renewed: %s", error)

    async def close(self) -> None:
        """Wait for those under way, for as long as a server may take."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_EXCHANGE_SECONDS)


ShowAddress = Callable[[str], Awaitable[None]]
"""Shows a person the address at which to log in."""
WaitForCode = Callable[[], Awaitable["AuthorizationCodeResult"]]
"""Waits until the person comes back from there."""


def login_key(server: str) -> str:
    """Return the name under which the login at a server is kept."""
    return f"mcp:{server if SERVER_NAME.fullmatch(server) else file_name(server)}"


class _StoredLogin:
    """What is kept of a login, in the form that the library asks for."""

    def __init__(
        self, vault: Vault, server: str, registered: OAuthClientInformationFull | None
    ) -> None:
        self._vault = vault
        self.name = login_key(server)
        self._registered = registered
        self.kept: dict[str, Any] = {}
        self.provider: OAuthClientProvider | None = None

    @property
    def access(self) -> str | None:
        """The access token, unless it has run out or is about to."""
        tokens: dict[str, Any] = self.kept.get("tokens") or {}
        ends = self.kept.get("expires_at")
        early = min(_EARLY_SECONDS, (tokens.get("expires_in") or 0) / 2)
        return None if ends and time.time() > ends - early else tokens.get("access_token")

    async def load(self) -> None:
        text = await self._vault.read(self.name)
        try:
            self.kept = orjson.loads(text) if text else {}
        except orjson.JSONDecodeError:
            self.kept = {}
        self._know()

    def _know(self) -> None:
        """Have the tokens taken out of everything that is logged or shown."""
        stored = {**self.kept.get("tokens", {}), **self.kept.get("client", {})}
        for key in ("access_token", "refresh_token", "client_secret"):
            if isinstance(stored.get(key), str):
                add_secret(f"{self.name} {key}", stored[key])

    async def get_tokens(self) -> OAuthToken | None:
        from mcp.shared.auth import OAuthToken

        tokens = self.kept.get("tokens")
        return OAuthToken.model_validate(tokens) if tokens else None

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.kept["tokens"] = tokens.model_dump(mode="json", exclude_none=True)
        self.kept["expires_at"] = time.time() + tokens.expires_in if tokens.expires_in else None
        if self.provider is not None:
            # Where to refresh is discovered at the login only, and has to be known ever after.
            context = self.provider.context
            self.kept["server"] = context.auth_server_url
            self.kept["metadata"] = _dump(context.oauth_metadata)
            self.kept["resource"] = _dump(context.protected_resource_metadata)
        await self._save()

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        from mcp.shared.auth import OAuthClientInformationFull

        if self._registered is not None:
            return self._registered
        client = self.kept.get("client")
        return OAuthClientInformationFull.model_validate(client) if client else None

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.kept["client"] = client_info.model_dump(mode="json", exclude_none=True)
        await self._save()

    async def _save(self) -> None:
        self._know()
        await self._vault.write(self.name, orjson.dumps(self.kept).decode())


def _dump(model: Any) -> Any:
    return model.model_dump(mode="json", exclude_none=True) if model is not None else None


async def is_logged_in(vault: Vault, server: str) -> bool:
    """Tell whether a login at a server is kept."""
    login = _StoredLogin(vault, server, None)
    await login.load()
    return bool(login.kept.get("tokens"))


async def is_login_expired(vault: Vault, server: str) -> bool:
    """Tell whether a login at a server has run out, and cannot be renewed here."""
    login = _StoredLogin(vault, server, None)
    await login.load()
    return bool(login.kept.get("tokens")) and login.access is None and not vault.writes


async def login_provider(
    server: str,
    url: str,
    settings: OAuthSettings,
    vault: Vault,
    *,
    secret: str | None = None,
    show_address: ShowAddress,
    callback: WaitForCode,
    redirect: str,
) -> OAuthClientProvider:
    """Return what logs in anew while a person is there, and keeps the login."""
    login = _StoredLogin(vault, server, _configured_client(settings, secret, redirect))
    await login.load()
    # The way back has another port than the last time.
    login.kept.pop("client", None)
    login.kept.pop("tokens", None)
    login.provider = _provider(login, url, settings, redirect, show_address, callback)
    return login.provider


def _provider(
    login: _StoredLogin,
    url: str,
    settings: OAuthSettings,
    redirect: str,
    show_address: ShowAddress | None = None,
    callback: WaitForCode | None = None,
) -> OAuthClientProvider:
    from mcp.client.auth import OAuthClientProvider
    from mcp.shared.auth import OAuthClientMetadata
    from pydantic import AnyUrl

    return OAuthClientProvider(
        url,
        OAuthClientMetadata(
            client_name=_CLIENT_NAME,
            redirect_uris=[AnyUrl(redirect)],
            grant_types=["authorization_code", "refresh_token"],
            response_types=["code"],
            scope=settings.scope,
        ),
        login,
        redirect_handler=show_address,
        callback_handler=callback,
        client_metadata_url=settings.metadata_url,
    )


# -- logins that are kept --------------------------------------------------------------------------


async def stored_login(
    server: str,
    url: str,
    settings: OAuthSettings,
    vault: Vault,
    renewals: Renewals,
    *,
    secret: str | None = None,
) -> httpx2.Auth:
    """Return what adds the tokens of a kept login to requests, renewed when they have run out.

    Where nobody but a person can help, `LoginNeeded` is raised.
    """
    import httpx2

    login = _StoredLogin(vault, server, _configured_client(settings, secret, _NO_REDIRECT))
    await login.load()

    async def renewed(stale: str | None, request: httpx2.Request) -> str:
        version = request.headers.get(_VERSION_HEADER)
        work = _renew(login, _provider(login, url, settings, _NO_REDIRECT), vault, stale, version)
        token = await renewals.run(work)
        if token is None:
            raise LoginNeeded
        return token

    class _StoredTokens(httpx2.Auth):
        async def async_auth_flow(
            self, request: httpx2.Request
        ) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
            token = login.access or await renewed(None, request)
            request.headers["Authorization"] = f"Bearer {token}"
            response = yield request
            if response.status_code == 401:
                # It was taken back, or renewed by another process, before its time.
                token = await renewed(token, request)
                request.headers["Authorization"] = f"Bearer {token}"
                response = yield request
            if response.status_code == 401 or _needs_more_scope(response):
                raise LoginNeeded

    return _StoredTokens()


def _needs_more_scope(response: httpx2.Response) -> bool:
    """Tell whether a server wants a login that lets us do more."""
    challenge = response.headers.get("WWW-Authenticate", "")
    return response.status_code == 403 and "insufficient_scope" in challenge


async def _renew(
    login: _StoredLogin,
    provider: OAuthClientProvider,
    vault: Vault,
    stale: str | None,
    version: str | None,
) -> str | None:
    """Return an access token other than `stale`; None if a person has to log in.

    One process renews at a time, and what the others have kept meanwhile is looked at first. A new
    token is kept before anybody uses it: the former refresh token may be good for nothing by then.
    """
    from mcp.shared.auth import OAuthToken
    from pydantic import ValidationError

    async with vault.alone(login.name):
        await login.load()
        if login.access not in (None, stale):
            return login.access
        former, client = await login.get_tokens(), await login.get_client_info()
        if former is None or former.refresh_token is None or client is None:
            return None
        if not vault.writes:
            raise LoginExpired
        response = await _exchange_token(login, provider, former.refresh_token, client, version)
        if response.status_code in (400, 401, 403):
            _log.info("%s is not renewed: HTTP %d", login.name, response.status_code)
            return None
        if response.status_code != 200:
            raise RenewalFailed(f"its login was not renewed: HTTP status {response.status_code}")
        try:
            tokens = OAuthToken.model_validate_json(response.content)
        except ValidationError:
            raise RenewalFailed("its login was not renewed: the answer is not a token") from None
        # What is left out has not changed (RFC 6749, section 6).
        tokens.scope = tokens.scope if tokens.scope is not None else former.scope
        tokens.refresh_token = tokens.refresh_token or former.refresh_token
        await login.set_tokens(tokens)
        return tokens.access_token


async def _exchange_token(
    login: _StoredLogin,
    provider: OAuthClientProvider,
    refresh_token: str,
    client: OAuthClientInformationFull,
    version: str | None,
) -> httpx2.Response:
    """Exchange a refresh token, where the login has found that this is done."""
    import httpx2
    from mcp.shared.auth import ProtectedResourceMetadata

    context, stored = provider.context, login.kept
    context.client_info = client
    if stored.get("resource"):
        resource = ProtectedResourceMetadata.model_validate(stored["resource"])
        context.protected_resource_metadata = resource
    base = context.get_authorization_base_url(context.server_url)
    metadata: dict[str, Any] = stored.get("metadata") or {}
    endpoint: str = metadata.get("token_endpoint") or f"{base}/token"
    data = {
        "grant_type": "refresh_token",
        "refresh_token": refresh_token,
        "client_id": client.client_id or "",
    }
    if context.should_include_resource_param(version):
        data["resource"] = context.get_resource_url()
    data, headers = context.prepare_token_auth(data, {})
    async with httpx2.AsyncClient(timeout=_EXCHANGE_SECONDS) as http:
        return await http.post(endpoint, data=data, headers=headers)


def _configured_client(
    settings: OAuthSettings, secret: str | None, redirect: str
) -> OAuthClientInformationFull | None:
    """Return the client that the server's owner has registered for us, if the settings name one."""
    if settings.client_id is None:
        return None
    from mcp.shared.auth import OAuthClientInformationFull
    from pydantic import AnyUrl

    return OAuthClientInformationFull(
        client_id=settings.client_id,
        client_secret=secret,
        redirect_uris=[AnyUrl(redirect)],
        token_endpoint_auth_method="client_secret_basic" if secret else "none",
    )


# -- the way back of a browser ---------------------------------------------------------------------

_CALLBACK_HOST = "127.0.0.1"
_CALLBACK_PATH = "/callback"
_CALLBACK_PAGE = (
    b"<!doctype html><meta charset=utf-8><title>asterism</title>"
    b"<p>You are logged in, and can close this page.</p>"
)
_MAX_LINE = 16_384


class CallbackServer:
    """Waits for one browser with a code."""

    def __init__(self, port: int) -> None:
        self.address = f"http://{_CALLBACK_HOST}:{port}{_CALLBACK_PATH}"
        self._returned: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def finish(self, address: str) -> None:
        """Take the address with which a person came back, as it stands in the browser."""
        if not self._returned.done():
            self._returned.set_result(address)

    async def wait(self) -> AuthorizationCodeResult:
        """Wait for the person to come back, and return what came along."""
        from mcp.client.auth import AuthorizationCodeResult

        query = parse_qs(urlsplit(await self._returned).query)

        def only(name: str) -> str | None:
            return query.get(name, [None])[0]

        if error := only("error"):
            reason = only("error_description") or error
            raise InvalidInput(f"The login was refused: {reason[:300]}. Nothing was stored.")
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
            is_callback = urlsplit(target).path == _CALLBACK_PATH and bool(
                {"code", "error"} & query.keys()
            )
            status = b"200 OK" if is_callback else b"404 Not Found"
            page = _CALLBACK_PAGE if is_callback else b""
            writer.write(
                b"HTTP/1.1 %b\r\nContent-Type: text/html\r\nContent-Length: %d\r\n"
                b"Connection: close\r\n\r\n%b" % (status, len(page), page)
            )
            await writer.drain()
            if is_callback:
                self.finish(target)
        except (OSError, ValueError, TimeoutError):
            return  # whoever that was, it was not a browser that comes back from a login
        finally:
            writer.close()


@asynccontextmanager
async def callback_server(port: int) -> AsyncGenerator[CallbackServer, None]:
    """Listen on a port of this machine, any free one for 0, while the block runs."""
    servers: list[CallbackServer] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await servers[0].serve(reader, writer)

    try:
        listener = await asyncio.start_server(serve, _CALLBACK_HOST, port, limit=_MAX_LINE)
    except OSError as error:
        raise Conflict(
            f"Port {port} of this machine cannot be used ({error.strerror or error}). Set "
            "oauth.callback_port of the server to a free one, or to 0. Nothing was done."
        ) from None
    async with listener:
        servers.append(CallbackServer(listener.sockets[0].getsockname()[1]))
        yield servers[0]
