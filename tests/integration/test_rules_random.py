"""Models that call at random, against random rules: what is really run keeps every rule."""

import asyncio
from pathlib import Path
from random import Random

import pytest

from asterism import Tool, ToolError, TurnState, tool
from asterism.app.rules import contradiction
from asterism.ports import ModelRequest
from asterism.testing.scripted import ScriptedModel
from asterism.types.agents import Rule, RuleKind
from asterism.types.permissions import ToolEffect
from asterism.types.turns import Reply
from tests.scenes import calls, open_home
from tests.unit.test_rules_property import TOOLS, Scene, breaks, owed, reachable

_OTHERS = (
    RuleKind.PRECEDING,
    RuleKind.RIGHT_AFTER,
    RuleKind.NEXT,
    RuleKind.NOT_AFTER,
    RuleKind.FOLLOWED_BY,
    RuleKind.EXCLUSIVE,
)
_ALONE = (RuleKind.START, RuleKind.BEFORE_EXIT)


def rules_by(chance: Random) -> list[Rule]:
    """Some rules that can be kept together."""
    while True:
        rules: list[Rule] = []
        for _ in range(chance.randint(2, 5)):
            kind = chance.choice((*_OTHERS, *_ALONE, RuleKind.MAX_CALLS))
            name = chance.choice([*TOOLS, "x_*"])
            others = tuple(chance.sample([one for one in TOOLS if one != name], 2))
            count = chance.randint(1, 2) if kind is RuleKind.MAX_CALLS else 0
            rules.append(Rule(name, kind, others if kind in _OTHERS else (), count=count))
        if contradiction(rules, TOOLS) is None:
            return list(dict.fromkeys(rules))


def tools_by(chance: Random, run: list[tuple[str, str]]) -> list[Tool]:
    """The tools, which fail now and then, some of them alone and some together with others."""

    def made(name: str) -> Tool:
        async def act() -> str:
            """Do it."""
            outcome = "failed" if chance.random() < 0.15 else "ok"
            run.append((name, outcome))
            if outcome == "failed":
                raise ToolError("No.")
            return "Done."

        repeatable = name.startswith("x")
        return tool(name=name, repeatable=repeatable, trust=None, effects=ToolEffect("read"))(act)

    return [made(name) for name in TOOLS]


@pytest.mark.promise("S2")
@pytest.mark.parametrize("seed", range(24))
async def test_what_is_really_run_keeps_every_rule(tmp_path: Path, seed: int):
    chance, run = Random(seed), list[tuple[str, str]]()
    rules = rules_by(chance)

    def say(_: ModelRequest) -> Reply | str:
        if chance.random() < 0.3:
            return "That is all."
        wanted = chance.choices(TOOLS, k=chance.randint(1, 3))
        return calls(*((name, "{}") for name in wanted))

    model = ScriptedModel.from_rule(say)
    async with open_home(tmp_path, model, tools=tools_by(chance, run)) as home:
        await home.agents.create("aria", tools=TOOLS)
        await home.rules.set("aria", rules)
        for _ in range(3):
            run.clear()
            async with asyncio.timeout(120):
                outcome = await home.agents.ask("aria", "go")
            scene = Scene(rules)
            for name, how in run:
                assert not breaks(scene, name), (rules, run, name)
                scene.call(name, how)
            assert outcome.state in (TurnState.DONE, TurnState.FAILED)
            unmet = [one for one in await home.notices.list() if one.turn_id == outcome.turn_id]
            if outcome.state is TurnState.DONE and not unmet:
                for tools in owed(scene):
                    assert not reachable(scene, tools), (rules, run, tools)
            else:
                assert unmet or outcome.text.startswith("I had to stop"), outcome.text
