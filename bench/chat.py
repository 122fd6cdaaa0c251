"""How the chat feels: time to a prompt, echo of typing while an answer streams, a long history.

    python -m bench.chat              all three, on a home of their own below a temporary directory
    python -m bench.chat --turns 500  with a shorter history

The chat is the installed command at a pseudo-terminal; its model is a server on loopback that
writes 200 tokens a second. Typing is measured from the key to the moment its echo can be read from
the terminal. Figures are of this machine at this moment: look at the load beside them.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import pty
import select
import statistics
import struct
import sys
import tempfile
import termios
import threading
import time
from collections.abc import Callable
from fcntl import ioctl
from pathlib import Path

import orjson
from aiohttp import web

from asterism import Asterism
from asterism.testing.scripted import ScriptedModel

_EXECUTABLE = Path(sys.executable).parent / "asterism"
_TOKENS_A_SECOND = 200
_TOKENS = 2_400
_KEYS = "QZXVKJWY" * 5
_BETWEEN_KEYS = 0.12
_STARTS = 5
_READY = "\x1b[0;1m›"
"""The mark of a line that takes input; other marks are not bold."""
_PATIENCE = 60.0
_ANSWER = ("word and **more** of it, ", "`code` here, ", "and so on. ", "\n\n- an item\n", "text ")


class Person:
    """Somebody at a terminal who watches the clock."""

    def __init__(self, env: dict[str, str], *arguments: str) -> None:
        self.pid, self._fd = pty.fork()
        if self.pid == 0:
            os.execve(_EXECUTABLE, [str(_EXECUTABLE), *arguments], env)
        ioctl(self._fd, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))

    def press(self, keys: str) -> None:
        """Type something."""
        os.write(self._fd, keys.encode())

    def wait_for(self, text: str) -> float:
        """Return how many seconds it takes until a text is written to the terminal."""
        began, seen = time.monotonic(), b""
        while text.encode() not in seen:
            left = began + _PATIENCE - time.monotonic()
            if not select.select([self._fd], [], [], max(0.0, left))[0]:
                raise TimeoutError(f"{text!r} was not shown: {seen[-500:]!r}")
            seen = seen[-200:] + os.read(self._fd, 65536)
        return time.monotonic() - began

    def watch(self, seconds: float) -> None:
        """Read what is written for a while."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            if select.select([self._fd], [], [], left)[0]:
                os.read(self._fd, 65536)

    def close(self) -> float:
        """Leave, wait for the end, and return the seconds of processor time that it took."""
        with contextlib.suppress(OSError):  # Linux says so at the end
            # It stops an answer, then clears the line, then leaves.
            for _ in range(3):
                self.press("\x03")
                self.watch(0.3)
            while os.read(self._fd, 65536):
                pass
        used = os.wait4(self.pid, 0)[2]
        os.close(self._fd)
        return used.ru_utime + used.ru_stime


class TokenServer:
    """A model that writes so many tokens a second, in a thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self.address = ""

    def start(self) -> None:
        """Listen on a free port of loopback."""
        threading.Thread(target=self._run, daemon=True).start()
        self._ready.wait(_PATIENCE)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._listen())
        self._loop.run_forever()

    async def _listen(self) -> None:
        app = web.Application()
        app.router.add_post("/v1/chat/completions", self._answer)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0][:2]
        self.address = f"http://{host}:{port}/v1"
        self._ready.set()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        await request.read()
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        with contextlib.suppress(ConnectionResetError):  # the turn was stopped
            await self._stream(response)
        return response

    async def _stream(self, response: web.StreamResponse) -> None:
        began = time.monotonic()
        for number in range(_TOKENS):
            delta = {"content": _ANSWER[number % len(_ANSWER)]}
            event = {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
            await response.write(b"data: " + orjson.dumps(event) + b"\n\n")
            await asyncio.sleep(
                max(0.0, began + (number + 1) / _TOKENS_A_SECOND - time.monotonic())
            )
        await response.write(b"data: [DONE]\n\n")


def _env(place: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ASTERISM_")}
    return kept | {
        "ASTERISM_DATA": str(place),
        "ASTERISM_MODELS": str(place / "models"),
        "ASTERISM_SERVERS": "none",
        "ASTERISM_NONINTERACTIVE": "1",
        "TERM": "xterm-256color",
    }


def _start(env: dict[str, str]) -> str:
    """Return how long it takes from the command to a line that takes input.

    The first start warms the caches. On a machine that is busy, the processor time is the figure to
    look at: it is that of a whole chat, which is opened and left.
    """
    times: list[float] = []
    used: list[float] = []
    for _ in range(_STARTS + 1):
        person = Person(env)
        times.append(person.wait_for(_READY))
        used.append(person.close())
    first, processor = statistics.median(times[1:]), statistics.median(used[1:])
    return f"{first:.2f} s, {processor:.2f} s of processor time with leaving"


async def _fill(place: Path, turns: int) -> None:
    """Give an agent a past."""
    model = ScriptedModel.from_rule(lambda _: "Noted, and there is more to say about that.")
    settings: dict[str, object] = {"model": "scripted:one", "pipeline.processors": []}
    async with Asterism.open(
        place, models={"scripted": model}, settings=settings, environ={}
    ) as home:
        agent = await home.agents.ensure("aster")
        for number in range(turns):
            await home.agents.ask(agent, f"This is message {number} of many", channel="terminal")


def _echo(env: dict[str, str]) -> list[float]:
    """Return the seconds until each typed key is echoed while an answer streams."""
    person = Person(env)
    person.wait_for(_READY)
    person.press("write a lot\r")
    person.wait_for("•")
    times: list[float] = []
    for key in _KEYS:
        person.press(key)
        times.append(person.wait_for(key))
        person.watch(_BETWEEN_KEYS)
    person.close()
    return times


def _report(name: str, figure: Callable[[], str]) -> None:
    print(f"{name:<44}{figure()}", flush=True)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=5_000)
    turns: int = parser.parse_args().turns
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        server = TokenServer()
        server.start()
        for name in ("empty", "long"):
            (place / name).mkdir(mode=0o700)
            (place / name / "asterism.toml").write_text(
                f'model = "local:m"\n[models.local]\nbase_url = "{server.address}"\n'
            )
        asyncio.run(_fill(place / "long", turns))

        def echo() -> str:
            times = sorted(_echo(_env(place / "empty")))
            p95 = times[int(len(times) * 0.95) - 1]
            return (
                f"median {statistics.median(times) * 1000:.0f} ms, p95 {p95 * 1000:.0f} ms, "
                f"worst {times[-1] * 1000:.0f} ms of {len(times)} keys"
            )

        print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
        _report("start to a prompt, empty home", lambda: _start(_env(place / "empty")))
        _report(
            f"start to a prompt, {turns:,} turns",
            lambda: _start(_env(place / "long")),
        )
        _report(f"echo at {_TOKENS_A_SECOND} tokens/s", echo)


if __name__ == "__main__":
    main()
