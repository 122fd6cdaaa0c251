"""The pace at which a vendor is asked: so many requests and tokens a minute, shared out fairly."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict, deque
from collections.abc import Callable

from asterism.ports import Sleep


class _Bucket:
    """Fills evenly up to a minute's worth; what is taken may put it into debt."""

    __slots__ = ("_capacity", "_clock", "_filled_at", "_level")

    def __init__(self, per_minute: float, clock: Callable[[], float]) -> None:
        self._capacity = per_minute
        self._level = per_minute
        self._clock = clock
        self._filled_at = clock()

    def seconds_until(self, amount: float) -> float:
        """Return how long it takes until so much is there; more than it holds is never asked."""
        now = self._clock()
        self._level = min(
            self._capacity, self._level + (now - self._filled_at) * self._capacity / 60
        )
        self._filled_at = now
        lacking = min(amount, self._capacity) - self._level
        return max(0.0, lacking * 60 / self._capacity)

    def take(self, amount: float) -> None:
        """Take out, or with a negative amount put back."""
        self._level = min(self._capacity, self._level - amount)


class RateLimiter:
    """Lets requests through one after the other; agents that wait take turns."""

    def __init__(
        self,
        requests: float | None,
        tokens: float | None,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self._requests = _Bucket(requests, clock) if requests else None
        self._tokens = _Bucket(tokens, clock) if tokens else None
        self._sleep = sleep
        self._waiting: OrderedDict[str, deque[tuple[int, asyncio.Future[None]]]] = OrderedDict()
        self._dispatcher: asyncio.Task[None] | None = None

    @property
    def is_unlimited(self) -> bool:
        """Whether nobody ever has to wait."""
        return self._requests is None and self._tokens is None

    async def acquire(self, agent_id: str, tokens: int) -> None:
        """Return when a request of about so many tokens may be made."""
        if self.is_unlimited:
            return
        if not self._waiting and self._seconds_until(tokens) == 0:
            self._take(tokens)
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(agent_id, deque()).append((tokens, turn))
        if self._dispatcher is None or self._dispatcher.done():
            self._dispatcher = asyncio.create_task(self._dispatch())
        await turn

    def adjust(self, tokens: int) -> None:
        """Take what a request has used beyond what was thought; less than thought is given back."""
        if self._tokens is not None:
            self._tokens.take(tokens)

    def close(self) -> None:
        """Let nobody in any more."""
        if self._dispatcher is not None:
            self._dispatcher.cancel()
        for queue in self._waiting.values():
            for _, turn in queue:
                turn.cancel()
        self._waiting.clear()

    async def _dispatch(self) -> None:
        while self._waiting:
            agent_id, queue = next(iter(self._waiting.items()))
            tokens, turn = queue[0]
            if not turn.cancelled():
                wait = self._seconds_until(tokens)
                if wait:
                    await self._sleep(wait)
                    continue
                self._take(tokens)
                turn.set_result(None)
            queue.popleft()
            # The next agent's turn, though this one may have more to ask.
            self._waiting.move_to_end(agent_id)
            if not queue:
                del self._waiting[agent_id]

    def _seconds_until(self, tokens: int) -> float:
        wait = self._requests.seconds_until(1) if self._requests is not None else 0.0
        if self._tokens is not None:
            wait = max(wait, self._tokens.seconds_until(tokens))
        return wait

    def _take(self, tokens: int) -> None:
        if self._requests is not None:
            self._requests.take(1)
        if self._tokens is not None:
            self._tokens.take(tokens)
