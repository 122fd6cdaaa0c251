"""What tests of rules play with: tools that note that they ran, an agent that has rules."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

from asterism import Asterism, Tool, ToolError, tool
from asterism.ports import ModelRequest
from asterism.store.postgres import open_postgres
from asterism.testing.postgres import postgres_server
from asterism.testing.scripted import Line, ScriptedModel
from asterism.types.agents import Rule
from asterism.types.permissions import ToolEffect
from asterism.types.turns import Reply
from tests.scenes import calls, heard, open_home

RUN: list[str] = []


def named(
    name: str, *, fails: bool = False, ask: bool = False, needs: bool = False, says: str = ""
) -> Tool:
    """A tool that notes that it ran."""

    async def act(text: str = "") -> str:
        """Do something."""
        RUN.append(name)
        if fails:
            raise ToolError("The drawer is stuck.")
        return says or f"{name} did {text}".strip()

    async def act_on(text: str) -> str:
        """Do something with a text."""
        return await act(text)

    function = act_on if needs else act
    return tool(name=name, repeatable=True, trust=None, ask=ask, effects=ToolEffect("read"))(
        function
    )


@tool(repeatable=True, trust=None, effects=ToolEffect("read"))
async def drawer(operation: Literal["open", "close", "burn"], text: str = "") -> str:
    """Use a drawer."""
    RUN.append(f"drawer {operation}")
    return f"{operation} {text}"


@tool(trust=None)
async def ring(times: int = 1) -> str:
    """Ring the bell of the neighbours."""
    RUN.append("ring")
    return f"rang {times} times"


TOOLS = [named("look"), named("note"), named("send"), named("save"), drawer, ring]


@asynccontextmanager
async def scene(
    place: Path, lines: Sequence[Line], *rules: Rule | dict[str, Any], **given: Any
) -> AsyncGenerator[tuple[Asterism, ScriptedModel], None]:
    """A home with an agent that has rules and says these lines."""
    model = ScriptedModel(lines)
    engine: str = given.pop("engine", "sqlite")
    tools = given.pop("tools", TOOLS)
    async with asyncio.timeout(120):
        if engine == "postgres":
            with postgres_server().database() as url:
                given["database"] = await open_postgres(url)
                async with open_home(place, model, tools=tools, **given) as home:
                    await meet(home, tools, rules)
                    yield home, model
            return
        async with open_home(place, model, tools=tools, **given) as home:
            await meet(home, tools, rules)
            yield home, model


async def meet(home: Asterism, tools: Sequence[Tool], rules: Sequence[Any]) -> None:
    """Make the agent, if it is not there yet."""
    if not await home.agents.list():
        await home.agents.create("aria", tools=[one.name for one in tools])
        await home.rules.set("aria", rules)


def call(*names: str, arguments: str = "{}") -> Reply:
    """A reply that calls tools."""
    return calls(*((name, arguments) for name in names))


def results(request: ModelRequest) -> list[str]:
    """The results that a model was told of its latest calls."""
    told = heard(request)
    last = max(i for i, one in enumerate(told) if one["role"] == "assistant")
    return [one["content"] for one in told[last:] if one["role"] == "tool"]


def reminders(request: ModelRequest) -> list[str]:
    """What the system has said."""
    return [
        one["content"]
        for one in heard(request)
        if one["role"] == "user" and str(one["content"]).startswith("[asterism]")
    ]
