"""Who compacts or restarts a context reads, ends and pays for what is theirs, at every door."""

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from asterism import Asterism, TurnState
from asterism.api.mcp_tools import TOOLS
from asterism.errors import Conflict, NotAllowed
from asterism.ports import ModelRequest
from asterism.store.database import Row
from asterism.testing.postgres import postgres_server
from asterism.testing.scripted import ScriptedModel
from asterism.types.memory import Append
from asterism.types.turns import Reply, Usage
from tests.api_scene import api_client
from tests.scenes import open_home

pytestmark = [pytest.mark.promise("M9"), pytest.mark.promise("X1")]

SECRET = "canary-7731"
PRICES = {"scripted:one": {"input": 5.0, "output": 125.0}}


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def store(request: pytest.FixtureRequest) -> Any:
    if request.param == "sqlite":
        yield {}
        return
    with postgres_server().database() as url:
        yield {"store": {"url": url}}


@pytest.fixture
async def home(tmp_path: Path, store: dict[str, Any]) -> AsyncGenerator[Asterism]:
    model = ScriptedModel.from_rule(_answer)
    settings = {"prices": PRICES, "budget": {"day": 100.0, "each_person": {"day": 50.0}}, **store}
    async with open_home(tmp_path, model, settings=settings) as one:
        await one.agents.create("aria")
        for number in range(6):
            await one.agents.ask("aria", f"The safe code is {SECRET}-{number}.")
        yield one


def _answer(request: ModelRequest) -> Reply:
    """Answer shortly; sum up what was said with all of it."""
    said = repr(request.messages) if "/compact" in request.key else "I see."
    return Reply(said, usage=Usage(200, 10))


async def shown(home: Any) -> str:
    return repr((await home.contexts.now("aria")).messages)


@pytest.mark.parametrize("verb", ["compact", "restart"])
async def test_an_editor_neither_reads_nor_ends_the_owners_conversation(home: Asterism, verb: str):
    async with api_client(home, "editor") as editor:
        url = f"/api/agents/aria/context/{verb}"
        nothing = await editor.post(url)
        assert nothing.status_code == 409, nothing.text
        for number in range(6):
            said = {"text": f"My own word is tulip-{number}."}
            await editor.post("/api/agents/aria/ask", json=said)
        done = await editor.post(url)
        assert done.status_code == 200
        assert SECRET not in nothing.text + done.text
        assert verb == "restart" or "tulip" in done.text
    after = await shown(home)
    assert all(f"{SECRET}-{number}" in after for number in range(6))


async def test_the_owner_and_an_admin_work_on_the_owners_conversation(home: Asterism):
    async with api_client(home, "admin") as admin:
        done = await admin.post("/api/agents/aria/context/compact")
        assert done.json()["summary"]["messages"] > 0
    assert (await home.contexts.restart("aria")).messages > 0
    assert SECRET not in await shown(home)


async def test_model_calls_of_an_editor_count_for_the_editor(home: Asterism):
    anna = await home.people.create("anna", roles=["editor"])
    secret = (await home.tokens.create("anna", role="editor", person="anna")).secret
    theirs = await home.authenticate(secret)
    for number in range(6):
        asked = await theirs.agents.ask("aria", f"My own word is tulip-{number}.")
        assert asked.state is TurnState.DONE
    await theirs.contexts.compact("aria")
    charged = await _charges(home)
    assert [row[0] for row in charged] == [None] * 6 + [anna.id] * 7
    assert charged[-1][1].endswith("/compact")


async def test_an_editor_at_their_cap_has_no_model_asked(tmp_path: Path, store: dict[str, Any]):
    model = ScriptedModel.from_rule(lambda _: Reply("I see.", usage=Usage(200, 10)))
    settings = {"prices": PRICES, "context": {"tokens": 4_000}, **store}
    async with open_home(tmp_path, model, settings=settings) as home:
        await home.agents.create("aria")
        anna = await home.people.create("anna", roles=["editor"])
        secret = (await home.tokens.create("anna", role="editor", person="anna")).secret
        theirs = await home.authenticate(secret)
        for number in range(6):
            await theirs.agents.ask("aria", f"My own word is tulip-{number}.")
    settings["budget"] = {"persons": {anna.id: {"day": 0.0}}}
    async with open_home(tmp_path, model, settings=settings) as home:
        theirs = await home.authenticate(secret)
        asked = len(model.requests)
        assert (await theirs.agents.ask("aria", "Once more.")).state is TurnState.FAILED
        compacted = await theirs.contexts.compact("aria")
        assert compacted.summary.made_by == "rule"
        assert len(model.requests) == asked


async def _charges(home: Asterism) -> list[Row]:
    return await home.database.read(
        lambda tx: tx.all("SELECT person, turn_id FROM charges ORDER BY at, id")
    )


async def test_who_may_write_and_not_read_is_answered_without_what_was_there(home: Asterism):
    added = await home.archive.add("aria", f"The code is {SECRET}.")
    await home.blocks.create("aria", "diary", SECRET)
    turn = (await home.turns.list())[0].id
    scopes = ["append", "overwrite", "delete"]
    theirs = await home.authenticate((await home.tokens.create("w", scopes=scopes)).secret)
    compacted = await theirs.contexts.compact("aria")
    assert (compacted.summary.text, compacted.summary.messages > 0) == ("", True)
    written = [
        await theirs.blocks.write("aria", "diary", Append("more")),
        await theirs.blocks.create("aria", "diary", existing=True),
        await theirs.archive.append(added.passage.id, "More."),
        await theirs.archive.tag(added.passage.id, ["x"]),
        await theirs.archive.add("aria", f"The code is {SECRET}. More."),
        await theirs.archive.retract(added.passage.id),
        await theirs.contexts.restart("aria"),
    ]
    assert SECRET not in repr(written)
    with pytest.raises(NotAllowed, match="'read'"):
        await theirs.memory.revert_turn(turn)
    assert (await home.blocks.get("aria", "diary")).block.text == f"{SECRET}\nmore"


async def test_a_token_for_overwriting_alone_reads_nothing_over_http(home: Asterism):
    secret = (await home.tokens.create("w", scopes=["overwrite"])).secret
    async with api_client(home, None) as client:
        headers = {"authorization": f"Bearer {secret}"}
        answer = await client.post("/api/agents/aria/context/compact", headers=headers)
    assert answer.status_code == 200
    assert SECRET not in answer.text


async def test_no_other_door_compacts_a_context(home: Asterism):
    assert not any("context" in tool.name or "compact" in tool.name for tool in TOOLS)
    viewer = await home.authenticate((await home.tokens.create("v", role="operator")).secret)
    for verb in (viewer.contexts.compact, viewer.contexts.restart):
        with pytest.raises(NotAllowed):
            await verb("aria")
    with pytest.raises(Conflict):
        await home.contexts.restart((await home.agents.create("bea")).name)
