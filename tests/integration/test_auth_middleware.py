"""The authentication step of the HTTP API, with an application behind it that uses the home."""

import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from asterism import Asterism
from asterism.api.auth import Authentication, session_cookie
from asterism.app.authentication import Throttle
from tests.scenes import open_home

PASSWORD = "seven green umbrellas"
LOCAL, REMOTE = ("127.0.0.1", 5000), ("192.0.2.7", 5000)
ORIGIN = "http://127.0.0.1:8283"


async def _agents(request: Request) -> JSONResponse:
    home = request.state.home
    if request.method == "POST":
        await home.agents.create("made")
    names = [agent.name for agent in await home.agents.list()]
    return JSONResponse({"agents": names, "token": request.state.token.id})


async def _open(request: Request) -> JSONResponse:
    return JSONResponse({"home": hasattr(request.state, "home")})


async def _csrf(request: Request) -> JSONResponse:
    return JSONResponse({"csrf": request.state.csrf})


@asynccontextmanager
async def served(
    home: Asterism, base: str = ORIGIN, client: tuple[str, int] = LOCAL
) -> AsyncGenerator[httpx.AsyncClient, None]:
    """Give a client of an application behind the authentication step."""
    routes = [
        Route("/api/agents", _agents, methods=["GET", "POST"]),
        Route("/api/csrf", _csrf),
        Route("/health", _open),
        Route("/static/{path:path}", _open),
    ]
    app: Any = Authentication(Starlette(routes=routes), home, open_paths=["/health", "/static/"])
    transport = httpx.ASGITransport(app, client=client)
    async with httpx.AsyncClient(transport=transport, base_url=base) as inside:
        yield inside


async def test_a_token_in_either_header_opens_the_home_of_its_bearer(tmp_path: Path):
    async with open_home(tmp_path, work=False) as home, served(home) as client:
        await home.agents.create("aria")
        await home.agents.create("bea")
        made = await home.tokens.create("ci", agents=["bea"], scopes=["read"])
        for headers in (
            {"authorization": f"Bearer {made.secret}"},
            {"authorization": f"bearer  {made.secret}"},
            {"x-api-key": made.secret},
        ):
            answer = await client.get("/api/agents", headers=headers)
            assert answer.status_code == 200
            assert answer.json() == {"agents": ["bea"], "token": made.token.id}


async def test_without_a_valid_token_the_answer_is_401_and_says_how(tmp_path: Path):
    async with open_home(tmp_path, work=False) as home, served(home) as client:
        secret = (await home.tokens.create("ci")).secret
        wrong: list[Any] = [
            {},
            {"authorization": "Bearer"},
            {"authorization": "Bearer wrong"},
            {"authorization": f"Basic {secret}"},
            {"authorization": secret},
            {"authorization": b"Bearer \xff\xfe"},
            {"x-api-key": secret[:-1]},
            {"authorization": "Bearer wrong", "x-api-key": secret},
            {"cookie": f"asterism={secret}"},  # a token is not a session
        ]
        for headers in wrong:
            answer = await client.get("/api/agents", headers=headers)
            assert answer.status_code == 401, headers
            assert answer.headers["www-authenticate"] == "Bearer"
            assert answer.headers["content-type"] == "application/problem+json"
            assert answer.json()["type"] == "not-authenticated"
            assert answer.json()["status"] == 401
            assert secret not in answer.text
        assert (await client.get("/health")).json() == {"home": False}
        assert (await client.get("/static/a.js")).json() == {"home": False}
        assert (await client.get("/health/more")).status_code == 401
        assert (await client.get("/static")).status_code == 401
        assert (await client.get("/nothing/here")).status_code == 401


async def test_wrong_tokens_are_answered_with_429_in_time(tmp_path: Path):
    async with open_home(tmp_path, work=False) as home, served(home, client=REMOTE) as client:
        for _ in range(Throttle.FREE):
            answer = await client.get("/api/agents", headers={"x-api-key": "wrong"})
            assert answer.status_code == 401
        answer = await client.get("/api/agents", headers={"x-api-key": "wrong"})
        assert answer.status_code == 429
        assert answer.headers["retry-after"] == "1"
        assert answer.json()["type"] == "too-many-attempts"
        async with served(home, client=LOCAL) as another:
            answer = await another.get("/api/agents", headers={"x-api-key": "wrong"})
            assert answer.status_code == 401


async def test_the_page_needs_its_csrf_token_and_its_own_origin_to_change_something(
    tmp_path: Path,
):
    async with open_home(tmp_path, work=False) as home, served(home) as client:
        await home.users.set_password("owner", PASSWORD)
        begun = await home.log_in("owner", PASSWORD)
        cookie = {"cookie": f"other=1; asterism={begun.secret}; more=2"}
        answer = await client.get("/api/agents", headers=cookie)
        assert answer.json() == {"agents": [], "token": begun.session.id}
        csrf = (await client.get("/api/csrf", headers=cookie)).json()["csrf"]
        assert csrf == begun.csrf
        right = {**cookie, "origin": ORIGIN, "x-csrf-token": csrf}
        for wrong in (
            {"origin": None},
            {"origin": "http://127.0.0.1:9999"},
            {"origin": "https://127.0.0.1:8283"},
            {"origin": "null"},
            {"origin": "http://evil.example"},
            {"x-csrf-token": None},
            {"x-csrf-token": "0" * 64},
            {"x-csrf-token": "é".encode()},
        ):
            headers: dict[str, Any] = {
                name: value for name, value in {**right, **wrong}.items() if value is not None
            }
            answer = await client.post("/api/agents", headers=headers)
            assert answer.status_code == 403, wrong
            assert answer.json()["type"] == "not-allowed"
        assert await home.agents.list() == []
        assert (await client.post("/api/agents", headers=right)).json()["agents"] == ["made"]
        await home.log_out(begun.secret)
        assert (await client.get("/api/agents", headers=cookie)).status_code == 401


async def test_the_cookie_fits_the_connection(tmp_path: Path):
    async with open_home(tmp_path, work=False) as home:
        await home.users.set_password("owner", PASSWORD)
        secret = (await home.log_in("owner", PASSWORD)).secret
        plain, secure = ({"cookie": f"{name}={secret}"} for name in ("asterism", "__Host-asterism"))
        for base, client, cookie, status in (
            (ORIGIN, LOCAL, plain, 200),
            (ORIGIN, LOCAL, secure, 401),
            (ORIGIN, REMOTE, plain, 401),
            ("https://home.example", REMOTE, secure, 200),
            ("https://home.example", REMOTE, plain, 401),
        ):
            async with served(home, base, client) as inside:
                answer = await inside.get("/api/agents", headers=cookie)
                assert answer.status_code == status, (base, client, cookie)
    assert session_cookie("s", secure=True) == (
        "__Host-asterism=s; Path=/; Max-Age=2592000; HttpOnly; SameSite=Strict; Secure"
    )
    assert session_cookie("s", secure=False).startswith("asterism=s; Path=/;")
    assert "Max-Age=0" in session_cookie("", secure=False)


async def test_a_websocket_is_closed_before_it_is_accepted(tmp_path: Path):
    async with open_home(tmp_path, work=False) as home:
        await home.users.set_password("owner", PASSWORD)
        begun = await home.log_in("owner", PASSWORD)
        made = await home.tokens.create("ci")
        passed: list[Any] = []

        async def app(scope: Any, _: Any, __: Any) -> None:
            passed.append(scope["state"]["home"])

        async def connect(**headers: str) -> list[Any]:
            sent: list[Any] = []

            async def send(message: Any) -> None:
                sent.append(message)

            async def receive() -> Any:
                return {"type": "websocket.connect"}

            pairs = [(name.encode(), value.encode()) for name, value in headers.items()]
            scope: dict[str, Any] = {"type": "websocket", "path": "/api/x", "scheme": "ws"}
            scope |= {"client": LOCAL, "headers": [(b"host", b"127.0.0.1:8283"), *pairs]}
            await Authentication(app, home)(scope, receive, send)
            return sent

        assert (await connect())[0]["type"] == "websocket.close"
        cookie = f"asterism={begun.secret}"
        assert await connect(cookie=cookie, origin="http://evil.example")
        assert await connect(cookie=cookie)
        assert passed == []
        assert await connect(cookie=cookie, origin=ORIGIN) == []
        assert await connect(authorization=f"Bearer {made.secret}") == []
        assert len(passed) == 2


async def test_a_known_token_costs_little(tmp_path: Path):
    """Below 60 µs for each request; a third of that is usual, so that a busy machine passes."""
    async with open_home(tmp_path, work=False) as home:
        secret = (await home.tokens.create("ci")).secret

        async def app(scope: Any, receive: Any, send: Any) -> None:
            del scope, receive, send

        inside = Authentication(app, home, open_paths=["/health"])
        headers = [(b"host", b"x"), (b"accept", b"*/*"), (b"user-agent", b"test")] * 3
        headers.append((b"authorization", f"Bearer {secret}".encode()))

        async def request() -> None:
            scope: dict[str, Any] = {"type": "http", "path": "/api/x", "scheme": "http"}
            scope |= {"method": "GET", "client": LOCAL, "headers": headers}
            await inside(scope, _never, _never)

        await request()
        best = float("inf")
        for _ in range(5):
            begun = time.perf_counter()
            for _ in range(500):
                await request()
            best = min(best, (time.perf_counter() - begun) / 500)
    assert best < 60e-6, f"{best * 1e6:.1f} µs"


async def _never(*_: Any) -> Any:
    pytest.fail("nothing is read or sent")
