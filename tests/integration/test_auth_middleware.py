"""The authentication step of the HTTP API, with an application behind it that uses the home."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import argon2
import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from asterism import Asterism
from asterism.api.auth import Authentication, session_cookie
from asterism.api.server import HttpApplication
from asterism.app.authentication import Throttle
from asterism.errors import TooManyAttempts
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


@asynccontextmanager
async def addresses(
    home: Asterism,
) -> AsyncGenerator[Callable[..., Awaitable[httpx.Response]], None]:
    """Give a function that sends a request to the API from some address."""
    app: Any = HttpApplication(home)

    async def send(address: str, method: str, path: str, **options: Any) -> httpx.Response:
        transport = httpx.ASGITransport(app, client=(address, 5000))
        async with httpx.AsyncClient(transport=transport, base_url=ORIGIN) as client:
            return await client.request(method, path, **options)

    yield send


@pytest.mark.promise("X1")
async def test_a_flood_of_refused_attempts_lets_nobody_try_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(Throttle, "MAX_KEYS", 20)
    async with open_home(tmp_path, work=False) as home, addresses(home) as send:
        await home.users.set_password("owner", PASSWORD)
        seconds = home.access.throttle._monotonic()  # pyright: ignore[reportPrivateUsage] - stands still from here
        home.access.throttle._monotonic = lambda: seconds  # pyright: ignore[reportPrivateUsage]

        async def guess(address: str) -> int:
            body = {"name": "owner", "password": "wrong guesses everywhere"}
            origin = {"origin": ORIGIN}
            return (
                await send(address, "POST", "/api/login", json=body, headers=origin)
            ).status_code

        async def flood(address: str) -> list[int]:
            tokens = [f"ast_{number:024x}_{'a' * 43}" for number in range(40)]
            return [
                (await send(address, "GET", "/api/agents", headers={"x-api-key": one})).status_code
                for one in tokens
            ]

        heard = [await guess("127.0.0.1") for _ in range(12)]
        assert heard == [401] * Throttle.FREE + [429] * 2
        told = await flood("192.0.2.8")
        assert told == [401] * Throttle.FREE + [429] * 30
        for last in range(30):  # of many addresses, one each
            wrong = {"x-api-key": f"ast_{last:024x}_{'b' * 43}"}
            await send(f"198.51.100.{last}", "GET", "/api/agents", headers=wrong)
        assert len(home.access.throttle) <= 60
        assert await guess("127.0.0.1") == 429  # the address
        assert await guess("127.0.0.9") == 429  # the name, from anywhere


@pytest.mark.promise("X1")
async def test_many_addresses_do_not_push_out_one_that_has_to_wait(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(Throttle, "MAX_KEYS", 20)
    throttle = Throttle(lambda: 5.0)
    for _ in range(Throttle.FREE):
        throttle.begin(["client:waits", "user:owner"])
        throttle.end(["client:waits", "user:owner"], failed=True)
    for number in range(200):
        keys = [f"client:{number}", f"user:{number}", f"token:{number}"]
        throttle.begin(keys)
        throttle.end(keys, failed=True)
    assert len(throttle) == 60
    for key in ("client:waits", "user:owner"):
        with pytest.raises(TooManyAttempts):
            throttle.begin([key])
    # One whose attempts were all right is not remembered at all.
    throttle.begin(["token:right"])
    throttle.end(["token:right"], failed=False)
    assert len(throttle) <= 60


async def test_refused_requests_are_not_checked_and_ask_to_come_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async with open_home(tmp_path, work=False) as home, addresses(home) as send:
        checked = 0
        matches = home.access.tokens.matches

        async def counted(stored: str | None, secret: str) -> bool:
            nonlocal checked
            checked += 1
            return await matches(stored, secret)

        monkeypatch.setattr(home.access.tokens, "matches", counted)
        headers = [{"x-api-key": f"ast_{number:024x}_{'a' * 43}"} for number in range(50)]
        answers = await asyncio.gather(
            *(send("192.0.2.7", "GET", "/api/agents", headers=one) for one in headers)
        )
        statuses = [answer.status_code for answer in answers]
        assert checked <= Throttle.FREE
        assert statuses.count(429) >= 50 - Throttle.FREE
        assert all(answer.headers["retry-after"] for answer in answers if answer.status_code == 429)


async def test_many_requests_without_a_token_have_to_wait(tmp_path: Path):
    settings: dict[str, object] = {"api.requests_per_minute": 50}
    async with (
        open_home(tmp_path, work=False, settings=settings) as home,
        addresses(home) as send,
    ):
        secret = (await home.tokens.create("ci")).secret
        paths = ("/api/agents", "/openai/v1/models", "/mcp")
        answers = [await send("192.0.2.7", "GET", path) for path in paths * 4]
        assert [answer.status_code for answer in answers] == [401] * 10 + [429] * 2
        assert int(answers[-1].headers["retry-after"]) >= 1
        assert (await send("192.0.2.9", "GET", "/api/agents")).status_code == 401
        valid = await send("192.0.2.7", "GET", "/api/agents", headers={"x-api-key": secret})
        assert valid.status_code == 200


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


async def test_a_known_token_is_hashed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    hashed: list[str] = []
    verify = argon2.PasswordHasher.verify

    def count(self: argon2.PasswordHasher, stored: str, secret: str) -> bool:
        hashed.append(secret)
        return verify(self, stored, secret)

    monkeypatch.setattr(argon2.PasswordHasher, "verify", count)
    async with open_home(tmp_path, work=False) as home:
        secrets = [(await home.tokens.create(name)).secret for name in ("ci", "phone")]
        async with served(home) as client:
            for secret in secrets * 20:
                headers = {"Authorization": f"Bearer {secret}"}
                assert (await client.get("/api/agents", headers=headers)).status_code == 200
    assert len(hashed) == 2
