"""The runner of groups: state from the journal, a decision, and what follows from it, in one write.

A group's turn waits in the store, not in a process: each wake reads what members have said, asks
the pattern, and writes the decision together with the messages to members. So a crash finds either
a decision with its messages, or neither.
"""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

import orjson

from asterism.config import Settings
from asterism.errors import Conflict, TurnLimit
from asterism.memory.gate.passages import NewPassage, insert_many, prepare_passages
from asterism.memory.gate.writer import Writer
from asterism.memory.people import get_person
from asterism.permissions import SYSTEM, Actor
from asterism.ports import Clock, Pattern, WatchingPattern
from asterism.records import dataclass
from asterism.store import groups, journal, messages, passages
from asterism.store.database import Connection, Database
from asterism.store.groups import AgentMessage
from asterism.tools.builtin.send import stop_loop
from asterism.turns.lanes import Pump
from asterism.turns.turn import Turn
from asterism.types.agents import OWNER, Audience, Label, Trust, message_id_for, new_id, turn_id_for
from asterism.types.groups import (
    AGENT_CHANNEL,
    GROUP_CHANNEL,
    AskedQuestion,
    Delegation,
    GroupActivity,
    GroupDecision,
    GroupRecord,
    GroupState,
    MemberQuestion,
    QuestionState,
    Role,
)
from asterism.types.memory import Origin, OriginKind, Source
from asterism.types.turns import (
    EntryKind,
    InboxItem,
    MessageOrigin,
    Outcome,
    Reply,
    ResultMeta,
    Usage,
    message_wire,
    plain,
    text_of,
)

MAX_DECISIONS = 500
"""Decisions of one turn; a pattern that needs more goes in circles."""
BY_PATTERN = "asterism:groups"
"""Who is named as the model of a group's answer."""
_DECISION, _ASK, _DELEGATION = "decision/", "ask/", "delegation/"
_MAX_DUE = 100
_MAX_SHOWN = 4_096
_MAX_HEARD = 8_000
"""Characters of an exchange that an observer is told."""
_LOOK_AGAIN = 5_000
"""Milliseconds until a group is woken again whose lane has not looked at it."""
_STATES = {
    "done": QuestionState.DONE,
    "failed": QuestionState.FAILED,
    "stopped": QuestionState.STOPPED,
    "parked": QuestionState.PARKED,
    "timeout": QuestionState.TIMEOUT,
}


@dataclass(frozen=True, slots=True)
class GroupTurn:
    """What the journal has of a group's turn."""

    asked: tuple[AskedQuestion, ...]
    delegations: tuple[Delegation, ...]
    notes: Mapping[str, Any]
    decisions: int
    usage: Usage


def read_turn(entries: Mapping[str, Any]) -> GroupTurn:
    """Return what entries, by their keys, say of a group's turn."""
    asked: dict[str, AskedQuestion] = {}
    delegations: list[Delegation] = []
    notes: dict[str, Any] = {}
    decisions, usage = 0, Usage()
    for key, entry in entries.items():
        if key.startswith(_DECISION):
            decisions += 1
            decision: dict[str, Any] = orjson.loads(entry.body)
            notes |= decision.get("notes") or {}
            for ask in decision["asks"]:
                asked[ask["key"]] = _asked(ask, entry.at_ms)
        elif key.startswith(_DELEGATION):
            delegations.append(_delegation(orjson.loads(entry.body)))
        elif key.startswith(_ASK):
            said: dict[str, Any] = orjson.loads(entry.body)
            if said["key"] in asked:
                asked[said["key"]] = _answered(asked[said["key"]], said, entry.at_ms)
                usage += Usage(*said.get("usage", ()))
    return GroupTurn(tuple(asked.values()), tuple(delegations), notes, decisions, usage)


def _asked(stored: Mapping[str, Any], at: int) -> AskedQuestion:
    ask = MemberQuestion(
        stored["key"], stored["agent"], stored["text"], stored.get("schema"), stored.get("seconds")
    )
    return AskedQuestion(
        ask, stored["name"], turn_id=turn_id_for(stored["message"]), asked_at_ms=at
    )


def _answered(asked: AskedQuestion, said: Mapping[str, Any], at: int) -> AskedQuestion:
    return replace(
        asked,
        state=_STATES[said["state"]],
        answer=said["text"],
        ended_at_ms=at,
        trust=Trust(said.get("trust", Trust.OWNER)),
        audience=Audience.read(said["audience"]) if said.get("audience") else None,
    )


def _delegation(said: Mapping[str, Any]) -> Delegation:
    return Delegation(said["key"], said["by"], said["task"], said.get("to", ""))


class WakeMember(Protocol):
    """Puts the lane of a member to work that got a question."""

    def __call__(self, item: InboxItem, *, has_passages: bool) -> None:
        """Take the item as committed, and know whether its agent has passages."""
        ...


class GroupRunner:
    """Takes turns of groups as far as they go."""

    def __init__(
        self,
        pattern: Callable[[str], Pattern],
        clock: Clock,
        stop: Callable[[str, str], Awaitable[Any]],
        settings: Callable[[], Settings],
        wake: WakeMember,
    ) -> None:
        """Make it.

        Args:
            pattern: Returns a pattern by its name.
            clock: Milliseconds since 1970.
            stop: Ends the turn of a member.
            settings: Returns the settings in use.
            wake: Puts the lane of a member to work that got a question.
        """
        self._pattern = pattern
        self._clock = clock
        self._stop = stop
        self._settings = settings
        self._wake = wake
        self._sent: dict[str, list[tuple[InboxItem, bool]]] = {}
        """What was put into inboxes of members by a write under way, by the group's turn."""
        self._shown: OrderedDict[tuple[str, str], None] = OrderedDict()
        """The answers that watchers were shown, by turn and question; the latest of them."""

    async def read(self, tx: Connection, group_id: str) -> GroupRecord | None:
        """Return a group as it is now."""
        return await groups.by_id(tx, group_id)

    async def take_turn(
        self, turn: Turn, group: GroupRecord, results: Sequence[InboxItem]
    ) -> Outcome | None:
        """Take in what members have said, decide, and write what follows; None: it waits."""
        now = self._clock()
        names = {asked.key: asked.name for asked in read_turn(turn.recorded).asked}
        for item in results:
            self._take_in(turn, item, names)
        turn.write_beside(lambda tx: _take(tx, results))
        found = read_turn(turn.recorded)
        turn.usage = found.usage
        if turn.stop_reason is not None:
            await self._stop_members(found.asked, turn.stop_reason)
            turn.write_beside(lambda tx: groups.keep(tx, turn.agent.id, None, None))
            return await turn.stop()
        late = self._time_out(turn, found, now)
        if late:
            found = read_turn(turn.recorded)
        speaker = await _speaker(turn)
        if found.decisions >= MAX_DECISIONS:
            raise TurnLimit(f"the pattern {group.pattern} made {found.decisions} decisions.")
        pattern = self._pattern(group.pattern)
        state = GroupState(
            group,
            turn.id,
            turn.message,
            speaker,
            now,
            found.asked,
            found.delegations,
            found.notes,
        )
        decision = pattern.decide(state)
        outcome = await self._carry_out(turn, pattern, state, found, decision, late=bool(late))
        await self._stop_members(late, "The time for the answer is over.")
        cancelled = [asked for asked in found.asked if asked.key in decision.cancel]
        await self._stop_members(cancelled, "The group needs no answer any more.")
        return outcome

    def _take_in(self, turn: Turn, item: InboxItem, names: Mapping[str, str]) -> None:
        """Stage what a member has said or given away; what comes too late is left out."""
        said: dict[str, Any] = orjson.loads(item.body)
        label = Label(Trust(said["trust"]), Audience.read(said["audience"]))
        meta = ResultMeta(trust_levels=(label.trust,), audiences=(str(label.audience),)).to_json()
        if "task" in said:
            number = sum(key.startswith(_DELEGATION) for key in turn.recorded)
            turn.context.learn(label)
            key = f"{_DELEGATION}{number}/effect"
            turn.stage(EntryKind.ONCE, key, item.body, meta=meta, at=item.at_ms)
            return
        key = f"{_ASK}{said['key']}"
        if f"{key}/outcome" in turn.recorded:
            return
        if said["state"] == "parked":
            number = sum(name.startswith(f"{key}/parked/") for name in turn.recorded)
            turn.stage(EntryKind.ONCE, f"{key}/parked/{number}", item.body, at=item.at_ms)
            turn.deliver(f"{said['turn']}/{number}", said["text"])
            return
        turn.context.learn(label)
        turn.stage(EntryKind.ONCE, f"{key}/outcome", item.body, meta=meta, at=item.at_ms)
        told = {"member": names.get(said["key"], ""), "state": said["state"], "text": said["text"]}
        shown = (turn.id, said["key"])
        if shown not in self._shown:
            self._shown[shown] = None
            turn.publish("member", told)
        if len(self._shown) > _MAX_SHOWN:
            self._shown.popitem(last=False)

    def _time_out(self, turn: Turn, found: GroupTurn, now: int) -> list[AskedQuestion]:
        """Stage the end of questions whose time is over; return them."""
        late = [asked for asked in found.asked if not asked.over and _deadline(asked, now) <= now]
        for asked in late:
            said = {
                "key": asked.key,
                "state": "timeout",
                "text": f"no answer within {asked.ask.seconds:g} s",
                "turn": asked.turn_id,
            }
            turn.stage(EntryKind.ONCE, f"{_ASK}{asked.key}/outcome", orjson.dumps(said), at=now)
        return late

    async def _stop_members(self, asked: Sequence[AskedQuestion], reason: str) -> None:
        for question in asked:
            if not question.over or question.state is QuestionState.TIMEOUT:
                await self._stop(question.turn_id, reason)

    async def _carry_out(
        self,
        turn: Turn,
        pattern: Pattern,
        state: GroupState,
        found: GroupTurn,
        decision: GroupDecision,
        *,
        late: bool,
    ) -> Outcome | None:
        asks = [ask for ask in decision.asks if state.find(ask.key) is None]
        changes = bool(asks) or decision.ends or bool(decision.notes) or bool(decision.cancel)
        if changes:
            self._record(turn, pattern, state, found, decision, asks)
        if decision.failure is not None:
            return await turn.fail(decision.failure)
        if decision.answer is not None:
            return await self._answer(turn, state, decision)
        if not asks:
            open_asks = [asked for asked in state.pending if asked.key not in decision.cancel]
            if not open_asks:
                raise TurnLimit(
                    f"the pattern {state.group.pattern} asks nobody and gives no answer."
                )
            parked = [asked for asked in open_asks if asked.state is QuestionState.PARKED]
            if len(parked) == len(open_asks):
                questions = [f"{asked.name}: {asked.answer}" for asked in parked]
                return await turn.park(questions, asked_elsewhere=True)
            answers_only = all(draft.key.endswith("/outcome") for draft in turn.staged)
            if answers_only and not changes and not late:
                # What members have said stays in the inbox until something follows from it.
                return None
        try:
            await turn.flush()
        finally:
            # Also where the turn is stopped meanwhile: the write goes on without it.
            for item, has_passages in self._sent.pop(turn.id, ()):
                self._wake(item, has_passages=has_passages)
        return None

    def _record(
        self,
        turn: Turn,
        pattern: Pattern,
        state: GroupState,
        found: GroupTurn,
        decision: GroupDecision,
        asks: Sequence[MemberQuestion],
    ) -> None:
        """Stage a decision, and have the next write put its messages and what the pattern keeps."""
        now, group = state.now_ms, state.group
        sent = [(ask, new_id("msg")) for ask in asks]
        names = {member.agent_id: member.name for member in group.members}
        stored = {
            "reason": decision.reason,
            "asks": [
                {
                    "key": ask.key,
                    "agent": ask.agent_id,
                    "name": names.get(ask.agent_id, ask.agent_id),
                    "text": ask.text,
                    "schema": ask.schema,
                    "seconds": ask.seconds,
                    "message": message_id,
                }
                for ask, message_id in sent
            ],
            "answer": decision.answer,
            "failure": decision.failure,
            "notes": decision.notes,
            "memory": decision.memory,
        }
        turn.stage(EntryKind.ONCE, f"{_DECISION}{found.decisions}", orjson.dumps(stored), at=now)
        for key in decision.cancel:
            if f"{_ASK}{key}/outcome" not in turn.recorded:
                said = {"key": key, "state": "stopped", "text": "not needed any more", "turn": ""}
                turn.stage(EntryKind.ONCE, f"{_ASK}{key}/outcome", orjson.dumps(said), at=now)
        turn.publish(
            "decision",
            {"reason": decision.reason, "members": [names.get(ask.agent_id, "") for ask in asks]},
        )
        wake_at = self._wake_at(pattern, state, decision, asks)

        async def write(tx: Connection) -> None:
            thread, depth = await _thread_of(tx, turn)
            items: list[tuple[InboxItem, bool]] = []
            for ask, message_id in sent:
                message = AgentMessage(
                    message_id, group.id, ask.agent_id, thread, depth, turn.id, ask.key, now
                )
                item = await _send(tx, turn, group, ask, message)
                if item is not None:
                    items.append((item, await passages.has_any(tx, ask.agent_id)))
            self._sent[turn.id] = items
            await groups.keep(tx, group.id, decision.memory, wake_at)

        turn.write_beside(write)

    def _wake_at(
        self,
        pattern: Pattern,
        state: GroupState,
        decision: GroupDecision,
        asks: Sequence[MemberQuestion],
    ) -> int | None:
        """Return when to look at the group again if nothing comes in."""
        if decision.ends:
            watching = isinstance(pattern, WatchingPattern)
            return pattern.next_look(state.group, state.now_ms) if watching else None
        due = [state.now_ms + int(ask.seconds * 1_000) for ask in asks if ask.seconds is not None]
        due += [_deadline(asked, 0) for asked in state.pending if asked.ask.seconds is not None]
        return min(due, default=None)

    async def _answer(self, turn: Turn, state: GroupState, decision: GroupDecision) -> Outcome:
        """End the turn with the group's answer, which goes out once."""
        answer = plain(decision.answer or "")
        watching = turn.channel == WATCH_CHANNEL
        reply = Reply(answer or "(Nothing to say.)", model=BY_PATTERN)
        meta = reply.meta(trust=turn.context.label.trust)
        turn.stage(EntryKind.REPLY, "0/reply", reply.wire(), meta=meta)
        if answer:
            self._tell_observers(turn, state, answer)
        if turn.channel.startswith(AGENT_CHANNEL) and answer:
            turn.write_beside(lambda tx: self._reply_to_agent(tx, turn, state.group, answer))
        if watching and answer:
            turn.notify_owner("group.message", f"{state.group.name}: {answer}")
        return await turn.finish(reply)

    def _tell_observers(self, turn: Turn, state: GroupState, answer: str) -> None:
        """Put what was said into the archives of the observers, who find it when it matters."""
        observers = [
            member
            for member in state.group.members
            if member.active and member.role is Role.OBSERVER
        ]
        if not observers:
            return
        name, now = state.group.name, state.now_ms
        text = f"In the group {name}, {state.speaker} said: {state.message}\n{name}: {answer}"
        origin = Origin(OriginKind.MESSAGE, turn.id, "1")
        source = Source((origin,), turn.source.audience, turn.source.trust)
        rows = prepare_passages([NewPassage(text[:_MAX_HEARD], source=source)])
        writer = Writer(Actor(SYSTEM, SYSTEM, SYSTEM), source, now, turn_id=turn.id)

        async def write(tx: Connection) -> None:
            for observer in observers:
                await insert_many(tx, writer, observer.agent_id, rows)
                await tx.notify("search_index", observer.agent_id)

        turn.write_beside(write)

    async def _reply_to_agent(
        self, tx: Connection, turn: Turn, group: GroupRecord, answer: str
    ) -> None:
        """Send the group's answer to the agent that has written to it, in the same exchange."""
        opening = await groups.find_agent_message(tx, message_id_for(turn.id))
        if opening is None:
            return
        now, source = self._clock(), turn.source
        message = AgentMessage(
            new_id("msg"),
            group.id,
            opening.sender_id,
            opening.thread,
            opening.depth + 1,
            turn.id,
            "",
            now,
        )
        limits = self._settings().agent_messages
        name = turn.channel.removeprefix(AGENT_CHANNEL)
        if await stop_loop(tx, limits, message, group.name, name):
            return
        with contextlib.suppress(Conflict):  # it was archived meanwhile, and the turn ends
            item = await messages.put_message(
                tx,
                opening.sender_id,
                message.message_id,
                message_wire("user", f"[from group {group.name}, in answer to you] {answer}"),
                MessageOrigin(f"{AGENT_CHANNEL}{group.name}"),
                now,
                participants=turn.context.participants.wire(source.audience, source.trust),
            )
            if item is not None:
                await groups.put_agent_message(tx, message)


def _deadline(asked: AskedQuestion, never: int) -> int:
    """Return until when a question may take; `never` and a bit for one without a limit."""
    if asked.ask.seconds is None:
        return never + 1
    return asked.asked_at_ms + int(asked.ask.seconds * 1_000)


async def _take(tx: Connection, items: Sequence[InboxItem]) -> None:
    for item in items:
        await messages.take(tx, item)


async def _speaker(turn: Turn) -> str:
    """Return who has opened a turn, in words."""
    if turn.channel.startswith(AGENT_CHANNEL):
        return f"the agent {turn.channel.removeprefix(AGENT_CHANNEL)}"
    first = turn.context.participants.people[0].person_id
    if first == OWNER:
        return "your owner"
    person = await turn.live.database.read(lambda tx: get_person(tx, first))
    return person.name if person is not None else "somebody unknown"


async def _thread_of(tx: Connection, turn: Turn) -> tuple[str, int]:
    """Return the exchange that messages of a turn belong to, and their depth in it."""
    opening = await groups.find_agent_message(tx, message_id_for(turn.id))
    return (turn.id, 1) if opening is None else (opening.thread, opening.depth + 1)


async def _send(
    tx: Connection, turn: Turn, group: GroupRecord, ask: MemberQuestion, message: AgentMessage
) -> InboxItem | None:
    """Put a question into the inbox of a member, once; that it is gone is told to the group."""
    channel, source = f"{GROUP_CHANNEL}{group.name}", turn.source
    external_id = f"{turn.id}/{ask.key}"
    if await messages.accept_once(tx, channel, external_id, message.message_id, ask.agent_id):
        return None
    gone = "it was deleted"
    try:
        item = await messages.put_message(
            tx,
            ask.agent_id,
            message.message_id,
            message_wire("user", plain(ask.text)),
            MessageOrigin(channel),
            message.at_ms,
            schema=orjson.dumps(ask.schema).decode() if ask.schema is not None else None,
            participants=turn.context.participants.wire(source.audience, source.trust),
            announce=False,
        )
    except Conflict:  # it was chosen before it was archived
        item, gone = None, "it is archived"
    if item is not None:
        await groups.put_agent_message(tx, message)
        return item
    said = {
        "key": ask.key,
        "state": "failed",
        "text": gone,
        "turn": turn_id_for(message.message_id),
        "trust": source.trust.value,
        "audience": str(source.audience),
    }
    await messages.put_result(
        tx, group.id, new_id("res"), turn.id, orjson.dumps(said), message.at_ms
    )
    return None


# -- watching --------------------------------------------------------------------------------------

WATCH_CHANNEL = "sleeptime"
"""The channel of messages that rules of a group begin a turn with."""


class GroupPump:
    """Wakes groups whose questions take too long, and looks at the rules of those that watch."""

    def __init__(
        self,
        database: Database,
        clock: Clock,
        pattern: Callable[[str], Pattern],
        wake: Callable[[str], None],
    ) -> None:
        """Make it; `wake` puts the lane of a group to work where lanes run in this process."""
        self._database = database
        self._clock = clock
        self._pattern = pattern
        self._wake = wake
        self._pump = Pump("groups", self.look, clock)

    async def start(self) -> None:
        """Begin to look."""
        await self._database.listen("group", lambda _: self._pump.kick(), missed=self._pump.kick)
        self._pump.start()

    async def stop(self) -> None:
        """Stop looking."""
        await self._pump.stop()

    async def look(self) -> int | None:
        """Look at all groups that are due; return when the next one is."""
        now = self._clock()
        due = await self._database.read(lambda tx: groups.due(tx, now, _MAX_DUE))
        for group_id, constellation, since in due:
            database = self._database
            if constellation != database.constellation:
                database = database.for_constellation(constellation)
            await database.write(
                lambda tx, group_id=group_id, since=since: self._look_at(tx, group_id, since, now)
            )
            self._wake(group_id)
        return await self._database.read(groups.next_wake)

    async def _look_at(self, tx: Connection, group_id: str, since: int, now: int) -> None:
        """Look at one group, in one transaction: what fires and what it begins go together."""
        group = await groups.by_id(tx, group_id)
        if group is None:
            return
        pattern = self._pattern(group.pattern)
        if await journal.find_open_turn(tx, group_id) is not None:
            if await groups.move_wake(tx, group_id, since, now + _LOOK_AGAIN):
                await tx.enqueue(group_id)
                await tx.notify("lane", group_id)
            return
        if not isinstance(pattern, WatchingPattern):
            await groups.move_wake(tx, group_id, since, None)
            return
        if not await groups.move_wake(tx, group_id, since, pattern.next_look(group, now)):
            return
        fired_at = int(group.memory.get("fired_at", group.created_at_ms))
        looked_at = int(group.memory.get("looked_at", group.created_at_ms))
        members = [member.agent_id for member in group.members if member.active]
        count, last, bodies, metrics = await groups.activity(tx, members, fired_at, looked_at)
        texts = tuple(text_of(body.encode()) for body in bodies)
        activity = GroupActivity(now, fired_at, count, last, texts, metrics)
        message = pattern.watch(group, activity)
        kept = {**group.memory, "looked_at": now} | ({"fired_at": now} if message else {})
        await groups.keep(tx, group_id, kept, pattern.next_look(group, now))
        if message is not None:
            message_id = new_id("msg")
            external_id = f"{group_id}@{since}"
            await messages.accept_once(tx, WATCH_CHANNEL, external_id, message_id, group_id)
            await messages.put_message(
                tx,
                group_id,
                message_id,
                message_wire("user", message),
                MessageOrigin(WATCH_CHANNEL),
                now,
            )
