"""Schemas in their JSON form: what is read comes back, and what makes no sense is refused."""

from __future__ import annotations

from typing import Any

import pytest

from asterism.errors import InvalidInput
from asterism.memory.schemas import TEMPLATES, read_schema, schema_wire
from asterism.types.memory import (
    CompositeSchema,
    Field,
    FieldType,
    ListSchema,
    LogSchema,
    MapSchema,
    Schema,
    SectionSchema,
    TextSchema,
)

ALL: list[Schema] = [
    *TEMPLATES.values(),
    TextSchema(3, 10),
    MapSchema((Field("ä b-c.d_1", FieldType.LIST, "what", True, ["x", 1], True),)),
    ListSchema(max_items=5),
    LogSchema((Field("what"),), shown=3),
    CompositeSchema(
        (SectionSchema("a", TextSchema(), "first", True), SectionSchema("b", ListSchema()))
    ),
]


@pytest.mark.promise("M1")
@pytest.mark.parametrize("schema", ALL, ids=str)
def test_a_schema_comes_back_as_it_was(schema: Schema) -> None:
    assert read_schema(schema_wire(schema)) == schema


def test_what_is_as_by_default_is_left_out() -> None:
    assert schema_wire(TextSchema()) == {"kind": "text"}
    assert schema_wire(LogSchema()) == {"kind": "log"}
    assert schema_wire(MapSchema((Field("a"),))) == {
        "kind": "map",
        "fields": [{"name": "a", "type": "text"}],
    }


def test_templates_by_name() -> None:
    assert set(TEMPLATES) == {"text", "tasks", "partner", "observations", "scratchpad"}
    assert read_schema("tasks") is TEMPLATES["tasks"]
    section = {"kind": "composite", "sections": [{"name": "to do", "schema": "tasks"}]}
    assert read_schema(section) == CompositeSchema((SectionSchema("to do", TEMPLATES["tasks"]),))


def of_fields(*fields: Any, kind: str = "map") -> dict[str, Any]:
    return {"kind": kind, {"map": "fields", "list": "item", "log": "entry"}[kind]: list(fields)}


ITSELF: dict[str, Any] = {"kind": "composite"}
ITSELF["sections"] = [{"name": "me", "schema": ITSELF}]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("task", "Did you mean 'tasks'?"),
        ("", "no schema named ''"),
        ({}, 'has no "kind"'),
        ({"kind": "tree"}, "has the kind 'tree'; it can be text, map"),
        ({"kind": ["map"]}, "has the kind ['map']"),
        ({"kind": "text", "line": 3}, "says 'line'"),
        ({"kind": "text", "lines": 0}, "lines 0; a whole number of at least 1"),
        ({"kind": "text", "first_line": "1"}, "first_line '1'"),
        ({"kind": "text", "first_line": True}, "first_line True"),
        ({"kind": "list", "max_items": 0}, "max_items 0"),
        ({"kind": "log", "shown": -1}, "shown -1"),
        ({"kind": "map"}, "a map without fields"),
        ({"kind": "map", "fields": "name"}, "not a list, but str"),
        ({"kind": "map", "fields": ["name"]}, "not an object"),
        (of_fields({"type": "text"}), "a field without a name"),
        (of_fields({"name": " "}), "a field without a name"),
        (of_fields({"name": "x" * 65}), "65 characters"),
        (of_fields({"name": "a/b"}), "named 'a/b'"),
        (of_fields({"name": "a:b"}), "named 'a:b'"),
        (of_fields({"name": "a\n"}), "named 'a\\n'"),
        (of_fields({"name": "_id"}), "named '_id'"),
        (of_fields({"name": "a", "type": "colour"}), "the type 'colour'; it can be text, number"),
        (of_fields({"name": "a", "size": 3}), "says 'size'"),
        (of_fields({"name": "a"}, {"name": "a"}), "two fields named 'a'"),
        (of_fields({"name": "a", "type": "number", "default": "x"}), "default that does not fit"),
        (of_fields({"name": "a", "type": "list", "default": [[]]}), "default that does not fit"),
        (of_fields({"name": "a", "required": "yes"}), "required 'yes'; true or false"),
        (of_fields({"name": "a", "description": 5}), "description 5; text"),
        (
            of_fields(*({"name": f"f{number}"} for number in range(201))),
            "201 fields; the most is 200",
        ),
        (of_fields({"name": "n", "type": "counter"}, kind="list"), "counters are for maps only"),
        (of_fields({"name": "n", "type": "counter"}, kind="log"), "counters are for maps only"),
        (of_fields({"name": "time"}, kind="log"), "'time', which every entry of a log has"),
        ({"kind": "composite"}, "without sections"),
        ({"kind": "composite", "sections": [{"name": "a"}]}, "Section 'a' is NoneType"),
        ({"kind": "composite", "sections": ["a"]}, "not an object with a name and a schema"),
        ({"kind": "composite", "sections": [{"name": "a", "schema": "text"}] * 2}, "two sections"),
        ({"kind": "composite", "sections": [{"name": "a", "schema": "text"}] * 51}, "51 sections"),
        (ITSELF, "Section 'me' is a composite within a composite"),
    ],
)
def test_what_makes_no_sense_is_refused_in_a_sentence(given: Any, said: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        read_schema(given)
    assert said in caught.value.message
    assert caught.value.message.endswith(".")
    assert len(caught.value.message) < 300
