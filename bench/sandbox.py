"""What it costs to start a program in the sandbox: `python -m bench.sandbox`."""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from pathlib import Path

from asterism.errors import SandboxError
from asterism.tools.sandbox import Sandbox, SandboxKind, SandboxView, find_sandbox

_ROUNDS = 30


async def _bare() -> None:
    process = await asyncio.create_subprocess_exec("/bin/true", stdout=asyncio.subprocess.PIPE)
    await process.communicate()


async def _measure() -> None:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        view = SandboxView(Path(folder) / "workspace")
        boxes: dict[str, Sandbox] = {}
        for kind in SandboxKind:
            try:
                boxes[kind.value] = await find_sandbox([kind])
            except SandboxError as error:
                print(f"{kind.value:12} {error.message}")
        taken: dict[str, list[float]] = {name: [] for name in ("bare", *boxes)}
        for _ in range(_ROUNDS):
            # Systems take turns, so that a busy machine hits all of them.
            for name, times in taken.items():
                began = time.perf_counter()
                if name == "bare":
                    await _bare()
                else:
                    await boxes[name].run(("/bin/true",), view)
                times.append(time.perf_counter() - began)
    floor = statistics.median(taken["bare"])
    for name, times in taken.items():
        middle = statistics.median(times)
        print(
            f"{name:12} {middle * 1000:7.1f} ms median {min(times) * 1000:7.1f} ms best "
            f"{middle / floor:6.1f} x bare"
        )


if __name__ == "__main__":
    asyncio.run(_measure())
