"""Decisions: the one answer to a question, stored with all that follows from it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import orjson

from asterism.errors import AsterismError, Conflict, NotFound
from asterism.runtime.reviewers import Place, origin_of
from asterism.store import approvals, events, grants, inbox, outbox
from asterism.store import people as stored_people
from asterism.store.database import Connection
from asterism.types.approvals import Answer, Approval, plain_effects
from asterism.types.events import Event, home_chain
from asterism.types.grants import Grant, told_of
from asterism.types.ids import new_id
from asterism.types.messages import Delivery, Receipt
from asterism.types.turns import TurnRecord
from asterism.types.wire import plain

_SHORTEST = 4
"""How much of the end of an id names it."""


async def find(tx: Connection, constellation: str, named: str) -> Approval | None:
    """Return a question by its id, or by the end of the id of one that waits."""
    found = await approvals.of_constellation(tx, constellation, named)
    if found is not None:
        return found
    end = named.removeprefix("ap_")
    if len(end) < _SHORTEST:
        return None
    alike = [one for one in await approvals.waiting(tx, constellation) if one.id.endswith(end)]
    return alike[0] if len(alike) == 1 else None


async def settle(
    tx: Connection,
    constellation: str,
    approval: Approval,
    record: TurnRecord,
    answer: Answer,
    at: int,
    grant: Grant | None = None,
) -> Receipt | AsterismError:
    """Store the one answer, wake the turn, and tell everybody else who was asked."""
    grant_id = grant.id if grant is not None else None
    if not await approvals.decide(tx, approval.id, answer, at, grant_id):
        former = await approvals.get(tx, approval.id)
        return await answered_before(tx, constellation, former or approval)
    told: dict[str, Any] = {
        "key": approval.key,
        "approved": answer.approved,
        "note": answer.note,
        "by": answer.name,
        "person": answer.by,
        "approval": approval.id,
        # What a person saw: only that is run.
        "definition": approval.definition if answer.definition is None else answer.definition,
        "effects": plain_effects(approval.effects if answer.effects is None else answer.effects),
        "reviewers": approval.reviewers,
        "trust": answer.label.trust.value,
        "audience": str(answer.label.audience),
    }
    if answer.edited is not None:
        told["arguments"] = answer.edited
    message_id = new_id("msg")
    item = await inbox.put(
        tx,
        approval.agent_id,
        message_id,
        kind="decision",
        channel=approval.turn_id,
        body=orjson.dumps(told),
        at=at,
    )
    if item is None:
        return NotFound(f"The agent that asked {approval.id} has been deleted.")
    decided = replace(
        approval, approved=answer.approved, decided_at=at, edited=answer.edited, note=answer.note
    )
    await tell_others(tx, decided, record, answer, at)
    if grant is not None:
        await grants.put(tx, grant)
    await _audit(tx, constellation, decided, answer, at, grant)
    return Receipt(message_id, approval.turn_id, approval.agent_id)


async def answered_before(tx: Connection, constellation: str, former: Approval) -> Conflict:
    """Return what whoever comes second is told: who answered, and how."""
    called = dict(await stored_people.names(tx, constellation))
    by = former.decided_by or "somebody"
    return Conflict(
        f"{former.id} was {former.verdict} by {called.get(by, by)} before. Nothing was changed."
    )


async def tell_others(
    tx: Connection, decided: Approval, record: TurnRecord, answer: Answer, at: int
) -> None:
    """Tell everybody who was asked, but for the place of the answer, how it was answered."""
    origin = origin_of(record)
    places = {*decided.announced, *([str(origin)] if origin else [])}
    said = f" They say: {answer.note}" if answer.note else ""
    text = plain(f"Approval {decided.id} was answered by {answer.name}: {decided.verdict}.{said}")
    for place in sorted(places):
        if place != answer.place:
            await outbox.put(tx, delivery_to(Place.read(place), decided, "told", text, at))


def delivery_to(place: Place, approval: Approval, what: str, text: str, at: int) -> Delivery:
    """Return a message about a question; the same of the same kind goes to a place once."""
    return Delivery(
        key=f"{approval.id}/{what}/{place}",
        agent_id=approval.agent_id,
        turn_id=approval.turn_id,
        channel=place.channel,
        target=place.target,
        text=text,
        next_at=at,
        created_at=at,
    )


async def _audit(
    tx: Connection,
    constellation: str,
    decided: Approval,
    answer: Answer,
    at: int,
    grant: Grant | None,
) -> None:
    actor = answer.by if answer.by == answer.name else f"person:{answer.name}"
    body = {
        "what": decided.id,
        "verdict": decided.verdict,
        "reason": answer.note or "",
        "tool": decided.tool,
        "arguments": decided.edited or decided.arguments,
        "place": answer.place,
    }
    where = (decided.agent_id, decided.turn_id)
    written = [Event("approval.decided", actor, at, body, *where)]
    if grant is not None:
        written.append(Event("grant.given", actor, at, told_of(grant), *where))
    await events.append(tx, home_chain(constellation), written)
