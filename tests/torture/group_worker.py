"""A process that answers for groups until somebody kills it, and says when it is done."""

import asyncio
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from asterism import Asterism
from asterism.ports import ModelRequest
from asterism.testing.scripted import ScriptedModel
from asterism.types.turns import Call, Reply, text_of
from tests.scenes import open_home

MESSAGES = 3
NAMES = ("ada", "ben", "cy")
_NAME = re.compile(r"You are (\w+),")
OPTIONS: dict[str, dict[str, Any]] = {
    "round_robin": {"speakers": 2},
    "pipeline": {"stages": ["ada", {"agents": ["ben", "cy"]}, "ada"]},
    "supervisor": {"leader": "ada"},
    "dynamic": {"selector": "random", "count": 2, "max_turns": 2},
    "voting": {},
    "sleeptime": {"agent": "ben"},
}


@dataclass(frozen=True, slots=True)
class GroupLife:
    """What one process does."""

    place: Path
    pattern: str
    settings: dict[str, Any]


def say(request: ModelRequest) -> Reply | str:
    """Answer as the member that is asked; the same to the same question."""
    found = _NAME.search(text_of(request.messages[0]))
    assert found is not None
    name, said = found[1], text_of(request.messages[-1])
    if request.schema is not None:
        choice = "reject" if name == "cy" else "approve"
        return orjson.dumps({"choice": choice, "reason": name}).decode()
    if "You lead this group" in said:
        tasks = [{"to": "ben", "task": "one"}, {"to": "cy", "task": "two"}]
        return Reply(
            calls=tuple(
                Call(f"call_{place}", "delegate", orjson.dumps(task).decode())
                for place, task in enumerate(tasks)
            )
        )
    if "has come back" in said:
        return f"{name} sums up"
    return f"{name} answers"


def model() -> ScriptedModel:
    """A model that takes a moment, so that there is something to interrupt."""
    return ScriptedModel.from_rule(say, delay=0.002)


async def prepare(life: GroupLife) -> None:
    """Make the agents and the group."""
    async with open_home(life.place, model(), settings=life.settings) as home:
        for name in NAMES:
            await home.agents.ensure(name)
        group = await home.groups.ensure(
            "team", pattern=life.pattern, options=OPTIONS[life.pattern]
        )
        for name in NAMES:
            role = "supervisor" if name == "ada" else "regular"
            await group.add_member(name, role=role)


async def work(home: Asterism) -> list[str]:
    """Hand in all messages, which does nothing to those that were handed in, and wait."""
    group = await home.groups.get("team")
    receipts = [
        await group.send(f"message {number}", channel="mail", external_id=str(number))
        for number in range(MESSAGES)
    ]
    async with asyncio.timeout(60):
        return [(await home.turns.wait(receipt)).text for receipt in receipts]


def live(life: GroupLife) -> None:
    """Work until all is answered, or until killed."""

    async def run() -> None:
        async with open_home(life.place, model(), settings=life.settings) as home:
            (life.place / "begun").touch()
            await work(home)

    asyncio.run(run())
