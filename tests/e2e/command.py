"""The command `asterism`: in this process or installed, in pipes or at a pseudo-terminal."""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import contextvars
import functools
import gc
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
from bisect import bisect_left
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from fcntl import ioctl
from functools import partial
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Self

import pyte
import pytest
from aiohttp import web

from asterism.types.turns import Reply
from tests.e2e.new_process import as_new_process, open_below
from tests.servers.openai_server import (
    Fault,
    OpenAIServer,
    Raw,
    Respond,
    answer_by_directives,
)

EXECUTABLE = Path(sys.executable).parent / "asterism"
PATIENCE = 120.0
TRACEBACK = "Traceback (most recent call last)"
_ROWS = 40
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Command:
    """`asterism` with a data directory of its own and nothing of the caller's settings.

    It runs within the process of the test, since starting Python and importing everything takes
    ten times as long as most commands do. Each run goes through the entry point of the installed
    command and finds what a new process would: its own environment, its own files behind
    descriptors 0, 1 and 2, a log that nobody has set up, and no secret that is known.
    """

    def __init__(self, place: Path) -> None:
        self.place = place
        self.data = place / "data"
        self.env = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith("ASTERISM_")
            and not name.endswith("_API_KEY")
            and name not in ("COLUMNS", "LINES", "NO_COLOR", "OLLAMA_HOST")
        } | {
            "ASTERISM_DATA": str(self.data),
            # No weights, no servers of the machine, no questions: tests of these say otherwise.
            "ASTERISM_MODELS": str(place / "models"),
            "ASTERISM_SERVERS": "none",
            "ASTERISM_NONINTERACTIVE": "1",
            # A master key would be kept there.
            "XDG_CONFIG_HOME": str(place / "config"),
            "TMPDIR": str(place),
            "TERM": "xterm-256color",
            "LC_ALL": "C.UTF-8",
        }

    def configure(self, text: str) -> None:
        """Write `asterism.toml`."""
        self.data.mkdir(mode=0o700, exist_ok=True)
        (self.data / "asterism.toml").write_text(text, encoding="utf-8")

    def use(self, server: ModelServer, more: str = "", *, retries: int = 0) -> None:
        """Talk to a model server; `more` is added to the configuration."""
        self.configure(
            f'model = "local:m"\n{more}\n[models.local]\nretries = {retries}\n'
            f'base_url = "{server.base_url}"\n'
        )

    def run(
        self, *arguments: str | bytes, stdin: str | bytes = "", data: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a command to its end; a traceback anywhere is a failure of the test."""
        given = stdin.encode() if isinstance(stdin, str) else stdin
        env = self.env | ({"ASTERISM_DATA": str(data)} if data else {})
        done = self._run(arguments, given, env)
        out, err = done.stdout.decode(), done.stderr.decode()
        assert TRACEBACK not in out + err, out + err
        return subprocess.CompletedProcess(done.args, done.returncode, out, err)

    def ok(self, *arguments: str, stdin: str = "") -> str:
        """Run a command that must succeed, and return what it printed."""
        done = self.run(*arguments, stdin=stdin)
        assert done.returncode == 0, (done.stdout, done.stderr)
        return done.stdout

    def json(self, *arguments: str) -> Any:
        """Run a command with `--json` and return what it printed."""
        return json.loads(self.ok(*arguments, "--json"))

    @contextlib.contextmanager
    def screen(self, *arguments: str, columns: int = 100) -> Generator[Screen, None, None]:
        """Run a command that asks nothing at a pseudo-terminal, to its end."""
        person, command = pty.openpty()
        _set_size(person, columns)
        screen = Screen()
        reader = threading.Thread(target=screen.read, args=(person,), daemon=True)
        reader.start()
        try:
            screen.code = self._call(arguments, self.env, (command, command, command))
        finally:
            os.close(command)
            reader.join(PATIENCE)
            os.close(person)
        assert TRACEBACK not in screen.shown, screen.shown
        yield screen

    @contextlib.contextmanager
    def started(self, *arguments: str) -> Generator[subprocess.Popen[str], None, None]:
        """Run the installed command beside the test; it is killed at the end."""
        process = subprocess.Popen(
            [EXECUTABLE, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self.env,
        )
        try:
            yield process
        finally:
            process.kill()
            process.communicate()

    @contextlib.contextmanager
    def terminal(
        self, *arguments: str, columns: int = 100, rows: int = _ROWS
    ) -> Generator[Terminal, None, None]:
        """Run the installed command at a pseudo-terminal; it is killed at the end."""
        terminal = Terminal([str(EXECUTABLE), *arguments], self.env, columns, rows)
        try:
            yield terminal
        finally:
            terminal.close()

    def _run(
        self, arguments: tuple[str | bytes, ...], stdin: bytes, env: dict[str, str]
    ) -> subprocess.CompletedProcess[bytes]:
        with (
            tempfile.TemporaryFile() as given,
            tempfile.TemporaryFile() as out,
            tempfile.TemporaryFile() as err,
        ):
            given.write(stdin)
            given.seek(0)
            code = self._call(arguments, env, (given.fileno(), out.fileno(), err.fileno()))
            printed = [file.read() for file in (out, err) if file.seek(0) == 0]
        return subprocess.CompletedProcess(arguments, code, *printed)

    def _call(
        self,
        arguments: tuple[str | bytes, ...],
        env: dict[str, str],
        streams: tuple[int, int, int],
    ) -> int:
        """Call the entry point of the command as a new process would; return the exit code."""
        threads, files = set(threading.enumerate()), open_below(self.place)
        with as_new_process([str(EXECUTABLE), *map(os.fsdecode, arguments)], env, streams):
            if _loop_is_running():
                with ThreadPoolExecutor(1) as thread:
                    code = thread.submit(_exit_code).result()
            else:
                code = contextvars.Context().run(_exit_code)
        for left in set(threading.enumerate()) - threads:
            left.join(PATIENCE)
            assert not left.is_alive(), f"{arguments} left {left} behind"
        if open_below(self.place) - files:
            gc.collect()
        still = open_below(self.place) - files
        assert not still, f"{arguments} left {still} open"
        return code


class Installed(Command):
    """The installed command as a process of its own, for what only a process can show."""

    def _run(
        self, arguments: tuple[str | bytes, ...], stdin: bytes, env: dict[str, str]
    ) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            [EXECUTABLE, *arguments],
            input=stdin,
            capture_output=True,
            timeout=PATIENCE * 2,
            env=env,
            check=False,
        )


_script = functools.cache(partial(entry_points, group="console_scripts", name="asterism"))


def _exit_code() -> int:
    """Do what the installed script does, and return the code that it ends with."""
    (script,) = _script()
    with pytest.raises(SystemExit) as end:
        script.load()()
    assert isinstance(end.value.code, int)
    return end.value.code


def _loop_is_running() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _set_size(terminal: int, columns: int, rows: int = _ROWS) -> None:
    ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


class Screen:
    """What a command left on a terminal at which nobody typed."""

    def __init__(self) -> None:
        self.raw = ""
        self.code = -1

    @property
    def shown(self) -> str:
        """All that was printed, without styles."""
        return _without_styles(self.raw)

    def ended(self) -> int:
        """Return the exit code."""
        return self.code

    def read(self, terminal: int) -> None:
        """Read what is printed until nobody can print any more."""
        printed = b""
        with contextlib.suppress(OSError):  # Linux says so at the end
            while piece := os.read(terminal, 65536):
                printed += piece
        self.raw = printed.decode(errors="replace")


def _without_styles(printed: str) -> str:
    return _ESCAPES.sub("", printed).replace("\r", "")


class _WrappingScreen(pyte.HistoryScreen):
    """A screen that knows which lines went on below for want of room, and which had ended."""

    _draws = False

    def draw(self, data: str) -> None:
        self._draws = True
        super().draw(data)
        self._draws = False

    def linefeed(self) -> None:
        self.buffer[self.cursor.y].wrapped = self._draws  # pyright: ignore[reportAttributeAccessIssue] - rows are dictionaries that move as they are
        super().linefeed()


class Terminal:
    """A person at a terminal, who reads what stands on it: the screen and what scrolled away."""

    def __init__(
        self, arguments: list[str], env: dict[str, str], columns: int, rows: int = _ROWS
    ) -> None:
        self.pid, self._fd = pty.fork()
        if self.pid == 0:  # pragma: no cover - becomes the command
            # Tests in the background of a shell ignore Ctrl-C; whoever sits at a terminal does not.
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.execve(arguments[0], arguments, env)
        _set_size(self._fd, columns, rows)
        self.raw = ""
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._screen = _WrappingScreen(columns, rows, history=100_000)
        self._stream = pyte.Stream(self._screen)
        self._read = (0, 0)
        """The line and the column up to which the person has read."""
        self._status: int | None = None

    @property
    def lines(self) -> list[str]:
        """All lines, from the first one that scrolled away to the last on the screen."""
        screen, rows = self._screen, self._rows
        lines = ["".join(row[x].data for x in range(screen.columns)).rstrip() for row in rows]
        # What stands before the cursor was written, spaces too.
        row, column = self._cursor
        lines[row] = lines[row].ljust(column)
        while lines and not lines[-1]:
            lines.pop()
        return lines

    @property
    def shown(self) -> str:
        """All that can be read."""
        return self._text[0]

    @property
    def _rows(self) -> list[Any]:
        screen = self._screen
        return [*screen.history.top, *(screen.buffer[row] for row in range(screen.lines))]

    @property
    def _text(self) -> tuple[str, list[tuple[int, int]]]:
        """The lines as one text, and the place of each character."""
        text: list[str] = []
        places: list[tuple[int, int]] = []
        for number, (line, row) in enumerate(zip(self.lines, self._rows, strict=False)):
            wrapped = getattr(row, "wrapped", False)
            whole = line.ljust(self._screen.columns) if wrapped else f"{line}\n"
            text.append(whole)
            places += [(number, column) for column in range(len(whole))]
        return "".join(text), places

    @property
    def _cursor(self) -> tuple[int, int]:
        cursor = self._screen.cursor
        row = len(self._screen.history.top) + cursor.y
        return row, min(cursor.x, self._screen.columns)

    def resize(self, columns: int, rows: int = _ROWS) -> None:
        """Make the window another size."""
        self._screen.resize(rows, columns)
        _set_size(self._fd, columns, rows)

    def type(self, text: str) -> None:
        """Type a line."""
        os.write(self._fd, text.encode() + b"\n")

    def press(self, key: str) -> None:
        """Press a key, such as `\\x03` for Ctrl-C."""
        os.write(self._fd, key.encode())

    def expect(self, text: str, timeout: float = PATIENCE) -> str:
        """Wait until a text is shown after what was expected before; return what came with it.

        A line may have ended between any two of its words.
        """
        deadline = time.monotonic() + timeout
        wanted = re.compile(re.sub(r"(?<=\S)\\ (?=\S)", r"\\s+", re.escape(text)))
        while True:
            shown, places = self._text
            start = bisect_left(places, self._read)
            found = wanted.search(shown, start)
            if found is not None:
                end = found.end()
                line, column = places[end - 1]
                # What is printed next may push a prompt down, and stand where it stood.
                at_prompt = (line, column + 1) == self._cursor
                self._read = (line, 0) if at_prompt else (line, column + 1)
                return shown[start:end]
            if not self._pump(deadline):
                raise AssertionError(f"{text!r} was not shown after: {shown[start:]!r}")

    def see(self, text: str) -> None:
        """Wait until a text is shown that may go away again, such as a hint."""
        read = self._read
        self.expect(text)
        self._read = read

    def ended(self) -> int:
        """Wait for the end and return the exit code, negative for a signal."""
        deadline = time.monotonic() + PATIENCE
        while self._pump(deadline):
            pass
        _, status = os.waitpid(self.pid, 0)
        self._status = status
        return os.waitstatus_to_exitcode(status)

    def kill(self) -> None:
        """End the process as a crash would."""
        os.kill(self.pid, signal.SIGKILL)
        self.ended()

    def close(self) -> None:
        """Leave nothing behind."""
        if self._status is None:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self._fd)
        assert TRACEBACK not in self.raw, self.shown

    def _pump(self, deadline: float) -> bool:
        """Read what was printed; False at the end, and an error when nothing comes in time."""
        ready, _, _ = select.select([self._fd], [], [], max(0.0, deadline - time.monotonic()))
        if not ready or time.monotonic() > deadline:
            raise AssertionError(f"Nothing more was shown after {self._read}: {self.shown!r}")
        try:
            piece = os.read(self._fd, 65536)
        except OSError:  # Linux says so at the end
            piece = b""
        text = self._decoder.decode(piece)
        self.raw += text
        self._stream.feed(text)
        return bool(piece)


class _TogetherServer(OpenAIServer):
    """A model server that answers nobody before so many requests have come."""

    def __init__(self, respond: Respond, together: int, latency: float) -> None:
        super().__init__(respond, latency=latency)
        self._missing = together
        self._all_came = asyncio.Event()

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        self._missing -= 1
        if self._missing <= 0:
            self._all_came.set()
        await self._all_came.wait()
        return await super()._complete(request)


class ModelServer:
    """The misbehaving model server in a thread, for tests that wait for commands."""

    def __init__(self, together: int = 1, latency: float = 0.0) -> None:
        self._server = _TogetherServer(self._respond, together, latency)
        self._asked = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    @property
    def base_url(self) -> str:
        return self._server.base_url

    @property
    def requests(self) -> int:
        return len(self._server.requests)

    @property
    def bodies(self) -> list[dict[str, Any]]:
        return [request.body for request in self._server.requests]

    @property
    def headers(self) -> list[dict[str, str]]:
        return [request.headers for request in self._server.requests]

    def wait_until_asked(self) -> None:
        """Return when the first request has come."""
        assert self._asked.wait(PATIENCE)

    def _respond(self, body: dict[str, Any]) -> Reply:
        self._asked.set()
        return answer_by_directives(body)

    def next(self, *faults: Fault | Raw | None) -> None:
        self._server.next(*faults)

    def every(self, fault: Fault | Raw | None) -> None:
        """Meet all requests with this from now on."""
        self._server.every = fault

    def requests_about(self, text: str) -> int:
        """How often an answer to a message was asked for."""
        spoken = [
            [each for each in body["messages"] if each["role"] == "user"] for body in self.bodies
        ]
        return sum(bool(said) and text in str(said[-1]["content"]) for said in spoken)

    def demand(self, key: str) -> None:
        """Refuse requests without this key from now on."""
        self._server.key = key

    def __enter__(self) -> Self:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._server.__aenter__(), self._loop).result(PATIENCE)
        return self

    def __exit__(self, *_: object) -> None:
        closing = asyncio.run_coroutine_threadsafe(self._server.__aexit__(), self._loop)
        closing.result(PATIENCE)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE)
        self._loop.close()
