"""A trial of a model: one short question, and how the answer came."""

from __future__ import annotations

import time
from dataclasses import dataclass

from asterism.app.parts import make_model
from asterism.app.vendor_keys import Secret
from asterism.config import Settings
from asterism.errors import InvalidInput
from asterism.ports import Emit, ModelRequest
from asterism.types.turns import Usage, message_wire

QUESTION = "In one sentence: what is a constellation?"


@dataclass(frozen=True, slots=True)
class Trial:
    """What came of asking a model once."""

    model: str
    """As `vendor:name`."""
    text: str
    first: float
    """Seconds until the first piece of the answer; of the whole one if it came in one piece."""
    seconds: float
    """Seconds until the end of the answer."""
    usage: Usage
    finish: str

    @property
    def speed(self) -> float | None:
        """Tokens a second once the answer had begun; None where there is nothing to measure."""
        writing = self.seconds - self.first
        tokens = self.usage.output - 1
        return tokens / writing if tokens > 0 and writing > 0.001 else None


async def try_model(
    settings: Settings,
    model: str,
    *,
    question: str = QUESTION,
    most: int | None = 200,
    timeout: float = 120.0,  # noqa: ASYNC109 - the port keeps it, as for any request
    emit: Emit | None = None,
    secret: Secret = lambda _: None,
) -> Trial:
    """Ask one model, named as `vendor:name`, past all agents: no journal, no chain, no retries.

    `most` bounds the tokens of the answer, `secret` returns stored keys. Raises the model's own
    `ModelError`, or `ConfigError` when the vendor is not known.
    """
    vendor, colon, name = model.partition(":")
    if not (vendor and colon and name):
        raise InvalidInput(
            f"{model!r} is no model; vendor:name is needed, such as openai:gpt-4.1-mini."
        )
    began = time.monotonic()
    first = 0.0

    def note(kind: str, piece: str) -> None:
        nonlocal first
        if not first and piece:
            first = time.monotonic() - began
        if emit is not None:
            emit(kind, piece)

    port = make_model(settings, model, secret=secret)
    try:
        asked = [message_wire("user", question)]
        request = ModelRequest(name, asked, None, "trial", timeout, max_output=most)
        reply = await port.complete(request, note)
        seconds = time.monotonic() - began
    finally:
        await port.close()
    return Trial(model, reply.text, first or seconds, seconds, reply.usage, reply.finish)
