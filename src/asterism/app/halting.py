"""The verbs about halts: stop everything, see why it stands, let it go on."""

from __future__ import annotations

from dataclasses import replace

from asterism.app.session import Session, verbs
from asterism.errors import Conflict, InvalidInput
from asterism.permissions import Act
from asterism.store import agents
from asterism.store.database import Connection
from asterism.types.agents import Halt, new_id


@verbs(
    "home",
    current=Act.READ,
    halt=Act.GOVERN,
    resume=Act.GOVERN,
)
class Halts:
    """Whether the constellation stands still."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def current(self) -> Halt | None:
        """Return why no turns are taken, or None if they are."""
        session = self._session

        async def read(tx: Connection) -> Halt | None:
            found = await agents.current_halt(tx, session.constellation)
            if found is None or session.sees_all:
                return found
            heard = await session.visible_turns(tx, [found.turn_id])
            # That everything stands still is no secret; what led to it may be one.
            return found if heard else replace(found, reason="", agent_id=None, turn_id=None)

        return await session.database.read(read)

    async def halt(self, reason: str) -> Halt:
        """Stop all agents until `resume`; what comes in meanwhile waits."""
        if not reason.strip():
            raise InvalidInput("A halt needs a reason. Nothing was halted.")
        session = self._session
        halt = Halt(new_id("halt"), None, None, "critical", reason.strip(), session.clock())
        await session.database.write(lambda tx: agents.put_halt(tx, session.constellation, halt))
        return halt

    async def resume(self, by: str = "owner") -> Halt:
        """Let all agents go on with what has waited; return what had stopped them."""
        session, at = self._session, self._session.clock()

        async def work(tx: Connection) -> Halt:
            stood = await agents.current_halt(tx, session.constellation)
            if stood is None:
                raise Conflict("Nothing is halted. Nothing was changed.")
            await agents.lift_halt(tx, session.constellation, by, at)
            return stood

        return await session.database.write(work)
