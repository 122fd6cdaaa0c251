"""A document's past: edits taken back one by one, versions restored, replicas merged, eras."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import pytest

from asterism.errors import InvalidInput, StoreDamaged
from asterism.memory.blocks import EditRow
from asterism.memory.content import Change, change_between
from asterism.memory.edits import BlockContent, ContentEdit
from asterism.memory.gate.replicas import Replica
from asterism.memory.history import EditRun, read_era, write_era
from asterism.memory.schemas import read_schema
from asterism.types.memory import (
    Add,
    Append,
    EditRange,
    ListSchema,
    RemoveItem,
    Replace,
    Schema,
    SetField,
    SetItem,
    SetText,
    TextSchema,
)
from tests.elsewhere import Elsewhere

TEXT = TextSchema()
PARTNER = read_schema("partner")
TASKS = read_schema("tasks")
LOG = read_schema("observations")


class Past:
    """Content and what it was after each of its edits; 0: the new content."""

    def __init__(self, schema: Schema, *edits: ContentEdit) -> None:
        self.schema = schema
        self.content = BlockContent.new(schema)
        self.states = [self.content.parts]
        for edit in edits:
            self.do(edit)

    def do(self, edit: ContentEdit) -> None:
        self.content.apply(edit, now=len(self.states) * 1000)
        self.keep()

    def keep(self) -> None:
        self.states.append(self.content.parts)

    def since(self, number: int) -> list[Change]:
        return [change_between(*both) for both in pairwise(self.states[number:])]

    def revert(self, number: int) -> None:
        self.content.take_back(self.states[number - 1], self.states[number], self.since(number))
        self.keep()

    @property
    def text(self) -> str:
        return self.content.text

    def run(self, first: int = 0) -> EditRun:
        """The edits from one on, as a store keeps them."""
        edits = [
            EditRow(number, "append", "owner", None, "", "{}", None, None, number, _json(change))
            for number, change in enumerate(self.since(first), first + 1)
        ]
        return EditRun(first + 1, self.states[first], "", [], edits)

    def replica(self) -> Replica:
        replica = Replica.new(self.schema)
        replica.write(self.content.state)
        return replica


def _json(change: Change) -> str:
    return json.dumps(change)


@pytest.mark.promise("M8")
def test_one_edit_is_taken_back_and_what_came_after_it_stays() -> None:
    past = Past(
        TEXT, SetText("tea\nmilk"), Append("wrong"), Append("right"), Replace("tea", "green tea")
    )
    past.revert(2)
    assert past.text == "green tea\nmilk\nright"
    past.revert(4)
    assert past.text == "tea\nmilk\nright"


@pytest.mark.promise("M3")
def test_what_was_undone_and_redone_can_be_undone_again() -> None:
    past = Past(TEXT, SetText("one\ntwo"), EditRange(1, 1, ""), Append("three"))
    past.revert(2)  # 4: line one is back, as new text
    assert past.text == "one\ntwo\nthree"
    past.do(Append("four"))
    past.revert(1)
    assert past.text == "\nthree\nfour"


def test_a_later_change_of_the_same_words_stays() -> None:
    past = Past(TEXT, SetText("The cat sleeps."), Replace("cat", "dog"), Replace("dog", "horse"))
    past.revert(2)
    assert past.text == "The horse sleeps."
    fields = Past(
        PARTNER, SetField("name", "Ann"), SetField("name", "Anna"), SetField("name", "Anne")
    )
    fields.revert(2)
    assert fields.content.value()["name"] == "Anne"
    fields.revert(3)
    assert fields.content.value()["name"] == "Anna"


def test_no_letters_of_later_text_are_taken_out() -> None:
    past = Past(TEXT, SetText("apple"), SetText("a completely different sentence, people"))
    past.revert(1)
    assert past.text == "a completely different sentence, people"


def test_counters_lists_and_items_are_taken_back_one_by_one() -> None:
    past = Past(
        PARTNER,
        Add("energy_level", 3),
        Add("energy_level", 4),
        SetField("preferences", ["tea"]),
        SetField("preferences", ["tea", "quiet"]),
    )
    past.revert(1)
    past.revert(3)
    value = past.content.value()
    assert (value["energy_level"], value["preferences"]) == (9, ["quiet"])
    tasks = Past(
        TASKS, Append("a"), Append("b"), SetItem(1, {"done": True}), RemoveItem(1), Append("c")
    )
    tasks.revert(4)
    assert tasks.text == "[x] a (priority: 3)\n[ ] b (priority: 3)\n[ ] c (priority: 3)"
    tasks.revert(3)
    assert tasks.text.startswith("[ ] a")
    tasks.revert(1)
    assert tasks.text == "[ ] b (priority: 3)\n[ ] c (priority: 3)"


@pytest.mark.promise("M8")
def test_any_version_is_there_and_can_be_restored() -> None:
    past = Past(TEXT, SetText("one"), Append("two"), SetText("three"))
    past.content.write(BlockContent(TEXT, past.states[2]).state)
    past.keep()
    assert past.text == "one\ntwo"
    run = past.run()
    assert [BlockContent(TEXT, run.parts_at(number)).text for number in range(5)] == [
        "",
        "one",
        "one\ntwo",
        "three",
        "one\ntwo",
    ]


@pytest.mark.promise("M3")
def test_writing_against_an_older_version_keeps_what_was_written_since() -> None:
    past = Past(TEXT, SetText("one\ntwo\nthree"), Replace("two", "zwei"), Append("four"))
    past.content.write_against(
        past.states[1], SetText("one\ntwo\ntrois\nthree and a half"), past.since(1)
    )
    assert past.text == "one\nzwei\ntrois\nthree and a half\nfour"
    tasks = Past(TASKS, Append("a"), Append("b"), SetItem(1, {"done": True}), Append("c"))
    since = tasks.since(2)
    tasks.content.write_against(
        tasks.states[2], SetText('[{"title": "a", "priority": 1}, {"title": "d"}]'), since
    )
    assert tasks.text.split("\n") == [
        "[x] a (priority: 1)",
        "[ ] d (priority: 3)",
        "[ ] c (priority: 3)",
    ]
    with pytest.raises(InvalidInput):
        tasks.content.write_against(tasks.states[2], SetText("no JSON"), since)


# -- replicas --------------------------------------------------------------------------------------

CONCURRENT: list[
    tuple[Schema, list[ContentEdit], ContentEdit, ContentEdit, Callable[[str], bool]]
] = [
    (TEXT, [SetText("a b c")], Replace("a", "x"), Replace("c", "z"), lambda text: text == "x b z"),
    (
        TEXT,
        [SetText("top")],
        Append("mine"),
        Append("yours"),
        lambda t: {"mine", "yours"} < {*t.split()},
    ),
    (TASKS, [], Append("mine"), Append("yours"), lambda text: "mine" in text and "yours" in text),
    (
        TASKS,
        [Append("a")],
        SetItem(1, {"done": True}),
        SetItem(1, {"title": "A"}),
        lambda text: text == "[x] A (priority: 3)",
    ),
    (
        TASKS,
        [Append("a"), Append("b")],
        RemoveItem(1),
        SetItem(2, {"done": True}),
        lambda t: t == "[x] b (priority: 3)",
    ),
    (LOG, [], Append("mine"), Append("yours"), lambda text: "mine" in text and "yours" in text),
    (
        PARTNER,
        [],
        Add("energy_level", 2),
        Add("energy_level", -1),
        lambda t: "energy_level: 6" in t,
    ),
    (
        PARTNER,
        [],
        SetField("name", "A"),
        SetField("current_focus", "B"),
        lambda t: "name: A" in t and "focus: B" in t,
    ),
    (
        PARTNER,
        [SetField("preferences", ["tea"])],
        SetField("preferences", ["tea", "mine"]),
        SetField("preferences", ["yours", "tea"]),
        lambda text: 'preferences: ["yours", "tea", "mine"]' in text,
    ),
    (
        PARTNER,
        [],
        SetField("name", "A"),
        SetField("name", "B"),
        lambda t: t.startswith(("name: A\n", "name: B\n")),
    ),
]


@pytest.mark.promise("M3")
@pytest.mark.parametrize(("schema", "before", "mine", "yours", "holds"), CONCURRENT)
def test_what_two_replicas_write_at_once_is_merged(
    schema: Schema,
    before: list[ContentEdit],
    mine: ContentEdit,
    yours: ContentEdit,
    holds: Callable[[str], bool],
) -> None:
    base = Past(schema, *before).replica()
    here, there = Elsewhere(schema, base.updates()), Elsewhere(schema, base.updates())
    here.edit(mine, now=5000)
    there.edit(yours, now=6000)
    from_here, from_there = here.updates(base.version), there.updates(base.version)
    here.replica.merge(from_there)
    there.replica.merge(from_here)
    assert here.content.text == there.content.text
    assert holds(here.content.text)
    here.replica.merge(from_there)  # once more does no harm
    assert here.content.text == there.content.text


def test_updates_that_cannot_be_merged_change_nothing() -> None:
    replica = Past(TEXT, SetText("one"), Append("two")).replica()
    there = Elsewhere(TEXT, replica.updates())
    there.edit(Append("three"))
    middle = there.replica.version
    there.edit(Append("four"))
    alien = Past(TEXT, SetText("a longer text of another block"), Append("x")).replica()
    whole = alien.version
    alien.write("another text")
    broken = there.updates(replica.version)
    from loro import ExportMode, LoroDoc

    document = LoroDoc()
    document.import_(there.updates())
    shallow = document.export(ExportMode.ShallowSnapshot(document.oplog_frontiers))
    for updates, said in (
        (b"", "not Loro updates"),
        (b"no updates at all", "not Loro updates"),
        (broken[:-3], "not Loro updates"),
        (broken[:30] + b"\0\1" + broken[32:], "not Loro updates"),
        (there.updates(middle), "build on others that are not here"),
        (alien.updates(), "of another document"),
        (alien.updates(whole), "build on others that are not here"),
        (shallow, "snapshot without history"),
    ):
        version = replica.version
        with pytest.raises(InvalidInput, match=said) as caught:
            replica.merge(updates)
        assert "othing was changed." in caught.value.message
        assert (replica.state, replica.version) == ("one\ntwo", version)
    replica.merge(broken)
    assert replica.state == "one\ntwo\nthree\nfour"


def test_updates_with_values_that_the_schema_does_not_take() -> None:
    replica = Past(PARTNER, SetField("name", "Anna")).replica()
    from loro import ExportMode, LoroDoc

    rogue = LoroDoc()
    rogue.import_(replica.updates())
    since = rogue.oplog_vv
    rogue.get_map(":fields").insert("name", {"not": "a text"})
    rogue.commit()
    with pytest.raises(InvalidInput, match="schema does not take: field 'name'"):
        replica.merge(rogue.export(ExportMode.Updates(since)))
    assert replica.state["name"] == "Anna"
    tasks = Past(TASKS, Append("a")).replica()
    other = LoroDoc()
    other.import_(tasks.updates())
    since = other.oplog_vv
    other.get_movable_list(":rows").push("no row")
    other.commit()
    with pytest.raises(InvalidInput, match="a row without an id"):
        tasks.merge(other.export(ExportMode.Updates(since)))


@pytest.mark.promise("M3")
def test_a_late_replica_is_merged_whatever_was_written_since_it_left() -> None:
    replica = Past(TEXT, SetText("one")).replica()
    late = Elsewhere(TEXT, replica.updates())
    both = replica.version
    late.edit(Append("late"))
    for text in ("one\ntwo", "one\ntwo\nthree"):
        replica.write(text)
    replica.merge(late.updates(both))
    assert sorted(replica.state.split("\n")) == ["late", "one", "three", "two"]
    again = Replica.load(TEXT, replica.snapshot())
    assert again.state == replica.state


def test_a_document_that_cannot_be_read_is_said_to_be_damaged() -> None:
    with pytest.raises(StoreDamaged, match="cannot be read"):
        Replica.load(TEXT, b"junk")


# -- eras ------------------------------------------------------------------------------------------


def test_an_era_is_smaller_than_its_edits_and_goes_on_from_where_it_starts() -> None:
    past = Past(TEXT, *(Append(f"line {number} of the usual length, say") for number in range(100)))
    whole = past.run()
    older = replace(whole, edits=whole.edits[:50])
    era = write_era(older, 50)
    assert len(era.content) + len(era.edits) < sum(len(edit.change) for edit in older.edits) / 2
    assert read_era(era) == older
    later = read_era(write_era(past.run(50), 100))
    assert later.parts_at(100) == past.content.parts
    assert BlockContent(TEXT, later.parts_at(50)).text.endswith("line 49 of the usual length, say")
    content = BlockContent(TEXT, later.parts_at(100))
    since = [json.loads(edit.change) for edit in later.edits[11:]]
    content.take_back(later.parts_at(60), later.parts_at(61), since)
    assert "line 60 " not in content.text
    assert len(content.lines()) == 99


def test_a_history_that_cannot_be_read_is_said_to_be_damaged() -> None:
    era = write_era(Past(TEXT, SetText("one"), Append("two")).run(), 2)
    for broken in (era._replace(content=b"junk"), era._replace(edits=era.edits[:-4])):
        with pytest.raises(StoreDamaged, match="cannot be read"):
            read_era(broken)


def test_a_list_that_two_put_back_at_once_has_the_item_once() -> None:
    past = Past(ListSchema(), Append("a"), Append("b"), RemoveItem(1))
    base = past.replica()
    here, there = Elsewhere(ListSchema(), base.updates()), Elsewhere(ListSchema(), base.updates())
    past.revert(3)
    for one in (here, there):
        one.replica.write(past.content.state)
    here.replica.merge(there.updates(base.version))
    assert here.content.value() == ["a", "b"]
    here.edit(RemoveItem(1))
    assert here.content.value() == ["b"]
    assert Replica.load(ListSchema(), here.replica.snapshot()).state == here.content.state
