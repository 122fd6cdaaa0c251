"""Reviewers: whom an approval names, who of them may answer, and where they are reached."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from asterism.config.documents import Contacts, Hours
from asterism.memory import people
from asterism.store import approvals
from asterism.store import people as stored
from asterism.store.database import Connection
from asterism.types.approvals import PRESENT, Approval
from asterism.types.people import OWNER, Account, Person, Trust
from asterism.types.turns import TurnRecord
from asterism.types.wire import plain

NOBODY = Person("", "somebody unknown", Trust.STRANGER)
"""Who writes from an account that nobody has said whose it is."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where somebody is told something."""

    channel: str
    target: str
    hours: Hours | None = None

    def __str__(self) -> str:
        return f"{self.channel}:{self.target}"

    @staticmethod
    def read(text: str, hours: Hours | None = None) -> Place:
        """Return the place that `channel:address` means."""
        channel, _, target = text.partition(":")
        return Place(channel, target, hours)


def origin_of(record: TurnRecord | None) -> Place | None:
    """Return where a matter came from, if answers go there."""
    if record is None or record.reply_to is None:
        return None
    return Place(record.channel, record.reply_to)


async def may_answer(
    tx: Connection, record: TurnRecord, approval: Approval, person: Person
) -> bool:
    """Tell whether a person is one of those who may answer; the owner always is."""
    if person.id == OWNER:
        return True
    if not person.id:
        return False
    opener = await approvals.opener_of(tx, record) if PRESENT in approval.reviewers else ""
    return any(_is_named(one, person, opener) for one in approval.reviewers)


def _is_named(reviewer: str, person: Person, opener: str) -> bool:
    if reviewer == PRESENT:
        return person.id == opener
    kind, _, name = reviewer.partition(":")
    match kind:
        case "person":
            return name in (person.id, person.name)
        case "role":
            return name.casefold() in {role.casefold() for role in person.roles}
        case _:
            return person.id == OWNER and reviewer == OWNER


async def bound(tx: Connection, constellation: str, reviewers: Iterable[str]) -> tuple[str, ...]:
    """Return reviewers with persons by their ids: a name may be given to somebody else."""
    found: dict[str, None] = {}
    for one in reviewers:
        kind, _, name = one.partition(":")
        person_id = await stored.by_name(tx, constellation, name) if kind == "person" else None
        found[f"person:{person_id}" if person_id else one] = None
    return tuple(found)


async def reach(
    tx: Connection,
    constellation: str,
    record: TurnRecord,
    reviewers: Iterable[str],
    contacts: Contacts,
) -> list[Place]:
    """Return where those are reached whom reviewers stand for, each place once."""
    wanted = tuple(reviewers)
    opener = await approvals.opener_of(tx, record) if PRESENT in wanted else ""
    everybody = await people.everyone(tx, constellation)
    asked = {one.id for one in everybody if any(_is_named(word, one, opener) for word in wanted)}
    found: dict[str, Place] = {}
    for contact in contacts.people:
        if _person_called(contact.person, everybody) in asked:
            for place in contact.reach:
                found.setdefault(place, Place.read(place, contact.hours))
    return list(found.values())


def _person_called(name: str, everybody: Sequence[Person]) -> str | None:
    """Return the id of the one person that a contact means."""
    exact = [one.id for one in everybody if name in (one.id, one.name)]
    alike = exact or [one.id for one in everybody if one.name.casefold() == name.casefold()]
    return alike[0] if len(alike) == 1 else None


async def whose(tx: Connection, constellation: str, by: str | Account) -> Person:
    """Return who answers: a person by name or id, or whoever an account belongs to."""
    if isinstance(by, str):
        return await people.find(tx, constellation, by)
    account = Account(plain(by.channel), plain(by.sender))
    person_id = await stored.whose(tx, constellation, account)
    if person_id is None:
        return NOBODY
    found = await stored.get(tx, constellation, person_id)
    if found is None and person_id == OWNER:
        return Person(OWNER, OWNER, Trust.OWNER, (OWNER,))
    return found or NOBODY


def spell(reviewers: Iterable[str], called: Mapping[str, str]) -> str:
    """Return who may answer, for people: names instead of ids."""
    words: list[str] = []
    for one in reviewers:
        kind, colon, name = one.partition(":")
        if one == PRESENT:
            words.append("whoever the agent talks to")
        elif kind == "role" and colon:
            words.append(f"anybody with the role {name!r}")
        elif kind == "person" and colon:
            words.append(called.get(name, name))
        else:
            words.append(one)
    if OWNER not in words:
        words.append(OWNER)
    return " or ".join(words)
