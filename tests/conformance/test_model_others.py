"""Vendors asked by way of pydantic-ai: the contract with the real clients, over loopback."""

import os
import socket
import subprocess
import sys
import threading
from base64 import b64encode
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

import orjson
import pytest

from asterism import plugins
from asterism.app.engine import make_model
from asterism.config import Settings
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
from asterism.models.others import OtherVendor
from asterism.ports import Model, ModelRequest
from asterism.types.turns import Call, Reply, Usage
from tests.conformance.model_contract import TOOLS, ModelContract, Pieces, ask, wire
from tests.conformance.vendor_server import VendorServer, frame
from tests.servers.openai_server import Fault, Raw

KEY = "key-very-secret-0123456789"
VENDORS = ["google", "mistral", "cohere", "bedrock"]
PICTURE = "iVBORw0KGgo="

Connect = Callable[..., OtherVendor]


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    for name in list(os.environ):
        if name.lower().endswith("_proxy") or name.endswith("_API_KEY") or name.startswith("AWS_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    # Amazon takes keys over HTTPS only; on loopback, requests are signed.
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", KEY)


@pytest.fixture(params=VENDORS)
def api(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
async def server(api: str) -> AsyncIterator[VendorServer]:
    async with VendorServer(api) as server:
        yield server


@pytest.fixture
async def connect(server: VendorServer, api: str) -> AsyncIterator[Connect]:
    ports: list[OtherVendor] = []

    def connect(**options: Any) -> OtherVendor:
        defaults = {"base_url": server.base_url, "key": None if api == "bedrock" else KEY}
        ports.append(plugins.load("models", api)(api, defaults | options))
        return ports[-1]

    yield connect
    for port in ports:
        await port.close()


class TestContract(ModelContract):
    asks_for_call = '[[call:look {"at": "[[the]] sky"}]]'

    @pytest.fixture
    async def model(self, connect: Connect) -> Model:
        return connect()


# The request


def asking(request: ModelRequest, **changes: Any) -> ModelRequest:
    return replace(request, **changes)


def only(*vendors: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("api", vendors, indirect=True)


@only("google")
async def test_what_google_is_sent(server: VendorServer, connect: Connect):
    port = connect(options={"temperature": 0.5, "max_tokens": 100, "top_k": 3})
    call = Call("c1", "look", '{"at":"sky"}')
    image = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PICTURE}"}}
    seen = orjson.dumps({"role": "user", "content": [{"type": "text", "text": "See."}, image]})
    request = ask(
        "Look!",
        Reply("Well.", (call,)).wire(),
        wire("tool", "blue", tool_call_id="c1"),
        seen,
        tools=TOOLS,
        model="gemini-3-pro",
    )
    await port.complete(asking(request, max_output=50, tool_choice="look"))
    body = server.bodies[0]
    assert server.paths[0].endswith("/models/gemini-3-pro:generateContent")
    assert server.headers[0]["x-goog-api-key"] == KEY
    assert body["systemInstruction"]["parts"] == [{"text": "You are a test."}]
    assert [content["role"] for content in body["contents"]] == ["user", "model", "user", "user"]
    said, called = body["contents"][1]["parts"]
    assert said == {"text": "Well."}
    assert called["functionCall"] == {"id": "c1", "name": "look", "args": {"at": "sky"}}
    (result,) = body["contents"][2]["parts"]
    assert result["functionResponse"]["name"] == "look"
    assert result["functionResponse"]["id"] == "c1"
    assert "blue" in orjson.dumps(result).decode()
    text, picture = body["contents"][3]["parts"]
    assert text == {"text": "See."}
    assert picture["inlineData"]["data"] == PICTURE
    assert "image/png" in picture["inlineData"].values()
    assert body["generationConfig"]["temperature"] == 0.5
    assert body["generationConfig"]["maxOutputTokens"] == 50
    assert body["generationConfig"]["topK"] == 3
    assert body["toolConfig"]["functionCallingConfig"]["mode"] == "ANY"
    (declared,) = body["tools"][0]["functionDeclarations"]
    assert (declared["name"], declared["description"]) == ("look", "Look somewhere.")


@only("bedrock")
async def test_what_bedrock_is_sent(server: VendorServer, connect: Connect):
    request = ask("Hello", tools=TOOLS, model="anthropic.claude-sonnet-4-5-20250929-v1:0")
    server.next(Reply("Hi.", usage=Usage(input=3, output=2, cached=40, written=5)))
    reply = await connect().complete(request)
    # Amazon counts what came from its cache, or went there, apart from the rest.
    assert reply.usage == Usage(input=48, output=2, cached=40, written=5)
    body = server.bodies[0]
    assert server.paths[0].startswith("/model/anthropic.claude-sonnet-4-5-20250929-v1:0/converse")
    assert server.headers[0]["Authorization"].startswith("AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE")
    assert body["system"][0] == {"text": "You are a test."}
    assert body["system"][1]["cachePoint"]["type"] == "default"
    assert body["toolConfig"]["tools"][0]["toolSpec"]["name"] == "look"


async def test_the_system_speaks_later_on(server: VendorServer, connect: Connect):
    port = connect()
    await port.complete(ask("Hello"))
    await port.complete(ask("Hello", wire("system", "It is noon."), wire("user", "And now?")))
    plain, later = (orjson.dumps(body).decode() for body in server.bodies)
    assert "<system>" not in plain
    assert "It is noon." in later
    assert later.index("It is noon.") < later.index("And now?")


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_calls_side_by_side(server: VendorServer, connect: Connect, streamed: bool):
    calls = (Call("abcdefgh1", "look", '{"at":"sky"}'), Call("abcdefgh2", "look", '{"at":"sea"}'))
    server.next(Reply(calls=calls, finish="tool_calls"))
    port = connect()
    reply = await port.complete(ask("Look!", tools=TOOLS), Pieces() if streamed else None)
    assert [(c.id, c.name, orjson.loads(c.arguments)) for c in reply.calls] == [
        ("abcdefgh1", "look", {"at": "sky"}),
        ("abcdefgh2", "look", {"at": "sea"}),
    ]
    assert reply.finish == "tool_calls"
    results = [
        wire("tool", text, tool_call_id=call.id)
        for call, text in zip(calls, ("blue", "green"), strict=True)
    ]
    await port.complete(ask("Look!", reply.wire(), *results, tools=TOOLS))
    sent = orjson.dumps(server.bodies[1]).decode()
    assert 0 < sent.index("blue") < sent.index("green")


async def test_tools_that_must_not_or_must_be_called(server: VendorServer, connect: Connect):
    port = connect()
    model = "amazon.nova-pro-v1:0"
    request = ask("Hello", tools=TOOLS, model=model)
    for choice in ("auto", "required", "look", "none"):
        await port.complete(asking(request, tool_choice=choice))
    auto, required, look, none = (orjson.dumps(body) for body in server.bodies)
    assert auto != required
    assert b"look" in look
    assert none != required


@only("google", "mistral")
async def test_an_answer_in_a_given_form(server: VendorServer, connect: Connect, api: str):
    schema = b'{"type":"object","properties":{"mood":{"type":"string"}},"required":["mood"]}'
    server.next(Reply('{"mood":"good"}'))
    request = asking(ask("How are you?", model="gemini-2.5-flash"), schema=schema)
    reply = await connect().complete(request)
    assert orjson.loads(reply.text) == {"mood": "good"}
    assert "mood" in orjson.dumps(server.bodies[0]).decode()
    # With tools beside it, this model of Google's has to be told the form in words.
    server.next(Reply('{"mood":"good"}'))
    await connect().complete(asking(request, tools=TOOLS))
    by_itself, beside_tools = server.bodies
    if api == "google":
        assert by_itself["generationConfig"]["responseJsonSchema"]["required"] == ["mood"]
        assert "responseJsonSchema" not in beside_tools.get("generationConfig", {})
        assert "mood" in orjson.dumps(beside_tools["systemInstruction"]).decode()
    else:
        assert "mood" in beside_tools["messages"][1]["content"]


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@only("google")
async def test_thoughts_are_given_back_with_their_signature(
    server: VendorServer, connect: Connect, streamed: bool
):
    signature = b64encode(b"signed").decode()
    call = Call("c1", "look", '{"at":"sky"}')
    usage = Usage(input=7, output=5, cached=3)
    first = Reply("", (call,), "I look. Then", usage, "tool_calls", signature.encode())
    server.next(first)
    port, pieces = connect(), Pieces()
    emit = pieces if streamed else None
    reply = await port.complete(ask("Look!", tools=TOOLS, model="gemini-3-pro"), emit)
    assert reply.reasoning == "I look. Then"
    assert pieces.joined("reasoning") == ("I look. Then" if streamed else "")
    assert reply.usage == usage
    kept = Reply.from_entry(reply.wire(), reply.meta())
    assert kept == reply
    result = wire("tool", "blue", tool_call_id=reply.calls[0].id)
    request = ask("Look!", kept.wire(), result, tools=TOOLS, model="gemini-3-pro")
    await port.complete(asking(request, thoughts={kept.wire(): kept.thought}))
    parts = server.bodies[1]["contents"][1]["parts"]
    assert parts[0] == {"text": "I look. Then", "thought": True}
    assert parts[1]["thoughtSignature"] == signature
    # What another vendor thought is not shown to this one.
    await port.complete(asking(request, thoughts={kept.wire(): b'{"reasoning":"Hm."}'}))
    (part,) = server.bodies[2]["contents"][1]["parts"]
    assert part["thoughtSignature"] != signature


# Keys and settings


async def test_a_vendor_under_another_name(server: VendorServer, api: str):
    table = {"api": api, "base_url": server.base_url}
    if api != "bedrock":
        table["key"] = KEY
    port = make_model(Settings.model_validate({"models": {"work": table}}), "work:guide")
    assert (await port.complete(ask("Hello"))).text == "answer to: Hello"
    server.refuse(500, "Oops.")
    with pytest.raises(ModelUnavailable, match="The model 'work:guide' at"):
        await port.complete(ask("Hello"))
    await port.close()


@only("google", "mistral", "cohere")
@pytest.mark.promise("T8", "X5")
async def test_without_a_key(api: str):
    variable = {"google": "GEMINI_API_KEY", "cohere": "CO_API_KEY"}.get(api, "MISTRAL_API_KEY")
    with pytest.raises(KeyRefused) as caught:
        await plugins.load("models", api)(api, {}).complete(ask("Hello", model="m"))
    assert caught.value.message.startswith(
        f"The model '{api}:m' needs a key, but {variable} is not set. Set it,"
    )


@pytest.mark.parametrize(
    ("options", "environment", "told"),
    [
        ({}, {}, "no AWS credentials are found. Put a key into AWS_BEARER_TOKEN_BEDROCK, or"),
        ({}, {"AWS_PROFILE": "home"}, "The config profile (home) could not be found"),
        ({"key": KEY}, {"AWS_DEFAULT_REGION": ""}, "no AWS region is named"),
    ],
)
@pytest.mark.promise("T8", "X5")
async def test_amazon_without_credentials(
    monkeypatch: pytest.MonkeyPatch,
    options: dict[str, Any],
    environment: dict[str, str],
    told: str,
):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(KeyRefused) as caught:
        await plugins.load("models", "bedrock")("bedrock", options).complete(ask("Hello"))
    assert told in caught.value.message
    assert "AWS_DEFAULT_REGION" in caught.value.message


@only("bedrock")
async def test_amazon_takes_keys_over_https_only(connect: Connect):
    with pytest.raises(ModelRefused, match="requires an HTTPS endpoint") as caught:
        await connect(key=KEY).complete(ask("Hello"))
    assert KEY not in caught.value.message


@only("google")
@pytest.mark.parametrize(
    ("vendor", "environment", "sent"),
    [
        ("google", {"GOOGLE_API_KEY": "b"}, "b"),
        ("google", {"GOOGLE_API_KEY": "b", "GEMINI_API_KEY": "a"}, "a"),
        ("work", {"WORK_API_KEY": "w", "GEMINI_API_KEY": "a"}, "w"),
        ("work", {"GEMINI_API_KEY": "a"}, "a"),
    ],
)
async def test_where_the_key_comes_from(
    server: VendorServer,
    monkeypatch: pytest.MonkeyPatch,
    vendor: str,
    environment: dict[str, str],
    sent: str,
):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    port = plugins.load("models", "google")(vendor, {"base_url": server.base_url})
    await port.complete(ask("Hello"))
    await port.close()
    assert server.headers[0]["x-goog-api-key"] == sent


@only("google")
@pytest.mark.promise("T8")
async def test_the_next_key_is_used(server: VendorServer, connect: Connect):
    port = connect(key=f"{KEY}, second-key-0123")
    server.refuse(429, "slow down")
    assert (await port.complete(ask("Hello"))).text == "answer to: Hello"
    assert (await port.complete(ask("Hello"))).text == "answer to: Hello"
    keys = [headers["x-goog-api-key"] for headers in server.headers]
    assert keys == [KEY, "second-key-0123", "second-key-0123"]
    server.refuse(401, "bad")
    with pytest.raises(KeyRefused):
        await port.complete(ask("Hello"))


@pytest.mark.promise("X5")
@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"base_url": "localhost:1"}, "models.box.base_url is 'localhost:1'"),
        ({"base_url": f"http://me:{KEY}@box/v1"}, "base_url is 'box/v1'"),
        ({"key": "“k”"}, "models.box.key holds characters"),
        ({"timeout": "5s"}, "models.box.timeout is '5s'"),
        ({"options": {"timeout": 3}}, "sets 'timeout', which asterism sets by itself"),
        ({"options": {"region": 3}}, "models.box.options.region is 3"),
        ({"cassette": object()}, "which no cassette can record or play"),
    ],
)
def test_settings_that_cannot_be(options: dict[str, Any], told: str):
    with pytest.raises(ConfigError) as caught:
        plugins.load("models", "bedrock")("box", options)
    assert told in caught.value.message
    assert KEY not in caught.value.message


@only("google")
@pytest.mark.promise("X5")
async def test_an_option_that_the_vendor_does_not_take(server: VendorServer, connect: Connect):
    with pytest.raises(ModelRefused) as caught:
        await connect(options={"temprature": 1}).complete(ask("Hello"))
    assert "sets 'temprature', which the models of Google do not take. They take: " in str(
        caught.value
    )
    assert "google_safety_settings, " in str(caught.value)
    assert server.bodies == []


@pytest.mark.parametrize("missing", ["pydantic_ai", "google.genai"])
@pytest.mark.promise("X5")
def test_without_the_library(monkeypatch: pytest.MonkeyPatch, missing: str):
    def find(name: str) -> object:
        if name == missing:
            raise ModuleNotFoundError(name)
        return name

    def found(name: str) -> object:
        return None if name == missing else name

    monkeypatch.setattr("asterism.models.others.find_spec", find if "." in missing else found)
    with pytest.raises(ConfigError, match=r"Install it with: pip install 'asterism\[vendors\]'"):
        plugins.load("models", "google")("google", {"key": KEY})


@pytest.mark.promise("D3")
def test_nothing_is_imported_before_a_vendor_is_asked():
    code = (
        "import sys; from asterism import plugins; "
        "plugins.load('models', 'google')('google', {'key': 'k' * 20}); "
        "print([m for m in sys.modules if m.split('.')[0] in "
        "{'pydantic_ai', 'httpx', 'httpx2', 'boto3', 'cohere', 'mistralai'}])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# What can go wrong


@pytest.mark.promise("X5")
@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(
    ("fault", "kind", "told"),
    [
        pytest.param(Fault.REFUSE, ModelUnavailable, "was cut off", id="refuse"),
        pytest.param(Fault.HANG, ModelUnavailable, "sent nothing for 0.5 seconds", id="hang"),
        pytest.param(Fault.STALL, ModelUnavailable, "sent nothing for 0.5 seconds", id="stall"),
        pytest.param(Fault.CUT, ModelUnavailable, "was cut off", id="cut"),
        pytest.param(Raw(b"<html>", "text/html"), ModelGarbled, "answered, but", id="html"),
        pytest.param(Raw(b'{"a": [1'), ModelGarbled, "answered, but", id="malformed"),
        pytest.param(Raw(b'{"object":"list"}'), ModelGarbled, "answered, but", id="shape"),
    ],
)
async def test_faults(
    server: VendorServer,
    connect: Connect,
    api: str,
    fault: Fault | Raw,
    kind: type[ModelError],
    told: str,
    streamed: bool,
):
    port = connect(timeout=0.5 if fault in (Fault.HANG, Fault.STALL) else 20)
    server.next(fault)
    with pytest.raises(ModelError) as caught:
        await port.complete(ask("Hello"), Pieces() if streamed else None)
    check(caught.value, api, server)
    if streamed and isinstance(fault, Raw):
        # To some libraries, a stream without a single event is one that was cut off.
        assert type(caught.value) in {ModelGarbled, ModelUnavailable}
    else:
        assert type(caught.value) is kind, caught.value.message
        assert told in caught.value.message
    if isinstance(caught.value, ModelUnavailable):
        assert caught.value.begun
    assert len(server.bodies) == 1
    after = await port.complete(ask("Hello again"), Pieces() if streamed else None)
    assert after.text == "answer to: Hello again"


def check(error: ModelError, api: str, server: VendorServer) -> None:
    message = error.message
    assert message.startswith(f"The model '{api}:guide' at {server.base_url} ")
    assert message.endswith((".", "?"))
    assert "\n" not in message
    assert KEY not in message
    assert error.__suppress_context__


REFUSALS: list[tuple[int, str, type[ModelError], str]] = [
    (401, f"Bad key {KEY}.", KeyRefused, "refused the "),
    (403, "Not yours.", KeyRefused, "(HTTP 403, 'Not yours.')"),
    (404, "No such model.", ModelRefused, "is not there (HTTP 404, 'No such model.')"),
    (400, "Odd.", ModelRefused, "did not take the request (HTTP 400, 'Odd.')"),
    (413, "Big.", ContextTooLong, "bytes too large (HTTP 413"),
    (429, "Slow.", ModelBusy, "too many requests (HTTP 429, 'Slow.')"),
    (500, "Oops.", ModelUnavailable, "is failing or overloaded (HTTP 500, 'Oops.')"),
    (503, "Later.", ModelUnavailable, "is failing or overloaded (HTTP 503, 'Later.')"),
]


@pytest.mark.promise("T8", "X5")
@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_refusals(server: VendorServer, connect: Connect, api: str, streamed: bool):
    port = connect()
    for asked, (status, words, kind, told) in enumerate(REFUSALS, 1):
        if api == "bedrock":
            words = words.replace(KEY, "of yours")  # noqa: PLW2901 -- no secret ever gets there
        wish = {"Retry-After": "7"} if status in {429, 503} else {}
        server.refuse(status, words, **wish)
        with pytest.raises(ModelError) as caught:
            await port.complete(ask("Hello"), Pieces() if streamed else None)
        check(caught.value, api, server)
        assert type(caught.value) is kind, caught.value.message
        assert told in caught.value.message
        if isinstance(caught.value, ModelUnavailable):
            assert caught.value.retry_after == (7 if wish else None)
            assert not caught.value.begun
        assert len(server.bodies) == asked
    assert (await port.complete(ask("Hello"))).text == "answer to: Hello"


@pytest.mark.promise("T8")
@pytest.mark.parametrize(
    ("api", "words"),
    [
        ("google", "The input token count (9) exceeds the maximum number of tokens allowed (8)."),
        ("mistral", "Prompt contains 9 tokens, too large for model with 8 maximum context length"),
        ("cohere", "too many tokens: size limit exceeded by 1 tokens"),
        ("bedrock", "Input is too long for requested model."),
    ],
    indirect=["api"],
)
async def test_a_conversation_that_is_too_long(server: VendorServer, connect: Connect, words: str):
    server.refuse(400, words, **{"x-amzn-errortype": "ValidationException"})
    with pytest.raises(ContextTooLong, match="has too small a window for this conversation"):
        await connect().complete(ask("Hello"))


@only("google")
@pytest.mark.promise("T8")
async def test_what_only_google_says(server: VendorServer, connect: Connect):
    port = connect()
    invalid = {
        "code": 400,
        "message": f"API key not valid: {KEY}.",
        "status": "INVALID_ARGUMENT",
        "details": [
            {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID"}
        ],
    }
    server.next(Raw(orjson.dumps({"error": invalid}), status=400))
    with pytest.raises(KeyRefused) as refused:
        await port.complete(ask("Hello"))
    assert "refused the key (HTTP 400, 'API key not valid: ….'). Put a valid one into " in str(
        refused.value
    )
    delay = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "13.5s"}
    busy = {"code": 429, "message": "Quota.", "status": "RESOURCE_EXHAUSTED", "details": [delay]}
    server.next(Raw(orjson.dumps({"error": busy}), status=429))
    with pytest.raises(ModelBusy) as waiting:
        await port.complete(ask("Hello"))
    assert waiting.value.retry_after == 13.5
    server.next(Raw(b'{"promptFeedback":{"blockReason":"SAFETY"}}'))
    with pytest.raises(ContentRefused, match=r"content filter objects \(SAFETY\)"):
        await port.complete(ask("Hello"))
    server.next(Reply(finish="error"))
    with pytest.raises(ModelGarbled, match=r"broke off by itself \(MALFORMED_FUNCTION_CALL\)"):
        await port.complete(ask("Hello"))
    server.next(Reply("Half of", finish="length"))
    assert (await port.complete(ask("Hello"))).finish == "length"


@only("google")
async def test_a_stream_that_does_not_say_how_it_ended(server: VendorServer, connect: Connect):
    half = {"candidates": [{"content": {"role": "model", "parts": [{"text": "Hel"}]}}]}
    server.next(Raw(b"data: " + orjson.dumps(half) + b"\r\n\r\n", "text/event-stream"))
    pieces = Pieces()
    with pytest.raises(ModelUnavailable, match="was cut off"):
        await connect().complete(ask("Hello"), pieces)
    assert pieces.joined("text") == "Hel"


@only("bedrock")
@pytest.mark.promise("T8")
async def test_an_error_in_the_middle_of_amazons_stream(server: VendorServer, connect: Connect):
    start = frame("messageStart", {"role": "assistant"})
    error = frame("throttlingException", {"message": "Too many tokens."}, "exception")
    server.next(Raw(start + error, "application/vnd.amazon.eventstream"))
    with pytest.raises(ModelBusy, match=r"too many requests \(HTTP 429, 'Too many tokens\.'\)"):
        await connect().complete(ask("Hello"), Pieces())


@pytest.mark.promise("X5")
async def test_nobody_listens(connect: Connect, api: str):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{unused.getsockname()[1]}"
        with pytest.raises(ModelUnavailable) as caught:
            await connect(base_url=address).complete(ask("Hello"))
    assert caught.value.message == (
        f"The model '{api}:guide' at {address} was not reached: connection refused. "
        f"Start the server there, or correct models.{api}.base_url."
    )
    assert not caught.value.begun


@pytest.mark.promise("X5")
async def test_a_host_that_is_not_there(
    connect: Connect, api: str, monkeypatch: pytest.MonkeyPatch
):
    def unknown(*args: object, **more: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    with pytest.raises(ModelUnavailable, match="there is no host of that name"):
        await connect(base_url="http://box.example").complete(ask("Hello"))


@pytest.mark.promise("X5")
async def test_no_safe_connection(server: VendorServer, connect: Connect):
    port = connect(base_url=server.base_url.replace("http:", "https:"))
    with pytest.raises(ModelRefused, match="no safe connection could be made"):
        await port.complete(ask("Hello"))


async def test_proxies_of_the_environment_are_not_for_loopback(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
):
    for name in ("http_proxy", "https_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    assert (await connect().complete(ask("Hello"))).text == "answer to: Hello"
    with pytest.raises(ModelUnavailable, match="proxy named by the environment"):
        await connect(base_url="http://far.example").complete(ask("Hello"))


async def test_the_caller_gives_up(server: VendorServer, connect: Connect):
    port = connect()
    await port.complete(ask("Hello"))
    server.next(Fault.HANG)
    with pytest.raises(ModelUnavailable, match=r"no whole answer within 0\.4 seconds") as caught:
        await port.complete(ask("Hello", timeout=0.4))
    assert caught.value.slow
    assert caught.value.begun


@only("google")
async def test_the_caller_gives_up_before_anything_is_sent(
    connect: Connect, server: VendorServer, monkeypatch: pytest.MonkeyPatch
):
    waiting = threading.Event()

    def wait(*args: object) -> None:
        waiting.wait(20)

    monkeypatch.setattr("asterism.models.others._open_quietly", wait)
    with pytest.raises(ModelUnavailable, match="no whole answer") as caught:
        await connect().complete(ask("Hello", timeout=0.05))
    waiting.set()
    assert not caught.value.begun
    assert server.bodies == []
