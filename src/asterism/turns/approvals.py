"""Approvals at work: announced where people are reached, escalated by rule, answered once."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any, cast

import orjson

from asterism.config.documents import Contacts, Escalation, Hours
from asterism.config.load import CurrentSettings
from asterism.errors import AsterismError, Conflict, InvalidInput, NotAllowed, NotFound, ToolError
from asterism.memory import people
from asterism.memory import people as stored_people
from asterism.permissions import (
    PRESENT,
    Act,
    Actor,
    Ask,
    Authority,
    CallRequest,
    Deny,
    Resource,
    Situation,
    Verdict,
    decide,
)
from asterism.permissions.decide import names_one_of
from asterism.ports import Clock
from asterism.records import dataclass
from asterism.store import agents, approvals, events, journal, messages
from asterism.store.database import Connection, Database
from asterism.store.events import Event, home_chain
from asterism.telemetry.redaction import redact
from asterism.times import rounded_duration, to_ms
from asterism.tools.builtin.meta import PLAN_TOOL
from asterism.tools.tool import Tool
from asterism.turns.context import Presence, read_presence
from asterism.turns.lanes import Pump
from asterism.types.agents import (
    OWNER,
    PUBLIC,
    Account,
    Label,
    Participant,
    Participants,
    Person,
    Trust,
    message_id_for,
    new_id,
    optional_ms,
    turn_id_for,
)
from asterism.types.permissions import (
    CLIENT,
    Answer,
    ApprovalRecord,
    Effect,
    Extent,
    Grant,
    Wish,
    announcement,
    comment_of,
    exact_arguments,
    grant_details,
    limits_of,
    plain_effects,
    read_effects,
    write_effects,
)
from asterism.types.turns import (
    AnswerText,
    Delivery,
    Message,
    Notice,
    Receipt,
    TurnRecord,
    TurnState,
    check_field,
    plain,
)

NO_APPROVAL = (
    'There is no approval {id!r}. "asterism approval list" shows what waits for an answer.'
)


@dataclass(frozen=True, slots=True)
class ApprovalReply:
    """An answer on its way in: who says what to which question, and where."""

    approval_id: str
    approved: bool
    by: str | Account = OWNER
    note: str | None = None
    arguments: str | None = None
    grant: Wish | None = None
    place: str | None = None
    for_owner: bool = False
    """Whether the owner hands it in, for whomever, and so reads what came of it."""


class ApprovalQueue:
    """Questions to people, from the first announcement to the answer."""

    def __init__(
        self,
        database: Database,
        clock: Clock,
        *,
        tool: Callable[[str], Tool | None],
        settings: CurrentSettings,
        delivered: Callable[[], None],
        authority: Callable[[], Authority] = Authority,
    ) -> None:
        """Make it; `tool` finds a tool by name, `delivered` kicks the outbox.

        `authority` returns what the owner has decided beforehand.
        """
        self._database = database
        self._clock = clock
        self._tool = tool
        self._delivered = delivered
        self._authority = authority
        self._announcing = Announcer(database, clock, settings=settings, delivered=delivered)

    async def start(self) -> None:
        """Begin to announce; what fell due while no process ran is done once."""
        await self._announcing.start()

    async def stop(self) -> None:
        """Stop announcing; the next start continues."""
        await self._announcing.stop()

    # -- results of calls that programs carry out ----------------------------------------------

    async def submit(self, turn_id: str, results: Mapping[str, str], by: str) -> Receipt:
        """Give a turn the results of the calls that it left to the program that asked.

        All that it waits for come at once. The same results again change nothing.

        Args:
            turn_id: The turn, which is parked.
            results: The text of each result by the key of its call, such as `0/call/0`.
            by: The id of the person who opened the turn, or the owner.
        """
        at = self._clock()
        return await self._database.write(lambda tx: self._submit(tx, turn_id, results, by, at))

    async def _submit(
        self, tx: Connection, turn_id: str, results: Mapping[str, str], by: str, at: int
    ) -> Receipt:
        record = await journal.turn(tx, turn_id)
        if record is None or by not in (OWNER, await approvals.opener_of(tx, record)):
            raise NotFound(f"There is no turn {turn_id!r}. No result was taken.")
        asked = {
            question.key: question
            for question in await approvals.of_turn(tx, turn_id)
            if question.for_client
        }
        unknown = [key for key in results if key not in asked]
        if unknown or not results:
            raise NotFound(
                f"Turn {turn_id} did not leave {', '.join(unknown) or 'any call'} to a program. "
                "Send the results of the calls that it made. No result was taken."
            )
        waiting = {key: call for key, call in asked.items() if call.decided_at_ms is None}
        denied = [asked[key].tool for key in results if asked[key].approved is False]
        if denied and waiting.keys().isdisjoint(results):
            raise Conflict(
                f"Turn {turn_id} does not wait for the result of {', '.join(denied)} any more: it "
                "went on without. Send a new message. No result was taken."
            )
        if waiting.keys().isdisjoint(results):
            pending = await messages.find_decision(tx, record.agent_id, turn_id)
            message_id = pending or message_id_for(turn_id)
            return Receipt(message_id, turn_id, record.agent_id, duplicate=True)
        if record.ended_at_ms is not None:
            raise Conflict(f"Turn {turn_id} has ended and takes no results. No result was taken.")
        missing = [call.tool for key, call in waiting.items() if key not in results]
        if missing:
            raise InvalidInput(
                f"Turn {turn_id} also waits for the result of {', '.join(missing)}. Send the "
                "results of all calls together. No result was taken."
            )
        taken: list[dict[str, Any]] = []
        for key, approval in waiting.items():
            text = plain(redact(results[key]))
            answer = Answer(approved=True, by=by, name=by)
            await approvals.decide(tx, approval.id, answer, at)
            await _audit(tx, replace(approval, approved=True, decided_at_ms=at), answer, at, None)
            said = {"key": key, "approved": True, "by": CLIENT, "note": None}
            taken.append({**said, "client": True, "text": text})
        decision_id = new_id("msg")
        body = orjson.dumps({"results": taken})
        if await messages.put_decision(tx, record.agent_id, decision_id, turn_id, body, at) is None:
            raise NotFound(f"The agent of turn {turn_id} has been deleted. No result was taken.")
        return Receipt(decision_id, turn_id, record.agent_id)

    # -- answers -------------------------------------------------------------------------------

    async def decide(self, reply: ApprovalReply) -> Receipt:
        """Answer a question; the turn goes on where it stood. The first valid answer counts."""
        check_field("note", reply.note)
        at = self._clock()
        outcome = await self._database.write(lambda tx: self._answer(tx, reply, at))
        self._delivered()
        if isinstance(outcome, AsterismError):
            raise outcome
        return outcome

    async def take(
        self, tx: Connection, answer: AnswerText, message: Message, at: int
    ) -> Receipt | None:
        """Take a message of a channel as an answer; None if it does not answer a question.

        Whoever wrote it is told what came of it, in place of a turn of the agent.
        """
        origin, external_id, agent_id = message.origin, message.external_id, message.target
        channel, reply_to = origin.channel, origin.reply_to
        by: str | Account = OWNER if origin.sender is None else Account(channel, origin.sender)
        place = f"{channel}:{reply_to}" if reply_to is not None else None
        approval = await self._question_answered(tx, answer, by, place)
        if approval is None and (answer.approval_id is None or by == OWNER):
            return None
        person = await person_of(tx, by)
        theirs = approval is not None and await self._may_answer(tx, approval, person)
        if approval is not None and theirs:
            # The message that opened the turn: whoever hands it in again finds the turn.
            message_id, turn_id = message_id_for(approval.turn_id), approval.turn_id
            agent_id = approval.agent_id
        else:
            # Nothing of a question is told to those who may not answer it, nor that there is one.
            message_id = new_id("msg")
            turn_id = turn_id_for(message_id)
        named = approval.id if approval is not None and theirs else answer.approval_id or ""
        note = plain(answer.note) if answer.note else None
        reply = ApprovalReply(named, answer.approved, by, note, place=place)
        if external_id is not None:
            former = await messages.accept_once(tx, channel, external_id, message_id, agent_id)
            if former is not None:
                refusal = None if await _opened(tx, former[0]) else _refusal(reply, person).message
                return Receipt(
                    former[0], turn_id_for(former[0]), former[1], duplicate=True, refusal=refusal
                )
        outcome = await self._answer(tx, reply, at)
        text = words_for(outcome, named, approved=answer.approved)
        if reply_to is not None:
            await messages.put_delivery(
                tx,
                Delivery(
                    key=f"{turn_id}/reply/{external_id or new_id('msg')}",
                    agent_id=agent_id,
                    turn_id=turn_id,
                    channel=channel,
                    target=reply_to,
                    text=text,
                    next_at_ms=at,
                    created_at_ms=at,
                ),
            )
        if isinstance(outcome, AsterismError):
            return Receipt(message_id, turn_id, agent_id, refusal=text)
        return outcome

    async def _question_answered(
        self, tx: Connection, answer: AnswerText, by: str | Account, place: str | None
    ) -> ApprovalRecord | None:
        """Return the approval that a message answers: by its id, or the only one at that place."""
        if answer.approval_id is not None:
            return await find(tx, answer.approval_id)
        if place is None:
            return None
        person: Person | None = None
        candidates: list[ApprovalRecord] = []
        for approval in await approvals.waiting(tx):
            record = await journal.turn(tx, approval.turn_id)
            if record is None or not _is_asked_at(approval, record, place):
                continue
            person = person or await person_of(tx, by)
            if await may_answer(tx, record, approval, person):
                candidates.append(approval)
        return candidates[0] if len(candidates) == 1 else None

    async def _answer(
        self, tx: Connection, reply: ApprovalReply, at: int
    ) -> Receipt | AsterismError:
        """Settle a question, or return (so that the refusal is kept) why it was not."""
        approval = await find(tx, reply.approval_id)
        try:
            person = await person_of(tx, reply.by)
        except AsterismError as error:
            return error
        if approval is None:
            if person.id == OWNER:
                return NotFound(NO_APPROVAL.format(id=reply.approval_id))
            return _refusal(reply, person)
        if not await self._may_answer(tx, approval, person):
            return await self._refuse(tx, approval, person, reply, at)
        if approval.decided_at_ms is not None:
            return await already_answered(tx, approval)
        record = await journal.turn(tx, approval.turn_id)
        if record is None or record.ended_at_ms is not None:
            return Conflict(f"The turn that asked {approval.id} has ended. Nothing was changed.")
        try:
            _check_is_for_people(approval, reply)
            edited = self._edited(approval, reply)
            if edited is not None:
                await check_edit(
                    *(tx, self._authority(), approval, record),
                    *(edited.tool, edited.arguments, person),
                )
            answer = Answer(
                reply.approved,
                person.id,
                person.name,
                reply.note,
                edited.text if edited is not None else None,
                reply.place,
                edited.definition if edited is not None else None,
                write_effects(edited.effects) if edited is not None else None,
                _label_of(person, reply, record),
            )
            grant = self._grant(approval, reply, answer, edited, at)
        except AsterismError as error:
            return error
        return await settle(tx, approval, record, answer, at, grant)

    async def _may_answer(self, tx: Connection, approval: ApprovalRecord, person: Person) -> bool:
        record = await journal.turn(tx, approval.turn_id)
        if record is None:
            return person.id == OWNER
        return await may_answer(tx, record, approval, person)

    async def _refuse(
        self,
        tx: Connection,
        approval: ApprovalRecord,
        person: Person,
        reply: ApprovalReply,
        at: int,
    ) -> NotAllowed:
        actor = f"person:{person.name}" if person.id else f"account:{_account(reply)}"
        body = {
            "what": approval.id,
            "verdict": "denied",
            "reason": "not one of those who may answer",
            "said": "approve" if reply.approved else "deny",
            "reviewers": list(approval.reviewers),
            "place": reply.place,
        }
        await events.append(
            tx,
            home_chain(tx.constellation),
            [Event("approval.refused", actor, at, body, approval.agent_id, approval.turn_id)],
        )
        called = dict(await stored_people.people_names(tx))
        return _refusal(
            reply, person, f"; it waits for {reviewer_names(approval.reviewers, called)}"
        )

    def _edited(self, approval: ApprovalRecord, reply: ApprovalReply) -> _Edited | None:
        """Return the changed arguments if they fit the tool; None if they are the same."""
        if reply.arguments is None:
            return None
        if not reply.approved:
            raise InvalidInput(
                f"{approval.id} is denied, so there is nothing to run with other arguments. "
                "Approve it with them, or deny it without. Nothing was changed."
            )
        tool = self._tool(approval.tool)
        if tool is None:
            raise InvalidInput(
                f"The tool {approval.tool!r} that {approval.id} is about is not here, so changed "
                "arguments cannot be checked. Answer without them. Nothing was changed."
            )
        try:
            read = tool.read(reply.arguments)
        except ToolError as error:
            raise InvalidInput(
                f"The changed arguments of {approval.id} cannot be used: {error.reason}",
                outcome="Nothing was changed.",
            ) from None
        if exact_arguments(read) == exact_arguments(_arguments(approval)):
            return None
        text = orjson.dumps(orjson.loads(reply.arguments)).decode()
        # A tool that has changed since it was asked is not made right by other arguments.
        same = _digest(tool, approval) == approval.definition
        definition = tool.digest(read) if same else approval.definition
        return _Edited(tool, text, read, tool.reviewed_effects(read), definition)

    def _grant(
        self,
        approval: ApprovalRecord,
        reply: ApprovalReply,
        answer: Answer,
        edited: _Edited | None,
        at: int,
    ) -> Grant | None:
        wish = reply.grant
        if wish is None:
            return None
        _check_wish(approval, wish, answer, at)
        grant = Grant(
            id=new_id("grant"),
            constellation=self._database.constellation,
            tool=approval.tool,
            agent_id=approval.agent_id,
            pattern=dict(wish.pattern or {}),
            turn_id=approval.turn_id if wish.extent is Extent.TURN else None,
            until_ms=optional_ms(wish.until),
            given_by=answer.by,
            given_at_ms=at,
            approval_id=approval.id,
            amount=wish.amount,
            per_day=wish.per_day,
            definition=(approval.definition if edited is None else edited.definition) or None,
        )
        if wish.pattern is not None or not (wish.extent is Extent.RECIPIENT or wish.limited):
            return grant
        effects = limits_of(read_effects(approval.effects) if edited is None else edited.effects)
        if wish.amount is not None:
            if not effects or all(effect.amount is None for effect in effects):
                raise InvalidInput(
                    f"{approval.tool} does not declare an amount that can be read and to whom it "
                    "goes, so that a limit on it could not be kept. Grant it otherwise. Nothing "
                    "was changed."
                )
            effects = tuple(replace(effect, amount=None) for effect in effects)
        if effects is not None:
            return replace(grant, effects=effects)
        arguments = _arguments(approval) if edited is None else edited.arguments
        return replace(grant, arguments=exact_arguments(arguments))


@dataclass(frozen=True, slots=True)
class _Edited:
    """Arguments as a person changed them, read by the tool."""

    tool: Tool
    text: str
    arguments: Mapping[str, Any]
    effects: tuple[Effect, ...]
    definition: str


def _check_is_for_people(approval: ApprovalRecord, reply: ApprovalReply) -> None:
    """Raise `Conflict` for a yes to a call that only a program can carry out."""
    if approval.for_client and reply.approved:
        raise Conflict(
            f"{approval.id} waits for the result of a program that carries out {approval.tool} "
            "itself, so that nobody can approve it. Deny it, and the turn goes on without. "
            "Nothing was changed."
        )


def _check_wish(approval: ApprovalRecord, wish: Wish, answer: Answer, at: int) -> None:
    if not answer.approved:
        raise InvalidInput(
            f"{approval.id} is denied, and a denial grants nothing. Nothing was changed."
        )
    if approval.tool == PLAN_TOOL:
        raise InvalidInput(
            f"{approval.id} is about a plan, which is approved as it is: each of its calls once. "
            "Answer it without a grant. Nothing was changed."
        )
    if answer.by != OWNER and wish.extent is not Extent.TURN:
        raise NotAllowed(
            f"{answer.name} may answer {approval.id}, but only the owner grants more than the "
            "turn. Answer it without a grant. Nothing was changed."
        )
    if wish.until is not None and to_ms(wish.until) <= at:
        raise InvalidInput(
            "A grant until a time needs one that is yet to come. Nothing was changed."
        )
    if wish.limited and wish.extent is not Extent.ALWAYS:
        raise InvalidInput(
            f"A limit goes with a grant for {Extent.ALWAYS.value!r}, and this one is for "
            f"{wish.extent.value!r}. Nothing was changed."
        )
    check_limits(wish.amount, wish.per_day)


def check_limits(amount: float | None, per_day: int | None) -> None:
    """Raise `InvalidInput` for limits under which nothing could be granted."""
    if amount is not None and not 0 < amount < float("inf"):
        raise InvalidInput(
            f"A grant up to an amount of {amount:g} cannot be kept; a number above 0 can. "
            "Nothing was granted."
        )
    if per_day is not None and not 1 <= per_day <= 1_000_000:
        raise InvalidInput(
            f"A grant for {per_day:,} calls a day cannot be given: 1 to 1,000,000 can. "
            "Nothing was granted."
        )


def _digest(tool: Tool, approval: ApprovalRecord) -> str:
    """Return the digest that a tool has now for the call that was asked about."""
    try:
        return tool.digest(tool.read(approval.arguments))
    except ToolError:
        return ""  # they do not fit it any more


def _is_asked_at(approval: ApprovalRecord, record: TurnRecord, place: str) -> bool:
    return place in approval.announced or place == f"{record.channel}:{record.reply_to}"


def _arguments(approval: ApprovalRecord) -> Mapping[str, Any]:
    try:
        arguments: Any = json.loads(approval.arguments or "{}")
    except (ValueError, RecursionError):
        return {}  # some of it has been forgotten
    return cast("dict[str, Any]", arguments) if isinstance(arguments, dict) else {}


def _refusal(reply: ApprovalReply, person: Person, why: str = "") -> NotAllowed:
    """Return that somebody may not answer a question, and why if the owner reads it.

    They themselves are told the same whether there is such a question or not.
    """
    who = person.name if person.id else _account(reply)
    shown = why if reply.for_owner else ""
    return NotAllowed(f"{who} may not answer {reply.approval_id}{shown}. Nothing was changed.")


def _account(reply: ApprovalReply) -> str:
    by = reply.by
    return by if isinstance(by, str) else f"{by.channel}:{by.sender}"


async def _opened(tx: Connection, message_id: str) -> bool:
    """Tell whether a turn answers a message, or will."""
    if await messages.find(tx, message_id) is not None:
        return True
    return await journal.turn(tx, turn_id_for(message_id)) is not None


def _label_of(person: Person, reply: ApprovalReply, record: TurnRecord) -> Label:
    """Return the label of what somebody says with an answer: theirs."""
    said_there = reply.place is not None and reply.place == str(origin_of(record))
    audience = PUBLIC if said_there else Participants((Participant(person.id),)).audience
    return Label(person.trust, audience)


def words_for(outcome: Receipt | AsterismError, approval_id: str, *, approved: bool) -> str:
    """Return the text that tells a person the result of their answer."""
    if isinstance(outcome, AsterismError):
        return outcome.message
    if approved:
        return f"Approved {approval_id}: the call is made, and the turn goes on."
    return f"Denied {approval_id}: the call is not made, and the agent is told so."


_AT_ONCE = 100
NOBODY_ANSWERED = "asterism"
"""Who denies what nobody has answered in time."""


@dataclass(frozen=True, slots=True)
class _Round:
    """The changes to store for a waiting approval, and the persons to notify."""

    after: ApprovalRecord
    tell: tuple[NoticeAddress, ...]
    escalated: tuple[str, ...]


class Announcer:
    """Looks at questions when they are due: announces, repeats, escalates and lets them expire."""

    def __init__(
        self,
        database: Database,
        clock: Clock,
        *,
        settings: CurrentSettings,
        delivered: Callable[[], None],
    ) -> None:
        self._database = database
        self._clock = clock
        self._settings = settings
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
        now, contacts = self._clock(), self._settings.current.contacts.book
        if contacts != self._heeded:
            await self._database.write(lambda tx: approvals.look_at_all(tx, now))
            self._heeded = contacts
        due = await self._database.read(lambda tx: approvals.due(tx, now, _AT_ONCE))
        for approval in due:
            await self._database.write(
                lambda tx, approval=approval: self._look_at(tx, approval, contacts, now)
            )
        if due:
            self._delivered()
        return await self._database.read(approvals.next_time)

    async def _look_at(
        self, tx: Connection, approval: ApprovalRecord, contacts: Contacts, now: int
    ) -> None:
        record = await journal.turn(tx, approval.turn_id)
        if record is None or record.ended_at_ms is not None:
            await approvals.note_round(tx, approval, replace(approval, next_at_ms=None))
            return
        if approval.expires_at_ms is not None and now >= approval.expires_at_ms:
            span = rounded_duration(approval.expires_at_ms - approval.asked_at_ms)
            note = f"Nobody answered within {span}, so it ended as denied."
            answer = Answer(approved=False, by=NOBODY_ANSWERED, name=NOBODY_ANSWERED, note=note)
            await settle(tx, approval, record, answer, now)
            return
        if approval.for_client:
            after = replace(approval, next_at_ms=approval.expires_at_ms)
            await approvals.note_round(tx, approval, after)
            return
        step = await self._next_round(tx, approval, record, contacts, now)
        if not await approvals.note_round(tx, approval, step.after):
            return  # another process was quicker, or it has been answered
        text = announcement(step.after)
        for place in step.tell:
            what = str(step.after.rounds)
            await messages.put_delivery(tx, delivery_to(place, approval, what, text, now))
        if step.escalated:
            body = {"what": approval.id, "to": list(step.escalated)}
            await events.append(
                tx,
                home_chain(tx.constellation),
                [Event("approval.escalated", "system", now, body, record.agent_id, record.id)],
            )
        if approval.announced_at_ms is None and not step.after.announced:
            await self._tell_owner(tx, approval, now)

    async def _next_round(
        self,
        tx: Connection,
        approval: ApprovalRecord,
        record: TurnRecord,
        contacts: Contacts,
        now: int,
    ) -> _Round:
        due, to_come = _escalations(approval, contacts, now)
        former = await with_person_ids(tx, approval.reviewers)
        asked_too = await with_person_ids(tx, [person for rule in due for person in rule.to])
        escalated = tuple(person for person in asked_too if person not in former)
        reviewers = (*former, *escalated)
        first = approval.announced_at_ms is None
        begins = first or (
            contacts.again is not None and now >= (approval.announced_at_ms or 0) + contacts.again
        )
        rounds = approval.rounds + begins
        announced_at = now if begins else approval.announced_at_ms
        announced = dict(approval.announced)
        places = await reviewer_addresses(tx, record, reviewers, contacts)
        origin = origin_of(record)
        if origin is not None and first:
            announced[str(origin)] = rounds  # the turn has said it there, as it asked
        elif origin is not None and str(origin) not in map(str, places):
            places.append(origin)
        expires_at = approval.expires_at_ms
        if expires_at is None and contacts.expire is not None:
            expires_at = approval.asked_at_ms + contacts.expire
        times = [expires_at, *to_come]
        if contacts.again is not None and announced_at is not None:
            times.append(announced_at + contacts.again)
        tell: list[NoticeAddress] = []
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
            announced_at_ms=announced_at,
            reviewers=reviewers,
            expires_at_ms=expires_at,
            next_at_ms=min(
                (max(time, now + 1) for time in times if time is not None), default=None
            ),
        )
        return _Round(after, tuple(tell), escalated)

    async def _tell_owner(self, tx: Connection, approval: ApprovalRecord, now: int) -> None:
        """Tell the owner of a question whose reviewers are reached nowhere."""
        others = [reviewer for reviewer in approval.reviewers if reviewer != OWNER]
        if others:
            text = (
                f"Approval {approval.id} waits for {', '.join(others)}, whom no contact says how "
                f'to reach. Add one to contacts.toml, or answer it yourself: "asterism approval '
                f'show {approval.id}".'
            )
            notice = Notice(
                new_id("note"), approval.agent_id, approval.turn_id, "approval.unheard", text, now
            )
            await agents.put_notice(tx, notice)


def _escalations(
    approval: ApprovalRecord, contacts: Contacts, now: int
) -> tuple[list[Escalation], list[int]]:
    """Return the escalation rules that are due, and the times of the others."""
    fit = [
        rule
        for rule in contacts.escalations
        if not rule.tools or any(fnmatchcase(approval.tool, tool) for tool in rule.tools)
    ]
    due = [rule for rule in fit if now >= approval.asked_at_ms + rule.after]
    return due, [approval.asked_at_ms + rule.after for rule in fit if rule not in due]


_SHORTEST = 4
"""How much of the end of an id names it."""


async def find(tx: Connection, named: str) -> ApprovalRecord | None:
    """Return an approval by its id; for a waiting approval, the end of the id is enough."""
    approval = await approvals.get(tx, named)
    if approval is not None:
        return approval
    end = named.removeprefix("ap_")
    if len(end) < _SHORTEST:
        return None
    alike = [approval for approval in await approvals.waiting(tx) if approval.id.endswith(end)]
    return alike[0] if len(alike) == 1 else None


async def settle(
    tx: Connection,
    approval: ApprovalRecord,
    record: TurnRecord,
    answer: Answer,
    at: int,
    grant: Grant | None = None,
) -> Receipt | AsterismError:
    """Store the answer, wake the turn, and tell the other reviewers."""
    grant_id = grant.id if grant is not None else None
    if not await approvals.decide(tx, approval.id, answer, at, grant_id):
        former = await approvals.get(tx, approval.id)
        return await already_answered(tx, former or approval)
    details: dict[str, Any] = {
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
        details["arguments"] = answer.edited
    decision_id = new_id("msg")
    item = await messages.put_decision(
        tx, approval.agent_id, decision_id, approval.turn_id, orjson.dumps(details), at
    )
    if item is None:
        return NotFound(f"The agent that asked {approval.id} has been deleted.")
    decided = replace(
        approval, approved=answer.approved, decided_at_ms=at, edited=answer.edited, note=answer.note
    )
    await tell_others(tx, decided, record, answer, at)
    if grant is not None:
        await approvals.put_grant(tx, grant)
    await _audit(tx, decided, answer, at, grant)
    return Receipt(decision_id, approval.turn_id, approval.agent_id)


async def withdraw_turn(tx: Connection, turn_id: str, reason: str, at: int) -> TurnRecord | None:
    """Keep a turn from going on, open or parked: what it asks of people is not needed any more.

    Return it if it was not over. Its own lane ends it, as one that was stopped.
    """
    record = await journal.stop_unfinished(tx, turn_id, reason)
    if record is not None and record.state is TurnState.PARKED:
        await withdraw_questions_of(tx, record, reason, at)
    return record


async def withdraw_questions_of(tx: Connection, record: TurnRecord, reason: str, at: int) -> None:
    """Deny what a parked turn asks of people, and have its lane end it, as it is to be stopped."""
    note = plain(f"Withdrawn: {reason}")
    answer = Answer(approved=False, by=NOBODY_ANSWERED, name=NOBODY_ANSWERED, note=note)
    for approval in await approvals.of_turn(tx, record.id):
        if approval.decided_at_ms is None:
            await settle(tx, approval, record, answer, at)
    # Also a yes that was given before and not acted upon yet.
    await messages.stop_decisions(tx, record.agent_id, record.id, reason)
    if await messages.find_decision(tx, record.agent_id, record.id) is None:
        await journal.end_stopped(tx, record, reason, at)  # its agent was deleted


async def already_answered(tx: Connection, former: ApprovalRecord) -> Conflict:
    """Return the error for a second answer: it says who answered first, and how."""
    called = dict(await stored_people.people_names(tx))
    by = former.decided_by or "somebody"
    return Conflict(
        f"{former.id} was {former.verdict} by {called.get(by, by)} before. Nothing was changed."
    )


async def tell_others(
    tx: Connection, decided: ApprovalRecord, record: TurnRecord, answer: Answer, at: int
) -> None:
    """Tell everybody who was asked, but for the place of the answer, how it was answered."""
    origin = origin_of(record)
    places = {*decided.announced, *([str(origin)] if origin else [])}
    text = plain(
        f"Approval {decided.id} was answered by {answer.name}: {decided.verdict}."
        f"{comment_of(answer.note)}"
    )
    for place in sorted(places):
        if place != answer.place:
            await messages.put_delivery(
                tx, delivery_to(NoticeAddress.read(place), decided, "told", text, at)
            )


def delivery_to(
    place: NoticeAddress, approval: ApprovalRecord, what: str, text: str, at: int
) -> Delivery:
    """Return a message about a question; the same of the same kind goes to a place once."""
    return Delivery(
        key=f"{approval.id}/{what}/{place}",
        agent_id=approval.agent_id,
        turn_id=approval.turn_id,
        channel=place.channel,
        target=place.target,
        text=text,
        next_at_ms=at,
        created_at_ms=at,
    )


async def _audit(
    tx: Connection, decided: ApprovalRecord, answer: Answer, at: int, grant: Grant | None
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
        written.append(Event("grant.given", actor, at, grant_details(grant), *where))
    await events.append(tx, home_chain(tx.constellation), written)


async def check_edit(
    tx: Connection,
    authority: Authority,
    approval: ApprovalRecord,
    record: TurnRecord,
    tool: Tool,
    arguments: Mapping[str, Any],
    person: Person,
) -> None:
    """Raise `NotAllowed` unless a person may approve a call with these arguments.

    The policies are asked about the changed call: what they deny is denied to everybody, and whom
    they do not name for it may not answer it, although they may answer what was asked.
    """
    verdict = await _judged(tx, authority, approval, record, tool, arguments)
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
        names = dict(await stored_people.people_names(tx))
        raise NotAllowed(
            f"{person.name} may answer {approval.id}, but not with these arguments: with them, "
            f"{reviewer_names(verdict.reviewers, names)} would have to be asked. Answer it as it "
            "was asked. Nothing was changed."
        )


async def _judged(
    tx: Connection,
    authority: Authority,
    approval: ApprovalRecord,
    record: TurnRecord,
    tool: Tool,
    arguments: Mapping[str, Any],
) -> Verdict:
    """Return the decision about the changed call, by the policies alone."""
    agent = await agents.by_id(tx, approval.agent_id)
    assert agent is not None, "its turn waits"
    participants = await approvals.participants_of(tx, record)
    presence = await read_presence(tx, participants) if participants is not None else Presence()
    trust = Trust(record.trust) if record.trust is not None else Trust.OWNER
    wanted = CallRequest(
        agent=agent.name,
        tool=tool.name,
        arguments=arguments,
        effects=tool.effects(dict(arguments)),
        operation=str(arguments.get("operation") or ""),
        trust=trust,
        people=presence.speaker,
        # It was asked for: where no policy names reviewers, that is the owner's to answer.
        asks=True,
        audience=tool.audience(agent, presence.participants, arguments),
        participants=presence.participants,
        definition=tool.digest(arguments),
    )
    # What is left of a quota is not looked up: a call that a quota would let pass is asked for.
    used = {policy.name: math.inf for policy in authority.policies.all if policy.quota is not None}
    situation = Situation(authority, turn_id=record.id, used=used)
    actor = Actor("agent", agent.id, agent.name, trust)
    return decide(actor, Act.CALL, Resource("tool", tool.name, wanted=wanted), situation)


NOBODY = Person("", "somebody unknown", Trust.STRANGER)
"""Who writes from an account that nobody has said whose it is."""


@dataclass(frozen=True, slots=True)
class NoticeAddress:
    """Where somebody is told something."""

    channel: str
    target: str
    hours: Hours | None = None

    def __str__(self) -> str:
        return f"{self.channel}:{self.target}"

    @staticmethod
    def read(text: str, hours: Hours | None = None) -> NoticeAddress:
        """Return the place that `channel:address` means."""
        channel, _, target = text.partition(":")
        return NoticeAddress(channel, target, hours)


def origin_of(record: TurnRecord | None) -> NoticeAddress | None:
    """Return where a matter came from, if answers go there."""
    if record is None or record.reply_to is None:
        return None
    return NoticeAddress(record.channel, record.reply_to)


async def may_answer(
    tx: Connection, record: TurnRecord, approval: ApprovalRecord, person: Person
) -> bool:
    """Tell whether a person is among the reviewers; the owner always is."""
    if person.id == OWNER:
        return True
    if not person.id:
        return False
    opener = await approvals.opener_of(tx, record) if PRESENT in approval.reviewers else ""
    return any(_is_named(reviewer, person, opener) for reviewer in approval.reviewers)


def _is_named(reviewer: str, person: Person, opener: str) -> bool:
    if reviewer == PRESENT:
        return person.id == opener
    kind, _, name = reviewer.partition(":")
    match kind:
        case "person":
            return name in (person.id, person.name)
        case "role":
            return name.casefold() in {role.casefold() for role in person.roles}
        case _:
            return person.id == OWNER and reviewer == OWNER


async def with_person_ids(tx: Connection, reviewers: Iterable[str]) -> tuple[str, ...]:
    """Return reviewers with the ids of persons: a name may later belong to another person."""
    persons: dict[str, None] = {}
    for reviewer in reviewers:
        kind, _, name = reviewer.partition(":")
        person_id = await stored_people.person_by_name(tx, name) if kind == "person" else None
        persons[f"person:{person_id}" if person_id else reviewer] = None
    return tuple(persons)


async def reviewer_addresses(
    tx: Connection, record: TurnRecord, reviewers: Iterable[str], contacts: Contacts
) -> list[NoticeAddress]:
    """Return the addresses of the reviewers, each once."""
    wanted = tuple(reviewers)
    opener = await approvals.opener_of(tx, record) if PRESENT in wanted else ""
    everybody = await people.list_people(tx)
    persons = {
        person.id for person in everybody if any(_is_named(word, person, opener) for word in wanted)
    }
    addresses: dict[str, NoticeAddress] = {}
    for contact in contacts.people:
        if _person_called(contact.person, everybody) in persons:
            for place in contact.reach:
                addresses.setdefault(place, NoticeAddress.read(place, contact.hours))
    return list(addresses.values())


def _person_called(name: str, everybody: Sequence[Person]) -> str | None:
    """Return the id of the person with the name of a contact; None if it is ambiguous."""
    exact = [person.id for person in everybody if name in (person.id, person.name)]
    alike = exact or [
        person.id for person in everybody if person.name.casefold() == name.casefold()
    ]
    return alike[0] if len(alike) == 1 else None


async def person_of(tx: Connection, by: str | Account) -> Person:
    """Return the person who answers, by name, id or account."""
    if isinstance(by, str):
        return await people.find(tx, by)
    account = Account(plain(by.channel), plain(by.sender))
    person_id = await stored_people.person_of_account(tx, account)
    if person_id is None:
        return NOBODY
    person = await stored_people.get_person(tx, person_id)
    if person is None and person_id == OWNER:
        return Person(OWNER, OWNER, Trust.OWNER, (OWNER,))
    return person or NOBODY


def reviewer_names(reviewers: Iterable[str], called: Mapping[str, str]) -> str:
    """Return who may answer, for people: names instead of ids."""
    words: list[str] = []
    for reviewer in reviewers:
        kind, colon, name = reviewer.partition(":")
        if reviewer == PRESENT:
            words.append("whoever the agent talks to")
        elif kind == "role" and colon:
            words.append(f"anybody with the role {name!r}")
        elif kind == "person" and colon:
            words.append(called.get(name, name))
        else:
            words.append(reviewer)
    if OWNER not in words:
        words.append(OWNER)
    return " or ".join(words)
