"""Agents: lasting identities."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from asterism.errors import InvalidInput
from asterism.types.rules import Rule


@dataclass(frozen=True, slots=True)
class Limits:
    """How far one turn may go; reaching one ends the turn with an explanation."""

    steps: int = 24
    seconds: float = 600.0
    tokens: int = 1_000_000
    calls: int = 64


DEFAULT_MODEL = "default"
"""The model of an agent that names none: whichever the configuration says at each turn."""


def chain_of(model: str) -> tuple[str, ...]:
    """Return the models that are asked one after the other: `a:b, c:d` names two."""
    return tuple(name.strip() for name in model.split(","))


@dataclass(frozen=True, slots=True)
class Agent:
    """A lasting identity: who it is, which model it thinks with, what it may use."""

    id: str
    name: str
    model: str
    """`vendor:name`, several of them separated by commas (the next is asked when one fails), or
    `default`."""
    system: str
    created_at: int
    tools: tuple[str, ...] | None = None
    """Names of the tools it may call; None stands for every tool there is."""
    limits: Limits = field(default_factory=Limits)
    version: int = 1
    rules: tuple[Rule, ...] = ()
    """What its owner wants of its calls."""


def now_ms() -> int:
    """Return the time as milliseconds since 1970, UTC; the unit of every time in the store."""
    return time.time_ns() // 1_000_000


def new_id(prefix: str) -> str:
    """Return a new id: 48 bits of time, then 48 random bits."""
    return f"{prefix}_{now_ms():012x}{os.urandom(6).hex()}"


def turn_id_for(message_id: str) -> str:
    """Return the id of the turn that answers a message: known before the turn begins."""
    return "turn_" + message_id.partition("_")[2]


def message_id_for(turn_id: str) -> str:
    """Return the id of the message that a turn answers."""
    return "msg_" + turn_id.partition("_")[2]


@dataclass(frozen=True, slots=True)
class HttpCall:
    """A request that carries a call out."""

    url: str
    """`{name}` in it stands for an argument."""
    method: str = "POST"
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    """`secret:NAME` stands for a stored key."""


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool as it is registered: Python source with `def run(…)`, or a request."""

    name: str
    description: str
    schema: Mapping[str, Any]
    python: str | None = None
    http: HttpCall | None = None
    effects: tuple[Mapping[str, Any], ...] | None = None
    """What its calls do, in the JSON form of `ToolEffect`; None: it does not say."""
    trust: str = "tool"
    retry_safety: str = "unknown"
    ask: bool = False
    timeout: float = 30.0
    audience: str = "owner"
    """Who may see its results."""


@dataclass(frozen=True, slots=True)
class RegisteredTool:
    """A version of a registered tool."""

    spec: ToolSpec
    version: int
    made_by: str
    created_at: int
    removed_at: int | None = None


@dataclass(frozen=True, slots=True)
class Halt:
    """A stop of a whole constellation."""

    id: str
    agent_id: str | None
    """The agent that called for it; None: the owner did."""
    turn_id: str | None
    severity: str
    reason: str
    at: int


@dataclass(frozen=True, slots=True)
class Schedule:
    """A message to an agent that falls due at a time."""

    id: str
    agent_id: str
    text: str
    due_at: int
    cron: str | None
    """Five fields, UTC; None when it happens once."""
    channel: str | None
    reply_to: str | None
    """Where the answer goes: where the matter came from."""
    created_at: int
    participants: str | None = None
    """Who was present when it was made, as JSON: they hear what comes of it. None: the owner."""


LARGEST_IMAGE = 10 * 1024 * 1024
_KINDS = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)


@dataclass(frozen=True, slots=True)
class Blob:
    """Bytes with their type."""

    id: str
    """The SHA-256 in hexadecimal."""
    type: str
    body: bytes


def image(body: bytes) -> Blob:
    """Return an image as a blob, or raise `InvalidInput` if models could not see it."""
    if len(body) > LARGEST_IMAGE:
        raise InvalidInput(
            f"The image has {len(body) / 1e6:.1f} MB, and at most {LARGEST_IMAGE >> 20} MiB can be "
            "taken. Make it smaller. Nothing was stored."
        )
    kind = next((kind for magic, kind in _KINDS if body.startswith(magic)), "")
    if body[:4] == b"RIFF" and body[8:12] == b"WEBP":
        kind = "image/webp"
    if not kind:
        raise InvalidInput(
            f"The {len(body):,} bytes are no image that models can see: PNG, JPEG, GIF or WebP is "
            "needed. Convert it. Nothing was stored."
        )
    return Blob(hashlib.sha256(body).hexdigest(), kind, body)
