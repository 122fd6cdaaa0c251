"""A home for somebody else: all that it has is judged as that person, and it has nothing more."""

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from asterism import tool
from asterism.errors import NotAllowed
from asterism.permissions import Act, Actor
from asterism.testing.clock import ManualClock
from asterism.types.agents import Account, Trust
from asterism.types.permissions import ToolEffect
from asterism.types.turns import TurnState
from tests.hostile import Attempt, Scene
from tests.scenes import open_home

pytestmark = pytest.mark.promise("X2")

PLAIN = {"check_verb", "find_verb", "is_unlimited", "may_use"}
"""What is neither a verb nor a noun, and tells nothing that is stored."""


def person(*roles: str, name: str = "anna") -> Actor:
    return Actor("person", f"person_{name}", name, Trust.KNOWN, frozenset(roles))


def parts_of(home: Any) -> Iterator[tuple[str, Any]]:
    """Yield all that a home offers to whoever has it."""
    for name in dir(cast("type[Any]", type(home))):
        if not name.startswith("_"):
            yield name, getattr(home, name)
    held = cast("dict[str, Any]", vars(home))
    yield from ((name, value) for name, value in held.items() if not name.startswith("_"))


def has_verbs(value: Any) -> bool:
    kind = cast("type[Any]", type(value))
    return any(hasattr(getattr(kind, name, None), "verb") for name in dir(kind))


@pytest.mark.parametrize("used", [True, False], ids=["used before", "fresh"])
async def test_all_that_a_home_for_somebody_else_has_is_judged_as_theirs(
    tmp_path: Path, used: bool
) -> None:
    async with open_home(tmp_path, work=False) as home:
        if used:  # all nouns of the owner are there
            assert len([name for name, _ in parts_of(home)]) > 20
        anna = person("viewer")
        theirs = home.acting_as(anna)
        nouns = 0
        for name, value in parts_of(theirs):
            if has_verbs(value):
                nouns += 1
                assert value._session.actor is anna, name
                _all_judged(name, value)
            elif not hasattr(value, "verb"):
                assert name in PLAIN, f"{name} of a home is not judged"
    assert nouns >= 15


def _all_judged(noun: str, value: Any) -> None:
    for name in dir(cast("type[Any]", type(value))):
        if not name.startswith("_"):
            member = inspect.getattr_static(value, name)
            assert hasattr(member, "verb"), f"{noun}.{name} is not judged"


@pytest.mark.parametrize("used", [True, False], ids=["used before", "fresh"])
async def test_every_verb_is_refused_to_somebody_without_a_role(tmp_path: Path, used: bool) -> None:
    refused = 0
    async with open_home(tmp_path, work=False) as home:
        early = home.acting_as(person())
        scene = await Scene.make(home)
        theirs = home.acting_as(person()) if used else early
        for attempt, act in _calls(Scene(cast("Any", theirs), scene.fits)):
            if act is Act.TALK:  # everybody may
                continue
            with pytest.raises(NotAllowed, match="anna"):
                await attempt.run()
            refused += 1
    assert refused > 90


def _calls(scene: Scene) -> Iterator[tuple[Attempt, Act]]:
    seen: set[str] = set()
    for attempt in scene.attempts(["None"]):
        if attempt.verb not in seen:
            seen.add(attempt.verb)
            usual = scene._usual(attempt.verb, attempt.method)  # pyright: ignore[reportPrivateUsage] - of this test's own scene
            yield Attempt(attempt.verb, attempt.method, usual, (), attempt.verb), _act(attempt)


def _act(attempt: Attempt) -> Act:
    return cast("tuple[Act, str]", getattr(attempt.method, "verb"))[0]  # noqa: B009 - set on functions


@tool(effects=ToolEffect("pay", recipients="to", amount="euros"), ask=True)
def pay(to: str, euros: int) -> str:
    """Pay somebody."""
    return f"paid {euros} to {to}"


async def test_nobody_answers_a_question_for_somebody_else(tmp_path: Path) -> None:
    async with open_home(tmp_path, tools=[pay], clock=ManualClock()) as home:
        await home.agents.create("aria")
        ada = await home.people.create("ada", trust=Trust.KNOWN)
        await home.people.link("owner", "chat:owner")
        outcome = await home.agents.ask("aria", '[[call:pay {"to": "eve", "euros": 5}]]')
        assert outcome.state is TurnState.PARKED
        (question,) = await home.approvals.list()
        theirs = home.acting_as(Actor("person", ada.id, "ada", ada.trust))
        said = await theirs.approvals.answer(
            question.id, approved=True, by=Account("chat", "owner"), place="chat:owner"
        )
        assert "may not answer" in said
        assert (await home.approvals.get(question.id)).decided_at_ms is None


async def test_a_home_for_somebody_else_has_the_servers_of_the_home(tmp_path: Path) -> None:
    """Whichever is used first: there is one set of MCP servers, keys and registered tools."""
    file = tmp_path / "asterism.toml"
    async with open_home(tmp_path, work=False, config=file if file.exists() else None) as home:
        theirs = home.acting_as(person("admin"))
        assert theirs.mcp.list() == []
        await theirs.keys.set("mail", "value-of-a-key")
        await theirs.tools.add("greet", "Greets.", {"properties": {}}, python="def run(): return 1")
        assert home.keys.get("mail") == "value-of-a-key"
        assert [one.spec.name for one in await home.tools.list()] == ["greet"]
        await home.tools.remove("greet")
        assert "greet" not in home.toolbox.names()
        other = home.acting_as(person("admin", name="ben"))
        assert other.keys.get("mail") == "value-of-a-key"
        assert vars(theirs.mcp)["_servers"] is vars(home.mcp)["_servers"]


async def test_an_id_of_somebody_else_does_not_lead_to_their_answer(tmp_path: Path) -> None:
    async with open_home(tmp_path) as home:
        await home.agents.create("aria")
        ada = await home.people.create("ada", trust=Trust.KNOWN)
        theirs = home.acting_as(Actor("person", ada.id, "ada", ada.trust))
        secret = await home.agents.ask("aria", "The code is 4711.", external_id="m-1")
        outcome = await theirs.agents.ask("aria", "What is the code?", external_id="m-1")
        assert outcome.turn_id != secret.turn_id
        assert "4711" not in outcome.text
        again = await theirs.agents.ask("aria", "What is the code?", external_id="m-1")
        assert again.turn_id == outcome.turn_id
