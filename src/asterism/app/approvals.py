"""The verbs about approvals: what waits for whom, the exact call, and the answer."""

from __future__ import annotations

import builtins
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import orjson

from asterism.app.engine import Engine
from asterism.app.session import Session, enough, verbs
from asterism.errors import AsterismError, InvalidInput, NotFound
from asterism.memory import people as stored_people
from asterism.permissions import Act
from asterism.store import approvals, journal
from asterism.store.database import Connection
from asterism.turns.approvals import NO_APPROVAL, ApprovalReply, find, may_answer, spell, words_for
from asterism.turns.runtime import signals_of_turn
from asterism.types.agents import OWNER, Account
from asterism.types.permissions import ApprovalRecord, Extent, Grant, Wish
from asterism.types.turns import Receipt, Signal


@dataclass(frozen=True, slots=True)
class Approval(ApprovalRecord):
    """A question of an open home: what is asked, and the answer that can be given."""

    _approvals: Approvals = field(kw_only=True, repr=False, compare=False)

    async def approve(self, **options: Any) -> Receipt:
        """Let the call be made; `Approvals.decide` has the options."""
        return await self._approvals.decide(self.id, approved=True, **options)

    async def deny(self, **options: Any) -> Receipt:
        """Have the turn go on without the call."""
        return await self._approvals.decide(self.id, approved=False, **options)


_RECORD_FIELDS = tuple(one.name for one in fields(ApprovalRecord))


@dataclass(frozen=True, slots=True)
class ApprovalDetails:
    """A question with what people want to know of it."""

    approval: ApprovalRecord
    whom: str
    """Who may answer, in words."""
    answered_by: str | None
    """Who did, by name."""
    grant: Grant | None


@verbs(
    "approval",
    list=Act.READ,
    answered=Act.READ,
    get=Act.READ,
    show=Act.READ,
    decide=Act.TALK,
    answer=Act.TALK,
    stream_decision=Act.TALK,
)
class Approvals:
    """Questions that turns wait for, and the answers to them."""

    def __init__(self, engine: Engine, session: Session) -> None:
        self._engine = engine
        self._session = session
        self._queue = engine.approvals

    def _bound(self, found: Sequence[ApprovalRecord]) -> builtins.list[Approval]:
        """Return records as questions that can be answered."""
        return [
            Approval(*[getattr(record, name) for name in _RECORD_FIELDS], _approvals=self)
            for record in found
        ]

    async def list(self) -> builtins.list[Approval]:
        """Return the questions that wait for an answer, the oldest first."""

        async def read(tx: Connection) -> builtins.list[ApprovalRecord]:
            return await self._visible(tx, await approvals.waiting(tx, self._session.constellation))

        return self._bound(await self._session.database.read(read))

    async def answered(self, *, limit: int = 20) -> builtins.list[Approval]:
        """Return the questions that were answered, the latest first."""

        async def read(tx: Connection) -> builtins.list[ApprovalRecord]:
            return await enough(
                lambda most: approvals.decided(tx, self._session.constellation, most),
                lambda found: self._visible(tx, found),
                limit,
            )

        return self._bound(await self._session.database.read(read))

    async def _visible(
        self, tx: Connection, found: Sequence[ApprovalRecord]
    ) -> builtins.list[ApprovalRecord]:
        """Return the questions that whoever acts may see: of turns they hear, or put to them."""
        session = self._session
        if session.sees_all:
            return [*found]
        visible = await session.visible_turns(tx, [one.turn_id for one in found])
        person = await stored_people.get_person(tx, session.constellation, session.actor.id)
        kept: builtins.list[ApprovalRecord] = []
        for one in found:
            record = await journal.turn(tx, one.turn_id) if person is not None else None
            if one.turn_id in visible:
                kept.append(one)
            elif person is not None and record is not None:
                kept += [one] if await may_answer(tx, record, one, person) else []
        return kept

    async def get(self, approval_id: str) -> Approval:
        """Return a question by its id, or by the end of the id of one that waits."""

        async def read(tx: Connection) -> builtins.list[ApprovalRecord]:
            found = await find(tx, self._session.constellation, approval_id)
            return await self._visible(tx, [found] if found is not None else [])

        found = self._bound(await self._session.database.read(read))
        if not found:
            raise NotFound(NO_APPROVAL.format(id=approval_id))
        return found[0]

    async def show(self, approval_id: str) -> ApprovalDetails:
        """Return a question with who may answer it, who did, and what was granted with it."""
        approval = await self.get(approval_id)

        async def read(tx: Connection) -> ApprovalDetails:
            called = dict(await stored_people.people_names(tx, self._session.constellation))
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

        return await self._session.database.read(read)

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
        return await self._queue.decide(
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
            receipt = await self._queue.decide(
                ApprovalReply(approval_id, approved, who, note, place=place)
            )
        except AsterismError as error:
            return words_for(error, approval_id, approved=approved)
        return words_for(receipt, approval_id, approved=approved)

    def stream_decision(
        self, approval: ApprovalRecord, *, approved: bool, **options: Any
    ) -> AsyncGenerator[Signal, None]:
        """Answer a question and yield the signals of the turn as it goes on."""
        return signals_of_turn(
            self._engine.hub,
            self._engine.runtime.wait,
            approval.agent_id,
            lambda: self.decide(approval.id, approved=approved, **options),
        )


def _extent(text: str) -> Extent:
    try:
        return Extent(text)
    except ValueError:
        known = ", ".join(f'"{one.value}"' for one in Extent)
        raise InvalidInput(
            f"{text[:40]!r} does not say how far a yes reaches: {known} do. Nothing was decided."
        ) from None
