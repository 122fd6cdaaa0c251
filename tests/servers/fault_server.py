"""A loopback server that speaks both wire formats and fails in every way that servers do.

`/v1/chat/completions` is OpenAI's format, `/v1/messages` Anthropic's. Each request meets the next
fault of the plan, or the one that stays; without any it gets a sound answer.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from email.utils import formatdate
from enum import Enum
from typing import Any, Self

import orjson
from aiohttp import web

from asterism.types.turns import Reply
from tests.servers.openai_server import WORDS, completion, events

OPENAI, ANTHROPIC = "openai", "anthropic"
FORMATS = (OPENAI, ANTHROPIC)
_JSON, _STREAM = "application/json", "text/event-stream"


class Break(Enum):
    """A way for an answer not to come to its end."""

    HANG = "take the request and send nothing"
    HANG_MIDWAY = "stop in the middle of the answer and keep the connection"
    DROP = "close the connection without a word"
    DROP_AFTER_STATUS = "close the connection after the headers"
    DROP_MIDWAY = "close the connection in the middle of the answer"
    RESET_MIDWAY = "reset the connection in the middle of the answer"
    NO_END = "send all of the answer but the mark of its end"
    DRIP = "send a byte now and then, for ever"


@dataclass(frozen=True, slots=True)
class Status:
    """A status that is no success, with an error as the vendors' references describe it."""

    code: int
    kind: str
    """Anthropic's `type` of the error."""
    words: str
    openai_code: str | None = None
    retry_after: str | Callable[[], str] = ""

    def body(self, wire: str) -> bytes:
        """Return the error in a wire format."""
        if wire == ANTHROPIC:
            error = {"type": self.kind, "message": self.words}
            return orjson.dumps({"type": "error", "error": error, "request_id": "req_0"})
        error = {"message": self.words, "type": self.kind, "param": None, "code": self.openai_code}
        return orjson.dumps({"error": error})


@dataclass(frozen=True, slots=True)
class Garbage:
    """A success by its status, with a body that is none."""

    body: bytes
    content_type: str | None = None
    """None stands for the one that was asked for."""


class Empty(Enum):
    """A sound answer that says nothing."""

    EMPTY = "an answer without a word"
    FILTERED = "an answer withheld by the content filter"
    ERROR = "an error in the stream or in place of the answer, under a status of success"


class Label(Enum):
    """A sound answer under a wrong content type."""

    PLAIN = "as plain text"
    SWAPPED = "a stream as JSON, JSON as a stream"


Fault = Break | Status | Garbage | Empty | Label


def in_a_second() -> str:
    """Return a date for Retry-After, which has no smaller unit than seconds."""
    return formatdate(time.time() + 1, usegmt=True)


FAULTS: dict[str, Fault] = {
    "429": Status(429, "rate_limit_error", "Slow down."),
    "429-soon": Status(429, "rate_limit_error", "Slow down.", retry_after="0.05"),
    "429-late": Status(429, "rate_limit_error", "Come back later.", retry_after="3600"),
    "429-date": Status(429, "rate_limit_error", "Slow down.", retry_after=in_a_second),
    "429-quota": Status(
        429, "billing_error", "You exceeded your quota.", openai_code="insufficient_quota"
    ),
    "500": Status(500, "api_error", "Internal server error."),
    "503-soon": Status(503, "api_error", "Restarting.", retry_after="0.05"),
    "529": Status(529, "overloaded_error", "Overloaded."),
    "401": Status(401, "authentication_error", "Invalid key."),
    "403": Status(403, "permission_error", "Not allowed."),
    "404": Status(404, "not_found_error", "No such model."),
    "400": Status(400, "invalid_request_error", "Unknown field."),
    "400-too-long": Status(
        400,
        "invalid_request_error",
        "prompt is too long: 201000 tokens > 200000 maximum",
        openai_code="context_length_exceeded",
    ),
    "400-filter": Status(
        400,
        "invalid_request_error",
        "Output blocked by content filtering policy",
        openai_code="content_filter",
    ),
    "hang": Break.HANG,
    "hang-midway": Break.HANG_MIDWAY,
    "drop": Break.DROP,
    "drop-after-status": Break.DROP_AFTER_STATUS,
    "drop-midway": Break.DROP_MIDWAY,
    "reset-midway": Break.RESET_MIDWAY,
    "drop-at-the-end": Break.NO_END,
    "drip": Break.DRIP,
    "html": Garbage(b"<!doctype html><title>Welcome</title>", "text/html; charset=utf-8"),
    "broken-json": Garbage(b'{"choices": [{"mess', _JSON),
    "broken-events": Garbage(b'data: {"choices": [{"mess\n\nevent: {\n\ndata: }\n\n', _STREAM),
    "other-shape": Garbage(b'{"object": "list", "data": [1, 2, 3]}', _JSON),
    "wrong-types": Garbage(
        b'{"choices": "none", "content": 7, "usage": [], "stop_reason": {}}', _JSON
    ),
    "binary": Garbage(bytes(range(256)) * 4, "application/octet-stream"),
    "no-body": Garbage(b""),
    "label-plain": Label.PLAIN,
    "label-swapped": Label.SWAPPED,
    "empty": Empty.EMPTY,
    "filtered": Empty.FILTERED,
    "error-in-success": Empty.ERROR,
}
"""Every fault by a name, for tests that go through all of them."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A request as the server saw it."""

    wire: str
    body: dict[str, Any]
    key: str
    at: float
    """On the clock of `time.monotonic`."""

    @property
    def streamed(self) -> bool:
        """Whether the answer was to be streamed."""
        return self.body.get("stream") is True


@dataclass(slots=True)
class FaultServer:
    """The server; use it as an async context manager."""

    text: str = "a sound answer"
    stays: Fault | None = None
    """Meets every request for which nothing else is planned."""
    refuses: set[str] = field(default_factory=set[str])
    """Keys that are told to be wrong, whatever is planned."""
    drip_every: float = 0.02
    requests: list[Seen] = field(default_factory=list[Seen])
    port: int = 0
    _plan: deque[Fault | None] = field(default_factory=deque["Fault | None"])
    _runner: web.AppRunner | None = None

    @property
    def base_url(self) -> str:
        """What a client is configured with."""
        return f"http://127.0.0.1:{self.port}/v1"

    def next(self, *faults: Fault | None) -> None:
        """Meet the next requests with these, in order; None stands for a sound answer."""
        self._plan.extend(faults)

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=64 << 20)
        app.router.add_post("/v1/chat/completions", self._answerer(OPENAI))
        app.router.add_post("/v1/messages", self._answerer(ANTHROPIC))
        self._runner = web.AppRunner(
            app, access_log=None, handler_cancellation=True, shutdown_timeout=0.05
        )
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self.port).start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        assert self._runner is not None
        await self._runner.cleanup()

    def _answerer(self, wire: str) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        async def answer(request: web.Request) -> web.StreamResponse:
            body = orjson.loads(await request.read())
            key = request.headers.get("x-api-key") or request.headers.get("Authorization", "")
            seen = Seen(wire, body, key.removeprefix("Bearer "), time.monotonic())
            self.requests.append(seen)
            fault = self._plan.popleft() if self._plan else self.stays
            if seen.key in self.refuses:
                fault = FAULTS["401"]
            return await self._meet(request, seen, fault)

        return answer

    async def _meet(
        self, request: web.Request, seen: Seen, fault: Fault | None
    ) -> web.StreamResponse:
        match fault:
            case None:
                return await _send(request, 200, _usual(seen), [_whole(seen, self.text)])
            case Status():
                return await _send_status(request, seen, fault)
            case Garbage():
                kind = fault.content_type or _usual(seen)
                return await _send(request, 200, kind, [fault.body])
            case Label():
                kind = "text/plain"
                if fault is Label.SWAPPED:
                    kind = _JSON if seen.streamed else _STREAM
                return await _send(request, 200, kind, [_whole(seen, self.text)])
            case Empty.ERROR:
                return await _send(request, 200, _usual(seen), [_error(seen)])
            case Empty():
                body = _whole(seen, "", filtered=fault is Empty.FILTERED)
                return await _send(request, 200, _usual(seen), [body])
            case Break():
                return await self._break(request, seen, fault)

    async def _break(self, request: web.Request, seen: Seen, how: Break) -> web.StreamResponse:
        if how is Break.HANG:
            await asyncio.Event().wait()
        if how is Break.DROP:
            return _hang_up(request)
        whole = _whole(seen, self.text, ended=how is not Break.NO_END)
        if how is Break.NO_END:
            # Of a body that is no stream, the last bytes are missing.
            part = whole if seen.streamed else whole[:-2]
        else:
            part = b"" if how is Break.DROP_AFTER_STATUS else whole[: len(whole) * 2 // 3]
        response = web.StreamResponse(headers={"Content-Type": _usual(seen)})
        if not seen.streamed:
            response.content_length = 1 << 30 if how is Break.DRIP else len(whole)
        await response.prepare(request)
        if how is Break.DRIP:
            await self._drip(response, whole)
        await response.write(part)
        if how is Break.HANG_MIDWAY:
            await asyncio.Event().wait()
        if how is Break.RESET_MIDWAY:
            assert request.transport is not None
            request.transport.abort()
        return _hang_up(request, response)

    async def _drip(self, response: web.StreamResponse, whole: bytes) -> None:
        async for byte in _slowly(whole, self.drip_every):
            await response.write(byte)


async def _slowly(whole: bytes, pause: float) -> AsyncIterator[bytes]:
    """Yield the beginning of an answer byte by byte, and then space for ever."""
    for place in range(40):
        yield whole[place : place + 1]
        await asyncio.sleep(pause)
    while True:
        yield b" "
        await asyncio.sleep(pause)


async def _send_status(request: web.Request, seen: Seen, fault: Status) -> web.StreamResponse:
    wish = fault.retry_after if isinstance(fault.retry_after, str) else fault.retry_after()
    headers = {"Retry-After": wish} if wish else {}
    return await _send(request, fault.code, _JSON, [fault.body(seen.wire)], headers)


async def _send(
    request: web.Request,
    status: int,
    content_type: str,
    pieces: list[bytes],
    headers: dict[str, str] | None = None,
) -> web.StreamResponse:
    response = web.StreamResponse(status=status, headers=headers)
    response.headers["Content-Type"] = content_type
    await response.prepare(request)
    for piece in pieces:
        await response.write(piece)
    await response.write_eof()
    return response


def _hang_up(
    request: web.Request, response: web.StreamResponse | None = None
) -> web.StreamResponse:
    if request.transport is not None:
        request.transport.close()
    return response or web.StreamResponse()


def _usual(seen: Seen) -> str:
    return _STREAM if seen.streamed else _JSON


def _whole(seen: Seen, text: str, *, filtered: bool = False, ended: bool = True) -> bytes:
    """Return an answer in the wire format that was asked for."""
    model, sent = str(seen.body.get("model")), len(orjson.dumps(seen.body))
    if seen.wire == ANTHROPIC:
        reason = "refusal" if filtered else "end_turn"
        if not seen.streamed:
            return orjson.dumps(message(text, model, sent, reason))
        pieces = message_events(text, model, sent, reason)
    else:
        reply = Reply(text, finish="content_filter" if filtered else "stop")
        if not seen.streamed:
            return orjson.dumps(completion(reply, model, sent))
        pieces = events(reply, model, sent)
    return b"".join(pieces if ended else pieces[:-1])


def message(text: str, model: str, sent: int, reason: str = "end_turn") -> dict[str, Any]:
    """Return an answer as Anthropic's `message` object."""
    return {
        "id": "msg_0",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [{"type": "text", "text": text}] if text else [],
        "stop_reason": reason,
        "stop_sequence": None,
        "usage": {"input_tokens": sent // 4 + 1, "output_tokens": len(text) // 4 + 1},
    }


def message_events(text: str, model: str, sent: int, reason: str = "end_turn") -> list[bytes]:
    """Return an answer as Anthropic's stream of events."""
    begun = message("", model, sent) | {"stop_reason": None}
    found: list[dict[str, Any]] = [{"type": "message_start", "message": begun}]
    if text:
        block = {"type": "text", "text": ""}
        found.append({"type": "content_block_start", "index": 0, "content_block": block})
        for piece in WORDS.findall(text):
            delta = {"type": "text_delta", "text": piece}
            found.append({"type": "content_block_delta", "index": 0, "delta": delta})
        found.append({"type": "content_block_stop", "index": 0})
    end = {"stop_reason": reason, "stop_sequence": None}
    usage = {"output_tokens": len(text) // 4 + 1}
    found.append({"type": "message_delta", "delta": end, "usage": usage})
    found.append({"type": "message_stop"})
    return [b"event: %b\ndata: %b\n\n" % (one["type"].encode(), orjson.dumps(one)) for one in found]


def _error(seen: Seen) -> bytes:
    """Return an error that comes under a status of success."""
    body = Status(500, "overloaded_error", "Overloaded.").body(seen.wire)
    if not seen.streamed:
        return body
    return b"event: error\ndata: " + body + b"\n\n"


def closed_port() -> int:
    """Return a port of loopback at which nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])
