"""`asterism halt` and `asterism resume`: stop all agents, and let them continue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from asterism.cli.commands import argument
from asterism.cli.output import Result
from asterism.times import local_text

if TYPE_CHECKING:
    from asterism.app import Asterism


async def halt(
    home: Asterism,
    reason: Annotated[str, argument("REASON", "The reason; it is shown until they resume.")],
) -> Result:
    """Stop all agents until "asterism resume"; new messages wait."""
    halted = await home.halts.halt(reason)
    return Result(halted, 'All agents are halted. "asterism resume" lets them continue.')


async def resume(home: Asterism) -> Result:
    """Let all agents continue after a halt."""
    halted = await home.halts.resume()
    return Result(
        halted, f"The agents continue. They were halted {local_text(halted.at_ms)}: {halted.reason}"
    )
