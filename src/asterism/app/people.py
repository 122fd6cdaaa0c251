"""The verbs about people: who they are in which channel, how far they are trusted, their roles."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from asterism.app.session import Session, note, verbs
from asterism.errors import InvalidInput
from asterism.memory import people
from asterism.memory import people as rows
from asterism.permissions import Act
from asterism.store.database import Connection
from asterism.types.agents import Account, Audience, Participants, Person, Trust


@verbs(
    "person",
    list=Act.READ,
    get=Act.READ,
    create=Act.GOVERN,
    rename=Act.GOVERN,
    set_trust=Act.GOVERN,
    set_roles=Act.GOVERN,
    link=Act.GOVERN,
    unlink=Act.GOVERN,
    merge=Act.GOVERN,
    participants=Act.READ,
    audience=Act.READ,
)
class People:
    """The persons that agents talk to."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def list(self) -> list[Person]:
        """Return everybody who is known, the owner first."""
        return await self._session.database.read(
            lambda tx: people.list_people(tx, self._session.constellation)
        )

    async def get(self, who: str) -> Person:
        """Return a person by name or id."""
        return await self._session.database.read(
            lambda tx: people.find(tx, self._session.constellation, who)
        )

    async def create(
        self, name: str, *, trust: Trust = Trust.KNOWN, roles: Sequence[str] = ()
    ) -> Person:
        """Introduce a person."""
        now = self._session.clock()

        async def work(tx: Connection) -> Person:
            person = await people.create_person(tx, self._home, name, now, trust=trust, roles=roles)
            await self._note(tx, "created", person, trust=trust.value, roles=list(roles))
            return person

        return await self._session.database.write(work)

    async def rename(self, who: str, name: str) -> Person:
        """Call a person something else."""
        return await self._change(
            who, lambda tx, id: people.rename(tx, self._home, id, name), "renamed", name=name
        )

    async def set_trust(self, who: str, trust: Trust) -> Person:
        """Say how far a person is trusted."""
        return await self._change(
            who,
            lambda tx, id: people.set_trust(tx, self._home, id, trust),
            "trusted",
            trust=trust.value,
        )

    async def set_roles(self, who: str, roles: Sequence[str]) -> Person:
        """Give a person these roles and no others."""
        return await self._change(
            who,
            lambda tx, id: people.set_roles(tx, self._home, id, roles),
            "given-roles",
            roles=list(roles),
        )

    async def link(self, who: str, account: str) -> Person:
        """Say that an account, as `channel:sender`, is a person's."""
        given = read_account(account)
        return await self._change(
            who,
            lambda tx, id: people.link(tx, self._home, given, id),
            "linked",
            account=account,
        )

    async def unlink(self, account: str) -> None:
        """Say that an account, as `channel:sender`, is nobody's that is known."""
        given = read_account(account)

        async def work(tx: Connection) -> None:
            whose = await rows.person_of_account(tx, self._home, given)
            await people.unlink(tx, self._home, given)
            await note(
                tx, self._session, "person.unlinked", by="api", what=account, person=whose or ""
            )

        await self._session.database.write(work)

    async def merge(self, kept: str, gone: str) -> Person:
        """Make one person of two."""

        async def work(tx: Connection, id: str) -> Person:
            other = await people.find(tx, self._home, gone)
            return await people.merge(tx, self._home, id, other.id)

        return await self._change(kept, work, "merged", gone=gone)

    async def participants(self, present: Sequence[str], room: str | None = None) -> Participants:
        """Return those present, by their names or ids."""

        async def read(tx: Connection) -> Participants:
            persons = [(await people.find(tx, self._home, one)).id for one in present]
            return await people.participants(tx, self._home, persons, room)

        return await self._session.database.read(read)

    async def audience(self, text: str) -> Audience:
        """Return the audience that a text means, in which persons may go by their names."""
        return await self._session.database.read(
            lambda tx: people.read_audience(tx, self._home, text)
        )

    @property
    def _home(self) -> str:
        return self._session.constellation

    async def _change(
        self,
        who: str,
        change: Callable[[Connection, str], Awaitable[Person]],
        what: str,
        **told: Any,
    ) -> Person:
        async def work(tx: Connection) -> Person:
            found = await people.find(tx, self._home, who)
            changed = await change(tx, found.id)
            await self._note(tx, what, found, **told)
            return changed

        return await self._session.database.write(work)

    async def _note(self, tx: Connection, what: str, person: Person, **told: Any) -> None:
        await note(
            tx,
            self._session,
            f"person.{what}",
            by="api",
            what=person.name,
            person=person.id,
            **told,
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
