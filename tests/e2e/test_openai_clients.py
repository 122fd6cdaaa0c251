"""Other clients of the OpenAI-compatible API, and servers that are killed while they are asked."""

import asyncio
import contextlib
import json
import os
import shutil
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from openai import OpenAI

from asterism.testing.scripted import ScriptedModel
from asterism.types.turns import Reply, TurnState, Usage
from tests.mcp_servers.installed import node, npm_packages
from tests.scenes import calls, open_home
from tests.servers.openai_api import PLACE, life, served
from tests.torture.world import spawn

pytestmark = pytest.mark.promise("A3")

PATIENCE = 120.0
WEATHER: Any = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}


# -- kill -9 ---------------------------------------------------------------------------------------


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


@contextmanager
def alive(place: Path, port: int, delay: float = 0.0) -> Generator[Any, None, None]:
    """A server in a process of its own, killed at the end at the latest."""
    process = spawn.Process(target=life, args=(place, port, delay), daemon=True)
    process.start()
    try:
        _until_it_listens(port)
        yield process
    finally:
        process.kill()
        process.join(PATIENCE)


def _until_it_listens(port: int) -> None:
    ends = time.monotonic() + PATIENCE
    while time.monotonic() < ends:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.02)
    raise TimeoutError("The server does not listen.")


def client_of(port: int, max_retries: int = 0, timeout: float = 20.0) -> Any:
    url = f"http://127.0.0.1:{port}{PLACE}"
    return OpenAI(base_url=url, api_key="key", max_retries=max_retries, timeout=timeout)


async def turns_of(place: Path) -> list[tuple[TurnState, str]]:
    async with open_home(place) as home:
        turns = await home.turns.list("aria")
        return [(turn.state, (await home.turns.outcome(turn.id)).text) for turn in turns]


async def test_a_turn_waits_for_the_client_through_a_kill(tmp_path: Path):
    port, messages = free_port(), [{"role": "user", "content": '[[call:weather {"city":"Rome"}]]'}]

    def play() -> str:
        with alive(tmp_path, port) as server, client_of(port) as client:
            first = client.chat.completions.create(
                model="aria",
                messages=messages,
                tools=[WEATHER],
            )
            said = first.choices[0].message
            server.kill()
            server.join(PATIENCE)
        assert said.tool_calls
        result = {"role": "tool", "tool_call_id": said.tool_calls[0].id, "content": "sun"}
        after: Any = [*messages, said.model_dump(exclude_none=True), result]
        with alive(tmp_path, port) as server, client_of(port) as client:
            again = client.chat.completions.create(
                model="aria",
                messages=messages,
                tools=[WEATHER],
            )
            assert again.choices[0].message == said, "asked again, it is the same call"
            second = client.chat.completions.create(model="aria", messages=after)
            return second.choices[0].message.content or ""

    answer = await asyncio.to_thread(play)
    assert 'Result of your call weather({"city":"Rome"}): sun' in answer
    ((state, _),) = await turns_of(tmp_path)
    assert state is TurnState.DONE


async def test_a_kill_in_the_middle_of_an_answer_loses_and_doubles_nothing(tmp_path: Path):
    port = free_port()

    def play() -> str:
        with alive(tmp_path, port, delay=60.0) as slow:
            options: Any = {"model": "aria", "messages": [{"role": "user", "content": "Hello?"}]}
            with client_of(port, max_retries=20, timeout=5.0) as client:
                results: list[str] = []
                asker = threading.Thread(target=lambda: results.append(_said(client, options)))
                asker.start()
                _until_asked(tmp_path)
                slow.kill()
                slow.join(PATIENCE)
                with alive(tmp_path, port):
                    asker.join(PATIENCE)
                    assert results, "the SDK tried again and was answered"
                    return results[0]

    answer = await asyncio.to_thread(play)
    assert answer == "answer to: Hello?"
    assert await turns_of(tmp_path) == [(TurnState.DONE, answer)]


def _said(client: Any, options: dict[str, Any]) -> str:
    said = client.chat.completions.create(**options)
    return said.choices[0].message.content or ""


def _until_asked(place: Path) -> None:
    """Wait until the message is stored, as the database tells."""
    ends = time.monotonic() + PATIENCE
    while time.monotonic() < ends:
        with contextlib.suppress(sqlite3.Error):
            files = list(place.glob("*.db"))
            with contextlib.closing(sqlite3.connect(f"file:{files[0]}?mode=ro", uri=True)) as there:
                if there.execute("SELECT COUNT(*) FROM accepted").fetchone()[0]:
                    return
        time.sleep(0.02)
    raise TimeoutError(f"Nothing was asked in {list(place.iterdir())}.")


# -- the official SDK for Node ---------------------------------------------------------------------

SCRIPT = """
import OpenAI from "openai";
const client = new OpenAI({ baseURL: process.argv[2], apiKey: "key" });
const tools = [{ type: "function", function: { name: "weather", parameters: {
  type: "object", properties: { city: { type: "string" } } } } }];
const seen = {};
seen.models = (await client.models.list()).data.map((model) => model.id);
const plain = await client.chat.completions.create(
  { model: "aria", messages: [{ role: "user", content: "I am Ada." }] });
seen.plain = plain.choices[0].message.content;
const history = [{ role: "user", content: "I am Ada." }, plain.choices[0].message];
seen.pieces = 0; seen.streamed = "";
const stream = await client.chat.completions.create({ model: "aria", stream: true,
  stream_options: { include_usage: true },
  messages: [...history, { role: "user", content: "Who am I?" }] });
for await (const chunk of stream) {
  if (chunk.usage) seen.usage = chunk.usage.total_tokens;
  const text = chunk.choices[0]?.delta?.content;
  if (text) { seen.pieces += 1; seen.streamed += text; }
}
const runner = client.chat.completions.runTools({ model: "aria",
  messages: [{ role: "user", content: "Weather?" }],
  tools: [{ type: "function", function: { name: "weather", parse: JSON.parse,
    function: ({ city }) => `sun in ${city}`, parameters: tools[0].function.parameters } }] });
seen.tools = await runner.finalContent();
const image = await client.chat.completions.create({ model: "aria", messages: [{ role: "user",
  content: [{ type: "text", text: "What?" }, { type: "image_url", image_url: {
    url: "data:image/png;base64," + process.argv[3] } }] }] });
seen.image = image.choices[0].message.content;
const first = await client.responses.create({ model: "aria", input: "One." });
seen.first = first.output_text;
const second = client.responses.stream(
  { model: "aria", input: "Two.", previous_response_id: first.id });
seen.events = [];
for await (const event of second) {
  if (!seen.events.includes(event.type)) seen.events.push(event.type);
}
seen.second = (await second.finalResponse()).output_text;
try {
  await client.chat.completions.create({ model: "aria", n: 2, messages: history.slice(0, 1) });
} catch (error) { seen.error = [error.status, error.param]; }
console.log(JSON.stringify(seen));
"""


async def test_the_official_sdk_for_node_works(tmp_path: Path):
    packages = npm_packages("openai", "openai@6")
    place = tmp_path / "program"
    place.mkdir()
    (place / "ask.mjs").write_text(SCRIPT)
    (place / "node_modules").symlink_to(packages)
    model = ScriptedModel(
        [
            "Hello Ada.",
            Reply("You are Ada, of course.", usage=Usage(5, 6)),
            calls(("weather", '{"city":"Rome"}')),
            "It is sunny.",
            "A dot.",
            "First.",
            "Second, in pieces.",
        ]
    )
    png = (
        "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk"
        "+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
    )
    async with open_home(tmp_path / "home", model) as home:
        await home.agents.create("aria", tools=())
        async with served(home) as url:
            seen = await _json_of(node(), str(place / "ask.mjs"), url, png)
        assert len(await home.turns.list("aria")) == 6
    events = seen.pop("events")
    assert seen.pop("pieces") > 1
    assert seen == {
        "models": ["aria"],
        "plain": "Hello Ada.",
        "streamed": "You are Ada, of course.",
        "usage": 11,
        "tools": "It is sunny.",
        "image": "A dot.",
        "first": "First.",
        "second": "Second, in pieces.",
        "error": [400, "n"],
    }
    assert events[0] == "response.created"
    assert events[-1] == "response.completed"
    assert "sun in Rome" in str(model.requests[3].messages[-1])


async def _json_of(*command: str) -> dict[str, Any]:
    done = await asyncio.to_thread(
        subprocess.run, command, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


# -- llm -------------------------------------------------------------------------------------------


async def test_the_llm_command_works(tmp_path: Path):
    llm = shutil.which("llm", path=str(Path(sys.executable).parent))
    if llm is None:
        pytest.skip("llm is not installed")
    user = tmp_path / "llm"
    user.mkdir()
    model = ScriptedModel(["Hello from aria.", "You said hello.", "Whole."])
    async with open_home(tmp_path / "home", model) as home:
        await home.agents.create("aria", tools=())
        async with served(home) as url:
            (user / "extra-openai-models.yaml").write_text(
                f"- model_id: aria\n  model_name: aria\n  api_base: {url}\n  supports_tools: true\n"
            )
            said = [
                await _llm(llm, user, *words)
                for words in (
                    ("-m", "aria", "hello"),
                    ("-c", "what did I say?"),
                    ("-m", "aria", "--no-stream", "-s", "Be brief.", "again"),
                )
            ]
        assert said == ["Hello from aria.", "You said hello.", "Whole."]
        assert len(await home.turns.list("aria")) == 3
        second = b" ".join(model.requests[1].messages)
        assert second.count(b"hello") == 1, "the history is not repeated"


async def _llm(program: str, user: Path, *words: str) -> str:
    environment = {**os.environ, "LLM_USER_PATH": str(user), "OPENAI_API_KEY": "key"}
    done = await asyncio.to_thread(
        subprocess.run,
        [program, *words],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=environment,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()
