"""What holds of any document, whoever edits it, in whatever order, on however many machines."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from asterism.errors import InvalidInput, NotFound
from asterism.memory.blocks import EditRow
from asterism.memory.content import Change, Parts, change_between
from asterism.memory.edits import BlockContent, ContentEdit
from asterism.memory.gate.replicas import Replica
from asterism.memory.history import EditRun, read_era, write_era
from asterism.memory.schemas import read_schema
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


def text_edits(section: str | None = None) -> st.SearchStrategy[ContentEdit]:
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


def map_edits(section: str | None = None) -> st.SearchStrategy[ContentEdit]:
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


def list_edits(section: str | None = None) -> st.SearchStrategy[ContentEdit]:
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


def log_edits(section: str | None = None) -> st.SearchStrategy[ContentEdit]:
    return words.map(lambda one: Append(json.dumps({"observation": one}), section))


EDITS: dict[str, st.SearchStrategy[ContentEdit]] = {
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


class Kept:
    """A block as a store keeps it: what it says after each edit, and a Loro document beside it."""

    def __init__(self, schema: Schema, updates: bytes | None = None) -> None:
        self.schema = schema
        content = BlockContent.new(schema)
        if updates is None:
            self.replica = Replica.new(schema)
        else:
            self.replica = Replica.read(schema, updates)
            content.write(self.replica.state)
        self.states = [content.parts]
        self.texts = [content.text]
        self.now = 0

    @property
    def content(self) -> BlockContent:
        return BlockContent(self.schema, self.states[-1])

    def keep(self, content: BlockContent) -> None:
        self.states.append(content.parts)
        self.texts.append(content.text)

    def edit(self, edit: ContentEdit) -> None:
        content = self.content
        before = (content.parts, content.text)
        self.now += 1000
        try:
            content.apply(edit, now=self.now)
        except (InvalidInput, NotFound):
            assert (content.parts, content.text) == before
        else:
            self.keep(content)

    def take(self, updates: bytes) -> None:
        self.replica.write(self.content.state)
        self.replica.merge(updates)
        content = self.content
        content.write(self.replica.state)
        self.keep(content)

    def all_updates(self) -> bytes:
        self.replica.write(self.content.state)
        return self.replica.updates()

    def changes(self, first: int = 0) -> list[Change]:
        return [change_between(*both) for both in pairwise(self.states[first:])]

    def revert(self, number: int) -> None:
        content = self.content
        content.take_back(self.states[number - 1], self.states[number], self.changes(number))
        self.keep(content)

    def run(self, first: int, last: int) -> EditRun:
        """The edits after one, up to another, as a store keeps them."""
        edits = [
            EditRow(number, "edit", "owner", None, "", "{}", None, None, number, json.dumps(change))
            for number, change in enumerate(self.changes(first)[: last - first], first + 1)
        ]
        return EditRun(first + 1, self.states[first], "", [], edits)

    def text_of(self, parts: Parts) -> str:
        return BlockContent(self.schema, parts).text

    @property
    def text(self) -> str:
        return self.texts[-1]


def scripted(kind: str, edits: Sequence[ContentEdit]) -> Kept:
    block = Kept(SCHEMAS[kind])
    for edit in edits:
        block.edit(edit)
    return block


@kinds
@pytest.mark.promise("M3")
def test_three_authors_on_two_replicas_converge(kind: str) -> None:
    step = st.tuples(st.sampled_from(["anna", "ben", "agent", "sync", "undo"]), EDITS[kind])

    @often
    @given(st.lists(step, max_size=12))
    def run(steps: list[tuple[str, ContentEdit]]) -> None:
        here = Kept(SCHEMAS[kind])
        there = Kept(SCHEMAS[kind], here.all_updates())
        for author, edit in steps:
            where = there if author == "ben" else here
            if author == "sync":
                there.take(here.all_updates())
            elif author == "undo":
                there.revert(len(there.states) - 1) if len(there.states) > 1 else None
            else:
                where.edit(edit)
        here.take(there.all_updates())
        there.take(here.all_updates())
        assert here.text == there.text
        assert here.content.value() == there.content.value()
        # What is stored is what the whole history leads to.
        for one in (here, there):
            run = one.run(0, len(one.states) - 1)
            assert one.text_of(run.parts_at(len(run.edits))) == one.text

    run()


@kinds
@pytest.mark.promise("M3")
def test_undoing_all_and_redoing_all_leads_back_over_the_same_states(kind: str) -> None:
    @often
    @given(st.lists(EDITS[kind], max_size=6))
    def run(edits: list[ContentEdit]) -> None:
        block = scripted(kind, edits)
        past = list(block.texts)
        count = len(past) - 1
        undone: list[int] = []
        for number in range(count, 0, -1):
            block.revert(number)
            undone.append(len(block.states) - 1)
            assert block.text == past[number - 1]
        for number, undo in zip(range(1, count + 1), reversed(undone), strict=True):
            block.revert(undo)
            assert block.text == past[number]

    run()


@kinds
@pytest.mark.promise("M8")
def test_each_version_is_found_and_restored_as_it_was(kind: str) -> None:
    @often
    @given(st.lists(EDITS[kind], max_size=6), st.data())
    def run(edits: list[ContentEdit], data: st.DataObject) -> None:
        block = scripted(kind, edits)
        number = data.draw(st.integers(0, len(block.states) - 1))
        last = len(block.states) - 1
        run = block.run(0, last)
        for version, text in enumerate(block.texts):
            assert block.text_of(run.parts_at(version)) == text
        content = block.content
        content.write(BlockContent(block.schema, run.parts_at(number)).state)
        assert content.text == block.texts[number]
        assert block.text_of(run.parts_at(last)) == block.text

    run()


@kinds
@pytest.mark.promise("M3")
def test_squashing_keeps_the_past_and_what_can_be_done_with_it(kind: str) -> None:
    @often
    @given(st.lists(EDITS[kind], min_size=2, max_size=8), st.data())
    def run(edits: list[ContentEdit], data: st.DataObject) -> None:
        block = scripted(kind, edits)
        cut = data.draw(st.integers(0, len(block.states) - 1))
        last = len(block.states) - 1
        older = read_era(write_era(block.run(0, cut), cut))
        newer = read_era(write_era(block.run(cut, last), last))
        for number, text in enumerate(block.texts):
            if number <= cut:
                assert block.text_of(older.parts_at(number)) == text
            if number >= cut:
                assert block.text_of(newer.parts_at(number)) == text
        if last > cut:
            content = BlockContent(block.schema, newer.parts_at(last))
            content.take_back(newer.parts_at(last - 1), newer.parts_at(last), [])
            assert content.text == block.texts[last - 1]
        both = read_era(write_era(block.run(0, last), last))
        assert block.text_of(both.parts_at(last)) == block.text

    run()


@pytest.mark.promise("M3")
@often
@given(st.lists(st.lists(words, min_size=1, max_size=3), min_size=1, max_size=5), st.data())
def test_what_came_after_an_edit_stays_when_it_is_taken_back(
    before: list[list[str]], data: st.DataObject
) -> None:
    block = scripted("text", [SetText("\n".join(some)) for some in before])
    number = data.draw(st.integers(0, len(block.states) - 1))
    later = [f"later {count}" for count in range(3)]
    for line in later:
        block.edit(Append(line))
    if number:
        block.revert(number)
    assert [line for line in block.text.split("\n") if line in later] == later


@kinds
@pytest.mark.promise("M9")
def test_what_an_author_does_not_see_stays_and_is_not_told(kind: str) -> None:
    @often
    @given(st.lists(EDITS[kind], max_size=5), EDITS[kind], st.data())
    def run(edits: list[ContentEdit], last: ContentEdit, data: st.DataObject) -> None:
        block = scripted(kind, edits)
        document = block.content
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
