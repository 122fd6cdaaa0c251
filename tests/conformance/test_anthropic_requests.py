"""What is sent to the Messages API, made from chat completions, and what its cache finds."""

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asterism.errors import ModelRefused
from asterism.models.anthropic import Anthropic
from asterism.models.anthropic_messages import ConversationCache
from asterism.ports import ModelRequest
from asterism.types.turns import Call, Reply, message_wire, result_wire
from tests.conformance.model_contract import TOOLS, ask, wire
from tests.servers.anthropic_rules import refusal, sign
from tests.servers.anthropic_server import AnthropicServer

MARK = {"type": "ephemeral"}
PIXEL = "iVBORw0KGgo="


@pytest.fixture
async def server() -> AsyncIterator[AnthropicServer]:
    async with AnthropicServer() as server:
        yield server


@pytest.fixture
async def port(server: AnthropicServer) -> AsyncIterator[Anthropic]:
    port = make(server.base_url)
    yield port
    await port.close()


def make(base_url: str = "http://127.0.0.1:9", **options: Any) -> Anthropic:
    return Anthropic("local", {"base_url": base_url, "options": options})


def composed(request: ModelRequest, **options: Any) -> dict[str, Any]:
    """Return the body that is sent for a request; what the API would refuse fails the test."""
    body: dict[str, Any] = orjson.loads(make(**options).body(request, streamed=False))
    assert refusal(body) == ""
    return body


def turns(body: dict[str, Any]) -> list[tuple[str, list[dict[str, Any]]]]:
    """Return the messages of a body, without marks."""
    return [
        (message["role"], [unmarked(block) for block in message["content"]])
        for message in body["messages"]
    ]


def unmarked(block: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in block.items() if name != "cache_control"}


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def use(id: str, at: str = "sky") -> dict[str, Any]:
    return {"type": "tool_use", "id": id, "name": "look", "input": {"at": at}}


def result(id: str, words: str) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": id, "content": [text(words)]}


def calling(*ids: str, words: str = "") -> bytes:
    return Reply(words, tuple(Call(id, "look", '{"at": "sky"}') for id in ids)).wire()


# Messages


async def test_a_plain_request(server: AnthropicServer, port: Anthropic):
    await port.complete(ask("Hello", wire("assistant", "Hi"), "How are you?", model='na"me'))
    assert server.requests[0].body == {
        "model": 'na"me',
        "max_tokens": 8192,
        "system": [text("You are a test.") | {"cache_control": MARK}],
        "messages": [
            {"role": "user", "content": [text("Hello") | {"cache_control": MARK}]},
            {"role": "assistant", "content": [text("Hi")]},
            {"role": "user", "content": [text("How are you?") | {"cache_control": MARK}]},
        ],
    }


def test_calls_and_their_results():
    body = composed(
        ask(
            "Look around.",
            calling("a", "b", words="I look."),
            result_wire("b", "blue"),
            result_wire("a", ""),
            wire("user", "[asterism] Note."),
            Reply(calls=(Call("c", "look", ""),)).wire(),
            result_wire("c", "green"),
            tools=TOOLS,
        )
    )
    assert turns(body) == [
        ("user", [text("Look around.")]),
        ("assistant", [text("I look."), use("a"), use("b")]),
        (
            "user",
            [
                result("b", "blue"),
                {"type": "tool_result", "tool_use_id": "a"},
                text("[asterism] Note."),
            ],
        ),
        ("assistant", [{**use("c"), "input": {}}]),
        ("user", [result("c", "green")]),
    ]


def test_ids_that_were_used_before_are_made_unique():
    talk = ["Look.", calling("call_0", "call 0"), result_wire("call_0", "one")]
    again = [result_wire("call 0", "two"), "Again.", calling("call_0"), result_wire("call_0", "x")]
    said = turns(composed(ask(*talk, *again)))
    assert said[1][1] == [use("call_0"), use("call_0_2")]
    assert said[2][1] == [result("call_0", "one"), result("call_0_2", "two"), text("Again.")]
    assert said[3][1] == [use("call_0_3")]
    assert said[4][1] == [result("call_0_3", "x")]


def test_ids_that_are_the_same_in_one_reply():
    said = turns(
        composed(ask("Look.", calling("", ""), result_wire("", "one"), result_wire("", "two")))
    )
    assert said[1][1] == [use("call"), use("call_2")]
    assert said[2][1] == [result("call", "one"), result("call_2", "two")]


def test_calls_without_results_and_results_without_calls():
    said = turns(
        composed(
            ask(
                "Look.",
                calling("a", "b"),
                "Stop that.",
                result_wire("b", "blue"),
                result_wire("z", "lost"),
                wire("assistant", "Well."),
                result_wire("a", "late"),
            )
        )
    )
    missing = result("a", "[asterism] There is no result: the call was interrupted.")
    orphan = text("[asterism] The result of a call that is no longer shown:")
    assert said[2][1] == [
        result("b", "blue"),
        {**missing, "is_error": True},
        text("Stop that."),
        orphan,
        text("lost"),
    ]
    assert said[4][1] == [orphan, text("late")]


def test_a_conversation_that_ends_with_open_calls():
    said = turns(composed(ask("Look.", calling("a"))))
    assert [block["tool_use_id"] for block in said[2][1]] == ["a"]


def test_beginnings_and_ends_that_the_api_does_not_take():
    go_on = ("user", [text("[asterism] Go on.")])
    earlier = ("user", [text("[asterism] What was said before is not shown.")])
    hello = ("assistant", [text("Hello")])
    assert turns(composed(ask(wire("assistant", "Hello")))) == [earlier, hello, go_on]
    assert turns(composed(ask())) == [go_on]
    assert turns(composed(replace(ask(), messages=[]))) == [go_on]
    assert turns(composed(ask("", wire("assistant", " \n"), "  "))) == [go_on]


def test_messages_of_one_side_become_one():
    body = composed(
        ask("One.", "Two.", wire("assistant", "A."), wire("assistant", ""), wire("assistant", "B."))
    )
    assert turns(body)[:2] == [
        ("user", [text("One."), text("Two.")]),
        ("assistant", [text("A."), text("B.")]),
    ]


def test_system_messages_come_first_and_later_ones_stay_where_they_are():
    body = composed(
        ask(
            wire("system", "Be brief."), wire("system", ""), "Hello", wire("developer", "Now long.")
        )
    )
    assert [unmarked(block) for block in body["system"]] == [
        text("You are a test."),
        text("Be brief."),
    ]
    assert turns(body) == [("user", [text("Hello"), text("[asterism]"), text("Now long.")])]


def test_images_and_documents():
    parts = [
        {"type": "text", "text": "What is this?"},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}},
        {"type": "image_url", "image_url": {"url": "https://example.org/a.png", "detail": "low"}},
        {"type": "file", "file": {"file_data": f"data:application/pdf;base64,{PIXEL}"}},
        {"type": "image_url", "image_url": {"url": "data:image/svg+xml;base64,AAAA"}},
        {"type": "image_url", "image_url": {"url": "sky.png"}},
        {"type": "input_audio", "input_audio": {"data": "AAAA"}},
        {"type": "text", "text": ""},
        "and this?",
    ]
    said = orjson.dumps({"role": "user", "content": parts})
    shown = orjson.dumps({"role": "tool", "tool_call_id": "a", "content": parts[:2]})
    body = composed(ask(said, calling("a"), shown))
    image = {"type": "base64", "media_type": "image/png", "data": PIXEL}
    document = {"type": "base64", "media_type": "application/pdf", "data": PIXEL}
    first = turns(body)[0][1]
    assert first[:4] == [
        text("What is this?"),
        {"type": "image", "source": image},
        {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}},
        {"type": "document", "source": document},
    ]
    assert [block["text"].partition(",")[0] for block in first[4:]] == [
        "[asterism] Here was an attachment (image/svg+xml)",
        "[asterism] Here was an attachment (sky.png)",
        "[asterism] Here was a part of the kind 'input_audio'",
        "and this?",
    ]
    assert turns(body)[2][1][0]["content"] == first[:2]


@pytest.mark.parametrize(
    ("arguments", "sent"),
    [
        ('{"at": "é", "n": 1e300, "big": 123456789012345678901}', None),
        ("", {}),
        ("[1]", {"malformed_arguments": "[1]"}),
        ('{"at": ', {"malformed_arguments": '{"at": '}),
    ],
)
def test_arguments_are_an_object(arguments: str, sent: Any):
    reply = Reply(calls=(Call("a", "no such tool!", arguments),)).wire()
    request = ask("Look.", reply, result_wire("a", "x"), tools=TOOLS)
    raw = make().body(request, streamed=False)
    if sent is None:
        assert b'"input":' + arguments.encode() + b"}" in raw
        return
    block = composed(request)["messages"][1]["content"][0]
    assert (block["name"], block["input"]) == ("no_such_tool_", sent)


# Tools and wishes


def test_tools_and_the_choice_of_them():
    request = ask("Hello", tools=TOOLS)
    look = {
        "name": "look",
        "description": "Look somewhere.",
        "input_schema": {"type": "object", "properties": {"at": {"type": "string"}}},
        "cache_control": MARK,
    }
    body = composed(request)
    assert body["tools"] == [look]
    assert "tool_choice" not in body
    for choice, sent in {
        "none": {"type": "none"},
        "required": {"type": "any"},
        "look": {"type": "tool", "name": "look"},
    }.items():
        assert composed(replace(request, tool_choice=choice))["tool_choice"] == sent
    for tools in (None, b"[]"):
        body = composed(replace(request, tools=tools, tool_choice="required"))
        assert not {"tools", "tool_choice"} & body.keys()


def test_a_tool_without_parameters():
    tools = orjson.dumps([{"type": "function", "function": {"name": "now"}}] * 2)
    empty: dict[str, Any] = {"name": "now", "input_schema": {"type": "object", "properties": {}}}
    assert composed(ask("Hi", tools=tools))["tools"] == [empty, empty | {"cache_control": MARK}]


def test_past_calls_without_any_tools():
    body = composed(ask("Look.", calling("a"), result_wire("a", "blue")))
    assert [tool["name"] for tool in body["tools"]] == ["look"]
    assert body["tool_choice"] == {"type": "none"}


def test_further_fields_and_bounds():
    request = ask("Hello")
    body = composed(request, temperature=0.2, max_tokens=500, metadata={"user_id": "me"})
    assert (body["temperature"], body["max_tokens"]) == (0.2, 500)
    assert body["metadata"] == {"user_id": "me"}
    assert composed(replace(request, max_output=7))["max_tokens"] == 7
    assert composed(replace(request, max_output=7), max_tokens=500)["max_tokens"] == 7
    assert composed(replace(request, max_output=900), max_tokens=500)["max_tokens"] == 500
    assert composed(replace(request, extra=b'"top_k":3'))["top_k"] == 3


def test_the_schema_of_an_answer():
    schema = {
        "type": "object",
        "properties": {
            "stars": {"type": "integer", "minimum": 1, "maximum": 5, "description": "How good."},
            "names": {"type": "array", "items": {"$ref": "#/$defs/name"}, "minItems": 2},
            "when": {"oneOf": [{"type": "string", "format": "date"}, {"type": "null"}]},
        },
        "required": ["stars"],
        "$defs": {"name": {"type": "object", "properties": {"x": {"type": "string"}}}},
    }
    request = replace(ask("Hello"), schema=orjson.dumps(schema))
    body = composed(request, output_config={"effort": "low"})
    assert body["output_config"]["effort"] == "low"
    sent = body["output_config"]["format"]
    assert sent["type"] == "json_schema"
    assert sent["schema"]["additionalProperties"] is False
    assert sent["schema"]["required"] == ["stars"]
    assert sent["schema"]["$defs"]["name"]["additionalProperties"] is False
    assert sent["schema"]["properties"] == {
        "stars": {"type": "integer", "description": "How good. (minimum: 1, maximum: 5)"},
        "names": {
            "type": "array",
            "items": {"$ref": "#/$defs/name"},
            "description": "(minItems: 2)",
        },
        "when": {"anyOf": [{"type": "string", "format": "date"}, {"type": "null"}]},
    }
    assert composed(ask("Hello"), output_config={"effort": "low"})["output_config"] == {
        "effort": "low"
    }


ENABLED = {"type": "enabled", "budget_tokens": 2048}


def test_thinking_goes_with_the_rest_of_the_request():
    request = ask("Hello", tools=TOOLS)
    body = composed(request, thinking=ENABLED)
    assert (body["thinking"], body["max_tokens"]) == (ENABLED, 8192 + 2048)
    adaptive = composed(replace(request, tool_choice="required"), thinking={"type": "adaptive"})
    assert (adaptive["thinking"], adaptive["max_tokens"]) == ({"type": "adaptive"}, 16384)
    # A tool that is forced and a bound that leaves no room go before thinking.
    assert "thinking" not in composed(replace(request, tool_choice="look"), thinking=ENABLED)
    assert "thinking" not in composed(replace(request, max_output=1), thinking=ENABLED)
    less = composed(replace(request, max_output=2048), thinking=ENABLED)
    assert less["thinking"] == {"type": "enabled", "budget_tokens": 1024}


def test_a_turn_that_another_model_began_goes_on_without_thinking():
    request = ask("Look.", calling("a"), result_wire("a", "blue"), tools=TOOLS)
    assert "thinking" not in composed(request, thinking=ENABLED)
    foreign = {calling("a"): b'{"reasoning_content":"hm"}'}
    body = composed(replace(request, thoughts=foreign), thinking={"type": "adaptive"})
    assert turns(body)[1][1] == [use("a")]
    later = ask("Look.", calling("a"), result_wire("a", "blue"), wire("assistant", "Blue."), "Ok.")
    assert composed(later, thinking=ENABLED)["thinking"] == ENABLED


def test_the_double_refuses_what_the_api_would_refuse():
    request = ask("Look.", calling("a"), result_wire("a", "blue"), tools=TOOLS)
    sound = composed(request)

    def objection(**changed: Any) -> str:
        return refusal(orjson.loads(orjson.dumps({**sound, **changed})))

    first, reply, answer = ({"role": role, "content": content} for role, content in turns(sound))
    assert "alternate" in objection(messages=[first, first])
    assert "user role" in objection(messages=[reply, answer])
    assert "end with" in objection(messages=[first, reply])
    assert "without `tool_result`" in objection(messages=[first, reply, first])
    assert "without `tool_result`" in objection(messages=[answer])
    assert "unique" in objection(messages=[first, reply, answer, reply, answer])
    assert "define tools" in objection(tools=[])
    assert "non-whitespace" in objection(messages=[{"role": "user", "content": [text(" ")]}])
    assert "maximum of 4" in objection(system=[text("x") | {"cache_control": MARK}] * 5)
    assert "budget" in objection(thinking=ENABLED, max_tokens=2048)
    assert "Expected `thinking`" in objection(thinking=ENABLED)
    bent = {"type": "thinking", "thinking": "other", "signature": sign("this")}
    bent_reply = {"role": "assistant", "content": [bent, *reply["content"]]}
    assert "signature" in objection(messages=[first, bent_reply, answer])


async def test_what_is_refused_is_told(port: Anthropic):
    tools = TOOLS.replace(b'"look"', b'"look here"')
    with pytest.raises(ModelRefused, match="name should match pattern"):
        await port.complete(ask("Hello", tools=tools))


# The prompt cache


def marked(body: dict[str, Any]) -> list[str]:
    found = [f"tool {tool['name']}" for tool in body.get("tools", ()) if "cache_control" in tool]
    found += ["system" for block in body["system"] if "cache_control" in block]
    for place, message in enumerate(body["messages"]):
        blocks = message["content"]
        found += [f"{place}.{n}" for n, one in enumerate(blocks) if "cache_control" in one]
    return found


def test_marks_are_where_the_next_request_looks():
    talk = ["One.", wire("assistant", "Yes."), "Two.", calling("a"), result_wire("a", "blue")]
    assert marked(composed(ask(*talk[:1], tools=TOOLS))) == ["tool look", "system", "0.0"]
    assert marked(composed(ask(*talk[:3], tools=TOOLS))) == ["tool look", "system", "0.0", "2.0"]
    assert marked(composed(ask(*talk, tools=TOOLS))) == ["tool look", "system", "2.0", "4.0"]
    request = ask("Memory.", "One.", wire("assistant", "Yes."), "Two.", tools=TOOLS)
    frozen = composed(replace(request, frozen=2))
    assert marked(frozen) == ["tool look", "0.0", "0.1", "2.0"]
    two = ask(wire("system", "Changing."), "One.")
    assert [unmarked(one) == one for one in composed(two)["system"]] == [False, True]


@pytest.mark.promise("M12")
async def test_a_reply_with_more_calls_than_the_cache_looks_back(
    server: AnthropicServer, port: Anthropic
):
    ids = [f"call_{n}" for n in range(30)]
    talk = ["Look around. " * 2000]
    await port.complete(ask(*talk, tools=TOOLS))
    talk += [calling(*ids), *(result_wire(id, "blue") for id in ids)]
    second = (await port.complete(ask(*talk, tools=TOOLS))).usage
    assert second.cached > 6000
    assert second.cached + second.written == second.input
    third = (await port.complete(ask(*talk, wire("assistant", "Blue."), "Ok.", tools=TOOLS))).usage
    assert third.cached == second.input


@pytest.mark.promise("M12")
async def test_the_cache_is_hit_over_twenty_turns_with_a_changing_end(
    server: AnthropicServer, port: Anthropic
):
    """The last message is another one in each request, and the one before it stays."""
    talk: list[bytes | str] = [wire("user", "A long beginning. " * 1500)]
    cached = read = 0
    for turn in range(20):
        request = ask(*talk, f"Turn {turn}.", f"It is {turn} o'clock.", tools=TOOLS)
        usage = (await port.complete(replace(request, frozen=2))).usage
        talk += [f"Turn {turn}.", wire("assistant", f"Answer {turn}.")]
        if turn:
            cached, read = cached + usage.cached, read + usage.input
    assert cached / read >= 0.95
    ends = [raw.rindex(b'{"type":"text","text":"Turn ') for raw in server.bodies]
    mark = b',"cache_control":{"type":"ephemeral"}'
    for end, before, after in zip(ends, server.bodies, server.bodies[1:], strict=False):
        assert after.replace(mark, b"").startswith(before[:end].replace(mark, b""))


# Any conversation

words = st.sampled_from(["", " ", "Hello.", "Look at the sky."])
ids = st.sampled_from(["", "a", "b", "call 1"])
messages = st.one_of(
    words.map(lambda text: message_wire("user", text)),
    words.map(lambda text: message_wire("assistant", text)),
    words.map(lambda text: message_wire("system", text)),
    st.builds(calling, ids, ids),
    st.builds(calling, ids, words=words),
    st.builds(result_wire, ids, words),
)


def blocks(body: bytes) -> list[dict[str, Any]]:
    return [unmarked(block) for said in orjson.loads(body)["messages"] for block in said["content"]]


@given(st.lists(messages, max_size=12), st.integers(0, 4))
def test_any_conversation_is_taken_and_continued(talk: list[bytes], frozen: int):
    request = replace(ask(*talk, tools=TOOLS), frozen=frozen)
    sent = composed(request)
    assert len(marked(sent | {"system": sent.get("system", [])})) <= 4
    whole = make().body(request, streamed=False)
    port, grown = make(), b""
    for length in range(len(request.messages) + 1):
        part = replace(request, messages=request.messages[:length])
        grown = port.body(part, streamed=False)
        assert grown == make().body(part, streamed=False)
        ahead = request.messages[length : length + 1]
        last = request.messages[length - 1 : length]
        if last == [message_wire("user", "Hello.")] and ahead == [calling("a", "b")]:
            begun = blocks(grown)
            assert blocks(whole)[: len(begun)] == begun
    assert grown == whole


def test_conversations_take_no_more_room_than_they_may():
    small, port = ConversationCache(room=1000), make()
    for number in range(50):
        request = replace(ask("x" * 300, "y", "z"), agent_id=f"agent_{number % 7}")
        body = small.find(request).end()
        assert body in port.body(request, streamed=False)


def test_a_thousand_known_messages_are_sent_as_before():
    """`python -m bench.growth` has what they cost."""
    talk: list[bytes | str] = []
    for n in range(250):
        talk += [f"Number {n}. " * 20, calling(f"call_{n}"), result_wire(f"call_{n}", "blue " * 50)]
        talk.append(wire("assistant", f"It is blue, number {n}."))
    port = make()
    request = ask(*talk, "And now?", tools=TOOLS)
    first = port.body(request, streamed=True)
    assert port.body(request, streamed=True) == first
