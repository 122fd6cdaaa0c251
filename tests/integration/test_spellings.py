"""Built-in tools: every operation, every spelling of it that models know, and what they cost."""

from collections.abc import AsyncIterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import orjson
import pytest
from tokenizers import Tokenizer

from asterism import Asterism
from asterism.memory.words import TOKENIZER_FILE
from asterism.store import journal
from asterism.testing.clock import ManualClock
from asterism.testing.scripted import ScriptedModel
from asterism.tools.builtin.blocks import block, block_edit
from asterism.tools.builtin.control import heartbeat, schedule, think
from asterism.tools.builtin.memory import expand, recall, search, source
from asterism.tools.builtin.meta import add_more_tool
from asterism.tools.builtin.send import send_message
from asterism.tools.builtin.web import web
from asterism.tools.calculator import calculator
from asterism.tools.tool import Tool, Toolbox
from asterism.types.memory import BlockType, Permission
from asterism.types.turns import EntryKind, Reply
from tests.scenes import calls, heard, open_home

TEXT = "one\ntwo\nthree\ntwo"
ALL: list[Tool] = [
    *(block, block_edit, recall, search, send_message, source, web, calculator),
    *(schedule, heartbeat, expand, think),
]


@pytest.fixture
async def home(tmp_path: Path, clock: ManualClock) -> AsyncIterator[Asterism]:
    async with open_home(tmp_path, tools=ALL, clock=clock) as home:
        await home.agents.create("aria")
        await home.agents.create("bob")
        await home.blocks.create("aria", "human", TEXT)
        await home.blocks.create("aria", "work", "busy", kind=BlockType.WORKING)
        await home.blocks.create("aria", "plan", "rest", kind=BlockType.WORKING)
        for label, agents in (("mine", ()), ("ours", ("bob",))):
            shared = dict.fromkeys(agents, Permission.APPEND)
            await home.blocks.create("aria", label, permission=Permission.ADMIN, shared_with=shared)
        yield home


async def call(home: Asterism, tool: str, arguments: dict[str, Any]) -> str:
    """Have the agent call a tool; return the call's result."""
    await home.agents.ask("aria", f"[[call:{tool} {orjson.dumps(arguments).decode()}]]")
    record = (await home.turns.list("aria"))[0]
    entries = await home.database.read(lambda tx: journal.entries_of(tx, record))
    (result,) = [entry for entry in entries if entry.kind is EntryKind.RESULT]
    return orjson.loads(result.body)["content"]


async def text_of(home: Asterism, label: str) -> str:
    return (await home.blocks.get("aria", label)).block.text


@pytest.mark.promise("S1", "M1")
@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"operation": "append", "label": "human", "content": "four"}, f"{TEXT}\nfour"),
        ({"op": "append", "name": "human", "text": "four"}, f"{TEXT}\nfour"),
        ({"action": "Append", "block": "human", "content": "four"}, f"{TEXT}\nfour"),
        (
            {"op": "replace", "label": "human", "old": "two", "new": "2"},
            "one\n2\nthree\ntwo",
        ),
        (
            {"op": "replace", "label": "human", "old": "two", "new": "2", "mode": "all"},
            "one\n2\nthree\n2",
        ),
        (
            {"op": "replace", "label": "human", "old": "2: two", "new": "2", "mode": "nth"},
            "one\ntwo\nthree\n2",
        ),
        (
            {
                "op": "replace",
                "label": "human",
                "old": "two",
                "new": "2",
                "mode": "nth",
                "number": 2,
            },
            "one\ntwo\nthree\n2",
        ),
        (
            {"op": "replace", "label": "human", "old": "t(..)ee", "new": r"\1", "mode": "regex"},
            "one\ntwo\nhr\ntwo",
        ),
        (
            {"op": "patch", "label": "human", "patch": "@@ -1,2 +1,2 @@\n one\n-two\n+2\n"},
            "one\n2\nthree\ntwo",
        ),
        (
            {"op": "edit_range", "label": "human", "content": "2-3: middle"},
            "one\nmiddle\ntwo",
        ),
        (
            {"op": "edit_range", "label": "human", "content": "2..4: rest"},
            "one\nrest",
        ),
        (
            {"op": "edit_range", "label": "human", "number": 2, "last": 3, "content": "middle"},
            "one\nmiddle\ntwo",
        ),
    ],
)
async def test_a_block_is_edited_in_every_spelling(
    home: Asterism, arguments: dict[str, Any], text: str
):
    assert "now holds" in await call(home, "block_edit", arguments)
    assert await text_of(home, "human") == text
    assert "now holds" in await call(home, "block_edit", {"op": "undo", "name": "human"})
    assert await text_of(home, "human") == TEXT
    assert "now holds" in await call(home, "block_edit", {"op": "redo", "label": "human"})
    assert await text_of(home, "human") == text


@pytest.mark.promise("S1")
async def test_a_patch_whose_context_is_not_there_changes_nothing(home: Asterism):
    wrong = {"op": "patch", "label": "human", "patch": "@@ -1,2 +1,2 @@\n four\n-two\n+2\n"}
    assert (await call(home, "block_edit", wrong)).startswith("Error: ")
    assert await text_of(home, "human") == TEXT


@pytest.mark.promise("S1")
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"operation": "load", "label": "human"}, "three"),
        ({"op": "load", "name": "human"}, "three"),
        ({"op": "info", "block": "human"}, "characters, version 1."),
        ({"op": "list"}, "work: working"),
        ({"op": "pin", "label": "work"}, "is pinned"),
        ({"op": "unpin", "label": "work"}, "no longer pinned"),
        ({"op": "archive", "label": "work"}, "is archived"),
        ({"op": "viewport", "label": "human", "start_line": 2, "display_lines": 1}, "two"),
        ({"op": "share", "label": "mine", "target_agent": "bob"}, "bob now sees"),
        ({"op": "unshare", "label": "ours", "target_agent": "bob"}, "no longer sees"),
        ({"op": "swap", "label": "work", "other": "plan"}, "'plan' is pinned.\nrest"),
    ],
)
async def test_blocks_are_looked_after_in_every_spelling(
    home: Asterism, arguments: dict[str, Any], said: str
):
    assert said in await call(home, "block", arguments)


@pytest.mark.promise("S1")
async def test_a_swap_is_done_whole_or_not_at_all(home: Asterism):
    for other in ("nothing", "work", ""):
        given = {"op": "swap", "label": "work", "other": other}
        assert (await call(home, "block", given)).startswith("Error: ")
    listed = await call(home, "block", {"op": "list"})
    assert "work: working" in listed
    await call(home, "block", {"op": "swap", "label": "work", "other": "plan"})
    listed = await call(home, "block", {"op": "list"})
    assert "work: archival" in listed
    assert "plan: working, pinned" in listed


@pytest.mark.promise("S1")
async def test_the_archive_is_kept_in_every_spelling(home: Asterism):
    given = {"op": "insert", "content": "The walrus is called Otto.", "metadata": {"from": "zoo"}}
    stored = await call(home, "recall", given)
    passage = stored.removeprefix("Stored as ").split(".")[0]
    assert "Otto" in await call(home, "recall", {"operation": "search", "query": "walrus"})
    assert "Otto" in await call(home, "recall", {"op": "read", "entry_id": passage})
    more = {"operation": "append", "id": passage, "content": "He is old.", "tags": "zoo, animals"}
    assert f"Appended to {passage}" in await call(home, "recall", more)
    assert "Otto" in await call(home, "recall", {"op": "search", "tags": ["zoo"], "limit": None})
    assert f"Retracted {passage}" in await call(home, "recall", {"op": "delete", "id": passage})
    assert "Nothing was found" in await call(home, "recall", {"op": "search", "query": "walrus"})


@pytest.mark.promise("S1", "M6")
async def test_exact_words_are_found_if_they_are_asked_for(home: Asterism):
    await home.archive.add("aria", "The walrus eats clams in the morning.")
    await home.archive.add("aria", "Sea animals like to eat.")
    near = await call(home, "search", {"query": "walrus eating", "domain": "archival_memory"})
    assert "clams" in near
    exact = {"query": "walrus eating", "domain": "archival_memory", "fuzzy": False}
    assert "fuzzy true searches more widely" in await call(home, "search", exact)
    exact["query"] = "Walrus EATS"
    found = await call(home, "search", exact)
    assert "clams" in found
    assert "Sea animals" not in found


@pytest.mark.parametrize(
    ("tool", "arguments", "said"),
    [
        ("schedule", {"op": "in", "time": "20 minutes", "content": "tea"}, "Scheduled for"),
        ("schedule", {"operation": "every", "cron": "0 9 * * *", "message": "tea"}, "Scheduled"),
        ("schedule", {"op": "list"}, "Nothing is scheduled."),
        ("calculator", {"expression": "1 + 1", "reset_context": True}, "2"),
        ("calculator", {"query": "1 + 1"}, "2"),
        ("think", {"thought": "hm"}, "Noted."),
        ("search", {"query": "one", "domain": "all", "limit": None, "fuzzy": None}, "block human"),
    ],
)
async def test_other_tools_are_called_in_other_spellings(
    home: Asterism, tool: str, arguments: dict[str, Any], said: str
):
    assert said in await call(home, tool, arguments)


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("block", {}),
        ("block", {"op": "explode", "label": "human"}),
        ("block", {"op": "load"}),
        ("block", {"op": "load", "label": "nothing"}),
        ("block", {"op": "viewport", "label": "human", "start_line": "two"}),
        ("block", {"op": "share", "label": "human", "agent": "nobody"}),
        ("block_edit", {"op": "append"}),
        ("block_edit", {"op": "replace", "label": "human", "old": "four", "new": "4"}),
        ("block_edit", {"op": "replace", "label": "human", "old": "(", "mode": "regex"}),
        ("block_edit", {"op": "edit_range", "label": "human", "content": "9-12: x"}),
        ("block_edit", {"op": "set_field", "label": "human", "field": "a", "value": 1}),
        ("block_edit", {"op": "append", "label": "human", "content": "x", "colour": "red"}),
        ("recall", {"op": "read", "id": "pas_nothing"}),
        ("recall", {"op": "insert", "content": " "}),
        ("recall", {"op": "search"}),
        ("search", {"query": "x", "domain": "kitchen"}),
        ("search", {"query": "x", "start_time": "whenever"}),
        ("search", {"query": "x", "role": "cook"}),
        ("schedule", {"op": "in", "when": "soon", "message": "x"}),
        ("schedule", {"op": "cancel", "id": "sch_nothing"}),
        ("expand", {"summary": "sum_nothing"}),
        ("source", {"op": "status", "name": "nothing"}),
        ("calculator", {"expression": "1/0"}),
        ("think", {}),
        ("web", {"op": "fetch"}),
    ],
)
async def test_what_is_wrong_is_said_in_a_sentence(
    home: Asterism, tool: str, arguments: dict[str, Any]
):
    said = await call(home, tool, arguments)
    assert said.startswith("Error: ")
    assert "failed with" not in said
    assert len(said) < 500


def test_every_built_in_tool_declares_what_it_does():
    assert [one.name for one in ALL if one.effects is None] == []


# -- cost ------------------------------------------------------------------------------------------

_TEN = ("block", "block_edit", "recall", "search", "send_message", "source", "web", "calculator")


def tokens(text: str) -> int:
    """Count with the tokenizer that comes with the static vectors, Llama 2's."""
    place = find_spec("wordllama")
    assert place is not None
    assert place.origin is not None
    made = Tokenizer.from_file(str(Path(place.origin).parent / TOKENIZER_FILE))
    return len(made.encode(text, add_special_tokens=False).ids)


@pytest.mark.promise("S1")
def test_their_descriptions_cost_few_tokens():
    eight = [one for one in ALL if one.name in _TEN]
    assert len(eight) == len(_TEN)
    # `file` and `shell`, the other two of the ten, have the rest.
    assert tokens(orjson.dumps([one.wire() for one in eight]).decode()) < 1_200


@pytest.mark.promise("S1")
async def test_all_ten_together_cost_less_than_1500_tokens(tmp_path: Path):
    async with open_home(tmp_path) as home:
        ten = home.toolbox.wire((*_TEN, "file", "shell"))
    assert ten is not None
    assert len(orjson.loads(ten)) == 10
    assert tokens(ten.decode()) < 1_500


@pytest.mark.promise("S1")
async def test_a_small_model_is_led_to_the_tools_that_it_is_not_shown(tmp_path: Path):
    told: list[str] = []

    def rule(request: Any) -> Reply:
        last = heard(request)[-1]
        told.append(last["content"])
        steps = [
            '{"name": "calculator"}',
            '{"name": "calculator", "arguments": {"expression": "6 * 7"}}',
            '{"name": "nothing", "arguments": {}}',
        ]
        done = len(told) - 2
        if last["role"] == "user":
            return calls(("tools", "{}"))
        return calls(("tools", steps[done])) if done < len(steps) else Reply(text="done")

    async with open_home(tmp_path, ScriptedModel.from_rule(rule), tools=ALL) as home:
        await home.agents.create("aria")
        assert (await home.agents.ask("aria", "go")).text == "done"
    assert "calculator: Exact arithmetic" in told[1]
    assert '"expression"' in told[2]
    assert told[3] == "42"
    assert "nothing" in told[4]


def chosen(box: Toolbox, message: str, *without: str) -> list[str]:
    return [tool.name for tool in box.tools_for(None, message, without)]


@pytest.mark.parametrize(
    ("message", "names"),
    [
        ("Good morning!", []),
        ("What is the capital of France?", []),
        ("My bike is blue.", []),
        ("what do you think about that source?", []),
        ("remind me to buy milk", ["schedule"]),
        ("Welche Erinnerungen habe ich?", ["schedule"]),
        ("Recuérdame comprar pan", ["schedule"]),
        ("リマインダーを見せて", ["schedule"]),
        ("Remember that my bike is blue.", ["remember"]),
        ("Merk dir, dass mein Rad blau ist.", ["remember"]),
        ("3 shelves of 86 cm and 2 of 120 cm, how long are they?", ["calculator"]),
        ("look it up in my documents", ["search"]),
        ("Read https://example.org/news for me", ["web"]),
        ("Change the persona block", ["block_edit"]),
        ("which tools do you have?", ["tools"]),
        ("please use the tool expand on it", ["expand", "tools"]),
    ],
)
def test_small_models_are_shown_the_tools_that_a_message_asks_for(message: str, names: list[str]):
    box = Toolbox(ALL)
    add_more_tool(box)
    assert box.wire(None, compact=True) is None
    assert chosen(box, message) == [name for name in names if name in ("tools", *box.names())]


def test_small_models_are_shown_little():
    box = Toolbox(ALL)
    add_more_tool(box)
    for tool in ("schedule", "recall", "search", "calculator"):
        (found,) = box.tools_for(None, f"use the {tool}", ())
        assert tokens(orjson.dumps(found.wire()).decode()) < 300
    everything = "use tools: remind me, remember that 1 2, search the documents, block https://x"
    assert len(chosen(box, everything)) == 4
    assert "schedule" not in chosen(box, "remind me to buy milk", "schedule")


def test_an_agent_with_a_list_of_tools_is_always_offered_these():
    box = Toolbox(ALL)
    add_more_tool(box)
    shown: list[Any] = orjson.loads(box.wire(("recall", "expand"), compact=True) or b"[]")
    assert [one["function"]["name"] for one in shown] == ["recall"]
    assert b'"tools"' not in (box.wire(None) or b"")
    assert b'"tools"' not in (box.wire(("recall",), compact=True) or b"")
    assert box.get("tools", ("recall",)) is None
