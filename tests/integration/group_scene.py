"""A home with some agents on both engines, and a model that plays each of them."""

import asyncio
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from itertools import repeat
from pathlib import Path
from typing import Any

import orjson

from asterism import Asterism
from asterism.ports import Emit, ModelRequest
from asterism.testing.postgres import postgres_server
from asterism.testing.scripted import ScriptedModel
from asterism.types.turns import Reply, text_of
from tests.scenes import open_home

_Held = dict[str, tuple[asyncio.Event, asyncio.Event]]
"""By name of an agent: what is set when its model is asked, and what lets the model answer."""
Line = str | Reply | Callable[[str], str | Reply]
_NAME = re.compile(r"You are (\w+),")


def _name_in(request: ModelRequest) -> str:
    found = _NAME.search(text_of(request.messages[0]))
    assert found is not None
    return found[1]


class _CastModel(ScriptedModel):
    held: _Held

    async def complete(self, request: ModelRequest, emit: Emit | None = None) -> Reply:
        if (hold := self.held.get(_name_in(request))) is not None:
            asked, released = hold
            asked.set()
            await released.wait()
        return await super().complete(request, emit)


class Cast:
    """A model that plays several agents: by name, what each says to a message."""

    def __init__(self, lines: Mapping[str, Line] | None = None) -> None:
        self.lines: dict[str, Line] = dict(lines or {})
        self.heard: list[tuple[str, str]] = []
        """Who was asked, and the latest message, in order."""
        self.held: _Held = {}
        self.model = _CastModel(repeat(self._say))
        self.model.held = self.held

    def hold(self, name: str) -> asyncio.Event:
        """Let the model say nothing as an agent until `release`; return what tells it is asked."""
        asked, _ = self.held[name] = asyncio.Event(), asyncio.Event()
        return asked

    def release(self, name: str) -> None:
        """Let the model speak as an agent again."""
        self.held.pop(name)[1].set()

    def _say(self, request: ModelRequest) -> Reply | str:
        name, said = _name_in(request), text_of(request.messages[-1])
        self.heard.append((name, said))
        line = self.lines.get(name, f"{name} answers")
        return line(said) if callable(line) else line

    def asked(self, name: str) -> list[str]:
        """Return what an agent was asked."""
        return [said for who, said in self.heard if who == name]


@contextmanager
def store(engine: str) -> Generator[dict[str, Any]]:
    """Yield the settings of a store that several homes can open, one after the other."""
    if engine == "sqlite":
        yield {}
        return
    with postgres_server().database() as url:
        yield {"store": {"url": url}}


@asynccontextmanager
async def cast_home(
    engine: str, place: Path, cast: Cast, *names: str, **options: Any
) -> AsyncGenerator[Asterism]:
    """Open a home with agents whose turns a cast plays."""
    with store(engine) as stored:
        settings = {**stored, **options.pop("settings", {})}
        async with open_home(place, cast.model, settings=settings, **options) as home:
            await _people(home, names)
            yield home


async def _people(home: Asterism, names: tuple[str, ...]) -> None:
    for name in names:
        await home.agents.ensure(name)


async def soon(work: Awaitable[Any], seconds: float = 20.0) -> Any:
    """Wait for something, not for ever."""
    async with asyncio.timeout(seconds):
        return await work


def ballot(choice: str, reason: str = "because") -> str:
    """A ballot as a model casts it."""
    return orjson.dumps({"choice": choice, "reason": reason}).decode()
