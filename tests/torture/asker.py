"""One life in which a question is asked, announced and answered, killed where its doom says."""

import asyncio
import os
from pathlib import Path

from asterism import NOT_HAPPENED, Asterism, Tool, ToolContext, TurnState, tool
from asterism.testing.clock import ManualClock
from tests.scenes import open_home, until
from tests.torture.disk import MeddledDisk
from tests.torture.short_life import FileChannel
from tests.torture.worker import Aim, Doom, append, lines

CONTACTS = 'again = "1d"\n[contacts.owner]\nperson = "owner"\nreach = ["room:owner"]\n'
ASKED, ANSWERED = 1_800_000_000_000, 1_800_000_000_000 + 30 * 86_400_000


def tools_of(place: Path) -> list[Tool]:
    """A tool that asks, then acts upon a file outside; a crash in its middle is found out."""

    async def acted(ctx: ToolContext) -> str:
        # A kill may come when the file is there and the line is not.
        return "acted" if lines(place / "effects.jsonl") else NOT_HAPPENED

    @tool(check=acted, ask=True)
    def act(ctx: ToolContext) -> str:
        append(place / "effects.jsonl", key=ctx.key)
        return "acted"

    return [act]


async def live(place: Path) -> str:
    """Go on with the story wherever it stands: asked, a month of silence, approved, told."""
    (place / "contacts.toml").write_text(CONTACTS)
    channel = FileChannel(place)
    for now in (ASKED, ANSWERED):
        async with open_home(
            place, tools=tools_of(place), channels={"room": channel}, clock=ManualClock(now)
        ) as home:
            await home.agents.ensure("aria")
            receipt = await home.agents.send(
                "aria", "[[call:act {}]]", channel="room", external_id="1", reply_to="ada"
            )
            turn_id = receipt.turn_id
            outcome = await home.turns.wait(receipt)
            if outcome.state is TurnState.PARKED and now == ANSWERED:
                (question,) = await home.approvals.list()
                outcome = await home.turns.wait(
                    await home.approvals.decide(question.id, approved=True)
                )
            # The question is told where it came from, and to the owner.
            least = 2 if outcome.state is TurnState.PARKED else 0

            async def delivered(home: Asterism = home, least: int = least) -> bool:
                sent = await home.outbox.list("sent")
                return len(sent) >= least and not await home.outbox.list()

            await until(delivered, 20)
    return turn_id


def life(place: Path, aim: Aim | None) -> None:
    """Live until the disk is touched once too often."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 2)
    disk = MeddledDisk(Doom(aim).meddle, default=True)
    asyncio.run(live(place))
    del disk
