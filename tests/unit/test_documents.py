"""Documents by schema: what each edit does, what is refused, and what a model sees."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest

from asterism.errors import AsterismError, InvalidInput, NotFound, StoreDamaged
from asterism.memory.content import Parts, render
from asterism.memory.edits import BlockContent, ContentEdit
from asterism.memory.gate.replicas import Replica
from asterism.memory.schemas import read_schema
from asterism.types.memory import (
    Add,
    Append,
    CompositeSchema,
    EditRange,
    Field,
    FieldType,
    ListSchema,
    LogSchema,
    MapSchema,
    Patch,
    RemoveItem,
    Replace,
    Schema,
    SectionSchema,
    SetField,
    SetItem,
    SetText,
    TextSchema,
    Which,
)

NOW = 1_790_000_000_000

MAP = MapSchema(
    (
        Field("name", required=True),
        Field("age", FieldType.NUMBER),
        Field("awake", FieldType.BOOLEAN),
        Field("likes", FieldType.LIST),
        Field("born", FieldType.TIMESTAMP, "day of birth"),
        Field("energy", FieldType.COUNTER, default=5),
        Field("rule", read_only=True, default="be kind"),
    )
)
COMPOSITE = CompositeSchema(
    (
        SectionSchema("notes", TextSchema(), "what to keep in mind"),
        SectionSchema("facts", MAP),
        SectionSchema("law", TextSchema(), read_only=True),
        SectionSchema("things", ListSchema()),
    )
)


def made(schema: Schema, *edits: ContentEdit) -> BlockContent:
    document = BlockContent.new(schema)
    for edit in edits:
        document.apply(edit, now=NOW)
    return document


def text(content: str) -> BlockContent:
    return made(TextSchema(), SetText(content)) if content else made(TextSchema())


def refused(document: BlockContent, edit: ContentEdit, *said: str) -> AsterismError:
    """Expect one sentence that says this, and that nothing was changed."""
    before = (document.text, document.parts)
    with pytest.raises((InvalidInput, NotFound)) as caught:
        document.apply(edit, now=NOW)
    assert (document.text, document.parts) == before
    for one in said:
        assert one in caught.value.message
    assert "othing was changed." in caught.value.message
    return caught.value


# -- text ------------------------------------------------------------------------------------------


@pytest.mark.promise("M1")
@pytest.mark.parametrize(
    ("before", "content", "after"),
    [
        ("", "a", "a"),
        ("a", "b", "a\nb"),
        ("a\n", "b", "a\nb"),
        ("a", "b\nc\n", "a\nb\nc"),
        ("a", "b\r\nc", "a\nb\nc"),
    ],
)
def test_appended_text_has_a_line_of_its_own(before: str, content: str, after: str) -> None:
    document = text(before)
    document.apply(Append(content))
    assert document.text == after
    assert document.size == len(after)
    assert BlockContent(TextSchema(), document.parts).text == after


@pytest.mark.parametrize(
    ("edit", "after"),
    [
        (Replace("cat", "dog"), "dog cat cat"),
        (Replace("cat", "dog", Which.ALL), "dog dog dog"),
        (Replace("cat", "dog", Which.NTH, 3), "cat cat dog"),
        (Replace(r"(c)at$", r"\1ow", Which.REGEX), "cat cat cow"),
        (Replace("cat ", ""), "cat cat"),
    ],
)
def test_replace(edit: Replace, after: str) -> None:
    document = text("cat cat cat")
    document.apply(edit)
    assert document.text == after


def test_a_regex_sees_lines() -> None:
    document = text("- [ ] tea\n- [ ] milk")
    document.apply(Replace(r"^- \[ \] (milk)$", r"- [x] \1", Which.REGEX))
    assert document.text == "- [ ] tea\n- [x] milk"


def test_replace_says_what_is_there_instead() -> None:
    document = text("The cat sat on the mat.\nThe dog did not.")
    refused(document, Replace("The cat sits on the mat", "x"), "is not in the text", "'The cat sat")
    refused(document, Replace("zebra", "x"), "'zebra' is not in the text")
    refused(document, Replace("", "x"), "is empty")
    refused(document, Replace("The", "x", Which.NTH, 3), "2 times", "no number 3")
    refused(document, Replace("The", "x", Which.NTH, 0), "no number 0")
    refused(document, Replace("sat", "x", Which.NTH, 2), "is once in the text")
    refused(document, Replace("(", "x", Which.REGEX), "'('", "not valid")
    refused(document, Replace("(cat)", r"\2", Which.REGEX), "not valid")
    refused(document, Replace("zebra", "x", Which.REGEX), "matches nothing")
    refused(document, Replace("a" * 501, "x", Which.REGEX), "501 characters")


@pytest.mark.parametrize(
    "pattern",
    [r"(a+)+$", r"(a|a)*b", r"(a*)*(a*)*b", r"a*a*a*a*a*a*a*a*b", r"(?:(?:a{1,99}){1,99}){1,99}b"],
)
def test_a_pattern_that_would_run_forever_is_stopped(pattern: str) -> None:
    document = text("a" * 4_000 + "c")
    refused(document, Replace(pattern, "x", Which.REGEX))


def test_whole_lines() -> None:
    document = text("one\ntwo\nthree")
    document.apply(EditRange(2, 2, "zwei\nzwei und ein halb\n"))
    assert document.text == "one\nzwei\nzwei und ein halb\nthree"
    document.apply(EditRange(2, 3, ""))
    assert document.text == "one\nthree"
    document.apply(EditRange(3, 3, "four"))
    document.apply(EditRange(1, 1, "\n"))
    assert document.text == "\nthree\nfour"
    refused(document, EditRange(4, 4, ""), "no text")
    refused(document, EditRange(0, 1, "x"), "has 3 lines", "4 to 4")
    refused(document, EditRange(3, 2, "x"), "lines 3 to 2")
    refused(document, EditRange(2, 9, "x"), "lines 2 to 9")
    empty = text("")
    refused(empty, EditRange(1, 2, "x"), "is empty")
    empty.apply(EditRange(1, 1, "first"))
    assert empty.text == "first"


DIFF = """--- a
+++ b
@@ -1,3 +1,3 @@
 one
-two
+zwei
 three
@@ -5,1 +5,2 @@
 five
+six
"""


def test_patch() -> None:
    document = text("one\ntwo\nthree\nfour\nfive\n")
    document.apply(Patch(DIFF))
    assert document.text == "one\nzwei\nthree\nfour\nfive\nsix\n"


def test_a_patch_finds_its_place_if_there_is_only_one() -> None:
    document = text("zero\nzero\none\ntwo\nthree\nfour\nfive")
    document.apply(Patch(DIFF))
    assert document.text == "zero\nzero\none\nzwei\nthree\nfour\nfive\nsix"
    document.apply(Patch("@@ @@\n-four\n+vier\n"))
    assert "\nvier\n" in document.text
    document.apply(Patch("@@ -0,0 +1,1 @@\n+head"))
    assert document.text.startswith("head\nzero")
    empty = text("")
    empty.apply(Patch("@@ -0,0 +1,2 @@\n+a\n+b\n"))
    assert empty.text == "a\nb"


def test_a_patch_that_does_not_fit_says_which_line() -> None:
    document = text("one\ntwo\nthree\ntwo")
    refused(
        document, Patch("@@ -1,2 +1,2 @@\n one\n-zwo\n+2"), "Hunk 1", "'zwo' where line 2", "'two'"
    )
    refused(document, Patch("@@ @@\n-two\n+2"), "fits at several lines (2, 4)")
    refused(document, Patch("@@ @@\n-thre\n+3"), "'thre' is not there", "'three'")
    refused(document, Patch("@@ -1 +1 @@\n-one\n+1\n@@ -9 +9 @@\n-nine\n+9"), "Hunk 2")
    refused(document, Patch("hello"), "Line 1 of the diff", "'@@")
    refused(document, Patch("@@ -1 +1 @@\none"), "has to begin with")
    refused(document, Patch("@@ -1 +1 @@\n one"), "changes nothing")
    refused(document, Patch(""), "changes nothing")
    refused(document, Patch("@@ -9,0 +9,1 @@\n+x"), "without context")


@pytest.mark.parametrize(
    "edit",
    [Append("a\0b"), SetText("\ud800"), Replace("x", "\0"), EditRange(1, 1, "\udfff"), Append("")],
)
def test_what_no_text_may_hold_is_refused(edit: ContentEdit) -> None:
    refused(text("x"), edit)


def test_any_other_text_is_kept_as_it_is() -> None:
    told = "😀 a\u0301 \u202eabc\u202c\tmañana\x0b\u2028 end\n\n"
    document = text(told)
    assert document.text == told
    document.apply(Replace("end", "Ende"))
    assert document.text == told.replace("end", "Ende")
    assert document.lines()[0].endswith("\u2028 Ende")


# -- maps ------------------------------------------------------------------------------------------


@pytest.mark.promise("M1")
def test_fields_of_a_map() -> None:
    document = made(
        MAP,
        SetField("name", "Anna\nBell"),
        SetField("age", "41"),
        SetField("awake", "yes"),
        SetField("likes", ["tea", 3, True]),
        SetField("born", "1985-02-03"),
        Add("energy", 1.5),
        Add("energy", -2),
    )
    assert document.value() == {
        "name": "Anna\nBell",
        "age": 41,
        "awake": True,
        "likes": ["tea", 3, True],
        "born": "1985-02-03",
        "energy": 4.5,
        "rule": "be kind",
    }
    assert render(MAP, document.lines()).split("\n") == [
        "name: Anna\\nBell",
        "age: 41",
        "awake: true",
        'likes: ["tea", 3, true]',
        "born: 1985-02-03",
        "energy: 4.5",
        "rule (read-only): be kind",
    ]
    document.apply(SetField("born", None))
    document.apply(SetField("energy", 1))
    assert document.lines()[4:6] == ["born:", "energy: 1"]
    assert "born: (not set: day of birth)" in render(MAP, document.lines())
    again = BlockContent(MAP, document.parts)
    assert again.value() == document.value()


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (SetField("nam", "x"), "Did you mean 'name'?"),
        (SetField("name", 5), "takes text"),
        (SetField("name", None), "required"),
        (SetField("age", "old"), "takes a number"),
        (SetField("age", True), "takes a number"),
        (SetField("age", float("nan")), "takes a number"),
        (SetField("age", 10**30), "takes a number"),
        (SetField("awake", 1), "true or false"),
        (SetField("likes", "tea"), "takes a list"),
        (SetField("likes", [["tea"]]), "takes a list"),
        (SetField("likes", ["a\0"]), "null character"),
        (SetField("born", "yesterday"), "ISO 8601"),
        (SetField("energy", "much"), "takes a number"),
        (Add("energy", float("inf")), "takes a number"),
        (Add("age", 1), "is not a counter"),
        (Add("luck", 1), "There is no field 'luck'"),
        (Append("x"), "'append' does not go with a map; set_field, add, set_text would"),
        (Replace("a", "b"), "does not go with a map"),
        (SetItem(1, "x"), "does not go with a map"),
        (SetText("x"), "not JSON"),
        (SetText("[]"), "An object"),
        (SetText('{"age": 3}'), "'name' is required"),
        (SetText('{"name": "a", "nam": "b"}'), "no field 'nam'"),
        (SetText("[" * 100_000), "not JSON"),
        (SetField("name", "x", section="facts"), "has no sections"),
    ],
)
def test_what_a_map_does_not_take(edit: ContentEdit, said: str) -> None:
    refused(made(MAP, SetField("name", "Anna")), edit, said)


@pytest.mark.parametrize(
    "schema", [MAP, read_schema("tasks"), read_schema("observations"), COMPOSITE]
)
def test_what_is_given_to_an_editor_can_be_given_back(schema: Schema) -> None:
    edits: dict[int, list[ContentEdit]] = {
        id(MAP): [SetField("name", "Anna"), SetField("likes", ["tea"])],
        id(COMPOSITE): [
            Append("a note", "notes"),
            SetField("name", "Anna", "facts"),
            Append("pen", "things"),
        ],
    }
    document = made(schema, *edits.get(id(schema), [Append("one"), Append("two")]))
    before, parts = document.text, document.parts
    document.apply(SetText(document.editable()))
    assert (document.text, document.parts) == (before, parts)


# -- lists and logs --------------------------------------------------------------------------------


@pytest.mark.promise("M1")
def test_a_list_of_tasks() -> None:
    tasks = read_schema("tasks")
    document = made(
        tasks,
        Append("Buy milk"),
        Append('{"title": "Call Ben", "priority": 1, "due": "2026-10-12"}'),
        SetItem(1, {"done": True, "priority": None}),
        SetItem(2, '{"title": "Call Ben back"}'),
    )
    assert render(tasks, document.lines()).split("\n") == [
        "1. [x] Buy milk",
        "2. [ ] Call Ben back (priority: 1, due: 2026-10-12)",
    ]
    document.apply(RemoveItem(1))
    assert document.value() == [
        {"title": "Call Ben back", "done": False, "priority": 1, "due": "2026-10-12"}
    ]


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (Append('{"done": true}'), "'title' is required in an item"),
        (Append('{"title": "x", "colour": "red"}'), "no field 'colour' of an item"),
        (Append('{"title": 5}'), "takes text"),
        (Append('{"title": '), "begins like a JSON object"),
        (Append(" "), "says nothing"),
        (SetItem(2, {"done": True}), "no item 2; the list has 1 item"),
        (SetItem(0, {"done": True}), "no item 0"),
        (SetItem(1, {"title": None}), "required"),
        (SetItem(1, {"done": "perhaps"}), "true or false"),
        (SetItem(1, 5), "An object with title"),
        (RemoveItem(-1), "no item -1"),
        (SetField("title", "x"), "does not go with a list"),
        (SetText('[{"done": false}]'), "'title' is required"),
        (SetText("{}"), "A list is needed"),
    ],
)
def test_what_a_list_does_not_take(edit: ContentEdit, said: str) -> None:
    refused(made(read_schema("tasks"), Append("one")), edit, said)


def test_a_plain_list_and_its_most() -> None:
    schema = ListSchema(max_items=2)
    document = made(schema, Append("tea"), Append('{"not": "read"}'))
    assert render(schema, document.lines()) == '1. tea\n2. {"not": "read"}'
    refused(document, Append("third"), "can hold 2 items and would have 3")
    refused(document, SetText('["a", "b", "c"]'), "can hold 2 items")
    refused(document, SetItem(1, {"a": 1}), "no field 'a'")
    refused(document, SetText("[1]"), "Text is needed")
    document.apply(SetItem(1, "two\nlines"))
    assert document.lines()[0] == "two\\nlines"
    assert document.value()[0] == "two\nlines"


def test_rewriting_a_list_keeps_the_items_that_are_still_there() -> None:
    document = made(ListSchema(), *(Append(one) for one in "abcd"))
    ids = {row["text"]: row["_id"] for row in document.state}
    document.apply(SetText('["d", "a", "x", "c"]'))
    assert document.value() == ["d", "a", "x", "c"]
    kept = {row["text"]: row["_id"] for row in document.state}
    assert {one: kept[one] for one in "dac"} == {one: ids[one] for one in "dac"}


@pytest.mark.promise("M1")
def test_a_log_has_times_and_shows_the_newest_first() -> None:
    schema = LogSchema(shown=2)
    document = BlockContent.new(schema)
    for number in range(3):
        document.apply(Append(f"entry {number}"), now=NOW + number * 1000)
    assert document.lines()[0] == "2026-09-21T14:13:20Z entry 0"
    assert render(schema, document.lines()).split("\n") == [
        "(the newest 2 of 3)",
        "2026-09-21T14:13:22Z entry 2",
        "2026-09-21T14:13:21Z entry 1",
    ]
    refused(document, SetItem(1, "x"), "a log, to which entries are only added")
    refused(document, RemoveItem(1), "a log")
    observed = made(
        read_schema("observations"), Append('{"observation": "rain", "context": "walk"}')
    )
    assert observed.text == "2026-09-21T14:13:20Z rain (context: walk)"
    refused(observed, Append('{"context": "walk"}'), "'observation' is required in an entry")
    refused(observed, Append('{"observation": "a", "time": "2026-01-01"}'), "no field 'time'")


# -- composites ------------------------------------------------------------------------------------


@pytest.mark.promise("M1")
def test_a_composite() -> None:
    document = made(
        COMPOSITE,
        Append("## things\n\\## facts", "notes"),
        SetField("name", "Anna", "facts"),
        Append("pen", "things"),
        Append("## law", "things"),
        Add("energy", 2, "facts"),
    )
    told = render(COMPOSITE, document.lines())
    assert told.split("\n") == [
        "## notes: what to keep in mind",
        "## things",
        "\\## facts",
        "## facts",
        "name: Anna",
        "age: (not set)",
        "awake: (not set)",
        "likes: (not set)",
        "born: (not set: day of birth)",
        "energy: 7",
        "rule (read-only): be kind",
        "## law (read-only)",
        "(empty)",
        "## things",
        "1. pen",
        "2. ## law",
    ]
    assert BlockContent(COMPOSITE, document.parts).value() == document.value()
    refused(document, Append("x"), "Say which one is meant: 'notes'")
    refused(document, Append("x", "note"), "Did you mean 'notes'?")
    refused(document, Append("x", "facts"), "does not go with a map")
    refused(document, SetText('{"nots": "x"}'), "no section 'nots'")
    refused(document, SetText('{"notes": 5}'), "Text is needed, and a number")
    refused(document, SetText("7"), "An object with the sections")
    document.apply(SetText("only this", section="notes"))
    assert document.value()["notes"] == "only this"
    assert document.value()["things"] == ["pen", "## law"]


# -- read-only parts -------------------------------------------------------------------------------


@pytest.mark.promise("M2")
@pytest.mark.parametrize(
    ("edit", "part"),
    [
        (SetField("rule", "x", "facts"), "rule"),
        (SetField("rule", "be kind", "facts"), "rule"),
        (SetField("name", "x", "facts"), None),
        (Append("x", "law"), "law"),
        (SetText("x", section="law"), "law"),
        (Append("x", "notes"), None),
        (SetText('{"name": "x"}', section="facts"), None),
        (SetText('{"name": "x", "rule": "be mean"}', section="facts"), "rule"),
        (SetText('{"notes": "x", "facts": {"name": "y"}}'), None),
        (SetText('{"notes": "x", "facts": {"name": "y", "rule": "be kind"}}'), None),
        (SetText('{"facts": {"name": "y"}, "law": "mine"}'), "law"),
        (SetText('{"facts": {"name": "y", "rule": null}}'), "rule"),
        (SetText("no JSON"), None),
        (Append("x", "nowhere"), None),
    ],
)
def test_read_only_parts_are_known_before_they_are_written(
    edit: ContentEdit, part: str | None
) -> None:
    document = made(COMPOSITE, SetField("name", "Anna", "facts"))
    before = document.text
    assert document.touched_read_only(edit) == part
    assert document.text == before


def test_read_only_fields_of_items() -> None:
    schema = ListSchema((Field("title"), Field("by", read_only=True, default="owner")))
    document = made(schema, Append("one"))
    assert document.touched_read_only(Append("two")) is None
    assert document.touched_read_only(Append('{"title": "a", "by": "me"}')) == "by"
    assert document.touched_read_only(SetItem(1, {"title": "b"})) is None
    assert document.touched_read_only(SetItem(1, {"by": "b"})) == "by"
    assert document.touched_read_only(SetText('[{"title": "one", "by": "me"}]')) == "by"
    assert document.touched_read_only(SetText('[{"title": "one", "by": "owner"}, "x"]')) is None
    other = made(schema, SetText('[{"title": "one", "by": "me"}]'))
    assert document.read_only_changed(other) == "by"
    assert document.read_only_changed(document) is None


# -- what is seen ----------------------------------------------------------------------------------


@pytest.mark.promise("M9")
def test_numbers_count_what_is_seen_and_the_rest_stays() -> None:
    document = text("secret one\npublic a\nsecret two\npublic b\nsecret three")
    seen = [False, True, False, True, False]
    with pytest.raises(InvalidInput) as caught:
        document.apply(Replace("secret two!", "x"), seen=seen)
    assert "secret two'" not in caught.value.message
    with pytest.raises(InvalidInput, match="has 2 lines"):
        document.apply(EditRange(1, 3, "x"), seen=seen)
    document.apply(EditRange(1, 1, "public A\npublic B"), seen=seen)
    assert document.text == "secret one\npublic A\npublic B\nsecret two\npublic b\nsecret three"
    document.apply(SetText(""), seen=[False, True, True, False, True, False])
    assert document.text == "secret one\nsecret two\nsecret three"
    document.apply(SetText("new"), seen=[False, False, False])
    assert sorted(document.lines()) == ["new", "secret one", "secret three", "secret two"]

    listed = made(ListSchema(), Append("secret"), Append("a"), Append("b"))
    listed.apply(RemoveItem(1), seen=[False, True, True])
    assert listed.value() == ["secret", "b"]
    listed.apply(SetText('["c", "b"]'), seen=[False, True])
    assert sorted(listed.value()) == ["b", "c", "secret"]
    with pytest.raises(NotFound, match="no item 3; the list has 2 items"):
        listed.apply(SetItem(3, "x"), seen=[seen != "secret" for seen in listed.value()])


# -- viewports -------------------------------------------------------------------------------------


@pytest.mark.promise("M1")
@pytest.mark.parametrize(
    ("schema", "count", "shown"),
    [
        (TextSchema(), 3, "1\n2\n3"),
        (TextSchema(lines=2), 3, "(lines 1-2 of 3)\n1\n2"),
        (TextSchema(2, 2), 4, "(lines 2-3 of 4)\n2\n3"),
        (TextSchema(2), 3, "(lines 2-3 of 3)\n2\n3"),
        (TextSchema(5, 2), 3, "(from line 5 of 3: nothing there)"),
        (TextSchema(lines=5), 3, "1\n2\n3"),
        (TextSchema(), 0, ""),
    ],
)
def test_a_viewport(schema: TextSchema, count: int, shown: str) -> None:
    assert render(schema, [str(number) for number in range(1, count + 1)]) == shown


# -- at rest ---------------------------------------------------------------------------------------


def test_what_is_no_content_is_said_to_be_damaged() -> None:
    with pytest.raises(StoreDamaged, match="cannot be read"):
        BlockContent(ListSchema(), {":rows": "no content"})
    stored = made(MAP, SetField("name", "Anna")).parts[":fields"]
    with pytest.raises(StoreDamaged, match="cannot be read"):
        BlockContent(MAP, {":fields": stored[:-4] + "abcd"})


def test_what_is_stored_holds_nothing_that_was_taken_out() -> None:
    document = text("keep CANARY keep")
    document.apply(Replace("CANARY ", ""))
    document.apply(Append("more"))
    assert "CANARY" not in json.dumps(dict(document.parts))
    assert document.text == "keep keep\nmore"


def test_updates_from_a_version_that_is_not_known_are_all_of_them() -> None:
    replica, other = Replica.new(TextSchema()), Replica.new(TextSchema())
    replica.write("x")
    for version in (b"junk", other.version):
        assert Replica.read(TextSchema(), replica.updates(version)).state == "x"


@pytest.mark.promise("M3")
def test_what_is_stored_grows_little_with_many_edits() -> None:
    """`python -m bench.growth` has the time of loading it."""

    def after(edits: int) -> Parts:
        document = text("\n".join(f"line {number}" for number in range(50)))
        for number in range(edits):
            document.apply(EditRange(number % 50 + 1, number % 50 + 1, f"line {number}"))
        return document.parts

    few, many = after(10), after(3_000)
    assert len(json.dumps(dict(many))) < 3 * len(json.dumps(dict(few)))


def test_values_of_any_json_are_refused_or_taken_never_broken() -> None:
    odd: list[Any] = [
        None,
        0,
        -1.5,
        True,
        "x",
        "",
        [],
        {},
        [1],
        {"a": 1},
        "\ud800",
        2**70,
        float("nan"),
    ]
    for schema in (MAP, read_schema("tasks"), ListSchema(), COMPOSITE):
        for value in odd:
            for edit in (SetField("age", value), SetItem(1, value), SetText(json.dumps(value))):
                document = made(schema)
                with suppress(InvalidInput, NotFound):
                    document.apply(edit)
                before = document.text
                document.apply(SetText(document.editable()))
                assert document.text == before
