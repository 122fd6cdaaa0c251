"""Logins: OAuth at servers that ask for it, with tokens kept where secrets are kept."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import orjson

from asterism.config.mcp import SERVER_NAME, OAuthSettings
from asterism.telemetry.redaction import know
from asterism.tools.mcp.listing import filed, put

if TYPE_CHECKING:
    from mcp.client.auth import AuthorizationCodeResult, OAuthClientProvider
    from mcp.shared.auth import OAuthClientInformationFull, OAuthToken

_CLIENT_NAME = "asterism"
_EARLY = 30
"""Seconds before its end at which a token counts as expired."""


class Vault(Protocol):
    """Where tokens rest."""

    async def read(self, name: str) -> str | None:
        """Return what is kept under a name."""
        ...

    async def write(self, name: str, value: str | None) -> None:
        """Keep a value; None takes it away."""
        ...


class FileVault:
    """Tokens in files that only their owner reads."""

    def __init__(self, place: Path) -> None:
        self._place = place

    async def read(self, name: str) -> str | None:
        """Return what is kept under a name."""
        try:
            return self._file(name).read_text(encoding="utf-8")
        except OSError:
            return None

    async def write(self, name: str, value: str | None) -> None:
        """Keep a value; None takes it away."""
        if value is None:
            self._file(name).unlink(missing_ok=True)
        else:
            put(self._file(name), value.encode())

    def _file(self, name: str) -> Path:
        return self._place / f"{filed(name)}.token"


class LoginNeeded(Exception):
    """Raised where a person would have to log in and none is there."""


Visit = Callable[[str], Awaitable[None]]
"""Shows a person the address at which to log in."""
Callback = Callable[[], Awaitable["AuthorizationCodeResult"]]
"""Waits until the person comes back from there."""


def kept_under(server: str) -> str:
    """Return the name under which the login at a server is kept."""
    return f"mcp:{server if SERVER_NAME.fullmatch(server) else filed(server)}"


class _Login:
    """What is kept of a login, in the form that the library asks for."""

    def __init__(
        self, vault: Vault, server: str, registered: OAuthClientInformationFull | None
    ) -> None:
        self._vault = vault
        self._name = kept_under(server)
        self._registered = registered
        self.kept: dict[str, Any] = {}
        self.provider: OAuthClientProvider | None = None

    async def load(self) -> None:
        text = await self._vault.read(self._name)
        try:
            self.kept = orjson.loads(text) if text else {}
        except orjson.JSONDecodeError:
            self.kept = {}
        self._know()

    def _know(self) -> None:
        """Have the tokens taken out of everything that is logged or shown."""
        found = {**self.kept.get("tokens", {}), **self.kept.get("client", {})}
        for key in ("access_token", "refresh_token", "client_secret"):
            if isinstance(found.get(key), str):
                know(f"{self._name} {key}", found[key])

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
            self.kept["metadata"] = _dumped(context.oauth_metadata)
            self.kept["resource"] = _dumped(context.protected_resource_metadata)
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
        await self._vault.write(self._name, orjson.dumps(self.kept).decode())


def _dumped(model: Any) -> Any:
    return model.model_dump(mode="json", exclude_none=True) if model is not None else None


async def is_logged_in(vault: Vault, server: str) -> bool:
    """Tell whether a login at a server is kept."""
    login = _Login(vault, server, None)
    await login.load()
    return bool(login.kept.get("tokens"))


async def provider(
    server: str,
    url: str,
    settings: OAuthSettings,
    vault: Vault,
    *,
    secret: str | None = None,
    visit: Visit | None = None,
    callback: Callback | None = None,
    redirect: str = "http://127.0.0.1/callback",
) -> OAuthClientProvider:
    """Return what adds tokens to requests: kept ones, refreshed ones, or those of a new login.

    Without `visit` nobody is there to log in, and `LoginNeeded` is raised when that is needed.
    """
    from mcp.client.auth import OAuthClientProvider
    from mcp.shared.auth import OAuthClientMetadata, OAuthMetadata, ProtectedResourceMetadata
    from pydantic import AnyUrl

    async def nobody(_: str) -> None:
        raise LoginNeeded

    async def nothing() -> AuthorizationCodeResult:
        raise LoginNeeded

    login = _Login(vault, server, _registered(settings, secret, redirect))
    await login.load()
    if visit is not None:
        # A login begins anew: the way back from it has another port than the last time.
        login.kept.pop("client", None)
        login.kept.pop("tokens", None)
    made = OAuthClientProvider(
        url,
        OAuthClientMetadata(
            client_name=_CLIENT_NAME,
            redirect_uris=[AnyUrl(redirect)],
            grant_types=["authorization_code", "refresh_token"],
            response_types=["code"],
            scope=settings.scope,
        ),
        login,
        redirect_handler=visit or nobody,
        callback_handler=callback or nothing,
        client_metadata_url=settings.metadata_url,
    )
    login.provider = made
    if visit is None and login.kept.get("tokens"):
        context, kept = made.context, login.kept
        if kept.get("expires_at"):
            context.token_expiry_time = float(kept["expires_at"]) - _EARLY
        context.auth_server_url = kept.get("server")
        if kept.get("metadata"):
            context.oauth_metadata = OAuthMetadata.model_validate(kept["metadata"])
        if kept.get("resource"):
            context.protected_resource_metadata = ProtectedResourceMetadata.model_validate(
                kept["resource"]
            )
    return made


def _registered(
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
