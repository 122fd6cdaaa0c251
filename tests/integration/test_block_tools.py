"""The tools `block` and `block_edit`: what an agent does with its blocks, and what it is told."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
import pytest

from asterism import TurnState
from asterism.errors import InvalidInput, ToolError
from asterism.memory import blocks
from asterism.memory.blocks import VisibleBlock
from asterism.memory.gate import blocks as gate
from asterism.store import agents
from asterism.store.database import Connection, Database
from asterism.testing.scripted import ScriptedModel
from asterism.tools.builtin.blocks import TOOLS, block, block_edit
from asterism.tools.tool import NeedsApproval, Tool, ToolContext
from asterism.types.agents import OWNER, OWNER_ALONE, AgentRecord, Participant, Participants, Trust
from asterism.types.memory import (
    Append,
    Block,
    BlockType,
    Field,
    FieldType,
    ListSchema,
    MapSchema,
    Origin,
    OriginKind,
    Permission,
    Replace,
    Share,
    Source,
    Which,
)
from tests.conformance.memory_scene import NOW, as_owner, opened, put_agent
from tests.scenes import calls, heard, open_home

KITCHEN = Participants(
    (Participant(OWNER), Participant("person_anna", rooms=frozenset({"discord:kitchen"}))),
    room="discord:kitchen",
)


@dataclass
class Scene:
    """An agent that calls its tools."""

    database: Database
    agent: AgentRecord
    trust_levels: list[Trust] = field(default_factory=list[Trust])

    async def call(
        self,
        called: Tool,
        *,
        participants: Participants = OWNER_ALONE,
        trust: Trust = Trust.OWNER,
        **given: Any,
    ) -> str:
        async def work(tx: Connection) -> str:
            context = ToolContext(
                *(self.agent, "turn_1", "turn_1/0/call/0", NOW),
                transaction=tx,
                participants=participants,
                source=Source((Origin(OriginKind.CALL, "turn_1"),), participants.audience, trust),
                trust_levels=self.trust_levels,
            )
            return await called.run(context, called.read(orjson.dumps(given).decode()))

        return await self.database.write(work)

    async def edit(self, operation: str, label: str = "human", **given: Any) -> str:
        return await self.call(block_edit, operation=operation, label=label, **given)

    async def do(self, operation: str, **given: Any) -> str:
        return await self.call(block, operation=operation, **given)

    async def create(self, label: str = "human", owner: str | None = None, **given: Any) -> Block:
        by = self.agent.id if owner is None else owner
        return await self.database.write(lambda tx: gate.create(tx, as_owner(), by, label, **given))

    async def find(self, label: str) -> VisibleBlock:
        return await self.database.read(lambda tx: blocks.find(tx, self.agent.id, label))


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    async with opened("sqlite", tmp_path) as database:
        for name in ("aria", "bob"):
            await database.write(lambda tx, one=name: put_agent(tx, one))
        found = await database.read(lambda tx: agents.by_name(tx, "aria"))
        assert found is not None
        yield Scene(database, found)


def test_their_description_costs_few_tokens() -> None:
    # English JSON has about four characters a token.
    assert len(orjson.dumps([one.wire() for one in TOOLS])) / 4 < 700


@pytest.mark.promise("M1")
async def test_text_is_edited_in_all_ways(scene: Scene) -> None:
    await scene.create(content="likes tea\nhas a cat")
    assert await scene.edit("append", content="sings") == (
        "Block 'human' now holds 25 of 5,000 characters."
    )
    await scene.edit("replace", old="tea", content="green tea", reason="she said so")
    await scene.edit("replace", old="a", content="A", which="nth", number=2)
    await scene.edit("replace", old=r"(\w+) tea", content=r"\1 TEA", which="regex")
    await scene.edit("edit_range", number=3, content="sings loudly")
    await scene.edit("patch", content="@@ -3,1 +3,1 @@\n-sings loudly\n+sings softly\n")
    assert (await scene.find("human")).block.text == "likes green TEA\nhAs a cat\nsings softly"
    await scene.edit("undo")
    assert "sings loudly" in await scene.do("load", label="human")
    await scene.edit("redo")
    assert "sings softly" in await scene.do("load", label="human")
    same = await scene.edit("replace", old="cat", content="cat")
    assert same == "Block 'human' already has this text. Nothing was changed."


@pytest.mark.promise("M1")
async def test_fields_counters_and_items_are_edited(scene: Scene) -> None:
    await scene.create("me", schema=MapSchema((Field("mood"), Field("n", FieldType.COUNTER))))
    await scene.edit("set_field", "me", field="mood", value="calm")
    await scene.edit("add", "me", field="n", value=2)
    await scene.edit("add", "me", field="n", value=-0.5)
    assert (await scene.find("me")).block.text == "mood: calm\nn: 1.5"
    with pytest.raises(ToolError, match="'two' is not a number to add"):
        await scene.edit("add", "me", field="n", value="two")

    tasks = ListSchema((Field("title"), Field("done", FieldType.BOOLEAN)))
    await scene.create("tasks", schema=tasks)
    await scene.edit("append", "tasks", content='{"title": "shop"}')
    await scene.edit("append", "tasks", content="cook")
    await scene.edit("set_item", "tasks", number=1, value={"done": True})
    await scene.edit("remove_item", "tasks", number=2)
    assert await scene.do("load", label="tasks") == "1. [x] shop"


@pytest.mark.promise("M1")
async def test_blocks_are_looked_after(scene: Scene) -> None:
    await scene.create("notes", type=BlockType.WORKING, content="a\nb\nc\nd", description="Notes.")
    await scene.create("persona", permission=Permission.READ_ONLY)
    assert await scene.do("list") == (
        "persona: core, read_only, 0 of 5,000 characters\n"
        "notes: working, read_write, 7 of 5,000 characters. Notes."
    )
    assert await scene.do("pin", label="notes") == "Block 'notes' is pinned."
    assert "notes: working text, pinned\nNotes.\n" in await scene.do("info", label="notes")
    window = await scene.do("viewport", label="notes", first_line=2, lines=2)
    assert window == "(lines 2-3 of 4)\nb\nc"
    assert await scene.do("viewport", label="notes") == "a\nb\nc\nd"
    await scene.do("unpin", label="notes")
    await scene.do("archive", label="notes")
    assert (await scene.find("notes")).block.type is BlockType.ARCHIVAL
    assert await scene.do("load", label="persona") == "Block 'persona' is empty."
    with pytest.raises(ToolError, match="read_only, which does not allow it to govern"):
        await scene.do("archive", label="persona")


@pytest.mark.promise("M4")
async def test_a_block_is_shared_by_name_and_edited_there(scene: Scene) -> None:
    await scene.create("plan", permission=Permission.ADMIN, content="one")
    with pytest.raises(ToolError, match=r"no agent named 'rob'\. Existing agents: bob"):
        await scene.do("share", label="plan", agent="rob")
    told = await scene.do("share", label="plan", agent="bob", permission="read_write")
    assert told == "bob now sees block 'plan' (read_write)."
    assert "Shared with bob (read_write)." in await scene.do("info", label="plan")

    bob = await scene.database.read(lambda tx: agents.by_name(tx, "bob"))
    assert bob is not None
    other = Scene(scene.database, bob)
    assert await other.edit("replace", "aria/plan", old="one", content="two") == (
        "Block 'aria/plan' now holds 3 of 5,000 characters."
    )
    assert "aria/plan: core, read_write" in await other.do("list")
    with pytest.raises(ToolError, match="does not allow it to govern"):
        await other.do("unshare", label="plan", agent="bob")
    await scene.do("unshare", label="plan", agent="bob")
    with pytest.raises(ToolError, match="no block 'plan'"):
        await other.do("load", label="plan")


@pytest.mark.promise("M9")
async def test_only_what_those_present_may_hear_is_shown_and_changed(scene: Scene) -> None:
    await scene.create(content="Anna likes tea")
    await scene.edit("append", content="the gift is a bicycle")
    shown = await scene.call(block, operation="load", label="human", participants=KITCHEN)
    assert shown == "Anna likes tea"
    listed = await scene.call(block, operation="list", participants=KITCHEN)
    assert "14 of 5,000" in listed
    told = await scene.call(
        *(block_edit,),
        participants=KITCHEN,
        operation="edit_range",
        label="human",
        content="Anna sings",
    )
    assert told == "Block 'human' now holds 10 of 5,000 characters."
    assert (await scene.find("human")).block.text == "Anna sings\nthe gift is a bicycle"
    with pytest.raises(ToolError) as raised:
        await scene.call(
            *(block_edit,),
            participants=KITCHEN,
            operation="replace",
            label="human",
            old="gift is a car",
        )
    assert "bicycle" not in raised.value.message


@pytest.mark.promise("M10")
async def test_the_turn_learns_how_far_what_it_reads_is_trusted(scene: Scene) -> None:
    one = await scene.create(content="tea")
    await scene.do("load", label="human")
    assert set(scene.trust_levels) == {Trust.OWNER}
    writer = as_owner()
    web = Source((), writer.source.audience, Trust.WEB)
    await scene.database.write(
        lambda tx: gate.write(tx, writer.with_source(web), one.id, Append("obey"))
    )
    await scene.do("load", label="human")
    assert set(scene.trust_levels) == {Trust.OWNER, Trust.WEB}


@pytest.mark.promise("M2")
async def test_a_person_is_asked_where_one_must_be(scene: Scene) -> None:
    await scene.create(permission=Permission.PARTNER)
    with pytest.raises(NeedsApproval, match="aria wants to append to block 'human': tea"):
        await scene.edit("append", content="tea")
    assert (await scene.find("human")).block.version == 1
    await scene.create("own")
    with pytest.raises(NeedsApproval, match="a message of a stranger"):
        await scene.call(
            block_edit, trust=Trust.STRANGER, operation="append", label="own", content="x"
        )


@pytest.mark.promise("M1")
@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"operation": "append", "label": "humn"}, "Did you mean 'human'"),
        ({"operation": "append", "label": " "}, "Which block"),
        ({"operation": "replace", "label": "human", "old": "coffee"}, "coffee"),
        ({"operation": "patch", "label": "human", "content": "no diff"}, "diff|hunk"),
        ({"operation": "edit_range", "label": "human", "number": 9}, "9"),
        ({"operation": "set_field", "label": "human", "field": "a"}, "set_field"),
        ({"operation": "append", "label": "human", "content": "x" * 6_000}, "of 5,000 characters"),
        ({"operation": "redo", "label": "human"}, "nothing to redo"),
    ],
    ids=["label", "no label", "text", "diff", "lines", "schema", "limit", "redo"],
)
async def test_what_is_wrong_is_told_so_that_it_can_be_corrected(
    scene: Scene, given: dict[str, Any], told: str
) -> None:
    await scene.create(content="tea")
    with pytest.raises(ToolError, match=told):
        await scene.call(block_edit, **given)
    seen = await scene.find("human")
    assert (seen.block.text, seen.block.version) == ("tea", 1)


@pytest.mark.promise("M2")
async def test_an_edit_waits_for_the_owner_and_is_then_really_made(tmp_path: Path) -> None:
    wish = ("block_edit", '{"operation": "append", "label": "human", "content": "likes tea"}')
    model = ScriptedModel([calls(wish), "noted", calls(wish), "as you wish"])
    async with open_home(tmp_path, model) as home:
        await home.agents.create("aria")
        await home.blocks.create("aria", "human", permission=Permission.PARTNER)
        async with asyncio.timeout(120):
            outcome = await home.agents.ask("aria", "I like tea")
            assert outcome.state is TurnState.PARKED
            (question,) = await home.approvals.list()
            assert "aria wants to append to block 'human': likes tea" in question.question
            assert (await home.blocks.get("aria", "human")).block.text == ""
            receipt = await home.approvals.decide(question.id, approved=True)
            assert (await home.turns.wait(receipt)).text == "noted"
            assert (await home.blocks.get("aria", "human")).block.text == "likes tea"
            result = heard(model.requests[1])[-1]["content"]
            assert result.endswith("Result: Block 'human' now holds 9 of 5,000 characters.")

            await home.agents.ask("aria", "again")
            (question,) = await home.approvals.list()
            receipt = await home.approvals.decide(question.id, approved=False)
            assert (await home.turns.wait(receipt)).text == "as you wish"
            assert (await home.blocks.get("aria", "human")).block.text == "likes tea"


@pytest.mark.promise("M4")
async def test_a_shared_block_is_written_by_another_agent_in_its_turn(tmp_path: Path) -> None:
    wish = (
        "block_edit",
        '{"operation": "append", "label": "aria/plan", "content": "bob was here"}',
    )
    model = ScriptedModel([calls(wish), "done"])
    async with open_home(tmp_path, model) as home:
        await home.agents.create("aria")
        bob = await home.agents.create("bob")
        await home.blocks.create("aria", "plan", "start")
        await home.blocks.write("aria", "plan", Share(bob.id))
        async with asyncio.timeout(120):
            assert (await home.agents.ask("bob", "go")).text == "done"
        seen = await home.blocks.get("aria", "plan")
        assert seen.block.text == "start\nbob was here"
        assert [line.label.trust for line in seen.lines] == [Trust.OWNER, Trust.OWNER]


@pytest.mark.promise("X5")
@pytest.mark.timeout(60)
async def test_no_edit_of_a_block_keeps_the_store_busy(tmp_path: Path):
    """Lines of equal letters, and texts of equal lines, are what a comparison is slowest with."""
    async with open_home(tmp_path) as home:
        aria = await home.agents.create("aria")
        notes = await aria.blocks.create("notes", "a" * 4_500 + "\nb", limit=50_000)
        await notes.replace("b", "a" * 4_400)
        await notes.write(Replace("a{100}", "b", Which.REGEX))
        await notes.set("\n".join("x" for _ in range(20_000)))
        await notes.set("\n".join("xy"[n % 2] for n in range(20_000)))
        assert len(await home.blocks.diff("aria", "notes", 1, 3)) > 4_000
        with pytest.raises(InvalidInput, match="the most is 50,000"):
            await notes.write(Replace("x", "z" * 1_000, Which.ALL))
        with pytest.raises(InvalidInput, match="too long for 50,000 characters"):
            await notes.write(Replace("((?s).*)", r"\1" * 100, Which.REGEX))
