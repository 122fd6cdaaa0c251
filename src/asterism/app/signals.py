"""The signals of one turn, from handing a message in to its end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from typing import Any

from asterism.turns.watch import Hub
from asterism.types.turns import Outcome, Receipt, Signal, TurnState


async def signals_of_turn(
    hub: Hub,
    wait: Callable[[Receipt], Coroutine[Any, Any, Outcome]],
    agent_id: str,
    hand_in: Callable[[], Awaitable[Receipt]],
) -> AsyncGenerator[Signal, None]:
    """Hand something in and yield the signals of its turn, `ended` or `parked` the last."""
    hub.keep(agent_id)
    signals = hub.watch(agent_id)
    first = asyncio.ensure_future(anext(signals))
    await asyncio.sleep(0)  # the watch has begun before anything is handed in
    ended: asyncio.Future[Outcome] | None = None
    try:
        receipt = await hand_in()
        ended = asyncio.ensure_future(wait(receipt))
        while True:
            await asyncio.wait({first, ended}, return_when=asyncio.FIRST_COMPLETED)
            if first.done():
                signal = first.result()
                if signal.turn_id == receipt.turn_id:
                    if signal.kind not in ("ended", "parked"):
                        yield signal
                    else:
                        break
                first = asyncio.ensure_future(anext(signals))
            elif ended.done():
                break
        outcome = await ended
        yield last_signal(outcome)
    finally:
        first.cancel()
        if ended is not None:
            ended.cancel()
        await asyncio.gather(first, *([ended] if ended else []), return_exceptions=True)
        await signals.aclose()


def last_signal(outcome: Outcome) -> Signal:
    """Return the signal that tells how a turn ended, or that it waits."""
    kind = "parked" if outcome.state is TurnState.PARKED else "ended"
    data = {"state": outcome.state.value, "text": outcome.text}
    return Signal("", outcome.agent_id, outcome.turn_id, kind, data)
