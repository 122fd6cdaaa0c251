"""Give an agent tools, one for each answer to: what if the process dies in the middle?"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from asterism import NOT_HAPPENED, Asterism, ToolContext, ToolEffect, tool

SENT = Path(tempfile.mkdtemp()) / "sent.txt"


# It says what its calls do, and that its results are its own words and nobody else's.
@tool(repeatable=True, effects=ToolEffect("read"), trust=None)
def word_count(text: str) -> int:
    """Count the words of a text.

    Args:
        text: The text.
    """
    return len(text.split())


async def was_it_sent(ctx: ToolContext, to: str, text: str) -> str:
    """Look whether the letter with this key went out before a crash."""
    del text
    sent = SENT.read_text() if SENT.exists() else ""
    return f"Sent to {to}." if ctx.key in sent else NOT_HAPPENED


@tool(check=was_it_sent, effects=ToolEffect("send", recipients="to", content="text"), trust=None)
async def send_letter(ctx: ToolContext, to: str, text: str) -> str:
    """Send a letter.

    Args:
        to: Who gets it.
        text: What it says.
    """
    with SENT.open("a") as file:
        file.write(f"{ctx.key} {to}: {text}\n")
    return f"Sent to {to}."


@tool(effects=ToolEffect("write"), trust=None)
async def ring_bell(times: int) -> str:
    """Ring the bell. Nobody can tell afterwards whether it rang, so it is never repeated.

    Args:
        times: How often.
    """
    return "Ding! " * times


async def main() -> None:
    """Let the demo model call each of them; a real model decides by itself when to."""
    with tempfile.TemporaryDirectory() as data:
        async with Asterism.open(data, tools=[word_count, send_letter, ring_bell]) as home:
            await home.agents.create("aria")
            for said in (
                'call word_count {"text": "to be or not to be"}',
                'call send_letter {"to": "Ada", "text": "Hello!"}',
                'call ring_bell {"times": 2}',
            ):
                print((await home.agents.ask("aria", said)).text)


if __name__ == "__main__":
    asyncio.run(main())
