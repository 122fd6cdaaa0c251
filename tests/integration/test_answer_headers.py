"""Headers of answers: what keeps browsers safe, and what pages of other origins send and read."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import httpx
import pytest

from asterism import Asterism
from asterism.api.server import HttpApplication
from tests.scenes import open_home

pytestmark = pytest.mark.promise("X1")

PAGE = "https://app.example"


@asynccontextmanager
async def reached_at(home: Asterism, base: str) -> AsyncGenerator[httpx.AsyncClient, None]:
    transport = httpx.ASGITransport(cast("Any", HttpApplication(home)))
    headers = {"x-api-key": (await home.tokens.create(base)).secret}
    async with httpx.AsyncClient(transport=transport, base_url=base, headers=headers) as client:
        yield client


@pytest.mark.parametrize(
    ("base", "is_kept"),
    [
        ("https://home.example", True),
        ("https://home.example:8443", True),
        ("http://home.example", False),
        # Else all that is served on the developer's machine would have to have TLS for a year.
        ("https://localhost:8283", False),
        ("https://asterism.localhost", False),
    ],
)
async def test_browsers_are_told_to_come_by_tls_alone(tmp_path: Path, base: str, is_kept: bool):
    async with open_home(tmp_path, work=False) as home, reached_at(home, base) as client:
        for path in ("/api/agents", "/api/nothing", "/health", "/api/docs", "/openai/v1/models"):
            answer = await client.get(path)
            assert ("strict-transport-security" in answer.headers) is is_kept, path


async def test_an_answer_is_no_page_and_is_shown_in_none(tmp_path: Path):
    async with open_home(tmp_path, work=False) as home, reached_at(home, PAGE) as client:
        for path in ("/api/agents", "/api/nothing", "/health", "/metrics", "/api/openapi.json"):
            policy = (await client.get(path)).headers["content-security-policy"]
            assert policy == "default-src 'none'; frame-ancestors 'none'", path
        del client.headers["x-api-key"]
        assert "content-security-policy" in (await client.get("/api/agents")).headers
        docs = (await client.get("/api/docs")).headers.get_list("content-security-policy")
        assert len(docs) == 1
        assert "style-src" in docs[0]


async def test_pages_of_allowed_origins_send_and_read_what_clients_need(tmp_path: Path):
    settings: dict[str, object] = {"api.origins": [PAGE]}
    async with (
        open_home(tmp_path, work=False, settings=settings) as home,
        reached_at(home, "http://home.example") as client,
    ):
        wanted = ["authorization", "content-type", "x-api-key", "mcp-session-id"]
        wanted += ["mcp-protocol-version", "idempotency-key", "last-event-id", "if-match"]
        wanted += ["x-stainless-lang", "X-Stainless-Retry-Count"]
        asked = [(b"origin", PAGE.encode()), (b"access-control-request-method", b"POST")]
        foreign = "x-evil, x-stainless-a\u00e9, x-stainless-b: c".encode()
        asked_for = ", ".join(wanted).encode() + b", " + foreign
        for path in ("/api/agents", "/openai/v1/responses", "/mcp"):
            leave = await client.options(
                path, headers=[*asked, (b"access-control-request-headers", asked_for)]
            )
            assert leave.status_code == 204
            allowed = leave.headers["access-control-allow-headers"].split(", ")
            assert {name.lower() for name in wanted} <= {*allowed}
            assert not [name for name in allowed if "evil" in name or ":" in name]
            assert "Access-Control-Request-Headers" in leave.headers["vary"]
        answer = await client.get("/api/agents", headers={"origin": PAGE})
        read = answer.headers["access-control-expose-headers"].split(", ")
        assert {"ratelimit-limit", "ratelimit-remaining", "ratelimit-reset", "etag"} <= {*read}
        assert {"idempotency-replayed", "location", "x-request-id", "mcp-session-id"} <= {*read}
        foreign_page = await client.get("/api/agents", headers={"origin": "https://evil.example"})
        assert not [name for name in foreign_page.headers if name.startswith("access-control")]
