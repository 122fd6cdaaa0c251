"""The runtime: one message in, exactly one answer out."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import Counter, OrderedDict
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterator, Sequence
from dataclasses import replace
from typing import Any, NoReturn

import orjson

from asterism.errors import AsterismError, LaneLost, NotFound, StoreError
from asterism.memory import people
from asterism.ports import ProcessorCall, TurnView
from asterism.store import agents, approvals, groups, journal, messages, passages
from asterism.store.crashes import Crash
from asterism.store.database import Connection, Database, end_tasks
from asterism.store.events import Event
from asterism.store.groups import AgentMessage
from asterism.telemetry.redaction import redact
from asterism.turns.approvals import ApprovalQueue, withdraw_turn
from asterism.turns.calls import settle_open_calls
from asterism.turns.context import (
    BYTES_PER_TOKEN,
    PLUGIN,
    LiveAgent,
    Note,
    Presence,
    Section,
    enter,
    enter_group,
    has_more_to_find,
    load,
    read_presence,
    referred_to,
    with_tools,
)
from asterism.turns.facts import FactReader
from asterism.turns.group_steps import GroupSteps, GroupTurns, Step
from asterism.turns.lanes import Lanes, LocalLanes
from asterism.turns.loop import run_turn
from asterism.turns.turn import (
    EMPTY_ANSWER,
    KEPT,
    PUT_ASIDE,
    Hub,
    StoppedBefore,
    Turn,
    TurnServices,
    end_id,
    is_withheld,
)
from asterism.types.agents import (
    OWNER_ALONE,
    Account,
    Halt,
    Label,
    Trust,
    least_trusted,
    message_id_for,
    new_id,
    now_ms,
    turn_id_for,
)
from asterism.types.groups import GROUP_CHANNEL, GROUP_ID, GroupRecord
from asterism.types.turns import (
    CLIENT_NOTE,
    AttachedDocument,
    ClientRequest,
    Entry,
    EntryKind,
    InboxItem,
    InboxKind,
    Message,
    MessageMeta,
    MessageOrigin,
    Outcome,
    Receipt,
    Reply,
    Signal,
    TurnRecord,
    TurnState,
    check_field,
    check_text,
    document_note,
    history_note,
    instructions_note,
    message_wire,
    plain,
    retry_note,
    same_instructions_note,
    text_of,
)

_log = logging.getLogger(__name__)
_MAX_LIVE_BYTES = 48 * 1024 * 1024
_MAX_LIVE = 4_096
LOOK_AGAIN = 2.0
"""Seconds after which workers that share a database look again: a notice can be lost."""
_MAX_REASON_LENGTH = 1_000
"""Characters of a reason that fit into a notice; the store has all of it."""
_DOCUMENTS_SHARE = 0.5
"""How much of what a model can take in the documents of a message may fill."""


LOOK = b'{"look":true}'
"""What is put into the inbox of a group so that it looks at a parked turn; it says nothing."""


class Runtime:
    """Accepts messages, runs turns in lanes, and tells those who wait."""

    def __init__(
        self,
        services: TurnServices,
        *,
        delivered: Callable[[], None],
        ended: Callable[[str], None],
        approvals: ApprovalQueue | None = None,
        group_turns: GroupTurns | None = None,
    ) -> None:
        """Make a runtime.

        Args:
            services: What turns work with.
            delivered: Kicks the outbox.
            ended: Hears whose turn has ended.
            approvals: Takes messages that answer a question; None: every message opens a turn.
            group_turns: Takes turns of groups; None: there are none.
        """
        self._services = services
        self._database: Database = services.database
        self._delivered = delivered
        self._ended = ended
        self._approvals = approvals
        self._group_turns = group_turns
        self._steps: GroupSteps | None = None
        """What members add to turns of groups; None where other processes may add to them, too."""
        if group_turns is not None and not services.database.distributed:
            self._steps = GroupSteps(services.database, group_turns, self)
        self._questions: dict[str, AgentMessage] = {}
        """The questions of groups that turns to come answer."""
        self._live: OrderedDict[str, LiveAgent] = OrderedDict()
        self._live_bytes = 0
        self._waiting: dict[str, list[tuple[Receipt, asyncio.Future[Outcome]]]] = {}
        self._running: dict[str, tuple[Turn, asyncio.Task[Any]]] = {}
        self._unsettled: set[str] = set()
        """Turns accepted for the lanes of this process whose outcome is not known yet."""
        self._has_passages: dict[str, bool] = {}
        """Whether agents had passages when the messages of turns to come were accepted."""
        self._unheard: Counter[str] = Counter()
        """Agents with something in the inbox, perhaps, that their lane has not heard of."""
        self._loading: set[str] = set()
        self._halting = HaltWatch(services.database)
        self._facts = FactReader(services)
        self._lanes: Lanes | None = None
        self._owns_lanes = True
        self.runtime_of: Callable[[str], Awaitable[Runtime]] | None = None
        """Set where the lanes serve several constellations: finds the runtime of an agent."""
        self._bridge: Bridge | None = None
        self._background: set[asyncio.Task[None]] = set()
        self._stopped = False

    # -- life ----------------------------------------------------------------------------------

    async def start(self) -> None:
        """Begin: messages are handed in and answers waited for, and no turns taken yet."""
        if self._database.distributed:
            self._bridge = Bridge(self._services.hub, self._database, self.outcome)
            await self._database.listen("turn", self._on_turn_notice, missed=self._bridge.catch_up)
            await self._bridge.start()
        await self._database.listen("stop", self._stop_here)
        await self._halting.start()
        await self._database.listen(
            agents.TOPIC, lambda _: self._in_background(self._stand_still())
        )
        await self._database.listen("memory", self._memory_changed)

    def use_lanes(self, lanes: Lanes) -> None:
        """Have turns taken by the lanes of another runtime, which serve this one as well."""
        self._lanes, self._owns_lanes = lanes, False

    async def take_turns(self, lanes: Lanes) -> None:
        """Take turns in this process from now on."""
        self._lanes = lanes
        if isinstance(lanes, LocalLanes):
            await self._database.listen("lane", lanes.poke)
        await lanes.start()

    async def stop(self, grace: float) -> None:
        """Stop taking turns; what is not finished goes on at the next start."""
        if self._lanes is not None:
            if self._owns_lanes:
                await self._lanes.stop(grace)
            self._lanes = None
        if self._bridge is not None:
            await self._bridge.stop()
            self._bridge = None
        await self._facts.stop()
        # The store is open for a while yet; what is heard from it now begins nothing.
        self._stopped = True
        background = list(self._background)
        for task in background:
            task.cancel()
        await asyncio.gather(*background, return_exceptions=True)
        for waiting in self._waiting.values():
            for _, future in waiting:
                future.cancel()
        self._waiting.clear()

    def loaded_agent(self, agent_id: str) -> LiveAgent | None:
        """Return what is in memory of an agent."""
        return self._live.get(agent_id)

    def forget(self, agent_id: str) -> None:
        """Drop what is in memory of an agent; it is read again when needed."""
        self._loading.discard(agent_id)
        if self._steps is not None:
            self._steps.drop(agent_id)
            self._steps.forget_groups()
        live = self._live.pop(agent_id, None)
        if live is not None:
            self._live_bytes -= live.counted

    def forget_all(self) -> None:
        """Drop what is in memory of all agents."""
        if self._steps is not None:
            self._steps.forget_groups()
        for agent_id in {*self._live, *self._loading}:
            self.forget(agent_id)

    def _memory_changed(self, agent_id: str) -> None:
        """Have an agent's contexts look at memory again before the next turn."""
        if agent_id:
            changed = [live] if (live := self._live.get(agent_id)) is not None else []
        else:
            changed = list(self._live.values())  # a block of the whole constellation
        for live in changed:
            _mark_stale(live)

    # -- in ------------------------------------------------------------------------------------

    async def accept(
        self,
        message: Message,
        speaker: str | None = None,
        *,
        may_decide: bool = True,
        token: str | None = None,
    ) -> Receipt:
        """Store a message to an agent, whose id is the target; it will be answered exactly once.

        So many messages of a person and of a token may wait; `InboxFull` is raised beyond that.
        `speaker` is the id of the person who says it in private, where it is known who acts; else
        the sender names their account, and nobody is the owner. Without `may_decide` its words
        answer no question: whoever may not see every agent does that by the verb for it.
        """
        text, images, origin = message.text, message.images, message.origin
        body = message_wire("user", redact(check_text(text)), images)
        _check_fields(message)
        agent_id = message.target
        message_id, at = new_id("msg"), self._services.clock()
        # Whoever acts as a person answers questions by the verb for it.
        answer = message.answer if speaker is None and may_decide else None
        approvals_here = self._approvals
        opening = await self._open_group_turn(message, message_id, body, speaker, at)

        async def work(tx: Connection) -> tuple[InboxItem, bool] | Receipt:
            if answer is not None and approvals_here is not None:
                answered = await approvals_here.take(tx, answer, message, at)
                if answered is not None:
                    return answered
            if (former := await _accepted_before(tx, message, message_id, at)) is not None:
                return former
            for image in images:
                await journal.put_blob(tx, image, at)
            if opening is not None and await opening.write(tx):
                return Receipt(message_id, turn_id_for(message_id), agent_id)
            participants = await self._meet(tx, origin, message.participants, speaker, at)
            item = await messages.put_message(
                tx,
                agent_id,
                message_id,
                body,
                origin,
                at,
                schema=message.schema,
                participants=participants,
                client=message.client.to_json() if message.client is not None else None,
                announce=False,
                token=token,
                most=self._most_waiting,
            )
            if item is None:
                raise NotFound(f"There is no agent {agent_id}. Nothing was stored.")
            return item, await passages.has_any(tx, agent_id)

        try:
            taken = await self._database.write(work)
        except BaseException as error:
            self._not_accepted(agent_id, opening, error)
            raise
        if opening is not None and self._is_opened(opening, turn_id_for(message_id)):
            return Receipt(message_id, turn_id_for(message_id), agent_id)
        if isinstance(taken, Receipt):
            self._delivered()
            return taken
        item, has_passages = taken
        if self._lanes is not None and not self._database.distributed:
            self._has_passages[item.turn_id] = has_passages
        self._wake(item)
        return Receipt(item.id, item.turn_id, item.agent_id)

    async def accept_again(
        self, record: TurnRecord, body: bytes, meta: MessageMeta, token: str | None
    ) -> Receipt:
        """Store the message of a turn that has ended once more, as it came then."""
        agent_id, message_id, at = record.agent_id, new_id("msg"), self._services.clock()
        origin = MessageOrigin(record.channel, meta.sender, record.reply_to)

        async def work(tx: Connection) -> InboxItem:
            item = await messages.put_message(
                tx,
                *(agent_id, message_id, body, origin, at),
                schema=meta.schema,
                participants=meta.participants,
                client=meta.client,
                announce=False,
                token=token,
                most=self._most_waiting,
            )
            if item is None:
                raise NotFound(f"There is no agent {agent_id} any more. Nothing was stored.")
            return item

        try:
            item = await self._database.write(work)
        except BaseException as error:
            self._not_accepted(agent_id, None, error)
            raise
        self._wake(item)
        return Receipt(item.id, item.turn_id, item.agent_id)

    @property
    def _most_waiting(self) -> tuple[int, int]:
        """How many messages of a person and of a token may wait."""
        quotas = self._services.settings.current.quotas
        return quotas.waiting_per_person, quotas.waiting_per_token

    def _not_accepted(self, agent_id: str, opening: Step | None, error: BaseException) -> None:
        """Have lanes look once it is known whether a message was stored."""
        if opening is not None:
            opening.failed()
        if isinstance(error, asyncio.CancelledError):
            # Whoever hands it in is gone; should it be stored, its lane has to hear of it.
            self.look_after_writes([agent_id])

    def _is_opened(self, opening: Step, turn_id: str) -> bool:
        """Go on with the first decision about a message; False if it was not written with it."""
        if opening.is_written:
            self._unsettled.add(turn_id)
        opening.done()
        return opening.is_written

    def _wake(self, item: InboxItem) -> None:
        """Put the lane of an agent to work that got something, if lanes run here."""
        if self._lanes is None:
            return
        if not self._database.distributed:
            self._unsettled.add(item.turn_id)
        if self._unheard[item.agent_id] and isinstance(self._lanes, LocalLanes):
            self._lanes.poke(item.agent_id)
        else:
            self._lanes.wake(item)

    async def _meet(
        self,
        tx: Connection,
        origin: MessageOrigin,
        others: Sequence[str],
        speaker: str | None,
        at: int,
    ) -> str | None:
        """Return who is present, for the inbox."""
        if speaker is not None:
            return people.alone_with(speaker)
        channel, sender, room = origin.channel, origin.sender, origin.room
        if sender is None and room is None and not others:
            return None
        return await people.meet(
            tx,
            Account(channel, sender) if sender is not None else None,
            f"{channel}:{room}" if room is not None else None,
            [Account(channel, name) for name in others],
            at,
        )

    async def _look_into(self, agent_id: str) -> None:
        # Writes are done in order, so that this one comes after the one nobody waits for.
        try:
            await self._database.write(lambda tx: tx.notify("lane", agent_id))
        except StoreError:
            self.look_again(agent_id)
        finally:
            self._unheard[agent_id] -= 1

    def _in_background(self, work: Coroutine[Any, Any, None]) -> None:
        if self._stopped:
            work.close()
            return
        task = asyncio.ensure_future(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    # -- turns ---------------------------------------------------------------------------------

    async def serve_any(self, agent_id: str, item: InboxItem | None) -> int | None:
        """Run one turn of an agent of any constellation, in the runtime of its own."""
        # Lanes are shared by all constellations.
        if agent_id in self._live or self.runtime_of is None:
            return await self.serve(agent_id, item)
        return await (await self.runtime_of(agent_id)).serve(agent_id, item)

    async def serve(self, agent_id: str, item: InboxItem | None) -> int | None:
        """Run one turn of an agent: of this item, or of whatever the store has first."""
        if await self._halting.current_halt() is not None:
            return None
        try:
            if agent_id.startswith(GROUP_ID):
                return await self._serve_group(agent_id)
            return await self._serve_agent(agent_id, item)
        except (KeyboardInterrupt, SystemExit):
            # What raises these in a turn ends the process as it should end, each time anew.
            if self._services.crashes is not None:
                await self._services.crashes.count(agent_id)
            raise
        finally:
            await self._leave(agent_id)

    async def _serve_agent(self, agent_id: str, item: InboxItem | None) -> int | None:
        try:
            turn, arrival = await self._next_turn(agent_id, item)
        except LaneLost:
            self.forget(agent_id)
            return 0
        if turn is None:
            return None
        task = asyncio.current_task()
        assert task is not None
        if agent_id in self._facts.due or agent_id in self._facts.tasks:
            self._facts.interrupt(agent_id)
        self._running[turn.id] = (turn, task)
        try:
            outcome = await self._run(turn)
        except LaneLost as lost:
            _log.info("%s", lost.message)
            self.forget(agent_id)
            if not isinstance(lost, StoppedBefore):
                return arrival
            outcome = None
        except BaseException:
            self.forget(agent_id)
            raise
        finally:
            del self._running[turn.id]
            await turn.let_go()
        if outcome is None:
            return await self.serve(agent_id, None)
        await self._leave(agent_id, turn.id)
        self._count(turn.live)
        self._make_room()
        self._settle(outcome)
        if outcome.state is TurnState.DONE and turn.may_tell_facts:
            self._facts.turn_ended(turn)
        self._ended(agent_id)
        if turn.reply_to is not None or self._services.settings.current.channels:
            self._delivered()
        return arrival

    async def _serve_group(self, group_id: str) -> int | None:
        """Take turns of a group, while nobody else goes on with them in this process."""
        if self._steps is None:
            return await self._take_group_turns(group_id)
        async with self._steps.lane(group_id):
            return await self._take_group_turns(group_id)

    async def _take_group_turns(self, group_id: str) -> int | None:
        """Take turns of a group as far as they go: one at a time, in order of arrival."""
        while True:
            try:
                found = await self._next_group_turn(group_id)
                if found is None:
                    return None
                outcome = await self._run_group_turn(*found)
            except LaneLost as lost:
                _log.info("%s", lost.message)
                self.forget(group_id)
                if not isinstance(lost, StoppedBefore):
                    return 0
                continue
            except BaseException:
                self.forget(group_id)
                raise
            turn, _, results = found
            await self._leave(group_id, turn.id if outcome is not None else None)
            if outcome is None:
                if self._steps is not None:
                    self._steps.hold(turn, results)
                return None
            self.group_turn_ended(turn, outcome)
            if not self._database.distributed:
                return 0
            # Here what has come in meanwhile has had its job already.

    def group_turn_ended(self, turn: Turn, outcome: Outcome) -> None:
        """Tell whoever waits for a turn of a group how it has ended."""
        self._settle(outcome)
        self._ended(turn.agent.id)
        if turn.reply_to is not None or self._services.settings.current.channels:
            self._delivered()

    async def is_halted(self) -> bool:
        """Tell whether no turns are to be taken."""
        return await self._halting.current_halt() is not None

    def look_again(self, agent_id: str) -> None:
        """Have the lane of a group look into the store."""
        if isinstance(self._lanes, LocalLanes):
            self._lanes.poke(agent_id)

    def look_after_writes(self, agent_ids: Sequence[str]) -> None:
        """Have lanes look into the store once all writes that are queued are done."""
        if isinstance(self._lanes, LocalLanes):
            for agent_id in agent_ids:
                self._unheard[agent_id] += 1
                self._in_background(self._look_into(agent_id))

    async def _next_group_turn(
        self, group_id: str
    ) -> tuple[Turn, GroupRecord, list[InboxItem]] | None:
        """Return the turn of a group that goes on or begins, with what members have said."""
        if self._database.distributed:
            live = await self._claim(group_id)
        else:
            live = self._live.get(group_id)
        if live is None:
            live = await self._load(group_id, None)
        (record, entries, item, results), group = await live.database.read(
            lambda tx: self._read_group(tx, group_id), brief=True
        )
        if record is None and item is None:
            if not results:
                return None
            # What is said to a turn that has ended comes too late.
            await live.database.write(lambda tx: _take_all(tx, results))
            return await self._next_group_turn(group_id)
        assert group is not None
        await self._take_up(group_id, record, item)
        return await self._group_turn(live, item, record, entries), group, results

    async def _take_up(
        self, agent_id: str, record: TurnRecord | None, item: InboxItem | None
    ) -> None:
        """Have the next process know which turn was under way, should this one end abnormally."""
        crashes = self._services.crashes
        turn_id = record.id if record is not None else item.turn_id if item is not None else ""
        if crashes is not None:
            await crashes.begin(agent_id, turn_id)

    async def _leave(self, agent_id: str, ended: str | None = None) -> None:
        """Note that the turn of an agent is not under way any more, or has ended."""
        crashes = self._services.crashes
        if crashes is not None:
            await crashes.end(agent_id, ended)

    def _crash_of(self, turn_id: str) -> Crash | None:
        """Return the crashes of a turn that is not to be tried again."""
        crashes = self._services.crashes
        return crashes.of(turn_id) if crashes is not None else None

    async def _put_aside(self, turn: Turn, crash: Crash) -> Outcome:
        """End a turn that has ended the process again and again, and tell the owner."""
        if turn.item is not None and turn.item.client:
            # What came beside the message is not told to the agent, and kept for another try.
            turn.stage(EntryKind.ONCE, PUT_ASIDE, turn.item.client.encode())
        turn.join_group = None  # the group hears of it in its own lane
        what = (
            f"the process ended {crash.total} times while this message was answered, so it is put "
            f'aside: it is kept, and not tried again by itself. "asterism turn show {turn.id}" '
            f'shows it, and "asterism turn retry {turn.id}" tries it again.'
        )
        turn.notify_owner("turn.put-aside", f"{turn.agent.name} gave no answer: {what}")
        actor, body = f"agent:{turn.agent.name}", {"what": turn.id, "ends": crash.total}
        at = self._services.clock()
        turn.note(Event("turn.put-aside", actor, at, body, turn.agent.id, turn.id))
        return await turn.fail(f"I could not answer: {what}")

    async def _group_turn(
        self,
        live: LiveAgent,
        item: InboxItem | None,
        record: TurnRecord | None = None,
        entries: list[Entry] | None = None,
    ) -> Turn:
        told = item.participants if item is not None else _participants_of(entries)
        presence = await _who_is_present(live, told)
        now = self._services.clock()
        enter_group(live, presence.participants, now)
        return Turn(
            live,
            self._services,
            item=item,
            record=record,
            entries=entries,
            trust=presence.trust,
            people=presence.speaker,
            opened_at=now,
        )

    async def _open_group_turn(
        self, message: Message, message_id: str, body: bytes, speaker: str | None, at: int
    ) -> Step | None:
        """Return the first decision about a message to a group, to be written together with it.

        None: the group is at work, or who is present is known only once it is stored.
        """
        if not message.target.startswith(GROUP_ID):
            return None
        origin, client = message.origin, message.client
        steps = self._steps
        if steps is None or not isinstance(self._lanes, LocalLanes):
            return None
        if speaker is None and (origin.sender or origin.room or message.participants):
            return None
        item = InboxItem(
            *(message.target, 0, message_id, InboxKind.MESSAGE, origin.channel, body, at),
            *(origin.sender, origin.reply_to, message.schema),
            people.alone_with(speaker) if speaker is not None else None,
            client=client.to_json() if client is not None else None,
        )

        async def begin(live: LiveAgent) -> Turn:
            turn = await self._group_turn(live, item)
            turn.item = None  # it is not in the inbox
            return turn

        return await steps.open(message.target, begin)

    async def _read_group(
        self, tx: Connection, group_id: str
    ) -> tuple[_GroupWork, GroupRecord | None]:
        """Return what a group has to do first, and the group if there is something."""
        work = await _first_of_group(tx, group_id)
        if self._group_turns is None or (work[0] is None and work[2] is None):
            return work, None
        return work, await self._group_turns.read(tx, group_id)

    def wake_member(self, item: InboxItem, question: AgentMessage, *, has_passages: bool) -> None:
        """Put the lane of a member to work that got a question of a group."""
        if self._lanes is not None and not self._database.distributed:
            turn_id = item.turn_id
            self._has_passages[turn_id] = has_passages
            self._questions[turn_id] = question
            self._wake(item)

    async def _run_group_turn(
        self, turn: Turn, group: GroupRecord, results: list[InboxItem]
    ) -> Outcome | None:
        task, turns = asyncio.current_task(), self._group_turns
        assert task is not None
        assert turns is not None
        self._running[turn.id] = (turn, task)
        try:
            if (crash := self._crash_of(turn.id)) is not None:
                return await self._put_aside(turn, crash)
            return await turns.take_turn(turn, group, results)
        except AsterismError as error:
            if isinstance(error, LaneLost):
                raise
            return await turn.fail(f"I could not answer: {error.message} {KEPT}")
        except asyncio.CancelledError:
            if turn.stop_reason is None:
                raise
            task.uncancel()
            await turn.wind_up()
            return await turn.stop()
        except Exception as error:  # noqa: BLE001 - a bug of ours is told, not hidden
            _log.exception("turn %s failed", turn.id)
            return await turn.fail(
                f"I could not answer, because of a fault inside asterism ({type(error).__name__}). "
                f'{KEPT} "asterism turn show {turn.id}" shows how far I came.'
            )
        finally:
            del self._running[turn.id]
            await turn.let_go()

    async def _run(self, turn: Turn) -> Outcome:
        item, waited = turn.item, None
        if item is not None:
            waited = max(0, self._services.clock() - item.at_ms) / 1000
        resumed = turn.record is not None
        with self._services.telemetry.turn(
            turn.agent, turn.id, resumed=resumed, waited=waited
        ) as watch:
            watch.outcome = outcome = await self._answer(turn)
        return outcome

    async def _answer(self, turn: Turn) -> Outcome:
        try:
            if turn.stop_reason is not None:
                settle_open_calls(turn)
                return await turn.stop()
            if (crash := self._crash_of(turn.id)) is not None:
                settle_open_calls(turn)
                return await self._put_aside(turn, crash)
            return await run_turn(turn)
        except AsterismError as error:
            if isinstance(error, LaneLost):
                raise
            settle_open_calls(turn)
            return await turn.fail(f"I could not answer: {error.message} {KEPT}")
        except Exception as error:  # noqa: BLE001 - a bug of ours is told, not hidden
            _log.exception("turn %s failed", turn.id)
            settle_open_calls(turn)
            return await turn.fail(
                f"I could not answer, because of a fault inside asterism ({type(error).__name__}). "
                f'{KEPT} "asterism turn show {turn.id}" shows how far I came.'
            )

    async def _next_turn(self, agent_id: str, item: InboxItem | None) -> tuple[Turn | None, int]:
        if self._database.distributed:
            live = await self._claim(agent_id)
            item = None
        else:
            live = self._live.get(agent_id)
            if live is not None:
                self._live.move_to_end(agent_id)
        if item is None:
            record, entries, item = await self._database.read(lambda tx: _first_to_do(tx, agent_id))
        elif item.kind == InboxKind.DECISION:
            record, entries = await self._database.read(
                lambda tx, turn_id=item.turn_id: _turn_with_entries(tx, agent_id, turn_id)
            )
        else:
            record, entries = None, None
        if record is None and item is None:
            return None, 0
        decision = item is not None and item.kind == InboxKind.DECISION
        if item is not None and decision and (record is None or record.ended_at_ms):
            await self._pass_over(item)
            return await self._next_turn(agent_id, None)
        await self._take_up(agent_id, record, item)
        if live is None:
            live = await self._load(agent_id, None)
        if live.agent.archived_at_ms is not None:
            return None, 0
        told = (
            item.participants if record is None and item is not None else _participants_of(entries)
        )
        presence = await _who_is_present(live, told)
        services = self._services
        # Before its memory is read: whatever it sees of it was there by then.
        began = services.clock()
        notes = await enter(
            live,
            presence.participants,
            services.settings.current.context.tokens,
            began,
            tell=record is None,
        )
        problems: list[tuple[str, str]] = []
        calls: list[ProcessorCall] = []
        is_said = record is None and item is not None and self._crash_of(item.turn_id) is None
        if is_said and item is not None and not is_withheld(item, presence.participants):
            if live.context.referable:
                notes += await referred_to(live, text_of(item.body))
            added, calls = await self._process(live, item, presence, began, problems)
            notes += [*self._client_notes(live, item, presence.trust), *added]
        turn = Turn(
            live,
            services,
            item=item,
            record=record,
            entries=entries,
            trust=presence.trust,
            people=presence.speaker,
            notes=notes,
            calls=calls,
            opened_at=began,
        )
        await self._know_question(turn)
        for kind, text in problems:
            turn.notify_owner(kind, text)
        return turn, item.arrival if item is not None else 0

    async def _know_question(self, turn: Turn) -> None:
        """Let a turn know what a group asks; whoever leads it may give tasks away, too."""
        if not turn.channel.startswith(GROUP_CHANNEL):
            return
        question = self._questions.pop(turn.id, None)
        database = turn.live.database
        if question is None:
            message_id = message_id_for(turn.id)
            question = await database.read(
                lambda tx: groups.find_agent_message(tx, message_id), brief=True
            )
        if question is None:
            return
        turn.question = question
        if question.may_lead and await database.read(
            lambda tx: groups.leads(tx, question), brief=True
        ):
            turn.agent = with_tools(turn.agent, ("delegate",))
        if self._steps is not None:
            turn.join_group = self._steps.join

    async def _process(
        self,
        live: LiveAgent,
        item: InboxItem,
        presence: Presence,
        now: int,
        problems: list[tuple[str, str]],
    ) -> tuple[list[Note], list[ProcessorCall]]:
        """Return what the processors of an agent tell it before a message, and call for it."""
        pipeline, search = self._services.pipeline, self._services.search
        has_passages = self._has_passages.pop(item.turn_id, None)
        if pipeline is None or not pipeline.of(live.agent.name).processors:
            return [], []
        agent, context = live.agent, live.context
        models = self._services.models
        profile = models.profile(models.chain(agent.model)[0])
        view = TurnView(
            agent=agent,
            turn_id=item.turn_id,
            message=text_of(item.body),
            participants=presence.participants,
            trust=presence.trust,
            now_ms=now,
            zone=live.zone,
            previous=context.latest_exchange(),
            compact=profile.compact,
            room=context.room_for_notes(profile),
            in_context=context.sees(profile),
            said_after=context.said_after,
            search=(
                (lambda query: search(agent.id, query, presence.participants))
                if search is not None and await has_more_to_find(live, profile, has_passages)
                else None
            ),
        )
        found = await pipeline.process(view, lambda kind, text: problems.append((kind, text)))
        notes: list[Note] = []
        calls: list[ProcessorCall] = []
        for place, (name, said) in enumerate(found):
            if isinstance(said, ProcessorCall):
                there = self._services.toolbox.get(said.tool, agent.tools) is not None
                calls += [said] if there and item.schema is None else []
                continue
            labels = tuple(Label(source.trust, source.audience) for source in said.sources)
            key = f"note/{name}/{place}"
            notes.append(Note(key, said.text, said.why, labels, said.origins, said.replaces))
        return notes, calls

    def _client_notes(self, live: LiveAgent, item: InboxItem, speaker: Trust) -> list[Note]:
        """Return what the program that sent a message says beside it, as notes to the agent."""
        if item.client is None:
            return []
        client = ClientRequest.from_json(item.client)
        foreign = (Label(least_trusted((speaker, Trust.TOOL))),)
        why = "sent along by the program that asked"
        notes = [
            Note(f"{CLIENT_NOTE}{place}", history_note(said), why, foreign)
            for place, said in enumerate(client.history)
        ]
        if client.instructions:
            models = self._services.models
            profile = models.profile(models.chain(live.agent.model)[0])
            # Most programs send theirs with every message.
            above = live.context.sends(instructions_note(client.instructions), profile)
            text = (same_instructions_note if above else instructions_note)(client.instructions)
            notes.append(Note(f"{CLIENT_NOTE}instructions", text, why, (Label(speaker),)))
        for place, document in enumerate(self._fitting(live, client.documents)):
            key, why = f"{CLIENT_NOTE}document/{place}", f"attached: {document.name!r}"
            label = Label(least_trusted((speaker, Trust.DOCUMENT)))
            notes.append(Note(key, document_note(document), why, (label,)))
        if client.retry_of:
            key, why = f"{CLIENT_NOTE}retry", "the message was asked again"
            notes.append(Note(key, retry_note(client.retry_of), why, origins=(client.retry_of,)))
        return notes

    def _fitting(
        self, live: LiveAgent, documents: Sequence[AttachedDocument]
    ) -> Iterator[AttachedDocument]:
        """Yield documents as the model of an agent can take them in beside a conversation."""
        if not documents:
            return
        services = self._services
        tokens = services.settings.current.context.tokens
        profile = services.models.profile(services.models.chain(live.agent.model)[0])
        room = min(tokens, profile.window or tokens) * BYTES_PER_TOKEN * _DOCUMENTS_SHARE
        most = int(room) // len(documents)
        for document in documents:
            # As bytes, since other scripts take more of them and more tokens.
            text = document.text.encode()[:most].decode(errors="ignore")
            left_out = document.left_out + len(document.text) - len(text)
            yield replace(document, text=text, left_out=left_out)

    async def _pass_over(self, decision: InboxItem) -> None:
        """Take out an answer to a turn that has ended by a limit before it was looked at."""
        turn_id = decision.turn_id

        async def work(tx: Connection) -> None:
            await messages.take(tx, decision, stopped=True)
            if self._database.distributed:
                await tx.notify("turn", turn_id)

        await self._database.write(work)
        self._on_turn_notice(turn_id)

    async def _claim(self, agent_id: str) -> LiveAgent | None:
        """Claim a lane; return what is in memory if nobody else has had it in between."""
        claimed = await self._database.write(lambda tx: journal.claim(tx, agent_id))
        if claimed is None:
            raise LaneLost(f"There is no agent {agent_id} any more.")
        claim, version, memory, has_crashes = claimed
        if has_crashes and self._services.crashes is not None:
            await self._services.crashes.read(agent_id)
        live = self._live.get(agent_id)
        if live is not None:
            if live.claim.fence + 1 == claim.fence and live.agent.version == version:
                live.claim = claim
                if live.memory != memory:
                    live.memory = memory
                    _mark_stale(live)
                self._live.move_to_end(agent_id)
                return live
            self.forget(agent_id)
        return await self._load(agent_id, claim)

    async def _load(self, agent_id: str, claim: journal.Claim | None) -> LiveAgent:
        while True:
            self._loading.add(agent_id)
            zone = self._services.settings.current.zone_name
            live = await load(self._database, agent_id, claim, zone)
            if agent_id in self._loading:  # else it was edited while it was read
                break
        self._loading.discard(agent_id)
        live.sections = await self._sections(live)
        self._live[agent_id] = live
        self._count(live)
        return live

    async def _sections(self, live: LiveAgent) -> tuple[Section, ...]:
        """Return what plugins add to the prefix of an agent."""
        pipeline = self._services.pipeline
        if pipeline is None or not pipeline.of(live.agent.name).sections:
            return ()
        now = self._services.clock()
        view = TurnView(live.agent, "", "", OWNER_ALONE, Trust.OWNER, now)
        added = await pipeline.sections(view, lambda _, text: _log.warning("%s", text))
        return tuple(
            Section(section.name, section.text, "added by a plugin", PLUGIN) for section in added
        )

    def _count(self, live: LiveAgent) -> None:
        if self._live.get(live.agent.id) is live:
            size = live.size
            self._live_bytes += size - live.counted
            live.counted = size

    def _make_room(self) -> None:
        while self._live and (self._live_bytes > _MAX_LIVE_BYTES or len(self._live) > _MAX_LIVE):
            agent_id = next(iter(self._live))
            if any(turn.agent.id == agent_id for turn, _ in self._running.values()):
                self._live.move_to_end(agent_id)
                break
            self.forget(agent_id)

    # -- out -----------------------------------------------------------------------------------

    async def outcome(self, turn_id: str) -> Outcome:
        """Return how a turn stands, from the store."""
        found = await self._database.read(lambda tx: _outcome_at_rest(tx, turn_id))
        return found or _raise_unknown(turn_id)

    async def outcomes(self, turn_ids: Sequence[str]) -> list[Outcome]:
        """Return how several turns stand, in one read; those that are not there are left out."""

        async def read(tx: Connection) -> list[Outcome | None]:
            return [await _outcome_at_rest(tx, turn_id) for turn_id in turn_ids]

        return [outcome for outcome in await self._database.read(read) if outcome is not None]

    async def wait(self, receipt: Receipt) -> Outcome:
        """Return the outcome of the turn that answers a message, when it has one."""
        if receipt.refusal is not None:
            return Outcome(receipt.turn_id, receipt.agent_id, TurnState.DONE, receipt.refusal)
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Outcome] = loop.create_future()
        waiting = self._waiting.setdefault(receipt.turn_id, [])
        waiting.append((receipt, future))
        try:
            if receipt.turn_id not in self._unsettled:
                known = await self._outcome_after(receipt)
                if known is not None:
                    return known
            if not self._database.distributed:
                return await future
            while True:
                # A notice can be lost with the connection that listens, so it is not relied upon.
                done, _ = await asyncio.wait([future], timeout=LOOK_AGAIN)
                known = future.result() if done else await self._outcome_after(receipt)
                if known is not None:
                    return known
        finally:
            waiting.remove((receipt, future))
            if not waiting and self._waiting.get(receipt.turn_id) is waiting:
                del self._waiting[receipt.turn_id]

    async def _outcome_after(self, receipt: Receipt) -> Outcome | None:
        """Return how a turn stands, or None if it has yet to get to what the receipt is for."""

        async def read(tx: Connection) -> Outcome | None:
            item = await messages.find(tx, receipt.message_id)
            if item is not None and item.stopped is None:
                return None
            found = await _outcome_at_rest(tx, receipt.turn_id)
            if found is None or found.state is not TurnState.PARKED:
                return found
            if found.agent_id.startswith(GROUP_ID):
                # The members go on, and the group has yet to hear of it.
                waits = await groups.waits_for_person(tx, receipt.turn_id)
                return found if waits else None
            # What it waited for is answered, and its lane has yet to hear of it.
            decision = await messages.find_decision(tx, found.agent_id, receipt.turn_id)
            return found if decision is None else None

        known = await self._database.read(read)
        return None if known is not None and known.state is TurnState.OPEN else known

    async def stop_anywhere(self, turn_id: str, reason: str) -> Outcome | None:
        """End a turn that is under way in any process, or waits to begin or to be taken up again.

        Return how it stands instead if it is none of these.
        """
        running = self._running.get(turn_id)
        if running is not None:
            self.stop_turn(turn_id, reason)
            if not (running[0].ending and running[0].agent.id.startswith(GROUP_ID)):
                return None
            # It may be about to park, and others would go on for it.
        kept = plain(reason)

        async def work(tx: Connection) -> Outcome | None:
            if await self.mark_stopped(tx, turn_id, kept):
                return None
            return await _outcome_at_rest(tx, turn_id) or _raise_unknown(turn_id)

        stands = await self._database.write(work)
        return None if running is not None else stands

    async def mark_stopped(self, tx: Connection, turn_id: str, reason: str) -> bool:
        """Keep a turn from beginning or going on; False if it is neither waiting nor open.

        A turn of a group can be stopped while it is parked, too: it waits for turns of others.
        """
        agent_id = await messages.stop(tx, message_id_for(turn_id), reason)
        if agent_id is not None:
            # A lane that has it in memory takes it from the store instead, where it is marked.
            await tx.notify("lane", agent_id)
            if self._database.distributed:
                await tx.notify("turn", turn_id)
        elif await journal.stop_turn(tx, turn_id, reason):
            await _wake_group_of(tx, turn_id)
        elif not await _stop_parked_group(tx, turn_id, reason, self._services.clock()):
            return False
        await self._tell_stop(tx, turn_id, reason)
        return True

    async def withdraw(self, tx: Connection, turn_id: str, reason: str) -> None:
        """Keep the turn of a member from beginning or going on, also while it is parked."""
        if await self.mark_stopped(tx, turn_id, reason):
            return
        if await withdraw_turn(tx, turn_id, reason, self._services.clock()) is not None:
            await self._tell_stop(tx, turn_id, reason)

    async def _tell_stop(self, tx: Connection, turn_id: str, reason: str) -> None:
        """Tell whoever works at a turn to stop: they may have written nothing of it yet."""
        await tx.notify("stop", f"{turn_id} {reason[:_MAX_REASON_LENGTH]}")

    def stop_turn(self, turn_id: str, reason: str) -> None:
        """End a turn that is under way here."""
        found = self._running.get(turn_id)
        if found is not None:
            turn, task = found
            if turn.stop_reason is None and not turn.ending:
                turn.stop_reason = reason
                task.cancel()

    async def _stand_still(self) -> None:
        """Stop the turns under way, if everything was halted; not the one that did it."""
        halt = await self._halting.current_halt()
        if halt is not None:
            for turn_id in [running for running in self._running if running != halt.turn_id]:
                reason = f": {halt.reason}" if halt.reason else "."
                self.stop_turn(turn_id, f"Everything was halted{reason}")

    def is_running(self, turn_id: str) -> bool:
        """Tell whether a turn is under way in this process."""
        return turn_id in self._running

    def _stop_here(self, said: str) -> None:
        turn_id, _, reason = said.partition(" ")
        self.stop_turn(turn_id, reason)
        if turn_id not in self._running:
            self._unsettled.discard(turn_id)
            self._has_passages.pop(turn_id, None)
            self._questions.pop(turn_id, None)
            self._on_turn_notice(turn_id)

    def _settle(self, outcome: Outcome) -> None:
        turn_id = outcome.turn_id
        self._unsettled.discard(turn_id)
        self._has_passages.pop(turn_id, None)
        self._questions.pop(turn_id, None)
        for receipt, future in self._waiting.get(turn_id, ()):
            # Whoever waits for what follows a decision is not told that the turn was parked before.
            if outcome.state is TurnState.PARKED and turn_id_for(receipt.message_id) != turn_id:
                self._on_turn_notice(turn_id)
            elif not future.done():
                future.set_result(outcome)

    def _on_turn_notice(self, payload: str) -> None:
        turn_id, _, agent_id = payload.partition(" ")
        if turn_id in self._waiting:
            self._in_background(self._tell_waiting(turn_id))
        if agent_id and self._bridge is not None and self._services.hub.is_watched(agent_id):
            self._bridge.expect_end(turn_id)

    async def _tell_waiting(self, turn_id: str) -> None:
        for receipt, future in list(self._waiting.get(turn_id, ())):
            outcome = await self._outcome_after(receipt)
            if outcome is not None and outcome.state is not TurnState.WAITING:
                self._unsettled.discard(turn_id)
                self._has_passages.pop(turn_id, None)
                if not future.done():
                    future.set_result(outcome)


def _mark_stale(live: LiveAgent) -> None:
    """Have an agent's contexts look at memory again before the next turn."""
    for context in live.contexts.values():
        context.stale = True
        context.account = None  # it vouches with what blocks said


def _raise_unknown(turn_id: str) -> NoReturn:
    raise NotFound(f'There is no turn {turn_id!r}. "asterism turn list" shows the latest ones.')


def _check_fields(message: Message) -> None:
    """Raise `InvalidInput` unless all that stands beside a message's text can be kept as it is."""
    origin = message.origin
    check_field("channel", origin.channel)
    check_field("external_id", message.external_id)
    check_field("sender", origin.sender)
    check_field("reply_to", origin.reply_to)
    check_field("room", origin.room)
    for name in message.participants:
        check_field("present", name)


def _participants_of(entries: list[Entry] | None) -> str | None:
    """Return who was present when a turn was opened."""
    for entry in entries or ():
        if entry.key == "in":
            return MessageMeta.from_json(entry.meta).participants
    return None


async def _accepted_before(
    tx: Connection, message: Message, message_id: str, at: int
) -> Receipt | None:
    """Return the receipt of a message that is handed in again; None if it is new."""
    channel, external_id = message.origin.channel, message.external_id
    if external_id is None:
        return None
    former = await messages.accept_once(tx, channel, external_id, message_id, message.target)
    if former is None:
        return None
    former_id, agent_id = former
    if await _is_over(tx, turn_id_for(former_id), message.repeat_milliseconds, at):
        await messages.accept_again(tx, channel, external_id, message_id, former_id)
        return None
    return Receipt(former_id, turn_id_for(former_id), agent_id, duplicate=True)


async def _is_over(tx: Connection, turn_id: str, span: int | None, now: int) -> bool:
    """Tell whether a turn ended so long ago that the same external id is a new message."""
    if span is None:
        return False
    record = await journal.turn(tx, turn_id)
    return record is not None and record.ended_at_ms is not None and record.ended_at_ms + span < now


async def _turn_with_entries(
    tx: Connection, agent_id: str, turn_id: str
) -> tuple[TurnRecord | None, list[Entry]]:
    record = await journal.turn_of(tx, agent_id, turn_id)
    return record, await journal.entries_of(tx, record) if record else []


async def _first_to_do(
    tx: Connection, agent_id: str
) -> tuple[TurnRecord | None, list[Entry] | None, InboxItem | None]:
    """Return the interrupted turn of an agent, or else the item that has waited longest."""
    record = await journal.find_open_turn(tx, agent_id)
    if record is not None:
        return record, await journal.entries_of(tx, record), None
    item = await messages.first(tx, agent_id)
    if item is not None and item.kind == InboxKind.DECISION:
        parked, entries = await _turn_with_entries(tx, agent_id, item.turn_id)
        return parked, entries, item
    return None, None, item


async def _wake_group_of(tx: Connection, turn_id: str) -> None:
    """Let a group look at its turn, which waits for members and not for a process."""
    record = await journal.turn(tx, turn_id)
    if record is not None and record.agent_id.startswith(GROUP_ID):
        await tx.enqueue(record.agent_id)
        await tx.notify("lane", record.agent_id)


async def _stop_parked_group(tx: Connection, turn_id: str, reason: str, at: int) -> bool:
    """Keep a parked turn of a group from going on; False if it is not one."""
    record = await journal.turn(tx, turn_id)
    if record is None or not record.agent_id.startswith(GROUP_ID):
        return False
    record = await journal.stop_unfinished(tx, turn_id, reason)
    if record is None:
        return False
    await look_at_group_turn(tx, record, at)
    return True


async def look_at_group_turn(tx: Connection, record: TurnRecord, at: int) -> None:
    """Have the lane of a group look at its turn, also where it is parked."""
    if record.state is TurnState.PARKED and not await messages.results(
        tx, record.agent_id, record.id
    ):
        # A lane takes up a parked turn for what is in the inbox, also after a crash.
        await messages.put_result(tx, record.agent_id, new_id("res"), record.id, LOOK, at)
        return
    await tx.enqueue(record.agent_id)
    await tx.notify("lane", record.agent_id)


_GroupWork = tuple[TurnRecord | None, list[Entry] | None, InboxItem | None, list[InboxItem]]


async def _first_of_group(tx: Connection, group_id: str) -> _GroupWork:
    """Return what a group has to do first: its open turn, or the item that has waited longest.

    With a turn comes what members have said to it. Results without a turn or an item are of a turn
    that has ended.
    """
    record = await journal.find_open_turn(tx, group_id)
    if record is None:
        item = await messages.first(tx, group_id)
        if item is None or item.kind != InboxKind.RESULT:
            return None, None, item, []
        record = await journal.turn_of(tx, group_id, item.turn_id)
        results = await messages.results(tx, group_id, item.turn_id)
        if record is None or record.ended_at_ms is not None:
            return None, None, None, results
    else:
        results = await messages.results(tx, group_id, record.id)
    return record, await journal.entries_of(tx, record), None, results


async def _take_all(tx: Connection, items: Sequence[InboxItem]) -> None:
    for item in items:
        await messages.take(tx, item)


async def _outcome_at_rest(tx: Connection, turn_id: str) -> Outcome | None:
    record = await journal.turn(tx, turn_id)
    if record is None:
        item = await messages.find(tx, message_id_for(turn_id))
        if item is None:
            return None
        if item.stopped is not None:
            return Outcome(turn_id, item.agent_id, TurnState.STOPPED, item.stopped)
        return Outcome(turn_id, item.agent_id, TurnState.WAITING, "")
    text = record.error or ""
    if record.state is TurnState.DONE:
        entry = await journal.last_reply(tx, record)
        if entry is not None:
            text = Reply.from_entry(entry.body, entry.meta).text or EMPTY_ANSWER
    elif record.state is TurnState.PARKED:
        waiting = [
            approval
            for approval in await approvals.of_turn(tx, turn_id)
            if approval.decided_at_ms is None
        ]
        asked = "\n".join(f"{approval.question} (approval {approval.id})" for approval in waiting)
        text = asked or text  # a group waits with the questions of its members
    return Outcome(turn_id, record.agent_id, record.state, text, record.usage)


async def _who_is_present(live: LiveAgent, participants: str | None) -> Presence:
    """Return who is present in a turn, and who speaks."""
    if participants is None:
        return Presence()
    return await live.database.read(lambda tx: read_presence(tx, participants), brief=True)


class HaltWatch:
    """Knows of halts by notices, and reads the store only when it may not know."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._halt: Halt | None = None
        self._known = False
        self._looked = 0.0
        self._notices = 0

    async def start(self) -> None:
        """Begin to listen."""
        await self._database.listen(agents.TOPIC, self._on_notice)

    def _on_notice(self, constellation: str) -> None:
        if constellation == self._database.constellation:
            self._known = False
            self._notices += 1

    async def current_halt(self) -> Halt | None:
        """Return the halt that keeps turns from being taken, if there is one."""
        late = self._database.distributed and time.monotonic() - self._looked > LOOK_AGAIN
        if self._known and self._halt is None and not late:
            return None
        notices = self._notices
        halt = await self._database.read(agents.current_halt)
        # Known only now: whoever asks while the store is read must not take a turn meanwhile.
        self._halt, self._looked = halt, time.monotonic()
        self._known = notices == self._notices
        return halt


_ANNOUNCE = 10.0
_SEND = 0.05
_SIGNAL_PATIENCE = 1.0
"""Seconds that a signal may take to follow the commit of what it tells."""
OVERLAP = 10_000
"""Milliseconds by which ends are looked for earlier: clocks differ, and commits take time."""
_WHO_WATCHES = "?"
_MAX_PAYLOAD_LENGTH = 6_000
_MAX_NOTICE = 7_900
_MAX_SHORT = 300


class Bridge:
    """Carries signals between the processes that share a database.

    Signals are sent after what they tell is stored, so that a process that is killed may take some
    with it. That a turn has ended is notified by the transaction that ends it: whoever hears of it
    and gets no signal reads the end in the journal.
    """

    def __init__(
        self, hub: Hub, database: Database, outcome: Callable[[str], Awaitable[Outcome]]
    ) -> None:
        self._hub = hub
        self._database = database
        self._outcome = outcome
        self._me = new_id("proc")
        self._place = database.constellation
        self._outgoing: list[tuple[str, str]] = []
        self._announced: dict[str, float] = {}
        self._ready = asyncio.Event()
        self._urgent = False
        self._tasks: list[asyncio.Task[None]] = []
        self._telling: set[asyncio.Task[None]] = set()
        self._held: dict[str, list[tuple[str, str, dict[str, Any]]]] = {}
        """Signals of agents that wait until the end of a turn was read."""
        self._heard_at = now_ms()
        """When this process last heard itself, so that it has missed nothing until then."""

    async def start(self) -> None:
        """Begin to carry."""
        await self._database.listen("signal", self._on_signal)
        await self._database.listen("watching", self._on_watching)
        self._hub.forward = self._forward
        self._hub.announce = self._announce
        self._tasks = [asyncio.create_task(self._send()), asyncio.create_task(self._remind())]
        # The others tell whom they watch, so that turns are shown to them from the first on.
        self._announce_soon(_WHO_WATCHES)

    async def stop(self) -> None:
        """Stop carrying."""
        self._hub.forward = self._hub.announce = None
        await end_tasks([*self._tasks, *self._telling])

    async def _announce(self, agent_id: str) -> None:
        """Tell the others whom somebody watches here, before anything else that they are told."""
        now = time.monotonic()
        if now - self._announced.get(agent_id, -_ANNOUNCE) < _ANNOUNCE:
            return
        self._announced[agent_id] = now
        payload = self._watching(agent_id)
        with contextlib.suppress(AsterismError):
            await self._database.write(lambda tx: tx.notify("watching", payload))

    def _announce_soon(self, agent_id: str) -> None:
        """Tell the others the same without waiting for it."""
        self._urgent = True
        self._put("watching", self._watching(agent_id))

    def _watching(self, agent_id: str) -> str:
        return f"{self._me} {self._place} {agent_id}"

    def _put(self, topic: str, payload: str) -> None:
        self._outgoing.append((topic, payload))
        self._ready.set()

    def _forward(self, signal: Signal) -> None:
        data = signal.data
        text = data.get("text")
        if isinstance(text, str) and len(text) > _MAX_PAYLOAD_LENGTH // 4:
            data = {**data, "text": text[: _MAX_PAYLOAD_LENGTH // 4], "cut": True}
        payload = self._payload(signal, data)
        if len(payload) > _MAX_NOTICE:
            # What it is about is told in any case; the journal has all of it.
            short = {
                name: value
                for name, value in data.items()
                if isinstance(value, bool | int | float) or len(str(value)) <= _MAX_SHORT
            }
            payload = self._payload(signal, {**short, "cut": True})
        self._put("signal", payload.decode())

    def _payload(self, signal: Signal, data: dict[str, Any]) -> bytes:
        who = (self._me, self._place)
        return orjson.dumps([*who, signal.agent_id, signal.turn_id, signal.kind, data])

    async def _send(self) -> None:
        while True:
            await self._ready.wait()
            if not self._urgent:
                await asyncio.sleep(_SEND)
            self._ready.clear()
            self._urgent = False
            batch, self._outgoing = self._outgoing, []

            async def tell(tx: Connection, batch: list[tuple[str, str]] = batch) -> None:
                for topic, payload in batch:
                    await tx.notify(topic, payload)

            # Signals are a convenience: what they tell is in the journal.
            with contextlib.suppress(Exception):
                await self._database.write(tell)

    async def _remind(self) -> None:
        while True:
            await asyncio.sleep(_ANNOUNCE)
            self._announce_all()

    def _announce_all(self) -> None:
        watched = self._hub.watched_agents()
        for agent_id in watched:
            self._announce_soon(agent_id)
        self._announced = dict.fromkeys(watched, time.monotonic())

    def _on_signal(self, payload: str) -> None:
        sender, place, agent_id, turn_id, kind, data = orjson.loads(payload)
        if sender == self._me or place != self._place or not self._hub.is_watched(agent_id):
            return
        if kind == "ended" and self._hub.has_published_end(turn_id):
            return  # it came late, and was read in the journal meanwhile
        if agent_id in self._held:
            self._held[agent_id].append((turn_id, kind, data))
        elif kind in ("ended", "parked") and data.get("cut"):
            self._held[agent_id] = []
            self._in_background(self._tell_whole(agent_id, turn_id))
        else:
            self._hub.receive(agent_id, turn_id, kind, data)

    async def _tell_whole(self, agent_id: str, turn_id: str) -> None:
        """Tell the end of a turn as the journal has it, then what came meanwhile."""
        try:
            await self._tell_end(turn_id)
        finally:
            for held_turn, kind, data in self._held.pop(agent_id, ()):
                self._hub.receive(agent_id, held_turn, kind, data)

    async def _tell_end(self, turn_id: str) -> None:
        with contextlib.suppress(AsterismError):
            outcome = await self._outcome(turn_id)
            if outcome.state not in (TurnState.OPEN, TurnState.WAITING):
                last = last_signal(outcome)
                self._hub.receive(last.agent_id, turn_id, last.kind, last.data)

    def expect_end(self, turn_id: str) -> None:
        """Have watchers told of an end that was committed, whether its signal comes or not."""
        self._in_background(self._publish_missing_end(turn_id))

    async def _publish_missing_end(self, turn_id: str) -> None:
        await asyncio.sleep(_SIGNAL_PATIENCE)
        if not self._hub.has_published_end(turn_id, _SIGNAL_PATIENCE * 2):
            await self._tell_end(turn_id)

    def catch_up(self) -> None:
        """Have watchers told what was notified while nobody listened here."""
        self._in_background(self._tell_missed(self._heard_at))
        self._announce_soon(_WHO_WATCHES)

    async def _tell_missed(self, since: int) -> None:
        with contextlib.suppress(AsterismError):
            for record in await self._database.read(
                lambda tx: journal.ended_since(tx, None, since - OVERLAP)
            ):
                if self._hub.is_watched(record.agent_id) and not self._hub.has_published_end(
                    record.id
                ):
                    await self._tell_end(record.id)

    def _in_background(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._telling.add(task)
        task.add_done_callback(self._telling.discard)

    def _on_watching(self, payload: str) -> None:
        sender, place, agent_id = payload.split(" ", 2)
        if sender == self._me:
            self._heard_at = now_ms()
        if sender == self._me or place != self._place:
            return
        if agent_id == _WHO_WATCHES:
            self._announce_all()
        else:
            self._hub.keep(agent_id, _ANNOUNCE * 3)


async def signals_of_turn(
    hub: Hub,
    wait: Callable[[Receipt], Coroutine[Any, Any, Outcome]],
    agent_id: str,
    hand_in: Callable[[], Awaitable[Receipt]],
    after: str | None = None,
) -> AsyncGenerator[Signal, None]:
    """Hand something in and yield the signals of its turn, `ended` or `parked` the last.

    Args:
        hub: Where the signals come from.
        wait: Waits for how a turn ends, or that it waits.
        agent_id: Whose turn it is.
        hand_in: Hands it in.
        after: A signal after which those that are still kept are yielded, too; a signal `gap` is
            the first if they do not reach back that far.
    """
    is_known = after is not None and hub.knows(agent_id, after)
    if after is not None and not is_known:
        yield Signal(after, agent_id, "", "gap", {})
    hub.keep(agent_id)
    if hub.announce is not None:
        await hub.announce(agent_id)
    signals = hub.watch(agent_id, after if is_known else None)
    first = asyncio.ensure_future(anext(signals))
    await asyncio.sleep(0)  # the watch has begun before anything is handed in
    ended: asyncio.Future[Outcome] | None = None
    try:
        receipt = await hand_in()
        ended = asyncio.ensure_future(wait(receipt))
        until: float | None = None
        is_seen = is_parked = False
        while until is None or first.done() or time.monotonic() < until:
            if until is None:
                await asyncio.wait({first, ended}, return_when=asyncio.FIRST_COMPLETED)
            else:
                await asyncio.wait({first}, timeout=until - time.monotonic())
            if first.done():
                signal = first.result()
                if signal.turn_id == receipt.turn_id:
                    is_seen = True
                    is_parked = signal.kind == "parked"
                    # A turn that was parked before may have gone on since.
                    if signal.kind == "ended" or (is_parked and not is_known):
                        break
                    yield signal
                    # Whoever reads slowly is not to miss the rest of what is kept.
                    until = None if is_known else until
                elif signal.kind == "gap" and is_known:
                    yield signal
                first = asyncio.ensure_future(anext(signals))
            elif until is None and ended.done():
                # What another process publishes may come after the notice that a turn has ended.
                is_elsewhere = hub.forward is not None and (is_seen or not receipt.duplicate)
                # What is kept is read signal by signal.
                is_to_come = is_elsewhere or is_known
                until = time.monotonic() + (_SIGNAL_PATIENCE if is_to_come else 0.0)
        outcome = await ended
        if not (is_known and is_parked and outcome.state is TurnState.PARKED):
            yield last_signal(outcome)
    finally:
        first.cancel()
        if ended is not None:
            ended.cancel()
        await asyncio.gather(first, *([ended] if ended else []), return_exceptions=True)
        await signals.aclose()


def last_signal(outcome: Outcome) -> Signal:
    """Return the signal that tells how a turn ended, or that it waits."""
    kind = "parked" if outcome.state is TurnState.PARKED else "ended"
    data = {"state": outcome.state.value, "text": outcome.text}
    own = end_id(outcome.turn_id, now_ms()) if kind == "ended" else ""
    return Signal(own, outcome.agent_id, outcome.turn_id, kind, data)
