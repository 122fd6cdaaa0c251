"""Announcing: questions go to where their reviewers are reached, again and to others in time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from asterism.config.documents import Contacts, Escalation
from asterism.ports import Clock
from asterism.runtime.decisions import delivery_to, settle
from asterism.runtime.pump import Pump
from asterism.runtime.reviewers import Place, bound, origin_of, reach
from asterism.store import approvals, events, journal, notices, outbox
from asterism.store.database import Connection, Database
from asterism.types.approvals import Answer, Approval
from asterism.types.call_text import announcement
from asterism.types.events import Event, home_chain
from asterism.types.ids import new_id
from asterism.types.messages import Notice
from asterism.types.people import OWNER
from asterism.types.turns import TurnRecord

_AT_ONCE = 100
NOBODY_ANSWERED = "asterism"
"""Who denies what nobody has answered in time."""


@dataclass(frozen=True, slots=True)
class _Round:
    """What is to be noted of a question once it has been looked at, and who is to be told."""

    after: Approval
    tell: tuple[Place, ...]
    escalated: tuple[str, ...]


class Announcing:
    """Looks at questions when they are due: announces, repeats, escalates and lets them expire."""

    def __init__(
        self,
        database: Database,
        constellation: str,
        clock: Clock,
        *,
        contacts: Callable[[], Contacts],
        delivered: Callable[[], None],
    ) -> None:
        self._database = database
        self._constellation = constellation
        self._clock = clock
        self._contacts = contacts
        self._delivered = delivered
        self._heeded: Contacts | None = None
        self._pump = Pump("approvals", self._work, clock)

    async def start(self) -> None:
        """Begin to look."""
        await self._database.listen("approval", lambda _: self._pump.kick(), missed=self._pump.kick)
        self._pump.start()

    async def stop(self) -> None:
        """Stop looking."""
        await self._pump.stop()

    async def _work(self) -> int | None:
        now, contacts = self._clock(), self._contacts()
        if contacts != self._heeded:
            await self._database.write(
                lambda tx: approvals.look_at_all(tx, self._constellation, now)
            )
            self._heeded = contacts
        due = await self._database.read(
            lambda tx: approvals.due(tx, self._constellation, now, _AT_ONCE)
        )
        for approval in due:
            await self._database.write(
                lambda tx, approval=approval: self._look_at(tx, approval, contacts, now)
            )
        if due:
            self._delivered()
        return await self._database.read(lambda tx: approvals.next_time(tx, self._constellation))

    async def _look_at(
        self, tx: Connection, approval: Approval, contacts: Contacts, now: int
    ) -> None:
        record = await journal.turn(tx, approval.turn_id)
        if record is None or record.ended_at is not None:
            await approvals.note_round(tx, approval, replace(approval, next_at=None))
            return
        if approval.expires_at is not None and now >= approval.expires_at:
            span = _span(approval.expires_at - approval.asked_at)
            note = f"Nobody answered within {span}, so it ended as denied."
            answer = Answer(approved=False, by=NOBODY_ANSWERED, name=NOBODY_ANSWERED, note=note)
            await settle(tx, self._constellation, approval, record, answer, now)
            return
        step = await self._next_round(tx, approval, record, contacts, now)
        if not await approvals.note_round(tx, approval, step.after):
            return  # another process was quicker, or it has been answered
        text = announcement(step.after)
        for place in step.tell:
            what = str(step.after.rounds)
            await outbox.put(tx, delivery_to(place, approval, what, text, now))
        if step.escalated:
            body = {"what": approval.id, "to": list(step.escalated)}
            await events.append(
                tx,
                home_chain(self._constellation),
                [Event("approval.escalated", "system", now, body, record.agent_id, record.id)],
            )
        if approval.announced_at is None and not step.after.announced:
            await self._tell_owner(tx, approval, now)

    async def _next_round(
        self,
        tx: Connection,
        approval: Approval,
        record: TurnRecord,
        contacts: Contacts,
        now: int,
    ) -> _Round:
        due, to_come = _escalations(approval, contacts, now)
        former = await bound(tx, self._constellation, approval.reviewers)
        asked_too = await bound(tx, self._constellation, [one for rule in due for one in rule.to])
        escalated = tuple(one for one in asked_too if one not in former)
        reviewers = (*former, *escalated)
        first = approval.announced_at is None
        begins = first or (
            contacts.again is not None and now >= (approval.announced_at or 0) + contacts.again
        )
        rounds = approval.rounds + begins
        announced_at = now if begins else approval.announced_at
        announced = dict(approval.announced)
        places = await reach(tx, self._constellation, record, reviewers, contacts)
        origin = origin_of(record)
        if origin is not None and first:
            announced[str(origin)] = rounds  # the turn has said it there, as it asked
        elif origin is not None and str(origin) not in map(str, places):
            places.append(origin)
        expires_at = approval.expires_at
        if expires_at is None and contacts.expire is not None:
            expires_at = approval.asked_at + contacts.expire
        times = [expires_at, *to_come]
        if contacts.again is not None and announced_at is not None:
            times.append(announced_at + contacts.again)
        tell: list[Place] = []
        for place in places:
            if announced.get(str(place)) == rounds:
                continue
            opens = place.hours.next_open(now) if place.hours is not None else now
            if opens > now:
                times.append(opens)
                continue
            tell.append(place)
            announced[str(place)] = rounds
        after = replace(
            approval,
            rounds=rounds,
            announced=announced,
            announced_at=announced_at,
            reviewers=reviewers,
            expires_at=expires_at,
            next_at=min((max(one, now + 1) for one in times if one is not None), default=None),
        )
        return _Round(after, tuple(tell), escalated)

    async def _tell_owner(self, tx: Connection, approval: Approval, now: int) -> None:
        """Tell the owner of a question whose reviewers are reached nowhere."""
        others = [one for one in approval.reviewers if one != OWNER]
        if others:
            text = (
                f"Approval {approval.id} waits for {', '.join(others)}, whom no contact says how "
                f'to reach. Add one to contacts.toml, or answer it yourself: "asterism approval '
                f'show {approval.id}".'
            )
            notice = Notice(
                new_id("note"), approval.agent_id, approval.turn_id, "approval.unheard", text, now
            )
            await notices.put(tx, notice)


def _escalations(
    approval: Approval, contacts: Contacts, now: int
) -> tuple[list[Escalation], list[int]]:
    """Return the rules whose time has come, and the times of those that are yet to come."""
    fit = [
        rule
        for rule in contacts.escalations
        if not rule.tools or any(fnmatchcase(approval.tool, one) for one in rule.tools)
    ]
    due = [rule for rule in fit if now >= approval.asked_at + rule.after]
    return due, [approval.asked_at + rule.after for rule in fit if rule not in due]


def _span(ms: int) -> str:
    for unit, size in (("day", 86_400_000), ("hour", 3_600_000), ("minute", 60_000)):
        if ms >= size:
            count = round(ms / size)
            return f"{count} {unit}{'' if count == 1 else 's'}"
    return f"{max(1, ms // 1000)} s"
