"""`@tool`: what a model is told of a function, and what of its arguments reaches it."""

import asyncio
from datetime import date
from typing import Annotated, Any, Literal

import pytest
from pydantic import Field

from asterism import NOT_HAPPENED, AgentRecord, RetrySafety, Tool, ToolContext, ToolError, tool
from asterism.errors import ConfigError
from asterism.tools.tool import Toolbox, as_text


@tool(repeatable=True)
async def book(
    ctx: ToolContext,
    room: Literal["study", "attic"],
    day: date,
    guests: Annotated[int, Field(ge=1)] = 2,
    notes: list[str] | None = None,
) -> str:
    """Book a room.

    Longer than one line.

    Args:
        room: Which one.
        day: When, as in
            2026-12-24.
        guests (int): How many.
        notes: Wishes: whatever they are.

    Returns:
        What became of it.
    """
    return f"{ctx.key}: {room} on {day:%d.%m.} for {guests}, {notes}"


def parameters(one: Tool) -> dict[str, Any]:
    return one.wire()["function"]["parameters"]


@pytest.mark.promise("S5")
def test_the_schema_comes_from_signature_and_docstring():
    wire = book.wire()["function"]
    assert wire["name"] == "book"
    assert wire["description"] == "Book a room.\n\nLonger than one line."
    schema = parameters(book)
    assert "ctx" not in schema["properties"]
    assert schema["required"] == ["room", "day"]
    assert "additionalProperties" not in schema, "what is not a parameter is refused unsaid"
    assert schema["properties"]["room"]["enum"] == ["study", "attic"]
    assert schema["properties"]["day"]["description"] == "When, as in 2026-12-24."
    assert schema["properties"]["guests"]["description"] == "How many."
    assert schema["properties"]["notes"]["description"] == "Wishes: whatever they are."
    assert "title" not in str(schema)


def test_a_parameter_may_be_called_title():
    @tool
    def name(title: str) -> str:
        """Name."""
        return title

    assert parameters(name)["properties"]["title"]["type"] == "string"


@pytest.mark.promise("S5")
def test_arguments_are_converted_and_defaults_filled_in():
    given = book.read('{"room": "attic", "day": "2026-12-24"}')
    assert given == {"room": "attic", "day": date(2026, 12, 24), "guests": 2, "notes": None}
    agent = AgentRecord("agent_1", "aria", "a:b", "", 0)
    context = ToolContext(agent, "turn_1", "turn_1/0/call/0", 0)
    assert asyncio.run(book.run(context, given)).endswith("attic on 24.12. for 2, None")


@pytest.mark.promise("X5")
@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ("{", "not valid JSON"),
        ("[]", "must be a JSON object"),
        ('"x"', "must be a JSON object"),
        ("{}", "room: Field required; day: Field required"),
        ('{"room": "cellar", "day": "2026-12-24"}', "room: Input should be 'study' or 'attic'"),
        ('{"room": "attic", "day": "soon"}', "day: "),
        ('{"room": "attic", "day": "2026-12-24", "guests": 0}', "guests: "),
        ('{"room": "attic", "day": "2026-12-24", "colour": "red"}', "colour: Extra inputs"),
    ],
)
def test_unfit_arguments_are_told_so_that_a_model_can_correct_them(arguments: str, told: str):
    with pytest.raises(ToolError) as error:
        book.read(arguments)
    assert told in error.value.message
    assert "book" in error.value.message


async def happened(ctx: ToolContext) -> Any:
    """Say no."""
    del ctx
    return NOT_HAPPENED


def test_what_is_declared_decides_the_effect():
    def act() -> None:
        """Act."""

    assert tool(act).retry_safety is RetrySafety.UNKNOWN
    assert tool(repeatable=True)(act).retry_safety is RetrySafety.REPEATABLE
    assert tool(transactional=True)(act).retry_safety is RetrySafety.TRANSACTIONAL
    assert tool(check=happened)(act).retry_safety is RetrySafety.CHECKABLE
    assert tool(name="other")(act).name == "other"
    with pytest.raises(ConfigError, match="declare one of them"):
        tool(repeatable=True, transactional=True)


def test_a_function_that_cannot_be_described_is_refused():
    def act(*things: str) -> None:
        """Act."""

    with pytest.raises(ConfigError, match="takes \\*things"):
        tool(act)

    @tool
    def odd(thing: object) -> None:
        """Take anything."""

    assert "thing" in parameters(odd)["properties"]

    class Unknown:
        """A type no schema knows."""

    def strange(thing: Unknown) -> None:
        """Take something strange."""

    strange.__annotations__ = {"thing": Unknown, "return": None}
    with pytest.raises(ConfigError, match="cannot be described"):
        tool(strange).wire()


def test_results_become_text():
    assert as_text("x") == "x"
    assert as_text(None) == "Done."
    assert as_text({"a": [1, 2.5], 3: True}) == '{"a":[1,2.5],"3":true}'
    assert as_text({1, 2}) == "{1, 2}"


def test_a_toolbox_gives_an_agent_what_it_may_use():
    def act() -> None:
        """Act."""

    box = Toolbox([book, tool(act)])
    assert box.names() == ["act", "book"]
    assert box.names(("book",)) == ["book"]
    assert box.get("act", ("book",)) is None
    assert box.get("act", None) is not None
    assert box.wire(()) is None
    wire = box.wire(("book",))
    assert wire is not None
    assert wire.count(b'"type":"function"') == 1
    assert box.wire(("book",)) is wire
    with pytest.raises(ConfigError, match="Two tools are called 'act'"):
        box.add(tool(act))
