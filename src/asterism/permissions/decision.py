"""`decide`: may this actor do this to that? One pure function; every effect asks it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from asterism.permissions.grants import Grants
from asterism.permissions.policies import Policies, Policy, Ruling, Wanted
from asterism.types.approvals import PRESENT
from asterism.types.effects import Doubt, Effect, EffectKind, Reason, amount_of
from asterism.types.grants import Grant
from asterism.types.memory import Permission
from asterism.types.people import OWNER, Trust

SYSTEM = "system"


class Act(StrEnum):
    """What is to be done, the mildest first."""

    READ = "read"
    TALK = "talk"
    """Say something to an agent."""
    CALL = "call"
    """Run a tool."""
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
    trust: Trust = Trust.OWNER
    """The least trusted content that the actor has read for this."""
    roles: frozenset[str] = frozenset()

    def __str__(self) -> str:
        return self.kind if self.kind in (OWNER, SYSTEM) else f"{self.kind}:{self.name}"

    @property
    def tokens(self) -> frozenset[str]:
        """Every way in which a policy or an approval may name them."""
        if self.kind == OWNER:
            return frozenset({OWNER})
        named = {f"{self.kind}:{self.name}", f"{self.kind}:{self.id}", self.trust.value}
        return frozenset(named | {f"role:{one}" for one in self.roles})


@dataclass(frozen=True, slots=True)
class Resource:
    """What it is to be done to."""

    kind: str
    """`block`, `passage`, `tool`, or whatever a verb is about, such as `agent`."""
    label: str
    permission: Permission | None = None
    """The actor's permission on a memory; None: it is not theirs to see."""
    trust: Trust | None = None
    """How far what would be taken away is trusted; None: nothing would be."""
    read_only_part: str | None = None
    """The field or section that nobody but the owner may write, if the act touches one."""
    wanted: Wanted | None = None
    """For a tool, the call."""
    verb: str = ""
    """For a verb, its name, such as `home.create_agent`."""


@dataclass(frozen=True, slots=True)
class Authority:
    """What an owner has decided beforehand."""

    trusted: frozenset[Trust] = frozenset()
    """Levels whose content may change blocks, beyond what owner and known persons say."""
    policies: Policies = field(default_factory=Policies)
    roles: Mapping[str, frozenset[Act]] = field(default_factory=dict[str, "frozenset[Act]"])
    """What persons of a role may do by verbs."""


@dataclass(frozen=True, slots=True)
class Situation:
    """When and under what circumstances it is to be done."""

    authority: Authority = field(default_factory=Authority)
    grants: Grants = field(default_factory=Grants)
    doubt: Callable[[tuple[Effect, ...]], Doubt | None] | None = None
    """Tells whether what was said by those who are trusted covers effects, after all that was read;
    None where nobody keeps account of it."""
    now: int = 0
    turn_id: str = ""
    used: Mapping[str, float] = field(default_factory=dict[str, float])
    """How much of a policy's quota has gone by, by the policy's name."""
    givers: Mapping[str, frozenset[str]] = field(default_factory=dict[str, "frozenset[str]"])
    """Every way in which a policy may name those who have given grants, by their ids."""


@dataclass(frozen=True, slots=True)
class Allow:
    """Yes."""

    reason: str = ""
    policy: str = ""
    """The name of the policy that says so."""
    grant: str = ""
    """The id of the grant that says so."""


@dataclass(frozen=True, slots=True)
class Ask:
    """Only if a person says so."""

    reason: str
    reviewers: tuple[str, ...] = (OWNER,)
    """Who may: `owner`, `present`, `person:…` or `role:…`."""
    policy: str = ""
    because: tuple[Reason, ...] = ()
    """The way from untrusted text to what is to be done."""


@dataclass(frozen=True, slots=True)
class Deny:
    """No, and why."""

    reason: str
    policy: str = ""


Verdict = Allow | Ask | Deny

ALLOWED = Allow()
ROLES: Mapping[str, frozenset[Act]] = {
    "viewer": frozenset({Act.READ}),
    "operator": frozenset({Act.READ, Act.TALK, Act.APPEND}),
    "editor": frozenset({Act.READ, Act.TALK, Act.APPEND, Act.OVERWRITE}),
    "admin": frozenset(Act),
}
"""Roles that need no definition."""
_ALLOWED: dict[Permission, frozenset[Act]] = {
    Permission.READ_ONLY: frozenset({Act.READ}),
    Permission.PARTNER: frozenset({Act.READ}),
    Permission.HUMAN: frozenset({Act.READ}),
    Permission.APPEND: frozenset({Act.READ, Act.APPEND}),
    Permission.READ_WRITE: frozenset({Act.READ, Act.APPEND, Act.OVERWRITE}),
    Permission.ADMIN: frozenset(Act),
}
_ASKED: dict[Permission, str] = {Permission.PARTNER: OWNER, Permission.HUMAN: PRESENT}
"""Permissions with which writing waits for a person, and for whom."""
_HARSH = frozenset({EffectKind.PAY, EffectKind.GRANT, EffectKind.DELETE, EffectKind.RUN})
"""What somebody who is not the owner cannot have done on their word alone."""
_READ = {
    Trust.KNOWN: "what somebody else said",
    Trust.STRANGER: "what a stranger said",
    Trust.TOOL: "what a tool brought in",
    Trust.DOCUMENT: "a document",
    Trust.WEB: "text from the web",
}


def decide(
    actor: Actor, act: Act, resource: Resource, situation: Situation | None = None
) -> Verdict:
    """Allow, ask or deny, with a reason that a person (and a model) understands."""
    if actor.kind in (OWNER, SYSTEM):
        return ALLOWED
    now = situation or _ORDINARY
    if resource.wanted is not None:
        return _call(actor, resource.wanted, now)
    if resource.verb:
        return _verb(actor, act, resource, now)
    return _memory(actor, act, resource, now)


_ORDINARY = Situation()


# -- calls -----------------------------------------------------------------------------------------


def _call(actor: Actor, wanted: Wanted, now: Situation) -> Verdict:
    policy = now.authority.policies.first(wanted)
    if policy is not None and policy.ruling is Ruling.DENY:
        why = policy.reason or f"{policy} does not let it"
        return Deny(f"{wanted.tool} may not be called so: {why}.", policy.name)
    owners = now.grants.covering(actor.id, wanted, now.turn_id, now.now, _by_owner)
    if owners is not None:
        return _granted(owners)
    verdict = _ungranted(actor, wanted, policy, now)
    if not isinstance(verdict, Ask) or not now.givers:
        return verdict
    # Who is not the owner has said yes to no more than what they may be asked about.
    may = _may_answer(verdict.reviewers, now.givers)
    other = now.grants.covering(actor.id, wanted, now.turn_id, now.now, may)
    return verdict if other is None else _granted(other)


def _ungranted(actor: Actor, wanted: Wanted, policy: Policy | None, now: Situation) -> Verdict:
    if policy is not None:
        return _by_policy(policy, wanted, now)
    if wanted.asks:
        return _by_audience(wanted, Ask(f"{wanted.tool} asks before each call"))
    return _by_audience(wanted, _by_trust(actor, wanted, now))


def _granted(grant: Grant) -> Allow:
    return Allow(f"grant {grant.id} of {grant.given_by}", grant=grant.id)


def _by_owner(grant: Grant) -> bool:
    return grant.given_by == OWNER


def _may_answer(
    reviewers: tuple[str, ...], givers: Mapping[str, frozenset[str]]
) -> Callable[[Grant], bool]:
    def may(grant: Grant) -> bool:
        return names_one_of(reviewers, givers.get(grant.given_by, frozenset()))

    return may


def names_one_of(reviewers: Iterable[str], tokens: frozenset[str]) -> bool:
    """Tell whether reviewers name somebody whom all of these words mean; the case of roles aside.

    Only words for one person or a role count: nobody reviews for being a stranger.
    """
    meant = {one for one in map(_as_reviewer, tokens) if one.partition(":")[0] in _REVIEWERS}
    return not meant.isdisjoint(map(_as_reviewer, reviewers))


_REVIEWERS = frozenset({OWNER, PRESENT, "person", "role"})


def _as_reviewer(word: str) -> str:
    return word.casefold() if word.startswith("role:") else word


def _by_policy(policy: Policy, wanted: Wanted, now: Situation) -> Verdict:
    if policy.ruling is Ruling.ASK:
        return Ask(policy.reason or f"{policy} wants it", policy.reviewers, policy.name)
    quota = policy.quota
    if quota is not None:
        this = 1.0
        if quota.of == "amount":
            this = amount_of(wanted.effects)
        if now.used.get(policy.name, 0.0) + this > quota.most:
            return Ask(
                f"{policy} allows {quota.words or quota.most}, and this would pass it",
                policy.reviewers,
                policy.name,
            )
    return Allow(str(policy), policy=policy.name)


def _by_trust(actor: Actor, wanted: Wanted, now: Situation) -> Verdict:
    outside = _outside(wanted.effects)
    if not outside:
        return ALLOWED
    harsh = next((one for one in outside if one.kind in _HARSH), None)
    if harsh is not None and OWNER not in wanted.people:
        return Ask(f"it would {harsh}, and it was not the owner who asked for it")
    trust = wanted.trust
    if trust is Trust.OWNER or (trust.trusted and harsh is None):
        return ALLOWED
    unreadable = next((one for one in outside if one.unreadable), None)
    if unreadable is not None:
        return Ask(f"it would {unreadable}, so that nobody can tell what it would do")
    unreadable = next((one for one in outside if one.amount_unreadable), None)
    if unreadable is not None:
        return Ask(f"it would {unreadable}, so that nobody can tell how much it is")
    if now.doubt is None:
        return Ask(f"{actor.name} has read {_READ[trust]}, and this would {outside[0]}")
    doubt = now.doubt(wanted.effects)
    if doubt is None:
        return ALLOWED
    return Ask(doubt.reason, because=doubt.because)


def has_outside_effect(effects: tuple[Effect, ...]) -> bool:
    """Tell whether a call changes or tells something outside of the agent and its owner."""
    return bool(_outside(effects))


def _outside(effects: tuple[Effect, ...]) -> tuple[Effect, ...]:
    return tuple(one for one in effects if one.kind.outside and not _tells_owner(one))


def _by_audience(wanted: Wanted, verdict: Verdict) -> Verdict:
    """Ask the owner, too, if those present would see what they may not."""
    if isinstance(verdict, Deny) or wanted.participants.can_see(wanted.audience):
        return verdict
    reads = next(
        (one for one in wanted.effects if one.kind is EffectKind.READ and one.targets), None
    )
    what = f"reading {', '.join(reads.targets)}" if reads else f"calling {wanted.tool}"
    others = wanted.participants.without(wanted.audience)
    names = ", ".join(wanted.names.get(one, "somebody unknown") for one in others)
    reason = f"{what} would show its result to {names}, who may not see it"
    if isinstance(verdict, Ask):
        return replace(verdict, reason=f"{verdict.reason}; {reason}")
    return Ask(reason)


def _tells_owner(effect: Effect) -> bool:
    """Tell whether a effect only says something to the owner, as any answer does."""
    return (
        effect.kind is EffectKind.SEND and set(effect.targets) == {OWNER} and not effect.unreadable
    )


# -- verbs -----------------------------------------------------------------------------------------


def _verb(actor: Actor, act: Act, resource: Resource, now: Situation) -> Verdict:
    policy = now.authority.policies.first_for_verb(resource.verb, actor.tokens)
    named = f"{resource.kind} {resource.label!r}" if resource.label else resource.kind
    if policy is not None:
        if policy.ruling is Ruling.ALLOW:
            return Allow(str(policy), policy=policy.name)
        why = policy.reason or f"{policy} does not let them"
        return Deny(f"{actor} may not {resource.verb} ({named}): {why}.", policy.name)
    if act is Act.TALK and actor.kind == "person" and actor.trust is Trust.KNOWN:
        return ALLOWED
    for role in actor.roles:
        if act in now.authority.roles.get(role, ROLES.get(role, frozenset())):
            return Allow(f"role {role}")
    has = ", ".join(sorted(actor.roles)) or "no role"
    return Deny(
        f"{actor} has {has}, which does not let them {resource.verb} ({named}). "
        "The owner can give them a role or a policy."
    )


# -- memory ----------------------------------------------------------------------------------------


def _memory(actor: Actor, act: Act, resource: Resource, now: Situation) -> Verdict:
    named = f"{resource.kind} {resource.label!r}"
    if resource.permission is None:
        return Deny(f"There is no {named} for {actor}.")
    if act is Act.READ:
        return ALLOWED
    if resource.read_only_part is not None:
        return Deny(
            f"{resource.read_only_part!r} of {named} is read-only; only the owner changes it."
        )
    if resource.permission in _ASKED and act in (Act.APPEND, Act.OVERWRITE):
        return Ask(
            f"the permission on {named} is {resource.permission.value}",
            (_ASKED[resource.permission],),
        )
    if act not in _ALLOWED[resource.permission]:
        return Deny(
            f"The permission of {actor} on {named} is {resource.permission.value}, "
            f"which does not let it {act.value}."
        )
    return _memory_by_trust(actor, resource, now)


def _memory_by_trust(actor: Actor, resource: Resource, now: Situation) -> Verdict:
    """Ask after untrusted text about what shapes an agent, and about what it would take away."""
    trust = actor.trust
    if trust.trusted or trust in now.authority.trusted:
        return ALLOWED
    if resource.kind == "block":
        return Ask(
            f"{actor} has read {_READ[trust]} in this turn, and block {resource.label!r} shapes "
            "what it does"
        )
    if resource.trust is not None and resource.trust.trusted:
        return Ask(
            f"{actor} has read {_READ[trust]} in this turn, and what this would take away comes "
            "from somebody who is trusted"
        )
    return ALLOWED
