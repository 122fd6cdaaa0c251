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
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from asterism.errors import (
    ConfigError,
    ContextTooLong,
    KeyRefused,
    ModelBusy,
    ModelError,
    ModelGarbled,
    ModelRefused,
    ModelUnavailable,
)
from asterism.models.pace import Pace
from asterism.ports import Emit, Hold, Model, ModelRequest, Profile, Profiled, Question, Sleep
from asterism.telemetry import ModelWatch, record_failover
from asterism.telemetry.redaction import SECRETS, RequestRedactor, redact_name
from asterism.types.turns import Call, Reply

LONGEST_PAUSE = 30.0
"""Seconds that a turn waits before the same model is tried again."""
PATIENCE = 5.0
"""The same where another model could be asked instead."""
_LOOK_AGAIN = 0.1
_SQUEEZES = 3
_FAILURES_TO_OPEN = 5
_FIRST_REST, _LONGEST_REST = 15.0, 300.0


_ANY = Profile()


class Breaker:
    """Stops hammering a server that fails: after some failures in a row it is left alone a while.

    Then one request may try; if that fails too, the rest is twice as long.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._failures = 0
        self._rest = _FIRST_REST
        self._rests_until = 0.0
        self._trying = False

    @property
    def resting(self) -> float:
        """Seconds that the server is left alone for, 0 if it can be asked."""
        return max(0.0, self._rests_until - self._clock())

    @property
    def on_trial(self) -> bool:
        """Whether it has rested and one request now finds out whether it is well."""
        return self.is_open and self._trying and not self.resting

    @property
    def is_open(self) -> bool:
        """Whether it has failed too often to be asked as usual."""
        return self._failures >= _FAILURES_TO_OPEN

    def begin(self) -> None:
        """Note that a request is made."""
        self._trying = True

    def succeeded(self) -> bool:
        """Note a success; tell whether there was trouble before."""
        had_trouble, self._failures = self._failures > 0, 0
        self._rest, self._rests_until, self._trying = _FIRST_REST, 0.0, False
        return had_trouble

    def gave_up(self) -> None:
        """Note that a request ended without telling how the server is."""
        self._trying = False

    def failed(self) -> None:
        """Note a failure."""
        self._failures += 1
        self._trying = False
        if self._failures >= _FAILURES_TO_OPEN:
            self._rests_until = self._clock() + self._rest
            self._rest = min(self._rest * 2, _LONGEST_REST)

    def wait(self, seconds: float) -> None:
        """Leave the server alone because it says so."""
        self._rests_until = max(self._rests_until, self._clock() + seconds)
        self._trying = False


@dataclass(slots=True)
class Server:
    """What is known of a vendor's server, shared by all agents of this process."""

    breaker: Breaker = field(default_factory=Breaker)
    pace: Pace = field(default_factory=lambda: Pace(None, None))
    told: bool = False
    """Whether the owner knows that it is in trouble."""


@dataclass(frozen=True, slots=True)
class Link:
    """One model of a chain: its port, its name there, and its vendor's server."""

    model: str
    port: Model
    name: str
    server: Server
    retries: int = 2

    asked_profile: Callable[[str], Profile] | None = field(init=False, compare=False)

    def __post_init__(self) -> None:
        # Looking whether a port fulfils a protocol takes 20 µs, which no turn should pay.
        ask = self.port.profile if isinstance(self.port, Profiled) else None
        object.__setattr__(self, "asked_profile", ask)

    @property
    def profile(self) -> Profile:
        """What the model can take in."""
        return self.asked_profile(self.name) if self.asked_profile is not None else _ANY


class Chain:
    """Puts questions to models, whichever of an agent's chain can answer."""

    def __init__(self, link: Callable[[str], Link], *, sleep: Sleep = asyncio.sleep) -> None:
        """Make a chain; `link` finds a model by `vendor:name`."""
        self._link = link
        self._sleep = sleep
        self._cleaned = RequestRedactor()

    async def ask(self, question: Question) -> Reply:
        """Return the reply of the first model that gives one."""
        watcher = _Watcher(question)
        problems: list[ModelError] = []
        for place, model in enumerate(question.models):
            last = place == len(question.models) - 1
            try:
                link = self._link(model)
            except ConfigError as error:
                problems.append(ModelRefused(error.message))
                continue
            try:
                with ModelWatch(model, streamed=question.emit is not None) as watcher.call:
                    reply = await self._insist(link, question, watcher, last=last)
                    watcher.call.reply = reply
            except ModelError as error:
                problems.append(error)
                if not last:
                    record_failover(model, error, question.models[place + 1])
                _tell_owner(link, question, error, last=last)
                watcher.again(error)
            else:
                link.server.told = False
                said = f"{reply.text}{reply.reasoning}{reply.finish}"
                if reply.calls or reply.thought or not said.isascii():
                    reply = _sound(reply)
                return reply.said_by(model)
        raise _summary(problems)

    async def _insist(
        self, link: Link, question: Question, watcher: _Watcher, *, last: bool
    ) -> Reply:
        """Ask one model, again where that may help."""
        profile = link.profile
        attempt = squeeze = 0
        while True:
            await self._wait_for(link, last=last)
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
                if squeeze > _SQUEEZES:
                    raise
                problem: ModelError = error
            except ModelUnavailable as error:
                attempt += 1
                if attempt > link.retries or not await self._paused(
                    link, error, attempt, request.timeout, last=last
                ):
                    raise
                problem = error
            watcher.call.retry(problem)
            watcher.again(problem)

    async def _paused(
        self, link: Link, error: ModelUnavailable, attempt: int, time_left: float, *, last: bool
    ) -> bool:
        """Wait before the next attempt; False if it would take too long or is of no use."""
        patience = min(LONGEST_PAUSE if last else PATIENCE, time_left)
        if wish := error.retry_after:
            # With jitter, lest all who wait come back at the same instant.
            link.server.breaker.wait(wish * random.uniform(1.0, 1.1))
            return wish <= patience
        if error.slow and not last:
            return False
        pause = min(8.0, 0.25 * 2**attempt) * random.uniform(0.5, 1.0)
        if pause > patience:
            return False
        await self._sleep(pause)
        return True

    async def _wait_for(self, link: Link, *, last: bool) -> None:
        """Return when the server may be asked; raise if that takes too long."""
        breaker = link.server.breaker
        patience = LONGEST_PAUSE if last else PATIENCE
        while (resting := breaker.resting) or breaker.on_trial:
            if not resting:
                resting, patience = _LOOK_AGAIN, patience - _LOOK_AGAIN
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
        self, link: Link, request: ModelRequest, question: Question, watcher: _Watcher
    ) -> Reply:
        breaker, pace = link.server.breaker, link.server.pace
        purse = question.purse or _NO_PURSE
        thought = 0
        if not pace.unbounded:
            thought = sum(map(len, request.messages)) // 4 + (request.max_output or 0)
            came = time.monotonic()
            await pace.enter(request.agent_id, thought)
            watcher.call.queued(time.monotonic() - came)
        hold = await purse.reserve(link.model, request)
        if hold is not None and request.max_output is None:
            request = replace(request, max_output=hold.max_output)
        breaker.begin()
        try:
            reply = await link.port.complete(request, watcher.emit)
        except ModelUnavailable as error:
            if error.begun or watcher.shown:
                purse.presume(hold)
            else:
                purse.release(hold)
            if isinstance(error, ModelBusy):
                breaker.gave_up()
            else:
                breaker.failed()
            raise
        except ModelGarbled:
            purse.presume(hold)
            breaker.failed()
            raise
        except ModelError:
            # The server is well: it has read the request and said no.
            purse.release(hold)
            breaker.succeeded()
            raise
        except BaseException:
            purse.presume(hold)
            breaker.gave_up()
            raise
        breaker.succeeded()
        purse.settle(hold, reply)
        if not pace.unbounded:
            pace.correct(reply.usage.total - thought)
        return reply


def _sound(reply: Reply) -> Reply:
    """Return a reply that can be stored and sent back: valid Unicode, and no key in an id."""
    calls = tuple(
        Call(redact_name(_valid(one.id)), _valid(one.name), _valid(one.arguments))
        for one in reply.calls
    )
    try:
        reply.thought.decode()
        thought = reply.thought
    except UnicodeDecodeError:
        thought = b""  # a vendor takes its own record back unchanged or not at all
    text, reasoning, finish = map(_valid, (reply.text, reply.reasoning, reply.finish))
    made = (text, reasoning, finish, calls, thought)
    if made == (reply.text, reply.reasoning, reply.finish, reply.calls, reply.thought):
        return reply
    return replace(
        reply, text=text, reasoning=reasoning, finish=finish, calls=calls, thought=thought
    )


def _valid(text: str) -> str:
    """Return a text without lone surrogates, as JSON may spell them; two that fit are one sign."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


class _NoPurse:
    """The purse where no money can be spent."""

    async def reserve(self, model: str, request: ModelRequest) -> Hold | None:
        """Set nothing aside."""

    def settle(self, hold: Hold | None, reply: Reply) -> None:
        """Count nothing."""

    def release(self, hold: Hold | None) -> None:
        """Count nothing."""

    def presume(self, hold: Hold | None) -> None:
        """Count nothing."""


_NO_PURSE = _NoPurse()


class _Watcher:
    """Hands pieces on and knows whether there were any."""

    def __init__(self, question: Question) -> None:
        self._emit = question.emit
        self.shown = False
        self.call: ModelWatch

    @property
    def emit(self) -> Emit | None:
        """What the model's port gets."""
        return None if self._emit is None else self.call.listen(self._hand_on)

    def _hand_on(self, kind: str, piece: str) -> None:
        self.shown = True
        assert self._emit is not None
        self._emit(kind, piece)

    def again(self, problem: ModelError) -> None:
        """Tell whoever watches that the pieces so far are void."""
        if self.shown and self._emit is not None:
            self._emit("again", problem.message)
        self.shown = False


def _tell_owner(link: Link, question: Question, error: ModelError, *, last: bool) -> None:
    """Tell the owner once that a model is passed over, until it has answered again."""
    if link.server.told or (last and not isinstance(error, KeyRefused)):
        return
    link.server.told = True
    what_now = "" if last else " Meanwhile the next model of the chain is asked."
    question.notify("model", error.message + what_now)


def _summary(problems: list[ModelError]) -> ModelError:
    if len(problems) == 1:
        return problems[0]
    said = " ".join(f"{place}. {one.message}" for place, one in enumerate(problems, 1))
    message = f"None of the {len(problems)} models of its chain answered. {said}"
    if all(isinstance(one, ModelRefused) for one in problems):
        return ModelRefused(message)
    return ModelUnavailable(message)
