"""Approvals at work: announced where people are reached, escalated by rule, answered once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

import orjson

from asterism.config.contacts import Contacts
from asterism.errors import AsterismError, Conflict, InvalidInput, NotAllowed, NotFound, ToolError
from asterism.ports import Clock
from asterism.runtime.announcing import Announcing
from asterism.runtime.answers import Said
from asterism.runtime.checks import check_field
from asterism.runtime.decisions import answered_before, find, settle
from asterism.runtime.reviewers import may_answer, spell, whose
from asterism.store import approvals, events, inbox, journal, outbox
from asterism.store import people as stored_people
from asterism.store.database import Connection, Database
from asterism.tools.tool import Tool
from asterism.types.approvals import Answer, Approval, read_deeds
from asterism.types.events import Event, home_chain
from asterism.types.grants import Extent, Grant, Wish, scope_of
from asterism.types.ids import new_id
from asterism.types.messages import Delivery, Receipt
from asterism.types.people import OWNER, Account, Person
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
    ) -> None:
        """Make it; `tool` finds a tool by name, `delivered` kicks the outbox."""
        self._database = database
        self._constellation = constellation
        self._clock = clock
        self._tool = tool
        self._delivered = delivered
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
        if approval is None:
            return None
        # The id of the message that opened the turn: whoever hands it in again finds the turn.
        opening = "msg_" + approval.turn_id.partition("_")[2]
        if external_id is not None:
            former = await inbox.accept_once(
                tx, self._constellation, channel, external_id, opening, approval.agent_id
            )
            if former is not None:
                return Receipt(opening, approval.turn_id, former[1], duplicate=True)
        note = plain(said.note) if said.note else None
        reply = Reply(approval.id, said.approved, by, note, place=place)
        outcome = await self._answer(tx, reply, at)
        if reply_to is not None:
            await outbox.put(
                tx,
                Delivery(
                    key=f"{approval.id}/reply/{external_id or new_id('msg')}",
                    agent_id=approval.agent_id,
                    turn_id=approval.turn_id,
                    channel=channel,
                    target=reply_to,
                    text=words_for(outcome, approval.id, approved=said.approved),
                    next_at=at,
                    created_at=at,
                ),
            )
        if isinstance(outcome, AsterismError):
            return Receipt(opening, approval.turn_id, approval.agent_id)
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
        if approval is None:
            return NotFound(NO_APPROVAL.format(id=reply.approval_id))
        if approval.decided_at is not None:
            return await answered_before(tx, self._constellation, approval)
        record = await journal.turn(tx, approval.turn_id)
        if record is None or record.ended_at is not None:
            return Conflict(f"The turn that asked {approval.id} has ended. Nothing was changed.")
        try:
            person = await whose(tx, self._constellation, reply.by)
            if not await may_answer(tx, record, approval, person):
                return await self._refuse(tx, approval, person, reply, at)
            answer = Answer(
                reply.approved,
                person.id,
                person.name,
                reply.note,
                self._edited(approval, reply),
                reply.place,
            )
            grant = self._grant(approval, reply, answer, at)
        except AsterismError as error:
            return error
        return await settle(tx, self._constellation, approval, record, answer, at, grant)

    async def _refuse(
        self, tx: Connection, approval: Approval, person: Person, reply: Reply, at: int
    ) -> NotAllowed:
        by = reply.by if isinstance(reply.by, str) else f"{reply.by.channel}:{reply.by.sender}"
        actor = f"person:{person.name}" if person.id else f"account:{by}"
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
        who = person.name if person.id else by
        return NotAllowed(
            f"{who} may not answer {approval.id}; it waits for "
            f"{spell(approval.reviewers, called)}. Nothing was changed."
        )

    def _edited(self, approval: Approval, reply: Reply) -> str | None:
        """Return the changed arguments if they fit the tool, as JSON; None if none differ."""
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
            tool.read(reply.arguments)
        except ToolError as error:
            raise InvalidInput(
                f"The changed arguments of {approval.id} cannot be used: {error.message} "
                "Nothing was changed."
            ) from None
        changed: Any = orjson.loads(reply.arguments)
        if changed == _arguments(approval):
            return None
        return orjson.dumps(changed).decode()

    def _grant(self, approval: Approval, reply: Reply, answer: Answer, at: int) -> Grant | None:
        wish = reply.grant
        if wish is None:
            return None
        if not reply.approved:
            raise InvalidInput(
                f"{approval.id} is denied, and a denial grants nothing. Nothing was changed."
            )
        if answer.by != OWNER and wish.extent is not Extent.TURN:
            raise NotAllowed(
                f"{answer.name} may answer {approval.id}, but only the owner grants more than the "
                "turn. Answer it without a grant. Nothing was changed."
            )
        if wish.extent is Extent.UNTIL and (wish.until is None or wish.until <= at):
            raise InvalidInput(
                "A grant until a time needs one that is yet to come. Nothing was changed."
            )
        arguments = orjson.loads(answer.edited) if answer.edited else _arguments(approval)
        pattern = wish.pattern
        if pattern is None and wish.extent is Extent.SCOPE:
            # Deeds of other arguments than those that were asked for are not known here.
            deeds = read_deeds(approval.deeds) if answer.edited is None else ()
            pattern = scope_of(arguments, deeds)
        return Grant(
            id=new_id("grant"),
            constellation=self._constellation,
            tool=approval.tool,
            agent_id=approval.agent_id,
            pattern=dict(pattern or {}),
            turn_id=approval.turn_id if wish.extent is Extent.TURN else None,
            until=wish.until if wish.extent is Extent.UNTIL else None,
            given_by=answer.by,
            given_at=at,
            approval_id=approval.id,
        )


def _is_asked_at(approval: Approval, record: TurnRecord, place: str) -> bool:
    return place in approval.announced or place == f"{record.channel}:{record.reply_to}"


def _arguments(approval: Approval) -> Mapping[str, Any]:
    try:
        found: Any = orjson.loads(approval.arguments) if approval.arguments.strip() else {}
    except orjson.JSONDecodeError:
        return {}
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


def words_for(outcome: Receipt | AsterismError, approval_id: str, *, approved: bool) -> str:
    """Return what whoever answered is told of what came of it."""
    if isinstance(outcome, AsterismError):
        return outcome.message
    if approved:
        return f"Approved {approval_id}: the call is made, and the turn goes on."
    return f"Denied {approval_id}: the call is not made, and the agent is told so."
