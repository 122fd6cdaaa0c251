"""Every contract a plugin can fulfil, on one page."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Protocol

from asterism.types.messages import Delivery, Receipt
from asterism.types.turns import Reply

Emit = Callable[[str, str], None]
"""Called with a kind (`text`, `reasoning`) and a piece of it while a reply streams in."""


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """One call to a language model. Messages are wire forms: joined, never parsed again."""

    model: str
    """The model's name at its vendor."""
    messages: list[bytes]
    """Chat-completions messages as JSON, the system prompt first."""
    tools: bytes | None
    """The JSON array of tool descriptions, or None."""
    key: str
    """The step that asks, such as `turn_…/0/reply`; the same for a repeat of the same call."""
    timeout: float
    """Seconds until the caller gives up."""


class Model(Protocol):
    """A language model's vendor: takes a request, gives the whole reply.

    With `emit`, pieces are handed over as they arrive; the reply returned is whole all the same.
    Raises `ModelUnavailable`, `ModelRefused` or `ModelGarbled`, and nothing else.
    """

    async def complete(self, request: ModelRequest, emit: Emit | None = None) -> Reply:
        """Ask the model once."""
        ...

    async def close(self) -> None:
        """Let go of connections."""
        ...


class ModelFactory(Protocol):
    """What an entry point of the group `asterism.models` names."""

    def __call__(self, vendor: str, options: dict[str, Any]) -> Model:
        """Make the model port for a vendor, from its table `[models.<vendor>]`."""
        ...


class Accept(Protocol):
    """How a channel hands a message in."""

    async def __call__(
        self,
        target: str,
        text: str,
        *,
        external_id: str | None = None,
        sender: str | None = None,
        reply_to: str | None = None,
    ) -> Receipt:
        """Store the message; on return it will be answered exactly once."""
        ...


class Channel(Protocol):
    """A two-way door to people."""

    async def deliver(self, delivery: Delivery) -> None:
        """Hand a message over. The same `delivery.key` twice must reach people once.

        Raises `DeliveryError`, with `final=True` when trying again is useless.
        """
        ...

    async def listen(self, accept: Accept) -> None:
        """Take messages in until cancelled; return at once if the channel only sends."""
        ...

    async def close(self) -> None:
        """Let go of connections."""
        ...


class ChannelFactory(Protocol):
    """What an entry point of the group `asterism.channels` names."""

    def __call__(self, name: str, options: dict[str, Any]) -> Channel:
        """Make a channel from its table `[channels.<name>]`."""
        ...


Clock = Callable[[], int]
"""Milliseconds since 1970, UTC."""

Sleep = Callable[[float], Awaitable[None]]
