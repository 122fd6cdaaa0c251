"""A document's past: edits taken back one by one, versions restored, replicas merged, eras."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from asterism.errors import InvalidInput, NotFound, StoreDamaged
from asterism.memory.documents import Document, DocumentEdit, History, fold, read_schema
from asterism.memory.documents.history import StartTooLate
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

TEXT = TextSchema()
PARTNER = read_schema("partner")
TASKS = read_schema("tasks")
LOG = read_schema("observations")


class Past:
    """A history and the version after each of its edits; 0: the new document."""

    def __init__(self, schema: Schema, *edits: DocumentEdit, peer: int = 1) -> None:
        self.schema = schema
        self.peer = peer
        first = Document.new(schema, peer)
        self.ops = [first.ops_since(b"\0")]
        self.history = History.load(schema, None, self.ops, peer)
        self.versions = [first.version]
        for edit in edits:
            self.do(edit)

    def do(self, edit: DocumentEdit) -> None:
        self.history.document.apply(edit, now=len(self.versions) * 1000)
        self.keep()

    def keep(self) -> None:
        document = self.history.document
        self.ops.append(document.ops_since(self.versions[-1]))
        self.versions.append(document.version)

    def revert(self, number: int) -> None:
        self.history.revert(self.versions[number - 1], self.versions[number])
        self.keep()

    @property
    def text(self) -> str:
        return self.history.document.text

    def replica(self, peer: int) -> History:
        return History.load(self.schema, None, self.ops, peer)


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
    past.revert(2)  # 4: line one is back, as new text to Loro
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
    assert fields.history.document.value()["name"] == "Anne"
    fields.revert(3)
    assert fields.history.document.value()["name"] == "Anna"


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
    value = past.history.document.value()
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
    past.history.restore(past.versions[2])
    past.keep()
    assert past.text == "one\ntwo"
    assert [past.history.at(version).text for version in past.versions] == [
        "",
        "one",
        "one\ntwo",
        "three",
        "one\ntwo",
    ]
    for version in (b"junk", Document.new(TEXT, 5).version):
        with pytest.raises(NotFound, match="not in the history at hand"):
            past.history.at(version)


@pytest.mark.promise("M3")
def test_writing_against_an_older_version_keeps_what_was_written_since() -> None:
    past = Past(TEXT, SetText("one\ntwo\nthree"), Replace("two", "zwei"), Append("four"))
    past.history.write_at(past.versions[1], SetText("one\ntwo\ntrois\nthree and a half"))
    assert past.text == "one\nzwei\ntrois\nthree and a half\nfour"
    tasks = Past(TASKS, Append("a"), Append("b"), SetItem(1, {"done": True}), Append("c"))
    tasks.history.write_at(
        tasks.versions[2], SetText('[{"title": "a", "priority": 1}, {"title": "d"}]')
    )
    assert tasks.text.split("\n") == [
        "[x] a (priority: 1)",
        "[ ] d (priority: 3)",
        "[ ] c (priority: 3)",
    ]
    with pytest.raises(InvalidInput):
        tasks.history.write_at(tasks.versions[2], SetText("no JSON"))


# -- replicas --------------------------------------------------------------------------------------

CONCURRENT: list[
    tuple[Schema, list[DocumentEdit], DocumentEdit, DocumentEdit, Callable[[str], bool]]
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
    before: list[DocumentEdit],
    mine: DocumentEdit,
    yours: DocumentEdit,
    holds: Callable[[str], bool],
) -> None:
    past = Past(schema, *before)
    here, there = past.replica(1), past.replica(2)
    since = past.versions[-1]
    here.document.apply(mine, now=5000)
    there.document.apply(yours, now=6000)
    from_here, from_there = here.document.ops_since(since), there.document.ops_since(since)
    here.merge(from_there)
    there.merge(from_here)
    assert here.document.text == there.document.text
    assert holds(here.document.text)
    here.merge(from_there)  # once more does no harm
    assert here.document.text == there.document.text


def test_updates_that_cannot_be_merged_change_nothing() -> None:
    past = Past(TEXT, SetText("one"), Append("two"))
    there = past.replica(2)
    there.document.apply(Append("three"))
    middle = there.document.version
    there.document.apply(Append("four"))
    alien = Past(TEXT, SetText("a longer text of another block with the same peer"), Append("x"))
    broken = there.document.ops_since(past.versions[-1])
    for updates, said in (
        (b"", "no Loro updates"),
        (b"no updates at all", "no Loro updates"),
        (broken[:-3], "no Loro updates"),
        (broken[:30] + b"\0\1" + broken[32:], "no Loro updates"),
        (there.document.ops_since(middle), "build on others that are not here"),
        (alien.history.document.ops_since(b"\0"), "of another document"),
        (alien.ops[2], "build on others that are not here"),
        (there.document.snapshot(), "snapshot without history"),
    ):
        version = past.history.document.version
        with pytest.raises(InvalidInput, match=said) as caught:
            past.history.merge(updates)
        assert "othing was changed." in caught.value.message
        assert (past.text, past.history.document.version) == ("one\ntwo", version)
    past.history.merge(broken)
    assert past.text == "one\ntwo\nthree\nfour"


def test_updates_with_values_that_the_schema_does_not_take() -> None:
    past = Past(PARTNER, SetField("name", "Anna"))
    from loro import ExportMode, LoroDoc

    rogue = LoroDoc()
    rogue.import_(past.history.document.ops_since(b"\0"))
    since = rogue.oplog_vv
    rogue.get_map(":fields").insert("name", {"not": "a text"})
    rogue.commit()
    with pytest.raises(InvalidInput, match="schema does not take: field 'name'"):
        past.history.merge(rogue.export(ExportMode.Updates(since)))
    assert past.history.document.value()["name"] == "Anna"
    tasks = Past(TASKS, Append("a"))
    other = LoroDoc()
    other.import_(tasks.history.document.ops_since(b"\0"))
    since = other.oplog_vv
    other.get_movable_list(":rows").push("no row")
    other.commit()
    with pytest.raises(InvalidInput, match="a row without an id"):
        tasks.history.merge(other.export(ExportMode.Updates(since)))


# -- eras ------------------------------------------------------------------------------------------


@pytest.mark.promise("M3")
def test_a_late_replica_needs_a_start_from_before_it_left() -> None:
    past = Past(TEXT, SetText("one"), Append("two"), Append("three"))
    late = History.load(TEXT, None, past.ops[:2], 2)
    late.document.apply(Append("late"))
    updates = late.document.ops_since(past.versions[1])
    first, start = fold(TEXT, None, past.ops[:3], past.versions[2])
    recent = History.load(TEXT, start, past.ops[3:], 1)
    with pytest.raises(StartTooLate):
        recent.merge(updates)
    whole = History.load(TEXT, None, [first, *past.ops[3:]], 1)
    whole.merge(updates)
    merged = whole.document.ops_since(past.versions[3])
    assert sorted(whole.document.lines()) == ["late", "one", "three", "two"]
    # From then on the later era is not to be had without the earlier one.
    with pytest.raises(StartTooLate):
        History.load(TEXT, start, [past.ops[3], merged], 1)
    with pytest.raises(StartTooLate):
        fold(TEXT, start, [past.ops[3], merged], whole.document.version)
    update, end = fold(TEXT, None, [first, past.ops[3], merged], whole.document.version)
    assert Document.load(TEXT, end, 1).text == whole.document.text
    again = History.load(TEXT, None, [update], 1)
    assert again.document.text == whole.document.text
    assert again.at(past.versions[2]).text == "one\ntwo"


def test_an_era_is_smaller_than_its_edits_and_older_versions_are_elsewhere() -> None:
    past = Past(TEXT, *(Append(f"line {number} of the usual length, say") for number in range(100)))
    update, start = fold(TEXT, None, past.ops[:51], past.versions[50])
    assert len(update) < sum(map(len, past.ops[:51])) / 2
    later = History.load(TEXT, start, past.ops[51:], 1)
    assert later.document.text == past.text
    assert later.at(past.versions[50]).text.endswith("line 49 of the usual length, say")
    with pytest.raises(NotFound, match="not in the history at hand"):
        later.at(past.versions[49])
    later.revert(past.versions[60], past.versions[61])
    assert "line 60 " not in later.document.text
    assert len(later.document.lines()) == 99


def test_a_history_that_cannot_be_read_is_said_to_be_damaged() -> None:
    past = Past(TEXT, SetText("one"), Append("two"))
    for start, ops in ((b"junk", []), (None, [past.ops[0], past.ops[2]]), (None, [b"junk"])):
        with pytest.raises(StoreDamaged, match="cannot be read"):
            History.load(TEXT, start, ops, 1)


def test_a_list_that_two_put_back_at_once_has_the_item_once() -> None:
    past = Past(ListSchema(), Append("a"), Append("b"), RemoveItem(1))
    here, there = past.replica(1), past.replica(2)
    since = past.versions[-1]
    for one in (here, there):
        one.revert(past.versions[2], past.versions[3])
    here.merge(there.document.ops_since(since))
    assert here.document.value() == ["a", "b"]
    here.document.apply(RemoveItem(1))
    assert here.document.value() == ["b"]
    assert Document.load(ListSchema(), here.document.snapshot(), 1).value() == ["b"]
