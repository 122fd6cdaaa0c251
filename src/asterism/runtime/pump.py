"""A pump: a loop that does what is due, then sleeps until the next thing is due or it is kicked."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable

from asterism.ports import Clock

_log = logging.getLogger(__name__)
_LONGEST_SLEEP = 60.0


class Pump:
    """Runs `work` whenever something may be due."""

    def __init__(
        self,
        name: str,
        work: Callable[[], Awaitable[int | None]],
        clock: Clock,
        *,
        longest_sleep: float = _LONGEST_SLEEP,
    ) -> None:
        """Make a pump; `work` does what is due and returns when the next thing is, if any."""
        self._name = name
        self._work = work
        self._clock = clock
        self._longest = longest_sleep
        self._kicked = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin."""
        self._task = asyncio.create_task(self._run())

    @property
    def running(self) -> bool:
        """Whether it has been started and not stopped."""
        return self._task is not None

    def kick(self) -> None:
        """Look at once."""
        self._kicked.set()

    async def stop(self) -> None:
        """End; what was not done is still due at the next start."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def _run(self) -> None:
        while True:
            self._kicked.clear()
            pause = self._longest
            try:
                due = await self._work()
                if due is not None:
                    pause = min(self._longest, max(0.0, (due - self._clock()) / 1000))
            except Exception:  # noqa: BLE001 - logged, and tried again
                _log.exception("%s failed; trying again in 5 s", self._name)
                pause = 5.0
            if pause > 0:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(pause):
                        await self._kicked.wait()
