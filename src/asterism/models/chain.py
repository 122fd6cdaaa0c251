"""The chain: an agent's models, asked one after the other until one answers.

Each kind of trouble has its own behaviour:

    ModelUnavailable   tried again with growing pauses, then the next model; slow ones are not
                       tried again if there is a next
    ModelBusy          tried again when the server says so if that is soon, else the next model
    ModelGarbled       the next model at once: mostly it is not a model's server that answers
    KeyRefused         the next model at once; the owner is told
    ContextTooLong     the same model again with a shorter past, then the next model
    ContentRefused     the next model at once
    ModelRefused       the next model at once
    BudgetReached      ends the chain: a cheaper model is the owner's choice, not ours
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from dataclasses import field, replace

from asterism.config.load import CurrentSettings
from asterism.config.settings import Settings
from asterism.errors import (
    AsterismError,
    ConfigError,
    ContextTooLong,
    KeyRefused,
    ModelBusy,
    ModelError,
    ModelGarbled,
    ModelRefused,
    ModelUnavailable,
)
from asterism.ports import (
    Emit,
    Encoder,
    Hold,
    Model,
    ModelQuestion,
    ModelRequest,
    Profile,
    Profiled,
    Sleep,
)
from asterism.records import dataclass
from asterism.telemetry import ModelWatch, record_failover
from asterism.telemetry.redaction import SECRETS, RequestRedactor, redact_name
from asterism.types.agents import DEFAULT_MODEL, chain_of
from asterism.types.turns import Call, Reply

MAX_PAUSE = 30.0
"""Seconds that a turn waits before the same model is tried again."""
MAX_PAUSE_BEFORE_NEXT = 5.0
"""The same where another model could be asked instead."""
_POLL_SECONDS = 0.1
_MAX_SQUEEZES = 3
_FAILURES_TO_OPEN = 5
_FIRST_PAUSE, _LAST_PAUSE = 15.0, 300.0


_UNKNOWN_PROFILE = Profile()


class CircuitBreaker:
    """Stops hammering a server that fails: after some failures in a row it is left alone a while.

    Then one request may try; if that fails too, the rest is twice as long.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._failures = 0
        self._pause_length = _FIRST_PAUSE
        self._paused_until = 0.0
        self._request_open = False

    @property
    def seconds_to_wait(self) -> float:
        """Seconds that the server is left alone for, 0 if it can be asked."""
        return max(0.0, self._paused_until - self._clock())

    @property
    def is_probing(self) -> bool:
        """Whether it has rested and one request now finds out whether it is well."""
        return self.is_open and self._request_open and not self.seconds_to_wait

    @property
    def is_open(self) -> bool:
        """Whether it has failed too often to be asked as usual."""
        return self._failures >= _FAILURES_TO_OPEN

    def request_started(self) -> None:
        """Note that a request is made."""
        self._request_open = True

    def note_success(self) -> bool:
        """Note a success; tell whether there was trouble before."""
        had_trouble, self._failures = self._failures > 0, 0
        self._pause_length, self._paused_until, self._request_open = _FIRST_PAUSE, 0.0, False
        return had_trouble

    def request_abandoned(self) -> None:
        """Note that a request ended without telling how the server is."""
        self._request_open = False

    def note_failure(self) -> None:
        """Note a failure."""
        self._failures += 1
        self._request_open = False
        if self._failures >= _FAILURES_TO_OPEN:
            self._paused_until = self._clock() + self._pause_length
            self._pause_length = min(self._pause_length * 2, _LAST_PAUSE)

    def pause(self, seconds: float) -> None:
        """Leave the server alone because it says so."""
        self._paused_until = max(self._paused_until, self._clock() + seconds)
        self._request_open = False


@dataclass(slots=True)
class VendorState:
    """What is known of a vendor's server, shared by all agents of this process."""

    breaker: CircuitBreaker = field(default_factory=CircuitBreaker)
    rate: RateLimiter = field(default_factory=lambda: RateLimiter(None, None))
    owner_notified: bool = False
    """Whether the owner knows that it is in trouble."""


@dataclass(frozen=True, slots=True)
class ChainLink:
    """One model of a chain: its port, its name there, and its vendor's server."""

    model: str
    port: Model
    name: str
    state: VendorState
    retries: int = 2

    find_profile: Callable[[str], Profile] | None = field(init=False, compare=False)

    def __post_init__(self) -> None:
        # Looking whether a port fulfils a protocol takes 20 µs, which no turn should pay.
        ask = self.port.profile if isinstance(self.port, Profiled) else None
        object.__setattr__(self, "find_profile", ask)

    @property
    def profile(self) -> Profile:
        """What the model can take in."""
        return self.find_profile(self.name) if self.find_profile is not None else _UNKNOWN_PROFILE


class Chain:
    """Puts questions to models, whichever of an agent's chain can answer."""

    def __init__(self, link: Callable[[str], ChainLink], *, sleep: Sleep = asyncio.sleep) -> None:
        """Make a chain; `link` finds a model by `vendor:name`."""
        self._link = link
        self._sleep = sleep
        self._cleaned = RequestRedactor()

    async def ask(self, question: ModelQuestion) -> Reply:
        """Return the reply of the first model that gives one."""
        watcher = _Stream(question)
        problems: list[ModelError] = []
        for position, model in enumerate(question.models):
            last = position == len(question.models) - 1
            try:
                link = self._link(model)
            except ConfigError as error:
                problems.append(ModelRefused(error.message))
                continue
            try:
                with ModelWatch(model, streamed=question.emit is not None) as watcher.call:
                    reply = await self._ask_with_retries(link, question, watcher, last=last)
                    watcher.call.reply = reply
            except ModelError as error:
                problems.append(error)
                if not last:
                    record_failover(model, error, question.models[position + 1])
                _notify_owner(link, question, error, last=last)
                watcher.discard(error)
            else:
                link.state.owner_notified = False
                output = f"{reply.text}{reply.reasoning}{reply.finish}"
                if reply.calls or reply.thought or not output.isascii():
                    reply = _sanitize(reply)
                return reply.with_model(model)
        raise _combined_error(problems)

    async def _ask_with_retries(
        self, link: ChainLink, question: ModelQuestion, watcher: _Stream, *, last: bool
    ) -> Reply:
        """Ask one model, again where that may help."""
        profile = link.profile
        attempt = squeeze = 0
        while True:
            await self._wait_until_ready(link, last=last)
            request = question.compose(link.model, profile, squeeze)
            if SECRETS.order:
                request = self._cleaned.request(request)
            if not last:
                # One that drips for ever has to leave time for the next.
                request = replace(request, timeout=request.timeout / 2)
            watcher.call.sends(request)
            try:
                return await self._ask_once(link, request, question, watcher)
            except ContextTooLong as error:
                squeeze += 1
                if squeeze > _MAX_SQUEEZES:
                    raise
                problem: ModelError = error
            except ModelUnavailable as error:
                attempt += 1
                if attempt > link.retries or not await self._pause_before_retry(
                    link, error, attempt, request.timeout, last=last
                ):
                    raise
                problem = error
            watcher.call.retry(problem)
            watcher.discard(problem)

    async def _pause_before_retry(
        self,
        link: ChainLink,
        error: ModelUnavailable,
        attempt: int,
        time_left: float,
        *,
        last: bool,
    ) -> bool:
        """Wait before the next attempt; False if it would take too long or is of no use."""
        patience = min(MAX_PAUSE if last else MAX_PAUSE_BEFORE_NEXT, time_left)
        if wish := error.retry_after:
            # With jitter, lest all who wait come back at the same instant.
            link.state.breaker.pause(wish * random.uniform(1.0, 1.1))
            return wish <= patience
        if error.slow and not last:
            return False
        pause = min(8.0, 0.25 * 2**attempt) * random.uniform(0.5, 1.0)
        if pause > patience:
            return False
        await self._sleep(pause)
        return True

    async def _wait_until_ready(self, link: ChainLink, *, last: bool) -> None:
        """Return when the server may be asked; raise if that takes too long."""
        breaker = link.state.breaker
        patience = MAX_PAUSE if last else MAX_PAUSE_BEFORE_NEXT
        while (resting := breaker.seconds_to_wait) or breaker.is_probing:
            if not resting:
                resting, patience = _POLL_SECONDS, patience - _POLL_SECONDS
                if patience > 0:
                    await self._sleep(resting)
                    continue
            if breaker.is_open or resting > patience:
                why = "has failed several times in a row" if breaker.is_open else "is busy"
                raise ModelUnavailable(
                    f"The model {link.model!r} {why} and is left alone for another "
                    f"{max(1, round(resting))} seconds. Ask again then, or give the agent another "
                    "model.",
                    retry_after=resting,
                )
            await self._sleep(resting)

    async def _ask_once(
        self, link: ChainLink, request: ModelRequest, question: ModelQuestion, watcher: _Stream
    ) -> Reply:
        breaker, pace = link.state.breaker, link.state.rate
        budget = question.reservations or _NO_BUDGET
        estimate = 0
        if not pace.is_unlimited:
            estimate = sum(map(len, request.messages)) // 4 + (request.max_output or 0)
            came = time.monotonic()
            await pace.acquire(request.agent_id, estimate)
            watcher.call.queued(time.monotonic() - came)
        hold = await budget.reserve(link.model, request)
        if hold is not None and request.max_output is None:
            request = replace(request, max_output=hold.max_output)
        breaker.request_started()
        try:
            reply = await link.port.complete(request, watcher.emit)
        except ModelUnavailable as error:
            if error.begun or watcher.emitted:
                budget.presume(hold)
            else:
                budget.release(hold)
            if isinstance(error, ModelBusy):
                breaker.request_abandoned()
            else:
                breaker.note_failure()
            raise
        except ModelGarbled:
            budget.presume(hold)
            breaker.note_failure()
            raise
        except ModelError:
            # The server is well: it has read the request and said no.
            budget.release(hold)
            breaker.note_success()
            raise
        except BaseException:
            budget.presume(hold)
            breaker.request_abandoned()
            raise
        breaker.note_success()
        budget.settle(hold, reply)
        if not pace.is_unlimited:
            pace.adjust(reply.usage.total - estimate)
        return reply


def _sanitize(reply: Reply) -> Reply:
    """Return a reply that can be stored and sent back: valid Unicode, and no key in an id."""
    calls = tuple(
        Call(
            redact_name(_valid_unicode(call.id)),
            _valid_unicode(call.name),
            _valid_unicode(call.arguments),
        )
        for call in reply.calls
    )
    try:
        reply.thought.decode()
        thought = reply.thought
    except UnicodeDecodeError:
        thought = b""  # a vendor takes its own record back unchanged or not at all
    text, reasoning, finish = map(_valid_unicode, (reply.text, reply.reasoning, reply.finish))
    sanitized = (text, reasoning, finish, calls, thought)
    if sanitized == (reply.text, reply.reasoning, reply.finish, reply.calls, reply.thought):
        return reply
    return replace(
        reply, text=text, reasoning=reasoning, finish=finish, calls=calls, thought=thought
    )


def _valid_unicode(text: str) -> str:
    """Return a text without lone surrogates, as JSON may spell them; two that fit are one sign."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


class _NoBudget:
    """Reservations where no money can be spent."""

    async def reserve(self, model: str, request: ModelRequest) -> Hold | None:
        """Set nothing aside."""

    def settle(self, hold: Hold | None, reply: Reply) -> None:
        """Count nothing."""

    def release(self, hold: Hold | None) -> None:
        """Count nothing."""

    def presume(self, hold: Hold | None) -> None:
        """Count nothing."""


_NO_BUDGET = _NoBudget()


class _Stream:
    """Hands pieces on and knows whether there were any."""

    def __init__(self, question: ModelQuestion) -> None:
        self._emit = question.emit
        self.emitted = False
        self.call: ModelWatch

    @property
    def emit(self) -> Emit | None:
        """What the model's port gets."""
        if self._emit is None:
            return None
        emit, listened = self._emit, self.call.listen(self._forward)

        def tell(kind: str, piece: str) -> None:
            # How far a prompt is read is no part of a reply.
            (emit if kind == "reading" else listened)(kind, piece)

        return tell

    def _forward(self, kind: str, piece: str) -> None:
        self.emitted = True
        assert self._emit is not None
        self._emit(kind, piece)

    def discard(self, problem: ModelError) -> None:
        """Tell whoever watches that the pieces so far are void."""
        if self.emitted and self._emit is not None:
            self._emit("again", problem.message)
        self.emitted = False


def _notify_owner(
    link: ChainLink, question: ModelQuestion, error: ModelError, *, last: bool
) -> None:
    """Tell the owner once that a model is passed over, until it has answered again."""
    if link.state.owner_notified or (last and not isinstance(error, KeyRefused)):
        return
    link.state.owner_notified = True
    what_now = "" if last else " Meanwhile the next model of the chain is asked."
    question.notify("model", error.message + what_now)


def _combined_error(problems: list[ModelError]) -> ModelError:
    if len(problems) == 1:
        return problems[0]
    reasons = " ".join(
        f"{position}. {problem.message}" for position, problem in enumerate(problems, 1)
    )
    message = f"None of the {len(problems)} models of its chain answered. {reasons}"
    if all(isinstance(problem, ModelRefused) for problem in problems):
        return ModelRefused(message)
    return ModelUnavailable(message)


class _Bucket:
    """Fills evenly up to a minute's worth; what is taken may put it into debt."""

    __slots__ = ("_capacity", "_clock", "_filled_at", "_level")

    def __init__(self, per_minute: float, clock: Callable[[], float]) -> None:
        self._capacity = per_minute
        self._level = per_minute
        self._clock = clock
        self._filled_at = clock()

    def seconds_until(self, amount: float) -> float:
        """Return how long it takes until so much is there; more than it holds is never asked."""
        now = self._clock()
        self._level = min(
            self._capacity, self._level + (now - self._filled_at) * self._capacity / 60
        )
        self._filled_at = now
        lacking = min(amount, self._capacity) - self._level
        return max(0.0, lacking * 60 / self._capacity)

    def take(self, amount: float) -> None:
        """Take out, or with a negative amount put back."""
        self._level = min(self._capacity, self._level - amount)


class RateLimiter:
    """Lets requests through one after the other; agents that wait take turns."""

    def __init__(
        self,
        requests: float | None,
        tokens: float | None,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self._requests = _Bucket(requests, clock) if requests else None
        self._tokens = _Bucket(tokens, clock) if tokens else None
        self._sleep = sleep
        self._waiting: OrderedDict[str, deque[tuple[int, asyncio.Future[None]]]] = OrderedDict()
        self._dispatcher: asyncio.Task[None] | None = None

    @property
    def is_unlimited(self) -> bool:
        """Whether nobody ever has to wait."""
        return self._requests is None and self._tokens is None

    async def acquire(self, agent_id: str, tokens: int) -> None:
        """Return when a request of about so many tokens may be made."""
        if self.is_unlimited:
            return
        if not self._waiting and self._seconds_until(tokens) == 0:
            self._take(tokens)
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(agent_id, deque()).append((tokens, turn))
        if self._dispatcher is None or self._dispatcher.done():
            self._dispatcher = asyncio.create_task(self._dispatch())
        await turn

    def adjust(self, tokens: int) -> None:
        """Take what a request has used beyond what was thought; less than thought is given back."""
        if self._tokens is not None:
            self._tokens.take(tokens)

    def close(self) -> None:
        """Let nobody in any more."""
        if self._dispatcher is not None:
            self._dispatcher.cancel()
        for queue in self._waiting.values():
            for _, turn in queue:
                turn.cancel()
        self._waiting.clear()

    async def _dispatch(self) -> None:
        while self._waiting:
            agent_id, queue = next(iter(self._waiting.items()))
            tokens, turn = queue[0]
            if not turn.cancelled():
                wait = self._seconds_until(tokens)
                if wait:
                    await self._sleep(wait)
                    continue
                self._take(tokens)
                turn.set_result(None)
            queue.popleft()
            # The next agent's turn, though this one may have more to ask.
            self._waiting.move_to_end(agent_id)
            if not queue:
                del self._waiting[agent_id]

    def _seconds_until(self, tokens: int) -> float:
        wait = self._requests.seconds_until(1) if self._requests is not None else 0.0
        if self._tokens is not None:
            wait = max(wait, self._tokens.seconds_until(tokens))
        return wait

    def _take(self, tokens: int) -> None:
        if self._requests is not None:
            self._requests.take(1)
        if self._tokens is not None:
            self._tokens.take(tokens)


class ModelRegistry:
    """The models that are configured: made when first named, made anew when settings change."""

    def __init__(
        self,
        settings: CurrentSettings,
        make_model: Callable[[str], Model],
        make_encoder: Callable[[str], Encoder],
    ) -> None:
        """Make the registry.

        Args:
            settings: The configuration in use.
            make_model: Returns a port to the vendor of a model named `vendor:name`.
            make_encoder: Returns an encoder by its name in the configuration.
        """
        self._settings = settings
        self._make_model = make_model
        self._make_encoder = make_encoder
        self._models: dict[str, Model] = {}
        self._servers: dict[str, VendorState] = {}
        self._links: dict[str, ChainLink] = {}
        self._chains: dict[str, tuple[str, ...]] = {}
        self._encoders: dict[str, Encoder] = {}
        self._retired: list[Model | Encoder] = []
        self._registered: set[str] = set()
        self._chain = Chain(self.link)

    def put(self, models: Mapping[str, Model]) -> None:
        """Use these by vendor instead of configured ones."""
        self._models.update(models)
        self._registered.update(models)

    async def ask(self, question: ModelQuestion) -> Reply:
        """Put a question to the models of a chain."""
        return await self._chain.ask(question)

    def chain(self, model: str) -> tuple[str, ...]:
        """Return the models that an agent's names, as `vendor:name`; `default` is configured."""
        chain = self._chains.get(model)
        if chain is None:
            named = self._settings.current.default_model if model == DEFAULT_MODEL else model
            chain = self._chains[model] = chain_of(named)
        return chain

    def link(self, model: str) -> ChainLink:
        """Return the port and all that is known of a model such as `openai:gpt-4.1-mini`."""
        link = self._links.get(model)
        if link is not None:
            return link
        vendor, _, name = model.partition(":")
        settings = self._settings.current.vendor(vendor)
        port = self._models.get(vendor)
        if port is None:
            port = self._models[vendor] = self._make_model(model)
        server = self._servers.get(vendor)
        if server is None:
            pace = RateLimiter(settings.requests_per_minute, settings.tokens_per_minute)
            server = self._servers[vendor] = VendorState(rate=pace)
        link = self._links[model] = ChainLink(model, port, name, server, settings.retries)
        return link

    def profile(self, model: str) -> Profile:
        """Return what a model can take in; nothing is known of one that cannot be reached."""
        try:
            return self.link(model).profile
        except AsterismError:
            return Profile()

    def encoder(self, name: str) -> Encoder | None:
        """Return an encoder by its name in the configuration; None for `none`."""
        if name == "none":
            return None
        encoder = self._encoders.get(name)
        if encoder is None:
            encoder = self._encoders[name] = self._make_encoder(name)
        return encoder

    def breakers(self) -> dict[str, bool]:
        """Return whether each vendor that was asked is left alone since it fails."""
        return {vendor: server.breaker.is_open for vendor, server in self._servers.items()}

    def key_changed(self, vendor: str) -> None:
        """Ask with another key from now on; turns under way may still use the old one."""
        if vendor in self._models and vendor not in self._registered:
            self._retired.append(self._models.pop(vendor))
            self._links.clear()

    def vendors(self) -> list[str]:
        """Return the vendors whose configured ports were made."""
        return [vendor for vendor in self._models if vendor not in self._registered]

    def settings_changed(self, old: Settings, new: Settings) -> None:
        """Let go of what is configured otherwise now; turns under way may still use it."""
        self._chains.clear()
        for vendor in list(self._models):
            if old.models.get(vendor) != new.models.get(vendor):
                self._retired.append(self._models.pop(vendor))
                self._servers.pop(vendor, None)
                self._links.clear()
        for name in list(self._encoders):
            vendor = name.partition(":")[0]
            if (old.search.threads, old.models.get(vendor)) != (
                new.search.threads,
                new.models.get(vendor),
            ):
                self._retired.append(self._encoders.pop(name))

    async def close(self) -> None:
        """Close everything that was made."""
        for server in self._servers.values():
            server.rate.close()
        for part in (*self._models.values(), *self._encoders.values(), *self._retired):
            with contextlib.suppress(Exception):
                await part.close()
