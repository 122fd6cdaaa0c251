"""A client that means no good, in a process of its own: it takes what it gets, and comes again.

`python -m tests.torture.hostile_client PORT CERTIFICATE SECONDS HELD TOKEN` attacks a server on
loopback for so long, with the token of a viewer and without any, holding so many connections of
each kind if it gets them, and then prints how often it did what. After a burst it is bounded what
it does in a second, so that its own need of the processor is not what is measured.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import ssl
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import cast

BURST, EVERY = 0.02, 0.5
"""Seconds between two connections of a kind that holds them: at first, and then."""
PATIENCE = 5.0

Pair = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class HostileClient:
    """Attacks one server."""

    def __init__(self, port: int, certificate: str, token: str, held: int) -> None:
        """Make it; nothing is sent yet."""
        self.done: Counter[str] = Counter()
        self._port = port
        self._tls = ssl.create_default_context(cafile=certificate)
        self._token = token
        self._most = held
        self._held: dict[str, list[Pair]] = {}

    async def run(self, seconds: float) -> None:
        """Attack for a time, in all ways at once."""
        ways = (
            *(self._holding("silent", self._silent), self._holding("no head", self._no_head)),
            *(self._holding("login", self._login), self._holding("unread", self._unread)),
            *(self._holding("stream", self._stream), self._holding("slow body", self._slow_body)),
            *(self._again(0.5, self._large_body), self._again(2.0, self._large_body_of_viewer)),
            *(self._again(0.5, self._session), self._again(0.2, self._flood)),
            *(self._again(0.2, self._wrong_token), self._again(0.2, self._nonsense)),
        )
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await asyncio.gather(*ways)
        for pairs in self._held.values():
            for _, writer in pairs:
                writer.transport.abort()

    async def _again(self, every: float, attack: Callable[[], Awaitable[None]]) -> None:
        """Do something now and then, whatever comes of it."""
        while True:
            await self._try(attack)
            await asyncio.sleep(every * random.uniform(0.5, 1.5))

    async def _try(self, attack: Callable[[], Awaitable[object]]) -> None:
        name = attack.__name__.strip("_")
        try:
            async with asyncio.timeout(PATIENCE):
                await attack()
            self.done[name] += 1
        except (OSError, TimeoutError, asyncio.IncompleteReadError, ssl.SSLError):
            self.done[f"{name} refused"] += 1

    async def _holding(self, kind: str, begin: Callable[[], Awaitable[Pair]]) -> None:
        """Hold as many connections of a kind as it gets, and send a byte on each now and then."""
        held = self._held.setdefault(kind, [])

        async def one_more() -> None:
            held.append(await begin())

        one_more.__name__ = kind
        burst = self._most
        while True:
            held[:] = [pair for pair in held if not _is_closed(pair)]
            if len(held) < self._most:
                await self._try(one_more)
            for _, writer in random.sample(held, min(2, len(held))):
                if kind not in ("silent", "unread", "stream"):
                    writer.write(b"x")
            burst -= 1
            await asyncio.sleep(BURST if burst > 0 else EVERY)

    # -- what is held ------------------------------------------------------------------------------

    async def _connect(self, *, tls: bool = True) -> Pair:
        context = self._tls if tls else None
        return await asyncio.open_connection("127.0.0.1", self._port, ssl=context, limit=1 << 16)

    async def _begun(self, head: bytes, *, tls: bool = True) -> Pair:
        pair = await self._connect(tls=tls)
        pair[1].write(head)
        return pair

    async def _silent(self) -> Pair:
        return await self._begun(random.choice((b"", b"\x16\x03\x01\x02\x00\x01\x00")), tls=False)

    async def _no_head(self) -> Pair:
        return await self._begun(b"GET /api/agents HTTP/1.1\r\nhost: localhost\r\nx: ")

    async def _login(self) -> Pair:
        return await self._begun(self._head("POST", "/api/login", 10_000, known=False) + b"{")

    async def _slow_body(self) -> Pair:
        return await self._begun(self._head("POST", "/api/agents/aria/ask", 4_000_000) + b"{")

    async def _stream(self) -> Pair:
        return await self._begun(self._head("GET", "/api/agents/aria/events"))

    async def _unread(self) -> Pair:
        pair = await self._begun(self._head("GET", "/api/openapi.json", known=False))
        cast("asyncio.Transport", pair[1].transport).pause_reading()
        return pair

    # -- what is done again and again --------------------------------------------------------------

    async def _large_body(self) -> None:
        await self._ask(self._head("POST", "/api/agents", 1 << 30, known=False), b"x" * (1 << 20))

    async def _large_body_of_viewer(self) -> None:
        await self._ask(self._head("POST", "/api/agents", 4 << 20), b'"' + b"x" * ((4 << 20) - 1))

    async def _session(self) -> None:
        about = {"name": "x" * random.choice((10, 60_000, 1 << 20)), "version": "1"}
        params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": about}
        request = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
        body = json.dumps(request).encode()
        await self._ask(self._head("POST", "/mcp", len(body)), body)

    async def _flood(self) -> None:
        await self._ask(self._head("GET", random.choice(("/api/agents", "/api/turns", "/health"))))

    async def _wrong_token(self) -> None:
        head = self._head("GET", "/api/agents")
        await self._ask(head.replace(self._token[-20:].encode(), os.urandom(10).hex().encode()))

    async def _nonsense(self) -> None:
        await self._ask(
            random.choice((b"\x00\x01\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"[]\r\n\r\n"))
        )

    def _head(self, method: str, path: str, length: int = 0, *, known: bool = True) -> bytes:
        lines = [
            f"{method} {path} HTTP/1.1",
            "host: localhost",
            *([f"authorization: Bearer {self._token}"] if known else []),
            *([f"content-length: {length}"] if length else []),
            "content-type: application/json",
            "accept: application/json, text/event-stream",
        ]
        return ("\r\n".join(lines) + "\r\n\r\n").encode()

    async def _ask(self, head: bytes, body: bytes = b"") -> None:
        """Send a request, read the first of what is answered, and leave."""
        reader, writer = await self._connect()
        try:
            writer.write(head + body)
            await reader.read(1_000)
        finally:
            writer.transport.abort()


def _is_closed(pair: Pair) -> bool:
    return pair[0].at_eof() or pair[1].is_closing()


def main() -> None:
    """Attack, and tell what was done."""
    port, certificate, seconds, held, token = sys.argv[1:]
    os.nice(19)
    client = HostileClient(int(port), certificate, token, int(held))
    asyncio.run(client.run(float(seconds)))
    print(json.dumps(client.done))


if __name__ == "__main__":
    main()
