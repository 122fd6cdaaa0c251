"""Turns and what comes of them: answers, notices, deliveries and schedules."""

from __future__ import annotations

import builtins
import contextlib
import shlex
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import field, fields, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import orjson

from asterism.app.agents import Agent, Agents, copied_record, create_copy
from asterism.app.engine import Engine
from asterism.app.replay import replay_tape
from asterism.app.session import (
    Session,
    checked_agent_name,
    event_of,
    first_visible,
    no_such_position,
    no_such_turn,
    note,
    shorten_text,
    verbs,
)
from asterism.errors import AsterismError, Conflict, InvalidInput, NotAllowed, NotFound
from asterism.memory import people as stored_people
from asterism.patterns import InvalidPattern, check_length, compile_pattern
from asterism.permissions import Act
from asterism.records import dataclass
from asterism.store import agents, approvals, events, groups, journal, messages, spending
from asterism.store.database import Connection
from asterism.store.events import home_chain
from asterism.telemetry.redaction import redact
from asterism.times import to_datetime, to_ms
from asterism.tools.builtin.control import check_quiet, plan_schedule
from asterism.turns.approvals import (
    NO_APPROVAL,
    ApprovalReply,
    check_limits,
    find,
    may_answer,
    reviewer_names,
    words_for,
)
from asterism.turns.parts import TurnParts, parts_of
from asterism.turns.replay import replay as replay_turn
from asterism.turns.runtime import signals_of_turn
from asterism.turns.turn import PUT_ASIDE
from asterism.types.agents import (
    OWNER,
    Account,
    AgentRecord,
    Schedule,
    audience_of,
    message_id_for,
    new_id,
    optional_ms,
)
from asterism.types.groups import AGENT_CHANNEL, GROUP_CHANNEL, GROUP_ID
from asterism.types.permissions import ApprovalRecord, Extent, Grant, Wish, grant_details
from asterism.types.turns import (
    Delivery,
    Entry,
    InboxItem,
    MessageMeta,
    Notice,
    Outcome,
    Receipt,
    Replay,
    Signal,
    TurnRecord,
    TurnState,
    check_text,
    images_in,
    text_of,
)

_MAX_COUNTED = 10_000
"""How many turns are counted for somebody who may not see all."""


@verbs(
    "turn",
    list=Act.READ,
    count=Act.READ,
    get=Act.READ,
    cost=Act.READ,
    outcome=Act.READ,
    wait=Act.TALK,
    follow=Act.READ,
    find_messages=Act.TALK,
    parts=Act.TALK,
    submit_results=Act.TALK,
    stream_results=Act.TALK,
    stop=Act.APPEND,
    retry=Act.TALK,
    replay=Act.READ,
    fork=Act.GOVERN,
    waiting=Act.READ,
    unfinished=Act.READ,
)
class Turns:
    """The turns of all agents: how they stand, how they went, and running them again."""

    def __init__(self, engine: Engine, session: Session, agents: Agents) -> None:
        self._engine = engine
        self._session = session
        self._agents = agents

    async def list(
        self,
        agent: AgentRecord | str | None = None,
        *,
        limit: int = 20,
        before: str | None = None,
    ) -> builtins.list[TurnRecord]:
        """Return the latest turns, newest first.

        Args:
            agent: Whose; None: of all agents.
            limit: How many at most.
            before: The id of the last turn of the page before.
        """
        session = self._session
        agent_id = await session.id_of(agent) if agent is not None else None
        last = await self._position(before, agent_id) if before is not None else None
        return await session.visible_of_turns(
            lambda tx, most: journal.turns_of(tx, agent_id, most, last),
            lambda record: record.id,
            limit,
        )

    async def _position(self, turn_id: str, agent_id: str | None) -> TurnRecord:
        """Return the turn that a page goes on from; raise `NotFound` if the list has none such."""
        record = await self._session.database.read(lambda tx: journal.turn(tx, turn_id))
        is_of_list = record is not None and agent_id in (None, record.agent_id)
        if record is None or not is_of_list or not await self._session.sees_turn(turn_id):
            raise no_such_position("turn", turn_id)
        return record

    async def count(self, agent: AgentRecord | str) -> int:
        """Return how many turns an agent has had that the actor may see."""
        session, agent_id = self._session, await self._session.id_of(agent)
        if session.sees_every_audience:
            return await session.database.read(lambda tx: journal.count_turns(tx, agent_id))
        return len(await self.list(agent_id, limit=_MAX_COUNTED))

    async def cost(self, turn_id: str) -> int:
        """Return what the model calls of a turn have cost, in nano-dollars."""
        await self._must_see(turn_id)
        return await self._session.database.read(lambda tx: spending.cost_of_turn(tx, turn_id))

    async def get(self, turn_id: str) -> tuple[TurnRecord, builtins.list[Entry]]:
        """Return a turn with its entries."""

        async def read(tx: Connection) -> tuple[TurnRecord, builtins.list[Entry]] | None:
            record = await journal.turn(tx, turn_id)
            if record is None or not await self._session.visible_turns(tx, [turn_id]):
                return None
            return record, await journal.entries_of(tx, record)

        turn = await self._session.database.read(read)
        if turn is None:
            raise no_such_turn(turn_id)
        return turn

    async def outcome(self, turn_id: str) -> Outcome:
        """Return how a turn stands."""
        await self._must_see(turn_id)
        return await self._engine.runtime.outcome(turn_id)

    async def wait(self, receipt: Receipt) -> Outcome:
        """Wait for how the turn of an accepted message ends."""
        await self._must_see(receipt.turn_id)
        return await self._engine.runtime.wait(receipt)

    async def _must_see(self, turn_id: str) -> None:
        """Raise `NotFound` unless the actor may see a turn."""
        if not await self._session.sees_turn(turn_id):
            raise no_such_turn(turn_id)

    async def follow(
        self, turn_id: str, *, after: str | None = None
    ) -> AsyncGenerator[Signal, None]:
        """Yield the signals of a turn from now on, `ended` or `parked` the last.

        Args:
            turn_id: The turn.
            after: The id of a signal; those after it that are still kept are told again. If they do
                not reach back that far, a signal `gap` comes first.
        """
        agent_id = (await self.outcome(turn_id)).agent_id

        async def accepted_before() -> Receipt:
            return Receipt(message_id_for(turn_id), turn_id, agent_id, duplicate=True)

        engine = self._engine
        async with contextlib.aclosing(
            signals_of_turn(engine.hub, engine.runtime.wait, agent_id, accepted_before, after)
        ) as signals:
            async for signal in signals:
                yield signal

    async def parts(self, turn_id: str) -> TurnParts:
        """Return what whoever asked is told of a turn: its words, its calls for them, its state."""

        async def read(tx: Connection) -> TurnParts | None:
            if not await self._session.visible_turns(tx, [turn_id]):
                return None
            record = await journal.turn(tx, turn_id)
            if record is None:
                item = await messages.find(tx, message_id_for(turn_id))
                if item is None:
                    return None
                state = TurnState.WAITING if item.stopped is None else TurnState.STOPPED
                return TurnParts(
                    turn_id, item.agent_id, state, item.at_ms, error=item.stopped or ""
                )
            questions = tuple(
                (approval.id, approval.question)
                for approval in await approvals.of_turn(tx, turn_id)
                if approval.decided_at_ms is None and not approval.for_client
            )
            error = ""
            if record.state in (TurnState.FAILED, TurnState.STOPPED):
                error = record.error or "The turn ended without an answer."
            return TurnParts(
                turn_id,
                record.agent_id,
                record.state,
                record.opened_at_ms,
                parts_of(await journal.entries_of(tx, record)),
                error,
                questions,
            )

        found = await self._session.database.read(read)
        if found is None:
            raise no_such_turn(turn_id)
        return found

    async def find_messages(
        self, agent: AgentRecord | str, messages: Sequence[bytes]
    ) -> dict[bytes, builtins.list[str]]:
        """Return the turns of an agent that have exactly these messages, the latest first.

        Args:
            agent: The agent, or its name or id.
            messages: Messages in their wire form.

        Returns:
            The ids of the turns by message; what is not among the latest entries is missing.
        """
        session, agent_id = self._session, await self._session.id_of(agent)

        async def read(tx: Connection) -> dict[bytes, builtins.list[str]]:
            found = await journal.turns_with_messages(tx, agent_id, messages)
            visible = await session.visible_turns(tx, {turn_id for _, turn_id in found})
            turns: dict[bytes, builtins.list[str]] = {}
            for body, turn_id in found:
                if turn_id in visible:
                    turns.setdefault(body, []).append(turn_id)
            return turns

        return await session.database.read(read)

    async def submit_results(self, turn_id: str, results: Mapping[str, str]) -> Receipt:
        """Give a turn the results of the calls that it left to the program that asked.

        Args:
            turn_id: The turn, which waits for them.
            results: The text of each result by the key of its call, such as `0/call/0`; all that
                it waits for.
        """
        await self._must_see(turn_id)
        by = OWNER if self._session.is_owner else self._session.actor.id
        return await self._engine.approvals.submit(turn_id, results, by)

    async def stream_results(
        self, turn_id: str, results: Mapping[str, str]
    ) -> AsyncGenerator[Signal, None]:
        """Give a turn such results and yield its signals as it goes on."""
        agent_id = (await self.parts(turn_id)).agent_id
        engine = self._engine
        async with contextlib.aclosing(
            signals_of_turn(
                engine.hub,
                engine.runtime.wait,
                agent_id,
                lambda: self.submit_results(turn_id, results),
            )
        ) as signals:
            async for signal in signals:
                yield signal

    async def stop(self, turn_id: str, reason: str = "Stopped.") -> None:
        """End a turn that is under way, wherever it runs, or that waits for others to end.

        One that waits is stopped on return; one that is under way ends soon after.
        """
        await self._must_see(turn_id)
        stands = await self._engine.runtime.stop_anywhere(turn_id, reason)
        if stands is None:
            return
        if stands.state is not TurnState.PARKED:
            raise Conflict(f"Turn {turn_id} is {stands.state.value}; there is nothing to stop.")
        questions = await self._session.database.read(lambda tx: approvals.of_turn(tx, turn_id))
        first = next(
            (question.id for question in questions if question.decided_at_ms is None), None
        )
        if first is None:
            raise Conflict(
                f"Turn {turn_id} is parked and was answered: it goes on in a moment. Try again. "
                "Nothing was changed."
            )
        raise Conflict(
            f"Turn {turn_id} is parked: it waits for an answer to {first}. Deny it "
            f'("asterism approval deny {first}"), and the turn goes on without. '
            "Nothing was changed."
        )

    async def retry(self, turn_id: str) -> Receipt:
        """Hand in the message of a turn once more that ended without an answer, as it came then.

        It is answered in a new turn. Only the owner, and whoever has handed the message in, may.
        """
        record, entries = await self.get(turn_id)
        opening = next(entry for entry in entries if entry.key == "in")
        meta = MessageMeta.from_json(opening.meta)
        session = self._session
        if not session.is_owner and meta.person != session.actor.id:
            raise NotAllowed(
                f"Turn {turn_id} answers a message of somebody else. The owner may try it again. "
                "Nothing was stored."
            )
        if record.state not in (TurnState.FAILED, TurnState.STOPPED):
            raise Conflict(
                f"Turn {turn_id} is {record.state.value}. A turn that has failed or was stopped "
                "can be tried again. Nothing was stored."
            )
        if record.channel.startswith((AGENT_CHANNEL, GROUP_CHANNEL)):
            raise Conflict(
                f"Turn {turn_id} answers a question of an agent or a group, which has heard that "
                "it failed. Try the turn of that one again. Nothing was stored."
            )
        kept = next((entry.body.decode() for entry in entries if entry.key == PUT_ASIDE), None)
        return await self._engine.runtime.accept_again(
            record, opening.body, replace(meta, client=kept or meta.client), session.token
        )

    async def replay(self, turn_id: str, *, cassette: Path | str | None = None) -> Replay:
        """Run a recorded turn again, offline, and tell whether it comes out the same.

        Args:
            turn_id: The turn, which must have ended.
            cassette: A tape of what went over the wire: models are heard from it through their wire
                formats, and requests composed now are compared with those on it, byte for byte.
                Only the owner of the server names one, for it may be any file of the machine.
        """
        if cassette is not None:
            self._check_may_name_files()
        record, entries = await self.get(turn_id)
        await self._refuse_group(record, "replayed", "replay")
        if cassette is None:
            return await replay_turn(self._session.database, record, entries)
        return await replay_tape(
            self._session.database,
            self._engine.settings,
            self._engine.toolbox,
            record,
            entries,
            Path(cassette),
        )

    async def fork(
        self,
        turn_id: str,
        *,
        name: str | None = None,
        model: str | None = None,
        system: str | None = None,
    ) -> tuple[Agent, Outcome]:
        """Let a copy of the agent, from before a turn, answer the same message again.

        The copy has the memory of that time: blocks, passages and how they were shared.
        """
        record, entries = await self.get(turn_id)
        await self._refuse_group(record, "forked", "fork")
        origin = await self._session.database.read(lambda tx: agents.by_id(tx, record.agent_id))
        assert origin is not None
        # A former release let agents be named in ways that nobody would choose now.
        new_name = checked_agent_name(name) if name else f"{origin.name[:56]}-{turn_id[-6:]}"
        copy = copied_record(self._engine, self._session, origin, new_name, model, system)

        async def work(tx: Connection) -> bool:
            writer = await self._session.writer(tx, "fork", f"as it stood before {turn_id}")
            moment = record.opened_at_ms - 1
            if not await create_copy(
                tx, self._engine, writer, origin, copy, record.first_seq, moment
            ):
                return False
            of = {"what": copy.name, "of": origin.name}
            await note(
                tx, self._session, "agent.forked", by="api", agent_id=copy.id, turn_id=turn_id, **of
            )
            return True

        if not await self._session.database.write(work):
            raise Conflict(
                f"There is an agent or a group named {copy.name!r} already. Name the fork with "
                "--name. Nothing was created."
            )
        message = next(entry for entry in entries if entry.key == "in")
        outcome = await self._ask_again(copy, message)
        return await self._agents.get(copy.id), outcome

    def _check_may_name_files(self) -> None:
        """Raise `NotAllowed` unless the owner of the server acts, whose files they are."""
        if not self._session.owns_machine:
            raise NotAllowed(
                "Only the owner of the server may name a tape, which is a file of the machine. "
                "Replay the turn without one, from its recorded replies. Nothing was read."
            )

    async def _refuse_group(self, record: TurnRecord, done: str, command: str) -> None:
        """Raise `Conflict` for a turn of a group: models are asked in the turns of its members."""
        if not record.agent_id.startswith(GROUP_ID):
            return
        group = await self._session.database.read(lambda tx: groups.by_id(tx, record.agent_id))
        name = group.name if group is not None else record.agent_id
        raise Conflict(
            f"Turn {record.id} is of the group {name!r}, and only turns of agents can be {done}. "
            f'"asterism group transcript {shlex.quote(name)}" shows the turns of its '
            f"members: {command} one of those. Nothing was done."
        )

    async def _ask_again(self, agent: AgentRecord, message: Entry) -> Outcome:
        """Send a recorded message to another agent, with its images and its schema."""
        opening = MessageMeta.from_json(message.meta)
        ids = images_in(message.body)
        images = (
            await self._session.database.read(lambda tx: journal.get_blob(tx, ids)) if ids else {}
        )
        return await self._agents.ask(
            agent,
            text_of(message.body),
            channel="fork",
            images=[images[id].body for id in ids],
            schema=orjson.loads(opening.schema) if opening.schema else None,
        )

    async def waiting(self) -> builtins.list[InboxItem]:
        """Return accepted messages whose turns have not begun."""
        return await self._session.database.read(lambda tx: visible_inbox(tx, self._session))

    async def unfinished(self) -> builtins.list[str]:
        """Return the ids of turns that were accepted and have not ended: waiting or interrupted."""

        async def read(tx: Connection) -> builtins.list[str]:
            waiting = await messages.waiting(tx)
            ids = [item.turn_id for item in waiting if item.kind == "message" and not item.stopped]
            ids += [record.id for record in await journal.all_interrupted(tx)]
            return sorted(await self._session.visible_turns(tx, ids))

        return await self._session.database.read(read)


async def visible_inbox(tx: Connection, session: Session) -> list[InboxItem]:
    """Return the waiting messages that the actor may see."""
    items = await messages.waiting(tx)
    visible = await session.visible_turns(tx, [item.turn_id for item in items])
    return [item for item in items if item.turn_id in visible]


@verbs("notice", list=Act.READ, mark_seen=Act.APPEND)
class Notices:
    """What the owner must be told, and is told once."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def list(
        self, *, unseen: bool = True, limit: int = 100, after: str | None = None
    ) -> builtins.list[Notice]:
        """Return the notices, which are for nobody but the owner, the oldest first.

        Args:
            unseen: Whether only those that were not seen.
            limit: How many at most.
            after: The id of the last notice of the page before.
        """
        session = self._session
        if not session.sees_every_audience:
            return []

        async def visible(notices: Sequence[Notice]) -> builtins.list[Notice]:
            return [notice for notice in notices if self._is_visible(notice)]

        async def read(tx: Connection) -> builtins.list[Notice]:
            last = await agents.get_notice(tx, after) if after is not None else None
            if after is not None and (last is None or not self._is_visible(last)):
                raise no_such_position("notice", after)
            return await first_visible(
                lambda most: agents.list_notices(tx, unseen=unseen, most=most, after=last),
                visible,
                limit,
            )

        return await session.database.read(read)

    def _is_visible(self, notice: Notice) -> bool:
        session = self._session
        return session.sees_every_audience and session.sees_agent(notice.agent_id)

    async def mark_seen(self, ids: Sequence[str]) -> None:
        """Note that the owner has seen these; if one of them is not there, none is noted."""
        at = self._session.clock()

        async def work(tx: Connection) -> None:
            for notice_id in ids:
                notice = await agents.get_notice(tx, notice_id)
                if notice is None or not self._is_visible(notice):
                    raise NotFound(
                        f"There is no notice {shorten_text(notice_id)!r}. "
                        '"asterism notice list" shows all. Nothing was changed.'
                    )
            await agents.mark_notice_seen(tx, builtins.list(ids), at)

        await self._session.database.write(work)


@verbs("outbox", list=Act.READ, retry=Act.APPEND)
class Outbox:
    """What must go out to channels."""

    def __init__(self, engine: Engine, session: Session) -> None:
        self._engine = engine
        self._session = session

    async def list(
        self, state: str | None = None, *, limit: int = 100, after: str | None = None
    ) -> builtins.list[Delivery]:
        """Return deliveries, the oldest first.

        Args:
            state: Which state (`waiting`, `dead`, `sent`); None: all that are not sent.
            limit: How many at most.
            after: The key of the last delivery of the page before.
        """
        session = self._session
        if after is not None:
            last = await session.database.read(lambda tx: messages.get_delivery(tx, after))
            if last is None or not await session.sees_turn(last.turn_id):
                raise no_such_position("delivery", after)
        return await session.visible_of_turns(
            lambda tx, most: messages.list_deliveries(tx, state, most, after),
            lambda delivery: delivery.turn_id,
            limit,
        )

    async def retry(self, key: str) -> None:
        """Try a dead delivery again."""
        session, at = self._session, self._session.clock()

        async def work(tx: Connection) -> bool:
            found = await messages.get_delivery(tx, key)
            if found is None or not await session.visible_turns(tx, [found.turn_id]):
                return False
            revived = await messages.revive_delivery(tx, key, at)
            if revived:
                await note(tx, session, "delivery.retried", by="api", what=key)
            return revived

        if not await self._session.database.write(work):
            raise NotFound(f'There is no dead delivery {key!r}. "asterism outbox list" shows them.')
        self._engine.outbox.kick()


@verbs("schedule", list=Act.READ, add=Act.APPEND, cancel=Act.OVERWRITE)
class Schedules:
    """Messages that agents get at a later time."""

    def __init__(self, engine: Engine, session: Session) -> None:
        self._engine = engine
        self._session = session

    async def list(self, agent: AgentRecord | str | None = None) -> builtins.list[Schedule]:
        """Return the schedules of an agent, or without one of all agents, the next one first."""
        session = self._session
        agent_id = await session.id_of(agent) if agent is not None else None

        async def read(tx: Connection) -> builtins.list[Schedule]:
            participants = await session.participants(tx)
            everybody = [each.id for each in await session.agents_in(tx)]
            listed = [
                schedule
                for each in (everybody if agent_id is None else [agent_id])
                for schedule in await messages.schedules_of(tx, each)
                if participants.can_see(audience_of(schedule.participants))
            ]
            return sorted(listed, key=lambda schedule: (schedule.due_at_ms, schedule.id))

        return await session.database.read(read)

    async def add(
        self,
        agent: AgentRecord | str,
        when: str | datetime,
        text: str,
        *,
        quiet: str | None = None,
        by: str = "api",
    ) -> Schedule:
        """Send an agent a message later, once or by a rule.

        Args:
            agent: The agent, or its name.
            when: A time to come, or words for one in the owner's time zone such as "tomorrow at 9"
                or "every Monday at 8".
            text: What the message says.
            quiet: Hours in which it does not come, such as "22:00-08:00" in the owner's time zone;
                what falls due in them comes once when they are over.
            by: By what means, for the audit log.
        """
        session = self._session
        zone = self._engine.settings.zone_name
        words = when if isinstance(when, str) else to_datetime(to_ms(when)).isoformat()
        agent_id = await session.id_of(agent)
        entry, _ = plan_schedule(agent_id, words, redact(check_text(text)), session.clock(), zone)
        if quiet is not None:
            entry = replace(entry, quiet=check_quiet(quiet))
        if not session.writes_as_owner:
            entry = replace(entry, participants=stored_people.alone_with(session.actor.id))

        async def work(tx: Connection) -> None:
            await session.agent_in(tx, agent_id)
            await messages.put_schedule(tx, entry)
            await note(tx, session, "schedule.added", by=by, agent_id=agent_id, what=entry.id)
            await tx.notify("schedule", entry.id)

        await session.database.write(work)
        return entry

    async def cancel(self, schedule_id: str, *, by: str = "api") -> Schedule:
        """Take a schedule back, and return it as it was."""
        session = self._session

        async def work(tx: Connection) -> Schedule | None:
            found = await messages.get_schedule(tx, schedule_id)
            participants = await session.participants(tx)
            if (
                found is None
                or not session.sees_agent(found.agent_id)
                or not participants.can_see(audience_of(found.participants))
            ):
                return None
            await messages.cancel_schedule(tx, found.agent_id, found.id)
            await note(
                tx, session, "schedule.cancelled", by=by, agent_id=found.agent_id, what=found.id
            )
            return found

        cancelled = await session.database.write(work)
        if cancelled is None:
            raise NotFound(
                f'There is no schedule {schedule_id!r}. "asterism schedule list" shows them. '
                "Nothing was changed."
            )
        return cancelled


@dataclass(frozen=True, slots=True)
class Approval(ApprovalRecord):
    """An approval of an open home: the question, and the verbs that answer it."""

    _approvals: Approvals = field(kw_only=True, repr=False, compare=False)

    async def approve(self, **options: Any) -> Receipt:
        """Let the call be made; `Approvals.decide` has the options."""
        return await self._approvals.decide(self.id, approved=True, **options)

    async def deny(self, **options: Any) -> Receipt:
        """Have the turn go on without the call."""
        return await self._approvals.decide(self.id, approved=False, **options)


_RECORD_FIELDS = tuple(field.name for field in fields(ApprovalRecord))


def bound_approval(record: ApprovalRecord, verbs: Approvals) -> Approval:
    """Return a record as a question that can be answered."""
    return Approval(*[getattr(record, name) for name in _RECORD_FIELDS], _approvals=verbs)


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

    def _bind(self, records: Sequence[ApprovalRecord]) -> builtins.list[Approval]:
        """Return records as questions that can be answered."""
        return [bound_approval(record, self) for record in records]

    async def list(
        self, *, limit: int | None = None, after: str | None = None
    ) -> builtins.list[Approval]:
        """Return the questions that wait for an answer, the oldest first.

        Args:
            limit: How many at most; None: all.
            after: The id of the last question of the page before, answered since or not.
        """

        async def read(tx: Connection) -> builtins.list[ApprovalRecord]:
            last = await self._position(tx, after) if after is not None else None
            return (await self._visible(tx, await approvals.waiting(tx, last)))[:limit]

        return self._bind(await self._session.database.read(read))

    async def _position(self, tx: Connection, approval_id: str) -> ApprovalRecord:
        """Return the question that a page goes on from; raise `NotFound` if there is none such."""
        record = await approvals.get(tx, approval_id)
        if record is None or not await self._visible(tx, [record]):
            raise no_such_position("approval", approval_id)
        return record

    async def answered(
        self, *, limit: int = 20, before: str | None = None
    ) -> builtins.list[Approval]:
        """Return the questions that were answered, the latest first.

        Args:
            limit: How many at most.
            before: The id of the last question of the page before.
        """

        async def read(tx: Connection) -> builtins.list[ApprovalRecord]:
            last = await self._position(tx, before) if before is not None else None
            if last is not None and last.decided_at_ms is None:
                raise no_such_position("answered approval", last.id)
            return await first_visible(
                lambda most: approvals.list_decided(tx, most, last),
                lambda records: self._visible(tx, records),
                limit,
            )

        return self._bind(await self._session.database.read(read))

    async def _visible(
        self, tx: Connection, records: Sequence[ApprovalRecord]
    ) -> builtins.list[ApprovalRecord]:
        """Return the approvals that the actor may see: of visible turns, or addressed to them."""
        session = self._session
        records = [record for record in records if session.sees_agent(record.agent_id)]
        if session.sees_every_audience:
            return records
        visible = await session.visible_turns(tx, [approval.turn_id for approval in records])
        person = await stored_people.get_person(tx, session.actor.id)
        answerable: builtins.list[ApprovalRecord] = []
        for approval in records:
            record = await journal.turn(tx, approval.turn_id) if person is not None else None
            if approval.turn_id in visible:
                answerable.append(approval)
            elif person is not None and record is not None:
                answerable += [approval] if await may_answer(tx, record, approval, person) else []
        return answerable

    async def get(self, approval_id: str) -> Approval:
        """Return an approval by its id; for a waiting approval, the end of the id is enough."""

        async def read(tx: Connection) -> builtins.list[ApprovalRecord]:
            record = await find(tx, approval_id)
            return await self._visible(tx, [record] if record is not None else [])

        visible = self._bind(await self._session.database.read(read))
        if not visible:
            raise NotFound(NO_APPROVAL.format(id=approval_id))
        return visible[0]

    async def show(self, approval_id: str) -> ApprovalDetails:
        """Return an approval with its reviewers, its answer and its grant."""
        approval = await self.get(approval_id)

        async def read(tx: Connection) -> ApprovalDetails:
            called = dict(await stored_people.people_names(tx))
            by = approval.decided_by
            grant = None
            if approval.grant is not None:
                grant = await approvals.get_grant(tx, approval.grant)
            return ApprovalDetails(
                approval,
                reviewer_names(approval.reviewers, called),
                called.get(by, by) if by is not None else None,
                grant,
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
        session = self._session
        await self._must_exist(approval_id)
        if grant is not None and session.limits is not None:
            # It lets the agent make more calls than the one that is asked about.
            session.limits.check(Act.GOVERN, "approval.decide")
        who = (by or OWNER) if session.is_owner else session.actor.id
        changed = arguments
        if changed is not None and not isinstance(changed, str):
            changed = orjson.dumps(dict(changed)).decode()
        wish = grant if grant is None or isinstance(grant, Wish) else Wish(_extent(grant))
        return await self._queue.decide(
            ApprovalReply(approval_id, approved, who, note, changed, wish, place, session.is_owner)
        )

    async def _must_exist(self, approval_id: str) -> None:
        """Raise `NotFound` for an approval of an agent that does not exist for the actor."""
        if self._session.only_agents is None:
            return
        record = await self._session.database.read(lambda tx: find(tx, approval_id))
        if record is None or not self._session.sees_agent(record.agent_id):
            raise NotFound(NO_APPROVAL.format(id=approval_id))

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
            await self._must_exist(approval_id)
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
        if not self._session.sees_agent(approval.agent_id):
            raise NotFound(NO_APPROVAL.format(id=approval.id))
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
        known = ", ".join(f'"{extent.value}"' for extent in Extent)
        raise InvalidInput(
            f"{text[:40]!r} does not say how far a yes reaches: {known} do. Nothing was decided."
        ) from None


_MAX_USES = 1_000_000


@verbs("grant", list=Act.READ, give=Act.GOVERN, revoke=Act.GOVERN)
class Grants:
    """Grants: permissions for more than one call."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def list(
        self, agent: AgentRecord | str | None = None, *, everything: bool = False
    ) -> list[Grant]:
        """Return the grants that count, or with `everything` all there ever were; oldest first."""
        agent_id = (await self._session.agent(agent)).id if agent is not None else None
        now = self._session.clock()

        async def read(tx: Connection) -> list[Grant]:
            grants = await approvals.list_grants(tx, now, everything=everything)
            return await self._visible(tx, grants)

        grants = await self._session.database.read(read)
        return [grant for grant in grants if agent_id is None or grant.agent_id in (None, agent_id)]

    async def _visible(self, tx: Connection, grants: Sequence[Grant]) -> list[Grant]:
        """Return the grants that the actor may see: their own, or from visible turns.

        One for all agents is also one for each of them.
        """
        session = self._session
        grants = [
            grant
            for grant in grants
            if grant.agent_id is None or session.sees_agent(grant.agent_id)
        ]
        if session.sees_every_audience:
            return grants
        turns = {
            grant.id: question.turn_id
            for grant in grants
            if grant.approval_id is not None
            and (question := await approvals.get(tx, grant.approval_id)) is not None
        }
        visible = await self._session.visible_turns(tx, turns.values())
        me = self._session.actor.id
        return [grant for grant in grants if grant.given_by == me or turns.get(grant.id) in visible]

    async def give(
        self,
        tool: str,
        *,
        agent: AgentRecord | str | None,
        pattern: Mapping[str, str] | None = None,
        until: datetime | None = None,
        uses: int | None = None,
        amount: float | None = None,
        per_day: int | None = None,
    ) -> Grant:
        """Let an agent call a tool without asking each time.

        Args:
            tool: Its name, or a glob such as `file*`.
            agent: Whose calls; None: those of every agent.
            pattern: A glob for each argument that matters, or `re:` and an expression.
            until: The time it ends.
            uses: For how many calls.
            amount: Up to which amount each; a call without one, or with one that cannot be read,
                is asked for.
            per_day: How many calls in 24 hours.
        """
        now = self._session.clock()
        agent_id = await self._session.agent_id(agent) or None
        end = optional_ms(until)
        _check(tool, pattern or {}, end, uses, now)
        check_limits(amount, per_day)
        grant = Grant(
            id=new_id("grant"),
            constellation=self._session.database.constellation,
            tool=tool,
            agent_id=agent_id,
            pattern=dict(pattern or {}),
            until_ms=end,
            uses=uses,
            given_by=self._session.actor.id,
            given_at_ms=now,
            amount=amount,
            per_day=per_day,
        )

        async def work(tx: Connection) -> None:
            await approvals.put_grant(tx, grant)
            event = event_of(self._session, "grant.given", grant_details(grant), agent_id)
            await events.append(tx, home_chain(tx.constellation), [event])

        await self._session.database.write(work)
        return grant

    async def revoke(self, grant_id: str) -> Grant:
        """Take a grant back; from the next call on the agent asks again."""
        now = self._session.clock()

        async def work(tx: Connection) -> Grant:
            grant = await approvals.get_grant(tx, grant_id)
            if grant is None or not self._session.sees_agent(grant.agent_id):
                raise NotFound(
                    f'There is no grant {grant_id!r}. "asterism grant list" shows all that count. '
                    "Nothing was changed."
                )
            if not await approvals.revoke_grant(tx, grant_id, now):
                raise Conflict(f"{grant_id} was revoked before. Nothing was changed.")
            told = grant_details(grant)
            event = event_of(self._session, "grant.revoked", told, grant.agent_id)
            await events.append(tx, home_chain(tx.constellation), [event])
            return grant

        return await self._session.database.write(work)


def _check(
    tool: str, pattern: Mapping[str, str], until: int | None, uses: int | None, now: int
) -> None:
    if not tool.strip() or len(tool) > 200:
        raise InvalidInput(
            f"{tool[:80]!r} names no tool. Write its name, or a glob such as file*. "
            "Nothing was granted."
        )
    if until is not None and until <= now:
        raise InvalidInput("A grant that ends in the past grants nothing. Nothing was granted.")
    if uses is not None and not 1 <= uses <= _MAX_USES:
        raise InvalidInput(
            f"A grant for {uses:,} calls cannot be given: 1 to {_MAX_USES:,} can. "
            "Nothing was granted."
        )
    for name, value in pattern.items():
        try:
            if value.startswith("re:"):
                compile_pattern(value[3:])
            elif "*" in value or "?" in value:
                check_length(value)
        except InvalidPattern as error:
            raise InvalidInput(
                f"The pattern {name[:80]}={value[:80]} is not valid: {error}. Nothing was granted."
            ) from None
