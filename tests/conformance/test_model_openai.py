"""The OpenAI wire format: the contract over loopback, and everything a server can do wrong."""

import asyncio
import itertools
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from email.utils import formatdate
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asterism.errors import (
    ConfigError,
    ContextTooLong,
    KeyRefused,
    ModelBusy,
    ModelError,
    ModelGarbled,
    ModelRefused,
    ModelUnavailable,
)
from asterism.models.endpoint import MalformedAnswer, RequestRejected
from asterism.models.openai import ChatReplyParser, OpenAI
from asterism.ports import Model
from asterism.types.turns import Call, Reply, Usage
from tests.conformance.model_contract import TOOLS, ModelContract, Pieces, ask
from tests.servers.openai_server import (
    HTML,
    MALFORMED,
    NO_CHOICES,
    OTHER_SHAPE,
    Fault,
    OpenAIServer,
    Raw,
    completion,
    events,
    status,
)

ROOT = Path(__file__).parents[2]

KEY = "sk-very-secret-0123456789"
STREAM = "text/event-stream"

Connect = Callable[..., OpenAI]


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    proxies = ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "LOCAL_API_KEY", *proxies):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
async def server() -> AsyncIterator[OpenAIServer]:
    async with OpenAIServer() as server:
        yield server


@pytest.fixture
async def connect(server: OpenAIServer) -> AsyncIterator[Connect]:
    ports: list[OpenAI] = []

    def connect(vendor: str = "local", **options: Any) -> OpenAI:
        defaults = {"base_url": server.base_url, "key": KEY}
        ports.append(OpenAI(vendor, defaults | options))
        return ports[-1]

    yield connect
    for port in ports:
        await port.close()


@pytest.fixture
def no_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no name be known to DNS."""

    def unknown(*args: object, **more: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)


class TestContract(ModelContract):
    asks_for_call = '[[call:look {"at": "[[the]] sky"}]]'

    @pytest.fixture
    async def model(self, connect: Connect) -> Model:
        return connect()


# The request


async def test_messages_and_tools_are_sent_as_they_stand(server: OpenAIServer, connect: Connect):
    port = connect(options={"temperature": 0.2, "stop": ["\n"]})
    odd = b'{ "role":"user",  "content":"caf\\u00e9", "content":"twice" }'
    await port.complete(ask(odd, tools=TOOLS, model='na"me'))
    seen = server.requests[0]
    assert seen.body == {
        "model": 'na"me',
        "temperature": 0.2,
        "stop": ["\n"],
        "messages": [{"role": "system", "content": "You are a test."}, orjson.loads(odd)],
        "tools": orjson.loads(TOOLS),
    }
    assert seen.headers["Authorization"] == f"Bearer {KEY}"
    assert seen.headers["Content-Type"] == "application/json"


async def test_streaming_asks_for_usage(server: OpenAIServer, connect: Connect):
    await connect().complete(ask("Hello"), Pieces())
    body = server.requests[0].body
    assert body["stream"] is True
    assert body["stream_options"] == {"include_usage": True}
    assert "tools" not in body


async def test_an_empty_list_of_tools_is_not_sent(server: OpenAIServer, connect: Connect):
    await connect().complete(ask("Hello", tools=b"[]"))
    assert "tools" not in server.requests[0].body


async def test_connections_are_used_again(server: OpenAIServer, connect: Connect):
    port = connect()
    for emit in (None, Pieces(), Pieces(), None):
        await port.complete(ask("Hello"), emit)
    assert len({seen.connection for seen in server.requests}) == 1


async def test_the_query_of_an_address_is_kept(connect: Connect, server: OpenAIServer):
    port = connect(base_url=server.base_url + "/?api-version=7#part")
    await port.complete(ask("Hello"))
    assert server.requests[0].path == "/v1/chat/completions?api-version=7"


# Keys and settings


@pytest.mark.promise("X5")
async def test_openai_without_a_key_is_refused_before_any_request():
    with pytest.raises(ModelRefused) as caught:
        await OpenAI("openai", {}).complete(ask("Hello", model="gpt-5"))
    assert caught.value.message.startswith(
        "The model 'openai:gpt-5' needs a key, but OPENAI_API_KEY is not set. Set it,"
    )


async def test_a_named_variable_that_is_not_set():
    port = OpenAI("groq", {"base_url": "https://api.groq.com/openai/v1", "key_env": "MY_KEY"})
    with pytest.raises(ModelRefused, match="MY_KEY is not set"):
        await port.complete(ask("Hello"))


@pytest.mark.parametrize(
    ("vendor", "options", "environment", "sent"),
    [
        ("local", {}, {}, None),
        ("local", {"key": " in-config\n"}, {"LOCAL_API_KEY": "no"}, "Bearer in-config"),
        ("local", {"key_env": "OTHER"}, {"OTHER": "other", "LOCAL_API_KEY": "no"}, "Bearer other"),
        ("my-box", {}, {"MY_BOX_API_KEY": "box"}, "Bearer box"),
        ("openai", {}, {"OPENAI_API_KEY": "oa"}, "Bearer oa"),
        ("openai", {}, {}, None),
    ],
)
async def test_where_the_key_comes_from(
    server: OpenAIServer,
    connect: Connect,
    monkeypatch: pytest.MonkeyPatch,
    vendor: str,
    options: dict[str, str],
    environment: dict[str, str],
    sent: str | None,
):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    await connect(vendor, **{"key": None, **options}).complete(ask("Hello"))
    assert server.requests[0].headers.get("Authorization") == sent


async def test_openai_takes_its_address_from_the_environment(
    server: OpenAIServer, connect: Connect, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("OPENAI_BASE_URL", server.base_url + "/")
    assert (await connect("openai", base_url=None).complete(ask("Hello"))).text


@pytest.mark.usefixtures("no_names")
async def test_openai_without_an_address_is_openai(connect: Connect):
    with pytest.raises(ModelUnavailable, match=r"at https://api\.openai\.com/v1 was not reached"):
        await connect("openai", base_url=None).complete(ask("Hello"))


@pytest.mark.promise("X5")
@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({}, "models.box.base_url is ''"),
        ({"base_url": "localhost:1234/v1"}, "base_url is 'localhost:1234/v1'"),
        ({"base_url": "http://"}, "base_url is 'http://'"),
        ({"base_url": "http://a:99999999/v1"}, "base_url is"),
        ({"base_url": "http://[::1/v1"}, "base_url is"),
        ({"base_url": f"http://me:{KEY}@box/v1"}, "base_url is 'box/v1'"),
        ({"key": "“sk-1”"}, "models.box.key holds characters"),
        ({"key": "sk-1\r\nX-Evil: 1"}, "models.box.key holds characters"),
        ({"timeout": "5s"}, "models.box.timeout is '5s'; a number from 0 up is needed"),
        ({"options": {"messages": []}}, "sets 'messages', which asterism sets by itself"),
        ({"options": {"seed": 1 << 70}}, "cannot be sent as JSON"),
    ],
)
def test_settings_that_cannot_be(options: dict[str, Any], told: str):
    if options and "base_url" not in options:
        options = {"base_url": "http://box/v1", **options}
    with pytest.raises(ConfigError) as caught:
        OpenAI("box", options)
    assert told in caught.value.message
    assert KEY not in caught.value.message


@pytest.mark.usefixtures("no_names")
async def test_proxies_of_the_environment_are_not_for_loopback(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
):
    for name in ("http_proxy", "https_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.setenv("no_proxy", "box.example")
    assert (await connect().complete(ask("Hello"))).text == "answer to: Hello"
    far = connect(base_url="https://far.example/v1")
    with pytest.raises(ModelUnavailable, match="proxy named by the environment"):
        await far.complete(ask("Hello"))
    box = connect(base_url="http://box.example/v1")
    with pytest.raises(ModelUnavailable, match="no host named"):
        await box.complete(ask("Hello"))


# What can go wrong

FAULTS: list[tuple[str, Fault | Raw, type[ModelError], str]] = [
    ("refuse", Fault.REFUSE, ModelUnavailable, "was cut off"),
    ("hang", Fault.HANG, ModelUnavailable, "sent nothing for 0.5 seconds"),
    ("stall", Fault.STALL, ModelUnavailable, "sent nothing for 0.5 seconds"),
    ("cut", Fault.CUT, ModelUnavailable, "was cut off"),
    ("html", HTML, ModelGarbled, "an HTML page (HTTP 200) instead of JSON. Is base_url right?"),
    ("malformed", MALFORMED, ModelGarbled, "malformed JSON"),
    ("empty body", Raw(b""), ModelGarbled, "malformed JSON"),
    ("deep", Raw(b"[" * 100_000), ModelGarbled, "malformed JSON"),
    ("other shape", OTHER_SHAPE, ModelGarbled, "JSON that is not a chat completion"),
    ("a list", Raw(b"[]"), ModelGarbled, "JSON that is not a chat completion"),
    ("odd choice", Raw(b'{"choices":[1]}'), ModelGarbled, "not a chat completion"),
    ("odd message", Raw(b'{"choices":[{"message":1}]}'), ModelGarbled, "not a chat completion"),
    ("no choices", NO_CHOICES, ModelGarbled, "an empty list of choices"),
    (
        "nameless call",
        Raw(b'{"choices":[{"message":{"tool_calls":[{"id":"a"}]}}]}'),
        ModelGarbled,
        "names no tool",
    ),
    ("401", status(401, f"Bad key {KEY}."), KeyRefused, "refused the key (HTTP 401, 'Bad key …"),
    ("403", status(403), KeyRefused, "Put a valid one into models.local.key."),
    ("404", status(404, "No such model"), ModelRefused, "is not there (HTTP 404, 'No such model')"),
    ("400", status(400, "x" * 1000), ModelRefused, f"(HTTP 400, '{'x' * 299}…')"),
    ("422", Raw(b'{"detail":"too hot"}', status=422), ModelRefused, "(HTTP 422, 'too hot')"),
    ("413", status(413), ContextTooLong, "bytes too large (HTTP 413"),
    ("308", Raw(b"", status=308, headers={"Location": "/v2?x"}), ModelRefused, "(HTTP 308, '/v2')"),
    ("429", status(429, "slow"), ModelBusy, "too many requests (HTTP 429, 'slow')"),
    (
        "quota",
        status(429, "Pay first.", kind="insufficient_quota"),
        KeyRefused,
        "has no quota left for this key (HTTP 429, 'Pay first.')",
    ),
    ("500", status(500, "oops"), ModelUnavailable, "is failing or overloaded (HTTP 500, 'oops')"),
    ("502", Raw(b"<html>nginx", status=502), ModelUnavailable, "(HTTP 502, 'an HTML page')"),
    ("503", Raw(b"\xff bad", status=503), ModelUnavailable, "(HTTP 503, '\ufffd bad')"),
    ("529", Raw(b"", status=529), ModelUnavailable, "is failing or overloaded (HTTP 529)"),
    (
        "error in 200",
        Raw(b'{"error":{"message":"no","code":404}}'),
        ModelRefused,
        "(HTTP 404, 'no'",
    ),
    ("text in 200", Raw(b'{"error":"out of memory"}'), ModelUnavailable, "'out of memory'"),
]


@pytest.mark.promise("X5")
@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(
    ("fault", "kind", "told"), [pytest.param(*row, id=id) for id, *row in FAULTS]
)
async def test_faults(
    server: OpenAIServer,
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


@pytest.mark.promise("X5")
@pytest.mark.parametrize(
    ("body", "kind", "told"),
    [
        (b"", ModelUnavailable, "was cut off"),
        (b": ping\n\n", ModelUnavailable, "was cut off"),
        (b'data: {"choices":[{"delta":{"content":"Hel"}}]}\n\n', ModelUnavailable, "was cut off"),
        (b'data: {"choices":[{"del\n\n', ModelGarbled, "malformed JSON"),
        (b"data: 7\n\n", ModelGarbled, "not a chat completion"),
        (b'data: {"choices":{}}\n\ndata: {"choices":7}\n\n', ModelGarbled, "not a chat completion"),
        (b'data: {"error":{"message":"full","code":503}}\n\n', ModelUnavailable, "503, 'full'"),
        (b'event: error\ndata: {"error":"full"}\n\n', ModelUnavailable, "'full'"),
        (b'data: {"error":{"message":"bad","code":400}}\n\n', ModelRefused, "(HTTP 400, 'bad')"),
    ],
)
async def test_faulty_streams(
    server: OpenAIServer, connect: Connect, body: bytes, kind: type[ModelError], told: str
):
    server.next(Raw(body, STREAM))
    with pytest.raises(ModelError) as caught:
        await connect().complete(ask("Hello"), Pieces())
    assert type(caught.value) is kind
    assert told in caught.value.message


@pytest.mark.promise("X5")
async def test_nobody_listens(connect: Connect):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{unused.getsockname()[1]}/v1"
        with pytest.raises(ModelUnavailable) as caught:
            await connect(base_url=address).complete(ask("Hello"))
    assert caught.value.message == (
        f"The model 'local:guide' at {address} was not reached: connection refused. "
        "Start the server there, or correct models.local.base_url."
    )


@pytest.mark.promise("X5")
@pytest.mark.usefixtures("no_names")
async def test_a_host_that_is_not_there(connect: Connect):
    port = connect(base_url="http://box.example/v1")
    with pytest.raises(ModelUnavailable, match=r"there is no host named 'box\.example'"):
        await port.complete(ask("Hello"))


@pytest.mark.promise("X5")
async def test_a_host_that_does_not_answer(connect: Connect, monkeypatch: pytest.MonkeyPatch):
    def slow(*args: object, **more: object) -> None:
        time.sleep(0.3)

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    monkeypatch.setattr("asterism.models.endpoint.CONNECT_SECONDS", 0.1)
    port = connect(base_url="http://box.example/v1")
    with pytest.raises(ModelUnavailable, match=r"not take the connection within 0\.1 seconds"):
        await port.complete(ask("Hello"))


@pytest.mark.promise("X5")
async def test_no_safe_connection(server: OpenAIServer, connect: Connect):
    port = connect(base_url=server.base_url.replace("http:", "https:"))
    with pytest.raises(ModelRefused, match="no safe connection could be made"):
        await port.complete(ask("Hello"))


@pytest.mark.promise("X5")
async def test_a_server_that_speaks_something_else(connect: Connect):
    async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 mail.example ESMTP\r\n")
        await writer.drain()
        writer.close()

    other = await asyncio.start_server(greet, "127.0.0.1", 0)
    async with other:
        address = f"http://127.0.0.1:{other.sockets[0].getsockname()[1]}/v1"
        with pytest.raises(ModelGarbled, match="does not speak HTTP"):
            await connect(base_url=address).complete(ask("Hello"))


@pytest.mark.promise("X5")
@pytest.mark.parametrize("streamed", [False, True])
async def test_more_than_anyone_could_read(
    server: OpenAIServer, connect: Connect, monkeypatch: pytest.MonkeyPatch, streamed: bool
):
    monkeypatch.setattr("asterism.models.endpoint.MAX_ANSWER_BYTES", 1 << 20)
    server.next(Raw(b"data: " + b"x" * (2 << 20), STREAM if streamed else "application/json"))
    with pytest.raises(ModelGarbled, match="more than 1 MiB"):
        await connect().complete(ask("Hello"), Pieces() if streamed else None)


@pytest.mark.promise("X5")
@pytest.mark.parametrize("fault", [Fault.HANG, Fault.STALL])
async def test_the_callers_patience_ends(server: OpenAIServer, connect: Connect, fault: Fault):
    server.next(fault)
    with pytest.raises(ModelUnavailable, match=r"no whole answer within 0\.2 seconds"):
        await connect().complete(ask("Hello", timeout=0.2), Pieces())


# Asking again is not its business, but it tells what whoever asks again has to know


@pytest.mark.promise("T8")
@pytest.mark.parametrize("fault", [status(503), status(401), HTML, Fault.REFUSE, Fault.CUT])
async def test_it_asks_once(server: OpenAIServer, connect: Connect, fault: Raw | Fault):
    server.next(fault)
    with pytest.raises(ModelError):
        await connect().complete(ask("Hello"), Pieces())
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("fault", "begun", "slow"),
    [
        (status(503), False, False),
        (Fault.CUT, True, False),
        (Fault.STALL, True, True),
        (Fault.HANG, True, True),
    ],
)
async def test_it_tells_whether_the_model_may_have_begun(
    server: OpenAIServer, connect: Connect, fault: Raw | Fault, begun: bool, slow: bool
):
    server.next(fault)
    with pytest.raises(ModelUnavailable) as caught:
        await connect().complete(ask("Hello", timeout=0.2), Pieces())
    assert (caught.value.begun, caught.value.slow) == (begun, slow)


@pytest.mark.parametrize(
    ("header", "wish"), [("20", 20.0), ("0.5", 0.5), ("-3", 0.0), ("soon", None), ("", None)]
)
async def test_the_servers_wish_is_told(
    server: OpenAIServer, connect: Connect, header: str, wish: float | None
):
    server.next(status(429, retry_after=header))
    with pytest.raises(ModelUnavailable) as caught:
        await connect().complete(ask("Hello"))
    assert caught.value.retry_after == wish


async def test_the_servers_wish_as_a_date(server: OpenAIServer, connect: Connect):
    server.next(status(429, retry_after=formatdate(time.time() + 90, usegmt=True)))
    with pytest.raises(ModelUnavailable, match=r"Ask again in \d\d seconds\.") as caught:
        await connect().complete(ask("Hello"))
    assert caught.value.retry_after is not None
    assert 60 < caught.value.retry_after <= 90


# Quirks of servers


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        ('{"at": "here"}', '{"at": "here"}'),
        ({"at": "here"}, '{"at": "here"}'),
        ('{"at": "here"}\n\nThat should do.', '{"at": "here"}'),
        (' {"at": "here"}</tool_call>', '{"at": "here"}'),
        ('"{\\"at\\": \\"here\\"}"', '{"at": "here"}'),
        ("", "{}"),
        (None, "{}"),
        ("null", "{}"),
        ('{"at": "he', '{"at": "he'),
        ("not JSON", "not JSON"),
    ],
)
async def test_arguments_in_all_the_ways_servers_send_them(
    server: OpenAIServer, connect: Connect, sent: object, kept: str
):
    call = {"id": "1", "type": "function", "function": {"name": "look", "arguments": sent}}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    body = {"choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]}
    server.next(Raw(orjson.dumps(body)))
    assert (await connect().complete(ask("Hello"))).calls == (Call("1", "look", kept),)


@pytest.mark.parametrize("cut", range(1, 12))
def test_reasoning_in_tags_is_told_from_text(cut: int):
    text = "\n<think>Hm, 1 < 2.</think>\n\nYes. <think> is a tag."
    pieces = Pieces()
    answer = ChatReplyParser(pieces)
    for start in range(0, len(text), cut):
        delta = {"choices": [{"index": 0, "delta": {"content": text[start : start + cut]}}]}
        answer.feed(b"data: " + orjson.dumps(delta) + b"\n\n")
    answer.feed(b"data: [DONE]\n\n")
    answer.end()
    reply = answer.reply(100)
    assert (reply.reasoning, reply.text) == ("Hm, 1 < 2.", "Yes. <think> is a tag.")
    assert (pieces.joined("reasoning"), pieces.joined("text")) == (reply.reasoning, reply.text)


async def test_a_server_that_closes_its_connections_without_a_word(connect: Connect):
    stream = b"".join(events(Reply("Hello."), "m", 0))
    head = (
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    body = b"%x\r\n%b\r\n0\r\n\r\n" % (len(stream), stream)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            asked = await reader.readuntil(b"\r\n\r\n")
            await reader.readexactly(int(asked.lower().split(b"content-length:")[1].split()[0]))
            writer.write(head + body)
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        port = connect(base_url=f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1")
        for _ in range(30):
            assert (await port.complete(ask("Hello"), Pieces())).text == "Hello."


@pytest.mark.promise("T8")
async def test_a_key_that_has_rested_meanwhile_does_not_make_an_answer_of_a_refusal(
    server: OpenAIServer, connect: Connect, monkeypatch: pytest.MonkeyPatch
):
    ticks = itertools.count(10, 10)
    clock = SimpleNamespace(monotonic=lambda: next(ticks))
    monkeypatch.setattr("asterism.models.endpoint.time", clock)
    port = connect(key="first-key,second-key")
    server.next(status(429, retry_after="15"), None, status(429, retry_after="15"))
    assert (await port.complete(ask("Hello"))).text == "answer to: Hello"
    # The first key rests when the second is refused, and no more when that has been told.
    with pytest.raises(ModelBusy):
        await port.complete(ask("Hello"))


# Wishes


@pytest.mark.parametrize(
    ("wishes", "sent"),
    [
        ({"max_output": 50}, {"max_tokens": 50}),
        ({"tool_choice": "required"}, {"tool_choice": "required"}),
        ({"tool_choice": "none"}, {"tool_choice": "none"}),
        (
            {"tool_choice": "look"},
            {"tool_choice": {"type": "function", "function": {"name": "look"}}},
        ),
        (
            {"schema": b'{"type":"object"}'},
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "answer", "schema": {"type": "object"}},
                }
            },
        ),
        ({"extra": b'"seed":7'}, {"seed": 7}),
    ],
)
async def test_wishes_are_sent(
    server: OpenAIServer, connect: Connect, wishes: dict[str, Any], sent: dict[str, Any]
):
    await connect().complete(replace(ask("Hello", tools=TOOLS), **wishes))
    assert {name: server.requests[0].body.get(name) for name in sent} == sent


async def test_reasoning_goes_back_with_the_reply_it_belongs_to(
    server: OpenAIServer, connect: Connect
):
    said = Reply(calls=(Call("1", "look", "{}"),)).wire()
    request = replace(ask("Hello"), thoughts={said: b'{"reasoning_content":"Hm."}'})
    request.messages.append(said)
    await connect().complete(request)
    *others, last = server.requests[0].body["messages"]
    assert last["reasoning_content"] == "Hm."
    assert all("reasoning_content" not in message for message in others)


# The answer

TWO_CALLS = Reply(
    text="Let me look: 🌌 é\r\n\n ok",
    calls=(
        Call("call_a", "look", '{"at": "the sky", "note": "日本"}'),
        Call("call_b", "look", "{}"),
    ),
    reasoning="The sky is up. ✨",
    usage=Usage(31, 17, 5),
    finish="tool_calls",
    thought=orjson.dumps({"reasoning_content": "The sky is up. ✨"}),
)
RECORDED = b"".join(events(TWO_CALLS, "m", 0))


def read(*chunks: bytes) -> tuple[Reply, Pieces]:
    pieces = Pieces()
    answer = ChatReplyParser(pieces)
    for chunk in chunks:
        answer.feed(chunk)
    answer.end()
    return answer.reply(sent=400), pieces


def said(delta: dict[str, Any], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return b"data: " + orjson.dumps({"choices": [choice]}) + b"\n\n"


def read_whole(body: bytes) -> Reply:
    answer = ChatReplyParser()
    answer.take(body)
    return answer.reply(sent=400)


def whole(message: dict[str, Any], **fields: Any) -> Reply:
    return read_whole(orjson.dumps({"choices": [{"message": message}], **fields}))


@pytest.mark.promise("T5")
@given(st.data())
def test_a_stream_may_be_cut_anywhere(data: st.DataObject):
    stream = RECORDED
    if data.draw(st.booleans(), label="crlf"):
        stream = stream.replace(b"\n", b"\r\n")
    if data.draw(st.booleans(), label="no space"):
        stream = stream.replace(b"data: ", b"data:")
    if data.draw(st.booleans(), label="comments"):
        stream = stream.replace(b"data:", b": keep-alive\n\nevent: x\nid: 1\ndata:")
    if data.draw(st.booleans(), label="no end"):
        stream = stream[: stream.index(b"data:" + stream.rpartition(b"data:")[2])].rstrip()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=60), label="cuts"))
    chunks = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    reply, pieces = read(*chunks)
    assert reply == TWO_CALLS
    assert pieces.joined("text") == TWO_CALLS.text
    assert pieces.joined("reasoning") == TWO_CALLS.reasoning


def test_a_stream_byte_by_byte():
    assert read(*(bytes([byte]) for byte in RECORDED))[0] == TWO_CALLS


@pytest.mark.promise("T5")
@pytest.mark.parametrize("fault", [None, Fault.DRIBBLE])
async def test_streamed_and_whole_are_equal(connect: Connect, fault: Fault | None):
    async with OpenAIServer(lambda body: TWO_CALLS) as server:
        port = connect(base_url=server.base_url)
        server.next(fault, fault)
        assert await port.complete(ask("Hello")) == TWO_CALLS
        assert await port.complete(ask("Hello"), Pieces()) == TWO_CALLS


words = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)
replies = st.builds(
    Reply,
    text=st.text(st.characters(exclude_categories=["Cs"])),
    calls=st.lists(
        st.builds(Call, words, words, words), max_size=3, unique_by=lambda call: call.id
    ).map(tuple),
    reasoning=st.text(st.characters(exclude_categories=["Cs"])),
    usage=st.builds(Usage, st.integers(1, 10**9), st.integers(1, 10**9), st.integers(0, 10**9)),
    finish=st.sampled_from(["stop", "length", "tool_calls", "content_filter"]),
)


@given(replies)
def test_any_reply_arrives_whole(reply: Reply):
    if reply.calls and reply.reasoning:
        thought = orjson.dumps({"reasoning_content": reply.reasoning})
        reply = replace(reply, thought=thought)
    assert read_whole(orjson.dumps(completion(reply, "m", 0))) == reply
    assert read(*events(reply, "m", 0))[0] == reply


scalars = st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text("ab", max_size=2)
junk = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.just("text"), inner)
)


def some(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Tables with some of these fields, each sound or junk."""
    return st.fixed_dictionaries({}, optional={key: junk | fields[key] for key in fields})


calls = some(
    index=junk,
    id=junk,
    function=some(name=junk, arguments=junk),
)
parts = some(content=junk, refusal=junk, reasoning=junk, tool_calls=st.lists(calls, max_size=3))
bodies = some(
    choices=st.lists(some(index=junk, message=parts, delta=parts, finish_reason=junk), max_size=2),
    usage=some(prompt_tokens=junk, prompt_tokens_details=some(cached_tokens=junk)),
    error=junk | some(message=junk, code=junk),
)
noise = st.lists(st.sampled_from([b"data:", b"event", b"\n", b"{", b"}", b'"', b"<", b"[DONE]"]))


@pytest.mark.promise("X5")
@given(bodies.map(orjson.dumps) | noise.map(b"".join) | st.binary())
def test_any_answer_is_a_reply_or_a_known_error(body: bytes):
    known = (MalformedAnswer, RequestRejected, ConnectionAbortedError)
    with suppress(*known):
        read_whole(body)
    with suppress(*known):
        read(body)
    with suppress(*known):
        read(b"data: ", body, b"\n\ndata: [DONE]")


def test_a_stream_without_done_or_finish():
    assert read(said({"content": "Hi"}, "stop"))[0].finish == "stop"
    reply, _ = read(said({"content": "Hi"}), b"data: [DONE]")
    assert (reply.text, reply.finish) == ("Hi", "stop")


async def test_a_connection_lost_after_the_finish_does_not_matter(connect: Connect):
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        event = said({"content": "Hi"}, "stop")
        head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 9999\r\n\r\n"
        writer.write(head + event)
        await writer.drain()
        writer.close()

    other = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with other:
        port = connect(base_url=f"http://127.0.0.1:{other.sockets[0].getsockname()[1]}/v1")
        assert (await port.complete(ask("Hello"), Pieces())).text == "Hi"


async def test_a_server_that_streams_unasked_or_does_not_stream(
    server: OpenAIServer, connect: Connect
):
    unstreamed = orjson.dumps(completion(TWO_CALLS, "m", 0))
    server.next(Raw(RECORDED), Raw(RECORDED, STREAM, step=50), Raw(unstreamed))
    port, pieces = connect(), Pieces()
    assert await port.complete(ask("Hello")) == TWO_CALLS
    assert await port.complete(ask("Hello")) == TWO_CALLS
    assert await port.complete(ask("Hello"), pieces) == TWO_CALLS
    assert pieces.joined("text") == TWO_CALLS.text


def test_usage_that_is_missing_is_estimated():
    assert whole({"content": "Hi there"}).usage == Usage(100, 2)
    assert read(said({"content": "Hi there"}, "stop"))[0].usage == Usage(100, 2)
    odd = {"prompt_tokens": None, "completion_tokens": "7", "prompt_tokens_details": None}
    assert whole({"content": "Hi"}, usage=odd).usage == Usage(100, 1)


def test_content_in_parts_and_refusals():
    parts = [{"type": "text", "text": "Hi "}, {"type": "image"}, "there"]
    assert whole({"content": parts}).text == "Hi there"
    assert read(said({"content": parts}, "stop"))[0].text == "Hi there"
    assert whole({"content": None, "refusal": "No."}).text == "No."


def test_reasoning_under_both_names_is_taken_once():
    reply, pieces = read(
        said({"reasoning": "a", "reasoning_content": "a"}), said({"reasoning": "b"}, "stop")
    )
    assert reply.reasoning == pieces.joined("reasoning") == "ab"


def calls_of(*deltas: dict[str, Any] | list[dict[str, Any]]) -> list[tuple[str, str, str]]:
    stream = [
        said({"tool_calls": delta if isinstance(delta, list) else [delta]}) for delta in deltas
    ]
    reply, _ = read(*stream, said({}, "tool_calls"))
    return [(call.id, call.name, call.arguments) for call in reply.calls]


def part(
    index: int | None = None, id: str | None = None, name: str | None = None, arguments: Any = None
) -> dict[str, Any]:
    fields = {"index": index, "id": id}
    given = {key: value for key, value in fields.items() if value is not None}
    return {**given, "function": {"name": name, "arguments": arguments}}


def test_calls_as_servers_send_them():
    # Without an index, and the name repeated in each fragment.
    assert calls_of(part(None, "a", "look", '{"x"'), part(None, "a", "look", ":1}")) == [
        ("a", "look", '{"x":1}')
    ]
    # Without an index, several whole calls in one event, without ids.
    assert calls_of([part(name="look", arguments="{}"), part(name="go", arguments="[]")]) == [
        ("call_0", "look", "{}"),
        ("call_1", "go", "[]"),
    ]
    # Every call numbered 0.
    assert calls_of(part(0, "a", "look", "{}"), part(0, "b", "look", "[]")) == [
        ("a", "look", "{}"),
        ("b", "look", "[]"),
    ]
    # A new id with each fragment.
    assert calls_of(part(0, "a", "look", '{"x"'), part(0, "b", None, ":1}")) == [
        ("a", "look", '{"x":1}')
    ]
    # Arguments as an object, none at all, and two calls with one id.
    assert calls_of(part(0, "a", "look", {"é": [1]}), part(1, "a", "go")) == [
        ("a", "look", '{"é": [1]}'),
        ("a_", "go", "{}"),
    ]
    # Interleaved.
    assert calls_of(
        part(1, "b", "go", "["),
        part(0, "a", "look", "{"),
        part(1, arguments="]"),
        part(0, arguments="}"),
    ) == [("b", "go", "[]"), ("a", "look", "{}")]


def test_whole_calls_as_servers_send_them():
    reply = whole({"tool_calls": [part(None, None, "look", {"x": 1}), part(None, "", "look", "")]})
    assert reply.calls == (Call("call_0", "look", '{"x": 1}'), Call("call_1", "look", "{}"))
    assert reply.finish == "tool_calls"


def test_lone_surrogates_are_replaced_and_halves_joined():
    def raw(content: str) -> bytes:
        return b'data: {"choices":[{"delta":{"content":"%s"}}]}\n' % content.encode()

    reply, pieces = read(raw("a\\ud83d"), raw("\\ude00b\\ude00"), raw("c\\ud83d"), b"data: [DONE]")
    assert reply.text == "a😀b\ufffdc\ufffd"
    assert pieces.joined("text") == "a😀b\ufffdc"
    assert reply.wire()
    call = b'{"id":"\\ud800","function":{"name":"\\udc00","arguments":{"\\ud800":1}}}'
    reply = read_whole(b'{"choices":[{"message":{"tool_calls":[%s]}}]}' % call)
    assert reply.calls == (Call("\ufffd", "\ufffd", '{"\ufffd": 1}'),)


def test_bytes_that_are_no_text_are_replaced():
    reply, _ = read(b'data: {"choices":[{"delta":{"content":"\xff"},"finish_reason":"stop"}]}')
    assert reply.text == "\ufffd"


# The cost of a call


async def test_a_call_costs_the_same_however_long_the_conversation(connect: Connect):
    # A process of its own, so that the server's calls are not counted.
    process, address = await serve()
    try:
        port = connect(base_url=address)
        short, long = [
            # Now and then a timer of the event loop adds to a call; the least is the cost.
            min([await calls_for(port.complete(ask(*["Hello"] * length))) for _ in range(7)])
            for length in (10, 500)
        ]
    finally:
        process.kill()
        await asyncio.to_thread(process.communicate)
    assert short < 1_000
    assert long < short + 50


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
    command = [sys.executable, "-m", "tests.servers.openai_server", *arguments]
    process = await asyncio.to_thread(
        lambda: subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT)
    )
    assert process.stdout is not None
    line = await asyncio.to_thread(process.stdout.readline)
    return process, f"http://127.0.0.1:{orjson.loads(line)['port']}/v1"


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
