"""Which member fits a message: its words and vectors against what members say they can do."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from asterism.memory import words
from asterism.records import dataclass
from asterism.types.groups import GroupMember

LEAST_SIMILARITY = 0.3
"""How near a message and a capability must be in meaning where they share no word."""


@dataclass(frozen=True, slots=True)
class CapabilityMatch:
    """A member that fits a message, how well, and why."""

    member: GroupMember
    score: float
    reason: str


def matches(text: str, members: Sequence[GroupMember]) -> list[CapabilityMatch]:
    """Return the members that fit a text, the best first; a shared word counts most."""
    said, vector = set(words.terms(text)), _vector(text)
    found: list[CapabilityMatch] = []
    for member in members:
        best = _fit(said, vector, member)
        if best is not None:
            found.append(CapabilityMatch(member, *best))
    return sorted(found, key=lambda match: (-match.score, match.member.position))


def best_match(text: str, members: Sequence[GroupMember]) -> CapabilityMatch | None:
    """Return the member that fits a text best; None if nobody fits."""
    return next(iter(matches(text, members)), None)


def _fit(said: set[str], vector: bytes, member: GroupMember) -> tuple[float, str] | None:
    """Return how well a member fits, and why; None if it does not."""
    shared: set[str] = set()
    nearest, name = 0.0, ""
    for capability in (*member.capabilities, *((member.domain,) if member.domain else ())):
        plain = capability.replace("_", " ")
        shared |= said & set(_terms(plain))
        near = words.cosine(vector, _vector(plain))
        if near > nearest:
            nearest, name = near, plain
    if shared:
        named = ", ".join(sorted(shared))
        return 1.0 + len(shared) + nearest, f"its capabilities share the words {named}."
    if nearest >= LEAST_SIMILARITY:
        return nearest, f"the message is about {name} ({nearest:.2f})."
    return None


@lru_cache(maxsize=4_096)
def _terms(text: str) -> tuple[str, ...]:
    return tuple(words.terms(text))


@lru_cache(maxsize=4_096)
def _vector(text: str) -> bytes:
    """Return the static vector of a text; nothing without the weights."""
    made = words.embed([text])
    return made[0] if made else b""
