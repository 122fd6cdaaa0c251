"""A server of files on loopback that knows ranges, and misbehaves when told to."""

from __future__ import annotations

import threading
from collections import defaultdict, deque
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple, Self

PATIENCE = 120.0


@dataclass(frozen=True)
class Cut:
    """End the connection after some bytes of the body."""

    after: int


@dataclass(frozen=True)
class Hold:
    """Send some bytes of the body, and then nothing until the server is closed."""

    after: int


@dataclass(frozen=True)
class Status:
    """Answer with a status and no file."""

    code: int


@dataclass(frozen=True)
class Instead:
    """Send other bytes."""

    body: bytes


class Request(NamedTuple):
    """What was asked for."""

    path: str
    range: str | None


class FileServer:
    """Serves `files` by path; each request takes the next fault of its path, if there is one."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.requests: list[Request] = []
        self.faults: dict[str, deque[Cut | Hold | Status | Instead]] = defaultdict(deque)
        self.always: dict[str, Status | Instead] = {}
        self.ranges = True
        self.linked: dict[str, dict[str, str]] = {}
        """Headers of the answer to HEAD, by path, as a hub tells the digest of a large file."""
        self.heads: list[str] = []
        """The paths of which only the head was asked for."""
        self.held = threading.Event()
        self._closed = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._make())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))

    @property
    def url(self) -> str:
        """Where it is reached."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def asked(self, ending: str) -> list[str | None]:
        """Return the ranges that were asked for of paths that end so."""
        return [request.range for request in self.requests if request.path.endswith(ending)]

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()
        self._server.shutdown()
        self._thread.join(PATIENCE)
        self._server.server_close()

    def _make(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Answer(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server._answer(self)

            def do_HEAD(self) -> None:
                server._answer_head(self)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - inherited
                pass

        return Answer

    def _answer_head(self, to: BaseHTTPRequestHandler) -> None:
        self.heads.append(to.path)
        linked = self.linked.get(to.path)
        if linked is not None:  # a hub sends large files from elsewhere
            to.send_response(302)
            to.send_header("Location", "http://127.0.0.1:9/elsewhere")
            for name, value in linked.items():
                to.send_header(name, value)
        else:
            to.send_response(200 if to.path in self.files else 404)
        to.send_header("Content-Length", str(len(self.files.get(to.path, b""))))
        to.end_headers()

    def _answer(self, to: BaseHTTPRequestHandler) -> None:
        wanted = to.headers.get("Range")
        self.requests.append(Request(to.path, wanted))
        faults = self.faults[to.path]
        fault = faults.popleft() if faults else self.always.get(to.path)
        body = fault.body if isinstance(fault, Instead) else self.files.get(to.path)
        if body is None or isinstance(fault, Status):
            to.send_response(fault.code if isinstance(fault, Status) else 404)
            to.send_header("Content-Length", "0")
            to.end_headers()
            return
        start = 0
        if wanted and self.ranges:
            start = int(wanted.removeprefix("bytes=").removesuffix("-"))
            if start >= len(body):
                to.send_response(416)
                to.send_header("Content-Length", "0")
                to.end_headers()
                return
            to.send_response(206)
            to.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
        else:
            to.send_response(200)
        kind = "text/html" if to.path.endswith("/") else "application/octet-stream"
        to.send_header("Content-Type", kind)
        to.send_header("Content-Length", str(len(body) - start))
        to.end_headers()
        rest = body[start:]
        if isinstance(fault, Cut | Hold):
            rest = rest[: fault.after]
        to.wfile.write(rest)
        to.wfile.flush()
        if isinstance(fault, Hold):
            self.held.set()
            self._closed.wait(PATIENCE)
