"""A model on loopback that answers at once, as a process of its own: `python -m bench.loopback`.

It speaks as much of OpenAI's chat completions as a turn needs and costs little, so that what is
measured is the client. `/wait/50/v1` as the base address makes it think for 50 ms;
`/tokens/400/v1` makes it stream 400 numbered tokens, 20 each 20 ms. A directive
`[[call:NAME {json}]]` in the last message of the user becomes a call, once. Any GET returns what it
has seen. It prints its port when it listens.
"""

from __future__ import annotations

import asyncio
import re
import socket
import sys
from typing import Any, cast

import orjson

from bench.harness import ANSWER

_DIRECTIVE = re.compile(r"\[\[call:(\w+) (\{.*?\})\]\]")
_LENGTH = re.compile(rb"\r\ncontent-length:\s*(\d+)", re.IGNORECASE)
_WAIT = re.compile(rb"/wait/(\d+)/")
_TOKENS = re.compile(rb"/tokens/(\d+)/")
_AT_ONCE, _EVERY = 20, 0.02

_seen: dict[str, int] = {"requests": 0, "messages": 0, "bytes": 0}
"""How many requests there were, and how many messages and bytes the last one held."""


def _reply(request: dict[str, Any]) -> dict[str, Any]:
    """Return the message that answers a request: a call that was asked for, or the answer."""
    for message in reversed(request["messages"]):
        if message["role"] == "tool":
            break
        if message["role"] == "user":
            asked = _DIRECTIVE.search(message["content"])
            if asked and request.get("tools"):
                function = {"name": asked[1], "arguments": asked[2]}
                call = {"id": f"call_{_seen['requests']}", "type": "function", "function": function}
                return {"role": "assistant", "content": None, "tool_calls": [call]}
            break
    return {"role": "assistant", "content": ANSWER}


def _completion(body: bytes) -> bytes:
    request: dict[str, Any] = orjson.loads(body)
    _seen["requests"] += 1
    _seen["messages"] = len(request["messages"])
    _seen["bytes"] = len(body)
    message = _reply(request)
    choice = {
        "index": 0,
        "message": message,
        "finish_reason": "tool_calls" if "tool_calls" in message else "stop",
    }
    usage = {"prompt_tokens": len(body) // 4, "completion_tokens": 48}
    return orjson.dumps(
        {
            "id": f"chatcmpl-{_seen['requests']}",
            "object": "chat.completion",
            "created": 1_767_225_600,
            "model": request["model"],
            "choices": [choice],
            "usage": {**usage, "total_tokens": sum(usage.values())},
        }
    )


_STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
)
_LAST = (
    b'data: {"id":"s","object":"chat.completion.chunk","created":1767225600,"model":"m",'
    b'"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
)


def _token(number: int) -> bytes:
    return (
        b'data: {"id":"s","object":"chat.completion.chunk","created":1767225600,"model":"m",'
        b'"choices":[{"index":0,"delta":{"role":"assistant","content":"t%d "},'
        b'"finish_reason":null}]}\n\n' % number
    )


class _Connection(asyncio.Protocol):
    """One client, which sends its next request when it has the answer to the last."""

    def __init__(self) -> None:
        self._received = bytearray()
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        connection: socket.socket = transport.get_extra_info("socket")
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def data_received(self, data: bytes) -> None:
        received = self._received
        received += data
        end = received.find(b"\r\n\r\n") + 4
        if end < 4:
            return
        head = bytes(received[:end])
        announced = _LENGTH.search(head)
        if announced is None:
            received.clear()
            self._send(orjson.dumps(_seen))
        elif len(received) >= end + int(announced[1]):
            answer = _completion(bytes(received[end:]))
            received.clear()
            wait, tokens = _WAIT.search(head), _TOKENS.search(head)
            if tokens:
                self._transport.write(_STREAM_HEAD)
                self._stream(0, int(tokens[1]))
            elif wait:
                asyncio.get_running_loop().call_later(int(wait[1]) / 1000, self._send, answer)
            else:
                self._send(answer)

    def _stream(self, first: int, count: int) -> None:
        """Send the next tokens of an answer, and later the others."""
        until = min(first + _AT_ONCE, count)
        events = [_token(number) for number in range(first, until)]
        if until == count:
            events.append(_LAST)
        self._chunk(b"".join(events))
        if until < count:
            asyncio.get_running_loop().call_later(_EVERY, self._stream, until, count)
        else:
            self._chunk(b"")

    def _chunk(self, data: bytes) -> None:
        self._transport.write(b"%x\r\n%b\r\n" % (len(data), data))

    def _send(self, body: bytes) -> None:
        head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
        self._transport.write(head % len(body) + body)


async def _serve() -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(_Connection, "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    # Whoever started this ends it by closing its standard input, or by going away.
    await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(_serve())
