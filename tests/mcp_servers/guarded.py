"""A server over HTTP for tests: with sessions that it may forget, and a login if it wants one."""

import asyncio
import base64
import hashlib
import json
import secrets
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

from aiohttp import web


def _opened() -> asyncio.Event:
    event = asyncio.Event()
    event.set()
    return event


@dataclass
class Guarded:
    """What the server knows, and what it shall do."""

    wants_login: bool = False
    refreshes: bool = True
    lasts: int = 3600
    """Seconds that a token is said to last."""
    rotates: bool = False
    """A refresh token is good for once; whoever brings a used one ends the login for all."""
    open_gate: asyncio.Event = field(default_factory=_opened)
    """Tokens are given while it is set; what was asked for before has happened all the same."""
    told: Callable[[str], None] = lambda _: None
    """Hears the access token of each request that is let in."""
    url: str = ""
    sessions: set[str] = field(default_factory=set[str])
    tokens: set[str] = field(default_factory=set[str])
    codes: dict[str, str] = field(default_factory=dict[str, str])
    refresh: set[str] = field(default_factory=set[str])
    calls: list[str] = field(default_factory=list[str])
    heard: list[str] = field(default_factory=list[str])
    """The Authorization headers of requests."""
    grants: list[str] = field(default_factory=list[str])
    used: set[str] = field(default_factory=set[str])
    """Refresh tokens that were exchanged for others."""

    @property
    def origin(self) -> str:
        return self.url.removesuffix("/mcp")

    async def resource(self, _: web.Request) -> web.Response:
        return web.json_response(
            {"resource": self.url, "authorization_servers": [f"{self.origin}/auth"]}
        )

    async def metadata(self, _: web.Request) -> web.Response:
        auth = f"{self.origin}/auth"
        return web.json_response(
            {
                "issuer": auth,
                "authorization_endpoint": f"{auth}/authorize",
                "token_endpoint": f"{auth}/give-token",
                "registration_endpoint": f"{auth}/register",
                "code_challenge_methods_supported": ["S256"],
                "response_types_supported": ["code"],
            }
        )

    async def register(self, request: web.Request) -> web.Response:
        asked = await request.json()
        made = {"client_id": "c1", "token_endpoint_auth_method": "none"}
        return web.json_response({**asked, **made}, status=201)

    async def authorize(self, request: web.Request) -> web.Response:
        code = secrets.token_hex(8)
        self.codes[code] = request.query["code_challenge"]
        back = urlencode({"code": code, "state": request.query["state"]})
        raise web.HTTPFound(f"{request.query['redirect_uri']}?{back}")

    async def token(self, request: web.Request) -> web.Response:
        given = await request.post()
        self.grants.append(str(given["grant_type"]))
        if given["grant_type"] == "authorization_code":
            digest = hashlib.sha256(str(given["code_verifier"]).encode()).digest()
            challenge = base64.urlsafe_b64encode(digest).decode().rstrip("=")
            if self.codes.pop(str(given["code"]), None) != challenge:
                return web.json_response({"error": "invalid_grant"}, status=400)
        elif not self.refreshes or not self._exchange(str(given["refresh_token"])):
            return web.json_response({"error": "invalid_grant"}, status=400)
        access, refresh = f"access-{secrets.token_hex(8)}", f"refresh-{secrets.token_hex(8)}"
        self.tokens.add(access)
        self.refresh.add(refresh)
        await self.open_gate.wait()
        return web.json_response(
            {
                "access_token": access,
                "token_type": "Bearer",
                "expires_in": self.lasts,
                "refresh_token": refresh,
            }
        )

    def _exchange(self, refresh: str) -> bool:
        if refresh in self.used:
            self.tokens.clear()
            self.refresh.clear()
        if refresh not in self.refresh:
            return False
        if self.rotates:
            self.used.add(refresh)
            self.refresh.discard(refresh)
            self.tokens.clear()
        return True

    async def mcp(self, request: web.Request) -> web.Response:
        if request.method != "POST":
            return web.Response(status=405 if request.method == "GET" else 200)
        authorization = request.headers.get("Authorization", "")
        self.heard.append(authorization)
        if self.wants_login and authorization.removeprefix("Bearer ") not in self.tokens:
            where = f"{self.origin}/.well-known/oauth-protected-resource/mcp"
            challenge = f'Bearer resource_metadata="{where}"'
            return web.Response(status=401, headers={"WWW-Authenticate": challenge})
        self.told(authorization.removeprefix("Bearer "))
        message = json.loads(await request.text())
        if message["method"] == "server/discover":
            return web.Response(status=404)
        session = request.headers.get("Mcp-Session-Id")
        if message["method"] == "initialize":
            session = secrets.token_hex(8)
            self.sessions.add(session)
        elif session not in self.sessions:
            return web.Response(status=404)
        if "id" not in message:
            return web.Response(status=202)
        answer = {"jsonrpc": "2.0", "id": message["id"], "result": self._result(message)}
        return web.json_response(answer, headers={"Mcp-Session-Id": session or ""})

    def _result(self, message: dict[str, Any]) -> dict[str, Any]:
        match message["method"]:
            case "initialize":
                return {
                    "protocolVersion": "2025-11-25",
                    "capabilities": {"tools": {}},
                    "serverInfo": {"name": "guarded", "version": "1"},
                }
            case "tools/list":
                return {"tools": [{"name": "add", "inputSchema": {"type": "object"}}]}
            case _:
                self.calls.append(message["params"]["name"])
                return {"content": [{"type": "text", "text": "added"}]}


@asynccontextmanager
async def guarded(**how: Any) -> AsyncGenerator[Guarded, None]:
    """Serve on a free port of this machine."""
    server = Guarded(**how)
    app = web.Application()
    app.router.add_route("*", "/mcp", server.mcp)
    app.router.add_get("/.well-known/oauth-protected-resource/mcp", server.resource)
    app.router.add_get("/.well-known/oauth-authorization-server/auth", server.metadata)
    app.router.add_post("/auth/register", server.register)
    app.router.add_get("/auth/authorize", server.authorize)
    app.router.add_post("/auth/give-token", server.token)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        (address,) = runner.addresses
        server.url = f"http://127.0.0.1:{address[1]}/mcp"
        yield server
    finally:
        await runner.cleanup()
