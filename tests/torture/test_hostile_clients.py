"""Hostile clients beside an owner: the owner is answered as before, and nothing is refused to them.

`ASTERISM_TORTURE_SECONDS` says for how long they attack in `make torture`; ten minutes by default.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import ssl
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Generator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import httpx2
import pytest

from asterism import Asterism
from tests.certificates import write_certificate
from tests.conftest import TORTURE
from tests.e2e.command import EXECUTABLE, PATIENCE, Command

T = TypeVar("T")
SECONDS = float(os.environ.get("ASTERISM_TORTURE_SECONDS", "600")) if TORTURE else 2.0
QUIET = min(60.0, SECONDS / 2)
# A few seconds measure how busy the machine is, and show what is refused.
SLOWER, LARGER = (2.0, 1.5) if TORTURE else (10.0, 2.0)
LEAST = 0.05
"""Seconds that any answer may take: below, the scheduling of the machine is what is measured."""
PAUSE = 0.02
HELD = 300 if TORTURE else 40
BURST = HELD / 20
"""Seconds in which the hostile client takes what it gets: nothing is refused, and all is slower."""
WAYS = ("silent", "no head", "login", "unread", "stream", "slow body", "large_body", "flood")
ROOT = Path(__file__).parents[2]

pytestmark = [
    pytest.mark.promise("X1", "X5", "T4", "O4"),
    pytest.mark.timeout(SECONDS * 2 + 120),
]
if TORTURE:
    pytestmark.append(pytest.mark.torture)


@dataclass
class Server:
    """A served home in a process of its own."""

    pid: int
    data: Path
    certificate: Path
    port: int = 0

    @property
    def memory(self) -> int:
        """The bytes of memory that it takes."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0]) * 1024


@contextlib.contextmanager
def serving(place: Path) -> Generator[Server, None, None]:
    """Serve a home over TLS, whose agents think with the demo model."""
    command = Command(place)
    command.configure('model = "demo:guide"\n')
    certificate, key = write_certificate(place / "tls")
    arguments = ("--port", "0", "--tls-cert", str(certificate), "--tls-key", str(key))
    log = place / "serve.log"
    with log.open("w") as told:  # a pipe that nobody reads would hold it up
        process = subprocess.Popen(
            [EXECUTABLE, "serve", *arguments], stdout=told, stderr=told, env=command.env
        )
    try:
        server = Server(process.pid, command.data, certificate)
        deadline = time.monotonic() + PATIENCE
        while (address := re.search(r"https://127\.0\.0\.1:(\d+)", log.read_text())) is None:
            assert time.monotonic() < deadline
            assert process.poll() is None, log.read_text()
        server.port = int(address[1])
        yield server
        assert process.poll() is None, log.read_text()[-3_000:]
    finally:
        process.kill()
        process.wait(PATIENCE)


@dataclass
class Owner:
    """Talks, chats, reads and asks for health, and notes how long each takes."""

    server: Server
    secret: str
    took: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    memory: int = 0

    async def live(self, seconds: float) -> None:
        """Do everything again and again for a time; whatever is refused is raised."""
        server = self.server
        context = ssl.create_default_context(cafile=str(server.certificate))
        headers = {"authorization": f"Bearer {self.secret}"}
        url = f"https://127.0.0.1:{server.port}"
        end = time.monotonic() + seconds
        async with (
            httpx2.AsyncClient(base_url=url, headers=headers, verify=context, timeout=60) as client,
            Asterism.connect(server.data) as home,
        ):
            while time.monotonic() < end:
                await self._round(client, context, url, home)
                self.memory = max(self.memory, server.memory)

    async def _round(
        self, client: httpx2.AsyncClient, context: ssl.SSLContext, url: str, home: Asterism
    ) -> None:
        chat = {"model": "aria", "messages": [{"role": "user", "content": "What is new?"}]}

        async def new_connection() -> httpx2.Response:
            async with httpx2.AsyncClient(base_url=url, verify=context, timeout=60) as newcomer:
                return await newcomer.get("/health")

        for what, act in {
            "talk": lambda: client.post("/api/agents/aria/ask", json={"text": "hello"}),
            "chat": lambda: client.post("/openai/v1/chat/completions", json=chat),
            "read": lambda: client.get("/api/turns"),
            "health": new_connection,
        }.items():
            answer = await self._timed(what, act)
            assert answer.status_code == 200, (what, answer.status_code, answer.text)
        assert await self._timed("command line", home.agents.list)

    async def _timed(self, what: str, act: Callable[[], Awaitable[T]]) -> T:
        begun = time.monotonic()
        found = await act()
        self.took[what].append(time.monotonic() - begun)
        await asyncio.sleep(PAUSE)
        return found

    def p95(self, what: str) -> float:
        """The seconds within which all but one of twenty were answered."""
        return statistics.quantiles(self.took[what], n=20)[-1]


async def attack(server: Server, viewer: str, *, seconds: float) -> dict[str, int]:
    """Have a hostile client beside for so long; return how often it did what."""
    given = (str(server.port), str(server.certificate), str(seconds), str(HELD), viewer)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.torture.hostile_client", *given),
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        out, _ = await asyncio.wait_for(process.communicate(), seconds + PATIENCE)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0
    return json.loads(out)


async def test_an_owner_beside_hostile_clients_is_answered_as_before(tmp_path: Path):
    with serving(tmp_path) as server:
        async with Asterism.connect(server.data) as home:
            await home.agents.create("aria")
            viewer = (await home.tokens.create("viewer", role="viewer")).secret
            secret = (await home.tokens.create("owner")).secret
        # What is made once is made: the checks of tokens take megabytes, whoever asks for them.
        await attack(server, viewer, seconds=1.0)
        await Owner(server, secret).live(QUIET / 4)
        quiet, beside = Owner(server, secret), Owner(server, secret)
        await quiet.live(QUIET)
        attacking = asyncio.create_task(attack(server, viewer, seconds=BURST + SECONDS + 1.0))
        burst = Owner(server, secret)
        await burst.live(BURST)
        await beside.live(SECONDS)
        beside.memory = max(burst.memory, beside.memory)
        done = await attacking
        assert all(done[way] for way in WAYS), done
    told = {
        what: f"{quiet.p95(what) * 1000:.1f} -> {beside.p95(what) * 1000:.1f} ms"
        for what in quiet.took
    } | {"memory": f"{quiet.memory >> 20} -> {beside.memory >> 20} MB"}
    print(json.dumps(told))
    for what in quiet.took:
        assert beside.p95(what) <= SLOWER * max(quiet.p95(what), LEAST), told
    assert beside.memory <= LARGER * quiet.memory, told
