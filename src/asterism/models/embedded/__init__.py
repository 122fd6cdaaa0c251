"""The embedded model: weights on this machine and a child process that answers from them."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from asterism.errors import (
    ConfigError,
    ContextTooLong,
    ModelGarbled,
    ModelRefused,
    ModelUnavailable,
    NotFound,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from asterism.models.embedded.prompt import EmbeddedPrompt, ReplyFilter
    from asterism.models.embedded.supervisor import ChildOptions, RunningChild, Supervisor
    from asterism.ports import Emit, ModelRequest, Profile, RequestPart
    from asterism.types.turns import Reply

WINDOW = 8192
_CHILD_DEFAULTS = {
    "window": WINDOW,
    "parallel": 1,
    "cache_mib": 512,
    "threads": 0,
    "idle": 600,
    "start": 120,
}
_FIELDS: dict[str, Any] = {
    "temperature": 0.0,
    "top_k": 40,
    "min_p": 0.1,
    # Some models would think for minutes on a machine like this; templates of others ignore it.
    "chat_template_kwargs": {"enable_thinking": False},
}
_MAX_SILENCE = 60.0
"""Seconds in which a child that works has read a batch or written a token, however slow it is."""


class Embedded:
    """Models that run on this machine, each in a child process of its own that starts when needed.

    Options: `timeout` (seconds without progress after which a child is taken to hang), and
    `options`, a table with `window`, `parallel`, `cache_mib`, `threads`, `idle` and `start` for the
    child, and further fields for every request such as `temperature`.
    """

    def __init__(self, vendor: str, options: dict[str, Any]) -> None:
        from asterism.models.embedded.supervisor import ChildOptions
        from asterism.models.embedded.weights import WeightsDirectory

        self._vendor = vendor
        extra = dict(options.get("options") or {})
        self._child_options: ChildOptions = ChildOptions(**_child_numbers(vendor, extra))
        self._fields = {**_FIELDS, **extra}
        self._silence = float(options.get("timeout") or _MAX_SILENCE)
        self._cassette = options.get("cassette")
        self._weights = WeightsDirectory(options.get("directory"))
        self._supervisors: dict[str, Supervisor] = {}

    async def complete(self, request: ModelRequest, emit: Emit | None = None) -> Reply:
        """Ask the model once; it is started first if it is not up."""
        from asterism.models.embedded.prompt import ReplyFilter, render
        from asterism.models.embedded.supervisor import StopGeneration
        from asterism.types.turns import Reply, Usage

        prompt, spent = render(request), Usage()
        if prompt.chooses:
            choice = await self._ask(prompt, ReplyFilter(prompt, None))
            if choice.calls:
                return choice
            # Words come from a prompt without tools, which leads a small model to better ones.
            prompt, spent = render(replace(request, message_tools=None)), choice.usage
        sieve = ReplyFilter(prompt, emit)
        try:
            reply = await self._ask(prompt, sieve)
        except StopGeneration:
            text = sieve.text
            sent = sum(len(message) for message in prompt.messages)
            usage = Usage.estimate(sent, len(text.encode()))
            if sieve.prompt_tokens:
                usage = Usage(sieve.prompt_tokens, usage.output, sieve.cached_tokens)
            reply = Reply(text, usage=usage, finish="length")
        return replace(reply, usage=spent + reply.usage)

    async def _ask(self, prompt: EmbeddedPrompt, sieve: ReplyFilter) -> Reply:
        request = prompt.request
        if self._cassette is not None and self._cassette.plays:
            return await self._converse(prompt, sieve, "http://127.0.0.1:9", "")
        supervisor = await self._supervisor(request.model)
        deadline = time.monotonic() + request.timeout
        try:
            async with asyncio.timeout(request.timeout), supervisor.use() as running:
                left = max(0.0, deadline - time.monotonic())
                outgoing = replace(prompt, request=replace(request, timeout=left + 1))
                reply = await self._ask_child(supervisor, running, outgoing, sieve)
        except TimeoutError:
            raise ModelUnavailable(
                f"The embedded model {request.model!r} gave no whole answer within "
                f"{request.timeout:g} seconds. Ask again, allow it more time, or give the agent a "
                "smaller model.",
                slow=True,
                begun=True,
            ) from None
        supervisor.succeeded()
        return reply

    async def warm(self, request: ModelRequest) -> None:
        """Start the child and have it read the messages that never change; write nothing."""
        from asterism.models.embedded.prompt import render

        supervisor = await self._supervisor(request.model)
        fixed = replace(request, messages=request.messages[: request.frozen], schema=None)
        outgoing = replace(
            fixed, messages=render(fixed).messages, tools=None, tool_choice="auto", max_output=0
        )
        try:
            async with asyncio.timeout(request.timeout), supervisor.use() as running:
                await self._send(outgoing, _ignore_piece, running.address, running.key)
        except TimeoutError:
            raise ModelUnavailable(
                f"The embedded model {request.model!r} was not ready within {request.timeout:g} "
                "seconds. It goes on starting when it is asked.",
                slow=True,
            ) from None

    def profile(self, model: str) -> Profile:
        """Return what a model can take in."""
        from asterism.ports import Profile

        trained = 0
        if (weights := self._weights.available().get(model)) is not None:
            trained = weights.window
        window = min(trained, self._child_options.window) if trained else self._child_options.window
        return Profile(window=window, compact=True, images=False)

    def describe(self, request: ModelRequest) -> Sequence[RequestPart]:
        """Return all that the child is sent for a request, in its order."""
        from asterism.models.embedded.prompt import describe

        return describe(request)

    async def count(self, request: ModelRequest) -> int | None:
        """Return how many tokens a request has, while the child that can count them is up."""
        from asterism.models.embedded.prompt import render

        supervisor = self._supervisors.get(request.model)
        if supervisor is None:
            return None
        values = self._fields["chat_template_kwargs"]
        return await supervisor.count(render(request).messages, {"chat_template_kwargs": values})

    def pid(self, model: str) -> int | None:
        """Return the process id of a model's child while it is up."""
        supervisor = self._supervisors.get(model)
        return supervisor.pid if supervisor is not None else None

    def address(self, model: str) -> tuple[str, str]:
        """Return where a model's child listens and the key it wants; empty while it is not up."""
        supervisor = self._supervisors.get(model)
        return supervisor.address if supervisor is not None else ("", "")

    async def close(self) -> None:
        """Stop all children."""
        for supervisor in self._supervisors.values():
            await supervisor.close()

    async def _ask_child(
        self,
        supervisor: Supervisor,
        running: RunningChild,
        prompt: EmbeddedPrompt,
        sieve: ReplyFilter,
    ) -> Reply:
        """Ask a child; end it if it hangs, and say what happened in words that fit."""
        try:
            return await self._converse(prompt, sieve, running.address, running.key)
        except ContextTooLong:
            raise ContextTooLong(
                f"The conversation is longer than the {self._child_options.window:,} tokens that "
                f"the embedded model {prompt.request.model!r} takes. Shorten it, raise "
                f"models.{self._vendor}.options.window, or give the agent another model."
            ) from None
        except ModelUnavailable as error:
            # A process that was killed is gone a moment after its connection.
            if await _has_ended(running):
                from asterism.models.embedded.supervisor import describe_exit

                await supervisor.kill(running)
                raise ModelUnavailable(
                    f"The embedded model {prompt.request.model!r} was cut off: its process "
                    f"{describe_exit(running.process.returncode)}. Nothing of the answer was kept; "
                    "ask again, and it is started anew.",
                    begun=True,
                ) from None
            await supervisor.kill(running)
            raise ModelUnavailable(
                f"The embedded model {prompt.request.model!r} hung or could not be asked and was "
                f"ended ({error.message}). Ask again, and it is started anew.",
                slow=error.slow,
                begun=True,
            ) from None

    async def _converse(
        self, prompt: EmbeddedPrompt, sieve: ReplyFilter, address: str, key: str
    ) -> Reply:
        from asterism.types.turns import Usage

        spent = Usage()
        for tight in (False, True):
            fields = prompt.fields(tight=tight)
            outgoing = replace(
                prompt.request,
                messages=prompt.messages,
                tools=None,
                tool_choice="auto",
                schema=None,
                thoughts={},
                extra=b",".join(members for members in (prompt.request.extra, fields) if members),
                max_output=prompt.max_tokens(tight=tight),
            )
            # Streamed whether somebody listens or not: silence then means that it hangs.
            written = await self._send(outgoing, sieve, address, key, sieve.note_prompt)
            spent = replace(spent + written.usage, discarded=spent.input)
            reply = prompt.read(written)
            if reply is not None:
                return replace(reply, usage=spent)
        raise ModelGarbled(
            f"The embedded model {prompt.request.model!r} did not come to the end of a tool call, "
            "twice. Say it more simply, or give the agent another model. Nothing was called."
        )

    async def _supervisor(self, model: str) -> Supervisor:
        from asterism.models.embedded.supervisor import Supervisor

        # Reads the whole file when it is new or has changed.
        path = await asyncio.to_thread(self._weights.path, model)
        if path is None:
            raise self._missing_weights(model)
        supervisor = self._supervisors.get(model)
        if supervisor is None or supervisor.path != path:
            log = self._weights.directory / "logs" / f"{model}.log"
            options = replace(self._child_options, window=self.profile(model).window)
            supervisor = self._supervisors[model] = Supervisor(model, path, log, options)
        return supervisor

    def _missing_weights(self, model: str) -> ModelRefused:
        from asterism.models.embedded.weights import format_bytes

        try:
            weights = self._weights.weights(model)
        except NotFound as error:
            return ModelRefused(error.message)
        others = self._weights.installed()
        instead = f", or use '{self._vendor}:{others[0]}', which is" if others else ""
        return ModelRefused(
            f"The embedded model {model!r} is not on this machine. Get it with "
            f'"asterism model pull {model}" ({format_bytes(weights.size)}){instead}.'
        )

    async def _send(
        self,
        request: ModelRequest,
        emit: Emit,
        address: str,
        key: str,
        on_prompt: Callable[[int, int, int], None] | None = None,
    ) -> Reply:
        from asterism.models.openai import OpenAI

        options = {
            "base_url": f"{address}/v1",
            "unnamed": True,  # a port that the system chose means nothing to people
            "key": key,
            "timeout": self._silence,
            "options": {**self._fields, "cache_prompt": True, "return_progress": True},
            "cassette": self._cassette,
            "on_prompt": on_prompt,
        }
        # Made anew each time: the server closes a connection when a stream has ended, and a
        # request that follows at once would be sent into it.
        port = OpenAI(self._vendor, options)
        try:
            return await port.complete(request, emit)
        finally:
            await port.close()


def _child_numbers(vendor: str, extra: dict[str, Any]) -> dict[str, Any]:
    """Take out of the options what is for the child."""
    numbers: dict[str, Any] = {}
    for name, default in _CHILD_DEFAULTS.items():
        value = extra.pop(name, default)
        # A bool is an int, and a child without a window or a start has no use.
        least = 0 if name in {"threads", "cache_mib"} else 1
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise ConfigError(
                f"models.{vendor}.options.{name} is {value!r}; a whole number from {least} up is "
                f"needed, such as {default}."
            )
        numbers[name] = value
    return numbers


def _ignore_piece(_kind: str, _piece: str) -> None:
    pass


async def _has_ended(running: RunningChild) -> bool:
    try:
        async with asyncio.timeout(1):
            await running.process.wait()
    except TimeoutError:
        return False
    return True
