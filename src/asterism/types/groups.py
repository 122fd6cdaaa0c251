"""Groups: agents that answer together, what a pattern sees of a turn, and what it decides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from enum import StrEnum
from typing import Any

from asterism.records import dataclass
from asterism.times import Moment, OptionalMoment
from asterism.types.agents import Audience, Trust

GROUP_ID = "group_"
"""What the id of a group begins with."""
GROUP_CHANNEL = "group:"
"""What the channel of a message from a group to a member begins with; the group's name follows."""
AGENT_CHANNEL = "agent:"
"""What the channel of a message from an agent begins with; the agent's name follows."""
LEADER_KEY = "lead/"
"""What the key of a question begins with whose answer may give tasks away; a number follows."""
SECRET_ANSWER = "(a secret ballot)"
"""What signals and transcripts show in place of the answer to a question that is secret."""
NO_SECRET_ANSWER = "(no ballot; its own turn says why)"
"""The same for a member that failed: why may quote what it wanted to say."""
LEADING = "You lead this group."
"""How that begins which a leader reads below the message."""
RESERVED_FOR_ROLES: Mapping[str, str] = {
    "system_integrity": "halt",
    "memory_management": "search_constellation",
}
"""The tool that a specialist gets, by domain."""


def delayed_message_id(schedule_id: str) -> str:
    """Return the id under which the message of a schedule is known before it is sent.

    That of an agent to another one is sent with it; any other with an id of its own each time.
    """
    return "msg_" + schedule_id.partition("_")[2]


class Role(StrEnum):
    """What a member is in a group."""

    SUPERVISOR = "supervisor"
    """Leads, and gets what is addressed to nobody."""
    SPECIALIST = "specialist"
    """Knows a domain."""
    REGULAR = "regular"
    OBSERVER = "observer"
    """Is told what was said, and never asked."""


@dataclass(frozen=True, slots=True)
class GroupMember:
    """An agent in a group."""

    agent_id: str
    name: str
    role: Role = Role.REGULAR
    domain: str = ""
    """What a specialist knows about, such as `memory_management`."""
    capabilities: tuple[str, ...] = ()
    """What it is good at, in words; the selector `capability` compares them with messages."""
    weight: float = 1.0
    """What its vote counts, where votes are weighted."""
    active: bool = True
    """Whether it is asked at all."""
    position: int = 0
    """The order in which members joined."""
    waiting: int = 0
    """How much it has to do when the pattern decides."""
    since_ms: int = 0

    since = Moment()

    @property
    def takes_part(self) -> bool:
        """Whether it can be asked: it is active, and not an observer."""
        return self.active and self.role is not Role.OBSERVER


def find_member(members: Sequence[GroupMember], name: str) -> GroupMember | None:
    """Return a member by name or id, whatever its role."""
    for member in members:
        if name in (member.agent_id, member.name):
            return member
    wanted = name.strip().casefold()
    for member in members:
        if member.name.casefold() == wanted:
            return member
    return None


@dataclass(frozen=True, slots=True)
class GroupRecord:
    """A group as it is stored."""

    id: str
    name: str
    pattern: str
    """The name of its pattern, such as `round_robin`."""
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    description: str = ""
    memory: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """What the pattern keeps from turn to turn."""
    version: int = 1
    created_at_ms: int = 0
    members: tuple[GroupMember, ...] = ()

    created_at = Moment()


class QuestionState(StrEnum):
    """What became of a question to a member."""

    PENDING = "pending"
    PARKED = "parked"
    """The member waits for a person."""
    DONE = "done"
    FAILED = "failed"
    STOPPED = "stopped"
    TIMEOUT = "timeout"
    """The member took longer than the pattern allows."""
    UNAVAILABLE = "unavailable"
    """The member was archived or deleted before it answered."""


@dataclass(frozen=True, slots=True)
class MemberQuestion:
    """A question to a member, which takes a turn to answer it."""

    key: str
    """The same for every try of the same step, and for no other step of the group's turn."""
    agent_id: str
    text: str
    schema: Mapping[str, Any] | None = None
    """The JSON schema of the answer."""
    seconds: float | None = None
    """How long the answer may take; None: as long as a turn of the member may take."""
    secret: bool = False
    """Whether signals and transcripts of the group do not show the answer, such as a ballot."""


@dataclass(frozen=True, slots=True)
class AskedQuestion:
    """A question that was put to a member, and what became of it."""

    ask: MemberQuestion
    name: str
    """The member."""
    state: QuestionState = QuestionState.PENDING
    answer: str = ""
    """What the member said; of a failure, the reason."""
    turn_id: str = ""
    """The turn of the member."""
    asked_at_ms: int = 0
    ended_at_ms: int = 0
    trust: Trust = Trust.OWNER
    """How far the answer is trusted."""
    audience: Audience | None = None

    asked_at = Moment()
    ended_at = Moment()

    @property
    def key(self) -> str:
        """The key of the question."""
        return self.ask.key

    @property
    def over(self) -> bool:
        """Whether nothing more comes of it."""
        return self.state not in (QuestionState.PENDING, QuestionState.PARKED)


@dataclass(frozen=True, slots=True)
class Delegation:
    """A task that a member gives to another one with the tool `delegate`."""

    key: str
    by: str
    """The key of the question whose answer it was made in."""
    task: str
    to: str = ""
    """The member's id; empty: the pattern chooses."""


@dataclass(frozen=True, slots=True)
class GroupState:
    """All that a pattern may look at when it decides; the same state gives the same decision."""

    group: GroupRecord
    """With its members as they are now."""
    turn_id: str
    message: str
    """What opened the turn."""
    speaker: str
    """Who said it, in words."""
    now_ms: int
    asked: tuple[AskedQuestion, ...] = ()
    """The questions of this turn so far, in order."""
    delegations: tuple[Delegation, ...] = ()
    """The tasks that members gave away in this turn, in order."""
    notes: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """What earlier decisions of this turn have noted."""

    def option(self, name: str, default: Any) -> Any:
        """Return an option of the group's pattern."""
        value = self.group.options.get(name)
        return default if value is None else value

    now = Moment()

    @property
    def members(self) -> tuple[GroupMember, ...]:
        """The members that can be asked, in the order in which they joined."""
        return tuple(member for member in self.group.members if member.takes_part)

    def member(self, name: str) -> GroupMember | None:
        """Return a member by name or id, whatever its role."""
        return find_member(self.group.members, name)

    @property
    def supervisor(self) -> GroupMember | None:
        """The first active member with the role supervisor."""
        for member in self.members:
            if member.role is Role.SUPERVISOR:
                return member
        return None

    def find(self, key: str) -> AskedQuestion | None:
        """Return a question of this turn."""
        for asked in self.asked:
            if asked.key == key:
                return asked
        return None

    @property
    def pending(self) -> tuple[AskedQuestion, ...]:
        """The questions whose answers are still to come."""
        return tuple(asked for asked in self.asked if not asked.over)


@dataclass(frozen=True, slots=True)
class GroupDecision:
    """What a pattern decides: whom to ask, or how the turn ends. Without either, it waits."""

    reason: str
    """Why, in one sentence, for whoever reads the transcript."""
    asks: tuple[MemberQuestion, ...] = ()
    answer: str | None = None
    """The group's answer: the turn ends with it. An empty one is kept and sent to nobody."""
    failure: str | None = None
    """Why there is no answer: the turn ends with it."""
    memory: Mapping[str, Any] | None = None
    """What the pattern keeps from now on, from turn to turn; None: what it kept before."""
    notes: Mapping[str, Any] | None = None
    """What is noted for the rest of the turn, and in the transcript, such as the minutes of a
    vote."""
    cancel: tuple[str, ...] = ()
    """The keys of questions that need no answer any more: their turns are stopped."""

    @property
    def ends(self) -> bool:
        """Whether the turn ends with it."""
        return self.answer is not None or self.failure is not None


@dataclass(frozen=True, slots=True)
class GroupActivity:
    """What happened among the members of a group since its rules were last looked at."""

    now_ms: int
    since_ms: int
    """When a rule last fired, or the group was made."""
    messages: int
    """Messages that people sent to members since then, also by way of other groups."""
    last_message_ms: int | None
    """When the latest of them came, before that time as well; None: none since the group was
    made."""
    texts: tuple[str, ...] = ()
    """What people said to members since the latest look, the newest last."""
    metrics: Mapping[str, float] = field(default_factory=dict[str, float])
    """Such as `open_turns`, `waiting`, `failed_turns`, `tokens`, since the latest firing."""

    now = Moment()
    since = Moment()
    last_message = OptionalMoment()


@dataclass(frozen=True, slots=True)
class GroupEvent:
    """One line of a group's transcript."""

    turn_id: str
    at_ms: int
    kind: str
    """`message`, `decision`, `question`, `answer`, `delegation`, `reply` or `end`."""
    speaker: str
    """Who says it: the person, a member, or the group."""
    text: str
    details: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """What else is known, such as the reason of a decision, or the minutes of a vote."""

    at = Moment()
