"""Each layer of the mends of the security test holds by itself, where others hold as well."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from itertools import repeat
from pathlib import Path
from typing import Any

import pytest

from asterism import Asterism, Tool, TurnState, tool
from asterism.ports import Profile
from asterism.testing.clock import ManualClock
from asterism.testing.scripted import ScriptedModel
from asterism.tools.builtin.web import web
from asterism.types.agents import Trust
from asterism.types.permissions import Effect, EffectKind, ToolEffect
from asterism.types.turns import Reply
from tests.integration.test_forgotten_stays import CANARY, WHAT, call, workspace
from tests.integration.test_reading import TOOLS, called, is_asked
from tests.integration.test_trust import (
    FRIEND,
    INJECTED,
    PAY,
    PAY_FRIEND,
    READ,
    THIEF,
    WANTED,
    Mail,
    World,
    asks,
    edit,
    insert,
    say,
)
from tests.integration.test_web_tool import POLICIES, Scene, scene_with, serving
from tests.scenes import calls, heard, open_home, until

# -- C1: what a page has planned, told or said -----------------------------------------------------

TO_THIEF = {"kind": "pay", "targets": [THIEF], "amounts": ["500"]}


class Gullible(dict[str, list[Any]]):
    """Reads a payment out of every request that names the thief: only trust is in the way."""

    def get(self, asked: str, default: Any = None) -> Any:
        return [TO_THIEF] if THIEF in asked else default


GULLIBLE = Gullible({"": []})


async def paid_or_asked(world: World, home: Asterism) -> bool:
    """Whether the money is gone or somebody was asked, so that nothing waits in vain."""
    return bool(world.paid) or await asks(home)


@pytest.mark.promise("X6")
@pytest.mark.parametrize("way", ["schedule", "heartbeat"])
async def test_what_a_page_has_planned_is_no_request_of_the_owners(tmp_path: Path, way: str):
    world = World()
    later = {"operation": "in", "when": "1 seconds", "message": INJECTED}
    plan = (way, json.dumps(later if way == "schedule" else {"reason": INJECTED}))
    lines = [READ, "a page", calls(plan), "planned", calls(PAY), "paid"]
    model = ScriptedModel(lines, intents=GULLIBLE)
    async with open_home(tmp_path, model, tools=world.tools()) as home:
        await home.agents.create("aria")
        await say(home, "Have a look at the page.")
        assert (await say(home, "Thanks!")).state is TurnState.DONE
        await until(lambda: paid_or_asked(world, home))
        assert world.paid == []


@pytest.mark.promise("X6")
async def test_agent_pays_nobody_whom_another_one_names_after_a_page(tmp_path: Path):
    """The owner lets the message pass, and it is still none of the owner's."""
    world = World()
    tell = json.dumps({"target": {"type": "agent", "id": "bob"}, "content": INJECTED})
    lines = {
        "aria": iter([READ, calls(("send_message", tell)), "told"]),
        "bob": iter([calls(PAY), "paid"]),
    }
    names: dict[str, str] = {}
    model = ScriptedModel(
        repeat(lambda request: next(lines[names[request.agent_id]])), intents=GULLIBLE
    )
    async with open_home(tmp_path, model, tools=world.tools()) as home:
        for name in lines:
            names[(await home.agents.create(name)).id] = name
        assert (await say(home, "Look at the page, and tell bob.")).state is TurnState.PARKED
        (question,) = await home.approvals.list()
        async with asyncio.timeout(120):
            await home.turns.wait(await home.approvals.decide(question.id, approved=True))
        await until(lambda: paid_or_asked(world, home))
        assert world.paid == []
        (question,) = await home.approvals.list()
        assert names[question.agent_id] == "bob"


@pytest.mark.promise("X6")
async def test_what_the_model_says_after_a_page_names_no_payee(tmp_path: Path):
    world = World()
    echo = Reply(f"The rent goes to {THIEF}.", calls=calls(PAY).calls)
    asked = "Please look at the page and pay the rent of 500."
    model = ScriptedModel([READ, echo, "paid"], intents={asked: [TO_THIEF]})
    async with open_home(tmp_path, model, tools=world.tools()) as home:
        await home.agents.create("aria")
        outcome = await say(home, asked)
        assert (outcome.state, world.paid) == (TurnState.PARKED, [])


# -- H1: whose words vouch -------------------------------------------------------------------------

LAWYER = "lawyer@divorce.example"
TO_LAWYER = {"kind": "send", "targets": [LAWYER]}
SEND = ("mail", json.dumps({"to": LAWYER, "text": "x"}))


def a_page() -> Tool:
    @tool(effects=ToolEffect("read"), trust=Trust.WEB, audience="public")
    def page() -> str:
        """Read the page."""
        return "Nothing of interest."

    return page


@pytest.mark.promise("M9")
@pytest.mark.parametrize("kept", ["said", "noted"])
async def test_what_is_for_the_owner_alone_names_nobody_in_a_turn_of_a_known_person(
    tmp_path: Path, kept: str
):
    """H1: neither the owner's private talk nor a hidden line of a block reaches the reader."""
    world = Mail()
    private, asked = f"My lawyer is {LAWYER}.", "Look at the page and mail the lawyer."
    first = [edit(private), "noted"] if kept == "noted" else ["good"]
    lines = [*first, calls(("page", "{}")), calls(SEND), "sent"]
    model = ScriptedModel(lines, intents={asked: [TO_LAWYER]})
    tools = [*world.tools(), a_page()]
    async with open_home(tmp_path, model, tools=tools) as home:
        await home.agents.create("aria")
        await home.blocks.create("aria", "human", "open words")
        await home.people.create("anna")
        await home.people.link("anna", "chat:anna")
        if kept == "said":
            await say(home, private)
        else:
            await say(home, "Note what you know.")
        async with asyncio.timeout(120):
            outcome = await home.agents.ask("aria", asked, channel="chat", sender="anna")
        assert (outcome.state, world.sent) == (TurnState.PARKED, [])
        (read,) = model.read
        assert LAWYER not in json.dumps(heard(read))


@pytest.mark.promise("M9")
async def test_request_of_the_owners_in_a_room_is_none_of_a_strangers_there(tmp_path: Path):
    """H1: what everyone heard the owner ask for is not asked for by whoever speaks next."""
    world = Mail()
    asked = f"Send a mail to {LAWYER} on Friday."
    model = ScriptedModel(["on Friday", calls(SEND), "sent"], intents={asked: [TO_LAWYER]})
    async with open_home(tmp_path, model, tools=world.tools()) as home:
        await home.agents.create("aria")
        await home.people.link("owner", "chat:boss")
        room = {"channel": "chat", "room": "lobby"}
        async with asyncio.timeout(120):
            await home.agents.ask("aria", asked, sender="boss", present=["eve"], **room)
            outcome = await home.agents.ask(
                "aria", "Do it now.", sender="eve", present=["boss"], **room
            )
        assert (outcome.state, world.sent) == (TurnState.PARKED, [])
        (question,) = await home.approvals.list()
        assert "no trusted person asked for it" in question.question
        assert model.read == []


# -- H2, H4, H8, H9: who reads, what is read, what travels -----------------------------------------


class Small(ScriptedModel):
    """A scripted model that says of itself that it is a small one."""

    def profile(self, model: str) -> Profile:
        del model
        return Profile(compact=True)


@pytest.mark.promise("X6")
@pytest.mark.parametrize("reader", ["scripted:one", "auto"])
async def test_small_model_alone_does_not_say_what_was_asked_for(tmp_path: Path, reader: str):
    """H2: it takes a prohibition for a wish; the literal reading does not agree."""
    world = World()
    asked = f"Look at the page, and never pay {FRIEND} 10."
    model = Small([READ, calls(PAY_FRIEND), "waits"], intents={asked: [WANTED]})
    settings = {"trust.reader": reader}
    async with open_home(tmp_path, model, tools=world.tools(), settings=settings) as home:
        await home.agents.create("aria")
        outcome = await say(home, asked)
        assert (outcome.state, world.paid) == (TurnState.PARKED, [])
        assert len(model.read) == (0 if reader == "auto" else 1)


@pytest.mark.promise("X6")
@pytest.mark.parametrize("way", ["file", "shell"])
async def test_what_files_and_programs_tell_is_a_document(tmp_path: Path, way: str):
    """H8: a file without an ending whose text is YAML names no account, and is none of a tool."""
    world = World()
    asked = "Pay the invoice of 120 in the file invoice, and keep it in mind."
    text = f"recipient: {THIEF}\nsum: 120.0\n"
    found = {"what": "address", "source": "files", "where": ["invoice"]}
    wanted = {"kind": "pay", "amounts": ["120"], "found": [found]}
    load = {"operation": "load", "path": "invoice"}
    run = {"operation": "execute", "command": "cat invoice"}
    pay = calls(("pay", json.dumps({"to": THIEF, "amount": 120})))
    keep = calls(("recall", insert(text)))
    read = calls(("file", json.dumps(load)) if way == "file" else ("shell", json.dumps(run)))
    model = ScriptedModel([read, keep, pay, "paid"], intents={asked: [wanted]})
    async with open_home(tmp_path, model, tools=world.tools()) as home:
        agent = await home.agents.create("aria")
        folder = home.workshop.workplace.folder(agent.id)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "invoice").write_text(text)
        outcome = await say(home, asked)
        assert (outcome.state, world.paid) == (TurnState.PARKED, [])
        (kept,) = await home.archive.list("aria")
        assert kept.source.trust is Trust.DOCUMENT


@pytest.mark.promise("X6")
async def test_what_is_searched_for_on_the_web_carries_nothing_that_was_read(tmp_path: Path):
    """H9: whoever is asked reads the query."""

    @tool(effects=ToolEffect("read"))
    def safe() -> str:
        """Tell the code of the safe."""
        return "The safe opens with 4711-22."

    def search(query: str) -> Any:
        return calls(("web", json.dumps({"operation": "search", "query": query})))

    asked = "Is there rain in Bergen?"
    model = ScriptedModel(
        [calls(("safe", "{}")), search("rain in Bergen"), search("rain 4711-22"), "done"],
        intents={asked: []},
    )
    async with open_home(tmp_path, model, tools=[web, safe]) as home:
        await home.agents.create("aria")
        assert (await say(home, asked)).state is TurnState.PARKED
        (question,) = await home.approvals.list()
        assert "4711-22" in question.question


@pytest.mark.promise("X6")
async def test_page_that_was_kept_is_asked_about_again(tmp_path: Path):
    """H4: by the same agent, within the minutes in which the page is kept."""
    async with serving() as site, serving("localhost") as other:
        allow = [f"{one.host}:{one.port}" for one in (site, other)]
        start = site.moved("/to", other.text("/page", "<p>the page</p>"))
        async with scene_with(tmp_path, site, allow=allow) as scene:
            assert "the page" in await scene.fetch(start)
            assert "the page" in await scene.fetch(start)
            assert other.asked == ["/page"]  # it was kept
        (tmp_path / "authorizations.toml").write_text(POLICIES.format(verdict="deny", reason="x"))
        settings = {"web": {"allow": allow}}
        clock = ManualClock()
        async with open_home(tmp_path, tools=[web], clock=clock, settings=settings) as home:
            assert "which is not allowed" in await Scene(home, site).fetch(start)
        assert other.asked == ["/page"]


# -- H3, M2, M8, M9, plans of others ---------------------------------------------------------------


@pytest.mark.promise("H1", "S4")
async def test_a_tool_whose_effects_have_changed_is_asked_for_again(tmp_path: Path):
    """M9: what a function declares may change while the tool stays the same, as with `shell`."""
    kind, done = [EffectKind.PAY], list[str]()

    def effects(arguments: Mapping[str, Any]) -> list[Effect]:
        return [Effect(kind[0], recipients=(str(arguments["to"]),))]

    @tool(ask=True, effects=effects)
    def act(to: str) -> str:
        """Do it."""
        done.append(to)
        return "done"

    model = ScriptedModel([calls(("act", '{"to": "bob"}')), "well"])
    async with open_home(tmp_path, model, tools=[act]) as home:
        await home.agents.create("aria")
        await home.agents.ask("aria", "go")
        (question,) = await home.approvals.list()
        kind[0] = EffectKind.GRANT
        outcome = await home.turns.wait(await home.approvals.decide(question.id, approved=True))
        assert (outcome.state, done) == (TurnState.PARKED, [])


@pytest.mark.promise("M9", "H3")
async def test_a_grant_for_the_owner_alone_shows_nothing_to_who_is_with_them(tmp_path: Path):
    """H3: the owner speaks, and Anna hears; the grant was given while nobody else did."""
    async with open_home(tmp_path, tools=TOOLS) as home:
        await home.agents.create("aria")
        await home.people.create("anna")
        await home.people.link("anna", "chat:anna")
        await home.people.link("owner", "chat:boss")
        await home.grants.give("balance", agent="aria")
        here = {"channel": "chat", "sender": "boss", "reply_to": "boss"}
        alone = await home.agents.ask("aria", called("balance"), **here)
        assert alone.state is TurnState.DONE
        kitchen = {**here, "room": "kitchen", "present": ["anna"]}
        await is_asked(home, await home.agents.ask("aria", called("balance"), **kitchen))


@pytest.mark.promise("M13")
async def test_forgetting_drops_what_tools_hold_in_memory(tmp_path: Path):
    """M2: each of them, although results are passed by the tombstones, too."""
    policy = '[[policy]]\nname = "pages"\nverdict = "allow"\ntools = ["web"]\n'
    (tmp_path / "authorizations.toml").write_text(policy)
    async with serving() as site:
        wanted = {"web": {"allow": [f"127.0.0.1:{site.port}"]}}
        async with open_home(tmp_path, settings=wanted) as home:
            await home.agents.create("aria")
            (await workspace(home) / "notes.md").write_text(f"{CANARY}\n")
            await call(home, "shell", operation="spawn", command="echo tea; sleep 300")
            await call(home, "file", operation="load", path="notes.md")
            page = site.text("/a", "<p>tea</p>")
            await call(home, "web", operation="fetch", query=page)

            async def said() -> bool:
                return "\ntea" in await call(home, "shell", operation="status")

            await until(said)
            await home.memory.forget(WHAT)
            assert await call(home, "file", operation="status") == "No file is loaded."
            status = await call(home, "shell", operation="status")
            assert "was dropped when something was forgotten" in status
            assert "tea" not in status
            await call(home, "web", operation="fetch", query=page)
            assert site.asked == ["/a", "/a"]


@pytest.mark.promise("M9")
async def test_a_plan_is_cancelled_by_nobody_who_may_not_hear_of_it(tmp_path: Path):
    async with open_home(tmp_path) as home:
        await home.agents.create("aria")
        plan = {"operation": "in", "when": "2 days", "message": "Buy the ring for Anna."}
        await home.agents.ask("aria", called("schedule", **plan))
        (one,) = await home.schedules.list("aria")
        cancel = called("schedule", operation="cancel", id=one.id)
        for sender in ("anna", "eve"):
            outcome = await home.agents.ask("aria", cancel, channel="chat", sender=sender)
            _, entries = await home.turns.get(outcome.turn_id)
            assert any(b"There is no schedule" in entry.body for entry in entries)
            assert "ring" not in "".join(entry.body.decode() for entry in entries)
            assert outcome.state is TurnState.DONE
        assert [each.id for each in await home.schedules.list("aria")] == [one.id]


@pytest.mark.promise("H1")
async def test_of_a_key_that_is_there_twice_the_question_has_the_value_that_counts(tmp_path: Path):
    """M8: in a short call nothing is cut, so that both would be seen."""

    @tool(ask=True)
    def send(to: str) -> str:
        """Send it."""
        return to

    model = ScriptedModel([calls(("send", '{"to": "eve", "to": "mallory"}')), "well"])
    async with open_home(tmp_path, model, tools=[send]) as home:
        await home.agents.create("aria")
        await home.agents.ask("aria", "go")
        (question,) = await home.approvals.list()
        assert "mallory" in question.question
        assert "eve" not in question.question + question.arguments
