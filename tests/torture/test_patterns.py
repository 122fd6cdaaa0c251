"""Regular expressions through every door: none takes long, takes much memory or ends anything."""

import asyncio
import os
import time
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest

from asterism.testing.scripted import ScriptedModel
from tests.api_scene import api_client
from tests.conftest import TORTURE
from tests.hostile_patterns import TEXTS, hostile_patterns
from tests.scenes import open_home

COUNT = int(os.environ.get("ASTERISM_PATTERNS", "20000")) if TORTURE else 100
MAX_SECONDS = 0.05
MAX_MEGABYTES = 50
SEED = int(os.environ.get("ASTERISM_SEED", "1"))

pytestmark = [pytest.mark.promise("X1", "X5"), pytest.mark.timeout(3_600 if TORTURE else 120)]
if TORTURE:
    pytestmark.append(pytest.mark.torture)

Door = Callable[[str], Awaitable[httpx.Response]]


class Doors:
    """The doors of a home that take an expression, each a request."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self.client = client
        self.used = 0.0
        """CPU seconds of the dearest request since this was set to 0."""
        self.client.event_hooks = {"request": [self._begin], "response": [self._end]}
        self._begun = 0.0
        self.all: dict[str, Door] = {
            "edit": self.edit,
            "grant": self.grant,
            "policy": self.policy,
            "answer": self.answer,
            "openai": self.openai,
            "tool": self.tool,
            "group": self.group,
        }

    async def edit(self, expression: str) -> httpx.Response:
        body = {"operation": "replace", "which": "regex", "old": expression, "content": r"<\g<0>>"}
        return await self._post("agents/aria/blocks/notes/edits", body)

    async def grant(self, expression: str) -> httpx.Response:
        body = {"tool": "web", "agent": "aria", "pattern": {"url": f"re:{expression}"}}
        made = await self._post("grants", body)
        if made.is_success:
            # It is held against the call of a turn, and taken back.
            await self._post("agents/aria/ask", {"text": "[[call:web {}]]"})
            await self.client.delete(f"/api/grants/{made.json()['id']}")
        return made

    async def policy(self, expression: str) -> httpx.Response:
        value = orjson.dumps(f"re:{expression}".encode(errors="replace").decode()).decode()
        policy = f"name = 'x'\nverdict = 'deny'\nrecipients = [{value}]\n"
        return await self._post("config/check", {"text": f"[[authorizations.policy]]\n{policy}"})

    async def answer(self, expression: str) -> httpx.Response:
        return await self._post(
            "agents/aria/ask", {"text": "hi", "json_schema": self._schema(expression)}
        )

    async def openai(self, expression: str) -> httpx.Response:
        form = {"name": "x", "schema": self._schema(expression)}
        body = {
            "model": "aria",
            "messages": [{"role": "user", "content": "hi"}],
            "response_format": {"type": "json_schema", "json_schema": form},
        }
        return await self.client.post("/openai/v1/chat/completions", content=_json(body))

    async def tool(self, expression: str) -> httpx.Response:
        http = {"url": "https://example.org/", "method": "POST"}
        schema = {"properties": {"x": {"type": "string", "pattern": expression}}}
        body = {"name": "x", "description": "x", "json_schema": schema, "http": http}
        made = await self._post("registered-tools", body)
        if made.is_success:
            await self.client.delete("/api/registered-tools/x")
        return made

    async def group(self, expression: str) -> httpx.Response:
        rule = {"condition": "pattern", "pattern": expression}
        options = {"agent": "aria", "triggers": [rule]}
        body = {"name": "ring", "pattern": "sleeptime", "members": ["aria"], "options": options}
        made = await self._post("groups", body)
        if made.is_success:
            await self.client.delete("/api/groups/ring")
        return made

    async def _begin(self, _: httpx.Request) -> None:
        self._begun = time.process_time()

    async def _end(self, _: httpx.Response) -> None:
        self.used = max(self.used, time.process_time() - self._begun)

    async def _post(self, path: str, body: Any) -> httpx.Response:
        return await self.client.post(f"/api/{path}", content=_json(body))

    def _schema(self, expression: str) -> dict[str, Any]:
        return {
            "type": "object",
            "properties": {"x": {"type": "string", "pattern": expression}},
            "patternProperties": {expression: {}},
            "additionalProperties": False,
        }


def _json(body: Any) -> bytes:
    try:
        return orjson.dumps(body)
    except TypeError:  # half a character, which no JSON holds
        return b'{"text": "\\ud800"}'


@asynccontextmanager
async def scene(place: Path) -> AsyncGenerator[Doors, None]:
    """The doors of a home with an agent whose answers are held against schemas."""
    words = orjson.dumps({"x": TEXTS[0], TEXTS[2][:200]: 1}).decode()
    model = ScriptedModel.from_rule(lambda _: words)
    async with open_home(place, model) as home, api_client(home) as client:
        client.headers["content-type"] = "application/json"
        await home.agents.create("aria")
        await client.post(
            "/api/agents/aria/blocks",
            json={"label": "notes", "content": "a" * 2_000 + "\n" + TEXTS[2][:2_000]},
        )
        doors = Doors(client)
        for _ in range(10 if TORTURE else 1):  # until all has been imported once
            for door in doors.all.values():
                await door("a+")
        yield doors


def test_every_door_answers_every_expression(tmp_path: Path):
    asyncio.run(_try(tmp_path))


async def _try(place: Path) -> None:
    fates: Counter[tuple[str, bool]] = Counter()
    expressions = list(hostile_patterns(COUNT, SEED))
    # A home that has taken thousands of turns is busy with those.
    for first in range(0, COUNT, 300):
        async with scene(place / str(first)) as doors:
            for expression in expressions[first : first + 300]:
                await _try_all(doors, expression, fates)
    # A door that refuses or takes all would prove nothing.
    assert len(fates) == 2 * len({name for name, _ in fates}), fates


async def _try_all(doors: Doors, expression: str, fates: Counter[tuple[str, bool]]) -> None:
    for name, door in doors.all.items():
        memory = _Memory()
        doors.used = 0.0
        answer = await door(expression)
        is_fault = answer.is_server_error and "turn.failed" not in answer.text
        assert not is_fault, (name, expression, answer.text)
        assert memory.grown < MAX_MEGABYTES, (name, expression, memory.grown)
        fates[name, not answer.is_client_error and answer.json().get("valid", True)] += 1
        # Something else may have been done meanwhile; the prefix keeps the expression from being
        # known from before.
        for attempt in range(1, 5):
            if doors.used < MAX_SECONDS or not TORTURE:
                break
            assert attempt < 4, (name, expression, doors.used)
            doors.used = 0.0
            await door("(?:)" * attempt + expression)


class _Memory:
    """How much more memory this process has held at once, in MB."""

    def __init__(self) -> None:
        Path("/proc/self/clear_refs").write_text("5", "utf-8")
        self._before = self._read("VmRSS")

    @property
    def grown(self) -> int:
        return (self._read("VmHWM") - self._before) // 1024

    def _read(self, name: str) -> int:
        status = Path("/proc/self/status").read_text("utf-8")
        return int(status.partition(f"{name}:")[2].split()[0])
