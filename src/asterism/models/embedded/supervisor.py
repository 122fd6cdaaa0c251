"""Supervision of a child process that holds an embedded model: start, restart, idle, end."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import signal
import sys
import time
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from asterism.errors import ModelRefused, ModelUnavailable
from asterism.private import make_directory
from asterism.records import dataclass

CHILD = Path(__file__).with_name("child.py")
MAX_PAUSE = 60.0
_MAX_WAIT_FOR_RESTART = 5.0
"""Seconds of a pause after a crash that a request waits out; a longer one it is told of."""
_SECONDS_TO_END = 3.0
_SECONDS_TO_DROP = 10.0
_SECONDS_TO_COUNT = 5.0
_MAX_LOG_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class ChildOptions:
    """How a child is kept."""

    window: int = 8192
    parallel: int = 1
    cache_mib: int = 512
    """Memory for the prefixes of agents that are not being answered right now."""
    threads: int = 0
    """For writing; 0: as many cores as are idle when the child starts."""
    idle: float = 600.0
    """Seconds without a request after which the child is stopped."""
    start: float = 120.0
    """Seconds that a start may take."""


@dataclass(frozen=True, slots=True)
class RunningChild:
    """A child that is up."""

    process: Process
    address: str
    key: str

    @property
    def alive(self) -> bool:
        """Whether the process has not ended."""
        return self.process.returncode is None


class StopGeneration(Exception):
    """Raised while an answer streams in by whoever wants no more of it."""


class Supervisor:
    """Keeps one child for one file of weights; requests queue for it in the order they came."""

    def __init__(self, name: str, path: Path, log: Path, options: ChildOptions) -> None:
        self.name = name
        self.path = path
        self._log = log
        self._options = options
        self._slots = asyncio.Semaphore(options.parallel)
        self._lock = asyncio.Lock()
        self._running: RunningChild | None = None
        self._failures = 0
        self._not_before = 0.0
        self._users = 0
        self._idle: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def pid(self) -> int | None:
        """The child's process id while it is up."""
        running = self._running
        return running.process.pid if running is not None and running.alive else None

    @property
    def address(self) -> tuple[str, str]:
        """Where the child listens and the key it wants, empty while it is not up."""
        running = self._running
        return (running.address, running.key) if running is not None else ("", "")

    @asynccontextmanager
    async def use(self) -> AsyncGenerator[RunningChild]:
        """Hold the child, started if need be, for one request."""
        await self._slots.acquire()
        self._users += 1
        left = False
        try:
            running = await self._ensure_running()
            try:
                yield running
            except (asyncio.CancelledError, StopGeneration):
                # Someone gave up in the middle of an answer; the next one waits until the server
                # has noticed, and a server that does not notice is ended.
                left = True
                self._spawn(self._await_dropped(running))
                raise
        finally:
            if not left:
                self._release()

    async def count(self, messages: Sequence[bytes], fields: Mapping[str, Any]) -> int | None:
        """Return how many tokens the child reads for some messages; None while it is not up.

        Args:
            messages: The messages.
            fields: What else of a request goes into its template.
        """
        running = self._running
        if running is None or not running.alive:
            return None
        return await _count_tokens(running, messages, fields)

    def succeeded(self) -> None:
        """Note that a request was answered: pauses after crashes begin anew."""
        self._failures = 0

    async def kill(self, running: RunningChild) -> None:
        """End a child that hangs or has crashed; the next request starts another, after a pause."""
        if self._running is running:
            self._running = None
            self._failed()
        await _end_process(running.process, gently=False)

    async def close(self) -> None:
        """Stop the child and everything that looks after it."""
        self._cancel_idle_timer()
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        async with self._lock:
            running, self._running = self._running, None
            if running is not None:
                await _end_process(running.process, gently=True)

    # -- starting ------------------------------------------------------------------------------

    async def _ensure_running(self) -> RunningChild:
        self._cancel_idle_timer()
        async with self._lock:
            running = self._running
            if running is not None and running.alive:
                return running
            if running is not None:
                self._running = None
                self._failed()
            pause = self._not_before - time.monotonic()
            if pause > _MAX_WAIT_FOR_RESTART:
                raise ModelUnavailable(
                    f"The embedded model {self.name!r} has ended {self._failures} times in a row "
                    f"and is started again in {pause:.0f} seconds. Its log is {self._log}.",
                    retry_after=pause,
                )
            if pause > 0:
                await asyncio.sleep(pause)
            self._running = await self._start()
            return self._running

    async def _start(self) -> RunningChild:
        log = _open_log(self._log)
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-P",
                str(CHILD),
                stdin=PIPE,
                stdout=PIPE,
                stderr=log,
                # Ctrl-C in the terminal is for the parent, which then ends the child in order.
                start_new_session=True,
            )
        except OSError as error:
            self._failed()
            raise ModelUnavailable(
                f"The embedded model {self.name!r} could not be started: {error.strerror}. "
                "Close other programs, or give the agent another model."
            ) from None
        finally:
            if log != DEVNULL:
                os.close(log)
        key = secrets.token_urlsafe(24)
        try:
            answer = await self._handshake(process, key)
        except BaseException:
            await _end_process(process, gently=False)
            raise
        if "address" in answer:
            return RunningChild(process, str(answer["address"]), key)
        await _end_process(process, gently=False)
        self._failed()
        raise self._explain(answer, process.returncode)

    async def _handshake(self, process: Process, key: str) -> dict[str, Any]:
        """Hand the settings over and wait for the child's one line."""
        assert process.stdin is not None
        assert process.stdout is not None
        options = self._options
        cores, free = idle_cores()
        settings = {
            "parent": os.getpid(),
            "name": self.name,
            "path": str(self.path),
            "key": key,
            "window": options.window,
            "parallel": options.parallel,
            "cache_mib": options.cache_mib,
            "threads": options.threads or free,
            "batch_threads": max(options.threads, cores),
            "log": str(self._log),
        }
        line = b""
        with suppress(OSError, ValueError):
            process.stdin.write(json.dumps(settings).encode() + b"\n")
            await process.stdin.drain()
            try:
                async with asyncio.timeout(options.start):
                    line = await process.stdout.readline()
            except TimeoutError:
                return {"slow": True}
        answer: dict[str, Any] = json.loads(line) if line else {}
        return answer

    def _explain(self, answer: dict[str, Any], code: int | None) -> ModelRefused | ModelUnavailable:
        named = f"The embedded model {self.name!r}"
        if "missing" in answer:
            return ModelRefused(
                f"{named} needs the library xllamacpp, which cannot be loaded "
                f"({answer['missing']}). Install it with: pip install 'asterism[embedded]'."
            )
        if "slow" in answer:
            why = f"it was not ready within {self._options.start:g} seconds"
        elif "error" in answer:
            why = str(answer["error"])
        else:
            why = f"its process {describe_exit(code)}"
        return ModelUnavailable(
            f"{named} could not be started: {why}. It needs about "
            f"{self.path.stat().st_size * 1.4 / 1e9:.1f} GB of memory; its log is {self._log}. "
            "Nothing was asked."
        )

    def _failed(self) -> None:
        pause = min(MAX_PAUSE, 2.0**self._failures)
        self._failures += 1
        self._not_before = time.monotonic() + pause

    # -- leaving -------------------------------------------------------------------------------

    async def _await_dropped(self, running: RunningChild) -> None:
        """Wait until the server has dropped a request that nobody waits for; else end it."""
        try:
            if not await _drops_request(running, others=self._users - 1):
                await self.kill(running)
        finally:
            self._release()

    def _release(self) -> None:
        self._users -= 1
        self._slots.release()
        if not self._users:
            self._cancel_idle_timer()
            loop = asyncio.get_running_loop()
            self._idle = loop.call_later(
                self._options.idle, lambda: self._spawn(self._stop_if_idle())
            )

    def _cancel_idle_timer(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None

    async def _stop_if_idle(self) -> None:
        """Stop the child, since it has been idle for long enough."""
        async with self._lock:
            if self._users or self._running is None:
                return
            running, self._running = self._running, None
            await _end_process(running.process, gently=True)

    def _spawn(self, work: Any) -> None:
        task: asyncio.Task[None] = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def idle_cores() -> tuple[int, int]:
    """Return how many cores this process may use, and how many of them are idle right now.

    More threads than idle cores make writing slower, not faster: each token waits for the slowest.
    """
    if hasattr(os, "sched_getaffinity"):
        allowed = os.sched_getaffinity(0)
        cores = len({_core_of(cpu) for cpu in allowed})
    else:
        cores = os.cpu_count() or 1
    with suppress(OSError, ValueError):
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text(encoding="ascii").split()
        cores = min(cores, max(1, int(quota) // int(period)))
    cores = min(cores, 8)
    try:
        load = os.getloadavg()[0]
    except OSError:
        load = 0.0
    return cores, max(1, cores - round(load))


def describe_exit(code: int | None) -> str:
    """Say how a process ended."""
    if code is not None and code < 0:
        with suppress(ValueError):
            return f"was ended by {signal.Signals(-code).name}"
    return f"ended with code {code}"


def _core_of(cpu: int) -> str:
    """Return a name for the physical core that a logical one belongs to."""
    place = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
    try:
        return place.read_text(encoding="ascii").strip()
    except OSError:
        return str(cpu)


def _open_log(path: Path) -> int:
    try:
        make_directory(path.parent)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        log = os.open(path, flags, 0o600)
        if os.fstat(log).st_size > _MAX_LOG_BYTES:
            os.ftruncate(log, 0)
    except OSError:
        return DEVNULL
    return log


async def _drops_request(running: RunningChild, *, others: int) -> bool:
    """Tell whether the server, within a short time, works for no more than the others."""
    import aiohttp

    headers = {"Authorization": f"Bearer {running.key}"}
    with suppress(aiohttp.ClientError, OSError, ValueError):
        async with (
            asyncio.timeout(_SECONDS_TO_DROP),
            aiohttp.ClientSession(headers=headers) as session,
        ):
            while running.alive:
                async with session.get(f"{running.address}/slots") as response:
                    slots: list[dict[str, Any]] = await response.json()
                if sum(bool(slot.get("is_processing")) for slot in slots) <= others:
                    return True
                await asyncio.sleep(0.1)
    return False


async def _count_tokens(
    running: RunningChild, messages: Sequence[bytes], fields: Mapping[str, Any]
) -> int | None:
    """Let the server count the tokens of a prompt; None if it does not within a short time."""
    import aiohttp

    headers = {"Authorization": f"Bearer {running.key}"}
    with suppress(aiohttp.ClientError, OSError, ValueError, KeyError, TimeoutError):
        async with (
            asyncio.timeout(_SECONDS_TO_COUNT),
            aiohttp.ClientSession(running.address, headers=headers) as session,
        ):
            asked = {"messages": [json.loads(message) for message in messages], **fields}
            async with session.post("/apply-template", json=asked) as response:
                prompt: str = (await response.json())["prompt"]
            asked = {"content": prompt, "add_special": True, "parse_special": True}
            async with session.post("/tokenize", json=asked) as response:
                return len((await response.json())["tokens"])
    return None


async def _end_process(process: Process, *, gently: bool) -> None:
    """End a child: by closing what it listens to, or at once."""
    if process.stdin is not None:
        process.stdin.close()
    if process.returncode is None and gently:
        with suppress(TimeoutError):
            async with asyncio.timeout(_SECONDS_TO_END):
                await process.wait()
    if process.returncode is None:
        with suppress(ProcessLookupError):
            process.kill()
    await process.wait()
