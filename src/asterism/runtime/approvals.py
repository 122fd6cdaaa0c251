"""Approvals at work: announced where people are reached, escalated by rule, answered once."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

import orjson

from asterism.config.documents import Contacts
from asterism.errors import AsterismError, Conflict, InvalidInput, NotAllowed, NotFound, ToolError
from asterism.permissions import Authority
from asterism.ports import Clock
from asterism.runtime.announcing import Announcing
from asterism.runtime.answers import Said
from asterism.runtime.checks import check_field
from asterism.runtime.decisions import answered_before, find, settle
from asterism.runtime.edited import check_edit
from asterism.runtime.reviewers import may_answer, origin_of, spell, whose
from asterism.store import approvals, events, inbox, journal, outbox
from asterism.store import people as stored_people
from asterism.store.database import Connection, Database
from asterism.tools.plan import PLAN_TOOL
from asterism.tools.tool import Tool
from asterism.types.approvals import Answer, Approval, read_effects, write_effects
from asterism.types.effects import Effect
from asterism.types.events import Event, home_chain
from asterism.types.grants import Extent, Grant, Wish, exact_arguments, limits_of
from asterism.types.ids import new_id, turn_id_for
from asterism.types.labels import Label
from asterism.types.messages import Delivery, Receipt
from asterism.types.people import OWNER, PUBLIC, Account, Participant, Participants, Person
from asterism.types.turns import TurnRecord
from asterism.types.wire import plain

NO_APPROVAL = (
    'There is no approval {id!r}. "asterism approval list" shows what waits for an answer.'
)


@dataclass(frozen=True, slots=True)
class Reply:
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


class Approvals:
    """Questions to people, from the first announcement to the answer."""

    def __init__(
        self,
        database: Database,
        constellation: str,
        clock: Clock,
        *,
        tool: Callable[[str], Tool | None],
        contacts: Callable[[], Contacts],
        delivered: Callable[[], None],
        authority: Callable[[], Authority] = Authority,
    ) -> None:
        """Make it; `tool` finds a tool by name, `delivered` kicks the outbox.

        `authority` returns what the owner has decided beforehand.
        """
        self._database = database
        self._constellation = constellation
        self._clock = clock
        self._tool = tool
        self._delivered = delivered
        self._authority = authority
        self._announcing = Announcing(
            database, constellation, clock, contacts=contacts, delivered=delivered
        )

    async def start(self) -> None:
        """Begin to announce; what fell due while no process ran is done once."""
        await self._announcing.start()

    async def stop(self) -> None:
        """Stop announcing; what is due stays due."""
        await self._announcing.stop()

    # -- answers -------------------------------------------------------------------------------

    async def decide(self, reply: Reply) -> Receipt:
        """Answer a question; the turn goes on where it stood. The first valid answer counts."""
        check_field("note", reply.note)
        at = self._clock()
        outcome = await self._database.write(lambda tx: self._answer(tx, reply, at))
        self._delivered()
        if isinstance(outcome, AsterismError):
            raise outcome
        return outcome

    async def take(
        self,
        tx: Connection,
        said: Said,
        *,
        agent_id: str,
        channel: str,
        sender: str | None,
        reply_to: str | None,
        external_id: str | None,
        at: int,
    ) -> Receipt | None:
        """Take a message of a channel as an answer; None if there is no question that it means.

        Whoever wrote it is told what came of it, in place of a turn of the agent.
        """
        by: str | Account = OWNER if sender is None else Account(channel, sender)
        place = f"{channel}:{reply_to}" if reply_to is not None else None
        approval = await self._meant(tx, said, by, place)
        if approval is None and (said.approval_id is None or by == OWNER):
            return None
        person = await whose(tx, self._constellation, by)
        theirs = approval is not None and await self._may_answer(tx, approval, person)
        if approval is not None and theirs:
            # The message that opened the turn: whoever hands it in again finds the turn.
            message_id, turn_id = "msg_" + approval.turn_id.partition("_")[2], approval.turn_id
            agent_id = approval.agent_id
        else:
            # Nothing of a question is told to those who may not answer it, nor that there is one.
            message_id = new_id("msg")
            turn_id = turn_id_for(message_id)
        named = approval.id if approval is not None and theirs else said.approval_id or ""
        note = plain(said.note) if said.note else None
        reply = Reply(named, said.approved, by, note, place=place)
        if external_id is not None:
            former = await inbox.accept_once(
                tx, self._constellation, channel, external_id, message_id, agent_id
            )
            if former is not None:
                told = None if await _opened(tx, former[0]) else _refusal(reply, person).message
                return Receipt(
                    former[0], turn_id_for(former[0]), former[1], duplicate=True, told=told
                )
        outcome = await self._answer(tx, reply, at)
        text = words_for(outcome, named, approved=said.approved)
        if reply_to is not None:
            await outbox.put(
                tx,
                Delivery(
                    key=f"{turn_id}/reply/{external_id or new_id('msg')}",
                    agent_id=agent_id,
                    turn_id=turn_id,
                    channel=channel,
                    target=reply_to,
                    text=text,
                    next_at=at,
                    created_at=at,
                ),
            )
        if isinstance(outcome, AsterismError):
            return Receipt(message_id, turn_id, agent_id, told=text)
        return outcome

    async def _meant(
        self, tx: Connection, said: Said, by: str | Account, place: str | None
    ) -> Approval | None:
        """Return the question that a message answers: the one it names, or the only one there."""
        if said.approval_id is not None:
            return await find(tx, self._constellation, said.approval_id)
        if place is None:
            return None
        person: Person | None = None
        found: list[Approval] = []
        for approval in await approvals.waiting(tx, self._constellation):
            record = await journal.turn(tx, approval.turn_id)
            if record is None or not _is_asked_at(approval, record, place):
                continue
            person = person or await whose(tx, self._constellation, by)
            if await may_answer(tx, record, approval, person):
                found.append(approval)
        return found[0] if len(found) == 1 else None

    async def _answer(self, tx: Connection, reply: Reply, at: int) -> Receipt | AsterismError:
        """Settle a question, or return (so that the refusal is kept) why it was not."""
        approval = await find(tx, self._constellation, reply.approval_id)
        try:
            person = await whose(tx, self._constellation, reply.by)
        except AsterismError as error:
            return error
        if approval is None:
            if person.id == OWNER:
                return NotFound(NO_APPROVAL.format(id=reply.approval_id))
            return _refusal(reply, person)
        if not await self._may_answer(tx, approval, person):
            return await self._refuse(tx, approval, person, reply, at)
        if approval.decided_at is not None:
            return await answered_before(tx, self._constellation, approval)
        record = await journal.turn(tx, approval.turn_id)
        if record is None or record.ended_at is not None:
            return Conflict(f"The turn that asked {approval.id} has ended. Nothing was changed.")
        try:
            edited = self._edited(approval, reply)
            if edited is not None:
                await check_edit(
                    *(tx, self._constellation, self._authority(), approval, record),
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
        return await settle(tx, self._constellation, approval, record, answer, at, grant)

    async def _may_answer(self, tx: Connection, approval: Approval, person: Person) -> bool:
        record = await journal.turn(tx, approval.turn_id)
        if record is None:
            return person.id == OWNER
        return await may_answer(tx, record, approval, person)

    async def _refuse(
        self, tx: Connection, approval: Approval, person: Person, reply: Reply, at: int
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
            home_chain(self._constellation),
            [Event("approval.refused", actor, at, body, approval.agent_id, approval.turn_id)],
        )
        called = dict(await stored_people.names(tx, self._constellation))
        return _refusal(reply, person, f"; it waits for {spell(approval.reviewers, called)}")

    def _edited(self, approval: Approval, reply: Reply) -> _Edited | None:
        """Return the changed arguments if they fit the tool; None if none differ."""
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
        return _Edited(tool, text, read, tool.shown_effects(read), definition)

    def _grant(
        self,
        approval: Approval,
        reply: Reply,
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
            constellation=self._constellation,
            tool=approval.tool,
            agent_id=approval.agent_id,
            pattern=dict(wish.pattern or {}),
            turn_id=approval.turn_id if wish.extent is Extent.TURN else None,
            until=wish.until,
            given_by=answer.by,
            given_at=at,
            approval_id=approval.id,
            amount=wish.amount,
            per_day=wish.per_day,
            definition=(approval.definition if edited is None else edited.definition) or None,
        )
        if wish.pattern is not None or not (wish.extent is Extent.RECIPIENT or wish.limited):
            return grant
        effects = limits_of(read_effects(approval.effects) if edited is None else edited.effects)
        if wish.amount is not None:
            if not effects or all(one.amount is None for one in effects):
                raise InvalidInput(
                    f"{approval.tool} does not declare an amount that can be read and to whom it "
                    "goes, so that a limit on it could not be kept. Grant it otherwise. Nothing "
                    "was changed."
                )
            effects = tuple(replace(one, amount=None) for one in effects)
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


def _check_wish(approval: Approval, wish: Wish, answer: Answer, at: int) -> None:
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
    if wish.until is not None and wish.until <= at:
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


def _digest(tool: Tool, approval: Approval) -> str:
    """Return the digest that a tool has now for the call that was asked about."""
    try:
        return tool.digest(tool.read(approval.arguments))
    except ToolError:
        return ""  # they do not fit it any more


def _is_asked_at(approval: Approval, record: TurnRecord, place: str) -> bool:
    return place in approval.announced or place == f"{record.channel}:{record.reply_to}"


def _arguments(approval: Approval) -> Mapping[str, Any]:
    try:
        found: Any = json.loads(approval.arguments or "{}")
    except ValueError:
        return {}  # some of it has been forgotten
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


def _refusal(reply: Reply, person: Person, why: str = "") -> NotAllowed:
    """Return that somebody may not answer a question, and why if the owner reads it.

    They themselves are told the same whether there is such a question or not.
    """
    who = person.name if person.id else _account(reply)
    shown = why if reply.for_owner else ""
    return NotAllowed(f"{who} may not answer {reply.approval_id}{shown}. Nothing was changed.")


def _account(reply: Reply) -> str:
    by = reply.by
    return by if isinstance(by, str) else f"{by.channel}:{by.sender}"


async def _opened(tx: Connection, message_id: str) -> bool:
    """Tell whether a turn answers a message, or will."""
    if await inbox.find(tx, message_id) is not None:
        return True
    return await journal.turn(tx, turn_id_for(message_id)) is not None


def _label_of(person: Person, reply: Reply, record: TurnRecord) -> Label:
    """Return the label of what somebody says with an answer: theirs."""
    said_there = reply.place is not None and reply.place == str(origin_of(record))
    audience = PUBLIC if said_there else Participants((Participant(person.id),)).audience
    return Label(person.trust, audience)


def words_for(outcome: Receipt | AsterismError, approval_id: str, *, approved: bool) -> str:
    """Return what whoever answered is told of what came of it."""
    if isinstance(outcome, AsterismError):
        return outcome.message
    if approved:
        return f"Approved {approval_id}: the call is made, and the turn goes on."
    return f"Denied {approval_id}: the call is not made, and the agent is told so."
