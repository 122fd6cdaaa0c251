"""A loopback double of vendors with wire formats of their own: hand-made, nothing in it recorded.

The shapes are those of the published references, as the vendors' own client libraries of 2026-11
read and write them: https://ai.google.dev/api/generate-content, https://docs.mistral.ai/api,
https://docs.cohere.com/v2/reference/chat and, for Amazon Bedrock,
https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_ConverseStream.html.
It answers like `tests.servers.openai_server`, and misbehaves in the same ways.
"""

import asyncio
import struct
import zlib
from collections import deque
from collections.abc import Iterator
from typing import Any, Self
from urllib.parse import unquote

import orjson
from aiohttp import web

from asterism.types.turns import Reply, Usage
from tests.servers.openai_server import WORDS, Fault, Raw, answer_by_directives, completion
from tests.servers.openai_server import events as openai_events

Table = dict[str, Any]


class Format:
    """How one vendor's requests and answers look."""

    path = ""
    stream_type = "text/event-stream"

    def is_streamed(self, path: str, body: Table) -> bool:
        return bool(body.get("stream"))

    def messages(self, body: Table) -> list[Table]:
        """Return what was said as chat-completions messages."""
        raise NotImplementedError

    def whole(self, reply: Reply, usage: Usage) -> Table:
        raise NotImplementedError

    def events(self, reply: Reply, usage: Usage) -> list[bytes]:
        raise NotImplementedError

    def error(self, status: int, message: str) -> Table:
        return {"message": message}


class Google(Format):
    def is_streamed(self, path: str, body: Table) -> bool:
        return "streamGenerateContent" in path

    def messages(self, body: Table) -> list[Table]:
        said: list[Table] = []
        for content in body["contents"]:
            for part in content["parts"]:
                if "functionResponse" in part:
                    said.append({"role": "tool", "content": part["functionResponse"]["response"]})
                elif "functionCall" in part or content["role"] == "model":
                    said.append({"role": "assistant", "content": part.get("text")})
                elif "text" in part:
                    said.append({"role": "user", "content": part["text"]})
        return said

    def _candidate(self, parts: list[Table], usage: Usage, finish: str | None) -> Table:
        candidate: Table = {"content": {"role": "model", "parts": parts}, "index": 0}
        if finish:
            candidate["finishReason"] = finish
        counts = {
            "promptTokenCount": usage.input,
            "candidatesTokenCount": usage.output,
            "totalTokenCount": usage.total,
        }
        if usage.cached:
            counts["cachedContentTokenCount"] = usage.cached
        return {"candidates": [candidate], "usageMetadata": counts, "modelVersion": "gemini-x"}

    def _calls(self, reply: Reply) -> list[Table]:
        calls: list[Table] = []
        for call in reply.calls:
            arguments = orjson.loads(call.arguments)
            part: Table = {
                "functionCall": {"id": call.id, "name": call.name, "args": arguments},
            }
            if reply.thought and not calls:
                part["thoughtSignature"] = reply.thought.decode()
            calls.append(part)
        return calls

    def whole(self, reply: Reply, usage: Usage) -> Table:
        parts: list[Table] = []
        if reply.reasoning:
            parts.append({"text": reply.reasoning, "thought": True})
        if reply.text:
            parts.append({"text": reply.text})
        return self._candidate(parts + self._calls(reply), usage, _google_finish(reply))

    def events(self, reply: Reply, usage: Usage) -> list[bytes]:
        parts: list[Table] = [
            {"text": piece, "thought": True} for piece in WORDS.findall(reply.reasoning)
        ]
        parts += [{"text": piece} for piece in WORDS.findall(reply.text)]
        parts += self._calls(reply)
        chunks = [self._candidate([part], usage, None) for part in parts[:-1]]
        chunks.append(self._candidate(parts[-1:], usage, _google_finish(reply)))
        return [b"data: " + orjson.dumps(chunk) + b"\r\n\r\n" for chunk in chunks]

    def error(self, status: int, message: str) -> Table:
        names = {400: "INVALID_ARGUMENT", 401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED"}
        names |= {404: "NOT_FOUND", 429: "RESOURCE_EXHAUSTED", 500: "INTERNAL", 503: "UNAVAILABLE"}
        return {"error": {"code": status, "message": message, "status": names.get(status, "X")}}


def _google_finish(reply: Reply) -> str:
    known = {"length": "MAX_TOKENS", "content_filter": "SAFETY", "error": "MALFORMED_FUNCTION_CALL"}
    return known.get(reply.finish, "STOP")


class Mistral(Format):
    def messages(self, body: Table) -> list[Table]:
        return body["messages"]

    def whole(self, reply: Reply, usage: Usage) -> Table:
        return completion(_with(reply, usage), "mistral-x", 0)

    def events(self, reply: Reply, usage: Usage) -> list[bytes]:
        chunks = openai_events(_with(reply, usage), "mistral-x", 0, counted=False)
        # Mistral counts in the last chunk, and gives each call in one piece.
        last = orjson.loads(chunks[-2][6:])
        last["usage"] = completion(_with(reply, usage), "mistral-x", 0)["usage"]
        chunks[-2] = b"data: " + orjson.dumps(last) + b"\n\n"
        if reply.calls:
            calls = orjson.loads(reply.wire())["tool_calls"]
            delta = {"content": "", "tool_calls": calls}
            choice = {"index": 0, "delta": delta, "finish_reason": "tool_calls"}
            last["choices"] = [choice]
            chunks[1:-1] = [b"data: " + orjson.dumps(last) + b"\n\n"]
        return chunks

    def error(self, status: int, message: str) -> Table:
        code = "3051" if "too large for model" in message else "1000"
        return {"object": "error", "message": message, "type": "invalid_request", "code": code}


class Cohere(Format):
    def messages(self, body: Table) -> list[Table]:
        return body["messages"]

    def _usage(self, usage: Usage) -> Table:
        counts = {"input_tokens": usage.input, "output_tokens": usage.output}
        return {"billed_units": counts, "tokens": counts}

    def whole(self, reply: Reply, usage: Usage) -> Table:
        message: Table = {"role": "assistant", "content": []}
        if reply.text:
            message["content"] = [{"type": "text", "text": reply.text}]
        if reply.calls:
            message["tool_calls"] = orjson.loads(reply.wire())["tool_calls"]
        return {
            "id": "c14c80c3",
            "finish_reason": "TOOL_CALL" if reply.calls else "COMPLETE",
            "message": message,
            "usage": self._usage(usage),
        }

    def events(self, reply: Reply, usage: Usage) -> list[bytes]:
        def event(kind: str, index: int | None = None, **delta: Any) -> bytes:
            table: Table = {"type": kind}
            if index is not None:
                table["index"] = index
            if delta:
                table["delta"] = delta
            return b"event: %b\ndata: %b\n\n" % (kind.encode(), orjson.dumps(table))

        start: Table = {"role": "assistant", "content": [], "tool_plan": "", "tool_calls": []}
        sent = [event("message-start", message=start)]
        if reply.text:
            opened = {"content": {"type": "text", "text": ""}}
            sent.append(event("content-start", 0, message=opened))
            sent += [
                event("content-delta", 0, message={"content": {"text": piece}})
                for piece in WORDS.findall(reply.text)
            ]
            sent.append(event("content-end", 0))
        for index, call in enumerate(reply.calls):
            function = {"name": call.name, "arguments": ""}
            first = {"id": call.id, "type": "function", "function": function}
            sent.append(event("tool-call-start", index, message={"tool_calls": first}))
            piece = {"function": {"arguments": call.arguments}}
            sent.append(event("tool-call-delta", index, message={"tool_calls": piece}))
            sent.append(event("tool-call-end", index))
        finish = "TOOL_CALL" if reply.calls else "COMPLETE"
        return [*sent, event("message-end", finish_reason=finish, usage=self._usage(usage))]


class Bedrock(Format):
    stream_type = "application/vnd.amazon.eventstream"

    def is_streamed(self, path: str, body: Table) -> bool:
        return path.endswith("/converse-stream")

    def messages(self, body: Table) -> list[Table]:
        said: list[Table] = []
        for message in body["messages"]:
            for block in message["content"]:
                if "toolResult" in block:
                    said.append({"role": "tool", "content": ""})
                elif "text" in block:
                    said.append({"role": message["role"], "content": block["text"]})
        return said

    def _usage(self, usage: Usage) -> Table:
        return {
            "inputTokens": usage.input,
            "outputTokens": usage.output,
            "totalTokens": usage.total,
            "cacheReadInputTokens": usage.cached,
            "cacheWriteInputTokens": usage.written,
        }

    def whole(self, reply: Reply, usage: Usage) -> Table:
        content: list[Table] = [{"text": reply.text}] if reply.text else []
        for call in reply.calls:
            arguments = orjson.loads(call.arguments)
            content.append(
                {"toolUse": {"toolUseId": call.id, "name": call.name, "input": arguments}}
            )
        return {
            "output": {"message": {"role": "assistant", "content": content}},
            "stopReason": "tool_use" if reply.calls else "end_turn",
            "usage": self._usage(usage),
            "metrics": {"latencyMs": 1},
        }

    def events(self, reply: Reply, usage: Usage) -> list[bytes]:
        sent = [frame("messageStart", {"role": "assistant"})]
        place = 0
        for piece in WORDS.findall(reply.text):
            delta = {"contentBlockIndex": 0, "delta": {"text": piece}}
            sent.append(frame("contentBlockDelta", delta))
        if reply.text:
            sent.append(frame("contentBlockStop", {"contentBlockIndex": 0}))
            place = 1
        for index, call in enumerate(reply.calls, place):
            start = {"toolUse": {"toolUseId": call.id, "name": call.name}}
            sent.append(frame("contentBlockStart", {"contentBlockIndex": index, "start": start}))
            delta = {"toolUse": {"input": call.arguments}}
            sent.append(frame("contentBlockDelta", {"contentBlockIndex": index, "delta": delta}))
            sent.append(frame("contentBlockStop", {"contentBlockIndex": index}))
        finish = "tool_use" if reply.calls else "end_turn"
        sent.append(frame("messageStop", {"stopReason": finish}))
        counted = {"usage": self._usage(usage), "metrics": {"latencyMs": 1}}
        return [*sent, frame("metadata", counted)]


def frame(kind: str, payload: Table, message: str = "event") -> bytes:
    """Return one message of Amazon's event stream encoding."""
    names = {"event": ":event-type", "exception": ":exception-type"}
    headers = b""
    for name, value in (
        (names[message], kind),
        (":content-type", "application/json"),
        (":message-type", message),
    ):
        headers += bytes([len(name)]) + name.encode() + b"\x07"
        headers += struct.pack("!H", len(value)) + value.encode()
    body = orjson.dumps(payload)
    prelude = struct.pack("!II", len(headers) + len(body) + 16, len(headers))
    prelude += struct.pack("!I", zlib.crc32(prelude))
    whole = prelude + headers + body
    return whole + struct.pack("!I", zlib.crc32(whole))


def _with(reply: Reply, usage: Usage) -> Reply:
    return Reply(reply.text, reply.calls, reply.reasoning, usage, reply.finish)


FORMATS: dict[str, Format] = {
    "google": Google(),
    "mistral": Mistral(),
    "cohere": Cohere(),
    "bedrock": Bedrock(),
}


class VendorServer:
    """The server of one vendor; use it as an async context manager."""

    def __init__(self, api: str) -> None:
        self.format = FORMATS[api]
        self.bodies: list[Table] = []
        self.paths: list[str] = []
        self.headers: list[dict[str, str]] = []
        self._next: deque[Fault | Raw | Reply] = deque()
        self._runner: web.AppRunner | None = None

    @property
    def base_url(self) -> str:
        assert self._runner is not None
        return f"http://127.0.0.1:{self._runner.addresses[0][1]}"

    def next(self, *answers: Fault | Raw | Reply) -> None:
        """Meet the next requests with these, in order."""
        self._next.extend(answers)

    def refuse(self, status: int, message: str, **headers: str) -> None:
        """Meet the next request with an error as this vendor words it."""
        body = orjson.dumps(self.format.error(status, message))
        self.next(Raw(body, status=status, headers=headers))

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=256 << 20)
        app.router.add_post("/{path:.*}", self._answer)
        self._runner = web.AppRunner(
            app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1
        )
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        assert self._runner is not None
        await self._runner.cleanup()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        raw = await request.read()
        body: Table = orjson.loads(raw)
        path = unquote(request.raw_path)
        self.bodies.append(body)
        self.paths.append(path)
        self.headers.append(dict(request.headers))
        answer = self._next.popleft() if self._next else None
        if answer is Fault.HANG:
            await asyncio.Event().wait()
        if answer is Fault.REFUSE:
            return _hang_up(request)
        if isinstance(answer, Raw):
            return await _send(request, answer)
        if isinstance(answer, Reply):
            reply, fault = answer, None
        else:
            reply = answer_by_directives({"messages": self.format.messages(body)})
            fault = answer
        usage = reply.usage if reply.usage.total else Usage.estimate(len(raw), len(reply.wire()))
        if self.format.is_streamed(request.path, body):
            pieces, kind = self.format.events(reply, usage), self.format.stream_type
        else:
            pieces, kind = [orjson.dumps(self.format.whole(reply, usage))], "application/json"
        return await _stream(request, pieces, kind, fault)


async def _send(request: web.Request, raw: Raw) -> web.Response:
    headers = {**raw.headers, "Content-Type": raw.content_type}
    return web.Response(body=raw.body, status=raw.status, headers=headers)


async def _stream(
    request: web.Request, pieces: list[bytes], kind: str, fault: Fault | None
) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": kind})
    if fault in (Fault.CUT, Fault.STALL):
        pieces = list(_half(pieces))
    await response.prepare(request)
    for piece in pieces:
        await response.write(piece)
        await asyncio.sleep(0)
    if fault is Fault.STALL:
        await asyncio.Event().wait()
    if fault is Fault.CUT:
        return _hang_up(request, response)
    await response.write_eof()
    return response


def _half(pieces: list[bytes]) -> Iterator[bytes]:
    yield from pieces[: len(pieces) // 2]
    yield pieces[len(pieces) // 2][: len(pieces[len(pieces) // 2]) // 2]


def _hang_up(
    request: web.Request, response: web.StreamResponse | None = None
) -> web.StreamResponse:
    if request.transport is not None:
        request.transport.close()
    return response or web.StreamResponse()
