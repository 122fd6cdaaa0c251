"""Clients that mean no good, over real sockets: each is refused, and others are served."""

import asyncio
import contextlib
import json
import re
import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from mcp.server.connection import Connection as McpConnection

from asterism import Asterism
from asterism.api import connections, mcp_transport
from asterism.api.server import Server, bind
from asterism.api.tls import TlsFiles
from asterism.turns import turn as turn_module
from tests.api_scene import api_client
from tests.certificates import write_certificate
from tests.scenes import open_home, until

pytestmark = pytest.mark.promise("S5")


@dataclass
class Place:
    """A served home."""

    home: Asterism
    port: int
    token: str
    tls: ssl.SSLContext | None = None

    def head(self, method: str = "GET", path: str = "/api/agents/aria", *more: str) -> bytes:
        """The head of a request with a token."""
        lines = [
            f"{method} {path} HTTP/1.1",
            f"host: 127.0.0.1:{self.port}",
            f"authorization: Bearer {self.token}",
            *more,
        ]
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")

    async def send(self, data: bytes) -> "Answer":
        """Send bytes over a new connection, and return what is answered."""
        async with asyncio.timeout(120), self.connected() as (reader, writer):
            writer.write(data)
            return await answer_on(reader)

    @asynccontextmanager
    async def connected(
        self,
    ) -> AsyncGenerator[tuple[asyncio.StreamReader, asyncio.StreamWriter], None]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, ssl=self.tls)
        try:
            yield reader, writer
        finally:
            writer.close()

    async def is_alive(self) -> None:
        """Others are answered."""
        answer = await self.send(self.head())
        assert (answer.status, answer.body["name"]) == (200, "aria")


@dataclass
class Answer:
    """An answer, read."""

    status: int
    headers: dict[str, str]
    raw: bytes

    @property
    def body(self) -> Any:
        return json.loads(self.raw)

    def is_problem(self, status: int) -> None:
        """It is a refusal with a sentence."""
        assert self.status == status, self
        assert self.headers["content-type"] == "application/problem+json"
        assert self.body["status"] == status
        assert self.body["detail"].endswith(".")


async def answer_on(reader: asyncio.StreamReader) -> Answer:
    """Read one answer."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    while head.startswith("HTTP/1.1 100"):
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    status, *lines = head.split("\r\n")
    headers = {k.lower(): v for k, v in (line.split(": ", 1) for line in lines if line)}
    length = headers.get("content-length")
    raw = await (reader.readexactly(int(length)) if length else reader.read())
    return Answer(int(status.split()[1]), headers, raw)


@asynccontextmanager
async def served(
    tmp_path: Path, tls: TlsFiles | None = None, **options: Any
) -> AsyncGenerator[Place, None]:
    """A home that is served on loopback."""
    async with open_home(tmp_path, **options) as home:
        await home.agents.create("aria")
        token = (await home.tokens.create("test")).secret
        with bind("127.0.0.1", 0) as socket:
            async with Server(home, socket, tuple, tls=tls) as server:
                place = Place(home, int(server.url.rpartition(":")[2]), token)
                if tls is not None:
                    place.tls = ssl.create_default_context(cafile=str(tls.certificate))
                await place.is_alive()
                yield place


@pytest.fixture
async def place(tmp_path: Path) -> AsyncGenerator[Place, None]:
    async with served(tmp_path) as found:
        yield found


def allow_connections(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    """Let the server have so many connections, which are half of what may be open."""

    def limits(_: int) -> tuple[int, int]:
        return 2 * most, 2 * most

    monkeypatch.setattr(connections.resource, "getrlimit", limits)


# -- those who take their time ---------------------------------------------------------------------


async def test_heads_that_never_end_are_given_up(place: Place, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(connections, "HEAD_PATIENCE", 0.3)
    opened = [await asyncio.open_connection("127.0.0.1", place.port) for _ in range(50)]
    for number, (_, writer) in enumerate(opened):
        writer.write(place.head()[: number * 3])  # one of them sends nothing at all
    await place.is_alive()
    async with asyncio.timeout(120):
        for reader, writer in opened:
            answer = await answer_on(reader)
            answer.is_problem(408)
            assert await reader.read() == b""
            writer.close()
    await place.is_alive()


async def test_a_body_that_drips_is_given_up(place: Place, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(connections, "BODY_PATIENCE", 0.2)
    head = place.head("POST", "/api/agents/aria/ask", "content-length: 1000")
    async with place.connected() as (reader, writer), asyncio.timeout(120):
        writer.write(head + b"{")
        assert await reader.read() == b""
    await place.is_alive()


async def test_a_slow_but_steady_body_is_taken(place: Place, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(connections, "BODY_PATIENCE", 0.2)
    monkeypatch.setattr(connections, "MIN_BODY_RATE", 1)
    body = json.dumps({"text": "hi"}).encode()
    head = place.head("POST", "/api/agents/aria/ask", f"content-length: {len(body)}")
    async with place.connected() as (reader, writer), asyncio.timeout(120):
        writer.write(head)
        for byte in body:
            writer.write(bytes([byte]))
            await asyncio.sleep(0.02)
        assert (await answer_on(reader)).status == 200


async def test_a_request_in_single_bytes_is_answered(place: Place):
    async with place.connected() as (reader, writer), asyncio.timeout(120):
        for byte in place.head():
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(0)
        assert (await answer_on(reader)).status == 200


async def test_many_idle_connections_lock_nobody_out(place: Place, monkeypatch: pytest.MonkeyPatch):
    allow_connections(monkeypatch, 20)
    opened = [await asyncio.open_connection("127.0.0.1", place.port) for _ in range(200)]
    async with asyncio.timeout(120):
        await place.is_alive()
        answer = await answer_on(opened[0][0])  # whoever has waited for longest had to leave
        answer.is_problem(503)
    for _, writer in opened:
        writer.close()
    await place.is_alive()


async def open_many(
    place: Place, count: int, first: bytes = b"", *, tls: bool = True
) -> list[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Open connections that send something, and then nothing more."""
    opened: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
    for _ in range(count):
        spoken = place.tls if tls else None
        pair = await asyncio.open_connection("127.0.0.1", place.port, ssl=spoken)
        pair[1].write(first)
        opened.append(pair)
    return opened


async def is_healthy(place: Place) -> None:
    """Whoever watches the server is told that it is well."""
    for path in ("/health", "/ready"):
        answer = await place.send(f"GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
        assert answer.status == 200, answer


_NEVER_WHOLE = {
    "nothing": b"",
    "half a head": b"GET /api/agents HTTP/1.1\r\nhost: localhost\r\nx: ",
    "no body for a login": (
        b"POST /api/login HTTP/1.1\r\nhost: localhost\r\ncontent-length: 10000\r\n\r\n{"
    ),
    "no chunks for a login": (
        b"POST /api/login HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n"
    ),
    "a body for a page": (
        b"GET /api/docs HTTP/1.1\r\nhost: localhost\r\ncontent-length: 10000\r\n\r\n{"
    ),
}


@pytest.mark.promise("X5", "O4")
@pytest.mark.parametrize("first", _NEVER_WHOLE.values(), ids=_NEVER_WHOLE)
async def test_who_has_no_token_takes_the_room_of_nobody(
    place: Place, monkeypatch: pytest.MonkeyPatch, first: bytes
):
    allow_connections(monkeypatch, 20)
    async with asyncio.timeout(60):
        opened = await open_many(place, 60, first)
        await place.is_alive()
        await is_healthy(place)
        assert await asyncio.gather(*(place.home.agents.list() for _ in range(3)))
    for _, writer in opened:
        writer.close()


@pytest.mark.promise("X5", "O4")
async def test_who_never_begins_tls_takes_the_room_of_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    allow_connections(monkeypatch, 20)
    certificate, key = write_certificate(tmp_path / "tls")
    async with served(tmp_path / "home", tls=TlsFiles(certificate, key)) as place:
        async with asyncio.timeout(60):
            opened = await open_many(place, 40, tls=False)
            opened += await open_many(place, 40, b"\x16\x03\x01\x02\x00\x01\x00", tls=False)
            await place.is_alive()
            await is_healthy(place)
            reader, _ = opened[0]  # who has waited for longest had to leave
            with contextlib.suppress(ConnectionError):
                assert await reader.read() == b""
            monkeypatch.setattr(connections, "HEAD_PATIENCE", 0.2)
            opened += await open_many(place, 1, tls=False)
            reader, _ = opened[-1]
            with contextlib.suppress(ConnectionError):  # and who waits alone, in the end
                assert await reader.read() == b""
        for _, writer in opened:
            writer.close()


@pytest.mark.promise("X5", "O4")
async def test_who_asks_much_without_a_token_is_answered_little(
    place: Place, monkeypatch: pytest.MonkeyPatch
):
    looks, counts = 0, place.home.counts

    async def look() -> tuple[int, int]:
        nonlocal looks
        looks += 1
        return await counts()

    monkeypatch.setattr(place.home, "counts", look)
    health = b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n"
    async with asyncio.timeout(60):
        opened = await open_many(place, 40, health * 20)
        answered = [await reader.read() for reader, _ in opened]
        assert all(text.count(b"HTTP/1.1 200") == 1 for text in answered)
        assert looks < 40
        # With a token, requests may be sent ahead.
        async with place.connected() as (reader, writer):
            writer.write(place.head() * 3)
            assert [(await answer_on(reader)).status for _ in range(3)] == [200] * 3
    for _, writer in opened:
        writer.close()


@pytest.mark.promise("X5", "X1")
async def test_who_has_a_token_takes_a_share_of_the_room(
    place: Place, monkeypatch: pytest.MonkeyPatch
):
    allow_connections(monkeypatch, 24)
    viewer = await place.home.tokens.create("viewer", role="viewer")
    watch = place.head("GET", "/api/agents/aria/events").replace(
        place.token.encode(), viewer.secret.encode()
    )
    async with asyncio.timeout(60):
        await until_status(place, watch, 200)  # from now on the token is known
        opened = await open_many(place, 60, watch)
        heads = [await reader.readuntil(b"\r\n\r\n") for reader, _ in opened[:6]]
        assert all(head.startswith(b"HTTP/1.1 200") for head in heads)
        refused = await answer_on(opened[6][0])
        refused.is_problem(429)
        assert refused.body["type"] == "too-many-requests"
        assert refused.headers["retry-after"] == "1"
        await place.is_alive()
        await is_healthy(place)
        # Who has no more streams than they may can use them, and others their own.
        own = await open_many(place, 8, place.head("GET", "/api/agents/aria/events"))
        for reader, _ in own:
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
        for _, writer in opened:
            writer.close()
        await until_status(place, watch, 200)
    for _, writer in own:
        writer.close()


async def until_status(place: Place, request: bytes, status: int) -> None:
    """Send a request over new connections until it is answered like this."""
    while True:
        async with place.connected() as (reader, writer):
            writer.write(request)
            if (await reader.readuntil(b"\r\n")).split()[1] == str(status).encode():
                return


@pytest.mark.promise("X5", "X1")
async def test_another_constellation_takes_a_share_of_the_room(
    place: Place, monkeypatch: pytest.MonkeyPatch
):
    allow_connections(monkeypatch, 24)
    await place.home.constellations.ensure("garden")
    opened: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
    async with asyncio.timeout(60):
        for number in range(8):  # an owner there makes as many tokens and people as they like
            role = "owner" if number % 2 else "partner"
            tokens = place.home.tokens
            token = await tokens.create(f"t{number}", constellation="garden", role=role)
            head = place.head("GET", "/api/events").replace(
                place.token.encode(), token.secret.encode()
            )
            opened += await open_many(place, 4, head)
        statuses = [(await reader.readuntil(b"\r\n")).split()[1] for reader, _ in opened]
        assert statuses.count(b"429") == len(opened) - 6, statuses
        await place.is_alive()
        await is_healthy(place)
    for _, writer in opened:
        writer.close()


async def test_the_requests_of_a_caller_at_once_are_a_setting(tmp_path: Path):
    async with served(tmp_path, settings={"api": {"requests_at_once": 1}}) as place:
        viewer = await place.home.tokens.create("viewer", role="viewer")
        plain = place.head().replace(place.token.encode(), viewer.secret.encode())
        watch = plain.replace(b"aria HTTP", b"aria/events HTTP")
        async with place.connected() as (reader, writer), asyncio.timeout(60):
            writer.write(watch)
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
            (await place.send(plain)).is_problem(429)
            await place.is_alive()
        await until_status(place, plain, 200)


@pytest.mark.promise("X5")
async def test_connections_that_rest_leave_for_new_ones_those_of_the_owner_last(
    place: Place, monkeypatch: pytest.MonkeyPatch
):
    allow_connections(monkeypatch, 24)
    viewer = await place.home.tokens.create("viewer", role="viewer")
    plain = place.head().replace(place.token.encode(), viewer.secret.encode())
    async with place.connected() as (reader, writer), asyncio.timeout(60):
        writer.write(place.head())
        assert (await answer_on(reader)).status == 200
        resting = await open_many(place, 40, plain)
        await is_healthy(place)
        silent = await open_many(place, 40)
        await is_healthy(place)
        writer.write(place.head())  # the connection of the owner is there still
        assert (await answer_on(reader)).status == 200
    for _, other in (*resting, *silent):
        other.close()


@pytest.mark.promise("X5")
@pytest.mark.parametrize("start", [10_000, 60_000])
async def test_a_body_that_begins_fast_and_then_drips_is_given_up(
    place: Place, monkeypatch: pytest.MonkeyPatch, start: int
):
    monkeypatch.setattr(connections, "BODY_PATIENCE", 0.2)
    monkeypatch.setattr(connections, "MIN_BODY_RATE", 10_000)
    head = place.head("POST", "/api/agents/aria/ask", "content-length: 100000")
    async with place.connected() as (reader, writer), asyncio.timeout(20):
        writer.write(head + b"x" * start)
        assert await reader.read() == b""
    async with place.connected() as (reader, writer), asyncio.timeout(20):
        # Behind another request, so that its head comes while that is answered.
        writer.write(place.head() + head + b"x" * start)
        assert (await answer_on(reader)).status == 200
        assert await reader.read() == b""


@pytest.mark.promise("X5")
async def test_little_is_read_of_who_has_no_token(place: Place, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(connections, "HEAD_PATIENCE", 0.3)
    login = "POST /api/login HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n"
    (await place.send((login % 20_000).encode())).is_problem(413)
    async with place.connected() as (reader, writer), asyncio.timeout(20):
        writer.write((login % 10_000).encode() + b"x" * 9_000)
        assert await reader.read() == b""
    monkeypatch.setattr(connections, "LINGER", 600.0)  # which is for those with a token
    for path in ("/api/agents", "/mcp", "/openai/v1/chat/completions", "/nothing", "/health"):
        head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {1 << 30}\r\n\r\n"
        async with place.connected() as (reader, writer), asyncio.timeout(20):
            writer.write(head.encode() + b"x" * 1_000)
            refused = await answer_on(reader)
            assert refused.status in (401, 404, 405), refused
            assert refused.headers["connection"] == "close"
            with contextlib.suppress(ConnectionError):
                while True:
                    writer.write(b"x" * (1 << 16))
                    await writer.drain()
    await place.is_alive()


async def test_a_watcher_that_never_reads_is_dropped_and_can_come_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(connections, "READ_PATIENCE", 0.3)
    monkeypatch.setattr(turn_module, "_KEPT", 64)
    async with served(tmp_path) as place:
        aria = await place.home.agents.get("aria")
        reader, writer = await asyncio.open_connection("127.0.0.1", place.port, limit=1 << 10)
        writer.write(place.head("GET", "/api/agents/aria/events"))
        await reader.readuntil(b"\r\n\r\n")
        hub = place.home.hub
        async with asyncio.timeout(120):
            await reader.readuntil(b"\n\n")  # the id to come back with
            while hub.watched_agents():  # until it is dropped
                for _ in range(50):
                    hub.publish(aria.id, "turn_1", "text", {"text": "x" * 10_000})
                await asyncio.sleep(0.01)
            seen = await reader.read(1 << 10)
        writer.close()
        event_id = re.search(rb"id: (\S+-\d+-\S+)\nevent", seen)
        assert event_id is not None
        outcome = await place.home.agents.ask(aria, "What did I miss?")
        resumed = place.head(
            "GET", "/api/agents/aria/events", f"last-event-id: {event_id[1].decode()}"
        )
        async with place.connected() as (reader, writer), asyncio.timeout(120):
            writer.write(resumed)
            found = b""
            while outcome.turn_id.encode() not in found:
                piece = await reader.read(1 << 16)
                assert piece
                found += piece
            assert b"event: gap" in found
        await place.is_alive()


# -- times that cannot be -------------------------------------------------------------------------

_TIMES = (
    *("9999-12-31T23:59:59-14:00", "0001-01-01T00:00:00+14:00", "10000-01-01T00:00:00Z"),
    *("9999-12-31T23:59:59.999999Z", "0001-01-01T00:00:00Z", "-0001-01-01", "253402300800000"),
    *("in 9000 years", "in 99999999999999 hours", "in 1e300 days", "9999-12-31", "every 9e9 years"),
)


@pytest.mark.promise("X5")
async def test_a_time_that_cannot_be_shown_is_refused(tmp_path: Path):
    settings = {"timezone": "Pacific/Auckland"}
    async with open_home(tmp_path, settings=settings) as home, api_client(home) as client:
        await home.agents.create("aria")
        for number, when in enumerate(_TIMES):
            for path, field, rest in (
                ("/api/tokens", "expires_at", {"name": f"t{number}"}),
                ("/api/grants", "until", {"tool": "web", "agent": "aria"}),
                ("/api/agents/aria/schedules", "when", {"text": "hello"}),
                ("/api/agents/aria/passages", "true_from", {"text": f"fact {number}"}),
                ("/api/search", "since", {"query": "fact"}),
                ("/api/search", "moment", {"query": "fact"}),
            ):
                answer = await client.post(path, json={field: when, **rest})
                assert answer.status_code < 500, (path, when, answer.text)
            for path in ("/api/audit?since=", "/api/agents/aria/memory/at?moment="):
                assert (await client.get(f"{path}{quote(when)}")).status_code < 500, (path, when)
        for path in ("tokens", "grants", "agents/aria/schedules", "agents/aria/passages", "audit"):
            assert (await client.get(f"/api/{path}")).status_code == 200, path


@pytest.mark.promise("X5", "O4")
async def test_a_clock_that_stands_beyond_all_times_ends_nothing(
    place: Place, monkeypatch: pytest.MonkeyPatch
):
    asked = 0

    def beyond() -> Any:
        nonlocal asked
        asked += 1
        raise OverflowError("timestamp too large to convert to C _PyTime_t")

    for name in ("time", "time_ns"):
        monkeypatch.setattr(f"time.{name}", beyond)
    await until(lambda: asked >= 2)  # once a second the server looks at the clock by itself
    await place.is_alive()
    await is_healthy(place)
    assert (await place.home.agents.ask("aria", "hi")).text == "answer to: hi"


# -- sessions of MCP clients -----------------------------------------------------------------------


async def open_session(place: Place, secret: str, about: Any = "test") -> Answer:
    """Open a session, as a client that says this of itself."""
    params = {
        "protocolVersion": "2025-11-25",
        "capabilities": {"experimental": {"x": {"y": about}}},
        "clientInfo": {"name": about, "version": "1"},
    }
    request = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
    return await post_mcp(place, secret, request)


async def post_mcp(place: Place, secret: str, request: Any, *more: str) -> Answer:
    """Send a message to the MCP server."""
    body = json.dumps(request).encode()
    kind = ("content-type: application/json", "accept: application/json, text/event-stream")
    said = (f"content-length: {len(body)}", "connection: close", *kind, *more)
    head = place.head("POST", "/mcp", *said)
    return await place.send(head.replace(place.token.encode(), secret.encode()) + body)


async def uses(place: Place, secret: str, session: str) -> int:
    """Return the status of a request in a session."""
    listing = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
    return (await post_mcp(place, secret, listing, f"mcp-session-id: {session}")).status


@pytest.mark.promise("X5", "S4")
async def test_the_sessions_of_a_token_end_for_its_own_new_ones(place: Place):
    viewer = (await place.home.tokens.create("viewer", role="viewer")).secret
    async with asyncio.timeout(60):
        mine = (await open_session(place, place.token)).headers["mcp-session-id"]
        first = [
            (await open_session(place, viewer)).headers["mcp-session-id"]
            for _ in range(mcp_transport.MAX_OF_CALLER)
        ]
        assert await uses(place, viewer, first[0]) == 200  # so that the second is the oldest
        assert (await open_session(place, viewer)).status == 200
        found = [await uses(place, viewer, session) for session in first]
        assert found == [200, 404, *[200] * (len(first) - 2)]
        assert await uses(place, place.token, mine) == 200
        # Sessions that their client has ended make room.
        head = place.head("DELETE", "/mcp", f"mcp-session-id: {first[0]}").replace(
            place.token.encode(), viewer.encode()
        )
        assert (await place.send(head)).status == 200
        assert (await open_session(place, viewer)).status == 200
        assert await uses(place, viewer, first[2]) == 200


@pytest.mark.promise("X5", "S4")
async def test_many_sessions_of_many_tokens_refuse_nobody_one(
    place: Place, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(mcp_transport, "MAX_SESSIONS", 12)
    async with asyncio.timeout(60):
        mine = (await open_session(place, place.token)).headers["mcp-session-id"]
        for number in range(3):
            secret = (await place.home.tokens.create(f"viewer{number}", role="viewer")).secret
            for _ in range(8):
                assert (await open_session(place, secret)).status == 200
        assert await uses(place, place.token, mine) == 200
        assert (await open_session(place, place.token)).status == 200


@pytest.mark.promise("X5", "S4")
async def test_what_an_mcp_client_says_of_itself_is_cut(
    place: Place, monkeypatch: pytest.MonkeyPatch
):
    kept: list[Any] = []
    committed = McpConnection.client_params.fset
    assert committed is not None

    def note(connection: McpConnection, value: Any) -> None:
        if value is not None:
            kept.append(value.model_dump(mode="json", exclude_none=True))
        committed(connection, value)

    monkeypatch.setattr(McpConnection, "client_params", McpConnection.client_params.setter(note))
    (await open_session(place, place.token, "n" * (1 << 20))).is_problem(413)
    assert (await open_session(place, place.token, "n" * 20_000)).status == 200
    (params,) = kept
    assert len(json.dumps(params)) < 1_000
    assert params["client_info"]["name"] == "n" * 200
    assert list(params["capabilities"]) == ["experimental"]


# -- too much of something -------------------------------------------------------------------------


async def test_too_many_headers(place: Place):
    (await place.send(place.head("GET", "/api/agents", *["a: b"] * 200))).is_problem(431)
    await place.is_alive()


async def test_headers_that_are_too_large(place: Place):
    (await place.send(place.head("GET", "/api/agents", f"x: {'a' * 100_000}"))).is_problem(431)
    never_ending = b"GET / HTTP/1.1\r\nx: " + b"a" * 200_000
    (await place.send(never_ending)).is_problem(431)
    await place.is_alive()


async def test_an_address_that_is_too_long(place: Place):
    (await place.send(place.head("GET", "/api/agents/" + "a" * 40_000))).is_problem(414)
    (await place.send(place.head("GET", "/api/agents?limit=" + "1" * 40_000))).is_problem(414)


async def test_a_body_that_is_too_large_is_not_read(place: Place):
    said = f"content-length: {1 << 30}"
    answer = await place.send(place.head("POST", "/api/agents/aria/ask", said))
    answer.is_problem(413)
    assert answer.headers["connection"] == "close"


async def test_who_goes_on_sending_a_refused_body_sees_the_answer(place: Place):
    head = place.head("POST", "/api/agents/aria/ask", f"content-length: {64 << 20}")
    async with place.connected() as (reader, writer), asyncio.timeout(120):
        writer.write(head)
        for _ in range(64):
            writer.write(b"x" * (1 << 16))
            await asyncio.sleep(0)
        (await answer_on(reader)).is_problem(413)


async def test_chunks_without_an_end_are_refused_at_the_limit(place: Place):
    head = place.head("POST", "/api/agents/aria/ask", "transfer-encoding: chunked")
    chunk = b"10000\r\n" + b"x" * (1 << 16) + b"\r\n"
    async with place.connected() as (reader, writer), asyncio.timeout(120):
        writer.write(head)
        for _ in range(80):
            writer.write(chunk)
            await asyncio.sleep(0)
        (await answer_on(reader)).is_problem(413)


@pytest.mark.parametrize("depth", [90, 500, 1_000, 100_000])
@pytest.mark.parametrize(
    "path",
    ["/api/agents", "/api/agents/aria/ask", "/api/call", "/openai/v1/chat/completions", "/mcp"],
)
async def test_deep_json(place: Place, depth: int, path: str):
    body = b'{"text": "x", "json_schema": {"a": %b%b}}' % (b"[" * depth, b"]" * depth)
    head = place.head(
        "POST", path, f"content-length: {len(body)}", "content-type: application/json"
    )
    answer = await place.send(head + body)
    assert answer.status < 500, answer
    assert depth < 100 or answer.status >= 400, answer
    await place.is_alive()


@pytest.mark.parametrize(
    "value",
    ["1e999", "-1e999", "1" * 5_000, "0." + "1" * 5_000, "NaN", "1e-999", "18446744073709551616"],
)
async def test_huge_numbers(place: Place, value: str):
    body = b'{"name": "b", "model": %b, "tools": [%b]}' % (value.encode(), value.encode())
    head = place.head("POST", "/api/agents", f"content-length: {len(body)}")
    (await place.send(head + body)).is_problem(400)
    schema = b'{"text": "x", "json_schema": {"minimum": %b}}' % value.encode()
    head = place.head("POST", "/api/agents/aria/ask", f"content-length: {len(schema)}")
    assert (await place.send(head + schema)).status < 500


async def test_compressed_bodies_are_not_expanded(place: Place):
    import gzip

    bomb = gzip.compress(b"0" * (64 << 20))
    head = place.head(
        "POST", "/api/agents/aria/ask", f"content-length: {len(bomb)}", "content-encoding: gzip"
    )
    (await place.send(head + bomb)).is_problem(415)
    await place.is_alive()


# -- what is not what it seems ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "framing",
    [
        ("content-length: 5", "content-length: 50"),
        ("content-length: 5", "transfer-encoding: chunked"),
        ("transfer-encoding: chunked", "content-length: 5"),
        ("transfer-encoding: chunked, identity",),
        ("transfer-encoding: xchunked",),
        ("content-length: +5",),
        ("content-length: 5, 6",),
        ("content-length: -1",),
        ("content-length: 0x5",),
    ],
)
async def test_a_request_with_two_ends_is_refused(place: Place, framing: tuple[str, ...]):
    smuggled = b"0\r\n\r\n" + place.head("DELETE")
    answer = await place.send(place.head("POST", "/api/agents/aria/ask", *framing) + smuggled)
    assert answer.status in (400, 501), answer
    answer.is_problem(answer.status)
    await place.is_alive()


@pytest.mark.parametrize(
    "raw",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 50 + b"\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET /\x00 HTTP/1.1\r\nhost: a\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: a\r\nx\x00y: b\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: a\r\nx: a\x00b\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost : a\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: a\r\n x: folded\r\n\tmore\r\nhost: b\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
    ],
)
async def test_what_is_not_http(place: Place, raw: bytes):
    (await place.send(raw)).is_problem(400)
    await place.is_alive()


@pytest.mark.parametrize("raw", [b"GET / HTTP/9.9\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"])
async def test_other_versions_of_http(place: Place, raw: bytes):
    (await place.send(raw)).is_problem(505)
    await place.is_alive()


async def test_broken_chunks_in_the_middle_of_a_request(place: Place):
    head = place.head("POST", "/api/agents/aria/ask", "transfer-encoding: chunked")
    (await place.send(head + b"5\r\nhello\r\nzz\r\n")).is_problem(400)
    await place.is_alive()


async def test_other_names_are_refused(place: Place):
    for host in ("evil.example", f"evil.example:{place.port}", "127.0.0.1.evil.example", "a b"):
        raw = place.head().replace(b"host: 127.0.0.1", b"host: " + host.encode(), 1)
        answer = await place.send(raw)
        assert answer.status in (400, 421), answer
    for path in ("/health", "/metrics", "/api/docs", "/api/openapi.json", "/mcp", "/nothing"):
        raw = f"GET {path} HTTP/1.1\r\nhost: evil.example:{place.port}\r\n\r\n".encode()
        (await place.send(raw)).is_problem(421)
    for host in ("localhost", "LOCALHOST", "[::1]", "aria.localhost", "127.0.0.1.", "localhost."):
        raw = f"GET /health HTTP/1.1\r\nhost: {host}:{place.port}\r\n\r\n".encode()
        assert (await place.send(raw)).status == 200, host


@pytest.mark.promise("X1", "X5")
@pytest.mark.parametrize(
    "host",
    [
        *("[::1].evil.test", "evil.test#.localhost", "[::1]evil.test:80", "[evil.test]", "[::1"),
        *("localhost/evil.test", "evil.test@localhost", "localhost:80:90", "localhost:99999"),
        *("evil.test\\.localhost", "evil.test?.localhost", "evil.test .localhost", "localhost:x"),
        *("evil.test,.localhost", "[::1%25evil.test]", "evil.test%2f.localhost", "[]", "[::1]:-1"),
        *("\xe9vil.localhost", "[v1.evil]", "localhost;evil.test", "<localhost>", "'.localhost"),
    ],
)
async def test_a_host_that_is_none_is_refused(place: Place, host: str):
    request = f"GET /health HTTP/1.1\r\nhost: {host}\r\n\r\n".encode("latin-1")
    (await place.send(request)).is_problem(400)
    if "/" not in host and " " not in host and "@" not in host and host.isascii():
        whole = f"GET http://{host}/health HTTP/1.1\r\nhost: localhost\r\n\r\n"
        assert (await place.send(whole.encode())).status in (400, 421)


async def test_names_of_the_configuration_are_allowed(tmp_path: Path):
    settings = {"api": {"hosts": ["home.example.org"]}}
    async with served(tmp_path, settings=settings) as place:
        raw = b"GET /health HTTP/1.1\r\nhost: home.example.org\r\n\r\n"
        assert (await place.send(raw)).status == 200
        (await place.send(raw.replace(b"home.", b"evil."))).is_problem(421)


async def test_whole_addresses_and_old_versions(place: Place):
    absolute = place.head("GET", f"http://127.0.0.1:{place.port}/api/agents/aria")
    assert (await place.send(absolute)).body["name"] == "aria"
    (await place.send(place.head("GET", "http://evil.example/api/agents/aria"))).is_problem(421)
    old = place.head().replace(b"HTTP/1.1", b"HTTP/1.0")
    async with place.connected() as (reader, writer), asyncio.timeout(120):
        writer.write(old)
        assert (await answer_on(reader)).status == 200
        assert await reader.read() == b""
    assert (await place.send(b"GET /health HTTP/1.0\r\n\r\n")).status == 200


async def test_a_websocket_is_not_opened(place: Place):
    upgrade = ("connection: upgrade", "upgrade: websocket", "sec-websocket-version: 13")
    key = "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ=="
    answer = await place.send(place.head("GET", "/api/agents/aria", *upgrade, key))
    assert answer.status == 200
    await place.is_alive()


async def test_who_waits_for_a_word_before_the_body_gets_it(place: Place):
    body = b'{"text": "hi"}'
    expect = "expect: 100-continue"
    head = place.head("POST", "/api/agents/aria/ask", f"content-length: {len(body)}", expect)
    async with place.connected() as (reader, writer), asyncio.timeout(120):
        writer.write(head)
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 100 ")
        writer.write(body)
        assert (await answer_on(reader)).status == 200
    large = place.head("POST", "/api/agents/aria/ask", f"content-length: {1 << 30}", expect)
    async with place.connected() as (reader, writer), asyncio.timeout(120):
        writer.write(large)
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 413 ")


async def test_pages_of_other_origins_get_no_leave(place: Place):
    asked = ("origin: https://evil.example", "access-control-request-method: GET")
    for method in ("OPTIONS", "GET"):
        answer = await place.send(place.head(method, "/api/agents/aria", *asked))
        assert not [name for name in answer.headers if name.startswith("access-control")]
    preflight = (
        f"OPTIONS /api/agents HTTP/1.1\r\nhost: 127.0.0.1:{place.port}\r\n"
        "origin: null\r\naccess-control-request-method: POST\r\n\r\n"
    )
    answer = await place.send(preflight.encode())
    assert answer.status == 401
    assert "access-control-allow-origin" not in answer.headers


# -- names and texts -------------------------------------------------------------------------------

_NASTY = [
    "..%2F..%2Fescape.txt",
    "..%5C..%5Cescape.txt",
    "%2E%2E",
    "%00.txt",
    "a%00b.txt",
    "%2Fetc%2Fpasswd",
    "C%3A%5Cescape.txt",
    "%ff%fe.txt",
    "a" * 300,
    "%0d%0aset-cookie%3A+x%3D1.txt",
    "CON%20",
    ".",
    "~",
]


def files_in(place: Path) -> set[Path]:
    return {path for path in place.rglob("*") if path.is_file()}


@pytest.mark.parametrize("name", _NASTY)
async def test_no_file_name_leads_elsewhere(place: Place, tmp_path: Path, name: str):
    before = files_in(tmp_path)
    head = place.head("PUT", f"/api/sources/papers/files/{name}", "content-length: 5")
    answer = await place.send(head + b"hello")
    assert answer.status < 500
    assert "set-cookie" not in answer.headers
    boundary = f'--b\r\ncontent-disposition: form-data; name="f"; filename="{name}"\r\n\r\n'
    form = (boundary.replace("%2F", "/").replace("%5C", "\\") + "hello\r\n--b--\r\n").encode()
    kind = "content-type: multipart/form-data; boundary=b"
    head = place.head("POST", "/api/sources/forms/files", f"content-length: {len(form)}", kind)
    assert (await place.send(head + form)).status < 500
    for path in files_in(tmp_path) - before:
        assert "uploads" in path.parts or path.name.startswith("asterism.db"), path


@pytest.mark.parametrize("part", ["%00", "%ff", "%ED%A0%80", "\\u0000", "\\ud800", "%F0%9F%92%A9"])
async def test_odd_characters_everywhere(place: Place, part: str):
    paths = [
        f"/api/agents/{part}",
        f"/api/agents?cursor={part}",
        f"/api/turns?agent={part}",
        f"/api/turns/{part}",
        f"/api/search?q={part}",
        f"/api/audit?actor={part}",
        f"/api/audit/{part}",
        f"/api/sources/{part}/documents?cursor={part}",
        f"/api/agents/aria/blocks/{part}",
        f"/openai/v1/models/{part}",
    ]
    for path in paths:
        answer = await place.send(place.head("GET", path))
        assert answer.status < 500, (path, answer)
    text = part if part.startswith("\\") else part.replace("%", "\\u00")
    body = json.dumps({"name": "NAME", "text": "NAME"}).replace("NAME", text).encode()
    for path in (
        "/api/agents",
        "/api/agents/aria/ask",
        "/api/people",
        "/api/tokens",
        "/api/config/check",
    ):
        head = place.head("POST", path, f"content-length: {len(body)}")
        assert (await place.send(head + body)).status < 500, path
    for name in ("idempotency-key", "if-match", "last-event-id", "x-api-key", "accept"):
        answer = await place.send(place.head("GET", "/api/agents/aria", f"{name}: {part}\xff"))
        assert answer.status < 500, name


async def test_the_same_key_twice(place: Place):
    body = b'{"name": "first", "name": "second"}'
    head = place.head("POST", "/api/agents", f"content-length: {len(body)}")
    answer = await place.send(head + body)
    assert (answer.status, answer.body["name"]) == (201, "second")
