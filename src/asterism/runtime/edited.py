"""Edited calls: whether whoever answers a question may change its arguments to these."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from asterism.agents.present import Meeting, who
from asterism.errors import NotAllowed
from asterism.permissions import (
    PRESENT,
    Act,
    Actor,
    Ask,
    Authority,
    Deny,
    Resource,
    Situation,
    Verdict,
    Wanted,
    decide,
)
from asterism.permissions.decision import names_one_of
from asterism.runtime.reviewers import spell
from asterism.store import agents, approvals
from asterism.store import people as stored_people
from asterism.store.database import Connection
from asterism.tools.tool import Tool
from asterism.types.approvals import Approval
from asterism.types.people import OWNER, Person, Trust
from asterism.types.turns import TurnRecord


async def check_edit(
    tx: Connection,
    constellation: str,
    authority: Authority,
    approval: Approval,
    record: TurnRecord,
    tool: Tool,
    arguments: Mapping[str, Any],
    person: Person,
) -> None:
    """Return if a person may have a call made with these arguments; else raise `NotAllowed`.

    The policies are asked about the changed call: what they deny is denied to everybody, and whom
    they do not name for it may not answer it, although they may answer what was asked.
    """
    verdict = await _judged(tx, constellation, authority, approval, record, tool, arguments)
    if isinstance(verdict, Deny):
        raise NotAllowed(
            f"{approval.id} cannot be approved with these arguments: {verdict.reason} Nothing was "
            "changed."
        )
    if person.id == OWNER or not isinstance(verdict, Ask):
        return
    opener = await approvals.opener_of(tx, record)
    called = Actor("person", person.id, person.name, person.trust, frozenset(person.roles))
    tokens = called.tokens | {PRESENT} if person.id == opener else called.tokens
    if not names_one_of(verdict.reviewers, tokens):
        names = dict(await stored_people.names(tx, constellation))
        raise NotAllowed(
            f"{person.name} may answer {approval.id}, but not with these arguments: with them, "
            f"{spell(verdict.reviewers, names)} would have to be asked. Answer it as it was asked. "
            "Nothing was changed."
        )


async def _judged(
    tx: Connection,
    constellation: str,
    authority: Authority,
    approval: Approval,
    record: TurnRecord,
    tool: Tool,
    arguments: Mapping[str, Any],
) -> Verdict:
    """Return what the one decision says to the changed call, as far as policies have a say."""
    agent = await agents.by_id(tx, approval.agent_id)
    assert agent is not None, "its turn waits"
    participants = await approvals.company_of(tx, record)
    met = await who(tx, constellation, participants) if participants is not None else Meeting()
    trust = Trust(record.trust) if record.trust is not None else Trust.OWNER
    wanted = Wanted(
        agent=agent.name,
        tool=tool.name,
        arguments=arguments,
        effects=tool.effects(dict(arguments)),
        operation=str(arguments.get("operation") or ""),
        trust=trust,
        people=met.speaker,
        # It was asked for: where no policy names reviewers, that is the owner's to answer.
        asks=True,
        audience=tool.audience(agent, met.participants, arguments),
        participants=met.participants,
        definition=tool.digest(arguments),
    )
    # What is left of a quota is not looked up: a call that a quota would let pass is asked for.
    used = {one.name: math.inf for one in authority.policies.all if one.quota is not None}
    situation = Situation(authority, turn_id=record.id, used=used)
    actor = Actor("agent", agent.id, agent.name, trust)
    return decide(actor, Act.CALL, Resource("tool", tool.name, wanted=wanted), situation)
