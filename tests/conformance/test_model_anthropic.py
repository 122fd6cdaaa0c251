"""The Anthropic wire format: the contract over loopback, and everything a server can do wrong."""

import asyncio
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asterism import Asterism, ToolEffect, TurnState
from asterism.errors import (
    ConfigError,
    ContentRefused,
    ContextTooLong,
    KeyRefused,
    ModelBusy,
    ModelError,
    ModelGarbled,
    ModelRefused,
    ModelUnavailable,
)
from asterism.models.anthropic import Anthropic, MessagesReplyParser
from asterism.models.endpoint import MalformedAnswer, RequestRejected
from asterism.ports import Model, ModelRequest, Profile, Profiled
from asterism.tools.tool import tool
from asterism.types.turns import Call, Reply, Usage
from tests.conformance.model_contract import TOOLS, ModelContract, Pieces, ask, wire
from tests.servers.anthropic_rules import sign
from tests.servers.anthropic_server import THOUGHT, AnthropicServer, events, status, whole
from tests.servers.openai_server import HTML, MALFORMED, Fault, Raw

ROOT = Path(__file__).parents[2]

KEY = "sk-ant-very-secret-0123456789"
STREAM = "text/event-stream"

Connect = Callable[..., Anthropic]


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    proxies = ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "LOCAL_API_KEY", *proxies):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
async def server() -> AsyncIterator[AnthropicServer]:
    async with AnthropicServer() as server:
        yield server


@pytest.fixture
async def connect(server: AnthropicServer) -> AsyncIterator[Connect]:
    ports: list[Anthropic] = []

    def connect(vendor: str = "local", **options: Any) -> Anthropic:
        ports.append(Anthropic(vendor, {"base_url": server.base_url, "key": KEY} | options))
        return ports[-1]

    yield connect
    for port in ports:
        await port.close()


class TestContract(ModelContract):
    asks_for_call = '[[call:look {"at": "[[the]] sky"}]]'

    @pytest.fixture
    async def model(self, connect: Connect) -> Model:
        return connect()


# Keys and settings


async def test_key_and_version_are_presented(server: AnthropicServer, connect: Connect):
    await connect().complete(ask("Hello"))
    headers = server.requests[0].headers
    assert headers["x-api-key"] == KEY
    assert headers["anthropic-version"] == "2023-06-01"
    assert "Authorization" not in headers
    assert server.requests[0].path == "/v1/messages"


@pytest.mark.promise("X5")
async def test_anthropic_without_a_key_is_refused_before_any_request():
    with pytest.raises(KeyRefused) as caught:
        await Anthropic("anthropic", {}).complete(ask("Hello", model="claude-haiku-4-5"))
    assert caught.value.message.startswith(
        "The model 'anthropic:claude-haiku-4-5' needs a key, but ANTHROPIC_API_KEY is not set."
    )


@pytest.mark.parametrize("tail", ["", "/", "/v1", "/v1/"])
async def test_the_address_with_and_without_its_version(
    server: AnthropicServer, connect: Connect, monkeypatch: pytest.MonkeyPatch, tail: str
):
    assert (await connect(base_url=server.base_url + tail).complete(ask("Hello"))).text
    monkeypatch.setenv("ANTHROPIC_BASE_URL", server.base_url + tail)
    monkeypatch.setenv("ANTHROPIC_API_KEY", "from-the-environment")
    port = connect("anthropic", base_url=None, key=None)
    assert (await port.complete(ask("Hello"))).text
    assert server.requests[1].headers["x-api-key"] == "from-the-environment"


@pytest.mark.promise("X5")
@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({}, "models.box.base_url is ''"),
        ({"key": "“sk-1”"}, "models.box.key holds characters"),
        ({"options": {"messages": []}}, "sets 'messages', which asterism sets by itself"),
        ({"options": {"system": "x"}}, "sets 'system', which asterism sets by itself"),
        ({"options": {"top_k": 1 << 70}}, "cannot be sent as JSON"),
        ({"options": {"thinking": {"type": 1 << 70}}}, "cannot be sent as JSON"),
        ({"options": {"max_tokens": "many"}}, "max_tokens is 'many'; a whole number from 1 up"),
        ({"options": {"thinking": True}}, "options.thinking is True; a table is needed"),
        (
            {"options": {"thinking": {"type": "enabled", "budget_tokens": 10}}},
            "budget_tokens is 10; a whole number from 1024 up",
        ),
        (
            {
                "options": {
                    "max_tokens": 2000,
                    "thinking": {"type": "enabled", "budget_tokens": 2000},
                }
            },
            "max_tokens is 2000, which must be more than thinking.budget_tokens (2000)",
        ),
    ],
)
def test_settings_that_cannot_be(options: dict[str, Any], told: str):
    if options:
        options = {"base_url": "http://box", **options}
    with pytest.raises(ConfigError) as caught:
        Anthropic("box", options)
    assert told in caught.value.message


def test_what_its_models_can_take_in():
    port = Anthropic("box", {"base_url": "http://box"})
    assert isinstance(port, Profiled)
    assert port.profile("any") == Profile(window=200_000, images=True)


@pytest.mark.promise("T8")
@pytest.mark.parametrize("fault", [status(401, kind="authentication_error"), status(429)])
async def test_the_next_key_is_used(server: AnthropicServer, connect: Connect, fault: Raw):
    port = connect(key="first-key, second-key")
    server.next(fault)
    assert (await port.complete(ask("Hello"))).text == "answer to: Hello"
    assert (await port.complete(ask("Hello"))).text == "answer to: Hello"
    used = [seen.headers["x-api-key"] for seen in server.requests]
    assert used == ["first-key", "second-key", "second-key"]


# What can go wrong

ERROR = "invalid_request_error"
FAULTS: list[tuple[str, Fault | Raw, type[ModelError], str]] = [
    ("refuse", Fault.REFUSE, ModelUnavailable, "was cut off"),
    ("hang", Fault.HANG, ModelUnavailable, "sent nothing for 0.5 seconds"),
    ("stall", Fault.STALL, ModelUnavailable, "sent nothing for 0.5 seconds"),
    ("cut", Fault.CUT, ModelUnavailable, "was cut off"),
    ("html", HTML, ModelGarbled, "an HTML page (HTTP 200) instead of JSON. Is base_url right?"),
    ("malformed", MALFORMED, ModelGarbled, "malformed JSON"),
    ("empty body", Raw(b""), ModelGarbled, "malformed JSON"),
    ("deep", Raw(b"[" * 100_000), ModelGarbled, "malformed JSON"),
    ("other shape", Raw(b'{"choices":[]}'), ModelGarbled, "JSON that is not a message"),
    ("a list", Raw(b"[]"), ModelGarbled, "JSON that is not a message"),
    ("odd block", Raw(b'{"content":[1]}'), ModelGarbled, "JSON that is not a message"),
    (
        "nameless call",
        Raw(b'{"content":[{"type":"tool_use","id":"a","input":{}}]}'),
        ModelGarbled,
        "names no tool",
    ),
    ("400", status(400, "x" * 999, kind=ERROR), ModelRefused, f"(HTTP 400, '{'x' * 299}…')"),
    (
        "401",
        status(401, f"invalid x-api-key {KEY}", kind="authentication_error"),
        KeyRefused,
        "refused the key (HTTP 401, 'invalid x-api-key …')",
    ),
    ("402", status(402, "Pay.", kind="billing_error"), KeyRefused, "has no quota left"),
    (
        "no credit",
        status(400, "Your credit balance is too low to access the Anthropic API.", kind=ERROR),
        KeyRefused,
        "has no quota left for this key (HTTP 400,",
    ),
    ("403", status(403, kind="permission_error"), KeyRefused, "models.local.key."),
    ("404", status(404, "model: x", kind="not_found_error"), ModelRefused, "is not there"),
    ("413", status(413, kind="request_too_large"), ContextTooLong, "bytes too large (HTTP 413"),
    (
        "too long",
        status(400, "prompt is too long: 201000 tokens > 200000 maximum", kind=ERROR),
        ContextTooLong,
        "has too small a window for this conversation",
    ),
    (
        "too long with its answer",
        status(400, "input length and `max_tokens` exceed context limit: 1 + 2 > 2", kind=ERROR),
        ContextTooLong,
        "has too small a window for this conversation",
    ),
    (
        "too much asked for",
        status(400, "max_tokens: 9 > 8, the maximum allowed number of output tokens", kind=ERROR),
        ModelRefused,
        "did not take the request",
    ),
    ("429", status(429, "slow", kind="rate_limit_error"), ModelBusy, "(HTTP 429, 'slow')"),
    ("500", status(500, "oops", kind="api_error"), ModelUnavailable, "(HTTP 500, 'oops')"),
    ("504", status(504, "late", kind="timeout_error"), ModelUnavailable, "(HTTP 504, 'late')"),
    ("529", status(529, "full", kind="overloaded_error"), ModelUnavailable, "(HTTP 529, 'full')"),
    (
        "error in 200",
        Raw(b'{"type":"error","error":{"type":"overloaded_error","message":"full"}}'),
        ModelUnavailable,
        "(HTTP 529, 'full')",
    ),
]


@pytest.mark.promise("X5")
@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(
    ("fault", "kind", "told"), [pytest.param(*row, id=id) for id, *row in FAULTS]
)
async def test_faults(
    server: AnthropicServer,
    connect: Connect,
    fault: Fault | Raw,
    kind: type[ModelError],
    told: str,
    streamed: bool,
):
    port = connect(timeout=0.5 if fault in (Fault.HANG, Fault.STALL) else 20)
    server.next(fault)
    with pytest.raises(ModelError) as caught:
        await port.complete(ask("Hello"), Pieces() if streamed else None)
    message = caught.value.message
    assert type(caught.value) is kind, message
    assert told in message
    assert message.startswith(f"The model 'local:guide' at {server.base_url} ")
    assert message.endswith((".", "?"))
    assert KEY not in message
    assert "\n" not in message
    assert caught.value.__suppress_context__
    after = await port.complete(ask("Hello again"), Pieces() if streamed else None)
    assert after.text == "answer to: Hello again"


START = (
    b'event: message_start\ndata: {"type":"message_start","message":{"usage":'
    b'{"input_tokens":9,"output_tokens":1}}}\n\n'
)


def event(**fields: Any) -> bytes:
    return b"data: " + orjson.dumps(fields) + b"\n\n"


def error(kind: str) -> bytes:
    return START + event(type="error", error={"type": kind, "message": "so"})


@pytest.mark.promise("X5")
@pytest.mark.parametrize(
    ("body", "kind", "told"),
    [
        (b"", ModelUnavailable, "was cut off"),
        (START, ModelUnavailable, "was cut off"),
        (b'data: {"type":"mess\n\n', ModelGarbled, "malformed JSON"),
        (b"data: 7\n\n", ModelGarbled, "not a message"),
        (event(type="content_block_start", content_block=7), ModelGarbled, "not a message"),
        (event(type="content_block_delta", index=3, delta={}), ModelGarbled, "never begun"),
        (error("overloaded_error"), ModelUnavailable, "(HTTP 529, 'so')"),
        (error("api_error"), ModelUnavailable, "(HTTP 500, 'so')"),
        (error("timeout_error"), ModelUnavailable, "(HTTP 504, 'so')"),
        (error("rate_limit_error"), ModelBusy, "(HTTP 429, 'so')"),
        (error("authentication_error"), KeyRefused, "(HTTP 401, 'so')"),
        (error("permission_error"), KeyRefused, "(HTTP 403, 'so')"),
        (error("billing_error"), KeyRefused, "no quota left"),
        (error("not_found_error"), ModelRefused, "(HTTP 404, 'so')"),
        (error("request_too_large"), ContextTooLong, "(HTTP 413, 'so')"),
        (error("invalid_request_error"), ModelRefused, "(HTTP 400, 'so')"),
        (error("invented_error"), ModelUnavailable, "(HTTP 500, 'so')"),
    ],
)
async def test_faulty_streams(
    server: AnthropicServer, connect: Connect, body: bytes, kind: type[ModelError], told: str
):
    server.next(Raw(body, STREAM))
    with pytest.raises(ModelError) as caught:
        await connect().complete(ask("Hello"), Pieces())
    assert type(caught.value) is kind, caught.value.message
    assert told in caught.value.message


async def test_it_asks_once(server: AnthropicServer, connect: Connect):
    server.next(status(529, retry_after="7"))
    with pytest.raises(ModelUnavailable) as caught:
        await connect().complete(ask("Hello"))
    assert caught.value.retry_after == 7
    assert len(server.requests) == 1


@pytest.mark.promise("X5")
async def test_the_callers_patience_ends(server: AnthropicServer, connect: Connect):
    server.next(Fault.STALL)
    with pytest.raises(ModelUnavailable, match=r"no whole answer within 0\.2 seconds"):
        await connect().complete(ask("Hello", timeout=0.2), Pieces())


# The answer

SEALED = {"type": "redacted_thinking", "data": "sealed:b2s="}
THINKING = {"type": "thinking", "thinking": "The sky is up. ✨", "signature": "c2ln+/="}
TWO_CALLS = Reply(
    text="Let me look: 🌌 é\r\n\n ok",
    calls=(
        Call("toolu_a", "look", '{"at": "the sky", "note": "日本"}'),
        Call("toolu_b", "look", "{}"),
    ),
    reasoning="The sky is up. ✨",
    usage=Usage(31, 17, 5, 3),
    finish="tool_calls",
    thought=orjson.dumps([THINKING, SEALED]),
)
RECORDED = b"".join(events(TWO_CALLS, "m"))


def read(*chunks: bytes) -> tuple[Reply, Pieces]:
    pieces = Pieces()
    answer = MessagesReplyParser(pieces)
    for chunk in chunks:
        answer.feed(chunk)
    answer.end()
    return answer.reply(sent=400), pieces


def read_whole(body: bytes) -> Reply:
    answer = MessagesReplyParser()
    answer.take(body)
    return answer.reply(sent=400)


@pytest.mark.promise("T5")
@given(st.data())
def test_a_stream_may_be_cut_anywhere(data: st.DataObject):
    stream = RECORDED
    if data.draw(st.booleans(), label="crlf"):
        stream = stream.replace(b"\n", b"\r\n")
    if data.draw(st.booleans(), label="no space"):
        stream = stream.replace(b"data: ", b"data:")
    if data.draw(st.booleans(), label="comments"):
        stream = stream.replace(b"event:", b": keep-alive\n\nid: 1\nevent:")
    if data.draw(st.booleans(), label="no end"):
        stream = stream[: stream.rindex(b"event:")].rstrip()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=60), label="cuts"))
    chunks = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    reply, pieces = read(*chunks)
    assert reply == TWO_CALLS
    assert pieces.joined("text") == TWO_CALLS.text
    assert pieces.joined("reasoning") == TWO_CALLS.reasoning


def test_a_stream_cut_at_every_byte():
    assert read(*(bytes([byte]) for byte in RECORDED))[0] == TWO_CALLS
    for cut in range(len(RECORDED)):
        assert read(RECORDED[:cut], RECORDED[cut:])[0] == TWO_CALLS


@pytest.mark.promise("T5")
@pytest.mark.parametrize("fault", [None, Fault.DRIBBLE])
async def test_streamed_and_whole_are_equal(connect: Connect, fault: Fault | None):
    async with AnthropicServer(lambda body: TWO_CALLS) as server:
        port = connect(base_url=server.base_url)
        server.next(fault, fault)
        unstreamed = await port.complete(ask("Hello"))
        streamed = await port.complete(ask("Hello"), Pieces())
    assert streamed == TWO_CALLS
    assert Reply.from_entry(streamed.wire(), streamed.meta()) == streamed
    assert [orjson.loads(call.arguments) for call in unstreamed.calls] == [
        orjson.loads(call.arguments) for call in TWO_CALLS.calls
    ]
    assert replace(unstreamed, calls=()) == replace(TWO_CALLS, calls=())


async def test_a_server_that_streams_unasked_or_does_not_stream(
    server: AnthropicServer, connect: Connect
):
    unstreamed = orjson.dumps(whole(TWO_CALLS, "m"))
    server.next(Raw(RECORDED), Raw(RECORDED, STREAM, step=50), Raw(unstreamed))
    port, pieces = connect(), Pieces()
    assert await port.complete(ask("Hello")) == TWO_CALLS
    assert await port.complete(ask("Hello")) == TWO_CALLS
    assert (await port.complete(ask("Hello"), pieces)).text == TWO_CALLS.text
    assert pieces.joined("text") == TWO_CALLS.text
    assert pieces.joined("reasoning") == TWO_CALLS.reasoning


def test_later_counts_stand_for_earlier_ones():
    counts = {"input_tokens": 10, "cache_read_input_tokens": 6, "cache_creation_input_tokens": 4}
    first = event(type="message_start", message={"usage": {**counts, "output_tokens": 1}})
    last = {"input_tokens": 12, "output_tokens": 5, "cache_read_input_tokens": None}
    end = event(type="message_delta", delta={"stop_reason": "end_turn"}, usage=last)
    assert read(first, end)[0].usage == Usage(22, 5, 6, 4)


def test_usage_that_is_missing_is_estimated():
    body = {"content": [{"type": "text", "text": "Hi there"}], "usage": {"output_tokens": "7"}}
    assert read_whole(orjson.dumps(body)).usage == Usage(100, 2)


@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("tool_use", "tool_calls"),
        ("max_tokens", "length"),
        ("pause_turn", "length"),
        ("model_context_window_exceeded", "length"),
        ("refusal", "content_filter"),
        ("invented", "stop"),
        (None, "stop"),
    ],
)
def test_why_it_stopped(reason: str | None, finish: str):
    body = {"content": [{"type": "text", "text": "Hi"}], "stop_reason": reason}
    assert read_whole(orjson.dumps(body)).finish == finish


@pytest.mark.promise("X5")
@pytest.mark.parametrize("streamed", [False, True])
async def test_a_refusal_is_told_and_not_acted_upon(
    server: AnthropicServer, connect: Connect, streamed: bool
):
    refused = Reply(calls=TWO_CALLS.calls, finish="content_filter")
    body = whole(refused, "m") | {"stop_details": {"type": "refusal", "category": "cyber"}}
    server.next(
        Raw(b"".join(events(refused, "m")), STREAM) if streamed else Raw(orjson.dumps(body))
    )
    with pytest.raises(ContentRefused, match="content filter objects") as caught:
        await connect().complete(ask("Hello"), Pieces() if streamed else None)
    assert streamed or "('cyber')" in caught.value.message
    server.next(Raw(orjson.dumps(whole(replace(refused, text="I will"), "m"))))
    half = await connect().complete(ask("Hello"))
    assert (half.text, half.calls, half.finish) == ("I will", (), "content_filter")


@pytest.mark.promise("X5")
async def test_a_window_without_room_for_a_word(server: AnthropicServer, connect: Connect):
    server.next(Raw(b'{"content":[],"stop_reason":"model_context_window_exceeded"}'))
    with pytest.raises(ContextTooLong, match="no room left for an answer"):
        await connect().complete(ask("Hello"))


def test_calls_as_servers_send_them():
    def started(index: int, **fields: Any) -> bytes:
        return event(type="content_block_start", index=index, content_block=fields)

    def part(index: int, text: str) -> bytes:
        delta = {"type": "input_json_delta", "partial_json": text}
        return event(type="content_block_delta", index=index, delta=delta)

    reply, _ = read(
        started(0, type="tool_use", id="a", name="look", input={}),
        part(0, ""),
        part(0, '{"x"'),
        started(1, type="tool_use", id="a", name="go", input={"é": [1]}),
        part(0, ": 1}"),
        started(2, type="tool_use", name="stay"),
        started(3, type="invented", id="z"),
        part(3, "{"),
        event(type="invented"),
        event(type="message_stop"),
    )
    assert reply.calls == (
        Call("a", "look", '{"x": 1}'),
        Call("a_", "go", '{"é": [1]}'),
        Call("call_2", "stay", "{}"),
    )
    assert reply.finish == "tool_calls"


def test_lone_surrogates_are_replaced_and_halves_joined():
    def raw(text: str) -> bytes:
        delta = b'{"type":"text_delta","text":"%s"}' % text.encode()
        return b'data: {"type":"content_block_delta","index":0,"delta":%s}\n' % delta

    start = event(type="content_block_start", index=0, content_block={"type": "text", "text": ""})
    reply, pieces = read(
        start, raw("a\\ud83d"), raw("\\ude00b\\ude00"), raw("c\\ud83d"), event(type="message_stop")
    )
    assert reply.text == "a😀b\ufffdc\ufffd"
    assert pieces.joined("text") == "a😀b\ufffdc"
    call = b'{"type":"tool_use","id":"\\ud800","name":"\\udc00","input":{"\\ud800":1}}'
    sealed = b'{"type":"redacted_thinking","data":"\\ud800"}'
    reply = read_whole(b'{"content":[%s,%s]}' % (sealed, call))
    assert reply.calls == (Call("\ufffd", "\ufffd", '{"\ufffd": 1}'),)
    assert orjson.loads(reply.thought) == [{"type": "redacted_thinking", "data": "\ufffd"}]


names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)
inputs = st.dictionaries(names, st.integers(-9, 9) | names, max_size=2)
replies = st.builds(
    Reply,
    text=st.text(st.characters(exclude_categories=["Cs"])),
    calls=st.lists(
        st.builds(Call, names, names, inputs.map(orjson.dumps).map(bytes.decode)),
        max_size=3,
        unique_by=lambda call: call.id,
    ).map(tuple),
    reasoning=st.text(st.characters(exclude_categories=["Cs"])),
    usage=st.builds(Usage, st.integers(9, 10**9), st.integers(1, 10**9), st.integers(0, 4)),
    finish=st.sampled_from(["stop", "length", "tool_calls"]),
)


@given(replies)
def test_any_reply_arrives_whole(reply: Reply):
    for got in (read_whole(orjson.dumps(whole(reply, "m"))), read(*events(reply, "m"))[0]):
        assert [orjson.loads(call.arguments) for call in got.calls] == [
            orjson.loads(call.arguments) for call in reply.calls
        ]
        assert replace(got, calls=(), thought=b"") == replace(reply, calls=())
        if got.thought:
            signature = sign(reply.reasoning)
            block = {"type": "thinking", "thinking": reply.reasoning, "signature": signature}
            assert orjson.loads(got.thought) == [block]


scalars = st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text("ab", max_size=2)
junk = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.just("text"), inner)
)


def some(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Tables with some of these fields, each sound or junk."""
    return st.fixed_dictionaries({}, optional={key: junk | fields[key] for key in fields})


kinds = st.sampled_from(["text", "tool_use", "thinking", "redacted_thinking"])
blocks = some(type=kinds, text=junk, thinking=junk, id=junk, name=junk, input=junk, data=junk)
deltas = some(
    type=st.sampled_from(["text_delta", "input_json_delta", "thinking_delta", "signature_delta"]),
    text=junk,
    partial_json=junk,
    stop_reason=junk,
)
stream_events = some(
    type=st.sampled_from(
        ["message_start", "content_block_start", "content_block_delta", "message_delta", "error"]
    ),
    index=st.integers(0, 1),
    content_block=blocks,
    delta=deltas,
    message=some(usage=junk),
    usage=some(input_tokens=junk),
    error=some(type=junk, message=junk),
)
bodies = some(
    type=junk, content=st.lists(blocks, max_size=3), usage=junk, stop_details=junk, error=junk
)
noise = st.lists(st.sampled_from([b"data:", b"event", b"\n", b"{", b"}", b'"', b"<"]))


@pytest.mark.promise("X5")
@given(bodies.map(orjson.dumps) | noise.map(b"".join) | st.binary(), st.lists(stream_events))
def test_any_answer_is_a_reply_or_a_known_error(body: bytes, stream: list[Any]):
    known = (MalformedAnswer, RequestRejected, ConnectionAbortedError)
    with suppress(*known):
        read_whole(body)
    with suppress(*known):
        read(body)
    sound = b"".join(b"data: " + orjson.dumps(one) + b"\n\n" for one in stream)
    with suppress(*known):
        read(sound, event(type="message_stop"))


# Whole turns


@tool(repeatable=True, effects=ToolEffect("read"))
def look(at: str) -> str:
    """Look somewhere."""
    return f"{at} is blue"


def configure(place: Path, server: AnthropicServer, options: str = "") -> None:
    (place / "asterism.toml").write_text(
        f'model = "anthropic:claude-test"\n'
        f'[models.anthropic]\nbase_url = "{server.base_url}"\nkey = "{KEY}"\n{options}'
    )


BUDGETED = '[models.anthropic.options]\nthinking = {type = "enabled", budget_tokens = 2048}\n'


@pytest.mark.promise("T5", "T12")
@pytest.mark.parametrize("options", [BUDGETED, BUDGETED.replace("enabled", "adaptive")])
async def test_thinking_comes_back_unmodified_through_a_whole_turn(
    tmp_path: Path, server: AnthropicServer, options: str
):
    if "adaptive" in options:
        options = options.replace(", budget_tokens = 2048", "")
    configure(tmp_path, server, options)
    async with Asterism.open(tmp_path, environ={}, tools=[look]) as home:
        await home.agents.create("aria")
        calls = '[[call:look {"at": "sky"}]] [[call:look {"at": "sea"}]]'
        outcome = await home.agents.ask("aria", calls)
        assert outcome.state is TurnState.DONE, outcome.text
        later = await home.agents.ask("aria", "And now?")
        assert later.state is TurnState.DONE, later.text
    # A block that is not as it was sent is refused by the double, and would have ended the turn.
    second, third, last = (seen.body["messages"] for seen in server.requests[1:])
    thought = {"type": "thinking", "thinking": THOUGHT, "signature": sign(THOUGHT)}
    assert [second[1]["content"][0]] == [thought]
    assert [third[place]["content"][0] for place in (1, 3)] == [thought, thought]
    assert [block["type"] for block in third[3]["content"]] == ["thinking", "tool_use"]
    assert not any(block["type"] == "thinking" for said in last for block in said["content"])


@pytest.mark.promise("T5")
async def test_thinking_between_other_blocks_comes_back_in_its_place(connect: Connect):
    def thought(text: str) -> dict[str, Any]:
        return {"type": "thinking", "thinking": text, "signature": sign(text)}

    sent = [
        thought("first"),
        {"type": "text", "text": "I look."},
        thought("second"),
        SEALED,
        {"type": "tool_use", "id": "toolu_a", "name": "look", "input": {"at": "the sky"}},
    ]
    call = Call("toolu_a", "look", '{"at":"the sky"}')
    reply = Reply("I look.", (call,), thought=orjson.dumps(sent), finish="tool_calls")
    said = iter([reply, reply, Reply("Blue."), Reply("Blue.")])
    async with AnthropicServer(lambda body: next(said)) as server:
        port = connect(base_url=server.base_url)
        for emit in (None, Pieces()):
            got = await port.complete(ask("Look.", tools=TOOLS), emit)
            assert (got.text, got.reasoning) == ("I look.", "firstsecond")
            assert orjson.loads(got.thought) == sent
        result = wire("tool", "blue", tool_call_id="toolu_a")
        again = ask("Look.", got.wire(), result, tools=TOOLS)
        await port.complete(replace(again, thoughts={got.wire(): got.thought}))
        assert server.requests[2].body["messages"][1]["content"] == sent
        # Ids that are not unique are made so, in the record as well; and a reply of an earlier
        # turn that reads the same gets no thought.
        twice = [ask("Look.", got.wire(), result).messages, again.messages[1:]]
        many = replace(again, messages=[*twice[0], *twice[1]])
        await port.complete(replace(many, thoughts={got.wire(): got.thought}))
    both = [message["content"] for message in server.requests[3].body["messages"][1::2]]
    assert both[0] == [sent[1], sent[-1]]
    assert both[1] == [*sent[:-1], {**sent[-1], "id": "toolu_a_2"}]


@pytest.mark.promise("M12")
async def test_the_vendors_cache_is_hit_over_twenty_turns(tmp_path: Path, server: AnthropicServer):
    configure(tmp_path, server)
    cached = read_in = 0
    async with Asterism.open(tmp_path, environ={}, tools=[look]) as home:
        await home.agents.create("aria", system="You look after a house by the sea. " * 500)
        for turn in range(20):
            outcome = await home.agents.ask(
                "aria", f'Turn {turn}: [[call:look {{"at": "room {turn}"}}]]'
            )
            assert outcome.state is TurnState.DONE, outcome.text
            cached, read_in = cached + outcome.usage.cached, read_in + outcome.usage.input
    assert len(server.requests) == 40
    assert cached / read_in >= 0.95
    mark = b',"cache_control":{"type":"ephemeral"}'
    for before, after in zip(server.bodies, server.bodies[1:], strict=False):
        assert before.count(mark) <= 4
        same = before[: before.rindex(mark)].replace(mark, b"")
        assert after.replace(mark, b"").startswith(same)


# The cost of a call


async def test_a_call_costs_the_same_however_long_the_conversation(connect: Connect):
    port, costs = connect(), list[int]()

    async def compose(request: ModelRequest) -> None:
        port.body(request, streamed=True)

    for length in (10, 1000):
        talk = ["Hello", wire("assistant", "Hi")] * length
        await compose(ask(*talk, "First"))
        costs.append(await calls_for(compose(ask(*talk, "Second", wire("assistant", "Yes")))))
    assert costs[0] < 200
    assert costs[1] == costs[0]


async def calls_for(work: Awaitable[object]) -> int:
    count = 0

    def spy(frame: object, event: str, arg: object) -> None:
        nonlocal count
        count += event in {"call", "c_call"}

    sys.setprofile(spy)
    try:
        await work
    finally:
        sys.setprofile(None)
    return count


async def serve(*arguments: str) -> tuple[subprocess.Popen[bytes], str]:
    command = [sys.executable, "-m", "tests.servers.anthropic_server", *arguments]
    process = await asyncio.to_thread(
        lambda: subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT)
    )
    assert process.stdout is not None
    line = await asyncio.to_thread(process.stdout.readline)
    return process, f"http://127.0.0.1:{orjson.loads(line)['port']}"


async def test_the_server_as_a_process_of_its_own(connect: Connect, tmp_path: Path):
    log = tmp_path / "requests"
    process, address = await serve("--latency-ms", "20", "--log", str(log))
    try:
        port = connect(base_url=address)
        begun = time.monotonic()
        replies = [await port.complete(ask("Hello"), emit) for emit in (None, Pieces())]
        assert time.monotonic() - begun >= 0.04
    finally:
        process.kill()
        await asyncio.to_thread(process.communicate)
    assert [reply.text for reply in replies] == ["answer to: Hello"] * 2
    assert len(log.read_bytes().splitlines()) == 2
