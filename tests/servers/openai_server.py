"""A loopback server that speaks OpenAI's chat and embeddings, and misbehaves on request.

What it answers is decided by the request alone, so that a repeated request gets the same answer:
the k-th directive `[[call:NAME {json}]]` of the last user message becomes a tool call once k - 1
results follow that message; after the last one it says `answer to: <last user text>`.
Embeddings are the nearer, the more words two texts share.

As a process of its own: `python -m tests.servers.openai_server --port 0 --latency-ms 50`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, Self, cast
from zlib import crc32

import orjson
from aiohttp import web

from asterism.types.turns import Call, Reply, Usage, without_times

DIRECTIVE = re.compile(r"\[\[call:([\w.-]+)\s*")
WORDS = re.compile(r"\s*\S+\s*|\s+")
EMBEDDING_SIZE = 64

Respond = Callable[[dict[str, Any]], Reply]
"""Decides the reply to the body of a request."""


class Fault(Enum):
    """A way to misbehave with a sound answer in hand."""

    REFUSE = "close the connection without a word"
    HANG = "never answer"
    CUT = "close the connection in the middle of the answer"
    STALL = "stop in the middle of the answer and keep the connection"
    DRIBBLE = "send the answer byte by byte"


@dataclass(frozen=True, slots=True)
class Raw:
    """Bytes sent in place of a sound answer, in pieces of `step` bytes if given."""

    body: bytes
    content_type: str = "application/json"
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict[str, str])
    step: int = 0


HTML = Raw(b"<!doctype html><title>Welcome</title>", "text/html; charset=utf-8")
MALFORMED = Raw(b'{"choices": [{"message": {"role": "assis')
OTHER_SHAPE = Raw(b'{"object": "list", "data": []}')
NO_CHOICES = Raw(b'{"object": "chat.completion", "choices": []}')


def status(code: int, message: str = "", *, retry_after: str = "", kind: str = "") -> Raw:
    """Answer with an HTTP status and an error object as the API reference describes it."""
    error = {"message": message, "type": kind or "error", "param": None, "code": kind or None}
    headers = {"Retry-After": retry_after} if retry_after else {}
    return Raw(orjson.dumps({"error": error}), status=code, headers=headers)


@dataclass(frozen=True, slots=True)
class Seen:
    """A request as the server saw it."""

    body: dict[str, Any]
    headers: dict[str, str]
    path: str
    connection: int
    """The client's port, the same as long as it keeps the connection."""


class OpenAIServer:
    """The server; use it as an async context manager."""

    def __init__(
        self,
        respond: Respond | None = None,
        *,
        latency: float = 0.0,
        log: Path | None = None,
        port: int = 0,
    ) -> None:
        self.requests: list[Seen] = []
        self.port = port
        self._respond = respond or answer_by_directives
        self._latency = latency
        self._log = log
        self.key: str | None = None
        """The key without which requests are refused; None: any will do."""
        self._faults: deque[Fault | Raw | None] = deque()
        self.every: Fault | Raw | None = None
        """What requests are met with for which `next` has said nothing."""
        self._runner: web.AppRunner | None = None

    @property
    def base_url(self) -> str:
        """What a client is configured with."""
        return f"http://127.0.0.1:{self.port}/v1"

    def next(self, *faults: Fault | Raw | None) -> None:
        """Meet the next requests with these, in order; None stands for a sound answer."""
        self._faults.extend(faults)

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=256 << 20)
        app.router.add_post("/v1/chat/completions", self._complete)
        app.router.add_post("/v1/embeddings", self._embed)
        app.router.add_get("/v1/models", self._models)
        self._runner = web.AppRunner(
            app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1
        )
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self.port).start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        assert self._runner is not None
        await self._runner.cleanup()

    async def _models(self, _: web.Request) -> web.Response:
        model = {"id": "scripted", "object": "model", "created": 0, "owned_by": "asterism"}
        return web.json_response({"object": "list", "data": [model]})

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        raw = await request.read()
        body, fault, done = await self._met(request, raw)
        if done is not None:
            return done
        reply = self._respond(body)
        if body.get("stream"):
            counted = body.get("stream_options") == {"include_usage": True}
            pieces = events(reply, body["model"], len(raw), counted=counted)
            return await self._answer(request, pieces, "text/event-stream", fault)
        pieces = [orjson.dumps(completion(reply, body["model"], len(raw)))]
        return await self._answer(request, pieces, "application/json", fault)

    async def _embed(self, request: web.Request) -> web.StreamResponse:
        raw = await request.read()
        body, fault, done = await self._met(request, raw)
        if done is not None:
            return done
        given = body.get("input")
        texts = cast("list[Any]", given if isinstance(given, list) else [given])
        if not texts or not all(isinstance(text, str) and text for text in texts):
            return await self._send(
                request, status(400, "'input' must hold texts, none of it empty")
            )
        pieces = [orjson.dumps(embeddings(texts, body["model"]))]
        return await self._answer(request, pieces, "application/json", fault)

    async def _met(
        self, request: web.Request, raw: bytes
    ) -> tuple[dict[str, Any], Fault | None, web.StreamResponse | None]:
        """Note a request; return its body, the fault to answer it with, or the answer itself."""
        try:
            body = orjson.loads(raw)
        except orjson.JSONDecodeError as error:
            return (
                {},
                None,
                await self._send(request, status(400, f"The body is not JSON: {error}")),
            )
        assert request.transport is not None
        client: int = request.transport.get_extra_info("peername")[1]
        self.requests.append(Seen(body, dict(request.headers), request.path_qs, client))
        if self._log is not None:
            with self._log.open("ab") as log:
                log.write(orjson.dumps(body) + b"\n")
        if self.key is not None and request.headers.get("Authorization") != f"Bearer {self.key}":
            return body, None, await self._send(request, status(401, "Incorrect API key provided"))
        fault = self._faults.popleft() if self._faults else self.every
        if fault is Fault.HANG:
            await asyncio.Event().wait()
        if fault is Fault.REFUSE:
            return body, None, _hang_up(request)
        if isinstance(fault, Raw):
            await asyncio.sleep(self._latency)
            return body, None, await self._send(request, fault)
        return body, fault, None

    async def _send(self, request: web.Request, raw: Raw) -> web.StreamResponse:
        response = web.StreamResponse(status=raw.status, headers=raw.headers)
        response.headers["Content-Type"] = raw.content_type
        await response.prepare(request)
        step = raw.step or len(raw.body) or 1
        for start in range(0, len(raw.body), step):
            await response.write(raw.body[start : start + step])
            await asyncio.sleep(0)
        await response.write_eof()
        return response

    async def _answer(
        self, request: web.Request, pieces: list[bytes], content_type: str, fault: Fault | None
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": content_type})
        if content_type == "application/json":
            response.content_length = sum(map(len, pieces))
        if fault is Fault.DRIBBLE:
            pieces = [bytes([byte]) for piece in pieces for byte in piece]
        elif fault is not None:
            whole = b"".join(pieces)
            pieces = [whole[: len(whole) // 2]]
        # A slow answer is slow all along, so that a kill can strike in the middle of it.
        pause = self._latency / len(pieces)
        await asyncio.sleep(pause)
        await response.prepare(request)
        for piece in pieces:
            await response.write(piece)
            await asyncio.sleep(pause)
        if fault is Fault.STALL:
            await asyncio.Event().wait()
        if fault is Fault.CUT:
            _hang_up(request)
            return response
        await response.write_eof()
        return response


def answer_by_directives(body: dict[str, Any]) -> Reply:
    """Call the next tool that the last user message asks for, or answer it."""
    messages: list[dict[str, Any]] = body.get("messages") or []
    results = 0
    text = ""
    for message in reversed(messages):
        if message.get("role") == "user":
            # A model answers what was said, not the time in front of it.
            text = without_times(_text(message.get("content")).encode()).decode()
            break
        results += message.get("role") == "tool"
    wanted = directives(text)
    if results < len(wanted):
        name, arguments = wanted[results]
        call = Call(f"call_{len(messages)}", name, arguments)
        return Reply(calls=(call,), finish="tool_calls")
    return Reply(f"answer to: {text}")


def directives(text: str) -> list[tuple[str, str]]:
    """Return names and arguments of the calls that a text asks for; malformed ones as they are."""
    found: list[tuple[str, str]] = []
    for match in DIRECTIVE.finditer(text):
        rest = text[match.end() :]
        try:
            _, end = json.JSONDecoder().raw_decode(rest)
        except ValueError:
            end = rest.find("]]")
        found.append((match[1], rest[:end].strip() or "{}"))
    return found


def embeddings(texts: list[str], model: str) -> dict[str, Any]:
    """Return the embeddings of texts as a `list` object: each word counts in a place of its own."""
    data: list[dict[str, Any]] = []
    for index, text in enumerate(texts):
        vector = [0.0] * EMBEDDING_SIZE
        for word in re.findall(r"\w+", text.lower()) or [text]:
            vector[crc32(word.encode()) % EMBEDDING_SIZE] += 1.0
        data.append({"object": "embedding", "index": index, "embedding": vector})
    tokens = sum(len(text) // 4 + 1 for text in texts)
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return {"object": "list", "data": data, "model": model, "usage": usage}


def completion(reply: Reply, model: str, sent: int) -> dict[str, Any]:
    """Return a reply as a `chat.completion` object."""
    message = orjson.loads(reply.wire())
    if reply.reasoning:
        message["reasoning_content"] = reply.reasoning
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": reply.finish}
    return _object("chat.completion", model, choices=[choice], usage=_usage(reply, sent))


def events(reply: Reply, model: str, sent: int, *, counted: bool = True) -> list[bytes]:
    """Return a reply as a stream of `chat.completion.chunk` objects."""
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    deltas += [{"reasoning_content": piece} for piece in WORDS.findall(reply.reasoning)]
    deltas += [{"content": piece} for piece in WORDS.findall(reply.text)]
    for index, call in enumerate(reply.calls):
        function = {"name": call.name, "arguments": ""}
        first = {"index": index, "id": call.id, "type": "function", "function": function}
        deltas.append({"tool_calls": [first]})
        for start in range(0, len(call.arguments), 8):
            fragment = {"arguments": call.arguments[start : start + 8]}
            deltas.append({"tool_calls": [{"index": index, "function": fragment}]})
    chunks = [
        _chunk(model, choices=[{"index": 0, "delta": delta, "finish_reason": None}])
        for delta in deltas
    ]
    last: dict[str, Any] = {"index": 0, "delta": {}, "finish_reason": reply.finish}
    chunks.append(_chunk(model, choices=[last]))
    if counted:
        chunks.append(_chunk(model, choices=[], usage=_usage(reply, sent)))
    return [*chunks, b"data: [DONE]\n\n"]


def _chunk(model: str, **fields: Any) -> bytes:
    return b"data: " + orjson.dumps(_object("chat.completion.chunk", model, **fields)) + b"\n\n"


def _object(kind: str, model: str, **fields: Any) -> dict[str, Any]:
    return {"id": "chatcmpl-0", "object": kind, "created": 0, "model": model, **fields}


def _usage(reply: Reply, sent: int) -> dict[str, Any]:
    usage = reply.usage if reply.usage.total else Usage.estimate(sent, len(reply.wire()))
    return {
        "prompt_tokens": usage.input,
        "completion_tokens": usage.output,
        "total_tokens": usage.total,
        "prompt_tokens_details": {"cached_tokens": usage.cached},
    }


def _text(content: Any) -> str:
    if isinstance(content, list):
        return "".join(part.get("text", "") for part in cast("list[dict[str, Any]]", content))
    return content or ""


def _hang_up(request: web.Request) -> web.StreamResponse:
    if request.transport is not None:
        request.transport.close()
    return web.StreamResponse()


async def _serve(port: int, latency: float, log: Path | None) -> None:
    async with OpenAIServer(port=port, latency=latency, log=log) as server:
        print(json.dumps({"port": server.port, "pid": os.getpid()}), flush=True)
        await asyncio.Event().wait()


def main() -> None:
    """Serve until killed; print one line of JSON with the port once it listens."""
    parser = argparse.ArgumentParser(description=OpenAIServer.__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--latency-ms", type=float, default=0.0)
    parser.add_argument("--log", type=Path, help="append each request's body, a line each")
    options = parser.parse_args()
    asyncio.run(_serve(options.port, options.latency_ms / 1000, options.log))


if __name__ == "__main__":
    main()
