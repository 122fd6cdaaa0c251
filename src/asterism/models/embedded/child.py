"""The process that holds an embedded model: llama.cpp's server on loopback, and nothing else.

Run as a file by `supervisor.py`, so that nothing of asterism is loaded here. Settings come as one
line of JSON on standard input, which then stays open: its end means that the parent is gone. One
line of JSON goes to standard output, with the address or with what went wrong.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import sys
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

MAX_LOG_BYTES = 1 << 20
"""Bytes; a log that has grown beyond is moved to `….old`."""

_PR_SET_PDEATHSIG = 1
_LOG_CHECK_SECONDS = 5.0

_SPINS = "1000"
"""Rounds that threads spin before they sleep while they wait for each other.

By default these are millions, which takes the cores from those who are waited for as soon as
anybody else computes, too: beside two busy processes on two cores, writing fell from 25 to between
1 and 5 tokens/s (135M, 2 threads, 2026-11).
"""


def main() -> int:
    """Serve until the parent goes."""
    settings: dict[str, Any] = json.loads(sys.stdin.buffer.readline())
    # Whatever native code prints belongs into the log; only this copy reaches the parent.
    answer = os.dup(1)
    os.dup2(2, 1)
    _die_with_parent(settings["parent"])
    _prefer_for_oom_kill()
    try:
        server = _serve(settings)
        report = {"address": server.listening_address}
    except ImportError as error:
        report = {"missing": str(error)}
    except Exception as error:  # noqa: BLE001 - native code raises what it likes; it is told whole
        report = {"error": f"{type(error).__name__}: {error}"}
    os.write(answer, json.dumps(report).encode() + b"\n")
    os.close(answer)
    if "address" in report:
        _wait_for_parent(settings.get("log"))
    return 0 if "address" in report else 1


def _serve(settings: dict[str, Any]) -> Any:
    # Read by the library of threads once, when native code is loaded.
    os.environ.setdefault("GOMP_SPINCOUNT", _SPINS)
    native: Any = import_module("xllamacpp")  # it has no stubs

    if not native.json_schema_to_grammar("{}").startswith("%llguidance"):
        raise RuntimeError("this build of xllamacpp has no llguidance, which calls need")
    params: Any = native.CommonParams()
    params.model.path = settings["path"]
    params.model_alias = {settings["name"]}
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.api_keys = [settings["key"]]
    params.n_ctx = settings["window"]
    params.n_parallel = settings["parallel"]
    params.kv_unified = True
    # A batch ends with a word of progress to the parent, which takes long silence for a hang.
    params.n_batch = params.n_ubatch = 256
    for cpu, threads in (
        (params.cpuparams, settings["threads"]),
        (params.cpuparams_batch, settings["batch_threads"]),
    ):
        cpu.n_threads = threads
        # Threads that spin while they wait take the core from those they wait for: on two busy
        # cores writing fell from 7.7 to 0.6 tokens/s (0.5B, 2 threads, 2026-11).
        cpu.poll = 0
    # Repacked copies of the weights: 600 MB more and 1 to 4 s later for 1.5B, and no faster.
    params.no_extra_bufts = True
    params.cache_ram_mib = settings["cache_mib"]
    params.warmup = False
    params.ui = False
    params.endpoint_slots = True
    params.sse_ping_interval = -1
    params.n_threads_http = 4
    params.verbosity = 2
    return native.Server(params)


def _wait_for_parent(log: str | None) -> None:
    """Return when standard input ends; keep the log short meanwhile."""
    while True:
        ready, _, _ = select.select([sys.stdin], [], [], _LOG_CHECK_SECONDS)
        if ready and not os.read(0, 4096):
            return
        if log:
            with suppress(OSError):
                _shorten(Path(log))


def _shorten(log: Path) -> None:
    if os.fstat(2).st_size > MAX_LOG_BYTES:
        old = log.with_suffix(".old")
        old.touch(mode=0o600)
        old.write_bytes(log.read_bytes()[-MAX_LOG_BYTES:])
        os.ftruncate(2, 0)


def _die_with_parent(parent: int) -> None:
    """Have the kernel end this process with its parent, where it can; see `_wait_for_parent`."""
    if sys.platform != "linux":
        return
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(0)


def _prefer_for_oom_kill() -> None:
    """Let the kernel, short of memory, take this process rather than the agents' home."""
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("500", encoding="ascii")


if __name__ == "__main__":
    code = main()
    # Native threads are not waited for: they may be in the middle of a long computation.
    os._exit(code)
