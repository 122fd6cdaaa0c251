"""Attacks and honest work over several turns: memory, schedules, other agents, rooms.

The scenarios were written by somebody who had seen neither rules nor code. A scripted agent makes
the calls of each turn, one after the other; the last call of the last turn is the one that counts.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from asterism import Asterism
from asterism.ports import Emit, ModelRequest
from asterism.testing.clock import ManualClock
from asterism.tools.tool import Tool, ToolContext, read_object
from asterism.types.agents import Trust
from asterism.types.permissions import ApprovalRecord, Declared
from asterism.types.turns import Call, Outcome, Reply, RetrySafety
from tests.intent_pairs import DATA, TOOLS
from tests.scenes import open_home, until

pytestmark = pytest.mark.promise("X6", "M9", "M10")
TIERS = {"browse": Trust.WEB, "web_search": Trust.WEB, "read_file": Trust.DOCUMENT}


def scenarios(half: str) -> list[dict[str, Any]]:
    text = (DATA / f"intent_turns_{half}.jsonl").read_text(encoding="utf-8")
    # There is a built-in tool of this name.
    return [json.loads(line.replace('["shell"', '["command"')) for line in text.splitlines()]


class Anything(Tool):
    """A tool of the scenarios: takes any arguments, gives the next result, notes that it ran."""

    def __init__(self, name: str, effects: Declared | None, world: World) -> None:
        super().__init__(
            _nothing,
            name=name,
            retry_safety=RetrySafety.REPEATABLE,
            check=None,
            ask=False,
            timeout=None,
            trust=TIERS.get(name, Trust.TOOL),
            effects=effects,
        )
        self.world = world

    def read(self, arguments: str) -> dict[str, Any]:
        return read_object(self.name, arguments)

    async def run(self, context: ToolContext, arguments: dict[str, Any]) -> str:
        self.world.ran.append((self.name, arguments))
        result = self.world.results.pop((self.name, json.dumps(arguments, sort_keys=True)), "done")
        return result if isinstance(result, str) else json.dumps(result, ensure_ascii=False)


def _nothing() -> None:
    """Stand in for the function of a tool."""


class World:
    """The model, and what tools bring back."""

    def __init__(self) -> None:
        self.ran: list[tuple[str, Mapping[str, Any]]] = []
        self.results: dict[tuple[str, str], Any] = {}
        self.coming: dict[str, list[dict[str, Any]]] = {}
        self.begun: dict[str, dict[str, Any]] = {}

    def tools(self) -> list[Tool]:
        return [
            Anything("command" if name == "shell" else name, effects, self)
            for name, effects in TOOLS.items()
        ]

    def expect(self, scene: dict[str, Any], agents: Mapping[str, str]) -> None:
        """Know the turns that come, by agent: one may begin before the former is looked at."""
        for turn in scene["turns"]:
            self.coming.setdefault(agents[turn["agent"]], []).append(turn)
            for name, arguments, *result in turn["calls"]:
                if result:
                    self.results[name, json.dumps(arguments, sort_keys=True)] = result[0]

    async def complete(self, request: ModelRequest, emit: Emit | None = None) -> Reply:
        """Make the next call of the turn, or read what is asked for as a good model would."""
        del emit
        turn_id, step, *_ = request.key.split("/")
        if turn_id not in self.begun:
            self.begun[turn_id] = self.coming[request.agent_id].pop(0)
        turn = self.begun[turn_id]
        if step == "intent":
            return Reply(json.dumps({"effects": turn["intent"]}))
        if int(step) >= len(turn["calls"]):
            return Reply("Done.")
        name, arguments, *_ = turn["calls"][int(step)]
        return Reply(calls=(Call(f"call_{step}", name, json.dumps(arguments)),))

    def is_last(self, scene: dict[str, Any], approval: ApprovalRecord) -> bool:
        """Whether a question is about the call that counts."""
        turn = scene["turns"][-1]
        last = len(turn["calls"]) - 1
        return self.begun[approval.turn_id] is turn and approval.key == f"{last}/call/0"

    async def close(self) -> None:
        """There is nothing to let go of."""


async def play(place: Path, scene: dict[str, Any]) -> tuple[World, bool]:
    """Play a scenario; return the world, and whether a person was asked about the last call."""
    world, clock = World(), ManualClock()
    async with open_home(place, world, tools=world.tools(), clock=clock) as home:
        agents: dict[str, str] = {}
        for name in ("aria", "bob"):
            agents[name] = (await home.agents.create(name)).id
            await home.blocks.create(name, "human", audience="owner")
        for name, trust in scene["people"].items():
            await home.people.create(name, trust=Trust(trust))
            await home.people.link(name, f"chat:{name}")
        world.expect(scene, agents)
        asked = 0
        for number, turn in enumerate(scene["turns"], start=1):
            if turn.get("follows") == "schedule":
                clock.forward(seconds=3600)
                await home.database.write(lambda tx: tx.notify("schedule", ""))
            elif "follows" not in turn:
                await ask(home, turn)
            asked += await settle(home, world, scene, number)
        last = [one for one in await home.approvals.list() if world.is_last(scene, one)]
    return world, bool(last) if scene["expect"] == "asked" else asked > 0 or bool(last)


async def settle(home: Asterism, world: World, scene: dict[str, Any], number: int) -> int:
    """Wait for so many turns, and say yes to all that is asked on the way to the last call.

    An owner who approves a note approves no payment. Return how much was asked.
    """
    asked = 0
    while True:
        begun = len(world.begun)
        await until(lambda: _rests(home))
        waiting = [one for one in await home.approvals.list() if not world.is_last(scene, one)]
        for one in waiting:
            asked += 1
            async with asyncio.timeout(120):
                await home.turns.wait(await home.approvals.decide(one.id, approved=True))
        # A turn that began while the others were waited for has not been waited for.
        if not waiting and begun >= number:
            return asked
        await asyncio.sleep(0)


async def _rests(home: Asterism) -> bool:
    return not await home.turns.unfinished()


async def ask(home: Asterism, turn: dict[str, Any]) -> Outcome:
    given: dict[str, Any] = {}
    if turn["speaker"] != "owner" or turn.get("room") or turn.get("present"):
        given["channel"] = "chat"
    if turn["speaker"] != "owner":
        given["sender"] = turn["speaker"]
    if turn.get("room"):
        given["room"] = turn["room"]
    if turn.get("present"):
        given["present"] = turn["present"]
    async with asyncio.timeout(120):
        return await home.agents.ask(turn["agent"], turn["say"], **given)


ATTACKS = [
    pytest.param(scene, id=f"{half}-{scene['id']}")
    for half in ("tuned", "held_out")
    for scene in scenarios(half)
    if scene["expect"] == "asked"
]


@pytest.mark.parametrize("scene", ATTACKS)
async def test_no_attack_over_several_turns_is_silent(tmp_path: Path, scene: dict[str, Any]):
    _, asked = await play(tmp_path, scene)
    assert asked


@pytest.mark.parametrize("half", ["tuned", "held_out"])
async def test_little_honest_work_over_several_turns_is_asked_about(tmp_path: Path, half: str):
    honest = [scene for scene in scenarios(half) if scene["expect"] == "silent"]
    bothered: list[str] = []
    for number, scene in enumerate(honest):
        _, asked = await play(tmp_path / str(number), scene)
        if asked:
            bothered.append(scene["id"])
    assert len(bothered) <= len(honest) / 10, bothered
