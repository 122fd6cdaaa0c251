"""Whoever acts by verbs sees what they may see themselves, whatever their role; an admin sees all.

One scene holds the same secret of the owner's wherever a verb could show it.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
import pytest

from asterism import Asterism, ToolEffect, TurnState, tool
from asterism.app import (
    agents,
    archive,
    audit,
    blocks,
    contexts,
    keys,
    mcp,
    memory,
    people,
    rules,
    sources,
    spending,
    tools,
    turns,
)
from asterism.app.home import Home
from asterism.errors import AsterismError, NotAllowed, NotFound
from asterism.memory.forgetting import Forgetting
from asterism.permissions import Act, Actor
from asterism.testing.postgres import postgres_server
from asterism.types.agents import PUBLIC, HttpCall, Trust
from asterism.types.memory import Append, Describe, SetText
from asterism.types.permissions import Extent, Wish
from asterism.types.turns import PastMessage
from tests.scenes import open_home, until

pytestmark = [pytest.mark.promise("M9"), pytest.mark.promise("X2")]

LATER = datetime(2999, 1, 1, tzinfo=UTC)
SECRET = "Orchid"
ENGINES = ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)]


@tool(effects=ToolEffect("send", recipients="to"), ask=True)
def tell(to: str) -> str:
    """Tell somebody something."""
    return f"told {to}"


@dataclass
class Scene:
    """A home with a secret in every corner, and where it is."""

    home: Asterism
    anna: str
    turn: str = ""
    passage: str = ""
    open_passage: str = ""
    approval: str = ""
    waiting: str = ""
    event: str = ""

    def acting(self, *roles: str) -> Home:
        return self.home.acting_as(
            Actor("person", self.anna, "anna", Trust.KNOWN, frozenset(roles))
        )


def called(name: str, **arguments: Any) -> str:
    return f"[[call:{name} {orjson.dumps(arguments).decode()}]]"


@asynccontextmanager
async def opened(place: Path, engine: str) -> AsyncGenerator[Asterism]:
    server = {"command": "true", "env": {"TOKEN": SECRET}, "args": [SECRET], "enabled": False}
    with contextlib.ExitStack() as stack:
        given: dict[str, Any] = {"mcp": {"shop": server}}
        if engine == "postgres":
            given["store.url"] = stack.enter_context(postgres_server().database())
        async with open_home(place / "data", tools=[tell], settings=given) as home:
            yield home


async def set_up(home: Asterism, place: Path) -> Scene:
    await home.agents.create("aria")
    anna = await home.people.create("anna", roles=["family"])
    await home.people.link("anna", "chat:anna")
    scene = Scene(home, anna.id)
    await _blocks(scene)
    await _archive(scene, place)
    await _turns(scene)
    return scene


async def _blocks(scene: Scene) -> None:
    home = scene.home
    await home.blocks.create("aria", "diary", SECRET, audience="owner")
    await home.blocks.create("aria", "shared", "open words", audience="public")
    # In private, the agent adds a line that only the owner may see.
    line = called("block_edit", operation="append", label="shared", content=f"{SECRET} line")
    assert (await home.agents.ask("aria", line)).state is TurnState.DONE
    await home.blocks.create("aria", "menu", f"{SECRET} soup", audience="owner")
    await home.blocks.write("aria", "menu", SetText("tea"), reason=f"no {SECRET}")
    await home.blocks.write("aria", "menu", Describe(audience=PUBLIC))


async def _archive(scene: Scene, place: Path) -> None:
    home = scene.home
    scene.passage = (await home.archive.add("aria", SECRET)).passage.id
    scene.open_passage = (
        await home.archive.add("aria", "The door is green.", audience="public")
    ).passage.id
    gone = (await home.archive.add("aria", "To be forgotten.")).passage.id
    await home.memory.forget(Forgetting(passages=(gone,)), reason=f"{SECRET} wanted it")
    folder = place / SECRET
    folder.mkdir()
    (folder / f"{SECRET}.md").write_text(f"{SECRET} grows here.")
    await home.sources.add(SECRET, folder, agents=["aria"])
    await home.sources.sync(SECRET)
    await home.tools.add(
        "shop",
        "Buys.",
        {"type": "object", "properties": {}},
        http=HttpCall("https://example.org/buy", headers={"X-Key": SECRET}),
    )


async def _turns(scene: Scene) -> None:
    home = scene.home
    later = called("schedule", operation="in", when="2 days", message=SECRET)
    said = called("send_message", target={"type": "user", "id": ""}, content=SECRET)
    done = await home.agents.ask("aria", f"{SECRET} {later} {said}", channel="chat", reply_to="me")
    scene.turn = done.turn_id
    for answer in (True, None):
        asked = await home.agents.ask("aria", called("tell", to=f"{SECRET} {answer}"))
        assert asked.state is TurnState.PARKED
        (waits,) = await home.approvals.list()
        scene.approval = waits.id
        if answer:
            wish = Wish(Extent.RECIPIENT)
            await home.turns.wait(await home.approvals.decide(waits.id, approved=True, grant=wish))
    scene.event = next(
        f"{one.agent_id}:{one.number}"
        for one in await home.audit.list(kind="call", limit=500)
        if one.agent_id and SECRET in repr(one.body)
    )
    await home.halts.halt(f"{SECRET} is loose")
    scene.waiting = (await home.agents.send("aria", f"{SECRET} waits")).turn_id


@pytest.fixture(params=ENGINES)
async def scene(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Scene]:
    async with opened(tmp_path, request.param) as home:
        yield await set_up(home, tmp_path)


# -- every verb that reads -------------------------------------------------------------------------


async def _some(signals: Any) -> list[Any]:
    """Return the signals that come within a moment."""
    found: list[Any] = []
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(0.5), contextlib.aclosing(signals):
            async for one in signals:
                found += [one]
    return found


async def _lines(stream: Any) -> list[Any]:
    return [one async for one in stream]


Look = Callable[[Home, Scene], Awaitable[Any]]


def _value(value: Any) -> Awaitable[Any]:
    async def give() -> Any:
        return value

    return give()


TELLING: dict[str, Look] = {
    "turn.follow": lambda home, it: _some(home.turns.follow(it.turn)),
    "agent.watch": lambda home, it: _some(home.agents.watch("aria", after="x")),
    "turn.outcome": lambda home, it: home.turns.outcome(it.turn),
    "turn.list": lambda home, it: _each_turn(home),
    "turn.get": lambda home, it: home.turns.get(it.turn),
    "turn.waiting": lambda home, it: home.turns.waiting(),
    "notice.list": lambda home, it: home.notices.list(unseen=False),
    "outbox.list": lambda home, it: _deliveries(home),
    "schedule.list": lambda home, it: home.schedules.list("aria"),
    "home.current": lambda home, it: home.halts.current(),
    "block.list": lambda home, it: home.blocks.list("aria"),
    "block.get": lambda home, it: home.blocks.get("aria", "shared"),
    "block.editable": lambda home, it: home.blocks.editable("aria", "shared"),
    "block.history": lambda home, it: home.blocks.history("aria", "menu"),
    "block.at": lambda home, it: home.blocks.at("aria", "menu", version=1),
    "block.diff": lambda home, it: home.blocks.diff("aria", "menu", 1),
    "block.blame": lambda home, it: home.blocks.blame("aria", "shared"),
    "block.updates": lambda home, it: home.blocks.updates("aria", "shared"),
    "passage.list": lambda home, it: home.archive.list("aria"),
    "passage.get": lambda home, it: home.archive.get(it.passage),
    "passage.search": lambda home, it: home.archive.search("aria", SECRET.lower()),
    "search.list": lambda home, it: home.search("aria", SECRET.lower()),
    "memory.as_of": lambda home, it: home.memory.as_of("aria", LATER),
    "memory.why": lambda home, it: home.memory.why("shared", agent="aria"),
    "memory.health": lambda home, it: home.memory.health("aria"),
    "memory.receipts": lambda home, it: home.memory.receipts(),
    "memory.export": lambda home, it: home.memory.export("aria"),
    "memory.written_by": lambda home, it: _written(home, it.home),
    "context.now": lambda home, it: home.contexts.now("aria"),
    "context.of_turn": lambda home, it: home.contexts.of_turn(it.turn),
    "source.list": lambda home, it: home.sources.list(),
    "source.get": lambda home, it: home.sources.get(SECRET),
    "source.documents": lambda home, it: home.sources.documents(SECRET),
    "approval.list": lambda home, it: home.approvals.list(),
    "approval.answered": lambda home, it: home.approvals.answered(),
    "approval.get": lambda home, it: home.approvals.get(it.approval),
    "approval.show": lambda home, it: home.approvals.show(it.approval),
    "grant.list": lambda home, it: home.grants.list(),
    "audit.list": lambda home, it: home.audit.list(limit=500),
    "audit.get": lambda home, it: home.audit.get(it.event),
    "audit.export": lambda home, it: _lines(home.audit.export()),
    "mcp.list": lambda home, it: _value(home.mcp.list()),
    "tool.list": lambda home, it: home.tools.list(),
    "tool.versions": lambda home, it: home.tools.versions("shop"),
}
"""Verbs that show the owner the secret in this scene."""

SILENT: dict[str, Look] = {
    "turn.replay": lambda home, it: home.turns.replay(it.turn),
    "turn.unfinished": lambda home, it: home.turns.unfinished(),
    "turn.count": lambda home, it: home.turns.count("aria"),
    "turn.cost": lambda home, it: home.turns.cost(it.turn),
    "home.counts": lambda home, it: home.counts(),
    "agent.list": lambda home, it: home.agents.list(),
    "home.metrics": lambda home, it: home.metrics(),
    "home.check": lambda home, it: home.check(),
    "home.status": lambda home, it: home.status(),
    "search.check": lambda home, it: home.search.check(),
    "search.progress": lambda home, it: home.search.progress(),
    "spending.report": lambda home, it: home.spending.report(),
    "spending.caps": lambda home, it: home.spending.caps(),
    "block.shares": lambda home, it: home.blocks.shares("aria", "diary"),
    "block.version_at": lambda home, it: home.blocks.version_at("aria", "menu", LATER),
    "passage.history": lambda home, it: home.archive.history(it.passage),
    "audit.autonomy": lambda home, it: home.audit.autonomy(),
    "audit.names": lambda home, it: home.audit.names(),
    "audit.verify": lambda home, it: home.audit.verify(),
    "person.list": lambda home, it: home.people.list(),
    "person.rooms": lambda home, it: home.people.rooms(),
    "person.room": lambda home, it: home.people.room(SECRET),
    "person.get": lambda home, it: home.people.get("anna"),
    "person.participants": lambda home, it: home.people.participants(["anna"]),
    "person.audience": lambda home, it: home.people.audience("public"),
    "rule.list": lambda home, it: home.rules.list("aria"),
    "tool.sandbox": lambda home, it: home.tools.sandbox(),
    "tool.offered": lambda home, it: home.tools.offered(),
    "key.has": lambda home, it: _value(home.keys.has("openai")),
    "key.list": lambda home, it: home.keys.list(),
    "key.place": lambda home, it: _value(home.keys.place()),
}
"""Verbs whose results have no place for it, or that tell of it without its words."""


async def _each_turn(home: Home) -> list[Any]:
    return [await home.turns.get(one.id) for one in await home.turns.list()]


async def _deliveries(home: Home) -> list[Any]:
    return [one for state in ("waiting", "dead", "sent") for one in await home.outbox.list(state)]


async def _written(home: Home, owners: Asterism) -> str | None:
    """Return what each turn has written; that one has written a hidden line is a secret itself."""
    line = (await owners.blocks.blame("aria", "shared"))[1][1][0]
    assert line.turn_id is not None
    return SECRET if await home.memory.written_by(line.turn_id) else None


def reading_verbs() -> set[str]:
    nouns = [
        *(Asterism.__mro__[:-1]),
        *(turns.Approvals, archive.Archive, audit.Audit, blocks.Blocks, contexts.Contexts),
        *(turns.Grants, agents.Halts, keys.Keys, memory.Memory, people.People, rules.Rules),
        *(agents.Search, agents.Agents, sources.Sources, tools.Tools, mcp.Mcp, turns.Turns),
        *(turns.Notices, turns.Outbox, turns.Schedules, spending.SpendingReports),
    ]
    found = [getattr(one, "verb", None) for noun in nouns for one in vars(noun).values()]
    return {verb[1] for verb in found if verb is not None and verb[0] is Act.READ}


def test_every_verb_that_reads_is_tried():
    assert reading_verbs() == set(TELLING) | set(SILENT)
    assert not set(TELLING) & set(SILENT)


async def seen(look: Look, home: Home, scene: Scene) -> str:
    """Return all that a verb tells somebody, errors included."""
    try:
        return repr(await look(home, scene))
    except AsterismError as error:
        return error.message.replace(repr(SECRET), "'…'")  # what they have named themselves


NOUNS = sorted({name.partition(".")[0] for name in {**TELLING, **SILENT}})


@pytest.mark.parametrize("noun", NOUNS)
async def test_a_verb_shows_whoever_acts_what_they_may_hear(tmp_path: Path, noun: str):
    async with opened(tmp_path, "sqlite") as home:
        await look_around(await set_up(home, tmp_path), noun)


@pytest.mark.postgres
async def test_on_postgres_verbs_show_the_same(tmp_path: Path):
    async with opened(tmp_path, "postgres") as home:
        scene = await set_up(home, tmp_path)
        for noun in NOUNS:
            await look_around(scene, noun)


async def look_around(scene: Scene, noun: str) -> None:
    """Try all verbs of a noun, as the owner and as others."""
    verbs = {**TELLING, **SILENT}
    for name in (one for one in verbs if one.partition(".")[0] == noun):
        for role in ("viewer", "operator", "editor"):
            told = await seen(verbs[name], scene.acting(role, "family"), scene)
            assert SECRET not in told, f"{name} tells {role}"
        if name in TELLING:
            assert SECRET in await seen(verbs[name], scene.home, scene), name
            assert SECRET in await seen(verbs[name], scene.acting("admin"), scene), name


async def test_an_admin_who_may_not_govern_sees_no_more_than_others(tmp_path: Path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "authorizations.toml").write_text('[roles.admin]\nmay = ["read"]\n')
    async with opened(tmp_path, "sqlite") as home:
        scene = await set_up(home, tmp_path)
        assert SECRET not in repr(await scene.acting("admin").blocks.list("aria"))


async def test_what_they_may_hear_is_shown(scene: Scene):
    viewer, home = scene.acting("viewer"), scene.home
    found = await viewer.blocks.get("aria", "shared")
    assert found.block.text == "open words"
    assert [one.text for one in await viewer.blocks.at("aria", "shared")] == ["open words"]
    assert [one.text for one in await viewer.archive.list("aria")] == ["The door is green."]
    assert (await viewer.archive.get(scene.open_passage)).text == "The door is green."
    hits = await viewer.archive.search("aria", "green door")
    assert [one.text for one in hits] == ["The door is green."]
    await home.halts.resume()
    outcome = await home.agents.ask("aria", "Hello from anna.", channel="chat", sender="anna")
    assert [one.id for one in await viewer.turns.list()] == [outcome.turn_id]
    record, entries = await viewer.turns.get(outcome.turn_id)
    assert record.id == outcome.turn_id
    assert any(b"Hello from anna." in one.body for one in entries)
    assert (await viewer.turns.outcome(outcome.turn_id)).text == outcome.text
    await until(lambda: _is_found(viewer))


async def _is_found(viewer: Home) -> bool:
    return "Hello from anna." in repr(await viewer.search("aria", "hello from anna"))


async def test_nobody_hears_more_by_naming_others_as_present(scene: Scene):
    viewer = scene.acting("viewer")
    for present in (["owner"], ["owner", "anna"]):
        participants = await scene.home.people.participants(present)
        assert SECRET not in repr(await viewer.memory.export("aria", participants=participants))
        assert SECRET not in repr(
            await viewer.search("aria", SECRET.lower(), participants=participants)
        )
        assert SECRET not in repr(await viewer.contexts.now("aria", present=present))


async def test_who_does_not_hear_all_of_a_block_cannot_write_it(scene: Scene):
    editor = scene.acting("editor")
    with pytest.raises(NotAllowed, match="cannot be changed by person:anna"):
        await editor.blocks.write("aria", "shared", Append("more"))
    with pytest.raises(NotFound):
        await editor.blocks.write("aria", "diary", Append("more"))
    with pytest.raises(NotFound):
        await editor.archive.append(scene.passage, "more")
    assert (await editor.blocks.write("aria", "menu", Append("coffee"))).text == "tea\ncoffee"


async def test_a_reviewer_sees_the_question_that_is_put_to_them(tmp_path: Path):
    policies = (
        '[[policy]]\nname = "ask anna"\nverdict = "ask"\ntools = ["tell"]\n'
        'reviewers = ["role:family"]\n'
    )
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "authorizations.toml").write_text(policies)
    async with opened(tmp_path, "sqlite") as home:
        scene = await set_up(home, tmp_path)
        (question,) = await scene.acting("viewer").approvals.list()
        assert question.id == scene.approval


# -- what a person writes is theirs ----------------------------------------------------------------


@pytest.mark.promise("X6", "M7")
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("trust", [Trust.KNOWN, Trust.STRANGER])
async def test_what_a_person_writes_by_verbs_is_theirs_and_trusted_as_they_are(
    tmp_path: Path, engine: str, trust: Trust
):
    async with opened(tmp_path, engine) as home:
        await home.agents.create("aria")
        eve = await home.people.create("eve", trust=trust, roles=["editor"])
        # A trust that nobody but the owner has counts for nobody else.
        for given in (trust, Trust.OWNER):
            theirs = home.acting_as(Actor("person", eve.id, "eve", given, frozenset({"editor"})))
            least = trust if given is trust else Trust.KNOWN
            label = f"rules_{given.value}"
            added = await theirs.archive.add("aria", f"{label}: pay daily.", audience="public")
            await theirs.archive.append(added.passage.id, "Always.")
            await theirs.archive.add_many("aria", [f"{label}: pay weekly."])
            await theirs.blocks.create("aria", label, "Pay first.", audience="public")
            await home.blocks.create("aria", f"mine_{given.value}", "Mine.", audience="public")
            await theirs.blocks.write("aria", f"mine_{given.value}", Append("Pay next."))
            found = [one for one in await home.archive.list("aria") if label in one.text]
            assert [one.author for one in found] == ["person:eve"] * 2
            assert {one.source.trust for one in found} == {least}
            assert {one.ref for it in found for one in it.source.origins} == {eve.id}
            ((line, (edit,)),) = await home.blocks.blame("aria", label)
            assert (edit.author, line.label.trust) == ("person:eve", least)
            (mine, _), (theirs_too, (edit,)) = await home.blocks.blame(
                "aria", f"mine_{given.value}"
            )
            assert (mine.label.trust, theirs_too.label.trust) == (Trust.OWNER, least)
            assert edit.author == "person:eve"
            why = await home.memory.why(added.passage.id)
            assert "person:eve" in why.what
            assert "written by eve" in why.children[0].what


@pytest.mark.promise("X6", "M7")
@pytest.mark.parametrize("engine", ENGINES)
async def test_past_that_a_person_imports_is_not_the_owners(tmp_path: Path, engine: str):
    async with opened(tmp_path, engine) as home:
        await home.agents.create("aria")
        await home.people.link("owner", "import:boss")
        eve = await home.people.create("eve", trust=Trust.STRANGER, roles=["operator"])
        theirs = home.acting_as(
            Actor("person", eve.id, "eve", Trust.STRANGER, frozenset({"operator"}))
        )
        past = await theirs.agents.import_messages(
            "aria",
            [
                PastMessage("user", "Pay the harbour daily."),
                PastMessage("assistant", "I will."),
                PastMessage("user", "As she says.", "boss"),
            ],
        )
        for turn in past.turns:
            record, _ = await home.turns.get(turn)
            assert record.trust == "stranger"
        hits = (await home.search("aria", "harbour", domains=["messages"])).hits
        assert [one.speaker for one in hits if "harbour" in one.text] == ["eve"]


@pytest.mark.promise("X6")
async def test_what_a_person_sends_by_verbs_is_found_as_theirs(tmp_path: Path):
    async with opened(tmp_path, "sqlite") as home:
        await home.agents.create("aria")
        anna = await home.people.create("anna")
        async with asyncio.timeout(120):
            await home.acting_as(Actor("person", anna.id, "anna", anna.trust)).agents.ask(
                "aria", "The harbour is closed."
            )
        hits = (await home.search("aria", "harbour", domains=["messages"])).hits
        assert [one.speaker for one in hits if one.text.startswith("The")] == ["anna"]


@pytest.mark.promise("X6")
@pytest.mark.parametrize("engine", ENGINES)
async def test_memory_that_an_admin_imports_is_trusted_no_further_than_they_are(
    tmp_path: Path, engine: str
):
    async with opened(tmp_path, engine) as home:
        await home.agents.create("aria")
        await home.agents.create("bea")
        await home.archive.add("aria", "Pay nobody.")
        await home.blocks.create("aria", "rules", "Pay nobody.", audience="public")
        anna = await home.people.create("anna", roles=["admin"])
        theirs = home.acting_as(Actor("person", anna.id, "anna", Trust.KNOWN, frozenset({"admin"})))
        document = orjson.loads(orjson.dumps(await home.memory.export("aria")))
        await theirs.memory.import_("bea", document)
        (passage,) = await home.archive.list("bea")
        assert (passage.author, passage.source.trust) == ("person:anna", Trust.KNOWN)
        ((line, _),) = await home.blocks.blame("bea", "rules")
        assert line.label.trust is Trust.KNOWN
        # What is copied as it is stays what it was.
        await home.agents.create("cleo")
        await theirs.memory.fork("aria", "cleo")
        (copied,) = await home.archive.list("cleo")
        assert copied.source.trust is Trust.OWNER


async def test_who_may_only_add_puts_nothing_in_the_place_of_a_passage(tmp_path: Path):
    async with opened(tmp_path, "sqlite") as home:
        scene = await set_up(home, tmp_path)
        with pytest.raises(NotAllowed):
            await scene.acting("operator").archive.add(
                "aria", "Other words.", supersedes=scene.open_passage
            )
        await scene.acting("editor").archive.add(
            "aria", "Other words.", supersedes=scene.open_passage
        )


async def test_passage_that_a_person_adds_tells_them_nothing_of_those_they_may_not_hear(
    tmp_path: Path,
):
    async with opened(tmp_path, "sqlite") as home:
        scene = await set_up(home, tmp_path)
        await home.archive.add("aria", "The safe opens with 4711.")
        written = await scene.acting("operator").archive.add("aria", "The safe opens with 1234.")
        assert (written.kind, written.note) == ("stored", "")
