"""A tool that asks a person first. The turn waits, for as long as it takes, and then goes on."""

from __future__ import annotations

import asyncio
import tempfile

from asterism import Asterism, ToolContext, tool


@tool
async def pay(ctx: ToolContext, amount: int, to: str) -> str:
    """Pay somebody.

    Args:
        amount: In whole euros.
        to: Who gets it.
    """
    ctx.ask(f"May I pay {amount} euros to {to}?")
    return f"Paid {amount} euros to {to}."


async def main() -> None:
    """Ask for a payment, restart while it waits, approve it, and see it carried out."""
    with tempfile.TemporaryDirectory() as data:
        async with Asterism.open(data, tools=[pay]) as home:
            await home.agents.create("aria")
            parked = await home.agents.ask("aria", 'call pay {"amount": 5, "to": "Ada"}')
            print(parked.state.value, "-", parked.text)

        async with Asterism.open(data, tools=[pay]) as home:
            [question] = await home.approvals.list()
            receipt = await home.approvals.decide(question.id, approved=True, note="Go ahead.")
            outcome = await home.turns.wait(receipt)
            print(outcome.state.value, "-", outcome.text)
            _, entries = await home.turns.get(outcome.turn_id)
            print(next(entry.body.decode() for entry in entries if b"approved" in entry.body))


if __name__ == "__main__":
    asyncio.run(main())
