"""What a group does next, in the transaction that brings it about.

A turn of a group that waits for its members stays in memory here. When a member has its answer, the
group decides at once, and what follows is written together with the end of the member's turn. So is
the first decision together with the message that opens a turn. It is written only if the store has
what the decision was made of; else the answer or the message goes to the inbox of the group, whose
lane reads the store and decides anew.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Protocol

from asterism.errors import StoreError
from asterism.store import groups, messages
from asterism.store.database import Connection, Database
from asterism.turns.context import LiveAgent
from asterism.turns.turn import JoinedWrite, Turn, Written
from asterism.types.groups import GroupRecord
from asterism.types.turns import InboxItem, Outcome, TurnState

_log = logging.getLogger(__name__)
_MAX_GROUPS = 1_024


class GroupTurns(Protocol):
    """Takes turns of groups."""

    async def read(
        self, tx: Connection, group_id: str, finishing: str | None = None
    ) -> GroupRecord | None:
        """Return a group as it is now, without the turn that a member is finishing."""
        ...

    def is_stateless(self, group: GroupRecord) -> bool:
        """Tell whether a group stays the same for its pattern until somebody changes it."""
        ...

    async def take_turn(
        self, turn: Turn, group: GroupRecord, results: list[InboxItem]
    ) -> Outcome | None:
        """Take a turn as far as it goes, with what members have said; None: it waits."""
        ...


class StepServices(Protocol):
    """What the steps of groups need of the runtime."""

    def loaded_agent(self, agent_id: str) -> LiveAgent | None:
        """Return what is in memory of a group."""
        ...

    async def is_halted(self) -> bool:
        """Tell whether no turns are to be taken."""
        ...

    def look_again(self, agent_id: str) -> None:
        """Have the lane of a group look into the store."""
        ...

    def look_after_writes(self, agent_ids: Sequence[str]) -> None:
        """Have lanes look into the store once all writes that are queued are done."""
        ...

    def forget(self, agent_id: str) -> None:
        """Drop what is in memory of an agent or a group."""
        ...

    def group_turn_ended(self, turn: Turn, outcome: Outcome) -> None:
        """Tell whoever waits for a turn of a group how it has ended."""
        ...


class WaitingTurn:
    """A turn of a group that waits for its members."""

    __slots__ = ("is_current", "read", "turn")

    def __init__(self, turn: Turn, read: list[str]) -> None:
        self.turn = turn
        self.read = read
        """The items of the inbox that it has taken in and not written yet, in order."""
        self.is_current = True
        """Whether it is still in use; else the lane of the group has read the store since."""


class GroupSteps:
    """The turns of groups that wait in this process, and what members add to them."""

    def __init__(self, database: Database, turns: GroupTurns, services: StepServices) -> None:
        """Make it.

        Args:
            database: Where the groups are.
            turns: Takes turns of groups.
            services: What it needs of the runtime.
        """
        self.database = database
        self.services = services
        self._turns = turns
        self._waiting: dict[str, WaitingTurn] = {}
        self._writes: dict[str, asyncio.Future[None]] = {}
        """By group, the write of a step that is under way."""
        self._served: set[str] = set()
        """Groups whose lane is at work."""
        self._groups: dict[str, GroupRecord] = {}
        """Groups that stay the same until somebody changes them, or one of their members."""

    def hold(self, turn: Turn, results: list[InboxItem]) -> None:
        """Keep a turn that waits, which has taken in some results."""
        if turn.record is not None:
            read = [item.id for item in results] if turn.is_unwritten else []
            self._waiting[turn.agent.id] = WaitingTurn(turn, read)

    def drop(self, group_id: str) -> None:
        """Forget the turn of a group that waits; the store has it."""
        waiting = self._waiting.pop(group_id, None)
        if waiting is not None:
            waiting.is_current = False

    @asynccontextmanager
    async def lane(self, group_id: str) -> AsyncGenerator[None, None]:
        """Leave the turns of a group to its lane, after the write of a step under way."""
        while (write := self._writes.get(group_id)) is not None:
            await write
        self._served.add(group_id)
        self.drop(group_id)
        try:
            yield
        finally:
            self._served.discard(group_id)

    async def open(
        self, group_id: str, begin: Callable[[LiveAgent], Awaitable[Turn]]
    ) -> Step | None:
        """Return the first decision of a turn that a message opens; None: its lane sees to it.

        Args:
            group_id: The group.
            begin: Makes the turn.
        """
        live = self.services.loaded_agent(group_id)
        if live is None or await self.services.is_halted():
            return None
        if group_id in self._served or group_id in self._waiting or group_id in self._writes:
            return None
        group = await self._read(group_id)
        turn = await begin(live)
        if group is None:
            return None
        return await self._decide(WaitingTurn(turn, []), group, None)

    def forget_groups(self) -> None:
        """Read groups again before the next decision: something was changed."""
        self._groups.clear()

    async def _read(self, group_id: str, finishing: str | None = None) -> GroupRecord | None:
        group = self._groups.get(group_id)
        if group is not None:
            return group
        turns = self._turns
        group = await self.database.read(lambda tx: turns.read(tx, group_id, finishing), brief=True)
        if group is not None and turns.is_stateless(group):
            if len(self._groups) >= _MAX_GROUPS:
                self._groups.clear()
            self._groups[group_id] = group
        return group

    async def join(self, member: Turn, item: InboxItem) -> Step | None:
        """Return what a group does with the end of a member's turn; None: its lane sees to it.

        Args:
            member: The turn that ends.
            item: What the inbox of the group would get of it.
        """
        group_id = item.agent_id
        waiting = self._waiting.get(group_id)
        if waiting is None or waiting.turn.id != item.turn_id:
            return None
        if waiting.turn.live is not self.services.loaded_agent(group_id):
            self.drop(group_id)
            return None
        if await self.services.is_halted():
            return None
        group = await self._read(group_id, member.agent.id)
        if group is None or self._waiting.get(group_id) is not waiting:
            return None
        return await self._decide(waiting, group, item)

    async def _decide(
        self, waiting: WaitingTurn, group: GroupRecord, item: InboxItem | None
    ) -> Step | None:
        turn, group_id = waiting.turn, group.id
        self._waiting.pop(group_id, None)  # nobody else goes on with it meanwhile
        joined = turn.joined = JoinedWrite()
        try:
            outcome = await self._turns.take_turn(turn, group, [item] if item is not None else [])
        except Exception:  # noqa: BLE001 - its lane comes to the same, and says so
            _log.debug("a step of %s is left to its lane", turn.id, exc_info=True)
            waiting.is_current = False
            return None
        finally:
            turn.joined = None
        if joined.page is None and outcome is None and item is not None:
            self._waiting[group_id] = waiting
            waiting.read.append(item.id)
            return Step(self, waiting, group, item, joined)
        if joined.page is None or (outcome is not None and outcome.state is TurnState.PARKED):
            waiting.is_current = False
            return None
        self._writes[group_id] = asyncio.get_running_loop().create_future()
        return Step(self, waiting, group, item, joined, outcome)

    def written(self, waiting: WaitingTurn, *, goes_on: bool) -> None:
        """Note that the write of a step is over; a turn that goes on waits again."""
        turn = waiting.turn
        group_id = turn.agent.id
        self._writes.pop(group_id).set_result(None)
        waiting.is_current = goes_on and turn.live is self.services.loaded_agent(group_id)
        if waiting.is_current:
            waiting.read = []
            self._waiting[group_id] = waiting


class Step:
    """What a group does with the end of a member's turn, or with a message to it."""

    def __init__(
        self,
        steps: GroupSteps,
        waiting: WaitingTurn,
        group: GroupRecord,
        item: InboxItem | None,
        joined: JoinedWrite,
        outcome: Outcome | None = None,
    ) -> None:
        """Make it; without a write of its own the answer waits in the inbox for others.

        Args:
            steps: Where the turn is kept.
            waiting: The turn.
            group: The group as the decision has seen it.
            item: What a member has said; None: the turn is opened.
            joined: What the turn writes, if something, and what is done after that.
            outcome: How the turn ends; None: it goes on.
        """
        self._steps = steps
        self._waiting = waiting
        self._group = group
        self._item = item
        self._after = joined.after
        self._outcome = outcome
        self._write: Callable[[Connection], Awaitable[Written]] | None = None
        self._read = list(waiting.read)
        if joined.page is not None:
            self._write, self._settle = waiting.turn.prepare(joined.page)
        self._written: Written | None = None

    @property
    def is_written(self) -> bool:
        """Whether it is part of the transaction, once that is committed."""
        return self._written is not None

    async def write(self, tx: Connection) -> bool:
        """Write it; False if the group is to be told by its inbox instead."""
        turn, item = self._waiting.turn, self._item
        if self._write is None:
            assert item is not None
            await messages.put_result(
                tx, turn.agent.id, item.id, turn.id, item.body, item.at_ms, announce=False
            )
            return True
        if item is None:
            as_read = await groups.is_idle(tx, turn.agent.id)
        else:
            as_read = await groups.is_waiting(tx, turn.agent.id, turn.id, self._read)
        if not as_read:
            return False
        try:
            async with tx.savepoint():
                self._written = await self._write(tx)
        except StoreError:
            raise
        except Exception as fault:  # noqa: BLE001 - the member has its answer all the same
            self._written = None
            _log.info("a step of %s is left to its lane: %s", turn.id, fault)
            return False
        if self._read:
            await messages.take_results(tx, turn.agent.id, turn.id)
        if self._outcome is not None and await messages.first(tx, turn.agent.id) is not None:
            await tx.notify("lane", turn.agent.id)
        return True

    def done(self) -> None:
        """Go on with it: the transaction is committed."""
        turn, written = self._waiting.turn, self._written
        services = self._steps.services
        if self._write is None:
            for follow in self._after:
                follow()
            if not self._waiting.is_current:
                services.look_again(turn.agent.id)  # it may have looked before this was there
            return
        if written is not None:
            self._settle(written)
        self._steps.written(self._waiting, goes_on=written is not None and self._outcome is None)
        if written is None:
            return
        for follow in self._after:
            follow()
        if self._outcome is not None:
            services.group_turn_ended(turn, self._outcome)

    def failed(self) -> None:
        """Leave it: nobody knows whether the transaction was committed."""
        services, group_id = self._steps.services, self._group.id
        if self._write is not None:
            self._steps.written(self._waiting, goes_on=False)
        services.forget(group_id)
        members = [member.agent_id for member in self._group.members]
        services.look_after_writes([group_id, *members])
