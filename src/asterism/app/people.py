"""The verbs about people: who they are in which channel, how far they are trusted, their roles."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from asterism.app.reach import Reach
from asterism.errors import InvalidInput
from asterism.memory import people
from asterism.store.database import Connection
from asterism.types.people import Account, Audience, Company, Person, Tier


class People:
    """The persons that agents talk to."""

    def __init__(self, reach: Reach) -> None:
        self._reach = reach

    async def list(self) -> list[Person]:
        """Return everybody who is known, the owner first."""
        return await self._reach.database.read(
            lambda tx: people.everyone(tx, self._reach.constellation)
        )

    async def get(self, who: str) -> Person:
        """Return a person by name or id."""
        return await self._reach.database.read(
            lambda tx: people.find(tx, self._reach.constellation, who)
        )

    async def create(
        self, name: str, *, tier: Tier = Tier.KNOWN, roles: Sequence[str] = ()
    ) -> Person:
        """Introduce a person."""
        now = self._reach.clock()
        return await self._reach.database.write(
            lambda tx: people.create_person(
                tx, self._reach.constellation, name, now, tier=tier, roles=roles
            )
        )

    async def rename(self, who: str, name: str) -> Person:
        """Call a person something else."""
        return await self._change(who, lambda tx, id: people.rename(tx, self._home, id, name))

    async def set_tier(self, who: str, tier: Tier) -> Person:
        """Say how far a person is trusted."""
        return await self._change(who, lambda tx, id: people.set_tier(tx, self._home, id, tier))

    async def set_roles(self, who: str, roles: Sequence[str]) -> Person:
        """Give a person these roles and no others."""
        return await self._change(who, lambda tx, id: people.set_roles(tx, self._home, id, roles))

    async def link(self, who: str, account: str) -> Person:
        """Say that an account, as `channel:sender`, is a person's."""
        given = read_account(account)
        return await self._change(who, lambda tx, id: people.link(tx, self._home, given, id))

    async def unlink(self, account: str) -> None:
        """Say that an account, as `channel:sender`, is nobody's that is known."""
        given = read_account(account)
        await self._reach.database.write(lambda tx: people.unlink(tx, self._home, given))

    async def merge(self, kept: str, gone: str) -> Person:
        """Make one person of two."""

        async def work(tx: Connection, id: str) -> Person:
            other = await people.find(tx, self._home, gone)
            return await people.merge(tx, self._home, id, other.id)

        return await self._change(kept, work)

    async def company(self, present: Sequence[str], room: str | None = None) -> Company:
        """Return those present, by their names or ids."""

        async def read(tx: Connection) -> Company:
            persons = [(await people.find(tx, self._home, one)).id for one in present]
            return await people.company(tx, self._home, persons, room)

        return await self._reach.database.read(read)

    async def audience(self, text: str) -> Audience:
        """Return the audience that a text means, in which persons may go by their names."""
        return await self._reach.database.read(
            lambda tx: people.read_audience(tx, self._home, text)
        )

    @property
    def _home(self) -> str:
        return self._reach.constellation

    async def _change(
        self, who: str, change: Callable[[Connection, str], Awaitable[Person]]
    ) -> Person:
        async def work(tx: Connection) -> Person:
            found = await people.find(tx, self._home, who)
            return await change(tx, found.id)

        return await self._reach.database.write(work)


def read_account(text: str) -> Account:
    """Return the account that a person has written as `channel:sender`."""
    channel, colon, sender = text.partition(":")
    if not (channel and colon and sender):
        raise InvalidInput(
            f"{text!r} is no account. Write CHANNEL:SENDER, such as discord:4711. Nothing was "
            "changed."
        )
    return Account(channel, sender)
