"""Talk to an agent from Python. Needs no key: without one, the built-in demo model answers."""

from __future__ import annotations

import asyncio
import tempfile

from asterism import Asterism


async def main() -> None:
    """Ask, watch an answer stream in, and find both again after a restart."""
    with tempfile.TemporaryDirectory() as data:
        async with Asterism.open(data) as home:
            aria = await home.agents.create("aria")
            outcome = await home.agents.ask(aria, "Hello, who are you?")
            print(outcome.text)
            async for signal in home.agents.stream(aria, "Say it again, slowly."):
                if signal.kind == "text":
                    print(signal.text, end="", flush=True)
            print()

        # Another process, another day: everything is still there.
        async with Asterism.open(data) as home:
            turns = await home.turns.list("aria")
            print(f"aria has answered {len(turns)} messages.")


if __name__ == "__main__":
    asyncio.run(main())
