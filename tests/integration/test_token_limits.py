"""What a token narrows: acts and agents, for every verb of a home and whoever acts."""

import inspect
import re
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from asterism import Asterism, Home, tool
from asterism.app.session import BY_AGENT, OWN_VERBS, READING_VERBS
from asterism.errors import Conflict, InvalidInput, NotAllowed, NotFound
from asterism.permissions import Act
from asterism.store import agents
from asterism.types.agents import Account
from asterism.types.memory import Append, Permission, Share
from asterism.types.permissions import ToolEffect
from asterism.types.turns import Notice, TurnState
from asterism.views import view
from tests.hostile import Attempt, Scene
from tests.scenes import open_home

MARK = "marzipan"
"""A word that only the hidden agents know."""


@tool(effects=ToolEffect("pay", recipients="to"), ask=True)
def pay(to: str) -> str:
    """Pay somebody."""
    return f"paid {to}"


async def with_token(home: Asterism, name: str = "t", **options: Any) -> Home:
    """Return the home as somebody with a new token has it."""
    return await home.authenticate((await home.tokens.create(name, **options)).secret)


def calls_of(scene: Scene) -> list[tuple[Attempt, Act, str]]:
    """Return one call of each verb with arguments that fit, its act and its name."""
    calls: list[tuple[Attempt, Act, str]] = []
    for verb, method in scene.verbs():
        act, name = cast("tuple[Act, str]", getattr(method, "verb"))  # noqa: B009 - set on functions
        usual = scene._usual(verb, method)  # pyright: ignore[reportPrivateUsage] - of this test's own scene
        calls.append((Attempt(verb, method, usual, (), verb), act, name))
    return calls


async def test_each_verb_needs_the_scope_of_its_act(tmp_path: Path):
    refused = 0
    async with open_home(tmp_path, work=False) as home:
        scene = await Scene.make(home)
        for scope in ("read", "talk", "append", "overwrite", "delete", "govern"):
            theirs = await with_token(home, scope, scopes=[scope])
            for attempt, act, name in calls_of(Scene(cast("Any", theirs), scene.fits)):
                reads = scope == "read" and name in READING_VERBS
                if act.value == scope or name in OWN_VERBS or reads:
                    continue
                with pytest.raises(NotAllowed, match=f"does not allow {re.escape(name)}"):
                    await attempt.run()
                refused += 1
        events = await home.audit.list(kind="verb.denied", limit=1)
    assert refused > 500
    assert events


async def test_a_read_only_token_of_the_owner_reads_and_writes_nothing(tmp_path: Path):
    async with open_home(tmp_path, work=False) as home:
        await home.agents.create("aria")
        theirs = await with_token(home, scopes=["read"])
        assert [agent.name for agent in await theirs.agents.list()] == ["aria"]
        aria = await theirs.agents.get("aria")
        assert [seen.name for seen in await aria.blocks.list()]
        with pytest.raises(NotAllowed, match="'append'"):
            await aria.archive.add("The rent is due.")
        with pytest.raises(NotAllowed, match="'talk'"):
            await aria.send("Hello")
        with pytest.raises(NotAllowed, match="'govern'"):
            await theirs.tokens.create("another")
        assert await home.archive.list("aria") == []


async def test_every_verb_that_a_token_for_agents_may_use_is_named_and_exists(tmp_path: Path):
    async with open_home(tmp_path, work=False) as home:
        scene = await Scene.make(home)
        there = {name for _, _, name in calls_of(scene)} | {"memory.retain", "memory.forget_again"}
    assert there >= BY_AGENT


@pytest.mark.parametrize("role", ["owner", "admin"])
async def test_other_agents_do_not_exist_for_a_token_for_one(tmp_path: Path, role: str):
    """Every verb is called with what belongs to other agents: it is refused, or tells nothing."""
    told: list[str] = []
    async with open_home(tmp_path, tools=[pay]) as home:
        scene, hidden = await _furnish(home)
        await home.agents.create("carl")
        theirs = await with_token(home, agents=["carl"], role=role)
        before = await _state(home)
        ran = 0
        for attempt, _, name in calls_of(Scene(cast("Any", theirs), scene.fits)):
            # What the caller names itself is no news to it.
            news = {word for word in hidden if word not in str([*attempt.given.values()])}
            try:
                result = await attempt.run()
            except (NotFound, NotAllowed, InvalidInput) as error:
                told += _leaks(name, error.message, news)
                continue
            ran += 1
            assert name in BY_AGENT | OWN_VERBS, name
            told += _leaks(name, str(view(result)) + str(result), news)
        assert await _state(home) == before
    assert not told, "\n".join(told)
    assert ran > 20


async def _furnish(home: Asterism) -> tuple[Scene, set[str]]:
    """Fill a home; return it with all that nobody else may be told."""
    scene = await Scene.make(home)
    outcome = await home.agents.ask("aria", f'{MARK} [[call:pay {{"to": "eve"}}]]')
    assert outcome.state is TurnState.PARKED
    (question,) = await home.approvals.list()
    plan = await home.schedules.add("aria", "tomorrow at nine", MARK)
    await home.blocks.create("aria", "plans", MARK)
    await home.archive.add("aria", f"The {MARK} is in the cellar.")
    await home.search.catch_up()
    fits = scene.fits
    fits |= {"approval_id": question.id, "approval": question, "schedule_id": plan.id}
    fits |= {"ref": f"{fits['agent']}:1", "text": MARK, "query": MARK}
    fits |= {"write": Share(fits["target"]), "present": []}
    secrets = {fits["agent"], fits["target"], fits["passage_id"], fits["grant_id"]}
    secrets |= {fits["turn_id"], outcome.turn_id, question.id, plan.id, MARK, "aria"}
    return scene, secrets


async def _state(home: Asterism) -> list[Any]:
    """Return what the hidden agents have."""
    return [
        view(await home.agents.get("aria")),
        [turn.state for turn in await home.turns.list("aria")],
        view(await home.archive.list("aria")),
        [view(seen.block) for seen in await home.blocks.list("aria")],
        view(await home.grants.list("aria")),
        [approval.decided_at_ms for approval in await home.approvals.list()],
        view(await home.schedules.list("aria")),
        view(await home.people.list())[:3],
    ]


def _leaks(verb: str, text: str, hidden: set[str]) -> list[str]:
    return [f"{verb} tells {word}: {text[:300]}" for word in hidden if word in text]


@pytest.mark.parametrize("whose", ["theirs", "own"])
async def test_what_belongs_to_others_is_not_reached_by_optional_arguments(
    tmp_path: Path, whose: str
):
    """Options name what others have, together with the own agent or with another one."""
    told: list[str] = []
    async with open_home(tmp_path, tools=[pay]) as home:
        scene, hidden = await _furnish(home)
        carl = await home.agents.create("carl")
        theirs = await with_token(home, agents=["carl"])
        before, fits = await _state(home), scene.fits
        options = {"agent": carl.id, "turn": fits["turn_id"], "supersedes": fits["passage_id"]}
        options |= {"shared_with": {"aria": Permission.READ_WRITE}, "external_id": "7"}
        options |= {"source": "papers", "speaker": "aria", "tools": None}
        if whose == "theirs":
            options["agent"] = fits["agent"]
        mine = {**fits, "agent": options["agent"], "label": "aria/plans", "text": "own words"}
        mine |= {"blocks.create.label": "mine", "search.__call__.text": MARK}
        for attempt, _, name in calls_of(Scene(cast("Any", theirs), mine)):
            if name in ("agent.delete", "agent.warm"):
                continue  # of carl this is allowed
            names = [one for one in inspect.signature(attempt.method).parameters if one in options]
            for option in names or [""]:
                given = {**attempt.given, **({option: options[option]} if option else {})}
                news = {word for word in hidden if word not in str([*given.values()])}
                try:
                    result = await replace(attempt, given=given).run()
                except (NotFound, NotAllowed, InvalidInput, Conflict) as error:
                    told += _leaks(name, error.message, news)
                else:
                    told += _leaks(f"{name}({option})", str(view(result)) + str(result), news)
        assert await _state(home) == before
    assert not told, "\n".join(told)


async def test_lists_search_turns_audit_and_events_have_the_own_agent_alone(tmp_path: Path):
    async with open_home(tmp_path) as home:
        for name in ("aria", "bea"):
            agent = await home.agents.create(name)
            await agent.ask(f"The {MARK} of {name} is green.")
            await agent.archive.add(f"The {MARK} of {name} is in the cellar.")
        await home.search.catch_up()
        theirs = await with_token(home, agents=["bea"])
        assert [agent.name for agent in await theirs.agents.list()] == ["bea"]
        assert await theirs.counts() == (1, 0)
        bea = await theirs.agents.get("bea")
        assert {turn.agent_id for turn in await theirs.turns.list()} == {bea.id}
        found = await theirs.search(None, MARK)
        assert found.hits
        assert not [hit for hit in found.hits if "aria" in hit.text]
        assert {event.agent_id or event.chain for event in await theirs.audit.list()} == {bea.id}
        exported = [line async for line in theirs.audit.export()]
        assert exported
        assert all(bea.id in line for line in exported)
        assert set(await theirs.audit.names()) <= {"home:home", bea.id}
        assert (await theirs.status()).agents == 1
        assert (await bea.ask("Still there?")).state is TurnState.DONE


async def test_waiting_messages_caps_sources_and_notices_are_those_of_the_own_agent(
    tmp_path: Path,
):
    papers = tmp_path / "papers"
    papers.mkdir()
    settings: dict[str, object] = {"budget.each_agent.day": 5.0}
    async with open_home(tmp_path / "data", work=False, settings=settings) as home:
        for name in ("aria", "bea"):
            agent = await home.agents.create(name)
            receipt = await agent.send(f"Hello {name}")
            notice = Notice(f"note_{name}", agent.id, None, "model", f"About {name}.", 1)
            await home.database.write(lambda tx, notice=notice: agents.put_notice(tx, notice))
            await home.sources.add(f"of-{name}", papers, agents=[name], audience="public")
        theirs = await with_token(home, agents=["bea"])
        assert [item.turn_id for item in await theirs.turns.waiting()] == [receipt.turn_id]
        assert await theirs.turns.unfinished() == [receipt.turn_id]
        assert await theirs.counts() == (1, 1)
        assert [notice.id for notice in await theirs.notices.list()] == ["note_bea"]
        assert [standing.cap.who for standing in await theirs.spending.caps()] == ["the agent bea"]
        report = await theirs.spending.report()
        assert [standing.cap.who for standing in report.standings] == ["the agent bea"]
        assert [state.source.name for state in await theirs.sources.list()] == ["of-bea"]
        with pytest.raises(NotFound, match="Did you mean 'of-bea'"):
            await theirs.sources.get("of-aria")
        assert len(await home.turns.waiting()) == len(await home.notices.list()) == 2


async def test_an_account_of_the_owner_answers_nothing_of_other_agents(tmp_path: Path):
    async with open_home(tmp_path, tools=[pay]) as home:
        await home.agents.create("aria")
        await home.agents.create("bea")
        await home.people.link("owner", "chat:me")
        await home.agents.ask("aria", '[[call:pay {"to": "eve"}]]')
        (question,) = await home.approvals.list()
        theirs = await with_token(home, agents=["bea"])
        said = await theirs.approvals.answer(
            question.id, approved=True, by=Account("chat", "me"), place="chat:me"
        )
        assert "There is no approval" in said
        assert (await home.approvals.get(question.id)).decided_at_ms is None


async def test_an_agent_of_others_is_told_as_one_that_does_not_exist(tmp_path: Path):
    async with open_home(tmp_path, work=False) as home:
        hidden = await home.agents.create("hidden")
        await home.agents.create("carl")
        theirs = await with_token(home, agents=["carl"])

        async def told(call: Callable[[str], Awaitable[Any]], name: str) -> str:
            with pytest.raises(NotFound) as caught:
                await call(name)
            return caught.value.message.replace(name, "NAME")

        calls: list[Callable[[str], Awaitable[Any]]] = [
            theirs.agents.get,
            theirs.agents.delete,
            theirs.schedules.list,
            theirs.rules.list,
            theirs.turns.list,
            theirs.contexts.now,
            lambda name: theirs.agents.send(name, "Hello"),
            lambda name: theirs.blocks.get(name, "human"),
            lambda name: theirs.search(name, "word"),
        ]
        for call in calls:
            assert await told(call, "hidden") == await told(call, "absent")
            unknown = f"agent_{'0' * 24}"
            assert await told(call, hidden.id) == await told(call, unknown)
        with pytest.raises(NotFound):
            await theirs.agents.send(hidden, "Hello")  # by a record that came from elsewhere
        with pytest.raises(NotAllowed, match="renamed"):
            await theirs.agents.edit("carl", new_name="hidden")


async def test_an_external_id_of_somebody_else_finds_nothing(tmp_path: Path):
    async with open_home(tmp_path) as home:
        await home.agents.create("aria")
        await home.agents.create("bea")
        first = await home.agents.ask("aria", MARK, external_id="7")
        theirs = await with_token(home, agents=["bea"])
        second = await theirs.agents.ask("bea", "Hello", external_id="7")
        again = await theirs.agents.send("bea", "Hello", external_id="7")
        assert second.turn_id != first.turn_id
        assert again.duplicate
        assert again.turn_id == second.turn_id
        partner = await with_token(home, "anna", role="partner")
        assert (await partner.agents.ask("aria", "Hi", external_id="7")).turn_id != first.turn_id


async def test_what_is_shared_is_read_and_not_changed(tmp_path: Path):
    async with open_home(tmp_path, work=False) as home:
        for name in ("aria", "bea"):
            await home.agents.create(name)
        await home.blocks.create(None, "house", "It is cold.")
        theirs = await with_token(home, agents=["bea"])
        assert (await theirs.blocks.get("bea", "house")).block.text == "It is cold."
        with pytest.raises(NotAllowed, match="other agents"):
            await theirs.blocks.write("bea", "house", Append("It is warm."))
        aria = await home.agents.get("aria")
        with pytest.raises(NotFound):
            await theirs.blocks.write("bea", "human", Share(aria.id))
        with pytest.raises(NotAllowed, match="which one"):
            await theirs.blocks.list()


async def test_a_yes_with_a_grant_needs_govern(tmp_path: Path):
    async with open_home(tmp_path, tools=[pay]) as home:
        await home.agents.create("aria")
        await home.agents.ask("aria", '[[call:pay {"to": "eve"}]]')
        (question,) = await home.approvals.list()
        theirs = await with_token(home, scopes=["read", "talk"])
        with pytest.raises(NotAllowed, match="'govern'"):
            await theirs.approvals.decide(question.id, approved=True, grant="always")
        await theirs.approvals.decide(question.id, approved=True)
        assert await home.grants.list() == []


async def test_roles_of_tokens(tmp_path: Path):
    async with open_home(tmp_path) as home:
        aria = await home.agents.create("aria")
        await home.agents.create("bea")
        await aria.ask("Only the owner may know this.")
        viewer = await with_token(home, "wall", role="viewer")
        assert len(await viewer.agents.list()) == 2
        assert await viewer.turns.list() == []
        with pytest.raises(NotAllowed, match="'talk'"):
            await viewer.agents.send("aria", "Hello")
        partner = await with_token(home, "anna", role="partner")
        outcome = await partner.agents.ask("aria", "Hello")
        assert [turn.id for turn in await partner.turns.list()] == [outcome.turn_id]
        with pytest.raises(NotAllowed):
            await partner.archive.add("aria", "A fact.")
        service = await with_token(home, "shop", role="agent-service", agents=["bea"])
        assert (await service.agents.ask("bea", "Hello")).state is TurnState.DONE
        with pytest.raises(NotFound):
            await service.agents.ask("aria", "Hello")
        with pytest.raises(NotAllowed):
            await service.people.list()
        admin = await with_token(home, "boss", role="admin")
        assert len(await admin.turns.list()) == 3
        assert {person.name for person in await home.people.list()} >= {"wall", "anna", "shop"}
