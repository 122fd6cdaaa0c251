"""The verbs about messages, turns and what comes of them."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson

from asterism.app.agents import AgentVerbs
from asterism.app.audit import note
from asterism.app.engine import metrics
from asterism.app.replay import replay_tape
from asterism.app.session import AnyText, checked_schema, enough, verbs
from asterism.app.spend import last_signal, read_spend, signals_of_turn, standings
from asterism.errors import Conflict, InvalidInput, NotFound
from asterism.permissions import Act
from asterism.store import agents, approvals, inbox, journal, outbox, schedules
from asterism.store.database import Connection
from asterism.turns.replay import replay as replay_turn
from asterism.turns.watch import time_of
from asterism.types.agents import Agent, Schedule, image, message_id_for
from asterism.types.approvals import Approval
from asterism.types.people import audience_of
from asterism.types.spending import Spend, Standing
from asterism.types.turns import (
    Delivery,
    Entry,
    InboxItem,
    Message,
    MessageOrigin,
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

_MOST_DAYS = 36_500


@verbs(
    "home",
    send=Act.TALK,
    ask=Act.TALK,
    wait=Act.TALK,
    stream=Act.TALK,
    stream_decision=Act.TALK,
    follow=Act.READ,
    watch=Act.READ,
    stop_turn=Act.APPEND,
    outcome=Act.READ,
    turns=Act.READ,
    turn=Act.READ,
    replay=Act.READ,
    fork=Act.GOVERN,
    waiting=Act.READ,
    counts=Act.READ,
    metrics=Act.READ,
    unfinished=Act.READ,
    decide=Act.TALK,
    notices=Act.READ,
    notices_seen=Act.APPEND,
    spend=Act.READ,
    caps=Act.READ,
    deliveries=Act.READ,
    retry_delivery=Act.APPEND,
    schedules=Act.READ,
)
class TurnVerbs(AgentVerbs):
    """Messages in, answers out, and a look at all that happens between."""

    # -- messages ------------------------------------------------------------------------------

    async def send(
        self,
        agent: Agent | str,
        text: AnyText,
        *,
        channel: str = "api",
        external_id: str | None = None,
        sender: str | None = None,
        reply_to: str | None = None,
        images: Sequence[bytes] = (),
        schema: Mapping[str, Any] | None = None,
        room: str | None = None,
        present: Sequence[str] = (),
    ) -> Receipt:
        """Hand in a message. On return it is stored and will be answered exactly once.

        Args:
            agent: The agent, or its name or id.
            text: What is said.
            channel: Where it comes from, and where the answer goes if there is `reply_to`.
            external_id: The message's id there; the same id again is the same message.
            sender: Who says it, by their name in the channel; None: the owner.
            reply_to: Where in the channel the answer is delivered.
            images: PNG, JPEG, GIF or WebP files that belong to the message.
            schema: A JSON schema; the answer's text will be JSON that fulfils it.
            room: The room of the channel where it is said; None: in private.
            present: Who else is there, by their names in the channel. The agent sees only what
                everyone present may hear.

        Where somebody other than the owner acts, it is they who speak, in private: `channel`,
        `sender`, `reply_to`, `room` and `present` are the owner's and the channels' to say.
        """
        speaker = (
            None
            if self._session.is_owner
            else self._speaker(
                channel=channel != "api",
                sender=sender,
                reply_to=reply_to,
                room=room,
                present=present,
            )
        )
        agent_id = agent.id if isinstance(agent, Agent) else (await self.agent(agent)).id
        message = Message(
            agent_id,
            (text, *map(image, images)),
            MessageOrigin(channel, sender, reply_to, room),
            external_id,
            tuple(present),
            checked_schema(schema),
        )
        return await self._engine.runtime.accept(message, speaker)

    def _speaker(self, **given: object) -> str:
        """Return who speaks where somebody acts who is not the owner: they themselves."""
        actor = self._session.actor
        said = [name for name, value in given.items() if value]
        if said:
            raise InvalidInput(
                f"{actor.name} speaks for themselves, so that {' and '.join(said)} cannot be "
                "given. Leave it out, or let the owner hand the message in. Nothing was stored."
            )
        return actor.id

    async def ask(self, agent: Agent | str, text: AnyText, **given: Any) -> Outcome:
        """Hand in a message and wait for how its turn ends."""
        return await self._engine.runtime.wait(await self.send(agent, text, **given))

    async def wait(self, receipt: Receipt) -> Outcome:
        """Wait for how the turn of an accepted message ends."""
        await self._must_hear(receipt.turn_id)
        return await self._engine.runtime.wait(receipt)

    async def _must_hear(self, turn_id: str) -> None:
        """Return if whoever acts may see a turn; else there is none for them."""
        if not await self._session.sees_turn(turn_id):
            raise NotFound(
                f'There is no turn {turn_id!r}. "asterism turn list" shows the latest ones.'
            )

    async def stream(
        self, agent: Agent | str, text: AnyText, **given: Any
    ) -> AsyncGenerator[Signal, None]:
        """Hand in a message and yield the signals of its turn, `ended` or `parked` the last."""
        who = agent if isinstance(agent, Agent) else await self.agent(agent)
        async with contextlib.aclosing(
            self._signals(who.id, lambda: self.send(who, text, **given))
        ) as signals:
            async for signal in signals:
                yield signal

    def stream_decision(
        self, approval: Approval, *, approved: bool, **given: Any
    ) -> AsyncGenerator[Signal, None]:
        """Answer a question and yield the signals of the turn as it goes on."""
        return self._signals(
            approval.agent_id, lambda: self.decide(approval.id, approved=approved, **given)
        )

    async def follow(self, turn_id: str) -> AsyncGenerator[Signal, None]:
        """Yield the signals of a turn from now on, `ended` or `parked` the last."""
        agent_id = (await self.outcome(turn_id)).agent_id

        async def accepted_before() -> Receipt:
            return Receipt(message_id_for(turn_id), turn_id, agent_id, duplicate=True)

        async with contextlib.aclosing(self._signals(agent_id, accepted_before)) as signals:
            async for signal in signals:
                yield signal

    def _signals(
        self, agent_id: str, hand_in: Callable[[], Awaitable[Receipt]]
    ) -> AsyncGenerator[Signal, None]:
        return signals_of_turn(self._engine.hub, self._engine.runtime.wait, agent_id, hand_in)

    async def watch(
        self, agent: Agent | str, *, after: str | None = None
    ) -> AsyncGenerator[Signal, None]:
        """Yield the signals of all turns of an agent, from the one after `after` on.

        If the log of signals does not reach back that far, the turns that ended since are told from
        the journal first, after a signal `gap`.
        """
        who = agent if isinstance(agent, Agent) else await self.agent(agent)
        told: set[str] = set()
        if after is not None and not self._engine.hub.knows(who.id, after):
            yield Signal(after, who.id, "", "gap", {})
            # From here on signals are kept, so that nothing falls between journal and log.
            since, after = time_of(after), self._engine.hub.place(who.id)
            missed = await self._engine.database.read(
                lambda tx: journal.ended_since(tx, who.id, since)
            )
            told = {record.id for record in missed}
            for record in missed:
                if not await self._session.sees_turn(record.id):
                    continue
                yield last_signal(await self._engine.runtime.outcome(record.id))
        async with contextlib.aclosing(self._engine.hub.watch(who.id, after)) as signals:
            async for signal in signals:
                if signal.turn_id not in told and await self._session.sees_turn(signal.turn_id):
                    yield signal

    async def stop_turn(self, turn_id: str, reason: str = "Stopped.") -> None:
        """End a turn that is under way, wherever it runs, or that waits for others to end.

        One that waits is stopped on return; one that is under way ends soon after.
        """
        stands = await self._engine.runtime.stop_anywhere(turn_id, reason)
        if stands is None:
            return
        if stands.state is not TurnState.PARKED:
            raise Conflict(f"Turn {turn_id} is {stands.state.value}; there is nothing to stop.")
        asked = await self._engine.database.read(lambda tx: approvals.of_turn(tx, turn_id))
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

    # -- turns ---------------------------------------------------------------------------------

    async def outcome(self, turn_id: str) -> Outcome:
        """Return how a turn stands."""
        await self._must_hear(turn_id)
        return await self._engine.runtime.outcome(turn_id)

    async def turns(self, agent: Agent | str | None = None, *, limit: int = 20) -> list[TurnRecord]:
        """Return the latest turns, newest first."""
        agent_id: str | None = None
        if agent is not None:
            agent_id = agent.id if isinstance(agent, Agent) else (await self.agent(agent)).id

        async def read(tx: Connection) -> list[TurnRecord]:
            async def visible(found: Sequence[TurnRecord]) -> list[TurnRecord]:
                ids = await self._session.visible_turns(tx, [one.id for one in found])
                return [one for one in found if one.id in ids]

            return await enough(
                lambda most: journal.turns_of(
                    tx, self._engine.settings.constellation, agent_id, most
                ),
                visible,
                limit,
            )

        return await self._engine.database.read(read)

    async def turn(self, turn_id: str) -> tuple[TurnRecord, list[Entry]]:
        """Return a turn with its entries."""

        async def read(tx: Connection) -> tuple[TurnRecord, list[Entry]] | None:
            record = await journal.turn(tx, turn_id)
            if record is None or not await self._session.visible_turns(tx, [turn_id]):
                return None
            return record, await journal.entries_of(tx, record)

        found = await self._engine.database.read(read)
        if found is None:
            raise NotFound(
                f'There is no turn {turn_id!r}. "asterism turn list" shows the latest ones.'
            )
        return found

    async def replay(self, turn_id: str, *, cassette: Path | str | None = None) -> Replay:
        """Run a recorded turn again, offline, and tell whether it comes out the same.

        Args:
            turn_id: The turn, which must have ended.
            cassette: A tape of what went over the wire: models are heard from it through their wire
                formats, and requests composed now are compared with those on it, byte for byte.
        """
        record, entries = await self.turn(turn_id)
        if cassette is None:
            return await replay_turn(self._engine.database, record, entries)
        return await replay_tape(
            self._engine.database,
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

        record, entries = await self.turn(turn_id)
        origin = await self._engine.database.read(lambda tx: agents.by_id(tx, record.agent_id))
        assert origin is not None
        copy = replace(
            self._new_agent(
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
            if not await agents.create(tx, self._engine.settings.constellation, copy):
                return False
            await journal.copy_before(tx, origin.id, record.first_seq, copy.id)
            writer = await self._session.writer(tx, "fork", f"as it stood before {turn_id}")
            await fork_memory(tx, writer, origin.id, copy.id, moment=record.opened_at - 1)
            of = {"what": copy.name, "of": origin.name}
            await note(
                tx, self._session, "agent.forked", by="api", agent_id=copy.id, turn_id=turn_id, **of
            )
            return True

        if not await self._engine.database.write(work):
            raise Conflict(
                f"There is an agent named {copy.name!r} already. Name the fork with --name. "
                "Nothing was created."
            )
        said = next(entry for entry in entries if entry.key == "in")
        opening = orjson.loads(said.meta or "{}")
        named = images_in(said.body)
        shown = (
            await self._engine.database.read(lambda tx: journal.get_blob(tx, named))
            if named
            else {}
        )
        outcome = await self.ask(
            copy,
            text_of(said.body),
            channel="fork",
            images=[shown[id].body for id in named],
            schema=orjson.loads(opening["schema"]) if "schema" in opening else None,
        )
        return copy, outcome

    async def waiting(self) -> list[InboxItem]:
        """Return what was accepted and waits for its turn."""
        return await self._engine.database.read(self._waiting)

    async def _waiting(self, tx: Connection) -> list[InboxItem]:
        """Return what waits in the inbox and whoever acts may see."""
        found = await inbox.waiting(tx, self._engine.settings.constellation)
        visible = await self._session.visible_turns(tx, [one.turn_id for one in found])
        return [one for one in found if one.turn_id in visible]

    async def counts(self) -> tuple[int, int]:
        """Return how many agents there are, and how many messages wait."""
        constellation = self._engine.settings.constellation

        async def read(tx: Connection) -> tuple[int, int]:
            there = await agents.count(tx, constellation)
            if not self._session.sees_all:
                return there, len(await self._waiting(tx))
            return there, await inbox.count(tx, constellation)

        return await self._engine.database.read(read)

    async def metrics(self, accept: str = "") -> tuple[bytes, str]:
        """Return the metrics in a text format that Prometheus reads, and the format's type."""
        return await metrics(
            self._engine.database,
            self._engine.settings.constellation,
            self._engine.telemetry,
            self._engine.parts.breakers(),
            now=self._engine.clock(),
            accept=accept,
        )

    async def unfinished(self) -> list[str]:
        """Return the ids of turns that were accepted and have not ended: waiting or interrupted."""

        async def read(tx: Connection) -> list[str]:
            constellation = self._engine.settings.constellation
            waiting = await inbox.waiting(tx, constellation)
            ids = [one.turn_id for one in waiting if one.kind == "message" and not one.stopped]
            ids += [record.id for record in await journal.all_interrupted(tx, constellation)]
            return sorted(await self._session.visible_turns(tx, ids))

        return await self._engine.database.read(read)

    # -- people --------------------------------------------------------------------------------

    async def decide(self, approval_id: str, *, approved: bool, **given: Any) -> Receipt:
        """Answer a question; `approvals.decide` says what else can be given."""
        return await self.approvals.decide(approval_id, approved=approved, **given)

    async def notices(self, *, unseen: bool = True, limit: int = 100) -> list[Notice]:
        """Return what the owner must be told, which is for nobody else."""
        if not self._session.sees_all:
            return []
        return await self._engine.database.read(
            lambda tx: agents.list_notices(
                tx, self._engine.settings.constellation, unseen=unseen, most=limit
            )
        )

    async def notices_seen(self, ids: Sequence[str]) -> None:
        """Note that the owner has seen these."""
        at = self._engine.clock()
        await self._engine.database.write(lambda tx: agents.mark_notice_seen(tx, list(ids), at))

    # -- money ---------------------------------------------------------------------------------

    async def spend(self, days: int = 30, *, agent: Agent | str | None = None) -> Spend:
        """Return what was spent in the last days, today among them, and how the caps stand."""
        if days > _MOST_DAYS:
            raise InvalidInput(f"{days:,} days are too many; {_MOST_DAYS:,} is the most.")
        agent_id: str | None = None
        if agent is not None:
            agent_id = agent.id if isinstance(agent, Agent) else (await self.agent(agent)).id
        settings, now = self._engine.settings, self._engine.clock()
        return await self._engine.database.read(
            lambda tx: read_spend(tx, settings, self._engine.prices.of, now, days, agent_id)
        )

    async def caps(self) -> list[Standing]:
        """Return how much of each cap is used in the day or the month that it runs for."""
        settings, now = self._engine.settings, self._engine.clock()
        return await self._engine.database.read(lambda tx: standings(tx, settings, now))

    # -- out and later -------------------------------------------------------------------------

    async def deliveries(self, state: str | None = None, *, limit: int = 100) -> list[Delivery]:
        """Return deliveries in a state (`waiting`, `dead`, `sent`), or all that are not sent."""

        async def read(tx: Connection) -> list[Delivery]:
            async def visible(found: Sequence[Delivery]) -> list[Delivery]:
                ids = await self._session.visible_turns(tx, [one.turn_id for one in found])
                return [one for one in found if one.turn_id in ids]

            return await enough(
                lambda most: outbox.listing(tx, self._engine.settings.constellation, state, most),
                visible,
                limit,
            )

        return await self._engine.database.read(read)

    async def retry_delivery(self, key: str) -> None:
        """Try a dead delivery again."""
        at = self._engine.clock()

        async def work(tx: Connection) -> bool:
            revived = await outbox.revive(tx, key, at)
            if revived:
                await note(tx, self._session, "delivery.retried", by="api", what=key)
            return revived

        if not await self._engine.database.write(work):
            raise NotFound(f'There is no dead delivery {key!r}. "asterism outbox list" shows them.')
        self._engine.outbox.kick()

    async def schedules(self, agent: Agent | str) -> list[Schedule]:
        """Return the schedules of an agent, the next one first."""
        agent_id = agent.id if isinstance(agent, Agent) else (await self.agent(agent)).id

        async def read(tx: Connection) -> list[Schedule]:
            participants = await self._session.participants(tx)
            found = await schedules.of_agent(tx, agent_id)
            return [one for one in found if participants.can_see(audience_of(one.participants))]

        return await self._engine.database.read(read)
