"""The verbs about memory as a whole: time travel, provenance, health, forgetting, export."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

import orjson

from asterism.app.session import Session, no_such_turn, note, verbs
from asterism.config import RetentionSettings
from asterism.memory import export, health, history
from asterism.memory import why as provenance
from asterism.memory.export import Report
from asterism.memory.forgetting import ForgetReceipt, Forgetting, forget, replay
from asterism.memory.forgetting.removal import (
    RetentionKind,
    RetentionResult,
    RetentionRule,
    enforce_retention,
)
from asterism.memory.gate import undo as gate
from asterism.memory.gate.copies import Forked, fork_memory
from asterism.memory.health import Health
from asterism.memory.history import MemoryAt, TurnWrites
from asterism.memory.why import Trace
from asterism.permissions import Act
from asterism.store import forgetting as forgetting_at_rest
from asterism.store.database import Connection
from asterism.telemetry.redaction import redact
from asterism.times import to_ms
from asterism.types.agents import OWNER_ALONE, AgentRecord, Participants, optional_ms


@verbs(
    "memory",
    as_of=Act.READ,
    written_by=Act.READ,
    revert_turn=Act.DELETE,
    fork=Act.GOVERN,
    why=Act.READ,
    health=Act.READ,
    forget=Act.DELETE,
    receipts=Act.READ,
    forget_again=Act.DELETE,
    retain=Act.DELETE,
    export=Act.READ,
    import_=Act.GOVERN,
)
class Memory:
    """The memory of agents as a whole."""

    def __init__(
        self, session: Session, retention: Callable[[], Sequence[RetentionSettings]]
    ) -> None:
        self._session = session
        self._retention = retention

    # -- time ----------------------------------------------------------------------------------

    async def as_of(
        self, agent: AgentRecord | str, moment: datetime, *, most: int | None = None
    ) -> MemoryAt:
        """Return the memory of an agent at a moment."""
        agent_id = await self._session.agent_id(agent)
        then = to_ms(moment)
        assert then is not None

        async def read(tx: Connection) -> MemoryAt:
            participants = await self._session.participants(tx)
            return await history.as_of(tx, agent_id, then, most=most, participants=participants)

        return await self._session.database.read(read)

    async def written_by(self, turn_id: str) -> TurnWrites:
        """Return all that a turn wrote to memory."""

        async def read(tx: Connection) -> TurnWrites:
            if not await self._session.visible_turns(tx, [turn_id]):
                return TurnWrites(turn_id)
            participants = await self._session.participants(tx)
            return await history.writes_of_turn(tx, turn_id, participants=participants)

        return await self._session.database.read(read)

    async def revert_turn(self, turn_id: str, *, reason: str = "", by: str = "api") -> TurnWrites:
        """Undo everything that a turn wrote to memory; later edits stay."""
        # The answer says what was undone.
        await self._session.allow(Act.READ, "memory.revert_turn", "memory", (turn_id,))

        async def work(tx: Connection) -> TurnWrites:
            if not await self._session.visible_turns(tx, [turn_id]):
                raise no_such_turn(turn_id)
            writer = await self._session.writer(tx, by, reason)
            effects = await gate.revert_turn(tx, writer, turn_id)
            await note(tx, self._session, "memory.reverted", by=by, turn_id=turn_id, reason=reason)
            return effects

        return await self._session.database.write(work)

    async def fork(
        self,
        agent: AgentRecord | str,
        target: AgentRecord | str,
        *,
        moment: datetime | None = None,
        by: str = "api",
    ) -> Forked:
        """Give an agent a copy of another's memory, as it is or as it was at a moment."""
        source_id = await self._session.agent_id(agent)
        target_id = await self._session.agent_id(target)

        async def work(tx: Connection) -> Forked:
            writer = await self._session.writer(tx, by)
            forked = await fork_memory(tx, writer, source_id, target_id, moment=optional_ms(moment))
            kind = "memory.forked"
            await note(tx, self._session, kind, by=by, agent_id=target_id, what=source_id)
            return forked

        return await self._session.database.write(work)

    # -- trust ---------------------------------------------------------------------------------

    async def why(self, ref: str, *, agent: AgentRecord | str | None = None) -> Trace:
        """Return where a memory comes from: a passage, a summary, `label` or `label:line`."""
        agent_id = await self._session.agent_id(agent) or None

        async def read(tx: Connection) -> Trace:
            participants = await self._session.participants(tx)
            return await provenance.why(tx, ref, agent_id=agent_id, participants=participants)

        return await self._session.database.read(read)

    async def health(self, agent: AgentRecord | str) -> Health:
        """Return the problems of an agent's memory: duplicates, contradictions, junk …."""
        agent_id = await self._session.agent_id(agent)
        now = self._session.clock()

        async def read(tx: Connection) -> Health:
            participants = await self._session.participants(tx)
            return await health.health(tx, agent_id, now=now, participants=participants)

        return await self._session.database.read(read)

    # -- forgetting ----------------------------------------------------------------------------

    async def forget(self, what: Forgetting, *, reason: str = "", by: str = "api") -> ForgetReceipt:
        """Forget something everywhere; the receipt counts the places and never holds the text."""
        session = self._session
        writer = await session.database.read(lambda tx: session.writer(tx, by, reason))
        receipt = await forget(session.database, session.data, writer, what, drop=self._drop)
        # Forgetting takes many transactions; the receipt stands for all of them.
        await session.database.write(
            lambda tx: note(
                tx, session, "memory.forgotten", by=by, what=receipt.id, places=receipt.places
            )
        )
        await self._drop(receipt.agents)
        return receipt

    async def receipts(self) -> list[ForgetReceipt]:
        """Return the receipts of everything that was forgotten, the newest first."""
        rows = await self._session.database.read(forgetting_at_rest.tombstones)
        receipts = sorted(
            (ForgetReceipt.read(row[4]) for row in rows), key=lambda receipt: -receipt.at_ms
        )
        if self._session.sees_all:
            return receipts
        # Why, and which files could not be reached, is the owner's to know.
        return [
            replace(receipt, reason="", unreached=(), places={}, names={}) for receipt in receipts
        ]

    async def forget_again(self) -> ForgetReceipt | None:
        """Forget again what an older copy of the database brought back; None if it has nothing."""
        session = self._session
        return await replay(session.database, session.data, drop=self._drop, clock=session.clock)

    async def retain(self) -> RetentionResult:
        """Delete everything that is older than the rules of retention allow."""
        rules = [
            RetentionRule(
                RetentionKind(rule.kind),
                rule.days,
                agent_id=await self._session.agent_id(rule.agent) or None,
                tag=rule.tag,
                trust=rule.trust,
            )
            for rule in self._retention()
        ]
        deleted = await enforce_retention(self._session.database, rules, self._session.clock())
        await self._drop(deleted.agents)
        return deleted

    async def _drop(self, agents: Sequence[str]) -> None:
        self._session.clear()
        for agent_id in agents:
            self._session.drop(agent_id)

    # -- leaving and returning -----------------------------------------------------------------

    async def export(
        self, agent: AgentRecord | str, *, participants: Participants = OWNER_ALONE
    ) -> dict[str, Any]:
        """Return the part of an agent's memory that those present may see, as a JSON document."""
        agent_id = await self._session.agent_id(agent)

        async def read(tx: Connection) -> dict[str, Any]:
            present = await self._session.among(tx, participants)
            return await export.export(tx, agent_id, participants=present)

        document = await self._session.database.read(read)
        text = orjson.dumps(document).decode()
        changed = redact(text)
        return document if changed is text else orjson.loads(changed)

    async def import_(
        self,
        agent: AgentRecord | str,
        document: Mapping[str, Any],
        *,
        dry_run: bool = False,
        by: str = "api",
    ) -> Report:
        """Import a document that `export` made; the report names the parts left out."""
        agent_id = await self._session.agent_id(agent)

        async def work(tx: Connection) -> Report:
            writer = await self._session.writer(tx, by)
            report = await export.import_memory(tx, writer, agent_id, document, dry_run=dry_run)
            if not dry_run:
                await note(tx, self._session, "memory.imported", by=by, agent_id=agent_id)
            return report

        report = await self._session.database.write(work)
        if not dry_run:
            await self._session.stay_forgotten()
        return report
