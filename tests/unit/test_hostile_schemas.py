"""Schemas from outside: two hundred nasty ones are taken or refused with a reason, and quickly."""

from collections.abc import Iterator
from typing import Any

import orjson
import pytest

from asterism import AgentRecord, ToolContext
from asterism.errors import InvalidInput, ToolError
from asterism.tools.schema import SchemaTool, argument_faults, checked_schema, schema_for_model

Node = dict[str, Any]
AGENT = AgentRecord("agent_1", "aria", "demo:guide", "", 0)


def nested(depth: int, keyword: str) -> Node:
    node: Node = {"type": "string"}
    for _ in range(depth):
        inner: Any = [node] if keyword in ("allOf", "anyOf", "oneOf") else node
        node = {keyword: {"a": inner} if keyword == "properties" else inner}
    return {"type": "object", "properties": {"a": node}}


def doubling(levels: int) -> Node:
    """Each definition names the next twice: 2^levels parts when unfolded."""
    defs: Node = {
        f"d{level}": {"allOf": [{"$ref": f"#/$defs/d{level + 1}"}] * 2} for level in range(levels)
    }
    defs[f"d{levels}"] = {"type": "string"}
    return {"type": "object", "properties": {"a": {"$ref": "#/$defs/d0"}}, "$defs": defs}


def hostile() -> Iterator[tuple[str, Any]]:
    odd: list[Any] = [None, True, False, 0, 3.5, "object", "{}", [], [{}], b"{}", object(), {1: 2}]
    for value in odd:
        yield f"not a schema: {value!r:.30}", value
    odd = ["string", "array", None, 7, [], ["object"], ["object", "null"], {}, "objekt", ""]
    for kind in odd:
        yield f"type {kind!r}", {"type": kind}
    for depth in (5, 15, 41, 100, 1_000, 20_000):
        for keyword in ("properties", "items", "allOf", "anyOf", "oneOf", "not", "if"):
            yield f"{keyword} x {depth}", nested(depth, keyword)
    odd = [
        "#", "#/", "#/properties/a", "#/$defs/a", "#a", "a", "", "/", "#/%zz", "#/~2", "#//",
        "https://example.com/schema.json", "http://169.254.169.254/", "file:///etc/passwd",
        "#/$defs/a/b/c", "#/properties/a/$ref", "#/type", "#/required/0", "#/properties/0",
        "urn:x:y", "\x00", "#/" + "a/" * 3_000, "#/properties/a/properties/b", 7, None, [], {},
    ]  # fmt: skip
    for reference in odd:
        yield f"$ref {reference!r:.30}", {"properties": {"a": {"$ref": reference}}}
        yield (
            f"$ref {reference!r:.30} in a circle",
            {"properties": {"a": {"$ref": "#/$defs/a"}}, "$defs": {"a": {"$ref": reference}}},
        )
    for levels in (3, 10, 20, 60):
        yield f"doubling {levels}", doubling(levels)
    for name in (
        "größe", "名前", "a b", "", "a" * 65, "a" * 64, "__proto__", "constructor", "a\x00b",
        "a\nb", "\ud800", "\u202e", "😀", "a.b", "$ref", "type", "-", "'; DROP TABLE",
        "../../x", "é" * 30,
    ):  # fmt: skip
        yield f"parameter {name!r:.20}", {"properties": {name: {"type": "string"}}}
        yield f"nested {name!r:.20}", {"properties": {"a": {"properties": {name: {}}}}}
    for pattern in (
        "(a+)+$", "(", "[", "a{99999999}", "(?P<x>a)(?P=x)", "\\", "(" * 400, "a" * 2_000, "\\p{L}",
        "(?!)", "(?<=a+)b", "^(a|a)*$", "\x00", "", "(a{1,100}){1,100}",
        "((a{300}){300}){300}", "a{9999,}",
    ):  # fmt: skip
        yield f"pattern {pattern!r:.20}", {"properties": {"a": {"pattern": pattern}}}
        yield f"names {pattern!r:.20}", {"patternProperties": {pattern: {"type": "string"}}}
    yield "many", {"properties": {f"p{n}": {"type": "string"} for n in range(500)}}
    yield "too many", {"properties": {f"p{n}": {"type": "string"} for n in range(50_000)}}
    yield "long words", {"description": "x" * 200_000}
    yield "long enum", {"properties": {"a": {"enum": list(range(100_000))}}}
    yield "huge number", {"properties": {"a": {"maximum": 10**400}}}
    yield "nan", {"properties": {"a": {"default": float("nan")}}}
    yield "infinite", {"properties": {"a": {"maximum": float("inf")}}}
    yield "properties a list", {"properties": ["a", "b"]}
    yield "properties a text", {"properties": "a"}
    yield "required a text", {"required": "a"}
    yield "required missing", {"required": ["b"], "properties": {}}
    yield "no schema in items", {"properties": {"a": {"items": 7}}}
    yield "draft 4", {"$schema": "http://json-schema.org/draft-04/schema#", "id": "x"}
    yield "draft 7", {"$schema": "http://json-schema.org/draft-07/schema#", "$id": "x"}
    yield "unknown draft", {"$schema": "https://example.com/my-draft"}
    yield "draft within", {"properties": {"a": {"$schema": "http://json-schema.org/schema#"}}}
    yield "id within", {"properties": {"a": {"$id": "http://example.com/", "$ref": "#/x"}}}
    yield "dynamic", {"$dynamicAnchor": "a", "properties": {"a": {"$dynamicRef": "#a"}}}
    yield "recursive", {"$recursiveAnchor": True, "properties": {"a": {"$recursiveRef": "#"}}}
    yield "top anyOf", {"anyOf": [{"required": ["a"]}, {"properties": {"b": {}}}]}
    yield "top ref", {"$ref": "#/$defs/a", "$defs": {"a": {"properties": {"b": {}}}}}
    yield "top ref to itself", {"$ref": "#"}
    yield "tree", {"properties": {"children": {"type": "array", "items": {"$ref": "#"}}}}
    yield (
        "bushy tree",
        {"properties": {"a": {"anyOf": [{"$ref": "#"}, {"$ref": "#"}, {"$ref": "#"}]}}},
    )
    loop: Node = {"type": "object"}
    loop["properties"] = {"a": loop}
    yield "contains itself", loop
    wide: Node = {"type": "object"}
    wide["properties"] = {f"p{n}": wide for n in range(100)}
    yield "contains itself a hundred times", wide


HOSTILE = list(hostile())
ARGUMENTS: list[Node] = [
    {},
    {"a": "a" * 40 + "!"},
    {"a": {"b": [1, None, "x"]}, "children": [{"children": [{}]}]},
    {"größe": 1, "": None},
]


def tried(schema: Any) -> tuple[SchemaTool | None, str]:
    try:
        return SchemaTool("look_up", "Looks something up.", schema, nothing), ""
    except InvalidInput as error:
        return None, error.message


def answer(tool: SchemaTool, arguments: Node) -> str:
    try:
        tool.read(orjson.dumps(arguments).decode())
    except ToolError as error:
        return error.message
    return "It fits."


@pytest.mark.promise("S4")
@pytest.mark.promise("S5")
def test_two_hundred_hostile_schemas_are_taken_or_refused_with_a_reason():
    assert len(HOSTILE) >= 200
    taken: list[str] = []
    for title, schema in HOSTILE:
        tool, reason = tried(schema)
        if tool is None:
            assert "look_up" in reason, title
            assert reason.endswith("was not added."), title
            assert len(reason) < 600, title
        else:
            taken.append(title)
            wire = tool.wire()["function"]["parameters"]
            assert wire["type"] == "object", title
            assert not {"anyOf", "oneOf", "allOf", "$schema"} & wire.keys(), title
            for arguments in ARGUMENTS:
                assert answer(tool, arguments).endswith(("It fits.", "call it again.")), title
    # A check that refuses all would be worthless.
    for unwanted in ("type 'string'", "properties x 41", "doubling 60", "too many", "$ref '#a'"):
        assert unwanted not in taken
    assert not [title for title in taken if "itself" in title or "http" in title]
    for wanted in ("not a schema: None", "properties x 5", "draft 7", "tree", "doubling 3", "many"):
        assert wanted in taken


async def nothing(ctx: Any, arguments: Node) -> str:
    return "done"


def test_a_circle_of_references_is_refused_and_a_tree_is_not():
    with pytest.raises(InvalidInput, match="refers to itself"):
        checked_schema("x", {"allOf": [{"$ref": "#"}]})
    tree = checked_schema("x", {"properties": {"next": {"$ref": "#"}}, "required": ["value"]})
    assert argument_faults(tree, {"value": 1, "next": {"value": 2}}) == []
    assert "next: 'value' is a required property" in argument_faults(tree, {"value": 1, "next": {}})


@pytest.mark.timeout(30)
def test_no_arguments_keep_the_check_busy():
    """Three ways at each level of a tree are 3^30 checks for thirty levels."""
    bushy: Node = {"$ref": "#"}
    schema = checked_schema(
        "x",
        {
            "properties": {"a": {"oneOf": [bushy, bushy, bushy]}},
            "required": ["b"],
        },
    )
    arguments: Node = {"b": 1}
    for _ in range(30):
        arguments = {"a": arguments, "b": 1}
    assert any("50,000 checks" in fault for fault in argument_faults(schema, arguments))
    pattern = checked_schema("x", {"properties": {"a": {"pattern": "^(a|a|aa)+$"}}})
    assert argument_faults(pattern, {"a": "a" * 60 + "!"})


def test_older_drafts_mean_what_they_meant():
    """In draft 7 a list under `items` goes by position; since 2020-12 that is no schema."""
    pair: Node = {"properties": {"pair": {"items": [{"type": "string"}, {"type": "integer"}]}}}
    draft = {"$schema": "http://json-schema.org/draft-07/schema#", **pair}
    schema = checked_schema("x", draft)
    assert argument_faults(schema, {"pair": ["a", 1]}) == []
    assert argument_faults(schema, {"pair": [1, "a"]})
    with pytest.raises(InvalidInput, match="items"):
        checked_schema("x", pair)


def test_alternatives_at_the_top_are_shown_as_parameters_and_still_enforced():
    schema = checked_schema(
        "x",
        {
            "oneOf": [
                {"properties": {"url": {"type": "string"}}, "required": ["url"]},
                {"$ref": "#/$defs/by_id"},
            ],
            "$defs": {"by_id": {"properties": {"id": {"type": "integer"}}, "required": ["id"]}},
        },
    )
    shown = schema_for_model(schema)
    assert "oneOf" not in shown
    assert set(shown["properties"]) == {"url", "id"}
    assert argument_faults(schema, {"id": 7}) == []
    assert argument_faults(schema, {})


@pytest.mark.parametrize("name", ["", "a b", "größe", "a" * 65, "server.tool", "a/b"])
def test_a_name_that_a_vendor_would_refuse_is_refused_here(name: str):
    with pytest.raises(InvalidInput, match="is not a valid tool name"):
        SchemaTool(name, "", {}, nothing)


async def test_a_tool_made_of_a_schema_runs_with_what_fits():
    async def add(ctx: Any, arguments: Node) -> Node:
        return {"sum": arguments["a"] + arguments["b"]}

    schema = {
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a", "b"],
        "additionalProperties": False,
    }
    tool = SchemaTool("add", "Adds.\x00 \ud800", schema, add)
    assert orjson.dumps(tool.wire())
    for wrong, reason in (
        ("{", "not valid JSON"),
        ("[1]", "must be a JSON object"),
        ('{"a": 1}', "'b' is a required property"),
        ('{"a": 1, "b": "2"}', "b: '2' is not of type 'integer'"),
        ('{"a": 1, "b": 2, "c": 3}', "Additional properties"),
    ):
        with pytest.raises(ToolError, match=reason):
            tool.read(wrong)
    assert (
        await tool.run(
            ToolContext(AGENT, "turn_1", "turn_1/0/call/0", 0), tool.read('{"a": 1, "b": 2}')
        )
        == '{"sum":3}'
    )


@pytest.mark.promise("X5")
@pytest.mark.timeout(20)
def test_names_and_items_are_held_against_a_schema_in_linear_time():
    named = checked_schema(
        "x", {"patternProperties": {"^(a|a|aa)+$": {}}, "additionalProperties": False}
    )
    assert argument_faults(named, {"aaa": 1}) == []
    assert "'aab' was unexpected" in argument_faults(named, {"aab": 1})[0]
    assert argument_faults(named, {"a" * 60 + "!": 1})

    unique = checked_schema("x", {"properties": {"a": {"uniqueItems": True}}})
    mixed: list[Any] = [{"n": n} if n % 2 else [n, "x"] for n in range(20_000)]
    assert argument_faults(unique, {"a": mixed}) == []
    assert "the same item twice" in argument_faults(unique, {"a": [*mixed, {"n": 1}]})[0]


@pytest.mark.promise("X5")
@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ({"properties": {"a": {"pattern": "^(?=b)a"}}}, "look-ahead"),
        ({"$ref": "#/elsewhere/a", "elsewhere": {"a": {"pattern": r"(a)\1"}}}, "references back"),
        ({"patternProperties": {"(?:a{100}){100}": {}}}, "repeats above 1,000"),
        ({"properties": {f"p{n}": {"pattern": f"a{n}"} for n in range(101)}}, "101 patterns"),
        ({"properties": {f"p{n}": {"pattern": f"[ab]{{900}}{n}"} for n in range(30)}}, "too large"),
        (
            {"patternProperties": {"^a": {}}, "unevaluatedProperties": False},
            "unevaluatedProperties beside patternProperties",
        ),
    ],
)
def test_a_schema_with_patterns_that_cannot_be_bounded_is_refused(schema: Node, reason: str):
    with pytest.raises(InvalidInput, match=reason):
        checked_schema("x", schema)


def test_a_pattern_that_only_this_engine_knows_is_taken():
    schema = checked_schema("x", {"properties": {"a": {"pattern": r"^\p{Greek}+$"}}})
    assert argument_faults(schema, {"a": "αβγ"}) == []
    assert argument_faults(schema, {"a": "abc"})
