"""The runner of groups: state from the journal, a decision, and what follows from it, in one write.

A group's turn waits in the store, not in a process: each wake reads what members have said, asks
the pattern, and writes the decision together with the messages to members. So a crash finds either
a decision with its messages, or neither.
"""

from __future__ import annotations

import contextlib
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import field, replace
from functools import lru_cache
from itertools import islice
from typing import Any, Protocol

import orjson

from asterism.config import Settings
from asterism.errors import AsterismError, Conflict, LaneLost, StoreError, TurnLimit
from asterism.groups.options import named_members, with_names_of_now
from asterism.memory.gate.passages import NewPassage, insert_many, prepare_passages
from asterism.memory.gate.writer import Writer
from asterism.memory.people import get_person
from asterism.permissions import SYSTEM, Actor
from asterism.ports import Clock, Pattern, WatchingPattern
from asterism.records import dataclass
from asterism.store import agents, groups, journal, messages, passages
from asterism.store.database import Connection, Database
from asterism.store.groups import AgentMessage
from asterism.telemetry.redaction import redact
from asterism.tools.builtin.send import stop_loop
from asterism.turns.lanes import Pump
from asterism.turns.runtime import look_at_group_turn
from asterism.turns.turn import Turn
from asterism.types.agents import OWNER, Audience, Label, Trust, message_id_for, new_id, turn_id_for
from asterism.types.groups import (
    AGENT_CHANNEL,
    GROUP_CHANNEL,
    NO_SECRET_ANSWER,
    SECRET_ANSWER,
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
    HEARTBEAT,
    OWN_REPLIES,
    SCHEDULED,
    EntryKind,
    InboxItem,
    MessageOrigin,
    Notice,
    Outcome,
    Reply,
    ResultMeta,
    TurnRecord,
    TurnState,
    Usage,
    images_in,
    message_wire,
    plain,
    text_of,
)

_log = logging.getLogger(__name__)
MAX_DECISIONS = 500
"""Decisions of one turn; a pattern that needs more goes in circles."""
BY_PATTERN = OWN_REPLIES + "groups"
"""Who is named as the model of a group's answer."""
_DECISION, _ASK, _DELEGATION = "decision/", "ask/", "delegation/"
_MAX_DUE = 100
_MAX_SHOWN = 4_096
_MAX_NAMES = 1_024
_MAX_HEARD = 8_000
"""Characters of an exchange that an observer is told."""
_LOOK_AGAIN = 5_000
"""Milliseconds until a group is woken again whose lane has not looked at it."""
_AFTER_FAULT = 600_000
"""Milliseconds until a group is looked at again whose pattern or rules have failed."""
_NOT_NEEDED = {
    QuestionState.TIMEOUT: "The time for the answer is over.",
    QuestionState.STOPPED: "The group needs no answer any more.",
}
"""Why a member is not to answer any more, by what has become of its question."""
_STATES = {
    "done": QuestionState.DONE,
    "failed": QuestionState.FAILED,
    "stopped": QuestionState.STOPPED,
    "parked": QuestionState.PARKED,
    "timeout": QuestionState.TIMEOUT,
    "unavailable": QuestionState.UNAVAILABLE,
}


@dataclass(frozen=True, slots=True)
class GroupTurn:
    """What the journal has of a group's turn."""

    asked: tuple[AskedQuestion, ...]
    delegations: tuple[Delegation, ...]
    notes: Mapping[str, Any]
    decisions: int
    usage: Usage
    pattern: str = ""
    """The pattern that the turn has begun with; empty: nothing is decided yet."""
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The options of that pattern, as they were then."""
    named: Mapping[str, str] = field(default_factory=dict[str, str])
    """The ids of the members that these options name."""

    def next_deadline(self) -> int | None:
        """Return until when the first of the open questions may take."""
        times = [_deadline(asked) for asked in self.asked if not asked.over]
        return min((at for at in times if at is not None), default=None)

    def of(self, group: GroupRecord, pattern: Pattern) -> GroupRecord:
        """Return a group with the pattern and options of the turn, and its members of now."""
        if not self.pattern:
            return group
        options = self.options
        names = {member.agent_id: member.name for member in group.members}
        if any(names.get(agent_id) != name for name, agent_id in self.named.items()):
            options = with_names_of_now(pattern, options, self.named, group)
        if self.pattern == group.pattern and options == group.options:
            return group
        mine = replace(group, pattern=self.pattern, options=options)
        return mine if group.pattern == self.pattern else replace(mine, memory={})


class _Progress:
    """Reads the entries of a group's turn, each of them once."""

    def __init__(self) -> None:
        self._asked: dict[str, AskedQuestion] = {}
        self._delegations: list[Delegation] = []
        self._notes: dict[str, Any] = {}
        self._decisions = 0
        self._usage = Usage()
        self._begun: dict[str, Any] = {}
        self._read = 0
        self._found = GroupTurn((), (), {}, 0, Usage())
        self.exchange: tuple[str, int] | None = None
        """What its messages belong to, and their depth in it; None: it is not known yet."""

    def read(self, entries: Mapping[str, Any]) -> GroupTurn:
        """Return what the entries of the turn say, by their keys; none is ever taken out."""
        if len(entries) != self._read:
            for key, entry in islice(entries.items(), self._read, None):
                self._add(key, entry)
            self._read = len(entries)
            self._found = GroupTurn(
                tuple(self._asked.values()),
                tuple(self._delegations),
                dict(self._notes),
                self._decisions,
                self._usage,
                **self._begun,
            )
        return self._found

    def _add(self, key: str, entry: Any) -> None:
        if key.startswith(_DECISION):
            self._decisions += 1
            decision: dict[str, Any] = orjson.loads(entry.body)
            self._begun = self._begun or decision.get("begun") or {}
            self._notes |= decision.get("notes") or {}
            for ask in decision["asks"]:
                self._asked[ask["key"]] = _asked(ask, entry.at_ms)
        elif key.startswith(_DELEGATION):
            self._delegations.append(_delegation(orjson.loads(entry.body)))
        elif key.startswith(_ASK):
            said: dict[str, Any] = orjson.loads(entry.body)
            if said["key"] in self._asked:
                asked = self._asked[said["key"]]
                self._asked[said["key"]] = _answered(asked, said, entry.at_ms)
                self._usage += Usage(*said.get("usage", ()))


def read_turn(entries: Mapping[str, Any]) -> GroupTurn:
    """Return what entries, by their keys, say of a group's turn."""
    return _Progress().read(entries)


def _progress_of(turn: Turn) -> _Progress:
    """Return what has been read of a turn under way."""
    progress = turn.progress
    if not isinstance(progress, _Progress):
        progress = turn.progress = _Progress()
    return progress


def _asked(stored: Mapping[str, Any], at: int) -> AskedQuestion:
    ask = MemberQuestion(
        *(stored["key"], stored["agent"], stored["text"]),
        stored.get("schema"),
        stored.get("seconds"),
        stored.get("secret", False),
    )
    return AskedQuestion(
        ask, stored["name"], turn_id=turn_id_for(stored["message"]), asked_at_ms=at
    )


def _answered(asked: AskedQuestion, said: Mapping[str, Any], at: int) -> AskedQuestion:
    return AskedQuestion(
        *(asked.ask, asked.name, _STATES[said["state"]], said["text"]),
        *(asked.turn_id, asked.asked_at_ms, at),
        Trust(said.get("trust", Trust.OWNER)),
        Audience.read(said["audience"]) if said.get("audience") else None,
    )


def _delegation(said: Mapping[str, Any]) -> Delegation:
    return Delegation(said["key"], said["by"], said["task"], said.get("to", ""))


class WakeMember(Protocol):
    """Puts the lane of a member to work that got a question."""

    def __call__(self, item: InboxItem, question: AgentMessage, *, has_passages: bool) -> None:
        """Take the item as committed, know its question and whether its agent has passages."""
        ...


class GroupRunner:
    """Takes turns of groups as far as they go."""

    def __init__(
        self,
        pattern: Callable[[str], Pattern],
        clock: Clock,
        withdraw: Callable[[Connection, str, str], Awaitable[None]],
        settings: Callable[[], Settings],
        wake: WakeMember,
    ) -> None:
        """Make it.

        Args:
            pattern: Returns a pattern by its name.
            clock: Milliseconds since 1970.
            withdraw: Has the turn of a member end, in the transaction that makes it needless.
            settings: Returns the settings in use.
            wake: Puts the lane of a member to work that got a question.
        """
        self._pattern = pattern
        self._clock = clock
        self._withdraw = withdraw
        self._settings = settings
        self._wake = wake
        self._sent: dict[str, list[tuple[InboxItem, AgentMessage, bool]]] = {}
        """What was put into inboxes of members by a write under way, by the group's turn."""
        self._names: OrderedDict[str, tuple[tuple[int, list[str]], dict[str, str]]] = OrderedDict()
        """The members that options of groups name, as of a version and of names."""
        self._shown: OrderedDict[tuple[str, str], None] = OrderedDict()
        """What watchers were shown of members, by turn and question; the latest of it."""

    async def read(
        self, tx: Connection, group_id: str, finishing: str | None = None
    ) -> GroupRecord | None:
        """Return a group as it is now, without the turn that a member is finishing."""
        return await groups.by_id(tx, group_id, finishing)

    def is_stateless(self, group: GroupRecord) -> bool:
        """Tell whether a group stays the same for its pattern until somebody changes it."""
        try:
            return bool(getattr(self._pattern(group.pattern), "is_stateless", False))
        except AsterismError:
            return False

    async def take_turn(
        self, turn: Turn, group: GroupRecord, results: Sequence[InboxItem]
    ) -> Outcome | None:
        """Take in what members have said, decide, and write what follows; None: it waits."""
        try:
            return await self._take_turn(turn, group, results)
        except LaneLost:
            raise
        except Exception as error:
            # Whoever runs the turn ends it with the next write.
            why = error.message if isinstance(error, AsterismError) else "a fault inside asterism."
            self._tell_agent(turn, group, f"I could not answer: {why}")
            raise

    async def _take_turn(
        self, turn: Turn, group: GroupRecord, results: Sequence[InboxItem]
    ) -> Outcome | None:
        now = self._clock()
        turn.in_every_write = lambda tx, state: self._follow(tx, turn, state)
        progress = _progress_of(turn)
        if results:
            asked = {each.key: each for each in progress.read(turn.recorded).asked}
            names = {key: each.name for key, each in asked.items()}
            names |= {member.agent_id: member.name for member in group.members}
            secret = {key for key, each in asked.items() if each.ask.secret}
            for item in results:
                self._take_in(turn, item, names, secret)
            if turn.joined is None:
                turn.write_beside(lambda tx: _take(tx, results))
        found = progress.read(turn.recorded)
        turn.usage = found.usage
        if turn.stop_reason is not None:
            return await turn.stop()
        late = self._time_out(turn, found, now)
        if late:
            found = progress.read(turn.recorded)
        speaker = await _speaker(turn)
        if found.decisions >= MAX_DECISIONS:
            raise TurnLimit(f"the pattern {group.pattern} made {found.decisions} decisions.")
        pattern = self._pattern(found.pattern or group.pattern)
        state = GroupState(
            found.of(group, pattern),
            turn.id,
            turn.message,
            speaker,
            now,
            found.asked,
            found.delegations,
            found.notes,
        )
        decision = pattern.decide(state)
        return await self._carry_out(turn, pattern, state, found, decision, late=bool(late))

    async def _follow(self, tx: Connection, turn: Turn, state: TurnState) -> None:
        """Write what follows from any write of a turn, however it came about.

        What nobody needs any more is withdrawn from members, and the time of the next look is set.
        """
        ended = state not in (TurnState.OPEN, TurnState.PARKED)
        group_id, now = turn.agent.id, self._clock()
        found = _progress_of(turn).read(turn.recorded)
        for asked in found.asked:
            if asked.state in _NOT_NEEDED or (ended and not asked.over):
                reason = _NOT_NEEDED.get(asked.state)
                if reason is None:
                    record = await journal.turn_of(tx, group_id, turn.id)
                    reason = _reason_of(record) if record is not None else _HAS_ENDED
                await self._withdraw(tx, asked.turn_id, reason)
        is_timed = any(asked.ask.seconds is not None for asked in found.asked)
        if state is TurnState.OPEN and found.decisions > 1 and not is_timed:
            return  # its first write has set the time of the next look
        others = await _deadlines(tx, group_id, but=turn.id)
        times = [at for _, at in others]
        if state is TurnState.OPEN:
            # No rule fires while a turn is open, and what this one waits for is known here.
            times.append(found.next_deadline())
            await groups.set_wake(
                tx, group_id, min((at for at in times if at is not None), default=None)
            )
            return
        if state is TurnState.PARKED:
            record = await journal.turn_of(tx, group_id, turn.id)
            if record is not None and record.stopping is not None:
                await look_at_group_turn(tx, record, now)  # it was stopped as it came to park
            times.append(found.next_deadline())
        watches = _watches(self._pattern, await groups.pattern_of(tx, group_id) or "")
        group = await groups.by_id(tx, group_id) if watches else None
        if group is not None:
            times.append(_watch_time(self._pattern, group, now))
        await groups.set_wake(
            tx, group_id, min((at for at in times if at is not None), default=None)
        )

    def _take_in(
        self, turn: Turn, item: InboxItem, names: Mapping[str, str], secret: Collection[str]
    ) -> None:
        """Stage what a member has said or given away; what comes too late is left out."""
        said: dict[str, Any] = orjson.loads(item.body)
        if "look" in said:
            return
        label = Label(Trust(said["trust"]), Audience.read(said["audience"]))
        meta = ResultMeta(trust_levels=(label.trust,), audiences=(str(label.audience),)).to_json()
        if "task" in said:
            number = sum(key.startswith(_DELEGATION) for key in turn.recorded)
            turn.context.learn(label)
            key = f"{_DELEGATION}{number}/effect"
            turn.stage(EntryKind.ONCE, key, item.body, meta=meta, at=item.at_ms)
            to = said.get("to", "")
            told = {"member": names.get(said["by"], ""), "to": names.get(to, to)}
            self._publish(turn, key, "delegation", {**told, "text": said["task"]})
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
        hidden = (
            {"done": SECRET_ANSWER, "failed": NO_SECRET_ANSWER} if said["key"] in secret else {}
        )
        text = hidden.get(said["state"], said["text"])
        told = {"member": names.get(said["key"], ""), "state": said["state"], "text": text}
        self._publish(turn, said["key"], "member", {**told, "turn": said["turn"]})

    def _publish(self, turn: Turn, key: str, kind: str, data: dict[str, Any]) -> None:
        """Show something to watchers once, however often it is taken from the inbox."""
        if turn.joined is not None:
            turn.joined.after.append(lambda: self._publish(turn, key, kind, data))
            return
        shown = (turn.id, key)
        if shown not in self._shown:
            self._shown[shown] = None
            turn.publish(kind, data)
        if len(self._shown) > _MAX_SHOWN:
            self._shown.popitem(last=False)

    def _time_out(self, turn: Turn, found: GroupTurn, now: int) -> list[AskedQuestion]:
        """Stage the end of questions whose time is over; return them."""
        late = [asked for asked in found.asked if not asked.over and _is_late(asked, now)]
        for asked in late:
            said = {
                "key": asked.key,
                "state": "timeout",
                "text": f"no answer within {asked.ask.seconds:g} s",
                "turn": asked.turn_id,
            }
            turn.stage(EntryKind.ONCE, f"{_ASK}{asked.key}/outcome", orjson.dumps(said), at=now)
        return late

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
            self._tell_agent(turn, state.group, decision.failure)
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
                questions = [
                    asked.answer
                    if asked.answer.startswith(asked.name)
                    else f"{asked.name}: {asked.answer}"
                    for asked in parked
                ]
                return await turn.park(questions, asked_elsewhere=True)
            answers_only = all(draft.key.endswith("/outcome") for draft in turn.staged)
            if answers_only and not changes and not late:
                # What members have said stays in the inbox until something follows from it.
                return None
        if turn.joined is not None:
            turn.joined.after.append(lambda: self._wake_members(turn.id))
            await turn.flush()
            return None
        try:
            await turn.flush()
        finally:
            # Also where the turn is stopped meanwhile: the write goes on without it.
            self._wake_members(turn.id)
        return None

    def _named(self, pattern: Pattern, group: GroupRecord) -> dict[str, str]:
        """Return the ids of the members that the options of a group name."""
        as_of = (group.version, [member.name for member in group.members])
        made = self._names.get(group.id)
        if made is None or made[0] != as_of:
            made = self._names[group.id] = as_of, named_members(pattern, group)
            if len(self._names) > _MAX_NAMES:
                self._names.popitem(last=False)
        return made[1]

    def _wake_members(self, turn_id: str) -> None:
        """Put the lanes of the members to work that got questions with the latest write."""
        for item, question, has_passages in self._sent.pop(turn_id, ()):
            self._wake(item, question, has_passages=has_passages)

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
        stored = _stored(decision, sent, names)
        if not found.pattern:
            # The turn goes on with these, whatever the group is changed to meanwhile.
            stored["begun"] = {
                "pattern": group.pattern,
                "options": group.options,
                "named": self._named(pattern, group),
            }
        turn.stage(EntryKind.ONCE, f"{_DECISION}{found.decisions}", orjson.dumps(stored), at=now)
        for key in decision.cancel:
            if f"{_ASK}{key}/outcome" not in turn.recorded:
                said = {"key": key, "state": "stopped", "text": "not needed any more", "turn": ""}
                turn.stage(EntryKind.ONCE, f"{_ASK}{key}/outcome", orjson.dumps(said), at=now)
        if turn.is_watched:
            self._publish_decision(turn, decision, sent, names)
        images = images_in(turn.recorded["in"].body)

        async def write(tx: Connection) -> None:
            progress = _progress_of(turn)
            if progress.exchange is None:
                progress.exchange = await _thread_of(tx, turn)
            thread, depth = progress.exchange
            items: list[tuple[InboxItem, AgentMessage, bool]] = []
            for ask, message_id in sent:
                message = AgentMessage(
                    message_id, group.id, ask.agent_id, thread, depth, turn.id, ask.key, now
                )
                shows = images if not found.asked or _carries(ask, state) else ()
                item = await _send(tx, turn, group, ask, message, shows)
                if item is not None:
                    items.append((item, message, await passages.has_any(tx, ask.agent_id)))
            self._sent[turn.id] = items
            if decision.memory is not None:
                await groups.keep(tx, group.id, group.pattern, decision.memory)

        turn.write_beside(write)

    def _publish_decision(
        self,
        turn: Turn,
        decision: GroupDecision,
        sent: Sequence[tuple[MemberQuestion, str]],
        names: Mapping[str, str],
    ) -> None:
        """Show a decision to watchers, with the turns that it opens."""
        asks = [
            {
                "member": names.get(ask.agent_id, ""),
                "agent": ask.agent_id,
                "turn": turn_id_for(message_id),
                "formatted": ask.schema is not None,
            }
            for ask, message_id in sent
        ]
        members = [ask["member"] for ask in asks]
        turn.publish("decision", {"reason": decision.reason, "members": members, "asks": asks})

    async def _answer(self, turn: Turn, state: GroupState, decision: GroupDecision) -> Outcome:
        """End the turn with the group's answer, which goes out once."""
        answer = plain(decision.answer or "")
        watching = turn.channel == WATCH_CHANNEL
        reply = Reply(answer or "(Nothing to say.)", model=BY_PATTERN)
        meta = reply.meta(trust=turn.context.label.trust)
        turn.stage(EntryKind.REPLY, "0/reply", reply.wire(), meta=meta)
        if answer:
            self._tell_observers(turn, state, answer)
        if answer:
            self._tell_agent(turn, state.group, answer)
        if watching and answer:
            turn.notify_owner("group.message", f"{state.group.name}: {answer}")
        return await turn.finish(reply)

    def _tell_agent(self, turn: Turn, group: GroupRecord, text: str) -> None:
        """Have the next write tell the agent that has written to the group how the turn ends."""
        if turn.channel.startswith(AGENT_CHANNEL):
            said = plain(text)
            turn.write_beside(lambda tx: self._reply_to_agent(tx, turn, group, said))

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


def _stored(
    decision: GroupDecision, sent: Sequence[tuple[MemberQuestion, str]], names: Mapping[str, str]
) -> dict[str, Any]:
    """Return a decision as the journal has it, with the messages that it sends."""
    return {
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
                **({"secret": True} if ask.secret else {}),
            }
            for ask, message_id in sent
        ],
        "answer": decision.answer,
        "failure": decision.failure,
        "notes": decision.notes,
        "memory": decision.memory,
    }


def _deadline(asked: AskedQuestion) -> int | None:
    """Return until when a question may take; None if there is no limit."""
    if asked.ask.seconds is None:
        return None
    return asked.asked_at_ms + int(asked.ask.seconds * 1_000)


def _is_late(asked: AskedQuestion, now: int) -> bool:
    at = _deadline(asked)
    return at is not None and at <= now


_HAS_ENDED = "The turn of the group has ended."


def _reason_of(record: TurnRecord) -> str:
    """Return why members need not answer any more for a turn that has ended."""
    if record.state is TurnState.STOPPED and record.error:
        return record.error
    return _HAS_ENDED


async def _deadlines(
    tx: Connection, group_id: str, but: str | None = None
) -> list[tuple[TurnRecord, int | None]]:
    """Return the turns of a group that are not over, and when the first question of each is due."""
    found: list[tuple[TurnRecord, int | None]] = []
    for record in await journal.unfinished_turns(tx, group_id):
        if record.id == but:
            continue
        entries = {entry.key: entry for entry in await journal.entries_of(tx, record)}
        found.append((record, read_turn(entries).next_deadline()))
    return found


async def next_look(
    tx: Connection, group: GroupRecord, pattern_named: Callable[[str], Pattern], now: int
) -> int | None:
    """Return when to look at a group again if nothing comes in."""
    found = await _deadlines(tx, group.id)
    times = [at for _, at in found if at is not None]
    if not any(record.state is TurnState.OPEN for record, _ in found):
        # While a turn is open no rule fires, and its end sets the time anew.
        watched = _watch_time(pattern_named, group, now)
        times += [watched] if watched is not None else []
    return min(times, default=None)


def _watches(pattern_named: Callable[[str], Pattern], name: str) -> bool:
    """Tell whether a pattern has rules that are looked at; yes also if it cannot be loaded."""
    try:
        return _has_rules(type(pattern_named(name)))
    except Exception:  # noqa: BLE001 - a fault of a plugin, which whoever looks at its rules tells
        return True


@lru_cache(maxsize=256)
def _has_rules(kind: type[Pattern]) -> bool:
    # To ask whether a value fulfils a protocol takes as long as reading a group.
    return hasattr(kind, "next_look")


def _watch_time(
    pattern_named: Callable[[str], Pattern], group: GroupRecord, now: int
) -> int | None:
    """Return when the rules of a group are looked at next; None if it has none."""
    try:
        pattern = pattern_named(group.pattern)
        return pattern.next_look(group, now) if isinstance(pattern, WatchingPattern) else None
    except Exception:  # noqa: BLE001 - a fault of a plugin, and what happens here goes on
        _log.exception("the group %s: its pattern does not say when to look", group.name)
        return now + _AFTER_FAULT


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
    person = await turn.live.database.read(lambda tx: get_person(tx, first), brief=True)
    if person is None:
        return "somebody unknown"
    # The name ends where asterism's bracket does: whoever speaks has chosen it.
    return person.name.replace("[", "(").replace("]", ")")


async def _thread_of(tx: Connection, turn: Turn) -> tuple[str, int]:
    """Return the exchange that messages of a turn belong to, and their depth in it."""
    opening = await groups.find_agent_message(tx, message_id_for(turn.id))
    return (turn.id, 1) if opening is None else (opening.thread, opening.depth + 1)


def _carries(ask: MemberQuestion, state: GroupState) -> bool:
    """Tell whether a question shows a member the message that opened the turn."""
    return bool(state.message.strip()) and state.message in ask.text


async def _send(
    tx: Connection,
    turn: Turn,
    group: GroupRecord,
    ask: MemberQuestion,
    message: AgentMessage,
    images: Sequence[str],
) -> InboxItem | None:
    """Put a question into the inbox of a member; that it is gone is told to the group.

    It is sent once, since the journal takes the decision of this transaction once.
    """
    channel, source = f"{GROUP_CHANNEL}{group.name}", turn.source
    gone = "it was deleted"
    try:
        item = await messages.put_message(
            tx,
            ask.agent_id,
            message.message_id,
            message_wire("user", plain(ask.text), images),
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
    await _put_unavailable(tx, message, gone, message.at_ms, Label(source.trust, source.audience))
    return None


async def withdraw_questions(tx: Connection, agent_id: str, reason: str, at: int) -> list[str]:
    """Tell the groups that wait for an agent that it is gone; return its turns for them."""
    questions = await groups.open_questions(tx, agent_id)
    for question in questions:
        await _put_unavailable(tx, question, reason, at, Label())
    return [turn_id_for(question.message_id) for question in questions]


async def _put_unavailable(
    tx: Connection, question: AgentMessage, reason: str, at: int, label: Label
) -> None:
    """Put into the inbox of a group that a member cannot answer its question, and why."""
    said = {
        "key": question.key,
        "state": QuestionState.UNAVAILABLE.value,
        "text": reason,
        "turn": turn_id_for(question.message_id),
        "trust": label.trust.value,
        "audience": str(label.audience),
    }
    body = orjson.dumps(said)
    await messages.put_result(tx, question.sender_id, new_id("res"), question.turn_id, body, at)


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
            try:
                await database.write(
                    lambda tx, group_id=group_id, since=since: self._look_at(
                        tx, group_id, since, now
                    )
                )
            except StoreError:
                raise
            except Exception as fault:  # noqa: BLE001 - the others are looked at all the same
                _log.exception("the rules of the group %s failed", group_id)
                said = f"{type(fault).__name__}: {fault}"
                await database.write(
                    lambda tx, group_id=group_id, since=since, said=said: self._look_at(
                        tx, group_id, since, now, fault=said
                    )
                )
            self._wake(group_id)
        return await self._database.read(groups.next_wake)

    async def _look_at(
        self, tx: Connection, group_id: str, since: int, now: int, fault: str = ""
    ) -> None:
        """Look at one group, in one transaction: what fires and what it begins go together.

        With the fault of its rules, they are left alone for a while, and the owner is told.
        """
        group = await groups.by_id(tx, group_id)
        if group is None or not await groups.move_wake(tx, group_id, since, now + _LOOK_AGAIN):
            return
        found = await _deadlines(tx, group_id)
        times: list[int] = []
        for record, due in found:
            if due is not None and due <= now:
                await look_at_group_turn(tx, record, now)
                due = now + _LOOK_AGAIN  # noqa: PLW2901 - its lane may not have looked by then
            times += [due] if due is not None else []
        if fault:
            await _tell_fault(tx, group, fault, now)
            times.append(now + _AFTER_FAULT)
        elif not any(record.state is TurnState.OPEN for record, _ in found):
            times += await self._watch(tx, group, since, now)
        await groups.set_wake(tx, group_id, min(times, default=None))

    async def _watch(self, tx: Connection, group: GroupRecord, since: int, now: int) -> list[int]:
        """Look at the rules of a group, if it has any; return when to look again."""
        pattern = self._pattern(group.pattern)
        if not isinstance(pattern, WatchingPattern):
            return []
        times = [pattern.next_look(group, now)]
        # What is to be done already is done first: else a message would come for each look.
        waits = await messages.waits_from(tx, group.id, WATCH_CHANNEL)
        if waits or await agents.current_halt(tx) is not None:
            return times
        activity, seen = await _activity(tx, group, now)
        message = pattern.watch(group, activity)
        kept = {**group.memory, **seen} | ({"fired_at": now, "said": 0} if message else {})
        await groups.keep(tx, group.id, group.pattern, kept)
        if message is not None:
            message_id = new_id("msg")
            external_id = f"{group.id}@{since}"
            await messages.accept_once(tx, WATCH_CHANNEL, external_id, message_id, group.id)
            wire, origin = message_wire("user", message), MessageOrigin(WATCH_CHANNEL)
            await messages.put_message(tx, group.id, message_id, wire, origin, now)
        return times


async def _tell_fault(tx: Connection, group: GroupRecord, fault: str, now: int) -> None:
    """Tell the owner that the rules of a group do not work, once until the group is changed."""
    notice_id = f"note_{group.id}_{group.version}"
    if await agents.has_notice(tx, notice_id):
        return
    text = (
        f"The rules of the group {group.name} could not be looked at ({fault}). They are tried "
        f"again every {_AFTER_FAULT // 60_000} minutes. Correct the options of its pattern "
        f'({group.pattern}), or install what they need: "asterism group show {group.name}" '
        "shows them."
    )
    await agents.put_notice(
        tx, Notice(notice_id, group.id, None, "group.failed", plain(redact(text)), now)
    )


async def _activity(
    tx: Connection, group: GroupRecord, now: int
) -> tuple[GroupActivity, dict[str, Any]]:
    """Return what happened among the members of a group, and what it keeps of that."""
    kept = group.memory
    fired_at = int(kept.get("fired_at", group.created_at_ms))
    looked_at = int(kept.get("looked_at", group.created_at_ms))
    members = [member.agent_id for member in group.members if member.active]
    came, seen = await groups.said_to(tx, members, kept.get("seen", {}), looked_at)
    said = _by_people(came)
    waiting = _by_people(await groups.waiting_messages(tx, members)) if members else []
    count = int(kept.get("said", 0)) + len(said)
    times = [at for at, _ in (*said, *waiting)]
    last = max((*times, *(kept[key] for key in ("said_at",) if key in kept)), default=None)
    metrics = await groups.activity(tx, members, fired_at)
    texts = tuple(text for _, text in said)
    activity = GroupActivity(
        now, fired_at, count, last, texts, {"messages": float(count), **metrics}
    )
    keeps = {"looked_at": now, "seen": seen, "said": count}
    return activity, keeps if last is None else {**keeps, "said_at": last}


def _by_people(came: Sequence[tuple[int, bytes]]) -> list[tuple[int, str]]:
    """Return the texts of messages that somebody has said; plans and heartbeats are nobody's."""
    texts = [(at, text_of(body)) for at, body in came]
    return [(at, text) for at, text in texts if not text.startswith((SCHEDULED, HEARTBEAT))]
