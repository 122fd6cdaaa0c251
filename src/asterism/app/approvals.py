"""The verbs about approvals: what waits for whom, the exact call, and the answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from asterism.app.session import Session, enough, verbs
from asterism.errors import AsterismError, InvalidInput, NotFound
from asterism.permissions import Act
from asterism.store import approvals, journal
from asterism.store import people as stored_people
from asterism.store.database import Connection
from asterism.turns import approvals as at_work
from asterism.turns.approvals import NO_APPROVAL, ApprovalReply, find, may_answer, spell, words_for
from asterism.types.approvals import Approval, Extent, Grant, Wish
from asterism.types.people import OWNER, Account
from asterism.types.turns import Receipt


@dataclass(frozen=True, slots=True)
class ApprovalDetails:
    """A question with what people want to know of it."""

    approval: Approval
    whom: str
    """Who may answer, in words."""
    answered_by: str | None
    """Who did, by name."""
    grant: Grant | None


@verbs(
    "approval",
    __call__=Act.READ,
    answered=Act.READ,
    get=Act.READ,
    show=Act.READ,
    decide=Act.TALK,
    answer=Act.TALK,
)
class Approvals:
    """Questions that turns wait for: `await home.approvals()` returns those nobody answered."""

    def __init__(self, session: Session, at_work: at_work.ApprovalQueue) -> None:
        self._session = session
        self._at_work = at_work

    async def __call__(self) -> list[Approval]:
        """Return the questions that wait for an answer, the oldest first."""

        async def read(tx: Connection) -> list[Approval]:
            return await self._visible(tx, await approvals.waiting(tx, self._session.constellation))

        return await self._read(read)

    async def answered(self, *, limit: int = 20) -> list[Approval]:
        """Return the questions that were answered, the latest first."""

        async def read(tx: Connection) -> list[Approval]:
            return await enough(
                lambda most: approvals.decided(tx, self._session.constellation, most),
                lambda found: self._visible(tx, found),
                limit,
            )

        return await self._read(read)

    async def _visible(self, tx: Connection, found: Sequence[Approval]) -> list[Approval]:
        """Return the questions that whoever acts may see: of turns they hear, or put to them."""
        session = self._session
        if session.sees_all:
            return list(found)
        visible = await session.visible_turns(tx, [one.turn_id for one in found])
        person = await stored_people.get(tx, session.constellation, session.actor.id)
        kept: list[Approval] = []
        for one in found:
            record = await journal.turn(tx, one.turn_id) if person is not None else None
            if one.turn_id in visible:
                kept.append(one)
            elif person is not None and record is not None:
                kept += [one] if await may_answer(tx, record, one, person) else []
        return kept

    async def get(self, approval_id: str) -> Approval:
        """Return a question by its id, or by the end of the id of one that waits."""

        async def read(tx: Connection) -> list[Approval]:
            found = await find(tx, self._session.constellation, approval_id)
            return await self._visible(tx, [found] if found is not None else [])

        found = next(iter(await self._read(read)), None)
        if found is None:
            raise NotFound(NO_APPROVAL.format(id=approval_id))
        return found

    async def show(self, approval_id: str) -> ApprovalDetails:
        """Return a question with who may answer it, who did, and what was granted with it."""
        approval = await self.get(approval_id)

        async def read(tx: Connection) -> ApprovalDetails:
            called = dict(await stored_people.names(tx, self._session.constellation))
            by = approval.decided_by
            given = None
            if approval.grant is not None:
                given = await approvals.get_grant(tx, self._session.constellation, approval.grant)
            return ApprovalDetails(
                approval,
                spell(approval.reviewers, called),
                called.get(by, by) if by is not None else None,
                given,
            )

        return await self._read(read)

    async def decide(
        self,
        approval_id: str,
        *,
        approved: bool,
        by: str | Account | None = None,
        note: str | None = None,
        arguments: str | Mapping[str, Any] | None = None,
        grant: Wish | Extent | str | None = None,
        place: str | None = None,
    ) -> Receipt:
        """Answer a question; the turn that asked goes on. The first valid answer counts.

        Args:
            approval_id: Which question.
            approved: Whether the call may be made.
            by: Who answers, where the owner hands it in: a person by name or id, or an account in a
                channel; None: the owner. Anybody else who acts answers for themselves.
            note: What the agent is told with it.
            arguments: Other arguments to make the call with, which must fit its tool.
            grant: How far the yes reaches beyond this call: `turn`, `recipient`, `always`, or a
                `Wish`, which has limits and an end as well.
            place: Where it is answered, as `channel:address`; others who were asked are told.
        """
        who = (by or OWNER) if self._session.is_owner else self._session.actor.id
        changed = arguments
        if changed is not None and not isinstance(changed, str):
            changed = orjson.dumps(dict(changed)).decode()
        wish = grant if grant is None or isinstance(grant, Wish) else Wish(_extent(grant))
        return await self._at_work.decide(
            ApprovalReply(
                approval_id, approved, who, note, changed, wish, place, self._session.is_owner
            )
        )

    async def answer(
        self,
        approval_id: str,
        *,
        approved: bool,
        by: Account,
        place: str | None = None,
        note: str | None = None,
    ) -> str:
        """Answer a question from a channel; return in a sentence what came of it.

        Anybody but the owner who acts answers for themselves, whatever `by` says.
        """
        who = by if self._session.is_owner else self._session.actor.id
        try:
            receipt = await self._at_work.decide(
                ApprovalReply(approval_id, approved, who, note, place=place)
            )
        except AsterismError as error:
            return words_for(error, approval_id, approved=approved)
        return words_for(receipt, approval_id, approved=approved)

    async def _read(self, work: Callable[[Connection], Awaitable[Any]]) -> Any:
        return await self._session.database.read(work)


def _extent(text: str) -> Extent:
    try:
        return Extent(text)
    except ValueError:
        known = ", ".join(f'"{one.value}"' for one in Extent)
        raise InvalidInput(
            f"{text[:40]!r} does not say how far a yes reaches: {known} do. Nothing was decided."
        ) from None
