"""`asterism halt` and `asterism resume`: stop all agents, and let them continue."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated

from asterism.cli.commands import argument
from asterism.cli.output import Result
from asterism.errors import Conflict
from asterism.times import local_text

if TYPE_CHECKING:
    from asterism.app import Asterism
    from asterism.types.agents import Halt
    from asterism.types.turns import Outcome, Receipt

RESUME = '"asterism resume" lets them continue.'
_LOOK_EVERY = 0.5
"""Seconds between two looks whether what a command waits for is halted."""


async def halt(
    home: Asterism,
    reason: Annotated[
        str, argument("REASON", "The reason; it is shown until they resume. It may be left out.")
    ] = "",
) -> Result:
    """Stop all agents until "asterism resume"; new messages wait."""
    halted = await home.halts.halt(reason)
    return Result(halted, f"All agents are halted. {RESUME}")


async def resume(home: Asterism) -> Result:
    """Let all agents continue after a halt."""
    halted = await home.halts.resume()
    return Result(halted, f"The agents continue. They were halted {halt_since(halted)}.")


def halt_text(halted: Halt) -> str:
    """Return in one sentence that everything is halted, since when and why."""
    return f"All agents are halted since {halt_since(halted)}."


def halt_since(halted: Halt) -> str:
    """Return since when everything is halted, and why, without a full stop."""
    reason = halted.reason.rstrip(".")
    return f"{local_text(halted.at_ms)}{f': {reason}' if reason else ''}"


async def halt_notes(home: Asterism) -> list[str]:
    """Return what to say beside a list of what agents do or wait for; nothing without a halt."""
    halted = await home.halts.current()
    return [f"{halt_text(halted)} {RESUME}"] if halted is not None else []


async def wait_unless_halted(home: Asterism, receipt: Receipt) -> Outcome:
    """Return how a turn ends; raise `Conflict` if it cannot, since all agents are halted."""
    waiting = asyncio.ensure_future(home.turns.wait(receipt))
    try:
        while True:
            done, _ = await asyncio.wait([waiting], timeout=_LOOK_EVERY)
            if done:
                return waiting.result()
            halted = await home.halts.current()
            # The turn that halted the others comes to its end.
            if halted is not None and halted.turn_id != receipt.turn_id and not waiting.done():
                raise Conflict(
                    f"{halt_text(halted)} The message is kept and waits: {RESUME} "
                    f'"asterism turn show {receipt.turn_id}" shows its answer then.'
                )
    finally:
        waiting.cancel()
