"""What holds of any document, whoever edits it, in whatever order, on however many machines."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from asterism.errors import InvalidInput, NotFound
from asterism.memory.documents import Document, DocumentEdit, History, fold, read_schema
from asterism.types.memory import (
    Add,
    Append,
    CompositeSchema,
    EditRange,
    RemoveItem,
    Replace,
    Schema,
    SectionSchema,
    SetField,
    SetItem,
    SetText,
    Which,
)

TEXT = read_schema("text")
MAP = read_schema("partner")
LIST = read_schema("tasks")
LOG = read_schema("observations")
COMPOSITE = CompositeSchema(
    (
        SectionSchema("notes", TEXT),
        SectionSchema("partner", MAP),
        SectionSchema("tasks", LIST),
        SectionSchema("seen", LOG),
    )
)
SCHEMAS = {"text": TEXT, "map": MAP, "list": LIST, "log": LOG, "composite": COMPOSITE}

words = st.sampled_from(["tea", "two words", "naïve", "😀 smile", "## tasks", "a\nb", "x", "- x"])
numbers = st.integers(-5, 5)
places = st.integers(1, 6)


def text_edits(section: str | None = None) -> st.SearchStrategy[DocumentEdit]:
    return st.one_of(
        words.map(lambda one: Append(one, section)),
        st.builds(
            Replace,
            words,
            words,
            st.sampled_from([Which.FIRST, Which.ALL]),
            section=st.just(section),
        ),
        st.builds(EditRange, places, places, words, section=st.just(section)),
        st.lists(words, max_size=4).map(lambda some: SetText("\n".join(some), section=section)),
    )


def map_edits(section: str | None = None) -> st.SearchStrategy[DocumentEdit]:
    return st.one_of(
        st.builds(SetField, st.just("name"), words | st.none(), section=st.just(section)),
        st.builds(
            SetField, st.just("preferences"), st.lists(words, max_size=4), section=st.just(section)
        ),
        st.builds(SetField, st.just("energy_level"), numbers, section=st.just(section)),
        st.builds(
            Add, st.just("energy_level"), numbers | st.floats(-1, 1), section=st.just(section)
        ),
        words.map(lambda one: SetText(json.dumps({"name": one}), section=section)),
    )


def list_edits(section: str | None = None) -> st.SearchStrategy[DocumentEdit]:
    item = st.fixed_dictionaries(
        {"title": words}, optional={"done": st.booleans(), "priority": numbers}
    )
    change = st.fixed_dictionaries(
        {}, optional={"title": words, "done": st.booleans(), "priority": numbers | st.none()}
    )
    return st.one_of(
        item.map(lambda one: Append(json.dumps(one), section)),
        st.builds(SetItem, places, change, section=st.just(section)),
        st.builds(RemoveItem, places, section=st.just(section)),
        st.lists(item, max_size=4).map(lambda some: SetText(json.dumps(some), section=section)),
    )


def log_edits(section: str | None = None) -> st.SearchStrategy[DocumentEdit]:
    return words.map(lambda one: Append(json.dumps({"observation": one}), section))


EDITS: dict[str, st.SearchStrategy[DocumentEdit]] = {
    "text": text_edits(),
    "map": map_edits(),
    "list": list_edits(),
    "log": log_edits(),
    "composite": st.one_of(
        text_edits("notes"), map_edits("partner"), list_edits("tasks"), log_edits("seen")
    ),
}
kinds = pytest.mark.parametrize("kind", list(SCHEMAS))
often = settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


class Replica:
    """A block as a store keeps it: the latest snapshot, and an update and a version per edit."""

    def __init__(self, schema: Schema, peer: int, first: bytes | None = None) -> None:
        self.schema = schema
        self.peer = peer
        document = Document.new(schema, peer)
        self.ops = [first or document.ops_since(b"\0")]
        latest = self.history().document
        self.snapshot = latest.snapshot()
        self.versions = [latest.version]
        self.texts = [latest.text]
        self.now = 0

    def history(self) -> History:
        return History.load(self.schema, None, self.ops, self.peer)

    def keep(self, document: Document) -> None:
        self.ops.append(document.ops_since(self.versions[-1]))
        self.versions.append(document.version)
        self.texts.append(document.text)
        self.snapshot = document.snapshot()

    def edit(self, edit: DocumentEdit) -> None:
        document = Document.load(self.schema, self.snapshot, self.peer)
        before = (document.version, document.text)
        self.now += 1000
        try:
            document.apply(edit, now=self.now)
        except (InvalidInput, NotFound):
            assert (document.version, document.text) == before
        else:
            self.keep(document)

    def take(self, updates: bytes) -> None:
        history = self.history()
        history.merge(updates)
        self.keep(history.document)

    def all_updates(self) -> bytes:
        return self.history().document.ops_since(b"\0")

    def revert(self, number: int) -> None:
        history = self.history()
        history.revert(self.versions[number - 1], self.versions[number])
        self.keep(history.document)

    @property
    def text(self) -> str:
        return self.texts[-1]


def scripted(kind: str, edits: Sequence[DocumentEdit]) -> Replica:
    replica = Replica(SCHEMAS[kind], 1)
    for edit in edits:
        replica.edit(edit)
    return replica


@kinds
@pytest.mark.promise("M3")
def test_three_authors_on_two_replicas_converge(kind: str) -> None:
    step = st.tuples(st.sampled_from(["anna", "ben", "agent", "sync", "undo"]), EDITS[kind])

    @often
    @given(st.lists(step, max_size=12))
    def run(steps: list[tuple[str, DocumentEdit]]) -> None:
        here = Replica(SCHEMAS[kind], 1)
        there = Replica(SCHEMAS[kind], 2, here.ops[0])
        for author, edit in steps:
            where = there if author == "ben" else here
            if author == "sync":
                there.take(here.all_updates())
            elif author == "undo":
                there.revert(len(there.versions) - 1) if len(there.versions) > 1 else None
            else:
                where.edit(edit)
        here.take(there.all_updates())
        there.take(here.all_updates())
        assert here.text == there.text
        assert here.history().document.value() == there.history().document.value()
        # What is loaded from the snapshot is what the whole history leads to.
        for one in (here, there):
            assert Document.load(one.schema, one.snapshot, one.peer).text == one.text

    run()


@kinds
@pytest.mark.promise("M3")
def test_undoing_all_and_redoing_all_leads_back_over_the_same_states(kind: str) -> None:
    @often
    @given(st.lists(EDITS[kind], max_size=6))
    def run(edits: list[DocumentEdit]) -> None:
        replica = scripted(kind, edits)
        past = list(replica.texts)
        count = len(past) - 1
        undone: list[int] = []
        for number in range(count, 0, -1):
            replica.revert(number)
            undone.append(len(replica.versions) - 1)
            assert replica.text == past[number - 1]
        for number, undo in zip(range(1, count + 1), reversed(undone), strict=True):
            replica.revert(undo)
            assert replica.text == past[number]

    run()


@kinds
@pytest.mark.promise("M8")
def test_each_version_is_found_and_restored_as_it_was(kind: str) -> None:
    @often
    @given(st.lists(EDITS[kind], max_size=6), st.data())
    def run(edits: list[DocumentEdit], data: st.DataObject) -> None:
        replica = scripted(kind, edits)
        number = data.draw(st.integers(0, len(replica.versions) - 1))
        history = replica.history()
        for version, text in zip(replica.versions, replica.texts, strict=True):
            assert history.at(version).text == text
        history.restore(replica.versions[number])
        assert history.document.text == replica.texts[number]
        assert history.at(replica.versions[-1]).text == replica.text

    run()


@kinds
@pytest.mark.promise("M3")
def test_folding_keeps_the_past_and_what_can_be_done_with_it(kind: str) -> None:
    @often
    @given(st.lists(EDITS[kind], min_size=2, max_size=8), st.data())
    def run(edits: list[DocumentEdit], data: st.DataObject) -> None:
        replica = scripted(kind, edits)
        cut = data.draw(st.integers(0, len(replica.versions) - 1))
        update, snapshot = fold(replica.schema, None, replica.ops[: cut + 1], replica.versions[cut])
        older = History.load(replica.schema, None, [update], 1)
        newer = History.load(replica.schema, snapshot, replica.ops[cut + 1 :], 1)
        for number, (version, text) in enumerate(zip(replica.versions, replica.texts, strict=True)):
            if number <= cut:
                assert older.at(version).text == text
            if number >= cut:
                assert newer.at(version).text == text
        last = len(replica.versions) - 1
        if last > cut:
            newer.revert(replica.versions[last - 1], replica.versions[last])
            assert newer.document.text == replica.texts[last - 1]
            again, end = fold(
                replica.schema, snapshot, replica.ops[cut + 1 :], replica.versions[last]
            )
            assert Document.load(replica.schema, end, 1).text == replica.text
            assert History.load(replica.schema, snapshot, [again], 1).document.text == replica.text
        both = History.load(replica.schema, None, [update, *replica.ops[cut + 1 :]], 1)
        assert both.document.text == replica.text

    run()


@pytest.mark.promise("M3")
@often
@given(st.lists(st.lists(words, min_size=1, max_size=3), min_size=1, max_size=5), st.data())
def test_what_came_after_an_edit_stays_when_it_is_taken_back(
    before: list[list[str]], data: st.DataObject
) -> None:
    replica = scripted("text", [SetText("\n".join(some)) for some in before])
    number = data.draw(st.integers(0, len(replica.versions) - 1))
    later = [f"later {count}" for count in range(3)]
    for line in later:
        replica.edit(Append(line))
    if number:
        replica.revert(number)
    assert [line for line in replica.text.split("\n") if line in later] == later


@kinds
@pytest.mark.promise("M9")
def test_what_an_author_does_not_see_stays_and_is_not_told(kind: str) -> None:
    @often
    @given(st.lists(EDITS[kind], max_size=5), EDITS[kind], st.data())
    def run(edits: list[DocumentEdit], last: DocumentEdit, data: st.DataObject) -> None:
        replica = scripted(kind, edits)
        document = Document.load(replica.schema, replica.snapshot, 1)
        lines = document.lines()
        seen = [
            line.startswith("## ") or data.draw(st.booleans(), label=f"sees {line}")
            for line in lines
        ]
        if isinstance(last, SetField | Add):
            return  # a field that is named is written, whether its old value is seen or not
        hidden = [line for line, see in zip(lines, seen, strict=True) if not see]
        try:
            document.apply(last, seen=seen)
        except (InvalidInput, NotFound) as error:
            shown = {line for line, see in zip(lines, seen, strict=True) if see}
            secret = [one for one in hidden if not any(one in other for other in shown)]
            told = error.message.replace(repr(getattr(last, "old", "")), "")
            assert not any(repr(one) in told for one in secret)
            assert document.lines() == lines
            return
        left = document.lines()
        if isinstance(last, SetText) and kind in ("map", "composite"):
            hidden = [line for line in hidden if not line.startswith("name:")]
        for line in hidden:
            assert line in left
            left.remove(line)

    run()
