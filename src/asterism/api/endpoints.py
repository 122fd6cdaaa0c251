"""What an endpoint of the REST API is: a verb of the home, reached by a method and a path.

An endpoint names the verb that it calls, and whoever may use that verb may use the endpoint. What
it takes is a pydantic model, what it answers a record, so that the OpenAPI document is made of the
same declarations that requests are checked by.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, TypeVar, cast
from urllib.parse import unquote

import orjson
from pydantic import BaseModel, ConfigDict, ValidationError
from starlette.responses import Response, StreamingResponse

from asterism.errors import (
    AsterismError,
    BackupError,
    BadRequest,
    BudgetReached,
    Changed,
    ConfigError,
    Conflict,
    InboxFull,
    InvalidInput,
    NotAllowed,
    NotAuthenticated,
    NotFound,
    OtherVersion,
    RequestTooLarge,
    StoreUnavailable,
    TooManyAttempts,
)
from asterism.records import dataclass
from asterism.turns.turn import id_at
from asterism.types.agents import now_ms
from asterism.views import problem, problem_of, view

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import Message, Receive, Scope, Send

    from asterism.app.home import Home

OPEN = "open"
"""In place of a verb: whoever has no token may use it, too."""
MAX_BODY = 4 << 20
"""Bytes of a request that is not an upload."""
STILL_VALID = "is_still_valid"
"""Where the state of a request keeps a function that tells whether its sender may still ask."""
CHECK_EVERY = 2.0
"""Seconds after which a stream is ended whose receiver may not have it any more."""
MAX_OPEN_BODY = 16 << 10
"""Bytes of a request to an endpoint that needs no token."""
MAX_DEPTH = 100
"""How deep values of a body may lie within others."""
MAX_VALUES = 20_000
"""How many values a body has, about, where nothing else is said: a fifth of a second to check."""
MANY_VALUES = 50_000
"""How many the body of an import has, or a conversation that a client sends whole."""
JSON = "application/json"
PROBLEM = "application/problem+json"
EVENTS = "text/event-stream"

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")


class Body(BaseModel):
    """What an endpoint takes: nothing else than its fields, so that a typing error is noticed."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    def values(self, *without: str) -> dict[str, Any]:
        """Return its fields as a verb takes them that names its parameters the same.

        Args:
            without: Fields that the verb takes in another way.
        """
        return {name: value for name, value in self if name not in without}


class NoQuery(Body):
    """An endpoint without parameters."""


@dataclass(frozen=True, slots=True)
class ApiCall:
    """One request, read and checked."""

    home: Home
    """The home as whoever asks may use it."""
    request: Request
    path: Mapping[str, str]
    query: Any
    body: Any

    def header(self, name: str) -> str | None:
        """Return a header of the request."""
        return self.request.headers.get(name)


@dataclass(frozen=True, slots=True)
class ApiEndpoint:
    """A method and a path, and what they do."""

    method: str
    path: str
    verb: str
    """The verb of the home whose permission it takes, such as `agents.list`; `OPEN` for none."""
    run: Callable[[ApiCall], Awaitable[Any]]
    summary: str
    tag: str
    query: type[BaseModel]
    body: type[BaseModel] | None
    answer: Any
    """The type or shape of what it answers; None for nothing."""
    status: int
    edits: bool
    """Whether it answers with an ETag."""
    conditional: bool
    """Whether it takes If-Match, and changes nothing if it was made for another state."""
    media: str
    upload: bool
    keyed: bool
    """Whether it takes an Idempotency-Key: the same request again is not done again."""
    repeatable: bool
    """Whether what it does is recognised by the key, so that it can be run again."""
    values: int
    """How many values its body has at most."""


DECLARED: list[ApiEndpoint] = []
"""What `endpoint` was told so far; all of them, in order, are `asterism.api.routes.ENDPOINTS`."""


def endpoint(
    method: str,
    path: str,
    verb: str,
    *,
    answer: Any = None,
    query: type[BaseModel] = NoQuery,
    body: type[BaseModel] | None = None,
    status: int | None = None,
    edits: bool = False,
    conditional: bool = False,
    media: str = JSON,
    upload: bool = False,
    keyed: bool | None = None,
    repeatable: bool = False,
    values: int = MAX_VALUES,
) -> Callable[[F], F]:
    """Declare an endpoint; its first line of documentation is its summary.

    Every POST takes an Idempotency-Key unless it says otherwise with `keyed`.
    """

    def declare(run: F) -> F:
        summary = (run.__doc__ or "").strip().partition("\n")[0]
        tag = path.strip("/").split("/")[0].partition("{")[0] or "home"
        code = status or (200 if answer is not None or media != JSON else 204)
        DECLARED.append(
            ApiEndpoint(
                *(method, path, verb, run, summary, tag, query, body, answer),
                *(code, edits, conditional, media, upload),
                keyed if keyed is not None else method == "POST" and not upload,
                repeatable,
                values,
            )
        )
        return run

    return declare


# -- requests --------------------------------------------------------------------------------------


async def read_body(request: Request, most: int = MAX_BODY) -> bytes:
    """Return the body of a request; raise `RequestTooLarge` as soon as it is."""
    check_length(request, most)
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > most:
            raise _too_large(most)
        parts.append(part)
    return b"".join(parts)


def check_length(request: Request, most: int) -> None:
    """Raise `RequestTooLarge` if a request says that it is, before any of it is read."""
    told = request.headers.get("content-length", "")
    if told.isdigit() and int(told) > most:
        raise _too_large(most)


def bounded(request: Request, most: int) -> Request:
    """Return a request that raises `RequestTooLarge` once more bytes of its body were read."""
    check_length(request, most)
    size = 0

    async def receive() -> Message:
        nonlocal size
        message = await request.receive()
        size += len(message.get("body", b""))
        if size > most:
            raise _too_large(most)
        return message

    return type(request)(request.scope, receive)


def _too_large(most: int) -> RequestTooLarge:
    return RequestTooLarge(
        f"The request has more than {most:,} bytes. Send less at a time. Nothing was changed."
    )


def check_values(body: bytes, most: int) -> None:
    """Raise `BadRequest` where a body of JSON has too many values: each of them takes time."""
    if _values_in(body) > most and _values_in(_TEXT.sub(b"", body)) > most:
        raise BadRequest(
            f"The body has more than {most:,} values. Send it in several requests. Nothing was "
            "changed."
        )


def _values_in(body: bytes) -> int:
    return sum(map(body.count, (b",", b"[", b"{")))


_TEXT = re.compile(rb'"(?:[^"\\]|\\.)*+"', re.DOTALL)


def _body(model: type[BaseModel], raw: bytes, most: int) -> Any:
    """Return a body as a model. A number in quotes is not taken for a number."""
    check_values(raw, most)
    try:
        values = orjson.loads(raw or b"{}")
    except orjson.JSONDecodeError as error:
        raise BadRequest(
            f"The body is not JSON ({error}). Send an object with content-type {JSON}. Nothing was "
            "changed."
        ) from None
    plain = orjson.dumps(_integral(values, MAX_DEPTH))
    return _checked(lambda: model.model_validate_json(plain, strict=True), "body")


def _integral(value: Any, depth: int) -> Any:
    """Return JSON with 3.0 as 3: to JSON schemas they are the same number."""
    if isinstance(value, float):
        return int(value) if value.is_integer() and abs(value) < _EXACT else value
    if isinstance(value, list | dict) and not depth:
        raise BadRequest(
            f"The body has values within values, more than {MAX_DEPTH} deep. Nothing was changed."
        )
    if isinstance(value, list):
        return [_integral(part, depth - 1) for part in cast("list[Any]", value)]
    if isinstance(value, dict):
        named = cast("dict[str, Any]", value).items()
        return {name: _integral(part, depth - 1) for name, part in named}
    return value


_EXACT = 2**53


def _checked(validate: Callable[[], Any], where: str) -> Any:
    """Return what was validated; raise `BadRequest` that names what is wrong with which."""
    try:
        return validate()
    except ValidationError as error:
        faults = "; ".join(
            f"{'.'.join(map(str, fault['loc'])) or where}: {fault['msg']}"
            for fault in error.errors(include_url=False)[:5]
        )
        raise BadRequest(f"The {where} is not valid: {faults}. Nothing was changed.") from None


async def call_of(request: Request, one: ApiEndpoint) -> ApiCall:
    """Return a request as its endpoint takes it."""
    if not one.conditional and one.method != "GET" and "if-match" in request.headers:
        raise BadRequest(
            f"{one.method} {one.path} does not look at If-Match, so that it would be done for any "
            "state. Leave the header out, or change the thing itself, which takes it. Nothing was "
            "changed."
        )
    given = request.query_params
    values = {name: given[name] for name in given}
    query = _checked(lambda: one.query.model_validate(values), "query")
    body: Any = None
    if one.body is not None:
        most = MAX_OPEN_BODY if one.verb == OPEN else MAX_BODY
        body = _body(one.body, await read_body(request, most), one.values)
    home = request.state.home if one.verb != OPEN else request.app.state.server
    return ApiCall(home, request, _path_values(request), query, body)


ENCODED_SLASHES = "asterism.encoded_slashes"
"""In the scope of a request whose path is one of `path_with_encoded_slashes`."""


def path_with_encoded_slashes(raw: bytes) -> str:
    """Return a path as it was sent, decoded but for what keeps slashes and parts of it apart."""
    kept = re.sub(r"%(2[fF5])", r"%25\1", raw.decode("latin-1"))
    return unquote(kept).replace("%2f", "%2F")


def _path_values(request: Request) -> dict[str, str]:
    values: dict[str, str] = dict(request.path_params)
    if ENCODED_SLASHES not in request.scope:
        return values
    return {name: value.replace("%2F", "/").replace("%25", "%") for name, value in values.items()}


# -- answers ---------------------------------------------------------------------------------------


def etag_of(shape: Any) -> str:
    """Return the tag of a state as JSON: the same for as long as nothing of it changes."""
    plain = orjson.dumps(shape, option=orjson.OPT_SORT_KEYS)
    return f'"{hashlib.blake2b(plain, digest_size=12).hexdigest()}"'


def is_conditional(call: ApiCall) -> bool:
    """Tell whether the request was made for one state, and not for any that there is."""
    wanted = call.header("if-match")
    return wanted is not None and wanted.strip() != "*"


def expected_state(call: ApiCall, now: T, shape: Any) -> T | None:
    """Return what must still be so when a change is written; None if any state will do.

    Args:
        call: The request; `Changed` is raised if its If-Match is for another state than this.
        now: What tells the verb this state from others, such as a version.
        shape: The state as it is shown, of which the ETag is made.
    """
    wanted = call.header("if-match")
    if wanted is None or not is_conditional(call):
        return None
    tag = etag_of(view(shape))
    if tag not in (each.strip() for each in wanted.split(",")):
        raise Changed(
            f"It was changed since you read it: its ETag is {tag}, and If-Match says "
            f"{wanted[:80]}. Read it again, apply your change to that and send it with the new "
            "ETag. Nothing was changed."
        )
    return now


class EventStream(StreamingResponse):
    """An answer that is made while it is sent; it ends when its client leaves or may not have it.

    Whoever asked may lose a role, and a token may end: that is looked at again all the time.
    """

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        answer = super().__call__
        try:
            await send_while_valid(scope, send, lambda send: answer(scope, receive, send))
        finally:
            # Else it would go on until somebody collects it.
            await cast("AsyncGenerator[bytes, None]", self.body_iterator).aclose()


async def send_while_valid(
    scope: Scope, send: Send, answer: Callable[[Send], Awaitable[None]]
) -> None:
    """Send an answer that may take long, for as long as whoever asked may have it.

    Args:
        scope: The request, whose state says whether its token or session is valid still.
        send: Where the answer goes.
        answer: Sends it to where it is told.
    """
    has_begun = False

    async def send_noted(message: Message) -> None:
        nonlocal has_begun
        has_begun = True
        await send(message)

    state = scope.get("state", {})
    sending = asyncio.ensure_future(answer(send_noted))
    checking = asyncio.ensure_future(_until_invalid(state.get(STILL_VALID)))
    try:
        await asyncio.wait({sending, checking}, return_when=asyncio.FIRST_COMPLETED)
        if sending.done():
            sending.result()
            return
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
        if has_begun:
            await send({"type": "http.response.body", "body": b"", "more_body": False})
            return
        ended = NotAuthenticated("The token or the session has ended. Log in again.")
        refusal = problem_answer(ended, state.get("request_id", ""))
        await refusal(scope, _nothing_more, send)
    finally:
        sending.cancel()
        checking.cancel()
        await asyncio.gather(sending, checking, return_exceptions=True)


async def _nothing_more() -> Message:
    return {"type": "http.disconnect"}


async def _until_invalid(is_valid: Callable[[], Awaitable[bool]] | None) -> None:
    while True:
        await asyncio.sleep(CHECK_EVERY)
        try:
            if is_valid is not None and not await is_valid():
                return
        except AsterismError:
            continue  # the store does not answer; who asks has not changed by that


def answer_of(one: ApiEndpoint, result: Any) -> Response:
    """Return what is sent for the result of an endpoint."""
    if isinstance(result, Response):
        return result
    if one.media == EVENTS:
        return EventStream(
            result, one.status, {"cache-control": "no-store", "x-accel-buffering": "no"}, EVENTS
        )
    if one.answer is None:
        return Response(status_code=one.status)
    shape = view(result)
    headers = {"etag": etag_of(shape)} if one.edits else {}
    return Response(orjson.dumps(shape), one.status, headers, JSON)


STATUS: tuple[tuple[type[AsterismError], int], ...] = (
    (RequestTooLarge, 413),
    (NotAuthenticated, 401),
    (TooManyAttempts, 429),
    (InboxFull, 429),
    (Changed, 412),
    (BadRequest, 400),
    (InvalidInput, 422),
    (NotFound, 404),
    (Conflict, 409),
    (NotAllowed, 403),
    (OtherVersion, 409),
    (ConfigError, 422),
    (BackupError, 422),
    (BudgetReached, 402),
    (StoreUnavailable, 503),
)
"""The status of each kind of error; any other is the server's."""


def status_of(error: AsterismError) -> int:
    """Return the HTTP status of an error."""
    return next((status for kind, status in STATUS if isinstance(error, kind)), 500)


def problem_answer(error: AsterismError, request_id: str = "") -> Response:
    """Return an error as problem+json."""
    status = status_of(error)
    shape = {**problem(error), "status": status, "instance": request_id or None}
    headers = {"www-authenticate": "Bearer"} if status == 401 else {}
    return Response(orjson.dumps(shape), status, {**headers, **come_again(error)}, PROBLEM)


def come_again(error: AsterismError) -> dict[str, str]:
    """Return the header that says when a request may be made again, where an error tells it."""
    if not isinstance(error, TooManyAttempts | InboxFull):
        return {}
    return {"retry-after": str(math.ceil(error.retry_after))}


def fault_answer(request_id: str) -> Response:
    """Return the answer to a request in which something of ours went wrong."""
    shape = problem_of(
        "error",
        "An error of the server",
        f"Something went wrong that should not. The log has it under request {request_id}.",
    )
    return Response(
        orjson.dumps({**shape, "status": 500, "instance": request_id}), 500, {}, PROBLEM
    )


async def events_since(
    call: ApiCall, watch: Callable[..., AsyncGenerator[Any, None]]
) -> AsyncGenerator[bytes, None]:
    """Return signals as server-sent events, from Last-Event-ID on.

    Args:
        call: The request.
        watch: Returns the signals; `after` is the id of the last one that was seen.
    """
    after = call.header("last-event-id")
    return await events_of(watch(after=after), first_id="" if after else id_at(now_ms()))


async def events_of(
    signals: AsyncGenerator[Any, None], *, first_id: str = "", patience: float = 0.0
) -> AsyncGenerator[bytes, None]:
    """Return signals as server-sent events, with a comment now and then so that none times out.

    Args:
        signals: What is told.
        first_id: An id that the client can come back with before anything was told; no event.
        patience: Seconds to wait for the first signal, so that an error is raised here instead of
            being told in an answer that has begun.
    """
    collected = _CollectedEvents(signals)
    if patience:
        await collected.wait(patience)
        try:
            collected.check()
        except BaseException:
            await collected.close()
            raise
    return _sent(collected, first_id)


class _CollectedEvents:
    """Events that wait to be sent: some of them, the rest stays where it is kept for all."""

    def __init__(self, signals: AsyncGenerator[Any, None]) -> None:
        self._signals = signals
        self._waiting: list[bytes] = []
        self._ready, self._taken = asyncio.Event(), asyncio.Event()
        self._task = asyncio.ensure_future(self._collect())
        self._task.add_done_callback(lambda _: self._ready.set())

    async def _collect(self) -> None:
        async with aclosing(self._signals):
            async for signal in self._signals:
                self._waiting.append(event_bytes(signal.id, signal.kind, view(signal)))
                self._ready.set()
                while len(self._waiting) >= _MAX_TOGETHER:
                    self._taken.clear()
                    await self._taken.wait()

    async def wait(self, seconds: float) -> bool:
        """Wait until there is something, or the end; False if there is not."""
        try:
            async with asyncio.timeout(seconds):
                await self._ready.wait()
        except TimeoutError:
            return False
        return True

    def check(self) -> None:
        """Raise the error that has ended the signals, if one has."""
        if self._task.done() and not self._waiting:
            self._task.result()

    def take(self) -> bytes | None:
        """Return all that waits; None at the end."""
        if self._waiting:
            together = b"".join(self._waiting)
            self._waiting.clear()
            self._taken.set()
            if not self._task.done():
                self._ready.clear()
            return together
        if not self._task.done():
            self._ready.clear()
            return b""
        self._task.result()
        return None

    async def close(self) -> None:
        """Collect no more."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


async def _sent(collected: _CollectedEvents, first_id: str) -> AsyncGenerator[bytes, None]:
    """Yield what is sent of collected events."""
    try:
        if first_id:
            yield b"id: %b\n\n" % first_id.encode()
        while True:
            if not await collected.wait(_COMMENT_EVERY):
                yield b": still here\n\n"
                continue
            try:
                together = collected.take()
            except AsterismError as error:
                yield event_bytes("", "error", {**problem(error), "status": status_of(error)})
                return
            if together is None:
                return
            if together:
                yield together
    finally:
        await collected.close()


_COMMENT_EVERY = 15.0
_MAX_TOGETHER = 64
"""Events that are sent in one piece."""


def event_bytes(event_id: str, kind: str, data: Any) -> bytes:
    """Return one server-sent event."""
    # An empty id would make the client forget the last one, with which it can come back.
    named = b"id: %b\n" % event_id.encode() if event_id else b""
    return b"%bevent: %b\ndata: %b\n\n" % (named, kind.encode(), orjson.dumps(data))
