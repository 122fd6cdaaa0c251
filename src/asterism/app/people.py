"""The verbs about people: who they are in which channel, how far they are trusted, their roles."""

from __future__ import annotations

import builtins
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

from asterism.app.authentication import (
    acts_of,
    check_lasting,
    check_reach,
    merge_access,
)
from asterism.app.session import ACCESS_CHANGED, Session, check_same, note, shorten_text, verbs
from asterism.errors import InvalidInput, NotFound
from asterism.memory import people
from asterism.memory import people as rows
from asterism.permissions import Act
from asterism.records import dataclass
from asterism.store.database import Connection
from asterism.times import Moment
from asterism.types.agents import OWNER, Account, Audience, Participants, Person, Trust

_Change = Callable[[Connection, str], Awaitable[Person]]


@dataclass(frozen=True, slots=True)
class RoomMember:
    """A person who is known to be in a room."""

    person_id: str
    name: str
    since_ms: int

    since = Moment()


@dataclass(frozen=True, slots=True)
class Room:
    """A room of a channel, and who is known to be in it."""

    name: str
    """As `channel:room`."""
    members: tuple[RoomMember, ...]


@verbs(
    "person",
    list=Act.READ,
    get=Act.READ,
    create=Act.GOVERN,
    edit=Act.GOVERN,
    rename=Act.GOVERN,
    set_trust=Act.GOVERN,
    set_roles=Act.GOVERN,
    link=Act.GOVERN,
    unlink=Act.GOVERN,
    merge=Act.GOVERN,
    rooms=Act.READ,
    room=Act.READ,
    leave_room=Act.GOVERN,
    participants=Act.READ,
    audience=Act.READ,
)
class People:
    """The persons that agents talk to."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def list(self) -> list[Person]:
        """Return everybody who is known, the owner first."""
        return await self._session.database.read(people.list_people)

    async def get(self, who: str) -> Person:
        """Return a person by name or id."""
        return await self._session.database.read(lambda tx: people.find(tx, who))

    async def create(
        self, name: str, *, trust: Trust = Trust.KNOWN, roles: Sequence[str] = ()
    ) -> Person:
        """Introduce a person."""
        now = self._session.clock()
        self._check_roles(roles)

        async def work(tx: Connection) -> Person:
            person = await people.create_person(tx, name, now, trust=trust, roles=roles)
            await self._note(tx, "created", person, trust=trust.value, roles=list(roles))
            return person

        return await self._session.database.write(work)

    async def edit(
        self,
        who: str,
        *,
        name: str | None = None,
        trust: Trust | None = None,
        roles: Sequence[str] | None = None,
        expected: Person | None = None,
    ) -> Person:
        """Change a person: all that is given, or nothing if a part of it cannot be.

        Args:
            who: Their name or id.
            name: What they are called from now on.
            trust: How far they are trusted.
            roles: Their roles, and no others.
            expected: The person as read before; if somebody was quicker, `Changed` is raised.
        """
        session = self._session
        changes: builtins.list[tuple[str, dict[str, Any], _Change]] = []
        if name is not None:
            await session.allow(Act.GOVERN, "person.rename", "person", (who,))
            changes.append(("renamed", {"name": name}, partial(people.rename, name=name)))
        if trust is not None:
            await session.allow(Act.GOVERN, "person.set_trust", "person", (who,))
            self._check_trust(trust)
            details = {"trust": trust.value}
            changes.append(("trusted", details, partial(people.set_trust, trust=trust)))
        if roles is not None:
            await session.allow(Act.GOVERN, "person.set_roles", "person", (who,))
            self._check_roles(roles)
            details = {"roles": list(roles)}
            changes.append(("given-roles", details, partial(people.set_roles, roles=roles)))

        async def work(tx: Connection) -> Person:
            person = now = await people.find(tx, who)
            self._check_may_change(person)
            check_same(person.name, person, expected)
            for what, details, change in changes:
                now = await change(tx, person.id)
                await self._note(tx, what, person, **details)
            await tx.notify(ACCESS_CHANGED, tx.constellation)
            return now

        return await session.database.write(work)

    async def rename(self, who: str, name: str) -> Person:
        """Rename a person."""
        return await self._change(
            who, lambda tx, id: people.rename(tx, id, name), "renamed", name=name
        )

    async def set_trust(self, who: str, trust: Trust) -> Person:
        """Say how far a person is trusted."""
        self._check_trust(trust)
        return await self._change(
            who,
            lambda tx, id: people.set_trust(tx, id, trust),
            "trusted",
            trust=trust.value,
        )

    async def set_roles(self, who: str, roles: Sequence[str]) -> Person:
        """Give a person these roles and no others."""
        self._check_roles(roles)
        return await self._change(
            who,
            lambda tx, id: people.set_roles(tx, id, roles),
            "given-roles",
            roles=list(roles),
        )

    async def link(self, who: str, account: str) -> Person:
        """Link an account, as `channel:sender`, to a person."""
        parsed = read_account(account)
        check_lasting(self._session, None, "link an account")
        return await self._change(
            who,
            lambda tx, id: people.link(tx, parsed, id),
            "linked",
            account=account,
        )

    async def unlink(self, account: str) -> None:
        """Unlink an account, as `channel:sender`, from its person."""
        parsed = read_account(account)

        async def work(tx: Connection) -> None:
            owner = await rows.person_of_account(tx, parsed)
            if owner is not None:
                self._check_may_change(await people.find(tx, owner))
            await people.unlink(tx, parsed)
            await note(
                tx, self._session, "person.unlinked", by="api", what=account, person=owner or ""
            )

        await self._session.database.write(work)

    async def merge(self, remaining: str, merged: str) -> Person:
        """Make one person of two."""
        check_lasting(self._session, None, "merge people")

        async def work(tx: Connection, id: str) -> Person:
            other = await people.find(tx, merged)
            self._check_may_change(other)
            person = await people.merge(tx, id, other.id)
            await merge_access(tx, other.id, id, self._session.clock())
            return person

        return await self._change(remaining, work, "merged", gone=merged)

    async def rooms(self) -> builtins.list[Room]:
        """Return the rooms of channels and who is known to be in each, by name.

        Whoever may not see everything sees the rooms that they are in themselves.
        """
        session = self._session
        rows = await session.database.read(people.rooms)
        members: dict[str, builtins.list[RoomMember]] = {}
        for room, person_id, name, since in rows:
            members.setdefault(room, []).append(RoomMember(person_id, name, since))
        return [
            Room(room, tuple(inside))
            for room, inside in members.items()
            if session.sees_every_audience
            or any(member.person_id == session.actor.id for member in inside)
        ]

    async def room(self, name: str) -> Room:
        """Return a room by its name, as `channel:room`."""
        for room in await self.rooms():
            if room.name == name:
                return room
        raise _no_room(name)

    async def leave_room(self, room: str, who: str) -> None:
        """Note that somebody has left a room: from now on they do not see what is said there."""

        async def work(tx: Connection) -> None:
            person = await people.find(tx, who)
            if not await people.leave_room(tx, room, person.id):
                raise NotFound(
                    f"{person.name} is not known to be in the room {shorten_text(room)!r}. "
                    '"asterism person rooms" shows who is where. Nothing was changed.'
                )
            await self._note(tx, "left-room", person, room=room)

        await self._session.database.write(work)

    async def participants(self, present: Sequence[str], room: str | None = None) -> Participants:
        """Return participants by their names or ids."""

        async def read(tx: Connection) -> Participants:
            persons = [(await people.find(tx, name)).id for name in present]
            return await people.participants(tx, persons, room)

        return await self._session.database.read(read)

    async def audience(self, text: str) -> Audience:
        """Return the audience that a text means, in which persons may go by their names."""
        return await self._session.database.read(lambda tx: people.read_audience(tx, text))

    async def _change(
        self,
        who: str,
        change: _Change,
        what: str,
        **details: Any,
    ) -> Person:
        async def work(tx: Connection) -> Person:
            person = await people.find(tx, who)
            self._check_may_change(person)
            changed = await change(tx, person.id)
            await tx.notify(ACCESS_CHANGED, tx.constellation)
            await self._note(tx, what, person, **details)
            return changed

        return await self._session.database.write(work)

    def _check_may_change(self, person: Person) -> None:
        """Raise `NotAllowed` for somebody who may do more than the actor.

        Whoever writes from an account speaks for its person, so that linking one gives access.
        """
        for role in (OWNER,) if person.id == OWNER else person.roles:
            check_reach(self._session, role, "change somebody")

    def _check_trust(self, trust: Trust) -> None:
        if trust is Trust.KNOWN:
            check_lasting(self._session, frozenset({Act.TALK}), "say that a person is known")

    def _check_roles(self, roles: Sequence[str]) -> None:
        for role in roles:
            check_reach(self._session, role)
        if roles:
            everything = OWNER in roles
            acts = None if everything else acts_of(self._session.authority(), roles)
            check_lasting(self._session, acts, "give roles")

    async def _note(self, tx: Connection, what: str, person: Person, **details: Any) -> None:
        await note(
            tx,
            self._session,
            f"person.{what}",
            by="api",
            what=person.name,
            person=person.id,
            **details,
        )


def _no_room(name: str) -> NotFound:
    return NotFound(
        f'There is no room {shorten_text(name)!r}. "asterism person rooms" shows all. Nothing was '
        "changed."
    )


def read_account(text: str) -> Account:
    """Return the account that a person has written as `channel:sender`."""
    channel, colon, sender = text.partition(":")
    if not (channel and colon and sender):
        raise InvalidInput(
            f"{text!r} is not a valid account. Use CHANNEL:SENDER, such as discord:4711. Nothing "
            "was changed."
        )
    return Account(channel, sender)
