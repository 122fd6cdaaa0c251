"""`decide`: may this actor do this to that? One pure function; every way to write asks it."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from asterism.types.memory import Permission
from asterism.types.people import OWNER, Tier


class Act(StrEnum):
    """What is to be done to a memory, the mildest first."""

    READ = "read"
    APPEND = "append"
    OVERWRITE = "overwrite"
    DELETE = "delete"
    """Put away or take back what others wrote."""
    GOVERN = "govern"
    """Change who may see or do what."""


@dataclass(frozen=True, slots=True)
class Actor:
    """Who wants to do it."""

    kind: str
    """`owner`, `person`, `agent`, or `system` for rules that an owner has set."""
    id: str
    name: str
    tier: Tier = Tier.OWNER
    """The least trusted content that the actor has read for this."""

    def __str__(self) -> str:
        return self.kind if self.kind in (OWNER, "system") else f"{self.kind}:{self.name}"


@dataclass(frozen=True, slots=True)
class Resource:
    """What it is to be done to."""

    kind: str
    """`block` or `passage`."""
    label: str
    permission: Permission | None = None
    """The actor's permission on it; None: it is not theirs to see."""
    read_only_part: str | None = None
    """The field or section that nobody but the owner may write, if the act touches one."""


@dataclass(frozen=True, slots=True)
class Rules:
    """What an owner has decided beforehand."""

    trusted: frozenset[Tier] = field(default_factory=frozenset[Tier])
    """Tiers whose content may change blocks without asking, beyond what owner and known say."""


@dataclass(frozen=True, slots=True)
class Allow:
    """Yes."""


@dataclass(frozen=True, slots=True)
class Ask:
    """Only if a person says so."""

    reason: str
    whom: str
    """`owner`, or `person` for the one the agent talks to."""


@dataclass(frozen=True, slots=True)
class Deny:
    """No, and why."""

    reason: str


Verdict = Allow | Ask | Deny

_ALLOWED: dict[Permission, frozenset[Act]] = {
    Permission.READ_ONLY: frozenset({Act.READ}),
    Permission.PARTNER: frozenset({Act.READ}),
    Permission.HUMAN: frozenset({Act.READ}),
    Permission.APPEND: frozenset({Act.READ, Act.APPEND}),
    Permission.READ_WRITE: frozenset({Act.READ, Act.APPEND, Act.OVERWRITE}),
    Permission.ADMIN: frozenset(Act),
}
_ASKED: dict[Permission, str] = {Permission.PARTNER: OWNER, Permission.HUMAN: "person"}
"""Permissions with which writing waits for a person, and for whom."""


def decide(actor: Actor, act: Act, resource: Resource, rules: Rules | None = None) -> Verdict:
    """Allow, ask or deny, with a reason that a person (and a model) understands."""
    if actor.kind in (OWNER, "system"):
        return Allow()
    named = f"{resource.kind} {resource.label!r}"
    if resource.permission is None:
        return Deny(f"There is no {named} for {actor}.")
    if act is Act.READ:
        return Allow()
    if resource.read_only_part is not None:
        return Deny(
            f"{resource.read_only_part!r} of {named} is read-only; only the owner changes it."
        )
    if resource.permission in _ASKED and act in (Act.APPEND, Act.OVERWRITE):
        return Ask(
            f"the permission on {named} is {resource.permission.value}", _ASKED[resource.permission]
        )
    if act not in _ALLOWED[resource.permission]:
        return Deny(
            f"The permission of {actor} on {named} is {resource.permission.value}, "
            f"which does not let it {act.value}."
        )
    return _by_trust(actor, resource, rules or Rules())


def _by_trust(actor: Actor, resource: Resource, rules: Rules) -> Verdict:
    if resource.kind != "block" or actor.tier.trusted or actor.tier in rules.trusted:
        return Allow()
    what = {
        Tier.STRANGER: "what a stranger said",
        Tier.TOOL: "what a tool brought in",
        Tier.DOCUMENT: "a document",
        Tier.WEB: "text from the web",
    }[actor.tier]
    return Ask(
        f"{actor} has read {what} in this turn, and block {resource.label!r} shapes what it does",
        OWNER,
    )
