"""What owners do leaves an event each; an exported log verifies without asterism."""

import json
import re
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asterism import Asterism
from asterism.errors import NotFound
from asterism.memory.forgetting import Forgetting
from asterism.store import events
from asterism.store.events import Event
from asterism.types.agents import Trust
from asterism.types.memory import Append

PAGE = Path(__file__).parents[2] / "docs/how-to/audit.md"
FACT = st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1), st.text())


def verifier() -> Any:
    """The function that the documentation shows."""
    found = re.search(r"```python\n(import hashlib.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    assert found is not None
    names: dict[str, Any] = {}
    exec(found[1], names)
    return names["verify"]


@given(st.lists(FACT, max_size=7))
def test_facts_are_the_same_bytes_for_whoever_verifies(facts: list[str | int | None]):
    theirs = json.dumps(facts, separators=(",", ":"), ensure_ascii=False)
    assert orjson.dumps(facts) == theirs.encode()


@pytest.mark.promise("X2")
async def test_what_an_owner_does_is_in_the_log(tmp_path: Path):
    documents = tmp_path / "documents"
    documents.mkdir()
    (documents / "a.txt").write_text("Tea is drunk at five.")
    async with Asterism.open(tmp_path / "data", environ={}, work=False) as home:
        await home.agents.create("aria")
        await home.people.create("anna", roles=["family"])
        await home.people.set_trust("anna", Trust.STRANGER)
        await home.people.link("anna", "discord:4711")
        await home.people.unlink("discord:4711")
        await home.people.create("ann")
        await home.people.merge("anna", "ann")
        await home.blocks.create("aria", "human", "Likes tea.")
        await home.blocks.write("aria", "human", Append("And cake."), by="cli")
        written = await home.archive.add("aria", "The key is under the mat.")
        await home.archive.retract(written.passage.id)
        await home.sources.add("docs", documents, agents=["aria"])
        await home.sources.sync("docs")
        await home.sources.detach("docs", "aria")
        await home.sources.remove("docs")
        exported = await home.memory.export("aria")
        await home.memory.import_("aria", exported)
        await home.memory.forget(Forgetting(texts=("under the mat",)))
        found = await home.audit.list(limit=100)
        kinds = [one.kind for one in reversed(found) if one.kind != "agent.created"]
        assert kinds == [
            "person.created",
            "person.trusted",
            "person.linked",
            "person.unlinked",
            "person.created",
            "person.merged",
            "block.created",
            "block.written",
            "passage.added",
            "passage.retracted",
            "source.added",
            "source.read",
            "source.detached",
            "source.removed",
            "memory.imported",
            "memory.forgotten",
        ]
        written = next(one for one in found if one.kind == "block.written")
        assert written.body is not None
        assert (written.body["what"], written.body["by"]) == ("human", "cli")
        assert "cake" not in str(found)
        aria = await home.agents.get("aria")
        assert {one.agent_id for one in await home.audit.list(agent="aria")} == {aria.id}
        assert (await home.audit.verify()).sound


@pytest.mark.promise("X2")
async def test_what_did_not_happen_leaves_no_event(tmp_path: Path):
    async with Asterism.open(tmp_path, environ={}, work=False) as home:
        before = len(await home.audit.list())
        for attempt in (
            lambda: home.people.rename("nobody", "somebody"),
            lambda: home.people.unlink("discord:4711"),
            lambda: home.blocks.write(None, "nothing", Append("x")),
            lambda: home.archive.retract("passage_1"),
        ):
            with pytest.raises(NotFound):
                await attempt()
        assert len(await home.audit.list()) == before


@pytest.mark.promise("M13", "X2")
async def test_a_forgotten_person_is_in_no_event(tmp_path: Path):
    async with Asterism.open(tmp_path, environ={}, work=False) as home:
        person = await home.people.create("anna")
        await home.people.link("anna", "mail:anna.canary@example.org")
        await home.people.create("ben")
        await home.memory.forget(Forgetting(persons=(person.id,)))
        found = await home.audit.list(kind="person")
        assert [one.body is None for one in found] == [False, True, True]
        verified = await home.audit.verify()
        assert (verified.sound, verified.forgotten) == (True, 2)


@pytest.mark.promise("X2")
async def test_an_exported_log_verifies_without_asterism(tmp_path: Path):
    verify = verifier()
    file = tmp_path / "log.jsonl"
    async with Asterism.open(tmp_path / "data", environ={}, work=False) as home:
        agent = await home.agents.create("aria")
        odd = {"what": 'ä"\\\n\u2028\x7f', "n": 1.5, "forget": "a-canary-word"}
        made = [
            Event("call.done", "agent:ä\n", n, odd, agent.id, f"turn_{n}") for n in range(1_500)
        ]
        await home.database.write(lambda tx: events.append(tx, agent.id, made))
        await home.audit.anchor()
        await home.memory.forget(Forgetting(texts=("a-canary-word",)))
        with file.open("w", encoding="utf-8") as out:
            async for line in home.audit.export():
                out.write(line)
    assert verify(file)[agent.id] == 1_500
    lines = file.read_text("utf-8").splitlines(keepends=True)
    at = next(place for place, line in enumerate(lines) if '"call.done"' in line) + 5
    before, one, other, behind = lines[:at], lines[at], lines[at + 1], lines[at + 2 :]
    named = next(place for place, line in enumerate(lines) if '"audit.emptied"' in line)
    unnamed = json.dumps(json.loads(lines[named]) | {"body": None, "salt": None}) + "\n"
    for spoilt in (
        [*before, other, *behind],
        [*before, other, one, *behind],
        [*before, one.replace("call.done", "call.denied"), other, *behind],
        [*lines[:named], unnamed, *lines[named + 1 :]],
    ):
        file.write_text("".join(spoilt), "utf-8")
        with pytest.raises(AssertionError):
            verify(file)
