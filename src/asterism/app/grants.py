"""The verbs about grants: what agents may do without asking each time."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from asterism.app.session import Session, verbs
from asterism.errors import Conflict, InvalidInput, NotFound
from asterism.permissions import Act
from asterism.store import approvals, events
from asterism.store.database import Connection
from asterism.store.events import Event, home_chain
from asterism.turns.approvals import check_limits
from asterism.types.agents import AgentRecord, new_id
from asterism.types.permissions import Grant, told_of

_MOST_USES = 1_000_000


@verbs("grant", list=Act.READ, give=Act.GOVERN, revoke=Act.GOVERN)
class Grants:
    """What an owner has allowed for more than one call."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def list(
        self, agent: AgentRecord | str | None = None, *, everything: bool = False
    ) -> list[Grant]:
        """Return the grants that count, or with `everything` all there ever were; oldest first."""
        agent_id = (await self._session.agent(agent)).id if agent is not None else None
        now = self._session.clock()

        async def read(tx: Connection) -> list[Grant]:
            found = await approvals.list_grants(
                tx, self._session.constellation, now, everything=everything
            )
            return await self._visible(tx, found)

        found = await self._session.database.read(read)
        return [one for one in found if agent_id is None or one.agent_id in (None, agent_id)]

    async def _visible(self, tx: Connection, found: Sequence[Grant]) -> list[Grant]:
        """Return the grants that whoever acts may see: their own, or given in turns they hear."""
        if self._session.sees_all:
            return list(found)
        asked = {
            one.id: question.turn_id
            for one in found
            if one.approval_id is not None
            and (question := await approvals.get(tx, one.approval_id)) is not None
        }
        visible = await self._session.visible_turns(tx, asked.values())
        me = self._session.actor.id
        return [one for one in found if one.given_by == me or asked.get(one.id) in visible]

    async def give(
        self,
        tool: str,
        *,
        agent: AgentRecord | str | None,
        pattern: Mapping[str, str] | None = None,
        until: int | None = None,
        uses: int | None = None,
        amount: float | None = None,
        per_day: int | None = None,
    ) -> Grant:
        """Let an agent call a tool without asking each time.

        Args:
            tool: Its name, or a glob such as `file*`.
            agent: Whose calls; None: those of every agent.
            pattern: A glob for each argument that matters, or `re:` and an expression.
            until: The time it ends, in milliseconds since 1970.
            uses: For how many calls.
            amount: Up to which amount each; a call without one, or with one that cannot be read,
                is asked for.
            per_day: How many calls in 24 hours.
        """
        now = self._session.clock()
        agent_id = (await self._session.agent(agent)).id if agent is not None else None
        _check(tool, pattern or {}, until, uses, now)
        check_limits(amount, per_day)
        grant = Grant(
            id=new_id("grant"),
            constellation=self._session.constellation,
            tool=tool,
            agent_id=agent_id,
            pattern=dict(pattern or {}),
            until=until,
            uses=uses,
            given_by=self._session.actor.id,
            given_at=now,
            amount=amount,
            per_day=per_day,
        )

        async def work(tx: Connection) -> None:
            await approvals.put_grant(tx, grant)
            event = Event("grant.given", str(self._session.actor), now, told_of(grant), agent_id)
            await events.append(tx, home_chain(self._session.constellation), [event])

        await self._session.database.write(work)
        return grant

    async def revoke(self, grant_id: str) -> Grant:
        """Take a grant back; from the next call on the agent asks again."""
        now, home = self._session.clock(), self._session.constellation

        async def work(tx: Connection) -> Grant:
            found = await approvals.get_grant(tx, home, grant_id)
            if found is None:
                raise NotFound(
                    f'There is no grant {grant_id!r}. "asterism grant list" shows all that count. '
                    "Nothing was changed."
                )
            if not await approvals.revoke_grant(tx, home, grant_id, now):
                raise Conflict(f"{grant_id} was revoked before. Nothing was changed.")
            event = Event(
                "grant.revoked", str(self._session.actor), now, told_of(found), found.agent_id
            )
            await events.append(tx, home_chain(home), [event])
            return found

        return await self._session.database.write(work)


def _check(
    tool: str, pattern: Mapping[str, str], until: int | None, uses: int | None, now: int
) -> None:
    if not tool.strip() or len(tool) > 200:
        raise InvalidInput(
            f"{tool[:80]!r} names no tool. Write its name, or a glob such as file*. "
            "Nothing was granted."
        )
    if until is not None and until <= now:
        raise InvalidInput("A grant that ends in the past grants nothing. Nothing was granted.")
    if uses is not None and not 1 <= uses <= _MOST_USES:
        raise InvalidInput(
            f"A grant for {uses:,} calls cannot be given: 1 to {_MOST_USES:,} can. "
            "Nothing was granted."
        )
    for name, value in pattern.items():
        try:
            re.compile(value.removeprefix("re:") if value.startswith("re:") else "")
        except re.error as error:
            raise InvalidInput(
                f"The pattern {name}={value} is no regular expression ({error}). "
                "Nothing was granted."
            ) from None
