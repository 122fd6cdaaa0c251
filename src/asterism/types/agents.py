"""Agents: lasting identities."""

from __future__ import annotations

from dataclasses import dataclass, field

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
