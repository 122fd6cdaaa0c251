"""Judging a call before it is run: what it does, who wants it, what was read before it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from asterism.agents.account import speaker_of
from asterism.memory import people
from asterism.permissions import (
    PRESENT,
    Act,
    Actor,
    Allow,
    Ask,
    Authority,
    Grants,
    Resource,
    Situation,
    Verdict,
    Wanted,
    decide,
)
from asterism.store import approvals, grants, journal, quotas
from asterism.store import people as stored_people
from asterism.store.database import Connection
from asterism.types.effects import Doubt, Effect, EffectKind, amount_of
from asterism.types.events import Event
from asterism.types.grants import Grant
from asterism.types.people import OWNER, Audience, Participants, Trust

if TYPE_CHECKING:
    from asterism.agents.turn import Turn
    from asterism.tools.tool import Tool

_LONGEST_ARGUMENT = 500
_DAY = 86_400_000


async def judge(
    turn: Turn,
    key: str,
    tool: Tool,
    arguments: Mapping[str, Any],
    trust: Trust,
    audience: Audience,
    *,
    asks: bool = False,
    approved_by: str | None = None,
) -> Verdict:
    """Return what the one decision says to a call, and note it in the audit log.

    Args:
        turn: The turn.
        key: The call's.
        tool: What is called.
        arguments: As the tool reads them.
        trust: The least trusted of what the model had read when it made the call.
        audience: Who may see what the call brings back.
        asks: Whether a rule of the agent wants a person to be asked, whatever the tool says.
        approved_by: Who has approved this very call, if it was asked for.
    """
    agent, participants = turn.agent, turn.context.participants
    names: dict[str, str] = {}
    if not participants.can_see(audience):
        names = await turn.means.database.read(
            lambda tx: people.names_of(tx, turn.live.constellation, participants)
        )
    wanted = Wanted(
        agent=agent.name,
        tool=tool.name,
        arguments=arguments,
        effects=tool.effects(dict(arguments)),
        operation=str(arguments.get("operation") or ""),
        trust=trust,
        people=turn.people,
        asks=tool.ask or asks,
        audience=audience,
        participants=participants,
        names=names,
        definition=tool.digest(arguments),
    )
    verdict = await _decide(turn, key, Actor("agent", agent.id, agent.name, wanted.trust), wanted)
    if isinstance(verdict, Ask) and approved_by is not None:
        verdict = Allow(f"approved by {approved_by or 'a person'}")
    if isinstance(verdict, Allow) and any(one.kind is EffectKind.PAY for one in wanted.effects):
        turn.payments[key] = wanted.effects
    turn.note(event_of(turn, key, wanted, verdict))
    return verdict


def note_question(
    turn: Turn, key: str, tool: Tool, arguments: Mapping[str, Any], reason: str
) -> None:
    """Note in the audit log that a call which was allowed waits for a person all the same."""
    wanted = Wanted(turn.agent.name, tool.name, arguments, tool.effects(dict(arguments)))
    turn.note(event_of(turn, key, wanted, Ask(reason)))


class _Quota(NamedTuple):
    """The quota of a policy."""

    policy: str
    span: int
    of: str
    """`calls` or `amount`."""


async def _decide(turn: Turn, key: str, actor: Actor, wanted: Wanted) -> Verdict:
    authority = turn.means.authority()
    resource = Resource("tool", wanted.tool, wanted=wanted)
    now = turn.means.clock()
    situation = Situation(authority, doubt=_always, now=now, turn_id=turn.id)
    verdict = decide(actor, Act.CALL, resource, situation)
    quota = _quota_of(authority, verdict)
    if not isinstance(verdict, Ask) and quota is None:
        return verdict
    # Only now it matters what was granted, and what of a quota has gone by.
    granted, used, givers = await _granted_and_used(turn, actor, wanted, quota, now)
    situation = replace(situation, grants=granted, used=used, givers=givers)
    verdict = decide(actor, Act.CALL, resource, situation)
    if isinstance(verdict, Ask) and _rests_on_trust(actor, resource, situation):
        # Only now it matters what was asked for.
        situation = replace(situation, doubt=await _doubt(turn, key))
        verdict = decide(actor, Act.CALL, resource, situation)
    if isinstance(verdict, Allow) and verdict.grant:
        turn.use_grant(verdict.grant)
        if verdict.grant in used:
            turn.use_quota(quotas.Use(actor.id, verdict.grant, now, 0.0))
    elif isinstance(verdict, Allow) and quota is not None and verdict.policy == quota.policy:
        amount = amount_of(wanted.effects)
        # A quota of calls may let one pass whose amount cannot be read.
        amount = amount if math.isfinite(amount) else 0.0
        turn.use_quota(quotas.Use(actor.id, quota.policy, now, amount))
    return verdict


async def _granted_and_used(
    turn: Turn, actor: Actor, wanted: Wanted, quota: _Quota | None, now: int
) -> tuple[Grants, dict[str, float], dict[str, frozenset[str]]]:
    """Return the grants that count for a call, what has gone by of them and of a quota, and givers.

    These are persons other than the owner, each with every way in which a policy may name them.
    """
    opening = turn.recorded.get("in")
    opener = OWNER if OWNER in turn.people or opening is None else speaker_of(opening)

    async def read(
        tx: Connection,
    ) -> tuple[list[Grant], dict[str, float], dict[str, frozenset[str]]]:
        live = await grants.live(tx, turn.live.constellation, actor.id, now, turn.id)
        if opener != OWNER:
            live = [one for one in live if await _given_for(tx, one, turn.id, opener)]
        if not wanted.participants.can_see(wanted.audience):
            live = [one for one in live if await _given_among(tx, one, wanted.participants)]
        used: dict[str, float] = {}
        for one in live:
            if one.per_day is not None:
                used[one.id] = await quotas.used(tx, actor.id, one.id, now - _DAY, "calls")
        if quota is not None:
            since = now - quota.span
            used[quota.policy] = await quotas.used(tx, actor.id, quota.policy, since, quota.of)
        others = {one.given_by for one in live} - {OWNER}
        givers = {one: await _names_of(tx, turn.live.constellation, one) for one in others}
        return live, used, givers

    # Calls of one reply may be judged before the first of them is written.
    await turn.written()
    live, used, givers = await turn.means.database.read(read)
    if opener in givers:
        givers[opener] |= {PRESENT}
    for use in turn.uses:
        if use.policy in used:
            by_amount = quota is not None and (quota.policy, quota.of) == (use.policy, "amount")
            used[use.policy] += use.amount if by_amount else 1
    granted = Grants(
        _left(one, turn.granted.count(one.id))
        for one in live
        if one.per_day is None or used[one.id] < one.per_day
    )
    return granted, used, givers


async def _given_for(tx: Connection, grant: Grant, turn_id: str, opener: str) -> bool:
    """Tell whether a grant is for calls in turns that a person other than the owner opens.

    It is if the question that it was given with came from a turn of theirs.
    """
    if grant.turn_id == turn_id:
        return True
    asked = await approvals.get(tx, grant.approval_id) if grant.approval_id else None
    record = await journal.turn(tx, asked.turn_id) if asked is not None else None
    return record is not None and await approvals.opener_of(tx, record) == opener


async def _names_of(tx: Connection, constellation: str, person_id: str) -> frozenset[str]:
    """Return every way in which a policy may name a person; none of somebody unknown."""
    found = await stored_people.get(tx, constellation, person_id)
    if found is None:
        return frozenset()
    return Actor("person", found.id, found.name, found.trust, frozenset(found.roles)).tokens


async def _given_among(tx: Connection, grant: Grant, participants: Participants) -> bool:
    """Tell whether a grant was given for calls whose results these people see.

    What the owner lets an agent do in private is no word about whom its results may be shown to.
    """
    asked = await approvals.get(tx, grant.approval_id) if grant.approval_id else None
    record = await journal.turn(tx, asked.turn_id) if asked is not None else None
    return record is not None and participants.can_see(Audience.of_turn(record.audience))


def _left(grant: Grant, uses: int) -> Grant:
    """Return a grant as it stands after some more uses."""
    return grant if grant.uses is None else replace(grant, uses=grant.uses - uses)


def _always(effects: tuple[Effect, ...]) -> Doubt:
    outside = next((one for one in effects if one.kind.outside), effects[0])
    return Doubt(f"it would {outside}, and nobody who is trusted asked for that")


def _never(effects: tuple[Effect, ...]) -> None:
    del effects


def _rests_on_trust(actor: Actor, resource: Resource, situation: Situation) -> bool:
    """Tell whether a call is asked for only because nobody is known to have wanted it."""
    trusting = replace(situation, doubt=_never)
    return isinstance(decide(actor, Act.CALL, resource, trusting), Allow)


async def _doubt(turn: Turn, key: str) -> Callable[[tuple[Effect, ...]], Doubt | None]:
    """Return what tells whether effects of a call were asked for, after all that was read."""
    from asterism.agents.evidence import evidence_of  # most turns never need it
    from asterism.agents.intents import intents_of
    from asterism.permissions.provenance import judge as compare

    evidence = await evidence_of(turn)
    if evidence is None:
        return _always
    back = {one.key for one in evidence.readings}
    evidence.pending = [
        effect
        for other, effects in turn.payments.items()
        if other != key and f"{turn.id}/{other}" not in back
        for effect in effects
    ]
    readings = await intents_of(turn, evidence.text)

    def doubt(effects: tuple[Effect, ...]) -> Doubt | None:
        for intents in readings:
            found = compare(evidence, intents, effects)
            if found is not None:
                return found
        return None

    return doubt


def _quota_of(authority: Authority, verdict: Verdict) -> _Quota | None:
    """Return the quota of the policy that would allow a call."""
    if not isinstance(verdict, Allow) or not verdict.policy:
        return None
    for one in authority.policies.all:
        if one.name == verdict.policy and one.quota is not None:
            return _Quota(one.name, one.quota.span, one.quota.of)
    return None


def event_of(turn: Turn, key: str, wanted: Wanted, verdict: Verdict) -> Event:
    """Return what the audit log keeps of a judgement."""
    kind = {"Allow": "allowed", "Ask": "asked", "Deny": "denied"}[type(verdict).__name__]
    body: dict[str, Any] = {
        "what": wanted.tool,
        "key": key,
        "verdict": kind,
        "reason": verdict.reason,
        "effects": [str(one) for one in wanted.effects],
        "arguments": {name: _short(value) for name, value in wanted.arguments.items()},
    }
    if wanted.trust.value != "owner":
        body["trust"] = wanted.trust.value
    if isinstance(verdict, Ask) and verdict.because:
        body["because"] = [
            {"what": one.what, "from": one.origin, "trust": one.trust, "where": one.where}
            for one in verdict.because
        ]
    return Event(
        f"call.{kind}",
        f"agent:{turn.agent.name}",
        turn.means.clock(),
        body,
        turn.agent.id,
        turn.id,
    )


def _short(value: Any) -> Any:
    if isinstance(value, str) and len(value) > _LONGEST_ARGUMENT:
        return f"{value[:_LONGEST_ARGUMENT]}… ({len(value):,} characters)"
    return value
