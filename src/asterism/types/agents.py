"""Agents: lasting identities."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any

import orjson

from asterism.errors import InvalidInput
from asterism.times import exact_duration, to_ms


@dataclass(frozen=True, slots=True)
class Limits:
    """How far one turn may go; reaching one ends the turn with an explanation."""

    steps: int = 24
    seconds: float = 600.0
    tokens: int = 1_000_000
    calls: int = 64


DEFAULT_MODEL = "default"
"""The model of an agent that names none: whichever the configuration says at each turn."""


def chain_of(model: str) -> tuple[str, ...]:
    """Return the models that are asked one after the other: `a:b, c:d` names two."""
    return tuple(name.strip() for name in model.split(","))


@dataclass(frozen=True, slots=True)
class AgentRecord:
    """A lasting identity: who it is, which model it thinks with, what it may use."""

    id: str
    name: str
    model: str
    """`vendor:name`, several of them separated by commas (the next is asked when one fails), or
    `default`."""
    system: str
    created_at: int
    tools: tuple[str, ...] | None = None
    """Names of the tools it may call; None stands for every tool there is."""
    limits: Limits = field(default_factory=Limits)
    version: int = 1
    rules: tuple[Rule, ...] = ()
    """What its owner wants of its calls."""


def now_ms() -> int:
    """Return the time as milliseconds since 1970, UTC; the unit of every time in the store."""
    return time.time_ns() // 1_000_000


When = datetime | int
"""A moment as callers name it: a `datetime` with a time zone, or milliseconds since 1970 in UTC."""


def ms_of(when: When | None) -> int | None:
    """Return a moment that a caller names in milliseconds; None stays None."""
    return to_ms(when) if isinstance(when, datetime) else when


def new_id(prefix: str) -> str:
    """Return a new id: 48 bits of time, then 48 random bits."""
    return f"{prefix}_{now_ms():012x}{os.urandom(6).hex()}"


def turn_id_for(message_id: str) -> str:
    """Return the id of the turn that answers a message: known before the turn begins."""
    return "turn_" + message_id.partition("_")[2]


def message_id_for(turn_id: str) -> str:
    """Return the id of the message that a turn answers."""
    return "msg_" + turn_id.partition("_")[2]


@dataclass(frozen=True, slots=True)
class HttpCall:
    """A request that carries a call out."""

    url: str
    """`{name}` in it stands for an argument."""
    method: str = "POST"
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    """`secret:NAME` stands for a stored key."""


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool as it is registered: Python source with `def run(…)`, or a request."""

    name: str
    description: str
    schema: Mapping[str, Any]
    python: str | None = None
    http: HttpCall | None = None
    effects: tuple[Mapping[str, Any], ...] | None = None
    """What its calls do, in the JSON form of `ToolEffect`; None: it does not say."""
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
    created_at: int
    removed_at: int | None = None


@dataclass(frozen=True, slots=True)
class Halt:
    """A stop of a whole constellation."""

    id: str
    agent_id: str | None
    """The agent that called for it; None: the owner did."""
    turn_id: str | None
    severity: str
    reason: str
    at: int


@dataclass(frozen=True, slots=True)
class Schedule:
    """A message to an agent that falls due at a time."""

    id: str
    agent_id: str
    text: str
    due_at: int
    cron: str | None
    """Five fields, UTC; None when it happens once."""
    channel: str | None
    reply_to: str | None
    """Where the answer goes: where the matter came from."""
    created_at: int
    participants: str | None = None
    """Who was present when it was made, as JSON: they see what comes of it. None: the owner."""


MAX_IMAGE = 10 * 1024 * 1024
_KINDS = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)


@dataclass(frozen=True, slots=True)
class Blob:
    """Bytes with their type."""

    id: str
    """The SHA-256 in hexadecimal."""
    type: str
    body: bytes


def image(body: bytes) -> Blob:
    """Return an image as a blob, or raise `InvalidInput` if models could not see it."""
    if len(body) > MAX_IMAGE:
        raise InvalidInput(
            f"The image has {len(body) / 1e6:.1f} MB, and at most {MAX_IMAGE >> 20} MiB can be "
            "taken. Make it smaller. Nothing was stored."
        )
    kind = next((kind for magic, kind in _KINDS if body.startswith(magic)), "")
    if body[:4] == b"RIFF" and body[8:12] == b"WEBP":
        kind = "image/webp"
    if not kind:
        raise InvalidInput(
            f"The {len(body):,} bytes are not an image that models can see: PNG, JPEG, GIF or WebP "
            "is needed. Convert it. Nothing was stored."
        )
    return Blob(hashlib.sha256(body).hexdigest(), kind, body)


class RuleKind(StrEnum):
    """The kinds of rules."""

    START = "start"
    """It runs before any other tool; of several such tools, one does."""
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
    """It succeeds before the turn ends; with others, only if one of those has run."""
    MAX_CALLS = "max_calls"
    """It runs so many times in a turn."""
    COOLDOWN = "cooldown"
    """So much time passes between a success and the next call, also from turn to turn."""
    PERIODIC = "periodic"
    """It succeeds at least every so often: a turn does not end before, when it is time."""
    CONSENT = "consent"
    """A person is asked before each call; with operations, only before those."""
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
"""Kinds that name other tools, too."""
OF_TIME = frozenset({RuleKind.COOLDOWN, RuleKind.PERIODIC})
"""Kinds that look beyond the turn."""
DEFAULT_PRIORITY = 5


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule for a tool, or for all tools that a pattern such as `web_*` stands for."""

    tool: str
    kind: RuleKind
    tools: tuple[str, ...] = ()
    """The other tools, for kinds that name some; patterns here stand for any that fits."""
    operations: tuple[str, ...] = ()
    count: int = 0
    seconds: float = 0.0
    priority: int = DEFAULT_PRIORITY
    """Where several rules speak against a call, the one of the highest priority is told."""

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
        """Tell whether it is a rule for the tool of that name."""
        return fits(name, self.tool)

    def names(self, name: str) -> bool:
        """Tell whether the tool of that name is among the others."""
        return any(fits(name, tool) for tool in self.tools)

    def form(self) -> dict[str, Any]:
        """Return the rule as JSON and TOML have it, without what it does not say."""
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
    """Tell whether a tool's name is the one that is meant, or fits the pattern (`*`, `?`)."""
    return name == pattern or (is_pattern(pattern) and fnmatchcase(name, pattern))


def is_pattern(name: str) -> bool:
    """Tell whether a name stands for any tool that fits it."""
    return any(char in name for char in "*?[")


# -- words -----------------------------------------------------------------------------------------


def one_of(names: Sequence[str]) -> str:
    """Return names as a choice: `a, b or c`."""
    return _joined([called(name) for name in names], "or")


def all_of(names: Sequence[str]) -> str:
    """Return names as a list: `a, b and c`."""
    return _joined([called(name) for name in names], "and")


def called(name: str) -> str:
    """Return what a tool or a pattern is called in a sentence."""
    if name == "*":
        return "any tool"
    return f"any {name}" if is_pattern(name) else name


def _joined(names: Sequence[str], word: str) -> str:
    if len(names) < 2:
        return "".join(names)
    return f"{', '.join(names[:-1])} {word} {names[-1]}"


def _before_exit(rule: Rule) -> str:
    if rule.tools:
        return f"If you called {one_of(rule.tools)}, call {called(rule.tool)} before you answer."
    return f"Call {called(rule.tool)} before you answer."


def _max_calls(rule: Rule) -> str:
    times = {1: "once", 2: "twice"}.get(rule.count, f"{rule.count} times")
    return f"Call {called(rule.tool)} at most {times} in a turn."


def _consent(rule: Rule) -> str:
    if rule.operations:
        which = f"{called(rule.tool)} with the operation {_joined(rule.operations, 'or')}"
    else:
        which = called(rule.tool)
    return f"A person is asked before each call of {which}."


_SENTENCES: dict[RuleKind, Callable[[Rule], str]] = {
    RuleKind.START: lambda rule: f"Call {called(rule.tool)} before any other tool.",
    RuleKind.PRECEDING: lambda rule: (
        f"Call {called(rule.tool)} only after {all_of(rule.tools)} succeeded in the same turn."
    ),
    RuleKind.RIGHT_AFTER: lambda rule: (
        f"Call {called(rule.tool)} only right after {one_of(rule.tools)}."
    ),
    RuleKind.NOT_AFTER: lambda rule: (
        f"Do not call {called(rule.tool)} after {one_of(rule.tools)} in the same turn."
    ),
    RuleKind.NEXT: lambda rule: f"Right after {called(rule.tool)}, call only {one_of(rule.tools)}.",
    RuleKind.FOLLOWED_BY: lambda rule: (
        f"After {called(rule.tool)}, call {one_of(rule.tools)} before you answer."
    ),
    RuleKind.EXCLUSIVE: lambda rule: (
        f"Of {all_of((rule.tool, *rule.tools))}, use only one in a turn."
    ),
    RuleKind.BEFORE_EXIT: _before_exit,
    RuleKind.MAX_CALLS: _max_calls,
    RuleKind.COOLDOWN: lambda rule: (
        f"After a call of {called(rule.tool)}, wait {exact_duration(rule.seconds)} before the next."
    ),
    RuleKind.PERIODIC: lambda rule: (
        f"Call {called(rule.tool)} at least every {exact_duration(rule.seconds)}."
    ),
    RuleKind.CONSENT: _consent,
    RuleKind.OPERATIONS: lambda rule: (
        f"Of {called(rule.tool)}, use only the operations {_joined(rule.operations, 'and')}."
    ),
    RuleKind.EXIT_LOOP: lambda rule: (
        f"Your turn ends when {called(rule.tool)} has succeeded: call it last."
    ),
    RuleKind.CONTINUE_LOOP: lambda rule: f"Your turn goes on after {called(rule.tool)}.",
}


def told(rules: Sequence[Rule]) -> str:
    """Return rules as a model reads them; the same rules give the same text in any order."""
    starts = sorted({rule.tool for rule in rules if rule.kind is RuleKind.START})
    lines = [f"Call {one_of(starts)} before any other tool."] if starts else []
    rest = {rule for rule in rules if rule.kind is not RuleKind.START}
    lines += [str(one) for one in sorted(rest, key=lambda one: (-one.priority, one.key))]
    if not lines:
        return ""
    listed = "\n".join(f"- {line}" for line in dict.fromkeys(lines))
    return f"Rules for your tools, which are enforced:\n{listed}"


# -- at rest ---------------------------------------------------------------------------------------


def rules_text(rules: Sequence[Rule]) -> str | None:
    """Return rules as they are stored; None for none."""
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
    """What a tool of the owner's own brought in."""
    DOCUMENT = "document"
    WEB = "web"

    @property
    def trusted(self) -> bool:
        """Whether it may change memory without a rule or a person: it was said by someone known."""
        return self in (Trust.OWNER, Trust.KNOWN)


_RANK = {trust: rank for rank, trust in enumerate(Trust)}


def least_trusted(trust_levels: Iterable[Trust]) -> Trust:
    """Return the trust of content that was made from all of these; of nothing, the owner's."""
    return max(trust_levels, key=_RANK.__getitem__, default=Trust.OWNER)


@dataclass(frozen=True, slots=True)
class Account:
    """Where a person writes from: a channel, and who they are there."""

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
    created_at: int = 0


@dataclass(frozen=True, slots=True)
class Participant:
    """A person who is present, with what an audience may name them by."""

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
    """Who may see a memory: whoever is named by a word of *every* clause.

    A clause such as `person:anna|role:family` names people one way or another; what was made from
    two memories may be heard only by those who may see both, so audiences meet by joining clauses.
    As text: words joined by `|`, clauses joined by `&`.
    """

    clauses: tuple[frozenset[str], ...]

    def __str__(self) -> str:
        return "&".join(sorted("|".join(sorted(clause)) for clause in self.clauses)) or "public"

    def __and__(self, other: Audience) -> Audience:
        return Audience.intersection((self, other))

    @staticmethod
    def intersection(audiences: Iterable[Audience]) -> Audience:
        """Return who may see all of these."""
        clauses = {
            clause
            for audience in audiences
            for clause in audience.clauses
            if "public" not in clause
        }
        if _OWNER_CLAUSE in clauses:
            return OWNER_ONLY  # whoever else is named, only the owner may see all
        # A clause that names more people than another adds nothing to it.
        kept = [one for one in clauses if not any(other < one for other in clauses)]
        return Audience(tuple(sorted(kept, key=sorted)))

    @staticmethod
    def read(text: str) -> Audience:
        """Return the audience that a text means; raise `InvalidInput` if it means none."""
        return _read(text)

    @staticmethod
    def declared(text: str) -> Audience:
        """Return the audience that a tool or a setting declares, where persons go by their ids.

        A name would have to be looked up, and might be another person's by then.
        """
        found = _read(text)
        for clause in found.clauses:
            for word in clause:
                kind, _, name = word.partition(":")
                if kind == "person" and not name.startswith("person_"):
                    raise InvalidInput(
                        f"{word!r} is not a valid audience here. Name a person by id, such as "
                        'person:person_4f…; "asterism person list" shows the ids.',
                        outcome=_UNCHANGED,
                    )
        return found

    @staticmethod
    def of_turn(text: str | None) -> Audience:
        """Return who may see what was said in a turn; where nothing is stored, the owner alone."""
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
        f"{text!r} names no audience ({word!r} is unknown). Write public, owner, person:NAME, "
        "room:CHANNEL:ROOM or role:NAME, several joined by |.",
        outcome=_UNCHANGED,
    )


_OWNER_CLAUSE = frozenset({OWNER})
PUBLIC = Audience(())
OWNER_ONLY = Audience((_OWNER_CLAUSE,))


@dataclass(frozen=True, slots=True)
class Participants:
    """Who is present in a turn: what an agent sees is what all of them may see."""

    people: tuple[Participant, ...] = (Participant(OWNER, frozenset({OWNER})),)
    room: str | None = None
    """Where, as `channel:room`, or None for a private talk."""

    def __post_init__(self) -> None:
        if not self.people:
            raise ValueError("Nobody is present, so nobody can be asked what they may see.")

    def can_see(self, audience: Audience) -> bool:
        """Tell whether everyone present may see what has this audience.

        What is for a room is for those who are in it: who planned something there, and has left
        since, hears it no more.
        """
        if not audience.clauses:
            return True
        return all(
            any(map(person.is_named_by, clause))
            for clause in audience.clauses
            for person in self.people
        )

    def without(self, audience: Audience) -> tuple[str, ...]:
        """Return the ids of those present who may not see what has this audience."""
        return tuple(
            person.person_id
            for person in self.people
            if not Participants((person,), self.room).can_see(audience)
        )

    @property
    def owner_alone(self) -> bool:
        """Whether there is nobody but the owner, so that nothing has to be held back."""
        return all(person.person_id == OWNER for person in self.people)

    @property
    def audience(self) -> Audience:
        """Who may see what is said here."""
        if self.owner_alone:
            return OWNER_ONLY  # in a room, too: what they see there is not for those who come later
        if self.room is not None:
            return Audience((frozenset({f"room:{self.room}"}),))
        return Audience((frozenset(f"person:{one.person_id}" for one in self.people),))

    def after(self, heard: Audience) -> Audience:
        """Return who may see what is said here by somebody who has `heard` that.

        Those who are present hear it anyway. Whoever else may see what is said here, such as those
        who enter the room later, must have been allowed to see all that it may be made of.
        """
        if heard.public or self.owner_alone:
            return self.audience
        there = frozenset(f"person:{one.person_id}" for one in self.people)
        clauses = (*self.audience.clauses, *heard.clauses)
        return Audience.intersection([Audience(tuple(clause | there for clause in clauses))])

    def wire(self, planned: Audience | None = None, trust: Trust = Trust.OWNER) -> str | None:
        """Return who is present as JSON, as it waits in the inbox; None: the owner alone.

        With `planned`, also who may see what waits there: others may be in the room by then. With
        `trust`, how far it is trusted, if less than whoever speaks.
        """
        if self.room is None and self.owner_alone and trust is Trust.OWNER:
            return None
        told: dict[str, Any] = {
            "persons": [person.person_id for person in self.people],
            "room": self.room,
        }
        if planned is not None:
            told["audience"] = str(planned)
        if trust is not Trust.OWNER:
            told["trust"] = trust.value
        return orjson.dumps(told).decode()

    @property
    def key(self) -> str:
        """A text that is the same for companies that may see the same; `from_key` reads it."""
        if self.owner_alone:
            return OWNER
        people = sorted(
            (person.person_id, sorted(person.roles), sorted(person.rooms)) for person in self.people
        )
        return orjson.dumps([self.room, people]).decode()

    @staticmethod
    def from_key(key: str) -> Participants:
        """Return the participants that has this key."""
        if key == OWNER:
            return OWNER_ALONE
        room, people = orjson.loads(key)
        return Participants(
            tuple(
                Participant(one, frozenset(roles), frozenset(rooms)) for one, roles, rooms in people
            ),
            room,
        )


OWNER_ALONE = Participants()


def planned_for(participants: str | None) -> Audience | None:
    """Return who may see what was planned, if what `Participants.wire` wrote says so."""
    if participants is None or '"audience"' not in participants:
        return None
    return Audience.read(orjson.loads(participants)["audience"])


def audience_of(participants: str | None) -> Audience:
    """Return who may see what is said or planned among those that `Participants.wire` names."""
    if participants is None:
        return OWNER_ONLY
    told: dict[str, Any] = orjson.loads(participants)
    people = tuple(map(Participant, told["persons"]))
    return planned_for(participants) or Participants(people, told.get("room")).audience


@dataclass(frozen=True, slots=True)
class Label:
    """The two labels of a value. One that is made of nothing is the owner's, and public."""

    trust: Trust = Trust.OWNER
    audience: Audience = PUBLIC

    @staticmethod
    def join(labels: Iterable[Label]) -> Label:
        """Return the label of what is made of all of these: the least trusted, seen by the fewest.

        Joining has no order and no number, and never raises trust nor lets anybody see more.
        """
        found = set(labels)
        if len(found) == 1:
            return found.pop()
        return Label(
            least_trusted(one.trust for one in found),
            Audience.intersection(one.audience for one in found),
        )

    def flows_to(self, participants: Participants) -> bool:
        """Tell whether everyone present may see it."""
        return participants.can_see(self.audience)


def label_of(participants: str | None) -> Label:
    """Return the label of what is planned among those that `Participants.wire` names."""
    told: dict[str, Any] = orjson.loads(participants) if participants is not None else {}
    speaker = next(iter(told.get("persons", ())), OWNER)
    said_by = Trust.OWNER if speaker == OWNER else Trust.STRANGER
    return Label(Trust(told.get("trust", said_by)), audience_of(participants))
