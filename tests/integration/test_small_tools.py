"""The tools `send_message`, `source`, `think` and `halt`, called by a model in turns."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pytest

from asterism import Asterism, TurnState
from asterism.cli import run
from asterism.errors import Conflict
from asterism.store import agents, journal, messages
from asterism.store.database import Connection
from asterism.testing.channel import MemoryChannel
from asterism.testing.clock import ManualClock
from asterism.tools.builtin.control import halt, think
from asterism.tools.builtin.memory import source
from asterism.tools.builtin.send import send_message
from asterism.types.turns import EntryKind, MessageOrigin
from tests.scenes import PATIENCE, obedient, open_home, until

TOOLS = [send_message, source, think, halt]
ANNA = {"channel": "test", "sender": "anna", "reply_to": "anna"}


@dataclass
class Scene:
    home: Asterism
    channel: MemoryChannel
    clock: ManualClock

    async def call(
        self, tool: str, agent: str = "aria", said_by: dict[str, Any] | None = None, **given: Any
    ) -> str:
        """Have an agent call a tool; return the call's result."""
        text = f"[[call:{tool} {orjson.dumps(given).decode()}]]"
        await self.home.agents.ask(agent, text, **(said_by or {}))
        record = (await self.home.turns.list(agent))[0]
        entries = await self.home.database.read(lambda tx: journal.entries_of(tx, record))
        (result,) = [entry for entry in entries if entry.kind is EntryKind.RESULT]
        return orjson.loads(result.body)["content"]

    async def send(self, target: Any, content: str = "hello", **more: Any) -> str:
        return await self.call("send_message", target=target, content=content, **more)

    async def waiting(self) -> int:
        return len(
            await self.home.database.read(lambda tx: messages.list_deliveries(tx, None, 100))
        )


@pytest.fixture
async def scene(tmp_path: Path, clock: ManualClock) -> AsyncIterator[Scene]:
    channel = MemoryChannel()
    async with open_home(tmp_path, tools=TOOLS, clock=clock, channels={"test": channel}) as home:
        await home.agents.create("aria")
        await home.agents.create("bob")
        yield Scene(home, channel, clock)


# -- send_message ----------------------------------------------------------------------------------


@pytest.mark.promise("S1")
@pytest.mark.parametrize(
    "target",
    [
        {"type": "user"},
        {"type": "user", "id": "owner"},
        {"target_type": "user", "target_id": None},
        {"type": "human"},
        {},
        "user",
        None,
    ],
)
async def test_the_owner_finds_a_message_among_the_notices(scene: Scene, target: Any):
    assert "as a notice" in await scene.send(target, "The roof leaks.")
    (notice,) = await scene.home.notices.list()
    assert (notice.kind, notice.text) == ("message", "The roof leaks.")


@pytest.mark.promise("S1")
async def test_the_owner_is_reached_where_they_have_an_account(scene: Scene):
    await scene.home.people.link("owner", "test:me")
    assert await scene.send({"type": "user"}, "The roof leaks.") == ("Sent to your owner in test.")
    await until(lambda: bool(scene.channel.delivered))
    (delivery,) = scene.channel.delivered
    assert (delivery.target, delivery.text) == ("me", "The roof leaks.")


@pytest.mark.promise("S1")
async def test_who_is_there_alone_is_reached_there(scene: Scene):
    await scene.home.people.create("Anna")
    await scene.home.people.link("Anna", "test:anna")
    found = await scene.send({"type": "user", "id": "Anna"}, said_by=ANNA)
    assert found == "Sent to Anna in test."
    await until(lambda: len(scene.channel.delivered) > 1)
    assert {one.target for one in scene.channel.delivered} == {"anna"}
    assert "hello" in [one.text for one in scene.channel.delivered]


@pytest.mark.promise("S1", "M9")
async def test_nobody_is_told_what_they_may_not_hear_unless_the_owner_says_so(scene: Scene):
    await scene.home.agents.ask("aria", "Hi.", **ANNA)
    await until(lambda: len(scene.channel.delivered) == 1)
    for target in ({"type": "user", "id": "test:anna"}, {"type": "channel", "id": "test:anna"}):
        before = len(scene.channel.delivered)
        assert "Waiting for approval" in await scene.send(target, "The safe's code is 1234.")
        (question,) = await scene.home.approvals.list()
        assert "The safe's code is 1234." in question.question
        assert await scene.waiting() == 0
        await scene.home.approvals.decide(question.id, approved=True)
        await until(lambda at=before: len(scene.channel.delivered) > at)
        assert scene.channel.delivered[-1].text == "The safe's code is 1234."


@pytest.mark.promise("S1")
async def test_another_agent_reads_it_in_a_turn_of_its_own(scene: Scene):
    found = await scene.send({"target_type": "agent", "target_id": "bob"}, "Water the plants.")
    assert found == "Sent to bob, which reads it in its own turn."

    async def read() -> bool:
        turns = await scene.home.turns.list("bob")
        return bool(turns) and turns[0].state is TurnState.DONE

    await until(read)
    record = (await scene.home.turns.list("bob"))[0]
    entries = await scene.home.database.read(lambda tx: journal.entries_of(tx, record))
    assert "[from agent aria] Water the plants." in entries[0].body.decode()


async def test_an_agent_is_not_flooded(tmp_path: Path, clock: ManualClock):
    async with open_home(tmp_path, tools=TOOLS, clock=clock) as home:
        await home.agents.create("aria")
        bob = await home.agents.create("bob")
        scene = Scene(home, MemoryChannel(), clock)

        async def wait_there(tx: Connection) -> None:
            await messages.put_message(
                *(tx, bob.id, "msg_1", b"{}", MessageOrigin("agent:aria"), clock()),
                announce=False,  # so that it stays in the inbox
            )

        await home.database.write(wait_there)
        assert "has not read yet" in await scene.send({"type": "agent", "id": "bob"})


@pytest.mark.parametrize(
    ("target", "content", "said"),
    [
        ({"type": "agent", "id": "carl"}, "x", "There is no other agent named 'carl'"),
        ({"type": "agent", "id": "aria"}, "x", "Other agents: bob."),
        ({"type": "group", "id": "all"}, "x", "There is no group 'all'"),
        ({"type": "discord", "id": "1"}, "x", "There is no channel 'discord'. There are: test."),
        ({"type": "bluesky", "id": "1"}, "x", "There is no channel 'bluesky'. There are: test."),
        ({"type": "channel", "id": "test"}, "x", "Where in test?"),
        ({"type": "user", "id": "carl"}, "x", "Nothing was sent."),
        ({"type": "user"}, " ", "What should the message say?"),
        ({"type": "user"}, "x" * 20_001, "the limit is 20,000"),
        ({"type": "pigeon"}, "x", "do not fit send_message"),
        (7, "x", "do not fit send_message"),
    ],
)
async def test_what_cannot_be_sent_says_why(scene: Scene, target: Any, content: str, said: str):
    found = await scene.send(target, content)
    assert found.startswith("Error: ")
    assert said in found
    assert await scene.waiting() == 0


async def test_other_spellings_are_taken(scene: Scene):
    target, metadata = {"type": "AGENT", "id": "bob"}, {"a": 1}
    given: dict[str, Any] = {"target": target, "message": "hello", "metadata": metadata}
    assert "Sent to bob" in await scene.call("send_message", **given)
    (effect,) = send_message.effects(send_message.read(orjson.dumps(given).decode()))
    assert (effect.kind.value, effect.recipients, effect.content) == ("send", ("bob",), ("hello",))


# -- source ----------------------------------------------------------------------------------------


@pytest.mark.promise("S1")
async def test_a_source_rests_and_is_read_again(
    scene: Scene, tmp_path_factory: pytest.TempPathFactory
):
    notes = tmp_path_factory.mktemp("notes")
    (notes / "a.md").write_text("# Tea\n\nGreen tea is good.\n")
    await scene.home.sources.add("notes", notes, agents=["aria"])
    await scene.home.sources.sync("notes")
    listed = await scene.call("source", operation="list")
    assert listed.startswith("notes: 1 document, 1 passages, read on ")
    assert "is paused" in await scene.call("source", op="pause", source_id="notes")
    assert "paused" in await scene.call("source", operation="status", name="notes")
    with pytest.raises(Conflict, match="is paused"):
        await scene.home.sources.sync("notes")
    assert "already" in await scene.call("source", operation="pause", name="notes")
    assert "read again" in await scene.call("source", operation="resume", name="notes")
    await scene.home.sources.sync("notes")


async def test_sources_of_others_are_not_there(
    scene: Scene, tmp_path_factory: pytest.TempPathFactory
):
    notes = tmp_path_factory.mktemp("notes")
    await scene.home.sources.add("notes", notes, agents=["bob"])
    assert await scene.call("source", operation="list") == "You have no sources."
    found = await scene.call("source", operation="pause", name="notes")
    assert found == "Error: There is no source 'notes'. Set `name` to one of: none."


async def test_a_thought_changes_nothing(scene: Scene):
    assert await scene.call("think", thought="Tea first.") == "Noted."


# -- halt ------------------------------------------------------------------------------------------


@pytest.mark.promise("S1")
async def test_only_an_agent_whose_tools_name_it_can_halt(scene: Scene):
    assert "there is no tool 'halt'" in await scene.call("halt", reason="I am bored.")
    assert b'"halt"' not in (scene.home.toolbox.wire(None) or b"")
    assert b'"halt"' in (scene.home.toolbox.wire(("halt",)) or b"")


@pytest.mark.promise("S1")
async def test_a_halt_stands_through_a_restart_until_the_owner_lets_go(
    tmp_path: Path, clock: ManualClock
):
    async with open_home(tmp_path, tools=TOOLS, clock=clock) as home:
        await home.agents.create("aria")
        await home.agents.create("anchor", tools=["halt"])
        scene = Scene(home, MemoryChannel(), clock)
        told = await scene.call("halt", "anchor", reason="aria is being abused.")
        assert told == "Everything is halted after this turn. The owner has been told."
        (notice,) = await home.notices.list()
        assert "anchor has halted everything (critical): aria is being abused." in notice.text
        waiting = await home.agents.send("aria", "Hello?")
        assert (await home.turns.outcome(waiting.turn_id)).state is TurnState.WAITING
    async with open_home(tmp_path, tools=TOOLS, clock=clock) as home:
        found = await home.halts.current()
        assert found is not None
        assert found.reason == "aria is being abused."
        assert await home.database.read(messages.count) == 1
        await home.halts.resume()
        outcome = await home.turns.wait(waiting)
        assert outcome.state is TurnState.DONE
        with pytest.raises(Conflict, match="Nothing is halted"):
            await home.halts.resume()


async def test_a_halt_needs_a_reason(scene: Scene):
    await scene.home.agents.create("anchor", tools=["halt"])
    assert "Why shall everything stop?" in await scene.call("halt", "anchor", reason=" ")
    assert await scene.home.database.read(agents.current_halt) is None


async def test_a_halt_stops_turns_under_way(tmp_path: Path, clock: ManualClock):
    async with open_home(tmp_path, obedient(delay=PATIENCE), tools=TOOLS, clock=clock) as home:
        await home.agents.create("aria")
        receipt = await home.agents.send("aria", "Take your time.")
        await until(lambda: home._engine.runtime.is_running(receipt.turn_id))  # pyright: ignore[reportPrivateUsage] - to know that it is under way
        await home.halts.halt("enough")
        async with asyncio.timeout(PATIENCE / 2):
            outcome = await home.turns.wait(receipt)
        assert "Everything was halted: enough" in outcome.text


async def test_halt_and_resume_by_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    place = ["--data", str(tmp_path)]

    async def typed(*words: str) -> tuple[int, str]:
        code = await asyncio.to_thread(run, [*place, *words])
        told = capsys.readouterr()
        return code, told.out + told.err

    assert await typed("halt", "the roof burns") == (
        0,
        'All agents are halted. "asterism resume" lets them continue.\n',
    )
    code, told = await typed("resume")
    assert code == 0
    assert "the roof burns" in told
    code, told = await typed("resume")
    assert code != 0
    assert "Nothing is halted. Nothing was changed." in told
