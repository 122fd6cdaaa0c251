"""Tools that were registered: what they are made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


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
