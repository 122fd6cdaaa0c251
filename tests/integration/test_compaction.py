"""A past that is longer than the context: compacted, never lost."""

import itertools
from pathlib import Path
from typing import Any

import pytest

from asterism import Asterism, TurnState
from asterism.errors import Conflict, ModelUnavailable
from asterism.ports import ModelRequest
from asterism.store import journal, summaries
from asterism.store.database import Connection
from asterism.testing.scripted import ScriptedModel
from asterism.types.agents import OWNER_ALONE
from asterism.types.turns import Reply, Strategy, Summary
from tests.scenes import heard, obedient, open_home

TURNS = 2_500
FACTS = 100


def planted(number: int) -> str:
    return f"my locker {number:03} has the code word-{number * 7919 % 100_003:05}"


def rule(request: ModelRequest) -> Reply | str:
    if "/compact/" in request.key:
        return "They talked about many things."
    return "Noted. " + "la " * 12


async def all_summaries(home: Asterism, agent_id: str) -> list[Summary]:
    found = await home.database.read(lambda tx: summaries.of_agent(tx, agent_id))
    return sorted(found, key=lambda one: one.first_seq)


@pytest.mark.promise("M11", "M12")
async def test_fifty_foldings_lose_nothing(tmp_path: Path):
    model = ScriptedModel.from_rule(rule)
    # A search before each of thousands of turns is another test's.
    settings: dict[str, Any] = {"context.tokens": 2_200, "pipeline.processors": []}
    async with open_home(tmp_path, model, settings=settings) as home:
        agent = await home.agents.create("aria", tools=["expand"])
        every = TURNS // FACTS
        for number in range(TURNS):
            fact = planted(number // every) if number % every == 0 else f"small talk {number}"
            assert (await home.agents.ask("aria", fact)).state is TurnState.DONE
        found = await all_summaries(home, agent.id)
        assert len(found) >= 50
        # Ranges follow each other without a gap, and each expands to the exact originals.
        assert found[0].first_seq == 1
        for one, following in itertools.pairwise(found):
            assert following.first_seq == one.last_seq + 1

        async def originals(tx: Connection, one: Summary) -> tuple[list[bytes], list[bytes]]:
            told = await summaries.originals(tx, one, OWNER_ALONE.can_see)
            there = await journal.visible_entries(tx, agent.id, one.first_seq, one.last_seq)
            return [entry.body for entry in told], [entry.body for entry in there]

        for one in found:
            told, there = await home.database.read(lambda tx, one=one: originals(tx, one))
            assert told == there
        for number in range(FACTS):
            hits = await home.archive.search("aria", f"code of locker {number:03}")
            assert any(planted(number) in hit.text for hit in hits), number
    asked = [request for request in model.requests if "/compact/" not in request.key]
    prefixes = [request.messages[0] for request in asked]
    changes = sum(a != b for a, b in itertools.pairwise(prefixes))
    assert changes == len(found)
    assert max(sum(map(len, request.messages)) for request in asked) < 4 * 2_200 + 8_000


@pytest.mark.promise("M11")
@pytest.mark.parametrize("strategy", list(Strategy))
async def test_every_strategy_keeps_the_context_small_and_the_rest_within_reach(
    tmp_path: Path, strategy: Strategy
):
    model = ScriptedModel.from_rule(rule)
    settings = {"context.tokens": 600, "context.strategy": strategy.value}
    settings |= {"context.keep_recent": 2, "context.decay_hours": 0.000001}
    async with open_home(tmp_path, model, settings=settings) as home:
        agent = await home.agents.create("aria", tools=["expand"])
        for number in range(60):
            await home.agents.ask(
                "aria", f"message {number}, remember it" if number == 3 else f"m {number}"
            )
        (first, *_) = await all_summaries(home, agent.id)
        assert first.strategy in (strategy, Strategy.TRUNCATE)
        shown = await home.contexts.now("aria")
        assert any(line.part == "summary" and "sum_" in line.origin for line in shown.lines)
        assert shown.tokens < 1_200
        page = await home.agents.ask("aria", f'[[call:expand {{"summary": "{first.id}"}}]]')
        assert page.state is TurnState.DONE


@pytest.mark.promise("M11")
async def test_an_agent_expands_a_summary_to_what_was_said(tmp_path: Path):
    model = obedient()
    async with open_home(tmp_path, model, settings={"context.tokens": 500}) as home:
        agent = await home.agents.create("aria")
        for number in range(40):
            await home.agents.ask("aria", f"the {number}th thing is a word-{number}")
        (first, *_) = await all_summaries(home, agent.id)
        await home.agents.ask("aria", f'[[call:expand {{"summary": "{first.id}"}}]]')
        result = next(m for m in reversed(heard(model.requests[-1])) if m["role"] == "tool")
        assert "the 0th thing is a word-0" in result["content"]


@pytest.mark.promise("M11")
async def test_facts_are_saved_before_they_leave_and_a_model_that_fails_stops_nothing(
    tmp_path: Path,
):
    def fails(request: ModelRequest) -> Reply | str:
        if "/compact/" in request.key:
            raise ModelUnavailable("Down.")
        return "ok"

    async with open_home(
        tmp_path, ScriptedModel.from_rule(fails), settings={"context.tokens": 300}
    ) as home:
        agent = await home.agents.create("aria")
        await home.agents.ask("aria", "My sister's name is Ottilie and her birthday is on 3 May.")
        for number in range(30):
            assert (await home.agents.ask("aria", f"small talk {number}")).state is TurnState.DONE
        (first, *_) = await all_summaries(home, agent.id)
        assert first.made_by == "rule"
        (saved,) = [one for one in await home.archive.list("aria") if "Ottilie" in one.text]
        (turn, *_) = list(reversed(await home.turns.list("aria", limit=100)))
        assert saved.source.origins[0].ref == turn.id


@pytest.mark.promise("M11")
async def test_a_context_is_folded_on_demand(tmp_path: Path):
    async with open_home(tmp_path, ScriptedModel.from_rule(rule)) as home:
        await home.agents.create("aria")
        with pytest.raises(Conflict, match="nothing to compact"):
            await home.contexts.compact("aria")
        for number in range(30):
            await home.agents.ask("aria", f"message {number}")
        compacted = await home.contexts.compact("aria")
        assert compacted.summary.text == "They talked about many things."
        assert compacted.summary.messages > 0
        shown = await home.contexts.now("aria")
        assert "They talked about many things." in "\n".join(line.text for line in shown.lines)
        assert (await home.agents.ask("aria", "go on")).state is TurnState.DONE


@pytest.mark.promise("M9", "M11")
async def test_a_summary_is_for_those_who_heard_it(tmp_path: Path):
    def tell(request: ModelRequest) -> Reply | str:
        if "/compact/" in request.key:
            return "Summary: " + " ".join(
                word
                for m in heard(request)
                for word in str(m["content"]).split()
                if "secret" in word
            )
        return "ok"

    model = ScriptedModel.from_rule(tell)
    async with open_home(tmp_path, model, settings={"context.tokens": 300}) as home:
        await home.agents.create("aria")
        for number in range(25):
            await home.agents.ask("aria", f"owner-secret-{number} is mine")
            await home.agents.ask("aria", f"anna-secret-{number}", channel="chat", sender="anna")
            await home.agents.ask("aria", f"ben-secret-{number}", channel="chat", sender="ben")
        before = len(model.requests)
        await home.agents.ask("aria", "hello", channel="chat", sender="ben")
        seen = "\n".join(str(m["content"]) for r in model.requests[before:] for m in heard(r))
        assert "ben-secret" in seen
        assert "anna-secret" not in seen
        assert "owner-secret" not in seen
