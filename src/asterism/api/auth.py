"""The authentication step of the HTTP API: who a request comes from, before anything else."""

from __future__ import annotations

import hmac
import ipaddress
import time
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from math import ceil
from typing import TYPE_CHECKING, Any

from asterism.api.endpoints import STILL_VALID, problem_answer
from asterism.api.limits import Limiter
from asterism.app.authentication import SESSION_LIFETIME, client_keys, csrf_of
from asterism.errors import (
    AsterismError,
    NotAllowed,
    NotAuthenticated,
    TooManyAttempts,
)

if TYPE_CHECKING:
    from asterism.app import Asterism

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

SECURE_COOKIE = "__Host-asterism"
"""The cookie of the web page over TLS; browsers take its name for a promise."""
PLAIN_COOKIE = "asterism"
"""The cookie of the web page on this machine, without TLS."""
_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
_NO_SECRET = (
    "This needs a token. Send it as Authorization: Bearer ast_…, or as x-api-key. "
    '"asterism token create" makes one. Nothing was done.'
)
_POLICY_VIOLATION = 1008


class Authentication:
    """ASGI middleware: lets a request pass with `state.home`, the home as its sender may use it.

    A request comes with a token (`Authorization: Bearer …`, or `x-api-key`) or with the cookie of a
    session of the web page, and the home is that of its constellation. Beside the home,
    `state.token` is the token or the session, `state.csrf` the CSRF token of a session,
    `state.secret` what was sent and `state.asterism` the home of the owner. Everything else is
    answered with 401.
    """

    def __init__(
        self,
        app: App,
        home: Asterism,
        open_paths: Iterable[str] = (),
        refused: Limiter | None = None,
    ) -> None:
        """Make it.

        Args:
            app: What comes behind it.
            home: The home of the owner.
            open_paths: Paths that need no token; one that ends with `/` stands for all below it.
            refused: Counts the requests of each address that come with nothing valid.
        """
        self._app = app
        self._home = home
        self._refused = refused or Limiter(lambda: home.settings.api.requests_per_minute)
        paths = tuple(open_paths)
        self._open = frozenset(path for path in paths if not path.endswith("/") or path == "/")
        self._open_below = tuple(path for path in paths if path.endswith("/") and path != "/")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer that it may not pass."""
        if scope["type"] not in ("http", "websocket") or self._is_open(scope["path"]):
            await self._app(scope, receive, send)
            return
        try:
            await self._authenticate(scope)
        except NotAuthenticated as error:
            await _refuse(scope, receive, send, self._counted(scope, error))
            return
        except AsterismError as error:
            await _refuse(scope, receive, send, error)
            return
        await self._app(scope, receive, send)

    def _counted(self, scope: Scope, error: NotAuthenticated) -> AsterismError:
        """Return what a request is told that comes with nothing valid: one of many has to wait."""
        client = scope.get("client")
        who = "".join(client_keys(client[0] if client else ""))
        limit = self._refused.per_minute()
        _, wait = self._refused.take(who, limit, time.monotonic())
        if not wait:
            return error
        return TooManyAttempts(
            f"More than {limit:,} requests a minute came from this address without a valid token. "
            f"Try again in {ceil(wait)} s. Nothing was done.",
            retry_after=wait,
        )

    def _is_open(self, path: str) -> bool:
        return path in self._open or (
            bool(self._open_below) and path.startswith(self._open_below) and "/.." not in path
        )

    async def _authenticate(self, scope: Scope) -> None:
        """Find out whom a request is from, and put their home in its state."""
        bearer: bytes | None = None
        key = cookies = origin = host = csrf = b""
        for name, value in scope["headers"]:
            if name == b"authorization":
                bearer = value
            elif name == b"x-api-key":
                key = value
            elif name == b"cookie":
                cookies = cookies + b"; " + value if cookies else value
            elif name == b"origin":
                origin = value
            elif name == b"host":
                host = value
            elif name == b"x-csrf-token":
                csrf = value
        client = scope.get("client")
        address: str = client[0] if client else ""
        state: dict[str, Any] = scope.setdefault("state", {})
        if bearer is not None or key:
            secret = _bearer(bearer) if bearer is not None else key.decode("latin-1")
            home = await self._home.home_of_secret(secret)
            find = home.access.of_token
            credential = await find(secret, address)
        elif (secret := _session_secret(cookies, scope["scheme"], address)) is not None:
            home = await self._home.home_of_secret(secret)
            find = home.access.of_session
            credential = await find(secret, address)
            state["csrf"] = csrf_of(secret)
            _check_page(scope, origin, host, csrf, state["csrf"])
        else:
            raise NotAuthenticated(_NO_SECRET)
        used = state["home"] = home.home_of(credential)
        state["asterism"] = home
        state["token"] = credential.token
        state["secret"] = secret

        async def is_still_valid() -> bool:
            try:
                return home.home_of(await find(secret, address)) is used
            except NotAuthenticated:
                return False

        state[STILL_VALID] = is_still_valid


def _bearer(header: bytes) -> str:
    kind, _, secret = header.decode("latin-1").partition(" ")
    if kind.lower() != "bearer":
        raise NotAuthenticated(_NO_SECRET)
    return secret.strip()


def _session_secret(cookies: bytes, scheme: str, address: str) -> str | None:
    """Return what the cookie of the web page holds, which must be the one for this connection."""
    if not cookies:
        return None
    secure = scheme in ("https", "wss")
    if not secure and not is_loopback(address):
        return None  # over a network without TLS, others may have read it
    wanted = SECURE_COOKIE if secure else PLAIN_COOKIE
    for pair in cookies.decode("latin-1").split(";"):
        name, _, value = pair.strip().partition("=")
        if name == wanted and value:
            return value
    return None


def is_own_origin(scheme: str, origin: bytes, host: bytes) -> bool:
    """Tell whether a page of the origin is one of the server that a request was sent to."""
    scheme = {"ws": "http", "wss": "https"}.get(scheme, scheme)
    own = f"{scheme}://{host.decode('latin-1')}".lower().encode("latin-1")
    return bool(host) and origin.lower() == own


def _check_page(scope: Scope, origin: bytes, host: bytes, csrf: bytes, wanted: str) -> None:
    """Raise `NotAllowed` unless a request that changes something is from the web page itself."""
    if scope["type"] == "http" and scope["method"] in _SAFE:
        return
    if not is_own_origin(scope["scheme"], origin, host):
        raise NotAllowed(
            "The request does not come from the web page of this home, or the browser does not "
            "say where it comes from. Use a token instead of the cookie. Nothing was changed."
        )
    # A browser cannot add headers to a WebSocket; where it comes from it always says.
    if scope["type"] == "http" and not hmac.compare_digest(csrf, wanted.encode()):
        raise NotAllowed(
            "The header x-csrf-token is missing, or is not that of this session. Load the page "
            "again. Nothing was changed."
        )


def is_loopback(address: str) -> bool:
    """Tell whether an address is of this machine."""
    try:
        return ipaddress.ip_address(address.partition("%")[0]).is_loopback
    except ValueError:
        return False


def session_cookie(secret: str, *, secure: bool) -> str:
    """Return the header `set-cookie` that gives a browser the secret of a session.

    Args:
        secret: The secret; empty: the browser drops the one it has.
        secure: Whether the page is loaded over TLS.
    """
    name, more = (SECURE_COOKIE, "; Secure") if secure else (PLAIN_COOKIE, "")
    age = SESSION_LIFETIME // 1000 if secret else 0
    return f"{name}={secret}; Path=/; Max-Age={age}; HttpOnly; SameSite=Strict{more}"


async def _refuse(scope: Scope, receive: Receive, send: Send, error: AsterismError) -> None:
    """Answer with a problem; a WebSocket is closed before it is accepted."""
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": _POLICY_VIOLATION, "reason": error.code})
        return
    own = scope.get("state", {}).get("request_id", "")
    await problem_answer(error.for_others(), own)(scope, receive, send)
