"""asterism for a harness that measures several systems beside each other.

The harness offers a module `common` with the base class `Adapter`, the system prompt, the model's
name and the tool whose runs it counts; `bench.harness` is the one of `python -m bench`. The rest is
what a stranger would write: the public names of asterism, with persistence as it is by default.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from asterism import Agent, Asterism, Receipt, TurnState, tool
from asterism.gate import ToolEffect

if TYPE_CHECKING:
    from bench.harness import MODEL, SYSTEM, Adapter, tool_impl
else:
    from common import MODEL, SYSTEM, Adapter, tool_impl


@tool(effects=ToolEffect("remember"))
async def record_event(note: str) -> str:
    """Record an event."""
    return tool_impl(note)


class A(Adapter):
    """One open `Asterism`; a conversation is an agent."""

    name = "asterism"
    persists = True

    _exit: AsyncExitStack
    _home: Asterism

    async def open(self) -> None:
        """Open the data directory; a turn that a crash interrupted goes on by itself."""
        settings = {
            "model": f"mock:{MODEL}",
            "models": {"mock": {"api": "openai", "base_url": self.env.base_url, "key": "mock"}},
            # Like the systems beside it, send the model the whole conversation.
            "context": {"tokens": 1_000_000},
        }
        self._exit = AsyncExitStack()
        self._home = await self._exit.enter_async_context(
            Asterism.open(self.env.p("asterism"), settings=settings, tools=[record_event])
        )

    async def agent(self, key: str, tool: bool = False) -> Agent:
        """Return the agent of that name, created if there is none."""
        tools = ["record_event"] if tool else []
        return await self._home.agents.ensure(key, system=SYSTEM, tools=tools)

    async def turn(self, h: Agent, text: str) -> str:
        """Ask, and return the answer, which is durable by then."""
        outcome = await self._home.agents.ask(h, text)
        if outcome.state is not TurnState.DONE:
            raise RuntimeError(outcome.text)
        return outcome.text

    async def seed(self, h: Agent, pairs: Sequence[tuple[str, str]]) -> None:
        """Put questions and their answers in the agent's past."""
        said = [one for ask, answer in pairs for one in (("user", ask), ("assistant", answer))]
        await self._home.agents.import_messages(h, said)

    async def inspect(self, key: str) -> list[str]:
        """Return the kinds of the journal's entries, in order."""
        kinds: list[str] = []
        for record in reversed(await self._home.turns.list(key, limit=1000)):
            _, entries = await self._home.turns.get(record.id)
            kinds += [entry.kind.value for entry in entries]
        return kinds

    async def resume(self, key: str) -> str:
        """Wait for the answer of the turn that was interrupted."""
        latest = (await self._home.turns.list(key, limit=1))[0]
        # As for a message that is handed in again: the answer may be there already.
        receipt = Receipt("", latest.id, latest.agent_id, duplicate=True)
        return (await self._home.turns.wait(receipt)).text

    async def close(self) -> None:
        """Let go of everything."""
        await self._exit.aclose()


def make(variant: str) -> type[A]:
    """Return the adapter; there are no variants to choose from."""
    raise ValueError(f"There is no variant {variant!r} of this adapter; leave the name out.")
