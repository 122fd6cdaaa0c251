"""Agents: lasting identities."""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from datetime import datetime
from enum import StrEnum
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any

import orjson

from asterism.errors import InvalidInput
from asterism.records import dataclass
from asterism.times import Moment, OptionalMoment, exact_duration, to_datetime, to_ms


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one turn; a turn that reaches one ends with an explanation."""

    steps: int = 24
    seconds: float = 600.0
    tokens: int = 1_000_000
    calls: int = 64


EVERY_TOOL = "*"
"""Stands in a list of tools for all that are not reserved; reserved ones follow by name."""
DEFAULT_MODEL = "default"
"""The model of an agent without its own: the one in the configuration at each turn."""


def chain_of(model: str) -> tuple[str, ...]:
    """Return the models to try one after the other: `a:b, c:d` names two."""
    return tuple(name.strip() for name in model.split(","))


@dataclass(frozen=True, slots=True)
class AgentRecord:
    """A lasting identity: its name, its model and its tools."""

    id: str
    name: str
    model: str
    """`vendor:name`, several of them separated by commas (the next is used when one fails), or
    `default`."""
    system: str
    created_at_ms: int
    tools: tuple[str, ...] | None = None
    """Names of the tools it may call; None means every tool."""
    limits: Limits = field(default_factory=Limits)
    version: int = 1
    rules: tuple[Rule, ...] = ()
    """The owner's rules for its calls."""
    archived_at_ms: int | None = None
    """Since when it is archived and takes no turns; None: it is not."""

    created_at = Moment()
    archived_at = OptionalMoment()


def now_ms() -> int:
    """Return the time as milliseconds since 1970, UTC; the unit of every time in the store."""
    try:
        return time.time_ns() // 1_000_000
    except OverflowError:
        # The clock of the machine was set beyond the year 2262, where that of Python ends.
        return (_STARTED_NS + time.monotonic_ns()) // 1_000_000


_STARTED_NS = time.time_ns() - time.monotonic_ns()


def optional_ms(moment: datetime | None) -> int | None:
    """Return a `datetime` in milliseconds; None stays None."""
    return to_ms(moment) if moment is not None else None


def new_id(prefix: str) -> str:
    """Return a new id: 48 bits of time, then 48 random bits.

    Ids that a process makes within one millisecond are in the order in which they were made.
    """
    with _LATEST.lock:
        at, tail = now_ms(), int.from_bytes(os.urandom(6)) >> 1
        if at <= _LATEST.at:
            at, tail = _LATEST.at, _LATEST.tail + 1 + (tail >> 23)
        _LATEST.at, _LATEST.tail = at, tail
    return f"{prefix}_{at:012x}{tail:012x}"


def is_id(text: str, *prefixes: str) -> bool:
    """Return whether a text has the form of an id with one of these prefixes."""
    prefix, _, number = text.partition("_")
    return prefix in prefixes and len(number) == 24 and not number.strip("0123456789abcdef")


class _LatestId:
    """The latest id that this process has made."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.at = 0
        self.tail = 0


_LATEST = _LatestId()


def turn_id_for(message_id: str) -> str:
    """Return the id of the turn that answers a message: known before the turn begins."""
    return "turn_" + message_id.partition("_")[2]


def message_id_for(turn_id: str) -> str:
    """Return the id of the message that a turn answers."""
    return "msg_" + turn_id.partition("_")[2]


@dataclass(frozen=True, slots=True)
class HttpCall:
    """An HTTP request that runs a call."""

    url: str
    """`{name}` in it is replaced by an argument."""
    method: str = "POST"
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    """`secret:NAME` is replaced by a stored key."""


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool as it is registered: Python source with `def run(…)`, or a request."""

    name: str
    description: str
    schema: Mapping[str, Any]
    python: str | None = None
    http: HttpCall | None = None
    effects: tuple[Mapping[str, Any], ...] | None = None
    """The effects of its calls, in the JSON form of `ToolEffect`; None: not declared."""
    trust: str = "tool"
    retry_safety: str = "unknown"
    ask: bool = False
    timeout: float = 30.0
    audience: str = "owner"
    """Who may see its results."""


@dataclass(frozen=True, slots=True)
class RegisteredTool:
    """A version of a registered tool."""

    spec: ToolSpec
    version: int
    made_by: str
    created_at_ms: int
    removed_at_ms: int | None = None

    created_at = Moment()
    removed_at = OptionalMoment()


@dataclass(frozen=True, slots=True)
class Halt:
    """A stop of a whole constellation."""

    id: str
    agent_id: str | None
    """The agent that requested it; None: the owner did."""
    turn_id: str | None
    severity: str
    reason: str
    at_ms: int

    at = Moment()


@dataclass(frozen=True, slots=True)
class Schedule:
    """A message to an agent that is due at a time."""

    id: str
    agent_id: str
    text: str
    due_at_ms: int
    cron: str | None
    """Five cron fields, in `zone`; None if it happens once."""
    channel: str | None
    reply_to: str | None
    """Where the answer goes: the origin of the schedule."""
    created_at_ms: int
    participants: str | None = None
    """Who was present when it was made, as JSON: they see its answers. None: the owner."""
    zone: str = "UTC"
    """The name of the time zone in which it was made."""
    quiet: str | None = None
    """The hours in which it does not fire, such as `22:00-08:00` in `zone`; None: it fires at any
    time."""

    due_at = Moment()
    created_at = Moment()


MAX_IMAGE = 10 * 1024 * 1024
_KINDS = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)
_JSON = "application/json"


@dataclass(frozen=True, slots=True)
class Blob:
    """Bytes with their type."""

    id: str
    """The SHA-256 in hexadecimal."""
    type: str
    body: bytes


def image(body: bytes) -> Blob:
    """Return an image as a blob, or raise `InvalidInput` if models cannot read it."""
    if len(body) > MAX_IMAGE:
        raise InvalidInput(
            f"The image has {len(body) / 1e6:.1f} MB; the limit is {MAX_IMAGE >> 20} MiB. "
            "Make it smaller. Nothing was stored."
        )
    kind = next((kind for magic, kind in _KINDS if body.startswith(magic)), "")
    if body[:4] == b"RIFF" and body[8:12] == b"WEBP":
        kind = "image/webp"
    if not kind:
        raise InvalidInput(
            f"The {len(body):,} bytes are not an image that models can read. Convert it to "
            "PNG, JPEG, GIF or WebP. Nothing was stored."
        )
    return Blob(hashlib.sha256(body).hexdigest(), kind, body)


@lru_cache(maxsize=64)
def json_blob(body: bytes) -> Blob:
    """Return JSON, such as the descriptions of tools, as a blob."""
    return Blob(hashlib.sha256(body).hexdigest(), _JSON, body)


class RuleKind(StrEnum):
    """The kinds of rules."""

    START = "start"
    """It runs before any other tool; with several such rules, one of the tools does."""
    PRECEDING = "preceding"
    """It runs only after each of the others has succeeded in the turn."""
    RIGHT_AFTER = "right_after"
    """It runs only if the latest call that succeeded was one of the others."""
    NOT_AFTER = "not_after"
    """It does not run once one of the others has succeeded in the turn."""
    NEXT = "next"
    """When it has succeeded, the next call is one of the others."""
    FOLLOWED_BY = "followed_by"
    """When it has succeeded, one of the others succeeds before the turn ends."""
    EXCLUSIVE = "exclusive"
    """Of it and the others, one is used in a turn."""
    BEFORE_EXIT = "before_exit"
    """It succeeds before the turn ends; with other tools, only if one of them has run."""
    MAX_CALLS = "max_calls"
    """It runs at most `count` times in a turn."""
    COOLDOWN = "cooldown"
    """`seconds` pass between a success and the next call, also from turn to turn."""
    PERIODIC = "periodic"
    """It succeeds at least every `seconds`: when it is due, a turn does not end before."""
    CONSENT = "consent"
    """A person is asked before each call; with operations, only before these operations."""
    OPERATIONS = "operations"
    """Only these operations of it can be used."""
    EXIT_LOOP = "exit_loop"
    """The turn ends when it has succeeded."""
    CONTINUE_LOOP = "continue_loop"
    """The turn goes on after it, although another rule would end it there."""


OF_OTHERS = frozenset(
    {
        RuleKind.PRECEDING,
        RuleKind.RIGHT_AFTER,
        RuleKind.NOT_AFTER,
        RuleKind.NEXT,
        RuleKind.FOLLOWED_BY,
        RuleKind.EXCLUSIVE,
    }
)
"""Kinds that also name other tools."""
OF_TIME = frozenset({RuleKind.COOLDOWN, RuleKind.PERIODIC})
"""Kinds that look beyond the turn."""
DEFAULT_PRIORITY = 5


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule for a tool, or for all tools that match a pattern such as `web_*`."""

    tool: str
    kind: RuleKind
    tools: tuple[str, ...] = ()
    """The other tools, for kinds that need them; a pattern means any tool that matches."""
    operations: tuple[str, ...] = ()
    count: int = 0
    seconds: float = 0.0
    priority: int = DEFAULT_PRIORITY
    """If several rules refuse a call, the error shows the one with the highest priority."""

    @property
    def key(self) -> str:
        """The rule in one line, the same for the same rule."""
        parts = [self.tool, self.kind.value, *self.tools, *self.operations]
        if self.count:
            parts.append(str(self.count))
        if self.seconds:
            parts.append(f"{self.seconds:g}")
        return " ".join(parts)

    def is_for(self, name: str) -> bool:
        """Tell whether this rule is for the tool with this name."""
        return fits(name, self.tool)

    def names(self, name: str) -> bool:
        """Tell whether the tool with this name is one of the other tools."""
        return any(fits(name, tool) for tool in self.tools)

    def form(self) -> dict[str, Any]:
        """Return the rule as a JSON or TOML table, without empty fields."""
        form: dict[str, Any] = {"tool": self.tool, "kind": self.kind.value}
        for name in ("tools", "operations"):
            if values := getattr(self, name):
                form[name] = list(values)
        for name in ("count", "seconds"):
            if value := getattr(self, name):
                form[name] = value
        if self.priority != DEFAULT_PRIORITY:
            form["priority"] = self.priority
        return form

    def __str__(self) -> str:
        return _SENTENCES[self.kind](self)


@lru_cache(maxsize=65_536)
def fits(name: str, pattern: str) -> bool:
    """Tell whether a tool's name is equal to a name or matches a pattern (`*`, `?`)."""
    return name == pattern or (is_pattern(pattern) and fnmatchcase(name, pattern))


def is_pattern(name: str) -> bool:
    """Tell whether a name is a pattern."""
    return any(char in name for char in "*?[")


# -- words -----------------------------------------------------------------------------------------


def one_of(names: Sequence[str]) -> str:
    """Return names as a choice: `a, b or c`."""
    return _joined([tool_phrase(name) for name in names], "or")


def all_of(names: Sequence[str]) -> str:
    """Return names as a list: `a, b and c`."""
    return _joined([tool_phrase(name) for name in names], "and")


def tool_phrase(name: str) -> str:
    """Return the words for a tool or a pattern in a sentence."""
    if name == "*":
        return "any tool"
    return f"any {name}" if is_pattern(name) else name


def _joined(names: Sequence[str], word: str) -> str:
    if len(names) < 2:
        return "".join(names)
    return f"{', '.join(names[:-1])} {word} {names[-1]}"


def _before_exit(rule: Rule) -> str:
    if rule.tools:
        return (
            f"If you called {one_of(rule.tools)}, call {tool_phrase(rule.tool)} before you answer."
        )
    return f"Call {tool_phrase(rule.tool)} before you answer."


def _max_calls(rule: Rule) -> str:
    times = {1: "once", 2: "twice"}.get(rule.count, f"{rule.count} times")
    return f"Call {tool_phrase(rule.tool)} at most {times} in a turn."


def _consent(rule: Rule) -> str:
    if rule.operations:
        which = f"{tool_phrase(rule.tool)} with the operation {_joined(rule.operations, 'or')}"
    else:
        which = tool_phrase(rule.tool)
    return f"A person is asked before each call of {which}."


_SENTENCES: dict[RuleKind, Callable[[Rule], str]] = {
    RuleKind.START: lambda rule: f"Call {tool_phrase(rule.tool)} before any other tool.",
    RuleKind.PRECEDING: lambda rule: (
        f"Call {tool_phrase(rule.tool)} only after {all_of(rule.tools)} succeeded in the same turn."
    ),
    RuleKind.RIGHT_AFTER: lambda rule: (
        f"Call {tool_phrase(rule.tool)} only right after {one_of(rule.tools)}."
    ),
    RuleKind.NOT_AFTER: lambda rule: (
        f"Do not call {tool_phrase(rule.tool)} after {one_of(rule.tools)} in the same turn."
    ),
    RuleKind.NEXT: lambda rule: (
        f"Right after {tool_phrase(rule.tool)}, call only {one_of(rule.tools)}."
    ),
    RuleKind.FOLLOWED_BY: lambda rule: (
        f"After {tool_phrase(rule.tool)}, call {one_of(rule.tools)} before you answer."
    ),
    RuleKind.EXCLUSIVE: lambda rule: (
        f"Of {all_of((rule.tool, *rule.tools))}, use only one in a turn."
    ),
    RuleKind.BEFORE_EXIT: _before_exit,
    RuleKind.MAX_CALLS: _max_calls,
    RuleKind.COOLDOWN: lambda rule: (
        f"After a call of {tool_phrase(rule.tool)}, wait {exact_duration(rule.seconds)} before "
        "the next."
    ),
    RuleKind.PERIODIC: lambda rule: (
        f"Call {tool_phrase(rule.tool)} at least every {exact_duration(rule.seconds)}."
    ),
    RuleKind.CONSENT: _consent,
    RuleKind.OPERATIONS: lambda rule: (
        f"Of {tool_phrase(rule.tool)}, use only the operations {_joined(rule.operations, 'and')}."
    ),
    RuleKind.EXIT_LOOP: lambda rule: (
        f"Your turn ends when {tool_phrase(rule.tool)} has succeeded: call it last."
    ),
    RuleKind.CONTINUE_LOOP: lambda rule: f"Your turn goes on after {tool_phrase(rule.tool)}.",
}


def rules_for_model(rules: Sequence[Rule]) -> str:
    """Return rules as a model reads them; the same rules give the same text in any order."""
    starts = sorted({rule.tool for rule in rules if rule.kind is RuleKind.START})
    lines = [f"Call {one_of(starts)} before any other tool."] if starts else []
    rest = {rule for rule in rules if rule.kind is not RuleKind.START}
    lines += [str(rule) for rule in sorted(rest, key=lambda rule: (-rule.priority, rule.key))]
    if not lines:
        return ""
    listed = "\n".join(f"- {line}" for line in dict.fromkeys(lines))
    return f"Rules for your tools, which are enforced:\n{listed}"


# -- at rest ---------------------------------------------------------------------------------------


def rules_text(rules: Sequence[Rule]) -> str | None:
    """Return rules as they are stored; None if there are no rules."""
    return orjson.dumps([rule.form() for rule in rules]).decode() if rules else None


def stored_rules(text: str | None) -> tuple[Rule, ...]:
    """Return the rules of a stored text."""
    return tuple(_stored(load) for load in orjson.loads(text)) if text else ()


def _stored(form: Mapping[str, Any]) -> Rule:
    return Rule(
        form["tool"],
        RuleKind(form["kind"]),
        tuple(form.get("tools", ())),
        tuple(form.get("operations", ())),
        form.get("count", 0),
        form.get("seconds", 0.0),
        form.get("priority", DEFAULT_PRIORITY),
    )


OWNER = "owner"
"""The id of the constellation's owner, who may see everything, and the role that says so."""
_UNCHANGED = "Nothing was changed."


class Trust(StrEnum):
    """How far content is trusted, by where it comes from; the most trusted first."""

    OWNER = "owner"
    KNOWN = "known"
    """Said by a person the owner knows."""
    STRANGER = "stranger"
    TOOL = "tool"
    """The result of one of the owner's own tools."""
    DOCUMENT = "document"
    WEB = "web"

    @property
    def trusted(self) -> bool:
        """Whether it may change memory without a rule or an approval: a known person said it."""
        return self in (Trust.OWNER, Trust.KNOWN)


_RANK = {trust: rank for rank, trust in enumerate(Trust)}


def least_trusted(trust_levels: Iterable[Trust]) -> Trust:
    """Return the trust of content that was made from all of these; `OWNER` if there are none."""
    return max(trust_levels, key=_RANK.__getitem__, default=Trust.OWNER)


@dataclass(frozen=True, slots=True)
class Account:
    """An account of a person: a channel, and their name in it."""

    channel: str
    sender: str


@dataclass(frozen=True, slots=True)
class Person:
    """A human with accounts in several channels."""

    id: str
    """`person_…`, or `owner`."""
    name: str
    trust: Trust
    """`owner`, `known` or `stranger`."""
    roles: tuple[str, ...] = ()
    accounts: tuple[Account, ...] = ()
    created_at_ms: int = 0

    @property
    def created_at(self) -> datetime | None:
        """When they were first known; None for the owner, who was there from the beginning."""
        return to_datetime(self.created_at_ms) if self.created_at_ms else None


@dataclass(frozen=True, slots=True)
class Participant:
    """A person who is present, with the roles and rooms that an audience may name."""

    person_id: str
    roles: frozenset[str] = frozenset()
    rooms: frozenset[str] = frozenset()
    """The rooms they are a member of, as `channel:room`."""

    def is_named_by(self, token: str) -> bool:
        """Tell whether one word of an audience means this person."""
        if token == "public" or self.person_id == OWNER:
            return True
        kind, _, name = token.partition(":")
        match kind:
            case "person":
                return name == self.person_id
            case "role":
                return name in self.roles
            case "room":
                return name in self.rooms
            case _:
                return False


@dataclass(frozen=True, slots=True)
class Audience:
    """Who may see a memory: a person who is named by a word of *every* clause.

    A clause such as `person:anna|role:family` is a choice of words. A text made from two memories
    may be seen only by people who may see both, so its audience has the clauses of both.
    As text: words joined by `|`, clauses joined by `&`.
    """

    clauses: tuple[frozenset[str], ...]

    def __str__(self) -> str:
        return "&".join(sorted("|".join(sorted(clause)) for clause in self.clauses)) or "public"

    def __and__(self, other: Audience) -> Audience:
        return Audience.intersection((self, other))

    @staticmethod
    def intersection(audiences: Iterable[Audience]) -> Audience:
        """Return the audience that may see all of these."""
        clauses = {
            clause
            for audience in audiences
            for clause in audience.clauses
            if "public" not in clause
        }
        if _OWNER_CLAUSE in clauses:
            return OWNER_ONLY  # other people may see some of these, but only the owner may see all
        # A clause that names more people than another adds nothing to it.
        narrowest = [clause for clause in clauses if not any(other < clause for other in clauses)]
        return Audience(tuple(sorted(narrowest, key=sorted)))

    @staticmethod
    def read(text: str) -> Audience:
        """Return the audience that a text names; raise `InvalidInput` if it is not valid."""
        return _read(text)

    @staticmethod
    def from_declaration(text: str) -> Audience:
        """Return the audience that a tool or a setting declares, with persons named by id.

        A name would be looked up later, and could belong to another person by then.
        """
        audience = _read(text)
        for clause in audience.clauses:
            for word in clause:
                kind, _, name = word.partition(":")
                if kind == "person" and not name.startswith("person_"):
                    raise InvalidInput(
                        f"{word!r} is not a valid audience here. Name a person by id, such as "
                        'person:person_4f…; "asterism person list" shows the ids.',
                        outcome=_UNCHANGED,
                    )
        return audience

    @staticmethod
    def of_turn(text: str | None) -> Audience:
        """Return who may see the messages of a turn; if nothing is stored, only the owner."""
        return Audience.read(text) if text else OWNER_ONLY

    @property
    def public(self) -> bool:
        """Whether everybody may see it."""
        return not self.clauses


@lru_cache(4_096)
def _read(text: str) -> Audience:
    # A store has few audiences, and each is on thousands of texts.
    clauses: list[frozenset[str]] = []
    for part in text.split("&"):
        words = frozenset(word.strip() for word in part.split("|"))
        for word in words:
            _check_word(word, text)
        clauses.append(words)
    return Audience.intersection([Audience(tuple(clauses))])


def _check_word(word: str, text: str) -> None:
    kind, colon, name = word.partition(":")
    if word in ("public", OWNER) or (kind in ("person", "room", "role") and colon and name):
        return
    raise InvalidInput(
        f"{text!r} is not a valid audience: {word!r} is unknown. Write public, owner, person:NAME, "
        "room:CHANNEL:ROOM or role:NAME, several joined by |.",
        outcome=_UNCHANGED,
    )


_OWNER_CLAUSE = frozenset({OWNER})
PUBLIC = Audience(())
OWNER_ONLY = Audience((_OWNER_CLAUSE,))


@dataclass(frozen=True, slots=True)
class Participants:
    """Who is present in a turn: the agent sees only what all of them may see."""

    people: tuple[Participant, ...] = (Participant(OWNER, frozenset({OWNER})),)
    room: str | None = None
    """The room, as `channel:room`; None: a private conversation."""

    def __post_init__(self) -> None:
        if not self.people:
            raise ValueError("Participants need at least one person. Name who is present.")

    def can_see(self, audience: Audience) -> bool:
        """Tell whether everyone present may see a text with this audience.

        A text for a room is for its present members: a person who planned something there and has
        left since may no longer see it.
        """
        if not audience.clauses:
            return True
        return all(
            any(map(person.is_named_by, clause))
            for clause in audience.clauses
            for person in self.people
        )

    def people_who_cannot_see(self, audience: Audience) -> tuple[str, ...]:
        """Return the ids of those present who may not see a text with this audience."""
        return tuple(
            person.person_id
            for person in self.people
            if not Participants((person,), self.room).can_see(audience)
        )

    @property
    def owner_alone(self) -> bool:
        """Whether only the owner is present, so that nothing has to be hidden."""
        for person in self.people:  # noqa: SIM110 - asked many times in each turn
            if person.person_id != OWNER:
                return False
        return True

    @property
    def audience(self) -> Audience:
        """Who may see messages of this conversation."""
        if self.owner_alone:
            return OWNER_ONLY  # in a room, too: people who join later may not see it
        if self.room is not None:
            return Audience((frozenset({f"room:{self.room}"}),))
        return Audience((frozenset(f"person:{person.person_id}" for person in self.people),))

    def audience_after_reading(self, audience: Audience) -> Audience:
        """Return who may see a message of a speaker who has read text for `audience`.

        Those who are present see it anyway. Other people who may see the message, such as those who
        join the room later, must also be allowed to see the text that it may be made of.
        """
        if audience.public or self.owner_alone:
            return self.audience
        there = frozenset(f"person:{person.person_id}" for person in self.people)
        clauses = (*self.audience.clauses, *audience.clauses)
        return Audience.intersection([Audience(tuple(clause | there for clause in clauses))])

    def wire(self, planned: Audience | None = None, trust: Trust = Trust.OWNER) -> str | None:
        """Return who is present as JSON, for the inbox; None: the owner alone.

        With `planned`, it also stores who may see the message: others may be in the room when it is
        due. With `trust`, it stores how far the message is trusted, if less than the speaker.
        """
        if self.room is None and self.owner_alone and trust is Trust.OWNER:
            return None
        fields: dict[str, Any] = {
            "persons": [person.person_id for person in self.people],
            "room": self.room,
        }
        if planned is not None:
            fields["audience"] = str(planned)
        if trust is not Trust.OWNER:
            fields["trust"] = trust.value
        return orjson.dumps(fields).decode()

    @property
    def key(self) -> str:
        """A text that is the same for participants who may see the same; `from_key` reads it."""
        if self.owner_alone:
            return OWNER
        people = sorted(
            (person.person_id, sorted(person.roles), sorted(person.rooms)) for person in self.people
        )
        return orjson.dumps([self.room, people]).decode()

    @staticmethod
    def from_key(key: str) -> Participants:
        """Return the participants with this key."""
        if key == OWNER:
            return OWNER_ALONE
        room, people = orjson.loads(key)
        return Participants(
            tuple(
                Participant(person, frozenset(roles), frozenset(rooms))
                for person, roles, rooms in people
            ),
            room,
        )


OWNER_ALONE = Participants()


def planned_audience(participants: str | None) -> Audience | None:
    """Return who may see a planned message, if `Participants.wire` has stored it."""
    if participants is None or '"audience"' not in participants:
        return None
    return Audience.read(orjson.loads(participants)["audience"])


def audience_of(participants: str | None) -> Audience:
    """Return who may see messages among the participants that `Participants.wire` names."""
    if participants is None:
        return OWNER_ONLY
    fields: dict[str, Any] = orjson.loads(participants)
    people = tuple(map(Participant, fields["persons"]))
    return planned_audience(participants) or Participants(people, fields.get("room")).audience


@dataclass(frozen=True, slots=True)
class Label:
    """The trust and the audience of a value. Without sources, it is the owner's, and public."""

    trust: Trust = Trust.OWNER
    audience: Audience = PUBLIC

    @staticmethod
    def join(labels: Iterable[Label]) -> Label:
        """Return the label of a value made from all of these: least trusted, smallest audience.

        The order and the number of labels do not matter. A join never raises trust and never widens
        the audience.
        """
        unique = set(labels)
        if len(unique) == 1:
            return unique.pop()
        return Label(
            least_trusted(label.trust for label in unique),
            Audience.intersection(label.audience for label in unique),
        )

    def adds_nothing_to(self, other: Label) -> bool:
        """Tell whether a join with another label is surely that one; of most, this is known."""
        return self.trust is other.trust and self.audience in (other.audience, PUBLIC)

    def flows_to(self, participants: Participants) -> bool:
        """Tell whether everyone present may see it."""
        return participants.can_see(self.audience)


def label_of(participants: str | None) -> Label:
    """Return the label of a message planned among the participants that `wire` names."""
    fields: dict[str, Any] = orjson.loads(participants) if participants is not None else {}
    speaker = next(iter(fields.get("persons", ())), OWNER)
    said_by = Trust.OWNER if speaker == OWNER else Trust.STRANGER
    return Label(Trust(fields.get("trust", said_by)), audience_of(participants))
