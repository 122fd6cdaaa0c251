"""Turns and what comes of them: answers, notices, deliveries and schedules."""

from __future__ import annotations

import builtins
import contextlib
from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace
from pathlib import Path

import orjson

from asterism.app.agents import Agent, Agents
from asterism.app.engine import Engine
from asterism.app.replay import replay_tape
from asterism.app.session import Session, enough, note, verbs
from asterism.errors import Conflict, NotFound
from asterism.permissions import Act
from asterism.store import agents, approvals, journal, messages, schedules
from asterism.store.database import Connection
from asterism.turns.replay import replay as replay_turn
from asterism.turns.runtime import signals_of_turn
from asterism.types.agents import AgentRecord, Schedule, audience_of, message_id_for
from asterism.types.turns import (
    Delivery,
    Entry,
    InboxItem,
    Notice,
    Outcome,
    Receipt,
    Replay,
    Signal,
    TurnRecord,
    TurnState,
    images_in,
    text_of,
)


@verbs(
    "turn",
    list=Act.READ,
    get=Act.READ,
    outcome=Act.READ,
    wait=Act.TALK,
    follow=Act.READ,
    stop=Act.APPEND,
    replay=Act.READ,
    fork=Act.GOVERN,
    waiting=Act.READ,
    unfinished=Act.READ,
)
class Turns:
    """The turns of all agents: how they stand, how they went, and running them again."""

    def __init__(self, engine: Engine, session: Session, agents: Agents) -> None:
        self._engine = engine
        self._session = session
        self._agents = agents

    async def list(
        self, agent: AgentRecord | str | None = None, *, limit: int = 20
    ) -> builtins.list[TurnRecord]:
        """Return the latest turns, newest first."""
        session = self._session
        agent_id = await session.agent_id(agent) if agent is not None else None

        async def read(tx: Connection) -> builtins.list[TurnRecord]:
            async def visible(found: Sequence[TurnRecord]) -> builtins.list[TurnRecord]:
                ids = await session.visible_turns(tx, [record.id for record in found])
                return [record for record in found if record.id in ids]

            return await enough(
                lambda most: journal.turns_of(tx, session.constellation, agent_id, most),
                visible,
                limit,
            )

        return await session.database.read(read)

    async def get(self, turn_id: str) -> tuple[TurnRecord, builtins.list[Entry]]:
        """Return a turn with its entries."""

        async def read(tx: Connection) -> tuple[TurnRecord, builtins.list[Entry]] | None:
            record = await journal.turn(tx, turn_id)
            if record is None or not await self._session.visible_turns(tx, [turn_id]):
                return None
            return record, await journal.entries_of(tx, record)

        found = await self._session.database.read(read)
        if found is None:
            raise NotFound(
                f'There is no turn {turn_id!r}. "asterism turn list" shows the latest ones.'
            )
        return found

    async def outcome(self, turn_id: str) -> Outcome:
        """Return how a turn stands."""
        await self._must_see(turn_id)
        return await self._engine.runtime.outcome(turn_id)

    async def wait(self, receipt: Receipt) -> Outcome:
        """Wait for how the turn of an accepted message ends."""
        await self._must_see(receipt.turn_id)
        return await self._engine.runtime.wait(receipt)

    async def _must_see(self, turn_id: str) -> None:
        """Return if whoever acts may see a turn; else there is none for them."""
        if not await self._session.sees_turn(turn_id):
            raise NotFound(
                f'There is no turn {turn_id!r}. "asterism turn list" shows the latest ones.'
            )

    async def follow(self, turn_id: str) -> AsyncGenerator[Signal, None]:
        """Yield the signals of a turn from now on, `ended` or `parked` the last."""
        agent_id = (await self.outcome(turn_id)).agent_id

        async def accepted_before() -> Receipt:
            return Receipt(message_id_for(turn_id), turn_id, agent_id, duplicate=True)

        engine = self._engine
        async with contextlib.aclosing(
            signals_of_turn(engine.hub, engine.runtime.wait, agent_id, accepted_before)
        ) as signals:
            async for signal in signals:
                yield signal

    async def stop(self, turn_id: str, reason: str = "Stopped.") -> None:
        """End a turn that is under way, wherever it runs, or that waits for others to end.

        One that waits is stopped on return; one that is under way ends soon after.
        """
        stands = await self._engine.runtime.stop_anywhere(turn_id, reason)
        if stands is None:
            return
        if stands.state is not TurnState.PARKED:
            raise Conflict(f"Turn {turn_id} is {stands.state.value}; there is nothing to stop.")
        asked = await self._session.database.read(lambda tx: approvals.of_turn(tx, turn_id))
        first = next((one.id for one in asked if one.decided_at is None), None)
        if first is None:
            raise Conflict(
                f"Turn {turn_id} is parked and was answered: it goes on in a moment. Try again. "
                "Nothing was changed."
            )
        raise Conflict(
            f"Turn {turn_id} is parked: it waits for an answer to {first}. Deny it "
            f'("asterism approval deny {first}"), and the turn goes on without. '
            "Nothing was changed."
        )

    async def replay(self, turn_id: str, *, cassette: Path | str | None = None) -> Replay:
        """Run a recorded turn again, offline, and tell whether it comes out the same.

        Args:
            turn_id: The turn, which must have ended.
            cassette: A tape of what went over the wire: models are heard from it through their wire
                formats, and requests composed now are compared with those on it, byte for byte.
        """
        record, entries = await self.get(turn_id)
        if cassette is None:
            return await replay_turn(self._session.database, record, entries)
        return await replay_tape(
            self._session.database,
            self._engine.settings,
            self._engine.toolbox,
            record,
            entries,
            Path(cassette),
        )

    async def fork(
        self,
        turn_id: str,
        *,
        name: str | None = None,
        model: str | None = None,
        system: str | None = None,
    ) -> tuple[Agent, Outcome]:
        """Let a copy of the agent, as it stood before a turn, answer the same message anew.

        What it remembered then goes along: blocks, passages and whom it shared them with.
        """
        from asterism.memory.gate.copies import fork_memory

        record, entries = await self.get(turn_id)
        origin = await self._session.database.read(lambda tx: agents.by_id(tx, record.agent_id))
        assert origin is not None
        copy = replace(
            self._agents.new_record(
                name or f"{origin.name}-{turn_id[-6:]}",
                model or origin.model,
                origin.system if system is None else system,
                None,
                origin.limits,
            ),
            tools=origin.tools,
            rules=origin.rules,
        )

        async def work(tx: Connection) -> bool:
            if not await agents.create(tx, self._session.constellation, copy):
                return False
            await journal.copy_before(tx, origin.id, record.first_seq, copy.id)
            writer = await self._session.writer(tx, "fork", f"as it stood before {turn_id}")
            await fork_memory(tx, writer, origin.id, copy.id, moment=record.opened_at - 1)
            of = {"what": copy.name, "of": origin.name}
            await note(
                tx, self._session, "agent.forked", by="api", agent_id=copy.id, turn_id=turn_id, **of
            )
            return True

        if not await self._session.database.write(work):
            raise Conflict(
                f"There is an agent named {copy.name!r} already. Name the fork with --name. "
                "Nothing was created."
            )
        said = next(entry for entry in entries if entry.key == "in")
        opening = orjson.loads(said.meta or "{}")
        named = images_in(said.body)
        shown = (
            await self._session.database.read(lambda tx: journal.get_blob(tx, named))
            if named
            else {}
        )
        outcome = await self._agents.ask(
            copy,
            text_of(said.body),
            channel="fork",
            images=[shown[id].body for id in named],
            schema=orjson.loads(opening["schema"]) if "schema" in opening else None,
        )
        return await self._agents.get(copy.id), outcome

    async def waiting(self) -> builtins.list[InboxItem]:
        """Return what was accepted and waits for its turn."""
        return await self._session.database.read(lambda tx: visible_inbox(tx, self._session))

    async def unfinished(self) -> builtins.list[str]:
        """Return the ids of turns that were accepted and have not ended: waiting or interrupted."""

        async def read(tx: Connection) -> builtins.list[str]:
            constellation = self._session.constellation
            waiting = await messages.waiting(tx, constellation)
            ids = [one.turn_id for one in waiting if one.kind == "message" and not one.stopped]
            ids += [record.id for record in await journal.all_interrupted(tx, constellation)]
            return sorted(await self._session.visible_turns(tx, ids))

        return await self._session.database.read(read)


async def visible_inbox(tx: Connection, session: Session) -> list[InboxItem]:
    """Return what waits in the inbox and whoever acts may see."""
    found = await messages.waiting(tx, session.constellation)
    visible = await session.visible_turns(tx, [item.turn_id for item in found])
    return [item for item in found if item.turn_id in visible]


@verbs("notice", list=Act.READ, mark_seen=Act.APPEND)
class Notices:
    """What the owner must be told, and is told once."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def list(self, *, unseen: bool = True, limit: int = 100) -> builtins.list[Notice]:
        """Return the notices, which are for nobody but the owner."""
        session = self._session
        if not session.sees_all:
            return []
        return await session.database.read(
            lambda tx: agents.list_notices(tx, session.constellation, unseen=unseen, most=limit)
        )

    async def mark_seen(self, ids: Sequence[str]) -> None:
        """Note that the owner has seen these."""
        at = self._session.clock()
        await self._session.database.write(
            lambda tx: agents.mark_notice_seen(tx, builtins.list(ids), at)
        )


@verbs("outbox", list=Act.READ, retry=Act.APPEND)
class Outbox:
    """What must go out to channels."""

    def __init__(self, engine: Engine, session: Session) -> None:
        self._engine = engine
        self._session = session

    async def list(self, state: str | None = None, *, limit: int = 100) -> builtins.list[Delivery]:
        """Return deliveries in a state (`waiting`, `dead`, `sent`), or all that are not sent."""
        session = self._session

        async def read(tx: Connection) -> builtins.list[Delivery]:
            async def visible(found: Sequence[Delivery]) -> builtins.list[Delivery]:
                ids = await session.visible_turns(tx, [delivery.turn_id for delivery in found])
                return [delivery for delivery in found if delivery.turn_id in ids]

            return await enough(
                lambda most: messages.list_deliveries(tx, session.constellation, state, most),
                visible,
                limit,
            )

        return await session.database.read(read)

    async def retry(self, key: str) -> None:
        """Try a dead delivery again."""
        at = self._session.clock()

        async def work(tx: Connection) -> bool:
            revived = await messages.revive_delivery(tx, key, at)
            if revived:
                await note(tx, self._session, "delivery.retried", by="api", what=key)
            return revived

        if not await self._session.database.write(work):
            raise NotFound(f'There is no dead delivery {key!r}. "asterism outbox list" shows them.')
        self._engine.outbox.kick()


@verbs("schedule", list=Act.READ)
class Schedules:
    """What agents will be reminded of."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def list(self, agent: AgentRecord | str) -> builtins.list[Schedule]:
        """Return the schedules of an agent, the next one first."""
        agent_id = await self._session.agent_id(agent)

        async def read(tx: Connection) -> builtins.list[Schedule]:
            participants = await self._session.participants(tx)
            found = await schedules.of_agent(tx, agent_id)
            return [
                schedule
                for schedule in found
                if participants.can_see(audience_of(schedule.participants))
            ]

        return await self._session.database.read(read)
