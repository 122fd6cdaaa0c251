"""Judging a call before it is run: what it does, who wants it, what was read before it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import orjson

from asterism.permissions import (
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
from asterism.store import grants, quotas
from asterism.store.database import Connection
from asterism.types.deeds import Deed, Doubt
from asterism.types.events import Event
from asterism.types.grants import Grant
from asterism.types.people import Tier

if TYPE_CHECKING:
    from asterism.agents.turn import Turn
    from asterism.tools.tool import Tool

_LONGEST_ARGUMENT = 500


async def judge(
    turn: Turn,
    key: str,
    tool: Tool,
    arguments: Mapping[str, Any],
    tier: Tier,
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
        tier: The least trusted of what the model had read when it made the call.
        asks: Whether a rule of the agent wants a person to be asked, whatever the tool says.
        approved_by: Who has approved this very call, if it was asked for.
    """
    agent = turn.agent
    wanted = Wanted(
        agent=agent.name,
        tool=tool.name,
        arguments=arguments,
        deeds=tool.deeds(dict(arguments)),
        operation=str(arguments.get("operation") or ""),
        tier=tier,
        people=turn.people,
        asks=tool.ask or asks,
    )
    verdict = await _decide(turn, Actor("agent", agent.id, agent.name, wanted.tier), wanted)
    if isinstance(verdict, Ask) and approved_by is not None:
        verdict = Allow(f"approved by {approved_by or 'a person'}")
    turn.note(event_of(turn, key, wanted, verdict))
    return verdict


async def _decide(turn: Turn, actor: Actor, wanted: Wanted) -> Verdict:
    authority = turn.means.authority()
    resource = Resource("tool", wanted.tool, wanted=wanted)
    now = turn.means.clock()
    doubt = await _doubt(turn, authority, wanted)
    verdict = decide(
        actor, Act.CALL, resource, Situation(authority, doubt=doubt, now=now, turn_id=turn.id)
    )
    quota = _quota_of(authority, verdict)
    if not isinstance(verdict, Ask) and quota is None:
        return verdict

    # Only now it matters what was granted, and what of a quota has gone by.
    async def read(tx: Connection) -> tuple[Grants, dict[str, float]]:
        live = await grants.live(tx, turn.live.constellation, actor.id, now)
        used: dict[str, float] = {}
        if quota is not None:
            name, span, of = quota
            used[name] = await quotas.used(tx, actor.id, name, now - span, of)
        return Grants(live), used

    # Calls of one reply may be judged before the first of them is written.
    await turn.written()
    granted, used = await turn.means.database.read(read)
    if turn.granted:
        granted = Grants(_left(one, turn.granted.count(one.id)) for one in granted.all)
    if quota is not None:
        for use in turn.uses:
            if use.policy == quota[0]:
                used[use.policy] += use.amount if quota[2] == "amount" else 1
    verdict = decide(
        actor,
        Act.CALL,
        resource,
        Situation(authority, granted, doubt, now, turn.id, used),
    )
    if isinstance(verdict, Allow):
        if verdict.grant:
            turn.use_grant(verdict.grant)
        elif quota is not None and verdict.policy == quota[0]:
            amount = sum(one.amount or 0.0 for one in wanted.deeds)
            turn.use_quota(quotas.Use(actor.id, quota[0], now, amount))
    return verdict


def _left(grant: Grant, uses: int) -> Grant:
    """Return a grant as it stands after some more uses."""
    return grant if grant.uses is None else replace(grant, uses=grant.uses - uses)


async def _doubt(
    turn: Turn, authority: Authority, wanted: Wanted
) -> Callable[[tuple[Deed, ...]], Doubt | None] | None:
    """Return how deeds are vouched for; None where nothing untrusted was read or is touched."""
    tier = wanted.tier
    if tier.trusted or tier in authority.trusted:
        return None
    if not any(one.kind.outside for one in wanted.deeds):
        return None
    from asterism.agents.said import readings_of
    from asterism.permissions.provenance import vouch

    readings = await readings_of(turn)
    return lambda deeds: vouch(readings, deeds)


def _quota_of(authority: Authority, verdict: Verdict) -> tuple[str, int, str] | None:
    """Return the quota of the policy that would allow a call: its name, span and what it counts."""
    if not isinstance(verdict, Allow) or not verdict.policy:
        return None
    for one in authority.policies.all:
        if one.name == verdict.policy and one.quota is not None:
            return one.name, one.quota.span, one.quota.of
    return None


def event_of(turn: Turn, key: str, wanted: Wanted, verdict: Verdict) -> Event:
    """Return what the audit log keeps of a judgement."""
    kind = {"Allow": "allowed", "Ask": "asked", "Deny": "denied"}[type(verdict).__name__]
    body: dict[str, Any] = {
        "what": wanted.tool,
        "key": key,
        "verdict": kind,
        "reason": verdict.reason,
        "deeds": [str(one) for one in wanted.deeds],
        "arguments": {name: _short(value) for name, value in wanted.arguments.items()},
    }
    if wanted.tier.value != "owner":
        body["tier"] = wanted.tier.value
    if isinstance(verdict, Ask) and verdict.because:
        body["because"] = [
            {"what": one.what, "from": one.origin, "tier": one.tier, "where": one.where}
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


def deeds_wire(deeds: tuple[Deed, ...]) -> str:
    """Return deeds as JSON, for people who are asked."""
    shown = [{name: value for name, value in asdict(one).items() if value} for one in deeds]
    return orjson.dumps(shown).decode()
