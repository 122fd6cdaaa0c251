"""Vendors asked by way of pydantic-ai: what is converted, with a function in place of a model."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import orjson
import pytest
from pydantic_ai.exceptions import (
    ContentFilterError,
    ModelTimeoutError,
    ModelUnavailableError,
    UnexpectedModelBehavior,
    UserError,
)
from pydantic_ai.messages import (
    ModelMessage,
    ModelResponse,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    UserPromptPart,
)
from pydantic_ai.models import StreamedResponse
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.usage import RequestUsage

from asterism.errors import (
    ContentRefused,
    ModelError,
    ModelGarbled,
    ModelRefused,
    ModelUnavailable,
)
from asterism.models.others import OtherVendor, VendorClient, VendorSpec
from asterism.models.others_messages import ConversionCache, load_thought
from asterism.types.turns import Reply
from tests.conformance.model_contract import TOOLS, Pieces, ask, wire


class Spoken(FunctionModel):
    """A function that says how its stream ended, as vendors do."""

    @asynccontextmanager
    async def request_stream(self, *args: Any, **more: Any) -> AsyncGenerator[StreamedResponse]:
        async with super().request_stream(*args, **more) as stream:
            stream.finish_reason = "stop"
            yield stream


def kind_of(model: FunctionModel) -> VendorSpec:
    client = VendorClient("http://box", lambda _: model, frozenset({"temperature"}))
    return VendorSpec("box", "Box", "orjson", ("BOX_API_KEY",), lambda _: client, needs_key=False)


async def test_a_history_is_converted_once():
    seen: list[list[ModelMessage]] = []

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        seen.append(messages)
        return ModelResponse([TextPart("Yes.")], finish_reason="stop")

    port = OtherVendor("box", {}, kind_of(Spoken(answer)))
    past = [wire("user", "one"), wire("assistant", "two"), wire("assistant", "")]
    await port.complete(ask(*past, "three"))
    await port.complete(ask(*[bytes(bytearray(each)) for each in past], "three", "four"))
    first, second = seen
    assert [type(message).__name__ for message in first] == [
        "ModelRequest",
        "ModelResponse",
        "ModelRequest",
    ]
    assert all(a is b for a, b in zip(first[0].parts, second[0].parts, strict=True))
    assert first[1].parts[0] is second[1].parts[0]
    prompts = [part.content for part in second[2].parts if isinstance(part, UserPromptPart)]
    assert prompts == ["three", "four"]


def test_what_is_kept_of_conversions_is_bounded():
    made: list[bytes] = []

    def make(said: bytes) -> bytes:
        made.append(said)
        return said

    kept: ConversionCache[bytes] = ConversionCache(10)
    for said in (b"aaaa", b"bbbb", b"aaaa", b"cccc", b"aaaa", b"bbbb", b"x" * 11, b"x" * 11):
        kept.get(said, make)
    assert made == [b"aaaa", b"bbbb", b"cccc", b"bbbb", b"x" * 11, b"x" * 11]


async def test_ids_of_calls_are_unique_and_arguments_are_json():
    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        parts = [
            ToolCallPart("look", {"at": "é"}, "1"),
            ToolCallPart("look", '{"at": ', "1"),
            ToolCallPart("look", None, "1"),
            ThinkingPart("Hm.", signature="s", provider_name="box"),
        ]
        return ModelResponse(parts, finish_reason="tool_call")

    port = OtherVendor("box", {}, kind_of(Spoken(answer)))
    reply = await port.complete(ask("Look!", tools=TOOLS))
    assert [(call.id, call.arguments) for call in reply.calls] == [
        ("1", '{"at":"é"}'),
        ("1_", '{"at":'),
        ("1__", "{}"),
    ]
    assert reply.finish == "tool_calls"
    assert Reply.from_entry(reply.wire(), reply.meta()) == reply
    again = load_thought(reply.thought, "box")
    assert again is not None
    assert [call.tool_call_id for call in again.tool_calls] == ["1", "1_", "1__"]
    assert load_thought(reply.thought, "other") is None


@pytest.mark.parametrize(
    ("part", "told"),
    [
        ({"type": "video"}, "holds a part of the type 'video'"),
        ({"type": "image_url", "image_url": {"url": "data:image/png,raw"}}, "is not in base64"),
    ],
)
@pytest.mark.promise("X5")
async def test_what_cannot_be_said(part: dict[str, Any], told: str):
    port = OtherVendor("box", {}, kind_of(Spoken(lambda messages, info: ModelResponse([]))))
    with pytest.raises(ModelRefused, match=told) as caught:
        await port.complete(ask(orjson.dumps({"role": "user", "content": [part]})))
    assert caught.value.message.startswith("The model 'box:guide' at http://box was not asked: a ")


@pytest.mark.parametrize(
    ("raised", "kind", "told"),
    [
        (UserError("No such choice"), ModelRefused, "was not asked: No such choice. Change that"),
        (ContentFilterError("Rude"), ContentRefused, "its content filter objects (Rude)"),
        (UnexpectedModelBehavior("Hm"), ModelGarbled, "(UnexpectedModelBehavior: Hm)"),
        (ZeroDivisionError(), ModelGarbled, "(ZeroDivisionError). Ask again"),
        (ModelUnavailableError("m", "Away"), ModelUnavailable, "(HTTP 503, 'Away')"),
        (ModelTimeoutError("m", "", phase="connect"), ModelUnavailable, "within 10 seconds"),
    ],
)
@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_whatever_is_raised_leaves_as_an_error_of_ours(
    raised: Exception, kind: type[ModelError], told: str, streamed: bool
):
    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        raise raised

    async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
        yield "Hel"
        raise raised

    port = OtherVendor("box", {}, kind_of(Spoken(answer, stream_function=stream)))
    with pytest.raises(ModelError) as caught:
        await port.complete(ask("Hello"), Pieces() if streamed else None)
    assert type(caught.value) is kind
    assert told in caught.value.message


async def test_a_picture_that_cannot_be_fetched(monkeypatch: pytest.MonkeyPatch):
    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        raise ValueError("Access to private address is blocked")

    port = OtherVendor("box", {}, kind_of(Spoken(answer)))
    image = {"type": "image_url", "image_url": {"url": "http://10.0.0.1/cat.png"}}
    with pytest.raises(ModelRefused, match=r"a picture could not be fetched .*is blocked\)\. Send"):
        await port.complete(ask(orjson.dumps({"role": "user", "content": [image]})))


async def test_what_nobody_counted_is_estimated():
    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        uncounted = RequestUsage(unmeasured_requests=1)
        return ModelResponse([TextPart("Yes, it is.")], finish_reason="stop", usage=uncounted)

    port = OtherVendor("box", {}, kind_of(Spoken(answer)))
    reply = await port.complete(ask("x" * 400))
    assert reply.usage.input > 100
    assert reply.usage.output == 3


async def test_a_call_that_names_no_tool():
    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        return ModelResponse([ToolCallPart("", "{}", "1")], finish_reason="tool_call")

    port = OtherVendor("box", {}, kind_of(Spoken(answer)))
    with pytest.raises(ModelGarbled, match="with a tool call that names no tool"):
        await port.complete(ask("Look!", tools=TOOLS))
