"""A loopback server that speaks Anthropic's Messages API and misbehaves on request.

Written from the API's documentation, https://platform.claude.com/docs/en/api/messages, and not
recorded from the vendor. What it answers is decided by the request alone, as the OpenAI double
does it; what the API would refuse, it refuses, and it counts what a prompt cache would have found.

As a process of its own: `python -m tests.servers.anthropic_server --port 0 --latency-ms 50`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
from pathlib import Path
from typing import Any, Self

import orjson
from aiohttp import web

from asterism.types.turns import Reply, Usage
from tests.servers.anthropic_rules import PromptCache, refusal, sign
from tests.servers.openai_server import (
    WORDS,
    Fault,
    OpenAIServer,
    Raw,
    Respond,
    Seen,
    answer_by_directives,
)

_STOP_REASONS = {
    "stop": "end_turn",
    "tool_calls": "tool_use",
    "length": "max_tokens",
    "content_filter": "refusal",
}
VERSIONS = frozenset({"2023-06-01", "2026-10-21"})
THOUGHT = "Let me think about it. ✨"


def status(code: int, message: str = "", *, kind: str = "", retry_after: str = "") -> Raw:
    """Answer with an HTTP status and an error object as the API reference describes it."""
    error = {"type": kind or "api_error", "message": message}
    body = {"type": "error", "error": error, "request_id": "req_0"}
    headers = {"Retry-After": retry_after} if retry_after else {}
    return Raw(orjson.dumps(body), status=code, headers=headers)


class AnthropicServer(OpenAIServer):
    """The server; use it as an async context manager."""

    def __init__(
        self,
        respond: Respond | None = None,
        *,
        latency: float = 0.0,
        log: Path | None = None,
        port: int = 0,
        least_cached: int = 1024,
    ) -> None:
        """Make a server whose cache keeps prefixes from `least_cached` tokens up."""
        super().__init__(respond or answer_messages, latency=latency, log=log, port=port)
        self.bodies: list[bytes] = []
        """The requests as they came."""
        self._cache = PromptCache(least_cached)

    @property
    def base_url(self) -> str:
        """What a client is configured with."""
        return f"http://127.0.0.1:{self.port}"

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=256 << 20)
        app.router.add_post("/v1/messages", self._message)
        app.router.add_get("/v1/models", self._models)
        self._runner = web.AppRunner(
            app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1
        )
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self.port).start()
        self.port = self._runner.addresses[0][1]
        return self

    async def _models(self, _: web.Request) -> web.Response:
        model = {
            "type": "model",
            "id": "scripted",
            "display_name": "Scripted",
            "created_at": "2026-01-01T00:00:00Z",
        }
        page = {"data": [model], "has_more": False, "first_id": "scripted", "last_id": "scripted"}
        return web.json_response(page)

    async def _message(self, request: web.Request) -> web.StreamResponse:
        raw = await request.read()
        body: dict[str, Any] = orjson.loads(raw)
        assert request.transport is not None
        client: int = request.transport.get_extra_info("peername")[1]
        self.requests.append(Seen(body, dict(request.headers), request.path_qs, client))
        self.bodies.append(raw)
        if self._log is not None:
            with self._log.open("ab") as log:
                log.write(orjson.dumps(body) + b"\n")
        fault = self._faults.popleft() if self._faults else None
        if fault is Fault.HANG:
            await asyncio.Event().wait()
        if fault is Fault.REFUSE:
            request.transport.close()
            return web.StreamResponse()
        if fault is None and (words := _objection(body, request.headers.get("anthropic-version"))):
            fault = status(400, words, kind="invalid_request_error")
        if isinstance(fault, Raw):
            await asyncio.sleep(self._latency)
            return await self._send(request, fault)
        found = self._cache.count(body)
        reply = self._respond(body)
        if body.get("stream"):
            pieces = events(reply, body["model"], found)
            return await self._answer(request, pieces, "text/event-stream", fault)
        pieces = [orjson.dumps(whole(reply, body["model"], found))]
        return await self._answer(request, pieces, "application/json", fault)


def _objection(body: dict[str, Any], version: str | None) -> str:
    if version not in VERSIONS:
        return f"anthropic-version: {version!r} is not a valid version"
    return refusal(body)


def answer_messages(body: dict[str, Any]) -> Reply:
    """Call the next tool that the last user message asks for, or answer it; think if asked to."""
    said: list[dict[str, Any]] = []
    for message in body["messages"]:
        blocks: list[dict[str, Any]] = message["content"]
        said += [{"role": "tool"} for block in blocks if block["type"] == "tool_result"]
        text = "".join(block["text"] for block in blocks if block["type"] == "text")
        if text or message["role"] == "assistant":
            said.append({"role": message["role"], "content": text})
    reply = answer_by_directives({"messages": said})
    thinking: dict[str, Any] = body.get("thinking", {})
    reasoning = THOUGHT if thinking.get("type") in {"enabled", "adaptive"} else ""
    return Reply(reply.text, reply.calls, reasoning, finish=reply.finish)


def blocks_of(reply: Reply) -> list[dict[str, Any]]:
    """Return a reply's blocks: its thought, if that is all of them, or thought, text and calls."""
    blocks: list[dict[str, Any]] = []
    if reply.thought:
        blocks = orjson.loads(reply.thought)
        if any(block["type"] == "tool_use" for block in blocks):
            return blocks
    elif reply.reasoning:
        signature = sign(reply.reasoning)
        blocks = [{"type": "thinking", "thinking": reply.reasoning, "signature": signature}]
    if reply.text:
        blocks.append({"type": "text", "text": reply.text})
    for call in reply.calls:
        asked = {"id": call.id, "name": call.name, "input": json.loads(call.arguments)}
        blocks.append({"type": "tool_use", **asked})
    return blocks


def whole(reply: Reply, model: str, found: Usage | None = None) -> dict[str, Any]:
    """Return a reply as a `message` object."""
    usage = _usage(reply, found)
    return _message(model, content=blocks_of(reply), stop_reason=_reason(reply), usage=usage)


def events(reply: Reply, model: str, found: Usage | None = None) -> list[bytes]:
    """Return a reply as the events of a stream."""
    usage = _usage(reply, found)
    start = _message(model, content=[], stop_reason=None, usage={**usage, "output_tokens": 1})
    stream = [_event("message_start", message=start), _event("ping")]
    calls = iter(reply.calls)
    for index, block in enumerate(blocks_of(reply)):
        arguments = next(calls).arguments if block["type"] == "tool_use" else ""
        begun, deltas = _in_pieces(block, arguments)
        stream.append(_event("content_block_start", index=index, content_block=begun))
        stream += [_event("content_block_delta", index=index, delta=delta) for delta in deltas]
        stream.append(_event("content_block_stop", index=index))
    delta = {"stop_reason": _reason(reply), "stop_sequence": None}
    counted = {"output_tokens": usage["output_tokens"]}
    stream.append(_event("message_delta", delta=delta, usage=counted))
    return [*stream, _event("message_stop")]


def _in_pieces(
    block: dict[str, Any], arguments: str
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    match block["type"]:
        case "text":
            pieces = WORDS.findall(block["text"])
            return {**block, "text": ""}, [{"type": "text_delta", "text": one} for one in pieces]
        case "thinking":
            pieces = WORDS.findall(block["thinking"])
            deltas = [{"type": "thinking_delta", "thinking": one} for one in pieces]
            deltas.append({"type": "signature_delta", "signature": block["signature"]})
            return {**block, "thinking": "", "signature": ""}, deltas
        case "tool_use":
            cuts = range(0, len(arguments), 8) if arguments != "{}" else ()
            fragments = ["", *(arguments[cut : cut + 8] for cut in cuts)]
            deltas = [{"type": "input_json_delta", "partial_json": one} for one in fragments]
            return {**block, "input": {}}, deltas
        case _:
            return block, []


def _message(model: str, **fields: Any) -> dict[str, Any]:
    fixed = {"id": "msg_0", "type": "message", "role": "assistant", "model": model}
    return {**fixed, "stop_sequence": None, **fields}


def _event(kind: str, **fields: Any) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), orjson.dumps({"type": kind, **fields}))


def _reason(reply: Reply) -> str:
    return _STOP_REASONS.get(reply.finish, reply.finish)


def _usage(reply: Reply, found: Usage | None) -> dict[str, Any]:
    """Count as the API does: what went through the cache is not part of the input."""
    said = -(-len(orjson.dumps(blocks_of(reply))) // 4)
    usage = reply.usage if reply.usage.total else (found or Usage()) + Usage(output=said)
    return {
        "input_tokens": usage.input - usage.cached - usage.written,
        "cache_creation_input_tokens": usage.written,
        "cache_read_input_tokens": usage.cached,
        "output_tokens": usage.output,
        "service_tier": "standard",
    }


async def _serve(port: int, latency: float, log: Path | None) -> None:
    async with AnthropicServer(port=port, latency=latency, log=log) as server:
        print(json.dumps({"port": server.port, "pid": os.getpid()}), flush=True)
        await asyncio.Event().wait()


def main() -> None:
    """Serve until killed; print one line of JSON with the port once it listens."""
    parser = argparse.ArgumentParser(description=AnthropicServer.__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--latency-ms", type=float, default=0.0)
    parser.add_argument("--log", type=Path, help="append each request's body, a line each")
    options = parser.parse_args()
    asyncio.run(_serve(options.port, options.latency_ms / 1000, options.log))


if __name__ == "__main__":
    main()
