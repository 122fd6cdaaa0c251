"""`asterism halt` and `asterism resume`: all agents stop, and go on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from asterism.cli.commands import argument
from asterism.cli.output import Result
from asterism.times import local_text

if TYPE_CHECKING:
    from asterism.app import Asterism


async def halt(
    home: Asterism,
    reason: Annotated[str, argument("REASON", "Why; it is shown until they go on.")],
) -> Result:
    """Stop all agents until "asterism resume"; what comes in meanwhile waits."""
    halted = await home.halts.halt(reason)
    return Result(halted, 'Everything is halted. "asterism resume" lets the agents go on.')


async def resume(home: Asterism) -> Result:
    """Let all agents go on after a halt."""
    halted = await home.halts.resume()
    return Result(
        halted, f"The agents go on. They were halted {local_text(halted.at)}: {halted.reason}"
    )
