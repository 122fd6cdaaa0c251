"""`python -m bench.api`: the HTTP server under load, against a floor of the same run.

The floor is the same Starlette on the same uvicorn, with a handler that returns the same bytes and
does nothing else. Servers are processes of their own; what counts is their CPU time, so that other
work on the machine does not change the figures. Everything happens on loopback.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Callable, Generator
from pathlib import Path
from typing import Any, cast

import orjson

from bench.__main__ import loopback_model

_PATIENCE = 60.0
_LENGTH = re.compile(rb"\r\ncontent-length: (\d+)", re.IGNORECASE)
_TICK = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


class ServerProcess:
    """A server that runs beside the driver, and what it uses."""

    def __init__(self, process: subprocess.Popen[str], port: int, token: str = "") -> None:
        self.process = process
        self.port = port
        self.token = token

    def cpu(self) -> float:
        """Return the CPU time that it has used, in seconds."""
        text = Path(f"/proc/{self.process.pid}/stat").read_text("ascii")
        fields = text.rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICK

    def resident(self) -> float:
        """Return the memory that it holds now, in MB."""
        statm = Path(f"/proc/{self.process.pid}/statm").read_text("ascii")
        return int(statm.split()[1]) * _PAGE / 1e6

    def head(self, method: str, path: str, length: int | None = None) -> bytes:
        """Return the head of a request with the token."""
        sized = "" if length is None else f"content-length: {length}\r\n"
        return (
            f"{method} {path} HTTP/1.1\r\nhost: 127.0.0.1:{self.port}\r\n"
            f"authorization: Bearer {self.token}\r\n{sized}\r\n"
        ).encode()


@contextlib.contextmanager
def served(model: str, path: str) -> Generator[ServerProcess]:
    """Serve a new home whose model is on loopback."""
    with tempfile.TemporaryDirectory(prefix="asterism-bench-") as scratch:
        data = Path(scratch, "data")
        data.mkdir(mode=0o700)
        (data / "asterism.toml").write_text(
            f'model = "mock:m"\n[models.mock]\napi = "openai"\nkey = "mock"\n'
            f'base_url = "{model}{path}"\n[api]\nrequests_per_minute = 100_000_000\n',
            "utf-8",
        )
        environ = {
            **os.environ,
            "ASTERISM_DATA": str(data),
            "ASTERISM_SERVERS": "none",
            "ASTERISM_NONINTERACTIVE": "1",
            "XDG_CONFIG_HOME": scratch,
        }
        command = [sys.executable, "-m", "asterism", "serve", "--port", "0"]
        with _started(command, environ) as (process, port):
            token = (data / "api-token").read_text("utf-8").strip()
            yield ServerProcess(process, port, token)


@contextlib.contextmanager
def floor(body: bytes) -> Generator[ServerProcess]:
    """Serve the same bytes for each request, with nothing around them."""
    command = [sys.executable, "-m", "bench.api", "--floor", body.decode()]
    with _started(command, {**os.environ}) as (process, port):
        yield ServerProcess(process, port, "none")


@contextlib.contextmanager
def _started(
    command: list[str], environ: dict[str, str]
) -> Generator[tuple[subprocess.Popen[str], int]]:
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environ) as process:
        assert process.stderr is not None
        try:
            line = process.stderr.readline()
            found = re.search(r"http://127\.0\.0\.1:(\d+)", line)
            if found is None:
                raise SystemExit(f"The server did not start: {line}{process.stderr.read()}")
            yield process, int(found[1])
        finally:
            process.terminate()
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()


def _serve_floor(body: str) -> None:
    """Be the floor, until told to stop."""
    import uvicorn
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

    content = body.encode()

    async def answer(_: Request) -> Response:
        return Response(content, 200, {}, "application/json")

    taken = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    taken.bind(("127.0.0.1", 0))
    print(f"http://127.0.0.1:{taken.getsockname()[1]}", file=sys.stderr, flush=True)
    app = Starlette(routes=[Route("/api/agents/{agent}", answer)])
    config = uvicorn.Config(
        app, log_config=None, access_log=False, lifespan="off", server_header=False
    )
    uvicorn.Server(config).run([taken])


# -- the driver ------------------------------------------------------------------------------------


class _Repeated(asyncio.Protocol):
    """A connection that sends the same request as soon as the last was answered."""

    def __init__(self, request: bytes, answered: Callable[[bytes], bool]) -> None:
        self._request = request
        self._answered = answered
        self._received = bytearray()
        self._transport: asyncio.Transport
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        received = self._received
        received += data
        end = received.find(b"\r\n\r\n") + 4
        if end < 4:
            return
        length = _LENGTH.search(received)
        if length is None or len(received) < end + int(length[1]):
            return
        answer = bytes(received)
        received.clear()
        if self._answered(answer):
            self._transport.write(self._request)
        elif not self.done.done():
            self.done.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.done.done():
            self.done.set_exception(exc or ConnectionError("The server closed the connection."))


async def get_agents(server: ServerProcess, seconds: float, connections: int) -> dict[str, float]:
    """Ask for an agent over some connections for some time."""
    request = server.head("GET", "/api/agents/aria")
    count, until = 0, time.monotonic() + seconds

    def answered(answer: bytes) -> bool:
        nonlocal count
        if not answer.startswith(b"HTTP/1.1 200 "):
            raise SystemExit(f"The server answered {answer[:400]!r}.")
        count += 1
        return time.monotonic() < until

    loop = asyncio.get_running_loop()
    cpu, start = server.cpu(), time.monotonic()
    opened = [
        await loop.create_connection(lambda: _Repeated(request, answered), "127.0.0.1", server.port)
        for _ in range(connections)
    ]
    await asyncio.gather(*(protocol.done for _, protocol in opened))
    took, used = time.monotonic() - start, server.cpu() - cpu
    for transport, _ in opened:
        transport.close()
    return {"per_s": count / took, "per_cpu_s": count / used}


async def call(
    server: ServerProcess, method: str, path: str, body: dict[str, Any] | None = None
) -> tuple[int, Any]:
    """Make one request over a new connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    try:
        sent = b"" if body is None else orjson.dumps(body)
        writer.write(server.head(method, path, len(sent)) + sent)
        head = await reader.readuntil(b"\r\n\r\n")
        length = _LENGTH.search(head)
        content = await reader.readexactly(int(length[1])) if length else b"null"
        return int(head.split(b" ", 2)[1]), orjson.loads(content)
    finally:
        writer.close()


async def create_agents(server: ServerProcess, count: int) -> list[str]:
    """Create agents; return their names."""
    names = [f"agent{number}" for number in range(count)]
    for name in names:
        status, answer = await call(server, "POST", "/api/agents", {"name": name})
        if status != 201:
            raise SystemExit(f"The agent {name} could not be created: {answer}")
    return names


# -- scenarios -------------------------------------------------------------------------------------


def measure_requests(model: str, seconds: float) -> dict[str, float]:
    """Measure `GET /api/agents/{name}` with a token, and the floor, turn by turn."""
    figures: dict[str, float] = {}
    with served(model, "/v1") as server:
        asyncio.run(call(server, "POST", "/api/agents", {"name": "aria"}))
        _, agent = asyncio.run(call(server, "GET", "/api/agents/aria"))
        with floor(orjson.dumps(agent)) as bare:
            for _ in range(3):
                ours = asyncio.run(get_agents(server, seconds, 16))
                least = asyncio.run(get_agents(bare, seconds, 16))
                for name, value in ours.items():
                    figures[name] = max(figures.get(name, 0.0), value)
                    figures[f"floor_{name}"] = max(figures.get(f"floor_{name}", 0.0), least[name])
    return figures


async def _tokens_of(
    server: ServerProcess, agent: str, turns: int, begun: asyncio.Semaphore
) -> tuple[list[str], float]:
    """Watch an agent until some of its turns have ended; return the text of each, and when."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=1 << 22)
    try:
        writer.write(server.head("GET", f"/api/agents/{agent}/events"))
        await reader.readuntil(b"\r\n\r\n")
        begun.release()
        texts: dict[str, list[str]] = {}
        ended: list[str] = []
        async for event in _events(reader):
            text = texts.setdefault(event["turn_id"], [])
            if event["kind"] == "text":
                text.append(event["data"]["text"])
            elif event["kind"] == "ended":
                ended.append(event["turn_id"])
                if len(ended) == turns:
                    break
        return ["".join(texts[turn]) for turn in ended], time.monotonic()
    finally:
        writer.close()


async def _events(reader: asyncio.StreamReader) -> AsyncGenerator[dict[str, Any]]:
    """Yield the events of an answer that is sent in chunks."""
    while True:
        size = int((await reader.readline()).strip() or b"0", 16)
        if not size:
            return
        chunk = (await reader.readexactly(size + 2))[:-2]
        for line in chunk.splitlines():
            if line.startswith(b"data: "):
                yield orjson.loads(line[6:])


def measure_streams(model: str, watchers: int, tokens: int) -> dict[str, float]:
    """Measure many watchers of agents that stream: who gets every token, in order?"""
    agents, turns = 20, 2

    async def run(server: ServerProcess) -> dict[str, float]:
        names = await create_agents(server, agents)
        begun = asyncio.Semaphore(0)
        watching = [
            asyncio.ensure_future(_tokens_of(server, names[number % agents], turns, begun))
            for number in range(watchers)
        ]
        async with asyncio.timeout(_PATIENCE):
            for _ in watching:
                await begun.acquire()
        cpu, start = server.cpu(), time.monotonic()
        for _ in range(turns):
            for name in names:
                await call(server, "POST", f"/api/agents/{name}/messages", {"text": "Go on."})
        async with asyncio.timeout(_PATIENCE * 5):
            found = await asyncio.gather(*watching)
        whole = "".join(f"t{number} " for number in range(tokens))
        right = sum(text == whole for texts, _ in found for text in texts)
        took = max(at for _, at in found) - start
        return {
            "streams_whole": right / (watchers * turns),
            "tokens_per_s": watchers * turns * tokens / took,
            "cpu_us_per_token": (server.cpu() - cpu) / (watchers * turns * tokens) * 1e6,
            "resident_mb": server.resident(),
        }

    with served(model, f"/tokens/{tokens}/v1") as server:
        return asyncio.run(run(server))


def measure_turns(model: str, seconds: float, per_minute: int) -> dict[str, float]:
    """Measure turns at a steady rate on SQLite: what they take beside the model, and memory."""
    thinking = 50

    async def ask(server: ServerProcess, name: str, number: int, took: list[float]) -> None:
        start = time.monotonic()
        status, answer = await call(
            server, "POST", f"/api/agents/{name}/ask", {"text": f"This is message {number}."}
        )
        if status != 200 or answer["state"] != "done":
            raise SystemExit(f"A turn failed: {answer}")
        took.append((time.monotonic() - start) * 1000 - thinking)

    async def run(server: ServerProcess) -> dict[str, float]:
        names = await create_agents(server, 50)
        took: list[float] = []
        resident: list[float] = []
        tasks: list[asyncio.Task[None]] = []
        cpu, start = server.cpu(), time.monotonic()
        total = int(seconds * per_minute / 60)
        for number in range(total):
            await asyncio.sleep(max(0.0, start + number * 60 / per_minute - time.monotonic()))
            name = names[number % len(names)]
            tasks.append(asyncio.create_task(ask(server, name, number, took)))
            if number % 100 == 0:
                resident.append(server.resident())
        async with asyncio.timeout(_PATIENCE):
            await asyncio.gather(*tasks)
        elapsed = time.monotonic() - start
        took.sort()
        middle = len(resident) // 2
        return {
            "turns_per_min": total / elapsed * 60,
            "overhead_p50_ms": took[len(took) // 2],
            "overhead_p95_ms": took[int(len(took) * 0.95)],
            "cpu_ms_per_turn": (server.cpu() - cpu) / total * 1000,
            "resident_mb": resident[-1],
            "growth": resident[-1] / resident[middle],
        }

    with served(model, f"/wait/{thinking}/v1") as server:
        return asyncio.run(run(server))


# -- the table -------------------------------------------------------------------------------------

_GOALS: dict[str, Callable[[float], bool]] = {
    "requests.per_cpu_s": lambda value: value >= 2_000,
    "streams.streams_whole": lambda value: value == 1.0,
    "turns.overhead_p95_ms": lambda value: value <= 25,
    "turns.growth": lambda value: value <= 1.05,
}


def _print(scenario: str, figures: dict[str, float]) -> bool:
    fulfilled = True
    for name, value in figures.items():
        goal = _GOALS.get(f"{scenario}.{name}")
        verdict = "" if goal is None else "ok" if goal(value) else "MISSED"
        fulfilled = fulfilled and verdict != "MISSED"
        ratio = ""
        if f"floor_{name}" in figures:
            ratio = f"{value / figures[f'floor_{name}']:.2f} of the floor"
        print(f"{scenario:9} {name:20} {value:12,.2f}  {ratio:18} {verdict}", flush=True)
    return fulfilled


def main() -> int:
    """Measure, and print the figures."""
    parser = argparse.ArgumentParser(prog="python -m bench.api", description=__doc__)
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO", help="requests, streams, turns")
    parser.add_argument("--minutes", type=float, default=2.0, help="how long turns are made")
    parser.add_argument("--watchers", type=int, default=200)
    parser.add_argument("--check", action="store_true", help="exit with 1 if a goal is missed")
    parser.add_argument("--floor", metavar="BODY", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.floor is not None:
        _serve_floor(arguments.floor)
        return 0
    wanted: list[str] = arguments.scenarios or ["requests", "streams", "turns"]
    fulfilled = True
    with loopback_model() as model:
        for scenario in wanted:
            if scenario == "requests":
                figures = measure_requests(model, 4.0)
            elif scenario == "streams":
                figures = measure_streams(model, arguments.watchers, 400)
            elif scenario == "turns":
                figures = measure_turns(model, arguments.minutes * 60, 1_000)
            else:
                parser.error(f"{scenario!r} is not a scenario: take requests, streams or turns.")
            fulfilled = _print(scenario, figures) and fulfilled
    return int(arguments.check and not fulfilled)


if __name__ == "__main__":
    sys.exit(main())
