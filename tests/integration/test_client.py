"""One client: a home in another process has the nouns and verbs of one that is open here."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, cast

import pytest

from asterism import Asterism, ToolContext, tool
from asterism.api.openapi import document
from asterism.api.routes import ENDPOINTS
from asterism.app.agents import Agent
from asterism.app.home import nouns
from asterism.client import HOME, STREAMS, SYNC
from asterism.errors import HomeLost, InvalidInput, NotFound
from asterism.testing.scripted import ScriptedModel
from asterism.types.turns import Call, Reply, TurnState
from tests.integration.test_api import open_home, served

WITHOUT_ENDPOINT = {
    "another endpoint says the same": """
        agents.ensure approvals.answered approvals.get archive.append archive.search archive.tag
        groups.ensure home.check home.counts home.metrics people.rename people.set_roles
        people.set_trust turns.unfinished turns.wait turns.waiting
    """,
    "a part of the OpenAI and MCP endpoints, the channels or the login": """
        approvals.answer approvals.stream_decision tokens.current tokens.revoke_current
        turns.find_messages turns.parts turns.stream_results
    """,
    "keys and logins of others are not given out over REST": """
        keys.get keys.has keys.place keys.resolve keys.rotate mcp.ask mcp.configured mcp.forget
        mcp.login
    """,
    "reads and writes files of the machine, or works for a long time there": """
        memory.forget_again memory.retain search.catch_up search.check search.progress
    """,
    "for the process that runs the home": """
        agents.warm audit.anchor people.audience people.participants tools.sandbox
    """,
    "so far only by its name, with /api/call": """
        archive.add_many audit.autonomy audit.names blocks.editable blocks.shares blocks.updates
        blocks.version_at memory.fork memory.written_by rules.add rules.remove groups.patterns
        turns.cost turns.count
    """,
}
"""Verbs that REST does not have, by why."""


def verbs_of(home: Asterism) -> Iterator[tuple[str, Any]]:
    """Yield every public verb by its name, with its function."""
    for noun in sorted(nouns()):
        kind = cast("type[object]", type(getattr(home, noun)))
        for name in dir(kind):
            method = inspect.getattr_static(kind, name)
            if hasattr(method, "verb"):
                yield f"{noun}.{name}", method
    for name in sorted(HOME):
        yield f"home.{name}", inspect.getattr_static(type(home), name)


@pytest.mark.promise("A8")
async def test_the_client_knows_every_verb_and_how_it_is_called(tmp_path: Path):
    async with open_home(tmp_path) as home:
        found = dict(verbs_of(home))
        assert len(found) > 100
        for name, method in found.items():
            assert home.find_verb(name) is not None, name
            plain = inspect.unwrap(method)
            yields = "AsyncGenerator" in str(plain.__annotations__["return"])
            assert (name in STREAMS) == yields, name
            is_async = yields or inspect.iscoroutinefunction(plain)
            assert (name in SYNC) == (not is_async), name
        assert {*STREAMS, *SYNC} <= set(found)


@pytest.mark.promise("A1", "A8")
async def test_every_verb_has_an_endpoint_or_a_reason(tmp_path: Path):
    async with open_home(tmp_path) as home:
        verbs = {name for name, _ in verbs_of(home)}
    by_verb = {endpoint.verb for endpoint in ENDPOINTS} - {"open"}
    assert by_verb <= verbs, "an endpoint names a verb that does not exist"
    explained = {name for names in WITHOUT_ENDPOINT.values() for name in names.split()}
    assert verbs - by_verb <= explained, "a verb has neither an endpoint nor a reason"
    assert explained <= verbs, "a reason is given for a verb that does not exist"
    paths = document(ENDPOINTS)["paths"]
    for endpoint in ENDPOINTS:
        described = [shape for path, shape in paths.items() if path.endswith(endpoint.path)]
        assert any(endpoint.method.lower() in shape for shape in described), endpoint.path


@pytest.mark.promise("A8")
@pytest.mark.parametrize("how", ["address", "directory"])
async def test_agents_have_their_verbs(tmp_path: Path, how: str):
    model = ScriptedModel(["Hello.", "One."])
    async with open_home(tmp_path, model) as home, served(home) as (url, secret):
        target: Any = url if how == "address" else tmp_path
        async with Asterism.connect(target, secret if how == "address" else None) as remote:
            aria = await remote.agents.ensure("aria")
            assert isinstance(aria, Agent)
            assert aria.model_in_use == (await home.agents.get("aria")).model_in_use
            assert (await aria.ask("hi")).text == "Hello."
            kinds = [signal.kind async for signal in aria.stream("again")]
            assert kinds[-1] == "ended"
            await aria.blocks["human"].append("Has a cat.")
            assert "Has a cat." in await aria.blocks["human"].text()
            await aria.archive.add("The rent is due on the first.")
            assert (await aria.search("rent")).hits
            renamed = await aria.edit(system="You are brief.")
            assert (renamed.id, renamed.system) == (aria.id, "You are brief.")
            assert [agent.name for agent in await remote.agents.list()] == ["aria"]
            with pytest.raises(TypeError) as wrong:
                await remote.agents.ask(aria, "hi", txet="hi")
            assert str(wrong.value).endswith("got an unexpected keyword argument 'txet'")
            await remote.agents.warm("aria")
            with pytest.raises(AttributeError, match="'settings' is not a noun of a home that"):
                _ = remote.settings
            await aria.delete()
        assert await home.agents.list() == []


@pytest.mark.promise("A8", "H1")
async def test_approvals_have_their_verbs(tmp_path: Path):
    @tool
    async def pay(ctx: ToolContext, amount: int) -> str:
        """Pay an amount."""
        ctx.ask("May I?")
        return f"Paid {amount}."

    model = ScriptedModel([Reply("", (Call("c", "pay", '{"amount": 5}'),)), "Done."])
    async with (
        open_home(tmp_path, model, tools=[pay]) as home,
        served(home) as (url, secret),
        Asterism.connect(url, secret) as remote,
    ):
        aria = await remote.agents.ensure("aria")
        assert (await aria.ask("pay")).state is TurnState.PARKED
        (question,) = await remote.approvals.list()
        outcome = await remote.turns.wait(await question.approve())
        assert outcome.text == "Done."


async def _everything(home: Asterism) -> dict[str, list[Any]]:
    """What each noun gives, by the noun: what it returns for a home with one of each."""
    forked = await home.turns.fork((await home.turns.list("aria"))[-1].id, model="demo:guide")
    (question,) = await home.approvals.list()
    return {
        "agents": [await home.agents.get("aria"), await home.agents.list()],
        "approvals": [question, await home.approvals.show(question.id)],
        "archive": [await home.archive.list("aria")],
        "audit": [await home.audit.list(limit=1)],
        "blocks": [await home.blocks.get("aria", "human"), await home.blocks.list("aria")],
        "grants": [await home.grants.list()],
        "groups": [await home.groups.get("ring"), await home.groups.list()],
        "memory": [await home.memory.written_by(question.turn_id)],
        "people": [await home.people.list()],
        "schedules": [await home.schedules.list("aria")],
        "search": [await home.search("aria", "rent")],
        "tokens": [await home.tokens.list()],
        "turns": [*forked, await home.turns.list(limit=1), await home.turns.get(question.turn_id)],
    }


_WITHOUT_VERBS = frozenset(
    {
        *("alerts", "backups", "config", "constellations", "contexts", "halts", "keys", "mcp"),
        *("notices", "outbox", "rules", "sources", "spending", "tools", "users"),
    }
)
"""Nouns whose verbs return figures and texts only."""


def _methods(value: Any) -> Any:
    """The public methods of a value and of what lies inside it."""
    if isinstance(value, list | tuple):
        return [_methods(part) for part in cast("list[Any]", value)]
    if dataclasses.is_dataclass(value):
        inside = {each.name: getattr(value, each.name) for each in dataclasses.fields(value)}
        public = {name: _methods(part) for name, part in inside.items() if name[0] != "_"}
        return type(value), sorted(name for name in dir(value) if name[0] != "_"), public
    return None  # such as when it was last used, which is no matter of verbs


@pytest.mark.promise("A8")
@pytest.mark.parametrize("how", ["address", "directory"])
async def test_what_comes_back_is_what_an_open_home_gives(tmp_path: Path, how: str):
    @tool
    async def pay(ctx: ToolContext) -> str:
        """Pay."""
        ctx.ask("May I?")
        return "Paid."

    model = ScriptedModel(["Hello.", Reply("", (Call("c", "pay", "{}"),)), "a", "b", "c"])
    async with open_home(tmp_path, model, tools=[pay]) as home, served(home) as (url, secret):
        aria = await home.agents.create("aria")
        await aria.ask("hi")
        await aria.archive.add("The rent is due on the first.")
        await home.schedules.add("aria", "tomorrow at 9", "Water the plants.")
        await home.groups.create("ring", members=["aria"])
        assert (await aria.ask("pay")).state is TurnState.PARKED
        here = await _everything(home)
        assert {*here} | _WITHOUT_VERBS == nouns()
        await home.agents.delete(here["turns"][0])
        target: Any = url if how == "address" else tmp_path
        async with Asterism.connect(target, secret if how == "address" else None) as remote:
            there = await _everything(remote)
            for noun, found in here.items():
                assert _methods(there[noun]) == _methods(found), noun
            fork: Any = there["turns"][0]
            assert (await fork.ask("Who are you?")).state is TurnState.DONE
            ring = await (await remote.groups.get("ring")).edit(description="All.")
            assert ring.description == "All."
            added = await ring.add_member(fork)
            assert [member.name for member in added.members] == ["aria", fork.name]
            details = await remote.approvals.show((await remote.approvals.list())[0].id)
            await cast("Any", details.approval).deny()


@pytest.mark.promise("A8")
@pytest.mark.parametrize("how", ["here", "directory", "address"])
async def test_an_agent_and_a_group_are_named_without_a_query(tmp_path: Path, how: str):
    model = ScriptedModel(["Hello."] * 9)
    async with (
        open_home(tmp_path, model) as opened,
        served(opened) as (url, secret),
        AsyncExitStack() as stack,
    ):
        home = opened
        if how != "here":
            target: Any = url if how == "address" else tmp_path
            token = secret if how == "address" else None
            home = await stack.enter_async_context(Asterism.connect(target, token))
        aria, ring = home.agents["aria"], home.groups["ring"]  # neither exists yet
        with pytest.raises(NotFound, match="no agent named 'aria'"):
            await aria.ask("hi")
        with pytest.raises(NotFound, match="no agent named 'aria'"):
            await aria.blocks["human"].text()
        with pytest.raises(NotFound, match="no group named 'ring'"):
            await ring.ask("hi")
        made = await home.agents.create("aria")
        assert (await aria.ask("hi")).text == "Hello."
        assert [signal.kind async for signal in aria.stream("more")][-1] == "ended"
        assert (await home.turns.wait(await aria.send("again"))).state is TurnState.DONE
        await aria.blocks.create("garden", "Beans.")
        await aria.blocks["garden"].append("Peas.")
        assert await home.agents[made.id].blocks["garden"].text() == "Beans.\nPeas."
        await aria.archive.add("The rent is due on the first.")
        assert "rent" in (await aria.search("rent")).hits[0].text
        assert (await aria.get(), aria.name) == (made, "aria")
        await home.groups.create("ring")
        assert [one.name for one in (await ring.add_member("aria")).members] == ["aria"]
        assert (await ring.ask("hi")).text
        assert (await ring.transcript())[0].text == "hi"
        assert (await ring.get()).members == (await ring.edit(description="All.")).members
        await ring.delete()
        assert (await aria.edit(new_name="bea")).name == "bea"
        with pytest.raises(NotFound):
            await aria.get()
        await home.agents["bea"].delete()
        assert await home.agents.list() == []


@pytest.mark.promise("X5")
@pytest.mark.parametrize("how", ["here", "directory"])
async def test_what_is_named_in_brackets_is_not_gone_through(tmp_path: Path, how: str):
    async with open_home(tmp_path) as opened, AsyncExitStack() as stack:
        home: Any = opened
        if how == "directory":
            home = await stack.enter_async_context(Asterism.connect(tmp_path))
        aria = await home.agents.create("aria")
        for names in (home.agents, home.groups, aria.blocks):
            with pytest.raises(TypeError):
                list(names)  # went on without an end
            with pytest.raises(TypeError):
                assert "aria" not in names
        for name in (1, None, aria):
            for names in (home.agents, home.groups):
                with pytest.raises(InvalidInput, match="is named by a text"):
                    names[name]  # None stands for every agent elsewhere
        for name in ("", "nobody", "../aria"):
            with pytest.raises(NotFound):
                await home.agents[name].send("hi")
            with pytest.raises(NotFound):
                await home.agents[name].blocks.list()
        with pytest.raises(TypeError):
            home.turns["aria"]


@pytest.mark.promise("A8")
def test_a_script_connects_without_await(tmp_path: Path):
    model = ScriptedModel(["Hello.", "Again.", "a", "b", "c"])
    with (
        Asterism.open_sync(tmp_path, models={"demo": model}) as home,
        Asterism.connect_sync(tmp_path) as remote,
    ):
        aria = remote.agents.ensure("aria", model="demo:m")
        assert aria.ask("hi").text == "Hello."
        assert [signal.kind for signal in aria.stream("more")][-1] == "ended"
        aria.blocks["human"].append("Has a cat.")
        assert "Has a cat." in home.agents["aria"].blocks["human"].text()
        assert remote.agents["aria"].get() == aria
        with pytest.raises(TypeError):
            list(cast("Any", remote.agents))
        assert [turn.state for turn in remote.turns.list("aria")] == [TurnState.DONE] * 2
        ring = remote.groups.create("ring", members=["aria"])
        assert ring.ask("hi").text
        copy, _ = remote.turns.fork(remote.turns.list("aria")[0].id)
        assert copy.ask("hi").text


@pytest.mark.promise("X5")
async def test_where_nobody_has_the_home_open_it_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    with pytest.raises(HomeLost, match='Start one with "asterism up"'):
        async with Asterism.connect(tmp_path):
            pass
    monkeypatch.delenv("ASTERISM_TOKEN", raising=False)
    with pytest.raises(InvalidInput, match="needs a token"):
        async with Asterism.connect("http://127.0.0.1:1"):
            pass
