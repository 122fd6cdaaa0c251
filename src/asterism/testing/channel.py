"""A channel whose people are the test."""

from __future__ import annotations

import asyncio
from collections import deque

from asterism.ports import Accept, AnswerCallback
from asterism.types.turns import Delivery


class MemoryChannel:
    """Keeps what it is told to deliver, and fails as often as it is told to."""

    def __init__(self) -> None:
        self.tried: list[Delivery] = []
        self.delivered: list[Delivery] = []
        self._troubles: deque[Exception | None] = deque()
        self._accept: asyncio.Future[Accept] | None = None
        self._answer: AnswerCallback | None = None

    def trouble(self, *troubles: Exception | None) -> None:
        """Meet the next tries with these errors, in order; None lets one pass."""
        self._troubles.extend(troubles)

    async def deliver(self, delivery: Delivery) -> None:
        """Keep a delivery, or fail with the trouble that is next."""
        self.tried.append(delivery)
        trouble = self._troubles.popleft() if self._troubles else None
        if trouble is not None:
            raise trouble
        self.delivered.append(delivery)

    def take_answers(self, answer: AnswerCallback) -> None:
        """Keep how to hand in what somebody pressed."""
        self._answer = answer

    async def press(
        self, delivery: Delivery, *, approved: bool, sender: str, note: str | None = None
    ) -> str:
        """Press a button under a delivered question; return what is shown for it."""
        assert self._answer is not None, "the channel listens first"
        assert delivery.approval is not None, "it asks nothing"
        return await self._answer(
            delivery.approval,
            approved=approved,
            sender=sender,
            reply_to=delivery.target,
            note=note,
        )

    async def listen(self, accept: Accept) -> None:
        """Let the test hand messages in through `accepting`."""
        self._door().set_result(accept)
        await asyncio.Event().wait()

    async def accepting(self) -> Accept:
        """Return how to hand a message in, once the channel listens."""
        return await self._door()

    def _door(self) -> asyncio.Future[Accept]:
        if self._accept is None:
            self._accept = asyncio.get_running_loop().create_future()
        return self._accept

    async def close(self) -> None:
        """There is nothing to let go of."""
