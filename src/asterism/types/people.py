"""People: persons, who is present, who may hear a memory, and how far content is trusted."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Any

import orjson

from asterism.errors import InvalidInput

OWNER = "owner"
"""The id of the constellation's owner, who may hear everything, and the role that says so."""
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
    """Who may hear a memory: whoever is named by a word of *every* clause.

    A clause such as `person:anna|role:family` names people one way or another; what was made from
    two memories may be heard only by those who may hear both, so audiences meet by joining clauses.
    As text: words joined by `|`, clauses joined by `&`.
    """

    clauses: tuple[frozenset[str], ...]

    def __str__(self) -> str:
        return "&".join(sorted("|".join(sorted(clause)) for clause in self.clauses)) or "public"

    def __and__(self, other: Audience) -> Audience:
        return Audience.intersection((self, other))

    @staticmethod
    def intersection(audiences: Iterable[Audience]) -> Audience:
        """Return who may hear all of these."""
        clauses = {clause for one in audiences for clause in one.clauses if "public" not in clause}
        if _OWNER_CLAUSE in clauses:
            return OWNER_ONLY  # whoever else is named, only the owner may hear all
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
        """Return who may hear what was said in a turn; where nothing is stored, the owner alone."""
        return Audience.read(text) if text else OWNER_ONLY

    @property
    def public(self) -> bool:
        """Whether everybody may hear it."""
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
    """Who is present in a turn: what an agent sees is what all of them may hear."""

    people: tuple[Participant, ...] = (Participant(OWNER, frozenset({OWNER})),)
    room: str | None = None
    """Where, as `channel:room`, or None for a private talk."""

    def __post_init__(self) -> None:
        if not self.people:
            raise ValueError("Nobody is present, so nobody can be asked what they may hear.")

    def can_see(self, audience: Audience) -> bool:
        """Tell whether everyone present may hear what has this audience.

        What is for a room is for those who are in it: who planned something there, and has left
        since, hears it no more.
        """
        if not audience.clauses:
            return True
        return all(
            any(map(one.is_named_by, clause)) for clause in audience.clauses for one in self.people
        )

    def without(self, audience: Audience) -> tuple[str, ...]:
        """Return the ids of those present who may not hear what has this audience."""
        return tuple(
            one.person_id
            for one in self.people
            if not Participants((one,), self.room).can_see(audience)
        )

    @property
    def owner_alone(self) -> bool:
        """Whether there is nobody but the owner, so that nothing has to be held back."""
        return all(one.person_id == OWNER for one in self.people)

    @property
    def audience(self) -> Audience:
        """Who may hear what is said here."""
        if self.owner_alone:
            return OWNER_ONLY  # in a room, too: what they see there is not for those who come later
        if self.room is not None:
            return Audience((frozenset({f"room:{self.room}"}),))
        return Audience((frozenset(f"person:{one.person_id}" for one in self.people),))

    def after(self, heard: Audience) -> Audience:
        """Return who may hear what is said here by somebody who has `heard` that.

        Those who are present hear it anyway. Whoever else may hear what is said here, such as those
        who enter the room later, must have been allowed to hear all that it may be made of.
        """
        if heard.public or self.owner_alone:
            return self.audience
        there = frozenset(f"person:{one.person_id}" for one in self.people)
        clauses = (*self.audience.clauses, *heard.clauses)
        return Audience.intersection([Audience(tuple(clause | there for clause in clauses))])

    def wire(self, planned: Audience | None = None, trust: Trust = Trust.OWNER) -> str | None:
        """Return who is present as JSON, as it waits in the inbox; None: the owner alone.

        With `planned`, also who may hear what waits there: others may be in the room by then. With
        `trust`, how far it is trusted, if less than whoever speaks.
        """
        if self.room is None and self.owner_alone and trust is Trust.OWNER:
            return None
        told: dict[str, Any] = {
            "persons": [one.person_id for one in self.people],
            "room": self.room,
        }
        if planned is not None:
            told["audience"] = str(planned)
        if trust is not Trust.OWNER:
            told["trust"] = trust.value
        return orjson.dumps(told).decode()

    @property
    def key(self) -> str:
        """A text that is the same for companies that may hear the same; `from_key` reads it."""
        if self.owner_alone:
            return OWNER
        people = sorted(
            (one.person_id, sorted(one.roles), sorted(one.rooms)) for one in self.people
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
    """Return who may hear what is said or planned among those that `Participants.wire` names."""
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
