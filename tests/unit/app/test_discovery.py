"""What models are to be had here: keys, servers on loopback, weights."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from asterism.app.discovery import AvailableModel, discover, server_addresses
from asterism.config import vendors
from asterism.errors import InvalidInput
from asterism.models.embedded import weights

# Answers by the published interfaces:
# Ollama, https://github.com/ollama/ollama/blob/main/docs/api.md#list-local-models
OLLAMA = {
    "models": [
        {"name": "nomic-embed-text:latest", "size": 274302450, "digest": "0a109f422b47"},
        {
            "name": "llama3.2:latest",
            "model": "llama3.2:latest",
            "modified_at": "2025-05-04T17:37:44.706015396-07:00",
            "size": 2019393189,
            "digest": "a80c4f17acd55265feec403c7aef86be0c25983ab279d83f3bcd3abbcb5b8b72",
            "details": {"format": "gguf", "family": "llama", "parameter_size": "3.2B"},
        },
        {"name": "qwen3:8b", "size": 5225388164, "digest": "500a1f067a9f"},
    ]
}
# OpenAI's list of models, which LM Studio and vLLM follow (vLLM adds its own members)
LM_STUDIO = {
    "object": "list",
    "data": [{"id": "qwen/qwen3-4b", "object": "model", "owned_by": "organization_owner"}],
}
VLLM = {
    "object": "list",
    "data": [
        {
            "id": "Qwen/Qwen3-8B",
            "object": "model",
            "created": 1736000000,
            "owned_by": "vllm",
            "root": "Qwen/Qwen3-8B",
            "max_model_len": 40960,
            "permission": [{"id": "modelperm-1", "object": "model_permission"}],
        }
    ],
}
# llama.cpp has both, https://github.com/ggml-org/llama.cpp/blob/master/tools/server/README.md
LLAMA_CPP = {
    "models": [{"name": "gemma-3-4b-it", "model": "gemma-3-4b-it", "type": "model"}],
    "object": "list",
    "data": [
        {
            "id": "gemma-3-4b-it",
            "object": "model",
            "owned_by": "llamacpp",
            "meta": {"n_ctx_train": 131072, "n_params": 3880099328},
        }
    ],
}

Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Fake:
    """A server on loopback that says one thing, and remembers what it was asked."""

    def __init__(self, body: object, *, status: str = "200 OK", keep_open: bool = False) -> None:
        self.body = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.status = status
        self.keep_open = keep_open
        self.asked: list[str] = []

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.asked.append((await reader.readuntil(b"\r\n\r\n")).decode())
        head = f"HTTP/1.1 {self.status}\r\nContent-Type: application/json\r\n\r\n"
        writer.write(head.encode() + self.body)
        await writer.drain()
        if self.keep_open:
            await reader.read()
        writer.close()


@asynccontextmanager
async def serving(**servers: Answer) -> AsyncGenerator[dict[str, str], None]:
    """Serve on free ports, and yield an environment in which they are looked for."""
    async with AsyncExitStack() as stack:
        places: list[str] = []
        for name, answer in servers.items():
            server = await asyncio.start_server(answer, "127.0.0.1", 0)
            stack.callback(server.close)
            places.append(f"{name}=127.0.0.1:{server.sockets[0].getsockname()[1]}")
        yield {"ASTERISM_SERVERS": ", ".join(places) or "none"}


@pytest.fixture
def nothing(tmp_path: Path) -> dict[str, str]:
    """An environment without keys, servers and weights."""
    return {"ASTERISM_SERVERS": "none", "ASTERISM_MODELS": str(tmp_path)}


def others(found: list[AvailableModel]) -> list[AvailableModel]:
    return [one for one in found if one.vendor != "embedded"]


@pytest.mark.promise("D1")
async def test_each_kind_of_server_is_found_with_its_models(nothing: dict[str, str]) -> None:
    fakes = {
        "ollama": Fake(OLLAMA),
        "lmstudio": Fake(LM_STUDIO),
        "vllm": Fake(VLLM, keep_open=True),
        "llamacpp": Fake(LLAMA_CPP),
    }
    keys = {"OPENAI_API_KEY": "sk-secret"}
    async with serving(**fakes) as environ:
        found = others(await discover(nothing | keys | environ, patience=10))
    assert [one.model for one in found] == [
        "openai:gpt-4.1-mini",
        "ollama:llama3.2:latest",
        "lmstudio:qwen/qwen3-4b",
        "vllm:Qwen/Qwen3-8B",
        "llamacpp:gemma-3-4b-it",
    ]
    assert all(one.ready for one in found)
    assert found[1].others == ("ollama:qwen3:8b",)
    assert found[1].base_url == f"{found[1].where}/v1"
    asked = [fake.asked[0] for fake in fakes.values()]
    assert [one.split()[1] for one in asked] == ["/api/tags", *["/v1/models"] * 3]
    assert not any("secret" in one or "authorization" in one.lower() for one in asked)


@pytest.mark.parametrize(
    "fake",
    [
        Fake(b"<html>It works!</html>"),
        Fake({"detail": "Not Found"}, status="404 Not Found"),
        Fake({"error": "no key"}, status="401 Unauthorized"),
        Fake([1, 2]),
        Fake({"data": "nonsense"}),
        Fake({"data": [{"name": 3}]}),
        Fake(b""),
        Fake({"data": [{"id": "text-embedding-3"}]}),
    ],
    ids=lambda fake: fake.body[:20].decode(),
)
async def test_what_else_answers_there_is_no_model_server(
    fake: Fake, nothing: dict[str, str]
) -> None:
    async with serving(vllm=fake) as environ:
        assert others(await discover(nothing | environ, patience=10)) == []
    assert fake.asked


async def test_a_server_without_models_is_named_but_not_ready(nothing: dict[str, str]) -> None:
    async with serving(ollama=Fake({"models": []})) as environ:
        (found,) = others(await discover(nothing | environ, patience=10))
    assert not found.ready
    assert "no model to chat with" in found.why


async def test_servers_that_hang_hold_nobody_up(nothing: dict[str, str]) -> None:
    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async with serving(ollama=hang, vllm=hang, llamacpp=Fake(LLAMA_CPP)) as environ:
        found = others(await discover(nothing | environ))
    assert [one.vendor for one in found] in (["llamacpp"], [])


async def test_a_closed_port_is_no_finding(nothing: dict[str, str]) -> None:
    async with serving(ollama=Fake(OLLAMA)) as environ:
        pass
    assert others(await discover(nothing | environ)) == []


async def test_keys_are_proposed_in_order_and_never_shown(nothing: dict[str, str]) -> None:
    keys = ["GROQ_API_KEY", "ANTHROPIC_API_KEY", "OPENROUTER_API_KEY", "XAI_API_KEY"]
    environ = nothing | dict.fromkeys(keys, "hunter2") | {"OPENAI_API_KEY": ""}
    found = others(await discover(environ))
    assert [one.model for one in found] == [
        "anthropic:claude-haiku-4-5",
        "openrouter:openrouter/auto",
        "groq:openai/gpt-oss-120b",
        "xai:grok-4.3",
    ]
    assert "hunter2" not in repr(found)


async def test_a_key_without_its_library_comes_last_and_says_so(
    nothing: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def nothing_more(library: str) -> bool:
        return False

    monkeypatch.setattr(vendors, "is_installed", nothing_more)
    environ = nothing | {"GOOGLE_API_KEY": "k", "GROQ_API_KEY": "k"}
    groq, google = others(await discover(environ))
    assert (groq.ready, google.ready) == (True, False)
    assert google.where == "GOOGLE_API_KEY"
    assert "not installed" in google.why


async def test_embedded_models_come_last_and_say_what_they_are(nothing: dict[str, str]) -> None:
    found = await discover(nothing | {"OPENAI_API_KEY": "k"})
    ours = found[1:]
    assert all(one.vendor == "embedded" and not one.ready for one in ours)
    assert ours[0].model == "embedded:qwen2.5-coder-1.5b"
    assert ours[0].why.startswith("recommended, measured, 1.12 GB, 2.0 GB of memory: ")


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("", "http://127.0.0.1:11434"),
        ("127.0.0.1", "http://127.0.0.1:11434"),
        (":5555", "http://127.0.0.1:5555"),
        ("0.0.0.0:5555", "http://127.0.0.1:5555"),
        ("localhost:1", "http://localhost:1"),
        ("http://localhost", "http://localhost:80"),
        ("[::1]:5555", "http://[::1]:5555"),
        ("gpu.example:11434", None),
        ("https://localhost", None),
        ("::nonsense::", None),
    ],
)
def test_ollama_is_looked_for_where_its_variable_says_if_that_is_here(
    host: str, address: str | None
) -> None:
    assert server_addresses({"OLLAMA_HOST": host}).get("ollama") == address


def test_usual_ports() -> None:
    assert server_addresses({}) == {
        "ollama": "http://127.0.0.1:11434",
        "lmstudio": "http://127.0.0.1:1234",
        "vllm": "http://127.0.0.1:8000",
        "llamacpp": "http://127.0.0.1:8080",
    }
    assert server_addresses({"ASTERISM_SERVERS": "none"}) == {}


@pytest.mark.promise("X5")
@pytest.mark.parametrize(
    "wish",
    ["ollama", "ollama=", "ollama=gpu.example:1", "gpt=127.0.0.1:1", "vllm=127.0.0.1:x", ","],
)
def test_a_wish_that_cannot_be_is_told(wish: str) -> None:
    with pytest.raises(InvalidInput, match=r"ASTERISM_SERVERS holds .*No server was asked"):
        server_addresses({"ASTERISM_SERVERS": wish})


@pytest.mark.promise("D1")
@pytest.mark.parametrize(
    ("gigabytes", "offered"),
    [
        (2, ["qwen2.5-coder-0.5b", "smollm2-135m"]),
        (8, ["qwen2.5-coder-1.5b", "qwen3-4b", "qwen2.5-coder-0.5b", "smollm2-135m"]),
        (
            16,
            [
                *("qwen2.5-coder-1.5b", "qwen3-4b", "qwen3-8b"),
                *("qwen2.5-coder-0.5b", "smollm2-135m"),
            ],
        ),
    ],
)
async def test_weights_are_offered_that_the_memory_has_room_for(
    nothing: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    gigabytes: int,
    offered: list[str],
) -> None:
    monkeypatch.setattr(weights, "machine_memory", lambda: gigabytes * 10**9)
    found = {one.name: one.why for one in await discover(nothing)}
    assert list(found) == offered
    if "qwen3-4b" in found:
        assert found["qwen2.5-coder-1.5b"].startswith("recommended, measured, 1.12 GB, 2.0 GB of")
        assert found["qwen3-4b"].startswith("not measured here, 2.50 GB, 4.4 GB of memory: ")
