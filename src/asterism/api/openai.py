"""The OpenAI-compatible API: each agent is a model, and its memory is the conversation.

`/models`, `/chat/completions` and `/responses`, with the errors and events of OpenAI's own API.
What a client sends as history is compared with what the agent remembers; see
`docs/adr/0031-the-memory-is-the-conversation.md`.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast

import orjson
from pydantic import BaseModel, ValidationError
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from asterism.api.endpoints import (
    EVENTS,
    JSON,
    MANY_VALUES,
    PROBLEM,
    EventStream,
    check_values,
    come_again,
    read_body,
    status_of,
)
from asterism.api.openai_answers import (
    WAITS,
    ChatStream,
    ResponseStream,
    Shape,
    TextDeltas,
    TurnAnswer,
    answer_from,
    chat_completion,
    read_call_id,
    read_response_id,
    response_shape,
)
from asterism.api.openai_requests import (
    ChatRequest,
    ClientConversation,
    ClientMessage,
    PastExchange,
    ResponseRequest,
    UnacceptableField,
    body_digest_parts,
    client_request,
)
from asterism.errors import (
    AsterismError,
    Conflict,
    InboxFull,
    NotAllowed,
    NotFound,
    StoreUnavailable,
)
from asterism.records import dataclass
from asterism.telemetry.redaction import redact
from asterism.turns.runtime import last_signal
from asterism.types.agents import image, now_ms
from asterism.types.groups import GroupRecord
from asterism.types.turns import (
    AnswerText,
    Message,
    Signal,
    TurnState,
    history_note,
    message_wire,
    system_message,
    wire_without_mark,
)

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import ASGIApp, Receive, Scope, Send
    from starlette.types import Message as ASGIMessage

    from asterism.app.agents import Agent
    from asterism.app.groups import Group
    from asterism.app.home import Home

_log = logging.getLogger(__name__)

_MAX_BODY = 64 * 1024 * 1024
_REPEAT = 60.0
"""Seconds after its answer in which the same request again is taken for a repeated one."""
_RETRY = 3_600.0
"""The same for a request whose client says that it tries again."""
_FIRST_SIGNAL = 0.5
"""Seconds in which what is wrong with a request becomes the status of a streamed answer."""
_KEEP_ALIVE = 15.0
_OWN_KEYS = "stainless-"
"""How keys begin that an SDK makes for each call, so that they tell nothing of what is meant."""
B = TypeVar("B", bound=BaseModel)


def openai_routes() -> list[Route]:
    """Return the routes, to be mounted at `/openai/v1`; `request.state.home` is who asks."""
    return [
        _route("/models", _list_models, "GET"),
        _route("/models/{model:path}", _get_model, "GET"),
        _route("/chat/completions", _chat, "POST"),
        _route("/responses", _respond, "POST"),
        _route("/responses/{response_id}", _get_response, "GET"),
        _route("/responses/{response_id}", _delete_response, "DELETE"),
        _route("/{path:path}", _nothing_there, "GET", "POST", "PUT", "PATCH", "DELETE"),
    ]


def _route(path: str, endpoint: Callable[[Request], Awaitable[Response]], *methods: str) -> Route:
    async def guarded(request: Request) -> Response:
        try:
            return await endpoint(request)
        except AsterismError as error:
            return _error_response(error)
        except ClientDisconnect:
            return Response(status_code=499)
        except Exception:  # noqa: BLE001 - whatever goes wrong, a client is told in its language
            own = getattr(request.state, "request_id", "")
            _log.exception("request %s to %s failed", own, request.url.path)
            return JSONResponse(_fault(own), 500, {"x-should-retry": "false"})

    return Route(path, guarded, methods=list(methods))


# -- errors ----------------------------------------------------------------------------------------


class _TurnFailed(AsterismError):
    """A turn ended with an explanation instead of an answer."""

    code = "turn.failed"


class _NoModel(NotFound):
    """There is no agent of that name."""


_STATUSES = {402: 429, 412: 409, 422: 400}
"""The status in OpenAI's API, where it has another one than the REST API."""
_KINDS = {402: "insufficient_quota", 403: "permission_error", 429: "requests"}
"""What OpenAI calls a problem, by its status in the REST API, where it has a name of its own."""


def _kind(status: int) -> str:
    """Return what OpenAI calls a problem that has a status in the REST API."""
    return _KINDS.get(status, "server_error" if status >= 500 else "invalid_request_error")


def _error(error: AsterismError) -> tuple[int, Shape]:
    """Return the status and the body of an error, as OpenAI sends them."""
    status = status_of(error)
    code = "model_not_found" if isinstance(error, _NoModel) else error.code
    param = "model" if isinstance(error, _NoModel) else None
    if isinstance(error, UnacceptableField):
        param, code = error.param, error.error_code or code
    shape = _error_shape(redact(error.message), _kind(status), code, param)
    return _STATUSES.get(status, status), shape


def _error_shape(message: str, kind: str, code: str | None, param: str | None = None) -> Shape:
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def _fault(request_id: str) -> Shape:
    """Return the body of an answer to a request in which something of ours went wrong."""
    message = (
        "Something went wrong that should not, and nothing that was confirmed is lost. The log "
        f"has it under request {request_id}."
    )
    return _error_shape(message, "server_error", "error")


def _error_response(error: AsterismError) -> JSONResponse:
    status, body = _error(error)
    # A client tries again by itself where that may help, and nowhere else.
    again = "true" if isinstance(error, StoreUnavailable | InboxFull) else "false"
    return JSONResponse(body, status, {"x-should-retry": again, **come_again(error)})


class OpenAIErrors:
    """ASGI middleware: tells what was refused on the way to this API as OpenAI does.

    What stands in front of every API, such as authentication and the limit of requests, refuses
    with problem+json, which no client of OpenAI's can read.
    """

    def __init__(self, app: ASGIApp) -> None:
        """Make it; `app` is what comes behind it."""
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and its answer back."""
        begun: ASGIMessage | None = None
        body = b""

        async def send_translated(message: ASGIMessage) -> None:
            nonlocal begun, body
            if message["type"] == "http.response.start":
                kind = dict(message["headers"]).get(b"content-type", b"")
                if kind.startswith(PROBLEM.encode()):
                    begun = message
                    return
            elif begun is not None and message["type"] == "http.response.body":
                body += message.get("body", b"")
                if message.get("more_body"):
                    return
                said = orjson.dumps(_error_of_problem(orjson.loads(body), begun["status"]))
                headers = [
                    (name, value)
                    for name, value in begun["headers"]
                    if name not in (b"content-type", b"content-length")
                ]
                length = str(len(said)).encode()
                headers += [(b"content-type", JSON.encode()), (b"content-length", length)]
                await send({**begun, "headers": headers})
                message = {"type": "http.response.body", "body": said}
            await send(message)

        await self._app(scope, receive, send_translated)


_PROBLEM_CODES = {401: "invalid_api_key", 429: "rate_limit_exceeded"}


def _error_of_problem(problem: Shape, status: int) -> Shape:
    """Return a problem as OpenAI would tell it."""
    message = problem.get("detail") or problem["title"]
    return _error_shape(message, _kind(status), _PROBLEM_CODES.get(status, problem["type"]))


async def _nothing_there(request: Request) -> Response:
    raise NotFound(
        f"There is nothing at {request.method} {request.url.path}. There are models, "
        "chat/completions and responses."
    )


# -- models ----------------------------------------------------------------------------------------


def _model_shape(agent: Agent | Group) -> Shape:
    return {
        "id": agent.name,
        "object": "model",
        "created": agent.created_at_ms // 1000,
        "owned_by": "asterism",
    }


async def _list_models(request: Request) -> Response:
    home: Home = request.state.home
    models = [_model_shape(agent) for agent in await home.agents.list()]
    if home.may_use("groups.get"):  # else they could be named, and not be asked
        models += [_model_shape(group) for group in await home.groups.list()]
    return JSONResponse({"object": "list", "data": models})


async def _get_model(request: Request) -> Response:
    return JSONResponse(
        _model_shape(await _agent(request.state.home, request.path_params["model"]))
    )


async def _agent(home: Home, name: str) -> Agent | Group:
    """Return the agent or the group that a model names."""
    try:
        return await home.agents.get(name)
    except NotFound as error:
        missing = error
    if home.may_use("groups.get"):
        with contextlib.suppress(NotFound):
            return await home.groups.get(name)
    raise _NoModel(missing.reason) from None


# -- requests --------------------------------------------------------------------------------------


async def _body(request: Request) -> Shape:
    """Return the JSON object that a request has as its body."""
    body = await read_body(request, _MAX_BODY)
    check_values(body, MANY_VALUES)
    try:
        read: Any = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise UnacceptableField(f"The request is not valid JSON ({error}).") from None
    if not isinstance(read, dict):
        raise UnacceptableField("The request is not a JSON object.")
    return cast("Shape", read)


def _validated(kind: type[B], body: Shape) -> B:
    try:
        return kind.model_validate(body)
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        names = [str(part) for part in fault["loc"] if not str(part).startswith("list[")]
        param = names[0] + "".join(
            f"[{name}]" if name.isdigit() else f".{name}" for name in names[1:]
        )
        raise UnacceptableField(f"{param} is not valid: {fault['msg']}.", param) from None


def _external_id(request: Request, agent: Agent | Group, body: Shape) -> tuple[str, float | None]:
    """Return what tells a request from others, and for how long it is the same one."""
    parts = [agent.id.encode(), request.url.path.encode(), body_digest_parts(body)]
    key = request.headers.get("idempotency-key", "")
    if key and not key.startswith(_OWN_KEYS):
        digest = hashlib.sha256(b"\0".join([*parts, key.encode()])).hexdigest()
        return f"openai:key:{digest}", None
    retries = request.headers.get("x-stainless-retry-count", "0")
    digest = hashlib.sha256(b"\0".join(parts)).hexdigest()
    return f"openai:{digest}", _REPEAT if retries in ("", "0") else _RETRY


@dataclass(frozen=True, slots=True)
class _TurnRequest:
    """What a request comes to: signals of a turn, and the part of it that is the answer."""

    signals: AsyncGenerator[Signal, None]
    part: int
    """Which part of the turn; -1: the latest."""


async def _ask(
    request: Request,
    agent: Agent | Group,
    asked: ChatRequest | ResponseRequest,
    body: Shape,
    conversation: ClientConversation,
) -> _TurnRequest:
    """Hand in what a client wants answered: results of calls, a decision, or a message."""
    home: Home = request.state.home
    conversation.check()
    message, results = conversation.message, conversation.results
    if message is None:
        turn_id, by_key = _results_of(results)
        return await _go_on(home, agent, turn_id, by_key)
    if (decided := await _decision(home, message)) is not None:
        return decided
    if results:
        # The client says something new beside its results: its message is what is answered.
        with contextlib.suppress(NotFound, Conflict, UnacceptableField):
            await home.turns.submit_results(*_results_of(results))
    external_id, repeat = _external_id(request, agent, body)
    if isinstance(agent, GroupRecord):
        return _ask_group(home, agent, asked, message, external_id, repeat)
    history = await _unknown(home, agent, conversation.exchanges)
    signals = home.agents.stream(
        agent.id,
        message.words,
        external_id=external_id,
        repeat_seconds=repeat,
        images=message.images,
        schema=asked.answer_schema(),
        client=client_request(asked, conversation, history),
    )
    return _TurnRequest(signals, 0)


def _ask_group(
    home: Home,
    group: GroupRecord,
    asked: ChatRequest | ResponseRequest,
    message: ClientMessage,
    external_id: str,
    repeat: float | None,
) -> _TurnRequest:
    """Hand in a message to a group, whose members remember what was said before."""
    if asked.answer_schema() is not None:
        raise UnacceptableField(
            "A group answers in words: the form of its answer cannot be asked for.",
            "response_format",
        )
    if asked.tools:
        raise UnacceptableField(
            "Members of a group use their own tools: a group takes no tools of a client.", "tools"
        )
    signals = home.groups.stream(
        group.name,
        message.words,
        external_id=external_id,
        repeat_seconds=repeat,
        images=message.images,
    )
    return _TurnRequest(signals, 0)


def _results_of(results: dict[str, str]) -> tuple[str, dict[str, str]]:
    """Return the turn that results are for, and the results by the keys of their calls."""
    turns: set[str] = set()
    by_key: dict[str, str] = {}
    for call_id, text in results.items():
        named = read_call_id(call_id)
        if named is None:
            raise UnacceptableField(
                f"{call_id[:100]!r} is not the id of a call that an agent made.", "tool_call_id"
            )
        turns.add(named[0])
        by_key[named[1]] = text
    if len(turns) > 1:
        raise UnacceptableField("The results are for calls of several answers.", "tool_call_id")
    return turns.pop(), by_key


async def _go_on(
    home: Home, agent: Agent | Group, turn_id: str, results: dict[str, str]
) -> _TurnRequest:
    """Let a turn go on with the results of the calls that it left to the client."""
    try:
        turn = await home.turns.parts(turn_id)
    except NotFound:
        raise UnacceptableField(
            f"No call waits for these results: there is no turn {turn_id}.", "tool_call_id"
        ) from None
    if turn.agent_id != agent.id:
        raise UnacceptableField(
            f"The results are for a call that another agent than {agent.name} made.", "model"
        )
    part = turn.part_of_call(next(iter(results)))
    return _TurnRequest(home.turns.stream_results(turn_id, results), part + 1)


async def _decision(home: Home, message: ClientMessage) -> _TurnRequest | None:
    """Take a message such as "approve ap_…" as the answer to the approval; None if it is none."""
    answer = Message("", (message.text,)).answer if not message.images else None
    if answer is None or answer.approval_id is None:
        return None
    try:
        approval = await home.approvals.get(answer.approval_id)
    except NotFound:
        return None
    except NotAllowed:
        return _TurnRequest(_decided(home, answer.approval_id, answer), -1)
    if approval.decided_at_ms is not None:
        return _TurnRequest(home.turns.follow(approval.turn_id), -1)
    signals = home.approvals.stream_decision(approval, approved=answer.approved, note=answer.note)
    return _TurnRequest(signals, -1)


async def _decided(
    home: Home, approval_id: str, answer: AnswerText
) -> AsyncGenerator[Signal, None]:
    """Answer an approval for somebody who may not look at approvals; yield what came of it."""
    receipt = await home.approvals.decide(approval_id, approved=answer.approved, note=answer.note)
    yield last_signal(await home.turns.wait(receipt))


# -- history ---------------------------------------------------------------------------------------


async def _unknown(home: Home, agent: Agent, exchanges: Sequence[PastExchange]) -> list[str]:
    """Return what of a client's history the agent neither remembers nor was told before."""
    if not exchanges:
        return []
    wires = {_wire(each.message) for each in exchanges if each.message is not None}
    notes = {each.text: system_message(history_note(redact(each.text))) for each in exchanges}
    found = await home.turns.find_messages(agent, [*wires, *notes.values()])
    unknown: list[str] = []
    for exchange in exchanges:
        if notes[exchange.text] in found:
            continue
        turns = found.get(_wire(exchange.message), []) if exchange.message is not None else []
        if not await _was_answered(home, turns, exchange.answers):
            unknown.append(exchange.text)
    return unknown


def _wire(said: ClientMessage) -> bytes:
    """Return a message as the journal would have it."""
    text = redact(said.words)
    return wire_without_mark(message_wire("user", text, [image(body) for body in said.images]))


async def _was_answered(home: Home, turns: Sequence[str], answers: Sequence[str]) -> bool:
    """Tell whether one of these turns gave these answers, or has none to compare."""
    for turn_id in turns:
        turn = await home.turns.parts(turn_id)
        said = {part.text.strip() for part in turn.parts}
        said |= {text.strip() for part in turn.parts for text in part.texts}
        said.add(turn.error.strip())
        if all(answer in said or WAITS in answer for answer in answers):
            return True
    return False


# -- answers ---------------------------------------------------------------------------------------


async def _answer(home: Home, model: str, last: Signal, part: int) -> TurnAnswer:
    """Return what a client is told of a turn that has ended or waits."""
    try:
        return answer_from(model, await home.turns.parts(last.turn_id), part)
    except NotFound:
        # An answer to an approval that was refused has no turn.
        said = (last.text,)
        return TurnAnswer(model, last.turn_id, 0, now_ms() // 1000, TurnState.DONE, said)


async def _last_signal(asked: _TurnRequest) -> Signal:
    """Wait for how a turn ends or rests."""
    last: Signal | None = None
    async with contextlib.aclosing(asked.signals) as signals:
        async for signal in signals:
            last = signal
    assert last is not None, "a stream ends with how its turn stands"
    return last


def _checked(answer: TurnAnswer) -> TurnAnswer:
    """Return an answer, or raise why there is none."""
    if answer.error:
        raise _TurnFailed(answer.error)
    return answer


async def _chat(request: Request) -> Response:
    home: Home = request.state.home
    body = await _body(request)
    asked = _validated(ChatRequest, body)
    asked.check()
    agent = await _agent(home, asked.model)
    turn = await _ask(request, agent, asked, body, asked.conversation())
    if not asked.stream:
        answer = await _answer(home, agent.name, await _last_signal(turn), turn.part)
        return JSONResponse(chat_completion(_checked(answer)))
    options = asked.stream_options
    with_usage = options is not None and options.include_usage
    chunks = ChatStream(agent.name, now_ms() // 1000, with_usage=with_usage)
    return await _streamed(request, agent.name, turn, chunks)


# -- streams ---------------------------------------------------------------------------------------


async def _streamed(
    request: Request, model: str, turn: _TurnRequest, events: ChatStream | ResponseStream
) -> Response:
    """Return the signals of a turn as server-sent events.

    A client that goes away ends the stream and nothing else: the turn goes on, and is kept.
    """
    feed = _Feed(turn.signals)
    try:
        first = await feed.next(_FIRST_SIGNAL)
    except BaseException:
        await feed.close()
        raise
    own = getattr(request.state, "request_id", "")
    pieces = _events(request.state.home, model, turn.part, feed, first, events, own)
    headers = {"cache-control": "no-cache", "x-accel-buffering": "no"}
    return EventStream(pieces, 200, headers, EVENTS)


class _Feed:
    """Signals of a turn that can be waited for within a time."""

    def __init__(self, signals: AsyncGenerator[Signal, None]) -> None:
        self._signals = signals
        self._coming: asyncio.Task[Signal] | None = None

    async def next(self, seconds: float) -> Signal | None:
        """Return the next signal; None if none came in time. `StopAsyncIteration` at the end."""
        if self._coming is None:
            self._coming = asyncio.ensure_future(anext(self._signals))
        done, _ = await asyncio.wait({self._coming}, timeout=seconds)
        if not done:
            return None
        coming, self._coming = self._coming, None
        return coming.result()

    async def close(self) -> None:
        """Let go of the signals."""
        if self._coming is not None:
            self._coming.cancel()
            await asyncio.gather(self._coming, return_exceptions=True)
        await self._signals.aclose()


async def _events(
    home: Home,
    model: str,
    part: int,
    feed: _Feed,
    first: Signal | None,
    events: ChatStream | ResponseStream,
    request_id: str,
) -> AsyncIterator[bytes]:
    try:
        async for event in _shapes(home, model, part, feed, first, events):
            yield _sse(event) if event is not None else b": the turn is under way\n\n"
    except AsterismError as error:
        yield _sse(_error(error)[1])
        return
    except Exception:  # noqa: BLE001 - as for answers that are not streamed
        _log.exception("a streamed answer of %s failed", model)
        yield _sse(_fault(request_id))
        return
    finally:
        # Whoever has gone away cancels this, and the watch is ended all the same.
        await asyncio.shield(asyncio.ensure_future(feed.close()))
    if isinstance(events, ChatStream):
        yield b"data: [DONE]\n\n"


async def _shapes(
    home: Home,
    model: str,
    part: int,
    feed: _Feed,
    signal: Signal | None,
    events: ChatStream | ResponseStream,
) -> AsyncIterator[Shape | None]:
    """Yield the events of an answer; None where there is nothing to say for a while."""
    words, begun = TextDeltas(), False
    while signal is None or signal.kind not in ("ended", "parked"):
        if signal is None:
            yield None
        elif signal.turn_id:
            if not begun:
                begun = True
                for event in events.begin(signal.turn_id, max(part, 0)):
                    yield event
            if text := words.receive(signal):
                for event in events.text(text):
                    yield event
        signal = await feed.next(_KEEP_ALIVE)
    answer = await _answer(home, model, signal, part)
    if isinstance(events, ChatStream):
        _checked(answer)
    last = [] if begun else [*events.begin(answer.turn_id, answer.part)]
    if rest := words.rest(answer.texts):
        last += events.text(rest)
    for event in (*last, *events.end(answer)):
        yield event


def _sse(event: Shape) -> bytes:
    kind = event.get("type")
    head = f"event: {kind}\n".encode() if isinstance(kind, str) else b""
    return head + b"data: " + orjson.dumps(event) + b"\n\n"


# -- responses -------------------------------------------------------------------------------------


async def _respond(request: Request) -> Response:
    home: Home = request.state.home
    body = await _body(request)
    asked = _validated(ResponseRequest, body)
    asked.check()
    agent = await _agent(home, asked.model)
    if asked.previous_response_id is not None:
        await _check_previous(home, agent, asked.previous_response_id)
    turn = await _ask(request, agent, asked, body, asked.conversation())
    echo = _echo(asked, body)
    if asked.stream:
        stream = ResponseStream(agent.name, now_ms() // 1000, echo)
        return await _streamed(request, agent.name, turn, stream)
    answer = await _answer(home, agent.name, await _last_signal(turn), turn.part)
    return JSONResponse(response_shape(_checked(answer), echo))


def _echo(asked: ResponseRequest, body: Shape) -> Shape:
    """Return what of a request its response says again."""
    names = (
        "instructions",
        "max_output_tokens",
        "metadata",
        "parallel_tool_calls",
        "previous_response_id",
        "store",
        "temperature",
        "text",
        "tool_choice",
        "tools",
        "top_p",
        "truncation",
        "user",
    )
    echo = {name: body[name] for name in names if body.get(name) is not None}
    if asked.text is not None and asked.text.format is None:
        echo["text"] = {**echo["text"], "format": {"type": "text"}}
    return echo


async def _check_previous(home: Home, agent: Agent | Group, response_id: str) -> None:
    """Raise unless a response is of this agent, and of those that the actor may see."""
    turn_id, _ = _turn_of(response_id, "previous_response_id")
    try:
        turn = await home.turns.parts(turn_id)
    except NotFound:
        raise _no_response(response_id, "previous_response_id") from None
    if turn.agent_id != agent.id:
        raise UnacceptableField(
            f"Response {response_id} is of another agent than {agent.name}, who does not know what "
            "was said there.",
            "previous_response_id",
        )


class _NoResponse(NotFound):
    """There is no response of that id."""


def _turn_of(response_id: str, param: str) -> tuple[str, int]:
    named = read_response_id(response_id)
    if named is None:
        raise _no_response(response_id, param)
    return named


def _no_response(response_id: str, param: str) -> AsterismError:
    return _NoResponse(f"There is no response {response_id[:100]!r} ({param}).")


async def _get_response(request: Request) -> Response:
    home: Home = request.state.home
    response_id: str = request.path_params["response_id"]
    turn_id, part = _turn_of(response_id, "response_id")
    try:
        turn = await home.turns.parts(turn_id)
        agent = await _agent(home, turn.agent_id)
    except NotFound:
        raise _no_response(response_id, "response_id") from None
    if part >= len(turn.parts):
        raise _no_response(response_id, "response_id")
    return JSONResponse(response_shape(answer_from(agent.name, turn, part), {}))


async def _delete_response(request: Request) -> Response:
    message = (
        f"{request.path_params['response_id'][:100]} cannot be deleted here: it is a part of the "
        'agent\'s memory. "asterism memory forget" makes an agent forget something. Nothing was '
        "deleted."
    )
    shape = _error_shape(message, "invalid_request_error", "method_not_allowed")
    return JSONResponse(shape, 405, {"allow": "GET", "x-should-retry": "false"})
