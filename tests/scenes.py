"""What tests of the engine play with: a home, a model that obeys, a wait that ends."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import orjson

from asterism import Asterism
from asterism.ports import Model, ModelRequest
from asterism.testing.scripted import ScriptedModel
from asterism.types.turns import Call, Reply, without_times
from tests.servers.openai_server import answer_by_directives

PATIENCE = 120.0


def open_home(
    place: Path, model: Model | None = None, **given: Any
) -> AbstractAsyncContextManager[Asterism]:
    """Open a home whose agents think with `model`, by default one that obeys directives."""
    settings = {"model": "scripted:one", **given.pop("settings", {})}
    given = {"environ": {}, "grace": 1.0, **given}
    return Asterism.open(
        place, models={"scripted": model or obedient()}, settings=settings, **given
    )


def obedient(*, delay: float = 0.0) -> ScriptedModel:
    """A model that makes the calls its last message asks for, `[[call:NAME {json}]]`."""
    return ScriptedModel.from_rule(_obey, delay=delay)


def _obey(request: ModelRequest) -> Reply:
    return answer_by_directives({"messages": [orjson.loads(wire) for wire in request.messages]})


def calls(*wanted: tuple[str, str]) -> Reply:
    """A reply that calls tools, each given by its name and its arguments as JSON."""
    return Reply(
        calls=tuple(
            Call(f"call_{index}", name, arguments) for index, (name, arguments) in enumerate(wanted)
        )
    )


def heard(request: ModelRequest) -> list[dict[str, Any]]:
    """What a request tells the model, message by message, without the times in front of them."""
    return [orjson.loads(without_times(wire)) for wire in request.messages]


async def until(
    true: Callable[[], bool] | Callable[[], Awaitable[bool]], patience: float = PATIENCE
) -> None:
    """Return once a condition holds; raise `TimeoutError` if it does not in time."""
    async with asyncio.timeout(patience):
        while True:
            holds = true()
            if isinstance(holds, Awaitable):
                holds = await holds
            if holds:
                return
            await asyncio.sleep(0.002)
