"""`python -m bench.embedded`: how fast the embedded model is, and how well it chooses tools."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
import tomllib
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import orjson

from asterism import Asterism
from asterism.errors import AsterismError
from asterism.models.embedded import Embedded
from asterism.models.embedded.weights import WeightsDirectory, manifest
from asterism.ports import ModelRequest
from asterism.types.turns import Reply

SYSTEM = (
    "You are Aria, a helpful assistant who lives on this person's own computer and remembers what "
    "they tell you. You talk with one person, briefly and kindly."
)
_REQUESTS = Path(__file__).with_name("embedded_requests.toml")
_FILLER = "The market opened early and the birds were loud above the quiet square. "
_LONGEST = 300.0


@dataclass
class Figures:
    """What one model did."""

    model: str
    load: float = 0.0
    read_per_s: float = 0.0
    write_per_s: float = 0.0
    heard_per_s: float = 0.0
    first_token_1: float = 0.0
    first_token_2: float = 0.0
    cached_2: float = 0.0
    resident_mb: int = 0
    resident_own_mb: int = 0
    hello: str = ""
    calls: int = 0
    valid: int = 0
    asked: int = 0
    right: int = 0
    chats: int = 0
    false_calls: int = 0
    held_asked: int = 0
    held_right: int = 0
    held_chats: int = 0
    held_false_calls: int = 0
    wrong: dict[str, int] = field(default_factory=dict[str, int])


def _wire(role: str, text: str) -> bytes:
    return orjson.dumps({"role": role, "content": text})


def _tools(requests: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {
            "type": "function",
            "function": {
                "name": one["name"],
                "description": one["description"],
                "parameters": {
                    "type": "object",
                    "additionalProperties": False,
                    **one["parameters"],
                },
            },
        }
        for one in requests["tools"]
    ]


class Bench:
    """One model through all measurements."""

    def __init__(self, model: str, *, quick: bool) -> None:
        self.figures = Figures(model, load=os.getloadavg()[0])
        self._model = model
        self._requests = tomllib.loads(_REQUESTS.read_text(encoding="utf-8"))
        self._tools = _tools(self._requests)
        self._every = 4 if quick else 1

    async def run(self) -> Figures:
        """Measure everything."""
        await self._turns()
        port = Embedded("embedded", {})
        try:
            await self._speed(port)
            await self._choices(port)
            await self._validity(port)
        finally:
            await port.close()
        return self.figures

    async def _turns(self) -> None:
        """Two turns through the whole of asterism; the child starts with the first."""
        with tempfile.TemporaryDirectory() as data:
            settings = {"model": f"embedded:{self._model}"}
            async with Asterism.open(data, settings=settings) as home:
                await home.agents.create("aria", system=SYSTEM)
                figures = self.figures
                figures.first_token_1, figures.hello = await _first(home, "Hello, who are you?")
                figures.first_token_2, _ = await _first(home, "What can you do for me?")
                turn = (await home.turns.list("aria"))[0]
                figures.cached_2 = turn.usage.cached / max(1, turn.usage.input)

    async def _speed(self, port: Embedded) -> None:
        """The runtime's own timings are the floor; what a listener hears comes on top."""
        await self._ask(port, "Hi.", most=1)
        began = time.monotonic()
        reply = await self._ask(port, _FILLER * 24, most=1)
        self.figures.read_per_s = (reply.usage.input - reply.usage.cached) / (
            time.monotonic() - began
        )
        heard: list[float] = []

        def hear(_kind: str, _piece: str) -> None:
            heard.append(time.monotonic())

        reply = await self._ask(
            port,
            "Tell me a long story about a lighthouse.",
            most=128,
            emit=hear,
        )
        if len(heard) > 1:
            self.figures.heard_per_s = (len(heard) - 1) / (heard[-1] - heard[0])
        self.figures.write_per_s = await _raw_speed(port, self._model)
        self.figures.resident_mb, self.figures.resident_own_mb = _resident(port.pid(self._model))

    async def _choices(self, port: Embedded) -> None:
        figures, wrong = self.figures, Counter[str]()
        asked, right, chats, false = await self._choose(port, self._requests, wrong)
        figures.asked, figures.right, figures.chats, figures.false_calls = (
            asked,
            right,
            chats,
            false,
        )
        asked, right, chats, false = await self._choose(port, self._requests["held"], wrong)
        figures.held_asked, figures.held_right = asked, right
        figures.held_chats, figures.held_false_calls = chats, false
        figures.wrong = dict(wrong.most_common())

    async def _choose(
        self, port: Embedded, requests: dict[str, Any], wrong: Counter[str]
    ) -> tuple[int, int, int, int]:
        """Return how many requests there were and how many right, and so for small talk."""
        asked = right = chats = false = 0
        for want, messages in requests["asks"].items():
            for message in messages[:: self._every]:
                reply = await self._ask(port, message, tools=self._tools)
                got = reply.calls[0].name if reply.calls else "none"
                asked, right = asked + 1, right + (got == want)
                if got != want:
                    wrong[f"{want} → {got}"] += 1
                self._check(reply)
        for message in requests["chat"]["messages"][:: self._every]:
            reply = await self._ask(port, message, tools=self._tools, most=16)
            chats, false = chats + 1, false + bool(reply.calls)
            if reply.calls:
                wrong[f"none → {reply.calls[0].name}"] += 1
            self._check(reply)
        return asked, right, chats, false

    async def _validity(self, port: Embedded) -> None:
        """Every tool is forced on every message it does not fit, until a hundred calls are seen."""
        most = 100 // self._every
        messages = [one for asks in self._requests["asks"].values() for one in asks]
        number = 0
        while self.figures.calls < most and number < 4 * most:
            name = self._tools[number % len(self._tools)]["function"]["name"]
            message = messages[(number * 7) % len(messages)]
            self._check(await self._ask(port, message, tools=self._tools, choice=name))
            number += 1

    def _check(self, reply: Reply) -> None:
        import jsonschema

        schemas = {one["function"]["name"]: one["function"]["parameters"] for one in self._tools}
        for call in reply.calls:
            self.figures.calls += 1
            try:
                jsonschema.validate(json.loads(call.arguments), schemas[call.name])
            except (ValueError, KeyError, jsonschema.ValidationError) as error:
                print(f"invalid: {call} ({error})", file=sys.stderr)
            else:
                self.figures.valid += 1

    async def _ask(
        self,
        port: Embedded,
        text: str,
        *,
        tools: list[dict[str, Any]] | None = None,
        choice: str = "auto",
        most: int | None = None,
        emit: Any = None,
    ) -> Reply:
        request = ModelRequest(
            self._model,
            [_wire("system", SYSTEM), _wire("user", text)],
            orjson.dumps(tools) if tools else None,
            "bench",
            _LONGEST,
            tool_choice=choice,
            max_output=most,
        )
        return await port.complete(request, emit)


async def _first(home: Asterism, text: str) -> tuple[float, str]:
    """Return seconds to the first piece of an answer, and the answer."""
    began, first, said = time.monotonic(), 0.0, ""
    async for signal in home.agents.stream("aria", text):
        if signal.kind == "text":
            first = first or time.monotonic() - began
            said += signal.text
        elif signal.kind == "ended":
            said = said or signal.text
    return first or time.monotonic() - began, said


def _resident(pid: int | None) -> tuple[int, int]:
    """Return a process's resident megabytes, and those of them that are no mapped file."""
    status = Path(f"/proc/{pid}/status")
    if not status.exists():
        return 0, 0
    sizes = dict(line.split(":", 1) for line in status.read_text().splitlines())
    return int(sizes["VmRSS"].split()[0]) // 1024, int(sizes["RssAnon"].split()[0]) // 1024


async def _raw_speed(port: Embedded, model: str) -> float:
    """Ask the child's server itself how fast it writes."""
    import aiohttp

    address, key = port.address(model)
    body = {
        "messages": [{"role": "user", "content": "Tell me a long story about a lighthouse."}],
        "max_tokens": 128,
        "temperature": 0.3,
    }
    headers = {"Authorization": f"Bearer {key}"}
    async with (
        aiohttp.ClientSession(headers=headers) as session,
        session.post(f"{address}/v1/chat/completions", json=body) as response,
    ):
        answer = await response.json()
    return float(answer["timings"]["predicted_per_second"])


def report(one: Figures) -> str:
    """Return the figures as a table."""
    rows = [
        ("reads, tokens/s", f"{one.read_per_s:.1f}"),
        ("writes, tokens/s, by the runtime's own count", f"{one.write_per_s:.1f}"),
        ("writes, tokens/s, as heard through the port", f"{one.heard_per_s:.1f}"),
        ("first token of turn 1, start included", f"{one.first_token_1:.1f} s"),
        ("first token of turn 2", f"{one.first_token_2:.1f} s"),
        ("of turn 2 read before", f"{one.cached_2:.0%}"),
        ("resident memory of the child", f"{one.resident_mb} MB"),
        ("… without the mapped file", f"{one.resident_own_mb} MB"),
        ("valid calls", f"{one.valid} of {one.calls}"),
        ("right tool of 8", f"{one.right} of {one.asked} ({one.right / max(1, one.asked):.0%})"),
        ("calls where none was needed", f"{one.false_calls} of {one.chats}"),
        ("right tool, requests held back", f"{one.held_right} of {one.held_asked}"),
        ("needless calls, requests held back", f"{one.held_false_calls} of {one.held_chats}"),
    ]
    lines = [f"embedded:{one.model}  (load {one.load:.1f} on {os.cpu_count()} cores at the start)"]
    lines += [f"  {name:<46} {value}" for name, value in rows]
    lines.append(f'  "Hello, who are you?"  {one.hello}')
    if one.wrong:
        lines.append("  wrong: " + ", ".join(f"{n} × {what}" for what, n in one.wrong.items()))
    return "\n".join(lines)


def main() -> int:
    """Measure the models that are named, by default the recommended one."""
    parser = argparse.ArgumentParser(prog="python -m bench.embedded", description=__doc__)
    recommended = next(name for name, one in manifest().items() if one.recommended)
    parser.add_argument("--model", action="append", help="weights by name; may be given again")
    parser.add_argument("--quick", action="store_true", help="a quarter of the requests")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args()
    found: list[Figures] = []
    for model in options.model or [recommended]:
        if WeightsDirectory().path(model) is None:
            print(f'{model} is not here. Get it with "asterism model pull {model}".')
            return 1
        try:
            found.append(asyncio.run(Bench(model, quick=options.quick).run()))
        except AsterismError as error:
            print(error.message, file=sys.stderr)
            return 1
        if not options.json:
            print(report(found[-1]), flush=True)
    if options.json:
        print(json.dumps([asdict(one) for one in found], indent=2, ensure_ascii=False))
    return 0


if __name__ == "__main__":
    sys.exit(main())
